//! What commands note while they work.

use super::{HELD, full};
use larder_testkit::attacker::Attacker;

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn bitfield_of_43_690_steps() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    attacker.ask(&[b"SET", b"b", b"12345678"]);
    assert_eq!(attacker.ask_many(&[b"BITFIELD", b"b"], &[b"GET", b"i64", b"0"], 43_690).errors, 0);
    assert_eq!(attacker.ask_many(&[b"BITFIELD", b"b"], &[b"INCRBY", b"i64", b"0", b"1"], 32_768).errors, 0);
    // They would take more than others are to wait for, and more than connections may hold together.
    for many in [43_691, 300_000] {
        let heard = attacker.ask_many(&[b"BITFIELD", b"b"], &[b"GET", b"i64", b"0"], many);
        assert_eq!(heard.first_error, "-ERR BITFIELD takes at most 131072 arguments");
    }
    bounded.has_held("BITFIELD");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn debug_populate_of_30_mb() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    // More than connections may hold.
    let heard = attacker.ask(&[b"DEBUG", b"POPULATE", b"4", b"p", b"30000000"]);
    assert_eq!(heard.first_error, HELD);
    let heard = attacker.ask(&[b"DEBUG", b"POPULATE", b"4", b"p", b"12000000"]);
    assert_eq!(heard.errors, 0);
    assert_eq!(attacker.ask(&[b"DEBUG", b"POPULATE", b"4", &vec![b'p'; 1 << 20], b"1"]).errors, 1);
    assert_eq!(attacker.ask(&[b"DEBUG", b"STRINGMATCH-LEN", b"1000000000", b"b"]).errors, 0);
    bounded.has_held("DEBUG POPULATE");
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
    // A 32nd of the memory.
    assert!((4000..6000).contains(&lines), "{lines} prefixes");
    bounded.has_held("stats detail");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn words_by_the_hundred_thousand() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let rows: [&[&[u8]]; 12] = [
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
        &[b"INFO"],
    ];
    let names: Vec<String> = (0..300_000).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    for row in rows {
        let heard = attacker.ask_many(row, &names, 1);
        assert!(heard.errors <= 1, "{row:?}: {heard:?}");
        bounded.has_held(&format!("{} of many words", String::from_utf8_lossy(&row.join(&b' '))));
    }
    attacker.ask(&[b"UNWATCH"]);
    let heard = attacker.ask_many(&[b"MSET"], &names, 1);
    assert_eq!(heard.errors, 0, "{heard:?}");
    bounded.has_held("MSET of many words");
    attacker.ask(&[b"CONFIG", b"SET", b"notify-keyspace-events", b"AKE"]);
    attacker.ask_many(&[b"MSET"], &names, 1);
    bounded.has_held("MSET that is told");
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
    bounded.has_held("EXEC of many keys");
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
        // A byte that is no text counts as three here.
        let most = match row[0] {
            b"DEBUG" => 3 * 4096 + 64,
            b"CLIENT" => 3 * 1024 + 64,
            _ => 1024,
        };
        assert!(heard.first_error.len() <= most, "{} bytes of an error", heard.first_error.len());
        bounded.has_held(&format!("{} of a long word", String::from_utf8_lossy(row[0])));
    }
}

/// What stays when a command is over.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn what_is_kept_of_many_commands() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    // First words of errors.
    for n in 0..3_000 {
        let word = format!("E{n}{} of them", "x".repeat(100));
        attacker.ask(&[b"DEBUG", b"ERROR", word.as_bytes()]);
    }
    // Keys that are long lie beside the arena.
    for n in 0..4_000_u32 {
        let key = [&[b'k'; 60_000][..], &n.to_le_bytes()].concat();
        attacker.ask(&[b"SET", &key, b"v"]);
    }
    bounded.has_held("long keys");
    attacker.ask(&[b"FLUSHALL"]);
    // Numbers of trees: as many as there were at once.
    let members: Vec<String> = (0..130).map(|n| format!("{n:030}")).collect();
    let members: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
    for n in 0..8_000 {
        let name = n.to_string();
        attacker.ask(&[&[&b"SADD"[..], name.as_bytes()], &members[..]].concat());
    }
    bounded.has_held("trees");
    attacker.ask(&[b"FLUSHALL"]);
    // A list of which all is looked through, a range that is stored, picks.
    let ones = vec![&b"1"[..]; 12_000];
    attacker.ask(&[&[&b"RPUSH"[..], b"l"], &ones[..]].concat());
    let scored: Vec<String> = (0..700).flat_map(|n| [n.to_string(), format!("m{n}")]).collect();
    let scored: Vec<&[u8]> = scored.iter().map(String::as_bytes).collect();
    attacker.ask(&[&[&b"ZADD"[..], b"z"], &scored[..]].concat());
    for _ in 0..50 {
        attacker.ask(&[b"LPOS", b"l", b"1", b"COUNT", b"0"]);
        attacker.ask(&[b"ZRANGESTORE", b"to", b"z", b"0", b"-1"]);
        attacker.ask(&[b"ZRANDMEMBER", b"z", b"600"]);
    }
    bounded.has_held("lists and sorted sets");
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
    bounded.has_held("LCS");
}
