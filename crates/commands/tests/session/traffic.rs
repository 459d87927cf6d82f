//! Which keys are requested most: their shares in known streams, through sessions of both protocols.

use crate::{Bench, bench};
use larder_commands::{HotKeys, PrefixShares, Session, Settings};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let n = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ n >> 31
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Draws numbers of keys, the nth with a weight of 1/n^skew.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=keys).map(|n| (n as f64).powf(-skew));
        let mut sums: Vec<f64> = weights.map(|weight| (sum += weight, sum).1).collect();
        sums.iter_mut().for_each(|up_to| *up_to /= sum);
        Zipf { sums }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = random.uniform();
        self.sums.partition_point(|up_to| *up_to <= at)
    }
}

/// A server whose traffic is sampled, and its clock.
struct Sampled {
    bench: Bench,
    now: u64,
}

impl Sampled {
    fn new() -> Sampled {
        let bench = bench();
        bench.shared.show_traffic(bench.worker.store(), 1, 0);
        bench.shared.tend_samples(&bench.room, bench.worker.store(), 0);
        Sampled { bench, now: 0 }
    }

    /// Sends these requests in a tenth of a second, then has the samples counted.
    fn tick(&mut self, session: &mut Session, input: &[u8]) {
        self.bench.run(session, input, 64 << 10);
        self.now += 100;
        self.bench.shared.count_samples(self.bench.worker.store(), self.now);
        self.bench.shared.tend_samples(&self.bench.room, self.bench.worker.store(), self.now);
    }

    fn hot(&self, most: usize) -> HotKeys {
        self.bench.shared.hot_keys(most).expect("traffic is sampled")
    }
}

impl Sampled {
    fn prefixes(&self) -> PrefixShares {
        self.bench.shared.prefix_shares(100).expect("traffic is sampled")
    }
}

/// Writes a request for a key.
type Ask = fn(&str) -> String;

fn get(key: &str) -> String {
    format!("get {key}\r\n")
}

fn meta_get(key: &str) -> String {
    format!("mg {key} v\r\n")
}

fn set(key: &str) -> String {
    format!("set {key} 0 0 3\r\nabc\r\n")
}

fn multi_get(key: &str) -> String {
    format!("gets {key}\r\n")
}

/// A command in Redis's form.
pub fn resp(words: &[&str]) -> String {
    let bulk: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulk}", words.len())
}

fn resp_get(key: &str) -> String {
    resp(&["GET", key])
}

fn resp_hash(key: &str) -> String {
    resp(&["HSET", &format!("h{key}"), "f", "v"])
}

#[test]
fn every_key_of_a_hundredth_is_listed_and_its_share_within_its_error() {
    let streams: [(&str, f64, usize, usize, Ask); 9] = [
        // Name, skew, number of keys, requests in a tenth of a second, and the command.
        ("few, each counted", 1.0, 100, 20, get),
        ("a pipeline of gets", 0.99, 20_000, 10_000, get),
        ("gets of a flat stream", 0.8, 20_000, 10_000, get),
        ("gets of a steep stream", 1.2, 20_000, 10_000, get),
        ("sets", 0.99, 2_000, 10_000, set),
        ("mg", 0.99, 2_000, 10_000, meta_get),
        ("gets one by one", 0.99, 2_000, 10_000, multi_get),
        ("RESP", 0.99, 20_000, 10_000, resp_get),
        ("RESP hashes", 0.99, 2_000, 5_000, resp_hash),
    ];
    let (mut listed, mut inside) = (0, 0);
    for (name, skew, keys, each_tick, ask) in streams {
        let (mut sampled, mut random, zipf) = (Sampled::new(), Random(7), Zipf::new(keys, skew));
        let mut session = Session::new();
        let mut counts: HashMap<usize, u64> = HashMap::new();
        for _ in 0..100 {
            let mut input = String::new();
            for _ in 0..each_tick {
                let key = zipf.draw(&mut random);
                *counts.entry(key).or_default() += 1;
                input.push_str(&ask(&format!("key-{key:05}")));
            }
            sampled.tick(&mut session, input.as_bytes());
        }
        let hot = sampled.hot(100);
        let all = (100 * each_tick) as f64;
        assert!((hot.seconds - 10.0).abs() < 0.2, "{name}: {}", hot.seconds);
        assert!((hot.all as f64 / all - 1.0).abs() < 0.1, "{name}: {} of {all}", hot.all);
        let of_key = |key: usize| {
            let text = format!("key-{key:05}");
            hot.rows.iter().find(|hot| std::str::from_utf8(&hot.key).expect("text").ends_with(&text))
        };
        for (key, count) in &counts {
            let share = *count as f64 / all;
            if share >= 0.01 {
                let found = of_key(*key).unwrap_or_else(|| panic!("{name}: {key} of {share} is not listed"));
                listed += 1;
                let off = (found.share - share).abs();
                inside += usize::from(off <= found.error);
                // A key with a hundredth of the requests has 300 samples in ten seconds, at least.
                assert!(off <= 0.35 * share, "{name}: {} is not {share}", found.share);
                let rate = share * all / 10.0;
                assert!((found.per_second / rate - 1.0).abs() < 0.4, "{name}: {}", found.per_second);
            }
        }
        if each_tick < 100 {
            assert_eq!(hot.samples, hot.all, "each was counted");
            assert!(hot.rows.iter().all(|key| key.error < 1e-9));
        }
    }
    assert!(listed > 50, "{listed}");
    // By chance, one share in a hundred is off by more than its error.
    assert!(inside * 100 >= listed * 90, "{inside} of {listed} are within their errors");
}

#[test]
fn keys_of_a_command_of_many_are_told_apart_and_verbs_are() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let words = [
        resp(&["MSET", "a", "12345", "b", "1"]),
        resp(&["MGET", "a", "b", "nobody"]),
        resp(&["DEL", "b"]),
        resp(&["GET", "a"]),
        resp(&["SELECT", "3"]),
        resp(&["GET", "a"]),
        resp(&["MULTI"]),
        resp(&["APPEND", "in-multi", "x"]),
        resp(&["EXEC"]),
        resp(&["EVAL", "return redis.call('SET', KEYS[1], 'v')", "1", "by-script"]),
    ];
    sampled.tick(&mut session, words.concat().as_bytes());
    let hot = sampled.hot(100);
    let found: Vec<(String, u8, u64)> = hot
        .rows
        .iter()
        .map(|key| {
            let count = (key.share * hot.all as f64).round() as u64;
            (String::from_utf8_lossy(&key.key).into_owned(), key.db, count)
        })
        .collect();
    let expected =
        [("a", 0, 3), ("b", 0, 3), ("a", 3, 1), ("by-script", 3, 1), ("in-multi", 3, 1), ("nobody", 0, 1)];
    assert_eq!(found, expected.map(|(key, db, count)| (key.to_owned(), db, count)));
    let (a, b) = (&hot.rows[0], &hot.rows[1]);
    assert_eq!((a.reads, a.deletes, a.hit_ratio, a.value_bytes), (2.0 / 3.0, 0.0, Some(1.0), 5));
    assert_eq!((b.reads, b.deletes), (1.0 / 3.0, 1.0 / 3.0));
    assert_eq!(hot.rows[5].hit_ratio, Some(0.0));
}

#[test]
fn memcacheds_requests_are_told_apart() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let large = format!("set large 0 0 50000\r\n{}\r\n", "v".repeat(50_000));
    let lines =
        "set a 0 0 2\r\nxy\r\nget a nobody\r\ndelete a\r\nmg YQ== v b\r\nms a 1\r\n7\r\nincr a 1\r\nmd a\r\n";
    sampled.tick(&mut session, format!("{lines}{large}").as_bytes());
    let hot = sampled.hot(100);
    let of = |name: &[u8]| hot.rows.iter().find(|key| &*key.key == name).expect("it is listed");
    assert_eq!(hot.all, 9);
    let a = of(b"a");
    assert_eq!((a.share * 9.0).round(), 7.0);
    assert_eq!((a.reads * 7.0, a.deletes * 7.0, a.hit_ratio), (2.0, 2.0, Some(0.5)));
    assert_eq!(of(b"nobody").hit_ratio, Some(0.0));
    assert_eq!(of(b"large").reads, 0.0);
}

#[test]
fn keys_of_any_bytes_are_told_as_text_and_long_ones_by_their_beginning() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let long = "l".repeat(1000);
    let odd = "<b>\u{2028}\u{0}\"',;=\r\n %";
    let asks = [resp(&["GET", odd]), resp(&["GET", odd]), resp(&["GET", &long])];
    sampled.tick(&mut session, asks.concat().as_bytes());
    let stats = sampled.bench.ask("stats hotkeys\r\n");
    assert!(
        stats.starts_with("STAT seconds 0.1\r\nSTAT requests 3\r\nSTAT samples 3\r\nSTAT 1:key "),
        "{stats}"
    );
    assert!(stats.contains("STAT 1:key %3Cb%3E%E2%80%A8%00%22%27%2C%3B%3D%0D%0A%20%25\r\n"), "{stats}");
    assert!(stats.contains("STAT 1:share 0.6667\r\nSTAT 1:error 0.0000\r\n"), "{stats}");
    assert!(
        stats.contains(&format!("STAT 2:key {}\r\nSTAT 2:key_bytes 1000\r\n", "l".repeat(250))),
        "{stats}"
    );
    let mut session = Session::new();
    let (info, _) = sampled.bench.run(&mut session, resp(&["INFO", "hotkeys"]).as_bytes(), 1000);
    let info = String::from_utf8_lossy(&info);
    assert!(
        info.contains("# Hotkeys\r\nhotkeys_sampled:1\r\n") && info.contains("hotkey_1:key=%3Cb%3E"),
        "{info}"
    );
    let (all, _) = sampled.bench.run(&mut session, resp(&["INFO", "everything"]).as_bytes(), 1000);
    assert!(!String::from_utf8_lossy(&all).contains("hotkey_"));
}

#[test]
fn where_keys_may_not_be_listed_hot_ones_are_not() {
    let mut bench = Bench::new(Settings { dump: false, ..Settings::default() });
    bench.shared.show_traffic(bench.worker.store(), 1, 0);
    assert_eq!(
        bench.ask("get secret\r\nstats hotkeys\r\n"),
        "END\r\nCLIENT_ERROR stats hotkeys not allowed\r\n"
    );
    assert_eq!(bench.ask("stats prefixes\r\n"), "CLIENT_ERROR stats prefixes not allowed\r\n");
    let mut session = Session::new();
    let (said, _) = bench.run(&mut session, resp(&["HOTKEYS", "GET"]).as_bytes(), 1000);
    assert!(said.starts_with(b"-ERR 'hotkeys|get' is not allowed"), "{}", String::from_utf8_lossy(&said));
    let (info, _) = bench.run(&mut session, resp(&["INFO", "hotkeys"]).as_bytes(), 1000);
    assert!(info.ends_with(b"# Hotkeys\r\n\r\n"), "{}", String::from_utf8_lossy(&info));
}

#[test]
fn a_key_that_was_hot_is_forgotten_and_memory_is_given_back() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    sampled.tick(&mut session, get("once").repeat(50).as_bytes());
    assert_eq!(sampled.hot(9).rows.len(), 1);
    for _ in 0..150 {
        sampled.tick(&mut session, get("since").as_bytes());
    }
    let hot = sampled.hot(9);
    assert_eq!(hot.rows.iter().map(|key| &key.key[..]).collect::<Vec<_>>(), [b"since"]);
    // After a long time without requests it is forgotten at once.
    sampled.now += 60_000;
    sampled.tick(&mut session, get("later").as_bytes());
    assert_eq!(sampled.hot(9).rows.iter().map(|key| &key.key[..]).collect::<Vec<_>>(), [b"later"]);
    sampled.bench.shared.hide_traffic(sampled.bench.worker.store());
    sampled.bench.shared.tend_samples(&sampled.bench.room, sampled.bench.worker.store(), sampled.now);
    assert!(sampled.bench.shared.hot_keys(9).is_none());
    assert_eq!(sampled.bench.ask("stats hotkeys\r\n"), "STAT hotkeys_status disabled\r\nEND\r\n");
    drop(session);
    let store = sampled.bench.worker.store();
    assert_eq!(store.ledger().aside, 0, "{:?}", store.ledger());
}

/// The HTTP thread looks for hot keys every five seconds, and clients ask for them: no look takes memory of
/// its own.
#[test]
fn looking_for_hot_keys_takes_no_memory_for_a_moment() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let keys: String = (0..200).map(|n| get(&format!("prefix-{}:{n}", n % 50))).collect();
    for _ in 0..10 {
        sampled.tick(&mut session, keys.as_bytes());
    }
    sampled.sample_items(3);
    let ledger = || sampled.bench.worker.store().ledger();
    let before = ledger();
    assert!(sampled.hot(9).samples > 0 && sampled.prefixes().samples > 0);
    assert_eq!(ledger(), before);
}

#[test]
fn a_session_tells_what_keys_take_and_ends_in_time() {
    let mut bench = bench();
    let mut session = Session::new();
    let mut ask = |bench: &mut Bench, words: &[&str]| {
        let (said, _) = bench.run(&mut session, resp(words).as_bytes(), 1000);
        String::from_utf8_lossy(&said).into_owned()
    };
    let value = "v".repeat(100);
    assert_eq!(
        ask(&mut bench, &["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "DURATION", "2", "COUNT", "2"]),
        "+OK\r\n"
    );
    for _ in 0..100 {
        ask(&mut bench, &["GET", "product:1"]);
        ask(&mut bench, &["SET", "large", &value]);
    }
    bench.host.look_us.store(7, Relaxed);
    ask(&mut bench, &["LRANGE", "a-list", "0", "-1"]);
    bench.host.look_us.store(0, Relaxed);
    let told = ask(&mut bench, &["HOTKEYS", "GET"]);
    assert!(told.starts_with("*1\r\n*24\r\n$15\r\ntracking-active\r\n:1\r\n"), "{told}");
    // Bytes of *3│$3│SET│$5│large│$100│… and +OK; of *2│$3│GET│$9│product:1 and a null.
    let net = "$12\r\nby-net-bytes\r\n*4\r\n$5\r\nlarge\r\n:13700\r\n$9\r\nproduct:1\r\n:3300\r\n";
    assert!(told.ends_with(net), "{told}");
    bench.host.clock_us.fetch_add(2_000_000, Relaxed);
    let told = ask(&mut bench, &["HOTKEYS", "GET"]);
    assert!(
        told.contains("tracking-active\r\n:0\r\n") && told.contains("collection-duration-ms\r\n:2000\r\n"),
        "{told}"
    );
    ask(&mut bench, &["GET", "after"]);
    assert!(!ask(&mut bench, &["HOTKEYS", "GET"]).contains("after"));
    assert_eq!(ask(&mut bench, &["HOTKEYS", "STOP"]), "$-1\r\n");
    let used = bench.worker.store().used_bytes();
    assert_eq!(ask(&mut bench, &["HOTKEYS", "RESET"]), "+OK\r\n");
    assert_eq!(ask(&mut bench, &["HOTKEYS", "GET"]), "$-1\r\n");
    assert!(bench.worker.store().used_bytes() < used);
}

#[test]
fn a_multiget_of_many_keys_is_sampled_within_bounds() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let keys: Vec<String> = (0..20_000).map(|n| format!("k{n}")).collect();
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(|key| &key[..]));
    sampled.tick(&mut session, resp(&words).as_bytes());
    // One tick counts only some of the samples.
    sampled.tick(&mut session, b"");
    let hot = sampled.hot(9);
    assert!(hot.rows.is_empty(), "none is hot: {hot:?}");
    assert!(hot.samples < 1400, "{hot:?}");
    // Each server draws its own samples: in less than one of a million is the estimate outside.
    assert!((12_000..33_000).contains(&hot.all), "{hot:?}");
}

/// The command is refused before it looks up any key.
#[test]
fn keys_of_a_command_that_has_too_many_are_not_sampled() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let keys: Vec<String> = (0..=16 << 10).map(|n| format!("many:{n}")).collect();
    let mut words = vec!["SUNION"];
    words.extend(keys.iter().map(|key| &key[..]));
    let (refused, _) = sampled.bench.run(&mut session, resp(&words).as_bytes(), usize::MAX);
    assert_eq!(String::from_utf8_lossy(&refused), "-ERR too many keys\r\n");
    sampled.tick(&mut session, resp_get("one:1").as_bytes());
    let stats = sampled.bench.ask("stats prefixes\r\n");
    for line in ["1:prefix one%3A", "1:share 1.0000", "requests 1", "samples 1"] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    }
    assert!(!stats.contains("many"), "{stats}");
}

#[test]
fn what_prefixes_take_is_within_its_errors() {
    // Prefix, its part of the requests, the part of its reads that hit, and bytes of a value.
    let kinds =
        [("user:", 0.6, 0.9, 40), ("page/", 0.25, 0.5, 900), ("s_", 0.1, 0.0, 10), ("plain", 0.05, 1.0, 5)];
    let (mut sampled, mut random) = (Sampled::new(), Random(3));
    let mut session = Session::new();
    let mut stores = String::new();
    for (prefix, _, _, bytes) in kinds {
        for n in 0..100 {
            stores.push_str(&format!("set {prefix}{n:02} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes)));
        }
    }
    sampled.tick(&mut session, stores.as_bytes());
    // Until the sets are forgotten.
    sampled.now += 60_000;
    let (mut counts, mut hits, mut replied) = ([0u64; 4], [0u64; 4], [0u64; 4]);
    let mut all = 0u64;
    for _ in 0..100 {
        let mut input = String::new();
        for _ in 0..20_000 {
            let mut at = random.uniform();
            let kind = kinds
                .iter()
                .position(|kind| {
                    at -= kind.1;
                    at < 0.0
                })
                .unwrap_or(0);
            let (prefix, _, ratio, bytes) = kinds[kind];
            let found = random.uniform() < ratio;
            let key = format!("{prefix}{}", if found { "77" } else { "no" });
            counts[kind] += 1;
            hits[kind] += u64::from(found);
            // About the bytes of get k│ and END│; a hit adds VALUE k 0 n│…│.
            replied[kind] +=
                key.len() as u64 + 11 + if found { key.len() as u64 + bytes as u64 + 17 } else { 0 };
            all += 1;
            input.push_str(&get(&key));
        }
        sampled.tick(&mut session, input.as_bytes());
    }
    let told = sampled.prefixes();
    assert!(told.samples * 20 < told.all, "{} samples of {}", told.samples, told.all);
    assert_eq!(told.rows.len(), 4);
    for (kind, (name, ..)) in kinds.iter().enumerate() {
        let named = (*name != "plain").then_some(name.as_bytes());
        let row = told.rows.iter().find(|row| row.prefix.as_deref() == named).expect("it is listed");
        let share = counts[kind] as f64 / all as f64;
        // By chance, a figure is off by more than its error now and then, but by no more than twice its
        // error.
        let off = (row.share - share).abs();
        assert!(off <= 2.0 * row.error && row.error < 0.05, "{name}: {share}: {row:?}");
        let ratio = hits[kind] as f64 / counts[kind] as f64;
        let told = row.hit_ratio.expect("it was read");
        assert!(
            (told - ratio).abs() <= 2.0 * row.hit_ratio_error && row.hit_ratio_error < 0.25,
            "{name}: {ratio}: {row:?}"
        );
        // The figures are of ten seconds, the time of all requests. The bytes of requests and replies are
        // estimates.
        let bytes = replied[kind] as f64 / 10.0;
        let off = (row.bytes_per_second - bytes).abs();
        assert!(
            off <= 2.0 * row.bytes_error + 0.1 * bytes && row.bytes_error < bytes,
            "{name}: {bytes}: {row:?}"
        );
        assert!((row.reads, row.deletes) == (1.0, 0.0), "{row:?}");
        let misses = row.per_second * (1.0 - told);
        assert!((row.misses_per_second - misses).abs() < 1e-6 * misses + 1e-9, "{row:?}");
    }
}

#[test]
fn prefixes_are_told_in_both_protocols_and_each_is_counted_where_there_are_few() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let asks = [
        resp(&["SET", "<b>\u{0}:1", "12345"]),
        resp(&["GET", "<b>\u{0}:1"]),
        resp(&["GET", "<b>\u{0}:2"]),
        resp(&["DEL", "plain"]),
        resp(&["SELECT", "3"]),
        resp(&["SET", "a:b:c", "123"]),
    ];
    sampled.tick(&mut session, asks.concat().as_bytes());
    let stats = sampled.bench.ask("stats prefixes\r\n");
    let first =
        "STAT 1:prefix %3Cb%3E%00%3A\r\nSTAT 1:db 0\r\nSTAT 1:share 0.6000\r\nSTAT 1:error 0.0000\r\n";
    assert!(stats.contains(first), "{stats}");
    for line in [
        "1:bytes_error 0.0000",
        "1:reads 0.6667",
        "1:deletes 0.0000",
        "1:hit_ratio 0.5000",
        "1:hit_ratio_error 0.0000",
        "1:value_bytes 5.0000",
        "2:prefix -",
        "2:deletes 1.0000",
        "3:prefix a%3A",
        "3:db 3",
        "requests 5",
        "samples 5",
    ] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    }
    assert!(!stats.contains("2:hit_ratio"), "{stats}");
    let mut session = Session::new();
    let (info, _) = sampled.bench.run(&mut session, resp(&["INFO", "prefixes"]).as_bytes(), 1000);
    let info = String::from_utf8_lossy(&info);
    assert!(
        info.contains("# Prefixes\r\nprefixes_sampled:1\r\n")
            && info.contains("prefix_1:prefix=%3Cb%3E%00%3A,db=0,share=0.6000,"),
        "{info}"
    );
    let (all, _) = sampled.bench.run(&mut session, resp(&["INFO", "everything"]).as_bytes(), 1000);
    assert!(!String::from_utf8_lossy(&all).contains("prefix_1"));
}

#[test]
fn many_prefixes_take_no_more_memory_than_is_said_and_those_of_much_are_told() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    let mut random = Random(11);
    for tick in 0..60 {
        let mut input = String::new();
        for _ in 0..2_000 {
            // A tenth of the keys has one prefix. Each other key has a long prefix of its own.
            let key =
                if random.uniform() < 0.1 { "one:x".to_owned() } else { format!("{:0200}:x", random.next()) };
            input.push_str(&get(&key));
        }
        sampled.tick(&mut session, input.as_bytes());
        if tick > 45 {
            let told = sampled.prefixes();
            let names: Vec<_> = told.rows.iter().map(|row| row.prefix.as_deref()).collect();
            assert_eq!(names.first(), Some(&Some(&b"one:"[..])), "at {tick}: {names:?}");
            // These looks see nearly the same samples. The error is two and a half standard errors: chance
            // exceeds it, but not twice as much.
            let row = &told.rows[0];
            assert!((row.share - 0.1).abs() <= 2.0 * row.error, "{row:?}");
        }
    }
    // Each of three tables has 128 prefixes at `-m 64`, each of 128 bytes and the prefix, and as many keys. A
    // look through the tables takes 240 bytes an entry.
    let store = sampled.bench.worker.store();
    let (aside, ring) = (store.ledger().aside, 64 << 10);
    assert!(aside < ring + 3 * 256 * (128 + 250 + 240) + (200 << 10), "{aside}");
    sampled.bench.shared.hide_traffic(store);
    sampled.bench.shared.tend_samples(&sampled.bench.room, store, sampled.now);
    assert!(sampled.bench.shared.prefix_shares(9).is_none());
    drop(session);
    assert_eq!(sampled.bench.worker.store().ledger().aside, 0);
    assert_eq!(sampled.bench.ask("stats prefixes\r\n"), "STAT prefixes_status disabled\r\nEND\r\n");
}

impl Sampled {
    /// Samples items so many times, every 100 ms.
    fn sample_items(&mut self, times: usize) {
        for _ in 0..times {
            self.now += 100;
            let now = self.bench.shared.now(self.bench.system);
            let mut guard = self.bench.worker.enter(now);
            self.bench.shared.sample_items(&mut guard, self.now);
        }
    }
}

#[test]
fn what_is_there_is_told_by_time_within_its_errors() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    assert!(sampled.bench.shared.ages().is_none(), "nothing was looked at");
    // Seconds to live (0: no expiry), number of items, and bytes of a value.
    let kinds =
        [(5, 2_000, 10), (300, 4_000, 200), (100_000, 3_000, 50), (200_000, 1_000, 2_000), (0, 10_000, 20)];
    for (kind, (seconds, count, bytes)) in kinds.iter().enumerate() {
        let value = "v".repeat(*bytes);
        let sets: String =
            (0..*count).map(|n| format!("set {kind}-{n} 0 {seconds} {bytes}\r\n{value}\r\n")).collect();
        sampled.bench.run(&mut session, sets.as_bytes(), 64 << 10);
    }
    // Bytes of a kind's items, with header, key, value and expiry.
    let bytes_of = |sampled: &mut Sampled, kind: usize| {
        let all = sampled.bench.worker.store().totals().item_bytes as f64;
        let own = kinds.map(|(seconds, count, bytes)| {
            let expiry = if seconds > 0 { 4.0 } else { 0.0 };
            f64::from(count) * (bytes as f64 + expiry + 16.0)
        });
        own[kind] / own.iter().sum::<f64>() * all
    };
    sampled.sample_items(200);
    let ages = sampled.bench.shared.ages().expect("it was looked at");
    assert!(!ages.whole && (8_000..20_000).contains(&ages.items), "{}", ages.items);
    let all = sampled.bench.worker.store().totals().item_bytes as f64;
    for (kind, within) in [(0, "10s"), (1, "10m"), (2, "more"), (4, "never")] {
        let part = ages.left.iter().find(|part| part.within == within).expect("a part");
        let mut share = bytes_of(&mut sampled, kind) / all;
        if within == "more" {
            share += bytes_of(&mut sampled, 3) / all;
        }
        // The headers' bytes are an estimate.
        let off = (part.share - share).abs();
        assert!(off <= part.error + 0.03 && part.error < 0.08, "{within}: {share}: {part:?}");
    }
    for empty in ["1m", "1h", "1d"] {
        let part = ages.left.iter().find(|part| part.within == empty).expect("a part");
        assert!(part.share == 0.0 && part.error > 0.0, "{part:?}");
    }
    assert!((ages.left.iter().map(|part| part.share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!((ages.idle[0].share, ages.unread.share) == (1.0, 1.0), "{ages:?}");
    // 50 seconds later some items have expired, and others were read.
    sampled.bench.system += 50_000;
    let gets: String = (0..10_000).map(|n| format!("get 4-{n}\r\n")).collect();
    sampled.bench.run(&mut session, gets.as_bytes(), 64 << 10);
    sampled.sample_items(400);
    let ages = sampled.bench.shared.ages().expect("it was looked at");
    assert!(ages.left[0].share == 0.0 && ages.left[0].items == 0.0, "{:?}", ages.left);
    let read = ages.left.iter().find(|part| part.within == "never").expect("a part").share;
    assert!((ages.idle[0].share - read).abs() < 1e-9 && (ages.unread.share + read - 1.0).abs() < 1e-9);
    assert!((ages.idle[1].share + read - 1.0).abs() < 1e-9, "{:?}", ages.idle);
    sampled.bench.shared.hide_traffic(sampled.bench.worker.store());
    assert!(sampled.bench.shared.ages().is_none());
}

#[test]
fn few_items_are_looked_at_whole_each_time() {
    let mut sampled = Sampled::new();
    sampled.bench.ask("set a 0 0 10\r\n0123456789\r\nset b 0 30 10\r\n0123456789\r\n");
    for _ in 0..3 {
        sampled.sample_items(1);
        let ages = sampled.bench.shared.ages().expect("it was looked at");
        assert!(ages.whole && ages.items == 2, "{ages:?}");
        assert!(ages.left.iter().chain(&ages.idle).all(|part| part.error == 0.0), "{ages:?}");
        assert!(ages.left[1].share > 0.4 && ages.left[6].share > 0.4, "{:?}", ages.left);
    }
    sampled.bench.ask("delete a\r\ndelete b\r\n");
    sampled.sample_items(1);
    assert!(sampled.bench.shared.ages().is_none());
}

#[test]
fn what_prefixes_take_of_the_memory_is_told_and_those_that_nobody_asks_for_too() {
    let mut sampled = Sampled::new();
    let mut session = Session::new();
    for (prefix, count, bytes) in [("asked:", 6_000, 40), ("idle/", 3_000, 900), ("small_", 3_000, 10)] {
        let value = "v".repeat(bytes);
        let sets: String =
            (0..count).map(|n| format!("set {prefix}{n} 0 0 {bytes}\r\n{value}\r\n")).collect();
        sampled.bench.run(&mut session, sets.as_bytes(), 64 << 10);
    }
    // Until the sets are forgotten.
    sampled.tick(&mut session, b"");
    sampled.now += 60_000;
    for n in 0..20 {
        let gets: String = (0..500).map(|of| get(&format!("asked:{}", n * 100 + of))).collect();
        sampled.tick(&mut session, gets.as_bytes());
        sampled.sample_items(10);
    }
    let told = sampled.prefixes();
    let of = |name: &str| {
        let row = told.rows.iter().find(|row| row.prefix.as_deref() == Some(name.as_bytes()));
        row.unwrap_or_else(|| panic!("{name}: {told:?}"))
    };
    let bytes = |name: &str, count: usize, value: usize| (count * (name.len() + 4 + 10 + value)) as f64;
    let all = bytes("asked:", 6_000, 40) + bytes("idle/", 3_000, 900) + bytes("small_", 3_000, 10);
    for (name, count, value) in [("asked:", 6_000, 40), ("idle/", 3_000, 900)] {
        let (share, error) = of(name).memory.expect("it stands out");
        let expected = bytes(name, count, value) / all;
        // The headers' bytes are an estimate.
        assert!(
            (share - expected).abs() <= error + 0.02 && error < 0.1,
            "{name}: {expected}: {share} ± {error}"
        );
    }
    assert!((of("asked:").share, of("asked:").hit_ratio) == (1.0, Some(1.0)), "{told:?}");
    let idle = of("idle/");
    assert!(idle.share == 0.0 && idle.error < 0.01 && idle.hit_ratio.is_none(), "{idle:?}");
    assert_eq!(told.rows[0].prefix.as_deref(), Some(&b"asked:"[..]));
    let stats = sampled.bench.ask("stats prefixes\r\n");
    assert!(
        stats.contains("STAT 2:prefix idle%2F\r\n") && stats.contains("STAT 2:memory_share 0."),
        "{stats}"
    );
    // Items that are gone have no share.
    sampled.bench.ask("flush_all\r\n");
    for _ in 0..40 {
        sampled.sample_items(100);
    }
    let told = sampled.prefixes();
    assert!(told.rows.iter().all(|row| row.memory.is_none_or(|(share, _)| share == 0.0)), "{told:?}");
    let store = sampled.bench.worker.store();
    sampled.bench.shared.hide_traffic(store);
    sampled.bench.shared.tend_samples(&sampled.bench.room, store, sampled.now);
    drop(session);
    assert_eq!(sampled.bench.worker.store().ledger().aside, 0);
}

/// The doctor's findings after traffic of both protocols. `small`, `large`: replies in a tick of
/// `small_bytes` and of 200 KiB.
fn doctor_of(small: usize, small_bytes: usize, large: usize) -> String {
    let mut sampled = Sampled::new();
    let (mut text, mut redis) = (Session::new(), Session::new());
    let set = |key: &str, bytes: usize| format!("set {key} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes));
    let sets = set("small", small_bytes) + &set("large", 200 << 10);
    sampled.bench.run(&mut text, sets.as_bytes(), 1 << 20);
    // The sets are no part of that traffic.
    sampled.tick(&mut text, b"");
    sampled.now += 60_000;
    for tick in 0..60 {
        let (session, get): (_, Ask) = if tick % 2 == 0 { (&mut text, get) } else { (&mut redis, resp_get) };
        sampled.tick(session, (get("small").repeat(small) + &get("large").repeat(large)).as_bytes());
    }
    sampled.bench.ask("stats doctor\r\n")
}

#[test]
fn large_replies_are_found_where_they_are_much_of_what_is_sent() {
    // 400 of 800 KiB a tick are large replies: 4 MiB a second.
    let found = doctor_of(400, 1000, 2);
    assert!(found.contains("STAT large-values:evidence ") && found.contains(" above 100 KiB\r\n"), "{found}");
    // Many replies, of which the large one is 200 KiB of 2 MiB: too small a part.
    assert!(!doctor_of(1000, 2000, 1).contains("large-values"));
    // Some ten kilobytes a second, without a large reply.
    assert!(!doctor_of(10, 100, 0).contains("large-values"));
}
