//! LPOP, RPOP, ZPOPMIN, ZPOPMAX of many elements: some at a time, each of which is one moment; the reply is of as many as
//! there were.

use larder_protocol::resp::HEAD_BYTES_MAX;
use larder_store::{Collection, End, Entry, Guard, Key, Type};

use super::listing::send;
use super::{
    Call, ELEMENT_NS, MANY_BYTES, SCORE_NS, SCORED_NS, Shown, entry_bytes_max, list::end_places, peek_as,
};
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::has_room;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_null_array};
use crate::redis::steps::job::{Job, Step};
use crate::redis::strings::source::Name;
use crate::redis::table::{self, Command};

/// Elements that are taken at a time, at most, …
pub(super) const TAKEN_AT_ONCE: usize = 4 << 10;
/// … and bytes of them in one moment, or one: what is popped is copied into the reply, some 2 ms, and for a client that waited
/// once more, to be put back if that has gone.
pub(super) const TAKEN_BYTES: usize = 4 << 20;

/// Members that are, each of which is written to two trees.
pub(super) const MEMBERS_AT_ONCE: usize = 256;

/// Replies `count` elements of an end of a list or a sorted set, and takes them out. `name`: the command's.
pub(super) fn take(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
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
    let Some((row, _)) = table::find(name.as_bytes()) else { return Ok(()) };
    let name = Name::kept(call, key.bytes())?;
    let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    call.go_on_with(Taking { row, name, kind, end, resp3, left, taken: 0, kept, sent: 0 });
    Ok(())
}

/// What is replied of each element.
fn shown(kind: Type) -> Shown {
    if kind == Type::SortedSet { Shown::Scores } else { Shown::Names }
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
    /// So many were, of so many bytes.
    Elements(usize, u64),
    /// None was: so many bytes are needed for their replies.
    Needs(usize),
}

/// Takes some elements, and replies them.
fn take_some(
    guard: &mut Guard<'_>,
    (out, resp3): (&mut Output, bool),
    key: &Key<'_>,
    (kind, end): (Type, End),
    most: usize,
) -> Result<Taken, Fail> {
    let Some(there) = peek_as(guard, key, kind)? else { return Ok(Taken::Elements(0, 0)) };
    let (count, bytes) = measure(&there, end, most);
    if !has_room(out, bytes) {
        return Ok(Taken::Needs(bytes));
    }
    let popped = match kind {
        Type::SortedSet => guard.sorted_remove(key, |set| end_places(set, end, count))?,
        Type::List | Type::Hash | Type::Set | Type::Stream => guard.list_pop(key, end, count)?,
    };
    let Some(popped) = popped else { return Ok(Taken::Elements(0, 0)) };
    let shown = shown(kind);
    let list = popped.collection();
    let mut put = |entry: Entry<'_>| shown.put_one(out, resp3, (list, &entry));
    match end {
        End::Front => popped.entries().for_each(&mut put),
        End::Back => popped.entries_back().for_each(&mut put),
    }
    Ok(Taken::Elements(popped.len(), bytes as u64))
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
    row: &'static Command,
    name: Name,
    kind: Type,
    end: End,
    resp3: bool,
    /// How many are still to be taken.
    left: usize,
    taken: usize,
    /// The replies of those that were.
    kept: Output,
    sent: u64,
}

impl Taking {
    /// Takes some; how many, and what that took.
    fn take_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<(usize, u64), Fail> {
        let Taking { row, name, kind, end, resp3, left, kept, .. } = self;
        let (most, each_ns) = moment(*kind);
        let most = (*left).min(((call.step_ns() / each_ns) as usize).clamp(1, most));
        loop {
            let key = name.key(call);
            let mut taken = Taken::Elements(0, 0);
            call.tell_around_key(row, key.bytes(), |call| {
                taken = call.as_one([key], |call| {
                    take_some(&mut call.cx.guard, (kept, *resp3), &key, (*kind, *end), most)
                })?;
                Ok(())
            })?;
            match taken {
                Taken::Elements(taken, bytes) => {
                    return Ok((taken, taken as u64 * each_ns + copying_ns(2 * bytes)));
                }
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
                // It tells of those that are gone by then.
                Err(_) if self.taken > 0 => (0, 0),
                Err(fail) => return Err(fail),
            };
            call.spend(ns);
            self.taken += taken;
            self.left = if taken == 0 { 0 } else { self.left - taken };
            if self.left > 0 {
                return Ok(Step::More);
            }
            shown(self.kind).put_head(call.out, self.resp3, self.taken);
        }
        Ok(send(call, &self.kept, &mut self.sent))
    }

    /// What was taken is nowhere but in its reply.
    fn asks_itself(&self) -> bool {
        self.taken > 0
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64
    }
}
