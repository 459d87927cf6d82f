//! Fields or members that one command puts into a tree of a hash or a set, which may have some of them, or takes out of it.
//! They come in the order of the tree, so that each leaf is made anew once for all that are in it.
//!
//! ```text
//! fields ─▶ by hash ─▶ for each leaf: the way to it ─▶ a copy of it, changed by all of its fields ─▶ the leaf made anew
//! ```
//!
//! 1. Fields of one name stay in the order of the command: the last value is the field's.
//! 2. A leaf stays if nothing of it changes: of a set, if it has all members that are given, and if it has none of those that
//!    are taken out.
//! 3. Values and members that lie apart take the way of a single one ([`Edit::put`], [`Edit::take`]), and so do the fields of a
//!    command that has few: they rarely share a leaf.
//!
//! What is made is what single fields would make, but for the order of new fields within a leaf and for where leaves are cut.

use super::super::build::{MEMBER_BYTES_MAX, NewEntry, lies_apart};
use super::super::change::Declined;
use super::{ELEMENTS_MAX, Edit, EditContext, LEAF_BYTES, at_once, key_by};
use crate::Store;
use crate::collection::{Lasting, Type};
use crate::held::Scratch;

/// Fewer fields than this come one by one.
const GIVEN_MIN: usize = 8;
/// From this length on a leaf that is built takes no more fields: each is looked for among those that it has.
const BUILT_BYTES: usize = 8 * LEAF_BYTES;

/// A field with its value, or a member.
#[derive(Clone, Copy, Debug)]
struct Given<'p> {
    hash: u64,
    /// Where it is among those that are put in order together.
    i: u32,
    name: &'p [u8],
    value: &'p [u8],
}

/// Fields that are put in order together. What they take meanwhile is held.
#[derive(Debug)]
struct Order<'s, 'p> {
    given: Vec<Given<'p>>,
    held: Scratch<'s>,
    store: &'s Store,
}

impl<'s, 'p> Order<'s, 'p> {
    fn none(store: &'s Store) -> Order<'s, 'p> {
        Order { given: Vec::new(), held: Scratch::none(store), store }
    }

    /// Makes room for the fields that are put in order next, where so many are left; returns how
    /// many. `None`: the rest comes one by one.
    fn make_room(&mut self, left: usize) -> Option<usize> {
        let room = left.min(at_once(self.store));
        if room < GIVEN_MIN {
            return None;
        }
        self.given.clear();
        self.held.set(room.max(self.given.capacity()) * size_of::<Given<'_>>());
        self.given.reserve_exact(room);
        Some(room)
    }

    fn push(&mut self, name: &'p [u8], value: &'p [u8]) {
        let (hash, i) = (self.store.member_hash(name), self.given.len() as u32);
        self.given.push(Given { hash, i, name, value });
    }

    fn sort(&mut self) -> &[Given<'p>] {
        self.given.sort_unstable_by_key(|one| (one.hash, one.i));
        &self.given
    }
}

/// Counts of fields or members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collection) struct Counts {
    /// Those that were given.
    pub(in crate::collection) given: usize,
    /// Those of them that were not there.
    pub(in crate::collection) new: usize,
}

impl Counts {
    fn add(&mut self, given: usize, new: usize) {
        self.given += given;
        self.new += new;
    }
}

impl Edit {
    /// Gives fields their values, as if one came after the other, or puts members in. A member that is there stays as it is.
    /// Fields of the same leaves whose time has passed go.
    ///
    /// If the iterator does not say how many there are, they are put in one by one.
    pub(in crate::collection) fn put_given<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        entries: &mut impl Iterator<Item = (&'p [u8], &'p [u8])>,
        lasting: Lasting,
    ) -> Result<Counts, Declined> {
        let (mut counts, mut order) = (Counts::default(), Order::none(cx.store));
        while let Some(room) = order.make_room(entries.size_hint().0) {
            for (name, value) in entries.by_ref().take(room) {
                if kind == Type::Set && lies_apart(kind, name, value) {
                    // It is hashed once, however long it is. No other member has its name.
                    counts.add(1, usize::from(self.put(cx, kind, (name, value), lasting)?));
                    continue;
                }
                if !self.may_have(name) && !cx.store.element_fits(kind, name, value) {
                    return Err(Declined::TooLarge);
                }
                order.push(name, value);
            }
            let mut rest = order.sort();
            while !rest.is_empty() {
                let (done, new) = self.put_given_of_leaf(cx, kind, rest, lasting)?;
                counts.add(done, new);
                rest = &rest[done..];
            }
        }
        for entry in entries {
            counts.add(1, usize::from(self.put(cx, kind, entry, lasting)?));
        }
        Ok(counts)
    }

    /// Puts the first ones in, as many as come into one leaf; returns how many these are, and how many of them were not there.
    fn put_given_of_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        kind: Type,
        given: &[Given<'_>],
        lasting: Lasting,
    ) -> Result<(usize, usize), Declined> {
        let is_apart = |one: &Given<'_>| lies_apart(kind, one.name, one.value);
        let first = &given[0];
        if self.height == 0 || is_apart(first) {
            let new = self.put(cx, kind, (first.name, first.value), lasting)?;
            return Ok((1, usize::from(new)));
        }
        let mut path = self.path(cx.store, key_by(first.hash));
        let high = path.high(&cx.store.arena, self.height - 1);
        let end = high.map_or(given.len(), |high| given.partition_point(|one| key_by(one.hash) < high));
        debug_assert!(end > 0, "the way to the first one leads to its leaf");
        // 2.
        let mut at = 0;
        if kind == Type::Set {
            let leaf = self.leaf(cx.store, &path);
            at = given[..end].iter().take_while(|one| leaf.find(one.name, one.hash as u8).is_some()).count();
            if at == end {
                return Ok((end, 0));
            }
        }
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(cx, &path, &mut builder);
        let (from, mut new, mut fits) = (at, 0, true);
        while at < end && (at == from || builder.loose_bytes() < BUILT_BYTES && !is_apart(&given[at])) {
            let Given { hash, name, value, .. } = given[at];
            let last = builder.leaf().len();
            let there = builder.leaf().find(name, hash as u8);
            let built = match there {
                Some(_) if kind == Type::Set => Ok(()),
                Some(i) => {
                    self.loosen(&builder, i);
                    builder.set_value(i, name.len(), value)
                }
                None => builder.insert(last, NewEntry { tag: hash as u8, name, value, score: 0.0 }),
            };
            if built.is_err() {
                fits = false;
                break;
            }
            if kind == Type::Hash {
                lasting.note(&mut builder, there.unwrap_or(last));
            }
            new += usize::from(there.is_none());
            at += 1;
        }
        self.elements += new as u64;
        let done = if fits && self.elements < ELEMENTS_MAX {
            self.remove_loose(cx, &mut path).and_then(|()| self.store_leaf(cx, &path, &mut builder))
        } else {
            Err(Declined::TooLarge)
        };
        self.builder = builder;
        done.map(|()| (at, new))
    }

    /// Takes fields or members out; returns how many were there. Fields of the same leaves whose time has passed go.
    ///
    /// If the iterator does not say how many there are, they are taken out one by one.
    pub(in crate::collection) fn take_given<'p>(
        &mut self,
        cx: &mut EditContext<'_>,
        names: &mut impl Iterator<Item = &'p [u8]>,
    ) -> Result<usize, Declined> {
        let (mut gone, mut order) = (0, Order::none(cx.store));
        while let Some(room) = order.make_room(names.size_hint().0) {
            for name in names.by_ref().take(room) {
                if name.len() > MEMBER_BYTES_MAX {
                    // It is hashed once, however long it is, or not at all.
                    gone += usize::from(self.elements > 0 && self.take(cx, name)?);
                } else {
                    order.push(name, b"");
                }
            }
            let mut rest = order.sort();
            while !rest.is_empty() && self.elements > 0 {
                let (done, taken) = self.take_given_of_leaf(cx, rest)?;
                gone += taken;
                rest = &rest[done..];
            }
        }
        for name in names {
            gone += usize::from(self.elements > 0 && self.take(cx, name)?);
        }
        Ok(gone)
    }

    /// Takes the first ones out, as many as would be in one leaf; returns how many these are, and how many of them were there.
    fn take_given_of_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        given: &[Given<'_>],
    ) -> Result<(usize, usize), Declined> {
        let mut path = self.path(cx.store, key_by(given[0].hash));
        let high = path.high(&cx.store.arena, self.height - 1);
        let end = high.map_or(given.len(), |high| given.partition_point(|other| key_by(other.hash) < high));
        // 2.
        let (leaf, now) = (self.leaf(cx.store, &path), self.now(cx.local));
        let is_there = |one: &Given<'_>| leaf.find_live(one.name, one.hash as u8, now).is_some();
        let Some(first) = given[..end].iter().position(is_there) else { return Ok((end, 0)) };
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(cx, &path, &mut builder);
        let mut gone = 0;
        for one in &given[first..end] {
            // A name that comes twice is gone.
            let Some(i) = builder.leaf().find(one.name, one.hash as u8) else { continue };
            self.loosen(&builder, i);
            builder.remove(i..i + 1);
            gone += 1;
        }
        self.elements -= gone as u64;
        let done = self.remove_loose(cx, &mut path).and_then(|()| self.store_leaf(cx, &path, &mut builder));
        self.builder = builder;
        done.map(|()| (end, gone))
    }
}
