//! Writing to a tree by places: a list, whose elements are found by counts, and what a sorted set has in common with it.
//!
//! A leaf that grows too long is cut into equal parts in the midst of a list. At an end, where more will follow, all leaves
//! but the last one are as full as they may be, and so are inner nodes: a list that is pushed to at one end and popped
//! from at the other has full leaves, and the way to its end is short to copy.

use super::super::build::{Builder, NewEntry, is_apart};
use super::super::change::Declined;
use super::super::element::Element;
use super::super::leaf::{BASE_BYTES, HEAD_BYTES};
use super::apart::NewElement;
use super::edit::LEAF_BYTES_JOINED;
use super::labels::Labels;
use super::{
    ELEMENTS_MAX, Edit, EditContext, HEIGHT_MAX, Inner, LEAF_BYTES, Path, Tree, elements_of, leaf_at,
    location_of,
};
use crate::arena::Arena;
use crate::collection::carried::Carried;
use crate::collection::{Received, Type};
use crate::{End, Store};
use std::iter::Peekable;
use std::ops::Range;

/// Nodes that a removal takes out at once, about: some 0.3 ms.
const NODES_AT_ONCE: usize = 2 << 10;

/// Where more elements will follow those that are put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collection) enum Growth {
    /// Nowhere more than elsewhere.
    #[default]
    Within,
    /// In front of them.
    Front,
    /// Behind them.
    Back,
}

impl From<End> for Growth {
    fn from(end: End) -> Growth {
        match end {
            End::Front => Growth::Front,
            End::Back => Growth::Back,
        }
    }
}

/// A leaf that was found by the position of an element: the way to it, and the position of its first element.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundLeaf {
    pub(super) path: Path,
    pub(super) start: usize,
}

/// Where a part of a leaf that is cut ends: entries, and bytes of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartEnd {
    entries: u32,
    bytes: u32,
}

impl PartEnd {
    /// Bytes up to there, with what each entry takes beside its string.
    fn loose_bytes(self, arrays: usize) -> usize {
        self.bytes as usize + self.entries as usize * arrays
    }
}

/// Where the parts of a leaf end, each of which is no longer than a leaf of a tree may be, or one entry.
fn cut(builder: &Builder, growth: Growth, ends: &mut Vec<PartEnd>) {
    ends.clear();
    let (leaf, arrays, mut at) = (builder.leaf(), builder.each_bytes(), 0);
    for i in 0..leaf.len() {
        at += leaf.entry_bytes(i, at);
        ends.push(PartEnd { entries: i as u32 + 1, bytes: at as u32 });
    }
    let last = ends.len() - 1;
    let all = ends[last].loose_bytes(arrays);
    let most = match growth {
        Growth::Within => all.div_ceil(all.div_ceil(LEAF_BYTES_JOINED).max(2)),
        Growth::Front | Growth::Back => {
            LEAF_BYTES - HEAD_BYTES - if leaf.kind() == Type::SortedSet { BASE_BYTES } else { 0 }
        }
    };
    if growth == Growth::Front {
        // From the back on, so that the first part is the rest.
        let (mut part_end, mut kept) = (all, last);
        for i in (0..last).rev() {
            let start = i.checked_sub(1).map_or(0, |before| ends[before].loose_bytes(arrays));
            if part_end - start > most {
                part_end = ends[i].loose_bytes(arrays);
                kept -= 1;
                ends[kept] = ends[i];
            }
        }
        ends.drain(..kept);
        return;
    }
    let (mut part_start, mut kept) = (0, 0);
    for i in 1..=last {
        if ends[i].loose_bytes(arrays) - part_start > most {
            part_start = ends[i - 1].loose_bytes(arrays);
            ends[kept] = ends[i - 1];
            kept += 1;
        }
    }
    ends[kept] = ends[last];
    ends.truncate(kept + 1);
}

impl Path {
    /// The least key behind the child that the step at a depth goes on with; none if that is the last of all.
    pub(super) fn high(&self, arena: &Arena, depth: usize) -> Option<u64> {
        self.steps[..=depth].iter().rev().find_map(|&(location, i)| {
            // SAFETY: an inner node of the tree or edit that the path is of.
            unsafe { Inner::at(arena, location) }.keys.get(i + 1).copied()
        })
    }
}

impl Edit {
    /// What it has come to, to be read before anything else is allocated.
    pub(in crate::collection) fn tree<'g>(&self, store: &'g Store, kind: Type) -> Tree<'g> {
        let (len, bytes) = (self.elements as usize, self.bytes as usize);
        let ((members_height, members), apart) = (self.beside, self.apart);
        debug_assert!(!self.in_members);
        let soonest = if kind == Type::Hash { self.soonest(store) } else { 0 };
        Tree {
            store,
            kind,
            top: self.top,
            height: self.height,
            len,
            bytes,
            members,
            members_height,
            apart,
            soonest,
            cutoff: self.cutoff,
        }
    }

    /// The leaf with the element at a place below [`Edit::elements`].
    pub(super) fn place_of(&self, store: &Store, place: usize) -> FoundLeaf {
        let (mut path, mut start) = (Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top }, 0);
        for step in &mut path.steps[..self.height] {
            // SAFETY: an inner node of this edit, or of a tree that is as it was.
            let inner = unsafe { Inner::at(&store.arena, path.leaf) };
            let (mut i, mut word) = (0, inner.word(0));
            while start + elements_of(word) <= place {
                start += elements_of(word);
                i += 1;
                word = inner.word(i);
            }
            *step = (path.leaf, i);
            path.leaf = location_of(word);
        }
        FoundLeaf { path, start }
    }

    /// Changes a copy of the leaf with a place, given where that is in it, and puts it in the place of the leaf.
    fn change_leaf<R>(
        &mut self,
        cx: &mut EditContext<'_>,
        place: usize,
        growth: Growth,
        change: impl FnOnce(&mut Builder, usize) -> Result<R, Declined>,
    ) -> Result<R, Declined> {
        let at = self.place_of(cx.store, place);
        self.change_leaf_at(cx, (at, place), growth, change)
    }

    /// The same, given where the place is.
    fn change_leaf_at<R>(
        &mut self,
        cx: &mut EditContext<'_>,
        (at, place): (FoundLeaf, usize),
        growth: Growth,
        change: impl FnOnce(&mut Builder, usize) -> Result<R, Declined>,
    ) -> Result<R, Declined> {
        let mut builder = std::mem::take(&mut self.builder);
        builder.load(&self.leaf(cx.store, &at.path));
        builder.make_roomy();
        let before = builder.leaf().len() as u64;
        let changed = change(&mut builder, place - at.start);
        self.elements = self.elements - before + builder.leaf().len() as u64;
        self.growth = growth;
        let done = match changed {
            Err(declined) => Err(declined),
            Ok(_) if self.elements >= ELEMENTS_MAX => Err(Declined::TooLarge),
            Ok(answer) => self.store_run(cx, at, &mut builder).map(|()| answer),
        };
        self.builder = builder;
        done
    }

    /// Changes a copy of the last leaf, behind which more will come, and puts it in the place of the leaf.
    pub(super) fn change_last(
        &mut self,
        cx: &mut EditContext<'_>,
        change: impl FnOnce(&mut Builder) -> Result<(), Declined>,
    ) -> Result<(), Declined> {
        let last = self.elements as usize - 1;
        self.change_leaf(cx, last, Growth::Back, |builder, _| change(builder))
    }

    /// The same of the first leaf, before which more will come.
    pub(super) fn change_first(
        &mut self,
        cx: &mut EditContext<'_>,
        change: impl FnOnce(&mut Builder) -> Result<(), Declined>,
    ) -> Result<(), Declined> {
        self.change_leaf(cx, 0, Growth::Front, |builder, _| change(builder))
    }

    /// Puts what is in `builder` in the place of a leaf. One that is cut needs labels before anything is taken out.
    fn store_run(
        &mut self,
        cx: &mut EditContext<'_>,
        at: FoundLeaf,
        builder: &mut Builder,
    ) -> Result<(), Declined> {
        let mut path = at.path;
        let leaf = builder.leaf();
        if leaf.kind() == Type::List && builder.loose_bytes() > LEAF_BYTES && leaf.len() > 1 {
            let mut ends = std::mem::take(&mut self.ends);
            cut(builder, self.growth, &mut ends);
            let parts = ends.len();
            self.ends = ends;
            path = self.make_labels(cx, at, (parts, 1))?;
        }
        self.store_leaf(cx, &path, builder)
    }

    /// Makes leaves of what is in `builder`, elements of a list with labels from `low` on, which are below `high`, or members
    /// of a sorted set: they are [`Edit::news`] then.
    pub(super) fn write_run(
        &mut self,
        cx: &mut EditContext<'_>,
        builder: &Builder,
        low: u64,
        high: Option<u64>,
    ) -> Result<(), Declined> {
        let leaf = builder.leaf();
        let (mut ends, mut part) = (std::mem::take(&mut self.ends), std::mem::take(&mut self.part));
        cut(builder, self.growth, &mut ends);
        let labels = (leaf.kind() == Type::List)
            .then(|| Labels::between(low, high, ends.len(), 1).expect("there is room for so many"));
        let mut done = Ok(());
        let (mut from, mut at) = (0, 0);
        for (i, end) in ends.iter().enumerate() {
            let (to, end) = (end.entries as usize, end.bytes as usize);
            part.start(leaf.kind());
            part.push_run(&leaf, from..to, at..end);
            let key = match &labels {
                Some(labels) => labels.at(i),
                None if i == 0 => low,
                None => leaf.word(from),
            };
            (from, at) = (to, end);
            done = self.write_leaf(cx, &part, key);
            if done.is_err() {
                break;
            }
        }
        (self.ends, self.part) = (ends, part);
        done
    }

    /// Puts elements to an end of a list, one after the other.
    pub(in crate::collection) fn push<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        end: End,
        elements: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    ) -> Result<(), Declined> {
        while let Some(&next) = elements.peek() {
            if is_apart(next) || self.elements == 0 {
                let place = if end == End::Front { 0 } else { self.elements as usize };
                self.insert_at(cx, place, next)?;
                elements.next();
                continue;
            }
            let place = if end == End::Front { 0 } else { self.elements as usize - 1 };
            let at = self.place_of(cx.store, place);
            if self.is_apart_at(cx.store, &at.path) {
                self.insert_beside(cx, (at, place), end == End::Back, NewElement::Text(next))?;
                elements.next();
                continue;
            }
            self.change_leaf_at(cx, (at, place), end.into(), |builder, _| {
                if builder.push_some(end, elements) == 0 { Err(Declined::TooLarge) } else { Ok(()) }
            })?;
        }
        Ok(())
    }

    /// Puts an element that was received to an end of a list.
    pub(in crate::collection) fn push_received(
        &mut self,
        cx: &mut EditContext<'_>,
        end: End,
        received: Received,
    ) -> Result<(), Declined> {
        self.push_new(cx, end, NewElement::Received(received))
    }

    /// Puts an element that has left its list to an end of this one.
    pub(in crate::collection) fn push_carried(
        &mut self,
        cx: &mut EditContext<'_>,
        end: End,
        carried: &Carried,
    ) -> Result<(), Declined> {
        self.push_new(cx, end, NewElement::Carried(carried))
    }

    /// Puts an element that lies apart to an end of a list.
    fn push_new(
        &mut self,
        cx: &mut EditContext<'_>,
        end: End,
        element: NewElement<'_>,
    ) -> Result<(), Declined> {
        self.growth = end.into();
        let Some(last) = (self.elements as usize).checked_sub(1) else {
            return self.insert_first(cx, element);
        };
        let place = if end == End::Front { 0 } else { last };
        let at = self.place_of(cx.store, place);
        self.insert_beside(cx, (at, place), end == End::Back, element)
    }

    /// Puts an element in front of the one at a place, or behind all.
    pub(in crate::collection) fn insert_at(
        &mut self,
        cx: &mut EditContext<'_>,
        place: usize,
        element: &[u8],
    ) -> Result<(), Declined> {
        self.insert_new(cx, place, NewElement::Text(element))
    }

    /// The same of an element wherever it is.
    fn insert_new(
        &mut self,
        cx: &mut EditContext<'_>,
        place: usize,
        element: NewElement<'_>,
    ) -> Result<(), Declined> {
        let end = place == self.elements as usize;
        let growth = match place {
            0 => Growth::Front,
            _ if end => Growth::Back,
            _ => Growth::Within,
        };
        self.growth = growth;
        if self.elements == 0 {
            return self.insert_first(cx, element);
        }
        let beside = place - usize::from(end);
        let at = self.place_of(cx.store, beside);
        match element {
            NewElement::Text(text) if !is_apart(text) && !self.is_apart_at(cx.store, &at.path) => self
                .change_leaf_at(cx, (at, beside), growth, |builder, i| {
                    let entry = NewEntry { tag: 0, name: text, value: &[], score: 0.0 };
                    Ok(builder.insert(i + usize::from(end), entry)?)
                }),
            element => self.insert_beside(cx, (at, beside), end, element),
        }
    }

    /// Puts another element in a place.
    pub(in crate::collection) fn set_at(
        &mut self,
        cx: &mut EditContext<'_>,
        place: usize,
        element: &[u8],
    ) -> Result<(), Declined> {
        let at = self.place_of(cx.store, place);
        if is_apart(element) || self.is_apart_at(cx.store, &at.path) {
            // First the old one goes: so the new one has all labels that it had.
            self.remove_places(cx, place..place + 1, End::Front, true)?;
            return self.insert_at(cx, place, element);
        }
        self.change_leaf_at(
            cx,
            (at, place),
            Growth::Within,
            |builder, i| Ok(builder.set_element(i, element)?),
        )
    }

    /// Puts an element that was received in a place.
    pub(in crate::collection) fn set_received_at(
        &mut self,
        cx: &mut EditContext<'_>,
        place: usize,
        received: Received,
    ) -> Result<(), Declined> {
        // As in `set_at`.
        self.remove_places(cx, place..place + 1, End::Front, true)?;
        self.insert_new(cx, place, NewElement::Received(received))
    }

    /// Takes the elements at some places out, from an end of them on: not all, where that are very many. Those that are
    /// left are at places from the same one on.
    pub(in crate::collection) fn remove_places(
        &mut self,
        cx: &mut EditContext<'_>,
        mut places: Range<usize>,
        end: End,
        at_once: bool,
    ) -> Result<Range<usize>, Declined> {
        while !places.is_empty() && (at_once || self.gone.len() < NODES_AT_ONCE) {
            let place = if end == End::Front { places.start } else { places.end - 1 };
            let at = self.place_of(cx.store, place);
            if self.is_apart_at(cx.store, &at.path) {
                self.remove_apart(cx, at.path)?;
                places.end -= 1;
                continue;
            }
            let leaf = at.start..at.start + self.leaf(cx.store, &at.path).len();
            if places.start <= leaf.start && leaf.end <= places.end {
                places.end -= self.remove_leaves(cx, &at, &places, end)?;
                continue;
            }
            let here = places.start.max(leaf.start)..places.end.min(leaf.end);
            self.change_leaf(cx, here.start, Growth::Within, |builder, i| {
                builder.remove(i..i + here.len());
                Ok(())
            })?;
            places.end -= here.len();
        }
        Ok(places)
    }

    /// Takes a leaf out, all of which is among these places, and those beside it under the same node that are, too; how
    /// many elements that were.
    fn remove_leaves(
        &mut self,
        cx: &mut EditContext<'_>,
        at: &FoundLeaf,
        places: &Range<usize>,
        end: End,
    ) -> Result<usize, Declined> {
        let depth = self.height - 1;
        let (location, i) = at.path.steps[depth];
        // SAFETY: an inner node of this edit, or of a tree that is as it was.
        let inner = unsafe { Inner::at(&cx.store.arena, location) };
        let elements = |i: usize| elements_of(inner.word(i));
        // Elements that lie apart go one by one.
        let has_apart = self.has_apart();
        let is_plain = |i: usize| match elements(i) {
            _ if !has_apart => true,
            0 => false,
            // SAFETY: as above, a leaf.
            1 => !unsafe { leaf_at(&cx.store.arena, inner.location(i)) }.is_apart(),
            _ => true,
        };
        let (mut children, mut start, mut stop) = (i..i + 1, at.start, at.start + elements(i));
        if end == End::Front {
            while children.end < inner.len()
                && stop + elements(children.end) <= places.end
                && is_plain(children.end)
            {
                stop += elements(children.end);
                children.end += 1;
            }
        } else {
            while children.start > 0
                && places.start + elements(children.start - 1) <= start
                && is_plain(children.start - 1)
            {
                children.start -= 1;
                start -= elements(children.start);
            }
        }
        self.unmarked |= start == 0;
        for child in children.clone() {
            self.drop_node(cx, inner.location(child));
        }
        self.elements -= (stop - start) as u64;
        self.growth = Growth::Within;
        self.climb(cx, &at.path, depth, children)?;
        Ok(stop - start)
    }

    /// Takes out those of the elements at some places that are `element` and whose number among these is in `numbers`.
    pub(in crate::collection) fn remove_equal(
        &mut self,
        cx: &mut EditContext<'_>,
        mut places: Range<usize>,
        element: &Element<'_>,
        numbers: &Range<usize>,
    ) -> Result<(), Declined> {
        let mut number = 0;
        while !places.is_empty() && number < numbers.end {
            let at = self.place_of(cx.store, places.start);
            let leaf = self.leaf(cx.store, &at.path);
            if leaf.is_apart() {
                let found = self.tree(cx.store, Type::List).is(&leaf.entry(0).name, element);
                if found && numbers.contains(&number) {
                    self.remove_apart(cx, at.path)?;
                    places.end -= 1;
                } else {
                    places.start += 1;
                }
                number += usize::from(found);
                continue;
            }
            let here = places.start - at.start..leaf.len().min(places.end - at.start);
            let found = leaf.entries(here.clone()).filter(|entry| entry.name == *element).count();
            if found == 0 || number + found <= numbers.start {
                number += found;
                places.start += here.len();
                continue;
            }
            let before = self.elements;
            self.change_leaf(cx, places.start, Growth::Within, |builder, _| {
                let mut i = 0;
                builder.retain(|entry| {
                    let found = here.contains(&i) && entry.name == *element;
                    i += 1;
                    number += usize::from(found);
                    !(found && numbers.contains(&(number - 1)))
                });
                Ok(())
            })?;
            let gone = (before - self.elements) as usize;
            places.start += here.len() - gone;
            places.end -= gone;
        }
        Ok(())
    }
}
