//! Fills the memory that clients leave, and keeps it full. Sizes change all the time, so that memory moves
//! between classes. The filler's items may be evicted.

use crate::client::open;
use crate::random::Random;
use crate::values::length;
use crate::wire::{Manner, Wire};
use crate::world::World;
use std::io;
use std::thread;
use std::time::Duration;

/// Most keys of the filler.
const KEYS: usize = 400_000;
/// Sets and deletes that are sent together.
const TOGETHER: usize = 60;

/// Runs until the soak ends.
pub fn run(world: &World, seed: u64) {
    let mut random = Random::of(seed, 2 << 32);
    let filling = vec![b'f'; 1 << 20];
    let mut wire: Option<Wire> = None;
    let mut usual = 200;
    while world.runs() {
        let filled = world.within(|phase| {
            if !phase.fills {
                return true;
            }
            if wire.is_none() {
                wire = open(world, 0);
            }
            let Some(open) = &mut wire else { return false };
            if random.chance(1) {
                usual = length(&mut random).min(5000);
            }
            let before = world.moment();
            match fill(open, &mut random, usual, &filling) {
                Ok([stored, refused]) => {
                    world.count("filler: stored", stored);
                    world.count("filler: refused", refused);
                    let span = crate::world::Span { before, after: world.moment() };
                    if refused > 0 && !span.may_meet(crate::world::Cause::Full, &span) {
                        world.complain(&format!("{refused} sets were refused in a store that evicts"));
                    }
                }
                Err(error) => {
                    let address = open.address;
                    wire = None;
                    world.broke(address, || format!("the filler's connection: {error}"));
                }
            }
            false
        });
        thread::sleep(Duration::from_millis(if filled { 20 } else { random.within(1, 4) as u64 }));
    }
    if let Some(wire) = wire {
        world.forget(wire.address);
    }
}

/// Sets some keys and deletes a few; returns how many were stored and refused.
fn fill(wire: &mut Wire, random: &mut Random, usual: usize, filling: &[u8]) -> io::Result<[u64; 2]> {
    let mut request = Vec::new();
    for _ in 0..TOGETHER {
        let key = random.below(KEYS);
        if random.chance(10) {
            request.extend_from_slice(format!("delete f{key}\r\n").as_bytes());
            continue;
        }
        let bytes = if random.chance(10) { length(random) } else { random.within(usual / 2, usual * 2) };
        request.extend_from_slice(format!("set f{key} 0 0 {bytes}\r\n").as_bytes());
        request.extend_from_slice(&filling[..bytes]);
        request.extend_from_slice(b"\r\n");
    }
    wire.send(&request, Manner::Prompt, random)?;
    let mut counts = [0, 0];
    for _ in 0..TOGETHER {
        match &wire.line()?[..] {
            b"STORED" => counts[0] += 1,
            b"DELETED" | b"NOT_FOUND" => {}
            line if line.starts_with(b"SERVER_ERROR out of memory storing") => counts[1] += 1,
            line if line.starts_with(b"SERVER_ERROR Out of memory during") => counts[1] += 1,
            line => return Err(io::Error::other(String::from_utf8_lossy(line).into_owned())),
        }
    }
    Ok(counts)
}
