//! A client's connection: what waits to be sent, what was asked and is not answered, and what has come.

use std::collections::VecDeque;
use std::net::SocketAddr;

use larder_eventloop::Millis;
use larder_eventloop::sim::Peer;

use crate::world::asking::Asking;
use crate::world::part::Part;
use crate::world::scene::Scene;

/// A request, or several that only make sense together.
#[derive(Debug)]
pub struct Request {
    /// What is missing of its reply.
    pub parts: VecDeque<Part>,
    /// What had been asked on the connection with its last byte.
    pub end: u64,
    /// And with the byte from which on it may be done: what is quiet has a command behind it that answers.
    pub done: u64,
    /// For the record.
    pub text: String,
}

impl Request {
    /// It is answered when somebody pushes, or its time is over.
    pub fn awaits(&self) -> bool {
        matches!(self.parts.front(), Some(Part::Popped { waits: true, .. }))
    }
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not yet.
    None,
    /// The client sends no more; it is answered, and then closed.
    Ended,
    /// The client has reset it, or will when it has had so many bytes.
    Reset,
}

/// A connection.
#[derive(Debug)]
pub struct Line {
    pub peer: Peer,
    pub address: SocketAddr,
    unsent: VecDeque<u8>,
    /// Bytes of all requests, and how many of them were sent.
    asked: u64,
    pub sent: u64,
    pub requests: VecDeque<Request>,
    input: Vec<u8>,
    /// So much of the input is judged.
    at: usize,
    pub ending: Ending,
    /// The client reads nothing until then.
    pub rests_until: Millis,
    /// When something last moved, in fair time; and what had moved by then.
    moved_us: u64,
    seen: (u64, usize, u64),
    received: u64,
}

/// A client that reads, and whose request is there, has to wait no longer without anything moving.
const PATIENCE_US: u64 = 1_000_000;

impl Line {
    pub fn new(scene: &Scene, peer: Peer, address: SocketAddr) -> Line {
        Line {
            peer,
            address,
            unsent: VecDeque::new(),
            asked: 0,
            sent: 0,
            requests: VecDeque::new(),
            input: Vec::new(),
            at: 0,
            ending: Ending::None,
            rests_until: 0,
            moved_us: scene.fair_us,
            seen: (0, 0, 0),
            received: 0,
        }
    }

    /// Where it stands.
    pub fn shown(&self) -> String {
        format!(
            "from {}, {} requests open, of {} bytes {} sent and {} not taken, {} received, {:?}, closed {}",
            self.address,
            self.requests.len(),
            self.asked,
            self.sent,
            self.peer.untaken(),
            self.received,
            self.ending,
            self.peer.closed()
        )
    }

    /// Puts a request on its way.
    pub fn ask(&mut self, Asking { bytes, behind, parts, text }: Asking) {
        self.unsent.extend(&bytes);
        self.unsent.extend(behind);
        let done = self.asked + bytes.len() as u64;
        self.asked = done + behind.len() as u64;
        self.requests.push_back(Request { parts: parts.into(), end: self.asked, done, text });
    }

    /// Sends a piece of what waits; how many bytes.
    pub fn send(&mut self, scene: &mut Scene) -> usize {
        if self.unsent.is_empty() || self.ending == Ending::Ended || scene.stopping {
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
        self.peer.send(&piece);
        self.sent += bytes as u64;
        bytes
    }

    /// Everything asked was sent.
    pub fn has_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Nothing is asked that is not answered.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.at == self.input.len()
    }

    /// Receives a piece of what has come.
    pub fn receive(&mut self, scene: &mut Scene, all: bool) {
        let bytes = match scene.random.below(6) {
            0..4 => usize::MAX,
            4 => 1 + scene.random.index(100),
            _ => 1 + scene.random.index(70_000),
        };
        let piece = self.peer.read(if all { usize::MAX } else { bytes });
        self.received += piece.len() as u64;
        self.input.extend(piece);
    }

    /// What has come and is not judged.
    pub fn rest(&self) -> &[u8] {
        &self.input[self.at..]
    }

    /// So many bytes more are judged.
    pub fn judged(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at == self.input.len() || self.at > 1 << 20 {
            self.input.drain(..self.at);
            self.at = 0;
        }
    }

    /// Waits for a reply whose request was sent, and reads. Something has to move.
    pub fn waits_too_long(&mut self, scene: &Scene) -> bool {
        let now = (self.sent, self.peer.untaken(), self.received);
        let waits =
            self.requests.front().is_some_and(|request| request.end <= self.sent && !request.awaits());
        if now != self.seen || !waits || self.ending == Ending::Reset || scene.now() < self.rests_until {
            self.seen = now;
            self.moved_us = scene.fair_us;
        }
        scene.fair_us - self.moved_us > PATIENCE_US
    }
}
