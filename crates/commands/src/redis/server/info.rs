//! INFO: figures of the server, in Redis's sections and under its names.

use std::fmt::{Display, Write};

use larder_protocol::resp::Args;
use larder_store::DATABASES;

use crate::core::acl::verbs::Verb;
use crate::core::counters::Counter;
use crate::core::figures::table::Figure;
use crate::core::figures::{of_types, row_sums};
use crate::core::findings::find_for;
use crate::core::traffic::{Parts, Shares, parts};
use crate::core::work::KEY_NS;
use crate::redis::call::{Call, NAME_NS, few_names, is};
use crate::redis::census::{ITEMS_PER_WALK, Sample};
use crate::redis::fail::Done;
use crate::redis::figures::{Figures, RedisFigure};
use crate::redis::reply::put_verbatim;
use crate::redis::rows::REDIS_VERSION;

/// Sections in their order. Those from `MORE` on are shown only on request, and the last six only by name.
const SECTIONS: &[&str] = &[
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    "errorstats",
    "cluster",
    "keyspace",
    "commandstats",
    "latencystats",
    "hotkeys",
    "prefixes",
    "forecast",
    "latency",
    "types",
    "findings",
];
const MORE: usize = 11;
const ALL: usize = SECTIONS.len() - 6;

struct Page {
    text: String,
}

impl Page {
    fn section(&mut self, name: &str) {
        let gap = if self.text.is_empty() { "" } else { "\r\n" };
        // Writing into a string cannot fail.
        let _ = write!(self.text, "{gap}# {name}\r\n");
    }

    fn line(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }
}

/// Work of INFO beside the figures and the look at some keys: it puts lines together.
pub(crate) const INFO_NS: u64 = 30_000;

/// Serves INFO.
pub(crate) fn info(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    let (mut wanted, mut first) = ([false; SECTIONS.len()], if args.is_empty() { MORE } else { 0 });
    for word in args {
        match SECTIONS.iter().position(|name| is(word, name)) {
            Some(index) => wanted[index] = true,
            None if is(word, "all") || is(word, "everything") => first = ALL,
            None if is(word, "default") => first = first.max(MORE),
            None => {}
        }
    }
    wanted[..first].fill(true);
    let figures = Figures::gather(call.shared, call.cx);
    call.spend(INFO_NS + args.len() as u64 * NAME_NS);
    let mut page = Page { text: String::new() };
    for (name, _) in SECTIONS.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
        match *name {
            "server" => server(call, &figures, &mut page),
            "clients" => clients(&figures, &mut page),
            "memory" => memory(call, &figures, &mut page),
            "persistence" => persistence(call, &figures, &mut page),
            "stats" => stats(call, &figures, &mut page),
            "replication" => replication(&mut page),
            "cpu" => cpu(&figures, &mut page),
            "modules" => page.section("Modules"),
            "errorstats" => errors(call, &mut page),
            "cluster" => {
                page.section("Cluster");
                page.line("cluster_enabled", 0);
            }
            "keyspace" => keyspace(call, &mut page),
            "commandstats" => commands(call, &mut page),
            "hotkeys" => {
                page.section("Hotkeys");
                shares(call, &mut page, ("hotkeys", "hotkey"), || call.cx.hot_keys());
            }
            "prefixes" => {
                page.section("Prefixes");
                shares(call, &mut page, ("prefixes", "prefix"), || call.cx.prefix_shares());
            }
            "forecast" => forecast(call, &mut page),
            "latency" => stages(call, &mut page),
            "types" => types(call, &mut page),
            "findings" => findings(call, &mut page),
            _ => latencies(call, &mut page),
        }
    }
    put_verbatim(call.out, call.client.resp3, &page.text);
    Ok(())
}

/// Larder's own: the keys, or prefixes, with the largest shares, if keys may be shown. Lines of the whole begin with `all`, those
/// of each with `one`.
fn shares<R: Parts>(
    call: &Call<'_, '_, '_>,
    page: &mut Page,
    (all, one): (&str, &str),
    told: impl FnOnce() -> Option<Shares<R>>,
) {
    if !may_list(call) {
        return;
    }
    let Some(told) = told() else { return page.line(&format!("{all}_sampled"), 0) };
    page.line(&format!("{all}_sampled"), 1);
    page.line(&format!("{all}_seconds"), format_args!("{:.1}", told.seconds));
    page.line(&format!("{all}_requests"), told.all);
    page.line(&format!("{all}_samples"), told.samples);
    for (nth, row) in told.rows.iter().enumerate() {
        page.line(&format!("{one}_{}", nth + 1), parts(row));
    }
}

/// Whether names of keys may be shown: they are not hidden, and the client's user may call KEYS.
fn may_list(call: &Call<'_, '_, '_>) -> bool {
    let (access, mut ns) = (&call.cx.shared.access, 0);
    let may = call
        .client
        .standing
        .user()
        .is_none_or(|user| user.may_everything() || access.may(user, Verb::Keys, None, &mut ns).is_ok());
    call.cx.room.work().spend(ns);
    may && call.cx.shared.settings.dump
}

/// Larder's own: what other memory limits would do.
fn forecast(call: &Call<'_, '_, '_>, page: &mut Page) {
    page.section("Forecast");
    match call.cx.shared.traffic.told().outlook {
        Some(outlook) => outlook.each(&mut |name, value| page.line(&format!("forecast_{name}"), value)),
        None => page.line("forecast_ready", 0),
    }
}

/// Larder's own: how long timed requests of each protocol took, stage by stage.
fn stages(call: &Call<'_, '_, '_>, page: &mut Page) {
    page.section("Latency");
    call.cx.host.stage_times(&mut |times| {
        let mut text = format!("count={}", times.count);
        times.each_quantile(&mut |name, us| {
            // Writing into a string cannot fail.
            let _ = write!(text, ",{name}={us:.1}");
        });
        page.line(&format!("latency_{}_{}", times.protocol, times.stage), text);
    });
}

/// Larder's own: figures of each type of values.
fn types(call: &Call<'_, '_, '_>, page: &mut Page) {
    page.section("Types");
    for of in of_types(call.cx) {
        let mut text = String::new();
        of.each(&mut |name, value| {
            let between = if text.is_empty() { "" } else { "," };
            // Writing into a string cannot fail.
            let _ = write!(text, "{between}{name}={value}");
        });
        page.line(&format!("type_{}", of.name), text);
    }
}

/// Larder's own: what the operator should know, the most important first.
fn findings(call: &Call<'_, '_, '_>, page: &mut Page) {
    let found = find_for(call.cx);
    page.section("Findings");
    page.line("findings", found.len());
    for (nth, finding) in found.iter().enumerate() {
        page.line(&format!("finding_{}_rule", nth + 1), finding.rule.name);
        for (name, text) in finding.parts() {
            page.line(&format!("finding_{}_{name}", nth + 1), text);
        }
    }
}

fn server(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    let common = &figures.common;
    page.section("Server");
    page.line("redis_version", REDIS_VERSION);
    page.line("redis_git_sha1", "00000000");
    page.line("redis_git_dirty", 0);
    page.line("redis_build_id", "larder");
    page.line("redis_mode", "standalone");
    page.line("larder_version", env!("CARGO_PKG_VERSION"));
    page.line("os", format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    page.line("arch_bits", usize::BITS);
    page.line("multiplexing_api", "epoll");
    page.line("process_id", Figure::ProcessId.of(common));
    page.line("run_id", format_args!("{:040x}", call.shared.run_id));
    page.line("tcp_port", call.client.facts.listen_address.rsplit(':').next().unwrap_or("0"));
    page.line("server_time_usec", call.cx.now_us());
    let uptime_s = Figure::Uptime.of(common);
    page.line("uptime_in_seconds", uptime_s);
    page.line("uptime_in_days", uptime_s / 86_400);
    let hz = call.shared.parameters.text("hz");
    page.line("hz", &hz);
    page.line("configured_hz", &hz);
    page.line("lru_clock", Figure::Time.of(common) & 0xff_ffff);
    page.line("executable", "larder");
    page.line("config_file", "");
    page.line("io_threads_active", RedisFigure::SeveralThreads.of(figures));
    let mut nth = 0;
    call.cx.host.listeners(&mut |name, bind, port| {
        let port = if port == 0 { String::new() } else { format!(",port={port}") };
        page.line(&format!("listener{nth}"), format_args!("name={name},bind={bind}{port}"));
        nth += 1;
    });
}

fn clients(figures: &Figures, page: &mut Page) {
    page.section("Clients");
    page.line("connected_clients", RedisFigure::Clients.of(figures));
    page.line("cluster_connections", 0);
    page.line("maxclients", Figure::ConnectionsMax.of(&figures.common));
    page.line("client_recent_max_input_buffer", RedisFigure::QueryBytesMax.of(figures));
    page.line("client_recent_max_output_buffer", RedisFigure::OutputBytesMax.of(figures));
    page.line("blocked_clients", RedisFigure::ClientsWaiting.of(figures));
    page.line("tracking_clients", 0);
    page.line("pubsub_clients", RedisFigure::ClientsListening.of(figures));
    page.line("watching_clients", RedisFigure::ClientsWatching.of(figures));
    page.line("clients_in_timeout_table", 0);
    page.line("total_watched_keys", RedisFigure::KeysWatched.of(figures));
    page.line("total_blocking_keys", RedisFigure::KeysAwaited.of(figures));
    page.line("total_blocking_keys_on_nokey", 0);
}

/// A number of bytes as `1.50M`.
fn human(bytes: u64) -> String {
    let n = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.2}K", n / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", n / 1_048_576.0),
        _ => format!("{:.2}G", n / 1_073_741_824.0),
    }
}

fn memory(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    let common = &figures.common;
    let used = Figure::MemoryUsed.of(common);
    let dataset = Figure::ItemBytes.of(common);
    let rss = Figure::Resident.of(common);
    page.section("Memory");
    page.line("used_memory", used);
    page.line("used_memory_human", human(used));
    page.line("used_memory_rss", rss);
    page.line("used_memory_rss_human", human(rss));
    let peak = RedisFigure::MemoryPeak.of(figures);
    page.line("used_memory_peak", peak);
    page.line("used_memory_peak_human", human(peak));
    page.line("used_memory_peak_perc", format_args!("{:.2}%", 100.0 * used as f64 / peak.max(1) as f64));
    page.line("used_memory_overhead", Figure::IndexBytes.of(common));
    page.line("used_memory_startup", 0);
    page.line("used_memory_dataset", dataset);
    page.line(
        "used_memory_dataset_perc",
        format_args!("{:.2}%", 100.0 * dataset as f64 / used.max(1) as f64),
    );
    page.line("allocator_allocated", used);
    page.line("allocator_active", used);
    page.line("allocator_resident", rss);
    let system = RedisFigure::SystemMemory.of(figures);
    page.line("total_system_memory", system);
    page.line("total_system_memory_human", human(system));
    let (scripts, script_bytes) = call.shared.scripts.size();
    let mut state_bytes = 0;
    call.shared.scripts.each_running(|running| state_bytes += running.used_bytes());
    let (libraries, functions, library_bytes) = call.shared.libraries.size();
    // Scripts and functions run in the same states.
    page.line("used_memory_vm_eval", state_bytes);
    page.line("used_memory_lua", state_bytes);
    page.line("used_memory_lua_human", human(state_bytes));
    page.line("used_memory_scripts_eval", script_bytes);
    page.line("number_of_cached_scripts", scripts);
    page.line("number_of_functions", functions);
    page.line("number_of_libraries", libraries);
    page.line("used_memory_vm_functions", 0);
    page.line("used_memory_vm_total", state_bytes);
    page.line("used_memory_vm_total_human", human(state_bytes));
    page.line("used_memory_functions", library_bytes);
    page.line("used_memory_scripts", script_bytes + library_bytes);
    page.line("used_memory_scripts_human", human(script_bytes + library_bytes));
    let limit = RedisFigure::MaxMemory.of(figures);
    page.line("maxmemory", limit);
    page.line("maxmemory_human", human(limit));
    page.line("maxmemory_policy", call.shared.parameters.policy(call.cx.guard.store()));
    page.line("mem_fragmentation_ratio", format_args!("{:.2}", figures.fragmentation()));
    page.line("mem_fragmentation_bytes", rss.saturating_sub(used));
    page.line("mem_not_counted_for_evict", 0);
    page.line("mem_clients_slaves", 0);
    page.line("mem_clients_normal", Figure::MemoryHeld.of(common));
    page.line("mem_aof_buffer", 0);
    page.line("mem_allocator", "larder");
    page.line("active_defrag_running", 0);
    page.line("lazyfree_pending_objects", 0);
    page.line("lazyfreed_objects", 0);
}

fn persistence(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    page.section("Persistence");
    for name in ["loading", "async_loading", "current_cow_peak", "rdb_changes_since_last_save"] {
        page.line(name, 0);
    }
    page.line("rdb_bgsave_in_progress", 0);
    let common = &figures.common;
    let started_s = call.shared.started_s(Figure::Time.of(common), Figure::Uptime.of(common));
    page.line("rdb_last_save_time", started_s);
    page.line("rdb_last_bgsave_status", "ok");
    page.line("rdb_last_bgsave_time_sec", -1);
    page.line("rdb_current_bgsave_time_sec", -1);
    page.line("rdb_saves", 0);
    page.line("rdb_last_cow_size", 0);
    page.line("aof_enabled", 0);
    page.line("aof_rewrite_in_progress", 0);
    page.line("aof_rewrite_scheduled", 0);
    page.line("aof_last_rewrite_time_sec", -1);
    page.line("aof_current_rewrite_time_sec", -1);
    page.line("aof_last_bgrewrite_status", "ok");
    page.line("aof_last_write_status", "ok");
}

fn stats(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    let common = &figures.common;
    let of = |figure: Figure| figure.of(common);
    let counted = |counter: Counter| common.sums.of(counter);
    page.section("Stats");
    page.line("total_connections_received", of(Figure::ConnectionsOpened));
    page.line("total_commands_processed", RedisFigure::Commands.of(figures));
    let [commands, bytes_in, bytes_out] = call.shared.rates.per_second();
    page.line("instantaneous_ops_per_sec", commands);
    page.line("total_net_input_bytes", counted(Counter::BytesRead));
    page.line("total_net_output_bytes", counted(Counter::BytesWritten));
    page.line("instantaneous_input_kbps", format_args!("{:.2}", bytes_in as f64 / 1024.0));
    page.line("instantaneous_output_kbps", format_args!("{:.2}", bytes_out as f64 / 1024.0));
    page.line("rejected_connections", of(Figure::ConnectionsRefused));
    page.line("rejected_connections_per_address", of(Figure::ConnectionsRefusedPerAddress));
    page.line("expired_keys", of(Figure::Reclaimed));
    page.line("expired_subkeys", common.totals.fields_expired);
    page.line("expired_stale_perc", "0.00");
    page.line("expired_time_cap_reached_count", 0);
    page.line("evicted_keys", of(Figure::Evictions));
    page.line("keyspace_events_lost", of(Figure::EventsLost));
    if call.cx.shared.settings.speaks_tls {
        page.line("tls_handshakes", of(Figure::TlsHandshakes));
        page.line("tls_resumptions", of(Figure::TlsResumptions));
        page.line("tls_handshake_errors", of(Figure::TlsHandshakeErrors));
        page.line("tls_protocol_errors", of(Figure::TlsProtocolErrors));
        page.line("tls_certificates_age_sec", of(Figure::TlsCertificatesAge));
        page.line("tls_cert_not_after", of(Figure::TlsCertificateNotAfter));
        page.line("tls_on_plain_ports", of(Figure::TlsOnPlainPorts));
    }
    page.line("prefixes_missed", of(Figure::PrefixesMissed));
    page.line("evicted_clients", counted(Counter::Shed));
    page.line("keyspace_hits", of(Figure::Hits));
    page.line("keyspace_misses", of(Figure::Misses));
    page.line("type_misses", counted(Counter::TypeMisses));
    page.line("pubsub_channels", of(Figure::Channels));
    page.line("pubsub_patterns", of(Figure::Patterns));
    page.line("pubsubshard_channels", of(Figure::ShardChannels));
    page.line("client_query_buffer_limit_disconnections", counted(Counter::Crowded));
    page.line("request_timeouts", counted(Counter::Unfinished));
    page.line("client_output_buffer_limit_disconnections", of(Figure::SubscribersCut));
    page.line("store_taken_as_a_whole", of(Figure::WholeHolds));
    page.line("latest_fork_usec", 0);
    page.line("total_forks", 0);
    page.line("migrate_cached_sockets", 0);
    page.line("active_defrag_running", 0);
    page.line("tracking_total_keys", 0);
    page.line("unexpected_error_replies", 0);
    page.line("total_error_replies", RedisFigure::Errors.of(figures));
    for (name, count) in super::acl::refused(call) {
        page.line(name, count);
    }
    page.line("acl_change_disconnections", call.cx.shared.access.log.closed());
    page.line("total_reads_processed", 0);
    page.line("total_writes_processed", 0);
    page.line("slowlog_len", RedisFigure::SlowCommands.of(figures));
}

fn replication(page: &mut Page) {
    page.section("Replication");
    page.line("role", "master");
    page.line("connected_slaves", 0);
    page.line("master_failover_state", "no-failover");
    page.line("master_replid", format_args!("{:040}", 0));
    page.line("master_replid2", format_args!("{:040}", 0));
    page.line("master_repl_offset", 0);
    page.line("second_repl_offset", -1);
    page.line("repl_backlog_active", 0);
    page.line("repl_backlog_size", 1_048_576);
    page.line("repl_backlog_first_byte_offset", 0);
    page.line("repl_backlog_histlen", 0);
}

fn cpu(figures: &Figures, page: &mut Page) {
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    page.section("CPU");
    page.line("used_cpu_sys", seconds(Figure::CpuSystem.of(&figures.common)));
    page.line("used_cpu_user", seconds(Figure::CpuUser.of(&figures.common)));
    page.line("used_cpu_sys_children", "0.000000");
    page.line("used_cpu_user_children", "0.000000");
}

fn errors(call: &Call<'_, '_, '_>, page: &mut Page) {
    page.section("Errorstats");
    call.cx.shared.errors.each(&mut |word, count| {
        page.line(&format!("errorstat_{word}"), format_args!("count={count}"));
    });
}

fn commands(call: &Call<'_, '_, '_>, page: &mut Page) {
    page.section("Commandstats");
    for (row, sum) in call.shared.rows.in_use(&row_sums(call.cx)) {
        let per_call = sum.us_per_call();
        let us = (per_call * sum.calls as f64).round() as u64;
        page.line(
            &format!("cmdstat_{}", row.name),
            format_args!(
                "calls={},usec={us},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                sum.calls, sum.refused, sum.failed
            ),
        );
    }
}

fn latencies(call: &Call<'_, '_, '_>, page: &mut Page) {
    page.section("Latencystats");
    let parameters = &call.shared.parameters;
    if parameters.text("latency-tracking") == "no" {
        return;
    }
    let percentiles = parameters.text("latency-tracking-info-percentiles");
    for (row, sum) in call.shared.rows.in_use(&row_sums(call.cx)).filter(|(_, sum)| sum.measured > 0) {
        let parts: Vec<String> = percentiles
            .split_whitespace()
            .filter_map(|text| Some(format!("p{text}={}.000", sum.percentile_us(text.parse().ok()?))))
            .collect();
        page.line(&format!("latency_percentiles_usec_{}", row.name), parts.join(","));
    }
}

/// Writes the keyspace. How many keys expire is estimated from some thousand, or counted if there are few.
fn keyspace(call: &mut Call<'_, '_, '_>, page: &mut Page) {
    page.section("Keyspace");
    let mut sample = Sample::default();
    loop {
        let is_whole = sample.step(&mut call.cx.guard);
        call.spend(ITEMS_PER_WALK as u64 * KEY_NS);
        if is_whole {
            break;
        }
    }
    for db in 0..DATABASES {
        let keys = call.cx.guard.store().database_items(db);
        if keys > 0 {
            let (expires, left_ms, timed) = sample.of(db, keys);
            page.line(
                &format!("db{db}"),
                format_args!("keys={keys},expires={expires},avg_ttl={left_ms},subexpiry={timed}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_written_for_people() {
        for (bytes, text) in [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_572_864, "1.50M")] {
            assert_eq!(human(bytes), text);
        }
    }
}
