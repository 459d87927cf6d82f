//! LPOP, RPOP, ZPOPMIN, ZPOPMAX of many elements: some at a time, each of which is one moment; the reply is of as many as
//! there were. LMPOP, ZMPOP and those that wait (`block`) go on so, with the one key that they have found:
//!
//! ```text
//! LMPOP k1 k2 … ─▶ the first that is there │ all, or the first of many ─▶ some │ some │ … ─▶ the reply
//!                   └──────────── one moment over the keys ──────────┘
//! ```
//!
//! An element that is too long to be copied, of more than 4 MiB, is sent from where it lies, alone in its moment. LMPOP and its
//! like that find one at the end take no others. In a transaction they are refused.

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, Database, End, Entry, Guard, Key, Removed, Type};

use super::list::{self, end_places};
use super::listing::send_or_hand_on;
use super::sending::{ToSend, has_too_long, is_sent};
use super::sorted;
use super::{
    Call, ELEMENT_NS, ELEMENT_ROOM, MANY_BYTES, PRESENT_NS, SCORE_NS, SCORED_NS, Shown, entry_bytes_max,
    peek_as, places_bytes_max,
};
use crate::core::events::Change;
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{free_room, has_room};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_null_array};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, Step};
use crate::redis::waiters::{Portion, Which};

/// Most elements that are taken at a time.
pub(super) const TAKEN_AT_ONCE: usize = 4 << 10;
/// Most bytes of them in one moment, or one element. An element that is popped and not pinned is copied into the reply, some
/// 2 ms, and for a client that waited once more, so that it can be put back if that client has gone.
pub(super) const TAKEN_BYTES: usize = 4 << 20;

/// Members that are, each of which is written to two trees.
pub(super) const MEMBERS_AT_ONCE: usize = 256;

/// Where elements are taken, and how they are replied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub kind: Type,
    pub end: End,
    pub resp3: bool,
    /// Behind the name of their key, and each member in an array with its score.
    pub named: bool,
}

impl Form {
    fn shown(self) -> Shown {
        if self.kind == Type::SortedSet { Shown::Scores } else { Shown::Names }
    }

    /// What comes before so many of them.
    pub fn put_head(self, out: &mut Output, key: &[u8], elements: usize) {
        if !self.named {
            self.shown().put_head(out, self.resp3, elements);
            return;
        }
        put_array(out, 2);
        put_bulk(out, key);
        put_array(out, elements);
    }

    /// Those that were taken, that which was there first; what is to be sent of them from where it lies.
    pub fn put_all(self, out: &mut Output, popped: &Removed<'_>, to_send: &mut ToSend) {
        let (shown, list) = (self.shown(), popped.collection());
        // In RESP3 pairs are nested in any case.
        let apart = self.named && self.kind == Type::SortedSet && !self.resp3;
        let mut put = |entry: Entry<'_>| {
            if apart {
                put_array(out, 2);
            }
            shown.begin_one(out, self.resp3);
            to_send.put(out, (shown, self.resp3), (list, &entry));
        };
        match self.end {
            End::Front => popped.entries().for_each(&mut put),
            End::Back => popped.entries_back().for_each(&mut put),
        }
    }

    /// How it is called that some were.
    fn change(self) -> Change {
        match (self.kind, self.end) {
            (Type::SortedSet, End::Front) => sorted::popped(Which::Min),
            (Type::SortedSet, End::Back) => sorted::popped(Which::Max),
            (Type::List | Type::Hash | Type::Set | Type::Stream, end) => list::popped(end),
        }
    }
}

impl Portion {
    /// All, as in a transaction; of a list that has long elements as many as are one moment.
    pub fn whole(there: &Collection<'_>, end: End, asked: usize, free: usize) -> Portion {
        let places = match there.kind() {
            Type::List => list::places_within(there, end, asked),
            Type::SortedSet | Type::Hash | Type::Set | Type::Stream => end_places(there, end, asked),
        };
        Portion { count: places.len(), bytes: places_bytes_max(there, places, free), left: 0 }
    }

    /// All, if they are not more than are taken in one step, or else as many as so much time is for. One that is too long to be
    /// copied is taken alone.
    pub fn of_step(
        there: &Collection<'_>,
        end: End,
        asked: usize,
        (free, until_ns): (usize, u64),
    ) -> Portion {
        let ((most, each_ns), asked) = (moment(there.kind()), asked.min(there.len()));
        if asked <= most {
            let bytes = places_bytes_max(there, end_places(there, end, asked), free);
            if bytes <= TAKEN_BYTES {
                return Portion { count: asked, bytes, left: 0 };
            }
        }
        let most = asked.min(((until_ns / each_ns) as usize).clamp(1, most));
        let (count, bytes) = measure(there, end, most);
        let is_alone = has_too_long(there, end, count);
        Portion { count, bytes, left: if is_alone { 0 } else { asked - count } }
    }

    /// Work to take these, beside copying them.
    pub fn ns(&self, kind: Type) -> u64 {
        self.count as u64 * moment(kind).1
    }
}

/// Replies `count` elements of an end of the first of some collections that is there, behind the name of its key, and takes them
/// out; false if none is. Of more than are taken in one step the first are, as one moment over all keys, and the others of that key
/// in steps. `waits`: a key at which others stand in line is theirs.
///
/// # Errors
/// The first that is there is of another type; there is no room for its reply.
pub(super) fn take_first(
    call: &mut Call<'_, '_, '_>,
    keys: Args<'_>,
    (kind, end): (Type, End),
    count: usize,
    waits: bool,
) -> Result<bool, Fail> {
    call.spend(keys.len() as u64 * PRESENT_NS);
    let (whole, until_ns) = (call.cx.guard.in_transaction(), call.step_ns());
    let form = Form { kind, end, resp3: call.client.resp3, named: true };
    let (mut found, mut rest) = (false, None);
    call.as_one_with_room(keys, |call| {
        for name in keys {
            let (key, free) = (call.key(name), free_room(call.out));
            let Some(there) = peek_as(&mut call.cx.guard, &key, kind)? else { continue };
            if waits && call.shared.waiters.has_line(call.client.db, kind, name) {
                continue;
            }
            let portion = if whole {
                Portion::whole(&there, end, count, free)
            } else {
                Portion::of_step(&there, end, count, (free, until_ns))
            };
            if whole && has_too_long(&there, end, portion.count) {
                return Err(Fail::TOO_LONG_TO_COPY);
            }
            // What is kept behind the first of several moments is copied.
            let sends = !whole && portion.left == 0 && is_sent(there.longest_apart());
            let mut to_send = ToSend::default();
            if sends {
                to_send = ToSend::of(&mut call.cx.guard, &key, (kind, end), portion.count)?;
            }
            let bytes = portion.bytes.saturating_sub(to_send.bytes()) + name.len() + 3 * ELEMENT_ROOM;
            if !call.has_room(bytes) {
                return Ok(Some(bytes));
            }
            call.spend(to_send.ns());
            let (mark, from) = (call.out.mark(), call.out.end());
            let Some(popped) = pop(&mut call.cx.guard, &key, (kind, end), portion.count)? else { continue };
            if portion.left == 0 {
                form.put_head(call.out, name, popped.len());
            }
            form.put_all(call.out, &popped, &mut to_send);
            found = true;
            if !whole {
                call.spend_on(portion.count, moment(kind).1);
            }
            call.spend_on_bytes(call.out.end() - from);
            if portion.left > 0 {
                let kept = call.out.beside(call.out.between(from, call.out.end()));
                call.out.rewind(mark);
                let database = call.cx.guard.database(call.client.db);
                rest = Some((name, database, portion, kept));
            }
            return Ok(None);
        }
        Ok(None)
    })?;
    if let Some((name, database, portion, kept)) = rest {
        go_on(call, (name, database), form, portion, kept);
    }
    Ok(found)
}

/// Goes on with elements of a key of a database, some of which were taken, whose replies are kept.
pub(super) fn go_on(
    call: &mut Call<'_, '_, '_>,
    (name, database): (&[u8], Database),
    form: Form,
    portion: Portion,
    kept: Output,
) {
    let name = Name::charged(call, name, database);
    call.go_on_with(Taking { name, form, left: portion.left, taken: portion.count, kept, sent: 0 });
}

/// Takes so many elements out of a collection, which is held.
fn pop<'r>(
    guard: &'r mut Guard<'_>,
    key: &Key<'_>,
    (kind, end): (Type, End),
    count: usize,
) -> Result<Option<Removed<'r>>, Fail> {
    Ok(match kind {
        Type::SortedSet => guard.sorted_remove(key, |set| end_places(set, end, count))?,
        Type::List | Type::Hash | Type::Set | Type::Stream => guard.list_pop(key, end, count)?,
    })
}

/// Replies `count` elements of an end of a list or a sorted set, and takes them out.
pub(super) fn take(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    (kind, end): (Type, End),
    count: usize,
) -> Done {
    let resp3 = call.client.resp3;
    let Some(there) = peek_as(&mut call.cx.guard, key, kind)? else {
        match kind {
            Type::SortedSet => put_array(call.out, 0),
            Type::List | Type::Hash | Type::Set | Type::Stream => put_null_array(call.out, resp3),
        }
        return Ok(());
    };
    // What others add meanwhile is not taken beyond that.
    let left = count.min(there.len());
    let name = Name::kept(call, key.bytes())?;
    let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    let form = Form { kind, end, resp3, named: false };
    call.go_on_with(Taking { name, form, left, taken: 0, kept, sent: 0 });
    Ok(())
}

/// How many elements are taken at a time, and what each takes.
fn moment(kind: Type) -> (usize, u64) {
    match kind {
        Type::SortedSet => (MEMBERS_AT_ONCE, SCORED_NS + SCORE_NS + ELEMENT_NS),
        Type::List | Type::Hash | Type::Set | Type::Stream => (TAKEN_AT_ONCE, 2 * ELEMENT_NS),
    }
}

/// What came of taking elements.
enum Taken {
    /// So many were, which took so long beside what each takes.
    Elements(usize, u64),
    /// None was: so many bytes are needed for their replies.
    Needs(usize),
}

/// Takes some elements, and replies them.
fn take_some(
    guard: &mut Guard<'_>,
    out: &mut Output,
    key: &Key<'_>,
    form: Form,
    most: usize,
) -> Result<Taken, Fail> {
    let Form { kind, end, .. } = form;
    let Some(there) = peek_as(guard, key, kind)? else { return Ok(Taken::Elements(0, 0)) };
    let (count, bytes) = measure(&there, end, most);
    let mut to_send = ToSend::default();
    if has_too_long(&there, end, count) {
        to_send = ToSend::of(guard, key, (kind, end), count)?;
    }
    let bytes = bytes.saturating_sub(to_send.bytes());
    if !has_room(out, bytes) {
        return Ok(Taken::Needs(bytes));
    }
    let ns = to_send.ns() + copying_ns(2 * bytes as u64);
    let Some(popped) = pop(guard, key, (kind, end), count)? else { return Ok(Taken::Elements(0, 0)) };
    form.put_all(out, &popped, &mut to_send);
    Ok(Taken::Elements(popped.len(), ns))
}

/// How many elements from an end on are taken at a time, one at least, and how many bytes their replies have at most.
fn measure(there: &Collection<'_>, end: End, most: usize) -> (usize, usize) {
    let (places, kind) = (end_places(there, end, most), there.kind());
    let (mut count, mut bytes) = (0, 2 * HEAD_BYTES_MAX);
    let mut fits = |element_bytes: usize| {
        let fits = count == 0 || bytes + element_bytes <= MANY_BYTES;
        if fits {
            (count, bytes) = (count + 1, bytes + element_bytes);
        }
        fits
    };
    match end {
        End::Front => there.entries(places).all(|entry| fits(entry_bytes_max(&entry, kind))),
        End::Back => there.entries_back(places).all(|entry| fits(entry_bytes_max(&entry, kind))),
    };
    (count, bytes)
}

/// Elements that are taken some at a time.
#[derive(Debug)]
struct Taking {
    name: Name,
    form: Form,
    /// How many are still to be taken.
    left: usize,
    taken: usize,
    /// The replies of those that were.
    kept: Output,
    sent: u64,
}

impl Taking {
    /// Takes some; how many, and what that took. None where the database was swapped for another since the first were taken:
    /// the key of this name is another.
    fn take_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<(usize, u64), Fail> {
        let Taking { name, form, left, kept, .. } = self;
        let (form, (most, each_ns)) = (*form, moment(form.kind));
        let most = (*left).min(((call.step_ns() / each_ns) as usize).clamp(1, most));
        loop {
            if self.taken == 0 {
                name.anew(call);
            } else if name.is_swapped(call) {
                return Ok((0, 0));
            }
            let key = name.key(call);
            let mut taken = Taken::Elements(0, 0);
            call.tell_change_around(&form.change(), key.bytes(), |call| {
                taken = call.as_one([key], |call| take_some(&mut call.cx.guard, kept, &key, form, most))?;
                Ok(())
            })?;
            match taken {
                Taken::Elements(taken, ns) => return Ok((taken, taken as u64 * each_ns + ns)),
                Taken::Needs(bytes) => call.make_room_in(kept, bytes)?,
            }
        }
    }
}

impl Job for Taking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.left > 0 {
            let (taken, ns) = match self.take_some(call) {
                Ok(taken) => taken,
                // Its reply has those that are gone by then.
                Err(_) if self.taken > 0 => (0, 0),
                Err(fail) => return Err(fail),
            };
            call.spend(ns);
            self.taken += taken;
            self.left = if taken == 0 { 0 } else { self.left - taken };
            if self.left > 0 {
                return Ok(Step::More);
            }
            let key = self.name.key(call);
            self.form.put_head(call.out, key.bytes(), self.taken);
        }
        Ok(send_or_hand_on(call, &mut self.kept, &mut self.sent))
    }

    /// What was taken is nowhere but in its reply.
    fn asks_itself(&self) -> bool {
        self.taken > 0
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64 + self.kept.pinned_bytes()
    }
}
