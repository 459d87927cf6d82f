//! Rules that are taken away while something of their user is under way: what waits, what is on its way in, what goes on in steps.

use crate::survey::command;
use crate::users::{NO_KEY, redis, say, with_user};
use crate::{Bench, bench};
use larder_commands::{Digest, Next, Pace, Session, Settings};

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
    for (name, time, ok) in [
        ("SET", None, "+OK"),
        ("SETEX", Some("100"), "+OK"),
        ("PSETEX", Some("100000"), "+OK"),
        ("LPUSH", None, ":1"),
        ("RPUSH", None, ":1"),
        ("HSET", Some("field"), ":1"),
        ("HMSET", Some("field"), "+OK"),
    ] {
        for (rules, reply) in [
            ("resetkeys ~x:*", NO_KEY.to_owned()),
            (
                "-@write",
                format!("-NOPERM User app has no permissions to run the '{}' command", name.to_lowercase()),
            ),
            ("resetkeys %W~vic*", ok.to_owned()),
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
            let there = if reply == ok { ":1" } else { ":0" };
            assert_eq!(say(&mut bench, &mut admin, "EXISTS victim"), there, "{name} {rules}");
            assert_eq!(bench.worker.store().input_bytes(), 0, "{name} {rules}: nothing is kept of it");
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
        let counted = format!("acl_change_disconnections:{}\r\n", u8::from(closes));
        assert!(say(&mut bench, &mut admin, "INFO stats").contains(&counted), "{rules}");
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
    // Where others were named at the start, the default user is one that has a password.
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

/// A command that goes on in later turns looks at nothing and writes nothing by rules that were taken away.
#[test]
fn what_goes_on_in_steps_ends_with_its_connection_where_the_rules_are_others() {
    let value = "v".repeat(200_000);
    let many: String = (0..6_000).map(|n| format!(" k{n} v")).collect();
    for line in [
        format!("MGET{}", " secret".repeat(100)),
        "SETRANGE secret 200000 w".into(),
        "COPY secret other".into(),
        format!("MSET other v{many}"),
    ] {
        for rules in ["resetkeys ~pub:*", "-get"] {
            let (mut bench, mut admin, mut user) = with_user("~* +@all");
            let (set, big) = (["SET", "secret", &value], ["SETBIT", "big", "100000000", "1"]);
            for words in [&set[..], &big] {
                assert!(!bench.turns(&mut admin, &command(words)).0.starts_with(b"-"));
            }
            // It holds the lane of large values, so that what works at one waits.
            let mut other = redis(&mut bench);
            assert_eq!(bench.turn(&mut other, &command(&["BITCOUNT", "big"])).0, Next::Yield);
            let words: Vec<&str> = line.split(' ').collect();
            let (next, _) = bench.turn(&mut user, &command(&words));
            assert!(matches!(next, Next::Yield | Next::Flush), "{}: {next:?}", words[0]);
            assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
            let (next, reply) = bench.turn(&mut user, b"");
            assert_eq!((next, reply.len()), (Next::Close, 0), "{} {rules}", words[0]);
            assert_eq!(bench.turns(&mut other, b"").0, b":1\r\n");
            drop(user);
            assert_eq!(say(&mut bench, &mut admin, "EXISTS other"), ":0", "{}", words[0]);
            assert_eq!(say(&mut bench, &mut admin, "STRLEN secret"), ":200000", "{}", words[0]);
        }
    }
}

#[test]
fn what_goes_on_in_steps_is_nothing_to_the_rules_of_others_or_where_all_is_allowed() {
    let value = "v".repeat(200_000);
    for (before, rules) in [
        ("~s* +@all", "ACL SETUSER other on ~x"),
        ("~* +@all", "ACL SETUSER app allchannels"),
        // How it logs in is another thing, and what is said again is as it was.
        ("~s* +@all", "ACL SETUSER app off <pw >other"),
        ("~s* +@all (~x +get)", "ACL SETUSER app resetkeys ~s* clearselectors (~x +get)"),
    ] {
        let (mut bench, mut admin, mut user) = with_user(before);
        assert_eq!(bench.turns(&mut admin, &command(&["SET", "secret", &value])).0, b"+OK\r\n");
        let words: Vec<&str> = ["MGET"].into_iter().chain(std::iter::repeat_n("secret", 100)).collect();
        let (next, reply) = bench.turn(&mut user, &command(&words));
        assert!(next != Next::Receive && reply.len() < 100 * 200_000, "it goes on in steps");
        assert_eq!(say(&mut bench, &mut admin, rules), "+OK");
        let rest = bench.turns(&mut user, b"").0;
        assert_eq!(reply.len() + rest.len(), 6 + 100 * (200_000 + 11));
    }
}

#[test]
fn pairs_that_are_being_written_are_written_to_the_last() {
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    let names: Vec<String> = (0..6_000).map(|n| format!("k{n}")).collect();
    let words: Vec<&str> =
        std::iter::once("MSET").chain(names.iter().flat_map(|name| [&**name, "v"])).collect();
    let mut next = bench.turn(&mut user, &command(&words)).0;
    while !user.must_end() {
        assert_eq!(next, Next::Yield);
        next = bench.turn(&mut user, b"").0;
    }
    // It has waited for what was begun before, and written some.
    for _ in 0..2 {
        assert_eq!(bench.turn(&mut user, b"").0, Next::Yield);
    }
    assert!(user.must_end());
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys"), "+OK");
    let (reply, _) = bench.turns(&mut user, b"");
    assert_eq!(reply, b"+OK\r\n");
    assert_eq!(say(&mut bench, &mut admin, "EXISTS k0 k5999"), ":2");
    assert_eq!(say(&mut bench, &mut user, "GET k0"), NO_KEY);
}

#[test]
fn pairs_of_which_none_is_written_are_not_by_rules_that_were_taken_away() {
    for (name, change) in [
        ("MSET", "ACL SETUSER app resetkeys"),
        ("MSETNX", "ACL SETUSER app resetkeys"),
        ("MSET", "ACL DELUSER app"),
    ] {
        // Rules change behind each turn in which it must end, up to the one that writes.
        for turns in 0.. {
            let (mut bench, mut admin, mut user) = with_user("~* +@all");
            let names: Vec<String> = (0..6_000).map(|n| format!("k{n}")).collect();
            let words: Vec<&str> =
                std::iter::once(name).chain(names.iter().flat_map(|name| [&**name, "v"])).collect();
            bench.turn(&mut user, &command(&words));
            while !user.must_end() {
                bench.turn(&mut user, b"");
            }
            for _ in 0..turns {
                assert_eq!(bench.turn(&mut user, b"").0, Next::Yield);
            }
            if bench.worker.enter(bench.system).store().database_items(0) > 0 {
                assert!(turns > 1, "it waits first");
                break;
            }
            assert!(!say(&mut bench, &mut admin, change).starts_with('-'), "{change}");
            let (next, reply) = bench.turn(&mut user, b"");
            assert!(
                next == Next::Close && reply.starts_with(b"-NOPERM "),
                "{name} {turns} {change}: {next:?}"
            );
            // The keys are free again.
            bench.system += 100;
            assert_eq!(say(&mut bench, &mut admin, "EXISTS k0 k5999"), ":0", "{name} {turns} {change}");
            assert!(say(&mut bench, &mut admin, "INFO stats").contains("acl_change_disconnections:1\r\n"));
        }
    }
}

/// A client that does not read the reply of a stream holds up no other that works at large values.
#[test]
fn a_reply_that_is_copied_gives_the_lane_back() {
    for line in ["XRANGE s - +", "XREAD STREAMS s 0", "DUMP s"] {
        let mut bench = bench();
        let (mut one, mut other) = (redis(&mut bench), redis(&mut bench));
        let value = "v".repeat(10_000);
        for _ in 0..400 {
            assert!(say(&mut bench, &mut one, &format!("XADD s * f {value}")).starts_with('$'));
        }
        assert_eq!(say(&mut bench, &mut one, "SETBIT big 8000000 1"), ":0");
        let words: Vec<&str> = line.split(' ').collect();
        let (mut next, mut reply) = bench.turn(&mut one, &command(&words));
        while next == Next::Yield && reply.is_empty() {
            (next, reply) = bench.turn(&mut one, b"");
        }
        assert!(next != Next::Receive && !reply.is_empty(), "{line}: it sends what it has copied");
        let (mut next, mut count) = bench.turn(&mut other, &command(&["BITCOUNT", "big"]));
        for _ in 0..1_000 {
            if next == Next::Yield {
                (next, count) = bench.turn(&mut other, b"");
            }
        }
        assert_eq!((next, &count[..]), (Next::Receive, &b":1\r\n"[..]), "{line}");
    }
}

/// What was copied while it was allowed is sent, whatever the rules are when its client takes it.
#[test]
fn what_is_only_to_be_sent_is_sent() {
    let value = "v".repeat(10_000);
    for (fill, line) in [
        ("XADD k * f", "XRANGE k - +"),
        ("XADD k * f", "XREADGROUP GROUP g c STREAMS k >"),
        ("XADD k * f", "DUMP k"),
        ("RPUSH k", "LRANGE k 0 -1"),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* +@all");
        for _ in 0..400 {
            assert!(!say(&mut bench, &mut admin, &format!("{fill} {value}")).starts_with('-'));
        }
        say(&mut bench, &mut admin, "XGROUP CREATE k g 0");
        let words: Vec<&str> = line.split(' ').collect();
        let (mut next, mut reply) = bench.turn(&mut user, &command(&words));
        while next == Next::Yield && reply.is_empty() {
            (next, reply) = bench.turn(&mut user, b"");
        }
        assert!(next != Next::Receive && !reply.is_empty(), "{line}: it sends what it has copied");
        assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys"), "+OK");
        let rest = bench.turns(&mut user, b"").0;
        assert!(reply.len() + rest.len() > 400 * value.len(), "{line}");
        assert_eq!(say(&mut bench, &mut user, "GET k"), NO_KEY, "{line}");
    }
}

/// What was taken out is nowhere but in its reply, which goes on to its end.
#[test]
fn what_was_taken_out_is_sent_whatever_the_rules_are_by_then() {
    // Not all of them: a set of which all are popped goes at once.
    for (fill, count, line, size) in [
        ("RPUSH k", 50_000, "LPOP k 49000", "LLEN k"),
        // More than are one moment, which has its key held.
        ("SADD k", 70_000, "SPOP k 69000", "SCARD k"),
        ("ZADD k", 20_000, "ZPOPMIN k 19000", "ZCARD k"),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* +@all");
        let scored = fill == "ZADD k";
        for n in 0..count / 1000 {
            let some = (n * 1000..(n + 1) * 1000)
                .map(|n| if scored { format!(" {n} {n}") } else { format!(" {n}") })
                .collect::<String>();
            say(&mut bench, &mut admin, &format!("{fill}{some}"));
        }
        let words: Vec<&str> = line.split(' ').collect();
        let all = format!(":{count}");
        let (mut next, mut reply) = bench.turn(&mut user, &command(&words));
        while say(&mut bench, &mut admin, size) == all {
            assert_eq!(next, Next::Yield, "{line}");
            (next, reply) = bench.turn(&mut user, b"");
        }
        assert!(next == Next::Yield && reply.is_empty(), "{line}: there is more to take");
        assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys"), "+OK");
        let reply = String::from_utf8(bench.turns(&mut user, b"").0).expect("text");
        let elements = if scored { 2 * (count - 1000) } else { count - 1000 };
        assert!(reply.starts_with(&format!("*{elements}\r\n$")), "{line}: {reply:.40}");
        assert_eq!(reply.matches('$').count(), elements, "{line}");
        assert_eq!(say(&mut bench, &mut admin, size), ":1000");
        assert_eq!(say(&mut bench, &mut user, "GET k"), NO_KEY, "{line}");
    }
}

/// What was delivered to a group is pending, and replied, of the first stream as of others.
#[test]
fn what_was_delivered_is_told_whatever_the_rules_are_by_then() {
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    let value = "v".repeat(10_000);
    for _ in 0..400 {
        assert!(!say(&mut bench, &mut admin, &format!("XADD k * f {value}")).starts_with('-'));
    }
    say(&mut bench, &mut admin, "XGROUP CREATE k g 0");
    let line = ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">"];
    let (mut next, mut reply) = bench.turn(&mut user, &command(&line));
    while say(&mut bench, &mut admin, "XPENDING k g").starts_with("*4\r\n:0") {
        assert_eq!(next, Next::Yield);
        (next, reply) = bench.turn(&mut user, b"");
    }
    assert!(next == Next::Yield && reply.is_empty(), "there is more to deliver");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys"), "+OK");
    let reply = bench.turns(&mut user, b"").0;
    assert!(reply.len() > 400 * value.len(), "{}", reply.len());
    assert!(say(&mut bench, &mut admin, "XPENDING k g").starts_with("*4\r\n:400\r\n"));
    assert_eq!(say(&mut bench, &mut user, "GET k"), NO_KEY);
}

/// A read of a group that was put off has joined no line yet, and does not wait by rules that were changed by then.
#[test]
fn a_read_that_was_put_off_does_not_wait_for_what_its_user_may_not_have_any_more() {
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    for stream in ["own", "secret"] {
        assert_eq!(say(&mut bench, &mut admin, &format!("XGROUP CREATE {stream} g $ MKSTREAM")), "+OK");
    }
    let request =
        command(&["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "own", "secret", ">", ">"]);
    bench.room.work().begin_slice();
    bench.room.work().spend(10 * larder_commands::SLICE_NS);
    assert_eq!(bench.same_slice(&mut user, &request).0, Next::Yield, "its worker has done enough");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys ~own"), "+OK");
    assert_eq!(bench.turn(&mut user, b"").0, Next::Close);
    drop(user);
    assert!(say(&mut bench, &mut admin, "XADD secret * f v").starts_with('$'));
    assert!(say(&mut bench, &mut admin, "XPENDING secret g").starts_with("*4\r\n:0\r\n"));
}

/// Many names that are still allowed, one session that keeps some of them, and one that listens to what is taken away.
fn listeners(bench: &mut Bench, admin: &mut Session) -> [Session; 3] {
    assert_eq!(say(bench, admin, "ACL SETUSER app on >pw ~* &* +@all"), "+OK");
    let many: Vec<String> = (0..10_000).map(|n| format!("pub:{n}")).collect();
    let many: Vec<&str> = std::iter::once("SUBSCRIBE").chain(many.iter().map(|name| &**name)).collect();
    [&many[..], &["SUBSCRIBE", "pub:0"], &["SUBSCRIBE", "pub:1", "secret"]].map(|words| {
        let mut session = redis(bench);
        assert_eq!(say(bench, &mut session, "AUTH app pw"), "+OK");
        let (replies, _) = bench.run(&mut session, &command(&["HELLO", "3"]), usize::MAX);
        assert!(replies.starts_with(b"%7"));
        let replies = bench.run(&mut session, &command(words), usize::MAX).0;
        assert_eq!(replies.split(|&byte| byte == b'>').count(), words.len(), "each is listened to");
        session
    })
}

#[test]
fn whoever_takes_a_channel_away_and_goes_leaves_nobody_who_listens_to_it() {
    let mut bench = bench();
    let (mut admin, mut other) = (redis(&mut bench), redis(&mut bench));
    let [mut many, mut keeps, mut goes] = listeners(&mut bench, &mut admin);
    let id = say(&mut bench, &mut admin, "CLIENT ID");
    let request = command(&["ACL", "SETUSER", "app", "resetchannels", "&pub:*"]);
    let (next, reply) = bench.turn(&mut admin, &request);
    assert_eq!((next, reply.len()), (Next::Yield, 0), "it goes on in steps");
    assert_eq!(say(&mut bench, &mut other, &format!("CLIENT KILL ID {}", &id[1..])), ":1");
    assert!(admin.must_end());
    let mut next = Next::Yield;
    while next != Next::Close {
        assert_eq!(next, Next::Yield);
        next = bench.turn(&mut admin, b"").0;
    }
    let closed = [&mut many, &mut keeps, &mut goes].map(|session| bench.turn(session, b"").0 == Next::Close);
    assert_eq!(closed, [false, false, true]);
}

#[test]
fn who_takes_its_own_channel_away_is_closed_behind_the_reply() {
    let mut bench = bench();
    let mut admin = redis(&mut bench);
    let [_many, _keeps, mut own] = listeners(&mut bench, &mut admin);
    let request = command(&["ACL", "SETUSER", "app", "resetchannels", "&pub:*"]);
    let (mut next, mut replies) = bench.turn(&mut own, &request);
    while next == Next::Yield {
        let (then, more) = bench.turn(&mut own, b"");
        (next, replies) = (then, [replies, more].concat());
    }
    assert_eq!((next, &replies[..]), (Next::Close, &b"+OK\r\n"[..]));
}

#[test]
fn a_request_that_waits_pays_for_being_asked_again() {
    let rules: String = (0..500).map(|n| format!("~p{n}:* ")).collect();
    let (mut bench, mut admin, mut user) = with_user(&format!("{rules}~z* +@all"));
    assert_eq!(say(&mut bench, &mut admin, "CLIENT PAUSE 1000"), "+OK");
    let keys: Vec<String> = (0..200).map(|n| format!("z{n}")).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(|key| &**key)).collect();
    let (next, reply, consumed) = bench.call(&mut user, &command(&words));
    assert!(matches!(next, Next::Sleep(_)) && reply.is_empty() && consumed == 0, "{next:?}");
    let done_ns = bench.room.work().done_ns();
    assert!(done_ns > 100_000, "{done_ns}");
}

/// What comes behind a collection of the worker's Lua state is not done for one that may not do it any more.
#[test]
fn what_waits_for_a_collection_is_not_done_when_its_user_may_not_do_it_any_more() {
    for (words, rules) in
        [(&["SCRIPT", "LOAD", "return 5"][..], "-script"), (&["EVAL", "return 5", "0"][..], "-eval")]
    {
        for may_go_on in [false, true] {
            let (mut bench, mut admin, mut user) = with_user("~* +@all");
            // Each look at a script is a turn.
            bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
            let said = |bench: &mut Bench, session: &mut Session, words: &[&str]| {
                String::from_utf8(bench.run(session, &command(words), usize::MAX).0).expect("text")
            };
            let code = "#!lua name=l\nlocal n = 0 \
                redis.register_function('count', function() n = n + 1 return n end)";
            assert_eq!(said(&mut bench, &mut admin, &["FUNCTION", "LOAD", code]), "$1\r\nl\r\n");
            assert_eq!(said(&mut bench, &mut admin, &["FCALL", "count", "0"]), ":1\r\n");
            let fills = ["EVAL", "local t = {} for i = 1, 1e9 do t[i] = {i} end", "0"];
            assert!(said(&mut bench, &mut admin, &fills).contains("not enough memory"));
            let (next, reply, _) = bench.call(&mut user, &command(words));
            assert_eq!((next, reply.len()), (Next::Yield, 0), "{words:?}");
            let rules = if may_go_on { "+@all" } else { rules };
            assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
            let (mut next, mut reply, _) = bench.call(&mut user, b"");
            assert_eq!(next == Next::Close, !may_go_on, "{words:?}: {next:?}");
            while may_go_on && reply.is_empty() {
                assert_eq!(next, Next::Yield, "{words:?}");
                (next, reply, _) = bench.call(&mut user, b"");
            }
            let reply = String::from_utf8(reply).expect("text");
            assert!(!reply.starts_with('-') && reply.is_empty() != may_go_on, "{words:?}: {reply}");
            let sha1 = larder_script::sha1_hex(b"return 5");
            let known = said(&mut bench, &mut admin, &["SCRIPT", "EXISTS", &sha1]);
            assert_eq!(known, format!("*1\r\n:{}\r\n", u8::from(may_go_on)), "{words:?}");
            // What it collected for is not done, and what libraries keep stays.
            drop(user);
            assert_eq!(said(&mut bench, &mut admin, &["FCALL", "count", "0"]), ":2\r\n");
        }
    }
}
