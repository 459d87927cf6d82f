//! The publication: how an item that was written becomes its key's. There is one, and every way of writing ends in it.
//!
//! ```text
//! way                               publishes                     over
//! publish_draft (here)              anything                      anything, or nothing
//! overwrite     (../overwrite.rs)   a body                        a live whole item, where a hint leads
//! replace_with                      a body without flags, expiry  a simple item, where a hint leads
//! insert_value                      a body without flags, expiry  nothing
//! ```
//!
//! What is made over several turns (an upload, an append to a long value, a collection that is copied) is a draft, and no
//! key's, until its last step. That is `publish_draft`, with the condition of the command: of an append, that the item is
//! still the one that was looked at.
//!
//! Before it, each way by itself:
//!
//! - A. A chunk is allocated and filled. No lock is held, no thread sees it.
//! - B. The key's home bucket is locked; nothing in it was flushed, and it is in no transaction but this worker's.
//! - C. The item that the key has is found, and whether it is alive.
//! - D. The condition of the write holds of it, and the new item has a place for its token.
//!
//! Then [`Guard::publish_item`], under the lock up to step 5:
//!
//! 1. **token**: the version of the item, and what is written down beside it ([`Version`]).
//! 2. **item**: the header says what it is. A sweep may see it from here on.
//! 3. **slot**: it takes the place of the old item, or one of its own. Readers see it from here on.
//! 4. **told**: those that watch or await the key.
//! 5. **unlocked**, with one write more: the number that step 1 took.
//! 6. **expiry**: its span knows when it expires. After step 3, or a visitor of the span could overlook it.
//! 7. **old**: the item that it replaced retires. After step 3: no thread finds it any more.
//! 8. **counted**: in its class, its database, as a collection of its type, and as stored.
//! 9. **noted** as a new key: for RANDOMKEY, and for its probation.
//!
//! A way leaves out only what its condition has proved, by what it hands over: [`Proved`], [`Version::short`], database 0, no
//! expiry. The step is there, and the compiler sees that it has nothing to do. What a new property of items takes is written
//! here, once.
//!
//! `models/publishing.rs` has the steps under the model checker; `write/ways.rs` has each way leave what the others
//! leave; the schedules `publishing` run them all beside each other.

use super::Draft;
use crate::access;
use crate::bucket::{Bucket, Cell, Control, FREQUENCY_MAX, Slot};
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::collection::relabel;
use crate::evict::Reason;
use crate::expect::check;
use crate::index::{Index, Locked, Place};
use crate::item::{FETCHED, Header, Kind, RawItem, earlier, token};
use crate::large::Large;
use crate::worker::{Guard, class_of};
use crate::{Expect, Key, Millis, Refusal, Stored};

/// What a publication does to the token.
#[derive(Clone, Copy)]
pub(crate) enum Token {
    /// The bucket's next version, or the one given.
    Next(Option<u64>),
    /// The item is a copy of the one it replaces: same version, same explicit token.
    Keep { version: u32, explicit: u64 },
}

/// Why a publication did not happen.
pub(crate) enum Unpublished {
    Refused(Refusal),
    /// The bucket has been written to four billion times: tokens need the extension now.
    NeedsExtension,
}

/// The version that an item gets, and the token that is written down in its extension.
#[derive(Clone, Copy)]
pub(crate) struct Version {
    pub(crate) writes: u64,
    pub(crate) explicit: Option<u64>,
    /// It is of a copy, which is no write to a worker that looks at the key.
    copy: bool,
}

impl Version {
    /// The next version of the bucket with this control word, which is locked; `cas`: the token to give instead.
    #[inline]
    pub(crate) fn next(control: Control, cas: Option<u64>, hash: u64) -> Version {
        let writes = control.writes() + 1;
        // The token has to be written down if the header's version does not say it all.
        let explicit = cas.or_else(|| (writes > u64::from(u32::MAX)).then(|| token(writes, hash)));
        Version { writes, explicit, copy: false }
    }

    /// The next version of the bucket with this control word, which is locked, and of which
    /// [`Control::passes_once_more`] has shown that a header holds it.
    #[inline(always)]
    pub(crate) fn short(control: Control) -> Version {
        Version { writes: control.writes() + 1, explicit: None, copy: false }
    }

    fn of(keep: Token, control: Control, hash: u64) -> Version {
        match keep {
            Token::Next(cas) => Version::next(control, cas, hash),
            Token::Keep { version, explicit } => Version {
                writes: u64::from(version),
                explicit: (explicit != 0).then_some(explicit),
                copy: true,
            },
        }
    }
}

/// What a chunk becomes by its publication.
#[derive(Clone, Copy)]
pub(crate) enum Becomes {
    /// A string with this header, which was not written yet: of a body, a free chunk to any sweep.
    Body(Header),
    /// A string of one piece: of a draft.
    Whole,
    /// A string of several pieces: of a draft.
    Large,
    /// A collection of this form: of a draft.
    Collection(u16),
}

/// What is published.
pub(crate) struct Publication<'k> {
    pub(crate) key: &'k Key<'k>,
    /// The key's database: a constant where the way is one of database 0.
    pub(crate) number: u8,
    pub(crate) raw: RawItem,
    pub(crate) chunk: u64,
    /// The class that it counts in.
    pub(crate) class: ClassId,
    pub(crate) becomes: Becomes,
    pub(crate) version: Version,
    /// When it expires, or the first of its fields does (0: never).
    pub(crate) expires_at: Millis,
    /// The write is a read of the old value, too, and counts as one.
    pub(crate) reads: bool,
}

/// What the condition of a way has proved of the item that it replaces, which is not looked at again.
#[derive(Clone, Copy)]
pub(crate) enum Proved {
    /// Nothing: it may have any form, and memory beside its chunk.
    Nothing,
    /// It has its value in place, and this header.
    Whole(Header),
    /// As [`Proved::Whole`], and header, key and value are all of it ([`Header::is_simple`]). `alike`: so is what
    /// replaces it, and as long.
    Simple { header: Header, alike: bool },
}

/// The item that has the key.
pub(crate) struct Old<'s> {
    pub(crate) cell: &'s Cell,
    /// What the cell says, under the lock.
    pub(crate) slot: Slot,
    pub(crate) raw: RawItem,
    /// It has not expired.
    pub(crate) live: bool,
    pub(crate) proved: Proved,
}

impl Old<'_> {
    /// The item, if it is a collection.
    #[inline(always)]
    fn collection(&self) -> Option<RawItem> {
        match self.proved {
            Proved::Nothing => self.raw.header().is_collection().then_some(self.raw),
            Proved::Whole(_) | Proved::Simple { .. } => None,
        }
    }
}

/// Where an item is published.
pub(crate) enum Over<'s, 'p> {
    /// In the place of this one.
    Item(Old<'s>),
    /// In a place of its own, near the home bucket. `probation`: what was found out about the key when this was tried
    /// before, and what is found out now.
    Nothing { place: Place<'s>, probation: &'p mut Option<bool> },
}

/// There is no place for a new key where its home's keys may be: the segment with this `meta` has to grow.
pub(crate) struct NoPlace {
    pub(crate) meta: u64,
}

impl Guard<'_> {
    /// Publishes what was written, under the lock of its `home`, which it unlocks. Steps 1 to 9.
    ///
    /// # Errors
    /// There is no place for it. What was written is no key's then, but a sweep may have seen it.
    #[inline(always)]
    pub(crate) fn publish_item<'s>(
        &mut self,
        home: &'s Bucket,
        mut control: Control,
        new: Publication<'_>,
        over: Over<'s, '_>,
    ) -> Result<Stored, NoPlace> {
        let store = self.store;
        let Publication { key, number, raw, chunk, class, becomes, version, expires_at, reads } = new;
        // 1. The token.
        let Version { writes, explicit, copy } = version;
        // 2. The item.
        match becomes {
            Becomes::Body(header) => raw.publish_header(header, writes),
            Becomes::Whole => raw.publish(writes, explicit, Kind::Whole),
            Becomes::Large => raw.publish(writes, explicit, Kind::Large),
            Becomes::Collection(form) => raw.publish_collection(writes, explicit, form),
        }
        if let Over::Item(old) = &over
            && copy
            && old.raw.header().has(FETCHED)
        {
            raw.mark(FETCHED);
        }
        // 3. The slot.
        let access = access::encode(self.now_s);
        let old = match over {
            Over::Item(old) => {
                if !old.live {
                    self.local.count_reason(store, old.raw, old.slot, self.now_s, Reason::Expired);
                }
                let mut slot = old.slot.overwritten(chunk).with_access(access);
                if reads {
                    slot = slot.with_frequency((old.slot.frequency() + 1).min(FREQUENCY_MAX));
                }
                old.cell.replace(slot);
                Some(old)
            }
            Over::Nothing { place, probation } => {
                let probation = *probation.get_or_insert_with(|| {
                    let bytes = if let Becomes::Large = becomes {
                        // SAFETY: the chunk is this worker's, a large item's.
                        unsafe { Large::of(raw) }.head().value_bytes
                    } else {
                        class.chunk_bytes() as u64
                    };
                    self.local.starts_on_probation(store, class, key.hash, bytes)
                });
                let mut locked = Locked { place, home, control };
                let placed = store.index.insert(&mut locked, Slot::new(place.tag, chunk, access, probation));
                if !placed {
                    home.unlock(locked.control);
                    return Err(NoPlace { meta: Index::meta(&locked) });
                }
                control = locked.control;
                None
            }
        };
        // 4. Watchers of the key are told, but of a copy, which is the same to them.
        let written = if copy { control.written() } else { self.local.written(store, control, key) };
        // 5. The home is unlocked.
        home.unlock(written);
        // 6. The expiry.
        if expires_at != 0 {
            store.arena.note_expiry(chunk, expires_at);
        }
        // 7. The old item.
        let was = old.as_ref().map(|old| self.retire_old(old, key, class));
        // 8. The counts. What has the same key is of the same database.
        if was != Some(class) {
            if let Some(was) = was {
                self.counters.class(was).items.add(-1);
            } else if number != 0 {
                self.counters.database(number).add(1);
            }
            self.counters.class(class).items.add(1);
        }
        let types = &self.counters.types;
        // SAFETY: published in this epoch, or its key's until a moment ago: both are there, whatever has become of the key.
        unsafe {
            match (old.as_ref().and_then(Old::collection), becomes) {
                (Some(was), Becomes::Collection(_)) => types.replace(was, raw),
                (Some(was), _) => types.add(was, -1),
                (None, Becomes::Collection(_)) => types.add(raw, 1),
                (None, _) => {}
            }
        }
        self.counters.items_stored.add(i64::from(!copy));
        // 9. A new key.
        if old.is_none() {
            self.counters.recent.note(number, key.hash);
            self.local.queue_fresh_if_many(store);
        }
        let cas = explicit.unwrap_or_else(|| token(writes, key.hash));
        Ok(Stored { cas, replaced: old.is_some_and(|old| old.live) })
    }

    /// Retires an item that was replaced by one of `class`; returns the class that it counted in.
    #[inline(always)]
    fn retire_old(&mut self, old: &Old<'_>, key: &Key<'_>, class: ClassId) -> ClassId {
        let store = self.store;
        let (raw, location) = (old.raw, old.slot.location());
        match old.proved {
            Proved::Nothing => {
                let was = class_of(&store.arena, raw.header(), location);
                self.local.retire(store, location);
                was
            }
            Proved::Whole(header) => {
                let was = store.class_of_chunk(location);
                self.local.retire_whole(raw, header, location, was, raw.whole_bytes_by(header));
                was
            }
            Proved::Simple { header, alike } => {
                let bytes = 8 + key.bytes.len() + header.value_bytes();
                let was = if alike { class } else { ClassId::of(bytes) };
                self.local.retire_whole(raw, header, location, was, bytes);
                was
            }
        }
    }

    /// Publishes a draft if `expect` holds; its memory is given back if not. The way of everything that has no shorter
    /// one.
    pub(crate) fn publish_draft(
        &mut self,
        key: &Key<'_>,
        draft: Draft,
        keep: Token,
        expect: Expect,
    ) -> Result<Stored, Unpublished> {
        let store = self.store;
        // SAFETY: the draft is this worker's.
        let raw = unsafe { RawItem::new(store.arena.at(draft.chunk)) };
        let (class, becomes) = if draft.large {
            (ClassId::of(CHUNK_BYTES_MAX), Becomes::Large)
        } else {
            let becomes = if draft.form == 0 { Becomes::Whole } else { Becomes::Collection(draft.form) };
            (store.class_of_chunk(draft.chunk), becomes)
        };
        let mut probation = None;
        loop {
            // B. The home.
            let Locked { place, home, control } = self.lock_clean(key.hash);
            // C. What is there.
            let found = store.index.scan(&place, control, |slot| store.is_at(slot, key));
            let old = found.map(|found| {
                // SAFETY: reachable in this epoch.
                let raw = unsafe { RawItem::new(store.arena.at(found.slot.location())) };
                let live = !raw.expired(self.now);
                Old { cell: found.bucket.cell(found.i), slot: found.slot, raw, live, proved: Proved::Nothing }
            });
            // D. The condition, and a place for the token.
            let live = old.as_ref().filter(|old| old.live).map(|old| (old.raw, old.slot.location()));
            let version = Version::of(keep, control, key.hash);
            let refused = match check(expect, live, key.hash) {
                Err(refusal) => Some(Unpublished::Refused(refusal)),
                Ok(()) if version.explicit.is_some() && !raw.has_extension() => {
                    Some(Unpublished::NeedsExtension)
                }
                Ok(()) => None,
            };
            if let Some(refused) = refused {
                home.unlock(control);
                self.local.give_back(store, draft.chunk);
                return Err(refused);
            }
            if !self.local.relabeled.is_empty() {
                relabel(&store.arena, &mut self.local.relabeled);
            }
            let (chunk, number) = (draft.chunk, key.number);
            let expires_at = earlier(raw.expires_at(), draft.soonest);
            let reads = false;
            let new = Publication { key, number, raw, chunk, class, becomes, version, expires_at, reads };
            let over = match old {
                Some(old) => Over::Item(old),
                None => Over::Nothing { place, probation: &mut probation },
            };
            match self.publish_item(home, control, new, over) {
                Ok(stored) => return Ok(stored),
                Err(NoPlace { meta }) if self.make_room(key.hash, meta) => {}
                Err(NoPlace { .. }) => {
                    self.local.give_back(store, draft.chunk);
                    return Err(Unpublished::Refused(Refusal::NoMemory));
                }
            }
        }
    }
}
