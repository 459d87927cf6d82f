//! Large collections that others write to all the time: what looks at all of one begins anew a few times, and goes on with its
//! key held then, in steps as before. Writers of that key wait, and no others.

use std::collections::HashMap;

use crate::pairs::{MANY, begun, ended, pairs, waits};
use crate::slices::{bytes, set};
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session};
use larder_testkit::redis::frame::Frame;

/// Elements of each collection.
const ELEMENTS: usize = 30_000;
/// What is written to the hash, both fields at a time.
const BOTH: &str = "HSET h f0 # f29999 #";

/// A server with a hash `h`, two like sets `s` and `t`, a list `l` and a sorted set `z`.
fn filled() -> Bench {
    let mut bench = bench();
    for some in (0..ELEMENTS).collect::<Vec<_>>().chunks(400) {
        for (head, each) in [
            ("HSET h", "f# value-of-some-forty-bytes-whatever-it-be-#"),
            ("SADD s", "m#"),
            ("SADD t", "m#"),
            ("RPUSH l", "e#"),
            ("ZADD z", "# m#"),
        ] {
            let words = some.iter().map(|n| format!(" {}", each.replace('#', &n.to_string())));
            bench.reply(&(head.to_owned() + &words.collect::<String>()));
        }
    }
    bench
}

/// What a command has come to beside a client that writes to its key as often as it may: so many of its writes were answered,
/// and it had to wait so often.
pub struct Beside {
    pub reply: Vec<u8>,
    pub writes: usize,
    pub waited: usize,
}

/// `write`: with a `#` where the number of the write comes. It writes no more once it has waited.
pub fn beside_writes(bench: &mut Bench, words: &str, write: &str) -> Beside {
    let (mut reader, mut writer) = (Session::new(), Session::new());
    let sent = bench.asked(words);
    let (mut next, mut reply, consumed) = bench.call(&mut reader, &sent);
    assert_eq!(consumed, sent.len(), "{words}");
    let (mut writes, mut waited) = (0, 0);
    while next != Next::Receive {
        assert!(matches!(next, Next::Yield | Next::Flush), "{words}: {next:?}");
        assert!(reply.is_empty() || !reader.holds(), "{words}: it holds its key while it replies");
        if waited == 0 || reader.holds() {
            let sent = bench.asked(&write.replace('#', &writes.to_string()));
            let (paced, said, _) = bench.call(&mut writer, &sent);
            assert_eq!(said.is_empty(), reader.holds(), "{words}");
            assert_eq!(matches!(paced, Next::Sleep(_)), reader.holds(), "{words}: {paced:?}");
            (writes, waited) = if reader.holds() { (writes, waited + 1) } else { (writes + 1, waited) };
        }
        assert_eq!(bench.reply("SET other x"), b"+OK\r\n", "{words}");
        let more;
        (next, more, _) = bench.call(&mut reader, b"");
        let done_ns = bench.room.work().done_ns();
        assert!(done_ns <= 2 * SLICE_NS, "{words}: {done_ns} ns in a turn");
        reply.extend(more);
    }
    // Others have their turn before the next holds keys.
    bench.system += 100;
    Beside { reply, writes, waited }
}

/// Has a session begin with a command, beside another that writes to its key, until that is held. Returns the number of writes.
pub fn until_held(bench: &mut Bench, reader: &mut Session, words: &str, write: &str) -> usize {
    let mut writer = Session::new();
    let sent = bench.asked(words);
    let (mut next, said, _) = bench.call(reader, &sent);
    assert_eq!(said, b"", "{words}");
    let mut writes = 0;
    while !reader.holds() {
        assert!(next == Next::Yield && writes < 20, "{words}: {next:?} after {writes} writes");
        let sent = bench.asked(&write.replace('#', &writes.to_string()));
        assert!(!bench.turn(&mut writer, &sent).1.is_empty(), "{words}");
        writes += 1;
        (next, ..) = bench.call(reader, b"");
    }
    writes
}

/// The fields of a hash that are replied.
fn fields(reply: &[u8]) -> HashMap<String, String> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!((bytes, frame.inside.len()), (reply.len(), 2 * ELEMENTS));
    let text = |frame: &Frame| String::from_utf8(frame.body.clone().expect("a string")).expect("text");
    let fields: HashMap<String, String> =
        frame.inside.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    assert_eq!(fields.len(), ELEMENTS, "each once");
    fields
}

#[test]
fn what_is_written_to_all_the_time_is_answered_with_its_key_held() {
    let mut bench = filled();
    bench.stream("x", 20_000, 20);
    for (words, write) in [
        ("HGETALL h", BOTH),
        ("HVALS h", BOTH),
        ("DUMP h", BOTH),
        ("COPY h copy REPLACE", BOTH),
        ("SMEMBERS s", "SADD s w#"),
        ("SINTER s t", "SADD t w#"),
        ("SUNIONSTORE d s t", "SADD s w#"),
        ("LRANGE l 0 -1", "LSET l 0 w#"),
        ("SORT l ALPHA", "LSET l 0 w#"),
        ("ZRANGESTORE d z 0 -1", "ZADD z # w#"),
        ("XRANGE x - +", "XADD x * f w#"),
        ("DUMP x", "XADD x * f w#"),
    ] {
        let Beside { reply, writes, waited } = beside_writes(&mut bench, words, write);
        assert!(writes >= 3 && waited >= 2, "{words}: {writes} writes, {waited} times it waited");
        // No client has written since it was held.
        let sent = bench.asked(words);
        let (expected, _) = bench.turns(&mut Session::new(), &sent);
        assert!(reply == expected, "{words}");
    }
}

#[test]
fn a_hash_that_is_held_is_told_as_it_was_at_one_moment() {
    let mut bench = filled();
    let Beside { reply, writes, .. } = beside_writes(&mut bench, "HGETALL h", BOTH);
    let (fields, last) = (fields(&reply), (writes - 1).to_string());
    assert_eq!((&fields["f0"], &fields["f29999"]), (&last, &last));
    // Of these three came amid a try, one before the key was noted, and one before it was held.
    assert_eq!(writes, 5);
}

/// The order of what is copied is made when its key is free.
#[test]
fn a_list_is_held_until_it_is_copied() {
    let mut bench = filled();
    let mut reader = Session::new();
    let writes = until_held(&mut bench, &mut reader, "SORT l ALPHA", "LSET l 0 w#");
    while reader.holds() {
        assert_eq!(bench.turn(&mut reader, b""), (Next::Yield, Vec::new()), "it replies");
    }
    assert_eq!(bench.reply("LSET l 0 later"), b"+OK\r\n");
    let (reply, _) = bench.turns(&mut reader, b"");
    let (frame, bytes) = Frame::read(&reply).expect("a reply").expect("all of it");
    assert_eq!((bytes, frame.inside.len()), (reply.len(), ELEMENTS));
    let last = format!("w{}", writes - 1);
    let has = |text: &str| frame.inside.iter().any(|one| one.body.as_deref() == Some(text.as_bytes()));
    assert!(has(&last) && !has("later"), "{last}");
}

/// One has the lane of its worker, and waits for its turn to hold its key: others that want the lane do not look all the time.
#[test]
fn who_waits_for_one_that_waits_to_hold_its_key_looks_some_milliseconds_later() {
    let mut bench = filled();
    set(&mut bench, "big", &bytes(200_000, 0));
    // The index grows amid it, which is more than a step.
    let mut writer = Session::new();
    bench.call(&mut writer, &pairs("MSET", MANY, "new"));
    while !writer.must_end() {
        assert_eq!(bench.call(&mut writer, b"").0, Next::Yield);
    }
    let (mut reader, mut other, mut appends) = (Session::new(), Session::new(), Session::new());
    let sent = bench.asked("HGETALL h");
    let (mut next, ..) = bench.call(&mut reader, &sent);
    for n in 0.. {
        if next != Next::Yield {
            break;
        }
        assert!(n < 20, "it begins anew for ever");
        let sent = bench.asked(&BOTH.replace('#', &n.to_string()));
        assert_eq!(bench.call(&mut Session::new(), &sent).1, b":0\r\n");
        (next, ..) = bench.call(&mut reader, b"");
    }
    assert!(matches!(next, Next::Sleep(_)), "{next:?}");
    let sent = bench.asked("SMEMBERS s");
    assert_eq!(bench.call(&mut other, &sent).0, Next::Yield);
    assert!(matches!(bench.call(&mut other, b"").0, Next::Sleep(_)));
    assert_eq!(bench.call(&mut appends, b"append big 0 0 1\r\nx\r\n").0, Next::Yield);
    assert!(matches!(bench.call(&mut appends, b"").0, Next::Sleep(_)));
    // It goes on behind the hold, and they look at each turn.
    let mut said = Vec::new();
    while writer.must_end() {
        said.extend(bench.call(&mut writer, b"").1);
    }
    assert_eq!(said, b"+OK\r\n");
    // Others have had their turn by then.
    bench.system += 100;
    assert_eq!(bench.call(&mut reader, b"").0, Next::Yield);
    for session in [&mut other, &mut appends] {
        assert_eq!(bench.call(session, b"").0, Next::Yield);
    }
    assert_eq!(fields(&bench.turns(&mut reader, b"").0).len(), ELEMENTS);
    let (reply, _) = bench.turns(&mut other, b"");
    assert!(reply.starts_with(format!("*{ELEMENTS}\r\n").as_bytes()));
    assert_eq!(bench.turns(&mut appends, b"").0, b"STORED\r\n");
}

/// What it takes out amid its tries is gone, and the rest goes as one moment.
#[test]
fn a_list_that_is_written_to_all_the_time_loses_each_element_once() {
    let mut bench = bench();
    for from in (0..200_000).step_by(4_000) {
        let words = (from..from + 4_000).map(|n| match n % 1_000 {
            500 => " x".to_owned(),
            _ => format!(" e{n}"),
        });
        bench.reply(&format!("RPUSH l{}", words.collect::<String>()));
    }
    let Beside { reply, writes, waited } = beside_writes(&mut bench, "LREM l 0 x", "LPUSH l w#");
    assert_eq!(reply, b":200\r\n");
    assert!(writes >= 3 && waited >= 2, "{writes} writes, {waited} times it waited");
    assert_eq!(bench.reply("LLEN l"), format!(":{}\r\n", 200_000 - 200 + writes).as_bytes());
    assert_eq!(bench.reply("LREM l 0 x"), b":0\r\n");
}

/// What is due stays until the copy is made, however often upkeep comes: nothing is copied in vain.
#[test]
fn fields_that_are_due_stay_while_their_hash_is_held() {
    let mut bench = filled();
    assert_eq!(bench.reply("HPEXPIRE h 10000 FIELDS 2 f7 f29998"), b"*2\r\n:1\r\n:1\r\n");
    let mut reader = Session::new();
    until_held(&mut bench, &mut reader, "HGETALL h", BOTH);
    // It begins with its copy before they are due.
    let (mut next, mut reply, _) = bench.call(&mut reader, b"");
    bench.system += 20_000;
    let mut turns = 0;
    while next != Next::Receive {
        bench.upkeep();
        let more;
        (next, more, _) = bench.call(&mut reader, b"");
        reply.extend(more);
        turns += 1;
    }
    let fields = fields(&reply);
    assert!(fields.contains_key("f7") && fields.contains_key("f29998") && turns < 20, "{turns} turns");
    bench.system += 2_000;
    bench.upkeep();
    assert_eq!(bench.worker.store().totals().fields_expired, 2);
    assert_eq!(bench.reply("HLEN h"), format!(":{}\r\n", ELEMENTS - 2).as_bytes());
}

#[test]
fn a_client_that_goes_leaves_its_key_free() {
    let mut bench = filled();
    let held_bytes = bench.worker.store().held_bytes();
    let mut reader = Session::new();
    until_held(&mut bench, &mut reader, "HGETALL h", BOTH);
    for _ in 0..2 {
        assert_eq!(bench.call(&mut reader, b"").0, Next::Yield);
    }
    waits(&mut bench, &mut Session::new(), b"get h\r\n", "get");
    drop(reader);
    assert_eq!(bench.worker.store().held_bytes(), held_bytes);
    assert_eq!(bench.reply("HSET h f0 x"), b":0\r\n");
    // One that is killed.
    bench.system += 100;
    let mut reader = Session::new();
    until_held(&mut bench, &mut reader, "HGETALL h", BOTH);
    let kill = format!("CLIENT KILL ID {}", reader.redis_client().expect("a client"));
    assert_eq!(bench.reply(&kill), b":1\r\n");
    assert_eq!(bench.call(&mut reader, b"").0, Next::Close);
    assert!(!reader.holds());
    assert_eq!(bench.reply("HSET h f0 y"), b":0\r\n");
}

#[test]
fn a_client_that_reads_nothing_keeps_nobody_from_its_key() {
    let mut bench = filled();
    let mut reader = Session::new();
    until_held(&mut bench, &mut reader, "HGETALL h", BOTH);
    // What was replied before waits, and there is room for no more.
    bench.limit = 0;
    let (mut reply, mut turns) = (Vec::new(), 0);
    while reader.holds() {
        let (next, said, _) = bench.call(&mut reader, b"");
        assert!(matches!(next, Next::Yield | Next::Flush), "{next:?}");
        reply.extend(said);
        turns += 1;
        assert!(turns < 20, "it waits for its client");
    }
    assert!(turns > 2 && reply.len() < 20, "{turns} turns, {} bytes", reply.len());
    bench.limit = 1 << 20;
    assert_eq!(bench.reply("HSET h f0 later"), b":0\r\n");
    reply.extend(bench.turns(&mut reader, b"").0);
    let fields = fields(&reply);
    assert!(fields["f0"] == fields["f29999"] && fields["f0"] != "later", "{}", fields["f0"]);
}

#[test]
fn what_goes_on_in_steps_waits_for_its_own_keys_alone() {
    let mut bench = filled();
    assert_eq!(bench.reply("RENAME h k0"), b"+OK\r\n");
    let (mut one, mut other) = (Session::new(), Session::new());
    for (session, words) in [(&mut one, "SMEMBERS s"), (&mut other, "HGETALL k0")] {
        let sent = bench.asked(words);
        assert_eq!(bench.turn(session, &sent), (Next::Yield, Vec::new()), "{words}");
    }
    let mut writer = begun(&mut bench, &pairs("MSET", MANY, "new"));
    waits(&mut bench, &mut other, b"", "HGETALL");
    let (reply, turns) = bench.turns(&mut one, b"");
    let (frame, bytes) = Frame::read(&reply).expect("a reply").expect("all of it");
    assert_eq!((bytes, frame.inside.len()), (reply.len(), ELEMENTS));
    assert!(turns > 0 && writer.must_end(), "{turns} turns");
    waits(&mut bench, &mut other, b"", "HGETALL");
    assert_eq!(ended(&mut bench, &mut writer).0, "+OK\r\n");
    assert!(bench.turns(&mut other, b"").0.starts_with(b"-WRONGTYPE "));
}
