//! What commands at elements of collections take in EXEC, and how large they leave their keys.

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{Entry, Type, Value};

use super::{
    COLLECTION_BYTES_MAX, EXEC_NS_MAX, Scale, Size, behind, count_of, number_behind, pattern_behind,
};
use crate::core::glob::Weight;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, ELEMENT_BYTES, is};
use crate::redis::collections::geo::PLACE_NS;
use crate::redis::collections::members::RUN_BYTES;
use crate::redis::collections::ranging::meant;
use crate::redis::collections::scan::{long_match_ns, names_matched};
use crate::redis::collections::sorting;
use crate::redis::collections::stream::reading::DELIVERED_NS;
use crate::redis::collections::stream::trimming::{ID_NS, PENDING_NS};
use crate::redis::collections::stream::{APART_COPIES, FULL_ENTRIES};
use crate::redis::collections::words::{COMPARED_TIMES, DUE_LEAF_NS, MOVED_TIMES};
use crate::redis::collections::{
    self, COMPARE_NS, COPIED_ELEMENT_BYTES_MAX, ELEMENT_NS, ELEMENT_ROOM, LOOK_NS, MEMBER_NS, PICKS_DIRECT,
    SCAN_NS, SCORE_NS, SCORED_NS, SORTED_NS, STORED_NS, WRITE_NS,
};
use crate::redis::row::flag::{DENYOOM, WRITE};
use crate::redis::row::{By, Command, Elements};
use crate::redis::serialize::checking_ns;

/// What an element takes beside its bytes, at most.
const ELEMENT_MORE_BYTES: u64 = 8;
/// Bytes of what is replied of a place, at most.
const PLACE_BYTES: u64 = 160;
/// Bytes of what is replied of a group, of a consumer or of what is pending, beside its name, at most.
const SURVEYED_BYTES: u64 = 320;
/// Bytes of the names of an entry that are in a leaf once for all that have them, at most.
const NAMES_BYTES_MAX: u64 = 1 << 10;
/// Elements of a leaf, about, at most.
const LEAF_ENTRIES: u64 = 4 << 10;
/// What it takes to make leaves anew without what is due, for each of their bytes.
const DUE_NS_A_BYTE: u64 = 3;
/// Bytes of a leaf, but for fields that are longer; and leaves with something due of which more need not be counted.
const LEAF_BYTES: u64 = 1 << 10;
const DUE_LEAVES_MAX: usize = (EXEC_NS_MAX / (LEAF_BYTES * DUE_NS_A_BYTE)) as usize + 1;
/// Bytes of values that go with their parts in a nanosecond: 16 KiB in 150.
const PART_BYTES_A_NS: u64 = 100;
/// Fields that a command names which are looked at beside a long value; those behind them count as the longest: 2 ms.
const LOOKED_AT_MAX: u64 = 4 << 10;
/// Bytes of leaves that come from memory in a nanosecond.
const LEAF_BYTES_A_NS: u64 = 8;

impl Size {
    /// Adds what others have.
    fn and(self, other: Size) -> Size {
        Size {
            bytes: self.bytes.saturating_add(other.bytes),
            elements: self.elements.saturating_add(other.elements),
            ..self
        }
    }

    /// The size of so many of its elements.
    fn some(self, count: u64) -> Size {
        Size {
            bytes: self.bytes.min(count.saturating_mul(self.longest())),
            elements: self.elements.min(count),
            ..self
        }
    }

    /// The names of its fields, which lie in leaves.
    fn names(self) -> Size {
        let bytes = self.bytes.min(self.elements.saturating_mul(ELEMENT_BYTES as u64));
        Size { bytes, longest: 0, ..self }
    }

    /// Bytes of an element that are copied or compared, at most: of one that is too long for that an error is replied, and it is
    /// neither popped nor moved.
    fn longest(self) -> u64 {
        self.longest.max(ELEMENT_BYTES as u64).min(COPIED_ELEMENT_BYTES_MAX as u64)
    }

    /// Bytes of its elements that are copied, at most.
    fn copied_bytes(self) -> u64 {
        if self.longest > COPIED_ELEMENT_BYTES_MAX as u64 {
            self.bytes.min(self.elements.saturating_mul(self.longest()))
        } else {
            self.bytes
        }
    }

    /// Bytes of an element at random, at most.
    fn each(self) -> u64 {
        (self.bytes / self.least.max(1)).max(self.longest).min(self.bytes).min(self.longest())
    }

    /// Work to reply its elements.
    fn told_ns(self) -> u64 {
        copying_ns(self.copied_bytes()).saturating_add(self.elements.saturating_mul(ELEMENT_NS))
    }

    /// Bytes of a reply of its elements, at most: of a hash with their values, of a sorted set with their scores.
    fn told_bytes(self) -> u64 {
        self.copied_bytes().saturating_add(self.elements.saturating_mul(2 * ELEMENT_ROOM as u64))
    }

    /// Work to reply entries of a stream as large as `all`, and so many of its rows: what lies there once, names of
    /// fields, is replied with each. They are copied, and copied once more to be sent: short ones have that in what each takes.
    fn entries_ns(self, all: Size) -> u64 {
        let leaves = self.elements.min(all.elements);
        self.told_ns()
            .saturating_add(copying_ns(self.bytes).max(leaves.saturating_mul(4 * ELEMENT_NS)))
            .saturating_add(self.entries().bytes / 8)
    }

    /// The size of as many entries of a stream as it has rows: each has names of fields that another may have said. Names lie in
    /// leaves.
    fn entries(self) -> Size {
        let each = self.given.min(ELEMENT_BYTES as u64).max(NAMES_BYTES_MAX).min(self.bytes);
        Size { bytes: self.bytes.saturating_add(self.elements.saturating_mul(each)), ..self }
    }

    /// What is said of as many pending entries as it has rows.
    fn pending(self) -> Size {
        Size { bytes: self.bytes.saturating_add(self.elements.saturating_mul(PLACE_BYTES)), ..self }
    }

    /// Work to put its members together with others.
    fn combined_ns(self) -> u64 {
        copying_ns(self.bytes).saturating_add(self.elements.saturating_mul(MEMBER_NS))
    }

    /// Work to pick so many elements, each once, and to reply them.
    fn picked_ns(self, count: u64) -> u64 {
        let picks = self.elements.min(count);
        // Many are walked to.
        let walk = if count > PICKS_DIRECT as u64 { 2 * self.elements.saturating_mul(ELEMENT_NS) } else { 0 };
        self.any_ns(picks).saturating_add(walk)
    }

    /// The same of picks of which each is any of all.
    fn any_ns(self, count: u64) -> u64 {
        count.saturating_mul(2 * LOOK_NS + ELEMENT_NS + copying_ns(self.each()))
    }

    /// Work to look through all of a list.
    fn compared_ns(self) -> u64 {
        self.elements.saturating_mul(COMPARE_NS).saturating_add(self.gone_ns())
    }

    /// Work to come to all its leaves, or to take them out.
    fn gone_ns(self) -> u64 {
        self.bytes / LEAF_BYTES_A_NS
    }

    /// What a write of a list takes, a leaf of which is copied.
    fn list_ns(self) -> u64 {
        self.bytes.min(COLLECTION_BYTES_MAX) / 4
    }

    /// The same of a sorted set, of which one leaf of each of its trees is copied.
    fn sorted_ns(self) -> u64 {
        self.list_ns()
    }

    /// Work to bring its members into the order of one score, or to look for each of them there, if some are long.
    fn ordered_ns(self) -> u64 {
        if self.longest <= ELEMENT_BYTES as u64 {
            return 0;
        }
        copying_ns(self.bytes).saturating_mul(COMPARED_TIMES as u64)
    }

    /// Work to store all of it at once.
    fn stored_ns(self) -> u64 {
        self.elements.saturating_mul(STORED_NS)
    }

    /// Work to take so many members out of a sorted set.
    fn scored_ns(self, count: u64) -> u64 {
        self.elements.min(count).saturating_mul(SCORED_NS)
    }
}

/// Work to write, or to look for, words that are longer than a leaf.
fn written_ns(words: Args<'_>) -> u64 {
    if words.encoded().len() <= ELEMENT_BYTES {
        return 0;
    }
    let long = words.map(|word| word.len() as u64).filter(|bytes| *bytes > ELEMENT_BYTES as u64);
    copying_ns(long.sum())
}

/// Work to look for such words among members of a sorted set that have one score: each is compared with some.
fn comparing_ns(words: Args<'_>) -> u64 {
    COMPARED_TIMES as u64 * written_ns(words)
}

/// What SSCAN or, of a sorted set, ZSCAN takes with a member of so many bytes: it is copied, and once more to be matched.
fn long_member_ns<'a>(bytes: u64, is_sorted: bool, options: impl Iterator<Item = &'a [u8]>) -> u64 {
    let patterns = behind("MATCH", options).map(|pattern| Weight::of(pattern).long_ns(bytes));
    let matched_ns = patterns.max().map_or(0, |ns| copying_ns(bytes) + ns.min(long_match_ns(is_sorted)));
    copying_ns(bytes) + matched_ns
}

/// The fields that a command on a hash names.
fn fields(which: Elements, args: Args<'_>) -> impl Iterator<Item = &[u8]> + Clone {
    // Options are in front of `FIELDS`, and how many fields there are is behind it.
    let has_options = matches!(which, Elements::NamedBehind | Elements::WriteFields { behind: true, .. });
    let behind = if has_options {
        2 + args.skip(1).position(|word| is(word, "FIELDS")).unwrap_or(args.len())
    } else {
        0
    };
    let pairs = matches!(which, Elements::WriteFields { pairs: true, .. });
    args.skip(1 + behind).step_by(1 + usize::from(pairs))
}

/// Work to give so many bytes of values back, with their parts.
fn dropping_ns(bytes: u64) -> u64 {
    bytes / PART_BYTES_A_NS
}

/// How many names the longest was looked for in, and how long that is, at most.
fn looked_at<'n>(names: impl Iterator<Item = &'n [u8]>) -> (u64, u64) {
    let (mut looks, mut longest) = (0, 0);
    for name in names.take(LOOKED_AT_MAX as usize) {
        looks += 1;
        longest = longest.max(name.len() as u64);
    }
    (looks, if looks < LOOKED_AT_MAX { longest } else { ELEMENT_BYTES as u64 })
}

/// A number that is not below 0; 0 if it is none.
fn natural(word: Option<&[u8]>) -> u64 {
    word.and_then(count_of).unwrap_or(0)
}

/// How many places are from one to another, at most.
fn places(start: Option<&[u8]>, stop: Option<&[u8]>) -> u64 {
    match (start.and_then(parse_integer), stop.and_then(parse_integer)) {
        (Some(start), Some(stop)) if (start < 0) == (stop < 0) => stop.abs_diff(start).saturating_add(1),
        _ => u64::MAX,
    }
}

impl Scale {
    /// Adds the words of a command on collections; what it takes beside that.
    pub(super) fn elements(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        row: &Command,
        which: Elements,
        args: Args<'_>,
    ) -> u64 {
        self.words = self.words.saturating_add(args.len());
        let (db, first) = (self.db, args.at(0).unwrap_or_default());
        let there = self.size(call, db, first);
        // Its members have an order, by which they are looked for: it is at sorted sets, or at places.
        let is_sorted = row.name.starts_with(['z', 'g']);
        let ordered_ns = |size: Size| if is_sorted { size.ordered_ns() } else { 0 };
        // What it takes, and which elements are replied.
        let none = Size::default();
        let (ns, told) = match which {
            Elements::AllFields => (there.told_ns() + self.due_ns(call, first, usize::MAX), there),
            Elements::AllNames => {
                let names = there.names();
                (names.told_ns() + self.due_ns(call, first, usize::MAX), names)
            }
            Elements::All => (there.told_ns(), there),
            Elements::FieldCount => (self.due_ns(call, first, usize::MAX), none),
            Elements::Pick | Elements::PickFields => {
                let due_ns =
                    if which == Elements::PickFields { self.due_ns(call, first, usize::MAX) } else { 0 };
                // Behind their number is the word that asks for their values.
                let tells_names = which == Elements::PickFields && args.len() < 3;
                let there = if tells_names { there.names() } else { there };
                let (ns, told) = match args.at(1).and_then(parse_integer) {
                    Some(count) if count < 0 => {
                        let count = count.unsigned_abs();
                        let bytes = there.each().saturating_mul(count);
                        (there.any_ns(count), Size { bytes, elements: count, ..none })
                    }
                    Some(count) => (there.picked_ns(count.unsigned_abs()), there.some(count.unsigned_abs())),
                    None => (0, there.some(1)),
                };
                (due_ns.saturating_add(ns), told)
            }
            Elements::PickOut => {
                let count = args.at(1).map_or(1, |count| natural(Some(count)));
                let gone_ns = there.elements.min(count).saturating_mul(WRITE_NS);
                (there.picked_ns(count).saturating_add(gone_ns), there.some(count))
            }
            Elements::Scan | Elements::ScanFields => {
                let weight = pattern_behind(args.skip(2), there.elements, there.bytes);
                let weight = weight.unwrap_or_else(|| Weight::of(b"*"));
                let count = number_behind("COUNT", args.skip(2)).unwrap_or(10);
                // Those beside the last of them are looked at, too, and all of one leaf.
                let looked = there.some(count.saturating_add(LEAF_ENTRIES));
                let times = names_matched(there.longest > ELEMENT_BYTES as u64);
                let each = ELEMENT_NS + times * weight.ns(1, there.each());
                let looked_ns = looked.elements.saturating_mul(each).min(SCAN_NS);
                let leaf_ns = times
                    * weight.ns(there.elements.min(LEAF_ENTRIES), there.bytes.min(COLLECTION_BYTES_MAX));
                let due_ns =
                    if which == Elements::ScanFields { self.due_ns(call, first, usize::MAX) } else { 0 };
                let is_long = which == Elements::Scan && there.longest > ELEMENT_BYTES as u64;
                let long_ns =
                    if is_long { long_member_ns(there.longest, is_sorted, args.skip(2)) } else { 0 };
                // It is looked for where room is made, and where it is replied.
                let longest = Size { bytes: there.longest, ..there };
                let place_ns = if is_long { ordered_ns(longest).saturating_mul(2) } else { 0 };
                (weight.read_ns + looked_ns + leaf_ns + due_ns + long_ns + place_ns, looked)
            }
            Elements::ListRange => {
                let (some, look_ns) = self.placed(call, first, there, args);
                (look_ns + some.told_ns() + there.list_ns(), some)
            }
            Elements::Position => (there.compared_ns(), Size { elements: there.elements, ..none }),
            Elements::Insert => (there.compared_ns() + there.list_ns() + written_ns(args), none),
            // Each leaf may be made anew.
            Elements::RemoveEqual => (there.compared_ns() + there.bytes, none),
            Elements::ListWrite => {
                // LSET gives back the parts of what was in its place.
                let is_long = row.name == "lset" && there.longest > ELEMENT_BYTES as u64;
                let lost_ns = if is_long { dropping_ns(there.longest) } else { 0 };
                (there.list_ns() + written_ns(args) + lost_ns, none)
            }
            Elements::Trim => (there.list_ns() + there.gone_ns(), none),
            Elements::Pop => {
                let some = there.some(args.at(1).map_or(1, |count| natural(Some(count))));
                (some.told_ns() + some.gone_ns() + there.list_ns(), some)
            }
            Elements::MoveEnd => {
                let to = self.size(call, db, args.at(1).unwrap_or_default());
                // It is copied to its new place, unless it is long, and replied.
                let some = there.some(1);
                (there.list_ns() + to.list_ns() + 2 * some.told_ns(), some)
            }
            Elements::Range | Elements::RankRange | Elements::LimitedRange => {
                let scored = args.skip(3).any(|word| is(word, "WITHSCORES"));
                let some = there.some(ranged(which, args));
                let score_ns = if scored { some.elements * SCORE_NS } else { 0 };
                (comparing_ns(args) + some.told_ns() + score_ns, some)
            }
            Elements::SortedWrite => {
                // What gets a score may be there with another.
                let times = if row.has(DENYOOM) { MOVED_TIMES } else { COMPARED_TIMES };
                (there.sorted_ns() + times as u64 * written_ns(args), none)
            }
            Elements::RemoveRange(by) => {
                let (gone, look_ns) = self.removed(call, by, first, there, args);
                let parts_ns = dropping_ns(there.some(gone).bytes);
                let gone_ns = gone.saturating_mul(SCORED_NS).saturating_add(parts_ns);
                (gone_ns.saturating_add(look_ns + comparing_ns(args) + there.sorted_ns()), none)
            }
            Elements::PopScored => {
                let some = there.some(args.at(1).map_or(1, |count| natural(Some(count))));
                let gone_ns = some.scored_ns(u64::MAX);
                (some.told_ns() + some.elements * SCORE_NS + there.sorted_ns() + gone_ns, some)
            }
            Elements::PopAny => {
                let all = self.largest(call, row, args);
                (all.some(1).told_ns() + SCORE_NS + all.sorted_ns(), all.some(1))
            }
            Elements::PopSome | Elements::PopSomeScored => {
                let count = number_behind("COUNT", args.skip(2)).unwrap_or(1).max(1);
                let all = self.largest(call, row, args);
                let some = all.some(count);
                let scored_ns = if which == Elements::PopSomeScored { some.scored_ns(u64::MAX) } else { 0 };
                let told_ns = some.told_ns() + some.elements * SCORE_NS;
                (told_ns + some.gone_ns() + scored_ns + all.sorted_ns(), some)
            }
            Elements::StoreRange => {
                let from = self.size(call, db, args.at(1).unwrap_or_default());
                let stored_ns = from.stored_ns().saturating_add(ordered_ns(from));
                (comparing_ns(args) + from.combined_ns().saturating_add(stored_ns), none)
            }
            Elements::Sort => {
                let stores = row.has(WRITE);
                let gets = sorting::patterns(args, stores);
                let got = Size { elements: there.elements.saturating_mul(gets.max(1)), ..there };
                let looks = there.elements.saturating_mul(gets + 1).saturating_mul(LOOK_NS);
                let stored_ns = if stores { got.stored_ns() } else { 0 };
                let sorted_ns = sorting::sorting_ns(there.elements).saturating_add(looks);
                let long_ns = self.long_sorted_ns(call, first, there, (args, stores));
                let ns = there.combined_ns().saturating_add(sorted_ns).saturating_add(stored_ns);
                (ns.saturating_add(long_ns), got)
            }
            Elements::Places | Elements::StorePlaces => {
                let from = args.at(usize::from(which == Elements::StorePlaces)).unwrap_or_default();
                let from = self.size(call, db, from);
                // All that lie in cells are looked at, sorted, and replied with all that there is of them.
                let each_ns = PLACE_NS + SORTED_NS + 8 * SCORE_NS;
                let mut keys = 0;
                row.each_key(args, &mut |_| keys += 1);
                // What is replied is sorted by how far it is alone; what is stored by its names, too.
                let left_ns = if keys > 1 { left_ns(row, from, ordered_ns(from)) } else { 0 };
                let ns = from.told_ns().saturating_add(from.elements.saturating_mul(each_ns));
                let told = Size { bytes: from.bytes.saturating_add(from.elements * PLACE_BYTES), ..from };
                (ns.saturating_add(left_ns), told)
            }
            Elements::NamedPlaces => {
                let elements = args.len() as u64;
                (written_ns(args), Size { bytes: elements.saturating_mul(PLACE_BYTES), elements, ..none })
            }
            Elements::Union => {
                // What has no order is not compared.
                let longest = if is_sorted { self.longest_of(call, row, args) } else { 0 };
                let all = Size { longest, ..self.sum(call, row, args) };
                let ns = all.combined_ns().saturating_add(left_ns(row, all, ordered_ns(all)));
                (ns, if row.has(WRITE) { none } else { all })
            }
            Elements::Intersection => {
                let (ns, least) = self.sieved(call, row, args, true, is_sorted);
                let ns = ns.saturating_add(left_ns(row, least, ordered_ns(least)));
                (ns, if row.has(WRITE) { none } else { least })
            }
            Elements::IntersectionCount => (self.sieved(call, row, args, true, is_sorted).0, none),
            Elements::Difference => {
                let gathered = self.sum(call, row, args).combined_ns();
                // Whether one is there its hash says: it is looked for at no score.
                let (ns, first) = self.sieved(call, row, args, false, false);
                let ns = ns.min(gathered).saturating_add(left_ns(row, first, ordered_ns(first)));
                (ns, if row.has(WRITE) { none } else { first })
            }
            Elements::AddEntry | Elements::TrimEntries => {
                let trims = which == Elements::TrimEntries
                    || args.skip(1).take(3).any(|word| is(word, "MAXLEN") || is(word, "MINID"));
                // More is refused.
                let bytes = args.encoded().len().min(call.cx.guard.store().element_bytes_max());
                let put_ns = if bytes > ELEMENT_BYTES { APART_COPIES * copying_ns(bytes as u64) } else { 0 };
                (there.list_ns() + put_ns + if trims { there.gone_ns() } else { 0 }, none)
            }
            Elements::Entries => {
                let some = there.some(number_behind("COUNT", args.skip(3)).unwrap_or(u64::MAX));
                (some.entries_ns(there) + there.list_ns(), some.entries())
            }
            Elements::ReadEntries => {
                let count = number_behind("COUNT", args).filter(|count| *count > 0).unwrap_or(u64::MAX);
                let longest = self.longest_of(call, row, args);
                let all = Size { longest, ..self.sum(call, row, args) };
                let mut keys: u64 = 0;
                row.each_key(args, &mut |_| keys += 1);
                let some = all.some(count.saturating_mul(keys));
                let delivered_ns =
                    if row.has(WRITE) { some.elements.saturating_mul(DELIVERED_NS) } else { 0 };
                // Those of all streams but the first are put behind its own.
                let moved_ns = if row.has(WRITE) && keys > 1 { copying_ns(some.bytes) } else { 0 };
                let told_ns = some.entries_ns(all).saturating_add(moved_ns);
                (told_ns.saturating_add(delivered_ns), some.entries())
            }
            Elements::Ids => {
                // Those that are acknowledged stay. One of the words is the key.
                let is_long = row.name == "xdel" && there.longest > ELEMENT_BYTES as u64;
                let gone = if is_long { there.some((args.len() as u64).saturating_sub(1)) } else { none };
                let ids_ns = (args.len() as u64).saturating_mul(ID_NS);
                (ids_ns + there.list_ns() + dropping_ns(gone.bytes), none)
            }
            Elements::Pending => (there.elements.saturating_mul(LOOK_NS), there.pending()),
            Elements::Claim | Elements::ClaimIdle => {
                let (count, looks) = if which == Elements::Claim {
                    // Behind the key, the group, the consumer and a time.
                    let ids = (args.len() as u64).saturating_sub(4);
                    (ids, ids)
                } else {
                    let count = number_behind("COUNT", args.skip(4)).unwrap_or(100);
                    (count, count.saturating_mul(10))
                };
                let some = there.some(count);
                let looks_ns = there.elements.min(looks).saturating_mul(ID_NS + PENDING_NS);
                (looks_ns.saturating_add(some.entries_ns(there)), some.entries())
            }
            // They look at what they name.
            Elements::Named | Elements::NamedBehind => {
                let most = COPIED_ELEMENT_BYTES_MAX as u64;
                let (told, look_ns) = self.named(call, first, there, fields(which, args), (copying_ns, most));
                let is_long = there.longest > ELEMENT_BYTES as u64;
                let due_ns = if is_long && row.has(WRITE) { self.due_ns(call, first, args.len()) } else { 0 };
                (look_ns + due_ns + if is_long { copying_ns(told.bytes) } else { 0 }, told)
            }
            Elements::WriteFields { .. } => {
                let (lost, look_ns) =
                    self.named(call, first, there, fields(which, args), (dropping_ns, u64::MAX));
                // What is due in the same leaves goes with it.
                let is_long = there.longest > ELEMENT_BYTES as u64;
                let due_ns = if is_long { self.due_ns(call, first, args.len()) } else { 0 };
                let lost_ns = look_ns + due_ns + dropping_ns(lost.bytes.min(there.bytes));
                (lost_ns + if row.has(DENYOOM) { written_ns(args) } else { 0 }, none)
            }
            Elements::NamedScores => (written_ns(args), Size { elements: args.len() as u64, ..none }),
            Elements::One => (0, there.some(1)),
            Elements::Few => (written_ns(args), none),
            Elements::Compared => (comparing_ns(args), none),
            // It is looked for, put in, and taken out.
            Elements::MoveMember => (2 * written_ns(args), none),
        };
        self.told_bytes = self.told_bytes.saturating_add(told.told_bytes());
        if row.has(WRITE) {
            self.grow(call, row, which, args);
        }
        ns
    }

    /// The values of fields that a command names, one perhaps again and again: each has what it has now, or what commands
    /// before may have given it, and counts no more than `most`. `ns`: what is done with so many bytes, of which no more is
    /// looked at than one EXEC may do. With what it takes to look at them, which is spent.
    fn named<'f>(
        &self,
        call: &mut Call<'_, '_, '_>,
        name: &[u8],
        there: Size,
        fields: impl Iterator<Item = &'f [u8]> + Clone,
        (ns, most): (fn(u64) -> u64, u64),
    ) -> (Size, u64) {
        let count = fields.clone().count() as u64;
        if there.longest <= ELEMENT_BYTES as u64 {
            return (there.some(count), 0);
        }
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let now = call.cx.now();
        let hash = match call.cx.guard.peek(&key).hit().map(|item| item.value()) {
            Some(Value::Collection(hash)) if hash.kind() == Type::Hash => Some(hash.elements_at(now)),
            Some(_) | None => None,
        };
        let (mut bytes, mut looks): (u64, u64) = (0, 0);
        for field in fields {
            let value = if looks < LOOKED_AT_MAX {
                looks += 1;
                hash.as_ref().and_then(|hash| hash.field(field)).map_or(0, |value| value.len() as u64)
            } else {
                there.longest
            };
            let value = value.min(most);
            bytes = bytes.saturating_add(value.max(there.given));
            if ns(bytes) > EXEC_NS_MAX {
                break;
            }
        }
        let look_ns = looks * LOOK_NS;
        call.spend(look_ns);
        (Size { bytes, elements: count, ..there }, look_ns)
    }

    /// The elements from a place of a list to another: where some of the list lie apart those that are there now, if nothing
    /// before changes anything. With what it takes to look at them, which is spent.
    fn placed(&self, call: &mut Call<'_, '_, '_>, name: &[u8], there: Size, args: Args<'_>) -> (Size, u64) {
        let some = there.some(places(args.at(1), args.at(2)));
        let bounds = args.at(1).and_then(parse_integer).zip(args.at(2).and_then(parse_integer));
        let Some((start, stop)) = bounds else { return (some, 0) };
        if there.longest <= ELEMENT_BYTES as u64 || self.changes {
            return (some, 0);
        }
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let list = match call.cx.guard.peek(&key).hit().map(|item| item.value()) {
            Some(Value::Collection(list)) if list.kind() == Type::List => list.elements(),
            Some(_) | None => return (some, 0),
        };
        let range = collections::places(start, stop, list.len());
        let elements = range.len() as u64;
        let looks = elements.min(LOOKED_AT_MAX);
        let copied = |entry: Entry<'_>| entry.name.len().min(COPIED_ELEMENT_BYTES_MAX) as u64;
        let seen: u64 = list.entries(range).take(looks as usize).map(copied).sum();
        let bytes = seen.saturating_add((elements - looks).saturating_mul(there.longest()));
        let look_ns = looks * ELEMENT_NS;
        call.spend(look_ns);
        (Size { bytes: bytes.min(some.bytes), elements, ..some }, look_ns)
    }

    /// What SORT takes with the bytes of elements that are no short ones, beside what it takes with as many of these: they are
    /// read as numbers or compared, and replied or stored. `stores`: it may store them.
    fn long_sorted_ns(
        &self,
        call: &mut Call<'_, '_, '_>,
        name: &[u8],
        there: Size,
        (args, stores): (Args<'_>, bool),
    ) -> u64 {
        let short = there.elements.saturating_mul(sorting::SHORT_ELEMENT_BYTES);
        let bytes = there.bytes.saturating_sub(short);
        if bytes == 0 {
            return 0;
        }
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let is_list = match call.cx.guard.peek(&key).hit().map(|item| item.value()) {
            Some(Value::Collection(there)) => matches!(there.kind(), Type::List | Type::SortedSet),
            Some(_) | None => false,
        };
        // A command before may have put a set there.
        let may_be_set = !is_list || self.sizes.contains_key(&key.hash()) || self.is_replaced(self.db, name);
        let sorts = may_be_set || !sorting::leaves_order(args, stores);
        let times = sorting::element_times(args, stores, there.elements > 1, sorts);
        copying_ns(bytes).saturating_mul(times)
    }

    /// Work to take out the fields of a hash that are due now, in so many leaves at most.
    fn due_ns(&self, call: &mut Call<'_, '_, '_>, name: &[u8], leaves_max: usize) -> u64 {
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let now = call.cx.now();
        let hash = match call.cx.guard.peek(&key).hit().map(|item| item.value()) {
            Some(Value::Collection(there)) if there.is_timed() => there.elements_at(now),
            Some(_) | None => return 0,
        };
        let (leaves, bytes) = hash.due_leaves(leaves_max.min(DUE_LEAVES_MAX));
        let leaves = leaves as u64;
        let in_leaves = (bytes as u64).max(leaves * LEAF_BYTES);
        // What lies apart goes in parts, behind the last field of a leaf.
        let apart = (hash.longest_apart() as u64).saturating_mul(leaves).min(hash.bytes() as u64);
        call.spend(leaves * DUE_LEAF_NS);
        in_leaves * DUE_NS_A_BYTE + dropping_ns(apart)
    }

    /// What DUMP takes: it replies a collection, and looks at its bytes twice.
    pub(super) fn dumped(&mut self, call: &mut Call<'_, '_, '_>, key: &[u8]) -> u64 {
        let there = self.size(call, self.db, key);
        if there.elements == 0 {
            return there.bytes;
        }
        self.told_bytes = self.told_bytes.saturating_add(there.told_bytes());
        let due_ns = self.due_ns(call, key, usize::MAX);
        let told_ns = there.told_ns().saturating_mul(2).saturating_add(due_ns);
        told_ns.saturating_add(checking_ns(there.told_bytes()))
    }

    /// What it takes to look at what a stream has beside its entries, groups, consumers and what is pending, or to take it out.
    /// XINFO replies it, and XINFO STREAM some entries.
    pub(super) fn surveyed(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'_>) -> u64 {
        let there = self.size(call, self.db, args.at(0).unwrap_or_default());
        let count = number_behind("COUNT", args.skip(1)).unwrap_or(FULL_ENTRIES as u64);
        let most = if count == 0 { u64::MAX } else { count };
        let entries = match (row.name, args.len()) {
            // The first and the last; a long one may be both, and nearly all that there is.
            ("xinfo|stream", 1) => {
                let one = there.some(1);
                Size { bytes: one.bytes.saturating_mul(2), elements: 2 * one.elements, ..there }
            }
            ("xinfo|stream", _) => there.some(most),
            _ => Size::default(),
        };
        let (others, others_ns) = self.beside_entries(call, row, args, (there, most));
        let told_bytes = others.told_bytes().saturating_add(entries.entries().told_bytes());
        self.told_bytes = self.told_bytes.saturating_add(told_bytes);
        // They are copied as entries are, and once more to be sent.
        let copies_ns = copying_ns(others.bytes).saturating_mul(2);
        entries.entries_ns(there).saturating_add(copies_ns).saturating_add(others_ns)
    }

    /// What XINFO replies of a stream beside its entries, `most` of what is pending in a group or with a consumer; and what it
    /// takes to look at it, or to take it out, with looks at names, here and where room is made, which are spent.
    fn beside_entries(
        &self,
        call: &mut Call<'_, '_, '_>,
        row: &Command,
        args: Args<'_>,
        (there, most): (Size, u64),
    ) -> (Size, u64) {
        if row.name == "xinfo|stream" && args.len() == 1 {
            return (Size::default(), 0);
        }
        let name = args.at(0).unwrap_or_default();
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let stream = match call.cx.guard.peek(&key).hit().map(|item| item.value()) {
            Some(Value::Collection(there)) => there.elements().stream(),
            Some(_) | None => None,
        };
        let Some(stream) = stream.filter(|_| !self.is_replaced(self.db, name)) else {
            return (there.pending(), there.elements.saturating_mul(2 * LOOK_NS));
        };
        // Whatever commands before may have put in is pending.
        let added = there.elements.saturating_sub(stream.rows_count() as u64);
        let others = (stream.others_count() as u64).saturating_add(added);
        let (rows, (looks, longest)) = match row.name {
            "xinfo|groups" => {
                let groups = stream.groups();
                (groups.len() as u64, looked_at(groups.map(|group| group.name)))
            }
            "xinfo|consumers" => match args.at(1).and_then(|name| stream.group(name)) {
                Some(group) => {
                    let consumers = stream.consumers(&group);
                    (consumers.len() as u64, looked_at(consumers.map(|consumer| consumer.name)))
                }
                None => (0, (0, 0)),
            },
            "xinfo|stream" => {
                let consumers = stream.groups().flat_map(|group| stream.consumers(&group));
                let names = consumers.map(|consumer| consumer.name);
                let (looks, longest) = looked_at(stream.groups().map(|group| group.name).chain(names));
                // One more may have come to them.
                let told = (looks + 1).saturating_mul(most.saturating_add(1));
                let rows = if looks < LOOKED_AT_MAX { others.min(told) } else { others };
                (rows, (looks, longest))
            }
            _ => return (Size::default(), others.saturating_mul(LOOK_NS)),
        };
        call.spend(looks * LOOK_NS);
        let bytes = rows.saturating_mul(SURVEYED_BYTES + longest);
        // A group or a consumer takes four looks more than what is pending, and those at its name.
        let ns = rows.saturating_mul(2 * LOOK_NS).saturating_add(looks * (4 + 2) * LOOK_NS);
        (Size { bytes, elements: rows, ..Size::default() }, ns)
    }

    /// How many members of a range are taken out: those that are there now, and those that come before it. With what it takes to
    /// look for long bounds, here and where room is made, which is spent: where it takes no longer to take out all of the set
    /// there is no look.
    fn removed(
        &self,
        call: &mut Call<'_, '_, '_>,
        by: By,
        name: &[u8],
        there: Size,
        args: Args<'_>,
    ) -> (u64, u64) {
        let look_ns = comparing_ns(args);
        let all_ns = there.elements.saturating_mul(SCORED_NS).saturating_add(dropping_ns(there.bytes));
        if self.is_replaced(self.db, name) || look_ns > 0 && all_ns <= 2 * look_ns {
            return (there.elements, 0);
        }
        call.spend(look_ns);
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let (meant, len) = meant(call, &key, by, args.skip(1));
        // All of a set go with its root, unless others come to it before.
        let gone = if meant == len && there.elements == len { 0 } else { meant };
        (gone.saturating_add(there.elements.saturating_sub(len)), 2 * look_ns)
    }

    /// How large the keys of a command are behind it, if they may be larger.
    fn grow(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, which: Elements, args: Args<'_>) {
        let db = self.db;
        let (key, more) = match which {
            Elements::Intersection
            | Elements::Union
            | Elements::Difference
            | Elements::StoreRange
            | Elements::StorePlaces => {
                let Size { bytes, elements, .. } = self.sum(call, row, args);
                let longest = self.longest_of(call, row, args).min(bytes);
                (args.at(0), Size { bytes, elements, longest, ..Size::default() })
            }
            Elements::Places => {
                let (mut target, mut keys) = (None, 0);
                row.each_key(args, &mut |key| (target, keys) = (Some(key), keys + 1));
                if keys < 2 {
                    return;
                }
                let from = self.size(call, db, args.at(0).unwrap_or_default());
                (target, Size { least: 0, longest: from.bytes.min(from.longest()), ..from })
            }
            Elements::Sort => {
                let (mut target, mut keys) = (None, 0);
                row.each_key(args, &mut |key| (target, keys) = (Some(key), keys + 1));
                if keys < 2 {
                    return;
                }
                let there = self.size(call, db, args.at(0).unwrap_or_default());
                let gets = sorting::patterns(args, true);
                let elements = there.elements.saturating_mul(gets.max(1));
                // What other keys have is not known; of what is long there is no more than this.
                let long = if elements > 0 { sorting::longest_stored(args) } else { 0 };
                let most = elements.saturating_mul(ELEMENT_BYTES as u64).saturating_add(long);
                let bytes = if gets > 0 { most } else { there.bytes };
                let longest = bytes.min(there.longest().max(long));
                (target, Size { bytes, elements, longest, ..Size::default() })
            }
            // What is delivered is pending then, in two rows.
            Elements::ReadEntries | Elements::Claim | Elements::ClaimIdle => {
                let Size { elements, .. } = self.sum(call, row, args);
                let mut keys: Vec<&[u8]> = Vec::new();
                row.each_key(args, &mut |key| keys.push(key));
                for key in keys {
                    let there = self.size(call, db, key);
                    let bytes = elements.saturating_mul(2 * ELEMENT_MORE_BYTES);
                    let more = Size { bytes, elements: elements.saturating_mul(2), ..Size::default() };
                    self.note(call, db, key, there.and(more));
                }
                return;
            }
            Elements::MoveMember | Elements::MoveEnd => {
                let longest = self.size(call, db, args.at(0).unwrap_or_default()).longest();
                (args.at(1), Size { bytes: longest, elements: 1, longest, ..Size::default() })
            }
            _ if row.has(DENYOOM) => {
                let bytes = |word: &[u8]| word.len() as u64 + ELEMENT_MORE_BYTES;
                let longest = args.map(bytes).max().unwrap_or(0);
                let elements = args.len() as u64;
                let bytes: u64 = args.map(bytes).sum();
                // An entry has all of them. One of a pair is a name, which lies in a leaf.
                let pair = longest + longest.min(ELEMENT_BYTES as u64);
                let longest = if which == Elements::AddEntry { bytes } else { pair };
                (args.at(0), Size { bytes, elements, least: 0, longest, given: longest })
            }
            _ => {
                // Which are taken out they may choose.
                let gone =
                    if which == Elements::PickOut { natural(args.at(1)).max(1) } else { args.len() as u64 };
                let key = args.at(0).unwrap_or_default();
                let size = self.size(call, db, key);
                if size.elements > 0 {
                    self.note(call, db, key, Size { least: size.least.saturating_sub(gone), ..size });
                }
                return;
            }
        };
        let key = key.unwrap_or_default();
        let there = self.size(call, db, key);
        let (longest, given) = (there.longest.max(more.longest), there.given.max(more.given));
        let size = Size { longest, given, ..there.and(more) };
        self.note(call, db, key, size);
    }

    /// All keys of a command together.
    fn sum(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'_>) -> Size {
        let (db, mut sum) = (self.db, Size::default());
        row.each_key(args, &mut |key| sum = sum.and(self.size(call, db, key)));
        sum
    }

    /// Bytes of the longest element of all keys of a command, at most.
    fn longest_of(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'_>) -> u64 {
        let (db, mut longest) = (self.db, 0);
        row.each_key(args, &mut |key| longest = longest.max(self.size(call, db, key).longest()));
        longest
    }

    /// What it takes to have the members of one key, the first or the smallest, go through all others; and that key.
    /// `is_sorted`: they are sorted sets.
    fn sieved(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        row: &Command,
        args: Args<'_>,
        smallest: bool,
        is_sorted: bool,
    ) -> (u64, Size) {
        let (db, mut first, mut others) = (self.db, None, 0);
        // What it stores to is not read.
        let mut stores = row.has(WRITE);
        row.each_key(args, &mut |key| {
            if std::mem::take(&mut stores) {
                return;
            }
            let size = self.size(call, db, key);
            match first {
                None => first = Some(size),
                Some(least) => {
                    others += 1;
                    first = Some(if smallest && size.elements < least.elements { size } else { least });
                }
            }
        });
        let first = first.unwrap_or_default();
        let mut look_ns = first.elements.saturating_mul(LOOK_NS);
        if first.longest > ELEMENT_BYTES as u64 {
            // Long ones are compared with what is as long, or with others of its score.
            let long_ns = if is_sorted { first.ordered_ns() } else { copying_ns(first.bytes) };
            look_ns = look_ns.saturating_add(long_ns);
        }
        (first.combined_ns().saturating_add(look_ns.saturating_mul(others)), first)
    }

    /// The size of the largest of the keys of a command, at most.
    fn largest(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'_>) -> Size {
        let (db, mut most) = (self.db, Size::default());
        row.each_key(args, &mut |key| {
            let size = self.size(call, db, key);
            most = Size {
                bytes: most.bytes.max(size.bytes),
                elements: most.elements.max(size.elements),
                ..most
            };
        });
        most
    }
}

/// What a command takes with members that it has put together. `ordered_ns`: to bring them into their order, if they have one.
/// They are sorted, merged where they are more than one run, and put in if they are stored.
fn left_ns(row: &Command, members: Size, ordered_ns: u64) -> u64 {
    let (is_merged, is_stored) = (members.bytes > RUN_BYTES as u64, row.has(WRITE));
    let times = 1 + u64::from(is_merged) + u64::from(is_stored);
    let stored_ns = if is_stored { members.stored_ns() } else { 0 };
    stored_ns.saturating_add(ordered_ns.saturating_mul(times))
}

/// How many members a range of a sorted set has, at most.
fn ranged(which: Elements, args: Args<'_>) -> u64 {
    let by_option = || args.skip(3).any(|word| is(word, "BYSCORE") || is(word, "BYLEX"));
    let by_rank = which == Elements::RankRange || which == Elements::Range && !by_option();
    if by_rank {
        return places(args.at(1), args.at(2));
    }
    // Said several times, the last one counts: the largest does here.
    let (mut words, mut most) = (args.skip(3), None);
    while let Some(word) = words.next() {
        if is(word, "LIMIT") {
            let count = words.clone().nth(1).and_then(count_of).unwrap_or(u64::MAX);
            most = most.max(Some(count));
        }
    }
    most.unwrap_or(u64::MAX)
}
