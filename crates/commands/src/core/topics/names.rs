//! Names that a client listens to, and the end of its subscriptions: of many names some at a time.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use larder_store::Store;

use super::Topics;
use crate::core::delivery::Target;

/// Bytes of a subscription beside its name, about.
const TOPIC_BYTES: usize = 256;
/// Names that are forgotten at once.
const NAMES_AT_ONCE: usize = 128;

/// A kind of names that clients listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    Pattern,
    Shard,
}

/// Names of one kind that a client listens to.
pub(crate) type Names = BTreeSet<Box<[u8]>>;

/// Names that a client which is gone has listened to.
#[derive(Debug)]
pub(crate) struct Left {
    kind: Kind,
    names: Names,
    target: Target,
}

/// Bytes that a subscription is charged with.
pub(crate) fn subscription_bytes(name: &[u8]) -> u64 {
    (TOPIC_BYTES + 2 * name.len()) as u64
}

impl Topics {
    /// Adds a subscriber of a name.
    pub fn add(&self, store: &Store, kind: Kind, name: &[u8], target: Target) {
        let bytes = subscription_bytes(name);
        self.bytes.fetch_add(bytes, Relaxed);
        store.hold(bytes as i64);
        match kind {
            Kind::Channel => self.channels.add(name, target),
            Kind::Pattern => self.add_pattern(name, target),
            Kind::Shard => self.shards.add(name, target),
        }
    }

    /// Removes a subscriber of a name.
    pub fn remove(&self, store: &Store, kind: Kind, name: &[u8], target: Target) {
        match kind {
            Kind::Channel => self.channels.remove(name, target),
            Kind::Pattern => self.remove_pattern(name, target),
            Kind::Shard => self.shards.remove(name, target),
        }
        let bytes = subscription_bytes(name);
        self.bytes.fetch_sub(bytes, Relaxed);
        store.hold(-(bytes as i64));
    }

    /// Removes a client that is gone from these names. Where they are many, upkeep forgets the rest ([`Topics::forget_left`]);
    /// no message reaches a client that is gone.
    pub fn leave(&self, store: &Store, kind: Kind, names: Names, target: Target) {
        let mut left = Left { kind, names, target };
        if self.forget_some(store, &mut left) {
            self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
        }
    }

    /// Forgets some names; true if there are more.
    fn forget_some(&self, store: &Store, left: &mut Left) -> bool {
        for _ in 0..NAMES_AT_ONCE {
            let Some(name) = left.names.pop_first() else { return false };
            self.remove(store, left.kind, &name, left.target);
        }
        !left.names.is_empty()
    }

    /// Forgets some subscriptions of clients that are gone, for some 0.1 ms; true if there are more.
    pub fn forget_left(&self, store: &Store) -> bool {
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = all.last_mut() else { return false };
        if !self.forget_some(store, left) {
            all.pop();
        }
        !all.is_empty()
    }
}
