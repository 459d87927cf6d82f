//! Turns: what a connection does before others have theirs, whatever it asks for; and that commands in steps are one step for all
//! observers.

use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session, Settings};

/// Bytes of a value that takes many steps.
pub const LARGE: usize = 6 << 20;
/// What a turn may do beyond its slice: the last of its steps.
pub const STEP_NS: u64 = 170_000;

pub fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

pub fn set(bench: &mut Bench, key: &str, value: &[u8]) {
    let mut input =
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()).into_bytes();
    input.extend_from_slice(value);
    input.extend_from_slice(b"\r\n");
    let (replies, closed) = bench.run(&mut Session::new(), &input, 4096);
    assert_eq!((&*replies, closed), (&b"+OK\r\n"[..], false));
}

pub fn get(bench: &mut Bench, key: &str) -> Vec<u8> {
    bench.turns(&mut Session::new(), &command(&["GET", key])).0
}

pub fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// What a session does with an input, turn by turn: the replies, and how many turns that took. No turn does more than
/// its slice and a step.
pub fn turns(bench: &mut Bench, session: &mut Session, input: &[u8]) -> (Vec<u8>, usize) {
    let (mut replies, mut at, mut turns) = (Vec::new(), 0, 0);
    loop {
        let (next, more, consumed) = bench.call(session, &input[at..]);
        let done_ns = bench.room.work().done_ns();
        assert!(done_ns <= SLICE_NS + STEP_NS, "{done_ns} ns in a turn");
        replies.extend(more);
        at += consumed;
        turns += 1;
        match next {
            Next::Yield | Next::Flush => {}
            // Another has held keys a moment ago.
            Next::Sleep(ms @ 2) | Next::Await(Some(ms @ 2)) => bench.system += ms,
            Next::Receive => {
                assert_eq!(at, input.len());
                return (replies, turns);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn no_pipeline_of_dear_commands_has_a_turn_longer_than_a_slice() {
    let mut bench = bench();
    set(&mut bench, "large", &bytes(LARGE, 0));
    set(&mut bench, "other", &bytes(LARGE, 1));
    set(&mut bench, "zeros", &vec![0; LARGE]);
    set(&mut bench, "one", &bytes(1500, 0));
    set(&mut bench, "two", &bytes(1500, 7));
    set(&mut bench, "middle", &bytes(60_000, 0));
    let grows: Vec<String> = (1..8).map(|n| (8 * (LARGE + n * 1000)).to_string()).collect();
    let far = (8 * (LARGE - 1)).to_string();
    let fields = ["1", "2"].map(|n| vec!["BITFIELD", "zeros", "SET", "u8", "0", n, "SET", "u8", &far, n]);
    let cases: Vec<(Vec<Vec<&str>>, usize, usize)> = vec![
        (vec![vec!["BITCOUNT", "large"]], 10, 100),
        (vec![vec!["BITPOS", "zeros", "1"]], 10, 100),
        (vec![vec!["BITCOUNT", "middle"]], 1000, 80),
        (vec![vec!["APPEND", "large", "x"]], 4, 20),
        (vec![vec!["APPEND", "middle", "x"]], 400, 15),
        (grows.iter().map(|at| vec!["SETBIT", "large", at, "1"]).collect(), 1, 35),
        (grows.iter().map(|at| vec!["BITFIELD", "other", "SET", "u8", at, "1"]).collect(), 1, 35),
        (vec![vec!["SETRANGE", "late", "5000000", "x"], vec!["DEL", "late"]], 3, 15),
        (vec![vec!["RENAME", "large", "third"], vec!["RENAME", "third", "large"]], 3, 30),
        (vec![vec!["COPY", "large", "third", "REPLACE"]], 3, 15),
        (vec![vec!["BITOP", "XOR", "third", "large", "other"]], 3, 40),
        (vec![vec!["DUMP", "large"]], 3, 15),
        (vec![vec!["LCS", "one", "two", "LEN"]], 5, 40),
        (vec![vec!["LCS", "one", "two", "IDX"]], 2, 15),
        (fields.to_vec(), 3, 30),
        (vec![vec!["DEBUG", "DIGEST"]], 1, 30),
        (vec![vec!["DEBUG", "DIGEST-VALUE", "large", "none", "other", "one"]], 1, 20),
        (vec![vec!["INFO"]], 40, 5),
        (vec![vec!["CONFIG", "GET", "*"]], 200, 2),
        (vec![vec!["COMMAND"]], 20, 2),
    ];
    for (commands, times, turns_min) in cases {
        let input = commands.iter().flat_map(|words| command(words)).collect::<Vec<u8>>().repeat(times);
        let (replies, turns) = turns(&mut bench, &mut Session::new(), &input);
        assert!(turns >= turns_min, "{commands:?}: {turns}");
        assert!(!replies.starts_with(b"-"), "{commands:?}: {}", String::from_utf8_lossy(&replies[..40]));
    }
}

/// A list of thousands is written in turns, and what is asked of each of them is bounded.
#[test]
fn a_list_of_all_clients_has_no_turn_longer_than_a_slice() {
    let mut bench = bench();
    let mut others: Vec<Session> = (0..4000).map(|_| Session::new()).collect();
    others.iter_mut().for_each(|other| drop(bench.turn(other, &command(&["PING"]))));
    let mut session = Session::new();
    let (reply, turns) = turns(&mut bench, &mut session, &command(&["CLIENT", "LIST"]));
    let lines = reply.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"id=")).count();
    assert_eq!(lines, others.len() + 1);
    assert!(turns >= 10, "{turns} turns");
    let of = |filters: usize| [&["CLIENT", "LIST"][..], &["NOT-ADDR", "x"].repeat(filters)].concat();
    assert!(bench.turns(&mut session, &command(&of(64))).0.starts_with(b"$"));
    for words in [of(65), of(100_000)] {
        assert_eq!(bench.turns(&mut session, &command(&words)).0, b"-ERR too many filters\r\n");
    }
    let flags = "N".repeat(1_000_000);
    let (reply, _) = bench.turns(
        &mut session,
        &command(&["CLIENT", "KILL", "FLAGS", &flags, "USER", "default", "ID", "999999"]),
    );
    assert_eq!(reply, b":0\r\n");
}

/// Behind a hundred flushes the next waits until what they left is cleaned up, some of it in each turn.
#[test]
fn no_pipeline_of_flushes_has_a_turn_longer_than_a_slice() {
    let flushes = 250;
    let fill = |bench: &mut Bench, session: &mut Session| {
        let sets = (0..200_000).map(|n| format!("set {n:07} 0 0 1 noreply\r\nx\r\n")).collect::<String>();
        let (replies, _) = bench.run(session, sets.as_bytes(), 60_000);
        assert_eq!(replies, b"");
    };
    let group = |flushes: usize| {
        let queue = command(&["FLUSHALL"]).repeat(flushes);
        [&command(&["MULTI"])[..], &queue, &command(&["EXEC"])].concat()
    };
    let queued = |flushes: usize| {
        let (queued, done) = ("+QUEUED\r\n".repeat(flushes), "+OK\r\n".repeat(flushes));
        format!("+OK\r\n{queued}*{flushes}\r\n{done}")
    };
    let cases = [
        (b"flush_all\r\n".repeat(flushes), "OK\r\n".repeat(flushes), 10),
        ([&b"flush_all noreply\r\n".repeat(flushes)[..], b"mn\r\n"].concat(), "MN\r\n".into(), 10),
        (command(&["FLUSHALL"]).repeat(flushes), "+OK\r\n".repeat(flushes), 10),
        (command(&["FLUSHDB", "ASYNC"]).repeat(flushes), "+OK\r\n".repeat(flushes), 10),
        (group(27).repeat(20), queued(27).repeat(20), 10),
    ];
    for (input, expected, turns_min) in cases {
        let mut bench = bench();
        let (mut text, mut session) = (Session::new(), Session::new());
        fill(&mut bench, &mut text);
        let (replies, turns) = turns(&mut bench, &mut session, &input);
        let name = String::from_utf8_lossy(&input[..20]).into_owned();
        assert!(replies == expected.as_bytes(), "{name}");
        assert!(turns >= turns_min, "{name}: {turns}");
        assert_eq!(bench.run(&mut text, b"get 0000001\r\n", 100).0, b"END\r\n", "{name}");
        assert!(!bench.run(&mut session, b"", 100).1);
    }
    // One whose time has come while they are not cleaned up comes a little later.
    let mut bench = bench();
    let mut text = Session::new();
    fill(&mut bench, &mut text);
    let input = [b"flush_all\r\n".repeat(100), b"set later 0 0 1\r\nx\r\nflush_all 1\r\n".to_vec()].concat();
    let (replies, _) = turns(&mut bench, &mut text, &input);
    assert_eq!(replies, [&b"OK\r\n".repeat(100)[..], b"STORED\r\nOK\r\n"].concat());
    bench.system += 1_001;
    let looks =
        (0..10_000).take_while(|_| bench.run(&mut text, b"get later\r\n", 100).0 != b"END\r\n").count();
    assert!((1..10_000).contains(&looks), "{looks} looks");
}

/// What a flush has left is cleaned up by the requests that come by, a part of the index at a time: those that come by many
/// parts have their turns ended as those that do what is dear.
#[test]
fn what_a_flush_has_left_is_no_longer_turn_for_who_comes_by() {
    // A part that is full.
    const PART_NS: u64 = 550_000;
    let sets = |names: std::ops::Range<u64>| {
        names.map(|n| format!("set {n:08} 0 0 1\r\nx\r\n")).collect::<String>().into_bytes()
    };
    let resp = |words: &[&str], times: usize| command(words).repeat(times);
    let incrs: Vec<u8> = (0..400).flat_map(|n| command(&["INCR", &format!("n{n}")])).collect();
    let touches = (0..400).map(|n| format!("ms m{n} 1 I\r\nx\r\n")).collect::<String>().into_bytes();
    let cases = [
        ("set", sets(500_000..500_400), 10),
        ("ms with modes", touches, 10),
        ("INCR", incrs, 10),
        ("SCAN", resp(&["SCAN", "0", "COUNT", "1000000"], 1), 10),
        ("metadump", b"lru_crawler metadump all\r\n".to_vec(), 10),
    ];
    for (name, input, turns_min) in cases {
        let mut bench = bench();
        let mut text = Session::new();
        let (_, closed) = bench.run(&mut text, &sets(0..200_000), 60_000);
        assert!(!closed);
        assert_eq!(bench.turns(&mut Session::new(), &command(&["FLUSHALL"])).0, b"+OK\r\n");
        let (mut session, mut at, mut turns) = (Session::new(), 0, 0);
        loop {
            let (next, _, consumed) = bench.call(&mut session, &input[at..]);
            let done_ns = bench.room.work().done_ns();
            assert!(done_ns <= SLICE_NS + PART_NS, "{name}: {done_ns} ns in a turn");
            at += consumed;
            turns += 1;
            if next == Next::Receive {
                break;
            }
        }
        assert_eq!(at, input.len());
        assert!(turns >= turns_min, "{name}: {turns} turns");
    }
}

#[test]
fn a_transaction_of_more_flushes_than_may_be_at_once_is_refused() {
    let mut bench = bench();
    let mut session = Session::new();
    let queue =
        |n: usize| [&command(&["MULTI"])[..], &command(&["FLUSHDB"]).repeat(n), &command(&["EXEC"])].concat();
    set(&mut bench, "key", b"value");
    let (replies, _) = bench.turns(&mut session, &queue(28));
    assert!(String::from_utf8_lossy(&replies).contains("-EXECABORT"));
    assert_eq!(get(&mut bench, "key"), bulk(b"value"));
    let (replies, _) = bench.turns(&mut session, &queue(27));
    assert!(String::from_utf8_lossy(&replies).contains("*27\r\n+OK"));
    assert_eq!(get(&mut bench, "key"), b"$-1\r\n");
}

/// Fields at both ends of a large value, and more replies than the first room for them.
#[test]
fn many_fields_of_a_large_value_are_answered() {
    let mut bench = bench();
    let mut session = Session::new();
    let value = bytes(LARGE, 9);
    set(&mut bench, "large", &value);
    let last = (8 * (LARGE - 1)).to_string();
    let pairs = 9_000;
    let fields = ["GET", "u8", "0", "GET", "u8", &last].repeat(pairs);
    let read = command(&[&["BITFIELD_RO", "large"], &fields[..]].concat());
    let (replies, _) = turns(&mut bench, &mut session, &read);
    let numbers = format!(":{}\r\n:{}\r\n", value[0], value[LARGE - 1]);
    assert!(replies == format!("*{}\r\n{}", 2 * pairs, numbers.repeat(pairs)).as_bytes());
    for key in ["large", "new"] {
        let old = if key == "large" { value[LARGE - 1] } else { 0 };
        let fields = ["SET", "u8", &last, "77", "GET", "u63", "#0"].repeat(pairs);
        let (replies, _) =
            turns(&mut bench, &mut session, &command(&[&["BITFIELD", key], &fields[..]].concat()));
        let replies = String::from_utf8(replies).expect("numbers");
        assert!(replies.starts_with(&format!("*{}\r\n:{old}\r\n:", 2 * pairs)), "{key}");
        assert_eq!(replies.lines().count(), 1 + 2 * pairs);
        assert_eq!(get(&mut bench, key).iter().nth_back(2), Some(&77));
    }
}

/// A listener to so many patterns, and one that matches everything.
fn listens(bench: &mut Bench, patterns: impl IntoIterator<Item = String>) -> Session {
    let mut listener = Session::new();
    let words: Vec<String> = ["PSUBSCRIBE".to_owned(), "*".to_owned()].into_iter().chain(patterns).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (reply, _) = bench.turns(&mut listener, &command(&words));
    assert_eq!(reply.windows(13).filter(|bytes| bytes == b"\r\npsubscribe\r").count(), words.len() - 1);
    listener
}

#[test]
fn no_pipeline_of_messages_beside_many_patterns_has_a_turn_longer_than_a_slice() {
    let mut bench = bench();
    let _listener = listens(&mut bench, (0..9_999).map(|n| format!("pattern:{n}*")));
    let input = command(&["PUBLISH", "channel", "message"]).repeat(500);
    let (replies, said) = turns(&mut bench, &mut Session::new(), &input);
    assert!(replies == b":1\r\n".repeat(500));
    assert!(said >= 200, "{said} turns");
    assert_eq!(bench.host.outbox.take().0.len(), 500);
    // Patterns that have to be searched for, and what one that matches takes.
    let mut bench = self::bench();
    let dear = |n: usize| format!("*{n:04}{}*", "?".repeat(1_000));
    let listener = listens(&mut bench, (0..100).map(dear));
    let mut session = Session::new();
    let input = command(&["PUBLISH", &"c".repeat(10_000), "message"]);
    let (replies, said) = bench.turns(&mut session, &input);
    assert_eq!(replies, b":1\r\n");
    assert!(said >= 50, "{said} turns");
    // In a transaction it would be one step.
    let group = [&command(&["MULTI"])[..], &input, &command(&["EXEC"])].concat();
    let (reply, _) = bench.turns(&mut session, &group);
    assert!(String::from_utf8_lossy(&reply).contains("-EXECABORT"));
    let group = [command(&["MULTI"]), command(&["PUBLISH", "c", "m"]), command(&["EXEC"])].concat();
    assert!(bench.turns(&mut session, &group).0.ends_with(b"*1\r\n:1\r\n"));
    // A client that has unsubscribed when all is matched gets nothing.
    assert_eq!(bench.turn(&mut session, &input).0, Next::Yield);
    drop(listener);
    assert_eq!(bench.turns(&mut session, b"").0, b":0\r\n");
}

/// What takes longer to match than EXEC may take is refused before any pattern is looked at.
#[test]
fn a_message_for_which_too_much_is_to_be_matched_in_a_transaction_is_refused_without_a_look() {
    let mut bench = Bench::of(Settings::default(), 1 << 30);
    // To match all of them takes 10.5 ms at worst, and 11.1 to post to all subscribers.
    let _listeners: Vec<Session> =
        (0..60).map(|_| listens(&mut bench, (0..3_700).map(|n| format!("p{n}*")))).collect();
    let mut session = Session::new();
    let queued = [command(&["MULTI"]), command(&["PUBLISH", &"c".repeat(2_750), "m"])].concat();
    assert_eq!(bench.turns(&mut session, &queued).0, b"+OK\r\n+QUEUED\r\n");
    let (_, reply) = bench.turn(&mut session, &command(&["EXEC"]));
    let done_ns = bench.room.work().done_ns();
    assert!(reply.starts_with(b"-EXECABORT Transaction discarded: its commands would look"), "{reply:?}");
    assert!(done_ns < 20_000, "{done_ns} ns");
}

#[test]
fn keyspace_events_that_many_patterns_are_matched_for_are_told_in_order_and_in_steps() {
    let mut bench = bench();
    let _listener = listens(&mut bench, (0..1_000).map(|n| format!("pattern:{n}*")));
    let keys: Vec<String> = (0..400).map(|n| format!("key:{n}")).collect();
    keys.iter().for_each(|key| set(&mut bench, key, b"value"));
    let mut session = Session::new();
    bench.turns(&mut session, &command(&["CONFIG", "SET", "notify-keyspace-events", "Eg"]));
    let words: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let (replies, _) = turns(&mut bench, &mut session, &command(&words));
    assert_eq!(replies, b":400\r\n");
    let mut told = bench.host.outbox.take().0;
    assert!(told.len() < 50, "{} events in a turn", told.len());
    // What comes meanwhile is published behind it, what expires, too.
    set(&mut bench, "last", b"value");
    turns(&mut bench, &mut session, &command(&["DEL", "last"]));
    let store = std::sync::Arc::clone(bench.worker.store());
    let held = store.held_bytes();
    let mut steps = 0;
    while bench.shared.go_on_telling(&bench.host, &store, 300_000) {
        steps += 1;
    }
    assert!(steps >= 20, "{steps} steps");
    assert!(store.held_bytes() < held, "what waits is charged");
    told.extend(bench.host.outbox.take().0);
    let told: Vec<&[u8]> = told.iter().map(|delivery| delivery.message.text()).collect();
    let expected = keys.iter().map(String::as_str).chain(["last"]).map(str::as_bytes);
    assert!(told == expected.collect::<Vec<_>>(), "{} events", told.len());
    // What there is no room for is lost, and counted.
    bench.turns(&mut session, &command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]));
    let names: Vec<String> = (0..80_000).map(|n| format!("{n:08}")).collect();
    let words: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), "v"]).collect();
    bench.turns(&mut session, &command(&[&["MSET"], &words[..]].concat()));
    let (info, _) = bench.turns(&mut session, &command(&["INFO", "stats"]));
    let info = String::from_utf8_lossy(&info).into_owned();
    let lost = info.lines().find_map(|line| line.strip_prefix("keyspace_events_lost:")).expect("a line");
    let lost: u64 = lost.parse().expect("a number");
    let most = store.memory_bytes() / 16;
    assert!(lost >= 10_000 && store.held_bytes() - held <= most + (64 << 10), "{lost} lost");
    // Of a command in steps some are published while it goes on.
    assert!((70_000 - lost) * 72 <= most, "{lost} lost");
}

/// An event for which there is time is published behind those for which there was none.
#[test]
fn keyspace_events_for_which_a_slice_had_no_time_are_told_before_later_ones() {
    let mut bench = bench();
    let _listener = listens(&mut bench, ["__nothing*".to_owned()]);
    let keys: Vec<String> = (0..2_000).map(|n| format!("key:{n}")).collect();
    keys.iter().for_each(|key| set(&mut bench, key, b"value"));
    let mut session = Session::new();
    bench.turns(&mut session, &command(&["CONFIG", "SET", "notify-keyspace-events", "Eg"]));
    for some in [&keys[..1_999], &keys[1_999..]] {
        let words: Vec<&str> = ["DEL"].into_iter().chain(some.iter().map(String::as_str)).collect();
        bench.turns(&mut session, &command(&words));
    }
    let at_once = bench.host.outbox.take().0;
    let store = std::sync::Arc::clone(bench.worker.store());
    while bench.shared.go_on_telling(&bench.host, &store, 300_000) {}
    let later = bench.host.outbox.take().0;
    assert!(!at_once.is_empty() && !later.is_empty(), "{} and {}", at_once.len(), later.len());
    let told: Vec<&[u8]> = at_once.iter().chain(&later).map(|delivery| delivery.message.text()).collect();
    assert!(told.iter().copied().eq(keys.iter().map(String::as_bytes)), "{} events", told.len());
}

#[test]
fn names_by_the_hundred_thousand_are_looked_through_in_turns_or_refused() {
    let mut bench = bench();
    let names: Vec<String> = (0..300_000).map(|n| format!("{n:x}")).collect();
    let of = |name: &[&str], count: usize| {
        command(&name.iter().copied().chain(names[..count].iter().map(String::as_str)).collect::<Vec<_>>())
    };
    let mut session = Session::new();
    let (reply, said) = bench.turns(&mut session, &of(&["COMMAND", "DOCS"], 300_000));
    assert_eq!((&*reply, said >= 20), (&b"*0\r\n"[..], true), "{said} turns");
    let (reply, _) = bench.turns(&mut session, &of(&["COMMAND", "DOCS", "get"], 70_000));
    assert!(reply.starts_with(b"*2\r\n$3\r\nget\r\n"));
    let channels: Vec<u8> = of(&["SUBSCRIBE"], 6_000);
    let mut listener = Session::new();
    bench.turns(&mut listener, &channels);
    let dear = format!("*{}*", "?a".repeat(2_000));
    let (reply, said) = turns(&mut bench, &mut session, &command(&["PUBSUB", "CHANNELS", &dear]));
    assert_eq!((&*reply, said >= 3), (&b"*0\r\n"[..], true), "{said} turns");
    let (reply, _) = bench.turns(&mut session, &command(&["PUBSUB", "CHANNELS", "1[0-7]??"]));
    assert!(reply.starts_with(b"*1904\r\n"), "{}", String::from_utf8_lossy(&reply[..9]));
    let (reply, _) = bench.turns(&mut session, &command(&["PUBSUB", "CHANNELS"]));
    assert!(reply.starts_with(b"*6000\r\n"));
    let (reply, said) = bench.turns(&mut session, &of(&["PUBSUB", "NUMSUB"], 300_000));
    assert!(reply.starts_with(b"*600000\r\n$1\r\n0\r\n:1\r\n") && said >= 15, "{said} turns");
    assert!(reply.ends_with(b"$5\r\n493df\r\n:0\r\n"));
    drop(listener);
    while bench.shared.forget_subscriptions(bench.worker.store()) {}
    listens_to_thousands_in_steps(&mut bench, &of);
    for name in [&["LATENCY", "HISTOGRAM"][..], &["INFO"]] {
        let (reply, _) = bench.turns(&mut session, &of(name, (64 << 10) + 1));
        assert_eq!(reply, b"-ERR too many arguments\r\n");
        let (reply, _) = bench.turns(&mut session, &of(name, 64 << 10));
        assert!(!reply.starts_with(b"-"), "{name:?}");
    }
}

/// To listen to thousands of channels, and to do so no more, takes turns; where a client goes upkeep forgets them.
fn listens_to_thousands_in_steps(bench: &mut Bench, of: &dyn Fn(&[&str], usize) -> Vec<u8>) {
    let held = bench.worker.store().held_bytes();
    let named =
        |bench: &mut Bench| bench.turns(&mut Session::new(), &command(&["PUBSUB", "NUMSUB", "bb7"])).0;
    let many = |bench: &mut Bench, session: &mut Session, input: &[u8], word: &str| {
        let (replies, turns) = turns(bench, session, input);
        assert!(turns >= 4, "{word}: {turns} turns");
        let word = format!("*3\r\n${}\r\n{word}\r\n", word.len());
        let answers = replies.windows(word.len()).filter(|bytes| *bytes == word.as_bytes()).count();
        assert_eq!(answers, 3_000, "{word}");
        replies
    };
    let mut session = Session::new();
    for (adds, forgets) in
        [("SUBSCRIBE", "UNSUBSCRIBE"), ("PSUBSCRIBE", "PUNSUBSCRIBE"), ("SSUBSCRIBE", "SUNSUBSCRIBE")]
    {
        for named in [3_000, 0] {
            let replies = many(bench, &mut session, &of(&[adds], 3_000), &adds.to_lowercase());
            assert!(replies.ends_with(b"$3\r\nbb7\r\n:3000\r\n"));
            let replies = many(bench, &mut session, &of(&[forgets], named), &forgets.to_lowercase());
            assert!(replies.ends_with(b":0\r\n"));
        }
    }
    // RESET does, and a close.
    many(bench, &mut session, &of(&["SUBSCRIBE"], 3_000), "subscribe");
    assert_eq!(named(bench), b"*2\r\n$3\r\nbb7\r\n:1\r\n");
    let (reply, resets) = turns(bench, &mut session, &command(&["RESET"]));
    assert_eq!((&*reply, resets >= 4), (&b"+RESET\r\n"[..], true), "{resets} turns");
    assert_eq!(named(bench), b"*2\r\n$3\r\nbb7\r\n:0\r\n");
    many(bench, &mut session, &of(&["SUBSCRIBE"], 3_000), "subscribe");
    drop(session);
    let mut steps = 1;
    while bench.shared.forget_subscriptions(bench.worker.store()) {
        steps += 1;
    }
    assert!(steps >= 20, "{steps} steps");
    assert_eq!(named(bench), b"*2\r\n$3\r\nbb7\r\n:0\r\n");
    assert_eq!(bench.worker.store().held_bytes(), held);
}

fn lines(reply: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    lines[1..].sort_unstable();
    lines
}

/// A slice may end anywhere in a command: behind the head of a reply, before its first element, between two. The reply is
/// what it is where there is time for all of it.
#[test]
fn a_reply_is_the_same_wherever_the_slice_ends() {
    let mut bench = bench();
    let mut session = Session::new();
    let words: Vec<String> = (0..400).map(|n| format!("{n:04}")).collect();
    let with = |first: &[&'static str], pairs: bool| {
        let each = words.iter().flat_map(|word| if pairs { vec![&**word, word] } else { vec![&**word] });
        command(&first.iter().copied().chain(each).collect::<Vec<_>>())
    };
    let mut listener = Session::new();
    // Few enough for one step, which may be all of what is left.
    let channels = words[..50].iter().map(String::as_str);
    bench.turns(&mut listener, &command(&["SUBSCRIBE"].into_iter().chain(channels).collect::<Vec<_>>()));
    for (first, pairs) in [
        (&["MSET"][..], true),
        (&["SADD", "set"], false),
        (&["RPUSH", "list"], false),
        (&["HSET", "hash"], true),
        (&["ZADD", "sorted"], true),
    ] {
        bench.turns(&mut session, &with(first, pairs));
    }
    bench.turns(&mut Session::new(), &command(&["RPUSH", "same", "a", "a", "a", "a", "a", "a", "a"]));
    for words in [
        &["PUBSUB", "CHANNELS"][..],
        &["PUBSUB", "CHANNELS", "00*"],
        &["KEYS", "00*"],
        &["MGET", "0000", "0001", "none", "0399"],
        &["SMEMBERS", "set"],
        &["SUNION", "set", "set"],
        &["SINTER", "set", "set"],
        &["SSCAN", "set", "0", "COUNT", "1000"],
        &["LRANGE", "list", "0", "-1"],
        &["LPOS", "same", "a", "COUNT", "0"],
        &["HGETALL", "hash"],
        &["HSCAN", "hash", "0", "COUNT", "1000"],
        &["HMGET", "hash", "0000", "none", "0399"],
        &["ZRANGE", "sorted", "0", "-1", "WITHSCORES"],
        &["ZUNION", "2", "sorted", "sorted", "WITHSCORES"],
        &["COMMAND", "DOCS", "get", "set"],
        &["COMMAND", "INFO", "get", "set"],
        &["CONFIG", "GET", "*"],
    ] {
        let request = command(words);
        let (whole, _) = bench.turns(&mut session, &request);
        // KEYS walks from where its first step found itself: the order is its own.
        let expected = lines(&whole);
        let mut left_ns = 1;
        while left_ns < SLICE_NS {
            bench.room.work().begin_slice();
            bench.room.work().spend(SLICE_NS - left_ns);
            let first = bench.call_on(&mut session, &request);
            let (reply, _) = bench.turns_after(first, &mut session, &request);
            let said = String::from_utf8_lossy(&reply[..reply.len().min(60)]);
            assert!(lines(&reply) == expected, "{words:?}, {left_ns} ns left: {said}");
            left_ns += 1 + left_ns / 8;
        }
    }
}

#[test]
fn where_the_slice_is_gone_the_least_is_done() {
    let mut bench = bench();
    set(&mut bench, "large", &bytes(LARGE, 0));
    let commands = [vec!["BITCOUNT", "large"], vec!["APPEND", "large", "x"], vec!["KEYS", "*"]];
    for words in commands {
        let mut session = Session::new();
        bench.turn(&mut session, &command(&["PING"]));
        bench.room.work().spend(SLICE_NS);
        let before = bench.room.work().done_ns();
        let (next, _) = bench.same_slice(&mut session, &command(&words));
        assert_eq!(next, Next::Yield, "{words:?}");
        assert!(bench.room.work().done_ns() - before <= 60_000, "{words:?}");
        // What costs next to nothing is answered all the same.
        let (next, reply) = bench.same_slice(&mut Session::new(), &command(&["GET", "nothing"]));
        assert_eq!((next, &*reply), (Next::Receive, &b"$-1\r\n"[..]));
    }
}

#[test]
fn what_is_made_in_steps_is_what_is_made_at_once() {
    let commands: Vec<Vec<&str>> = vec![
        vec!["APPEND", "a", "tail"],
        vec!["SETRANGE", "a", "3145800", "beyond"],
        vec!["SETBIT", "a", "26000000", "1"],
        vec!["BITFIELD", "a", "SET", "u16", "27000000", "77", "INCRBY", "i8", "0", "3"],
        vec!["SETRANGE", "small", "2000000", "x"],
        vec!["SETRANGE", "none", "3000000", "x"],
        vec!["BITCOUNT", "a"],
        vec!["BITCOUNT", "a", "100", "-100", "BIT"],
        vec!["BITPOS", "b", "0", "1500000"],
        vec!["BITOP", "ONE", "c", "a", "b", "small", "none2"],
        vec!["BITOP", "NOT", "d", "a"],
        vec!["COPY", "a", "e"],
        vec!["COPY", "a", "e"],
        vec!["COPY", "b", "e", "REPLACE"],
        vec!["RENAMENX", "e", "f"],
        vec!["RENAMENX", "f", "a"],
        vec!["RENAME", "f", "g"],
        vec!["MOVE", "g", "3"],
        vec!["LCS", "one", "two"],
        vec!["PTTL", "b"],
    ];
    let run = |at_once: bool| {
        let mut bench = bench();
        set(&mut bench, "a", &bytes(LARGE / 2, 0));
        set(&mut bench, "b", &bytes(LARGE / 4, 1));
        set(&mut bench, "small", b"small");
        set(&mut bench, "one", &bytes(1200, 0));
        set(&mut bench, "two", &bytes(1100, 7));
        let mut said = Vec::new();
        for words in &commands {
            let input = match at_once {
                true => [command(&["MULTI"]), command(words), command(&["EXEC"])].concat(),
                false => command(words),
            };
            let (reply, turns) = bench.turns(&mut Session::new(), &input);
            assert!(!at_once || turns <= 2, "{words:?}");
            said.push(reply.strip_prefix(b"+OK\r\n+QUEUED\r\n*1\r\n").unwrap_or(&reply).to_vec());
        }
        for key in ["a", "b", "c", "d", "e", "f", "g", "small", "none"] {
            said.push(get(&mut bench, key));
        }
        said.push(
            bench.turns(&mut Session::new(), &[command(&["SELECT", "3"]), command(&["GET", "g"])].concat()).0,
        );
        said
    };
    let (steps, at_once) = (run(false), run(true));
    for (n, (steps, at_once)) in steps.iter().zip(&at_once).enumerate() {
        let head = |reply: &[u8]| String::from_utf8_lossy(&reply[..reply.len().min(60)]).into_owned();
        assert!(steps == at_once, "{n}: {:?} and {:?}", head(steps), head(at_once));
    }
}

#[test]
fn what_changes_meanwhile_is_looked_at_again() {
    let mut bench = bench();
    let value = bytes(LARGE, 0);
    for (times, most) in [(1, 1), (5, 5), (1000, 100)] {
        set(&mut bench, "a", &value);
        let mut session = Session::new();
        let (mut next, mut replies) = bench.turn(&mut session, &command(&["RENAME", "a", "b"]));
        let (mut sets, mut is_held) = (0, false);
        while next == Next::Yield {
            is_held |= session.holds();
            // Those would wait that come while the key is held.
            if sets < times && !is_held {
                sets += 1;
                set(&mut bench, "a", &bytes(LARGE, sets as u8));
            }
            let more;
            (next, more) = bench.turn(&mut session, b"");
            replies.extend(more);
        }
        assert_eq!(replies, b"+OK\r\n");
        // A few times it is begun anew, then with its keys held.
        assert!(sets <= most && is_held == (times > most), "{times}: {sets}");
        assert!(get(&mut bench, "b") == bulk(&bytes(LARGE, sets as u8)));
        assert_eq!(get(&mut bench, "a"), b"$-1\r\n");
    }
    // The value itself is another by the end.
    set(&mut bench, "a", &value);
    let mut session = Session::new();
    assert_eq!(bench.turn(&mut session, &command(&["APPEND", "a", "x"])).0, Next::Yield);
    set(&mut bench, "a", b"small");
    assert_eq!(bench.turns(&mut session, b"").0, b":6\r\n");
    assert_eq!(get(&mut bench, "a"), b"$6\r\nsmallx\r\n");
    // Its expiry is.
    set(&mut bench, "a", &value);
    assert_eq!(bench.turn(&mut session, &command(&["RENAME", "a", "b"])).0, Next::Yield);
    bench.turn(&mut Session::new(), &command(&["PEXPIREAT", "a", "1900000000000"]));
    assert_eq!(bench.turns(&mut session, b"").0, b"+OK\r\n");
    assert_eq!(bench.turns(&mut session, &command(&["PEXPIRETIME", "b"])).0, b":1900000000000\r\n");
    // It has gone.
    assert_eq!(bench.turn(&mut session, &command(&["RENAME", "b", "a"])).0, Next::Yield);
    bench.turn(&mut Session::new(), &command(&["FLUSHALL"]));
    assert_eq!(bench.turns(&mut session, b"").0, b"-ERR no such key\r\n");
    // Its database is another.
    assert_eq!(bench.turn(&mut session, &command(&["SETRANGE", "n", "3000000", "x"])).0, Next::Yield);
    bench.turn(&mut Session::new(), &command(&["SWAPDB", "0", "1"]));
    assert_eq!(bench.turns(&mut session, b"").0, b":3000001\r\n");
    assert_eq!(bench.turns(&mut session, &command(&["STRLEN", "n"])).0, b":3000001\r\n");
    assert_eq!(bench.turns(&mut session, &command(&["DBSIZE"])).0, b":1\r\n");
}

#[test]
fn several_who_work_at_large_values_do_so_one_after_another() {
    let mut bench = bench();
    set(&mut bench, "a", &bytes(LARGE, 0));
    let inputs = [
        [command(&["APPEND", "a", "1"]), command(&["PING"])].concat(),
        [command(&["PING"]), command(&["BITCOUNT", "a"]), command(&["PING"])].concat(),
        command(&["COPY", "a", "b"]),
        command(&["BITOP", "NOT", "c", "a"]),
    ];
    let mut all: Vec<_> = inputs.iter().map(|input| (Session::new(), &input[..], Vec::new(), true)).collect();
    while all.iter().any(|one| one.3) {
        for (session, input, replies, goes_on) in all.iter_mut().filter(|one| one.3) {
            let (next, more, consumed) = bench.call(session, input);
            *input = &input[consumed..];
            replies.extend(more);
            *goes_on = next == Next::Yield;
        }
    }
    let replies: Vec<_> = all.into_iter().map(|one| String::from_utf8(one.2).unwrap()).collect();
    assert_eq!(replies[0], format!(":{}\r\n+PONG\r\n", LARGE + 1));
    assert!(replies[1].starts_with("+PONG\r\n:") && replies[1].ends_with("\r\n+PONG\r\n"), "{}", replies[1]);
    assert_eq!(replies[2], ":1\r\n");
    assert_eq!(replies[3], format!(":{}\r\n", LARGE + 1));
    // A client that goes in the middle of it leaves the way free.
    let mut session = Session::new();
    assert_eq!(bench.turn(&mut session, &command(&["BITCOUNT", "a"])).0, Next::Yield);
    drop(session);
    assert_eq!(bench.turns(&mut Session::new(), &command(&["COPY", "b", "d"])).0, b":1\r\n");
    bench.check();
}

#[test]
fn a_command_in_steps_whose_reply_is_not_sent_is_carried_out() {
    let mut bench = bench();
    set(&mut bench, "a", &bytes(LARGE, 0));
    let input = [
        command(&["CLIENT", "REPLY", "SKIP"]),
        command(&["RENAME", "a", "b"]),
        command(&["STRLEN", "b"]),
        command(&["CLIENT", "REPLY", "SKIP"]),
        command(&["BITCOUNT", "b"]),
        command(&["PING"]),
    ]
    .concat();
    let (replies, _) = bench.turns(&mut Session::new(), &input);
    assert_eq!(replies, format!(":{LARGE}\r\n+PONG\r\n").as_bytes());
}

/// A sorted set of so many members.
fn sorted(bench: &mut Bench, key: &str, members: usize) {
    let mut session = Session::new();
    let names: Vec<String> = (0..members).map(|n| n.to_string()).collect();
    for some in names.chunks(100) {
        let mut words = vec!["ZADD", key];
        some.iter().for_each(|n| words.extend([n.as_str(), n.as_str()]));
        assert_eq!(bench.turns(&mut session, &command(&words)).0, format!(":{}\r\n", some.len()).as_bytes());
    }
}

/// What is not weighed is counted while it runs: beyond ten milliseconds what only looks is refused in its place, and what writes
/// is done.
#[test]
fn a_transaction_does_not_look_for_longer_than_others_wait_whatever_it_asks() {
    let mut bench = bench();
    let mut commands = vec![vec!["MULTI"]];
    commands.extend(vec![vec!["COMMAND", "DOCS"]; 300]);
    commands.extend([vec!["SET", "mark", "1"], vec!["SELECT", "0"], vec!["EXEC"]]);
    let input: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
    let (reply, _) = bench.turns(&mut Session::new(), &input);
    let reply = String::from_utf8_lossy(&reply);
    let refused = reply.matches("-ERR this EXEC has looked through or replied as much").count();
    assert!((100..300).contains(&refused), "{refused}");
    assert!(reply.ends_with("\r\n+OK\r\n+OK\r\n"));
    // Nor where replies are not sent.
    let keys: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    keys.iter().for_each(|key| set(&mut bench, key, &[b'v'; 16_000]));
    let mget: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let mut commands = vec![vec!["CLIENT", "REPLY", "OFF"], vec!["MULTI"]];
    commands.extend(vec![mget; 100]);
    commands.push(vec!["EXEC"]);
    let input: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
    // What they copy is known, and takes longer than a step: they have some.
    let (_, yields) = bench.turns(&mut Session::new(), &input);
    assert!(yields >= 60, "{yields} turns");
    let (stats, _) = bench.turns(&mut Session::new(), &command(&["INFO", "commandstats"]));
    let stats = String::from_utf8_lossy(&stats);
    let line = stats.lines().find(|line| line.starts_with("cmdstat_mget:")).unwrap();
    let failed: usize = line.rsplit_once("failed_calls=").unwrap().1.parse().unwrap();
    assert_eq!(failed, 0, "{line}");
}

/// Of an empty store, too.
#[test]
fn a_transaction_of_many_infos_is_refused() {
    let mut bench = bench();
    let input = [command(&["MULTI"]), command(&["INFO"]).repeat(200), command(&["EXEC"])].concat();
    let (reply, _) = bench.turns(&mut Session::new(), &input);
    assert!(String::from_utf8_lossy(&reply).contains("-EXECABORT Transaction discarded: "));
}

#[test]
fn a_transaction_that_would_take_long_is_refused_before_it_runs() {
    let mut bench = bench();
    set(&mut bench, "large", &bytes(LARGE, 0));
    set(&mut bench, "two", &bytes(1800, 0));
    bench.fill(3, 20_000, 8);
    sorted(&mut bench, "z", 20_000);
    sorted(&mut bench, "y", 19_999);
    let stars = format!("*{}b*", "?".repeat(4000));
    let refused = [
        vec![vec!["KEYS", "*"]; 10],
        vec![vec!["SCAN", "0", "COUNT", "100000"]; 10],
        vec![vec!["INFO"]; 100],
        vec![vec!["DEBUG", "DIGEST"], vec!["DEBUG", "DIGEST"]],
        vec![vec!["DEBUG", "POPULATE", "100000"]],
        vec![vec!["BITCOUNT", "large"]; 2],
        vec![vec!["APPEND", "large", "x"]; 4],
        vec![vec!["LCS", "two", "two"]; 2],
        vec![vec!["RENAME", "large", "b"], vec!["BITCOUNT", "b"], vec!["COPY", "b", "c"]],
        vec![vec!["SETRANGE", "b", "12000000", "x"], vec!["APPEND", "b", "x"]],
        vec![vec!["SETRANGE", "b", "15000000", "x"], vec!["BITPOS", "b", "1"]],
        vec![vec!["BITOP", "AND", "a", "large", "large", "large"]],
        vec![vec!["SELECT", "1"], vec!["SETBIT", "b", "200000000", "1"]],
        vec![vec!["BITFIELD", "b", "GET", "u8", "0", "SET", "i16", "#12000000", "1"]],
        vec![vec!["DEBUG", "POPULATE", "20", "p", "1000000"]],
        // Options that are said twice, or look like values, or the other way round.
        vec![vec!["SCAN", "0", "COUNT", "1", "COUNT", "100000"]; 10],
        vec![vec!["SCAN", "0", "MATCH", "COUNT", "COUNT", "100000"]; 10],
        vec![vec!["SCAN", "0", "MATCH", "a", "MATCH", &stars, "COUNT", "1000"]; 10],
        vec![vec!["ZSCAN", "z", "0", "MATCH", "a", "MATCH", &stars]; 10],
        vec![vec!["ZMPOP", "2", "COUNT", "z", "MIN", "COUNT", "100000"]],
        vec![vec!["ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", "0", "1", "LIMIT", "0", "-1"]; 50],
        vec![
            vec!["COPY", "large", "b", "DB", "1", "DB", "2"],
            vec!["SELECT", "2"],
            vec!["BITCOUNT", "b"],
            vec!["BITCOUNT", "b"],
        ],
        // What may be refused when it is reached leaves a value as large as it is.
        vec![vec!["SETNX", "large", "x"], vec!["BITCOUNT", "large"], vec!["BITCOUNT", "large"]],
        vec![vec!["SET", "large", "x", "NX"], vec!["BITCOUNT", "large"], vec!["BITCOUNT", "large"]],
        vec![vec!["COPY", "two", "large"], vec!["BITCOUNT", "large"], vec!["BITCOUNT", "large"]],
        // What has gone is made anew, and what was not copied is as short as it is.
        vec![vec![vec!["DEL", "large"], vec!["SETBIT", "large", "44000000", "1"]]; 5].concat(),
        vec![vec![vec!["PEXPIREAT", "large", "1"], vec!["SETRANGE", "large", "5500000", "x"]]; 5].concat(),
        [vec![vec!["COPY", "large", "two"]], vec![vec!["SETBIT", "two", "44000000", "1"]; 5]].concat(),
        // Not all of a sorted set any more.
        vec![vec!["ZADD", "z", "1000000", "x"], vec!["ZREMRANGEBYSCORE", "z", "0", "100000"]],
        vec![
            vec!["ZADD", "y", "1000000", "x"],
            vec!["RENAME", "y", "z"],
            vec!["ZREMRANGEBYRANK", "z", "0", "-2"],
        ],
    ];
    let mut session = Session::new();
    for commands in &refused {
        let input =
            [vec![vec!["MULTI"], vec!["SET", "mark", "1"]], commands.clone(), vec![vec!["EXEC"]]].concat();
        let input: Vec<u8> = input.iter().flat_map(|words| command(words)).collect();
        let (reply, _) = bench.turns(&mut session, &input);
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.contains("-EXECABORT Transaction discarded: "), "{commands:?}: {reply}");
        assert_eq!(get(&mut bench, "mark"), b"$-1\r\n", "nothing was run");
    }
    // Outside of it each of them has its steps; and what takes no long is run.
    let run = [
        vec![vec!["KEYS", "*"], vec!["BITCOUNT", "large"]],
        vec![vec!["SETRANGE", "large", "100", "x"]; 1000],
        vec![vec!["SELECT", "1"], vec!["BITCOUNT", "large"], vec!["BITCOUNT", "large"], vec!["SELECT", "0"]],
        vec![vec!["GET", "two"]; 1000],
        vec![vec!["SCAN", "0", "COUNT", "10", "MATCH", "a*"]; 100],
        vec![vec!["ZADD", "z", "1000000", "x"], vec!["ZREMRANGEBYRANK", "z", "0", "-20001"]],
        vec![vec![vec!["SETBIT", "large", "44000000", "1"], vec!["EXPIRE", "large", "100"]]; 20].concat(),
        vec![vec![vec!["SET", "two", "x"], vec!["COPY", "two", "b"], vec!["GETRANGE", "b", "0", "0"]]; 100]
            .concat(),
    ];
    for commands in run {
        let input = [vec![vec!["MULTI"]], commands.clone(), vec![vec!["EXEC"]]].concat();
        let input: Vec<u8> = input.iter().flat_map(|words| command(words)).collect();
        let (reply, _) = bench.turns(&mut session, &input);
        assert!(!String::from_utf8_lossy(&reply).contains("EXECABORT"), "{commands:?}");
    }
}

#[test]
fn a_transaction_that_selects_a_database_that_is_none_goes_on_in_its_own() {
    let mut bench = bench();
    set(&mut bench, "k", b"v");
    for (number, reply) in [("15", "+OK\r\n:0\r\n"), ("16", "-ERR DB index is out of range\r\n:5\r\n")] {
        let commands = [
            command(&["MULTI"]),
            command(&["SELECT", number]),
            command(&["BITCOUNT", "k"]),
            command(&["EXEC"]),
        ];
        let (said, _) = bench.turns(&mut Session::new(), &commands.concat());
        let expected = format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{reply}");
        assert_eq!(String::from_utf8_lossy(&said), expected);
    }
}

/// What the store does beside a command in steps, such as growing or cleaning up after a flush, is spent by that command:
/// another client's request for a key, between two of its steps, has done next to nothing.
#[test]
fn who_comes_between_two_steps_does_not_pay_for_what_was_done_beside_them() {
    let mut bench = bench();
    let keys: Vec<String> = (0..20_000).map(|n| format!("key:{n}")).collect();
    let mut words = vec!["MSET"];
    keys.iter().for_each(|key| words.extend([key.as_str(), "value"]));
    let gone: Vec<&str> = std::iter::once("DEL").chain(keys.iter().map(String::as_str)).collect();
    let cases = [
        ("DEBUG POPULATE", command(&["DEBUG", "POPULATE", "100000", "p"])),
        ("MSET", command(&words)),
        ("flush", command(&["FLUSHALL"])),
        ("DEBUG POPULATE after a flush", command(&["DEBUG", "POPULATE", "20000", "p"])),
        ("DEL", command(&gone)),
        ("MSET after a flush", command(&words)),
    ];
    for (name, input) in cases {
        let (mut session, mut other, mut at) = (Session::new(), Session::new(), 0);
        loop {
            let (next, _, consumed) = bench.call(&mut session, &input[at..]);
            let own_ns = bench.room.work().done_ns();
            // The words of MSET are counted and kept before its first step.
            let before_ns = if name.starts_with("MSET") { SLICE_NS } else { 0 };
            assert!(own_ns <= before_ns + SLICE_NS + STEP_NS, "{name}: {own_ns} ns in a turn");
            if let Next::Sleep(ms) | Next::Await(Some(ms)) = next {
                bench.system += ms;
            }
            at += consumed;
            let (_, reply, _) = bench.call(&mut other, b"get none\r\n");
            assert_eq!(reply, b"END\r\n");
            let ns = bench.room.work().done_ns();
            assert!(ns < 10_000, "{name}: a get has done {ns} ns");
            if next == Next::Receive {
                break;
            }
        }
        assert_eq!(at, input.len(), "{name}");
    }
}

/// EXEC that waits until earlier flushes are cleaned up ends as one that does not: the messages that came before its
/// client stopped listening are behind it, and a command that sleeps in it sleeps.
#[test]
fn a_transaction_that_waits_for_flushes_ends_as_any_other() {
    let ask = |delayed: bool| {
        let mut bench = bench();
        let sets = (0..200_000).map(|n| format!("set {n:07} 0 0 1 noreply\r\nx\r\n")).collect::<String>();
        bench.run(&mut Session::new(), sets.as_bytes(), 60_000);
        let (mut session, mut other) = (Session::new(), Session::new());
        let opened = [command(&["HELLO", "3"]), command(&["SUBSCRIBE", "ch"])].concat();
        bench.turns(&mut session, &opened);
        if delayed {
            // As many as may be at once, of which the last are a transaction's.
            let flushes = command(&["FLUSHDB"]);
            let group = [command(&["MULTI"]), flushes.repeat(27), command(&["EXEC"])].concat();
            bench.turns(&mut other, &[flushes.repeat(100), group].concat());
        }
        let queue = [
            command(&["MULTI"]),
            command(&["FLUSHDB"]).repeat(27),
            command(&["UNSUBSCRIBE", "ch"]),
            command(&["DEBUG", "SLEEP", "0.05"]),
        ]
        .concat();
        bench.turns(&mut session, &queue);
        bench.turns(&mut other, &command(&["PUBLISH", "ch", "message"]));
        let (mut input, mut replies, mut turns, mut slept) = (command(&["EXEC"]), Vec::new(), 0, false);
        loop {
            let (next, more, consumed) = bench.call(&mut session, &input);
            replies.extend(more);
            input.drain(..consumed);
            turns += 1;
            // EXEC is carried out also if its client has gone, also where it waits.
            assert!(turns > 1 || session.must_end() == delayed);
            if turns == 1 && delayed {
                bench.turns(&mut other, &command(&["PUBLISH", "ch", "second"]));
            }
            match next {
                Next::Yield | Next::Flush => {}
                Next::Sleep(ms) => {
                    assert_eq!((ms, turns > 3), (50, delayed));
                    slept = true;
                    bench.system += ms;
                    bench.host.clock_us.fetch_add(ms * 1000, std::sync::atomic::Ordering::Relaxed);
                }
                Next::Receive => {
                    assert!(slept);
                    return String::from_utf8(replies).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let (at_once, delayed) = (ask(false), ask(true));
    assert!(at_once.contains("message"), "{at_once}");
    let second = ">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$6\r\nsecond\r\n";
    assert_eq!(delayed.matches(second).count(), 1, "{delayed}");
    assert_eq!(delayed.replace(second, ""), at_once);
}

/// EXEC that waits until earlier flushes are cleaned up replies as little as its client asked for, whether it is done or refused
/// then, and what comes behind it is replied.
#[test]
fn a_transaction_that_waits_for_flushes_is_as_silent_as_any_other() {
    for (replies, queued) in [("OFF", "PING"), ("OFF", "BITCOUNT"), ("ON", "CLIENT")] {
        let mut bench = bench();
        let sets = (0..200_000).map(|n| format!("set {n:07} 0 0 1 noreply\r\nx\r\n")).collect::<String>();
        bench.run(&mut Session::new(), sets.as_bytes(), 60_000);
        let flushes = command(&["FLUSHDB"]);
        let group = [command(&["MULTI"]), flushes.repeat(27), command(&["EXEC"])].concat();
        bench.turns(&mut Session::new(), &[flushes.repeat(100), group].concat());
        let mut session = Session::new();
        let queued = match queued {
            // More than EXEC may do, which it finds out when it has waited.
            "BITCOUNT" => {
                bench.turns(&mut session, &command(&["SETBIT", "long", "8000000", "1"]));
                command(&["BITCOUNT", "long"]).repeat(1_000)
            }
            "CLIENT" => command(&["CLIENT", "REPLY", "SKIP"]),
            _ => command(&["PING"]),
        };
        bench.turns(&mut session, &command(&["CLIENT", "REPLY", replies]));
        bench.turns(&mut session, &[command(&["MULTI"]), flushes.repeat(27), queued].concat());
        let behind =
            [command(&["PING", "one"]), command(&["CLIENT", "REPLY", "ON"]), command(&["PING", "two"])];
        let (mut got, mut turns) = (Vec::new(), 0);
        for mut input in [command(&["EXEC"]), behind.concat()] {
            loop {
                let (next, more, consumed) = bench.call(&mut session, &input);
                got.extend(more);
                input.drain(..consumed);
                turns += 1;
                if next == Next::Receive {
                    break;
                }
            }
        }
        assert!(turns > 3, "it has not waited");
        let wanted = match replies {
            "OFF" => "+OK\r\n$3\r\ntwo\r\n".to_owned(),
            _ => format!("*28\r\n{}+OK\r\n$3\r\ntwo\r\n", "+OK\r\n".repeat(27)),
        };
        assert_eq!(String::from_utf8_lossy(&got), wanted);
    }
}
