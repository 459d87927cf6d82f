//! The simulated entrance: waiting connections, the system's results of accept, and the signal to stop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_eventloop::sim::{Due, Network, Peer, SimStream, Time};
use larder_eventloop::socket::Address;
use larder_eventloop::{Millis, Stream};
use larder_server::{Entrance, Heard, Hub};

/// Listeners: one where the first byte decides the protocol, one for RESP.
pub const LISTENERS: usize = 2;

/// The least pause after a failed accept: the acceptor's pause, less its rounding.
const AGAIN_MS: Millis = 5;

/// Clients of other machines are refused where there is no password: 127.0.0.0.
const LOCALHOST: u32 = 0x7f00_0000;

/// How the system refuses an accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// EMFILE: the process has no descriptors left.
    Process,
    /// ENFILE: the system has none.
    System,
    /// ECONNABORTED: the connection at the front has gone.
    Gone,
}

impl Refusal {
    fn error(self) -> io::Error {
        use rustix::io::Errno;
        match self {
            Refusal::Process => Errno::MFILE.into(),
            Refusal::System => Errno::NFILE.into(),
            Refusal::Gone => Errno::CONNABORTED.into(),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    stream: SimStream,
    address: SocketAddr,
}

#[derive(Debug)]
struct State {
    queues: [VecDeque<Waiting>; LISTENERS],
    /// The error of accepts, and until when it lasts.
    refusal: Option<(Refusal, Millis)>,
    signal: bool,
    /// The signal to read files again was sent. `reloaded`: the acceptor has seen it.
    reload: bool,
    reloaded: bool,
    watched: [bool; LISTENERS],
    until: Option<Millis>,
    made: u32,
    accepted: u64,
    /// When an accept last failed.
    failed_at: Option<Millis>,
    gone: Vec<SocketAddr>,
    wrong: Option<String>,
}

/// The entrance, as the world sees it.
#[derive(Clone, Debug)]
pub struct Door {
    hub: Arc<Hub>,
    network: Network,
    time: Time,
    state: Rc<RefCell<State>>,
}

/// Turns a connection of a listener into the stream that a worker takes over.
pub type Begin<S> = Box<dyn Fn(usize, SimStream) -> io::Result<S>>;

/// The entrance, as the acceptor sees it.
pub struct Entry<S> {
    door: Door,
    begin: Begin<S>,
    heard: Vec<Heard>,
}

impl<S> Entry<S> {
    /// The acceptor's side of an entrance.
    pub fn new(door: Door, begin: Begin<S>) -> Entry<S> {
        Entry { door, begin, heard: Vec::new() }
    }
}

impl Door {
    /// An entrance without waiting connections.
    pub fn new(hub: Arc<Hub>, network: Network, time: Time) -> Door {
        let state = State {
            queues: Default::default(),
            refusal: None,
            signal: false,
            reload: false,
            reloaded: false,
            watched: [true; LISTENERS],
            until: Some(0),
            made: 0,
            accepted: 0,
            failed_at: None,
            gone: Vec::new(),
            wrong: None,
        };
        Door { hub, network, time, state: Rc::new(RefCell::new(state)) }
    }

    /// Connects a client to a listener; returns the client's end, and its address, which no other connection
    /// has.
    pub fn connect(&self, listener: usize) -> (Peer, SocketAddr) {
        let state = &mut *self.state.borrow_mut();
        state.made += 1;
        let address = SocketAddr::from((Ipv4Addr::from_bits(LOCALHOST + state.made), 40_000));
        let (stream, peer) = self.network.connect();
        state.queues[listener].push_back(Waiting { stream, address });
        (peer, address)
    }

    /// Makes the system refuse accepts until this time.
    pub fn refuse(&self, refusal: Refusal, until: Millis) {
        self.state.borrow_mut().refusal = Some((refusal, until));
    }

    /// Sends the signal to stop.
    pub fn signal(&self) {
        self.state.borrow_mut().signal = true;
    }

    /// Sends the signal to read files again.
    pub fn reload(&self) {
        self.state.borrow_mut().reload = true;
    }

    /// True if the acceptor has seen that signal since the last call.
    pub fn was_reloaded(&self) -> bool {
        std::mem::take(&mut self.state.borrow_mut().reloaded)
    }

    /// True if this connection was lost before it was accepted.
    pub fn was_gone(&self, address: SocketAddr) -> bool {
        self.state.borrow().gone.contains(&address)
    }

    /// The server closes its listeners: waiting connections are lost.
    pub fn close(&self) {
        let state = &mut *self.state.borrow_mut();
        for waiting in state.queues.iter_mut().flat_map(|queue| queue.drain(..)) {
            state.gone.push(waiting.address);
        }
    }

    /// True if the system refuses accepts now.
    pub fn refuses(&self) -> bool {
        self.state.borrow().refusal.is_some_and(|(_, until)| self.time.now() < until)
    }

    /// Number of connections that the acceptor has accepted.
    pub fn accepted(&self) -> u64 {
        self.state.borrow().accepted
    }

    /// What the acceptor did wrong, if it did.
    pub fn wrong(&self) -> Option<String> {
        self.state.borrow().wrong.clone()
    }

    fn hears(&self) -> Vec<Heard> {
        let state = self.state.borrow();
        let waits = |listener: &usize| state.watched[*listener] && !state.queues[*listener].is_empty();
        let connections = (0..LISTENERS).filter(waits).map(Heard::Connections);
        let signals = [(state.signal, Heard::Signal), (state.reload, Heard::Reload)];
        connections.chain(signals.into_iter().filter_map(|(sent, heard)| sent.then_some(heard))).collect()
    }

    /// When the acceptor is to take its next turn.
    pub fn due(&self) -> Due {
        let now = self.time.now();
        match self.state.borrow().until {
            Some(until) if until <= now => return Due::Now,
            _ if self.hub.waker.drain() => self.hub.waker.wake(),
            _ if !self.hears().is_empty() => {}
            Some(until) => return Due::At(until),
            None => return Due::Never,
        }
        Due::Now
    }
}

impl<S: Stream> Entrance for Entry<S> {
    type Incoming = SimStream;
    type Stream = S;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let door = &self.door;
        self.heard = door.hears();
        if door.hub.waker.drain() {
            door.hub.waker.wake();
            self.heard.push(Heard::Woken);
        }
        let now = door.time.now();
        let asleep = timeout.map(|timeout| now + timeout.as_millis() as Millis);
        let state = &mut *door.state.borrow_mut();
        state.until = if self.heard.is_empty() { asleep } else { Some(now) };
        state.reloaded |= std::mem::take(&mut state.reload);
        Ok(self.heard.len())
    }

    fn heard(&self, index: usize) -> Heard {
        self.heard[index]
    }

    fn now(&self) -> Millis {
        self.door.time.now()
    }

    fn watch(&mut self, listener: usize, connections: bool) -> io::Result<()> {
        self.door.state.borrow_mut().watched[listener] = connections;
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<(SimStream, Address)> {
        let now = self.door.time.now();
        let state = &mut *self.door.state.borrow_mut();
        match state.refusal {
            Some((Refusal::Gone, until)) if now < until => {
                state.refusal = None;
                let Some(waiting) = state.queues[listener].pop_front() else {
                    return Err(io::ErrorKind::WouldBlock.into());
                };
                state.gone.push(waiting.address);
                Err(Refusal::Gone.error())
            }
            Some((refusal, until)) if now < until => {
                if let Some(before) = state.failed_at.replace(now)
                    && now < before + AGAIN_MS
                {
                    state.wrong = Some(format!("an accept failed {} ms after another", now - before));
                }
                Err(refusal.error())
            }
            _ => {
                let Waiting { stream, address } =
                    state.queues[listener].pop_front().ok_or(io::ErrorKind::WouldBlock)?;
                state.accepted += 1;
                Ok((stream, Address::Tcp(address)))
            }
        }
    }

    fn begin(&mut self, listener: usize, stream: SimStream) -> io::Result<S> {
        (self.begin)(listener, stream)
    }
}
