//! Elements of megabytes: sent to clients that read nothing, and received in part.

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
/// Clients at once that read nothing, and for how long they do not.
const READERS: usize = 40;
const STANDS: Duration = Duration::from_secs(3);
/// Clients at once that send so much of an element, and stand. Together that is more than elements on their way in may take.
const SENDERS: usize = 60;
const PART_BYTES: usize = 400_000;

/// Bytes of an element and of a value that come last, at most, and how often each is put, moved, read and taken out.
const LONGEST_BYTES: usize = 64 << 20;
const ROUNDS: usize = 3;

fn pushed(key: &[u8]) -> Vec<u8> {
    encode(&[b"RPUSH", key, &vec![b'e'; ELEMENT_BYTES]])
}

pub(super) fn elements(stage: &Stage) -> Result<(), String> {
    prepared(stage, &pushed(b"l").repeat(ELEMENTS))
}

/// What was popped is in no list any more, and stays where it lies until it is sent.
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

/// Elements of lists and values of fields, by turns; then one that comes whole.
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
    // It begins when enough of those that began before it have stood still for 250 ms.
    within(took, 3000, &what)
}

/// Each part of an element is linked, pinned and given back in the step of its command.
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
