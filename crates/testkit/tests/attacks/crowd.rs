//! What many clients leave behind together.

use super::full;
use larder_testkit::attacker::Attacker;
use larder_testkit::talk::encode;

#[test]
fn patterns_of_keys_by_many_clients() {
    let (bounded, mut client) = full();
    let pattern = vec![b'a'; 60 << 10];
    let attackers: Vec<Attacker> = (0..64).map(|_| Attacker::new(&bounded)).collect();
    for attacker in &attackers {
        attacker.send(encode(&[b"KEYS", &pattern]));
    }
    // All of them are at it meanwhile.
    (0..10).for_each(|_| assert_eq!(client.ask("mn").expect("a reply"), "MN"));
    bounded.has_held("patterns of KEYS");
}

#[test]
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
    bounded.has_held("subscriptions");
}

#[test]
fn monitors_beside_long_words() {
    let (bounded, _client) = full();
    let mut monitors: Vec<Attacker> = (0..20).map(|_| Attacker::new(&bounded)).collect();
    monitors.iter_mut().for_each(|monitor| assert_eq!(monitor.ask(&[b"MONITOR"]).errors, 0));
    let mut attacker = Attacker::new(&bounded);
    let long = vec![0xff; 7 << 20];
    // While what the monitors were sent is on its way there may be no room for a reply.
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
    bounded.has_held("MONITOR");
}

#[test]
fn messages_of_megabytes() {
    let (bounded, _client) = full();
    let mut listeners: Vec<Attacker> = (0..20).map(|_| Attacker::new(&bounded)).collect();
    listeners.iter_mut().for_each(|listener| assert_eq!(listener.ask(&[b"SUBSCRIBE", b"news"]).errors, 0));
    let mut attacker = Attacker::new(&bounded);
    let long = vec![b'm'; 3 << 20];
    for _ in 0..5 {
        assert_eq!(attacker.ask(&[b"PUBLISH", b"news", &long]).errors, 0);
    }
    // To itself, in a transaction that ends its listening.
    attacker.ask(&[b"HELLO", b"3"]);
    attacker.ask(&[b"SUBSCRIBE", b"mine"]);
    attacker.ask(&[b"MULTI"]);
    attacker.ask(&[b"PUBLISH", b"mine", &long]);
    attacker.ask(&[b"UNSUBSCRIBE", b"mine"]);
    attacker.send(encode(&[b"EXEC"]));
    attacker.hear();
    bounded.has_held("PUBLISH");
}
