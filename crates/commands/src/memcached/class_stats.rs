//! The keys of `stats items` and `stats slabs`, in memcached's order: one row each, where its value comes
//! from, and which of them stand for something that Larder does not have.

use super::slabs::{PAGE_BYTES, Slab};
use super::stats::{NO_LRU_LISTS, NOT_BY_CRAWLING, NOT_EVICTED_ACTIVE};
use crate::core::counters::ClassCounter;

/// Where a key's value comes from.
#[derive(Clone, Copy, Debug)]
pub enum ClassSource {
    /// Something that is measured.
    Figure(fn(&Slab) -> u64),
    /// Commands on items of the class.
    Counter(ClassCounter),
    /// Always 0, because Larder has no such thing; the text says why.
    Absent(&'static str),
}

/// A key of a slab class.
#[derive(Clone, Copy, Debug)]
pub struct ClassKey {
    /// As printed behind the number of the class.
    pub name: &'static str,
    /// Where its value comes from.
    pub source: ClassSource,
    /// Not there with `-o no_lru_maintainer`.
    pub maintainer: bool,
}

const fn figure(name: &'static str, read: fn(&Slab) -> u64) -> ClassKey {
    ClassKey { name, source: ClassSource::Figure(read), maintainer: false }
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

/// Of `stats items`.
pub static ITEM_KEYS: &[ClassKey] = &[
    figure("number", |slab| slab.totals.items),
    maintainer(absent("number_hot", NO_LRU_LISTS)),
    maintainer(absent("number_warm", NO_LRU_LISTS)),
    maintainer(figure("number_cold", |slab| slab.totals.items)),
    maintainer(absent("age_hot", NO_LRU_LISTS)),
    maintainer(absent("age_warm", NO_LRU_LISTS)),
    figure("age", |slab| slab.totals.age_ms / 1000),
    figure("mem_requested", |slab| slab.totals.requested_bytes),
    figure("evicted", |slab| slab.totals.evictions),
    figure("evicted_nonzero", |slab| slab.totals.evicted_nonzero),
    figure("evicted_time", |slab| slab.totals.evicted_age_s),
    figure("outofmemory", |slab| slab.totals.out_of_memory),
    absent("tailrepairs", "there are no references to leak"),
    figure("reclaimed", |slab| slab.totals.reclaimed),
    figure("expired_unfetched", |slab| slab.totals.expired_unfetched),
    figure("evicted_unfetched", |slab| slab.totals.evicted_unfetched),
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

/// Of `stats slabs`.
pub static SLAB_KEYS: &[ClassKey] = &[
    figure("chunk_size", |slab| u64::from(slab.totals.chunk_bytes)),
    figure("chunks_per_page", |slab| PAGE_BYTES / u64::from(slab.totals.chunk_bytes.max(1))),
    figure("total_pages", Slab::pages),
    figure("total_chunks", |slab| slab.totals.used_chunks + slab.totals.free_chunks),
    figure("used_chunks", |slab| slab.totals.used_chunks),
    figure("free_chunks", |slab| slab.totals.free_chunks),
    absent("free_chunks_end", "free chunks are not told by where they lie in a page"),
    counter("get_hits", ClassCounter::GetHits),
    counter("cmd_set", ClassCounter::CmdSet),
    counter("delete_hits", ClassCounter::DeleteHits),
    counter("incr_hits", ClassCounter::IncrHits),
    counter("decr_hits", ClassCounter::DecrHits),
    counter("cas_hits", ClassCounter::CasHits),
    counter("cas_badval", ClassCounter::CasBadval),
    counter("touch_hits", ClassCounter::TouchHits),
];
