//! What the tests of several crates share; never part of the server.
//!
//! - [`transcript`], [`pattern`], [`runner`]: the cases under `spec/`, over a [`runner::Wire`];
//! - [`host`], [`local`]: sessions over a store, without sockets and with a clock that is told;
//! - [`model`]: memcached's rules as a map, to compare random operations with;
//! - [`pipelines`]: the same requests, received in several ways;
//! - [`store_model`]: a store and a plain map side by side;
//! - [`socket`], [`process`] and [`client`]: a real server and real connections; [`bounded`]: one that is held to
//!   its memory limit;
//! - [`linear`], [`history`], [`both`]: whether what two clients saw can be put in one order;
//! - [`redis`]: random RESP commands, and two servers' replies compared;
//! - [`talk`]: RESP clients of such a server, in words;
//! - [`canary`], [`stage`]: latency of a connection of each worker beside that of a null server, for commands that
//!   take minutes;
//! - [`proof`]: values that prove where they come from;
//! - [`timing`]: claims about time, as tests outside the gate make them;
//! - [`stand_in`]: what is put in a program's place or in its way; [`model_cache`]: a cache whose hits are known.

#![forbid(unsafe_code)]

pub mod attacker;
pub mod both;
pub mod bounded;
pub mod canary;
pub mod client;
pub mod frames;
pub mod history;
pub mod host;
pub mod linear;
pub mod local;
pub mod model;
pub mod model_cache;
pub mod pattern;
pub mod pipelines;
pub mod process;
pub mod proof;
pub mod redis;
pub mod runner;
pub mod socket;
pub mod stage;
pub mod stand_in;
pub mod store_model;
pub mod talk;
pub mod timing;
pub mod transcript;

/// How long a test waits for what must come: it notices hangs, and no machine is so slow.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// How a program of this crate ends: whether all was as it should be, or why that could not be told.
pub fn exit(outcome: Result<bool, String>) -> std::process::ExitCode {
    match outcome {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(2)
        }
    }
}
