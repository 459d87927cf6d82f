//! Requests that are never completed, and clients that do not log in.

use super::{PATIENCE, set, within};
use crate::stage::Stage;
use crate::wire::{connect, exchange, only_send, said, shown};
use larder_testkit::talk::encode;
use std::time::{Duration, Instant};

/// Connections that send a part of a request and then nothing.
const HALF_OPEN: usize = 2000;
/// The percentage of the items that must still be there.
const LEFT_PERCENT: u64 = 75;

/// The number of keys.
fn items(stage: &Stage, before: &[u8]) -> Result<u64, String> {
    let (_, reply) = exchange(stage.resp, &[before, &said("DBSIZE")].concat(), PATIENCE)?;
    let text = String::from_utf8_lossy(&reply).into_owned();
    let number = text.lines().find_map(|line| line.strip_prefix(':'));
    number.and_then(|number| number.parse().ok()).ok_or_else(|| shown(&reply))
}

/// Writes 50 values, each by a connection of its own; returns how long the slowest took.
pub(super) fn writes(stage: &Stage) -> Result<Duration, String> {
    let mut worst = Duration::ZERO;
    for n in 0..50 {
        let began = Instant::now();
        let (_, reply) = exchange(stage.resp, &set(format!("w{n}").as_bytes(), &[b'w'; 1000]), PATIENCE)?;
        worst = worst.max(began.elapsed());
        if !reply.starts_with(b"+OK") {
            return Err(format!("a write was refused: {}", shown(&reply)));
        }
    }
    Ok(worst)
}

pub(super) fn half_open(stage: &Stage) -> Result<String, String> {
    let before = items(stage, b"")?;
    let mut open = Vec::new();
    for n in 0..HALF_OPEN {
        let (address, part) = match n % 3 {
            0 => (stage.resp, encode(&[b"SET", b"k", &[b'x'; 32_000]])),
            1 => (stage.server.address(), format!("get {}", "y".repeat(100) + " ").repeat(320).into_bytes()),
            _ => (stage.server.address(), [&b"set z 0 0 31500\r\n"[..], &[b'z'; 31_500]].concat()),
        };
        open.push(only_send(address, &part[..31_000], Duration::from_secs(1))?.0);
    }
    let left = items(stage, b"")?;
    let worst = writes(stage)?;
    stage.open.lock().expect("not poisoned").extend(open);
    let said = format!("{left} of {before} items left, of 50 writes the slowest");
    let said = within(worst, 100, &said)?;
    if left * 100 < before * LEFT_PERCENT { Err(said) } else { Ok(said) }
}

pub(super) fn unauthenticated(stage: &Stage) -> Result<String, String> {
    let argument = vec![b'x'; 16_000];
    let words: Vec<&[u8]> = std::iter::repeat_n(&argument[..], 10).collect();
    let part = encode(&words);
    let mut open = Vec::new();
    for _ in 0..60 {
        open.push(only_send(stage.resp, &part[..part.len() - 2000], Duration::from_secs(1))?.0);
    }
    // Clients that log in: one that was connected before, and a new one with a long request.
    let known = connect(stage.resp)?;
    let long = encode(&[b"APPEND", b"appended", &vec![b'a'; 3_000_000]]);
    let (took, reply) = exchange(stage.resp, &[said("AUTH secret"), long].concat(), PATIENCE)?;
    drop(known);
    stage.open.lock().expect("not poisoned").extend(open);
    if !reply.starts_with(b"+OK\r\n:3000000") {
        return Err(format!("an APPEND of 3 MB beside 60 unauthenticated clients: {}", shown(&reply)));
    }
    within(took, 1000, "an APPEND of 3 MB beside 60 unauthenticated clients")
}
