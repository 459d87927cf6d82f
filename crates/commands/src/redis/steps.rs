//! Commands in steps: what takes longer than others should wait is done piece by piece.
//!
//! ```text
//! job       what is left of such a command, and how it takes a step
//! again     begun anew, since others have changed what it worked at; held: its keys are held instead
//! patience  it waits for memory while its keys are held
//! kept      the words of the request that it still has to look at
//! moments   many keys, some thousands of them at a time; pieces: a long reply, some of it at a time
//! ```

pub(crate) mod again;
pub(crate) mod held;
pub(crate) mod job;
pub(crate) mod kept;
pub(crate) mod moments;
pub(crate) mod patience;
pub(crate) mod pieces;
