//! Long elements of collections are pinned, and sent from the store's memory, whatever happens to the
//! collections; others are received straight into that memory. A pinned element keeps its bytes, and each
//! element is whole.

use crate::stage::{Actor, Cast};
use larder_store::schedule::sleep;
use larder_store::{Declined, End, Expect, Guard, Key, Pinned, Type, Upload};
use std::time::Duration;

const LIST: &[u8] = b"sent-list";
/// The second list, to which elements of the first are moved, and back.
const OTHER: &[u8] = b"sent-other";
const HASH: &[u8] = b"sent-hash";
/// Most pins that a thread keeps from one batch to the next.
const PINS_MAX: usize = 3;
/// The fields of the hash.
const FIELDS: u64 = 4;

/// The element with a number: its text is this number, so long that it lies outside of the leaf.
fn element(number: u64) -> String {
    let bytes = 17_000 + (number % 4) as usize * 350;
    format!("{number:0>bytes$}")
}

/// Checks that the pinned bytes are one element, unchanged from its first byte to its last.
fn check(pinned: &Pinned) {
    let bytes: Vec<u8> = pinned.pieces(0).flatten().copied().collect();
    let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).expect("a number");
    assert!(bytes == element(number).as_bytes(), "{number} changed while it was sent");
}

/// Adds `threads` threads that each take `steps` steps; the collections may be gone at any time.
pub fn join(cast: &mut Cast, threads: u64, steps: u64) {
    for _ in 0..threads {
        cast.main("sender", move |actor| {
            let mut pins = Vec::new();
            (0..steps).for_each(|_| step(actor, &mut pins));
            pins.iter().for_each(check);
        });
    }
}

fn step(actor: &mut Actor, pins: &mut Vec<Pinned>) {
    match actor.random.below(16) {
        0..=3 => push(actor),
        4..=6 => set(actor),
        7..=9 => pins.extend(pop(actor)),
        10..=12 => pins.extend(look(actor)),
        13 => carry(actor),
        14 => actor.batch(|guard, _, random| {
            let key = guard.key([LIST, OTHER, HASH][random.below(3) as usize]);
            let _ = guard.delete(&key, Expect::Present);
        }),
        _ => sleep(Duration::from_nanos(actor.random.below(50_000))),
    }
    if pins.len() > PINS_MAX || !pins.is_empty() && actor.random.below(4) == 0 {
        let pinned = pins.swap_remove(actor.random.below(pins.len() as u64) as usize);
        check(&pinned);
    }
}

/// A completed upload of an element; `None` if there is no memory.
fn receive(guard: &mut Guard<'_>, key: &Key<'_>, element: &str) -> Option<Upload> {
    let mut upload = guard.upload_element(key, element.len() as u64).ok()?.expect("it is long enough");
    guard.upload_fill(&mut upload, element.as_bytes()).ok()?;
    Some(upload)
}

fn push(actor: &mut Actor) {
    actor.batch(|guard, stage, random| {
        let (key, element) = (guard.key(LIST), element(stage.number()));
        let end = if random.below(2) == 0 { End::Front } else { End::Back };
        let pushed = if random.below(2) == 0 {
            guard.list_push(&key, end, [element.as_bytes()].into_iter(), false)
        } else {
            let Some(upload) = receive(guard, &key, &element) else { return };
            guard.list_push_upload(&key, end, upload, random.below(4) == 0)
        };
        assert!(matches!(pushed, Ok(_) | Err(Declined::NoMemory)), "{pushed:?}");
    });
}

fn set(actor: &mut Actor) {
    actor.batch(|guard, stage, random| {
        let (key, value) = (guard.key(HASH), element(stage.number()));
        let field = random.below(FIELDS).to_string();
        let done = if random.below(2) == 0 {
            let pair = (field.as_bytes(), value.as_bytes());
            guard.hash_set(&key, [pair].into_iter()).map(drop)
        } else {
            let Some(upload) = receive(guard, &key, &value) else { return };
            guard.hash_set_upload(&key, field.as_bytes(), upload, random.below(4) == 0).map(drop)
        };
        assert!(matches!(done, Ok(()) | Err(Declined::NoMemory)), "{done:?}");
    });
}

/// Moves an element from an end of a list to an end of the other list, or of the same.
fn carry(actor: &mut Actor) {
    actor.batch(|guard, _, random| {
        let keys = [guard.key(LIST), guard.key(OTHER)];
        let [from, to, from_end, to_end] = [(); 4].map(|()| random.below(2) as usize);
        let ends = [End::Front, End::Back];
        guard.begin(keys);
        let carried = guard.list_carry((&keys[from], ends[from_end]), (&keys[to], ends[to_end]));
        guard.finish();
        assert!(matches!(carried, Ok(_) | Err(Declined::NoMemory)), "{carried:?}");
    });
}

/// Pops an element from a list, and pins it.
fn pop(actor: &mut Actor) -> Option<Pinned> {
    actor.batch(|guard, stage, random| {
        let key = guard.key([LIST, OTHER][random.below(2) as usize]);
        let end = if random.below(2) == 0 { End::Front } else { End::Back };
        let popped = guard.list_pop(&key, end, 1).ok()??;
        let apart = popped.entries().next()?.apart().expect("it is long");
        Some(popped.collection().pin(&stage.store, &apart))
    })
}

/// Pins an element of a list or a value of the hash, if connections may hold that much.
fn look(actor: &mut Actor) -> Option<Pinned> {
    actor.batch(|guard, stage, random| {
        let names = [(LIST, Type::List), (OTHER, Type::List), (HASH, Type::Hash)];
        let (name, kind) = names[random.below(3) as usize];
        let key = guard.key(name);
        let there = guard.collection(&key, kind).expect("it has its type")?;
        let nth = random.below(there.len() as u64) as usize;
        let apart = there.entry(nth).apart().expect("it is long");
        there.pin_for_reply(&stage.store, &apart)
    })
}
