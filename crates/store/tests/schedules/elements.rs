//! Collections that several threads change: a hash with a count and two fields that are always set together,
//! a list to which they push and from which they pop, and two sets between which members move in
//! transactions. In a store that evicts or is flushed a whole collection may be gone at any time, but never a
//! part of one.

use crate::stage::{Actor, Cast};
use larder_store::schedule::sleep;
use larder_store::{Collection, Declined, Element, End, Entries, Expect, Guard, Key, Touched, Type};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const HASH: &[u8] = b"elements-hash";
const LIST: &[u8] = b"elements-list";
const SETS: [&[u8]; 2] = [b"elements-one", b"elements-other"];
/// The first expiry of the hash, in milliseconds: it does not pass within a schedule. Each later one is 1 ms
/// later.
const FAR: u64 = 1 << 45;
/// Members of a set. The first four without the long one fit a leaf; all of them need a tree.
const MEMBERS: u64 = 60;

/// Acknowledged writes.
#[derive(Default)]
struct Known {
    counts: BTreeSet<i64>,
    pushed: i64,
    popped: BTreeSet<i64>,
    at_work: u64,
}

type All = Rc<RefCell<Known>>;

fn number(element: Element<'_>) -> i64 {
    element.number().expect("numbers were written")
}

/// The element that is pushed for a number: each ninth is so long that it lies outside of the leaf.
fn element(number: i64) -> String {
    if number % 9 == 0 { format!("{number:0>17000}") } else { number.to_string() }
}

/// A member of the sets: each thirteenth, one of the first four among them, lies outside of the leaf.
fn member(number: u64) -> String {
    if number % 13 == 2 { format!("{number:0>17000}") } else { number.to_string() }
}

/// The value of a field for a number: each fifth lies outside of the leaf.
fn value(number: u64) -> String {
    if number % 5 == 0 { format!("{number:0>17000}") } else { number.to_string() }
}

fn text(there: &Collection<'_>, element: &Element<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    there.each_part(element, |part| text.extend_from_slice(part));
    text
}

/// The numbers of some elements of a list.
fn numbers(list: &Collection<'_>, entries: Entries<'_>) -> Vec<i64> {
    let number = |text: Vec<u8>| String::from_utf8(text).ok()?.parse().ok();
    entries.map(|entry| number(text(list, &entry.name)).expect("numbers were written")).collect()
}

/// Adds `threads` threads that each take `steps` steps.
pub fn join(cast: &mut Cast, threads: u64, steps: u64) {
    let all = All::default();
    all.borrow_mut().at_work = threads;
    for _ in 0..threads {
        let all = Rc::clone(&all);
        cast.main("elements", move |actor| {
            (0..steps).for_each(|_| step(actor, &all));
            let mut known = all.borrow_mut();
            known.at_work -= 1;
            let last = known.at_work == 0;
            drop(known);
            if last {
                check(actor, &all);
            }
        });
    }
}

/// Adds a thread that watches the collections, and one that sets the hash's expiry, which all changes must
/// keep.
pub fn join_watched(cast: &mut Cast, steps: u64) {
    cast.main("watcher", move |actor| (0..steps).for_each(|_| watch(actor)));
    cast.main("dater", move |actor| (0..steps).for_each(|n| date(actor, FAR + n)));
}

/// All elements of a collection, in its order; `None` if the key has no collection.
fn contents(guard: &mut Guard<'_>, key: &Key<'_>, kind: Type) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let there = guard.collection(key, kind).expect("it has its type")?;
    let text = |element| text(&there, &element);
    Some(there.entries(0..there.len()).map(|entry| (text(entry.name), text(entry.value))).collect())
}

/// WATCH, a read, other work, and EXEC: a key whose flag is not set has the contents that it had.
fn watch(actor: &mut Actor) {
    let all = [(HASH, Type::Hash), (LIST, Type::List), (SETS[0], Type::Set)];
    let (name, kind) = all[actor.random.below(3) as usize];
    let flag = Touched::default();
    let seen = actor.batch(|guard, _, _| {
        let key = guard.key(name);
        guard.watch(0, &key, &flag).expect("there is memory for a watch");
        contents(guard, &key, kind)
    });
    if actor.random.below(2) == 0 {
        sleep(Duration::from_nanos(actor.random.below(50_000)));
    }
    actor.batch(|guard, _, _| {
        let key = guard.key(name);
        guard.begin([key]);
        let now = contents(guard, &key, kind);
        assert!(flag.load(Ordering::Relaxed) || now == seen, "it changed, and raised no flag");
        guard.finish();
    });
    actor.stage.store.unwatch(0, name, &flag);
}

/// Sets the hash's expiry, and reads it in a second batch: a thread that changed the hash between the two has
/// kept it.
fn date(actor: &mut Actor, at: u64) {
    let set = actor.batch(|guard, _, _| guard.touch(&guard.key(HASH), at).is_ok());
    if set {
        let kept =
            actor.batch(|guard, _, _| guard.peek(&guard.key(HASH)).hit().map(|item| item.expires_at()));
        assert_eq!(kept, Some(at), "the expiry that was set is not the hash's");
    }
}

/// Adds `threads` threads that each take `steps` steps; any collection may be gone at any time.
pub fn join_evicted(cast: &mut Cast, threads: u64, steps: u64) {
    for _ in 0..threads {
        cast.main("elements", move |actor| {
            (0..steps).for_each(|_| match actor.random.below(6) {
                0 | 1 => all_fields(actor),
                2 => three(actor),
                3 => change_sides(actor),
                4 => actor.batch(|guard, stage, random| {
                    let key = guard.key([HASH, LIST, SETS[0], SETS[1]][random.below(4) as usize]);
                    let _ = guard.touch(&key, stage.now() + random.below(2_000));
                    stage.pass(random.below(300));
                }),
                _ => actor.batch(|guard, _, random| {
                    let name = [HASH, LIST, SETS[0], SETS[1]][random.below(4) as usize];
                    let key = guard.key(name);
                    let _ = guard.delete(&key, Expect::Present);
                }),
            });
        });
    }
}

/// Sets all fields of a tree in one call, then reads them: all must have the value of the same call.
fn all_fields(actor: &mut Actor) {
    actor.batch(|guard, stage, _| {
        let key = guard.key(HASH);
        let number = stage.number();
        // Beside these fields there are two whose values may lie outside of the leaf.
        let (value, long) = (format!("{number:060}"), value(number));
        let names: Vec<String> = (0..MEMBERS).map(|n| n.to_string()).collect();
        let pairs = names.iter().map(|name| (name.as_bytes(), value.as_bytes()));
        let ends = ["first", "last"].map(|name| (name.as_bytes(), long.as_bytes()));
        let set = guard.hash_set(&key, ends.into_iter().chain(pairs));
        assert!(set.is_ok() || !stage.evicts, "a write is refused: {set:?}");
    });
    actor.batch(|guard, _, _| {
        let key = guard.key(HASH);
        let Some(hash) = guard.collection(&key, Type::Hash).expect("a hash") else { return };
        let first = hash.field(b"0");
        assert!(first.is_some(), "all of them were set");
        for n in 1..MEMBERS {
            assert_eq!(hash.field(n.to_string().as_bytes()), first, "a moment that never was");
        }
        let end = |name: &[u8]| hash.field(name).map(|value| text(&hash, &value)).expect("it was set, too");
        let (long, last) = (end(b"first"), end(b"last"));
        assert_eq!(long, last, "a moment that never was");
        let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
        let first = first.map(|first| text(&hash, &first)).and_then(|first| number(&first));
        assert_eq!(number(&long), first, "a moment that never was");
    });
}

/// Pushes three equal elements in one call, or pops three.
fn three(actor: &mut Actor) {
    actor.batch(|guard, stage, random| {
        let key = guard.key(LIST);
        if random.below(2) == 0 {
            let number = element(stage.number() as i64);
            let pushed = guard.list_push(&key, End::Back, [number.as_bytes(); 3].into_iter(), false);
            assert!(pushed.is_ok() || !stage.evicts, "a write is refused: {pushed:?}");
            return;
        }
        let popped = guard.list_pop(&key, End::Front, 3).expect("a list");
        let numbers = popped.map_or_else(Vec::new, |popped| numbers(popped.collection(), popped.entries()));
        assert!(matches!(numbers[..], [] | [_, _, _]), "{numbers:?}");
        assert!(numbers.windows(2).all(|two| two[0] == two[1]), "{numbers:?}");
    });
}

fn step(actor: &mut Actor, all: &All) {
    match actor.random.below(5) {
        0 => count(actor, all),
        1 => together(actor),
        2 => push(actor, all),
        3 => pop(actor, all),
        _ => change_sides(actor),
    }
}

/// Adds 1 to the count. The other fields give the leaf another length, and so another class, each time.
fn count(actor: &mut Actor, all: &All) {
    let padding = actor.random.below(200) as usize;
    let fields: Vec<String> =
        (0..actor.random.below(12)).map(|_| actor.random.below(80).to_string()).collect();
    let gone: Vec<String> = (0..actor.random.below(20)).map(|_| actor.random.below(80).to_string()).collect();
    let count = actor.batch(|guard, _, _| {
        let key = guard.key(HASH);
        let count = guard
            .hash_update(&key, b"count", |old| Ok::<_, Declined>((old.map_or(0, number) + 1).to_string()));
        guard.hash_set(&key, [(&b"padding"[..], &vec![b'x'; padding][..])].into_iter()).expect("memory");
        // Now and then there are so many fields that the hash becomes a tree.
        let pairs = fields.iter().map(|field| (field.as_bytes(), &b"some bytes of a value"[..]));
        guard.hash_set(&key, pairs).expect("memory");
        guard.remove_named(&key, Type::Hash, gone.iter().map(String::as_bytes)).expect("memory");
        count.expect("memory")
    });
    let count = count.parse().expect("a number");
    assert!(all.borrow_mut().counts.insert(count), "{count} was counted twice");
}

fn together(actor: &mut Actor) {
    actor.batch(|guard, stage, _| {
        let key = guard.key(HASH);
        let value = value(stage.number());
        let pairs = [(&b"one"[..], value.as_bytes()), (b"other", value.as_bytes())];
        guard.hash_set(&key, pairs.into_iter()).expect("memory");
    });
    actor.batch(|guard, _, _| {
        let key = guard.key(HASH);
        let hash = guard.collection(&key, Type::Hash).expect("a hash").expect("nothing takes it out");
        let field = |name: &[u8]| hash.field(name).map(|value| text(&hash, &value));
        assert_eq!(field(b"one"), field(b"other"), "a moment that never was");
    });
}

fn push(actor: &mut Actor, all: &All) {
    let numbers = {
        let mut known = all.borrow_mut();
        // Now and then the elements are enough for a tree.
        let many = if actor.random.below(8) == 0 { 40 } else { 1 };
        let numbers: Vec<String> = (known.pushed + 1..=known.pushed + many).map(element).collect();
        known.pushed += many;
        numbers
    };
    let end = if actor.random.below(3) == 0 { End::Front } else { End::Back };
    actor.batch(|guard, _, _| {
        let key = guard.key(LIST);
        guard.list_push(&key, end, numbers.iter().map(String::as_bytes), false).expect("memory");
    });
}

fn pop(actor: &mut Actor, all: &All) {
    let end = if actor.random.below(2) == 0 { End::Front } else { End::Back };
    let count = if actor.random.below(8) == 0 { 60 } else { 1 + actor.random.below(3) as usize };
    let popped: Vec<i64> = actor.batch(|guard, _, _| {
        let key = guard.key(LIST);
        let popped = guard.list_pop(&key, end, count).expect("memory");
        popped.map_or_else(Vec::new, |popped| numbers(popped.collection(), popped.entries()))
    });
    for number in popped {
        assert!(all.borrow_mut().popped.insert(number), "{number} was popped twice");
    }
}

/// Adds `threads` threads that each take `steps` steps at a list. They insert near one place of it, so that
/// leaves get other labels without a move. If the store evicts, the list may be gone at any time.
pub fn join_relabeled(cast: &mut Cast, threads: u64, steps: u64) {
    let all = All::default();
    all.borrow_mut().at_work = threads;
    for _ in 0..threads {
        let all = Rc::clone(&all);
        cast.main("relabeler", move |actor| {
            for _ in 0..steps {
                match actor.random.below(5) {
                    0 | 1 | 2 => put(actor, &all),
                    3 => push(actor, &all),
                    _ => pop(actor, &all),
                }
            }
            let mut known = all.borrow_mut();
            known.at_work -= 1;
            let last = known.at_work == 0;
            drop(known);
            if last && !actor.stage.evicts {
                check_list(actor, &all);
            }
        });
    }
}

/// Inserts some elements near one place of the list; half of them lie outside of the leaf.
fn put(actor: &mut Actor, all: &All) {
    let new: Vec<i64> = {
        let mut known = all.borrow_mut();
        let many = 1 + actor.random.below(6) as i64;
        known.pushed += many;
        (known.pushed - many + 1..=known.pushed).collect()
    };
    for number in new {
        let text = if number % 2 == 0 { format!("{number:0>17000}") } else { number.to_string() };
        actor.batch(|guard, _, random| {
            let key = guard.key(LIST);
            let place = 10 + random.below(2) as usize;
            let there = guard.list_insert_at(&key, place, text.as_bytes()).expect("memory");
            if there.is_none() {
                let text = std::iter::once(text.as_bytes());
                guard.list_push(&key, End::Back, text, false).expect("memory");
            }
        });
    }
    let there = actor.batch(|guard, _, _| {
        let key = guard.key(LIST);
        let list = guard.collection(&key, Type::List).expect("a list");
        list.map_or_else(Vec::new, |list| numbers(&list, list.entries(0..list.len())))
    });
    let once: BTreeSet<i64> = there.iter().copied().collect();
    assert_eq!(once.len(), there.len(), "an element that is there twice");
}

fn has(guard: &mut Guard<'_>, set: &[u8], member: &[u8]) -> bool {
    let key = guard.key(set);
    guard.collection(&key, Type::Set).expect("a set").is_some_and(|set| set.find(member).is_some())
}

/// Moves a member to the other set in a transaction. A thread that reads both sets in a transaction finds it
/// in one at most.
fn change_sides(actor: &mut Actor) {
    actor.batch(|guard, stage, random| {
        let few = random.below(2) == 0;
        let member = member(random.below(if few { 4 } else { MEMBERS }));
        let keys = SETS.map(|set| guard.key(set));
        guard.begin(keys);
        let there = SETS.map(|set| has(guard, set, member.as_bytes()));
        assert_ne!(there, [true, true], "{} bytes are in both", member.len());
        let to = usize::from(!there[1]);
        assert_eq!(guard.set_add(&keys[to], [member.as_bytes()].into_iter()), Ok(1));
        let gone = guard.remove_named(&keys[1 - to], Type::Set, [member.as_bytes()].into_iter());
        assert!(gone == Ok(usize::from(there[1 - to])) || stage.evicts && gone == Ok(0), "{gone:?}");
        guard.finish();
    });
}

/// Checks that no count is missing, and that each pushed element was popped or is in the list.
fn check(actor: &mut Actor, all: &All) {
    let count: i64 = actor.batch(|guard, _, _| {
        let key = guard.key(HASH);
        let count = guard.collection(&key, Type::Hash).expect("a hash").and_then(|hash| hash.field(b"count"));
        count.map_or(0, number)
    });
    assert!(all.borrow().counts.iter().copied().eq(1..=count), "{count} is not how many there were");
    check_list(actor, all);
}

/// Checks that each pushed element was popped or is in the list.
fn check_list(actor: &mut Actor, all: &All) {
    let known = all.borrow();
    let list: Vec<i64> = actor.batch(|guard, _, _| {
        let key = guard.key(LIST);
        let list = guard.collection(&key, Type::List).expect("a list");
        list.map_or_else(Vec::new, |list| numbers(&list, list.entries(0..list.len())))
    });
    let mut numbers = known.popped.clone();
    assert!(list.iter().all(|number| numbers.insert(*number)), "popped, and in the list");
    assert!(numbers.iter().copied().eq(1..=known.pushed), "pushed, and neither popped nor in the list");
}
