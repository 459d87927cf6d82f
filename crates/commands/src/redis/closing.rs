//! Users whose rules a running EXEC has changed. Connections that may lose something by that are closed at a user's first change;
//! if the user is changed again, once more at the end of EXEC.

use std::collections::HashSet;

/// Users that an EXEC has changed.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Users that may listen to less than before: their connections that listen to anything are closed.
    pub(super) deaf: Changed,
    /// Users that may not run MONITOR: their connections that are shown commands are closed.
    pub(super) blind: Changed,
}

/// Users by their numbers: all that were changed in this way, and those that were changed again.
#[derive(Debug, Default)]
pub(super) struct Changed {
    once: HashSet<u64>,
    pub(super) again: HashSet<u64>,
}

impl Changed {
    /// Notes a change of a user; true if it is the first.
    pub(super) fn is_first(&mut self, user: u64) -> bool {
        let is_first = self.once.insert(user);
        if !is_first {
            self.again.insert(user);
        }
        is_first
    }
}
