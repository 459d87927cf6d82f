//! Random RESP commands; a model that says what is right, and whether two servers answer them alike.

mod bits;
pub mod check;
pub mod compare;
pub mod differ;
pub mod frame;
pub mod known;
pub mod model;
pub mod stream;
mod words;
