//! A request to store a value, whatever its words: watchers are told of it.

use larder_protocol::classic::StoreVerb;
use larder_store::{Attributes, Key};

use super::table::row_of_store;
use crate::core::context::Context;
use crate::core::watchers::Stored;

/// A request to store a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The command's name in the line of the watchers.
    pub cmd: &'static str,
    pub expires_at: u64,
    /// The store's class of the item that would be stored.
    pub class: u8,
    pub value_bytes: u64,
}

impl Asked {
    /// The request of a classic store with these attributes.
    pub fn of_store(verb: StoreVerb, attributes: &Attributes, key: &Key<'_>, value_bytes: u64) -> Asked {
        let class = attributes.class(key, value_bytes);
        Asked { cmd: row_of_store(verb).name, expires_at: attributes.expires_at, class, value_bytes }
    }

    /// The reason why the value was not stored. `was_there`: the key had an item.
    pub fn refused(&self, was_there: bool) -> &'static str {
        match (self.cmd, was_there) {
            ("cas", true) => "exists",
            ("cas", false) => "not_found",
            ("add", true) | ("replace" | "append" | "prepend", false) => "not_stored",
            _ => "no_memory",
        }
    }
}

/// Tells watchers that a value was refused as too large.
#[cold]
pub(crate) fn tell_too_large(cx: &Context<'_, '_>, key: &[u8], cmd: &'static str) {
    let stored = Stored { status: "too_large", cmd, ttl_s: 0, class: None, value_bytes: 0 };
    cx.shared.watchers.tell_store(cx.watched(), cx.peer, key, stored);
}
