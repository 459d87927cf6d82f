//! The tests of the client, as one program: to link each by itself takes longer than most of them. `docs` is made of the
//! examples.

mod awaited;
mod connection;
mod fetch;
mod large;
mod live;
mod pipe;
mod secure;
mod servers;
mod spec;
mod vectors;
