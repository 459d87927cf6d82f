//! Rules that are taken away while something of their user is under way: what waits, what is on its way in, what goes on in steps.

use crate::survey::command;
use crate::users::{NO_KEY, redis, say, with_user};
use crate::{Bench, bench};
use larder_commands::{Digest, Next, Session, Settings};

fn block(bench: &mut Bench, session: &mut Session, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    assert!(matches!(bench.turn(session, &command(&words)).0, Next::Await(_)), "{line} waits");
}

fn looks(bench: &mut Bench, session: &mut Session) -> String {
    let (_, reply) = bench.turn(session, b"");
    String::from_utf8(reply).expect("text").trim_end().to_owned()
}

#[test]
fn one_that_waits_is_given_nothing_that_its_user_may_not_have_any_more() {
    for (waits, rules, push, there, reply) in [
        ("BLPOP secret 0", "resetkeys ~app:*", "RPUSH secret 1", "LLEN secret", NO_KEY),
        ("BLMOVE secret to LEFT LEFT 0", "resetkeys ~secret", "RPUSH secret 1", "LLEN secret", NO_KEY),
        ("BLMOVE secret to LEFT LEFT 0", "resetkeys ~secret %R~to", "RPUSH secret 1", "LLEN secret", NO_KEY),
        ("BLMPOP 0 1 secret LEFT", "resetkeys %R~secret", "RPUSH secret 1", "LLEN secret", NO_KEY),
        ("BZMPOP 0 1 secret MIN", "resetkeys ~app:*", "ZADD secret 1 a", "ZCARD secret", NO_KEY),
        ("XREAD BLOCK 0 STREAMS secret $", "resetkeys %W~*", "XADD secret * f v", "XLEN secret", NO_KEY),
        (
            "BLPOP secret 0",
            "-blpop",
            "RPUSH secret 1",
            "LLEN secret",
            "-NOPERM User app has no permissions to run the 'blpop' command",
        ),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* +@all");
        block(&mut bench, &mut user, waits);
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        assert!(!say(&mut bench, &mut admin, push).starts_with('-'));
        assert_eq!(say(&mut bench, &mut admin, there), ":1", "{waits}: nothing was taken");
        assert_eq!(looks(&mut bench, &mut user), reply, "{waits}");
        assert_eq!(say(&mut bench, &mut admin, "EXISTS to"), ":0", "{waits}");
        let log = say(&mut bench, &mut admin, "ACL LOG");
        assert!(log.starts_with("*1\r\n"), "{waits}: {log}");
    }
}

#[test]
fn one_that_waits_goes_on_where_its_user_may_still_have_it() {
    for rules in ["resetkeys ~s*", "-@all +blpop", "resetchannels", "off"] {
        let (mut bench, mut admin, mut user) = with_user("~* +@all");
        block(&mut bench, &mut user, "BLPOP secret 0");
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        assert_eq!(say(&mut bench, &mut admin, "RPUSH secret 1"), ":1");
        assert_eq!(looks(&mut bench, &mut user), "*2\r\n$6\r\nsecret\r\n$1\r\n1", "{rules}");
    }
    // The next in line has what one may not have.
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    block(&mut bench, &mut user, "BLPOP secret 0");
    let mut next = redis(&mut bench);
    block(&mut bench, &mut next, "BLPOP secret 0");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "RPUSH secret 1"), ":1");
    assert_eq!(looks(&mut bench, &mut user), NO_KEY);
    assert_eq!(looks(&mut bench, &mut next), "*2\r\n$6\r\nsecret\r\n$1\r\n1");
    // A user that is gone has nothing, nor has another of its name.
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    block(&mut bench, &mut user, "BLPOP secret 0");
    assert_eq!(say(&mut bench, &mut admin, "ACL DELUSER app"), ":1");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app on nopass ~* +@all"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "RPUSH secret 1"), ":1");
    assert_eq!(say(&mut bench, &mut admin, "LLEN secret"), ":1");
    assert_eq!(bench.turn(&mut user, b"").0, Next::Close);
}

#[test]
fn a_value_on_its_way_in_is_stored_if_its_user_may_still_do_that() {
    let value = "v".repeat(200_000);
    for (name, time) in [("SET", None), ("SETEX", Some("100")), ("PSETEX", Some("100000"))] {
        for (rules, reply) in [
            ("resetkeys ~x:*", NO_KEY.to_owned()),
            (
                "-@write",
                format!("-NOPERM User app has no permissions to run the '{}' command", name.to_lowercase()),
            ),
            ("resetkeys %W~vic*", "+OK".into()),
        ] {
            let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
            let words: Vec<&str> =
                [Some(name), Some("victim"), time, Some(&value)].into_iter().flatten().collect();
            let request = command(&words);
            let (one, other) = request.split_at(request.len() / 2);
            assert_eq!(bench.run(&mut user, one, 4096), (Vec::new(), false));
            assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
            let (replies, _) = bench.run(&mut user, other, 4096);
            assert_eq!(String::from_utf8(replies).unwrap().trim_end(), reply, "{name} {rules}");
            let there = if reply == "+OK" { ":1" } else { ":0" };
            assert_eq!(say(&mut bench, &mut admin, "EXISTS victim"), there, "{name} {rules}");
            // What follows is read from where it begins.
            assert_eq!(say(&mut bench, &mut user, "ECHO hi"), "$2\r\nhi");
        }
    }
}

#[test]
fn a_channel_is_not_listened_to_that_was_taken_away_while_others_were_gone_through() {
    let names: Vec<String> = (0..5_000).map(|n| format!("pub:{n}")).chain(["secret:1".to_owned()]).collect();
    let words: Vec<&str> = ["SUBSCRIBE"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    for (rules, closes) in [("resetchannels &pub:*", true), ("resetkeys", false)] {
        let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
        let request = command(&words);
        let (mut next, mut reply) = bench.turn(&mut user, &request);
        while reply.is_empty() {
            (next, reply) = bench.turn(&mut user, b"");
        }
        assert!(reply.starts_with(b"*3\r\n$9\r\nsubscribe") && next != Next::Receive, "it goes on in steps");
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        for _ in 0..10_000 {
            (next, reply) = bench.turn(&mut user, b"");
            if matches!(next, Next::Receive | Next::Close) {
                break;
            }
        }
        let reply = String::from_utf8_lossy(&reply[reply.len().saturating_sub(200)..]).into_owned();
        assert_eq!(next, if closes { Next::Close } else { Next::Receive }, "{rules} {reply}");
        let heard = if closes { ":0" } else { ":1" };
        assert_eq!(say(&mut bench, &mut admin, "PUBLISH secret:1 m"), heard, "{rules}");
    }
}

#[test]
fn those_who_listen_to_what_was_taken_away_are_closed_and_no_others() {
    let mut bench = bench();
    let mut admin = redis(&mut bench);
    for name in ["a", "b"] {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER {name} on nopass &* +@all")), "+OK");
    }
    let listening = |bench: &mut Bench, user: &str, what: &str| {
        let mut session = redis(bench);
        assert_eq!(say(bench, &mut session, &format!("AUTH {user} x")), "+OK");
        assert!(say(bench, &mut session, what).contains("subscribe"));
        session
    };
    let mut stay = [
        listening(&mut bench, "a", "SUBSCRIBE pub:1"),
        listening(&mut bench, "a", "PSUBSCRIBE pub:*"),
        listening(&mut bench, "b", "SUBSCRIBE secret"),
    ];
    let mut go = [
        listening(&mut bench, "a", "SUBSCRIBE pub:1 secret"),
        listening(&mut bench, "a", "PSUBSCRIBE pub:1*"),
        listening(&mut bench, "a", "SSUBSCRIBE shard"),
    ];
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER a resetchannels &pub:*"), "+OK");
    let mut is_closed = |session: &mut Session| bench.turn(session, b"").0 == Next::Close;
    assert_eq!(stay.each_mut().map(&mut is_closed), [false; 3]);
    assert_eq!(go.each_mut().map(&mut is_closed), [true; 3]);
}

#[test]
fn exec_goes_on_as_nobody_where_it_has_removed_its_own_user() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    let said = say(&mut bench, &mut user, "MULTI\r\nACL DELUSER app\r\nSET k v\r\nPING\r\nEXEC");
    assert_eq!(
        said,
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:1\r\n-NOAUTH Authentication required.\r\n-NOAUTH Authentication required. closed"
    );
    assert_eq!(say(&mut bench, &mut admin, "EXISTS k"), ":0");
}

#[test]
fn the_rules_of_another_user_are_nothing_to_what_was_queued() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@all");
    assert_eq!(say(&mut bench, &mut user, "MULTI\r\nSET app:1 v\r\nGET app:1"), "+OK\r\n+QUEUED\r\n+QUEUED");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER other on >pw ~x"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "EXEC"), "*2\r\n+OK\r\n$1\r\nv");
}

#[test]
fn sort_writes_no_key_that_was_not_asked_for() {
    for (rules, line) in [
        ("~b*", "SORT b1 STORE by STORE victim"),
        ("~b1 ~l*", "SORT b1 STORE limit STORE victim"),
        ("~b1 ~g*", "SORT b1 STORE get STORE victim"),
    ] {
        let (mut bench, mut admin, mut user) = with_user(&format!("{rules} +sort"));
        assert_eq!(say(&mut bench, &mut admin, "RPUSH b1 1 2"), ":2");
        assert_eq!(say(&mut bench, &mut user, line), NO_KEY, "{line}");
        assert_eq!(say(&mut bench, &mut admin, "EXISTS victim"), ":0");
        let keys = say(&mut bench, &mut admin, &format!("COMMAND GETKEYS {line}"));
        assert_eq!(keys, "*2\r\n$2\r\nb1\r\n$6\r\nvictim");
    }
}

#[test]
fn a_password_turns_on_no_default_user_that_a_rule_has_turned_off() {
    let mut bench = bench();
    let mut admin = redis(&mut bench);
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER root on >pw ~* &* +@all"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "AUTH root pw"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default off"), "+OK");
    for password in ["x", "\"\""] {
        assert_eq!(say(&mut bench, &mut admin, &format!("CONFIG SET requirepass {password}")), "+OK");
        let mut new = Session::new();
        assert_eq!(say(&mut bench, &mut new, "*1\r\n$4\r\nPING"), "-NOAUTH Authentication required.");
        assert!(say(&mut bench, &mut new, "AUTH default x").starts_with("-WRONGPASS"));
    }
    // Where others were named at the start, the default user is one who has a password.
    let users = vec![("app".into(), Digest::from("pw"))];
    let mut bench = Bench::new(Settings { users, ..Settings::default() });
    let mut admin = Session::new();
    assert_eq!(say(&mut bench, &mut admin, "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$2\r\npw"), "+OK");
    for (password, reply) in [("x", "+OK"), ("\"\"", "-WRONGPASS"), ("x", "+OK")] {
        assert_eq!(say(&mut bench, &mut admin, &format!("CONFIG SET requirepass {password}")), "+OK");
        let mut new = Session::new();
        assert_eq!(say(&mut bench, &mut new, "*1\r\n$4\r\nPING"), "-NOAUTH Authentication required.");
        assert!(say(&mut bench, &mut new, "AUTH default x").starts_with(reply), "{password}");
    }
}
