//! Numbers of trees, and trees that are on their way out.
//!
//! ```text
//! number   the hash of the key that has the tree; of a number that no tree has, the next such number
//! felled   root ─▶ root ─▶ …       their keys are gone, and no worker can see them any more
//! abandoned  nodes, nodes, …       of trees that were not published
//! ```
//!
//! A worker that takes a collection out retires its root, and no more. When that root has left limbo, it is put here, and its
//! nodes are taken apart some at a time, the last children first: by upkeep, and by a worker that finds no free chunk or has
//! items give way. That is bounded, too, and counts as work ([`crate::Guard::take_beside_ns`]). A number is given back last,
//! so that a node's number is never another tree's.

use super::pinned::is_let_go;
use super::{Inner, Root};
use crate::Store;
use crate::arena::Arena;
use crate::item::RawItem;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::worker::{Local, chunk_facts};

/// Numbers that are made at a time.
const PAGE_NUMBERS: usize = 256;
const PAGE_BYTES: usize = PAGE_NUMBERS * size_of::<u64>();
/// No number.
const NONE: u64 = u64::MAX;
/// Chunks that a step takes back, about.
const STEP_CHUNKS: usize = 64;
/// The time that it takes to take one back.
pub(super) const CHUNK_NS: u64 = 150;

#[derive(Debug)]
struct Numbers {
    /// A hash, or the next free number.
    pages: Vec<Box<[u64]>>,
    free: u64,
}

/// What was made of a tree that is not published.
#[derive(Debug)]
struct Abandoned {
    /// Nodes that sweeps may have seen, or not.
    nodes: Vec<u64>,
    number: Option<u32>,
}

/// The numbers of all trees of a store, and those that are to be taken apart.
#[derive(Debug)]
pub(crate) struct Trees {
    numbers: Mutex<Numbers>,
    /// Numbers in use.
    count: AtomicU64,
    felled: Mutex<()>,
    /// The location of the root that was put there last; 0 if there is none. Changed under the lock.
    first_felled: AtomicU64,
    abandoned: Mutex<Vec<Abandoned>>,
    /// Bytes of all that is abandoned, which are charged; 0 if nothing is. Changed under the lock.
    abandoned_bytes: AtomicU64,
}

impl Default for Trees {
    fn default() -> Trees {
        Trees {
            numbers: Mutex::new(Numbers { pages: Vec::new(), free: NONE }),
            count: AtomicU64::new(0),
            felled: Mutex::new(()),
            first_felled: AtomicU64::new(0),
            abandoned: Mutex::new(Vec::new()),
            abandoned_bytes: AtomicU64::new(0),
        }
    }
}

impl Trees {
    /// A number for the tree of a key with this hash.
    pub(super) fn take(&self, arena: &Arena, hash: u64) -> u32 {
        let mut numbers = self.numbers.lock().expect("no panic under the lock");
        if numbers.free == NONE {
            let first = numbers.pages.len() * PAGE_NUMBERS;
            let next = |i: usize| if i + 1 < PAGE_NUMBERS { (first + i + 1) as u64 } else { NONE };
            numbers.pages.push((0..PAGE_NUMBERS).map(next).collect());
            numbers.free = first as u64;
            arena.charge(PAGE_BYTES as i64);
        }
        let number = numbers.free as usize;
        let entry = &mut numbers.pages[number / PAGE_NUMBERS][number % PAGE_NUMBERS];
        let next = std::mem::replace(entry, hash);
        numbers.free = next;
        self.count.fetch_add(1, Ordering::Relaxed);
        number as u32
    }

    /// Notes that the tree of this number is that of a key with this hash from now on.
    pub(in crate::collection) fn name(&self, number: u32, hash: u64) {
        let mut numbers = self.numbers.lock().expect("no panic under the lock");
        let (page, i) = (number as usize / PAGE_NUMBERS, number as usize % PAGE_NUMBERS);
        numbers.pages[page][i] = hash;
    }

    /// Gives a number back: no tree has it any more.
    pub(super) fn give(&self, number: u32) {
        let mut numbers = self.numbers.lock().expect("no panic under the lock");
        let (page, i) = (number as usize / PAGE_NUMBERS, number as usize % PAGE_NUMBERS);
        let next = std::mem::replace(&mut numbers.free, u64::from(number));
        numbers.pages[page][i] = next;
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// The hash of the key that has the tree with this number; anything if no tree has it.
    pub(super) fn hash(&self, number: u64) -> Option<u64> {
        let numbers = self.numbers.lock().expect("no panic under the lock");
        let number = usize::try_from(number).ok()?;
        numbers.pages.get(number / PAGE_NUMBERS).map(|page| page[number % PAGE_NUMBERS])
    }

    /// Numbers in use.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// There are trees.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Bytes of the table, and of lists of nodes that are abandoned, which are charged.
    pub(crate) fn bytes(&self) -> u64 {
        let numbers = self.numbers.lock().expect("no panic under the lock");
        (numbers.pages.len() * PAGE_BYTES) as u64 + self.abandoned_bytes.load(Ordering::Relaxed)
    }

    /// There is something to take apart.
    #[inline]
    pub(crate) fn any_felled(&self) -> bool {
        self.first_felled.load(Ordering::Relaxed) != 0 || self.abandoned_bytes.load(Ordering::Relaxed) != 0
    }

    /// Takes nodes of a tree that will not be published, and its number if it has one.
    pub(super) fn abandon(&self, arena: &Arena, nodes: Vec<u64>, number: Option<u32>) {
        let one = Abandoned { nodes, number };
        let mut abandoned = self.abandoned.lock().expect("no panic under the lock");
        arena.charge(one.bytes() as i64);
        self.abandoned_bytes.fetch_add(one.bytes(), Ordering::Relaxed);
        abandoned.push(one);
    }

    /// Takes the tree that was abandoned last.
    fn take_abandoned(&self) -> Option<Abandoned> {
        if self.abandoned_bytes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.abandoned.lock().expect("no panic under the lock").pop()
    }

    /// Puts back what is left of a tree that was taken by [`Trees::take_abandoned`]; if nothing is, gives its number back.
    fn put_abandoned(&self, arena: &Arena, one: Abandoned) {
        let mut abandoned = self.abandoned.lock().expect("no panic under the lock");
        if one.nodes.is_empty() {
            arena.charge(-(one.bytes() as i64));
            self.abandoned_bytes.fetch_sub(one.bytes(), Ordering::Relaxed);
            drop(abandoned);
            one.number.into_iter().for_each(|number| self.give(number));
        } else {
            abandoned.push(one);
        }
    }

    /// Calls `each` with every node that is abandoned; returns how many such trees have a number. The store is at rest.
    pub(crate) fn each_abandoned(&self, each: &mut dyn FnMut(u64)) -> u64 {
        let abandoned = self.abandoned.lock().expect("no panic under the lock");
        abandoned.iter().flat_map(|one| &one.nodes).for_each(|node| each(*node));
        abandoned.iter().filter(|one| one.number.is_some()).count() as u64
    }

    /// Calls `each` with every root that is to be taken apart. The store is at rest.
    pub(crate) fn each_felled(&self, arena: &Arena, each: &mut dyn FnMut(RawItem, u64)) {
        let mut location = self.first_felled.load(Ordering::Relaxed);
        while location != 0 {
            // SAFETY: a felled root, which stays until it is taken apart.
            let item = unsafe { RawItem::new(arena.at(location)) };
            each(item, location);
            // SAFETY: as above.
            location = unsafe { item.root(item.header()) }.state.load(Ordering::Relaxed);
        }
    }
}

impl Abandoned {
    /// Bytes of the list.
    fn bytes(&self) -> u64 {
        // A list without a node is charged, too: so it is known that there is one.
        (size_of::<Abandoned>() + self.nodes.capacity() * size_of::<u64>()) as u64
    }
}

impl Local {
    /// Takes a retired root that no worker can see any more, and that has no successor: its nodes are to go.
    pub(crate) fn fell(&mut self, store: &Store, root: &Root, location: u64) {
        let _felled = store.trees.felled.lock().expect("no panic under the lock");
        root.state.store(store.trees.first_felled.load(Ordering::Relaxed), Ordering::Relaxed);
        store.trees.first_felled.store(location, Ordering::Relaxed);
    }

    /// Drops some pins that are dropped later, does what [`Local::take_back_some`] does, or frees some of a block that is freed
    /// later; true if there may be more. Blocks come last: they cost most. Costs some microseconds, 60 of a block.
    pub(crate) fn take_apart(&mut self, store: &Store) -> bool {
        self.unpin_some(store) || self.take_back_some(store) || self.free_some(store)
    }

    /// Takes back some pieces of a large value that was dropped, or some chunks of felled trees; true if there may be more. Costs
    /// some microseconds.
    pub(crate) fn take_back_some(&mut self, store: &Store) -> bool {
        if self.take_dropped(store) {
            return true;
        }
        if !store.trees.any_felled() {
            return false;
        }
        if let Some(abandoned) = store.trees.take_abandoned() {
            self.take_nodes_back(store, abandoned);
            return true;
        }
        let location = {
            let _felled = store.trees.felled.lock().expect("no panic under the lock");
            let location = store.trees.first_felled.load(Ordering::Relaxed);
            if location == 0 {
                return false;
            }
            // SAFETY: a felled root.
            let item = unsafe { RawItem::new(store.arena.at(location)) };
            // SAFETY: as above.
            let next = unsafe { item.root(item.header()) }.state.load(Ordering::Relaxed);
            store.trees.first_felled.store(next, Ordering::Relaxed);
            location
        };
        // SAFETY: this worker has taken it out of the list, and no other thread sees it.
        let item = unsafe { RawItem::new(store.arena.at(location)) };
        // SAFETY: as above.
        let root = unsafe { item.root(item.header()) };
        let mut left = STEP_CHUNKS;
        let mut done = true;
        for (top, height) in root.tops() {
            let location = top.load(Ordering::Relaxed);
            if height > 0 && location != 0 && done {
                done = self.take_node_apart(store, location, height, &mut left);
                if done {
                    top.store(0, Ordering::Relaxed);
                }
            }
        }
        self.beside_ns += (STEP_CHUNKS - left) as u64 * CHUNK_NS;
        if done {
            let number = root.number;
            self.recycle(store, location);
            store.trees.give(number);
        } else {
            self.fell(store, root, location);
        }
        true
    }

    /// Takes back some nodes of a tree that was not published.
    fn take_nodes_back(&mut self, store: &Store, mut abandoned: Abandoned) {
        let left = abandoned.nodes.len().saturating_sub(STEP_CHUNKS);
        self.beside_ns += (abandoned.nodes.len() - left) as u64 * CHUNK_NS;
        for chunk in abandoned.nodes.drain(left..) {
            // SAFETY: a node that no tree has.
            let node = unsafe { RawItem::new(store.arena.at(chunk)) };
            if node.header().is_node() {
                // A sweep may look at it.
                let (class, bytes) = chunk_facts(&store.arena, chunk);
                self.retire_alone(node, node.header().moved_piece(), chunk, class, bytes);
            } else {
                self.recycle(store, chunk);
            }
        }
        store.trees.put_abandoned(&store.arena, abandoned);
    }

    /// Takes back a node and what is below it, the last children first; true if all of it went.
    fn take_node_apart(&mut self, store: &Store, location: u64, level: usize, left: &mut usize) -> bool {
        if level > 0 {
            // SAFETY: a node of a tree that this worker alone sees.
            let inner = unsafe { Inner::at(&store.arena, location) };
            for i in (0..inner.len()).rev() {
                let child = inner.location(i);
                if child == 0 {
                    continue;
                }
                if *left == 0 || !self.take_node_apart(store, child, level - 1, left) {
                    return false;
                }
                inner.words[i].store(0, Ordering::Relaxed);
            }
        }
        *left = left.saturating_sub(1);
        // SAFETY: a node of a tree that this worker alone sees.
        if level > 0 || unsafe { is_let_go(store, location) } {
            self.recycle(store, location);
        }
        true
    }
}

impl Root {
    /// The words that name the topmost nodes, and the levels below these: of the tree, and of the members tree of a sorted
    /// set. There is no such node where the height or the location is 0.
    pub(super) fn tops(&self) -> [(&AtomicU64, usize); 2] {
        [(&self.top, self.height.into()), (&self.beside, self.members_height.into())]
    }
}

impl Store {
    /// Calls `each` with the location and level of every node that is left of a tree. The store is at rest.
    pub(crate) fn each_node(&self, item: RawItem, each: &mut dyn FnMut(u64, usize)) {
        // SAFETY: the caller's: a root, and the store is at rest.
        let root = unsafe { item.root(item.header()) };
        for (top, height) in root.tops() {
            let location = top.load(Ordering::Relaxed);
            if height > 0 && location != 0 {
                self.each_node_below(location, height, each);
            }
        }
    }

    fn each_node_below(&self, location: u64, level: usize, each: &mut dyn FnMut(u64, usize)) {
        each(location, level);
        if level > 0 {
            // SAFETY: a node, and the store is at rest.
            let inner = unsafe { Inner::at(&self.arena, location) };
            for child in (0..inner.len()).map(|i| inner.location(i)).filter(|child| *child != 0) {
                self.each_node_below(child, level - 1, each);
            }
        }
    }
}
