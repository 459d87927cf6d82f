//! Waiting for another worker: the one way to do it.
//!
//! ```text
//! lock of a bucket, class, arena      held for some 100 ns, its holder waits for no memory    spun for, where one is
//! bits of a transaction, the store    held for as long as their holder works, and for that
//! as a whole, a batch, an epoch       it may need memory                                      waited for as here
//! ```
//!
//! Memory comes free when every worker has left the epoch in which it was unlinked. A worker that
//! waited inside its epoch for one that needs memory would wait for itself. So a worker that waits for another
//!
//! 1. leaves its epoch,
//! 2. spins, gives up the core, or sleeps,
//! 3. gives back what it has of spans that others want emptied,
//! 4. enters again.
//!
//! The caller holds no reference into the arena, and no lock.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::worker::Local;
use crate::{Millis, Store};
use std::time::Duration;

/// Turns of spinning, for what mostly ends within a microsecond.
const SPINS: u32 = if cfg!(feature = "schedule") { 1 } else { 64 };
/// Turns of giving up the core before the first sleep: the awaited thread does not run, and may not for
/// some milliseconds.
const YIELDS: u32 = 60;
/// How long one sleep takes.
const SLEEP: Duration = Duration::from_micros(100);

#[cfg(all(test, not(feature = "loom")))]
thread_local! {
    /// Turns of waiting that this thread took.
    pub(crate) static PAUSES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How long a thread has waited already.
#[derive(Debug)]
pub(crate) struct Wait {
    turn: u32,
    sleep_from: u32,
    /// Drains of spans are ended when others want memory back: this worker does nothing
    /// with them meanwhile.
    idle: bool,
}

impl Wait {
    /// A wait for another worker's command to end.
    pub(crate) fn idle() -> Wait {
        Wait { turn: 0, sleep_from: u32::MAX, idle: true }
    }

    /// A wait for memory that other workers' epochs hold back; this worker goes on draining spans for it.
    pub(crate) fn for_memory() -> Wait {
        Wait::for_memory_sleeping_from(YIELDS)
    }

    /// As [`Wait::for_memory`], sleeping after so many turns.
    pub(crate) fn for_memory_sleeping_from(yields: u32) -> Wait {
        Wait { turn: SPINS, sleep_from: SPINS + yields, idle: false }
    }

    /// How long it has slept at least: the time of a batch is that of its beginning.
    pub(crate) fn slept_ms(&self) -> Millis {
        u64::from(self.turn.saturating_sub(self.sleep_from)) * SLEEP.as_micros() as u64 / 1000
    }

    /// One turn.
    fn pause(&mut self) {
        #[cfg(all(test, not(feature = "loom")))]
        PAUSES.with(|pauses| pauses.set(pauses.get() + 1));
        self.turn = self.turn.saturating_add(1);
        if self.turn <= SPINS {
            std::hint::spin_loop();
        } else if self.turn <= self.sleep_from {
            crate::sync::yield_now();
        } else {
            crate::sync::sleep(SLEEP);
        }
    }
}

/// How many workers have waited for memory for so long that they sleep, or want a segment to grow for a transaction: another
/// transaction that is about to begin, and waits, would hold it back.
#[derive(Debug, Default)]
pub(crate) struct Wanting(AtomicU32);

impl Wanting {
    /// True if there are some.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// One more, until the result is dropped.
    pub(crate) fn one(&self) -> Wanted<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Wanted(self)
    }
}

/// A worker that [`Wanting`] counts.
pub(crate) struct Wanted<'s>(&'s Wanting);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Local {
    /// One turn of waiting, in a batch.
    #[cold]
    pub(crate) fn wait(&mut self, store: &Store, wait: &mut Wait) {
        store.epochs.leave(self.id);
        self.wait_outside(store, wait);
        store.epochs.enter(self.id);
    }

    /// One turn of waiting, between two batches, or outside of the epoch of one.
    #[cold]
    pub(crate) fn wait_outside(&mut self, store: &Store, wait: &mut Wait) {
        debug_assert!(!store.epochs.is_inside(self.id), "who waits for another worker holds no epoch");
        wait.pause();
        if self.recalled != store.recall.load(Ordering::Relaxed) {
            store.epochs.enter(self.id);
            if wait.idle {
                self.stop_drains(store);
            }
            self.answer_recall(store);
            store.epochs.leave(self.id);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::PAUSES;
    use crate::class::ClassId;
    use crate::{Attributes, Config, Eviction, Expect, Store, Worker};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    const NOW: u64 = 1_700_000_000_000;
    /// What is waited for comes within microseconds, or never; the machine may do something else meanwhile.
    const PATIENCE: Duration = Duration::from_secs(600);
    /// Waits of a write that is refused, each of a second and more: the system may keep another worker from its core
    /// while it is in its epoch.
    const WRITES_MAX: usize = 50;

    fn store(megabytes: u64) -> Arc<Store> {
        Store::new(Config { memory_bytes: megabytes << 20, ..Config::default() }).unwrap()
    }

    /// Waits; false if it was in vain.
    fn comes(mut holds: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// A transaction that begins while another worker waits for a segment lets that one first; it may be
    /// waiting for a third, whose transaction needs memory.
    #[test]
    fn who_lets_another_first_holds_back_no_memory() {
        const KEYS: u64 = 400;
        let store = store(8);
        let mut worker = store.worker().unwrap();
        for n in 0..40_000u64 {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[1; 400], &Attributes::default(), Expect::Any).unwrap();
        }
        let id = worker.local.id;
        let mut guard = worker.enter(NOW);
        let names: Vec<[u8; 8]> = (0..KEYS).map(|n| (n | 1 << 50).to_be_bytes()).collect();
        let keys: Vec<_> = names.iter().map(|name| guard.key(name)).collect();
        guard.begin(keys.iter().copied());
        store.index.press(1);
        std::thread::scope(|scope| {
            let second = &store;
            scope.spawn(move || {
                let mut worker = second.worker().unwrap();
                let mut guard = worker.enter(NOW);
                let key = guard.key(b"other");
                guard.begin([key]);
                guard.finish();
            });
            let entered = comes(|| store.world.others_inside(id));
            let refused = keys.iter().find_map(|key| {
                let mut refused = None;
                for _ in 0..WRITES_MAX {
                    match guard.store_value(key, &[1; 400], &Attributes::default(), Expect::Any) {
                        Ok(_) => return None,
                        Err(refusal) => refused = Some(refusal),
                    }
                }
                refused
            });
            guard.finish();
            store.index.press(-1);
            assert!(entered);
            assert_eq!(refused, None, "memory that nobody uses comes free");
        });
    }

    /// To look at a segment may be to lock most of it: a thread that waits for a transaction to leave it looks ever more rarely.
    #[test]
    fn who_waits_for_a_segment_looks_at_it_at_once_and_then_now_and_then() {
        let store = store(4);
        let mut worker = store.worker().unwrap();
        let guard = worker.enter(NOW);
        let (before, mut looks) = (PAUSES.get(), Vec::new());
        let done = guard.local.between_transactions(&store, 70, |_| {
            looks.push(PAUSES.get() - before);
            None::<()>
        });
        assert_eq!((done, looks), (None, vec![0, 1, 2, 4, 8, 16, 32, 48, 64, 69]));
        assert!(!store.index.is_pressed());
    }

    /// A worker that waits until no other has the store to itself gives back the free chunks that it has of spans that are wanted
    /// empty.
    #[test]
    fn who_waits_for_the_store_gives_back_what_is_recalled() {
        let store = store(4);
        let mut other = store.worker().unwrap();
        let mut guard = other.enter(NOW);
        let key = guard.key(b"key");
        guard.store_value(&key, &[1; 900], &Attributes::default(), Expect::Any).unwrap();
        let used = ClassId(guard.get(&key).hit().unwrap().class());
        guard.delete(&key, Expect::Present).unwrap();
        guard.local.pass_epochs(&store);
        drop(guard);
        let all_free = || store.slabs.class(used).free_chunks == used.chunks_per_span() as u64;
        assert!(!all_free(), "some are in its magazine");
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        guard.begin_whole();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(other.enter(NOW));
            });
            // It may enter just before this, and finds it then when it enters.
            store.recall.fetch_add(1, Ordering::Relaxed);
            let given = comes(all_free);
            guard.finish();
            assert!(given, "a worker without a batch keeps no span from emptying");
        });
    }

    /// False if it is refused.
    fn write(worker: &mut Worker, n: u64, bytes: usize) -> bool {
        let mut guard = worker.enter(NOW);
        let name = n.to_be_bytes();
        let key = guard.key(&name);
        guard.store_value(&key, &vec![7; bytes], &Attributes::default(), Expect::Any).is_ok()
    }

    /// What was retired comes free when another worker leaves its batch: one that does not is waited for once.
    #[test]
    fn a_worker_that_stays_in_its_batch_is_waited_for_once_by_those_that_are_refused() {
        let store = store(8);
        store.set_eviction(Eviction::Off);
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        let count = (0..).take_while(|&n| write(&mut worker, n, 20)).count() as u64;
        assert!(count > 100);
        let stuck = other.enter(NOW);
        for n in 0..100u64 {
            let mut guard = worker.enter(NOW);
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.delete(&key, Expect::Present).unwrap();
        }
        PAUSES.take();
        assert!(!(0..200).any(|n| write(&mut worker, 1 << 40 | n, 1_000)));
        // One wait has 8,192 turns at most; 200 of them there were.
        let pauses = PAUSES.take();
        assert!(pauses < 40_000, "{pauses}");
        drop(stuck);
    }

    /// The same where something may be evicted, for a worker that has others to serve.
    #[test]
    fn a_worker_for_whom_others_wait_does_not_wait_in_vain_again() {
        let store = store(16);
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        (0..16_000).for_each(|n| assert!(write(&mut worker, n, 1_000)));
        worker.set_patient(false);
        let stuck = other.enter(NOW);
        let (mut refused, mut waits) = (0, Vec::new());
        for n in 0.. {
            PAUSES.take();
            refused += u32::from(!write(&mut worker, n, 1_000));
            waits.push(PAUSES.take());
            if refused == 500 {
                break;
            }
        }
        waits.sort_unstable();
        // A patient one has 8,192 turns of waiting at each of them, and sleeps in most. It was 1,600.
        let most = waits[waits.len() - 1];
        assert!((64..=140).contains(&most), "{waits:?}");
        assert!(
            waits[waits.len() - 250] < 60,
            "where another was waited for in vain, it is not waited for again"
        );
        drop(stuck);
    }

    /// A worker that serves others looks ahead for what it writes as one, and waits for some milliseconds at most in its midst.
    #[test]
    fn what_is_written_as_one_waits_for_some_turns_and_no_more() {
        let store = store(16);
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        (0..16_000).for_each(|n| assert!(write(&mut worker, n, 1_000)));
        assert!(worker.enter(NOW).finds_memory(1_016, 1), "a patient one waits");
        worker.set_patient(false);
        worker.set_asked_again(true);
        let stuck = other.enter(NOW);
        let count = (0..3_000).take_while(|&n| write(&mut worker, n, 1_000)).count();
        assert!(count < 3_000);
        worker.set_asked_again(false);
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"several");
        PAUSES.take();
        assert!(!guard.finds_memory(1_016, 1) && guard.memory_comes());
        guard.begin([key]);
        assert!(!guard.finds_memory(1_016, 1) && guard.memory_comes());
        guard.finish();
        let looks = PAUSES.take();
        assert!(looks < 40, "{looks}");
        drop(guard);
        let mut waits = Vec::new();
        for n in 0..500u64 {
            // What a write did not find is not waited for again at once.
            let mut guard = worker.enter(NOW + 200 * n);
            let name = (1 << 40 | n).to_be_bytes();
            let key = guard.key(&name);
            guard.begin([key]);
            PAUSES.take();
            let _ = guard.store_value(&key, &[7; 1_000], &Attributes::default(), Expect::Any);
            waits.push(PAUSES.take());
            guard.finish();
        }
        waits.sort_unstable();
        // It was 1,600 turns, nearly all of which sleep.
        let most = waits[waits.len() - 1];
        assert!((64..=140).contains(&most) && waits[400] < 60, "{waits:?}");
        drop(stuck);
        assert!(worker.enter(NOW).finds_memory(1_016, 1));
        assert!(write(&mut worker, 1, 1_000), "there is memory again");
    }

    /// Two chunks that come free while another holds back all others are enough for two items and not for three.
    #[test]
    fn memory_is_looked_for_ahead_for_as_many_items_as_are_written() {
        let store = store(16);
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        (0..10_000).for_each(|n| assert!(write(&mut worker, n, 1_000)));
        let uploads = [&b"one"[..], b"two"].map(|name| {
            let mut guard = worker.enter(NOW);
            let key = guard.key(name);
            guard.upload(&key, 1_000, &Attributes::default()).unwrap()
        });
        (10_000..16_000).for_each(|n| assert!(write(&mut worker, n, 1_000)));
        worker.set_patient(false);
        worker.set_asked_again(true);
        let stuck = other.enter(NOW);
        let count = (0..3_000).take_while(|&n| write(&mut worker, n, 1_000)).count();
        assert!(count < 3_000);
        assert!(!worker.enter(NOW).finds_memory(1_016, 1));
        drop(uploads);
        let mut guard = worker.enter(NOW);
        let found = [1, 2, 3, 2].map(|count| guard.finds_memory(1_016, count));
        assert_eq!(found, [true, true, false, true]);
        drop(guard);
        drop(stuck);
        assert!(worker.enter(NOW).finds_memory(1_016, 3));
    }

    /// What a flush has left of very many short items is room for longer ones, each in a transaction of a worker for which others
    /// wait, and which looks for it before it begins, as often as a request is asked again.
    #[test]
    fn what_was_flushed_is_room_for_what_is_written_as_one() {
        let store = store(32);
        store.set_eviction(Eviction::Off);
        let mut worker = store.worker().unwrap();
        let count = (0..).take_while(|&n| write(&mut worker, n, 40)).count();
        assert!(count > 200_000, "{count}");
        worker.enter(NOW).flush();
        worker.set_patient(false);
        let mut now = NOW;
        for n in 0..2_000u64 {
            let looks = (0..).take_while(|_| {
                now += 10;
                !worker.enter(now).finds_memory(1_016, 1)
            });
            let looks = looks.count();
            assert!(looks < 24, "{n}: {looks}");
            let mut guard = worker.enter(now);
            let name = (1 << 40 | n).to_be_bytes();
            let key = guard.key(&name);
            guard.begin([key]);
            let stored = guard.store_value(&key, &[7; 1_000], &Attributes::default(), Expect::Any);
            guard.finish();
            assert!(stored.is_ok(), "{n}");
        }
    }

    /// A batch of many steps holds back no more than a step.
    #[test]
    fn walk_leaves_the_epoch_between_its_steps() {
        let store = store(4);
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for n in 0..1000u64 {
            let name = n.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, b"value", &Attributes::default(), Expect::Any).unwrap();
        }
        let tag = store.epochs.tag();
        let mut cursor = 0;
        for _ in 0..3 {
            cursor = guard.walk(cursor, 64, &mut |_| {});
            assert_ne!(cursor, 0);
            store.epochs.advance();
        }
        assert!(store.epochs.safe(tag), "what was unlinked before the walk comes free during it");
    }
}
