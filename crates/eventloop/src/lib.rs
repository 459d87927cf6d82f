//! Sockets ⇄ buffers. Knows no protocol.
//!
//! Two layers. The lower one is a thin, safe layer over the system: [`poll`] (epoll and a waker), [`socket`] (non-blocking TCP
//! and Unix stream sockets), [`port`] (a port that is reserved for a server), [`cpu`] (pinning, CPU time) and [`sysexits`] (exit
//! codes). Clients such as a load generator build their own loop on it.
//!
//! The upper one is the loop of a server's worker: [`EventLoop`] owns the connections and one receive buffer, a [`Handler`] gives
//! the bytes their meaning. The handler takes received bytes and offers slices of replies. It sees neither readiness nor streams.
//! The loop reaches the system through [`Backend`]: [`Epoll`] in production, [`sim::Sim`] in tests, each over streams of one
//! kind. A [`Stream`] may buffer bytes between the system and the loop ([`Between`]).

#![forbid(unsafe_code)]

pub mod cpu;
pub mod poll;
pub mod port;
pub mod sim;
pub mod socket;
pub mod sysexits;

mod backend;
mod connections;
mod event_loop;
mod handler;

pub use backend::{Backend, Between, Epoll, Stream};
pub use connections::Id;
pub use event_loop::{EventLoop, Limits, RECEIVE_BYTES, WakeUp};
pub use handler::{Closed, Destination, Handler, Outgoing, PutOff, Taken, Wait};

/// Milliseconds of a clock that only moves forward. Its origin is arbitrary.
pub type Millis = u64;
