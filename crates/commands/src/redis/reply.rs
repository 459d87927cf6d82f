//! Replies in RESP2 and RESP3, written into [`Output`].

use larder_protocol::reply::copy;
use larder_protocol::resp::{HEAD_BYTES_MAX, format_double, write_bulk_head, write_head, write_integer};
use larder_store::{Item, Value};

use super::fail::Fail;
use crate::core::output::Output;

/// Writes `+<text>`.
pub(crate) fn put_simple(out: &mut Output, text: &str) {
    out.put(b"+");
    out.put(text.as_bytes());
    out.put(b"\r\n");
}

/// Writes `:<n>`.
#[inline]
pub(crate) fn put_integer(out: &mut Output, n: i64) {
    let room = out.room(HEAD_BYTES_MAX);
    room[0] = b':';
    let end = 1 + write_integer(&mut room[1..], n);
    room[end..end + 2].copy_from_slice(b"\r\n");
    out.filled(end + 2);
}

/// Writes `$<length>` and the bytes.
#[inline]
pub(crate) fn put_bulk(out: &mut Output, bytes: &[u8]) {
    let room = out.room(HEAD_BYTES_MAX + bytes.len() + 2);
    let head = write_bulk_head(room, bytes.len() as u64);
    let (data, rest) = room[head..].split_at_mut(bytes.len());
    copy(data, bytes);
    *rest.first_chunk_mut().expect("room for the end") = *b"\r\n";
    out.filled(head + bytes.len() + 2);
}

/// Writes the value of an item: copied, or sent from its place.
#[inline(always)]
pub(crate) fn put_value(out: &mut Output, item: &Item<'_>) {
    match item.value() {
        Value::Whole(value) => put_bulk(out, value),
        Value::Pieces(_) => put_pinned(out, item),
        Value::Collection(_) => put_fail(out, &Fail::WRONG_TYPE),
    }
}

/// Writes a large value, or an error in its place; an error may stand in an array, too.
#[inline(never)]
fn put_pinned(out: &mut Output, item: &Item<'_>) {
    let Some(pinned) = item.pin_for_reply() else {
        return put_fail(out, &Fail::HELD);
    };
    put_head(out, b'$', item.value_bytes());
    out.splice(pinned);
    out.put(b"\r\n");
}

/// Parts of large values up to this are copied, because to pin a value holds all of it. So are elements of collections.
pub(crate) const COPIED_BYTES_MAX: usize = 16 << 10;

/// Writes a part of an item's value: copied, or sent from its place. The value has this part.
pub(crate) fn put_part(out: &mut Output, item: &Item<'_>, part: std::ops::Range<usize>) {
    if part.len() <= COPIED_BYTES_MAX {
        put_head(out, b'$', part.len() as u64);
        each_part(item.value(), part, &mut |bytes| out.put(bytes));
    } else {
        let Some(pinned) = item.pin_for_reply() else { return put_fail(out, &Fail::HELD) };
        put_head(out, b'$', part.len() as u64);
        out.splice_part(pinned, part.start as u64..part.end as u64);
    }
    out.put(b"\r\n");
}

/// Writes the first bytes of a reply of some kind: `<kind><n>`.
#[inline]
pub(crate) fn put_head(out: &mut Output, kind: u8, n: u64) {
    let bytes = write_head(out.room(HEAD_BYTES_MAX), kind, n);
    out.filled(bytes);
}

/// Begins an array of so many replies, which follow.
#[inline]
pub(crate) fn put_array(out: &mut Output, len: usize) {
    put_head(out, b'*', len as u64);
}

/// Begins a map of so many pairs, which follow.
pub(crate) fn put_map(out: &mut Output, resp3: bool, pairs: usize) {
    if resp3 { put_head(out, b'%', pairs as u64) } else { put_array(out, 2 * pairs) }
}

/// Begins a set of so many replies, which follow.
pub(crate) fn put_set(out: &mut Output, resp3: bool, len: usize) {
    put_head(out, if resp3 { b'~' } else { b'*' }, len as u64);
}

/// Writes a null.
#[inline]
pub(crate) fn put_null(out: &mut Output, resp3: bool) {
    out.put(null(resp3));
}

/// The null that stands for a string.
pub(crate) fn null(resp3: bool) -> &'static [u8] {
    if resp3 { b"_\r\n" } else { b"$-1\r\n" }
}

/// Writes the null that stands for an array.
pub(crate) fn put_null_array(out: &mut Output, resp3: bool) {
    out.put(if resp3 { b"_\r\n" } else { b"*-1\r\n" });
}

/// Writes a floating-point number.
pub(crate) fn put_double(out: &mut Output, resp3: bool, n: f64) {
    let text = format_double(n);
    if resp3 {
        out.put(b",");
        out.put(text.as_bytes());
        out.put(b"\r\n");
    } else {
        put_bulk(out, text.as_bytes());
    }
}

/// Writes text for people.
pub(crate) fn put_verbatim(out: &mut Output, resp3: bool, text: &str) {
    if resp3 {
        put_head(out, b'=', text.len() as u64 + 4);
        out.put(b"txt:");
        out.put(text.as_bytes());
        out.put(b"\r\n");
    } else {
        put_bulk(out, text.as_bytes());
    }
}

/// Writes `-<text>`. Ends of lines become spaces, and characters up to 255 one byte each.
#[cold]
pub(crate) fn put_fail(out: &mut Output, fail: &Fail) {
    out.put(b"-");
    for c in fail.text().chars() {
        match c {
            '\r' | '\n' => out.put(b" "),
            c if (c as u32) < 256 => out.put(&[c as u8]),
            c => out.put(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.put(b"\r\n");
}

/// Appends a value, in one piece or many, to `into`.
pub(crate) fn copy_value(value: Value<'_>, into: &mut Vec<u8>) {
    match value {
        Value::Whole(bytes) => into.extend_from_slice(bytes),
        Value::Pieces(value) => value.pin().pieces(0).for_each(|piece| into.extend_from_slice(piece)),
        Value::Collection(_) => {}
    }
}

/// Visits the bytes of a part of a value, in order. The value has this part.
pub(crate) fn each_part(value: Value<'_>, part: std::ops::Range<usize>, visit: &mut dyn FnMut(&[u8])) {
    match value {
        Value::Collection(_) => {}
        Value::Whole(bytes) => visit(&bytes[part]),
        Value::Pieces(value) => {
            let pinned = value.pin();
            let mut pieces = pinned.pieces(part.start as u64);
            let mut left = part.len();
            while left > 0
                && let Some(piece) = pieces.next()
            {
                let n = left.min(piece.len());
                visit(&piece[..n]);
                left -= n;
            }
        }
    }
}
