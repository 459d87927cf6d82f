//! Removing from a stream, and changing what is pending in it, some at a time: each step is one moment, between which others are
//! served, and publishes its own events.
//!
//! ```text
//! XTRIM s MAXLEN 0    some thousand leaves │ … ─▶ how many were removed, of all
//! XDEL s id id …      512 of them, or 8 MiB │ … ─▶ how many were there, of all
//! XGROUP DESTROY      the group, 1024 of its pending │ 1024 │ …
//! XGROUP DELCONSUMER  1024 of its pending │ … ─▶ the consumer
//! ```
//!
//! In EXEC the command is one moment.

use std::sync::Arc;

use larder_protocol::resp::Args;
use larder_store::{Declined, Guard, Key, Moment, Removal, Stream, StreamId, StreamTrimmed, Trim, Type};

use super::{change, ids, put_id};
use crate::core::events::{Change, seen};
use crate::redis::call::Call;
use crate::redis::collections::words::first;
use crate::redis::collections::{FEW_ELEMENTS, peek_as};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
use crate::redis::waiters::Waiters;

/// Work to trim entries.
pub(super) fn trimming_ns(done: &StreamTrimmed) -> u64 {
    LEAF_NS * u64::from(done.count > 0) + done.bytes / LEAF_BYTES_A_NS
}

/// Work to make a leaf anew with what is above it, and bytes of leaves that are freed in a nanosecond.
const LEAF_NS: u64 = 1_000;
const LEAF_BYTES_A_NS: u64 = 6;
/// IDs that are worked on in one moment, at most, and the work of each.
const IDS_AT_ONCE: usize = 512;
pub(crate) const ID_NS: u64 = 2_000;
/// Bytes of entries that are deleted in one moment, if values of some lie apart: about 512 leaves. At least one entry is.
const DELETED_BYTES: usize = 8 << 20;
/// Bytes of such values that are freed in a nanosecond: 16 KiB in 150.
const PART_BYTES_A_NS: u64 = 100;
/// Pending entries that are removed with a group or a consumer in one moment, and the work of each.
pub(crate) const PENDING_AT_ONCE: usize = 1 << 10;
pub(crate) const PENDING_NS: u64 = 500;

/// Trimming that is under way.
#[derive(Debug)]
struct Trimming {
    change: Change,
    name: Name,
    trim: Trim,
    count: u64,
    /// The ID to reply; `None`: how many entries are removed.
    id: Option<StreamId>,
}

/// IDs of entries to delete or acknowledge.
#[derive(Debug)]
struct Ids {
    name: Name,
    /// The group in which they are acknowledged; `None`: they are deleted.
    group: Option<Box<[u8]>>,
    count: usize,
    kept: Kept,
    _held: Heap,
}

/// A consumer that is being removed.
#[derive(Debug)]
struct Removing {
    name: Name,
    group: Box<[u8]>,
    consumer: Box<[u8]>,
    pending: usize,
    _held: Heap,
}

/// The rest of a group that was removed. If the connection ends meanwhile, upkeep goes on with it.
#[derive(Debug)]
struct Clearing {
    key: Box<[u8]>,
    /// The moment of its database, which may have another name by now.
    moment: Moment,
    waiters: Arc<Waiters>,
    ended: bool,
    _held: Heap,
}

impl Call<'_, '_, '_> {
    /// Goes on trimming a stream, and replies an ID, or how many entries are removed.
    pub(super) fn go_on_trimming(
        &mut self,
        key: &Key<'_>,
        trim: Trim,
        done: StreamTrimmed,
        id: Option<StreamId>,
    ) -> Done {
        let name = Name::kept(self, key.bytes())?;
        // As many as were to be removed at first: entries that come meanwhile stay.
        let trim = Trim { limit: Some(done.left), about: false, ..trim };
        self.go_on_with(Trimming { change: change("xtrim"), name, trim, count: done.count, id });
        Ok(())
    }

    /// Runs what changes a key, and publishes that as one change.
    fn tell_moment<R>(&mut self, told: Option<&Change>, key: &[u8], run: impl FnOnce(&mut Self) -> R) -> R {
        let Some(told) = told.filter(|_| self.cx.shared.events.any()) else { return run(self) };
        let db = self.client.db;
        let was = seen(&mut self.cx.guard, db, key);
        let done = run(self);
        let is = seen(&mut self.cx.guard, db, key);
        if was != is {
            self.cx.tell_change(told, db, key, was, is);
        }
        done
    }

    /// Deletes the entries with these IDs, or acknowledges them in a group, and replies how many it found.
    pub(super) fn work_on_ids(&mut self, key: &Key<'_>, group: Option<&[u8]>, mut words: Args<'_>) -> Done {
        let at_once = self.cx.guard.in_transaction();
        let most = if at_once || words.len() <= IDS_AT_ONCE { words.len() } else { self.ids_of_a_step() };
        let most = if at_once { most } else { self.ids_in_a_moment(key, group, words, most) };
        if most == words.len() {
            let count = self.ids_of_a_moment(key, group, words)?;
            self.spend_on(words.len(), ID_NS);
            return self.length(count);
        }
        let some = first(&mut words, most);
        let kept = Kept::new(self, words)?;
        let held = Heap::keep(self, group.map_or(0, <[u8]>::len))?;
        let count = self.ids_of_a_moment(key, group, some)?;
        self.spend_on(some.len(), ID_NS);
        let name = Name::kept(self, key.bytes())?;
        self.go_on_with(Ids { name, group: group.map(Into::into), count, kept, _held: held });
        Ok(())
    }

    fn ids_of_a_step(&self) -> usize {
        ((self.step_ns() / ID_NS) as usize).clamp(FEW_ELEMENTS, IDS_AT_ONCE)
    }

    /// How many of the first `most` of these IDs one moment works on. Deleting frees values that lie apart, and spends the work
    /// of that.
    fn ids_in_a_moment(
        &mut self,
        key: &Key<'_>,
        group: Option<&[u8]>,
        mut words: Args<'_>,
        most: usize,
    ) -> usize {
        // Acknowledged entries stay in the stream, which need not be looked at.
        if group.is_some() {
            return most;
        }
        let there = peek_as(&mut self.cx.guard, key, Type::Stream).ok().flatten();
        let stream = there.and_then(|there| there.stream()).filter(Stream::has_parts);
        let Some(stream) = stream else { return most };
        let (mut count, mut bytes) = (0, 0);
        for id in ids(first(&mut words, most)) {
            if bytes >= DELETED_BYTES {
                break;
            }
            count += 1;
            bytes += stream.entry(id).map_or(0, |entry| entry.fields.bytes());
        }
        self.spend(bytes as u64 / PART_BYTES_A_NS);
        count
    }

    fn ids_of_a_moment(
        &mut self,
        key: &Key<'_>,
        group: Option<&[u8]>,
        words: Args<'_>,
    ) -> Result<usize, Fail> {
        Ok(match group {
            None => self.cx.guard.stream_delete(key, ids(words))?,
            Some(group) => self.cx.guard.group_ack(key, group, ids(words))?,
        })
    }

    /// Removes a group, and replies whether it was there. Others see the group or none: the pending entries of a large one are
    /// freed behind that.
    pub(super) fn remove_group(&mut self, key: &Key<'_>, group: &[u8]) -> Done {
        // Taken before the look at the group: what is flushed from here on is gone.
        let moment = self.cx.guard.moment(self.client.db);
        let mut done = self.cx.guard.group_destroy(key, group, PENDING_AT_ONCE)?;
        self.spend_on(done.pending, PENDING_NS);
        if !done.there {
            return self.length(0);
        }
        let told = change("xgroup-destroy");
        self.cx.tell(told.class, told.name, self.client.db, key.bytes());
        let at_once = self.cx.guard.in_transaction();
        while at_once && done.more {
            let Ok(next) = self.cx.guard.group_removal(key, PENDING_AT_ONCE) else { break };
            self.spend_on(next.pending, PENDING_NS);
            done = next;
        }
        if !done.more {
            return self.length(1);
        }
        let waiters = Arc::clone(&self.shared.waiters);
        // The group is removed, so that this is never refused.
        let held = Heap::charge(self, key.bytes().len());
        let mut clearing = Clearing { key: key.bytes().into(), moment, waiters, ended: false, _held: held };
        if at_once {
            // There was no memory for the rest.
            clearing.leave();
            return self.length(1);
        }
        self.go_on_with(clearing);
        Ok(())
    }

    /// Removes a consumer, and replies how many entries were pending with it.
    pub(super) fn remove_consumer(&mut self, key: &Key<'_>, group: &[u8], consumer: &[u8]) -> Done {
        let at_once = self.cx.guard.in_transaction();
        let most = if at_once { usize::MAX } else { PENDING_AT_ONCE };
        let mut done = self.removal_of_a_moment(key, (group, consumer), most)?;
        while at_once && done.more {
            let more = self.removal_of_a_moment(key, (group, consumer), most)?;
            done = Removal { pending: done.pending + more.pending, more: more.more, ..done };
        }
        self.spend_on(done.pending, PENDING_NS);
        if !done.more {
            if done.there {
                let told = change("xgroup-delconsumer");
                self.cx.tell(told.class, told.name, self.client.db, key.bytes());
            }
            return self.length(done.pending);
        }
        let held = Heap::keep(self, group.len() + consumer.len())?;
        let name = Name::kept(self, key.bytes())?;
        let (group, consumer) = (group.into(), consumer.into());
        self.go_on_with(Removing { name, group, consumer, pending: done.pending, _held: held });
        Ok(())
    }

    fn removal_of_a_moment(
        &mut self,
        key: &Key<'_>,
        (group, consumer): (&[u8], &[u8]),
        most: usize,
    ) -> Result<Removal, Fail> {
        let done = self.cx.guard.consumer_delete(key, group, consumer, most);
        done.map_err(|refusal| super::refused(refusal, || super::no_group_for(key.bytes(), group)))
    }
}

/// Removes a part of what removed groups left in a stream. Called by upkeep, for a client that has gone.
///
/// # Errors
/// There is no memory to go on.
pub(crate) fn clear_some(guard: &mut Guard<'_>, key: &Key<'_>) -> Result<Removal, Declined> {
    guard.group_removal(key, PENDING_AT_ONCE)
}

impl Job for Trimming {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let key = self.name.key(call);
        let (trim, told) = (self.trim, self.change);
        let done =
            call.tell_moment(Some(&told), key.bytes(), |call| call.cx.guard.stream_trim(&key, &trim, false));
        // An entry that was added stays added.
        let done = match done {
            Err(_) if self.id.is_some() => StreamTrimmed::default(),
            done => done?,
        };
        call.spend(trimming_ns(&done));
        self.count += done.count;
        if done.left > 0 {
            self.trim.limit = Some(done.left);
            return Ok(Step::More);
        }
        match self.id {
            Some(id) => put_id(call.out, id),
            None => call.length(self.count as usize)?,
        }
        Ok(Step::Done)
    }
}

impl Job for Ids {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Ids { name, group, count, kept, .. } = self;
        let (some, key) = (call.ids_of_a_step(), name.key(call));
        let told = group.is_none().then(|| change("xdel"));
        *count += kept.take(|rest| {
            let most = call.ids_in_a_moment(&key, group.as_deref(), *rest, some.min(rest.len()));
            let some = first(rest, most);
            call.spend(some.len() as u64 * ID_NS);
            call.tell_moment(told.as_ref(), key.bytes(), |call| {
                call.ids_of_a_moment(&key, group.as_deref(), some)
            })
        })?;
        if kept.left() > 0 {
            return Ok(Step::More);
        }
        call.length(*count)?;
        Ok(Step::Done)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

impl Job for Removing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Removing { name, group, consumer, pending, .. } = self;
        let key = name.key(call);
        let told = change("xgroup-delconsumer");
        let most = ((call.step_ns() / PENDING_NS) as usize).clamp(FEW_ELEMENTS, PENDING_AT_ONCE);
        let db = call.client.db;
        let done = call.removal_of_a_moment(&key, (group, consumer), most)?;
        call.spend(done.pending as u64 * PENDING_NS);
        *pending += done.pending;
        if done.more {
            return Ok(Step::More);
        }
        call.cx.tell(told.class, told.name, db, key.bytes());
        // Another client may have removed the last of it.
        call.length(*pending)?;
        Ok(Step::Done)
    }
}

impl Clearing {
    /// Leaves the rest to upkeep.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.waiters.leave_group(self.moment, &self.key);
        }
    }
}

impl Job for Clearing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let most = ((call.step_ns() / PENDING_NS) as usize).clamp(FEW_ELEMENTS, PENDING_AT_ONCE);
        if let Some(db) = call.cx.guard.name_since(self.moment) {
            let key = call.cx.guard.key_in(db, &self.key);
            match call.cx.guard.group_removal(&key, most) {
                Ok(done) => {
                    call.spend(done.pending as u64 * PENDING_NS);
                    if done.more {
                        return Ok(Step::More);
                    }
                }
                // The key may have another value now. The group is removed in any case.
                Err(_) => self.leave(),
            }
        }
        self.ended = true;
        call.length(1)?;
        Ok(Step::Done)
    }
}

impl Drop for Clearing {
    fn drop(&mut self) {
        self.leave();
    }
}
