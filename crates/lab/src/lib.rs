//! The lab: measures caches, and reports only what it can prove.
//!
//! | part | what it does |
//! |---|---|
//! | [`keys`], [`value`], [`offset`] | how keys look; values that name their key; an offset inside one |
//! | [`mix`], [`workload`], [`script`] | the requests: a table of facts, and bytes ready to send |
//! | [`generator`], [`connection`], [`tally`], [`series`] | sends it, checks every reply, counts, also by the second |
//! | [`fill`] | stores beforehand what a load expects to find |
//! | [`handshakes`] | a client that connects by TLS again and again |
//! | [`dialog`] | clients whose next request depends on the last reply |
//! | [`trace`], [`replay`] | recorded requests to a cache; clients that repeat them |
//! | [`template`] | commands that users write, and the expected replies |
//! | [`sizes`], [`walk`] | sizes of values; clients that visit every key |
//! | [`numbers`], `named` | numbers with a fraction, and values with names, on the command line |
//! | [`null`], [`canned`], [`ceiling`] | a server of fixed replies; these replies; how fast the generator is against it |
//! | [`peers`], [`contender`], [`control`] | starts, pins, inspects and stops servers; asks them |
//! | [`endpoint`], [`route`] | where a server listens, and the login to use; by which protocol and socket a load reaches it |
//! | [`owner`], `keeper` | which process answers at an address; ends servers when the lab was killed |
//! | [`driver`], [`relay`] | clients in other languages, as processes; a longer way to a server, and one with faults |
//! | [`counted`] | system calls, segments and delayed acknowledgements, counted |
//! | [`usage`], [`placement`], [`starvation`] | their CPU time and memory; which threads worked, and how long threads waited for a core |
//! | [`experiment`], [`progress`] | the frame of an experiment: options, servers, rounds, checks |
//! | [`stats`], [`mod@bench`] | interleaved rounds, ratios with intervals, figures with their targets |
//! | [`results`] | results as data: tables, checks, series; as text and JSON; compared |
//! | [`report`] | the same as one page with pictures |
//! | [`books`] | compares the counts of server and generator |
//! | [`cas`], [`clients`], [`forecast`], [`hitratio`], [`latency`], [`matrix`], [`memory`], [`servers`], [`shift`] | the experiments of these names |
//! | [`cli`], [`load`] | `larder lab …`; one load by itself |
//! | [`doctor`], [`top`] | `larder doctor`: what a running server reports of itself; `larder top`: the same as one screen, for any cache |
//!
//! There is one generator. An experiment is a workload and a function over its tallies. Requests are written and replies
//! read by [`larder_protocol::client`].

#![forbid(unsafe_code)]

pub mod bench;
pub mod books;
pub mod canned;
pub mod cas;
pub mod ceiling;
pub mod cli;
pub mod clients;
pub mod connection;
pub mod contender;
pub mod control;
pub mod counted;
pub mod dialog;
pub mod doctor;
pub mod driver;
mod elements;
pub mod endpoint;
pub mod error;
pub mod exit;
pub mod experiment;
pub mod fill;
pub mod forecast;
pub mod generator;
pub mod handshakes;
pub mod hitratio;
mod keeper;
pub mod keys;
pub mod latency;
pub mod load;
pub mod matrix;
pub mod memory;
pub mod mix;
mod named;
pub mod null;
pub mod numbers;
pub mod offset;
pub mod owner;
pub mod peers;
pub mod placement;
pub mod progress;
pub mod relay;
pub mod replay;
pub mod report;
pub mod results;
pub mod route;
pub mod script;
pub mod series;
pub mod servers;
pub mod shift;
pub mod sizes;
pub mod starvation;
pub mod stats;
pub mod tally;
pub mod template;
pub mod top;
pub mod trace;
pub mod usage;
pub mod value;
pub mod walk;
pub mod wire;
pub mod workload;

pub use cli::main;
/// Where a server listens.
pub use larder_eventloop::socket::Address;
/// The protocol in which it is asked.
pub use larder_protocol::client::Protocol;
