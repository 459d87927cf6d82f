//! Publishing and subscribing: which clients get which messages, in which order and form; MONITOR.

use larder_testkit::talk::{Talk, encode, expect};

#[test]
fn subscribers_of_channels_and_patterns_are_told() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[
            (0, "SUBSCRIBE a b a", "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2 *3 $9 subscribe $1 a :2"),
            (0, "PSUBSCRIBE a* b?", "*3 $10 psubscribe $2 a* :3 *3 $10 psubscribe $2 b? :4"),
            (1, "SUBSCRIBE a", "*3 $9 subscribe $1 a :1"),
            (2, "PUBLISH a hello", ":3"),
            (2, "PUBLISH bc there", ":1"),
            (2, "PUBLISH c nobody", ":0"),
        ],
    );
    assert_eq!(
        talk.heard(0),
        "*3 $7 message $1 a $5 hello *4 $8 pmessage $2 a* $1 a $5 hello *4 $8 pmessage $2 b? $2 bc $5 there"
    );
    assert_eq!(talk.heard(1), "*3 $7 message $1 a $5 hello");
    expect(
        &mut talk,
        &[
            (2, "PUBSUB NUMSUB a b c", "*6 $1 a :2 $1 b :1 $1 c :0"),
            (2, "PUBSUB NUMPAT", ":2"),
            (2, "PUBSUB CHANNELS b*", "*1 $1 b"),
            (0, "UNSUBSCRIBE a", "*3 $11 unsubscribe $1 a :3"),
            (0, "UNSUBSCRIBE", "*3 $11 unsubscribe $1 b :2"),
            (0, "UNSUBSCRIBE", "*3 $11 unsubscribe $-1 :2"),
            (0, "UNSUBSCRIBE x", "*3 $11 unsubscribe $1 x :2"),
            (0, "PUNSUBSCRIBE", "*3 $12 punsubscribe $2 a* :1 *3 $12 punsubscribe $2 b? :0"),
            (2, "PUBLISH a again", ":1"),
            (0, "GET k", "$-1"),
        ],
    );
    talk.heard(1);
    talk.hang_up(1);
    expect(&mut talk, &[(2, "PUBLISH a again", ":0"), (2, "PUBSUB CHANNELS", "*0")]);
}

#[test]
fn sharded_channels_are_their_own() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[
            (0, "SSUBSCRIBE a", "*3 $10 ssubscribe $1 a :1"),
            (0, "SUBSCRIBE a", "*3 $9 subscribe $1 a :1"),
            (1, "SPUBLISH a one", ":1"),
            (1, "PUBLISH a two", ":1"),
            (1, "PUBSUB SHARDCHANNELS", "*1 $1 a"),
            (1, "PUBSUB SHARDNUMSUB a", "*2 $1 a :1"),
        ],
    );
    assert_eq!(talk.heard(0), "*3 $8 smessage $1 a $3 one *3 $7 message $1 a $3 two");
    expect(&mut talk, &[(0, "SUNSUBSCRIBE", "*3 $12 sunsubscribe $1 a :0")]);
}

#[test]
fn reset_ends_subscriptions_and_resp3_has_a_null_for_no_channel() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[(0, "SUBSCRIBE a", "*3 $9 subscribe $1 a :1"), (0, "RESET", "+RESET"), (1, "PUBLISH a x", ":0")],
    );
    talk.say(0, "HELLO 3");
    expect(&mut talk, &[(0, "UNSUBSCRIBE", ">3 $11 unsubscribe _ :0")]);
}

#[test]
fn messages_keep_the_order_of_their_publisher_and_of_own_replies() {
    let mut talk = Talk::new(&[]);
    talk.say(0, "SUBSCRIBE c");
    let pipeline: Vec<u8> =
        (0..500).flat_map(|n: u32| encode(&[b"PUBLISH", b"c", n.to_string().as_bytes()])).collect();
    assert_eq!(talk.send(1, &pipeline), vec![":1"; 500].join(" "));
    let expected: Vec<String> =
        (0..500).map(|n| n.to_string()).map(|n| format!("*3 $7 message $1 c ${} {n}", n.len())).collect();
    assert_eq!(talk.heard(0), expected.join(" "));
}

#[test]
fn subscriptions_in_a_transaction_are_answered_inside_its_reply() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[
            (0, "MULTI", "+OK"),
            (0, "SUBSCRIBE a", "+QUEUED"),
            (0, "PUBLISH a x", "+QUEUED"),
            (0, "EXEC", "*2 *3 $9 subscribe $1 a :1 :1 *3 $7 message $1 a $1 x"),
        ],
    );
}

#[test]
fn reply_off_still_lets_messages_through() {
    let mut talk = Talk::new(&[]);
    talk.say(0, "HELLO 3");
    expect(
        &mut talk,
        &[
            (0, "SUBSCRIBE a", ">3 $9 subscribe $1 a :1"),
            (0, "CLIENT REPLY OFF", ""),
            (1, "PUBLISH a x", ":1"),
        ],
    );
    assert_eq!(talk.heard(0), ">3 $7 message $1 a $1 x");
}

#[test]
fn subscriptions_hold_their_share_of_the_memory_and_no_more() {
    let mut talk = Talk::new(&["-m", "4"]);
    let mut n = 0;
    while talk.say(0, &format!("SUBSCRIBE channel:{n}")).starts_with("*3") {
        n += 1;
        assert!(n < 4000, "a sixteenth of 4 MiB");
    }
    assert!(n > 500);
    assert_eq!(talk.say(1, "PUBSUB NUMSUB channel:0"), "*2 $9 channel:0 :1");
    talk.hang_up(0);
    // Some of many subscriptions are removed at once, and the others by upkeep.
    talk.local().maintain(1000);
    assert_eq!(talk.local().store().held_bytes(), 0);
    assert_eq!(talk.say(1, "PUBSUB NUMSUB channel:0"), "*2 $9 channel:0 :0");
}

#[test]
fn monitor_shows_commands_of_all_clients() {
    let mut talk = Talk::new(&[]);
    assert_eq!(talk.say(0, "MONITOR"), "+OK");
    talk.say(1, "SET k \"\"");
    talk.say(1, "SELECT 2");
    talk.say(1, "CLIENT GETNAME");
    talk.say(1, "NOSUCH");
    talk.say(1, "AUTH secret");
    talk.say(1, "MULTI");
    talk.say(1, "GET k");
    talk.say(1, "EXEC");
    let heard = talk.heard(0);
    let commands: Vec<&str> =
        heard.split('+').filter_map(|line| line.split_once("] ")).map(|(_, c)| c.trim()).collect();
    assert_eq!(
        commands,
        [
            "\"SET\" \"k\" \"\"",
            "\"SELECT\" \"2\"",
            "\"CLIENT\" \"GETNAME\"",
            "\"AUTH\" \"(redacted)\"",
            "\"MULTI\"",
            "\"GET\" \"k\"",
            "\"EXEC\"",
        ]
    );
    let (time, rest) = heard[1..].split_once(' ').unwrap();
    assert!(time.parse::<f64>().is_ok() && time.split_once('.').unwrap().1.len() == 6, "{time}");
    assert!(rest.starts_with("[0 127.0.0.1:"), "{rest}");
    assert!(heard.contains("[2 127.0.0.1:"));
    assert_eq!(talk.say(0, "RESET"), "+RESET");
    talk.say(1, "GET k");
    assert_eq!(talk.heard(0), "");
}

#[test]
fn keyspace_events_tell_what_changed_and_nothing_else() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[
            (0, "CONFIG GET notify-keyspace-events", "*2 $22 notify-keyspace-events $0"),
            (0, "CONFIG SET notify-keyspace-events EA", "+OK"),
            (0, "CONFIG GET notify-keyspace-events", "*2 $22 notify-keyspace-events $2 AE"),
            (1, "PSUBSCRIBE __keyevent@*", "*3 $10 psubscribe $12 __keyevent@* :1"),
        ],
    );
    for (command, events) in [
        ("SET k v", "0:set k"),
        ("SET k v NX", ""),
        ("SET k v EX 100", "0:set k 0:expire k"),
        ("GET k", ""),
        ("PERSIST k", "0:persist k"),
        ("PERSIST k", ""),
        ("EXPIRE k 100", "0:expire k"),
        ("APPEND k x", "0:append k"),
        ("INCR n", "0:incrby n"),
        ("DECRBY n 2", "0:incrby n"),
        ("INCRBYFLOAT n 1", "0:incrbyfloat n"),
        ("SETRANGE k 0 y", "0:setrange k"),
        ("MSET a 1 b 2", "0:set a 0:set b"),
        ("DEL a none", "0:del a"),
        ("GETDEL b", "0:del b"),
        ("GETDEL b", ""),
        ("EXPIRE n -1", "0:del n"),
        ("SELECT 3", ""),
        ("SETEX t 100 v", "3:set t 3:expire t"),
    ] {
        let reply = talk.say(0, command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
        let heard = talk.heard(1);
        let told: Vec<String> = heard
            .split("*4 $8 pmessage $12 __keyevent@* ")
            .filter(|message| !message.is_empty())
            .map(|message| {
                let words: Vec<&str> = message.split_whitespace().collect();
                let channel = words[1].trim_start_matches("__keyevent@").replace("__:", ":");
                format!("{channel} {}", words[3])
            })
            .collect();
        assert_eq!(told.join(" "), events, "{command}");
    }
}

#[test]
fn keyspace_events_of_expiry_come_from_the_store() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[
            (0, "CONFIG SET notify-keyspace-events Kx", "+OK"),
            (1, "SUBSCRIBE __keyspace@0__:k", "*3 $9 subscribe $16 __keyspace@0__:k :1"),
            (0, "SET k v PX 50", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "SET j v", "+QUEUED"),
            (0, "EXEC", "*1 +OK"),
        ],
    );
    assert_eq!(talk.heard(1), "");
    talk.local().shift(100);
    // The access that finds the key expired may be a memcached client's.
    assert_eq!(talk.send(2, b"get k\r\n"), "END");
    assert_eq!(talk.heard(1), "*3 $7 message $16 __keyspace@0__:k $7 expired");
    expect(
        &mut talk,
        &[
            (0, "CONFIG SET notify-keyspace-events \"\"", "+OK"),
            (
                0,
                "CONFIG SET notify-keyspace-events q",
                "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
            ),
        ],
    );
}

#[test]
fn keyspace_events_tell_of_memcached_writes_and_of_misses() {
    let mut talk = Talk::new(&[]);
    expect(
        &mut talk,
        &[
            (0, "CONFIG SET notify-keyspace-events EAmn", "+OK"),
            (1, "PSUBSCRIBE __keyevent@*", "*3 $10 psubscribe $12 __keyevent@* :1"),
        ],
    );
    let large = format!("set large 0 0 100000\r\n{}\r\n", "v".repeat(100_000));
    for (bytes, events) in [
        ("set k 0 0 1\r\n5\r\n", "new k set k"),
        ("add k 0 0 1\r\n5\r\n", ""),
        ("get k\r\n", ""),
        ("get none k\r\n", "keymiss none"),
        ("mg none v\r\n", "keymiss none"),
        ("incr k 2\r\n", "incrby k"),
        ("decr k 1\r\n", "incrby k"),
        ("append k 0 0 1\r\n1\r\n", "append k"),
        ("touch k 100\r\n", "expire k"),
        ("gat 0 k\r\n", "persist k"),
        ("ms k 1 T100\r\n7\r\n", "set k expire k"),
        ("ma k\r\n", "incrby k"),
        ("delete k\r\n", "del k"),
        ("delete k\r\n", ""),
        ("md k\r\n", ""),
        (large.as_str(), "new large set large"),
    ] {
        talk.send(2, bytes.as_bytes());
        let heard = talk.heard(1);
        let words: Vec<&str> = heard.split(' ').filter(|word| !word.starts_with(['*', '$'])).collect();
        let told: Vec<String> = words
            .chunks(4)
            .filter(|four| four.len() == 4)
            .map(|four| format!("{} {}", four[2].trim_start_matches("__keyevent@0__:"), four[3]))
            .collect();
        assert_eq!(told.join(" "), events, "{}", bytes.lines().next().unwrap_or_default());
    }
    talk.say(0, "MGET none large");
    assert!(talk.heard(1).contains("__keyevent@0__:keymiss $4 none"));
}
