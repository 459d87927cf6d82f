//! Buffers of connections beside upkeep: what they hold is charged whenever no thread is in the middle of a call.

use crate::stage::Cast;
use larder_store::schedule::sleep;
use std::time::Duration;

/// Bytes that a connection takes at a time: far above what else a store of this size charges.
const BYTES_MAX: u64 = 1 << 20;
/// Upkeep lowers what is charged every so often.
const UPKEEP_MS: u64 = 250;

/// Adds `count` threads whose connections take and give back buffers so many times, and one that does upkeep. Each connection
/// ends with buffers that it keeps.
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
