//! Hints, uploads and keys in the wrong place: in another batch, in another store, beside a transaction.
//! Lifetimes do not forbid that, so the store must notice it.

use larder_store::{Attributes, Config, End, Expect, Guard, Hint, Key, Lookup, Store, Type, Upload, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;
const NAME: &[u8] = b"the name";

fn store() -> Arc<Store> {
    Store::new(Config { memory_bytes: 4 << 20, workers_max: 2, seed: 1, ..Config::default() }).unwrap()
}

fn set(guard: &mut Guard<'_>, key: &Key<'_>, value: &[u8]) {
    guard.store_value(key, value, &Attributes::default(), Expect::Any).unwrap();
}

fn is(guard: &mut Guard<'_>, key: &Key<'_>, value: &[u8]) -> bool {
    let Lookup::Hit(item) = guard.peek(key) else { return false };
    matches!(item.value(), Value::Whole(there) if there == value)
}

fn hint<'w>(guard: &Guard<'w>, key: &Key<'_>) -> Hint<'w> {
    let mut hint = guard.prefetch_bucket(key);
    guard.prefetch_item(key, &mut hint);
    guard.prefetch_again(key, &mut hint);
    hint
}

/// Checks that no call with these hints changes or finds anything; `key` has the value "old", and `fresh` is
/// absent.
fn says_nothing(guard: &mut Guard<'_>, hint: &Hint<'_>, fresh_hint: &Hint<'_>) {
    let (key, fresh) = (guard.key(NAME), guard.key(b"not there"));
    assert!(!guard.replace_value(&key, b"new", hint));
    assert!(!guard.replace_with(&key, hint, true, |_| Some("new")));
    assert!(!guard.insert_value(&fresh, b"new", fresh_hint));
    assert!(is(guard, &key, b"old") && guard.peek(&fresh).hit().is_none());
    (0..4).for_each(|_| assert!(guard.get_hinted(&key, hint).hit().is_some()));
    assert_eq!(guard.plain_value(&key, hint), None);
    guard.store_value_hinted(&key, b"other", &Attributes::default(), Expect::Any, hint).unwrap();
    assert!(is(guard, &key, b"other"));
    set(guard, &key, b"old");
}

#[test]
fn a_hint_of_another_store_says_nothing() {
    // Both stores have the key at the same place in memory.
    let (one, other) = (store(), store());
    let (mut one, mut other) = (one.worker().unwrap(), other.worker().unwrap());
    let (mut first, mut second) = (one.enter(NOW), other.enter(NOW));
    let key = first.key(NAME);
    set(&mut first, &key, b"old");
    set(&mut second, &key, b"old");
    let (foreign, fresh) = (hint(&first, &key), hint(&first, &first.key(b"not there")));
    says_nothing(&mut second, &foreign, &fresh);
    let mut loaded = foreign;
    second.prefetch_item(&key, &mut loaded);
    second.prefetch_again(&key, &mut loaded);
    says_nothing(&mut second, &loaded, &fresh);
    assert!(is(&mut first, &key, b"old"));
    assert!(first.replace_value(&key, b"new", &foreign), "where it was made it is good");
    drop((first, second));
    let stores = [one.store().clone(), other.store().clone()];
    drop((one, other));
    stores.iter().for_each(|store| store.check());
}

#[test]
fn a_hint_of_a_batch_that_is_over_says_nothing_to_another_worker() {
    let store = store();
    let (mut one, mut other) = (store.worker().unwrap(), store.worker().unwrap());
    let mut first = one.enter(NOW);
    let key = first.key(NAME);
    set(&mut first, &key, b"old");
    let (old, fresh) = (hint(&first, &key), hint(&first, &first.key(b"not there")));
    drop(first);
    says_nothing(&mut other.enter(NOW), &old, &fresh);
}

#[test]
fn a_hint_made_before_its_batch_was_left_in_between_says_nothing() {
    let store = store();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let key = guard.key(NAME);
    set(&mut guard, &key, b"old");
    let (old, fresh) = (hint(&guard, &key), hint(&guard, &guard.key(b"not there")));
    guard.begin_whole();
    guard.finish();
    says_nothing(&mut guard, &old, &fresh);
    let new = hint(&guard, &key);
    assert!(guard.replace_value(&key, b"new", &new));
    drop(guard);
    // Hints made in a later batch are valid again.
    let guard = &mut worker.enter(NOW);
    let new = hint(guard, &key);
    assert!(guard.replace_value(&key, b"newer", &new));
}

#[test]
fn a_hint_of_another_key_is_no_place_for_this_one() {
    let store = store();
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    for n in 0..200 {
        let (name, other) = (format!("key {n}"), format!("another key {n}"));
        let (key, other) = (guard.key(name.as_bytes()), guard.key(other.as_bytes()));
        let hint = hint(&guard, &other);
        if !guard.insert_value(&key, b"value", &hint) {
            set(&mut guard, &key, b"value");
        }
        assert!(is(&mut guard, &key, b"value"), "{name}");
    }
    drop(guard);
    store.check_behind(worker);
}

/// An upload of 20,000 bytes, of which `filled` have been received.
fn upload(guard: &mut Guard<'_>, filled: usize) -> Upload {
    let key = guard.key(NAME);
    let mut upload = guard.upload(&key, 20_000, &Attributes::default()).unwrap();
    guard.upload_fill(&mut upload, &vec![1; filled]).unwrap();
    upload
}

/// Begins an upload in one store, and continues it in another by `f`.
fn cross(filled: usize, f: impl FnOnce(&mut Guard<'_>, Upload)) {
    let mut upload = Some(upload(&mut store().worker().unwrap().enter(NOW), filled));
    let other = store();
    let mut worker = other.worker().unwrap();
    f(&mut worker.enter(NOW), upload.take().unwrap());
}

#[test]
#[should_panic(expected = "an upload ends in the store where it began")]
fn an_upload_gets_no_memory_of_another_store() {
    cross(10, |guard, mut upload| _ = guard.upload_reserve(&mut upload, 20_000 - 10));
}

#[test]
#[should_panic(expected = "an upload ends in the store where it began")]
fn an_upload_is_not_filled_in_another_store() {
    cross(10, |guard, mut upload| _ = guard.upload_fill(&mut upload, &[1; 100]));
}

#[test]
#[should_panic(expected = "an upload ends in the store where it began")]
fn an_upload_is_not_published_in_another_store() {
    cross(20_000, |guard, upload| _ = guard.publish(upload, Expect::Any));
}

#[test]
#[should_panic(expected = "a collection of this store")]
fn an_element_is_not_pinned_in_another_store() {
    let (one, other) = (store(), store());
    let mut worker = one.worker().unwrap();
    let mut guard = worker.enter(NOW);
    let (key, text) = (guard.key(NAME), [b'x'; 40_000]);
    guard.list_push(&key, End::Back, [&text[..]].into_iter(), false).unwrap();
    let list = guard.collection(&key, Type::List).unwrap().unwrap();
    let apart = list.entry(0).apart().expect("it is long");
    drop(list.pin(&other, &apart));
}

#[test]
fn an_upload_outlives_its_batch_its_worker_and_what_held_its_store() {
    let upload = upload(&mut store().worker().unwrap().enter(NOW), 20_000);
    assert_eq!((upload.key(), upload.missing()), (NAME, 0));
    let store = store();
    let mut worker = store.worker().unwrap();
    let mut half = self::upload(&mut worker.enter(NOW), 10_000);
    drop(worker);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(NOW);
    guard.upload_fill(&mut half, &[1; 10_000]).unwrap();
    guard.publish(half, Expect::Absent).unwrap();
}

/// How long the test watches that the other worker waits.
const PATIENCE: Duration = Duration::from_millis(100);

#[test]
fn a_key_that_a_transaction_did_not_begin_with_is_anothers_while_its_is_open() {
    let store = store();
    let (mut one, mut other) = (store.worker().unwrap(), store.worker().unwrap());
    let mut first = one.enter(NOW);
    let key = first.key(NAME);
    set(&mut first, &key, b"old");
    first.begin([key]);
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut second = other.enter(NOW);
            second.begin([second.key(b"its own")]);
            begun.store(true, Ordering::Release);
            set(&mut second, &key, b"new");
            done.store(true, Ordering::Release);
            second.finish();
        });
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            assert!(is(&mut first, &key, b"old") && !done.load(Ordering::Acquire), "half of a transaction");
            std::thread::yield_now();
        }
        first.finish();
    });
    assert!(is(&mut first, &key, b"new"));
}
