//! Replies of what a stream has: written from where it lies, or copied some rows at a time and sent then.
//!
//! ```text
//! what is asked ─▶ head, and what there is to do ─▶ some of it at each step ─▶ of one version? ─▶ sent piece by piece
//!                                                             ▲                  └── no: begun anew
//! ```
//!
//! What is copied is charged before it is made. What was begun anew too often goes on with its streams held.
//!
//! Long values of entries that XRANGE, XREVRANGE and XREAD reply are pinned, and sent from where they lie, but in a transaction.
//! Where one of an entry may not be pinned all of the entry is copied.

use std::sync::Arc;

use larder_protocol::resp::HEAD_BYTES_MAX;
use larder_store::{
    Consumer, Element, Group, Key, PendingEntry, PinnedValue, Store, Stream, StreamEntry, StreamFields,
    StreamId, Type,
};

use super::{no_group, put_id};
use crate::core::output::{Mark, Output};
use crate::core::work::{Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{Call, has_room};
use crate::redis::collections::listing::{PINNED_AT_ONCE, send_or_hand_on, send_whole};
use crate::redis::collections::sending::{is_sent, pinning_ns};
use crate::redis::collections::{ELEMENT_FRAME, ELEMENT_NS, ELEMENT_ROOM, LOOK_NS, peek_as, put_element};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk, put_head, put_integer, put_map, put_null, put_null_array};
use crate::redis::source::Name;
use crate::redis::steps::held::Tries;
use crate::redis::steps::job::{Job, STEP_NS_MIN, Step};

/// Bytes that are copied at a time, about.
const PIECE_BYTES: usize = 64 << 10;
/// What is short takes no more.
const SMALL_PIECE_BYTES: usize = 4 << 10;
/// Entries that are replied from where they lie, at most.
const ENTRIES_DIRECT: usize = 2 << 10;
/// What an ID takes in a reply, at most.
const ID_BYTES: usize = 48;
/// What a group or a consumer takes in a reply beside names, at most.
const NAMED_BYTES: usize = 512;
/// What of a long value may lie beside something else, and is copied: no more than a leaf of some entries has.
const BESIDE_BYTES_MAX: usize = 1 << 10;
/// Entries of one node of Redis's: what is said of its tree goes by that.
const NODE_ENTRIES: u64 = 100;
/// Entries that XINFO STREAM FULL shows, unless the client says how many.
pub(crate) const FULL_ENTRIES: usize = 10;

/// What is replied.
#[derive(Clone, Debug)]
pub(super) enum Tale {
    /// Entries from one ID to another, so many at most; from the last one on with `back`.
    Range { from: StreamId, to: StreamId, most: usize, back: bool },
    /// XINFO STREAM.
    Info,
    /// The same with so many entries, and so much of what is pending, at most.
    Full { most: usize },
    /// XINFO GROUPS.
    Groups,
    /// XINFO CONSUMERS.
    Consumers { group: Box<[u8]>, now: u64 },
    /// XPENDING of a group.
    Summary { group: Box<[u8]> },
    /// XPENDING of a range.
    Pending {
        group: Box<[u8]>,
        consumer: Option<Box<[u8]>>,
        from: StreamId,
        to: StreamId,
        most: usize,
        min_idle_ms: u64,
        now: u64,
    },
}

/// What there is still to reply.
#[derive(Clone, Debug)]
enum Task {
    /// Entries at these places.
    Entries(usize, usize),
    /// The same, the last first.
    Back(usize, usize),
    /// Groups, but for so many in front.
    Groups(usize),
    /// How many groups there are, and then each of them with all that it has.
    AllGroups(usize),
    FullGroups(usize, usize),
    /// Consumers of a group, but for so many in front.
    Consumers(Box<[u8]>, usize),
    /// How many there are, and then each of them with what is pending with it.
    AllConsumers(Box<[u8]>, usize),
    FullConsumers(Box<[u8]>, usize, usize),
    /// The same, of consumers that have something pending.
    Loads(Box<[u8]>, usize),
    /// What is pending in a group from an ID on: so much of it.
    GroupPending(Box<[u8]>, StreamId, usize),
    /// The same with a consumer.
    ConsumerPending(Box<[u8]>, Box<[u8]>, StreamId, usize),
    /// XPENDING: from an ID on, so many still.
    Pending(StreamId, usize),
}

/// Where replies are written, and what that takes.
struct Sink<'k> {
    out: &'k mut Output,
    resp3: bool,
    /// The store, where long values are sent from where they lie.
    store: Option<&'k Arc<Store>>,
    ns: u64,
    ns_max: u64,
    /// For what comes next there has to be so much room; 0 if there is.
    needs: usize,
}

impl Sink<'_> {
    /// There is time, and room for so many bytes.
    fn goes_on(&mut self, bytes: usize) -> bool {
        if self.out.free_bytes() < bytes {
            self.needs = bytes;
        }
        self.needs == 0 && self.ns < self.ns_max
    }

    fn spend(&mut self, ns: u64) {
        self.ns += ns;
    }

    /// Writes an entry; false if there is no time or no room for it.
    fn put_entry(&mut self, stream: &Stream<'_>, entry: StreamEntry<'_>) -> bool {
        if !self.goes_on(0) {
            return false;
        }
        let pinned = pin_values(self.store, stream, &entry).unwrap_or_default();
        let sent_bytes = pinned.iter().map(|value| value.parts.value_bytes()).sum::<u64>();
        let bytes = entry_bytes_max(&entry) - sent_bytes as usize;
        let goes_on = self.goes_on(bytes);
        if goes_on {
            put_entry_with(self.out, stream, entry, pinned);
            self.spend(entry_ns(bytes) + sending_ns(sent_bytes));
        }
        goes_on
    }
}

/// Bytes that fields take in a reply, at most.
fn fields_bytes_max(fields: &StreamFields<'_>) -> usize {
    fields.bytes() + 2 * fields.len() * ELEMENT_ROOM + HEAD_BYTES_MAX
}

/// Bytes that an entry takes in a reply, at most.
pub(super) fn entry_bytes_max(entry: &StreamEntry<'_>) -> usize {
    fields_bytes_max(&entry.fields) + ID_BYTES + HEAD_BYTES_MAX
}

/// An entry of a stream.
pub(super) fn put_entry(out: &mut Output, stream: &Stream<'_>, entry: StreamEntry<'_>) {
    put_entry_with(out, stream, entry, Vec::new());
}

/// The same of an entry whose long values are pinned, if these are given.
pub(super) fn put_entry_with(
    out: &mut Output,
    stream: &Stream<'_>,
    entry: StreamEntry<'_>,
    pinned: Vec<PinnedValue<'_>>,
) {
    let mut pinned = pinned.into_iter();
    put_array(out, 2);
    put_id(out, entry.id);
    put_array(out, 2 * entry.fields.len());
    for (name, value) in entry.fields {
        put_element(out, &name);
        match value {
            Element::Apart(apart) => {
                let sent = if is_sent(apart.len()) { pinned.next() } else { None };
                match sent {
                    Some(sent) => put_pinned(out, apart.len(), sent),
                    None => put_apart(out, stream, entry.id, &value),
                }
            }
            Element::Text(_) | Element::Number(_) => put_element(out, &value),
        }
    }
}

/// The long values of an entry, each pinned, in their order; none are, if one may not be. Without a store nothing is sent.
#[inline]
pub(super) fn pin_values<'g>(
    store: Option<&Arc<Store>>,
    stream: &Stream<'g>,
    entry: &StreamEntry<'g>,
) -> Option<Vec<PinnedValue<'g>>> {
    match store {
        Some(store) if entry.fields.has_apart() => pin_long_values(store, stream, entry),
        _ => Some(Vec::new()),
    }
}

#[cold]
fn pin_long_values<'g>(
    store: &Arc<Store>,
    stream: &Stream<'g>,
    entry: &StreamEntry<'g>,
) -> Option<Vec<PinnedValue<'g>>> {
    let long = entry.fields.clone().filter_map(|(_, value)| match value {
        Element::Apart(apart) if is_sent(apart.len()) => Some(apart),
        Element::Apart(_) | Element::Text(_) | Element::Number(_) => None,
    });
    long.map(|apart| stream.pin_for_reply(store, entry.id, &apart)).collect()
}

/// A value of an entry that is sent from where it lies, but for what of it lies beside something else.
#[cold]
fn put_pinned(out: &mut Output, bytes: usize, PinnedValue { parts, rest }: PinnedValue<'_>) {
    put_head(out, b'$', bytes as u64);
    out.splice(parts);
    out.put(rest);
    out.put(b"\r\n");
}

/// What it takes to look for so many bytes of long values and to pin them.
pub(super) fn sending_ns(bytes: u64) -> u64 {
    2 * pinning_ns(bytes)
}

/// A value that lies apart.
#[cold]
fn put_apart(out: &mut Output, stream: &Stream<'_>, id: StreamId, value: &Element<'_>) {
    put_head(out, b'$', value.len() as u64);
    stream.each_part(id, value, |part| out.put(part));
    out.put(b"\r\n");
}

/// Work to reply an entry of so many bytes.
fn entry_ns(bytes: usize) -> u64 {
    2 * ELEMENT_NS + copying_ns(bytes as u64)
}

/// Which places a range of entries has, of which so many are replied.
fn range_places(
    stream: &Stream<'_>,
    (from, to): (StreamId, StreamId),
    most: usize,
    back: bool,
) -> std::ops::Range<usize> {
    let mut places = stream.places(from, to);
    if places.len() > most {
        if back {
            places.start = places.end - most;
        } else {
            places.end = places.start + most;
        }
    }
    places
}

fn put_read(out: &mut Output, resp3: bool, n: Option<u64>) {
    match n {
        Some(n) => put_integer(out, n as i64),
        None => put_null(out, resp3),
    }
}

impl Tale {
    /// Bytes of names that it keeps.
    fn names_bytes(&self) -> usize {
        match self {
            Tale::Range { .. } | Tale::Info | Tale::Full { .. } | Tale::Groups => 0,
            Tale::Consumers { group, .. } | Tale::Summary { group } => group.len(),
            Tale::Pending { group, consumer, .. } => {
                group.len() + consumer.as_ref().map_or(0, |consumer| consumer.len())
            }
        }
    }

    /// What is said where there is no stream.
    fn put_none(&self, out: &mut Output, key: &[u8]) -> Done {
        match self {
            Tale::Range { .. } => put_array(out, 0),
            Tale::Info | Tale::Full { .. } | Tale::Groups | Tale::Consumers { .. } => {
                return Err(Fail::NO_SUCH_KEY);
            }
            Tale::Summary { group } | Tale::Pending { group, .. } => return Err(no_group(key, group)),
        }
        Ok(())
    }

    /// Writes the head, and says what there is to do behind it; whether that is an array whose length is not known yet.
    fn begin(
        &self,
        stream: &Stream<'_>,
        key: &[u8],
        (out, resp3): (&mut Output, bool),
        tasks: &mut Vec<Task>,
    ) -> Result<bool, Fail> {
        tasks.clear();
        let group_of = |name: &[u8]| stream.group(name);
        match self {
            Tale::Range { from, to, most, back } => {
                let places = range_places(stream, (*from, *to), *most, *back);
                put_array(out, places.len());
                let (start, end) = (places.start, places.end);
                tasks.push(if *back { Task::Back(start, end) } else { Task::Entries(start, end) });
            }
            Tale::Info => {
                put_map(out, resp3, 10);
                put_figures(out, stream);
                put_bulk(out, b"groups");
                put_integer(out, stream.groups().len() as i64);
                for (name, place) in
                    [(&b"first-entry"[..], 0), (b"last-entry", stream.len().saturating_sub(1))]
                {
                    put_bulk(out, name);
                    match stream.at(place) {
                        Some(entry) => put_entry(out, stream, entry),
                        None => put_null(out, resp3),
                    }
                }
            }
            Tale::Full { most } => {
                put_map(out, resp3, 9);
                put_figures(out, stream);
                put_bulk(out, b"entries");
                let end = stream.len().min(*most);
                put_array(out, end);
                tasks.push(Task::AllGroups(*most));
                tasks.push(Task::Entries(0, end));
            }
            Tale::Groups => {
                put_array(out, stream.groups().len());
                tasks.push(Task::Groups(0));
            }
            Tale::Consumers { group: name, .. } => {
                let group = group_of(name).ok_or_else(|| super::no_group_for(key, name))?;
                put_array(out, stream.consumers(&group).len());
                tasks.push(Task::Consumers(name.clone(), 0));
            }
            Tale::Summary { group: name } => {
                let group = group_of(name).ok_or_else(|| no_group(key, name))?;
                let count = stream.pending_count(&group);
                put_array(out, 4);
                put_integer(out, count as i64);
                if count == 0 {
                    put_null(out, resp3);
                    put_null(out, resp3);
                    put_null_array(out, resp3);
                    return Ok(false);
                }
                let first =
                    stream.pending(&group, StreamId::MIN).next().map_or(StreamId::MIN, |first| first.id);
                let last = stream.pending_back(&group).next().map_or(StreamId::MIN, |last| last.id);
                put_id(out, first);
                put_id(out, last);
                tasks.push(Task::Loads(name.clone(), 0));
                return Ok(true);
            }
            Tale::Pending { group: name, from, most, .. } => {
                group_of(name).ok_or_else(|| no_group(key, name))?;
                tasks.push(Task::Pending(*from, *most));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does some of what there is to do; it is done again, from where it was, until there is nothing.
    fn go_on(&self, stream: &Stream<'_>, sink: &mut Sink<'_>, tasks: &mut Vec<Task>, count: &mut usize) {
        while let Some(task) = tasks.pop() {
            let left = self.run(task, stream, sink, tasks, count);
            if let Some(left) = left {
                tasks.push(left);
                return;
            }
        }
    }

    /// Does some of one task; what is left of it.
    fn run(
        &self,
        task: Task,
        stream: &Stream<'_>,
        sink: &mut Sink<'_>,
        tasks: &mut Vec<Task>,
        count: &mut usize,
    ) -> Option<Task> {
        match task {
            Task::Entries(mut at, end) => {
                for entry in stream.entries(at..end) {
                    if !sink.put_entry(stream, entry) {
                        return Some(Task::Entries(at, end));
                    }
                    at += 1;
                }
                None
            }
            Task::Back(start, mut end) => {
                for entry in stream.entries_back(start..end) {
                    if !sink.put_entry(stream, entry) {
                        return Some(Task::Back(start, end));
                    }
                    end -= 1;
                }
                None
            }
            Task::Groups(mut at) => {
                for group in stream.groups_behind(at) {
                    if !sink.goes_on(group.name.len() + NAMED_BYTES) {
                        return Some(Task::Groups(at));
                    }
                    put_map(sink.out, sink.resp3, 6);
                    put_bulk(sink.out, b"name");
                    put_bulk(sink.out, group.name);
                    put_bulk(sink.out, b"consumers");
                    put_integer(sink.out, stream.consumers(&group).len() as i64);
                    put_bulk(sink.out, b"pending");
                    put_integer(sink.out, stream.pending_count(&group) as i64);
                    put_bulk(sink.out, b"last-delivered-id");
                    put_id(sink.out, group.last);
                    put_bulk(sink.out, b"entries-read");
                    put_read(sink.out, sink.resp3, group.read);
                    put_bulk(sink.out, b"lag");
                    put_read(sink.out, sink.resp3, stream.lag(&group));
                    sink.spend(6 * LOOK_NS);
                    at += 1;
                }
                None
            }
            Task::AllGroups(most) => {
                if !sink.goes_on(NAMED_BYTES) {
                    return Some(task);
                }
                put_bulk(sink.out, b"groups");
                put_array(sink.out, stream.groups().len());
                tasks.push(Task::FullGroups(0, most));
                None
            }
            Task::FullGroups(at, most) => {
                let group = stream.groups_behind(at).next()?;
                if !sink.goes_on(group.name.len() + NAMED_BYTES) {
                    return Some(task);
                }
                put_full_group(sink, stream, &group);
                let pending = stream.pending_count(&group).min(most);
                put_array(sink.out, pending);
                tasks.push(Task::FullGroups(at + 1, most));
                tasks.push(Task::AllConsumers(group.name.into(), most));
                tasks.push(Task::GroupPending(group.name.into(), StreamId::MIN, pending));
                None
            }
            Task::Consumers(name, mut at) => {
                let Tale::Consumers { now, .. } = self else { return None };
                let group = stream.group(&name)?;
                for consumer in stream.consumers_behind(&group, at) {
                    if !sink.goes_on(consumer.name.len() + NAMED_BYTES) {
                        return Some(Task::Consumers(name, at));
                    }
                    put_consumer(sink, stream, &consumer, *now);
                    at += 1;
                }
                None
            }
            Task::AllConsumers(name, most) => {
                if !sink.goes_on(NAMED_BYTES) {
                    return Some(Task::AllConsumers(name, most));
                }
                let group = stream.group(&name)?;
                put_bulk(sink.out, b"consumers");
                put_array(sink.out, stream.consumers(&group).len());
                tasks.push(Task::FullConsumers(name, 0, most));
                None
            }
            Task::FullConsumers(name, at, most) => {
                let group = stream.group(&name)?;
                let consumer = stream.consumers_behind(&group, at).next()?;
                if !sink.goes_on(consumer.name.len() + NAMED_BYTES) {
                    return Some(Task::FullConsumers(name, at, most));
                }
                put_full_consumer(sink, stream, &consumer);
                let pending = stream.pending_with_count(&consumer).min(most);
                put_array(sink.out, pending);
                tasks.push(Task::FullConsumers(name.clone(), at + 1, most));
                tasks.push(Task::ConsumerPending(name, consumer.name.into(), StreamId::MIN, pending));
                None
            }
            Task::Loads(name, mut at) => {
                let group = stream.group(&name)?;
                for consumer in stream.consumers_behind(&group, at) {
                    if !sink.goes_on(consumer.name.len() + NAMED_BYTES) {
                        return Some(Task::Loads(name, at));
                    }
                    let pending = stream.pending_with_count(&consumer);
                    if pending > 0 {
                        put_array(sink.out, 2);
                        put_bulk(sink.out, consumer.name);
                        put_bulk(sink.out, pending.to_string().as_bytes());
                        *count += 1;
                    }
                    sink.spend(4 * LOOK_NS);
                    at += 1;
                }
                None
            }
            Task::GroupPending(name, from, mut left) => {
                let group = stream.group(&name)?;
                for there in stream.pending(&group, from).take(left) {
                    let consumer = stream.consumer_of(there.consumer)?;
                    if !sink.goes_on(consumer.name.len() + NAMED_BYTES) {
                        return Some(Task::GroupPending(name, there.id, left));
                    }
                    put_array(sink.out, 4);
                    put_pending(sink.out, &there, consumer.name, there.time);
                    sink.spend(LOOK_NS);
                    left -= 1;
                }
                None
            }
            Task::ConsumerPending(name, who, from, mut left) => {
                let group = stream.group(&name)?;
                let consumer = stream.consumer(&group, &who)?;
                for id in stream.pending_with(&consumer, from).take(left) {
                    if !sink.goes_on(NAMED_BYTES) {
                        return Some(Task::ConsumerPending(name, who, id, left));
                    }
                    let there = stream.pending_at(&group, id)?;
                    put_array(sink.out, 3);
                    put_id(sink.out, id);
                    put_integer(sink.out, there.time as i64);
                    put_integer(sink.out, there.count as i64);
                    sink.spend(LOOK_NS);
                    left -= 1;
                }
                None
            }
            Task::Pending(from, left) => self.run_pending(stream, sink, (from, left), count),
        }
    }

    /// XPENDING of a range, from an ID on.
    fn run_pending(
        &self,
        stream: &Stream<'_>,
        sink: &mut Sink<'_>,
        (from, mut left): (StreamId, usize),
        count: &mut usize,
    ) -> Option<Task> {
        let Tale::Pending { group, consumer, to, min_idle_ms, now, .. } = self else { return None };
        let group = stream.group(group)?;
        let one = match consumer {
            Some(name) => Some(stream.consumer(&group, name)?),
            None => None,
        };
        let mut each = |sink: &mut Sink<'_>, there: PendingEntry| -> Option<bool> {
            if there.id > *to || left == 0 {
                return Some(true);
            }
            let name = one
                .map_or_else(|| stream.consumer_of(there.consumer).map(|who| who.name), |who| Some(who.name));
            let name = name.unwrap_or_default();
            if !sink.goes_on(name.len() + NAMED_BYTES) {
                return Some(false);
            }
            sink.spend(LOOK_NS);
            let idle = now.saturating_sub(there.time);
            if idle >= *min_idle_ms {
                put_array(sink.out, 4);
                put_pending(sink.out, &there, name, idle);
                *count += 1;
                left -= 1;
            }
            None
        };
        let ended = match &one {
            Some(who) => {
                let mut ids = stream.pending_with(who, from);
                ids.find_map(|id| {
                    let there = stream.pending_at(&group, id)?;
                    each(sink, there).map(|all| (all, id))
                })
            }
            None => {
                let mut all = stream.pending(&group, from);
                all.find_map(|there| each(sink, there).map(|all| (all, there.id)))
            }
        };
        match ended {
            Some((false, id)) => Some(Task::Pending(id, left)),
            Some((true, _)) | None => None,
        }
    }
}

/// What XINFO STREAM says first.
fn put_figures(out: &mut Output, stream: &Stream<'_>) {
    let keys = (stream.len() as u64).div_ceil(NODE_ENTRIES);
    let figures =
        [("length", stream.len() as u64), ("radix-tree-keys", keys), ("radix-tree-nodes", keys + 1)];
    for (name, n) in figures {
        put_bulk(out, name.as_bytes());
        put_integer(out, n as i64);
    }
    put_bulk(out, b"last-generated-id");
    put_id(out, stream.last_id());
    put_bulk(out, b"max-deleted-entry-id");
    put_id(out, stream.deleted_max());
    put_bulk(out, b"entries-added");
    put_integer(out, stream.added() as i64);
    put_bulk(out, b"recorded-first-entry-id");
    put_id(out, stream.first_id());
}

fn put_full_group(sink: &mut Sink<'_>, stream: &Stream<'_>, group: &Group<'_>) {
    put_map(sink.out, sink.resp3, 7);
    put_bulk(sink.out, b"name");
    put_bulk(sink.out, group.name);
    put_bulk(sink.out, b"last-delivered-id");
    put_id(sink.out, group.last);
    put_bulk(sink.out, b"entries-read");
    put_read(sink.out, sink.resp3, group.read);
    put_bulk(sink.out, b"lag");
    put_read(sink.out, sink.resp3, stream.lag(group));
    put_bulk(sink.out, b"pel-count");
    put_integer(sink.out, stream.pending_count(group) as i64);
    put_bulk(sink.out, b"pending");
    sink.spend(6 * LOOK_NS);
}

fn put_full_consumer(sink: &mut Sink<'_>, stream: &Stream<'_>, consumer: &Consumer<'_>) {
    put_map(sink.out, sink.resp3, 5);
    put_bulk(sink.out, b"name");
    put_bulk(sink.out, consumer.name);
    put_bulk(sink.out, b"seen-time");
    put_integer(sink.out, consumer.seen as i64);
    put_bulk(sink.out, b"active-time");
    put_integer(sink.out, consumer.active.map_or(-1, |at| at as i64));
    put_bulk(sink.out, b"pel-count");
    put_integer(sink.out, stream.pending_with_count(consumer) as i64);
    put_bulk(sink.out, b"pending");
    sink.spend(4 * LOOK_NS);
}

fn put_consumer(sink: &mut Sink<'_>, stream: &Stream<'_>, consumer: &Consumer<'_>, now: u64) {
    put_map(sink.out, sink.resp3, 4);
    put_bulk(sink.out, b"name");
    put_bulk(sink.out, consumer.name);
    put_bulk(sink.out, b"pending");
    put_integer(sink.out, stream.pending_with_count(consumer) as i64);
    put_bulk(sink.out, b"idle");
    put_integer(sink.out, now.saturating_sub(consumer.seen) as i64);
    put_bulk(sink.out, b"inactive");
    put_integer(sink.out, consumer.active.map_or(-1, |at| now.saturating_sub(at) as i64));
    sink.spend(4 * LOOK_NS);
}

/// What is pending, with the consumer that has it and a time.
fn put_pending(out: &mut Output, there: &PendingEntry, consumer: &[u8], time: u64) {
    put_id(out, there.id);
    put_bulk(out, consumer);
    put_integer(out, time as i64);
    put_integer(out, there.count as i64);
}

/// What is replied of one stream.
#[derive(Debug)]
struct Part {
    tale: Tale,
    name: Name,
    /// Where it begins in what is copied; none until it has begun.
    start: Option<Mark>,
    /// What is copied of.
    version: u64,
    tasks: Vec<Task>,
    /// Behind so many bytes comes how many rows there are, which are counted.
    counts_behind: Option<u64>,
    count: usize,
}

/// What is replied of a stream, or of several.
#[derive(Debug)]
struct Telling {
    /// The one that is replied now comes last.
    parts: Vec<Part>,
    /// They are several, each with its key, if it has entries: so many have.
    reads: Option<usize>,
    resp3: bool,
    copied: bool,
    /// How often they were begun, all together.
    tries: Tries,
    /// Long values of entries are spliced in.
    kept: Output,
    /// The store, where they are sent from where they lie.
    store: Option<Arc<Store>>,
    sent: u64,
    lane: Option<Lane>,
    _held: Heap,
}

impl Part {
    fn new(tale: Tale, name: Name) -> Part {
        Part { tale, name, start: None, version: 0, tasks: Vec::new(), counts_behind: None, count: 0 }
    }
}

impl Call<'_, '_, '_> {
    /// Replies of a stream, which is not counted as an access any more.
    ///
    /// # Errors
    /// The key has another type of value; there is no room; or what it is asked for is not there.
    pub(super) fn tell_stream(&mut self, key: &Key<'_>, tale: Tale) -> Done {
        let store = (!self.cx.guard.in_transaction()).then(|| self.cx.guard.store());
        let there = peek_as(&mut self.cx.guard, key, Type::Stream)?.and_then(|there| there.stream());
        let Some(stream) = there else { return tale.put_none(self.out, key.bytes()) };
        if let Tale::Range { from, to, most, back } = tale {
            let places = range_places(&stream, (from, to), most, back);
            let few = few_bytes(&stream, places.clone(), store.is_some());
            // Beside what is sent from where it lies there is little.
            let fits = |few: &Few| {
                few.bytes <= self.out.free_bytes() || few.sent_bytes > 0 && has_room(self.out, few.bytes)
            };
            if let Some(few) = few.filter(fits) {
                let mark = self.out.mark();
                let out = &mut *self.out;
                put_array(out, places.len());
                let put = |entry: StreamEntry<'_>| {
                    let pinned = pin_values(store, &stream, &entry);
                    pinned.map(|pinned| put_entry_with(out, &stream, entry, pinned)).is_some()
                };
                let all = if back {
                    stream.entries_back(places.clone()).all(put)
                } else {
                    stream.entries(places.clone()).all(put)
                };
                if all {
                    self.spend_on(places.len(), entry_ns(few.bytes / places.len().max(1)));
                    self.spend(sending_ns(few.sent_bytes));
                    return Ok(());
                }
                // One may not be pinned, and is copied where it is made room for.
                self.out.rewind(mark);
            }
        }
        let held = Heap::keep(self, tale.names_bytes())?;
        let parts = vec![Part::new(tale, Name::kept(self, key.bytes())?)];
        self.tell_parts(parts, None, held)
    }

    /// Replies the entries behind some IDs, each of a key, so many of each at most; those of all of them are many.
    ///
    /// # Errors
    /// As of [`Call::tell_stream`].
    pub(super) fn tell_read<'k>(
        &mut self,
        asked: impl DoubleEndedIterator<Item = (&'k [u8], (StreamId, StreamId))>,
        most: usize,
    ) -> Done {
        let mut parts = Vec::new();
        for (key, (after, to)) in asked.rev() {
            let Some(from) = after.next() else { continue };
            let tale = Tale::Range { from, to, most, back: false };
            parts.push(Part::new(tale, Name::kept(self, key)?));
        }
        let held = Heap::none(self);
        self.tell_parts(parts, Some(0), held)
    }

    fn tell_parts(&mut self, parts: Vec<Part>, reads: Option<usize>, held: Heap) -> Done {
        let kept = Output::charged(u64::MAX, self.cx.guard.store(), 0);
        let resp3 = self.client.resp3;
        // XINFO copies what it shows, and what is told of groups has no entries.
        let sends = parts.iter().all(|part| matches!(part.tale, Tale::Range { .. }));
        let sends = sends && !self.cx.guard.in_transaction();
        let store = sends.then(|| Arc::clone(self.cx.guard.store()));
        self.work(Telling {
            parts,
            reads,
            resp3,
            copied: false,
            tries: Tries::default(),
            kept,
            store,
            sent: 0,
            lane: None,
            _held: held,
        })
    }
}

/// What a reply of a few entries has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Few {
    /// Bytes beside values that are sent from where they lie, at most.
    pub bytes: usize,
    /// Bytes of these.
    pub sent_bytes: u64,
}

/// What a reply of the entries at these places has, of which long values are sent if `sends` says so; none if they are many.
pub(super) fn few_bytes(stream: &Stream<'_>, places: std::ops::Range<usize>, sends: bool) -> Option<Few> {
    if places.len() > ENTRIES_DIRECT {
        return None;
    }
    let mut few = Few { bytes: HEAD_BYTES_MAX, sent_bytes: 0 };
    let are_few = stream.entries(places).all(|entry| {
        let sent_bytes = if sends { sent_bytes_of(&entry) } else { 0 };
        few.bytes += entry_bytes_max(&entry) - sent_bytes;
        few.sent_bytes += sent_bytes as u64;
        few.bytes < STEPS_BYTES_MIN as usize && few.sent_bytes <= PINNED_AT_ONCE as u64
    });
    are_few.then_some(few)
}

/// Bytes of the long values of an entry, but for what of each may lie beside something else.
fn sent_bytes_of(entry: &StreamEntry<'_>) -> usize {
    if !entry.fields.has_apart() {
        return 0;
    }
    let sent = |value: Element<'_>| match value {
        Element::Apart(apart) if is_sent(apart.len()) => apart.len() - BESIDE_BYTES_MAX,
        Element::Apart(_) | Element::Text(_) | Element::Number(_) => 0,
    };
    entry.fields.clone().map(|(_, value)| sent(value)).sum()
}

impl Telling {
    /// Copies what a step is for; true when all is copied.
    fn copy_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        while let Some(mut part) = self.parts.pop() {
            match self.copy_of(&mut part, call, (&mut ns, ns_max)) {
                Ok(true) => {}
                Ok(false) => {
                    self.parts.push(part);
                    call.spend(ns);
                    return Ok(false);
                }
                // What is no stream by now has nothing more to read.
                Err(fail) if self.reads.is_some() && fail == Fail::WRONG_TYPE => self.forget(&mut part),
                Err(fail) => return Err(fail),
            }
            if let Some(front) = part.counts_behind {
                // That is all there is.
                call.out.put(&self.kept.contiguous().unwrap_or_default()[..front as usize]);
                put_array(call.out, part.count);
                self.sent = front;
            }
        }
        call.spend(ns);
        match self.reads {
            None => {}
            Some(0) => put_null_array(call.out, self.resp3),
            Some(streams) if self.resp3 => put_map(call.out, true, streams),
            Some(streams) => put_array(call.out, streams),
        }
        Ok(true)
    }

    /// The same of one stream.
    fn copy_of(
        &mut self,
        part: &mut Part,
        call: &mut Call<'_, '_, '_>,
        (ns, ns_max): (&mut u64, u64),
    ) -> Result<bool, Fail> {
        let at_once = call.cx.guard.in_transaction() || self.tries.are_over();
        let ns_max = if at_once { u64::MAX } else { ns_max };
        // In a transaction nothing gives way: no more is asked for than is needed.
        let piece = if call.cx.guard.in_transaction() { SMALL_PIECE_BYTES } else { PIECE_BYTES };
        let mut needs = SMALL_PIECE_BYTES;
        let reads = self.reads.is_some();
        loop {
            let room = if part.start.is_some() { piece.max(needs) } else { needs };
            call.make_room_in(&mut self.kept, room)?;
            // Items may have given way to that, and others written.
            if part.name.is_swapped(call) {
                part.name.anew(call);
                self.forget(part);
            }
            let name = part.name.for_now();
            let key = name.key(call);
            let item = call.cx.guard.peek(&key).hit();
            let version = item.map_or(0, |item| item.cas());
            let there = peek_as(&mut call.cx.guard, &key, Type::Stream)?.and_then(|there| there.stream());
            if part.version != version || there.is_none() {
                self.forget(part);
            }
            let Some(stream) = there else {
                part.counts_behind = None;
                if !reads {
                    part.tale.put_none(&mut self.kept, key.bytes())?;
                }
                return Ok(true);
            };
            if part.start.is_none() {
                part.count = 0;
                let bytes = head_bytes_max(&stream, &part.tale) + key.bytes().len();
                if self.kept.free_bytes() < bytes {
                    needs = bytes;
                    continue;
                }
                (part.start, part.version) = (Some(self.kept.mark()), version);
                if reads && !put_read_head(&mut self.kept, self.resp3, key.bytes(), &stream, &part.tale) {
                    return Ok(true);
                }
                self.reads = self.reads.map(|streams| streams + 1);
                let before = self.kept.len();
                let counts =
                    part.tale.begin(&stream, key.bytes(), (&mut self.kept, self.resp3), &mut part.tasks)?;
                // XINFO STREAM has two entries there.
                *ns += copying_ns(self.kept.len() - before);
                part.counts_behind = counts.then(|| self.kept.len());
            }
            let store = self.store.as_ref();
            let mut sink = Sink { out: &mut self.kept, resp3: self.resp3, store, ns: *ns, ns_max, needs: 0 };
            part.tale.go_on(&stream, &mut sink, &mut part.tasks, &mut part.count);
            (*ns, needs) = (sink.ns, sink.needs);
            if part.tasks.is_empty() {
                return Ok(true);
            }
            if *ns >= ns_max {
                return Ok(false);
            }
        }
    }

    /// What was copied of a stream is forgotten: it is another one by now.
    fn forget(&mut self, part: &mut Part) {
        if let Some(start) = part.start.take() {
            self.kept.rewind(start);
            self.reads = self.reads.map(|streams| streams - 1);
            part.tasks.clear();
            self.tries.fail();
        }
    }
}

/// What stands before the entries of one of several streams; false if it has none.
fn put_read_head(out: &mut Output, resp3: bool, key: &[u8], stream: &Stream<'_>, tale: &Tale) -> bool {
    let Tale::Range { from, to, most, back } = tale else { return false };
    if range_places(stream, (*from, *to), *most, *back).is_empty() {
        return false;
    }
    if !resp3 {
        put_array(out, 2);
    }
    put_bulk(out, key);
    true
}

/// Bytes of the head of a reply, at most.
fn head_bytes_max(stream: &Stream<'_>, tale: &Tale) -> usize {
    let entries = match tale {
        Tale::Info => [stream.at(0), stream.at(stream.len().saturating_sub(1))]
            .into_iter()
            .flatten()
            .map(|entry| entry_bytes_max(&entry))
            .sum(),
        _ => 0,
    };
    entries + 2 * NAMED_BYTES + ELEMENT_FRAME
}

impl Job for Telling {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if !self.copied {
            // What goes on in the next turn holds on to memory: one client of a worker does at a time.
            let goes_on = !self.kept.is_empty() || self.tries.are_many();
            if goes_on && self.lane.is_none() && !call.cx.guard.in_transaction() {
                self.lane = call.cx.room.work().take_lane();
                if self.lane.is_none() {
                    call.spend(STEP_NS_MIN);
                    return Ok(call.await_lane());
                }
            }
            if self.tries.are_many() && !call.cx.guard.in_transaction() {
                self.tries.begin_held();
                return Ok(Step::Hold);
            }
            if !self.copy_some(call)? {
                return Ok(Step::More);
            }
            self.copied = true;
            // Its client takes the reply when it likes, and what is left is memory that is counted.
            self.lane = None;
        }
        if self.kept.is_plain() {
            return send_whole(call, &self.kept, &mut self.sent);
        }
        Ok(send_or_hand_on(call, &mut self.kept, &mut self.sent))
    }

    fn asks_itself(&self) -> bool {
        self.copied
    }

    fn only_replies(&self) -> bool {
        self.copied
    }

    fn names(&self) -> Vec<&Name> {
        self.parts.iter().map(|part| &part.name).collect()
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64 + self.kept.pinned_bytes()
    }

    fn only_reads(&self) -> bool {
        true
    }
}
