//! Values that are written and read piece by piece, async: each call has its own connection.
//!
//! [`crate::Builder::timeout`] limits the time to get the connection. From then on the server may be silent for
//! [`crate::Builder::stall_timeout`], and the call takes as long as the caller's reader or writer. A dropped future closes its
//! connection.

use super::client::Client;
use super::dial::connected;
use super::lane::Lane;
use super::socket::Socket;
use crate::direct::{NEVER, PIECE_BYTES, SHORT};
use crate::error::{Error, Outcome};
use crate::failure::limited;
use crate::fleet::{Aim, Front, Server};
use crate::lane::{CLOSED, STALLED, error_of};
use crate::line::Line;
use crate::moved::Moved;
use crate::op::Answer;
use crate::pipe::{Delivery, Group, Input, Limits, Pipe, Tag};
use crate::reply::{Meta, Stored, found, result_of, stored};
use crate::socket::lost;
use crate::verbs::Set;
use crate::wire::{Ask, Get, Kind, Request, Status, Want};
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::time::{self, timeout};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Counts a connection of a server until it is dropped.
pub struct Counted(Arc<Server<Lane>>);

impl Counted {
    /// Counts one more connection of this server.
    pub fn new(server: &Arc<Server<Lane>>) -> Counted {
        server.alone.opened();
        Counted(Arc::clone(server))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.alone.closed();
    }
}

/// A connection for one value.
struct Direct {
    server: Arc<Server<Lane>>,
    socket: Socket,
    pipe: Pipe,
    input: Input,
    stall: Duration,
    _counted: Counted,
}

impl Direct {
    /// Fails if the connection was ended.
    fn goes_on(&self) -> Result<(), Error> {
        if self.server.alone.is_over() { Err(Error::Closed(Outcome::NotSent)) } else { Ok(()) }
    }

    /// Waits for the socket, but not for longer than a server may be silent.
    async fn ready(
        &self,
        mut ready: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Result<(), Error> {
        let mut ended = pin!(self.server.alone.ended());
        let waits = poll_fn(|context| match ended.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(Error::Closed(Outcome::NotSent))),
            Poll::Pending => ready(context).map_err(|error| lost(&self.server.name, error.into())),
        });
        match timeout(self.stall, waits).await {
            Ok(ready) => ready,
            Err(_) => Err(lost(&self.server.name, STALLED)),
        }
    }

    /// Awaits the caller's reader or writer, unless the connection is ended first.
    async fn unless_ended<T>(
        &self,
        outcome: Outcome,
        theirs: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut ended = pin!(self.server.alone.ended());
        let mut theirs = pin!(theirs);
        poll_fn(|context| match ended.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(Error::Closed(outcome))),
            Poll::Pending => theirs.as_mut().poll(context),
        })
        .await
    }

    /// Sends these bytes. Fails if the server takes none for the stall timeout.
    async fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        self.goes_on()?;
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.send(&bytes[sent..]) {
                Moved::Bytes(more) => sent += more,
                Moved::Failed(why) => return Err(lost(&self.server.name, why)),
                Moved::Nothing => self.ready(|context| self.socket.poll_send(context)).await?,
            }
        }
        Ok(())
    }

    /// Receives once, and returns the reply if it is complete. Received bytes of a value are appended to `value`.
    async fn hear(&mut self, value: &mut Vec<u8>) -> Result<Option<Answer>, Error> {
        self.ready(|context| self.socket.poll_receive(context)).await?;
        match self.socket.receive(self.input.room()) {
            Moved::Bytes(0) => return Err(lost(&self.server.name, CLOSED)),
            Moved::Failed(why) => return Err(lost(&self.server.name, why)),
            Moved::Nothing => return Ok(None),
            Moved::Bytes(bytes) => self.input.put(bytes),
        }
        let mut answer = None;
        let received = self.pipe.receive(&mut self.input, Lane::now(), |_, delivery| match delivery {
            Delivery::Part(part) => value.extend_from_slice(part),
            Delivery::Reply(head, last) => {
                if head.status == Status::Value {
                    value.extend_from_slice(last);
                }
                answer = Some(Answer::new(0, &head, 0..0, false));
            }
            Delivery::Refused(_) => unreachable!("no request is quiet"),
        });
        received.map_err(|broken| error_of(broken, &self.server.name))?;
        Ok(answer)
    }
}

impl Client {
    /// Writes a key's value to `to` as it arrives, on a connection that is made for this call, and flushes `to`. `None` if there
    /// is no value; then nothing is written.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Local`] if `to` fails. What was written before an error is a part of the value.
    pub async fn get_to(
        &self,
        key: &[u8],
        want: Want,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<Option<Meta>, Error> {
        let (fleet, mut full) = (self.fleet(), Vec::new());
        let (began, ask) = (fleet.begins(), Ask::Get(Get { want, ..Get::default() }));
        let key = fleet.config.key(key, &mut full);
        let (key, base64) = key.inspect_err(|error| fleet.asked(began, &ask, None, Err(error)))?;
        let mut aim = Aim::new(fleet, key);
        let request = Request { base64, ..Request::new(ask, key) };
        let result = self.read_to(&mut aim, request, to).await;
        fleet.asked(began, &ask, Some(&aim.server().name), result.as_ref());
        let answer = result?;
        Ok(found(&answer).then(|| Meta::of(&answer)))
    }

    async fn read_to(
        &self,
        aim: &mut Aim<Lane>,
        request: Request<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<Answer, Error> {
        let unknown = |error: Error| error.with(Outcome::Unknown);
        let (mut direct, now) = (self.alone(aim, request.key).await?, Lane::now());
        if !request.fits(direct.pipe.dialect()) {
            return Err(Error::Unsupported);
        }
        let tag = Tag { op: 0, item: 0 };
        direct.pipe.push(&request, tag, now, now + NEVER).expect("nothing is owed on it");
        let bytes = direct.pipe.hand_out(Vec::new());
        direct.send(&bytes).await.map_err(unknown)?;
        let mut value = Vec::new();
        loop {
            let answer = direct.hear(&mut value).await.map_err(unknown)?;
            direct.unless_ended(Outcome::Unknown, write_all(to, &value)).await?;
            value.clear();
            if let Some(answer) = answer {
                direct.unless_ended(Outcome::Unknown, flush(to)).await?;
                return result_of(Kind::Get, answer, &[], &direct.server.name);
            }
        }
    }

    async fn write_from(
        &self,
        aim: &mut Aim<Lane>,
        request: Request<'_>,
        from: &mut (impl AsyncRead + Unpin),
        bytes: usize,
    ) -> Result<Answer, Error> {
        let (mut direct, now) = (self.alone(aim, request.key).await?, Lane::now());
        let request = Request { ask: limited(request.ask, aim.target.ttl_max), ..request };
        if !request.fits(direct.pipe.dialect()) {
            return Err(Error::Unsupported);
        }
        let mut line = Vec::new();
        request.write_line(direct.pipe.dialect(), bytes, &mut line);
        let group = Group { bytes: &line, kind: Kind::Store, replies: 1, quiet: false, opaque: None };
        let tag = Tag { op: 0, item: 0 };
        direct.pipe.push_group(&group, tag, now, now + NEVER).expect("nothing is owed on it");
        let line = direct.pipe.hand_out(Vec::new());
        direct.send(&line).await?;
        let (mut left, mut piece) = (bytes, vec![0; PIECE_BYTES.min(bytes)]);
        while left > 0 {
            let room = piece.len().min(left);
            let read = read_some(from, &mut piece[..room]);
            let some = direct.unless_ended(Outcome::NotSent, read).await?;
            if some == 0 {
                return Err(Error::Local(SHORT));
            }
            direct.send(&piece[..some]).await?;
            left -= some;
        }
        // From here on the value may be stored.
        let unknown = |error: Error| error.with(Outcome::Unknown);
        direct.send(b"\r\n").await.map_err(unknown)?;
        let mut nothing = Vec::new();
        loop {
            if let Some(answer) = direct.hear(&mut nothing).await.map_err(unknown)? {
                return result_of(Kind::Store, answer, &[], &direct.server.name);
            }
        }
    }

    /// Makes a connection for one call, to the server that has this key, or to the server that stands in for it.
    async fn alone(&self, aim: &mut Aim<Lane>, key: &[u8]) -> Result<Direct, Error> {
        let (fleet, deadline) = (self.fleet(), time::Instant::from_std(self.deadline()));
        loop {
            let server = Arc::clone(aim.server());
            let made = match fleet.admit(&server) {
                // Another server has taken all of it: this one was not tried.
                Ok(()) if time::Instant::now() >= deadline => {
                    Err(Error::Timeout(Arc::clone(&server.name), Outcome::NotSent))
                }
                Ok(()) => {
                    let began = fleet.begins();
                    let until = deadline.min(time::Instant::now() + fleet.config.dial_timeout);
                    let made = connected(fleet, &server, until).await;
                    fleet.tried(&server, began, made.as_ref().err());
                    made
                }
                Err(error) => Err(error),
            };
            let (socket, dialect) = match made {
                Ok(made) => made,
                Err(Error::Down(..)) if aim.moves_on(fleet, key) => continue,
                Err(error) => return Err(error),
            };
            let counted = Counted::new(&server);
            let limits = Limits { in_flight: 1, verify: false, ..fleet.limits() };
            let pipe = Pipe::new(dialect, limits, Lane::now());
            let (input, stall) = (Input::default(), fleet.config.stall_timeout);
            let direct = Direct { server, socket, pipe, input, stall, _counted: counted };
            // A concurrent close of the client either finds this connection, or is noticed here.
            fleet.admit(&direct.server)?;
            return Ok(direct);
        }
    }
}

impl Set<'_, Client> {
    /// Stores `bytes` bytes of `from` as the value, on a connection that is made for this call.
    ///
    /// # Errors
    /// As [`Set::send`]; [`Error::Local`] if `from` fails or has fewer bytes. Nothing is stored then, nor if the future is
    /// dropped before `from` has given all of them.
    pub async fn send_from(self, from: &mut (impl AsyncRead + Unpin), bytes: u64) -> Result<Stored, Error> {
        let (client, key, ask, cas) = self.parts();
        let Ok(bytes) = usize::try_from(bytes) else { return Err(Error::TooLarge) };
        let (fleet, mut full) = (client.fleet(), Vec::new());
        let began = fleet.begins();
        let key = fleet.config.key(key, &mut full);
        let (key, base64) = key.inspect_err(|error| fleet.asked(began, &ask, None, Err(error)))?;
        let mut aim = Aim::new(fleet, key);
        let request = Request { cas, base64, ..Request::new(ask, key) };
        let result = client.write_from(&mut aim, request, from, bytes).await;
        fleet.asked(began, &ask, Some(&aim.server().name), result.as_ref());
        Ok(stored(&result?))
    }
}

/// Writes all of `bytes`.
async fn write_all(to: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        let written = poll_fn(|context| Pin::new(&mut *to).poll_write(context, bytes)).await;
        match written {
            Ok(0) => return Err(Error::Local(io::Error::from(ErrorKind::WriteZero).into())),
            Ok(some) => bytes = &bytes[some..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Local(error.into())),
        }
    }
    Ok(())
}

/// Flushes `to`.
async fn flush(to: &mut (impl AsyncWrite + Unpin)) -> Result<(), Error> {
    let flushed = poll_fn(|context| Pin::new(&mut *to).poll_flush(context)).await;
    flushed.map_err(|error| Error::Local(error.into()))
}

/// Reads once, and returns the number of bytes.
async fn read_some(from: &mut (impl AsyncRead + Unpin), room: &mut [u8]) -> Result<usize, Error> {
    let mut room = ReadBuf::new(room);
    loop {
        let read = poll_fn(|context| Pin::new(&mut *from).poll_read(context, &mut room)).await;
        match read {
            Ok(()) => return Ok(room.filled().len()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Local(error.into())),
        }
    }
}
