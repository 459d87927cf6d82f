//! Short histories of cache operations by two clients: the operations, the right outcomes, and how a real or a broken store is
//! asked.
//!
//! Keys are few and values are numbers, so that clients meet. A client works in turns: a plain
//! operation, a CAS with the token it saw last, or WATCH, a look, and EXEC that writes two keys.

use crate::linear::{Call, Model, is_linearizable};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Keys of a history.
pub const KEYS: usize = 2;

/// A request of a client; keys by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the value.
    Get(usize),
    /// Sets it.
    Set(usize, i64),
    /// Adds one; a key that is not there is 0.
    Incr(usize),
    /// Removes it.
    Delete(usize),
    /// Reads the value and its token.
    Gets(usize),
    /// Sets it if it has this token.
    Cas(usize, u64, i64),
    /// Watches keys.
    Watch(Vec<usize>),
    /// Unless a watched key was touched: sets these, and reads both keys.
    Exec(Vec<(usize, i64)>),
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returns nothing.
    Done,
    /// A value, if there is one.
    Value(Option<i64>),
    /// A value and its token, if there is one.
    Token(Option<(i64, u64)>),
    /// Whether a CAS or a removal changed something; none for a CAS of a missing key.
    Did(Option<bool>),
    /// The values at the end of an EXEC; none if it was aborted.
    Exec(Option<Vec<Option<i64>>>),
}

/// A key: its value, the token it was seen with, and how often it was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Item {
    value: Option<i64>,
    token: Option<u64>,
    changes: u32,
}

/// All keys; and for each client the keys that it watches, with how often each had changed at WATCH.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    items: [Item; KEYS],
    watched: [Vec<(usize, u32)>; 2],
}

impl State {
    fn write(&mut self, key: usize, value: Option<i64>) {
        let changes = self.items[key].changes + 1;
        self.items[key] = Item { value, token: None, changes };
    }
}

/// The model: it gives the right outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cache;

impl Model for Cache {
    type State = State;
    type Operation = Operation;
    type Outcome = Outcome;

    fn start(&self) -> State {
        State::default()
    }

    fn step(&self, state: &State, thread: usize, operation: &Operation, outcome: &Outcome) -> Option<State> {
        let mut next = state.clone();
        let told = match operation {
            Operation::Get(key) => Outcome::Value(state.items[*key].value),
            Operation::Set(key, value) => {
                next.write(*key, Some(*value));
                Outcome::Done
            }
            Operation::Incr(key) => {
                let value = state.items[*key].value.unwrap_or(0) + 1;
                next.write(*key, Some(value));
                Outcome::Value(Some(value))
            }
            Operation::Delete(key) => {
                let there = state.items[*key].value.is_some();
                if there {
                    next.write(*key, None);
                }
                Outcome::Did(Some(there))
            }
            Operation::Gets(key) => {
                let item = &mut next.items[*key];
                // The first read of a token decides which version it stands for; no other version has it.
                let seen = match outcome {
                    Outcome::Token(seen) => seen.map(|(_, token)| token),
                    _ => return None,
                };
                let token = item.token.or(seen);
                let elsewhere = |other: &Item| other.token.is_some() && other.token == token;
                if item.token.is_none() && token.is_some() && state.items.iter().any(elsewhere) {
                    return None;
                }
                if item.value.is_some() {
                    item.token = token;
                }
                Outcome::Token(item.value.zip(token))
            }
            Operation::Cas(key, token, value) => {
                let item = &state.items[*key];
                // A client has read every token that it has. So a token that no read of this version has
                // shown stands for another one.
                let did = item.value.map(|_| item.token == Some(*token));
                if did == Some(true) {
                    next.write(*key, Some(*value));
                }
                Outcome::Did(did)
            }
            Operation::Watch(keys) => {
                let watched = keys.iter().map(|&key| (key, state.items[key].changes));
                next.watched[thread].extend(watched);
                Outcome::Done
            }
            Operation::Exec(writes) => {
                let watched = std::mem::take(&mut next.watched[thread]);
                if watched.iter().any(|&(key, changes)| state.items[key].changes != changes) {
                    Outcome::Exec(None)
                } else {
                    writes.iter().for_each(|&(key, value)| next.write(key, Some(value)));
                    Outcome::Exec(Some(next.items.iter().map(|item| item.value).collect()))
                }
            }
        };
        (told == *outcome).then_some(next)
    }
}

/// One client of a store.
pub trait Client {
    /// Makes a request. Keys belong to history `history`, and are new to it.
    fn ask(&mut self, history: u64, operation: &Operation) -> Outcome;
}

/// What two clients do in one history.
pub type Script = [Vec<Step>; 2];

/// One step of a client; the value that it writes may depend on what it has read.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// get, set, incr or delete.
    Plain(u8, usize),
    /// gets, then cas.
    Compare(usize),
    /// WATCH both or one, get, EXEC.
    Watch(usize, bool),
}

/// Two scripts from a random number.
pub fn script(random: &mut u64) -> Script {
    let mut next = |n: u64| {
        *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x14057b7ef767814f);
        (*random >> 33) % n
    };
    [(); 2].map(|()| {
        let steps = 2 + next(3);
        (0..steps)
            .map(|_| match (next(8), next(KEYS as u64) as usize) {
                (kind @ 0..=4, key) => Step::Plain(kind as u8, key),
                (5, key) => Step::Compare(key),
                (_, key) => Step::Watch(key, next(2) == 0),
            })
            .collect()
    })
}

/// Lets a client go through its steps, and notes each call.
pub fn play(
    client: &mut dyn Client,
    history: u64,
    thread: usize,
    steps: &[Step],
    clock: &AtomicU64,
) -> Vec<Call<Operation, Outcome>> {
    let mut calls = Vec::new();
    let mut random = history.wrapping_mul(2 + thread as u64);
    let mut ask = |operation: Operation| {
        // On a busy machine two threads that never yield would seldom overlap.
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x14057b7ef767814f);
        match random >> 60 {
            0..4 => std::thread::yield_now(),
            4..10 => (0..random >> 33 & 0x3ff).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
        let began = clock.fetch_add(1, Ordering::SeqCst);
        let outcome = client.ask(history, &operation);
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        calls.push(Call { thread, began, ended, operation, outcome: outcome.clone() });
        outcome
    };
    for (n, step) in steps.iter().enumerate() {
        let fresh = (thread * 1000 + n * 10) as i64;
        match *step {
            Step::Plain(0 | 1, key) => drop(ask(Operation::Get(key))),
            Step::Plain(2, key) => drop(ask(Operation::Set(key, fresh))),
            Step::Plain(3, key) => drop(ask(Operation::Incr(key))),
            Step::Plain(_, key) => drop(ask(Operation::Delete(key))),
            Step::Compare(key) => {
                if let Outcome::Token(Some((value, token))) = ask(Operation::Gets(key)) {
                    ask(Operation::Cas(key, token, value + 1));
                }
            }
            Step::Watch(key, both) => {
                ask(Operation::Watch(if both { vec![0, 1] } else { vec![key] }));
                let Outcome::Value(seen) = ask(Operation::Get(key)) else { unreachable!("a get") };
                let value = seen.unwrap_or(0) + 1;
                ask(Operation::Exec(vec![(key, value), (1 - key, fresh)]));
            }
        }
    }
    calls
}

/// The results of several histories.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Histories in which calls of the two overlapped.
    pub overlapping: u64,
    /// Histories in which the two clients at least alternated.
    pub alternating: u64,
    /// Histories that no order explains.
    pub violations: Vec<Vec<Call<Operation, Outcome>>>,
}

impl Verdict {
    /// Judges the calls of one history.
    pub fn add(&mut self, mut calls: Vec<Call<Operation, Outcome>>) {
        calls.sort_by_key(|call| call.began);
        let overlap = |pair: &[Call<Operation, Outcome>]| {
            pair[0].thread != pair[1].thread && pair[1].began < pair[0].ended
        };
        self.overlapping += u64::from(calls.windows(2).any(overlap));
        let turns = calls.windows(2).filter(|pair| pair[0].thread != pair[1].thread).count();
        self.alternating += u64::from(turns > 1);
        if !is_linearizable(&Cache, &calls) {
            self.violations.push(calls);
        }
    }
}

/// Plays histories `first..first + count` with two clients at once.
pub fn judge<C: Client + Send>(clients: &mut [C; 2], first: u64, count: u64, seed: u64) -> Verdict {
    let clock = AtomicU64::new(0);
    let ready = AtomicUsize::new(0);
    let mut random = seed;
    let scripts: Vec<Script> = (0..count).map(|_| script(&mut random)).collect();
    let [one, two] = clients;
    let run = |client: &mut C, thread: usize| -> Vec<Vec<Call<Operation, Outcome>>> {
        (0..count)
            .map(|n| {
                // Both begin together; a thread without a core yields.
                ready.fetch_add(1, Ordering::SeqCst);
                let mut spins = 0;
                while ready.load(Ordering::SeqCst) < 2 * (n as usize + 1) {
                    spins += 1;
                    if spins < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
                play(client, first + n, thread, &scripts[n as usize][thread], &clock)
            })
            .collect()
    };
    let (ones, twos) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(two, 1));
        (run(one, 0), other.join().expect("a client does not panic"))
    });
    let mut verdict = Verdict::default();
    ones.into_iter().zip(twos).for_each(|(one, two)| verdict.add([one, two].concat()));
    verdict
}
