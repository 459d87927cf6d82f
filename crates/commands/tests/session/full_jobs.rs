//! Commands in steps, and others that are not tried twice, that find no memory while some is on its way: they go on later, and
//! others of their worker are served meanwhile.

use crate::full::{exhaust, exhaust_by, pressed, until_answered, waits_for_memory};
use crate::slices::set;
use crate::survey::command;
use crate::{Bench, START};
use larder_commands::{Next, Session, Settings};
use larder_testkit::talk::encode;
use std::sync::Arc;

/// What is done before, which gives the request.
type Prepare = fn(&mut Bench) -> Vec<u8>;
/// A command's name, what is done before, and the reply.
type Case = (&'static str, Prepare, &'static str);

/// Bytes of a value that takes as much as a piece of a large one.
const PIECE_BYTES: usize = 16_000;
/// And of one that takes as much as a leaf.
const LEAF_BYTES: usize = 1_000;

/// What connections have held is charged until upkeep looks, which it does not here: items need not give way to what a command
/// keeps beside them while the other worker holds memory back.
fn hold_once(bench: &mut Bench) {
    const BYTES: i64 = 3 << 20;
    let store = Arc::clone(bench.worker.store());
    store.hold(BYTES);
    let mut guard = bench.worker.enter(START);
    for _ in 0..1_000 {
        if store.is_over_limit() {
            guard.give_way();
        }
    }
    drop(guard);
    assert!(!store.is_over_limit());
    store.hold(-BYTES);
}

/// Fills the store with values that take as much as a piece of a large one each. The oldest give way first, one by one.
fn pieces(bench: &mut Bench) {
    hold_once(bench);
    let value = "v".repeat(PIECE_BYTES);
    for n in 0..2_000 {
        bench.turns(&mut Session::new(), &command(&["SET", &format!("piece{n:04}"), &value]));
    }
}

/// A value of which no step copies more than a third: it takes some turns. What is there before gives way before it.
fn large(bench: &mut Bench) {
    pieces(bench);
    set(bench, "large", &vec![b'v'; 3 << 20]);
}

/// Writes these elements or members, behind some words, by several commands.
fn many(bench: &mut Bench, words: &[&str], names: impl Iterator<Item = String>) {
    hold_once(bench);
    let names: Vec<String> = names.collect();
    for some in names.chunks(8_000) {
        let all: Vec<&str> = words.iter().copied().chain(some.iter().map(String::as_str)).collect();
        bench.turns(&mut Session::new(), &command(&all));
    }
}

fn names(count: usize, bytes: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |n| format!("{n:0>bytes$}"))
}

/// Commands that make a large value.
const COPIES: [Case; 4] = [
    (
        "APPEND",
        |bench| {
            large(bench);
            command(&["APPEND", "large", "x"])
        },
        ":3145729\r\n",
    ),
    (
        "BITOP",
        |bench| {
            large(bench);
            command(&["BITOP", "NOT", "to", "large"])
        },
        ":3145728\r\n",
    ),
    (
        "COPY of a string",
        |bench| {
            large(bench);
            command(&["COPY", "large", "to"])
        },
        ":1\r\n",
    ),
    (
        "RESTORE",
        |bench| {
            pieces(bench);
            set(bench, "key", &vec![b'v'; 1 << 20]);
            let (dump, _) = bench.turns(&mut Session::new(), &command(&["DUMP", "key"]));
            let head = dump.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
            encode(&[b"RESTORE", b"to", b"0", &dump[head..dump.len() - 2]])
        },
        "+OK\r\n",
    ),
];

/// And such that make leaves of a collection.
const COLLECTIONS: [Case; 5] = [
    (
        "COPY of a set",
        |bench| {
            many(bench, &["SADD", "set"], names(30_000, 100));
            command(&["COPY", "set", "to"])
        },
        ":1\r\n",
    ),
    (
        "HSETEX",
        |bench| {
            hold_once(bench);
            let pairs: Vec<String> = names(8_000, 50).flat_map(|field| [field.clone(), field]).collect();
            let words = ["HSETEX", "hash", "FIELDS", "8000"].into_iter();
            command(&words.chain(pairs.iter().map(String::as_str)).collect::<Vec<_>>())
        },
        ":1\r\n",
    ),
    (
        "SORT",
        |bench| {
            many(bench, &["RPUSH", "list"], names(10_000, 20));
            command(&["SORT", "list", "BY", "nosort", "STORE", "to"])
        },
        ":10000\r\n",
    ),
    (
        "SUNIONSTORE",
        |bench| {
            many(bench, &["SADD", "set"], names(10_000, 60));
            command(&["SUNIONSTORE", "to", "set"])
        },
        ":10000\r\n",
    ),
    (
        "ZRANGESTORE",
        |bench| {
            many(bench, &["ZADD", "sorted"], names(10_000, 20).flat_map(|name| ["1".to_owned(), name]));
            command(&["ZRANGESTORE", "to", "sorted", "0", "-1"])
        },
        ":10000\r\n",
    ),
];

/// Begins with a request, and has memory held back, for values of so many bytes, too: its next step is asked again until it comes,
/// or is refused.
fn waits((name, prepare, expected): (&str, Prepare, &str), value_bytes: usize, comes: bool) {
    let (mut bench, mut stuck) = pressed();
    bench.worker.set_patient(true);
    let mut left = prepare(&mut bench);
    bench.worker.set_patient(false);
    let (mut session, mut said) = (Session::new(), String::new());
    // What is one moment for others.
    let holds_its_key = name == "HSETEX";
    let mut go_on = |bench: &mut Bench| {
        let (next, more, consumed) = bench.call(&mut session, &left);
        left.drain(..consumed);
        said += &String::from_utf8_lossy(&more);
        if let Next::Sleep(ms) | Next::Await(Some(ms)) = next {
            bench.system += ms;
        }
        (next, left.len(), said.clone(), session.holds())
    };
    // Until all of it is read, and its first step is made.
    while go_on(&mut bench).1 > 0 {}
    if holds_its_key {
        // What waits until others know of that waits for the other worker.
        while !go_on(&mut bench).3 {}
        go_on(&mut bench);
    }
    let batch = stuck.enter(START);
    exhaust_by(&mut bench, "x", value_bytes);
    for turn in 0.. {
        let (next, _, said, _) = go_on(&mut bench);
        if matches!(next, Next::Sleep(_)) {
            break;
        }
        assert!(next == Next::Yield && turn < 100, "{name} {comes}, turn {turn}: {next:?} {said}");
    }
    for _ in 0..9 {
        assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
        let (next, _, said, _) = go_on(&mut bench);
        assert!(matches!(next, Next::Sleep(_)) && said.is_empty(), "{name} {comes}: {next:?} {said}");
    }
    let batch = (!comes).then_some(batch);
    for turn in 0.. {
        let (next, _, said, _) = go_on(&mut bench);
        if next == Next::Receive && !said.is_empty() {
            assert!(said.starts_with(expected), "{name} {comes}, turn {turn}: {said}");
            break;
        }
        assert!(turn < 1_000, "{name} {comes} asks for ever: {next:?}");
    }
    drop(batch);
}

/// With its memory, and without.
fn waits_or_is_refused((name, prepare, expected): Case, value_bytes: usize) {
    waits((name, prepare, expected), value_bytes, true);
    waits((name, prepare, "-OOM command not allowed"), value_bytes, false);
}

#[test]
fn steps_that_make_a_large_value_wait_for_their_memory_and_others_are_served_meanwhile() {
    COPIES.into_iter().for_each(|case| waits_or_is_refused(case, PIECE_BYTES));
}

#[test]
fn steps_of_other_commands_wait_for_their_memory_and_others_are_served_meanwhile() {
    COLLECTIONS.into_iter().for_each(|case| waits_or_is_refused(case, LEAF_BYTES));
}

/// The same of memcached's, which has the value in its first step.
#[test]
fn an_append_to_a_large_value_of_memcached_waits_for_its_memory() {
    let prepare: Prepare = |bench| {
        set(bench, "large", &vec![b'v'; 1_000_000]);
        b"append large 0 0 1\r\nx\r\n".to_vec()
    };
    waits(("append", prepare, "STORED\r\n"), LEAF_BYTES, true);
    waits(("append", prepare, "SERVER_ERROR out of memory storing object\r\n"), LEAF_BYTES, false);
}

/// Memory that comes a piece at a time is enough, however many looks that takes: the other worker is in its batch whenever the
/// job has its turn, and has left it between two turns.
#[test]
fn a_large_value_is_made_of_memory_that_comes_a_piece_at_a_time() {
    for (name, prepare, expected) in COPIES {
        let (mut bench, mut other) = pressed();
        bench.worker.set_patient(true);
        let mut left = prepare(&mut bench);
        bench.worker.set_patient(false);
        let (mut session, mut said, mut looks) = (Session::new(), Vec::new(), 0);
        for turn in 0.. {
            let batch = other.enter(START);
            let (next, more, consumed) = bench.call(&mut session, &left);
            drop(batch);
            left.drain(..consumed);
            said.extend(more);
            if let Next::Sleep(ms) | Next::Await(Some(ms)) = next {
                bench.system += ms;
                looks += 1;
            }
            if next == Next::Receive && left.is_empty() && !said.is_empty() {
                break;
            }
            assert!(turn < 5_000, "{name}: {next:?} behind {looks} looks");
        }
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with(expected), "{name}: {said} behind {looks} looks");
    }
}

/// Each try would be shown: it looks for memory before, and is shown once.
#[test]
fn a_write_that_monitors_are_shown_waits_for_its_memory_before_it_is_tried() {
    let (mut bench, mut stuck) = pressed();
    let batch = stuck.enter(START);
    exhaust(&mut bench, "x");
    let mut monitor = Session::new();
    assert_eq!(bench.turns(&mut monitor, &command(&["MONITOR"])).0, b"+OK\r\n");
    let (mut session, input) = (Session::new(), command(&["SET", "shown", &"v".repeat(1_000)]));
    waits_for_memory(&mut bench, &mut session, &input);
    drop(batch);
    let said = until_answered(&mut bench, &mut session, &input);
    assert_eq!(said, "+OK\r\n");
    // All that was sent to the monitor waits in its worker's outbox.
    let told = bench.host.outbox.take().0;
    let told: Vec<_> = told.iter().map(|delivery| String::from_utf8_lossy(delivery.message.text())).collect();
    let shown = told.iter().filter(|line| line.contains(" \"SET\" \"shown\" ")).count();
    assert_eq!((shown, told.len()), (1, 1), "{told:?}");
}

/// Where memory is mapped ahead, steps that may take some wait for the thread that maps it: some turns, and others are served
/// meanwhile. A step whose memory does not come is made all the same. What reads, or takes out, waits for none.
#[test]
fn steps_that_take_memory_wait_for_what_is_being_mapped() {
    const LOOKS_MAX: usize = 50;
    const KEYS: usize = 100_000;
    /// A command with so many keys.
    fn words(name: &str, prefix: &str, value: Option<&str>) -> Vec<u8> {
        let keys: Vec<String> = (0..KEYS).map(|n| format!("{prefix}:{n}")).collect();
        let named = keys.iter().flat_map(|key| std::iter::once(key.as_str()).chain(value));
        command(&std::iter::once(name).chain(named).collect::<Vec<_>>())
    }
    let mut bench = Bench::with_debug(Settings::default());
    let store = Arc::clone(bench.worker.store());
    store.memory_is_made_ready_by(std::thread::current());
    // As the thread that maps memory does, when the store wakes it.
    let make_ready = || while store.make_memory_ready() {};
    // Runs a command: its reply, and how many turns in a row waited for memory, at most.
    let mut run = |input: &[u8], maps: bool| {
        let (mut session, mut input, mut said) = (Session::new(), input, Vec::new());
        let (mut row, mut most) = (0, 0);
        while said.is_empty() {
            let (next, reply, consumed) = bench.call(&mut session, input);
            (said, input) = (reply, &input[consumed..]);
            row = if next == Next::Sleep(1) { row + 1 } else { 0 };
            most = most.max(row);
            if maps && row > 0 {
                make_ready();
            }
            bench.system += 1;
        }
        (String::from_utf8(said).expect("text"), most)
    };
    for (maps, looks) in [(true, 1), (false, LOOKS_MAX)] {
        let prefix = if maps { "mapped" } else { "not" };
        make_ready();
        assert_eq!(run(&words("MSET", prefix, Some("value")), maps), ("+OK\r\n".to_owned(), looks));
        make_ready();
        let populate = command(&["DEBUG", "POPULATE", &KEYS.to_string(), &format!("populated-{prefix}")]);
        assert_eq!(run(&populate, maps), ("+OK\r\n".to_owned(), looks));
    }
    assert!(store.awaits_memory());
    for name in ["EXISTS", "DEL"] {
        assert_eq!(run(&words(name, "not", None), false), (format!(":{KEYS}\r\n"), 0), "it takes no memory");
    }
}
