//! A live item as a reader sees it: key, value, attributes and what was noted about its use.

use super::value::{InLeaf, InPieces, Pinned, Value};
use crate::access;
use crate::bucket::Slot;
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::forecast::SLOT_BYTES;
use crate::item::{FETCHED, Header, KEY_BINARY, Kind, RawItem, STALE, TOKEN_SENT, key_heap_bytes};
use crate::large::Large;
use crate::worker::{chunk_facts, class_of};
use crate::{Database, Millis, Seen, Store};
use std::sync::Arc;

/// A live item, borrowed from the arena until the guard is written through.
#[derive(Clone, Copy, Debug)]
pub struct Item<'g> {
    pub(crate) raw: RawItem,
    /// As it was before this access.
    pub(crate) header: Header,
    pub(crate) slot: Slot,
    pub(super) hash: u64,
    pub(super) now_s: u64,
    pub(super) arc: &'g Arc<Store>,
}

impl<'g> Item<'g> {
    /// The key's bytes.
    #[inline]
    pub fn key(&self) -> &'g [u8] {
        // SAFETY: `'g` ends before the guard can leave its epoch.
        unsafe { self.raw.key_by(self.header) }
    }
    /// The name of the item's database.
    pub fn database(&self) -> u8 {
        self.arc.names.name(self.raw.number(self.header))
    }
    /// True if it is in this database.
    pub fn is_in(&self, database: Database) -> bool {
        self.raw.number(self.header) == database.number()
    }
    /// memcached's client flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.raw.flags(self.header)
    }
    /// The wire CAS token.
    #[inline]
    pub fn cas(&self) -> u64 {
        self.raw.token(self.hash)
    }
    /// Absolute expiry, 0 for never.
    pub fn expires_at(&self) -> Millis {
        self.raw.expires_at()
    }
    /// Bytes of the value; of a collection, those that its elements take together.
    pub fn value_bytes(&self) -> u64 {
        match self.value() {
            Value::Whole(value) => value.len() as u64,
            Value::Pieces(value) => value.value_bytes(),
            // SAFETY: a collection that was reachable in this epoch, which `'g` ends before.
            Value::Collection(_) if self.header.is_tree() => unsafe { self.raw.root(self.header) }.bytes,
            // SAFETY: as above.
            Value::Collection(_) => unsafe { self.raw.leaf_bytes(self.header) as u64 },
        }
    }
    /// It has a hash in which a field expires.
    pub fn is_timed(&self) -> bool {
        self.header.is_timed()
    }

    /// It has a collection, not a string.
    #[inline]
    pub fn is_collection(&self) -> bool {
        !self.header.is_whole() && self.header.is_collection()
    }
    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'g> {
        if self.header.is_whole() {
            // SAFETY: `'g` ends before the guard can leave its epoch.
            return Value::Whole(unsafe { self.raw.whole_value(self.header) });
        }
        self.large_value()
    }
    /// The value of an item that keeps it in pieces, in one run of bytes if they are no more than one; or a
    /// collection.
    #[cold]
    #[inline(never)]
    fn large_value(&self) -> Value<'g> {
        if self.header.is_collection() {
            return Value::Collection(InLeaf(*self));
        }
        // SAFETY: a large item that was reachable in this epoch, which `'g` ends before.
        match unsafe { Large::of(self.raw).in_one_run(&self.arc.arena) } {
            Some(value) => Value::Whole(value),
            None => Value::Pieces(InPieces(*self)),
        }
    }
    /// Keeps a large value in place while it is being sent.
    ///
    /// # Panics
    /// If the value is not in pieces.
    pub fn pin(&self) -> Pinned {
        assert!(self.raw.header().is_large(), "only large values are pinned");
        // SAFETY: reachable in this epoch, and a large item.
        let mut large = unsafe { Large::of(self.raw) };
        let mut location = self.slot.location();
        let only = loop {
            match large.head().pins.add() {
                Ok(only) => break only,
                Err(moved) => location = moved,
            }
            // SAFETY: a large item again, published in this epoch.
            large = unsafe { Large::of(RawItem::new(self.arc.arena.at(location))) };
        };
        if only {
            self.arc.held.pinned(self.value_bytes() as i64);
        }
        Pinned::of_item(Arc::clone(self.arc), location)
    }
    /// As [`Item::pin`], unless connections hold their share of the memory.
    ///
    /// # Panics
    /// If the value is not in pieces.
    pub fn pin_for_reply(&self) -> Option<Pinned> {
        // SAFETY: reachable in this epoch, and a large item, as `pin` asserts first of all.
        let pinned = self.raw.header().is_large() && unsafe { Large::of(self.raw) }.head().pins.any();
        // What is being sent to another already takes no more memory for this one.
        (pinned || self.arc.may_pin(self.value_bytes())).then(|| self.pin())
    }
    /// Identity of this version.
    #[inline]
    pub fn seen(&self) -> Seen {
        seen(self.raw, self.slot.location(), self.hash)
    }
    /// Marked stale by [`crate::Guard::invalidate`] or [`crate::Attributes::stale`].
    #[inline]
    pub fn stale(&self) -> bool {
        self.header.has(STALE)
    }
    /// A recache token is out.
    #[inline]
    pub fn token_sent(&self) -> bool {
        self.header.has(TOKEN_SENT)
    }
    /// The key arrived base64-encoded.
    #[inline]
    pub fn key_binary(&self) -> bool {
        self.header.has(KEY_BINARY)
    }
    /// It was read before this access.
    #[inline]
    pub fn fetched(&self) -> bool {
        self.header.has(FETCHED)
    }
    /// Seconds between the access before this one and now: exact for the first two minutes, then in
    /// steps of about half an hour up to six days. Accesses within 8 s of a noted one may count as
    /// that one. Where the clock was set, the time until then and the time since count.
    pub fn idle_s(&self) -> u64 {
        access::idle_s(self.slot.access(), self.now_s)
    }
    /// How often it was accessed recently, from 0 to 3.
    pub fn frequency(&self) -> u8 {
        self.slot.frequency() as u8
    }
    /// Slab class of the item's chunk; of a value in pieces, that of the pieces. Of a string it follows from the
    /// header; a collection of which something was taken out may lie in a longer chunk.
    #[inline]
    pub fn class(&self) -> u8 {
        let class = match self.header.kind() {
            Kind::Large => ClassId::of(CHUNK_BYTES_MAX),
            Kind::Collection => class_of(&self.arc.arena, self.header, self.slot.location()),
            _ => ClassId::of(self.raw.whole_bytes_by(self.header)),
        };
        debug_assert_eq!(class, class_of(&self.arc.arena, self.header, self.slot.location()));
        class.0
    }
    /// Bytes of the memory limit that it takes, about: its chunk, what it has beside that, and its slot in the index.
    pub fn charged_bytes(&self) -> u64 {
        let chunk = chunk_facts(&self.arc.arena, self.slot.location()).0.chunk_bytes() as u64;
        chunk + SLOT_BYTES + self.beside_bytes()
    }
    /// Bytes of header, key, value and what goes with them.
    pub fn item_bytes(&self) -> u64 {
        let chunk = chunk_facts(&self.arc.arena, self.slot.location()).1 as u64;
        chunk + self.beside_bytes()
    }
    /// Bytes that are not in its chunk.
    fn beside_bytes(&self) -> u64 {
        if self.header.is_whole() {
            return 0;
        }
        let apart = self.header.is_large() || self.header.is_tree();
        let beside = if apart { self.value_bytes() } else { 0 };
        key_heap_bytes(self.key().len()) as u64 + beside
    }
}

/// Identity of the version of an item that is reachable in this epoch.
#[inline]
pub(crate) fn seen(raw: RawItem, location: u64, hash: u64) -> Seen {
    let expires_at = raw.expires_at();
    Seen { location, version: raw.header().version(), token: raw.token(hash), expires_at, moves: 0 }
}
