//! `Client`: sends a request to the server that has its key. Its reads are here, `touch`, and what concerns all servers.
//!
//! The other calls stand in modules above this one, each in an `impl Client` there: `verbs.rs` (stores, deletions, counts),
//! `update.rs`, `lease.rs`, `fetch.rs`, `batch.rs`, `stream.rs`, `direct.rs`. This module names none of them.

use crate::config::Config;
use crate::error::{Error, Outcome};
use crate::failure::limited;
use crate::fleet::{self, Aim, Front, Shared};
use crate::lane::{Lane, Op};
use crate::line::Line;
use crate::loads::Loads;
use crate::op::Answer;
use crate::pipe::Tag;
use crate::reply::{Meta, Reply, Value, concluded, found};
use crate::server::Server;
use crate::socket::OpenSocket;
use crate::ttl::Ttl;
use crate::wire::{Ask, Get, Request, Status, Want};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a drain looks whether all requests have been answered.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// What a client's connections have done so far.
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
    /// Writes of streams that ended without a barrier, and were not stored or may not have been.
    pub unreported: u64,
}

impl Counters {
    pub(crate) fn of<L: Line>(shared: &Shared<L>) -> Counters {
        let (sum, dials) = shared.fleet.counters();
        Counters {
            requests: sum.requests,
            writes: sum.writes,
            reads: sum.reads,
            overdue: sum.overdue,
            dials,
            unreported: shared.unreported.load(Ordering::Relaxed),
        }
    }
}

/// A client of one or several servers, for all threads.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared<Lane>>,
}

impl Front for Client {
    type Line = Lane;

    fn shared(&self) -> &Arc<Shared<Lane>> {
        &self.shared
    }
}

impl Client {
    pub(crate) fn new(config: Config) -> Result<Client, Error> {
        Ok(Client { shared: Shared::new(config)? })
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// The caller's, the server's, or the network's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        let mut bytes = Vec::new();
        let meta = self.get_into(key, &mut bytes)?;
        Ok(meta.map(|meta| Value { bytes, meta }))
    }

    /// Appends the value of a key to `buffer`. `None` if there is no value; then nothing is appended. Allocates nothing if the
    /// buffer has room.
    ///
    /// # Errors
    /// As [`Client::get`]; nothing was appended then.
    pub fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read(key, Get::default(), buffer)
    }

    /// [`Client::get_into`] with more of the item's attributes: those in `want`.
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

    /// Gives an item a new time to live; false if there is none.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        Ok(found(&self.call(key, Ask::Touch(ttl.exptime()), None, None)?))
    }

    /// Makes any request of one key: the base for bindings of other languages. The value is appended to `buffer`, which stays as
    /// it was if there is none.
    ///
    /// # Errors
    /// As [`Client::get`]; and the error of a condition that did not hold.
    pub fn request(
        &self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<Reply, Error> {
        Ok(Reply::of(&self.call(key, ask, cas, Some(buffer))?))
    }

    /// Deletes everything on all servers, including those that stand in for others.
    ///
    /// # Errors
    /// The first error. The other servers are asked in any case.
    pub fn flush_all(&self) -> Result<(), Error> {
        let request = Request::new(Ask::FlushAll, b"");
        let ask = |server: &Arc<fleet::Server<Lane>>| {
            self.call_server(server, &request, self.deadline(), &mut Vec::new()).map(|_| ())
        };
        let all: Vec<_> = self.fleet().list().all().iter().map(ask).collect();
        all.into_iter().collect()
    }

    /// The servers' names and versions.
    pub fn versions(&self) -> Vec<(String, Result<String, Error>)> {
        self.servers().into_iter().enumerate().map(|(at, name)| (name, self.version(at))).collect()
    }

    /// The version of one of [`Client::servers`].
    ///
    /// # Errors
    /// As [`Client::get`].
    ///
    /// # Panics
    /// If there is no such server.
    pub fn version(&self, server: usize) -> Result<String, Error> {
        let list = self.fleet().list();
        let server = &list.all()[..list.len()][server];
        let request = Request::new(Ask::Version, b"");
        Ok(self.call_server(server, &request, self.deadline(), &mut Vec::new())?.text)
    }

    /// The servers' names, as configured.
    pub fn servers(&self) -> Vec<String> {
        let list = self.fleet().list();
        list.all()[..list.len()].iter().map(|server| server.name.to_string()).collect()
    }

    /// Replaces the list of servers. Servers that stay keep their connections. Requests under way at servers that go are still
    /// answered.
    ///
    /// # Errors
    /// [`Error::Config`], and the servers stay as they were; or the client is closed.
    pub fn change_servers(&self, servers: Vec<Server>) -> Result<(), Error> {
        self.fleet().change(servers)
    }

    /// The name of the server for a key.
    pub fn server_of(&self, key: &[u8]) -> String {
        let list = self.fleet().list();
        list.server(list.pick(&self.fleet().config.prefixed(key))).name.to_string()
    }

    /// The index in [`Client::servers`] of the server for a key.
    pub fn index_of(&self, key: &[u8]) -> usize {
        self.fleet().list().pick(&self.fleet().config.prefixed(key))
    }

    /// What the connections have done so far.
    pub fn counters(&self) -> Counters {
        Counters::of(&self.shared)
    }

    /// Another client with the same configuration, which shares nothing with this one. It is for a forked process: threads that
    /// do not exist there may hold locks of this client for ever, and its [`Client::sockets`] are the parent's.
    ///
    /// # Errors
    /// Only those that building this client could have had.
    pub fn anew(&self) -> Result<Client, Error> {
        Client::new(self.fleet().config.clone())
    }

    /// The connected sockets: for each server at most [`crate::Builder::lanes`], and one for large values. Takes no lock, so that
    /// a forked process can close its copies of the parent's sockets. Returns none while the list of servers is being changed.
    pub fn sockets(&self) -> impl Iterator<Item = OpenSocket> {
        self.fleet().sockets().into_iter()
    }

    /// Ends all connections: calls under way and later ones fail with [`Error::Closed`]. A call that waits for its caller's
    /// reader or writer fails when that continues.
    pub fn close(&self) {
        self.fleet().close();
    }

    /// Closes the client when all requests under way were answered, or after `within`; returns false if some were not. Calls that
    /// begin meanwhile fail with [`Error::Closed`], and a call that has not sent its request yet may, too. Requests of a stream
    /// are under way until its barrier.
    pub fn drain(&self, within: Duration) -> bool {
        let began = Instant::now();
        self.fleet().refuse();
        let mut is_idle = self.fleet().is_idle();
        while !is_idle && began.elapsed() < within {
            std::thread::sleep(LOOK);
            is_idle = self.fleet().is_idle();
        }
        self.close();
        is_idle
    }

    pub(crate) fn loads(&self) -> &Loads<Lane> {
        &self.shared.loads
    }

    /// Makes a request of one key and returns its answer, or the error of a refusal. The value goes to the end of `buffer`.
    pub(crate) fn call(
        &self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        buffer: Option<&mut Vec<u8>>,
    ) -> Result<Answer, Error> {
        let mut full = Vec::new();
        let fleet = self.fleet();
        let began = fleet.begins();
        let key = fleet.config.key(key, &mut full);
        let (key, base64) = key.inspect_err(|error| fleet.asked(began, &ask, None, Err(error)))?;
        let deadline = self.deadline();
        let (mut memory, mut aim) = (Vec::new(), Aim::new(fleet, key));
        let buffer = buffer.unwrap_or(&mut memory);
        loop {
            let ask = limited(ask, aim.target.ttl_max);
            let request = Request { cas, base64, ..Request::new(ask, key) };
            let result = self.call_server(aim.server(), &request, deadline, buffer);
            if !matches!(result, Err(Error::Down(..))) || !aim.moves_on(fleet, key) {
                fleet.asked(began, &ask, Some(&aim.server().name), result.as_ref());
                return result;
            }
        }
    }

    fn call_server(
        &self,
        server: &fleet::Server<Lane>,
        request: &Request<'_>,
        deadline: Instant,
        memory: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let fleet = self.fleet();
        let at = fleet.lane_of(request.key, request.value());
        let length = memory.len();
        for last in [false, true] {
            let lane = fleet.lane(server, at, deadline)?;
            if !request.fits(lane.dialect()) {
                return Err(Error::Unsupported);
            }
            let mut op = self.ask(&lane, request, deadline, std::mem::take(memory));
            *memory = std::mem::take(&mut op.memory);
            let Some(error) = op.error else {
                let answer = op.answers.pop().expect("an op without an error has its answer");
                return concluded(request.kind(), answer, memory, length, &server.name);
            };
            memory.truncate(length);
            fleet.note(server, &error);
            if last || !is_asked_again(request, &error, &fleet.config) {
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
}

/// True if a request whose connection was lost may be made once more: none of it was sent, or it changes nothing.
pub(crate) fn is_asked_again(request: &Request<'_>, error: &Error, config: &Config) -> bool {
    let reads = matches!(request.ask, Ask::Get(Get { retime: None, vivify: None, refresh: None, .. }));
    match (error, error.outcome()) {
        (Error::Lost(..), Outcome::NotSent) => true,
        (Error::Lost(..), Outcome::Unknown) => reads && config.retry_reads,
        _ => false,
    }
}
