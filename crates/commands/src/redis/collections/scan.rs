//! HSCAN, SSCAN, ZSCAN: the elements of a collection, leaf by leaf, as many as it takes, and no more than others wait for. One
//! that is one leaf is one piece, as Redis has it with those that are one listpack.

use std::cell::Cell;
use std::ops::Range;

use larder_protocol::number::{U64_BYTES_MAX, write_u64};
use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, DIGITS_MAX, Element, Entry, Hint, Key, Type};

use super::copied::run_of;
use super::words::COMPARED_TIMES;
use super::{Call, ELEMENT_NS, LOOK_NS, Shown, peek_as, shown_bytes_max, shown_places_bytes_max};
use crate::core::glob::Pattern;
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{ELEMENT_BYTES, bounded, free_room, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::keys::scan::{ONLY_HSCAN, ONLY_ZSCAN, cursor};
use crate::redis::reply::{put_array, put_bulk};

/// Which elements are wanted, and what of them.
struct Wanted<'a> {
    /// None: all.
    pattern: Option<Pattern<'a>>,
    /// What it takes.
    held: Option<Heap>,
    shown: Shown,
    /// So many are looked at, and what is in one leaf with them.
    count: usize,
    /// What it took to look for the places of long members, each time that they were looked for.
    compared_ns: Cell<u64>,
}

/// Elements that are looked at, if nobody says how many.
const COUNT: usize = 10;
/// What looking at elements takes before the rest is left for another call, however many are asked for.
pub(crate) const SCAN_NS: u64 = 400_000;
/// What takes less is not spent.
const FEW_NS: u64 = 2_000;
/// A member that lies apart is not matched with a pattern for longer, …
const LONG_MATCH_NS: u64 = 6_000_000;
/// … and one of a sorted set not for so long: it is looked for where room is made and where it is replied, some 4 ms.
const SCORED_MATCH_NS: u64 = 3_000_000;

/// A member is so long that it would be.
const TOO_LONG_TO_MATCH: Fail =
    Fail::of("ERR pattern takes too long for a member that is longer than 16384 bytes");

impl<'a> Wanted<'a> {
    fn parse(call: &mut Call<'_, '_, '_>, kind: Type, mut args: Args<'a>) -> Result<Wanted<'a>, Fail> {
        let shown = match kind {
            Type::Hash => Shown::Fields,
            Type::SortedSet => Shown::Scores,
            Type::Set | Type::List | Type::Stream => Shown::Names,
        };
        let compared_ns = Cell::new(0);
        let mut wanted = Wanted { pattern: None, held: None, shown, count: COUNT, compared_ns };
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
                    return Err(ONLY_HSCAN);
                }
                wanted.shown = Shown::Names;
            } else if is(word, "NOSCORES") {
                if kind != Type::SortedSet {
                    return Err(ONLY_ZSCAN);
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
                long_ns += self.long_names(collection, &places[before..]).0;
                let compared_ns = compared_ns(collection, &places[before..]);
                self.compared_ns.set(self.compared_ns.get() + compared_ns);
                long_ns += compared_ns;
            }
            if cursor == 0 || count >= self.count || self.ns(collection, count) + long_ns >= SCAN_NS {
                return (places, cursor);
            }
        }
    }

    /// It is replied.
    fn wants(&self, there: &Collection<'_>, entry: &Entry<'_>) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        pattern.matches(run_of(there, &entry.name, &mut [0; DIGITS_MAX], &mut Vec::new()))
    }

    /// What it takes to match members at these places that lie apart, each of which is copied for that; and whether one of them
    /// would take too long.
    fn long_names(&self, there: &Collection<'_>, places: &[Range<usize>]) -> (u64, bool) {
        let (mut ns, mut too_long) = (0, false);
        let Some(pattern) = &self.pattern else { return (ns, too_long) };
        if there.kind() == Type::Hash || there.longest_apart() == 0 {
            return (ns, too_long);
        }
        for entry in places.iter().flat_map(|range| there.entries(range.clone())) {
            if let Element::Apart(apart) = entry.name {
                let bytes = apart.len() as u64;
                let matching_ns = pattern.weight().long_ns(bytes);
                too_long |= matching_ns > long_match_ns(there.kind() == Type::SortedSet);
                ns += copying_ns(bytes) + matching_ns;
            }
        }
        (ns, too_long)
    }

    /// Bytes of the longest member at these places that is copied to be matched; 0 if none is.
    fn longest_copied(&self, there: &Collection<'_>, places: &[Range<usize>]) -> usize {
        if self.pattern.is_none() || there.kind() == Type::Hash || there.longest_apart() == 0 {
            return 0;
        }
        let entries = places.iter().flat_map(|range| there.entries(range.clone()));
        entries.filter_map(|entry| entry.apart()).map(|apart| apart.len()).max().unwrap_or(0)
    }

    /// Bytes of the longest member that is copied to be matched from `cursor` on, at most: of the longest that the set may have
    /// anywhere, or, where there is no room for so much, of the longest that is there.
    fn copied_max(&self, call: &mut Call<'_, '_, '_>, (key, kind): (&Key<'_>, Type), cursor: u64) -> usize {
        if self.pattern.is_none() || kind == Type::Hash {
            return 0;
        }
        let store = call.cx.guard.store();
        let free = store.held_bytes_max().saturating_sub(store.held_bytes());
        let set = peek_as(&mut call.cx.guard, key, kind).unwrap_or(None);
        let Some(set) = set.filter(|set| set.longest_apart() > 0) else { return 0 };
        let most = set.longest_apart();
        if most as u64 <= free { most } else { self.longest_copied(&set, &self.places(&set, cursor).0) }
    }

    /// Bytes of a reply of the entries at these places, at most; long values are there only if they are replied. For a long
    /// member there is room in any case: it is matched once.
    fn bytes_max(&self, hash: &Collection<'_>, range: Range<usize>) -> usize {
        let entries = hash.entries(range).filter(|entry| {
            let is_long = matches!(entry.value, Element::Apart(_));
            !is_long || self.wants(hash, entry)
        });
        entries.map(|entry| shown_bytes_max(&entry, (hash.kind(), self.shown))).sum()
    }

    /// What it takes to look at so many elements, as long as all are on average, but for what lies apart.
    fn ns(&self, collection: &Collection<'_>, count: usize) -> u64 {
        let bytes = collection.bytes().saturating_mul(count) / collection.len();
        // What is longer counts by itself.
        let bytes = bytes.min(count.saturating_mul(ELEMENT_BYTES));
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

    /// Replies elements of these places, and where to go on.
    fn put(&self, out: &mut Output, collection: &Collection<'_>, (places, next): (Vec<Range<usize>>, u64)) {
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
        // Scores are bulk strings in RESP3, too.
        entries().for_each(|entry| self.shown.put(out, false, (collection, &entry)));
    }
}

/// What it takes to look for the members of a sorted set at these places that lie apart: they are met by their hashes, and each
/// is compared with others of its score to know its place.
fn compared_ns(there: &Collection<'_>, places: &[Range<usize>]) -> u64 {
    if there.kind() != Type::SortedSet || there.longest_apart() == 0 {
        return 0;
    }
    let entries = places.iter().flat_map(|range| there.entries(range.clone()));
    let bytes: usize = entries.filter_map(|entry| entry.apart()).map(|apart| apart.len()).sum();
    COMPARED_TIMES as u64 * copying_ns(bytes as u64)
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
    mut args: Args<'_>,
    kind: Type,
) -> Done {
    let words = args;
    let cursor = cursor(next(&mut args)?)?;
    // Where there is nothing the options say nothing.
    let (wanted, mut ns, mut due, mut longer) = (Wanted::parse(call, kind, args), 0, false, false);
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
    // What was measured last, which is what is written: long members are not looked for again.
    let measured = Cell::new(None);
    let measure = |collection: &Collection<'_>| {
        let Ok(wanted) = &wanted else { return 0 };
        let (places, next) = wanted.places(collection, cursor);
        let (has_long, room) = (collection.longest_apart() > 0, (free, wanted.shown));
        let bytes = |range: Range<usize>| {
            if has_long {
                wanted.bytes_max(collection, range) + 2 * HEAD_BYTES_MAX
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
        let (long_ns, too_long) = wanted.long_names(&collection, &places);
        if too_long {
            return Err(TOO_LONG_TO_MATCH);
        }
        ns = long_ns + wanted.read_ns();
        ns += wanted.ns(&collection, places.iter().map(Range::len).sum());
        wanted.put(out, &collection, (places, next));
        Ok(())
    });
    drop(copied);
    // Whatever came of it.
    ns += wanted.as_ref().map_or(0, |wanted| wanted.compared_ns.get());
    if ns > FEW_NS {
        call.spend(ns);
    }
    done?;
    if longer {
        return scan(call, key, hint, words, kind);
    }
    if due {
        // Only fields of hashes are.
        return if call.take_due("hscan", key, words)? { Ok(()) } else { scan(call, key, hint, words, kind) };
    }
    Ok(())
}
