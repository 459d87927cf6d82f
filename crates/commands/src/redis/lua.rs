//! What all workers share of scripts (`cache`) and of libraries of functions (`libraries`), and the scripts that run. `scripts`
//! loads and runs them.

pub(crate) mod cache;
pub(crate) mod libraries;

use super::fail::Fail;

/// Bytes of the text of a script or a library, at most: in EXEC it is compiled in one step.
pub(crate) const TEXT_BYTES_MAX: usize = 512 << 10;

/// Checks that a script or a library is not too long to be compiled.
///
/// # Errors
/// It is too long.
pub(crate) fn bounded(text: &[u8]) -> Result<(), Fail> {
    if text.len() <= TEXT_BYTES_MAX { Ok(()) } else { Err(Fail::of("ERR scripts have 524288 bytes at most")) }
}
