//! The loop over the simulated network: the replies that connections must get, whatever the network and their peers do. A run
//! that fails is repeated by its printed seed.

mod awaiting;
mod between;
mod deferred;
mod drain;
mod requests;
mod toy;
mod uploads;
