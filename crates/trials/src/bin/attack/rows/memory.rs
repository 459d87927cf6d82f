//! Requests whose replies, or the records that the server keeps of them, are many times as long as the
//! requests.

use super::{PATIENCE, prepare, set};
use crate::stage::Stage;
use crate::wire::{connect, exchange, exchange_text, only_send, said, shown};
use larder_testkit::talk::encode;
use std::io::Write;
use std::thread;
use std::time::Duration;

/// For how long a client reads nothing.
const STANDS: Duration = Duration::from_secs(3);

/// Sends requests, reads nothing for a while, and disconnects.
fn unread(stage: &Stage, requests: &[u8]) -> Result<String, String> {
    let (stream, sent) = only_send(stage.resp, requests, STANDS)?;
    thread::sleep(STANDS);
    drop(stream);
    exchange(stage.resp, &said("PING"), PATIENCE)
        .map(|_| format!("{sent} of {} bytes were taken, nothing was read", requests.len()))
}

pub(super) fn one_of_16k(stage: &Stage) -> Result<(), String> {
    prepare(stage, &set(b"k", &[b'v'; 16_000]))
}

pub(super) fn mget_of_one(stage: &Stage) -> Result<String, String> {
    let mut words = vec![&b"MGET"[..]];
    words.resize(100_001, b"k");
    unread(stage, &encode(&words))
}

pub(super) fn exec_of_gets(stage: &Stage) -> Result<String, String> {
    let mut requests = said("MULTI");
    (0..20_000).for_each(|_| requests.extend(said("GET k")));
    requests.extend(said("EXEC"));
    unread(stage, &requests)
}

pub(super) fn command_docs(stage: &Stage) -> Result<String, String> {
    unread(stage, &said("COMMAND DOCS client").repeat(300_000))
}

pub(super) fn client_names(stage: &Stage) -> Result<String, String> {
    let name = vec![b'n'; 7 << 20];
    let mut open = Vec::new();
    for _ in 0..30 {
        let mut stream = connect(stage.resp)?;
        let _ = stream.set_write_timeout(Some(STANDS));
        // The server may also close the connection.
        let _ = stream.write_all(&encode(&[b"CLIENT", b"SETNAME", &name]));
        open.push(stream);
    }
    let (_, reply) =
        exchange(stage.resp, &[said("CLIENT LIST"), said("SLOWLOG GET 128")].concat(), PATIENCE)?;
    stage.open.lock().expect("not poisoned").extend(open);
    Ok(shown(&reply))
}

pub(super) fn keys_of_8k(stage: &Stage) -> Result<(), String> {
    let mut requests = Vec::new();
    for n in 0..4000 {
        let mut key = vec![b'k'; 8192];
        key.extend_from_slice(format!("{n}").as_bytes());
        requests.extend(set(&key, b""));
    }
    prepare(stage, &requests)
}

/// Clients at a time in [`keys`] that read nothing.
const READERS: usize = 40;

pub(super) fn keys(stage: &Stage) -> Result<String, String> {
    let readers = (0..READERS).map(|_| only_send(stage.resp, &said("KEYS *").repeat(10), STANDS));
    let readers = readers.collect::<Result<Vec<_>, _>>()?;
    thread::sleep(STANDS);
    drop(readers);
    exchange(stage.resp, &said("PING"), PATIENCE).map(|_| format!("{READERS} readers, nothing was read"))
}

/// Writes that evict other items: no other client waits for that.
pub(super) fn full_writes(stage: &Stage) -> Result<String, String> {
    const EACH: usize = 500;
    let value = [b'w'; 1000];
    let names: Vec<String> = (0..EACH).map(|n| format!("new:{n}")).collect();
    let sets: Vec<u8> = names.iter().flat_map(|name| set(name.as_bytes(), &value)).collect();
    let (mut mset, mut push) = (vec![&b"MSET"[..]], vec![&b"LPUSH"[..], b"list"]);
    names.iter().for_each(|name| mset.extend([name.as_bytes(), &value]));
    push.resize(2 + EACH, &value);
    let round = [said("MULTI"), sets, said("EXEC"), encode(&mset), encode(&push), said("DEL list")].concat();
    let (took, _) = exchange(stage.resp, &round.repeat(40), PATIENCE)?;
    Ok(format!("40 × EXEC, MSET and LPUSH of {EACH} KB in {took:.1?}"))
}

pub(super) fn bitfield(stage: &Stage) -> Result<String, String> {
    let mut words = vec![&b"BITFIELD"[..], b"k"];
    for _ in 0..43_690 {
        words.extend([&b"GET"[..], b"u8", b"0"]);
    }
    unread(stage, &encode(&words).repeat(8))
}

pub(super) fn stats_detail(stage: &Stage) -> Result<String, String> {
    let mut requests = b"stats detail on\r\n".to_vec();
    for n in 0..200_000 {
        requests.extend_from_slice(format!("get a{n:0>100}:k\r\n").as_bytes());
    }
    (0..20).for_each(|_| requests.extend_from_slice(b"stats detail dump\r\n"));
    let (took, _) = exchange_text(stage.server.address(), &requests, PATIENCE)?;
    Ok(format!("answered in {took:.1?}"))
}
