//! Fields that expire in a store that evicts, expires keys, moves items, flushes and changes its limit. A
//! hash is whole or gone, and each field of it has its last value and expiry, or has expired.

use crate::plain::Dice;
use larder_store::{
    Attributes, Config, DIGITS_MAX, Due, Element, Expect, Fields, Guard, Lasting, Store, Timed, Type, Worker,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
const KEYS: u64 = 40;

type Known = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut [0; DIGITS_MAX]).to_vec()
}

fn store(mebibytes: u64, workers: usize) -> (Arc<Store>, Vec<Worker>) {
    let config = Config { memory_bytes: mebibytes << 20, workers_max: workers, ..Config::default() };
    let store = Store::new(config).unwrap();
    let workers = (0..workers).map(|_| store.worker().unwrap()).collect();
    (store, workers)
}

fn live(known: &mut Known, now: u64) {
    known.retain(|_, (_, at)| *at == 0 || *at > now);
}

/// Checks that a hash has the known fields, or is gone; returns how many fields it has.
fn compare(guard: &mut Guard<'_>, name: &[u8], known: &mut Known) -> usize {
    let now = guard.now();
    live(known, now);
    let key = guard.key(name);
    loop {
        match guard.hash_take_due(&key) {
            Ok(Due::Done(_)) => break,
            Ok(Due::More(_)) => {}
            // Without memory due fields stay in the hash: only fields that are not due are compared.
            Err(_) => {
                let there = guard.collection(&key, Type::Hash).unwrap();
                let Some(there) = there else { break };
                assert!(
                    known
                        .iter()
                        .all(|(name, (value, _))| there.field(name).map(text).as_ref() == Some(value))
                );
                return known.len();
            }
        }
    }
    let Some(there) = guard.collection(&key, Type::Hash).unwrap() else {
        // The hash was evicted, or its last field has expired.
        known.clear();
        return 0;
    };
    let all = there.entries(0..there.len());
    let all: Known = all.map(|entry| (text(entry.name), (text(entry.value), entry.expires_at))).collect();
    assert!(all == *known, "{}", String::from_utf8_lossy(name));
    all.len()
}

#[test]
fn hashes_are_whole_or_gone_whatever_else_happens() {
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let (store, mut workers) = store(5, 2);
        let mut all: HashMap<Vec<u8>, Known> = HashMap::new();
        let (mut now, mut met) = (NOW, 0);
        for step in 0..6_000_u64 {
            now += dice.below(40);
            let mut guard = workers[dice.below(2) as usize].enter(now);
            let name = format!("key{}", dice.below(KEYS)).into_bytes();
            let key = guard.key(&name);
            let known = all.entry(name.clone()).or_default();
            if guard.peek(&key).hit().is_none() {
                known.clear();
            }
            live(known, now);
            let wide = dice.below(12) == 0;
            let (from, count) = (dice.below(2_000), if wide { 400 } else { 1 + dice.below(6) });
            let fields: Vec<Vec<u8>> =
                (from..from + count).map(|n| format!("f{}", n % 2_000).into_bytes()).collect();
            let names = || fields.iter().map(Vec::as_slice);
            let at = now + 1 + if dice.below(3) == 0 { dice.below(20_000) } else { dice.below(400) };
            match dice.below(20) {
                0..8 => {
                    let value = vec![b'v'; dice.below(60) as usize];
                    let lasting = match dice.below(3) {
                        0 => Lasting::Never,
                        1 => Lasting::Keep,
                        _ => Lasting::Until(at),
                    };
                    let pairs = names().map(|name| (name, value.as_slice()));
                    if guard.hash_set_lasting(&key, pairs, Fields::Any, lasting).is_ok() {
                        for field in &fields {
                            let old = known.get(field).map_or(0, |(_, at)| *at);
                            let at = match lasting {
                                Lasting::Never => 0,
                                Lasting::Keep => old,
                                Lasting::Until(at) => at,
                            };
                            known.insert(field.clone(), (value.clone(), at));
                        }
                    }
                }
                8..13 => {
                    let mut done = Vec::new();
                    if guard.hash_expire(&key, names(), at, |_| true, &mut done).is_ok() {
                        for (field, done) in fields.iter().zip(done) {
                            assert_eq!(done == Timed::Set, known.contains_key(field));
                            if let Some((_, old)) = known.get_mut(field) {
                                *old = at;
                            }
                        }
                    }
                }
                13 => {
                    if guard.remove_named(&key, Type::Hash, names()).is_ok() {
                        fields.iter().for_each(|field| drop(known.remove(field)));
                    }
                }
                14 => {
                    let _ = guard.touch(&key, if dice.below(2) == 0 { 0 } else { now + 5_000 });
                }
                15 => {
                    let to = format!("key{}", dice.below(KEYS)).into_bytes();
                    let target = guard.key(&to);
                    guard.begin([key, target]);
                    let carried = to != name
                        && guard.collection_carry(&key, &target, Expect::Any).is_ok_and(|done| done.is_ok());
                    guard.finish();
                    if carried {
                        let moved = std::mem::take(all.get_mut(&name).unwrap());
                        all.insert(to, moved);
                    }
                }
                16 => {
                    // Other keys need memory, too.
                    for n in 0..400 {
                        let name = format!("string{n}").into_bytes();
                        let string = guard.key(&name);
                        let value = vec![b's'; 100 + dice.below(1_500) as usize];
                        let _ = guard.store_value(&string, &value, &Attributes::default(), Expect::Any);
                    }
                }
                17 => {
                    for _ in 0..50 {
                        guard.maintain();
                    }
                }
                18 if step % 400 == 0 => {
                    guard.flush();
                    all.clear();
                }
                _ => met += compare(&mut guard, &name, known),
            }
        }
        assert!(met > 5_000, "{met} fields were looked at");
        let mut guard = workers[0].enter(now);
        for (name, known) in &mut all {
            compare(&mut guard, name, known);
        }
        drop(guard);
        // All fields expire, and no request reads them.
        for later in 0..200 {
            let mut guard = workers[later % 2].enter(now + 30_000 + 2_000 * later as u64);
            while guard.maintain() {}
        }
        assert!(store.totals().fields_expired > 1_000);
        drop(workers);
        store.check();
    }
}

/// Two threads set and clear the expiry of the same fields, and read them; upkeep removes fields that are
/// due. Each reader finds whole fields.
#[test]
fn threads_that_give_times_and_ask_see_whole_fields() {
    // Removed memory stays in limbo while the system has a thread off its core: the limit leaves enough for
    // all of it.
    let (store, workers) = store(1024, 3);
    let clock = std::sync::atomic::AtomicU64::new(NOW);
    let clock = &clock;
    std::thread::scope(|scope| {
        for (id, mut worker) in workers.into_iter().enumerate() {
            scope.spawn(move || {
                let mut dice = Dice(id as u64);
                for _ in 0..if cfg!(debug_assertions) { 6_000 } else { 60_000 } {
                    let now = clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / 8 + NOW / 8 * 7;
                    let mut guard = worker.enter(now);
                    let key = guard.key(b"shared");
                    let fields: Vec<Vec<u8>> = (0..1 + dice.below(30))
                        .map(|_| format!("f{}", dice.below(1_500)).into_bytes())
                        .collect();
                    let names = || fields.iter().map(Vec::as_slice);
                    match dice.below(6) {
                        0 | 1 => {
                            // The value of a field is the field's name.
                            let pairs = names().map(|name| (name, name));
                            let lasting = Lasting::Until(now + 1 + dice.below(300));
                            guard.hash_set_lasting(&key, pairs, Fields::Any, lasting).unwrap();
                        }
                        2 => guard
                            .hash_expire(&key, names(), now + 1 + dice.below(300), |_| true, &mut Vec::new())
                            .unwrap(),
                        3 => guard.hash_persist(&key, names(), &mut Vec::new()).unwrap(),
                        4 => {
                            guard.hash_take_due(&key).unwrap();
                            guard.maintain();
                        }
                        _ => {
                            let Some(there) = guard.collection(&key, Type::Hash).unwrap() else { continue };
                            for name in names() {
                                let entry = there.entry_named(name);
                                assert!(
                                    entry.is_none_or(|entry| text(entry.value) == name && entry.is_live(now))
                                );
                            }
                            let mut before = 0;
                            for entry in there.entries(0..there.len()) {
                                assert_eq!(text(entry.name), text(entry.value));
                                before += 1;
                            }
                            assert_eq!(before, there.len());
                        }
                    }
                }
            });
        }
    });
    store.check();
}
