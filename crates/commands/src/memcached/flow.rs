//! The outcome of an administrative command for its session: more output to make, or an end.

use super::dump::Dump;
use crate::core::progress::Ending;
use crate::core::watchers::Watching;

/// The way in which a session goes on after a line.
#[derive(Debug)]
pub(crate) enum Flow {
    /// With the next request.
    Next,
    /// With output that is made piece by piece.
    Dump(Dump),
    /// With a context entered anew.
    Yield,
    /// With lines about what happens, and nothing else.
    Watch(Watching),
    /// Not at all.
    Close(Ending),
}
