//! The page's files, and the data that it draws: their headers, that the data are the server's figures, and
//! that they contain neither values nor hidden keys.

use larder_testkit::PATIENCE;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::web::Web;

const ASSETS: &[(&str, &str)] = &[
    ("/", "text/html; charset=utf-8"),
    ("/style.css", "text/css; charset=utf-8"),
    ("/app.js", "text/javascript; charset=utf-8"),
    ("/charts.js", "text/javascript; charset=utf-8"),
    ("/map.js", "text/javascript; charset=utf-8"),
    ("/forecast.js", "text/javascript; charset=utf-8"),
    ("/vendor/uPlot-1.6.32.js", "text/javascript; charset=utf-8"),
    ("/vendor/uPlot-1.6.32.css", "text/css; charset=utf-8"),
];

/// All paths whose replies are JSON.
const DATA: &[&str] = &[
    "now",
    "figures",
    "findings",
    "classes",
    "commands",
    "connections",
    "clients",
    "settings",
    "history",
    "memory",
    "map",
    "slow",
    "hotkeys",
    "prefixes",
    "ages",
    "latency",
    "forecast",
];

pub fn json(web: &Web, path: &str) -> Value {
    let answer = web.get(path);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{path}: {head}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn the_page_is_sent_with_a_policy_and_to_this_machine_alone() {
    let web = Web::start(&["-t", "1"]);
    for (path, kind) in ASSETS {
        let answer = web.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let has = |line: &str| head.lines().any(|found| found == line);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && !body.is_empty(), "{path}: {head}");
        assert!(has(&format!("Content-Type: {kind}")), "{path}: {head}");
        assert!(has(&format!("Content-Length: {}", body.len())), "{path}: {head}");
        assert!(has("X-Content-Type-Options: nosniff"), "{path}: {head}");
        assert!(has("Cross-Origin-Resource-Policy: same-origin"), "{path}: {head}");
        assert!(!head.to_ascii_lowercase().contains("access-control"), "{path}: {head}");
        let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: "));
        let policy = policy.unwrap_or_else(|| panic!("{path}: {head}"));
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        if *path == "/" {
            for rule in ["script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]
            {
                assert!(policy.contains(rule), "{policy}");
            }
        }
        let elsewhere = web
            .ask(&format!("GET {path} HTTP/1.1\r\nHost: rebound.example:9150\r\nConnection: close\r\n\r\n"));
        assert!(elsewhere.starts_with("HTTP/1.1 421 "), "{path}: {elsewhere}");
        let written =
            web.ask(&format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert!(written.starts_with("HTTP/1.1 405 "), "{path}: {written}");
        let head_alone =
            web.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert_eq!(head_alone, format!("{head}\r\n\r\n"), "{path}");
    }
}

#[test]
fn paths_that_lead_elsewhere_lead_nowhere() {
    let web = Web::start(&["-t", "1"]);
    for path in [
        "//",
        "/.",
        "/..",
        "/../",
        "/../../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/index.html",
        "/STYLE.CSS",
        "/style.css/",
        "/style.css%00",
        "/%73tyle.css",
        "/vendor",
        "/vendor/",
        "/vendor/../app.js",
        "/app.js;a=b",
        "/api",
        "/api/v1/",
        "/api/v2/now",
        "/\u{e9}",
        "/favicon.ico",
    ] {
        let answer = web.get(path);
        assert!(
            answer.starts_with("HTTP/1.1 404 ") || answer.starts_with("HTTP/1.1 400 "),
            "{path}: {answer}"
        );
        assert!(!answer.contains("root:"), "{path}");
    }
    assert!(web.get("/style.css?v=1").starts_with("HTTP/1.1 200 "), "a query says nothing to a file");
}

#[test]
fn memory_is_told_to_the_byte_and_spans_are_all_somebodys() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    super::fill(&web);
    let began = Instant::now();
    loop {
        let (memory, map) = (json(&web, "/api/v1/memory"), json(&web, "/api/v1/map"));
        let uses = memory["uses"].as_array().expect("uses");
        let sum: u64 = uses.iter().map(|one| whole(&one["bytes"])).sum();
        let owners = map["owners"].as_array().expect("owners");
        let of = |wanted: &dyn Fn(u64) -> bool| -> u64 {
            owners.iter().filter(|one| wanted(whole(&one["owner"]))).map(|one| whole(&one["spans"])).sum()
        };
        let classes = json(&web, "/api/v1/classes");
        let classes = classes["classes"].as_array().expect("classes");
        let spans: u64 = classes.iter().map(|class| whole(&class["spans"])).sum();
        let figures = &json(&web, "/api/v1/now")["figures"];
        let agree = sum == whole(&memory["used"])
            && sum == whole(&figures["memory_used"])
            && of(&|_| true) == whole(&map["spans"])
            && of(&|owner| (1..255).contains(&owner)) == spans;
        if agree {
            let page = web.metrics("");
            let told = |name: &str| page.series[&format!("larder_memory_bytes{{use=\"{name}\"}}")];
            assert!(told("items") > 3e6 && told("index") > 0.0 && told("aside") > 0.0);
            assert_eq!(
                page.series.keys().filter(|key| key.starts_with("larder_memory_bytes{")).count(),
                uses.len()
            );
            // A cell has four bytes; base64 writes three bytes as four letters.
            let cells = map["cells"].as_str().expect("cells");
            assert_eq!(cells.len() as u64, (whole(&map["spans"]) * 4).div_ceil(3) * 4);
            assert_eq!(whole(&map["spans_per_cell"]), 1);
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{memory} {map}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_history_grows_by_a_point_a_second_and_says_what_happened() {
    let web = Web::start(&["-t", "1"]);
    let run = json(&web, "/api/v1/history")["run"].clone();
    let mut text = web.text();
    let began = Instant::now();
    let mut gets = 0;
    let points = |told: &Value| told["end_ms"].as_array().map_or(0, Vec::len);
    let wait = || {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    };
    // The reply does not say when the first point began, so no request is sent during it.
    while points(&json(&web, "/api/v1/history")) == 0 {
        wait();
    }
    while points(&json(&web, "/api/v1/history")) < 3 {
        text.until("get none\r\n", "END\r\n");
        gets += 1;
        wait();
    }
    // The last of these requests may be in a point that is not complete yet.
    let asked_in = points(&json(&web, "/api/v1/history")) + 2;
    while points(&json(&web, "/api/v1/history")) < asked_in {
        wait();
    }
    assert_eq!(text.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(text.ask("cache_memlimit 32\r\n"), "OK\r\n");
    let mut told = Value::Null;
    let is_marked = |told: &Value, what: &str| {
        told["marks"].as_array().is_some_and(|marks| marks.iter().any(|mark| mark["what"] == what))
    };
    while !(is_marked(&told, "flushed") && is_marked(&told, "limit")) {
        assert!(began.elapsed() < PATIENCE, "{told}");
        std::thread::sleep(Duration::from_millis(50));
        told = json(&web, "/api/v1/history?step=1");
    }
    assert_eq!(told["run"], run);
    let (ends, misses) = (told["end_ms"].as_array().expect("ends"), &told["series"]["memcached_misses"]);
    let misses = misses.as_array().expect("a series");
    assert_eq!(ends.len(), misses.len());
    // The sum over all points is the number of requests.
    let (mut counted, mut before) = (0.0, None);
    for (end, rate) in ends.iter().zip(misses) {
        let end = whole(end) as f64;
        counted += rate.as_f64().expect("a rate") * (end - before.unwrap_or(end - 1000.0)) / 1000.0;
        before = Some(end);
    }
    assert!((counted - f64::from(gets)).abs() <= 0.05 * f64::from(gets) + 2.0, "{counted} of {gets}");
    let last = whole(ends.last().expect("a point"));
    let later = json(&web, &format!("/api/v1/history?since={last}&series=items,evictions"));
    assert!(later["end_ms"].as_array().is_some_and(|ends| ends.iter().all(|end| whole(end) > last)));
    assert_eq!(later["series"].as_object().map(serde_json::Map::len), Some(2));
    for bad in ["step=2", "step=x", "since=-1", "series=nobody", "series=items,<script>"] {
        assert!(web.get(&format!("/api/v1/history?{bad}")).starts_with("HTTP/1.1 400 "), "{bad}");
    }
    for step in [15, 120] {
        assert_eq!(json(&web, &format!("/api/v1/history?step={step}"))["step_seconds"], step);
    }
}

/// The key and the value in commands that are listed as slow.
const KEY: &str = "<b>\u{2028}\"mykey'</b>";
const VALUE: &str = "a value that is nobody's business";

/// Makes three commands that are listed as slow: one with a key of text, one with a binary key, one without a
/// key.
fn be_slow(web: &Web) {
    let mut redis = web.redis();
    assert_eq!(redis.ask("CONFIG SET slowlog-log-slower-than 0\r\n"), "+OK\r\n");
    let command = |words: &[&[u8]]| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        bytes
    };
    assert_eq!(redis.ask_bytes(&command(&[b"SET", KEY.as_bytes(), VALUE.as_bytes()])), "+OK\r\n");
    assert_eq!(redis.ask_bytes(&command(&[b"SET", &[0xff, 0, b'<'], VALUE.as_bytes()])), "+OK\r\n");
    assert_eq!(redis.ask("PING\r\n"), "+PONG\r\n");
    assert_eq!(redis.ask("CONFIG SET slowlog-log-slower-than -1\r\n"), "+OK\r\n");
}

fn slow(web: &Web) -> Value {
    json(web, "/api/v1/slow")
}

#[test]
fn slow_commands_are_shown_with_keys_of_any_bytes_and_without_values() {
    let web = Web::start(&["-t", "1"]);
    be_slow(&web);
    let told = slow(&web);
    let commands = told["commands"].as_array().expect("commands");
    let keys: Vec<(&Value, &Value)> = commands.iter().map(|one| (&one["command"], &one["key"])).collect();
    let find = |key: Value| keys.iter().any(|(command, found)| **command == "set" && **found == key);
    assert!(find(serde_json::json!({ "text": KEY })), "{told}");
    assert!(find(serde_json::json!({ "base64": "/wA8" })), "{told}");
    assert!(keys.iter().any(|(command, key)| **command == "ping" && key.is_null()), "{told}");
    assert_eq!(told["keys_hidden"], false);
    for place in DATA {
        let answer = web.get(&format!("/api/v1/{place}"));
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("nobody's business"), "{place}");
    }
}

#[test]
fn keys_are_hidden_where_clients_or_the_one_who_asks_may_not_list_them() {
    for options in [&["-t", "1", "-X"][..], &["-t", "1"]] {
        let mut web = Web::start(options);
        be_slow(&web);
        if options.len() == 2 {
            let mut redis = web.redis();
            assert_eq!(redis.ask("ACL SETUSER mon on >pw -@all +info +client|list\r\n"), "+OK\r\n");
            assert_eq!(redis.ask("CONFIG SET requirepass not-told\r\n"), "+OK\r\n");
            for place in DATA {
                let answer = web.get(&format!("/api/v1/{place}"));
                assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("mykey"), "{place}");
            }
            // The headers for `default:not-told`, and for `mon:pw`, a user without the right to call KEYS.
            web.user = "Authorization: Basic ZGVmYXVsdDpub3QtdG9sZA==\r\n";
            assert_eq!(slow(&web)["keys_hidden"], false);
            web.user = "Authorization: Basic bW9uOnB3\r\n";
        }
        for place in DATA {
            let answer = web.get(&format!("/api/v1/{place}"));
            assert!(
                !answer.contains("<b>") && !answer.contains("mykey") && !answer.contains("/wA8"),
                "{place}"
            );
            assert!(!answer.contains("not-told"), "{place}");
        }
        assert_eq!(slow(&web)["keys_hidden"], true);
        let hot = json(&web, "/api/v1/hotkeys");
        assert_eq!(hot["keys_hidden"], true);
        assert!(hot["keys"].as_array().expect("keys").iter().all(|key| key["key"].is_null()), "{hot}");
        let told = json(&web, "/api/v1/prefixes");
        assert_eq!(told["keys_hidden"], true);
        let rows = told["prefixes"].as_array().expect("prefixes");
        assert!(rows.iter().all(|row| row["prefix"].is_null()), "{told}");
    }
}

#[test]
fn what_is_told_of_traffic_is_asked_for_in_numbers_and_a_forecast_is_not_ready_at_once() {
    let web = Web::start(&["-t", "1", "-m", "16"]);
    assert_eq!(json(&web, "/api/v1/forecast")["ready"], false);
    for bad in ["hotkeys?max=x", "hotkeys?max=-1", "prefixes?max=x", "latency?step=2", "latency?since=x"] {
        assert!(web.get(&format!("/api/v1/{bad}")).starts_with("HTTP/1.1 400 "), "{bad}");
    }
}

#[test]
#[ignore = "time: what was asked for is told for some ten seconds"]
fn hot_keys_are_told_with_their_shares_in_every_place() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    let (mut text, mut redis) = (web.text(), web.redis());
    for _ in 0..30 {
        text.ask("mg hot v\r\n");
        redis.ask("GET hot\r\n");
        redis.ask("SET warm 1\r\n");
        text.ask("mg <b> v\r\n");
    }
    let began = Instant::now();
    let told = loop {
        let told = json(&web, "/api/v1/hotkeys?max=3");
        if told["requests"] == 120 {
            break told;
        }
        assert!(began.elapsed() < PATIENCE, "{told}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let keys = told["keys"].as_array().expect("keys");
    let of =
        |text: &str| keys.iter().find(|key| key["key"]["text"] == text).unwrap_or_else(|| panic!("{told}"));
    assert_eq!((keys.len(), &keys[0]["key"]["text"]), (3, &"hot".into()));
    let (hot, warm) = (of("hot"), of("warm"));
    assert_eq!((hot["share"].as_f64(), hot["error"].as_f64()), (Some(0.5), Some(0.0)), "each was counted");
    assert_eq!((&hot["hit_ratio"], &hot["reads"]), (&0.0.into(), &1.0.into()));
    assert_eq!((&warm["reads"], &warm["value_bytes"]), (&0.0.into(), &1.into()));
    assert_eq!(of("<b>")["share"].as_f64(), Some(0.25));
    for (scheme, sheet) in [("memcached://", "keys"), ("redis://", "keys")] {
        let (code, said) = web.top(scheme, &["--once", "--show", sheet]);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("requests of the last") && said.contains("| hot  ") && said.contains("%3Cb%3E"),
            "{said}"
        );
    }
    let series = web.metrics("").series;
    assert!(series["larder_samples_total"] >= 120.0 && series["larder_samples_dropped_total"] == 0.0);
    assert!(series["larder_sample_bytes"] > 100_000.0 && series["larder_sample_bytes"] < 400_000.0);
    assert!(series.contains_key("larder_hottest_key_ratio") && series.contains_key("larder_hot_keys"));
}

#[test]
#[ignore = "time: what was asked for is told for some ten seconds"]
fn prefixes_are_told_with_what_they_take_in_every_place() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    let (mut text, mut redis) = (web.text(), web.redis());
    text.ask("set user:1 0 0 5\r\nabcde\r\n");
    for _ in 0..30 {
        text.ask("mg user:1 v\r\n");
        redis.ask("GET <i>/2\r\n");
        redis.ask("GET <i>/1\r\n");
    }
    let began = Instant::now();
    let told = loop {
        let told = json(&web, "/api/v1/prefixes?max=2");
        if told["requests"] == 91 {
            break told;
        }
        assert!(began.elapsed() < PATIENCE, "{told}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let rows = told["prefixes"].as_array().expect("prefixes");
    assert_eq!(rows.len(), 2);
    let (page, user) = (&rows[0], &rows[1]);
    assert_eq!((&page["prefix"]["text"], &user["prefix"]["text"]), (&"<i>/".into(), &"user:".into()));
    assert_eq!(
        (&page["error"], &page["hit_ratio"], &user["hit_ratio"]),
        (&0.0.into(), &0.0.into(), &1.0.into())
    );
    assert_eq!((&page["hit_ratio_error"], &page["bytes_error"]), (&0.0.into(), &0.0.into()));
    assert_eq!((&user["value_bytes"], &user["none"]), (&5.0.into(), &false.into()));
    assert!(page["misses_per_second"].as_f64() > Some(0.0) && user["misses_per_second"] == 0.0, "{told}");
    for scheme in ["memcached://", "redis://"] {
        let (code, said) = web.top(scheme, &["--once", "--show", "prefixes"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("requests of the last") && said.contains("%3Ci%3E%2F"), "{said}");
    }
    assert!(!web.get("/metrics").contains("user:"), "no label is what a client chooses");
}

#[test]
fn prefixes_are_counted_exactly_whichever_worker_has_the_connection() {
    let web = Web::start(&["-t", "3", "-m", "64"]);
    // A new connection goes to the worker with the fewest: so each worker has some of these.
    let mut talks: Vec<_> = (0..6).map(|_| web.text()).collect();
    assert_eq!(talks[0].ask("stats detail on\r\n"), "OK\r\n");
    for (n, talk) in talks.iter_mut().enumerate() {
        for _ in 0..10 {
            talk.ask("set all:k 0 0 1\r\nx\r\n");
            talk.until(&format!("get all:k own{n}:none\r\n"), "END\r\n");
        }
        talk.ask("delete all:none\r\n");
    }
    let dump = talks[5].until("stats detail dump\r\n", "END\r\n");
    let own = (0..6).map(|n| format!("PREFIX own{n} get 10 hit 0 set 0 del 0\r\n"));
    let expected: String =
        std::iter::once("PREFIX all get 60 hit 60 set 60 del 6\r\n".into()).chain(own).collect();
    assert_eq!(dump, format!("{expected}END\r\n"));
    // After a reset the counts begin at zero again.
    talks[1].ask("stats reset\r\n");
    assert_eq!(talks[2].until("stats detail dump\r\n", "END\r\n"), "END\r\n");
    talks[3].ask("set again:k 0 0 1\r\nx\r\n");
    let dump = talks[4].until("stats detail dump\r\n", "END\r\n");
    assert_eq!(dump, "PREFIX again get 0 hit 0 set 1 del 0\r\nEND\r\n");
}

#[test]
#[ignore = "time: what a server timed is compared with what its client waited"]
fn times_of_requests_are_told_in_three_parts_that_add_up_to_no_more_than_a_client_waits() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    let mut text = web.text();
    let began = Instant::now();
    let mut waits = Vec::new();
    while began.elapsed() < Duration::from_secs(4) {
        let asked = Instant::now();
        text.ask("mg key v\r\n");
        waits.push(asked.elapsed().as_nanos() as u64);
        std::thread::sleep(Duration::from_millis(5));
    }
    waits.sort_unstable();
    let median_wait = waits[waits.len() / 2];
    let told = json(&web, "/api/v1/latency");
    let receives: u64 = told["receives"].as_array().expect("counts").iter().filter_map(Value::as_u64).sum();
    let since_start = told["since_start"].as_array().expect("rows");
    assert_eq!(since_start.len(), 6, "{told}");
    for row in since_start {
        let some = row["count"].as_u64().is_some_and(|count| count > 0);
        assert_eq!(some, row["protocol"] == "memcached", "{row}");
    }
    // Ten times a second the server times a dozen turns in a row; with so few turns it times all of them.
    assert!(receives > waits.len() as u64 / 4, "{receives} of {}", waits.len());
    let points = told["end_ms"].as_array().expect("points").len();
    let rows = told["rows"].as_u64().expect("rows") as usize;
    let mut sum = 0;
    for stage in ["queue", "service", "reply"] {
        let one = &told["stages"][stage];
        let columns = one["rows"].as_str().expect("base64");
        assert_eq!(columns.len(), (points * rows).div_ceil(3) * 4, "{stage}");
        let medians = one["median_ns"].as_array().expect("numbers").iter().filter_map(Value::as_u64);
        let mut medians: Vec<u64> = medians.filter(|ns| *ns > 0).collect();
        medians.sort_unstable();
        assert!(!medians.is_empty(), "{stage}: {told}");
        sum += medians[medians.len() / 2];
    }
    assert!(sum > 500 && sum < median_wait, "{sum} ns of {median_wait}");
    // A scraper gets these requests, and later ones.
    let page = web.metrics("");
    let mut mean_ns = 0.0;
    for stage in ["queue", "service", "reply"] {
        let of = |part: &str| -> f64 {
            let of = |protocol: &str| {
                page.series
                    [&format!("larder_request_seconds_{part}{{protocol=\"{protocol}\",stage=\"{stage}\"}}")]
            };
            of("memcached") + of("redis")
        };
        assert!(of("count") >= receives as f64 * 0.9 && of("count") < receives as f64 + 200.0, "{stage}");
        mean_ns += of("sum") / of("count") * 1e9;
    }
    let mean_wait = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
    assert!(mean_ns > 500.0 && mean_ns < mean_wait * 2.0, "{mean_ns} ns of {mean_wait}");
    let last =
        told["end_ms"].as_array().and_then(|ends| ends.last()).and_then(Value::as_u64).expect("a point");
    let newer = json(&web, &format!("/api/v1/latency?since={last}"));
    assert!(newer["end_ms"].as_array().expect("points").len() <= 2, "{newer}");
}

#[test]
#[ignore = "time: what workers tell is lost while the thread that counts it is off its core"]
fn a_server_that_is_short_of_memory_says_in_every_place_what_more_would_bring() {
    let web = Web::start(&["-t", "1", "-m", "16"]);
    let told = web.be_short();
    let page = web.metrics("");
    assert!(page.series["larder_evictions_total"] > 0.0);
    assert_eq!(page.series["larder_evicted_idle_seconds_count"], page.series["larder_evictions_total"]);
    let ages = json(&web, "/api/v1/ages");
    let evicted = ages["evicted"].as_array().expect("parts").iter();
    let evicted = evicted.filter_map(|part| part["items"].as_u64()).sum::<u64>() as f64;
    // Upkeep may evict items between the two replies.
    let evictions = [&page, &web.metrics("")].map(|page| page.series["larder_evictions_total"]);
    assert!(evictions[0] <= evicted && evicted <= evictions[1], "{evicted} of {evictions:?}");
    let told: Value = serde_json::from_str(told.split_once("\r\n\r\n").expect("a head").1).expect("JSON");
    let points = told["points"].as_array().expect("points");
    assert_eq!((points.len(), &told["full"]), (7, &true.into()));
    let (now, twice) = (&points[3], &points[5]);
    assert_eq!((&now["factor"], &twice["factor"]), (&1.0.into(), &2.0.into()));
    let ratio = |point: &Value| point["hit_ratio"].as_f64().expect("a number");
    assert!((0.3..0.7).contains(&ratio(now)) && ratio(twice) > 0.95, "{told}");
    assert_eq!(twice["limit_bytes"], 32 << 20);
    let (code, said) = web.doctor(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("memory-short") && said.contains("-m 32 would have "), "{said}");
    let series = web.metrics("").series;
    let missed = series["larder_forecast_miss_ratio{memory=\"2\"}"];
    assert!(missed < 0.05 && series["larder_forecast_error_ratio{memory=\"0.5\"}"] > 0.0, "{missed}");
    assert_eq!(series["larder_finding{rule=\"memory-short\",severity=\"warning\"}"], 1.0);
    assert!(series["larder_fills_total"] > 10_000.0 && series["larder_forecast_keys"] > 48.0);
    let stats = web.text().until("stats forecast\r\n", "END\r\n");
    assert!(stats.contains("STAT ready 1\r\n") && stats.contains("STAT 2_limit_megabytes 32\r\n"), "{stats}");
    let info = web.redis().until("INFO forecast\r\n", "\r\n\r\n");
    assert!(info.contains("forecast_ready:1\r\n"), "{info}");
}

#[test]
fn settings_say_what_was_given_what_has_no_effect_and_what_was_changed() {
    let mut web = Web::start(&[
        "-t",
        "1",
        "-m",
        "96",
        "-o",
        "slab_automove_ratio=0.7,idle_timeout=9",
        "--requirepass",
        "not-told",
    ]);
    // The header for `default:not-told`.
    web.user = "Authorization: Basic ZGVmYXVsdDpub3QtdG9sZA==\r\n";
    let mut redis = web.text();
    assert_eq!(redis.ask("*2\r\n$4\r\nAUTH\r\n$8\r\nnot-told\r\n"), "+OK\r\n");
    assert_eq!(redis.ask("CONFIG SET maxmemory 64mb hz 50\r\n"), "+OK\r\n");
    let told = json(&web, "/api/v1/settings");
    let option = |name: &str| {
        let options = told["options"].as_array().expect("options").iter();
        options.clone().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {told}")).clone()
    };
    assert_eq!(
        (&option("-m, --memory-limit")["given"], &option("-m, --memory-limit")["works"]),
        (&"96".into(), &true.into())
    );
    assert_eq!(option("-c, --conn-limit")["given"], Value::Null);
    assert_eq!(option("-o idle_timeout")["given"], "9");
    let idle = option("-o slab_automove_ratio");
    assert_eq!((&idle["given"], &idle["works"]), (&"0.7".into(), &false.into()));
    assert!(idle["why"].as_str().is_some_and(|why| !why.is_empty()));
    assert_eq!(told["at_start"]["maxbytes"], (96u64 << 20).to_string());
    assert_eq!(told["settings"]["maxbytes"], (64u64 << 20).to_string());
    assert_eq!(told["parameters"]["hz"], "50");
    assert!(!told.to_string().contains("not-told"), "{told}");
}

#[test]
fn clients_of_resp_are_told_of() {
    let web = Web::start(&["-t", "1"]);
    let (mut one, mut other) = (web.redis(), web.redis());
    assert_eq!(one.ask("CLIENT SETNAME <i>one</i>\r\n"), "+OK\r\n");
    for _ in 0..5 {
        assert_eq!(other.ask("PING\r\n"), "+PONG\r\n");
    }
    let told = json(&web, "/api/v1/clients?max=1");
    assert_eq!((&told["all"], told["clients"].as_array().map(Vec::len)), (&2.into(), Some(1)));
    assert_eq!((&told["clients"][0]["commands"], &told["clients"][0]["last"]), (&6.into(), &"ping".into()));
    assert!(json(&web, "/api/v1/clients").to_string().contains("<i>one</i>"));
    assert!(web.get("/api/v1/clients?max=x").starts_with("HTTP/1.1 400 "));
}
