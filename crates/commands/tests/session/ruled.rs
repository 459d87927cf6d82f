//! Users with rules, and rules that change, beside all that is not one request in one piece: requests that are gathered,
//! MSET in steps, keys that are held, pauses, scripts, functions, monitors.

use std::time::Duration;

use larder_commands::{Next, Pace, Session};

use crate::Bench;
use crate::survey::command;
use crate::users::{NO_KEY, redis, say, with_user};

/// Pairs that take many steps.
const MANY: usize = 6_000;

fn many_pairs(value: &str) -> Vec<u8> {
    let names: Vec<String> = (0..MANY).map(|n| format!("k{n}")).collect();
    let words = names.iter().flat_map(|name| [name, value]);
    command(&std::iter::once("MSET").chain(words).collect::<Vec<_>>())
}

/// Calls a session until it waits for more or for ever, what is left of the input included: what it wants then, and what it
/// said.
fn goes_on(bench: &mut Bench, session: &mut Session, input: &[u8]) -> (Next, String) {
    let (mut at, mut said) = (0, Vec::new());
    loop {
        let (next, more, consumed) = bench.call(session, &input[at..]);
        (at, said) = (at + consumed, [said, more].concat());
        if !matches!(next, Next::Yield | Next::Flush) {
            return (next, String::from_utf8_lossy(&said).trim_end().to_owned());
        }
    }
}

/// Begins a request of many pairs, and goes on until its keys are held and some are written; how much was consumed.
fn holds(bench: &mut Bench, session: &mut Session, input: &[u8]) -> usize {
    let (mut at, mut held) = (0, 0);
    while held < 3 {
        let (next, said, consumed) = bench.call(session, &input[at..]);
        assert!(next == Next::Yield && said.is_empty(), "{next:?}");
        (at, held) = (at + consumed, held + u32::from(session.must_end()));
    }
    at
}

#[test]
fn many_pairs_are_written_as_one_and_what_follows_them_is_asked_for_by_the_rules_of_then() {
    for (change, behind) in [
        ("ACL SETUSER app resetkeys ~app:*", format!("{NO_KEY}\r\n{NO_KEY}")),
        ("ACL SETUSER app -get", {
            "-NOPERM User app has no permissions to run the 'get' command\r\n+OK".to_owned()
        }),
        ("ACL DELUSER app", {
            "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.".to_owned()
        }),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
        let input = [many_pairs("new"), command(&["GET", "k0"]), command(&["SET", "after", "v"])].concat();
        let at = holds(&mut bench, &mut user, &input);
        assert!(at < input.len());
        assert!(!say(&mut bench, &mut admin, change).starts_with('-'));
        let (mut next, mut said, mut at) = (Next::Yield, Vec::new(), at);
        while next == Next::Yield {
            let (more, consumed);
            (next, more, consumed) = bench.call(&mut user, &input[at..]);
            (at, said) = (at + consumed, [said, more].concat());
        }
        let said = String::from_utf8(said).expect("text");
        let is_gone = change.starts_with("ACL DELUSER");
        if is_gone {
            // It may be closed before what follows is looked at.
            assert!(said.trim_end() == "+OK" || said.trim_end() == format!("+OK\r\n{behind}"), "{said}");
            assert_eq!(goes_on(&mut bench, &mut user, b"").0, Next::Close);
        } else {
            assert_eq!(said.trim_end(), format!("+OK\r\n{behind}"), "{change}");
        }
        bench.system += 1_000;
        let there = if change.contains("-get") { 1 } else { 0 };
        let dbsize = goes_on(&mut bench, &mut admin, &command(&["DBSIZE"])).1;
        assert_eq!(dbsize, format!(":{}", MANY + there), "{change}");
    }
}

#[test]
fn a_request_that_is_gathered_is_asked_for_when_it_is_whole() {
    let value = "v".repeat(100_000);
    for (rules, reply) in [
        ("resetkeys ~x", NO_KEY.to_owned()),
        ("-@write", "-NOPERM User app has no permissions to run the 'mset' command".into()),
        ("resetkeys ~x ~secret", "+OK".into()),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
        let request = command(&["MSET", "x", &value, "secret", &value]);
        let (one, other) = request.split_at(request.len() * 3 / 4);
        assert_eq!(bench.run(&mut user, one, 4096), (Vec::new(), false));
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        let (replies, _) = bench.run(&mut user, other, 4096);
        assert_eq!(String::from_utf8_lossy(&replies).trim_end(), reply, "{rules}");
        let there = if reply == "+OK" { ":2" } else { ":0" };
        assert_eq!(say(&mut bench, &mut admin, "EXISTS x secret"), there);
    }
    // The same of one that would have been written in steps, and of an user that is gone.
    let (mut bench, mut admin, mut user) = with_user("~k* &* +@all");
    let request = [many_pairs("v"), command(&["MSET", "victim", &value])].concat();
    let (one, other) = request.split_at(request.len() - 1_000);
    let (replies, _) = bench.run(&mut user, one, 4096);
    assert_eq!(replies, b"+OK\r\n");
    assert_eq!(say(&mut bench, &mut admin, "ACL DELUSER app"), ":1");
    assert_eq!(bench.run(&mut user, other, 4096), (Vec::new(), true));
    assert_eq!(say(&mut bench, &mut admin, "EXISTS victim"), ":0");
    let (mut bench, mut admin, mut user) = with_user("~x &* +@all");
    assert_eq!(goes_on(&mut bench, &mut user, &many_pairs("v")).1, NO_KEY);
    assert_eq!(say(&mut bench, &mut admin, "DBSIZE"), ":0");
}

#[test]
fn what_waits_for_keys_is_asked_for_again_when_they_are_free() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    let mut writer = redis(&mut bench);
    let queued = say(&mut bench, &mut user, "MULTI\r\nGET k0\r\nSET other v\r\nGET app:1");
    assert_eq!(queued, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED");
    let mut single = redis(&mut bench);
    assert_eq!(say(&mut bench, &mut single, "AUTH app pw"), "+OK");
    holds(&mut bench, &mut writer, &many_pairs("new"));
    let (exec, del) = (command(&["EXEC"]), command(&["DEL", "k0", "k1"]));
    assert!(matches!(bench.call(&mut user, &exec), (Next::Sleep(_), said, 0) if said.is_empty()));
    assert!(matches!(bench.call(&mut single, &del), (Next::Sleep(_), said, 0) if said.is_empty()));
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys ~app:*"), "+OK");
    // What is refused need not wait.
    assert_eq!(goes_on(&mut bench, &mut single, &del).1, NO_KEY);
    assert_eq!(goes_on(&mut bench, &mut writer, b"").1, "+OK");
    bench.system += 1_000;
    let why = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to touch the specified keys";
    assert_eq!(goes_on(&mut bench, &mut user, &exec).1, format!("*3\r\n{why}\r\n{why}\r\n$-1"));
    assert_eq!(goes_on(&mut bench, &mut admin, &command(&["EXISTS", "k0", "k1", "other"])).1, ":2");
}

#[test]
fn what_is_refused_does_not_wait_for_the_end_of_a_pause() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    assert_eq!(say(&mut bench, &mut admin, "CLIENT PAUSE 100000 WRITE"), "+OK");
    let write = command(&["SET", "x", "v"]);
    assert!(matches!(bench.call(&mut user, &write), (Next::Sleep(_), said, 0) if said.is_empty()));
    // Rules are no writes: they change in a pause.
    assert_eq!(goes_on(&mut bench, &mut admin, &command(&["ACL", "SETUSER", "app", "resetkeys"])).1, "+OK");
    assert_eq!(goes_on(&mut bench, &mut user, &write).1, NO_KEY);
}

/// Runs a script until it has worked in several turns, changes rules, and runs it to its end.
fn meanwhile(script: &str, change: &str) -> (Bench, Session, String) {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    assert_eq!(say(&mut bench, &mut admin, "SET secret v"), "+OK");
    bench.host.script_pace = Some(Pace::Look(Duration::from_millis(1)));
    let (mut next, said) = bench.turn(&mut user, &command(&["EVAL", script, "0"]));
    for _ in 0..3 {
        assert!(next == Next::Yield && said.is_empty(), "{next:?}");
        next = bench.turn(&mut user, b"").0;
    }
    assert!(!say(&mut bench, &mut admin, change).starts_with('-'));
    let (next, said) = goes_on(&mut bench, &mut user, b"");
    let said = if next == Next::Close { format!("{said} closed").trim_start().to_owned() } else { said };
    (bench, admin, said)
}

#[test]
fn a_script_that_goes_on_in_later_turns_does_what_its_user_may_do_then() {
    let works = "for i = 1, 3000000 do end";
    let script = format!("{works} return redis.call('GET', 'secret')");
    let said = meanwhile(&script, "ACL SETUSER app resetkeys").2;
    assert!(said.starts_with("-ERR ACL failure in script: No permissions to access a key"), "{said}");
    let said = meanwhile(&script, "ACL SETUSER app -get").2;
    assert!(said.contains("User app has no permissions to run the 'get' command"), "{said}");
    assert_eq!(meanwhile(&script, "ACL SETUSER app resetchannels").2, "$1\r\nv");
    let asks =
        format!("{works} return {{redis.acl_check_cmd('GET', 'secret'), redis.acl_check_cmd('GET', 'app')}}");
    assert_eq!(meanwhile(&asks, "ACL SETUSER app resetkeys ~app").2, "*2\r\n$-1\r\n:1");
    let publishes = format!("{works} return redis.pcall('PUBLISH', 'c', 'm')");
    let said = meanwhile(&publishes, "ACL SETUSER app resetchannels").2;
    assert_eq!(said, "-ERR ACL failure in script: No permissions to access a channel");
    // A user that is gone.
    let writes = format!("{works} redis.call('SET', 'secret', 'w') return 1");
    let (mut bench, mut admin, said) = meanwhile(&writes, "ACL DELUSER app");
    assert_eq!(said, "closed");
    assert_eq!(say(&mut bench, &mut admin, "GET secret"), "$1\r\nv");
}

#[test]
fn functions_do_what_the_user_who_calls_them_may_do() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@read +@transaction +fcall +fcall_ro");
    let code = "#!lua name=l\nredis.register_function('put', function(keys, args) return redis.call('SET', keys[1], 'v') end)\nredis.register_function{function_name='see', callback=function(keys, args) return redis.call('GET', args[1]) end, flags={'no-writes'}}";
    let load = command(&["FUNCTION", "LOAD", code]);
    assert_eq!(goes_on(&mut bench, &mut admin, &load).1, "$1\r\nl");
    assert_eq!(goes_on(&mut bench, &mut user, &load).1, {
        "-NOPERM User app has no permissions to run the 'function|load' command"
    });
    let mut is = |line: &str, reply: &str| {
        let said = say(&mut bench, &mut user, line);
        assert!(said.starts_with(reply), "{line}: {said}");
    };
    is("FCALL put 1 x", NO_KEY);
    is("FCALL put 1 app:1", {
        "-ERR ACL failure in script: User app has no permissions to run the 'set' command"
    });
    is("FCALL see 0 app:1", "$-1");
    is("FCALL_RO see 0 app:1", "$-1");
    is("FCALL see 0 x", "-ERR ACL failure in script: No permissions to access a key");
    is("FCALL_RO see 1 x app:1", NO_KEY);
    is("EVAL \"return 1\" 0", "-NOPERM User app has no permissions to run the 'eval' command");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app +set -get"), "+OK");
    let said = say(&mut bench, &mut user, "FCALL put 1 app:1\r\nFCALL see 0 app:1");
    assert!(
        said.starts_with("+OK\r\n-ERR ACL failure in script: User app has no permissions to run the 'get'")
    );
    // In EXEC, by the rules of then.
    assert_eq!(say(&mut bench, &mut user, "MULTI\r\nFCALL put 1 app:2"), "+OK\r\n+QUEUED");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app -set"), "+OK");
    let said = say(&mut bench, &mut user, "EXEC");
    assert!(
        said.starts_with("*1\r\n-ERR ACL failure in script: User app has no permissions to run the 'set'")
    );
    assert_eq!(say(&mut bench, &mut admin, "EXISTS app:2"), ":0");
}

#[test]
fn channels_are_asked_for_however_they_are_named() {
    let (mut bench, mut admin, mut user) = with_user("~* &ch &__keyevent@0__:del +@all");
    const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel";
    let mut is = |line: &str, reply: &str| assert_eq!(say(&mut bench, &mut user, line), reply, "{line}");
    is("SPUBLISH d m", NO_CHANNEL);
    is("SPUBLISH ch m", ":0");
    is("SUBSCRIBE ch d", NO_CHANNEL);
    is("SSUBSCRIBE d", NO_CHANNEL);
    is("SUBSCRIBE __keyevent@0__:set", NO_CHANNEL);
    is("PSUBSCRIBE *", NO_CHANNEL);
    is("EVAL \"return redis.pcall('PUBLISH','d','m').err\" 0", {
        "$61\r\nERR ACL failure in script: No permissions to access a channel"
    });
    is("EVAL \"return redis.call('SPUBLISH','ch','m')\" 0", ":0");
    is("MULTI\r\nPUBLISH d m", &format!("+OK\r\n{NO_CHANNEL}"));
    is("DISCARD", "+OK");
    is(
        "SUBSCRIBE __keyevent@0__:del",
        "*3\r\n$9\r\nsubscribe\r\n$20\r\n__keyevent@0__:del\r\n:1".replace("$20", "$18").as_str(),
    );
    assert_eq!(say(&mut bench, &mut admin, "ACL DELUSER app"), ":1");
    assert_eq!(bench.turn(&mut user, b"").0, Next::Close);
}

#[test]
fn a_monitor_is_closed_when_its_user_may_be_none_any_more() {
    let (mut bench, _, mut user) = with_user("~* +@all -@dangerous");
    assert_eq!(say(&mut bench, &mut user, "MONITOR"), {
        "-NOPERM User app has no permissions to run the 'monitor' command"
    });
    for (change, closes) in [
        ("ACL SETUSER app -monitor", true),
        ("ACL SETUSER app -@all +monitor", false),
        ("ACL SETUSER other -monitor", false),
        ("ACL DELUSER app", true),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
        assert_eq!(say(&mut bench, &mut user, "MONITOR"), "+OK");
        assert!(!say(&mut bench, &mut admin, change).starts_with('-'));
        let _ = bench.host.outbox.take();
        assert_eq!(bench.turn(&mut user, b"").0 == Next::Close, closes, "{change}");
        if closes {
            // As where its connection is closed.
            drop(user);
        }
        assert_eq!(say(&mut bench, &mut admin, "SET secret v"), "+OK");
        assert_eq!(bench.host.outbox.take().0.is_empty(), closes, "{change}");
    }
}
