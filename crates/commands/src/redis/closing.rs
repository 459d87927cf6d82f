//! Users whose rules an EXEC at work has changed: what the connections of each may lose is closed once, and once more behind it.

use std::collections::HashSet;

/// Users that an EXEC has changed.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Users that may listen to less than before: connections that listen to anything.
    pub(super) deaf: Changed,
    /// Users that may not run MONITOR: connections that are shown commands.
    pub(super) blind: Changed,
}

/// Users by their numbers: those that were changed so, and those that were again.
#[derive(Debug, Default)]
pub(super) struct Changed {
    once: HashSet<u64>,
    pub(super) again: HashSet<u64>,
}

impl Changed {
    /// Whether this is the first time.
    pub(super) fn is_first(&mut self, user: u64) -> bool {
        let is_first = self.once.insert(user);
        if !is_first {
            self.again.insert(user);
        }
        is_first
    }
}
