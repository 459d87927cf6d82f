//! Replies that are far longer than their requests.

use super::{HELD, full};
use larder_testkit::attacker::Attacker;
use larder_testkit::bounded::{number, random};
use larder_testkit::talk::encode;

/// A value that is copied into replies, not sent from its chunk.
const VALUE: [u8; 16_000] = [b'v'; 16_000];

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn mget_of_one_value_a_hundred_thousand_times_is_answered_in_pieces() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    attacker.ask(&[b"SET", b"k", &VALUE]);
    let heard = attacker.ask_many(&[b"MGET"], &[b"k"], 100_000);
    assert_eq!((heard.strings, heard.bytes, heard.errors), (100_000, 1_600_000_000, 0));
    // The next request is answered behind it.
    assert_eq!(attacker.ask(&[b"ECHO", b"four"]).bytes, 4);
    bounded.stayed_within("MGET");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn mget_of_large_values_waits_for_room() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let value = vec![b'v'; 1 << 20];
    let names: Vec<String> = (0..20).map(|n| format!("large{n}")).collect();
    names.iter().for_each(|name| assert_eq!(attacker.ask(&[b"SET", name.as_bytes(), &value]).errors, 0));
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let heard = attacker.ask_many(&[b"MGET"], &names, 10);
    assert_eq!((heard.strings, heard.errors), (200, 0));
    // How many of the keys are still there depends on eviction: the reply has more bytes than connections may hold.
    assert!(heard.bytes > 50 << 20, "{heard:?}");
    bounded.stayed_within("MGET of large values");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn mget_of_many_who_read_nothing() {
    let (bounded, mut client) = full();
    Attacker::new(&bounded).ask(&[b"SET", b"k", &VALUE]);
    let words: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain([&b"k"[..]; 4000]).collect();
    let attackers: Vec<Attacker> = (0..100).map(|_| Attacker::new(&bounded)).collect();
    for attacker in &attackers {
        attacker.send(encode(&words));
        assert_eq!(client.ask("mn").expect("a reply"), "MN");
    }
    for _ in 0..1000 {
        assert_eq!(client.ask("set other 0 0 1\r\nx").expect("a reply"), "STORED");
    }
    bounded.stayed_within("MGET of many");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn exec_of_twenty_thousand_values_is_sent_up_to_its_share() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    attacker.ask(&[b"SET", b"k", &VALUE]);
    attacker.ask(&[b"MULTI"]);
    let mut requests = encode(&[b"GET", b"k"]).repeat(20_000);
    requests.extend(encode(&[b"SET", b"k", b"written"]));
    attacker.send(requests);
    (0..20_001).for_each(|_| assert_eq!(attacker.hear().errors, 0));
    let heard = attacker.ask(&[b"EXEC"]);
    // The memory that connections may hold; the queue and EXEC's records about it are a part of it.
    let most = 16 << 20;
    assert!(heard.bytes <= most && heard.bytes > most / 8 * 5, "{heard:?}");
    assert_eq!((heard.strings + heard.errors, heard.first_error.as_str()), (20_000, HELD));
    // The command's write is done.
    assert_eq!(attacker.ask(&[b"GET", b"k"]).bytes, 7);
    bounded.stayed_within("EXEC");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn exec_of_long_commands_refuses_each_whose_reply_finds_no_room() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    attacker.ask(&[b"SET", b"k", &VALUE]);
    // EXEC is refused before it begins: it would copy more bytes of values than one may while other clients
    // wait.
    attacker.ask(&[b"MULTI"]);
    attacker.ask_many(&[b"MGET"], &[b"k"], 100_000);
    let heard = attacker.ask(&[b"EXEC"]);
    assert!(heard.first_error.starts_with("-EXECABORT "), "{heard:?}");
    attacker.ask(&[b"MULTI"]);
    attacker.ask_many(&[b"COMMAND", b"DOCS"], &[b"client"], 100_000);
    attacker.ask(&[b"KEYS", b"*"]);
    attacker.ask(&[b"SET", b"k", b"written"]);
    attacker.ask(&[b"GET", b"k"]);
    let heard = attacker.ask(&[b"EXEC"]);
    assert_eq!((heard.errors, heard.first_error.as_str(), heard.bytes), (2, HELD, 7));
    bounded.stayed_within("EXEC of long commands");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn writes_of_exec_that_reply_with_values_are_carried_out() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    let names: Vec<String> = (0..1_400).map(|n| format!("gone{n}")).collect();
    names.iter().for_each(|name| assert_eq!(attacker.ask(&[b"SET", name.as_bytes(), &VALUE]).errors, 0));
    attacker.ask(&[b"MULTI"]);
    names.iter().for_each(|name| assert_eq!(attacker.ask(&[b"GETDEL", name.as_bytes()]).errors, 0));
    let heard = attacker.ask(&[b"EXEC"]);
    assert!(heard.bytes <= 16 << 20 && heard.errors > 200, "{heard:?}");
    let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    assert_eq!(attacker.ask_many(&[b"MGET"], &names, 1).bytes, 0, "all are gone");
    bounded.stayed_within("GETDEL in EXEC");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn command_docs_of_one_name_three_hundred_thousand_times() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    for sub in [&b"DOCS"[..], b"INFO"] {
        let once = attacker.ask(&[b"COMMAND", sub, b"client"]);
        let heard = attacker.ask_many(&[b"COMMAND", sub], &[b"client"], 100_000);
        assert_eq!((heard.strings, heard.errors), (100_000 * once.strings, 0));
    }
    let heard = attacker.ask_many(&[b"DEBUG", b"DIGEST-VALUE"], &[b"k1"], 100_000);
    assert_eq!((heard.strings, heard.errors), (100_000, 0));
    bounded.stayed_within("COMMAND DOCS");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn keys_of_8_kb_are_replied_piece_by_piece() {
    let (bounded, mut client) = full();
    assert_eq!(client.ask("flush_all").expect("a reply"), "OK");
    let mut attacker = Attacker::new(&bounded);
    bounded.fill(&mut client, "k", random(2000).take(40_000), "a full cache");
    // As much as a scan may find: more than new items may take, so that not all of them stay.
    for n in 0..950 {
        let mut key = vec![b'k'; 8 << 10];
        key[..5].copy_from_slice(format!("{n:05}").as_bytes());
        assert_eq!(attacker.ask(&[b"SET", &key, b""]).errors, 0);
    }
    let evicted_before = number(&mut client, "evictions");
    let heard = attacker.ask(&[b"KEYS", b"0????k*"]);
    assert_eq!((heard.errors, heard.bytes % (8 << 10)), (0, 0));
    assert!(heard.strings > 400, "{heard:?}");
    let all = attacker.ask(&[b"SCAN", b"0", b"COUNT", b"10000000", b"MATCH", b"0????k*"]);
    // Replies that the reader leaves unread take memory, for which keys are evicted between the two: no other key is missing.
    let evicted = number(&mut client, "evictions") - evicted_before;
    let found = all.strings - 1;
    assert_eq!(all.errors, 0);
    assert!(
        found <= heard.strings && heard.strings - found <= evicted,
        "{heard:?}, {all:?}, {evicted} evicted"
    );
    bounded.stayed_within("KEYS");
}

#[test]
#[ignore = "memory: the peak of a process in real time"]
fn slowlog_and_client_list_of_long_names() {
    let (bounded, _client) = full();
    let mut attacker = Attacker::new(&bounded);
    attacker.ask(&[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0", b"slowlog-max-len", b"4096"]);
    let name = vec![b'n'; 1 << 10];
    let mut named: Vec<Attacker> = (0..2000).map(|_| Attacker::new(&bounded)).collect();
    for client in &mut named {
        assert!(client.ask(&[b"CLIENT", b"SETNAME", &vec![b'n'; 7 << 10]]).errors == 1);
        assert_eq!(client.ask(&[b"CLIENT", b"SETNAME", &name]).errors, 0);
        assert_eq!(client.ask(&[b"CLIENT", b"SETINFO", b"LIB-NAME", &name]).errors, 0);
        assert_eq!(client.ask(&[b"CLIENT", b"SETINFO", b"LIB-VER", &name]).errors, 0);
    }
    for _ in 0..200 {
        attacker.ask_many(&[b"EXISTS"], &[&[b'x'; 1000]], 40);
    }
    assert!(attacker.ask(&[b"CLIENT", b"LIST"]).bytes > 6 << 20);
    attacker.ask_many(&[b"CLIENT", b"LIST", b"ID"], &[b"1"], 300_000);
    assert!(attacker.ask(&[b"SLOWLOG", b"GET", b"-1"]).bytes > 100_000);
    bounded.stayed_within("long names");
}
