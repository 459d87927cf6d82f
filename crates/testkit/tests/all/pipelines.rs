//! Pipelines that come in different ways have the same replies, items and counters: one request at a time,
//! many in one receive, with the fast paths of runs and without, and cut at every byte.

use larder_testkit::model::{OP_BYTES, check_pipelines};
use larder_testkit::pipelines::{Ways, cut_at_every_byte};
use larder_testkit::talk::encode;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    // Failures are printed smallest first; `PROPTEST_RNG_SEED` replays a run.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_is_answered_and_counted_the_same_however_it_comes(bytes in vec(any::<[u8; OP_BYTES]>(), 1..400)) {
        prop_assert_eq!(check_pipelines(&bytes), Ok(()));
    }
}

/// Random choices from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        match self.below(9) {
            0 => "k".repeat(200),
            1 => "a\tb".to_owned(),
            n => format!("key{n}"),
        }
    }

    fn value(&mut self) -> String {
        match self.below(6) {
            0 => self.below(1 << 40).to_string(),
            1 => u64::MAX.to_string(),
            2 => "v".repeat(self.below(5_000) as usize),
            3 => String::new(),
            _ => "v".repeat(self.below(100) as usize),
        }
    }
}

/// A RESP request, mostly one that a fast path answers.
fn resp(random: &mut Random) -> Vec<u8> {
    let (key, value) = (random.key(), random.value());
    let words: Vec<&str> = match random.below(40) {
        0..10 => vec!["GET", &key],
        10..20 => vec!["SET", &key, &value],
        20..25 => vec!["INCR", &key],
        25..29 => vec!["DECR", &key],
        29 => vec!["set", &key, &value],
        30 => vec!["SET", &key, &value, "EX", "30"],
        31 => vec!["DEL", &key],
        32 => vec!["APPEND", &key, &value],
        33 => vec!["RPUSH", &key, "1"],
        34 => vec!["MGET", &key, "key2", "key3"],
        35 => vec!["SELECT", random.of(&["0", "0", "1"])],
        36 => vec!["INCRBY", &key, random.of(&["7", "-7", "x"])],
        37 => vec!["EXPIRE", &key, "20"],
        38 => vec![random.of(&["PING", "MULTI", "EXEC", "NOSUCH", "GET"])],
        _ => vec!["GETSET", &key, &value],
    };
    let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
    encode(&words)
}

/// A line of text, mostly one that a fast path answers.
fn text(random: &mut Random) -> Vec<u8> {
    let key = random.key().replace('\t', "-");
    let value = random.value();
    let bytes = value.len();
    match random.below(32) {
        0..8 => format!("get {key}\r\n"),
        8 | 9 => format!("get {key} key2 key3 {key}\r\n"),
        10..15 => format!("set {key} 0 0 {bytes}\r\n{value}\r\n"),
        15..18 => format!("mg {key} v\r\n"),
        18..21 => format!("ms {key} {bytes}\r\n{value}\r\n"),
        21..25 => format!("incr {key} {}\r\n", random.below(100)),
        25 => format!("set {key} 3 0 {bytes}\r\n{value}\r\n"),
        26 => format!("set {key} 0 100 {bytes} noreply\r\n{value}\r\n"),
        27 => format!("get  {key} \r\n"),
        28 => format!("delete {key}\r\n"),
        29 => format!("mg {key} v t s k O1\r\n"),
        30 => format!("add {key} 0 0 {bytes}\r\n{value}\r\n"),
        _ => format!("{} {key}\r\n", random.of(&["gets", "nosuch", "decr", "get key1"])),
    }
    .into_bytes()
}

#[test]
fn resp_is_answered_and_counted_the_same_however_it_comes() {
    for seed in 0..60 {
        let (mut random, mut ways) = (Random(seed), Ways::new(true).expect("servers"));
        for _ in 0..25 {
            for _ in 0..1 + random.below(32) {
                let request = resp(&mut random);
                ways.ask(&request);
            }
            ways.together(None).unwrap_or_else(|unlike| panic!("seed {seed}: {unlike}"));
            if random.below(4) == 0 {
                ways.pass(random.below(30_000) as i64);
            }
        }
    }
}

/// Rules of a user: with some the server reads pipelines ahead, with others it does not.
const RULES: [&str; 6] = [
    "resetkeys ~key1* ~key2* %R~key3* %W~key4* %RW~kk* -decr -append -decrby",
    "resetkeys ~key* -set",
    "-get -incrby -incr",
    "resetkeys %R~* ~key5*",
    "resetkeys ~key? ~kk*",
    "-get -set resetkeys ~key1* (%R~key2* +get) (~key3* +set)",
];

fn check_ruled(is_resp: bool, request: fn(&mut Random) -> Vec<u8>) {
    for seed in 0..24 {
        let rules = RULES[seed as usize % RULES.len()];
        let mut random = Random(seed);
        let mut ways = Ways::ruled(is_resp, rules).expect("servers");
        for _ in 0..25 {
            for _ in 0..1 + random.below(48) {
                let request = request(&mut random);
                // CAS tokens differ between servers.
                if !request.starts_with(b"gets") {
                    ways.ask(&request);
                }
            }
            ways.together(None).unwrap_or_else(|unlike| panic!("seed {seed}: {unlike}"));
        }
    }
}

#[test]
fn resp_of_a_user_with_rules_is_answered_refused_and_counted_the_same_however_it_comes() {
    check_ruled(true, resp);
}

#[test]
fn text_of_a_user_with_rules_is_answered_refused_and_counted_the_same_however_it_comes() {
    check_ruled(false, text);
}

#[test]
fn a_pipeline_cut_at_any_byte_is_answered_and_counted_the_same() {
    for seed in 0..6 {
        for (is_resp, request) in [(false, text as fn(&mut Random) -> Vec<u8>), (true, resp)] {
            let mut random = Random(seed);
            let mut some = |count: u64| (0..count).map(|_| request(&mut random)).collect::<Vec<_>>();
            let before = some(40);
            let mut pipeline = some(32);
            // Each byte at which the pipeline is cut needs a server of its own: long requests are removed.
            while pipeline.concat().len() > 2_500 {
                let longest = (0..pipeline.len()).max_by_key(|&n| pipeline[n].len()).expect("some");
                pipeline.remove(longest);
            }
            cut_at_every_byte(is_resp, &before, &pipeline)
                .unwrap_or_else(|unlike| panic!("seed {seed}: {unlike}"));
        }
    }
}
