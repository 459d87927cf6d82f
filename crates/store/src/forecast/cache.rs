//! One simulated cache: the store's S3-FIFO on the bytes of a few keys.
//!
//! ```text
//! new key ──▶ probation ──▶ read twice? ──▶ main ──▶ frequency 0? evicted, ghost kept; else − 1, to the back
//! ghost's key ────────────────────────────▶ main
//! ```
//!
//! As in the store (docs/internals/eviction.md), ghosts are fingerprints, one place by hash, about as many places as items.
//! Other than in the store, there are no classes and no spans, so what is evicted is the oldest by the byte; and what comes
//! while there is room is on probation, too, since otherwise it takes many rounds until a large cache is as it will be (twice
//! the memory missed 5 % more than in the end when it had been written over twice). How long probation is, and what else
//! changes when the workload turns, is as the store has it now: if ghosts of so few keys told it, it would swing, and be too
//! long in the mean (a quarter of the memory of 512 keys missed 5 points more than in full).
//!
//! A queue's entry is a key's number and the turn at which it entered: what was taken out meanwhile, or entered anew, has
//! another turn and is passed over.

use std::collections::VecDeque;

use super::keys::Keys;
use super::memory::Judging;
use super::{Spread, Tick};
use crate::evict::PROMOTE_FREQUENCY;
use crate::ghost::Queue;

/// The highest frequency.
const FREQUENCY_MAX: u8 = 3;
/// Bits of a turn in an entry.
const TURN_BITS: u32 = 4;
const TURNS: u8 = 1 << TURN_BITS;

/// Mark of a ghost from main, beside its fingerprint.
const OF_MAIN: u16 = 1 << 15;
/// A cache is warm, too, when so many times its room were stored: most may expire before it is evicted.
const STORED_TIMES: u64 = 4;
/// The least number of places for ghosts.
const GHOSTS_MIN: usize = 16;

/// What a cache knows of a key: which queue it is in, how often it was read, and its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark(u8);

const NOWHERE: u8 = 0;
const PROBATION: u8 = 1;
const MAIN: u8 = 2;

impl Mark {
    fn queue(self) -> u8 {
        self.0 & 3
    }

    /// It is in the cache.
    pub fn is_in(self) -> bool {
        self.queue() != NOWHERE
    }

    fn frequency(self) -> u8 {
        self.0 >> 2 & 3
    }

    fn turn(self) -> u8 {
        self.0 >> 4
    }

    fn with_frequency(self, frequency: u8) -> Mark {
        Mark(self.0 & !0xc | frequency << 2)
    }

    fn entered(self, queue: u8, frequency: u8) -> Mark {
        Mark(((self.turn() + 1) % TURNS) << 4 | frequency << 2 | queue)
    }

    /// It enters main.
    #[cfg(all(test, not(feature = "loom")))]
    pub fn into_main(self, frequency: u8) -> Mark {
        self.entered(MAIN, frequency)
    }

    /// It is no longer there.
    pub fn out(self) -> Mark {
        Mark(self.0 & !0xf)
    }
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Found,
    Absent,
}

/// How far a cache has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// What is in it came while it was simulated.
    pub is_warm: bool,
    /// It has evicted something.
    pub has_evicted: bool,
    /// How near it is to being warm, up to 1.
    pub passed: f64,
    /// How often it has evicted as much as it holds, or half of how often that was stored.
    pub turns: f64,
}

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    /// Which of a key's marks and times are its own.
    nth: usize,
    room: u64,
    bytes: u64,
    probation_bytes: u64,
    len: usize,
    probation: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: Vec<u16>,
    judging: Judging,
    /// Bytes that were evicted, and that were stored.
    evicted: u64,
    stored: u64,
}

impl Cache {
    pub fn new(nth: usize) -> Cache {
        Cache {
            nth,
            room: 0,
            bytes: 0,
            probation_bytes: 0,
            len: 0,
            probation: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Vec::new(),
            judging: Judging::default(),
            evicted: 0,
            stored: 0,
        }
    }

    /// Items that it has.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn bytes_taken(&self) -> usize {
        (self.probation.capacity() + self.main.capacity()) * size_of::<u32>()
            + self.ghosts.capacity() * size_of::<u16>()
    }

    /// Gives it room for so many bytes, and says how new keys are judged from now on.
    pub fn set_memory(&mut self, bytes: u64, judging: Judging) {
        (self.room, self.judging) = (bytes, judging);
    }

    pub fn has_evicted(&self) -> bool {
        self.evicted > 0
    }

    /// What is in it came while it was simulated: it has evicted as much as it holds, or was stored so often that what it
    /// has it will go on having.
    pub fn is_warm(&self) -> bool {
        self.evicted > self.room || self.stored > self.room * STORED_TIMES
    }

    pub fn state(&self) -> State {
        let part = |bytes: u64| (bytes as f64 / self.room.max(1) as f64).min(1.0);
        State {
            is_warm: self.is_warm(),
            has_evicted: self.has_evicted(),
            passed: part(self.evicted.max(self.stored / STORED_TIMES)),
            turns: self.evicted.max(self.stored / 2) as f64 / self.room.max(1) as f64,
        }
    }

    /// The key is there, and its time has not passed.
    pub fn has(&self, keys: &Keys, at: usize, now: Tick) -> bool {
        let entry = &keys[at];
        entry.marks[self.nth].is_in() && entry.until[self.nth] > now
    }

    /// Takes the key out if its time has passed.
    pub fn expire(&mut self, keys: &mut Keys, at: usize, now: Tick) {
        if keys[at].marks[self.nth].is_in() && keys[at].until[self.nth] <= now {
            self.remove(keys, at);
        }
    }

    /// Reads a key.
    pub fn look(&mut self, keys: &mut Keys, at: usize, now: Tick) -> Looked {
        if self.has(keys, at, now) {
            let mark = &mut keys[at].marks[self.nth];
            *mark = mark.with_frequency((mark.frequency() + 1).min(FREQUENCY_MAX));
            return Looked::Found;
        }
        self.expire(keys, at, now);
        Looked::Absent
    }

    /// Overwrites a key that is there. It counts as a read if there was none yet.
    pub fn overwrite(&mut self, keys: &mut Keys, at: usize, until: Tick) {
        let entry = &mut keys[at];
        entry.until[self.nth] = until;
        let mark = &mut entry.marks[self.nth];
        *mark = mark.with_frequency(mark.frequency().max(1));
    }

    /// Stores a key that is not there, or whose time has passed, and evicts what has to go for it.
    pub fn put(&mut self, keys: &mut Keys, at: usize, spread: Spread, until: Tick, now: Tick) {
        self.expire(keys, at, now);
        let bytes = u64::from(keys[at].bytes);
        if bytes > self.room {
            return;
        }
        let known = self.recall(spread);
        self.make_room(keys, bytes, now);
        let stays = match known {
            Some(Queue::Probation) => true,
            Some(Queue::Main) => !self.judging.main_loops,
            None => false,
        };
        let queue = if stays { MAIN } else { PROBATION };
        keys[at].until[self.nth] = until;
        self.len += 1;
        self.bytes += bytes;
        self.stored += bytes;
        self.enter(keys, at, queue, 0);
    }

    /// The item, which took `was` bytes, takes what its entry says now.
    pub fn resized(&mut self, keys: &Keys, at: usize, was: u32) {
        let (mark, bytes) = (keys[at].marks[self.nth], keys[at].bytes);
        if mark.is_in() {
            self.bytes = self.bytes + u64::from(bytes) - u64::from(was);
            if mark.queue() == PROBATION {
                self.probation_bytes = self.probation_bytes + u64::from(bytes) - u64::from(was);
            }
        }
    }

    /// Takes a key out, if it is there. Its entry may be forgotten.
    pub fn remove(&mut self, keys: &mut Keys, at: usize) {
        let (mark, bytes) = (keys[at].marks[self.nth], u64::from(keys[at].bytes));
        if !mark.is_in() {
            return;
        }
        self.leave(mark, bytes);
        self.bytes -= bytes;
        self.len -= 1;
        keys[at].marks[self.nth] = mark.out();
        keys.drop_unused(at);
    }

    /// It leaves its queue.
    fn leave(&mut self, mark: Mark, bytes: u64) {
        if mark.queue() == PROBATION {
            self.probation_bytes -= bytes;
        }
    }

    fn enter(&mut self, keys: &mut Keys, at: usize, queue: u8, frequency: u8) {
        let entry = &mut keys[at];
        let mark = entry.marks[self.nth].entered(queue, frequency);
        entry.marks[self.nth] = mark;
        if queue == PROBATION {
            self.probation_bytes += u64::from(entry.bytes);
        }
        let (queue, nth) = match queue {
            PROBATION => (&mut self.probation, self.nth),
            _ => (&mut self.main, self.nth),
        };
        if queue.len() == queue.capacity() {
            // Entries of keys that were taken out meanwhile are still in its midst.
            queue.retain(|&entry| is_of(keys, nth, entry));
            if queue.len() * 4 > queue.capacity() * 3 {
                queue.reserve_exact((queue.len() / 2).max(32));
            }
        }
        queue.push_back((at as u32) << TURN_BITS | u32::from(mark.turn()));
    }

    /// Evicts until there is room for so many bytes more.
    fn make_room(&mut self, keys: &mut Keys, bytes: u64, now: Tick) {
        while self.bytes + bytes > self.room && self.len > 0 {
            let overdue = self.probation_bytes as f64 >= self.judging.window * self.room as f64;
            if overdue && self.judge_new(keys, now) {
                continue;
            }
            // The hand; and what is new where there is nothing else.
            if !self.judge_old(keys, now) && !self.judge_new(keys, now) {
                debug_assert!(false, "what is there is in a queue");
                return;
            }
        }
    }

    /// Judges the oldest on probation; false if there is none.
    fn judge_new(&mut self, keys: &mut Keys, now: Tick) -> bool {
        while let Some(entry) = self.probation.pop_front() {
            if !is_of(keys, self.nth, entry) {
                continue;
            }
            let at = (entry >> TURN_BITS) as usize;
            let (mark, bytes) = (keys[at].marks[self.nth], u64::from(keys[at].bytes));
            let stays = u64::from(mark.frequency()) >= PROMOTE_FREQUENCY;
            if stays && keys[at].until[self.nth] > now {
                self.leave(mark, bytes);
                self.enter(keys, at, MAIN, mark.frequency() - PROMOTE_FREQUENCY as u8);
            } else {
                self.evict(keys, at, Queue::Probation);
            }
            return true;
        }
        false
    }

    /// Judges the one that the hand is at; false if there is none.
    fn judge_old(&mut self, keys: &mut Keys, now: Tick) -> bool {
        while let Some(entry) = self.main.pop_front() {
            if !is_of(keys, self.nth, entry) {
                continue;
            }
            let at = (entry >> TURN_BITS) as usize;
            let mark = keys[at].marks[self.nth];
            if mark.frequency() > 0 && keys[at].until[self.nth] > now {
                let left = if self.judging.has_turned { 0 } else { mark.frequency() - 1 };
                self.enter(keys, at, MAIN, left);
            } else {
                self.evict(keys, at, Queue::Main);
            }
            return true;
        }
        false
    }

    fn evict(&mut self, keys: &mut Keys, at: usize, queue: Queue) {
        let (spread, bytes) = (Spread::of(keys[at].hash), u64::from(keys[at].bytes));
        self.evicted += bytes;
        self.fit_ghosts();
        let mark = if queue == Queue::Main { OF_MAIN } else { 0 };
        if let Some(ghost) = self.ghost(spread) {
            *ghost = fingerprint(spread) | mark;
        }
        self.remove(keys, at);
    }

    /// Makes about as many places as there are items.
    fn fit_ghosts(&mut self) {
        let places = self.ghosts.len();
        if places < GHOSTS_MIN
            || self.len * 3 > places * 4
            || self.len * 3 < places * 2 && places > GHOSTS_MIN
        {
            self.ghosts = vec![0; self.len.max(GHOSTS_MIN)];
        }
    }

    fn ghost(&mut self, spread: Spread) -> Option<&mut u16> {
        let at = (u128::from(spread.0.rotate_left(24)) * self.ghosts.len() as u128) >> 64;
        self.ghosts.get_mut(at as usize)
    }

    /// Takes the ghost of a key: the queue that it was evicted from not long ago.
    fn recall(&mut self, spread: Spread) -> Option<Queue> {
        let ghost = self.ghost(spread)?;
        if *ghost & !OF_MAIN != fingerprint(spread) {
            return None;
        }
        let queue = if *ghost & OF_MAIN != 0 { Queue::Main } else { Queue::Probation };
        *ghost = 0;
        Some(queue)
    }
}

/// True if a queue's entry is still that of its key.
fn is_of(keys: &Keys, nth: usize, entry: u32) -> bool {
    let mark = keys[(entry >> TURN_BITS) as usize].marks[nth];
    mark.is_in() && u32::from(mark.turn()) == entry & u32::from(TURNS - 1)
}

/// Bits of the hash that no place is chosen by; not 0.
fn fingerprint(spread: Spread) -> u16 {
    ((spread.0 >> 4) as u16 & (OF_MAIN - 1)).max(1)
}

#[cfg(all(test, not(feature = "loom")))]
impl Cache {
    /// It holds so many bytes of so many keys, and no more than it may but for what has grown.
    pub fn check(&self, bytes: u64, len: usize) {
        assert_eq!((self.bytes, self.len), (bytes, len));
        assert!(self.probation_bytes <= self.bytes);
    }
}
