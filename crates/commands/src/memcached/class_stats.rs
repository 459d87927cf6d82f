//! The keys of `stats items` and `stats slabs`, in memcached's order. Each is a row with the source of its value; some stand
//! for something that Larder does not have.

use super::slabs::{PAGE_BYTES, Slab, SlabClasses};
use super::stats::{NO_LRU_LISTS, NOT_BY_CRAWLING, NOT_EVICTED_ACTIVE};
use crate::core::counters::{ClassCounter, Sums};
use crate::core::figures::table::ClassFigure;

/// The source of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum ClassSource {
    /// A figure of the class.
    Figure(ClassFigure),
    /// A value that no other protocol shows.
    Own(fn(&Slab) -> u64),
    /// Commands on items of the class.
    Counter(ClassCounter),
    /// Always 0, because Larder has no such thing; the text says why.
    Absent(&'static str),
}

/// A key of a slab class.
#[derive(Clone, Copy, Debug)]
pub struct ClassKey {
    /// Its name, which is printed behind the number of the class.
    pub name: &'static str,
    /// The source of its value.
    pub source: ClassSource,
    /// Whether it is left out with `-o no_lru_maintainer`.
    pub maintainer: bool,
}

impl ClassSource {
    /// The value, of a shown class and these counts.
    pub fn value(&self, slab: &Slab, classes: &SlabClasses, sums: &Sums) -> u64 {
        match *self {
            ClassSource::Figure(figure) => figure.of(&slab.totals),
            ClassSource::Own(read) => read(slab),
            ClassSource::Counter(counter) => {
                classes.members(slab.totals.id).map(|class| sums.in_class(class, counter)).sum()
            }
            ClassSource::Absent(_) => 0,
        }
    }
}

const fn figure(name: &'static str, figure: ClassFigure) -> ClassKey {
    ClassKey { name, source: ClassSource::Figure(figure), maintainer: false }
}

const fn own(name: &'static str, read: fn(&Slab) -> u64) -> ClassKey {
    ClassKey { name, source: ClassSource::Own(read), maintainer: false }
}

const fn counter(name: &'static str, counter: ClassCounter) -> ClassKey {
    ClassKey { name, source: ClassSource::Counter(counter), maintainer: false }
}

const fn absent(name: &'static str, why: &'static str) -> ClassKey {
    ClassKey { name, source: ClassSource::Absent(why), maintainer: false }
}

const fn maintainer(key: ClassKey) -> ClassKey {
    ClassKey { maintainer: true, ..key }
}

/// The keys of `stats items`.
pub static ITEM_KEYS: &[ClassKey] = &[
    figure("number", ClassFigure::Items),
    maintainer(absent("number_hot", NO_LRU_LISTS)),
    maintainer(absent("number_warm", NO_LRU_LISTS)),
    maintainer(figure("number_cold", ClassFigure::Items)),
    maintainer(absent("age_hot", NO_LRU_LISTS)),
    maintainer(absent("age_warm", NO_LRU_LISTS)),
    figure("age", ClassFigure::Age),
    figure("mem_requested", ClassFigure::RequestedBytes),
    figure("evicted", ClassFigure::Evictions),
    figure("evicted_nonzero", ClassFigure::EvictedNonzero),
    figure("evicted_time", ClassFigure::EvictedAge),
    figure("outofmemory", ClassFigure::OutOfMemory),
    absent("tailrepairs", "there are no references to leak"),
    figure("reclaimed", ClassFigure::Reclaimed),
    figure("expired_unfetched", ClassFigure::ExpiredUnfetched),
    figure("evicted_unfetched", ClassFigure::EvictedUnfetched),
    maintainer(absent("evicted_active", NOT_EVICTED_ACTIVE)),
    absent("crawler_reclaimed", NOT_BY_CRAWLING),
    absent("crawler_items_checked", "upkeep goes through the index, whatever the class"),
    absent("lrutail_reflocked", NO_LRU_LISTS),
    maintainer(absent("moves_to_cold", NO_LRU_LISTS)),
    maintainer(absent("moves_to_warm", NO_LRU_LISTS)),
    maintainer(absent("moves_within_lru", NO_LRU_LISTS)),
    maintainer(absent("direct_reclaims", NO_LRU_LISTS)),
    maintainer(absent("hits_to_hot", NO_LRU_LISTS)),
    maintainer(absent("hits_to_warm", NO_LRU_LISTS)),
    maintainer(counter("hits_to_cold", ClassCounter::GetHits)),
    maintainer(absent("hits_to_temp", NO_LRU_LISTS)),
];

/// The keys of `stats slabs`.
pub static SLAB_KEYS: &[ClassKey] = &[
    figure("chunk_size", ClassFigure::ChunkBytes),
    own("chunks_per_page", |slab| PAGE_BYTES / u64::from(slab.totals.chunk_bytes.max(1))),
    own("total_pages", Slab::pages),
    figure("total_chunks", ClassFigure::Chunks),
    figure("used_chunks", ClassFigure::ChunksUsed),
    figure("free_chunks", ClassFigure::ChunksFree),
    absent("free_chunks_end", "free chunks are not counted by where they lie in a page"),
    counter("get_hits", ClassCounter::GetHits),
    counter("cmd_set", ClassCounter::CmdSet),
    counter("delete_hits", ClassCounter::DeleteHits),
    counter("incr_hits", ClassCounter::IncrHits),
    counter("decr_hits", ClassCounter::DecrHits),
    counter("cas_hits", ClassCounter::CasHits),
    counter("cas_badval", ClassCounter::CasBadval),
    counter("touch_hits", ClassCounter::TouchHits),
];
