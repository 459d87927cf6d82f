//! Clients of the HTTP port that are slow, many, lost or hostile. Each is refused with a reason, the next
//! scraper is served, and the data port is not affected.

use larder_testkit::folder::Folder;
use larder_testkit::timing::at_most;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::page::json;
use crate::web::{Talk, Web};

/// More clients than may connect at a time.
const MANY: usize = 100;

fn refused(web: &Web, request: &str) -> String {
    let answer = web.ask(request);
    let line = answer.lines().next().unwrap_or_default();
    line.strip_prefix("HTTP/1.1 ").unwrap_or(line).to_owned()
}

#[test]
fn who_asks_wrongly_is_told() {
    let web = Web::start(&["-t", "1"]);
    let host = "Host: localhost\r\n\r\n";
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "421"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (format!("GET http://evil.example/ HTTP/1.1\r\n{host}"), "400"),
        (format!("POST /metrics HTTP/1.1\r\n{host}"), "405"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc".to_owned(), "413"),
        (format!("GET /{} HTTP/1.1\r\n{host}", "a".repeat(9_000)), "431"),
        (format!("GET / HTTP/1.1\r\n{}{host}", "a: b\r\n".repeat(100)), "431"),
        (format!("GET / HTTP/3.0\r\n{host}"), "505"),
        ("set k 0 0 1\r\nv\r\n".to_owned(), "505"),
        ("*1\r\n$4\r\nPING\r\n".to_owned(), "400"),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n".to_owned(), "400"),
    ] {
        let told = refused(&web, &request);
        assert!(told.starts_with(status), "{request:?}: {told}");
    }
    // No part of it was carried out as a request of another protocol.
    assert_eq!(web.text().until("get k\r\n", "END\r\n"), "END\r\n");
}

#[test]
fn many_who_say_nothing_or_go_on_for_ever_keep_no_scraper_waiting() {
    crowded();
}

#[test]
#[ignore = "time: a scraper is served within three seconds"]
fn many_who_say_nothing_or_go_on_for_ever_keep_no_scraper_waiting_for_long() {
    at_most(Duration::from_secs(3), crowded);
}

/// The time of two requests beside many clients that send nothing, or whose requests never end.
fn crowded() -> Duration {
    let web = Web::start(&["-t", "1"]);
    let mut data = web.text();
    let idle: Vec<TcpStream> = (0..MANY).map(|_| web.connect()).collect();
    let began = Instant::now();
    assert!(web.get("/healthz").ends_with("ok\n"));
    let slow: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let mut stream = web.connect();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: loc");
            stream
        })
        .collect();
    assert!(web.get("/healthz").ends_with("ok\n"));
    let took = began.elapsed();
    assert_eq!(data.ask("mn\r\n"), "MN\r\n");
    drop((idle, slow));
    assert!(!web.metrics("").series.is_empty());
    took
}

#[test]
fn who_reads_no_answer_takes_no_memory_without_end() {
    beside_greedy();
}

#[test]
#[ignore = "time: each answer comes within a second"]
fn who_reads_no_answer_keeps_nobody_else_waiting() {
    at_most(Duration::from_secs(1), beside_greedy);
}

/// The longest time that a client of the data port waits beside HTTP clients that do not read their replies;
/// these replies take a limited amount of memory.
fn beside_greedy() -> Duration {
    let web = Web::start(&["-t", "1"]);
    let line = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let greedy: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = web.connect();
            stream.set_nonblocking(true).expect("a socket");
            for _ in 0..200 {
                // Requests that the socket does not take are dropped: the server has stopped reading.
                if stream.write(line.as_bytes()).is_err() {
                    break;
                }
            }
            stream
        })
        .collect();
    let (mut data, began, mut longest) = (web.text(), Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        assert_eq!(data.ask("mn\r\n"), "MN\r\n");
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    let reply_bytes = data.stats()["response_obj_bytes"];
    assert!(reply_bytes < f64::from(8 << 20), "{reply_bytes} bytes");
    // This memory is freed minutes later; `admin/on_sim.rs` of the server tests when.
    drop(greedy);
    longest
}

#[test]
fn a_pipeline_is_answered_in_order_and_a_late_head_is_told() {
    let web = Web::start(&["-t", "1"]);
    let mut stream = web.connect();
    let ask = |path: &str, closes: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{closes}\r\n");
    let all = ask("/healthz", "") + &ask("/nowhere", "") + &ask("/healthz", "Connection: close\r\n");
    stream.write_all(all.as_bytes()).expect("it listens");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("answers");
    let lines: Vec<&str> = answers.lines().filter(|line| line.starts_with("HTTP/1.1 ")).collect();
    assert_eq!(lines, ["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "HTTP/1.1 200 OK"]);
    let (began, mut late) = (Instant::now(), web.connect());
    late.write_all(b"GET / HT").expect("it listens");
    let mut answer = String::new();
    late.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
}

/// Clients whose name, library and library version are as long as possible.
fn talkative(web: &Web, clients: usize) -> Vec<Talk> {
    let text = |letter: &str| letter.repeat(1024);
    let greet = |_| {
        let mut talk = web.redis();
        for (words, said) in [
            (&["SETNAME"][..], text("\"")),
            (&["SETINFO", "LIB-NAME"], text("n")),
            (&["SETINFO", "LIB-VER"], text("\\")),
        ] {
            let mut request = format!("*{}\r\n$6\r\nCLIENT\r\n", 2 + words.len());
            for word in words.iter().copied().chain([said.as_str()]) {
                request += &format!("${}\r\n{word}\r\n", word.len());
            }
            assert_eq!(talk.ask(&request), "+OK\r\n");
        }
        talk
    };
    (0..clients).map(greet).collect()
}

#[test]
fn a_list_of_talkative_clients_is_no_longer_than_an_answer_may_be() {
    const CLIENTS: usize = 600;
    let web = Web::start(&["-t", "1", "-m", "64"]);
    let all = talkative(&web, CLIENTS);
    let answer = web.get("/api/v1/clients?max=4096");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    assert!(body.len() <= 1 << 20 && body.len() > 1 << 19, "{} bytes", body.len());
    let told = json(&web, "/api/v1/clients?max=4096");
    let rows = told["clients"].as_array().map_or(0, Vec::len);
    assert!(rows > 100 && rows < CLIENTS, "{rows} of them");
    assert_eq!((&told["truncated"], &told["all"]), (&true.into(), &CLIENTS.into()));
    let some = json(&web, "/api/v1/clients?max=10");
    assert_eq!((&some["truncated"], some["clients"].as_array().map(Vec::len)), (&false.into(), Some(10)));
    // The replies to clients that do not read them take no more memory than the limit.
    let line = "GET /api/v1/clients?max=4096 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let greedy: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = web.connect();
            (0..20).for_each(|_| stream.write_all(line.as_bytes()).expect("it listens"));
            stream
        })
        .collect();
    let (mut data, began, mut most) = (web.text(), Instant::now(), 0.0_f64);
    while began.elapsed() < Duration::from_secs(2) {
        most = most.max(data.stats()["response_obj_bytes"]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(most < f64::from(8 << 20), "{most} bytes");
    drop((greedy, all));
}

/// The replies of all paths, one after another.
fn all_places(web: &Web) -> String {
    let index = web.get("/api/v1");
    let places = index.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix('/'));
    let places: Vec<&str> = places.collect();
    assert!(places.contains(&"api/v1/slow") && places.contains(&"api/v1/settings"), "{index}");
    let told = places.iter().map(|place| {
        let answer = web.get(&format!("/{place}"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{place}: {answer}");
        answer
    });
    told.collect()
}

#[test]
fn nobody_is_told_a_password_by_http() {
    const CANARY: &str = "canary-7f3a";
    for options in [&["-t", "1"][..], &["-t", "1", "--requirepass", CANARY]] {
        let mut web = Web::start(options);
        let mut redis = web.text();
        let mut say = |words: &[&str]| {
            let mut request = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
            redis.ask(&request)
        };
        say(&["AUTH", CANARY]);
        assert_eq!(say(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]), "+OK\r\n");
        for words in [
            &["AUTH", CANARY][..],
            &["AUTH", "default", CANARY],
            &["AUTH", "nobody", CANARY, "more"],
            &["HELLO", "2", "AUTH", "nobody", CANARY, "SETNAME", "x"],
            &["CONFIG", "SET", "masterauth", CANARY],
            &["CONFIG", "SET", "requirepass", CANARY],
            &["AUTH", CANARY],
            &["ACL", "SETUSER", "one", "on", &format!(">{CANARY}")],
        ] {
            say(words);
        }
        assert!(web.get("/api/v1").starts_with("HTTP/1.1 401 "));
        // The user `default` and the password.
        web.user = "Authorization: Basic ZGVmYXVsdDpjYW5hcnktN2YzYQ==\r\n";
        let told = all_places(&web);
        assert!(told.contains("\"auth\"") && told.contains("\"config|set\""), "they are listed");
        assert!(!told.contains(CANARY), "{options:?}");
    }
}

#[test]
fn doctor_and_top_tell_no_password_whether_it_was_right_or_wrong() {
    const CANARY: &str = "canary-7f3a";
    let web = Web::start(&["-t", "1", "--requirepass", CANARY]);
    for (login, is_right) in [
        (&format!("redis://default:{CANARY}@"), true),
        (&format!("redis://:{CANARY}@"), true),
        (&format!("memcached://default:{CANARY}@"), true),
        (&format!("redis://default:{CANARY}-wrong@"), false),
        (&format!("memcached://default:{CANARY}-wrong@"), false),
    ] {
        let top = ["top", "--once", "--every", "0.2"];
        for words in [&["doctor"][..], &["doctor", "--json"], &top] {
            let (code, said) = web.told_by(words, login);
            assert!(!said.contains("canary"), "{words:?} {login}: {said}");
            // Codes of 64 and above: no server has replied, or it refused the login.
            assert_eq!(code.is_some_and(|code| code < 64), is_right, "{words:?} {login}: {said}");
        }
    }
}

#[test]
fn keys_of_any_bytes_are_told_as_json_by_http() {
    let web = Web::start(&["-t", "1"]);
    let mut redis = web.redis();
    assert_eq!(redis.ask("CONFIG SET slowlog-log-slower-than 0\r\n"), "+OK\r\n");
    let keys: [&[u8]; 5] =
        [b"a\r\nEND\r\n", b"\"},{\"id\":7,\"", b"</script><i>", b"\xff\xfe\x00", b"b\x1b[31m\x00"];
    for key in keys {
        let request = [format!("*2\r\n$6\r\nSTRLEN\r\n${}\r\n", key.len()).as_bytes(), key, b"\r\n"].concat();
        assert_eq!(redis.ask_bytes(&request), ":0\r\n");
        // Only commands that are not FAST are listed.
        let request = [format!("*2\r\n$4\r\nDUMP\r\n${}\r\n", key.len()).as_bytes(), key, b"\r\n"].concat();
        assert_eq!(redis.ask_bytes(&request), "$-1\r\n");
    }
    let answer = web.get("/api/v1/slow");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    assert_eq!(body.matches('\n').count(), 1, "one line: {body}");
    let told = json(&web, "/api/v1/slow");
    let listed: Vec<&serde_json::Value> = told["commands"].as_array().expect("commands").iter().collect();
    let keys_of = |kind: &str| -> Vec<String> {
        let keys = listed.iter().filter_map(|one| one["key"][kind].as_str());
        keys.map(str::to_owned).collect()
    };
    for key in keys {
        match std::str::from_utf8(key) {
            Ok(text) => assert!(keys_of("text").iter().any(|one| one == text), "{text:?}: {told}"),
            Err(_) => assert!(keys_of("base64").iter().any(|one| one == "//4A"), "{told}"),
        }
    }
}

/// The headers for `ann:secret` and `ann:wrong`, as a browser sends them.
const RIGHT: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
const WRONG: &str = "Authorization: Basic YW5uOndyb25n\r\n";

/// The head of a request to a host, with these further lines.
fn head(path: &str, host: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n")
}

#[test]
fn other_machines_are_shown_what_monitors_need_and_no_more() {
    let web = Web::start(&["-t", "1", "--http-host", "0.0.0.0,cache.example"]);
    for host in ["localhost", "10.1.2.3:9150", "cache.example", "[2001:db8::1]"] {
        for open in ["/metrics?family=redis", "/healthz"] {
            let told = refused(&web, &head(open, host, ""));
            assert!(told.starts_with("200"), "{open} {host}: {told}");
        }
        for closed in
            ["/", "/app.js", "/api/v1", "/api/v1/hotkeys", "/api/v1/settings", "/nowhere", "/metrics/"]
        {
            for lines in ["", RIGHT] {
                let told = refused(&web, &head(closed, host, lines));
                assert!(told.starts_with("403"), "{closed} {host}: {told}");
            }
        }
    }
    for host in ["evil.example", "0.0.0.0", "cache.example.evil.example", "localhost.evil.example"] {
        let told = refused(&web, &head("/metrics", host, ""));
        assert!(told.starts_with("421"), "{host}: {told}");
    }
    let told = web.ask(&head("/", "localhost", ""));
    assert!(told.contains("--http-auth-file"), "{told}");
}

#[test]
fn the_page_is_shown_to_users_alone_where_there_are_some() {
    let folder = Folder::new("http-users");
    let users = folder.write("users", "# readers\nann:secret\nbo:other\n");
    for host in ["127.0.0.1", "0.0.0.0"] {
        let web = Web::start(&["-t", "1", "--http-host", host, "--http-auth-file", &users]);
        for path in ["/", "/app.js", "/api/v1/hotkeys", "/nowhere"] {
            let told = web.ask(&head(path, "localhost", ""));
            assert!(
                told.starts_with("HTTP/1.1 401 ") && told.contains("\r\nWWW-Authenticate: Basic "),
                "{told}"
            );
            let told = refused(&web, &head(path, "localhost", RIGHT));
            assert!(told.starts_with(if path == "/nowhere" { "404" } else { "200" }), "{path}: {told}");
            let told = refused(&web, &head(path, "evil.example", RIGHT));
            assert!(told.starts_with("421"), "{path}: {told}");
        }
        // This path needs no password, and a wrong one is ignored.
        for lines in ["", WRONG] {
            assert!(web.ask(&head("/healthz", "localhost", lines)).ends_with("ok\n"));
        }
        let settings = web.ask(&head("/api/v1/settings", "localhost", RIGHT));
        assert!(settings.contains("http-auth-file") && !settings.contains("secret"), "{settings}");
        let failed = || web.metrics("?family=larder").series["larder_http_wrong_passwords_total"];
        assert_eq!(failed(), 0.0);
        let told = refused(&web, &head("/", "localhost", WRONG));
        assert!(told.starts_with("401"), "{told}");
        assert_eq!(failed(), 1.0);
    }
}

#[test]
fn the_page_is_shown_to_users_of_clients_where_it_has_none_of_its_own() {
    // The header for `default:secret`.
    const CLIENT: &str = "Authorization: Basic ZGVmYXVsdDpzZWNyZXQ=\r\n";
    for (host, without) in [("127.0.0.1", "200"), ("0.0.0.0", "403")] {
        let web = Web::start(&["-t", "1", "--http-host", host, "--requirepass", "secret"]);
        for path in ["/", "/app.js", "/api/v1/hotkeys", "/nowhere"] {
            let told = refused(&web, &head(path, "localhost", ""));
            assert!(told.starts_with("401"), "{path} {host}: {told}");
            let told = refused(&web, &head(path, "localhost", CLIENT));
            let expected = if path == "/nowhere" { "404" } else { "200" };
            assert!(told.starts_with(expected), "{path} {host}: {told}");
            let foreign = format!("Sec-Fetch-Site: cross-site\r\n{CLIENT}");
            let told = refused(&web, &head(path, "localhost", &foreign));
            assert!(told.starts_with("403"), "{path} {host}: {told}");
        }
        let told = refused(&web, &head("/metrics?family=redis", "localhost", ""));
        assert!(told.starts_with("200"), "{host}: {told}");
        let told = refused(&web, &head("/", "localhost", RIGHT));
        assert!(told.starts_with("401"), "nobody here is called so: {told}");
        // When clients no longer need a password, the page needs none, either.
        let mut redis = web.text();
        assert_eq!(redis.ask("*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"), "+OK\r\n");
        assert_eq!(redis.ask("CONFIG SET requirepass \"\"\r\n"), "+OK\r\n");
        let told = refused(&web, &head("/api/v1/hotkeys", "localhost", ""));
        assert!(told.starts_with(without), "{host}: {told}");
    }
}

#[test]
fn a_user_is_shown_what_its_rights_are_and_no_less_than_nobody() {
    // The headers for `app:pw` and `seer:pw`.
    const APP: &str = "Authorization: Basic YXBwOnB3\r\n";
    const SEER: &str = "Authorization: Basic c2Vlcjpwdw==\r\n";
    let users = ["--acl-user", "app on >pw -@all", "--acl-user", "seer on >pw -@all +info +client|list"];
    let told = |web: &Web, lines: &str| refused(web, &head("/api/v1/now", "localhost", lines));
    let closed = Web::start(&[&["-t", "1", "--requirepass", "secret"][..], &users].concat());
    // Each time, the reply asks for another user: this one's password is right, but the user lacks the
    // rights.
    for _ in 0..2 {
        assert!(told(&closed, APP).starts_with("401"), "{}", told(&closed, APP));
    }
    assert!(told(&closed, SEER).starts_with("200"));
    assert_eq!(closed.metrics("?family=larder").series["larder_http_wrong_passwords_total"], 0.0);
    let default = ["-t", "1", "--acl-user", "default on nopass -@all +info +client|list"];
    let open = Web::start(&[&default[..], &users].concat());
    for lines in ["", APP, SEER] {
        assert!(told(&open, lines).starts_with("200"), "{lines}: {}", told(&open, lines));
    }
}

#[test]
fn those_who_guess_passwords_keep_no_scraper_waiting() {
    let folder = Folder::new("http-guesses");
    let users = folder.write("users", "ann:secret\n");
    let web = Web::start(&["-t", "1", "--http-auth-file", &users]);
    let mut data = web.text();
    // All clients guess at the same time, without waiting for replies. The guesses of a pipeline are checked
    // one at a time.
    let guesses: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let mut stream = web.connect();
            let guess = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{WRONG}\r\n");
            let _ = stream.write_all(guess.repeat(20).as_bytes());
            stream
        })
        .collect();
    for _ in 0..20 {
        assert!(web.get("/healthz").ends_with("ok\n"));
        assert_eq!(data.ask("mn\r\n"), "MN\r\n");
    }
    assert!(!web.metrics("").series.is_empty());
    drop(guesses);
    // The right password is checked after the guesses that came before it.
    let told = web.ask(&head("/api/v1/now", "localhost", RIGHT));
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    // Wrong guesses are followed by pauses, so only some of the two thousand were checked.
    let failed = web.metrics("?family=larder").series["larder_http_wrong_passwords_total"];
    assert!(failed >= 1.0 && failed < (MANY * 20) as f64, "{failed}");
}

#[test]
fn names_of_keys_are_hidden_where_it_is_asked_for() {
    let folder = Folder::new("http-keys");
    let users = folder.write("users", "ann:secret\n");
    let shown = |options: &[&str]| {
        let options = [&["-t", "1", "--http-auth-file", &users][..], options].concat();
        let web = Web::start(&options);
        let mut redis = web.text();
        redis.ask("*2\r\n$4\r\nAUTH\r\n$3\r\npwd\r\n");
        assert_eq!(
            redis.ask("*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$23\r\nslowlog-log-slower-than\r\n$1\r\n0\r\n"),
            "+OK\r\n"
        );
        assert_eq!(redis.ask("*2\r\n$4\r\nDUMP\r\n$9\r\na:the-key\r\n"), "$-1\r\n");
        let told = web.ask(&head("/api/v1/slow", "localhost", RIGHT));
        assert!(told.contains("\"dump\""), "{told}");
        let hidden = told.contains("\"keys_hidden\":true");
        for place in ["hotkeys", "prefixes", "now", "clients", "connections", "commands"] {
            let told = web.ask(&head(&format!("/api/v1/{place}"), "localhost", RIGHT));
            assert!(told.starts_with("HTTP/1.1 200 ") && !(hidden && told.contains("the-key")), "{told}");
        }
        assert_eq!(told.contains("a:the-key"), !hidden, "{told}");
        !hidden
    };
    assert!(shown(&[]));
    // With `--requirepass` readers of the page need a password, as clients do.
    assert!(shown(&["--requirepass", "pwd"]));
    assert!(!shown(&["--http-hide-keys"]));
    assert!(!shown(&["-X"]));
}
