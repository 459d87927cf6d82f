//! The system as the HTTP thread sees it: a listener, connections that are watched, and a wait for all of them.
//!
//! [`HttpSockets`] are the machine's. Where sockets are simulated, the simulation has a backend of its own.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use larder_eventloop::Stream;
use larder_eventloop::poll::{Event, Events, Interest, Poller, Waker};
use larder_eventloop::socket::Socket;
use larder_tls::Transport;

use super::CLIENTS_MAX;
use super::channel::End;

/// An event of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpEvent {
    /// Connections wait at the listener.
    Connections,
    /// The thread was woken.
    Woken,
    /// A connection is ready: the event's token is its seat.
    Client(Event),
}

/// What the HTTP thread needs of the system.
pub trait HttpBackend {
    /// A connection, below TLS if the listener speaks that.
    type Stream: Stream + End;

    /// Waits for events, `timeout` at most; returns how many there are.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// Event `index` of the last wait.
    fn event(&self, index: usize) -> HttpEvent;

    /// Sets whether a wait reports connections at the listener.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn watch(&mut self, connections: bool) -> io::Result<()>;

    /// Accepts the next connection, and returns its client's address.
    ///
    /// # Errors
    /// `WouldBlock` when no connection waits, `ConnectionAborted` when it has gone; otherwise the system's error (too many open
    /// files).
    fn accept(&mut self) -> io::Result<(Self::Stream, IpAddr)>;

    /// Starts to watch the connection of a seat.
    ///
    /// # Errors
    /// When the system has no room for it.
    fn add(&mut self, stream: &Transport<Self::Stream>, seat: u64, interest: Interest) -> io::Result<()>;

    /// Changes what the connection of a seat is watched for.
    ///
    /// # Errors
    /// When the system refuses, which it does not in correct use.
    fn modify(&mut self, stream: &Transport<Self::Stream>, seat: u64, interest: Interest) -> io::Result<()>;
}

/// Tokens of the set; those of seats are behind them.
const LISTENER: u64 = 0;
const WOKEN: u64 = 1;
const FIRST: u64 = 2;

/// A listener and a waker in a set of descriptors, before the thread has begun.
#[derive(Debug)]
pub struct Watched {
    listener: TcpListener,
    poller: Poller,
    waker: Arc<Waker>,
}

impl Watched {
    /// A set with these two.
    ///
    /// # Errors
    /// When there are no descriptors for it.
    pub fn new(listener: TcpListener, waker: &Arc<Waker>) -> io::Result<Watched> {
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        poller.add(&**waker, WOKEN, Interest::Read)?;
        Ok(Watched { listener, poller, waker: Arc::clone(waker) })
    }
}

/// The machine's sockets.
#[derive(Debug)]
pub struct HttpSockets {
    watched: Watched,
    events: Events,
}

impl HttpSockets {
    /// The sockets of a set, for the thread that calls this.
    pub fn new(watched: Watched) -> HttpSockets {
        HttpSockets { watched, events: Events::with_capacity(CLIENTS_MAX + FIRST as usize) }
    }
}

impl HttpBackend for HttpSockets {
    type Stream = Socket;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.watched.poller.wait(&mut self.events, timeout)?;
        Ok(self.events.len())
    }

    fn event(&self, index: usize) -> HttpEvent {
        let event = self.events.at(index);
        match event.token {
            LISTENER => HttpEvent::Connections,
            WOKEN => {
                let _ = self.watched.waker.drain();
                HttpEvent::Woken
            }
            token => HttpEvent::Client(Event { token: token - FIRST, ..event }),
        }
    }

    fn watch(&mut self, connections: bool) -> io::Result<()> {
        let interest = if connections { Interest::Read } else { Interest::None };
        self.watched.poller.modify(&self.watched.listener, LISTENER, interest)
    }

    fn accept(&mut self) -> io::Result<(Socket, IpAddr)> {
        let (stream, from) = self.watched.listener.accept()?;
        // An answer is one write, whose last part is not to wait. It fails where the connection has gone already.
        let socket = stream.set_nodelay(true).and_then(|()| Socket::from_fd(stream.into()));
        Ok((socket.map_err(|_| io::ErrorKind::ConnectionAborted)?, from.ip()))
    }

    fn add(&mut self, stream: &Transport<Socket>, seat: u64, interest: Interest) -> io::Result<()> {
        self.watched.poller.add(stream, FIRST + seat, interest)
    }

    fn modify(&mut self, stream: &Transport<Socket>, seat: u64, interest: Interest) -> io::Result<()> {
        self.watched.poller.modify(stream, FIRST + seat, interest)
    }
}
