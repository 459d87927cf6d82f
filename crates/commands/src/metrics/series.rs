//! Figures that a history keeps, each with the way in which it changes.
//!
//! A history knows numbers alone. This table has which figures they are, in an order of its own, and what they mean.

use crate::core::counters::Counter;
use crate::core::figures::Figures;
use crate::core::figures::table::{Figure, Kind, Unit};
use crate::redis::counters::RedisCounter;

/// A figure of a history.
#[derive(Debug)]
pub struct Series {
    /// Its name.
    pub name: &'static str,
    /// A counter or a gauge: of a counter a history shows the growth a second, of a gauge the mean.
    pub kind: Kind,
    /// Its unit; for a counter, a second.
    pub unit: Unit,
    /// Its meaning.
    pub help: &'static str,
    read: fn(&Figures) -> u64,
}

/// Number of these figures.
pub const SERIES_COUNT: usize = 38;

/// Their values at one moment, in the order of [`SERIES`].
pub type Reading = [u64; SERIES_COUNT];

macro_rules! series {
    ($($(#[doc = $help:literal])+ $name:literal: $kind:ident, $unit:ident, $read:expr;)*) => {
        /// All of them, in order.
        pub const SERIES: &[Series] = &[$(Series {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            help: concat!($($help),+).trim_ascii_start(),
            read: $read,
        },)*];
    };
}

series! {
    /// Keys that memcached's clients asked for and got.
    "memcached_hits": Counter, Count, |f| f.sums.of(Counter::GetHits);
    /// Keys that they asked for and did not get.
    "memcached_misses": Counter, Count, |f| f.sums.of(Counter::GetMisses);
    /// Items that they stored, or tried to.
    "memcached_sets": Counter, Count, |f| f.sums.of(Counter::CmdSet);
    /// Keys that they deleted, or that were not there.
    "memcached_deletes": Counter, Count, |f| f.sums.of(Counter::DeleteHits) + f.sums.of(Counter::DeleteMisses);
    /// Numbers that they raised or lowered, or that were not there.
    "memcached_arithmetic": Counter, Count, |f| {
        [Counter::IncrHits, Counter::IncrMisses, Counter::DecrHits, Counter::DecrMisses]
            .map(|counter| f.sums.of(counter)).iter().sum()
    };
    /// Keys that they touched, or that were not there.
    "memcached_touches": Counter, Count, |f| f.sums.of(Counter::TouchHits) + f.sums.of(Counter::TouchMisses);
    /// Commands of RESP clients.
    "redis_commands": Counter, Count, |f| f.sums.of(RedisCounter::Commands);
    /// Of these, commands that were answered with an error.
    "redis_errors": Counter, Count, |f| f.sums.of(RedisCounter::Errors);
    /// Keys that RESP clients read and found.
    "redis_hits": Counter, Count, |f| f.sums.of(RedisCounter::Hits);
    /// Keys that they read and did not find.
    "redis_misses": Counter, Count, |f| f.sums.of(RedisCounter::Misses);
    /// Misses of either protocol that found an item whose time had passed.
    "misses_expired": Counter, Count, |f| f.sums.misses_expired();
    /// Compare-and-swaps that found another version.
    "cas_badval": Counter, Count, |f| f.sums.of(Counter::CasBadval);
    /// Items that were stored, by either protocol.
    "items_stored": Counter, Count, |f| Figure::ItemsStored.of(f);
    /// Items that were evicted for their memory.
    "evictions": Counter, Count, |f| Figure::Evictions.of(f);
    /// Of these, items that were never fetched.
    "evicted_unfetched": Counter, Count, |f| Figure::EvictedUnfetched.of(f);
    /// Items whose memory was taken back because their time had passed.
    "reclaimed": Counter, Count, |f| Figure::Reclaimed.of(f);
    /// Of these, items that were never fetched.
    "expired_unfetched": Counter, Count, |f| Figure::ExpiredUnfetched.of(f);
    /// Keys that were stored again soon after they were evicted on probation.
    "ghost_hits": Counter, Count, |f| Figure::GhostHits.of(f);
    /// Writes that were refused for want of memory.
    "out_of_memory": Counter, Count, |f| Figure::OutOfMemory.of(f) + f.sums.of(Counter::StoreNoMemory);
    /// Bytes received.
    "bytes_read": Counter, Bytes, |f| f.sums.of(Counter::BytesRead);
    /// Bytes sent.
    "bytes_written": Counter, Bytes, |f| f.sums.of(Counter::BytesWritten);
    /// Connections that were opened.
    "connections_opened": Counter, Count, |f| Figure::ConnectionsOpened.of(f);
    /// Connections that were refused.
    "connections_refused": Counter, Count, |f| Figure::ConnectionsRefused.of(f);
    /// Connections that the server closed: for idleness, or since others needed their memory.
    "connections_closed": Counter, Count, |f| {
        let closed = [Counter::Shed, Counter::Crowded, Counter::Unfinished, Counter::IdleKicks];
        closed.map(|counter| f.sums.of(counter)).iter().sum::<u64>() + Figure::SubscribersCut.of(f)
    };
    /// The processor's time in the program.
    "cpu_user": Counter, Micros, |f| Figure::CpuUser.of(f);
    /// The processor's time in the system on the program's behalf.
    "cpu_system": Counter, Micros, |f| Figure::CpuSystem.of(f);
    /// Spans that were drained: for another class, for a lower limit or memory beside items, or since they were not needed.
    "spans_moved": Counter, Count, |f| Figure::SpansMoved.of(f);
    /// Items and pieces of items that were moved out of such spans.
    "chunks_moved": Counter, Count, |f| Figure::ChunksMoved.of(f);
    /// Times that all items, or those of a database, were flushed.
    "flushes": Counter, Count, |f| Figure::Flushes.of(f);
    /// Connections that are open.
    "connections": Gauge, Count, |f| Figure::Connections.of(f);
    /// Items.
    "items": Gauge, Count, |f| Figure::Items.of(f);
    /// Bytes of items.
    "item_bytes": Gauge, Bytes, |f| Figure::ItemBytes.of(f);
    /// Memory in use.
    "memory_used": Gauge, Bytes, |f| Figure::MemoryUsed.of(f);
    /// The memory limit.
    "memory_limit": Gauge, Bytes, |f| Figure::MemoryLimit.of(f);
    /// Memory that connections hold.
    "memory_held": Gauge, Bytes, |f| Figure::MemoryHeld.of(f);
    /// Memory of the index.
    "index_bytes": Gauge, Bytes, |f| Figure::IndexBytes.of(f);
    /// Memory of the process, as the system counts it.
    "resident": Gauge, Bytes, |f| Figure::Resident.of(f);
    /// Blocks of 64 KiB that no class owns.
    "spans_free": Gauge, Count, |f| Figure::SpansFree.of(f);
}

const _: () = assert!(SERIES.len() == SERIES_COUNT);

/// Their values in these figures.
pub(crate) fn read(figures: &Figures) -> Reading {
    std::array::from_fn(|at| (SERIES[at].read)(figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_a_name_of_its_own_and_says_what_it_is() {
        for (at, series) in SERIES.iter().enumerate() {
            assert!(SERIES[..at].iter().all(|other| other.name != series.name), "{}", series.name);
            assert!(series.help.ends_with('.') && !series.help.starts_with(' '), "{}", series.help);
        }
    }

    #[test]
    fn a_series_that_has_a_figures_name_is_that_figure() {
        for series in SERIES {
            let figure = Figure::ALL.iter().map(|figure| figure.row()).find(|row| row.name == series.name);
            if let Some(row) = figure {
                assert_eq!((row.kind, row.unit), (series.kind, series.unit), "{}", series.name);
            }
        }
    }
}
