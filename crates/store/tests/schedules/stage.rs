//! What the threads of a schedule share: a store, its clock, the flushes, and the keys whose removal the
//! store announced.

use larder_store::schedule::{Random, Schedule, fail, pass, progress, waited};
use larder_store::{
    Attributes, Automove, ClassTotals, Config, DATABASES, Event, Eviction, Expect, Guard, Store, Value,
    Worker, chunk_sizes,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The time at which the store's clock starts, in milliseconds.
pub const NOW: u64 = 1_700_000_000_000;
/// A batch that waits more often than this waits for too long. Removing flushed items from a segment takes up
/// to 500,000 turns, and in the worst schedule another thread waits for each of them. One batch may meet this
/// in several segments.
const WAITS_MAX: u64 = 2_000_000;
/// A batch may sleep no longer than this: several other threads may stall for 20 ms, one after another.
const SLEPT_MAX: Duration = Duration::from_millis(200);
thread_local! {
    /// The most waits that any batch had.
    pub static MOST_WAITS: Cell<u64> = const { Cell::new(0) };
}
/// Most steps of upkeep until all memory of what was flushed is free.
const CLEARING_STEPS_MAX: u64 = 100_000;

/// A flush: the ticks between which it was made, and the number of the database; `None`: all databases.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    began: u64,
    ended: u64,
    number: Option<u8>,
}

impl Flush {
    fn concerns(&self, number: u8) -> bool {
        self.number.is_none_or(|flushed| flushed == number)
    }
}

/// What all threads of a schedule see.
pub struct Stage {
    pub store: Arc<Store>,
    /// Whether anything may be evicted.
    pub evicts: bool,
    /// Whether items with an expiry may be evicted.
    pub evicts_brief: bool,
    /// The number of the database that each name stands for; at first each name has its own number.
    names: RefCell<Vec<u8>>,
    ms: Cell<u64>,
    tick: Cell<u64>,
    pub flushes: RefCell<Vec<Flush>>,
    /// How often the store announced that it removed this key.
    taken: RefCell<HashMap<Vec<u8>, u64>>,
    /// How often a thread missed this key, where only a removal by the store explains it.
    missed: RefCell<HashMap<Vec<u8>, u64>>,
    /// Threads that still do their given work; threads aside run until it is 0.
    at_work: Cell<usize>,
    /// Writes of counters.
    pub notes: RefCell<crate::counter::Notes>,
    /// Count of the numbers that were given out.
    numbers: Cell<u64>,
}

impl Stage {
    /// The time of the store.
    pub fn now(&self) -> u64 {
        self.ms.get()
    }

    pub fn pass(&self, ms: u64) {
        self.ms.set(self.ms.get() + ms);
    }

    /// The next tick, later than all before.
    pub fn tick(&self) -> u64 {
        self.tick.set(self.tick.get() + 1);
        self.tick.get()
    }

    /// The next number; each is given out once.
    pub fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// The count of the numbers that were given out.
    pub fn numbers(&self) -> u64 {
        self.numbers.get()
    }

    /// Returns whether a thread added by [`Cast::main`] is still at work.
    pub fn at_work(&self) -> bool {
        self.at_work.get() > 0
    }

    /// Flushes the database with this number, or all, by `flush`, which returns whether the store did it.
    pub fn flush(&self, number: Option<u8>, flush: impl FnOnce() -> bool) {
        let at = self.flushes.borrow().len();
        let began = self.tick();
        // Until the flush is over it may remove any key at any time.
        self.flushes.borrow_mut().push(Flush { began, ended: u64::MAX, number });
        let made = flush();
        let flush = &mut self.flushes.borrow_mut()[at];
        // A refused flush has removed nothing: it gets a time before all else.
        (flush.began, flush.ended) = if made { (began, self.tick()) } else { (0, 0) };
    }

    /// The name of the database with this number, in this batch.
    pub fn name_of(&self, number: u8) -> u8 {
        let name = self.names.borrow().iter().position(|&named| named == number);
        name.expect("a permutation") as u8
    }

    /// The number of the database with this name, in this batch.
    pub fn number_of(&self, name: u8) -> u8 {
        self.names.borrow()[usize::from(name)]
    }

    /// Notes that two names were swapped; the caller makes sure that no other thread is in a batch.
    pub fn swapped(&self, one: u8, other: u8) {
        self.names.borrow_mut().swap(usize::from(one), usize::from(other));
    }

    /// Returns whether any flush was made or begun.
    pub fn flushes(&self) -> bool {
        !self.flushes.borrow().is_empty()
    }

    /// Returns whether a flush may have removed a write that began at `write_began`, for a read that ended at
    /// `read_ended`.
    pub fn may_be_flushed(&self, number: u8, write_began: u64, read_ended: u64) -> bool {
        let took = |flush: &Flush| flush.ended > write_began && flush.began < read_ended;
        self.flushes.borrow().iter().any(|flush| flush.concerns(number) && took(flush))
    }

    /// Returns whether a flush must have removed a write that ended at `write_ended`, for a read that began
    /// at `read_began`.
    pub fn must_be_flushed(&self, number: u8, write_ended: u64, read_began: u64) -> bool {
        let took = |flush: &Flush| flush.began > write_ended && flush.ended < read_began;
        self.flushes.borrow().iter().any(|flush| flush.concerns(number) && took(flush))
    }

    /// Notes that a key is missing, which only eviction or expiry explains: the store must have announced it.
    pub fn miss(&self, key: &[u8]) {
        *self.missed.borrow_mut().entry(key.to_vec()).or_default() += 1;
    }
}

/// A thread with its worker.
pub struct Actor {
    pub stage: Rc<Stage>,
    pub random: Random,
    worker: Worker,
}

impl Actor {
    /// Runs one batch.
    pub fn batch<R>(&mut self, f: impl FnOnce(&mut Guard<'_>, &Stage, &mut Random) -> R) -> R {
        let before = waited();
        let mut guard = self.worker.enter(self.stage.now());
        let result = f(&mut guard, &self.stage, &mut self.random);
        take_events(&mut guard, &self.stage);
        drop(guard);
        let (waits, slept) = waited();
        let (waits, slept) = (waits - before.0, slept - before.1);
        MOST_WAITS.set(MOST_WAITS.get().max(waits));
        if waits > WAITS_MAX || slept > SLEPT_MAX {
            fail(format!("a batch waited {waits} times and slept {slept:?}"));
        }
        progress();
        result
    }

    /// Rests, as an idle worker does.
    pub fn rest(&mut self) {
        self.worker.rest();
    }

    /// Makes this a worker with waiting clients, whose writes sleep less; with `asks_again` a write that
    /// would sleep is refused, and may be tried again.
    pub fn hurry(&mut self, asks_again: bool) {
        self.worker.set_patient(false);
        self.worker.set_asked_again(asks_again);
    }
}

fn take_events(guard: &mut Guard<'_>, stage: &Stage) {
    if guard.has_events() {
        let mut keys = Vec::new();
        guard.take_events(&mut |_, _, key| keys.push(key.to_vec()));
        let mut taken = stage.taken.borrow_mut();
        keys.into_iter().for_each(|key| *taken.entry(key).or_default() += 1);
    }
}

/// The threads of a schedule, before it begins.
pub struct Cast {
    pub random: Random,
    stage: Option<Rc<Stage>>,
    schedule: Schedule,
    names: HashMap<&'static str, u64>,
}

impl Cast {
    /// Makes the store.
    pub fn store(&mut self, config: Config, eviction: Eviction) {
        let store = Store::new(config).expect("a store");
        store.set_eviction(eviction);
        store.note_events(&[Event::Evicted, Event::Expired]);
        self.stage = Some(Rc::new(Stage {
            store,
            evicts: eviction == Eviction::All,
            evicts_brief: matches!(eviction, Eviction::Volatile | Eviction::VolatileTtl),
            names: RefCell::new((0..DATABASES).collect()),
            ms: Cell::new(NOW),
            tick: Cell::new(0),
            flushes: RefCell::default(),
            taken: RefCell::default(),
            missed: RefCell::default(),
            at_work: Cell::new(0),
            notes: RefCell::default(),
            numbers: Cell::new(0),
        }));
    }

    pub fn stage(&self) -> Rc<Stage> {
        Rc::clone(self.stage.as_ref().expect("a cast has its store first"))
    }

    fn actor(&mut self) -> Actor {
        let stage = self.stage();
        let worker = stage.store.worker().expect("a worker for each");
        Actor { stage, random: Random(self.random.draw()), worker }
    }

    /// Runs `step` before the schedule begins.
    pub fn before<R>(&mut self, step: impl FnOnce(&mut Actor) -> R) -> R {
        step(&mut self.actor())
    }

    /// Stores strings of all sizes, the longest first, until a write of each size is refused. Use it only
    /// where nothing is evicted.
    pub fn fill_up(&mut self) {
        self.before(|actor| {
            for (_, chunk_bytes) in chunk_sizes().collect::<Vec<_>>().into_iter().rev() {
                while actor.batch(|guard, stage, _| {
                    let name = format!("full-{:011}", stage.number());
                    let value = vec![b'f'; (chunk_bytes as usize).saturating_sub(8 + name.len())];
                    let key = guard.key(name.as_bytes());
                    guard.store_value(&key, &value, &Attributes::default(), Expect::Any).is_ok()
                }) {}
            }
        });
    }

    /// Stores this many small items before the schedule begins, or as many as memory allows.
    pub fn fill(&mut self, items: u64) {
        let mut actor = self.actor();
        for n in 0..items {
            let refused = actor.batch(|guard, _, _| {
                let name = format!("fill-{n}");
                let key = guard.key(name.as_bytes());
                guard.store_value(&key, &[b'f'; 100], &Attributes::default(), Expect::Any).is_err()
            });
            if refused {
                break;
            }
        }
    }

    /// Deletes the items of [`Cast::fill`], all but the first `stay`.
    pub fn thin(&mut self, stay: u64) {
        let mut actor = self.actor();
        for n in stay.. {
            let gone = actor.batch(|guard, _, _| {
                let name = format!("fill-{n}");
                let key = guard.key(name.as_bytes());
                guard.delete(&key, Expect::Present).is_err()
            });
            if gone {
                break;
            }
        }
    }

    /// Deletes the items of [`Cast::fill`], but leaves each `of`th.
    pub fn spread(&mut self, items: u64, of: u64) {
        let mut actor = self.actor();
        for n in (0..items).filter(|n| n % of != 0) {
            actor.batch(|guard, _, _| {
                let name = format!("fill-{n}");
                let key = guard.key(name.as_bytes());
                guard.delete(&key, Expect::Present).expect("it was stored, and nothing is evicted");
            });
        }
    }

    /// Adds a thread with given work; the schedule goes on until all of these are done.
    pub fn main(&mut self, name: &'static str, body: impl FnOnce(&mut Actor) + 'static) {
        let stage = self.stage();
        stage.at_work.set(stage.at_work.get() + 1);
        self.thread(name, move |actor| {
            body(actor);
            actor.stage.at_work.set(actor.stage.at_work.get() - 1);
        });
    }

    /// Adds a thread that repeats `step` until the threads of [`Cast::main`] are done.
    pub fn aside(&mut self, name: &'static str, mut step: impl FnMut(&mut Actor) + 'static) {
        self.thread(name, move |actor| {
            while actor.stage.at_work() {
                step(actor);
                if actor.random.below(8) == 0 {
                    pass();
                }
            }
        });
    }

    fn thread(&mut self, name: &'static str, body: impl FnOnce(&mut Actor) + 'static) {
        let number = self.names.entry(name).or_default();
        *number += 1;
        let name = format!("{name}-{number}");
        let mut actor = self.actor();
        self.schedule.thread(name, move || body(&mut actor));
    }
}

/// Plays one schedule and checks the store afterwards; returns how many turns it had.
pub fn play(seed: u64, length: u64, scenario: impl Fn(&mut Cast)) -> u64 {
    let mut cast = Cast {
        random: Random(seed ^ 0x5eed),
        stage: None,
        schedule: Schedule::new(seed, length),
        names: HashMap::new(),
    };
    scenario(&mut cast);
    let stage = cast.stage();
    let Cast { schedule, .. } = cast;
    let turns = schedule.run();
    // 1. The store has announced the removal of each key that was missing.
    let (taken, missed) = (stage.taken.borrow(), stage.missed.borrow());
    for (key, times) in missed.iter() {
        let said = taken.get(key).copied().unwrap_or(0);
        assert!(*times <= said, "{} was lost {times} times, and taken out {said} times", key.escape_ascii());
    }
    crate::counter::check(&stage.notes.borrow());
    let (charged, held) = (stage.store.heap_bytes(), stage.store.held_bytes());
    assert!(charged >= held, "connections hold {held} bytes, and {charged} are charged");
    // 2. The store's counts are right, no bucket is locked, and all memory can be freed. These checks run in
    // a schedule, too, so that a wait for a lock that no thread holds is found.
    let store = Arc::clone(&stage.store);
    let mut now = stage.now();
    let mut after = Schedule::new(seed, 0);
    after.thread("afterwards", move || {
        store.check();
        let mut worker = store.worker().expect("nobody else is there");
        worker.enter(now).flush();
        for step in 0.. {
            if store.totals().items == 0 {
                break;
            }
            assert!(step < CLEARING_STEPS_MAX, "{} items stay after a flush", store.totals().items);
            now += 50;
            worker.enter(now).maintain();
            progress();
        }
        // Upkeep frees flushed collections, memory in limbo and ended watches: each class keeps a span or
        // two.
        store.set_automove(Automove::Ages);
        for step in 0.. {
            now += 50;
            worker.enter(now).maintain();
            worker.rest();
            let classes = store.classes(now);
            let rests = |class: &ClassTotals| class.used_chunks == 0 && class.spans <= 2;
            if store.watch_bytes() == 0 && classes.iter().all(rests) {
                break;
            }
            let stays: Vec<_> = classes.iter().filter(|class| !rests(class)).collect();
            assert!(step < CLEARING_STEPS_MAX, "memory stays after a flush: {stays:?}");
            progress();
        }
        store.check_behind(worker);
    });
    turns + after.run()
}

/// A value that repeats its owner and its write from the first byte to the last.
pub fn value(owner: u64, write: u64, bytes: usize) -> Vec<u8> {
    let words = [owner.to_le_bytes(), write.to_le_bytes()].concat();
    words.iter().copied().cycle().take(bytes.max(16)).collect()
}

/// The owner and the write of a value; panics if the value is a mix of two writes.
pub fn words(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (owner, write) = (word(0), word(8));
    assert!(bytes == value(owner, write, bytes.len()), "a torn value");
    (owner, write)
}

/// The bytes of a value.
pub fn collect(value: Value<'_>) -> Vec<u8> {
    match value {
        Value::Whole(bytes) => bytes.to_vec(),
        Value::Pieces(value) => value.pin().pieces(0).flatten().copied().collect(),
        Value::Collection(_) => panic!("it is a string"),
    }
}

/// A length for a value: mostly small, now and then so long that it lies in pieces.
pub fn size(random: &mut Random) -> usize {
    match random.below(60) {
        0 => 70_000 + random.below(30_000) as usize,
        1..3 => 17_000 + random.below(20_000) as usize,
        3..10 => 500 + random.below(15_000) as usize,
        _ => 16 + random.below(300) as usize,
    }
}
