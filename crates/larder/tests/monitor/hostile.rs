//! Clients of the HTTP port that are slow, many, lost or hostile: each hears why, the next scraper is served, and the
//! data port knows nothing of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::web::Web;

/// More than there are places.
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
    // Nothing of it was a request to anybody else.
    assert_eq!(web.text().until("get k\r\n", "END\r\n"), "END\r\n");
}

#[test]
fn many_who_say_nothing_or_go_on_for_ever_keep_no_scraper_waiting() {
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
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(data.ask("mn\r\n"), "MN\r\n");
    drop((idle, slow));
    assert!(!web.metrics("").series.is_empty());
}

#[test]
fn who_reads_no_answer_takes_no_memory_without_end() {
    let web = Web::start(&["-t", "1"]);
    let line = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let greedy: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = web.connect();
            stream.set_nonblocking(true).expect("a socket");
            for _ in 0..200 {
                // What does not fit is not sent: the server has stopped reading.
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
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let held = data.stats()["response_obj_bytes"];
    assert!(held < f64::from(8 << 20), "{held} bytes");
    drop(greedy);
    let began = Instant::now();
    while data.stats()["response_obj_bytes"] > 0.0 {
        assert!(began.elapsed() < Duration::from_secs(30), "what was held is given back");
        std::thread::sleep(Duration::from_millis(50));
    }
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
    let (mut late, began) = (web.connect(), Instant::now());
    late.write_all(b"GET / HT").expect("it listens");
    let mut answer = String::new();
    late.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
}
