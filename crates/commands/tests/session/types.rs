//! Commands of strings on keys that have collections, in both protocols: what they answer, and what is there then.

use crate::{Bench, START, bench};
use larder_commands::memcached::table::{CLASSIC, META, Run};
use larder_commands::redis::table::REDIS;
use larder_commands::{Counter, Session};
use larder_store::{Adding, Attributes, Expect, Made, NewFields, NewId, StreamId, Type};
use larder_testkit::talk::encode;

const TYPES: [(Type, &str); 5] = [
    (Type::Hash, "hash"),
    (Type::Set, "set"),
    (Type::SortedSet, "zset"),
    (Type::List, "list"),
    (Type::Stream, "stream"),
];
const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const OK: &str = "+OK\r\n";

/// What is there then.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The collection, as it was.
    Stays,
    /// A string.
    String,
    /// Nothing.
    Gone,
}
use Then::{Gone, Stays, String as Replaced};

impl Bench {
    /// Gives a key a collection, and another one of its length a string.
    fn make(&mut self, kind: Type) {
        let mut guard = self.worker.enter(START);
        let key = guard.key(b"K");
        let entries = [("a", "1", 1.0), ("b", "2", 2.0)];
        let entries = entries.map(|(name, value, score)| {
            let value = if kind == Type::Hash { value } else { "" };
            let score = if kind == Type::SortedSet { score } else { 0.0 };
            Made { name: name.as_bytes(), value: value.as_bytes(), score, expires_at: 0 }
        });
        if kind == Type::Stream {
            let _ = guard.delete(&key, Expect::Present);
            // With the row of the stream itself there are two.
            let fields = NewFields::of([(&b"a"[..], &b"1"[..])].into_iter()).unwrap();
            let id = NewId::Is(StreamId { ms: 1, seq: 1 });
            let adding = Adding {
                id,
                now: START,
                fields: &fields,
                apart: &[],
                present: false,
                trim: None,
                at_once: true,
            };
            guard.stream_add(&key, &adding).unwrap();
        } else {
            let done =
                guard.collection_store(&key, kind, entries.into_iter(), &Attributes::default(), Expect::Any);
            done.unwrap().unwrap();
        }
        for (name, value) in [("S", "string"), ("N", "1")] {
            let key = guard.key(name.as_bytes());
            guard.store_value(&key, value.as_bytes(), &Attributes::default(), Expect::Any).unwrap();
        }
    }

    fn is_there(&mut self, kind: Type) -> Then {
        let mut guard = self.worker.enter(START);
        let key = guard.key(b"K");
        let Some(item) = guard.peek(&key).hit() else { return Gone };
        if !item.is_collection() {
            return Replaced;
        }
        let there = guard.collection(&key, kind).unwrap().unwrap();
        assert_eq!(there.len(), 2);
        Stays
    }

    fn say(&mut self, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let replies = self.run(&mut Session::new(), &encode(&words), usize::MAX).0;
        String::from_utf8_lossy(&replies).into_owned()
    }
}

/// Every command of strings and bitmaps: what is said, what is answered, what is there then.
const RESP: &[(&str, &str, Then)] = &[
    ("get K", WRONG, Stays),
    ("set K v", OK, Replaced),
    ("set K v NX", "$-1\r\n", Stays),
    ("set K v XX", OK, Replaced),
    ("set K v KEEPTTL", OK, Replaced),
    ("set K v EX 100", OK, Replaced),
    ("set K v GET", WRONG, Stays),
    ("set K v NX GET", WRONG, Stays),
    ("set K v IFEQ a", WRONG, Stays),
    ("set K v IFNE a", WRONG, Stays),
    ("mget K S K", "*3\r\n$-1\r\n$6\r\nstring\r\n$-1\r\n", Stays),
    ("getset K v", WRONG, Stays),
    ("getdel K", WRONG, Stays),
    ("getex K", WRONG, Stays),
    ("getex K PERSIST", WRONG, Stays),
    ("getex K EX 100", WRONG, Stays),
    ("getex K EX 0", WRONG, Stays),
    ("setnx K v", ":0\r\n", Stays),
    ("setex K 100 v", OK, Replaced),
    ("psetex K 100000 v", OK, Replaced),
    ("strlen K", WRONG, Stays),
    ("append K v", WRONG, Stays),
    ("getrange K 0 -1", WRONG, Stays),
    ("substr K 0 -1", WRONG, Stays),
    ("setrange K 0 v", WRONG, Stays),
    ("setrange K 100000 v", WRONG, Stays),
    ("setrange K 0 ", WRONG, Stays),
    ("setrange K -1 v", "-ERR offset is out of range\r\n", Stays),
    ("incr K", WRONG, Stays),
    ("decr K", WRONG, Stays),
    ("incrby K 5", WRONG, Stays),
    ("incrby K x", "-ERR value is not an integer or out of range\r\n", Stays),
    ("decrby K 5", WRONG, Stays),
    ("incrbyfloat K 1.5", WRONG, Stays),
    ("mset K v", OK, Replaced),
    ("msetnx K v J v", ":0\r\n", Stays),
    ("msetex 1 K v", ":1\r\n", Replaced),
    ("msetex 1 K v NX", ":0\r\n", Stays),
    ("msetex 1 K v XX KEEPTTL", ":1\r\n", Replaced),
    ("lcs K S", "-ERR The specified keys must contain string values\r\n", Stays),
    ("lcs S K LEN", "-ERR The specified keys must contain string values\r\n", Stays),
    ("setbit K 1 1", WRONG, Stays),
    ("setbit K 1000000 1", WRONG, Stays),
    ("getbit K 1", WRONG, Stays),
    ("bitcount K", WRONG, Stays),
    ("bitcount K 0 -1", WRONG, Stays),
    ("bitpos K 1", WRONG, Stays),
    ("bitop and J S K", WRONG, Stays),
    ("bitop not J K", WRONG, Stays),
    ("bitop or K S S", ":6\r\n", Replaced),
    ("bitfield K GET u8 0", WRONG, Stays),
    ("bitfield K SET u8 0 1", WRONG, Stays),
    ("bitfield K SET u8 10000000 1 SET u8 0 1", WRONG, Stays),
    ("bitfield_ro K GET u8 0", WRONG, Stays),
    ("cl.throttle K 5 5 5", WRONG, Stays),
    ("pfadd K a", WRONG, Stays),
    ("pfadd K", WRONG, Stays),
    ("pfcount K", WRONG, Stays),
    ("pfcount J K", WRONG, Stays),
    ("pfmerge K", WRONG, Stays),
    ("pfmerge J K", WRONG, Stays),
    ("pfdebug TODENSE K", WRONG, Stays),
];

#[test]
fn a_command_of_strings_says_that_a_collection_is_none() {
    for (kind, name) in TYPES {
        for &(words, reply, then) in RESP {
            let mut bench = bench();
            bench.make(kind);
            assert_eq!(bench.say(words), reply, "{words} of a {name}");
            assert_eq!(bench.is_there(kind), then, "{words} of a {name}");
        }
    }
    let groups = REDIS.iter().filter(|group| matches!(group.name, "string" | "bitmap" | "hyperloglog"));
    for row in groups.flat_map(|group| group.rows) {
        let said = RESP.iter().any(|(words, ..)| words.split(' ').next() == Some(row.name));
        assert!(said, "{} is in no row", row.name);
    }
}

#[test]
fn a_command_of_keys_takes_a_collection_as_any_value() {
    for (kind, name) in TYPES {
        let encoding = if kind == Type::Stream { "$6\r\nstream\r\n" } else { "$8\r\nlistpack\r\n" };
        for (words, reply, then) in [
            ("type K", &*format!("+{name}\r\n"), Stays),
            ("exists K K S", ":3\r\n", Stays),
            ("touch K", ":1\r\n", Stays),
            ("ttl K", ":-1\r\n", Stays),
            ("object refcount K", ":1\r\n", Stays),
            ("object idletime K", ":0\r\n", Stays),
            ("object encoding K", encoding, Stays),
            ("expire K 100", ":1\r\n", Stays),
            ("expire K -1", ":1\r\n", Gone),
            ("persist K", ":0\r\n", Stays),
            ("del K", ":1\r\n", Gone),
            ("unlink K", ":1\r\n", Gone),
            ("delex K", ":1\r\n", Gone),
            ("delex K IFEQ a", "-ERR Key should be of string type if conditions are specified\r\n", Stays),
            ("delifeq K a", WRONG, Stays),
            ("rename K J", OK, Gone),
            ("rename S K", OK, Replaced),
            ("renamenx S K", ":0\r\n", Stays),
            ("move K 1", ":1\r\n", Gone),
            ("copy K J", ":1\r\n", Stays),
            ("copy S K", ":0\r\n", Stays),
            ("copy S K REPLACE", ":1\r\n", Replaced),
            ("keys K*", "*1\r\n$1\r\nK\r\n", Stays),
            (&*format!("scan 0 TYPE {name}"), "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nK\r\n", Stays),
            ("scan 0 TYPE nosuch", "*2\r\n$1\r\n0\r\n*0\r\n", Stays),
            ("swapdb 0 1", OK, Gone),
        ] {
            let mut bench = bench();
            bench.make(kind);
            assert_eq!(bench.say(words), reply, "{words} of a {name}");
            assert_eq!(bench.is_there(kind), then, "{words} of a {name}");
        }
    }
}

/// What text clients send, what they are answered, what is there then.
const TEXT: &[(&str, &str, Then)] = &[
    ("get K\r\n", "END\r\n", Stays),
    ("gets S K\r\n", "VALUE S 0 6 _\r\nstring\r\nEND\r\n", Stays),
    ("get K S K\r\n", "VALUE S 0 6\r\nstring\r\nEND\r\n", Stays),
    ("gat 100 K\r\n", "END\r\n", Stays),
    ("gats 100 K\r\n", "END\r\n", Stays),
    ("set K 0 0 1\r\nv\r\n", "STORED\r\n", Replaced),
    ("add K 0 0 1\r\nv\r\n", "NOT_STORED\r\n", Stays),
    ("replace K 0 0 1\r\nv\r\n", "STORED\r\n", Replaced),
    ("append K 0 0 1\r\nv\r\n", "NOT_STORED\r\n", Stays),
    ("prepend K 0 0 1\r\nv\r\n", "NOT_STORED\r\n", Stays),
    ("cas K 0 0 1 5\r\nv\r\n", "NOT_FOUND\r\n", Stays),
    ("incr K 1\r\n", "NOT_FOUND\r\n", Stays),
    ("decr K 1\r\n", "NOT_FOUND\r\n", Stays),
    ("delete K\r\n", "DELETED\r\n", Gone),
    ("touch K 100\r\n", "TOUCHED\r\n", Stays),
    ("mg K\r\n", "EN\r\n", Stays),
    ("mg K v\r\n", "EN\r\n", Stays),
    ("mg K v k q\r\nmn\r\n", "MN\r\n", Stays),
    ("mg K t v T100\r\n", "EN\r\n", Stays),
    ("mg K v N100\r\n", "EN\r\n", Stays),
    ("ms K 1\r\nv\r\n", "HD\r\n", Replaced),
    ("ms K 1 ME\r\nv\r\n", "NS\r\n", Stays),
    ("ms K 1 MR\r\nv\r\n", "HD\r\n", Replaced),
    ("ms K 1 MA\r\nv\r\n", "NS\r\n", Stays),
    ("ms K 1 MA N100\r\nv\r\n", "NS\r\n", Stays),
    ("ms K 1 MP\r\nv\r\n", "NS\r\n", Stays),
    ("ms K 1 C5\r\nv\r\n", "NF\r\n", Stays),
    ("ms K 1 C5 I\r\nv\r\n", "NF\r\n", Stays),
    ("ma K\r\n", "NF\r\n", Stays),
    ("ma K N100 J5\r\n", "NF\r\n", Stays),
    ("ma K MD\r\n", "NF\r\n", Stays),
    ("md K\r\n", "HD\r\n", Gone),
    ("md K C5\r\n", "EX\r\n", Stays),
    ("md K I T100\r\n", "HD\r\n", Stays),
    ("md K x\r\n", "HD\r\n", Replaced),
];

#[test]
fn a_text_client_does_not_see_a_collection_but_may_take_its_place() {
    for (kind, name) in TYPES {
        for &(words, reply, then) in TEXT {
            let mut bench = bench();
            bench.make(kind);
            let heard = bench.ask(words);
            // The token of `gets`.
            let heard = match heard.strip_prefix("VALUE S 0 6 ") {
                Some(rest) if words.starts_with("gets") => {
                    format!("VALUE S 0 6 _{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
                }
                _ => heard,
            };
            assert_eq!(heard, reply, "{words:?} of a {name}");
            assert_eq!(bench.is_there(kind), then, "{words:?} of a {name}");
        }
    }
    // `me` describes any item, `mn` none.
    let others = ["me", "mn"];
    let rows = CLASSIC.iter().chain(META).filter(|row| matches!(row.run, Run::Item));
    for row in rows.filter(|row| !others.contains(&row.name)) {
        let said = TEXT.iter().any(|(words, ..)| words.split(' ').next() == Some(row.name));
        assert!(said, "{} is in no row", row.name);
    }
}

#[test]
fn a_value_on_its_way_to_a_collection_ends_as_a_short_one_does() {
    for (kind, name) in TYPES {
        for (words, reply) in [
            ("cas K 0 0 100000 5", "NOT_FOUND\r\n"),
            ("append K 0 0 100000", "NOT_STORED\r\n"),
            ("add K 0 0 100000", "NOT_STORED\r\n"),
            ("ms K 100000 MA", "NS\r\n"),
            ("ms K 100000 C5", "NF\r\n"),
        ] {
            let mut bench = bench();
            bench.make(kind);
            let sent = format!("{words}\r\n{}\r\n", "v".repeat(100_000));
            let heard = bench.run(&mut Session::new(), sent.as_bytes(), 4096).0;
            assert_eq!(String::from_utf8_lossy(&heard), reply, "{words} of a {name}");
            assert_eq!(bench.is_there(kind), Stays, "{words} of a {name}");
        }
    }
}

#[test]
fn what_text_clients_miss_since_it_is_a_collection_is_counted() {
    let mut bench = bench();
    bench.make(Type::List);
    bench.ask("get K\r\nget K nosuch\r\nmg K v\r\ngat 0 K\r\n");
    assert_eq!(bench.counted(Counter::TypeMisses), 4);
    assert_eq!(bench.counted(Counter::GetMisses), 4);
    assert_eq!(bench.counted(Counter::CmdGet), 4);
    assert_eq!(bench.counted(Counter::GetHits), 0);
    assert_eq!(bench.counted(Counter::TouchMisses), 1);
    assert!(bench.say("info stats").contains("\r\ntype_misses:4\r\n"));
}
