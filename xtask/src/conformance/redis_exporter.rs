//! redis_exporter: its metrics equal the figures of INFO, and those of `/metrics` series by series.

use super::namespace::Namespace;
use super::suites::check;
use super::{Counts, Program, series};
use crate::install::debian;
use crate::run::Outcome;
use std::collections::HashMap;

/// Makes some of everything that is counted: keys in two databases, hits, misses, errors, expiries.
pub const FILL: &str = r#"
use IO::Socket::INET; my $s = IO::Socket::INET->new('127.0.0.1:6379') or die;
sub ask { my ($line) = @_; print $s "$line\r\n"; my $reply = <$s>;
    if ($reply =~ /^\$(\d+)/) { read $s, my $body, $1 + 2 } return $reply }
for my $i (0..299) { ask("SET k$i " . 'v' x 100) eq "+OK\r\n" or die }
for my $i (0..99) { ask("EXPIRE k$i 1000"); ask("GET k$i"); ask("GET none$i") }
ask("SET short 1 PX 1"); select(undef, undef, undef, 0.02); ask("GET short");
ask("NOSUCH"); ask("INCR k1"); ask("SELECT 3"); ask("SET other 1");
ask("CONFIG SET slowlog-log-slower-than 1000000");
"#;

/// Waits until the exporter has figures of the server, and prints its metrics.
const SCRAPE: &str = r#"
use HTTP::Tiny;
for (1..12000) { my $r = HTTP::Tiny->new->get('http://127.0.0.1:9121/metrics');
    if ($r->{success} && $r->{content} =~ /^redis_up 1$/m) { print $r->{content}; exit 0 }
    select(undef, undef, undef, 0.05) }
die "the exporter does not answer";
"#;

/// Metrics and the field of INFO that each must be.
const FIGURES: &[(&str, &str)] = &[
    ("redis_db_keys{db=\"db0\"}", "db0.keys"),
    ("redis_db_keys{db=\"db3\"}", "db3.keys"),
    ("redis_db_keys_expiring{db=\"db0\"}", "db0.expires"),
    ("redis_db_keys_expiring{db=\"db3\"}", "db3.expires"),
    ("redis_keyspace_hits_total", "keyspace_hits"),
    ("redis_keyspace_misses_total", "keyspace_misses"),
    ("redis_expired_keys_total", "expired_keys"),
    ("redis_evicted_keys_total", "evicted_keys"),
    ("redis_memory_max_bytes", "maxmemory"),
    ("redis_config_maxmemory", "maxmemory"),
    ("redis_config_maxclients", "maxclients"),
    ("redis_blocked_clients", "blocked_clients"),
    ("redis_rejected_connections_total", "rejected_connections"),
    ("redis_pubsub_channels", "pubsub_channels"),
    ("redis_pubsub_patterns", "pubsub_patterns"),
    ("redis_process_id", "process_id"),
    ("redis_connected_slaves", "connected_slaves"),
    ("redis_loading_dump_file", "loading"),
    ("redis_cluster_enabled", "cluster_enabled"),
    ("redis_aof_enabled", "aof_enabled"),
    ("redis_rdb_bgsave_in_progress", "rdb_bgsave_in_progress"),
    ("redis_rdb_changes_since_last_save", "rdb_changes_since_last_save"),
    ("redis_master_repl_offset", "master_repl_offset"),
    ("redis_tracking_clients", "tracking_clients"),
    ("redis_latest_fork_seconds", "latest_fork_usec"),
    ("redis_io_threads_active", "io_threads_active"),
];

/// Metrics that each new connection changes: more than 0, and less than 20 from INFO's.
const MOVING: &[(&str, &str)] = &[
    ("redis_commands_processed_total", "total_commands_processed"),
    ("redis_connections_received_total", "total_connections_received"),
    ("redis_connected_clients", "connected_clients"),
];

/// Series that the exporter and `/metrics` have both, at least.
const SERIES_LEAST: usize = 40;

/// Runs the suite.
pub fn suite(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("prometheus-redis-exporter", "prometheus-redis-exporter"), ("redis-cli", "redis-tools")])?;
    let with_http = series::with_http(program);
    let _server = namespace.serve(with_http.as_ref().unwrap_or(program), &["-t", "2"])?;
    let perl = |script: &str| namespace.output("perl", &["-e", script]);
    perl(FILL)?;
    let options = ["-redis.addr=redis://127.0.0.1:6379", "-web.listen-address=127.0.0.1:9121"];
    let _exporter = namespace.background("prometheus-redis-exporter", &options)?;
    let text = perl(SCRAPE)?;
    let metrics: HashMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    let info = figures(&namespace.output("redis-cli", &["info", "everything"])?);
    let mut passed = 0;
    for (metric, field) in FIGURES {
        let (found, expected) = (metrics.get(metric), info.get(*field));
        let holds = expected.is_some() && found == expected;
        check(&format!("{metric}: {found:?}, {field}: {expected:?}"), holds, &text)?;
        passed += 1;
    }
    for (metric, field) in MOVING {
        let (found, expected) = (metrics.get(metric), info.get(*field));
        let holds = found.zip(expected).is_some_and(|(found, expected)| (expected - found).abs() < 20.0);
        check(&format!("{metric}: {found:?}, {field}: {expected:?}"), holds && found > Some(&0.0), &text)?;
        passed += 1;
    }
    let named = text.contains("redis_mode=\"standalone\"") && text.contains("role=\"master\"");
    check("redis_instance_info", named && metrics.get("redis_db_keys{db=\"db0\"}") == Some(&300.0), &text)?;
    passed += 1;
    if with_http.is_some() {
        series::compare(namespace, "http://127.0.0.1:9121/metrics", "redis_", SERIES_LEAST)?;
        passed += 1;
    }
    Ok(Counts { passed, skipped: 0 })
}

/// INFO's numbers; those of a keyspace's line under `db0.keys` and so on.
fn figures(text: &str) -> HashMap<String, f64> {
    let mut figures = HashMap::new();
    for (name, value) in text.lines().filter_map(|line| line.trim_end().split_once(':')) {
        if let Ok(value) = value.parse() {
            figures.insert(name.to_owned(), value);
        }
        for (part, value) in value.split(',').filter_map(|pair| pair.split_once('=')) {
            if let Ok(value) = value.parse() {
                figures.insert(format!("{name}.{part}"), value);
            }
        }
    }
    figures
}
