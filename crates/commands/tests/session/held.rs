//! What a client holds between two turns is counted, however short it is: many clients may hold as much at once.

use crate::slices::set;
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session, Settings};
use larder_testkit::talk::encode;

impl Bench {
    fn held(&self) -> u64 {
        self.worker.store().held_bytes()
    }

    /// What is held more behind the first call of a command, which goes on, than in front of it.
    fn holds(&mut self, session: &mut Session, sent: &[u8], slice_is_gone: bool) -> u64 {
        let before = self.held();
        self.room.work().begin_slice();
        if slice_is_gone {
            self.room.work().spend(SLICE_NS);
        }
        let (next, _, consumed) = self.call_on(session, sent);
        assert!(matches!(next, Next::Yield | Next::Flush), "{next:?}");
        assert_eq!(consumed, sent.len());
        self.held().saturating_sub(before)
    }
}

fn words(name: &str, count: usize) -> Vec<u8> {
    let names: Vec<String> = (0..count).map(|n| format!("{n:x}")).collect();
    let mut words = vec![name.as_bytes()];
    words.extend(names.iter().map(String::as_bytes));
    encode(&words)
}

#[test]
fn words_that_wait_for_who_works_at_large_values_are_counted() {
    let mut bench = bench();
    let held = bench.held();
    let sent = words("SUNION", 3_000);
    let (mut works, mut waits) = (Session::new(), Session::new());
    bench.holds(&mut works, &sent, false);
    let taken = bench.holds(&mut waits, &sent, false);
    assert!(taken >= 2 * (sent.len() as u64 - 20), "{taken} for {} bytes of words", sent.len());
    for session in [&mut works, &mut waits] {
        assert_eq!(bench.turns(session, b"").0, b"*0\r\n");
    }
    assert_eq!(bench.held(), held);
}

#[test]
fn a_command_whose_words_cannot_be_kept_is_refused_and_takes_no_long_step() {
    let mut bench = bench();
    let [one, other] = ["a", "b"].map(|name| name.repeat(1_000));
    bench.add(&one, (0..20_000).map(|n| format!("one-{n}")));
    bench.add(&other, (0..20_000).map(|n| format!("other-{n}")));
    let (mut works, mut waits) = (Session::new(), Session::new());
    // It is at work at large values.
    bench.holds(&mut works, &words("SUNION", 3_000), false);
    let store = bench.worker.store();
    let taken = (store.held_bytes_max() - store.held_bytes()) as i64;
    store.hold(taken);
    let asked = encode(&[b"SINTERCARD", b"2", one.as_bytes(), other.as_bytes()]);
    bench.room.work().begin_slice();
    let (_, reply, _) = bench.call_on(&mut waits, &asked);
    assert_eq!(reply, b"-OOM connections hold as much memory as they may\r\n");
    assert!(bench.room.work().done_ns() <= SLICE_NS, "{} ns", bench.room.work().done_ns());
    bench.worker.store().hold(-taken);
    assert_eq!(bench.turns(&mut works, b"").0, b"*0\r\n");
    // With memory it is answered, in steps.
    assert_eq!(bench.turns(&mut waits, &asked).0, b":0\r\n");
}

#[test]
fn a_short_table_of_lcs_is_counted() {
    let mut bench = bench();
    let held = bench.held();
    let value = b"ab".repeat(60);
    set(&mut bench, "one", &value);
    set(&mut bench, "two", &value);
    let mut session = Session::new();
    let taken = bench.holds(&mut session, &encode(&[b"LCS", b"one", b"two"]), true);
    assert!(taken >= 121 * 121 * 4, "{taken}");
    let reply = bench.turns(&mut session, b"").0;
    assert_eq!(reply, [b"$120\r\n", &value[..], b"\r\n"].concat());
    assert_eq!(bench.held(), held);
}

#[test]
fn who_is_meant_by_client_list_is_counted() {
    let mut bench = bench();
    let mut others: Vec<Session> = (0..100).map(|_| Session::new()).collect();
    others.iter_mut().for_each(|other| drop(bench.turn(other, &encode(&[b"PING"]))));
    let mut session = Session::new();
    bench.turn(&mut session, &encode(&[b"PING"]));
    let held = bench.held();
    let numbers: Vec<String> = (1..=2_000).map(|n| n.to_string()).collect();
    let mut asked: Vec<&[u8]> = vec![b"CLIENT", b"LIST", b"ID"];
    asked.extend(numbers.iter().map(String::as_bytes));
    let taken = bench.holds(&mut session, &encode(&asked), true);
    assert!(taken >= 40_000, "{taken}");
    bench.turns(&mut session, b"");
    let name = [b'n'; 1024];
    let asked: Vec<&[u8]> = [&[&b"CLIENT"[..], b"KILL"][..], &[&b"NAME"[..], &name].repeat(30)].concat();
    let taken = bench.holds(&mut session, &encode(&asked), true);
    assert!(taken >= 30 * 1024, "{taken}");
    assert_eq!(bench.turns(&mut session, b"").0, b":0\r\n");
    assert_eq!(bench.held(), held);
}

#[test]
fn who_has_others_closed_needs_no_memory_that_they_hold() {
    let mut bench = bench();
    let mut session = Session::new();
    let store = bench.worker.store();
    let taken = (store.held_bytes_max() - store.held_bytes()) as i64;
    store.hold(taken);
    for asked in [
        &[&b"CLIENT"[..], b"KILL", b"ID", b"999999"][..],
        &[b"CLIENT", b"KILL", b"ADDR", b"1.2.3.4:5", b"SKIPME", b"no", b"TYPE", b"normal"],
    ] {
        assert_eq!(bench.turns(&mut session, &encode(asked)).0, b":0\r\n");
    }
    bench.worker.store().hold(-taken);
}

#[test]
fn members_that_wait_until_they_are_taken_are_counted() {
    let mut bench = bench();
    bench.add("s", (0..150).map(|n| format!("member-{n:040}")));
    let held = bench.held();
    bench.limit = 1_000;
    let mut session = Session::new();
    for name in ["SUNION", "SINTER", "SDIFF", "ZUNION"] {
        let mut asked: Vec<&[u8]> = vec![name.as_bytes()];
        asked.extend([&b"2"[..], b"s", b"s"].iter().skip(usize::from(!name.starts_with('Z'))));
        if name == "SDIFF" {
            asked[2] = b"none";
        }
        let taken = bench.holds(&mut session, &encode(&asked), false);
        assert!(taken >= 150 * 47, "{name}: {taken}");
        let rest = bench.turns(&mut session, b"").0;
        assert!(rest.len() > 5_000, "{name}: {}", rest.len());
        assert_eq!(bench.held(), held, "{name}");
    }
}

#[test]
fn a_long_key_whose_elements_are_at_work_is_counted() {
    let mut bench = bench();
    let key = [b'k'; 40_000];
    // Those that are written are more than are one step, and have fewer bytes than the key.
    let of = |name: &str, first: &[&[u8]], count: usize, each: &dyn Fn(usize) -> Vec<String>| {
        let words: Vec<String> = (0..count).flat_map(each).collect();
        let mut all: Vec<&[u8]> = vec![name.as_bytes(), &key];
        all.extend(first);
        all.extend(words.iter().map(String::as_bytes));
        encode(&all)
    };
    let one = |n: usize| vec![format!("m{n}")];
    let two = |n: usize| vec![n.to_string(), format!("m{n}")];
    let valued = |n: usize| vec![n.to_string(), "v".to_owned()];
    let steps: [(&[&[u8]], Vec<u8>); 6] = [
        (&[b"SET", b"x", b"y"], of("HSET", &[], 2_100, &valued)),
        (&[b"EXISTS", b"x"], of("HMGET", &[], 1_500, &two)),
        (&[b"EXISTS", b"x"], of("HGETDEL", &[b"FIELDS", b"2100"], 2_100, &one)),
        (&[b"DEL", &key], of("SADD", &[], 2_100, &one)),
        (&[b"EXISTS", b"x"], encode(&[b"SPOP", &key, b"1000"])),
        (&[b"DEL", &key], of("ZADD", &[], 1_500, &two)),
    ];
    for (before, sent) in steps {
        bench.turns(&mut Session::new(), &encode(before));
        let held = bench.held();
        let mut session = Session::new();
        let taken = bench.holds(&mut session, &sent, false);
        assert!(taken >= 40_000, "{}: {taken}", String::from_utf8_lossy(&sent[..20]));
        bench.turns(&mut session, b"");
        assert_eq!(bench.held(), held);
    }
}

#[test]
fn what_errors_quote_is_short() {
    let mut bench = bench();
    let long = [0xff; 100_000];
    let rows: [&[&[u8]]; 8] = [
        &[b"FUNCTION", b"LIST"],
        &[b"CLIENT"],
        &[b"CLIENT", b"KILL", b"FLAGS"],
        &[b"CLIENT", b"LIST", b"TYPE"],
        &[b"CONFIG", b"SET", b"save"],
        &[b"COMMAND", b"DOCS"],
        &[b"XINFO"],
        &[],
    ];
    for row in rows {
        let reply = bench.turns(&mut Session::new(), &encode(&[row, &[&long[..]]].concat())).0;
        assert!(reply.len() <= 1_024, "{}: {} bytes", String::from_utf8_lossy(&row.concat()), reply.len());
    }
}

#[test]
fn counts_of_sizes_are_counted_until_they_are_written() {
    let mut bench = Bench::new(Settings { track_sizes: true, ..Settings::default() });
    for bytes in 0..1_000 {
        set(&mut bench, &format!("k{bytes}"), &vec![b'v'; bytes * 32]);
    }
    let held = bench.held();
    let mut session = Session::new();
    bench.holds(&mut session, b"stats sizes\r\n", true);
    let (mut most, mut replies) = (0, Vec::new());
    loop {
        bench.room.work().begin_slice();
        bench.room.work().spend(SLICE_NS);
        let (next, reply, _) = bench.call_on(&mut session, b"");
        most = most.max(bench.held() - held);
        replies.extend(reply);
        if next == Next::Receive {
            let reply = String::from_utf8(replies).expect("text");
            assert!(reply.lines().count() >= 1_000 && reply.ends_with("END\r\n"), "{reply}");
            break;
        }
    }
    assert!(most >= 900 * 24, "{most}");
    assert_eq!(bench.held(), held);
    // Where connections hold all they may it is refused.
    let store = bench.worker.store();
    let taken = (store.held_bytes_max() - store.held_bytes()) as i64;
    store.hold(taken);
    assert_eq!(bench.ask("stats sizes\r\nmn\r\n"), "SERVER_ERROR out of memory writing stats\r\nMN\r\n");
    bench.worker.store().hold(-taken);
}

#[test]
fn a_random_key_that_is_kept_is_counted() {
    let mut bench = bench();
    // Where there are few, it is looked for on the way through all others.
    bench.fill(0, 20_000, 10);
    let key = [b'k'; 30_000];
    let held = bench.held();
    let mut session = Session::new();
    bench.turns(&mut session, &encode(&[b"SELECT", b"1"]));
    bench.turns(&mut session, &encode(&[b"SET", &key, b"v"]));
    // What was new recently is found at once: others are newer, and gone.
    for n in 0..100 {
        let name = n.to_string();
        bench.turns(&mut session, &encode(&[b"SET", name.as_bytes(), b"v"]));
        bench.turns(&mut session, &encode(&[b"DEL", name.as_bytes()]));
    }
    let mut counted = false;
    for _ in 0..50 {
        bench.room.work().begin_slice();
        bench.room.work().spend(SLICE_NS);
        let (mut next, _, _) = bench.call_on(&mut session, &encode(&[b"RANDOMKEY"]));
        while next != Next::Receive {
            counted |= bench.held() >= held + 30_000;
            bench.room.work().begin_slice();
            bench.room.work().spend(SLICE_NS);
            (next, _, _) = bench.call_on(&mut session, b"");
        }
    }
    assert!(counted);
    assert_eq!(bench.held(), held);
}

/// So that clients that do not take them are closed where connections hold too much.
#[test]
fn elements_that_were_taken_out_count_with_who_does_not_take_them() {
    const COUNT: usize = 20_000;
    let mut bench = bench();
    let names: Vec<String> = (0..2 * COUNT).map(|n| format!("element-{n:032}")).collect();
    for make in [&[&b"RPUSH"[..], b"l"], &[&b"SADD"[..], b"s"]] {
        let words: Vec<&[u8]> = make.iter().copied().chain(names.iter().map(String::as_bytes)).collect();
        let input = encode(&words);
        bench.run(&mut Session::new(), &input, 4_000);
    }
    bench.limit = 1_000;
    let count = COUNT.to_string();
    for words in [[&b"LPOP"[..], b"l"], [b"RPOP", b"l"], [b"SPOP", b"s"]] {
        let mut session = Session::new();
        let mut next = bench.call(&mut session, &encode(&[words[0], words[1], count.as_bytes()])).0;
        while next == Next::Yield {
            next = bench.call(&mut session, b"").0;
        }
        // The first of them are replied, and the client does not take the others.
        assert_eq!(next, Next::Flush);
        let held = session.held_bytes();
        assert!(held >= 40 * COUNT as u64, "{held} bytes count of {COUNT} elements");
        bench.turns(&mut session, b"");
        assert_eq!(session.held_bytes(), 0);
    }
}
