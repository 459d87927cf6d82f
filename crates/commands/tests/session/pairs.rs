//! MSET and MSETNX of very many keys: in steps, beside others, and one moment for all of them.

use crate::binary;
use crate::slices::{LARGE, STEP_NS, bulk, bytes, get, set};
use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session, Settings};

/// Pairs that take many steps, and the most that take one.
pub const MANY: usize = 6_000;
const FEW: usize = 2 << 10;

pub fn pairs(name: &str, count: usize, value: &str) -> Vec<u8> {
    let names: Vec<String> = (0..count).map(|n| format!("k{n}")).collect();
    let words = names.iter().flat_map(|name| [name, value]);
    command(&std::iter::once(name).chain(words).collect::<Vec<_>>())
}

/// Has all keys have a value, which others see.
pub fn fill(bench: &mut Bench, value: &str) {
    let mut guard = bench.worker.enter(bench.system);
    for n in 0..MANY {
        let name = format!("k{n}");
        let key = guard.key(name.as_bytes());
        let attributes = larder_store::Attributes::default();
        guard.store_value(&key, value.as_bytes(), &attributes, larder_store::Expect::Any).unwrap();
    }
    guard.take_beside_ns();
}

/// A turn of a session that does no more than its slice and a step.
pub fn turn(bench: &mut Bench, session: &mut Session, input: &[u8]) -> (Next, Vec<u8>, usize) {
    let done = bench.call(session, input);
    let done_ns = bench.room.work().done_ns();
    assert!(done_ns <= SLICE_NS + STEP_NS, "{done_ns} ns in a turn");
    done
}

/// Begins a command of many pairs, and goes on until its keys are held.
pub fn begun(bench: &mut Bench, input: &[u8]) -> Session {
    let mut session = Session::new();
    let (mut next, said, consumed) = bench.call(&mut session, input);
    assert_eq!((consumed, String::from_utf8_lossy(&said)), (input.len(), "".into()));
    while !session.must_end() {
        assert_eq!(next, Next::Yield);
        (next, ..) = turn(bench, &mut session, b"");
    }
    session
}

/// Goes on with it to its end: the reply, and how many turns that took.
pub fn ended(bench: &mut Bench, session: &mut Session) -> (String, usize) {
    ended_by(bench, session, |bench, session| turn(bench, session, b"").1)
}

/// Goes on to the end of what is one moment, turn by turn: what is sent by then, and how many turns that took.
pub fn ended_by(
    bench: &mut Bench,
    session: &mut Session,
    turn: impl Fn(&mut Bench, &mut Session) -> Vec<u8>,
) -> (String, usize) {
    let (mut said, mut turns) = (Vec::new(), 0);
    while session.must_end() {
        said.extend(turn(bench, session));
        turns += 1;
    }
    // Others have their turn before the next holds keys.
    bench.system += 100;
    (String::from_utf8(said).unwrap(), turns)
}

/// Waits, and has done nothing.
pub fn waits(bench: &mut Bench, session: &mut Session, input: &[u8], what: &str) {
    let (next, said, _) = bench.call(session, input);
    assert!(matches!(next, Next::Sleep(_)), "{what}: {next:?}");
    assert_eq!(said, b"", "{what}");
}

#[test]
fn few_pairs_are_written_in_one_step_and_many_in_turns() {
    let mut bench = bench();
    let mut session = Session::new();
    let (next, said, _) = bench.call(&mut session, &pairs("MSET", FEW, "v"));
    assert!(said == b"+OK\r\n" && matches!(next, Next::Receive | Next::Yield), "{next:?}");
    let mut session = begun(&mut bench, &pairs("MSET", FEW + 1, "v"));
    let (said, turns) = ended(&mut bench, &mut session);
    assert!(said == "+OK\r\n" && turns >= FEW * 2_000 / (SLICE_NS as usize), "{turns} turns");
    // Few of which one is very long, too.
    let mut bench = Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 256 << 20);
    let long = "x".repeat(5 << 20);
    let input = command(&["MSET", "a", &long, "b", &long]);
    bench.limit = 64 << 20;
    let (mut session, mut kept) = (Session::new(), Vec::new());
    for part in input.chunks(100_000) {
        kept.extend_from_slice(part);
        let (_, said, consumed) = bench.call(&mut session, &kept);
        assert_eq!(said, b"");
        kept.drain(..consumed);
    }
    while !session.must_end() {
        turn(&mut bench, &mut session, b"");
    }
    let (mut said, mut turns) = (Vec::new(), 0);
    while session.must_end() {
        // A pair of them takes longer than a slice.
        said.extend(bench.call(&mut session, b"").1);
        turns += 1;
    }
    assert!(said == b"+OK\r\n" && turns >= 2, "{turns} turns");
}

/// A value is received into its item while keys are held, however much longer it is than a request that is gathered may be. It
/// waits when it is whole, if its key is one of them.
#[test]
fn a_large_value_comes_in_while_keys_are_held() {
    let mut bench = bench();
    let value = bytes(LARGE, 0);
    assert!(LARGE as u64 > Settings::default().append_bytes_max);
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    set(&mut bench, "other", &value);
    assert!(writer.must_end());
    let head = format!("*3\r\n$3\r\nSET\r\n$2\r\nk0\r\n${LARGE}\r\n").into_bytes();
    let input = [&head[..], &value, b"\r\n"].concat();
    let (mut session, mut at, mut next) = (Session::new(), 0, Next::Receive);
    while next == Next::Receive {
        let end = input.len().min(at + 60_000);
        let (then, said, consumed) = bench.call(&mut session, &input[at..end]);
        assert_eq!(said, b"");
        (next, at) = (then, at + consumed);
    }
    assert!(matches!(next, Next::Sleep(_)) && at == input.len() - 2, "{next:?} at {at}");
    assert_eq!(ended(&mut bench, &mut writer).0, "+OK\r\n");
    assert_eq!(bench.call(&mut session, &input[at..]).1, b"+OK\r\n");
    assert!(get(&mut bench, "k0") == bulk(&value) && get(&mut bench, "other") == bulk(&value));
}

/// Whether one of very many keys is held is looked at again and again: each look is work.
#[test]
fn who_waits_for_one_of_many_keys_pays_for_each_look() {
    let mut bench = bench();
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    let names: Vec<String> = (0..20_000).map(|n| format!("k{n}")).collect();
    for (count, work_ns) in [(4 << 10, 0), (20_000, (20_000 - (4 << 10)) * 30)] {
        let names = names[..count].iter().map(String::as_str);
        let exists = command(&std::iter::once("EXISTS").chain(names).collect::<Vec<_>>());
        let mut waiting = Session::new();
        for _ in 0..2 {
            waits(&mut bench, &mut waiting, &exists, "EXISTS");
            let done_ns = bench.room.work().done_ns();
            assert!((work_ns..work_ns + 10_000).contains(&done_ns), "{done_ns} ns for {count} keys");
        }
    }
    ended(&mut bench, &mut writer);
}

#[test]
fn others_are_served_while_many_pairs_are_written_and_see_none_or_all_of_them() {
    let mut bench = bench();
    fill(&mut bench, "old");
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    let (mut turns, last) = (0, format!("k{}", MANY - 1));
    let long: Vec<String> = (MANY - 1..MANY + 6_000).rev().map(|n| format!("k{n}")).collect();
    let long = command(&std::iter::once("MGET").chain(long.iter().map(|name| &name[..])).collect::<Vec<_>>());
    let mut frames = Session::new();
    let beside: [(&[u8], &str); 7] = [
        (&command(&["GET", "other"]), "$-1\r\n"),
        (&command(&["MGET", "other", "k999999"]), "*2\r\n$-1\r\n$-1\r\n"),
        (&command(&["SET", "other", ""]), "+OK\r\n"),
        (b"*2\r\n$3\r\nDEL\r\n$5\r\nother\r\n", ":1\r\n"),
        (b"get other x\r\nmg other v\r\n", "END\r\nEN\r\n"),
        (b"set y 0 0 1\r\n1\r\ndelete y\r\n", "STORED\r\nDELETED\r\n"),
        (
            &[command(&["MULTI"]), command(&["GET", "k1"]), command(&["DISCARD"])].concat(),
            "+OK\r\n+QUEUED\r\n+OK\r\n",
        ),
    ];
    let of_them: Vec<Vec<u8>> = vec![
        command(&["GET", "k0"]),
        command(&["GET", &last]),
        format!("GET {last}\r\n").into_bytes(),
        command(&["SET", &last, "mine", "GET"]),
        command(&["MGET", "other", "k1", &last]),
        command(&["EXISTS", &last, "k0"]),
        command(&["COPY", "other", "k3"]),
        command(&["DBSIZE"]),
        command(&["SWAPDB", "0", "1"]),
        command(&["FLUSHALL"]),
        command(&["EVAL", "return redis.call('GET', 'k0')", "0"]),
        command(&["WATCH", "k7"]),
        long,
        b"get k0\r\n".to_vec(),
        b"get other k0\r\n".to_vec(),
        b"mg azA= b v\r\n".to_vec(),
        b"flush_all\r\n".to_vec(),
        binary::get(0x00, "k0"),
        binary::frame(0x01, &[0; 8], &last, b"mine"),
        binary::frame(0x08, b"", "", b""),
    ];
    let mut sessions: Vec<Session> = of_them.iter().map(|_| Session::new()).collect();
    let mut exec = Session::new();
    bench
        .turns(&mut exec, &[command(&["MULTI"]), command(&["GET", "k0"]), command(&["GET", &last])].concat());
    // One that comes in parts waits when it is whole.
    let (mut gathers, mut kept) = (Session::new(), Vec::new());
    for part in of_them[12].chunks(20_000) {
        kept.extend_from_slice(part);
        let (_, _, consumed) = bench.call(&mut gathers, &kept);
        kept.drain(..consumed);
    }
    assert!(kept.is_empty() && !gathers.is_idle());
    while writer.must_end() {
        waits(&mut bench, &mut gathers, b"", "gathered");
        assert_eq!(
            bench.turns(&mut frames, &binary::get(0x0c, "other")).0[..8],
            [0x81, 0x0c, 0, 5, 0, 0, 0, 1]
        );
        for (input, expected) in &beside {
            assert_eq!(&bench.ask(std::str::from_utf8(input).unwrap()), expected);
        }
        for (session, input) in sessions.iter_mut().zip(&of_them) {
            waits(&mut bench, session, input, &String::from_utf8_lossy(&input[..input.len().min(60)]));
        }
        waits(&mut bench, &mut exec, &command(&["EXEC"]), "EXEC");
        let (next, said, _) = turn(&mut bench, &mut writer, b"");
        assert!(if writer.must_end() { said.is_empty() } else { said == b"+OK\r\n" }, "{next:?}");
        turns += 1;
    }
    assert!(turns >= 20, "{turns} turns");
    let (said, _) = bench.turns(&mut exec, &command(&["EXEC"]));
    assert_eq!(String::from_utf8_lossy(&said), "*2\r\n$3\r\nnew\r\n$3\r\nnew\r\n");
    let (said, _) = bench.turns(&mut sessions[1], &of_them[1]);
    assert_eq!(String::from_utf8_lossy(&said), "$3\r\nnew\r\n");
    let (said, _) = bench.turns(&mut gathers, b"");
    assert_eq!(said.windows(9).filter(|bytes| bytes == b"$3\r\nnew\r\n").count(), 1);
    assert_eq!(bench.ask("get k0 k5999\r\n"), "VALUE k0 0 3\r\nnew\r\nVALUE k5999 0 3\r\nnew\r\nEND\r\n");
    // Nothing is looked at any more.
    assert_eq!(bench.turns(&mut sessions[13], &of_them[13]).0, b"VALUE k0 0 3\r\nnew\r\nEND\r\n");
}

#[test]
fn msetnx_of_many_keys_writes_all_or_none() {
    let mut bench = bench();
    let input = pairs("MSETNX", MANY, "new");
    let mut session = begun(&mut bench, &input);
    assert_eq!(ended(&mut bench, &mut session).0, ":1\r\n");
    let mut other = Session::new();
    bench.turns(&mut other, &command(&["FLUSHALL"]));
    bench.turns(&mut other, &command(&["SET", &format!("k{}", MANY - 1), "old"]));
    let mut session = begun(&mut bench, &input);
    assert_eq!(ended(&mut bench, &mut session).0, ":0\r\n");
    assert_eq!(bench.turns(&mut other, &command(&["DBSIZE"])).0, b":1\r\n");
}

/// The second begins when the first is done, and others have had their turn between.
#[test]
fn two_of_many_pairs_come_one_behind_the_other() {
    let mut bench = bench();
    let mut first = begun(&mut bench, &pairs("MSET", MANY, "one"));
    let (mut second, input) = (Session::new(), pairs("MSET", MANY, "two"));
    let (mut next, ..) = bench.call(&mut second, &input);
    while next == Next::Yield {
        (next, ..) = turn(&mut bench, &mut second, b"");
    }
    assert!(matches!(next, Next::Sleep(_) | Next::Await(Some(_))) && !second.must_end(), "{next:?}");
    assert_eq!(bench.turns(&mut first, b"").0, b"+OK\r\n");
    // It notes its keys, and waits.
    while turn(&mut bench, &mut second, b"").0 == Next::Yield {
        assert!(!second.must_end(), "at once");
    }
    assert_eq!(bench.turns(&mut Session::new(), &command(&["GET", "k7"])).0, b"$3\r\none\r\n");
    bench.system += 100;
    assert_eq!(bench.turns(&mut second, b"").0, b"+OK\r\n");
    assert_eq!(bench.turns(&mut Session::new(), &command(&["GET", "k7"])).0, b"$3\r\ntwo\r\n");
}

#[test]
fn what_was_begun_in_steps_before_waits_for_keys_that_are_held() {
    let mut bench = bench();
    fill(&mut bench, "old");
    let names: Vec<String> = (0..MANY + 6_000).rev().map(|n| format!("k{n}")).collect();
    let input =
        command(&std::iter::once("DEL").chain(names.iter().map(|name| &name[..])).collect::<Vec<_>>());
    let mut del = Session::new();
    assert_eq!(bench.call(&mut del, &input).0, Next::Yield);
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    let mut next = Next::Yield;
    while next == Next::Yield {
        (next, ..) = turn(&mut bench, &mut del, b"");
    }
    assert!(matches!(next, Next::Sleep(_)), "{next:?}");
    assert_eq!(ended(&mut bench, &mut writer).0, "+OK\r\n");
    assert_eq!(bench.turns(&mut del, b"").0, format!(":{MANY}\r\n").as_bytes());
    assert_eq!(bench.turns(&mut Session::new(), &command(&["DBSIZE"])).0, b":0\r\n");
}

/// Bytes that memcached's clients add to values: gathered as they come, and put together in steps.
#[test]
fn what_is_added_to_a_value_waits_for_keys_that_are_held() {
    let mut bench = Bench::new(Settings { item_bytes_max: 8 << 20, ..Settings::default() });
    fill(&mut bench, "old");
    set(&mut bench, "k1", &bytes(LARGE, 0));
    let (added, frame) = ("x".repeat(40_000), binary::frame(0x0e, b"", "k2", "y".repeat(40_000).as_bytes()));
    let text = format!("append k0 0 0 40000\r\n{added}\r\n").into_bytes();
    let (mut gathers, mut frames, mut joins) = (Session::new(), Session::new(), Session::new());
    let mut begins = |session: &mut Session, input: &[u8]| {
        let (next, said, consumed) = bench.call(session, &input[..36_000]);
        assert_eq!((next, said.len(), consumed), (Next::Receive, 0, 36_000));
        input[36_000..].to_vec()
    };
    let (text, frame) = (begins(&mut gathers, &text), begins(&mut frames, &frame));
    assert_eq!(bench.call(&mut joins, b"append k1 0 0 1\r\nx\r\n").0, Next::Yield);
    assert_eq!(bench.call(&mut joins, b"").0, Next::Yield);
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    waits(&mut bench, &mut gathers, &text, "what is gathered");
    waits(&mut bench, &mut frames, &frame, "a frame that is gathered");
    waits(&mut bench, &mut joins, b"", "what is put together");
    assert_eq!(ended(&mut bench, &mut writer).0, "+OK\r\n");
    assert_eq!(bench.call(&mut gathers, &text).1, b"STORED\r\n");
    assert!(!bench.call(&mut frames, &frame).1.is_empty());
    assert_eq!(bench.turns(&mut joins, b"").0, b"STORED\r\n");
    assert!(get(&mut bench, "k0") == bulk(format!("new{added}").as_bytes()));
    assert!(get(&mut bench, "k2") == bulk(format!("new{}", "y".repeat(40_000)).as_bytes()));
    assert_eq!(get(&mut bench, "k1"), b"$4\r\nnewx\r\n");
}

/// The client of a command of many pairs is to be closed: it is done all the same, and then the client's connection ends.
fn is_written_where_its_client_is_killed(input: &[u8]) {
    let mut bench = bench();
    let mut session = begun(&mut bench, input);
    let id = session.redis_client().unwrap().to_string();
    let killed = bench.turns(&mut Session::new(), &command(&["CLIENT", "KILL", "ID", &id])).0;
    assert_eq!(killed, b":1\r\n");
    ended(&mut bench, &mut session);
    assert_eq!(bench.turns(&mut Session::new(), &command(&["DBSIZE"])).0, format!(":{MANY}\r\n").as_bytes());
    assert_eq!(bench.call(&mut session, b"").0, Next::Close);
}

#[test]
fn a_client_that_is_killed_has_its_pairs_written() {
    is_written_where_its_client_is_killed(&pairs("MSET", MANY, "new"));
}

#[test]
fn keyspace_events_of_many_pairs_are_told() {
    let mut bench = bench();
    let (mut listens, mut asks) = (Session::new(), Session::new());
    bench.turns(&mut asks, &command(&["CONFIG", "SET", "notify-keyspace-events", "E$"]));
    bench.turns(&mut listens, &command(&["SUBSCRIBE", "__keyevent@0__:set"]));
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    assert_eq!(ended(&mut bench, &mut writer).0, "+OK\r\n");
    let said = bench.turns(&mut listens, &command(&["PING"])).0;
    assert_eq!(String::from_utf8_lossy(&said).matches("__keyevent@0__:set\r\n").count(), MANY);
}

/// MSETEX of so many keys, with options behind them.
fn with_options(count: usize, value: &str, options: &[&str]) -> Vec<u8> {
    let names: Vec<String> = (0..count).map(|n| format!("k{n}")).collect();
    let (count, words) = (count.to_string(), names.iter().flat_map(|name| [name, value]));
    let head = ["MSETEX", &count];
    command(&head.into_iter().chain(words).chain(options.iter().copied()).collect::<Vec<_>>())
}

const EXPIRES: &[&str] = &["EXAT", "4000000000"];

#[test]
fn msetex_of_few_keys_is_one_step_and_of_many_takes_turns() {
    let mut bench = bench();
    let mut other = Session::new();
    for count in [FEW - 1, FEW] {
        let (next, said, _) = bench.call(&mut Session::new(), &with_options(count, "few", EXPIRES));
        assert!(said == b":1\r\n" && matches!(next, Next::Receive | Next::Yield), "{count}: {next:?}");
    }
    let mut session = begun(&mut bench, &with_options(FEW + 1, "many", EXPIRES));
    let (said, turns) = ended(&mut bench, &mut session);
    assert!(said == ":1\r\n" && turns >= FEW * 2_000 / (SLICE_NS as usize), "{said}: {turns} turns");
    let last = format!("k{FEW}");
    for name in ["k0", &last] {
        assert_eq!(bench.turns(&mut other, &command(&["GET", name])).0, b"$4\r\nmany\r\n");
        assert_eq!(bench.turns(&mut other, &command(&["EXPIRETIME", name])).0, b":4000000000\r\n");
    }
    // What is no request at all is said at once, and an option is no pair.
    for (words, expected) in [
        (with_options(MANY, "v", &["NX", "XX"]), "-ERR syntax error\r\n"),
        (with_options(MANY, "v", &["EX"]), "-ERR syntax error\r\n"),
        (with_options(MANY, "v", &["IFEQ", "v"]), "-ERR syntax error\r\n"),
    ] {
        assert_eq!(String::from_utf8_lossy(&bench.turns(&mut other, &words).0), expected);
    }
    assert_eq!(bench.turns(&mut other, &command(&["DBSIZE"])).0, format!(":{}\r\n", FEW + 1).as_bytes());
}

#[test]
fn msetex_of_many_keys_writes_all_or_none_and_keeps_what_it_is_to_keep() {
    let mut bench = bench();
    let mut other = Session::new();
    let mut is = |bench: &mut Bench, words: &[&str], expected: &str| {
        let said = bench.turns(&mut other, &command(words)).0;
        assert_eq!(String::from_utf8_lossy(&said), expected, "{words:?}");
    };
    let asked = |bench: &mut Bench, value: &str, options: &[&str]| {
        let mut session = begun(bench, &with_options(MANY, value, options));
        ended(bench, &mut session).0
    };
    let last = format!("k{}", MANY - 1);
    assert_eq!(asked(&mut bench, "one", &["XX"]), ":0\r\n");
    is(&mut bench, &["DBSIZE"], ":0\r\n");
    is(&mut bench, &["SET", &last, "old"], "+OK\r\n");
    assert_eq!(asked(&mut bench, "one", &["NX", "EX", "100"]), ":0\r\n");
    assert_eq!(asked(&mut bench, "one", &["XX"]), ":0\r\n");
    is(&mut bench, &["DBSIZE"], ":1\r\n");
    is(&mut bench, &["DEL", &last], ":1\r\n");
    assert_eq!(asked(&mut bench, "two", &["NX"]), ":1\r\n");
    is(&mut bench, &["PEXPIREAT", "k7", "4000000000000"], ":1\r\n");
    assert_eq!(asked(&mut bench, "three", &["XX", "KEEPTTL"]), ":1\r\n");
    is(&mut bench, &["MGET", "k0", &last], "*2\r\n$5\r\nthree\r\n$5\r\nthree\r\n");
    is(&mut bench, &["PEXPIRETIME", "k7"], ":4000000000000\r\n");
    is(&mut bench, &["PEXPIRETIME", "k8"], ":-1\r\n");
    assert_eq!(asked(&mut bench, "four", &[]), ":1\r\n");
    is(&mut bench, &["PEXPIRETIME", "k7"], ":-1\r\n");
    // A time that has passed takes them out.
    assert_eq!(asked(&mut bench, "five", &["PXAT", "1"]), ":1\r\n");
    is(&mut bench, &["DBSIZE"], ":0\r\n");
}

#[test]
fn others_see_none_or_all_of_what_msetex_writes() {
    let mut bench = bench();
    fill(&mut bench, "old");
    let (mut watches, mut waiting, mut second) = (Session::new(), Session::new(), Session::new());
    let watched = [command(&["WATCH", "k7"]), command(&["MULTI"]), command(&["GET", "other"])].concat();
    bench.turns(&mut watches, &watched);
    let mut writer = begun(&mut bench, &with_options(MANY, "new", EXPIRES));
    let last = format!("k{}", MANY - 1);
    // Another one notes its keys meanwhile, and waits for these.
    let mut next = bench.call(&mut second, &with_options(MANY, "newer", &["XX"])).0;
    let mut turns = 0;
    while writer.must_end() {
        let pair = command(&["MGET", "k0", &last]);
        waits(&mut bench, &mut waiting, &pair, "MGET");
        assert_eq!(bench.turns(&mut Session::new(), &command(&["GET", "other"])).0, b"$-1\r\n");
        if next == Next::Yield {
            next = turn(&mut bench, &mut second, b"").0;
        }
        assert!(!second.must_end());
        turn(&mut bench, &mut writer, b"");
        turns += 1;
    }
    assert!(turns >= 20, "{turns} turns");
    let (said, _) = bench.turns(&mut waiting, &command(&["MGET", "k0", &last]));
    assert_eq!(String::from_utf8_lossy(&said), "*2\r\n$3\r\nnew\r\n$3\r\nnew\r\n");
    assert_eq!(bench.turns(&mut watches, &command(&["EXEC"])).0, b"*-1\r\n");
    bench.system += 100;
    assert_eq!(bench.turns(&mut second, b"").0, b":1\r\n");
    assert_eq!(bench.turns(&mut Session::new(), &command(&["GET", &last])).0, b"$5\r\nnewer\r\n");
}

#[test]
fn a_client_that_is_killed_has_the_pairs_of_its_msetex_written() {
    is_written_where_its_client_is_killed(&with_options(MANY, "new", EXPIRES));
}

#[test]
fn keyspace_events_of_msetex_are_told_once_for_each_key() {
    let mut bench = bench();
    let (mut listens, mut asks) = (Session::new(), Session::new());
    bench.turns(&mut asks, &command(&["CONFIG", "SET", "notify-keyspace-events", "EA"]));
    bench.turns(&mut listens, &command(&["SUBSCRIBE", "__keyevent@0__:set", "__keyevent@0__:expired"]));
    let mut told = |bench: &mut Bench, count: usize, options: &[&str]| {
        let input = with_options(count, "new", options);
        if count > FEW {
            let mut writer = begun(bench, &input);
            assert_eq!(ended(bench, &mut writer).0, ":1\r\n");
        } else {
            assert_eq!(bench.turns(&mut asks, &input).0, b":1\r\n");
        }
        let said = bench.turns(&mut listens, &command(&["PING"])).0;
        let said = String::from_utf8_lossy(&said).into_owned();
        ["set", "expired"].map(|event| said.matches(&format!("@0__:{event}\r\n")).count())
    };
    for count in [10, MANY] {
        assert_eq!(told(&mut bench, count, EXPIRES), [count, 0]);
        assert_eq!(told(&mut bench, count, &["PXAT", "1"]), [0, count]);
    }
}
