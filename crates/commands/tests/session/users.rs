//! Users with rules: what is refused, in which words, and what becomes of connections that are open when rules change.

use crate::survey::command;
use crate::{Bench, bench};
use larder_commands::{Digest, FiledUsers, Rights, SECRET_BYTES_MAX, Session, Settings, ruled_users};
use larder_protocol::resp::words_read;

/// Sends each line as an inline command; returns the replies.
pub fn say(bench: &mut Bench, session: &mut Session, line: &str) -> String {
    let (replies, closed) = bench.run(session, format!("{line}\r\n").as_bytes(), usize::MAX);
    let replies = String::from_utf8(replies).expect("text").trim_end().to_owned();
    if closed { format!("{replies} closed").trim_start().to_owned() } else { replies }
}

pub fn redis(bench: &mut Bench) -> Session {
    let mut session = Session::new();
    assert_eq!(bench.run(&mut session, b"*1\r\n$4\r\nPING\r\n", usize::MAX).0, b"+PONG\r\n");
    session
}

/// A bench, a session that may do everything, and a session of a user with these rules.
pub fn with_user(rules: &str) -> (Bench, Session, Session) {
    let mut bench = bench();
    let (mut admin, mut user) = (redis(&mut bench), redis(&mut bench));
    assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app on >pw {rules}")), "+OK");
    assert_eq!(say(&mut bench, &mut user, "AUTH app pw"), "+OK");
    (bench, admin, user)
}

pub const NO_KEY: &str = "-NOPERM No permissions to access a key";

fn no_command(name: &str) -> String {
    format!("-NOPERM User app has no permissions to run the '{name}' command")
}

#[test]
fn as_much_is_shown_beside_the_protocols_as_the_rules_of_a_user_allow() {
    let (mut bench, mut admin, _) = with_user("-@all +info +client|list");
    let reader = |bench: &Bench| bench.shared.access().reader(b"app", b"pw");
    assert_eq!(reader(&bench), Some(Rights::Figures));
    for (rules, rights) in [
        ("+keys", Some(Rights::Keys)),
        ("-client|list", Some(Rights::None)),
        ("+client|list -info", Some(Rights::None)),
        ("+@all", Some(Rights::Keys)),
        ("off", None),
        ("on", Some(Rights::Keys)),
        // With nopass any password is right, so none is proof of the user.
        ("nopass", None),
    ] {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        assert_eq!(reader(&bench), rights, "{rules}");
    }
    assert_eq!(bench.shared.access().reader(b"app", b"wrong"), None);
    let unasked = |bench: &Bench| bench.shared.access().unasked();
    assert_eq!(unasked(&bench), Rights::Keys);
    for (rules, rights) in [
        ("-flushall", Rights::Keys),
        ("-keys", Rights::Figures),
        ("-info", Rights::None),
        ("+@all", Rights::Keys),
    ] {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER default {rules}")), "+OK");
        assert_eq!(unasked(&bench), rights, "{rules}");
    }
    assert_eq!(say(&mut bench, &mut admin, "CONFIG SET requirepass secret"), "+OK");
    assert_eq!(unasked(&bench), Rights::None);
    assert_eq!(bench.shared.access().reader(b"default", b"secret"), Some(Rights::Keys));
}

#[test]
fn a_user_may_do_what_its_rules_say_and_nothing_else() {
    let (mut bench, _, mut user) = with_user("~app:* %R~ro:* &ch* +@all -@dangerous -incr +config|get");
    let mut is = |line: &str, reply: &str| assert_eq!(say(&mut bench, &mut user, line), reply, "{line}");
    is("SET app:1 v", "+OK");
    is("GET app:1", "$1\r\nv");
    is("GET ro:1", "$-1");
    is("SET ro:1 v", NO_KEY);
    is("GET x", NO_KEY);
    is("MGET app:1 x", NO_KEY);
    is("EXISTS ro:1", ":0");
    is("SET app:1 v GET", "$1\r\nv");
    is("COPY ro:1 app:2", ":0");
    is("COPY app:1 ro:2", NO_KEY);
    is("INCR app:1", &no_command("incr"));
    is("incr x", &no_command("incr"));
    is("KEYS *", &no_command("keys"));
    is("CONFIG SET maxmemory 1", &no_command("config|set"));
    is("CONFIG GET nosuch", "*0");
    is("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command");
    is("ACL LIST", &no_command("acl|list"));
    is("ACL WHOAMI", "$3\r\napp");
    is("PUBLISH ch1 m", ":0");
    is("PUBLISH d m", "-NOPERM No permissions to access a channel");
    is("PSUBSCRIBE ch*", "*3\r\n$10\r\npsubscribe\r\n$3\r\nch*\r\n:1");
    is("PSUBSCRIBE ch1", "-NOPERM No permissions to access a channel");
    is("PUNSUBSCRIBE", "*3\r\n$12\r\npunsubscribe\r\n$3\r\nch*\r\n:0");
    is("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:");
    is("RESET", "+RESET");
    is("ACL WHOAMI", "$7\r\ndefault");
}

#[test]
fn what_comes_in_one_piece_is_asked_for_one_by_one() {
    let (mut bench, _, mut user) = with_user("~app:* +get +set");
    let request = |words: &[&str]| -> String {
        let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{words}", words.matches('$').count())
    };
    let one = [request(&["SET", "app:1", "v"]), request(&["GET", "app:1"]), request(&["GET", "x"])].concat();
    let input = one.repeat(50);
    let expected = format!("+OK\r\n$1\r\nv\r\n{NO_KEY}\r\n").repeat(50);
    for step in [usize::MAX, 7] {
        let (replies, _) = bench.run(&mut user, input.as_bytes(), step);
        assert_eq!(String::from_utf8(replies).unwrap(), expected);
    }
    // A value that is long enough to be received into its item.
    let value = "v".repeat(100_000);
    let long = request(&["SET", "x", &value]) + &request(&["SET", "app:2", &value]);
    let (replies, _) = bench.run(&mut user, long.as_bytes(), 4096);
    assert_eq!(String::from_utf8(replies).unwrap(), format!("{NO_KEY}\r\n+OK\r\n"));
}

#[test]
fn a_transaction_is_asked_for_when_it_is_queued_and_when_the_rules_have_changed() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@all -incr");
    assert_eq!(say(&mut bench, &mut user, "MULTI"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "GET x"), NO_KEY);
    assert_eq!(
        say(&mut bench, &mut user, "EXEC"),
        "-EXECABORT Transaction discarded because of previous errors."
    );
    for (rules, why) in [
        ("-set", "no permission to execute the command or subcommand"),
        ("+set resetkeys ~other", "no permission to touch the specified keys"),
    ] {
        assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app resetkeys ~app:* +set"), "+OK");
        assert_eq!(say(&mut bench, &mut user, "MULTI"), "+OK");
        assert_eq!(say(&mut bench, &mut user, "SET app:1 v"), "+QUEUED");
        assert_eq!(say(&mut bench, &mut user, "PING"), "+QUEUED");
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER app {rules}")), "+OK");
        assert_eq!(
            say(&mut bench, &mut user, "EXEC"),
            format!(
                "*2\r\n-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {why}\r\n+PONG"
            )
        );
    }
    // AUTH within EXEC: the rules of the other user count for the commands behind it.
    assert_eq!(say(&mut bench, &mut admin, "SET app:1 v"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "MULTI\r\nAUTH app pw\r\nGET app:1\r\nGET other\r\nEXEC"), {
        let refused = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: no permission to touch the specified keys";
        format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n{refused}\r\n$-1")
    });
}

#[test]
fn scripts_do_what_their_user_may_do() {
    let (mut bench, _, mut user) = with_user("~app:* +@all -incr");
    let mut is = |line: &str, reply: &str| assert_eq!(say(&mut bench, &mut user, line), reply, "{line}");
    is("EVAL \"return redis.call('set',KEYS[1],'1')\" 1 app:1", "+OK");
    is("EVAL \"return 1\" 1 x", NO_KEY);
    is(
        "EVAL \"return redis.pcall('get','x').err\" 0",
        "$57\r\nERR ACL failure in script: No permissions to access a key",
    );
    is(
        "EVAL \"return {redis.acl_check_cmd('get','app:1'), redis.acl_check_cmd('get','x'), redis.acl_check_cmd('incr','app:1')}\" 0",
        "*3\r\n:1\r\n$-1\r\n$-1",
    );
    assert!(say(&mut bench, &mut user, "EVAL \"return redis.call('incr','app:1')\" 0").starts_with(
        "-ERR ACL failure in script: User app has no permissions to run the 'incr' command script: "
    ));
}

#[test]
fn sort_reads_by_patterns_for_those_who_may_read_every_key() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@all");
    assert_eq!(say(&mut bench, &mut admin, "RPUSH app:l 2 1"), ":2");
    let denied =
        |option: &str| format!("-ERR {option} option of SORT denied due to insufficient ACL permissions.");
    for (line, reply) in [
        ("SORT app:l", "*2\r\n$1\r\n1\r\n$1\r\n2".to_owned()),
        ("SORT app:l BY w*", denied("BY")),
        ("SORT app:l BY nosort", "*2\r\n$1\r\n2\r\n$1\r\n1".into()),
        ("SORT_RO app:l GET w*", denied("GET")),
        ("SORT app:l GET #", denied("GET")),
        ("SORT app:l STORE x", NO_KEY.into()),
    ] {
        assert_eq!(say(&mut bench, &mut user, line), reply, "{line}");
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app %R~*"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "SORT app:l BY w* GET #"), "*2\r\n$1\r\n1\r\n$1\r\n2");
}

#[test]
fn who_is_in_feels_the_change_of_rules_at_its_next_request() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    assert_eq!(say(&mut bench, &mut user, "SET k v"), "+OK");
    // `off` concerns logins to come; the other rules concern connections that are logged in.
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app off -set"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "SET k v"), no_command("set"));
    assert_eq!(say(&mut bench, &mut user, "GET k"), "$1\r\nv");
    let mut other = redis(&mut bench);
    assert!(say(&mut bench, &mut other, "AUTH app pw").starts_with("-WRONGPASS"));
    // The same behind a change of the user's own rules, in one pipeline.
    let own = say(&mut bench, &mut user, "ACL SETUSER app -get\r\nGET k\r\nACL SETUSER app +get\r\nGET k");
    assert_eq!(own, format!("+OK\r\n{}\r\n+OK\r\n$1\r\nv", no_command("get")));
    // A user that is deleted and created again is another user, so its connections close.
    assert_eq!(say(&mut bench, &mut admin, "ACL DELUSER app nosuch"), ":1");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app on nopass allkeys +@all"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "GET k"), "closed");
    assert_eq!(
        say(&mut bench, &mut admin, "ACL DELUSER default"),
        "-ERR The 'default' user cannot be removed"
    );
}

#[test]
fn the_default_user_has_rules_like_any_other() {
    let mut bench = bench();
    let (mut admin, mut before) = (redis(&mut bench), redis(&mut bench));
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER root on >pw ~* &* +@all"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "AUTH root pw"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default resetkeys ~pub:* -@all +get"), "+OK");
    for session in [&mut before, &mut Session::new()] {
        assert_eq!(say(&mut bench, session, "*1\r\n$4\r\nPING"), {
            "-NOPERM User default has no permissions to run the 'ping' command"
        });
        assert_eq!(say(&mut bench, session, "GET pub:1"), "$-1");
        assert_eq!(say(&mut bench, session, "GET x"), NO_KEY);
        assert!(say(&mut bench, session, "AUTH x").starts_with("-ERR AUTH <password> called without"));
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default off"), "+OK");
    assert_eq!(say(&mut bench, &mut before, "GET pub:1"), "$-1", "who is in stays in");
    let mut after = Session::new();
    assert_eq!(say(&mut bench, &mut after, "*1\r\n$4\r\nPING"), "-NOAUTH Authentication required.");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER default on allkeys +@all"), "+OK");
    assert_eq!(say(&mut bench, &mut after, "GET x"), "$-1");
    assert_eq!(say(&mut bench, &mut admin, "CONFIG SET requirepass pw"), "+OK");
    assert_eq!(say(&mut bench, &mut after, "GET x"), "$-1", "who is in stays in");
}

#[test]
fn what_was_refused_is_in_the_log_once_for_each_and_no_password_is() {
    let (mut bench, mut admin, mut user) = with_user("~app:* +@all -incr");
    for line in ["GET canary-key", "GET canary-key", "INCR app:1", "AUTH app canary-password"] {
        assert!(say(&mut bench, &mut user, line).starts_with('-'), "{line}");
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER canary-rule >canary-password <canary-other"), {
        "-ERR Error in ACL SETUSER modifier '<(redacted)': The password you are trying to remove from the user does not exist"
    });
    let log = say(&mut bench, &mut admin, "ACL LOG");
    assert!(log.starts_with("*3\r\n*20\r\n$5\r\ncount\r\n:1\r\n$6\r\nreason\r\n$4\r\nauth\r\n"), "{log}");
    for part in
        ["$7\r\ncontext\r\n$8\r\ntoplevel", "$6\r\nobject\r\n$4\r\nauth", "$8\r\nusername\r\n$3\r\napp"]
    {
        assert!(log.contains(part), "{log}");
    }
    assert!(log.contains("count\r\n:2\r\n$6\r\nreason\r\n$3\r\nkey\r\n"), "{log}");
    assert!(log.contains("$6\r\nobject\r\n$10\r\ncanary-key"), "{log}");
    assert!(log.contains("$6\r\nreason\r\n$7\r\ncommand\r\n") && log.contains("$6\r\nobject\r\n$4\r\nincr"));
    let shown = ["ACL LOG", "ACL LIST", "SLOWLOG GET", "INFO everything", "CLIENT LIST"];
    for line in shown {
        assert!(!say(&mut bench, &mut admin, line).contains("canary-password"), "{line}");
    }
    let info = say(&mut bench, &mut admin, "INFO stats");
    for figure in [
        "acl_access_denied_auth:1\r\n",
        "acl_access_denied_cmd:1\r\n",
        "acl_access_denied_key:2\r\n",
        "acl_access_denied_channel:0\r\n",
    ] {
        assert!(info.contains(figure), "{figure}");
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL LOG RESET\r\nACL LOG"), "+OK\r\n*0");
    assert_eq!(say(&mut bench, &mut admin, "CONFIG SET acllog-max-len 1"), "+OK");
    say(&mut bench, &mut user, "GET x\r\nGET y");
    assert!(say(&mut bench, &mut admin, "ACL LOG").starts_with("*1\r\n"));
}

#[test]
fn users_of_the_start_are_lines_and_passwords_of_a_file() {
    let read = |lines: &[u8]| ruled_users(lines, "x", (None, &[]), false);
    let check = |lines: &[u8]| read(lines).map(|users| users.asks());
    let lines = b"user app ~app:* +get\n\n  user default on nopass ~* +@read \n";
    assert_eq!(check(lines), Ok(Some(false)));
    assert_eq!(check(b"user default on >pw ~* &* +@all"), Ok(Some(true)));
    assert_eq!(check(b"user default off"), Ok(Some(true)));
    assert_eq!(check(b"user app on +get\n"), Ok(None));
    assert_eq!(check(b"user default on nopass ~* &* +@all"), Ok(Some(false)));
    // A file may name commands of Redis that Larder does not have, as Redis's own files do.
    assert_eq!(check(b"user replica on >x -@all +PSYNC +replconf +ping -lolwut -client|capa"), Ok(None));
    for (bad, why) in [
        ("usr app\n", "x:1 should start with user keyword followed by the username."),
        (
            "\nuser app +nosuch",
            "x:2: Error in applying operation '+nosuch': Unknown command or category name in ACL.",
        ),
        (
            "user app >secret <other",
            "x:1: The password you are trying to remove from the user does not exist.",
        ),
        // A word that may be a password without its sign is not shown.
        ("user app on hunter2", "x:1: Syntax error."),
        ("user app (>hunter2 ~x)", "x:1: Syntax error."),
        ("user app (+get", "x:1: Unmatched parenthesis in selector definition."),
        ("user a\nuser a", "WARNING: Duplicate user 'a' found on line 2."),
        ("user a \"", "x:1: unbalanced quotes in acl line."),
    ] {
        assert_eq!(check(bad.as_bytes()), Err(why.into()), "{bad}");
    }
    let users = vec![("app".into(), Digest::from("pw"))];
    let ruled = ruled_users(lines, "x", (None, &users), false).expect("right");
    let settings = Settings { users, ruled, ..Settings::default() };
    let mut bench = Bench::new(settings);
    let mut user = Session::new();
    assert_eq!(say(&mut bench, &mut user, "*2\r\n$3\r\nGET\r\n$1\r\na"), "$-1");
    assert_eq!(say(&mut bench, &mut user, "AUTH app pw"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "GET a"), NO_KEY);
    assert_eq!(say(&mut bench, &mut user, "GET app:1"), "$-1");
    assert_eq!(say(&mut bench, &mut user, "SET app:1 v"), no_command("set"));
}

/// At start and when files are read again, a password in a file turns its user on, unless a rule turns the
/// user off.
#[test]
fn a_password_of_a_file_that_is_read_again_turns_on_whom_no_rule_has_turned_off() {
    let lines = b"user app ~app:* +get\nuser shut off ~* +get\nuser late ~* +get";
    let users: Vec<(String, Digest)> =
        ["app", "shut", "late"].map(|name| (name.to_owned(), Digest::from("pw"))).into();
    let none = FiledUsers::default();
    for again in [false, true] {
        let known = if again { &[][..] } else { &users[..] };
        let ruled = ruled_users(lines, "x", (None, known), false).expect("right");
        let mut bench = Bench::new(Settings { users: known.to_vec(), ruled, ..Settings::default() });
        if again {
            // What a client has set since is a rule.
            let mut admin = redis(&mut bench);
            assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER late off"), "+OK");
            let now = FiledUsers { password: None, users: users.clone() };
            assert_eq!(bench.shared.follow_files(&none, &now, &bench.host).changed, 3);
        }
        let access = bench.shared.access();
        let admits = ["app", "shut", "late"].map(|name| access.admits(name.as_bytes(), b"pw"));
        assert_eq!(admits, [true, false, !again], "{again}");
    }
}

/// A file may name as many users as there may be. With the default user they are one too many: then their
/// rights and passwords may only be taken away.
#[test]
fn of_users_that_are_too_many_rights_and_passwords_are_taken_away() {
    let users = (0..4_096).map(|n| (format!("u{n}"), Digest::from("p"))).collect();
    let mut bench = Bench::new(Settings { password: Some("boss".into()), users, ..Settings::default() });
    let mut admin = Session::new();
    assert_eq!(bench.run(&mut admin, &command(&["AUTH", "boss"]), usize::MAX).0, b"+OK\r\n");
    let too_many = say(&mut bench, &mut admin, "ACL SETUSER new on");
    assert!(too_many.starts_with("-ERR"), "{too_many}");
    for (rule, said) in [(">more", &too_many[..]), ("off", "+OK"), ("resetpass", "+OK")] {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER u7 {rule}")), said, "{rule}");
        assert_eq!(bench.shared.access().admits(b"u7", b"p"), said != "+OK", "{rule}");
    }
    assert!(bench.shared.access().admits(b"u8", b"p"));
}

#[test]
fn a_user_has_so_many_passwords_selectors_first_arguments_and_rules() {
    let word = |kind: &str, n: usize| match kind {
        "password" => format!(">p{n}"),
        "selector" => "(+get)".to_owned(),
        "first argument" => format!("+get|a{n}"),
        _ => "+get".to_owned(),
    };
    for (kind, most) in [("password", 64), ("selector", 64), ("first argument", 128), ("rule", 2048)] {
        for (count, is_right) in [(most - 1, true), (most, true), (most + 1, false)] {
            let (mut bench, mut session) = (bench(), Session::new());
            let rules: Vec<String> = (0..count).map(|n| word(kind, n)).collect();
            let words = ["ACL", "SETUSER", "app"].into_iter().chain(rules.iter().map(|rule| &**rule));
            let (replies, _) = bench.run(&mut session, &command(&words.collect::<Vec<_>>()), usize::MAX);
            assert_eq!(replies == b"+OK\r\n", is_right, "{count} of {kind}");
        }
    }
}

#[test]
fn what_could_not_be_read_again_is_no_rule() {
    let (mut bench, mut admin, _) = with_user("+@all");
    for (rule, told) in [
        ("(>hunter2 ~x)", "modifier '(redacted)': Syntax error"),
        ("(~x <hunter2)", "modifier '(redacted)': Syntax error"),
        ("(>hunter2", "starting at '(redacted)'."),
    ] {
        let (reply, _) = bench.run(&mut admin, &command(&["ACL", "SETUSER", "app", rule]), usize::MAX);
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with("-ERR ") && reply.ends_with(&format!("{told}\r\n")), "{reply}");
    }
    let mut refuses = |words: &[&str]| {
        let (replies, _) = bench.run(&mut admin, &command(words), usize::MAX);
        assert!(replies.starts_with(b"-ERR "), "{words:?} {}", String::from_utf8_lossy(&replies));
    };
    for name in ["", "a\"", "'a", "a b"] {
        refuses(&["ACL", "SETUSER", name, "on"]);
    }
    for rule in ["~a\"b", "&a'", "+get|\"x", "(~a) ~s* +get|x)", "(+get ~a))"] {
        refuses(&["ACL", "SETUSER", "app", rule]);
    }
}

/// The rules for a monitor in security.md allow no command that reads a value.
#[test]
fn the_ready_made_monitor_is_shown_figures_and_no_values() {
    let text = include_str!("../../../../docs/security.md");
    let line = text.split('`').find(|code| code.starts_with("ACL SETUSER monitor")).expect("a line");
    let line = line.replace('\n', " ").replace("PASSWORD", "pw");
    let (mut bench, mut admin, mut user) = (bench(), Session::new(), Session::new());
    for said in
        [&*line, "CONFIG SET slowlog-log-slower-than 0", "SET session:1 canary", "LPUSH canaries canary"]
    {
        let words: Vec<&str> = said.split(' ').collect();
        let (reply, _) = bench.run(&mut admin, &command(&words), usize::MAX);
        assert!(!reply.starts_with(b"-"), "{said}: {}", String::from_utf8_lossy(&reply));
    }
    assert_eq!(bench.run(&mut user, &command(&["AUTH", "monitor", "pw"]), usize::MAX).0, b"+OK\r\n");
    assert!(say(&mut bench, &mut admin, "SLOWLOG GET").contains("canary"));
    let mut may = 0;
    for allowed in line.split(' ').filter_map(|word| word.strip_prefix('+')) {
        let arguments: &[&str] = match allowed {
            "config|get" => &["*"],
            "latency|history" => &["command"],
            "memory|usage" | "type" => &["session:1"],
            "scan" => &["0"],
            _ => &[],
        };
        let words: Vec<&str> = allowed.split('|').chain(arguments.iter().copied()).collect();
        let (reply, _) = bench.run(&mut user, &command(&words), usize::MAX);
        let reply = String::from_utf8(reply).unwrap();
        assert!(!reply.starts_with('-'), "{allowed}: {reply}");
        // SCAN shows the key `canaries`: a name is no value.
        assert!(!reply.replace("canaries", "").contains("canary"), "{allowed}: {reply}");
        may += 1;
    }
    assert_eq!(may, 10);
    for refused in [
        "SLOWLOG GET",
        "SLOWLOG RESET",
        "LATENCY RESET",
        "GET session:1",
        "CONFIG SET maxmemory 1",
        "MONITOR",
    ] {
        assert!(say(&mut bench, &mut user, refused).starts_with("-NOPERM "), "{refused}");
    }
}

#[test]
fn what_a_client_calls_itself_is_in_the_log_of_refusals_up_to_its_bound() {
    let (mut bench, mut admin, mut user) = with_user("+@connection");
    let name = "n".repeat(1024);
    for words in [["CLIENT", "SETNAME"], ["CLIENT", "SETINFO"]] {
        let words = match words[1] {
            "SETNAME" => vec![words[0], words[1], &name],
            _ => vec![words[0], words[1], "LIB-NAME", &name],
        };
        assert_eq!(bench.run(&mut user, &command(&words), usize::MAX).0, b"+OK\r\n");
    }
    assert_eq!(say(&mut bench, &mut user, "GET x"), no_command("get"));
    let log = say(&mut bench, &mut admin, "ACL LOG");
    let client = log.split("$11\r\nclient-info\r\n").nth(1).expect("an entry");
    assert!(client.starts_with("$1024\r\nid="), "{client}");
    assert_eq!(say(&mut bench, &mut user, "CLIENT SETNAME n"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "CLIENT SETINFO LIB-NAME n"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "SET x y"), no_command("set"));
    assert!(say(&mut bench, &mut admin, "ACL LOG 1").contains(" lib-name=n "));
}

#[test]
fn a_name_is_as_long_as_one_by_which_somebody_can_log_in() {
    for (bytes, is_right) in
        [(SECRET_BYTES_MAX - 1, true), (SECRET_BYTES_MAX, true), (SECRET_BYTES_MAX + 1, false)]
    {
        let (mut bench, mut admin, name) = (bench(), Session::new(), "n".repeat(bytes));
        let (reply, _) = bench.run(&mut admin, &command(&["ACL", "SETUSER", &name, "on", ">p"]), usize::MAX);
        assert_eq!(reply == b"+OK\r\n", is_right, "{bytes}");
        assert!(is_right || reply.starts_with(b"-ERR "), "{bytes}");
        let (reply, _) = bench.run(&mut admin, &command(&["AUTH", &name, "p"]), usize::MAX);
        assert_eq!(reply == b"+OK\r\n", is_right, "{bytes}");
        assert_eq!(
            ruled_users(format!("user {name} on").as_bytes(), "x", (None, &[]), false).is_ok(),
            is_right
        );
    }
}

/// In a file of users, a line for the default user has all of its passwords: the option's password no longer
/// counts. ACL LOAD does the same.
#[test]
fn a_line_of_a_file_has_the_default_users_passwords_and_the_options_password_is_none() {
    for (line, right) in [
        ("user default on >new ~* &* +@all", &["new"][..]),
        ("user default on ~* &* +@all", &[]),
        ("user app on >app", &["old"]),
    ] {
        let ruled = ruled_users(line.as_bytes(), "x", (None, &[]), false).expect("right");
        let settings = Settings { password: Some("old".into()), ruled, ..Settings::default() };
        let mut bench = Bench::new(settings);
        for password in ["old", "new"] {
            let mut user = Session::new();
            let (reply, _) = bench.run(&mut user, &command(&["AUTH", password]), usize::MAX);
            assert_eq!(reply == b"+OK\r\n", right.contains(&password), "{line}: {password}");
        }
    }
}

/// An EXEC that has looked through much is refused further looks. A change that closes connections is not
/// refused, and closes them.
#[test]
fn exec_changes_users_however_much_it_has_looked_through() {
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    let queued = "COMMAND DOCS\r\n".repeat(300);
    let settings = "CONFIG SET requirepass new\r\nCLIENT PAUSE 0\r\nCLIENT UNPAUSE";
    let users = "ACL SETUSER other on\r\nACL DELUSER app";
    let said = format!("MULTI\r\n{queued}{settings}\r\n{users}\r\nPING\r\nEXEC");
    let said = say(&mut bench, &mut admin, &said);
    assert!(said.contains("-ERR this EXEC has looked through"), "it has looked enough");
    assert!(said.ends_with("\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n:1\r\n+PONG"), "{}", &said[said.len() - 200..]);
    assert!(say(&mut bench, &mut user, "PING").ends_with("closed"));
    // Changes that take long to apply are refused together, before any is made.
    let rules = format!("ACL SETUSER app on{}\r\n", " +get".repeat(2_000));
    let said = say(&mut bench, &mut admin, &format!("MULTI\r\n{}EXEC", rules.repeat(30)));
    assert!(said.rsplit("\r\n").next().is_some_and(|last| last.starts_with("-EXECABORT ")), "{said}");
}

/// What EXEC publishes behind a change reaches no client that may no longer listen to it.
#[test]
fn exec_closes_at_once_whom_a_change_turns_out() {
    for (begins, change) in [
        ("SUBSCRIBE secret", "ACL SETUSER app resetchannels"),
        ("SUBSCRIBE secret", "ACL SETUSER app allchannels\r\nACL SETUSER app resetchannels"),
        ("SUBSCRIBE secret", "ACL DELUSER nobody app"),
        ("MONITOR", "ACL SETUSER app -monitor"),
    ] {
        let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
        say(&mut bench, &mut user, begins);
        assert!(say(&mut bench, &mut admin, "CLIENT LIST").contains(" user=app "));
        // CLIENT LIST omits clients that are to be closed.
        let said = say(&mut bench, &mut admin, &format!("MULTI\r\n{change}\r\nCLIENT LIST\r\nEXEC"));
        assert!(said.contains(" user=default ") && !said.contains(" user=app "), "{change}: {said}");
        assert!(say(&mut bench, &mut user, "PING").ends_with("closed"), "{change}");
    }
}

#[test]
fn exec_closes_nobody_for_what_is_listened_to_behind_the_change() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    let said =
        say(&mut bench, &mut user, "MULTI\r\nACL SETUSER app resetchannels &ok\r\nSUBSCRIBE ok\r\nEXEC");
    assert!(said.contains("subscribe") && !said.ends_with("closed"), "{said}");
    assert_eq!(say(&mut bench, &mut admin, "PUBLISH ok x"), ":1");
}

/// However many commands change a user, EXEC goes through the clients at the user's first change, and once at
/// its end.
#[test]
fn exec_weighs_what_users_hold_and_goes_through_clients_once() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all");
    let _clients: Vec<Session> = (0..1_000).map(|_| redis(&mut bench)).collect();
    assert!(say(&mut bench, &mut user, "SUBSCRIBE a").contains("subscribe"));
    let mut exec = |lines: &str| {
        bench.room.work().begin_slice();
        let said = say(&mut bench, &mut admin, &format!("MULTI\r\n{lines}EXEC"));
        (said, bench.room.work().done_ns())
    };
    let pair = "ACL SETUSER app allchannels\r\nACL SETUSER app resetchannels\r\n";
    let (said, done_ns) = exec(&pair.repeat(250));
    assert!(said.contains("*500\r\n+OK\r\n"), "{said}");
    assert!(done_ns < 10_000_000, "{done_ns}");
    // A user with many rules is copied at each change.
    let rules: String = (0..900).map(|n| format!(" ~k{n}")).collect();
    let (said, _) = exec(&format!("ACL SETUSER big on{rules}\r\n"));
    assert!(said.ends_with("*1\r\n+OK"), "{said}");
    let (said, _) = exec(&"ACL SETUSER big on\r\n".repeat(20));
    assert!(said.contains("*20\r\n+OK\r\n"), "{said}");
    let (said, _) = exec(&"ACL SETUSER big on\r\n".repeat(500));
    assert!(said.rsplit("\r\n").next().is_some_and(|last| last.starts_with("-EXECABORT ")), "{said}");
    // A new user has no connections. For the first change of any other user, EXEC goes through all clients.
    let many: String = (0..120).map(|n| format!("ACL SETUSER u{n} on\r\n")).collect();
    let (said, _) = exec(&many);
    assert!(said.contains("*120\r\n+OK\r\n"), "{said}");
    for lines in [&many, &"ACL DELUSER u1\r\n".repeat(110)] {
        let (said, _) = exec(lines);
        assert!(said.rsplit("\r\n").next().is_some_and(|last| last.starts_with("-EXECABORT ")), "{said}");
    }
    assert!(say(&mut bench, &mut user, "PING").ends_with("closed"));
}

/// If a command names more users than one may remove, EXEC looks none of them up.
#[test]
fn exec_looks_for_no_more_users_than_may_be_removed() {
    let (mut bench, mut admin, _) = with_user("~* &* +@all");
    let mut exec = |names: usize| {
        let words: Vec<&str> =
            ["ACL", "DELUSER"].into_iter().chain(std::iter::repeat_n("u", names)).collect();
        let before = words_read();
        let sent = [command(&["MULTI"]), command(&words), command(&["EXEC"])].concat();
        let said = String::from_utf8(bench.turns(&mut admin, &sent).0).unwrap();
        (said, words_read() - before)
    };
    let (said, few) = exec(70_000);
    assert_eq!(said, "+OK\r\n+QUEUED\r\n*1\r\n-ERR too many arguments\r\n");
    let (_, many) = exec(280_000);
    // The words are read when they are received, queued and refused.
    assert!(many - few <= 9 * 210_000 + 100, "{few} words are read of 70,000, {many} of 280,000");
}

/// Setting a password copies the default user with its rules. Setting the limit of connections asks the
/// system.
#[test]
fn exec_weighs_what_parameters_take_beside_being_set() {
    let (mut bench, mut admin, _) = with_user("");
    let rules: String = (0..900).map(|n| format!(" ~k{n}")).collect();
    assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER default resetkeys{rules}")), "+OK");
    let mut exec = |first: &str, line: &str, count: usize| {
        bench.room.work().begin_slice();
        let said = say(
            &mut bench,
            &mut admin,
            &format!("MULTI\r\n{first}{}EXEC", format!("{line}\r\n").repeat(count)),
        );
        let runs = said.ends_with("+OK");
        let last = said.rsplit("\r\n").next().expect("a line");
        assert!(runs || last.starts_with("-EXECABORT "), "{line}: {last}");
        (runs, bench.room.work().done_ns())
    };
    let (password, connections) = ("CONFIG SET requirepass x", "CONFIG SET maxclients 100");
    let (runs, done_ns) = exec("", password, 20);
    assert!(runs && done_ns > 20 * 60_000, "{done_ns}");
    assert!(!exec("", password, 200).0);
    assert!(exec("", connections, 500).0);
    assert!(!exec("", connections, 800).0);
    // For a user with few rules a password takes little time. If the EXEC gives it many rules first, these
    // count.
    assert!(exec("ACL SETUSER default reset on nopass ~* +@all\r\n", password, 1).0);
    assert!(exec("", password, 200).0);
    let first = format!("ACL SETUSER default resetkeys{rules}\r\n");
    assert!(!exec(&first, password, 200).0);
}

/// Removing a user frees the rules that it holds, which takes time.
#[test]
fn removing_users_is_spent_and_weighed_as_they_hold() {
    let (mut bench, mut admin, _) = with_user("");
    let rules: String = (0..900).map(|n| format!(" ~k{n}")).collect();
    let mut names = String::new();
    for n in 0..100 {
        assert_eq!(say(&mut bench, &mut admin, &format!("ACL SETUSER u{n}{rules}")), "+OK");
        names += &format!(" u{n}");
    }
    let said = say(&mut bench, &mut admin, &format!("MULTI\r\nACL DELUSER{names}\r\nEXEC"));
    assert!(said.contains("-EXECABORT "), "{said}");
    let said = say(&mut bench, &mut admin, "MULTI\r\nACL DELUSER u0 u1 nobody\r\nEXEC");
    assert!(said.ends_with("*1\r\n:2"), "{said}");
    bench.room.work().begin_slice();
    assert_eq!(say(&mut bench, &mut admin, &format!("ACL DELUSER{names}")), ":98");
    let done_ns = bench.room.work().done_ns();
    assert!(done_ns > 98 * 60_000, "{done_ns}");
}

#[test]
fn who_may_not_list_keys_is_told_no_hot_ones() {
    let (mut bench, mut admin, mut user) = with_user("-@all +info");
    bench.shared.show_traffic(bench.worker.store(), 1, 0);
    for (section, line) in [("hotkeys", "hotkeys_sampled:1"), ("prefixes", "prefixes_sampled:1")] {
        let ask = format!("INFO {section}");
        assert!(say(&mut bench, &mut admin, &ask).contains(line), "{section}");
        assert!(!say(&mut bench, &mut user, &ask).contains(line), "{section}");
    }
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app +keys"), "+OK");
    assert!(say(&mut bench, &mut user, "INFO hotkeys").contains("hotkeys_sampled:1"));
}
