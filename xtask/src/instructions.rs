//! `cargo xtask bench instructions`: what a pipelined request costs the server in instructions, by callgrind.
//!
//! ```text
//! server under callgrind ◄── 20,000 sets ── pipelines of 200 requests ── shutdown      counted: A
//! the same again         ◄── 20,000 sets ── 400 pipelines more        ── shutdown      counted: B
//! a request                  (B − A) / (requests of B − requests of A)
//! ```
//!
//! A is long enough for the index to have grown to its size, since a step of that growth is several instructions for each
//! request. The figure is the median of five such pairs. The server's clock stands still, and the kernel's instructions are not
//! counted. The figures of two binaries on one machine are within 1 % of each other unless their code differs, whatever else the
//! machine does. No time is as steady.
//!
//! `--watching` counts a pair instead: the release binary beside one in which runs of requests sample and follow no keys. Both hash
//! with one seed, and do no upkeep by the clock, so that they do the same otherwise, and a difference of one instruction is one.
//! What still differs from run to run (an idle look before the first connection, a pipeline that arrives in two pieces) is more
//! work, never less: A and B are each the least of five. Samples themselves are not counted: there are a few thousand a second,
//! however many requests come.
//!
//! Kinds with `, ruled` are sent by a user that may do everything with the keys of one prefix. Behind the table stands what that
//! adds to a key of the same kind without rules, where both are measured.

use crate::install::debian;
use crate::run::{Outcome, capture, cargo, command, run, target};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const KEYS: usize = 20_000;
/// Keys of a pipeline.
const PIPELINE: usize = 200;
/// Keys of the largest request, or elements.
const MANY: usize = 100;
/// Pipelines of the shorter run, after which the index no longer grows, …
const PIPELINES: usize = 600;
/// … and those that the longer run has in addition.
const PIPELINES_MORE: usize = 400;
/// Pairs of runs of which the median counts.
const ROUNDS: usize = 5;
/// How long a server under callgrind may take to start, and then to send more of its replies.
const PATIENCE: Duration = Duration::from_secs(120);
/// How far the figure of a binary may be above another's without counting as slower.
const TOLERANCE: f64 = 1.01;
/// How many instructions sampling and following keys may add to a request of these kinds.
const WATCHED: [(&str, f64); 4] = [("get", 4.0), ("set", 6.0), ("GET", 4.0), ("SET", 6.0)];
/// The end of the names of kinds that a user with rules sends.
const RULED: &str = ", ruled";
/// That user, as `--acl-user` takes it: it has the prefix of all keys here.
const USER_RULES: &str = "ruled on nopass ~key-* +@all";
/// Its login: any password is taken.
const LOGIN: [&str; 3] = ["AUTH", "ruled", "none"];

/// A kind of request.
struct Kind {
    name: &'static str,
    request: Request,
    /// Line ends in one of its replies.
    reply_lines: usize,
    /// What is stored before the first request, and how.
    filled: Filled,
    /// A script that the server gets before the requests.
    script: Option<&'static str>,
    /// Whether the store is full, and has evicted as many items as it holds.
    full: bool,
    /// Keys of a request, or elements that it gives to one key. A pipeline has [`PIPELINE`] in all.
    keys: usize,
    /// Whether a user with rules sends the requests.
    ruled: bool,
}

impl Kind {
    /// Requests of a pipeline.
    fn pipeline(&self) -> usize {
        PIPELINE / self.keys
    }
}

/// A request, made of the number of a key, which repeats, and of its own number, which does not.
type Request = fn(usize, usize) -> String;

/// What is stored before a kind is measured, and the requests for that, each with a reply of one line.
#[derive(Clone, Copy)]
enum Filled {
    /// A string for each key.
    Strings,
    /// [`COLLECTIONS`] hashes, lists, sets and sorted sets, of the kinds that the requests need.
    Collections(Request),
}

/// Number of collections that requests use. Each has 100 elements at first, a list 1100. Those that grow or shrink do so in turn,
/// by 1000 elements each.
const COLLECTIONS: usize = 200;

const fn kind(name: &'static str, request: Request, reply_lines: usize) -> Kind {
    Kind {
        name,
        request,
        reply_lines,
        filled: Filled::Strings,
        script: None,
        full: false,
        keys: 1,
        ruled: false,
    }
}

/// A kind of [`MANY`] keys a request.
const fn many(name: &'static str, request: Request, reply_lines: usize) -> Kind {
    Kind { keys: MANY, ..kind(name, request, reply_lines) }
}

/// A kind whose requests a user with rules sends.
const fn ruled(name: &'static str, of: Kind) -> Kind {
    Kind { name, ruled: true, ..of }
}

/// A kind in a store that evicts.
const fn full(name: &'static str, request: Request, reply_lines: usize) -> Kind {
    Kind { full: true, ..kind(name, request, reply_lines) }
}

/// A kind on collections.
const fn on(filled: Request, name: &'static str, request: Request, reply_lines: usize) -> Kind {
    Kind { filled: Filled::Collections(filled), ..kind(name, request, reply_lines) }
}

/// A kind of [`MANY`] elements a request.
const fn on_many(filled: Request, name: &'static str, request: Request) -> Kind {
    Kind { keys: MANY, ..on(filled, name, request, 1) }
}

/// A kind that runs a script.
const fn by(script: &'static str, name: &'static str, request: Request, reply_lines: usize) -> Kind {
    Kind { script: Some(script), ..kind(name, request, reply_lines) }
}

/// A RESP request with these words.
fn resp(words: &[&str]) -> String {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
}

/// The collection of a key, the key's place in it, and a name for that.
fn places(key: usize) -> (String, String) {
    (format!("key-{:010}", key % COLLECTIONS), format!("name-{:010}", key / COLLECTIONS))
}

const SET: Kind = kind("set", |n, _| format!("set key-{n:010} 0 0 32\r\n{VALUE}\r\n"), 1);
const REDIS_GET: Kind = kind("GET", |n, _| resp(&["GET", &format!("key-{n:010}")]), 2);
const REDIS_SET: Kind = kind("SET", |n, _| resp(&["SET", &format!("key-{n:010}"), VALUE]), 1);
/// An MGET of keys that were stored far from each other. A reply is a line with their number and two for each.
const REDIS_MGET: Kind = many(
    "MGET of 100",
    |n, _| {
        let keys: Vec<String> = (0..MANY).map(|at| format!("key-{:010}", (n + at * 7_919) % KEYS)).collect();
        let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        resp(&words)
    },
    1 + 2 * MANY,
);

const HASHES: Request = |n, _| {
    let (key, field) = places(n);
    resp(&["HSET", &key, &field, VALUE])
};
const LISTS: Request = |n, _| resp(&[&["RPUSH", &places(n).0][..], &[VALUE; 11]].concat());
const SETS: Request = |n, _| {
    let (key, member) = places(n);
    resp(&["SADD", &key, &member])
};
const SORTED_SETS: Request = |n, _| {
    let (key, member) = places(n);
    resp(&["ZADD", &key, &score(n), &member])
};

/// The name of one of the elements that a collection has at first.
fn old_name(n: usize) -> String {
    format!("name-{:010}", n % (KEYS / COLLECTIONS))
}

/// The name of the nth new element.
fn new_name(n: usize) -> String {
    format!("new-{n:010}")
}

/// A request with the words of [`MANY`] elements. New elements are others for each `turn`.
fn resp_of_many(verb: &str, turn: usize, words: fn(usize) -> Vec<String>) -> String {
    let key = places(turn).0;
    let elements: Vec<String> = (turn * MANY..(turn + 1) * MANY).flat_map(words).collect();
    let all: Vec<&str> =
        [verb, key.as_str()].into_iter().chain(elements.iter().map(String::as_str)).collect();
    resp(&all)
}

/// A score; scores come in no order.
fn score(n: usize) -> String {
    (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44).to_string()
}

/// A script of one command, and its digest.
const SCRIPT: &str = "return redis.call('GET', KEYS[1])";
const SCRIPT_DIGEST: &str = "d3c21d0c2b9ca22f82737626a27bcaf5d288f99f";

const KINDS: &[Kind] = &[
    kind("get", |n, _| format!("get key-{n:010}\r\n"), 3),
    SET,
    kind("mg v", |n, _| format!("mg key-{n:010} v\r\n"), 2),
    kind("ms", |n, _| format!("ms key-{n:010} 32\r\n{VALUE}\r\n"), 1),
    REDIS_GET,
    ruled("GET, ruled", REDIS_GET),
    REDIS_SET,
    REDIS_MGET,
    ruled("MGET of 100, ruled", REDIS_MGET),
    kind("get miss", |n, _| format!("get not-{n:010}\r\n"), 1),
    kind("GET miss", |n, _| resp(&["GET", &format!("not-{n:010}")]), 1),
    full("get miss, full", |n, _| format!("get not-{n:010}\r\n"), 1),
    full("GET miss, full", |n, _| resp(&["GET", &format!("not-{n:010}")]), 1),
    on(
        HASHES,
        "HGET",
        |n, _| {
            let (key, field) = places(n);
            resp(&["HGET", &key, &field])
        },
        2,
    ),
    on(
        HASHES,
        "HSET",
        |n, turn| {
            let (key, field) = places(n);
            resp(&["HSET", &key, &field, &format!("value-{turn:026}")])
        },
        1,
    ),
    on(HASHES, "HSET new", |_, turn| resp(&["HSET", &places(turn).0, &new_name(turn), VALUE]), 1),
    on_many(HASHES, "HSET of 100", |_, turn| {
        resp_of_many("HSET", turn, |n| vec![old_name(n), format!("value-{n:026}")])
    }),
    on_many(HASHES, "HSET of 100 new", |_, turn| {
        resp_of_many("HSET", turn, |n| vec![new_name(n), VALUE.to_owned()])
    }),
    on(LISTS, "LPUSH", |_, turn| resp(&["LPUSH", &places(turn).0, VALUE]), 1),
    on(LISTS, "LPOP", |_, turn| resp(&["LPOP", &places(turn).0]), 2),
    on(SETS, "SADD new", |_, turn| resp(&["SADD", &places(turn).0, &new_name(turn)]), 1),
    on_many(SETS, "SADD of 100 new", |_, turn| resp_of_many("SADD", turn, |n| vec![new_name(n)])),
    on(
        SORTED_SETS,
        "ZADD",
        |n, turn| {
            let (key, member) = places(n);
            resp(&["ZADD", &key, &score(turn), &member])
        },
        1,
    ),
    on(SORTED_SETS, "ZADD new", |_, turn| resp(&["ZADD", &places(turn).0, &score(turn), &new_name(turn)]), 1),
    on_many(SORTED_SETS, "ZADD of 100", |_, turn| {
        resp_of_many("ZADD", turn, |n| vec![score(n), old_name(n)])
    }),
    on_many(SORTED_SETS, "ZADD of 100 new", |_, turn| {
        resp_of_many("ZADD", turn, |n| vec![score(n), new_name(n)])
    }),
    by(SCRIPT, "EVALSHA", |n, _| resp(&["EVALSHA", SCRIPT_DIGEST, "1", &format!("key-{n:010}")]), 2),
];

/// Requests that fill a store of [`FULL_MB`] twice before the keys are stored.
const FILLS: usize = 9_000;
const FILL: Kind = kind("fill", |n, _| format!("set fill-{n:010} 0 0 4000\r\n{}\r\n", "f".repeat(4000)), 1);
const FULL_MB: &str = "16";

const VALUE: &str = "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

/// Measures the release binary, and `--base BINARY` beside it, for all kinds of requests or the named ones. Fails if a figure is
/// more than 1 % above the base's. `--watching` measures what sampling and following keys adds.
pub fn instructions(arguments: &[String]) -> Outcome {
    if let [option, names @ ..] = arguments
        && option == "--watching"
    {
        return watching(names);
    }
    let (base, names) = match arguments {
        [option, path, names @ ..] if option == "--base" => (Some(Path::new(path)), names),
        names => (None, names),
    };
    if let Some(unknown) = names.iter().find(|name| KINDS.iter().all(|kind| kind.name != **name)) {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(format!(
            "{unknown}: usage: cargo xtask bench instructions [--base BINARY | --watching] [KIND…], of {}",
            known.join(", ")
        ));
    }
    debian(&[("valgrind", "valgrind")])?;
    run(cargo(&["build", "--release", "--package", "larder"]))?;
    let program = target().join("release/larder");
    println!("{:<18} {:>12} {:>12} {:>8}", "request", "instructions", "base", "ratio");
    let (mut slower, mut figures) = (Vec::new(), Vec::new());
    let wanted = |kind: &&Kind| names.is_empty() || names.iter().any(|name| name == kind.name);
    for kind in KINDS.iter().filter(wanted) {
        let ours = per_request(&program, kind)?;
        let theirs = match base {
            // An older binary has no rules.
            Some(base) if !kind.ruled || knows(base, "--acl-user")? => Some(per_request(base, kind)?),
            Some(_) | None => None,
        };
        let beside = theirs.map_or(String::new(), |theirs| format!("{theirs:>12.1} {:>8.3}", ours / theirs));
        println!("{:<18} {ours:>12.1} {beside}", kind.name);
        figures.push((kind, ours));
        if theirs.is_some_and(|theirs| ours > theirs * TOLERANCE) {
            slower.push(kind.name);
        }
    }
    rules_cost(&figures).iter().for_each(|line| println!("{line}"));
    if slower.is_empty() {
        Ok(())
    } else {
        Err(format!("more instructions than before: {}", slower.join(", ")))
    }
}

/// What rules add to a key, in a line for each kind that was measured with and without.
fn rules_cost(figures: &[(&Kind, f64)]) -> Vec<String> {
    let cost = |(ruled, with): &(&Kind, f64)| {
        let name = ruled.name.strip_suffix(RULED)?;
        let (_, without) = figures.iter().find(|(kind, _)| kind.name == name)?;
        let more = (with - without) / ruled.keys as f64;
        Some(format!("{name}: rules add {more:.1} instructions to a key"))
    };
    figures.iter().filter_map(cost).collect()
}

/// Whether a binary knows an option of `serve`.
fn knows(program: &Path, option: &str) -> Outcome<bool> {
    Ok(capture(command(program, &["serve", "--help"]))?.1.contains(option))
}

/// Measures the kinds of [`WATCHED`], or the named ones of them, with and without samples of traffic. Fails if samples add more
/// to one than they may.
fn watching(names: &[String]) -> Outcome {
    if let Some(unknown) = names.iter().find(|name| WATCHED.iter().all(|(kind, _)| kind != name)) {
        let known: Vec<&str> = WATCHED.iter().map(|(kind, _)| *kind).collect();
        return Err(format!("{unknown}: with --watching there are {}", known.join(", ")));
    }
    debian(&[("valgrind", "valgrind")])?;
    let (with, without) = (built_as("counted")?, built_as("unwatched")?);
    println!("{:<14} {:>12} {:>12} {:>8} {:>8}", "request", "with", "without", "more", "at most");
    let mut over = Vec::new();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
    for (name, most) in WATCHED.into_iter().filter(|(name, _)| wanted(name)) {
        let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else { continue };
        let (with, without) = (least_per_request(&with, kind)?, least_per_request(&without, kind)?);
        let more = with - without;
        println!("{name:<14} {with:>12.1} {without:>12.1} {more:>8.1} {most:>8.1}");
        if more > most {
            over.push(name);
        }
    }
    if over.is_empty() {
        Ok(())
    } else {
        Err(format!("watching costs more instructions than it may: {}", over.join(", ")))
    }
}

/// Builds the release binary with a feature of the server, in a folder of its own.
fn built_as(feature: &str) -> Outcome<PathBuf> {
    let (features, folder) = (format!("larder-server/{feature}"), target().join(feature));
    let mut build = cargo(&["build", "--release", "--package", "larder", "--features", &features]);
    build.arg("--target-dir").arg(&folder);
    run(build)?;
    Ok(folder.join("release/larder"))
}

/// Instructions of a request, the median of several rounds: the seed of a server's hashes changes them by a per cent.
fn per_request(program: &Path, kind: &Kind) -> Outcome<f64> {
    let mut figures = [0.0; ROUNDS];
    for figure in &mut figures {
        let few = counted(program, kind, PIPELINES)?;
        let many = counted(program, kind, PIPELINES + PIPELINES_MORE)?;
        *figure = of_a_request(few, many, kind);
    }
    figures.sort_by(f64::total_cmp);
    Ok(figures[ROUNDS / 2])
}

/// Instructions of a request where all servers hash with one seed: by the least count of the shorter and of the longer runs.
fn least_per_request(program: &Path, kind: &Kind) -> Outcome<f64> {
    let (mut few, mut many) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        few = few.min(counted(program, kind, PIPELINES)?);
        many = many.min(counted(program, kind, PIPELINES + PIPELINES_MORE)?);
    }
    Ok(of_a_request(few, many, kind))
}

/// What a request takes, by the instructions of a shorter and a longer run.
fn of_a_request(few: u64, many: u64, kind: &Kind) -> f64 {
    many.saturating_sub(few) as f64 / (PIPELINES_MORE * kind.pipeline()) as f64
}

/// Instructions of a server's whole life with this many pipelines.
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
    // An older binary does not have such a port.
    if knows(program, "--http-port")? {
        server.args(["--http-port", "0"]);
    }
    if kind.ruled {
        server.args(["--acl-user", USER_RULES]);
    }
    server.args(["-o", "relaxed_privileges"]);
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let talk = talk(port, kind, pipelines).map_err(failed);
    // callgrind reports the count when the server ends.
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
    // How hot an item is depends on the time. The clock stands still, so that slow and fast machines count the same.
    let mut clock = TcpStream::connect(stream.peer_addr()?)?;
    clock.set_read_timeout(Some(PATIENCE))?;
    clock.write_all(b"debugtime p\r\n")?;
    clock.read_exact(&mut [0; b"OK\r\n".len()])?;
    let exchange = |stream: &mut TcpStream, requests: String, lines: usize| -> std::io::Result<()> {
        stream.write_all(requests.as_bytes())?;
        let (mut seen, mut last, mut bytes) = (0, b'\n', [0; 1 << 16]);
        while seen < lines {
            let read = stream.read(&mut bytes)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            for byte in &bytes[..read] {
                // An error is one line, too, and would pass for a reply.
                if last == b'\n' && *byte == b'-' {
                    return Err(std::io::Error::other(bytes[..read].escape_ascii().to_string()));
                }
                seen += usize::from(*byte == b'\n');
                last = *byte;
            }
        }
        Ok(())
    };
    // The store is filled by a connection that speaks memcached's protocol, since the other may speak RESP.
    for first in (0..if kind.full { FILLS } else { 0 }).step_by(PIPELINE) {
        let requests = (first..first + PIPELINE).map(|n| (FILL.request)(n, n)).collect();
        exchange(&mut clock, requests, FILL.reply_lines * PIPELINE)?;
    }
    let mut exchange = |requests, replies| exchange(&mut stream, requests, replies);
    if kind.ruled {
        exchange(resp(&LOGIN), 1)?;
    }
    if let Some(script) = kind.script {
        exchange(resp(&["SCRIPT", "LOAD", script]), 2)?;
    }
    // Stores the keys in another order than requests use them.
    let fill = match kind.filled {
        Filled::Collections(fill) => fill,
        Filled::Strings if (kind.request)(0, 0).starts_with('*') => REDIS_SET.request,
        Filled::Strings => SET.request,
    };
    for first in (0..KEYS).step_by(PIPELINE) {
        let requests = (first..first + PIPELINE).map(|n| fill(n, n)).collect();
        exchange(requests, PIPELINE)?;
    }
    let key = |n: usize| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
    let requests = kind.pipeline();
    for pipeline in 0..pipelines {
        let numbers = pipeline * requests..(pipeline + 1) * requests;
        exchange(numbers.map(|n| (kind.request)(key(n), n)).collect(), kind.reply_lines * requests)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests are well-formed: as many words as announced, each with the announced length.
    #[test]
    fn every_request_of_resp_is_whole() {
        for kind in KINDS {
            let fill = match kind.filled {
                Filled::Collections(fill) => fill,
                Filled::Strings => REDIS_SET.request,
            };
            for request in [(kind.request)(KEYS - 1, 123_456), fill(7, 7)] {
                let Some(rest) = request.strip_prefix('*') else { continue };
                let mut lines = rest.split_terminator("\r\n");
                let words: usize =
                    lines.next().and_then(|line| line.parse().ok()).expect("a number of words");
                for _ in 0..words {
                    let length = lines.next().and_then(|line| line.strip_prefix('$')).expect("a length");
                    assert_eq!(lines.next().map(str::len), length.parse().ok(), "{request:?}");
                }
                assert_eq!(lines.next(), None, "{request:?}");
            }
        }
    }

    /// A pipeline has as many keys whatever its requests are, and each kind with rules has one without them.
    #[test]
    fn kinds_with_rules_are_others_by_a_user_that_may_use_their_keys() {
        for kind in KINDS {
            assert_eq!(kind.pipeline() * kind.keys, PIPELINE, "{}", kind.name);
            assert_eq!(kind.ruled, kind.name.ends_with(RULED), "{}", kind.name);
        }
        let ruled: Vec<&Kind> = KINDS.iter().filter(|kind| kind.ruled).collect();
        assert_eq!(ruled.len(), 2);
        for kind in ruled {
            let words = (kind.request)(7, 7);
            let keys: Vec<&str> = words.lines().filter(|line| line.starts_with("key-")).collect();
            assert_eq!(keys.len(), kind.keys, "{words}");
        }
        assert!(USER_RULES.starts_with(LOGIN[1]) && USER_RULES.contains(" ~key-* "));
    }

    #[test]
    fn rules_cost_what_a_kind_has_more_with_them_for_each_key() {
        let of = |name: &str| KINDS.iter().find(|kind| kind.name == name).expect("a kind");
        let figures =
            [(of("MGET of 100"), 30_000.0), (of("MGET of 100, ruled"), 32_050.0), (of("GET, ruled"), 400.0)];
        assert_eq!(rules_cost(&figures), ["MGET of 100: rules add 20.5 instructions to a key"]);
    }

    /// A request is what the longer run has more, by as many requests as it has more.
    #[test]
    fn a_request_takes_what_the_longer_run_has_more_of() {
        let of = |name: &str| KINDS.iter().find(|kind| kind.name == name).expect("a kind");
        let more = (PIPELINES_MORE * PIPELINE) as u64;
        let told = |few, many, name| format!("{:.1}", of_a_request(few, many, of(name)));
        assert_eq!(told(5_000_000, 5_000_000 + 600 * more, "GET"), "600.0");
        assert_eq!(told(5_000_000, 5_000_000 + 600 * more, "MGET of 100"), "60000.0");
        assert_eq!(told(5_000_001, 5_000_000, "GET"), "0.0");
    }

    /// What is promised names kinds that exist, and only those that are promised are taken.
    #[test]
    fn kinds_that_are_watched_are_kinds() {
        assert!(WATCHED.iter().all(|(name, _)| KINDS.iter().any(|kind| kind.name == *name)));
        assert!(watching(&["get".to_owned(), "HGET".to_owned()]).unwrap_err().contains("HGET"));
    }

    /// No list is empty at the end, and no growing collection becomes so large that requests do another kind of work.
    #[test]
    fn lists_last_for_all_that_is_popped() {
        let requests = (PIPELINES + PIPELINES_MORE) * PIPELINE;
        assert_eq!(KEYS % COLLECTIONS, 0);
        assert!(KEYS / COLLECTIONS * 11 > requests / COLLECTIONS);
    }
}
