//! A client's connection: bytes to send, requests without a reply, and received bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;

use larder_eventloop::Millis;

use crate::world::asking::Asking;
use crate::world::part::Part;
use crate::world::scene::Scene;
use crate::world::users::Stamp;
use crate::world::wire::{Received, Wire};

/// A request, or several that only make sense together.
#[derive(Debug)]
pub struct Request {
    /// The missing parts of its reply.
    pub parts: VecDeque<Part>,
    /// Bytes of all requests on the connection up to the end of this one.
    pub end: u64,
    /// Bytes on the connection after which the request may be carried out. For a command without a reply that
    /// is before `end`, which is the end of the command behind it.
    pub done: u64,
    /// The text of the request for the journal.
    pub text: String,
    /// What was known of the client's user when the request was queued.
    pub stamp: Stamp,
    /// The client's user was removed before: the request gets no reply.
    pub is_void: bool,
}

impl Request {
    /// True if the reply may come late: it waits for a push or a timeout, or for the delay after a wrong
    /// password.
    pub fn awaits(&self) -> bool {
        matches!(
            self.parts.front(),
            Some(Part::Popped { waits: true, .. } | Part::Login { .. } | Part::Hello { logs_in: true })
        )
    }
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The connection stays open.
    None,
    /// The client sends no more; it gets its replies, and is then closed.
    Ended,
    /// The client has reset the connection, or will after some more bytes.
    Reset,
}

/// A connection.
#[derive(Debug)]
pub struct Line {
    pub wire: Wire,
    pub address: SocketAddr,
    unsent: VecDeque<u8>,
    /// Bytes of all requests, and how many of them were sent.
    asked: u64,
    pub sent: u64,
    /// Bytes up to the end of the last request that has its reply.
    answered: u64,
    pub requests: VecDeque<Request>,
    input: Vec<u8>,
    /// This many bytes of the input are checked.
    at: usize,
    pub ending: Ending,
    /// The client reads nothing before this time.
    pub rests_until: Millis,
    /// When any bytes last moved, in fair time; and how many had moved by then.
    moved_us: u64,
    seen: (u64, usize, u64),
    /// Bytes that the network has brought.
    received: u64,
    /// The client has received bytes from the session, which come after the handshake.
    heard: bool,
    /// When the connection was made.
    pub since: Millis,
    /// The server refuses all requests here, since the user was removed.
    pub is_refused: bool,
}

/// A client that reads and has sent its request waits no longer than this without bytes that move.
const PATIENCE_US: u64 = 1_000_000;

impl Line {
    pub fn new(scene: &Scene, wire: Wire, address: SocketAddr) -> Line {
        Line {
            wire,
            address,
            unsent: VecDeque::new(),
            asked: 0,
            sent: 0,
            answered: 0,
            requests: VecDeque::new(),
            input: Vec::new(),
            at: 0,
            ending: Ending::None,
            rests_until: 0,
            moved_us: scene.fair_us,
            seen: (0, 0, 0),
            received: 0,
            heard: false,
            since: scene.now(),
            is_refused: false,
        }
    }

    /// The connection's state, for messages.
    pub fn shown(&self) -> String {
        format!(
            "from {}, open {}, {} requests, of {} bytes {} sent, {} not taken, {} received, {:?}, closed {}",
            self.address,
            self.wire.is_open(),
            self.requests.len(),
            self.asked,
            self.sent,
            self.wire.peer().untaken(),
            self.received,
            self.ending,
            self.wire.peer().closed()
        )
    }

    /// Queues a request; `stamp`: what is known of the client's user now.
    pub fn ask(&mut self, scene: &Scene, Asking { bytes, behind, parts, text }: Asking, stamp: Stamp) {
        let is_void = scene.users.removed.contains(&self.address);
        self.unsent.extend(&bytes);
        self.unsent.extend(behind);
        let done = self.asked + bytes.len() as u64;
        self.asked = done + behind.len() as u64;
        self.requests.push_back(Request { parts: parts.into(), end: self.asked, done, text, stamp, is_void });
    }

    /// Sends some of the queued bytes and returns how many; during the handshake, sends its bytes and returns
    /// 0.
    pub fn send(&mut self, scene: &mut Scene) -> usize {
        if self.ending == Ending::None {
            self.wire.flush();
        }
        // Requests wait until the handshake is complete. A request that was not sent cannot have been carried
        // out.
        let is_ready = !self.unsent.is_empty() && self.wire.is_open();
        if !is_ready || self.ending == Ending::Ended || scene.stopping {
            return 0;
        }
        let all = self.unsent.len();
        let bytes = match scene.random.below(6) {
            0..3 => all,
            3 => 1 + scene.random.index(all),
            4 => all.min(1 + scene.random.index(100)),
            _ => all.min(1 + scene.random.index(70_000)),
        };
        let piece: Vec<u8> = self.unsent.drain(..bytes).collect();
        self.wire.send(&piece);
        self.sent += bytes as u64;
        scene.books.bytes.sent += bytes as u64;
        bytes
    }

    /// Notes that the first request has its whole reply.
    pub fn end_request(&mut self) {
        if let Some(request) = self.requests.pop_front() {
            self.answered = request.end;
        }
    }

    /// Bytes that were sent after the last request that has its reply.
    pub fn unanswered_bytes(&self) -> u64 {
        self.sent.saturating_sub(self.answered)
    }

    /// True if all requests are sent.
    pub fn has_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// True if no request lacks its reply.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.at == self.input.len()
    }

    /// Receives some of the bytes that have come, or all of them.
    pub fn receive(&mut self, scene: &mut Scene, all: bool) {
        let bytes = match scene.random.below(6) {
            0..4 => usize::MAX,
            4 => 1 + scene.random.index(100),
            _ => 1 + scene.random.index(70_000),
        };
        let Received { moved, plain } = self.wire.receive(if all { usize::MAX } else { bytes });
        if !self.heard && !plain.is_empty() {
            self.heard = true;
            scene.books.tls += u64::from(self.wire.is_tls());
            scene.books.resumed += u64::from(self.wire.is_resumed());
        }
        self.received += moved;
        scene.books.bytes.received += plain.len() as u64;
        self.input.extend(plain);
    }

    /// True if the server has begun to answer: its side of the handshake is complete.
    pub fn is_begun(&self) -> bool {
        self.heard || !self.wire.is_tls()
    }

    /// The received bytes that are not checked yet.
    pub fn rest(&self) -> &[u8] {
        &self.input[self.at..]
    }

    /// Marks this many more bytes as checked.
    pub fn judged(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at == self.input.len() || self.at > 1 << 20 {
            self.input.drain(..self.at);
            self.at = 0;
        }
    }

    /// True if the client reads and waits too long for the end of a handshake, or for a reply to a request that it has sent,
    /// while no bytes move.
    pub fn waits_too_long(&mut self, scene: &Scene) -> bool {
        let now = (self.sent, self.wire.peer().untaken(), self.received);
        let waits = !self.wire.is_open()
            || self.requests.front().is_some_and(|request| request.end <= self.sent && !request.awaits());
        if now != self.seen || !waits || self.ending == Ending::Reset || scene.now() < self.rests_until {
            self.seen = now;
            self.moved_us = scene.fair_us;
        }
        scene.fair_us - self.moved_us > PATIENCE_US
    }
}
