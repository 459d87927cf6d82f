//! The replies that two clients of both protocols receive can always be put in one order; and a broken store is noticed.

use larder_testkit::PATIENCE;
use larder_testkit::both::Both;
use larder_testkit::history::{Client, KEYS, Operation, Outcome, judge};
use larder_testkit::local::Local;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Histories played at a time.
const HISTORIES: u64 = 2_000;
/// Histories in which the two clients meet that a run needs.
const MEETINGS: u64 = 4_000;

#[test]
fn two_clients_of_both_protocols_see_one_order() {
    let local = Local::new(&[]).expect("a server");
    let sibling = local.sibling().expect("another worker");
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
    let mut clients = [Both::new(local, 0x9a3c_55f0_1b2d_70e6), Both::new(sibling, 0x3c5a_0f96_e1d2_44b7)];
    let (mut meetings, began) = (0, Instant::now());
    for round in 0.. {
        let verdict = judge(&mut clients, round * HISTORIES, HISTORIES, seed + round);
        let bad = verdict.violations;
        assert!(
            bad.is_empty(),
            "SEED={}: {} of {HISTORIES}, the first: {:#?}",
            seed + round,
            bad.len(),
            bad[0]
        );
        meetings += verdict.overlapping.max(verdict.alternating);
        if meetings >= MEETINGS {
            break;
        }
        assert!(round < 200 || began.elapsed() < PATIENCE, "two threads meet now and then: {meetings} times");
    }
}

/// Faults of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// An increment reads and writes in two steps.
    LostIncrement,
    /// A read sometimes returns an older value.
    StaleGet,
    /// A cas stores whatever its token is.
    DeafCas,
    /// EXEC ignores changes of watched keys.
    BlindExec,
    /// EXEC lets other commands in between two writes.
    HalfExec,
    /// EXEC aborts although no watched key has changed.
    TimidExec,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    value: Option<i64>,
    before: Option<i64>,
    token: u64,
    changes: u64,
}

type Table = Mutex<std::collections::HashMap<(u64, usize), Entry>>;

/// A store of a table and a lock, with a fault.
struct Simple {
    table: Arc<Table>,
    fault: Fault,
    watched: Vec<(usize, u64)>,
    asked: u64,
}

impl Simple {
    fn write(
        table: &mut std::collections::HashMap<(u64, usize), Entry>,
        at: (u64, usize),
        value: Option<i64>,
    ) {
        let all: u64 = table.values().map(|entry| entry.changes).sum();
        let entry = table.entry(at).or_default();
        *entry = Entry { value, before: entry.value, token: all + 1, changes: entry.changes + 1 };
    }
}

impl Client for Simple {
    fn ask(&mut self, history: u64, operation: &Operation) -> Outcome {
        self.asked += 1;
        let pause = || std::thread::yield_now();
        let mut table = self.table.lock().unwrap();
        // A history uses only its own keys: those of earlier ones are removed.
        table.retain(|(of, _), _| *of >= history);
        let entry = |table: &std::collections::HashMap<_, Entry>, key: usize| {
            table.get(&(history, key)).copied().unwrap_or_default()
        };
        match operation {
            Operation::Get(key) => {
                let entry = entry(&table, *key);
                let stale = self.fault == Fault::StaleGet && self.asked.is_multiple_of(5);
                Outcome::Value(if stale { entry.before } else { entry.value })
            }
            Operation::Set(key, value) => {
                Simple::write(&mut table, (history, *key), Some(*value));
                Outcome::Done
            }
            Operation::Incr(key) => {
                let value = entry(&table, *key).value.unwrap_or(0) + 1;
                if self.fault == Fault::LostIncrement {
                    drop(table);
                    pause();
                    table = self.table.lock().unwrap();
                }
                Simple::write(&mut table, (history, *key), Some(value));
                Outcome::Value(Some(value))
            }
            Operation::Delete(key) => {
                let there = entry(&table, *key).value.is_some();
                if there {
                    Simple::write(&mut table, (history, *key), None);
                }
                Outcome::Did(Some(there))
            }
            Operation::Gets(key) => {
                let entry = entry(&table, *key);
                Outcome::Token(entry.value.map(|value| (value, entry.token)))
            }
            Operation::Cas(key, token, value) => {
                let entry = entry(&table, *key);
                let holds = entry.token == *token || self.fault == Fault::DeafCas;
                if entry.value.is_some() && holds {
                    Simple::write(&mut table, (history, *key), Some(*value));
                }
                Outcome::Did(entry.value.map(|_| holds))
            }
            Operation::Watch(keys) => {
                self.watched.extend(keys.iter().map(|&key| (key, entry(&table, key).changes)));
                Outcome::Done
            }
            Operation::Exec(writes) => {
                let watched = std::mem::take(&mut self.watched);
                let touched = watched.iter().any(|&(key, changes)| entry(&table, key).changes != changes);
                if touched && self.fault != Fault::BlindExec
                    || self.fault == Fault::TimidExec && self.asked.is_multiple_of(5)
                {
                    return Outcome::Exec(None);
                }
                for &(key, value) in writes {
                    Simple::write(&mut table, (history, key), Some(value));
                    if self.fault == Fault::HalfExec {
                        drop(table);
                        pause();
                        table = self.table.lock().unwrap();
                    }
                }
                Outcome::Exec(Some((0..KEYS).map(|key| entry(&table, key).value).collect()))
            }
        }
    }
}

fn found(fault: Fault, histories: u64) -> usize {
    let table: Arc<Table> = Arc::default();
    let mut clients =
        [0, 1].map(|asked| Simple { table: Arc::clone(&table), fault, watched: Vec::new(), asked });
    judge(&mut clients, 0, histories, 7).violations.len()
}

#[test]
fn broken_store_is_found_out() {
    let faults = [
        Fault::LostIncrement,
        Fault::StaleGet,
        Fault::DeafCas,
        Fault::BlindExec,
        Fault::HalfExec,
        Fault::TimidExec,
    ];
    for fault in faults {
        // On a busy machine it may take several tries until the two clients meet.
        let began = Instant::now();
        let found = (0..)
            .take_while(|&times| times < 20 || began.elapsed() < PATIENCE)
            .any(|_| found(fault, 1_000) > 0);
        assert!(found, "{fault:?} goes unnoticed");
    }
}

#[test]
fn simple_store_without_a_fault_is_right() {
    assert_eq!(found(Fault::None, 2_000), 0);
}
