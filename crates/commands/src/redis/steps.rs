//! Commands in steps: a command that takes longer than others should wait is carried out piece by piece.
//!
//! ```text
//! stages    one moment for others, for which its keys are held
//! again     begins anew, as others have changed what it worked at; held: its keys are held instead
//! patience  waits for memory while its keys are held
//! kept      the words of the request that it still has to look at
//! moments   many keys, some thousands of them at a time; pieces: a long reply, some of it at a time
//! ```
//!
//! What is left of such a command, and how it takes a step, is a `job`: a call has room for one.

pub(crate) mod again;
pub(crate) mod held;
pub(crate) mod kept;
pub(crate) mod moments;
pub(crate) mod patience;
pub(crate) mod pieces;
pub(crate) mod stages;

pub(crate) use super::call::job;
