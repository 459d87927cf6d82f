//! Which clients have subscribed to what, and what waits for them.
//!
//! ```text
//! PUBLISH ─► channel's part of the table ─► one delivery a subscriber ─► Host::post(worker, deliveries)
//!            then the patterns that match                                  │
//! worker, between two receives ◄──────────── its Outbox, in order ◄──────────┘
//! ```
//!
//! A publisher's deliveries reach a worker's outbox in the order it published, and a worker delivers in
//! the order of its outbox: so each subscriber has each publisher's messages in order. Deliveries of one
//! channel are posted under its lock, those to patterns under the lock of all patterns: all subscribers of a
//! channel agree on the order. Nothing is matched nor copied under these locks: a text is kept once for all
//! subscribers that are told it, and written where it is delivered.

mod matching;
mod names;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::glob::Weight;
use super::host::Host;
pub(crate) use matching::Matching;
use names::Left;
pub(crate) use names::{Kind, Names, subscription_bytes};

/// A time that is so much before the last is of a clock that was set, microseconds.
const CLOCK_SET_US: u64 = 1_000_000;

/// Parts of a table of channels, each under its lock.
const SHARDS: usize = 16;

/// Bytes of deliveries that wait for one worker at most; who would miss one is closed.
pub const OUTBOX_BYTES_MAX: usize = 16 << 20;

/// A subscriber: the connection's place in the server, and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// As [`crate::Peer::place`]: the worker in the upper half.
    pub place: u64,
    /// The client's number.
    pub client: u64,
}

impl Target {
    /// The worker that serves it.
    pub fn worker(&self) -> usize {
        (self.place >> 32) as usize
    }

    /// Its index among the worker's connections.
    pub fn index(&self) -> usize {
        (self.place & u64::from(u32::MAX)) as usize
    }
}

/// By what a message came to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Channel,
    Pattern(Arc<[u8]>),
    Shard,
    /// Every command (MONITOR).
    Commands,
}

/// What a subscriber is told.
#[derive(Debug)]
pub struct Message {
    pub(crate) topic: Topic,
    /// The channel; of a line for MONITOR empty.
    pub(crate) channel: Arc<[u8]>,
    pub(crate) text: Arc<[u8]>,
}

/// Bytes of a message besides its words, about.
const MESSAGE_BYTES: usize = 48;

impl Message {
    /// Bytes that it takes where it is delivered, about.
    fn bytes(&self) -> usize {
        MESSAGE_BYTES + self.words_bytes()
    }

    fn words_bytes(&self) -> usize {
        let pattern = if let Topic::Pattern(pattern) = &self.topic { pattern.len() } else { 0 };
        pattern + self.channel.len() + self.text.len()
    }

    /// What was published, or the line.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

/// Bytes of a delivery besides its words: each pattern has a message of its own.
const DELIVERY_BYTES: usize = size_of::<Delivery>() + MESSAGE_BYTES;

/// A message on its way to one subscriber.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// For whom.
    pub target: Target,
    /// What.
    pub message: Arc<Message>,
    /// Of those that wait one behind the other for the same words, the last counts for them.
    carries: bool,
}

impl Delivery {
    /// Bytes that the copy takes which its client is sent.
    pub fn copy_bytes(&self) -> usize {
        self.message.bytes()
    }

    /// Bytes that it counts for while it waits.
    fn bytes(&self) -> usize {
        DELIVERY_BYTES + self.carried_bytes()
    }

    fn carried_bytes(&self) -> usize {
        if self.carries { self.message.words_bytes() } else { 0 }
    }

    /// Whether it waits for the same words as another.
    fn shares(&self, other: &Delivery) -> bool {
        Arc::ptr_eq(&self.message.text, &other.message.text)
    }
}

/// What waits for the clients of one worker.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Deliveries that ever came.
    came: u64,
    /// The client that looked last for its own, and how many had come by then: of those none is its own any more.
    looked: (u64, u64),
}

impl Outbox {
    /// Adds deliveries, `bytes_max` waiting at most; true if there were none, so that the worker is to be
    /// woken. Those for which there is no room go to `missed`. What it holds more is told to `held` before anybody can
    /// take it and count it out.
    pub fn add(
        &self,
        deliveries: Vec<Delivery>,
        bytes_max: usize,
        missed: &mut dyn FnMut(Target),
        held: impl FnOnce(usize),
    ) -> bool {
        let waiting = &mut *self.waiting();
        let (first, before) = (waiting.deliveries.is_empty(), waiting.bytes);
        for mut delivery in deliveries {
            let last = waiting.deliveries.back_mut().filter(|last| last.shares(&delivery));
            let carried = last.as_ref().map_or(0, |last| last.carried_bytes());
            delivery.carries = true;
            if waiting.bytes - carried + delivery.bytes() > bytes_max {
                missed(delivery.target);
            } else {
                last.into_iter().for_each(|last| last.carries = false);
                waiting.bytes = waiting.bytes - carried + delivery.bytes();
                waiting.came += 1;
                waiting.deliveries.push_back(delivery);
            }
        }
        held(waiting.bytes - before);
        first
    }

    /// Takes all deliveries, in order, and the bytes that they held.
    pub fn take(&self) -> (Vec<Delivery>, usize) {
        let mut waiting = self.waiting();
        let bytes = std::mem::take(&mut waiting.bytes);
        (std::mem::take(&mut waiting.deliveries).into(), bytes)
    }

    /// Takes the first deliveries, in order, one at least, and those behind it until `enough` says so of the last; the
    /// bytes that they held, and whether more are left, for which nobody wakes the worker.
    pub fn take_until(&self, mut enough: impl FnMut(&Delivery) -> bool) -> (Vec<Delivery>, usize, bool) {
        let mut waiting = self.waiting();
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some(delivery) = waiting.deliveries.pop_front() {
            bytes += delivery.bytes();
            let last = enough(&delivery);
            some.push(delivery);
            if last {
                break;
            }
        }
        waiting.bytes -= bytes;
        let more = !waiting.deliveries.is_empty();
        if !more {
            // What many took is given back.
            waiting.deliveries = VecDeque::new();
        }
        (some, bytes, more)
    }

    /// Takes the deliveries for one client, in order, and the bytes that they held.
    pub fn take_for(&self, client: u64) -> (Vec<Delivery>, usize) {
        let mut waiting = self.waiting();
        let looked = (client, waiting.came);
        let (who, came) = std::mem::replace(&mut waiting.looked, looked);
        let new = if who == client { waiting.came - came } else { u64::MAX };
        let old = waiting.deliveries.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
        let mut taken = Vec::new();
        for mut delivery in waiting.deliveries.split_off(old) {
            if delivery.target.client != client {
                waiting.deliveries.push_back(delivery);
                continue;
            }
            // The words stay for those before it.
            if delivery.carries
                && let Some(last) = waiting.deliveries.back_mut()
                && last.shares(&delivery)
            {
                (last.carries, delivery.carries) = (true, false);
            }
            taken.push(delivery);
        }
        let bytes = taken.iter().map(Delivery::bytes).sum();
        waiting.bytes -= bytes;
        (taken, bytes)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Patterns = BTreeMap<Arc<[u8]>, Listeners>;
type Subscribers = HashMap<Arc<[u8]>, Vec<Target>>;

/// Clients that listen to a pattern.
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

    /// Subscribers of a channel.
    pub fn count(&self, channel: &[u8]) -> usize {
        self.shard(channel).get(channel).map_or(0, Vec::len)
    }

    /// Channels that somebody listens to.
    pub fn channels(&self) -> usize {
        self.channels.load(Relaxed)
    }

    /// The channels of a part of the table; none if there are no more parts.
    pub fn part(&self, part: usize) -> Option<Vec<Arc<[u8]>>> {
        let channels = self.shards.get(part)?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(channels.keys().cloned().collect())
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

/// One of the subscribers is none any more.
fn forget(targets: &mut Vec<Target>, target: Target) {
    if let Some(at) = targets.iter().position(|other| *other == target) {
        targets.swap_remove(at);
    }
}

/// Posts a message to each target, worker by worker.
pub(crate) fn post(host: &dyn Host, targets: &[Target], message: &Arc<Message>) {
    let mut by_worker: Vec<(usize, Vec<Delivery>)> = Vec::new();
    for &target in targets {
        let delivery = Delivery { target, message: Arc::clone(message), carries: false };
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
    /// What it takes at worst to match all of them, beside the bytes of the channel, …
    pattern_ns: AtomicU64,
    /// … and for each of these.
    byte_ns: AtomicU64,
    monitors: Mutex<Vec<Target>>,
    monitor_count: AtomicUsize,
    /// The time of the last line.
    shown_us: AtomicU64,
    /// What clients that are gone have listened to, and is to be forgotten.
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
            forget(&mut listeners.targets, target);
            if listeners.targets.is_empty() {
                self.weigh(listeners.weight, -1);
                patterns.remove(pattern);
            }
        }
        self.pattern_count.store(patterns.len(), Relaxed);
    }

    /// Patterns that somebody has subscribed to.
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Relaxed)
    }

    /// Sends a message to the subscribers of a sharded channel; how many.
    pub fn publish_to_shard(&self, host: &dyn Host, channel: &[u8], text: &[u8]) -> usize {
        self.shards.publish(host, channel, || Message {
            topic: Topic::Shard,
            channel: channel.into(),
            text: text.into(),
        })
    }

    /// Somebody wants to see every command.
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

    /// Sends a line, which begins with the time `at_us`, to all who want to see every command. They are shown lines
    /// of all workers in one order, and no time is before the one above it, unless the clock was set.
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

/// A line's time and what is in front of it.
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

    fn delivery(client: u64, bytes: usize) -> Delivery {
        let text = vec![0; bytes.saturating_sub(MESSAGE_BYTES)];
        let message = Message { topic: Topic::Commands, channel: [].into(), text: text.into() };
        Delivery { target: Target { place: 0, client }, message: Arc::new(message), carries: false }
    }

    #[test]
    fn who_looks_again_for_its_own_is_given_what_has_come_since() {
        let outbox = Outbox::default();
        let add = |clients: &[u64]| {
            let deliveries = clients.iter().map(|&client| delivery(client, 0)).collect();
            outbox.add(deliveries, OUTBOX_BYTES_MAX, &mut |_| panic!("there is room"), |_| ());
        };
        let taken = |client: u64| outbox.take_for(client).0.len();
        add(&[1, 2, 2, 1]);
        assert_eq!((taken(1), taken(1), taken(2), taken(2)), (2, 0, 2, 0));
        add(&[1, 2, 3]);
        assert_eq!((taken(2), taken(1)), (1, 1));
        add(&[1, 1]);
        // What the worker has taken meanwhile is nobody's any more.
        assert_eq!(outbox.take_until(|delivery| delivery.target.client == 1).0.len(), 2);
        add(&[1, 4]);
        assert_eq!((taken(1), taken(4), outbox.take().0.len()), (2, 1, 0));
    }

    #[test]
    fn post_holds_its_limit_and_names_who_misses_a_letter() {
        let outbox = Outbox::default();
        let most = OUTBOX_BYTES_MAX - size_of::<Delivery>();
        let mut missed = Vec::new();
        let mut add = |deliveries| {
            let mut held = 0;
            let miss = &mut |target: Target| missed.push(target.client);
            (outbox.add(deliveries, OUTBOX_BYTES_MAX, miss, |bytes| held = bytes), held)
        };
        assert_eq!(add(vec![delivery(1, most)]), (true, OUTBOX_BYTES_MAX));
        assert_eq!(add(vec![delivery(2, 0)]), (false, 0));
        let (deliveries, bytes) = outbox.take();
        assert_eq!((deliveries.len(), bytes), (1, OUTBOX_BYTES_MAX));
        let last = most - size_of::<Delivery>() - MESSAGE_BYTES;
        assert_eq!(add(vec![delivery(3, last), delivery(4, 0), delivery(5, 0)]), (true, OUTBOX_BYTES_MAX));
        let order: Vec<u64> = outbox.take().0.iter().map(|delivery| delivery.target.client).collect();
        assert_eq!((order, missed), (vec![3, 4], vec![2, 5]));
    }

    #[test]
    fn letters_of_one_client_are_taken_in_order_and_counted_out() {
        let outbox = Outbox::default();
        let deliveries = vec![delivery(1, 110), delivery(2, 120), delivery(1, 130)];
        outbox.add(deliveries, OUTBOX_BYTES_MAX, &mut |_| panic!("there is room"), |_| ());
        let (deliveries, bytes) = outbox.take_for(1);
        let sizes: Vec<usize> = deliveries.iter().map(|delivery| delivery.message.bytes()).collect();
        assert_eq!((sizes, bytes), (vec![110, 130], 240 + 2 * size_of::<Delivery>()));
        assert_eq!(outbox.take().1, 120 + size_of::<Delivery>());
    }

    #[test]
    fn letters_are_taken_some_at_a_time_in_order_and_one_at_least() {
        let outbox = Outbox::default();
        let deliveries = (1..=6).map(|client| delivery(client, 100 * client as usize)).collect();
        let (mut all, mut sum) = (0, 0);
        outbox.add(deliveries, OUTBOX_BYTES_MAX, &mut |_| panic!("there is room"), |bytes| all = bytes);
        for (last, clients, more) in
            [(2, &[1, 2][..], true), (0, &[3], true), (5, &[4, 5], true), (9, &[6], false)]
        {
            let (some, bytes, left) = outbox.take_until(|delivery| delivery.target.client >= last);
            assert_eq!(some.iter().map(|delivery| delivery.target.client).collect::<Vec<_>>(), clients);
            assert_eq!(left, more);
            sum += bytes;
        }
        assert_eq!(sum, all);
        assert_eq!(outbox.take_until(|_| false).1, 0);
    }

    #[test]
    fn words_for_many_are_counted_once_until_the_last_of_them_is_taken() {
        const EACH: usize = DELIVERY_BYTES;
        const WORDS: usize = 1000 - MESSAGE_BYTES;
        let outbox = Outbox::default();
        let add = |clients: &[u64]| {
            let letter = delivery(0, 1000);
            let to = |&client: &u64| Delivery { target: Target { place: 0, client }, ..letter.clone() };
            let mut held = 0;
            let all = clients.iter().map(to).collect();
            outbox.add(all, 5000, &mut |_| panic!("there is room"), |bytes| held = bytes);
            held
        };
        assert_eq!(add(&[1, 2, 3]), WORDS + 3 * EACH);
        assert_eq!(add(&[1; 10]), WORDS + 10 * EACH, "other words, if the same");
        assert_eq!(outbox.take_until(|delivery| delivery.target.client == 2).1, 2 * EACH);
        assert_eq!(outbox.take_until(|_| true).1, WORDS + EACH);
        assert_eq!(outbox.take_for(1).1, WORDS + 10 * EACH);
        // Whose is taken from between others, or behind them, leaves the words to those.
        add(&[1, 2, 1, 2, 3]);
        assert_eq!(outbox.take_for(3).1, EACH);
        assert_eq!(outbox.take_for(2).1, 2 * EACH);
        assert_eq!(outbox.take().1, WORDS + 2 * EACH);
        assert_eq!(outbox.waiting().bytes, 0);
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
