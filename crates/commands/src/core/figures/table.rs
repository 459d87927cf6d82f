//! The table of figures: each with its name, its kind, its unit and its help.
//!
//! `stats`, INFO and the metrics name figures of this table, or [`Counter`]s, which are figures, too: how a figure is read is
//! written once, and so is its meaning. The macro `figures` makes a table; `redis/figures.rs` has RESP's by it.

use larder_store::ClassTotals;

use super::Figures;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::traffic::Outlook;

/// The way in which a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, as long as the server runs.
    Counter,
    /// It is a present value, and may fall.
    Gauge,
    /// It counts events by how large each was, and only grows.
    Histogram,
}

impl Kind {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, or events.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Microseconds; metrics show seconds.
    Micros,
    /// 0 or 1.
    Switch,
}

impl Unit {
    /// Its name in a list of all figures.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Micros => "microseconds",
            Unit::Switch => "switch",
        }
    }
}

/// A figure that is read from an `S`.
#[derive(Debug)]
pub struct Row<S: 'static> {
    /// Its name in a list of all figures.
    pub name: &'static str,
    /// The way in which it changes.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Its meaning.
    pub help: &'static str,
    /// Reads it from its source.
    pub read: fn(&S) -> u64,
}

/// Defines the figures of one source, each as `help, name = "text": kind, unit, how it is read`.
macro_rules! figures {
    ($(#[$about:meta])* $table:ident of $source:ty {
        $($(#[doc = $help:literal])+ $name:ident = $text:literal: $kind:ident, $unit:ident, $read:expr;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $table { $($(#[doc = $help])+ $name,)* }

        impl $table {
            /// All of them, in order.
            pub const ALL: &'static [$table] = &[$($table::$name,)*];

            /// Its row.
            pub fn row(self) -> &'static $crate::core::figures::table::Row<$source> {
                use $crate::core::figures::table::{Kind, Row, Unit};
                static ROWS: &[Row<$source>] = &[$(Row {
                    name: $text,
                    kind: Kind::$kind,
                    unit: Unit::$unit,
                    help: concat!($($help),+).trim_ascii_start(),
                    read: $read,
                },)*];
                &ROWS[self as usize]
            }

            /// Its value.
            pub fn of(self, source: &$source) -> u64 {
                (self.row().read)(source)
            }
        }
    };
}
pub(crate) use figures;

/// A value of the forecast; 0 if there is none.
fn ahead(figures: &Figures, read: fn(&Outlook) -> u64) -> u64 {
    figures.traffic.outlook.as_deref().map_or(0, read)
}

figures! {
    /// A figure of the server as a whole.
    Figure of Figures {
        /// Process id.
        ProcessId = "process_id": Gauge, Count, |f| u64::from(f.process.pid);
        /// Seconds since the server was started, from 2 on.
        Uptime = "uptime_seconds": Counter, Seconds, |f| f.process.uptime_s;
        /// The server's time since 1970.
        Time = "time_seconds": Gauge, Seconds, |f| f.now_s;
        /// The processor's time in the program.
        CpuUser = "cpu_user": Counter, Micros, |f| f.process.user_us;
        /// The processor's time in the system on the program's behalf.
        CpuSystem = "cpu_system": Counter, Micros, |f| f.process.system_us;
        /// Worker threads.
        Threads = "threads": Gauge, Count, |f| f.process.threads;
        /// Connections that are open.
        Connections = "connections": Gauge, Count, |f| f.process.connections;
        /// Connections that may be open.
        ConnectionsMax = "connections_max": Gauge, Count, |f| f.process.connections_max;
        /// Connections that were opened.
        ConnectionsOpened = "connections_opened": Counter, Count, |f| f.process.connections_total;
        /// Connections that were refused because there were as many as there may be, in all or of one address.
        ConnectionsRefused = "connections_refused": Counter, Count, |f| f.process.connections_rejected;
        /// Connections that were refused because their addresses had as many as one may have.
        ConnectionsRefusedPerAddress = "connections_refused_per_address": Counter, Count,
            |f| f.process.connections_rejected_per_address;
        /// Records of connections.
        ConnectionRecords = "connection_records": Gauge, Count, |f| f.process.connection_structures;
        /// Subscribers that were closed because too much waited for them.
        SubscribersCut = "subscribers_cut": Counter, Count, |f| f.process.listeners_cut;
        /// File descriptors that are kept for the server itself.
        DescriptorsReserved = "descriptors_reserved": Gauge, Count, |f| f.process.reserved_fds;
        /// Receive buffers.
        ReceiveBuffers = "receive_buffers": Gauge, Count, |f| f.process.receive_buffers;
        /// Bytes of receive buffers.
        ReceiveBufferBytes = "receive_buffer_bytes": Gauge, Bytes, |f| f.process.receive_buffer_bytes;
        /// Bytes of receive buffers that no connection uses.
        ReceiveBufferBytesFree = "receive_buffer_bytes_free": Gauge, Bytes,
            |f| f.process.receive_buffer_bytes_free;
        /// Whether connections are accepted.
        Accepts = "accepts": Gauge, Switch, |f| u64::from(f.process.accepting);
        /// Times that no connections were accepted for a while.
        AcceptPauses = "accept_pauses": Counter, Count, |f| f.process.accept_pauses;
        /// How long none were.
        AcceptPaused = "accept_paused": Counter, Micros, |f| f.process.accept_paused_us;
        /// TLS handshakes that were finished.
        TlsHandshakes = "tls_handshakes": Counter, Count, |f| f.process.tls_handshakes;
        /// TLS handshakes that resumed a session.
        TlsResumptions = "tls_resumptions": Counter, Count, |f| f.process.tls_resumptions;
        /// TLS sessions that clients may resume, and that were none before.
        TlsNewSessions = "tls_new_sessions": Counter, Count, |f| f.process.tls_new_sessions;
        /// TLS handshakes that failed.
        TlsHandshakeErrors = "tls_handshake_errors": Counter, Count, |f| f.process.tls_handshake_errors;
        /// TLS connections closed because they broke the protocol after the handshake.
        TlsProtocolErrors = "tls_protocol_errors": Counter, Count, |f| f.process.tls_protocol_errors;
        /// How long ago TLS certificates were read.
        TlsCertificatesAge = "tls_certificates_age": Gauge, Seconds, |f| f.process.tls_certificates_age_s;
        /// When the first of the TLS certificates expires, in seconds since 1970; 0 without TLS.
        TlsCertificateNotAfter = "tls_certificate_not_after": Gauge, Seconds, |f| f.process.tls_certificate_not_after_s;
        /// Connections of plain ports closed because their clients began a TLS handshake.
        TlsOnPlainPorts = "tls_on_plain_ports": Counter, Count, |f| f.process.tls_on_plain_ports;
        /// Lines of the log.
        LogLines = "log_lines": Counter, Count, |f| f.process.log_lines;
        /// Lines of the log that were dropped, because those before them were not read.
        LogLinesDropped = "log_lines_dropped": Counter, Count, |f| f.process.log_lines_dropped;
        /// Items; those whose time has passed or that a flush took count until their memory is taken back.
        Items = "items": Gauge, Count, |f| f.totals.items;
        /// Items that were stored.
        ItemsStored = "items_stored": Counter, Count,
            |f| f.totals.items_stored.saturating_sub(f.sums.of(Counter::NumbersInPlace));
        /// Bytes of items: header, key, value, and what goes with them.
        ItemBytes = "item_bytes": Gauge, Bytes, |f| f.totals.item_bytes;
        /// Items that were evicted for their memory.
        Evictions = "evictions": Counter, Count, |f| f.totals.evictions;
        /// Items that were evicted and never fetched.
        EvictedUnfetched = "evicted_unfetched": Counter, Count, |f| f.totals.evicted_unfetched;
        /// Items whose memory was taken back because their time had passed.
        Reclaimed = "reclaimed": Counter, Count, |f| f.totals.reclaimed;
        /// Of these, items that were never fetched.
        ExpiredUnfetched = "expired_unfetched": Counter, Count, |f| f.totals.expired_unfetched;
        /// Items that upkeep has looked at.
        UpkeepChecked = "upkeep_checked": Counter, Count, |f| f.totals.maintain_checked;
        /// Writes that were refused for want of memory.
        OutOfMemory = "out_of_memory": Counter, Count, |f| f.totals.out_of_memory;
        /// The memory limit.
        MemoryLimit = "memory_limit": Gauge, Bytes, |f| f.totals.memory_bytes;
        /// Memory in use: items, index, and what connections and others were given.
        MemoryUsed = "memory_used": Gauge, Bytes, |f| f.totals.used_bytes;
        /// Memory that connections hold: buffers, and values on their way.
        MemoryHeld = "memory_held": Gauge, Bytes, |f| f.totals.held_bytes;
        /// Memory of the process, as the system counts it.
        Resident = "resident": Gauge, Bytes, |f| f.resident_bytes;
        /// Memory of the index.
        IndexBytes = "index_bytes": Gauge, Bytes, |f| f.totals.index_bytes;
        /// Slots of the index.
        IndexSlots = "index_slots": Gauge, Count, |f| f.totals.index_slots;
        /// The logarithm of the index' slots.
        IndexPower = "index_power": Gauge, Count,
            |f| u64::from(f.totals.index_slots.checked_ilog2().unwrap_or(0));
        /// Whether a part of the index is rebuilt now.
        IndexGrows = "index_grows": Gauge, Switch, |f| u64::from(f.totals.index_growing);
        /// Blocks of 64 KiB that no class owns.
        SpansFree = "spans_free": Gauge, Count, |f| f.totals.spans_free;
        /// Spans that were drained: for another class, for a lower limit or memory beside items, or since they were not needed.
        SpansMoved = "spans_moved": Counter, Count, |f| f.totals.spans_moved;
        /// Spans that were drained for another class, of those that were moved.
        SpansReassigned = "spans_reassigned": Counter, Count, |f| f.totals.spans_reassigned;
        /// Items and pieces of items that were moved out of such spans.
        ChunksMoved = "chunks_moved": Counter, Count, |f| f.totals.chunks_moved;
        /// Keys that were stored again soon after they were evicted on probation.
        GhostHits = "ghost_hits": Counter, Count, |f| f.totals.ghost_hits;
        /// Keys that were read and found, by either protocol.
        Hits = "hits": Counter, Count, |f| f.sums.hits();
        /// Keys that were read and not found, by either protocol.
        Misses = "misses": Counter, Count, |f| f.sums.misses();
        /// Times that all items, or those of a database, were flushed.
        Flushes = "flushes": Counter, Count, |f| f.totals.flushes;
        /// Keyspace events that were not sent to subscribers, because too many waited.
        EventsLost = "events_lost": Counter, Count, |f| f.events_lost;
        /// Requests of prefixes that `stats detail` does not tell apart.
        PrefixesMissed = "prefixes_missed": Gauge, Count, |f| f.prefixes_missed;
        /// Times that one command had the store for itself.
        WholeHolds = "whole_holds": Counter, Count, |f| f.whole_holds;
        /// Channels that have subscribers.
        Channels = "channels": Gauge, Count, |f| f.topics[0];
        /// Patterns of channels that have subscribers.
        Patterns = "patterns": Gauge, Count, |f| f.topics[1];
        /// Sharded channels that have subscribers.
        ShardChannels = "shard_channels": Gauge, Count, |f| f.topics[2];
        /// Keys that have more than a hundredth of all requests.
        HotKeys = "hot_keys": Gauge, Count, |f| f.traffic.hottest.hot_keys;
        /// Samples of requests that were counted.
        Samples = "samples": Counter, Count, |f| f.traffic.samples;
        /// Samples of requests that were dropped, because those before them were not counted yet.
        SamplesDropped = "samples_dropped": Counter, Count, |f| f.traffic.dropped;
        /// Keys that are followed for the forecast, of those that are there now.
        ForecastKeys = "forecast_keys": Gauge, Count, |f| ahead(f, |outlook| outlook.curve.keys);
        /// Misses of keys that had not been missed in the 2 s before: an estimate from a sample of the keys.
        Fills = "fills": Counter, Count, |f| ahead(f, |outlook| outlook.fills);
        /// Misses of keys that had been missed less than 2 s before and were not stored yet: an estimate from a sample.
        HerdMisses = "herd_misses": Counter, Count, |f| ahead(f, |outlook| outlook.herd_misses);
        /// Memory of samples, and of what is counted of them.
        SampleBytes = "sample_bytes": Gauge, Bytes, |f| f.traffic.bytes;
    }
}

figures! {
    /// A figure of a slab class.
    ClassFigure of ClassTotals {
        /// Bytes of a chunk.
        ChunkBytes = "chunk_bytes": Gauge, Bytes, |c| u64::from(c.chunk_bytes);
        /// Blocks of 64 KiB that the class owns.
        Spans = "spans": Gauge, Count, |c| c.spans;
        /// Chunks.
        Chunks = "chunks": Gauge, Count, |c| c.used_chunks + c.free_chunks;
        /// Chunks in use.
        ChunksUsed = "chunks_used": Gauge, Count, |c| c.used_chunks;
        /// Chunks that are free.
        ChunksFree = "chunks_free": Gauge, Count, |c| c.free_chunks;
        /// Items whose head is in the class.
        Items = "items": Gauge, Count, |c| c.items;
        /// Bytes that were asked for by what is in the chunks.
        RequestedBytes = "requested_bytes": Gauge, Bytes, |c| c.requested_bytes;
        /// Bytes of chunks in use beyond what was asked for: what is rounded up.
        WasteBytes = "waste_bytes": Gauge, Bytes,
            |c| (c.used_chunks * u64::from(c.chunk_bytes)).saturating_sub(c.requested_bytes);
        /// Seconds since eviction last looked where it is to look next.
        Age = "age_seconds": Gauge, Seconds, |c| c.age_ms / 1000;
        /// Items that were evicted for their memory.
        Evictions = "evictions": Counter, Count, |c| c.evictions;
        /// Evicted items that had an expiry.
        EvictedNonzero = "evicted_nonzero": Counter, Count, |c| c.evicted_nonzero;
        /// Evicted items that were never fetched.
        EvictedUnfetched = "evicted_unfetched": Counter, Count, |c| c.evicted_unfetched;
        /// Seconds since the item evicted last had been read.
        EvictedAge = "evicted_age_seconds": Gauge, Seconds, |c| c.evicted_age_s;
        /// Items whose memory was taken back because their time had passed.
        Reclaimed = "reclaimed": Counter, Count, |c| c.reclaimed;
        /// Of these, items that were never fetched.
        ExpiredUnfetched = "expired_unfetched": Counter, Count, |c| c.expired_unfetched;
        /// Writes that were refused for want of memory.
        OutOfMemory = "out_of_memory": Counter, Count, |c| c.out_of_memory;
        /// Keys that were stored again soon after they were evicted on probation.
        GhostHits = "ghost_hits": Counter, Count, |c| c.ghost_hits;
    }
}

impl Counter {
    /// Its unit.
    pub fn unit(self) -> Unit {
        match self {
            Counter::BytesRead | Counter::BytesWritten => Unit::Bytes,
            Counter::Upkeep => Unit::Micros,
            _ => Unit::Count,
        }
    }
}

impl ClassCounter {
    /// Its meaning.
    pub fn help(self) -> &'static str {
        match self {
            ClassCounter::GetHits => "Keys found.",
            ClassCounter::CmdSet => "Items stored, or refused.",
            ClassCounter::DeleteHits => "Items deleted.",
            ClassCounter::IncrHits => "Numbers raised.",
            ClassCounter::DecrHits => "Numbers lowered.",
            ClassCounter::CasHits => "Items replaced, compared by their token.",
            ClassCounter::CasBadval => "Items not replaced, because their token was another.",
            ClassCounter::TouchHits => "Items touched.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_name_of_its_own_and_says_what_it_is() {
        let mut names: Vec<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.extend(Figure::ALL.iter().map(|figure| figure.row().name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let helps = Counter::ALL.iter().map(|counter| counter.help());
        for help in helps.chain(Figure::ALL.iter().map(|figure| figure.row().help)) {
            assert!(help.ends_with('.') && !help.starts_with(' '), "{help:?}");
        }
    }

    #[test]
    fn a_row_is_its_figures() {
        let totals = ClassTotals { evictions: 7, age_ms: 2500, ..ClassTotals::default() };
        assert_eq!((ClassFigure::Evictions.of(&totals), ClassFigure::Age.of(&totals)), (7, 2));
        assert_eq!((ClassFigure::Age.row().kind, ClassFigure::Age.row().unit), (Kind::Gauge, Unit::Seconds));
    }
}
