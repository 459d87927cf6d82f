//! Items of the same keys, published in all ways beside each other: threads raise counts by a hint, by the
//! item that they have read, or by an upload, and delete keys and begin them again. An acknowledged count is
//! there once, and the counts of a life end where its key was deleted.

use crate::stage::{Actor, Cast, collect, size, value, words};
use larder_store::schedule::Random;
use larder_store::{Attributes, Expect, Guard, Hint, Key, Seen};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const KEYS: u64 = 3;
/// The expiry of some items, in milliseconds: it does not pass within a schedule.
const FAR: u64 = 1 << 45;

/// The acknowledged counts of a key from its creation to its deletion.
#[derive(Default)]
struct Life {
    counts: BTreeSet<u64>,
    /// The count that was deleted.
    ended: Option<u64>,
}

#[derive(Default)]
struct Known {
    /// Lives by key and number of the life.
    lives: BTreeMap<(u64, u64), Life>,
    at_work: u64,
}

impl Known {
    fn counted(&mut self, n: u64, (life, count): (u64, u64)) {
        let new = self.lives.entry((n, life)).or_default().counts.insert(count);
        assert!(new, "key {n} was made {count} twice in life {life}");
    }
}

/// Adds `threads` threads that each take `steps` steps.
pub fn join(cast: &mut Cast, threads: u64, steps: u64) {
    let all = Rc::new(RefCell::new(Known { at_work: threads, ..Known::default() }));
    for _ in 0..threads {
        let all = Rc::clone(&all);
        cast.main("publisher", move |actor| {
            (0..steps).for_each(|_| step(actor, &all));
            all.borrow_mut().at_work -= 1;
            if all.borrow().at_work == 0 {
                check(actor, &all.borrow());
            }
        });
    }
}

fn name(n: u64) -> String {
    format!("published-{n}")
}

fn look<'g>(guard: &Guard<'g>, key: &Key<'_>) -> Hint<'g> {
    let mut hint = guard.prefetch_bucket(key);
    if guard.prefetch_item(key, &mut hint) {
        guard.prefetch_again(key, &mut hint);
    }
    hint
}

/// What is at a key: its life, its count, and the version that was seen.
fn peek(guard: &mut Guard<'_>, key: &Key<'_>) -> Option<((u64, u64), Seen)> {
    let item = guard.peek(key).hit()?;
    // Reads the version first, then the bytes: a large value may be overwritten in between.
    let seen = item.seen();
    Some((words(&collect(item.value())), seen))
}

fn step(actor: &mut Actor, all: &RefCell<Known>) {
    actor.batch(|guard, stage, random| {
        let n = random.below(KEYS);
        let name = name(n);
        let key = guard.key(name.as_bytes());
        let hint = look(guard, &key);
        let bytes = size(random);
        if random.below(3) == 0 {
            let mut made = None;
            let reads = random.below(2) == 0;
            let done = guard.replace_with(&key, &hint, reads, |old| {
                let (life, count) = words(old);
                made = Some((life, count + 1));
                Some(value(life, count + 1, bytes))
            });
            if done {
                all.borrow_mut().counted(n, made.expect("it was made of the old one"));
            }
            return;
        }
        match peek(guard, &key) {
            None => {
                let life = stage.number();
                if begin(guard, random, (&key, &hint), &value(life, 1, bytes)) {
                    all.borrow_mut().counted(n, (life, 1));
                }
            }
            Some(((life, count), seen)) => match random.below(8) {
                0 => {
                    if guard.delete(&key, Expect::Unchanged(seen)).is_ok() {
                        let before =
                            all.borrow_mut().lives.entry((n, life)).or_default().ended.replace(count);
                        assert_eq!(before, None, "{name} ended twice");
                    }
                }
                // Publishes a copy with an expiry, which changes the item's layout.
                1 => drop(guard.touch(&key, FAR)),
                _ => {
                    let bytes = value(life, count + 1, bytes);
                    if follow(guard, random, (&key, &hint), &bytes, Expect::Unchanged(seen)) {
                        all.borrow_mut().counted(n, (life, count + 1));
                    }
                }
            },
        }
    });
}

/// Stores a value if the key has none; returns whether it did.
fn begin(
    guard: &mut Guard<'_>,
    random: &mut Random,
    (key, hint): (&Key<'_>, &Hint<'_>),
    bytes: &[u8],
) -> bool {
    random.below(2) == 0 && guard.insert_value(key, bytes, hint)
        || follow(guard, random, (key, hint), bytes, Expect::Absent)
}

/// Stores a value if `expect` holds; returns whether it did.
fn follow(
    guard: &mut Guard<'_>,
    random: &mut Random,
    (key, hint): (&Key<'_>, &Hint<'_>),
    bytes: &[u8],
    expect: Expect,
) -> bool {
    let brief = random.below(3) == 0;
    let attributes = Attributes {
        expires_at: if brief { FAR } else { 0 },
        flags: random.below(2) as u32,
        ..Attributes::default()
    };
    let stored = match random.below(4) {
        0 => guard.store_value(key, bytes, &attributes, expect),
        1 => guard.upload(key, bytes.len() as u64, &attributes).and_then(|mut upload| {
            guard.upload_fill(&mut upload, bytes)?;
            guard.publish(upload, expect)
        }),
        _ => guard.store_value_hinted(key, bytes, &attributes, expect, hint),
    };
    stored.is_ok()
}

/// Stores a value unconditionally, in one of the ways.
pub fn set(guard: &mut Guard<'_>, random: &mut Random, key: &Key<'_>, bytes: &[u8]) {
    let hint = look(guard, key);
    let done = match random.below(4) {
        0 => guard.replace_value(key, bytes, &hint),
        1 => guard.insert_value(key, bytes, &hint),
        2 => follow(guard, random, (key, &hint), bytes, Expect::Any),
        _ => false,
    };
    if !done {
        guard.store_value(key, bytes, &Attributes::default(), Expect::Any).expect("there is memory");
    }
}

/// Checks at the end that each life counted 1, 2, 3 …, and that its last count is the one that was deleted,
/// or is still there.
fn check(actor: &mut Actor, known: &Known) {
    for n in 0..KEYS {
        let there = actor.batch(|guard, _, _| peek(guard, &guard.key(name(n).as_bytes())));
        let there = there.map(|(words, _)| words);
        for (&(_, life), Life { counts, ended }) in known.lives.range((n, 0)..(n + 1, 0)) {
            let last = counts.last().copied().unwrap_or(0);
            assert_eq!(counts.len() as u64, last, "a count of life {life} of key {n} was not acknowledged");
            let now = there.filter(|&(it, _)| it == life).map(|(_, count)| count);
            assert_eq!(ended.or(now), Some(last), "where life {life} of key {n} is: {ended:?}, {now:?}");
            assert!(ended.is_none() || now.is_none(), "life {life} of key {n} came back");
        }
    }
}
