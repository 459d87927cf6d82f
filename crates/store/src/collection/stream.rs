//! Streams: entries in the order of their IDs, and groups of consumers that read them. All of a stream is rows in one order
//! (`docs/internals/streams.md`).
//!
//! ```text
//! look ─▶ what is to be put and taken out, in order ─▶ merged leaf by leaf ─▶ one root is published
//! ```
//!
//! A stream stays when its last entry goes, and its groups with it: only the key takes it away.
//!
//! `stream/rows.rs` knows bytes, `view.rs` is how it is read, `groups.rs` are the verbs of groups, `load.rs` reads one out of a
//! payload.

mod groups;
mod load;
pub(in crate::collection) mod rows;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod view;

pub use groups::{AutoClaimed, Claim, Delivered, Removal, Start};
pub use load::{ConsumerLoad, GroupLoad, StreamLoad};
pub(in crate::collection) use rows::check as check_rows;
pub use rows::{NewFields, StreamFields, StreamId};
pub use view::{Consumer, Group, PendingEntry, Stream, StreamEntries, StreamEntriesBack, StreamEntry};

use super::Type;
use super::build::Full;
use super::change::{Declined, Workpiece};
use crate::worker::Guard;
use crate::{End, Key};
use rows::{ENTRIES, FIRST_LINE, Op, RowKey, StreamRow, parts_of};

/// Entries that are trimmed together where an approximate trim will do: as many as a node of Redis's has.
const TRIMMED_TOGETHER: u64 = 100;
/// Bytes of a leaf, about.
const LEAF_BYTES: u64 = 1 << 10;
/// Rows of a small stream are merged until they have so many bytes.
const MERGED_BYTES: usize = 8 << 10;

/// Why a stream was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefusal {
    /// For a reason that any collection may have.
    Declined(Declined),
    /// There is no ID behind its last one.
    Exhausted,
    /// An ID is not above the last one, or below that of an entry.
    Small,
    /// An ID is below the greatest that was deleted.
    BelowDeleted,
    /// Fewer entries would have been added than there are.
    FewAdded,
    /// There is no stream.
    NoStream,
    /// There is no such group.
    NoGroup,
    /// There is such a group.
    GroupExists,
}

impl From<Declined> for StreamRefusal {
    fn from(declined: Declined) -> StreamRefusal {
        StreamRefusal::Declined(declined)
    }
}

/// Which ID a new entry gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// The time, or the one behind the last.
    Now,
    /// The next one of these milliseconds.
    In(u64),
    /// This one.
    Is(StreamId),
}

impl NewId {
    /// The ID, behind the last one.
    fn behind(self, last: StreamId, now: u64) -> Result<StreamId, StreamRefusal> {
        if last == StreamId::MAX {
            return Err(StreamRefusal::Exhausted);
        }
        let id = match self {
            NewId::Now if now > last.ms => StreamId { ms: now, seq: 0 },
            NewId::Now => last.next().ok_or(StreamRefusal::Exhausted)?,
            NewId::In(ms) if ms == last.ms => {
                StreamId { ms, seq: last.seq.checked_add(1).ok_or(StreamRefusal::Small)? }
            }
            NewId::In(ms) => StreamId { ms, seq: 0 },
            NewId::Is(id) => id,
        };
        if id > last { Ok(id) } else { Err(StreamRefusal::Small) }
    }
}

/// Which entries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// The last ones, as many as this says.
    Len(u64),
    /// Those from this ID on.
    Id(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Which entries are kept.
    pub to: TrimTo,
    /// Whether some more may be kept, so that entries are removed by the hundred.
    pub about: bool,
    /// Most entries that are removed.
    pub limit: Option<u64>,
}

impl Trim {
    /// How many entries go.
    pub fn count(&self, stream: &Stream<'_>) -> u64 {
        let len = stream.len() as u64;
        let beyond = match self.to {
            TrimTo::Len(kept) => len.saturating_sub(kept),
            TrimTo::Id(id) => stream.below(id) as u64,
        };
        let count = beyond.min(self.limit.unwrap_or(u64::MAX));
        // The last of them may be fewer than a hundred.
        if !self.about || count == len {
            return count;
        }
        // By their numbers among all that were ever added.
        let gone = stream.added().saturating_sub(len);
        let end = gone + count;
        (end - end % TRIMMED_TOGETHER).saturating_sub(gone)
    }
}

/// An entry that is to be put.
#[derive(Clone, Copy, Debug)]
pub struct Adding<'a> {
    /// Its ID.
    pub id: NewId,
    /// Milliseconds since 1970.
    pub now: u64,
    /// Its fields.
    pub fields: &'a NewFields,
    /// Those of their values that lie apart, as [`NewFields::set_long`] has them.
    pub apart: &'a [&'a [u8]],
    /// Only if there is a stream.
    pub present: bool,
    /// How the stream is trimmed then.
    pub trim: Option<Trim>,
    /// All that is to be trimmed goes at once.
    pub at_once: bool,
}

/// What came of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The entry's ID.
    pub id: StreamId,
    /// What was trimmed.
    pub trimmed: StreamTrimmed,
}

/// What came of trimming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTrimmed {
    /// Entries that are gone.
    pub count: u64,
    /// How many more are to be removed: a call trims a part of very many.
    pub left: u64,
    /// Bytes that they took. A part of a long value counts as an ordinary leaf.
    pub bytes: u64,
}

impl StreamRow {
    /// The row of a stream that has just been made.
    const NEW: StreamRow =
        StreamRow { last: StreamId::MIN, deleted_max: StreamId::MIN, added: 0, next_line: FIRST_LINE };

    fn op(self) -> Op<'static> {
        Op { key: RowKey::STREAM, data: Some(rows::Data::Stream(self)) }
    }
}

impl Workpiece<'_> {
    /// What it is by now; none if there is no stream yet.
    fn stream(&self) -> Option<Stream<'_>> {
        self.collection().and_then(|there| there.stream())
    }

    /// Puts and takes out rows, which come in order.
    fn merge_rows(&mut self, ops: &[Op<'_>]) -> Result<(), Declined> {
        debug_assert!(ops.windows(2).all(|two| two[0].key < two[1].key), "rows come in order");
        let mut left = ops;
        if left.is_empty() {
            return Ok(());
        }
        while !self.is_tree() && !left.is_empty() {
            self.grow_at_back();
            let builder = self.write();
            match builder.merge_rows(left, |_, bytes| bytes < MERGED_BYTES, &mut false) {
                Ok(done) => left = &left[done..],
                Err(Full) if builder.is_empty() => return Err(Declined::TooLarge),
                Err(Full) => self.plant()?,
            }
        }
        if left.is_empty() { Ok(()) } else { self.merge_in_tree(left) }
    }

    /// Puts an entry, of which values lie apart, and the stream's own row.
    #[cold]
    fn put_long(&mut self, entry: Op<'_>, own: Op<'_>, apart: &[&[u8]]) -> Result<(), Declined> {
        let parts: Vec<_> = parts_of(apart.iter().copied()).collect();
        let mut ops = vec![entry, own];
        ops.extend(parts.iter().map(|(number, part)| Op::of_part(entry.key.id, number, part)));
        self.merge_rows(&ops)
    }

    /// Takes out the parts of entries with IDs from `from` up to `to`, excluded, or up to the last; returns how many.
    fn remove_parts(&mut self, from: StreamId, to: Option<StreamId>) -> Result<usize, Declined> {
        let parts = self.stream().map_or(0..0, |stream| stream.parts_of(from, to));
        let count = parts.len();
        self.remove_places(parts, End::Front, true).map(|_| count)
    }

    /// Trims it.
    fn trim(&mut self, trim: &Trim, at_once: bool) -> Result<StreamTrimmed, Declined> {
        let Some(there) = self.stream() else { return Ok(StreamTrimmed::default()) };
        let all = trim.count(&there);
        if all == 0 {
            return Ok(StreamTrimmed::default());
        }
        let some = if at_once { all } else { there.gone_at_once(all) };
        let has_parts = there.may_have_parts();
        let bytes = |change: &Self| change.stream().map_or(0, |stream| stream.bytes() as u64);
        let before = bytes(self);
        let left = self.remove_places(0..some as usize, End::Front, at_once)?.len() as u64;
        let mut gone = before.saturating_sub(bytes(self));
        if has_parts {
            // Those of entries that went by themselves have gone with them.
            let first = self.stream().filter(|stream| !stream.is_empty()).map(|stream| stream.first_id());
            gone += LEAF_BYTES * self.remove_parts(StreamId::MIN, first)? as u64;
        }
        let count = some - left;
        Ok(StreamTrimmed { count, left: all - count, bytes: gone })
    }
}

impl Guard<'_> {
    /// Puts an entry at the end of a stream, and trims it; `None` if there is no stream, and [`Adding::present`] asks for one.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn stream_add(&mut self, key: &Key<'_>, adding: &Adding<'_>) -> Result<Option<Added>, StreamRefusal> {
        let changed = self.change_collection(key, Type::Stream, |stream| {
            let there = stream.stream();
            if there.is_none() && adding.present {
                return Ok(None);
            }
            let mut own = there.map_or(StreamRow::NEW, |there| there.own);
            let id = adding.id.behind(own.last, adding.now)?;
            (own.last, own.added) = (id, own.added.saturating_add(1));
            let entry = Op { key: RowKey::of_id(ENTRIES, id), data: Some(adding.fields.data()) };
            match adding.apart {
                [] => stream.merge_rows(&[entry, own.op()])?,
                apart => stream.put_long(entry, own.op(), apart)?,
            }
            let trimmed = match &adding.trim {
                Some(trim) => stream.trim(trim, adding.at_once)?,
                None => StreamTrimmed::default(),
            };
            Ok::<_, StreamRefusal>(Some(Added { id, trimmed }))
        })?;
        Ok(changed.answer)
    }

    /// Trims a stream.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn stream_trim(
        &mut self,
        key: &Key<'_>,
        trim: &Trim,
        at_once: bool,
    ) -> Result<StreamTrimmed, Declined> {
        let changed = self.take_out_of_collection(key, Type::Stream, |stream| stream.trim(trim, at_once))?;
        Ok(changed.answer)
    }

    /// Takes entries out of a stream; returns how many were there. Where there is no memory for what is left beside what was
    /// there, they are taken out one after the other.
    ///
    /// # Errors
    /// [`Declined`], and nothing done; of those that are taken out one after the other, the first ones may be.
    pub fn stream_delete(
        &mut self,
        key: &Key<'_>,
        ids: impl Iterator<Item = StreamId> + Clone,
    ) -> Result<usize, Declined> {
        match self.delete_at_once(key, ids.clone()) {
            Err(Declined::NoMemory) if !self.memory_comes() => {}
            done => return done,
        }
        self.one_by_one(key, ids, |guard, id| guard.delete_at_once(key, std::iter::once(id)))
    }

    /// Has `take` take something out for each of some IDs, as one step for readers: each may need nodes of its own, and
    /// what is kept for leftovers would not do for all of them.
    pub(super) fn one_by_one(
        &mut self,
        key: &Key<'_>,
        ids: impl Iterator<Item = StreamId>,
        mut take: impl FnMut(&mut Self, StreamId) -> Result<usize, Declined>,
    ) -> Result<usize, Declined> {
        let own = !self.in_transaction();
        if own {
            self.begin([*key]);
        }
        let mut gone = Ok(0);
        for id in ids {
            match (take(self, id), &mut gone) {
                (Ok(one), Ok(gone)) => *gone += one,
                (Err(declined), _) => {
                    gone = Err(declined);
                    break;
                }
                (Ok(_), Err(_)) => {}
            }
        }
        if own {
            self.finish();
        }
        gone
    }

    fn delete_at_once(
        &mut self,
        key: &Key<'_>,
        ids: impl Iterator<Item = StreamId> + Clone,
    ) -> Result<usize, Declined> {
        let changed = self.take_out_of_collection(key, Type::Stream, |stream| {
            let Some(there) = stream.stream() else { return Ok::<_, Declined>(0) };
            let (mut ops, mut long): (Vec<Op<'_>>, Vec<StreamId>) = Default::default();
            for id in ids.clone() {
                let Some(entry) = there.entry(id) else { continue };
                ops.push(Op { key: RowKey::of_id(ENTRIES, id), data: None });
                if entry.fields.has_apart() {
                    long.push(id);
                }
            }
            ops.sort_unstable_by_key(|op| op.key);
            ops.dedup_by_key(|op| op.key);
            let count = ops.len();
            let Some(greatest) = ops.last().map(|op| op.key.id) else { return Ok(0) };
            let mut own = there.own;
            if greatest > own.deleted_max {
                own.deleted_max = greatest;
                ops.push(own.op());
            }
            stream.merge_rows(&ops)?;
            for id in long {
                stream.remove_parts(id, id.next())?;
            }
            Ok(count)
        })?;
        Ok(changed.answer)
    }

    /// Gives a stream another last ID, and perhaps another number of entries that were added, and another greatest ID of
    /// those that were deleted.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn stream_set_id(
        &mut self,
        key: &Key<'_>,
        last: StreamId,
        added: Option<u64>,
        deleted_max: Option<StreamId>,
    ) -> Result<(), StreamRefusal> {
        self.change_collection(key, Type::Stream, |stream| {
            let there = stream.stream().ok_or(StreamRefusal::NoStream)?;
            let mut own = there.own;
            if last < own.deleted_max {
                return Err(StreamRefusal::BelowDeleted);
            }
            if let Some(end) = there.len().checked_sub(1).and_then(|end| there.at(end)) {
                if last < end.id {
                    return Err(StreamRefusal::Small);
                }
                if added.is_some_and(|added| added < there.len() as u64) {
                    return Err(StreamRefusal::FewAdded);
                }
            }
            own.last = last;
            own.added = added.unwrap_or(own.added);
            own.deleted_max = deleted_max.unwrap_or(own.deleted_max);
            Ok(stream.merge_rows(&[own.op()])?)
        })?;
        Ok(())
    }
}
