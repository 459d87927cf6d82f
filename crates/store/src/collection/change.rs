//! What all that write to a collection have in common: look, change a copy, publish it if no other write was faster.
//!
//! 1. The leaf that is there is looked at; it stays as it is, whatever happens to the key.
//! 2. The change is made to a copy in this worker's hands, or found to be none: then nothing is written.
//! 3. A chunk of the class that fits is allocated and filled; without memory nothing has happened.
//! 4. It is published as every item is ([`crate::write`]) if the item is still the one that was looked at; else all of
//!    it begins again. An empty one is not published: the key is deleted, on the same condition. What was long to make
//!    and came too late twice holds the key for its third attempt: else it might never be in time.

use super::build::{Builder, Full, LEAF_BYTES_MAX, MEMBER_BYTES_MAX, NewEntry, lies_apart};
use super::carried::Carried;
use super::element::Element;
use super::leaf::{Leaf, Removed};
use super::stream::rows::Op;
use super::tree::{Edit, EditContext, Growth, Move, at_once};
use super::{Collection, Lasting, LongMember, Received, Type};
use crate::class::CHUNK_BYTES_MAX;
use crate::held::Scratch;
use crate::item::{RawItem, Shape};
use crate::read::Value;
use crate::worker::Guard;
use crate::write::{Draft, Token, Unpublished};
use crate::{Attributes, End, Expect, Item, Key, Lookup, Millis, Refusal, Seen, Stored};
use std::ops::Range;

/// Attempts to change a collection that may come too late. Then the worker takes the key for the next attempt.
const LATE_MAX: usize = 2;
/// It does so only if an attempt makes more bytes of nodes than this: some 20 µs.
const LONG_BYTES: u64 = 64 << 10;
/// It does so after one attempt that made more bytes than this: some 0.5 ms.
const LONGEST_BYTES: u64 = 1 << 20;

/// Why a collection was not changed, or not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// The key has a string or another collection.
    Type,
    /// It would be larger than a collection may be ([`Key::collection_bytes_max`]).
    TooLarge,
    /// No memory could be had, as for [`Refusal::NoMemory`].
    NoMemory,
    /// A score would be the sum of both infinities.
    NotANumber,
    /// A field or a member comes twice, where a collection is made of entries that come one after the other.
    Twice,
}

impl From<Full> for Declined {
    fn from(Full: Full) -> Declined {
        Declined::TooLarge
    }
}

impl Key<'_> {
    /// The bytes that a collection under this key may have, of which elements take their own length and a few more.
    pub fn collection_bytes_max(&self) -> usize {
        // With all words that an item may have: a collection never outgrows its chunk because it gets an expiry.
        CHUNK_BYTES_MAX - Shape::of_leaf(self.bytes.len(), 0, true, true).whole_bytes() as usize
    }
}

/// A collection that is being changed: as it was, or as far as it was made anew.
pub(super) struct Workpiece<'c> {
    kind: Type,
    cx: EditContext<'c>,
    state: State<'c>,
    builder: &'c mut Builder,
    edit: &'c mut Edit,
    written: bool,
    /// Fields whose time has passed, and that are not in the builder any more.
    expired: usize,
}

/// Where the collection is.
enum State<'c> {
    /// In an item, as it was, if there is one.
    Item(Option<Leaf<'c>>),
    /// In the builder.
    Built,
    /// In the tree.
    Tree,
}

impl<'c> Workpiece<'c> {
    /// What it is by now; none if there is no collection yet. Of one that is no tree.
    #[inline]
    pub(super) fn leaf(&self) -> Option<Leaf<'_>> {
        match &self.state {
            State::Item(leaf) => *leaf,
            State::Built => Some(self.builder.leaf()),
            State::Tree => unreachable!("the verbs of trees ask for names"),
        }
    }

    pub(super) fn len(&self) -> usize {
        match &self.state {
            State::Tree => self.edit.elements as usize,
            State::Item(_) | State::Built => self.leaf().map_or(0, |leaf| leaf.len()),
        }
    }

    /// It is a tree by now.
    pub(super) fn is_tree(&self) -> bool {
        matches!(self.state, State::Tree)
    }

    /// Where a member is. Of a collection that is no tree: what is longer than a leaf is in none.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let leaf = self.leaf().filter(|_| name.len() <= LEAF_BYTES_MAX)?;
        leaf.find(name, self.cx.store.tag_of(name))
    }

    /// Calls `read` with the leaf and the place in it of a field or member, if it is there.
    pub(super) fn with<R>(&self, name: &[u8], read: impl FnOnce(&Leaf<'_>, usize) -> R) -> Option<R> {
        match &self.state {
            State::Tree if self.edit.elements == 0 => None,
            State::Tree => self.edit.with(self.cx.store, (name, self.cx.local.now), read),
            State::Item(_) | State::Built => {
                // Nothing in it is due: that was taken out before.
                let i = self.find(name)?;
                Some(read(&self.leaf()?, i))
            }
        }
    }

    /// Whether a field or member is there.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.with(name, |_, _| ()).is_some()
    }

    /// The collection is published even if nothing of it has changed. Of one that is no tree.
    pub(super) fn write(&mut self) -> &mut Builder {
        if let State::Item(leaf) = &self.state {
            match leaf {
                Some(leaf) => self.builder.load(leaf),
                None => self.builder.start(self.kind),
            }
            self.state = State::Built;
        }
        self.written = true;
        self.builder
    }

    /// Puts an entry in front of entry `i`, or at the end. Into a collection that is no tree.
    pub(super) fn insert(&mut self, i: usize, name: &[u8], value: &[u8], score: f64) -> Result<(), Declined> {
        let tag = if self.kind == Type::List { 0 } else { self.cx.store.tag_of(name) };
        Ok(self.write().insert(i, NewEntry { tag, name, value, score })?)
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.write().remove(range);
    }

    /// The score of a member.
    pub(super) fn score(&self, name: &[u8]) -> Option<f64> {
        if self.is_tree() {
            return self.edit.score_of(self.cx.store, name);
        }
        self.find(name).and_then(|i| self.leaf().map(|leaf| leaf.score(i)))
    }

    /// Gives a member of a sorted set a score. `old`: the score that it has, if it is there.
    pub(super) fn put_score(
        &mut self,
        name: &[u8],
        mut old: Option<f64>,
        score: f64,
    ) -> Result<(), Declined> {
        if !self.is_tree() && lies_apart(self.kind, name, &[]) {
            // It has no room in any leaf.
            self.write();
            self.plant()?;
        }
        if !self.is_tree() {
            if let Some(i) = old.and_then(|_| self.find(name)) {
                self.remove(i..i + 1);
            }
            let tag = self.cx.store.tag_of(name);
            let builder = self.write();
            let at = builder.leaf().place(score, name);
            match builder.insert(at, NewEntry { tag, name, value: &[], score }) {
                Ok(()) => return Ok(()),
                Err(Full) if builder.is_empty() => return Err(Declined::TooLarge),
                Err(Full) => self.plant()?,
            }
            // It was taken out.
            old = None;
        }
        self.written = true;
        self.edit.put_score(&mut self.cx, name, old, score)
    }

    /// Gives members of a tree scores, each once, and puts them in another order. As many as [`Workpiece::at_once`] at most.
    pub(super) fn put_scores(&mut self, moves: &mut [Move<'_>]) -> Result<(), Declined> {
        self.written |= !moves.is_empty();
        self.edit.put_scores(&mut self.cx, moves)
    }

    /// Elements that are put in order at a time.
    pub(super) fn at_once(&self) -> usize {
        at_once(self.cx.store)
    }

    /// What members go by in the members tree of a sorted set.
    pub(super) fn hash_of_member(&self, member: &[u8]) -> u64 {
        self.cx.store.hash_of_member(member)
    }

    /// Holds nothing yet.
    pub(super) fn scratch(&self) -> Scratch<'c> {
        Scratch::none(self.cx.store)
    }

    /// Sets a field of a hash, which does not expire then, or puts a member into a set that does not have it
    /// ([`Workpiece::add`]); whether it is new.
    pub(super) fn put(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Declined> {
        self.put_lasting(name, value, Lasting::Never)
    }

    /// The same, and says how long the field lasts.
    pub(super) fn put_lasting(
        &mut self,
        name: &[u8],
        value: &[u8],
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        if name.len() > MEMBER_BYTES_MAX && !self.cx.store.element_fits(self.kind, name, value) {
            // It is not even hashed.
            return Err(Declined::TooLarge);
        }
        if !self.is_tree() && lies_apart(self.kind, name, value) {
            // It has no room in any leaf.
            self.write();
            self.plant()?;
        }
        if !matches!(self.state, State::Tree) {
            let there = self.find(name);
            let (tag, builder) = (self.cx.store.tag_of(name), self.write());
            let end = builder.leaf().len();
            let built = match there {
                Some(i) => builder.set_value(i, name.len(), value),
                None => builder.insert(end, NewEntry { tag, name, value, score: 0.0 }),
            };
            match built {
                Ok(()) => {
                    if self.kind == Type::Hash {
                        lasting.note(self.builder, there.unwrap_or(end));
                    }
                    return Ok(there.is_none());
                }
                Err(Full) if end == 0 => return Err(Declined::TooLarge),
                Err(Full) => self.plant()?,
            }
        }
        self.written = true;
        self.edit.put(&mut self.cx, self.kind, (name, value), lasting)
    }

    /// Sets a field of a hash to a value that was received, and says how long it lasts; whether it is new.
    pub(super) fn put_received(
        &mut self,
        field: &[u8],
        received: Received,
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        if !self.is_tree() {
            // It has no room in any leaf.
            self.write();
            self.plant()?;
        }
        self.written = true;
        self.edit.put_received(&mut self.cx, field, received, lasting)
    }

    /// Puts a member into a set, if it is not there; whether it was not.
    pub(super) fn add(&mut self, member: &[u8]) -> Result<bool, Declined> {
        if self.is_tree() {
            let new = self.edit.put(&mut self.cx, self.kind, (member, &[]), Lasting::Never)?;
            self.written |= new;
            return Ok(new);
        }
        if self.has(member) { Ok(false) } else { self.put(member, &[]) }
    }

    /// Puts a member that was received into a set, if it is not there; whether it was not.
    pub(super) fn add_received(&mut self, hash: u64, received: Received) -> Result<bool, Declined> {
        if !self.is_tree() {
            // None of its members is as long, and this one has no room in any leaf.
            self.write();
            self.plant()?;
        }
        let new = self.edit.add_received(&mut self.cx, hash, received)?;
        self.written |= new;
        Ok(new)
    }

    /// Gives fields of a hash their values, in this order, or puts members into a set: a member that is there stays. How many
    /// were not there. Those of a tree are put in leaf by leaf, if the iterator says how many they are.
    pub(super) fn put_all<'p>(
        &mut self,
        mut entries: impl Iterator<Item = (&'p [u8], &'p [u8])>,
        lasting: Lasting,
    ) -> Result<usize, Declined> {
        let mut new = 0;
        while !self.is_tree() {
            let Some((name, value)) = entries.next() else { return Ok(new) };
            let is_new = if self.kind == Type::Set {
                self.add(name)?
            } else {
                self.put_lasting(name, value, lasting)?
            };
            new += usize::from(is_new);
        }
        let counts = self.edit.put_given(&mut self.cx, self.kind, &mut entries, lasting)?;
        self.written |= counts.new > 0 || self.kind == Type::Hash && counts.given > 0;
        Ok(new + counts.new)
    }

    /// Says when a field, which is there, expires; 0: never.
    pub(super) fn set_time(&mut self, name: &[u8], at: Millis) -> Result<(), Declined> {
        if !self.is_tree() {
            if let Some(i) = self.find(name) {
                self.write().set_time(i, at);
            }
            return Ok(());
        }
        self.written = true;
        self.edit.set_time(&mut self.cx, name, at)
    }

    /// Takes out fields whose time has passed, of a tree so many leaves of them at most, and so many nodes that go with them.
    /// True if there is nothing more that is due, and how many leaves that came to, about.
    pub(super) fn drop_due(&mut self, most: (usize, usize)) -> Result<(bool, usize), Declined> {
        if !self.is_tree() {
            // It has happened.
            self.written |= self.expired > 0;
            return Ok((true, 1));
        }
        let (all, leaves) = self.edit.drop_due(&mut self.cx, most)?;
        self.written |= leaves > 0;
        Ok((all, leaves))
    }

    /// Takes a field or member out; whether it was there.
    pub(super) fn take(&mut self, name: &[u8]) -> Result<bool, Declined> {
        if matches!(self.state, State::Tree) {
            if self.edit.elements == 0 {
                return Ok(false);
            }
            let gone = match self.kind {
                Type::SortedSet => self.edit.take_member(&mut self.cx, name)?,
                Type::Hash | Type::Set | Type::List | Type::Stream => self.edit.take(&mut self.cx, name)?,
            };
            self.written |= gone;
            return Ok(gone);
        }
        let there = self.find(name);
        if let Some(i) = there {
            self.remove(i..i + 1);
        }
        Ok(there.is_some())
    }

    /// Takes the member of a set out that lies apart and is named so; whether it was there.
    pub(super) fn take_long(&mut self, member: &LongMember) -> Result<bool, Declined> {
        let gone =
            self.is_tree() && self.edit.elements > 0 && self.edit.take_long(&mut self.cx, &member.text())?;
        self.written |= gone;
        Ok(gone)
    }

    /// Takes fields or members out; how many were there. Those of a hash or a set in a tree go leaf by leaf, if the iterator says
    /// how many they are.
    pub(super) fn take_all<'p>(
        &mut self,
        mut names: impl Iterator<Item = &'p [u8]>,
    ) -> Result<usize, Declined> {
        if self.is_tree() && matches!(self.kind, Type::Hash | Type::Set) {
            let gone = self.edit.take_given(&mut self.cx, &mut names)?;
            self.written |= gone > 0;
            return Ok(gone);
        }
        let mut gone = 0;
        for name in names {
            gone += usize::from(self.take(name)?);
        }
        Ok(gone)
    }

    /// What it is by now, as a read would see it.
    pub(super) fn collection(&self) -> Option<Collection<'_>> {
        let store = self.cx.store;
        if self.len() == 0 {
            return None;
        }
        Some(match &self.state {
            State::Tree => Collection::of_tree(self.edit.tree(store, self.kind), store, self.cx.local.now),
            State::Item(_) | State::Built => Collection::new(self.leaf()?, store, self.cx.local.now),
        })
    }

    /// Puts elements to an end of a list, one after the other.
    pub(super) fn push<'p>(
        &mut self,
        end: End,
        elements: impl Iterator<Item = &'p [u8]>,
    ) -> Result<(), Declined> {
        let mut elements = elements.peekable();
        if !self.is_tree() {
            self.edit.growth = end.into();
            let builder = self.write();
            builder.push_some(end, &mut elements);
            if elements.peek().is_none() {
                return Ok(());
            }
            self.plant()?;
        }
        self.written = true;
        self.edit.push(&mut self.cx, end, &mut elements)
    }

    /// Puts an element that was received to an end of a list.
    pub(super) fn push_received(&mut self, end: End, received: Received) -> Result<(), Declined> {
        if !self.is_tree() {
            // It has no room in any leaf.
            self.edit.growth = end.into();
            self.write();
            self.plant()?;
        }
        self.written = true;
        self.edit.push_received(&mut self.cx, end, received)
    }

    /// Puts an element that has left its list to an end of this one.
    pub(super) fn push_carried(&mut self, end: End, carried: &Carried) -> Result<(), Declined> {
        if !self.is_tree() {
            self.edit.growth = end.into();
            self.write();
            self.plant()?;
        }
        self.written = true;
        self.edit.push_carried(&mut self.cx, end, carried)
    }

    /// The parts of the element of a list at a place do not go with it when it is taken out; none if it does not lie apart.
    pub(super) fn spare_parts(&mut self, place: usize) -> Option<Carried> {
        if self.is_tree() { self.edit.spare_parts(self.cx.store, place) } else { None }
    }

    /// A tree that is so little that it lies in its item again is published as that.
    pub(super) fn shrink(&mut self) {
        self.written |= self.is_tree() && self.edit.last_leaf(self.cx.store).is_some();
    }

    /// Puts an element in front of the one at a place of a list, or behind all.
    pub(super) fn insert_at(&mut self, place: usize, element: &[u8]) -> Result<(), Declined> {
        if !self.is_tree() {
            match self.insert(place, element, &[], 0.0) {
                Err(Declined::TooLarge) if self.len() > 0 => self.plant()?,
                done => return done,
            }
        }
        self.written = true;
        self.edit.insert_at(&mut self.cx, place, element)
    }

    /// Bytes of the element of a list at a place, if it lies apart.
    pub(super) fn apart_bytes(&self, place: usize) -> Option<usize> {
        if self.is_tree() { self.edit.apart_bytes(self.cx.store, place) } else { None }
    }

    /// Puts another element in a place of a list.
    pub(super) fn set_at(&mut self, place: usize, element: &[u8]) -> Result<(), Declined> {
        if !self.is_tree() {
            match self.write().set_element(place, element) {
                Err(Full) => self.plant()?,
                Ok(()) => return Ok(()),
            }
        }
        self.written = true;
        self.edit.set_at(&mut self.cx, place, element)
    }

    /// Puts an element that was received in a place of a list.
    pub(super) fn set_received_at(&mut self, place: usize, received: Received) -> Result<(), Declined> {
        if !self.is_tree() {
            // It has no room in any leaf.
            self.write();
            self.plant()?;
        }
        self.written = true;
        self.edit.set_received_at(&mut self.cx, place, received)
    }

    /// Takes the elements at some places out, from an end of them on; those that are left: none unless they are very many,
    /// and may be left.
    pub(super) fn remove_places(
        &mut self,
        places: Range<usize>,
        end: End,
        at_once: bool,
    ) -> Result<Range<usize>, Declined> {
        self.written |= !places.is_empty();
        if !self.is_tree() {
            if !places.is_empty() {
                self.remove(places.clone());
            }
            return Ok(places.start..places.start);
        }
        if places.len() == self.len() {
            // They go with the root.
            self.edit.elements = 0;
            return Ok(0..0);
        }
        if self.kind == Type::SortedSet {
            let none = places.start..places.start;
            return if places.is_empty() {
                Ok(none)
            } else {
                self.edit.remove_ranks(&mut self.cx, places).map(|()| none)
            };
        }
        self.edit.remove_places(&mut self.cx, places, end, at_once)
    }

    /// Takes those of the elements of a list at some places out that are `element` and whose number among these is in
    /// `numbers`.
    pub(super) fn remove_equal(
        &mut self,
        places: Range<usize>,
        element: &Element<'_>,
        numbers: &Range<usize>,
    ) -> Result<(), Declined> {
        if self.is_tree() {
            self.written = true;
            return self.edit.remove_equal(&mut self.cx, places, element, numbers);
        }
        let (mut place, mut number) = (0, 0);
        self.write().retain(|entry| {
            // None of them lies apart: then it would be a tree.
            let found = places.contains(&place) && entry.name == *element;
            place += 1;
            number += usize::from(found);
            !(found && numbers.contains(&(number - 1)))
        });
        Ok(())
    }

    /// The collection is published even if nothing of it has changed.
    pub(super) fn touch(&mut self) {
        if self.is_tree() {
            self.written = true;
        } else {
            self.write();
        }
    }

    /// What is put comes to the end of what it belongs to.
    pub(super) fn grow_at_back(&mut self) {
        self.edit.growth = Growth::Back;
    }

    /// Puts and takes out rows of a stream in a tree, which come in order.
    pub(super) fn merge_in_tree(&mut self, ops: &[Op<'_>]) -> Result<(), Declined> {
        self.written = true;
        self.edit.merge_rows(&mut self.cx, ops)
    }

    /// Makes a tree of what is in the builder.
    pub(super) fn plant(&mut self) -> Result<(), Declined> {
        self.edit.plant(&mut self.cx, self.builder)?;
        self.state = State::Tree;
        Ok(())
    }
}

/// What came of a change.
pub(super) struct Changed<R> {
    pub(super) answer: R,
    /// The item that was there before.
    old: Option<RawItem>,
}

impl<T, E> Changed<Result<T, E>> {
    /// It, if what it says is no error.
    pub(super) fn transpose(self) -> Result<Changed<T>, E> {
        Ok(Changed { answer: self.answer?, old: self.old })
    }
}

impl Guard<'_> {
    /// The collection of a key; none if there is no item. Counts as an access.
    ///
    /// # Errors
    /// [`Declined::Type`] if it has another type of value.
    #[inline]
    pub fn collection(&mut self, key: &Key<'_>, kind: Type) -> Result<Option<Collection<'_>>, Declined> {
        let now = self.now;
        match self.get(key).hit() {
            None => Ok(None),
            Some(item) => match item.value() {
                Value::Collection(there) if there.kind() == kind => Ok(Some(there.elements_at(now))),
                Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => Err(Declined::Type),
            },
        }
    }

    /// Runs `change` on the collection and publishes what comes of it, as one step. It is run again where another writer
    /// writes meanwhile, and what it says the last time is so.
    pub(super) fn change_collection<R, E: From<Declined>>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        mut change: impl FnMut(&mut Workpiece<'_>) -> Result<R, E>,
    ) -> Result<Changed<R>, E> {
        self.local.leave_if_due(self.store);
        // Taken and put back: in steady state a change allocates nothing on the heap.
        let mut builder = std::mem::take(&mut self.local.builder);
        let mut edit = std::mem::take(&mut self.local.edit);
        edit.hold();
        self.spare(Some(key));
        let (mut late, mut holds) = (0, false);
        let done = loop {
            match self.change_through(key, kind, (&mut builder, &mut edit), &mut change) {
                Ok(Some(done)) => break Ok(done),
                Ok(None) => late += 1,
                Err(refused) => break Err(refused),
            }
            let is_due = late >= LATE_MAX || edit.made_bytes > LONGEST_BYTES;
            if is_due && edit.made_bytes > LONG_BYTES && !self.in_transaction() {
                self.begin([*key]);
                holds = true;
            }
        };
        if holds {
            self.finish();
        }
        self.spare(None);
        edit.let_go(self.store);
        self.local.builder = builder;
        self.local.edit = edit;
        if let Ok(changed) = &done {
            self.local.found_collection = changed.old.is_some();
        }
        done
    }

    /// Whether the last change of a collection that was not refused found one at its key. If it did not, it began with none: what
    /// was there at a look before has gone since, since other workers evict, and find what has expired.
    pub fn found_collection(&self) -> bool {
        self.local.found_collection
    }

    /// As [`Guard::change_collection`], where `change` takes something out: what is left finds room in a full store, too.
    pub(super) fn take_out_of_collection<R, E: From<Declined>>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        change: impl FnMut(&mut Workpiece<'_>) -> Result<R, E>,
    ) -> Result<Changed<R>, E> {
        self.making_way(|guard| guard.change_collection(key, kind, change))
    }

    /// Runs `f`, which changes collections and leaves no more of them than there was: what it makes finds room in a full
    /// store that evicts nothing, too, for which 512 KiB more are taken than the limit at most.
    pub fn making_way<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.local.takes_out, true);
        let done = f(self);
        self.local.takes_out = before;
        done
    }

    /// One attempt; none if another was faster.
    fn change_through<R, E: From<Declined>>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        (builder, edit): (&mut Builder, &mut Edit),
        change: &mut impl FnMut(&mut Workpiece<'_>) -> Result<R, E>,
    ) -> Result<Option<Changed<R>>, E> {
        // 1.
        let store = self.store;
        let item = match self.get(key) {
            Lookup::Hit(item) => match item.value() {
                Value::Collection(there) if there.kind() == kind => {
                    Some((item.raw, item.seen(), kept(&item)))
                }
                Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => {
                    return Err(Declined::Type.into());
                }
            },
            Lookup::Miss | Lookup::Expired | Lookup::Flushed => None,
        };
        let state = match item {
            // SAFETY: it was found a moment ago, in this epoch; so below.
            Some((raw, seen, _)) if raw.header().is_tree() => {
                // SAFETY: as above.
                unsafe { edit.load(raw, seen) };
                State::Tree
            }
            // SAFETY: as above; it is not looked at any more once memory is allocated, for the builder has it then.
            Some((raw, ..)) => State::Item(Some(unsafe { raw.leaf(raw.header()) })),
            None => State::Item(None),
        };
        if !matches!(state, State::Tree) {
            (edit.growth, edit.expired) = (Growth::Within, 0);
        }
        // What is due of one leaf goes with any write.
        let (state, expired) = match state {
            State::Item(Some(leaf)) if leaf.is_timed() && leaf.soonest() <= self.now => {
                builder.load(&leaf);
                let expired = builder.drop_expired(self.now);
                (State::Built, expired)
            }
            state => (state, 0),
        };
        // 2.
        let cx = EditContext { store, local: &mut *self.local, key };
        let mut changed =
            Workpiece { kind, cx, state, builder: &mut *builder, edit: &mut *edit, written: false, expired };
        let answer = change(&mut changed);
        let (written, tree) = (changed.written, matches!(changed.state, State::Tree));
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) if tree && edit.overtaken => {
                edit.give_up(store, self.local);
                return Ok(None);
            }
            Err(refused) => {
                edit.give_up(store, self.local);
                return Err(refused);
            }
        };
        let old = item.map(|(raw, ..)| raw);
        if !written {
            return Ok(Some(Changed { answer, old }));
        }
        // 3, 4.
        let (attributes, seen) = match item {
            Some((_, seen, attributes)) => (attributes, Some(seen)),
            None => (Attributes::default(), None),
        };
        let done = if tree {
            self.publish_edit(key, kind, (builder, edit), &attributes, seen)
        } else if builder.is_empty() {
            match seen {
                Some(seen) => Ok(self.delete(key, Expect::Unchanged(seen))),
                None => Ok(Ok(())),
            }
        } else if builder.is_for_tree(key.collection_bytes_max()) {
            let cx = &mut EditContext { store, local: &mut *self.local, key };
            match edit.plant(cx, builder) {
                Ok(()) => self.publish_edit(key, kind, (builder, edit), &attributes, seen),
                Err(declined) => {
                    edit.give_up(store, self.local);
                    Err(declined)
                }
            }
        } else {
            match seen {
                None => self.publish_new(key, builder),
                Some(seen) => self.publish_again(key, builder, &attributes, seen),
            }
        };
        match done? {
            Ok(()) => {
                let expired = expired as u64 + std::mem::take(&mut edit.expired);
                if expired > 0 {
                    self.count_expired(key, expired);
                }
                Ok(Some(Changed { answer, old }))
            }
            Err(Refusal::NoMemory) => Err(Declined::NoMemory.into()),
            Err(Refusal::Absent | Refusal::Present | Refusal::Changed | Refusal::Type) => Ok(None),
        }
    }

    /// Publishes what has become of a tree: a tree, a leaf in the item again, or nothing.
    fn publish_edit(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        (builder, edit): (&mut Builder, &mut Edit),
        attributes: &Attributes,
        seen: Option<Seen>,
    ) -> Result<Result<(), Refusal>, Declined> {
        // As it was with no node moved, if it was a tree.
        let seen = edit.base().or(seen);
        let expect = seen.map_or(Expect::Absent, Expect::Unchanged);
        // A root that gave way to a leaf would take the parts with it that leave the tree.
        if edit.elements > 0 && (edit.spares() || !edit.load_last(self.store, &*self.local, builder)) {
            return Ok(self.publish_tree(key, kind, edit, attributes, expect).map(drop));
        }
        // A root that is taken out takes its nodes with it, and they are all those that this edit did not make.
        edit.give_up(self.store, self.local);
        match (seen, edit.elements) {
            (None, 0) => Ok(Ok(())),
            (Some(seen), 0) => Ok(self.delete(key, Expect::Unchanged(seen))),
            (None, _) => self.publish_new(key, builder),
            (Some(seen), _) => self.publish_again(key, builder, attributes, seen),
        }
    }

    fn publish_new(&mut self, key: &Key<'_>, builder: &Builder) -> Result<Result<(), Refusal>, Declined> {
        let done =
            self.publish_leaf(key, builder, &Attributes::default(), Token::Next(None), Expect::Absent)?;
        Ok(done.map(drop))
    }

    fn publish_again(
        &mut self,
        key: &Key<'_>,
        builder: &Builder,
        attributes: &Attributes,
        seen: Seen,
    ) -> Result<Result<(), Refusal>, Declined> {
        let done = self.publish_leaf(key, builder, attributes, Token::Next(None), Expect::Unchanged(seen))?;
        Ok(done.map(drop))
    }

    /// Copies a collection into an item with all words, its token unchanged.
    pub(crate) fn reshape_collection(
        &mut self,
        key: &Key<'_>,
        builder: &Builder,
        attributes: &Attributes,
        keep: Token,
        seen: Seen,
    ) -> Result<Stored, Refusal> {
        self.publish_leaf(key, builder, attributes, keep, Expect::Unchanged(seen))
            .expect("a collection leaves room for all words")
    }

    /// Publishes the leaf that was built: what the publication said, or that it is too large for any.
    pub(super) fn publish_leaf(
        &mut self,
        key: &Key<'_>,
        builder: &Builder,
        attributes: &Attributes,
        token: Token,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        let store = self.store;
        let bytes = builder.bytes()?;
        if bytes > key.collection_bytes_max() {
            return Err(Declined::TooLarge);
        }
        let copy = matches!(token, Token::Keep { .. });
        let expiry = copy || attributes.expires_at != 0;
        let mut extension = copy || key.number != 0;
        loop {
            let shape = Shape::of_leaf(key.bytes.len(), bytes, expiry, extension);
            let mut draft = match self.draft_marked(key, &shape, attributes, attributes.marks()) {
                Ok(draft) => Draft { form: builder.kind() as u16, ..draft }.timed(builder.soonest()),
                Err(refusal) => return Ok(Err(refusal)),
            };
            let place = self.draft_leaf(&mut draft, &shape, bytes);
            builder.write(place);
            if cfg!(debug_assertions) {
                Leaf::of(place).check_form(&|name| store.tag_of(name));
            }
            match self.publish_draft(key, draft, token, expect) {
                Ok(stored) => return Ok(Ok(stored)),
                Err(Unpublished::Refused(refusal)) => return Ok(Err(refusal)),
                Err(Unpublished::NeedsExtension) => extension = true,
            }
        }
    }

    /// What a change took out of the collection that was there, to be read before anything else is done.
    pub(super) fn removed(&mut self, changed: Changed<Range<usize>>) -> Option<Removed<'_>> {
        let old = changed.old?;
        // SAFETY: 1. The item was reachable when its successor was published, or it was deleted, in this epoch: its chunk
        // waits in limbo for as long, and so do nodes that it had. 2. The result borrows the guard, which leaves the epoch
        // no earlier. 3. It is a collection: so the change found it.
        let collection = unsafe { Collection::of(old, self.store, self.now) };
        Some(Removed::new(collection, changed.answer))
    }
}

/// What stays when the elements of an item change.
pub(super) fn kept(item: &Item<'_>) -> Attributes {
    Attributes { expires_at: item.expires_at(), key_binary: item.key_binary(), ..Attributes::default() }
}
