//! Replies in frames.

use larder_protocol::binary::{HEADER_BYTES, Head, Reply, Status};
use larder_protocol::reply::copy;
use larder_store::{Item, Value};

use crate::core::output::Output;
use crate::memcached::form::put_frame;

/// Bytes of an item's flags, the extras of a reply with an item.
const FLAGS_BYTES: usize = 4;

/// Writes a status and its text.
pub(crate) fn put_status(out: &mut Output, head: Head, status: Status) {
    put_frame(out, head, status, b"", status.text().as_bytes());
}

/// Writes a status and another text.
pub(crate) fn put_text(out: &mut Output, head: Head, status: Status, text: &str) {
    put_frame(out, head, status, b"", text.as_bytes());
}

/// Writes a success of a command that left an item with this token.
#[inline]
pub(crate) fn put_done(out: &mut Output, head: Head, cas: u64) {
    out.put(&Reply { cas, ..Reply::new(head, Status::Ok) }.header());
}

/// Writes a number, and the token of its item.
pub(crate) fn put_number(out: &mut Output, head: Head, number: u64, cas: u64) {
    let number = number.to_be_bytes();
    out.put(&Reply { cas, value_bytes: number.len() as u32, ..Reply::new(head, Status::Ok) }.header());
    out.put(&number);
}

/// The reason why an item is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untold {
    /// There is no memory that keeps its value while it is sent.
    NoMemory,
    /// No frame is so long.
    TooLarge,
}

/// Writes an item's flags alone.
pub(crate) fn put_flags(out: &mut Output, head: Head, flags: u32, cas: u64) {
    out.put(&Reply { cas, extras_bytes: FLAGS_BYTES as u8, ..Reply::new(head, Status::Ok) }.header());
    out.put(&flags.to_be_bytes());
}

/// Writes an item: its flags, its key if that is not empty, and its value, from where it lies if it is large.
///
/// # Errors
/// The item cannot be sent. Nothing is written.
#[inline]
pub(crate) fn put_item(
    out: &mut Output,
    head: Head,
    key: &[u8],
    item: &Item<'_>,
    token: impl Fn(u64) -> u64,
) -> Result<(), Untold> {
    let mut reply = Reply {
        extras_bytes: FLAGS_BYTES as u8,
        key_bytes: key.len() as u16,
        ..Reply::new(head, Status::Ok)
    };
    let start = HEADER_BYTES + FLAGS_BYTES + key.len();
    let Value::Whole(value) = item.value() else {
        let most = u64::from(u32::MAX) - start as u64;
        let value_bytes = u32::try_from(item.value_bytes()).ok().filter(|&bytes| u64::from(bytes) <= most);
        reply.value_bytes = value_bytes.ok_or(Untold::TooLarge)?;
        let pinned = item.pin_for_reply().ok_or(Untold::NoMemory)?;
        // The token of the bytes that are pinned: neither changes now.
        reply.cas = token(item.cas());
        out.put(&reply.header());
        out.put(&item.flags().to_be_bytes());
        out.put(key);
        out.splice(pinned);
        return Ok(());
    };
    reply.value_bytes = value.len() as u32;
    reply.cas = token(item.cas());
    let room = out.room(start + value.len());
    let (header, rest) = room.split_at_mut(HEADER_BYTES);
    header.copy_from_slice(&reply.header());
    let (flags, rest) = rest.split_at_mut(FLAGS_BYTES);
    flags.copy_from_slice(&item.flags().to_be_bytes());
    let (name, data) = rest.split_at_mut(key.len());
    name.copy_from_slice(key);
    copy(data, value);
    out.filled(start + value.len());
    Ok(())
}
