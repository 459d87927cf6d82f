//! DUMP of a collection, in the plain forms that every Redis and Valkey reads.
//!
//! ```text
//! type 1: 1 list, 2 set, 4 hash, 5 sorted set │ how many │ entries │ version 2 │ CRC-64 8      lengths, strings, end: `serialize.rs`
//!
//! list, set    string
//! hash         field │ value
//!              if a field expires: type 24, the first time 8 in front of how many, and time │ field │ value,
//!                                  time 0 for never, else 1 + milliseconds behind the first; version 12
//! sorted set   member │ score 8, a double LE
//! ```

use arrayvec::ArrayVec;
use larder_protocol::resp::Args;
use larder_store::{Collection, Element, Entry, Hint, Key, Millis, Type};

use super::listing::{Form, Listed, Which};
use super::{Call, Shown};
use crate::core::output::Output;
use crate::redis::fail::Done;
use crate::redis::reply::put_head as put_bulk_head;
use crate::redis::serialize::{
    FOOTER_BYTES, LENGTH_BYTES_MAX, TIMED_VERSION, VERSION, crc64_on, length, packed,
};

/// The types of payloads.
pub(crate) const TYPE_LIST: u8 = 1;
pub(crate) const TYPE_SET: u8 = 2;
pub(crate) const TYPE_HASH: u8 = 4;
pub(crate) const TYPE_SORTED_SET: u8 = 5;

/// A hash of which a field expires.
pub(crate) const TYPE_TIMED_HASH: u8 = 24;
/// Such a hash as Valkey writes it. (In Redis the number was that of another form, which no release wrote.)
pub(crate) const TYPE_VALKEY_HASH: u8 = 22;
/// Bytes of a time.
pub(crate) const TIME_BYTES: usize = 8;

/// What is in front of the entries.
type Head = ArrayVec<u8, { 1 + TIME_BYTES + LENGTH_BYTES_MAX }>;

/// What the payload is of: the type, and for a hash when its first field expires, 0 for never.
pub(super) type Of = (Type, Millis);

fn head((kind, soonest): Of, len: usize) -> Head {
    let mut head = Head::new();
    head.push(match kind {
        Type::List => TYPE_LIST,
        Type::Set => TYPE_SET,
        Type::Hash if soonest != 0 => TYPE_TIMED_HASH,
        Type::Hash => TYPE_HASH,
        Type::SortedSet => TYPE_SORTED_SET,
        Type::Stream => unreachable!("a stream has a payload of its own"),
    });
    if soonest != 0 {
        head.extend(soonest.to_le_bytes());
    }
    head.extend(length(len as u64));
    head
}

/// Calls `put` with the bytes of an element, in pieces.
fn each_piece(there: &Collection<'_>, element: &Element<'_>, put: &mut impl FnMut(&[u8])) {
    match element {
        Element::Apart(apart) => {
            put(&length(apart.len() as u64));
            there.parts(apart).for_each(put);
        }
        Element::Text(text) => {
            put(&length(text.len() as u64));
            put(text);
        }
        Element::Number(number) => match packed(*number) {
            Some(packed) => put(&packed),
            None => {
                put(&length(element.len() as u64));
                put(element.text(&mut [0; larder_store::DIGITS_MAX]));
            }
        },
    }
}

/// Calls `put` with the bytes of an entry, in pieces.
pub(super) fn each_piece_of_entry(
    (there, entry): (&Collection<'_>, &Entry<'_>),
    (kind, soonest): Of,
    put: &mut impl FnMut(&[u8]),
) {
    if soonest != 0 {
        let behind = if entry.expires_at == 0 { 0 } else { 1 + entry.expires_at.saturating_sub(soonest) };
        put(&length(behind));
    }
    each_piece(there, &entry.name, put);
    match kind {
        Type::Hash => each_piece(there, &entry.value, put),
        Type::SortedSet => put(&entry.score.to_le_bytes()),
        Type::Set | Type::List | Type::Stream => {}
    }
}

/// The checksum of what is in front of the entries.
pub(super) fn begin_checksum(of: Of, len: usize) -> u64 {
    crc64_on(0, &head(of, len))
}

/// Writes what is in front of entries of so many bytes.
pub(super) fn put_head(out: &mut Output, of: Of, len: usize, bytes: u64) {
    let head = head(of, len);
    put_bulk_head(out, b'$', head.len() as u64 + bytes + FOOTER_BYTES as u64);
    out.put(&head);
}

/// Writes what is behind the entries. `checksum`: that of all before.
pub(super) fn put_end(out: &mut Output, soonest: Millis, checksum: u64) {
    let version = if soonest == 0 { VERSION } else { TIMED_VERSION }.to_le_bytes();
    out.put(&version);
    out.put(&crc64_on(checksum, &version).to_le_bytes());
    out.put(b"\r\n");
}

/// Writes a whole collection from where it lies.
pub(super) fn put_all(out: &mut Output, there: &Collection<'_>) {
    let (of, len) = ((there.kind(), there.soonest()), there.len());
    let mut bytes = 0;
    for entry in there.entries(0..len) {
        each_piece_of_entry((there, &entry), of, &mut |piece| bytes += piece.len() as u64);
    }
    put_head(out, of, len, bytes);
    let mut checksum = begin_checksum(of, len);
    for entry in there.entries(0..len) {
        each_piece_of_entry((there, &entry), of, &mut |piece| {
            out.put(piece);
            checksum = crc64_on(checksum, piece);
        });
    }
    put_end(out, of.1, checksum);
}

/// Begins DUMP of a collection. It replies null if there is none by then.
///
/// # Errors
/// The key has another type of value by then; there is no room.
pub(crate) fn dump(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    kind: Type,
    args: Args<'_>,
) -> Done {
    let shown = match kind {
        Type::Hash => Shown::Fields,
        Type::SortedSet => Shown::Scores,
        Type::Set | Type::List => Shown::Names,
        Type::Stream => return super::stream::payload::dump(call, key),
    };
    let listed = Listed { kind, shown, form: Form::Payload, which: Which::All, takes: false, soonest: 0 };
    call.list("dump", key, hint, args, listed)
}
