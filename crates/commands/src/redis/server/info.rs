//! INFO: figures of the server, in Redis's sections and under its names.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_protocol::resp::Args;
use larder_store::{DATABASES, Totals};

use super::config::{memory_limit, policy};
use crate::core::counters::Counter;
use crate::core::figures::{Figures, row_sums};
use crate::redis::call::{Call, NAME_NS, few_names, is};
use crate::redis::connection::REDIS_VERSION;
use crate::redis::connection::client::Facts;
use crate::redis::fail::Done;
use crate::redis::keys::scan::Sample;
use crate::redis::reply::put_verbatim;
use crate::redis::table::in_use;

/// Sections in their order; those from `MORE` on only when asked for.
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
];
const MORE: usize = 11;

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

/// What it takes beside the look at some keys: figures of all workers, and of the system.
const INFO_NS: u64 = 60_000;

/// INFO
pub(crate) fn info(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    let (mut wanted, mut first) = ([false; SECTIONS.len()], if args.is_empty() { MORE } else { 0 });
    for word in args {
        match SECTIONS.iter().position(|name| is(word, name)) {
            Some(index) => wanted[index] = true,
            None if is(word, "all") || is(word, "everything") => first = SECTIONS.len(),
            None if is(word, "default") => first = first.max(MORE),
            None => {}
        }
    }
    wanted[..first].fill(true);
    let figures = Figures::gather(call.cx);
    call.spend(INFO_NS + args.len() as u64 * NAME_NS);
    let mut page = Page { text: String::new() };
    for (name, _) in SECTIONS.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
        match *name {
            "server" => server(call, &figures, &mut page),
            "clients" => clients(call, &figures, &mut page),
            "memory" => memory(call, &figures.totals, &mut page),
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
            _ => latencies(call, &mut page),
        }
    }
    put_verbatim(call.out, call.client.resp3, &page.text);
    Ok(())
}

fn server(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    let process = &figures.process;
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
    page.line("process_id", process.pid);
    page.line("run_id", format_args!("{:040x}", call.shared.run_id));
    page.line("tcp_port", call.client.facts.listen_address.rsplit(':').next().unwrap_or("0"));
    page.line("server_time_usec", call.cx.now() * 1000);
    page.line("uptime_in_seconds", process.uptime_s);
    page.line("uptime_in_days", process.uptime_s / 86_400);
    page.line("hz", 10);
    page.line("configured_hz", 10);
    page.line("lru_clock", figures.now_s & 0xff_ffff);
    page.line("executable", "larder");
    page.line("config_file", "");
    page.line("io_threads_active", u8::from(process.threads > 1));
}

fn clients(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    let process = &figures.process;
    let clients = call.shared.clients.list();
    page.section("Clients");
    page.line("connected_clients", process.connections.max(clients.len() as u64));
    page.line("cluster_connections", 0);
    page.line("maxclients", process.connections_max);
    let most = |of: fn(&Facts) -> &AtomicU64| clients.iter().map(|facts| of(facts).load(Relaxed)).max();
    page.line("client_recent_max_input_buffer", most(|facts| &facts.query_bytes).unwrap_or(0));
    page.line("client_recent_max_output_buffer", most(|facts| &facts.output_bytes).unwrap_or(0));
    let waiting = clients.iter().filter(|facts| facts.waits.load(Relaxed)).count();
    page.line("blocked_clients", waiting);
    page.line("tracking_clients", 0);
    let listening = clients.iter().filter(|facts| facts.listens());
    page.line("pubsub_clients", listening.count());
    let watching = clients.iter().filter(|facts| facts.watched.load(Relaxed) > 0);
    page.line("watching_clients", watching.count());
    page.line("clients_in_timeout_table", 0);
    let watched: u64 = clients.iter().map(|facts| u64::from(facts.watched.load(Relaxed))).sum();
    page.line("total_watched_keys", watched);
    page.line("total_blocking_keys", call.shared.waiters.keys());
    page.line("total_blocking_keys_on_nokey", 0);
}

/// `1.50M`, as people read it.
fn human(bytes: u64) -> String {
    let n = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.2}K", n / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", n / 1_048_576.0),
        _ => format!("{:.2}G", n / 1_073_741_824.0),
    }
}

fn memory(call: &Call<'_, '_, '_>, totals: &Totals, page: &mut Page) {
    let used = totals.used_bytes;
    let rss = resident_bytes().unwrap_or(used);
    page.section("Memory");
    page.line("used_memory", used);
    page.line("used_memory_human", human(used));
    page.line("used_memory_rss", rss);
    page.line("used_memory_rss_human", human(rss));
    let peak = call.shared.used_peak.load(Relaxed).max(used);
    page.line("used_memory_peak", peak);
    page.line("used_memory_peak_human", human(peak));
    page.line("used_memory_peak_perc", format_args!("{:.2}%", 100.0 * used as f64 / peak.max(1) as f64));
    page.line("used_memory_overhead", totals.index_bytes);
    page.line("used_memory_startup", 0);
    page.line("used_memory_dataset", totals.item_bytes);
    page.line(
        "used_memory_dataset_perc",
        format_args!("{:.2}%", 100.0 * totals.item_bytes as f64 / used.max(1) as f64),
    );
    page.line("allocator_allocated", used);
    page.line("allocator_active", used);
    page.line("allocator_resident", rss);
    let system = system_bytes().unwrap_or(0);
    page.line("total_system_memory", system);
    page.line("total_system_memory_human", human(system));
    page.line("used_memory_lua", 0);
    page.line("used_memory_vm_total", 0);
    page.line("used_memory_scripts", 0);
    page.line("number_of_cached_scripts", 0);
    let limit = memory_limit(call);
    page.line("maxmemory", limit);
    page.line("maxmemory_human", human(limit));
    page.line("maxmemory_policy", policy(call));
    page.line("mem_fragmentation_ratio", format_args!("{:.2}", rss as f64 / used.max(1) as f64));
    page.line("mem_fragmentation_bytes", rss.saturating_sub(used));
    page.line("mem_not_counted_for_evict", 0);
    page.line("mem_clients_slaves", 0);
    page.line("mem_clients_normal", totals.held_bytes);
    page.line("mem_aof_buffer", 0);
    page.line("mem_allocator", "larder");
    page.line("active_defrag_running", 0);
    page.line("lazyfree_pending_objects", 0);
    page.line("lazyfreed_objects", 0);
}

fn system_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

fn persistence(call: &Call<'_, '_, '_>, figures: &Figures, page: &mut Page) {
    page.section("Persistence");
    for name in ["loading", "async_loading", "current_cow_peak", "rdb_changes_since_last_save"] {
        page.line(name, 0);
    }
    page.line("rdb_bgsave_in_progress", 0);
    page.line("rdb_last_save_time", call.cx.shared.started_s(figures.now_s, figures.process.uptime_s));
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
    let Figures { process, sums, totals, .. } = figures;
    page.section("Stats");
    page.line("total_connections_received", process.connections_total);
    page.line("total_commands_processed", sums.of(Counter::RedisCommands));
    let [commands, bytes_in, bytes_out] = call.shared.rates.per_second();
    page.line("instantaneous_ops_per_sec", commands);
    page.line("total_net_input_bytes", sums.of(Counter::BytesRead));
    page.line("total_net_output_bytes", sums.of(Counter::BytesWritten));
    page.line("instantaneous_input_kbps", format_args!("{:.2}", bytes_in as f64 / 1024.0));
    page.line("instantaneous_output_kbps", format_args!("{:.2}", bytes_out as f64 / 1024.0));
    page.line("rejected_connections", process.connections_rejected);
    page.line(
        "expired_keys",
        totals.reclaimed + sums.of(Counter::GetExpired) + sums.of(Counter::RedisExpired),
    );
    page.line("expired_stale_perc", "0.00");
    page.line("expired_time_cap_reached_count", 0);
    page.line("evicted_keys", totals.evictions);
    let events_lost = call.cx.guard.store().events_lost() + call.cx.shared.telling.lost();
    page.line("keyspace_events_lost", events_lost);
    page.line("prefixes_missed", call.cx.shared.prefixes.missed());
    page.line("evicted_clients", sums.of(Counter::Shed));
    page.line("keyspace_hits", sums.of(Counter::GetHits) + sums.of(Counter::RedisHits));
    page.line("keyspace_misses", sums.of(Counter::GetMisses) + sums.of(Counter::RedisMisses));
    page.line("type_misses", sums.of(Counter::TypeMisses));
    let topics = &call.cx.shared.topics;
    page.line("pubsub_channels", topics.channels.channels());
    page.line("pubsub_patterns", topics.pattern_count());
    page.line("pubsubshard_channels", topics.shards.channels());
    page.line("client_query_buffer_limit_disconnections", sums.of(Counter::Crowded));
    page.line("request_timeouts", sums.of(Counter::Unfinished));
    page.line("client_output_buffer_limit_disconnections", figures.process.listeners_cut);
    page.line("store_taken_as_a_whole", call.cx.guard.store().whole_holds());
    page.line("latest_fork_usec", 0);
    page.line("total_forks", 0);
    page.line("migrate_cached_sockets", 0);
    page.line("active_defrag_running", 0);
    page.line("tracking_total_keys", 0);
    page.line("unexpected_error_replies", 0);
    page.line("total_error_replies", sums.of(Counter::RedisErrors));
    page.line("total_reads_processed", 0);
    page.line("total_writes_processed", 0);
    page.line("slowlog_len", call.shared.slowlog.len());
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
    page.line("used_cpu_sys", seconds(figures.process.system_us));
    page.line("used_cpu_user", seconds(figures.process.user_us));
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
    for (row, sum) in in_use(&row_sums(call.cx)) {
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
    for (row, sum) in in_use(&row_sums(call.cx)).filter(|(_, sum)| sum.measured > 0) {
        let parts: Vec<String> = percentiles
            .split_whitespace()
            .filter_map(|text| Some(format!("p{text}={}.000", sum.percentile_us(text.parse().ok()?))))
            .collect();
        page.line(&format!("latency_percentiles_usec_{}", row.name), parts.join(","));
    }
}

/// How many keys expire is counted among some thousand of them, and all of a small keyspace.
fn keyspace(call: &mut Call<'_, '_, '_>, page: &mut Page) {
    page.section("Keyspace");
    let sample = Sample::take(call);
    for db in 0..DATABASES {
        let keys = call.cx.guard.store().database_items(db);
        let at = usize::from(db);
        if keys > 0 {
            let expires = keys * sample.expiring[at] / sample.keys[at].max(1);
            let left_ms = sample.left_ms[at] / u128::from(sample.expiring[at].max(1));
            page.line(&format!("db{db}"), format_args!("keys={keys},expires={expires},avg_ttl={left_ms}"));
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
