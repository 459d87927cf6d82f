//! The stream that clients of the world share, and its group: entries that were added, delivered, acknowledged and deleted.

use std::collections::{BTreeMap, BTreeSet};

use larder_store::{Guard, StreamId, Type};
use larder_testkit::proof;

/// The names of the stream and its group.
pub const LOG: &str = "log";
pub const GROUP: &str = "group";

/// The states of the stream's entries.
#[derive(Debug, Default)]
pub struct Log {
    /// The number of the next entry.
    pub next: u64,
    /// The numbers of acknowledged additions, by ID.
    pub added: BTreeMap<StreamId, u64>,
    /// Numbers of additions on connections that ended before the reply.
    pub perhaps: BTreeSet<u64>,
    /// The numbers of delivered entries, by ID.
    pub told: BTreeMap<StreamId, u64>,
    /// Delivered entries that no client has acknowledged yet.
    pub open: Vec<StreamId>,
    pub acknowledged: BTreeSet<StreamId>,
    pub erased: BTreeSet<StreamId>,
    /// Entries whose XACK or XDEL was on a connection that ended before the reply.
    pub perhaps_gone: BTreeSet<StreamId>,
    /// The number of the last event: each request and each reply has its own.
    moment: u64,
    /// The moment at which the reply to an addition came.
    added_at: BTreeMap<StreamId, u64>,
    /// The moment of the request by which an entry was delivered.
    told_at: BTreeMap<StreamId, u64>,
    /// The moments of requests that delivered nothing, and of their replies.
    denials: Vec<(u64, u64)>,
}

impl Log {
    /// The moment of a new request or reply.
    pub fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Notes that an entry was added.
    ///
    /// # Errors
    /// Another entry has the ID.
    pub fn add(&mut self, id: StreamId, number: u64) -> Result<(), String> {
        let now = self.now();
        self.added_at.insert(id, now);
        let other = self.added.insert(id, number);
        other.map_or(Ok(()), |other| Err(format!("two entries have the ID {id:?}: {other} and {number}")))
    }

    /// Notes a reply that delivered nothing; `asked`: the moment of its request.
    pub fn deny(&mut self, asked: u64) {
        let answered = self.now();
        self.denials.push((asked, answered));
    }

    /// Notes that an entry was delivered; `asked`: the moment of the request.
    ///
    /// # Errors
    /// The entry was delivered before, or never added.
    pub fn deliver(&mut self, id: StreamId, text: &[u8], asked: u64) -> Result<(), String> {
        let number = proof::version(LOG, text)?;
        if number >= self.next || self.told.insert(id, number).is_some() {
            return Err(format!("{number}, {id:?}, was delivered before, or never added"));
        }
        self.told_at.insert(id, asked);
        self.open.push(id);
        Ok(())
    }

    /// Takes up to `most` delivered entries for an XACK or XDEL. No other client gets them.
    pub fn take_some(&mut self, most: usize) -> Vec<StreamId> {
        self.open.split_off(self.open.len().saturating_sub(most))
    }

    /// Checks that each added entry is in the stream until it is deleted, and pending from its delivery until it is acknowledged.
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
            // An entry that no client received was delivered to a connection that had ended.
            let (is_pending, is_done) = (pending.contains(id), self.acknowledged.contains(id));
            let unsure = self.perhaps_gone.contains(id) && !is_done;
            if is_pending != (*id <= group.last && !is_done) && !unsure {
                return Err(format!("{id:?} is pending: {is_pending}; acknowledged: {is_done}; {group:?}"));
            }
        }
        self.denials_are_true(group.last)
    }

    /// Checks that no request delivered nothing while an entry was left from before it until after its reply. The group has
    /// delivered all entries up to `last`.
    fn denials_are_true(&self, last: StreamId) -> Result<(), String> {
        for (asked, answered) in &self.denials {
            let lay_there = |(id, added): &(&StreamId, &u64)| {
                // An entry that no client received was delivered to a connection that had ended, at any time.
                let is_left = **id > last || self.told_at.get(*id).is_some_and(|told| told > answered);
                *added < asked && is_left
            };
            if let Some((id, added)) = self.added_at.iter().find(lay_there) {
                return Err(format!(
                    "{id:?}, added by {added}, was not told to a client that asked at {asked} and heard of nothing at \
                     {answered}"
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn nothing_is_no_answer_while_an_entry_lies_there() {
    let id = StreamId { ms: 1, seq: 0 };
    let mut log = Log::default();
    let early = log.now();
    log.add(id, 0).expect("it is the first");
    log.deny(early);
    assert_eq!(log.denials_are_true(StreamId::MIN), Ok(()), "it may have come later");
    let asked = log.now();
    log.deny(asked);
    assert!(log.denials_are_true(StreamId::MIN).is_err());
    assert_eq!(log.denials_are_true(id), Ok(()), "it went to a connection that had ended");
    log.told_at.insert(id, asked);
    assert_eq!(log.denials_are_true(id), Ok(()), "another was told of it that asked before the answer");
    let late = log.now();
    log.told_at.insert(id, late);
    assert!(log.denials_are_true(id).is_err());
    assert!(log.add(id, 1).is_err());
}
