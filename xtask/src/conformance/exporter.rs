//! Prometheus' memcached_exporter scrapes the server: its figures equal those of `stats`, and each series that of `/metrics`.

use super::namespace::Namespace;
use super::suites::{check, go, go_home};
use super::{Counts, Program, series};
use crate::run::{Outcome, run};
use std::collections::HashMap;

const EXPORTER: &str = "github.com/prometheus/memcached_exporter@v0.16.0";
const PACKAGE: &str = "github.com/prometheus/memcached_exporter/cmd/memcached_exporter";

/// Stores and asks for a bit of everything: values of three sizes, one of them in pieces.
pub const FILL: &str = r#"
use IO::Socket::INET; use Socket qw(IPPROTO_TCP TCP_NODELAY);
my $s = IO::Socket::INET->new('127.0.0.1:11211') or die;
# Without it the end of each long value waits 40 ms for the system's acknowledgement of what is before it.
setsockopt($s, IPPROTO_TCP, TCP_NODELAY, 1) or die;
sub ask { my ($line) = @_; print $s "$line\r\n"; my $reply = <$s>; return $reply }
for my $i (0..99) { for my $bytes (50, 5000, 50000) {
    my $reply = ask("set k$bytes:$i 0 0 $bytes\r\n" . 'v' x $bytes); die $reply unless $reply eq "STORED\r\n" } }
for my $i (0..9) { ask("delete k50:$i"); ask("get none$i"); ask("touch k50:1$i 1000"); ask("incr none 1"); }
for my $i (0..6) { print $s "get k50:2$i\r\n"; while (<$s>) { last if /^END/ } }
ask("set n 0 0 1\r\n1"); ask("incr n 5"); ask("decr n 2"); ask("touch none 1"); ask("delete none");
ask("cas n 0 0 1 1\r\n1"); ask("cas none 0 0 1 1\r\n1"); ask("flush_all 1000");
"#;

/// Waits until the memory of deleted and overwritten values is free, and no longer counted.
const REST: &str = r#"
use IO::Socket::INET; my $s = IO::Socket::INET->new('127.0.0.1:11211') or die;
my ($last, $alike) = (-1, 0);
for (1..6000) { my $bytes; print $s "stats\r\n";
    while (<$s>) { last if /^END/; $bytes = $1 if /^STAT bytes (\d+)/ }
    $alike = $bytes == $last ? $alike + 1 : 0; $last = $bytes;
    exit 0 if $alike == 5; select(undef, undef, undef, 0.1) }
die "the bytes of items do not come to rest";
"#;

/// Prints all of `stats`, `stats settings`, `stats slabs`, `stats items`.
const STATS: &str = r#"
use IO::Socket::INET; my $s = IO::Socket::INET->new('127.0.0.1:11211') or die;
for my $of ('', ' settings', ' slabs', ' items') {
    print $s "stats$of\r\n"; while (<$s>) { last if /^END/; print $_ } }
"#;

/// Waits until the exporter answers, and prints its metrics.
const SCRAPE: &str = r#"
use HTTP::Tiny;
for (1..12000) { my $r = HTTP::Tiny->new->get('http://127.0.0.1:9151/metrics');
    if ($r->{success}) { print $r->{content}; exit 0 } select(undef, undef, undef, 0.05) }
die "the exporter does not answer";
"#;

/// Metrics and the statistics they come from. Connections and bytes are left out, since the exporter's own count among them.
const GENERAL: &[(&str, &str)] = &[
    ("memcached_up", ""),
    ("memcached_commands_total{command=\"get\",status=\"hit\"}", "get_hits"),
    ("memcached_commands_total{command=\"get\",status=\"miss\"}", "get_misses"),
    ("memcached_commands_total{command=\"delete\",status=\"hit\"}", "delete_hits"),
    ("memcached_commands_total{command=\"delete\",status=\"miss\"}", "delete_misses"),
    ("memcached_commands_total{command=\"incr\",status=\"hit\"}", "incr_hits"),
    ("memcached_commands_total{command=\"incr\",status=\"miss\"}", "incr_misses"),
    ("memcached_commands_total{command=\"decr\",status=\"hit\"}", "decr_hits"),
    ("memcached_commands_total{command=\"decr\",status=\"miss\"}", "decr_misses"),
    ("memcached_commands_total{command=\"cas\",status=\"hit\"}", "cas_hits"),
    ("memcached_commands_total{command=\"cas\",status=\"miss\"}", "cas_misses"),
    ("memcached_commands_total{command=\"cas\",status=\"badval\"}", "cas_badval"),
    ("memcached_commands_total{command=\"touch\",status=\"hit\"}", "touch_hits"),
    ("memcached_commands_total{command=\"touch\",status=\"miss\"}", "touch_misses"),
    ("memcached_commands_total{command=\"flush\",status=\"hit\"}", "cmd_flush"),
    ("memcached_current_items", "curr_items"),
    ("memcached_current_bytes", "bytes"),
    ("memcached_items_total", "total_items"),
    ("memcached_items_evicted_total", "evictions"),
    ("memcached_items_reclaimed_total", "reclaimed"),
    ("memcached_limit_bytes", "limit_maxbytes"),
    ("memcached_max_connections", "max_connections"),
    ("memcached_malloced_bytes", "total_malloced"),
    ("memcached_accepting_connections", "accepting_conns"),
    ("memcached_connections_rejected_total", "rejected_connections"),
    ("memcached_lru_crawler_hot_percent", "hot_lru_pct"),
    ("memcached_lru_crawler_warm_percent", "warm_lru_pct"),
];

/// Metrics of each class, and what follows the class's number in `stats slabs` or `stats items`.
const OF_CLASS: &[(&str, &str)] = &[
    ("memcached_slab_chunk_size_bytes", ":chunk_size"),
    ("memcached_slab_chunks_per_page", ":chunks_per_page"),
    ("memcached_slab_current_pages", ":total_pages"),
    ("memcached_slab_current_chunks", ":total_chunks"),
    ("memcached_slab_chunks_used", ":used_chunks"),
    ("memcached_slab_chunks_free", ":free_chunks"),
    ("memcached_slab_current_items", ":number"),
    ("memcached_slab_mem_requested_bytes", ":mem_requested"),
    ("memcached_slab_items_evicted_total", ":evicted"),
    ("memcached_slab_items_reclaimed_total", ":reclaimed"),
    ("memcached_slab_items_outofmemory_total", ":outofmemory"),
];

/// Series that the exporter and `/metrics` have both, at least: the general ones, and those of four classes.
const SERIES_LEAST: usize = 60;

/// Runs the suite.
pub fn suite(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let home = go_home()?;
    run(go(&home, &["get", EXPORTER]))?;
    let exporter = home.join("memcached_exporter");
    run(go(&home, &["build", "-o", &exporter.to_string_lossy(), PACKAGE]))?;
    let with_http = series::with_http(program);
    let _server = namespace.serve(with_http.as_ref().unwrap_or(program), &[])?;
    let perl = |script: &str| namespace.output("perl", &["-e", script]);
    perl(FILL)?;
    perl(REST)?;
    let options =
        ["--memcached.address=127.0.0.1:11211", "--web.listen-address=127.0.0.1:9151", "--log.level=error"];
    let _exporter = namespace.background(&exporter, &options)?;
    let metrics_text = perl(SCRAPE)?;
    let metrics: HashMap<&str, f64> = metrics_text
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    let stats_text = perl(STATS)?;
    let stats: HashMap<&str, f64> = stats_text
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.trim_end().parse().ok()?)))
        .collect();
    let mut agreed = 0;
    let mut compare = |metric: &str, expected: Option<&f64>| -> Outcome {
        let holds = expected.is_some() && metrics.get(metric) == expected;
        let found = metrics.get(metric);
        check(&format!("{metric}: {found:?}, expected {expected:?}"), holds, &metrics_text)?;
        agreed += 1;
        Ok(())
    };
    for (metric, stat) in GENERAL {
        compare(metric, if stat.is_empty() { Some(&1.0) } else { stats.get(stat) })?;
    }
    let classes = stats.keys().filter_map(|name| name.strip_suffix(":chunk_size"));
    for class in classes {
        for (metric, key) in OF_CLASS {
            let of_items = stats.get(format!("items:{class}{key}").as_str());
            // A class that holds pieces only, or heads, has no items of its own.
            let Some(expected) = stats.get(format!("{class}{key}").as_str()).or(of_items) else { continue };
            compare(&format!("{metric}{{slab=\"{class}\"}}"), Some(expected))?;
        }
    }
    if with_http.is_some() {
        series::compare(namespace, "http://127.0.0.1:9151/metrics", "memcached_", SERIES_LEAST)?;
        agreed += 1;
    }
    Ok(Counts { passed: agreed, skipped: 0 })
}
