//! Figures of the process, of all workers and of the store, as they are now.

use std::sync::PoisonError;

use larder_store::Totals;

use super::calls::{self, RowSum};
use super::context::Context;
use super::counters::Sums;
use super::host::Process;

/// What figures are told from.
#[derive(Debug)]
pub struct Figures {
    /// Of the process.
    pub process: Process,
    /// Of all workers, since the last reset.
    pub sums: Sums,
    /// Of the store.
    pub totals: Totals,
    /// Server time, seconds.
    pub now_s: u64,
}

impl Figures {
    /// Gathers them now.
    pub fn gather(cx: &Context<'_, '_>) -> Figures {
        let mut process = cx.host.process();
        process.uptime_s = process.uptime_s.saturating_add_signed(cx.shared.clock.moved_ms() / 1000);
        Figures { process, sums: sums(cx), totals: cx.guard.store().totals(), now_s: cx.now() / 1000 }
    }
}

/// Counts of all workers since the last reset.
pub(crate) fn sums(cx: &Context<'_, '_>) -> Sums {
    let mut sums = Sums::default();
    cx.host.counters(&mut |counters| sums.add(counters));
    sums.since(&cx.shared.reset.lock().unwrap_or_else(PoisonError::into_inner));
    sums
}

/// Counts anew: workers, commands, errors, connections, the store, prefixes. Workers own their counters, so what
/// they are now is remembered and taken away.
pub(crate) fn reset(cx: &Context<'_, '_>) {
    let mut sums = Sums::default();
    cx.host.counters(&mut |counters| sums.add(counters));
    *cx.shared.reset.lock().unwrap_or_else(PoisonError::into_inner) = sums;
    cx.host.reset();
    cx.guard.store().reset_counters();
    cx.shared.prefixes.clear(cx.guard.store());
    *cx.shared.counted.lock().unwrap_or_else(PoisonError::into_inner) =
        calls::sums(|visit| cx.host.counters(visit), &[]);
    cx.shared.errors.reset();
}

/// What was counted of each command since the last reset.
pub(crate) fn row_sums(cx: &Context<'_, '_>) -> Vec<RowSum> {
    let counted = cx.shared.counted.lock().unwrap_or_else(PoisonError::into_inner);
    calls::sums(|visit| cx.host.counters(visit), &counted)
}
