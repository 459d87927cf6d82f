//! The state that all actors of a world share: its time, its plan, its books, and the last events.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_eventloop::Millis;
use larder_eventloop::sim::Time;

use crate::world::books::Books;
use crate::world::door::Door;
use crate::world::plan::Plan;
use crate::world::random::Random;
use crate::world::users::Users;
use crate::world::wire::Trust;

/// Workers read the system's clock this often, and calculate from it in between.
const CLOCK_MS: Millis = 1_100;

/// Events that a failure shows.
const SHOWN: usize = 60;

/// The journal of events.
#[derive(Debug, Default)]
pub struct Journal {
    last: VecDeque<String>,
    /// A digest of all events, in order.
    pub digest: u64,
}

impl Journal {
    /// Records an event and its time.
    pub fn note(&mut self, us: u64, text: &str) {
        for byte in text.bytes().chain(us.to_le_bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(format!("{:>10}.{:03} ms  {text}", us / 1000, us % 1000));
    }

    /// The last events, oldest first.
    pub fn shown(&self) -> String {
        self.last.iter().fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{line}");
            all
        })
    }
}

/// The state of a flush; there is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    None,
    /// It is requested just now: from here on everything may be gone.
    Begins,
    /// It may be done at any moment.
    Asked,
    /// It was answered just now: keys without requests meanwhile are gone.
    Done,
}

/// The state that all actors share.
#[derive(Debug)]
pub struct Scene {
    pub random: Random,
    pub time: Time,
    pub plan: Plan,
    pub books: Books,
    pub door: Door,
    /// How clients speak TLS, if a listener does.
    pub trust: Option<Trust>,
    /// The users of clients, if they have to log in.
    pub users: Users,
    pub journal: Journal,
    /// The system's time at the server's start, by the system's present clock: a clock that is set changes
    /// it. In microseconds, a multiple of 1,000.
    epoch_us: Arc<AtomicU64>,
    /// Earlier values of it, and until when a worker may still use them.
    epochs: Vec<(Millis, Millis)>,
    /// Fair time, in microseconds: no worker was stalled, and the system refused no accept.
    pub fair_us: u64,
    /// The state of the flush.
    pub flush: Flush,
    /// Addresses of the clients' connections.
    pub connected: Vec<SocketAddr>,
    /// Addresses whose connections a client has asked to be closed.
    pub may_be_killed: Vec<SocketAddr>,
    /// Addresses whose connections were closed, as the server reports, and since when, in fair time.
    pub killed: Vec<(SocketAddr, u64)>,
    /// The server has had the signal to stop.
    pub stopping: bool,
}

impl Scene {
    pub fn new(random: Random, plan: Plan, time: Time, epoch_us: Arc<AtomicU64>, door: Door) -> Scene {
        Scene {
            random,
            time,
            plan,
            books: Books::default(),
            door,
            trust: None,
            users: Users::default(),
            journal: Journal::default(),
            epoch_us,
            epochs: Vec::new(),
            fair_us: 0,
            flush: Flush::None,
            connected: Vec::new(),
            may_be_killed: Vec::new(),
            killed: Vec::new(),
            stopping: false,
        }
    }

    pub fn now(&self) -> Millis {
        self.time.now()
    }

    pub fn note(&mut self, text: &str) {
        self.journal.note(self.time.now_us(), text);
    }

    /// The earliest and the latest system time that a worker may have now.
    pub fn wall(&self) -> (Millis, Millis) {
        let now = self.now();
        let epoch = self.epoch_us.load(Relaxed) / 1000;
        let known = self.epochs.iter().filter(|(until, _)| now <= *until).map(|(_, epoch)| *epoch);
        let (first, last) =
            known.fold((epoch, epoch), |(first, last), epoch| (first.min(epoch), last.max(epoch)));
        (first + now, last + now)
    }

    /// Sets the system's clock.
    pub fn step_clock(&mut self, by_ms: i64) {
        let now = self.now();
        self.epochs.retain(|(until, _)| now <= *until);
        let epoch = self.epoch_us.load(Relaxed) / 1000;
        self.epochs.push((now + CLOCK_MS, epoch));
        self.epoch_us.store(epoch.saturating_add_signed(by_ms) * 1000, Relaxed);
        self.note(&format!("the system's clock is set by {by_ms} ms"));
    }
}
