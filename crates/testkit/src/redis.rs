//! Random RESP commands; a model that says what is right, and whether two servers answer them alike.

mod bitfield;
mod bits;
pub mod check;
pub mod compare;
mod connections;
pub mod differ;
mod float;
pub mod frame;
mod glob;
mod keys;
pub mod known;
mod memcached;
pub mod model;
mod payload;
pub mod reply;
pub mod stream;
mod strings;
mod words;
