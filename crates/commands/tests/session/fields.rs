//! Fields that expire: beside others, in steps, in transactions and scripts, with watches and events, in payloads and
//! copies, and what memcached's verbs see of them.

use crate::slices::turns;
use crate::{Bench, START, bench};
use larder_commands::Session;
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

impl Bench {
    fn answer(&mut self, words: &str) -> String {
        String::from_utf8_lossy(&self.reply(words)).into_owned()
    }

    /// Each pair: what is sent, what comes back.
    fn each(&mut self, pairs: &[(&str, &str)]) {
        for (words, expected) in pairs {
            assert_eq!(self.answer(words), *expected, "{words}");
        }
    }

    /// Upkeep, until there is nothing to do.
    pub fn upkeep(&mut self) {
        for _ in 0..100_000 {
            let now = self.shared.now(self.system);
            if !self.worker.enter(now).maintain() {
                return;
            }
        }
        panic!("upkeep does not end");
    }

    /// A hash of so many fields, every second of which expires in a second.
    fn half_timed(&mut self, name: &str, fields: usize) {
        for from in (0..fields).step_by(200) {
            let pairs: String = (from..fields.min(from + 200)).map(|n| format!(" f{n} v{n}")).collect();
            self.answer(&format!("HSET {name}{pairs}"));
            let odd: Vec<String> =
                (from..fields.min(from + 200)).filter(|n| n % 2 == 1).map(|n| format!(" f{n}")).collect();
            self.answer(&format!("HPEXPIRE {name} 1000 FIELDS {}{}", odd.len(), odd.concat()));
        }
    }
}

#[test]
fn a_field_is_gone_to_the_millisecond_from_every_answer() {
    let mut bench = bench();
    bench.each(&[
        ("HSET h a 1 b 2 c 3", ":3\r\n"),
        ("HPEXPIRE h 100 FIELDS 2 a b", "*2\r\n:1\r\n:1\r\n"),
        ("HPTTL h FIELDS 3 a c nosuch", "*3\r\n:100\r\n:-1\r\n:-2\r\n"),
        ("HTTL h FIELDS 1 a", "*1\r\n:1\r\n"),
        ("OBJECT ENCODING h", "$10\r\nlistpackex\r\n"),
    ]);
    bench.system += 99;
    bench.each(&[("HGET h a", "$1\r\n1\r\n"), ("HLEN h", ":3\r\n"), ("HPTTL h FIELDS 1 a", "*1\r\n:1\r\n")]);
    bench.system += 1;
    bench.each(&[
        ("HGET h a", "$-1\r\n"),
        ("HMGET h a b c", "*3\r\n$-1\r\n$-1\r\n$1\r\n3\r\n"),
        ("HEXISTS h a", ":0\r\n"),
        ("HSTRLEN h b", ":0\r\n"),
        ("HTTL h FIELDS 2 a c", "*2\r\n:-2\r\n:-1\r\n"),
        ("HPERSIST h FIELDS 1 a", "*1\r\n:-2\r\n"),
        ("HGETDEL h FIELDS 1 a", "*1\r\n$-1\r\n"),
        ("HGETEX h EX 5 FIELDS 1 b", "*1\r\n$-1\r\n"),
        ("HDEL h a", ":0\r\n"),
        ("HSETNX h a 9", ":1\r\n"),
        ("HTTL h FIELDS 1 a", "*1\r\n:-1\r\n"),
        ("HLEN h", ":2\r\n"),
        ("HGETALL h", "*4\r\n$1\r\nc\r\n$1\r\n3\r\n$1\r\na\r\n$1\r\n9\r\n"),
        ("OBJECT ENCODING h", "$8\r\nlistpack\r\n"),
    ]);
}

#[test]
fn what_lists_counts_and_draws_sees_none_that_has_passed() {
    for fields in [10, 4_000] {
        for (words, entries) in [
            ("HLEN h", fields / 2),
            ("HKEYS h", fields / 2),
            ("HVALS h", fields / 2),
            ("HGETALL h", fields),
            ("HRANDFIELD h 100000", fields / 2),
            ("HRANDFIELD h -50", 50),
            ("HSCAN h 0 COUNT 100000 NOVALUES", 2),
        ] {
            let mut bench = bench();
            bench.half_timed("h", fields);
            bench.system += 1000;
            let reply = bench.answer(words);
            assert!(!reply.contains("f1\r\n") && !reply.contains("v1\r\n"), "{words}");
            let expected =
                if words == "HLEN h" { format!(":{entries}\r\n") } else { format!("*{entries}\r\n") };
            assert!(reply.starts_with(&expected), "{words}: {}", &reply[..20]);
        }
        let mut bench = bench();
        bench.half_timed("h", fields);
        bench.system += 1000;
        for _ in 0..100 {
            let field = bench.answer("HRANDFIELD h");
            let n: usize = field.lines().nth(1).unwrap()[1..].parse().unwrap();
            assert!(n.is_multiple_of(2));
        }
    }
}

/// The last field takes the key with it, whether a client asks or none does.
#[test]
fn the_key_goes_with_its_last_field() {
    let mut bench = bench();
    bench.each(&[("HSET h a 1", ":1\r\n"), ("HPEXPIRE h 10 FIELDS 1 a", "*1\r\n:1\r\n")]);
    bench.system += 10;
    bench.each(&[
        ("HLEN h", ":0\r\n"),
        ("EXISTS h", ":0\r\n"),
        ("TYPE h", "+none\r\n"),
        ("DBSIZE", ":0\r\n"),
    ]);
    bench.each(&[("HSET h a 1", ":1\r\n"), ("HPEXPIRE h 10 FIELDS 1 a", "*1\r\n:1\r\n")]);
    bench.system += 10;
    bench.upkeep();
    bench.each(&[("EXISTS h", ":0\r\n"), ("DBSIZE", ":0\r\n")]);
    bench.each(&[("HSET h a 1 b 2", ":2\r\n"), ("HPEXPIRE h 10 FIELDS 1 a", "*1\r\n:1\r\n")]);
    bench.system += 10;
    // Another command takes out what is left: with it goes what is due.
    bench.each(&[("HDEL h b", ":1\r\n"), ("EXISTS h", ":0\r\n")]);
    let info = bench.answer("INFO stats");
    assert!(info.contains("expired_subkeys:3\r\n"), "{info}");
}

#[test]
fn info_counts_hashes_in_which_a_field_expires() {
    let mut bench = bench();
    bench.each(&[
        ("HSET h a 1 b 2", ":2\r\n"),
        ("HSET other a 1", ":1\r\n"),
        ("HEXPIRE h 100 FIELDS 2 a b", "*2\r\n:1\r\n:1\r\n"),
    ]);
    assert!(bench.answer("INFO keyspace").contains("db0:keys=2,expires=0,avg_ttl=0,subexpiry=1\r\n"));
    bench.each(&[("HPERSIST h FIELDS 2 a b", "*2\r\n:1\r\n:1\r\n")]);
    assert!(bench.answer("INFO keyspace").contains("subexpiry=0\r\n"));
}

/// Nothing that is asked about hashes, or done to them, takes longer than others wait for, however much of them is due.
#[test]
fn what_is_due_of_a_large_hash_goes_in_steps() {
    const FIELDS: usize = 60_000;
    for words in ["HLEN h", "HRANDFIELD h", "HSCAN h 0", "DUMP h", "HGETALL h"] {
        let mut bench = bench();
        bench.half_timed("h", FIELDS);
        bench.system += 1000;
        let (reply, turns) = bench.bounded(words);
        assert!(turns > 3, "{words}: {turns}");
        assert!(!reply.starts_with(b"-"), "{words}");
        assert_eq!(bench.answer("HLEN h"), format!(":{}\r\n", FIELDS / 2), "{words}");
    }
    // Many fields that words name, too: all of them are replied.
    let mut bench = bench();
    bench.half_timed("h", 3_000);
    let all: String = (0..3_000).map(|n| format!(" f{n}")).collect();
    let ones = |n: i64| format!("*3000\r\n{}", format!(":{n}\r\n").repeat(3_000));
    for (head, expected) in [
        ("HPEXPIRE h 5000 FIELDS 3000", ones(1)),
        ("HPEXPIRE h 4000 GT FIELDS 3000", ones(0)),
        ("HPTTL h FIELDS 3000", ones(5000)),
        ("HPERSIST h FIELDS 3000", ones(1)),
        ("HPERSIST h FIELDS 3000", ones(-1)),
    ] {
        let (reply, turns) = bench.bounded(&format!("{head}{all}"));
        assert!(turns > 1, "{head}: {turns}");
        assert!(reply == expected.as_bytes(), "{head}");
    }
    let (reply, turns) = bench.bounded(&format!("HGETEX h PX 100 FIELDS 3000{all}"));
    let (frame, _) = Frame::read(&reply).unwrap().unwrap();
    assert!(turns > 1 && frame.inside.len() == 3_000);
    assert!(
        frame
            .inside
            .iter()
            .enumerate()
            .all(|(n, one)| one.body.as_deref() == Some(format!("v{n}").as_bytes()))
    );
    let pairs: String = (0..3_000).map(|n| format!(" f{n} w{n}")).collect();
    let (reply, _) = bench.bounded(&format!("HSETEX h FNX EX 7 FIELDS 3000{pairs}"));
    assert_eq!(reply, b":0\r\n");
    let (reply, turns) = bench.bounded(&format!("HSETEX h FXX EX 7 FIELDS 3000{pairs}"));
    assert!(turns > 1);
    assert_eq!(reply, b":1\r\n");
    bench.each(&[("HTTL h FIELDS 2 f0 f2999", "*2\r\n:7\r\n:7\r\n"), ("HGET h f1500", "$5\r\nw1500\r\n")]);
    let (reply, _) = bench.bounded(&format!("HEXPIRE h 0 FIELDS 3000{all}"));
    assert!(reply == ones(2).as_bytes());
    bench.each(&[("EXISTS h", ":0\r\n")]);
}

/// While what is due goes, others write: what is replied in the end is so.
#[test]
fn others_write_while_what_is_due_goes() {
    let mut bench = bench();
    bench.half_timed("h", 40_000);
    bench.system += 1000;
    let mut session = Session::new();
    let sent = bench.asked("HLEN h");
    let (_, first, _) = bench.call(&mut session, &sent);
    assert!(first.is_empty(), "it goes on");
    bench.each(&[("HSET h f1 again new 1", ":2\r\n"), ("HDEL h f0", ":1\r\n")]);
    let (reply, _) = bench.turns(&mut session, b"");
    assert_eq!(reply, b":20001\r\n");
    // And when the key is of another type by then, or gone.
    for (words, expected) in [("SET h x", WRONG_TYPE), ("DEL h", ":0\r\n")] {
        bench.answer("DEL h");
        bench.half_timed("h", 40_000);
        bench.system += 1000;
        let mut session = Session::new();
        let sent = bench.asked("HLEN h");
        assert!(bench.call(&mut session, &sent).1.is_empty());
        bench.answer(words);
        let (reply, _) = bench.turns(&mut session, b"");
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{words}");
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

#[test]
fn events_tell_what_has_become_of_fields() {
    let mut bench = bench();
    let mut session = Session::new();
    for words in ["HELLO 3", "PSUBSCRIBE __keyevent*", "CONFIG SET notify-keyspace-events AEK"] {
        let sent = bench.asked(words);
        bench.turns(&mut session, &sent);
    }
    let mut heard = |bench: &mut Bench, words: &str| {
        let sent = bench.asked(words);
        let (reply, _) = bench.turns(&mut session, &sent);
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let events: Vec<String> = reply
            .split("__keyevent@0__:")
            .skip(1)
            .map(|rest| rest.split("\r\n").next().unwrap_or_default().to_owned())
            .collect();
        events.join(" ")
    };
    for (words, events) in [
        ("HSET h a 1 b 2 c 3 d 4", "hset"),
        ("HEXPIRE h 100 FIELDS 1 a", "hexpire"),
        ("HEXPIRE h 100 XX FIELDS 1 b", ""),
        ("HEXPIRE h 100 FIELDS 1 nosuch", ""),
        ("HPERSIST h FIELDS 1 b", ""),
        ("HPERSIST h FIELDS 1 a", "hpersist"),
        ("HGETEX h EX 10 FIELDS 1 a", "hexpire"),
        ("HGETEX h PERSIST FIELDS 1 a", "hpersist"),
        ("HGETEX h FIELDS 1 a", ""),
        ("HGETEX h EXAT 1 FIELDS 1 a", "hdel"),
        ("HSETEX h EX 10 FIELDS 1 a 1", "hset hexpire"),
        ("HSETEX h FIELDS 1 a 1", "hset"),
        ("HSETEX h FNX FIELDS 1 a 1", ""),
        ("HEXPIRE h 0 FIELDS 1 a", "hdel"),
        ("HGETDEL h FIELDS 1 b", "hdel"),
        ("HPEXPIRE h 10 FIELDS 1 c", "hexpire"),
        ("HSETEX h EXAT 1 FIELDS 2 c 1 nosuch 1", "hset hdel"),
        ("HSETEX h EXAT 1 FNX FIELDS 1 d 1", ""),
        ("HSETEX nosuch EXAT 1 FIELDS 1 x 1", "hset hdel del"),
        ("HEXPIREAT h 1 FIELDS 2 c d", "hdel del"),
        ("HSET h a 1", "hset"),
        ("HPEXPIRE h 10 FIELDS 1 a", "hexpire"),
    ] {
        assert_eq!(heard(&mut bench, words), events, "{words}");
    }
    bench.system += 10;
    assert_eq!(heard(&mut bench, "HLEN h"), "hexpired del");
    heard(&mut bench, "HSET h a 1 b 2");
    heard(&mut bench, "HPEXPIRE h 10 FIELDS 1 a");
    bench.system += 10;
    // With a write of the same leaf.
    let events = heard(&mut bench, "HSET h c 1");
    assert!(events == "hset hexpired" || events == "hexpired hset", "{events}");
}

#[test]
fn a_watch_is_touched_where_a_field_is_given_a_time_or_goes() {
    for (words, dirty) in [
        ("HEXPIRE h 10 FIELDS 1 a", true),
        ("HPERSIST h FIELDS 1 b", true),
        ("HGETEX h PERSIST FIELDS 1 b", true),
        ("HGETEX h FIELDS 1 b", false),
        ("HTTL h FIELDS 1 b", false),
        ("HEXPIRE h 10 FIELDS 1 nosuch", false),
        ("HEXPIRE h 10 XX FIELDS 1 a", false),
        ("HPERSIST h FIELDS 1 a", false),
        ("HSETEX h KEEPTTL FIELDS 1 b 9", true),
        ("HSETEX h FNX FIELDS 1 b 9", false),
    ] {
        let mut bench = bench();
        bench.each(&[("HSET h a 1 b 2", ":2\r\n"), ("HEXPIRE h 100 FIELDS 1 b", "*1\r\n:1\r\n")]);
        let mut session = Session::new();
        let sent = bench.asked("WATCH h");
        bench.turns(&mut session, &sent);
        bench.answer(words);
        let sent = [encode(&[b"MULTI"]), encode(&[b"PING"]), encode(&[b"EXEC"])].concat();
        let (reply, _) = bench.turns(&mut session, &sent);
        assert_eq!(reply.ends_with(b"*-1\r\n"), dirty, "{words}");
    }
}

#[test]
fn in_transactions_and_scripts_fields_expire_as_elsewhere() {
    let mut bench = bench();
    let mut session = Session::new();
    bench.half_timed("h", 1_000);
    bench.system += 1000;
    let words = [
        "MULTI",
        "HLEN h",
        "HGET h f1",
        "HEXPIRE h 10 FIELDS 2 f0 f1",
        "HTTL h FIELDS 2 f0 f1",
        "HSETEX h PX 1 FIELDS 1 f1 v",
        "HGETEX h PERSIST FIELDS 1 f1",
        "HGETDEL h FIELDS 1 f1",
        "HSCAN nosuch 0",
        "EXEC",
    ];
    let sent: Vec<u8> = words.iter().flat_map(|words| bench.asked(words)).collect();
    let (reply, _) = bench.turns(&mut session, &sent);
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let (_, exec) = reply.split_once("*8\r\n").expect("EXEC's reply");
    assert_eq!(
        exec,
        ":500\r\n$-1\r\n*2\r\n:1\r\n:-2\r\n*2\r\n:10\r\n:-2\r\n:1\r\n*1\r\n$1\r\nv\r\n*1\r\n$1\r\nv\r\n*2\r\n$1\r\n0\r\n*0\r\n"
    );
    bench.half_timed("g", 1_000);
    bench.system += 1000;
    let script = "local n = redis.call('HLEN', 'g'); redis.call('HPEXPIRE', 'g', 50, 'FIELDS', 1, 'f0'); \
                  return {n, redis.call('HPTTL', 'g', 'FIELDS', 1, 'f0')[1]}";
    let reply = bench.sent(&[b"EVAL", script.as_bytes(), b"1", b"g"]);
    assert_eq!(reply, "*2\r\n:500\r\n:50\r\n");
}

impl Bench {
    fn sent(&mut self, words: &[&[u8]]) -> String {
        String::from_utf8_lossy(&self.turns(&mut Session::new(), &encode(words)).0).into_owned()
    }
}

/// EXEC is refused where what is due would take longer than others wait.
#[test]
fn exec_weighs_what_is_due() {
    let mut bench = bench();
    bench.half_timed("h", 300_000);
    let exec = |bench: &mut Bench, words: &str| {
        let sent: Vec<u8> = ["MULTI", words, "EXEC"].iter().flat_map(|words| bench.asked(words)).collect();
        let reply = bench.turns(&mut Session::new(), &sent).0;
        String::from_utf8_lossy(&reply).into_owned()
    };
    assert!(exec(&mut bench, "HLEN h").ends_with("*1\r\n:300000\r\n"));
    bench.system += 1000;
    for words in ["HLEN h", "HRANDFIELD h", "HSCAN h 0", "DUMP h"] {
        let reply = exec(&mut bench, words);
        assert!(reply.contains("EXECABORT"), "{words}: {reply}");
    }
    assert_eq!(bench.answer("HLEN h"), ":150000\r\n");
    assert!(exec(&mut bench, "HLEN h").ends_with("*1\r\n:150000\r\n"));
}

#[test]
fn times_go_along_with_the_key() {
    for fields in [6, 4_000, 120_000] {
        let mut bench = bench();
        bench.half_timed("h", fields);
        let times = |bench: &mut Bench, name: &str| {
            bench.answer(&format!("HPTTL {name} FIELDS 4 f0 f1 f{} nosuch", fields - 1))
        };
        let told = "*4\r\n:-1\r\n:1000\r\n:1000\r\n:-2\r\n";
        assert_eq!(times(&mut bench, "h"), told);
        bench.each(&[("COPY h copy", ":1\r\n"), ("RENAME h renamed", "+OK\r\n")]);
        assert_eq!((times(&mut bench, "copy").as_str(), times(&mut bench, "renamed").as_str()), (told, told));
        bench.each(&[("MOVE renamed 3", ":1\r\n")]);
        let payload = bench.reply("DUMP copy");
        let (frame, _) = Frame::read(&payload).unwrap().unwrap();
        let payload = frame.body.unwrap();
        assert_eq!(payload[0], 24);
        let reply = bench.sent(&[b"RESTORE", b"restored", b"0", &payload]);
        assert_eq!(reply, "+OK\r\n");
        assert_eq!(times(&mut bench, "restored"), told);
        assert_eq!(bench.answer("HLEN restored"), format!(":{fields}\r\n"));
        // What has passed by then is not restored.
        bench.system += 1000;
        bench.sent(&[b"RESTORE", b"later", b"0", &payload]);
        assert_eq!(bench.answer("HLEN later"), format!(":{}\r\n", fields / 2));
        assert_eq!(bench.answer("HLEN copy"), format!(":{}\r\n", fields / 2));
    }
}

#[test]
fn the_expiry_of_the_key_is_another() {
    let mut bench = bench();
    bench.each(&[
        ("HSET h a 1 b 2", ":2\r\n"),
        ("HPEXPIRE h 500 FIELDS 1 a", "*1\r\n:1\r\n"),
        ("TTL h", ":-1\r\n"),
        ("PEXPIRE h 1000", ":1\r\n"),
        ("PTTL h", ":1000\r\n"),
        ("HPTTL h FIELDS 2 a b", "*2\r\n:500\r\n:-1\r\n"),
        ("HPEXPIRE h 2000 FIELDS 1 b", "*1\r\n:1\r\n"),
        ("PTTL h", ":1000\r\n"),
        ("PERSIST h", ":1\r\n"),
        ("HPTTL h FIELDS 2 a b", "*2\r\n:500\r\n:2000\r\n"),
        ("PEXPIRE h 1000", ":1\r\n"),
    ]);
    bench.system += 500;
    bench.each(&[("HGETALL h", "*2\r\n$1\r\nb\r\n$1\r\n2\r\n"), ("PTTL h", ":500\r\n")]);
    bench.system += 500;
    bench.each(&[("EXISTS h", ":0\r\n"), ("HTTL h FIELDS 1 b", "*1\r\n:-2\r\n")]);
    bench.upkeep();
}

#[test]
fn sort_sees_no_field_whose_time_has_passed() {
    let mut bench = bench();
    bench.each(&[
        ("RPUSH l 1 2 3", ":3\r\n"),
        ("HSET w1 by 30 v a", ":2\r\n"),
        ("HSET w2 by 20 v b", ":2\r\n"),
        ("HSET w3 by 10 v c", ":2\r\n"),
        ("HPEXPIRE w3 10 FIELDS 2 by v", "*2\r\n:1\r\n:1\r\n"),
        ("SORT l BY w*->by GET w*->v", "*3\r\n$1\r\nc\r\n$1\r\nb\r\n$1\r\na\r\n"),
    ]);
    bench.system += 10;
    bench.each(&[("SORT l BY w*->by GET w*->v", "*3\r\n$-1\r\n$1\r\nb\r\n$1\r\na\r\n")]);
}

#[test]
fn memcached_sees_no_hash_and_may_replace_it() {
    let mut bench = bench();
    bench.each(&[("HSET h a 1", ":1\r\n"), ("HEXPIRE h 100 FIELDS 1 a", "*1\r\n:1\r\n")]);
    for (sent, expected) in [
        ("get h\r\n", "END\r\n"),
        ("add h 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("touch h 50\r\n", "TOUCHED\r\n"),
    ] {
        assert_eq!(bench.ask(sent), expected, "{sent}");
    }
    bench.each(&[("HTTL h FIELDS 1 a", "*1\r\n:100\r\n"), ("TTL h", ":50\r\n")]);
    assert_eq!(bench.ask("set h 0 0 1\r\nx\r\n"), "STORED\r\n");
    bench.system += 200_000;
    bench.upkeep();
    assert_eq!(bench.ask("get h\r\n"), "VALUE h 0 1\r\nx\r\nEND\r\n");
    assert!(bench.system > START);
}

#[test]
fn digests_are_of_what_is_there() {
    let mut bench = bench();
    bench.each(&[
        ("HSET h a 1 b 2", ":2\r\n"),
        ("HSET i b 2", ":1\r\n"),
        ("HPEXPIRE h 10 FIELDS 1 a", "*1\r\n:1\r\n"),
    ]);
    let digests = bench.answer("DEBUG DIGEST-VALUE h i");
    let lines: Vec<&str> = digests.lines().collect();
    assert_ne!(lines[2], lines[4]);
    bench.system += 10;
    let digests = bench.answer("DEBUG DIGEST-VALUE h i");
    let lines: Vec<&str> = digests.lines().collect();
    assert_eq!(lines[2], lines[4]);
}

/// No turn is longer than others wait for, whatever the words.
#[test]
fn many_words_are_no_long_turn() {
    let mut bench = bench();
    bench.half_timed("h", 10);
    let all: String = (0..20_000).map(|n| format!(" f{n}")).collect();
    for head in [
        "HEXPIRE h 10 FIELDS 20000",
        "HTTL h FIELDS 20000",
        "HPERSIST h FIELDS 20000",
        "HGETEX h EX 1 FIELDS 20000",
    ] {
        let sent = bench.asked(&format!("{head}{all}"));
        let (reply, _) = turns(&mut bench, &mut Session::new(), &sent);
        assert!(reply.starts_with(b"*20000\r\n"), "{head}");
        let (frame, bytes) = Frame::read(&reply).unwrap().unwrap();
        assert_eq!((frame.inside.len(), bytes), (20_000, reply.len()));
    }
}
