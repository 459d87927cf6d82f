//! The ways of writing, two by two: of two stores that go through the same, one is written by the short ways and one by
//! the general one, and after each step they hold the same, have told the same and counted the same.

use crate::arena::Arena;
use crate::bucket::Slot;
use crate::class::ClassId;
use crate::counters::{Counter, WorkerCounters};
use crate::{Attributes, Config, Expect, Guard, Hint, Key, Store, Touched, Worker};
use std::sync::atomic::Ordering;

const NOW: u64 = 1_700_000_000_000;
/// Fewer than a page of the index has room for, so that no way has to make any.
const KEYS: u64 = 60;
const STEPS: u64 = 6_000;
/// The lists of new keys are compared after so many steps: what is wrong there stays so for a while.
const BOOKS: u64 = 16;
/// Classes that values are of: some of one, some of the next.
const LENGTHS: [usize; 5] = [0, 3, 8, 40, 400];

/// What one of the steps does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write(Way),
    Read,
    Touch,
    Delete,
    Watch,
    Await,
}

/// The short ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Replace,
    /// As a read, too.
    Change,
    Insert,
    Overwrite,
    /// What was seen a moment ago.
    OverwriteUnchanged,
}

const WAYS: [Way; 5] = [Way::Replace, Way::Change, Way::Insert, Way::Overwrite, Way::OverwriteUnchanged];

/// A step with all that it takes.
struct Plan {
    step: Step,
    name: String,
    value: Vec<u8>,
    attributes: Attributes,
    now: u64,
    /// The lists of new keys are looked at, too.
    books: bool,
}

/// What there is of a key after a step, and what the worker holds and has counted.
#[derive(Debug, PartialEq)]
struct Left {
    done: bool,
    control: u64,
    /// But for where the item is: a way that declined may have taken another chunk before.
    slot: Option<Slot>,
    header: Option<u64>,
    value: Option<Vec<u8>>,
    cas: Option<u64>,
    told: bool,
    called: Vec<(u8, Box<[u8]>)>,
    /// Its span knows when it expires.
    noted: bool,
    fresh: String,
    counts: Vec<u64>,
    recent: String,
}

/// A store with its worker, and the watchers of each of its keys.
struct Twin {
    worker: Worker,
    short: bool,
    flag: Touched,
}

fn look<'g>(guard: &Guard<'g>, key: &Key<'_>) -> Hint<'g> {
    let mut hint = guard.prefetch_bucket(key);
    if guard.prefetch_item(key, &mut hint) {
        guard.prefetch_again(key, &mut hint);
    }
    hint
}

impl Twin {
    fn new(short: bool, evicts: bool, workers_max: usize) -> Twin {
        let store = Store::new(Config { memory_bytes: 4 << 20, workers_max, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        if evicts {
            // Until new keys begin on probation.
            for n in 0.. {
                if store.arena.nearly_full() {
                    break;
                }
                let mut guard = worker.enter(NOW);
                let name = format!("filler-{n}");
                let key = guard.key(name.as_bytes());
                guard.store_value(&key, &[0; 15_000], &Attributes::default(), Expect::Any).unwrap();
            }
        }
        Twin { worker, short, flag: Touched::default() }
    }

    /// Takes a step; true if the way was the one that was asked for.
    fn take(&mut self, plan: &Plan) -> (bool, Left) {
        let Plan { step, name, value, attributes, now, books } = plan;
        let mut guard = self.worker.enter(*now);
        let key = guard.key(name.as_bytes());
        let hint = look(&guard, &key);
        let (taken, done) = match step {
            Step::Write(way) => write(&mut guard, self.short, *way, (&key, &hint), value, attributes),
            Step::Read => (true, guard.get_hinted(&key, &hint).hit().is_some()),
            Step::Touch => (true, guard.touch(&key, attributes.expires_at).is_ok()),
            Step::Delete => (true, guard.delete(&key, Expect::Present).is_ok()),
            Step::Watch => (true, guard.watch(0, &key, &self.flag).unwrap()),
            Step::Await => (true, guard.await_key(0, &key)),
        };
        let called = guard.take_called();
        let told = self.flag.swap(false, Ordering::Relaxed);
        let store = guard.store;
        let locked = guard.lock_clean(key.hash);
        let control = locked.control;
        let found = store.index.scan(&locked.place, control, |slot| store.is_at(slot, &key));
        locked.home.unlock(control);
        let slot = found.map(|found| found.slot);
        let item = slot.and_then(|slot| store.item_at(slot, &key));
        let noted = item.zip(slot).is_none_or(|((raw, _), slot)| {
            let span = store.arena.span(Arena::span_of(slot.location()));
            raw.expires_at() == 0 || span.due.at() <= raw.expires_at()
        });
        let live = guard.peek(&key).hit().map(|item| {
            let crate::Value::Whole(value) = item.value() else { panic!("all are small") };
            (value.to_vec(), item.cas())
        });
        let (value, cas) = live.unzip();
        let left = Left {
            done,
            control: control.0,
            slot: slot.map(|slot| slot.with_location(0)),
            header: item.map(|(_, header)| header.0),
            value,
            cas,
            told,
            called,
            noted,
            fresh: format!("{:?}", guard.local.fresh),
            counts: counts(guard.counters),
            recent: if *books { format!("{:?}", guard.counters.recent) } else { String::new() },
        };
        (taken, left)
    }
}

/// What a worker has counted of items; chunks are others where a way has declined.
fn counts(counters: &WorkerCounters) -> Vec<u64> {
    let of_class = |id| {
        let class = counters.class(id);
        let all =
            [&class.items, &class.reclaimed, &class.expired_unfetched, &class.evictions, &class.ghost_hits];
        all.map(Counter::value)
    };
    let mut counts: Vec<u64> = ClassId::all().flat_map(of_class).collect();
    counts.extend([counters.items_stored.value(), counters.out_of_memory.value()]);
    counts
}

/// Writes by the way that is told, or in general where it is not to be, or declines.
fn write(
    guard: &mut Guard<'_>,
    short: bool,
    way: Way,
    (key, hint): (&Key<'_>, &Hint<'_>),
    value: &[u8],
    attributes: &Attributes,
) -> (bool, bool) {
    let seen = guard.peek(key).hit().map(|item| (item.seen(), item.slot.frequency()));
    let expect = match (way, seen) {
        (Way::OverwriteUnchanged, Some((seen, _))) => Expect::Unchanged(seen),
        _ => Expect::Any,
    };
    let plain = (attributes.flags, attributes.expires_at) == (0, 0);
    if short {
        let taken = match way {
            Way::Replace => plain && guard.replace_value(key, value, hint),
            Way::Change => plain && guard.replace_with(key, hint, true, |_| Some(value)),
            Way::Insert => plain && guard.insert_value(key, value, hint),
            Way::Overwrite | Way::OverwriteUnchanged => {
                !hint.slot.is_empty() && guard.overwrite(key, value, attributes, expect, hint).is_some()
            }
        };
        if taken {
            return (true, true);
        }
    }
    let simple = seen.is_some() && {
        let header = guard.peek(key).hit().expect("it was seen").raw.header();
        header.is_simple(key.bytes.len())
    };
    let done = guard.store_value(key, value, attributes, expect).is_ok();
    if way == Way::Change && plain && simple {
        // The general way is no read.
        let frequency = seen.map_or(0, |(_, frequency)| frequency + 1).min(3);
        guard.date(key, None, Some(frequency as u8)).unwrap();
    }
    (false, done)
}

/// Takes the same steps in two stores; how often each way was taken.
fn compare(seed: u64, evicts: bool, workers_max: usize) -> [u64; WAYS.len()] {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut twins = [true, false].map(|short| Twin::new(short, evicts, workers_max));
    let (mut taken, mut now) = ([0; WAYS.len()], NOW);
    for n in 0..STEPS {
        now += random(3) * random(2_000);
        let way = random(WAYS.len() as u64) as usize;
        let step = match random(16) {
            0..9 => Step::Write(WAYS[way]),
            9..12 => Step::Read,
            12 => Step::Touch,
            13 | 14 => Step::Delete,
            _ if random(2) == 0 => Step::Watch,
            _ => Step::Await,
        };
        let mut attributes = Attributes::default();
        if random(3) == 0 || step == Step::Touch {
            attributes.expires_at = if random(2) == 0 { 0 } else { now + random(5_000) };
            attributes.flags = random(2) as u32;
        }
        let value = vec![n as u8; LENGTHS[random(5) as usize] + random(3) as usize];
        let plan = Plan {
            step,
            name: format!("key-{}", random(KEYS)),
            value,
            attributes,
            now,
            books: n % BOOKS == 0,
        };
        let [(by_short, short), (_, general)] = twins.each_mut().map(|twin| twin.take(&plan));
        assert!(
            short == general,
            "step {n} of seed {seed}, {step:?} of {}:\nshort   {short:?}\ngeneral {general:?}",
            plan.name
        );
        taken[way] += u64::from(by_short && matches!(step, Step::Write(_)));
    }
    for Twin { worker, .. } in twins {
        let store = worker.store().clone();
        store.check_behind(worker);
    }
    taken
}

#[test]
fn short_ways_leave_what_the_general_way_leaves() {
    for (evicts, workers_max) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let taken = compare(1, evicts, workers_max);
        assert!(taken.iter().all(|&count| count > 50), "{taken:?}");
    }
}
