//! Collections as wholes: made at once, and copied.

use super::build::{Full, NewEntry, lies_apart};
use super::change::{Declined, kept};
use super::tree::{EditContext, Growth};
use super::{Builder, Type};
use crate::item::RawItem;
use crate::read::Value;
use crate::worker::Guard;
use crate::write::Token;
use crate::{Attributes, Expect, Key, Millis, Refusal, Seen, Stored};

/// Bytes of a tree that is copied at once in some 0.5 ms. Longer ones are for [`Guard::load_copy`].
pub const COPIED_BYTES_MAX: u64 = 1 << 20;

/// An entry of a collection that is made.
#[derive(Clone, Copy, Debug)]
pub struct Made<'p> {
    /// The field, member or element.
    pub name: &'p [u8],
    /// A field's value; empty in other collections.
    pub value: &'p [u8],
    /// A member's score, which is a number; 0 in other collections.
    pub score: f64,
    /// When a field expires; 0 for never, and in other collections.
    pub expires_at: Millis,
}

impl Guard<'_> {
    /// Makes a collection of these entries, one at least, and stores it in place of whatever the key has. No two fields or
    /// members have one name; members of a sorted set come in their order.
    ///
    /// # Errors
    /// The inner one: what was expected and was not so, or no memory. [`Declined::TooLarge`]: an element is. Nothing is done
    /// then.
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
            let mut entries = entries.peekable();
            while let Some(&Made { name, value, score, expires_at }) = entries.peek()
                && !lies_apart(kind, name, value)
            {
                let tag = if kind == Type::List { 0 } else { guard.store.tag_of(name) };
                debug_assert!(kind == Type::List || builder.leaf().find(name, tag).is_none(), "a name twice");
                let end = builder.leaf().len();
                match builder.insert(end, NewEntry { tag, name, value, score }) {
                    Ok(()) => {
                        if expires_at != 0 {
                            builder.set_time(end, expires_at);
                        }
                        entries.next();
                    }
                    Err(Full) if end == 0 && kind != Type::List => return Err(Declined::TooLarge),
                    Err(Full) => break,
                }
            }
            assert!(!builder.is_empty() || entries.peek().is_some(), "no collection is empty");
            if entries.peek().is_none() && !builder.is_for_tree(key.collection_bytes_max()) {
                return guard.publish_leaf(key, builder, attributes, Token::Next(None), expect);
            }
            guard.tree_store((key, expect), builder, entries, attributes)
        })
    }

    /// [`Guard::collection_store`] of what is in `builder`, and more, as a tree.
    fn tree_store<'p>(
        &mut self,
        (key, expect): (&Key<'_>, Expect),
        builder: &Builder,
        entries: impl Iterator<Item = Made<'p>>,
        attributes: &Attributes,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        let (store, kind) = (self.store, builder.kind());
        let mut edit = std::mem::take(&mut self.local.edit);
        edit.hold();
        edit.growth = match kind {
            Type::SortedSet | Type::List | Type::Stream => Growth::Back,
            Type::Hash | Type::Set => Growth::Within,
        };
        let mut cx = EditContext { store, local: &mut *self.local, key };
        let filled = edit.plant(&mut cx, builder).and_then(|()| edit.put_many(&mut cx, kind, entries));
        let done = match filled {
            Ok(()) => Ok(self.publish_tree(key, kind, &mut edit, attributes, expect)),
            Err(declined) => {
                edit.give_up(store, self.local);
                if declined == Declined::NoMemory { Ok(Err(Refusal::NoMemory)) } else { Err(declined) }
            }
        };
        edit.let_go(self.store);
        self.local.edit = edit;
        done
    }

    /// Stores what the collection of `from` has under `to`, with its expiry, in place of whatever is there.
    ///
    /// # Errors
    /// The inner one: [`Refusal::Type`] if `from` has no collection, what was expected of `to` and was not so, or no
    /// memory. [`Declined::TooLarge`]: it would be longer than a chunk under the longer key. Nothing is done then.
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
            let attributes = kept(&item);
            let Some(leaf) = elements.only_leaf() else {
                return guard.tree_copy(from, to, expect);
            };
            builder.load(leaf);
            guard.publish_leaf(to, builder, &attributes, Token::Next(None), expect)
        })
    }

    /// Moves the collection of `from`, which has none then, to `to`, with its expiry, in place of whatever is there. Both are
    /// held in a transaction. A tree keeps its nodes: only its root is made anew, however large it is.
    ///
    /// # Errors
    /// Those of [`Guard::collection_copy`].
    pub fn collection_carry(
        &mut self,
        from: &Key<'_>,
        to: &Key<'_>,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        debug_assert!(self.in_transaction(), "nobody finds it in two places");
        let done = match self.peek(from).hit() {
            Some(item) if item.raw.header().is_tree() => {
                let (raw, seen, attributes) = (item.raw, item.seen(), kept(&item));
                return Ok(self.tree_carry((from, raw, seen), to, &attributes, expect));
            }
            _ => self.collection_copy(from, to, expect)?,
        };
        if done.is_ok() {
            // It was there a moment ago, and is held.
            let _ = self.delete(from, Expect::Present);
        }
        Ok(done)
    }

    /// As [`Guard::collection_carry`], for a tree: its root is made anew for the other key, to
    /// which the nodes belong from then on.
    ///
    /// 1. No worker moves a node of a key that is held, or spared.
    /// 2. From the moment on that the number leads to the other key, no sweep finds the owner of a node, until that key
    ///    has it.
    /// 3. The old root goes without its nodes, in the same epoch: a reader that finds it until then finds them.
    fn tree_carry(
        &mut self,
        (from, raw, seen): (&Key<'_>, RawItem, Seen),
        to: &Key<'_>,
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        let (store, kind) = (self.store, Type::of_form(raw.header().form()));
        let mut edit = std::mem::take(&mut self.local.edit);
        edit.hold();
        self.spare(Some(from));
        // SAFETY: it was found a moment ago, in this epoch.
        unsafe { edit.load(raw, seen) };
        edit.leave_base();
        store.trees.name(edit.number(), to.hash);
        let done = self.publish_tree(to, kind, &mut edit, attributes, expect);
        match done {
            Ok(_) => {
                let old = self.peek(from).hit().map_or(0, |item| item.slot.location());
                self.local.leaving = [old, 0];
                let _ = self.delete(from, Expect::Present);
                self.local.leaving = [0; 2];
            }
            Err(_) => store.trees.name(edit.number(), from.hash),
        }
        self.spare(None);
        edit.let_go(self.store);
        self.local.edit = edit;
        done
    }

    /// [`Guard::collection_copy`] of one that is a tree, or was.
    fn tree_copy(
        &mut self,
        from: &Key<'_>,
        to: &Key<'_>,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        let store = self.store;
        let mut edit = std::mem::take(&mut self.local.edit);
        edit.hold();
        self.spare(Some(from));
        let done = loop {
            let Some(item) = self.peek(from).hit().filter(|item| item.raw.header().is_tree()) else {
                break Ok(Err(Refusal::Changed));
            };
            if 2 * item.value_bytes() > store.memory_bytes() {
                // Both will never be there at once: that is not found out by trying.
                break Ok(Err(Refusal::NoMemory));
            }
            let (raw, seen, attributes) = (item.raw, item.seen(), kept(&item));
            let kind = Type::of_form(raw.header().form());
            let mut cx = EditContext { store: self.store, local: &mut *self.local, key: from };
            // SAFETY: it was found a moment ago, in this epoch.
            match unsafe { edit.plant_copy(&mut cx, (raw, seen), to.hash) } {
                Ok(()) => break Ok(self.publish_tree(to, kind, &mut edit, &attributes, expect)),
                Err(declined) => {
                    edit.give_up(self.store, self.local);
                    if !edit.overtaken {
                        break Err(declined);
                    }
                }
            }
        };
        self.spare(None);
        edit.let_go(self.store);
        self.local.edit = edit;
        done
    }

    /// Lends the worker's builder.
    pub(super) fn with_builder<R>(&mut self, run: impl FnOnce(&mut Self, &mut Builder) -> R) -> R {
        self.local.leave_if_due(self.store);
        let mut builder = std::mem::take(&mut self.local.builder);
        let done = run(self, &mut builder);
        self.local.builder = builder;
        done
    }
}
