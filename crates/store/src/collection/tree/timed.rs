//! Fields that expire: the times in inner nodes, and the way to what is due.
//!
//! ```text
//! inner   … │ child word 8 × n │ time 8 × n        of each child the earliest below it; no times if nothing below expires
//! ```
//!
//! Times never change once a node is published, as keys do not. While an edit has a node to itself, they follow what is put
//! below it, if the node has room for them: else it is made anew.

use super::super::build::Builder;
use super::super::change::Declined;
use super::super::times::{NEVER, time_of};
use super::edit::Child;
use super::{
    Edit, EditContext, HEIGHT_MAX, INNER_BYTES, Inner, NODE_BYTES, Path, TIMES, Tree, cutoff_at, key_by,
    leaf_at, node_word,
};
use crate::arena::Arena;
use crate::collection::Collection;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::worker::Local;
use crate::{Millis, Store};
use std::ops::Range;

/// Nodes that are freed in the time in which a leaf is made anew.
const NODES_AS_A_LEAF: usize = 20;

/// The times of the children of an inner node; none if nothing below it expires.
///
/// # Safety
/// An inner node of this epoch is at the location.
unsafe fn times_of<'g>(arena: &Arena, location: u64) -> &'g [AtomicU64] {
    // SAFETY: the caller's obligation: if the first word says so, there is one time for each child behind their words.
    unsafe {
        let count = node_word(arena, location, NODE_BYTES).load(Ordering::Relaxed);
        if count & TIMES == 0 {
            return &[];
        }
        let n = count as u32 as usize;
        let times = arena.at(location).add(INNER_BYTES + 16 * n).cast::<AtomicU64>();
        std::slice::from_raw_parts(times.as_ptr(), n)
    }
}

/// Some of the children of the inner node at a location, of an edit or of a tree that is as it was.
pub(super) fn children_of<'g>(
    arena: &Arena,
    location: u64,
    inner: &Inner<'g>,
    range: Range<usize>,
) -> impl Iterator<Item = Child> + use<'g> {
    // SAFETY: the caller has read the node.
    let times: &'g [AtomicU64] = unsafe { times_of(arena, location) };
    let (keys, words) = (&inner.keys[range.clone()], &inner.words[range.clone()]);
    let mut times = times.get(range).unwrap_or_default().iter();
    keys.iter().zip(words).map(move |(key, word)| {
        let soonest = times.next().map_or(NEVER, |time| time.load(Ordering::Relaxed));
        // Acquire: a reader that finds a node which has moved finds its bytes.
        Child { key: *key, word: word.load(Ordering::Acquire), soonest }
    })
}

/// True if an inner node of an edit has room for this time.
pub(super) fn says_time(store: &Store, location: u64, soonest: u64) -> bool {
    // SAFETY: a node of an edit.
    soonest == NEVER || !unsafe { times_of(&store.arena, location) }.is_empty()
}

/// Notes in an inner node, which is an edit's, when the first field below a child expires.
pub(super) fn put_time(store: &Store, (location, i): (u64, usize), soonest: u64) {
    // SAFETY: a node of an edit, which no other thread sees.
    if let Some(time) = unsafe { times_of(&store.arena, location) }.get(i) {
        time.store(soonest, Ordering::Relaxed);
    }
}

/// The word of the time of the field that expires first below an inner node of an edit, or of a tree that is as it was.
pub(super) fn soonest_below(store: &Store, location: u64) -> u64 {
    // SAFETY: as is said.
    let times = unsafe { times_of(&store.arena, location) };
    times.iter().map(|time| time.load(Ordering::Relaxed)).min().unwrap_or(NEVER)
}

impl Edit {
    /// When the first field expires; 0 for never.
    pub(in crate::collection) fn soonest(&self, store: &Store) -> Millis {
        if self.height == 0 { 0 } else { time_of(soonest_below(store, self.top)) }
    }

    /// The time by which it takes out what is due: that of the batch, or a later one by which some has gone already.
    pub(super) fn now(&self, local: &Local) -> Millis {
        cutoff_at(local.now, self.cutoff)
    }

    /// The time up to which readers find nothing that was due; 0 if nothing has been taken out.
    pub(super) fn cutoff_now(&self, local: &Local) -> Millis {
        if self.expired > 0 || self.cutoff > 0 { self.now(local) } else { 0 }
    }

    /// Loads the leaf at the end of a path, without fields whose time has passed. Of a part it loads nothing.
    pub(super) fn load_live(&mut self, cx: &EditContext<'_>, path: &Path, builder: &mut Builder) {
        let leaf = self.leaf(cx.store, path);
        if self.apart > 0 {
            self.load_beside_parts(cx, &leaf, builder);
        } else {
            builder.load(&leaf);
        }
        builder.make_roomy();
        let gone = builder.drop_expired(self.now(cx.local));
        self.elements -= gone as u64;
        self.expired += gone as u64;
    }

    /// Sets when a field, which is there, expires; 0: never. Fields of the same leaf whose time has passed go.
    pub(in crate::collection) fn set_time(
        &mut self,
        cx: &mut EditContext<'_>,
        name: &[u8],
        at: Millis,
    ) -> Result<(), Declined> {
        let hash = cx.store.member_hash(name);
        let mut path = self.path(cx.store, key_by(hash));
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(cx, &path, &mut builder);
        let there = builder.leaf().find(name, hash as u8);
        let done = match there {
            Some(i) => {
                builder.set_time(i, at);
                self.remove_loose(cx, &mut path).and_then(|()| self.store_leaf(cx, &path, &mut builder))
            }
            None => {
                debug_assert!(false, "it was found");
                Ok(())
            }
        };
        self.builder = builder;
        done
    }

    /// Takes out what is due in at most `leaves_max` leaves, and in fewer where `nodes_max` nodes go with them: a value that
    /// has more parts loses its last ones first. Returns whether nothing more is due, and about how many leaves that came to.
    pub(in crate::collection) fn drop_due(
        &mut self,
        cx: &mut EditContext<'_>,
        (leaves_max, nodes_max): (usize, usize),
    ) -> Result<(bool, usize), Declined> {
        let before = self.gone.len();
        let mut leaves = 0;
        while leaves < leaves_max && self.gone.len() - before < nodes_max {
            let Some(mut path) = self.path_to_due(cx.store, self.now(cx.local)) else { break };
            let mut builder = std::mem::take(&mut self.builder);
            let nodes_left = nodes_max - (self.gone.len() - before);
            let done = self.drop_due_of_leaf(cx, &mut path, &mut builder, nodes_left);
            self.builder = builder;
            done?;
            leaves += 1;
        }
        let all = self.path_to_due(cx.store, self.now(cx.local)).is_none();
        Ok((all, leaves + (self.gone.len() - before) / NODES_AS_A_LEAF))
    }

    /// Takes out what is due in a leaf, or some parts of it that are as many nodes at most.
    fn drop_due_of_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        path: &mut Path,
        builder: &mut Builder,
        nodes_max: usize,
    ) -> Result<(), Declined> {
        if !self.load_shortened(cx, path, builder, nodes_max)? {
            self.load_live(cx, path, builder);
        }
        self.remove_loose(cx, path)?;
        self.store_leaf(cx, path, builder)
    }

    /// The way to the first leaf with a field whose time has passed.
    fn path_to_due(&self, store: &Store, now: Millis) -> Option<Path> {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top };
        for step in &mut path.steps[..self.height] {
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            let (inner, times) =
                unsafe { (Inner::at(&store.arena, path.leaf), times_of(&store.arena, path.leaf)) };
            let i = times.iter().position(|time| time.load(Ordering::Relaxed) <= now)?;
            *step = (path.leaf, i);
            path.leaf = inner.location(i);
        }
        (self.height > 0).then_some(path)
    }
}

impl Collection<'_> {
    /// Returns how many leaves of a hash have a field whose time has passed, and their bytes. It stops at `leaves_max`.
    pub fn due_leaves(&self, leaves_max: usize) -> (usize, usize) {
        if !self.is_due() {
            return (0, 0);
        }
        let mut due = (0, 0);
        match self.tree() {
            Some(tree) => tree.add_due((tree.top, tree.height), self.now, leaves_max, &mut due),
            None => due = (1, self.bytes()),
        }
        due
    }
}

impl Tree<'_> {
    /// Adds the leaves that are due below the inner node at a location, which is `level` levels above them.
    fn add_due(
        &self,
        (location, level): (u64, usize),
        now: Millis,
        leaves_max: usize,
        due: &mut (usize, usize),
    ) {
        let inner = self.inner(location);
        // SAFETY: an inner node of this tree, of the epoch that its lifetime ends before.
        let times = unsafe { times_of(&self.store.arena, location) };
        for (i, time) in times.iter().enumerate() {
            if due.0 >= leaves_max {
                return;
            }
            if time.load(Ordering::Relaxed) > now {
                continue;
            }
            let below = inner.location(i);
            if level > 1 {
                self.add_due((below, level - 1), now, leaves_max, due);
            } else {
                due.0 += 1;
                due.1 += self.leaf(below).whole_bytes();
            }
        }
    }
}

impl Store {
    /// Checks that inner nodes say when the first field below each child expires; returns the
    /// earliest of these times, 0 for never. The store is at rest.
    ///
    /// # Panics
    /// If it is not so.
    pub(super) fn check_times(&self, location: u64, level: usize) -> Millis {
        let arena = &self.arena;
        if level == 0 {
            // SAFETY: the store is at rest, and a tree names a leaf there.
            return unsafe { leaf_at(arena, location) }.soonest();
        }
        // SAFETY: as above, an inner node.
        let (inner, times) = unsafe { (Inner::at(arena, location), times_of(arena, location)) };
        let mut soonest = NEVER;
        for i in 0..inner.len() {
            let below = super::super::times::word_of(self.check_times(inner.location(i), level - 1));
            let said = times.get(i).map_or(NEVER, |time| time.load(Ordering::Relaxed));
            assert_eq!(said, below, "when the first field below a child expires");
            soonest = soonest.min(said);
        }
        time_of(soonest)
    }
}
