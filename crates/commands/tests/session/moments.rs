//! SADD, HSET, ZADD, LPUSH and their like of many elements, and SPOP: they work in steps, beside other
//! clients, and each is one moment for them.

use crate::pairs::{begun, ended, turn, waits};
use crate::survey::command;
use crate::users::{NO_KEY, say, with_user};
use crate::{Bench, bench, watch};
use larder_commands::{Next, Session, Settings};
use larder_store::Expect;
use std::collections::BTreeSet;
use std::ops::Range;

/// The most elements of a command that is one moment.
pub const HELD_MAX: usize = 64 << 10;

/// A command that writes elements.
#[derive(Clone, Copy)]
struct Kind {
    /// The command with its key, which is `k`.
    head: &'static str,
    /// An element, with a `#` for its number.
    each: &'static str,
    /// The command that counts them.
    count: &'static str,
    /// The most short elements that are written in one step.
    few: usize,
}

const KINDS: [Kind; 6] = [
    Kind { head: "SADD k", each: "m#", count: "SCARD k", few: 2 << 10 },
    Kind { head: "HSET k", each: "m# v", count: "HLEN k", few: 2 << 10 },
    Kind { head: "ZADD k", each: "# m#", count: "ZCARD k", few: 1 << 10 },
    Kind { head: "GEOADD k", each: "13 38 m#", count: "ZCARD k", few: 1 << 10 },
    Kind { head: "RPUSH k", each: "m#", count: "LLEN k", few: 16 << 10 },
    Kind { head: "LPUSH k", each: "m#", count: "LLEN k", few: 16 << 10 },
];

impl Kind {
    /// The command with the elements of these numbers.
    fn put(self, numbers: Range<usize>) -> Vec<u8> {
        let each = numbers.map(|n| format!(" {}", self.each.replace('#', &n.to_string())));
        of(&(self.head.to_owned() + &each.collect::<String>()))
    }

    /// More elements than are written in one step.
    fn many(self) -> usize {
        self.few + 1_500
    }
}

pub fn of(words: &str) -> Vec<u8> {
    command(&words.split(' ').collect::<Vec<_>>())
}

pub fn said(bench: &mut Bench, words: &str) -> String {
    String::from_utf8(bench.reply(words)).expect("text")
}

/// Begins a command, and runs turns until some of its elements are written. No other client sees these.
pub fn written(bench: &mut Bench, input: &[u8]) -> Session {
    let mut session = begun(bench, input);
    // The command finds that its key is held, and writes.
    for _ in 0..3 {
        assert_eq!(turn(bench, &mut session, b"").1, b"");
    }
    assert!(session.must_end() && session.holds());
    session
}

/// Begins a command that waits to hold its key: `first` holds other keys, and a request for these has waited
/// (`asks`). While the command waits, the databases are swapped.
pub fn begun_before_a_swap(bench: &mut Bench, mut first: Session, asks: &str, input: &[u8]) -> Session {
    waits(bench, &mut Session::new(), &of(asks), asks);
    while first.must_end() {
        turn(bench, &mut first, b"");
    }
    let mut session = Session::new();
    let (mut next, ..) = bench.call(&mut session, input);
    while next == Next::Yield {
        (next, ..) = bench.call(&mut session, b"");
    }
    assert_eq!((next, session.holds()), (Next::Sleep(2), false));
    assert_eq!(said(bench, "SWAPDB 0 1"), "+OK\r\n");
    bench.system += 100;
    session
}

#[test]
fn some_elements_are_written_in_one_step_and_more_in_turns() {
    for kind in KINDS {
        for count in [kind.few - 1, kind.few] {
            let mut bench = bench();
            let (next, reply, _) = bench.call(&mut Session::new(), &kind.put(0..count));
            assert_eq!(String::from_utf8_lossy(&reply), format!(":{count}\r\n"), "{}: {next:?}", kind.head);
        }
        let mut bench = bench();
        let mut session = begun(&mut bench, &kind.put(0..kind.few + 1));
        let (reply, turns) = ended(&mut bench, &mut session);
        assert_eq!(reply, format!(":{}\r\n", kind.few + 1), "{}", kind.head);
        assert!(turns >= 4, "{}: {turns} turns", kind.head);
        assert_eq!(said(&mut bench, kind.count), reply);
    }
    // Few elements are written in turns if they are long.
    let mut bench = bench();
    let members: String = (0..1_000).map(|n| format!(" {n:0>600}")).collect();
    let mut session = begun(&mut bench, &of(&format!("SADD k{members}")));
    assert_eq!(ended(&mut bench, &mut session).0, ":1000\r\n");
    // Short elements are written in one step up to 512 KiB, with their heads in RESP. Each has 524 bytes; the
    // last has the rest.
    for (last_bytes, is_one_step) in [(803, true), (804, true), (805, false)] {
        let members: String = (0..999).map(|n| format!(" {n:0>516}")).collect();
        let sent = of(&format!("SADD k{members} {}", "x".repeat(last_bytes)));
        let mut bench = crate::bench();
        let reply = bench.call(&mut Session::new(), &sent).1;
        assert_eq!(reply, if is_one_step { &b":1000\r\n"[..] } else { b"" }, "{last_bytes}");
    }
    // A long key makes no difference: it says nothing about the elements.
    let many: String = (0..1_000).map(|n| format!(" m{n}")).collect();
    let sent = of(&format!("SADD {}{many}", "k".repeat(20_000)));
    assert_eq!(bench.call(&mut Session::new(), &sent).1, b":1000\r\n");
    // A key of another type is refused before the command waits to hold it.
    assert_eq!(said(&mut bench, "SET k x"), "+OK\r\n");
    for kind in KINDS {
        let mut session = Session::new();
        let (mut next, mut reply, _) = bench.call(&mut session, &kind.put(0..kind.many()));
        while reply.is_empty() {
            assert!(next == Next::Yield && !session.holds(), "{}: {next:?}", kind.head);
            (next, reply, _) = bench.call(&mut session, b"");
        }
        assert!(reply.starts_with(b"-WRONGTYPE "), "{}", kind.head);
    }
    assert_eq!(said(&mut bench, "GET k"), "$1\r\nx\r\n");
}

#[test]
fn more_elements_than_others_wait_for_are_some_moments() {
    let large = || Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 256 << 20);
    let add = KINDS[0];
    for count in [HELD_MAX - 1, HELD_MAX] {
        let mut bench = large();
        let mut session = begun(&mut bench, &add.put(0..count));
        assert_eq!(ended(&mut bench, &mut session).0, format!(":{count}\r\n"));
    }
    let mut bench = large();
    let input = add.put(0..HELD_MAX + 1);
    let mut session = Session::new();
    let (mut next, mut reply, consumed) = bench.call(&mut session, &input);
    assert_eq!(consumed, input.len());
    let all = format!(":{}\r\n", HELD_MAX + 1);
    assert_ne!(said(&mut bench, "SCARD k"), ":0\r\n", "the first of them come at once");
    let mut halves = 0;
    while next != Next::Receive {
        assert!(next == Next::Yield && !session.holds() && reply.is_empty(), "{next:?}");
        let seen = said(&mut bench, "SCARD k");
        halves += usize::from(seen != ":0\r\n" && seen != all);
        (next, reply, _) = bench.call(&mut session, b"");
    }
    assert_eq!(String::from_utf8_lossy(&reply), all);
    assert!(halves > 100, "{halves} times a part of them was seen");
}

/// A command of more than one moment waits for its own key, if another command holds that, and for no other
/// key.
#[test]
fn more_elements_than_others_wait_for_go_on_beside_another_key_that_is_held() {
    const MANY: usize = HELD_MAX + 4_000;
    let mut bench = Bench::of(Settings { append_bytes_max: 32 << 20, ..Settings::default() }, 256 << 20);
    let add = KINDS[0];
    let mut holds = written(&mut bench, &add.put(0..4_000));
    let members: String = (0..MANY).map(|n| format!(" m{n}")).collect();
    let mut other = Session::new();
    let (mut next, mut reply, _) = bench.call(&mut other, &of(&format!("SADD other{members}")));
    while next != Next::Receive {
        assert_eq!((next, reply.len()), (Next::Yield, 0));
        (next, reply, _) = bench.call(&mut other, b"");
    }
    assert_eq!(String::from_utf8_lossy(&reply), format!(":{MANY}\r\n"));
    waits(&mut bench, &mut Session::new(), &of("SCARD k"), "SCARD");
    assert_eq!(ended(&mut bench, &mut holds).0, ":4000\r\n");
    // Another command holds the key when some elements are written.
    let mut long = Session::new();
    let (mut next, ..) = bench.call(&mut long, &add.put(0..MANY));
    for _ in 0..20 {
        assert_eq!(next, Next::Yield);
        (next, ..) = bench.call(&mut long, b"");
    }
    let mut holds = written(&mut bench, &add.put(MANY..MANY + 4_000));
    waits(&mut bench, &mut long, b"", "the rest of it");
    assert_eq!(ended(&mut bench, &mut holds).0, ":4000\r\n");
    let new = format!(":{}\r\n", MANY - 4_000);
    assert_eq!(String::from_utf8_lossy(&bench.turns(&mut long, b"").0), new);
    assert_eq!(said(&mut bench, "SCARD k"), format!(":{}\r\n", MANY + 4_000));
}

#[test]
fn others_are_served_meanwhile_and_see_none_or_all_of_the_elements() {
    for kind in KINDS {
        let mut bench = bench();
        let mut first = Session::new();
        let few = kind.put(1_000_000..1_000_010);
        bench.turns(&mut first, &few);
        let mut writer = begun(&mut bench, &kind.put(0..kind.many()));
        let beside: [(&[u8], &str); 5] = [
            (&of("GET other"), "$-1\r\n"),
            (&of("SADD other2 m"), ":1\r\n"),
            (&of("DEL other2"), ":1\r\n"),
            (b"get other\r\n", "END\r\n"),
            (&[of("MULTI"), of(kind.count), of("DISCARD")].concat(), "+OK\r\n+QUEUED\r\n+OK\r\n"),
        ];
        let of_it: Vec<Vec<u8>> = vec![
            of(kind.count),
            kind.put(2_000_000..2_000_001),
            kind.put(0..kind.many()),
            of("EXISTS other k"),
            of("TYPE k"),
            of("DEL k"),
            of("RENAME k other"),
            of("COPY k other"),
            of("EXPIRE k 100"),
            of("WATCH k"),
            of("DBSIZE"),
            of("SWAPDB 0 1"),
            of("FLUSHALL"),
            of("EVAL return 0 0"),
            b"get other k\r\n".to_vec(),
            b"delete k\r\n".to_vec(),
            b"flush_all\r\n".to_vec(),
        ];
        let mut sessions: Vec<Session> = of_it.iter().map(|_| Session::new()).collect();
        let mut exec = Session::new();
        bench.turns(&mut exec, &[of("MULTI"), of(kind.count), of(kind.count)].concat());
        let mut turns = 0;
        while writer.must_end() {
            bench.upkeep();
            for (input, expected) in &beside {
                assert_eq!(&bench.ask(std::str::from_utf8(input).unwrap()), expected);
            }
            for (session, input) in sessions.iter_mut().zip(&of_it) {
                let shown = String::from_utf8_lossy(&input[..input.len().min(40)]);
                waits(&mut bench, session, input, &format!("{}: {shown}", kind.head));
            }
            waits(&mut bench, &mut exec, &of("EXEC"), "EXEC");
            let (next, reply, _) = turn(&mut bench, &mut writer, b"");
            // A push replies the length of the list.
            let there = if kind.count == "LLEN k" { 10 } else { 0 };
            let whole = format!(":{}\r\n", kind.many() + there);
            let expected = if writer.must_end() { "" } else { &whole };
            assert_eq!(String::from_utf8_lossy(&reply), expected, "{}: {next:?}", kind.head);
            turns += 1;
        }
        assert!(turns >= 5, "{}: {turns} turns", kind.head);
        let count = format!(":{}\r\n", kind.many() + 10);
        assert_eq!(String::from_utf8_lossy(&bench.turns(&mut sessions[0], &of_it[0]).0), count);
        let both = bench.turns(&mut exec, &of("EXEC")).0;
        assert_eq!(String::from_utf8_lossy(&both), format!("*2\r\n{count}{count}"));
    }
}

#[test]
fn what_is_taken_out_is_one_moment_too() {
    for (put, take, count) in
        [(KINDS[0], "SREM k", "SCARD k"), (KINDS[1], "HDEL k", "HLEN k"), (KINDS[2], "ZREM k", "ZCARD k")]
    {
        let mut bench = bench();
        let many = put.many();
        bench.turns(&mut Session::new(), &put.put(0..many + 7));
        bench.system += 100;
        let names: String = (0..many).map(|n| format!(" m{n}")).collect();
        let mut session = written(&mut bench, &of(&(take.to_owned() + &names)));
        waits(&mut bench, &mut Session::new(), &of(count), count);
        assert_eq!(ended(&mut bench, &mut session).0, format!(":{many}\r\n"));
        assert_eq!(said(&mut bench, count), ":7\r\n");
    }
}

/// The members of [`KINDS`] in a set's reply.
fn members(reply: &str) -> BTreeSet<&str> {
    reply.lines().filter(|line| line.starts_with('m')).collect()
}

/// Other clients see none of the popped members gone, or all.
#[test]
fn what_is_popped_is_one_moment_too() {
    let mut bench = bench();
    bench.turns(&mut Session::new(), &KINDS[0].put(0..5_000));
    bench.system += 100;
    let mut session = written(&mut bench, &of("SPOP k 4000"));
    for words in ["SCARD k", "SISMEMBER k m0", "SADD k m0", "SPOP k", "SPOP k 300", "DEL k", "FLUSHALL"] {
        waits(&mut bench, &mut Session::new(), &of(words), words);
    }
    assert_eq!(said(&mut bench, "SADD other m"), ":1\r\n");
    let (reply, turns) = ended(&mut bench, &mut session);
    assert!(turns > 5, "{turns} turns");
    let reply = reply + &String::from_utf8(bench.turns(&mut session, b"").0).expect("text");
    assert!(reply.starts_with("*4000\r\n"), "{reply:.20}");
    let popped = members(&reply);
    assert_eq!(popped.len(), 4_000);
    let left = said(&mut bench, "SMEMBERS k");
    assert_eq!((members(&left).len(), members(&left).intersection(&popped).count()), (1_000, 0));
    // One more member than is popped in one step.
    let mut session = begun(&mut bench, &of("SPOP k 257"));
    assert!(ended(&mut bench, &mut session).0.starts_with("*257\r\n"));
    assert!(said(&mut bench, "SPOP k 256").starts_with("*256\r\n"));
    assert_eq!(said(&mut bench, "SCARD k"), ":487\r\n");
}

#[test]
fn more_members_than_others_wait_for_are_popped_in_some_moments() {
    for (count, is_whole) in [(HELD_MAX - 1, true), (HELD_MAX, true), (HELD_MAX + 1, false)] {
        let mut bench = Bench::of(Settings::default(), 256 << 20);
        bench.add("k", (0..HELD_MAX + 100).map(|n| format!("m{n}")));
        let (all, left) = (format!(":{}\r\n", HELD_MAX + 100), format!(":{}\r\n", HELD_MAX + 100 - count));
        let mut session = Session::new();
        let (mut next, mut reply, _) = bench.call(&mut session, &of(&format!("SPOP k {count}")));
        let (mut holds, mut parts) = (false, 0);
        while reply.is_empty() {
            assert_eq!(next, Next::Yield, "{count}");
            holds |= session.must_end();
            if !is_whole {
                let there = said(&mut bench, "SCARD k");
                parts += usize::from(there != all && there != left);
            }
            (next, reply, _) = bench.call(&mut session, b"");
        }
        reply.extend(bench.turns(&mut session, b"").0);
        assert_eq!((holds, parts > 100), (is_whole, !is_whole), "{count}: {parts} times a part was seen");
        let reply = String::from_utf8(reply).expect("text");
        assert!(reply.starts_with(&format!("*{count}\r\n")), "{reply:.20}");
        assert_eq!((members(&reply).len(), said(&mut bench, "SCARD k")), (count, left));
    }
}

#[test]
fn a_client_that_goes_has_all_of_its_members_popped_or_none() {
    let mut bench = bench();
    bench.add("k", (0..5_000).map(|n| format!("m{n}")));
    let mut session = written(&mut bench, &of("SPOP k 4000"));
    let kill = format!("CLIENT KILL ID {}", session.redis_client().expect("a client"));
    assert_eq!(said(&mut bench, &kill), ":1\r\n");
    ended(&mut bench, &mut session);
    assert_eq!(said(&mut bench, "SCARD k"), ":1000\r\n");
    // The key is not held yet when the client goes.
    let held = bench.worker.store().held_bytes();
    let mut session = Session::new();
    assert_eq!(bench.call(&mut session, &of("SPOP k 900")).0, Next::Yield);
    drop(session);
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert_eq!(said(&mut bench, "SCARD k"), ":1000\r\n");
    // The user's rules change before the first member is popped.
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    bench.add("k", (0..5_000).map(|n| format!("m{n}")));
    let reply = refused_amid(&mut bench, &mut admin, &mut user, &of("SPOP k 4000"));
    assert!(reply.starts_with("-NOPERM The user's ACL rules changed before any of the members"), "{reply}");
    assert_eq!(said(&mut bench, "SCARD k"), ":5000\r\n");
}

/// A key that expires during the command is gone after the members that were popped by then. Its expiry is an
/// event of its own.
#[test]
fn what_is_popped_in_one_moment_is_told_once() {
    for goes in [false, true] {
        let mut bench = bench();
        bench.add("k", (0..5_000).map(|n| format!("m{n}")));
        assert_eq!(said(&mut bench, "PEXPIRE k 1000"), ":1\r\n");
        let mut watcher = watch::watcher(&mut bench, "mutations deletions");
        bench.reply("CONFIG SET notify-keyspace-events Egs");
        let mut listens = Session::new();
        bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
        bench.system += 100;
        let mut session = written(&mut bench, &of("SPOP k 4000"));
        assert!(watch::told(&mut bench, &mut watcher).is_empty());
        bench.system += if goes { 2_000 } else { 0 };
        let (reply, _) = ended(&mut bench, &mut session);
        let count: usize = reply[1..].lines().next().and_then(|count| count.parse().ok()).expect("a count");
        assert!(if goes { (1..4_000).contains(&count) } else { count == 4_000 }, "{count}");
        assert_eq!(heard(&mut bench, &mut listens), ["spop"], "{goes}");
        let lines = watch::told(&mut bench, &mut watcher);
        let is_stored = |line: &&String| line.starts_with("type=item_store key=k status=stored cmd=spop ");
        assert_eq!(lines.iter().filter(is_stored).count(), usize::from(!goes), "{lines:?}");
        assert_eq!(said(&mut bench, "EXISTS k"), format!(":{}\r\n", usize::from(!goes)));
    }
}

/// A client that waits for a list is served after the whole push.
#[test]
fn one_that_waits_for_a_list_is_served_when_all_is_pushed() {
    for (kind, element) in [(KINDS[4], "m0".to_owned()), (KINDS[5], format!("m{}", KINDS[5].many() - 1))] {
        let mut bench = bench();
        let mut waiter = Session::new();
        assert_eq!(bench.call(&mut waiter, &of("BLPOP k 0")).0, Next::Await(None));
        let mut writer = written(&mut bench, &kind.put(0..kind.many()));
        let mut reply = Vec::new();
        while writer.must_end() {
            assert_eq!(bench.call(&mut waiter, b"").1, b"", "{}", kind.head);
            reply.extend(turn(&mut bench, &mut writer, b"").1);
        }
        assert_eq!(String::from_utf8_lossy(&reply), format!(":{}\r\n", kind.many()));
        let given = String::from_utf8(bench.turns(&mut waiter, b"").0).unwrap();
        assert_eq!(given, format!("*2\r\n$1\r\nk\r\n${}\r\n{element}\r\n", element.len()));
        assert_eq!(said(&mut bench, "LLEN k"), format!(":{}\r\n", kind.many() - 1));
    }
}

#[test]
fn a_watched_key_is_touched_and_changes_once() {
    let mut bench = bench();
    let mut watches = Session::new();
    bench.turns(&mut watches, &[of("WATCH k"), of("MULTI"), of("GET other")].concat());
    let mut writer = written(&mut bench, &KINDS[0].put(0..4_000));
    let mut late = Session::new();
    waits(&mut bench, &mut late, &of("WATCH k"), "WATCH");
    waits(&mut bench, &mut watches, &of("EXEC"), "EXEC");
    assert_eq!(ended(&mut bench, &mut writer).0, ":4000\r\n");
    assert_eq!(bench.turns(&mut watches, &of("EXEC")).0, b"*-1\r\n");
    // A client that watches the key after the last element sees no other change.
    let all = [of("WATCH k"), of("MULTI"), of("SCARD k"), of("EXEC")].concat();
    assert_eq!(bench.turns(&mut late, &all).0, b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:4000\r\n");
}

/// The events that were sent to `listens`, which subscribes to those of database 0.
pub fn heard(bench: &mut Bench, listens: &mut Session) -> Vec<String> {
    let ping = of("PING");
    let heard = [bench.turns(listens, &ping).0, bench.turns(listens, &ping).0].concat();
    let heard = String::from_utf8(heard).unwrap();
    // Each message names the pattern first.
    let events = heard.lines().filter_map(|line| line.strip_prefix("__keyevent@0__:"));
    events.filter(|event| *event != "*").map(str::to_owned).collect()
}

#[test]
fn keyspace_events_of_one_moment_are_told_once() {
    for (kind, event) in KINDS.into_iter().zip(["sadd", "hset", "zadd", "zadd", "rpush", "lpush"]) {
        let mut bench = bench();
        let mut listens = Session::new();
        bench.reply("CONFIG SET notify-keyspace-events EAn");
        bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
        let mut told = |bench: &mut Bench, input: &[u8], expected: &[&str]| {
            let mut session = written(bench, input);
            ended(bench, &mut session);
            assert_eq!(heard(bench, &mut listens), expected, "{}", kind.head);
        };
        let many = kind.many();
        told(&mut bench, &kind.put(0..many), &["new", event]);
        told(&mut bench, &kind.put(many..2 * many), &[event]);
    }
}

/// A key that expires during the command is published as expired. Elements written after that make a new key;
/// elements removed were removed before it.
#[test]
fn a_key_that_goes_meanwhile_is_told_as_one_that_goes_by_itself() {
    let names: String = (0..4_000).map(|n| format!(" m{n}")).collect();
    let takes = of(&format!("SREM k{names}"));
    let cases: [(Vec<u8>, &[&str]); 2] =
        [(KINDS[0].put(0..4_000), &["expired", "new", "sadd"]), (takes, &["expired", "srem"])];
    for (input, expected) in cases {
        let mut bench = bench();
        bench.turns(&mut Session::new(), &KINDS[0].put(0..5_000));
        assert_eq!(said(&mut bench, "PEXPIRE k 1000"), ":1\r\n");
        bench.reply("CONFIG SET notify-keyspace-events EAn");
        let mut listens = Session::new();
        bench.turns(&mut listens, &of("PSUBSCRIBE __keyevent@0__:*"));
        bench.system += 100;
        let mut session = written(&mut bench, &input);
        bench.system += 2_000;
        ended(&mut bench, &mut session);
        let mut events = heard(&mut bench, &mut listens);
        events.sort_unstable();
        assert_eq!(events, expected);
    }
}

#[test]
fn a_watcher_of_mutations_is_told_of_one_moment_behind_it() {
    let mut bench = bench();
    let mut watcher = watch::watcher(&mut bench, "mutations deletions");
    let stored = "type=item_store key=k status=stored cmd=sadd ttl=0 ";
    // The third command changes nothing, and has the same line as with few elements.
    let names: String = (0..8_000).map(|n| format!(" m{n}")).collect();
    for (input, reply, line) in [
        (KINDS[0].put(0..4_000), ":4000\r\n", stored),
        (KINDS[0].put(4_000..8_000), ":4000\r\n", stored),
        (KINDS[0].put(0..4_000), ":0\r\n", stored),
        (of(&format!("SREM k{names}")), ":8000\r\n", "type=deleted key=k cmd=srem "),
    ] {
        let mut session = written(&mut bench, &input);
        assert!(watch::told(&mut bench, &mut watcher).is_empty());
        assert_eq!(ended(&mut bench, &mut session).0, reply);
        let lines = watch::told(&mut bench, &mut watcher);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(line), "{lines:?}");
    }
}

/// The client is to be closed, or has gone: a command that holds its key ends all the same. Before the hold
/// it writes nothing.
#[test]
fn a_client_that_goes_has_all_of_its_elements_written_or_none() {
    let mut bench = bench();
    let mut session = written(&mut bench, &KINDS[0].put(0..4_000));
    let kill = format!("CLIENT KILL ID {}", session.redis_client().expect("a client"));
    assert_eq!(said(&mut bench, &kill), ":1\r\n");
    ended(&mut bench, &mut session);
    assert_eq!(said(&mut bench, "SCARD k"), ":4000\r\n");
    assert_eq!(bench.call(&mut session, b"").0, Next::Close);
    // The key is not held yet when the client goes.
    let mut session = Session::new();
    assert_eq!(bench.call(&mut session, &KINDS[0].put(4_000..8_000)).0, Next::Yield);
    let kill = format!("CLIENT KILL ID {}", session.redis_client().expect("a client"));
    assert_eq!(said(&mut bench, &kill), ":1\r\n");
    assert_eq!(bench.call(&mut session, b"").0, Next::Close);
    assert_eq!(said(&mut bench, "SCARD k"), ":4000\r\n");
    let held = bench.worker.store().held_bytes();
    let mut session = Session::new();
    assert_eq!(bench.call(&mut session, &KINDS[0].put(4_000..8_000)).0, Next::Yield);
    drop(session);
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert_eq!(said(&mut bench, "SCARD k"), ":4000\r\n");
}

/// The reply to a request whose user loses its keys when they are held, before anything is written.
pub fn refused_amid(bench: &mut Bench, admin: &mut Session, user: &mut Session, request: &[u8]) -> String {
    let mut next = bench.call(user, request).0;
    while !user.must_end() {
        assert_eq!(next, Next::Yield);
        next = bench.call(user, b"").0;
    }
    assert_eq!(say(bench, admin, "ACL SETUSER app resetkeys"), "+OK");
    let (next, reply, _) = bench.call(user, b"");
    assert!(next == Next::Close && !user.holds(), "{next:?}");
    String::from_utf8(reply).unwrap()
}

#[test]
fn rules_that_change_before_the_first_element_is_written_have_none_written() {
    let add = KINDS[0].put(0..4_000);
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    let reply = refused_amid(&mut bench, &mut admin, &mut user, &add);
    assert!(reply.starts_with("-NOPERM The user's ACL rules changed before any of the elements"), "{reply}");
    assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
    // Once some elements are written, all of them are.
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    bench.call(&mut user, &add);
    let mut turns = 0;
    while turns < 4 {
        assert_eq!(bench.call(&mut user, b"").1, b"");
        turns += usize::from(user.holds());
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys"), "+OK");
    let mut reply = Vec::new();
    while user.must_end() {
        reply.extend(bench.call(&mut user, b"").1);
    }
    assert_eq!(String::from_utf8_lossy(&reply), ":4000\r\n");
    assert_eq!(said(&mut bench, "SCARD k"), ":4000\r\n");
    assert_eq!(say(&mut bench, &mut user, "GET k"), NO_KEY);
}

/// A key that expires during the command has all of its elements and no others, as if it had expired before
/// the first.
#[test]
fn a_key_that_goes_meanwhile_has_all_elements_or_was_gone_before_them() {
    for kind in KINDS {
        let mut bench = bench();
        bench.turns(&mut Session::new(), &kind.put(1_000_000..1_000_010));
        assert_eq!(said(&mut bench, "PEXPIRE k 1000"), ":1\r\n");
        let mut session = written(&mut bench, &kind.put(0..kind.many()));
        bench.system += 2_000;
        bench.upkeep();
        let whole = format!(":{}\r\n", kind.many());
        assert_eq!(ended(&mut bench, &mut session).0, whole, "{}", kind.head);
        assert_eq!(said(&mut bench, kind.count), whole, "{}", kind.head);
        assert_eq!(said(&mut bench, "TTL k"), ":-1\r\n", "{}", kind.head);
    }
    // SREM replies how many members it removed before the key expired.
    let mut bench = bench();
    bench.turns(&mut Session::new(), &KINDS[0].put(0..5_000));
    assert_eq!(said(&mut bench, "PEXPIRE k 1000"), ":1\r\n");
    bench.system += 100;
    let names: String = (0..4_000).map(|n| format!(" m{n}")).collect();
    let mut session = written(&mut bench, &of(&format!("SREM k{names}")));
    bench.system += 2_000;
    let (reply, _) = ended(&mut bench, &mut session);
    let gone: usize = reply[1..].trim_end().parse().unwrap();
    assert!((1..4_000).contains(&gone), "{gone}");
    assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
}

/// Up to three times the command begins with its first element again. After that it continues with its next
/// one.
#[test]
fn a_key_that_goes_three_times_has_all_elements_and_no_more_often() {
    for (goes, is_whole) in [(2, true), (3, true), (4, false)] {
        let mut bench = bench();
        let mut session = begun(&mut bench, &KINDS[0].put(0..4_000));
        for _ in 0..goes {
            loop {
                assert_eq!(turn(&mut bench, &mut session, b"").1, b"");
                // As if it were evicted.
                let mut guard = bench.worker.enter(bench.system);
                let key = guard.key(b"k");
                let is_gone = guard.delete(&key, Expect::Present).is_ok();
                guard.take_beside_ns();
                if is_gone {
                    break;
                }
            }
        }
        assert_eq!(ended(&mut bench, &mut session).0, ":4000\r\n");
        let there: usize = said(&mut bench, "SCARD k")[1..].trim_end().parse().unwrap();
        assert_eq!((there == 4_000, there > 0), (is_whole, true), "{goes} times: {there}");
    }
}

/// A flush that is due while a command holds its key takes effect after the hold.
#[test]
fn a_flush_that_is_due_comes_behind_the_last_element() {
    let mut bench = bench();
    bench.turns(&mut Session::new(), &KINDS[0].put(1_000_000..1_000_010));
    assert_eq!(bench.ask("flush_all 1\r\n"), "OK\r\n");
    let mut session = written(&mut bench, &KINDS[0].put(0..4_000));
    bench.system += 3_000;
    assert_eq!(ended(&mut bench, &mut session).0, ":4000\r\n");
    assert_eq!(said(&mut bench, "EXISTS k"), ":0\r\n");
}

/// If databases are swapped before its key is held, the command holds and writes the key that its name means
/// then.
#[test]
fn databases_that_are_swapped_before_its_key_is_held_are_what_they_are_then() {
    let mut bench = bench();
    assert_eq!(said(&mut bench, "SADD k there"), ":1\r\n");
    let elements: String = (0..20_000).map(|n| format!(" {n}")).collect();
    let first = begun(&mut bench, &of(&format!("RPUSH l{elements}")));
    let mut session = begun_before_a_swap(&mut bench, first, "LLEN l", &KINDS[0].put(0..4_000));
    while !session.must_end() {
        assert_eq!(bench.call(&mut session, b"").0, Next::Yield);
    }
    waits(&mut bench, &mut Session::new(), &of("SCARD k"), "SCARD");
    assert_eq!(ended(&mut bench, &mut session).0, ":4000\r\n");
    assert_eq!(said(&mut bench, "SCARD k"), ":4000\r\n");
    let other = [of("SELECT 1"), of("SCARD k")].concat();
    assert_eq!(bench.turns(&mut Session::new(), &other).0, b"+OK\r\n:1\r\n");
}

#[test]
fn in_exec_all_of_it_is_a_part_of_that() {
    let mut bench = bench();
    for kind in KINDS {
        let put = kind.put(0..kind.many());
        let input = [of("MULTI"), put, of(kind.count), of("EXEC")].concat();
        let whole = format!(":{}\r\n", kind.many());
        let mut session = Session::new();
        let reply = String::from_utf8(bench.turns(&mut session, &input).0).unwrap();
        assert_eq!(reply, format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{whole}{whole}"), "{}", kind.head);
        bench.reply("DEL k");
    }
}
