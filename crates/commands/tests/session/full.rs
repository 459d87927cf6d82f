//! Collections in a full store: what needs no room is done, and replies claim the room that they need.

use crate::slices::set;
use crate::survey::command;
use crate::{Bench, START, bench};
use larder_commands::{Context, Next, Output, Session, Settings};
use larder_protocol::resp::words_read;
use larder_store::{Attributes, Config, End, Expect, Guard, ScoreRule, Store, Worker};
use larder_testkit::timing::{at_most, timed};
use std::time::Duration;

/// Fields of the hash that is read in EXEC.
const FIELDS: usize = 8_000;

/// Strings of 1000 bytes for each MiB: more than fit.
const FILLING: u32 = 1_250;

/// Makes a hash of many fields, and a smaller collection of each type.
fn make(guard: &mut Guard<'_>) {
    let names: Vec<String> = (0..FIELDS).map(|n| format!("f{n}")).collect();
    let names = |some: usize| names[..some].iter().map(String::as_bytes);
    let key = guard.key(b"hash");
    for n in 0..FIELDS {
        guard.hash_set(&key, names(FIELDS).skip(n).take(1).map(|name| (name, name))).unwrap();
    }
    let key = guard.key(b"h");
    guard.hash_set(&key, names(300).map(|name| (name, name))).unwrap();
    let key = guard.key(b"s");
    guard.set_add(&key, names(300)).unwrap();
    let key = guard.key(b"z");
    guard.sorted_add(&key, ScoreRule::default(), names(300).map(|name| (1.5, name))).unwrap();
    let key = guard.key(b"l");
    guard.list_push(&key, End::Back, names(300), false).unwrap();
}

/// Stores strings until there is no room for one more; if the store evicts, until some of them must have been
/// evicted.
fn fill(guard: &mut Guard<'_>, evict: bool, of_all_lengths: bool) {
    let lengths: Vec<usize> =
        if of_all_lengths { (8..16_300).rev().step_by(8).collect() } else { vec![1_000] };
    let mut number = 0_u32;
    for bytes in lengths {
        loop {
            number += 1;
            let name = number.to_be_bytes();
            let key = guard.key(&name);
            let stored = guard.store_value(&key, &vec![1; bytes], &Attributes::default(), Expect::Any);
            if stored.is_err() || evict && number == FILLING * (guard.store().memory_bytes() >> 20) as u32 {
                break;
            }
        }
    }
}

/// A store with a few collections that is full of strings, of 1000 bytes or of all lengths.
fn full(evict: bool, of_all_lengths: bool) -> Bench {
    full_of(16 << 20, evict, of_all_lengths)
}

/// The same with a store of so many bytes.
fn full_of(memory_bytes: u64, evict: bool, of_all_lengths: bool) -> Bench {
    let config = Config { memory_bytes, workers_max: 1, evict, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(START);
    // With eviction the strings come first, so that they are evicted and no collection is.
    if evict {
        fill(&mut guard, evict, of_all_lengths);
    }
    make(&mut guard);
    if !evict {
        fill(&mut guard, evict, of_all_lengths);
    }
    guard.take_beside_ns();
    drop(guard);
    Bench::over(worker, Settings::default())
}

impl Bench {
    /// The replies to a command, in an output that is charged as a worker's is.
    fn says_charged(&mut self, session: &mut Session, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let input = command(&words);
        let store = std::sync::Arc::clone(self.worker.store());
        let (mut at, mut said) = (0, Vec::new());
        loop {
            let mut out = Output::charged(self.limit, &store, 64 << 10);
            self.room.work().begin_slice();
            let mut cx = Context::new(
                self.worker.enter(self.system),
                &self.host.counters,
                &self.shared,
                &self.host,
                &self.host,
                &self.room,
            );
            let progress = session.receive(&mut cx, &input[at..], &mut out);
            said.extend(out.to_vec());
            at += progress.consumed;
            match progress.next {
                Next::Receive => return String::from_utf8_lossy(&said).into_owned(),
                Next::Flush | Next::Yield | Next::Sleep(_) => {}
                // Keys were held shortly before: time passes.
                Next::Await(Some(ms)) => self.system += ms,
                Next::Close | Next::Await(None) => panic!("{:?}", progress.next),
            }
        }
    }
}

pub(crate) const NO_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// A full store that evicts, and its worker, which does not wait for memory within a request. The other
/// worker may hold memory back.
pub(crate) fn pressed() -> (Bench, Worker) {
    let store = Store::new(Config { memory_bytes: 16 << 20, workers_max: 2, ..Config::default() }).unwrap();
    let (mut worker, other) = (store.worker().unwrap(), store.worker().unwrap());
    fill(&mut worker.enter(START), true, false);
    worker.set_patient(false);
    worker.set_asked_again(true);
    (Bench::over(worker, Settings::default()), other)
}

/// Memory is on its way: the request waits for it at each call, and other clients are served.
pub(crate) fn waits_for_memory(bench: &mut Bench, session: &mut Session, input: &[u8]) {
    for _ in 0..9 {
        let (next, said, consumed) = bench.call(session, input);
        assert!(matches!(next, Next::Sleep(_)), "{next:?}");
        assert_eq!((said.len(), consumed), (0, 0));
        assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
    }
}

/// The reply to a request, once it no longer waits.
pub(crate) fn until_answered(bench: &mut Bench, session: &mut Session, input: &[u8]) -> String {
    loop {
        let (next, said, _) = bench.call(session, input);
        if !matches!(next, Next::Sleep(_)) {
            return String::from_utf8(said).expect("text");
        }
    }
}

/// A store that evicts nothing and is full to the last chunk, with a hash whose fields are their values, and
/// a set of as many members. A batch of the other worker holds back the memory that removals free.
pub(crate) fn full_beside(elements: usize) -> (Bench, Worker) {
    let config = Config { memory_bytes: 16 << 20, workers_max: 2, evict: false, ..Config::default() };
    let store = Store::new(config).unwrap();
    let (mut worker, other) = (store.worker().unwrap(), store.worker().unwrap());
    let mut guard = worker.enter(START);
    let names: Vec<String> = (0..elements).map(|n| format!("m{n:05}")).collect();
    for some in names.chunks(100) {
        let names = some.iter().map(String::as_bytes);
        let (hash, set) = (guard.key(b"hash"), guard.key(b"set"));
        guard.hash_set(&hash, names.clone().map(|name| (name, name))).unwrap();
        guard.set_add(&set, names).unwrap();
    }
    drop(guard);
    fill(&mut worker.enter(START), false, true);
    worker.enter(START).take_beside_ns();
    worker.set_patient(false);
    (Bench::over(worker, Settings::default()), other)
}

/// The worker looks at each request alone, since keyspace events are published. It does not sleep for memory
/// that is on its way here either.
#[test]
fn a_write_that_is_told_is_asked_again_while_others_are_served() {
    const SETS: usize = 3_000;
    let (mut bench, mut stuck) = pressed();
    let mut session = Session::new();
    bench.turns(&mut session, &command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]));
    let batch = stuck.enter(START);
    let value = "v".repeat(1_000);
    let sets = (0..SETS).flat_map(|n| command(&["SET", &format!("{n:08}"), &value]));
    let (mut left, mut said) = (sets.collect::<Vec<u8>>(), Vec::new());
    let mut go_on = |bench: &mut Bench| {
        let (next, more, consumed) = bench.call(&mut session, &left);
        left.drain(..consumed);
        said.extend(more);
        (next, said.len())
    };
    let answered = loop {
        match go_on(&mut bench) {
            (Next::Sleep(_), answered) => break answered,
            (Next::Flush | Next::Yield, _) => {}
            (next, _) => panic!("there was memory: {next:?}"),
        }
    };
    // Another client is served, and the request is tried again: none of it was done before.
    for _ in 0..9 {
        assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
        let (next, replies) = go_on(&mut bench);
        assert!(matches!(next, Next::Sleep(_)) && replies == answered, "{next:?}");
    }
    drop(batch);
    while go_on(&mut bench).0 != Next::Receive {}
    assert_eq!(String::from_utf8(said).unwrap(), "+OK\r\n".repeat(SETS));
}

/// A sampled request that is tried again is counted once.
#[test]
fn a_write_that_is_asked_again_is_sampled_when_it_is_done() {
    let (mut bench, mut stuck) = pressed();
    let store = std::sync::Arc::clone(bench.worker.store());
    bench.shared.show_traffic(&store, 1, 0);
    let mut session = Session::new();
    bench.turns(&mut session, &command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]));
    let batch = stuck.enter(START);
    let (value, mut number) = ("v".repeat(1_000), 0);
    let input = loop {
        let input = command(&["SET", &format!("{number:08}"), &value]);
        match bench.call(&mut session, &input) {
            (Next::Sleep(_), ..) => break input,
            (_, said, _) => assert_eq!(said, b"+OK\r\n"),
        }
        number += 1;
        assert!(number < 3_000, "there was memory");
    };
    // From here on each key is sampled.
    bench.shared.tend_samples(&bench.room, &store, 0);
    let asked_for = |bench: &Bench, now| {
        bench.shared.count_samples(&store, now);
        bench.shared.hot_keys(9).expect("traffic is sampled").all
    };
    for _ in 0..9 {
        let (next, said, consumed) = bench.call(&mut session, &input);
        assert!(matches!(next, Next::Sleep(_)), "{next:?}");
        assert_eq!((said.len(), consumed), (0, 0));
    }
    assert_eq!(asked_for(&bench, 10), 0);
    drop(batch);
    let said = until_answered(&mut bench, &mut session, &input);
    assert_eq!(said, "+OK\r\n");
    assert_eq!(asked_for(&bench, 20), 1);
}

/// A command in steps waits, too. Each step is tried as often as a write, however often earlier steps were
/// tried, and what they have written is counted once. If other clients wait too long for its key, the command
/// gives up the hold, and completes all the same.
#[test]
fn a_step_is_made_once_more_while_others_are_served() {
    const MEMBERS: usize = 16_000;
    let (mut bench, mut stuck) = pressed();
    for set in 0..20 {
        let members: Vec<String> = (0..MEMBERS).map(|n| format!("{set}-{n:0>100}")).collect();
        let name = format!("set{set}");
        let words = ["SADD", &name].into_iter().chain(members.iter().map(String::as_str));
        let mut left = command(&words.collect::<Vec<_>>());
        let (mut session, mut said) = (Session::new(), Vec::new());
        let mut go_on = |bench: &mut Bench| {
            let (next, more, consumed) = bench.call(&mut session, &left);
            left.drain(..consumed);
            said.extend(more);
            if let Next::Sleep(ms) | Next::Await(Some(ms)) = next {
                bench.system += ms;
            }
            (next, session.holds())
        };
        let (mut next, mut holds, mut waits) = (Next::Yield, true, 0);
        // Before its hold is in force, the command waits for the other worker.
        while !go_on(&mut bench).1 {}
        go_on(&mut bench);
        while next != Next::Receive {
            // 14 of 24 looks: those of two steps would be too many for one.
            let (batch, mut looks) = (stuck.enter(START), 0);
            while next != Next::Receive && looks < 14 {
                (next, holds) = go_on(&mut bench);
                looks += usize::from(matches!(next, Next::Sleep(_)));
                assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
            }
            drop(batch);
            waits += usize::from(looks == 14);
            // Other clients wait for its key for 2 s in all, and no longer.
            assert!(!holds || waits < 15, "{waits} waits");
            while matches!(next, Next::Sleep(_)) {
                next = go_on(&mut bench).0;
            }
        }
        assert_eq!(String::from_utf8_lossy(&said), format!(":{MEMBERS}\r\n"), "behind {waits} waits");
        // The first wait may be that of the command's beginning.
        if waits >= 3 {
            return;
        }
    }
    panic!("no command found its memory held back three times");
}

/// A command of one moment that is refused half-way leaves nothing if its key is new, and what it has written
/// if the key existed. Before that it waits for memory, and other clients are served.
#[test]
fn what_is_refused_in_its_midst_leaves_nothing_of_a_key_that_was_not_there() {
    const MEMBERS: usize = 16_000;
    for is_new in [true, false] {
        let (mut bench, mut stuck) = pressed();
        if !is_new {
            assert_eq!(bench.reply("SADD set old"), b":1\r\n");
        }
        let members: Vec<String> = (0..MEMBERS).map(|n| format!("{n:0>100}")).collect();
        let words = ["SADD", "set"].into_iter().chain(members.iter().map(String::as_str));
        let input = command(&words.collect::<Vec<_>>());
        let (mut session, mut at) = (Session::new(), 0);
        let (mut said, mut turns) = (Vec::new(), 0);
        // Until some of it is written: in the fourth turn under the hold.
        while turns < 4 {
            let (_, more, consumed) = bench.call(&mut session, &input[at..]);
            (at, turns) = (at + consumed, turns + usize::from(session.holds()));
            said.extend(more);
        }
        let batch = stuck.enter(START);
        exhaust(&mut bench, "x");
        let mut waits = 0;
        while session.must_end() {
            let (next, more, _) = bench.call(&mut session, b"");
            said.extend(more);
            if let Next::Sleep(ms) = next {
                (bench.system, waits) = (bench.system + ms, waits + 1);
            }
            assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
        }
        drop(batch);
        assert_eq!((String::from_utf8_lossy(&said), at), (NO_MEMORY.into(), input.len()));
        // At least as often as any write looks for memory.
        assert!((24..=200).contains(&waits), "{waits} waits");
        let there = String::from_utf8(bench.reply("SCARD set")).unwrap();
        let there: usize = there[1..].trim_end().parse().unwrap();
        let expected = if is_new { 0..1 } else { 2..MEMBERS };
        assert!(expected.contains(&there), "{there}");
    }
}

/// Sets keys of this name until a write waits for memory that is on its way.
pub(crate) fn exhaust(bench: &mut Bench, name: &str) {
    exhaust_by(bench, name, 1_000);
}

/// The same with values of so many bytes.
pub(crate) fn exhaust_by(bench: &mut Bench, name: &str, value_bytes: usize) {
    let (value, mut session) = ("v".repeat(value_bytes), Session::new());
    for n in 0..3_000 {
        let input = command(&["SET", &format!("{name}{n:04}"), &value]);
        if matches!(bench.call(&mut session, &input).0, Next::Sleep(_)) {
            return;
        }
    }
    panic!("there was memory");
}

/// EXEC and MSET cannot be tried again once they have written something, so they look for memory before.
#[test]
fn what_writes_several_keys_is_asked_again_before_it_begins() {
    let (mut bench, mut stuck) = pressed();
    let value = "v".repeat(1_000);
    let mset = command(&["MSET", "mset-key", &value]);
    let queued = [command(&["MULTI"]), command(&["SET", "exec-key", &value])].concat();
    for (name, before, input, expected) in
        [("a", &b""[..], mset, "+OK\r\n"), ("b", &queued[..], command(&["EXEC"]), "*1\r\n+OK\r\n")]
    {
        let batch = stuck.enter(START);
        exhaust(&mut bench, name);
        let mut session = Session::new();
        bench.turns(&mut session, before);
        waits_for_memory(&mut bench, &mut session, &input);
        drop(batch);
        let said = until_answered(&mut bench, &mut session, &input);
        assert_eq!(said, expected);
    }
    // A request that only reads, or is refused, does not wait.
    let batch = stuck.enter(START);
    exhaust(&mut bench, "c");
    assert_eq!(bench.call(&mut Session::new(), &command(&["SORT", "nothing"])).1, b"*0\r\n");
    let refused = b"-ERR wrong number of arguments for 'mset' command\r\n";
    assert_eq!(bench.call(&mut Session::new(), &command(&["MSET", "key"])).1, refused);
    let looks = [command(&["MULTI"]), command(&["GET", "nothing"]), command(&["EXEC"])].concat();
    assert_eq!(bench.call(&mut Session::new(), &looks).1, b"+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n");
    assert_eq!(bench.call(&mut Session::new(), &command(&["MGET", "nothing"])).1, b"*1\r\n$-1\r\n");
    drop(batch);
}

/// So does an MSET that was gathered; it is not parsed again.
#[test]
fn what_writes_several_keys_and_was_gathered_looks_for_memory_before_it_begins() {
    let (mut bench, mut stuck) = pressed();
    let batch = stuck.enter(START);
    exhaust(&mut bench, "a");
    let (value, mut session) = ("v".repeat(20_000), Session::new());
    let input = command(&["MSET", "one", &value, "two", &value]);
    let (next, said, consumed) = bench.call(&mut session, &input[..36_000]);
    assert_eq!((next, said.len(), consumed), (Next::Receive, 0, 36_000));
    let mut rest = &input[36_000..];
    for _ in 0..9 {
        let (next, said, consumed) = bench.call(&mut session, rest);
        assert!(matches!(next, Next::Sleep(_)) && said.is_empty(), "{next:?}");
        rest = &rest[consumed..];
        assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
    }
    assert!(rest.is_empty());
    drop(batch);
    let said = loop {
        let (next, said, _) = bench.call(&mut session, b"");
        if !matches!(next, Next::Sleep(_)) {
            break said;
        }
    };
    assert_eq!(String::from_utf8_lossy(&said), "+OK\r\n");
}

/// EXEC in steps waits before each command, and other clients are served meanwhile.
#[test]
fn exec_in_steps_waits_for_memory_between_its_commands() {
    const COMMANDS: usize = 2_300;
    let (mut bench, mut stuck) = pressed();
    let value = "v".repeat(1_000);
    let commands = (0..COMMANDS).map(|n| match n % 10 {
        0 => command(&["SET", &format!("k{n:07}"), &value]),
        _ => command(&["INCR", "n"]),
    });
    let queued: Vec<u8> = std::iter::once(command(&["MULTI"])).chain(commands).flatten().collect();
    let mut session = Session::new();
    bench.turns(&mut session, &queued);
    let (next, mut said, _) = bench.call(&mut session, &command(&["EXEC"]));
    assert!(next == Next::Yield && said.is_empty(), "{next:?}");
    let (mut waits, mut round) = (0, 0);
    while session.must_end() {
        let batch = stuck.enter(START);
        exhaust(&mut bench, &format!("r{round:03}"));
        for _ in 0..3 {
            let (next, more, _) = bench.call(&mut session, b"");
            said.extend(more);
            waits += usize::from(matches!(next, Next::Await(Some(10))));
            assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
        }
        drop(batch);
        said.extend(bench.call(&mut session, b"").1);
        round += 1;
    }
    said.extend(bench.turns(&mut session, b"").0);
    let replies = (0..COMMANDS).map(|n| match n % 10 {
        0 => "+OK\r\n".to_owned(),
        // Every tenth command is no INCR.
        _ => format!(":{}\r\n", n - n / 10),
    });
    let expected = format!("*{COMMANDS}\r\n{}", replies.collect::<String>());
    assert!(String::from_utf8(said).unwrap() == expected, "not all of them were done");
    assert!(waits >= 3, "{waits}");
}

#[test]
fn what_takes_something_out_runs_in_a_full_store_that_evicts_nothing() {
    let mut bench = full(false, true);
    let mut session = Session::new();
    for words in ["HSET h new field", "SADD s new", "ZADD z 1 new", "RPUSH l new", "SET new value"] {
        assert_eq!(bench.says_charged(&mut session, words), NO_MEMORY, "{words}");
    }
    let count = |n: usize| format!(":{n}\r\n");
    for (words, expected) in [
        ("HDEL h f0 f1 nosuch", count(2)),
        ("HGETDEL h FIELDS 1 f2", "*1\r\n$2\r\nf2\r\n".into()),
        ("HLEN h", count(297)),
        ("SREM s f0 f1 nosuch", count(2)),
        ("SPOP s 0", "*0\r\n".into()),
        ("SMOVE s t f2", count(1)),
        ("SCARD s", count(297)),
        ("SMEMBERS t", "*1\r\n$2\r\nf2\r\n".into()),
        ("ZREM z f0", count(1)),
        ("ZPOPMIN z", "*2\r\n$2\r\nf1\r\n$3\r\n1.5\r\n".into()),
        ("ZREMRANGEBYRANK z 0 1", count(2)),
        ("ZREMRANGEBYLEX z [f2 [f2", count(1)),
        ("ZMPOP 1 z MIN", "*2\r\n$1\r\nz\r\n*1\r\n*2\r\n$4\r\nf101\r\n$3\r\n1.5\r\n".into()),
        ("ZCARD z", count(294)),
        ("LPOP l", "$2\r\nf0\r\n".into()),
        ("RPOP l 2", "*2\r\n$4\r\nf299\r\n$4\r\nf298\r\n".into()),
        ("LREM l 0 f1", count(1)),
        ("LTRIM l 1 -2", "+OK\r\n".into()),
        ("LMPOP 1 l LEFT", "*2\r\n$1\r\nl\r\n*1\r\n$2\r\nf3\r\n".into()),
        ("LLEN l", count(293)),
        ("EXPIRE l 100", count(1)),
        ("HDEL hash f0 f1 f2 f3 f4 f5 f6 f7 f8 f9", count(10)),
        ("HLEN hash", count(FIELDS - 10)),
    ] {
        assert_eq!(bench.says_charged(&mut session, words), expected, "{words}");
    }
    // A member that SPOP replies is gone.
    for _ in 0..50 {
        assert!(bench.says_charged(&mut session, "SPOP s").starts_with('$'));
    }
    assert_eq!(bench.says_charged(&mut session, "SCARD s"), count(247));
    // The same in EXEC, with a read of the set.
    for words in ["MULTI", "SREM s f200 f201 f202 f203 f204", "LPOP l", "SCARD s", "EXEC"] {
        let said = bench.says_charged(&mut session, words);
        assert!(!said.contains("-OOM"), "{words}: {said}");
    }
}

/// Bytes of HGETALL's reply for a hash whose fields are their values.
fn told_bytes() -> usize {
    let each = |n: usize| 2 * (format!("f{n}").len() + 6);
    6 + (0..FIELDS).map(each).sum::<usize>()
}

#[test]
fn what_is_read_in_exec_takes_the_room_that_it_needs() {
    let mut bench = full(false, false);
    let mut session = Session::new();
    let store = std::sync::Arc::clone(bench.worker.store());
    // Other connections hold nearly all that connections may. The replies fit in the rest; their upper bounds
    // do not.
    let taken = (store.held_bytes_max() - store.held_bytes()) as i64 - (400 << 10);
    store.hold(taken);
    for words in ["MULTI", "HGETALL hash", "ZRANGE z 0 -1 WITHSCORES", "SUNION s t", "LRANGE l 0 -1"] {
        bench.says_charged(&mut session, words);
    }
    let said = bench.says_charged(&mut session, "EXEC");
    assert!(!said.contains("-OOM"), "{}", &said[..said.len().min(80)]);
    assert!(said.starts_with("*4\r\n*16000\r\n$"), "{}", &said[..said.len().min(80)]);
    assert!(said.len() > told_bytes() && told_bytes() > 160_000, "{} bytes", said.len());
    store.hold(-taken);
}

/// In a store that evicts, all memory is in use. Room for EXEC's replies is made before EXEC locks its keys.
#[test]
fn what_is_read_in_exec_has_room_made_for_it() {
    let mut bench = full(true, false);
    let mut session = Session::new();
    for words in ["MULTI", "HGETALL hash", "HGETALL hash", "HVALS hash", "HGETALL hash", "HMGET hash f1 f2"] {
        bench.says_charged(&mut session, words);
    }
    let said = bench.says_charged(&mut session, "EXEC");
    assert!(!said.contains("-OOM"), "{}", &said[said.len().saturating_sub(80)..]);
    assert!(said.len() > 3 * told_bytes(), "{} bytes", said.len());
}

/// All replies of EXEC wait for one client, and may take what connections may hold: some client libraries
/// send a pipeline as one EXEC.
#[test]
fn exec_of_ten_thousand_values_answers_with_all_of_them() {
    let mut bench = full_of(64 << 20, true, false);
    let mut session = Session::new();
    set(&mut bench, "k", &[b'v'; 1_024]);
    bench.says_charged(&mut session, "MULTI");
    (0..10_000).for_each(|_| assert_eq!(bench.says_charged(&mut session, "GET k"), "+QUEUED\r\n"));
    let said = bench.says_charged(&mut session, "EXEC");
    let head = said.find("-OOM").map_or(&said[..0], |at| &said[at..][..80]);
    assert_eq!((said.len(), head), (8 + 10_000 * (7 + 1_024 + 2), ""));
    // More than that is refused.
    bench.says_charged(&mut session, "MULTI");
    (0..20_000).for_each(|_| assert_eq!(bench.says_charged(&mut session, "GET k"), "+QUEUED\r\n"));
    let said = bench.says_charged(&mut session, "EXEC");
    let most = bench.worker.store().held_bytes_max() as usize;
    assert!(said.contains("-OOM") && said.len() > most / 8 * 5, "{} bytes of {most}", said.len());
    assert!(said.len() - said.matches("-OOM").count() * 60 <= most, "{} bytes of {most}", said.len());
}

/// For a reply of some thousand bytes no item is evicted.
#[test]
fn what_tells_a_page_in_exec_empties_nothing() {
    for words in ["INFO", "CONFIG GET maxmemory", "CLIENT ID", "CLIENT SETNAME name", "MEMORY STATS"] {
        let mut bench = full_of(64 << 20, true, false);
        let mut session = Session::new();
        let items = |bench: &Bench| bench.worker.store().database_items(0);
        let before = items(&bench);
        bench.says_charged(&mut session, "MULTI");
        bench.says_charged(&mut session, words);
        // With 20 commands more: the shortest replies have room in any case.
        (0..20).for_each(|_| drop(bench.says_charged(&mut session, "GET none")));
        let said = bench.says_charged(&mut session, "EXEC");
        assert!(said.starts_with("*21\r\n") && !said.contains("-OOM"), "{said}");
        let gone = before.saturating_sub(items(&bench));
        assert!(gone <= 20, "{words}: {gone} of {before} are gone");
    }
}

/// EXEC is weighed with one pass through a command's words, however many there are.
#[test]
fn a_bitfield_of_many_steps_is_weighed_in_one_pass() {
    let mut bench = bench();
    let mut session = Session::new();
    set(&mut bench, "bits", b"abc");
    let steps = " GET u8 0".repeat(30_000);
    bench.says_charged(&mut session, "MULTI");
    bench.says_charged(&mut session, &format!("BITFIELD bits{steps}"));
    let before = words_read();
    let said = bench.says_charged(&mut session, "EXEC");
    let read = words_read() - before;
    assert!(read < 20 * 90_000, "{read} words are read of 90,000");
    assert!(said.starts_with("*1\r\n*30000\r\n:97\r\n"), "{}", &said[..said.len().min(80)]);
}

#[test]
#[ignore = "time: all of it has 10 s"]
fn a_bitfield_of_many_steps_takes_no_longer_than_one_pass() {
    // It took a minute when each word was looked for from the first one on.
    at_most(Duration::from_secs(10), || timed(a_bitfield_of_many_steps_is_weighed_in_one_pass));
}
