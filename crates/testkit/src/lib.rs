//! What the tests of several crates share; never part of the server.
//!
//! - [`transcript`], [`pattern`], [`runner`]: the cases under `spec/`, over a [`runner::Wire`];
//! - [`local`]: sessions over a store, without sockets and with a clock that is told;
//! - [`socket`] and [`process`]: a real server and real connections.

#![forbid(unsafe_code)]

pub mod local;
pub mod pattern;
pub mod process;
pub mod runner;
pub mod socket;
pub mod transcript;
