//! Metrics for scrapers: one gathering, in three families; and the same figures by their own names.
//!
//! - `memcached_*`, as memcached_exporter names them, and `redis_*`, as redis_exporter does: boards that are made for
//!   these work without one;
//! - `larder_*` for what has no name there.
//!
//! All counts are since the server was started: `stats reset` and CONFIG RESETSTAT are not seen here.

pub(crate) mod series;
mod shown;

use larder_store::{ClassTotals, Ledger, Millis, Point, Store};

use crate::core::calls::{RowSum, measured};
use crate::core::counters::{ClassCounter, Counter};
use crate::core::exposition::{Exposition, Sample};
use crate::core::figures::table::{ClassFigure, Figure, Kind, Unit};
use crate::core::figures::types::OfType;
use crate::core::figures::{self, Place};
use crate::core::findings::{self, Finding, RULES};
use crate::core::host::Host;
use crate::core::traffic::{AgeShare, Ages, Outlook};
use crate::memcached;
use crate::redis;
use crate::redis::counters::RedisCounter;
use crate::redis::figures::RedisFigure;
use crate::shared::Shared;
use series::Reading;

/// The slab classes that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Classes {
    /// memcached's, as `stats slabs` shows them.
    #[default]
    Memcached,
    /// The store's own.
    Larder,
    /// None.
    None,
}

/// The families and classes that a scraper wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The family of memcached_exporter.
    pub memcached: bool,
    /// The family of redis_exporter.
    pub redis: bool,
    /// Larder's own.
    pub larder: bool,
    /// The classes that it wants.
    pub classes: Classes,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { memcached: true, redis: true, larder: true, classes: Classes::default() }
    }
}

/// The server as a scraper finds it.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The server.
    pub host: &'a dyn Host,
    /// Its items.
    pub store: &'a Store,
    /// The system's time.
    pub system: Millis,
    /// The port where RESP is spoken, or 0.
    pub redis_port: u16,
}

impl std::fmt::Debug for Scene<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("system", &self.system).finish_non_exhaustive()
    }
}

/// A function that reads a value.
type Read = fn(&figures::Figures) -> u64;

/// The source of a series.
enum Source {
    Figure(Figure),
    Counter(Counter),
    /// A label, and a figure for each of its values.
    Figures(&'static str, &'static [(&'static str, Read)]),
    /// Two labels, and a figure for each pair of their values.
    Pairs([&'static str; 2], &'static [([&'static str; 2], Read)]),
    /// A series for each of the store's classes.
    Class(ClassFigure),
    ClassCounter(ClassCounter),
    /// A series for each rule of findings.
    Findings,
    /// A series for each use of memory.
    Ledger,
    /// A part of a whole.
    Share(fn(&figures::Figures) -> f64),
    /// Times since the last access of evicted items.
    EvictedIdle,
    /// Times of each of memcached's commands.
    Commands,
    /// A series for each part of stored items by time; none before some were looked at.
    Ages(fn(&Ages) -> &[AgeShare]),
    /// A series for each type of values whose figure is known.
    Types(fn(&OfType) -> Option<u64>),
    /// A series for each memory limit that is forecast; none before that is ready.
    Forecast(fn(&Point) -> f64),
}

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    from: Source,
}

const fn metric(name: &'static str, kind: Kind, from: Source) -> Metric {
    Metric { name, kind, help: "", from }
}

const fn labelled(name: &'static str, kind: Kind, help: &'static str, from: Source) -> Metric {
    Metric { name, kind, help, from }
}

use Kind::{Counter as Grows, Gauge, Histogram};

const METRICS: &[Metric] = &[
    labelled("larder_finding", Gauge, "Whether a rule of `larder doctor` finds something.", Source::Findings),
    labelled(
        "larder_reads_total",
        Grows,
        "Keys that were read, by protocol and by what was found; misses are those that did not expire and were not flushed.",
        Source::Pairs(["protocol", "outcome"], READS),
    ),
    labelled(
        "larder_connections_closed_total",
        Grows,
        "Connections that the server closed, and why.",
        Source::Figures("reason", CLOSED),
    ),
    metric("larder_memory_limit_bytes", Gauge, Source::Figure(Figure::MemoryLimit)),
    metric("larder_memory_used_bytes", Gauge, Source::Figure(Figure::MemoryUsed)),
    labelled(
        "larder_memory_bytes",
        Gauge,
        "Memory that counts against the limit, by what it is used for: together what is used.",
        Source::Ledger,
    ),
    metric("larder_memory_held_bytes", Gauge, Source::Figure(Figure::MemoryHeld)),
    metric("larder_items_bytes", Gauge, Source::Figure(Figure::ItemBytes)),
    metric("larder_items", Gauge, Source::Figure(Figure::Items)),
    metric("larder_items_stored_total", Grows, Source::Figure(Figure::ItemsStored)),
    metric("larder_index_bytes", Gauge, Source::Figure(Figure::IndexBytes)),
    metric("larder_index_slots", Gauge, Source::Figure(Figure::IndexSlots)),
    metric("larder_index_grows", Gauge, Source::Figure(Figure::IndexGrows)),
    metric("larder_spans_free", Gauge, Source::Figure(Figure::SpansFree)),
    metric("larder_spans_moved_total", Grows, Source::Figure(Figure::SpansMoved)),
    metric("larder_spans_reassigned_total", Grows, Source::Figure(Figure::SpansReassigned)),
    metric("larder_chunks_moved_total", Grows, Source::Figure(Figure::ChunksMoved)),
    metric("larder_evictions_total", Grows, Source::Figure(Figure::Evictions)),
    metric("larder_evicted_unread_total", Grows, Source::Figure(Figure::EvictedUnfetched)),
    labelled(
        "larder_evicted_idle_seconds",
        Histogram,
        "How long ago what was evicted had been read or written last; what is more than two minutes is known in steps of half an hour.",
        Source::EvictedIdle,
    ),
    labelled(
        "larder_expired_total",
        Grows,
        "Items that were found expired: by a read that missed them (reader), or by another command, upkeep or a search for memory (other).",
        Source::Figures("by", EXPIRED),
    ),
    metric("larder_expired_unread_total", Grows, Source::Figure(Figure::ExpiredUnfetched)),
    metric("larder_ghost_hits_total", Grows, Source::Figure(Figure::GhostHits)),
    metric("larder_out_of_memory_total", Grows, Source::Figure(Figure::OutOfMemory)),
    metric("larder_type_misses_total", Grows, Source::Counter(Counter::TypeMisses)),
    labelled(
        "larder_memcached_command_seconds",
        Histogram,
        "How long memcached's commands took, of those that came with a receive that was measured: one in sixteen.",
        Source::Commands,
    ),
    metric("larder_stalls_total", Grows, Source::Counter(Counter::Stalls)),
    metric("larder_upkeep_seconds_total", Grows, Source::Counter(Counter::Upkeep)),
    metric(
        "larder_connections_refused_per_address_total",
        Grows,
        Source::Figure(Figure::ConnectionsRefusedPerAddress),
    ),
    metric("larder_accept_paused_seconds_total", Grows, Source::Figure(Figure::AcceptPaused)),
    metric("larder_tls_handshakes_total", Grows, Source::Figure(Figure::TlsHandshakes)),
    metric("larder_tls_resumptions_total", Grows, Source::Figure(Figure::TlsResumptions)),
    metric("larder_tls_handshake_errors_total", Grows, Source::Figure(Figure::TlsHandshakeErrors)),
    metric("larder_tls_protocol_errors_total", Grows, Source::Figure(Figure::TlsProtocolErrors)),
    metric("larder_tls_certificates_age_seconds", Gauge, Source::Figure(Figure::TlsCertificatesAge)),
    metric("larder_tls_certificate_not_after_seconds", Gauge, Source::Figure(Figure::TlsCertificateNotAfter)),
    metric("larder_tls_on_plain_ports_total", Grows, Source::Figure(Figure::TlsOnPlainPorts)),
    metric("larder_keyspace_events_lost_total", Grows, Source::Figure(Figure::EventsLost)),
    metric("larder_whole_holds_total", Grows, Source::Figure(Figure::WholeHolds)),
    metric("larder_log_lines_total", Grows, Source::Figure(Figure::LogLines)),
    metric("larder_log_lines_dropped_total", Grows, Source::Figure(Figure::LogLinesDropped)),
    labelled(
        "larder_hottest_key_ratio",
        Gauge,
        "The part of all requests that the key has which is asked for most.",
        Source::Share(|f| f.traffic.hottest.share),
    ),
    metric("larder_hot_keys", Gauge, Source::Figure(Figure::HotKeys)),
    labelled(
        "larder_forecast_miss_ratio",
        Gauge,
        "The part of reads that would be missed with another memory limit, of so many times today's; none before the forecast is ready, nor of what is vague.",
        Source::Forecast(|point| point.miss_ratio),
    ),
    labelled(
        "larder_forecast_error_ratio",
        Gauge,
        "How much larder_forecast_miss_ratio may be off: standard errors of the sample and what the simulation may be wrong by.",
        Source::Forecast(|point| point.error),
    ),
    labelled(
        "larder_ttl_left_bytes",
        Gauge,
        "Bytes of items that expire within this time, and not within a shorter one: an estimate by some thousand items.",
        Source::Ages(|ages| &ages.left),
    ),
    labelled(
        "larder_idle_bytes",
        Gauge,
        "Bytes of items that were read or written within this time, and not within a shorter one: an estimate as well.",
        Source::Ages(|ages| &ages.idle),
    ),
    labelled("larder_type_items", Gauge, "Items of a type of values.", Source::Types(|of| Some(of.items))),
    labelled(
        "larder_type_bytes",
        Gauge,
        "Bytes of items of a type of values, with their keys; of strings what collections leave of all bytes: also what waits to be freed, and what is on its way in.",
        Source::Types(|of| Some(of.bytes)),
    ),
    labelled(
        "larder_type_elements",
        Gauge,
        "Fields, members and elements of all items of a type, of streams rows (entries, groups, consumers, and one of the stream), of strings their number.",
        Source::Types(|of| Some(of.elements)),
    ),
    labelled(
        "larder_type_largest_bytes",
        Gauge,
        "Bytes of the largest item of a type: exactly where no other is within a doubling of it, else so many at most; of strings of some thousand that were looked at.",
        Source::Types(|of| of.largest_bytes),
    ),
    labelled(
        "larder_type_most_elements",
        Gauge,
        "Elements of the collection of a type that has most of them, as exactly.",
        Source::Types(|of| of.most_elements),
    ),
    metric("larder_forecast_keys", Gauge, Source::Figure(Figure::ForecastKeys)),
    metric("larder_fills_total", Grows, Source::Figure(Figure::Fills)),
    metric("larder_herd_misses_total", Grows, Source::Figure(Figure::HerdMisses)),
    metric("larder_samples_total", Grows, Source::Figure(Figure::Samples)),
    metric("larder_samples_dropped_total", Grows, Source::Figure(Figure::SamplesDropped)),
    metric("larder_sample_bytes", Gauge, Source::Figure(Figure::SampleBytes)),
    metric("larder_class_spans", Gauge, Source::Class(ClassFigure::Spans)),
    metric("larder_class_items", Gauge, Source::Class(ClassFigure::Items)),
    metric("larder_class_used_bytes", Gauge, Source::Class(ClassFigure::RequestedBytes)),
    metric("larder_class_waste_bytes", Gauge, Source::Class(ClassFigure::WasteBytes)),
    metric("larder_class_age_seconds", Gauge, Source::Class(ClassFigure::Age)),
    metric("larder_class_sets_total", Grows, Source::ClassCounter(ClassCounter::CmdSet)),
    metric("larder_class_hits_total", Grows, Source::ClassCounter(ClassCounter::GetHits)),
    metric("larder_class_evictions_total", Grows, Source::Class(ClassFigure::Evictions)),
    metric("larder_class_ghost_hits_total", Grows, Source::Class(ClassFigure::GhostHits)),
];

const READS: &[([&str; 2], Read)] = &[
    (["memcached", "hit"], |f| f.sums.of(Counter::GetHits)),
    (["memcached", "miss"], |f| {
        let gone = f.sums.of(Counter::GetExpired) + f.sums.of(Counter::GetFlushed);
        f.sums.of(Counter::GetMisses).saturating_sub(gone)
    }),
    (["memcached", "expired"], |f| f.sums.of(Counter::GetExpired)),
    (["memcached", "flushed"], |f| f.sums.of(Counter::GetFlushed)),
    (["redis", "hit"], |f| f.sums.of(RedisCounter::Hits)),
    (["redis", "miss"], |f| f.sums.of(RedisCounter::Misses).saturating_sub(f.sums.of(RedisCounter::Expired))),
    (["redis", "expired"], |f| f.sums.of(RedisCounter::Expired)),
];

const CLOSED: &[(&str, Read)] = &[
    ("replies_held_memory", |f| f.sums.of(Counter::Shed)),
    ("request_held_memory", |f| f.sums.of(Counter::Crowded)),
    ("request_timeout", |f| f.sums.of(Counter::Unfinished)),
    ("idle", |f| f.sums.of(Counter::IdleKicks)),
    ("subscriber_too_slow", |f| f.process.listeners_cut),
];

/// Each item that is found expired is one of `reclaimed`, also where a read found it.
const EXPIRED: &[(&str, Read)] = &[
    ("reader", |f| f.sums.misses_expired()),
    ("other", |f| f.totals.reclaimed.saturating_sub(f.sums.misses_expired())),
];

/// The inputs of metrics.
struct Inputs<'a> {
    figures: &'a figures::Figures,
    /// Measured counts of memcached's commands.
    commands: &'a [RowSum],
    classes: &'a [ClassTotals],
    findings: &'a [Finding],
    ledger: &'a Ledger,
    ages: Option<&'a Ages>,
    types: &'a [OfType],
}

impl Metric {
    fn help(&self) -> &'static str {
        match self.from {
            Source::Figure(figure) => figure.row().help,
            Source::Counter(counter) => counter.help(),
            Source::Class(figure) => figure.row().help,
            Source::ClassCounter(counter) => counter.help(),
            Source::Figures(..)
            | Source::Pairs(..)
            | Source::Findings
            | Source::Ledger
            | Source::Share(_)
            | Source::EvictedIdle
            | Source::Commands
            | Source::Ages(_)
            | Source::Types(_)
            | Source::Forecast(_) => self.help,
        }
    }

    fn labels(&self) -> Vec<&'static str> {
        match &self.from {
            Source::Figure(_) | Source::Counter(_) | Source::Share(_) | Source::EvictedIdle => vec![],
            Source::Figures(label, _) => vec![label],
            Source::Pairs(labels, _) => labels.to_vec(),
            Source::Class(_) | Source::ClassCounter(_) => vec!["chunk_bytes"],
            Source::Findings => vec!["rule", "severity"],
            Source::Ledger => vec!["use"],
            Source::Forecast(_) => vec!["memory"],
            Source::Ages(_) => vec!["within"],
            Source::Types(_) => vec!["type"],
            Source::Commands => vec!["command"],
        }
    }

    fn tell(&self, inputs: &Inputs<'_>, page: &mut Exposition<'_>) {
        let Inputs { figures, commands, classes, findings, ledger, ages, types } = *inputs;
        page.family(self.name, self.kind, self.help(), |family| match &self.from {
            Source::Figure(figure) => family.put(&[], Sample::of(figure.row().unit, figure.of(figures))),
            Source::Counter(counter) => {
                family.put(&[], Sample::of(counter.unit(), figures.sums.of(*counter)));
            }
            Source::Share(read) => family.put(&[], Sample::Ratio(read(figures))),
            Source::Figures(label, rows) => {
                rows.iter().for_each(|(of, read)| family.put(&[(label, of)], Sample::Whole(read(figures))));
            }
            Source::Pairs([one, two], rows) => {
                for ([first, second], read) in *rows {
                    family.put(&[(one, first), (two, second)], Sample::Whole(read(figures)));
                }
            }
            Source::Class(figure) => {
                for class in classes {
                    let bytes = class.chunk_bytes.to_string();
                    family.put(&[("chunk_bytes", &bytes)], Sample::of(figure.row().unit, figure.of(class)));
                }
            }
            Source::Findings => {
                for rule in RULES {
                    let found = findings.iter().any(|finding| finding.rule.name == rule.name);
                    let labels = [("rule", rule.name), ("severity", rule.severity.name())];
                    family.put(&labels, Sample::Whole(found.into()));
                }
            }
            Source::Forecast(read) => {
                let outlook = figures.traffic.outlook.as_deref();
                let points = outlook.and_then(|outlook| outlook.curve.points).into_iter().flatten();
                for point in points.filter(|point| !point.is_vague) {
                    let memory = point.factor.to_string();
                    family.put(&[("memory", &memory)], Sample::Ratio(read(&point)));
                }
            }
            Source::EvictedIdle => {
                let totals = &figures.totals;
                let [parts @ .., beyond] = &totals.evicted_idle;
                let bounds = (0..).map(|power| 4f64.powi(power));
                let sum = Sample::Micros(totals.evicted_idle_s.saturating_mul(1_000_000));
                family.put_histogram(&[], bounds.zip(parts.iter().copied()), *beyond, sum);
            }
            Source::Commands => {
                for (command, sum) in measured(&memcached::table::NAMES, commands) {
                    // The steps double: behind the first, two of them are one part.
                    let [first, others @ .., beyond] = &sum.steps;
                    let others = others.chunks(2).map(|two| two.iter().sum::<u64>());
                    let bounds = (0..).map(|power| 4f64.powi(power) / 1e6);
                    let parts = bounds.zip(std::iter::once(*first).chain(others));
                    let took = Sample::Micros(sum.measured_us);
                    family.put_histogram(&[("command", command)], parts, *beyond, took);
                }
            }
            Source::Ages(parts) => {
                let bytes = Figure::ItemBytes.of(figures) as f64;
                for part in ages.into_iter().flat_map(parts) {
                    family.put(&[("within", part.within)], Sample::Whole((part.share * bytes) as u64));
                }
            }
            Source::Types(read) => {
                for of in types {
                    if let Some(value) = read(of) {
                        family.put(&[("type", of.name)], Sample::Whole(value));
                    }
                }
            }
            Source::Ledger => {
                for (of, _, bytes) in ledger.uses() {
                    family.put(&[("use", of)], Sample::Whole(bytes));
                }
            }
            Source::ClassCounter(counter) => {
                for class in classes {
                    let bytes = class.chunk_bytes.to_string();
                    let count = figures.sums.in_class(class.id, *counter);
                    family.put(&[("chunk_bytes", &bytes)], Sample::Whole(count));
                }
            }
        });
    }
}

impl Shared {
    fn place<'a>(&'a self, scene: Scene<'a>) -> Place<'a> {
        let now = self.now(scene.system);
        Place { shared: &self.common, host: scene.host, store: scene.store, now }
    }

    /// Writes the metrics that a scraper wants.
    pub fn expose(&self, scene: Scene<'_>, wanted: Wanted, page: &mut Exposition<'_>) {
        let place = self.place(scene);
        let mut common = figures::Figures::since_start(place);
        let classes =
            if wanted.classes == Classes::None { Vec::new() } else { scene.store.classes(place.now) };
        if wanted.larder {
            let of_classes = if wanted.classes == Classes::Larder { &classes[..] } else { &[] };
            let findings;
            (common, findings) = findings::find_in(place, common);
            let ledger = scene.store.ledger();
            let ages = self.ages();
            let commands = figures::all_memcached_sums(scene.host);
            let types = self.types(scene.store);
            let inputs = Inputs {
                figures: &common,
                commands: &commands,
                classes: of_classes,
                findings: &findings,
                ledger: &ledger,
                ages: ages.as_ref(),
                types: &types,
            };
            METRICS.iter().for_each(|metric| metric.tell(&inputs, page));
        }
        let common = if wanted.memcached {
            let slabs = self.memcached.slabs.sum(&classes);
            let of_classes = wanted.classes == Classes::Memcached;
            let figures = memcached::stats::Figures::new(&self.memcached, common);
            memcached::metrics::expose(&self.memcached, &figures, &slabs, of_classes, page);
            figures.common
        } else {
            common
        };
        if wanted.redis {
            let rows = figures::all_row_sums(scene.host);
            let figures = redis::figures::Figures::new(&self.redis, scene.store, common);
            let shared = (&self.redis, &self.common);
            let seen = redis::metrics::Seen::new(figures, shared, scene.store, &rows, scene.redis_port);
            redis::metrics::expose(&seen, page);
        }
    }

    /// Calls `visit` with each figure of the server, since it was started.
    pub fn each_figure(&self, scene: Scene<'_>, visit: &mut dyn FnMut(About, u64)) {
        let common = figures::Figures::since_start(self.place(scene));
        for counter in Counter::ALL {
            let about = About {
                name: counter.name(),
                kind: Kind::Counter,
                unit: counter.unit(),
                help: counter.help(),
            };
            visit(about, common.sums.of(*counter));
        }
        for figure in Figure::ALL {
            let row = figure.row();
            let about = About { name: row.name, kind: row.kind, unit: row.unit, help: row.help };
            visit(about, figure.of(&common));
        }
        let figures = redis::figures::Figures::new(&self.redis, scene.store, common);
        for figure in RedisFigure::ALL {
            let row = figure.row();
            let about = About { name: row.name, kind: row.kind, unit: row.unit, help: row.help };
            visit(about, figure.of(&figures));
        }
    }

    /// The present figures of a history.
    pub fn reading(&self, scene: Scene<'_>) -> Reading {
        series::read(&figures::Figures::since_start(self.place(scene)))
    }

    /// Makes the forecast for other memory limits, once a second, while traffic is sampled. `now` is of the server's own clock.
    pub fn look_ahead(&self, scene: Scene<'_>, now: Millis) {
        let place = self.place(scene);
        let figures = figures::Figures::since_start(place);
        let reads = [Figure::Hits.of(&figures), Figure::Misses.of(&figures)];
        self.common.traffic.look_ahead(place.store, now, reads);
    }

    /// The last forecast for other memory limits; `None` if traffic is not sampled.
    pub fn outlook(&self) -> Option<std::sync::Arc<Outlook>> {
        self.common.traffic.told().outlook
    }

    /// A number that this run of the server has alone.
    pub fn run_id(&self) -> u128 {
        self.redis.run_id
    }

    /// Calls `visit` with each of the store's classes that own a span, and each figure of it.
    pub fn each_class(&self, scene: Scene<'_>, visit: &mut dyn FnMut(u8, About, u64)) {
        let place = self.place(scene);
        let sums = figures::Figures::since_start(place).sums;
        for class in scene.store.classes(place.now) {
            for figure in ClassFigure::ALL {
                let row = figure.row();
                let about = About { name: row.name, kind: row.kind, unit: row.unit, help: row.help };
                visit(class.id, about, figure.of(&class));
            }
            for (counter, name) in ClassCounter::ALL {
                let about = About { name, kind: Kind::Counter, unit: Unit::Count, help: counter.help() };
                visit(class.id, about, sums.in_class(class.id, counter));
            }
        }
    }

    /// Calls `visit` with each RESP command that was called or refused: its name, its calls, how many of them were measured,
    /// microseconds of all of them by those that were measured, and calls refused and failed.
    pub fn each_command(&self, scene: Scene<'_>, visit: &mut dyn FnMut(&'static str, [u64; 5])) {
        for (row, sum) in redis::table::ROWS.in_use(&figures::all_row_sums(scene.host)) {
            let took_us = (sum.us_per_call() * sum.calls as f64).round() as u64;
            visit(row.name, [sum.calls, sum.measured, took_us, sum.refused, sum.failed]);
        }
    }

    /// Calls `visit` with each of memcached's commands that was measured: its name, its measured calls, their microseconds, and
    /// the times that half of them, and 99 of 100, did not exceed, rounded up to a power of two.
    pub fn each_memcached_command(&self, scene: Scene<'_>, visit: &mut dyn FnMut(&'static str, [u64; 4])) {
        let sums = figures::all_memcached_sums(scene.host);
        for (name, sum) in measured(&memcached::table::NAMES, &sums) {
            let within = |percent| sum.percentile_us(percent);
            visit(name, [sum.measured, sum.measured_us, within(50.0), within(99.0)]);
        }
    }

    /// The findings of now, those that matter most first.
    pub fn findings(&self, scene: Scene<'_>) -> Vec<Finding> {
        findings::find(self.place(scene))
    }

    /// Counts how many keys expire, a little at a time, while that is asked for. Called from one worker's upkeep.
    pub fn take_census(&self, guard: &mut larder_store::Guard<'_>) {
        self.redis.census.step(guard);
    }
}

/// The description of a figure.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in a list of all figures.
    pub name: &'static str,
    /// The way in which it changes.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Its meaning.
    pub help: &'static str,
}

/// A metric as its page describes it.
#[derive(Clone, Debug)]
pub struct Documented {
    /// Its name.
    pub name: &'static str,
    /// The way in which it changes.
    pub kind: Kind,
    /// Its labels.
    pub labels: Vec<&'static str>,
    /// Its meaning.
    pub help: &'static str,
}

/// The rules of findings: name, severity, condition, advice.
pub fn rules() -> impl Iterator<Item = [&'static str; 4]> {
    RULES.iter().map(|rule| [rule.name, rule.severity.name(), rule.when, rule.advice])
}

/// All metrics but the server's own, in their three families.
pub fn documented() -> [(&'static str, Vec<Documented>); 3] {
    let as_is = |(name, kind, labels, help): (_, _, &'static [&'static str], _)| Documented {
        name,
        kind,
        labels: labels.to_vec(),
        help,
    };
    let own = METRICS.iter().map(|metric| Documented {
        name: metric.name,
        kind: metric.kind,
        labels: metric.labels(),
        help: metric.help(),
    });
    [
        ("larder", own.collect()),
        ("memcached", memcached::metrics::documented().map(as_is).collect()),
        ("redis", redis::metrics::documented().map(as_is).collect()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_named_as_its_kind_and_says_what_it_is() {
        let mut names = Vec::new();
        for (family, metrics) in documented() {
            for metric in metrics {
                assert!(metric.name.starts_with(&format!("{family}_")), "{}", metric.name);
                assert!(metric.help.ends_with('.'), "{}: {:?}", metric.name, metric.help);
                if metric.name.ends_with("_total") {
                    assert_eq!(metric.kind, Kind::Counter, "{}", metric.name);
                }
                names.push(metric.name);
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name comes twice");
    }
}
