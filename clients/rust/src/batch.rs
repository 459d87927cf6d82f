//! Requests that are sent together and acknowledged together.

use crate::client::{Client, Meta, Reply, Stored, Value, settled};
use crate::error::{Error, Outcome};
use crate::lane::{self, Lane};
use crate::op::{Answer, Op};
use crate::pipe::Tag;
use crate::ttl::Ttl;
use crate::wire::{Ask, Count, Delete, Get, Request, Status, Store, Want};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A request of a batch: what it will be answered with.
#[derive(Debug)]
#[must_use = "a result is taken by its ticket"]
pub struct Ticket<T> {
    at: u32,
    of: PhantomData<T>,
}

/// A request, with its bytes in the batch's memory.
#[derive(Clone, Debug)]
struct Wanted {
    /// A store's value lies elsewhere.
    ask: Ask<'static>,
    cas: Option<u64>,
    key: Range<usize>,
    value: Range<usize>,
    base64: bool,
    server: usize,
    large: bool,
}

/// Requests that are sent together. After a run it is empty, and keeps its memory.
#[derive(Debug)]
pub struct Batch {
    client: Client,
    /// Keys and values.
    bytes: Vec<u8>,
    wanted: Vec<Wanted>,
    /// Requests whose key servers do not take: never sent.
    bad: Vec<u32>,
    results: Vec<Result<Answer, Error>>,
    values: Vec<u8>,
}

impl Batch {
    pub(crate) fn new(client: Client) -> Batch {
        Batch {
            client,
            bytes: Vec::new(),
            wanted: Vec::new(),
            bad: Vec::new(),
            results: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Asks for a value.
    pub fn get(&mut self, key: &[u8]) -> Ticket<Option<Value>> {
        self.add(key, Ask::Get(Get::default()), None)
    }

    /// Asks that a value is stored.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl: Ttl) -> Ticket<Stored> {
        self.add(key, Ask::Store(Store { value, exptime: ttl.exptime(), ..Store::default() }), None)
    }

    /// Asks that an item goes; false: there was none.
    pub fn delete(&mut self, key: &[u8]) -> Ticket<bool> {
        self.add(key, Ask::Delete(Delete::default()), None)
    }

    /// Adds to a number; none: there is no such key.
    pub fn incr(&mut self, key: &[u8], delta: u64) -> Ticket<Option<u64>> {
        self.add(key, Ask::Count(Count { delta, ..Count::default() }), None)
    }

    /// Any request of one key, with the token that the item must have: what bindings for other languages stand on. Its
    /// number, for [`Batch::reply`].
    pub fn request(&mut self, key: &[u8], ask: Ask<'_>, cas: Option<u64>) -> usize {
        let Ticket::<()> { at, .. } = self.add(key, ask, cas);
        at as usize
    }

    /// What the last run answered to the request of this number, counted from 0 in the order in which they were added, and
    /// the value; none if it had none.
    pub fn reply(&self, at: usize) -> Option<Result<(Reply, &[u8]), &Error>> {
        let result = self.results.get(at)?.as_ref();
        Some(result.map(|answer| (Reply::of(answer), &self.values[answer.value.clone()])))
    }

    /// How many requests it has.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// It has none.
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
            server: fleet.pick(&self.bytes[key.clone()]),
            value: key.end..self.bytes.len(),
            base64: base64 == Ok(true),
            large: value.len() >= fleet.config.large_bytes,
            key,
        });
        Ticket { at, of: PhantomData }
    }

    /// Sends all and waits for all. Each request has a result of its own.
    pub fn run(&mut self) -> Done<'_> {
        self.results.clear();
        self.values.clear();
        let deadline = self.client.deadline();
        let nothing = Err(Error::Closed);
        self.results.resize(self.wanted.len(), nothing);
        for &at in &self.bad {
            self.results[at as usize] = Err(Error::BadKey);
        }
        // All lanes have their requests before the first is waited for.
        let mut begun = Vec::new();
        let mut order: Vec<u32> = (0..self.wanted.len() as u32).filter(|at| !self.bad.contains(at)).collect();
        let path = |wanted: &[Wanted], at: u32| (wanted[at as usize].server, wanted[at as usize].large);
        order.sort_by_key(|&at| path(&self.wanted, at));
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let (server, large) = path(&self.wanted, first);
            let (mine, others) =
                rest.split_at(rest.partition_point(|&at| path(&self.wanted, at) == (server, large)));
            rest = others;
            match self.client.fleet().lane(server, large, deadline) {
                Ok(lane) => {
                    let dialect = lane.dialect();
                    let (fit, unfit): (Vec<u32>, Vec<u32>) =
                        mine.iter().partition(|&&at| self.wanted(at).fits(dialect));
                    self.tell(&unfit, &Error::Unsupported);
                    self.begin(&fit, server, lane, &mut begun, deadline);
                }
                Err(error) => self.tell(mine, &error),
            }
        }
        for (mine, server, lane, ticket) in begun {
            let op = lane.wait(&ticket);
            if let Some(error) = &op.error {
                self.client.note(server, &lane, error);
            }
            self.take(&mine, server, op);
        }
        self.bytes.clear();
        self.bad.clear();
        Done { batch: self }
    }

    fn wanted(&self, at: u32) -> Request<'_> {
        let wanted = &self.wanted[at as usize];
        let ask = wanted.ask.with_value(&self.bytes[wanted.value.clone()]);
        let key = &self.bytes[wanted.key.clone()];
        Request { base64: wanted.base64, cas: wanted.cas, ..Request::new(ask, key) }
    }

    /// Pushes what is for one lane, in parts that it has room for.
    fn begin(
        &mut self,
        mine: &[u32],
        server: usize,
        lane: Arc<Lane>,
        begun: &mut Vec<(Vec<u32>, usize, Arc<Lane>, lane::Ticket)>,
        deadline: std::time::Instant,
    ) {
        let part_max = self.client.fleet().config.in_flight;
        for part in mine.chunks(part_max) {
            let mut next = 0;
            let memory = std::mem::take(&mut self.values);
            let mut pushed = 0;
            let result = lane.begin(deadline, memory, |pipe, op, now| {
                // As many as there is room for at once; the rest begins again.
                while let Some(&at) = part.get(next) {
                    match pipe.push(&self.wanted(at), Tag { op, item: next as u32 }, now, deadline) {
                        Ok(()) => (next, pushed) = (next + 1, pushed + 1),
                        Err(full) if pushed == 0 => return Err(full),
                        Err(_) => break,
                    }
                }
                Ok(pushed)
            });
            match result {
                Ok(ticket) => {
                    begun.push((part[..next].to_vec(), server, Arc::clone(&lane), ticket));
                    if next < part.len() {
                        self.begin(&part[next..], server, Arc::clone(&lane), begun, deadline);
                    }
                }
                Err((error, memory)) => {
                    self.values = memory;
                    self.tell(part, &error);
                }
            }
        }
    }

    fn tell(&mut self, mine: &[u32], error: &Error) {
        for &at in mine {
            self.results[at as usize] = Err(error.with(Outcome::NotSent));
        }
    }

    fn take(&mut self, mine: &[u32], server: usize, op: Op) {
        let Op { answers, memory, error, .. } = op;
        let shift = self.values.len();
        for mut answer in answers {
            let at = mine[answer.item as usize];
            let request = self.wanted(at);
            let kind = request.kind();
            // Classic text tells a token that was not asked for.
            if matches!(request.ask, Ask::Get(get) if !get.want.has(Want::CAS)) {
                answer.cas = 0;
            }
            let value = &memory[answer.value.clone()];
            let result = settled(kind, answer, value, self.client.fleet().name(server));
            self.results[at as usize] = result.map(|answer| {
                let value = answer.value.start + shift..answer.value.end + shift;
                Answer { value, ..answer }
            });
        }
        if let Some(error) = error {
            for &at in mine {
                let result = &mut self.results[at as usize];
                if matches!(result, Err(Error::Closed)) {
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

/// The results of a batch, each taken by its ticket.
#[derive(Debug)]
pub struct Done<'b> {
    batch: &'b mut Batch,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.batch.wanted.clear();
    }
}

impl Done<'_> {
    /// The result of a request.
    ///
    /// # Errors
    /// The request's own.
    ///
    /// # Panics
    /// If the ticket is of another batch or an earlier run, and no request has its number.
    pub fn take<T: Taken>(&self, ticket: Ticket<T>) -> Result<T, Error> {
        let answer = self.batch.results[ticket.at as usize].as_ref().map_err(Error::clone)?;
        T::taken(answer, &self.batch.values[answer.value.clone()])
    }

    /// The bytes of a value, where they are; none if there is no such key.
    ///
    /// # Errors
    /// The request's own.
    ///
    /// # Panics
    /// As [`Done::take`].
    pub fn value(&self, ticket: &Ticket<Option<Value>>) -> Result<Option<(&[u8], Meta)>, Error> {
        let answer = self.batch.results[ticket.at as usize].as_ref().map_err(Error::clone)?;
        let found = answer.status == Status::Value;
        Ok(found.then(|| (&self.batch.values[answer.value.clone()], Meta::of(answer))))
    }
}

/// What a ticket is exchanged for.
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
