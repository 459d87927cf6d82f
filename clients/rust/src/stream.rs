//! Writes that are not waited for one by one: a barrier reports their results.
//!
//! ```text
//! sent = stored + refused + unknown
//! ```
//!
//! Requests of one kind for one server are collected, up to 64 or 16 KiB, and sent as a group. Of a quiet group the server
//! answers only the refusals and the barrier behind it.

use crate::client::Client;
use crate::error::{Error, Outcome};
use crate::failure::limited;
use crate::fleet::{Front, List, Server};
use crate::line::Line;
use crate::op::Op;
use crate::pipe::{Full, Group, Pipe, Tag};
use crate::reply::result_of;
use crate::ttl::Ttl;
use crate::wire::{Ask, Delete, Dialect, Kind, Request, Store};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Most requests of a group, and most bytes.
const GROUP_REQUESTS_MAX: usize = 64;
const GROUP_BYTES_MAX: usize = 16 << 10;
/// Refusals that a report names.
const FIRST_MAX: usize = 16;

/// How much a stream may have sent without an answer.
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

/// A request that was not carried out, or whose result is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its key; empty where the server's answer does not say which request it was.
    pub key: Vec<u8>,
    /// Why.
    pub error: Error,
}

/// The results of everything that was sent since the last barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it says what was not stored"]
pub struct Report {
    /// Stored, refused and unknown together.
    pub sent: u64,
    /// Carried out, as the server has said. A deletion of an item that does not exist counts here.
    pub stored: u64,
    /// Not applied: as the server has said, or because it was never sent.
    pub refused: u64,
    /// Sent, and not answered.
    pub unknown: u64,
    /// The first requests that were not stored.
    pub first: Vec<Refused>,
    /// Why a connection failed, if one did.
    pub error: Option<Error>,
}

impl Report {
    /// Whether everything was carried out.
    pub fn is_clean(&self) -> bool {
        self.sent == self.stored
    }
}

/// A group that is being collected for one lane.
#[derive(Debug)]
struct Open<L> {
    lane: Option<Arc<L>>,
    bytes: Vec<u8>,
    keys: Vec<Vec<u8>>,
    kind: Option<Kind>,
    /// The opaque of the first request; the others count up from it.
    opaque: Option<u32>,
    /// The group is complete: a quiet one has its barrier.
    is_sealed: bool,
}

impl<L> Default for Open<L> {
    fn default() -> Open<L> {
        let (bytes, keys) = (Vec::new(), Vec::new());
        Open { lane: None, bytes, keys, kind: None, opaque: None, is_sealed: false }
    }
}

/// A group that was sent.
#[derive(Debug)]
pub(crate) struct Sent<L: Line> {
    pub lane: Arc<L>,
    pub ticket: L::Ticket,
    server: Arc<Server<L>>,
    keys: Vec<Vec<u8>>,
    bytes: usize,
    kind: Kind,
    opaque: u32,
    quiet: bool,
}

/// A write on its way into a group.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub server: usize,
    /// The index of its lane.
    pub lane: usize,
    request: Request<'a>,
    stands_in: bool,
}

impl<'a> Write<'a> {
    /// A write of this client to one of these servers. The key with its prefix is assembled in `full`.
    ///
    /// # Errors
    /// [`Error::BadKey`].
    pub fn new<C: Front>(
        client: &C,
        list: &List<C::Line>,
        key: &'a [u8],
        full: &'a mut Vec<u8>,
        ask: Ask<'a>,
        cas: Option<u64>,
    ) -> Result<Write<'a>, Error> {
        let config = &client.fleet().config;
        let (key, base64) = config.key(key, full)?;
        let target = client.fleet().target(list, key);
        let request = Request { base64, cas, ..Request::new(limited(ask, target.ttl_max), key) };
        let lane = client.fleet().lane_of(key, request.value());
        Ok(Write { server: target.server, lane, request, stands_in: target.ttl_max.is_some() })
    }

    /// The write's server was found to be down: moves on to the server that stands in for it; false if there is none.
    pub fn moves_on<C: Front>(&mut self, client: &C, list: &List<C::Line>) -> bool {
        match client.fleet().instead(list, self.request.key) {
            Some(other) if !self.stands_in && other.server != self.server => {
                (self.server, self.stands_in) = (other.server, true);
                self.request.ask = limited(self.request.ask, other.ttl_max);
                true
            }
            _ => false,
        }
    }
}

/// A client that has streams.
pub trait Streams: Front {
    /// Sends what a dropped stream has collected, and counts the writes whose results can be got no more.
    fn leave(stream: &mut Stream<Self>);
}

/// Writes that are not waited for one by one. It is for one thread, or task. Dropped without a barrier, it sends what it has
/// collected, and counts writes that were not stored, or may not have been, as [`crate::Counters::unreported`].
#[derive(Debug)]
#[must_use = "a stream says what became of its writes after its barrier"]
pub struct Stream<C: Streams = Client> {
    client: C,
    window: Window,
    quiet: bool,
    /// The list of servers to which it writes, and the list's number.
    list: Arc<List<C::Line>>,
    version: u64,
    /// A group for each lane of each server.
    open: Vec<Open<C::Line>>,
    sent: VecDeque<Sent<C::Line>>,
    waiting: Window,
    opaque: u32,
    report: Report,
    /// The stream was dropped.
    #[cfg(feature = "tokio")]
    is_left: bool,
}

impl<C: Streams> Stream<C> {
    pub(crate) fn new(client: C, window: Window, quiet: bool) -> Stream<C> {
        // If the list is newer than its number, it is simply taken again.
        let (version, list) = (client.fleet().version(), client.fleet().list());
        let lanes = list.all().len() * client.fleet().lanes();
        let in_flight = client.fleet().config.in_flight;
        Stream {
            window: Window { requests: window.requests.clamp(1, in_flight), bytes: window.bytes },
            client,
            quiet,
            list,
            version,
            open: (0..lanes).map(|_| Open::default()).collect(),
            sent: VecDeque::new(),
            waiting: Window { requests: 0, bytes: 0 },
            opaque: 0,
            report: Report::default(),
            #[cfg(feature = "tokio")]
            is_left: false,
        }
    }

    pub(crate) fn client(&self) -> &C {
        &self.client
    }

    /// The servers to which it writes.
    pub(crate) fn list(&self) -> &Arc<List<C::Line>> {
        &self.list
    }

    /// Whether the list of servers has changed: then send what was collected, and call [`Stream::renew`].
    pub(crate) fn is_old(&self) -> bool {
        self.version != self.client.fleet().version()
    }

    /// Takes the present list of servers. Nothing may be collected.
    pub(crate) fn renew(&mut self) {
        (self.version, self.list) = (self.client.fleet().version(), self.client.fleet().list());
        self.open.resize_with(self.list.all().len() * self.client.fleet().lanes(), Open::default);
    }

    /// The index of a write's group.
    pub(crate) fn at(&self, write: &Write<'_>) -> usize {
        write.server * self.client.fleet().lanes() + write.lane
    }

    /// Whether this write's group has to be sent before it can take the write.
    pub(crate) fn is_in_the_way_of(&self, write: &Write<'_>) -> bool {
        let at = self.at(write);
        self.open[at].kind.is_some_and(|kind| kind != write.request.kind()) || !self.has_room(at)
    }

    /// The lane of a group that has begun.
    pub(crate) fn lane(&self, at: usize) -> Option<Arc<C::Line>> {
        self.open[at].lane.clone()
    }

    /// Counts a write, and collects or refuses it; true if its group has to be sent.
    pub(crate) fn add(&mut self, write: &Write<'_>, lane: Result<Arc<C::Line>, Error>) -> bool {
        let Write { request, .. } = write;
        self.report.sent += 1;
        let at = self.at(write);
        let lane = match lane {
            Ok(lane) if request.fits(lane.dialect()) => lane,
            Ok(_) => {
                self.refuse(request.key.to_vec(), Error::Unsupported);
                return false;
            }
            Err(error) => {
                self.refuse(request.key.to_vec(), error);
                return false;
            }
        };
        let dialect = lane.dialect();
        let open = &mut self.open[at];
        if open.keys.is_empty() && dialect == Dialect::Meta {
            // The opaques of a group count up from its first, whatever other groups collect meanwhile.
            open.opaque = Some(self.opaque.wrapping_add(1));
            self.opaque = self.opaque.wrapping_add(GROUP_REQUESTS_MAX as u32);
        }
        let opaque = open.opaque.map(|first| first.wrapping_add(open.keys.len() as u32));
        let quiet = self.quiet && dialect == Dialect::Meta;
        Request { opaque, quiet, ..*request }.write(dialect, &mut open.bytes);
        (open.lane, open.kind) = (Some(lane), Some(request.kind()));
        open.keys.push(request.key.to_vec());
        !self.has_room(at)
    }

    fn has_room(&self, at: usize) -> bool {
        let open = &self.open[at];
        let requests_max = GROUP_REQUESTS_MAX.min(self.window.requests);
        open.keys.len() < requests_max
            && open.bytes.len() < GROUP_BYTES_MAX
            && !open.is_sealed
            && open.lane.as_ref().is_none_or(|lane| lane.is_alive())
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.open.len()
    }

    /// Whether the window has no room for this group: then the oldest has to be answered first.
    pub(crate) fn is_too_much(&self, at: usize) -> bool {
        let open = &self.open[at];
        !self.sent.is_empty()
            && (self.waiting.requests + open.keys.len() > self.window.requests
                || self.waiting.bytes + open.bytes.len() > self.window.bytes)
    }

    /// Completes a group; returns its lane, if there is a group.
    pub(crate) fn seal(&mut self, at: usize) -> Option<Arc<C::Line>> {
        let open = &mut self.open[at];
        let lane = open.lane.clone()?;
        if self.quiet && lane.dialect() == Dialect::Meta && !open.is_sealed {
            Request::new(Ask::Barrier, b"").write(Dialect::Meta, &mut open.bytes);
        }
        open.is_sealed = true;
        Some(lane)
    }

    /// Pushes a complete group, and returns how many replies are owed.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn push(
        &self,
        at: usize,
        pipe: &mut Pipe,
        op: u32,
        now: Instant,
        deadline: Instant,
    ) -> Result<u32, Full> {
        let open = &self.open[at];
        let quiet = self.quiet && pipe.dialect() == Dialect::Meta;
        let replies = if quiet { 1 } else { open.keys.len() as u32 };
        let kind = open.kind.expect("a group has a kind");
        let group = Group {
            bytes: &open.bytes,
            kind: if quiet { Kind::Barrier } else { kind },
            replies,
            quiet,
            opaque: open.opaque.filter(|_| !quiet),
        };
        pipe.push_group(&group, Tag { op, item: 0 }, now, deadline)?;
        Ok(replies)
    }

    /// Notes that a group was sent, with the ticket to wait for it, or why it was not sent.
    pub(crate) fn pushed(&mut self, at: usize, begun: Result<<C::Line as Line>::Ticket, Error>) {
        let Open { lane: Some(lane), bytes, keys, kind: Some(kind), opaque, .. } =
            std::mem::take(&mut self.open[at])
        else {
            unreachable!("only what was collected is pushed");
        };
        let server = Arc::clone(self.list.server(at / self.client.fleet().lanes()));
        let bytes = bytes.len();
        match begun {
            Ok(ticket) => {
                self.waiting.requests += keys.len();
                self.waiting.bytes += bytes;
                let quiet = self.quiet && lane.dialect() == Dialect::Meta;
                let opaque = opaque.unwrap_or_default();
                self.sent.push_back(Sent { server, lane, ticket, keys, bytes, kind, opaque, quiet });
            }
            Err(error) => {
                self.client.fleet().note(&server, &error);
                keys.into_iter().for_each(|key| self.refuse(key, error.with(Outcome::NotSent)));
            }
        }
    }

    /// The oldest unanswered group.
    pub(crate) fn oldest(&mut self) -> Option<&mut Sent<C::Line>> {
        self.sent.front_mut()
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

    /// Counts the results of the oldest group.
    pub(crate) fn count_results<S>(&mut self, op: Op<S>) {
        let Some(mut sent) = self.sent.pop_front() else { return };
        let Op { answers, error, not_sent, .. } = op;
        self.waiting.requests -= sent.keys.len();
        self.waiting.bytes -= sent.bytes;
        let server = Arc::clone(&sent.server.name);
        let total = sent.keys.len() as u64;
        let mut counted = 0;
        for answer in answers {
            let first = if sent.quiet { sent.opaque } else { 0 };
            let at = answer.item.wrapping_sub(first) as usize;
            let is_refusal = answer.refused;
            match result_of(sent.kind, answer, &[], &server) {
                // The barrier of a quiet group: everything that was not refused was carried out.
                Ok(_) if sent.quiet => {
                    self.report.stored += total - counted;
                    counted = total;
                }
                Ok(_) => {
                    self.report.stored += 1;
                    counted += 1;
                }
                // A quiet deletion: the item did not exist.
                Err(Error::Absent) if is_refusal && sent.kind == Kind::Delete => {}
                Err(error) => {
                    let key = sent.keys.get_mut(at).map(std::mem::take).unwrap_or_default();
                    self.refuse(key, error);
                    counted += 1;
                }
            }
        }
        if let Some(error) = error {
            self.client.fleet().note(&sent.server, &error);
            // A group is sent as one: none of it, or perhaps all. Replies come in the order of requests. Without its barrier,
            // only the refusals of a quiet group are known.
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

    /// The results of everything since the last barrier, when all is answered.
    pub(crate) fn reported(&mut self) -> Report {
        let report = std::mem::take(&mut self.report);
        debug_assert_eq!(report.sent, report.stored + report.refused + report.unknown);
        report
    }

    /// Whether there are writes whose results were not reported.
    pub(crate) fn is_unreported(&self) -> bool {
        self.report.sent > 0
    }

    /// Counts writes whose results can be got no more.
    pub(crate) fn leave_unreported(&mut self, writes: u64) {
        self.client.shared().unreported.fetch_add(writes, Ordering::Relaxed);
        self.report = Report::default();
    }

    /// Writes that are not known to be stored.
    #[cfg(feature = "tokio")]
    pub(crate) fn unconfirmed(&self) -> u64 {
        self.report.sent - self.report.stored
    }

    /// Moves everything into another stream that counts as dropped; `None` if this one is such a stream.
    #[cfg(feature = "tokio")]
    pub(crate) fn hand_on(&mut self) -> Option<Stream<C>> {
        if self.is_left {
            return None;
        }
        let mut rest = Stream::new(self.client.clone(), self.window, self.quiet);
        std::mem::swap(self, &mut rest);
        rest.is_left = true;
        Some(rest)
    }
}

impl Client {
    /// Begins a stream: writes that are sent without waiting, and acknowledged later.
    pub fn stream(&self, window: Window) -> Stream {
        Stream::new(self.clone(), window, false)
    }

    /// Begins a stream of which the server answers only the writes that it refuses. With a server that speaks classic text, this
    /// is a [`Client::stream`].
    pub fn quiet(&self) -> Stream {
        self.quiet_within(Window::default())
    }

    /// [`Client::quiet`] with a window of its own.
    pub fn quiet_within(&self, window: Window) -> Stream {
        Stream::new(self.clone(), window, true)
    }
}

impl Streams for Client {
    fn leave(stream: &mut Stream) {
        let report = stream.barrier();
        stream.leave_unreported(report.refused + report.unknown);
    }
}

impl Stream {
    /// Sends a set.
    ///
    /// # Errors
    /// [`Error::BadKey`], and then nothing is sent or counted.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl: Ttl) -> Result<(), Error> {
        self.store(key, Store { value, exptime: ttl.exptime(), ..Store::default() }, None)
    }

    /// Sends any store, with the token that the item must have. The item's new token is not reported.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub fn store(&mut self, key: &[u8], store: Store<'_>, cas: Option<u64>) -> Result<(), Error> {
        self.send(key, Ask::Store(Store { want_cas: false, ..store }), cas)
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
        self.send(key, Ask::Delete(delete), cas)
    }

    fn send(&mut self, key: &[u8], ask: Ask<'_>, cas: Option<u64>) -> Result<(), Error> {
        let (client, mut full) = (self.client().clone(), Vec::new());
        if self.is_old() {
            (0..self.groups()).for_each(|at| self.flush(at));
            self.renew();
        }
        let list = Arc::clone(self.list());
        let mut write = Write::new(&client, &list, key, &mut full, ask, cas)?;
        loop {
            let at = self.at(&write);
            if self.is_in_the_way_of(&write) {
                self.flush(at);
            }
            let lane = match self.lane(at) {
                Some(lane) => Ok(lane),
                None => client.fleet().lane(list.server(write.server), write.lane, client.deadline()),
            };
            if matches!(lane, Err(Error::Down(..))) && write.moves_on(&client, &list) {
                continue;
            }
            if self.add(&write, lane) {
                self.flush(at);
            }
            return Ok(());
        }
    }

    /// Sends what was collected for a lane, as soon as the window has room for it.
    fn flush(&mut self, at: usize) {
        let Some(lane) = self.seal(at) else { return };
        while self.is_too_much(at) {
            self.finish_oldest();
        }
        let deadline = self.client().deadline();
        let push = |pipe: &mut Pipe, op, now| self.push(at, pipe, op, now, deadline);
        let begun = lane.begin(deadline, Vec::new(), push).map_err(|(error, _)| error);
        self.pushed(at, begun);
    }

    /// Waits for the oldest group and counts its results.
    fn finish_oldest(&mut self) {
        if let Some(op) = self.oldest().map(|Sent { lane, ticket, .. }| lane.wait(ticket)) {
            self.count_results(op);
        }
    }

    /// Sends what is left, waits for all replies, and reports the results of everything since the last barrier.
    pub fn barrier(&mut self) -> Report {
        (0..self.groups()).for_each(|at| self.flush(at));
        while self.oldest().is_some() {
            self.finish_oldest();
        }
        self.reported()
    }
}

impl<C: Streams> Drop for Stream<C> {
    fn drop(&mut self) {
        if self.is_unreported() {
            C::leave(self);
        }
    }
}
