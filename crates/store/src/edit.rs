//! Writes that keep a part of the old value: append, prepend, and what is written over a part of it.
//!
//! ```text
//! old   |■■■■■■■■■■|                       append: all of it, then the bytes
//! new   |■■■■|bytes|■|   |■■■■■■■■■■|00|bytes|   over it, and beyond its end
//! ```
//!
//! The new value is built beside the old one, piece by piece, so that no more is on the heap than a
//! small value. The old one is pinned, and not evicted to make room for the new one: a write for
//! which there is no room leaves what was there.

use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::expect::check;
use crate::read::Pinned;
use crate::worker::Guard;
use crate::{Attributes, Eviction, Expect, Key, Lookup, Refusal, Stored, Upload, Value};

/// No item takes less.
const ITEM_BYTES_MIN: usize = 16;
/// Chunks that are looked for ahead at most ([`Guard::finds_memory`]): four spans of the longest, each of which may take a
/// millisecond to get.
const LOOKED_CHUNKS_MAX: usize = 16;
/// Zeros are written so many at a time.
const ZEROS: [u8; 4096] = [0; 4096];

/// Which end [`Guard::concat`] adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// append
    Back,
    /// prepend
    Front,
}

/// How a new value is made: some of the old one, zeros, new bytes, and the rest of the old one.
#[derive(Clone, Copy)]
struct Edit<'b> {
    /// Bytes of the old value in front.
    before: u64,
    zeros: u64,
    bytes: &'b [u8],
    /// Where the old value goes on.
    after: u64,
}

impl<'b> Edit<'b> {
    fn add(bytes: &'b [u8], end: End, old_bytes: u64) -> Edit<'b> {
        let at = if end == End::Back { old_bytes } else { 0 };
        Edit { before: at, zeros: 0, bytes, after: at }
    }

    fn over(bytes: &'b [u8], offset: u64, old_bytes: u64) -> Edit<'b> {
        let before = offset.min(old_bytes);
        let after = offset.saturating_add(bytes.len() as u64).min(old_bytes);
        Edit { before, zeros: offset - before, bytes, after }
    }
}

/// A value that stays where it is while another is made of it.
enum Old<'c> {
    Nothing,
    /// A small one, copied.
    Copied(&'c [u8]),
    Pinned(Pinned),
}

impl Old<'_> {
    fn value_bytes(&self) -> u64 {
        match self {
            Old::Nothing => 0,
            Old::Copied(bytes) => bytes.len() as u64,
            Old::Pinned(pinned) => pinned.value_bytes(),
        }
    }

    /// Copies the bytes from `start` up to `end` to the end of what has arrived of `upload`.
    fn fill(&self, guard: &mut Guard<'_>, upload: &mut Upload, start: u64, end: u64) -> Result<(), Refusal> {
        match self {
            Old::Nothing => Ok(()),
            Old::Copied(bytes) => guard.upload_fill(upload, &bytes[start as usize..end as usize]),
            Old::Pinned(pinned) => {
                let mut left = end - start;
                let mut pieces = pinned.pieces(start);
                while left > 0
                    && let Some(piece) = pieces.next()
                {
                    let bytes = left.min(piece.len() as u64);
                    guard.upload_fill(upload, &piece[..bytes as usize])?;
                    left -= bytes;
                }
                Ok(())
            }
        }
    }
}

impl Guard<'_> {
    /// Appends or prepends to the live item, keeping its flags and expiry. `cas`: the token to give
    /// instead of the next.
    ///
    /// # Errors
    /// As for [`Guard::store_value`].
    pub fn concat(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        end: End,
        cas: Option<u64>,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        if expect == Expect::Absent {
            return Err(Refusal::Absent);
        }
        self.edit(key, cas, expect, |old_bytes| Edit::add(value, end, old_bytes))
    }

    /// Writes `bytes` over the value from `offset` on; flags and expiry stay. The value becomes as long as that takes, with
    /// zeros in front of them if it was shorter. With [`Expect::Absent`] a value is made of them. It costs a copy, where
    /// [`Guard::patch`] writes in place.
    ///
    /// # Errors
    /// As for [`Guard::store_value`].
    pub fn overlay(
        &mut self,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        self.edit(key, None, expect, |old_bytes| Edit::over(bytes, offset, old_bytes))
    }

    fn edit<'b>(
        &mut self,
        key: &Key<'_>,
        cas: Option<u64>,
        expect: Expect,
        edit: impl Fn(u64) -> Edit<'b>,
    ) -> Result<Stored, Refusal> {
        self.local.leave_if_due(self.store);
        // Taken and put back: in steady state an append allocates nothing.
        let mut copy = std::mem::take(&mut self.local.copy);
        self.spare(Some(key));
        let done = loop {
            match self.edit_through(key, cas, expect, &edit, &mut copy) {
                Ok(Some(stored)) => break Ok(stored),
                // Whether what was expected holds of what is there now is looked at anew.
                Ok(None) => {}
                Err(refusal) => break Err(refusal),
            }
        };
        self.spare(None);
        self.local.copy = copy;
        done
    }

    /// [`Guard::edit`] of the version that is there now, with room for a copy of a small old value;
    /// `None` if another version is there by then.
    fn edit_through<'b>(
        &mut self,
        key: &Key<'_>,
        cas: Option<u64>,
        expect: Expect,
        edit: &impl Fn(u64) -> Edit<'b>,
        copy: &mut Vec<u8>,
    ) -> Result<Option<Stored>, Refusal> {
        let (old, attributes, unchanged) = match self.peek(key) {
            Lookup::Hit(item) => {
                check(expect, Some((item.raw, item.slot.location())), key.hash)?;
                let unchanged = Expect::Unchanged(item.seen());
                let attributes = Attributes {
                    flags: item.flags(),
                    expires_at: item.expires_at(),
                    cas,
                    key_binary: item.key_binary(),
                    ..Attributes::default()
                };
                // It stays put while the new one is allocated: pinned, or copied if small.
                let old = match item.value() {
                    Value::Whole(old) => {
                        copy.clear();
                        copy.extend_from_slice(old);
                        Old::Copied(copy)
                    }
                    Value::Pieces(value) => Old::Pinned(value.pin()),
                    Value::Collection(_) => return Err(Refusal::Type),
                };
                (old, attributes, unchanged)
            }
            Lookup::Miss | Lookup::Expired | Lookup::Flushed if expect == Expect::Absent => {
                (Old::Nothing, Attributes { cas, ..Attributes::default() }, Expect::Absent)
            }
            Lookup::Miss | Lookup::Expired | Lookup::Flushed => return Err(Refusal::Absent),
        };
        let old_bytes = old.value_bytes();
        let Edit { before, zeros, bytes, after } = edit(old_bytes);
        let total = (before + (old_bytes - after) + bytes.len() as u64)
            .checked_add(zeros)
            .filter(|total| old_bytes.saturating_add(*total) <= self.store.arena.limit_bytes())
            // Both will never be there at once: that is not found out by trying.
            .ok_or(Refusal::NoMemory)?;
        let mut upload = self.compose(key, total, &attributes)?;
        old.fill(self, &mut upload, 0, before)?;
        let mut left = zeros;
        while left > 0 {
            let n = left.min(ZEROS.len() as u64);
            self.upload_fill(&mut upload, &ZEROS[..n as usize])?;
            left -= n;
        }
        self.upload_fill(&mut upload, bytes)?;
        old.fill(self, &mut upload, after, old_bytes)?;
        match self.publish(upload, unchanged) {
            Ok(stored) => Ok(Some(stored)),
            Err(Refusal::Changed) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// True if there is room for an item of so many bytes (of a large one, for the first of its pieces), or what is there
    /// gives way to it. Finds out by taking memory and giving it back. Costs as much as an allocation where the policy keeps
    /// items, and nothing where all may go.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let store = self.store;
        if store.eviction() == Eviction::All {
            return true;
        }
        let bytes = bytes.clamp(ITEM_BYTES_MIN, CHUNK_BYTES_MAX);
        let Some(chunk) = self.local.allocate(store, ClassId::of(bytes), bytes) else { return false };
        self.write_piece_header(chunk, chunk, bytes - 8);
        self.local.free_unseen(store, chunk);
        true
    }

    /// True if there is memory for `count` items of so many bytes each (of large ones, for the first of their pieces), or
    /// none comes. False if some is on its way, and others wait for this worker: the caller had better serve them, and look
    /// again in some milliseconds. May be called in a transaction, between two writes of which each may be the last of a
    /// step. Of more than 16 items the first 16 are looked for. Costs a look at what the class has free, and as many
    /// allocations where that is too little.
    pub fn finds_memory(&mut self, bytes: usize, count: usize) -> bool {
        let bytes = bytes.clamp(ITEM_BYTES_MIN, CHUNK_BYTES_MAX);
        let (store, class) = (self.store, ClassId::of(bytes));
        let count = count.clamp(1, LOOKED_CHUNKS_MAX);
        // What the spans of the class have free comes into the magazine when that is empty.
        let at_hand = self.local.magazines[usize::from(class.0)].len() as u64;
        let is_there = at_hand > 0 && at_hand + store.slabs.view(class).free_chunks() >= count as u64;
        if self.local.patient || is_there {
            return true;
        }
        let (mut chunks, mut found) = ([0; LOOKED_CHUNKS_MAX], 0);
        let again = self.ask_again(true);
        self.local.looks_ahead = true;
        while found < count
            && let Some(chunk) = self.local.allocate(store, class, bytes)
        {
            self.write_piece_header(chunk, chunk, bytes - 8);
            chunks[found] = chunk;
            found += 1;
        }
        self.local.looks_ahead = false;
        self.ask_again(again);
        for &chunk in &chunks[..found] {
            self.local.free_unseen(store, chunk);
        }
        found == count || !self.memory_comes()
    }

    /// Has what this worker allocates not take the memory of this key, until it is called again.
    pub fn spare(&mut self, key: Option<&Key<'_>>) {
        self.local.spared = key.map(|key| key.hash);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{Config, Store};

    const NOW: u64 = 1_700_000_000_000;

    fn value_of(guard: &mut Guard<'_>, key: &Key<'_>) -> Option<Vec<u8>> {
        let item = guard.peek(key).hit()?;
        Some(match item.value() {
            Value::Whole(value) => value.to_vec(),
            Value::Pieces(value) => value.pin().pieces(0).flatten().copied().collect(),
            Value::Collection(_) => panic!("it is a string"),
        })
    }

    #[test]
    fn edits_make_what_the_same_edits_of_a_vector_make() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..300 {
            let mut guard = worker.enter(NOW);
            let (name, mut model) = (u32::to_le_bytes(round), Vec::new());
            let key = guard.key(&name);
            for edit in 0..4 {
                // About the ends of small values, of pieces, and of nothing.
                let near = [0, 16_384, 16_376, 32_752][random(4) as usize];
                let bytes = vec![edit + 1; (near + random(5)) as usize];
                let expect = if edit == 0 { Expect::Absent } else { Expect::Present };
                if edit == 0 || random(2) == 0 {
                    let at = [0, 16_370, 16_382, 40_000][random(4) as usize] + random(10) as usize;
                    guard.overlay(&key, at as u64, &bytes, expect).unwrap();
                    model.resize(model.len().max(at + bytes.len()), 0);
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                } else if random(2) == 0 {
                    guard.concat(&key, &bytes, End::Back, None, expect).unwrap();
                    model.extend_from_slice(&bytes);
                } else {
                    guard.concat(&key, &bytes, End::Front, None, expect).unwrap();
                    model.splice(0..0, bytes);
                }
                assert!(value_of(&mut guard, &key).as_ref() == Some(&model), "round {round}, edit {edit}");
            }
        }
        store.check_behind(worker);
    }

    #[test]
    fn an_edit_for_which_there_is_no_room_leaves_what_was_there() {
        let store = Store::new(Config { memory_bytes: 8 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        // Two copies of the first value do not fit, which is known at once; two of the second nearly do, with the first evicted.
        for (name, bytes) in [(b"a", 5 << 20), (b"b", (4 << 20) - 40_000)] {
            let key = guard.key(name);
            let old = vec![name[0]; bytes];
            guard.store_value(&key, &old, &Attributes::default(), Expect::Any).unwrap();
            let refused = guard.concat(&key, b"more", End::Back, None, Expect::Present);
            assert_eq!(refused, Err(Refusal::NoMemory));
            let refused = guard.overlay(&key, bytes as u64 + 1, b"more", Expect::Present);
            assert_eq!(refused, Err(Refusal::NoMemory));
            assert!(value_of(&mut guard, &key).as_ref() == Some(&old));
        }
        assert!(guard.local.spared.is_none(), "for as long as the edit only");
        drop(guard);
        store.check_behind(worker);
    }
}
