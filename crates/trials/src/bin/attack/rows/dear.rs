//! Pipelines of short requests that take more work than their replies show, and ZRANGESTORE of a part of a
//! large sorted set.

use super::{PATIENCE, prepare as prepared, within};
use crate::stage::Stage;
use crate::wire::{exchange, exchange_text, said, shown};
use larder_testkit::talk::encode;

/// Bytes of a pipeline.
const PIPELINE: usize = 64 << 10;
/// Longest time of a pipeline as a whole: no other client waits for it.
const MOST_MS: u64 = 60_000;

/// Lines of memcached's text that take more work than a lookup of a key.
const LINES: &[&str] = &[
    "stats memory",
    "stats types",
    "stats doctor",
    "stats hotkeys",
    "stats latency",
    "stats commands",
    "stats prefixes",
    "stats",
    "stats slabs",
    "stats items",
    "stats settings",
    "stats conns",
    "stats reset",
    "slabs reassign 1 2",
    "verbosity 0",
    "cache_memlimit 64",
];

pub(super) fn lines(stage: &Stage) -> Result<String, String> {
    let mut all = Vec::new();
    for line in LINES {
        let one = format!("{line}\r\n");
        let count = PIPELINE / one.len();
        let (took, _) = exchange_text(stage.server.address(), one.repeat(count).as_bytes(), PATIENCE)?;
        all.push(within(took, MOST_MS, &format!("{count} × {line}"))?);
    }
    Ok(all.join(", "))
}

/// Elements of a list, all of which a request for its encoding must look at.
const EMPTIES: usize = 4_000;

pub(super) fn empties(stage: &Stage) -> Result<(), String> {
    let words: Vec<&[u8]> = [&b"RPUSH"[..], b"l"].into_iter().chain([&b""[..]; EMPTIES]).collect();
    prepared(stage, &encode(&words))
}

pub(super) fn commands(stage: &Stage) -> Result<String, String> {
    let pattern = format!("COMMAND LIST FILTERBY PATTERN *{}", "[ab]?".repeat(800));
    let lines = [
        "MEMORY DOCTOR",
        "LATENCY DOCTOR",
        "INFO latencystats",
        "ACL CAT hyperloglog",
        "COMMAND LIST FILTERBY ACLCAT geo",
        &pattern,
        "OBJECT ENCODING l",
        "CONFIG RESETSTAT",
    ];
    let mut all = Vec::new();
    for line in lines {
        let one = said(line);
        let count = PIPELINE / one.len();
        let (took, reply) = exchange(stage.resp, &one.repeat(count), PATIENCE)?;
        if reply.starts_with(b"-") {
            return Err(format!("{line}: {}", shown(&reply)));
        }
        let name = line.split(" *").next().unwrap_or(line);
        all.push(within(took, MOST_MS, &format!("{count} × {name}"))?);
    }
    Ok(all.join(", "))
}

/// Members of a sorted set, a part of which is copied.
const MEMBERS: usize = 100_000;

pub(super) fn sorted(stage: &Stage) -> Result<(), String> {
    let mut requests = Vec::new();
    for from in (0..MEMBERS).step_by(1_000) {
        let pairs = (from..from + 1_000).flat_map(|n| [n.to_string(), format!("member:{n}")]);
        let pairs: Vec<String> = pairs.collect();
        let words = [&b"ZADD"[..], b"z"].into_iter().chain(pairs.iter().map(String::as_bytes));
        requests.extend(encode(&words.collect::<Vec<_>>()));
    }
    prepared(stage, &requests)
}

pub(super) fn zrangestore(stage: &Stage) -> Result<String, String> {
    let (took, reply) = exchange(stage.resp, &said("ZRANGESTORE d z 0 -1"), PATIENCE)?;
    if !reply.starts_with(format!(":{MEMBERS}\r\n").as_bytes()) {
        return Err(shown(&reply));
    }
    within(took, 1_000, &format!("{MEMBERS} members stored"))
}
