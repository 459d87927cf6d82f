//! Requests that are much work each: of very many keys or clients, of long payloads, and appends to large values. Others
//! have their turn meanwhile, and what comes of them is what comes of them in one step.

use crate::slices::{LARGE, STEP_NS, bulk, bytes, get, set, turns};
use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session, Settings};
use larder_protocol::resp::words_read;
use larder_testkit::talk::encode;

/// Keys of a request that takes several steps.
const KEYS: usize = 16_000;
/// Bytes that are received at a time.
const RECEIVED: usize = 60_000;

/// What comes of a request that is received in parts, and how many turns it takes when it is whole. But for that in which
/// the last of it comes no turn does more than its slice and a step.
fn received(bench: &mut Bench, session: &mut Session, request: &[u8]) -> (Vec<u8>, usize) {
    let (mut replies, mut kept) = (Vec::new(), Vec::new());
    let parts = request.chunks(RECEIVED).count();
    let mut whole = 0;
    for (nth, part) in request.chunks(RECEIVED).enumerate() {
        kept.extend_from_slice(part);
        loop {
            let (next, more, consumed) = bench.call(session, &kept);
            let done_ns = bench.room.work().done_ns();
            assert!(whole == 0 || done_ns <= SLICE_NS + STEP_NS, "{done_ns} ns in a turn");
            replies.extend(more);
            kept.drain(..consumed);
            whole += usize::from(nth + 1 == parts);
            match next {
                Next::Receive => break,
                Next::Yield | Next::Flush => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(kept.is_empty());
    (replies, whole)
}

#[test]
fn commands_of_many_keys_are_done_in_moments() {
    let mut bench = bench();
    let names: Vec<String> = (0..KEYS).map(|n| format!("k{n}")).collect();
    let with = |name: &str| {
        let words: Vec<&str> = std::iter::once(name).chain(names.iter().map(|name| &name[..])).collect();
        command(&words)
    };
    let fill = |bench: &mut Bench| {
        for n in (0..KEYS).step_by(16) {
            set(bench, &names[n], b"v");
        }
    };
    let there = format!(":{}\r\n", KEYS / 16);
    let values =
        format!("*{KEYS}\r\n") + &("$1\r\nv\r\n".to_owned() + &"$-1\r\n".repeat(15)).repeat(KEYS / 16);
    fill(&mut bench);
    for (name, reply) in [
        ("EXISTS", &there),
        ("TOUCH", &there),
        ("MGET", &values),
        ("DEL", &there),
        ("DEL", &":0\r\n".to_owned()),
        ("UNLINK", &there),
    ] {
        if name == "UNLINK" {
            fill(&mut bench);
        }
        let mut session = Session::new();
        let (said, count) = turns(&mut bench, &mut session, &with(name));
        assert!(said == reply.as_bytes(), "{name}: {}", String::from_utf8_lossy(&said[..said.len().min(40)]));
        assert!(count >= 4, "{name}: {count} turns");
        fill(&mut bench);
        let (said, count) = received(&mut bench, &mut session, &with(name));
        let expected = if name == "DEL" { &there } else { reply };
        assert!(said == expected.as_bytes() && count >= 4, "{name}: {count} turns");
        if name == "DEL" || name == "UNLINK" {
            assert_eq!(bench.turns(&mut session, &command(&["DBSIZE"])).0, b":0\r\n");
        }
        if name == "TOUCH" || name == "MGET" {
            fill(&mut bench);
        }
    }
    // In EXEC all of it is one moment.
    fill(&mut bench);
    let input = [command(&["MULTI"]), with("DEL"), with("EXISTS"), command(&["EXEC"])].concat();
    let (said, _) = bench.turns(&mut Session::new(), &input);
    let expected = format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{there}:0\r\n");
    assert_eq!(String::from_utf8_lossy(&said), expected);
}

/// The words of such a request are handed over when it is whole.
#[test]
fn names_of_a_request_that_comes_in_parts_are_listened_to() {
    let mut bench = bench();
    let names: Vec<String> = (0..12_000).map(|n| format!("{n:x}")).collect();
    let mut session = Session::new();
    for (name, end) in [
        ("SUBSCRIBE", 12_000),
        ("UNSUBSCRIBE", 0),
        ("PSUBSCRIBE", 12_000),
        ("PUNSUBSCRIBE", 0),
        ("UNSUBSCRIBE", 0),
    ] {
        let words: Vec<&str> = std::iter::once(name).chain(names.iter().map(|name| &name[..])).collect();
        let (said, count) = received(&mut bench, &mut session, &command(&words));
        assert!(said.ends_with(format!(":{end}\r\n").as_bytes()) && count >= 4, "{name}: {count} turns");
        assert_eq!(said.iter().filter(|byte| **byte == b'*').count(), names.len(), "{name}");
    }
}

/// A client that a PUBLISH counts gets its message, also between two steps in which it leaves very many names.
#[test]
fn what_is_published_to_a_name_is_told_before_it_is_left() {
    for kind in ["", "P"] {
        let mut bench = bench();
        let names: Vec<String> = (0..12_000).map(|n| format!("{n:x}")).collect();
        let (mut listens, mut publishes) = (Session::new(), Session::new());
        let subscribe = format!("{kind}SUBSCRIBE");
        let words = std::iter::once(&subscribe[..]).chain(names.iter().map(|name| &name[..]));
        let words: Vec<&str> = words.collect();
        bench.turns(&mut listens, &command(&words));
        let (next, ..) = bench.call(&mut listens, &command(&[&format!("{kind}UNSUBSCRIBE")]));
        assert_eq!(next, Next::Yield);
        let mut said = bench.call(&mut listens, b"").1;
        // The last of them by name.
        assert_eq!(bench.turns(&mut publishes, &command(&["PUBLISH", "fff", "hi"])).0, b":1\r\n");
        said.extend(bench.turns(&mut listens, b"").0);
        let said = String::from_utf8(said).unwrap();
        let message = said.find("\r\n$3\r\nfff\r\n$2\r\nhi\r\n").expect("it was counted");
        let left = said.find("unsubscribe\r\n$3\r\nfff\r\n:0\r\n").expect("the last of them");
        assert!(message < left, "{kind}");
        assert_eq!(said.matches("unsubscribe").count(), names.len(), "{kind}");
    }
}

/// However many are asked for, no more are taken than there were.
#[test]
fn what_is_added_while_many_elements_are_taken_stays() {
    for (fill, take, add, count) in [
        ("RPUSH", ["LPOP", "many", "1000000"], ["RPUSH", "many", "late"].as_slice(), "LLEN"),
        ("ZADD", ["ZPOPMAX", "many", "1000000"], &["ZADD", "many", "-1", "late"], "ZCARD"),
    ] {
        let mut bench = bench();
        let (mut takes, mut adds) = (Session::new(), Session::new());
        let names: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
        for some in names.chunks(5_000) {
            let twice = if fill == "ZADD" { 2 } else { 1 };
            let words = some.iter().flat_map(|name| std::iter::repeat_n(name.as_str(), twice));
            bench.turns(&mut adds, &command(&[fill, "many"].into_iter().chain(words).collect::<Vec<_>>()));
        }
        let (next, ..) = bench.turn(&mut takes, &command(&take));
        assert_eq!(next, Next::Yield, "{}", take[0]);
        bench.turns(&mut adds, &command(add));
        let (reply, _) = bench.turns(&mut takes, b"");
        let words = if fill == "ZADD" { 40_000 } else { 20_000 };
        assert!(reply.starts_with(format!("*{words}\r\n").as_bytes()), "{}", take[0]);
        assert_eq!(bench.turns(&mut adds, &command(&[count, "many"])).0, b":1\r\n", "{}", take[0]);
    }
}

#[test]
fn keyspace_events_of_many_keys_are_told() {
    let mut bench = bench();
    let (mut listens, mut asks) = (Session::new(), Session::new());
    bench.turns(&mut asks, &command(&["CONFIG", "SET", "notify-keyspace-events", "Egm"]));
    bench.turns(&mut listens, &command(&["SUBSCRIBE", "__keyevent@0__:del", "__keyevent@0__:keymiss"]));
    let names: Vec<String> = (0..KEYS).map(|n| format!("k{n}")).collect();
    let of = |name: &'static str| {
        let words: Vec<&str> = std::iter::once(name).chain(names.iter().map(|name| &name[..])).collect();
        command(&words)
    };
    for n in [0, 5000, KEYS - 1] {
        set(&mut bench, &names[n], b"v");
    }
    assert_eq!(bench.turns(&mut asks, &of("DEL")).0, b":3\r\n");
    let told = |bench: &mut Bench, listens: &mut Session, event: &str| {
        let said = bench.turns(listens, &command(&["PING"])).0;
        String::from_utf8_lossy(&said).matches(event).count()
    };
    assert_eq!(told(&mut bench, &mut listens, "__keyevent@0__:del\r\n"), 3);
    for (name, misses) in [("MGET", KEYS), ("EXISTS", KEYS)] {
        bench.turns(&mut asks, &of(name));
        assert_eq!(told(&mut bench, &mut listens, "__keyevent@0__:keymiss\r\n"), misses, "{name}");
    }
}

/// A command of more keys than are looked at as one, for its events, is refused before any of them is looked at.
#[test]
fn of_more_keys_than_are_looked_at_as_one_nothing_is_told() {
    const MOST: usize = 16 << 10;
    let mut bench = bench();
    let (mut listens, mut asks) = (Session::new(), Session::new());
    bench.turns(&mut listens, &command(&["SUBSCRIBE", "__keyevent@0__:keymiss"]));
    let names: Vec<String> = (0..=MOST).map(|n| format!("k{n}")).collect();
    let number = names.len().to_string();
    // The words that it reads to be refused.
    let mut refused = |events: &str, words: &[&str]| {
        bench.turns(&mut asks, &command(&["CONFIG", "SET", "notify-keyspace-events", events]));
        let request = command(words);
        let before = words_read();
        let (reply, _) = bench.turns(&mut asks, &request);
        let read = words_read() - before;
        assert_eq!(reply, b"-ERR too many keys\r\n", "{}", words[0]);
        assert_eq!(bench.host.outbox.take().0.len(), 0, "{}", words[0]);
        read
    };
    // The words before the keys, whether their number is said, and the words behind them.
    for (head, counts, tail) in [
        ("SUNION", false, ""),
        ("PFCOUNT", false, ""),
        ("SINTERCARD", true, ""),
        ("ZDIFF", true, ""),
        ("SUNIONSTORE to", false, ""),
        ("ZUNIONSTORE to", true, ""),
        ("PFMERGE", false, ""),
        ("BITOP OR to", false, ""),
        ("LMPOP", true, "LEFT"),
        ("BLPOP", false, "0.001"),
        ("BZMPOP 0.001", true, "MIN"),
    ] {
        let mut words: Vec<&str> = head.split(' ').collect();
        words.extend(counts.then_some(number.as_str()));
        words.extend(names.iter().map(String::as_str));
        words.extend(tail.split_whitespace());
        let (silent, telling) = (refused("", &words), refused("AEm", &words));
        assert!(telling < silent + MOST as u64 / 2, "{head}: {telling} words are read, and {silent}");
    }
    let words: Vec<&str> = ["SUNION"].into_iter().chain(names[..MOST].iter().map(String::as_str)).collect();
    assert_eq!(bench.turns(&mut asks, &command(&words)).0, b"*0\r\n");
    let store = std::sync::Arc::clone(bench.worker.store());
    while bench.shared.go_on_telling(&bench.host, &store, 300_000) {}
    assert_eq!(bench.host.outbox.take().0.len(), MOST);
    // Which keys these are is said all the same.
    let words = ["COMMAND", "GETKEYS", "ZUNIONSTORE", "to", &number].into_iter();
    let words: Vec<&str> = words.chain(names.iter().map(String::as_str)).collect();
    let (reply, _) = bench.turns(&mut asks, &command(&words));
    assert!(reply.starts_with(format!("*{}\r\n$2\r\nto\r\n", MOST + 2).as_bytes()));
}

/// A command that looks at its keys as one publishes some of its misses at once, and leaves the others, which are published in
/// order.
#[test]
fn misses_of_a_command_of_very_many_keys_are_told_in_slices() {
    const MOST: usize = 16 << 10;
    let mut bench = bench();
    let (mut listens, mut asks) = (Session::new(), Session::new());
    bench.turns(&mut listens, &command(&["SUBSCRIBE", "__keyevent@0__:keymiss"]));
    let names: Vec<String> = (0..MOST).map(|n| format!("k{n}")).collect();
    let words: Vec<&str> = ["SUNION"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let request = command(&words);
    // What its dearest turn does.
    let mut most_ns = |bench: &mut Bench, events: &str| {
        bench.turns(&mut asks, &command(&["CONFIG", "SET", "notify-keyspace-events", events]));
        let (mut replies, mut at, mut most_ns) = (Vec::<u8>::new(), 0, 0_u64);
        loop {
            let (next, more, consumed) = bench.call(&mut asks, &request[at..]);
            most_ns = most_ns.max(bench.room.work().done_ns());
            replies.extend(more);
            at += consumed;
            match next {
                Next::Receive => break,
                Next::Yield | Next::Flush => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((&*replies, at), (&b"*0\r\n"[..], request.len()), "{events}");
        most_ns
    };
    let (silent_ns, telling_ns) = (most_ns(&mut bench, ""), most_ns(&mut bench, "KEm"));
    // To publish all of them is 16 ms.
    assert!(telling_ns < silent_ns + 2_000_000, "{telling_ns} ns in a turn, and {silent_ns} of silence");
    let mut told = bench.host.outbox.take().0;
    assert!((512..2_048).contains(&told.len()), "{} misses are told at once", told.len());
    let store = std::sync::Arc::clone(bench.worker.store());
    let mut steps = 0;
    while bench.shared.go_on_telling(&bench.host, &store, 300_000) {
        steps += 1;
    }
    assert!(steps >= 40, "{steps} steps");
    told.extend(bench.host.outbox.take().0);
    let told: Vec<&[u8]> = told.iter().map(|delivery| delivery.message.text()).collect();
    assert!(told.iter().copied().eq(names.iter().map(String::as_bytes)), "{} misses", told.len());
}

/// What text clients do in slots, with keys in base64, through uploads, by bytes that were gathered, and in steps.
#[test]
fn what_text_clients_do_is_told_and_counted_once_however_it_comes() {
    let mut bench = large_items();
    let mut listens = Session::new();
    bench.turns(&mut listens, &command(&["CONFIG", "SET", "notify-keyspace-events", "EAm"]));
    bench.turns(&mut listens, &command(&["PSUBSCRIBE", "__keyevent@0__:*"]));
    let mut asks = Session::new();
    let asked = |bench: &mut Bench, asks: &mut Session, request: &[u8]| {
        let (replies, closed) = bench.run(asks, request, 4096);
        assert!(!closed);
        String::from_utf8(replies).expect("text")
    };
    asked(&mut bench, &mut asks, b"stats detail on\r\n");
    let long = "v".repeat(100_000);
    let large = "v".repeat(LARGE);
    let mut sets = 0;
    // k:ey, twice: the second time in base64.
    for (request, reply, events) in [
        ("set k:ey 0 0 1\r\n1\r\n".to_owned(), "STORED", &["set"][..]),
        ("ms azpleQ== 1 b\r\n1\r\n".to_owned(), "HD", &["set"]),
        ("ma azpleQ== b\r\n".to_owned(), "HD", &["incrby"]),
        ("md azpleQ== b\r\n".to_owned(), "HD", &["del"]),
        ("mg azpleQ== b v\r\n".to_owned(), "EN", &["keymiss"]),
        (format!("set k:ey 0 0 100000\r\n{long}\r\n"), "STORED", &["set"]),
        (format!("append k:ey 0 0 100000\r\n{long}\r\n"), "STORED", &["append"]),
        (format!("ms azpleQ== 100000 b MP\r\n{long}\r\n"), "HD", &["set"]),
        (format!("set k:ey 0 0 {LARGE}\r\n{large}\r\n"), "STORED", &["set"]),
        (format!("append k:ey 0 0 100000\r\n{long}\r\n"), "STORED", &["append"]),
        (format!("append k:ou 0 0 100000\r\n{long}\r\n"), "NOT_STORED", &[]),
    ] {
        assert_eq!(asked(&mut bench, &mut asks, request.as_bytes()).trim_end(), reply);
        let heard = bench.turns(&mut listens, &command(&["PING"])).0;
        let heard = String::from_utf8(heard).expect("text");
        let line = &request[..request.len().min(30)];
        for event in events {
            assert!(heard.contains(&format!("__keyevent@0__:{event}\r\n")), "{line}: {heard}");
        }
        assert_eq!(heard.matches("pmessage").count(), events.len(), "{line}: {heard}");
        sets += u64::from(request.starts_with("set") || request.starts_with("append"));
    }
    let detail = asked(&mut bench, &mut asks, b"stats detail dump\r\n");
    assert!(detail.contains(&format!(" set {sets} del")), "{detail}");
}

#[test]
fn large_payloads_are_restored_in_steps() {
    let mut bench = large_items();
    let value = bytes(LARGE, 3);
    set(&mut bench, "large", &value);
    let mut session = Session::new();
    let (dumped, _) = turns(&mut bench, &mut session, &command(&["DUMP", "large"]));
    let start = dumped.iter().position(|&byte| byte == b'\n').expect("a head") + 1;
    let payload = &dumped[start..dumped.len() - 2];
    let (reply, count) = received(&mut bench, &mut session, &encode(&[b"RESTORE", b"new", b"0", payload]));
    assert_eq!(reply, b"+OK\r\n");
    assert!(count >= 10, "{count} turns");
    assert!(get(&mut bench, "new") == bulk(&value));
    // What is wrong with it is found, and nothing else changes.
    let mut broken = payload.to_vec();
    broken[LARGE / 2] ^= 1;
    for (words, error) in [
        (vec![&b"RESTORE"[..], b"new", b"0", payload], "-BUSYKEY"),
        (vec![b"RESTORE", b"other", b"0", &broken], "-ERR DUMP payload version or checksum are wrong"),
        (vec![b"RESTORE", b"new", b"0", &broken, b"REPLACE"], "-ERR DUMP payload version"),
        (vec![b"RESTORE", b"other", b"0", &payload[..payload.len() - 1]], "-ERR DUMP payload version"),
    ] {
        let (reply, _) = received(&mut bench, &mut session, &encode(&words));
        assert!(reply.starts_with(error.as_bytes()), "{}", String::from_utf8_lossy(&reply));
    }
    assert_eq!(get(&mut bench, "other"), b"$-1\r\n");
    let terms: [&[u8]; 3] = [b"REPLACE", b"IDLETIME", b"30"];
    let words = [&[&b"RESTORE"[..], b"new", b"100000", payload][..], &terms].concat();
    assert_eq!(received(&mut bench, &mut session, &encode(&words)).0, b"+OK\r\n");
    let left = bench.turns(&mut session, &command(&["PTTL", "new"])).0;
    assert_eq!(left, b":100000\r\n");
    assert_eq!(bench.turns(&mut session, &command(&["OBJECT", "IDLETIME", "new"])).0, b":30\r\n");
    // Another client stores it meanwhile; the database is swapped for another.
    let request = encode(&[b"RESTORE", b"late", b"0", payload]);
    let begin = |bench: &mut Bench, session: &mut Session| {
        let (next, _, consumed) = bench.call(session, &request);
        assert_eq!((next, consumed), (Next::Yield, request.len()));
        for _ in 0..9 {
            assert_eq!(bench.turn(session, b"").0, Next::Yield);
        }
    };
    begin(&mut bench, &mut session);
    set(&mut bench, "late", b"early");
    assert!(bench.turns(&mut session, b"").0.starts_with(b"-BUSYKEY"));
    bench.turns(&mut session, &command(&["FLUSHALL"]));
    begin(&mut bench, &mut session);
    bench.turns(&mut Session::new(), &command(&["SWAPDB", "0", "1"]));
    assert_eq!(bench.turns(&mut session, b"").0, b"+OK\r\n");
    assert!(get(&mut bench, "late") == bulk(&value));
    assert_eq!(bench.turns(&mut session, &command(&["DBSIZE"])).0, b":1\r\n");
}

#[test]
fn what_is_packed_is_unpacked_in_steps() {
    let mut bench = bench();
    let mut session = Session::new();
    // One byte, and repeats of it as long as may be.
    let repeats = 20_000;
    let unpacked = 1 + 264 * repeats;
    let payload = |claimed: usize, end: &[u8]| {
        let data = [&[0, b'a'][..], &[0xe0, 0xff, 0].repeat(repeats), end].concat();
        let mut payload = vec![0, 0xc3];
        for length in [data.len(), claimed] {
            payload.push(0x80);
            payload.extend((length as u32).to_be_bytes());
        }
        payload.extend(data);
        payload.extend([10, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        payload
    };
    let restore = |payload: &[u8]| encode(&[b"RESTORE", b"key", b"0", payload]);
    let (reply, count) = turns(&mut bench, &mut session, &restore(&payload(unpacked, b"")));
    assert_eq!(reply, b"+OK\r\n");
    assert!(count >= 20, "{count} turns");
    assert!(get(&mut bench, "key") == bulk(&vec![b'a'; unpacked]));
    bench.turns(&mut session, &command(&["DEL", "key"]));
    let wrong = [
        payload(unpacked - 1, b""),
        payload(unpacked + 1, b""),
        payload(unpacked, &[0, b'x']),
        payload(unpacked + 3, &[0x20]),
        payload(usize::MAX >> 33, b""),
    ];
    for payload in wrong {
        assert_eq!(bench.turns(&mut session, &restore(&payload)).0, b"-ERR Bad data format\r\n");
    }
    assert_eq!(get(&mut bench, "key"), b"$-1\r\n");
    // As far back as may be.
    let back = payload(unpacked + 3, &[0x3f, 0xff]);
    assert_eq!(bench.turns(&mut session, &restore(&back)).0, b"+OK\r\n");
    assert!(get(&mut bench, "key") == bulk(&vec![b'a'; unpacked + 3]));
    // In EXEC it is refused before it runs.
    let input = [command(&["MULTI"]), restore(&payload(unpacked, b"")), command(&["EXEC"])].concat();
    let (reply, _) = bench.turns(&mut session, &input);
    assert!(String::from_utf8_lossy(&reply).contains("-EXECABORT Transaction discarded: "));
}

#[test]
fn thousands_of_clients_are_closed_in_steps() {
    let mut bench = bench();
    let mut others: Vec<Session> = (0..4000).map(|_| Session::new()).collect();
    others.iter_mut().for_each(|other| drop(bench.turn(other, &command(&["PING"]))));
    let mut session = Session::new();
    bench.turn(&mut session, &command(&["PING"]));
    let many = [&["CLIENT", "KILL"][..], &["NOT-NAME", "x"].repeat(63), &["USER", "default"]].concat();
    let (reply, count) = turns(&mut bench, &mut session, &command(&many));
    assert_eq!(reply, b":4000\r\n");
    assert!(count >= 10, "{count} turns");
    assert_eq!(bench.turns(&mut session, &command(&many)).0, b":0\r\n", "they are gone for all others");
    assert_eq!(bench.call(&mut others[0], &command(&["PING"])).0, Next::Close);
    // A client that closes itself has its reply, and no more: at once, and in a later turn.
    let also = [&many[..], &["SKIPME", "no"]].concat();
    for times in [1, 4000] {
        let mut all: Vec<Session> = (0..times).map(|_| Session::new()).collect();
        all.iter_mut().for_each(|other| drop(bench.turn(other, &command(&["PING"]))));
        let mut session = Session::new();
        bench.turn(&mut session, &command(&["PING"]));
        let input = [command(&also), command(&["PING"])].concat();
        let (replies, closed) = bench.run(&mut session, &input, usize::MAX);
        assert!(closed && replies.starts_with(b":") && replies.iter().filter(|&&b| b == b'\n').count() == 1);
    }
}

#[test]
fn who_holds_the_memory_can_be_found_and_closed() {
    let mut bench = bench();
    let mut session = Session::new();
    bench.turn(&mut session, &command(&["PING"]));
    let max = bench.worker.store().held_bytes_max();
    bench.worker.store().hold(max as i64);
    let (list, _) = bench.turns(&mut session, &command(&["CLIENT", "LIST"]));
    assert!(
        String::from_utf8_lossy(&list).contains(" cmd=client|list "),
        "{}",
        String::from_utf8_lossy(&list)
    );
    let kill = |bench: &mut Bench, session: &mut Session, words: &[&str]| {
        bench.turns(session, &command(&[&["CLIENT", "KILL"], words].concat())).0
    };
    assert_eq!(kill(&mut bench, &mut session, &["127.0.0.1:1"]), b"-ERR No such client\r\n");
    assert_eq!(kill(&mut bench, &mut session, &["TYPE", "normal"]), b":0\r\n");
    bench.worker.store().hold(-(max as i64));
}

/// A bench whose items may be large.
pub fn large_items() -> Bench {
    let mut bench = Bench::with_debug(Settings {
        item_bytes_max: 24 << 20,
        append_bytes_max: 24 << 20,
        ..Settings::default()
    });
    set(&mut bench, "large", &bytes(LARGE, 0));
    set(&mut bench, "small", b"small");
    bench
}

#[test]
fn appends_to_large_values_have_no_turn_longer_than_a_slice() {
    let cases = [
        "append large 0 0 4\r\ntail\r\n",
        "prepend large 0 0 4\r\nhead\r\n",
        "append large 0 0 4 noreply\r\ntail\r\nmn\r\n",
        "ms large 4 MA c s\r\ntail\r\n",
        "ms bGFyZ2U= 4 MP b k\r\nhead\r\n",
    ];
    for case in cases {
        let mut bench = large_items();
        let input = case.repeat(5);
        let (replies, count) = turns(&mut bench, &mut Session::new(), input.as_bytes());
        let replies = String::from_utf8_lossy(&replies).into_owned();
        let said = ["STORED", "MN", "HD"].map(|word| replies.matches(word).count());
        assert_eq!(said.iter().sum::<usize>(), 5, "{case}: {replies}");
        assert!(count >= 25, "{case}: {count} turns");
    }
}

#[test]
fn appends_in_steps_are_answered_in_order_with_what_is_around_them() {
    let mut bench = large_items();
    let gathered = "g".repeat(200_000);
    let input = format!(
        "set a 0 0 1\r\n1\r\nappend large 0 0 1\r\nx\r\nget a small\r\nprepend large 0 0 1\r\ny\r\nincr a 1\r\n\
         append small 0 0 {0}\r\n{gathered}\r\nappend large 0 0 {0}\r\n{gathered}\r\nincr a 1\r\n\
         append none 0 0 1\r\nx\r\nms large 1 MA\r\nz\r\nverbosity 1\r\nms none 1 MA N0 c\r\nx\r\nmn\r\n",
        gathered.len()
    );
    let expected = "STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nVALUE small 0 5\r\nsmall\r\nEND\r\nSTORED\r\n2\r\n\
                    STORED\r\nSTORED\r\n3\r\nNOT_STORED\r\nHD\r\nOK\r\nHD";
    let mut value = [b"y", &bytes(LARGE, 0)[..], b"x", gathered.as_bytes(), b"z"].concat();
    for step in [usize::MAX, 1000, 60_000] {
        let mut bench = large_items();
        let (replies, _) = bench.run(&mut Session::new(), input.as_bytes(), step);
        let replies = String::from_utf8_lossy(&replies).into_owned();
        assert!(replies.starts_with(expected) && replies.ends_with("MN\r\n"), "{step}: {replies}");
        assert!(get(&mut bench, "large") == bulk(&value), "{step}");
        assert!(get(&mut bench, "small") == bulk(&[b"small", gathered.as_bytes()].concat()), "{step}");
    }
    // What is there is another by the end, once, often, or gone.
    let mut session = Session::new();
    for (times, most) in [(1, 1), (1000, 100)] {
        set(&mut bench, "large", &bytes(LARGE, 0));
        let (mut next, mut replies) = bench.turn(&mut session, b"append large 0 0 3\r\nend\r\n");
        let mut sets = 0;
        while next == Next::Yield {
            if sets < times {
                sets += 1;
                set(&mut bench, "large", &bytes(LARGE, sets as u8));
            }
            let more;
            (next, more) = bench.turn(&mut session, b"");
            replies.extend(more);
        }
        assert_eq!(replies, b"STORED\r\n");
        assert!(sets <= most, "{times}: {sets}");
        value = [&bytes(LARGE, sets as u8)[..], b"end"].concat();
        assert!(get(&mut bench, "large") == bulk(&value));
    }
    assert_eq!(bench.turn(&mut session, b"append large 0 0 1\r\nx\r\n").0, Next::Yield);
    bench.turn(&mut Session::new(), b"delete large\r\n");
    assert_eq!(bench.turns(&mut session, b"").0, b"NOT_STORED\r\n");
    // A token that is not the item's.
    set(&mut bench, "large", &value);
    assert_eq!(bench.turns(&mut session, b"ms large 1 MA C1\r\nx\r\n").0, b"EX\r\n");
    let token = String::from_utf8(bench.turns(&mut session, b"mg large c\r\n").0).expect("a token");
    let token = token.trim().trim_start_matches("HD c").to_owned();
    let input = format!("ms large 1 MA C{token} E77 c s\r\nx\r\n");
    let said = String::from_utf8(bench.turns(&mut session, input.as_bytes()).0).expect("text");
    assert_eq!(said, format!("HD c77 s{}\r\n", value.len() + 1));
    // A client that goes in the middle of it leaves nothing behind.
    assert_eq!(bench.turn(&mut session, b"append large 0 0 1\r\nx\r\n").0, Next::Yield);
    drop(session);
    assert_eq!(bench.turns(&mut Session::new(), b"append large 0 0 1\r\nx\r\n").0, b"STORED\r\n");
    bench.check();
}
