//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: their replies, and the commands that change a watched key.

use larder_testkit::talk::{Talk, encode, expect};

fn talk() -> Talk {
    Talk::new(&[])
}

#[test]
fn discard_forgets_queue_and_watches() {
    expect(
        &mut talk(),
        &[
            (0, "WATCH k", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "SET k 1", "+QUEUED"),
            (1, "SET k 2", "+OK"),
            (0, "DISCARD", "+OK"),
            (0, "GET k", "$1 2"),
            (0, "MULTI", "+OK"),
            (0, "GET k", "+QUEUED"),
            (0, "EXEC", "*1 $1 2"),
        ],
    );
}

#[test]
fn command_that_cannot_be_queued_aborts_exec_before_a_touched_watch_does() {
    for (bad, reply) in [
        ("NOSUCH a", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
    ] {
        expect(
            &mut talk(),
            &[
                (0, "WATCH k", "+OK"),
                (1, "SET k 2", "+OK"),
                (0, "MULTI", "+OK"),
                (0, bad, reply.trim_end()),
                (0, "SET k 3", "+QUEUED"),
                (0, "EXEC", "-EXECABORT Transaction discarded because of previous errors."),
                (0, "GET k", "$1 2"),
                (0, "MULTI", "+OK"),
                (0, "PING", "+QUEUED"),
                (0, "EXEC", "*1 +PONG"),
            ],
        );
    }
}

#[test]
fn error_at_run_time_is_an_element_and_the_rest_runs() {
    expect(
        &mut talk(),
        &[
            (0, "SET k word", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "INCR k", "+QUEUED"),
            (0, "SET other 1", "+QUEUED"),
            (0, "EXEC", "*2 -ERR value is not an integer or out of range +OK"),
            (0, "GET other", "$1 1"),
        ],
    );
}

#[test]
fn nil_of_exec_is_an_array_in_resp2_and_a_null_in_resp3() {
    let mut talk = talk();
    for (hello, nil) in [("HELLO 2", "*-1"), ("HELLO 3", "_")] {
        talk.say(0, hello);
        expect(
            &mut talk,
            &[
                (0, "WATCH k", "+OK"),
                (1, "SET k 2", "+OK"),
                (0, "MULTI", "+OK"),
                (0, "SET k 3", "+QUEUED"),
                (0, "EXEC", nil),
                (0, "GET k", "$1 2"),
            ],
        );
    }
}

/// A command of the second client, or of the first itself, between WATCH and EXEC, and whether it changes the key.
#[test]
fn what_touches_a_watched_key() {
    let touching = [
        "SET k v",
        "GETSET k v",
        "GETEX k EX 100",
        "INCRBY n 0",
        "APPEND k \"\"",
        "APPEND none \"\"",
        "DEL k",
        "UNLINK k",
        "EXPIRE k 100",
        "PEXPIREAT k 9999999999999",
        "EXPIRE k -1",
        "PERSIST t",
        "SETRANGE k 0 v",
        "MSET a 1 k v",
    ];
    let harmless = [
        "SET k v NX",
        "SET none v XX",
        "GETEX k",
        "GETEX k PERSIST",
        "SETRANGE k 0 \"\"",
        "EXPIRE none 100",
        "EXPIRE k 100 XX",
        "PERSIST k",
        "TOUCH k",
        "TTL k",
        "GET k",
        "DEL none",
        "MSETNX k 1 none 2",
        "STRLEN k",
        "SETNX k v",
        "GETDEL none",
    ];
    let all = touching.iter().map(|&c| (c, true)).chain(harmless.iter().map(|&c| (c, false)));
    for (command, touches) in all {
        for by in [0, 1] {
            let mut talk = talk();
            expect(
                &mut talk,
                &[
                    (0, "SET k value", "+OK"),
                    (0, "SET n 5", "+OK"),
                    (0, "SET t v EX 100", "+OK"),
                    (0, "WATCH k n t none", "+OK"),
                ],
            );
            let reply = talk.say(by, command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
            talk.say(0, "MULTI");
            talk.say(0, "PING");
            let reply = talk.say(0, "EXEC");
            assert_eq!(reply, if touches { "*-1" } else { "*1 +PONG" }, "{command} by {by}");
        }
    }
}

#[test]
fn watches_of_one_database_do_not_see_another() {
    expect(
        &mut talk(),
        &[
            (0, "SELECT 3", "+OK"),
            (0, "WATCH k", "+OK"),
            (0, "SELECT 0", "+OK"),
            (1, "SET k v", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "SELECT 4", "+QUEUED"),
            (0, "SET k four", "+QUEUED"),
            (0, "EXEC", "*2 +OK +OK"),
            (0, "GET k", "$4 four"),
            (0, "SELECT 3", "+OK"),
            (0, "WATCH k", "+OK"),
            (0, "SELECT 0", "+OK"),
            (1, "SELECT 3", "+OK"),
            (1, "SET k v", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "EXEC", "*-1"),
        ],
    );
}

#[test]
fn unwatch_clears_but_not_inside_multi() {
    expect(
        &mut talk(),
        &[
            (0, "WATCH k", "+OK"),
            (1, "SET k 1", "+OK"),
            (0, "UNWATCH", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "EXEC", "*0"),
            (0, "WATCH k", "+OK"),
            (0, "MULTI", "+OK"),
            (0, "UNWATCH", "+QUEUED"),
            (1, "SET k 1", "+OK"),
            (0, "EXEC", "*-1"),
            (0, "WATCH k", "+OK"),
            (1, "SET k 1", "+OK"),
            (0, "WATCH other", "+OK"),
            (0, "RESET", "+RESET"),
            (0, "MULTI", "+OK"),
            (0, "EXEC", "*0"),
        ],
    );
}

#[test]
fn watched_key_that_expires_aborts_and_one_that_had_expired_does_not() {
    let mut talk = talk();
    expect(&mut talk, &[(0, "SET k v PX 50", "+OK"), (0, "WATCH k", "+OK"), (0, "MULTI", "+OK")]);
    talk.local().shift(60);
    // No command reads the key.
    expect(&mut talk, &[(0, "PING", "+QUEUED"), (0, "EXEC", "*-1"), (0, "SET k v PX 50", "+OK")]);
    talk.local().shift(60);
    expect(&mut talk, &[(0, "WATCH k", "+OK"), (1, "GET k", "$-1"), (0, "MULTI", "+OK"), (0, "EXEC", "*0")]);
    // The key expired before WATCH, and is set again.
    expect(&mut talk, &[(0, "SET k v PX 50", "+OK")]);
    talk.local().shift(60);
    expect(
        &mut talk,
        &[(0, "WATCH k", "+OK"), (1, "SET k w", "+OK"), (0, "MULTI", "+OK"), (0, "EXEC", "*-1")],
    );
}

#[test]
fn flush_aborts_only_if_a_watched_key_was_there() {
    for (before, reply) in [("SET k v", "*-1"), ("SET other v", "*0")] {
        let mut talk = talk();
        expect(&mut talk, &[(0, before, "+OK"), (0, "WATCH k", "+OK")]);
        assert_eq!(talk.send(1, b"flush_all\r\n"), "OK");
        expect(&mut talk, &[(0, "MULTI", "+OK"), (0, "EXEC", reply)]);
    }
}

#[test]
fn memcached_writes_touch_and_memcached_reads_do_not() {
    let mut talk = talk();
    expect(&mut talk, &[(0, "SET k 5", "+OK")]);
    for (line, touches) in [
        ("set k 0 0 1\r\n7\r\n", true),
        ("incr k 1\r\n", true),
        ("append k 0 0 1\r\n0\r\n", true),
        ("touch k 100\r\n", true),
        ("cas k 0 0 1 1\r\n7\r\n", false),
        ("add k 0 0 1\r\n7\r\n", false),
        ("get k\r\n", false),
        ("gets k\r\n", false),
        ("md k\r\n", true),
        ("ms k 1\r\n5\r\n", true),
    ] {
        expect(&mut talk, &[(0, "WATCH k", "+OK")]);
        talk.send(1, line.as_bytes());
        expect(&mut talk, &[(0, "MULTI", "+OK"), (0, "EXEC", if touches { "*-1" } else { "*0" })]);
    }
}

#[test]
fn client_that_goes_takes_its_watches_along() {
    let mut talk = talk();
    expect(&mut talk, &[(0, "WATCH k j", "+OK"), (1, "WATCH k", "+OK")]);
    let store = talk.local().store().clone();
    assert!(store.watch_bytes() > 0);
    talk.hang_up(0);
    expect(&mut talk, &[(2, "SET k v", "+OK"), (1, "MULTI", "+OK"), (1, "EXEC", "*-1")]);
    assert_eq!(store.watch_bytes(), 0);
}

#[test]
fn pipelined_transaction_is_answered_in_order() {
    let mut talk = talk();
    let words: [&[&[u8]]; 6] = [
        &[b"SET", b"a", b"1"],
        &[b"MULTI"],
        &[b"INCR", b"a"],
        &[b"MGET", b"a", b"b"],
        &[b"EXEC"],
        &[b"GET", b"a"],
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|words| encode(words)).collect();
    assert_eq!(talk.send(0, &bytes), "+OK +OK +QUEUED +QUEUED *2 :2 *2 $1 2 $-1 $1 2");
}

#[test]
fn queue_holds_its_share_of_the_memory_and_gives_it_back() {
    let mut talk = Talk::new(&["-m", "4"]);
    let value = vec![b'v'; 30_000];
    let set = encode(&[b"SET", b"k", &value]);
    for _ in 0..2 {
        assert_eq!(talk.say(0, "MULTI"), "+OK");
        let mut queued = 0;
        while talk.send(0, &set) == "+QUEUED" {
            queued += 1;
            assert!(queued < 10, "a sixteenth of 4 MiB is 8 of them");
        }
        assert!(queued > 2);
        let abort = "-EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(talk.say(0, "EXEC"), abort);
    }
    let store = talk.local().store().clone();
    assert_eq!(store.held_bytes(), 0);
}

#[test]
fn large_transaction_of_new_keys_is_carried_out() {
    let mut talk = talk();
    assert_eq!(talk.say(0, "MULTI"), "+OK");
    for n in 0..3000 {
        assert_eq!(talk.say(0, &format!("SET key:{n} {n}")), "+QUEUED");
    }
    assert_eq!(talk.say(0, "EXEC"), format!("*3000{}", " +OK".repeat(3000)));
    assert_eq!(talk.say(1, "GET key:2999"), "$4 2999");
}

/// Every command with a key, in a transaction: the same replies as outside, and every key is locked.
#[test]
fn commands_answer_in_a_transaction_as_outside() {
    let commands = [
        "SET k 10",
        "GET k",
        "GETSET k 11",
        "GETEX k EX 100",
        "GETDEL k",
        "SETNX k 5",
        "SETEX e 100 v",
        "PSETEX e 100000 v",
        "APPEND k 0",
        "STRLEN k",
        "INCR k",
        "INCRBY k 5",
        "DECR k",
        "DECRBY k 2",
        "INCRBYFLOAT k 0.5",
        "SETRANGE r 3 abc",
        "GETRANGE r 0 -1",
        "SUBSTR r 0 2",
        "MSET a 1 b 2 c 3",
        "MGET a b c d",
        "MSETNX a 1 z 2",
        "MSETNX y 1 z 2",
        "MSETEX 2 m 1 n 2 EX 100",
        "LCS r r",
        "DEL a b",
        "UNLINK c",
        "EXISTS k r none",
        "TOUCH k r",
        "TYPE k",
        "EXPIRE k 100",
        "PEXPIRE k 100000",
        "EXPIREAT k 9999999999",
        "PEXPIREAT k 9999999999999",
        "TTL none",
        "PERSIST k",
        "EXPIRETIME k",
        "RENAME k k2",
        "RENAMENX k2 k",
        "COPY k k3",
        "COPY k k3 REPLACE",
        "COPY k k4 DB 5",
        "OBJECT ENCODING k",
        "OBJECT REFCOUNT k",
        "SETBIT bits 7 1",
        "GETBIT bits 7",
        "BITCOUNT bits",
        "BITPOS bits 1",
        "BITOP AND dest bits bits",
        "BITOP NOT dest bits",
        "BITFIELD bits SET u8 0 255 GET u4 0",
        "BITFIELD_RO bits GET u8 0",
        "MOVE k3 7",
        "SET k v IFEQ w",
        "DELEX k IFEQ nothing",
        "DELIFEQ k nothing",
        "CL.THROTTLE t 15 30 60 1",
        "DBSIZE",
        "PING",
        "ECHO x",
        "SELECT 2",
        "SET k two",
        "GET k",
        "SWAPDB 2 3",
        "GET k",
        "SELECT 0",
        "GET k",
        "FLUSHDB",
        "DBSIZE",
        "SET k v",
        "FLUSHALL",
        "GET k",
        "WAIT 0 0",
        "PUBSUB NUMPAT",
        "PUBLISH c m",
    ];
    for one_by_one in [true, false] {
        let (mut outside, mut inside) = (talk(), talk());
        let expected: Vec<String> = commands.iter().map(|command| outside.say(0, command)).collect();
        if one_by_one {
            for (command, expected) in commands.iter().zip(&expected) {
                assert_eq!(inside.say(0, "MULTI"), "+OK");
                assert_eq!(inside.say(0, command), "+QUEUED", "{command}");
                assert_eq!(inside.say(0, "EXEC"), format!("*1 {expected}"), "{command}");
            }
        } else {
            // All commands in one transaction: once with those that lock the whole store, once without.
            let whole = ["MOVE", "DBSIZE", "SWAPDB", "FLUSHDB", "FLUSHALL", "COPY k k4"];
            for with_whole in [true, false] {
                let (mut outside, mut inside) = (talk(), talk());
                let mut expected = String::new();
                let mut count = 0;
                assert_eq!(inside.say(0, "MULTI"), "+OK");
                for command in commands {
                    if with_whole || !whole.iter().any(|name| command.starts_with(name)) {
                        expected += &format!(" {}", outside.say(0, command));
                        count += 1;
                        assert_eq!(inside.say(0, command), "+QUEUED", "{command}");
                    }
                }
                assert_eq!(inside.say(0, "EXEC"), format!("*{count}{expected}"));
            }
        }
    }
}

#[test]
fn swapdb_and_flushdb_abort_only_if_a_watched_key_is_concerned() {
    // The keys that exist before, by database; the command; whether it aborts a watch of `k` in database 1.
    for (there, done, aborts) in [
        (&[(1, "k")][..], "SWAPDB 1 2", true),
        (&[(2, "k")], "SWAPDB 1 2", true),
        (&[(1, "other"), (3, "k")], "SWAPDB 1 2", false),
        (&[(1, "k")], "SWAPDB 3 4", false),
        (&[(1, "k")], "FLUSHALL", true),
        (&[(0, "k"), (1, "other")], "FLUSHALL", false),
        (&[(0, "k"), (1, "k")], "FLUSHDB", false),
    ] {
        let mut talk = talk();
        for (db, key) in there {
            talk.say(1, &format!("SELECT {db}"));
            talk.say(1, &format!("SET {key} v"));
        }
        talk.say(1, "SELECT 0");
        expect(&mut talk, &[(0, "SELECT 1", "+OK"), (0, "WATCH k", "+OK"), (1, done, "+OK")]);
        let reply = if aborts { "*-1" } else { "*1 +PONG" };
        expect(&mut talk, &[(0, "MULTI", "+OK"), (0, "PING", "+QUEUED")]);
        assert_eq!(talk.say(0, "EXEC"), reply, "{there:?} {done}");
        let store = talk.local().store().clone();
        assert_eq!(store.watch_bytes(), 0);
    }
}

#[test]
fn what_takes_the_store_as_a_whole_is_counted() {
    let mut talk = talk();
    expect(
        &mut talk,
        &[
            (0, "MULTI", "+OK"),
            (0, "SET k v", "+QUEUED"),
            (0, "DBSIZE", "+QUEUED"),
            (0, "EXEC", "*2 +OK :1"),
            (0, "MULTI", "+OK"),
            (0, "SET k v", "+QUEUED"),
            (0, "EXEC", "*1 +OK"),
            (0, "SWAPDB 0 1", "+OK"),
            (0, "GET k", "$-1"),
        ],
    );
    assert_eq!(talk.local().store().whole_holds(), 2);
    // memcached's keyspace is the database of name 0.
    assert_eq!(talk.send(1, b"get k\r\n"), "END");
    expect(&mut talk, &[(0, "SWAPDB 1 0", "+OK")]);
    assert_eq!(talk.send(1, b"get k\r\n"), "VALUE k 0 1 v END");
}

#[test]
fn key_that_was_made_and_removed_again_is_touched() {
    expect(
        &mut talk(),
        &[
            (0, "WATCH k", "+OK"),
            (1, "SET k v", "+OK"),
            (1, "DEL k", ":1"),
            (0, "MULTI", "+OK"),
            (0, "PING", "+QUEUED"),
            (0, "EXEC", "*-1"),
        ],
    );
}

#[test]
fn watched_key_that_is_evicted_aborts() {
    let mut talk = Talk::new(&["-m", "4", "-I", "1m"]);
    expect(&mut talk, &[(0, "SET k v", "+OK"), (0, "WATCH k", "+OK")]);
    // Other keys of about its size are stored until it is evicted.
    let mut round = 0;
    while talk.say(1, "EXISTS k") == ":1" {
        assert!(round < 4000, "a cache of 4 MB holds no 400,000 keys");
        let names: Vec<String> = (0..100).map(|n| format!("f{round}:{n}")).collect();
        let words = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
        talk.send(1, &encode(&std::iter::once(&b"MSET"[..]).chain(words).collect::<Vec<_>>()));
        round += 1;
    }
    expect(
        &mut talk,
        &[
            (1, "EXISTS k", ":0"),
            (0, "MULTI", "+OK"),
            (0, "SET other v", "+QUEUED"),
            (0, "EXEC", "*-1"),
            (0, "EXISTS other", ":0"),
        ],
    );
}
