//! Requests that are sent together and acknowledged together.

use crate::client::Client;
use crate::error::{Error, Outcome};
use crate::failure::limited;
use crate::fleet::{Front, List, Server};
use crate::lane::Lane;
use crate::line::Line;
use crate::op::{Answer, Op};
use crate::pipe::{Full, Pipe, Tag};
use crate::reply::{Meta, Reply, Stored, Value, result_of};
use crate::ttl::Ttl;
use crate::wire::{Ask, Count, Delete, Dialect, Get, Request, Status, Store, Want};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The place of a request in a batch; exchanged for its result after a run.
#[derive(Debug)]
#[must_use = "a result is taken by its ticket"]
pub struct Ticket<T> {
    at: u32,
    of: PhantomData<T>,
}

/// A request. Its key and value lie in the batch's memory.
#[derive(Clone, Debug)]
struct Wanted {
    /// What it asks for, without a store's value.
    ask: Ask<'static>,
    cas: Option<u64>,
    key: Range<usize>,
    value: Range<usize>,
    base64: bool,
    /// The index of its lane.
    lane: usize,
    /// The index of its server in the run's list. If that server stands in for another: the longest time to live there.
    server: usize,
    ttl_max: Option<i64>,
}

/// Requests that are sent together. After a run it is empty, and keeps its memory.
#[derive(Debug)]
pub struct Batch<C: Front = Client> {
    client: C,
    /// Keys and values of all requests.
    bytes: Vec<u8>,
    wanted: Vec<Wanted>,
    /// Requests with keys that servers refuse. They are never sent.
    bad: Vec<u32>,
    results: Vec<Result<Answer, Error>>,
    values: Vec<u8>,
}

/// Requests for one lane.
#[derive(Debug)]
pub(crate) struct Path<L: Line> {
    pub server: Arc<Server<L>>,
    /// The index of the lane.
    pub at: usize,
    /// Their numbers in the batch.
    pub mine: Vec<u32>,
}

/// Requests that are still to be sent, by lane, the first in front.
pub(crate) type Paths<L> = VecDeque<Path<L>>;

/// A part of a run that was pushed to one lane: its requests, and the ticket to wait for them.
#[derive(Debug)]
pub(crate) struct Begun<L: Line> {
    pub mine: Vec<u32>,
    pub server: Arc<Server<L>>,
    pub lane: Arc<L>,
    pub ticket: L::Ticket,
}

impl<C: Front> Batch<C> {
    pub(crate) fn new(client: C) -> Batch<C> {
        Batch {
            client,
            bytes: Vec::new(),
            wanted: Vec::new(),
            bad: Vec::new(),
            results: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Adds a read.
    pub fn get(&mut self, key: &[u8]) -> Ticket<Option<Value>> {
        self.add(key, Ask::Get(Get::default()), None)
    }

    /// Adds a store.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl: Ttl) -> Ticket<Stored> {
        self.add(key, Ask::Store(Store { value, exptime: ttl.exptime(), ..Store::default() }), None)
    }

    /// Adds a deletion. Its result is false if there was no item.
    pub fn delete(&mut self, key: &[u8]) -> Ticket<bool> {
        self.add(key, Ask::Delete(Delete::default()), None)
    }

    /// Adds an addition to a number. Its result is `None` if there is no such key.
    pub fn incr(&mut self, key: &[u8], delta: u64) -> Ticket<Option<u64>> {
        self.add(key, Ask::Count(Count { delta, ..Count::default() }), None)
    }

    /// Adds any request of one key, with the token that the item must have: the base for bindings of other languages. Returns its
    /// number, for [`Batch::reply`].
    pub fn request(&mut self, key: &[u8], ask: Ask<'_>, cas: Option<u64>) -> usize {
        let Ticket::<()> { at, .. } = self.add(key, ask, cas);
        at as usize
    }

    /// What the last run gave for the request of this number, and its value, which is empty if it had none. Requests are numbered
    /// from 0 in the order in which they were added. `None` if there is no such number.
    pub fn reply(&self, at: usize) -> Option<Result<(Reply, &[u8]), &Error>> {
        let result = self.results.get(at)?.as_ref();
        Some(result.map(|answer| (Reply::of(answer), &self.values[answer.value.clone()])))
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether the batch has no requests.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    fn add<T>(&mut self, key: &[u8], ask: Ask<'_>, cas: Option<u64>) -> Ticket<T> {
        let at = self.wanted.len() as u32;
        let (ask, value) = ask.split();
        let begins = self.bytes.len();
        let fleet = self.client.fleet();
        self.bytes.extend_from_slice(&fleet.config.prefix);
        self.bytes.extend_from_slice(key);
        let key = begins..self.bytes.len();
        self.bytes.extend_from_slice(value);
        let base64 = fleet.config.as_base64(&self.bytes[key.clone()]);
        if base64.is_err() {
            self.bad.push(at);
        }
        self.wanted.push(Wanted {
            ask,
            cas,
            server: 0,
            ttl_max: None,
            value: key.end..self.bytes.len(),
            base64: base64 == Ok(true),
            lane: fleet.lane_of(&self.bytes[key.clone()], Some(value)),
            key,
        });
        Ticket { at, of: PhantomData }
    }

    pub(crate) fn client(&self) -> &C {
        &self.client
    }

    /// Begins a run: the servers of this moment, and the requests by lane, without those that are never sent.
    pub(crate) fn paths(&mut self) -> (Arc<List<C::Line>>, Paths<C::Line>) {
        self.results.clear();
        self.values.clear();
        self.results.resize(self.wanted.len(), Err(Error::Closed(Outcome::NotSent)));
        for &at in &self.bad {
            self.results[at as usize] = Err(Error::BadKey);
        }
        let list = self.client.fleet().list();
        for wanted in &mut self.wanted {
            let target = self.client.fleet().target(&list, &self.bytes[wanted.key.clone()]);
            (wanted.server, wanted.ttl_max) = (target.server, target.ttl_max);
        }
        let order = (0..self.wanted.len() as u32).filter(|at| !self.bad.contains(at)).collect();
        let paths = self.grouped(&list, order).into();
        (list, paths)
    }

    /// Groups requests by lane.
    fn grouped(&self, list: &List<C::Line>, mut order: Vec<u32>) -> Vec<Path<C::Line>> {
        let path = |at: u32| (self.wanted[at as usize].server, self.wanted[at as usize].lane);
        order.sort_by_key(|&at| path(at));
        let paths = order.chunk_by(|&a, &b| path(a) == path(b));
        paths
            .map(|mine| {
                let (server, at) = path(mine[0]);
                Path { server: Arc::clone(list.server(server)), at, mine: mine.to_vec() }
            })
            .collect()
    }

    /// Groups requests that have no connection for the servers that stand in for theirs, if theirs is down; requests without such
    /// a server fail.
    pub(crate) fn instead(
        &mut self,
        list: &List<C::Line>,
        mine: &[u32],
        error: &Error,
    ) -> Vec<Path<C::Line>> {
        let mut moved = Vec::new();
        for &at in mine {
            let wanted = &mut self.wanted[at as usize];
            let is_down = matches!(error, Error::Down(..)) && wanted.ttl_max.is_none();
            let other = if is_down {
                self.client.fleet().instead(list, &self.bytes[wanted.key.clone()])
            } else {
                None
            };
            match other {
                Some(other) => {
                    (wanted.server, wanted.ttl_max) = (other.server, other.ttl_max);
                    moved.push(at);
                }
                None => self.tell(&[at], error),
            }
        }
        self.grouped(list, moved)
    }

    /// The requests that the dialect can express. The others fail with [`Error::Unsupported`].
    pub(crate) fn fitting(&mut self, mine: &[u32], dialect: Dialect) -> Vec<u32> {
        let (fit, unfit): (Vec<u32>, Vec<u32>) = mine.iter().partition(|&&at| self.wanted(at).fits(dialect));
        self.tell(&unfit, &Error::Unsupported);
        fit
    }

    /// The requests of `mine` that one push takes at most.
    pub(crate) fn part<'m>(&self, mine: &'m [u32]) -> &'m [u32] {
        &mine[..mine.len().min(self.client.fleet().config.in_flight)]
    }

    /// Pushes as many requests of a part as there is room for, and returns their number.
    ///
    /// # Errors
    /// There is room for none.
    pub(crate) fn push(
        &self,
        part: &[u32],
        pipe: &mut Pipe,
        op: u32,
        now: Instant,
        deadline: Instant,
    ) -> Result<u32, Full> {
        let mut pushed = 0;
        while let Some(&at) = part.get(pushed as usize) {
            match pipe.push(&self.wanted(at), Tag { op, item: pushed }, now, deadline) {
                Ok(()) => pushed += 1,
                Err(full) if pushed == 0 => return Err(full),
                Err(_) => break,
            }
        }
        Ok(pushed)
    }

    /// Memory for the values of the next part.
    pub(crate) fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.values
    }

    fn wanted(&self, at: u32) -> Request<'_> {
        let wanted = &self.wanted[at as usize];
        let ask = limited(wanted.ask, wanted.ttl_max).with_value(&self.bytes[wanted.value.clone()]);
        let key = &self.bytes[wanted.key.clone()];
        Request { base64: wanted.base64, cas: wanted.cas, ..Request::new(ask, key) }
    }

    /// Fails these requests: they were not sent.
    pub(crate) fn tell(&mut self, mine: &[u32], error: &Error) {
        for &at in mine {
            self.results[at as usize] = Err(error.with(Outcome::NotSent));
        }
    }

    /// Reports the run, which began then, to the observer.
    pub(crate) fn ended(&self, began: Option<Instant>) {
        self.client.fleet().asked_for_all(began, &self.results);
    }

    /// Takes the results of a part.
    pub(crate) fn take<S>(&mut self, mine: &[u32], server: &Arc<str>, op: Op<S>) {
        let Op { answers, memory, error, .. } = op;
        let shift = self.values.len();
        for mut answer in answers {
            let at = mine[answer.item as usize];
            let request = self.wanted(at);
            let kind = request.kind();
            // Classic text sends a token that was not asked for.
            if matches!(request.ask, Ask::Get(get) if !get.want.has(Want::CAS)) {
                answer.cas = 0;
            }
            let value = &memory[answer.value.clone()];
            let result = result_of(kind, answer, value, server);
            self.results[at as usize] = result.map(|answer| {
                let value = answer.value.start + shift..answer.value.end + shift;
                Answer { value, ..answer }
            });
        }
        if let Some(error) = error {
            for &at in mine {
                let result = &mut self.results[at as usize];
                if matches!(result, Err(Error::Closed(_))) {
                    *result = Err(error.clone());
                }
            }
        }
        if shift == 0 {
            self.values = memory;
        } else {
            self.values.extend_from_slice(&memory);
        }
    }
}

impl Client {
    /// Begins a batch: requests that are sent together and acknowledged together.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }
}

impl Batch {
    /// Sends all requests and waits for all replies. Each request has its own result.
    pub fn run(&mut self) -> Done<'_> {
        let (deadline, began) = (self.client().deadline(), self.client().fleet().begins());
        let done = Done::begin(self);
        let batch = &mut *done.batch;
        // All lanes get their requests before the first is waited for.
        let mut begun = Vec::new();
        let (list, mut paths) = batch.paths();
        while let Some(Path { server, at, mine }) = paths.pop_front() {
            match batch.client().fleet().lane(&server, at, deadline) {
                Ok(lane) => batch.begin(&server, &mine, &lane, deadline, &mut begun),
                Err(error) => paths.extend(batch.instead(&list, &mine, &error)),
            }
        }
        for Begun { mine, server, lane, ticket } in begun {
            let op = lane.wait(&ticket);
            if let Some(error) = &op.error {
                batch.client().fleet().note(&server, error);
            }
            batch.take(&mine, &server.name, op);
        }
        batch.ended(began);
        done
    }

    /// Pushes the requests of one lane, in parts for which it has room.
    fn begin(
        &mut self,
        server: &Arc<Server<Lane>>,
        mine: &[u32],
        lane: &Arc<Lane>,
        deadline: Instant,
        begun: &mut Vec<Begun<Lane>>,
    ) {
        let mine = self.fitting(mine, lane.dialect());
        let mut rest = mine.as_slice();
        while !rest.is_empty() {
            let (part, mut pushed) = (self.part(rest), 0);
            let memory = std::mem::take(self.memory());
            let result = lane.begin(deadline, memory, |pipe, op, now| {
                pushed = self.push(part, pipe, op, now, deadline)?;
                Ok(pushed)
            });
            match result {
                Ok(ticket) => {
                    let (pushed, others) = rest.split_at(pushed as usize);
                    let (mine, server, lane) = (pushed.to_vec(), Arc::clone(server), Arc::clone(lane));
                    begun.push(Begun { mine, server, lane, ticket });
                    rest = others;
                }
                Err((error, memory)) => {
                    *self.memory() = memory;
                    return self.tell(rest, &error);
                }
            }
        }
    }
}

/// The results of a batch; each is taken by its ticket.
#[derive(Debug)]
pub struct Done<'b, C: Front = Client> {
    pub(crate) batch: &'b mut Batch<C>,
}

impl<'b, C: Front> Done<'b, C> {
    /// Begins a run. When it ends, in whatever way, the batch is empty.
    pub(crate) fn begin(batch: &'b mut Batch<C>) -> Done<'b, C> {
        Done { batch }
    }
}

impl<C: Front> Drop for Done<'_, C> {
    fn drop(&mut self) {
        self.batch.wanted.clear();
        self.batch.bytes.clear();
        self.batch.bad.clear();
    }
}

impl<C: Front> Done<'_, C> {
    /// The result of one request.
    ///
    /// # Errors
    /// The error of that request.
    ///
    /// # Panics
    /// If the ticket is of another batch or an earlier run, and this run has no request with its number.
    pub fn take<T: Taken>(&self, ticket: Ticket<T>) -> Result<T, Error> {
        let answer = self.batch.results[ticket.at as usize].as_ref().map_err(Error::clone)?;
        T::taken(answer, &self.batch.values[answer.value.clone()])
    }

    /// The bytes of a value, borrowed; `None` if there is no such key.
    ///
    /// # Errors
    /// The error of that request.
    ///
    /// # Panics
    /// As [`Done::take`].
    pub fn value(&self, ticket: &Ticket<Option<Value>>) -> Result<Option<(&[u8], Meta)>, Error> {
        let answer = self.batch.results[ticket.at as usize].as_ref().map_err(Error::clone)?;
        let found = answer.status == Status::Value;
        Ok(found.then(|| (&self.batch.values[answer.value.clone()], Meta::of(answer))))
    }
}

/// A result that a ticket can be exchanged for.
pub trait Taken: Sized + sealed::Sealed {
    #[doc(hidden)]
    fn taken(answer: &Answer, value: &[u8]) -> Result<Self, Error>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for Option<super::Value> {}
    impl Sealed for super::Stored {}
    impl Sealed for bool {}
    impl Sealed for Option<u64> {}
}

impl Taken for Option<Value> {
    fn taken(answer: &Answer, value: &[u8]) -> Result<Self, Error> {
        let found = answer.status == Status::Value;
        Ok(found.then(|| Value { bytes: value.to_vec(), meta: Meta::of(answer) }))
    }
}

impl Taken for Stored {
    fn taken(answer: &Answer, _: &[u8]) -> Result<Self, Error> {
        Ok(Stored { cas: answer.cas })
    }
}

impl Taken for bool {
    fn taken(answer: &Answer, _: &[u8]) -> Result<Self, Error> {
        Ok(answer.status != Status::Absent)
    }
}

impl Taken for Option<u64> {
    fn taken(answer: &Answer, _: &[u8]) -> Result<Self, Error> {
        Ok(match answer.status {
            Status::Number(number) => Some(number),
            _ => None,
        })
    }
}
