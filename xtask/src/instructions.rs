//! `cargo xtask bench instructions`: what a pipelined request costs the server in instructions, by callgrind.
//!
//! ```text
//! server under callgrind ◄── 20,000 sets ── pipelines of 200 requests ── shutdown      counted: A
//! the same again         ◄── 20,000 sets ── 400 pipelines more        ── shutdown      counted: B
//! a request                  (B − A) / (requests of B − requests of A)
//! ```
//!
//! A is long enough for the index to have grown to its size: a step of that is several instructions of each request.
//! Five such pairs, of which the median counts; the server's clock stands still. The kernel's are not counted. The
//! figures of two binaries on one machine are within 1 % of each other unless their code differs, whatever else the
//! machine does, which no time is.

use crate::install::debian;
use crate::run::{Outcome, capture, cargo, command, run, target};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const KEYS: usize = 20_000;
const PIPELINE: usize = 200;
/// Pipelines of the shorter run, after which the index grows no more, …
const PIPELINES: usize = 600;
/// … and what the longer one has beyond them.
const PIPELINES_MORE: usize = 400;
/// Pairs of runs of which the median counts.
const ROUNDS: usize = 5;
/// How long a server under callgrind may take to start, and a run to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the figure of a binary may be above that of another that is not slower.
const TOLERANCE: f64 = 1.01;

/// A kind of request.
struct Kind {
    name: &'static str,
    /// One of its requests, by the number of a key.
    request: fn(usize) -> String,
    reply_bytes: usize,
    /// The store is full, and has evicted as much as it holds.
    full: bool,
}

const fn kind(name: &'static str, request: fn(usize) -> String, reply_bytes: usize) -> Kind {
    Kind { name, request, reply_bytes, full: false }
}

/// In a store that evicts.
const fn full(name: &'static str, request: fn(usize) -> String, reply_bytes: usize) -> Kind {
    Kind { name, request, reply_bytes, full: true }
}

const SET: Kind = kind("set", |n| format!("set key-{n:010} 0 0 32\r\n{VALUE}\r\n"), 8);
const REDIS_SET: Kind =
    kind("SET", |n| format!("*3\r\n$3\r\nSET\r\n$14\r\nkey-{n:010}\r\n$32\r\n{VALUE}\r\n"), 5);

const KINDS: &[Kind] = &[
    kind("get", |n| format!("get key-{n:010}\r\n"), 66),
    SET,
    kind("mg v", |n| format!("mg key-{n:010} v\r\n"), 41),
    kind("ms", |n| format!("ms key-{n:010} 32\r\n{VALUE}\r\n"), 4),
    kind("GET", |n| format!("*2\r\n$3\r\nGET\r\n$14\r\nkey-{n:010}\r\n"), 39),
    REDIS_SET,
    kind("get miss", |n| format!("get not-{n:010}\r\n"), 5),
    kind("GET miss", |n| format!("*2\r\n$3\r\nGET\r\n$14\r\nnot-{n:010}\r\n"), 5),
    full("get miss, full", |n| format!("get not-{n:010}\r\n"), 5),
    full("GET miss, full", |n| format!("*2\r\n$3\r\nGET\r\n$14\r\nnot-{n:010}\r\n"), 5),
];

/// What fills a store of [`FULL_MB`] twice, before the keys come.
const FILLS: usize = 9_000;
const FILL: Kind = kind("fill", |n| format!("set fill-{n:010} 0 0 4000\r\n{}\r\n", "f".repeat(4000)), 8);
const FULL_MB: &str = "16";

const VALUE: &str = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

/// Measures the release binary, and `--base BINARY` beside it: an error if a figure is above its by more than 1 %. Of all kinds
/// of requests, or of those that are named.
pub fn instructions(arguments: &[String]) -> Outcome {
    let (base, names) = match arguments {
        [option, path, names @ ..] if option == "--base" => (Some(Path::new(path)), names),
        names => (None, names),
    };
    if let Some(unknown) = names.iter().find(|name| KINDS.iter().all(|kind| kind.name != **name)) {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(format!(
            "{unknown}: usage: cargo xtask bench instructions [--base BINARY] [KIND…], of {}",
            known.join(", ")
        ));
    }
    debian(&[("valgrind", "valgrind")])?;
    run(cargo(&["build", "--release", "--package", "larder"]))?;
    let program = target().join("release/larder");
    println!("{:<14} {:>12} {:>12} {:>8}", "request", "instructions", "base", "ratio");
    let mut slower = Vec::new();
    let wanted = |kind: &&Kind| names.is_empty() || names.iter().any(|name| name == kind.name);
    for kind in KINDS.iter().filter(wanted) {
        let ours = per_request(&program, kind)?;
        let theirs = base.map(|base| per_request(base, kind)).transpose()?;
        let beside = theirs.map_or(String::new(), |theirs| format!("{theirs:>12.1} {:>8.3}", ours / theirs));
        println!("{:<14} {ours:>12.1} {beside}", kind.name);
        if theirs.is_some_and(|theirs| ours > theirs * TOLERANCE) {
            slower.push(kind.name);
        }
    }
    if slower.is_empty() {
        Ok(())
    } else {
        Err(format!("more instructions than before: {}", slower.join(", ")))
    }
}

/// The median of some rounds: each server hashes with a seed of its own, which is a per cent of the figure.
fn per_request(program: &Path, kind: &Kind) -> Outcome<f64> {
    let mut figures = [0.0; ROUNDS];
    for figure in &mut figures {
        let few = counted(program, kind, PIPELINES)?;
        let many = counted(program, kind, PIPELINES + PIPELINES_MORE)?;
        *figure = many.saturating_sub(few) as f64 / (PIPELINES_MORE * PIPELINE) as f64;
    }
    figures.sort_by(f64::total_cmp);
    Ok(figures[ROUNDS / 2])
}

/// Instructions of a server's whole life, in which it answers so many pipelines.
fn counted(program: &Path, kind: &Kind, pipelines: usize) -> Outcome<u64> {
    let failed = |error: std::io::Error| format!("{}, {}: {error}", program.display(), kind.name);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    drop(listener);
    let mut server = command("valgrind", &["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let memory_mb = if kind.full { FULL_MB } else { "256" };
    server.arg(program).args([
        "serve",
        "-t",
        "1",
        "-m",
        memory_mb,
        "-p",
        &port.to_string(),
        "--redis-port",
        "0",
    ]);
    // An older binary has no such port.
    if capture(command(program, &["serve", "--help"]))?.1.contains("--http-port") {
        server.args(["--http-port", "0"]);
    }
    server.args(["-o", "relaxed_privileges"]);
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let talk = talk(port, kind, pipelines).map_err(failed);
    // Its end is what says how many there were.
    capture(command("kill", &["-TERM", &server.id().to_string()]))?;
    let mut text = String::new();
    server.stderr.take().expect("it was piped").read_to_string(&mut text).map_err(failed)?;
    server.wait().map_err(failed)?;
    talk?;
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.ok_or_else(|| format!("callgrind has not said how many instructions there were:\n{text}"))
}

fn talk(port: u16, kind: &Kind, pipelines: usize) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // How hot an item is depends on the time: it stands still, so that a slow machine counts what a fast one does.
    let mut clock = TcpStream::connect(stream.peer_addr()?)?;
    clock.set_read_timeout(Some(PATIENCE))?;
    clock.write_all(b"debugtime p\r\n")?;
    clock.read_exact(&mut [0; b"OK\r\n".len()])?;
    let exchange = |stream: &mut TcpStream, requests: String, replies: usize| -> std::io::Result<()> {
        stream.write_all(requests.as_bytes())?;
        let mut reply = vec![0; replies];
        stream.read_exact(&mut reply)
    };
    // By a connection that speaks memcached's protocol, as the other may not.
    for first in (0..if kind.full { FILLS } else { 0 }).step_by(PIPELINE) {
        let requests = (first..first + PIPELINE).map(FILL.request).collect();
        exchange(&mut clock, requests, FILL.reply_bytes * PIPELINE)?;
    }
    let mut exchange = |requests, replies| exchange(&mut stream, requests, replies);
    // The keys are there, in the order in which nobody asks for them.
    let set = if (kind.request)(0).starts_with('*') { &REDIS_SET } else { &SET };
    for first in (0..KEYS).step_by(PIPELINE) {
        let requests = (first..first + PIPELINE).map(set.request).collect();
        exchange(requests, set.reply_bytes * PIPELINE)?;
    }
    let key = |n: usize| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
    for pipeline in 0..pipelines {
        let numbers = pipeline * PIPELINE..(pipeline + 1) * PIPELINE;
        exchange(numbers.map(|n| (kind.request)(key(n))).collect(), kind.reply_bytes * PIPELINE)?;
    }
    Ok(())
}
