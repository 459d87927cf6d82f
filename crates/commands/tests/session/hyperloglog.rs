//! HyperLogLogs: many elements, many keys, what is noted in them, and what is none.

use crate::slices::set;
use crate::{Bench, bench};
use larder_commands::{Next, Session};
use larder_testkit::redis::frame::Frame;

const NO_SKETCH: &[u8] = b"-WRONGTYPE Key is not a valid HyperLogLog string value.\r\n";
const CORRUPT: &[u8] = b"-INVALIDOBJ Corrupted HLL object detected\r\n";

impl Bench {
    fn estimate(&mut self, words: &str) -> i64 {
        let reply = self.reply(words);
        let (frame, _) = Frame::read(&reply).expect("a reply").expect("all of it");
        frame.number().unwrap_or_else(|| panic!("{words}: {}", String::from_utf8_lossy(&reply)))
    }

    /// So many elements, beginning with this one.
    fn sketch(&mut self, key: &str, from: usize, elements: usize) {
        let words: String = (from..from + elements).map(|n| format!(" e{n}")).collect();
        assert_eq!(self.bounded(&format!("PFADD {key}{words}")).0, b":1\r\n");
    }
}

fn near(found: i64, expected: i64) {
    assert!((found - expected).abs() * 30 <= expected, "{found}, not {expected}");
}

#[test]
fn many_elements_are_added_in_steps() {
    let mut bench = bench();
    let words: String = (0..20_000).map(|n| format!(" e{n}")).collect();
    let (reply, turns) = bench.bounded(&format!("PFADD many{words}"));
    assert!(reply == b":1\r\n" && turns > 2, "{turns}");
    for n in 0..20_000 {
        bench.reply(&format!("PFADD one e{n}"));
    }
    assert_eq!(bench.reply("GET many"), bench.reply("GET one"));
    near(bench.estimate("PFCOUNT many"), 20_000);
    assert_eq!(bench.bounded(&format!("PFADD many{words}")).0, b":0\r\n");
    // As one, in a transaction.
    let sent: Vec<u8> = ["MULTI", &format!("PFADD exec{words}"), "EXEC"]
        .iter()
        .flat_map(|words| bench.asked(words))
        .collect();
    let reply = bench.turns(&mut Session::new(), &sent).0;
    assert_eq!(reply, b"+OK\r\n+QUEUED\r\n*1\r\n:1\r\n");
    bench.reply("PFCOUNT exec");
    bench.reply("PFCOUNT many");
    assert_eq!(bench.reply("GET exec"), bench.reply("GET many"));
}

/// What is noted is a change of the key, and no event.
#[test]
fn a_cardinality_is_noted_once() {
    let mut bench = bench();
    bench.sketch("k", 0, 100);
    bench.reply("EXPIRE k 1000");
    bench.reply("CONFIG SET notify-keyspace-events KEA");
    let (mut watches, mut listens) = (Session::new(), Session::new());
    let sent = [bench.asked("HELLO 3"), bench.asked("PSUBSCRIBE __key*")].concat();
    bench.turns(&mut listens, &sent);
    for touched in [true, false] {
        let before = bench.reply("GET k");
        let sent = bench.asked("WATCH k");
        bench.turns(&mut watches, &sent);
        near(bench.estimate("PFCOUNT k"), 100);
        assert_eq!(bench.reply("GET k") != before, touched);
        let sent: Vec<u8> = ["MULTI", "EXEC"].iter().flat_map(|words| bench.asked(words)).collect();
        let reply = bench.turns(&mut watches, &sent).0;
        assert_eq!(reply.ends_with(b"*-1\r\n"), touched);
    }
    assert_eq!(bench.reply("TTL k"), b":1000\r\n");
    let ping = bench.asked("PING");
    let told = [bench.turns(&mut listens, &ping).0, bench.turns(&mut listens, &ping).0].concat();
    assert!(!String::from_utf8_lossy(&told).contains("keyspace@"), "{}", String::from_utf8_lossy(&told));
    // What was changed is counted anew, and published.
    assert_eq!(bench.reply("PFADD k new"), b":1\r\n");
    assert_eq!(bench.reply("PFADD k new"), b":0\r\n");
    let told = [bench.turns(&mut listens, &ping).0, bench.turns(&mut listens, &ping).0].concat();
    assert_eq!(String::from_utf8_lossy(&told).matches("__keyevent@0__:pfadd").count(), 1);
    assert_eq!(bench.estimate("PFCOUNT k"), 101);
}

#[test]
fn many_keys_are_gathered_in_steps() {
    const KEYS: usize = 300;
    let mut bench = bench();
    for n in 0..KEYS {
        bench.sketch(&format!("k{n}"), 100 * n, 2_000);
    }
    let names: String = (0..KEYS).map(|n| format!(" k{n}")).collect();
    let all = (100 * (KEYS - 1) + 2_000) as i64;
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded(&format!("PFCOUNT{names}"));
    assert!(turns > 5, "{turns}");
    let (frame, _) = Frame::read(&reply).unwrap().unwrap();
    near(frame.number().unwrap(), all);
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.reply("CONFIG SET notify-keyspace-events EA");
    let mut listens = Session::new();
    let sent = [bench.asked("HELLO 3"), bench.asked("SUBSCRIBE __keyevent@0__:pfadd")].concat();
    bench.turns(&mut listens, &sent);
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded(&format!("PFMERGE to{names}"));
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert!(reply == b"+OK\r\n" && turns > 5, "{turns}");
    let ping = bench.asked("PING");
    let told = [bench.turns(&mut listens, &ping).0, bench.turns(&mut listens, &ping).0].concat();
    assert_eq!(String::from_utf8_lossy(&told).matches("__keyevent@0__:pfadd").count(), 1);
    assert_eq!(bench.estimate("PFCOUNT to"), frame.number().unwrap());
    // What changes meanwhile is gathered anew.
    let mut session = Session::new();
    let sent = bench.asked(&format!("PFCOUNT{names}"));
    assert_eq!(bench.turn(&mut session, &sent).0, Next::Yield);
    assert_eq!(bench.turn(&mut session, b"").0, Next::Yield);
    bench.sketch("k0", 1_000_000, 20_000);
    let (reply, _) = bench.turns(&mut session, b"");
    let (frame, _) = Frame::read(&reply).unwrap().unwrap();
    near(frame.number().unwrap(), all + 20_000);
    // As one, where there is time for it; and one of another type.
    let mut exec = |words: &str| {
        let sent: Vec<u8> = ["MULTI", words, "EXEC"].iter().flat_map(|words| bench.asked(words)).collect();
        String::from_utf8_lossy(&bench.turns(&mut Session::new(), &sent).0).into_owned()
    };
    assert!(exec("PFCOUNT k0 k1 k2").contains("*1\r\n:"));
    let twice = format!("PFCOUNT{names}{names}{names}");
    assert!(exec(&twice).contains("-EXECABORT Transaction discarded: "));
    bench.reply("RPUSH list x");
    let wrong = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    assert_eq!(bench.reply(&format!("PFCOUNT{names} list")), wrong);
    assert_eq!(bench.reply(&format!("PFMERGE list{names}")), wrong);
}

#[test]
fn what_is_no_hyperloglog_is_said_however_long_it_is() {
    let mut bench = bench();
    let sparse = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80";
    let long = [&sparse[..], &[0; 1 << 20]].concat();
    let full = [&sparse[..], &[0; 16_384]].concat();
    let cases: [(&[u8], &[u8]); 8] = [
        (b"", NO_SKETCH),
        (b"12345", NO_SKETCH),
        (b"HYLL\x01\0\0\0\0\0\0\0\0\0\0", NO_SKETCH),
        (b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff", NO_SKETCH),
        (b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff", NO_SKETCH),
        (&[b'x'; 100_000], NO_SKETCH),
        (&long, CORRUPT),
        (sparse, CORRUPT),
    ];
    for (value, said) in cases {
        set(&mut bench, "k", value);
        for words in ["PFCOUNT k", "PFCOUNT k k", "PFMERGE d k", "PFMERGE k", "PFADD k a", "PFDEBUG GETREG k"]
        {
            let reply = bench.reply(words);
            assert_eq!(reply, said, "{words} of {} bytes", value.len());
        }
        assert_eq!(bench.reply("EXISTS d"), b":0\r\n");
        assert_eq!(bench.reply("STRLEN k"), format!(":{}\r\n", value.len()).into_bytes());
    }
    // Runs of one register each are a sketch, however long.
    set(&mut bench, "k", &full);
    assert_eq!(bench.reply("PFCOUNT k"), b":0\r\n");
    assert_eq!(bench.reply("PFADD k a"), b":1\r\n");
    assert_eq!(bench.reply("PFCOUNT k"), b":1\r\n");
    // A key whose value lies in pieces.
    let key = "k".repeat(9_000);
    assert_eq!(bench.reply(&format!("PFADD {key} a b")), b":1\r\n");
    assert_eq!(bench.reply(&format!("PFMERGE {key} k")), b"+OK\r\n");
    assert_eq!(bench.reply(&format!("PFCOUNT {key}")), b":2\r\n");
}
