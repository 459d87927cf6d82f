//! Memory and descriptors of the server: memory is within the limit at every look.

use crate::world::World;
use larder_testkit::process::Server;
use larder_testkit::stage::{PROGRAM_BYTES, bound};
use std::thread;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(50);
/// How long a server that was given a lower limit may take to give pages back.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The largest resident memory.
    pub rss_max: u64,
    /// The most by which it was above its bound, and the bound then.
    pub above: Option<(u64, u64)>,
    /// The most descriptors.
    pub descriptors_max: usize,
}

/// Descriptors that the server has open.
///
/// # Errors
/// When `/proc` does not say.
pub fn descriptors(server: &Server) -> Result<usize, String> {
    let path = format!("/proc/{}/fd", server.id());
    std::fs::read_dir(&path).map(Iterator::count).map_err(|error| format!("{path}: {error}"))
}

/// As [`descriptors`], when they have been as many for a while: a server that has just begun still opens some.
///
/// # Errors
/// When `/proc` does not say.
pub fn descriptors_at_rest(server: &Server) -> Result<usize, String> {
    let (mut count, mut alike) = (descriptors(server)?, 0);
    while alike < 10 {
        thread::sleep(EVERY);
        let now = descriptors(server)?;
        alike = if now == count { alike + 1 } else { 0 };
        count = now;
    }
    Ok(count)
}

/// Looks until the end.
pub fn run(world: &World, server: &Server) -> Seen {
    let mut seen = Seen::default();
    while world.runs() {
        match (server.rss_bytes(), descriptors(server)) {
            (Ok(rss), Ok(descriptors)) => {
                let bound = bound(world.limit_bytes(PATIENCE)) + PROGRAM_BYTES;
                seen.rss_max = seen.rss_max.max(rss);
                seen.descriptors_max = seen.descriptors_max.max(descriptors);
                if rss > bound {
                    let above = rss - bound;
                    if seen.above.is_none() {
                        world.complain(&format!("{rss} bytes are resident, {bound} are allowed"));
                    }
                    seen.above = seen.above.max(Some((above, bound)));
                }
            }
            _ => {
                world.complain(&format!("the server is gone: {}", server.output()));
                return seen;
            }
        }
        thread::sleep(EVERY);
    }
    seen
}
