//! The keys and prefixes that are asked for most, as clients of every protocol are shown them.

use super::context::Context;
use super::traffic::{HotKeys, PREFIXES_TOLD, PrefixShares};

/// Most hot keys that clients are shown.
const HOT_KEYS_TOLD: usize = 50;
/// Nanoseconds to find them, and to write them.
const HOT_KEYS_NS: u64 = 300_000;
/// Nanoseconds to find the prefixes, and to write them.
const PREFIXES_NS: u64 = 200_000;

impl Context<'_, '_> {
    /// The hot keys, as clients are shown them; none if there is no sampling. Spends what that takes.
    pub(crate) fn hot_keys(&self) -> Option<HotKeys> {
        self.room.work().spend(HOT_KEYS_NS);
        self.shared.traffic.hot_keys(HOT_KEYS_TOLD)
    }

    /// The prefixes, as clients are shown them; none if there is no sampling. Spends what that takes.
    pub(crate) fn prefix_shares(&self) -> Option<PrefixShares> {
        self.room.work().spend(PREFIXES_NS);
        self.shared.traffic.prefix_shares(PREFIXES_TOLD)
    }
}
