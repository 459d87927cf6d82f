//! The verbs.

use crate::batch::Batch;
use crate::config::{Builder, Config};
use crate::error::{Error, Outcome};
use crate::fleet::Fleet;
use crate::lane::Lane;
use crate::op::{Answer, Op};
use crate::pipe::Tag;
use crate::socket::OpenSocket;
use crate::stream::{Stream, Window};
use crate::ttl::Ttl;
use crate::wire::{self, Ask, Count, Get, Kind, Marks, Mode, Refusal, Request, Status, Store, Want, counter};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts of an update.
const ATTEMPTS_MAX: u32 = 16;
/// The longest pause between two of them, first and last.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];

/// What is known of an item beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The client flags.
    pub flags: u32,
    /// The token for compare-and-swap, if it was asked for.
    pub cas: u64,
    /// The time that it has left, if that was asked for; none: for ever.
    pub ttl: Option<Duration>,
    /// How long its value is, if that was asked for.
    pub size: u64,
    /// When it was read before, if that was asked for.
    pub last_access: Duration,
    /// Stale, won, pending, hit before.
    pub marks: Marks,
}

impl Meta {
    pub(crate) fn of(answer: &Answer) -> Meta {
        Meta {
            flags: answer.flags,
            cas: answer.cas,
            ttl: u64::try_from(answer.ttl).ok().map(Duration::from_secs),
            size: answer.size,
            last_access: Duration::from_secs(answer.last_access as u64),
            marks: answer.marks,
        }
    }
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What else is known.
    pub meta: Meta,
}

/// A write happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The item's token, if it was asked for.
    pub cas: u64,
}

/// What a request without a type of its own was answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// False for a read, a deletion, a touch or a count of what is not there.
    pub found: bool,
    /// The number, of a count.
    pub number: u64,
    /// What is known of the item.
    pub meta: Meta,
}

impl Reply {
    pub(crate) fn of(answer: &Answer) -> Reply {
        let number = match answer.status {
            Status::Number(number) => number,
            _ => 0,
        };
        Reply { found: answer.status != Status::Absent, number, meta: Meta::of(answer) }
    }
}

/// What a client's connections have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were pushed.
    pub requests: u64,
    /// System calls that sent.
    pub writes: u64,
    /// System calls that received.
    pub reads: u64,
    /// Requests that were not answered in time.
    pub overdue: u64,
    /// Connections that were tried.
    pub dials: u64,
    /// Writes of streams that ended without a barrier, of which nothing is known.
    pub unreported: u64,
}

/// A client of one or several servers, for all threads.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub fleet: Fleet,
    pub unreported: std::sync::atomic::AtomicU64,
}

impl Client {
    /// Begins to say how a client is to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(config: Config) -> Result<Client, Error> {
        let shared = Shared { fleet: Fleet::new(config)?, unreported: Default::default() };
        Ok(Client { shared: Arc::new(shared) })
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.shared.fleet
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.fleet().config.timeout
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The caller's, the server's, or the network's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        let mut bytes = Vec::new();
        let meta = self.get_into(key, &mut bytes)?;
        Ok(meta.map(|meta| Value { bytes, meta }))
    }

    /// Appends the value of a key to `buffer`; none, and nothing appended, if there is none. Allocates nothing if the
    /// buffer has room.
    ///
    /// # Errors
    /// As [`Client::get`]; nothing was appended.
    pub fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read(key, Get::default(), buffer)
    }

    /// [`Client::get_into`] that also asks for this.
    ///
    /// # Errors
    /// As [`Client::get_into`].
    pub fn get_with(&self, key: &[u8], want: Want, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read(key, Get { want, ..Get::default() }, buffer)
    }

    /// [`Client::get_into`] that also gives the item a new time to live.
    ///
    /// # Errors
    /// As [`Client::get_into`].
    pub fn get_and_touch(&self, key: &[u8], ttl: Ttl, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read(key, Get { retime: Some(ttl.exptime()), ..Get::default() }, buffer)
    }

    fn read(&self, key: &[u8], get: Get, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        let answer = self.call(key, Ask::Get(get), None, Some(buffer))?;
        match answer.status {
            Status::Absent => Ok(None),
            _ => Ok(Some(Meta::of(&answer))),
        }
    }

    /// Begins a store; [`Set::send`] makes it.
    pub fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Set<'a> {
        Set { client: self, key, store: Store { value, ..Store::default() }, cas: None }
    }

    /// Begins a deletion; [`Delete::send`] makes it.
    pub fn delete<'a>(&'a self, key: &'a [u8]) -> Delete<'a> {
        Delete { client: self, key, cas: None, delete: wire::Delete::default() }
    }

    /// Gives an item a new time to live; false if there is none.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        Ok(self.call(key, Ask::Touch(ttl.exptime()), None, None)?.status != Status::Absent)
    }

    /// Begins to add to a number; [`Incr::send`] does it.
    pub fn incr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a> {
        Incr { client: self, key, count: Count { delta, ..Count::default() }, cas: None }
    }

    /// Begins to take from a number, which stops at 0; [`Incr::send`] does it.
    pub fn decr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a> {
        Incr { client: self, key, count: Count { delta, down: true, ..Count::default() }, cas: None }
    }

    /// Reads a value, gives it to `change`, and stores what that returns if nobody has changed it meanwhile; else again,
    /// up to 16 times, with pauses drawn from 50 µs to 10 ms. `change` gets none where there is no item, and leaves
    /// everything as it is by returning none.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] after the last attempt. Where [`Error::outcome`] is
    /// [`Outcome::Unknown`] the write may have been made: whether, cannot be found out afterwards.
    pub fn update(
        &self,
        key: &[u8],
        ttl: Ttl,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Stored>, Error> {
        let mut old = Vec::new();
        for attempt in 0..ATTEMPTS_MAX {
            old.clear();
            let meta = self.get_with(key, Want::CAS | Want::FLAGS, &mut old)?;
            let Some(new) = change(meta.is_some().then_some(&old)) else { return Ok(None) };
            let set = self.set(key, &new).ttl(ttl).flags(meta.map_or(0, |meta| meta.flags));
            let result = match meta {
                Some(meta) => set.cas(meta.cas).send(),
                None => set.mode(Mode::Add).send(),
            };
            match result {
                Ok(stored) => return Ok(Some(stored)),
                Err(Error::Conflict | Error::NotStored | Error::Absent) => {}
                Err(error) => return Err(error),
            }
            let longest = PAUSES[0].saturating_mul(1 << attempt).min(PAUSES[1]);
            std::thread::sleep(longest.mul_f64(chance()));
        }
        Err(Error::Conflict)
    }

    /// Any request of one key: what bindings for other languages stand on. The value is appended to `buffer`, which is as it
    /// was if there is none.
    ///
    /// # Errors
    /// As [`Client::get`]; what a condition that did not hold says.
    pub fn request(
        &self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<Reply, Error> {
        Ok(Reply::of(&self.call(key, ask, cas, Some(buffer))?))
    }

    /// Requests that are sent together and acknowledged together.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// Writes that are sent without waiting, and acknowledged later.
    pub fn stream(&self, window: Window) -> Stream {
        Stream::new(self.clone(), window, false)
    }

    /// Writes of which the server answers only those that it refuses. Where a server speaks classic text it is a
    /// [`Client::stream`].
    pub fn quiet(&self) -> Stream {
        self.quiet_within(Window::default())
    }

    /// [`Client::quiet`] with a window of its own.
    pub fn quiet_within(&self, window: Window) -> Stream {
        Stream::new(self.clone(), window, true)
    }

    /// Throws everything away, on all servers.
    ///
    /// # Errors
    /// The first that failed; the others were asked all the same.
    pub fn flush_all(&self) -> Result<(), Error> {
        let ask = |server| self.call_server(server, &Request::new(Ask::FlushAll, b""), None).map(|_| ());
        let all: Vec<_> = (0..self.fleet().len()).map(ask).collect();
        all.into_iter().collect()
    }

    /// The servers' names and versions.
    pub fn versions(&self) -> Vec<(String, Result<String, Error>)> {
        self.servers().enumerate().map(|(at, name)| (name.to_owned(), self.version(at))).collect()
    }

    /// The version of one of [`Client::servers`].
    ///
    /// # Errors
    /// As [`Client::get`].
    ///
    /// # Panics
    /// If there are fewer.
    pub fn version(&self, server: usize) -> Result<String, Error> {
        Ok(self.call_server(server, &Request::new(Ask::Version, b""), None)?.text)
    }

    /// The servers' names, as configured.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        (0..self.fleet().len()).map(|server| &**self.fleet().name(server))
    }

    /// The name of the server that has a key.
    pub fn server_of(&self, key: &[u8]) -> &str {
        self.fleet().name(self.index_of(key))
    }

    /// Which of [`Client::servers`] has a key.
    pub fn index_of(&self, key: &[u8]) -> usize {
        let mut full = Vec::new();
        full.extend_from_slice(&self.fleet().config.prefix);
        full.extend_from_slice(key);
        self.fleet().pick(&full)
    }

    /// What the connections have done.
    pub fn counters(&self) -> Counters {
        let (sum, dials) = self.fleet().counters();
        Counters {
            requests: sum.requests,
            writes: sum.writes,
            reads: sum.reads,
            overdue: sum.overdue,
            dials,
            unreported: self.shared.unreported.load(std::sync::atomic::Ordering::Relaxed),
        }
    }

    /// Another client of the same configuration, that shares nothing with this one. It is for a process that was forked:
    /// threads that it does not have may hold locks of this one for ever, and its [`Client::sockets`] are the parent's.
    ///
    /// # Errors
    /// None that building this one did not have.
    pub fn anew(&self) -> Result<Client, Error> {
        Client::new(self.fleet().config.clone())
    }

    /// The sockets that are connected, at most two a server. Takes no lock, so that a process that was forked can close
    /// what it has of its parent's.
    pub fn sockets(&self) -> impl Iterator<Item = OpenSocket> {
        self.fleet().sockets()
    }

    /// Ends all connections: calls under way and later ones fail with [`Error::Closed`].
    pub fn close(&self) {
        self.fleet().close();
    }

    /// A request of one key and its answer, which is no refusal; the value goes to the end of `buffer`.
    pub(crate) fn call(
        &self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        buffer: Option<&mut Vec<u8>>,
    ) -> Result<Answer, Error> {
        let mut full = Vec::new();
        let (key, base64) = self.fleet().config.key(key, &mut full)?;
        self.call_server(self.fleet().pick(key), &Request { cas, base64, ..Request::new(ask, key) }, buffer)
    }

    fn call_server(
        &self,
        server: usize,
        request: &Request<'_>,
        buffer: Option<&mut Vec<u8>>,
    ) -> Result<Answer, Error> {
        let deadline = self.deadline();
        let config = &self.fleet().config;
        let large = request.value().is_some_and(|value| value.len() >= config.large_bytes);
        let mut memory = Vec::new();
        let memory = buffer.unwrap_or(&mut memory);
        let length = memory.len();
        // One that changes nothing.
        let reads = matches!(request.ask, Ask::Get(Get { retime: None, vivify: None, refresh: None, .. }));
        for last in [false, true] {
            let lane = self.fleet().lane(server, large, deadline)?;
            if !request.fits(lane.dialect()) {
                return Err(Error::Unsupported);
            }
            let mut op = self.ask(&lane, request, deadline, std::mem::take(memory));
            *memory = std::mem::take(&mut op.memory);
            let Some(error) = op.error else {
                let answer = op.answers.pop().expect("an op without an error has its answer");
                let value = &memory[answer.value.clone()];
                let answer = settled(request.kind(), answer, value, self.fleet().name(server));
                if !matches!(&answer, Ok(answer) if answer.status == Status::Value) {
                    memory.truncate(length);
                }
                return answer;
            };
            memory.truncate(length);
            self.note(server, &lane, &error);
            let again = match (&error, error.outcome()) {
                (Error::Lost(..), Outcome::NotSent) => true,
                (Error::Lost(..), Outcome::Unknown) => reads && config.retry_reads,
                _ => false,
            };
            if last || !again {
                return Err(error);
            }
        }
        unreachable!("the last round returns")
    }

    fn ask(&self, lane: &Lane, request: &Request<'_>, deadline: Instant, memory: Vec<u8>) -> Op {
        let begun = lane.begin(deadline, memory, |pipe, op, now| {
            pipe.push(request, Tag { op, item: 0 }, now, deadline)?;
            Ok(1)
        });
        match begun {
            Ok(ticket) => lane.wait(&ticket),
            Err((error, memory)) => Op::failed(error, memory),
        }
    }

    /// Tells the breaker of a server what an error says about it.
    pub(crate) fn note(&self, server: usize, lane: &Lane, error: &Error) {
        match error {
            Error::Timeout(..) => self.fleet().was_late(server, lane),
            Error::Lost(..) | Error::Protocol(..) => self.fleet().was_lost(server, error),
            _ => {}
        }
    }
}

/// An answer that is a refusal is the error that it says; a counter's value becomes its number.
pub(crate) fn settled(
    kind: Kind,
    mut answer: Answer,
    value: &[u8],
    server: &Arc<str>,
) -> Result<Answer, Error> {
    if kind == Kind::Count && answer.status == Status::Value {
        answer.status = counter(value).map(Status::Number).map_err(|_| {
            let what = format!("no number: {}", value[..value.len().min(64)].escape_ascii());
            Error::Protocol(Arc::clone(server), what, Outcome::Answered)
        })?;
        answer.value.end = answer.value.start;
    }
    let reads = matches!(kind, Kind::Get | Kind::Touch | Kind::Delete | Kind::Count);
    let Status::Refused(refusal) = answer.status else {
        return match answer.status {
            Status::Absent if reads => Ok(answer),
            Status::Absent => Err(Error::Absent),
            Status::NotStored => Err(Error::NotStored),
            Status::Exists => Err(Error::Conflict),
            _ => Ok(answer),
        };
    };
    let text = answer.text.to_ascii_lowercase();
    Err(match refusal {
        Refusal::Server if text.contains("too large") => Error::TooLarge,
        Refusal::Server if text.contains("out of memory") => Error::ServerMemory(Arc::clone(server)),
        Refusal::Client if kind == Kind::Count && text.contains("non-numeric") => Error::NotNumber,
        Refusal::Client if text.contains("unauthenticated") => Error::Auth(Arc::clone(server)),
        Refusal::Server => Error::Server(Arc::clone(server), format!("SERVER_ERROR {}", answer.text)),
        Refusal::Client => Error::Server(Arc::clone(server), format!("CLIENT_ERROR {}", answer.text)),
        Refusal::Unknown => Error::Server(Arc::clone(server), "ERROR".to_owned()),
    })
}

/// A number from 0 to 1 that nobody can foresee.
fn chance() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A store that is about to be made.
#[derive(Debug)]
#[must_use = "nothing is stored before send"]
pub struct Set<'a> {
    client: &'a Client,
    key: &'a [u8],
    store: Store<'a>,
    cas: Option<u64>,
}

impl Set<'_> {
    /// How long the item lives: for ever if not said.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.store.exptime = ttl.exptime();
        self
    }

    /// The client flags: 0 if not said.
    pub fn flags(mut self, flags: u32) -> Self {
        self.store.flags = flags;
        self
    }

    /// Add, replace, append or prepend.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.store.mode = mode;
        self
    }

    /// Only if the item has this token.
    pub fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// With a token that is older than the item's, the value is stored all the same, as stale.
    pub fn stale_if_older(mut self) -> Self {
        self.store.stale_if_older = true;
        self
    }

    /// [`Stored`] tells the item's new token.
    pub fn want_cas(mut self) -> Self {
        self.store.want_cas = true;
        self
    }

    /// Stores.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`], [`Error::NotStored`] or [`Error::Absent`] where a condition did not
    /// hold.
    pub fn send(self) -> Result<Stored, Error> {
        let answer = self.client.call(self.key, Ask::Store(self.store), self.cas, None)?;
        Ok(Stored { cas: answer.cas })
    }
}

/// A deletion that is about to be made.
#[derive(Debug)]
#[must_use = "nothing is deleted before send"]
pub struct Delete<'a> {
    client: &'a Client,
    key: &'a [u8],
    cas: Option<u64>,
    delete: wire::Delete,
}

impl Delete<'_> {
    /// Only if the item has this token.
    pub fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// The item stays so long as stale: one reader is told to make it anew.
    pub fn keep_stale(mut self, ttl: Ttl) -> Self {
        (self.delete.stale, self.delete.retime) = (true, Some(ttl.exptime()));
        self
    }

    /// The value goes, and the item stays, empty.
    pub fn keep_empty(mut self) -> Self {
        self.delete.empty = true;
        self
    }

    /// Deletes; false if there was nothing.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] if the item has another token.
    pub fn send(self) -> Result<bool, Error> {
        let answer = self.client.call(self.key, Ask::Delete(self.delete), self.cas, None)?;
        Ok(answer.status != Status::Absent)
    }
}

/// A count that is about to be made.
#[derive(Debug)]
#[must_use = "nothing is counted before send"]
pub struct Incr<'a> {
    client: &'a Client,
    key: &'a [u8],
    count: Count,
    cas: Option<u64>,
}

impl Incr<'_> {
    /// Where there is no number, it is made with this value and time to live.
    pub fn or_make(mut self, initial: u64, ttl: Ttl) -> Self {
        self.count.initial = Some((initial, ttl.exptime()));
        self
    }

    /// A new time to live.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.count.retime = Some(ttl.exptime());
        self
    }

    /// Only if the number has this token.
    pub fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// Counts; none if there is no such key.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::NotNumber`].
    pub fn send(self) -> Result<Option<u64>, Error> {
        let answer = self.client.call(self.key, Ask::Count(self.count), self.cas, None)?;
        Ok(match answer.status {
            Status::Number(number) => Some(number),
            _ => None,
        })
    }
}
