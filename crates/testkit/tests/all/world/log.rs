//! The stream that clients of the world share, and its group: what was added, delivered, acknowledged and deleted.

use std::collections::{BTreeMap, BTreeSet};

use larder_store::{Guard, StreamId, Type};
use larder_testkit::proof;

/// The stream, and its group.
pub const LOG: &str = "log";
pub const GROUP: &str = "group";

/// What has come of the stream's entries.
#[derive(Debug, Default)]
pub struct Log {
    /// The next number that is added.
    pub next: u64,
    /// Their numbers, by who has added them.
    pub added: BTreeMap<StreamId, u64>,
    /// Added on connections that ended before the answer.
    pub perhaps: BTreeSet<u64>,
    /// The same by who they were delivered to.
    pub told: BTreeMap<StreamId, u64>,
    /// Those that nobody has acknowledged yet.
    pub open: Vec<StreamId>,
    pub acknowledged: BTreeSet<StreamId>,
    pub erased: BTreeSet<StreamId>,
    /// Acknowledged or deleted on connections that ended before the answer.
    pub perhaps_gone: BTreeSet<StreamId>,
}

impl Log {
    /// An entry was delivered.
    ///
    /// # Errors
    /// It was delivered before, or never added.
    pub fn deliver(&mut self, id: StreamId, text: &[u8]) -> Result<(), String> {
        let number = proof::version(LOG, text)?;
        if number >= self.next || self.told.insert(id, number).is_some() {
            return Err(format!("{number}, {id:?}, was delivered before, or never added"));
        }
        self.open.push(id);
        Ok(())
    }

    /// Some that nobody else acknowledges.
    pub fn take_some(&mut self, most: usize) -> Vec<StreamId> {
        self.open.split_off(self.open.len().saturating_sub(most))
    }

    /// Each entry that was added is there until it is deleted, and pending from when it was delivered until it is acknowledged.
    ///
    /// # Errors
    /// What is wrong.
    pub fn agrees(&self, guard: &mut Guard<'_>) -> Result<(), String> {
        let key = guard.key(LOG.as_bytes());
        let there = guard.collection(&key, Type::Stream).ok().flatten().and_then(|there| there.stream());
        let stream = there.ok_or("the log is gone")?;
        let mut left = BTreeMap::new();
        for entry in stream.entries(0..stream.len()) {
            let id = entry.id;
            for (_, value) in entry.fields {
                let mut text = Vec::new();
                stream.each_part(id, &value, |part| text.extend_from_slice(part));
                left.insert(id, proof::version(LOG, &text)?);
            }
        }
        let mut seen = BTreeSet::new();
        for (id, number) in &left {
            let known = self.added.get(id).map_or(self.perhaps.contains(number), |added| added == number);
            if !known || !seen.insert(number) {
                return Err(format!("{number}, {id:?}, was added never, or twice"));
            }
        }
        for (id, number) in self.added.iter().chain(&self.told) {
            let may_be_gone = self.erased.contains(id) || self.perhaps_gone.contains(id);
            let agrees = match left.get(id) {
                Some(there) => there == number && !self.erased.contains(id),
                None => may_be_gone,
            };
            if !agrees {
                let there = left.get(id);
                return Err(format!("{number}, {id:?}, is {there:?}, and may be deleted: {may_be_gone}"));
            }
        }
        let group = stream.group(GROUP.as_bytes()).ok_or("the group is gone")?;
        let pending: BTreeSet<StreamId> =
            stream.pending(&group, StreamId::MIN).map(|there| there.id).collect();
        for id in left.keys().chain(self.told.keys()) {
            // One that nobody was told of went to a connection that had ended.
            let (is_pending, is_done) = (pending.contains(id), self.acknowledged.contains(id));
            let unsure = self.perhaps_gone.contains(id) && !is_done;
            if is_pending != (*id <= group.last && !is_done) && !unsure {
                return Err(format!("{id:?} is pending: {is_pending}; acknowledged: {is_done}; {group:?}"));
            }
        }
        Ok(())
    }
}
