//! Commands that list all items, with one item of each length: each item is listed once, with its length. RESP has stored keys
//! here that memcached's text cannot name.

use super::{KEY_BYTES, VALUE_BYTES, key, shown, value};
use larder_commands::memcached::table::{CLASSIC, Run};
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;
use std::collections::BTreeMap;

/// Lines that list items, and others that must do no harm.
const LINES: &[&str] = &[
    "flush_all 100000",
    "version",
    "verbosity 1",
    "cache_memlimit 64",
    "stats",
    "stats settings",
    "stats items",
    "stats slabs",
    "stats sizes",
    "stats conns",
    "stats detail on",
    "stats detail dump",
    "lru mode flat",
    "slabs automove 1",
    "slabs reassign -1 1",
    "lru_crawler crawl all",
    "refresh_certs",
    "debugtime p",
];

/// Commands after which no request can follow.
const LAST: &[&str] = &["quit", "shutdown", "watch"];

/// Items by key, each with the length of its value.
type Items = BTreeMap<Vec<u8>, usize>;

/// A server with one item of each length.
fn filled() -> (Local, Items) {
    let options = ["-o", "track_sizes", "--enable-debug-command", "yes"].map(str::to_owned);
    let mut local = Local::new(&options).expect("a server");
    let mut client = local.resp_connection();
    let mut items = Items::new();
    for key_bytes in KEY_BYTES {
        for (name, value_bytes) in (b'a'..).zip(VALUE_BYTES) {
            let key = key(key_bytes, name);
            local.exchange(&mut client, &encode(&[b"SET", &key, &value(value_bytes)]));
            items.insert(key, value_bytes);
        }
    }
    assert_eq!(client.sent(), b"+OK\r\n".repeat(items.len()));
    (local, items)
}

fn say(local: &mut Local, client: &mut LocalConnection, sent: &[u8]) -> Vec<u8> {
    local.exchange(client, sent);
    let got = client.sent().to_vec();
    client.forget();
    got
}

/// The lines of a reply between its first and its last.
fn lines<'r>(reply: &'r [u8], start: &str, end: &str) -> Vec<&'r str> {
    let text = std::str::from_utf8(reply).expect("digits and letters");
    let text = text.strip_prefix(start).and_then(|text| text.strip_suffix(end));
    let text = text.unwrap_or_else(|| panic!("not {start:?} to {end:?}: {}", shown(reply)));
    text.lines().map(|line| line.trim_end()).collect()
}

/// Reads a reply that lists each item once: the words behind each key.
fn told<'r>(reply: &[&'r str], before: &str, items: &Items) -> BTreeMap<Vec<u8>, &'r str> {
    let told: BTreeMap<Vec<u8>, &str> = reply
        .iter()
        .map(|line| {
            let line = line.strip_prefix(before).unwrap_or_else(|| panic!("{}", shown(line.as_bytes())));
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            (key.as_bytes().to_vec(), rest)
        })
        .collect();
    assert_eq!(reply.len(), told.len(), "one comes twice");
    // A text client cannot name a longer key.
    let named = items.keys().filter(|key| key.len() <= 250);
    assert!(told.keys().eq(named), "others are told of than there are");
    told
}

#[test]
fn dumps_tell_of_each_item_once_and_how_long_it_is() {
    let (mut local, items) = filled();
    let mut client = local.connection();
    let reply = say(&mut local, &mut client, b"lru_crawler metadump all\r\n");
    for (key, words) in told(&lines(&reply, "OK\r\n", "END\r\n"), "key=", &items) {
        let number = |name: &str| {
            let word = words.split(' ').find_map(|word| word.strip_prefix(name));
            word.and_then(|n| n.parse::<usize>().ok()).unwrap_or_else(|| panic!("{name} in {words}"))
        };
        let least = key.len() + items[&key];
        // The size also counts the header, its fields, and the head of a value in pieces, but not the pieces'
        // headers.
        assert!((least + 8..least + 256).contains(&number("size=")), "{least} bytes: {words}");
        assert_eq!(number("flags="), 0);
        assert!(words.contains("exp=-1 ") && words.contains(" fetch=no "), "{words}");
    }
    let reply = say(&mut local, &mut client, b"lru_crawler mgdump all\r\n");
    told(&lines(&reply, "OK\r\n", "EN\r\n"), "mg ", &items);

    let mut dumped = Vec::new();
    for class in 1..64 {
        dumped.extend(say(&mut local, &mut client, format!("stats cachedump {class} 0\r\n").as_bytes()));
    }
    let dumped = String::from_utf8(dumped).expect("digits and letters").replace("END\r\n", "");
    for (key, words) in told(&dumped.lines().collect::<Vec<_>>(), "ITEM ", &items) {
        assert_eq!(words, format!("[{} b; 0 s]", items[&key]));
    }

    let reply = say(&mut local, &mut client, b"stats sizes\r\n");
    let counts =
        lines(&reply, "", "END\r\n").into_iter().map(|line| line.rsplit(' ').next().expect("a count"));
    assert_eq!(counts.map(|n| n.parse::<usize>().expect("a number")).sum::<usize>(), items.len());
}

#[test]
fn every_line_is_answered_beside_items_of_each_length() {
    let (mut local, items) = filled();
    let mut client = local.connection();
    for line in LINES {
        let reply = say(&mut local, &mut client, format!("{line}\r\nmn\r\n").as_bytes());
        assert!(reply.len() > 6 && reply.ends_with(b"\r\nMN\r\n"), "{line}: {}", shown(&reply));
    }
    for name in CLASSIC.iter().filter(|row| matches!(row.run, Run::Line(_))).map(|row| row.name) {
        let is_asked = LINES.iter().chain(LAST).any(|line| line.split(' ').next() == Some(name));
        assert!(is_asked, "{name} is not asked here");
    }
    let mut resp = local.resp_connection();
    assert_eq!(say(&mut local, &mut resp, &encode(&[b"DBSIZE"])), format!(":{}\r\n", items.len()).as_bytes());
}

#[test]
fn walks_and_digests_take_in_each_item() {
    let (mut local, items) = filled();
    let mut client = local.resp_connection();
    let keys = |frame: &Frame| {
        let mut keys: Vec<_> = frame.inside.iter().filter_map(|key| key.body.clone()).collect();
        keys.sort_unstable();
        keys
    };
    let frame = |bytes: &[u8]| Frame::read(bytes).expect("a reply").expect("all of it").0;
    let there: Vec<_> = items.keys().cloned().collect();
    assert_eq!(keys(&frame(&say(&mut local, &mut client, &encode(&[b"KEYS", b"k*"])))), there);
    let reply = say(&mut local, &mut client, &encode(&[b"SCAN", b"0", b"COUNT", b"1000"]));
    assert_eq!(keys(&frame(&reply).inside[1]), there);

    // The digest changes with each value, and is as before when the value is.
    let digest = encode(&[b"DEBUG", b"DIGEST"]);
    let before = say(&mut local, &mut client, &digest);
    for (key, bytes) in &items {
        let (old, new) = (value(*bytes), value(bytes + 1));
        say(&mut local, &mut client, &encode(&[b"SET", key, &new]));
        assert_ne!(say(&mut local, &mut client, &digest), before);
        say(&mut local, &mut client, &encode(&[b"SET", key, &old]));
        assert_eq!(say(&mut local, &mut client, &digest), before);
    }
}
