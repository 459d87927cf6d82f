//! Random RESP commands, a model of the right replies, and a comparison of two servers.

mod bitfield;
mod bits;
pub mod check;
pub mod compare;
mod connections;
pub mod differ;
pub mod ends;
mod float;
pub mod forms;
pub mod frame;
mod glob;
mod keys;
pub mod known;
pub mod lua;
mod memcached;
pub mod model;
mod payload;
pub mod positions;
pub mod reply;
pub mod scripts;
pub mod stream;
mod strings;
mod words;
