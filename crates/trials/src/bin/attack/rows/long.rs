//! Elements of megabytes: sent to clients that read nothing, and received only in part.

use super::half_open::writes;
use super::{PATIENCE, prepare as prepared, within};
use crate::stage::Stage;
use crate::wire::{exchange, only_send, said, shown};
use larder_testkit::talk::encode;
use std::thread;
use std::time::Duration;

/// Bytes of an element, and how many there are.
const ELEMENT_BYTES: usize = 3 << 20;
const ELEMENTS: usize = 8;
/// Clients at a time that read nothing. `STANDS`: for how long they do not.
const READERS: usize = 40;
const STANDS: Duration = Duration::from_secs(3);
/// Clients at a time that each send `PART_BYTES` of an element, and then nothing. Together that is more than
/// elements may take while they arrive.
const SENDERS: usize = 60;
const PART_BYTES: usize = 400_000;

/// Bytes of the longest element and value. `ROUNDS`: how often each is put, moved, read and removed.
const LONGEST_BYTES: usize = 64 << 20;
const ROUNDS: usize = 3;

fn pushed(key: &[u8]) -> Vec<u8> {
    encode(&[b"RPUSH", key, &vec![b'e'; ELEMENT_BYTES]])
}

pub(super) fn elements(stage: &Stage) -> Result<(), String> {
    prepared(stage, &pushed(b"l").repeat(ELEMENTS))
}

/// An element that was popped is in no list any more, but its memory is in use until it is sent.
pub(super) fn unread(stage: &Stage) -> Result<String, String> {
    let (_, there) = exchange(stage.resp, &said("LLEN l"), PATIENCE)?;
    if !there.starts_with(b":") || there.starts_with(b":0") {
        return Err(format!("elements that clients are to ask for: {}", shown(&there)));
    }
    let lines = ["LRANGE l 0 -1", "LPOP l", "LINDEX l 0", "LRANGE l 0 3"];
    let readers = (0..READERS).map(|n| only_send(stage.resp, &said(lines[n % lines.len()]), STANDS));
    let readers = readers.collect::<Result<Vec<_>, _>>()?;
    thread::sleep(STANDS);
    let worst = writes(stage)?;
    drop(readers);
    within(worst, 100, &format!("{READERS} readers, nothing was read, of 50 writes the slowest"))
}

/// Connections send a part of a list's element or of a field's value, by turns; then one sends an element
/// completely.
pub(super) fn in_part(stage: &Stage) -> Result<String, String> {
    let field = encode(&[b"HSET", b"h", b"field", &vec![b'v'; ELEMENT_BYTES]]);
    let parts = [pushed(b"part"), field];
    let mut open = Vec::new();
    for n in 0..SENDERS {
        open.push(only_send(stage.resp, &parts[n % parts.len()][..PART_BYTES], STANDS)?.0);
    }
    let (took, reply) = exchange(stage.resp, &pushed(b"whole"), PATIENCE)?;
    stage.open.lock().expect("not poisoned").extend(open);
    let what = format!("an RPUSH of 3 MiB beside {SENDERS} that came in part");
    if !reply.starts_with(b":1\r\n") {
        return Err(format!("{what}: {}", shown(&reply)));
    }
    // Its element is received once enough of those that began before it have stood still for 250 ms.
    within(took, 3000, &what)
}

/// All parts of an element are linked, pinned and freed in the step of one command.
pub(super) fn longest(stage: &Stage) -> Result<String, String> {
    let bytes = vec![b'e'; LONGEST_BYTES];
    let push = encode(&[b"RPUSH", b"longest", &bytes]);
    let set = encode(&[b"HSET", b"hash", b"field", &bytes]);
    let lines = [
        "LMOVE longest moved LEFT RIGHT",
        "LMOVE moved longest LEFT RIGHT",
        "LRANGE longest 0 -1",
        "HGET hash field",
        "LPOP longest",
        "HDEL hash field",
    ];
    let requests = [push, set, lines.map(said).concat()].concat();
    let mut all = Duration::ZERO;
    for _ in 0..ROUNDS {
        let (took, reply) = exchange(stage.resp, &requests, PATIENCE)?;
        if !reply.starts_with(b":1\r\n:1\r\n$67108864\r\n") {
            return Err(format!("elements and values of 64 MiB: {}", shown(&reply)));
        }
        all += took;
    }
    within(all, 60_000, &format!("{ROUNDS} × an element and a value of 64 MiB put, moved, read, taken out"))
}
