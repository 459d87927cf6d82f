//! The transcripts' commands in scripts: one server runs each command itself, the other one runs it by a
//! script. The replies are the same, and so are the values afterwards.

use larder_commands::redis::row::{Command, flag};
use larder_commands::redis::table::REDIS;
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::pattern::Captures;
use larder_testkit::talk::encode;
use larder_testkit::transcript::{Action, Case, load};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Commands that pick an arbitrary element.
const PICKS: &[&str] = &["spop", "srandmember", "hrandfield", "zrandmember", "randomkey"];
/// Commands whose replies depend on the moment, or on earlier commands.
const UNEQUAL: &[&str] = &["object", "memory", "scan", "sscan", "hscan", "zscan", "touch"];
/// Cases in which scripts get other replies, and why.
const OTHERWISE: &[(&str, &str)] = &[
    ("a pause has writes wait, and can be ended", "a script may write, and waits"),
    ("many arguments are no limit, an odd number of pairs is one of arity", "Lua has some thousands"),
    ("the last millisecond that can be written is an expiry", "Lua's numbers have 53 bits"),
    ("a RESP2 client that listens may say little else", "it is EVAL that may not be said"),
    ("RESP3 tells scores as doubles, and pairs apart", "an array ends at the first nil"),
    ("in RESP3 coordinates are doubles, and distances texts", "an array ends at the first nil"),
    ("commands, keys and channels are refused in this order", "a script is told so in other words"),
];
/// Commands that no transcript sends as words alone: no script calls them here.
const UNSAID: &[&str] = &["append", "substr", "setrange", "flushdb", "time"];
/// Commands without keys that scripts call here, too.
const BESIDES: &[&str] = &["ping", "echo", "publish", "time"];

/// One of the two servers.
struct Side {
    local: Local,
    connections: BTreeMap<String, LocalConnection>,
}

impl Side {
    fn new() -> Side {
        Side { local: Local::with_debug().expect("a server"), connections: BTreeMap::new() }
    }

    fn ask(&mut self, name: &str, request: &[u8]) -> Vec<u8> {
        let connection = self.connections.entry(name.to_owned()).or_insert_with(|| self.local.connection());
        self.local.exchange(connection, request);
        let sent = connection.sent().to_vec();
        connection.forget();
        sent
    }
}

/// The words of a request.
type Words = Vec<Vec<u8>>;

fn row_of(words: &Words) -> Option<&'static Command> {
    let name = String::from_utf8_lossy(words.first()?).to_ascii_lowercase();
    REDIS.iter().flat_map(|group| group.rows).find(|row| row.name == name)
}

/// True if a script can call the command, and must get the same reply as a client.
fn is_called(row: &Command) -> bool {
    (row.has(flag::WRITE | flag::READONLY) || BESIDES.contains(&row.name))
        && !row.has(flag::NOSCRIPT | flag::BLOCKING)
        && row.subcommands().is_empty()
        && !UNEQUAL.contains(&row.name)
}

/// The lines of a reply, sorted, and with one form of nil: in Lua sets and maps have no order.
fn lines(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(reply).replace("*-1\r\n", "$-1\r\n");
    let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The bytes before the next end of a line, and the bytes behind it.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

fn number(line: &[u8], kind: u8) -> Option<usize> {
    let digits = line.strip_prefix(&[kind])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The requests in a step of a case; none if one of them is incomplete, or is written in quotes.
fn requests(mut bytes: &[u8]) -> Option<Vec<Words>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (first, mut rest) = line(bytes)?;
        let mut words = Words::new();
        if first.starts_with(b"*") {
            for _ in 0..number(first, b'*')? {
                let (head, behind) = line(rest)?;
                let count = number(head, b'$')?;
                words.push(behind.get(..count)?.to_vec());
                rest = behind.get(count + 2..)?;
            }
        } else if first.iter().any(|byte| b"\"'\\\n".contains(byte)) {
            return None;
        } else {
            words.extend(
                first.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(<[u8]>::to_vec),
            );
        }
        if !words.is_empty() {
            all.push(words);
        }
        bytes = rest;
    }
    Some(all)
}

/// Encodes a request: `words`, and `rest` behind them.
fn sent(words: &[&[u8]], rest: &Words) -> Vec<u8> {
    let all: Vec<&[u8]> = words.iter().copied().chain(rest.iter().map(Vec::as_slice)).collect();
    encode(&all)
}

/// Runs a case on both servers; adds the rows that scripts called.
fn both(case: &Case, called: &mut BTreeSet<&'static str>) -> Result<(), String> {
    let (mut plain, mut scripts) = (Side::new(), Side::new());
    let (mut queues, mut resp3) = (BTreeSet::new(), BTreeSet::new());
    for step in &case.steps {
        let name = &step.connection;
        let bytes = match &step.action {
            Action::Send(pattern) => pattern.render(&Captures::new()).ok(),
            Action::Clock(seconds) => {
                plain.local.shift(*seconds as i64 * 1000);
                scripts.local.shift(*seconds as i64 * 1000);
                continue;
            }
            _ => continue,
        };
        // Incomplete requests, and those with parts of earlier replies, have other tests.
        let Some(all) = bytes.as_deref().and_then(requests) else { return Ok(()) };
        for words in all {
            let row = row_of(&words);
            match row.map(|row| row.name) {
                Some("multi") => drop(queues.insert(name.clone())),
                Some("exec" | "discard" | "reset") => drop(queues.remove(name)),
                Some("hello") if words.get(1).is_some_and(|word| word == b"3") => {
                    resp3.insert(name.clone());
                }
                Some("hello") => drop(resp3.remove(name)),
                _ => {}
            }
            let request = sent(&[], &words);
            let expected = plain.ask(name, &request);
            let found = match row.filter(|row| is_called(row) && row.takes(words.len())) {
                Some(row) if !queues.contains(name) => {
                    called.insert(row.name);
                    let resp = if resp3.contains(name) { 3 } else { 2 };
                    let script = format!("redis.setresp({resp}) return redis.pcall(unpack(ARGV))");
                    scripts.ask(name, &sent(&[b"EVAL", script.as_bytes(), b"0"], &words))
                }
                _ => scripts.ask(name, &request),
            };
            let is_pick = row.is_some_and(|row| PICKS.contains(&row.name));
            let is_time = row.is_none_or(|row| !is_called(row)) || row.is_some_and(|row| row.name == "time");
            if !is_pick && !is_time && lines(&expected) != lines(&found) {
                if OTHERWISE.iter().any(|(title, _)| *title == case.title) {
                    return Ok(());
                }
                let (said, told) = (String::from_utf8_lossy(&expected), String::from_utf8_lossy(&found));
                let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                return Err(format!("{}: line {}: {words:?}: {said:?} and {told:?}", case.name(), step.line));
            }
            if is_pick {
                // The servers may have picked different elements: nothing behind that can be compared.
                return Ok(());
            }
        }
    }
    let digest = encode(&[b"DEBUG", b"DIGEST"]);
    let (one, other) = (plain.ask("digest", &digest), scripts.ask("digest", &digest));
    if one == other { Ok(()) } else { Err(format!("{}: other values behind it", case.name())) }
}

#[test]
fn commands_mean_in_scripts_what_they_mean_outside() {
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec");
    let cases = load(&spec).expect("the transcripts parse");
    let cases = cases.iter().filter(|case| case.resp && !case.process_only && case.options.is_empty());
    let mut called = BTreeSet::new();
    let failures: Vec<String> = cases.filter_map(|case| both(case, &mut called).err()).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    let rows = REDIS.iter().flat_map(|group| group.rows).filter(|row| is_called(row));
    // Scripts must have called every command that they can call, except [`UNSAID`].
    let missing: Vec<&str> =
        rows.map(|row| row.name).filter(|name| !called.contains(name) && !UNSAID.contains(name)).collect();
    assert!(missing.is_empty(), "no script called {missing:?}");
}
