//! A message on its way to a subscriber: what it says, and the client that receives it.

use std::sync::Arc;

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

/// How a message came to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Channel,
    Pattern(Arc<[u8]>),
    Shard,
    /// Every command (MONITOR).
    Commands,
}

/// What a subscriber is sent.
#[derive(Debug)]
pub struct Message {
    pub(crate) topic: Topic,
    /// The channel; of a line for MONITOR empty.
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

    /// Bytes of what is kept once for all that receive it: a pattern is kept by its subscribers.
    pub(super) fn words_bytes(&self) -> usize {
        self.channel.len() + self.text.len()
    }

    /// Whether it is of the same words as another.
    pub(super) fn shares(&self, other: &Message) -> bool {
        Arc::ptr_eq(&self.text, &other.text) && self.channel.len() == other.channel.len()
    }

    /// What was published, or the line.
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
    /// Bytes that the copy takes which its client is sent.
    pub fn copy_bytes(&self) -> usize {
        self.message.bytes()
    }
}
