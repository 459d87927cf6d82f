//! The HTTP thread's sockets: its listener, with the connections that wait there, and its loop at a simulated network.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_eventloop::poll::{Interest, Waker};
use larder_eventloop::sim::{Due, Network, Peer, Sim, SimStream, Time};
use larder_eventloop::{Backend, Millis};
use larder_server::{HttpBackend, HttpEvent};
use larder_tls::Transport;

#[derive(Debug)]
struct State {
    queue: VecDeque<(SimStream, IpAddr)>,
    watched: bool,
    /// The system has no descriptors before this time.
    refuses_until: Millis,
}

/// The listener, as the world sees it.
#[derive(Clone, Debug)]
pub struct Lobby {
    network: Network,
    time: Time,
    state: Rc<RefCell<State>>,
}

impl Lobby {
    /// A listener at a network that no other loop uses.
    pub fn new(network: Network, time: Time) -> Lobby {
        let state = State { queue: VecDeque::new(), watched: true, refuses_until: 0 };
        Lobby { network, time, state: Rc::new(RefCell::new(state)) }
    }

    /// The sockets of the HTTP thread.
    pub fn sockets(&self) -> HttpSim {
        let waker = Arc::new(Waker::new().expect("a waker"));
        HttpSim { sim: self.network.backend(waker), lobby: self.clone(), events: Vec::new() }
    }

    /// A client connects from this address.
    pub fn connect(&self, from: IpAddr) -> Peer {
        let (stream, peer) = self.network.connect();
        self.state.borrow_mut().queue.push_back((stream, from));
        peer
    }

    /// Makes the system refuse accepts until this time.
    pub fn refuse(&self, until: Millis) {
        self.state.borrow_mut().refuses_until = until;
    }

    /// True if the system refuses accepts now.
    pub fn refuses(&self) -> bool {
        self.time.now() < self.state.borrow().refuses_until
    }

    /// Closes the listener: waiting connections are lost.
    pub fn close(&self) {
        self.state.borrow_mut().queue.clear();
    }

    fn has_connections(&self) -> bool {
        let state = self.state.borrow();
        state.watched && !state.queue.is_empty()
    }

    /// When the HTTP thread is to take its next turn.
    pub fn due(&self) -> Due {
        if self.has_connections() { Due::Now } else { self.network.due(0) }
    }
}

/// The HTTP thread's side of a lobby.
#[derive(Debug)]
pub struct HttpSim {
    sim: Sim<Transport<SimStream>>,
    lobby: Lobby,
    events: Vec<HttpEvent>,
}

impl HttpBackend for HttpSim {
    type Stream = SimStream;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let count = self.sim.wait(timeout)?;
        self.events.clear();
        self.events.extend((0..count).map(|index| HttpEvent::Client(self.sim.event(index))));
        if self.lobby.has_connections() {
            self.events.push(HttpEvent::Connections);
        }
        Ok(self.events.len())
    }

    fn event(&self, index: usize) -> HttpEvent {
        self.events[index]
    }

    fn watch(&mut self, connections: bool) -> io::Result<()> {
        self.lobby.state.borrow_mut().watched = connections;
        Ok(())
    }

    fn accept(&mut self) -> io::Result<(SimStream, IpAddr)> {
        if self.lobby.refuses() {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(self.lobby.state.borrow_mut().queue.pop_front().ok_or(io::ErrorKind::WouldBlock)?)
    }

    fn add(&mut self, stream: &Transport<SimStream>, seat: u64, interest: Interest) -> io::Result<()> {
        self.sim.add(stream, seat, interest)
    }

    fn modify(&mut self, stream: &Transport<SimStream>, seat: u64, interest: Interest) -> io::Result<()> {
        self.sim.modify(stream, seat, interest)
    }
}
