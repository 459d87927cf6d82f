//! The client's tests, as one program: linking one program for each would take longer than most tests.

mod awaited;
mod connection;
mod docs;
mod fetch;
mod lanes;
mod large;
mod live;
mod observe;
mod pipe;
mod relay;
mod reports;
mod secure;
mod servers;
mod simulated;
mod spec;
mod vectors;
