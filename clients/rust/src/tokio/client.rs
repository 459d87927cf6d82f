//! `Client`, async: as with [`crate::Client`], reads are here, and the other calls in modules above this one.

use super::dial;
use super::lane::{Filling, Lane, Op};
use crate::client::{Counters, LOOK, is_asked_again};
use crate::config::Config;
use crate::error::Error;
use crate::failure::limited;
use crate::fleet::{self, Aim, Front, Shared};
use crate::line::Line;
use crate::loads::Loads;
use crate::op::Answer;
use crate::pipe::Tag;
use crate::reply::{Meta, Reply, Value, concluded, found};
use crate::server::Server;
use crate::ttl::Ttl;
use crate::wire::{Ask, Get, Request, Want};
use ::tokio::time;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client of one or several servers, for all tasks. Clones are the same client.
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
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        let mut bytes = Vec::new();
        let meta = self.get_into(key, &mut bytes).await?;
        Ok(meta.map(|meta| Value { bytes, meta }))
    }

    /// Appends the value of a key to `buffer`. `None` if there is no value; then nothing is appended. A dropped future appends
    /// nothing either.
    ///
    /// # Errors
    /// As [`Client::get`]; nothing was appended then.
    pub async fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.read(key, Get::default(), buffer).await
    }

    /// [`Client::get_into`] with more of the item's attributes: those in `want`.
    ///
    /// # Errors
    /// As [`Client::get_into`].
    pub async fn get_with(
        &self,
        key: &[u8],
        want: Want,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Meta>, Error> {
        self.read(key, Get { want, ..Get::default() }, buffer).await
    }

    /// [`Client::get_into`] that also gives the item a new time to live.
    ///
    /// # Errors
    /// As [`Client::get_into`].
    pub async fn get_and_touch(
        &self,
        key: &[u8],
        ttl: Ttl,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Meta>, Error> {
        self.read(key, Get { retime: Some(ttl.exptime()), ..Get::default() }, buffer).await
    }

    async fn read(&self, key: &[u8], get: Get, buffer: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        let answer = self.call(key, Ask::Get(get), None, Some(buffer)).await?;
        Ok(found(&answer).then(|| Meta::of(&answer)))
    }

    /// Gives an item a new time to live; false if there is none.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        Ok(found(&self.call(key, Ask::Touch(ttl.exptime()), None, None).await?))
    }

    /// Makes any request of one key. The value is appended to `buffer`, which stays as it was if there is none.
    ///
    /// # Errors
    /// As [`Client::get`]; and the error of a condition that did not hold.
    pub async fn request(
        &self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<Reply, Error> {
        Ok(Reply::of(&self.call(key, ask, cas, Some(buffer)).await?))
    }

    /// Deletes everything on all servers, including those that stand in for others.
    ///
    /// # Errors
    /// The first error. The other servers are asked in any case.
    pub async fn flush_all(&self) -> Result<(), Error> {
        let mut result = Ok(());
        let request = Request::new(Ask::FlushAll, b"");
        for server in self.fleet().list().all() {
            let flushed = self.call_server(server, &request, self.deadline(), &mut Vec::new()).await;
            result = result.and(flushed.map(|_| ()));
        }
        result
    }

    /// The servers' names and versions.
    pub async fn versions(&self) -> Vec<(String, Result<String, Error>)> {
        let mut versions = Vec::new();
        for (server, name) in self.servers().into_iter().enumerate() {
            versions.push((name, self.version(server).await));
        }
        versions
    }

    /// The version of one of [`Client::servers`].
    ///
    /// # Errors
    /// As [`Client::get`].
    ///
    /// # Panics
    /// If there is no such server.
    pub async fn version(&self, server: usize) -> Result<String, Error> {
        let (list, request) = (self.fleet().list(), Request::new(Ask::Version, b""));
        let server = &list.all()[..list.len()][server];
        Ok(self.call_server(server, &request, self.deadline(), &mut Vec::new()).await?.text)
    }

    /// The servers' names, as configured.
    pub fn servers(&self) -> Vec<String> {
        let list = self.fleet().list();
        list.all()[..list.len()].iter().map(|server| server.name.to_string()).collect()
    }

    /// Replaces the list of servers, as [`crate::Client::change_servers`] does.
    ///
    /// # Errors
    /// As [`crate::Client::change_servers`].
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

    /// Ends all connections: calls under way and later ones fail with [`Error::Closed`].
    pub fn close(&self) {
        self.fleet().close();
    }

    /// Closes the client when all requests under way were answered, or after `within`, as [`crate::Client::drain`] does; returns
    /// false if some were not. If the future is dropped, new calls are refused and nothing is closed.
    pub async fn drain(&self, within: Duration) -> bool {
        let began = time::Instant::now();
        self.fleet().refuse();
        let mut is_idle = self.fleet().is_idle();
        while !is_idle && began.elapsed() < within {
            time::sleep(LOOK).await;
            is_idle = self.fleet().is_idle();
        }
        self.close();
        is_idle
    }

    pub(super) fn loads(&self) -> &Loads<Lane> {
        &self.shared.loads
    }

    /// Makes a request of one key and returns its answer, or the error of a refusal. The value goes to the end of `buffer`.
    pub(super) async fn call(
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
            let result = self.call_server(aim.server(), &request, deadline, buffer).await;
            if !matches!(result, Err(Error::Down(..))) || !aim.moves_on(fleet, key) {
                fleet.asked(began, &ask, Some(&aim.server().name), result.as_ref());
                return result;
            }
        }
    }

    async fn call_server(
        &self,
        server: &Arc<fleet::Server<Lane>>,
        request: &Request<'_>,
        deadline: Instant,
        memory: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let fleet = self.fleet();
        let at = fleet.lane_of(request.key, request.value());
        let bytes = memory.len();
        for last in [false, true] {
            let lane = dial::lane(&self.shared, server, at, deadline).await?;
            if !request.fits(lane.dialect()) {
                return Err(Error::Unsupported);
            }
            let begun = lane.begin(deadline, memory, |pipe, op, now| {
                pipe.push(request, Tag { op, item: 0 }, now, deadline)?;
                Ok(1)
            });
            let begun = begun.await;
            let mut op = match begun {
                Ok(ticket) => Filling::new(ticket, memory, bytes).await,
                Err(error) => Op::failed(error, Vec::new()),
            };
            let Some(error) = op.error else {
                let answer = op.answers.pop().expect("an op without an error has its answer");
                return concluded(request.kind(), answer, memory, bytes, &server.name);
            };
            memory.truncate(bytes);
            fleet.note(server, &error);
            if last || !is_asked_again(request, &error, &fleet.config) {
                return Err(error);
            }
        }
        unreachable!("the last round returns")
    }
}
