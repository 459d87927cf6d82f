//! The purpose of a value that is not stored at once: all that is kept of its command, whatever its words.

use larder_protocol::classic::{Store, StoreVerb};
use larder_protocol::meta::Verb;
use larder_store::{End, Key, Millis};

use super::asked::Asked;
use super::table::{Command, row_of_meta, row_of_store};
use super::{classic, frames, meta};

/// The purpose of a value.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A classic store; its key is kept elsewhere.
    Classic(Store<'static>),
    /// ms
    Meta(meta::Plan),
    /// A frame of the binary protocol.
    Binary(frames::Plan),
}

impl Purpose {
    /// The row of its command.
    pub fn row(&self) -> &'static Command {
        match self {
            Purpose::Classic(store) => row_of_store(store.verb),
            Purpose::Meta(_) => row_of_meta(Verb::Set),
            Purpose::Binary(plan) => plan.row(),
        }
    }

    /// Its request to store a value, for watchers.
    pub fn asked(&self, now: Millis, key: &Key<'_>, value_bytes: u64) -> Asked {
        match self {
            Purpose::Classic(store) => {
                let attributes = classic::attributes(store, now);
                Asked::of_store(store.verb, &attributes, key, value_bytes)
            }
            Purpose::Meta(plan) => plan.asked(key, value_bytes),
            Purpose::Binary(plan) => plan.asked(key, value_bytes),
        }
    }

    /// Returns whether a failure gets no reply.
    pub fn is_silent(&self) -> bool {
        match self {
            Purpose::Classic(store) => store.noreply,
            Purpose::Meta(_) | Purpose::Binary(_) => false,
        }
    }

    /// The bytes that end the value's block.
    pub fn end(&self) -> &'static [u8] {
        match self {
            Purpose::Classic(_) | Purpose::Meta(_) => b"\r\n",
            Purpose::Binary(_) => b"",
        }
    }

    /// Bytes of a value's block, its end among them.
    pub fn block_bytes(&self, value_bytes: u64) -> u64 {
        value_bytes + self.end().len() as u64
    }

    /// Returns whether the store overwrites whatever is there, so that a failure must remove that.
    pub fn overwrites(&self) -> bool {
        match self {
            Purpose::Classic(store) => store.verb == StoreVerb::Set,
            Purpose::Meta(_) => true,
            Purpose::Binary(plan) => plan.overwrites(),
        }
    }

    /// The end of the value to which an append or prepend adds.
    pub fn adds_to(&self) -> End {
        match self {
            Purpose::Classic(store) if store.verb == StoreVerb::Prepend => End::Front,
            Purpose::Classic(_) => End::Back,
            Purpose::Meta(plan) => plan.end(),
            Purpose::Binary(plan) => plan.end(),
        }
    }

    /// The token that the item must have for the store.
    pub fn compares_with(&self) -> Option<u64> {
        match self {
            Purpose::Classic(_) => None,
            Purpose::Meta(plan) => plan.compares_with(),
            Purpose::Binary(plan) => plan.compares_with(),
        }
    }

    /// The token that the item is given in place of the next one.
    pub fn token(&self) -> Option<u64> {
        match self {
            Purpose::Classic(_) | Purpose::Binary(_) => None,
            Purpose::Meta(plan) => plan.attributes.cas,
        }
    }

    /// Returns whether it is append or prepend.
    pub fn concats(&self) -> bool {
        match self {
            Purpose::Classic(store) => matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend),
            Purpose::Meta(plan) => plan.concats(),
            Purpose::Binary(plan) => plan.concats(),
        }
    }
}
