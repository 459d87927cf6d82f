//! The tests of the client, as one program: to link each by itself takes longer than most of them.

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
