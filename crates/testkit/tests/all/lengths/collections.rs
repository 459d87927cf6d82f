//! Redis's commands on collections, with keys and elements of every length: each either succeeds, or replies that the collection
//! would be too large, and later reads agree.

use super::{KEY_BYTES, VALUE_BYTES, answered, key, shown, value};
use larder_testkit::local::Local;
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

/// Words: `K` and `J` are keys, `V` and `W` values of one length. The last reply contains V or the text that stands for it,
/// except where something was too large.
pub const FORMS: &[&str] = &[
    "hset K V W | hget K V",
    "hmset K f V | hmget K f nosuch",
    "hsetnx K f V | hgetall K",
    "hset K V 1 | hkeys K",
    "hset K f V | hvals K",
    "hset K V 1 f 2 | hdel K f | hexists K V",
    "hset K V W | hlen K",
    "hset K f V | hstrlen K f",
    "hset K V 5 | hincrby K V 7 | hget K V",
    "hset K V 5 | hincrbyfloat K V 0.5 | hget K V",
    "hset K V W | hrandfield K -3 WITHVALUES",
    "hset K V W | hscan K 0",
    "hset K V W | hgetdel K FIELDS 1 V",
    "hset K V W | hexpire K 100 FIELDS 1 V | hget K V",
    "hset K V W | hpexpire K 100000 FIELDS 1 V | hpersist K FIELDS 1 V | hget K V",
    "hset K V W | hexpireat K 4000000000 FIELDS 1 V | hexpiretime K FIELDS 1 V | hget K V",
    "hset K V W | hpexpireat K 4000000000000 FIELDS 1 V | hpexpiretime K FIELDS 1 V | hget K V",
    "hset K V W | httl K FIELDS 1 V | hget K V",
    "hset K V W | hpttl K FIELDS 1 V | hget K V",
    "hset K V W | hgetex K EX 100 FIELDS 1 V",
    "hsetex K EX 100 FIELDS 1 V W | hgetall K",
    "lpush K V | lindex K 0",
    "rpush K V W | rpop K | lrange K 0 -1",
    "rpush K a | lpushx K V | rpushx K V | llen K",
    "rpush K V | lpop K",
    "rpush K a | lset K 0 V | lpos K V",
    "rpush K a | linsert K BEFORE a V | lrem K 1 a | lindex K 0",
    "rpush K V a | ltrim K 0 0 | lindex K 0",
    "rpush K V | lmove K J LEFT RIGHT | lindex J 0",
    "rpush K V | rpoplpush K J | lmpop 2 K J LEFT",
    "rpush K V | multi | blpop K 0 | exec",
    "rpush K V | multi | brpop J K 0 | exec",
    "rpush K V | multi | blmove K J LEFT LEFT 0 | lindex J 0 | exec",
    "rpush K V | multi | brpoplpush K J 0 | exec",
    "rpush K V | multi | blmpop 0 2 J K LEFT | exec",
    "zadd K 1 V | multi | bzpopmin K 0 | exec",
    "zadd K 1 V | multi | bzpopmax J K 0 | exec",
    "zadd K 1 V | multi | bzmpop 0 2 J K MIN | exec",
    "sadd K V | sismember K V",
    "sadd K V a | srem K a | smembers K",
    "sadd K V | scard K",
    "sadd K V | smismember K V nosuch",
    "sadd K V | smove K J V | srandmember J",
    "sadd K V | sscan K 0",
    "sadd K V | spop K",
    "sadd K V | sadd J V | sinter K J",
    "sadd K V | sunion K J",
    "sadd K V | sdiff K J",
    "sadd K V | sunionstore J K | smembers J",
    "sadd K V | sinterstore J K K | smembers J",
    "sadd K V | sdiffstore J K nosuch | smembers J",
    "sadd K V | sintercard 2 K K",
    "zadd K 1 V | zrange K 0 -1",
    "zadd K 1 V | zincrby K 1 V | zscore K V",
    "zadd K 1 V 2 a | zrem K a | zcard K",
    "zadd K 1 V | zmscore K V nosuch",
    "zadd K 1 V | zcount K 0 1",
    "zadd K 1 V | zlexcount K - +",
    "zadd K 1 V | zrank K V",
    "zadd K 1 V | zrevrank K V",
    "zadd K 1 V | zrevrange K 0 -1 WITHSCORES",
    "zadd K 1 V | zrangebyscore K 0 1",
    "zadd K 1 V | zrevrangebyscore K 1 0",
    "zadd K 1 V | zrangebylex K - +",
    "zadd K 1 V | zrevrangebylex K + -",
    "zadd K 1 V | zrangestore J K 0 -1 | zrange J 0 -1",
    "zadd K 1 V 2 a | zremrangebyrank K 1 1 | zrange K 0 -1",
    "zadd K 1 V 2 a | zremrangebyscore K 2 2 | zrange K 0 -1",
    "zadd K 1 V | zremrangebylex K [nosuch [nosuch | zrange K 0 -1",
    "zadd K 1 V | zpopmin K",
    "zadd K 1 V | zpopmax K 1",
    "zadd K 1 V | zmpop 2 J K MIN",
    "zadd K 1 V | zrandmember K",
    "zadd K 1 V | zscan K 0",
    "zadd K 1 V | zunion 2 K J",
    "zadd K 1 V | zinter 2 K K",
    "zadd K 1 V | zdiff 2 K J",
    "zadd K 1 V | zunionstore J 1 K | zrange J 0 -1",
    "zadd K 1 V | zinterstore J 2 K K | zrange J 0 -1",
    "zadd K 1 V | zdiffstore J 1 K | zrange J 0 -1",
    "zadd K 1 V | zintercard 2 K K",
    "pfadd K V W | pfcount K | pfadd J V | pfmerge K J | pfdebug TODENSE K",
    "geoadd K 13 38 V | geodist K V V | geohash K V | geopos K V | geosearch K FROMMEMBER V BYRADIUS 1 km",
    "geoadd K 13 38 V | georadius K 13 38 1 km | georadiusbymember K V 1 km STORE J | zrange J 0 -1",
    "geoadd K 13 38 V | geosearchstore J K FROMLONLAT 13 38 BYBOX 1 1 km | zrange J 0 -1",
    "geoadd K 13 38 V | georadius_ro K 13 38 1 km | georadiusbymember_ro K V 1 m",
    "xadd K 1-1 V W | xrange K - +",
    "xadd K 1-1 V W | xrevrange K + -",
    "xadd K 1-1 f V | xlen K",
    "xadd K 1-1 f V | xadd K 2-1 f W | xtrim K maxlen 1",
    "xadd K 1-1 V f | xdel K 1-1",
    "xadd K 1-1 V W | xread streams K 0",
    "xadd K 1-1 V 12 | xsetid K 5-1 | xinfo stream K",
    "xgroup create K V $ mkstream | xinfo groups K",
    "xgroup create K V 0 mkstream | xgroup setid K V $ | xinfo stream K full",
    "xgroup create K V 0 mkstream | xgroup createconsumer K V W | xinfo consumers K V",
    "xgroup create K V 0 mkstream | xgroup createconsumer K V W | xgroup delconsumer K V W | xgroup destroy K V",
    "xadd K 1-1 f V | xgroup create K V 0 | xreadgroup group V W streams K >",
    "xadd K 1-1 f V | xgroup create K V 0 | xreadgroup group V W streams K > | xpending K V - + 10",
    "xadd K 1-1 f V | xgroup create K V 0 | xreadgroup group V W streams K > | xack K V 1-1",
    "xadd K 1-1 f V | xgroup create K V 0 | xreadgroup group V W streams K > | xclaim K V a 0 1-1",
    "xadd K 1-1 f V | xgroup create K V 0 | xreadgroup group V W streams K > | xautoclaim K V a 0 0",
    "rpush K V | sort K ALPHA",
    "sadd K V a | sort K ALPHA STORE J | lrange J 0 -1",
    "zadd K 1 V | sort_ro K BY nosort GET #",
    "rpush K 1 | hset J1 f V | sort K BY J*->f ALPHA GET J*->f",
];

/// The error where something is too long for a collection.
const TOO_LONG: &[u8] = b"-ERR collection exceeds maximum allowed size";

/// Errors where something that a command needs does not exist.
const MISSED: &[&[u8]] = &[b"-NOGROUP ", b"-ERR no such key", b"-ERR The XGROUP subcommand requires the key"];

/// True if the frame contains these bytes at any depth.
fn has(frame: &Frame, bytes: &[u8]) -> bool {
    frame.body.as_deref() == Some(bytes) || frame.inside.iter().any(|inside| has(inside, bytes))
}

fn run(local: &mut Local, form: &str, key_bytes: usize, value_bytes: usize) -> Result<(), String> {
    let mut client = local.resp_connection();
    let last: Vec<u8> = value(value_bytes);
    let word = |word: &str| match word {
        "K" => key(key_bytes, b'a'),
        "J" => key(key_bytes, b'b'),
        "V" => last.clone(),
        "W" => last.iter().rev().copied().collect(),
        other => other.as_bytes().to_vec(),
    };
    let (mut frames, mut refused) = (Vec::new(), false);
    for request in ["flushall"].into_iter().chain(form.split(" | ")) {
        let words: Vec<Vec<u8>> = request.split(' ').map(word).collect();
        local.exchange(&mut client, &encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let got = client.sent().to_vec();
        client.forget();
        let (frame, length) = Frame::read(&got)?.ok_or("half a reply")?;
        if length != got.len() {
            return Err(format!("{request}: more than was asked for: {}", shown(&got)));
        }
        // A stream or a group that was refused does not exist.
        let is_missed = refused && MISSED.iter().any(|start| frame.line.starts_with(start));
        if frame.is_error() && !is_missed {
            if !frame.line.starts_with(TOO_LONG) {
                return Err(format!("{request}: {}", shown(&got)));
            }
            refused = true;
        }
        frames.push(frame);
    }
    // Two short strings and a key have room in any collection.
    let must_fit = key_bytes + 2 * value_bytes + 200 < 16_384;
    // A member may be as long as any element, so it is never refused.
    let is_of_members = form.starts_with("sadd") || form.starts_with("zadd") || form.starts_with("geoadd");
    if refused && (must_fit || is_of_members) {
        return Err("it is said to be too large, and is not".to_owned());
    }
    let reply = frames.last().ok_or("no reply")?;
    let is_told = has(reply, &last)
        || has(reply, &last.iter().rev().copied().collect::<Vec<u8>>())
        || reply.number().is_some_and(|n| n > 0)
        || has(reply, b"12")
        || has(reply, b"5.5")
        || has(reply, b"2")
        || reply.inside.iter().any(|frame| frame.number() == Some(1))
        || ["zrank", "zrevrank", "lpos"].iter().any(|name| form.contains(name)) && reply.number() == Some(0)
        || form.contains("hstrlen") && reply.number() == Some(value_bytes as i64)
        || form.contains("zmscore") && has(reply, b"1");
    if refused || is_told { Ok(()) } else { Err(format!("{form}: {}", String::from_utf8_lossy(&reply.line))) }
}

#[test]
fn elements_of_every_length_are_kept_or_said_to_be_too_long() {
    let mut local = Local::with_debug().expect("a server");
    let mut wrong = Vec::new();
    for key_bytes in KEY_BYTES {
        for value_bytes in VALUE_BYTES {
            for form in FORMS {
                if let Err(what) = answered(|| run(&mut local, form, key_bytes, value_bytes)) {
                    wrong.push(format!("key {key_bytes}, value {value_bytes}, {form:?}: {what}"));
                    local = Local::with_debug().expect("a server");
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
