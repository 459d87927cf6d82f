//! Removals of elements from collections in a store that evicts nothing and is full to the last chunk.

use larder_store::{
    Adding, Attributes, Collection, Config, DIGITS_MAX, Declined, End, Eviction, Expect, Guard, Key,
    NewFields, NewId, ScoreRule, Start, Store, StreamId, TakenOut, Trim, TrimTo, Type, Value,
};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
/// Most bytes that a full store may take beyond its limit for leftovers of collections.
const BEYOND_BYTES: u64 = 8 * 64 * 1024;

fn store(mebibytes: u64) -> Arc<Store> {
    let store = Store::new(Config { memory_bytes: mebibytes << 20, ..Config::default() }).unwrap();
    store.set_eviction(Eviction::Off);
    store
}

/// Stores strings of all sizes until no class has a free chunk.
fn fill_up(guard: &mut Guard<'_>, number: &mut u32) {
    // The longest come first: a span that is cut into short chunks has none for long values.
    for bytes in (8..16_300).rev().step_by(8) {
        loop {
            *number += 1;
            let name = format!("fill {number:08}");
            let key = guard.key(name.as_bytes());
            let value = vec![b'x'; bytes];
            if guard.store_value(&key, &value, &Attributes::default(), Expect::Any).is_err() {
                break;
            }
        }
    }
}

fn name(n: usize) -> String {
    format!("m{n:04}")
}

/// The element of a list with this number: one of forty is so long that it lies outside of the leaf.
fn element(n: usize) -> String {
    if n % 40 == 5 { format!("{:x<17000}", name(n)) } else { name(n) }
}

/// Stores collections of every type and of many sizes: returns their keys, their types, and how many elements
/// each has.
fn collections(guard: &mut Guard<'_>) -> Vec<(String, Type, usize)> {
    let mut made = Vec::new();
    for elements in [1, 2, 3, 7, 20, 60, 200, 600, 2_000] {
        for kind in [Type::Hash, Type::Set, Type::SortedSet, Type::List, Type::Stream] {
            let key_name = format!("{kind:?} {elements}");
            let key = guard.key(key_name.as_bytes());
            for n in 0..elements {
                let name = name(n);
                let name = || std::iter::once(name.as_bytes());
                match kind {
                    Type::Hash => drop(guard.hash_set(&key, name().map(|name| (name, name))).unwrap()),
                    Type::Set => drop(guard.set_add(&key, name()).unwrap()),
                    Type::SortedSet => {
                        let pairs = name().map(|name| (n as f64 * 0.1, name));
                        guard.sorted_add(&key, ScoreRule::default(), pairs).unwrap();
                    }
                    Type::List => {
                        let element = element(n);
                        let element = std::iter::once(element.as_bytes());
                        guard.list_push(&key, End::Back, element, false).unwrap();
                    }
                    Type::Stream => add(guard, &key, n),
                }
            }
            made.push((key_name, kind, elements));
        }
    }
    made
}

fn id(n: usize) -> StreamId {
    StreamId { ms: n as u64 + 1, seq: 0 }
}

/// Adds an entry to a stream; its only field has the name for `n`.
fn add(guard: &mut Guard<'_>, key: &Key<'_>, n: usize) {
    let name = name(n);
    let fields = NewFields::of(std::iter::once((name.as_bytes(), name.as_bytes()))).unwrap();
    let id = NewId::Is(id(n));
    let adding =
        Adding { id, now: NOW, fields: &fields, apart: &[], present: false, trim: None, at_once: true };
    guard.stream_add(key, &adding).unwrap();
}

/// Removes the element with number `n`, which is the collection's first; returns how many were removed.
fn take_out(guard: &mut Guard<'_>, key_name: &str, kind: Type, n: usize) -> Result<usize, Declined> {
    let key = guard.key(key_name.as_bytes());
    let name = name(n);
    match (kind, n % 3) {
        (Type::Hash | Type::Set, _) | (Type::SortedSet, 0) => {
            guard.remove_named(&key, kind, std::iter::once(name.as_bytes()))
        }
        (Type::SortedSet, _) => {
            guard.sorted_remove(&key, |_| 0..1).map(|gone| gone.map_or(0, |gone| gone.len()))
        }
        (Type::List, 0) => guard.list_remove(&key, End::Front, 1, element(n).as_bytes()),
        (Type::List, 1) => guard.list_pop(&key, End::Front, 1).map(|gone| gone.map_or(0, |gone| gone.len())),
        (Type::List, _) => guard.list_trim(&key, |len| 1..len).map(|trimmed| usize::from(trimmed.there)),
        (Type::Stream, 0) => {
            let trim = Trim { to: TrimTo::Id(id(n + 1)), about: false, limit: None };
            guard.stream_trim(&key, &trim, true).map(|done| done.count as usize)
        }
        (Type::Stream, _) => guard.stream_delete(&key, std::iter::once(id(n))),
    }
}

fn names_of(collection: &Collection<'_>) -> Vec<String> {
    let text = |element: larder_store::Element<'_>| {
        let mut text = Vec::new();
        collection.each_part(&element, |part| text.extend_from_slice(part));
        String::from_utf8(text).unwrap()
    };
    if let Some(stream) = collection.stream() {
        return stream
            .entries(0..stream.len())
            .filter_map(|mut entry| Some(text(entry.fields.next()?.0)))
            .collect();
    }
    let mut names: Vec<String> =
        collection.entries(0..collection.len()).map(|entry| text(entry.name)).collect();
    names.sort();
    names
}

/// Other writes take all memory that a removal frees, and still each removal succeeds.
#[test]
fn every_removal_is_done_in_a_full_store() {
    let store = store(16);
    let mut worker = store.worker().unwrap();
    let mut number = 0;
    let made = collections(&mut worker.enter(NOW));
    fill_up(&mut worker.enter(NOW), &mut number);
    let refused = {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"Set 600");
        guard.set_add(&key, std::iter::once(&b"one more"[..]))
    };
    assert_eq!(refused, Err(Declined::NoMemory), "the store is full");
    // Each round removes one element of each collection, so that leaves of all sizes are needed one after
    // another.
    for n in 0..8 {
        for (key_name, kind, elements) in made.iter().filter(|(.., elements)| n < *elements) {
            let mut guard = worker.enter(NOW);
            assert_eq!(take_out(&mut guard, key_name, *kind, n), Ok(1), "{key_name}, {n} of {elements}");
            let key = guard.key(key_name.as_bytes());
            let left: Vec<String> = match guard.peek(&key).hit().map(|item| item.value()) {
                Some(Value::Collection(there)) => names_of(&there.elements()),
                None => Vec::new(),
                Some(_) => panic!("{key_name} is no collection any more"),
            };
            let name = if *kind == Type::List { element } else { name };
            assert!(left == (n + 1..*elements).map(name).collect::<Vec<_>>(), "{key_name}, {n}");
        }
        fill_up(&mut worker.enter(NOW), &mut number);
        let limit = store.memory_bytes();
        assert!(store.used_bytes() <= limit + BEYOND_BYTES, "{} of {limit}", store.used_bytes());
    }
    // Once there is memory, no part stays outside of its collection's item.
    let mut guard = worker.enter(NOW);
    for n in 1..=number {
        let name = format!("fill {n:08}");
        let key = guard.key(name.as_bytes());
        let _ = guard.delete(&key, Expect::Present);
    }
    drop(guard);
    for _ in 0..1_000 {
        worker.enter(NOW).maintain();
    }
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"Set 600");
    assert_eq!(guard.set_add(&key, std::iter::once(&b"one more"[..])), Ok(1));
    drop(guard);
    store.check_behind(worker);
}

/// Another worker's batch keeps in limbo what each removal frees, until the store has taken all that it may
/// beyond its limit. The result counts the members that were removed; all others stay.
#[test]
fn members_that_are_gone_when_memory_ends_are_told() {
    const MEMBERS: u32 = 100_000;
    let config = Config { memory_bytes: 8 << 20, workers_max: 2, ..Config::default() };
    let store = Store::new(config).unwrap();
    store.set_eviction(Eviction::Off);
    let (mut worker, mut stuck) = (store.worker().unwrap(), store.worker().unwrap());
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"set");
    let members = members(MEMBERS);
    for some in members.chunks(100) {
        guard.set_add(&key, some.iter().map(|member| &member[..])).unwrap();
    }
    drop(guard);
    fill_up(&mut worker.enter(NOW), &mut 0);
    worker.set_patient(false);
    let batch = stuck.enter(NOW);
    let mut guard = worker.enter(NOW);
    let some = &members[..8_000];
    let gone = guard.remove_some_named(&key, Type::Set, some.iter().map(|member| &member[..])).unwrap();
    let (looked, declined) = gone.stopped.expect("no memory for so many");
    assert_eq!((gone.count, declined), (looked, Declined::NoMemory));
    assert!((1..some.len()).contains(&looked), "{looked}");
    assert!(!guard.in_transaction());
    let there = guard.collection(&key, Type::Set).unwrap().unwrap();
    assert_eq!(there.len(), members.len() - looked);
    assert!(!some[..looked].iter().any(|member| there.has(member)));
    assert!(some[looked..].iter().all(|member| there.has(member)));
    // A second removal of these members finds none of them, and needs no memory.
    let again = some[..looked].iter().map(|member| &member[..]);
    assert_eq!(guard.remove_some_named(&key, Type::Set, again), Ok(TakenOut { count: 0, stopped: None }));
    guard.delete(&key, Expect::Present).unwrap();
    drop(guard);
    drop(batch);
    drop(stuck);
    worker.rest();
    store.check_behind(worker);
}

/// `count` members, spread over all parts of a tree.
fn members(count: u32) -> Vec<[u8; 12]> {
    let member = |n: u32| {
        let mut member = [b'm'; 12];
        member[..4].copy_from_slice(&n.wrapping_mul(2_654_435_761).to_be_bytes());
        member
    };
    (0..count).map(member).collect()
}

/// Removing many members of a tree in one step would need a new node for each of its nodes, beside the old
/// ones: so they are removed one after another.
#[test]
fn many_members_are_taken_out_of_a_full_store_at_once() {
    const MEMBERS: u32 = 100_000;
    let store = store(8);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"set");
    let members = members(MEMBERS);
    for some in members.chunks(100) {
        guard.set_add(&key, some.iter().map(|member| &member[..])).unwrap();
    }
    let mut number = 0;
    drop(guard);
    fill_up(&mut worker.enter(NOW), &mut number);
    let mut guard = worker.enter(NOW);
    let mut left = MEMBERS as usize;
    for some in members.chunks(512).take(6) {
        let gone = guard.remove_named(&key, Type::Set, some.iter().map(|member| &member[..]));
        assert_eq!(gone, Ok(some.len()), "{left} are left");
        left -= some.len();
        assert!(!guard.in_transaction());
        let there = guard.collection(&key, Type::Set).unwrap().unwrap();
        assert_eq!(there.len(), left);
        assert!(some.iter().all(|member| !there.has(member)));
        fill_up(&mut guard, &mut number);
    }
    guard.delete(&key, Expect::Present).unwrap();
    drop(guard);
    worker.rest();
    store.check_behind(worker);
}

/// Many elements of a list are removed in the same way, also those at its ends.
#[test]
fn many_elements_are_taken_out_of_a_list_in_a_full_store_at_once() {
    const ELEMENTS: usize = 100_000;
    let store = store(8);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"list");
    let elements: Vec<String> = (0..ELEMENTS).map(|n| format!("element {}", n % 10)).collect();
    for some in elements.chunks(1_000) {
        guard.list_push(&key, End::Back, some.iter().map(String::as_bytes), false).unwrap();
    }
    drop(guard);
    let mut number = 0;
    fill_up(&mut worker.enter(NOW), &mut number);
    let mut guard = worker.enter(NOW);
    for (n, end) in [(3, End::Front), (7, End::Back)] {
        let gone = guard.list_remove(&key, end, 6_000, format!("element {n}").as_bytes());
        assert_eq!(gone, Ok(6_000));
        assert!(!guard.in_transaction());
        fill_up(&mut guard, &mut number);
    }
    let list = guard.collection(&key, Type::List).unwrap().unwrap();
    assert_eq!(list.len(), ELEMENTS - 12_000);
    let of = |n: usize| {
        list.entries(0..list.len())
            .filter(move |entry| entry.name.text(&mut [0; DIGITS_MAX]).ends_with(n.to_string().as_bytes()))
            .count()
    };
    assert_eq!([of(2), of(3), of(7)], [10_000, 4_000, 4_000]);
    for (end, count) in [(End::Front, 5_000), (End::Back, 30_000)] {
        assert_eq!(guard.list_pop(&key, end, count).unwrap().unwrap().len(), count);
        fill_up(&mut guard, &mut number);
    }
    let trimmed = guard.list_trim(&key, |len| 10_000..len - 10_000).unwrap();
    assert_eq!((trimmed.front, trimmed.back, trimmed.more), (10_000, 10_000, false));
    assert_eq!(guard.collection(&key, Type::List).unwrap().unwrap().len(), 33_000);
    guard.delete(&key, Expect::Present).unwrap();
    drop(guard);
    worker.rest();
    store.check_behind(worker);
}

/// Entries of a stream, and a group's pending entries, are removed in the same way.
#[test]
fn many_rows_are_taken_out_of_a_stream_in_a_full_store_at_once() {
    const ENTRIES: usize = 40_000;
    let store = store(8);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"stream");
    (0..ENTRIES).for_each(|n| add(&mut guard, &key, n));
    guard.group_create(&key, b"group", Start::Behind(StreamId::MIN), None, false).unwrap();
    for consumer in [&b"one"[..], b"two", b"three"] {
        assert_eq!(guard.group_read(&key, (b"group", consumer), NOW, 10_000, true).unwrap().count, 10_000);
    }
    drop(guard);
    let mut number = 0;
    fill_up(&mut worker.enter(NOW), &mut number);
    let mut guard = worker.enter(NOW);
    let spread = |n: usize| (0..512).map(move |i| id((i * 7_919 * 3 + n) % 30_000));
    assert_eq!(guard.group_ack(&key, b"group", spread(1)), Ok(512));
    fill_up(&mut guard, &mut number);
    assert_eq!(guard.stream_delete(&key, spread(2)), Ok(512));
    assert!(!guard.in_transaction());
    fill_up(&mut guard, &mut number);
    let mut done = guard.group_destroy(&key, b"group", 1_024).unwrap();
    let mut gone = done.pending;
    while done.more {
        fill_up(&mut guard, &mut number);
        done = guard.group_removal(&key, 1_024).unwrap();
        gone += done.pending;
    }
    fill_up(&mut guard, &mut number);
    assert_eq!(gone, 30_000 - 512);
    let trim = Trim { to: TrimTo::Len(10), about: false, limit: None };
    assert_eq!(guard.stream_trim(&key, &trim, true).unwrap().count as usize, ENTRIES - 512 - 10);
    drop(guard);
    worker.rest();
    store.check_behind(worker);
}

/// A collection of one leaf can get an expiry in a full store, too.
#[test]
fn collections_get_an_expiry_in_a_full_store() {
    let store = store(16);
    let mut worker = store.worker().unwrap();
    let made = collections(&mut worker.enter(NOW));
    let mut number = 0;
    fill_up(&mut worker.enter(NOW), &mut number);
    let mut guard = worker.enter(NOW);
    for (key_name, ..) in &made {
        let key = guard.key(key_name.as_bytes());
        assert_eq!(guard.touch(&key, NOW + 1_000), Ok(()), "{key_name}");
        assert_eq!(guard.peek(&key).hit().unwrap().expires_at(), NOW + 1_000);
    }
    drop(guard);
    store.check_behind(worker);
}
