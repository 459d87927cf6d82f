//! What is not answered, not shown, or not to everybody.

use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Next, Session, Settings};
use std::time::{Duration, Instant};

/// Keys that no text client can say, and one that any can.
const HOSTILE: [&[u8]; 7] =
    [b"END\r\nset x 0 0 1\r\ny", b"a b", b"line\nend", b"\r", b"nul\0", b"pre:\r\nEN\r\n", b"\x7fdel"];

impl Bench {
    fn says(&mut self, session: &mut Session, words: &[&str]) -> String {
        String::from_utf8(self.turns(session, &command(words)).0).unwrap()
    }

    /// Sets keys of any bytes by RESP.
    fn set_all(&mut self, keys: &[&[u8]], db: &str) {
        let mut session = Session::new();
        self.says(&mut session, &["SELECT", db]);
        for key in keys {
            let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n", key.len());
            let input = [head.as_bytes(), key, b"\r\n$1\r\nv\r\n"].concat();
            assert_eq!(self.turns(&mut session, &input).0, b"+OK\r\n");
        }
    }
}

#[test]
fn keys_that_no_text_can_say_end_no_line() {
    let settings = Settings { detail: true, ..Settings::default() };
    let mut bench = Bench::new(settings);
    let long = [b'k'; 300];
    let keys: Vec<&[u8]> = HOSTILE.into_iter().chain([&long[..], b"plain"]).collect();
    bench.set_all(&keys, "0");
    // The long one is nobody's to ask for in text.
    let named = keys.len() - 1;
    let lines = |dump: &str, head: &str, end: &str| {
        assert!(dump.ends_with(end) && dump.matches(end).count() == 1, "{dump:?}");
        let body = &dump[..dump.len() - end.len()];
        assert!(body.split_terminator('\n').all(|line| line == "OK\r" || line.starts_with(head)), "{body:?}");
        body.split_terminator('\n').filter(|line| line.starts_with(head)).count()
    };
    let dump = bench.ask("lru_crawler metadump all\r\n");
    assert_eq!(lines(&dump, "key=", "END\r\n"), named);
    assert!(dump.contains("key=END%0D%0Aset%20x%200%200%201%0D%0Ay "));
    let dump = bench.ask("lru_crawler mgdump all\r\n");
    assert_eq!(lines(&dump, "mg ", "EN\r\n"), named);
    assert!(dump.contains("mg plain\r\n") && dump.contains("mg RU5EDQpzZXQgeCAwIDAgMQ0KeQ== b\r\n"));
    let classes = bench.ask("stats slabs\r\n");
    let classes: std::collections::BTreeSet<&str> = classes
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(':'))
        .map(|(id, _)| id)
        .collect();
    let mut dumped = 0;
    for class in classes {
        dumped += lines(&bench.ask(&format!("stats cachedump {class} 0\r\n")), "ITEM ", "END\r\n");
    }
    assert_eq!(dumped, named);
    // What asks for such a key in base64 is answered in base64, whoever stored it.
    assert_eq!(bench.ask("mg YSBi b k v\r\n"), "VA 1 kYSBi b\r\nv\r\n");
    assert!(bench.ask("me YSBi b\r\n").starts_with("ME YSBi exp=-1 "));
    assert_eq!(bench.ask("mg cHJlOg0KRU4NCg== b v\r\n"), "VA 1\r\nv\r\n");
    bench.ask("set p\x07\r:x 0 0 1\r\nv\r\nget plain:\r\n");
    let dump = bench.ask("stats detail dump\r\n");
    assert!(lines(&dump, "PREFIX ", "END\r\n") >= 1 && dump.contains("PREFIX p%07%0D get "), "{dump:?}");
}

/// In what meta commands reply of a key that was sent in base64 there is no byte of it but in base64.
#[test]
fn meta_commands_say_a_key_of_any_bytes_in_base64() {
    use larder_protocol::base64;
    let mut bench = bench();
    for key in HOSTILE {
        let mut room = vec![0; base64::encoded_bytes(key.len())];
        let bytes = base64::encode(key, &mut room);
        let name = String::from_utf8(room[..bytes].to_vec()).unwrap();
        for (sent, said) in [
            (format!("ms {name} 1 b k MR\r\n1\r\n"), format!("NS k{name} b\r\n")),
            (format!("ms {name} 1 b k s Oq\r\n1\r\n"), format!("HD k{name} b s1 Oq\r\n")),
            (format!("ms {name} 1 b k C9999999\r\n1\r\n"), format!("EX k{name} b\r\n")),
            (format!("ms {name} 1 b k ME\r\n1\r\n"), format!("NS k{name} b\r\n")),
            (format!("ma {name} b k v\r\n"), format!("VA 1 k{name} b\r\n2\r\n")),
            (format!("ma {name} b k\r\n"), format!("HD k{name} b\r\n")),
            (format!("ma {name} b k C9999999\r\n"), format!("EX k{name} b\r\n")),
            (format!("mg {name} b k v\r\n"), format!("VA 1 k{name} b\r\n3\r\n")),
            (format!("md {name} b k C9999999\r\n"), format!("EX k{name} b\r\n")),
            (format!("md {name} b k Oq\r\n"), format!("HD k{name} b Oq\r\n")),
            (format!("md {name} b k\r\n"), format!("NF k{name} b\r\n")),
            (format!("ma {name} b k\r\n"), format!("NF k{name} b\r\n")),
            (format!("ma {name} b k N0 J5 v\r\n"), format!("VA 1 k{name} b\r\n5\r\n")),
            (format!("mg {name}x b k N0\r\n"), "CLIENT_ERROR error decoding key\r\n".to_owned()),
            (format!("md {name} b\r\nmg {name} b k N0 v\r\n"), format!("HD\r\nVA 0 k{name} b W\r\n\r\n")),
        ] {
            assert_eq!(bench.ask(&sent), said, "{sent:?}");
        }
        // One that RESP stored, which knows of no mark.
        bench.set_all(&[key], "0");
        for (sent, said) in [
            (format!("ms {name} 1 b k\r\n1\r\n"), format!("HD k{name} b\r\n")),
            (format!("ma {name} b k\r\n"), format!("HD k{name} b\r\n")),
        ] {
            assert_eq!(bench.ask(&sent), said, "{sent:?}");
        }
        bench.set_all(&[key], "0");
        assert_eq!(bench.ask(&format!("md {name} b k\r\n")), format!("HD k{name} b\r\n"));
    }
}

#[test]
fn dumps_show_what_text_clients_can_read() {
    let mut bench = bench();
    bench.set_all(&[b"ours"], "0");
    bench.set_all(&[b"theirs"], "3");
    for dump in ["lru_crawler metadump all\r\n", "lru_crawler mgdump all\r\n"] {
        let dump = bench.ask(dump);
        assert!(dump.contains("ours") && !dump.contains("theirs"), "{dump}");
    }
    let mut session = Session::new();
    bench.says(&mut session, &["SWAPDB", "0", "3"]);
    let dump = bench.ask("lru_crawler mgdump all\r\n");
    assert!(dump.contains("theirs") && !dump.contains("ours"), "{dump}");
}

#[test]
fn dumps_show_no_key_that_text_clients_cannot_name() {
    let mut bench = bench();
    // Of text, at the longest key and beyond; of other bytes, where their base64 is that long.
    let text = |bytes: usize| "t".repeat(bytes).into_bytes();
    let spaced = |bytes: usize| [b" ".to_vec(), "s".repeat(bytes - 1).into_bytes()].concat();
    bench.set_all(&[&text(250), &text(251), &text(9000), &spaced(186), &spaced(187), &spaced(251)], "0");
    let dump = bench.ask("lru_crawler mgdump all\r\n");
    let asked: Vec<&str> = dump.lines().filter(|line| line.starts_with("mg ")).collect();
    assert_eq!(asked.len(), 2, "{dump}");
    for line in asked {
        assert_eq!(bench.ask(&format!("{line} v\r\n")), "VA 1\r\nv\r\n", "{line}");
    }
    let dump = bench.ask("lru_crawler metadump all\r\n");
    let mut bytes: Vec<usize> = dump
        .lines()
        .filter_map(|line| line.strip_prefix("key=")?.split(' ').next())
        .map(|key| key.replace("%20", " ").len())
        .collect();
    bytes.sort_unstable();
    assert_eq!(bytes, [186, 187, 250], "{dump}");
}

#[test]
fn what_forbids_text_clients_forbids_the_others_too() {
    let mut bench = Bench::new(Settings { dump: false, flush: false, ..Settings::default() });
    let mut session = Session::new();
    for words in [&["KEYS", "*"][..], &["SCAN", "0"], &["RANDOMKEY"], &["MONITOR"], &["SLOWLOG", "GET"]] {
        let reply = bench.says(&mut session, words);
        assert!(reply.starts_with("-ERR ") && reply.contains("(-X)"), "{reply}");
    }
    let reply = bench.says(&mut session, &["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
    assert!(reply.contains("(-X)"), "{reply}");
    assert_eq!(bench.says(&mut session, &["CONFIG", "SET", "notify-keyspace-events", ""]), "+OK\r\n");
    for words in [&["FLUSHALL"][..], &["FLUSHDB"], &["SWAPDB", "0", "1"]] {
        let reply = bench.says(&mut session, words);
        assert!(reply.starts_with("-ERR ") && reply.contains("(-F)"), "{reply}");
    }
    bench.says(&mut session, &["MULTI"]);
    assert!(bench.says(&mut session, &["KEYS", "*"]).contains("(-X)"));
    assert!(bench.says(&mut session, &["EXEC"]).starts_with("-EXECABORT"));
}

#[test]
fn nobody_is_shown_a_password() {
    const CANARY: &str = "canary-7f3a";
    let mut bench = bench();
    let (mut session, mut monitor) = (Session::new(), Session::new());
    assert_eq!(bench.says(&mut monitor, &["MONITOR"]), "+OK\r\n");
    bench.says(&mut session, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    for words in [
        &["AUTH", CANARY][..],
        &["AUTH", "default", CANARY],
        &["AUTH", "default", CANARY, "more"],
        &["HELLO", "3", "AUTH", "default", CANARY],
        &["HELLO", "2", "AUTH", "nobody", CANARY, "SETNAME", "x"],
        &["HELLO", "2", "SETNAME", "AUTH", "AUTH", "default", CANARY],
        &["HELLO", "AUTH", "default", CANARY],
        &["CONFIG", "SET", "masterauth", CANARY],
        &["COMMAND", "GETKEYS", "AUTH", CANARY],
        &["ACL", "DRYRUN", "default", "AUTH", CANARY],
        &["CONFIG", "SET", "requirepass", CANARY],
        &["AUTH", CANARY],
        &["CONFIG", "SET", "maxmemory-samples", "5", "requirepass", CANARY],
        &["CONFIG", "SET", "requirepass", CANARY, "nothing"],
        &["ACL", "SETUSER", "one", "on", &format!(">{CANARY}")],
        &["MULTI"],
        &["AUTH", "default", CANARY],
        &["EXEC"],
    ] {
        let reply = bench.says(&mut session, words);
        assert!(!reply.contains(CANARY), "{words:?}: {reply}");
    }
    // Who says it in the place of something else is told what he has said, and nobody but he is.
    for words in [&["AUTHX", CANARY][..], &["AUTH CANARY", CANARY], &["ACL", "NOTHING", CANARY]] {
        assert!(bench.says(&mut session, words).starts_with("-ERR "), "{words:?}");
    }
    let letters = bench.host.post.take().0;
    assert!(letters.len() > 5);
    for letter in letters {
        let text = format!("{letter:?}");
        let bytes: Vec<String> = CANARY.bytes().map(|byte| byte.to_string()).collect();
        assert!(!text.contains(CANARY) && !text.contains(&bytes.join(", ")), "{text}");
    }
    for words in [
        &["SLOWLOG", "GET", "-1"][..],
        &["CLIENT", "LIST"],
        &["CLIENT", "INFO"],
        &["INFO", "everything"],
        &["ACL", "LIST"],
        &["ACL", "USERS"],
        &["ACL", "GETUSER", "default"],
        &["ACL", "LOG"],
        &["INFO", "errorstats"],
        &["CONFIG", "GET", "max*"],
        &["LATENCY", "DOCTOR"],
        &["MEMORY", "DOCTOR"],
    ] {
        let reply = bench.says(&mut session, words);
        assert!(!reply.contains(CANARY), "{words:?}: {reply}");
    }
    assert!(bench.says(&mut session, &["SLOWLOG", "GET", "-1"]).contains("(redacted)"));
    // Who may change a password may ask for it, as in Redis: by its parameter, among others, too.
    for words in [&["CONFIG", "GET", "requirepass"][..], &["CONFIG", "GET", "*"]] {
        assert!(bench.says(&mut session, words).contains(CANARY), "{words:?}");
        let refused = bench.says(&mut Session::new(), words);
        assert!(refused.starts_with("-NOAUTH "), "{words:?}: {refused}");
    }
    for line in ["stats\r\n", "stats settings\r\n", "stats conns\r\n", "stats detail dump\r\n"] {
        assert!(!bench.ask(line).contains(CANARY), "{line}");
    }
}

#[test]
fn names_are_short_and_the_list_of_slow_commands_is_charged() {
    let mut bench = bench();
    let mut session = Session::new();
    let (most, more) = ("n".repeat(1024), "n".repeat(1025));
    assert_eq!(bench.says(&mut session, &["CLIENT", "SETNAME", &most]), "+OK\r\n");
    for words in [
        &["CLIENT", "SETNAME", &more][..],
        &["HELLO", "3", "SETNAME", &more],
        &["CLIENT", "SETINFO", "LIB-NAME", &more],
        &["CLIENT", "SETINFO", "LIB-VER", &more],
    ] {
        let reply = bench.says(&mut session, words);
        assert!(reply.starts_with("-ERR ") && reply.contains("1024"), "{reply}");
    }
    let used = |bench: &Bench| bench.worker.store().used_bytes();
    let before = used(&bench);
    bench.says(&mut session, &["CONFIG", "SET", "slowlog-max-len", "1000000"]);
    bench.says(&mut session, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let argument = "a".repeat(200);
    let words: Vec<&str> = std::iter::once("ECHO").chain(std::iter::repeat_n(&argument[..], 1)).collect();
    for _ in 0..2000 {
        bench.says(&mut session, &words);
    }
    let taken = used(&bench) - before;
    let most = bench.worker.store().memory_bytes() / 64;
    assert!((most / 2..=most + 4096).contains(&taken), "{taken} of {most}");
    bench.says(&mut session, &["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    bench.says(&mut session, &["SLOWLOG", "RESET"]);
    assert!(used(&bench) <= before + 4096);
}

#[test]
fn patterns_and_channels_have_their_lengths() {
    let mut bench = bench();
    let mut session = Session::new();
    let (most, more) = ("?".repeat(4096), "?".repeat(4097));
    let (plain, longer) = ("p".repeat(65_536), "p".repeat(65_537));
    for most in [&most, &plain] {
        assert!(bench.says(&mut session, &["KEYS", most]).starts_with("*0"));
    }
    for words in [
        &["KEYS", &more][..],
        &["SCAN", "0", "MATCH", &more],
        &["CONFIG", "GET", &more],
        &["PUBSUB", "CHANNELS", &more],
        &["COMMAND", "LIST", "FILTERBY", "PATTERN", &more],
        &["PSUBSCRIBE", "a", &more],
        &["KEYS", &longer],
        &["KEYS", &format!("a*{more}*b")],
        &["SUBSCRIBE", "a", &"c".repeat((128 << 10) + 1)],
        &["PUBLISH", &"c".repeat((128 << 10) + 1), "text"],
        &["SPUBLISH", &"c".repeat((128 << 10) + 1), "text"],
    ] {
        let reply = bench.says(&mut session, words);
        assert!(reply.starts_with("-ERR ") && reply.contains("exceeds maximum"), "{reply}");
    }
    assert_eq!(bench.says(&mut session, &["PUBSUB", "NUMPAT"]), ":0\r\n", "none of them was heard");
}

#[test]
fn many_patterns_of_one_client_are_heard_and_end_with_it() {
    let mut bench = Bench::new(Settings::default());
    let (mut listener, mut session) = (Session::new(), Session::new());
    let names: Vec<String> = (0..30_000).map(|n| format!("pattern-{n}-*")).collect();
    for names in names.chunks(1000) {
        let words: Vec<&str> =
            std::iter::once("PSUBSCRIBE").chain(names.iter().map(String::as_str)).collect();
        bench.turns(&mut listener, &command(&words));
    }
    let text = "t".repeat(100_000);
    assert_eq!(bench.says(&mut session, &["PUBLISH", "pattern-7-x", &text]), ":1\r\n");
    drop(listener);
    assert_eq!(bench.says(&mut session, &["PUBSUB", "NUMPAT"]), ":0\r\n");
}

#[test]
#[ignore = "time: all of them have 5 s"]
fn many_patterns_cost_as_much_each_as_few() {
    let started = Instant::now();
    many_patterns_of_one_client_are_heard_and_end_with_it();
    // 20 s where each was compared with all before it.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_text_for_many_patterns_is_kept_once() {
    let mut bench = bench();
    let (mut listener, mut session) = (Session::new(), Session::new());
    let patterns: Vec<String> = (0..500).map(|n| format!("*{}", "*".repeat(n))).collect();
    let words: Vec<&str> = std::iter::once("PSUBSCRIBE").chain(patterns.iter().map(String::as_str)).collect();
    bench.turns(&mut listener, &command(&words));
    let text = "t".repeat(200_000);
    assert_eq!(bench.says(&mut session, &["PUBLISH", "channel", &text]), ":500\r\n");
    let (letters, bytes) = bench.host.post.take();
    assert_eq!(letters.len(), 500);
    assert!(bytes > 500 * text.len(), "each copy that is to be written counts");
    let places: std::collections::BTreeSet<_> =
        letters.iter().map(|letter| letter.message.text().as_ptr()).collect();
    assert_eq!(places.len(), 1);
}

#[test]
fn who_has_said_the_password_may_send_what_is_long_at_once() {
    let mut bench = Bench::new(Settings { password: "secret".into(), ..Settings::default() });
    let value = "v".repeat(20_000);
    let input =
        [command(&["AUTH", "secret"]), command(&["SET", "k", &value]), command(&["STRLEN", "k"])].concat();
    let reply = bench.turns(&mut Session::new(), &input).0;
    assert_eq!(String::from_utf8(reply).unwrap(), "+OK\r\n+OK\r\n:20000\r\n");
}

#[test]
fn a_pause_can_always_be_ended() {
    let mut bench = bench();
    let (mut one, mut other) = (Session::new(), Session::new());
    bench.says(&mut one, &["CLIENT", "PAUSE", "9223372036854775807", "ALL"]);
    // PING waits; what ends the pause does not.
    let (next, reply) = bench.wait_for(&mut other, &command(&["PING"]));
    assert!(matches!(next, Next::Sleep(_)) && reply.is_empty());
    assert_eq!(bench.says(&mut Session::new(), &["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(bench.says(&mut other, &["PING"]), "+PONG\r\n");
}

#[test]
fn who_has_to_say_who_he_is_may_do_so_in_a_pause_and_end_it() {
    let mut bench = Bench::new(Settings { password: "secret".into(), ..Settings::default() });
    let mut known = Session::new();
    assert_eq!(bench.says(&mut known, &["AUTH", "secret"]), "+OK\r\n");
    for entering in [&["AUTH", "secret"][..], &["HELLO", "2", "AUTH", "default", "secret"]] {
        bench.says(&mut known, &["CLIENT", "PAUSE", "9223372036854775807", "ALL"]);
        // What a stranger is refused he is refused at once: he does not stand there until his time is over.
        let mut session = Session::new();
        assert!(bench.says(&mut session, &["GET", "key"]).starts_with("-NOAUTH "));
        assert!(!bench.says(&mut session, entering).starts_with('-'), "{entering:?}");
        assert!(!session.is_stranger());
        let (next, reply) = bench.wait_for(&mut session, &command(&["PING"]));
        assert!(matches!(next, Next::Sleep(_)) && reply.is_empty());
        assert_eq!(bench.says(&mut session, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
        assert_eq!(bench.says(&mut known, &["PING"]), "+PONG\r\n");
    }
    // One that is asked for no password any more is no stranger, and waits with the others.
    let mut session = Session::new();
    bench.turn(&mut session, b"");
    assert_eq!(bench.says(&mut known, &["CONFIG", "SET", "requirepass", ""]), "+OK\r\n");
    bench.says(&mut known, &["CLIENT", "PAUSE", "10000", "WRITE"]);
    let (next, reply) = bench.wait_for(&mut session, &command(&["SET", "key", "value"]));
    assert!(matches!(next, Next::Sleep(_)) && reply.is_empty());
}

#[test]
fn a_transaction_that_is_to_sleep_replies_as_one() {
    let mut bench = bench();
    let mut session = Session::new();
    for words in [&["MULTI"][..], &["PING", "a"], &["DEBUG", "SLEEP", "0.05"], &["PING", "b"]] {
        bench.says(&mut session, words);
    }
    let (next, reply) = bench.wait_for(&mut session, &[command(&["EXEC"]), command(&["PING"])].concat());
    assert_eq!(String::from_utf8(reply).unwrap(), "*3\r\n$1\r\na\r\n+OK\r\n$1\r\nb\r\n");
    assert!(matches!(next, Next::Sleep(50)), "{next:?}");
    bench.system += 60;
    assert_eq!(bench.says(&mut session, &["PING"]), "+PONG\r\n");
    // Who wants no replies hears nothing later either.
    let input = [command(&["CLIENT", "REPLY", "OFF"]), command(&["DEBUG", "SLEEP", "0.05"])].concat();
    bench.wait_for(&mut session, &input);
    bench.system += 60;
    assert_eq!(bench.says(&mut session, &["CLIENT", "REPLY", "ON"]), "+OK\r\n");
}

#[test]
fn without_a_password_clients_of_other_machines_are_turned_away() {
    let denied = |settings: Settings, far: bool| {
        let mut bench = Bench::new(settings);
        bench.host.far = far;
        let (next, reply) = bench.turn(&mut Session::new(), &command(&["PING"])[..0]);
        assert!(reply.is_empty() && matches!(next, Next::Receive));
        let (next, reply) = bench.wait_for(&mut Session::new(), &command(&["PING"]));
        let closed = matches!(next, Next::Close);
        assert_eq!(closed, reply.starts_with(b"-DENIED "), "{}", String::from_utf8_lossy(&reply));
        closed
    };
    assert!(denied(Settings::default(), true));
    assert!(!denied(Settings::default(), false));
    assert!(!denied(Settings { protected: false, ..Settings::default() }, true));
    assert!(!denied(Settings { password: "secret".into(), ..Settings::default() }, true));
}

#[test]
fn who_was_told_to_say_who_it_is_need_not_when_the_password_is_taken_away() {
    let mut bench = bench();
    let (mut session, mut admin) = (Session::new(), Session::new());
    assert_eq!(bench.says(&mut admin, &["CONFIG", "SET", "requirepass", "secret"]), "+OK\r\n");
    assert!(bench.says(&mut session, &["PING"]).starts_with("-NOAUTH"));
    assert_eq!(bench.says(&mut admin, &["CONFIG", "SET", "requirepass", ""]), "+OK\r\n");
    assert_eq!(bench.says(&mut session, &["PING"]), "+PONG\r\n");
    assert!(!session.is_stranger());
}

#[test]
fn config_get_looks_through_its_parameters_for_some_dozens_of_patterns_and_no_more() {
    let mut bench = bench();
    let mut session = Session::new();
    let get = |n: usize| [&["CONFIG", "GET"], &["*-*-*-*-*z"].repeat(n)[..]].concat();
    assert_eq!(bench.says(&mut session, &get(64)), "*0\r\n");
    assert!(bench.says(&mut session, &get(8_000)).starts_with("-ERR CONFIG GET"));
    assert!(bench.says(&mut session, &["CONFIG", "GET", "*"]).len() > 3_000);
    bench.says(&mut session, &["MULTI"]);
    (0..200).for_each(|_| assert_eq!(bench.says(&mut session, &get(64)), "+QUEUED\r\n"));
    assert!(bench.says(&mut session, &["EXEC"]).starts_with("-EXECABORT"));
}
