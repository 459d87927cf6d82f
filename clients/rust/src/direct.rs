//! A connection for one caller at a time, for values that are written and read as they come.
//!
//! [`crate::Builder::timeout`] limits the time to get the connection. From then on the server may be silent for
//! [`crate::Builder::stall_timeout`], and the call takes as long as the caller's reader or writer. A server's statistics are read
//! on this connection, too.

mod stats;

use crate::alone::Direct;
use crate::client::Client;
use crate::error::{Error, Outcome, Reason};
use crate::failure::limited;
use crate::fleet::{Aim, Fleet, Front, Server};
use crate::lane::{CLOSED, Lane, STALLED, error_of};
use crate::moved::Moved;
use crate::op::Answer;
use crate::pipe::{Delivery, Group, Input, Limits, Pipe, Tag};
use crate::reply::{Meta, Stored, found, result_of, stored};
use crate::socket::{OpenFd, lost};
use crate::verbs::Set;
use crate::wire::{Ask, Get, Kind, Request, Status, Want};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are read from a caller's reader at a time.
pub const PIECE_BYTES: usize = 64 << 10;
/// Longer than any call takes.
pub const NEVER: Duration = Duration::from_secs(86_400 * 365);

impl Direct {
    /// Sends these bytes, as long as the server takes some within `stall`.
    fn send(&self, server: &Arc<str>, bytes: &[u8], stall: Duration) -> Result<(), Error> {
        let (mut sent, mut moved_at) = (0, Instant::now());
        while sent < bytes.len() {
            match self.socket.send(&bytes[sent..]) {
                Moved::Bytes(more) => (sent, moved_at) = (sent + more, Instant::now()),
                Moved::Nothing if moved_at.elapsed() >= stall => return Err(lost(server, STALLED)),
                Moved::Nothing => drop(self.socket.wait(false, self.step)),
                Moved::Failed(why) => return Err(lost(server, why)),
            }
        }
        Ok(())
    }

    /// Sends everything that was pushed.
    fn flush(&mut self, server: &Arc<str>, stall: Duration) -> Result<(), Error> {
        let bytes = self.pipe.hand_out(Vec::new());
        self.send(server, &bytes, stall)
    }

    /// Receives until no reply is owed, or until `until`, if there is one.
    fn hear(
        &mut self,
        server: &Arc<str>,
        until: Option<Instant>,
        mut deliver: impl FnMut(Delivery<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while self.pipe.owed() > 0 {
            let moved = self.socket.receive(self.input.room());
            let now = Instant::now();
            match moved {
                Moved::Bytes(0) => return Err(lost(server, CLOSED)),
                Moved::Failed(why) => return Err(lost(server, why)),
                Moved::Nothing => self.pipe.tick(now, |_| ()).map_err(|broken| error_of(broken, server))?,
                Moved::Bytes(bytes) => {
                    self.input.put(bytes);
                    let mut result = Ok(());
                    let received = self.pipe.receive(&mut self.input, now, |_, delivery| {
                        if result.is_ok() {
                            result = deliver(delivery);
                        }
                    });
                    result?;
                    received.map_err(|broken| error_of(broken, server))?;
                }
            }
            if until.is_some_and(|until| now >= until) {
                return Err(lost(server, STALLED));
            }
        }
        Ok(())
    }

    fn push(&mut self, request: &Request<'_>) {
        let now = Instant::now();
        let tag = Tag { op: 0, item: 0 };
        self.pipe.push(request, tag, now, now + NEVER).expect("nothing is owed on it");
    }
}

/// The answer of a reply whose value was written elsewhere.
fn answered(head: &crate::wire::Head<'_>) -> Answer {
    Answer::new(0, head, 0..0, false)
}

impl Fleet<Lane> {
    /// Calls `ask` with a server's connection, which is kept if the call succeeds.
    fn alone<T>(
        &self,
        server: &Server<Lane>,
        deadline: Instant,
        ask: impl FnOnce(&mut Direct) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Error> {
        let late = || Error::Timeout(Arc::clone(&server.name), Outcome::NotSent);
        let (taken, kept) = server.alone.take(deadline).ok_or_else(late)?;
        let mut direct = match kept.and_then(|kept| self.still_good(server, kept, deadline)) {
            Some(direct) => direct,
            None => {
                self.admit(server)?;
                let left = deadline.saturating_duration_since(Instant::now());
                // The kept connection, another caller or another server has taken all of it: this server was not tried.
                if left.is_zero() {
                    return Err(late());
                }
                let limit = self.config.dial_timeout.min(left);
                let began = self.begins();
                let connected = self.connected(server, &Arc::new(OpenFd::default()), limit);
                self.tried(server, began, connected.as_ref().err());
                let (socket, dialect, step) = connected?;
                let limits = Limits { in_flight: 1, verify: false, ..self.limits() };
                let pipe = Pipe::new(dialect, limits, Instant::now());
                Direct { socket: Arc::new(socket), pipe, input: Input::default(), step }
            }
        };
        taken.lock().under_way = Some(Arc::clone(&direct.socket));
        // A concurrent close of the client either finds this connection, or is noticed here.
        self.admit(server)?;
        let result = ask(&mut direct);
        if let Err(Error::Lost(_, _, outcome)) = result
            && self.is_closed()
        {
            return Ok(Err(Error::Closed(outcome)));
        }
        let is_good = matches!(&result, Ok(_) | Err(Error::Absent | Error::Conflict | Error::NotStored));
        if is_good && direct.pipe.owed() == 0 {
            let mut state = taken.lock();
            // A close of the client sets the flag before it takes this lock: either the flag is seen here, or the close ends
            // the kept connection.
            if !self.is_closed() {
                state.kept = Some(direct);
            }
        }
        Ok(result)
    }

    /// The connection, if it still answers: the server may have closed it.
    fn still_good(&self, server: &Server<Lane>, mut direct: Direct, deadline: Instant) -> Option<Direct> {
        let stall = self.config.stall_timeout;
        direct.push(&Request::new(Ask::Barrier, b""));
        direct.flush(&server.name, stall).ok()?;
        direct.hear(&server.name, Some(deadline), |_| Ok(())).ok()?;
        Some(direct)
    }
}

impl Client {
    /// Writes a key's value to `to` as it arrives, on a connection that no other call uses meanwhile. `None` if there is no
    /// value; then nothing is written.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Local`] if `to` fails. What was written before an error is a part of the value.
    pub fn get_to(&self, key: &[u8], want: Want, to: &mut impl Write) -> Result<Option<Meta>, Error> {
        let get = Ask::Get(Get { want, ..Get::default() });
        let answer = self.on_its_own(key, get, None, |direct, request, server, stall| {
            let unknown = |error: Error| error.with(Outcome::Unknown);
            direct.push(request);
            direct.flush(server, stall).map_err(unknown)?;
            let mut answer = None;
            let heard = direct.hear(server, None, |delivery| match delivery {
                Delivery::Part(bytes) => to.write_all(bytes).map_err(|error| Error::Local(error.into())),
                Delivery::Reply(head, value) => {
                    if head.status == Status::Value {
                        to.write_all(value).map_err(|error| Error::Local(error.into()))?;
                    }
                    answer = Some(answered(&head));
                    Ok(())
                }
                Delivery::Refused(_) => unreachable!("no request is quiet"),
            });
            heard.map_err(unknown)?;
            result_of(Kind::Get, answer.expect("nothing is owed any more"), &[], server)
        })?;
        Ok(found(&answer).then(|| Meta::of(&answer)))
    }

    /// Makes a request of one key on a connection that no other call uses meanwhile.
    fn on_its_own(
        &self,
        key: &[u8],
        ask: Ask<'_>,
        cas: Option<u64>,
        mut call: impl FnMut(&mut Direct, &Request<'_>, &Arc<str>, Duration) -> Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        let (fleet, mut full) = (self.fleet(), Vec::new());
        let began = fleet.begins();
        let key = fleet.config.key(key, &mut full);
        let (key, base64) = key.inspect_err(|error| fleet.asked(began, &ask, None, Err(error)))?;
        let (deadline, stall) = (self.deadline(), fleet.config.stall_timeout);
        let mut aim = Aim::new(fleet, key);
        loop {
            let ask = limited(ask, aim.target.ttl_max);
            let request = Request { cas, base64, ..Request::new(ask, key) };
            let server = aim.server();
            let result = fleet.alone(server, deadline, |direct| match request.fits(direct.pipe.dialect()) {
                true => call(direct, &request, &server.name, stall),
                false => Err(Error::Unsupported),
            });
            match result {
                // The request was not sent yet.
                Err(Error::Down(..)) if aim.moves_on(fleet, key) => {}
                result => {
                    let result = result.and_then(|result| result);
                    fleet.asked(began, &ask, Some(&aim.server().name), result.as_ref());
                    return result;
                }
            }
        }
    }
}

impl Set<'_> {
    /// Stores `bytes` bytes from `from`, in place of the value, on a connection that no other call uses meanwhile.
    ///
    /// # Errors
    /// As [`Set::send`]; [`Error::Local`] if `from` fails or ends early: nothing is stored then.
    pub fn send_from(self, from: &mut impl Read, bytes: u64) -> Result<Stored, Error> {
        let (client, key, ask, cas) = self.parts();
        let Ok(bytes) = usize::try_from(bytes) else { return Err(Error::TooLarge) };
        let answer = client.on_its_own(key, ask, cas, |direct, request, server, stall| {
            let mut head = Vec::new();
            request.write_line(direct.pipe.dialect(), bytes, &mut head);
            let group = Group { bytes: &head, kind: Kind::Store, replies: 1, quiet: false, opaque: None };
            let (tag, now) = (Tag { op: 0, item: 0 }, Instant::now());
            direct.pipe.push_group(&group, tag, now, now + NEVER).expect("nothing is owed on it");
            direct.flush(server, stall)?;
            let (mut left, mut piece) = (bytes, vec![0; PIECE_BYTES.min(bytes)]);
            while left > 0 {
                let room = piece.len().min(left);
                let read = match from.read(&mut piece[..room]) {
                    Ok(0) => return Err(Error::Local(SHORT)),
                    Ok(read) => read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(Error::Local(error.into())),
                };
                direct.send(server, &piece[..read], stall).map_err(|error| error.with(Outcome::NotSent))?;
                left -= read;
            }
            // From here on the value may be stored.
            let unknown = |error: Error| error.with(Outcome::Unknown);
            direct.send(server, b"\r\n", stall).map_err(unknown)?;
            let mut answer = None;
            direct
                .hear(server, None, |delivery| {
                    if let Delivery::Reply(head, _) = delivery {
                        answer = Some(answered(&head));
                    }
                    Ok(())
                })
                .map_err(unknown)?;
            result_of(Kind::Store, answer.expect("nothing is owed any more"), &[], server)
        })?;
        Ok(stored(&answer))
    }
}

/// The reason why nothing was stored.
pub const SHORT: Reason = Reason::said("it has fewer bytes than were to be stored");
