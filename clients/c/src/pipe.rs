//! One connection for an event loop.

use crate::asks::Asked;
use crate::failure::{Failure, wrong};
use crate::shapes::{PIPE_READ, PIPE_WRITE, Status};
use larder_client::{Builder, Connection, Deliveries, Error, OpenSocket, Ready, Reply, Untaken};
use std::time::Instant;

/// A connection, and memory for deliveries.
#[derive(Debug)]
pub struct Pipe {
    connection: Connection,
    room: Deliveries,
}

impl Pipe {
    /// Begins to connect.
    pub fn open(builder: Builder) -> Result<Pipe, Failure> {
        Ok(Pipe { connection: builder.connection(Instant::now())?, room: Deliveries::default() })
    }

    /// Its socket, for a forked process.
    pub fn socket(&self) -> Option<OpenSocket> {
        self.connection.socket()
    }

    /// What to wait for, and in how many milliseconds there may be something to do at the latest.
    pub fn wants(&self) -> (u32, Option<i64>) {
        let Ready { read, write } = self.connection.wants();
        let bits = if read { PIPE_READ } else { 0 } | if write { PIPE_WRITE } else { 0 };
        let wake = self.connection.wake_at().map(|wake| {
            // Rounded up: with a millisecond less, the loop would turn once for nothing.
            let left = wake.saturating_duration_since(Instant::now()).as_nanos().div_ceil(1_000_000);
            i64::try_from(left).unwrap_or(i64::MAX)
        });
        (bits, wake)
    }

    /// Takes a request.
    pub fn submit(&mut self, asked: &Asked<'_>, tag: usize) -> Result<Status, Failure> {
        let taken = self.connection.submit(asked.key, asked.ask, asked.cas, tag, Instant::now());
        taken.map(|()| Status::OK).map_err(|untaken| match untaken {
            Untaken::Full => Failure::Full,
            Untaken::Failed(error) => error.into(),
        })
    }

    /// Processes what is ready. The caller reports the deliveries when it is no longer inside, and gives the memory back by
    /// [`Pipe::take_back`].
    pub fn process(&mut self, ready: u32) -> Result<(Deliveries, Result<(), Error>), Failure> {
        if ready & !(PIPE_READ | PIPE_WRITE) != 0 {
            return wrong("ready has a bit that means nothing");
        }
        let ready = Ready { read: ready & PIPE_READ != 0, write: ready & PIPE_WRITE != 0 };
        let mut ended = std::mem::take(&mut self.room);
        let result = self.connection.process(ready, Instant::now(), &mut ended);
        Ok((ended, result))
    }

    /// Takes back the memory for deliveries.
    pub fn take_back(&mut self, mut ended: Deliveries) {
        ended.clear();
        self.room = ended;
    }
}

/// The status of a request that has ended.
pub fn status(result: Result<Reply, &Error>) -> Result<(Status, Reply), Failure> {
    match result {
        Ok(reply) if reply.found => Ok((Status::OK, reply)),
        Ok(reply) => Ok((Status::MISS, reply)),
        Err(error) => Err(error.clone().into()),
    }
}
