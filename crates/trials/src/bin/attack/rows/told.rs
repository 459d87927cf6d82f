//! Messages to very many subscribers that read nothing: no item is evicted for the messages that wait.

use super::{PATIENCE, prepare, set, within};
use crate::stage::Stage;
use crate::wire::{connect, exchange, exchange_last, said, shown};
use larder_testkit::talk::encode;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Subscribers.
const LISTENERS: usize = 500;
/// Number of items besides: two thirds of the memory.
const ITEMS: usize = 40_000;
/// How long the items are watched after the messages.
const AFTER: Duration = Duration::from_secs(2);

pub(super) fn items(stage: &Stage) -> Result<(), String> {
    let sets = (0..ITEMS).map(|n| set(format!("item:{n}").as_bytes(), &[b'v'; 1000]));
    prepare(stage, &sets.collect::<Vec<_>>().concat())
}

fn items_there(stage: &Stage) -> Result<usize, String> {
    let (_, reply) = exchange(stage.resp, &said("DBSIZE"), PATIENCE)?;
    let text = String::from_utf8_lossy(&reply);
    let count = text.strip_prefix(':').and_then(|rest| rest.split('\r').next()?.parse().ok());
    count.ok_or_else(|| shown(&reply))
}

/// Connects clients that send `request`, read the beginning of the reply, and then nothing until the attack
/// is over.
fn listening(stage: &Stage, request: &[u8]) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    for _ in 0..LISTENERS {
        let mut stream = connect(stage.resp)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
        stream.write_all(request).map_err(told)?;
        // The "+OK\r
        // " of MONITOR, or the beginning of the reply to SUBSCRIBE.
        stream.read_exact(&mut [0; 5]).map_err(told)?;
        stage.open.lock().expect("not poisoned").push(stream);
    }
    Ok(())
}

/// Sends a request twice; an error if items are evicted for its messages.
fn tell(stage: &Stage, request: &[u8], begins: &[u8]) -> Result<String, String> {
    let before = items_there(stage)?;
    let began = Instant::now();
    let (_, reply) = exchange(stage.resp, &request.repeat(2), PATIENCE)?;
    if !reply.starts_with(begins) {
        return Err(shown(&reply));
    }
    let said = within(began.elapsed(), 5_000, &format!("told to {LISTENERS}"))?;
    while began.elapsed() < AFTER {
        let after = items_there(stage)?;
        if after < before {
            return Err(format!("{said}: of {before} items {after} are there"));
        }
    }
    Ok(format!("{said}, {before} items stay"))
}

pub(super) fn publish(stage: &Stage) -> Result<String, String> {
    listening(stage, &said("SUBSCRIBE c"))?;
    tell(stage, &encode(&[b"PUBLISH", b"c", &vec![b'x'; 1_000_000]]), b":500\r\n:500\r\n")
}

pub(super) fn monitors(stage: &Stage) -> Result<String, String> {
    listening(stage, &said("MONITOR"))?;
    let names: Vec<String> = (0..8).map(|n| format!("seen:{n}")).collect();
    let (value, mut words) = (vec![b'x'; 16 << 10], vec![&b"MSET"[..]]);
    names.iter().for_each(|name| words.extend([name.as_bytes(), &value]));
    tell(stage, &encode(&words), b"+OK\r\n+OK\r\n")
}

/// A client publishes to itself in a transaction; its messages are searched for among all that are waiting.
pub(super) fn exec_of_publish(stage: &Stage) -> Result<String, String> {
    const EACH: usize = 4000;
    let queued = [said("PUBLISH c x").repeat(EACH), said("UNSUBSCRIBE other").repeat(EACH)].concat();
    let requests =
        [said("HELLO 3"), said("SUBSCRIBE c"), said("MULTI"), queued, said("EXEC"), said("UNSUBSCRIBE c")]
            .concat();
    let (took, reply) = exchange_last(stage.resp, &requests, PATIENCE)?;
    if reply.starts_with(b"-") {
        return Err(shown(&reply));
    }
    within(took, 1000, &format!("EXEC of {EACH} PUBLISH and as many UNSUBSCRIBE"))
}
