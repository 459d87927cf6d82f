//! What all workers share beside the store: what all conversations do, and what those of each protocol do.

use larder_store::{Guard, Millis, Store};

use crate::core::figures::Place;
use crate::core::host::Host;
use crate::core::shared::Settings;
use crate::redis::Serving;
use crate::{core, memcached, redis};

/// What all workers share beside the store.
#[derive(Debug)]
pub struct Shared {
    /// What conversations of every protocol share.
    pub common: core::shared::Shared,
    /// What memcached's do.
    pub memcached: memcached::shared::Shared,
    /// What Redis's do.
    pub(crate) redis: redis::shared::Shared,
}

impl Shared {
    /// With nothing turned yet.
    pub fn new(settings: Settings) -> Shared {
        Shared {
            memcached: memcached::shared::Shared::new(&settings),
            redis: redis::shared::Shared::new(),
            common: core::shared::Shared::new(settings),
        }
    }

    /// The server's time when the system's is `system`: what guards are entered at.
    #[inline]
    pub fn now(&self, system: Millis) -> Millis {
        self.common.clock.now(system)
    }

    /// Flushes the store if a delayed flush_all is due. Conversations do so too: workers that receive nothing call it on
    /// their tick, so that a flush happens in time without traffic.
    #[inline]
    pub fn flush_if_due(&self, guard: &mut Guard<'_>) {
        self.common.flush_if_due(guard);
    }

    /// Tells what the store did by itself: a conversation does it at the end of a receive, upkeep has to.
    #[inline]
    pub fn tell_events(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        self.common.tell_events(guard, host);
    }

    /// Goes on telling keyspace events that wait, for so many nanoseconds or a little longer. True if there are more.
    pub fn go_on_telling(&self, host: &dyn Host, store: &Store, ns_max: u64) -> bool {
        if !self.common.telling.waits() {
            return false;
        }
        self.common.go_on_telling(host, store, ns_max);
        self.common.telling.waits()
    }

    /// Does what clients have left that waited, and whose connections have ended: what was popped for one of them is put
    /// back. Whoever ends connections asks for it behind that, and upkeep now and then.
    #[inline]
    pub fn serve_left(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        if self.redis.waiters.has_left() {
            Serving { guard, common: &self.common, waiters: &self.redis.waiters, host }.left();
        }
    }

    /// There is something for [`Shared::serve_left`] to do.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.redis.waiters.has_left()
    }

    /// Notes how much there is to do, how much memory is used, and now and then what happened. From one worker's upkeep.
    pub fn look(&self, now: Millis, host: &dyn Host, store: &Store) {
        self.redis.look(now, host, store.used_bytes());
        self.common.lately.look(Place { shared: &self.common, host, store, now });
    }

    /// Upkeep is to be measured, for [`Shared::note_upkeep`].
    #[inline]
    pub fn watches_latency(&self) -> bool {
        self.redis.latency.watches()
    }

    /// A round of upkeep took this long: LATENCY notes it if it was long.
    pub fn note_upkeep(&self, now: Millis, took_us: u64) {
        self.redis.note_upkeep(now, took_us);
    }
}
