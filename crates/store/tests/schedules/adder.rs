//! Values to which several threads append and prepend: each acknowledged record is there once and whole, and
//! each thread's records are in its order. One more thread sets the values' expiry, which an append must
//! keep.

use crate::stage::{Actor, Cast, collect};
use larder_store::{Attributes, End, Expect};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The two keys: all threads add to the back of the first, and to the front of the second.
const KEYS: [(&[u8], End); 2] = [(b"added-behind", End::Back), (b"added-before", End::Front)];
/// The head of a record: its length, the thread that wrote it, and the number of the record.
const HEAD_BYTES: usize = 12;

/// The first expiry of the values, in milliseconds: it does not pass within a schedule. Each later one is 1
/// ms later.
const FAR: u64 = 1 << 45;

/// The records of each key that were acknowledged.
type Added = Rc<RefCell<[BTreeSet<(u32, u32)>; 2]>>;

/// Adds `count` threads that each add `records` records, and one that sets the values' expiry.
pub fn join(cast: &mut Cast, count: u32, records: u32) {
    let added = Added::default();
    for owner in 0..count {
        let added = Rc::clone(&added);
        cast.main("adder", move |actor| (0..records).for_each(|n| add(actor, &added, owner, n)));
    }
    cast.main("dater", move |actor| (0..u64::from(records)).for_each(|n| date(actor, FAR + n)));
}

/// Sets a value's expiry, and reads it in a second batch: a thread that appended between the two has kept it.
fn date(actor: &mut Actor, at: u64) {
    let name = KEYS[actor.random.below(2) as usize].0;
    let set = actor.batch(|guard, _, _| guard.touch(&guard.key(name), at).is_ok());
    if set {
        let kept =
            actor.batch(|guard, _, _| guard.peek(&guard.key(name)).hit().map(|item| item.expires_at()));
        assert_eq!(kept, Some(at), "the expiry that was set is not the value's");
    }
}

fn add(actor: &mut Actor, added: &Added, owner: u32, n: u32) {
    let which = actor.random.below(2) as usize;
    let (name, end) = KEYS[which];
    let bytes = match actor.random.below(8) {
        0 => 2_000 + actor.random.below(8_000) as usize,
        _ => HEAD_BYTES + actor.random.below(60) as usize,
    };
    let record = record(owner, n, bytes);
    actor.batch(|guard, _, _| {
        let key = guard.key(name);
        while guard.concat(&key, &record, end, None, Expect::Present).is_err() {
            // The first record fails until the value is made; another thread may have made it by now.
            let _ = guard.store_value(&key, b"", &Attributes::default(), Expect::Absent);
        }
    });
    assert!(added.borrow_mut()[which].insert((owner, n)));
    // The value is read in a second batch, so that other threads' writes come between.
    let acknowledged = added.borrow()[which].clone();
    let value = actor.batch(|guard, _, _| {
        let key = guard.key(name);
        collect(guard.get(&key).hit().expect("nothing takes it out").value())
    });
    check(&value, end, &acknowledged);
}

fn record(owner: u32, n: u32, bytes: usize) -> Vec<u8> {
    let mut record = [(bytes as u32).to_le_bytes(), owner.to_le_bytes(), n.to_le_bytes()].concat();
    record.resize(bytes, n as u8);
    record
}

/// Checks that all acknowledged records are in the value, that none is there twice, and that each thread's
/// first record is the farthest from the end at which it adds.
fn check(value: &[u8], end: End, acknowledged: &BTreeSet<(u32, u32)>) {
    let mut records = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let (bytes, owner, n) = (word(0) as usize, word(4), word(8));
        assert!(rest[..bytes] == record(owner, n, bytes), "record {n} of {owner} is torn");
        records.push((owner, n));
        rest = &rest[bytes..];
    }
    if end == End::Front {
        records.reverse();
    }
    let there: BTreeSet<_> = records.iter().copied().collect();
    assert_eq!(there.len(), records.len(), "a record is there twice");
    assert!(there.is_superset(acknowledged), "lost: {:?}", acknowledged.difference(&there));
    for owner in records.iter().map(|record| record.0).collect::<BTreeSet<_>>() {
        assert!(records.iter().filter(|record| record.0 == owner).is_sorted(), "{owner}'s order");
    }
}
