//! Long elements of collections that are sent from where they lie, as large strings are: what they hold while they wait, and
//! what is copied all the same.

use crate::apart::{array, bulk, job};
use crate::values::large_bench;
use crate::{Bench, bench};
use larder_commands::{Context, Next, Output, Session};
use larder_testkit::redis::frame::Frame;
use std::sync::Arc;

/// Bytes of a part of an element, but for its last one.
const PART_BYTES: usize = 16_352;
/// A reply that has no more of its own has nothing of an element.
const OWN_BYTES_MAX: u64 = 1_000;
const HELD: &str = "-OOM connections hold as much memory as they may\r\n";

/// Has a session answer a request. The reply waits in `out`.
pub(crate) fn answer(bench: &mut Bench, session: &mut Session, words: &str, out: &mut Output) {
    let sent = bench.asked(words);
    go_on(bench, session, &sent, out);
}

/// The same of what was sent, or of nothing, if the session goes on with what it has.
fn go_on(bench: &mut Bench, session: &mut Session, sent: &[u8], out: &mut Output) {
    let mut at = 0;
    loop {
        bench.room.work().begin_slice();
        let guard = bench.worker.enter(bench.shared.now(bench.system));
        let counters = &bench.host.counters;
        let mut cx = Context::new(guard, counters, &bench.shared, &bench.host, &bench.host, &bench.room);
        let progress = session.receive(&mut cx, &sent[at..], out);
        at += progress.consumed;
        match progress.next {
            Next::Yield | Next::Flush => {}
            // It waits for its keys.
            Next::Sleep(ms @ 2) | Next::Await(Some(ms @ 2)) => bench.system += ms,
            Next::Receive => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(at, sent.len());
}

pub(crate) fn output() -> Output {
    Output::new(64 << 20)
}

/// Runs a command a line, none of which is refused.
fn put(bench: &mut Bench, lines: &str) {
    for line in lines.lines() {
        assert!(bench.reply(line).starts_with(b":"), "{}", &line[..line.len().min(40)]);
    }
}

/// What the list of parts of an element takes.
fn list_bytes(bytes: usize) -> u64 {
    8 * bytes.div_ceil(PART_BYTES) as u64
}

/// A reply to `words` waits while its key is deleted and what was freed is written over. Meanwhile `held_bytes` are held, or it
/// is copied if these are none. Each line of `puts` is a command.
fn waits(puts: &str, words: &str, resp3: bool, reply: &str, held_bytes: u64) {
    let start = &words[..words.len().min(40)];
    let mut bench = bench();
    put(&mut bench, puts);
    let store = Arc::clone(bench.worker.store());
    let mut session = Session::new();
    if resp3 {
        answer(&mut bench, &mut session, "HELLO 3", &mut output());
    }
    let before = store.held_bytes();
    let mut out = output();
    answer(&mut bench, &mut session, words, &mut out);
    assert_eq!(out.len(), reply.len() as u64, "{start}");
    assert_eq!(store.held_bytes() - before, held_bytes, "{start}");
    assert_eq!(out.is_plain(), held_bytes == 0, "{start}");
    assert_eq!(out.own_bytes() <= OWN_BYTES_MAX, held_bytes > 0, "{start}");
    assert_eq!(bench.reply("DEL k"), b":1\r\n");
    let other = "x".repeat(100_000);
    for n in 0..20 {
        assert_eq!(bench.reply(&format!("RPUSH other{n} {other}")), b":1\r\n");
    }
    assert!(out.to_vec() == reply.as_bytes(), "{start}");
    // As when the client goes.
    drop(out);
    assert_eq!(store.held_bytes(), before, "{start}");
    drop((bench, session));
    store.check();
}

#[test]
fn an_element_of_more_than_16_kib_is_sent_from_where_it_lies() {
    for bytes in [16_383, 16_384, 16_385, 2 * PART_BYTES, 2 * PART_BYTES + 1, 300_000, 1 << 20] {
        let text = job(bytes);
        let held = if bytes > 16 << 10 { bytes as u64 + list_bytes(bytes) } else { 0 };
        let (list, hash) = (format!("RPUSH k a {text}"), format!("HSET k f {text} g b"));
        waits(&list, "LINDEX k 1", false, &bulk(&text), held);
        waits(&list, "LINDEX k -1", true, &bulk(&text), held);
        waits(&hash, "HGET k f", false, &bulk(&text), held);
        waits(&list, "RPOP k", false, &bulk(&text), held);
        let front = format!("RPUSH k {text} a");
        waits(&front, "LPOP k", true, &bulk(&text), held);
        let named = array(&["k", &text]);
        waits(&front, "BLPOP none k 0", false, &named, held);
        waits(&list, "BRPOP k none 0", true, &named, held);
        waits(&front, "LMOVE k other LEFT RIGHT", false, &bulk(&text), held);
        waits(&front, "BLMOVE k k LEFT RIGHT 0", true, &bulk(&text), held);
        waits(&list, "RPOPLPUSH k k", false, &bulk(&text), held);
        waits(&hash, "HGETDEL k FIELDS 1 f", false, &array(&[&text]), held);
        waits(&hash, "HGETEX k EX 100 FIELDS 1 f", true, &array(&[&text]), held);
        // Its parts count once, and its list each time.
        let twice = if held > 0 { held + list_bytes(bytes) } else { 0 };
        let values = format!("*4\r\n{}$-1\r\n{}{}", bulk(&text), bulk("b"), bulk(&text));
        waits(&hash, "HMGET k f none g f", false, &values, twice);
    }
}

#[test]
fn long_elements_of_lists_are_sent_from_where_they_lie() {
    let (one, other) = (job(200_000), job(70_000));
    let alone = 200_000 + list_bytes(200_000);
    let both = alone + 70_000 + list_bytes(70_000);
    let list = format!("RPUSH k a {one} b {other}");
    waits(&list, "LRANGE k 0 -1", false, &array(&["a", &one, "b", &other]), both);
    waits(&list, "LRANGE k 1 2", true, &array(&[&one, "b"]), alone);
    let hash = format!("HSET k f {one}");
    waits(&hash, "HGETALL k", false, &array(&["f", &one]), alone);
    waits(&hash, "HGETALL k", true, &format!("%1\r\n{}{}", bulk("f"), bulk(&one)), alone);
    waits(&hash, "HVALS k", false, &array(&[&one]), alone);
    waits(&format!("SADD k {one}"), "SMEMBERS k", true, &format!("~1\r\n{}", bulk(&one)), alone);
    let scored = format!("ZADD k 7 {one}");
    waits(&scored, "ZRANGE k 0 -1", false, &array(&[&one]), alone);
    waits(&scored, "ZRANGE k 0 -1 WITHSCORES", false, &array(&[&one, "7"]), alone);
    waits(&scored, "ZRANGE k 0 -1 WITHSCORES", true, &format!("*1\r\n*2\r\n{},7\r\n", bulk(&one)), alone);
}

/// By what picks at random, as often as each comes.
#[test]
fn long_elements_that_are_picked_are_sent_from_where_they_lie() {
    for bytes in [16_384, 16_385, 300_000] {
        let text = job(bytes);
        let held = if bytes > 16 << 10 { bytes as u64 + list_bytes(bytes) } else { 0 };
        let twice = if held > 0 { held + list_bytes(bytes) } else { 0 };
        let (set, scored) = (format!("SADD k {text}"), format!("ZADD k 7 {text}"));
        for (put, words) in [(&set, "SRANDMEMBER k"), (&scored, "ZRANDMEMBER k")] {
            waits(put, words, false, &bulk(&text), held);
            waits(put, &format!("{words} 5"), true, &array(&[&text]), held);
            waits(put, &format!("{words} -2"), false, &array(&[&text, &text]), twice);
        }
        waits(&scored, "ZRANDMEMBER k 1 WITHSCORES", false, &array(&[&text, "7"]), held);
        let pair = format!("*1\r\n*2\r\n{},7\r\n", bulk(&text));
        waits(&scored, "ZRANDMEMBER k 1 WITHSCORES", true, &pair, held);
        let hash = format!("HSET k f {text}");
        waits(&hash, "HRANDFIELD k 1 WITHVALUES", false, &array(&["f", &text]), held);
        let pairs = format!("*2\r\n{0}{0}", array(&["f", &text]));
        waits(&hash, "HRANDFIELD k -2 WITHVALUES", true, &pairs, twice);
    }
}

/// The strings of a reply.
fn strings(reply: &[u8]) -> Vec<String> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    let frames = if frame.inside.is_empty() { vec![frame] } else { frame.inside };
    frames.into_iter().map(|one| String::from_utf8(one.body.expect("a string")).expect("text")).collect()
}

/// What a reply of some strings holds that are sent from where they lie, and what those have that are copied.
fn held_and_copied(strings: &[String]) -> (u64, u64) {
    let (sent, copied): (Vec<usize>, Vec<usize>) =
        strings.iter().map(String::len).partition(|bytes| *bytes > 16 << 10);
    let held = sent.into_iter().map(|bytes| bytes as u64 + list_bytes(bytes)).sum();
    (held, copied.into_iter().sum::<usize>() as u64)
}

/// Whichever of a set's members it is: it is there no more, and what stays is not pinned.
#[test]
fn members_that_are_popped_are_sent_from_where_they_lie() {
    let members = [job(200_000), job(70_000), job(16_300), "short".to_owned()];
    for (words, times) in [("SPOP k", 4), ("SPOP k 1", 4), ("SPOP k 3", 2), ("SPOP k 4", 1)] {
        let mut bench = bench();
        assert_eq!(bench.reply(&format!("SADD k {}", members.join(" "))), b":4\r\n");
        let store = Arc::clone(bench.worker.store());
        let mut popped = Vec::new();
        for _ in 0..times {
            let (mut session, mut out) = (Session::new(), output());
            let before = store.held_bytes();
            answer(&mut bench, &mut session, words, &mut out);
            let held = store.held_bytes() - before;
            // What was freed is written over.
            for n in 0..20 {
                let other = "x".repeat(100_000);
                assert_eq!(bench.reply(&format!("SET other{n} {other}")), b"+OK\r\n");
            }
            let some = strings(&out.to_vec());
            let (sent, copied) = held_and_copied(&some);
            assert_eq!(held, sent, "{words}");
            assert!(out.own_bytes() <= copied + OWN_BYTES_MAX, "{words}");
            // As when the client goes.
            drop(out);
            assert_eq!(store.held_bytes(), before, "{words}");
            popped.extend(some);
            let left = format!(":{}\r\n", members.len() - popped.len());
            assert_eq!(bench.reply("SCARD k"), left.as_bytes(), "{words}");
        }
        popped.sort_unstable();
        let mut all = members.to_vec();
        all.sort_unstable();
        assert!(popped == all, "{words}");
        assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
        drop(bench);
        store.check();
    }
}

/// Where those that are popped have more than is taken in one step.
#[test]
fn members_that_are_popped_in_steps_are_not_copied() {
    const BYTES: usize = 1_500_000;
    let mut bench = large_bench();
    let mut members: Vec<String> = (10..20).map(|n| format!("{n}{}", job(BYTES - 2))).collect();
    members.push("short".to_owned());
    for member in &members {
        assert_eq!(bench.reply(&format!("SADD k {member}")), b":1\r\n");
    }
    let store = Arc::clone(bench.worker.store());
    let (mut session, mut out) = (Session::new(), output());
    let before = store.held_bytes();
    answer(&mut bench, &mut session, "SPOP k 10", &mut out);
    let held = store.held_bytes() - before;
    let mut popped = strings(&out.to_vec());
    let (sent, _) = held_and_copied(&popped);
    assert!((sent..sent + 1_000).contains(&held), "{held} for {sent}");
    assert!(out.own_bytes() <= 2 * OWN_BYTES_MAX, "{}", out.own_bytes());
    assert_eq!(popped.len(), 10);
    popped.push(strings(&bench.reply("SMEMBERS k")).remove(0));
    popped.sort_unstable();
    members.sort_unstable();
    assert!(popped == members);
    drop(out);
    assert!(store.held_bytes() < before + 1_000);
    drop((bench, session));
    store.check();
}

/// In the order in which they are replied, among short ones; what stays in the key is not pinned.
#[test]
fn long_elements_that_are_popped_together_are_sent_from_where_they_lie() {
    let (one, other) = (job(200_000), job(70_000));
    let alone = 200_000 + list_bytes(200_000);
    let both = alone + 70_000 + list_bytes(70_000);
    let list = format!("RPUSH k a {one} b {other} c");
    let named = |elements: &[&str]| format!("*2\r\n{}{}", bulk("k"), array(elements));
    for (words, reply, held) in [
        ("LMPOP 1 k LEFT COUNT 4", named(&["a", &one, "b", &other]), both),
        ("LMPOP 1 k RIGHT COUNT 4", named(&["c", &other, "b", &one]), both),
        ("LMPOP 2 none k LEFT COUNT 3", named(&["a", &one, "b"]), alone),
        ("BLMPOP 0 1 k LEFT COUNT 4", named(&["a", &one, "b", &other]), both),
        ("BLMPOP 0 1 k RIGHT COUNT 4", named(&["c", &other, "b", &one]), both),
    ] {
        waits(&list, words, false, &reply, held);
        waits(&list, words, true, &reply, held);
    }
    let scored = format!("ZADD k 7 {one} 8 a 9 {other} 10 b");
    let pair = |member: &str, score: &str| array(&[member, score]);
    let (first, last) = (pair(&one, "7") + &pair("a", "8"), pair("b", "10") + &pair(&other, "9"));
    for (words, pairs, held) in [
        ("ZMPOP 1 k MIN COUNT 2", &first, alone),
        ("BZMPOP 0 1 k MIN COUNT 2", &first, alone),
        ("ZMPOP 1 k MAX COUNT 2", &last, 70_000 + list_bytes(70_000)),
        ("BZMPOP 0 1 k MAX COUNT 2", &last, 70_000 + list_bytes(70_000)),
    ] {
        waits(&scored, words, false, &format!("*2\r\n{}*2\r\n{pairs}", bulk("k")), held);
    }
    waits(&scored, "BZPOPMIN k 0", false, &array(&["k", &one, "7"]), alone);
    let reply = format!("*3\r\n{}{},7\r\n", bulk("k"), bulk(&one));
    waits(&scored, "BZPOPMIN k 0", true, &reply, alone);
}

/// What a client was given that waited: it is pinned until the client has it, and nothing is copied.
#[test]
fn a_client_that_waited_is_sent_a_long_element_from_where_it_lies() {
    let bytes = 300_000;
    let text = job(bytes);
    let held = bytes as u64 + list_bytes(bytes);
    let (push, add) = (format!("RPUSH k {text}"), format!("ZADD k 7 {text}"));
    let named = format!("*2\r\n{}{}", bulk("k"), array(&[&text]));
    let scored = format!("*2\r\n{}*1\r\n{}", bulk("k"), array(&[&text, "7"]));
    for (words, put, reply) in [
        ("BLPOP k 0", &push, array(&["k", &text])),
        ("BRPOP k 0", &push, array(&["k", &text])),
        ("BLMPOP 0 1 k LEFT COUNT 3", &push, named),
        ("BLMOVE k moved LEFT RIGHT 0", &push, bulk(&text)),
        ("BRPOPLPUSH k moved 0", &push, bulk(&text)),
        ("BZPOPMIN k 0", &add, array(&["k", &text, "7"])),
        ("BZMPOP 0 1 k MAX", &add, scored),
    ] {
        let mut bench = bench();
        let store = Arc::clone(bench.worker.store());
        let mut waiter = Session::new();
        let sent = bench.asked(words);
        assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
        let before = store.held_bytes();
        assert_eq!(bench.reply(put), b":1\r\n");
        assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
        // Its parts once, and two lists of them: of what is to be sent, and of what is put back if the client goes, unless it was
        // moved.
        let given = store.held_bytes() - before;
        assert!((held..held + 10_000).contains(&given), "{words}: {given}");
        let mut out = output();
        go_on(&mut bench, &mut waiter, b"", &mut out);
        assert_eq!(out.len(), reply.len() as u64, "{words}");
        assert!(!out.is_plain() && out.own_bytes() <= OWN_BYTES_MAX, "{words}");
        let sent = store.held_bytes() - before;
        assert!((held..held + 1_000).contains(&sent), "{words}: {sent}");
        let other = "x".repeat(100_000);
        for n in 0..20 {
            assert_eq!(bench.reply(&format!("RPUSH other{n} {other}")), b":1\r\n");
        }
        assert!(out.to_vec() == reply.as_bytes(), "{words}");
        drop(out);
        assert!(store.held_bytes() < before + 1_000, "{words}");
        drop((bench, waiter));
        store.check();
    }
}

/// Where the elements of a reply have more than is pinned in one step.
#[test]
fn long_elements_of_replies_that_are_made_in_steps_are_not_copied() {
    let (bytes, count) = (1_500_000, 3);
    let text = job(bytes);
    let held = count as u64 * (bytes as u64 + list_bytes(bytes));
    // One at a time: a request of all of them would be longer than one may be that is kept.
    let list = format!("RPUSH k {text}\n").repeat(count) + "RPUSH k a";
    let mut elements = vec![&text[..]; count];
    elements.push("a");
    waits(&list, "LRANGE k 0 -1", false, &array(&elements), held);
    let (mut sets, mut all) = (String::new(), String::new());
    for n in 0..count {
        sets += &format!("HSET k f{n} {text}\n");
        all += &bulk(&text);
    }
    waits(&sets, "HVALS k", true, &format!("*{count}\r\n{all}"), held);
}

/// A client that takes nothing amid such a reply holds what is pinned for it, by which it is found where others need the memory; and
/// all is given back with its session.
#[test]
fn a_client_that_stands_amid_such_a_reply_holds_what_is_pinned() {
    let (bytes, count) = (1_500_000, 3);
    let mut bench = bench();
    let text = job(bytes);
    put(&mut bench, &format!("RPUSH k {text}\n").repeat(count));
    let store = Arc::clone(bench.worker.store());
    let before = store.held_bytes();
    let (sent, mut session, mut at) = (bench.asked("LRANGE k 0 -1"), Session::new(), 0);
    // It is full behind the first of them.
    let (mut out, mut turns) = (Output::new(1), 0);
    while out.len() < bytes as u64 {
        turns += 1;
        assert!(turns <= 100, "nothing more comes");
        bench.room.work().begin_slice();
        let guard = bench.worker.enter(bench.shared.now(bench.system));
        let counters = &bench.host.counters;
        let mut cx = Context::new(guard, counters, &bench.shared, &bench.host, &bench.host, &bench.room);
        at += session.receive(&mut cx, &sent[at..], &mut out).consumed;
        // The head is not taken, and there is room for what comes behind it.
        let written = out.len();
        out.set_limit(written + 1);
    }
    assert!(out.pinned_bytes() == bytes as u64 && session.held_bytes() >= 2 * bytes as u64);
    assert!(store.held_bytes() - before >= 3 * bytes as u64);
    drop((session, out));
    assert_eq!(store.held_bytes(), before);
}

/// All replies of EXEC are made before the first is sent.
#[test]
fn in_a_transaction_long_elements_are_copied() {
    let text = job(100_000);
    let mut bench = bench();
    for key in ["l", "m", "n", "o"] {
        bench.reply(&format!("RPUSH {key} {text}"));
    }
    bench.reply(&format!("HSET h f {text}"));
    bench.reply(&format!("SADD s {text}"));
    let store = Arc::clone(bench.worker.store());
    let held = store.held_bytes();
    let (mut session, mut out) = (Session::new(), output());
    let reads = ["LINDEX l 0", "HGET h f", "HMGET h f", "LRANGE l 0 -1"];
    let picks = ["SRANDMEMBER s", "SRANDMEMBER s 2", "HRANDFIELD h 1 WITHVALUES", "SPOP s"];
    let pops = ["LPOP l", "BLPOP m 0", "LMPOP 1 n LEFT", "LMOVE o p LEFT LEFT", "HGETDEL h FIELDS 1 f"];
    for words in ["MULTI"].iter().chain(&reads).chain(&picks).chain(&pops).chain(&["EXEC"]) {
        out.clear();
        answer(&mut bench, &mut session, words, &mut out);
    }
    let pair = array(&["f", &text]);
    let (one, text) = (array(&[&text]), bulk(&text));
    let read = format!("{text}{text}{one}{one}{text}{one}{pair}{text}");
    let named = format!("*2\r\n$1\r\nm\r\n{text}*2\r\n$1\r\nn\r\n{one}");
    let expected = format!("*13\r\n{read}{text}{named}{text}{one}");
    assert!(out.to_vec() == expected.as_bytes());
    assert!(out.is_plain());
    drop(session);
    assert_eq!(store.held_bytes(), held);
}

/// Nothing is moved nor pinned, and the reply is the error alone.
#[test]
fn a_long_element_is_not_moved_to_a_key_of_another_type() {
    let text = job(100_000);
    let mut bench = bench();
    assert_eq!(bench.reply("SET s x"), b"+OK\r\n");
    put(&mut bench, &format!("RPUSH l {text}\nRPUSH m a {text}"));
    let store = Arc::clone(bench.worker.store());
    let held = store.held_bytes();
    let wrong = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    for words in ["LMOVE l s LEFT RIGHT", "RPOPLPUSH m s", "BLMOVE l s LEFT RIGHT 0"] {
        assert_eq!(bench.reply(words), wrong, "{words}");
        assert_eq!(store.held_bytes(), held, "{words}");
    }
    assert!(bench.reply("LRANGE l 0 -1") == array(&[&text]).as_bytes());
    assert!(bench.reply("LRANGE m 0 -1") == array(&["a", &text]).as_bytes());
    drop(bench);
    store.check();
}

/// At the share of the memory that connections may hold, and one byte beyond it: of an element for which a reply has no room then.
#[test]
fn a_long_element_is_refused_where_connections_hold_their_share() {
    let bytes = 300_000;
    let text = job(bytes);
    let mut bench = bench();
    bench.reply(&format!("RPUSH l {text}"));
    bench.reply(&format!("HSET h f {text}"));
    let store = Arc::clone(bench.worker.store());
    let free = store.held_bytes_max() - store.held_bytes();
    for (left, may) in [(bytes as u64, true), (bytes as u64 - 1, false)] {
        let taken = (free - left) as i64;
        store.hold(taken);
        let before = store.held_bytes();
        let reply = if may { bulk(&text) } else { HELD.to_owned() };
        assert!(bench.reply("LINDEX l 0") == reply.as_bytes(), "{left}");
        assert!(bench.reply("HGET h f") == reply.as_bytes(), "{left}");
        // Among others an error stands in its place.
        let values = format!("*2\r\n$-1\r\n{reply}");
        assert!(bench.reply("HMGET h none f") == values.as_bytes(), "{left}");
        assert_eq!(store.held_bytes(), before);
        store.hold(-taken);
    }
    for (left, may) in [(bytes as u64 - 1, false), (bytes as u64, true)] {
        let taken = (free - left) as i64;
        store.hold(taken);
        let reply = if may { bulk(&text) } else { HELD.to_owned() };
        assert!(bench.reply("LPOP l") == reply.as_bytes(), "{left}");
        assert_eq!(bench.reply("EXISTS l"), if may { b":0\r\n" } else { b":1\r\n" });
        store.hold(-taken);
    }
    for (left, may) in [(bytes as u64 - 1, false), (bytes as u64, true)] {
        let taken = (free - left) as i64;
        store.hold(taken);
        let reply = if may { array(&[&text]) } else { HELD.to_owned() };
        assert!(bench.reply("HGETDEL h FIELDS 1 f") == reply.as_bytes(), "{left}");
        assert_eq!(bench.reply("EXISTS h"), if may { b":0\r\n" } else { b":1\r\n" });
        store.hold(-taken);
    }
    bench.reply(&format!("SADD s {text}"));
    for (left, may) in [(bytes as u64 - 1, false), (bytes as u64, true)] {
        let taken = (free - left) as i64;
        store.hold(taken);
        let before = store.held_bytes();
        let (one, some) = if may { (bulk(&text), array(&[&text])) } else { (HELD.into(), HELD.into()) };
        assert!(bench.reply("SRANDMEMBER s") == one.as_bytes(), "{left}");
        assert!(bench.reply("SRANDMEMBER s 2") == some.as_bytes(), "{left}");
        assert_eq!(store.held_bytes(), before);
        assert!(bench.reply("SPOP s") == one.as_bytes(), "{left}");
        assert_eq!(bench.reply("EXISTS s"), if may { b":0\r\n" } else { b":1\r\n" });
        store.hold(-taken);
    }
    // Of what is named the reply has the name, too.
    let all = format!("*2\r\n{}{}", bulk("l"), array(&[&text]));
    for (words, named) in [
        ("BLPOP l 0", array(&["l", &text])),
        ("LMPOP 1 l LEFT", all),
        ("LMOVE l m LEFT LEFT", bulk(&text)),
        ("BRPOPLPUSH l m 0", bulk(&text)),
    ] {
        bench.reply(&format!("RPUSH l {text}"));
        for (left, may) in [(bytes as u64 - 1, false), (bytes as u64, true)] {
            let taken = (free - left) as i64;
            store.hold(taken);
            let reply = if may { &named[..] } else { HELD };
            assert!(bench.reply(words) == reply.as_bytes(), "{words} {left}");
            assert_eq!(bench.reply("EXISTS l"), if may { b":0\r\n" } else { b":1\r\n" });
            store.hold(-taken);
        }
    }
    let held = store.held_bytes();
    assert_eq!(store.held_bytes_max() - held, free);
    drop(bench);
    store.check();
}
