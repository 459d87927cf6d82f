//! Writing to a tree: new nodes on the way to each leaf that changes, which no reader sees, and then a new root.
//!
//! ```text
//! look ─▶ way to a leaf ─▶ change a copy of it ─▶ allocate, copy ─▶ the nodes above it, up to the top ─▶ … ─▶ publish the root
//! ```
//!
//! 1. Nodes are looked at in this worker's epoch. An allocation may leave it: then the item is looked at again, and if it
//!    is not the one that the edit began with, with no node moved, everything begins again. So what is read is of a tree
//!    that no other write has changed.
//! 2. A node that this edit has made and replaces again goes back at once. What it replaces of the tree that is there
//!    stays until the new root is published, and is retired then.
//! 3. Without memory the new nodes go back, and nothing has happened.
//! 4. Until it is published, the header of a node says that a sweep passes it over, and has the node's place in
//!    [`Edit::fresh`] where its tree's number will be.
//!
//! A leaf that is too long is cut into equal parts; one that is a quarter full joins a neighbour if both fit three quarters.
//! So do inner nodes. A top with one child gives way to it.
//!
//! Of a sorted set one edit changes both trees: the one that is changed just then lies in [`Edit::top`], the other one
//! [`Edit::beside`] it.

use super::super::Lasting;
use super::super::build::{Builder, Full, MEMBER_BYTES_MAX, NewEntry, lies_apart};
use super::super::change::Declined;
use super::super::leaf::Leaf;
use super::super::times::{NEVER, word_of as word_of_time};
use super::apart::NewElement;
use super::fell::CHUNK_NS;
use super::labels::prefetch_labels;
use super::members::MembersBuilder;
use super::pinned::{begin_part, part_node_bytes};
use super::places::{Growth, PartEnd};
use super::strings::{apart_units, behind_parts, long_text};
use super::timed::{children_of, put_time, says_time, soonest_below};
use super::{
    BEGUN, CHILDREN_MAX, ELEMENTS_MAX, HEIGHT_MAX, INNER_BYTES, Inner, LEAF_BYTES, LONG_AGO, NODE_BYTES,
    Path, ROOT_BYTES, Root, SHORTENED, TIMES, cutoff_at, elements_of, header_of, key_by, key_of_name,
    leaf_at, location_of, moves_of, node_word, word,
};
use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::collection::Type;
use crate::item::{Header, RawItem, Shape};
use crate::read::{Find, seen};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::worker::{Guard, Local};
use crate::write::{Draft, Token, Unpublished};
use crate::{Attributes, Expect, Key, Millis, Refusal, Seen, Store, Stored};
use std::ops::Range;

/// What a node that grows small joins its neighbour at, and what both may have then.
pub(super) const LEAF_BYTES_FEW: usize = LEAF_BYTES / 4;
pub(super) const LEAF_BYTES_JOINED: usize = LEAF_BYTES / 4 * 3;
const CHILDREN_FEW: usize = if CHILDREN_MAX < 8 { 2 } else { CHILDREN_MAX / 4 };
const CHILDREN_JOINED: usize = CHILDREN_MAX / 4 * 3;

/// Labels for which a vector has room that has some.
const LABELS_MIN: usize = 4;

/// A piece of an upload that becomes a node takes as long as so many bytes of nodes that are made: some 0.3 µs.
const ADOPTED_BYTES: u64 = 1 << 10;

/// Nodes that are given back without being counted: their cost is a part of that of the change itself.
const CHUNKS_UNCOUNTED: usize = 16;

/// Nodes for which vectors keep room until the next edit.
const NODES_KEPT: usize = 1 << 10;

/// A child of an inner node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// The least key that it may have.
    pub(super) key: u64,
    pub(super) word: u64,
    /// The word of the time of the field that expires first below it.
    pub(super) soonest: u64,
}

impl Child {
    pub(super) const NONE: Child = Child { key: 0, word: 0, soonest: NEVER };

    /// One below which no field expires.
    pub(super) fn without_times(key: u64, word: u64) -> Child {
        Child { key, word, soonest: NEVER }
    }
}

/// Where an entry of a leaf that is cut goes by, and where it is.
#[derive(Clone, Copy, Debug)]
struct Cut {
    key: u64,
    i: u32,
    at: u32,
    bytes: u32,
    /// Parts follow it.
    has_parts: bool,
}

/// A tree that is being changed. Its vectors stay for the next one: in steady state an edit allocates nothing on the heap.
/// Those of nodes grow with what is written at once, and so much of them is given back.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(super) number: u32,
    /// The number was taken for this edit.
    pub(super) numbered: bool,
    /// Height and topmost node of the tree that is changed.
    pub(super) height: usize,
    pub(super) top: u64,
    /// The same of the other tree of a sorted set: of members, or, while that is changed, of scores.
    pub(super) beside: (usize, u64),
    /// What lies apart: see [`super::Tree::apart`].
    pub(super) apart: u64,
    /// Strings that no entry has any more, and whose parts are still there: their labels and bytes.
    pub(super) loose: Vec<(u64, usize)>,
    /// Keys of what is taken out lead to what is before it from now on, not to what is behind it.
    pub(super) leads_back: bool,
    /// It is the members tree that is changed.
    pub(super) in_members: bool,
    pub(in crate::collection) elements: u64,
    /// Fields whose time had passed, and that it has taken out.
    pub(in crate::collection) expired: u64,
    /// See [`super::Root::cutoff`]: that of the tree that it began with.
    pub(super) cutoff: Millis,
    pub(super) bytes: u64,
    /// Bytes of nodes that were made since it began, and [`ADOPTED_BYTES`] for each that was received.
    pub(in crate::collection) made_bytes: u64,
    /// The item that has the nodes that are there; none if all are this edit's.
    pub(super) base: Option<Seen>,
    /// It is not known whether the first leaf is marked.
    pub(super) unmarked: bool,
    /// Where a list grows.
    pub(in crate::collection) growth: Growth,
    /// Another write was faster.
    pub(in crate::collection) overtaken: bool,
    /// Nodes of this edit.
    pub(super) fresh: Vec<u64>,
    /// Those among them that are pieces of an upload, or parts that were of another tree: they are that again where the edit
    /// comes to nothing.
    adopted: Vec<u64>,
    /// What is held of the vectors of nodes; none: the owner of the edit counts them.
    held: Option<i64>,
    /// How many of the fresh nodes sweeps may look at by now.
    shown: usize,
    /// Nodes that its tree does not have any more.
    pub(super) gone: Vec<u64>,
    /// Those among them that are not retired, in order: parts that another edit gets.
    pub(super) spared: Vec<u64>,
    /// Leaves of a list that get another label where they lie, when the new root is published.
    pub(super) relabeled: Vec<(u64, u64)>,
    /// What takes the place of some children of the next node.
    pub(super) news: Vec<Child>,
    row: Vec<Child>,
    cuts: Vec<Cut>,
    pub(super) ends: Vec<PartEnd>,
    pub(super) part: Builder,
    pub(super) members: MembersBuilder,
    pub(super) members_ends: Vec<usize>,
    /// Leaves and inner nodes that were made, in all, but for those of members trees.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) made: [usize; 2],
    /// Leaves of members trees that were made anew, in all.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) members_leaves: usize,
    /// Ways to members of scores trees that were looked for, in all.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) ways: std::cell::Cell<usize>,
    /// The leaf that is being changed.
    pub(super) builder: Builder,
}

/// What an edit works with: the store, the worker that edits, and the key.
pub(in crate::collection) struct EditContext<'c> {
    pub(in crate::collection) store: &'c Store,
    pub(in crate::collection) local: &'c mut Local,
    pub(in crate::collection) key: &'c Key<'c>,
}

/// Where the item of the key lies, if this worker's transaction holds it: [`Store::find`] passes such buckets by.
#[cold]
fn find_held(cx: &EditContext<'_>) -> Option<(u64, RawItem)> {
    let (store, key) = (cx.store, cx.key);
    let locked = cx.local.try_lock(store, key.hash)?;
    let held = locked.control.in_transaction();
    let found = store.index.scan(&locked.place, locked.control, |slot| store.is_at(slot, key));
    locked.home.unlock(locked.control);
    // SAFETY: reachable in this epoch.
    found
        .filter(|_| held)
        .map(|found| (found.slot.location(), unsafe { RawItem::new(store.arena.at(found.slot.location())) }))
}

impl Edit {
    pub(super) fn clear(&mut self) {
        debug_assert!(self.fresh.is_empty() && self.news.is_empty());
        self.numbered = false;
        (self.height, self.top, self.elements, self.bytes) = (0, 0, 0, 0);
        (self.expired, self.cutoff, self.made_bytes) = (0, 0, 0);
        (self.beside, self.in_members) = ((0, 0), false);
        self.apart = 0;
        self.loose.clear();
        self.base = None;
        self.unmarked = false;
        self.growth = Growth::Within;
        self.overtaken = false;
        self.shown = 0;
        self.adopted.clear();
        self.gone.clear();
        self.spared.clear();
        self.relabeled.clear();
        self.row.clear();
    }

    /// Nodes for which there is room.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn room_for_nodes(&self) -> usize {
        self.fresh.capacity().max(self.gone.capacity())
    }

    /// Begins with the tree of an item.
    ///
    /// # Safety
    /// A tree, reachable in this epoch: that which `seen` says.
    pub(in crate::collection) unsafe fn load(&mut self, item: RawItem, seen: Seen) {
        self.clear();
        // SAFETY: the caller's obligation. Its moves come first: a thread that sees them later sees what was moved before.
        let (root, moves) = unsafe { (item.root(item.header()), moves_of(item)) };
        self.base = Some(Seen { moves, ..seen });
        self.number = root.number;
        self.height = root.height as usize;
        self.top = root.top.load(Ordering::Acquire);
        self.beside = match root.members_height {
            // What is there is a time, which its nodes say, too, or of elements that lie apart.
            0 => (0, 0),
            height => (height as usize, root.beside.load(Ordering::Acquire)),
        };
        self.apart = root.apart(Type::of_form(item.header().form()));
        self.cutoff = if item.header().is_timed() { root.cutoff() } else { 0 };
        self.elements = root.elements;
        self.bytes = root.bytes;
    }

    /// Begins a tree of what is in `builder`, for an item that has another form, or none.
    pub(in crate::collection) fn plant(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &Builder,
    ) -> Result<(), Declined> {
        self.plant_elements(cx, builder)?;
        if builder.kind() == Type::SortedSet && !builder.is_empty() {
            self.plant_members(cx, &builder.leaf())
        } else {
            Ok(())
        }
    }

    /// The same without the members tree of a sorted set.
    pub(in crate::collection) fn plant_elements(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &Builder,
    ) -> Result<(), Declined> {
        let growth = self.growth;
        self.clear();
        self.growth = growth;
        self.number = cx.store.trees.take(&cx.store.arena, cx.key.hash);
        self.numbered = true;
        self.unmarked = true;
        self.elements = builder.leaf().len() as u64;
        if builder.is_empty() {
            // Its first string lies apart.
            return Ok(());
        }
        self.write_leaves(cx, builder, 0, None)?;
        self.write_top(cx, 1)
    }

    /// What the vectors of nodes take is held from here on, until [`Edit::let_go`].
    pub(in crate::collection) fn hold(&mut self) {
        self.held = Some(0);
        self.made_bytes = 0;
    }

    /// What was held is not any more.
    pub(in crate::collection) fn let_go(&mut self, store: &Store) {
        if let Some(mut held) = self.held.take() {
            store.set_scratch(&mut held, 0);
        }
    }

    /// There is no room for one more node: for as many again is made, and in time for as many that go.
    #[cold]
    fn hold_more(&mut self, store: &Store) {
        self.hold_room(store, 2 * self.fresh.capacity(), self.relabeled.capacity());
    }

    /// Room for so many nodes, and for so many labels, is there from here on.
    fn hold_room(&mut self, store: &Store, nodes: usize, labels: usize) {
        if let Some(held) = &mut self.held {
            store.set_scratch(held, 2 * nodes * size_of::<u64>() + labels * size_of::<(u64, u64)>());
        }
    }

    /// A leaf gets another label when the new root is published.
    pub(super) fn relabel_later(&mut self, store: &Store, location: u64, label: u64) {
        if self.relabeled.len() == self.relabeled.capacity() {
            self.hold_room(store, self.fresh.capacity(), (2 * self.relabeled.capacity()).max(LABELS_MIN));
        }
        self.relabeled.push((location, label));
    }

    /// Gives everything back: nothing has happened.
    pub(in crate::collection) fn give_up(&mut self, store: &Store, local: &mut Local) {
        self.news.clear();
        self.leave_adopted(store);
        if self.shown > 0 || self.fresh.len() > NODES_KEPT {
            self.abandon(store);
        }
        while let Some(chunk) = self.fresh.pop() {
            local.recycle(store, chunk);
        }
        self.fresh.shrink_to(NODES_KEPT);
        // They are still the tree's.
        self.gone.clear();
        self.gone.shrink_to(NODES_KEPT);
        self.spared.clear();
        self.relabeled = Vec::new();
        if std::mem::take(&mut self.numbered) {
            store.trees.give(self.number);
        }
    }

    /// Leaves all that was made, and the number, to be taken back some at a time.
    pub(in crate::collection) fn abandon(&mut self, store: &Store) {
        let number = std::mem::take(&mut self.numbered).then_some(self.number);
        store.trees.abandon(&store.arena, std::mem::take(&mut self.fresh), number);
        self.shown = 0;
    }

    /// Gives back the nodes that were made since there were so many of them, with so many bytes: none is in the tree.
    pub(super) fn give_newest(&mut self, cx: &mut EditContext<'_>, nodes: usize, bytes: u64) {
        debug_assert!(self.shown <= nodes);
        self.news.clear();
        for chunk in self.fresh.drain(nodes..) {
            cx.local.recycle(cx.store, chunk);
        }
        self.bytes = bytes;
    }

    /// A chunk for a node; its header says that it has no owner yet.
    pub(super) fn allocate(
        &mut self,
        cx: &mut EditContext<'_>,
        level: usize,
        bytes: usize,
    ) -> Result<u64, Declined> {
        let EditContext { store, local, .. } = cx;
        let epoch = store.epochs.announced(local.id);
        let chunk = local.allocate(store, ClassId::of(bytes), bytes).ok_or(Declined::NoMemory)?;
        let header = Header::node(self.fresh.len() as u64, level, bytes - 8);
        let header = if self.in_members { header.of_members() } else { header };
        // SAFETY: the chunk is this worker's.
        let node = unsafe { RawItem::new(store.arena.at(chunk)) };
        node.header_word().store(header.moved_piece().0, Ordering::Relaxed);
        if self.fresh.len() == self.fresh.capacity() {
            self.hold_more(store);
        }
        self.fresh.push(chunk);
        self.bytes += bytes as u64;
        self.made_bytes += bytes as u64;
        #[cfg(all(test, not(feature = "loom")))]
        {
            self.made[usize::from(level > 0)] += usize::from(!self.in_members);
        }
        // In the same epoch nothing that could be read before was used again.
        if store.epochs.announced(local.id) != epoch && !self.still_holds(cx) {
            self.overtaken = true;
            return Err(Declined::NoMemory);
        }
        Ok(chunk)
    }

    /// Makes a piece of an upload, or a part that is of no tree, a node of this edit, a part, where it lies.
    pub(super) fn adopt(&mut self, store: &Store, piece: u64) {
        debug_assert!(!self.in_members);
        // SAFETY: a piece or a part that this edit was given: no other thread writes its header.
        let node = unsafe { RawItem::new(store.arena.at(piece)) };
        let bytes = node.header().piece_bytes();
        // In one store: a thread that still reads a part, or has it pinned, sees that it is one, and its bytes.
        let header = Header::node(self.fresh.len() as u64, 0, bytes).of_part();
        node.header_word().store(header.moved_piece().0, Ordering::Relaxed);
        if self.fresh.len() == self.fresh.capacity() {
            self.hold_more(store);
        }
        self.fresh.push(piece);
        self.adopted.push(piece);
        self.bytes += bytes as u64 + 8;
        self.made_bytes += ADOPTED_BYTES;
    }

    /// What was adopted is none of its nodes any more, and keeps the bytes that it has. A sweep that has seen it as a node finds
    /// that it is none, before the number of the tree is another's.
    fn leave_adopted(&mut self, store: &Store) {
        if self.adopted.is_empty() {
            return;
        }
        let mut adopted = std::mem::take(&mut self.adopted);
        for piece in &adopted {
            // SAFETY: a node of this edit.
            let node = unsafe { RawItem::new(store.arena.at(*piece)) };
            node.header_word().store(node.header().moved_piece().0, Ordering::Release);
        }
        adopted.sort_unstable();
        self.fresh.retain(|node| adopted.binary_search(node).is_err());
    }

    /// The item is the one that the edit began with, and so are its nodes.
    fn still_holds(&self, cx: &EditContext<'_>) -> bool {
        let Some(base) = self.base else { return true };
        let found = match cx.store.find(cx.key) {
            Find::Item(found, raw) => Some((found.slot.location(), raw)),
            Find::Nothing => None,
            Find::Unclean => find_held(cx),
        };
        found.is_some_and(|(location, raw)| {
            let now = seen(raw, location, cx.key.hash);
            // SAFETY: reachable in this epoch.
            Seen { moves: unsafe { moves_of(raw) }, ..now } == base
        })
    }

    /// A node is no part of the tree any more.
    pub(super) fn drop_node(&mut self, cx: &mut EditContext<'_>, location: u64) {
        let arena = &cx.store.arena;
        // SAFETY: a node of this edit, or of the tree that it began with.
        let header = unsafe { header_of(arena, location) };
        self.bytes -= (header.piece_bytes() + 8) as u64;
        let i = header.node_number() as usize;
        // One of the tree that was moved a moment ago says so in its header, too: then this edit is not published.
        if header.is_node() || self.fresh.get(i) != Some(&location) {
            self.gone.push(location);
            return;
        }
        self.fresh.swap_remove(i);
        if let Some(&moved) = self.fresh.get(i) {
            // SAFETY: a node of this edit.
            let node = unsafe { RawItem::new(arena.at(moved)) };
            node.header_word().store(node.header().with_piece_owner(i as u64).0, Ordering::Relaxed);
        }
        cx.local.recycle(cx.store, location);
    }

    /// The way to the leaf for elements with this key.
    pub(super) fn path(&self, store: &Store, key: u64) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top };
        for step in &mut path.steps[..self.height] {
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            let inner = unsafe { Inner::at(&store.arena, path.leaf) };
            let i = inner.child_of(key);
            *step = (path.leaf, i);
            path.leaf = inner.location(i);
        }
        path
    }

    pub(super) fn leaf<'g>(&self, store: &Store, path: &Path) -> Leaf<'g> {
        // SAFETY: a leaf of this edit, or of a tree that is as it was; no caller keeps it beyond the next allocation.
        unsafe { leaf_at(&store.arena, path.leaf) }
    }

    /// As [`super::Tree::may_have`].
    #[inline]
    pub(super) fn may_have(&self, name: &[u8]) -> bool {
        name.len() <= MEMBER_BYTES_MAX || name.len() as u64 <= self.apart
    }

    /// Where a field or a member with this hash is in its leaf, if it is there at this time.
    #[inline]
    fn find_in(
        &self,
        store: &Store,
        leaf: &Leaf<'_>,
        (name, hash): (&[u8], u64),
        now: Millis,
    ) -> Option<usize> {
        if name.len() <= MEMBER_BYTES_MAX {
            leaf.find_live(name, hash as u8, now)
        } else {
            self.tree(store, leaf.kind()).find_long(leaf, (name, hash))
        }
    }

    /// Calls `read` with the leaf and place of an element, if it is there at this time.
    pub(in crate::collection) fn with<R>(
        &self,
        store: &Store,
        (name, now): (&[u8], Millis),
        read: impl FnOnce(&Leaf<'_>, usize) -> R,
    ) -> Option<R> {
        if !self.may_have(name) {
            return None;
        }
        let hash = store.member_hash(name);
        let path = self.path(store, key_by(hash));
        let leaf = self.leaf(store, &path);
        let now = cutoff_at(now, self.cutoff);
        self.find_in(store, &leaf, (name, hash), now).map(|i| read(&leaf, i))
    }

    /// Gives a field a value, or puts a member in; whether it is new: nothing is done with a member that is there. Fields of the
    /// same leaf whose time has passed go.
    pub(in crate::collection) fn put(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        (name, value): (&[u8], &[u8]),
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        if !self.may_have(name) && !cx.store.element_fits(kind, name, value) {
            return Err(Declined::TooLarge);
        }
        let hash = cx.store.member_hash(name);
        if self.height == 0 {
            return self.put_first(cx, (kind, hash), (name, value), lasting);
        }
        let mut path = self.path(cx.store, key_by(hash));
        if kind == Type::Set {
            let leaf = self.leaf(cx.store, &path);
            if self.find_in(cx.store, &leaf, (name, hash), cx.local.now).is_some() {
                return Ok(false);
            }
        }
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(cx, &path, &mut builder);
        let end = builder.leaf().len();
        let there = if kind == Type::Set { None } else { builder.leaf().find(name, hash as u8) };
        if let Some(i) = there {
            self.loosen(&builder, i);
        }
        let built = match there {
            Some(i) => builder.set_value(i, name.len(), value).map(|()| None),
            None => builder.insert(end, NewEntry { tag: hash as u8, name, value, score: 0.0 }).map(|()| None),
        };
        let built = match built {
            Err(Full) if lies_apart(kind, name, value) => {
                let text = NewElement::Text(long_text(kind, name, value));
                self.put_reference(cx, &mut builder, (there, hash), (name, &text)).map(Some)
            }
            built => built.map_err(Declined::from),
        };
        let new = there.is_none();
        if built.is_ok() && kind == Type::Hash {
            lasting.note(&mut builder, there.unwrap_or(end));
        }
        let done = match built {
            Err(declined) => Err(declined),
            Ok(_) if new && self.elements + 1 >= ELEMENTS_MAX => Err(Declined::TooLarge),
            Ok(label) => {
                self.elements += u64::from(new);
                self.remove_loose(cx, &mut path)
                    .and_then(|()| self.store_leaf(cx, &path, &mut builder))
                    .and_then(|()| match label {
                        Some(label) => {
                            let text = NewElement::Text(long_text(kind, name, value));
                            self.put_parts(cx, (kind, label), text)
                        }
                        None => Ok(()),
                    })
            }
        };
        self.builder = builder;
        done.map(|()| new)
    }

    /// Takes an element out; whether it was there.
    pub(in crate::collection) fn take(
        &mut self,
        cx: &mut EditContext<'_>,
        name: &[u8],
    ) -> Result<bool, Declined> {
        if !self.may_have(name) {
            return Ok(false);
        }
        let hash = cx.store.member_hash(name);
        let mut path = self.path(cx.store, key_by(hash));
        let leaf = self.leaf(cx.store, &path);
        let there = self.find_in(cx.store, &leaf, (name, hash), self.now(cx.local));
        if there.is_none() {
            return Ok(false);
        }
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(cx, &path, &mut builder);
        // Where fields were due and are gone it is somewhere else. From a set none goes so: a long member, which a leaf does not
        // find by its name, is where it was.
        let is_whole = builder.leaf().len() == leaf.len();
        let there = if is_whole { there } else { builder.leaf().find(name, hash as u8) };
        let i = there.expect("it was found, and its time has not passed");
        self.loosen(&builder, i);
        builder.remove(i..i + 1);
        self.elements -= 1;
        let done = self.remove_loose(cx, &mut path).and_then(|()| self.store_leaf(cx, &path, &mut builder));
        self.builder = builder;
        done.map(|()| true)
    }

    /// Puts what is in `builder` in the place of the leaf at the end of a path, or behind it, if that has a part.
    pub(super) fn store_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        path: &Path,
        builder: &mut Builder,
    ) -> Result<(), Declined> {
        let arena = &cx.store.arena;
        let (parent, i) = path.steps[self.height - 1];
        // SAFETY: an inner node of this edit, or of a tree that is as it was.
        let inner = unsafe { Inner::at(arena, parent) };
        let behind = self.apart > 0 && self.leaf(cx.store, path).len() == 0;
        let mut range = i + usize::from(behind)..i + 1;
        if !behind {
            self.unmarked |= path.is_first(self.height);
            self.drop_node(cx, path.leaf);
        }
        if !behind && !builder.is_empty() && builder.tree_bytes() < LEAF_BYTES_FEW {
            let beside = [i + 1, i.wrapping_sub(1)];
            for j in beside.into_iter().filter(|j| *j < inner.len()) {
                let location = inner.location(j);
                // SAFETY: as above, a leaf.
                let neighbour: Leaf<'_> = unsafe { leaf_at(&cx.store.arena, location) };
                if builder.tree_bytes() + neighbour.whole_bytes() <= LEAF_BYTES_JOINED
                    && !neighbour.is_apart()
                {
                    if j < i {
                        builder.prepend(&neighbour);
                    } else {
                        builder.append(&neighbour);
                    }
                    range = i.min(j)..i.max(j) + 1;
                    self.unmarked |= range.start == 0;
                    self.drop_node(cx, location);
                    break;
                }
            }
        }
        let low = match behind {
            false => path.low(&cx.store.arena, self.height - 1, range.start),
            true => behind_parts(path.low(&cx.store.arena, self.height - 1, i)),
        };
        if !builder.is_empty() {
            // Of a list one that has joined a neighbour is not cut.
            let high = path.high(&cx.store.arena, self.height - 1);
            self.write_leaves(cx, builder, low, high)?;
        }
        self.climb(cx, path, self.height - 1, range)
    }

    /// Makes leaves of what is in `builder`, from `low` on, and below `high`: they are [`Edit::news`] then.
    pub(super) fn write_leaves(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &Builder,
        low: u64,
        high: Option<u64>,
    ) -> Result<(), Declined> {
        debug_assert!(self.news.is_empty());
        let leaf = builder.leaf();
        let bytes = builder.tree_bytes();
        let few = bytes <= LEAF_BYTES;
        // A leaf ends with what lies apart.
        if few && !(self.apart > 0 && leaf.has_apart()) || leaf.len() == 1 {
            return self.write_leaf(cx, builder, low);
        }
        match leaf.kind() {
            Type::List | Type::SortedSet => return self.write_run(cx, builder, low, high),
            Type::Stream => return self.write_rows(cx, builder, low),
            Type::Hash | Type::Set => {}
        }
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.clear();
        let mut at = 0;
        for i in 0..leaf.len() {
            let (entry, bytes) = leaf.entry_at(i, at);
            let (key, has_parts) = (key_of_name(cx.store, &entry.name), entry.apart().is_some());
            cuts.push(Cut { key, i: i as u32, at: at as u32, bytes: bytes as u32, has_parts });
            at += bytes;
        }
        cuts.sort_unstable_by_key(|cut| (cut.key, cut.i));
        let parts = if few { 1 } else { bytes.div_ceil(LEAF_BYTES_JOINED).max(2) };
        let (part_bytes, each) = (bytes.div_ceil(parts), builder.each_bytes());
        let mut part = std::mem::take(&mut self.part);
        let mut done = Ok(());
        let (mut from, mut key) = (0, low);
        while from < cuts.len() && done.is_ok() {
            let (mut to, mut sum, mut parts_follow) = (from, 0, false);
            while to < cuts.len() {
                let cut = &cuts[to];
                let other = to > from && cut.key != cuts[to - 1].key;
                if other && (parts_follow || sum + cut.bytes as usize > part_bytes) {
                    break;
                }
                parts_follow |= cut.has_parts;
                sum += cut.bytes as usize + each;
                to += 1;
            }
            cuts[from..to].sort_unstable_by_key(|cut| cut.i);
            let next = cuts.get(to).map(|cut| cut.key);
            part.start(leaf.kind());
            part.make_roomy();
            for cut in &cuts[from..to] {
                part.push(&leaf, cut.i as usize, cut.at as usize..(cut.at + cut.bytes) as usize);
            }
            done = self.write_leaf(cx, &part, key);
            (from, key) = (to, next.unwrap_or(0));
        }
        self.part = part;
        self.cuts = cuts;
        done
    }

    pub(super) fn write_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &Builder,
        key: u64,
    ) -> Result<(), Declined> {
        let bytes = builder.bytes()?;
        // Of a stream a part of a value that has the leaf for itself has pins, as parts of other strings have.
        let is_part = builder.is_lone_part();
        let node_bytes = if is_part { part_node_bytes(bytes) } else { NODE_BYTES + bytes };
        if node_bytes > CHUNK_BYTES_MAX {
            return Err(Declined::TooLarge);
        }
        let chunk = self.allocate(cx, 0, node_bytes)?;
        let arena = &cx.store.arena;
        // SAFETY: the chunk is this worker's, and has room for the leaf behind its first words, and for the pins of a part.
        let place = unsafe {
            if is_part {
                begin_part(arena, chunk);
            }
            node_word(arena, chunk, 8).store(key, Ordering::Relaxed);
            std::slice::from_raw_parts_mut(arena.at(chunk).add(NODE_BYTES).as_ptr(), bytes)
        };
        builder.write(place);
        if cfg!(debug_assertions) {
            Leaf::of(place).check_form(&|name| cx.store.tag_of(name));
        }
        let soonest = word_of_time(builder.soonest());
        self.news.push(Child { key, word: word(builder.leaf().len() as u64, chunk), soonest });
        Ok(())
    }

    /// Puts [`Edit::news`] in the place of some children of the inner node of a path at a depth, and so on up to the top.
    pub(super) fn climb(
        &mut self,
        cx: &mut EditContext<'_>,
        path: &Path,
        depth: usize,
        mut range: Range<usize>,
    ) -> Result<(), Declined> {
        let height = self.height;
        if range.len() == 1 && self.put_only(cx.store, &path.steps[..=depth], range.start) {
            return Ok(());
        }
        // The first child below has another key than it had, which says something.
        let mut raised = false;
        for depth in (0..=depth).rev() {
            let arena = &cx.store.arena;
            let location = path.steps[depth].0;
            // SAFETY: an inner node of this edit, or of a tree that is as it was, as all below.
            let inner = unsafe { Inner::at(arena, location) };
            raised = self.leads_back && range.start == 0 && (raised || self.news.is_empty());
            let low = path.low(arena, depth, 0);
            let mut row = std::mem::take(&mut self.row);
            row.clear();
            row.extend(children_of(arena, location, &inner, 0..range.start));
            row.append(&mut self.news);
            row.extend(children_of(arena, location, &inner, range.end..inner.len()));
            if let Some(first) = row.first_mut()
                && !raised
            {
                first.key = low;
            }
            self.drop_node(cx, location);
            range = if depth == 0 { 0..0 } else { path.steps[depth - 1].1..path.steps[depth - 1].1 + 1 };
            if depth > 0 && !row.is_empty() && row.len() < CHILDREN_FEW {
                self.join(cx, (path, depth - 1), (&mut row, raised), &mut range);
            }
            self.row = row;
            self.write_row(cx, height - depth)?;
            // One that is raised has another least key than the node above says.
            let is_alone = depth > 0 && !raised && range.len() == 1;
            if is_alone && self.put_only(cx.store, &path.steps[..depth], range.start) {
                return Ok(());
            }
        }
        if self.news.is_empty() {
            debug_assert_eq!(self.elements, 0);
            (self.top, self.height) = (0, 0);
            return Ok(());
        }
        self.write_top(cx, height)?;
        // A top with one child gives way to it.
        while self.height > 1 {
            // SAFETY: as above.
            let inner = unsafe { Inner::at(&cx.store.arena, self.top) };
            if inner.len() > 1 {
                break;
            }
            let (old, only) = (self.top, inner.location(0));
            self.top = only;
            self.height -= 1;
            self.drop_node(cx, old);
        }
        Ok(())
    }

    /// A node is this edit's, and no other thread sees it.
    pub(super) fn is_fresh(&self, store: &Store, location: u64) -> bool {
        // SAFETY: a node of this edit, or of a tree that is as it was.
        let header = unsafe { header_of(&store.arena, location) };
        // One of the tree that was moved a moment ago says so in its header, too: it is not found here.
        !header.is_node() && self.fresh.get(header.node_number() as usize) == Some(&location)
    }

    /// Puts the only node of [`Edit::news`] in the place of child `i` of the last node of a way from the top. Nothing is done
    /// unless there is one only, and all nodes of the way are this edit's and have room for its time. Whether it was done.
    fn put_only(&mut self, store: &Store, way: &[(u64, usize)], i: usize) -> bool {
        let ([new], Some((&(parent, _), above))) = (&self.news[..], way.split_last()) else { return false };
        let new = *new;
        let has_room = |&(location, _): &(u64, usize)| {
            self.is_fresh(store, location) && says_time(store, location, new.soonest)
        };
        if !way.iter().all(has_room) {
            return false;
        }
        self.news.clear();
        self.put_in_place(store, above, (parent, i), new);
        true
    }

    /// Puts a node in the place of a child of a node, which has the same least key: no node above it is made anew.
    /// `above`: the way to that node. All of them are this edit's.
    fn put_in_place(&mut self, store: &Store, above: &[(u64, usize)], (parent, i): (u64, usize), new: Child) {
        // SAFETY: inner nodes of this edit, which no other thread sees; so below.
        let named = &unsafe { Inner::at(&store.arena, parent) }.words[i];
        let (old, now) = (elements_of(named.load(Ordering::Relaxed)), elements_of(new.word));
        named.store(new.word, Ordering::Relaxed);
        put_time(store, (parent, i), new.soonest);
        let mut below = parent;
        for (location, i) in above.iter().rev() {
            put_time(store, (*location, *i), soonest_below(store, below));
            below = *location;
        }
        for (location, i) in above {
            // SAFETY: as above.
            let named = &unsafe { Inner::at(&store.arena, *location) }.words[*i];
            let there = named.load(Ordering::Relaxed);
            let elements = (elements_of(there) + now - old) as u64;
            named.store(word(elements, location_of(there)), Ordering::Relaxed);
        }
    }

    /// Adds the children of a neighbour under the same parent to a row that has few.
    fn join(
        &mut self,
        cx: &mut EditContext<'_>,
        (path, depth): (&Path, usize),
        (row, raised): (&mut Vec<Child>, bool),
        range: &mut Range<usize>,
    ) {
        let arena = &cx.store.arena;
        // SAFETY: inner nodes of this edit, or of a tree that is as it was.
        let above = unsafe { Inner::at(arena, path.steps[depth].0) };
        let i = range.start;
        for j in [i + 1, i.wrapping_sub(1)].into_iter().filter(|j| *j < above.len()) {
            let location = above.location(j);
            // SAFETY: as above.
            let inner = unsafe { Inner::at(arena, location) };
            if row.len() + inner.len() > CHILDREN_JOINED {
                continue;
            }
            let children = children_of(arena, location, &inner, 0..inner.len());
            let at = if j < i { 0 } else { row.len() };
            row.splice(at..at, children);
            // Of its first child a node says nothing.
            let second = if j < i { inner.len() } else { at };
            if j > i || !raised {
                row[second].key = above.keys[i.max(j)];
            }
            if j < i || !raised {
                row[0].key = path.low(arena, depth, i.min(j));
            }
            *range = i.min(j)..i.max(j) + 1;
            self.drop_node(cx, location);
            return;
        }
    }

    /// Makes inner nodes of [`Edit::row`]: they are [`Edit::news`] then.
    fn write_row(&mut self, cx: &mut EditContext<'_>, level: usize) -> Result<(), Declined> {
        debug_assert!(self.news.is_empty());
        let row = std::mem::take(&mut self.row);
        let parts = row.len().div_ceil(CHILDREN_MAX).max(1);
        let even = row.len().div_ceil(parts).max(1);
        // As leaves of a list: full ones, but for the one at the end where it grows.
        let (first, each) = match self.growth {
            Growth::Within => (even.min(row.len()), even),
            Growth::Back => (CHILDREN_MAX.min(row.len()), CHILDREN_MAX),
            Growth::Front => (row.len() - (parts - 1) * CHILDREN_MAX, CHILDREN_MAX),
        };
        let (first, rest) = row.split_at(first);
        let mut done = Ok(());
        for children in
            std::iter::once(first).chain(rest.chunks(each)).filter(|children| !children.is_empty())
        {
            done = self.write_inner(cx, level, children);
            if done.is_err() {
                break;
            }
        }
        self.row = row;
        done
    }

    pub(super) fn write_inner(
        &mut self,
        cx: &mut EditContext<'_>,
        level: usize,
        children: &[Child],
    ) -> Result<(), Declined> {
        let n = children.len();
        let soonest = children.iter().fold(NEVER, |soonest, child| soonest.min(child.soonest));
        let timed = soonest != NEVER;
        let chunk = self.allocate(cx, level, INNER_BYTES + if timed { 24 } else { 16 } * n)?;
        let arena = &cx.store.arena;
        let elements: usize = children.iter().map(|child| elements_of(child.word)).sum();
        // SAFETY: the chunk is this worker's, and has room for so many keys and words behind its first words.
        unsafe {
            node_word(arena, chunk, 8).store(children[0].key, Ordering::Relaxed);
            let count = n as u64 | if timed { TIMES } else { 0 };
            node_word(arena, chunk, NODE_BYTES).store(count, Ordering::Relaxed);
            let keys = arena.at(chunk).add(INNER_BYTES).cast::<u64>();
            let words = keys.add(n);
            for (i, child) in children.iter().enumerate() {
                keys.add(i).write(child.key);
                words.add(i).cast::<AtomicU64>().as_ref().store(child.word, Ordering::Relaxed);
            }
            if timed {
                let times = words.add(n).cast::<AtomicU64>();
                for (i, child) in children.iter().enumerate() {
                    times.add(i).as_ref().store(child.soonest, Ordering::Relaxed);
                }
            }
        }
        self.news.push(Child { key: children[0].key, word: word(elements as u64, chunk), soonest });
        Ok(())
    }

    /// Makes one node of [`Edit::news`], which are of the level `height`, or leaves if there is no tree yet: the top.
    pub(super) fn write_top(&mut self, cx: &mut EditContext<'_>, height: usize) -> Result<(), Declined> {
        let mut height = height;
        // Leaves always have a node above them.
        let leaves = self.height == 0;
        if leaves {
            height = 0;
        }
        while self.news.len() > 1 || height == 0 {
            height += 1;
            if height == HEIGHT_MAX {
                return Err(Declined::TooLarge);
            }
            self.row.clear();
            self.row.append(&mut self.news);
            self.write_row(cx, height)?;
        }
        let top = self.news.pop().expect("there is one");
        (self.top, self.height) = (location_of(top.word), height);
        Ok(())
    }

    /// Loads what is left into `builder`, if it is so little that it lies in the item again. What is due goes with what has gone
    /// already, unless that is all: the last field goes with the command that takes it out, and reports the key as gone.
    pub(in crate::collection) fn load_last(
        &mut self,
        store: &Store,
        local: &Local,
        builder: &mut Builder,
    ) -> bool {
        let Some(leaf) = self.last_leaf(store) else { return false };
        builder.load(&leaf);
        let gone = builder.drop_expired(self.cutoff_now(local)) as u64;
        if builder.is_empty() {
            return false;
        }
        self.elements -= gone;
        self.expired += gone;
        true
    }

    /// What is left, if it is so little that it lies in the item again.
    pub(in crate::collection) fn last_leaf<'g>(&self, store: &Store) -> Option<Leaf<'g>> {
        if self.height != 1 {
            return None;
        }
        // SAFETY: nodes of this edit, or of a tree that is as it was; no caller keeps it beyond the next allocation.
        let inner = unsafe { Inner::at(&store.arena, self.top) };
        if inner.len() > 1 {
            return None;
        }
        // SAFETY: as above.
        let leaf: Leaf<'g> = unsafe { leaf_at(&store.arena, inner.location(0)) };
        // What lies apart of a sorted set is in the other tree.
        (leaf.whole_bytes() <= super::ITEM_LEAF_BYTES / 2 && !leaf.names_apart()).then_some(leaf)
    }

    /// Bytes of all nodes by now.
    pub(in crate::collection) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the heap that it takes and that grow with it.
    pub(in crate::collection) fn heap_bytes(&self) -> usize {
        self.fresh.capacity() * size_of::<u64>()
    }

    /// What it comes to takes the place of no tree, but has its nodes.
    pub(in crate::collection) fn leave_base(&mut self) {
        self.base = None;
    }

    /// The number of the tree.
    pub(in crate::collection) fn number(&self) -> u32 {
        self.number
    }

    /// The condition of what the edit comes to.
    pub(in crate::collection) fn base(&self) -> Option<Seen> {
        self.base
    }

    /// The leftmost leaf says so.
    fn mark_first(&self, store: &Store) {
        let mut location = self.top;
        for _ in 0..self.height {
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            location = unsafe { Inner::at(&store.arena, location) }.location(0);
        }
        // SAFETY: as above, a leaf. If it was replaced meanwhile, this edit is not published.
        let leaf = unsafe { RawItem::new(store.arena.at(location)) };
        leaf.header_word().fetch_or(Header::FIRST_LEAF, Ordering::Relaxed);
    }

    /// The new nodes, but so many at most, are the tree's from here on, as sweeps see them, which find no key that has the
    /// tree until it is published; true if all are. No more are made then.
    pub(in crate::collection) fn show(&mut self, store: &Store, nodes_max: usize) -> bool {
        let shown = self.fresh.len().min(self.shown.saturating_add(nodes_max));
        for &chunk in &self.fresh[self.shown..shown] {
            // SAFETY: a node of this edit.
            let node = unsafe { RawItem::new(store.arena.at(chunk)) };
            let header = node.header().with_piece_owner(u64::from(self.number)).shown_node();
            // Release: a sweep that sees a node sees what is in it.
            node.header_word().store(header.0, Ordering::Release);
        }
        self.shown = shown;
        shown == self.fresh.len()
    }

    /// Sweeps may look at some of its nodes.
    pub(in crate::collection) fn is_shown(&self) -> bool {
        self.shown > 0
    }

    /// Some parts that the tree has had are another edit's when this one is published.
    pub(in crate::collection) fn spares(&self) -> bool {
        !self.spared.is_empty()
    }

    /// What another edit gets is none of the nodes that go. Sweeps find that it is no node, before the number of the tree may be
    /// another's.
    fn leave_spared(&mut self, store: &Store) {
        if !self.spares() {
            return;
        }
        let spared = std::mem::take(&mut self.spared);
        for part in &spared {
            // SAFETY: a node that was the tree's until now.
            let node = unsafe { RawItem::new(store.arena.at(*part)) };
            node.header_word().store(node.header().moved_piece().0, Ordering::Release);
        }
        self.gone.retain(|node| spared.binary_search(node).is_err());
    }

    /// Retires nodes that sweeps may have seen.
    fn retire(store: &Store, local: &mut Local, chunks: &mut Vec<u64>) {
        if chunks.len() > CHUNKS_UNCOUNTED {
            local.beside_ns += chunks.len() as u64 * CHUNK_NS;
        }
        for chunk in chunks.drain(..) {
            local.retire_node(store, chunk);
        }
        chunks.shrink_to(NODES_KEPT);
    }
}

impl Guard<'_> {
    /// Publishes a tree. If it is refused, everything was given back.
    pub(in crate::collection) fn publish_tree(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        edit: &mut Edit,
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        let store = self.store;
        let epoch = store.epochs.announced(self.local.id);
        // With all words that an item may have: a change of them copies nothing.
        let shape = Shape::of_leaf(key.bytes.len(), ROOT_BYTES, true, true);
        let soonest = if kind == Type::Hash { edit.soonest(store) } else { 0 };
        let cutoff = edit.cutoff_now(&*self.local);
        let mut draft = match self.draft_marked(key, &shape, attributes, attributes.marks()) {
            Ok(draft) => Draft { form: kind.form_of_tree(), ..draft }.timed(soonest),
            Err(refusal) => {
                edit.give_up(store, self.local);
                return Err(refusal);
            }
        };
        let cx = EditContext { store, local: &mut *self.local, key };
        if store.epochs.announced(cx.local.id) != epoch && !edit.still_holds(&cx) {
            self.local.give_back(store, draft.chunk);
            edit.give_up(store, self.local);
            return Err(Refusal::Changed);
        }
        let root = Root {
            number: edit.number,
            height: edit.height as u8,
            members_height: edit.beside.0 as u8,
            apart: if kind == Type::List { 0 } else { apart_units(edit.apart, edit.bytes) },
            elements: edit.elements,
            bytes: edit.bytes,
            top: AtomicU64::new(edit.top),
            moves: AtomicU64::new(1),
            state: AtomicU64::new(0),
            beside: AtomicU64::new(match kind {
                Type::Hash if soonest == LONG_AGO => SHORTENED | cutoff,
                Type::Hash if soonest != 0 && soonest <= cutoff => BEGUN | cutoff,
                Type::Hash => soonest,
                Type::List => edit.apart,
                Type::Set | Type::SortedSet | Type::Stream => edit.beside.1,
            }),
        };
        // SAFETY: the draft has room for a root, aligned to 8.
        unsafe { self.draft_leaf(&mut draft, &shape, ROOT_BYTES).as_mut_ptr().cast::<Root>().write(root) };
        if edit.unmarked {
            edit.mark_first(store);
        }
        edit.show(store, usize::MAX);
        // Neither the one that this one follows nor this one, if it is refused, takes nodes with it.
        self.local.leaving = [edit.base.map_or(0, |seen| seen.location), draft.chunk];
        let relabels = !edit.relabeled.is_empty();
        if relabels {
            prefetch_labels(&store.arena, &edit.relabeled);
            std::mem::swap(&mut self.local.relabeled, &mut edit.relabeled);
        }
        let done = self.publish_draft(key, draft, Token::Next(None), expect);
        if relabels {
            std::mem::swap(&mut self.local.relabeled, &mut edit.relabeled);
            edit.relabeled.clear();
            edit.relabeled.shrink_to(NODES_KEPT);
        }
        self.local.leaving = [0; 2];
        match done {
            Ok(stored) => {
                edit.fresh.clear();
                edit.fresh.shrink_to(NODES_KEPT);
                edit.adopted = Vec::new();
                (edit.numbered, edit.shown) = (false, 0);
                edit.leave_spared(store);
                Edit::retire(store, self.local, &mut edit.gone);
                Ok(stored)
            }
            Err(Unpublished::NeedsExtension) => unreachable!("a root has an extension"),
            Err(Unpublished::Refused(refusal)) => {
                edit.leave_adopted(store);
                if edit.fresh.len() > NODES_KEPT {
                    edit.abandon(store);
                }
                edit.shown = 0;
                Edit::retire(store, self.local, &mut edit.fresh);
                if std::mem::take(&mut edit.numbered) {
                    store.trees.give(edit.number);
                }
                Err(refusal)
            }
        }
    }
}
