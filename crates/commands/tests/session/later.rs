//! Memory that is on its way: a command that needs it is begun again later, and its worker serves others meanwhile.

use super::{Bench, START};
use crate::binary::{NOOP, get as get_frame, lines, set as set_frame};
use crate::pairs::{pairs, waits};
use crate::survey::command;
use larder_commands::{Next, Session, Settings};
use larder_store::{Attributes, Config, Expect, Store};
use larder_testkit::timing::at_most;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keys of items of which the store is full.
const KEYS: u32 = 20_000;
/// Most turns take no longer that sleep for nothing: it is some 10 ms otherwise, and the machine does other things.
const TURN: Duration = Duration::from_millis(5);

/// A full store, and a worker for which others wait.
fn full() -> (Bench, Arc<Store>) {
    full_of(true)
}

/// As [`full`], of a store that evicts or does not.
fn full_of(evict: bool) -> (Bench, Arc<Store>) {
    let config = Config { memory_bytes: 16 << 20, workers_max: 2, evict, ..Config::default() };
    let bench = full_with(config, KEYS, 1000);
    let store = Arc::clone(bench.worker.store());
    (bench, store)
}

/// As [`full`], of so many keys, if there is room, with values of so many bytes.
fn full_with(config: Config, keys: u32, value_bytes: usize) -> Bench {
    let evict = config.evict;
    let store = Store::new(config).unwrap();
    let mut worker = store.worker().unwrap();
    for n in 0..keys {
        let mut guard = worker.enter(START);
        let name = n.to_be_bytes();
        let key = guard.key(&name);
        let stored = guard.store_value(&key, &vec![1; value_bytes], &Attributes::default(), Expect::Any);
        assert!(stored.is_ok() || !evict);
        if stored.is_err() {
            break;
        }
    }
    worker.set_patient(false);
    worker.set_asked_again(true);
    Bench::over(worker, Settings::default())
}

impl Bench {
    /// Turns until one of many sets finds no memory: the rest of the pipeline, and replies so far.
    fn until_it_sleeps(&mut self, session: &mut Session, input: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut left, mut replies) = (input.to_vec(), Vec::new());
        loop {
            let (next, said, consumed) = self.call_on(session, &left);
            left.drain(..consumed);
            replies.extend(said);
            match next {
                Next::Sleep(_) => return (left, replies),
                Next::Flush | Next::Yield => {}
                Next::Receive | Next::Close | Next::Await(_) => panic!("there was memory: {next:?}"),
            }
        }
    }

    /// Turns until what is left of [`sets`] is answered: with what was replied before, each was stored.
    fn until_all_are_set(
        &mut self,
        session: &mut Session,
        resp: bool,
        left: &mut Vec<u8>,
        replies: &mut Vec<u8>,
    ) {
        loop {
            let (next, said, consumed) = self.call_on(session, left);
            left.drain(..consumed);
            replies.extend(said);
            if next == Next::Receive {
                break;
            }
        }
        let expected =
            if resp { "+OK\r\n".repeat(3000) + "+PONG\r\n" } else { "STORED\r\n".repeat(3000) + "MN\r\n" };
        assert_eq!(String::from_utf8_lossy(replies), expected);
    }
}

fn sets(resp: bool) -> Vec<u8> {
    let value = "v".repeat(1000);
    let one = |n| match resp {
        true => format!("*3\r\n$3\r\nSET\r\n$8\r\n{n:08}\r\n$1000\r\n{value}\r\n"),
        false => format!("set {n:08} 0 0 1000\r\n{value}\r\n"),
    };
    (0..3000)
        .map(one)
        .chain([if resp { "PING\r\n".to_owned() } else { "mn\r\n".to_owned() }])
        .collect::<String>()
        .into()
}

/// Asks for memory that is on its way while another connection is served; how long each turn took.
fn asked_again() -> Vec<Duration> {
    let mut took = Vec::new();
    for resp in [false, true] {
        let (mut bench, store) = full();
        let mut stuck = store.worker().unwrap();
        let batch = stuck.enter(START);
        let mut session = Session::new();
        let (mut left, mut replies) = bench.until_it_sleeps(&mut session, &sets(resp));
        // Another connection of the worker, and the same again: nothing was taken of its request.
        for _ in 0..9 {
            let began = Instant::now();
            let (next, said, _) = bench.call_on(&mut Session::new(), b"get nothing\r\n");
            assert_eq!((&said[..], next), (&b"END\r\n"[..], Next::Receive));
            let (next, said, consumed) = bench.call_on(&mut session, &left);
            assert!(matches!(next, Next::Sleep(_)), "{next:?}");
            took.push(began.elapsed());
            left.drain(..consumed);
            replies.extend(said);
        }
        drop(batch);
        bench.until_all_are_set(&mut session, resp, &mut left, &mut replies);
        drop(stuck);
    }
    took
}

#[test]
fn a_set_without_memory_is_asked_again_in_its_place_and_others_are_served_meanwhile() {
    asked_again();
}

#[test]
#[ignore = "time: half of the turns have 5 ms each"]
fn a_turn_in_which_a_set_is_asked_again_takes_no_time() {
    at_most(TURN, || {
        let took = asked_again();
        let median = |took: &[Duration]| {
            let mut took = took.to_vec();
            took.sort_unstable();
            took[4]
        };
        took.chunks(9).map(median).max().expect("both protocols")
    });
}

#[test]
fn a_set_is_refused_when_its_memory_does_not_come_and_the_next_at_once() {
    for (resp, refused) in
        [(false, "SERVER_ERROR out of memory storing object\r\n"), (true, "-OOM command not allowed")]
    {
        let (mut bench, store) = full();
        let mut stuck = store.worker().unwrap();
        let batch = stuck.enter(START);
        let mut session = Session::new();
        let (mut left, _) = bench.until_it_sleeps(&mut session, &sets(resp));
        let mut looks = 0;
        let said = loop {
            let (next, said, consumed) = bench.call_on(&mut session, &left);
            left.drain(..consumed);
            if !said.is_empty() {
                break String::from_utf8(said).unwrap();
            }
            assert!(matches!(next, Next::Sleep(_)), "{next:?}");
            looks += 1;
            assert!(looks < 100, "it asks for ever");
        };
        assert!(said.starts_with(refused), "{}", &said[..said.len().min(60)]);
        assert!(looks > 10, "{looks}: about 240 ms are waited for it");
        drop(batch);
        drop(stuck);
    }
}

/// The first receive of a worker is measured. The set that is asked again counts each time.
#[test]
fn sets_of_a_run_that_ends_for_memory_are_measured_with_it() {
    let (mut bench, store) = full();
    let mut stuck = store.worker().unwrap();
    let batch = stuck.enter(START);
    let (next, said, _) = bench.call_on(&mut Session::new(), &sets(false));
    assert!(matches!(next, Next::Sleep(_)), "{next:?}");
    let stored = said.len() / "STORED\r\n".len();
    let told = bench.ask("stats commands\r\n");
    assert!(told.starts_with(&format!("STAT set:measured {}\r\n", stored + 1)), "{stored}: {told}");
    drop(batch);
    drop(stuck);
}

/// The same of frames, whose memory comes, or does not.
#[test]
fn a_frame_without_memory_is_asked_again_in_its_place_or_refused() {
    let frames = |n: u32| set_frame(0x01, &format!("{n:08}"), &[b'v'; 1000]);
    let input: Vec<u8> = (0..3000).flat_map(frames).chain(get_frame(NOOP, "")).collect();
    for comes in [true, false] {
        let (mut bench, store) = full();
        let mut stuck = store.worker().unwrap();
        let batch = stuck.enter(START);
        let mut session = Session::new();
        let (mut left, mut replies) = bench.until_it_sleeps(&mut session, &input);
        let before = lines(&replies);
        assert!(before.len() < 3000 && before.iter().all(|line| line == "01 0*"));
        for _ in 0..9 {
            let (next, said, consumed) = bench.call_on(&mut session, &left);
            assert!(matches!(next, Next::Sleep(_)), "{next:?}");
            left.drain(..consumed);
            replies.extend(said);
        }
        if !comes {
            let mut looks = 0;
            let refused = loop {
                let (_, said, consumed) = bench.call_on(&mut session, &left);
                left.drain(..consumed);
                if let Some(first) = lines(&said).into_iter().next() {
                    break first;
                }
                looks += 1;
                assert!(looks < 100, "it asks for ever");
            };
            assert_eq!(refused, "01 130 Out of memory allocating item");
            continue;
        }
        drop(batch);
        loop {
            let (next, said, consumed) = bench.call_on(&mut session, &left);
            left.drain(..consumed);
            replies.extend(said);
            if next == Next::Receive {
                break;
            }
        }
        let told = lines(&replies);
        let stored = told.iter().take_while(|line| *line == "01 0*").count();
        assert_eq!((stored, &told[stored..]), (3000, &["0a 0".to_owned()][..]));
    }
}

/// A long element that has come waits for memory for what names it, as a request does that was gathered.
#[test]
fn a_long_element_that_is_whole_waits_for_memory_for_what_names_it() {
    let element = "e".repeat(40_000);
    for words in [&["RPUSH", "l", &element][..], &["HSET", "h", "f", &element]] {
        let (mut bench, store) = full();
        let mut request = command(words);
        let end = request.split_off(request.len() - 2);
        let (mut session, mut left) = (Session::new(), &request[..]);
        loop {
            let (next, said, consumed) = bench.call_on(&mut session, left);
            assert!(said.is_empty());
            left = &left[consumed..];
            if next == Next::Receive {
                break;
            }
        }
        assert!(left.is_empty() && session.awaits_rest());
        let mut stuck = store.worker().unwrap();
        let batch = stuck.enter(START);
        // What is free goes.
        bench.until_it_sleeps(&mut Session::new(), &sets(true));
        for _ in 0..3 {
            let (next, said, consumed) = bench.call_on(&mut session, &end);
            assert!(matches!(next, Next::Sleep(_)) && said.is_empty() && consumed == 0, "{next:?}");
        }
        drop(batch);
        let (mut left, mut replies) = (&end[..], Vec::new());
        loop {
            let (next, said, consumed) = bench.call_on(&mut session, left);
            left = &left[consumed..];
            replies.extend(said);
            if next == Next::Receive {
                break;
            }
        }
        assert_eq!((String::from_utf8_lossy(&replies), left.len()), (":1\r\n".into(), 0));
        drop(stuck);
    }
}

/// What a flush has taken from a store that evicts nothing comes with the end of another worker's batch: no set behind it
/// is refused.
#[test]
fn sets_behind_a_flush_of_a_full_store_that_evicts_nothing_wait_for_their_memory() {
    for (resp, flush) in [(false, &b"flush_all\r\n"[..]), (true, b"*1\r\n$8\r\nFLUSHALL\r\n")] {
        let (mut bench, store) = full_of(false);
        let mut stuck = store.worker().unwrap();
        let batch = stuck.enter(START);
        let mut session = Session::new();
        let (_, said, _) = bench.call_on(&mut session, flush);
        assert_eq!(said, if resp { &b"+OK\r\n"[..] } else { b"OK\r\n" });
        let (mut left, mut replies) = bench.until_it_sleeps(&mut session, &sets(resp));
        drop(batch);
        bench.until_all_are_set(&mut session, resp, &mut left, &mut replies);
        drop(stuck);
    }
}

/// What was flushed is memory: a write that needs it waits until it is found, however much was flushed.
#[test]
fn behind_a_flush_of_a_full_store_nothing_is_refused() {
    for (value, key) in [(300, "k".to_owned()), (1000, "k".repeat(200)), (6000, "k".to_owned())] {
        let config = Config { memory_bytes: 64 << 20, workers_max: 2, evict: false, ..Config::default() };
        let mut bench = full_with(config, 1_000_000, 40);
        assert_eq!(bench.call_on(&mut Session::new(), b"flush_all\r\n").1, b"OK\r\n");
        let (mut refused, mut most) = (0, 0);
        for n in 0..400 {
            let text = "v".repeat(value);
            let (input, stored) = match n % 4 {
                0 => (
                    command(&["MSET", &format!("{key}{n}"), &text, &format!("{key}{n} too"), &text]),
                    "+OK\r\n",
                ),
                _ => (format!("set {key}{n} 0 0 {value}\r\n{text}\r\n").into_bytes(), "STORED\r\n"),
            };
            let mut session = Session::new();
            let (mut left, mut looks, mut said) = (&input[..], 0, Vec::new());
            loop {
                let (next, more, consumed) = bench.call_on(&mut session, left);
                left = &left[consumed..];
                said.extend(more);
                match next {
                    Next::Receive => break,
                    Next::Sleep(_) => looks += 1,
                    _ => {}
                }
            }
            most = most.max(looks);
            refused += usize::from(said != stored.as_bytes());
        }
        assert_eq!(refused, 0, "{value}");
        assert!(most <= 20, "{value}: {most} looks");
    }
}

/// An MSET in steps waits for its memory with its keys held, and others of its worker are served meanwhile: its memory comes,
/// or does not.
#[test]
fn pairs_in_steps_wait_for_their_memory_and_others_are_served_meanwhile() {
    for comes in [true, false] {
        let (mut bench, store) = full();
        let mut stuck = store.worker().unwrap();
        let mut session = Session::new();
        let (mut next, ..) = bench.call(&mut session, &pairs("MSET", 3000, &"v".repeat(200)));
        while !session.must_end() {
            assert_eq!(next, Next::Yield);
            (next, ..) = bench.call(&mut session, b"");
        }
        // It has waited for requests of before, and begun to write.
        for _ in 0..2 {
            (next, ..) = bench.call(&mut session, b"");
        }
        let batch = stuck.enter(START);
        for turn in 0.. {
            if next != Next::Yield {
                break;
            }
            assert!(turn < 100 && session.must_end(), "there was memory");
            (next, ..) = bench.call(&mut session, b"");
        }
        assert!(matches!(next, Next::Await(Some(_))), "{next:?}");
        for _ in 0..9 {
            assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
            waits(&mut bench, &mut Session::new(), &command(&["GET", "k0"]), "a key that is held");
            bench.system += 10;
            let (next, said, _) = bench.call(&mut session, b"");
            assert!(said.is_empty() && matches!(next, Next::Await(Some(_))), "{next:?}");
            // It leaves others the slice: one pair was looked at.
            let done_ns = bench.room.work().done_ns();
            assert!(done_ns < 10_000, "{done_ns} ns");
        }
        let batch = (!comes).then_some(batch);
        let (mut said, mut looks) = (Vec::new(), 0);
        while session.must_end() {
            bench.system += 10;
            said.extend(bench.call(&mut session, b"").1);
            looks += 1;
            assert!(looks < 100, "it asks for ever");
        }
        let expected = if comes { "+OK\r\n" } else { "-OOM command not allowed" };
        assert!(String::from_utf8_lossy(&said).starts_with(expected), "{said:?}");
        drop(batch);
        drop(stuck);
    }
}

/// Memory that comes for some pairs each 200 ms, so that no pair waits for too long: the command waits for 2 s in all.
#[test]
fn pairs_in_steps_wait_for_memory_no_longer_than_two_seconds_in_all() {
    let config = Config { memory_bytes: 32 << 20, workers_max: 2, evict: true, ..Config::default() };
    let mut bench = full_with(config, 2 * KEYS, 1000);
    let store = Arc::clone(bench.worker.store());
    let mut stuck = store.worker().unwrap();
    let mut session = Session::new();
    let (mut next, ..) = bench.call(&mut session, &pairs("MSET", 18_000, &"v".repeat(200)));
    while !session.must_end() {
        assert_eq!(next, Next::Yield);
        (next, ..) = bench.call(&mut session, b"");
    }
    // It has waited for requests of before, and begun to write.
    (0..2).for_each(|_| drop(bench.call(&mut session, b"")));
    let (mut said, mut waited_ms) = (Vec::new(), 0);
    // Whether it is over, and whether it waits. The slice is spent soon, so that steps are short.
    let mut look = || {
        let (next, more, _) = bench.call_on(&mut session, b"");
        said.extend(more);
        if let Next::Await(Some(ms)) = next {
            waited_ms += ms;
            bench.system += ms;
        }
        (!session.must_end(), matches!(next, Next::Await(_)))
    };
    let mut is_over = false;
    while !is_over {
        let mut waits = true;
        while waits && !is_over {
            (is_over, waits) = look();
        }
        let batch = stuck.enter(START);
        let mut looks = 0;
        while looks < 20 && !is_over {
            (is_over, waits) = look();
            looks += usize::from(waits);
        }
        drop(batch);
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("-OOM command not allowed"), "{said}, {waited_ms} ms");
    assert_eq!(waited_ms, 2_000);
}

fn is_there(bench: &mut Bench, name: &str) -> bool {
    let mut guard = bench.worker.enter(START);
    let key = guard.key(name.as_bytes());
    guard.peek(&key).hit().is_some()
}

/// The keys of an MSET that others of it have taken the memory of were not deleted: each pair is published as set, once, whether
/// its key was there still, was evicted before it was written, or went to one behind it.
#[test]
fn keys_of_pairs_that_give_way_to_others_of_them_are_not_told_as_deleted() {
    const PAIRS: usize = 3_000;
    let config = Config { memory_bytes: 16 << 20, workers_max: 2, evict: true, ..Config::default() };
    let mut bench = full_with(config, 0, 0);
    let store = Arc::clone(bench.worker.store());
    let mut stuck = store.worker().unwrap();
    // More than there is room for, all of one length. What was there first goes first now.
    bench.worker.set_patient(true);
    let value = "v".repeat(200);
    let names: Vec<String> = (0..80_000).map(|n| format!("k{n:05}")).collect();
    for name in &names {
        let mut guard = bench.worker.enter(START);
        let key = guard.key(name.as_bytes());
        guard.store_value(&key, value.as_bytes(), &Attributes::default(), Expect::Any).expect("others go");
    }
    bench.worker.set_patient(false);
    let names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| is_there(&mut bench, name)).take(PAIRS).collect();
    let (mut listens, mut session) = (Session::new(), Session::new());
    bench.turns(&mut Session::new(), &command(&["CONFIG", "SET", "notify-keyspace-events", "E$g"]));
    bench.turns(&mut listens, &command(&["SUBSCRIBE", "__keyevent@0__:del", "__keyevent@0__:set"]));
    let words = names.iter().flat_map(|name| [*name, &value[..]]);
    let input = command(&std::iter::once("MSET").chain(words).collect::<Vec<_>>());
    let (mut next, ..) = bench.call(&mut session, &input);
    while !session.must_end() {
        assert_eq!(next, Next::Yield);
        (next, ..) = bench.call(&mut session, b"");
    }
    // It has waited for requests of before, and begun to write.
    (0..2).for_each(|_| drop(bench.call(&mut session, b"")));
    let (mut said, mut round, mut gone) = (Vec::new(), 0, 0);
    while session.must_end() {
        // Its memory is held back twenty times, up to a look in vain, and then it comes.
        let batch = if round < 20 { Some(stuck.enter(START)) } else { None };
        loop {
            let (next, more, _) = bench.call(&mut session, b"");
            said.extend(more);
            if let Next::Await(Some(ms)) = next {
                bench.system += ms;
                break;
            }
            if !session.must_end() {
                break;
            }
        }
        drop(batch);
        gone = gone.max(names.iter().filter(|name| !is_there(&mut bench, name)).count());
        round += 1;
    }
    assert_eq!(String::from_utf8_lossy(&said), "+OK\r\n");
    assert!(round > 1 && gone > 0, "{gone} of them have given way in {round} rounds");
    assert!(!bench.shared.go_on_telling(&bench.host, &store, 1 << 40), "all is told");
    let told = bench.turns(&mut listens, &command(&["PING"])).0;
    let told = String::from_utf8_lossy(&told);
    let times = |event: &str| told.matches(&format!("__keyevent@0__:{event}\r\n")).count();
    assert_eq!([times("del"), times("set")], [0, PAIRS]);
}
