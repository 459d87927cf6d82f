//! The lab's tests through its public interface, as one program: linking one program for each would take
//! longer than most tests.

mod generator;
mod peers;
mod report;
