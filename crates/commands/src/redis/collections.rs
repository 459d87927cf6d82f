//! Commands on collections, and what those of all types have in common: how they are read, how their elements are
//! replied, and what is said where one was not changed.

pub(crate) mod block;
pub(crate) mod bounds;
mod combine;
pub(crate) mod fields;
pub(crate) mod geo;
pub(crate) mod hash;
pub(crate) mod list;
mod listing;
pub(crate) mod making;
mod matching;
pub(crate) mod members;
mod mpop;
pub(crate) mod payload;
mod pick;
mod popping;
pub(crate) mod ranging;
pub(crate) mod scan;
mod seeking;
mod sending;
pub(crate) mod set;
mod sifting;
pub(crate) mod sorted;
pub(crate) mod sorting;
mod storing;
pub(crate) mod stream;
mod taking;
pub(crate) mod words;
mod writing;

pub(crate) use pick::PICKS_DIRECT;
pub(crate) use scan::SCAN_NS;

use std::ops::Range;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{
    Attributes, Collection, DIGITS_MAX, Element, Entry, Expect, Guard, Hint, Item, Key, LongText, Made,
    Millis, Type, Value,
};

use super::call::{Call, ELEMENT_BYTES, find, integer};
use super::fail::{Done, Fail};
use super::reply::{put_array, put_bulk, put_double, put_fail, put_head, put_null_array};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::core::work::STEPS_BYTES_MIN;

/// Work to reply an element. These are measured, of a million elements, with a margin.
pub(crate) const ELEMENT_NS: u64 = 50;
/// Work to write a score, beside that.
pub(crate) const SCORE_NS: u64 = 150;
/// Work to compare an element on the way through a list.
pub(crate) const COMPARE_NS: u64 = 10;
/// Work to look whether one of several keys is there.
pub(crate) const PRESENT_NS: u64 = 200;
/// Work to look for an element by its name or place.
pub(crate) const LOOK_NS: u64 = 500;
/// Work to put an element in, or to take one out.
pub(crate) const WRITE_NS: u64 = 1_500;
/// The same of a member of a sorted set, which is in two trees.
pub(crate) const SCORED_NS: u64 = 3_000;
/// Work to store one of many elements at once.
pub(crate) const STORED_NS: u64 = 1_000;
/// Work to bring an element into its order, among a million.
pub(crate) const SORTED_NS: u64 = 1_000;
/// Work to put a member together with those of other collections.
pub(crate) const MEMBER_NS: u64 = 200;
/// Elements that are too many to be replied in one step, and bytes of elements that are.
const MANY_ELEMENTS: usize = 8 << 10;
const MANY_BYTES: usize = STEPS_BYTES_MIN as usize;
/// Elements of which nothing is said of what they take.
const FEW_ELEMENTS: usize = 16;
/// What an element takes in a reply beside the bytes that it has in a collection, at most: its head, its end, and the
/// digits of a number.
pub(crate) const ELEMENT_ROOM: usize = 32;
/// The head and the end of an element in a reply, at most: one that is copied has fewer than 10,000,000 bytes, and so have all
/// but those that are sent from where they lie.
const ELEMENT_FRAME: usize = 12;
/// Bytes of an element that may be copied into a reply, at most: some 1 ms. Longer ones, which were received into their parts,
/// are sent from there, or an error stands in their place.
pub(crate) const COPIED_ELEMENT_BYTES_MAX: usize = 4 << 20;
/// Bytes of that error, at most.
const ERROR_ROOM: usize = 256;
/// A score in a reply, at most, and that it is one of a pair.
const SCORE_ROOM: usize = 40;

/// The collection of an item, which is no hash.
///
/// # Errors
/// It has another type of value.
fn of_type<'r>(item: Option<Item<'r>>, kind: Type) -> Result<Option<Collection<'r>>, Fail> {
    of_type_at(item, kind, 0)
}

/// The collection of an item, as it is at this time, the batch's.
///
/// # Errors
/// It has another type of value.
fn of_type_at<'r>(item: Option<Item<'r>>, kind: Type, now: Millis) -> Result<Option<Collection<'r>>, Fail> {
    let Some(item) = item else { return Ok(None) };
    match item.value() {
        Value::Collection(collection) if collection.kind() == kind => Ok(Some(collection.elements_at(now))),
        Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => Err(Fail::WRONG_TYPE),
    }
}

/// The collection of a key, counted as an access and as a hit or miss.
///
/// # Errors
/// It has another type of value, which counts as a hit.
#[inline]
pub(crate) fn read_as<'r>(
    cx: &'r mut Context<'_, '_>,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    kind: Type,
) -> Result<Option<Collection<'r>>, Fail> {
    let now = cx.guard.now();
    of_type_at(find(cx, tally, key, hint), kind, now)
}

/// The collection of a key, read without a trace.
///
/// # Errors
/// It has another type of value.
pub(crate) fn peek_as<'r>(
    guard: &'r mut Guard<'_>,
    key: &Key<'_>,
    kind: Type,
) -> Result<Option<Collection<'r>>, Fail> {
    let now = guard.now();
    of_type_at(guard.peek(key).hit(), kind, now)
}

/// Bytes that a reply of all of a collection takes at most, as far as is known without a look at its elements: of short ones
/// it is several times what they take.
fn reply_bytes_max(collection: &Collection<'_>) -> usize {
    // With a field goes its value, with a member its score.
    let each = match collection.kind() {
        Type::Hash | Type::SortedSet => 2,
        Type::Set | Type::List | Type::Stream => 1,
    };
    collection.bytes() + each * collection.len() * ELEMENT_ROOM
}

/// All of it is more than is replied in one step.
fn is_large(collection: &Collection<'_>) -> bool {
    collection.len() >= MANY_ELEMENTS || collection.bytes() >= MANY_BYTES
}

/// An element of so many bytes is not copied, and not compared with another.
pub(crate) fn is_too_long(bytes: usize) -> bool {
    bytes > COPIED_ELEMENT_BYTES_MAX
}

/// Bytes of an element of so many that are copied into a reply: of one that is too long for that the error in its place.
fn copied_bytes(bytes: usize) -> usize {
    if is_too_long(bytes) { ERROR_ROOM } else { bytes }
}

/// Bytes that a reply of an entry takes at most: within some ten of what it takes, but for a score.
fn entry_bytes_max(entry: &Entry<'_>, kind: Type) -> usize {
    shown_bytes_max(entry, (kind, Shown::Fields))
}

/// The same of what is shown of it, where that is less.
fn shown_bytes_max(entry: &Entry<'_>, (kind, shown): (Type, Shown)) -> usize {
    let name = entry.name.len() + ELEMENT_FRAME;
    match kind {
        Type::Hash if shown == Shown::Names => name,
        Type::Hash if shown == Shown::Values => entry.value.len() + ELEMENT_FRAME,
        // What separates pairs is no longer than the frame.
        Type::Hash => name + entry.value.len() + 2 * ELEMENT_FRAME,
        Type::SortedSet => name + SCORE_ROOM,
        Type::Set | Type::List | Type::Stream => name,
    }
}

/// The same of what is copied into a reply, which has no element that is too long for that.
fn copied_bytes_max(entry: &Entry<'_>, (kind, shown): (Type, Shown)) -> usize {
    let bytes = shown_bytes_max(entry, (kind, shown));
    let Some(apart) = entry.apart().filter(|apart| is_too_long(apart.len())) else { return bytes };
    // Of a field it is the value that lies apart, which is not always shown.
    if bytes > apart.len() { bytes - apart.len() + ERROR_ROOM } else { bytes }
}

/// Bytes that a reply of the entries at these places takes at most. They are measured only where they may be more than `free`.
fn places_bytes_max(collection: &Collection<'_>, places: Range<usize>, free: usize) -> usize {
    bytes_max_at(collection, places, free, |entry| entry_bytes_max(entry, collection.kind()))
}

/// The same of what is copied of them into a reply that shows so much of each.
fn shown_places_bytes_max(
    collection: &Collection<'_>,
    places: Range<usize>,
    (free, shown): (usize, Shown),
) -> usize {
    bytes_max_at(collection, places, free, |entry| copied_bytes_max(entry, (collection.kind(), shown)))
}

/// The same, where `each` says what an entry takes.
fn bytes_max_at(
    collection: &Collection<'_>,
    places: Range<usize>,
    free: usize,
    each: impl Fn(&Entry<'_>) -> usize,
) -> usize {
    let all = reply_bytes_max(collection);
    if all <= free && (places.len() == collection.len() || all <= ELEMENT_BYTES) {
        return all;
    }
    HEAD_BYTES_MAX * 2 + collection.entries(places).map(|entry| each(&entry)).sum::<usize>()
}

impl Call<'_, '_, '_> {
    /// Replies with a collection: `write` gets it, and the reply has room for as many bytes as `measure` says.
    ///
    /// # Errors
    /// The key has another type of value; there is no room for the reply; or what `write` says.
    pub fn reply_measured(
        &mut self,
        key: &Key<'_>,
        hint: &Hint<'_>,
        kind: Type,
        measure: impl Fn(&Collection<'_>) -> usize,
        write: impl FnOnce(&mut Output, bool, Option<Collection<'_>>) -> Done,
    ) -> Done {
        let resp3 = self.client.resp3;
        let there = read_as(self.cx, self.tally, key, hint, kind)?;
        let bytes = there.as_ref().map_or(0, &measure);
        if bytes <= self.out.free_bytes() {
            return write(self.out, resp3, there);
        }
        self.reply_with_room(key, kind, bytes, measure, write)
    }

    /// Makes room for a reply of so many bytes, and of more if `measure` says so by then, and has it written.
    ///
    /// # Errors
    /// The key has another type of value; there is no room for the reply; or what `write` says.
    fn reply_with_room(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        mut bytes: usize,
        measure: impl Fn(&Collection<'_>) -> usize,
        write: impl FnOnce(&mut Output, bool, Option<Collection<'_>>) -> Done,
    ) -> Done {
        loop {
            self.make_room(bytes)?;
            // Items may have given way to it, and others written meanwhile.
            let there = peek_as(&mut self.cx.guard, key, kind)?;
            let needed = there.as_ref().map_or(0, &measure);
            if needed <= bytes {
                return write(self.out, self.client.resp3, there);
            }
            bytes = needed;
        }
    }

    /// Makes room for a reply of as many bytes as `measure` says of the collection as it is now.
    ///
    /// # Errors
    /// The key has another type of value; there is no room.
    pub fn make_room_of(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        measure: impl FnOnce(&Collection<'_>) -> usize,
    ) -> Done {
        let bytes = peek_as(&mut self.cx.guard, key, kind)?.map_or(0, |there| measure(&there));
        self.make_room(bytes)
    }

    /// Spends what it takes to look for so many elements, if they are more than a few.
    pub fn spend_on_looks(&mut self, elements: usize) {
        self.spend_on(elements, LOOK_NS);
    }

    /// Spends what it takes to put so many elements in, or to take them out, if they are more than a few.
    pub fn spend_on_writes(&mut self, elements: usize) {
        self.spend_on(elements, WRITE_NS);
    }

    /// Stores `count` elements in place of what the key has, in one step, and replies how many they are. If there are none, the
    /// key is removed.
    pub fn store_elements<'p>(
        &mut self,
        target: &Key<'_>,
        kind: Type,
        count: usize,
        made: impl Iterator<Item = Made<'p>>,
    ) -> Done {
        if count == 0 {
            // It may not be there: that is as good.
            let _ = self.cx.guard.delete(target, Expect::Present);
            return self.integer(0);
        }
        let stored =
            self.cx.guard.collection_store(target, kind, made, &Attributes::default(), Expect::Any)?;
        stored.map_err(|_| Fail::OUT_OF_MEMORY)?;
        self.spend_on(count, STORED_NS);
        self.length(count)
    }

    /// Spends what it takes to reply so many elements, if they are more than a few.
    pub fn spend_on_elements(&mut self, elements: usize) {
        self.spend_on(elements, ELEMENT_NS);
    }

    /// Spends so many nanoseconds for each of some elements, if they are more than a few.
    pub fn spend_on(&mut self, elements: usize, ns: u64) {
        if elements > FEW_ELEMENTS {
            self.spend((elements as u64).saturating_mul(ns));
        }
    }
}

/// What is replied of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The field, member or element.
    Names,
    /// The field's value.
    Values,
    /// The field and its value.
    Fields,
    /// The member and its score.
    Scores,
}

impl Shown {
    /// Writes an entry of a collection: two replies, where it is two things.
    pub fn put(self, out: &mut Output, resp3: bool, (there, entry): (&Collection<'_>, &Entry<'_>)) {
        if self != Shown::Values {
            put_element_of(out, there, &entry.name);
        }
        match self {
            Shown::Names => {}
            Shown::Values | Shown::Fields => put_element_of(out, there, &entry.value),
            Shown::Scores => put_double(out, resp3, entry.score),
        }
    }

    fn are_pairs(self) -> bool {
        matches!(self, Shown::Fields | Shown::Scores)
    }

    /// Writes the head of an array of so many entries, which follow: of pairs in RESP3 an array of arrays, in RESP2 a flat one.
    pub fn put_head(self, out: &mut Output, resp3: bool, entries: usize) {
        let flat = self.are_pairs() && !resp3;
        put_array(out, if flat { 2 * entries } else { entries });
    }

    /// Writes one of the entries behind [`Shown::put_head`].
    pub fn put_one(self, out: &mut Output, resp3: bool, of: (&Collection<'_>, &Entry<'_>)) {
        self.begin_one(out, resp3);
        self.put(out, resp3, of);
    }

    /// Writes what is in front of one of the entries.
    fn begin_one(self, out: &mut Output, resp3: bool) {
        if self.are_pairs() && resp3 {
            put_array(out, 2);
        }
    }
}

/// Writes an element of a collection, or a field's value, as a bulk string.
#[inline]
pub(crate) fn put_element_of(out: &mut Output, there: &Collection<'_>, element: &Element<'_>) {
    match element {
        Element::Apart(apart) => put_apart(out, there, apart),
        element => put_element(out, element),
    }
}

/// Writes an element of a collection that lies apart, as a bulk string: copied. In the place of one that is too long for that an
/// error stands.
#[cold]
fn put_apart(out: &mut Output, there: &Collection<'_>, apart: &LongText<'_>) {
    if is_too_long(apart.len()) {
        return put_fail(out, &Fail::TOO_LONG_TO_COPY);
    }
    put_head(out, b'$', apart.len() as u64);
    there.parts(apart).for_each(|part| out.put(part));
    out.put(b"\r\n");
}

/// Writes an element that lies in a leaf, as a bulk string.
#[inline]
pub(crate) fn put_element(out: &mut Output, element: &Element<'_>) {
    put_bulk(out, element.text(&mut [0; DIGITS_MAX]));
}

/// Every second of some words with the one behind it.
#[derive(Clone, Debug)]
pub(crate) struct Pairs<'a>(pub Args<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);
    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        Some((self.0.next()?, self.0.next()?))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len() / 2, Some(self.0.len() / 2))
    }
}

/// What `ask` says of the collection of a key, counted as an access; none if there is none.
pub(crate) fn look<R>(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    kind: Type,
    ask: impl FnOnce(&Collection<'_>) -> R,
) -> Result<Option<R>, Fail> {
    Ok(read_as(call.cx, call.tally, key, hint, kind)?.map(|collection| ask(&collection)))
}

/// HLEN, LLEN, SCARD, ZCARD
pub(crate) fn len(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, kind: Type) -> Done {
    let elements = look(call, key, hint, kind, |collection| collection.len())?;
    call.length(elements.unwrap_or(0))
}

/// The places from `start` to `stop`, which is one of them, of so many; negative ones count from the end.
pub(crate) fn places(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let place = |n: i64| if n < 0 { n.saturating_add(len) } else { n };
    let (start, stop) = (place(start).max(0), place(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// A number that has a negative one.
///
/// # Errors
/// It is none.
pub(crate) fn symmetric(word: &[u8]) -> Result<i64, Fail> {
    let n = integer(word)?;
    if n == i64::MIN {
        let most = i64::MAX;
        return Err(Fail::with(format!("ERR value is out of range, value must between -{most} and {most}")));
    }
    Ok(n)
}

/// The keys behind their number, which are taken out of `args`.
///
/// # Errors
/// `none` if the number is none, or not above 0; a syntax error if there are fewer.
pub(crate) fn counted<'a>(args: &mut Args<'a>, none: Fail) -> Result<Args<'a>, Fail> {
    let count = integer(args.next().unwrap_or_default()).ok().and_then(|n| usize::try_from(n).ok());
    let count = count.filter(|count| *count > 0).ok_or(none)?;
    if count > args.len() {
        return Err(Fail::SYNTAX);
    }
    let keys = Args::rest(args.encoded(), count);
    args.nth(count - 1);
    Ok(keys)
}
