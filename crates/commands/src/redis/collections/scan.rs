//! HSCAN, SSCAN, ZSCAN: the elements of a collection, leaf by leaf, as many as it takes, and no more than others wait for. One
//! that is one leaf is one piece, as Redis has it with those that are one listpack.
//!
//! Long values are copied, but for one that is too long for that: it is sent from where it lies, or an error stands in its place.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use larder_protocol::number::{U64_BYTES_MAX, write_u64};
use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, DIGITS_MAX, Element, Entry, Hint, Key, Store, Type};

use super::matching::{Known, match_in_steps};
use super::sending::{pinning_ns, put_or_send};
use super::words::COMPARED_TIMES;
use super::{
    Call, ELEMENT_NS, LOOK_NS, Shown, copied_bytes_max, is_too_long, peek_as, put_element, shown_bytes_max,
    shown_places_bytes_max,
};
use crate::core::glob::Pattern;
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{ELEMENT_BYTES, bounded, cursor, free_room, integer, is, next};
use crate::redis::copied::run_of;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk};

/// Which elements are wanted, and what of them.
pub(super) struct Wanted<'a> {
    /// The pattern of their names; `None`: all are wanted.
    pub pattern: Option<Pattern<'a>>,
    /// The charge for the pattern's memory.
    held: Option<Heap>,
    shown: Shown,
    /// How many elements are looked at, beside those in one leaf with them.
    count: usize,
    /// What it took to look for the places of long members, each time that they were looked for.
    compared_ns: Cell<u64>,
    /// A long member that was matched in steps.
    known: Option<&'a Known>,
}

/// What some members that lie apart take to be matched.
#[derive(Clone, Copy, Debug, Default)]
struct LongNames {
    ns: u64,
    /// What one would take of which it is known whether it matches.
    known_ns: u64,
    /// One of them would take too long.
    too_long: bool,
}

/// What a look at some elements came to.
pub(super) enum Scanned {
    /// They are replied, or will be.
    Done,
    /// One of them takes long to match: its bytes, and what they are charged to.
    TooLong(Vec<u8>, Option<Heap>),
}

/// Elements that are looked at where the client does not say how many.
const COUNT: usize = 10;
/// What looking at elements takes before the rest is left for another call, however many are asked for.
pub(crate) const SCAN_NS: u64 = 400_000;
/// What takes less is not spent.
const FEW_NS: u64 = 2_000;
/// Most work in one step to match a member that lies apart with a pattern.
const LONG_MATCH_NS: u64 = 6_000_000;
/// That work for a member of a sorted set, which is also looked for where room is made and where it is replied, some 4 ms.
const SCORED_MATCH_NS: u64 = 3_000_000;

impl<'a> Wanted<'a> {
    pub fn parse(
        call: &mut Call<'_, '_, '_>,
        kind: Type,
        mut args: Args<'a>,
        known: Option<&'a Known>,
    ) -> Result<Wanted<'a>, Fail> {
        let shown = match kind {
            Type::Hash => Shown::Fields,
            Type::SortedSet => Shown::Scores,
            Type::Set | Type::List | Type::Stream => Shown::Names,
        };
        let compared_ns = Cell::new(0);
        let mut wanted = Wanted { pattern: None, held: None, shown, count: COUNT, compared_ns, known };
        while let Some(word) = args.next() {
            if is(word, "COUNT") {
                let count = usize::try_from(integer(next(&mut args)?)?).ok();
                wanted.count = count.filter(|count| *count > 0).ok_or(Fail::SYNTAX)?;
            } else if is(word, "MATCH") {
                let pattern = Some(bounded(next(&mut args)?)?).filter(|pattern| *pattern != b"*");
                // The one before, if there is one, goes first.
                (wanted.pattern, wanted.held) = (None, None);
                wanted.held = pattern.map(|pattern| Heap::of_pattern(call, pattern, false));
                wanted.pattern = pattern.map(|pattern| Pattern::of(pattern, false));
            } else if is(word, "NOVALUES") {
                if kind != Type::Hash {
                    return Err(Fail::ONLY_HSCAN);
                }
                wanted.shown = Shown::Names;
            } else if is(word, "NOSCORES") {
                if kind != Type::SortedSet {
                    return Err(Fail::ONLY_ZSCAN);
                }
                wanted.shown = Shown::Names;
            } else {
                return Err(Fail::SYNTAX);
            }
        }
        Ok(wanted)
    }

    /// The places that are looked at from `cursor` on, and where to go on.
    fn places(&self, collection: &Collection<'_>, cursor: u64) -> (Vec<Range<usize>>, u64) {
        let (mut places, mut cursor, mut count) = (Vec::new(), cursor, 0);
        let (mut long_ns, has_long) = (0, collection.longest_apart() > 0);
        loop {
            let before = places.len();
            cursor = collection.scan(cursor, &mut places);
            count += places[before..].iter().map(Range::len).sum::<usize>();
            if has_long {
                // Here the average says little.
                let bytes = |range: &Range<usize>| self.bytes_max(collection, range.clone()) as u64;
                long_ns += copying_ns(places[before..].iter().map(bytes).sum());
                // The same places as before it was known of one whether it matches.
                let names = self.long_names(collection, &places[before..]);
                long_ns += names.ns + names.known_ns;
                let compared_ns = compared_ns(collection, &places[before..]);
                self.compared_ns.set(self.compared_ns.get() + compared_ns);
                long_ns += compared_ns;
            }
            let ns = self.ns(collection, count, average_bytes(collection, count)) + long_ns;
            if cursor == 0 || count >= self.count || ns >= SCAN_NS {
                return (places, cursor);
            }
        }
    }

    /// It is replied.
    fn wants(&self, there: &Collection<'_>, entry: &Entry<'_>) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        if let Some(matches) = self.known(there, &entry.name) {
            return matches;
        }
        pattern.matches(run_of(there, &entry.name, &mut [0; DIGITS_MAX], &mut Vec::new()))
    }

    /// Whether the pattern matches a name, if that is the long member of which it is known.
    fn known(&self, there: &Collection<'_>, name: &Element<'_>) -> Option<bool> {
        let known = self.known?;
        known.is(there, name).then_some(known.matches)
    }

    /// What it takes to match members at these places that lie apart, each of which is copied for that, or compared with one of
    /// which it is known.
    fn long_names(&self, there: &Collection<'_>, places: &[Range<usize>]) -> LongNames {
        let mut names = LongNames::default();
        let Some(pattern) = &self.pattern else { return names };
        if there.kind() == Type::Hash || there.longest_apart() == 0 {
            return names;
        }
        for entry in places.iter().flat_map(|range| there.entries(range.clone())) {
            let Some(apart) = entry.apart() else { continue };
            let bytes = apart.len() as u64;
            let matching_ns = pattern.weight().long_ns(bytes);
            names.ns += copying_ns(bytes);
            if self.known(there, &entry.name).is_some() {
                names.known_ns += matching_ns;
            } else {
                names.ns += matching_ns;
                names.too_long |= takes_too_long(there, pattern, bytes);
            }
        }
        names
    }

    /// The first member at these places that takes too long.
    fn too_long(&self, there: &Collection<'_>, places: &[Range<usize>]) -> Option<Vec<u8>> {
        let pattern = self.pattern.as_ref()?;
        let mut entries = places.iter().flat_map(|range| there.entries(range.clone()));
        entries.find_map(|entry| {
            let bytes = entry.apart()?.len() as u64;
            if !takes_too_long(there, pattern, bytes) || self.known(there, &entry.name).is_some() {
                return None;
            }
            let mut text = Vec::new();
            run_of(there, &entry.name, &mut [0; DIGITS_MAX], &mut text);
            Some(text)
        })
    }

    /// Bytes of the longest member at these places that is copied to be matched; 0 if none is.
    fn longest_copied(&self, there: &Collection<'_>, places: &[Range<usize>]) -> usize {
        if self.pattern.is_none() || there.kind() == Type::Hash || there.longest_apart() == 0 {
            return 0;
        }
        let entries = places.iter().flat_map(|range| there.entries(range.clone()));
        let copied = entries.filter(|entry| self.known(there, &entry.name).is_none());
        copied.filter_map(|entry| entry.apart()).map(|apart| apart.len()).max().unwrap_or(0)
    }

    /// Bytes of the longest member that is copied to be matched from `cursor` on, at most: of the longest that the set may have
    /// anywhere, or, where there is no room for so much, or one of them is known, of the longest that is there.
    fn copied_max(&self, call: &mut Call<'_, '_, '_>, (key, kind): (&Key<'_>, Type), cursor: u64) -> usize {
        if self.pattern.is_none() || kind == Type::Hash {
            return 0;
        }
        let store = call.cx.guard.store();
        let free = store.held_bytes_max().saturating_sub(store.held_bytes());
        let set = peek_as(&mut call.cx.guard, key, kind).unwrap_or(None);
        let Some(set) = set.filter(|set| set.longest_apart() > 0) else { return 0 };
        let most = set.longest_apart();
        let has_room = most as u64 <= free && self.known.is_none();
        if has_room { most } else { self.longest_copied(&set, &self.places(&set, cursor).0) }
    }

    /// Bytes of a reply of the entries at these places, at most; long values are there only if they are replied. For a long
    /// member there is room in any case: it is matched once.
    fn bytes_max(&self, hash: &Collection<'_>, range: Range<usize>) -> usize {
        self.bytes_by(hash, range, shown_bytes_max)
    }

    /// The same of what is copied into the reply.
    fn copied_bytes_max(&self, hash: &Collection<'_>, range: Range<usize>) -> usize {
        self.bytes_by(hash, range, copied_bytes_max)
    }

    /// The same, where `each` says what an entry takes.
    fn bytes_by(
        &self,
        hash: &Collection<'_>,
        range: Range<usize>,
        each: fn(&Entry<'_>, (Type, Shown)) -> usize,
    ) -> usize {
        let entries = hash.entries(range).filter(|entry| {
            let is_long = matches!(entry.value, Element::Apart(_));
            !is_long || self.wants(hash, entry)
        });
        entries.map(|entry| each(&entry, (hash.kind(), self.shown))).sum()
    }

    /// Work to look at so many elements of so many bytes, but for what lies apart.
    fn ns(&self, collection: &Collection<'_>, count: usize, bytes: usize) -> u64 {
        let times = names_matched(collection.longest_apart() > 0);
        let matching_ns = |pattern: &Pattern<'_>| times * pattern.weight().ns(count as u64, bytes as u64);
        // Members of a large sorted set are met by their hashes, and looked for then.
        let looks = collection.kind() == Type::SortedSet && count < collection.len();
        let each_ns = if looks { ELEMENT_NS + 2 * LOOK_NS } else { ELEMENT_NS };
        count as u64 * each_ns + copying_ns(bytes as u64) + self.pattern.as_ref().map_or(0, matching_ns)
    }

    /// What it took to read the pattern.
    fn read_ns(&self) -> u64 {
        self.pattern.as_ref().map_or(0, |pattern| pattern.weight().read_ns)
    }

    /// Replies elements of these places, and where to go on. With the collection's store a value that is too long to be copied is
    /// sent from where it lies.
    fn put(
        &self,
        out: &mut Output,
        (collection, store): (&Collection<'_>, Option<&Arc<Store>>),
        (places, next): (Vec<Range<usize>>, u64),
    ) {
        let all = || places.iter().flat_map(|range| collection.entries(range.clone()));
        // Where some may be long each is matched once.
        let matched: Option<Vec<bool>> = (self.pattern.is_some() && collection.longest_apart() > 0)
            .then(|| all().map(|entry| self.wants(collection, &entry)).collect());
        let wants = |(i, entry): &(usize, Entry<'_>)| match &matched {
            Some(matched) => matched[*i],
            None => self.wants(collection, entry),
        };
        let entries = || all().enumerate().filter(wants).map(|(_, entry)| entry);
        let each = if self.shown == Shown::Names { 1 } else { 2 };
        put_array(out, 2);
        let mut room = [0; U64_BYTES_MAX];
        let digits = write_u64(&mut room, next);
        put_bulk(out, &room[..digits]);
        put_array(out, each * entries().count());
        entries().for_each(|entry| {
            if self.shown == Shown::Fields && is_too_long(entry.value.len()) {
                put_element(out, &entry.name);
                put_or_send(out, collection, &entry.value, store);
            } else {
                // Scores are bulk strings in RESP3, too.
                self.shown.put(out, false, (collection, &entry));
            }
        });
    }
}

/// Work to look for the members of a sorted set at these places that lie apart: they are met by their hashes, and each
/// is compared with others of its score to know its place.
fn compared_ns(there: &Collection<'_>, places: &[Range<usize>]) -> u64 {
    if there.kind() != Type::SortedSet || there.longest_apart() == 0 {
        return 0;
    }
    let entries = places.iter().flat_map(|range| there.entries(range.clone()));
    let bytes: usize = entries.filter_map(|entry| entry.apart()).map(|apart| apart.len()).sum();
    COMPARED_TIMES as u64 * copying_ns(bytes as u64)
}

/// Bytes of so many elements that are as long as all are on average; what is longer than a leaf counts by itself.
fn average_bytes(there: &Collection<'_>, count: usize) -> usize {
    let bytes = there.bytes().saturating_mul(count) / there.len();
    bytes.min(count.saturating_mul(ELEMENT_BYTES))
}

/// The same of the elements at these places: where long members are, the average says little of the others.
fn short_bytes(there: &Collection<'_>, places: &[Range<usize>]) -> usize {
    if there.kind() == Type::Hash || there.longest_apart() == 0 {
        return average_bytes(there, places.iter().map(Range::len).sum());
    }
    let entries = places.iter().flat_map(|range| there.entries(range.clone()));
    entries.map(|entry| if entry.apart().is_some() { 0 } else { entry.name.len() }).sum()
}

/// A member of so many bytes is not matched in one step.
fn takes_too_long(there: &Collection<'_>, pattern: &Pattern<'_>, bytes: u64) -> bool {
    pattern.weight().long_ns(bytes) > long_match_ns(there.kind() == Type::SortedSet)
}

/// For how long a member that lies apart is matched with a pattern, at most. `is_sorted`: it is one of a sorted set.
pub(crate) const fn long_match_ns(is_sorted: bool) -> u64 {
    if is_sorted { SCORED_MATCH_NS } else { LONG_MATCH_NS }
}

/// How often a name is compared with a pattern: where it is counted and where it is replied; and beside long values in front of
/// that three times more, where room is made for those alone that are replied. A member that lies apart is once.
pub(crate) const fn names_matched(has_long: bool) -> u64 {
    if has_long { 5 } else { 2 }
}

/// HSCAN, SSCAN, ZSCAN
pub(crate) fn scan(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    args: Args<'_>,
    kind: Type,
) -> Done {
    match scan_knowing(call, key, hint, args, kind, None)? {
        Scanned::Done => Ok(()),
        Scanned::TooLong(text, held) => match_in_steps(call, key, args, kind, (text, held)),
    }
}

/// The same, where it is known of a long member whether it matches.
pub(super) fn scan_knowing(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    mut args: Args<'_>,
    kind: Type,
    known: Option<&Known>,
) -> Result<Scanned, Fail> {
    let words = args;
    let cursor = cursor(next(&mut args)?)?;
    // Where there is nothing the options say nothing.
    let (wanted, mut ns) = (Wanted::parse(call, kind, args, known), 0);
    let (mut due, mut longer, mut too_long) = (false, false, None);
    // A long member is copied to be matched.
    let longest = wanted.as_ref().map_or(0, |wanted| wanted.copied_max(call, (key, kind), cursor));
    let copied = if longest > 0 { Heap::take(call, longest).map(Some) } else { Ok(None) };
    let copied = match copied {
        Ok(copied) => copied,
        Err(fail) => {
            // To know how long it is members were looked for.
            call.spend(wanted.as_ref().map_or(0, |wanted| wanted.compared_ns.get()));
            return Err(fail);
        }
    };
    let free = free_room(call.out);
    let store = (!call.cx.guard.in_transaction()).then(|| Arc::clone(call.cx.guard.store()));
    // What was measured last, which is what is written: long members are not looked for again.
    let measured = Cell::new(None);
    let measure = |collection: &Collection<'_>| {
        let Ok(wanted) = &wanted else { return 0 };
        let (places, next) = wanted.places(collection, cursor);
        let (has_long, room) = (collection.longest_apart() > 0, (free, wanted.shown));
        let bytes = |range: Range<usize>| {
            if has_long {
                wanted.copied_bytes_max(collection, range) + 2 * HEAD_BYTES_MAX
            } else {
                shown_places_bytes_max(collection, range, room)
            }
        };
        // In front of them the cursor.
        let bytes = places.iter().cloned().map(bytes).sum::<usize>() + 2 * HEAD_BYTES_MAX;
        measured.set(Some((places, next)));
        bytes
    };
    let done = call.reply_measured(key, hint, kind, measure, |out, _, collection| {
        let Some(collection) = collection else {
            put_array(out, 2);
            put_bulk(out, b"0");
            put_array(out, 0);
            return Ok(());
        };
        let wanted = wanted.as_ref().map_err(Fail::clone)?;
        if collection.is_due() {
            due = true;
            return Ok(());
        }
        let (places, next) = measured.take().unwrap_or_else(|| wanted.places(&collection, cursor));
        if wanted.longest_copied(&collection, &places) > longest {
            // It was put in meanwhile.
            longer = true;
            return Ok(());
        }
        let names = wanted.long_names(&collection, &places);
        if names.too_long {
            too_long = wanted.too_long(&collection, &places);
            ns = too_long.as_ref().map_or(0, |text| copying_ns(text.len() as u64));
            return Ok(());
        }
        let count = places.iter().map(Range::len).sum();
        ns = names.ns + wanted.read_ns() + wanted.ns(&collection, count, short_bytes(&collection, &places));
        let pinned_bytes = out.pinned_bytes();
        wanted.put(out, (&collection, store.as_ref()), (places, next));
        ns += pinning_ns(out.pinned_bytes() - pinned_bytes);
        Ok(())
    });
    // Whatever came of it.
    ns += wanted.as_ref().map_or(0, |wanted| wanted.compared_ns.get());
    if ns > FEW_NS {
        call.spend(ns);
    }
    done?;
    if let Some(text) = too_long {
        return Ok(Scanned::TooLong(text, copied));
    }
    drop(copied);
    if longer {
        return scan_knowing(call, key, hint, words, kind, known);
    }
    if due && !call.take_due("hscan", key, words)? {
        // Only fields of hashes are.
        return scan_knowing(call, key, hint, words, kind, known);
    }
    Ok(Scanned::Done)
}
