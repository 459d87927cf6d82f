//! Elements of lists and values of fields that are longer than what is copied, and that come last: commands send and move such a
//! one as it lies, or refuse it and change nothing.

use crate::apart::{array, bulk};
use crate::named::exec;
use crate::received::{begun, checked, halves, long, replied};
use crate::survey::command;
use crate::users::{NO_KEY, say, with_user};
use crate::{Bench, bench};
use larder_commands::{Next, Session};
use std::sync::Arc;

/// One more than is copied.
const BYTES: usize = (4 << 20) + 1;
const TOO_LONG: &str = "-ERR element exceeds 4194304 bytes: it is sent or moved as a whole by LINDEX, LRANGE, LPOP, LMOVE, HGET, HGETALL and their like outside of MULTI and scripts, and not copied or compared\r\n";
const TOO_LARGE: &str = "-ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)\r\n";
const HELD: &str = "-OOM connections hold as much memory as they may\r\n";

/// Runs a command whose last word comes in two halves.
fn put(bench: &mut Bench, words: &[&str]) -> String {
    let (one, other) = halves(words, 1 << 20);
    let mut session = begun(bench, &one);
    replied(bench, &mut session, &other)
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned()
}

fn is(bench: &mut Bench, words: &str, expected: &str) {
    let reply = bench.reply(words);
    let (start, wanted) = (shown(words.as_bytes()), shown(expected.as_bytes()));
    assert!(reply == expected.as_bytes(), "{start}: {} for {wanted}", shown(&reply));
}

/// A bench with a list `l` and a hash `h`, each of one such element.
fn filled(text: &str) -> Bench {
    let mut bench = bench();
    assert_eq!(put(&mut bench, &["RPUSH", "l", text]), ":1\r\n");
    assert_eq!(put(&mut bench, &["HSET", "h", "f", text]), ":1\r\n");
    bench
}

/// The list and the hash of [`filled`] are as they were.
fn is_as_it_was(bench: &mut Bench, text: &str) {
    is(bench, "LLEN l", ":1\r\n");
    is(bench, "LINDEX l 0", &bulk(text));
    is(bench, "HLEN h", ":1\r\n");
    is(bench, "HGET h f", &bulk(text));
}

#[test]
fn elements_of_lists_that_are_too_long_to_be_copied_are_sent_and_moved() {
    let text = long(BYTES);
    let mut bench = bench();
    let bench = &mut bench;
    assert_eq!(put(bench, &["RPUSH", "l", &text]), ":1\r\n");
    is(bench, "LINDEX l 0", &bulk(&text));
    is(bench, "RPUSH l a", ":2\r\n");
    is(bench, "LRANGE l 0 -1", &array(&[&text, "a"]));
    is(bench, "LRANGE l -1 -1", &array(&["a"]));
    is(bench, "LMOVE l m LEFT RIGHT", &bulk(&text));
    is(bench, "RPOPLPUSH m m", &bulk(&text));
    is(bench, "BLMOVE m l RIGHT LEFT 0", &bulk(&text));
    is(bench, "EXISTS m", ":0\r\n");
    is(bench, "LPOS l a", ":1\r\n");
    is(bench, "LINSERT l BEFORE a b", ":3\r\n");
    is(bench, "LSET l 1 c", "+OK\r\n");
    is(bench, "LREM l 1 c", ":1\r\n");
    is(bench, "COPY l m", ":1\r\n");
    is(bench, "RENAME m n", "+OK\r\n");
    // It is alone in its moment. What comes behind it is taken by what names one key.
    is(bench, "LPOP l 5", &array(&[&text, "a"]));
    let named = |elements: &[&str]| format!("*2\r\n{}{}", bulk("n"), array(elements));
    is(bench, "LMPOP 1 n LEFT COUNT 5", &named(&[&text]));
    is(bench, "LMPOP 1 n LEFT COUNT 5", &named(&["a"]));
    let named = array(&["k", &text]);
    let some = format!("*2\r\n{}{}", bulk("k"), array(&[&text]));
    for (words, expected) in [
        ("LPOP k", bulk(&text)),
        ("RPOP k", bulk(&text)),
        ("LPOP k 1", array(&[&text])),
        ("BLPOP k 0", named.clone()),
        ("BRPOP k 0", named),
        ("BLMPOP 0 1 k RIGHT COUNT 3", some),
        ("LSET k 0 a", "+OK\r\n".to_owned()),
        ("DEL k", ":1\r\n".to_owned()),
    ] {
        bench.reply("DEL k");
        assert_eq!(put(bench, &["RPUSH", "k", &text]), ":1\r\n", "{words}");
        is(bench, words, &expected);
        is(bench, "EXISTS k", if words.starts_with("LSET") { ":1\r\n" } else { ":0\r\n" });
    }
    let pushes = [("LPUSHX", 0), ("LPUSH", 1), ("RPUSHX", 2), ("RPUSH", 3), ("LPUSHX", 4)];
    for (verb, there) in pushes {
        assert_eq!(put(bench, &[verb, "k", &text]), format!(":{there}\r\n"), "{verb}");
    }
    is(bench, "LRANGE k 1 2", &array(&[&text, &text]));
    assert_eq!(put(bench, &["LSET", "k", "0", &text]), "+OK\r\n");
    assert_eq!(put(bench, &["RPUSH", "k", "a", &text]), ":6\r\n");
    is(bench, "LRANGE k -2 -1", &array(&["a", &text]));
}

#[test]
fn values_of_fields_that_are_too_long_to_be_copied_are_sent() {
    let text = long(BYTES);
    let mut bench = bench();
    let bench = &mut bench;
    assert_eq!(put(bench, &["HSET", "h", "f", &text]), ":1\r\n");
    assert_eq!(put(bench, &["HSETNX", "h", "f", &text]), ":0\r\n");
    is(bench, "HSTRLEN h f", &format!(":{BYTES}\r\n"));
    is(bench, "HGET h f", &bulk(&text));
    is(bench, "HMGET h f none", &format!("*2\r\n{}$-1\r\n", bulk(&text)));
    is(bench, "HGETALL h", &array(&["f", &text]));
    is(bench, "HVALS h", &array(&[&text]));
    is(bench, "HRANDFIELD h 5 WITHVALUES", &array(&["f", &text]));
    is(bench, "HSCAN h 0", &format!("*2\r\n{}{}", bulk("0"), array(&["f", &text])));
    is(bench, "HSCAN h 0 NOVALUES", &format!("*2\r\n{}{}", bulk("0"), array(&["f"])));
    is(bench, "HINCRBY h f 1", "-ERR hash value is not an integer\r\n");
    is(bench, "HEXPIRE h 100 FIELDS 1 f", "*1\r\n:1\r\n");
    is(bench, "HGETEX h PERSIST FIELDS 1 f", &array(&[&text]));
    is(bench, "COPY h m", ":1\r\n");
    is(bench, "HGETDEL m FIELDS 1 f", &array(&[&text]));
    is(bench, "EXISTS m", ":0\r\n");
    assert_eq!(put(bench, &["HMSET", "h", "g", &text]), "+OK\r\n");
    assert_eq!(put(bench, &["HSETEX", "h", "EX", "100", "FIELDS", "1", "g", &text]), ":1\r\n");
    is(bench, "HTTL h FIELDS 1 g", "*1\r\n:100\r\n");
    assert_eq!(put(bench, &["HSET", "h", "f", "short", "g", &text]), ":0\r\n");
    is(bench, "HMGET h f g", &array(&["short", &text]));
    assert_eq!(put(bench, &["HSET", "h", "g", &text]), ":0\r\n");
    is(bench, "HSET h a 1 b 2 c 3 f 4 g 5", ":3\r\n");
    is(bench, "HMGET h f g", &array(&["4", "5"]));
    for field in ["f", "g", "i"] {
        put(bench, &["HSET", "h", field, &text]);
    }
    is(bench, "HDEL h f g i a", ":4\r\n");
    is(bench, "HLEN h", ":2\r\n");
}

/// What copies or compares one refuses it, and it is there as before.
#[test]
fn what_copies_or_compares_refuses_what_is_too_long_for_that() {
    let text = long(BYTES);
    let mut bench = filled(&text);
    bench.reply("RPUSH keys h");
    let field = format!("$1\r\nf\r\n{TOO_LONG}");
    for (words, expected) in [
        (format!("LPOS l {text}"), TOO_LONG),
        (format!("LREM l 0 {text}"), TOO_LONG),
        (format!("LINSERT l BEFORE {text} a"), TOO_LONG),
        ("DUMP l".to_owned(), TOO_LONG),
        ("DUMP h".to_owned(), TOO_LONG),
        ("SORT l ALPHA".to_owned(), TOO_LONG),
        ("SORT l BY nosort STORE s".to_owned(), TOO_LONG),
        ("SORT keys BY nosort GET *->f".to_owned(), &*format!("*1\r\n{TOO_LONG}")),
        ("SORT keys BY nosort GET *->f STORE s".to_owned(), TOO_LARGE),
        ("HGETDEL h FIELDS 2 f none".to_owned(), TOO_LONG),
        ("HGETEX h EX 100 FIELDS 2 none f".to_owned(), TOO_LONG),
        // What is picked again and again is picked of a copy.
        ("HRANDFIELD h -2 WITHVALUES".to_owned(), &*format!("*4\r\n{field}{field}")),
        // What is not received is copied: a request that is whole when it begins.
        (format!("RPUSH l {text}"), TOO_LARGE),
        (format!("LSET l 0 {text}"), TOO_LARGE),
        (format!("HSET h f {text}"), TOO_LARGE),
        (format!("HSET h a 1 f {text}"), TOO_LARGE),
    ] {
        is(&mut bench, &words, expected);
        is_as_it_was(&mut bench, &text);
    }
    is(&mut bench, "EXISTS s", ":0\r\n");
    is(&mut bench, "HTTL h FIELDS 1 f", "*1\r\n:-1\r\n");
    checked(bench);
}

/// In a transaction and in a script, where all would be copied. What is short beside it is taken as ever.
#[test]
fn in_a_transaction_what_is_too_long_to_be_copied_is_refused() {
    let text = long(BYTES);
    let mut bench = filled(&text);
    let one = format!("*1\r\n{TOO_LONG}");
    for (words, expected) in [
        ("LINDEX l 0", TOO_LONG),
        ("LRANGE l 0 -1", &*one),
        ("LPOP l", TOO_LONG),
        ("RPOP l 1", TOO_LONG),
        ("LMOVE l m LEFT LEFT", TOO_LONG),
        ("LMPOP 1 l LEFT", TOO_LONG),
        ("BLPOP l 0", TOO_LONG),
        ("BLMOVE l m LEFT LEFT 0", TOO_LONG),
        ("SORT l BY nosort", TOO_LONG),
        ("DUMP l", TOO_LONG),
        ("HGET h f", TOO_LONG),
        ("HMGET h f", &*one),
        ("HGETALL h", &*format!("*2\r\n$1\r\nf\r\n{TOO_LONG}")),
        ("HSCAN h 0", &*format!("*2\r\n$1\r\n0\r\n*2\r\n$1\r\nf\r\n{TOO_LONG}")),
        ("HGETDEL h FIELDS 1 f", TOO_LONG),
    ] {
        let reply = exec(&mut bench, &[words]);
        assert!(reply == format!("*1\r\n{expected}"), "{words}: {}", shown(reply.as_bytes()));
        is_as_it_was(&mut bench, &text);
    }
    let reply = bench.reply("EVAL return(redis.pcall('lpop','l')) 0");
    assert!(reply.starts_with(b"-ERR element exceeds 4194304 bytes"), "{}", shown(&reply));
    is_as_it_was(&mut bench, &text);
    bench.reply("LPUSH l a");
    bench.reply("RPUSH l b");
    let short = exec(&mut bench, &["LPOP l", "RPOP l", "HSET h g 1", "HGET h g"]);
    assert_eq!(short, "*4\r\n$1\r\na\r\n$1\r\nb\r\n:1\r\n$1\r\n1\r\n");
    assert_eq!(exec(&mut bench, &["HDEL h g", "COPY l m", "DEL m"]), "*3\r\n:1\r\n:1\r\n:1\r\n");
    is_as_it_was(&mut bench, &text);
    checked(bench);
}

/// It is in its list until the client comes for it, since it could not be put back: where the client has gone the next has it.
#[test]
fn a_client_that_waits_takes_what_is_too_long_to_be_copied_itself() {
    let text = long(BYTES);
    let some = format!("*2\r\n{}{}", bulk("k"), array(&[&text]));
    for (words, expected) in [
        ("BLPOP k 0", array(&["k", &text])),
        ("BRPOP none k 0", array(&["k", &text])),
        ("BLMPOP 0 1 k LEFT COUNT 3", some),
    ] {
        for goes in [false, true] {
            let mut bench = bench();
            let [mut first, mut next] = [(); 2].map(|()| Session::new());
            for waiter in [&mut first, &mut next] {
                let sent = bench.asked(words);
                assert_eq!(bench.turn(waiter, &sent), (Next::Await(None), Vec::new()));
            }
            assert_eq!(put(&mut bench, &["RPUSH", "k", &text]), ":1\r\n");
            is(&mut bench, "LLEN k", ":1\r\n");
            if goes {
                bench.ended(first);
                is(&mut bench, "LLEN k", ":1\r\n");
                assert!(replied(&mut bench, &mut next, b"") == expected, "{words}");
            } else {
                assert!(replied(&mut bench, &mut first, b"") == expected, "{words}");
                drop(first);
            }
            is(&mut bench, "EXISTS k", ":0\r\n");
            drop(next);
            checked(bench);
        }
    }
    // What is moved to another list is not put back.
    let mut bench = bench();
    let mut waiter = Session::new();
    let sent = bench.asked("BLMOVE k m LEFT RIGHT 0");
    assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
    assert_eq!(put(&mut bench, &["RPUSH", "k", &text]), ":1\r\n");
    is(&mut bench, "EXISTS k m", ":1\r\n");
    assert!(replied(&mut bench, &mut waiter, b"") == bulk(&text));
    is(&mut bench, "LINDEX m 0", &bulk(&text));
    drop(waiter);
    checked(bench);
}

/// Also where clients are shown what is done, and by a user with rules, which are asked when it is whole.
#[test]
fn what_is_too_long_to_be_copied_is_received_whoever_sends_it_and_whoever_looks_on() {
    let text = long(BYTES);
    let mut bench = bench();
    let (mut listens, mut monitor) = (Session::new(), Session::new());
    bench.turns(&mut listens, &command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]));
    bench.turns(&mut listens, &command(&["PSUBSCRIBE", "__keyevent@0__:*"]));
    assert_eq!(replied(&mut bench, &mut monitor, &command(&["MONITOR"])), "+OK\r\n");
    assert_eq!(put(&mut bench, &["RPUSH", "l", &text]), ":1\r\n");
    let heard = replied(&mut bench, &mut listens, &command(&["PING"]));
    assert_eq!(heard.matches("__keyevent@0__:rpush\r\n").count(), 1, "{heard}");
    let seen = replied(&mut bench, &mut monitor, &command(&["PING"]));
    assert!(seen.contains(&format!("\"... ({BYTES} bytes)\"")), "{seen}");
    is(&mut bench, "LLEN l", ":1\r\n");
    drop((listens, monitor));
    checked(bench);
    // One key has another type, which the user may not know.
    let (mut bench, mut admin, mut user) = with_user("~l +@all");
    assert_eq!(say(&mut bench, &mut admin, "SET s v"), "+OK");
    for (key, reply) in [("l", ":1"), ("s", NO_KEY)] {
        let (one, other) = halves(&["RPUSH", key, &text], 1 << 20);
        assert_eq!(bench.turn(&mut user, &one), (Next::Receive, Vec::new()), "{key}");
        assert_eq!(replied(&mut bench, &mut user, &other).trim_end(), reply, "{key}");
    }
    assert_eq!(say(&mut bench, &mut admin, "LLEN l"), ":1");
    drop((admin, user));
    checked(bench);
}

/// It is not copied where connections hold too much for it to be pinned, and stays where it is.
#[test]
fn what_is_too_long_to_be_copied_is_refused_where_connections_hold_their_share() {
    let text = long(BYTES);
    let mut bench = filled(&text);
    let store = Arc::clone(bench.worker.store());
    let free = store.held_bytes_max() - store.held_bytes();
    let taken = (free - (BYTES as u64 - 1)) as i64;
    store.hold(taken);
    let before = store.held_bytes();
    for words in [
        "LINDEX l 0",
        "LRANGE l 0 -1",
        "LPOP l",
        "LPOP l 2",
        "LMPOP 1 l LEFT",
        "BLPOP l 0",
        "LMOVE l m LEFT LEFT",
        "HGET h f",
        "HGETALL h",
        "HGETDEL h FIELDS 1 f",
    ] {
        is(&mut bench, words, HELD);
        assert_eq!(store.held_bytes(), before, "{words}");
    }
    is(&mut bench, "HMGET h none f", &format!("*2\r\n$-1\r\n{HELD}"));
    is(&mut bench, "HSCAN h 0", &format!("*2\r\n$1\r\n0\r\n*2\r\n$1\r\nf\r\n{HELD}"));
    store.hold(-taken);
    is_as_it_was(&mut bench, &text);
    checked(bench);
}
