//! Keys that are awaited: a thread that writes a key for which another waits learns of that, also when a swap
//! of databases gave the key its value.

use crate::aside::DATABASES;
use crate::stage::{Actor, Cast};
use larder_store::schedule::{pass, sleep};
use larder_store::{End, Expect, Guard, Type};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Lists for which threads wait, in each of two databases.
const LISTS: [&[u8]; 3] = [b"awaited-1", b"awaited-2", b"awaited-3"];

/// A waiting thread: since which tick it waits, for which list, and in the database of which name.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: u64,
    since: u64,
    name: u8,
    list: usize,
}

type Waiting = Rc<RefCell<Vec<Waiter>>>;

/// Adds two threads that wait `steps` times each, one that pushes and deletes, and with `swaps` one that
/// swaps databases.
pub fn join(cast: &mut Cast, steps: u64, swaps: bool) {
    let waiting = Waiting::default();
    for _ in 0..2 {
        let waiting = Rc::clone(&waiting);
        cast.main("waiter", move |actor| (0..steps).for_each(|_| wait(actor, &waiting)));
    }
    let all = Rc::clone(&waiting);
    cast.aside("pusher", move |actor| push(actor, &all));
    if swaps {
        cast.aside("swapper", move |actor| swap(actor, &waiting));
    }
}

/// BLPOP: marks the key as awaited, then tries to pop. A thread that finds nothing waits for a while, and
/// then gives up.
fn wait(actor: &mut Actor, waiting: &Waiting) {
    let id = actor.stage.number();
    let name = DATABASES[actor.random.below(2) as usize];
    let list = actor.random.below(3) as usize;
    let popped = actor.batch(|guard, stage, _| {
        let key = guard.key_in(name, LISTS[list]);
        assert!(guard.await_key(name, &key), "there is memory for a watch");
        waiting.borrow_mut().push(Waiter { id, since: stage.tick(), name, list });
        let popped = guard.list_pop(&key, End::Front, 1).expect("memory");
        popped.is_some_and(|popped| !popped.is_empty())
    });
    if !popped {
        (0..actor.random.below(40)).for_each(|_| pass());
    }
    // From here on no writer needs to call this waiter; the key stays awaited for a while.
    waiting.borrow_mut().retain(|waiter| waiter.id != id);
    actor.stage.store.unawait(name, LISTS[list]);
}

/// Checks that the writer learns of each waiter for one of the written lists that began to wait before tick
/// `began` and still waits.
fn told(guard: &mut Guard<'_>, waiting: &Waiting, began: u64, written: &[(u8, usize)]) {
    let called = guard.take_called();
    for waiter in waiting.borrow().iter() {
        let its = (waiter.name, waiter.list);
        if waiter.since < began && written.contains(&its) {
            let told = called.iter().any(|(name, key)| (*name, &**key) == (its.0, LISTS[its.1]));
            assert!(told, "{waiter:?} is not told; those who are: {called:?}");
        }
    }
}

fn push(actor: &mut Actor, waiting: &Waiting) {
    sleep(Duration::from_nanos(actor.random.below(20_000)));
    actor.batch(|guard, stage, random| {
        let (name, list) = (DATABASES[random.below(2) as usize], random.below(3) as usize);
        let began = stage.tick();
        let key = guard.key_in(name, LISTS[list]);
        let written = match random.below(4) {
            0 => guard.delete(&key, Expect::Present).is_ok(),
            1 => guard.touch(&key, 1 << 45).is_ok(),
            _ => {
                let element = stage.number().to_string();
                guard.list_push(&key, End::Back, [element.as_bytes()].into_iter(), false).expect("memory");
                true
            }
        };
        let written = if written { vec![(name, list)] } else { Vec::new() };
        told(guard, waiting, began, &written);
    });
}

fn swap(actor: &mut Actor, waiting: &Waiting) {
    sleep(Duration::from_nanos(actor.random.below(100_000)));
    actor.batch(|guard, stage, random| {
        let both = [DATABASES[0], DATABASES[1 + random.below(2) as usize]];
        guard.begin_whole();
        let began = stage.tick();
        let there = |list: usize, guard: &mut Guard<'_>| {
            both.iter().any(|&name| {
                let key = guard.key_in(name, LISTS[list]);
                guard.collection(&key, Type::List).expect("a list").is_some()
            })
        };
        let lists: Vec<usize> = (0..LISTS.len()).filter(|&list| there(list, guard)).collect();
        let written: Vec<(u8, usize)> =
            both.iter().flat_map(|&name| lists.iter().map(move |&list| (name, list))).collect();
        guard.swap_databases(both[0], both[1]);
        stage.swapped(both[0], both[1]);
        told(guard, waiting, began, &written);
        guard.finish();
    });
}
