//! What all that write to a collection have in common: look, change a copy, publish it if nobody was faster.
//!
//! 1. The leaf that is there is looked at; it stays as it is, whatever happens to the key.
//! 2. The change is made to a copy in this worker's hands, or found to be none: then nothing is written.
//! 3. A chunk of the class that fits is allocated and filled; without memory nothing has happened.
//! 4. It is published as every item is ([`crate::write`]) if the item is still the one that was looked at; else all of
//!    it begins again. An empty one is not published: the key is deleted, on the same condition.

use super::build::{Builder, Full, NewEntry};
use super::leaf::{Leaf, Removed};
use super::{Collection, Type};
use crate::class::CHUNK_BYTES_MAX;
use crate::item::{RawItem, Shape};
use crate::read::Value;
use crate::worker::Guard;
use crate::write::{Draft, Token, Unpublished};
use crate::{Attributes, Expect, Item, Key, Lookup, Refusal, Seen, Store, Stored};
use std::ops::Range;

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

/// A collection that is being changed.
pub(super) struct Change<'c> {
    store: &'c Store,
    kind: Type,
    old: Option<Leaf<'c>>,
    builder: &'c mut Builder,
    /// The builder has what the collection is by now.
    loaded: bool,
    written: bool,
}

impl Change<'_> {
    /// What it is by now; none if there is no collection yet.
    #[inline]
    pub(super) fn leaf(&self) -> Option<Leaf<'_>> {
        if self.loaded { Some(self.builder.leaf()) } else { self.old }
    }

    pub(super) fn len(&self) -> usize {
        self.leaf().map_or(0, |leaf| leaf.len())
    }

    /// Where a field or member is.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.leaf()?.find(name, self.store.tag_of(name))
    }

    /// The collection is published even if nothing of it has changed.
    pub(super) fn write(&mut self) -> &mut Builder {
        if !self.loaded {
            match &self.old {
                Some(leaf) => self.builder.load(leaf),
                None => self.builder.start(self.kind),
            }
            self.loaded = true;
        }
        self.written = true;
        self.builder
    }

    /// Puts an entry in front of entry `i`, or at the end.
    pub(super) fn insert(&mut self, i: usize, name: &[u8], value: &[u8], score: f64) -> Result<(), Declined> {
        let tag = if self.kind == Type::List { 0 } else { self.store.tag_of(name) };
        Ok(self.write().insert(i, NewEntry { tag, name, value, score })?)
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.write().remove(range);
    }

    /// What it is by now, as who reads sees it.
    pub(super) fn collection(&self) -> Option<Collection<'_>> {
        Some(Collection::new(self.leaf()?, self.store))
    }
}

/// What came of a change.
pub(super) struct Changed<R> {
    pub(super) answer: R,
    /// The item that was there before.
    old: Option<RawItem>,
}

impl Guard<'_> {
    /// The collection of a key; none if there is no item. Counts as an access.
    ///
    /// # Errors
    /// [`Declined::Type`] if it has another type of value.
    #[inline]
    pub fn collection(&mut self, key: &Key<'_>, kind: Type) -> Result<Option<Collection<'_>>, Declined> {
        match self.get(key).hit() {
            None => Ok(None),
            Some(item) => match item.value() {
                Value::Collection(there) if there.kind() == kind => Ok(Some(there.elements())),
                Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => Err(Declined::Type),
            },
        }
    }

    /// Runs `change` on the collection and publishes what comes of it, as one step. It is run again where somebody else
    /// writes meanwhile, and what it says the last time is so.
    pub(super) fn change_collection<R, E: From<Declined>>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        mut change: impl FnMut(&mut Change<'_>) -> Result<R, E>,
    ) -> Result<Changed<R>, E> {
        self.local.breathe(self.store);
        // Taken and put back: in steady state a change allocates nothing.
        let mut builder = std::mem::take(&mut self.local.builder);
        self.spare(Some(key));
        let done = loop {
            match self.change_through(key, kind, &mut builder, &mut change) {
                Ok(Some(done)) => break Ok(done),
                Ok(None) => {}
                Err(refused) => break Err(refused),
            }
        };
        self.spare(None);
        self.local.builder = builder;
        done
    }

    /// One attempt; none if somebody else was faster.
    fn change_through<R, E: From<Declined>>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        builder: &mut Builder,
        change: &mut impl FnMut(&mut Change<'_>) -> Result<R, E>,
    ) -> Result<Option<Changed<R>>, E> {
        // 1.
        let store = self.store;
        let (old, item) = match self.get(key) {
            Lookup::Hit(item) => match item.value() {
                Value::Collection(there) if there.kind() == kind => {
                    (Some(*there.elements().leaf()), Some((item.raw, kept(&item), item.seen())))
                }
                Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => {
                    return Err(Declined::Type.into());
                }
            },
            Lookup::Miss | Lookup::Expired | Lookup::Flushed => (None, None),
        };
        // 2.
        let mut changed = Change { store, kind, old, builder, loaded: false, written: false };
        let answer = change(&mut changed)?;
        let written = changed.written;
        let old = item.map(|(raw, ..)| raw);
        // 3, 4.
        let done = match item {
            _ if !written => Ok(()),
            None if builder.is_empty() => Ok(()),
            Some((_, _, seen)) if builder.is_empty() => self.delete(key, Expect::Unchanged(seen)),
            None => self.publish_new(key, builder)?,
            Some((_, attributes, seen)) => self.publish_again(key, builder, &attributes, seen)?,
        };
        match done {
            Ok(()) => Ok(Some(Changed { answer, old })),
            Err(Refusal::NoMemory) => Err(Declined::NoMemory.into()),
            Err(Refusal::Absent | Refusal::Present | Refusal::Changed | Refusal::Type) => Ok(None),
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
    fn publish_leaf(
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
                Ok(draft) => Draft { form: builder.kind() as u16, ..draft },
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
        // waits in limbo for as long. 2. The result borrows the guard, which leaves the epoch no earlier. 3. It is a
        // collection: so the change found it.
        let leaf = unsafe { old.leaf(old.header()) };
        Some(Removed::new(leaf, changed.answer))
    }
}

/// What stays when the elements of an item change.
fn kept(item: &Item<'_>) -> Attributes {
    Attributes { expires_at: item.expires_at(), key_binary: item.key_binary(), ..Attributes::default() }
}
