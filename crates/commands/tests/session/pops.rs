//! LMPOP, ZMPOP and those that wait of very many elements: the first of them as one moment over all keys, the others in
//! steps, beside others.

use crate::named::exec;
use crate::slices::STEP_NS;
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session};

/// Elements of a list, and members of a sorted set, that take many steps; and the most that take one.
const ELEMENTS: usize = 20_000;
const MEMBERS: usize = 2_000;
const FEW_ELEMENTS: usize = 4 << 10;
const FEW_MEMBERS: usize = 256;

/// What is popped of, and by which words.
#[derive(Clone, Copy, Debug)]
struct Case {
    words: &'static str,
    is_list: bool,
    back: bool,
}

const CASES: [Case; 4] = [
    Case { words: "LMPOP 3 none k other LEFT COUNT", is_list: true, back: false },
    Case { words: "ZMPOP 3 none k other MAX COUNT", is_list: false, back: true },
    Case { words: "BLMPOP 0 3 none k other RIGHT COUNT", is_list: true, back: true },
    Case { words: "BZMPOP 0 3 none k other MIN COUNT", is_list: false, back: false },
];

impl Case {
    fn all(self) -> usize {
        if self.is_list { ELEMENTS } else { MEMBERS }
    }

    fn few(self) -> usize {
        if self.is_list { FEW_ELEMENTS } else { FEW_MEMBERS }
    }

    /// Fills a key with all of them.
    fn fill(self, bench: &mut Bench, key: &str) {
        bench.reply(&format!("DEL {key}"));
        for from in (0..self.all()).step_by(1_000) {
            let some = from..from + 1_000;
            let (name, words): (_, String) = if self.is_list {
                ("RPUSH", some.map(|n| format!(" e{n:05}")).collect())
            } else {
                ("ZADD", some.map(|n| format!(" {n} e{n:05}")).collect())
            };
            assert!(bench.reply(&format!("{name} {key}{words}")).starts_with(b":"));
        }
    }

    fn len(self, bench: &mut Bench) -> usize {
        let reply = bench.reply(if self.is_list { "LLEN k" } else { "ZCARD k" });
        String::from_utf8(reply).unwrap()[1..].trim_end().parse().unwrap()
    }

    /// Elements from an end on, as they are replied.
    fn told(self, elements: impl Iterator<Item = usize>) -> String {
        let one = |n: usize| {
            let (name, score) = (format!("$6\r\ne{n:05}\r\n"), n.to_string());
            if self.is_list { name } else { format!("*2\r\n{name}${}\r\n{score}\r\n", score.len()) }
        };
        elements.map(one).collect()
    }

    /// The reply that has so many of all.
    fn reply(self, count: usize) -> String {
        let all = self.all();
        let elements = if self.back { self.told((all - count..all).rev()) } else { self.told(0..count) };
        format!("*2\r\n$1\r\nk\r\n*{count}\r\n{elements}")
    }
}

/// Goes on with a command to its end, in turns that are no longer than they may be: what it says.
fn ended(bench: &mut Bench, session: &mut Session, mut next: Next) -> String {
    let mut said = Vec::new();
    while next != Next::Receive {
        assert!(matches!(next, Next::Yield | Next::Flush), "{next:?}");
        let more;
        (next, more, _) = bench.call(session, b"");
        let done_ns = bench.room.work().done_ns();
        assert!(done_ns <= SLICE_NS + STEP_NS, "{done_ns} ns in a turn");
        said.extend(more);
    }
    String::from_utf8(said).unwrap()
}

/// Begins with very many, of which the first are taken: how many.
fn begun(bench: &mut Bench, case: Case, count: usize) -> (Session, Next, usize) {
    let mut session = Session::new();
    let sent = bench.asked(&format!("{} {count}", case.words));
    let (next, said, consumed) = bench.call(&mut session, &sent);
    let done_ns = bench.room.work().done_ns();
    assert!(done_ns <= SLICE_NS + STEP_NS, "{case:?}: {done_ns} ns in a turn");
    assert_eq!((consumed, String::from_utf8_lossy(&said)), (sent.len(), "".into()), "{case:?}");
    let gone = case.all() - case.len(bench);
    assert!(0 < gone && gone < count, "{case:?}: {gone} gone");
    (session, next, gone)
}

#[test]
fn few_elements_are_taken_at_once_and_many_in_steps() {
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    for case in CASES {
        for count in [case.few() - 1, case.few()] {
            case.fill(&mut bench, "k");
            let sent = bench.asked(&format!("{} {count}", case.words));
            let (_, said, _) = bench.call(&mut Session::new(), &sent);
            assert!(said == case.reply(count).as_bytes(), "{case:?} {count}");
            assert_eq!(case.len(&mut bench), case.all() - count, "{case:?} {count}");
        }
        for count in [case.few() + 1, case.all() - 1, case.all(), 1_000_000] {
            case.fill(&mut bench, "k");
            let (mut session, next, _) = begun(&mut bench, case, count.min(case.all()));
            let said = ended(&mut bench, &mut session, next);
            let taken = count.min(case.all());
            assert!(said == case.reply(taken), "{case:?} {count}: {}", &said[..said.len().min(80)]);
            assert_eq!(case.len(&mut bench), case.all() - taken, "{case:?} {count}");
        }
        // More than there are.
        case.fill(&mut bench, "k");
        let said = bench.reply(&format!("{} 9223372036854775807", case.words));
        assert!(said == case.reply(case.all()).as_bytes(), "{case:?}");
        assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
}

#[test]
fn pairs_are_told_apart_in_resp3_too() {
    let mut bench = bench();
    let case = CASES[1];
    case.fill(&mut bench, "k");
    let mut session = Session::new();
    let sent = bench.asked("HELLO 3");
    bench.turns(&mut session, &sent);
    let sent = bench.asked("ZMPOP 1 k MIN COUNT 300");
    let said = String::from_utf8(bench.turns(&mut session, &sent).0).unwrap();
    let members: String = (0..300).map(|n| format!("*2\r\n$6\r\ne{n:05}\r\n,{n}\r\n")).collect();
    assert_eq!(said, format!("*2\r\n$1\r\nk\r\n*300\r\n{members}"));
}

/// Others see the moments, and change what is there: of that no more is taken than was meant at first, and as many as
/// there are.
#[test]
fn what_others_do_meanwhile_is_seen_by_the_next_step() {
    for case in CASES {
        let mut bench = bench();
        case.fill(&mut bench, "k");
        let (mut session, next, _) = begun(&mut bench, case, case.all());
        let (pop, push) = match (case.is_list, case.back) {
            (true, false) => ("RPOP k 100", "RPUSH k new"),
            (true, true) => ("LPOP k 100", "LPUSH k new"),
            (false, false) => ("ZPOPMAX k 100", "ZADD k 1000000 new"),
            (false, true) => ("ZPOPMIN k 100", "ZADD k -1 new"),
        };
        bench.reply(pop);
        // A hundred are there again, of which all are taken, and one of as many more is not.
        for n in 0..101 {
            assert!(bench.reply(&format!("{push}{n:03}")).starts_with(b":"));
        }
        let said = ended(&mut bench, &mut session, next);
        assert!(said.starts_with(&format!("*2\r\n$1\r\nk\r\n*{}\r\n", case.all())), "{case:?}");
        assert_eq!(said.matches("new").count(), 100, "{case:?}");
        assert_eq!(case.len(&mut bench), 1, "{case:?}");

        // It goes, and another comes in its place.
        for then in ["DEL other", "SET k x"] {
            case.fill(&mut bench, "k");
            let (mut session, next, gone) = begun(&mut bench, case, case.all());
            bench.reply("DEL k");
            bench.reply(then);
            assert!(ended(&mut bench, &mut session, next) == case.reply(gone), "{case:?} {then}");
        }
    }
}

#[test]
fn who_goes_has_what_it_took_and_leaves_the_others() {
    for case in CASES {
        let mut bench = bench();
        let held = bench.worker.store().held_bytes();
        case.fill(&mut bench, "k");
        let (session, _, gone) = begun(&mut bench, case, case.all());
        bench.ended(session);
        assert_eq!(case.len(&mut bench), case.all() - gone, "{case:?}");
        assert_eq!(bench.worker.store().held_bytes(), held);
    }
}

#[test]
fn a_key_that_is_watched_is_touched_by_each_moment() {
    for case in CASES {
        let mut bench = bench();
        case.fill(&mut bench, "k");
        let (mut session, next, _) = begun(&mut bench, case, case.all());
        let mut watches = Session::new();
        for words in ["WATCH k", "MULTI", "GET other"] {
            let sent = bench.asked(words);
            bench.turns(&mut watches, &sent);
        }
        ended(&mut bench, &mut session, next);
        let sent = bench.asked("EXEC");
        assert_eq!(bench.turns(&mut watches, &sent).0, b"*-1\r\n", "{case:?}");
    }
}

#[test]
fn keyspace_events_are_told_of_each_moment_by_the_end_it_takes_from() {
    for case in CASES {
        let mut bench = bench();
        case.fill(&mut bench, "k");
        bench.reply("CONFIG SET notify-keyspace-events Elzg");
        let mut listens = Session::new();
        let names = ["lpop", "rpop", "zpopmin", "zpopmax", "del"];
        let topics: String = names.iter().map(|name| format!(" __keyevent@0__:{name}")).collect();
        let sent = bench.asked(&format!("SUBSCRIBE{topics}"));
        bench.turns(&mut listens, &sent);
        let (mut session, next, _) = begun(&mut bench, case, case.all());
        ended(&mut bench, &mut session, next);
        let sent = bench.asked("PING");
        let said = String::from_utf8(bench.turns(&mut listens, &sent).0).unwrap();
        let told = names.map(|name| said.matches(&format!("@0__:{name}\r\n")).count());
        let nth = 2 * usize::from(!case.is_list) + usize::from(case.back);
        for (n, told) in told.into_iter().enumerate() {
            let is_so = if n == nth { told > 1 } else { told == usize::from(names[n] == "del") };
            assert!(is_so, "{case:?}: {told} of {}", names[n]);
        }
    }
}

/// What follows is of another key, which has the same name.
#[test]
fn of_databases_that_are_swapped_meanwhile_one_is_popped_from() {
    for case in CASES {
        let mut bench = bench();
        case.fill(&mut bench, "k");
        assert_eq!(bench.reply("SWAPDB 0 1"), b"+OK\r\n");
        case.fill(&mut bench, "k");
        let (mut session, next, gone) = begun(&mut bench, case, case.all());
        assert_eq!(bench.reply("SWAPDB 0 1"), b"+OK\r\n");
        let said = ended(&mut bench, &mut session, next);
        assert!(said == case.reply(gone), "{case:?}: {}", &said[..said.len().min(80)]);
        assert_eq!(case.len(&mut bench), case.all(), "{case:?}");
    }
}

/// The same of a waiter that was served by the command that pushed, before it had its own turn.
#[test]
fn of_databases_that_are_swapped_before_one_that_was_served_goes_on_one_is_popped_from() {
    for case in &CASES[2..] {
        let mut bench = bench();
        case.fill(&mut bench, "k");
        assert_eq!(bench.reply("SWAPDB 0 1"), b"+OK\r\n");
        let mut waiter = Session::new();
        let sent = bench.asked(&format!("{} 1000000", case.words));
        assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
        case.fill(&mut bench, "filled");
        assert_eq!(bench.reply("RENAME filled k"), b"+OK\r\n");
        let gone = case.all() - case.len(&mut bench);
        assert_eq!(bench.reply("SWAPDB 0 1"), b"+OK\r\n");
        let said = ended(&mut bench, &mut waiter, Next::Yield);
        assert!(said == case.reply(gone), "{case:?}: {}", &said[..said.len().min(80)]);
        assert_eq!(case.len(&mut bench), case.all(), "{case:?}");
    }
}

#[test]
fn in_a_transaction_all_are_one_moment() {
    let mut bench = bench();
    for case in CASES {
        case.fill(&mut bench, "k");
        let count = 2 * case.few();
        let said = exec(&mut bench, &[&format!("{} {count}", case.words), "EXISTS other"]);
        assert!(said == format!("*2\r\n{}:0\r\n", case.reply(count)), "{case:?}");
    }
}

/// A client that pushes is held up by the first of them only, and the waiter takes the others.
#[test]
fn one_that_waits_is_served_with_the_first_of_many_and_takes_the_others() {
    for case in &CASES[2..] {
        for goes in [false, true] {
            let mut bench = bench();
            let mut waiter = Session::new();
            let sent = bench.asked(&format!("{} 1000000", case.words));
            assert_eq!(bench.turn(&mut waiter, &sent), (Next::Await(None), Vec::new()));
            case.fill(&mut bench, "filled");
            assert_eq!(bench.reply("RENAME filled k"), b"+OK\r\n");
            let gone = case.all() - case.len(&mut bench);
            assert!(0 < gone && gone <= case.few(), "{case:?}: {gone}");
            if goes {
                bench.ended(waiter);
                assert_eq!(case.len(&mut bench), case.all(), "{case:?}: it is back");
                let said = bench.reply(&format!("{} 1000000", case.words));
                assert!(said == case.reply(case.all()).as_bytes(), "{case:?}");
                continue;
            }
            let said = ended(&mut bench, &mut waiter, Next::Yield);
            assert!(said == case.reply(case.all()), "{case:?}: {}", &said[..said.len().min(80)]);
            assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
        }
    }
}

/// The next in line has its part before the first has taken all.
#[test]
fn the_next_in_line_is_served_beside_one_that_takes_many() {
    let case = CASES[2];
    let mut bench = bench();
    let (mut first, mut second) = (Session::new(), Session::new());
    for (session, words) in [(&mut first, "BLMPOP 0 1 k RIGHT COUNT 1000000"), (&mut second, "BLPOP k 0")] {
        let sent = bench.asked(words);
        assert_eq!(bench.turn(session, &sent), (Next::Await(None), Vec::new()));
    }
    case.fill(&mut bench, "filled");
    assert_eq!(bench.reply("RENAME filled k"), b"+OK\r\n");
    assert_eq!(ended(&mut bench, &mut second, Next::Yield), "*2\r\n$1\r\nk\r\n$6\r\ne00000\r\n");
    let said = ended(&mut bench, &mut first, Next::Yield);
    assert!(said.starts_with(&format!("*2\r\n$1\r\nk\r\n*{}\r\n", ELEMENTS - 1)), "{}", &said[..40]);
    assert!(said.ends_with("$6\r\ne00001\r\n"));
}

/// Members count by what they take, however short they are: a push serves one waiter that wants a hundred, and calls the next.
#[test]
fn those_who_are_given_many_are_served_in_their_own_turns() {
    let case = CASES[3];
    let mut bench = bench();
    let sent = bench.asked("BZMPOP 0 1 k MIN COUNT 100");
    let mut waiters: Vec<Session> = (0..10).map(|_| Session::new()).collect();
    for waiter in &mut waiters {
        assert_eq!(bench.turn(waiter, &sent), (Next::Await(None), Vec::new()));
    }
    case.fill(&mut bench, "filled");
    assert_eq!(bench.reply("RENAME filled k"), b"+OK\r\n");
    assert_eq!(case.len(&mut bench), MEMBERS - 100);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let said = ended(&mut bench, waiter, Next::Yield);
        let members = case.told(100 * n..100 * (n + 1));
        assert_eq!(said, format!("*2\r\n$1\r\nk\r\n*100\r\n{members}"), "{n}");
    }
    assert_eq!(case.len(&mut bench), MEMBERS - 1_000);
}
