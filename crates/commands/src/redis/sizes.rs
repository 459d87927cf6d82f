//! Bytes that keys and items will take.

use larder_protocol::resp::Args;

/// Bytes that the store notes of a key that is written with others as one: its hash, and its bucket.
pub(crate) const KEY_HASH_BYTES: usize = 16;
/// Bytes that are noted of a key that is read with others as one: its hash, and the state of its bucket.
pub(crate) const KEY_LOOK_BYTES: usize = 32;
/// Bytes that are noted of a key while keyspace events are wanted: the key, and its state before.
pub(crate) const KEY_EVENT_BYTES: usize = 72;
/// Bytes of an item beside its key and value, at least.
pub(crate) const ITEM_HEADER_BYTES: usize = 8;

/// Bytes of an item that is made of these arguments, about.
pub(crate) fn item_bytes(args: Args<'_>) -> usize {
    ITEM_HEADER_BYTES + args.map(<[u8]>::len).sum::<usize>()
}
