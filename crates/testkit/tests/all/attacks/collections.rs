//! Memory of commands on collections: copies, combined sets, records about names, and unread replies.

use super::{full, full_of};
use larder_testkit::attacker::Attacker;
use larder_testkit::bounded::Bounded;
use larder_testkit::client::Client;
use larder_testkit::talk::encode;
use std::thread::sleep;
use std::time::Duration;

/// Clients that read nothing.
const CLIENTS: usize = 50;
/// Elements of the set and of the hash; either is some megabytes as one reply.
const ELEMENTS: usize = 20_000;
const ELEMENTS_AT_ONCE: usize = 2_000;

type Words<'w> = &'w [&'w [u8]];

/// Stores a set, a hash and a sorted set that do not exist yet.
fn stock(attacker: &mut Attacker) {
    for from in (0..ELEMENTS).step_by(ELEMENTS_AT_ONCE) {
        let names: Vec<String> = (from..from + ELEMENTS_AT_ONCE).map(|n| format!("{n:080}")).collect();
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let pairs: Vec<&[u8]> = names.iter().flat_map(|name| [*name, &b"value"[..]]).collect();
        assert_eq!(attacker.ask(&[&[&b"SADD"[..], b"s"], &names[..]].concat()).errors, 0);
        assert_eq!(attacker.ask(&[&[&b"HSET"[..], b"h"], &pairs[..]].concat()).errors, 0);
    }
    for from in (0..ELEMENTS).step_by(ELEMENTS_AT_ONCE) {
        let places: Vec<String> =
            (from..from + ELEMENTS_AT_ONCE).map(|n| format!("{:.4}", n as f64 / 1e3)).collect();
        let names: Vec<String> = (from..from + ELEMENTS_AT_ONCE).map(|n| format!("{n:080}")).collect();
        let words = places
            .iter()
            .zip(&names)
            .flat_map(|(place, name)| [place.as_bytes(), place.as_bytes(), name.as_bytes()]);
        assert_eq!(
            attacker.ask(&[&b"GEOADD"[..], b"g"].into_iter().chain(words).collect::<Vec<_>>()).errors,
            0
        );
    }
    for n in 0..300 {
        let (score, member) = (n.to_string(), format!("member-{n}"));
        attacker.ask(&[b"ZADD", b"z", score.as_bytes(), member.as_bytes()]);
    }
}

/// Checks that another client is answered while the attackers' requests run.
fn wait_beside(client: &mut Client) {
    for _ in 0..10 {
        assert_eq!(client.ask("mn").expect("a reply"), "MN");
        sleep(Duration::from_millis(20));
    }
}

/// Lets each of several clients send a request and leave its reply unread.
fn unread(bounded: &Bounded, client: &mut Client, clients: usize, request: &[u8], what: &str) {
    let attackers: Vec<Attacker> = (0..clients).map(|_| Attacker::new(bounded)).collect();
    attackers.iter().for_each(|attacker| attacker.send(request.to_vec()));
    wait_beside(client);
    bounded.stayed_within(what);
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn large_collections_by_many_who_read_nothing() {
    let (bounded, mut client) = full();
    let mut attacker = Attacker::new(&bounded);
    let rows: [Words<'_>; 21] = [
        &[b"HGETALL", b"h"],
        &[b"HKEYS", b"h"],
        &[b"SMEMBERS", b"s"],
        &[b"SRANDMEMBER", b"s", b"15000"],
        &[b"SRANDMEMBER", b"s", b"1000"],
        &[b"SRANDMEMBER", b"s", b"-1000000000"],
        &[b"HRANDFIELD", b"h", b"-4000", b"WITHVALUES"],
        &[b"ZRANDMEMBER", b"z", b"-100000000"],
        &[b"SUNION", b"s", b"s"],
        &[b"SDIFF", b"s", b"nothing"],
        &[b"SINTER", b"s", b"s"],
        &[b"ZUNION", b"2", b"s", b"z", b"WEIGHTS", b"2", b"3", b"WITHSCORES"],
        &[b"SSCAN", b"s", b"0", b"COUNT", b"100000"],
        &[b"SORT", b"s", b"ALPHA", b"DESC"],
        &[b"SORT", b"s", b"BY", b"nothing*", b"GET", b"#", b"GET", b"h*->x"],
        &[b"SORT_RO", b"s", b"BY", b"nothing*->x", b"ALPHA", b"LIMIT", b"10000", b"10"],
        &[b"SORT", b"s", b"BY", b"nosort", b"GET", b"#", b"GET", b"#", b"GET", b"#", b"STORE", b"d"],
        &[b"SORT_RO", b"s", b"BY", b"nosort"],
        &[b"GEOSEARCH", b"g", b"FROMLONLAT", b"1", b"1", b"BYRADIUS", b"9000", b"km", b"WITHCOORD"],
        &[b"GEORADIUS", b"g", b"1", b"1", b"9000", b"km", b"STORE", b"d"],
        &[b"SPOP", b"s", b"100000"],
    ];
    for words in rows {
        stock(&mut attacker);
        let what = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        unread(&bounded, &mut client, CLIENTS, &encode(words), &what);
        let exec = [encode(&[b"MULTI"]), encode(words).repeat(4), encode(&[b"EXEC"])].concat();
        unread(&bounded, &mut client, CLIENTS, &exec, &format!("EXEC of {what}"));
    }
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn many_words_of_many_who_read_nothing() {
    const WORDS: usize = 300_000;
    const SENDERS: usize = 12;
    let (bounded, mut client) = full();
    stock(&mut Attacker::new(&bounded));
    let names: Vec<String> = (0..WORDS).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let numbers: Vec<String> = (0..WORDS).map(|n| n.to_string()).collect();
    let numbers: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
    let all = WORDS.to_string();
    let rows: [Words<'_>; 10] = [
        &[b"SADD", b"many"],
        &[b"HSET", b"fields"],
        &[b"ZADD", b"scores"],
        &[b"SMISMEMBER", b"s"],
        &[b"HMGET", b"h"],
        &[b"ZMSCORE", b"z"],
        &[b"SREM", b"many"],
        &[b"HDEL", b"fields"],
        &[b"HGETDEL", b"h", b"FIELDS", all.as_bytes()],
        &[b"RPUSH", b"list"],
    ];
    for head in rows {
        let what = format!("{} of many words", String::from_utf8_lossy(head[0]));
        let words = if head[0] == b"ZADD" { &numbers } else { &names };
        unread(&bounded, &mut client, SENDERS, &encode(&[head, &words[..]].concat()), &what);
        // As many keys as a transaction may name, and more.
        for some in [60_000, 100_000] {
            let mut head = head.to_vec();
            let count = some.to_string();
            if head[0] == b"HGETDEL" {
                head[3] = count.as_bytes();
            }
            let command = encode(&[&head[..], &words[..some]].concat());
            let exec = [encode(&[b"MULTI"]), command, encode(&[b"EXEC"])].concat();
            unread(&bounded, &mut client, SENDERS, &exec, &format!("EXEC of {what}"));
        }
    }
}

/// The record about each name is charged for as long as it is kept.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn sets_of_very_many_names() {
    let (bounded, _client) = full_of(256);
    let mut attacker = Attacker::new(&bounded);
    let names: Vec<String> = (0..500_000).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let ones = vec![&b"1"[..]; names.len()];
    for events in [&b""[..], b"KEA"] {
        attacker.ask(&[b"CONFIG", b"SET", b"notify-keyspace-events", events]);
        for count in [8_000, 16_000, 120_000, 500_000] {
            let keys = count.to_string();
            let (some, weights) = (&names[..count], &ones[..count]);
            attacker.ask(&[&[&b"SUNION"[..]], some].concat());
            bounded.stayed_within(&format!("SUNION of {count} names"));
            attacker.ask(&[&[&b"ZUNION"[..], keys.as_bytes()], some, &[&b"WEIGHTS"[..]], weights].concat());
            bounded.stayed_within(&format!("ZUNION of {count} names and weights"));
            let head: Words<'_> = &[b"ZUNIONSTORE", b"to", keys.as_bytes()];
            attacker.ask(&[head, some, &[&b"WEIGHTS"[..]], weights].concat());
            bounded.stayed_within(&format!("ZUNIONSTORE of {count} names and weights"));
            attacker.ask(&[&[&b"SDIFFSTORE"[..], b"to"], some].concat());
            bounded.stayed_within(&format!("SDIFFSTORE of {count} names"));
            attacker.ask(&[&[&b"PFCOUNT"[..]], some].concat());
            bounded.stayed_within(&format!("PFCOUNT of {count} names"));
            let gets: Vec<&[u8]> = some.iter().flat_map(|name| [&b"GET"[..], name]).collect();
            attacker.ask(&[&[&b"SORT"[..], b"nothing"], &gets[..]].concat());
            bounded.stayed_within(&format!("SORT with {count} patterns"));
        }
    }
    // Names of 60,000 bytes.
    let long: Vec<Vec<u8>> = (0..200_u32).map(|n| [&[b'n'; 60_000][..], &n.to_le_bytes()].concat()).collect();
    let long: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
    attacker.ask(&[b"SETBIT", b"bits", b"8000000", b"1"]);
    let heads: [Words<'_>; 3] = [&[b"BITOP", b"OR", b"to", b"bits"], &[b"SUNION"], &[b"SINTERSTORE", b"to"]];
    for head in heads {
        attacker.ask(&[head, &long[..]].concat());
        bounded.stayed_within(&format!("{} of long names", String::from_utf8_lossy(head[0])));
    }
}

/// Members of a sorted set that is copied, and bytes of their names.
const SCORED: [(usize, usize); 2] = [(100_000, 200), (50_000, 100)];

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn parts_of_sorted_sets_that_are_stored() {
    for (members, name_bytes) in SCORED {
        let (bounded, mut client) = full();
        let mut attacker = Attacker::new(&bounded);
        for from in (0..members).step_by(ELEMENTS_AT_ONCE) {
            let pairs = (from..from + ELEMENTS_AT_ONCE)
                .flat_map(|n| [n.to_string(), format!("{n:0>name_bytes$}")].map(String::into_bytes));
            let pairs: Vec<Vec<u8>> = pairs.collect();
            let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
            assert_eq!(attacker.ask(&[&[&b"ZADD"[..], b"z"], &pairs[..]].concat()).errors, 0);
        }
        for words in [
            &[&b"ZRANGESTORE"[..], b"d", b"z", b"0", b"-1"][..],
            &[b"ZRANGESTORE", b"d", b"z", b"-inf", b"+inf", b"BYSCORE", b"REV"],
        ] {
            let what = format!("{} of {members}", String::from_utf8_lossy(&words.join(&b' ')));
            unread(&bounded, &mut client, 8, &encode(words), &what);
        }
    }
}
