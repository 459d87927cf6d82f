//! Collections by their type: keys, elements, bytes, and the largest, counted exactly.
//!
//! A published collection never changes: each write makes another item. So what an item is counted by is read from it, its
//! header and its leaf's head or its root, when it is published, and again when another takes its place or it goes. Moves
//! change none of it. [`Store::check`] counts all anew and compares.
//!
//! Sizes are counted by doublings, with their sums: whatever goes, the largest is known within its doubling, and exactly where it
//! is alone in it. A write of a collection compares the heads of two leaves, which are the same where a value takes the place of
//! one as long. Else it adds to two sums at most, or to eight numbers: where both sizes pass a doubling, where the form is
//! another (a leaf becomes a tree), or where the collection gains or loses its expiry. A write of a string looks at a header
//! that it has at hand, or at nothing.

use crate::Store;
use crate::collection::Type;
use crate::counters::Counter;
use crate::item::RawItem;

/// Types of collections, each in the place of its number less one.
const TYPES: [Type; 5] = [Type::Hash, Type::Set, Type::SortedSet, Type::List, Type::Stream];

/// Doublings of sizes: no arena has the last.
const DOUBLINGS: usize = 40;

/// How many there are of each doubling of a size, and the sum of their sizes.
#[derive(Debug)]
struct Sizes([[Counter; 2]; DOUBLINGS]);

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes(std::array::from_fn(|_| Default::default()))
    }
}

fn doubling(size: u64) -> usize {
    ((size | 1).ilog2() as usize).min(DOUBLINGS - 1)
}

impl Sizes {
    fn values(&self) -> Doublings {
        self.0.each_ref().map(|both| both.each_ref().map(Counter::value))
    }

    fn add_to(&self, sums: &mut Doublings) {
        for (both, sums) in self.0.iter().zip(sums) {
            for (counter, sum) in both.iter().zip(sums) {
                *sum = sum.wrapping_add(counter.value());
            }
        }
    }

    /// Adds `n` of this size.
    fn add(&self, size: u64, n: i64) {
        let [count, sum] = &self.0[doubling(size)];
        count.add(n);
        sum.add(n * size as i64);
    }

    #[inline(always)]
    fn change(&self, was: u64, is: u64) {
        if was == is {
            return;
        }
        if doubling(was) == doubling(is) {
            self.0[doubling(is)][1].add(is as i64 - was as i64);
        } else {
            self.add(was, -1);
            self.add(is, 1);
        }
    }
}

/// What a worker counts for one type.
#[derive(Debug, Default)]
struct TypeCount {
    elements: Sizes,
    bytes: Sizes,
}

/// What a worker counts of collections.
#[derive(Debug, Default)]
pub(crate) struct TypeCounts([TypeCount; TYPES.len()]);

impl TypeCounts {
    fn of(&self, kind: Type) -> &TypeCount {
        &self.0[kind as usize - 1]
    }

    /// Counts a collection that comes (1), or goes (-1). Only the owning thread.
    ///
    /// # Safety
    /// As for [`RawItem::collection_sizes`].
    #[inline(never)]
    pub(crate) unsafe fn add(&self, item: RawItem, n: i64) {
        let header = item.header();
        // SAFETY: the caller's promise.
        let (elements, bytes) = unsafe { item.collection_sizes(header) };
        let count = self.of(Type::of_form(header.form()));
        count.elements.add(elements, n);
        count.bytes.add(bytes, n);
    }

    /// Counts a collection that has taken the place of another of its key. Only the owning thread.
    ///
    /// # Safety
    /// As for [`RawItem::collection_sizes`], of both.
    #[inline(never)]
    pub(crate) unsafe fn replace(&self, was: RawItem, is: RawItem) {
        let header = is.header();
        if !header.is_laid_out_as(was.header()) {
            // SAFETY: the caller's promise.
            unsafe {
                self.add(was, -1);
                self.add(is, 1);
            }
            return;
        }
        // SAFETY: the caller's promise.
        let Some([was, is]) = (unsafe { is.changed_sizes(was, header) }) else { return };
        let count = self.of(Type::of_form(header.form()));
        count.elements.change(was.0, is.0);
        count.bytes.change(was.1, is.1);
    }
}

/// Collections of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeTotals {
    /// Which type.
    pub kind: Type,
    /// Keys that have one. As with all items, what has expired or was flushed counts until its memory is taken back.
    pub items: u64,
    /// Fields, members or elements of all of them, of streams rows: entries, groups, consumers, and one of the stream.
    pub elements: u64,
    /// Bytes of all of them, as [`crate::Item::item_bytes`] says them.
    pub bytes: u64,
    /// Bytes of the largest: exactly if it is the only one of its doubling and no thread writes, else so many at most, and more
    /// than half of it.
    pub largest_bytes: u64,
    /// Elements of the one that has most, as exactly.
    pub most_elements: u64,
}

/// Number and sum of each doubling of a size, of all workers.
type Doublings = [[u64; 2]; DOUBLINGS];

fn number(doublings: &Doublings) -> u64 {
    doublings.iter().map(|[count, _]| count).sum()
}

fn sum(doublings: &Doublings) -> u64 {
    doublings.iter().map(|[_, sum]| sum).sum()
}

/// The most that the largest may have.
fn largest(doublings: &Doublings) -> u64 {
    let Some(at) = doublings.iter().rposition(|[count, _]| *count > 0) else { return 0 };
    let ([count, sum], least) = (doublings[at], 1u64 << at);
    // All others have the least that there can be. Another worker may have changed the sum since its count was read.
    sum.saturating_sub((count - 1).saturating_mul(least)).clamp(least, 2 * least - 1)
}

impl Store {
    /// Elements and bytes of each type, of all workers. One worker is looked at behind the other:
    /// its counters are in its own processor's cache.
    fn doublings(&self) -> [[Doublings; 2]; TYPES.len()] {
        let mut sums = [[[[0; 2]; DOUBLINGS]; 2]; TYPES.len()];
        for counters in self.all_counters() {
            for (count, [elements, bytes]) in counters.types.0.iter().zip(&mut sums) {
                count.elements.add_to(elements);
                count.bytes.add_to(bytes);
            }
        }
        sums
    }

    /// Collections by type. Takes some microseconds for each worker.
    pub fn type_totals(&self) -> [TypeTotals; TYPES.len()] {
        // What one worker has added another takes away: amid that a sum may be below 0.
        let whole = |sums: Doublings| sums.map(|both| both.map(|sum| (sum as i64).max(0) as u64));
        let sums = self.doublings();
        TYPES.map(|kind| {
            let [elements, bytes] = sums[kind as usize - 1].map(whole);
            TypeTotals {
                kind,
                items: number(&bytes),
                elements: sum(&elements),
                bytes: sum(&bytes),
                largest_bytes: largest(&bytes),
                most_elements: largest(&elements),
            }
        })
    }

    /// Compares what was counted with what there is, of a store at rest.
    ///
    /// # Panics
    /// If they differ.
    pub(crate) fn check_types(&self, there: &TypeCounts) {
        let sums = self.doublings();
        for kind in TYPES {
            let TypeCount { elements, bytes } = there.of(kind);
            let counted = sums[kind as usize - 1];
            assert_eq!(counted, [elements.values(), bytes.values()], "elements and bytes of {kind:?}");
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{Attributes, Config, End, Expect, Fields, Lasting};

    const NOW: u64 = 1_700_000_000_000;

    fn of(sizes: &[u64]) -> Doublings {
        let counted = Sizes::default();
        sizes.iter().for_each(|size| counted.add(*size, 1));
        counted.values()
    }

    #[test]
    fn the_largest_is_known_within_its_doubling_and_exactly_where_it_is_alone() {
        assert_eq!(largest(&of(&[])), 0);
        for alone in [1, 2, 3, 1023, 1024, 1025, 300 << 30] {
            assert_eq!(largest(&of(&[alone, 1])), alone, "{alone}");
        }
        let several = of(&[1030, 1040, 3]);
        assert_eq!((number(&several), sum(&several), largest(&several)), (3, 2073, 1046));
        assert_eq!(largest(&of(&[2000, 2040])), 2047);
        let mut amid = of(&[1000]);
        amid[9][1] = 0;
        assert_eq!(largest(&amid), 512, "it is counted, and its size is not yet");
        let sizes = Sizes::default();
        sizes.add(1000, 1);
        sizes.change(1000, 1023);
        sizes.change(1023, 1024);
        assert_eq!(sizes.values(), of(&[1024]));
    }

    #[test]
    fn collections_are_counted_by_type_whatever_takes_the_place_of_what() {
        let store =
            Store::new(Config { memory_bytes: 32 << 20, workers_max: 2, ..Config::default() }).unwrap();
        let (mut worker, mut other) = (store.worker().unwrap(), store.worker().unwrap());
        let told = |kind: Type| {
            let totals = store.type_totals()[kind as usize - 1];
            assert_eq!(totals.kind, kind);
            (totals.items, totals.elements, totals.most_elements)
        };
        let members: Vec<Vec<u8>> = (0..1000).map(|n| format!("member {n}").into_bytes()).collect();
        let all = || members.iter().map(Vec::as_slice);
        let mut guard = worker.enter(NOW);
        let (key, small, list) = (guard.key(b"large"), guard.key(b"small"), guard.key(b"list"));
        guard.set_add(&key, all()).unwrap();
        guard.set_add(&small, all().take(3)).unwrap();
        guard.list_push(&list, End::Back, all().take(7), false).unwrap();
        drop(guard);
        assert_eq!((told(Type::Set), told(Type::List)), ((2, 1003, 1000), (1, 7, 7)));
        assert_eq!(told(Type::Hash), (0, 0, 0));
        // What one worker has stored another changes, replaces and takes out.
        let mut guard = other.enter(NOW);
        let bytes_of = |guard: &mut crate::Guard<'_>, name: &[u8]| {
            let key = guard.key(name);
            guard.peek(&key).hit().expect("it is there").item_bytes()
        };
        let bytes = bytes_of(&mut guard, b"large") + bytes_of(&mut guard, b"small");
        let totals = store.type_totals()[Type::Set as usize - 1];
        assert_eq!((totals.bytes, totals.largest_bytes), (bytes, bytes_of(&mut guard, b"large")));
        let (key, small, list) = (guard.key(b"large"), guard.key(b"small"), guard.key(b"list"));
        guard.remove_named(&key, Type::Set, all().take(600)).unwrap();
        assert_eq!(told(Type::Set), (2, 403, 400));
        guard.store_value(&key, b"a string", &Attributes::default(), Expect::Any).unwrap();
        assert_eq!(told(Type::Set), (1, 3, 3));
        guard.delete(&small, Expect::Present).unwrap();
        guard.list_pop(&list, End::Front, 7).unwrap();
        drop(guard);
        assert_eq!((told(Type::Set), told(Type::List)), ((0, 0, 0), (0, 0, 0)));
        drop((worker, other));
        store.check();
    }

    /// With a key whose length the header says, one whose length the extension says, and one on the heap.
    #[test]
    fn a_collection_that_takes_the_place_of_another_is_counted_by_what_it_has() {
        let names: [&[u8]; 3] = [b"hash", &[b'k'; 300], &[b'k'; 9 << 10]];
        let fields: Vec<Vec<u8>> = (0..1000).map(|n| format!("field {n}").into_bytes()).collect();
        for name in names {
            let store = Store::new(Config { memory_bytes: 32 << 20, ..Config::default() }).unwrap();
            let mut worker = store.worker().unwrap();
            let mut guard = worker.enter(NOW);
            let key = guard.key(name);
            let bytes_of = |guard: &mut crate::Guard<'_>, elements: u64| {
                let bytes = guard.peek(&key).hit().expect("it is there").item_bytes();
                let kind = Type::Hash;
                let (largest_bytes, most_elements) = (bytes, elements);
                let only = TypeTotals { kind, items: 1, elements, bytes, largest_bytes, most_elements };
                assert_eq!(store.type_totals()[kind as usize - 1], only);
                bytes
            };
            let set = |guard: &mut crate::Guard<'_>, n: usize, value: &[u8]| {
                guard.hash_set(&key, fields[..n].iter().map(|field| (&field[..], value))).unwrap();
            };
            set(&mut guard, 1, b"value");
            let bytes = bytes_of(&mut guard, 1);
            set(&mut guard, 1, b"other");
            assert_eq!(bytes_of(&mut guard, 1), bytes, "as long");
            set(&mut guard, 1, b"a longer value");
            assert!(bytes_of(&mut guard, 1) > bytes);
            set(&mut guard, 3, b"value");
            bytes_of(&mut guard, 3);
            // A field expires, then the hash does, then no field any more.
            let pair = [(&fields[0][..], &b"value"[..])].into_iter();
            guard.hash_set_lasting(&key, pair, Fields::Any, Lasting::Until(NOW + 60_000)).unwrap();
            bytes_of(&mut guard, 3);
            guard.touch(&key, NOW + 90_000).unwrap();
            bytes_of(&mut guard, 3);
            set(&mut guard, 3, b"value");
            bytes_of(&mut guard, 3);
            // A tree, and a leaf again.
            set(&mut guard, 1000, b"value");
            bytes_of(&mut guard, 1000);
            set(&mut guard, 1, b"other");
            bytes_of(&mut guard, 1000);
            set(&mut guard, 1, b"a longer value");
            bytes_of(&mut guard, 1000);
            guard.remove_named(&key, Type::Hash, fields[2..].iter().map(Vec::as_slice)).unwrap();
            bytes_of(&mut guard, 2);
            guard.delete(&key, Expect::Present).unwrap();
            assert_eq!(store.type_totals()[Type::Hash as usize - 1].items, 0);
            drop(guard);
            store.check_behind(worker);
        }
    }
}
