//! Working memory of commands.

use super::{HELD, MEGABYTES, full};
use larder_testkit::attacker::Attacker;
use larder_testkit::bounded::{Bounded, random};
use larder_testkit::client::Client;
use larder_testkit::talk::encode;
use larder_testkit::timing::{at_most, timed};
use std::time::Duration;

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn bitfield_of_43_690_steps() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    attacker.ask(&[b"SET", b"b", b"12345678"]);
    assert_eq!(attacker.ask_many(&[b"BITFIELD", b"b"], &[b"GET", b"i64", b"0"], 43_690).errors, 0);
    assert_eq!(attacker.ask_many(&[b"BITFIELD", b"b"], &[b"INCRBY", b"i64", b"0", b"1"], 32_768).errors, 0);
    // More fields than other clients may wait for; they also take more memory than connections may hold
    // together.
    for many in [43_691, 300_000] {
        let heard = attacker.ask_many(&[b"BITFIELD", b"b"], &[b"GET", b"i64", b"0"], many);
        assert_eq!(heard.first_error, "-ERR BITFIELD takes at most 131072 arguments");
    }
    bounded.stayed_within("BITFIELD");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn debug_populate_of_30_mb() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    // More bytes than connections may hold.
    let heard = attacker.ask(&[b"DEBUG", b"POPULATE", b"4", b"p", b"30000000"]);
    assert_eq!(heard.first_error, HELD);
    let heard = attacker.ask(&[b"DEBUG", b"POPULATE", b"4", b"p", b"12000000"]);
    assert_eq!(heard.errors, 0);
    assert_eq!(attacker.ask(&[b"DEBUG", b"POPULATE", b"4", &vec![b'p'; 1 << 20], b"1"]).errors, 1);
    assert_eq!(attacker.ask(&[b"DEBUG", b"STRINGMATCH-LEN", b"1000000000", b"b"]).errors, 0);
    bounded.stayed_within("DEBUG POPULATE");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn stats_detail_of_seventy_thousand_prefixes() {
    let (bounded, mut client) = full();
    assert_eq!(client.ask("stats detail on").expect("a reply"), "OK");
    let name = "n".repeat(230);
    for n in 0..70_000 {
        client.line(&format!("get {name}{n}:x"));
        if n % 1000 == 999 {
            client.flush().expect("sent");
            (0..1000).for_each(|_| assert_eq!(client.reply().expect("a reply"), "END"));
        }
    }
    client.line("stats detail dump");
    client.flush().expect("sent");
    let mut lines = 0;
    while client.reply().expect("a reply") != "END" {
        lines += 1;
    }
    // The prefixes may take a 32nd of the memory.
    assert!((4000..6000).contains(&lines), "{lines} prefixes");
    bounded.stayed_within("stats detail");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn words_by_the_hundred_thousand() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let rows: [&[&[u8]]; 17] = [
        &[b"DEL"],
        &[b"EXISTS"],
        &[b"TOUCH"],
        &[b"WATCH"],
        &[b"BITOP", b"AND", b"to"],
        &[b"COMMAND", b"GETKEYS", b"MGET"],
        &[b"COMMAND", b"GETKEYSANDFLAGS", b"MGET"],
        &[b"PUBSUB", b"NUMSUB"],
        &[b"PUBSUB", b"SHARDNUMSUB"],
        &[b"CONFIG", b"GET"],
        &[b"LATENCY", b"HISTOGRAM"],
        &[b"LATENCY", b"RESET"],
        &[b"ACL", b"SETUSER"],
        &[b"ACL", b"DELUSER"],
        &[b"MEMORY", b"USAGE", b"1"],
        &[b"COMMAND", b"INFO"],
        &[b"INFO"],
    ];
    let names: Vec<String> = (0..300_000).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    for row in rows {
        let heard = attacker.ask_many(row, &names, 1);
        assert!(heard.errors <= 1, "{row:?}: {heard:?}");
        bounded.stayed_within(&format!("{} of many words", String::from_utf8_lossy(&row.join(&b' '))));
    }
    let ids = vec![&b"0"[..]; names.len()];
    for most in [names.len(), 16 << 10] {
        let heard = attacker.ask_many(&[b"XREAD", b"STREAMS"], &[&names[..most], &ids[..most]].concat(), 1);
        // 300,000 streams are more than one command may name; 16,384 are not.
        assert_eq!(heard.errors > 0, most == names.len(), "{heard:?}");
    }
    bounded.stayed_within("XREAD of many streams");
    attacker.ask(&[b"UNWATCH"]);
    let heard = attacker.ask_many(&[b"MSET"], &names, 1);
    assert_eq!(heard.errors, 0, "{heard:?}");
    bounded.stayed_within("MSET of many words");
    attacker.ask(&[b"CONFIG", b"SET", b"notify-keyspace-events", b"AKE"]);
    attacker.ask_many(&[b"MSET"], &names, 1);
    bounded.stayed_within("MSET that is told");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn exec_of_many_keys() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let names: Vec<String> = (0..100_000).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    attacker.ask(&[b"MULTI"]);
    attacker.ask_many(&[b"MSET"], &names, 1);
    attacker.ask_many(&[b"EXISTS"], &names, 1);
    let heard = attacker.ask(&[b"EXEC"]);
    assert_eq!(heard.errors, 0, "{heard:?}");
    bounded.stayed_within("EXEC of many keys");
}

/// A command whose time grows linearly with its words takes less than this. When each word was compared with
/// all others, it took half a minute and more.
const LINEAR: Duration = Duration::from_secs(5);

#[test]
#[ignore = "time: EXEC has 5 s"]
fn exec_of_a_range_with_many_limits() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    at_most(LINEAR, || {
        attacker.ask(&[b"MULTI"]);
        attacker.ask_many(&[b"ZRANGEBYSCORE", b"z", b"0", b"1"], &[b"LIMIT", b"0", b"1"], 20_000);
        timed(|| assert_eq!(attacker.ask(&[b"EXEC"]).errors, 0))
    });
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn long_words() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let long = vec![0xff; 7 << 20];
    let rows: [&[&[u8]]; 13] = [
        &[b"ECHO"],
        &[b"PING"],
        &[b"FUNCTION", b"LIST"],
        &[b"DEBUG", b"ERROR"],
        &[b"CLIENT", b"KILL", b"USER"],
        &[b"CLIENT", b"SETNAME"],
        &[b"CONFIG", b"SET", b"save"],
        &[b"CONFIG", b"SET", b"notify-keyspace-events"],
        &[b"CONFIG", b"SET", b"requirepass"],
        &[b"AUTH", b"somebody"],
        &[b"KEYS"],
        &[b"PUBSUB", b"CHANNELS"],
        &[b"nothing of the kind"],
    ];
    for row in rows {
        let heard = attacker.ask_many(row, &[&long], 1);
        // `first_error` is text: each byte that is not UTF-8 became three bytes there.
        let most = match row[0] {
            b"DEBUG" => 3 * 4096 + 64,
            b"CLIENT" => 3 * 1024 + 64,
            _ => 1024,
        };
        assert!(heard.first_error.len() <= most, "{} bytes of an error", heard.first_error.len());
        bounded.stayed_within(&format!("{} of a long word", String::from_utf8_lossy(row[0])));
    }
}

/// Members that a script has stored in one step: more than are sorted at a time.
const AT_ONCE: usize = 32_768 + 1_000;

/// A sorted set of numbered members that all have one score.
fn alike(attacker: &mut Attacker, key: &[u8], members: usize) {
    for from in (0..members).step_by(500) {
        let pairs: Vec<String> =
            (from..members.min(from + 500)).flat_map(|n| ["1".to_owned(), format!("member:{n}")]).collect();
        let pairs: Vec<&[u8]> = pairs.iter().map(String::as_bytes).collect();
        assert_eq!(attacker.ask(&[&[&b"ZADD"[..], key], &pairs[..]].concat()).errors, 0);
    }
}

/// Memory that stays when a command is over, and memory that one step of a worker takes.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn what_is_kept_of_many_commands() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    // The server counts errors by their first word.
    for n in 0..3_000 {
        let word = format!("E{n}{} of them", "x".repeat(100));
        attacker.ask(&[b"DEBUG", b"ERROR", word.as_bytes()]);
    }
    // Long keys lie outside the arena.
    for n in 0..4_000_u32 {
        let key = [&[b'k'; 60_000][..], &n.to_le_bytes()].concat();
        attacker.ask(&[b"SET", &key, b"v"]);
    }
    bounded.stayed_within("long keys");
    attacker.ask(&[b"FLUSHALL"]);
    // Trees are numbered; the memory for numbers stays as large as it was when there were most trees.
    let members: Vec<String> = (0..130).map(|n| format!("{n:030}")).collect();
    let members: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
    for n in 0..8_000 {
        let name = n.to_string();
        attacker.ask(&[&[&b"SADD"[..], name.as_bytes()], &members[..]].concat());
    }
    bounded.stayed_within("trees");
    attacker.ask(&[b"FLUSHALL"]);
    // LPOS searches a whole list, ZRANGESTORE stores a range, ZRANDMEMBER picks elements.
    let ones = vec![&b"1"[..]; 32_768];
    attacker.ask(&[&[&b"RPUSH"[..], b"l"], &ones[..]].concat());
    // The longest possible leaves; one of them is split.
    let longest = vec![b'x'; 2_000];
    (0..200).for_each(|_| drop(attacker.ask(&[b"LINSERT", b"l", b"BEFORE", b"1", &longest])));
    let scored: Vec<String> = (0..700).flat_map(|n| [n.to_string(), format!("m{n}")]).collect();
    let scored: Vec<&[u8]> = scored.iter().map(String::as_bytes).collect();
    attacker.ask(&[&[&b"ZADD"[..], b"z"], &scored[..]].concat());
    for _ in 0..50 {
        attacker.ask(&[b"LPOS", b"l", b"1", b"COUNT", b"0"]);
        attacker.ask(&[b"ZRANGESTORE", b"to", b"z", b"0", b"-1"]);
        attacker.ask(&[b"ZRANDMEMBER", b"z", b"600"]);
        attacker.ask(&[b"ZRANDMEMBER", b"z", b"-1024"]);
    }
    bounded.stayed_within("lists and sorted sets");
    // A script puts entries into a tree at once, in order.
    alike(&mut attacker, b"alike", AT_ONCE);
    let store = b"return redis.call('ZRANGESTORE', KEYS[1], KEYS[2], 0, -1)";
    for _ in 0..5 {
        assert_eq!(attacker.ask(&[b"EVAL", store, b"2", b"to", b"alike"]).errors, 0);
    }
    assert_eq!(attacker.ask(&[b"ZREMRANGEBYRANK", b"to", b"0", b"32767"]).errors, 0);
    bounded.stayed_within("entries that are put into a tree at once");
    // HSCAN reads fields, HEXPIRE gives fields an expiry, and hashes lose fields that expire.
    let fields: Vec<String> = (0..512).map(|n| format!("field:{n:040}")).collect();
    let fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
    let pairs: Vec<&[u8]> = fields.iter().flat_map(|field| [*field, b"value"]).collect();
    for n in 0..200 {
        let name = format!("hash:{n}");
        let name = name.as_bytes();
        attacker.ask(&[&[&b"HSET"[..], name], &pairs[..]].concat());
        for (command, time) in [(&b"HEXPIRE"[..], &b"1000"[..]), (b"HPEXPIRE", b"50")] {
            let heard = attacker.ask(&[&[command, name, time, b"FIELDS", b"512"], &fields[..]].concat());
            assert_eq!(heard.errors, 0, "{heard:?}");
        }
        assert_eq!(attacker.ask(&[b"HSCAN", name, b"0", b"COUNT", b"100000", b"MATCH", b"*1*"]).errors, 0);
    }
    std::thread::sleep(Duration::from_millis(500));
    bounded.stayed_within("fields with times");
    // Few keys are in one database, and many in the others: RANDOMKEY keeps the names of the few as it finds
    // them.
    attacker.ask(&[b"SELECT", b"3"]);
    for n in 0..40_u32 {
        attacker.ask(&[b"SET", &[&[b'r'; 4_000][..], &n.to_le_bytes()].concat(), b"v"]);
    }
    (0..300).for_each(|_| assert_eq!(attacker.ask(&[b"RANDOMKEY"]).errors, 0));
    bounded.stayed_within("RANDOMKEY");
    // LATENCY's times of events, and CLIENT LIST.
    attacker.ask(&[b"CONFIG", b"SET", b"latency-monitor-threshold", b"1"]);
    for _ in 0..200 {
        assert_eq!(attacker.ask(&[b"DEBUG", b"SLEEP", b"0.01"]).errors, 0);
    }
    for words in [&[&b"LATENCY"[..], b"LATEST"][..], &[b"LATENCY", b"HISTORY", b"command"]] {
        assert!(attacker.ask(words).errors == 0, "{words:?}");
    }
    for words in [&[&b"LATENCY"[..], b"GRAPH", b"command"][..], &[b"ACL", b"LIST"], &[b"MEMORY", b"STATS"]] {
        (0..50).for_each(|_| assert_eq!(attacker.ask(words).errors, 0, "{words:?}"));
    }
    let others: Vec<Attacker> = (0..1000).map(|_| Attacker::new(&bounded)).collect();
    (0..50).for_each(|_| assert_eq!(attacker.ask(&[b"INFO", b"everything"]).errors, 0));
    drop(others);
    bounded.stayed_within("LATENCY, ACL, MEMORY and INFO");
}

const WORKERS: usize = 8;

/// A server of many workers, with about `items` items of 1000 bytes. The workers share the memory that is
/// left for the program itself.
fn eight_workers(items: usize) -> (Bounded, Client) {
    let bounded = Bounded::start(MEGABYTES, &["-t", "8"]);
    let mut client = bounded.client();
    bounded.fill(&mut client, "k", random(2000).take(items), "items");
    (bounded, client)
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn a_long_pattern_on_each_of_eight_workers() {
    let (bounded, mut client) = eight_workers(90_000);
    let attackers: Vec<Attacker> = (0..WORKERS).map(|_| Attacker::new(&bounded)).collect();
    // The longest possible pattern; between its stars are as many wildcards as possible.
    let pattern = ["?".repeat(4095), "*".to_owned()].concat().repeat(16);
    for attacker in &attackers {
        attacker.send(encode(&[b"KEYS", pattern.as_bytes()]));
    }
    // Other clients are answered meanwhile.
    for _ in 0..40 {
        assert_eq!(client.ask("mn").expect("a reply"), "MN");
        std::thread::sleep(Duration::from_millis(20));
    }
    bounded.stayed_within("patterns on eight workers");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn entries_in_order_on_each_of_eight_workers() {
    // There is memory for the sets, so that they are not evicted, and for nothing else.
    const MEMBERS: usize = 24_000;
    let (bounded, _client) = eight_workers(30_000);
    let mut attackers: Vec<Attacker> = (0..WORKERS).map(|_| Attacker::new(&bounded)).collect();
    for (n, attacker) in attackers.iter_mut().enumerate() {
        alike(attacker, format!("alike:{n}").as_bytes(), MEMBERS);
    }
    let store = b"return redis.call('ZRANGESTORE', KEYS[1], KEYS[2], 0, -1)";
    // Once the script is known to declare its keys, it locks no others: several workers run it at once.
    alike(&mut attackers[0], b"few", 2);
    (0..100).for_each(|_| drop(attackers[0].ask(&[b"EVAL", store, b"2", b"to", b"few"])));
    for (n, attacker) in attackers.iter().enumerate() {
        let [to, from] = ["to", "alike"].map(|name| format!("{name}:{n}"));
        attacker.send(encode(&[b"EVAL", store, b"2", to.as_bytes(), from.as_bytes()]).repeat(10));
    }
    let replies = |attacker: &mut Attacker| (0..10).filter(|_| attacker.hear().errors == 0).count();
    let done: usize = attackers.iter_mut().map(replies).sum();
    assert!(done >= WORKERS, "{done} of them were done");
    bounded.stayed_within("entries in order on eight workers");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn lcs_of_values_whose_table_is_what_may_be_held() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let (one, two) = (b"ab".repeat(950), b"ba".repeat(950));
    attacker.ask(&[b"SET", b"one", &one]);
    attacker.ask(&[b"SET", b"two", &two]);
    assert_eq!(attacker.ask(&[b"LCS", b"one", b"two", b"IDX", b"WITHMATCHLEN"]).errors, 0);
    attacker.ask(&[b"MULTI"]);
    attacker.ask(&[b"LCS", b"one", b"two", b"IDX"]);
    attacker.ask(&[b"EXEC"]);
    bounded.stayed_within("LCS");
}
