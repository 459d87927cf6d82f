//! What one call of a session works with: a store guard, the worker's counters, what all share.

use larder_store::{Guard, Millis};

use crate::counters::Counters;
use crate::host::{Host, Peer};
use crate::shared::Shared;

/// Everything around a session while it works; made once per batch of receives.
pub struct Context<'c, 'w> {
    /// The worker inside the store, entered at [`Shared::now`].
    pub guard: Guard<'w>,
    /// This worker's counters.
    pub counters: &'c Counters,
    /// Settings and state that all workers share.
    pub shared: &'c Shared,
    /// The server around it.
    pub host: &'c dyn Host,
    /// The other end of the connection.
    pub peer: &'c dyn Peer,
}

impl Context<'_, '_> {
    /// The time of this batch, milliseconds since the Unix epoch.
    #[inline]
    pub fn now(&self) -> Millis {
        self.guard.now()
    }
}

impl std::fmt::Debug for Context<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("now", &self.guard.now()).finish_non_exhaustive()
    }
}
