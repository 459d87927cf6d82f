//! Sockets ⇄ buffers. Knows no protocol.
//!
//! The lower half is a thin, safe layer over the system: [`poll`] (epoll and a waker), [`socket`]
//! (non-blocking TCP and Unix stream sockets) and [`cpu`] (pinning, CPU time). Clients such as a
//! load generator build their own loop on it.

#![forbid(unsafe_code)]

pub mod cpu;
pub mod poll;
pub mod socket;
