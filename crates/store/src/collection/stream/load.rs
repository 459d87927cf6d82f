//! A stream that is read out of a payload: entries, what it knows of itself, groups, what is
//! pending in each, and with which consumer; in this order, some at a time.
//!
//! What is pending comes before the consumers that it is pending with: until then its row names no line, and each is named once.

use super::rows::{
    Data, ENTRIES, FIRST_LINE, GROUPS, GroupRow, Op, Row, RowKey, StreamId, StreamRow, parts_of, seek,
};
use super::{MERGED_BYTES, NewFields};
use crate::Key;
use crate::collection::build::Full;
use crate::collection::load::BulkLoad;
use crate::collection::tree::{EditContext, Growth};
use crate::collection::{Declined, Type};
use crate::worker::Guard;

/// No line: no consumer has it yet.
const NOBODY: u32 = 0;

/// What is known of a stream on its way in.
#[derive(Debug)]
pub struct StreamLoad {
    load: BulkLoad,
    own: StreamRow,
    len: u64,
}

/// A group on its way in.
#[derive(Debug)]
pub struct GroupLoad {
    line: u32,
    /// Pending entries whose consumer was not named yet.
    orphans: u64,
    last: StreamId,
}

/// A consumer on its way in.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerLoad {
    line: u32,
}

impl StreamLoad {
    /// A stream of nothing yet.
    pub fn new(store: &std::sync::Arc<crate::Store>) -> StreamLoad {
        StreamLoad { load: BulkLoad::new(store, Type::Stream), own: StreamRow::NEW, len: 0 }
    }

    /// Entries by now.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// It has no entry yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ID of its last entry; 0-0 if there is none.
    pub fn last(&self) -> StreamId {
        self.own.last
    }

    /// Bytes of the heap that go with it and grow with it, about.
    pub fn heap_bytes(&self) -> usize {
        self.load.heap_bytes()
    }

    /// Bytes of its chunks by now.
    pub fn bytes(&self) -> u64 {
        self.load.bytes()
    }

    /// What was loaded.
    pub fn into_load(self) -> BulkLoad {
        self.load
    }

    /// What was loaded, to be finished.
    pub fn load_mut(&mut self) -> &mut BulkLoad {
        &mut self.load
    }

    fn lines(&mut self, count: u32) -> Result<u32, Declined> {
        let line = self.own.next_line;
        self.own.next_line = line.checked_add(count).ok_or(Declined::TooLarge)?;
        Ok(line)
    }
}

impl GroupLoad {
    /// True if all that is pending has a consumer.
    pub fn is_whole(&self) -> bool {
        self.orphans == 0
    }
}

impl Guard<'_> {
    /// Puts entries to the end, in the order of their IDs, each with those of its values that lie apart, as
    /// [`NewFields::set_long`] has them.
    ///
    /// # Errors
    /// [`Declined::Twice`]: an ID is not behind the one before. [`Declined::TooLarge`],
    /// [`Declined::NoMemory`]. After an error the load is of no use; so below.
    pub fn stream_load_entries<'p, A: Iterator<Item = &'p [u8]>>(
        &mut self,
        stream: &mut StreamLoad,
        key: &Key<'_>,
        entries: impl Iterator<Item = (StreamId, &'p NewFields, A)>,
    ) -> Result<(), Declined> {
        let mut ops = Vec::with_capacity(entries.size_hint().0 + 1);
        let mut parts = Vec::new();
        for (id, fields, apart) in entries {
            if id <= stream.own.last {
                return Err(Declined::Twice);
            }
            (stream.own.last, stream.len) = (id, stream.len + 1);
            ops.push(Op { key: RowKey::of_id(ENTRIES, id), data: Some(fields.data()) });
            parts.extend(parts_of(apart).map(|(number, part)| (id, number, part)));
        }
        ops.push(stream.own.op());
        ops.extend(parts.iter().map(|(id, number, part)| Op::of_part(*id, number, part)));
        self.merge_load(stream, key, &ops)
    }

    /// Sets what a stream knows of itself, when all entries are there; `last` is no less than the ID of the last of them.
    ///
    /// # Errors
    /// As above.
    pub fn stream_load_own(
        &mut self,
        stream: &mut StreamLoad,
        key: &Key<'_>,
        (last, deleted_max, added): (StreamId, StreamId, u64),
    ) -> Result<(), Declined> {
        (stream.own.last, stream.own.deleted_max, stream.own.added) = (last, deleted_max, added);
        let ops = [stream.own.op()];
        self.merge_load(stream, key, &ops)
    }

    /// Begins a group.
    ///
    /// # Errors
    /// As above; [`Declined::Twice`]: there is one of this name.
    pub fn stream_load_group(
        &mut self,
        stream: &mut StreamLoad,
        key: &Key<'_>,
        name: &[u8],
        last: StreamId,
        read: Option<u64>,
    ) -> Result<GroupLoad, Declined> {
        let row = RowKey::of_name(GROUPS, name);
        if self.loaded_row(stream, &row, |there| there.is_some()) {
            return Err(Declined::Twice);
        }
        let line = stream.lines(2)?;
        let ops = [stream.own.op(), Op { key: row, data: Some(Data::Group(GroupRow { line, last, read })) }];
        self.merge_load(stream, key, &ops)?;
        Ok(GroupLoad { line, orphans: 0, last: StreamId::MIN })
    }

    /// Puts what is pending in a group, in the order of IDs: when it was delivered, and how often.
    ///
    /// # Errors
    /// As above; [`Declined::Twice`]: an ID is not behind the one before.
    pub fn stream_load_pending(
        &mut self,
        stream: &mut StreamLoad,
        key: &Key<'_>,
        group: &mut GroupLoad,
        pending: &[(StreamId, u64, u64)],
    ) -> Result<(), Declined> {
        let mut ops = Vec::with_capacity(pending.len());
        for &(id, time, count) in pending {
            if id <= group.last {
                return Err(Declined::Twice);
            }
            group.last = id;
            let data = Data::Pending { line: NOBODY, time, count };
            ops.push(Op { key: RowKey::of_id(group.line + 1, id), data: Some(data) });
        }
        group.orphans += pending.len() as u64;
        self.merge_load(stream, key, &ops)
    }

    /// Begins a consumer of a group.
    ///
    /// # Errors
    /// As above; [`Declined::Twice`]: there is one of this name.
    pub fn stream_load_consumer(
        &mut self,
        stream: &mut StreamLoad,
        key: &Key<'_>,
        group: &GroupLoad,
        name: &[u8],
        (seen, active): (u64, Option<u64>),
    ) -> Result<ConsumerLoad, Declined> {
        let row = RowKey::of_name(group.line, name);
        if self.loaded_row(stream, &row, |there| there.is_some()) {
            return Err(Declined::Twice);
        }
        let line = stream.lines(1)?;
        let consumer = Data::Consumer { name, seen, active };
        let ops = [
            stream.own.op(),
            Op { key: row, data: Some(Data::Line(line)) },
            Op { key: RowKey::of_id(line, StreamId::MIN), data: Some(consumer) },
        ];
        self.merge_load(stream, key, &ops)?;
        Ok(ConsumerLoad { line })
    }

    /// Says what is pending with a consumer.
    ///
    /// # Errors
    /// As above; [`Declined::Twice`]: something is not pending in the group, or with another consumer.
    pub fn stream_load_owned(
        &mut self,
        stream: &mut StreamLoad,
        key: &Key<'_>,
        (group, consumer): (&mut GroupLoad, ConsumerLoad),
        ids: &[StreamId],
    ) -> Result<(), Declined> {
        let mut ops = Vec::with_capacity(2 * ids.len());
        for &id in ids {
            let at = RowKey::of_id(group.line + 1, id);
            let orphan = self.loaded_row(stream, &at, |there| match there.map(|there| there.data) {
                Some(Data::Pending { line: NOBODY, time, count }) => Some((time, count)),
                _ => None,
            });
            let (time, count) = orphan.ok_or(Declined::Twice)?;
            ops.push(Op { key: at, data: Some(Data::Pending { line: consumer.line, time, count }) });
            ops.push(Op { key: RowKey::of_id(consumer.line, id), data: Some(Data::Own) });
        }
        ops.sort_unstable_by_key(|op| op.key);
        if ops.windows(2).any(|two| two[0].key == two[1].key) {
            return Err(Declined::Twice);
        }
        group.orphans -= ids.len() as u64;
        self.merge_load(stream, key, &ops)
    }

    /// Calls `ask` with the row of this key, or `None` if none was put.
    fn loaded_row<R>(
        &self,
        stream: &StreamLoad,
        key: &RowKey<'_>,
        ask: impl FnOnce(Option<Row<'_>>) -> R,
    ) -> R {
        let (builder, edit) = stream.load.parts();
        match edit {
            None if builder.is_empty() => ask(None),
            None => ask(seek(&builder.leaf(), key).1),
            Some(edit) => ask(edit.tree(self.store, Type::Stream).seek_row(key).1),
        }
    }

    /// Puts rows, which come in order.
    fn merge_load(&mut self, stream: &mut StreamLoad, key: &Key<'_>, ops: &[Op<'_>]) -> Result<(), Declined> {
        debug_assert!(stream.own.next_line >= FIRST_LINE);
        self.local.leave_if_due(self.store);
        let mut left = ops;
        let load = &mut stream.load;
        while !left.is_empty() && !load.is_planted() {
            let builder = load.builder_mut();
            match builder.merge_rows(left, |_, bytes| bytes < MERGED_BYTES, &mut false) {
                Ok(done) => left = &left[done..],
                Err(Full) if builder.is_empty() => return Err(Declined::TooLarge),
                Err(Full) => self.plant_load(load, key, true)?,
            }
            if !load.is_planted() && load.builder_mut().is_for_tree(key.collection_bytes_max()) {
                self.plant_load(load, key, true)?;
            }
        }
        if !load.is_planted() {
            return Ok(());
        }
        let (store, memory) = (self.store, self.store.memory_bytes());
        let edit = load.edit_mut();
        edit.growth = Growth::Within;
        edit.merge_rows(&mut EditContext { store, local: &mut *self.local, key }, left)?;
        if load.is_beyond(memory) { Err(Declined::NoMemory) } else { Ok(()) }
    }
}
