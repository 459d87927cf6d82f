//! Commands that look at all keys: others have their turn meanwhile, and the reply is what it is.

use crate::{Bench, START, bench};
use larder_commands::{Context, Next, Output, Session};
use larder_store::{Attributes, Expect};

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
        while matches!(next, Next::Yield | Next::Flush) {
            yields += usize::from(matches!(next, Next::Yield));
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
        // That the index grew is nobody's turn.
        guard.take_beside_ns();
    }

    fn held_bytes(&self) -> u64 {
        self.worker.store().held_bytes()
    }
}

/// A command in Redis's form.
pub fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
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
    // All that were new lately are gone, one that is older is left: that is looked for among all.
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
    for n in 20..1000 {
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
