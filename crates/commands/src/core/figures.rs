//! Figures of the process, of all workers and of the store, as they are now.
//!
//! Counts of events only grow. `stats reset` remembers the counts of its time ([`Base`]); clients are shown what came since.
//! Scrapers are shown the whole counts: to them a count that falls is a server that was started anew.

pub mod table;
pub mod types;

use std::sync::PoisonError;

use larder_store::{ClassTotals, Ledger, Millis, Store, Totals};

use super::base::Base;
use super::calls::{self, RowSum};
use super::context::Context;
use super::counters::Sums;
use super::host::{Host, Process};
use super::shared::Shared;
use super::system::System;
use super::traffic;
use super::work::{CALLS_NS, CLASSES_NS, COUNTERS_NS, FIGURES_NS, MEMCACHED_CALLS_NS, RULES_NS, TYPES_NS};
use types::{OfType, TYPES};

/// The place where figures are gathered: what all workers share, the server, and the time.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub shared: &'a Shared,
    pub host: &'a dyn Host,
    pub store: &'a Store,
    /// Server time.
    pub now: Millis,
}

impl<'a> Place<'a> {
    /// The place of a call.
    pub fn of(cx: &'a Context<'_, '_>) -> Place<'a> {
        Place { shared: cx.shared, host: cx.host, store: cx.guard.store(), now: cx.now() }
    }
}

/// All that figures are made from.
#[derive(Debug)]
pub struct Figures {
    /// Figures of the process.
    pub process: Process,
    /// Counters of all workers.
    pub sums: Sums,
    /// Figures of the store.
    pub totals: Totals,
    /// Server time, seconds.
    pub now_s: u64,
    /// Keyspace events that were not sent to subscribers, because too many waited.
    pub events_lost: u64,
    /// Requests whose prefixes have no row of their own.
    pub prefixes_missed: u64,
    /// Times that one command had the store for itself.
    pub whole_holds: u64,
    /// Channels, patterns and sharded channels that have subscribers.
    pub topics: [u64; 3],
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Other figures of the system.
    pub(crate) system: System,
    /// Summary of the sampled traffic.
    pub(crate) traffic: traffic::Summary,
    /// Number of watchers, of lines sent to them, and of lines skipped.
    pub watched: [u64; 3],
}

impl Figures {
    /// Gathers figures now: counts are since the last reset. Spends what that takes.
    pub(crate) fn gather(cx: &Context<'_, '_>) -> Figures {
        spend_each(cx, FIGURES_NS, COUNTERS_NS);
        let mut figures = Figures::since_start(Place::of(cx));
        let base = cx.shared.base.lock().unwrap_or_else(PoisonError::into_inner);
        figures.process.since(&base.process);
        figures.sums.since(&base.sums);
        figures.totals.since(&base.totals);
        figures
    }

    /// Gathers figures now: counts are since the server was started.
    pub(crate) fn since_start(place: Place<'_>) -> Figures {
        let Place { shared, host, store, now } = place;
        let mut process = host.process();
        process.uptime_s = process.uptime_s.saturating_add_signed(shared.clock.moved_ms() / 1000);
        let topics = &shared.topics;
        let totals = store.totals();
        let asked = host.asks_system().then(|| shared.said.system(host.clock_us()));
        let system = asked.unwrap_or_default();
        Figures {
            process,
            sums: all_sums(host),
            resident_bytes: system.resident_bytes.unwrap_or(totals.used_bytes),
            system,
            totals,
            now_s: now / 1000,
            events_lost: store.events_lost() + shared.telling.lost(),
            prefixes_missed: shared.prefixes.missed(),
            whole_holds: store.whole_holds(),
            traffic: shared.traffic.told(),
            watched: shared.watchers.counts(),
            topics: [
                topics.channels.channels() as u64,
                topics.pattern_count() as u64,
                topics.shards.channels() as u64,
            ],
        }
    }
}

/// Spends `ns`, and `worker_ns` for each worker.
fn spend_each(cx: &Context<'_, '_>, ns: u64, worker_ns: u64) {
    let mut workers = 0;
    cx.host.counters(&mut |_| workers += 1);
    cx.room.work().spend(ns + workers * worker_ns);
}

/// Spends the time that [`super::findings::find`] takes to find what an operator should know.
pub(crate) fn spend_on_findings(cx: &Context<'_, '_>) {
    spend_each(cx, FIGURES_NS + RULES_NS, COUNTERS_NS);
}

fn all_sums(host: &dyn Host) -> Sums {
    let mut sums = Sums::default();
    host.counters(&mut |counters| sums.add(counters));
    sums
}

/// Counts of all workers since the last reset. Spends what that takes.
pub(crate) fn sums(cx: &Context<'_, '_>) -> Sums {
    spend_each(cx, 0, COUNTERS_NS);
    let mut sums = all_sums(cx.host);
    sums.since(&cx.shared.base.lock().unwrap_or_else(PoisonError::into_inner).sums);
    sums
}

/// The store's totals, and the uses of its memory. Spends what that takes.
pub(crate) fn memory(cx: &Context<'_, '_>) -> (Totals, Ledger) {
    spend_each(cx, CLASSES_NS, COUNTERS_NS);
    let store = cx.guard.store();
    (store.totals(), store.ledger())
}

/// Items and bytes of each type of values. Spends what that takes.
pub(crate) fn of_types(cx: &Context<'_, '_>) -> [OfType; TYPES] {
    spend_each(cx, CLASSES_NS, COUNTERS_NS + TYPES_NS);
    types::of_types(cx.shared, cx.guard.store())
}

/// The store's classes that own a span, with what they counted since the last reset. Spends what that takes.
pub(crate) fn classes(cx: &Context<'_, '_>) -> Vec<ClassTotals> {
    cx.room.work().spend(CLASSES_NS);
    let mut classes = cx.guard.store().classes(cx.now());
    let base = cx.shared.base.lock().unwrap_or_else(PoisonError::into_inner);
    for class in &mut classes {
        if let Some(before) = base.classes.iter().find(|before| before.id == class.id) {
            class.since(before);
        }
    }
    classes
}

/// Begins to count anew: workers, commands, errors, connections, the store, prefixes. Only the threads that count write their
/// counters, so that the present counts are remembered and subtracted. Spends what that takes.
pub(crate) fn reset(cx: &Context<'_, '_>) {
    spend_each(cx, FIGURES_NS + CLASSES_NS, COUNTERS_NS + CALLS_NS + MEMCACHED_CALLS_NS);
    let Place { shared, host, store, now } = Place::of(cx);
    *shared.base.lock().unwrap_or_else(PoisonError::into_inner) = Base {
        process: host.process(),
        sums: all_sums(host),
        totals: store.totals(),
        classes: store.all_classes(now),
        rows: all_row_sums(host),
        memcached: all_memcached_sums(host),
    };
    shared.prefixes.clear();
    shared.errors.reset();
    shared.access.log.reset_counts();
}

/// Counts of each RESP command since the last reset. Spends what that takes.
pub(crate) fn row_sums(cx: &Context<'_, '_>) -> Vec<RowSum> {
    spend_each(cx, 0, CALLS_NS);
    let base = cx.shared.base.lock().unwrap_or_else(PoisonError::into_inner);
    calls::sums(|visit| cx.host.counters(visit), |counters| &counters.rows, &base.rows)
}

/// Counts of each RESP command since the server was started.
pub(crate) fn all_row_sums(host: &dyn Host) -> Vec<RowSum> {
    calls::sums(|visit| host.counters(visit), |counters| &counters.rows, &[])
}

/// Measured counts of each of memcached's commands since the last reset. Spends what that takes.
pub(crate) fn memcached_sums(cx: &Context<'_, '_>) -> Vec<RowSum> {
    spend_each(cx, 0, MEMCACHED_CALLS_NS);
    let base = cx.shared.base.lock().unwrap_or_else(PoisonError::into_inner);
    calls::sums(|visit| cx.host.counters(visit), |counters| &counters.memcached, &base.memcached)
}

/// Measured counts of each of memcached's commands since the server was started.
pub(crate) fn all_memcached_sums(host: &dyn Host) -> Vec<RowSum> {
    calls::sums(|visit| host.counters(visit), |counters| &counters.memcached, &[])
}
