//! What all workers know of scripts (`cache`) and of libraries of functions (`libraries`), and which scripts are at work. How
//! they are loaded and run is in `scripts`.

pub(crate) mod cache;
pub(crate) mod libraries;

use super::fail::Fail;

/// No text of a script or a library is longer: in EXEC compiling it is one step.
pub(crate) const TEXT_BYTES_MAX: usize = 512 << 10;

/// A script or a library is not too long to be compiled.
///
/// # Errors
/// It is.
pub(crate) fn bounded(text: &[u8]) -> Result<(), Fail> {
    if text.len() <= TEXT_BYTES_MAX { Ok(()) } else { Err(Fail::of("ERR scripts have 524288 bytes at most")) }
}
