//! HSETEX, HGETDEL, HGETEX, HEXPIRE and HPERSIST of many fields: they work in steps, beside other clients,
//! and each is one moment for them.

use crate::full::{NO_MEMORY, exhaust, full_beside, pressed};
use crate::moments::{HELD_MAX, begun_before_a_swap, heard, of, refused_amid, said, written};
use crate::pairs::{begun, ended, turn, waits};
use crate::users::with_user;
use crate::{Bench, START, bench, watch};
use larder_commands::{Next, Session, Settings};
use std::collections::BTreeSet;
use std::ops::Range;

/// More fields than one step handles. It takes several steps to look them up, and several to set them.
const MANY: usize = 4_000;

/// HSETEX of the fields with these numbers. `options`: with a space in front of each.
fn set(options: &str, numbers: Range<usize>) -> Vec<u8> {
    let count = numbers.len();
    let pairs: String = numbers.map(|n| format!(" m{n} v")).collect();
    of(&format!("HSETEX k{options} FIELDS {count}{pairs}"))
}

/// A command on the fields with these numbers. `head`: its words before FIELDS.
fn on(head: &str, numbers: Range<usize>) -> Vec<u8> {
    let count = numbers.len();
    let names: String = numbers.map(|n| format!(" m{n}")).collect();
    of(&format!("{head} FIELDS {count}{names}"))
}

/// Runs a command whose key is held to its end; returns the reply, parts of which come after the hold.
fn answers(bench: &mut Bench, session: &mut Session) -> String {
    let (first, _) = ended(bench, session);
    first + &String::from_utf8(bench.turns(session, b"").0).expect("text")
}

/// A bench that accepts long requests.
fn large() -> Bench {
    Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 256 << 20)
}

/// Sets these fields. Then time passes, so that the next command may hold its key at once.
fn fill(bench: &mut Bench, numbers: Range<usize>) {
    assert_eq!(bench.turns(&mut Session::new(), &set("", numbers)).0, b":1\r\n");
    bench.system += 100;
}

/// Requests that wait while the key is held.
const WAIT: [&str; 5] = ["HLEN k", "HGET k m0", "HSET k m1 x", "FLUSHALL", "EVAL return 0 0"];

/// Runs a command whose key is held to its end, with other requests between its turns. Returns the reply and
/// the number of turns.
fn ended_beside_others(bench: &mut Bench, session: &mut Session) -> (String, usize) {
    let (mut reply, mut turns) = (Vec::new(), 0);
    while session.must_end() {
        assert_eq!(reply, b"", "it holds its key while it replies");
        for words in WAIT {
            waits(bench, &mut Session::new(), &of(words), words);
        }
        assert_eq!(said(bench, "GET other"), "$-1\r\n");
        reply.extend(turn(bench, session, b"").1);
        turns += 1;
    }
    // Time passes, so that the next command may hold its key at once.
    bench.system += 100;
    (String::from_utf8(reply).expect("text"), turns)
}

#[test]
fn some_fields_are_set_in_one_step_and_more_in_turns() {
    for count in [2_047, 2_048] {
        let mut bench = bench();
        assert_eq!(bench.call(&mut Session::new(), &set(" FNX EX 100", 0..count)).1, b":1\r\n", "{count}");
        assert_eq!(said(&mut bench, "HLEN k"), format!(":{count}\r\n"));
    }
    let mut bench = bench();
    let mut session = begun(&mut bench, &set(" FNX EX 100", 0..2_049));
    let (reply, turns) = ended_beside_others(&mut bench, &mut session);
    // Three of the turns look the fields up.
    assert!(reply == ":1\r\n" && turns >= 10, "{reply} {turns} turns");
    assert_eq!(said(&mut bench, "HLEN k"), ":2049\r\n");
    assert_eq!(said(&mut bench, "HTTL k FIELDS 2 m0 m2048"), "*2\r\n:100\r\n:100\r\n");
}

#[test]
fn more_fields_than_others_wait_for_are_set_in_some_moments() {
    for count in [HELD_MAX - 1, HELD_MAX] {
        let mut bench = large();
        let mut session = begun(&mut bench, &set(" FNX", 0..count));
        assert_eq!(ended(&mut bench, &mut session).0, ":1\r\n", "{count}");
        assert_eq!(said(&mut bench, "HLEN k"), format!(":{count}\r\n"));
    }
    let all = format!(":{}\r\n", HELD_MAX + 1);
    for options in ["", " FNX", " EX 100"] {
        let mut bench = large();
        let mut session = Session::new();
        let (mut next, mut reply, _) = bench.call(&mut session, &set(options, 0..HELD_MAX + 1));
        let mut parts = 0;
        while next != Next::Receive {
            assert!(next == Next::Yield && !session.holds() && reply.is_empty(), "{options}: {next:?}");
            let seen = said(&mut bench, "HLEN k");
            parts += usize::from(seen != ":0\r\n" && seen != all);
            (next, reply, _) = bench.call(&mut session, b"");
        }
        assert_eq!((reply.as_slice(), said(&mut bench, "HLEN k")), (&b":1\r\n"[..], all.clone()));
        assert!(parts > 100, "{options}: {parts} times a part of them was seen");
    }
}

/// Another client writes after the command was read and before its key is held. FNX and FXX look under the
/// hold.
#[test]
fn what_is_asked_of_fields_is_asked_when_their_key_is_held() {
    let cases = [
        (" FNX EX 100", false, "HSET k m3999 x", ":1\r\n"),
        (" FXX EX 100", true, "HDEL k m3999", ":3999\r\n"),
    ];
    for (options, is_there, amid, left) in cases {
        let mut bench = bench();
        if is_there {
            fill(&mut bench, 0..MANY);
        }
        let mut session = Session::new();
        let (next, reply, _) = bench.call(&mut session, &set(options, 0..MANY));
        assert_eq!((next, reply.len()), (Next::Yield, 0), "{options}");
        assert_eq!(said(&mut bench, amid), ":1\r\n", "{options}");
        while !session.must_end() {
            assert_eq!(turn(&mut bench, &mut session, b"").0, Next::Yield, "{options}");
        }
        assert_eq!(ended_beside_others(&mut bench, &mut session).0, ":0\r\n", "{options}");
        assert_eq!(said(&mut bench, "HLEN k"), left, "{options}");
        // No field was given an expiry.
        let times = if is_there { "*2\r\n:-1\r\n:-1\r\n" } else { "*2\r\n:-2\r\n:-2\r\n" };
        assert_eq!(said(&mut bench, "HTTL k FIELDS 2 m0 m3998"), times, "{options}");
    }
}

/// A key that expires during the command counts as absent from the start: FXX finds no field, and otherwise
/// all fields are set.
#[test]
fn fields_are_asked_for_anew_when_their_key_goes() {
    let (all, none) = (format!(":{MANY}\r\n"), ":0\r\n".to_owned());
    for (options, from, reply, left) in
        [(" FXX", 0, ":0\r\n", &none), (" FNX", 10_000, ":1\r\n", &all), ("", 0, ":1\r\n", &all)]
    {
        // The key expires while fields are looked up, or when some are set.
        for turns in [3, 9] {
            let mut bench = bench();
            fill(&mut bench, from..from + MANY);
            assert_eq!(said(&mut bench, "PEXPIRE k 1000"), ":1\r\n");
            let mut session = begun(&mut bench, &set(options, 0..MANY));
            for _ in 0..turns {
                assert_eq!(turn(&mut bench, &mut session, b"").1, b"", "{options} {turns}");
            }
            bench.system += 2_000;
            assert_eq!(ended(&mut bench, &mut session).0, reply, "{options} {turns}");
            assert_eq!(&said(&mut bench, "HLEN k"), left, "{options} {turns}");
            let ttl = if left == &all { ":-1\r\n" } else { ":-2\r\n" };
            assert_eq!(said(&mut bench, "TTL k"), ttl, "{options} {turns}");
        }
    }
}

#[test]
fn fields_whose_time_comes_amid_it_are_gone_behind_it() {
    let mut bench = bench();
    assert_eq!(said(&mut bench, "HSET k other 1 m3999 1"), ":2\r\n");
    let mut session = written(&mut bench, &set(" PX 100", 0..MANY));
    bench.system += 200;
    assert_eq!(ended(&mut bench, &mut session).0, ":1\r\n");
    assert_eq!(said(&mut bench, "HMGET k m0 m3999 other"), "*3\r\n$-1\r\n$-1\r\n$1\r\n1\r\n");
    assert_eq!(said(&mut bench, "HLEN k"), ":1\r\n");
}

#[test]
fn a_client_that_goes_has_all_of_its_fields_set_or_none() {
    let mut bench = bench();
    let mut session = written(&mut bench, &set(" FNX", 0..MANY));
    let kill = format!("CLIENT KILL ID {}", session.redis_client().expect("a client"));
    assert_eq!(said(&mut bench, &kill), ":1\r\n");
    ended(&mut bench, &mut session);
    assert_eq!(said(&mut bench, "HLEN k"), format!(":{MANY}\r\n"));
    // The key is not held yet when the client goes.
    let held = bench.worker.store().held_bytes();
    let mut session = Session::new();
    assert_eq!(bench.call(&mut session, &set("", MANY..2 * MANY)).0, Next::Yield);
    drop(session);
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert_eq!(said(&mut bench, "HLEN k"), format!(":{MANY}\r\n"));
    // The user's rules change before the first field is set: without FNX, and with it, while fields are
    // looked up.
    for options in ["", " FNX"] {
        let (mut bench, mut admin, mut user) = with_user("~* +@all");
        let reply = refused_amid(&mut bench, &mut admin, &mut user, &set(options, 0..MANY));
        assert!(reply.starts_with("-NOPERM The user's ACL rules changed before any of"), "{reply}");
        assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
    }
}

#[test]
fn keyspace_events_of_fields_that_are_set_are_told_once() {
    let mut bench = large();
    let mut listens = Session::new();
    bench.reply("CONFIG SET notify-keyspace-events EAn");
    bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
    let cases: [(&str, Range<usize>, &str, &[&str]); 6] = [
        (" EX 100", 0..4_000, ":1\r\n", &["new", "hset", "hexpire"]),
        (" KEEPTTL", 2_000..6_000, ":1\r\n", &["hset"]),
        (" FNX", 5_999..10_000, ":0\r\n", &[]),
        // The expiry has passed: the events are as if the fields had been there for a moment.
        (" EXAT 1", 0..4_000, ":1\r\n", &["hset", "hdel"]),
        (" EXAT 1 FXX", 0..4_000, ":0\r\n", &[]),
        (" EXAT 1", 4_000..8_000, ":1\r\n", &["hset", "hdel", "del"]),
    ];
    for (options, numbers, reply, events) in cases {
        let mut session = begun(&mut bench, &set(options, numbers));
        assert_eq!(ended(&mut bench, &mut session).0, reply, "{options}");
        assert_eq!(heard(&mut bench, &mut listens), events, "{options}");
    }
    // Beyond HELD_MAX fields, each step is one moment and has its own event.
    let mut session = Session::new();
    let (mut next, ..) = bench.call(&mut session, &set("", 0..HELD_MAX + 1));
    while next == Next::Yield {
        (next, ..) = bench.call(&mut session, b"");
    }
    let events = heard(&mut bench, &mut listens);
    assert!(events.len() > 2 && events[0] == "new", "{} events", events.len());
    assert!(events[1..].iter().all(|event| event == "hset"));
}

#[test]
fn a_watcher_of_mutations_is_told_of_fields_that_are_set_behind_the_last() {
    let mut bench = bench();
    let mut watcher = watch::watcher(&mut bench, "mutations deletions");
    for (options, line) in [
        (" EX 100", "type=item_store key=k status=stored cmd=hsetex ttl=0 "),
        (" FNX", "type=item_store key=k status=not_stored cmd=hsetex ttl=0 "),
        (" EXAT 1", "type=deleted key=k cmd=hsetex "),
    ] {
        let mut session = begun(&mut bench, &set(options, 0..MANY));
        assert!(watch::told(&mut bench, &mut watcher).is_empty(), "{options}");
        ended(&mut bench, &mut session);
        let lines = watch::told(&mut bench, &mut watcher);
        assert_eq!(lines.len(), 1, "{options}: {lines:?}");
        assert!(lines[0].starts_with(line), "{options}: {lines:?}");
    }
}

#[test]
fn a_watched_key_changes_once_when_fields_are_set() {
    let mut bench = bench();
    let mut watches = Session::new();
    bench.turns(&mut watches, &[of("WATCH k"), of("MULTI"), of("GET other")].concat());
    let mut session = written(&mut bench, &set("", 0..MANY));
    waits(&mut bench, &mut watches, &of("EXEC"), "EXEC");
    assert_eq!(ended(&mut bench, &mut session).0, ":1\r\n");
    assert_eq!(bench.turns(&mut watches, &of("EXEC")).0, b"*-1\r\n");
    // If no field is set, the key is not touched.
    bench.turns(&mut watches, &[of("WATCH k"), of("MULTI"), of("GET other")].concat());
    let mut session = begun(&mut bench, &set(" FNX", 1..MANY));
    assert_eq!(ended(&mut bench, &mut session).0, ":0\r\n");
    assert_eq!(bench.turns(&mut watches, &of("EXEC")).0, b"*1\r\n$-1\r\n");
}

#[test]
fn in_exec_the_fields_that_are_set_are_a_part_of_that() {
    let mut bench = bench();
    let set = [set(" FNX EX 100", 0..2_500), set(" FNX EX 200", 0..2_500)].concat();
    let input = [of("MULTI"), set, of("HLEN k"), of("EXEC")].concat();
    let reply = bench.turns(&mut Session::new(), &input).0;
    let queued = "+QUEUED\r\n".repeat(3);
    assert_eq!(String::from_utf8_lossy(&reply), format!("+OK\r\n{queued}*3\r\n:1\r\n:0\r\n:2500\r\n"));
    assert_eq!(said(&mut bench, "HTTL k FIELDS 2 m0 m2499"), "*2\r\n:100\r\n:100\r\n");
}

#[test]
fn what_is_done_with_each_of_many_fields_is_one_moment() {
    let all = |answer: &str| format!("*{MANY}\r\n{}", answer.repeat(MANY));
    let values = all("$1\r\nv\r\n");
    for (head, reply, time) in [
        ("HGETDEL k", &values, -2),
        ("HGETEX k", &values, -1),
        ("HGETEX k EX 100", &values, 100),
        ("HGETEX k PERSIST", &values, -1),
        ("HGETEX k EXAT 1", &values, -2),
        ("HEXPIRE k 100", &all(":1\r\n"), 100),
        ("HEXPIRE k 100 XX", &all(":0\r\n"), -1),
        ("HPEXPIRE k 0", &all(":2\r\n"), -2),
        ("HPERSIST k", &all(":-1\r\n"), -1),
    ] {
        let mut bench = bench();
        fill(&mut bench, 0..MANY + 7);
        let mut session = begun(&mut bench, &on(head, 0..MANY));
        let (first, turns) = ended_beside_others(&mut bench, &mut session);
        let rest = String::from_utf8(bench.turns(&mut session, b"").0).expect("text");
        assert!(turns >= 10 && &(first + &rest) == reply, "{head}: {turns} turns, {rest:.40}");
        let times = format!("*3\r\n:{time}\r\n:{time}\r\n:-1\r\n");
        assert_eq!(said(&mut bench, "HTTL k FIELDS 3 m0 m3999 m4000"), times, "{head}");
        let left = if time == -2 { 7 } else { MANY + 7 };
        assert_eq!(said(&mut bench, "HLEN k"), format!(":{left}\r\n"), "{head}");
    }
}

/// Up to as many fields as HSETEX sets in one step. A field that is named twice is there once.
#[test]
fn something_is_done_with_some_fields_in_one_step() {
    for (head, answer) in [
        ("HGETEX k", "$1\r\nv\r\n"),
        ("HGETEX k EX 9", "$1\r\nv\r\n"),
        ("HEXPIRE k 9", ":1\r\n"),
        ("HPERSIST k", ":-1\r\n"),
        ("HPEXPIRE k 0", ":2\r\n"),
        ("HGETDEL k", "$1\r\nv\r\n"),
    ] {
        for count in [2_047, 2_048, 2_049] {
            let mut bench = bench();
            fill(&mut bench, 0..MANY);
            let mut session = Session::new();
            let (_, reply, _) = bench.call(&mut session, &on(head, 0..count));
            assert_eq!(reply.is_empty(), count == 2_049, "{head} {count}");
            let reply = [reply, bench.turns(&mut session, b"").0].concat();
            let expected = format!("*{count}\r\n{}", answer.repeat(count));
            assert!(reply == expected.as_bytes(), "{head} {count}: {} bytes", reply.len());
        }
    }
    for pairs in [1_000, 2_000] {
        let mut bench = bench();
        fill(&mut bench, 0..MANY);
        let twice = format!("HGETDEL k FIELDS {}{}", 2 * pairs, " m1000 m2000".repeat(pairs));
        let reply = bench.turns(&mut Session::new(), &of(&twice)).0;
        let (values, nulls) = ("$1\r\nv\r\n".repeat(2), "$-1\r\n".repeat(2 * pairs - 2));
        assert!(reply == format!("*{}\r\n{values}{nulls}", 2 * pairs).as_bytes(), "{pairs}");
    }
    // Each of many fields is named twice, and replied at its first name.
    let mut bench = bench();
    fill(&mut bench, 0..MANY);
    let names: String = (0..2_000).map(|n| format!(" m{}", n % 1_000)).collect();
    let reply = bench.turns(&mut Session::new(), &of(&format!("HGETDEL k FIELDS 2000{names}"))).0;
    let (values, nulls) = ("$1\r\nv\r\n".repeat(1_000), "$-1\r\n".repeat(1_000));
    assert!(reply == format!("*2000\r\n{values}{nulls}").as_bytes(), "{} bytes", reply.len());
}

#[test]
fn values_of_some_fields_are_replied_in_one_step_up_to_512_kib() {
    const FIELDS: usize = 1_024;
    for (bytes, is_one_step) in [(511, true), (512, true), (513, false)] {
        let mut bench = bench();
        for from in (0..FIELDS).step_by(32) {
            let pairs: String = (from..from + 32).map(|n| format!(" m{n} {n:x<512}")).collect();
            assert_eq!(said(&mut bench, &format!("HSET k{pairs}")), ":32\r\n");
        }
        assert_eq!(said(&mut bench, &format!("HSET k m7 {}", "x".repeat(bytes))), ":0\r\n");
        // HEXPIRE replies little, however long the values are.
        let (_, reply, _) = bench.call(&mut Session::new(), &on("HEXPIRE k 100", 0..FIELDS));
        assert!(reply == format!("*{FIELDS}\r\n{}", ":1\r\n".repeat(FIELDS)).as_bytes(), "{bytes}");
        for head in ["HGETEX k PERSIST", "HGETDEL k"] {
            let mut session = Session::new();
            let (_, reply, _) = bench.call(&mut session, &on(head, 0..FIELDS));
            assert_eq!(!reply.is_empty(), is_one_step, "{head} {bytes}");
            let reply = [reply, bench.turns(&mut session, b"").0].concat();
            assert_eq!(reply.len(), 7 + 1_023 * 520 + 8 + bytes, "{head} {bytes}");
        }
        assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
    }
}

#[test]
fn more_fields_than_others_wait_for_are_answered_in_some_moments() {
    for (count, is_whole) in [(HELD_MAX - 1, true), (HELD_MAX, true), (HELD_MAX + 1, false)] {
        let mut bench = large();
        fill(&mut bench, 0..HELD_MAX + 100);
        let (all, left) = (format!(":{}\r\n", HELD_MAX + 100), format!(":{}\r\n", HELD_MAX + 100 - count));
        let mut session = Session::new();
        let (mut next, mut reply, _) = bench.call(&mut session, &on("HGETDEL k", 0..count));
        let (mut holds, mut parts) = (false, 0);
        while matches!(next, Next::Yield | Next::Flush) {
            holds |= session.must_end();
            if !is_whole {
                let there = said(&mut bench, "HLEN k");
                parts += usize::from(there != all && there != left);
            }
            let more;
            (next, more, _) = bench.call(&mut session, b"");
            reply.extend(more);
        }
        assert_eq!((next, holds), (Next::Receive, is_whole), "{count}");
        assert_eq!(parts > 100, !is_whole, "{count}: {parts} times a part was seen");
        let expected = format!("*{count}\r\n{}", "$1\r\nv\r\n".repeat(count));
        assert!(reply == expected.as_bytes(), "{count}: {} bytes", reply.len());
        assert_eq!(said(&mut bench, "HLEN k"), left, "{count}");
    }
}

/// An expiry that passes during the command counts as in the future for all its fields: all get the same
/// reply, and all are gone afterwards.
#[test]
fn a_time_that_comes_amid_it_is_given_to_all_fields() {
    for (head, answer, comes) in [
        ("HPEXPIRE k 100", ":1\r\n", true),
        ("HGETEX k PX 100", "$1\r\nv\r\n", true),
        // The expiry had passed when the command began.
        ("HPEXPIRE k 0", ":2\r\n", false),
        ("HGETEX k PXAT 1", "$1\r\nv\r\n", false),
    ] {
        for others in [0, 7] {
            let mut bench = bench();
            fill(&mut bench, 0..MANY + others);
            bench.reply("CONFIG SET notify-keyspace-events EAn");
            let mut listens = Session::new();
            bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
            let mut session = written(&mut bench, &on(head, 0..MANY));
            bench.system += 200;
            let reply = answers(&mut bench, &mut session);
            assert!(reply == format!("*{MANY}\r\n{}", answer.repeat(MANY)), "{head}: {reply:.40}");
            assert_eq!(said(&mut bench, "HLEN k"), format!(":{others}\r\n"), "{head}");
            let heard: BTreeSet<String> = heard(&mut bench, &mut listens).into_iter().collect();
            let given = if comes { &["hexpire", "hexpired"][..] } else { &["hdel"] };
            let gone = if others == 0 { &["del"][..] } else { &[] };
            let expected = given.iter().chain(gone).map(|event| (*event).to_owned());
            assert_eq!(heard, expected.collect::<BTreeSet<String>>(), "{head} {others}");
        }
    }
}

/// While the key is held, the reply is kept up to a connection's share of memory. Then the command frees the
/// key, and continues as its client reads.
#[test]
fn answers_beyond_a_connections_share_come_when_others_are_sent() {
    const FIELDS: usize = 1_500;
    let mut bench = Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 16 << 20);
    let value = "v".repeat(4_000);
    for from in (0..FIELDS).step_by(100) {
        let pairs: String = (from..from + 100).map(|n| format!(" m{n} {value}")).collect();
        assert_eq!(said(&mut bench, &format!("HSET k{pairs}")), ":100\r\n");
    }
    let held = bench.worker.store().held_bytes();
    let mut session = begun(&mut bench, &on("HGETDEL k", 0..FIELDS));
    let mut reply = Vec::new();
    while session.must_end() {
        reply.extend(bench.call(&mut session, b"").1);
    }
    let left: usize = said(&mut bench, "HLEN k")[1..].trim_end().parse().expect("a number");
    // Each field claims a little more memory than its reply takes. After the last of these, too little is
    // left for one more.
    let (head, each, room) = (7, 4_009, 4_032);
    let share = bench.worker.store().held_bytes_max() as usize / 4;
    assert_eq!(FIELDS - left, (share - head - room) / each + 1);
    reply.extend(bench.turns(&mut session, b"").0);
    let expected = format!("*{FIELDS}\r\n{}", format!("$4000\r\n{value}\r\n").repeat(FIELDS));
    assert!(reply == expected.as_bytes(), "{} bytes", reply.len());
    assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
    assert_eq!(bench.worker.store().held_bytes(), held);
}

/// If other connections hold all memory, the key is freed with the part of the reply that is kept by then.
#[test]
fn answers_for_which_there_is_no_room_come_when_others_hold_less() {
    const FIELDS: usize = 1_000;
    let mut bench = Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 16 << 20);
    let value = |n: usize| "v".repeat(if n < FIELDS / 2 { 1 } else { 4_000 });
    for from in (0..FIELDS).step_by(100) {
        let pairs: String = (from..from + 100).map(|n| format!(" m{n} {}", value(n))).collect();
        assert_eq!(said(&mut bench, &format!("HSET k{pairs}")), ":100\r\n");
    }
    let store = std::sync::Arc::clone(bench.worker.store());
    let mut session = begun(&mut bench, &on("HGETDEL k", 0..FIELDS));
    let others = (store.held_bytes_max() - store.held_bytes() - 300_000) as i64;
    store.hold(others);
    let mut reply = Vec::new();
    while session.must_end() {
        reply.extend(bench.call(&mut session, b"").1);
    }
    // Fields with short values were taken in a step; none with a long value was.
    let left: usize = said(&mut bench, "HLEN k")[1..].trim_end().parse().expect("a number");
    assert!((FIELDS / 2..FIELDS).contains(&left), "{left}");
    store.hold(-others);
    reply.extend(bench.turns(&mut session, b"").0);
    let values: String = (0..FIELDS).map(value).map(|v| format!("${}\r\n{v}\r\n", v.len())).collect();
    assert!(reply == format!("*{FIELDS}\r\n{values}").as_bytes(), "{} bytes", reply.len());
}

/// SPOP keeps its whole reply, which begins with the number of members. Once it has kept a connection's
/// share, the key is free.
#[test]
fn members_beyond_a_connections_share_are_popped_while_others_are_at_the_key() {
    let mut bench = Bench::of(Settings::default(), 16 << 20);
    bench.add("k", (0..1_500).map(|n| format!("m{n:0>3999}")));
    let share = bench.worker.store().held_bytes_max() as usize / 4;
    let mut session = begun(&mut bench, &of("SPOP k 700"));
    while session.must_end() {
        assert_eq!(bench.call(&mut session, b"").1, b"");
    }
    let left: usize = said(&mut bench, "SCARD k")[1..].trim_end().parse().expect("a number");
    let popped = 1_500 - left;
    // One step takes 256 members at most.
    assert!(popped * 4_009 >= share && (popped - 256) * 4_009 < share, "{popped} of {share} bytes");
    let reply = String::from_utf8(bench.turns(&mut session, b"").0).expect("text");
    let popped: BTreeSet<&str> = reply.lines().filter(|line| line.starts_with('m')).collect();
    assert!(reply.starts_with("*700\r\n") && popped.len() == 700, "{reply:.20} {}", popped.len());
    assert_eq!(said(&mut bench, "SCARD k"), ":800\r\n");
}

/// A command waits for memory that is on its way, for the expiries of fields; other clients are served
/// meanwhile. If none comes, the fields of a step stay as they were, and the reply says so.
#[test]
fn fields_that_find_no_memory_are_answered_so() {
    const FIELDS: usize = 8_000;
    for comes in [true, false] {
        let (mut bench, mut stuck) = pressed();
        bench.worker.set_patient(true);
        for from in (0..FIELDS).step_by(2_000) {
            let pairs: String = (from..from + 2_000).map(|n| format!(" m{n} {n:0>100}")).collect();
            assert_eq!(said(&mut bench, &format!("HSET k{pairs}")), ":2000\r\n");
            bench.system += 100;
        }
        bench.worker.set_patient(false);
        let input = on("HEXPIRE k 100", 0..FIELDS);
        let (mut session, mut at, mut turns) = (Session::new(), 0, 0);
        // Until some fields have their expiry: in the fourth turn under the hold.
        while turns < 4 {
            let (_, reply, consumed) = bench.call(&mut session, &input[at..]);
            assert_eq!(reply, b"");
            (at, turns) = (at + consumed, turns + usize::from(session.holds()));
        }
        let mut batch = Some(stuck.enter(START));
        exhaust(&mut bench, "x");
        let mut waits = 0;
        while session.must_end() {
            let (next, _, _) = bench.call(&mut session, b"");
            if let Next::Sleep(ms) = next {
                (bench.system, waits) = (bench.system + ms, waits + 1);
                batch = batch.filter(|_| !comes || waits < 9);
            }
            assert_eq!(bench.call(&mut Session::new(), b"get nothing\r\n").1, b"END\r\n");
        }
        drop(batch);
        // Memory that has come is found at the next look. If none comes, the command looks 24 times, as any
        // write does, and its later steps do not look again.
        assert_eq!(waits, if comes { 9 } else { 24 });
        session = Session::new();
        let there: usize = said(&mut bench, "HLEN k")[1..].trim_end().parse().expect("a number");
        let times = String::from_utf8(bench.turns(&mut session, &on("HTTL k", 0..FIELDS)).0).expect("text");
        let timed = FIELDS - times.matches(":-1\r\n").count();
        assert_eq!((there, timed == FIELDS, timed > 0), (FIELDS, comes, true), "{timed} have their time");
    }
}

/// If memory ends within a step, the fields that are gone by then are replied with their values. The others
/// are replied with an error, and stay.
#[test]
fn fields_that_are_gone_when_memory_ends_are_replied() {
    const FIELDS: usize = 40_000;
    const NAMED: usize = 2_000;
    for head in ["HGETDEL hash", "HGETEX hash PXAT 1"] {
        let (mut bench, mut stuck) = full_beside(FIELDS);
        let batch = stuck.enter(START);
        // Fields from all parts of the tree.
        let names: Vec<String> = (0..NAMED).map(|n| format!("m{:05}", 20 * n)).collect();
        let named = format!("FIELDS {NAMED} {}", names.join(" "));
        let (_, reply, _) = bench.call(&mut Session::new(), &of(&format!("{head} {named}")));
        let reply = String::from_utf8(reply).expect("text");
        let gone = reply.matches("$6\r\n").count();
        assert!((1..NAMED).contains(&gone), "{head}: {gone}");
        let bulk = |name: &String| format!("$6\r\n{name}\r\n");
        let (values, refused) = (names[..gone].iter().map(bulk).collect::<String>(), NO_MEMORY);
        let expected = format!("*{NAMED}\r\n{values}{}", refused.repeat(NAMED - gone));
        assert!(reply == expected, "{head}: {gone} are gone");
        assert_eq!(said(&mut bench, "HLEN hash"), format!(":{}\r\n", FIELDS - gone), "{head}");
        let left = bench.turns(&mut Session::new(), &of(&format!("HMGET hash {}", names.join(" ")))).0;
        let values = names[gone..].iter().map(bulk).collect::<String>();
        let expected = format!("*{NAMED}\r\n{}{values}", "$-1\r\n".repeat(gone));
        assert!(left == expected.as_bytes(), "{head}: others are gone");
        drop(batch);
    }
}

/// If memory ends within a step of SPOP, its reply has the members that are gone, and no other is gone.
#[test]
fn members_that_are_gone_when_memory_ends_are_replied() {
    const MEMBERS: usize = 40_000;
    let (mut bench, mut stuck) = full_beside(MEMBERS);
    // The key is held before the other worker begins a batch: a hold waits for batches of other workers.
    let mut session = written(&mut bench, &of("SPOP set 20000"));
    let batch = stuck.enter(START);
    let reply = String::from_utf8(bench.turns(&mut session, b"").0).expect("text");
    let popped: BTreeSet<&str> = reply.lines().filter(|line| line.starts_with('m')).collect();
    assert!(reply.starts_with(&format!("*{}\r\n", popped.len())), "{reply:.20}");
    assert!((1..20_000).contains(&popped.len()), "{}", popped.len());
    assert_eq!(said(&mut bench, "SCARD set"), format!(":{}\r\n", MEMBERS - popped.len()));
    drop(batch);
}

/// A command that only replies values looks for no memory before its key is held.
#[test]
fn values_are_replied_while_memory_is_on_its_way() {
    for (head, waits) in [("HGETEX k", false), ("HGETEX k EX 100", true), ("HEXPIRE k 100", true)] {
        let (mut bench, mut stuck) = pressed();
        bench.worker.set_patient(true);
        fill(&mut bench, 0..2_048);
        bench.worker.set_patient(false);
        let mut session = Session::new();
        let (next, reply, _) = bench.call(&mut session, &on(head, 0..2_500));
        assert_eq!((next, reply.len()), (Next::Yield, 0), "{head}");
        let batch = stuck.enter(START);
        exhaust(&mut bench, "x");
        let (next, reply, _) = bench.call(&mut session, b"");
        let expected = if waits { Next::Sleep(10) } else { Next::Yield };
        assert_eq!((next, reply.len(), session.holds()), (expected, 0, !waits), "{head}");
        drop(batch);
    }
}

/// A key that expires during the command is gone after the fields that were replied by then. Its expiry is an
/// event of its own.
#[test]
fn fields_whose_key_goes_amid_it_are_answered_as_absent() {
    let mut bench = bench();
    fill(&mut bench, 0..MANY);
    assert_eq!(said(&mut bench, "PEXPIRE k 1000"), ":1\r\n");
    let mut watcher = watch::watcher(&mut bench, "mutations deletions");
    bench.reply("CONFIG SET notify-keyspace-events EAn");
    let mut listens = Session::new();
    bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
    let mut session = written(&mut bench, &on("HGETDEL k", 0..MANY));
    bench.system += 2_000;
    let reply = answers(&mut bench, &mut session);
    let taken = reply.matches("$1\r\nv\r\n").count();
    assert!((1..MANY).contains(&taken), "{taken}");
    let (values, nulls) = ("$1\r\nv\r\n".repeat(taken), "$-1\r\n".repeat(MANY - taken));
    assert!(reply == format!("*{MANY}\r\n{values}{nulls}"), "{taken}");
    assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
    let mut events = heard(&mut bench, &mut listens);
    events.sort_unstable();
    assert_eq!(events, ["expired", "hdel"]);
    let lines = watch::told(&mut bench, &mut watcher);
    assert!(!lines.iter().any(|line| line.contains("cmd=hgetdel")), "{lines:?}");
}

#[test]
fn a_client_that_goes_has_something_done_with_all_of_its_fields_or_none() {
    let mut bench = bench();
    fill(&mut bench, 0..MANY + 7);
    let mut session = written(&mut bench, &on("HGETDEL k", 0..MANY));
    let kill = format!("CLIENT KILL ID {}", session.redis_client().expect("a client"));
    assert_eq!(said(&mut bench, &kill), ":1\r\n");
    ended(&mut bench, &mut session);
    assert_eq!(said(&mut bench, "HLEN k"), ":7\r\n");
    // The key is not held yet when the client goes.
    let held = bench.worker.store().held_bytes();
    let mut session = Session::new();
    assert_eq!(bench.call(&mut session, &on("HEXPIRE k 100", 0..MANY + 7)).0, Next::Yield);
    drop(session);
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert_eq!(said(&mut bench, "HTTL k FIELDS 1 m4000"), "*1\r\n:-1\r\n");
    // The user's rules change before the first field is taken out.
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    fill(&mut bench, 0..MANY);
    let reply = refused_amid(&mut bench, &mut admin, &mut user, &on("HGETDEL k", 0..MANY));
    assert!(reply.starts_with("-NOPERM The user's ACL rules changed before any of the fields"), "{reply}");
    assert_eq!(said(&mut bench, "HLEN k"), format!(":{MANY}\r\n"));
}

#[test]
fn events_and_watchers_lines_of_many_fields_are_told_once() {
    let mut bench = bench();
    fill(&mut bench, 0..2 * MANY);
    let mut watcher = watch::watcher(&mut bench, "mutations deletions");
    bench.reply("CONFIG SET notify-keyspace-events EAn");
    let mut listens = Session::new();
    bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
    let (stored, deleted) = ("type=item_store key=k status=stored ", "type=deleted key=k ");
    let cases: [(&str, usize, &[&str], &[&str]); 8] = [
        ("HEXPIRE k 100", 0, &["hexpire"], &[stored]),
        ("HPERSIST k", 0, &["hpersist"], &[stored]),
        ("HGETEX k EX 100", 0, &["hexpire"], &[stored]),
        ("HGETEX k", 0, &[], &[stored]),
        ("HGETEX k PERSIST", 0, &["hpersist"], &[stored]),
        ("HGETDEL k", 0, &["hdel"], &[stored]),
        ("HPEXPIRE k 0", MANY, &["hdel", "del"], &[deleted]),
        ("HGETDEL k", 0, &[], &[]),
    ];
    for (head, from, events, starts) in cases {
        let mut session = written(&mut bench, &on(head, from..from + MANY));
        assert!(watch::told(&mut bench, &mut watcher).is_empty(), "{head}");
        answers(&mut bench, &mut session);
        assert_eq!(heard(&mut bench, &mut listens), events, "{head}");
        let lines = watch::told(&mut bench, &mut watcher);
        let are_as_told = lines.iter().zip(starts).all(|(line, start)| line.starts_with(start));
        assert!(lines.len() == starts.len() && are_as_told, "{head}: {lines:?}");
    }
}

/// Commands behind such a command in a pipeline are answered after it.
#[test]
fn answers_of_many_fields_come_in_the_order_of_their_commands() {
    let mut bench = bench();
    fill(&mut bench, 0..MANY);
    let input = [of("GET other"), on("HGETDEL k", 0..MANY), of("EXISTS k"), of("GET other")].concat();
    let reply = String::from_utf8(bench.turns(&mut Session::new(), &input).0).expect("text");
    let values = "$1\r\nv\r\n".repeat(MANY);
    assert!(reply == format!("$-1\r\n*{MANY}\r\n{values}:0\r\n$-1\r\n"), "{reply:.40}");
}

/// If databases are swapped before its key is held, the command works on the key that its name means then.
#[test]
fn fields_are_of_the_database_that_has_its_number_when_their_key_is_held() {
    let mut bench = bench();
    fill(&mut bench, 0..MANY);
    let first = begun(&mut bench, &set("", 0..MANY));
    let mut session = begun_before_a_swap(&mut bench, first, "HLEN k", &on("HGETDEL k", 0..MANY));
    let reply = bench.turns(&mut session, b"").0;
    let nulls = format!("*{MANY}\r\n{}", "$-1\r\n".repeat(MANY));
    assert!(reply == nulls.as_bytes(), "{} bytes", reply.len());
    let other = [of("SELECT 1"), of("HLEN k")].concat();
    assert_eq!(bench.turns(&mut Session::new(), &other).0, format!("+OK\r\n:{MANY}\r\n").as_bytes());
}
