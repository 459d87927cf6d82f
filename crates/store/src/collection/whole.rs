//! Collections as wholes: made at once, and copied.

use super::build::NewEntry;
use super::change::{Declined, kept};
use super::{Builder, Type};
use crate::read::Value;
use crate::worker::Guard;
use crate::write::Token;
use crate::{Attributes, Expect, Key, Refusal, Stored};

/// An entry of a collection that is made.
#[derive(Clone, Copy, Debug)]
pub struct Made<'p> {
    /// The field, member or element.
    pub name: &'p [u8],
    /// A field's value; empty in other collections.
    pub value: &'p [u8],
    /// A member's score, which is a number; 0 in other collections.
    pub score: f64,
}

impl Guard<'_> {
    /// Makes a collection of these entries, one at least, and stores it in place of whatever the key has. No two fields or
    /// members have one name; members of a sorted set come in their order.
    ///
    /// # Errors
    /// The inner one: what was expected and was not so, or no memory. [`Declined::TooLarge`]. Nothing is done then.
    pub fn collection_store<'p>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        entries: impl Iterator<Item = Made<'p>>,
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        self.with_builder(|guard, builder| {
            builder.start(kind);
            for Made { name, value, score } in entries {
                let tag = if kind == Type::List { 0 } else { guard.store.tag_of(name) };
                debug_assert!(kind == Type::List || builder.leaf().find(name, tag).is_none(), "a name twice");
                let end = builder.leaf().len();
                builder.insert(end, NewEntry { tag, name, value, score })?;
            }
            assert!(!builder.is_empty(), "no collection is empty");
            guard.publish_leaf(key, builder, attributes, Token::Next(None), expect)
        })
    }

    /// Stores what the collection of `from` has under `to`, with its expiry, in place of whatever is there.
    ///
    /// # Errors
    /// The inner one: [`Refusal::Type`] if `from` has no collection, what was expected of `to` and was not so, or no
    /// memory. [`Declined::TooLarge`]: under the longer key. Nothing is done then.
    pub fn collection_copy(
        &mut self,
        from: &Key<'_>,
        to: &Key<'_>,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        self.with_builder(|guard, builder| {
            let Some(item) = guard.peek(from).hit() else { return Ok(Err(Refusal::Type)) };
            let Value::Collection(collection) = item.value() else { return Ok(Err(Refusal::Type)) };
            let elements = collection.elements();
            let Some(leaf) = elements.only_leaf() else { return Err(Declined::TooLarge) };
            builder.load(leaf);
            let attributes = kept(&item);
            guard.publish_leaf(to, builder, &attributes, Token::Next(None), expect)
        })
    }

    /// Lends the worker's builder.
    fn with_builder<R>(&mut self, run: impl FnOnce(&mut Self, &mut Builder) -> R) -> R {
        self.local.breathe(self.store);
        let mut builder = std::mem::take(&mut self.local.builder);
        let done = run(self, &mut builder);
        self.local.builder = builder;
        done
    }
}
