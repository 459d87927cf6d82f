//! Commands that wait: which client is woken, what is put back, what it takes.

use super::survey::command;
use super::{Bench, START, bench};
use larder_commands::{Next, Session, Settings};
use larder_store::{Config, Store};
use std::sync::atomic::Ordering::Relaxed;

/// Clients that are served at a time.
const SERVED_AT_ONCE: usize = 64;

impl Bench {
    fn told(&mut self, session: &mut Session, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let (next, reply) = self.turn(session, &command(&words));
        assert_eq!(next, Next::Receive, "{words:?}");
        String::from_utf8(reply).expect("text")
    }

    /// A session whose command waits for ever.
    fn blocked(&mut self, words: &str) -> Session {
        let mut session = Session::new();
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(self.turn(&mut session, &command(&words)), (Next::Await(None), Vec::new()));
        session
    }

    /// What a session says that looks again.
    fn looks(&mut self, session: &mut Session) -> String {
        let (next, reply) = self.turn(session, b"");
        assert_eq!(next, Next::Receive);
        String::from_utf8(reply).expect("text")
    }

    /// A connection has ended.
    pub fn ended(&mut self, session: Session) {
        drop(session);
        self.serve_left();
    }

    /// What upkeep does for waiters.
    pub fn serve_left(&mut self) {
        let mut guard = self.worker.enter(START);
        self.shared.serve_left(&mut guard, &self.host);
    }

    fn awake(&self) -> Vec<u64> {
        std::mem::take(&mut *self.host.awake.lock().expect("no holder panics"))
    }
}

fn list(elements: &[&str]) -> String {
    let bulks = elements.iter().map(|element| format!("${}\r\n{element}\r\n", element.len()));
    format!("*{}\r\n{}", elements.len(), bulks.collect::<String>())
}

#[test]
fn what_was_popped_for_one_that_has_gone_is_put_back_where_it_was() {
    let mut bench = bench();
    let mut me = Session::new();
    for (waits, pushes, shows, there) in [
        ("BLMPOP 0 1 k RIGHT COUNT 2", "RPUSH k 1 2 3", "LRANGE k 0 -1", &["1", "2", "3"][..]),
        ("BLMPOP 0 1 k LEFT COUNT 2", "RPUSH k 1 2 3", "LRANGE k 0 -1", &["1", "2", "3"]),
        ("BRPOP k 0", "RPUSH k 1 2 3", "LRANGE k 0 -1", &["1", "2", "3"]),
        ("BLPOP k 0", "RPUSH k 1", "LRANGE k 0 -1", &["1"]),
        (
            "BZMPOP 0 1 k MAX COUNT 2",
            "ZADD k 1 a 2.5 b 3 c",
            "ZRANGE k 0 -1 WITHSCORES",
            &["a", "1", "b", "2.5", "c", "3"],
        ),
        ("BZPOPMIN k 0", "ZADD k 1 a 2 b", "ZRANGE k 0 -1 WITHSCORES", &["a", "1", "b", "2"]),
    ] {
        let waiter = bench.blocked(waits);
        bench.told(&mut me, pushes);
        assert_ne!(bench.told(&mut me, shows), list(there), "{waits}: it was popped");
        assert_eq!(bench.awake(), [waiter.redis_client().expect("a client")]);
        bench.ended(waiter);
        assert_eq!(bench.told(&mut me, shows), list(there), "{waits}");
        assert_eq!(bench.told(&mut me, "DEL k"), ":1\r\n");
    }
    bench.worker.enter(START).end_watches();
    assert_eq!(bench.worker.store().watch_bytes(), 0);
}

#[test]
fn what_is_put_back_serves_the_next_in_line_unless_something_else_is_there() {
    let mut bench = bench();
    let mut me = Session::new();
    let (first, mut second) = (bench.blocked("BLPOP k 0"), bench.blocked("BLPOP k 0"));
    bench.told(&mut me, "RPUSH k 1");
    bench.awake();
    bench.ended(first);
    assert_eq!(bench.awake(), [second.redis_client().expect("a client")]);
    assert_eq!(bench.looks(&mut second), list(&["k", "1"]));

    let waiter = bench.blocked("BLPOP k 0");
    bench.told(&mut me, "RPUSH k 1");
    assert_eq!(bench.told(&mut me, "SET k x"), "+OK\r\n");
    bench.ended(waiter);
    assert_eq!(bench.told(&mut me, "GET k"), "$1\r\nx\r\n");
    assert!(!bench.shared.has_left());
}

#[test]
fn who_is_to_be_closed_is_passed_over_and_who_has_its_reply_keeps_it() {
    let mut bench = bench();
    let mut me = Session::new();
    let first = bench.blocked("BLPOP k 0");
    let mut second = bench.blocked("BLPOP k 0");
    let kill = format!("CLIENT KILL ID {}", first.redis_client().expect("a client"));
    assert_eq!(bench.told(&mut me, &kill), ":1\r\n");
    assert_eq!(bench.told(&mut me, "RPUSH k 1"), ":1\r\n");
    assert_eq!(bench.looks(&mut second), list(&["k", "1"]));
    bench.ended(second);
    bench.ended(first);
    assert_eq!(bench.told(&mut me, "EXISTS k"), ":0\r\n");
}

#[test]
fn many_are_served_some_at_a_time_in_their_order_also_if_the_next_one_goes() {
    let mut bench = bench();
    let mut me = Session::new();
    let count = 2 * SERVED_AT_ONCE + 10;
    let mut waiting: Vec<Option<Session>> = (0..count).map(|_| Some(bench.blocked("BLPOP k 0"))).collect();
    let elements: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    bench.told(&mut me, &format!("RPUSH k {}", elements.join(" ")));
    assert_eq!(bench.told(&mut me, "LLEN k"), format!(":{}\r\n", count - SERVED_AT_ONCE));
    // The one that was to go on with it goes.
    let next = waiting[SERVED_AT_ONCE].take().expect("it waits");
    assert!(bench.awake().contains(&next.redis_client().expect("a client")));
    bench.ended(next);
    assert_eq!(bench.told(&mut me, "LLEN k"), format!(":{}\r\n", count - 2 * SERVED_AT_ONCE));
    // And the one after that does it.
    for id in bench.awake() {
        let of = |session: &&mut Option<Session>| {
            session.as_ref().is_some_and(|session| session.redis_client() == Some(id))
        };
        if let Some(Some(session)) = waiting.iter_mut().find(of) {
            bench.looks(session);
        }
    }
    assert_eq!(bench.told(&mut me, "LRANGE k 0 -1"), list(&[&elements[count - 1]]));
    for (n, session) in waiting.into_iter().enumerate() {
        if let Some(mut session) = session
            && n > SERVED_AT_ONCE
        {
            // All but those that have looked already still have it to say.
            let (_, reply) = bench.turn(&mut session, b"");
            let mine = list(&["k", &elements[n - 1]]);
            assert!(reply.is_empty() || reply == mine.as_bytes(), "{n}");
        }
    }
}

#[test]
fn a_time_comes_by_the_clock_that_only_goes_on() {
    let mut bench = bench();
    let mut session = Session::new();
    let waits = command(&["BLPOP", "k", "0.05"]);
    assert_eq!(bench.turn(&mut session, &waits), (Next::Await(Some(50)), Vec::new()));
    bench.system += 3_600_000;
    assert_eq!(bench.turn(&mut session, b""), (Next::Await(Some(50)), Vec::new()));
    bench.host.clock_us.fetch_add(20_001, Relaxed);
    assert_eq!(bench.turn(&mut session, b""), (Next::Await(Some(30)), Vec::new()));
    bench.host.clock_us.fetch_add(30_000, Relaxed);
    assert_eq!(bench.looks(&mut session), "*-1\r\n");
}

#[test]
fn those_who_wait_are_shown_and_hold_nothing_when_they_have_gone() {
    let mut bench = bench();
    let mut me = Session::new();
    let mut first = bench.blocked("BLPOP a 0");
    bench.told(&mut me, "RPUSH a 1");
    assert_eq!(bench.looks(&mut first), list(&["a", "1"]));
    let before = bench.worker.store().heap_bytes();
    let mut waiter = bench.blocked("BLPOP a b a 0");
    let other = bench.blocked("BZPOPMIN a c 0");
    assert!(bench.worker.store().heap_bytes() > before);
    let info = bench.told(&mut me, "INFO clients");
    assert!(info.contains("blocked_clients:2\r\n") && info.contains("total_blocking_keys:4\r\n"), "{info}");
    let id = waiter.redis_client().expect("a client");
    let line = bench.told(&mut me, &format!("CLIENT LIST ID {id}"));
    assert!(line.contains(" flags=b ") && line.contains(" cmd=blpop "), "{line}");
    bench.told(&mut me, "RPUSH b 1");
    assert_eq!(bench.looks(&mut waiter), list(&["b", "1"]));
    let line = bench.told(&mut me, &format!("CLIENT LIST ID {id}"));
    assert!(line.contains(" flags=N "), "{line}");
    bench.ended(waiter);
    bench.ended(other);
    let info = bench.told(&mut me, "INFO clients");
    assert!(info.contains("blocked_clients:0\r\n") && info.contains("total_blocking_keys:0\r\n"), "{info}");
    bench.worker.enter(START).end_watches();
    assert_eq!((bench.worker.store().watch_bytes(), bench.worker.store().heap_bytes()), (0, before));
}

#[test]
fn keys_that_are_waited_for_take_their_share_of_the_memory_and_no_more() {
    let mut bench = Bench::of(Settings::default(), 4 << 20);
    let store = std::sync::Arc::clone(bench.worker.store());
    let mut sessions = Vec::new();
    loop {
        let name = |n: usize| format!("{:01000}", sessions.len() * 16 + n);
        let names: Vec<String> = (0..16).map(name).collect();
        let mut words = vec!["BLPOP"];
        words.extend(names.iter().map(String::as_str));
        words.push("0");
        let mut session = Session::new();
        let (next, reply) = bench.turn(&mut session, &command(&words));
        if next == Next::Receive {
            assert_eq!(reply, b"-ERR too many keys are waited for\r\n");
            break;
        }
        assert_eq!(next, Next::Await(None));
        sessions.push(session);
        assert!(sessions.len() < 1_000);
    }
    assert!(sessions.len() > 2 && store.watch_bytes() <= (4 << 20) / 16);
    sessions.clear();
    bench.worker.enter(START).end_watches();
    assert_eq!(store.watch_bytes(), 0);
    bench.blocked("BLPOP k 0");
}

/// What was popped for one that has gone belongs where it was popped: a flush that came since has taken it, and a name
/// that was swapped since is another database's.
#[test]
fn what_is_put_back_goes_to_the_database_it_came_from_and_behind_no_flush() {
    let mut bench = bench();
    let mut me = Session::new();
    let popped = |bench: &mut Bench, me: &mut Session| {
        let waiter = bench.blocked("BLPOP k 0");
        bench.told(me, "RPUSH k 1");
        waiter
    };
    for (flush, is_back) in [("FLUSHALL", false), ("FLUSHDB", false), ("PING", true)] {
        let waiter = popped(&mut bench, &mut me);
        bench.told(&mut me, flush);
        bench.ended(waiter);
        assert_eq!(bench.told(&mut me, "DEL k"), format!(":{}\r\n", u8::from(is_back)), "{flush}");
    }
    // The flush of another.
    let waiter = popped(&mut bench, &mut me);
    bench.told(&mut me, "SELECT 3");
    bench.told(&mut me, "FLUSHDB");
    bench.told(&mut me, "SELECT 0");
    bench.told(&mut me, "SWAPDB 0 1");
    bench.ended(waiter);
    assert_eq!(bench.told(&mut me, "EXISTS k"), ":0\r\n");
    bench.told(&mut me, "SELECT 1");
    assert_eq!(bench.told(&mut me, "LRANGE k 0 -1"), list(&["1"]));
    // More flushes than are known one by one.
    bench.told(&mut me, "SELECT 0");
    let waiter = popped(&mut bench, &mut me);
    for _ in 0..300 {
        bench.told(&mut me, "FLUSHALL");
        bench.worker.enter(START).maintain();
    }
    bench.ended(waiter);
    assert_eq!(bench.told(&mut me, "EXISTS k"), ":0\r\n");
}

/// What waits to be put back is held as what connections hold is, and given up where there is no room for long.
#[test]
fn what_a_full_store_has_no_room_to_take_back_is_held_and_ends() {
    let config = Config { memory_bytes: 16 << 20, workers_max: 1, evict: false, ..Config::default() };
    let store = Store::new(config).expect("a store");
    let mut bench = Bench { worker: store.worker().expect("a worker"), ..Bench::new(Settings::default()) };
    let mut me = Session::new();
    let element = "e".repeat(4_000);
    let waiter = bench.blocked("BLMPOP 0 1 k LEFT COUNT 1000");
    let words: Vec<&str> = ["RPUSH", "k"].into_iter().chain([&*element; 60]).collect();
    assert_eq!(bench.turns(&mut me, &command(&words)).0, b":60\r\n");
    let before = bench.worker.store().held_bytes();
    assert!(before >= 60 * 4_000, "{before}");
    let mut n = 0;
    while bench.told(&mut me, &format!("SET {n} {element}")) == "+OK\r\n" {
        n += 1;
    }
    bench.ended(waiter);
    assert!(bench.shared.has_left() && bench.worker.store().held_bytes() >= 60 * 4_000);
    // Tries have time between them, in which others may make room.
    for _ in 0..30 {
        bench.ended(Session::new());
    }
    assert!(bench.shared.has_left() && bench.worker.store().held_bytes() >= 60 * 4_000);
    for _ in 0..30 {
        bench.host.clock_us.fetch_add(100_000, Relaxed);
        bench.ended(Session::new());
    }
    assert!(!bench.shared.has_left());
    assert_eq!(bench.worker.store().held_bytes(), 0);
}

/// A client is given something of the first of its keys that has it, in whatever order they were written in one moment,
/// and nothing that others before it wait for.
#[test]
fn of_keys_that_are_filled_at_once_the_first_that_a_client_named_serves() {
    let mut bench = bench();
    let mut me = Session::new();
    let mut exec = |bench: &mut Bench, commands: &[&str]| {
        let sent = [&["MULTI"][..], commands, &["EXEC", "FLUSHALL"]].concat();
        sent.iter().for_each(|words| drop(bench.told(&mut me, words)));
    };
    let lists = ["RPUSH low a", "RPUSH high b"];
    let sets = ["ZADD low 1 a", "ZADD high 2 b"];
    for (waits, commands, told) in [
        ("BLPOP high low 0", lists, list(&["high", "b"])),
        ("BRPOP high low 0", lists, list(&["high", "b"])),
        ("BLMPOP 0 3 nosuch high low LEFT COUNT 5", lists, "*2\r\n$4\r\nhigh\r\n*1\r\n$1\r\nb\r\n".into()),
        ("BZPOPMIN high low 0", sets, list(&["high", "b", "2"])),
        ("BZPOPMAX high low 0", sets, list(&["high", "b", "2"])),
        ("BZMPOP 0 2 high low MIN", sets, "*2\r\n$4\r\nhigh\r\n*1\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n".into()),
    ] {
        let mut waiter = bench.blocked(waits);
        exec(&mut bench, &commands);
        assert_eq!(bench.looks(&mut waiter), told, "{waits}");
    }
    // What others before it wait for is theirs.
    let mut first = bench.blocked("BLPOP high 0");
    let mut second = bench.blocked("BLPOP high low 0");
    exec(&mut bench, &lists);
    assert_eq!(bench.looks(&mut first), list(&["high", "b"]));
    assert_eq!(bench.looks(&mut second), list(&["low", "a"]));
    // But not what waiters have waited for whose clients have gone.
    let gone = bench.blocked("BLPOP high 0");
    let mut second = bench.blocked("BLPOP high low 0");
    drop(gone);
    exec(&mut bench, &lists);
    assert_eq!(bench.looks(&mut second), list(&["high", "b"]));
    // A key of another type is an error, if it comes first.
    for waits in ["BLPOP high low 0", "BZPOPMIN high low 0"] {
        let mut waiter = bench.blocked(waits);
        exec(&mut bench, &["SET high x", if waits.starts_with("BL") { lists[0] } else { sets[0] }]);
        assert!(bench.looks(&mut waiter).starts_with("-WRONGTYPE"), "{waits}");
    }
}

/// All waiters for several keys are served when enough comes at once, of one key or of several, each in its turn.
#[test]
fn those_who_wait_for_several_keys_are_all_served_when_enough_comes_at_once() {
    for commands in [
        &["a", "150", "b", "0"][..],
        &["a", "0", "b", "150"],
        &["b", "70", "a", "80"],
        &["a", "1", "b", "149"],
    ] {
        let mut bench = bench();
        let mut me = Session::new();
        let mut waiting: Vec<Session> = (0..150).map(|_| bench.blocked("BLPOP a b 0")).collect();
        bench.told(&mut me, "MULTI");
        for push in commands.chunks(2) {
            let count = push[1].parse().expect("a number");
            let elements: Vec<String> = (0..count).map(|n: usize| format!("{}{n}", push[0])).collect();
            if count > 0 {
                bench.told(&mut me, &format!("RPUSH {} {}", push[0], elements.join(" ")));
            }
        }
        bench.told(&mut me, "EXEC");
        // Those that are called go on with it.
        let mut told = vec![String::new(); waiting.len()];
        for _ in 0..4 {
            for (session, told) in waiting.iter_mut().zip(&mut told) {
                told.push_str(std::str::from_utf8(&bench.turn(session, b"").1).expect("text"));
            }
        }
        let count = |key: &str| -> usize {
            let at = commands.iter().position(|word| *word == key).expect("it is there");
            commands[at + 1].parse().expect("a number")
        };
        for (n, told) in told.iter().enumerate() {
            let from_a = count("a");
            let (key, nth) = if n < from_a { ("a", n) } else { ("b", n - from_a) };
            assert_eq!(*told, list(&[key, &format!("{key}{nth}")]), "{commands:?}: {n}");
        }
        assert_eq!(bench.told(&mut me, "EXISTS a b"), ":0\r\n");
    }
}
