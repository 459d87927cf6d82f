//! Buffers of connections beside upkeep: whenever no thread is inside a call, all bytes that connections hold
//! are charged.

use crate::stage::Cast;
use larder_store::schedule::sleep;
use std::time::Duration;

/// Most bytes that a connection takes at a time: far more than anything else in a store of this size is
/// charged.
const BYTES_MAX: u64 = 1 << 20;
/// Interval at which upkeep lowers the charge, in milliseconds.
const UPKEEP_MS: u64 = 250;

/// Adds `count` threads whose connections take and give back buffers `steps` times, and a thread that does
/// upkeep. Each connection still holds buffers at the end.
pub fn join(cast: &mut Cast, count: u64, steps: u64) {
    for _ in 0..count {
        cast.main("holder", move |actor| {
            let mut held = 0;
            for step in 0..steps {
                let bytes = 1 + actor.random.below(BYTES_MAX) as i64;
                if step + 1 < steps && held > 0 && actor.random.below(2) == 0 {
                    actor.stage.store.hold(-held);
                    held = 0;
                } else {
                    actor.stage.store.hold(bytes);
                    held += bytes;
                }
                let ns = actor.random.below(3_000);
                sleep(Duration::from_nanos(ns));
            }
        });
    }
    cast.aside("upkeep", |actor| {
        actor.stage.pass(UPKEEP_MS);
        actor.batch(|guard, _, _| guard.maintain());
    });
}
