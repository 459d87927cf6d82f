//! A scraper: a client of the HTTP listener, which checks each answer.

use std::collections::VecDeque;
use std::net::IpAddr;

use larder_eventloop::Millis;
use larder_eventloop::sim::Peer;
use larder_server::http::Status;

use crate::world::line::Ending;
use crate::world::lobby::Lobby;
use crate::world::random::Random;
use crate::world::scene::Scene;
use crate::world::scrapes::Scrapes;
use crate::world::visit::{Answer, Body, Visit};

/// Requests on their way at a time.
const DEPTH: usize = 3;

/// A scraper that reads and has sent its request waits at most this long without moving bytes, in the HTTP
/// thread's fair time. The server delays some logins by a second.
const PATIENCE_US: u64 = 3_000_000;

/// Time for a request's head to arrive. After it the server refuses the request.
const HEAD_MS: Millis = 5_000;

/// All that a scraper's action reads and changes.
pub struct Stage<'a> {
    pub scene: &'a mut Scene,
    pub random: &'a mut Random,
    pub scrapes: &'a mut Scrapes,
    pub lobby: &'a Lobby,
    /// Fair time of the HTTP thread, in microseconds.
    pub fair_us: u64,
    /// Clients reset their connections.
    pub resets: bool,
    /// Nothing is cut or slow any more, and only metrics are asked for.
    pub calm: bool,
}

/// A request without an answer, and the position of its end among all bytes that the connection sends.
#[derive(Debug)]
struct Asked {
    visit: Visit,
    end: u64,
    at: Millis,
}

/// A connection.
#[derive(Debug)]
struct Line {
    peer: Peer,
    unsent: VecDeque<u8>,
    asked: u64,
    sent: u64,
    requests: VecDeque<Asked>,
    input: Vec<u8>,
    received: u64,
    ending: Ending,
    /// A request that ends the connection was queued: no other follows.
    ends: bool,
    /// The scraper reads nothing before this time.
    rests_until: Millis,
    /// When any bytes last moved, in fair time; and how many had moved by then.
    moved_us: u64,
    seen: (u64, usize, u64),
}

/// A scraper.
#[derive(Debug)]
pub struct Scraper {
    name: String,
    address: IpAddr,
    /// Requests that the scraper still has to send.
    pub left: u64,
    /// Its next request is sent in part, and never completed.
    is_half: bool,
    /// Its connections take few bytes at a time.
    is_slow: bool,
    line: Option<Line>,
    /// When it acts next.
    pub next_at: Millis,
}

impl Line {
    /// Queues a request.
    fn ask(&mut self, stage: &mut Stage<'_>, visit: Visit) {
        self.unsent.extend(&visit.head);
        self.asked += visit.head.len() as u64;
        self.ends = visit.ends;
        stage.scrapes.asked += u64::from(visit.counts);
        self.requests.push_back(Asked { end: self.asked, at: stage.scene.now(), visit });
    }

    /// Sends a part of what is queued.
    fn send(&mut self, random: &mut Random) {
        let all = self.unsent.len();
        if all == 0 || self.ending != Ending::None {
            return;
        }
        let bytes = if random.one_in(3) { 1 + random.index(all) } else { all };
        let piece: Vec<u8> = self.unsent.drain(..bytes).collect();
        self.peer.send(&piece);
        self.sent += bytes as u64;
    }

    fn receive(&mut self, bytes_max: usize) {
        let bytes = self.peer.read(bytes_max);
        self.received += bytes.len() as u64;
        self.input.extend(bytes);
    }

    /// Checks the answers that have come.
    fn judge(&mut self, scrapes: &mut Scrapes, now: Millis) -> Result<(), String> {
        while !self.input.is_empty() {
            let Some(Asked { visit, at, .. }) = self.requests.front() else {
                return Err(format!("this is no answer to anything: {}", self.input.escape_ascii()));
            };
            let Some(answer) = Answer::parse(&self.input, visit.head_only)? else { return Ok(()) };
            let text = || visit.head[..visit.head.len().min(100)].escape_ascii().to_string();
            visit.check(&answer).map_err(|wrong| format!("{}: {wrong}", text()))?;
            if answer.status == Status::RequestTimeout.line() && now < at + HEAD_MS {
                return Err(format!("{}: it had {} ms to come", text(), now - at));
            }
            if let Body::Page(known) = visit.body {
                scrapes.add(answer.body, known)?;
            }
            scrapes.answered += u64::from(visit.counts);
            let bytes = answer.bytes;
            self.input.drain(..bytes);
            self.requests.pop_front();
        }
        Ok(())
    }

    /// True if nothing moves for too long while the scraper reads and has sent its request.
    fn waits_too_long(&mut self, fair_us: u64, now: Millis) -> bool {
        let moved = (self.sent, self.peer.untaken(), self.received);
        let front = self.requests.front().filter(|asked| asked.end <= self.sent);
        if moved != self.seen || front.is_none() || self.ending == Ending::Reset || now < self.rests_until {
            self.seen = moved;
            self.moved_us = fair_us;
            return false;
        }
        let is_half = front.is_some_and(|asked| asked.visit.is_half());
        fair_us - self.moved_us > PATIENCE_US + if is_half { HEAD_MS * 1000 } else { 0 }
    }
}

impl Scraper {
    /// A scraper with its own address, which sends this many requests.
    pub fn new(index: usize, left: u64, random: &mut Random) -> Scraper {
        Scraper {
            name: format!("scraper{index}"),
            address: [127, 1, 0, index as u8].into(),
            left,
            is_half: random.one_in(16),
            is_slow: random.one_in(3),
            line: None,
            next_at: 0,
        }
    }

    /// True if all requests are sent and answered.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.line.is_none()
    }

    /// Drops the connection and the requests that are left: the server is gone.
    pub fn stop(&mut self) {
        (self.left, self.line, self.next_at) = (0, None, Millis::MAX);
    }

    /// The scraper's state, for messages.
    pub fn shown(&self) -> String {
        format!("{} asks {} times more, {:?}", self.name, self.left, self.line.as_ref().map(|line| line.seen))
    }

    /// Takes one action.
    ///
    /// # Errors
    /// A byte or an end that must not come, or the lack of one that must.
    pub fn act(&mut self, stage: &mut Stage<'_>) -> Result<(), String> {
        let now = stage.scene.now();
        self.next_at = now + 1 + stage.random.below(3);
        let Some(mut line) = self.line.take() else {
            if self.left > 0 {
                self.line = Some(self.connect(stage));
            } else {
                self.next_at = Millis::MAX;
            }
            return Ok(());
        };
        let named = |wrong: String| format!("{}: {wrong}", self.name);
        let is_closed = line.peer.closed();
        if is_closed || now >= line.rests_until && line.ending != Ending::Reset {
            let some = if stage.random.one_in(3) { 1 + stage.random.index(4000) } else { usize::MAX };
            line.receive(if is_closed { usize::MAX } else { some });
            line.judge(stage.scrapes, now).map_err(named)?;
        }
        if is_closed {
            // The server answers each request that was sent completely, unless the scraper cut the
            // connection.
            let is_open = line.requests.iter().any(|asked| asked.end <= line.sent);
            if line.ending == Ending::None && !line.ends || is_open && line.ending != Ending::Reset {
                return Err(named(format!("it is closed, and waits for {} answers", line.requests.len())));
            }
            self.leave(stage, line);
            return Ok(());
        }
        if line.waits_too_long(stage.fair_us, now) {
            let asked = line.requests.front().map(|asked| asked.visit.head.escape_ascii().to_string());
            return Err(named(format!("it waits too long for an answer to {}", asked.unwrap_or_default())));
        }
        if line.requests.is_empty() && (line.ends || self.left == 0) {
            line.peer.end();
            self.leave(stage, line);
            return Ok(());
        }
        self.ask(stage, &mut line);
        line.send(stage.random);
        if !stage.calm && self.cuts(stage, &mut line) {
            self.leave(stage, line);
            return Ok(());
        }
        self.line = Some(line);
        Ok(())
    }

    fn connect(&self, stage: &mut Stage<'_>) -> Line {
        let peer = stage.lobby.connect(self.address);
        if self.is_slow && !stage.calm {
            peer.narrow(stage.random.of(&[1000, 5000]));
        }
        stage.scene.note(&format!("{} connects", self.name));
        Line {
            peer,
            unsent: VecDeque::new(),
            asked: 0,
            sent: 0,
            requests: VecDeque::new(),
            input: Vec::new(),
            received: 0,
            ending: Ending::None,
            ends: false,
            rests_until: 0,
            moved_us: stage.fair_us,
            seen: (0, 0, 0),
        }
    }

    /// Perhaps queues another request.
    fn ask(&mut self, stage: &mut Stage<'_>, line: &mut Line) {
        let may = self.left > 0 && line.ending == Ending::None && !line.ends && line.requests.len() < DEPTH;
        if !may || !stage.calm && stage.random.one_in(2) {
            return;
        }
        self.left -= 1;
        let known = stage.scrapes.known();
        let visit = if stage.calm {
            Visit::of_metrics(known)
        } else if std::mem::take(&mut self.is_half) {
            Visit::half()
        } else {
            Visit::draw(stage.scene, stage.random, known)
        };
        let text = visit.head[..visit.head.len().min(70)].escape_ascii().to_string();
        stage.scene.note(&format!("{} asks {text}", self.name));
        line.ask(stage, visit);
    }

    /// Perhaps pauses reading, or ends or resets the connection; true if it was reset at once.
    fn cuts(&self, stage: &mut Stage<'_>, line: &mut Line) -> bool {
        let now = stage.scene.now();
        if line.ending == Ending::Reset {
            // A reset that waits for more bytes never comes if all answers have come: the scraper resets now.
            if stage.random.one_in(20) {
                line.peer.reset();
            }
            return false;
        }
        if stage.random.one_in(60) {
            line.rests_until = now + stage.random.below(200);
        }
        let may_end = line.ending == Ending::None && line.unsent.is_empty() && !line.ends;
        if may_end && stage.random.one_in(60) {
            line.peer.end();
            line.ending = Ending::Ended;
            stage.scene.note(&format!("{} sends no more", self.name));
        }
        if !stage.resets {
            return false;
        }
        match stage.random.below(120) {
            0 => {
                line.peer.reset();
                stage.scene.note(&format!("{} resets", self.name));
                true
            }
            1 | 2 => {
                let bytes = 1 + stage.random.below(60_000);
                line.peer.reset_after(bytes);
                line.ending = Ending::Reset;
                stage.scene.note(&format!("{} will reset after {bytes} more bytes", self.name));
                false
            }
            _ => false,
        }
    }

    /// Notes that the connection ended. A request that was not sent completely is not carried out.
    fn leave(&self, stage: &mut Stage<'_>, line: Line) {
        let undone = line.requests.iter().filter(|asked| asked.visit.counts && asked.end > line.sent);
        stage.scrapes.asked -= undone.count() as u64;
        stage.scene.note(&format!("{} leaves", self.name));
    }
}
