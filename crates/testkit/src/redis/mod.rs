//! Random RESP commands, and whether two servers answer them alike.

pub mod compare;
pub mod differ;
pub mod frame;
pub mod known;
pub mod stream;
