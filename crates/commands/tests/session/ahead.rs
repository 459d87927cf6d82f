//! Users with rules whose pipelines are read ahead: what is allowed and what is refused, in one piece and one by one.

use larder_commands::Session;
use larder_protocol::resp::words_read;

use crate::binary::{get, set, told};
use crate::survey::command;
use crate::users::{NO_KEY, redis, say, with_user};
use crate::{Bench, bench};

/// Rules that requests are read ahead by, and others.
const RULES: [&str; 8] = [
    "~app:* +@all",
    "~app:* %R~ro:* %W~wo:* +@all -decr",
    "%RW~app:* -@all +get +incr +select +multi +exec",
    "~* +@all -set",
    "%R~* ~app:* +@all",
    "~app:* ~ro:? +@all",
    "~app:* +@all -get (%R~ro:* +get)",
    "~app:* %R~ro:* +@all -set -get +set|app:1 +get|ro:1",
];
const KEYS: [&str; 8] = ["app:1", "app:2", "ro:1", "wo:1", "other", "app", "", "app:"];

/// A generator of its own: the same numbers from the same seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn request(seeded: &mut Seeded) -> Vec<u8> {
    let (key, other) = (KEYS[seeded.below(KEYS.len())], KEYS[seeded.below(KEYS.len())]);
    let value = ["1", "v", "41"][seeded.below(3)];
    let words: Vec<&str> = match seeded.below(40) {
        0..8 => vec!["GET", key],
        8..14 => vec!["SET", key, value],
        14..18 => vec!["INCR", key],
        18..20 => vec!["decr", key],
        20 => vec!["SET", key, value, "GET"],
        21 => vec!["SET", key, value, "EX", "100"],
        22 => vec!["STRLEN", key],
        23 => vec!["APPEND", key, value],
        24 => vec!["GETDEL", key],
        25 => vec!["MGET", key, other],
        26 => vec!["MSET", key, value, other, value],
        27 => vec!["DEL", key, other],
        28 => vec!["BITFIELD", key, "GET", "u8", "0"],
        29 => vec!["MULTI"],
        30 => vec!["EXEC"],
        31 => vec!["SELECT", "1"],
        32 => vec!["SELECT", "0"],
        33 => vec!["GET"],
        34 => vec!["NOSUCH", key],
        35 => vec!["SET", key],
        36 => vec!["INCR", key, value],
        _ => vec!["RPUSH", key, value],
    };
    command(&words)
}

/// What was refused, counted and stored, as an administrator sees it: but how much its client had sent by then.
fn seen(bench: &mut Bench, admin: &mut Session) -> String {
    let log = say(bench, admin, "ACL LOG 1000");
    // A client's line, and how long that is.
    let is_told = |line: &&str| !line.starts_with("id=") && !line.starts_with('$');
    let log: Vec<&str> = log.split("\r\n").filter(is_told).collect();
    let stats = say(bench, admin, "INFO stats commandstats errorstats");
    let is_counted = |line: &&str| {
        let names = ["acl_access_denied", "cmdstat_", "errorstat_", "keyspace_", "total_commands_"];
        names.iter().any(|name| line.starts_with(name))
    };
    // Which calls were measured depends on how they came.
    let untimed = |line: &str| -> String {
        line.split(',').filter(|field| !field.starts_with("usec")).collect::<Vec<_>>().join(",")
    };
    let stats: Vec<String> = stats.split("\r\n").filter(is_counted).map(untimed).collect();
    let values = KEYS.map(|key| String::from_utf8(bench.run(admin, &command(&["GET", key]), usize::MAX).0));
    format!("{log:#?}\n{stats:#?}\n{values:?}")
}

#[test]
fn pipelines_of_a_user_with_rules_are_answered_refused_and_counted_as_requests_one_by_one() {
    let mut refused = 0;
    for (seed, rules) in (0..64).zip(RULES.iter().cycle()) {
        let mut seeded = Seeded(seed);
        let (mut whole, mut admin, mut user) = with_user(rules);
        let (mut apart, mut other_admin, mut other_user) = with_user(rules);
        for _ in 0..6 {
            let requests: Vec<Vec<u8>> = (0..1 + seeded.below(120)).map(|_| request(&mut seeded)).collect();
            let (together, closed) = whole.run(&mut user, &requests.concat(), usize::MAX);
            let mut one_by_one = Vec::new();
            for request in &requests {
                one_by_one.extend(apart.run(&mut other_user, request, usize::MAX).0);
            }
            let text = |said: Vec<u8>| String::from_utf8(said).expect("text");
            let (together, one_by_one) = (text(together), text(one_by_one));
            assert_eq!(together, one_by_one, "seed {seed}: {rules}");
            assert!(!closed);
            refused += together.matches("-NOPERM").count();
            let (one, other) = (seen(&mut whole, &mut admin), seen(&mut apart, &mut other_admin));
            assert_eq!(one, other, "seed {seed}: {rules}");
        }
    }
    assert!(refused > 1_000, "{refused}");
}

/// A client's line in the log shows what its last command was, and in CLIENT LIST, too.
#[test]
fn a_request_that_is_refused_in_a_pipeline_is_the_last_command_of_its_client() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@all");
    let input = [command(&["SET", "app:1", "v"]).repeat(40), command(&["INCR", "x"])].concat();
    let (said, _) = bench.run(&mut user, &input, usize::MAX);
    assert_eq!(String::from_utf8(said).expect("text"), format!("{}{NO_KEY}\r\n", "+OK\r\n".repeat(40)));
    let log = say(&mut bench, &mut admin, "ACL LOG");
    assert!(log.contains(" cmd=incr user=app ") && log.contains("\r\n$6\r\nobject\r\n$1\r\nx\r\n"), "{log}");
    let list = say(&mut bench, &mut admin, "CLIENT LIST");
    let line = list.lines().find(|line| line.contains(" user=app ")).expect("its line");
    assert!(line.contains(" cmd=incr "), "{line}");
}

/// By a count of words that are read one by one: of a run none is, of a batch each once.
#[test]
fn a_pipeline_that_rules_allow_takes_the_way_of_one_without_rules() {
    for request in [&["GET", "app:1"][..], &["STRLEN", "app:1"]] {
        let input = command(request).repeat(64);
        let read = |rules: &str| {
            let (mut bench, _, mut user) = with_user(rules);
            let before = words_read();
            let (said, _) = bench.run(&mut user, &input, usize::MAX);
            assert!(!said.starts_with(b"-"));
            words_read() - before
        };
        let free = read("~* &* +@all");
        for rules in ["~app:* +@all", "%R~ap* +get +strlen", "~* +@all -flushall"] {
            assert_eq!(read(rules), free, "{request:?} {rules}");
        }
        for rules in ["~app:? +@all", "~app:* +@all (~x)"] {
            assert!(read(rules) > free, "{request:?} {rules}");
        }
    }
}

/// Of seven, eight and nine bytes, as some of the prefixes: of a key of eight bytes or more the first eight are compared at once.
const LONG_KEYS: [&str; 5] = ["key:123", "key:1234", "key:12345", "key:1235", "kez:12345"];

/// Prefixes, each with what may stand in front of it in a rule, and whether its keys may be read and written then.
fn prefixes() -> impl Iterator<Item = (&'static str, (&'static str, bool, bool))> {
    let signs = [("~", true, true), ("%R~", true, false), ("%W~", false, true)];
    let prefixes = ["", "k", "key:123", "key:1234", "key:12345"];
    prefixes.into_iter().flat_map(move |prefix| signs.map(|sign| (prefix, sign)))
}

/// In a run, in a batch, and in requests of many keys.
#[test]
fn a_pipeline_may_use_the_keys_that_begin_with_a_prefix_and_no_others() {
    for (prefix, (sign, reads, writes)) in prefixes() {
        let rule = format!("{sign}{prefix}*");
        let (mut bench, _, mut user) = with_user(&format!("{rule} +@all"));
        for key in LONG_KEYS {
            let (mut input, mut expected) = (Vec::new(), String::new());
            for (words, times, may, reply) in [
                (&["GET", key][..], 20, reads, "$-1\r\n"),
                (&["GETRANGE", key, "0", "1"], 1, reads, "$0\r\n\r\n"),
                (&["MGET", key, key, key, key], 1, reads, "*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n"),
                (&["SET", key, "1"], 20, writes, "+OK\r\n"),
                (&["INCR", key], 1, reads && writes, ":2\r\n"),
                (&["DEL", key, key, key, key], 1, writes, ":1\r\n"),
            ] {
                input.extend(command(words).repeat(times));
                let refused = format!("{NO_KEY}\r\n");
                let reply = if may && key.starts_with(prefix) { reply } else { &refused[..] };
                expected.push_str(&reply.repeat(times));
            }
            let (said, _) = bench.run(&mut user, &input, usize::MAX);
            assert_eq!(String::from_utf8(said).expect("text"), expected, "{rule} {key}");
        }
    }
}

#[test]
fn rules_that_change_within_a_pipeline_hold_for_what_is_behind() {
    let gets = |key: &str| command(&["GET", key]).repeat(40);
    let (none, no_get) = ("$-1\r\n", "-NOPERM User app has no permissions to run the 'get' command\r\n");
    let no_key = format!("{NO_KEY}\r\n");
    for (change, app, x) in [
        (&["ACL", "SETUSER", "app", "-get"][..], no_get, no_get),
        (&["ACL", "SETUSER", "app", "resetkeys", "~x*"], &no_key, none),
        (&["ACL", "SETUSER", "app", "~x?"], none, &no_key),
        (&["ACL", "SETUSER", "app", "allkeys"], none, none),
        (&["ACL", "SETUSER", "app", "(~x +get)"], none, none),
        (&["RESET"], none, none),
    ] {
        let (mut bench, _, mut user) = with_user("~app:* +@all");
        let input = [gets("app:1"), gets("x"), command(change), gets("app:1"), gets("x")].concat();
        let (said, _) = bench.run(&mut user, &input, usize::MAX);
        let ok = if change[0] == "RESET" { "+RESET\r\n" } else { "+OK\r\n" };
        let behind = [app.repeat(40), x.repeat(40)].concat();
        let expected = [none.repeat(40), no_key.repeat(40), ok.to_owned(), behind].concat();
        assert_eq!(String::from_utf8(said).expect("text"), expected, "{change:?}");
    }
}

#[test]
fn rules_that_another_client_changes_hold_from_the_next_receive_on() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@all");
    let gets = command(&["GET", "app:1"]).repeat(64);
    let (none, refused) = ("$-1\r\n".repeat(64), format!("{NO_KEY}\r\n").repeat(64));
    for (rules, expected) in [
        ("resetkeys %W~app:*", &refused),
        ("%R~app*", &none),
        ("resetkeys ~other", &refused),
        ("allkeys", &none),
        ("resetkeys", &refused),
    ] {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        let (said, _) = bench.run(&mut user, &gets, usize::MAX);
        assert_eq!(&String::from_utf8(said).expect("text"), expected, "{rules}");
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL DELUSER app"), ":1");
    assert_eq!(bench.run(&mut user, &gets, usize::MAX), (Vec::new(), true));
}

#[test]
fn a_default_user_with_rules_is_read_ahead_as_any_other() {
    let mut bench = bench();
    let mut user = redis(&mut bench);
    assert_eq!(say(&mut bench, &mut user, "ACL SETUSER default resetkeys ~app:*"), "+OK");
    let input = [command(&["GET", "app:1"]).repeat(20), command(&["GET", "x"])].concat().repeat(3);
    let expected = format!("{}{NO_KEY}\r\n", "$-1\r\n".repeat(20)).repeat(3);
    let (said, _) = bench.run(&mut user, &input, usize::MAX);
    assert_eq!(String::from_utf8(said).expect("text"), expected);
}

const UNAUTHORIZED: &str = "CLIENT_ERROR unauthorized\r\n";

/// A bench whose default user has these rules, and a session of an administrator.
fn with_default(rules: &str) -> (Bench, Session) {
    let mut bench = bench();
    let mut admin = redis(&mut bench);
    let made = say(&mut bench, &mut admin, "ACL SETUSER admin on >pw ~* &* +@all\r\nAUTH admin pw");
    assert_eq!(made, "+OK\r\n+OK");
    assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER default {rules}")), "+OK");
    (bench, admin)
}

#[test]
fn lines_in_a_row_are_refused_as_lines_one_by_one() {
    let (mut bench, mut admin) = with_default("resetkeys ~app:* %R~ro:* -decrby");
    assert_eq!(say(&mut bench, &mut admin, "SET app:1 7\r\nSET ro:1 v\r\nSET other v"), "+OK\r\n+OK\r\n+OK");
    let mut text = Session::new();
    let (allowed, value) = ("get app:1\r\n".repeat(20), "VALUE app:1 0 1\r\n7\r\nEND\r\n".repeat(20));
    for (line, reply) in [
        ("get ro:1\r\n", "VALUE ro:1 0 1\r\nv\r\nEND\r\n"),
        ("get other\r\n", UNAUTHORIZED),
        ("get app:1 ro:1 other app:1\r\n", UNAUTHORIZED),
        ("get other app:1\r\n", UNAUTHORIZED),
        ("get app:1 app:2  other\r\n", UNAUTHORIZED),
        ("set ro:1 0 0 1\r\nx\r\n", UNAUTHORIZED),
        ("set ro:1 5 100 1\r\nx\r\n", UNAUTHORIZED),
        ("set other 0 0 1 noreply\r\nx\r\n", ""),
        ("ms ro:1 1\r\nx\r\n", UNAUTHORIZED),
        ("mg ro:1 v\r\n", "VA 1\r\nv\r\n"),
        ("mg other v\r\n", UNAUTHORIZED),
        ("incr ro:1 1\r\n", UNAUTHORIZED),
        ("incr app:2 1\r\n", "NOT_FOUND\r\n"),
        ("decr app:1 1\r\n", UNAUTHORIZED),
    ] {
        let input = format!("{allowed}{line}{allowed}{line}{line}");
        let expected = format!("{value}{reply}{value}{reply}{reply}");
        assert_eq!(say(&mut bench, &mut admin, "ACL LOG RESET"), "+OK");
        for step in [usize::MAX, 300, 7] {
            let (said, _) = bench.run(&mut text, input.as_bytes(), step);
            assert_eq!(String::from_utf8(said).expect("text"), expected, "{line} in pieces of {step}");
        }
        let log = say(&mut bench, &mut admin, "ACL LOG");
        let is_refused = reply == UNAUTHORIZED || line.contains("noreply");
        assert_eq!(log.contains("$5\r\ncount\r\n:9\r\n"), is_refused, "{line}: {log}");
        assert_eq!(log == "*0", !is_refused, "{line}: {log}");
    }
    assert_eq!(say(&mut bench, &mut admin, "MGET app:1 ro:1 other"), "*3\r\n$1\r\n7\r\n$1\r\nv\r\n$1\r\nv");
}

/// Lines in a run and in a batch, and frames.
#[test]
fn lines_and_frames_may_use_the_keys_that_begin_with_a_prefix_and_no_others() {
    for (prefix, (sign, reads, writes)) in prefixes() {
        let rule = format!("{sign}{prefix}*");
        let (mut bench, _) = with_default(&format!("resetkeys {rule}"));
        let (mut text, mut frames) = (Session::new(), Session::new());
        for key in LONG_KEYS {
            let is_one = key.starts_with(prefix);
            let (mut input, mut expected) = (String::new(), String::new());
            for (line, times, may, reply) in [
                (format!("get {key}\r\n"), 20, reads, "END\r\n"),
                (format!("get {key}  {key}\r\n"), 1, reads, "END\r\n"),
                (format!("mg {key} t\r\n"), 1, reads, "EN\r\n"),
                (format!("set {key} 0 0 1\r\n1\r\n"), 20, writes, "STORED\r\n"),
                (format!("incr {key} 1\r\n"), 1, reads && writes, "2\r\n"),
                (format!("touch {key} 0\r\n"), 1, writes, "TOUCHED\r\n"),
                (format!("delete {key}\r\n"), 1, writes, "DELETED\r\n"),
            ] {
                input.push_str(&line.repeat(times));
                expected.push_str(&(if may && is_one { reply } else { UNAUTHORIZED }).repeat(times));
            }
            let (said, _) = bench.run(&mut text, input.as_bytes(), usize::MAX);
            assert_eq!(String::from_utf8(said).expect("text"), expected, "{rule} {key}");
            for (frame, may, reply) in [
                (get(0x00, key), reads, "00 1 Not found"),
                (set(0x01, key, b"1"), writes, "01 0*"),
                (get(0x04, key), writes, "04 0"),
            ] {
                let refused = format!("{:02x} 32 Auth failure.", frame[1]);
                let expected = if may && is_one { reply } else { &refused[..] };
                assert_eq!(told(&mut bench, &mut frames, &frame), [expected], "{rule} {key}");
            }
        }
    }
}
