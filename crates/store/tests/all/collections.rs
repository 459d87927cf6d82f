//! Collections as items: the operations on them, and what happens to any item.

use crate::plain::store;
use larder_store::{
    Attributes, Collection, Config, DIGITS_MAX, Declined, Element, End, Event, Eviction, Expect, Guard, Key,
    Lookup, Refusal, ScoreRule, Store, Type, Value, Worker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NOW: u64 = 1_700_000_000_000;

fn text(element: Element<'_>) -> String {
    String::from_utf8(element.text(&mut [0; DIGITS_MAX]).to_vec()).unwrap()
}

fn pairs<'p>(pairs: &'p [(&'p str, &'p str)]) -> impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone {
    pairs.iter().map(|(field, value)| (field.as_bytes(), value.as_bytes()))
}

fn names<'p>(names: &'p [&'p str]) -> impl Iterator<Item = &'p [u8]> + Clone {
    names.iter().map(|name| name.as_bytes())
}

/// The elements of a collection as text, in its order.
fn shown(collection: &Collection<'_>) -> String {
    let entries = collection.entries(0..collection.len()).map(|entry| match collection.kind() {
        Type::Hash => format!("{}={}", text(entry.name), text(entry.value)),
        Type::SortedSet => format!("{}:{}", text(entry.name), entry.score),
        Type::Set | Type::List | Type::Stream => text(entry.name),
    });
    entries.collect::<Vec<_>>().join(" ")
}

fn show(guard: &mut Guard<'_>, key: &Key<'_>) -> String {
    match guard.peek(key).hit().map(|item| item.value()) {
        Some(Value::Collection(there)) => shown(&there.elements()),
        Some(Value::Whole(value)) => format!("{:?}", String::from_utf8_lossy(value)),
        Some(Value::Pieces(_)) => "pieces".to_owned(),
        None => "nothing".to_owned(),
    }
}

fn cas(guard: &mut Guard<'_>, key: &Key<'_>) -> u64 {
    guard.peek(key).hit().map_or(0, |item| item.cas())
}

#[test]
fn fields_of_a_hash_are_set_read_and_taken_out() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"hash");
    assert_eq!(guard.collection(&key, Type::Hash).map(|there| there.is_none()), Ok(true));
    assert_eq!(guard.hash_set(&key, pairs(&[("a", "1"), ("b", "two"), ("a", "3")])), Ok(2));
    assert_eq!(show(&mut guard, &key), "a=3 b=two");
    let hash = guard.collection(&key, Type::Hash).unwrap().unwrap();
    assert_eq!((hash.kind(), hash.len()), (Type::Hash, 2));
    assert_eq!(hash.field(b"a"), Some(Element::Number(3)));
    assert_eq!(hash.field(b"b"), Some(Element::of(b"two")));
    assert_eq!(hash.field(b"c"), None);
    assert_eq!(guard.hash_insert(&key, b"a", b"x"), Ok(false));
    assert_eq!(guard.hash_insert(&key, b"c", b""), Ok(true));
    assert_eq!(guard.remove_named(&key, Type::Hash, names(&["a", "nobody", "a"])), Ok(1));
    assert_eq!(show(&mut guard, &key), "b=two c=");
    let added = guard.hash_update(&key, b"n", |old| {
        let old = old.map_or(Some(40), |old| old.number());
        Ok::<_, Declined>((old.unwrap() + 2).to_string())
    });
    assert_eq!(added.as_deref(), Ok("42"));
    let refused = guard.hash_update(&key, b"b", |old| match old.unwrap().number() {
        Some(_) => Ok(""),
        None => Err(Declined::NotANumber),
    });
    assert_eq!(refused, Err(Declined::NotANumber));
    assert_eq!(show(&mut guard, &key), "b=two c= n=42");
    assert_eq!(guard.remove_named(&key, Type::Hash, names(&["n", "c", "b"])), Ok(3));
    assert!(guard.peek(&key).hit().is_none(), "the last field takes the key with it");
    assert_eq!(guard.remove_named(&key, Type::Hash, names(&["n"])), Ok(0));
    drop(guard);
    store.check_behind(worker);
    assert_eq!(store.totals().items, 0);
}

#[test]
fn members_of_a_set_are_there_once() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"set");
    assert_eq!(guard.set_add(&key, names(&["x", "10", "y", "x", "010"])), Ok(4));
    let before = cas(&mut guard, &key);
    assert_eq!(guard.set_add(&key, names(&["y", "10"])), Ok(0));
    assert_eq!(cas(&mut guard, &key), before, "nothing was written");
    assert_eq!(show(&mut guard, &key), "x 10 y 010");
    let set = guard.collection(&key, Type::Set).unwrap().unwrap();
    assert_eq!((set.find(b"10"), set.find(b"010"), set.find(b"0")), (Some(1), Some(3), None));
    assert_eq!(guard.remove_named(&key, Type::Set, names(&["10", "0"])), Ok(1));
    assert_eq!(show(&mut guard, &key), "x y 010");
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_list_is_pushed_popped_and_changed_at_both_ends_and_between() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"list");
    assert_eq!(guard.list_push(&key, End::Back, names(&["x"]), true), Ok(0));
    assert!(guard.list_pop(&key, End::Front, 1).unwrap().is_none());
    assert_eq!(guard.list_push(&key, End::Back, names(&["a", "b"]), false), Ok(2));
    assert_eq!(guard.list_push(&key, End::Front, names(&["1", "2"]), true), Ok(4));
    assert_eq!(show(&mut guard, &key), "2 1 a b");
    let popped = guard.list_pop(&key, End::Back, 2).unwrap().unwrap();
    assert_eq!(popped.entries_back().map(|entry| text(entry.name)).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!((popped.len(), popped.is_empty()), (2, false));
    assert!(guard.list_pop(&key, End::Back, 0).unwrap().unwrap().is_empty());
    assert_eq!(guard.list_push(&key, End::Back, names(&["1", "c", "1", "1"]), false), Ok(6));
    assert_eq!(guard.list_insert(&key, End::Back, b"c", b"d"), Ok(Some(7)));
    assert_eq!(guard.list_insert(&key, End::Front, b"2", b"first"), Ok(Some(8)));
    assert_eq!(guard.list_insert(&key, End::Front, b"nobody", b"x"), Ok(Some(0)));
    assert_eq!(show(&mut guard, &key), "first 2 1 1 c d 1 1");
    assert_eq!(guard.list_remove(&key, End::Back, 3, b"1"), Ok(3));
    assert_eq!(show(&mut guard, &key), "first 2 1 c d");
    assert_eq!(guard.list_set(&key, b"last", |len| len.checked_sub(1)), Ok(Some(true)));
    assert_eq!(guard.list_set(&key, b"x", Some), Ok(Some(false)));
    assert_eq!(guard.list_trim(&key, |len| 1..len).map(|trimmed| trimmed.there), Ok(true));
    assert_eq!(show(&mut guard, &key), "2 1 c last");
    assert_eq!(guard.list_remove(&key, End::Front, usize::MAX, b"c"), Ok(1));
    assert_eq!(guard.list_trim(&key, |len| len..1).map(|trimmed| trimmed.there), Ok(true));
    assert!(guard.peek(&key).hit().is_none());
    assert_eq!(guard.list_trim(&key, |_| 0..1).map(|trimmed| trimmed.there), Ok(false));
    assert_eq!(guard.list_set(&key, b"x", |_| Some(0)), Ok(None));
    assert_eq!(guard.list_insert(&key, End::Front, b"2", b"x"), Ok(None));
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn members_of_a_sorted_set_are_in_order_under_every_rule() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"scores");
    let rule = ScoreRule::default();
    let add = |guard: &mut Guard<'_>, rule, pairs: &[(f64, &str)]| {
        guard.sorted_add(&key, rule, pairs.iter().map(|(score, member)| (*score, member.as_bytes()))).unwrap()
    };
    let present = ScoreRule { present: true, ..rule };
    assert_eq!(add(&mut guard, present, &[(1.0, "x")]).new, 0);
    assert!(guard.peek(&key).hit().is_none());
    let all = [(2.0, "b"), (1.0, "c"), (2.0, "a"), (-1.5, "10"), (f64::INFINITY, "z")];
    assert_eq!(add(&mut guard, rule, &all).new, 5);
    assert_eq!(show(&mut guard, &key), "10:-1.5 c:1 a:2 b:2 z:inf");
    let before = cas(&mut guard, &key);
    let same = add(&mut guard, rule, &[(2.0, "a")]);
    assert_eq!((same.new, same.changed, same.score), (0, 0, Some(2.0)));
    assert_eq!(cas(&mut guard, &key), before, "the same score is no change");
    let higher = ScoreRule { higher: true, ..rule };
    let scored = add(&mut guard, higher, &[(1.0, "a"), (3.0, "b"), (0.5, "new")]);
    assert_eq!((scored.new, scored.changed), (1, 1));
    assert_eq!(show(&mut guard, &key), "10:-1.5 new:0.5 c:1 a:2 b:3 z:inf");
    let lower = ScoreRule { lower: true, ..rule };
    assert_eq!(add(&mut guard, lower, &[(9.0, "a"), (-2.0, "a")]).changed, 1);
    let absent = ScoreRule { absent: true, ..rule };
    let scored = add(&mut guard, absent, &[(7.0, "a")]);
    assert_eq!((scored.new, scored.changed, scored.score), (0, 0, None));
    let added = ScoreRule { added: true, ..rule };
    assert_eq!(add(&mut guard, added, &[(0.25, "new")]).score, Some(0.75));
    assert_eq!(add(&mut guard, added, &[(-0.0, "zero")]).score.map(f64::to_bits), Some(0.0_f64.to_bits()));
    let nan = guard.sorted_add(&key, added, [(f64::NEG_INFINITY, &b"z"[..])].into_iter());
    assert_eq!(nan, Err(Declined::NotANumber));
    assert_eq!(show(&mut guard, &key), "a:-2 10:-1.5 zero:0 new:0.75 c:1 b:3 z:inf");
    let set = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
    assert_eq!((set.score(b"c"), set.score(b"d"), set.find(b"c")), (Some(1.0), None, Some(4)));
    assert_eq!((set.below(0.75, false), set.below(0.75, true)), (3, 4));
    let gone = guard.sorted_remove(&key, |set| set.below(0.0, false)..set.below(1.0, true)).unwrap().unwrap();
    let gone: Vec<_> = gone.entries().map(|entry| (text(entry.name), entry.score)).collect();
    assert_eq!(gone, [("zero".to_owned(), 0.0), ("new".to_owned(), 0.75), ("c".to_owned(), 1.0)]);
    assert_eq!(guard.remove_named(&key, Type::SortedSet, names(&["10", "b", "x"])), Ok(2));
    assert_eq!(show(&mut guard, &key), "a:-2 z:inf");
    assert_eq!(guard.sorted_remove(&key, |_| 0..usize::MAX).unwrap().unwrap().len(), 2);
    assert!(guard.sorted_remove(&key, |_| 0..1).unwrap().is_none());
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn an_item_is_of_one_type_until_it_is_stored_over() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let attributes = Attributes { flags: 7, ..Attributes::default() };
    guard.store_value(&key, b"string", &attributes, Expect::Any).unwrap();
    assert_eq!(guard.set_add(&key, names(&["a"])), Err(Declined::Type));
    assert_eq!(guard.collection(&key, Type::Set).map(drop), Err(Declined::Type));
    guard.delete(&key, Expect::Present).unwrap();
    guard.set_add(&key, names(&["a"])).unwrap();
    let before = cas(&mut guard, &key);
    assert_eq!(guard.hash_set(&key, pairs(&[("a", "1")])), Err(Declined::Type));
    assert_eq!(guard.list_pop(&key, End::Front, 1).map(drop), Err(Declined::Type));
    assert_eq!(guard.sorted_remove(&key, |_| 0..1).map(drop), Err(Declined::Type));
    assert_eq!(guard.collection(&key, Type::List).map(drop), Err(Declined::Type));
    // Operations on strings that need the old value are refused.
    assert_eq!(guard.concat(&key, b"more", End::Back, None, Expect::Any), Err(Refusal::Type));
    assert_eq!(guard.overlay(&key, 1, b"more", Expect::Any), Err(Refusal::Type));
    assert_eq!(guard.patch(&key, 0, b"more", Expect::Any), Ok(None));
    let mut hint = guard.prefetch_bucket(&key);
    guard.prefetch_item(&key, &mut hint);
    assert!(guard.plain_value(&key, &hint).is_none());
    assert!(!guard.replace_value(&key, b"string", &hint));
    assert!(!guard.insert_value(&key, b"string", &hint));
    assert_eq!((show(&mut guard, &key), cas(&mut guard, &key)), ("a".to_owned(), before));
    // Operations that do not need the old value replace the collection.
    let refused = guard.store_value(&key, b"string", &attributes, Expect::Absent);
    assert_eq!(refused, Err(Refusal::Present));
    let stored = guard.store_value_hinted(&key, b"string", &attributes, Expect::Any, &hint).unwrap();
    assert!(stored.replaced && stored.cas > before);
    assert_eq!(show(&mut guard, &key), "\"string\"");
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn expiry_stays_when_elements_change_and_can_be_given_and_taken() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    for name in [&b"key"[..], &[b'k'; 300], &[b'k'; 9_000]] {
        let key = guard.key_in(3, name);
        guard.set_add(&key, names(&["a"])).unwrap();
        let before = cas(&mut guard, &key);
        guard.touch(&key, NOW + 5_000).unwrap();
        assert_eq!(cas(&mut guard, &key), before, "an expiry is no other version");
        assert_eq!(show(&mut guard, &key), "a");
        guard.set_add(&key, names(&["b"])).unwrap();
        assert!(cas(&mut guard, &key) > before);
        assert_eq!(guard.peek(&key).hit().unwrap().expires_at(), NOW + 5_000);
        guard.touch(&key, 0).unwrap();
        guard.remove_named(&key, Type::Set, names(&["a"])).unwrap();
        assert_eq!(guard.peek(&key).hit().unwrap().expires_at(), 0);
        guard.touch(&key, NOW + 1_000).unwrap();
    }
    drop(guard);
    let mut guard = worker.enter(NOW + 1_000);
    let key = guard.key_in(3, b"key");
    assert_eq!(guard.set_add(&key, names(&["c"])), Ok(1));
    assert_eq!(show(&mut guard, &key), "c", "what had expired is not added to");
    assert_eq!(guard.peek(&key).hit().unwrap().expires_at(), 0);
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_list_of_one_element_is_as_large_as_a_chunk_and_what_is_longer_lies_apart() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    for name in [&b"key"[..], &[b'k'; 300], &[b'k'; 8_192], &[b'k'; 8_193]] {
        let key = guard.key(name);
        let max = key.collection_bytes_max();
        // The item of a list of one element has a head, a code and the element's length in front.
        let in_item = vec![b'x'; max - 8 - 1 - 2];
        let fits = vec![b'x'; 16_384 - 16 - 8 - 1 - 2];
        let long = vec![b'x'; fits.len() + 1];
        let too_long = vec![b'x'; guard.store().element_bytes_max() + 1];
        let one = |element| std::iter::once(element);
        assert_eq!(guard.list_push(&key, End::Back, one(&too_long[..]), false), Err(Declined::TooLarge));
        assert!(guard.peek(&key).hit().is_none());
        assert_eq!(guard.list_push(&key, End::Back, one(&in_item[..]), false), Ok(1));
        assert_eq!(guard.peek(&key).hit().unwrap().value_bytes(), max as u64);
        // The list gets an expiry, for which its item has no word yet.
        guard.touch(&key, NOW + 1_000).unwrap();
        guard.list_set(&key, &in_item, |_| Some(0)).unwrap();
        assert_eq!(guard.peek(&key).hit().unwrap().value_bytes(), max as u64);
        let is_apart = |guard: &mut Guard<'_>, place| {
            let list = guard.collection(&key, Type::List).unwrap().unwrap();
            matches!(list.entry(place).name, Element::Apart(_))
        };
        guard.list_set(&key, &fits, |_| Some(0)).unwrap();
        assert!(!is_apart(&mut guard, 0));
        let before = cas(&mut guard, &key);
        assert_eq!(guard.list_set(&key, &too_long, |_| Some(0)), Err(Declined::TooLarge));
        assert_eq!(cas(&mut guard, &key), before);
        guard.list_set(&key, &long, |_| Some(0)).unwrap();
        assert!(is_apart(&mut guard, 0));
        // An element's parts take some bytes in the item.
        assert!(guard.peek(&key).hit().unwrap().value_bytes() < long.len() as u64 + 200);
        guard.list_set(&key, &fits, |_| Some(0)).unwrap();
        assert!(!is_apart(&mut guard, 0));
        assert_eq!(guard.list_push(&key, End::Front, names(&["", "a"]), false), Ok(3));
        assert_eq!(guard.list_push(&key, End::Front, one(&too_long[..]), false), Err(Declined::TooLarge));
        assert_eq!(guard.list_insert(&key, End::Back, b"a", &long), Ok(Some(4)));
        assert!(is_apart(&mut guard, 1));
        assert_eq!(guard.list_insert(&key, End::Front, &long, b"b"), Ok(Some(5)));
        assert_eq!(guard.list_remove(&key, End::Back, 2, &long), Ok(1));
        assert_eq!(guard.list_pop(&key, End::Front, 4).unwrap().unwrap().entries().len(), 4);
        assert!(guard.peek(&key).hit().is_none());
    }
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_list_of_a_hundred_thousand_is_pushed_read_and_popped_at_both_ends() {
    const ELEMENTS: u32 = 100_000;
    let (store, mut worker) = store(64);
    for n in 0..ELEMENTS {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"list");
        let (front, back) = (format!("f{n}"), format!("b{n}"));
        guard.list_push(&key, End::Front, names(&[&front]), false).unwrap();
        assert_eq!(guard.list_push(&key, End::Back, names(&[&back]), false), Ok(2 * n as usize + 2));
    }
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"list");
    let list = guard.collection(&key, Type::List).unwrap().unwrap();
    for n in (0..ELEMENTS).step_by(997) {
        assert_eq!(text(list.entry((ELEMENTS + n) as usize).name), format!("b{n}"));
        assert_eq!(text(list.entry((ELEMENTS - 1 - n) as usize).name), format!("f{n}"));
    }
    // An element of the list needs eight and a half bytes at least.
    assert!(list.bytes() < 2 * ELEMENTS as usize * 10, "{}", list.bytes());
    drop(guard);
    for n in (0..ELEMENTS).rev() {
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"list");
        for (end, kind) in [(End::Front, 'f'), (End::Back, 'b')] {
            let popped = guard.list_pop(&key, end, 1).unwrap().unwrap();
            assert_eq!(text(popped.entries().next().unwrap().name), format!("{kind}{n}"));
        }
    }
    store.check_behind(worker);
    assert_eq!(store.totals().items, 0);
}

#[test]
fn an_element_is_taken_whether_it_fits_a_leaf_or_lies_apart() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut taken = 0;
    for bytes in (0..300).step_by(37).chain(16_300..16_400) {
        for name in [vec![b'x'; bytes], b"1234567890123"[..].to_vec()] {
            for kind in [Type::Set, Type::Hash, Type::List] {
                let value = if kind == Type::Hash { vec![b'y'; bytes - bytes / 2] } else { Vec::new() };
                let name = if kind == Type::Hash { &name[..name.len().min(bytes / 2)] } else { &name[..] };
                for others in [0, 1, 200] {
                    guard.delete(&key, Expect::Present).ok();
                    let done = if kind == Type::List {
                        for other in 0..others {
                            guard
                                .list_push(&key, End::Back, names(&[&format!("other{other}")]), false)
                                .unwrap();
                        }
                        guard.list_push(&key, End::Front, [name].into_iter(), false).map(drop)
                    } else if kind == Type::Set {
                        for other in 0..others {
                            guard.set_add(&key, names(&[&format!("other{other}")])).unwrap();
                        }
                        guard.set_add(&key, [name].into_iter()).map(drop)
                    } else {
                        for other in 0..others {
                            guard.hash_insert(&key, format!("other{other}").as_bytes(), b"z").unwrap();
                        }
                        guard.hash_set(&key, [(name, &value[..])].into_iter()).map(drop)
                    };
                    assert!(store.element_fits(kind, name, &value), "{kind:?} {bytes}");
                    assert_eq!(done, Ok(()), "{kind:?} {bytes}");
                    let len = guard.collection(&key, kind).unwrap().unwrap().len();
                    assert_eq!(len, others + 1, "{kind:?} {bytes}");
                    taken += 1;
                }
            }
        }
    }
    assert!(taken > 1_000, "{taken}");
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_change_for_which_there_is_no_memory_has_done_nothing() {
    let (store, mut worker) = store(2);
    store.set_eviction(Eviction::Off);
    let mut guard = worker.enter(NOW);
    let mut model: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut refused = 0;
    for round in 0..400_u32 {
        for number in 0..200_u32 {
            let name = number.to_le_bytes();
            let key = guard.key(&name);
            let member = format!("a member of some length, number {round}");
            match guard.set_add(&key, [member.as_bytes()].into_iter()) {
                Ok(1) => {
                    model.entry(number).or_default().insert(round);
                }
                Err(Declined::NoMemory) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        if refused > 5_000 {
            break;
        }
    }
    assert!(refused > 0, "there is an end to memory");
    for (number, members) in &model {
        let name = number.to_le_bytes();
        let key = guard.key(&name);
        let set = guard.collection(&key, Type::Set).unwrap().unwrap();
        let there: BTreeSet<u32> = set
            .entries(0..set.len())
            .map(|entry| text(entry.name).rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(there, *members);
    }
    drop(guard);
    store.check_behind(worker);
}

/// A change returns whether it found its key. A read before the change would not do: another worker may
/// delete the key between the two.
#[test]
fn a_change_says_whether_it_found_a_collection() {
    let (_, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let (key, other) = (guard.key(b"key"), guard.key(b"other"));
    let add = |guard: &mut Guard<'_>, member: &str| {
        guard.set_add(&key, names(&[member])).unwrap();
        guard.found_collection()
    };
    assert!(!add(&mut guard, "a"));
    assert!(add(&mut guard, "b"));
    assert!(add(&mut guard, "b"), "nothing of it is written");
    assert_eq!(guard.list_push(&key, End::Back, names(&["x"]), false), Err(Declined::Type));
    assert!(guard.found_collection(), "one that is refused says nothing");
    assert_eq!(guard.list_push(&other, End::Back, names(&["x"]), true), Ok(0));
    assert!(!guard.found_collection());
    assert_eq!(guard.delete(&key, Expect::Present), Ok(()));
    assert!(!add(&mut guard, "c"));
    assert_eq!(show(&mut guard, &key), "c");
}

#[test]
fn watches_hear_of_each_change_and_of_nothing_else() {
    let (store, mut worker) = store(4);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let touches = |guard: &mut Guard<'_>, act: &mut dyn FnMut(&mut Guard<'_>)| {
        let flag = Arc::new(AtomicBool::new(false));
        guard.watch(0, &key, &flag).unwrap();
        act(guard);
        store.unwatch(0, b"key", &flag);
        guard.end_watches();
        flag.load(Ordering::Relaxed)
    };
    let mut set = |guard: &mut Guard<'_>| {
        guard.hash_set(&key, pairs(&[("a", "1")])).unwrap();
    };
    assert!(touches(&mut guard, &mut set));
    assert!(touches(&mut guard, &mut set), "the same value is a write");
    assert!(!touches(&mut guard, &mut |guard| assert_eq!(guard.hash_insert(&key, b"a", b"2"), Ok(false))));
    let gone = |field| {
        move |guard: &mut Guard<'_>| {
            guard.remove_named(&guard.key(b"key"), Type::Hash, names(&[field])).unwrap();
        }
    };
    assert!(!touches(&mut guard, &mut gone("b")));
    assert!(!touches(&mut guard, &mut |guard| assert!(guard.set_add(&key, names(&["b"])).is_err())));
    assert!(touches(&mut guard, &mut gone("a")));
    assert!(!touches(&mut guard, &mut gone("a")));
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn what_expires_or_is_evicted_is_told_and_flushed_collections_are_gone() {
    let (store, mut worker) = store(4);
    store.note_events(&[Event::Expired, Event::Evicted]);
    let mut guard = worker.enter(NOW);
    for number in 0..40_000_u32 {
        let name = number.to_le_bytes();
        let key = guard.key(&name);
        let member = number.to_string().repeat(1 + number as usize % 60);
        guard.set_add(&key, [member.as_bytes(), b"10", b"x"].into_iter()).unwrap();
        if number % 3 == 0 {
            guard.touch(&key, NOW + u64::from(number % 1_000)).unwrap();
        }
        if number % 100 == 0 {
            guard.maintain();
        }
    }
    let mut evicted = 0;
    guard.take_events(&mut |event, _, _| evicted += u32::from(event == Event::Evicted));
    assert!(evicted > 1_000, "{evicted} were evicted");
    drop(guard);
    store.check_after(&mut worker, |guard| {
        let mut there = 0;
        for number in 0..40_000_u32 {
            let name = number.to_le_bytes();
            let key = guard.key(&name);
            if let Lookup::Hit(item) = guard.get(&key) {
                let Value::Collection(set) = item.value() else { panic!("it is a set") };
                let set = set.elements();
                let member = number.to_string().repeat(1 + number as usize % 60);
                assert!(set.find(member.as_bytes()).is_some() && set.len() == 3);
                there += 1;
            }
        }
        assert!(there > 1_000, "{there} are there");
        guard.flush();
        let name = 39_999_u32.to_le_bytes();
        let key = guard.key(&name);
        assert!(guard.peek(&key).hit().is_none());
    });
    store.check_behind(worker);
}

trait CheckAfter {
    /// Has upkeep move the store's items, then calls `look`.
    fn check_after(&self, worker: &mut Worker, look: impl FnOnce(&mut Guard<'_>));
}

impl CheckAfter for Arc<Store> {
    fn check_after(&self, worker: &mut Worker, look: impl FnOnce(&mut Guard<'_>)) {
        let mut guard = worker.enter(NOW + 500);
        for _ in 0..50 {
            let classes = self.classes(NOW);
            for class in &classes {
                guard.reassign(Some(class.id), None, 2);
            }
            for _ in 0..20 {
                guard.maintain();
            }
        }
        look(&mut guard);
    }
}

#[test]
fn counts_of_two_threads_in_one_hash_are_exact() {
    const THREADS: u64 = 2;
    const ROUNDS: u64 = 4_000;
    let store = Store::new(Config { memory_bytes: 8 << 20, workers_max: 3, ..Config::default() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut worker = store.worker().unwrap();
                for round in 0..ROUNDS {
                    let mut guard = worker.enter(NOW);
                    let key = guard.key(b"hash");
                    let add = |old: Option<Element<'_>>| {
                        Ok::<_, Declined>((old.map_or(0, |old| old.number().unwrap()) + 1).to_string())
                    };
                    guard.hash_update(&key, b"all", add).unwrap();
                    guard.hash_update(&key, format!("of {thread}").as_bytes(), add).unwrap();
                    let list = guard.key(b"list");
                    let element = format!("{thread} {round}");
                    guard.list_push(&list, End::Back, [element.as_bytes()].into_iter(), false).unwrap();
                    if round % 2 == 1 {
                        let popped = guard.list_pop(&list, End::Front, 2).unwrap();
                        let popped = popped.expect("each has pushed two before");
                        assert!(popped.entries().all(|entry| text(entry.name).contains(' ')));
                    }
                    let hash = guard.collection(&key, Type::Hash).unwrap().unwrap();
                    let value = |field: &[u8]| hash.field(field).map_or(0, |value| value.number().unwrap());
                    assert!(value(b"all") >= value(b"of 0") + value(b"of 1"), "a moment that never was");
                }
            });
        }
    });
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"hash");
    assert_eq!(
        show(&mut guard, &key).split(' ').filter(|field| field.starts_with("all")).collect::<Vec<_>>(),
        [format!("all={}", THREADS * ROUNDS)]
    );
    let list = guard.key(b"list");
    assert!(guard.peek(&list).hit().is_none(), "as many were popped as were pushed");
    drop(guard);
    store.check_behind(worker);
}
