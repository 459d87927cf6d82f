//! A client that connects by TLS, asks one question, and leaves: what a handshake costs a server, and how it delays others.
//!
//! ```text
//! connect ─► handshake ─► version / PING ─► reply ─► close          again, at once or at times of a clock
//! ```
//!
//! The question makes both sides end the handshake: in TLS 1.3 the server's tickets come behind it, and in front of the reply.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::socket::Address;
use larder_tls::{ClientOptions, Connector, Trust};

use crate::control::Family;
use crate::endpoint::Endpoint;
use crate::error::Error;

/// How long a server may take for a handshake, and for a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest reply to the question.
const REPLY_BYTES_MAX: usize = 512;

/// Reads the authority by which a client trusts a server at an IPv4 address of this machine.
///
/// # Errors
/// [`Error::Usage`] when the file cannot be used.
pub fn connector(authority: PathBuf) -> Result<Connector, Error> {
    let options = ClientOptions { trust: Trust::File(authority), pair: None };
    Connector::load("127.0.0.1", options).map_err(Error::Usage)
}

/// Connections, and those of them that resumed an earlier session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Connections, each with a handshake.
    pub all: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
}

impl Count {
    /// Adds another client's.
    pub fn add(&mut self, other: Count) {
        self.all += other.all;
        self.resumed += other.resumed;
    }
}

/// The client.
#[derive(Debug)]
pub struct Client {
    family: Family,
    address: Address,
    authority: PathBuf,
    /// The sessions to resume; `None` for a client that knows none.
    sessions: Option<Connector>,
}

impl Client {
    /// A client of the server at `address` whose certificate `authority` has signed. If it `resumes`, each of its connections
    /// after the first offers the session of the one before.
    ///
    /// # Errors
    /// [`Error::Usage`] when the authority cannot be read.
    pub fn new(family: Family, address: Address, authority: PathBuf, resumes: bool) -> Result<Client, Error> {
        let known = connector(authority.clone())?;
        Ok(Client { family, address, authority, sessions: resumes.then_some(known) })
    }

    /// Connects, asks, and closes. Returns whether the handshake resumed a session.
    ///
    /// # Errors
    /// [`Error::Connect`] when the handshake fails, [`Error::Reply`] when the answer is not the question's.
    pub fn connect(&self) -> Result<bool, Error> {
        let tls = match &self.sessions {
            Some(sessions) => sessions.clone(),
            // Another connector knows no session of this one. Its file is read again, on the client's core.
            None => connector(self.authority.clone())?,
        };
        let endpoint = Endpoint { address: self.address.clone(), login: None, tls: Some(tls) };
        let refused = |error| Error::Connect(endpoint.to_string(), error);
        let mut conversation = endpoint.converse(PATIENCE).map_err(refused)?;
        let (question, answer) = match self.family {
            Family::Memcached => ("version\r\n", "VERSION "),
            // An array: where Larder speaks both protocols at one port, RESP begins with a star.
            Family::Redis => ("*1\r\n$4\r\nPING\r\n", "+PONG\r\n"),
        };
        conversation.send(question.as_bytes()).map_err(Error::lost)?;
        let (mut reply, mut buffer) = (Vec::new(), [0; REPLY_BYTES_MAX]);
        while !reply.ends_with(b"\r\n") {
            match conversation.receive(&mut buffer).map_err(Error::lost)? {
                0 => return Err(Error::Closed),
                received => reply.extend_from_slice(&buffer[..received]),
            }
            if reply.len() > REPLY_BYTES_MAX {
                return Err(Error::endless(REPLY_BYTES_MAX, &reply));
            }
        }
        match reply.starts_with(answer.as_bytes()) {
            true => Ok(conversation.is_resumed()),
            false => Err(Error::malformed(&reply)),
        }
    }

    /// Connects again and again for `time`, one connection after the other.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_for(&self, time: Duration) -> Result<Count, Error> {
        let began = Instant::now();
        let mut count = Count::default();
        while began.elapsed() < time {
            self.connect_once(&mut count)?;
        }
        Ok(count)
    }

    /// Connects `per_s` times a second for `time`. A connection that is due while another is under way follows at once.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_at(&self, per_s: f64, time: Duration) -> Result<Count, Error> {
        let began = Instant::now();
        let (mut due, gap) = (began, Duration::from_secs_f64(1.0 / per_s));
        let mut count = Count::default();
        while due < began + time {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if began.elapsed() >= time {
                break;
            }
            self.connect_once(&mut count)?;
            due += gap;
        }
        Ok(count)
    }

    fn connect_once(&self, count: &mut Count) -> Result<(), Error> {
        let resumed = self.connect()?;
        count.add(Count { all: 1, resumed: u64::from(resumed) });
        Ok(())
    }
}
