//! What monitors get over HTTP: the figures of `stats` and INFO, in a form that scrapers accept.

mod boards;
mod hostile;
mod page;

use larder_testkit::PATIENCE;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::web::{Page, Web};

/// Most series and most bytes of a scrape, with some twenty classes and thirty commands in use.
const SERIES_MAX: usize = 1_800;
const BYTES_MAX: usize = 256 << 10;

/// Metrics, and the keys of `stats` with the same value.
const STATS: &[(&str, &str)] = &[
    ("memcached_commands_total{command=\"get\",status=\"hit\"}", "get_hits"),
    ("memcached_commands_total{command=\"get\",status=\"miss\"}", "get_misses"),
    ("memcached_commands_total{command=\"delete\",status=\"hit\"}", "delete_hits"),
    ("memcached_commands_total{command=\"delete\",status=\"miss\"}", "delete_misses"),
    ("memcached_commands_total{command=\"incr\",status=\"hit\"}", "incr_hits"),
    ("memcached_commands_total{command=\"incr\",status=\"miss\"}", "incr_misses"),
    ("memcached_commands_total{command=\"cas\",status=\"hit\"}", "cas_hits"),
    ("memcached_commands_total{command=\"cas\",status=\"badval\"}", "cas_badval"),
    ("memcached_commands_total{command=\"touch\",status=\"hit\"}", "touch_hits"),
    ("memcached_commands_total{command=\"flush\",status=\"hit\"}", "cmd_flush"),
    ("memcached_current_items", "curr_items"),
    ("memcached_current_bytes", "bytes"),
    ("memcached_items_total", "total_items"),
    ("memcached_items_evicted_total", "evictions"),
    ("memcached_items_reclaimed_total", "reclaimed"),
    ("memcached_limit_bytes", "limit_maxbytes"),
    ("memcached_max_connections", "max_connections"),
    ("memcached_current_connections", "curr_connections"),
    ("memcached_connections_total", "total_connections"),
    ("memcached_connections_rejected_total", "rejected_connections"),
    ("memcached_accepting_connections", "accepting_conns"),
    ("memcached_item_too_large_total", "store_too_large"),
    ("memcached_item_no_memory_total", "store_no_memory"),
    ("larder_index_bytes", "hash_bytes"),
    ("larder_spans_moved_total", "slabs_moved"),
    ("larder_evicted_unread_total", "evicted_unfetched"),
];

/// Metrics of each class, and the ends of the keys in `stats slabs` or `stats items` with the same value.
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
];

/// Metrics, and the fields of INFO with the same value.
const INFO: &[(&str, &str)] = &[
    ("redis_db_keys{db=\"db0\"}", "db0.keys"),
    ("redis_db_keys{db=\"db3\"}", "db3.keys"),
    ("redis_db_keys_expiring{db=\"db0\"}", "db0.expires"),
    ("redis_db_keys_expiring{db=\"db3\"}", "db3.expires"),
    ("redis_keyspace_hits_total", "keyspace_hits"),
    ("redis_keyspace_misses_total", "keyspace_misses"),
    ("redis_expired_keys_total", "expired_keys"),
    ("redis_evicted_keys_total", "evicted_keys"),
    ("redis_memory_max_bytes", "maxmemory"),
    ("redis_config_maxclients", "maxclients"),
    ("redis_connected_clients", "connected_clients"),
    ("redis_blocked_clients", "blocked_clients"),
    ("redis_connections_received_total", "total_connections_received"),
    ("redis_rejected_connections_total", "rejected_connections"),
    ("redis_total_error_replies", "total_error_replies"),
    ("redis_pubsub_channels", "pubsub_channels"),
    ("redis_pubsub_patterns", "pubsub_patterns"),
    ("redis_process_id", "process_id"),
    ("redis_io_threads_active", "io_threads_active"),
    ("redis_slowlog_length", "slowlog_len"),
    ("redis_commands_total{cmd=\"set\"}", "cmdstat_set.calls"),
    ("redis_commands_failed_calls_total{cmd=\"incr\"}", "cmdstat_incr.failed_calls"),
    ("redis_errors_total{err=\"WRONGTYPE\"}", "errorstat_WRONGTYPE.count"),
];

/// Sends a few requests of many kinds, by both protocols.
fn fill(web: &Web) {
    let mut text = web.text();
    for bytes in [50, 5_000, 50_000] {
        for n in 0..60 {
            assert_eq!(
                text.ask(&format!("set k{bytes}:{n} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes))),
                "STORED\r\n"
            );
        }
    }
    for n in 0..10 {
        for line in [
            format!("delete k50:{n}"),
            format!("touch k50:1{n} 1000"),
            "delete none".into(),
            "incr none 1".into(),
        ] {
            text.ask(&format!("{line}\r\n"));
        }
        text.until(&format!("get k50:2{n} none{n}\r\n"), "END\r\n");
    }
    for line in
        ["set n 0 0 1\r\n1", "incr n 5", "cas n 0 0 1 1\r\n1", "cas none 0 0 1 1\r\n1", "flush_all 100000"]
    {
        text.ask(&format!("{line}\r\n"));
    }
    let mut redis = web.redis();
    for n in 0..20 {
        redis.ask(&format!("SET r{n} v EX 1000\r\n"));
        redis.until(&format!("GET r{n}\r\n"), "v\r\n");
        redis.ask(&format!("GET none{n}\r\n"));
    }
    assert!(redis.ask("INCR r1\r\n").starts_with("-ERR"));
    redis.ask("LPUSH list 1\r\n");
    assert!(redis.ask("INCR list\r\n").starts_with("-WRONGTYPE"));
    redis.ask("SELECT 3\r\n");
    redis.ask("SET other 1\r\n");
}

/// Compares both sides until they no longer change and are equal.
fn compare(web: &Web) {
    let (mut text, mut redis) = (web.text(), web.redis());
    let began = Instant::now();
    loop {
        let stats = text.stats();
        let info = redis.info();
        let page = web.metrics("");
        let mut differ = differing(&stats, &info, &page);
        if differ.is_empty() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{differ:#?}");
        differ.clear();
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn differing(stats: &BTreeMap<String, f64>, info: &BTreeMap<String, f64>, page: &Page) -> Vec<String> {
    let mut differ = Vec::new();
    let mut hold = |metric: &str, expected: Option<&f64>, what: &str| {
        let found = page.series.get(metric);
        if found.is_none() || found != expected {
            differ.push(format!("{metric}: {found:?}, {what}: {expected:?}"));
        }
    };
    STATS.iter().for_each(|(metric, key)| hold(metric, stats.get(*key), key));
    INFO.iter().for_each(|(metric, field)| hold(metric, info.get(*field), field));
    let classes: Vec<&str> = stats.keys().filter_map(|key| key.strip_suffix(":chunk_size")).collect();
    assert!(classes.len() > 2, "{classes:?}");
    for class in classes {
        for (metric, key) in OF_CLASS {
            let of_items = stats.get(&format!("items:{class}{key}"));
            // A class that has only pieces of large values, or only their heads, has no items of its own.
            if let Some(expected) = stats.get(&format!("{class}{key}")).or(of_items) {
                hold(&format!("{metric}{{slab=\"{class}\"}}"), Some(expected), key);
            }
        }
    }
    differ
}

#[test]
fn metrics_are_the_figures_of_stats_and_info() {
    let web = Web::start(&["-t", "2"]);
    fill(&web);
    compare(&web);
    let page = web.metrics("");
    assert!(
        page.series.len() <= SERIES_MAX && page.bytes <= BYTES_MAX,
        "{} series, {} bytes",
        page.series.len(),
        page.bytes
    );
    for name in EXPORTERS_COUNTERS {
        assert_eq!(page.kinds[name], "counter", "the exporter says so");
    }
    assert_eq!(page.kinds["redis_total_error_replies"], "counter");
    let instance =
        page.series.keys().find(|name| name.starts_with("redis_instance_info{")).expect("what it is");
    for label in ["role=\"master\"", "redis_mode=\"standalone\"", "maxmemory_policy=\"allkeys-lru\""] {
        assert!(instance.contains(label), "{instance}");
    }
    assert!(page.series["redis_commands_total{cmd=\"set\"}"] >= 21.0);
}

#[test]
fn a_reset_is_seen_by_clients_and_not_by_scrapers() {
    let web = Web::start(&["-t", "2"]);
    fill(&web);
    let before = web.metrics("");
    assert_eq!(web.text().ask("stats reset\r\n"), "RESET\r\n");
    let (stats, info) = (web.text().stats(), web.redis().info());
    assert_eq!(
        (stats["get_hits"], stats["cmd_set"], stats["total_items"], info["keyspace_hits"]),
        (0.0, 0.0, 0.0, 0.0)
    );
    assert!(!info.contains_key("errorstat_WRONGTYPE.count") && !info.contains_key("cmdstat_set.calls"));
    assert!(stats["curr_items"] > 0.0, "what is there stays");
    let after = web.metrics("");
    for (series, value) in &before.series {
        let name = series.split('{').next().unwrap_or(series);
        // A histogram's series have other names than its family, and may not fall either.
        if before.kinds.get(name).is_none_or(|kind| kind != "gauge") && !EXPORTERS_COUNTERS.contains(&name) {
            assert!(after.series.get(series).is_some_and(|now| now >= value), "{series} fell");
        }
    }
    assert!(after.series["memcached_commands_total{command=\"get\",status=\"hit\"}"] >= 10.0);
}

#[test]
fn a_scraper_is_told_what_it_asks_for() {
    let web = Web::start(&["-t", "1"]);
    fill(&web);
    let of = |query: &str, family: &str| {
        let page = web.metrics(query);
        page.series.keys().filter(|name| name.starts_with(family)).count()
    };
    let other = "larder_exposition_truncated";
    let page = web.metrics("?family=redis");
    assert!(page.series.keys().all(|name| name.starts_with("redis_") || name == other));
    assert!(of("?family=memcached", "memcached_slab_") > 20);
    assert_eq!(of("?family=memcached&classes=none", "memcached_slab_"), 0);
    assert!(of("?family=larder&classes=larder", "larder_class_") > 20);
    assert_eq!(of("", "larder_class_"), 0);
    assert!(web.get("/metrics?family=nobody").starts_with("HTTP/1.1 400 "));
}

#[test]
fn every_place_answers_and_the_data_is_json() {
    let web = Web::start(&["-t", "1"]);
    fill(&web);
    assert!(web.get("/api/v1").contains("/api/v1/now"));
    assert!(web.get("/healthz").ends_with("\r\n\r\nok\n"));
    assert!(web.get("/nowhere").starts_with("HTTP/1.1 404 "));
    let of = |path: &str| -> serde_json::Value {
        let answer = web.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Type: application/json"),
            "{head}"
        );
        serde_json::from_str(body).expect("JSON")
    };
    let stats = web.text().stats();
    assert_eq!(of("/api/v1/now")["figures"]["items"].as_f64(), stats.get("curr_items").copied());
    let figures = of("/api/v1/figures");
    let items = figures["figures"].as_array().expect("a list").iter().find(|one| one["name"] == "items");
    assert_eq!(items.expect("items")["kind"], "gauge");
    assert!(of("/api/v1/classes")["classes"].as_array().is_some_and(|classes| classes.len() > 2));
    // Commands that may take long are always measured, others only in some receives.
    web.redis().until("INFO server\r\n", "\r\n\r\n");
    let mut text = web.text();
    (0..200).for_each(|_| assert_eq!(text.ask("touch none 1000\r\n"), "NOT_FOUND\r\n"));
    drop(text);
    let commands = of("/api/v1/commands");
    let called = |name: &str, what: &str| commands["commands"][name][what].as_u64().expect("a number");
    assert_eq!(called("set", "calls"), 21);
    assert!(called("set", "measured_calls") <= 21);
    assert_eq!((called("info", "calls"), called("info", "measured_calls")), (1, 1));
    // For memcached one receive in sixteen is measured: some 13 of these and of the ten in `fill`.
    let touches = &commands["memcached"]["touch"];
    let of_touches = |what: &str| touches[what].as_u64().expect("a number");
    assert!((5..=30).contains(&of_touches("measured_calls")), "{touches}");
    assert!(of_touches("p50_usec") <= of_touches("p99_usec"), "{touches}");
    let page = web.metrics("?family=larder");
    let count = page.series["larder_memcached_command_seconds_count{command=\"touch\"}"];
    assert_eq!(count, of_touches("measured_calls") as f64);
    assert_eq!(of("/api/v1/settings")["settings"]["num_threads"], "1");
    let mut talks: Vec<_> = (0..5).map(|_| web.text()).collect();
    // A connection counts once it has got a reply.
    talks.iter_mut().for_each(|talk| assert_eq!(talk.ask("mn\r\n"), "MN\r\n"));
    let all = of("/api/v1/connections?max=1000");
    let first = of("/api/v1/connections?max=2");
    assert_eq!(first["connections"].as_array().map(Vec::len), Some(2));
    assert!(first["next"].is_u64() && all["next"].is_null(), "{first} {all}");
    for bad in ["from=x", "max=-1", "from=1%"] {
        assert!(web.get(&format!("/api/v1/connections?{bad}")).starts_with("HTTP/1.1 400 "), "{bad}");
    }
    assert!(of("/api/v1/connections?from=18446744073709551615")["next"].is_null());
}

#[test]
fn a_finding_is_told_everywhere_as_long_as_it_holds() {
    let web = Web::start(&["-t", "1", "-c", "20"]);
    let finding = "larder_finding{rule=\"connections-near\",severity=\"warning\"}";
    assert_eq!(web.metrics("").series[finding], 0.0);
    let mut talks: Vec<_> = (0..18).map(|_| web.text()).collect();
    // A connection counts once it has got a reply.
    talks.iter_mut().for_each(|talk| assert_eq!(talk.ask("mn\r\n"), "MN\r\n"));
    let said = talks[0].until("stats doctor\r\n", "END\r\n");
    assert!(said.contains("STAT connections-near:evidence 18 of 20 connections are open\r\n"), "{said}");
    assert!(
        said.contains("STAT connections-near:severity warning\r\nSTAT connections-near:evidence "),
        "{said}"
    );
    assert_eq!(web.metrics("").series[finding], 1.0);
    assert!(web.get("/api/v1/findings").contains("\"rule\":\"connections-near\""));
    let (code, said) = web.doctor(&[]);
    assert!(
        code == Some(2) && said.contains(" of 20 connections are open (connections-near)"),
        "{code:?} {said}"
    );
    let (code, said) = web.doctor_by("redis://", &[]);
    assert!(
        code == Some(2) && said.contains(" of 20 connections are open (connections-near)"),
        "{code:?} {said}"
    );
    let (code, said) = web.doctor(&["--json"]);
    assert!(code == Some(2) && said.contains("\"rule\": \"connections-near\""), "{code:?} {said}");
    assert!(web.redis().until("MEMORY DOCTOR\r\n", "\r\n").starts_with('$'));
    talks.clear();
    let began = Instant::now();
    while web.metrics("").series[finding] > 0.0 {
        assert!(began.elapsed() < PATIENCE, "nobody is connected");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_screen_says_what_a_server_does_in_either_protocol() {
    let web = Web::start(&["-t", "1"]);
    fill(&web);
    let stats = web.text().stats();
    let (items, item_bytes) = (stats["curr_items"], stats["bytes"]);
    for scheme in ["", "memcached://", "redis://"] {
        let (code, said) = web.top(scheme, &["--json"]);
        let told: serde_json::Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!((code, told["figures"]["items"].as_f64()), (Some(0), Some(items)), "{scheme}: {said}");
        // The figure includes all that counts against the limit: threads take more than this beside the
        // items.
        let used = told["figures"]["memory_bytes"].as_f64();
        assert!(used.is_some_and(|used| used > item_bytes + f64::from(256 << 10)), "{scheme}: {said}");
        let (code, said) = web.top(scheme, &["--once", "--show", "connections"]);
        assert!(code == Some(0) && said.starts_with("larder") && said.contains("| 127.0.0.1 |"), "{said}");
    }
    let (_, classes) = web.top("", &["--once", "--show", "classes"]);
    assert!(classes.contains("| chunk bytes |") && classes.lines().count() > 8, "{classes}");
    let (_, commands) = web.top("redis://", &["--once", "--show", "commands"]);
    assert!(commands.lines().any(|line| line.starts_with("| set ") && line.contains(" 21 |")), "{commands}");
    let (_, findings) = web.top("", &["--once", "--show", "findings"]);
    // Findings about a busy machine are correct here.
    let machines = ["(cpu-starved)", "(stalls)", "(slow-clock)", "(swapping)"];
    let told = || {
        findings
            .lines()
            .filter(|line| ["note: ", "warning: ", "serious: "].iter().any(|at| line.starts_with(at)))
    };
    assert!(
        findings.ends_with("nothing to say: all is well\n")
            || told().count() > 0 && told().all(|line| machines.iter().any(|rule| line.ends_with(rule))),
        "{findings}"
    );
    // `larder top` does not connect by HTTP: this is a wrong command line.
    assert_eq!(web.top("http://", &["--once"]).0, Some(64));
}

#[test]
fn what_there_is_of_each_type_is_told_alike_wherever_it_is() {
    let web = Web::start(&["-t", "1"]);
    let (mut redis, mut text) = (web.redis(), web.text());
    for line in ["SET s string", "SADD set a b c", "HSET hash f v"] {
        redis.ask(&format!("{line}\r\n"));
    }
    // The largest string is known after some were seen.
    let began = Instant::now();
    let stats = loop {
        let stats = text.until("stats types\r\n", "END\r\n");
        if stats.contains("STAT string:largest_bytes ") {
            break stats;
        }
        assert!(began.elapsed() < PATIENCE, "{stats}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let of = |kind: &str, what: &str| -> Option<f64> {
        let name = format!("STAT {kind}:{what} ");
        stats.lines().find_map(|line| line.strip_prefix(&name)).map(|value| value.parse().expect("a number"))
    };
    let series = web.metrics("?family=larder").series;
    let ages = page::json(&web, "/api/v1/ages");
    let rows = ages["types"].as_array().expect("a list");
    assert_eq!(rows.len(), 3, "{ages}");
    for (kind, elements) in [("string", 1.0), ("set", 3.0), ("hash", 1.0)] {
        assert_eq!((of(kind, "items"), of(kind, "elements")), (Some(1.0), Some(elements)), "{kind}");
        let row = rows.iter().find(|row| row["type"] == kind).expect("a row");
        for what in ["items", "elements", "bytes", "largest_bytes", "most_elements"] {
            let expected = of(kind, what);
            assert_eq!(row[what].as_f64(), expected, "{kind}: {what}");
            let metric = format!("larder_type_{what}{{type=\"{kind}\"}}");
            assert_eq!(series.get(&metric).copied(), expected, "{metric}");
        }
    }
}

#[test]
fn what_workers_take_and_what_holds_them_up_is_told() {
    let web = Web::start(&["-t", "2", "-L", "-f", "1.5"]);
    let mut text = web.text();
    let began = Instant::now();
    let page = loop {
        // One receive has four requests, and the next has one.
        for _ in 0..20 {
            text.until(&("get a b c\r\n".to_owned() + "get d\r\n"), "END\r\nEND\r\n");
            text.until("get e\r\n", "END\r\n");
        }
        let page = web.metrics("");
        if page.series["larder_requests_per_receive_count"] >= 100.0 {
            break page;
        }
        assert!(began.elapsed() < PATIENCE, "turns are timed ten times a second");
    };
    let receives = |most: &str| page.series[&format!("larder_requests_per_receive_bucket{{le=\"{most}\"}}")];
    let all = page.series["larder_requests_per_receive_count"];
    assert!(receives("1") > 0.0 && receives("2") == receives("1"), "one, or four");
    assert!(receives("4") == all && receives("1") < all);
    let sum = receives("1") + 4.0 * (all - receives("1"));
    assert_eq!(page.series["larder_requests_per_receive_sum"], sum);
    assert!(page.series["larder_turn_seconds_count"] > 0.0 && page.series["larder_turn_seconds_sum"] > 0.0);
    assert!(page.series["larder_upkeep_seconds_total"] > 0.0);
    for worker in 0..2 {
        let of =
            |what: &str| page.series[&format!("larder_worker_{what}_seconds_total{{worker=\"{worker}\"}}")];
        assert!(of("cpu") > 0.0 && of("run_delay") >= 0.0, "{worker}");
    }
    // Upkeep is due within a quarter of a second, whatever clients do.
    let told = || {
        let series = web.metrics("").series;
        ["stalls_total", "stalls_by_cause_total{cause=", "stall_seconds_total{cause="].map(|what| {
            let of = series.iter().filter(|(name, _)| name.starts_with(&format!("larder_{what}")));
            of.map(|(_, value)| value).sum::<f64>()
        })
    };
    let [stalls, by_cause, seconds] = told();
    web.stop_for(Duration::from_millis(600));
    let began = Instant::now();
    loop {
        let now = told();
        if now[0] > stalls && now[1] > by_cause && now[2] > seconds + 0.1 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it stood for 600 ms: {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, said) = web.doctor(&[]);
    assert!(code.is_some_and(|code| code > 0), "{said}");
    assert!(said.contains("without effect: --enable-largepages (memory is in "), "{said}");
    assert!(said.contains("), --slab-growth-factor (") && said.contains("(ineffective-option)"), "{said}");
}

/// Gauges that the exporter whose names they have calls counters.
const EXPORTERS_COUNTERS: [&str; 2] =
    ["memcached_slab_items_evicted_time_seconds", "memcached_slab_mem_requested_bytes"];

/// Prometheus' own parser. Its remarks on names that the exporters chose are ignored.
#[test]
#[ignore = "peers: promtool"]
fn promtool_reads_what_is_told() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = command.spawn().expect("promtool is installed (Debian's package prometheus has it)");
    let web = Web::start(&["-t", "2"]);
    fill(&web);
    let answer = web.get("/metrics?classes=larder");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    promtool.stdin.take().expect("a pipe").write_all(body.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("it ends");
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    // Exit code 3: promtool could read everything, and has a remark on style.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {said}", output.status);
    let own = said.lines().filter(|line| line.starts_with("larder_") || line.starts_with("process_"));
    let own: Vec<&str> = own.collect();
    assert!(own.is_empty(), "{own:#?}");
}

#[test]
fn two_servers_beside_each_other_share_no_port() {
    let first = Web::start(&[]);
    let port = first.port.to_string();
    let refused = larder_testkit::process::Server::refused(
        &larder_testkit::process::Program::Larder,
        &["--http-port", &port],
    );
    let (status, said) = refused.expect("it was asked for");
    assert!(!status.success() && said.contains("in use"), "{said}");
}
