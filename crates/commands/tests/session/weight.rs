//! What EXEC does before it runs its commands: it weighs them, in work that grows with their words.

use crate::bench;
use crate::survey::command;
use larder_commands::Session;
use larder_protocol::resp::words_read;

/// Words of the shorter request; the longer one has twice as many.
const WORDS: usize = 500;
/// Words that are read beside those of the commands: of MULTI, of EXEC, of a reply's parts.
const WORDS_BESIDE: u64 = 100;

/// Words behind the name of a command: `n` of them, in one of the forms that commands of many words have.
fn forms(n: usize) -> [Vec<String>; 4] {
    let names = || (0..n).map(|n| format!("k{n}"));
    let key = || std::iter::once("key".to_owned());
    [
        names().collect(),
        std::iter::once(n.to_string()).chain(names()).collect(),
        key().chain([n.to_string()]).chain(names()).collect(),
        key().chain(key()).chain(["DB", "1"].map(str::to_owned).into_iter().cycle().take(n)).collect(),
    ]
}

#[test]
fn exec_reads_words_in_proportion_to_their_number() {
    let mut bench = bench();
    let list = bench.run(&mut Session::new(), &command(&["COMMAND", "LIST"]), usize::MAX).0;
    let list = String::from_utf8(list).unwrap();
    let names: Vec<&str> = list.lines().skip(2).step_by(2).collect();
    assert!(
        names.contains(&"mset") && names.contains(&"copy") && names.contains(&"sunionstore"),
        "{names:?}"
    );
    let mut read = |words: &[&str]| {
        bench.run(&mut Session::new(), &command(&["FLUSHALL"]), usize::MAX);
        let input = [&command(&["MULTI"])[..], &command(words), &command(&["EXEC"])].concat();
        let before = words_read();
        bench.run(&mut Session::new(), &input, usize::MAX);
        words_read() - before
    };
    for name in names {
        for (few, many) in forms(WORDS).iter().zip(&forms(2 * WORDS)) {
            let mut cost = |words: &[String]| {
                let words = words.iter().map(String::as_str);
                read(&std::iter::once(name).chain(words).collect::<Vec<_>>())
            };
            let (of_few, of_many) = (cost(few), cost(many));
            assert!(
                of_many <= 2 * of_few + WORDS_BESIDE,
                "{name} {} …: {of_few} words are read of {}, {of_many} of {}",
                few[..3].join(" "),
                few.len(),
                many.len(),
            );
        }
    }
}

/// The words of a range are bounds and options: none is looked for among the members.
#[test]
fn exec_of_a_range_with_many_limits_is_run() {
    let mut bench = bench();
    let words = [&["ZRANGEBYSCORE", "z", "0", "1"][..], &["LIMIT", "0", "1"].repeat(20_000)].concat();
    let input = [&command(&["MULTI"])[..], &command(&words), &command(&["EXEC"])].concat();
    let reply = bench.turns(&mut Session::new(), &input).0;
    assert_eq!(reply, b"+OK\r\n+QUEUED\r\n*1\r\n*0\r\n");
}

#[test]
fn what_is_listened_to_and_who_is_told_weighs_in_exec() {
    let mut bench = bench();
    let names = |n: usize| (0..n).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let of = |name: &str, words: &[String]| {
        let words = words.iter().map(String::as_str);
        command(&name.split(' ').chain(words).collect::<Vec<_>>())
    };
    // Whether they run in a transaction.
    let mut runs = |session: &mut Session, commands: &[Vec<u8>]| {
        let input = [command(&["MULTI"]), commands.concat(), command(&["EXEC"])].concat();
        // A subscriber may send all commands in RESP3 alone.
        bench.turns(session, &command(&["HELLO", "3"]));
        let reply = bench.run(session, &input, usize::MAX).0;
        let queued = b"+OK\r\n".len() + commands.len() * b"+QUEUED\r\n".len();
        let refused =
            reply[queued..].starts_with(b"-EXECABORT Transaction discarded: its commands would look");
        assert!(refused || reply[queued] == b'*', "{}", String::from_utf8_lossy(&reply[queued..][..60]));
        !refused
    };
    for kind in ["", "P", "S"] {
        let (subscribe, unsubscribe) = (format!("{kind}SUBSCRIBE"), format!("{kind}UNSUBSCRIBE"));
        let mut listener = Session::new();
        assert!(runs(&mut listener, &[of(&subscribe, &names(4_500))]), "{kind}");
        assert!(!runs(&mut listener, &[of(&subscribe, &names(5_500))]), "{kind}");
        // By one or by many of which each names one.
        assert!(!runs(&mut listener, &vec![of(&subscribe, &names(1)); 5_500]), "{kind}");
        assert!(runs(&mut listener, &vec![of(&unsubscribe, &names(1)); 8_500]), "{kind}");
        assert!(!runs(&mut listener, &vec![of(&unsubscribe, &names(1)); 10_500]), "{kind}");
        assert!(!runs(&mut listener, &[of(&unsubscribe, &names(10_500))]), "{kind}");
        // All that there are, once.
        assert!(runs(&mut listener, &[of(&subscribe, &names(9_000)[4_500..])]), "{kind}");
        assert!(runs(&mut listener, &[of(&subscribe, &names(12_000)[9_000..])]), "{kind}");
        assert!(!runs(&mut listener, &[of(&unsubscribe, &[])]), "{kind}");
        assert!(runs(&mut listener, &[of(&unsubscribe, &names(5_000))]), "{kind}");
        assert!(runs(&mut listener, &vec![of(&unsubscribe, &[]); 100]), "{kind}");
    }
    // To 500 subscribers.
    for kind in ["", "P", "S"] {
        let mut listeners: Vec<Session> = (0..500).map(|_| Session::new()).collect();
        for listener in &mut listeners {
            assert!(runs(listener, &[command(&[&format!("{kind}SUBSCRIBE"), "c"])]));
        }
        let publish = if kind == "S" { "SPUBLISH" } else { "PUBLISH" };
        let sent = of(publish, &["c".to_owned(), "text".to_owned()]);
        assert!(runs(&mut Session::new(), &vec![sent.clone(); 300]), "{kind}");
        assert!(!runs(&mut Session::new(), &vec![sent.clone(); 500]), "{kind}");
        drop(listeners);
    }
    // Beside a thousand that listen to something else by a pattern.
    let mut listeners: Vec<Session> = (0..1_000).map(|_| Session::new()).collect();
    for listener in &mut listeners {
        assert!(runs(listener, &[command(&["PSUBSCRIBE", "other*"])]));
    }
    let sent = |channel: &str| vec![of("PUBLISH", &[channel.to_owned(), "text".to_owned()]); 500];
    assert!(runs(&mut Session::new(), &sent("c")));
    assert!(!runs(&mut Session::new(), &sent("other")));
    drop(listeners);
    // Beside a thousand whose pattern is looked for in all of a long channel, to weigh and to send.
    let mut listeners: Vec<Session> = (0..1_000).map(|_| Session::new()).collect();
    for listener in &mut listeners {
        assert!(runs(listener, &[command(&["PSUBSCRIBE", "*o?h*"])]));
    }
    let sent = |count| vec![of("PUBLISH", &["c".repeat(2_000), "text".to_owned()]); count];
    assert!(runs(&mut Session::new(), &sent(400)));
    assert!(!runs(&mut Session::new(), &sent(650)));
    drop(listeners);
    for name in ["PUBSUB NUMSUB", "PUBSUB SHARDNUMSUB"] {
        assert!(runs(&mut Session::new(), &vec![of(name, &names(1_000)); 150]), "{name}");
        assert!(!runs(&mut Session::new(), &vec![of(name, &names(1_000)); 210]), "{name}");
    }
}

/// Subscribers that get a message are looked for when it is weighed, and not to make room for replies of what has elements, too.
#[test]
fn exec_looks_once_for_who_is_told_before_it_runs() {
    let mut bench = bench();
    let mut listeners: Vec<Session> = (0..1_000).map(|_| Session::new()).collect();
    for listener in &mut listeners {
        bench.turns(listener, &command(&["PSUBSCRIBE", "*o?h*"]));
    }
    // A look for the pattern in the channel is 8 µs, and a message weighs 18 with it.
    let message = command(&["PUBLISH", &"c".repeat(2_000), "text"]);
    let write = command(&["HSET", "hash", "field", "value"]);
    let queued = [command(&["MULTI"]), write, message.repeat(650)].concat();
    let mut session = Session::new();
    bench.run(&mut session, &queued, usize::MAX);
    let (_, reply) = bench.turn(&mut session, &command(&["EXEC"]));
    let done_ns = bench.room.work().done_ns();
    assert!(reply.starts_with(b"-EXECABORT Transaction discarded: its commands would look"), "{reply:?}");
    // Behind 4 ms of looks it is too long.
    assert!((3_000_000..6_000_000).contains(&done_ns), "{done_ns} ns");
}
