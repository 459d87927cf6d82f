//! HSETEX of many fields: in steps, beside others, and one moment for all of them.

use crate::moments::{HELD_MAX, heard, of, refused_amid, said, written};
use crate::pairs::{begun, ended, turn, waits};
use crate::users::with_user;
use crate::{Bench, bench, watch};
use larder_commands::{Next, Session, Settings};
use std::ops::Range;

/// More than are one step, so many that it takes some to ask for them and some to set them.
const MANY: usize = 4_000;

/// HSETEX of the fields with these numbers. `options`: with a space in front of each.
fn set(options: &str, numbers: Range<usize>) -> Vec<u8> {
    let count = numbers.len();
    let pairs: String = numbers.map(|n| format!(" m{n} v")).collect();
    of(&format!("HSETEX k{options} FIELDS {count}{pairs}"))
}

/// A bench in which long requests may be kept.
fn large() -> Bench {
    Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 256 << 20)
}

/// Sets these fields, and lets others have their turn.
fn fill(bench: &mut Bench, numbers: Range<usize>) {
    assert_eq!(bench.turns(&mut Session::new(), &set("", numbers)).0, b":1\r\n");
    bench.system += 100;
}

/// What waits while its key is held.
const WAIT: [&str; 5] = ["HLEN k", "HGET k m0", "HSET k m1 x", "FLUSHALL", "EVAL return 0 0"];

/// Goes on to the end with a command whose key is held, beside others: the reply, and how many turns that took.
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
    // Others have their turn before the next holds keys.
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
    // Of these three look for the fields.
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

/// Others write between the look at the command and the hold of its key: what is asked is asked behind that.
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
        // None was given a time.
        let times = if is_there { "*2\r\n:-1\r\n:-1\r\n" } else { "*2\r\n:-2\r\n:-2\r\n" };
        assert_eq!(said(&mut bench, "HTTL k FIELDS 2 m0 m3998"), times, "{options}");
    }
}

/// A key that goes amid it was gone before it: fields that had to be there are not, and others are all set.
#[test]
fn fields_are_asked_for_anew_when_their_key_goes() {
    let (all, none) = (format!(":{MANY}\r\n"), ":0\r\n".to_owned());
    for (options, from, reply, left) in
        [(" FXX", 0, ":0\r\n", &none), (" FNX", 10_000, ":1\r\n", &all), ("", 0, ":1\r\n", &all)]
    {
        // While they are asked for, and when some are set.
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
    // One whose key is not held yet.
    let held = bench.worker.store().held_bytes();
    let mut session = Session::new();
    assert_eq!(bench.call(&mut session, &set("", MANY..2 * MANY)).0, Next::Yield);
    drop(session);
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert_eq!(said(&mut bench, "HLEN k"), format!(":{MANY}\r\n"));
    // One whose rules change before the first is set, while fields are asked for as well.
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
        // Their time has passed: as if they had been there for a moment.
        (" EXAT 1", 0..4_000, ":1\r\n", &["hset", "hdel"]),
        (" EXAT 1 FXX", 0..4_000, ":0\r\n", &[]),
        (" EXAT 1", 4_000..8_000, ":1\r\n", &["hset", "hdel", "del"]),
    ];
    for (options, numbers, reply, events) in cases {
        let mut session = begun(&mut bench, &set(options, numbers));
        assert_eq!(ended(&mut bench, &mut session).0, reply, "{options}");
        assert_eq!(heard(&mut bench, &mut listens), events, "{options}");
    }
    // Where each step is one moment each of them is told.
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
    // Where nothing is set it is not touched.
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
