//! The server's memory and descriptors: memory is within the limit at every measurement.

use crate::world::World;
use larder_testkit::process::Server;
use larder_testkit::stage::{PROGRAM_BYTES, bound};
use std::thread;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(50);
/// Longest time in which the server returns pages after its limit was lowered.
const PATIENCE: Duration = Duration::from_secs(20);

/// The measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The highest resident memory.
    pub rss_max: u64,
    /// The largest excess over the bound, and the bound at that time.
    pub above: Option<(u64, u64)>,
    /// The largest number of descriptors.
    pub descriptors_max: usize,
}

/// Number of open descriptors of the server.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descriptors(server: &Server) -> Result<usize, String> {
    let path = format!("/proc/{}/fd", server.id());
    std::fs::read_dir(&path).map(Iterator::count).map_err(|error| format!("{path}: {error}"))
}

/// As [`descriptors`], once the number has been the same for a while: a server that has just started still
/// opens some.
///
/// # Errors
/// `/proc` cannot be read.
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

/// Measures until the soak ends.
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
