//! What is taken out of a stream, or done to what is pending in it, some at a time: each is one moment, between which
//! others are served, and events of a moment are told with it.
//!
//! ```text
//! XTRIM s MAXLEN 0    some thousand leaves │ … ─▶ how many went, of all
//! XDEL s id id …      512 of them │ 512 │ …    ─▶ how many were there, of all
//! XGROUP DESTROY      1024 that are pending │ … ─▶ the group
//! ```
//!
//! In EXEC all is one moment.

use larder_protocol::resp::Args;
use larder_store::{Key, Removal, StreamId, StreamTrimmed, Trim};

use super::{change, ids, put_id};
use crate::core::events::{Change, seen};
use crate::redis::call::Call;
use crate::redis::collections::FEW_ELEMENTS;
use crate::redis::collections::words::first;
use crate::redis::fail::{Done, Fail};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
use crate::redis::strings::rewrite::Heap;
use crate::redis::strings::source::Name;

/// What it takes to trim entries.
pub(super) fn trimming_ns(done: &StreamTrimmed) -> u64 {
    LEAF_NS * u64::from(done.count > 0) + done.bytes / LEAF_BYTES_A_NS
}

/// What it takes to make a leaf anew with what is above it, and bytes of leaves that go in a nanosecond.
const LEAF_NS: u64 = 1_000;
const LEAF_BYTES_A_NS: u64 = 6;
/// IDs that are written in one moment, at most, and what each takes.
const IDS_AT_ONCE: usize = 512;
pub(crate) const ID_NS: u64 = 2_000;
/// Pending entries that go with a group or a consumer in one moment, and what each takes.
const PENDING_AT_ONCE: usize = 1 << 10;
pub(crate) const PENDING_NS: u64 = 500;

/// Trimming that goes on.
#[derive(Debug)]
struct Trimming {
    change: Change,
    name: Name,
    trim: Trim,
    count: u64,
    /// What is replied; none: how many are gone.
    id: Option<StreamId>,
}

/// IDs of which some are to be deleted, or acknowledged, still.
#[derive(Debug)]
struct Ids {
    name: Name,
    /// In this group they are acknowledged; none: deleted.
    group: Option<Box<[u8]>>,
    count: usize,
    kept: Kept,
    _held: Heap,
}

/// A group, or a consumer of it, that goes.
#[derive(Debug)]
struct Removing {
    name: Name,
    group: Box<[u8]>,
    consumer: Option<Box<[u8]>>,
    pending: usize,
    _held: Heap,
}

impl Call<'_, '_, '_> {
    /// Goes on trimming a stream, and replies an ID, or how many entries are gone.
    pub(super) fn go_on_trimming(
        &mut self,
        key: &Key<'_>,
        trim: Trim,
        done: StreamTrimmed,
        id: Option<StreamId>,
    ) -> Done {
        let name = Name::kept(self, key.bytes())?;
        // As many as were to go at first: what comes meanwhile stays.
        let trim = Trim { limit: Some(done.left), about: false, ..trim };
        self.go_on_with(Trimming { change: change("xtrim"), name, trim, count: done.count, id });
        Ok(())
    }

    /// Runs what changes a key, and tells of that as one change.
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

    /// Deletes the entries with these IDs, or acknowledges them in a group, and replies how many that were.
    pub(super) fn work_on_ids(&mut self, key: &Key<'_>, group: Option<&[u8]>, mut words: Args<'_>) -> Done {
        if words.len() <= IDS_AT_ONCE || self.cx.guard.in_transaction() {
            let count = self.ids_of_a_moment(key, group, words)?;
            self.spend_on(words.len(), ID_NS);
            return self.length(count);
        }
        let some = first(&mut words, self.ids_of_a_step());
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

    /// Removes a group, and replies whether it was there; or a consumer of one, and replies how much was pending with it.
    pub(super) fn remove_group(&mut self, key: &Key<'_>, group: &[u8], consumer: Option<&[u8]>) -> Done {
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
                let told = change(if consumer.is_some() { "xgroup-delconsumer" } else { "xgroup-destroy" });
                self.cx.tell(told.class, told.name, self.client.db, key.bytes());
            }
            return self.removed(done, consumer.is_some());
        }
        let held = Heap::keep(self, group.len() + consumer.map_or(0, <[u8]>::len))?;
        let name = Name::kept(self, key.bytes())?;
        let (group, consumer) = (group.into(), consumer.map(Into::into));
        self.go_on_with(Removing { name, group, consumer, pending: done.pending, _held: held });
        Ok(())
    }

    fn removal_of_a_moment(
        &mut self,
        key: &Key<'_>,
        (group, consumer): (&[u8], Option<&[u8]>),
        most: usize,
    ) -> Result<Removal, Fail> {
        match consumer {
            None => Ok(self.cx.guard.group_destroy(key, group, most)?),
            Some(consumer) => {
                let done = self.cx.guard.consumer_delete(key, group, consumer, most);
                done.map_err(|refusal| super::refused(refusal, || super::no_group_for(key.bytes(), group)))
            }
        }
    }

    fn removed(&mut self, done: Removal, of_consumer: bool) -> Done {
        self.length(if of_consumer { done.pending } else { usize::from(done.there) })
    }
}

impl Job for Trimming {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let key = self.name.key(call);
        let (trim, told) = (self.trim, self.change);
        let done =
            call.tell_moment(Some(&told), key.bytes(), |call| call.cx.guard.stream_trim(&key, &trim, false));
        // An entry that was put stays put.
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
            let some = first(rest, some);
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
        let told = change(if consumer.is_some() { "xgroup-delconsumer" } else { "xgroup-destroy" });
        let most = ((call.step_ns() / PENDING_NS) as usize).clamp(FEW_ELEMENTS, PENDING_AT_ONCE);
        let db = call.client.db;
        let done = call.removal_of_a_moment(&key, (group, consumer.as_deref()), most)?;
        call.spend(done.pending as u64 * PENDING_NS);
        *pending += done.pending;
        if done.more {
            return Ok(Step::More);
        }
        call.cx.tell(told.class, told.name, db, key.bytes());
        // Somebody may have been faster with the last of it.
        call.removed(Removal { there: true, pending: *pending, more: false }, consumer.is_some())?;
        Ok(Step::Done)
    }
}
