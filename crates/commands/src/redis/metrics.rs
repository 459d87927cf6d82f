//! The metrics that redis_exporter would make of this server's INFO: with the same names, kinds and labels, so that dashboards
//! and alerts made for it work without it.

use larder_store::{DATABASES, Store};

use super::census::Sample as Census;
use super::figures::{Figures, RedisFigure};
use super::rows::REDIS_VERSION;
use super::shared::Shared;
use super::table::ROWS;
use crate::core::calls::RowSum;
use crate::core::counters::Counter;
use crate::core::exposition::{Exposition, Family, Sample};
use crate::core::figures::table::{Figure, Kind};
use crate::core::shared;

/// Where the value of a metric comes from.
enum Source {
    Figure(Figure),
    Redis(RedisFigure),
    Counter(Counter),
    /// It never changes.
    Always(u64),
    Own(fn(&Seen<'_>, &mut Family<'_>), &'static [&'static str]),
}

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    from: Source,
}

/// What the metrics are made from.
pub(crate) struct Seen<'a> {
    pub figures: Figures,
    pub shared: &'a Shared,
    pub common: &'a shared::Shared,
    pub store: &'a Store,
    pub rows: &'a [RowSum],
    /// The port for RESP.
    pub port: u16,
    /// A sample of the keys, if one was taken: how many expire.
    census: Option<Census>,
}

impl<'a> Seen<'a> {
    pub fn new(
        figures: Figures,
        (shared, common): (&'a Shared, &'a shared::Shared),
        store: &'a Store,
        rows: &'a [RowSum],
        port: u16,
    ) -> Seen<'a> {
        shared.census.want();
        Seen { figures, shared, common, store, rows, port, census: shared.census.last() }
    }
}

const fn metric(name: &'static str, kind: Kind, from: Source) -> Metric {
    Metric { name, kind, help: "", from }
}

const fn own(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    tell: fn(&Seen<'_>, &mut Family<'_>),
) -> Metric {
    Metric { name, kind, help, from: Source::Own(tell, labels) }
}

const fn always(name: &'static str, help: &'static str, n: u64) -> Metric {
    Metric { name, kind: Gauge, help, from: Source::Always(n) }
}

use Kind::{Counter as Grows, Gauge};

const INSTANCE: &[&str] = &[
    "role",
    "redis_version",
    "redis_build_id",
    "redis_mode",
    "os",
    "maxmemory_policy",
    "tcp_port",
    "run_id",
    "process_id",
    "master_replid",
];

const METRICS: &[Metric] = &[
    always("redis_up", "Whether the server answers.", 1),
    own("redis_instance_info", Gauge, INSTANCE, "What the server is.", instance),
    metric("redis_uptime_in_seconds", Gauge, Source::Figure(Figure::Uptime)),
    own(
        "redis_start_time_seconds",
        Gauge,
        &[],
        "When the server was started, since 1970.",
        |seen, family| {
            let common = &seen.figures.common;
            let started = seen.shared.started_s(Figure::Time.of(common), Figure::Uptime.of(common));
            family.put(&[], Sample::Whole(started));
        },
    ),
    metric("redis_process_id", Gauge, Source::Figure(Figure::ProcessId)),
    metric("redis_io_threads_active", Gauge, Source::Redis(RedisFigure::SeveralThreads)),
    metric("redis_connected_clients", Gauge, Source::Redis(RedisFigure::Clients)),
    metric("redis_blocked_clients", Gauge, Source::Redis(RedisFigure::ClientsWaiting)),
    metric("redis_max_clients", Gauge, Source::Figure(Figure::ConnectionsMax)),
    always("redis_tracking_clients", "Clients that are notified of changes by others: none.", 0),
    metric("redis_pubsub_clients", Gauge, Source::Redis(RedisFigure::ClientsListening)),
    metric("redis_watching_clients", Gauge, Source::Redis(RedisFigure::ClientsWatching)),
    metric("redis_total_watched_keys", Gauge, Source::Redis(RedisFigure::KeysWatched)),
    metric("redis_client_recent_max_input_buffer_bytes", Gauge, Source::Redis(RedisFigure::QueryBytesMax)),
    metric("redis_client_recent_max_output_buffer_bytes", Gauge, Source::Redis(RedisFigure::OutputBytesMax)),
    metric("redis_memory_used_bytes", Gauge, Source::Figure(Figure::MemoryUsed)),
    metric("redis_memory_used_rss_bytes", Gauge, Source::Figure(Figure::Resident)),
    metric("redis_memory_used_peak_bytes", Gauge, Source::Redis(RedisFigure::MemoryPeak)),
    metric("redis_memory_used_overhead_bytes", Gauge, Source::Figure(Figure::IndexBytes)),
    metric("redis_memory_used_dataset_bytes", Gauge, Source::Figure(Figure::ItemBytes)),
    metric("redis_memory_max_bytes", Gauge, Source::Redis(RedisFigure::MaxMemory)),
    own("redis_mem_fragmentation_ratio", Gauge, &[], FRAGMENTATION, fragmentation),
    // The older name of the same, which the exporter's own dashboards still draw.
    own("redis_memory_fragmentation_ratio", Gauge, &[], FRAGMENTATION, fragmentation),
    metric("redis_mem_clients_normal", Gauge, Source::Figure(Figure::MemoryHeld)),
    metric("redis_total_system_memory_bytes", Gauge, Source::Redis(RedisFigure::SystemMemory)),
    metric("redis_config_maxmemory", Gauge, Source::Redis(RedisFigure::MaxMemory)),
    metric("redis_config_maxclients", Gauge, Source::Figure(Figure::ConnectionsMax)),
    own("redis_db_keys", Gauge, &["db"], "Keys of a database.", |seen, family| {
        each_database(seen, |db, keys| family.put(&[("db", db)], Sample::Whole(keys)));
    }),
    own(
        "redis_db_keys_expiring",
        Gauge,
        &["db"],
        "Keys that expire, of some that were looked at.",
        |seen, family| {
            each_expiring(seen, |db, expiring, _| family.put(&[("db", db)], Sample::Whole(expiring)));
        },
    ),
    own(
        "redis_db_avg_ttl_seconds",
        Gauge,
        &["db"],
        "The mean of the time that they have left.",
        |seen, family| {
            each_expiring(seen, |db, _, left_ms| family.put(&[("db", db)], Sample::Micros(left_ms * 1000)));
        },
    ),
    metric("redis_pubsub_channels", Gauge, Source::Figure(Figure::Channels)),
    metric("redis_pubsub_patterns", Gauge, Source::Figure(Figure::Patterns)),
    metric("redis_pubsubshard_channels", Gauge, Source::Figure(Figure::ShardChannels)),
    metric("redis_slowlog_length", Gauge, Source::Redis(RedisFigure::SlowCommands)),
    metric("redis_slowlog_last_id", Gauge, Source::Redis(RedisFigure::SlowLast)),
    metric("redis_last_slow_execution_duration_seconds", Gauge, Source::Redis(RedisFigure::SlowLastTook)),
    own(
        "redis_latency_spike_last",
        Gauge,
        &["event_name"],
        "When an event last took long, since 1970.",
        |seen, family| {
            seen.shared.latency.each_latest(&mut |event, at_s, _| {
                family.put(&[("event_name", event)], Sample::Whole(at_s));
            });
        },
    ),
    own(
        "redis_latency_spike_duration_seconds",
        Gauge,
        &["event_name"],
        "How long it took then.",
        |seen, family| {
            seen.shared.latency.each_latest(&mut |event, _, ms| {
                family.put(&[("event_name", event)], Sample::Micros(ms * 1000));
            });
        },
    ),
    always("redis_connected_slaves", "Replicas: none.", 0),
    always("redis_loading_dump_file", "Whether items are being loaded: never.", 0),
    always("redis_master_repl_offset", "Bytes that replicas were sent: none.", 0),
    metric("redis_connections_received_total", Grows, Source::Figure(Figure::ConnectionsOpened)),
    metric("redis_commands_processed_total", Grows, Source::Redis(RedisFigure::Commands)),
    metric("redis_rejected_connections_total", Grows, Source::Figure(Figure::ConnectionsRefused)),
    metric("redis_net_input_bytes_total", Grows, Source::Counter(Counter::BytesRead)),
    metric("redis_net_output_bytes_total", Grows, Source::Counter(Counter::BytesWritten)),
    metric("redis_expired_keys_total", Grows, Source::Figure(Figure::Reclaimed)),
    metric("redis_evicted_keys_total", Grows, Source::Figure(Figure::Evictions)),
    metric("redis_evicted_clients_total", Grows, Source::Counter(Counter::Shed)),
    metric("redis_keyspace_hits_total", Grows, Source::Figure(Figure::Hits)),
    metric("redis_keyspace_misses_total", Grows, Source::Figure(Figure::Misses)),
    metric("redis_cpu_sys_seconds_total", Grows, Source::Figure(Figure::CpuSystem)),
    metric("redis_cpu_user_seconds_total", Grows, Source::Figure(Figure::CpuUser)),
    metric("redis_total_error_replies", Grows, Source::Redis(RedisFigure::Errors)),
    metric(
        "redis_client_output_buffer_limit_disconnections_total",
        Grows,
        Source::Figure(Figure::SubscribersCut),
    ),
    own("redis_commands_total", Grows, &["cmd"], "Calls of a command.", |seen, family| {
        each_command(seen, family, |sum| Sample::Whole(sum.calls));
    }),
    own(
        "redis_commands_duration_seconds_total",
        Grows,
        &["cmd"],
        "What they took: the mean of those that were measured, times all.",
        |seen, family| {
            each_command(seen, family, |sum| {
                Sample::Micros((sum.us_per_call() * sum.calls as f64).round() as u64)
            });
        },
    ),
    own(
        "redis_commands_rejected_calls_total",
        Grows,
        &["cmd"],
        "Calls that were refused before they ran.",
        |seen, family| {
            each_command(seen, family, |sum| Sample::Whole(sum.refused));
        },
    ),
    own(
        "redis_commands_failed_calls_total",
        Grows,
        &["cmd"],
        "Calls that were answered with an error.",
        |seen, family| {
            each_command(seen, family, |sum| Sample::Whole(sum.failed));
        },
    ),
    own(
        "redis_errors_total",
        Grows,
        &["err"],
        "Errors that were answered, by their first words.",
        |seen, family| {
            seen.common.errors.each_since_start(&mut |word, count| {
                family.put(&[("err", word)], Sample::Whole(count));
            });
        },
    ),
];

const FRAGMENTATION: &str = "Memory of the process for each byte that is used.";

fn fragmentation(seen: &Seen<'_>, family: &mut Family<'_>) {
    family.put(&[], Sample::Ratio(seen.figures.fragmentation()));
}

fn instance(seen: &Seen<'_>, family: &mut Family<'_>) {
    let policy = seen.shared.parameters.policy(seen.store);
    let os = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let run_id = format!("{:040x}", seen.shared.run_id);
    let no_replica = format!("{:040}", 0);
    let (port, pid) = (seen.port.to_string(), Figure::ProcessId.of(&seen.figures.common).to_string());
    let values =
        ["master", REDIS_VERSION, "larder", "standalone", &os, &policy, &port, &run_id, &pid, &no_replica];
    let labels: Vec<(&str, &str)> = INSTANCE.iter().copied().zip(values).collect();
    family.put(&labels, Sample::Whole(1));
}

fn each_database(seen: &Seen<'_>, mut tell: impl FnMut(&str, u64)) {
    for db in 0..DATABASES {
        let keys = seen.store.database_items(db);
        if keys > 0 || db == 0 {
            tell(&format!("db{db}"), keys);
        }
    }
}

/// Calls `tell` for database 0 and each other that has keys: how many of them expire, and the mean of the milliseconds that these
/// have left. Does nothing until upkeep has taken a sample.
fn each_expiring(seen: &Seen<'_>, mut tell: impl FnMut(&str, u64, u64)) {
    let Some(census) = &seen.census else { return };
    for db in 0..DATABASES {
        let keys = seen.store.database_items(db);
        if keys > 0 || db == 0 {
            let (expiring, left_ms, _) = census.of(db, keys);
            tell(&format!("db{db}"), expiring, left_ms);
        }
    }
}

fn each_command(seen: &Seen<'_>, family: &mut Family<'_>, value: impl Fn(&RowSum) -> Sample) {
    for (row, sum) in ROWS.in_use(seen.rows) {
        family.put(&[("cmd", row.name)], value(sum));
    }
}

impl Metric {
    fn help(&self) -> &'static str {
        match &self.from {
            Source::Figure(figure) => figure.row().help,
            Source::Redis(figure) => figure.row().help,
            Source::Counter(counter) => counter.help(),
            Source::Always(_) | Source::Own(..) => self.help,
        }
    }

    fn labels(&self) -> &'static [&'static str] {
        match self.from {
            Source::Own(_, labels) => labels,
            Source::Figure(_) | Source::Redis(_) | Source::Counter(_) | Source::Always(_) => &[],
        }
    }
}

/// The name, kind, labels and help of each metric.
pub(crate) fn documented() -> impl Iterator<Item = (&'static str, Kind, &'static [&'static str], &'static str)>
{
    METRICS.iter().map(|metric| (metric.name, metric.kind, metric.labels(), metric.help()))
}

/// Writes the metrics.
pub(crate) fn expose(seen: &Seen<'_>, page: &mut Exposition<'_>) {
    let common = &seen.figures.common;
    for metric in METRICS {
        page.family(metric.name, metric.kind, metric.help(), |family| match &metric.from {
            Source::Figure(figure) => family.put(&[], Sample::of(figure.row().unit, figure.of(common))),
            Source::Redis(figure) => family.put(&[], Sample::of(figure.row().unit, figure.of(&seen.figures))),
            Source::Counter(counter) => family.put(&[], Sample::Whole(common.sums.of(*counter))),
            Source::Always(n) => family.put(&[], Sample::Whole(*n)),
            Source::Own(tell, _) => tell(seen, family),
        });
    }
}
