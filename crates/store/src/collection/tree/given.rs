//! Fields or members that one command gives to a tree of a hash or a set, which may have some of them: in the order of the tree,
//! so that each leaf is made anew once for all that come into it.
//!
//! ```text
//! fields ─▶ by hash ─▶ for each leaf: the way to it ─▶ a copy of it, changed by all of its fields ─▶ the leaf made anew
//! ```
//!
//! 1. Fields of one name stay in the order of the command: the last value is the field's.
//! 2. A leaf of a set is copied from the first member on that it does not have: if it has all of them, it stays.
//! 3. Values and members that lie apart take the way of a single one ([`Edit::put`]), and so do the fields of a command that
//!    has few: they rarely share a leaf.
//!
//! What is made is what single fields would make, but for the order of new fields within a leaf and for where leaves are cut.

use super::super::build::{NewEntry, lies_apart};
use super::super::change::Declined;
use super::{ELEMENTS_MAX, Edit, Hand, LEAF_BYTES, at_once, key_by};
use crate::collection::{Lasting, Type};
use crate::held::Scratch;

/// Fewer fields than this are put in one by one.
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
    /// An iterator that does not say how many there are has them put in one by one.
    pub(in crate::collection) fn put_given<'p>(
        &mut self,
        hand: &mut Hand<'_>,
        kind: Type,
        entries: &mut impl Iterator<Item = (&'p [u8], &'p [u8])>,
        lasting: Lasting,
    ) -> Result<Counts, Declined> {
        let (mut counts, most) = (Counts::default(), at_once(hand.store));
        let (mut given, mut held): (Vec<Given<'p>>, _) = (Vec::new(), Scratch::none(hand.store));
        loop {
            let room = entries.size_hint().0.min(most);
            if room < GIVEN_MIN {
                break;
            }
            given.clear();
            held.set(room.max(given.capacity()) * size_of::<Given<'_>>());
            given.reserve_exact(room);
            for (name, value) in entries.by_ref().take(room) {
                if kind == Type::Set && lies_apart(kind, name, value) {
                    // It is hashed once, however long it is. No other member has its name.
                    counts.add(1, usize::from(self.put(hand, kind, (name, value), lasting)?));
                    continue;
                }
                if !self.may_have(name) && !hand.store.element_fits(kind, name, value) {
                    return Err(Declined::TooLarge);
                }
                given.push(Given { hash: hand.store.member_hash(name), i: given.len() as u32, name, value });
            }
            given.sort_unstable_by_key(|one| (one.hash, one.i));
            let mut rest = &given[..];
            while !rest.is_empty() {
                let (done, new) = self.put_given_of_leaf(hand, kind, rest, lasting)?;
                counts.add(done, new);
                rest = &rest[done..];
            }
        }
        for entry in entries {
            counts.add(1, usize::from(self.put(hand, kind, entry, lasting)?));
        }
        Ok(counts)
    }

    /// Puts the first ones in, as many as come into one leaf: how many these are, and how many of them were not there.
    fn put_given_of_leaf(
        &mut self,
        hand: &mut Hand<'_>,
        kind: Type,
        given: &[Given<'_>],
        lasting: Lasting,
    ) -> Result<(usize, usize), Declined> {
        let is_apart = |one: &Given<'_>| lies_apart(kind, one.name, one.value);
        let first = &given[0];
        if self.height == 0 || is_apart(first) {
            let new = self.put(hand, kind, (first.name, first.value), lasting)?;
            return Ok((1, usize::from(new)));
        }
        let mut path = self.path(hand.store, key_by(first.hash));
        let high = path.high(&hand.store.arena, self.height - 1);
        let end = high.map_or(given.len(), |high| given.partition_point(|one| key_by(one.hash) < high));
        debug_assert!(end > 0, "the way to the first one leads to its leaf");
        // 2.
        let mut at = 0;
        if kind == Type::Set {
            let leaf = self.leaf(hand.store, &path);
            at = given[..end].iter().take_while(|one| leaf.find(one.name, one.hash as u8).is_some()).count();
            if at == end {
                return Ok((end, 0));
            }
        }
        let mut builder = std::mem::take(&mut self.builder);
        self.load_live(hand, &path, &mut builder);
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
            self.settle(hand, &mut path).and_then(|()| self.store_leaf(hand, &path, &mut builder))
        } else {
            Err(Declined::TooLarge)
        };
        self.builder = builder;
        done.map(|()| (at, new))
    }
}
