//! Redis's commands, compared with the reference model; where the model has no answer, with properties that must hold.

use super::{KEY_BYTES, VALUE_BYTES, answered, key, shown, value};
use larder_commands::redis::row::Command;
use larder_commands::redis::table::REDIS;
use larder_testkit::local::{Local, LocalConnection, START};
use larder_testkit::redis::frame::Frame;
use larder_testkit::redis::model::Model;
use larder_testkit::redis::reply::Reply;
use larder_testkit::redis::scripts::digest;
use larder_testkit::talk::encode;

/// Words: `K` is a key that has a value, `J` another that has the same or none, `V` that value, `W` another of its length, `S` a
/// short key with the value, `""` nothing, `P` the reply of DUMP for K, `L` a library, and `sha:` the name of the script behind
/// it. A bar stands between requests. Lua needs no spaces.
const FORMS: &[&str] = &[
    "get K",
    "set K W",
    "set K W GET",
    "set K W XX EX 100",
    "set K W NX",
    "set K W IFEQ V",
    "set K W IFNE V GET",
    "set K W KEEPTTL",
    "set J W NX GET",
    "mget K J K",
    "getset K W",
    "getdel K",
    "getex K",
    "getex K PERSIST",
    "getex K PX 5000",
    "setnx K W",
    "setnx J W",
    "setex K 100 W",
    "psetex J 5000 W",
    "strlen K",
    "append K W",
    "append K \"\"",
    "append J W",
    "getrange K 0 -1",
    "getrange K 0 0",
    "getrange K -1 -1",
    "getrange K 5 3",
    "getrange K 16375 16376",
    "getrange K 16384 99999",
    "substr K 1 -2",
    "setrange K 0 W",
    "setrange K 0 \"\"",
    "setrange K 1 x",
    "setrange K 16375 xy",
    "setrange J 3 W",
    "setrange J 0 \"\"",
    "incr K",
    "incr J",
    "decr K",
    "incrby K 7",
    "decrby K 7",
    "incrbyfloat K 1.5",
    "incrbyfloat J 1.5",
    "mset K W J V",
    "msetnx K W J V",
    "msetex 2 K W J V EX 100",
    "msetex 1 K W XX KEEPTTL",
    "lcs K J",
    "lcs K K LEN",
    "lcs K J IDX WITHMATCHLEN",
    "del K J",
    "unlink K",
    "exists K J K",
    "touch K J",
    "type K",
    "expire K 100",
    "expire K -1",
    "pexpire K 5000 NX",
    "expireat K 1900000000 GT",
    "pexpireat K 1900000000000 LT",
    "ttl K",
    "pttl K",
    "expiretime K",
    "pexpiretime K",
    "persist K",
    "rename K J",
    "rename K K",
    "renamenx K J",
    "copy K J",
    "copy K J REPLACE",
    "copy K K DB 1 | select 1 | get K | select 0",
    "move K 1 | select 1 | get K | select 0",
    "dump K",
    "restore J 0 P",
    "restore K 5000 P REPLACE",
    "object encoding K",
    "object refcount K",
    "object idletime K",
    "object freq K",
    "memory usage K",
    "debug object K",
    "debug digest-value K S",
    "debug digest",
    "delex K",
    "delex K IFEQ V",
    "delex K IFNE V",
    "delifeq K V",
    "delifeq K W",
    "cl.throttle J 5 5 5 | cl.throttle J 5 5 5 1",
    "cl.throttle K 5 5 5",
    "setbit K 0 1",
    "setbit K 7 0",
    "setbit K 131007 1",
    "setbit J 100 1",
    "getbit K 2",
    "getbit K 131015",
    "bitcount K",
    "bitcount K 0 -2",
    "bitcount K 3 70 BIT",
    "bitpos K 0",
    "bitpos K 1 -1",
    "bitop not J K",
    "bitop and J K J",
    "bitop xor K K J",
    "bitfield K GET u8 0 SET u8 8 65 INCRBY i5 100 1",
    "bitfield K SET u16 131000 7",
    "bitfield J GET u8 0",
    "bitfield_ro K GET u8 0 GET u4 131006",
    "scan 0",
    "scan 0 MATCH * COUNT 1000 TYPE string",
    "keys *",
    "keys K",
    "keys k*a",
    "randomkey",
    "dbsize",
    "swapdb 0 1 | select 1 | get K | get J | select 0",
    "watch K J | multi | get K | set K W | append J V | incr K | exec",
    "watch K | set K W | multi | get K | exec",
    "multi | getdel K | setrange J 2 W | get J | discard",
    "flushdb",
    "echo K",
    "eval return(redis.pcall('get',KEYS[1])) 1 K",
    "eval return(redis.pcall('get',ARGV[1])) 0 K",
    "eval return(redis.pcall('set',KEYS[1],ARGV[1])) 1 K W",
    "eval return(redis.pcall('set',KEYS[2],ARGV[1],'PX','5000')) 2 K J W",
    "eval return(redis.pcall('set',ARGV[2],ARGV[1])) 1 K W J",
    "eval return(redis.pcall('append',KEYS[1],ARGV[1])) 1 J W",
    "eval return(redis.pcall('setrange',KEYS[1],'16375',ARGV[1])) 1 K W",
    "eval return(redis.pcall('getrange',KEYS[1],'0','-2')) 1 K",
    "eval return(redis.pcall('del',KEYS[1],KEYS[2])) 2 K J",
    "eval return(redis.pcall('get',KEYS[2])) 1 K",
    "eval_ro return(redis.pcall('strlen',KEYS[1])) 1 K",
    "eval_ro return(redis.pcall('append',KEYS[1],ARGV[1])) 1 K W",
    "script load return(redis.pcall('getdel',KEYS[1])) | evalsha sha:return(redis.pcall('getdel',KEYS[1])) 1 K",
    "script load return(redis.pcall('exists',KEYS[1])) | evalsha_ro sha:return(redis.pcall('exists',KEYS[1])) 1 J",
    "evalsha_ro sha:nosuch 1 K",
    "multi | eval return(redis.pcall('append',KEYS[1],ARGV[1])) 1 K W | eval return(redis.pcall('get',KEYS[1])) 1 K | exec",
    "watch K | eval return(redis.pcall('set',KEYS[1],ARGV[1])) 1 K W | multi | get K | exec",
    "function load replace L | fcall put 1 K W | fcall look 1 K",
    "function load replace L | fcall_ro look 1 K | fcall_ro put 1 K W",
];

/// Functions that touch their key.
const LIBRARY: &str = "#!lua name=mine
redis.register_function{function_name='put',callback=function(KEYS,ARGV)return(redis.pcall('set',KEYS[1],ARGV[1]))end}
redis.register_function{function_name='look',callback=function(KEYS,ARGV)return(redis.pcall('get',KEYS[1]))end,flags={'no-writes'}}";

/// How the requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Delivery {
    OneByOne,
    /// All requests in one piece.
    Piped,
}

/// A server, its model and a client of both.
struct Both {
    local: Local,
    client: LocalConnection,
    model: Model,
}

impl Both {
    fn new() -> Both {
        let mut local = Local::with_debug().expect("a server");
        let client = local.resp_connection();
        Both { local, client, model: Model::new(START as i64, 1) }
    }

    /// Sends these requests, compares the replies and returns them.
    fn ask(&mut self, requests: &[Vec<Vec<u8>>], delivery: Delivery) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        let pieces = match delivery {
            Delivery::OneByOne => 1,
            Delivery::Piped => requests.len(),
        };
        for requests in requests.chunks(pieces) {
            let sent: Vec<u8> = requests.iter().flat_map(|words| encoded(words)).collect();
            self.local.exchange(&mut self.client, &sent);
            let got = self.client.sent().to_vec();
            self.client.forget();
            let mut rest = &got[..];
            for words in requests {
                rest = &rest[self.judge(words, rest)?..];
            }
            if !rest.is_empty() {
                return Err(format!("more than was asked for: {}", shown(rest)));
            }
            all.extend(got);
        }
        Ok(all)
    }

    /// Checks the reply at the front; returns its length.
    fn judge(&mut self, words: &[Vec<u8>], got: &[u8]) -> Result<usize, String> {
        let wrong = |what: &str| {
            let request = words.iter().map(|word| shown(word)).collect::<Vec<_>>().join(" ");
            format!("{request}\n  expected {what}\n  got      {}", shown(got))
        };
        if self.model.knows(0, words) {
            let reply = self.model.ask(0, words);
            return reply.matches(got).ok_or_else(|| wrong(&shown(reply.shown().as_bytes())));
        }
        let (frame, length) = Frame::read(got)?.ok_or_else(|| wrong("a whole reply"))?;
        let name = String::from_utf8_lossy(&words[..2].join(&b' ')).into_owned();
        let what = match name.as_str() {
            "object idletime" => (frame.line == b":0").then_some(()).ok_or("0 seconds"),
            "object freq" => frame.line.starts_with(b"-ERR An LFU").then_some(()).ok_or("a refusal"),
            "memory usage" => {
                let value = self.model.ask(0, &[b"strlen".to_vec(), words[2].clone()]);
                let Reply::Bytes(length) = value else { return Err(wrong("a length")) };
                let length = Frame::read(&length)?.and_then(|(frame, _)| frame.number());
                let least = words[2].len() as i64 + length.ok_or_else(|| wrong("a length"))?;
                frame.number().filter(|&bytes| bytes > least).map(drop).ok_or("more than key and value")
            }
            "debug object" => frame.line.starts_with(b"+Value at:").then_some(()).ok_or("a description"),
            "debug digest" => (frame.line.len() == 41).then_some(()).ok_or("40 digits"),
            "debug digest-value" => {
                let [one, other] = &frame.inside[..] else { return Err(wrong("two digests")) };
                (one.body.is_some() && one == other).then_some(()).ok_or("equal digests")
            }
            _ => Err("something that this test knows"),
        };
        what.map(|()| length).map_err(wrong)
    }
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn words(form: &str, word: &dyn Fn(&str) -> Vec<u8>) -> Vec<Vec<Vec<u8>>> {
    form.split(" | ").map(|request| request.split(' ').map(word).collect()).collect()
}

/// Runs one form, starting from an empty server: with K that expires and J without an expiry, or with K without one and no J.
fn run(
    both: &mut Both,
    form: &str,
    lengths: (usize, usize),
    rich: bool,
    delivery: Delivery,
) -> Result<(), String> {
    let (key_bytes, value_bytes) = lengths;
    let mut payload = Vec::new();
    let word = |word: &str, payload: &[u8]| match word {
        "K" => key(key_bytes, b'a'),
        "J" => key(key_bytes, b'b'),
        "S" => b"s".to_vec(),
        "V" => value(value_bytes),
        "W" => value(value_bytes).into_iter().rev().collect(),
        "P" => payload.to_vec(),
        "\"\"" => Vec::new(),
        "L" => LIBRARY.into(),
        other if other.starts_with("sha:") => digest(&other.as_bytes()[4..]).into(),
        other => other.as_bytes().to_vec(),
    };
    let before =
        if rich { "flushall | set K V PX 90000 | set J V | set S V" } else { "flushall | set K V | set S V" };
    both.ask(&words(before, &|name| word(name, &[])), Delivery::OneByOne)?;
    if form.split(' ').any(|word| word == "P") {
        let said = both.ask(&words("dump K", &|name| word(name, &[])), Delivery::OneByOne)?;
        payload = Frame::read(&said)?.and_then(|(frame, _)| frame.body).ok_or("a payload")?;
    }
    let after = " | get K | get J | strlen K | pttl K | pttl J";
    let form = format!("{form}{after}");
    both.ask(&words(&form, &|name| word(name, &payload)), delivery)?;
    Ok(())
}

#[test]
fn every_command_on_every_length_is_answered_as_the_model_says() {
    let mut both = Both::new();
    let mut wrong = Vec::new();
    for key_bytes in KEY_BYTES {
        for value_bytes in VALUE_BYTES {
            for form in FORMS {
                for (rich, delivery) in [(true, Delivery::OneByOne), (false, Delivery::Piped)] {
                    let lengths = (key_bytes, value_bytes);
                    let done = answered(|| run(&mut both, form, lengths, rich, delivery));
                    if let Err(what) = done {
                        wrong.push(format!(
                            "key {key_bytes}, value {value_bytes}, {form:?}, {delivery:?}: {what}"
                        ));
                        both = Both::new();
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong, first\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
}

#[test]
fn every_command_that_names_a_key_has_a_form() {
    let has_form = |name: &str| {
        let words = name.replace('|', " ");
        FORMS
            .iter()
            .chain(super::collections::FORMS)
            .flat_map(|form| form.split(" | "))
            .any(|form| format!("{form} ").starts_with(&format!("{words} ")))
    };
    let rows = REDIS.iter().flat_map(|group| group.rows);
    let rows = rows.flat_map(|row| row.subcommands().iter().chain([row]));
    let named: Vec<&Command> = rows.filter(|row| row.keys.any()).collect();
    assert!(named.len() > 50, "{}", named.len());
    for row in named {
        assert!(has_form(row.name), "{} has no form", row.name);
    }
}
