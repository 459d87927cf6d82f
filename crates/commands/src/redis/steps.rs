//! Commands in steps: what takes longer than others should wait is done piece by piece.

pub(crate) mod again;
pub(crate) mod held;
pub(crate) mod job;
pub(crate) mod kept;
pub(crate) mod moments;
pub(crate) mod patience;
pub(crate) mod pieces;
