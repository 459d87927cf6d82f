//! Writes that are not waited for one by one: what became of them is known after a barrier.
//!
//! ```text
//! sent = stored + refused + unknown
//! ```
//!
//! Requests of one kind for one server are collected, up to 64 or 16 KiB, and go as a group. In a quiet group the
//! server answers only what it refuses, and the barrier behind it.

use crate::client::{Client, settled};
use crate::error::{Error, Outcome};
use crate::lane::{self, Lane};
use crate::op::Op;
use crate::pipe::{Group, Tag};
use crate::ttl::Ttl;
use crate::wire::{Ask, Delete, Dialect, Kind, Request, Store};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests of a group, and their bytes.
const GROUP_REQUESTS_MAX: usize = 64;
const GROUP_BYTES_MAX: usize = 16 << 10;
/// Refusals that a report names.
const FIRST_MAX: usize = 16;

/// How much a stream may have sent and not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Requests: 1,024.
    pub requests: usize,
    /// Their bytes: 1 MiB.
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Window {
        Window { requests: 1024, bytes: 1 << 20 }
    }
}

/// A request that was not carried out, or of which that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its key; empty where the server's answer does not say which it was.
    pub key: Vec<u8>,
    /// Why.
    pub error: Error,
}

/// What became of all that was sent since the last barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it says what was not stored"]
pub struct Report {
    /// Stored, refused and unknown together.
    pub sent: u64,
    /// Carried out, as the server has said. A deletion of what was not there counts here.
    pub stored: u64,
    /// Not applied: as the server has said, or because it was never sent.
    pub refused: u64,
    /// Sent, and not answered.
    pub unknown: u64,
    /// The first that were not stored.
    pub first: Vec<Refused>,
    /// Why a connection failed, if one did.
    pub error: Option<Error>,
}

impl Report {
    /// Everything was carried out.
    pub fn is_clean(&self) -> bool {
        self.sent == self.stored
    }
}

/// A group that is collected for one lane.
#[derive(Debug, Default)]
struct Open {
    lane: Option<Arc<Lane>>,
    bytes: Vec<u8>,
    keys: Vec<Vec<u8>>,
    kind: Option<Kind>,
    /// Of the first; the others count on.
    opaque: Option<u32>,
}

/// A group that was sent.
#[derive(Debug)]
struct Sent {
    server: usize,
    lane: Arc<Lane>,
    ticket: lane::Ticket,
    keys: Vec<Vec<u8>>,
    bytes: usize,
    kind: Kind,
    opaque: u32,
    quiet: bool,
}

/// Writes that are not waited for one by one. For one thread; dropped without [`Stream::barrier`] it sends what it
/// has, and what became of that is counted as [`crate::Counters::unreported`].
#[derive(Debug)]
#[must_use = "a stream says what became of its writes after its barrier"]
pub struct Stream {
    client: Client,
    window: Window,
    quiet: bool,
    /// Two for each server: for most values, and for large ones.
    open: Vec<Open>,
    sent: VecDeque<Sent>,
    waiting: Window,
    opaque: u32,
    report: Report,
}

impl Stream {
    pub(crate) fn new(client: Client, window: Window, quiet: bool) -> Stream {
        let lanes = client.fleet().len() * 2;
        let in_flight = client.fleet().config.in_flight;
        Stream {
            window: Window { requests: window.requests.clamp(1, in_flight), bytes: window.bytes },
            client,
            quiet,
            open: (0..lanes).map(|_| Open::default()).collect(),
            sent: VecDeque::new(),
            waiting: Window { requests: 0, bytes: 0 },
            opaque: 0,
            report: Report::default(),
        }
    }

    /// Sends a set.
    ///
    /// # Errors
    /// [`Error::BadKey`], and then nothing is sent or counted.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl: Ttl) -> Result<(), Error> {
        self.store(key, Store { value, exptime: ttl.exptime(), ..Store::default() }, None)
    }

    /// Sends any store, with the token that the item must have. The item's new token is not told.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub fn store(&mut self, key: &[u8], store: Store<'_>, cas: Option<u64>) -> Result<(), Error> {
        self.send(key, Ask::Store(Store { want_cas: false, ..store }), cas, store.value.len())
    }

    /// Sends a deletion.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.remove(key, Delete::default(), None)
    }

    /// Sends any deletion, with the token that the item must have.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub fn remove(&mut self, key: &[u8], delete: Delete, cas: Option<u64>) -> Result<(), Error> {
        self.send(key, Ask::Delete(delete), cas, 0)
    }

    fn send(&mut self, key: &[u8], ask: Ask<'_>, cas: Option<u64>, value_bytes: usize) -> Result<(), Error> {
        let client = self.client.clone();
        let mut full = Vec::new();
        let (key, base64) = client.fleet().config.key(key, &mut full)?;
        let server = client.fleet().pick(key);
        let at = server * 2 + usize::from(value_bytes >= client.fleet().config.large_bytes);
        let request = Request { base64, cas, ..Request::new(ask, key) };
        self.report.sent += 1;
        let kind = request.kind();
        if self.open[at].kind.is_some_and(|open| open != kind) || !self.has_room(at) {
            self.flush(at);
        }
        let lane = match &self.open[at].lane {
            Some(lane) => Arc::clone(lane),
            None => match client.fleet().lane(server, at % 2 == 1, client.deadline()) {
                Ok(lane) => lane,
                Err(error) => {
                    self.refuse(key.to_vec(), error);
                    return Ok(());
                }
            },
        };
        let dialect = lane.dialect();
        if !request.fits(dialect) {
            self.refuse(key.to_vec(), Error::Unsupported);
            return Ok(());
        }
        let open = &mut self.open[at];
        let opaque = (dialect == Dialect::Meta).then(|| {
            self.opaque = self.opaque.wrapping_add(1);
            self.opaque
        });
        if open.keys.is_empty() {
            open.opaque = opaque;
        }
        let quiet = self.quiet && dialect == Dialect::Meta;
        Request { opaque, quiet, ..request }.write(dialect, &mut open.bytes);
        (open.lane, open.kind) = (Some(lane), Some(kind));
        open.keys.push(key.to_vec());
        if !self.has_room(at) {
            self.flush(at);
        }
        Ok(())
    }

    fn has_room(&self, at: usize) -> bool {
        let open = &self.open[at];
        let requests_max = GROUP_REQUESTS_MAX.min(self.window.requests);
        open.keys.len() < requests_max
            && open.bytes.len() < GROUP_BYTES_MAX
            && open.lane.as_ref().is_none_or(|lane| lane.is_alive())
    }

    /// Sends what was collected for a lane, when the window has room for it.
    fn flush(&mut self, at: usize) {
        let open = std::mem::take(&mut self.open[at]);
        let Open { lane: Some(lane), mut bytes, keys, kind: Some(kind), opaque } = open else { return };
        while !self.sent.is_empty()
            && (self.waiting.requests + keys.len() > self.window.requests
                || self.waiting.bytes + bytes.len() > self.window.bytes)
        {
            self.settle_oldest();
        }
        let quiet = self.quiet && lane.dialect() == Dialect::Meta;
        if quiet {
            Request::new(Ask::Barrier, b"").write(Dialect::Meta, &mut bytes);
        }
        let replies = if quiet { 1 } else { keys.len() as u32 };
        let group = Group {
            bytes: &bytes,
            kind: if quiet { Kind::Barrier } else { kind },
            replies,
            quiet,
            opaque: opaque.filter(|_| !quiet),
        };
        let deadline = self.client.deadline();
        let begun = lane.begin(deadline, Vec::new(), |pipe, op, now| {
            pipe.push_group(&group, Tag { op, item: 0 }, now, deadline)?;
            Ok(replies)
        });
        match begun {
            Ok(ticket) => {
                self.waiting.requests += keys.len();
                self.waiting.bytes += bytes.len();
                let (server, bytes) = (at / 2, bytes.len());
                let opaque = opaque.unwrap_or_default();
                self.sent.push_back(Sent { server, lane, ticket, keys, bytes, kind, opaque, quiet });
            }
            Err((error, _)) => {
                self.client.note(at / 2, &lane, &error);
                keys.into_iter().for_each(|key| self.refuse(key, error.with(Outcome::NotSent)));
            }
        }
    }

    fn refuse(&mut self, key: Vec<u8>, error: Error) {
        match error.outcome() {
            Outcome::Unknown => self.report.unknown += 1,
            Outcome::Answered | Outcome::NotSent => self.report.refused += 1,
        }
        if self.report.first.len() < FIRST_MAX {
            self.report.first.push(Refused { key, error });
        }
    }

    /// Waits for the oldest group and counts what became of it.
    fn settle_oldest(&mut self) {
        let Some(mut sent) = self.sent.pop_front() else { return };
        let Op { answers, error, not_sent, .. } = sent.lane.wait(&sent.ticket);
        self.waiting.requests -= sent.keys.len();
        self.waiting.bytes -= sent.bytes;
        let server = Arc::clone(self.client.fleet().name(sent.server));
        let total = sent.keys.len() as u64;
        let mut counted = 0;
        for answer in answers {
            let first = if sent.quiet { sent.opaque } else { 0 };
            let at = answer.item.wrapping_sub(first) as usize;
            let is_refusal = answer.refused;
            match settled(sent.kind, answer, &[], &server) {
                // The barrier of a quiet group: all that was not refused was carried out.
                Ok(_) if sent.quiet => {
                    self.report.stored += total - counted;
                    counted = total;
                }
                Ok(_) => {
                    self.report.stored += 1;
                    counted += 1;
                }
                // Of a quiet deletion: there was nothing to delete.
                Err(Error::Absent) if is_refusal && sent.kind == Kind::Delete => {}
                Err(error) => {
                    let key = sent.keys.get_mut(at).map(std::mem::take).unwrap_or_default();
                    self.refuse(key, error);
                    counted += 1;
                }
            }
        }
        if let Some(error) = error {
            self.client.note(sent.server, &sent.lane, &error);
            // A group is sent as one: none of it, or perhaps all. Replies come in the order of requests; of a quiet
            // group without its barrier nothing is known but what was refused.
            let outcome = if not_sent > 0 { Outcome::NotSent } else { Outcome::Unknown };
            let error = error.with(outcome);
            let first = if sent.quiet { 0 } else { counted as usize };
            let missing =
                sent.keys.drain(first..).filter(|key| !key.is_empty()).take((total - counted) as usize);
            for key in missing.collect::<Vec<_>>() {
                self.refuse(key, error.clone());
            }
            self.report.error.get_or_insert(error);
        }
    }

    /// Sends what is left and waits for all; says what became of everything since the last barrier.
    pub fn barrier(&mut self) -> Report {
        (0..self.open.len()).for_each(|at| self.flush(at));
        while !self.sent.is_empty() {
            self.settle_oldest();
        }
        let report = std::mem::take(&mut self.report);
        debug_assert_eq!(report.sent, report.stored + report.refused + report.unknown);
        report
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.report.sent > 0 {
            let report = self.barrier();
            self.client.shared.unreported.fetch_add(report.refused + report.unknown, Ordering::Relaxed);
        }
    }
}
