//! What more or less memory would bring: all requests of the keys that are followed are seen, by whichever way they come.

use crate::traffic::resp;
use crate::{Bench, START, bench};
use larder_commands::metrics::Scene;
use larder_commands::{Outlook, Session, Settings};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

/// Keys, of which one in some hundreds is followed.
const KEYS: usize = 6_000;
/// Of a way that takes long.
const FEW: usize = 1_500;

/// A server that is looked at once a second.
struct Watched {
    bench: Bench,
    now: u64,
}

impl Watched {
    fn new() -> Watched {
        let bench = bench();
        bench.shared.show_traffic(bench.worker.store(), 1, 0);
        bench.shared.tend_samples(&bench.room, bench.worker.store(), 0);
        Watched { bench, now: 0 }
    }

    /// Asks, so many bytes at a time, and counts what was recorded.
    fn ask(&mut self, session: &mut Session, input: &[u8], step: usize) {
        self.bench.run(session, input, step);
        self.tick();
    }

    fn tick(&mut self) {
        self.now += 100;
        self.bench.system = START + self.now;
        let store = self.bench.worker.store();
        self.bench.shared.count_samples(store, self.now);
        self.bench.shared.tend_samples(&self.bench.room, store, self.now);
        if self.now.is_multiple_of(1000) {
            self.look();
        }
    }

    fn look(&self) {
        let store = self.bench.worker.store();
        let scene = Scene { host: &self.bench.host, store, system: self.bench.system, redis_port: 0 };
        self.bench.shared.look_ahead(scene, self.now);
    }

    fn outlook(&mut self) -> Arc<Outlook> {
        self.now += 1;
        let store = self.bench.worker.store();
        self.bench.shared.count_samples(store, self.now);
        self.look();
        self.bench.shared.outlook().expect("traffic is sampled")
    }
}

fn key(n: usize) -> String {
    format!("key-{n:05}")
}

/// Requests of keys, some in each.
fn all(keys: Range<usize>, each: usize, request: impl Fn(&[String]) -> String) -> Vec<u8> {
    let names: Vec<String> = keys.map(key).collect();
    names.chunks(each).map(request).collect::<String>().into_bytes()
}

/// A way to ask for keys: its name, how many keys are asked for, how many in each request, and the request.
type Way = (&'static str, usize, usize, fn(&[String]) -> String);

fn words(first: &[&str], keys: &[String], each: &[&str]) -> String {
    let mut all: Vec<&str> = first.to_vec();
    for key in keys {
        all.push(key);
        all.extend_from_slice(each);
    }
    resp(&all)
}

#[test]
fn whichever_way_a_key_is_asked_for_it_is_seen() {
    let large = || "v".repeat(20_000);
    let ways: [Way; 27] = [
        ("set", KEYS, 1, |keys| format!("set {} 0 0 3\r\nabc\r\n", keys[0])),
        ("set with flags and expiry", KEYS, 1, |keys| format!("set {} 7 1000 3\r\nabc\r\n", keys[0])),
        ("ms", KEYS, 1, |keys| format!("ms {} 3\r\nabc\r\n", keys[0])),
        ("ms with flags", KEYS, 1, |keys| format!("ms {} 3 T100 c\r\nabc\r\n", keys[0])),
        ("get", KEYS, 1, |keys| format!("get {}\r\n", keys[0])),
        ("get of many", KEYS, 50, |keys| format!("get {}\r\n", keys.join(" "))),
        ("gets", KEYS, 1, |keys| format!("gets {}\r\n", keys[0])),
        ("gat", KEYS, 1, |keys| format!("gat 100 {}\r\n", keys[0])),
        ("mg", KEYS, 1, |keys| format!("mg {} v\r\n", keys[0])),
        ("mg with flags", KEYS, 1, |keys| format!("mg {} v t f\r\n", keys[0])),
        ("touch", KEYS, 1, |keys| format!("touch {} 100\r\n", keys[0])),
        ("append", FEW, 1, |keys| format!("append {} 0 0 1\r\nx\r\n", keys[0])),
        ("incr", KEYS, 1, |keys| format!("incr {} 1\r\n", keys[0])),
        ("delete", KEYS, 1, |keys| format!("delete {}\r\n", keys[0])),
        ("md", KEYS, 1, |keys| format!("md {}\r\n", keys[0])),
        ("SET", KEYS, 1, |keys| words(&["SET"], keys, &["abc"])),
        ("SET with expiry", KEYS, 1, |keys| words(&["SET"], keys, &["abc", "EX", "100"])),
        ("GET", KEYS, 1, |keys| words(&["GET"], keys, &[])),
        ("MGET", KEYS, 40, |keys| words(&["MGET"], keys, &[])),
        ("MSET", KEYS, 40, |keys| words(&["MSET"], keys, &["v"])),
        ("EXISTS", KEYS, 40, |keys| words(&["EXISTS"], keys, &[])),
        ("INCR", FEW, 1, |keys| words(&["INCR"], keys, &[])),
        ("EXPIRE", KEYS, 1, |keys| words(&["EXPIRE"], keys, &["100"])),
        ("MULTI", FEW, 1, |keys| resp(&["MULTI"]) + &words(&["GET"], keys, &[]) + &resp(&["EXEC"])),
        ("EVAL", FEW, 1, |keys| resp(&["EVAL", "return redis.call('GET', KEYS[1])", "1", &keys[0]])),
        ("DEL", KEYS, 40, |keys| words(&["DEL"], keys, &[])),
        ("HSET", FEW, 1, |keys| words(&["HSET"], keys, &["field", "value"])),
    ];
    let mut watched = Watched::new();
    let mut followed = |keys: Range<usize>| {
        let before = watched.outlook().curve.events;
        watched.ask(&mut Session::new(), &all(keys, 1, |keys| format!("get {}\r\n", keys[0])), 16 << 10);
        watched.outlook().curve.events - before
    };
    // Which keys are followed their hashes say, which differ from run to run: of a few, none may be. The names begin where
    // some of the first few are.
    let first =
        (0..).step_by(FEW).take(100).find(|first| followed(*first..first + FEW) > 0).expect("one of 150,000");
    let few = followed(first..first + FEW);
    let many = followed(first..first + KEYS);
    assert!(few <= many && many < 50, "{few} of {FEW}, {many} of {KEYS}");
    for (name, keys, each, request) in ways {
        let expected = if keys == FEW { few } else { many };
        let keys = first..first + keys;
        for step in [16 << 10, 900] {
            let before = watched.outlook().curve.events;
            watched.ask(&mut Session::new(), &all(keys.clone(), each, request), step);
            let told = watched.outlook().curve.events - before;
            assert_eq!(told, expected, "{name}, {step} bytes at a time");
        }
    }
    for (name, protocol) in [("set", true), ("SET", false)] {
        let before = watched.outlook().curve.events;
        let value = large();
        let input = all(first..first + FEW, 1, |keys| match protocol {
            true => format!("set {} 0 0 {}\r\n{value}\r\n", keys[0], value.len()),
            false => words(&["SET"], keys, &[&value]),
        });
        watched.ask(&mut Session::new(), &input, 64 << 10);
        assert_eq!(watched.outlook().curve.events - before, few, "large values by {name}");
    }
}

/// Asks for keys, and stores what is not there, as a client does.
fn load(watched: &mut Watched, session: &mut Session, keys: &[usize], value: &str) {
    let mut input = String::new();
    for n in keys {
        let _ = write!(input, "get {}\r\n", key(*n));
    }
    let (replies, _) = watched.bench.run(session, input.as_bytes(), 1 << 20);
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&replies).lines().filter(|line| line.starts_with("VALUE ")) {
        found.push(line.split(' ').nth(1).expect("a key").to_owned());
    }
    let (mut at, mut stores) = (0, String::new());
    for n in keys {
        if found.get(at).is_some_and(|found| *found == key(*n)) {
            at += 1;
        } else {
            let _ = write!(stores, "set {} 0 0 {}\r\n{value}\r\n", key(*n), value.len());
        }
    }
    watched.bench.run(session, stores.as_bytes(), 1 << 20);
    watched.tick();
}

#[test]
fn a_server_that_is_short_of_memory_says_what_more_would_bring() {
    let mut watched = Watched::new();
    let mut session = Session::new();
    let value = "v".repeat(4000);
    // A flat stream of 30,000 keys, of which half have room.
    let mut random = 1u64;
    let mut told = None;
    for round in 0..3_000 {
        let keys: Vec<usize> = (0..100)
            .map(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (random >> 33) as usize % 30_000
            })
            .collect();
        load(&mut watched, &mut session, &keys, &value);
        if round % 100 == 99 && watched.outlook().curve.points.is_some() {
            told.get_or_insert(round);
        }
    }
    let outlook = watched.outlook();
    let curve = &outlook.curve;
    assert!(told.is_some(), "{outlook:?}");
    assert!((0.35..0.65).contains(&curve.counted_miss_ratio), "{curve:?}");
    let twice = outlook.change(2.0).expect("it is known");
    assert!((twice.found_more - curve.counted_miss_ratio).abs() < 0.03, "all have room: {twice:?}");
    let half = outlook.change(0.5).expect("it is known");
    let expected = (1.0 - curve.counted_miss_ratio) / 2.0;
    assert!((-half.found_more - expected).abs() < 0.03 + half.error, "{half:?}, {expected}");
    let doctor = watched.bench.ask("stats doctor\r\n");
    assert!(doctor.contains("memory-short"), "{doctor}");
    assert!(doctor.contains("-m 128 would have "), "{doctor}");
    let asked = resp(&["INFO", "findings"]);
    let (info, _) = watched.bench.run(&mut Session::new(), asked.as_bytes(), 1000);
    let info = String::from_utf8(info).expect("text");
    let told = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name}: {info}")).to_owned()
    };
    let findings: usize = told("findings").parse().expect("a number");
    let nth = (1..=findings).find(|nth| told(&format!("finding_{nth}_rule")) == "memory-short");
    let nth = nth.unwrap_or_else(|| panic!("{info}"));
    for part in ["severity", "evidence", "advice"] {
        let by_text = format!("STAT memory-short:{part} {}\r\n", told(&format!("finding_{nth}_{part}")));
        assert!(doctor.contains(&by_text), "{by_text}: {doctor}");
    }
    let (everything, _) = watched.bench.run(&mut Session::new(), resp(&["INFO", "all"]).as_bytes(), 1000);
    assert!(!String::from_utf8_lossy(&everything).contains("finding"));
    assert!(outlook.bytes < 300 << 10, "{} bytes", outlook.bytes);
    let store = watched.bench.worker.store();
    assert!(store.ledger().aside >= outlook.bytes);
    watched.bench.shared.hide_traffic(store);
    watched.bench.shared.tend_samples(&watched.bench.room, store, watched.now);
    assert!(watched.bench.shared.outlook().is_none());
}

#[test]
fn while_nobody_looks_no_key_is_followed() {
    let bench = Bench::new(Settings::default());
    assert!(bench.shared.outlook().is_none());
    let store = bench.worker.store();
    let scene = Scene { host: &bench.host, store, system: START, redis_port: 0 };
    bench.shared.look_ahead(scene, 1000);
    assert!(bench.shared.outlook().is_none());
}
