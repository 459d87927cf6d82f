//! Pipelines of cheap commands that together are much work, and commands that are much work by themselves.

use super::{PATIENCE, prepare as prepared, set, within};
use crate::stage::Stage;
use crate::wire::{exchange, exchange_last, exchange_text, only_send, said, shown};
use larder_testkit::talk::encode;
use std::time::{Duration, Instant};

/// Bytes of a pipeline.
const PIPELINE: usize = 60_000;
/// Longest time of a pipeline as a whole: no other client waits for it.
const MOST_MS: u64 = 60_000;

pub(super) fn prepare(stage: &Stage) -> Result<(), String> {
    let mut requests = set(b"large", &vec![b'l'; 1_000_000]);
    requests.extend(set(b"other", &vec![b'o'; 1_000_000]));
    requests.extend(set(b"lcs1", &[b'a'; 1500]));
    requests.extend(set(b"lcs2", &[b'b'; 1500]));
    (0..100_000).for_each(|n| requests.extend(set(format!("key:{n}").as_bytes(), b"value")));
    prepared(stage, &requests)
}

/// Sends as many copies of a request as a pipeline holds.
fn pipelined(stage: &Stage, line: &str) -> Result<String, String> {
    let one = said(line);
    let count = PIPELINE / one.len();
    let (took, reply) = exchange(stage.resp, &one.repeat(count), PATIENCE)?;
    if reply.starts_with(b"-") {
        return Err(format!("{line}: {}", shown(&reply)));
    }
    within(took, MOST_MS, &format!("{count} × {line}"))
}

pub(super) fn bitcount(stage: &Stage) -> Result<String, String> {
    pipelined(stage, "BITCOUNT large")
}

pub(super) fn append(stage: &Stage) -> Result<String, String> {
    pipelined(stage, "APPEND large x")
}

pub(super) fn setbit(stage: &Stage) -> Result<String, String> {
    pipelined(stage, "SETBIT large 7999999 1")
}

pub(super) fn rename(stage: &Stage) -> Result<String, String> {
    let pair = [said("RENAME large away"), said("RENAME away large")].concat();
    let count = PIPELINE / pair.len();
    let (took, _) = exchange(stage.resp, &pair.repeat(count), PATIENCE)?;
    within(took, MOST_MS, &format!("{count} × two RENAMEs"))
}

pub(super) fn bitop(stage: &Stage) -> Result<String, String> {
    pipelined(stage, "BITOP XOR to large other")
}

pub(super) fn lcs(stage: &Stage) -> Result<String, String> {
    pipelined(stage, "LCS lcs1 lcs2")
}

pub(super) fn info(stage: &Stage) -> Result<String, String> {
    pipelined(stage, "INFO everything")
}

pub(super) fn keys(stage: &Stage) -> Result<String, String> {
    let (took, reply) = exchange(stage.resp, &said("KEYS none*").repeat(100), PATIENCE)?;
    if !reply.starts_with(&b"*0\r\n".repeat(40)) {
        return Err(shown(&reply));
    }
    within(took, MOST_MS, "100 × KEYS none*")
}

pub(super) fn scan_count(stage: &Stage) -> Result<String, String> {
    let (took, _) = exchange(stage.resp, &said("SCAN 0 MATCH none* COUNT 100000").repeat(200), PATIENCE)?;
    within(took, MOST_MS, "200 × SCAN COUNT 100000")
}

pub(super) fn text_append(stage: &Stage) -> Result<String, String> {
    let one = b"append large 0 0 1\r\nx\r\n";
    let count = PIPELINE / one.len();
    let (took, _) = exchange_text(stage.server.address(), &one.repeat(count), PATIENCE)?;
    within(took, MOST_MS, &format!("{count} × append"))
}

pub(super) fn exec_of_keys(stage: &Stage) -> Result<String, String> {
    let requests = [said("MULTI"), said("KEYS none*").repeat(2000), said("EXEC")].concat();
    let (took, reply) = exchange_last(stage.resp, &requests, PATIENCE)?;
    // As one step, the transaction would take seconds.
    if !String::from_utf8_lossy(&reply).contains("-EXECABORT Transaction discarded: ") {
        return Err(shown(&reply));
    }
    within(took, MOST_MS, "EXEC of 2000 × KEYS, refused,")
}

pub(super) fn swapdb(stage: &Stage) -> Result<String, String> {
    let (_long, _) = only_send(stage.resp, &said("KEYS none*").repeat(500), PATIENCE)?;
    let (took, _) = exchange(stage.resp, &said("SWAPDB 0 1").repeat(100), PATIENCE)?;
    within(took, MOST_MS, "100 × SWAPDB beside 500 × KEYS")
}

pub(super) fn populate(stage: &Stage) -> Result<String, String> {
    let requests = [said("DEBUG POPULATE 400000 p"), said("DEBUG POPULATE 4 q 2000000")].concat();
    let (took, reply) = exchange(stage.resp, &requests, PATIENCE)?;
    if !reply.starts_with(b"+OK\r\n+OK\r\n") {
        return Err(shown(&reply));
    }
    within(took, MOST_MS, "400,000 keys, and 4 of 2 MB")
}

pub(super) fn stringmatch(stage: &Stage) -> Result<String, String> {
    // The most expensive pattern: the match skips no byte of the text.
    let pattern = [&b"*"[..], &b"?".repeat(4090), b"b*"].concat();
    let one = encode(&[b"DEBUG", b"STRINGMATCH-LEN", b"1000000000", &pattern]);
    let count = PIPELINE / one.len();
    let (took, reply) = exchange(stage.resp, &one.repeat(count), PATIENCE)?;
    if !reply.starts_with(b"+OK") {
        return Err(shown(&reply));
    }
    within(took, MOST_MS, &format!("{count} × DEBUG STRINGMATCH-LEN"))
}

/// Each command is too little work to be counted by itself. As many as 100 pipelines hold are much work.
pub(super) fn cheap(stage: &Stage) -> Result<String, String> {
    let some =
        ["PING", "EXISTS a b c d", "OBJECT ENCODING a", "TTL a", "CLIENT ID", "COMMAND COUNT", "TYPE a"];
    let some: Vec<u8> = some.iter().flat_map(|line| said(line)).collect();
    let count = 100 * PIPELINE / some.len();
    let (took, _) = exchange(stage.resp, &some.repeat(count), PATIENCE)?;
    within(took, MOST_MS, &format!("{count} × seven commands"))
}

pub(super) fn sigterm(stage: &Stage) -> Result<String, String> {
    let (_long, _) = only_send(stage.resp, &said("KEYS none*").repeat(5000), PATIENCE)?;
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    stage.server.terminate();
    while stage.server.rss_bytes().is_ok_and(|bytes| bytes > 0) {
        if began.elapsed() > Duration::from_secs(35) {
            return Err("it has not ended after 35 s".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    within(began.elapsed(), 31_000, "it ended")
}
