//! Hashes and sets that are trees, under keys of every length: each command replies the same for all of them.

use super::{KEY_BYTES, answered, key, shown};
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

/// Elements: far more than one item has room for.
const ELEMENTS: usize = 700;

/// Words as in `collections.rs`; `M` stands for all members, `P` for all with a value, `S` for some of the members. Behind them
/// is the reply: a number, or its count of elements.
const TREES: &[(&str, &[(&str, i64)])] = &[
    ("sadd K M", &[("scard K", 700), ("sismember K member350", 1), ("smembers K", 700), ("scard J", 0)]),
    (
        "hset K P",
        &[("hlen K", 700), ("hget K member350", 5), ("hgetall K", 1400), ("hstrlen K member350", 5)],
    ),
    ("sadd K M", &[("srem K S", 100), ("scard K", 600), ("spop K 50", 50), ("scard K", 550)]),
    ("hset K P", &[("hdel K S", 100), ("hlen K", 600), ("hkeys K", 600), ("hvals K", 600)]),
    ("sadd K M", &[("srem K M", 700), ("exists K", 0)]),
    ("hset K P", &[("hdel K M", 700), ("exists K", 0)]),
    (
        "hset K P",
        &[
            ("hexpire K 100 FIELDS 700 M", 700),
            ("httl K FIELDS 700 M", 700),
            ("hpersist K FIELDS 100 S", 100),
            ("hgetex K EX 7 FIELDS 100 S", 100),
            ("hlen K", 700),
            ("hexpireat K 1 FIELDS 100 S", 100),
            ("hlen K", 600),
            ("hgetdel K FIELDS 700 M", 700),
            ("exists K", 0),
        ],
    ),
    (
        "hset K P",
        &[
            ("hsetex K FXX EX 100 FIELDS 700 P", 1),
            ("copy K J", 1),
            ("rename J K", -2),
            ("hlen K", 700),
            ("httl K FIELDS 700 M", 700),
        ],
    ),
    ("sadd K M", &[("spop K 700", 700), ("exists K", 0)]),
    ("sadd K M", &[("pexpire K 100000", 1), ("persist K", 1), ("persist K", 0), ("smismember K S", 100)]),
    ("sadd K M", &[("smove K J member7", 1), ("scard J", 1), ("scard K", 699), ("smove J K member7", 1)]),
    ("sadd K M", &[("sinter K K", 700), ("sdiff K J", 700), ("sunion K J", 700), ("sintercard 2 K K", 700)]),
    ("sadd K M", &[("sunionstore J K", 700), ("scard J", 700), ("sdiffstore J K K", 0), ("exists J", 0)]),
    ("hset K P", &[("hincrby K counter 7", 7), ("hsetnx K member7 x", 0), ("hrandfield K 30", 30)]),
    ("sadd K M", &[("srandmember K -30", 30), ("srandmember K 700", 700), ("sscan K 0 COUNT 10000", 2)]),
    ("sadd K M", &[("del K", 1), ("exists K", 0), ("sadd K M", 700), ("unlink K", 1)]),
    ("sadd K M", &[("set K 7", -2), ("incr K", 8), ("del K", 1), ("sadd K M", 700)]),
    ("sadd K M", &[("touch K", 1), ("object encoding K", -2), ("memory usage K", -2), ("expire K -1", 1)]),
];

/// A reply as a number: its value, its count of elements, or its length. -2: a reply of another kind.
fn number(frame: &Frame) -> i64 {
    match (frame.number(), &frame.body) {
        (Some(number), _) => number,
        (None, Some(body)) => body.len() as i64,
        (None, None) if frame.inside.is_empty() && !frame.line.starts_with(b"*") => -2,
        (None, None) => frame.inside.len() as i64,
    }
}

fn ask(
    local: &mut Local,
    client: &mut LocalConnection,
    request: &str,
    key_bytes: usize,
) -> Result<Frame, String> {
    let members = |count: usize| (0..count).map(|n| format!("member{n}").into_bytes());
    let mut words: Vec<Vec<u8>> = Vec::new();
    for word in request.split(' ') {
        match word {
            "K" => words.push(key(key_bytes, b'a')),
            "J" => words.push(key(key_bytes, b'b')),
            "M" => words.extend(members(ELEMENTS)),
            "P" => words.extend(members(ELEMENTS).flat_map(|member| [member, b"value".to_vec()])),
            "S" => words.extend(members(100)),
            other => words.push(other.as_bytes().to_vec()),
        }
    }
    local.exchange(client, &encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let got = client.sent().to_vec();
    client.forget();
    let (frame, length) = Frame::read(&got)?.ok_or("half a reply")?;
    if length != got.len() || frame.is_error() {
        return Err(format!("{request}: {}", shown(&got)));
    }
    Ok(frame)
}

fn run(local: &mut Local, made: &str, asked: &[(&str, i64)], key_bytes: usize) -> Result<(), String> {
    let mut client = local.resp_connection();
    ask(local, &mut client, "flushall", key_bytes)?;
    let frame = ask(local, &mut client, made, key_bytes)?;
    if number(&frame) != ELEMENTS as i64 {
        return Err(format!("{made}: {frame:?}"));
    }
    for (request, expected) in asked {
        let frame = ask(local, &mut client, request, key_bytes)?;
        if *expected != -2 && number(&frame) != *expected {
            return Err(format!("{request}: {} is not {expected}", number(&frame)));
        }
    }
    Ok(())
}

#[test]
fn trees_under_keys_of_every_length() {
    let mut local = Local::with_debug().expect("a server");
    for key_bytes in KEY_BYTES {
        for (made, asked) in TREES {
            if let Err(what) = answered(|| run(&mut local, made, asked, key_bytes)) {
                panic!("key {key_bytes}, {made:?}: {what}");
            }
        }
    }
}
