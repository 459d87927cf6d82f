//! The metrics that memcached_exporter would make of this server's `stats`: the same names, kinds and labels, so that boards
//! and alerts made for it work without it.
//!
//! Figures that would always be 0 here are left out: LRU lists, the crawler's settings, extstore, the proxy.

use super::class_stats::ClassSource;
use super::shared::Shared;
use super::slabs::{PAGE_BYTES, SPANS_PER_PAGE, Slab};
use super::stats::Figures;
use crate::core::counters::{ClassCounter, Counter, Sums};
use crate::core::exposition::{Exposition, Sample};
use crate::core::figures::table::{ClassFigure, Figure, Kind};
use crate::core::shared::VERSION;

/// The source of a series.
enum Source {
    Figure(Figure),
    Counter(Counter),
    Own(fn(&Figures, &[Slab]) -> u64),
    /// The version, as a label.
    Version,
    /// A series for each command and its outcome, as label values.
    Commands,
    /// A series for each class.
    Class(ClassSource),
    /// A series for each class, command and outcome.
    ClassCommands,
}

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    from: Source,
}

const fn metric(name: &'static str, kind: Kind, help: &'static str, from: Source) -> Metric {
    Metric { name, kind, help, from }
}

use Kind::{Counter as Grows, Gauge};
use Source::{Class, ClassCommands, Commands, Own, Version};

const METRICS: &[Metric] = &[
    metric("memcached_up", Gauge, "Whether the server answers.", Own(|_, _| 1)),
    metric("memcached_version", Gauge, "The version that the server says it has.", Version),
    metric("memcached_uptime_seconds", Grows, "", Source::Figure(Figure::Uptime)),
    metric("memcached_time_seconds", Gauge, "", Source::Figure(Figure::Time)),
    metric("memcached_process_user_cpu_seconds_total", Grows, "", Source::Figure(Figure::CpuUser)),
    metric("memcached_process_system_cpu_seconds_total", Grows, "", Source::Figure(Figure::CpuSystem)),
    metric("memcached_process_resident_memory_bytes", Gauge, "", Source::Figure(Figure::Resident)),
    metric("memcached_accepting_connections", Gauge, "", Source::Figure(Figure::Accepts)),
    metric("memcached_current_connections", Gauge, "", Source::Figure(Figure::Connections)),
    metric("memcached_max_connections", Gauge, "", Source::Figure(Figure::ConnectionsMax)),
    metric("memcached_connections_total", Grows, "", Source::Figure(Figure::ConnectionsOpened)),
    metric("memcached_connections_rejected_total", Grows, "", Source::Figure(Figure::ConnectionsRefused)),
    metric("memcached_connections_yielded_total", Grows, "", Source::Counter(Counter::ConnYields)),
    metric("memcached_connections_listener_disabled_total", Grows, "", Source::Figure(Figure::AcceptPauses)),
    metric("memcached_read_bytes_total", Grows, "", Source::Counter(Counter::BytesRead)),
    metric("memcached_written_bytes_total", Grows, "", Source::Counter(Counter::BytesWritten)),
    metric("memcached_current_bytes", Gauge, "", Source::Figure(Figure::ItemBytes)),
    metric("memcached_limit_bytes", Gauge, "", Source::Figure(Figure::MemoryLimit)),
    metric("memcached_malloced_bytes", Gauge, "Memory of the spans that classes own.", Own(malloced)),
    metric("memcached_current_items", Gauge, "", Source::Figure(Figure::Items)),
    metric("memcached_items_total", Grows, "", Source::Figure(Figure::ItemsStored)),
    metric("memcached_items_evicted_total", Grows, "", Source::Figure(Figure::Evictions)),
    metric("memcached_items_reclaimed_total", Grows, "", Source::Figure(Figure::Reclaimed)),
    metric("memcached_item_too_large_total", Grows, "", Source::Counter(Counter::StoreTooLarge)),
    metric("memcached_item_no_memory_total", Grows, "", Source::Counter(Counter::StoreNoMemory)),
    metric("memcached_commands_total", Grows, "Keys of commands, by what became of them.", Commands),
    metric("memcached_lru_crawler_starts_total", Grows, "Crawls that were started.", Own(|f, _| f.crawls)),
    metric("memcached_lru_crawler_items_checked_total", Grows, "", Source::Figure(Figure::UpkeepChecked)),
    class("memcached_slab_chunk_size_bytes", Gauge, ClassFigure::ChunkBytes),
    metric(
        "memcached_slab_chunks_per_page",
        Gauge,
        "Chunks of a page of 1 MiB.",
        Class(ClassSource::Own(|slab| PAGE_BYTES / u64::from(slab.totals.chunk_bytes.max(1)))),
    ),
    metric("memcached_slab_current_pages", Gauge, "Pages of 1 MiB.", Class(ClassSource::Own(Slab::pages))),
    class("memcached_slab_current_chunks", Gauge, ClassFigure::Chunks),
    class("memcached_slab_chunks_used", Gauge, ClassFigure::ChunksUsed),
    class("memcached_slab_chunks_free", Gauge, ClassFigure::ChunksFree),
    // The exporter calls it a counter.
    class("memcached_slab_mem_requested_bytes", Grows, ClassFigure::RequestedBytes),
    class("memcached_slab_current_items", Gauge, ClassFigure::Items),
    class("memcached_slab_items_age_seconds", Gauge, ClassFigure::Age),
    class("memcached_slab_items_evicted_total", Grows, ClassFigure::Evictions),
    class("memcached_slab_items_evicted_nonzero_total", Grows, ClassFigure::EvictedNonzero),
    class("memcached_slab_items_evicted_unfetched_total", Grows, ClassFigure::EvictedUnfetched),
    class("memcached_slab_items_expired_unfetched_total", Grows, ClassFigure::ExpiredUnfetched),
    class("memcached_slab_items_outofmemory_total", Grows, ClassFigure::OutOfMemory),
    class("memcached_slab_items_reclaimed_total", Grows, ClassFigure::Reclaimed),
    // The exporter calls it a counter.
    class("memcached_slab_items_evicted_time_seconds", Grows, ClassFigure::EvictedAge),
    metric(
        "memcached_slab_commands_total",
        Grows,
        "Commands on items of the class, by what became of them.",
        ClassCommands,
    ),
];

const fn class(name: &'static str, kind: Kind, figure: ClassFigure) -> Metric {
    Metric { name, kind, help: "", from: Class(ClassSource::Figure(figure)) }
}

/// Counters by command and outcome. `set` has what is left of all stores beside compare-and-swaps.
const COMMANDS: &[(&str, &str, Counter)] = &[
    ("get", "hit", Counter::GetHits),
    ("get", "miss", Counter::GetMisses),
    ("delete", "hit", Counter::DeleteHits),
    ("delete", "miss", Counter::DeleteMisses),
    ("incr", "hit", Counter::IncrHits),
    ("incr", "miss", Counter::IncrMisses),
    ("decr", "hit", Counter::DecrHits),
    ("decr", "miss", Counter::DecrMisses),
    ("cas", "hit", Counter::CasHits),
    ("cas", "miss", Counter::CasMisses),
    ("cas", "badval", Counter::CasBadval),
    ("touch", "hit", Counter::TouchHits),
    ("touch", "miss", Counter::TouchMisses),
    ("flush", "hit", Counter::CmdFlush),
];

const CLASS_COMMANDS: &[(&str, &str, ClassCounter)] = &[
    ("get", "hit", ClassCounter::GetHits),
    ("delete", "hit", ClassCounter::DeleteHits),
    ("incr", "hit", ClassCounter::IncrHits),
    ("decr", "hit", ClassCounter::DecrHits),
    ("cas", "hit", ClassCounter::CasHits),
    ("cas", "badval", ClassCounter::CasBadval),
    ("touch", "hit", ClassCounter::TouchHits),
];

fn malloced(_: &Figures, slabs: &[Slab]) -> u64 {
    slabs.iter().map(|slab| slab.totals.spans * PAGE_BYTES / SPANS_PER_PAGE).sum()
}

impl Metric {
    fn help(&self) -> &'static str {
        match self.from {
            Source::Figure(figure) => figure.row().help,
            Source::Counter(counter) => counter.help(),
            Class(ClassSource::Figure(figure)) => figure.row().help,
            Class(_) | Own(_) | Version | Commands | ClassCommands => self.help,
        }
    }

    fn labels(&self) -> &'static [&'static str] {
        match self.from {
            Source::Figure(_) | Source::Counter(_) | Own(_) => &[],
            Version => &["version"],
            Commands => &["command", "status"],
            Class(_) => &["slab"],
            ClassCommands => &["slab", "command", "status"],
        }
    }

    fn is_of_classes(&self) -> bool {
        matches!(self.from, Class(_) | ClassCommands)
    }
}

/// Name, kind, labels and help of each.
pub(crate) fn documented() -> impl Iterator<Item = (&'static str, Kind, &'static [&'static str], &'static str)>
{
    METRICS.iter().map(|metric| (metric.name, metric.kind, metric.labels(), metric.help()))
}

/// Writes all metrics, of the classes too if that is wanted.
pub(crate) fn expose(
    shared: &Shared,
    figures: &Figures,
    slabs: &[Slab],
    of_classes: bool,
    page: &mut Exposition<'_>,
) {
    let sums = &figures.common.sums;
    for metric in METRICS.iter().filter(|metric| of_classes || !metric.is_of_classes()) {
        page.family(metric.name, metric.kind, metric.help(), |family| match &metric.from {
            Source::Figure(figure) => {
                family.put(&[], Sample::of(figure.row().unit, figure.of(&figures.common)));
            }
            Source::Counter(counter) => family.put(&[], Sample::Whole(sums.of(*counter))),
            Own(read) => family.put(&[], Sample::Whole(read(figures, slabs))),
            Version => family.put(&[("version", VERSION)], Sample::Whole(1)),
            Commands => {
                family.put(&[("command", "set"), ("status", "hit")], Sample::Whole(sets(sums)));
                for (command, status, counter) in COMMANDS {
                    family.put(&[("command", command), ("status", status)], Sample::Whole(sums.of(*counter)));
                }
            }
            Class(source) => {
                for slab in slabs {
                    let value = source.value(slab, &shared.slabs, sums);
                    let value = match source {
                        ClassSource::Figure(figure) if figure.row().kind == Gauge => Sample::Exact(value),
                        _ => Sample::Whole(value),
                    };
                    family.put(&[("slab", &slab.totals.id.to_string())], value);
                }
            }
            ClassCommands => {
                for slab in slabs {
                    let id = &slab.totals.id.to_string()[..];
                    let of = |counter| ClassSource::Counter(counter).value(slab, &shared.slabs, sums);
                    let cas = of(ClassCounter::CasHits) + of(ClassCounter::CasBadval);
                    let sets = of(ClassCounter::CmdSet).saturating_sub(cas);
                    family.put(&[("slab", id), ("command", "set"), ("status", "hit")], Sample::Whole(sets));
                    for (command, status, counter) in CLASS_COMMANDS {
                        let labels = [("slab", id), ("command", command), ("status", status)];
                        family.put(&labels, Sample::Whole(of(*counter)));
                    }
                }
            }
        });
    }
}

fn sets(sums: &Sums) -> u64 {
    let cas = [Counter::CasHits, Counter::CasMisses, Counter::CasBadval];
    let cas: u64 = cas.into_iter().map(|counter| sums.of(counter)).sum();
    sums.of(Counter::CmdSet).saturating_sub(cas)
}
