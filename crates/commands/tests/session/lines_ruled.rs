//! Users with rules that speak memcached's text or its frames.

use larder_commands::{Next, Session};

use crate::binary::{NOOP, frame, get, lines, plain, set, told};
use crate::survey::command;
use crate::users::{redis, say};
use crate::{Bench, bench};

/// A bench where clients must log in, with a session that may do everything; `root` may, too, and `app` has these rules.
fn asked(rules: &str) -> (Bench, Session) {
    let mut bench = bench();
    let mut admin = redis(&mut bench);
    for (name, rules) in [("admin", "~* &* +@all"), ("root", "~* &* +@all"), ("app", rules)] {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER {name} on >pw {rules}")), "+OK");
    }
    assert_eq!(say(&mut bench, &mut admin, "AUTH admin pw\r\nACL SETUSER default off"), "+OK\r\n+OK");
    (bench, admin)
}

fn sasl(bench: &mut Bench, user: &str) -> Session {
    let mut frames = Session::new();
    let value = format!("\0{user}\0pw");
    assert_eq!(told(bench, &mut frames, &plain(value.as_bytes())), ["21 0 Authenticated"]);
    frames
}

fn login(bench: &mut Bench, user: &str) -> Session {
    let mut text = Session::new();
    let block = format!("{user} pw");
    assert_eq!(say(bench, &mut text, &format!("set a 0 0 {}\r\n{block}", block.len())), "STORED");
    text
}

const UNAUTHORIZED: &str = "CLIENT_ERROR unauthorized";

#[test]
fn lines_are_asked_for_as_the_commands_that_do_the_same() {
    let (mut bench, mut admin) =
        asked("~app:* %R~ro:* +get +getex +set +append +incrby +del +object|idletime +info");
    assert_eq!(say(&mut bench, &mut admin, "SET ro:1 v\r\nSET secret v"), "+OK\r\n+OK");
    let mut text = Session::new();
    assert_eq!(say(&mut bench, &mut text, "get app:1"), "CLIENT_ERROR unauthenticated");
    let mut text = login(&mut bench, "app");
    let mut is = |line: &str, reply: &str| assert_eq!(say(&mut bench, &mut text, line), reply, "{line}");
    is("set app:1 0 0 1\r\n1", "STORED");
    is("get app:1", "VALUE app:1 0 1\r\n1\r\nEND");
    is("get ro:1", "VALUE ro:1 0 1\r\nv\r\nEND");
    is("mg ro:1 v", "VA 1\r\nv");
    is("get secret", UNAUTHORIZED);
    is("get app:1 secret ro:1\r\nget app:1", &format!("{UNAUTHORIZED}\r\nVALUE app:1 0 1\r\n1\r\nEND"));
    is("get secret app:1\r\nmn", &format!("{UNAUTHORIZED}\r\nMN"));
    is("get app:1 app:2  secret \r\nmn", &format!("{UNAUTHORIZED}\r\nMN"));
    is("set ro:1 0 0 1\r\n1\r\nmn", &format!("{UNAUTHORIZED}\r\nMN"));
    is("set secret 0 0 1 noreply\r\n1\r\nmn", "MN");
    is("ms secret 1\r\n1\r\nmn", &format!("{UNAUTHORIZED}\r\nMN"));
    is("ms c2VjcmV0 1 b\r\n1\r\nmn", &format!("{UNAUTHORIZED}\r\nMN"));
    is("mg c2VjcmV0 b v q", UNAUTHORIZED);
    is("add app:1 0 0 1\r\n2", "NOT_STORED");
    is("append app:1 0 0 1\r\n1", "STORED");
    is("ms secret 1 MA\r\n1", UNAUTHORIZED);
    is("incr app:1 1", "12");
    is("decr app:1 1", UNAUTHORIZED);
    is("ma app:1", "HD");
    is("ma app:1 MD", UNAUTHORIZED);
    is("gat 100 ro:1", UNAUTHORIZED);
    is("gat 100 app:1", "VALUE app:1 0 2\r\n13\r\nEND");
    is("mg ro:1 T100", UNAUTHORIZED);
    is("mg ro:2 N100", UNAUTHORIZED);
    is("touch app:1 100", UNAUTHORIZED);
    is("me secret", UNAUTHORIZED);
    is("me app:2", "EN");
    is("delete secret noreply", "");
    is("delete ro:1", UNAUTHORIZED);
    is("md app:1", "HD");
    for line in [
        "flush_all",
        "stats reset",
        "stats detail on",
        "stats detail dump",
        "stats cachedump 1 1",
        "stats hotkeys",
        "stats prefixes",
        "stats conns",
        "lru_crawler metadump all",
        "lru_crawler mgdump all",
        "lru_crawler enable",
        "watch",
        "verbosity 1",
        "cache_memlimit 64",
        "slabs automove 0",
        "lru mode flat",
        "refresh_certs",
        "debugtime p",
        "shutdown",
    ] {
        is(line, UNAUTHORIZED);
    }
    is("flush_all noreply", "");
    is("nosuch", "ERROR");
    assert!(say(&mut bench, &mut text, "stats items").ends_with("END"));
    assert!(say(&mut bench, &mut text, "version").starts_with("VERSION"));
    assert_eq!(say(&mut bench, &mut admin, "EXISTS secret ro:1"), ":2");
    let log = say(&mut bench, &mut admin, "ACL LOG 1\r\nACL LOG 100");
    assert!(log.contains("$6\r\nobject\r\n$8\r\nshutdown") && log.contains(" user=app"), "{log}");
    assert!(log.contains("$6\r\nreason\r\n$3\r\nkey") && log.contains("$6\r\nobject\r\n$6\r\nsecret"));
}

#[test]
fn a_long_value_that_is_refused_is_passed_over() {
    let (mut bench, mut admin) = asked("~app:* +set +append");
    let (mut text, mut frames) = (login(&mut bench, "app"), sasl(&mut bench, "app"));
    let value = vec![b'v'; 300_000];
    for (head, refused) in [
        ("set secret 0 0 300000\r\n", UNAUTHORIZED),
        ("ms secret 300000\r\n", UNAUTHORIZED),
        ("append secret 0 0 300000\r\n", UNAUTHORIZED),
        ("set app:1 0 0 300000\r\n", "STORED"),
        ("set secret 0 0 300000 noreply\r\n", ""),
    ] {
        let input = [head.as_bytes(), &value, b"\r\nmn\r\n"].concat();
        let (said, _) = bench.run(&mut text, &input, 4096);
        let expected = format!("{refused}\r\nMN");
        assert_eq!(String::from_utf8_lossy(&said).trim_end(), expected.trim_start(), "{head}");
    }
    for (input, refused) in [
        (set(0x01, "secret", &value), Some("01 32 Auth failure.")),
        (set(0x11, "secret", &value), Some("11 32 Auth failure.")),
        (frame(0x0e, b"", "secret", &value), Some("0e 32 Auth failure.")),
        (set(0x11, "app:2", &value), None),
    ] {
        let (said, _) = bench.run(&mut frames, &[input, get(NOOP, "")].concat(), 4096);
        let expected: Vec<&str> = refused.into_iter().chain(["0a 0"]).collect();
        assert_eq!(lines(&said), expected);
    }
    assert_eq!(say(&mut bench, &mut admin, "EXISTS secret app:1 app:2"), ":2");
}

/// As lines that are refused. One of 40 receives at least is measured.
#[test]
fn a_frame_that_is_refused_is_none_of_the_measured_commands() {
    let (mut bench, _admin) = asked("~app:* +get");
    let (mut frames, mut text) = (sasl(&mut bench, "app"), login(&mut bench, "root"));
    for (input, reply) in [(get(0x08, ""), "08 32 Auth failure."), (get(NOOP, ""), "0a 0")] {
        for _ in 0..40 {
            assert_eq!(told(&mut bench, &mut frames, &input), [reply]);
        }
    }
    let said = say(&mut bench, &mut text, "stats commands");
    assert!(said.contains("STAT mn:measured ") && !said.contains("STAT flush_all:"), "{said}");
}

#[test]
fn frames_are_asked_for_as_the_commands_that_do_the_same() {
    let (mut bench, mut admin) = asked("~app:* %R~ro:* +get +getex +set +incrby +info");
    assert_eq!(say(&mut bench, &mut admin, "SET ro:1 v\r\nSET secret v"), "+OK\r\n+OK");
    let noop = get(NOOP, "");
    assert_eq!(told(&mut bench, &mut Session::new(), &noop), ["0a 32 Auth failure.", "closed"]);
    let mut frames = sasl(&mut bench, "app");
    let number = |code, key| crate::binary::number(code, key, 1, 5, 0);
    for (input, reply) in [
        (set(0x01, "app:1", b"1"), "01 0*"),
        (get(0x00, "app:1"), "00 0 7 1*"),
        (get(0x0c, "ro:1"), "0c 0 0 ro:1 v*"),
        (get(0x00, "secret"), "00 32 Auth failure."),
        (get(0x0d, "secret"), "0d 32 Auth failure."),
        (set(0x01, "ro:1", b"1"), "01 32 Auth failure."),
        (set(0x11, "secret", b"1"), "11 32 Auth failure."),
        (frame(0x0e, b"", "app:1", b"1"), "0e 32 Auth failure."),
        (number(0x05, "app:n"), "05 0 =5*"),
        (number(0x06, "app:n"), "06 32 Auth failure."),
        (get(0x04, "app:1"), "04 32 Auth failure."),
        (frame(0x1c, &[0; 4], "app:1", b""), "1c 32 Auth failure."),
        (frame(0x1d, &[0; 4], "ro:1", b""), "1d 32 Auth failure."),
        (frame(0x1d, &[0; 4], "app:1", b""), "1d 0 7 1*"),
        (get(0x08, ""), "08 32 Auth failure."),
        (frame(0x1b, &[0; 4], "", b""), "1b 32 Auth failure."),
        (get(0x10, "reset"), "10 32 Auth failure."),
        (get(0x10, "conns"), "10 32 Auth failure."),
        (noop.clone(), "0a 0"),
    ] {
        assert_eq!(told(&mut bench, &mut frames, &input), [reply], "{:02x}", input[1]);
    }
    assert_eq!(told(&mut bench, &mut frames, &get(0x10, "items")).last().map(|last| &**last), Some("10 0"));
    // By another name others' rules hold; a try that fails leaves what was said before.
    assert_eq!(told(&mut bench, &mut frames, &plain(b"\0root\0wrong")), ["21 32 Auth failure."]);
    assert_eq!(told(&mut bench, &mut frames, &get(0x00, "secret")), ["00 32 Auth failure."]);
    bench.system += 10_000;
    let both = [plain(b"\0root\0pw"), get(0x00, "secret")].concat();
    assert_eq!(told(&mut bench, &mut frames, &both), ["21 0 Authenticated", "00 0 0 v*"]);
    // Rules that change are those of the next frame.
    for (change, reply) in [
        ("ACL SETUSER root resetkeys", "00 32 Auth failure."),
        ("ACL SETUSER root %R~s*", "00 0 0 v*"),
        ("ACL SETUSER root -get", "00 32 Auth failure."),
        ("ACL SETUSER root allkeys +@all", "00 0 0 v*"),
        ("ACL DELUSER root", "closed"),
    ] {
        assert!(!say(&mut bench, &mut admin, change).starts_with('-'));
        assert_eq!(told(&mut bench, &mut frames, &get(0x00, "secret")), [reply], "{change}");
    }
}

#[test]
fn clients_that_are_not_asked_have_the_rules_of_the_default_user() {
    let (mut bench, mut admin) = asked("~* &* +@all");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default on nopass resetkeys ~pub:*"), "+OK");
    let (mut text, mut frames) = (Session::new(), Session::new());
    assert_eq!(say(&mut bench, &mut text, "set pub:1 0 0 1\r\n1"), "STORED");
    assert_eq!(say(&mut bench, &mut text, "get x"), UNAUTHORIZED);
    assert_eq!(told(&mut bench, &mut frames, &get(0x00, "pub:1")), ["00 0 0 1*"]);
    assert_eq!(told(&mut bench, &mut frames, &get(0x00, "x")), ["00 32 Auth failure."]);
    // Frames may log in where that makes a difference.
    assert_eq!(told(&mut bench, &mut frames, &plain(b"\0root\0pw")), ["21 0 Authenticated"]);
    assert_eq!(told(&mut bench, &mut frames, &get(0x00, "x")), ["00 1 Not found"]);
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default ~*"), "+OK");
    assert_eq!(say(&mut bench, &mut text, "get x"), "END");
    // What comes in one piece, and would go the short way.
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default resetkeys ~pub:*"), "+OK");
    let input = "get pub:1\r\nget x\r\nmg x v\r\nset x 0 0 1\r\n1\r\n".repeat(50);
    let one =
        format!("VALUE pub:1 0 1\r\n1\r\nEND\r\n{UNAUTHORIZED}\r\n{UNAUTHORIZED}\r\n{UNAUTHORIZED}\r\n");
    for step in [usize::MAX, 7] {
        let (said, _) = bench.run(&mut text, input.as_bytes(), step);
        assert_eq!(String::from_utf8_lossy(&said), one.repeat(50));
    }
    assert_eq!(say(&mut bench, &mut admin, "EXISTS x"), ":0");
}

#[test]
fn a_user_of_the_same_name_is_another_for_lines_and_frames() {
    let (mut bench, mut admin) = asked("~* &* +@all");
    let (mut frames, mut text, mut resp) =
        (sasl(&mut bench, "root"), login(&mut bench, "root"), redis_as(&mut bench, "root"));
    assert_eq!(say(&mut bench, &mut admin, "ACL DELUSER root"), ":1");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER root on >pw ~* &* +@all"), "+OK");
    let mut new = redis_as(&mut bench, "root");
    assert_eq!(told(&mut bench, &mut frames, &get(NOOP, "")), ["closed"]);
    assert_eq!(say(&mut bench, &mut text, "mn"), "closed");
    assert_eq!(say(&mut bench, &mut resp, "PING"), "closed");
    assert_eq!(say(&mut bench, &mut new, "PING"), "+PONG");
}

fn redis_as(bench: &mut Bench, user: &str) -> Session {
    let mut session = Session::new();
    assert_eq!(bench.run(&mut session, &command(&["AUTH", user, "pw"]), usize::MAX).0, b"+OK\r\n");
    session
}

#[test]
fn lines_and_frames_that_are_under_way_end_where_their_rules_change() {
    let value = vec![b'v'; 300_000];
    let line = |head: &str| [head.as_bytes(), &value, b"\r\n"].concat();
    for change in ["ACL SETUSER root -keys", "ACL DELUSER root"] {
        for (is_text, input) in [
            (true, line("set victim 0 0 300000\r\n")),
            (true, line("ms victim 300000\r\n")),
            (true, line("append large 0 0 300000\r\n")),
            (false, set(0x01, "victim", &value)),
            (false, set(0x11, "victim", &value)),
            (false, frame(0x0e, b"", "large", &value)),
        ] {
            let (mut bench, mut admin) = asked("~* &* +@all");
            assert_eq!(say(&mut bench, &mut admin, "SET large v"), "+OK");
            let mut session = if is_text { login(&mut bench, "root") } else { sasl(&mut bench, "root") };
            let (one, other) = input.split_at(input.len() / 2);
            assert_eq!(bench.run(&mut session, one, 4096), (Vec::new(), false));
            assert!(!say(&mut bench, &mut admin, change).starts_with('-'));
            assert_eq!(bench.run(&mut session, other, 4096), (Vec::new(), true), "{change}");
            assert_eq!(say(&mut bench, &mut admin, "EXISTS victim\r\nSTRLEN large"), ":0\r\n:1");
        }
    }
}

#[test]
fn a_watch_tells_nothing_where_its_rules_have_changed() {
    let (mut bench, mut admin) = asked("~* &* +@all");
    let mut text = login(&mut bench, "root");
    assert!(
        matches!(bench.turn(&mut text, b"watch mutations\r\n"), (Next::Await(_), said) if said == b"OK\r\n")
    );
    assert_eq!(say(&mut bench, &mut admin, "SET seen v"), "+OK");
    let (_, said) = bench.turn(&mut text, b"");
    assert!(String::from_utf8_lossy(&said).contains("key=seen"));
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER root -keys\r\nSET secret v"), "+OK\r\n+OK");
    assert_eq!(bench.turn(&mut text, b""), (Next::Close, Vec::new()));
}
