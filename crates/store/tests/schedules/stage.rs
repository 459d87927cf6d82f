//! What the threads of a schedule share: a store, time, the flushes, and the keys that the store says it took out.

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

/// When the clock starts.
pub const NOW: u64 = 1_700_000_000_000;
/// A batch that waits more often than this waits for too long. To take out of a segment what was flushed is up to 500,000 turns,
/// and in the worst of schedules a thread that waits for it waits for each of them; a batch may meet that in several segments.
const WAITS_MAX: u64 = 2_000_000;
/// A batch may sleep no longer than this: others may stall for 20 ms, one after another.
const SLEPT_MAX: Duration = Duration::from_millis(200);
thread_local! {
    /// The most waits that any batch had.
    pub static MOST_WAITS: Cell<u64> = const { Cell::new(0) };
}
/// The most steps of upkeep in which everything that a flush took has to come free.
const CLEARING_STEPS_MAX: u64 = 100_000;

/// A flush, by the ticks between which it was made, and the number of the database that it concerned; none: all.
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
    /// Which database each name stands for, by the number that it had at first.
    names: RefCell<Vec<u8>>,
    ms: Cell<u64>,
    tick: Cell<u64>,
    pub flushes: RefCell<Vec<Flush>>,
    /// How often the store said that it took a key out.
    taken: RefCell<HashMap<Vec<u8>, u64>>,
    /// How often a key was missing for which only the store's taking it out is a reason.
    missed: RefCell<HashMap<Vec<u8>, u64>>,
    /// How many threads still do the work for whose end the others wait.
    at_work: Cell<usize>,
    /// Writes of counters.
    pub notes: RefCell<crate::counter::Notes>,
    /// How many numbers were given; each is given once.
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

    /// The next moment, later than all before.
    pub fn tick(&self) -> u64 {
        self.tick.set(self.tick.get() + 1);
        self.tick.get()
    }

    /// The next number, which is given once.
    pub fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// How many numbers were given.
    pub fn numbers(&self) -> u64 {
        self.numbers.get()
    }

    /// Whether a thread that the others wait for is still at work.
    pub fn at_work(&self) -> bool {
        self.at_work.get() > 0
    }

    /// Makes a flush of the database with this number, or of all; `flush` returns whether it did.
    pub fn flush(&self, number: Option<u8>, flush: impl FnOnce() -> bool) {
        let at = self.flushes.borrow().len();
        let began = self.tick();
        // Until the flush is over it may take anything, whenever that is looked for.
        self.flushes.borrow_mut().push(Flush { began, ended: u64::MAX, number });
        let made = flush();
        let flush = &mut self.flushes.borrow_mut()[at];
        // A refused flush has taken nothing: it counts as if it had been before everything.
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

    /// Notes that two names were swapped; no other thread is in a batch.
    pub fn swapped(&self, one: u8, other: u8) {
        self.names.borrow_mut().swap(usize::from(one), usize::from(other));
    }

    /// Whether something was flushed, or is about to be.
    pub fn flushes(&self) -> bool {
        !self.flushes.borrow().is_empty()
    }

    /// Whether a flush may have taken what was written from the first tick on and is missing before the second.
    pub fn may_be_flushed(&self, number: u8, write_began: u64, read_ended: u64) -> bool {
        let took = |flush: &Flush| flush.ended > write_began && flush.began < read_ended;
        self.flushes.borrow().iter().any(|flush| flush.concerns(number) && took(flush))
    }

    /// Whether a flush must have taken what was written before `write_ended`, for a reader from `read_began` on.
    pub fn must_be_flushed(&self, number: u8, write_ended: u64, read_began: u64) -> bool {
        let took = |flush: &Flush| flush.began > write_ended && flush.ended < read_began;
        self.flushes.borrow().iter().any(|flush| flush.concerns(number) && took(flush))
    }

    /// Notes that a key is missing for which only eviction or its expiry is a reason: the store has to have said so.
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

    /// Rests, as a worker that has nothing to do.
    pub fn rest(&mut self) {
        self.worker.rest();
    }

    /// Makes it a worker that others wait for; with `asks_again` its writes are refused where they would sleep.
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

    /// Does something before the schedule begins.
    pub fn before<R>(&mut self, step: impl FnOnce(&mut Actor) -> R) -> R {
        step(&mut self.actor())
    }

    /// Stores strings of all sizes, the longest first, until none finds a chunk: a store that evicts is not filled so.
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

    /// Stores so many small items before the schedule begins, or as many as there is memory for.
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

    /// Deletes these items again, but for the first `stay`.
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

    /// Deletes these items again, but for one of `of`.
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

    /// Adds a thread for whose end the others wait.
    pub fn main(&mut self, name: &'static str, body: impl FnOnce(&mut Actor) + 'static) {
        let stage = self.stage();
        stage.at_work.set(stage.at_work.get() + 1);
        self.thread(name, move |actor| {
            body(actor);
            actor.stage.at_work.set(actor.stage.at_work.get() - 1);
        });
    }

    /// Adds a thread that does `step` as long as others are at work.
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

/// Plays one schedule and what comes after it; returns its turns.
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
    // 1. What is missing was taken out, as the store's events say.
    let (taken, missed) = (stage.taken.borrow(), stage.missed.borrow());
    for (key, times) in missed.iter() {
        let said = taken.get(key).copied().unwrap_or(0);
        assert!(*times <= said, "{} was lost {times} times, and taken out {said} times", key.escape_ascii());
    }
    crate::counter::check(&stage.notes.borrow());
    let (charged, held) = (stage.store.heap_bytes(), stage.store.held_bytes());
    assert!(charged >= held, "connections hold {held} bytes, and {charged} are charged");
    // 2. The books are right, no bucket is locked, and everything can be given back. This runs as a schedule, too: so a wait for
    // a lock that no thread holds is found.
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
        // Collections are taken apart, memory that waited is free, watches have ended: each class keeps a span or two.
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

/// A value whose words say which owner and which write made it, to its end.
pub fn value(owner: u64, write: u64, bytes: usize) -> Vec<u8> {
    let words = [owner.to_le_bytes(), write.to_le_bytes()].concat();
    words.iter().copied().cycle().take(bytes.max(16)).collect()
}

/// The owner of a value, and the write that made it.
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

/// Bytes of a value: mostly small, now and then in pieces.
pub fn size(random: &mut Random) -> usize {
    match random.below(60) {
        0 => 70_000 + random.below(30_000) as usize,
        1..3 => 17_000 + random.below(20_000) as usize,
        3..10 => 500 + random.below(15_000) as usize,
        _ => 16 + random.below(300) as usize,
    }
}
