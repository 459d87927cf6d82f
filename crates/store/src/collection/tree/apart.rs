//! Elements of a list that are too long for a leaf: they lie *apart*, in leaves of their own. So do members of sets and of
//! sorted sets and values of fields (`strings.rs`).
//!
//! ```text
//! … leaf │ its own leaf: bytes, label │ part │ part │ … │ part │ leaf …
//!          one element                  no elements             in the order of the tree, with labels, as any leaf
//! ```
//!
//! All of them are leaves of the tree, which are moved, copied, counted and taken apart as others are. What is different:
//!
//! 1. Nothing else is in any of them: they are not joined to a neighbour, and not cut.
//! 2. They are made together, and go together. Nothing is put between them: places count elements, and a part has none.
//! 3. The leaf of the element says its label, too: it is where a reader begins that has the element alone. One that gets
//!    another label says that ([`say_label`]).
//! 4. An element that was received has its parts where they will lie already: each is made a leaf there, and nothing of it is
//!    copied ([`Edit::adopt`]).

use super::super::build::{STRING_BYTES_MAX, is_apart};
use super::super::change::Declined;
use super::super::element::{APART, APART_LENGTH_BYTES, DIGITS_MAX, Element, LongText};
use super::super::leaf::{HEAD_BYTES, Head, Leaf};
use super::super::scores::Packing;
use super::edit::Child;
use super::labels::Labels;
use super::pinned::{PINS_BYTES, begin_part, part_node_bytes};
use super::places::{FoundLeaf, Growth};
use super::strings::parts_of;
use super::{
    ELEMENTS_MAX, Edit, EditContext, HEIGHT_MAX, Inner, NODE_BYTES, Path, Tree, elements_of, header_of,
    location_of, node_word, word,
};
use crate::Store;
use crate::arena::Arena;
use crate::class::CHUNK_BYTES_MAX;
use crate::collection::carried::Carried;
use crate::collection::{Collection, Received, Type};
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// Bytes of a part, but for the last one. Tests have small ones, and many.
pub(crate) const PART_BYTES: usize = if cfg!(any(test, feature = "schedule")) { 700 } else { PART_BYTES_MAX };
const PART_BYTES_MAX: usize = CHUNK_BYTES_MAX - NODE_BYTES - HEAD_BYTES - PINS_BYTES;
/// Bytes of a part's leaf between the header of its chunk and the part.
pub(crate) const PART_LEAD_BYTES: usize = NODE_BYTES - 8 + HEAD_BYTES;

/// Bytes of the chunk of a part that has so many of its string: with what is in front of them, and the pins behind them.
pub(crate) const fn part_chunk_bytes(bytes: usize) -> usize {
    part_node_bytes(HEAD_BYTES + bytes)
}

/// What an element may have that is copied into its parts, if memory is large enough: in one step, some 3 ms.
pub(super) const ELEMENT_BYTES_MAX: u64 = 4 << 20;

/// What one may have that is received into its parts, if memory is large enough. All parts of an element are put in, pinned or
/// taken out in one step, which takes some 0.2, 0.3 and 0.15 µs a part. The dearest step moves an element of 4,105 parts to
/// another list and pins it for the reply: some 4 ms. With 512 MiB it would take 30 ms. Tests have short parts, and fewer bytes.
pub(super) const RECEIVED_BYTES_MAX: u64 =
    if cfg!(any(test, feature = "schedule")) { 8 << 20 } else { 64 << 20 };

/// How many elements of a list lie apart, and what the longest of them has, at most: a word that lies beside its tree.
///
/// ```text
/// 63 … 32 how many │ 31 … 0 bytes of the longest that has come since there was none
/// ```
#[derive(Clone, Copy, Debug)]
struct Count(u64);

const _: () = assert!(ELEMENTS_MAX <= 1 << 32 && RECEIVED_BYTES_MAX < 1 << 32);

impl Count {
    fn all(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn longest(self) -> usize {
        self.0 as u32 as usize
    }

    /// One more, of so many bytes.
    fn with(self, bytes: usize) -> u64 {
        (self.all() as u64 + 1) << 32 | self.longest().max(bytes) as u64
    }

    /// One less. Behind the last of them it is as if there had been none.
    fn without(self) -> u64 {
        if self.all() > 1 { self.0 - (1 << 32) } else { 0 }
    }
}

/// A string that is put into a tree: an element of a list, or what lies apart of another.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewElement<'p> {
    /// Its bytes, which are copied.
    Text(&'p [u8]),
    /// One that lies apart, whose parts lie where they will be.
    Received(Received),
    /// One that has left another tree, or another place of this one, whose parts stay where they lie.
    Carried(&'p Carried),
}

impl NewElement<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            NewElement::Text(text) => text.len(),
            NewElement::Received(received) => received.bytes(),
            NewElement::Carried(carried) => carried.bytes,
        }
    }

    fn is_apart(&self) -> bool {
        match self {
            NewElement::Text(text) => is_apart(text),
            NewElement::Received(_) | NewElement::Carried(_) => true,
        }
    }

    /// It is longer than such a one may be.
    pub(super) fn is_too_long(&self, store: &Store) -> bool {
        match self {
            NewElement::Text(text) => text.len() > store.element_bytes_max(),
            NewElement::Received(received) => received.bytes() > store.received_bytes_max(),
            // What is there already goes on being there, however little memory there may be by now.
            NewElement::Carried(_) => false,
        }
    }
}

/// The head of a part's leaf.
fn head_of_part(kind: Type, entries: usize, payload_bytes: usize) -> Head {
    Head { kind, entries, payload_bytes, long: false, times: false, packing: Packing::default() }
}

/// Leaves of a string that lies apart.
fn leaves_of(bytes: usize) -> usize {
    1 + bytes.div_ceil(PART_BYTES)
}

/// Runs of leaves that a new element needs, if it is not put into one that is there, and how long the longest is: see
/// `labels.rs`.
fn runs_for(store: &Store, element: NewElement<'_>) -> Result<(usize, usize), Declined> {
    if !element.is_apart() {
        return Ok((1, 1));
    }
    if element.is_too_long(store) { Err(Declined::TooLarge) } else { Ok((2, leaves_of(element.len()) - 1)) }
}

/// Has the leaf of an element that lies apart say the label that it has got.
///
/// # Safety
/// Such a leaf is at the location, and is not published yet.
pub(super) unsafe fn say_label(arena: &Arena, location: u64, label: u64) {
    let at = NODE_BYTES + HEAD_BYTES + 1 + APART_LENGTH_BYTES;
    // SAFETY: the caller's obligation: there the payload has it.
    unsafe { arena.at(location).add(at).cast::<[u8; 8]>().write(label.to_le_bytes()) };
}

impl Edit {
    /// Makes the leaves of a new element, with labels from the n-th on: more of [`Edit::news`]. The number of the label behind
    /// them.
    fn write_element(
        &mut self,
        cx: &mut EditContext<'_>,
        element: NewElement<'_>,
        labels: &Labels,
        nth: usize,
    ) -> Result<usize, Declined> {
        let label = labels.at(nth);
        if let NewElement::Text(text) = element
            && !is_apart(text)
        {
            let mut part = std::mem::take(&mut self.part);
            part.start(Type::List);
            let pushed = part.push_one(text);
            let done = pushed.map_err(Declined::from).and_then(|()| self.write_leaf(cx, &part, label));
            self.part = part;
            return done.map(|()| nth + 1);
        }
        self.apart = Count(self.apart).with(element.len());
        let reference = LongText::packed(element.len(), label);
        self.write_part(cx, (Type::List, label), 1, [&[APART], &reference])?;
        self.write_all_parts(cx, (Type::List, labels.at(nth + 1)), element)?;
        Ok(nth + 2)
    }

    /// Makes the leaves of all parts of a string, with keys from this one on: more of [`Edit::news`].
    pub(super) fn write_all_parts(
        &mut self,
        cx: &mut EditContext<'_>,
        (kind, first): (Type, u64),
        text: NewElement<'_>,
    ) -> Result<(), Declined> {
        let keys = first..;
        match text {
            NewElement::Text(text) => {
                for (key, part) in keys.zip(text.chunks(PART_BYTES)) {
                    self.write_part(cx, (kind, key), 0, [part, &[]])?;
                }
            }
            NewElement::Received(mut received) => {
                for key in keys {
                    let Some(piece) = received.next_piece(cx.store) else { break };
                    self.adopt_part(cx.store, (kind, key), piece);
                }
            }
            NewElement::Carried(carried) => {
                for (key, &part) in keys.zip(&carried.parts) {
                    self.adopt_carried(cx.store, key, part);
                }
            }
        }
        Ok(())
    }

    /// Makes a part that is of no tree a leaf of this one, where it lies: one more of [`Edit::news`]. Readers of the tree that
    /// had it and threads that have it pinned may be at it: nothing but its header and its key changes.
    fn adopt_carried(&mut self, store: &Store, key: u64, part: u64) {
        self.adopt(store, part);
        // SAFETY: a part, which this edit was given: no other thread writes to it but to its pins.
        unsafe { node_word(&store.arena, part, 8) }.store(key, Ordering::Relaxed);
        self.news.push(Child::without_times(key, word(0, part)));
    }

    /// Makes a leaf of a part that was received, with so many bytes, in the piece where it lies: one more of [`Edit::news`].
    fn adopt_part(&mut self, store: &Store, (kind, key): (Type, u64), (piece, bytes): (u64, usize)) {
        let arena = &store.arena;
        let head = head_of_part(kind, 0, bytes);
        self.adopt(store, piece);
        // SAFETY: a piece of an upload that this edit was given: no other thread has it. It has the bytes of a part: room for the
        // key and the head between its header and the part, and for the pins behind it.
        unsafe {
            begin_part(arena, piece);
            node_word(arena, piece, 8).store(key, Ordering::Relaxed);
            arena.at(piece).add(NODE_BYTES).cast::<[u8; HEAD_BYTES]>().write(head.write());
        }
        self.news.push(Child::without_times(key, word(0, piece)));
    }

    /// Makes a leaf of bytes as they are: one more of [`Edit::news`]. One without entries is a part.
    pub(super) fn write_part(
        &mut self,
        cx: &mut EditContext<'_>,
        (kind, key): (Type, u64),
        entries: usize,
        [front, back]: [&[u8]; 2],
    ) -> Result<(), Declined> {
        let bytes = front.len() + back.len();
        // Each entry has a code.
        let head = head_of_part(kind, entries, bytes - entries);
        let bytes = HEAD_BYTES + bytes;
        let is_part = entries == 0;
        let node_bytes = if is_part { part_node_bytes(bytes) } else { NODE_BYTES + bytes };
        let chunk = self.allocate(cx, 0, node_bytes)?;
        let arena = &cx.store.arena;
        // SAFETY: the chunk is this worker's, and has room for so much behind its first words, and for the pins of a part.
        let place = unsafe {
            if is_part {
                begin_part(arena, chunk);
            }
            node_word(arena, chunk, 8).store(key, Ordering::Relaxed);
            std::slice::from_raw_parts_mut(arena.at(chunk).add(NODE_BYTES).as_ptr(), bytes)
        };
        let (first, rest) = place.split_at_mut(HEAD_BYTES);
        first.copy_from_slice(&head.write());
        rest[..front.len()].copy_from_slice(front);
        rest[front.len()..].copy_from_slice(back);
        self.news.push(Child::without_times(key, word(entries as u64, chunk)));
        Ok(())
    }

    /// Puts the first element into a list that has none.
    pub(super) fn insert_first(
        &mut self,
        cx: &mut EditContext<'_>,
        element: NewElement<'_>,
    ) -> Result<(), Declined> {
        debug_assert!(self.height == 0 && self.news.is_empty());
        let (runs, longest) = runs_for(cx.store, element)?;
        let labels = Labels::between(0, None, runs, longest as u64).ok_or(Declined::TooLarge)?;
        self.write_element(cx, element, &labels, 0)?;
        self.elements = 1;
        self.unmarked = true;
        self.write_top(cx, 1)
    }

    /// Puts an element in front of the one at a place, which is in a leaf, or behind all, if that is the last place and it
    /// is the `end`: where it lies apart, or the leaf is that of one that does.
    pub(super) fn insert_beside(
        &mut self,
        cx: &mut EditContext<'_>,
        (at, place): (FoundLeaf, usize),
        end: bool,
        element: NewElement<'_>,
    ) -> Result<(), Declined> {
        let (runs, longest) = runs_for(cx.store, element)?;
        if self.elements + 1 >= ELEMENTS_MAX {
            return Err(Declined::TooLarge);
        }
        let before = if self.leaf(cx.store, &at.path).is_apart() { 0 } else { place - at.start };
        self.growth = match place {
            _ if end => Growth::Back,
            0 => Growth::Front,
            _ => Growth::Within,
        };
        // With what stays of the leaf, in front and behind.
        let count = runs + if end { 1 } else { 1 + usize::from(before > 0) };
        let path = if end {
            let last = self.last_path(cx.store);
            self.make_labels_at(cx, last, (count, longest), Edit::last_path)?
        } else {
            self.make_labels(cx, at, (count, longest))?
        };
        let arena = &cx.store.arena;
        let depth = self.height - 1;
        let i = path.steps[depth].1;
        let (low, high) = (path.low(arena, depth, i), path.high(arena, depth));
        let labels = Labels::between(low, high, count, longest as u64).expect("there is room for so many");
        debug_assert!(self.news.is_empty());
        let mut range = i..i + 1;
        if end {
            self.say_low(cx, &path, low)?;
            self.write_element(cx, element, &labels, 1)?;
            range.start = range.end;
        } else {
            self.unmarked |= path.is_first(self.height);
            if self.leaf(cx.store, &path).is_apart() {
                let behind = self.write_element(cx, element, &labels, 0)?;
                let moved = self.copy_leaf(cx, path.leaf, labels.at(behind))?;
                self.news.push(moved);
            } else {
                self.write_within(cx, (&path, before), element, &labels)?;
            }
            self.drop_node(cx, path.leaf);
        }
        self.elements += 1;
        self.climb(cx, &path, depth, range)
    }

    /// Has the last leaf, which stays where it lies, say the label that is its key. One that has become the first of its node
    /// has kept its own, which may be above those of what comes behind it. Those of parts are their keys.
    fn say_low(&mut self, cx: &mut EditContext<'_>, path: &Path, low: u64) -> Result<(), Declined> {
        let (parent, i) = path.steps[self.height - 1];
        // SAFETY: an inner node of this edit, or of a tree that is as it was, and a leaf below it.
        let (named, label) = unsafe {
            let label = node_word(&cx.store.arena, path.leaf, 8).load(Ordering::Relaxed);
            (Inner::at(&cx.store.arena, parent).word(i), label)
        };
        if label != low && elements_of(named) > 0 {
            // Nothing is made for it: the last leaf is none of an element that lies apart, whose parts are behind it.
            self.relabel_leaf(cx, named, low)?;
        }
        Ok(())
    }

    /// Makes leaves of what a leaf has before a place, of an element, and of what is from the place on.
    fn write_within(
        &mut self,
        cx: &mut EditContext<'_>,
        (path, i): (&Path, usize),
        element: NewElement<'_>,
        labels: &Labels,
    ) -> Result<(), Declined> {
        let mut builder = std::mem::take(&mut self.builder);
        builder.load(&self.leaf(cx.store, path));
        let done = self.write_around(cx, (&builder.leaf(), i), element, labels);
        self.builder = builder;
        done
    }

    /// The same of a leaf that is not published.
    fn write_around(
        &mut self,
        cx: &mut EditContext<'_>,
        (leaf, i): (&Leaf<'_>, usize),
        element: NewElement<'_>,
        labels: &Labels,
    ) -> Result<(), Declined> {
        let cut = leaf.offset(i);
        if i > 0 {
            self.write_some(cx, leaf, (0..i, 0..cut), labels.at(0))?;
        }
        let behind = self.write_element(cx, element, labels, usize::from(i > 0))?;
        self.write_some(cx, leaf, (i..leaf.len(), cut..leaf.payload.len()), labels.at(behind))
    }

    /// Makes a leaf of some entries of another, which lie at these bytes.
    fn write_some(
        &mut self,
        cx: &mut EditContext<'_>,
        leaf: &Leaf<'_>,
        (entries, at): (Range<usize>, Range<usize>),
        label: u64,
    ) -> Result<(), Declined> {
        let mut part = std::mem::take(&mut self.part);
        part.start(Type::List);
        part.push_run(leaf, entries, at);
        let done = self.write_leaf(cx, &part, label);
        self.part = part;
        done
    }

    /// The way to the last leaf.
    fn last_path(&self, store: &Store) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top };
        for step in &mut path.steps[..self.height] {
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            let inner = unsafe { Inner::at(&store.arena, path.leaf) };
            let i = inner.len() - 1;
            *step = (path.leaf, i);
            path.leaf = inner.location(i);
        }
        path
    }

    /// An element of this list lies apart.
    pub(super) fn has_apart(&self) -> bool {
        self.apart > 0
    }

    /// The leaf at the end of a path of a list is that of an element that lies apart, or has a part of one.
    #[inline]
    pub(super) fn is_apart_at(&self, store: &Store, path: &Path) -> bool {
        self.has_apart() && self.leaf(store, path).is_apart()
    }

    /// Bytes of the element at a place, if it lies apart.
    pub(in crate::collection) fn apart_bytes(&self, store: &Store, place: usize) -> Option<usize> {
        if !self.has_apart() {
            return None;
        }
        let leaf = self.leaf(store, &self.place_of(store, place).path);
        leaf.is_apart().then(|| leaf.entry(0).name.len())
    }

    /// The parts of the element at a place do not go with it when this edit takes it out: another edit gets them. None if it does
    /// not lie apart.
    pub(in crate::collection) fn spare_parts(&mut self, store: &Store, place: usize) -> Option<Carried> {
        let bytes = self.apart_bytes(store, place)?;
        let mut path = self.place_of(store, place).path;
        let parts: Vec<u64> = (0..parts_of(bytes))
            .map(|_| {
                let word = path.go_on(&store.arena, self.height - 1);
                location_of(word.expect("its parts lie behind it"))
            })
            .collect();
        self.spared.clone_from(&parts);
        self.spared.sort_unstable();
        Some(Carried { parts, bytes })
    }

    /// Takes an element out that lies apart, given the way to its leaf.
    pub(super) fn remove_apart(&mut self, cx: &mut EditContext<'_>, path: Path) -> Result<(), Declined> {
        let Element::Apart(apart) = self.leaf(cx.store, &path).entry(0).name else {
            unreachable!("a leaf of an element that lies apart");
        };
        self.apart = Count(self.apart).without();
        self.elements -= 1;
        self.remove_run(cx, path, leaves_of(apart.len()))
    }

    /// Takes out some leaves behind each other of one string that lies apart, given the way to the first.
    pub(super) fn remove_run(
        &mut self,
        cx: &mut EditContext<'_>,
        mut path: Path,
        mut left: usize,
    ) -> Result<(), Declined> {
        self.growth = Growth::Within;
        loop {
            let arena = &cx.store.arena;
            let depth = self.height - 1;
            let (location, i) = path.steps[depth];
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            let inner = unsafe { Inner::at(arena, location) };
            let children = i..inner.len().min(i + left);
            left -= children.len();
            // They ascend, so that the next one is found by its own whatever comes of the nodes above it.
            let mut last = path;
            last.steps[depth].1 = children.end - 1;
            let next = last.high(arena, depth);
            self.unmarked |= path.is_first(self.height);
            for child in children.clone() {
                self.drop_node(cx, inner.location(child));
            }
            self.climb(cx, &path, depth, children)?;
            if left == 0 {
                return Ok(());
            }
            path = self.path(cx.store, next.expect("its parts lie behind it"));
        }
    }
}

impl<'g> Tree<'g> {
    /// The way to the leaf with a label.
    pub(super) fn path_to(&self, label: u64) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top };
        for step in &mut path.steps[..self.height] {
            let inner = self.inner(path.leaf);
            let i = inner.child_of(label);
            *step = (path.leaf, i);
            path.leaf = inner.location(i);
        }
        path
    }

    pub(super) fn parts(&self, apart: &LongText<'_>) -> Parts<'g> {
        let tree = self.texts();
        Parts { tree, path: tree.path_to(apart.label()), left: apart.len() }
    }

    /// The tree that has parts: of a sorted set that of its members.
    pub(super) fn texts(&self) -> Tree<'g> {
        match self.kind {
            Type::SortedSet => Tree { top: self.members, height: self.members_height, ..*self },
            Type::Hash | Type::Set | Type::List | Type::Stream => *self,
        }
    }

    /// An element of it is this string.
    pub(super) fn is(&self, element: &Element<'_>, wanted: &Element<'_>) -> bool {
        match (element, wanted) {
            (Element::Apart(apart), Element::Text(text)) => self.is_text(apart, text.bytes()),
            _ => element == wanted,
        }
    }

    /// What lies apart is this string: it is compared where it lies.
    pub(super) fn is_text(&self, apart: &LongText<'_>, text: &[u8]) -> bool {
        let mut rest = text;
        apart.len() == rest.len()
            && self.parts(apart).all(|part| {
                let same = rest.starts_with(part);
                rest = &rest[part.len().min(rest.len())..];
                same
            })
    }
}

/// The bytes of an element that lies apart, part by part.
#[derive(Clone, Debug)]
pub struct Parts<'g> {
    tree: Tree<'g>,
    path: Path,
    left: usize,
}

impl<'g> Parts<'g> {
    /// The next part: where it is, and its bytes.
    pub(super) fn step(&mut self) -> Option<(u64, &'g [u8])> {
        if self.left == 0 {
            return None;
        }
        let word = self.path.go_on(&self.tree.store.arena, self.tree.height - 1);
        let location = location_of(word.expect("its parts lie behind it"));
        let part = self.tree.leaf(location).payload;
        self.left -= part.len();
        Some((location, part))
    }
}

impl<'g> Iterator for Parts<'g> {
    type Item = &'g [u8];
    fn next(&mut self) -> Option<&'g [u8]> {
        self.step().map(|(_, part)| part)
    }
}

impl<'g> Collection<'g> {
    /// The bytes of an element of this collection that lies apart, part by part; of no stream ([`crate::Stream::each_part`]).
    ///
    /// # Panics
    /// If it is another's.
    pub fn parts(&self, apart: &LongText<'_>) -> Parts<'g> {
        self.tree().expect("nothing lies apart beside one leaf").parts(apart)
    }

    /// Bytes that an element of this list, a member of this set or sorted set or a value of this hash which lies apart has, at
    /// most: the longest of those that there were since there was none, and but for a list no more than all has. 0 if none does.
    pub fn longest_apart(&self) -> usize {
        match self.tree() {
            Some(tree) if tree.kind == Type::List => Count(tree.apart).longest(),
            Some(tree) => tree.apart as usize,
            None => 0,
        }
    }

    /// Calls `read` with the bytes of an element of this collection: once, or part by part if it lies apart.
    pub fn each_part(&self, element: &Element<'_>, mut read: impl FnMut(&[u8])) {
        match element {
            Element::Apart(apart) => self.parts(apart).for_each(read),
            element => read(element.text(&mut [0; DIGITS_MAX])),
        }
    }

    /// An element of this collection is this string.
    #[inline]
    pub fn is(&self, element: &Element<'_>, wanted: &Element<'_>) -> bool {
        match (element, self.tree()) {
            (Element::Apart(_), Some(tree)) => tree.is(element, wanted),
            _ => element == wanted,
        }
    }
}

impl Store {
    /// Bytes that an element of a list, a member of a set or a value of a field may have which is copied into its parts, or all
    /// values of an entry of a stream that lie apart.
    pub fn element_bytes_max(&self) -> usize {
        (self.memory_bytes() / 2).min(ELEMENT_BYTES_MAX) as usize
    }

    /// Bytes that an element of a list or a value of a field may have which is received into its parts
    /// ([`crate::Guard::upload_element`]).
    pub fn received_bytes_max(&self) -> usize {
        (self.memory_bytes() / 2).min(RECEIVED_BYTES_MAX) as usize
    }

    /// An element of a list, or a value of a field, of so many bytes may be received into its parts
    /// ([`crate::Guard::upload_element`]): it lies apart, and has no more than it may have. A member of a set may have
    /// [`Store::element_bytes_max`] also there.
    pub fn element_is_received(&self, bytes: u64) -> bool {
        bytes > STRING_BYTES_MAX as u64 && bytes <= self.received_bytes_max() as u64
    }

    /// Checks that behind each element of a list that lies apart all its parts are, and no others anywhere.
    ///
    /// # Panics
    /// If it is not so.
    pub(super) fn check_apart(&self, tree: &Tree<'_>) {
        let count = Count(tree.apart);
        let (most, mut all) = (count.longest(), 0);
        let mut path = tree.path_to(0);
        let mut at = path.leaf;
        let mut owed = 0;
        loop {
            let leaf = tree.leaf(at);
            if leaf.len() == 0 {
                assert!((1..=owed).contains(&leaf.payload.len()), "a part of no element");
                // SAFETY: the store is at rest, and the tree names a leaf there.
                let header = unsafe { header_of(&self.arena, at) };
                assert!(header.is_part(), "a part without pins");
                owed -= leaf.payload.len();
            } else {
                assert_eq!(owed, 0, "an element without its parts");
                if let Element::Apart(apart) = leaf.entry(0).name {
                    // SAFETY: the store is at rest, and the tree names a leaf there.
                    let label = unsafe { node_word(&self.arena, at, 8).load(Ordering::Relaxed) };
                    assert_eq!(apart.label(), label, "a label that is another's");
                    owed = apart.len();
                    all += 1;
                    assert!(owed > STRING_BYTES_MAX, "what fits a leaf lies in one");
                    assert!(owed <= most, "an element that is longer than the list says");
                }
            }
            let Some(word) = path.go_on(&self.arena, tree.height - 1) else { break };
            at = location_of(word);
        }
        assert_eq!(owed, 0, "an element without its parts");
        assert_eq!((all, all > 0), (count.all(), tree.apart > 0), "how many elements lie apart");
    }
}
