//! A store and a plain map, side by side: whatever is done to both, every answer of the store is one that
//! the map allows.
//!
//! A store may forget, since it evicts. So a miss where the map has a value is no fault by itself, but is counted, and in the end
//! no more is missing than the store says it has evicted. Everything else is exact: values, flags, expiries, marks, tokens that
//! only grow, expected and actual items. Writes are refused for lack of memory only while the limit was lowered and is not
//! reached yet: the memory to free may belong to a worker that is not running. Elements of collections are compared with a plain
//! vector.

mod act;
mod elements;
mod judge;
mod op;

pub use op::{OP_BYTES, Op};

use elements::Elements;
use larder_store::{
    Automove, Config, End, Expect, Guard, Hint, Item, Key, Lookup, Millis, Pinned, Store, Upload, Value,
};
use op::{KEYS, Verb};
use std::collections::BTreeMap;
use std::sync::Arc;

const START: Millis = 1_700_000_000_000;

/// Names of the databases.
const NAMES: [u8; 2] = [0, 3];

/// No value gets longer than this.
const VALUE_BYTES_MAX: usize = 330_000;

/// Most values that are pinned at a time.
const PINS_MAX: usize = 3;

/// What the map has about an item.
#[derive(Clone, Debug)]
struct Known {
    /// The value of a string.
    value: Vec<u8>,
    /// The elements of a collection.
    elements: Option<Elements>,
    flags: u32,
    expires_at: Millis,
    cas: u64,
    stale: bool,
    token_sent: bool,
}

/// Index of the database's first name, and number of the key.
type DbKey = (usize, u32);

/// How a key is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// A read that leaves no trace.
    Peek,
    Get,
    /// A read with the hint of a batch's stages.
    Hint,
}

/// An upload under way.
#[derive(Debug)]
struct Begun {
    upload: Upload,
    place: DbKey,
    known: Known,
}

#[derive(Debug)]
struct Model {
    known: BTreeMap<DbKey, Known>,
    /// Most recent token of each key, even if the item is gone.
    tokens: BTreeMap<DbKey, u64>,
    /// The two databases have swapped their names.
    swapped: bool,
    /// Number of items that were missing in the store.
    lost: u64,
    now: Millis,
    /// More memory is in use than the limit, which was lowered.
    over: bool,
    /// Number of writes; it makes each value different.
    writes: u64,
}

/// Applies `ops` to a fresh store and a map.
///
/// # Panics
/// If the store gives an impossible answer, or its books are wrong in the end.
pub fn run(ops: &[Op]) {
    let config = Config {
        memory_bytes: 4 << 20,
        memory_bytes_max: 8 << 20,
        workers_max: 2,
        evict: true,
        seed: ops.len() as u64,
    };
    let store = Store::new(config).expect("a store");
    let mut workers = [store.worker().expect("a worker"), store.worker().expect("a worker")];
    let mut model = Model {
        known: BTreeMap::new(),
        tokens: BTreeMap::new(),
        swapped: false,
        lost: 0,
        now: START,
        over: false,
        writes: 0,
    };
    let (mut pins, mut begun) = (Vec::new(), None);
    let mut last = 0;
    for op in ops {
        model.now += 1;
        // One thread does the work of both workers. The other worker has nothing to do, and rests as idle
        // workers do: otherwise nothing would free what it keeps.
        if op.worker != last {
            workers[last].rest();
            last = op.worker;
        }
        if matches!(op.verb, Verb::Rest) {
            workers[op.worker].rest();
            continue;
        }
        for part in op.parts() {
            let mut guard = workers[op.worker].enter(model.now);
            model.over = store.is_over_limit();
            model.apply(&part, &mut guard, &mut pins, &mut begun);
        }
    }
    drop((pins, begun));
    // 1. Everything that exists is known, and everything that is missing was evicted.
    let mut guard = workers[0].enter(model.now);
    model.walk(&mut guard);
    let places: Vec<DbKey> = model.known.keys().copied().collect();
    places.into_iter().for_each(|place| model.read(&mut guard, place, Look::Peek));
    let evictions = store.totals().evictions;
    assert!(model.lost <= evictions, "{} items are missing, {evictions} were evicted", model.lost);
    drop(guard);
    drop(workers);
    // 2. Chunks, spans, bytes and slots add up.
    store.check();
}

fn name(number: u32) -> String {
    if number < KEYS { format!("key-{number}") } else { format!("crowd-{number:08}") }
}

/// The hint that the stages of a batch find for a key.
fn hint<'g>(guard: &Guard<'g>, key: &Key<'_>) -> Hint<'g> {
    let mut hint = guard.prefetch_bucket(key);
    if guard.prefetch_item(key, &mut hint) {
        guard.prefetch_again(key, &mut hint);
    }
    hint
}

/// Whether the pieces together are the value. They are compared piece by piece: a fuzzer has no time for a
/// comparison byte by byte.
fn is_made_of<'p>(mut value: &[u8], pieces: impl Iterator<Item = &'p [u8]>) -> bool {
    for piece in pieces {
        let Some(rest) = value.strip_prefix(piece) else { return false };
        value = rest;
    }
    value.is_empty()
}

fn same(item: &Item<'_>, known: &Known, place: DbKey) {
    let same = match item.value() {
        Value::Whole(bytes) => known.elements.is_none() && bytes == known.value,
        Value::Pieces(value) => known.elements.is_none() && is_made_of(&known.value, value.pin().pieces(0)),
        Value::Collection(collection) => {
            known.elements.as_ref().is_some_and(|elements| elements.are_in(&collection.elements()))
        }
    };
    assert!(same, "{place:?} has another value");
    let is = (item.flags(), item.expires_at(), item.cas(), item.stale(), item.token_sent());
    let was = (known.flags, known.expires_at, known.cas, known.stale, known.token_sent);
    assert_eq!(is, was, "flags, expiry, token and marks of {place:?}");
}

impl Op {
    /// How the operation reads, if it is a read.
    fn look(&self) -> Look {
        if self.hinted { Look::Hint } else { Look::Get }
    }
}

impl Model {
    fn place(&self, op: &Op, number: u32) -> DbKey {
        (op.database ^ usize::from(self.swapped), number)
    }

    fn key<'k>(&self, guard: &Guard<'_>, place: DbKey, name: &'k str) -> Key<'k> {
        guard.key_in(NAMES[place.0 ^ usize::from(self.swapped)], name.as_bytes())
    }

    fn read(&mut self, guard: &mut Guard<'_>, place: DbKey, look: Look) {
        let name = name(place.1);
        let key = self.key(guard, place, &name);
        let hint = (look == Look::Hint).then(|| hint(guard, &key));
        if let Some(hint) = &hint {
            if let Some(value) = guard.plain_value(&key, hint) {
                let known = self.live(place).unwrap_or_else(|| panic!("{place:?} came back"));
                let is = (value, known.elements.is_none(), known.flags, known.expires_at);
                assert_eq!(is, (&known.value[..], true, 0, 0), "{place:?} is not so plain");
                return assert!(!known.stale && !known.token_sent, "{place:?} has marks");
            }
            if guard.is_absent(&key, hint) {
                return self.lose(place);
            }
        }
        let found = match (look, &hint) {
            (Look::Peek, _) => guard.peek(&key),
            (_, Some(hint)) => guard.get_hinted(&key, hint),
            (_, None) => guard.get(&key),
        };
        match (found, self.live(place)) {
            (Lookup::Hit(item), Some(known)) => {
                assert_eq!(item.key(), name.as_bytes());
                same(&item, known, place);
            }
            (Lookup::Hit(_), None) => panic!("{place:?} came back"),
            (Lookup::Miss | Lookup::Expired | Lookup::Flushed, _) => self.lose(place),
        }
    }

    fn walk(&mut self, guard: &mut Guard<'_>) {
        let mut seen: BTreeMap<DbKey, u32> = BTreeMap::new();
        let mut cursor = 0;
        loop {
            cursor = guard.walk(cursor, 100, &mut |item| {
                let database = NAMES.iter().position(|name| *name == item.database()).expect("one of two");
                let name = std::str::from_utf8(item.key()).expect("a name");
                let (crowd, number) = name.split_once('-').expect("a name and a number");
                let place =
                    (database ^ usize::from(self.swapped), number.parse().expect("a number behind the name"));
                assert_eq!(crowd == "crowd", place.1 >= KEYS);
                let known = self.live(place).unwrap_or_else(|| panic!("{place:?} came back"));
                same(&item, known, place);
                *seen.entry(place).or_default() += 1;
            });
            if cursor == 0 {
                break;
            }
        }
        // No worker moves items meanwhile, so none is met twice or skipped.
        assert!(seen.values().all(|times| *times == 1), "an item is met twice");
        let missing: Vec<DbKey> =
            self.known.keys().filter(|place| !seen.contains_key(place)).copied().collect();
        missing.into_iter().for_each(|place| self.lose(place));
    }

    fn apply(
        &mut self,
        op: &Op,
        guard: &mut Guard<'_>,
        pins: &mut Vec<(Pinned, Vec<u8>)>,
        begun: &mut Option<Begun>,
    ) {
        let place = self.place(op, op.key);
        let store = Arc::clone(guard.store());
        match op.verb {
            Verb::Get => self.read(guard, place, op.look()),
            Verb::Peek => self.read(guard, place, Look::Peek),
            Verb::Store => {
                let expect = self.expect(guard, op, place, true);
                self.store(guard, op, place, op.bytes, expect);
            }
            Verb::Elements => self.change_elements(guard, op, place),
            Verb::Append => self.concat(guard, op, place, End::Back),
            Verb::Prepend => self.concat(guard, op, place, End::Front),
            Verb::Delete | Verb::Touch | Verb::Invalidate | Verb::ClaimToken | Verb::Patch => {
                self.change(guard, op, place);
            }
            Verb::Begin | Verb::Continue | Verb::Publish => self.uploads(guard, op, place, begun),
            Verb::Pin => {
                let name = name(place.1);
                let key = self.key(guard, place, &name);
                if let Some(item) = guard.get(&key).hit()
                    && matches!(item.value(), Value::Pieces(_))
                    && pins.len() < PINS_MAX
                {
                    let known = self.live(place).expect("it is there");
                    pins.push((item.pin(), known.value.clone()));
                }
            }
            Verb::Unpin => {
                for (pinned, value) in pins.drain(..) {
                    assert!(is_made_of(&value, pinned.pieces(0)), "a value changed while it was sent");
                }
            }
            Verb::Fill(_) | Verb::Read(_) | Verb::Drop(_) => self.crowd(guard, op),
            Verb::Transaction => {
                let places = [0, 1, 2].map(|n| self.place(op, op.next_key(n)));
                let names = places.map(|place| name(place.1));
                guard.begin([0, 1, 2].map(|n| self.key(guard, places[n], &names[n])));
                for place in places {
                    self.read(guard, place, Look::Get);
                    self.store(guard, op, place, op.bytes % 20_000, Expect::Any);
                }
                guard.finish();
            }
            Verb::Walk => self.walk(guard),
            Verb::Wait(ms) => self.now += ms,
            Verb::Maintain(steps) => {
                for _ in 0..steps {
                    guard.maintain();
                }
            }
            Verb::Rest => unreachable!("a worker rests outside of a batch"),
            Verb::GiveWay => guard.give_way(),
            Verb::Limit(bytes) => {
                assert!(store.set_memory_bytes(bytes));
                // A server gives way here, too.
                guard.give_way();
            }
            Verb::Automove(0) => store.set_automove(Automove::Off),
            Verb::Automove(1) => store.set_automove(Automove::Ages),
            Verb::Automove(_) => store.set_automove(Automove::Always),
            Verb::Reassign(spans) => {
                let classes = store.classes(self.now);
                let class = |n: usize| classes.get(n % (classes.len() + 1)).map(|class| class.id);
                guard.reassign(class(op.bytes), class(op.flags as usize), spans);
            }
            Verb::Flush => {
                guard.flush_database(NAMES[op.database]);
                self.known.retain(|at, _| at.0 != place.0);
            }
            Verb::FlushAll => {
                guard.flush();
                self.known.clear();
            }
            Verb::Swap => {
                guard.swap_databases(NAMES[0], NAMES[1]);
                guard.finish();
                self.swapped = !self.swapped;
            }
        }
    }
}
