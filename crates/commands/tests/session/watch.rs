//! watch: lines as memcached 1.6.45 writes them, for watchers that read them and for those that do not.

use crate::{Bench, bench};
use larder_commands::{Session, Settings};
use larder_store::{Attributes, Expect};
use std::sync::atomic::Ordering::Relaxed;

/// A connection that watches these.
pub fn watcher(bench: &mut Bench, streams: &str) -> Session {
    let mut session = Session::new();
    let (said, closed) = bench.run(&mut session, format!("watch {streams}\r\n").as_bytes(), 1000);
    assert_eq!((&said[..], closed), (&b"OK\r\n"[..], false));
    session
}

/// The lines that it is sent now, without their times and numbers.
pub fn told(bench: &mut Bench, watcher: &mut Session) -> Vec<String> {
    // What is said on it is not listened to.
    let (lines, closed) = bench.run(watcher, b"get a\r\n", 1000);
    assert!(!closed);
    let lines = String::from_utf8(lines).expect("text");
    let line = |line: &str| match line.split_once(" type=") {
        Some((head, rest)) => {
            let (ts, gid) = head.split_once(' ').expect("a time and a number");
            let (s, us) = ts.strip_prefix("ts=").and_then(|ts| ts.split_once('.')).expect("a time");
            assert!(s.len() == 10 && us.len() == 6, "{ts}");
            assert!(gid.strip_prefix("gid=").is_some_and(|gid| gid.parse::<u64>().is_ok()), "{gid}");
            format!("type={rest}")
        }
        None => line.to_owned(),
    };
    lines.lines().map(line).collect()
}

#[test]
fn lines_are_memcacheds() {
    let mut bench = bench();
    let mut watcher = watcher(&mut bench, "fetchers mutations deletions");
    let get = |key: &str, status: &str, class: u8, size: u64| {
        format!("type=item_get key={key} status={status} clsid={class} cfd=7 size={size}")
    };
    let store = |key: &str, status: &str, cmd: &str, ttl: u64, size: u64| {
        format!("type=item_store key={key} status={status} cmd={cmd} ttl={ttl} clsid=1 cfd=7 size={size}")
    };
    let deleted =
        |key: &str, cmd: &str, size: u64| format!("type=deleted key={key} cmd={cmd} clsid=1 size={size}");
    let (hit, miss) = (|key: &str, size| get(key, "found", 1, size), |key: &str| get(key, "not_found", 0, 0));
    let large = format!("set big 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000));
    let long = format!("set long 0 0 300000\r\n{}\r\n", "x".repeat(300_000));
    let cases: Vec<(&str, Vec<String>)> = vec![
        ("get nokey\r\n", vec![miss("nokey")]),
        ("set a 0 0 5\r\nhello\r\n", vec![miss("a"), store("a", "stored", "set", 0, 5)]),
        ("set a 5 100 3\r\nabc\r\n", vec![hit("a", 5), store("a", "stored", "set", 100, 3)]),
        ("get a b\r\n", vec![hit("a", 3), miss("b")]),
        ("gets a\r\n", vec![hit("a", 3)]),
        ("gat 0 a\r\n", vec![hit("a", 3)]),
        ("add a 0 0 1\r\nx\r\n", vec![hit("a", 3), store("a", "not_stored", "add", 0, 1)]),
        ("add n 0 0 1\r\n5\r\n", vec![miss("n"), store("n", "stored", "add", 0, 1)]),
        ("replace zz 0 0 1\r\nx\r\n", vec![miss("zz"), store("zz", "not_stored", "replace", 0, 1)]),
        ("append a 0 0 1\r\nx\r\n", vec![hit("a", 3), store("a", "stored", "append", 0, 4)]),
        ("append zz 0 0 1\r\nx\r\n", vec![miss("zz"), store("zz", "not_stored", "append", 0, 1)]),
        ("cas a 0 0 1 1\r\nx\r\n", vec![hit("a", 4), store("a", "exists", "cas", 0, 1)]),
        ("cas zz 0 0 1 1\r\nx\r\n", vec![miss("zz"), store("zz", "not_found", "cas", 0, 1)]),
        ("incr n 1\r\n", vec![hit("n", 1)]),
        ("incr n 100\r\nincr zz 1\r\n", vec![hit("n", 1), miss("zz")]),
        ("touch a 0\r\ntouch zz 0\r\n", vec![hit("a", 4), miss("zz")]),
        ("delete zz\r\n", vec![miss("zz")]),
        ("delete n\r\n", vec![hit("n", 3), deleted("n", "delete", 3)]),
        ("mg a v\r\nmg zz v\r\nmn\r\nme a\r\n", vec![hit("a", 4), miss("zz"), hit("a", 4)]),
        ("ms b 2\r\nhi\r\n", vec![miss("b"), store("b", "stored", "set", 0, 2)]),
        ("ms b 2 MA\r\nhi\r\n", vec![hit("b", 2), store("b", "stored", "append", 0, 4)]),
        ("ms b 2 T30\r\nhi\r\n", vec![hit("b", 4), store("b", "stored", "set", 30, 2)]),
        ("ms c 2 ME\r\nhi\r\n", vec![miss("c"), store("c", "stored", "add", 0, 2)]),
        ("ms c 2 MR\r\nhi\r\n", vec![hit("c", 2), store("c", "stored", "replace", 0, 2)]),
        ("ms zz 2 MR\r\nhi\r\n", vec![miss("zz"), store("zz", "not_stored", "replace", 0, 2)]),
        ("ms b 1 C1\r\nx\r\n", vec![hit("b", 2), store("b", "exists", "cas", 0, 1)]),
        ("md b I\r\n", vec![hit("b", 2)]),
        ("md b\r\n", vec![hit("b", 2), deleted("b", "md", 2)]),
        ("md zz\r\n", vec![miss("zz")]),
        (
            "ma ctr N0 J13\r\nma ctr\r\n",
            vec![miss("ctr"), store("ctr", "stored", "add", 0, 2), hit("ctr", 2)],
        ),
        ("set k%20y 0 0 1\r\nx\r\n", vec![miss("k%2520y"), store("k%2520y", "stored", "set", 0, 1)]),
        ("mg Zm9vIGJhcg== b v\r\n", vec![miss("foo%20bar")]),
        (&large, vec!["type=item_store key=big status=too_large cmd=set ttl=0 clsid=0 cfd=7 size=0".into()]),
        (
            &long,
            vec![
                miss("long"),
                "type=item_store key=long status=stored cmd=set ttl=0 clsid=31 cfd=7 size=300000".into(),
            ],
        ),
        ("set s 0 1 1\r\nx\r\n", vec![miss("s"), store("s", "stored", "set", 1, 1)]),
        ("set over 0 -1 1\r\nx\r\n", vec![miss("over"), store("over", "stored", "set", 0, 1)]),
        ("version\r\nverbosity 1\r\n", vec![]),
    ];
    for (request, lines) in cases {
        bench.ask(request);
        let shown = &request[..request.len().min(60)];
        let mut found = told(&mut bench, &mut watcher);
        if shown.starts_with("set long") {
            // The class of large values is not memcached's.
            let class =
                found[1].split_once("clsid=").expect("a class").1.split_once(' ').expect("more").0.to_owned();
            found[1] = found[1].replace(&format!("clsid={class} "), "clsid=31 ");
        }
        assert_eq!(found, lines, "{shown:?}");
    }
    bench.system += 2000;
    bench.ask("get s\r\nflush_all\r\n");
    assert_eq!(told(&mut bench, &mut watcher), [get("s", "expired", 0, 0)]);
    assert_eq!(bench.counted(larder_commands::Counter::GetExpired), 1, "it is counted as without a watcher");
    bench.system += 2000;
    bench.ask("get a\r\n");
    assert_eq!(told(&mut bench, &mut watcher), [get("a", "flushed", 0, 0)]);
}

#[test]
fn times_of_lines_do_not_fall_and_follow_a_time_of_day_that_is_set() {
    let mut bench = bench();
    let mut watcher = watcher(&mut bench, "fetchers");
    let mut times = |bench: &mut Bench| -> Vec<u64> {
        let (lines, closed) = bench.run(&mut watcher, b"get a\r\n", 1000);
        assert!(!closed);
        let lines = String::from_utf8(lines).expect("text");
        let time = |line: &str| line.split_once(' ')?.0.strip_prefix("ts=")?.replace('.', "").parse().ok();
        lines.lines().map(|line| time(line).expect("a time")).collect()
    };
    // 300 requests at one time of day.
    bench.host.look_us.store(10, Relaxed);
    bench.ask(&"get k\r\n".repeat(300));
    let first = times(&mut bench);
    assert_eq!(first.len(), 300);
    assert!(first.is_sorted(), "{first:?}");
    assert_eq!(first[0] / 1000, bench.shared.now(bench.system));
    bench.system += 60_000;
    bench.ask("get k\r\n");
    let [later] = times(&mut bench)[..] else { panic!("one line") };
    assert_eq!(later / 1000, bench.shared.now(bench.system));
}

#[test]
fn what_redis_clients_do_is_told_too() {
    let mut bench = bench();
    let mut watcher = watcher(&mut bench, "fetchers mutations deletions");
    let mut session = Session::new();
    let ask = |bench: &mut Bench, session: &mut Session, words: &[&str]| {
        let bulk: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        bench.run(session, format!("*{}\r\n{bulk}", words.len()).as_bytes(), 1000);
    };
    for words in [&["SET", "a", "xyz", "EX", "9"][..], &["MGET", "a", "b"], &["DEL", "a", "b"], &["PING"]] {
        ask(&mut bench, &mut session, words);
    }
    let expected = [
        "type=item_store key=a status=stored cmd=set ttl=9 clsid=1 cfd=7 size=3",
        "type=item_get key=a status=found clsid=1 cfd=7 size=3",
        "type=item_get key=b status=not_found clsid=0 cfd=7 size=0",
        "type=deleted key=a cmd=del clsid=1 size=3",
    ];
    assert_eq!(told(&mut bench, &mut watcher), expected);
}

#[test]
fn each_is_told_what_it_watches_and_nothing_when_it_has_gone() {
    let mut bench = bench();
    let aside = |bench: &Bench| bench.worker.store().held_bytes();
    let before = aside(&bench);
    let (mut gets, mut all) = (watcher(&mut bench, ""), watcher(&mut bench, "fetchers mutations"));
    let mut rest = watcher(&mut bench, "sysevents rawcmds proxyreqs proxyevents proxyuser connevents");
    bench.ask("set a 0 0 1\r\nx\r\n");
    assert_eq!(told(&mut bench, &mut gets).len(), 1);
    assert_eq!(told(&mut bench, &mut all).len(), 2);
    assert!(told(&mut bench, &mut rest).is_empty());
    let stats = bench.ask("stats\r\n");
    for line in ["STAT log_watchers 3", "STAT log_watcher_sent 3", "STAT log_watcher_skipped 0"] {
        assert!(stats.lines().any(|found| found == line), "{line}");
    }
    bench.ask("set a 0 0 1\r\nx\r\n");
    assert!(aside(&bench) > before, "what waits is charged");
    drop((gets, all, rest));
    assert_eq!(aside(&bench), before);
    bench.ask("get a\r\n");
    assert!(bench.ask("stats\r\n").contains("STAT log_watchers 0\r\n"));
    for bad in ["watch nobody\r\n", "watch fetchers x\r\n", "watch FETCHERS\r\n"] {
        assert_eq!(bench.ask(bad), "ERROR\r\n", "{bad}");
    }
    let held: Vec<Session> = (0..20).map(|_| watcher(&mut bench, "evictions")).collect();
    assert_eq!(bench.ask("watch\r\n"), "WATCHER_TOO_MANY log watcher limit reached\r\n");
    drop(held);
    assert_eq!(bench.ask("watch\r\n"), "OK\r\n");
    let mut bench = Bench::new(Settings { watch: false, ..Settings::default() });
    assert_eq!(bench.ask("watch\r\n"), "CLIENT_ERROR watch commands not allowed\r\n");
}

#[test]
fn who_does_not_read_loses_lines_and_is_told_how_many() {
    let mut bench = Bench::new(Settings { watch_bytes_max: 4096, ..Settings::default() });
    let mut slow = watcher(&mut bench, "fetchers");
    let before = bench.worker.store().held_bytes();
    for _ in 0..1000 {
        bench.ask("get a\r\n");
    }
    assert!(bench.worker.store().held_bytes() - before <= 4096);
    let (lines, _) = bench.run(&mut slow, b"x", 1000);
    let text = String::from_utf8(lines).expect("text");
    let there = text.lines().count() - 1;
    let skipped = format!("skipped={}\n", 1000 - there);
    assert!(text.len() <= 4096 + skipped.len() && text.ends_with(&skipped), "{text}");
    assert_eq!(text.matches("skipped").count(), 1);
    bench.ask("get a\r\n");
    assert_eq!(told(&mut bench, &mut slow).len(), 1);
    assert!(bench.ask("stats\r\n").contains(&format!("STAT log_watcher_skipped {}\r\n", 1000 - there)));
}

#[test]
fn evictions_are_told_with_what_was_lost() {
    let mut bench = Bench::of(Settings::default(), 2 << 20);
    let mut watcher = watcher(&mut bench, "evictions");
    let value = "v".repeat(10_000);
    for n in 0..1000 {
        bench.ask(&format!("set k{n} 0 {} 10000\r\n{value}\r\n", n % 2 * 100));
    }
    let lines = told(&mut bench, &mut watcher);
    assert!(lines.len() > 100, "{}", lines.len());
    for line in &lines {
        let n: usize = line
            .strip_prefix("type=eviction key=k")
            .and_then(|rest| rest.split(' ').next())
            .expect("a key")
            .parse()
            .expect("a number");
        let ttl = if n % 2 == 1 { "100" } else { "-1" };
        assert!(
            line.contains(&format!(" fetch=no ttl={ttl} la=0 clsid=")) && line.ends_with(" size=10000"),
            "{line}"
        );
    }
    drop(watcher);
    for n in 0..500 {
        bench.ask(&format!("set z{n} 0 0 10000\r\n{value}\r\n"));
    }
    assert_eq!(bench.ask("stats\r\n").lines().filter(|line| *line == "STAT log_watchers 0").count(), 1);
}

/// The class in a line.
fn class_of(line: &str) -> &str {
    let rest = line.split_once(" clsid=").unwrap_or_else(|| panic!("{line}")).1;
    rest.split(' ').next().expect("a number")
}

#[test]
fn spans_that_classes_give_are_told_as_memcached_tells_pages() {
    let mut bench = Bench::of(Settings::default(), 4 << 20);
    // Names of one length: one of the store's classes.
    let value = "s".repeat(100);
    let small = |n: u32| format!("set small{n:05} 0 0 100\r\n{value}\r\n");
    for group in 0..50 {
        bench.ask(&(0..1000).map(|n| small(1000 * group + n)).collect::<String>());
    }
    let mut watcher = watcher(&mut bench, "mutations sysevents");
    bench.ask(&small(50_000));
    assert_eq!(told(&mut bench, &mut watcher).len(), 1, "one class has all memory");
    let large = "l".repeat(10_000);
    bench.ask(&small(50_001));
    for n in 0..50 {
        bench.ask(&format!("set large{n} 0 0 10000\r\n{large}\r\n"));
    }
    let lines = told(&mut bench, &mut watcher);
    let (moves, stores): (Vec<&String>, Vec<&String>) =
        lines.iter().partition(|line| line.starts_with("type=slab_move "));
    assert_eq!(stores.len(), 51);
    let (from, to) = (class_of(stores[0]), class_of(stores[50]));
    let expected = format!("type=slab_move src={from} dst={to} state=ok");
    assert!(from != to && moves.contains(&&expected), "{expected}: {moves:?}");
    let alike = format!("type=slab_move src={from} dst={to} state=");
    assert!(moves.iter().all(|line| line.starts_with(&alike)), "{moves:?}");
}

#[test]
fn evictions_are_noted_no_longer_when_their_watcher_has_gone_though_another_watches() {
    let mut bench = Bench::of(Settings::default(), 2 << 20);
    let value = "v".repeat(10_000);
    let fill = |bench: &mut Bench, name: &str| {
        for n in 0..500 {
            bench.ask(&format!("set {name}{n} 0 0 10000\r\n{value}\r\n"));
        }
    };
    let _other = watcher(&mut bench, "sysevents");
    let mut evictions = watcher(&mut bench, "evictions");
    fill(&mut bench, "a");
    assert!(told(&mut bench, &mut evictions).len() > 100);
    drop(evictions);
    // The first that is noted without a watcher is the last.
    fill(&mut bench, "b");
    let now = bench.shared.now(bench.system);
    let mut noted = 0;
    for n in 0..500 {
        let name = format!("c{n}");
        let mut guard = bench.worker.enter(now);
        let key = guard.key(name.as_bytes());
        guard.store_value(&key, value.as_bytes(), &Attributes::default(), Expect::Any).expect("room");
        guard.take_events(&mut |_, _, _| noted += 1);
    }
    assert_eq!(noted, 0);
}
