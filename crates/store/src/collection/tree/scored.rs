//! Writing to a sorted set in two trees: each member is put into, moved in, or taken out of the scores tree, and then the
//! members tree says the same. Both are one edit, and one root is published.

use super::super::build::{Builder, NewEntry, SCORED_BYTES_MAX};
use super::super::change::Declined;
use super::super::element::{APART_BYTES, Element, LongText};
use super::super::leaf::Leaf;
use super::super::scores::{score_of, word_of};
use super::apart::NewElement;
use super::edit::{Child, LEAF_BYTES_FEW, LEAF_BYTES_JOINED};
use super::members::{ALIKE_MAX, Head, Members, MembersBuilder, hash_by, hash_of, key_of};
use super::places::Growth;
use super::ranked::{child_with, find_in};
use super::strings::{behind_parts, first_gap, parts_of};
use super::{
    ELEMENTS_MAX, Edit, EditContext, HEIGHT_MAX, Inner, LEAF_BYTES, NODE_BYTES, ORDER_SHIFT, Path, Tree,
    node_word, word,
};
use crate::class::CHUNK_BYTES_MAX;
use crate::collection::{DIGITS_MAX, Type};
use crate::sync::atomic::Ordering;
use crate::{End, Store};
use std::ops::Range;

/// Members that are taken out of the members tree together, and bytes of them, about: the more
/// there are, the more of them share a leaf.
const DOOMED: usize = 16 << 10;
const DOOMED_BYTES: usize = 1 << 20;

/// A member as it is put into leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'p> {
    pub(super) text: &'p [u8],
    /// Its seeded hash. It is kept: for a name of a mebibyte it would take long to make it again for the tag and for each tree.
    seeded: u64,
    /// What leaves store for it, if it lies apart.
    apart: Option<[u8; APART_BYTES]>,
}

impl<'p> Member<'p> {
    /// A member that lies in its leaf.
    pub(super) fn in_leaf(store: &Store, text: &'p [u8]) -> Member<'p> {
        Member { text, seeded: store.member_hash(text), apart: None }
    }

    /// Its hash in the members tree.
    pub(super) fn hash(&self) -> u64 {
        hash_of(self.seeded >> ORDER_SHIFT)
    }

    fn tag(&self) -> u8 {
        self.seeded as u8
    }

    /// Adds its entry to a leaf of a members tree; with its name, if `is_named` says so or it lies apart.
    pub(super) fn insert_into(&self, members: &mut MembersBuilder, word: u64, is_named: bool) {
        match &self.apart {
            Some(packed) => members.insert_apart(self.hash(), word, packed),
            None => members.insert(self.hash(), word, is_named.then_some(self.text)),
        }
    }

    /// Takes its entry out of such a leaf.
    fn remove_from(&self, members: &mut MembersBuilder, word: u64) {
        let there = match &self.apart {
            Some(packed) => members.find_apart(self.hash(), packed),
            None => members.find(self.hash(), word, self.text),
        };
        members.remove(there.expect("both trees have the same members"));
    }
}

impl Edit {
    /// The scores tree with that of its members, to be read before anything else is allocated.
    fn sorted<'g>(&self, store: &'g Store) -> Tree<'g> {
        self.tree(store, Type::SortedSet)
    }

    /// The way to the leaf that has a member with this score, or would have it.
    pub(super) fn path_to(&self, store: &Store, word: u64, name: &[u8]) -> Path {
        #[cfg(all(test, not(feature = "loom")))]
        {
            self.ways.set(self.ways.get() + 1);
        }
        let tree = self.sorted(store);
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], leaf: self.top };
        for depth in 0..self.height {
            // SAFETY: inner nodes of this edit, or of a tree that is as it was; so is what is below them.
            let (inner, i) = unsafe {
                let inner = Inner::at(&store.arena, path.leaf);
                (inner, child_with(&tree, &inner, self.height - depth, word, name))
            };
            path.steps[depth] = (path.leaf, i);
            path.leaf = inner.location(i);
        }
        path
    }

    /// The score of a member.
    pub(in crate::collection) fn score_of(&self, store: &Store, name: &[u8]) -> Option<f64> {
        if self.elements == 0 { None } else { self.tree(store, Type::SortedSet).score_of_member(name) }
    }

    /// Sets a member's score. `old` is its present score; `None`: the member is new.
    pub(in crate::collection) fn put_score(
        &mut self,
        cx: &mut EditContext<'_>,
        name: &[u8],
        old: Option<f64>,
        score: f64,
    ) -> Result<(), Declined> {
        let word = word_of(score);
        let member = match old {
            None => self.new_member(cx, name)?,
            Some(_) => self.member_there(cx.store, name),
        };
        if self.height == 0 {
            return self.put_first_member(cx, &member, score);
        }
        let alike = match old {
            None => {
                self.elements += 1;
                self.insert_member(cx, word, &member)?
            }
            Some(old) => self.move_member(cx, word_of(old), word, &member)?,
        };
        // If too many had this score before, all of them but this member have their names already.
        let alike = alike.unwrap_or_else(|| self.with_score(cx, score).len());
        self.change_members(cx, member.hash(), |members, _| {
            if let Some(old) = old {
                member.remove_from(members, word_of(old));
            }
            member.insert_into(members, word, alike > ALIKE_MAX);
        })?;
        if old.is_none() {
            self.put_parts_of(cx, &member)?;
        }
        if alike == ALIKE_MAX + 1 {
            let alike = self.with_score(cx, score);
            return self.name_ranks(cx, score, alike);
        }
        Ok(())
    }

    /// A member that is not there, as leaves will have it.
    ///
    /// # Errors
    /// It is too long, or there are too many.
    pub(super) fn new_member<'p>(
        &self,
        cx: &EditContext<'_>,
        text: &'p [u8],
    ) -> Result<Member<'p>, Declined> {
        if self.elements + 1 >= ELEMENTS_MAX {
            return Err(Declined::TooLarge);
        }
        if text.len() <= SCORED_BYTES_MAX {
            return Ok(Member::in_leaf(cx.store, text));
        }
        if text.len() > cx.store.scored_bytes_max() {
            return Err(Declined::TooLarge);
        }
        let new = Member::in_leaf(cx.store, text);
        let hash = new.hash();
        let (members, _) = self.sorted(cx.store).members_of(key_of(hash));
        let taken = members.with_hash(hash).filter_map(|i| match members.name(i) {
            Some(Element::Apart(apart)) => Some((apart.label(), parts_of(apart.len()) as u64)),
            _ => None,
        });
        let label = first_gap(taken.collect(), key_of(hash), text.len()).ok_or(Declined::TooLarge)?;
        Ok(Member { apart: Some(LongText::packed(text.len(), label)), ..new })
    }

    /// A member that is there, as leaves have it.
    pub(super) fn member_there<'p>(&self, store: &Store, text: &'p [u8]) -> Member<'p> {
        let member = Member::in_leaf(store, text);
        if text.len() <= SCORED_BYTES_MAX {
            return member;
        }
        let there = self.sorted(store).long_member_with(member.hash(), text);
        debug_assert!(there.is_some(), "it was found");
        Member { apart: there.map(|(_, packed)| packed), ..member }
    }

    /// Makes the parts of a new member, if it lies apart, behind the leaf of the members tree that names it by now.
    pub(super) fn put_parts_of(
        &mut self,
        cx: &mut EditContext<'_>,
        member: &Member<'_>,
    ) -> Result<(), Declined> {
        let Some(label) = member.apart.map(|packed| LongText::read_packed(&packed).label()) else {
            return Ok(());
        };
        self.apart = self.apart.max(member.text.len() as u64);
        self.turn();
        let done = self.put_parts(cx, (Type::Set, label), NewElement::Text(member.text));
        self.turn();
        done
    }

    /// Puts the first member into a set that has none.
    pub(super) fn put_first_member(
        &mut self,
        cx: &mut EditContext<'_>,
        member: &Member<'_>,
        score: f64,
    ) -> Result<(), Declined> {
        debug_assert!(self.elements == 0 && self.news.is_empty());
        let (word, tree) = (word_of(score), self.sorted(cx.store));
        let mut builder = std::mem::take(&mut self.builder);
        builder.start(Type::SortedSet);
        let built = put(&tree, &mut builder, word, member);
        let done = built.and_then(|_| self.write_leaf(cx, &builder, 0));
        self.builder = builder;
        done?;
        (self.elements, self.unmarked) = (1, true);
        self.write_top(cx, 1)?;
        self.plant_members_of(cx, |members| member.insert_into(members, word, false))?;
        self.put_parts_of(cx, member)
    }

    /// Puts a member into the scores tree, unless it is there with this score.
    ///
    /// # Errors
    /// [`Declined::Twice`]: it is.
    pub(super) fn put_score_once(
        &mut self,
        cx: &mut EditContext<'_>,
        name: &[u8],
        score: f64,
    ) -> Result<(), Declined> {
        let word = word_of(score);
        let path = self.path_to(cx.store, word, name);
        let (tree, member) = (self.sorted(cx.store), Member::in_leaf(cx.store, name));
        let put_once = |builder: &mut Builder| match find_in(&tree, &builder.leaf(), word, name) {
            Some(_) => Err(Declined::Twice),
            None => put(&tree, builder, word, &member),
        };
        self.elements += 1;
        self.change_scores(cx, &path, put_once, word).map(drop)
    }

    /// Takes a member out; returns whether it was there.
    pub(in crate::collection) fn take_member(
        &mut self,
        cx: &mut EditContext<'_>,
        name: &[u8],
    ) -> Result<bool, Declined> {
        let Some(score) = self.score_of(cx.store, name) else { return Ok(false) };
        let (word, member) = (word_of(score), self.member_there(cx.store, name));
        self.elements -= 1;
        // Its parts go last: it is compared with others until then.
        self.remove_member(cx, word, name)?;
        self.forget_member(cx, word, &member)?;
        Ok(true)
    }

    /// Takes out the members at some places, which are not all.
    pub(in crate::collection) fn remove_ranks(
        &mut self,
        cx: &mut EditContext<'_>,
        ranks: Range<usize>,
    ) -> Result<(), Declined> {
        let mut doomed = MembersBuilder::default();
        let mut at = ranks.start;
        while at < ranks.end {
            // They are copied: what is made for them may end the epoch.
            doomed.start();
            while at < ranks.end && doomed.len() < DOOMED && doomed.payload_bytes() < DOOMED_BYTES {
                let (leaf, start) = self.tree(cx.store, Type::SortedSet).leaf_with(at);
                let here = at - start..leaf.len().min(ranks.end - start);
                at = start + here.end;
                for entry in leaf.entries(here) {
                    let (room, word) = (&mut [0; DIGITS_MAX], word_of(entry.score));
                    if let Element::Apart(apart) = entry.name {
                        // Its parts go with it; by places none is compared.
                        self.loose.push((apart.label(), apart.len()));
                        doomed.push_apart(hash_by(apart.label()), word, &apart.as_packed());
                        continue;
                    }
                    let name = entry.name.text(room);
                    doomed.push(cx.store.hash_of_member(name), word, Some(name));
                }
            }
            doomed.sort();
            self.forget_members(cx, &doomed)?;
        }
        self.remove_places(cx, ranks, End::Front, true).map(drop)
    }

    /// Takes these out of the members tree, one leaf after the other.
    fn forget_members(&mut self, cx: &mut EditContext<'_>, doomed: &MembersBuilder) -> Result<(), Declined> {
        let mut i = 0;
        while i < doomed.len() {
            self.change_members(cx, doomed.hash(i), |members, high| {
                while i < doomed.len() && high.is_none_or(|high| key_of(doomed.hash(i)) < high) {
                    assert!(members.remove_one_of(doomed, i), "both trees have the same members");
                    i += 1;
                }
            })?;
        }
        Ok(())
    }

    /// Puts a member into the scores tree; returns how many have its score then, as far as its leaf tells.
    pub(super) fn insert_member(
        &mut self,
        cx: &mut EditContext<'_>,
        word: u64,
        member: &Member<'_>,
    ) -> Result<Option<usize>, Declined> {
        let (path, tree) = (self.path_to(cx.store, word, member.text), self.sorted(cx.store));
        self.change_scores(cx, &path, |builder| put(&tree, builder, word, member), word)
    }

    /// Takes a member out of the scores tree.
    fn remove_member(&mut self, cx: &mut EditContext<'_>, word: u64, name: &[u8]) -> Result<(), Declined> {
        let (path, tree) = (self.path_to(cx.store, word, name), self.sorted(cx.store));
        let take_out = |builder: &mut Builder| {
            let i = find_in(&tree, &builder.leaf(), word, name).expect("both trees have the same members");
            builder.remove(i..i + 1);
            Ok(None)
        };
        self.change_scores(cx, &path, take_out, word).map(drop)
    }

    /// Gives a member of the scores tree another score; returns how many have that then, as far as its leaf tells.
    pub(super) fn move_member(
        &mut self,
        cx: &mut EditContext<'_>,
        old: u64,
        word: u64,
        member: &Member<'_>,
    ) -> Result<Option<usize>, Declined> {
        let name = member.text;
        let (from, to) = (self.path_to(cx.store, old, name), self.path_to(cx.store, word, name));
        let tree = self.sorted(cx.store);
        if from.leaf != to.leaf {
            // The new one first: no tree is empty meanwhile. The way to it is known; that to the old one is another by then.
            let alike = self.change_scores(cx, &to, |builder| put(&tree, builder, word, member), word)?;
            self.remove_member(cx, old, name)?;
            return Ok(alike);
        }
        let change = |builder: &mut Builder| {
            let i = find_in(&tree, &builder.leaf(), old, name).expect("both trees have the same members");
            builder.remove(i..i + 1);
            put(&tree, builder, word, member)
        };
        self.change_scores(cx, &to, change, word)
    }

    /// Changes a copy of the leaf at the end of a path, and puts it in the place of the leaf. `change` returns the place
    /// where it has put a member with this score, if it has. Returns how many have that score then, as far as the leaf tells.
    fn change_scores(
        &mut self,
        cx: &mut EditContext<'_>,
        path: &Path,
        change: impl FnOnce(&mut Builder) -> Result<Option<usize>, Declined>,
        word: u64,
    ) -> Result<Option<usize>, Declined> {
        let mut builder = std::mem::take(&mut self.builder);
        builder.load(&self.leaf(cx.store, path));
        builder.make_roomy();
        let first = path.is_first(self.height);
        let last = path.high(&cx.store.arena, self.height - 1).is_none();
        let done = match change(&mut builder) {
            Err(declined) => Err(declined),
            Ok(place) => {
                let leaf = builder.leaf();
                self.growth = match place {
                    Some(i) if last && i + 1 == leaf.len() => Growth::Back,
                    Some(0) if first => Growth::Front,
                    Some(_) | None => Growth::Within,
                };
                let alike = place.and_then(|_| alike_in(&leaf, word, first, last));
                self.store_leaf(cx, path, &mut builder).map(|()| alike)
            }
        };
        self.growth = Growth::Within;
        self.builder = builder;
        done
    }

    /// Takes a member out of the members tree, with its parts, if it lies apart.
    fn forget_member(
        &mut self,
        cx: &mut EditContext<'_>,
        word: u64,
        member: &Member<'_>,
    ) -> Result<(), Declined> {
        if let Some(packed) = &member.apart {
            self.loose.push((LongText::read_packed(packed).label(), member.text.len()));
        }
        self.change_members(cx, member.hash(), |members, _| member.remove_from(members, word))
    }

    /// Gives the members at some places, which have this score, their names in the members tree.
    pub(super) fn name_ranks(
        &mut self,
        cx: &mut EditContext<'_>,
        score: f64,
        ranks: Range<usize>,
    ) -> Result<(), Declined> {
        let word = word_of(score);
        let mut name = Vec::new();
        for place in ranks {
            let (leaf, start) = self.tree(cx.store, Type::SortedSet).leaf_with(place);
            let there = leaf.entry(place - start).name;
            if matches!(there, Element::Apart(_)) {
                // It has had it from the beginning.
                continue;
            }
            name.clear();
            name.extend_from_slice(there.text(&mut [0; DIGITS_MAX]));
            let hash = cx.store.hash_of_member(&name);
            self.change_members(cx, hash, |members, _| {
                let i = members.find(hash, word, &name).expect("both trees have the same members");
                members.set_name(i, &name);
            })?;
        }
        Ok(())
    }

    /// Makes the members tree of what is in one leaf.
    pub(super) fn plant_members(
        &mut self,
        cx: &mut EditContext<'_>,
        leaf: &Leaf<'_>,
    ) -> Result<(), Declined> {
        let store = cx.store;
        self.plant_members_of(cx, |members| {
            for (i, entry) in leaf.entries(0..leaf.len()).enumerate() {
                let room = &mut [0; DIGITS_MAX];
                let name = entry.name.text(room);
                let alike = leaf.below(entry.score, true) - leaf.below(entry.score, false);
                let name_kept = (alike > ALIKE_MAX).then_some(name);
                members.push(store.hash_of_member(name), leaf.word(i), name_kept);
            }
            members.sort();
        })
    }

    /// Makes the members tree of what `fill` puts in.
    pub(super) fn plant_members_of(
        &mut self,
        cx: &mut EditContext<'_>,
        fill: impl FnOnce(&mut MembersBuilder),
    ) -> Result<(), Declined> {
        let mut members = std::mem::take(&mut self.members);
        members.start();
        fill(&mut members);
        self.turn();
        let done = self
            .write_members(cx, &members, &members.head(0..members.len()), 0)
            .and_then(|()| self.write_top(cx, 1));
        self.turn();
        self.members = members;
        done
    }

    /// Turns to the other tree: that is changed from now on.
    pub(super) fn turn(&mut self) {
        (self.height, self.top, self.beside) = (self.beside.0, self.beside.1, (self.height, self.top));
        self.in_members = !self.in_members;
    }

    /// Changes a copy of the leaf of the members tree for a hash, given the least key behind it, and puts it in the place of
    /// the leaf.
    pub(super) fn change_members(
        &mut self,
        cx: &mut EditContext<'_>,
        hash: u64,
        change: impl FnOnce(&mut MembersBuilder, Option<u64>),
    ) -> Result<(), Declined> {
        #[cfg(all(test, not(feature = "loom")))]
        {
            self.members_leaves += 1;
        }
        let mut members = std::mem::take(&mut self.members);
        self.turn();
        let mut path = self.path(cx.store, key_of(hash));
        let high = path.high(&cx.store.arena, self.height - 1);
        // SAFETY: a leaf of this edit, or of a tree that is as it was.
        members.load(&unsafe { Members::at(&cx.store.arena, path.leaf) });
        change(&mut members, high);
        let done =
            self.remove_loose(cx, &mut path).and_then(|()| self.store_members(cx, &path, &mut members));
        self.turn();
        members.shrink();
        self.members = members;
        done
    }

    /// Puts what is in `members` in the place of the leaf at the end of a path, or behind it, if that is a part.
    fn store_members(
        &mut self,
        cx: &mut EditContext<'_>,
        path: &Path,
        members: &mut MembersBuilder,
    ) -> Result<(), Declined> {
        let arena = &cx.store.arena;
        let (parent, i) = path.steps[self.height - 1];
        // SAFETY: an inner node of this edit, or of a tree that is as it was; so its children.
        let inner = unsafe { Inner::at(arena, parent) };
        // SAFETY: a leaf of this edit, or of a tree that is as it was.
        let behind = self.apart > 0 && unsafe { Members::at(arena, path.leaf) }.len() == 0;
        let mut range = i + usize::from(behind)..i + 1;
        if !behind {
            self.drop_node(cx, path.leaf);
        }
        let mut head = members.head(0..members.len());
        let bytes = head.leaf_bytes();
        if !behind && !members.is_empty() && bytes < LEAF_BYTES_FEW {
            for j in [i + 1, i.wrapping_sub(1)].into_iter().filter(|j| *j < inner.len()) {
                let location = inner.location(j);
                // SAFETY: as above, a leaf.
                let neighbour = unsafe { Members::at(&cx.store.arena, location) };
                if neighbour.len() > 0 && bytes + neighbour.bytes() <= LEAF_BYTES_JOINED {
                    members.append(&neighbour);
                    head = members.head(0..members.len());
                    range = i.min(j)..i.max(j) + 1;
                    self.drop_node(cx, location);
                    break;
                }
            }
        }
        let low = match behind {
            false => path.low(&cx.store.arena, self.height - 1, range.start),
            true => behind_parts(path.low(&cx.store.arena, self.height - 1, i)),
        };
        if !members.is_empty() {
            self.write_members(cx, members, &head, low)?;
        }
        self.climb(cx, path, self.height - 1, range)
    }

    /// Makes leaves of what is in `members`, from `low` on: they are [`Edit::news`] then. `head`: of all of them in one.
    fn write_members(
        &mut self,
        cx: &mut EditContext<'_>,
        members: &MembersBuilder,
        head: &Head,
        low: u64,
    ) -> Result<(), Declined> {
        debug_assert!(self.news.is_empty());
        let mut ends = std::mem::take(&mut self.members_ends);
        members.cut(head, LEAF_BYTES, &mut ends);
        let (mut start, mut done) = (0, Ok(()));
        for &end in &ends {
            let key = if start == 0 { low } else { key_of(members.hash(start)) };
            let range = start..end;
            done = if range.len() == members.len() {
                self.write_members_leaf(cx, members, range, head, key)
            } else {
                self.write_members_leaf(cx, members, range.clone(), &members.head(range), key)
            };
            if done.is_err() {
                break;
            }
            start = end;
        }
        self.members_ends = ends;
        done
    }

    fn write_members_leaf(
        &mut self,
        cx: &mut EditContext<'_>,
        members: &MembersBuilder,
        range: Range<usize>,
        head: &Head,
        key: u64,
    ) -> Result<(), Declined> {
        let bytes = head.leaf_bytes();
        if NODE_BYTES + bytes > CHUNK_BYTES_MAX {
            return Err(Declined::TooLarge);
        }
        let chunk = self.allocate(cx, 0, NODE_BYTES + bytes)?;
        let arena = &cx.store.arena;
        // SAFETY: the chunk is this worker's, and has room for the leaf behind its first words.
        let place = unsafe {
            node_word(arena, chunk, 8).store(key, Ordering::Relaxed);
            std::slice::from_raw_parts_mut(arena.at(chunk).add(NODE_BYTES).as_ptr(), bytes)
        };
        let elements = range.len() as u64;
        members.write(range, head, place);
        self.news.push(Child::without_times(key, word(elements, chunk)));
        Ok(())
    }
}

/// Puts a member into a leaf that does not have it; returns its place. The tree is the one that the leaf is of.
fn put(
    tree: &Tree<'_>,
    builder: &mut Builder,
    word: u64,
    member: &Member<'_>,
) -> Result<Option<usize>, Declined> {
    let (score, tag) = (score_of(word), member.tag());
    let i = builder.leaf().place_by(score, |other| tree.compare(other, member.text));
    match &member.apart {
        Some(packed) => builder.insert_apart(i, tag, packed, score)?,
        None => builder.insert(i, NewEntry { tag, name: member.text, value: &[], score })?,
    }
    Ok(Some(i))
}

/// Returns how many members have a score, as far as one leaf that has one of them tells; `None` if
/// there may be others in the leaves beside it, and that matters.
fn alike_in(leaf: &Leaf<'_>, word: u64, first: bool, last: bool) -> Option<usize> {
    let score = score_of(word);
    let here = leaf.below(score, false)..leaf.below(score, true);
    let whole = (here.start > 0 || first) && (here.end < leaf.len() || last);
    (whole || here.len() > ALIKE_MAX + 1).then_some(here.len())
}
