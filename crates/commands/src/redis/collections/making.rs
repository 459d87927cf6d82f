//! Collections that are made in steps, and replace the value of a key when they are whole: combined or sorted ones
//! (`SUNIONSTORE`, `ZRANGESTORE`, `SORT … STORE`, `GEOSEARCHSTORE` …), and those of a payload.

use larder_store::{Attributes, BulkLoad, Expect, Key, Made, Type};

use super::words::COMPARED_TIMES;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, ELEMENT_BYTES};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::steps::job::LEAVES;

/// A collection of at most so many bytes is one leaf, or little more.
pub(crate) const SMALL_BYTES: u64 = 2 << 10;
/// Work to put an entry into a collection of one leaf. These figures are measured with a million entries, with a margin.
const SMALL_NS: u64 = 300;
/// Work to add an element at the end of a list.
const PUSHED_NS: u64 = 200;
/// Work to put a field or a member into a tree.
const PUT_NS: u64 = 1_500;
/// Work to put a member of a sorted set into the first of its trees, where most come in order.
const SCORED_NS: u64 = 1_000;
/// Work to finish some nodes or members.
const FINISH_NS: u64 = 50_000;
/// Members that are finished at a time, about: of a sorted set each is noted, sorted and put into the second tree.
const FINISHED_AT_ONCE: u64 = 128;
/// Most entries that are put in at a time.
pub(crate) const ENTRIES_AT_ONCE: usize = 128;
/// Most bytes of these, unless it is one entry: they fill no more leaves than are looked for before.
const BYTES_AT_ONCE: usize = 16 << 10;

/// Work to put in an entry.
pub(crate) fn entry_ns(kind: Type, in_tree: bool) -> u64 {
    match kind {
        _ if !in_tree => SMALL_NS,
        Type::List => PUSHED_NS,
        Type::Set | Type::Hash | Type::Stream => PUT_NS,
        Type::SortedSet => SCORED_NS,
    }
}

/// Work to find the place of a name beside that of its entry: a long member of a sorted set is compared with others of its score.
pub(crate) fn place_ns(kind: Type, name: &[u8]) -> u64 {
    if kind != Type::SortedSet || name.len() <= ELEMENT_BYTES {
        return 0;
    }
    COMPARED_TIMES as u64 * copying_ns(name.len() as u64)
}

/// Work to make a collection of so many entries.
pub(crate) fn making_ns(kind: Type, in_tree: bool, entries: u64) -> u64 {
    let finished =
        if in_tree && kind == Type::SortedSet { entries / FINISHED_AT_ONCE * FINISH_NS } else { 0 };
    entry_ns(kind, in_tree).saturating_mul(entries).saturating_add(finished)
}

/// Finishes a collection that is loaded, and adds that work to `ns`, up to about `ns_max`; true when it may be published.
///
/// # Errors
/// An entry is there twice, or there is no memory.
pub(crate) fn finish(
    call: &mut Call<'_, '_, '_>,
    load: &mut BulkLoad,
    key: &Key<'_>,
    (ns, ns_max): (&mut u64, u64),
) -> Result<bool, Fail> {
    while !call.cx.guard.load_finish(load, key)? {
        *ns += FINISH_NS;
        if *ns >= ns_max {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A collection that is being made.
#[derive(Debug)]
pub(crate) struct Making {
    kind: Type,
    load: BulkLoad,
    held: Heap,
    /// Whether all entries are put in.
    filled: bool,
    /// The last step ended because memory was on its way: the next puts something in, or is refused.
    has_waited: bool,
}

impl Making {
    /// Begins an empty collection.
    pub fn new(call: &Call<'_, '_, '_>, kind: Type) -> Making {
        let load = BulkLoad::new(call.cx.guard.store(), kind);
        Making { kind, load, held: Heap::none(call), filled: false, has_waited: false }
    }

    /// How many entries are put in.
    pub fn len(&self) -> usize {
        self.load.len()
    }

    /// Puts in more entries, no two of one name, and adds that work to `ns`, up to about `ns_max`; true when all are in and the
    /// collection may be published. If memory is on its way the step ends: its job wants [`LEAVES`] before the next, which puts
    /// something in or is refused, however often others take the memory.
    ///
    /// # Errors
    /// An element is too long, or there is no memory.
    pub fn go_on<'p>(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        entries: &mut dyn Iterator<Item = Made<'p>>,
        (ns, ns_max): (&mut u64, u64),
    ) -> Result<bool, Fail> {
        while !self.filled {
            if *ns >= ns_max {
                return Ok(false);
            }
            if !self.has_waited && call.finds_none(LEAVES) {
                (self.has_waited, *ns) = (true, ns_max);
                return Ok(false);
            }
            self.has_waited = false;
            let (mut more, mut bytes, mut places_ns, mut ended) = (0, 0, 0, false);
            let kind = self.kind;
            let some = std::iter::from_fn(|| {
                if more == ENTRIES_AT_ONCE || bytes >= BYTES_AT_ONCE {
                    return None;
                }
                let entry = entries.next();
                match &entry {
                    Some(made) => {
                        (more, bytes) = (more + 1, bytes + made.name.len() + made.value.len());
                        places_ns += place_ns(kind, made.name);
                    }
                    None => ended = true,
                }
                entry
            });
            call.cx.guard.load_fill(&mut self.load, key, some)?;
            self.filled = ended;
            let each = entry_ns(kind, self.load.bytes() > 0);
            *ns += each * more as u64 + copying_ns(bytes as u64) + places_ns;
            self.held.set(call, self.load.heap_bytes())?;
        }
        finish(call, &mut self.load, key, (ns, ns_max))
    }

    /// Stores the collection in place of the key's value, and replies how many entries it has. An empty one removes the key.
    ///
    /// # Errors
    /// There is no memory.
    pub fn store(self, call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Done {
        let entries = self.len();
        if entries == 0 {
            return call.store_elements(key, self.kind, 0, std::iter::empty());
        }
        let stored = call.cx.guard.load_publish(self.load, key, &Attributes::default(), Expect::Any)?;
        stored.map_err(|_| Fail::OUT_OF_MEMORY)?;
        call.length(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_members_of_sorted_sets_are_reckoned_as_compared() {
        let name = vec![b'x'; ELEMENT_BYTES + 1];
        for kind in [Type::List, Type::Set, Type::Hash, Type::Stream] {
            assert_eq!(place_ns(kind, &name), 0);
        }
        assert_eq!(place_ns(Type::SortedSet, &name[2..]), 0);
        assert_eq!(place_ns(Type::SortedSet, &name[1..]), 0);
        assert_eq!(place_ns(Type::SortedSet, &name), 4 * copying_ns(name.len() as u64));
    }
}
