//! Bytes that keys and items take, before they are there.

use larder_protocol::resp::Args;

/// What the store notes of a key that is written with others as one: its hash, and its bucket.
pub(crate) const KEY_HASH_BYTES: usize = 16;
/// What is noted of a key that is looked at with others as one: its hash, and what its bucket was like.
pub(crate) const KEY_LOOK_BYTES: usize = 32;
/// What is noted of a key while keyspace events are wanted: it, and what it was like.
pub(crate) const KEY_EVENT_BYTES: usize = 72;
/// What an item takes beside its key and value, at least.
pub(crate) const ITEM_HEADER_BYTES: usize = 8;

/// Bytes of an item that is made of these arguments, about.
pub(crate) fn item_bytes(args: Args<'_>) -> usize {
    ITEM_HEADER_BYTES + args.map(<[u8]>::len).sum::<usize>()
}
