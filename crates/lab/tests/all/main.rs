//! Tests of the lab through its interface, as one program: to link each by itself takes longer than most of them.

mod generator;
mod peers;
mod report;
