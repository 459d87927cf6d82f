//! Streams that are large, waited for, or restored from payloads: commands work in steps, read one version of
//! a stream, and leave nothing of what they refuse.

use crate::survey::command;
use crate::{Bench, START, bench};
use larder_commands::{Next, Session};
use larder_store::{Adding, NewFields, NewId, StreamId, Type};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

impl Bench {
    /// Adds entries of two fields, one for each millisecond from 1 on. The first field's value has `bytes`
    /// bytes.
    pub fn stream(&mut self, name: &str, entries: u64, bytes: usize) {
        let value = vec![b'v'; bytes];
        for n in 1..=entries {
            let mut guard = self.worker.enter(START);
            let key = guard.key(name.as_bytes());
            let number = n.to_string();
            let pairs = [(&b"field"[..], &value[..]), (b"number", number.as_bytes())];
            let fields = NewFields::of(pairs.into_iter()).unwrap();
            let id = NewId::Is(StreamId { ms: n, seq: 0 });
            let adding = Adding {
                id,
                now: START,
                fields: &fields,
                apart: &[],
                present: false,
                trim: None,
                at_once: true,
            };
            guard.stream_add(&key, &adding).unwrap();
        }
    }

    pub fn text_of(&mut self, words: &str) -> String {
        String::from_utf8(self.reply(words)).expect("text")
    }

    /// A session whose command waits for ever.
    pub fn waiter_of(&mut self, words: &str) -> Session {
        let mut session = Session::new();
        let words: Vec<&str> = words.split(' ').collect();
        let (next, reply) = self.turn(&mut session, &command(&words));
        assert!(matches!(next, Next::Await(_)) && reply.is_empty(), "{next:?}");
        session
    }

    pub fn looked(&mut self, session: &mut Session) -> (Next, String) {
        let (next, reply) = self.turn(session, b"");
        (next, String::from_utf8(reply).expect("text"))
    }
}

pub(crate) fn frame(reply: &[u8]) -> Frame {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    frame
}

#[test]
fn entries_are_replied_in_steps_and_of_one_moment() {
    let mut bench = bench();
    bench.stream("s", 20_000, 10);
    let held = bench.worker.store().held_bytes();
    for (words, first, count) in [
        ("XRANGE s - +", "1-0", 20_000),
        ("XREVRANGE s + -", "20000-0", 20_000),
        ("XRANGE s 5000 + COUNT 9000", "5000-0", 9_000),
        ("XREVRANGE s 9999 - COUNT 9000", "9999-0", 9_000),
    ] {
        let (reply, turns) = bench.bounded(words);
        assert!(turns > 2, "{words}: {turns}");
        let frame = frame(&reply);
        assert_eq!(frame.inside.len(), count);
        assert_eq!(frame.inside[0].inside[0].body.as_deref(), Some(first.as_bytes()));
    }
    let (reply, turns) = bench.bounded("XREAD STREAMS s nosuch s 15000 0 0");
    assert!(turns > 2);
    let read = frame(&reply);
    assert_eq!(read.inside.len(), 2);
    assert_eq!(read.inside[0].inside[1].inside.len(), 5_000);
    assert_eq!(read.inside[1].inside[1].inside.len(), 20_000);
    let (reply, _) = bench.bounded("XINFO STREAM s FULL COUNT 0");
    assert!(reply.len() > 20_000 * 40);
    assert_eq!(bench.worker.store().held_bytes(), held);

    // An entry that is deleted while a reply is made: the reply shows the stream either before or after that.
    let sent = bench.asked("XRANGE s - +");
    let mut session = Session::new();
    let (next, reply) = bench.turn(&mut session, &sent);
    assert_eq!((next, reply.len()), (Next::Yield, 0));
    assert_eq!(bench.reply("XDEL s 1-0 20000-0"), b":2\r\n");
    let (reply, _) = bench.turns(&mut session, b"");
    assert_eq!(frame(&reply).inside.len(), 19_998);
    assert_eq!(bench.worker.store().held_bytes(), held);
}

#[test]
fn what_is_trimmed_deleted_and_put_goes_in_steps() {
    let mut bench = bench();
    bench.stream("s", 300_000, 3);
    let (reply, turns) = bench.bounded("XADD s MAXLEN 200000 * f v");
    assert!(reply.starts_with(b"$") && turns >= 1, "{turns}");
    assert_eq!(bench.reply("XLEN s"), b":200000\r\n");
    let ids: String = (200_000..202_000).map(|n| format!(" {n}-0")).collect();
    let (reply, turns) = bench.bounded(&format!("XDEL s{ids}"));
    assert_eq!((&reply[..], turns > 1), (&b":2000\r\n"[..], true));
    let (reply, _) = bench.bounded("XTRIM s MAXLEN 0");
    assert_eq!(reply, b":198000\r\n");
    assert_eq!(bench.reply("EXISTS s"), b":1\r\n");
    let (reply, _) = bench.bounded("DEL s");
    assert_eq!(reply, b":1\r\n");
    while bench.worker.enter(START).maintain() {}
}

#[test]
fn a_group_of_much_that_is_pending_is_read_claimed_and_removed_in_steps() {
    let mut bench = bench();
    bench.stream("s", 10_000, 20);
    assert_eq!(bench.reply("XGROUP CREATE s g 0"), b"+OK\r\n");
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded("XREADGROUP GROUP g alice STREAMS s >");
    assert!(turns > 5, "{turns}");
    assert_eq!(frame(&reply).inside[0].inside[1].inside.len(), 10_000);
    let (reply, turns) = bench.bounded("XREADGROUP GROUP g alice STREAMS s 0");
    assert!(turns > 5);
    assert_eq!(frame(&reply).inside[0].inside[1].inside.len(), 10_000);
    let (reply, turns) = bench.bounded("XPENDING s g - + 10000");
    assert!(turns > 2);
    let pending = frame(&reply);
    assert_eq!(pending.inside.len(), 10_000);
    assert!(pending.inside.iter().all(|one| one.inside[3].number() == Some(2)));
    let (reply, _) = bench.bounded("XPENDING s g IDLE 1000000 - + 10000");
    assert_eq!(reply, b"*0\r\n");
    let (reply, turns) = bench.bounded("XAUTOCLAIM s g bob 0 0 COUNT 4000");
    assert!(turns > 5);
    let claimed = frame(&reply);
    assert_eq!(claimed.inside[0].body.as_deref(), Some(&b"4001-0"[..]));
    assert_eq!(claimed.inside[1].inside.len(), 4_000);
    let ids: String = (9_000..10_000).map(|n| format!(" {n}-0")).collect();
    let (reply, _) = bench.bounded(&format!("XCLAIM s g carol 0{ids} JUSTID"));
    assert_eq!(frame(&reply).inside.len(), 1_000);
    let (reply, _) = bench.bounded(&format!("XACK s g{ids} 20-5"));
    assert_eq!(reply, b":1000\r\n");
    let (reply, turns) = bench.bounded("XGROUP DELCONSUMER s g bob");
    assert_eq!((&reply[..], turns > 1), (&b":4000\r\n"[..], true));
    assert!(bench.text_of("XPENDING s g").starts_with("*4\r\n:5000\r\n"));
    let (reply, turns) = bench.bounded("XGROUP DESTROY s g");
    assert_eq!((&reply[..], turns > 1), (&b":1\r\n"[..], true));
    assert_eq!(bench.text_of("XINFO GROUPS s"), "*0\r\n");
    assert_eq!(bench.worker.store().held_bytes(), held);
    let mut guard = bench.worker.enter(START);
    let key = guard.key(b"s");
    guard.collection(&key, Type::Stream).unwrap().unwrap().stream().unwrap().check();
}

#[test]
fn what_is_told_of_a_group_that_goes_in_steps_is_told_once() {
    let mut bench = bench();
    bench.stream("s", 5_000, 3);
    bench.reply("XGROUP CREATE s g 0");
    bench.reply("XREADGROUP GROUP g alice STREAMS s >");
    let mut session = Session::new();
    for words in ["HELLO 3", "PSUBSCRIBE *", "CONFIG SET notify-keyspace-events Et"] {
        let sent = bench.asked(words);
        bench.turns(&mut session, &sent);
    }
    let mut heard = Vec::new();
    for words in ["XGROUP DESTROY s g", "XADD s MAXLEN 10 * a b", "XTRIM s MAXLEN 0"] {
        let sent = bench.asked(words);
        heard.extend(bench.turns(&mut session, &sent).0);
    }
    let heard = String::from_utf8_lossy(&heard);
    for (event, times) in [("xgroup-destroy", 1), ("xadd", 1), ("xtrim", 2)] {
        assert_eq!(heard.matches(&format!("@0__:{event}\r\n")).count(), times, "{event}: {heard}");
    }
}

/// In EXEC, XINFO and XGROUP count only the entries that they read: those that are replied, and ten pending
/// entries of each list.
#[test]
fn what_is_said_of_a_large_stream_is_no_long_queue() {
    let mut bench = bench();
    bench.stream("s", 40_000, 20);
    bench.text_of("XGROUP CREATE s g 0");
    let mut exec = |words: &[&str]| -> String {
        let words = [&["MULTI"][..], words, &["EXEC"]].concat();
        let sent: Vec<u8> = words.iter().flat_map(|words| bench.asked(words)).collect();
        let (reply, _) = bench.turns(&mut Session::new(), &sent);
        let queued = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(words.len() - 2));
        let reply = String::from_utf8(reply).expect("text");
        reply.strip_prefix(&queued).expect("all are queued").to_owned()
    };
    let all = ["XINFO STREAM s", "XINFO GROUPS s", "XINFO CONSUMERS s g", "XINFO STREAM s FULL"];
    let starts = |reply: &str, expected: &str| assert!(reply.starts_with(expected), "{reply:.80}");
    starts(&exec(&all.repeat(8)), "*32\r\n*20\r\n$6\r\nlength\r\n:40000\r\n");
    // The same behind commands that change the stream.
    let changed = ["XADD s * f v", "XGROUP CREATE s h $", "XGROUP DELCONSUMER s h bob", "XGROUP DESTROY s h"];
    starts(&exec(&[changed, all].concat()), "*8\r\n$");
    starts(&exec(&["XINFO STREAM s FULL COUNT 0"]), "-EXECABORT ");
    starts(&exec(&["COPY s t", "XINFO GROUPS t"]), "-EXECABORT ");
    let read = "XREADGROUP GROUP g alice COUNT 2000 STREAMS s >";
    starts(&exec(&[read]), "*1\r\n");
    starts(&exec(&["XGROUP DELCONSUMER s g alice"; 2]), "*2\r\n:2000\r\n:0\r\n");
    // Removing a pending entry costs half a microsecond in each of the two lists that have it.
    for _ in 0..6 {
        starts(&exec(&[read]), "*1\r\n");
    }
    starts(&exec(&["XGROUP DESTROY s g"]), "-EXECABORT ");
    starts(&exec(&["XGROUP DELCONSUMER s g alice"]), "-EXECABORT ");
    starts(&exec(&all.repeat(8)), "*32\r\n");
}

#[test]
fn a_queue_that_would_take_too_long_is_refused() {
    let mut bench = bench();
    bench.stream("s", 100_000, 30);
    for words in ["XRANGE s - +", "XINFO STREAM s FULL COUNT 0", "XREAD STREAMS s 0"] {
        let mut session = Session::new();
        for words in ["MULTI", words] {
            let sent = bench.asked(words);
            bench.turns(&mut session, &sent);
        }
        let sent = bench.asked("EXEC");
        let (reply, _) = bench.turns(&mut session, &sent);
        assert!(reply.starts_with(b"-EXECABORT"), "{words}: {}", String::from_utf8_lossy(&reply));
    }
    let mut session = Session::new();
    let sent = [
        "MULTI",
        "XRANGE s - + COUNT 10",
        "XADD s * a b",
        "XLEN s",
        "XREVRANGE s + - COUNT 1",
        "XGROUP CREATE s g $",
        "XDEL s 1-0",
        "EXEC",
    ];
    let sent: Vec<u8> = sent.iter().flat_map(|words| bench.asked(words)).collect();
    let (reply, _) = bench.turns(&mut session, &sent);
    let reply = String::from_utf8_lossy(&reply).into_owned();
    assert!(reply.contains("*6\r\n*10\r\n") && reply.contains(":100001\r\n"), "{reply}");
}

#[test]
fn everybody_behind_an_id_is_served_and_a_group_in_its_order() {
    let mut bench = bench();
    bench.reply("XGROUP CREATE s g $ MKSTREAM");
    let mut readers: Vec<Session> = (0..150).map(|_| bench.waiter_of("XREAD BLOCK 0 STREAMS s $")).collect();
    // A client that waits for a later ID hides no other client.
    let mut late = bench.waiter_of("XREAD BLOCK 0 STREAMS s 9999999999999-0");
    let mut first = bench.waiter_of("XREADGROUP GROUP g alice BLOCK 0 STREAMS s >");
    let mut second = bench.waiter_of("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >");
    assert_eq!(bench.reply("XADD s 5-1 a b"), b"$3\r\n5-1\r\n");
    let entry = "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
    for _ in 0..8 {
        // Clients that were woken serve others when they are called.
        for session in readers.iter_mut().chain([&mut first]) {
            let (next, reply) = bench.looked(session);
            assert!(reply.is_empty() || (next, reply) == (Next::Receive, entry.to_owned()));
        }
    }
    for session in readers.iter_mut().chain([&mut first]) {
        assert_eq!(bench.looked(session), (Next::Receive, String::new()), "it was served");
    }
    assert!(matches!(bench.looked(&mut second), (Next::Await(Some(_)), nothing) if nothing.is_empty()));
    assert_eq!(bench.looked(&mut late), (Next::Await(None), String::new()));
    bench.reply("XADD s 6-1 a b");
    assert_eq!(bench.looked(&mut second).1, entry.replace("5-1", "6-1"));
    assert!(bench.text_of("XPENDING s g").starts_with("*4\r\n:2\r\n$3\r\n5-1\r\n$3\r\n6-1\r\n"));
    drop((late, readers));
    bench.worker.enter(START).end_watches();
    assert_eq!(bench.worker.store().watch_bytes(), 0);
}

#[test]
fn who_waits_in_a_group_that_goes_is_told_so_and_others_wait_on() {
    let mut bench = bench();
    let gone = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n";
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    for (words, told) in [
        ("DEL s", gone),
        ("XGROUP DESTROY s g", gone),
        ("SET s x", wrong),
        ("RENAME s other", gone),
        ("SWAPDB 0 1", gone),
    ] {
        bench.reply("FLUSHALL");
        bench.reply("XGROUP CREATE s g $ MKSTREAM");
        let mut waiter = bench.waiter_of("XREADGROUP GROUP g alice BLOCK 0 STREAMS s >");
        let mut reader = bench.waiter_of("XREAD BLOCK 0 STREAMS s $");
        bench.reply(words);
        assert_eq!(bench.looked(&mut waiter), (Next::Receive, told.to_owned()), "{words}");
        assert_eq!(bench.looked(&mut reader), (Next::Await(None), String::new()), "{words}");
        bench.reply("FLUSHALL");
    }
}

#[test]
fn who_waits_in_a_group_finds_out_that_its_key_went_by_itself() {
    let mut bench = bench();
    let gone = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n";
    for what in ["delete s\r\n", "expiry", "FLUSHALL"] {
        bench.reply("XGROUP CREATE s g $ MKSTREAM");
        let mut waiter = bench.waiter_of("XREADGROUP GROUP g alice BLOCK 0 STREAMS s >");
        match what {
            "expiry" => {
                bench.reply("PEXPIRE s 1000");
                bench.system += 2_000;
            }
            "FLUSHALL" => drop(bench.reply(what)),
            text => assert_eq!(bench.ask(text), "DELETED\r\n"),
        }
        if what.starts_with("delete") {
            // Upkeep sees that the key is gone.
            let now = bench.shared.now(bench.system);
            bench.shared.serve_left(&mut bench.worker.enter(now), &bench.host);
        } else {
            // The waiter looks at its key once a second.
            bench.host.clock_us.fetch_add(1_000_000, std::sync::atomic::Ordering::Relaxed);
        }
        assert_eq!(bench.looked(&mut waiter), (Next::Receive, gone.to_owned()), "{what}");
    }
}

#[test]
fn what_comes_by_another_way_is_told_to_who_waits() {
    let mut bench = bench();
    for words in ["RENAME other s", "COPY other s", "EVAL return(redis.call('XADD','s','7-1','a','b')) 1 s"] {
        bench.reply("FLUSHALL");
        bench.reply("XADD other 7-1 a b");
        let mut reader = bench.waiter_of("XREAD BLOCK 0 STREAMS s $");
        bench.reply(words);
        assert!(bench.looked(&mut reader).1.contains("7-1"), "{words}");
    }
    bench.reply("FLUSHALL");
    let mut reader = bench.waiter_of("XREAD BLOCK 0 COUNT 1 STREAMS s $");
    let mut session = Session::new();
    let sent: Vec<u8> = ["MULTI", "XADD s 1-1 a b", "XADD s 2-1 a b", "EXEC"]
        .iter()
        .flat_map(|words| bench.asked(words))
        .collect();
    bench.turns(&mut session, &sent);
    let (_, reply) = bench.looked(&mut reader);
    assert!(reply.contains("1-1") && !reply.contains("2-1"), "{reply}");
}

/// A stream with entries of different shapes, a deleted entry, groups, consumers and pending entries.
fn whole(bench: &mut Bench) {
    for words in [
        "XADD s 1-1 a 1 b xyz",
        "XADD s 1-2 a 2 b 77777777",
        "XADD s 300-0 other 007",
        "XADD s 300-1 a -5 b 123456789012",
        "XADD s 70000-9 a x b y",
        "XDEL s 1-2",
        "XGROUP CREATE s g 0",
        "XGROUP CREATE s empty $",
        "XREADGROUP GROUP g alice COUNT 3 STREAMS s >",
        "XREADGROUP GROUP g bob STREAMS s >",
        "XGROUP CREATECONSUMER s g idle",
        "XACK s g 300-0",
    ] {
        assert!(!bench.reply(words).starts_with(b"-"), "{words}");
    }
}

pub(crate) fn bulk(reply: &[u8]) -> Vec<u8> {
    frame(reply).body.expect("a string")
}

#[test]
fn a_payload_comes_back_and_one_that_is_broken_leaves_nothing() {
    let mut bench = bench();
    whole(&mut bench);
    let payload = bulk(&bench.reply("DUMP s"));
    let restore = |bench: &mut Bench, payload: &[u8]| {
        let sent = encode(&[b"RESTORE", b"t", b"0", payload, b"REPLACE"]);
        bench.turns(&mut Session::new(), &sent).0
    };
    assert_eq!(restore(&mut bench, &payload), b"+OK\r\n");
    let told = |bench: &mut Bench, key: &str| {
        let told = bench.text_of(&format!("XINFO STREAM {key} FULL COUNT 0"));
        // A payload of this version does not contain the time at which a consumer was active.
        let parts: Vec<&str> = told.split("active-time\r\n").collect();
        parts
            .iter()
            .map(|part| part.trim_start_matches([':', '-']).trim_start_matches(|c: char| c.is_ascii_digit()))
            .collect::<String>()
    };
    assert_eq!(told(&mut bench, "t"), told(&mut bench, "s"));
    bench.reply("DEL t");
    let used = {
        while bench.worker.enter(START).maintain() {}
        bench.worker.store().totals().items
    };
    // Without a checksum, so that the broken bytes reach the parser.
    let mut sound = payload.clone();
    let end = sound.len() - 8;
    sound[end..].fill(0);
    assert_eq!(restore(&mut bench, &sound), b"+OK\r\n");
    for at in 0..end - 2 {
        for change in [0x01, 0x80, 0xff] {
            let mut broken = sound.clone();
            broken[at] ^= change;
            bench.reply("DEL t");
            let reply = restore(&mut bench, &broken);
            if reply == b"+OK\r\n" {
                // The changed payload is another stream: it must be sound.
                let mut guard = bench.worker.enter(START);
                let key = guard.key(b"t");
                if let Ok(Some(there)) = guard.collection(&key, Type::Stream) {
                    there.stream().unwrap().check();
                }
            } else {
                assert!(reply.starts_with(b"-"), "{at}");
                assert_eq!(bench.reply("EXISTS t"), b":0\r\n");
            }
        }
        let mut cut = sound[..at].to_vec();
        cut.extend_from_slice(&sound[end - 2..]);
        bench.reply("DEL t");
        assert!(restore(&mut bench, &cut).starts_with(b"-"), "cut at {at}");
    }
    bench.reply("DEL t");
    while bench.worker.enter(START).maintain() {}
    assert_eq!(bench.worker.store().totals().items, used);
    bench.check();
}

#[test]
fn a_long_payload_is_made_and_read_in_steps() {
    let mut bench = bench();
    bench.stream("s", 30_000, 10);
    bench.reply("XGROUP CREATE s g 0");
    bench.reply("XREADGROUP GROUP g alice COUNT 5000 STREAMS s >");
    bench.reply("XREADGROUP GROUP g bob COUNT 5000 STREAMS s >");
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded("DUMP s");
    assert!(turns > 3, "{turns}");
    let payload = bulk(&reply);
    let sent = encode(&[b"RESTORE", b"t", b"0", &payload]);
    let (reply, turns) = crate::slices::turns(&mut bench, &mut Session::new(), &sent);
    assert_eq!(reply, b"+OK\r\n");
    assert!(turns > 3, "{turns}");
    assert_eq!(bench.text_of("XPENDING t g"), bench.text_of("XPENDING s g"));
    assert_eq!(bench.reply("DUMP t"), bench.reply("DUMP s"));
    assert_eq!(bench.worker.store().held_bytes(), held);
    let (reply, _) = bench.bounded("COPY s u");
    assert_eq!(reply, b":1\r\n");
    assert_eq!(bench.reply("DUMP u"), bench.reply("DUMP s"));
}

#[test]
fn a_stream_in_a_store_that_is_full_gives_way_and_a_group_reads_on() {
    let mut bench = bench();
    // These streams are larger than the memory: some are evicted, and `s` can still grow.
    for n in 0..40 {
        bench.stream(&format!("old{n}"), 20_000, 60);
    }
    bench.stream("s", 20_000, 60);
    assert_eq!(bench.reply("XGROUP CREATE s g 0"), b"+OK\r\n");
    let (reply, _) = bench.bounded("XREADGROUP GROUP g alice COUNT 2000 STREAMS s >");
    assert_eq!(frame(&reply).inside[0].inside[1].inside.len(), 2_000);
    assert!(bench.text_of("XPENDING s g").starts_with("*4\r\n:2000\r\n"));
    bench.reply("PEXPIRE s 1000");
    bench.system += 2_000;
    assert_eq!(bench.reply("EXISTS s"), b":0\r\n");
    assert!(bench.text_of("XREADGROUP GROUP g alice STREAMS s >").starts_with("-NOGROUP"));
    bench.check();
}

/// Scripts and EXEC take no reply in parts. Long replies are whole there, and no command waits.
#[test]
fn long_replies_are_whole_in_scripts_and_in_transactions() {
    let streams = || {
        let mut bench = bench();
        bench.stream("s", 8_000, 20);
        bench.text_of("XGROUP CREATE s g 0");
        bench
    };
    for (call, found) in [
        ("'XRANGE', 's', '-', '+'", 8_000),
        ("'XREVRANGE', 's', '+', '-', 'COUNT', '7000'", 7_000),
        ("'XREADGROUP', 'GROUP', 'g', 'c', 'STREAMS', 's', '>'", 1),
        ("'XREAD', 'STREAMS', 's', '0'", 1),
        ("'XPENDING', 's', 'g', '-', '+', '8000'", 0),
        ("'XCLAIM', 's', 'g', 'd', '0', '1-0', 'FORCE'", 1),
        ("'XINFO', 'STREAM', 's', 'FULL', 'COUNT', '0'", 18),
    ] {
        let script = format!("return #redis.call({call})");
        let mut bench = streams();
        let (reply, _) = bench.turns(&mut Session::new(), &command(&["EVAL", &script, "1", "s"]));
        assert_eq!(String::from_utf8_lossy(&reply), format!(":{found}\r\n"), "{call}");
    }
    let mut bench = streams();
    for words in [&["XRANGE", "s", "-", "+"][..], &["XREAD", "STREAMS", "s", "0"], &["DUMP", "s"]] {
        let input = [command(&["MULTI"]), command(words), command(&["EXEC"]), command(&["PING"])].concat();
        let (reply, _) = bench.turns(&mut Session::new(), &input);
        assert!(reply.starts_with(b"+OK\r\n+QUEUED\r\n*1\r\n") && reply.ends_with(b"+PONG\r\n"), "{words:?}");
        assert!(reply.len() > 100_000, "{words:?}: {}", reply.len());
    }
}

/// No ID follows the last possible one.
#[test]
fn the_last_id_of_all_is_read_again_once() {
    let mut bench = bench();
    let last = "18446744073709551615-18446744073709551615";
    bench.text_of(&format!("XADD s {last} a 1"));
    bench.text_of("XGROUP CREATE s g 0");
    let new = bench.text_of("XREADGROUP GROUP g c STREAMS s >");
    for again in ["XREADGROUP GROUP g c STREAMS s 0", "XREADGROUP GROUP g c COUNT 3 STREAMS s 5-5"] {
        assert_eq!(bench.text_of(again), new, "{again}");
    }
    let behind = bench.text_of(&format!("XREADGROUP GROUP g c STREAMS s {last}"));
    assert_eq!(behind, "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n");
}

/// A read in steps replies the entries that were there when it began. It replies none that other clients add
/// meanwhile, and none twice if its group is set back.
#[test]
fn what_comes_while_a_long_reply_is_made_is_not_in_it() {
    let added = |reply: &[u8]| frame(reply).inside[0].inside[1].inside.len();
    for (words, beside, then) in [
        ("XREADGROUP GROUP g alice STREAMS s >", "XADD s 20000-1 a b", 1),
        ("XREADGROUP GROUP g alice STREAMS s >", "XGROUP SETID s g 0", 10_000),
        ("XREAD STREAMS s 0", "XADD s 20000-1 a b", 0),
    ] {
        let mut bench = bench();
        bench.stream("s", 10_000, 20);
        bench.reply("XGROUP CREATE s g 0");
        let mut session = Session::new();
        let sent = bench.asked(words);
        let (next, reply) = bench.turn(&mut session, &sent);
        assert_eq!((next, reply.len()), (Next::Yield, 0), "{words}");
        bench.reply(beside);
        let (reply, _) = bench.turns(&mut session, b"");
        let read = frame(&reply).inside[0].inside[1].clone();
        let ids: std::collections::BTreeSet<_> =
            read.inside.iter().map(|entry| entry.inside[0].body.clone()).collect();
        assert_eq!(ids.len(), read.inside.len(), "{beside}: none twice");
        assert!(!ids.contains(&Some(b"20000-1".to_vec())), "{words}");
        if then == 0 {
            assert_eq!(read.inside.len(), 10_000);
            continue;
        }
        let (reply, _) = bench.bounded("XREADGROUP GROUP g bob STREAMS s >");
        assert_eq!(added(&reply), then, "{beside}");
    }

    // A consumer's pending entries are those of one moment, too, even if another client reads as this
    // consumer.
    let mut bench = bench();
    bench.stream("s", 10_000, 20);
    bench.reply("XGROUP CREATE s g 0");
    bench.bounded("XREADGROUP GROUP g alice COUNT 5000 STREAMS s >");
    let mut session = Session::new();
    let sent = bench.asked("XREADGROUP GROUP g alice STREAMS s 0");
    assert_eq!(bench.turn(&mut session, &sent).0, Next::Yield);
    bench.bounded("XREADGROUP GROUP g alice STREAMS s >");
    let (reply, _) = bench.turns(&mut session, b"");
    assert_eq!(added(&reply), 5_000);
}

/// A woken client gets all entries that came in one moment, as if it read now.
#[test]
fn who_waits_for_several_streams_is_given_what_all_of_them_have() {
    let exec = |bench: &mut Bench, commands: &[&str]| {
        let sent = [&["MULTI"][..], commands, &["EXEC"]].concat();
        let sent: Vec<u8> = sent.iter().flat_map(|words| bench.asked(words)).collect();
        bench.turns(&mut Session::new(), &sent);
    };
    let read = |bench: &mut Bench, session: &mut Session| -> Vec<(String, usize)> {
        let (next, reply) = bench.looked(session);
        assert_eq!(next, Next::Receive, "{reply}");
        let text = |frame: &Frame| String::from_utf8(frame.body.clone().expect("a string")).expect("text");
        let read = frame(reply.as_bytes());
        read.inside.iter().map(|stream| (text(&stream.inside[0]), stream.inside[1].inside.len())).collect()
    };
    let of = |read: &[(&str, usize)]| -> Vec<(String, usize)> {
        read.iter().map(|(key, count)| (key.to_string(), *count)).collect()
    };
    let mut bench = bench();
    for key in ["a", "b", "c"] {
        bench.reply(&format!("XGROUP CREATE {key} g $ MKSTREAM"));
    }
    let mut reader = bench.waiter_of("XREAD COUNT 2 BLOCK 0 STREAMS a b c a $ $ $ 1-1");
    let mut of_group = bench.waiter_of("XREADGROUP GROUP g alice BLOCK 0 STREAMS a b c > > >");
    exec(&mut bench, &["XADD c 1-1 f v", "XADD a 1-1 f v", "XADD a 1-2 f v", "XADD a 1-3 f v"]);
    assert_eq!(read(&mut bench, &mut reader), of(&[("a", 2), ("c", 1), ("a", 2)]));
    assert_eq!(read(&mut bench, &mut of_group), of(&[("a", 3), ("c", 1)]));
    assert!(bench.text_of("XPENDING a g").starts_with("*4\r\n:3\r\n"));
    assert!(bench.text_of("XPENDING c g").starts_with("*4\r\n:1\r\n"));
    // Only one of the streams has an entry.
    let mut of_group = bench.waiter_of("XREADGROUP GROUP g alice BLOCK 0 STREAMS a b c > > >");
    bench.reply("XADD b 1-1 f v");
    assert_eq!(read(&mut bench, &mut of_group), of(&[("b", 1)]));
    // A long reply has no more than one stream would give, but something of each stream.
    let mut reader = bench.waiter_of("XREAD BLOCK 0 STREAMS a b $ $");
    let many: Vec<String> = (0..1_500).map(|n| format!("XADD a 2-{n} f v")).collect();
    let many: Vec<&str> =
        many.iter().map(String::as_str).chain(["XADD b 2-1 f v", "XADD b 2-2 f v"]).collect();
    exec(&mut bench, &many);
    let given = read(&mut bench, &mut reader);
    assert_eq!((&given[1..], given[0].1 > 500), (&of(&[("b", 1)])[..], true), "{given:?}");
    // The error about a missing group is replied before any entry is delivered.
    bench.bounded("XREADGROUP GROUP g alice NOACK STREAMS a b > >");
    let mut of_group = bench.waiter_of("XREADGROUP GROUP g bob BLOCK 0 STREAMS a b > >");
    exec(&mut bench, &["XADD a 9-1 f v", "DEL b"]);
    assert!(bench.looked(&mut of_group).1.starts_with("-NOGROUP No such key 'b'"));
    assert_eq!(bench.text_of("XPENDING a g - + 9 bob"), "*0\r\n");
    // Nor is an entry delivered by a command that names a key of another type.
    let mut reader = bench.waiter_of("XREAD BLOCK 0 STREAMS b a $ $");
    bench.reply("SET b x");
    assert_eq!(bench.looked(&mut reader), (Next::Await(None), String::new()));
    bench.reply("XADD a 9-2 f v");
    assert!(bench.looked(&mut reader).1.starts_with("-WRONGTYPE"));
}

/// A read that is refused for want of memory has delivered nothing: with NOACK, its entries would be lost.
#[test]
fn a_delivery_that_is_refused_while_connections_hold_all_memory_has_done_nothing() {
    let numbers = |text: &str, name: &str| -> Vec<i64> {
        let after = text.split(name).skip(1).map(|rest| rest.split("\r\n:").nth(1).unwrap_or("0"));
        after.map(|rest| rest.split("\r\n").next().and_then(|n| n.parse().ok()).unwrap_or(0)).collect()
    };
    // In EXEC, no part of the reply is sent before it is complete.
    for (in_exec, bytes, count, free_max) in [(false, 3_000, 9, 90_000), (true, 12_000, 40, 3_000_000)] {
        let read = format!("XREADGROUP GROUP g c NOACK COUNT {count} STREAMS a b c > > >");
        let (mut refused, mut done) = (0, 0);
        for free in (0..free_max).step_by(free_max as usize / 90) {
            let mut bench = bench();
            for (key, bytes) in [("a", 20), ("b", 200), ("c", bytes)] {
                bench.stream(key, 40, bytes);
                bench.reply(&format!("XGROUP CREATE {key} g 0 ENTRIESREAD 0"));
            }
            let sent = if in_exec { ["MULTI", &*read, "EXEC"].to_vec() } else { vec![&*read] };
            let sent: Vec<u8> = sent.iter().flat_map(|words| bench.asked(words)).collect();
            let store = std::sync::Arc::clone(bench.worker.store());
            let taken = (store.held_bytes_max() - store.held_bytes()) as i64 - free;
            store.hold(taken);
            let (reply, _) = bench.turns(&mut Session::new(), &sent);
            store.hold(-taken);
            let reply = reply.strip_prefix(&b"+OK\r\n+QUEUED\r\n"[..]).unwrap_or(&reply);
            let reply = if in_exec { reply.strip_prefix(&b"*1\r\n"[..]).unwrap_or(reply) } else { reply };
            let told: usize = match reply.starts_with(b"-") {
                true => 0,
                false => frame(reply).inside.iter().map(|stream| stream.inside[1].inside.len()).sum(),
            };
            let mut entries = 0;
            for key in ["a", "b", "c"] {
                let groups = bench.text_of(&format!("XINFO GROUPS {key}"));
                entries += numbers(&groups, "entries-read").iter().sum::<i64>();
            }
            let line = String::from_utf8_lossy(&reply[..reply.len().min(99)]);
            assert_eq!(told as i64, entries, "{read}: {free}: {line}");
            *(if told < 3 * count { &mut refused } else { &mut done }) += 1;
        }
        assert!(refused > 3 && done > 3, "{read}: {refused} {done}");
    }
}

/// A refused claim has claimed nothing, and has removed no deleted entry from the pending ones: no later
/// reply would name it.
#[test]
fn a_claim_that_is_refused_while_connections_hold_all_memory_has_done_nothing() {
    let (mut refused, mut done) = (0, 0);
    for free in (0..900_000).step_by(10_001) {
        let mut bench = bench();
        bench.stream("s", 600, 500);
        bench.reply("XGROUP CREATE s g 0");
        bench.bounded("XREADGROUP GROUP g alice STREAMS s >");
        let ids: String = (1..400).map(|n| format!(" {n}-0")).collect();
        bench.reply(&format!("XDEL s{ids}"));
        let store = std::sync::Arc::clone(bench.worker.store());
        let taken = (store.held_bytes_max() - store.held_bytes()) as i64 - free;
        store.hold(taken);
        let (reply, _) = bench
            .turns(&mut Session::new(), &command(&["XAUTOCLAIM", "s", "g", "bob", "0", "0", "COUNT", "600"]));
        store.hold(-taken);
        let (claimed, deleted) = match reply.starts_with(b"-") {
            true => (0, 0),
            false => {
                let told = frame(&reply);
                (told.inside[1].inside.len(), told.inside[2].inside.len())
            }
        };
        let left = frame(&bench.reply("XPENDING s g - + 1000")).inside.len();
        let bobs = frame(&bench.reply("XPENDING s g - + 1000 bob")).inside.len();
        assert_eq!((600 - left, bobs), (deleted, claimed), "{free}: {}", String::from_utf8_lossy(&reply));
        *(if claimed + deleted == 0 { &mut refused } else { &mut done }) += 1;
    }
    assert!(refused > 3 && done > 3, "{refused} {done}");
}

/// XGROUP DESTROY of a group with many pending entries goes on in steps that no client sees.
#[test]
fn a_group_that_is_removed_in_steps_is_gone_at_once() {
    let rows = |bench: &mut Bench, name: &str| {
        let mut guard = bench.worker.enter(START);
        let key = guard.key(name.as_bytes());
        let stream = guard.collection(&key, Type::Stream).unwrap().unwrap().stream().unwrap();
        stream.check();
        stream.rows_count()
    };
    for ends in [false, true] {
        let mut bench = bench();
        bench.stream("s", 10_000, 3);
        let empty = rows(&mut bench, "s");
        bench.reply("XGROUP CREATE s g 0");
        bench.bounded("XREADGROUP GROUP g alice COUNT 5000 STREAMS s >");
        bench.bounded("XREADGROUP GROUP g bob STREAMS s >");
        let mut waiter = bench.waiter_of("XREADGROUP GROUP g carol BLOCK 0 STREAMS s >");
        let mut session = Session::new();
        let sent = bench.asked("XGROUP DESTROY s g");
        assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()));
        let gone = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n";
        assert_eq!(bench.looked(&mut waiter), (Next::Receive, gone.to_owned()));
        for (words, told) in [
            ("XINFO GROUPS s", "*0\r\n"),
            ("XREADGROUP GROUP g alice STREAMS s >", gone),
            ("XACK s g 9999-0", ":0\r\n"),
            ("XPENDING s g", "-NOGROUP No such key 's' or consumer group 'g'\r\n"),
            ("XGROUP DESTROY s nosuch", ":0\r\n"),
            // A new group of that name is another group.
            ("XGROUP CREATE s g $", "+OK\r\n"),
            ("XADD s 20000-1 a b", "$7\r\n20000-1\r\n"),
        ] {
            assert_eq!(bench.text_of(words), told, "{words}");
        }
        assert!(bench.text_of("XREADGROUP GROUP g alice STREAMS s >").contains("20000-1"));
        assert!(rows(&mut bench, "s") > empty + 10_000, "most of it is still there");
        if ends {
            // The connection ends; upkeep removes the rest.
            drop(session);
            assert!(bench.shared.has_left());
            for _ in 0..20 {
                bench.shared.serve_left(&mut bench.worker.enter(START), &bench.host);
            }
            assert!(!bench.shared.has_left());
        } else {
            assert_eq!(bench.turns(&mut session, b"").0, b":1\r\n");
            assert!(!bench.shared.has_left());
        }
        assert!(bench.text_of("XPENDING s g").starts_with("*4\r\n:1\r\n"));
        assert_eq!(bench.reply("XGROUP DESTROY s g"), b":1\r\n");
        assert_eq!(rows(&mut bench, "s"), empty + 1, "an entry more");
        let mut session = Session::new();
        // In EXEC, the group is removed in one moment.
        bench.stream("t", 1_100, 3);
        bench.reply("XGROUP CREATE t h 0");
        bench.bounded("XREADGROUP GROUP h alice STREAMS t >");
        let sent = ["MULTI", "XGROUP DESTROY t h", "XGROUP DESTROY t h", "EXEC"];
        let sent: Vec<u8> = sent.iter().flat_map(|words| bench.asked(words)).collect();
        let (reply, _) = bench.turns(&mut session, &sent);
        assert!(reply.ends_with(b"*2\r\n:1\r\n:0\r\n"), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(rows(&mut bench, "t"), 1_101, "entries, and the stream's own");
    }
}
