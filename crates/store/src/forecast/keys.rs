//! The keys that some cache of a forecast has, once for all of them.
//!
//! ```text
//! places  │ 3 │   │ 1 │ 2 │   │      by the spread hash, probed one after another
//! entries │ 1 │ 2 │ 3 │ free │     what it takes, and what each cache knows of it
//! ```
//!
//! There are no more than were asked for, and memory for them is taken as they come.

use super::cache::Mark;
use super::{NEVER, SIZES, Spread, Tick};

/// A key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub hash: u64,
    /// What it takes.
    pub bytes: u32,
    /// How long it was given to live when it was stored last; 0: that was not seen.
    pub lifetime: Tick,
    /// When its time has passed, in each cache.
    pub until: [Tick; SIZES],
    /// Where it is in each.
    pub marks: [Mark; SIZES],
    /// The number of its database.
    pub db: u8,
}

/// The keys of all caches.
#[derive(Debug)]
pub(super) struct Keys {
    /// An entry's number and 1, or 0; a power of two.
    places: Vec<u32>,
    entries: Vec<Entry>,
    /// Entries of no key.
    free: Vec<u32>,
    most: usize,
    /// The entry that stays although no cache has it.
    spared: Option<usize>,
    /// The entry that is looked at next.
    hand: usize,
}

const PLACES_MIN: usize = 64;

impl std::ops::Index<usize> for Keys {
    type Output = Entry;
    fn index(&self, at: usize) -> &Entry {
        &self.entries[at]
    }
}

impl std::ops::IndexMut<usize> for Keys {
    fn index_mut(&mut self, at: usize) -> &mut Entry {
        &mut self.entries[at]
    }
}

impl Keys {
    /// Room for so many keys at most.
    pub fn new(most: usize) -> Keys {
        Keys {
            places: vec![0; PLACES_MIN],
            entries: Vec::new(),
            free: Vec::new(),
            most: most.min(1 << 20),
            spared: None,
            hand: 0,
        }
    }

    pub fn bytes_taken(&self) -> usize {
        (self.places.capacity() + self.free.capacity()) * size_of::<u32>()
            + self.entries.capacity() * size_of::<Entry>()
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    /// Entries that are or were in use, to be visited while some are taken out; those of no key have no mark.
    pub fn places(&self) -> std::ops::Range<usize> {
        0..self.entries.len()
    }

    /// The next entry, round after round.
    pub fn next_place(&mut self) -> Option<usize> {
        if self.hand >= self.entries.len() {
            self.hand = 0;
        }
        let at = self.hand;
        self.hand += 1;
        (at < self.entries.len()).then_some(at)
    }

    fn home(&self, spread: Spread) -> usize {
        spread.0 as usize & (self.places.len() - 1)
    }

    /// The place of a key, or the one that it would get.
    fn probe(&self, hash: u64, spread: Spread) -> usize {
        let mut place = self.home(spread);
        loop {
            match self.places[place] {
                0 => return place,
                n if self.entries[n as usize - 1].hash == hash => return place,
                _ => place = (place + 1) & (self.places.len() - 1),
            }
        }
    }

    pub fn find(&self, hash: u64, spread: Spread) -> Option<usize> {
        match self.places[self.probe(hash, spread)] {
            0 => None,
            n => Some(n as usize - 1),
        }
    }

    /// Makes an entry for a key that has none; `None` if there are as many as there may be.
    pub fn add(&mut self, hash: u64, spread: Spread, db: u8, bytes: u32) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        if (self.len() + 1) * 2 > self.places.len() {
            self.grow();
        }
        let at = match self.free.pop() {
            Some(at) => at as usize,
            None => {
                if self.entries.len() == self.entries.capacity() {
                    // By a half, not by as much again.
                    self.entries.reserve_exact((self.entries.len() / 2).max(64));
                }
                let marks = [Mark::default(); SIZES];
                self.entries.push(Entry { hash, bytes, lifetime: 0, until: [NEVER; SIZES], marks, db });
                self.entries.len() - 1
            }
        };
        let entry = &mut self.entries[at];
        // Marks stay: what is left of another key in the queues is told from this one's by them.
        (entry.hash, entry.bytes, entry.lifetime, entry.db) = (hash, bytes, 0, db);
        let place = self.probe(hash, spread);
        self.places[place] = at as u32 + 1;
        Some(at)
    }

    fn grow(&mut self) {
        self.places = vec![0; self.places.len() * 2];
        for at in 0..self.entries.len() {
            if self.entries[at].is_kept() || self.spared == Some(at) {
                let hash = self.entries[at].hash;
                let place = self.probe(hash, Spread::of(hash));
                self.places[place] = at as u32 + 1;
            }
        }
    }

    /// Keeps this key, whatever caches do, until [`Keys::let_go`].
    pub fn spare(&mut self, at: usize) {
        self.spared = Some(at);
    }

    /// Ends [`Keys::spare`].
    pub fn let_go(&mut self) {
        if let Some(at) = self.spared.take() {
            self.drop_unused(at);
        }
    }

    /// Forgets the key if no cache has it.
    pub fn drop_unused(&mut self, at: usize) {
        let entry = self.entries[at];
        if entry.is_kept() || self.spared == Some(at) {
            return;
        }
        let mut place = self.probe(entry.hash, Spread::of(entry.hash));
        // The key was forgotten before.
        if self.places[place] as usize != at + 1 {
            return;
        }
        self.free.push(at as u32);
        // Entries behind it whose probes passed it move up.
        let most = self.places.len() - 1;
        let mut next = place;
        loop {
            next = (next + 1) & most;
            let n = self.places[next];
            if n == 0 {
                break;
            }
            let home = self.home(Spread::of(self.entries[n as usize - 1].hash));
            if next.wrapping_sub(home) & most >= next.wrapping_sub(place) & most {
                self.places[place] = n;
                place = next;
            }
        }
        self.places[place] = 0;
    }
}

impl Entry {
    /// A cache has it.
    fn is_kept(&self) -> bool {
        self.marks.iter().any(|mark| mark.is_in())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn keys_are_found_until_no_cache_has_them_and_memory_is_used_again() {
        let mut keys = Keys::new(500);
        let mut known: HashMap<u64, usize> = HashMap::new();
        let mut random = 7u64;
        for _ in 0..50_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let hash = ((random >> 40) % 900) << 12;
            let spread = Spread::of(hash);
            assert_eq!(keys.find(hash, spread), known.get(&hash).copied());
            match known.get(&hash).copied() {
                Some(at) => {
                    keys[at].marks[3] = keys[at].marks[3].out();
                    keys.drop_unused(at);
                    known.remove(&hash);
                }
                None => {
                    let added = keys.add(hash, spread, 0, 1);
                    assert_eq!(added.is_none(), known.len() == 500);
                    let Some(at) = added else { continue };
                    keys[at].marks[3] = keys[at].marks[3].into_main(0);
                    known.insert(hash, at);
                }
            }
            assert_eq!(keys.len(), known.len());
        }
        assert!(keys.places().len() <= 500);
    }

    #[test]
    fn the_one_that_is_spared_stays() {
        let mut keys = Keys::new(10);
        let at = keys.add(64, Spread::of(64), 0, 1).expect("room");
        keys.spare(at);
        keys.drop_unused(at);
        assert_eq!(keys.find(64, Spread::of(64)), Some(at));
        keys.let_go();
        assert_eq!((keys.find(64, Spread::of(64)), keys.len()), (None, 0));
    }
}
