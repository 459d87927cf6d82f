//! Values of fields that are longer than a leaf, by every command that has to do with one.

use crate::apart::{array, bulk, is_dumped_restored_and_told_apart, job};
use crate::long_members::turns;
use crate::{Bench, START, bench};
use larder_commands::{Session, Settings};

/// A bench with more memory, where what is left of long requests may be kept.
pub(crate) fn large_bench() -> Bench {
    Bench::of(Settings { append_bytes_max: 64 << 20, ..Settings::default() }, 512 << 20)
}

/// A reply, without more of it than is shown where it is another.
pub(crate) fn is(bench: &mut Bench, command: &str, expected: &str) {
    let reply = bench.reply(command);
    let (start, wanted) = (&command[..command.len().min(60)], &expected[..expected.len().min(80)]);
    assert!(
        reply == expected.as_bytes(),
        "{start}: {} for {wanted}",
        String::from_utf8_lossy(&reply[..reply.len().min(80)])
    );
}

#[test]
fn long_values_are_set_read_changed_and_removed() {
    let mut bench = bench();
    // A worker that has run a script holds room for the keys that it names.
    bench.reply("EVAL return{redis.call('exists','h')} 0");
    let held = bench.worker.store().held_bytes();
    for bytes in [16_300, 16_343, 16_344, 16_345, 16_400, 17_000, 20_000, 100_000, 400_000, 1 << 20] {
        let (job, other) = (job(bytes), job(bytes - 1) + "!");
        let is = |bench: &mut Bench, command: &str, expected: &str| self::is(bench, command, expected);
        let bench = &mut bench;
        is(bench, &format!("HSET h s {job}"), ":1\r\n");
        is(bench, "HGET h s", &bulk(&job));
        is(bench, "HGETALL h", &array(&["s", &job]));
        is(bench, "HSET h a 1 b 2", ":2\r\n");
        is(bench, "HMGET h a s none b s", &format!("*5\r\n$1\r\n1\r\n{0}$-1\r\n$1\r\n2\r\n{0}", bulk(&job)));
        is(bench, "HSTRLEN h s", &format!(":{bytes}\r\n"));
        is(bench, "HEXISTS h s", ":1\r\n");
        is(bench, "HLEN h", ":3\r\n");
        is(bench, &format!("HSETNX h s {other}"), ":0\r\n");
        is(bench, &format!("HSETNX h t {other}"), ":1\r\n");
        is(bench, "HGET h t", &bulk(&other));
        is(bench, &format!("HMSET h s {other} t {job}"), "+OK\r\n");
        is(bench, "HMGET h s t", &array(&[&other, &job]));
        is(bench, "HINCRBY h s 1", "-ERR hash value is not an integer\r\n");
        is(bench, "HINCRBYFLOAT h s 1.5", "-ERR hash value is not a float\r\n");
        is(bench, "HDEL h a b", ":2\r\n");
        is(bench, "HDEL h s", ":1\r\n");
        is(bench, "HGETALL h", &array(&["t", &job]));
        is(bench, "HVALS h", &array(&[&job]));
        is(bench, "HKEYS h", &array(&["t"]));
        is(bench, "HRANDFIELD h", &bulk("t"));
        is(bench, "HRANDFIELD h 5 WITHVALUES", &array(&["t", &job]));
        is(bench, "HRANDFIELD h -2 WITHVALUES", &array(&["t", &job, "t", &job]));
        is(bench, "HSCAN h 0", &format!("*2\r\n{}{}", bulk("0"), array(&["t", &job])));
        is(bench, "HSCAN h 0 NOVALUES", &format!("*2\r\n{}{}", bulk("0"), array(&["t"])));
        is(bench, "COPY h copied", ":1\r\n");
        is(bench, "RENAME copied m", "+OK\r\n");
        is(bench, "HGET m t", &bulk(&job));
        is(bench, "MOVE m 1", ":1\r\n");
        is(bench, "EXISTS m", ":0\r\n");
        is(bench, "COPY h m DB 0", ":1\r\n");
        is(bench, "HGETDEL m FIELDS 2 none t", &format!("*2\r\n$-1\r\n{}", bulk(&job)));
        is(bench, "EXISTS m", ":0\r\n");
        is(bench, &format!("HSETEX h EX 100 FIELDS 2 t {other} u {job}"), ":1\r\n");
        is(bench, "HTTL h FIELDS 2 t u", "*2\r\n:100\r\n:100\r\n");
        is(bench, "HGETEX h PERSIST FIELDS 1 t", &array(&[&other]));
        is(bench, "HTTL h FIELDS 2 t u", "*2\r\n:-1\r\n:100\r\n");
        is(bench, "HPEXPIRE h 1 FIELDS 1 t", "*1\r\n:1\r\n");
        is(bench, "HPEXPIRE h 0 FIELDS 1 t", "*1\r\n:2\r\n");
        is(bench, "HPERSIST h FIELDS 1 u", "*1\r\n:1\r\n");
        is(bench, "HGETALL h", &array(&["u", &job]));
        is(bench, "SET of:1 x", "+OK\r\n");
        is(bench, "RPUSH l h", ":1\r\n");
        is(
            bench,
            "SORT l BY nosort GET *->u GET # GET *->none",
            &format!("*3\r\n{}$1\r\nh\r\n$-1\r\n", bulk(&job)),
        );
        is(bench, "EVAL return{redis.call('hget','h','u'),redis.call('hgetall','h')} 0", &{
            format!("*2\r\n{}{}", bulk(&job), array(&["u", &job]))
        });
        is(bench, "OBJECT ENCODING h", &bulk("hashtable"));
        is(bench, "HSET h u 1", ":0\r\n");
        is(bench, "HINCRBY h u 4", ":5\r\n");
        is(bench, "HGETALL h", &array(&["u", "5"]));
        is(bench, &format!("HSET h u {job}"), ":0\r\n");
        let mut session = Session::new();
        for (command, expected) in [
            ("MULTI", "+OK\r\n".to_owned()),
            ("HGET h u", "+QUEUED\r\n".to_owned()),
            ("HMGET h none", "+QUEUED\r\n".to_owned()),
            ("HGETALL h", "+QUEUED\r\n".to_owned()),
            ("HGETDEL h FIELDS 1 u", "+QUEUED\r\n".to_owned()),
            ("EXEC", format!("*4\r\n{}*1\r\n$-1\r\n{}{}", bulk(&job), array(&["u", &job]), array(&[&job]))),
        ] {
            let sent = bench.asked(command);
            let (reply, _) = bench.turns(&mut session, &sent);
            let at = reply.iter().zip(expected.as_bytes()).position(|(one, other)| one != other);
            let from = at.unwrap_or(0);
            let shown = String::from_utf8_lossy(&reply[from..reply.len().min(from + 99)]);
            assert!(reply == expected.as_bytes(), "{bytes}: {command}: {at:?}: {shown}");
        }
        assert_eq!(bench.reply("EXISTS h"), b":0\r\n");
        bench.reply("FLUSHALL");
    }
    // Room for the replies of what a script calls is kept between runs.
    assert!(bench.worker.store().held_bytes() <= held + (16 << 10));
    bench.check();
}

/// Up to the limit a value is taken, at once and in steps, and above it refused before anything is done.
#[test]
fn a_value_has_four_mebibytes_and_no_byte_more() {
    let mut bench = large_bench();
    let too_large = "-ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)\r\n";
    let most = 4 << 20;
    for (bytes, fits) in [(most - 1, true), (most, true), (most + 1, false)] {
        let job = job(bytes);
        is(&mut bench, &format!("HSET h s {job}"), if fits { ":1\r\n" } else { too_large });
        is(&mut bench, "EXISTS h", if fits { ":1\r\n" } else { ":0\r\n" });
        is(&mut bench, "HGET h s", &if fits { bulk(&job) } else { "$-1\r\n".to_owned() });
        is(&mut bench, &format!("HSETNX h t {job}"), if fits { ":1\r\n" } else { too_large });
        let pairs: String = (0..700).map(|n| format!(" f{n} v")).collect();
        is(&mut bench, &format!("HSET h{pairs} g {job}"), if fits { ":701\r\n" } else { too_large });
        let set = format!("HSETEX h FIELDS 702{pairs} g {job} i x");
        is(&mut bench, &set, if fits { ":1\r\n" } else { too_large });
        is(&mut bench, "HLEN h", if fits { ":704\r\n" } else { ":0\r\n" });
        is(&mut bench, "DEL h", if fits { ":1\r\n" } else { ":0\r\n" });
    }
    // A name has as much as it had, whatever its value has.
    let name = job(16_332);
    is(&mut bench, &format!("HSET h {name} {}", job(20_000)), ":1\r\n");
    is(&mut bench, &format!("HGET h {name}"), &bulk(&job(20_000)));
    is(&mut bench, &format!("HSET h {name}1 {}", job(20_000)), too_large);
    bench.check();
}

/// Hashes with long values are dumped and restored, have one digest, and say what they take.
#[test]
fn hashes_of_long_values_are_dumped_restored_and_told_apart() {
    for timed in [false, true] {
        let mut bench = bench();
        let (long, longer) = (job(20_000), job(300_000));
        bench.reply(&format!("HSET h a {long} b 7 c {longer} d {longer} e x"));
        if timed {
            assert_eq!(bench.reply("HEXPIRE h 100 FIELDS 2 a e"), b"*2\r\n:1\r\n:1\r\n");
        }
        let shows = |bench: &mut Bench| {
            is(bench, "HMGET m a b c d e", &array(&[&long, "7", &longer, &longer, "x"]));
            let ttl = if timed { "*2\r\n:100\r\n:-1\r\n" } else { "*2\r\n:-1\r\n:-1\r\n" };
            is(bench, "HTTL m FIELDS 2 a c", ttl);
        };
        let change = format!("HSET m d {}", job(299_999) + "!");
        is_dumped_restored_and_told_apart(bench, "h", shows, &change);
    }
}

/// Fields that are due go with their values, and what these took is given back.
#[test]
fn long_values_expire() {
    let mut bench = bench();
    let used = |bench: &Bench| {
        bench.worker.store().classes(START).iter().map(|class| class.used_chunks).sum::<u64>()
    };
    let before = used(&bench);
    for n in 0..20 {
        bench.reply(&format!("HSETEX h PX 1000 FIELDS 2 f{n} {} g{n} x", job(100_000)));
    }
    assert!(used(&bench) - before > 20 * 6);
    bench.system += 2_000;
    is(&mut bench, "HLEN h", ":0\r\n");
    is(&mut bench, "EXISTS h", ":0\r\n");
    for _ in 0..1_000 {
        bench.worker.enter(START + 2_000).maintain();
    }
    assert!(used(&bench) <= before + 2, "{before} {}", used(&bench));
    bench.check();
}

/// No turn writes or replies more than some mebibytes, however many values are named.
#[test]
fn no_turn_copies_more_than_some_mebibytes_of_values() {
    let mut bench = large_bench();
    let job = job(1 << 20);
    let names: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
    let pairs: String = names.iter().map(|name| format!(" {name} {job}")).collect();
    let (reply, count, ns_max) = turns(&mut bench, &format!("HSET h{pairs}"));
    assert_eq!(reply, b":40\r\n");
    assert!(count >= 5 && ns_max < 10_000_000, "{count} {ns_max}");
    let all = names.join(" ");
    let values = format!("*40\r\n{}", bulk(&job).repeat(40));
    for command in
        [format!("HMGET h {all}"), format!("HGETEX h PERSIST FIELDS 40 {all}"), "HVALS h".to_owned()]
    {
        let (reply, count, ns_max) = turns(&mut bench, &command);
        let start = &command[..5];
        assert!(reply == values.as_bytes(), "{start} {}", reply.len());
        assert!(count >= 5 && ns_max < 10_000_000, "{start} {count} {ns_max}");
    }
    let (reply, count, ns_max) = turns(&mut bench, "HRANDFIELD h -60 WITHVALUES");
    assert!(reply.len() > 60 << 20 && reply.starts_with(b"*120\r\n"), "{}", reply.len());
    assert!(count >= 5 && ns_max < 10_000_000, "{count} {ns_max}");
    let (reply, count, ns_max) = turns(&mut bench, "HRANDFIELD h 30 WITHVALUES");
    assert!(reply.len() > 30 << 20 && reply.starts_with(b"*60\r\n"), "{}", reply.len());
    assert!(count >= 5 && ns_max < 10_000_000, "{count} {ns_max}");
    let (reply, _, ns_max) = turns(&mut bench, "HSCAN h 0 COUNT 1000");
    assert!(reply.len() < 8 << 20 && ns_max < 10_000_000, "{} {ns_max}", reply.len());
    let (reply, count, ns_max) = turns(&mut bench, &format!("HGETDEL h FIELDS 40 {all}"));
    assert!(reply == values.as_bytes(), "{}", reply.len());
    assert!(count >= 5 && ns_max < 10_000_000, "{count} {ns_max}");
    is(&mut bench, "EXISTS h", ":0\r\n");
    bench.check();
}

/// What replies of long values take is charged, and where that is too much an error stands in their place.
#[test]
fn a_value_for_which_there_is_no_room_stays() {
    let mut bench = bench();
    let job = job(1 << 20);
    let count = bench.worker.store().held_bytes_max() >> 20;
    for n in 1..=count + 2 {
        is(&mut bench, &format!("HSET h f{n} {job}"), ":1\r\n");
    }
    let held = "-OOM connections hold as much memory as they may\r\n";
    is(&mut bench, "HGETALL h", held);
    is(&mut bench, "HLEN h", &format!(":{}\r\n", count + 2));
    let sent: Vec<u8> =
        (1..=count + 2).flat_map(|n| bench.asked(&format!("HGETDEL h FIELDS 1 f{n}"))).collect();
    let (replies, _) = bench.turns(&mut Session::new(), &sent);
    let taken = replies.windows(9).filter(|start| start == b"$1048576\r").count();
    let refused = replies.windows(held.len()).filter(|line| *line == held.as_bytes()).count();
    assert_eq!(taken + refused, count as usize + 2);
    is(&mut bench, "HLEN h", &format!(":{refused}\r\n"));
}
