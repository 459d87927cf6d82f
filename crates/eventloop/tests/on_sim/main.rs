//! The loop over the simulated network: connections get their replies whatever the network and their peers
//! do. A failed run prints its seed, which replays it.

mod awaiting;
mod between;
mod deferred;
mod drain;
mod requests;
mod toy;
mod uploads;
