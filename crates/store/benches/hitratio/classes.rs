//! The store's classes, a line each: what a look into a run shows.

use larder_store::ClassTotals;

/// Prints them beside the figures.
pub fn show(classes: &[ClassTotals]) {
    for class in classes {
        eprintln!(
            "{:6} B {:5} spans {:7} items {:7} free {:8} evicted {:6} ghost hits {:7} ms",
            class.chunk_bytes,
            class.spans,
            class.items,
            class.free_chunks,
            class.evictions,
            class.ghost_hits,
            class.age_ms
        );
    }
}
