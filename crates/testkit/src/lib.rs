//! Shared code of the tests of several crates; never part of the server.
//!
//! - [`transcript`], [`pattern`], [`frames`], [`runner`]: the cases under `spec/`, over a [`runner::Wire`];
//! - [`host`], [`local`]: sessions over a store, without sockets and with a clock that tests move;
//! - [`model`]: memcached's rules as a map, to compare random operations with;
//! - [`pipelines`]: the same requests, received in several ways;
//! - [`store_model`]: a store and a plain map side by side;
//! - [`socket`], [`process`] and [`client`]: a real server and real connections; [`bounded`]: a server whose memory limit is
//!   checked; [`folder`]: a folder of a test's own;
//! - [`linear`], [`history`], [`both`]: whether the results of two clients can be put in one order;
//! - [`redis`]: random RESP commands, and two servers' replies compared;
//! - [`talk`]: RESP clients of sessions without sockets, in words; [`resp`], [`attacker`]: of a server, over sockets;
//! - [`canary`], [`stage`]: latency of a connection of each worker beside that of a null server, for commands that
//!   take minutes;
//! - [`proof`]: values that prove their origin;
//! - [`timing`]: claims about time, as tests outside the gate make them;
//! - [`stand_in`]: programs that take a server's place or sit in front of it; [`model_cache`]: a cache whose hits are known.

#![forbid(unsafe_code)]

pub mod attacker;
pub mod both;
pub mod bounded;
pub mod canary;
pub mod client;
pub mod folder;
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
pub mod resp;
pub mod runner;
pub mod socket;
pub mod stage;
pub mod stand_in;
pub mod store_model;
pub mod talk;
pub mod timing;
pub mod transcript;

/// How long a test waits for something that must come. It only ends hangs: no machine is this slow.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// The exit code of a program: `true`: all was right; the error says why that could not be checked.
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
