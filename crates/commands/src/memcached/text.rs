//! Replies in memcached's text, written into [`Output`].

use larder_protocol::base64;
use larder_protocol::escape::{escape, escaped_bytes_max};
use larder_protocol::number::{U64_BYTES_MAX, write_u64};
use larder_protocol::reply::{VALUE_LINE_BYTES_MAX, copy, write_value_line};
use larder_store::{Item, Value};

use crate::core::output::Output;

/// End of a get.
pub const END: &[u8] = b"END\r\n";
/// There is no such item: the reply of a meta get.
pub const META_MISS: &[u8] = b"EN\r\n";
/// Not a command, or not in this form.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The rules of the client's user do not allow the request.
pub const UNAUTHORIZED: &[u8] = b"CLIENT_ERROR unauthorized\r\n";
/// Done.
pub const OK: &[u8] = b"OK\r\n";
/// The value is above `-I`.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory at the start of a value.
pub const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// No memory in the middle of a value.
pub const NO_MEMORY_DURING_READ: &[u8] = b"SERVER_ERROR Out of memory during read\r\n";
/// Connections hold as much memory as they may: no further value is sent.
pub const NO_MEMORY_FOR_REPLY: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";
/// The counter is no number.
pub const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// More connections are open than may be.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

/// Appends a number.
pub fn put_number(out: &mut Output, n: u64) {
    let bytes = write_u64(out.room(U64_BYTES_MAX), n);
    out.filled(bytes);
}

/// Appends `VALUE <key> <flags> <bytes>[ <cas>]`, the value, and `END` if this is the last. False, and
/// nothing appended, if there is no memory to keep the value in while it is sent.
#[inline(always)]
#[must_use]
pub fn put_value(out: &mut Output, key: &[u8], item: &Item<'_>, cas: Option<u64>, last: bool) -> bool {
    let Value::Whole(value) = item.value() else { return put_other(out, key, item, cas, last) };
    put_whole(out, key, item.flags(), value, cas, last);
    true
}

/// Does what [`put_value`] does for a value in pieces. A collection counts as absent, since the command asks for a string.
#[cold]
#[inline(never)]
fn put_other(out: &mut Output, key: &[u8], item: &Item<'_>, cas: Option<u64>, last: bool) -> bool {
    if let Value::Pieces(_) = item.value() {
        let Some(pinned) = item.pin_for_reply() else { return false };
        // The token of the bytes that are pinned: neither changes now.
        let cas = cas.map(|_| item.cas());
        let room = out.room(key.len() + VALUE_LINE_BYTES_MAX);
        let head = write_value_line(room, key, item.flags(), item.value_bytes(), cas);
        out.filled(head);
        out.splice(pinned);
        out.put(if last { b"\r\nEND\r\n" } else { b"\r\n" });
    } else if last {
        out.put(END);
    }
    true
}

#[inline(always)]
fn put_whole(out: &mut Output, key: &[u8], flags: u32, value: &[u8], cas: Option<u64>, last: bool) {
    let room = out.room(key.len() + VALUE_LINE_BYTES_MAX + value.len() + 2 + END.len());
    let head = write_value_line(room, key, flags, value.len() as u64, cas);
    let (data, rest) = room[head..].split_at_mut(value.len());
    copy(data, value);
    // All seven are written; they count only at the end of a get.
    *rest.first_chunk_mut::<7>().expect("room for the end") = *b"\r\nEND\r\n";
    out.filled(head + value.len() + if last { 7 } else { 2 });
}

/// Appends a value and its line end, copied or from its place; false as for [`put_value`].
#[inline]
#[must_use]
pub fn put_data(out: &mut Output, item: &Item<'_>) -> bool {
    match item.value() {
        Value::Collection(_) => return false,
        Value::Whole(value) => {
            let room = out.room(value.len() + 2);
            let (data, end) = room.split_at_mut(value.len());
            copy(data, value);
            end.copy_from_slice(b"\r\n");
            out.filled(value.len() + 2);
        }
        Value::Pieces(_) => {
            let Some(pinned) = item.pin_for_reply() else { return false };
            out.splice(pinned);
            out.put(b"\r\n");
        }
    }
    true
}

/// Returns whether the key can be a word of a line, as text clients send and read them. RESP's keys, and those in base64, may
/// have any bytes.
pub fn is_text(key: &[u8]) -> bool {
    !key.is_empty() && !key.ends_with(b"\r") && memchr::memchr2(b' ', b'\n', key).is_none()
}

/// Appends a key, or the part of one, as it is, or in an URI's encoding if it is no text.
pub fn put_key(out: &mut Output, key: &[u8]) {
    if is_text(key) {
        return out.put(key);
    }
    put_escaped(out, key);
}

/// Appends a key in an URI's encoding.
pub fn put_escaped(out: &mut Output, key: &[u8]) {
    let bytes = escape(key, out.room(escaped_bytes_max(key.len())));
    out.filled(bytes);
}

/// Appends a key as meta commands have it: as it is, or in base64 and marked if it was sent so or is no text.
pub fn put_meta_key(out: &mut Output, key: &[u8], binary: bool) {
    if binary || !is_text(key) {
        put_base64(out, key);
        out.put(b" b");
    } else {
        out.put(key);
    }
}

/// Appends a key in base64.
pub fn put_base64(out: &mut Output, key: &[u8]) {
    let bytes = base64::encode(key, out.room(base64::encoded_bytes(key.len())));
    out.filled(bytes);
}
