//! A message on its way to a subscriber: what it says, and the client that receives it.

use std::sync::Arc;

/// A subscriber: the connection's place in the server, and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The connection's place, as [`crate::Peer::place`]: the worker is in the upper half.
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

/// The way in which a message came to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Channel,
    Pattern(Arc<[u8]>),
    Shard,
    /// Every command (MONITOR).
    Commands,
}

/// A message, as its subscribers are sent it.
#[derive(Debug)]
pub struct Message {
    pub(crate) topic: Topic,
    /// The channel; empty for a line of MONITOR.
    pub(crate) channel: Arc<[u8]>,
    pub(crate) text: Arc<[u8]>,
}

/// Bytes of a message besides its words, about.
pub(super) const MESSAGE_BYTES: usize = 48;

impl Message {
    /// Bytes that it takes where it is delivered, about.
    pub(super) fn bytes(&self) -> usize {
        let pattern = if let Topic::Pattern(pattern) = &self.topic { pattern.len() } else { 0 };
        MESSAGE_BYTES + pattern + self.words_bytes()
    }

    /// Bytes of the words, which are kept once for all that receive it. Subscribers keep their patterns.
    pub(super) fn words_bytes(&self) -> usize {
        self.channel.len() + self.text.len()
    }

    /// Returns whether it shares its words with another.
    pub(super) fn shares(&self, other: &Message) -> bool {
        Arc::ptr_eq(&self.text, &other.text) && self.channel.len() == other.channel.len()
    }

    /// The published text, or the line of MONITOR.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

/// A message on its way to one subscriber.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The client that receives it.
    pub target: Target,
    /// What it receives.
    pub message: Arc<Message>,
}

impl Delivery {
    /// Bytes of the copy that is sent to its client.
    pub fn copy_bytes(&self) -> usize {
        self.message.bytes()
    }
}
