//! Commands that look at all keys: others have their turn meanwhile, and the reply is what it is.

use crate::{Bench, START, bench};
use larder_commands::{Context, Next, Output, Session};
use larder_store::{Attributes, Expect};
use larder_testkit::talk::encode;

/// A command in Redis's form.
pub use larder_testkit::talk::encode_text as command;

/// Keys that take several steps to look at.
const KEYS: u64 = 20_000;

impl Bench {
    /// One call of a session: what it says is next, and what it replied.
    pub fn turn(&mut self, session: &mut Session, input: &[u8]) -> (Next, Vec<u8>) {
        let (next, replies, consumed) = self.call(session, input);
        assert_eq!(consumed, input.len());
        (next, replies)
    }

    /// The same of a session that may leave some of it for later.
    pub fn wait_for(&mut self, session: &mut Session, input: &[u8]) -> (Next, Vec<u8>) {
        let (next, replies, _) = self.call(session, input);
        (next, replies)
    }

    pub fn call(&mut self, session: &mut Session, input: &[u8]) -> (Next, Vec<u8>, usize) {
        self.room.work().begin_slice();
        self.call_on(session, input)
    }

    /// One call that has what others have left of the slice.
    pub fn same_slice(&mut self, session: &mut Session, input: &[u8]) -> (Next, Vec<u8>) {
        let (next, replies, _) = self.call_on(session, input);
        (next, replies)
    }

    /// A call: what the session wants then, what it replied, and what it consumed.
    pub fn call_on(&mut self, session: &mut Session, input: &[u8]) -> (Next, Vec<u8>, usize) {
        let mut out = Output::new(self.limit);
        let now = self.shared.now(self.system);
        let mut cx = Context::new(
            self.worker.enter(now),
            &self.host.counters,
            &self.shared,
            &self.host,
            &self.host,
            &self.room,
        );
        let progress = session.receive(&mut cx, input, &mut out);
        (progress.next, out.to_vec(), progress.consumed)
    }

    /// What comes back when a session is called until it waits for more; how often it let others have
    /// their turn.
    pub fn turns(&mut self, session: &mut Session, input: &[u8]) -> (Vec<u8>, usize) {
        let first = self.call(session, input);
        self.turns_after(first, session, input)
    }

    /// The same behind a first call, which is given.
    pub fn turns_after(
        &mut self,
        (mut next, mut replies, mut at): (Next, Vec<u8>, usize),
        session: &mut Session,
        input: &[u8],
    ) -> (Vec<u8>, usize) {
        let mut yields = 0;
        // One that is to hold keys looks so often whether others do, which have held some a moment ago.
        let (looks, mut looked) = (Next::Sleep(2), 0);
        while matches!(next, Next::Yield | Next::Flush)
            || next == looks && at == input.len() && looked < 100
            || session.must_end()
        {
            yields += usize::from(matches!(next, Next::Yield));
            if let Next::Sleep(ms) | Next::Await(Some(ms)) = next {
                self.system += ms;
                looked += 1;
            }
            let (more, consumed);
            (next, more, consumed) = self.call(session, &input[at..]);
            replies.extend_from_slice(&more);
            at += consumed;
        }
        assert_eq!(at, input.len());
        (replies, yields)
    }

    pub fn fill(&mut self, name: u8, keys: u64, key_bytes: usize) {
        let mut guard = self.worker.enter(START);
        for n in 0..keys {
            let text = format!("{n:0key_bytes$}");
            let key = guard.key_in(name, text.as_bytes());
            guard.store_value(&key, b"value", &Attributes::default(), Expect::Any).unwrap();
        }
        // That the index grew is not spent in a turn.
        guard.take_beside_ns();
    }

    fn held_bytes(&self) -> u64 {
        self.worker.store().held_bytes()
    }
}

fn sorted(reply: &[u8], head: &str) -> Vec<String> {
    let reply = std::str::from_utf8(reply).unwrap();
    let rest = reply.strip_prefix(head).unwrap_or_else(|| panic!("{:?}", &reply[..reply.len().min(40)]));
    let mut keys: Vec<_> = rest.lines().skip(1).step_by(2).map(String::from).collect();
    keys.sort();
    keys
}

#[test]
fn who_asks_for_all_keys_lets_others_have_their_turn() {
    let mut bench = bench();
    bench.fill(0, KEYS, 8);
    bench.fill(3, 100, 8);
    for (words, head) in [
        (vec!["KEYS", "*"], format!("*{KEYS}\r\n")),
        (vec!["SCAN", "0", "COUNT", "1000000"], format!("*2\r\n$1\r\n0\r\n*{KEYS}\r\n")),
    ] {
        let (mut asks, mut other) = (Session::new(), Session::new());
        let (next, reply) = bench.turn(&mut asks, &command(&words));
        assert!(matches!(next, Next::Yield) && reply.is_empty(), "{words:?}");
        assert_eq!(bench.turn(&mut other, &command(&["GET", "00000007"])).1, b"$5\r\nvalue\r\n");
        let (reply, yields) = bench.turns(&mut asks, b"");
        assert!(yields >= 5, "{words:?}: {yields}");
        let keys = sorted(&reply, &head);
        assert!(keys.into_iter().eq((0..KEYS).map(|n| format!("{n:08}"))), "{words:?}");
    }
    let digest = |bench: &mut Bench| bench.turns(&mut Session::new(), &command(&["DEBUG", "DIGEST"]));
    let (one, other) = (digest(&mut bench), digest(&mut bench));
    assert!(one.0 == other.0 && one.1 >= 5);
}

#[test]
fn in_a_transaction_all_keys_are_looked_at_at_once() {
    let mut bench = bench();
    bench.fill(0, KEYS, 8);
    let mut session = Session::new();
    let input = [command(&["MULTI"]), command(&["KEYS", "*"]), command(&["EXEC"])].concat();
    let (next, reply) = bench.turn(&mut session, &input);
    assert!(matches!(next, Next::Yield), "and then others have their turn");
    assert_eq!(sorted(&reply, &format!("+OK\r\n+QUEUED\r\n*1\r\n*{KEYS}\r\n")).len() as u64, KEYS);
}

#[test]
fn keys_that_were_found_are_charged_until_they_are_replied() {
    const KEY_BYTES: usize = 200;
    let mut bench = bench();
    bench.fill(0, KEYS, KEY_BYTES);
    let before = bench.held_bytes();
    let mut session = Session::new();
    for _ in 0..10 {
        let input: &[u8] = if session.is_idle() { &command(&["KEYS", "*"]) } else { b"" };
        bench.turn(&mut session, input);
    }
    assert!(bench.held_bytes() >= before + 9 * 1000 * KEY_BYTES as u64);
    drop(session);
    assert_eq!(bench.held_bytes(), before, "who goes leaves nothing");
    bench.turns(&mut Session::new(), &command(&["KEYS", "*"]));
    assert_eq!(bench.held_bytes(), before);
    // Beyond half of what connections may hold it is refused.
    bench.fill(0, 60_000, KEY_BYTES);
    let (reply, _) = bench.turns(&mut Session::new(), &command(&["KEYS", "*"]));
    assert!(reply.starts_with(b"-OOM "), "{}", String::from_utf8_lossy(&reply[..40]));
    assert_eq!(bench.held_bytes(), before);
}

#[test]
fn keys_that_many_ask_for_and_nobody_takes_stay_within_what_connections_may_hold() {
    const KEY_BYTES: usize = 8_000;
    // One alone may have them all.
    let found = |reply: &[u8]| reply.starts_with(b"*950\r\n");
    for asked in [vec!["KEYS", "0*"], vec!["KEYS", "*"], vec!["SCAN", "0", "COUNT", "1000000"]] {
        let mut bench = bench();
        bench.fill(0, 950, KEY_BYTES);
        (bench.limit, bench.host.connections) = (1_000, 40);
        let (before, max) = (bench.held_bytes(), bench.worker.store().held_bytes_max());
        let mut most = 0;
        let mut asks = |bench: &mut Bench, sessions: &mut [Session], first: &[u8]| {
            let mut said = vec![Vec::new(); sessions.len()];
            let mut at_work: Vec<usize> = (0..sessions.len()).collect();
            let mut input = first;
            while !at_work.is_empty() {
                at_work.retain(|&nth| {
                    let (next, reply, _) = bench.call(&mut sessions[nth], input);
                    said[nth].extend(reply);
                    most = most.max(bench.held_bytes());
                    next == Next::Yield
                });
                input = b"";
            }
            said
        };
        let mut sessions: Vec<Session> = (0..40).map(|_| Session::new()).collect();
        let said = asks(&mut bench, &mut sessions, &command(&asked));
        let refused = said.iter().filter(|reply| reply.starts_with(b"-OOM ")).count();
        assert!((1..40).contains(&refused), "{asked:?}: {refused} are refused");
        assert!(bench.worker.store().take_refusal(), "those who stand are to let go");
        // Those that wait go, and each that goes makes room for another.
        drop(sessions);
        assert_eq!(bench.held_bytes(), before, "{asked:?}");
        let said = asks(&mut bench, &mut [Session::new()], &command(&asked));
        assert!(asked[0] == "SCAN" || found(&said[0]), "{asked:?}");
        // Room for the step of one worker is beside it.
        assert!(most <= max + (64 << 10), "{asked:?}: {most} of {max} are held");
    }
}

#[test]
fn what_is_found_has_the_room_that_others_have_left() {
    let mut names = bench();
    names.fill(0, 20_000, 200);
    // Of long keys with large values names are noted.
    let mut values = bench();
    let large = vec![b'v'; 20_000];
    for n in 0..200 {
        let key = format!("{n:0>8000}");
        values.turns(&mut Session::new(), &encode(&[b"SET", key.as_bytes(), &large]));
    }
    let mut benches = [names, values];
    for (nth, asked) in
        [(0, &["KEYS", "*"][..]), (0, &["SCAN", "0", "COUNT", "100000"]), (1, &["DEBUG", "DIGEST"])]
    {
        let bench = &mut benches[nth];
        let exec = [command(&["MULTI"]), command(asked), command(&["EXEC"])].concat();
        let before = bench.held_bytes();
        let taken = (bench.worker.store().held_bytes_max() - before) as i64 - (100 << 10);
        bench.worker.store().hold(taken);
        let (reply, _) = bench.turns(&mut Session::new(), &command(asked));
        assert!(reply.starts_with(b"-OOM "), "{asked:?}: {}", shown(&reply));
        assert!(bench.worker.store().take_refusal(), "{asked:?}");
        // So many values are more than EXEC looks through.
        if asked[0] != "DEBUG" {
            let (reply, _) = bench.turns(&mut Session::new(), &exec);
            assert!(reply.starts_with(b"+OK\r\n+QUEUED\r\n*1\r\n-OOM "), "{asked:?}: {}", shown(&reply));
        }
        bench.worker.store().hold(-taken);
        assert_eq!(bench.held_bytes(), before);
        let (reply, _) = bench.turns(&mut Session::new(), &command(asked));
        assert!(!reply.starts_with(b"-"), "{asked:?}: {}", shown(&reply));
        assert_eq!(bench.held_bytes(), before);
    }
    // What is short is replied, however much others hold.
    let [names, _] = &mut benches;
    names.worker.store().hold(16 << 20);
    let (reply, _) = names.turns(&mut Session::new(), &command(&["KEYS", "00000*19999"]));
    assert!(reply.starts_with(b"*1\r\n$200\r\n"), "{}", shown(&reply));
    let (reply, _) = names.turns(&mut Session::new(), &command(&["SCAN", "0", "COUNT", "10"]));
    assert!(reply.starts_with(b"*2\r\n"), "{}", shown(&reply));
    names.worker.store().hold(-(16 << 20));
}

/// The beginning of a reply.
fn shown(reply: &[u8]) -> String {
    String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned()
}

#[test]
fn keys_that_are_replied_in_pieces_are_whole_wherever_a_block_of_them_ends() {
    for key_bytes in [5, 100, 1_000, 7_001] {
        let mut bench = bench();
        bench.fill(0, 600, key_bytes);
        let before = bench.held_bytes();
        for limit in [1, 16 << 10, 100_000] {
            bench.limit = limit;
            let mut session = Session::new();
            let (reply, _) = bench.turns(&mut session, &command(&["KEYS", "*"]));
            let keys = sorted(&reply, "*600\r\n");
            assert!(keys.into_iter().eq((0..600).map(|n| format!("{n:0key_bytes$}"))), "{key_bytes} {limit}");
            assert_eq!(bench.held_bytes(), before);
        }
    }
    // Blocks that are replied go back.
    let mut bench = bench();
    bench.fill(0, 600, 5_000);
    (bench.limit, bench.host.connections) = (1_000, 40);
    let (before, mut session) = (bench.held_bytes(), Session::new());
    let (mut next, _, _) = bench.call(&mut session, &command(&["KEYS", "*"]));
    let mut held = Vec::new();
    while next != Next::Receive {
        if next == Next::Flush {
            held.push(bench.held_bytes() - before);
            // Beside it there is what is held for any client.
            assert!(bench.held_bytes() - before - session.held_bytes() < 1_000);
        }
        (next, _, _) = bench.call(&mut session, b"");
    }
    assert!(held.len() > 100 && held[0] > 3_000_000 && held.is_sorted_by(|one, other| one >= other));
    assert!(held[held.len() / 2] < held[0] * 6 / 10 && held[held.len() - 1] < 100_000, "{held:?}");
}

#[test]
fn random_key_of_a_database_costs_nothing_for_the_keys_of_others() {
    let mut bench = bench();
    bench.fill(0, KEYS, 8);
    let mut session = Session::new();
    bench.turn(&mut session, &command(&["SELECT", "5"]));
    let ask = command(&["RANDOMKEY"]);
    assert_eq!(bench.turns(&mut session, &ask), (b"$-1\r\n".to_vec(), 0), "there is none");
    bench.fill(5, 1, 3);
    bench.fill(0, KEYS, 8);
    for _ in 0..20 {
        assert_eq!(bench.turns(&mut session, &ask), (b"$3\r\n000\r\n".to_vec(), 0), "the one that was new");
    }
    // All that were new recently are gone, one that is older is left: that is looked for among all.
    bench.fill(5, 1000, 3);
    for n in (0..1000).filter(|n| *n != 17) {
        bench.turn(&mut session, &command(&["DEL", &format!("{n:03}")]));
    }
    let yields = loop {
        let (reply, yields) = bench.turns(&mut session, &ask);
        assert_eq!(reply, b"$3\r\n017\r\n");
        // Now and then it is near the random place, and is not looked for.
        if yields > 0 {
            break yields;
        }
    };
    assert!(yields <= 30, "once round at most: {yields}");
    for _ in 0..20 {
        assert_eq!(
            bench.turns(&mut session, &ask),
            (b"$3\r\n017\r\n".to_vec(), 0),
            "it is known from then on"
        );
    }
    bench.turn(&mut session, &command(&["DEL", "017"]));
    assert_eq!(bench.turns(&mut session, &ask), (b"$-1\r\n".to_vec(), 0));
    // Of some that are old several are known.
    bench.fill(5, 1000, 3);
    for n in (0..1000).filter(|n| !(20..40).contains(n)) {
        bench.turn(&mut session, &command(&["DEL", &format!("{n:03}")]));
    }
    // Soon none of so few is near a random place, and they are looked for.
    while bench.turns(&mut session, &ask).1 == 0 {}
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let (reply, yields) = bench.turns(&mut session, &ask);
        assert_eq!(yields, 0);
        seen.insert(reply);
    }
    assert!(seen.len() >= 8, "{} of twenty", seen.len());
}

/// Rounds of upkeep, a tenth of a second each.
fn upkeep(bench: &mut Bench, rounds: u64) {
    let mut guard = bench.worker.enter(START);
    (0..rounds).for_each(|round| bench.shared.look_for_rare_keys(&mut guard, 100 * round));
}

#[test]
fn upkeep_knows_old_keys_of_a_database_beside_many_of_others_before_somebody_asks() {
    let mut bench = bench();
    bench.fill(5, 1000, 3);
    bench.fill(0, KEYS, 8);
    let mut session = Session::new();
    bench.turn(&mut session, &command(&["SELECT", "5"]));
    // All that were new recently are gone, and two that are older are left.
    for n in (0..1000).filter(|n| ![17, 18].contains(n)) {
        bench.turn(&mut session, &command(&["DEL", &format!("{n:03}")]));
    }
    upkeep(&mut bench, 16 + KEYS / 256);
    let ask = command(&["RANDOMKEY"]);
    for _ in 0..50 {
        let (reply, yields) = bench.turns(&mut session, &ask);
        assert_eq!(yields, 0, "nothing is looked for");
        assert!([&b"$3\r\n017\r\n"[..], b"$3\r\n018\r\n"].contains(&&reply[..]), "{reply:?}");
    }
    // Both are known: the other is found where one of them is gone.
    bench.turn(&mut session, &command(&["DEL", "017"]));
    for _ in 0..50 {
        assert_eq!(bench.turns(&mut session, &ask), (b"$3\r\n018\r\n".to_vec(), 0), "nothing is looked for");
    }
}

#[test]
fn random_keys_are_of_all_keys() {
    let mut bench = bench();
    bench.fill(2, 50, 2);
    let mut session = Session::new();
    bench.turn(&mut session, &command(&["SELECT", "2"]));
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..5000 {
        *seen.entry(bench.turns(&mut session, &command(&["RANDOMKEY"])).0).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 50);
    let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
    assert!(*least >= 25 && *most <= 250, "100 each on average: {least} to {most}");
}

#[test]
fn keys_of_a_database_that_is_swapped_meanwhile_are_of_one_database() {
    let mut bench = bench();
    bench.fill(0, KEYS, 8);
    bench.fill(1, KEYS, 9);
    let (mut asks, mut other) = (Session::new(), Session::new());
    let (next, _) = bench.turn(&mut asks, &command(&["KEYS", "*"]));
    assert!(matches!(next, Next::Yield));
    assert_eq!(bench.turn(&mut other, &command(&["SWAPDB", "0", "1"])).1, b"+OK\r\n");
    let (reply, _) = bench.turns(&mut asks, b"");
    assert!(sorted(&reply, &format!("*{KEYS}\r\n")).iter().all(|key| key.len() == 8));
}

#[test]
fn nobody_looks_for_keys_that_nobody_asks_for() {
    let mut bench = bench();
    bench.fill(0, KEYS, 8);
    let mut session = Session::new();
    let input = [command(&["CLIENT", "REPLY", "SKIP"]), command(&["KEYS", "*"]), command(&["PING"])].concat();
    assert_eq!(bench.turns(&mut session, &input), (b"+PONG\r\n".to_vec(), 1));
}
