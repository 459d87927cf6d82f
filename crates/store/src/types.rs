//! Collections by their type: keys, elements, bytes, and the largest, counted exactly.
//!
//! A published collection never changes: each write makes another item. So what an item is counted by is read from it, its
//! header and its leaf's head or its root, when it is published, and again when another takes its place or it goes. Moves
//! change none of it. [`Store::check`] counts all anew and compares.
//!
//! Sizes are counted by doublings, with their sums: whatever goes, the largest is known within its doubling, and exactly where it
//! is alone in it. A write of a collection adds to two sums, or to eight numbers where it passes a doubling of both sizes; a
//! write of a string looks at a header that it has at hand, or at nothing.

use crate::Store;
use crate::collection::Type;
use crate::counters::Counter;
use crate::item::{Header, RawItem};

/// Types of collections, each in the place of its number less one.
const TYPES: [Type; 5] = [Type::Hash, Type::Set, Type::SortedSet, Type::List, Type::Stream];

/// Doublings of sizes: no arena has the last.
const DOUBLINGS: usize = 40;

/// What a collection is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    kind: Type,
    elements: u64,
    bytes: u64,
}

impl Counted {
    /// What an item with this header is counted by; none if it is no collection.
    ///
    /// # Safety
    /// As for [`RawItem::new`]. If it is a collection, it has its leaf or its root, and its key.
    #[inline(always)]
    pub(crate) unsafe fn by(item: RawItem, header: Header) -> Option<Counted> {
        // SAFETY: the caller's promise, of a collection.
        header.is_collection().then(|| unsafe { Counted::of(item, header) })
    }

    /// # Safety
    /// As for [`Counted::by`], of a collection.
    #[inline(never)]
    unsafe fn of(item: RawItem, header: Header) -> Counted {
        // SAFETY: the caller's promise.
        let (elements, bytes) = unsafe { item.collection_sizes(header) };
        Counted { kind: Type::of_form(header.form()), elements, bytes }
    }
}

/// How many there are of each doubling of a size, and the sum of their sizes.
#[derive(Debug)]
struct Sizes([[Counter; 2]; DOUBLINGS]);

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes(std::array::from_fn(|_| Default::default()))
    }
}

fn doubling(size: u64) -> usize {
    (size.max(1).ilog2() as usize).min(DOUBLINGS - 1)
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

    /// One takes the place of another, comes, or goes. Only the owning thread.
    #[inline(never)]
    pub(crate) fn exchange(&self, was: Option<Counted>, is: Option<Counted>) {
        match (was, is) {
            (Some(was), Some(is)) if was.kind == is.kind => {
                let count = self.of(is.kind);
                count.elements.change(was.elements, is.elements);
                count.bytes.change(was.bytes, is.bytes);
            }
            _ => {
                for (counted, n) in [(was, -1), (is, 1)] {
                    if let Some(Counted { kind, elements, bytes }) = counted {
                        self.of(kind).elements.add(elements, n);
                        self.of(kind).bytes.add(bytes, n);
                    }
                }
            }
        }
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
    /// Bytes of the largest: exactly if it is the only one of its doubling and nobody writes, else so many at most, and more
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

/// What the largest has at most.
fn largest(doublings: &Doublings) -> u64 {
    let Some(at) = doublings.iter().rposition(|[count, _]| *count > 0) else { return 0 };
    let ([count, sum], least) = (doublings[at], 1u64 << at);
    // All others have the least that there can be. Between a count and its sum another worker may have been.
    sum.saturating_sub((count - 1).saturating_mul(least)).clamp(least, 2 * least - 1)
}

impl Store {
    /// Elements and bytes of each type, of all workers. One is looked at behind the other: its counters are in its own
    /// processor's cache.
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
    use crate::{Attributes, Config, End, Expect};

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
}
