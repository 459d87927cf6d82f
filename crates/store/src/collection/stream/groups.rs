//! Groups of a stream: which consumer reads what, and which entries are pending with which.

use super::rows::{Data, GROUPS, GroupRow, Op, REMOVED, RowKey, StreamId, StreamRow};
use super::view::{Consumer, Group, PendingEntry, Stream};
use super::{StreamRefusal, Type};
use crate::Key;
use crate::collection::Declined;
use crate::worker::Guard;
use std::collections::BTreeMap;

/// Where so many are removed together and that fails, the next try takes fewer.
const FEWER_FROM: usize = 1 << 10;

/// Where a group begins to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Behind the last entry.
    Last,
    /// Behind this ID.
    Behind(StreamId),
}

/// What a removal of a group or a consumer came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// It was there.
    pub there: bool,
    /// How many entries were pending and are no longer.
    pub pending: usize,
    /// There is more to do: of very much that is pending some goes at a time.
    pub more: bool,
}

/// What was delivered to a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The entries: from the first ID to the last, which is one of them; none if there was nothing.
    pub range: Option<(StreamId, StreamId)>,
    /// How many.
    pub count: usize,
    /// The consumer is new.
    pub new_consumer: bool,
}

/// What is claimed for a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The group.
    pub group: &'a [u8],
    /// The consumer.
    pub consumer: &'a [u8],
    /// Milliseconds since 1970.
    pub now: u64,
    /// Only what was delivered so long ago.
    pub min_idle_ms: u64,
    /// The time at which it is said to be delivered.
    pub time: u64,
    /// How many deliveries it is said to have had; `None`: one more than before.
    pub count: Option<u64>,
    /// The claim does not count as a delivery.
    pub silent: bool,
    /// Entries that are not pending are claimed, too.
    pub force: bool,
    /// The group's last ID becomes this one, if it is lower.
    pub last: Option<StreamId>,
}

/// What came of claiming what is pending, one ID after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutoClaimed {
    /// Where to go on; none: that was all.
    pub next: Option<StreamId>,
    /// What is the consumer's now.
    pub claimed: Vec<StreamId>,
    /// What is not in the stream any more, nor pending.
    pub deleted: Vec<StreamId>,
    /// How many pending entries were looked at.
    pub looked: usize,
    /// The consumer is new.
    pub new_consumer: bool,
}

impl GroupRow {
    fn op(self, name: &[u8]) -> Op<'_> {
        Op { key: RowKey::of_name(GROUPS, name), data: Some(Data::Group(self)) }
    }
}

impl Group<'_> {
    fn row(&self) -> GroupRow {
        GroupRow { line: self.line, last: self.last, read: self.read }
    }

    fn pending_line(&self) -> u32 {
        self.line + 1
    }
}

/// Rows that are to be put or taken out, as they are found out.
struct Plan<'a> {
    own: StreamRow,
    own_changed: bool,
    ops: Vec<Op<'a>>,
}

impl<'a> Plan<'a> {
    fn of(stream: &Stream<'_>) -> Plan<'a> {
        Plan { own: stream.own, own_changed: false, ops: Vec::new() }
    }

    fn put(&mut self, key: RowKey<'a>, data: Data<'a>) {
        self.ops.push(Op { key, data: Some(data) });
    }

    fn take(&mut self, key: RowKey<'a>) {
        self.ops.push(Op { key, data: None });
    }

    /// Takes so many lines that no consumer has had; returns the first.
    fn lines(&mut self, count: u32) -> Result<u32, Declined> {
        let line = self.own.next_line;
        self.own.next_line = line.checked_add(count).ok_or(Declined::TooLarge)?;
        self.own_changed = true;
        Ok(line)
    }

    /// The line of a consumer that asks for something, and whether it was made now, as there was none.
    fn enter(
        &mut self,
        stream: &Stream<'_>,
        group: &Group<'_>,
        name: &'a [u8],
        (now, active): (u64, bool),
    ) -> Result<(u32, bool), Declined> {
        let there = stream.consumer(group, name);
        let line = match &there {
            Some(there) => there.line,
            None => {
                let line = self.lines(1)?;
                self.put(RowKey::of_name(group.line, name), Data::Line(line));
                line
            }
        };
        let active = if active { Some(now) } else { there.and_then(|there| there.active) };
        if there.is_none_or(|there| there.seen != now || there.active != active) {
            self.put(RowKey::of_id(line, StreamId::MIN), Data::Consumer { name, seen: now, active });
        }
        Ok((line, there.is_none()))
    }

    /// Changes what is pending of an ID: with the consumer of line `old` before, `new` from now on.
    fn pend(&mut self, group: &Group<'_>, id: StreamId, old: Option<u32>, new: Option<PendingEntry>) {
        let key = RowKey::of_id(group.pending_line(), id);
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.consumer != *old)) {
            self.take(RowKey::of_id(old, id));
        }
        match new {
            None => self.take(key),
            Some(PendingEntry { consumer: line, time, count, .. }) => {
                self.put(key, Data::Pending { line, time, count });
                if old != Some(line) {
                    self.put(RowKey::of_id(line, id), Data::Own);
                }
            }
        }
    }

    /// The rows in their order.
    fn sorted(&mut self) -> &[Op<'a>] {
        if self.own_changed {
            self.ops.push(self.own.op());
        }
        self.ops.sort_unstable_by_key(|op| op.key);
        &self.ops
    }
}

/// The stream, and a group of it.
fn with_group<'c>(stream: Option<Stream<'c>>, name: &[u8]) -> Result<(Stream<'c>, Group<'c>), StreamRefusal> {
    let stream = stream.ok_or(StreamRefusal::NoGroup)?;
    let group = stream.group(name).ok_or(StreamRefusal::NoGroup)?;
    Ok((stream, group))
}

/// Entries whose pending state has changed by now: as it was, and as it is.
type Changed = BTreeMap<StreamId, (Option<PendingEntry>, Option<PendingEntry>)>;

/// What is pending of an ID by now.
fn pending_now(
    changed: &Changed,
    stream: &Stream<'_>,
    group: &Group<'_>,
    id: StreamId,
) -> Option<PendingEntry> {
    changed.get(&id).map_or_else(|| stream.pending_at(group, id), |(_, now)| *now)
}

fn note(changed: &mut Changed, id: StreamId, old: Option<PendingEntry>, new: Option<PendingEntry>) {
    changed.entry(id).or_insert((old, None)).1 = new;
}

impl Guard<'_> {
    /// Makes a group, and a stream for it if `makes` says so and there is none.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn group_create(
        &mut self,
        key: &Key<'_>,
        name: &[u8],
        start: Start,
        read: Option<u64>,
        makes: bool,
    ) -> Result<(), StreamRefusal> {
        self.change_collection(key, Type::Stream, |change| {
            let there = change.stream();
            if there.is_none() && !makes {
                return Err(StreamRefusal::NoStream);
            }
            if there.is_some_and(|there| there.group(name).is_some()) {
                return Err(StreamRefusal::GroupExists);
            }
            let own = there.map_or(StreamRow::NEW, |there| there.own);
            let mut plan = Plan { own, own_changed: false, ops: Vec::new() };
            let line = plan.lines(2)?;
            let last = match start {
                Start::Last => own.last,
                Start::Behind(id) => id,
            };
            plan.ops.push(GroupRow { line, last, read }.op(name));
            Ok(change.merge_rows(plan.sorted())?)
        })?;
        Ok(())
    }

    /// Gives a group another last ID.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn group_set_id(
        &mut self,
        key: &Key<'_>,
        name: &[u8],
        start: Start,
        read: Option<u64>,
    ) -> Result<(), StreamRefusal> {
        self.change_collection(key, Type::Stream, |change| {
            let (stream, group) = with_group(change.stream(), name)?;
            let last = match start {
                Start::Last => stream.own.last,
                Start::Behind(id) => id,
            };
            let row = GroupRow { last, read, ..group.row() };
            Ok::<_, StreamRefusal>(change.merge_rows(&[row.op(name)])?)
        })?;
        Ok(())
    }

    /// Removes a group at once, with `most` of what is pending in it, fewer where there is no memory for what is left beside
    /// what was there. The rest, which no command sees any more, goes by [`Guard::group_removal`].
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn group_destroy(&mut self, key: &Key<'_>, name: &[u8], most: usize) -> Result<Removal, Declined> {
        self.fewer(most, |guard, most| guard.destroy_some(key, Some(name), most))
    }

    /// Goes on with groups of a stream that are removed: `most` of what was pending in one of them.
    ///
    /// # Errors
    /// As of [`Guard::group_destroy`].
    pub fn group_removal(&mut self, key: &Key<'_>, most: usize) -> Result<Removal, Declined> {
        self.fewer(most, |guard, most| guard.destroy_some(key, None, most))
    }

    /// Has `remove` remove as much as there is memory for.
    fn fewer<E: PartialEq + From<Declined>>(
        &mut self,
        mut most: usize,
        mut remove: impl FnMut(&mut Self, usize) -> Result<Removal, E>,
    ) -> Result<Removal, E> {
        loop {
            let done = remove(self, most);
            let fails = done.as_ref().is_err_and(|failed| *failed == E::from(Declined::NoMemory));
            if !fails || most <= 1 || self.memory_comes() {
                return done;
            }
            most = most.min(FEWER_FROM) / 4;
        }
    }

    /// Removes some rows of the group of a name, which is among the removed groups until none is left; or of the first of those.
    fn destroy_some(&mut self, key: &Key<'_>, name: Option<&[u8]>, most: usize) -> Result<Removal, Declined> {
        let changed = self.take_out_of_collection(key, Type::Stream, |change| {
            let there = change.stream().and_then(|stream| {
                let group = match name {
                    Some(name) => stream.group(name),
                    None => stream.removed_groups().next(),
                };
                Some((stream, group?))
            });
            let Some((stream, group)) = there else { return Ok::<_, Declined>(Removal::default()) };
            let mut plan = Plan::of(&stream);
            let mut pending = 0;
            for there in stream.pending(&group, StreamId::MIN).take(most) {
                plan.pend(&group, there.id, Some(there.consumer), None);
                pending += 1;
            }
            let mut left = pending < stream.pending_count(&group);
            // Consumers may be many, too.
            let mut names = Vec::new();
            if !left {
                let room = most.saturating_sub(pending).max(1);
                names.extend(
                    stream
                        .consumers(&group)
                        .take(room)
                        .map(|consumer| (consumer.name.to_vec(), consumer.line)),
                );
                left = names.len() < stream.consumers(&group).len();
            }
            for (name, consumer) in &names {
                plan.take(RowKey::of_name(group.line, name));
                plan.take(RowKey::of_id(*consumer, StreamId::MIN));
            }
            // No line is given out twice: no other removed group has this name.
            let number = group.line.to_be_bytes();
            let removed = RowKey::of_name(REMOVED, &number);
            let others = stream.removed_groups().len() > usize::from(name.is_none());
            if let Some(name) = name {
                plan.take(RowKey::of_name(GROUPS, name));
                if left {
                    plan.put(removed, Data::Group(group.row()));
                }
            } else if !left {
                plan.take(removed);
            }
            change.merge_rows(plan.sorted())?;
            Ok(Removal { there: true, pending, more: left || others })
        })?;
        Ok(changed.answer)
    }

    /// Makes a consumer; whether there was none.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn consumer_create(
        &mut self,
        key: &Key<'_>,
        group: &[u8],
        name: &[u8],
        now: u64,
    ) -> Result<bool, StreamRefusal> {
        let changed = self.change_collection(key, Type::Stream, |change| {
            let (stream, group) = with_group(change.stream(), group)?;
            if stream.consumer(&group, name).is_some() {
                return Ok::<_, StreamRefusal>(false);
            }
            let mut plan = Plan::of(&stream);
            plan.enter(&stream, &group, name, (now, false))?;
            change.merge_rows(plan.sorted())?;
            Ok(true)
        })?;
        Ok(changed.answer)
    }

    /// Removes a consumer with what is pending with it, or `most` of that, as [`Guard::group_destroy`].
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn consumer_delete(
        &mut self,
        key: &Key<'_>,
        group: &[u8],
        name: &[u8],
        most: usize,
    ) -> Result<Removal, StreamRefusal> {
        self.fewer(most, |guard, most| guard.delete_some(key, group, name, most))
    }

    fn delete_some(
        &mut self,
        key: &Key<'_>,
        group: &[u8],
        name: &[u8],
        most: usize,
    ) -> Result<Removal, StreamRefusal> {
        let changed = self.take_out_of_collection(key, Type::Stream, |change| {
            let (stream, group) = with_group(change.stream(), group)?;
            let Some(consumer) = stream.consumer(&group, name) else {
                return Ok::<_, StreamRefusal>(Removal::default());
            };
            let mut plan = Plan::of(&stream);
            let mut pending = 0;
            for id in stream.pending_with(&consumer, StreamId::MIN).take(most) {
                plan.pend(&group, id, Some(consumer.line), None);
                pending += 1;
            }
            let more = pending < stream.pending_with_count(&consumer);
            if !more {
                plan.take(RowKey::of_name(group.line, name));
                plan.take(RowKey::of_id(consumer.line, StreamId::MIN));
            }
            change.merge_rows(plan.sorted())?;
            Ok(Removal { there: true, pending, more })
        })?;
        Ok(changed.answer)
    }

    /// Delivers entries that no consumer of the group has had, `most` at most; they are pending then, if `pends` says so.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn group_read(
        &mut self,
        key: &Key<'_>,
        (group, consumer): (&[u8], &[u8]),
        now: u64,
        most: usize,
        pends: bool,
    ) -> Result<Delivered, StreamRefusal> {
        let changed = self.change_collection(key, Type::Stream, |change| {
            let (stream, there) = with_group(change.stream(), group)?;
            let start = there.last.next().map_or(stream.len(), |next| stream.below(next));
            let entries = start..stream.len().min(start.saturating_add(most));
            let count = entries.len();
            let mut plan = Plan::of(&stream);
            let (line, new_consumer) = plan.enter(&stream, &there, consumer, (now, pends && count > 0))?;
            let mut row = there.row();
            let mut first = None;
            // What was delivered before a group was set back may be pending still.
            let pending_end = stream.pending_back(&there).next().map(|last| last.id);
            for entry in stream.entries(entries) {
                let id = entry.id;
                row.read = stream.read_behind(row.read, row.last, id);
                row.last = id;
                first = first.or(Some(id));
                if pends {
                    let asks = pending_end.is_some_and(|end| id <= end);
                    let old = if asks { stream.pending_at(&there, id) } else { None };
                    let new = PendingEntry { id, consumer: line, time: now, count: 1 };
                    plan.pend(&there, id, old.map(|old| old.consumer), Some(new));
                }
            }
            if count > 0 {
                plan.ops.push(row.op(group));
            }
            change.merge_rows(plan.sorted())?;
            let range = first.map(|first| (first, row.last));
            Ok::<_, StreamRefusal>(Delivered { range, count, new_consumer })
        })?;
        Ok(changed.answer)
    }

    /// Delivers again what is pending with a consumer, from an ID on, `most` at most. The time and
    /// count change of what is still in the stream.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn group_read_again(
        &mut self,
        key: &Key<'_>,
        (group, consumer): (&[u8], &[u8]),
        now: u64,
        from: StreamId,
        most: usize,
    ) -> Result<Delivered, StreamRefusal> {
        let changed = self.change_collection(key, Type::Stream, |change| {
            let (stream, group) = with_group(change.stream(), group)?;
            let mut plan = Plan::of(&stream);
            let (line, new_consumer) = plan.enter(&stream, &group, consumer, (now, false))?;
            let (mut range, mut count) = (None, 0);
            if let Some(there) = stream.consumer_of(line) {
                for id in stream.pending_with(&there, from).take(most) {
                    range = Some((range.map_or(id, |(first, _)| first), id));
                    count += 1;
                    if stream.entry(id).is_some()
                        && let Some(pending) = stream.pending_at(&group, id)
                    {
                        let again =
                            PendingEntry { time: now, count: pending.count.saturating_add(1), ..pending };
                        plan.pend(&group, id, Some(line), Some(again));
                    }
                }
            }
            change.merge_rows(plan.sorted())?;
            Ok::<_, StreamRefusal>(Delivered { range, count, new_consumer })
        })?;
        Ok(changed.answer)
    }

    /// Acknowledges IDs: they are pending no more. Returns how many were. Without memory as [`Guard::stream_delete`].
    ///
    /// # Errors
    /// As there.
    pub fn group_ack(
        &mut self,
        key: &Key<'_>,
        group: &[u8],
        ids: impl Iterator<Item = StreamId> + Clone,
    ) -> Result<usize, Declined> {
        match self.ack_at_once(key, group, ids.clone()) {
            Err(Declined::NoMemory) if !self.memory_comes() => {}
            done => return done,
        }
        self.one_by_one(key, ids, |guard, id| guard.ack_at_once(key, group, std::iter::once(id)))
    }

    fn ack_at_once(
        &mut self,
        key: &Key<'_>,
        group: &[u8],
        ids: impl Iterator<Item = StreamId> + Clone,
    ) -> Result<usize, Declined> {
        let changed = self.take_out_of_collection(key, Type::Stream, |change| {
            let stream = change.stream();
            let Some((stream, group)) = stream.and_then(|stream| Some((stream, stream.group(group)?))) else {
                return Ok::<_, Declined>(0);
            };
            let mut all: Vec<StreamId> = ids.clone().collect();
            all.sort_unstable();
            all.dedup();
            let (mut plan, mut count) = (Plan::of(&stream), 0);
            for there in all.into_iter().filter_map(|id| stream.pending_at(&group, id)) {
                plan.pend(&group, there.id, Some(there.consumer), None);
                count += 1;
            }
            change.merge_rows(plan.sorted())?;
            Ok(count)
        })?;
        Ok(changed.answer)
    }

    /// Claims what is pending of these IDs; returns which of them are the consumer's then, and whether the consumer is new.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn group_claim(
        &mut self,
        key: &Key<'_>,
        claim: &Claim<'_>,
        ids: impl Iterator<Item = StreamId> + Clone,
    ) -> Result<(Vec<StreamId>, bool), StreamRefusal> {
        let changed = self.change_collection(key, Type::Stream, |change| {
            let (stream, group) = with_group(change.stream(), claim.group)?;
            let mut plan = Plan::of(&stream);
            let line = line_of(&stream, &group, claim.consumer, plan.own.next_line);
            let (mut changed, mut claimed) = (Changed::new(), Vec::new());
            for id in ids.clone() {
                let there = pending_now(&changed, &stream, &group, id);
                if stream.entry(id).is_none() {
                    if there.is_some() {
                        note(&mut changed, id, there, None);
                    }
                    continue;
                }
                let before = match there {
                    Some(there) if claim.now.saturating_sub(there.time) < claim.min_idle_ms => continue,
                    Some(there) => there.count,
                    None if claim.force => 1,
                    None => continue,
                };
                let count = claim.count.unwrap_or(before.saturating_add(u64::from(!claim.silent)));
                let new = PendingEntry { id, consumer: line, time: claim.time, count };
                note(&mut changed, id, there, Some(new));
                claimed.push(id);
            }
            let done = plan.enter(&stream, &group, claim.consumer, (claim.now, !claimed.is_empty()))?;
            debug_assert_eq!(done.0, line);
            for (id, (old, new)) in changed {
                if old.is_some() || new.is_some() {
                    plan.pend(&group, id, old.map(|old| old.consumer), new);
                }
            }
            if let Some(last) = claim.last.filter(|last| *last > group.last) {
                plan.ops.push(GroupRow { last, ..group.row() }.op(claim.group));
            }
            change.merge_rows(plan.sorted())?;
            Ok::<_, StreamRefusal>((claimed, done.1))
        })?;
        Ok(changed.answer)
    }

    /// Claims what is pending from an ID on: looks at `most` of it, until `count` were claimed or found to be gone.
    ///
    /// # Errors
    /// [`StreamRefusal`], and nothing done.
    pub fn group_claim_from(
        &mut self,
        key: &Key<'_>,
        claim: &Claim<'_>,
        from: StreamId,
        (count, most): (usize, usize),
    ) -> Result<AutoClaimed, StreamRefusal> {
        let changed = self.change_collection(key, Type::Stream, |change| {
            let (stream, group) = with_group(change.stream(), claim.group)?;
            let mut plan = Plan::of(&stream);
            let line = line_of(&stream, &group, claim.consumer, plan.own.next_line);
            let mut done = AutoClaimed::default();
            let mut pending = stream.pending(&group, from);
            let mut left = count;
            while left > 0
                && done.looked < most
                && let Some(there) = pending.next()
            {
                done.looked += 1;
                let old = Some(there.consumer);
                if stream.entry(there.id).is_none() {
                    plan.pend(&group, there.id, old, None);
                    done.deleted.push(there.id);
                } else if claim.now.saturating_sub(there.time) >= claim.min_idle_ms {
                    let count = there.count.saturating_add(u64::from(!claim.silent));
                    let new = PendingEntry { consumer: line, time: claim.time, count, ..there };
                    plan.pend(&group, there.id, old, Some(new));
                    done.claimed.push(there.id);
                } else {
                    continue;
                }
                left -= 1;
            }
            done.next = pending.next().map(|next| next.id);
            drop(pending);
            let active = !done.claimed.is_empty();
            done.new_consumer = plan.enter(&stream, &group, claim.consumer, (claim.now, active))?.1;
            change.merge_rows(plan.sorted())?;
            Ok::<_, StreamRefusal>(done)
        })?;
        Ok(changed.answer)
    }
}

/// The line that a consumer has, or will have.
fn line_of(stream: &Stream<'_>, group: &Group<'_>, name: &[u8], next: u32) -> u32 {
    stream.consumer(group, name).map_or(next, |there: Consumer<'_>| there.line)
}
