//! What is counted and shown: stats, dumps, slab classes.

use crate::binary::{NOOP, frame, get, set};
use crate::{Bench, bench, talk};
use larder_commands::{Counter, Session, Settings, StageTimes};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn dumps_are_made_in_pieces_and_name_every_key() {
    let mut bench = bench();
    let sets: String = (0..2000).map(|n| format!("set key{n} 0 0 1 noreply\r\nx\r\n")).collect();
    bench.ask(&sets);
    bench.ask("ms Zm9v 1 b\r\nx\r\n");
    bench.limit = 500;
    let dump = bench.ask("lru_crawler metadump all\r\nmn\r\n");
    assert!(dump.starts_with("OK\r\nkey=") && dump.ends_with(" \nEND\r\nMN\r\n"));
    assert_eq!(dump.lines().filter(|line| line.starts_with("key=")).count(), 2001);
    let dump = bench.ask("lru_crawler mgdump hash\r\n");
    assert!(dump.ends_with("EN\r\n"));
    assert!(dump.contains("mg Zm9v b\r\n"));
    assert_eq!(dump.lines().filter(|line| line.starts_with("mg ")).count(), 2001);
    let conns = bench.ask("stats conns\r\n");
    assert_eq!(conns.matches(":addr ").count(), 500);
    assert!(conns.ends_with("END\r\n"));
}

#[test]
fn stats_have_memcacheds_lines() {
    let mut bench = bench();
    bench.ask("set a 0 0 1\r\nx\r\nget a b\r\n");
    let stats = bench.ask("stats\r\n");
    assert_eq!(stats.lines().count(), 94);
    for line in ["STAT cmd_get 2", "STAT get_hits 1", "STAT cmd_set 1", "STAT curr_items 1", "END"] {
        assert!(stats.lines().any(|found| found == line), "{line} in {stats}");
    }
    assert!(bench.ask("stats slabs\r\n").contains(":total_pages 1\r\n"));
    assert!(bench.ask("stats items\r\n").contains(":number 1\r\n"));
    talk(
        &mut bench,
        &[
            ("stats settings\r\n", "STAT maxbytes 67108864\r\nEND\r\n"),
            ("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n"),
            (
                "stats detail on\r\nset p:a 0 0 1\r\nx\r\nget p:a p:b\r\ndelete p:z\r\nstats detail dump\r\n",
                "OK\r\nSTORED\r\nVALUE p:a 0 1\r\nx\r\nEND\r\nNOT_FOUND\r\nPREFIX p get 2 hit 1 set 1 del 1\r\nEND\r\n",
            ),
            ("stats detail x\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
            (
                "stats cachedump 99 1\r\nstats cachedump 1\r\n",
                "CLIENT_ERROR Illegal slab id\r\nCLIENT_ERROR bad command line\r\n",
            ),
            ("stats reset\r\n", "RESET\r\n"),
        ],
    );
    assert!(bench.ask("stats\r\n").contains("STAT cmd_get 0\r\n"));
}

#[test]
fn a_large_value_goes_to_nobody_when_connections_hold_their_share() {
    const NO_MEMORY: &str = "SERVER_ERROR out of memory writing get response\r\n";
    let mut bench = bench();
    let value = "v".repeat(100_000);
    let large = format!("VALUE l 0 100000\r\n{value}\r\n");
    assert_eq!(
        bench.ask(&format!("set l 0 0 100000\r\n{value}\r\nset s 0 0 1\r\nx\r\n")),
        "STORED\r\nSTORED\r\n"
    );
    let store = std::sync::Arc::clone(bench.worker.store());
    let full = store.held_bytes_max() as i64;
    store.hold(full);
    let small = "VALUE s 0 1\r\nx\r\n";
    talk(
        &mut bench,
        &[
            ("get l\r\nmn\r\n", &format!("{NO_MEMORY}MN\r\n")),
            ("get s\r\n", &format!("{small}END\r\n")),
            ("get s l s\r\nget s\r\n", &format!("{NO_MEMORY}{small}END\r\n")),
            ("get l s  \r\nget s s\r\n", &format!("{NO_MEMORY}{small}{small}END\r\n")),
            ("gets s s l\r\ngat 0 s l s\r\nmn\r\n", &format!("{NO_MEMORY}{NO_MEMORY}MN\r\n")),
            ("mg l v\r\nmg l\r\nmg l v k q\r\n", &format!("{NO_MEMORY}HD\r\n{NO_MEMORY}")),
            // More keys than are read ahead at once.
            (
                &format!("get{} l{}\r\nmn\r\n", " s".repeat(40), " s".repeat(100)),
                &format!("{NO_MEMORY}MN\r\n"),
            ),
        ],
    );
    let long = format!("get{} l{}\r\nmn\r\n", " s".repeat(19_000), " l".repeat(9000));
    let replies = String::from_utf8(bench.run(&mut Session::new(), long.as_bytes(), 4096).0).unwrap();
    assert!(replies.ends_with(&format!("{small}{NO_MEMORY}MN\r\n")));
    assert!(!replies.contains("END"));
    store.hold(-full);
    assert_eq!(bench.ask("get l s\r\n"), format!("{large}{small}END\r\n"));
}

/// A figure of `stats <of>`.
fn figure(bench: &mut Bench, of: &str, name: &str) -> u64 {
    let lines = bench.ask(&format!("stats {of}\r\n"));
    let line = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn what_a_pipeline_does_not_find_is_counted_once() {
    let mut bench = bench();
    bench.ask("set s 0 0 1\r\nx\r\n");
    // Some keys are at home where others are away; the answers are the same.
    for n in 0..3_000 {
        assert_eq!(bench.ask(&format!("set fill:{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    let mut before = [0; 3];
    let mut counted = |bench: &mut Bench| {
        let now = ["cmd_get", "get_hits", "get_misses"].map(|name| figure(bench, "", name));
        let since = std::array::from_fn(|i| now[i] - before[i]);
        before = now;
        since
    };
    counted(&mut bench);
    let pairs: String = (0..300).map(|n| format!("get no:{n}\r\nget s\r\n")).collect();
    assert_eq!(bench.ask(&pairs), "END\r\nVALUE s 0 1\r\nx\r\nEND\r\n".repeat(300));
    assert_eq!(counted(&mut bench), [600, 300, 300]);
    let lines: String = (0..100).map(|n| format!("get no:{n} s no2:{n}\r\n")).collect();
    assert_eq!(bench.ask(&lines), "VALUE s 0 1\r\nx\r\nEND\r\n".repeat(100));
    assert_eq!(counted(&mut bench), [300, 100, 200]);
    let metas: String = (0..100).map(|n| format!("mg no:{n} v\r\nmg s v\r\n")).collect();
    assert_eq!(bench.ask(&metas), "EN\r\nVA 1\r\nx\r\n".repeat(100));
    assert_eq!(counted(&mut bench), [200, 100, 100]);
    // A line that turns out at its end to be none is counted as where nothing was read ahead.
    let line = format!("get s\r\nget{} {}\r\n", " s no".repeat(30), "x".repeat(300));
    let ahead = bench.ask(&line);
    let [gets, hits, misses] = counted(&mut bench);
    let one_by_one = String::from_utf8(bench.run(&mut Session::new(), line.as_bytes(), 1).0).unwrap();
    assert_eq!(ahead, one_by_one);
    assert_eq!([gets, hits, misses], counted(&mut bench));
}

#[test]
fn a_page_that_is_moved_leaves_its_items_where_there_is_room() {
    const ITEMS: u64 = 20_000;
    let mut bench = bench();
    for n in 0..ITEMS {
        assert_eq!(bench.ask(&format!("set key:{n:06} 0 0 200\r\n{n:0200}\r\n")), "STORED\r\n");
    }
    let pages = figure(&mut bench, "slabs", "5:total_pages");
    let [used, free, total] =
        ["used", "free", "total"].map(|name| figure(&mut bench, "slabs", &format!("5:{name}_chunks")));
    assert_eq!((used, used + free), (ITEMS, total));
    assert_eq!(figure(&mut bench, "items", "items:5:number"), ITEMS);
    // Header 8, key 10, value 200.
    assert_eq!(figure(&mut bench, "items", "items:5:mem_requested"), ITEMS * 218);
    talk(&mut bench, &[("slabs reassign 5 9\r\nslabs reassign 5 0\r\n", "OK\r\nOK\r\n")]);
    assert_eq!(figure(&mut bench, "slabs", "9:total_pages"), 1);
    assert!(figure(&mut bench, "", "slabs_moved") >= 32);
    for n in 0..ITEMS {
        let expected = format!("VALUE key:{n:06} 0 200\r\n{n:0200}\r\nEND\r\n");
        assert_eq!(bench.ask(&format!("get key:{n:06}\r\n")), expected);
    }
    assert!(figure(&mut bench, "slabs", "5:total_pages") <= pages + 1, "what was moved fills new spans");
    assert_eq!(figure(&mut bench, "", "evictions"), 0);
}

#[test]
fn slab_classes_are_shown_as_they_were_asked_for() {
    let mut bench = Bench::new(Settings {
        slab_sizes: larder_commands::memcached::slabs::slab_sizes(2.0, 8, 512 << 10),
        ..Settings::default()
    });
    bench.ask(&format!(
        "set k 0 0 100\r\n{}\r\nset l 0 0 100000\r\n{}\r\n",
        "v".repeat(100),
        "l".repeat(100_000)
    ));
    // 56, 112, 224 … : 8 + 1 + 100 bytes are in the second; pieces of 16 KiB in the ninth.
    assert_eq!(figure(&mut bench, "slabs", "2:chunk_size"), 112);
    assert_eq!(figure(&mut bench, "items", "items:2:number"), 1);
    assert_eq!(figure(&mut bench, "items", "items:10:number"), 1);
    assert_eq!(figure(&mut bench, "slabs", "10:used_chunks"), 6, "pieces count as chunks");
    assert!(bench.ask("me l\r\n").contains(" cls=10 "));
}

#[test]
fn a_line_that_is_read_twice_is_counted_once() {
    let mut bench = bench();
    bench.ask("set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\n");
    // Warm items, then a line that turns out to be unusual behind keys that were answered already.
    let keys = "a none b ".repeat(20);
    for _ in 0..4 {
        bench.ask("get a\r\nget b\r\n");
    }
    let before = (bench.counted(Counter::GetHits), bench.counted(Counter::GetMisses));
    let reply = bench.ask(&format!("get {keys} a\r\n"));
    assert_eq!(reply.matches("VALUE").count(), 41);
    assert_eq!(bench.counted(Counter::GetHits) - before.0, 41);
    assert_eq!(bench.counted(Counter::GetMisses) - before.1, 20);
    let hits = format!("STAT 1:get_hits {}\r\n", bench.counted(Counter::GetHits));
    assert!(bench.ask("stats slabs\r\n").contains(&hits));
}

#[test]
fn an_item_that_is_found_expired_is_counted_once() {
    type Find = fn(&mut Bench);
    let mut bench = Bench::new(Settings { debugtime: true, ..Settings::default() });
    let stores: String = ["a", "b", "c", "d"].map(|key| format!("set {key} 0 10 1\r\nx\r\n")).concat();
    bench.ask(&format!("debugtime p\r\n{stores}debugtime 11\r\n"));
    let finds: [(&str, Find); 4] = [
        ("get", |bench| assert_eq!(bench.ask("get a\r\n"), "END\r\n")),
        ("add", |bench| assert_eq!(bench.ask("add b 0 0 1\r\ny\r\n"), "STORED\r\n")),
        ("GET", |bench| assert_eq!(bench.reply("GET c"), b"$-1\r\n")),
        ("EXISTS", |bench| assert_eq!(bench.reply("EXISTS d"), b":0\r\n")),
    ];
    for (n, (command, find)) in finds.into_iter().enumerate() {
        find(&mut bench);
        assert_eq!(figure(&mut bench, "", "reclaimed"), n as u64 + 1, "{command}");
        let info = String::from_utf8_lossy(&bench.reply("INFO stats")).into_owned();
        assert!(info.contains(&format!("\r\nexpired_keys:{}\r\n", n + 1)), "{command}: {info}");
    }
}

#[test]
fn info_says_the_hz_that_was_set() {
    let mut bench = bench();
    assert_eq!(bench.reply("CONFIG SET hz 50"), b"+OK\r\n");
    let info = String::from_utf8_lossy(&bench.reply("INFO server")).into_owned();
    assert!(info.contains("\r\nhz:50\r\nconfigured_hz:50\r\n"), "{info}");
}

#[test]
fn memory_that_counts_against_the_limit_is_told_in_all_and_use_by_use() {
    let mut bench = bench();
    bench.ask(&format!("set k 0 0 1000\r\n{}\r\n", "v".repeat(1000)));
    let told = bench.ask("stats memory\r\n");
    let of = |line: &str| -> u64 { line.rsplit_once(' ').expect("a value").1.parse().expect("a number") };
    let named = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(&format!("STAT {name} ")));
        of(line.unwrap_or_else(|| panic!("{name}: {told}")))
    };
    assert_eq!(named("limit"), 64 << 20);
    let uses: u64 = told.lines().filter(|line| line.starts_with("STAT use:")).map(of).sum();
    assert_eq!(named("used"), uses, "{told}");
    assert_eq!(named("use:items"), figure(&mut bench, "", "bytes"), "{told}");
    assert!(named("used") > named("use:items"));
    let info = String::from_utf8_lossy(&bench.reply("INFO memory")).into_owned();
    assert!(info.contains(&format!("used_memory:{}\r\n", named("used"))), "{info} {told}");
}

#[test]
fn what_there_is_of_each_type_is_counted() {
    let mut bench = bench();
    for n in 0..40 {
        bench.ask(&format!("set s{n} 0 0 3\r\nabc\r\n"));
    }
    for n in 0..10 {
        let members: String = (0..=n * 100).map(|member| format!(" m{member}")).collect();
        bench.reply(&format!("SADD set{n}{members}"));
    }
    for command in ["HSET hash a 1 b 2", "RPUSH list a b c", "ZADD zset 1 a", "XADD stream * a 1"] {
        bench.reply(command);
    }
    let of = |bench: &mut Bench, kind: &str| {
        ["items", "elements"].map(|name| figure(bench, "types", &format!("{kind}:{name}")))
    };
    for (kind, items, elements) in [
        ("string", 40, 40),
        ("hash", 1, 2),
        ("set", 10, 4_510),
        ("zset", 1, 1),
        ("list", 1, 3),
        // A row of its own, and one of its entry.
        ("stream", 1, 2),
    ] {
        assert_eq!(of(&mut bench, kind), [items, elements], "{kind}");
        assert!(figure(&mut bench, "types", &format!("{kind}:bytes")) > 0, "{kind}");
        let info = String::from_utf8_lossy(&bench.reply("INFO types")).into_owned();
        let line = format!("\r\ntype_{kind}:items={items},elements={elements},bytes=");
        assert!(info.contains(&line), "{kind}: {info}");
    }
    // Four sets have 512 to 1,023 members: what the largest of them has is known within that.
    let most = figure(&mut bench, "types", "set:most_elements");
    assert_eq!(most, 1_023, "all others might have 512");
    bench.reply(&format!("SADD one{}", (0..2_000).map(|n| format!(" m{n}")).collect::<String>()));
    assert_eq!(figure(&mut bench, "types", "set:most_elements"), 2_000, "it is alone among its like");
    bench.reply("SREM one m7");
    bench.reply("RENAME one other");
    bench.reply("DEL set9 hash");
    bench.reply("SET list string");
    assert_eq!(of(&mut bench, "set"), [10, 4_510 + 1_999 - 901]);
    assert_eq!((of(&mut bench, "hash"), of(&mut bench, "list")), ([0, 0], [0, 0]));
    assert_eq!(of(&mut bench, "string"), [41, 41]);
    assert_eq!(figure(&mut bench, "types", "set:most_elements"), 1_999);
    assert!(!String::from_utf8_lossy(&bench.reply("INFO everything")).contains("type_set"));
}

#[test]
fn a_key_that_is_not_in_its_item_is_counted_with_the_value_that_it_has() {
    let mut bench = bench();
    bench.reply("SET s string");
    let of = |bench: &mut Bench, kind: &str| figure(bench, "types", &format!("{kind}:bytes"));
    let (strings, key) = (of(&mut bench, "string"), "k".repeat(9_000));
    bench.reply(&format!("SADD {key} member"));
    assert_eq!(of(&mut bench, "string"), strings);
    let set = of(&mut bench, "set");
    assert!(set > 9_000, "{set}");
    bench.reply(&format!("SET {key}2 value"));
    assert_eq!(of(&mut bench, "set"), set);
    assert!(of(&mut bench, "string") > strings + 9_000);
}

#[test]
fn times_of_stages_are_told_by_protocol() {
    let mut bench = bench();
    assert_eq!(bench.ask("stats latency\r\n"), "END\r\n", "nothing is timed");
    bench.host.stage_times = ["memcached", "redis"]
        .map(|protocol| StageTimes { protocol, stage: "queue", count: 7, quantiles_us: [1.5, 20.0, 0.0] })
        .into();
    let of = |protocol: &str| {
        format!(
            "STAT {protocol}:queue:count 7\r\nSTAT {protocol}:queue:p50_us 1.5\r\n\
             STAT {protocol}:queue:p99_us 20.0\r\nSTAT {protocol}:queue:p999_us 0.0\r\n"
        )
    };
    assert_eq!(bench.ask("stats latency\r\n"), of("memcached") + &of("redis") + "END\r\n");
    let info = String::from_utf8_lossy(&bench.reply("INFO latency")).into_owned();
    for protocol in ["memcached", "redis"] {
        let line = format!("latency_{protocol}_queue:count=7,p50_us=1.5,p99_us=20.0,p999_us=0.0\r\n");
        assert!(info.contains(&line), "{info}");
    }
    let all = String::from_utf8_lossy(&bench.reply("INFO everything")).into_owned();
    assert!(!all.contains("latency_memcached_queue"), "{all}");
}

/// What `stats commands` says of a command of which so many were measured, all in this step.
fn timed(name: &str, measured: u64, mean_us: &str, within_us: u64) -> String {
    format!(
        "STAT {name}:measured {measured}\r\nSTAT {name}:mean_us {mean_us}\r\n\
         STAT {name}:p50_us {within_us}\r\nSTAT {name}:p99_us {within_us}\r\n\
         STAT {name}:p999_us {within_us}\r\nSTAT {name}:within_{within_us}_us {measured}\r\n"
    )
}

/// The first receive of a worker is measured, and each look at the clock takes 10 µs.
#[test]
fn times_of_memcacheds_commands_are_told_by_command() {
    let mut bench = bench();
    bench.host.look_us.store(10, Relaxed);
    bench.ask(
        "set a 0 0 1\r\nx\r\nget a\r\nget a b\r\ndelete a\r\nversion\r\nms Zm9v 1 b\r\nx\r\n\
         mn\r\nno command\r\n",
    );
    // Two in a row have equal parts, a line of keys is one command, and a line that is no command is none.
    let told = [
        timed("get", 2, "5.00", 8),
        timed("set", 1, "10.00", 16),
        timed("delete", 1, "10.00", 16),
        timed("version", 1, "10.00", 16),
        timed("ms", 1, "10.00", 16),
        timed("mn", 1, "10.00", 16),
    ];
    assert_eq!(bench.ask("stats commands\r\n"), told.concat() + "END\r\n");
    assert_eq!(bench.ask("stats reset\r\n"), "RESET\r\n");
    assert_eq!(bench.ask("stats commands\r\n"), "END\r\n");
}

/// From the beginning of the receive to the reply, with reading it and with waiting for its item: there is no look at the
/// clock between.
#[test]
fn a_lone_get_is_measured_from_the_beginning_of_its_receive() {
    let mut bench = bench();
    bench.host.look_us.store(10, Relaxed);
    bench.ask("get a\r\n");
    assert_eq!(bench.host.clock_us.load(Relaxed), 20, "two looks");
    assert_eq!(bench.ask("stats commands\r\n"), timed("get", 1, "10.00", 16) + "END\r\n");
    let mut bench = crate::bench();
    bench.host.look_us.store(10, Relaxed);
    bench.run(&mut Session::new(), &get(0x00, "a"), usize::MAX);
    assert_eq!(bench.host.clock_us.load(Relaxed), 20, "two looks at a frame");
}

#[test]
fn commands_of_a_run_are_measured_in_equal_parts() {
    let mut bench = bench();
    bench.host.look_us.store(400, Relaxed);
    let pair = "set a 0 0 1\r\nx\r\nget a\r\n";
    bench.ask(&format!("{}get a a a\r\nmg a v\r\n", pair.repeat(19)));
    let told = [timed("get", 20, "10.00", 16), timed("set", 19, "10.00", 16), timed("mg", 1, "10.00", 16)];
    assert_eq!(bench.ask("stats commands\r\n"), told.concat() + "END\r\n");
}

/// Of 3 µs that 40 commands took, one row has one and the other two: not one each.
#[test]
fn what_a_run_took_is_lost_to_none_of_its_commands() {
    let mut bench = bench();
    bench.host.look_us.store(3, Relaxed);
    bench.ask(&"set a 0 0 1\r\nx\r\nget a\r\n".repeat(20));
    let told = [timed("get", 20, "0.05", 1), timed("set", 20, "0.10", 1)];
    assert_eq!(bench.ask("stats commands\r\n"), told.concat() + "END\r\n");
}

/// A line that is refused is no command, also where a run has answered some of its keys before that was seen.
#[test]
fn a_line_that_turns_out_to_be_none_for_a_run_is_measured_as_it_is_by_itself() {
    for (last, measured) in [("a".to_owned(), 41), ("k".repeat(251), 40)] {
        let mut bench = bench();
        let keys = " a".repeat(40);
        bench.ask(&format!("{}get{keys} {last}\r\n", "get a\r\n".repeat(40)));
        let told = bench.ask("stats commands\r\n");
        assert!(told.contains(&format!("STAT get:measured {measured}\r\n")), "{told}");
    }
}

#[test]
fn commands_in_frames_are_measured_by_the_names_of_the_texts() {
    let mut bench = bench();
    bench.host.look_us.store(10, Relaxed);
    let all = [set(0x01, "a", b"x"), get(0x00, "a"), frame(NOOP, b"", "", b"")].concat();
    bench.run(&mut Session::new(), &all, usize::MAX);
    let told = [timed("get", 1, "10.00", 16), timed("set", 1, "10.00", 16), timed("mn", 1, "10.00", 16)];
    assert_eq!(bench.ask("stats commands\r\n"), told.concat() + "END\r\n");
}

#[test]
fn a_value_that_comes_in_parts_is_measured_with_its_last() {
    let mut bench = bench();
    bench.host.look_us.store(10, Relaxed);
    let input = format!("set a 0 0 9000\r\n{}\r\n", "v".repeat(9000));
    let mut session = Session::new();
    // Receives that are measured are the first, and then some: one in sixteen ends a value.
    for _ in 0..200 {
        bench.run(&mut session, &input.as_bytes()[..5000], usize::MAX);
        bench.run(&mut session, &input.as_bytes()[5000..], usize::MAX);
    }
    let told = bench.ask("stats commands\r\n");
    assert!(told.starts_with("STAT set:measured ") && told.contains("STAT set:mean_us 10.00\r\n"), "{told}");
}
