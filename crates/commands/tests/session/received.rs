//! A list's element, a field's value or a set's member that is the one long word of its request: it is
//! received into its parts.

use crate::apart::{array, bulk, job};
use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Next, Session, Settings};
use larder_store::Store;
use std::sync::Arc;

/// Bytes of an element in each part but the last.
const PART: usize = 16_352;

/// The words before a received element or value, and the command that reads it.
const BEHIND: [(&[&str], &str); 2] = [(&["RPUSH", "k"], "LINDEX k 0"), (&["HSET", "k", "f"], "HGET k f")];
const TOO_LARGE: &str = "-ERR collection exceeds maximum allowed size";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

/// A text of so many bytes that is made fast. No two parts of it begin alike.
pub(crate) fn long(bytes: usize) -> String {
    const TEXT_BYTES: usize = 99_991;
    let mut text = job(TEXT_BYTES).repeat(bytes / TEXT_BYTES + 1);
    text.truncate(bytes);
    text
}

/// Bytes that are charged when `there` of an element's `bytes` have come: whole parts.
fn charged(there: usize, bytes: usize) -> u64 {
    (there.div_ceil(PART) * PART).min(bytes) as u64
}

/// A request in two halves, the first of which ends after `there` bytes of its last word.
pub(crate) fn halves(words: &[&str], there: usize) -> (Vec<u8>, Vec<u8>) {
    let mut one = command(words);
    let other = one.split_off(one.len() - 2 - words.last().map_or(0, |word| word.len()) + there);
    (one, other)
}

/// A session that has received the first half of a request.
pub(crate) fn begun(bench: &mut Bench, half: &[u8]) -> Session {
    let mut session = Session::new();
    assert_eq!(bench.turn(&mut session, half), (Next::Receive, Vec::new()));
    session
}

pub(crate) fn replied(bench: &mut Bench, session: &mut Session, sent: &[u8]) -> String {
    String::from_utf8(bench.turns(session, sent).0).expect("text")
}

pub(crate) fn checked(bench: Bench) {
    let store = Arc::clone(bench.worker.store());
    drop(bench);
    assert_eq!(store.input_bytes(), 0);
    store.check();
}

#[test]
fn an_element_arrives_in_any_pieces_and_is_whole() {
    let mut bench = bench();
    for bytes in [32_768, 3 * PART - 1, 3 * PART, 3 * PART + 1, 100_000] {
        let element = job(bytes);
        // Also cut at each byte.
        let steps: &[usize] =
            if bytes == 32_768 { &[1, 2, 3, 7, 16_353] } else { &[997, PART, PART + 16, 70_000] };
        for &step in steps {
            for (verb, end) in [("LPUSH", "0"), ("LPUSHX", "0"), ("RPUSH", "-1"), ("RPUSHX", "-1")] {
                let request = command(&[verb, "k", &element]);
                let alone = if verb.ends_with('X') { ":0\r\n" } else { ":1\r\n" };
                let run = |bench: &mut Bench, expected: &str| {
                    let (replies, closed) = bench.run(&mut Session::new(), &request, step);
                    assert_eq!((&*String::from_utf8_lossy(&replies), closed), (expected, false));
                };
                run(&mut bench, alone);
                assert_eq!(bench.reply("EXISTS k"), alone.as_bytes(), "{verb} of {bytes} by {step}");
                bench.reply("DEL k");
                bench.reply("RPUSH k a b");
                run(&mut bench, ":3\r\n");
                assert!(bench.reply(&format!("LINDEX k {end}")) == bulk(&element).as_bytes());
                run(&mut bench, ":4\r\n");
                assert!(bench.reply(&format!("LPOS k {element} COUNT 0")).starts_with(b"*2\r\n"));
                assert_eq!(bench.reply("DEL k"), b":1\r\n");
            }
        }
    }
    checked(bench);
}

#[test]
fn an_element_on_its_way_in_is_charged_piece_by_piece_and_given_back_where_its_client_goes() {
    let mut bench = bench();
    bench.reply("RPUSH k a");
    let store = Arc::clone(bench.worker.store());
    let before = store.totals().item_bytes;
    let element = job(100_000);
    for there in [0, 1, PART - 1, PART, PART + 1, 99_999, 100_000] {
        let (one, other) = halves(&["LPUSH", "k", &element], there);
        let session = begun(&mut bench, &one);
        let held = charged(there, element.len());
        assert_eq!((store.input_bytes(), session.input_bytes()), (held, held.max(1)), "{there}");
        assert!(session.awaits_rest());
        drop(session);
        assert_eq!((store.input_bytes(), store.totals().item_bytes), (0, before), "{there}");
        // A client that stays gets its reply.
        let mut session = begun(&mut bench, &one);
        assert_eq!(replied(&mut bench, &mut session, &other), ":2\r\n");
        assert_eq!((store.input_bytes(), session.input_bytes()), (0, 0));
        assert!(bench.reply("LPOP k") == bulk(&element).as_bytes());
        for _ in 0..200 {
            bench.worker.enter(bench.system).maintain();
        }
        assert_eq!(store.totals().item_bytes, before, "{there}");
    }
    checked(bench);
}

fn item_bytes(store: &Store) -> u64 {
    store.totals().item_bytes
}

#[test]
fn an_element_for_a_key_of_another_type_is_refused_behind_it_and_takes_no_memory() {
    for make in ["SET k v", "SADD k v", "HSET k f v", "ZADD k 1 v", "XADD k * f v"] {
        let mut bench = bench();
        bench.reply(make);
        let store = Arc::clone(bench.worker.store());
        let before = item_bytes(&store);
        let (one, mut other) = halves(&["RPUSH", "k", &job(100_000)], 50_000);
        let mut session = begun(&mut bench, &one);
        assert_eq!((store.input_bytes(), item_bytes(&store)), (0, before), "{make}");
        other.extend(command(&["ECHO", "hi"]));
        assert_eq!(replied(&mut bench, &mut session, &other), format!("{WRONG_TYPE}$2\r\nhi\r\n"), "{make}");
        let stats = String::from_utf8(bench.reply("INFO commandstats")).expect("text");
        let line = stats.lines().find(|line| line.starts_with("cmdstat_rpush:calls=1,")).expect("a line");
        assert!(line.ends_with("rejected_calls=0,failed_calls=1"), "{line}");
        checked(bench);
    }
}

/// The pause begins before the request's head is received, or after it.
#[test]
fn an_element_for_a_key_of_another_type_is_refused_behind_a_pause() {
    for begins in [false, true] {
        let mut bench = bench();
        bench.reply("SET k v");
        let store = Arc::clone(bench.worker.store());
        let (one, other) = halves(&["RPUSH", "k", &job(100_000)], 50_000);
        let pause = |bench: &mut Bench| assert_eq!(bench.reply("CLIENT PAUSE 100000 WRITE"), b"+OK\r\n");
        if begins {
            pause(&mut bench);
        }
        let mut session = begun(&mut bench, &one);
        // A pause forbids a look at the key, so the element is received.
        assert_eq!(store.input_bytes(), if begins { charged(50_000, 100_000) } else { 0 });
        if !begins {
            pause(&mut bench);
        }
        let (next, said, consumed) = bench.call(&mut session, &other);
        assert!(matches!(next, Next::Sleep(_)) && said.is_empty(), "{begins}: {next:?}");
        assert_eq!(bench.reply("CLIENT UNPAUSE"), b"+OK\r\n");
        assert_eq!(replied(&mut bench, &mut session, &other[consumed..]), WRONG_TYPE, "{begins}");
        let clients = String::from_utf8(bench.reply("INFO clients")).expect("text");
        assert!(clients.contains("blocked_clients:0\r\n"), "{clients}");
        drop(session);
        checked(bench);
    }
}

#[test]
fn a_key_that_has_become_another_type_meanwhile_is_as_it_was_set() {
    let mut bench = bench();
    let store = Arc::clone(bench.worker.store());
    let (one, other) = halves(&["RPUSH", "k", &job(100_000)], 50_000);
    let mut session = begun(&mut bench, &one);
    assert_eq!(store.input_bytes(), charged(50_000, 100_000));
    assert_eq!(bench.reply("SET k v"), b"+OK\r\n");
    assert_eq!(replied(&mut bench, &mut session, &other), WRONG_TYPE);
    assert_eq!(bench.reply("GET k"), b"$1\r\nv\r\n");
    // A key that has gone meanwhile is created anew.
    bench.reply("DEL k");
    bench.reply("RPUSH k a");
    let mut session = begun(&mut bench, &one);
    bench.reply("DEL k");
    assert_eq!(replied(&mut bench, &mut session, &other), ":1\r\n");
    checked(bench);
}

/// The limits are those of a string: `proto-max-bulk-len`, and half of the memory. A longer word is a
/// protocol error.
#[test]
fn an_element_and_a_value_that_are_received_may_have_what_a_word_may() {
    for (mebibytes, limit, most) in [(64, Some("5242880"), 5 << 20), (16, None, 8 << 20)] {
        for (bytes, is_taken) in [(most - 1, true), (most, true), (most + 1, false)] {
            let element = long(bytes);
            for (words, read) in BEHIND {
                let mut bench = Bench::of(Settings::default(), mebibytes << 20);
                if let Some(limit) = limit {
                    assert_eq!(bench.reply(&format!("CONFIG SET proto-max-bulk-len {limit}")), b"+OK\r\n");
                }
                let words: Vec<&str> = words.iter().copied().chain([&*element]).collect();
                if is_taken {
                    let (one, other) = halves(&words, 2 << 20);
                    let mut session = begun(&mut bench, &one);
                    assert_eq!(replied(&mut bench, &mut session, &other), ":1\r\n", "{bytes}");
                    assert!(bench.reply(read) == bulk(&element).as_bytes(), "{bytes}");
                } else {
                    let (replies, closed) = bench.run(&mut Session::new(), &command(&words), 1 << 20);
                    let refused = "-ERR Protocol error: invalid bulk length\r\n";
                    assert_eq!((&*String::from_utf8_lossy(&replies), closed), (refused, true), "{bytes}");
                    assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
                }
                checked(bench);
            }
        }
    }
}

/// With enough memory, an element of up to 64 MiB is received. A longer one is gathered, and refused when it
/// is whole.
#[test]
fn an_element_is_received_if_it_has_no_more_than_64_mebibytes() {
    const COME: usize = 100_000;
    let most = 64 << 20;
    for (bytes, is_received) in [(most - 1, true), (most, true), (most + 1, false)] {
        for head in ["*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n", "*4\r\n$4\r\nHSET\r\n$1\r\nk\r\n$1\r\nf\r\n"] {
            let settings = Settings { append_bytes_max: 128 << 20, ..Settings::default() };
            let mut bench = Bench::of(settings, 256 << 20);
            let store = Arc::clone(bench.worker.store());
            let sent = format!("{head}${bytes}\r\n{}", long(COME));
            let session = begun(&mut bench, sent.as_bytes());
            assert_eq!(store.input_bytes() == charged(COME, bytes), is_received, "{bytes}");
            drop(session);
            checked(bench);
        }
    }
}

/// An element that is copied may have 4 MiB, although a received one may have more.
#[test]
fn an_element_behind_a_long_word_may_have_4_mebibytes() {
    let mut bench = Bench::new(Settings { append_bytes_max: 32 << 20, ..Settings::default() });
    for (bytes, is_taken) in [((4 << 20) - 1, true), (4 << 20, true), ((4 << 20) + 1, false)] {
        let element = long(bytes);
        // A word that is too long to be kept while the element comes.
        let (one, other) = halves(&["RPUSH", "k", &"a".repeat(65), &element], 2 << 20);
        let mut session = begun(&mut bench, &one);
        let reply = replied(&mut bench, &mut session, &other);
        if is_taken {
            assert_eq!(reply, ":2\r\n", "{bytes}");
            assert_eq!(bench.reply(&format!("LPOS k {element}")), b":1\r\n");
            assert_eq!(bench.reply("DEL k"), b":1\r\n");
        } else {
            assert!(reply.starts_with(TOO_LARGE), "{bytes}: {reply}");
            assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
        }
    }
    checked(bench);
}

#[test]
fn an_element_that_has_come_serves_a_client_that_waits() {
    let mut bench = bench();
    let element = job(200_000);
    let mut waiter = Session::new();
    let sent = bench.asked("BLPOP k 0");
    assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
    let (one, other) = halves(&["RPUSH", "k", &element], 100_000);
    let mut session = begun(&mut bench, &one);
    assert_eq!(replied(&mut bench, &mut session, &other), ":1\r\n");
    assert!(replied(&mut bench, &mut waiter, b"") == array(&["k", &element]));
    assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
    drop((session, waiter));
    checked(bench);
}

/// An event that is enabled while the element comes is published once.
#[test]
fn an_element_that_has_come_is_told_of() {
    let mut bench = bench();
    let (one, other) = halves(&["LPUSH", "k", &job(100_000)], 50_000);
    let mut session = begun(&mut bench, &one);
    let mut listens = Session::new();
    bench.turns(&mut listens, &command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]));
    bench.turns(&mut listens, &command(&["PSUBSCRIBE", "__keyevent@0__:*"]));
    assert_eq!(replied(&mut bench, &mut session, &other), ":1\r\n");
    let heard = replied(&mut bench, &mut listens, &command(&["PING"]));
    assert!(heard.contains("__keyevent@0__:lpush\r\n"), "{heard}");
    assert_eq!(heard.matches("pmessage").count(), 1, "{heard}");
    drop((session, listens));
    checked(bench);
}

/// By each command that sets one field, in any pieces. A field that is set loses its former value and its
/// expiry.
#[test]
fn a_value_of_a_field_arrives_in_any_pieces_and_is_whole() {
    let mut bench = bench();
    // The longer name is too long to be kept while its value comes.
    let (value, long, longer) = (job(50_000), "f".repeat(64), "f".repeat(65));
    let ok = "+OK\r\n";
    for (verb, new, old) in [("HSET", ":1\r\n", ":0\r\n"), ("HMSET", ok, ok), ("HSETNX", ":1\r\n", ":0\r\n")]
    {
        for field in ["", "f", long.as_str(), longer.as_str()] {
            let request = command(&[verb, "k", field, &value]);
            for step in [1, 997, PART, 40_000] {
                let run = |bench: &mut Bench, expected: &str| {
                    let (replies, closed) = bench.run(&mut Session::new(), &request, step);
                    assert_eq!((&*String::from_utf8_lossy(&replies), closed), (expected, false), "{verb}");
                };
                run(&mut bench, new);
                assert!(bench.reply(&format!("HGET k {field}")) == bulk(&value).as_bytes());
                run(&mut bench, old);
                bench.reply(&format!("HSET k {field} short other b"));
                assert_eq!(bench.reply(&format!("HEXPIRE k 100 FIELDS 1 {field}")), b"*1\r\n:1\r\n");
                run(&mut bench, old);
                let (there, expires) = if verb == "HSETNX" { ("short", ":100") } else { (&*value, ":-1") };
                assert!(bench.reply(&format!("HGET k {field}")) == bulk(there).as_bytes(), "{verb}");
                let time = format!("*1\r\n{expires}\r\n");
                assert_eq!(bench.reply(&format!("HTTL k FIELDS 1 {field}")), time.as_bytes(), "{verb}");
                assert_eq!(bench.reply("HLEN k"), b":2\r\n");
                assert_eq!(bench.reply("DEL k"), b":1\r\n");
            }
        }
    }
    checked(bench);
}

#[test]
fn a_value_of_a_field_on_its_way_in_is_charged_and_given_back_or_refused_for_another_type() {
    let mut bench = bench();
    bench.reply("HSET k a 1");
    bench.reply("SET s v");
    let store = Arc::clone(bench.worker.store());
    let (before, value) = (item_bytes(&store), job(100_000));
    for (verb, between) in [
        ("HSET", "f"),
        ("HMSET", "f"),
        ("HSETNX", "f"),
        ("HSETEX", "FIELDS 1 f"),
        ("HSETEX", "FNX EX 100 FIELDS 1 f"),
    ] {
        let words = |key| {
            let before = [verb, key].into_iter().chain(between.split(' '));
            before.chain([&*value]).collect::<Vec<&str>>()
        };
        for there in [0, 1, PART, PART + 1, 100_000] {
            let (one, _) = halves(&words("k"), there);
            let session = begun(&mut bench, &one);
            assert_eq!(store.input_bytes(), charged(there, value.len()), "{verb} {there}");
            drop(session);
            assert_eq!((store.input_bytes(), item_bytes(&store)), (0, before), "{verb} {there}");
        }
        let (one, other) = halves(&words("s"), 50_000);
        let mut session = begun(&mut bench, &one);
        assert_eq!((store.input_bytes(), item_bytes(&store)), (0, before), "{verb}");
        assert_eq!(replied(&mut bench, &mut session, &other), WRONG_TYPE, "{verb}");
    }
    checked(bench);
}

/// HSETEX of one field, behind all valid options, and with an expiry that has passed.
#[test]
fn a_value_behind_options_arrives_in_any_pieces_and_is_whole() {
    let mut bench = bench();
    let value = job(50_000);
    // The replies without a field and with one, and the field's TTL afterwards, which was 100 s.
    for (options, new, old, time) in [
        ("", ":1\r\n", ":1\r\n", ":-1"),
        ("KEEPTTL", ":1\r\n", ":1\r\n", ":100"),
        ("EX 50", ":1\r\n", ":1\r\n", ":50"),
        ("FNX", ":1\r\n", ":0\r\n", ":100"),
        ("FXX PX 50000", ":0\r\n", ":1\r\n", ":50"),
        ("KEEPTTL FXX", ":0\r\n", ":1\r\n", ":100"),
    ] {
        let before = ["HSETEX", "k"].into_iter().chain(options.split_whitespace());
        let words: Vec<&str> = before.chain(["FIELDS", "1", "f", &*value]).collect();
        let request = command(&words);
        for step in [997, PART, 40_000] {
            let run = |bench: &mut Bench, expected: &str| {
                let (replies, closed) = bench.run(&mut Session::new(), &request, step);
                assert_eq!((&*String::from_utf8_lossy(&replies), closed), (expected, false), "{options}");
            };
            run(&mut bench, new);
            assert_eq!(bench.reply("HLEN k"), new.as_bytes(), "{options}");
            bench.reply("HSET k f short other b");
            assert_eq!(bench.reply("HEXPIRE k 100 FIELDS 1 f"), b"*1\r\n:1\r\n");
            run(&mut bench, old);
            let there = if old == ":1\r\n" { &*value } else { "short" };
            assert!(bench.reply("HGET k f") == bulk(there).as_bytes(), "{options}");
            let time = format!("*1\r\n{time}\r\n");
            assert_eq!(bench.reply("HTTL k FIELDS 1 f"), time.as_bytes(), "{options}");
            assert_eq!(bench.reply("DEL k"), b":1\r\n");
        }
    }
    bench.reply("HSET k f short other b");
    for (options, said) in [
        ("PXAT 1 FIELDS 1", ":1\r\n"),
        // An error is replied when the whole request has come.
        ("NX FIELDS 1", "-ERR unknown argument: NX\r\n"),
        ("FIELDS 2", "-ERR wrong number of arguments for 'hsetex' command\r\n"),
    ] {
        let before = ["HSETEX", "k"].into_iter().chain(options.split(' '));
        let (one, other) = halves(&before.chain(["f", &*value]).collect::<Vec<&str>>(), 20_000);
        let mut session = begun(&mut bench, &one);
        assert_eq!(replied(&mut bench, &mut session, &other), said, "{options}");
        assert_eq!(bench.reply("HGETALL k"), array(&["other", "b"]).as_bytes(), "{options}");
    }
    checked(bench);
}

/// LSET at each index of some lists, from either end. For an index that does not exist nothing is kept.
#[test]
fn an_element_for_a_place_arrives_in_any_pieces_and_is_whole() {
    let mut bench = bench();
    let (element, long) = (job(50_000), job(20_000));
    let lists = [vec!["a"], vec!["a", "b", "c"], vec!["a", &*long, "c"], vec![&*long]];
    for list in &lists {
        for (place, step) in (0..list.len()).flat_map(|place| [997, PART, 40_000].map(|step| (place, step))) {
            bench.reply(&format!("RPUSH k {}", list.join(" ")));
            let index = if step == PART { place as i64 - list.len() as i64 } else { place as i64 };
            let request = command(&["LSET", "k", &index.to_string(), &element]);
            let (replies, closed) = bench.run(&mut Session::new(), &request, step);
            assert_eq!((&*String::from_utf8_lossy(&replies), closed), ("+OK\r\n", false), "{index}");
            let mut wanted = list.clone();
            wanted[place] = &element;
            assert!(bench.reply("LRANGE k 0 -1") == array(&wanted).as_bytes(), "{index}");
            assert_eq!(bench.reply("DEL k"), b":1\r\n");
        }
    }
    checked(bench);
    let mut bench = crate::bench();
    bench.reply("RPUSH k a b");
    bench.reply("SET s v");
    let store = Arc::clone(bench.worker.store());
    let before = item_bytes(&store);
    for (key, index, said) in [
        ("k", "2", "-ERR index out of range\r\n"),
        ("k", "-3", "-ERR index out of range\r\n"),
        ("k", "x", "-ERR value is not an integer or out of range\r\n"),
        ("none", "0", "-ERR no such key\r\n"),
        ("s", "0", WRONG_TYPE),
    ] {
        let (one, other) = halves(&["LSET", key, index, &element], 40_000);
        let mut session = begun(&mut bench, &one);
        let held = if key == "s" { 0 } else { charged(40_000, element.len()) };
        assert_eq!(store.input_bytes(), held, "{key} {index}");
        assert_eq!(replied(&mut bench, &mut session, &other), said, "{key} {index}");
        // Nor is anything kept if the client goes.
        let session = begun(&mut bench, &one);
        drop(session);
        assert_eq!((store.input_bytes(), item_bytes(&store)), (0, before), "{key} {index}");
    }
    assert!(bench.reply("LRANGE k 0 -1") == array(&["a", "b"]).as_bytes());
    // In a transaction the request is gathered.
    let mut session = Session::new();
    bench.turns(&mut session, &command(&["MULTI"]));
    let (one, other) = halves(&["LSET", "k", "1", &element], 40_000);
    assert_eq!(bench.turn(&mut session, &one), (Next::Receive, Vec::new()));
    assert_eq!(replied(&mut bench, &mut session, &other), "+QUEUED\r\n");
    assert_eq!(replied(&mut bench, &mut session, &command(&["EXEC"])), "*1\r\n+OK\r\n");
    assert!(bench.reply("LRANGE k 0 -1") == array(&["a", &element]).as_bytes());
    drop(session);
    checked(bench);
}

/// SADD of one member: however it comes, it is in the set once, and is found by its name.
#[test]
fn a_member_of_a_set_arrives_in_any_pieces_and_is_there_once() {
    let mut bench = bench();
    let (member, other) = (job(50_000), job(49_999) + "!");
    let request = command(&["SADD", "k", &member]);
    for others in ["", "a", "a b 12"] {
        for step in [997, PART, PART + 16, 40_000] {
            if !others.is_empty() {
                bench.reply(&format!("SADD k {others}"));
            }
            let run = |bench: &mut Bench, expected: &str| {
                let (replies, closed) = bench.run(&mut Session::new(), &request, step);
                assert_eq!((&*String::from_utf8_lossy(&replies), closed), (expected, false), "by {step}");
            };
            run(&mut bench, ":1\r\n");
            run(&mut bench, ":0\r\n");
            assert_eq!(bench.reply(&format!("SADD k {member} {other}")), b":1\r\n");
            assert_eq!(bench.reply(&format!("SMISMEMBER k {member} {other}")), b"*2\r\n:1\r\n:1\r\n");
            assert_eq!(bench.reply(&format!("SREM k {member}")), b":1\r\n");
            run(&mut bench, ":1\r\n");
            assert_eq!(bench.reply(&format!("SREM k {other}")), b":1\r\n");
            let count = format!(":{}\r\n", 1 + others.split_whitespace().count());
            assert_eq!(bench.reply("SCARD k"), count.as_bytes());
            assert_eq!(bench.reply("DEL k"), b":1\r\n");
        }
    }
    checked(bench);
}

/// A member is hashed and compared in one step. A longer one is gathered, and refused when it is whole.
#[test]
fn a_member_that_is_received_may_have_4_mebibytes() {
    let mut bench = Bench::new(Settings { append_bytes_max: 32 << 20, ..Settings::default() });
    let store = Arc::clone(bench.worker.store());
    for (bytes, is_taken) in [((4 << 20) - 1, true), (4 << 20, true), ((4 << 20) + 1, false)] {
        let member = long(bytes);
        let (one, other) = halves(&["SADD", "k", &member], 2 << 20);
        let mut session = begun(&mut bench, &one);
        assert_eq!(store.input_bytes() == charged(2 << 20, bytes), is_taken, "{bytes}");
        let reply = replied(&mut bench, &mut session, &other);
        if is_taken {
            assert_eq!(reply, ":1\r\n", "{bytes}");
            assert_eq!(bench.reply("DEL k"), b":1\r\n");
        } else {
            assert!(reply.starts_with(TOO_LARGE), "{bytes}: {reply}");
            assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
        }
    }
    checked(bench);
}

#[test]
fn a_member_on_its_way_in_is_charged_and_given_back_or_refused_for_another_type() {
    let mut bench = bench();
    bench.reply("SADD k a");
    bench.reply("SET s v");
    let store = Arc::clone(bench.worker.store());
    let (before, member) = (item_bytes(&store), job(100_000));
    for there in [0, 1, PART, PART + 1, 100_000] {
        let (one, _) = halves(&["SADD", "k", &member], there);
        let session = begun(&mut bench, &one);
        assert_eq!(store.input_bytes(), charged(there, member.len()), "{there}");
        drop(session);
        assert_eq!((store.input_bytes(), item_bytes(&store)), (0, before), "{there}");
    }
    let (one, other) = halves(&["SADD", "s", &member], 50_000);
    let mut session = begun(&mut bench, &one);
    assert_eq!((store.input_bytes(), item_bytes(&store)), (0, before));
    assert_eq!(replied(&mut bench, &mut session, &other), WRONG_TYPE);
    // A member that the set has already is freed when it is whole. Only the first SADD has an event.
    let mut listens = Session::new();
    bench.turns(&mut listens, &command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]));
    bench.turns(&mut listens, &command(&["PSUBSCRIBE", "__keyevent@0__:*"]));
    for reply in [":1\r\n", ":0\r\n"] {
        let (one, other) = halves(&["SADD", "k", &member], 50_000);
        let mut session = begun(&mut bench, &one);
        assert_eq!(replied(&mut bench, &mut session, &other), reply);
        assert_eq!((store.input_bytes(), session.input_bytes()), (0, 0));
    }
    let heard = replied(&mut bench, &mut listens, &command(&["PING"]));
    assert_eq!(heard.matches("__keyevent@0__:sadd\r\n").count(), 1, "{heard}");
    drop((session, listens));
    checked(bench);
}

/// A long word behind a few short ones, which are written with it.
#[test]
fn a_long_word_behind_short_ones_is_received_and_put_in_with_them() {
    let mut bench = bench();
    let long = job(50_000);
    for step in [997, PART, 40_000] {
        let run = |bench: &mut Bench, words: &[&str], expected: &str| {
            let words: Vec<&str> = words.iter().copied().chain([&*long]).collect();
            let (replies, closed) = bench.run(&mut Session::new(), &command(&words), step);
            assert_eq!((&*String::from_utf8_lossy(&replies), closed), (expected, false), "{:?}", &words[..2]);
        };
        run(&mut bench, &["RPUSH", "l", "a", "b"], ":3\r\n");
        run(&mut bench, &["LPUSH", "l", "c", "d"], ":6\r\n");
        run(&mut bench, &["LPUSHX", "none", "a"], ":0\r\n");
        let list = array(&[&long, "d", "c", "a", "b", &long]);
        assert!(bench.reply("LRANGE l 0 -1") == list.as_bytes());
        run(&mut bench, &["HSET", "h", "f", "1", "g", "2", "f"], ":2\r\n");
        run(&mut bench, &["HMSET", "h", "g", "3", "k"], "+OK\r\n");
        let values = format!("*4\r\n{0}$1\r\n3\r\n{0}$-1\r\n", bulk(&long));
        assert!(bench.reply("HMGET h f g k none") == values.as_bytes());
        run(&mut bench, &["SADD", "s", "a", "b"], ":3\r\n");
        run(&mut bench, &["SADD", "s", "b", "a"], ":0\r\n");
        run(&mut bench, &["SADD", "s", "c"], ":1\r\n");
        assert_eq!(bench.reply(&format!("SMISMEMBER s a b c {long}")), b"*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
        assert_eq!(bench.reply("DEL l h s"), b":3\r\n");
    }
    // A field without a value.
    let (one, other) = halves(&["HSET", "h", "f", "1", &long], 20_000);
    let mut session = begun(&mut bench, &one);
    let said = "-ERR wrong number of arguments for 'hset' command\r\n";
    assert_eq!(replied(&mut bench, &mut session, &other), said);
    drop(session);
    checked(bench);
}

/// Up to 16 words of up to 64 bytes are kept. Beside more words or a longer one, the element is gathered.
#[test]
fn a_few_short_words_are_kept_while_a_long_one_comes() {
    let mut bench = bench();
    let store = Arc::clone(bench.worker.store());
    let long = job(50_000);
    let words = |count: usize, bytes: usize| vec!["w".repeat(bytes); count];
    for (between, is_received) in [
        (words(15, 1), true),
        (words(16, 1), true),
        (words(17, 1), false),
        (words(2, 63), true),
        (words(16, 64), true),
        (words(2, 65), false),
    ] {
        let before = ["RPUSH", "l"].into_iter().chain(between.iter().map(String::as_str));
        let all: Vec<&str> = before.chain([&*long]).collect();
        let (one, other) = halves(&all, 40_000);
        let mut session = begun(&mut bench, &one);
        let is_charged = store.input_bytes() == charged(40_000, long.len());
        assert_eq!(is_charged, is_received, "{} of {}", between.len(), between[0].len());
        let count = format!(":{}\r\n", between.len() + 1);
        assert_eq!(replied(&mut bench, &mut session, &other), count);
        assert!(bench.reply("LRANGE l 0 -1") == array(&all[2..]).as_bytes());
        assert_eq!(bench.reply("DEL l"), b":1\r\n");
    }
    checked(bench);
}

/// A request that is queued is gathered.
#[test]
fn a_long_element_in_a_transaction_or_beside_another_is_as_a_short_one() {
    let mut bench = bench();
    let element = job(100_000);
    let mut session = Session::new();
    bench.turns(&mut session, &command(&["MULTI"]));
    let (one, other) = halves(&["RPUSH", "k", &element], 50_000);
    assert_eq!(bench.turn(&mut session, &one), (Next::Receive, Vec::new()));
    assert_eq!(replied(&mut bench, &mut session, &other), "+QUEUED\r\n");
    assert_eq!(replied(&mut bench, &mut session, &command(&["EXEC"])), "*1\r\n:1\r\n");
    let (one, other) = halves(&["RPUSH", "k", "a", &element], 50_000);
    assert_eq!(bench.turn(&mut session, &one), (Next::Receive, Vec::new()));
    assert_eq!(replied(&mut bench, &mut session, &other), ":3\r\n");
    assert!(bench.reply("LRANGE k 0 -1") == array(&[&element, "a", &element]).as_bytes());
    drop(session);
    checked(bench);
}
