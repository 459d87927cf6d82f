//! What patterns of SORT find in other keys for an element: a number or a text to sort by, a value to store.
//!
//! A value may be as long as an element of a list. A value that is longer than a leaf is measured first; then room is made for
//! it, and it is looked up again. A number takes no room: it is read where it lies.
//!
//! EXEC weighs each lookup alike, since it cannot know the lengths of the values: longer ones are counted here.

use super::{COMPARED_TIMES, READ_TIMES, Sorting};
use crate::core::work::copying_ns;
use crate::redis::call::{Call, ELEMENT_BYTES, KEY_BYTES_MAX};
use crate::redis::collections::LOOK_NS;
use crate::redis::collections::sorting::number::{LongNumber, number};
use crate::redis::collections::sorting::pattern::{Found, Shape};
use crate::redis::copied::Copied;
use crate::redis::fail::{Done, Fail};

/// Written in front of a text to sort by, so that an empty text is sorted behind none.
const THERE: &[u8] = &[1];
/// Bytes of values longer than a leaf that are read in a transaction, which is one step. Copied, compared and put into a list
/// they take some 3 ms.
pub(in super::super) const LONG_AT_ONCE_BYTES: usize = 1 << 20;
/// Once its commands have done so much, EXEC reads no more of these values, nor others that are longer than [`SHORT_BYTES`].
const EXEC_NS_MAX: u64 = 10_000_000;
/// Bytes of values that the weight of a lookup covers. No number that is printed without an exponent is longer.
const SHORT_BYTES: usize = 512;
/// Bytes that a SORT reads of numbers longer than [`SHORT_BYTES`], at most: 16 of the longest, 70 ms in steps. A list may name
/// one long number millions of times, and other clients' long commands wait meanwhile.
const NUMBERS_BYTES_MAX: usize = 64 << 20;
/// How often the bytes of a stored value are copied, beside the copy when it is gathered.
const STORED_TIMES: u64 = 2;

const TOO_LONG_AT_ONCE: Fail = Fail::of(
    "ERR SORT in a transaction reads at most 1048576 bytes of values that are longer than 16384 bytes",
);

const TOO_LONG_NUMBERS: Fail =
    Fail::of("ERR SORT reads at most 67108864 bytes of numbers that are longer than 512 bytes");

/// The error for a value that is longer than values to sort by may be.
fn weight_too_long(bytes_max: usize) -> Fail {
    Fail::with(format!("ERR value to sort by exceeds maximum allowed size ({bytes_max} bytes)"))
}

/// Whether EXEC has done so much that it reads no more long values. `ns`: work that is not spent yet.
fn has_done_much(call: &Call<'_, '_, '_>, ns: u64) -> bool {
    let done_ns = call.cx.room.work().done_ns().saturating_sub(call.client.executes_from_ns);
    call.client.executes && done_ns.saturating_add(ns) > EXEC_NS_MAX
}

/// Checks that EXEC may reply so many bytes that GET found. `ns`: work of this step that is not spent yet.
///
/// # Errors
/// It has done as much as it may.
pub(super) fn admit_replied(call: &Call<'_, '_, '_>, bytes: u64, ns: u64) -> Done {
    if bytes > SHORT_BYTES as u64 && has_done_much(call, ns) { Err(Fail::LOOKED_ENOUGH) } else { Ok(()) }
}

/// Adds a found text to `to`, behind `before`.
fn push(to: &mut Copied, before: &[u8], found: &Found<'_>) {
    if matches!(found, Found::Nothing) {
        return to.push(&[]);
    }
    to.push_made(|bytes| {
        bytes.reserve(before.len() + found.bytes());
        bytes.extend_from_slice(before);
        found.each_piece(&mut |piece| {
            bytes.extend_from_slice(piece);
            true
        });
    });
}

/// Work to look up what a pattern names for an element.
fn look_ns(element: &[u8]) -> u64 {
    LOOK_NS + copying_ns(element.len().min(KEY_BYTES_MAX) as u64)
}

/// Parses a found number, 0 if nothing was found, and returns how many of its bytes were read. A number longer than a leaf is
/// read up to `bytes_max`; `None` if it goes on behind that.
fn number_of(found: &Found<'_>, bytes_max: usize) -> (Option<Result<f64, Fail>>, usize) {
    let bytes = found.bytes();
    match found {
        Found::Nothing => (Some(Ok(0.0)), 0),
        Found::Text(text) => (Some(number(text)), bytes),
        Found::Apart(..) | Found::String(_) if bytes <= ELEMENT_BYTES => {
            let mut text = Vec::with_capacity(bytes);
            found.each_piece(&mut |piece| {
                text.extend_from_slice(piece);
                true
            });
            (Some(number(&text)), bytes)
        }
        Found::Apart(..) | Found::String(_) => {
            let mut long = LongNumber::default();
            found.each_piece(&mut |piece| {
                let left = bytes_max - long.bytes();
                long.read(&piece[..piece.len().min(left)]) && long.bytes() < bytes_max
            });
            let read = long.bytes();
            let is_too_long = bytes > bytes_max && long.goes_on();
            ((!is_too_long).then(|| long.finish()), read)
        }
    }
}

impl Sorting {
    /// Reads the number by which an element is sorted from another key.
    ///
    /// # Errors
    /// It is no number, or longer than it may be; or all numbers together are.
    pub(super) fn read_number(&mut self, call: &mut Call<'_, '_, '_>, i: usize, ns: &mut u64) -> Done {
        let bytes_max = call.cx.guard.store().element_bytes_max();
        let readable = self.readable_bytes(call, bytes_max, *ns);
        let (text, db) = (self.texts.at(i), call.client.db);
        let by = self.patterns.by.as_ref().expect("what is weighed is weighed by a pattern");
        let cx = (&mut *call.cx, &mut *call.tally, db);
        let read = |found: Found<'_>| number_of(&found, readable);
        let (score, bytes) = self.patterns.look(cx, by, text, &mut self.key_name, read);
        *ns += look_ns(text) + READ_TIMES * copying_ns(bytes as u64);
        let Some(score) = score else {
            return Err(if readable < bytes_max { TOO_LONG_AT_ONCE } else { weight_too_long(bytes_max) });
        };
        self.scores.push(score?);
        if bytes > SHORT_BYTES {
            self.number_bytes += bytes;
            if self.number_bytes > NUMBERS_BYTES_MAX {
                return Err(TOO_LONG_NUMBERS);
            }
        }
        self.admit(call, (bytes, true), 0, *ns)
    }

    /// Copies what a pattern names for an element: the GET of this index, to be stored, or BY, to be sorted by.
    pub(super) fn copy_named(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        i: usize,
        get: Option<usize>,
        ns: &mut u64,
    ) -> Done {
        let bytes_max = call.cx.guard.store().element_bytes_max();
        let times = if get.is_some() { STORED_TIMES } else { COMPARED_TIMES };
        let mut room = ELEMENT_BYTES;
        loop {
            let (text, db) = (self.texts.at(i), call.client.db);
            let (shape, to, before) = match get {
                Some(get) => (&self.patterns.gets[get], &mut self.gathered, b"".as_slice()),
                None => {
                    let by = self.patterns.by.as_ref().expect("what is weighed is weighed by a pattern");
                    (by, &mut self.weights, THERE)
                }
            };
            let is_others = !matches!(shape, Shape::Element);
            let copy = |found: Found<'_>| {
                let bytes = found.bytes();
                if bytes <= room {
                    push(to, before, &found);
                }
                bytes
            };
            let cx = (&mut *call.cx, &mut *call.tally, db);
            let bytes = self.patterns.look(cx, shape, text, &mut self.key_name, copy);
            *ns += look_ns(text);
            if bytes <= room {
                *ns += copying_ns(bytes as u64);
                // A long value was admitted before it was copied.
                let is_admitted = bytes > ELEMENT_BYTES;
                return if is_admitted { Ok(()) } else { self.admit(call, (bytes, is_others), times, *ns) };
            }
            if bytes > bytes_max {
                return Err(if get.is_some() {
                    Fail::COLLECTION_TOO_LARGE
                } else {
                    weight_too_long(bytes_max)
                });
            }
            self.admit(call, (bytes, is_others), times, *ns)?;
            // Charging may have evicted items, and others write meanwhile: the value is looked up again.
            self.held.set(call, self.bytes() + 2 * bytes)?;
            room = bytes;
        }
    }

    /// In a transaction, checks that a value of so many bytes may be read, unless it is short; it is the element itself unless
    /// `is_others`. `times`: how often it is copied or compared later; `ns`: work of this step that is not spent yet.
    ///
    /// # Errors
    /// That is more than it may read.
    fn admit(
        &mut self,
        call: &Call<'_, '_, '_>,
        (bytes, is_others): (usize, bool),
        times: u64,
        ns: u64,
    ) -> Done {
        if bytes <= SHORT_BYTES || !call.cx.guard.in_transaction() {
            return Ok(());
        }
        self.owed_ns = self.owed_ns.saturating_add(times * copying_ns(bytes as u64));
        let is_enough = has_done_much(call, ns.saturating_add(self.owed_ns));
        // EXEC knows how long elements are when it begins, but not how often GET names them.
        if bytes <= ELEMENT_BYTES || !is_others {
            return if is_enough { Err(Fail::LOOKED_ENOUGH) } else { Ok(()) };
        }
        self.long_bytes = self.long_bytes.saturating_add(bytes);
        if self.long_bytes > LONG_AT_ONCE_BYTES || is_enough {
            return Err(TOO_LONG_AT_ONCE);
        }
        Ok(())
    }

    /// Most bytes of a number that is read: `bytes_max`; in a transaction the bytes that are left for long values, but at least
    /// those of a leaf. A longer number is refused before it is read, so that it costs no time.
    fn readable_bytes(&self, call: &Call<'_, '_, '_>, bytes_max: usize, ns: u64) -> usize {
        if !call.cx.guard.in_transaction() {
            return bytes_max;
        }
        let left = LONG_AT_ONCE_BYTES.saturating_sub(self.long_bytes);
        let left = if has_done_much(call, ns) { 0 } else { left };
        left.max(ELEMENT_BYTES).min(bytes_max)
    }
}
