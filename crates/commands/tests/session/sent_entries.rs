//! Long values of entries of streams that are sent from where they lie: what they hold while they wait, and what is copied all
//! the same.

use crate::apart::{array, bulk, job};
use crate::bench;
use crate::sent::{answer, output};
use larder_commands::Session;
use std::sync::Arc;

/// Bytes of a part of a value, but for its last one.
const PART_BYTES: usize = 16_216;
/// A reply has no more of its own, beside what of each value lies beside something else.
const OWN_BYTES_MAX: u64 = 1_000;
/// What of a value does, at most.
const BESIDE_BYTES_MAX: u64 = 1_024;
const HELD: &str = "-OOM connections hold as much memory as they may\r\n";

/// What is replied of an entry.
fn told(id: &str, words: &[&str]) -> String {
    format!("*2\r\n{}{}", bulk(id), array(words))
}

/// A reply to `words` waits while its key is deleted and what was freed is written over. Meanwhile values of so many bytes are
/// held.
fn waits(puts: &[String], words: &str, resp3: bool, reply: &str, sent: &[usize]) {
    let mut bench = bench();
    for put in puts {
        assert!(bench.reply(put).starts_with(b"$"), "{}", &put[..put.len().min(40)]);
    }
    let store = Arc::clone(bench.worker.store());
    let mut session = Session::new();
    if resp3 {
        answer(&mut bench, &mut session, "HELLO 3", &mut output());
    }
    let before = store.held_bytes();
    let mut out = output();
    answer(&mut bench, &mut session, words, &mut out);
    assert_eq!(out.len(), reply.len() as u64, "{words}");
    let held = store.held_bytes() - before;
    let most = sent.iter().map(|bytes| (bytes + 8 * bytes.div_ceil(PART_BYTES)) as u64).sum::<u64>();
    let beside = (BESIDE_BYTES_MAX + 8) * sent.len() as u64;
    assert!(held <= most && held + beside >= most, "{words}: {held} of {most}");
    assert_eq!(out.is_plain(), sent.is_empty(), "{words}");
    assert!(sent.is_empty() || out.own_bytes() <= OWN_BYTES_MAX + beside, "{words}: {}", out.own_bytes());
    assert_eq!(bench.reply("DEL k"), b":1\r\n");
    let other = "x".repeat(100_000);
    for n in 0..20 {
        assert_eq!(bench.reply(&format!("SET other{n} {other}")), b"+OK\r\n");
    }
    assert!(out.to_vec() == reply.as_bytes(), "{words}");
    // As when the client goes.
    drop(out);
    assert_eq!(store.held_bytes(), before, "{words}");
    drop((bench, session));
    store.check();
}

#[test]
fn a_value_of_more_than_16_kib_is_sent_from_where_it_lies() {
    for bytes in [16_384, 16_385, 2 * PART_BYTES, 2 * PART_BYTES + 1, 300_000, 1 << 20] {
        let text = job(bytes);
        let puts = [format!("XADD k 1-1 f {text} g c"), "XADD k 2-1 a b and some more words".to_owned()];
        let long = told("1-1", &["f", &text, "g", "c"]);
        let short = told("2-1", &["a", "b", "and", "some", "more", "words"]);
        let values = [bytes];
        let sent = if bytes > 16 << 10 { &values[..] } else { &[] };
        waits(&puts, "XRANGE k - +", false, &format!("*2\r\n{long}{short}"), sent);
        waits(&puts, "XREVRANGE k + -", true, &format!("*2\r\n{short}{long}"), sent);
        waits(&puts, "XRANGE k - + COUNT 1", false, &format!("*1\r\n{long}"), sent);
        let read = format!("{}*2\r\n{long}{short}", bulk("k"));
        waits(&puts, "XREAD STREAMS none k 0 0", false, &format!("*1\r\n*2\r\n{read}"), sent);
        waits(&puts, "XREAD STREAMS k 0", true, &format!("%1\r\n{read}"), sent);
        waits(&puts, "XRANGE k 2 +", false, &format!("*1\r\n{short}"), &[]);
    }
}

/// Several of one entry, and where they have more than is pinned in one step.
#[test]
fn long_values_of_many_entries_are_sent_from_where_they_lie() {
    let (one, other) = (job(200_000), job(70_000));
    let put = format!("XADD k 1-1 a {one} b short c {other} d {}", job(2_000));
    let entry = told("1-1", &["a", &one, "b", "short", "c", &other, "d", &job(2_000)]);
    // What has no more than 16 KiB is copied.
    let (text, bytes) = (job(1_500_000), 1_500_000);
    let puts: Vec<String> = (1..4).map(|n| format!("XADD k {n}-1 f {text}")).collect();
    let entries: Vec<String> = (1..4).map(|n| told(&format!("{n}-1"), &["f", &text])).collect();
    let all = entries.concat();
    let read = format!("*1\r\n*2\r\n{}*3\r\n{all}", bulk("k"));
    waits(&puts, "XRANGE k - +", false, &format!("*3\r\n{all}"), &[bytes; 3]);
    waits(&puts, "XREAD STREAMS k 0", false, &read, &[bytes; 3]);
    let back: String = entries.iter().rev().map(String::as_str).collect();
    waits(&puts, "XREVRANGE k + -", true, &format!("*3\r\n{back}"), &[bytes; 3]);
    let mut bench = bench();
    assert!(bench.reply(&put).starts_with(b"$"));
    let (mut session, mut out) = (Session::new(), output());
    answer(&mut bench, &mut session, "XRANGE k - +", &mut out);
    assert!(out.own_bytes() <= 2_000 + OWN_BYTES_MAX + 2 * BESIDE_BYTES_MAX, "{}", out.own_bytes());
    assert!(out.to_vec() == format!("*1\r\n{entry}").as_bytes());
}

/// Where connections hold their share a value is copied, if there is room.
#[test]
fn a_long_value_is_refused_where_connections_hold_their_share() {
    let bytes = 300_000;
    let text = job(bytes);
    let mut bench = bench();
    bench.reply(&format!("XADD k 1-1 f {text}"));
    let store = Arc::clone(bench.worker.store());
    let free = store.held_bytes_max() - store.held_bytes();
    let entry = told("1-1", &["f", &text]);
    let (range, read) = (format!("*1\r\n{entry}"), format!("*1\r\n*2\r\n{}*1\r\n{entry}", bulk("k")));
    for (left, may) in [(bytes as u64, true), (bytes as u64 - BESIDE_BYTES_MAX - 1, false)] {
        // What reading some keys takes is held beside.
        let taken = (free - left) as i64 - 1_000;
        store.hold(taken);
        let before = store.held_bytes();
        for (words, whole) in [("XRANGE k - +", &range), ("XREAD STREAMS k 0", &read)] {
            let reply = if may { whole.as_str() } else { HELD };
            store.hold(if may { 0 } else { 1_000 });
            assert!(bench.reply(words) == reply.as_bytes(), "{words} {left}");
            store.hold(if may { 0 } else { -1_000 });
        }
        assert_eq!(store.held_bytes(), before);
        store.hold(-taken);
    }
}

/// All replies of EXEC are made before the first is sent, and a script has its replies as strings.
#[test]
fn in_a_transaction_and_in_a_script_long_values_are_copied() {
    let text = job(100_000);
    let mut bench = bench();
    bench.reply(&format!("XADD k 1-1 f {text}"));
    let store = Arc::clone(bench.worker.store());
    let held = store.held_bytes();
    let (mut session, mut out) = (Session::new(), output());
    for words in ["MULTI", "XRANGE k - +", "XREAD STREAMS k 0", "EXEC"] {
        out.clear();
        answer(&mut bench, &mut session, words, &mut out);
    }
    let range = format!("*1\r\n{}", told("1-1", &["f", &text]));
    let expected = format!("*2\r\n{range}*1\r\n*2\r\n{}{range}", bulk("k"));
    assert!(out.to_vec() == expected.as_bytes());
    assert!(out.is_plain());
    drop((session, out));
    assert_eq!(store.held_bytes(), held);
    let reply = bench.reply("EVAL return{redis.call('xrange','k','-','+')} 0");
    assert!(reply == format!("*1\r\n{range}").as_bytes());
}
