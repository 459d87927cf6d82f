//! TLS in front of real sessions: over the simulated network, where bytes come in any pieces, and by a real server's
//! options over sockets. The client's side is rustls's own.

pub mod client;
mod process;
mod sim;
mod spoken;
mod users;
mod world;
