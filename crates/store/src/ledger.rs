//! Where the memory is that counts against the limit, use by use.
//!
//! ```text
//! spans of classes = items + rounding + chunks_free
//! spans of the index = index + index_free
//! beside the spans  = probation + ghosts + trees + long_keys + watches + buffers + aside
//! ```
//!
//! At rest the sum is what is used, to the byte: [`Store::check`] says so. While workers run, counts are of slightly
//! different moments.

use crate::Store;
use crate::class::{ClassId, SPAN_BYTES};
use crate::sync::atomic::Ordering;

/// Bytes of each use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Keys, values and headers of items.
    pub items: u64,
    /// What chunks are longer than what is in them, and the ends of spans that are no whole chunk.
    pub rounding: u64,
    /// Chunks that nothing is in: free, in workers' hands, or waiting until no thread can see them.
    pub chunks_free: u64,
    /// Pages of the index in use.
    pub index: u64,
    /// Pages in spans of the index that are not in use.
    pub index_free: u64,
    /// Hashes of keys on probation.
    pub probation: u64,
    /// What is remembered of keys that were evicted.
    pub ghosts: u64,
    /// Numbers of trees, which large collections are.
    pub trees: u64,
    /// Keys that are too long for the arena.
    pub long_keys: u64,
    /// Keys that clients watch or wait for.
    pub watches: u64,
    /// Buffers of connections.
    pub buffers: u64,
    /// What else was set aside: threads, connections, lists.
    pub aside: u64,
}

/// Uses that there are.
const USES: usize = 12;

impl Ledger {
    /// Each use: its name, what it is, its bytes.
    pub fn uses(&self) -> [(&'static str, &'static str, u64); USES] {
        [
            ("items", "keys, values and headers", self.items),
            ("rounding", "what chunks are longer than what is in them, and ends of spans", self.rounding),
            ("chunks_free", "chunks that nothing is in", self.chunks_free),
            ("index", "the index", self.index),
            ("index_free", "pages of the index that are not in use", self.index_free),
            ("probation", "which keys are on probation", self.probation),
            ("ghosts", "what is remembered of keys that were evicted", self.ghosts),
            ("trees", "numbers of large collections", self.trees),
            ("long_keys", "keys of more than 8,192 bytes", self.long_keys),
            ("watches", "keys that clients watch or wait for", self.watches),
            ("buffers", "buffers of connections", self.buffers),
            ("aside", "threads, connections, and lists of what was slow", self.aside),
        ]
    }

    /// What all take.
    pub fn sum(&self) -> u64 {
        self.uses().iter().fold(0, |sum, (_, _, bytes)| sum.wrapping_add(*bytes))
    }
}

impl Store {
    /// Bytes of keys that are too long to be in their items, as [`Ledger::long_keys`].
    pub fn long_key_bytes(&self) -> u64 {
        self.key_bytes.load(Ordering::Relaxed)
    }

    /// Where the memory is that is used now.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger {
            ghosts: self.ghosts.bytes(),
            trees: self.trees.bytes(),
            long_keys: self.long_key_bytes(),
            watches: self.watch_bytes(),
            buffers: self.held.charged_bytes(),
            aside: self.held.aside_bytes(),
            index: self.index.used_bytes(),
            ..Ledger::default()
        };
        let mut of_classes = 0;
        for id in ClassId::all() {
            let (spans, probation) = {
                let class = self.slabs.class(id);
                (class.spans() as u64, class.probation.bytes() as u64)
            };
            ledger.probation += probation;
            if spans == 0 {
                continue;
            }
            of_classes += spans;
            let used = self.sum(|c| c.class(id).used_chunks.value()) * id.chunk_bytes() as u64;
            // Bytes that were asked for may be counted before their chunk.
            let items = self.sum(|c| c.class(id).requested_bytes.value()).min(used);
            let chunks = spans * (id.chunks_per_span() * id.chunk_bytes()) as u64;
            ledger.items += items;
            ledger.rounding += used - items + (spans * SPAN_BYTES as u64 - chunks);
            ledger.chunks_free += chunks.saturating_sub(used);
        }
        let of_index = (self.arena.spans_used().saturating_sub(of_classes)) * SPAN_BYTES as u64;
        ledger.index_free = of_index.saturating_sub(ledger.index);
        ledger
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use crate::{Attributes, Config, Expect, Store};

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn uses_add_up_to_what_is_used() {
        let store =
            Store::new(Config { memory_bytes: 16 << 20, workers_max: 1, ..Config::default() }).unwrap();
        assert_eq!(store.ledger().sum(), store.used_bytes(), "of an empty store");
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        store.set_aside(1000);
        store.hold(5000);
        for n in 0..30_000u32 {
            let key = n.to_le_bytes();
            let key = guard.key(&key);
            let value = vec![1; 200 + (n as usize * 37) % 3000];
            guard.store_value(&key, &value, &Attributes::default(), Expect::Any).unwrap();
        }
        let long = [b'k'; 10_000];
        let key = guard.key(&long);
        guard.store_value(&key, b"v", &Attributes::default(), Expect::Any).unwrap();
        drop(guard);
        drop(worker);
        let ledger = store.ledger();
        assert_eq!(ledger.sum(), store.used_bytes(), "{ledger:?}");
        assert_eq!((ledger.aside, ledger.buffers), (1000, 5000));
        assert!(ledger.long_keys >= 10_000 && ledger.probation > 0, "{ledger:?}");
        assert!(ledger.items > 8 << 20 && ledger.rounding < ledger.items / 8, "{ledger:?}");
        store.hold(-5000);
        store.set_aside(-1000);
        store.check();
    }
}
