//! What a write stores beside the value, and the shape of an item that has it.

use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::item::{KEY_BINARY, STALE, Shape, TOKEN_SENT};
use crate::{Key, Millis};

/// What a write stores beside the value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// memcached's client flags.
    pub flags: u32,
    /// Absolute expiry; 0 is never. A time that has passed stores an item that is already expired.
    pub expires_at: Millis,
    /// The CAS token to give the item instead of the next version (meta flag `E`).
    pub cas: Option<u64>,
    /// The key arrived base64-encoded (meta flag `b`).
    pub key_binary: bool,
    /// The item is stale from the start (meta `ms … I` with an older token).
    pub stale: bool,
    /// A recache token was handed out for it (vivified by meta `N`, or won).
    pub token_sent: bool,
}

impl Attributes {
    /// Slab class of an item with such attributes, key and value, as [`crate::Item::class`] says it.
    #[inline]
    pub fn class(&self, key: &Key<'_>, value_bytes: u64) -> u8 {
        let shape = self.shape(key, value_bytes, false);
        let bytes = if shape.large() { CHUNK_BYTES_MAX } else { shape.whole_bytes() as usize };
        ClassId::of(bytes).0
    }

    pub(crate) fn marks(&self) -> u64 {
        let mark = |set, bit| if set { bit } else { 0 };
        mark(self.key_binary, KEY_BINARY) | mark(self.stale, STALE) | mark(self.token_sent, TOKEN_SENT)
    }

    /// The shape of an item with these attributes. Large items always have expiry and extension:
    /// copying one later to add them would cost more.
    #[inline]
    pub(crate) fn shape(&self, key: &Key<'_>, value_bytes: u64, extension: bool) -> Shape {
        let shape = Shape::new(
            key.bytes.len(),
            value_bytes,
            self.flags,
            self.expires_at != 0,
            self.cas.is_some() || extension || key.number != 0,
        );
        if shape.large() { Shape::new(key.bytes.len(), value_bytes, self.flags, true, true) } else { shape }
    }
}
