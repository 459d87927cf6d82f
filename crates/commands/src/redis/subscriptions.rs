//! A client's subscriptions: channels, patterns, sharded channels, and all commands (MONITOR).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_store::Store;

use super::reply::{put_bulk, put_head};
use crate::core::delivery::{Message, Target, Topic};
use crate::core::output::Output;
use crate::core::topics::{Kind, Names, Topics, subscription_bytes};

/// All subscriptions together take at most one part in so many of the memory limit.
const TOPIC_SHARE: u64 = 16;

/// A client's subscriptions.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    topics: Arc<Topics>,
    store: Arc<Store>,
    target: Target,
    channels: Names,
    patterns: Names,
    shards: Names,
    monitors: bool,
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for (kind, names) in [
            (Kind::Channel, std::mem::take(&mut self.channels)),
            (Kind::Pattern, std::mem::take(&mut self.patterns)),
            (Kind::Shard, std::mem::take(&mut self.shards)),
        ] {
            self.topics.leave(&self.store, kind, names, self.target);
        }
        if self.monitors {
            self.topics.remove_monitor(self.target);
        }
    }
}

impl Subscriptions {
    /// A client without subscriptions.
    pub fn new(topics: &Arc<Topics>, store: &Arc<Store>, target: Target) -> Subscriptions {
        Subscriptions {
            topics: Arc::clone(topics),
            store: Arc::clone(store),
            target,
            channels: Names::new(),
            patterns: Names::new(),
            shards: Names::new(),
            monitors: false,
        }
    }

    /// The names of a kind.
    pub fn names_of(&self, kind: Kind) -> &Names {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }

    fn names(&mut self, kind: Kind) -> &mut Names {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    /// How many channels and patterns, or sharded channels, it is subscribed to: the count that answers have.
    pub fn len(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.shards.len(),
        }
    }

    /// How many names it is subscribed to.
    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }

    /// How many channels, patterns and sharded channels it is subscribed to.
    pub fn counts(&self) -> [usize; 3] {
        [self.channels.len(), self.patterns.len(), self.shards.len()]
    }

    /// Whether it is a monitor.
    pub fn monitors(&self) -> bool {
        self.monitors
    }

    /// Makes it a monitor.
    pub fn monitor(&mut self) {
        if !self.monitors {
            self.monitors = true;
            self.topics.add_monitor(self.target);
        }
    }

    /// Whether it is subscribed to any name.
    pub fn listens(&self) -> bool {
        self.count() > 0
    }

    /// Subscribes to a name; false if all subscriptions together have their share of the memory.
    pub fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        if self.names(kind).contains(name) {
            return true;
        }
        let max = self.store.memory_bytes() / TOPIC_SHARE;
        if self.topics.bytes.load(Relaxed) + subscription_bytes(name) > max {
            return false;
        }
        self.names(kind).insert(name.into());
        self.topics.add(&self.store, kind, name, self.target);
        true
    }

    /// Unsubscribes from a name: nothing more is sent by it, or delivered.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) {
        if self.names(kind).remove(name) {
            self.topics.remove(&self.store, kind, name, self.target);
        }
    }

    /// Has nothing more sent by a name; returns whether the client was subscribed to it. What was sent before is still delivered,
    /// until it forgets the name.
    pub fn leave(&self, kind: Kind, name: &[u8]) -> bool {
        let listens = self.names_of(kind).contains(name);
        if listens {
            self.topics.remove(&self.store, kind, name, self.target);
        }
        listens
    }

    /// Forgets a name that it has left.
    pub fn forget(&mut self, kind: Kind, name: &[u8]) {
        self.names(kind).remove(name);
    }

    fn takes(&self, message: &Message) -> bool {
        match &message.topic {
            Topic::Channel => self.channels.contains(&*message.channel),
            Topic::Pattern(name) => self.patterns.contains(&**name),
            Topic::Shard => self.shards.contains(&*message.channel),
            Topic::Commands => self.monitors,
        }
    }

    /// Writes a message, unless the client is no longer subscribed to its topic.
    pub fn deliver(&self, resp3: bool, message: &Message, out: &mut Output) {
        if self.takes(message) {
            put_message(out, resp3, message);
        }
    }
}

/// Writes a message: an array, in RESP3 a push, or for a monitor a line.
fn put_message(out: &mut Output, resp3: bool, message: &Message) {
    let (word, pattern): (&[u8], _) = match &message.topic {
        Topic::Channel => (b"message", None),
        Topic::Pattern(pattern) => (b"pmessage", Some(pattern)),
        Topic::Shard => (b"smessage", None),
        Topic::Commands => return out.put(&message.text),
    };
    put_head(out, if resp3 { b'>' } else { b'*' }, 3 + u64::from(pattern.is_some()));
    put_bulk(out, word);
    if let Some(pattern) = pattern {
        put_bulk(out, pattern);
    }
    put_bulk(out, &message.channel);
    put_bulk(out, &message.text);
}
