//! A walk over everything that says whether the books are right. For tests; the store must be at
//! rest, without workers.

use crate::arena::{Arena, OWNER_INDEX, UNIT};
use crate::bucket::SLOTS;
use crate::class::{ClassId, SPAN_BYTES};
use crate::collection::{Collection, Stream};
use crate::index::PAGE_BYTES;
use crate::item::{Header, RawItem, key_heap_bytes};
use crate::large::Large;
use crate::sync::atomic::Ordering;
use crate::types::TypeCounts;
use crate::worker::{Guard, Worker, chunk_facts, class_of};
use crate::{Key, Store};
use std::collections::HashMap;

impl Guard<'_> {
    /// Checks that the tree of a key, if it has one, is what it says, and that sweeps find each of its nodes.
    ///
    /// # Panics
    /// If it is not so, or if another worker changes it meanwhile.
    pub fn check_tree(&mut self, key: &Key<'_>) {
        let store = self.store;
        if let Some(raw) = self.peek(key).hit().map(|item| item.raw).filter(|raw| raw.header().is_tree()) {
            store.check_tree(raw, key.hash);
        }
    }
}

impl Store {
    /// Ends the last worker, and checks the store ([`Store::check`]).
    ///
    /// # Panics
    /// As [`Store::check`].
    pub fn check_behind(&self, worker: Worker) {
        drop(worker);
        self.check();
    }

    /// Checks that every item is reachable exactly once under its own key, that no chunk is in two places, that collections
    /// are what their leaves say, that chunks, spans and bytes add up to the arena, and that no bucket is locked, or watched
    /// for nothing.
    ///
    /// # Panics
    /// If something does not add up, or a worker exists.
    pub fn check(&self) {
        // Held to the end, so that none comes meanwhile.
        let free = self.workers_free.lock().expect("no panic under the lock");
        assert_eq!(free.len(), self.counters.len(), "the store is at rest");
        self.leftovers.check();
        // 1. What the index reaches, piece by piece.
        let mut reached: HashMap<u64, (ClassId, usize)> = HashMap::new();
        let mut items = vec![0u64; 256];
        let (mut keys_beside, mut trees, types) = (0, 0, TypeCounts::default());
        let (mut cursor, mut slots) = (0, Vec::new());
        loop {
            cursor = self.index.sweep(&self.arena, cursor, &mut |bucket| {
                assert!(!bucket.control().busy(), "a bucket is locked, or in a transaction");
                slots.extend((0..SLOTS).map(|i| bucket.slot(i)).filter(|slot| !slot.is_empty()));
            });
            for slot in slots.drain(..) {
                let location = slot.location();
                // SAFETY: the store is at rest.
                let raw = unsafe { RawItem::new(self.arena.at(location)) };
                assert!(raw.header().is_item(), "a slot names something that is no item");
                let facts = chunk_facts(&self.arena, location);
                items[class_of(&self.arena, raw.header(), location).0 as usize] += 1;
                assert!(reached.insert(location, facts).is_none(), "an item is reached twice");
                if raw.header().is_collection() {
                    // SAFETY: the store is at rest.
                    unsafe { types.add(raw, 1) };
                }
                // SAFETY: the store is at rest.
                keys_beside += key_heap_bytes(unsafe { raw.key() }.len()) as u64;
                let hash = self.hash_at(location);
                let place = self.index.place(&self.arena, hash);
                let found = self.index.scan(&place, place.home().control(), |other| other == slot);
                assert!(found.is_some(), "a slot is not where its key is looked for");
                if raw.header().is_large() {
                    // SAFETY: a large item at rest.
                    unsafe { Large::of(raw) }.chunks(&self.arena, &mut |chunk| {
                        let facts = chunk_facts(&self.arena, chunk);
                        assert!(reached.insert(chunk, facts).is_none(), "a piece is in two values");
                    });
                }
                if raw.header().is_tree() {
                    trees += 1;
                    self.check_tree(raw, hash);
                    self.each_node(raw, &mut |chunk, _| {
                        let facts = chunk_facts(&self.arena, chunk);
                        assert!(reached.insert(chunk, facts).is_none(), "a node is in two trees");
                    });
                } else if raw.header().is_collection() {
                    // SAFETY: a collection at rest.
                    let leaf = unsafe { raw.leaf(raw.header()) };
                    let form = leaf.kind() as u16;
                    let form = if leaf.is_timed() { Header::form_timed(form) } else { form };
                    assert_eq!(form, raw.header().form(), "a leaf of another collection");
                    leaf.check(&|name| self.tag_of(name));
                }
                if raw.header().is_collection()
                    // SAFETY: a collection at rest.
                    && let Some(stream) = unsafe { Collection::of(raw, self, 0) }.stream()
                {
                    Stream::check(&stream);
                }
            }
            if cursor == 0 {
                break;
            }
        }
        self.trees.each_felled(&self.arena, &mut |raw, location| {
            let mut take = |chunk| {
                let facts = chunk_facts(&self.arena, chunk);
                assert!(reached.insert(chunk, facts).is_none(), "what is taken apart is somebody's");
            };
            trees += 1;
            take(location);
            self.each_node(raw, &mut |chunk, _| take(chunk));
        });
        trees += self.trees.each_abandoned(&mut |chunk| {
            let facts = chunk_facts(&self.arena, chunk);
            assert!(reached.insert(chunk, facts).is_none(), "what is taken back is somebody's");
        });
        assert_eq!(self.trees.count(), trees, "numbers of trees");
        self.dropped.each(&self.arena, &mut |chunk| {
            let facts = chunk_facts(&self.arena, chunk);
            assert!(reached.insert(chunk, facts).is_none(), "what was dropped is somebody's");
        });
        self.check_types(&types);
        // 2. What the classes have free, and how it adds up with what is reached.
        for class in ClassId::all() {
            let slab = self.slabs.class(class);
            let mut free = 0;
            for number in slab.all_spans(&self.arena) {
                let span = self.arena.span(number);
                assert_eq!(span.owner.load(Ordering::Relaxed), class.0);
                let mut unit = span.free.load(Ordering::Relaxed);
                while unit != crate::arena::NONE {
                    let location = Arena::location_of(number) + u64::from(unit);
                    assert!(!reached.contains_key(&location), "a chunk is free and in use");
                    assert!((usize::from(unit) * UNIT).is_multiple_of(class.chunk_bytes()));
                    free += 1;
                    // SAFETY: a free chunk has its header word.
                    unit = unsafe { RawItem::new(self.arena.at(location)) }.header().free_next();
                }
                free += class.chunks_per_span() as u64 - u64::from(span.carved.load(Ordering::Relaxed));
            }
            assert_eq!(free, slab.free_chunks, "free chunks of class {}", class.0);
            let total = (slab.spans() * class.chunks_per_span()) as u64;
            let used = reached.values().filter(|(of, _)| *of == class).count() as u64;
            assert_eq!(used + free, total, "class {} leaks chunks", class.0);
            drop(slab);
            let requested: usize = reached.values().filter(|(of, _)| *of == class).map(|(_, n)| n).sum();
            assert_eq!(self.sum(|c| c.class(class).used_chunks.value()), used);
            assert_eq!(self.sum(|c| c.class(class).requested_bytes.value()), requested as u64);
            assert_eq!(self.sum(|c| c.class(class).items.value()), items[class.0 as usize]);
        }
        assert_eq!(self.input_bytes.load(Ordering::Relaxed), 0);
        // 3. Every span has one owner, and what is counted beside spans is there.
        let mut spans: HashMap<u8, u64> = HashMap::new();
        self.arena.check(|_, owner| *spans.entry(owner).or_default() += 1);
        let owned = |owner| spans.get(&owner).copied().unwrap_or(0);
        let mut rings = 0;
        for class in ClassId::all() {
            let slab = self.slabs.class(class);
            assert_eq!(owned(class.0), slab.spans() as u64, "spans of class {}", class.0);
            rings += slab.probation.bytes() as u64;
        }
        let pages = owned(OWNER_INDEX) * (SPAN_BYTES / PAGE_BYTES) as u64;
        assert_eq!(pages, self.index.pages_of_spans(), "pages of the index");
        let keys = self.key_bytes.load(Ordering::Relaxed);
        assert_eq!(keys, keys_beside, "bytes of keys on the heap");
        let tables = rings + self.ghosts.bytes() + self.trees.bytes();
        let beside = tables + keys + self.watch_bytes() + self.outside_bytes();
        assert_eq!(self.arena.charged_bytes(), beside, "bytes beside the spans");
        assert_eq!(self.ledger().sum(), self.arena.used_bytes(), "the ledger");
        // 4. No bucket is locked, and those alone are watched that are the home of a watched key.
        let mut watched = 0;
        let mut cursor = 0;
        loop {
            cursor = self.index.sweep(&self.arena, cursor, &mut |bucket| {
                assert!(!bucket.control().busy(), "a bucket is locked");
                watched += usize::from(bucket.control().watched());
            });
            if cursor == 0 {
                break;
            }
        }
        let homes = self.watches.homes(|hash| {
            let home = self.index.place(&self.arena, hash).home();
            assert!(home.control().watched(), "a watch that no write sees");
            std::ptr::from_ref(home)
        });
        assert_eq!(watched, homes, "buckets that are watched for nothing");
    }
}
