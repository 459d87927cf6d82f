//! Subscriptions of clients, and the messages that wait for them.
//!
//! ```text
//! PUBLISH ─► channel's part of the table ─► one delivery a subscriber ─► Host::post(worker, deliveries)
//!            then the patterns that match                                  │
//! worker, between two receives ◄──────────── its Outbox, in order ◄──────────┘
//! ```
//!
//! A publisher's deliveries reach a worker's outbox in the order in which it published, and a worker delivers in the order of
//! its outbox: so each subscriber has each publisher's messages in order. Deliveries of one channel are posted under its lock,
//! those to patterns under the lock of all patterns: all subscribers of a channel agree on the order. Nothing is matched under
//! these locks, and a text is copied once for all subscribers that receive it: it is written where it is delivered.

mod matching;
mod names;
mod outbox;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::delivery::{Delivery, Message, Target, Topic};
use super::glob::Weight;
use super::host::Host;
pub(crate) use matching::Matching;
use names::Left;
pub(crate) use names::{Kind, Names, subscription_bytes};
pub use outbox::Outbox;

/// Microseconds before the time of the last line: a time that is further back is of a clock that was set.
const CLOCK_SET_US: u64 = 1_000_000;

/// Parts of a table of channels, each under its lock.
const SHARDS: usize = 16;

/// Most bytes of deliveries that wait for one worker. A client that would miss one is closed.
pub const OUTBOX_BYTES_MAX: usize = 16 << 20;

type Patterns = BTreeMap<Arc<[u8]>, Listeners>;
type Subscribers = HashMap<Arc<[u8]>, Vec<Target>>;

/// Clients that listen to a pattern, and the time that it takes to match.
#[derive(Debug)]
struct Listeners {
    targets: Vec<Target>,
    weight: Weight,
}

/// Channels and their subscribers.
#[derive(Debug)]
pub(crate) struct Space {
    shards: Box<[Mutex<Subscribers>]>,
    hasher: RandomState,
    channels: AtomicUsize,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            channels: AtomicUsize::new(0),
        }
    }
}

impl Space {
    fn shard(&self, channel: &[u8]) -> MutexGuard<'_, Subscribers> {
        let shard = self.hasher.hash_one(channel) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, channel: &[u8], target: Target) {
        match self.shard(channel).entry(channel.into()) {
            Entry::Occupied(mut entry) => entry.get_mut().push(target),
            Entry::Vacant(entry) => {
                entry.insert(vec![target]);
                self.channels.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn remove(&self, channel: &[u8], target: Target) {
        let mut shard = self.shard(channel);
        if let Some(targets) = shard.get_mut(channel) {
            forget(targets, target);
            if targets.is_empty() {
                shard.remove(channel);
                self.channels.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Number of subscribers of a channel.
    pub fn count(&self, channel: &[u8]) -> usize {
        self.shard(channel).get(channel).map_or(0, Vec::len)
    }

    /// Number of channels that have subscribers.
    pub fn channels(&self) -> usize {
        self.channels.load(Relaxed)
    }

    /// The channels of a part of the table; `None` if there are no more parts.
    pub fn part(&self, part: usize) -> Option<Vec<Arc<[u8]>>> {
        let channels = self.shards.get(part)?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(channels.keys().cloned().collect())
    }

    fn targets(&self, channel: &[u8]) -> Vec<Target> {
        self.shard(channel).get(channel).cloned().unwrap_or_default()
    }

    fn publish(&self, host: &dyn Host, channel: &[u8], message: impl FnOnce() -> Message) -> usize {
        if self.channels() == 0 {
            return 0;
        }
        let shard = self.shard(channel);
        let Some(targets) = shard.get(channel) else { return 0 };
        post(host, targets, &Arc::new(message()));
        targets.len()
    }
}

/// Removes a subscriber.
fn forget(targets: &mut Vec<Target>, target: Target) {
    if let Some(at) = targets.iter().position(|other| *other == target) {
        targets.swap_remove(at);
    }
}

/// Posts a message to each target, worker by worker.
pub(crate) fn post(host: &dyn Host, targets: &[Target], message: &Arc<Message>) {
    let mut by_worker: Vec<(usize, Vec<Delivery>)> = Vec::new();
    for &target in targets {
        let delivery = Delivery { target, message: Arc::clone(message) };
        match by_worker.iter_mut().find(|(worker, _)| *worker == target.worker()) {
            Some((_, deliveries)) => deliveries.push(delivery),
            None => by_worker.push((target.worker(), vec![delivery])),
        }
    }
    for (worker, deliveries) in by_worker {
        host.post(worker, deliveries);
    }
}

/// All subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    pub channels: Space,
    pub shards: Space,
    patterns: Mutex<Patterns>,
    pattern_count: AtomicUsize,
    /// Number of subscriptions to patterns.
    pattern_targets: AtomicUsize,
    /// Nanoseconds to match all patterns at worst, beside those for the bytes of the channel.
    pattern_ns: AtomicU64,
    /// Nanoseconds for each byte of the channel.
    byte_ns: AtomicU64,
    monitors: Mutex<Vec<Target>>,
    monitor_count: AtomicUsize,
    /// The time of the last line of MONITOR.
    shown_us: AtomicU64,
    /// Subscriptions of clients that are gone, which are to be forgotten.
    left: Mutex<Vec<Left>>,
    /// Bytes that subscriptions take.
    pub bytes: Arc<AtomicU64>,
}

impl Topics {
    fn patterns(&self) -> MutexGuard<'_, Patterns> {
        self.patterns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn monitors(&self) -> MutexGuard<'_, Vec<Target>> {
        self.monitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_pattern(&self, pattern: &[u8], target: Target) {
        // It is read before its table is locked.
        let weight = Weight::of(pattern);
        let mut patterns = self.patterns();
        self.pattern_targets.fetch_add(1, Relaxed);
        match patterns.get_mut(pattern) {
            Some(listeners) => listeners.targets.push(target),
            None => {
                patterns.insert(pattern.into(), Listeners { targets: vec![target], weight });
                self.weigh(weight, 1);
            }
        }
        self.pattern_count.store(patterns.len(), Relaxed);
    }

    pub fn remove_pattern(&self, pattern: &[u8], target: Target) {
        let mut patterns = self.patterns();
        if let Some(listeners) = patterns.get_mut(pattern) {
            let before = listeners.targets.len();
            forget(&mut listeners.targets, target);
            self.pattern_targets.fetch_sub(before - listeners.targets.len(), Relaxed);
            if listeners.targets.is_empty() {
                self.weigh(listeners.weight, -1);
                patterns.remove(pattern);
            }
        }
        self.pattern_count.store(patterns.len(), Relaxed);
    }

    /// Number of subscriptions to patterns.
    pub fn pattern_targets(&self) -> usize {
        self.pattern_targets.load(Relaxed)
    }

    /// The names of a kind that have subscribers, of one part of the table; `None` if there are no more parts.
    pub fn names_in(&self, kind: Kind, part: usize) -> Option<Vec<Arc<[u8]>>> {
        match kind {
            Kind::Channel => self.channels.part(part),
            Kind::Shard => self.shards.part(part),
            Kind::Pattern => (part == 0).then(|| self.patterns().keys().cloned().collect()),
        }
    }

    /// The subscribers of a name.
    pub fn targets(&self, kind: Kind, name: &[u8]) -> Vec<Target> {
        match kind {
            Kind::Channel => self.channels.targets(name),
            Kind::Shard => self.shards.targets(name),
            Kind::Pattern => self.patterns().get(name).map_or(Vec::new(), |all| all.targets.clone()),
        }
    }

    /// Number of subscribers of a name.
    pub fn listeners(&self, kind: Kind, name: &[u8]) -> usize {
        match kind {
            Kind::Channel => self.channels.count(name),
            Kind::Pattern => self.patterns().get(name).map_or(0, |listeners| listeners.targets.len()),
            Kind::Shard => self.shards.count(name),
        }
    }

    /// Number of patterns that have subscribers.
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Relaxed)
    }

    /// Sends a message to the subscribers of a sharded channel. Returns their number.
    pub fn publish_to_shard(&self, host: &dyn Host, channel: &[u8], text: &[u8]) -> usize {
        self.shards.publish(host, channel, || Message {
            topic: Topic::Shard,
            channel: channel.into(),
            text: text.into(),
        })
    }

    /// Returns whether a MONITOR wants to see every command.
    #[inline]
    pub fn monitored(&self) -> bool {
        self.monitor_count.load(Relaxed) > 0
    }

    pub fn add_monitor(&self, target: Target) {
        let mut monitors = self.monitors();
        monitors.push(target);
        self.monitor_count.store(monitors.len(), Relaxed);
    }

    pub fn remove_monitor(&self, target: Target) {
        let mut monitors = self.monitors();
        monitors.retain(|other| *other != target);
        self.monitor_count.store(monitors.len(), Relaxed);
    }

    /// Sends a line, which begins with the time `at_us`, to all monitors. These are shown lines of all workers in one order, and
    /// no time is before the one above it, unless the clock was set.
    pub fn show(&self, host: &dyn Host, at_us: u64, mut line: Vec<u8>) {
        let monitors = self.monitors();
        let last_us = self.shown_us.load(Relaxed);
        if (at_us..at_us.saturating_add(CLOCK_SET_US)).contains(&last_us) {
            let stamp = stamp(last_us);
            line[..stamp.len()].copy_from_slice(&stamp);
        } else {
            self.shown_us.store(at_us, Relaxed);
        }
        let message = Message { topic: Topic::Commands, channel: [].into(), text: line.into() };
        post(host, &monitors, &Arc::new(message));
    }
}

/// The beginning of a line: `+` and its time.
pub(crate) fn stamp(at_us: u64) -> [u8; 18] {
    let mut stamp = *b"+0000000000.000000";
    let (mut s, mut us) = (at_us / 1_000_000, at_us % 1_000_000);
    for at in (1..11).rev() {
        stamp[at] = b'0' + (s % 10) as u8;
        s /= 10;
    }
    for at in (12..18).rev() {
        stamp[at] = b'0' + (us % 10) as u8;
        us /= 10;
    }
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_and_a_millionth() {
        assert_eq!(&stamp(1_339_518_083_107_412), b"+1339518083.107412");
        assert_eq!(&stamp(7_000_012), b"+0000000007.000012");
    }

    #[test]
    fn channel_without_subscribers_is_gone() {
        let space = Space::default();
        let (one, two) = (Target { place: 0, client: 1 }, Target { place: 1 << 32, client: 2 });
        space.add(b"a", one);
        space.add(b"a", two);
        space.add(b"b", two);
        let names =
            |space: &Space| (0..).map_while(|part| space.part(part)).map(|names| names.len()).sum::<usize>();
        assert_eq!((space.channels(), space.count(b"a"), names(&space)), (2, 2, 2));
        space.remove(b"a", one);
        space.remove(b"a", two);
        space.remove(b"a", two);
        assert_eq!((space.channels(), space.count(b"a"), names(&space)), (1, 0, 1));
    }
}
