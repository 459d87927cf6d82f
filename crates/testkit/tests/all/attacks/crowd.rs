//! Memory that many clients take together.

use super::{MEGABYTES, full};
use larder_testkit::attacker::Attacker;
use larder_testkit::bounded::Bounded;
use larder_testkit::talk::encode;

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn patterns_of_keys_by_many_clients() {
    let (bounded, mut client) = full();
    let pattern = vec![b'a'; 60 << 10];
    let attackers: Vec<Attacker> = (0..64).map(|_| Attacker::new(&bounded)).collect();
    for attacker in &attackers {
        attacker.send(encode(&[b"KEYS", &pattern]));
    }
    // The attackers' commands run meanwhile.
    (0..10).for_each(|_| assert_eq!(client.ask("mn").expect("a reply"), "MN"));
    bounded.stayed_within("patterns of KEYS");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn subscriptions_to_many_names() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let names: Vec<String> = (0..100_000).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    attacker.ask(&[b"HELLO", b"3"]);
    attacker.send(encode(&[&[&b"UNSUBSCRIBE"[..]], &names[..]].concat()));
    (0..names.len()).for_each(|_| assert_eq!(attacker.hear().errors, 0));
    attacker.send(encode(&[&[&b"SUBSCRIBE"[..]], &names[..]].concat()));
    let taken = (0..names.len()).take_while(|_| attacker.hear().errors == 0).count();
    assert!(taken > 10_000 && taken < names.len(), "{taken} subscriptions");
    assert!(attacker.ask(&[b"PUBSUB", b"CHANNELS"]).strings >= taken as u64);
    attacker.send(encode(&[b"UNSUBSCRIBE"]));
    (0..taken).for_each(|_| assert_eq!(attacker.hear().errors, 0));
    bounded.stayed_within("subscriptions");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn monitors_beside_long_words() {
    let (bounded, _client) = full();
    let mut monitors: Vec<Attacker> = (0..20).map(|_| Attacker::new(&bounded)).collect();
    monitors.iter_mut().for_each(|monitor| assert_eq!(monitor.ask(&[b"MONITOR"]).errors, 0));
    let mut attacker = Attacker::new(&bounded);
    let long = vec![0xff; 7 << 20];
    // While lines for the monitors wait to be sent, there may be no memory for a reply: then the request is
    // repeated.
    let mut done = |ask: &mut dyn FnMut(&mut Attacker) -> u64| {
        assert!(
            (0..50).any(|_| ask(&mut attacker) == 0),
            "it is answered when the monitors have taken theirs"
        );
    };
    for _ in 0..3 {
        done(&mut |attacker| attacker.ask(&[b"EXISTS", &long[..60_000]]).errors);
        done(&mut |attacker| attacker.ask(&[b"ECHO", &long]).errors);
        done(&mut |attacker| attacker.ask_many(&[b"EXISTS"], &[b"k"], 300_000).errors);
    }
    bounded.stayed_within("MONITOR");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn messages_of_megabytes() {
    let (bounded, _client) = full();
    let mut listeners: Vec<Attacker> = (0..20).map(|_| Attacker::new(&bounded)).collect();
    listeners.iter_mut().for_each(|listener| assert_eq!(listener.ask(&[b"SUBSCRIBE", b"news"]).errors, 0));
    let mut attacker = Attacker::new(&bounded);
    let long = vec![b'm'; 3 << 20];
    for _ in 0..5 {
        assert_eq!(attacker.ask(&[b"PUBLISH", b"news", &long]).errors, 0);
    }
    // The client publishes to itself, in a transaction that ends its subscription.
    attacker.ask(&[b"HELLO", b"3"]);
    attacker.ask(&[b"SUBSCRIBE", b"mine"]);
    attacker.ask(&[b"MULTI"]);
    attacker.ask(&[b"PUBLISH", b"mine", &long]);
    attacker.ask(&[b"UNSUBSCRIBE", b"mine"]);
    attacker.send(encode(&[b"EXEC"]));
    attacker.hear();
    bounded.stayed_within("PUBLISH");
}

/// A client that holds this little is not charged for it while its replies are sent at once. A thousand such
/// clients together would hold as much as the cache.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn what_a_thousand_clients_hold_between_two_turns() {
    const CLIENTS: usize = 1000;
    let (bounded, mut client) = full();
    let attackers: Vec<Attacker> = (0..CLIENTS).map(|_| Attacker::new(&bounded)).collect();
    let names: Vec<String> = (0..3_500).map(|n| format!("{n:x}")).collect();
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    // No client has one of these numbers.
    let numbers: Vec<String> = (0..2_700).map(|n| (1_000_000 + n).to_string()).collect();
    let numbers: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
    let long = [b'k'; 50_000];
    let mut first = Attacker::new(&bounded);
    first.ask(&[b"SET", b"one", &b"ab".repeat(60)]);
    first.ask(&[b"SET", b"two", &b"ba".repeat(60)]);
    let rows = [
        encode(&[&[&b"SUNION"[..]], &names[..]].concat()),
        encode(&[b"LCS", b"one", b"two"]).repeat(20),
        encode(&[&[&b"CLIENT"[..], b"LIST", b"ID"], &numbers[..]].concat()),
        encode(&[&[&b"SADD"[..], &long], &names[..1_500]].concat()),
    ];
    for (nth, row) in rows.iter().enumerate() {
        attackers.iter().for_each(|attacker| attacker.send(row.clone()));
        (0..20).for_each(|_| {
            assert_eq!(client.ask("mn").expect("a reply"), "MN");
            std::thread::sleep(std::time::Duration::from_millis(20));
        });
        bounded.stayed_within(&format!("a thousand clients, {nth}"));
    }
}

/// The reply is made piece by piece as the client reads it.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn dumps_and_keys_by_many_who_read_nothing() {
    let (bounded, mut client) = full();
    client.ask("stats detail on").expect("a reply");
    let keys: String = (0..20_000).map(|n| format!(" k{n}")).collect();
    let rows = [
        format!("get{keys}\r\n"),
        "lru_crawler metadump all\r\n".to_owned(),
        "lru_crawler mgdump all\r\n".to_owned(),
        "stats conns\r\n".to_owned(),
        "stats detail dump\r\n".to_owned(),
        "stats cachedump 5 0\r\n".to_owned(),
    ];
    for row in rows {
        let attackers: Vec<Attacker> = (0..200).map(|_| Attacker::new(&bounded)).collect();
        attackers.iter().for_each(|attacker| attacker.send(row.repeat(5).into_bytes()));
        (0..10).for_each(|_| {
            assert_eq!(client.ask("mn").expect("a reply"), "MN");
            std::thread::sleep(std::time::Duration::from_millis(20));
        });
        bounded.stayed_within(row.split(['\r', ' ']).next().expect("a word"));
    }
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn large_values_that_many_have_made() {
    let (bounded, mut client) = full();
    let mut first = Attacker::new(&bounded);
    assert_eq!(first.ask(&[b"SETBIT", b"large", b"40000000", b"1"]).errors, 0);
    let bytes = vec![b'x'; 30_000];
    let rows: [&[&[u8]]; 6] = [
        &[b"APPEND", b"large", &bytes],
        &[b"SETRANGE", b"large", b"100", &bytes],
        &[b"BITOP", b"NOT", b"other", b"large"],
        &[b"BITCOUNT", b"large"],
        &[b"COPY", b"large", b"other", b"REPLACE"],
        &[b"DUMP", b"large"],
    ];
    for row in rows {
        let attackers: Vec<Attacker> = (0..300).map(|_| Attacker::new(&bounded)).collect();
        attackers.iter().for_each(|attacker| attacker.send(encode(row)));
        (0..10).for_each(|_| {
            assert_eq!(client.ask("mn").expect("a reply"), "MN");
            std::thread::sleep(std::time::Duration::from_millis(20));
        });
        bounded.stayed_within(&String::from_utf8_lossy(row[0]));
    }
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn sizes_that_many_have_counted() {
    let bounded = Bounded::start(MEGABYTES, &["-t", "2", "-o", "track_sizes"]);
    let mut client = bounded.client();
    // Items of as many sizes as fit.
    bounded.fill(&mut client, "k", (1..2_200).map(|n| 32 * n), "items of each size");
    let attackers: Vec<Attacker> = (0..700).map(|_| Attacker::new(&bounded)).collect();
    attackers.iter().for_each(|attacker| attacker.send(b"stats sizes\r\n".repeat(20)));
    (0..20).for_each(|_| {
        assert_eq!(client.ask("mn").expect("a reply"), "MN");
        std::thread::sleep(std::time::Duration::from_millis(20));
    });
    bounded.stayed_within("stats sizes");
}
