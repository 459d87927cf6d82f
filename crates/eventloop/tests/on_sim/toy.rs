//! A handler that serves a toy protocol over the simulated network. The line `e<text>\n` is echoed. `x<n>\n`
//! gets a reply of n bytes. `w\n` is work, which ends the connection's turn; three of them spend the budget.
//! `u<n>\n` receives n bytes directly, and gets their sum as reply. `a\n` waits until the connection is
//! woken, `a<n>\n` for n milliseconds at most. `t<n>\n` sleeps for n milliseconds. `q\n` closes the
//! connection.

use std::io::IoSlice;

use larder_eventloop::sim::{Peer, Sim, SimStream, Weather};
use larder_eventloop::{
    Between, Closed, Destination, EventLoop, Handler, Id, Limits, Outgoing, Stream, Taken, Wait,
};

/// A connection with more unsent reply bytes than this is not read from.
pub const REPLY_BYTES_MAX: u64 = 10_000;

/// The limits in most tests.
pub const LIMITS: Limits = Limits {
    reply_bytes_max: REPLY_BYTES_MAX,
    idle_ms: 0,
    stall_ms: 60_000,
    request_ms: 60_000,
    unauthenticated_ms: 10_000,
};

#[derive(Default)]
pub struct Toy {
    pub closed: Vec<Closed>,
    pub sends: u64,
    pub fills: u64,
    /// Whether a complete upload ends the connection's turn.
    pub yields: bool,
    /// Whether each piece of an upload spends the budget.
    pub spends_budget: bool,
    pub unsent_most: u64,
    /// Work since the last wake-up, and in total.
    pub worked: (u32, u32),
    /// Replies are offered in pieces of this many bytes; 0: in one piece.
    pub slices_of: usize,
    /// Memory of all streams, as reported by the loop.
    pub streams_bytes: usize,
    /// Whether to close connections that are processed before they have sent anything.
    pub turns_away: bool,
    /// Bytes processed since the last wake-up. The budget is nearly spent from `nearly_spent_from` of them
    /// on; 0: never.
    pub looked_at: usize,
    pub nearly_spent_from: usize,
    /// Nanoseconds of work for each byte.
    pub byte_ns: u64,
}

#[derive(Default)]
pub struct Conn {
    out: Vec<u8>,
    upload: Vec<u8>,
    upload_at: usize,
    /// Whether replies wait for the peer to read.
    waits: bool,
}

impl Conn {
    fn uploaded(&mut self) {
        let sum: u64 = self.upload.iter().map(|&b| u64::from(b)).sum();
        self.out.extend_from_slice(format!("{sum}\n").as_bytes());
        self.upload = Vec::new();
        self.upload_at = 0;
    }
}

impl Handler for Toy {
    type Connection = Conn;

    fn woke(&mut self, _now_ns: u64) {
        self.worked.0 = 0;
        self.looked_at = 0;
    }

    fn budget_nearly_spent(&self) -> bool {
        self.nearly_spent_from > 0 && self.looked_at >= self.nearly_spent_from
    }

    fn budget_spent(&self) -> bool {
        self.worked.0 >= 3
    }

    fn spent_ns(&self) -> u64 {
        self.looked_at as u64 * self.byte_ns
    }

    fn received(&mut self, conn: &mut Conn, input: &[u8]) -> Taken {
        self.looked_at += input.len();
        let mut at = 0;
        if self.turns_away {
            conn.out.extend_from_slice(b"no\n");
            return Taken { bytes: input.len(), wait: Wait::End };
        }
        if !conn.upload.is_empty() && conn.upload_at == conn.upload.len() {
            conn.uploaded();
        }
        while conn.upload.is_empty() {
            if conn.out.len() as u64 >= REPLY_BYTES_MAX {
                return Taken { bytes: at, wait: Wait::Room };
            }
            let Some(len) = input[at..].iter().position(|&b| b == b'\n') else { break };
            let line = std::str::from_utf8(&input[at..at + len]).unwrap();
            at += len + 1;
            match line.as_bytes()[0] {
                b'e' => conn.out.extend_from_slice(format!("{line}\n").as_bytes()),
                b'x' => conn.out.resize(conn.out.len() + line[1..].parse::<usize>().unwrap(), b'x'),
                b'u' => conn.upload = vec![0; line[1..].parse().unwrap()],
                b'w' => {
                    self.worked = (self.worked.0 + 1, self.worked.1 + 1);
                    return Taken { bytes: at, wait: Wait::Turn };
                }
                b'a' => return Taken { bytes: at, wait: Wait::Wake(line[1..].parse().ok()) },
                b't' => return Taken { bytes: at, wait: Wait::Time(line[1..].parse().unwrap()) },
                b'q' => return Taken { bytes: at, wait: Wait::End },
                other => panic!("not in the toy protocol: {other}"),
            }
            if !conn.upload.is_empty() {
                let bytes = conn.upload.len().min(input.len() - at);
                conn.upload[..bytes].copy_from_slice(&input[at..at + bytes]);
                conn.upload_at = bytes;
                at += bytes;
                if conn.upload_at == conn.upload.len() {
                    conn.uploaded();
                }
            }
        }
        Taken { bytes: at, wait: Wait::Input }
    }

    fn destination<'d>(&'d mut self, conn: &'d mut Conn) -> Option<Destination<'d>> {
        let rest = &mut conn.upload[conn.upload_at..];
        if rest.is_empty() {
            return None;
        }
        // Pieces of 300 bytes, as a store would provide them.
        let missing = rest.len() as u64;
        Some(Destination::new(rest.chunks_mut(300), missing))
    }

    fn filled(&mut self, conn: &mut Conn, bytes: usize) -> Wait {
        self.fills += 1;
        if self.spends_budget {
            self.worked.0 += 3;
        }
        conn.upload_at += bytes;
        if self.yields && conn.upload_at == conn.upload.len() {
            return Wait::Turn;
        }
        Wait::Input
    }

    fn awaits_rest(&self, conn: &Conn) -> bool {
        !conn.upload.is_empty()
    }

    fn replies<'r>(&'r mut self, conn: &'r mut Conn) -> Outgoing<'r> {
        match (conn.out.is_empty(), self.slices_of) {
            (true, _) => Outgoing::None,
            (false, 0) => Outgoing::Bytes(&conn.out),
            (false, _) => Outgoing::Slices,
        }
    }

    fn slices<'r>(&'r mut self, conn: &'r mut Conn, into: &mut [IoSlice<'r>]) -> usize {
        let mut used = 0;
        for (piece, slice) in conn.out.chunks(self.slices_of).zip(into) {
            *slice = IoSlice::new(piece);
            used += 1;
        }
        used
    }

    fn sent(&mut self, conn: &mut Conn, bytes: u64) -> u64 {
        self.sends += 1;
        conn.out.drain(..bytes as usize);
        conn.waits = !conn.out.is_empty();
        self.unsent_most = self.unsent_most.max(conn.out.len() as u64);
        conn.out.len() as u64
    }

    fn stream_holds(&mut self, _: &mut Conn, before: Between, now: Between) {
        self.streams_bytes = self.streams_bytes + now.memory - before.memory;
    }

    fn stream_opened(&mut self, _: u64) {
        // This is as much work as the whole budget.
        self.worked.0 += 3;
    }

    fn deferrable(&self, conn: &Conn) -> Option<u64> {
        (!conn.out.is_empty() && !conn.waits).then_some(conn.out.len() as u64)
    }

    fn closed(&mut self, _id: Id, conn: Conn, why: Closed) {
        drop(conn);
        self.closed.push(why);
    }
}

pub struct World<S: Stream + AsRef<SimStream> = SimStream> {
    pub events: EventLoop<Sim<S>, Conn>,
    pub toy: Toy,
}

impl World {
    pub fn new(seed: u64, weather: Weather, limits: Limits) -> World {
        World::over(seed, weather, limits)
    }

    pub fn connect(&mut self) -> Peer {
        self.connect_by(|stream| stream)
    }
}

impl<S: Stream + AsRef<SimStream>> World<S> {
    /// A world whose streams are made over those of the network.
    pub fn over(seed: u64, weather: Weather, limits: Limits) -> World<S> {
        World { events: EventLoop::new(Sim::over(seed, weather), limits), toy: Toy::default() }
    }

    pub fn connect_by(&mut self, over: impl FnOnce(SimStream) -> S) -> Peer {
        let (stream, peer) = self.events.backend().connect();
        self.events.adopt(over(stream), Conn::default()).unwrap();
        peer
    }

    /// Takes turns until nothing is due.
    pub fn run_until_idle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.events.backend().busy() {
                // One turn more, for connections that are queued without an event.
                self.turn();
                if !self.events.backend().busy() {
                    return;
                }
            }
            self.turn();
        }
        panic!("the loop does not come to rest");
    }

    pub fn turn(&mut self) {
        self.events.turn(&mut self.toy, Some(std::time::Duration::ZERO)).unwrap();
    }

    pub fn pass(&mut self, ms: u64) {
        let until = self.events.now() + ms;
        while self.events.now() < until {
            let left = std::time::Duration::from_millis(until - self.events.now());
            self.events.turn(&mut self.toy, Some(left)).unwrap();
        }
    }

    pub fn read_all(&mut self, peer: &Peer) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            self.run_until_idle();
            let bytes = peer.read(usize::MAX);
            if bytes.is_empty() {
                return all;
            }
            all.extend(bytes);
        }
    }
}
