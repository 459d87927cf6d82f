//! Pipelines of requests whose replies do not show what they take.

use super::{PATIENCE, within};
use crate::stage::Stage;
use crate::wire::exchange_text;

/// Bytes of a pipeline.
const PIPELINE: usize = 64 << 10;
/// How long one may take in all: nobody else waits for it.
const MOST_MS: u64 = 60_000;

/// Lines of memcached's text that are more than a look at a key.
const LINES: &[&str] = &[
    "stats doctor",
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
