//! Collections that are made over several batches: of entries that come some at a time, or as a copy of another.
//!
//! ```text
//! begin ─▶ fill │ copy, some at a time ─▶ … ─▶ finish, some at a time ─▶ publish
//!                                                └── dropped: upkeep takes back what was made
//! ```
//!
//! No reader sees it until it is published, and sweeps pass it over. It lies in chunks as any collection does: they count
//! against the memory limit, and others give way to it. What it notes of them on the heap the caller charges
//! ([`BulkLoad::heap_bytes`]).

use super::build::{Builder, Full, NewEntry, lies_apart};
use super::change::Declined;
use super::tree::{CopyCursor, Edit, EditContext, Growth, LateMembers};
use super::{Made, Type};
use crate::read::Value;
use crate::worker::Guard;
use crate::write::Token;
use crate::{Attributes, Expect, Key, Refusal, Store, Stored};
use std::sync::Arc;

/// A collection that is not published yet may take one part in so many of the memory: as others give way to it, all would be
/// gone before it is found out that it has no room.
const MEMORY_SHARE: u64 = 2;
/// Nodes that are finished at a time: some 0.05 ms.
const FINISHED_AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 7 } else { 512 };

/// A collection on its way in. Dropping it gives its memory back, in steps of upkeep.
#[derive(Debug)]
pub struct BulkLoad {
    store: Arc<Store>,
    kind: Type,
    /// All of it, as long as it is no tree.
    builder: Builder,
    edit: Edit,
    /// It is a tree.
    planted: bool,
    copied: CopyCursor,
    late: Late,
}

/// What becomes of the members tree of a sorted set.
#[derive(Debug)]
enum Late {
    /// It is there with the other one, or is none.
    Never,
    /// It is made when all is put in.
    ByAndBy,
    /// It is being made.
    Begun(Box<LateMembers>),
}

/// What a step of a copy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// There is more to copy.
    More,
    /// All is copied.
    All,
    /// The key has not that version any more.
    Changed,
}

impl BulkLoad {
    /// A collection of nothing yet.
    pub fn new(store: &Arc<Store>, kind: Type) -> BulkLoad {
        let mut builder = Builder::default();
        builder.start(kind);
        BulkLoad {
            store: Arc::clone(store),
            kind,
            builder,
            edit: Edit::default(),
            planted: false,
            copied: CopyCursor::default(),
            late: Late::Never,
        }
    }

    /// Fields, members or elements by now.
    pub fn len(&self) -> usize {
        if self.planted { self.edit.elements as usize } else { self.builder.leaf().len() }
    }

    /// It has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The builder, which has all of it until it is a tree, and then the tree.
    pub(super) fn parts(&self) -> (&Builder, Option<&Edit>) {
        (&self.builder, self.planted.then_some(&self.edit))
    }

    pub(super) fn is_planted(&self) -> bool {
        self.planted
    }

    pub(super) fn builder_mut(&mut self) -> &mut Builder {
        &mut self.builder
    }

    pub(super) fn edit_mut(&mut self) -> &mut Edit {
        &mut self.edit
    }

    /// True if it takes more of so much memory than a collection may that is not published yet.
    pub(super) fn is_beyond(&self, memory_bytes: u64) -> bool {
        MEMORY_SHARE * self.edit.bytes() > memory_bytes
    }

    /// Bytes of its chunks by now; 0 as long as it has none.
    pub fn bytes(&self) -> u64 {
        if self.planted { self.edit.bytes() } else { 0 }
    }

    /// Bytes of the heap that go with it and grow with it, about.
    pub fn heap_bytes(&self) -> usize {
        let late = match self.late {
            Late::Never => 0,
            Late::ByAndBy | Late::Begun(_) => LateMembers::heap_bytes(self.edit.elements),
        };
        self.edit.heap_bytes() + self.copied.heap_bytes() + late
    }
}

impl Drop for BulkLoad {
    fn drop(&mut self) {
        if self.planted {
            self.edit.abandon(&self.store);
        }
    }
}

impl Guard<'_> {
    /// Puts some entries in: to the end of a list, elsewhere in any order. `key` is the one that will have it.
    ///
    /// # Errors
    /// [`Declined::Twice`]: a field or a member is there already; of a sorted set that may be found only when it is finished.
    /// [`Declined::TooLarge`]: an entry is too large. [`Declined::NoMemory`]. After an error the load is of no use.
    ///
    /// # Panics
    /// If it is of another store, or finished.
    pub fn load_fill<'p>(
        &mut self,
        load: &mut BulkLoad,
        key: &Key<'_>,
        entries: impl Iterator<Item = Made<'p>>,
    ) -> Result<(), Declined> {
        self.assert_own_load(load);
        let is_filled = load.edit.is_shown() || matches!(load.late, Late::Begun(_));
        assert!(!is_filled, "what is finished stays as it is");
        self.local.leave_if_due(self.store);
        let BulkLoad { kind, builder, planted, .. } = &mut *load;
        let mut entries = entries.peekable();
        if !*planted {
            while let Some(&Made { name, value, score, expires_at }) = entries.peek()
                && !lies_apart(*kind, name, value)
            {
                let leaf = builder.leaf();
                let tag = if *kind == Type::List { 0 } else { self.store.tag_of(name) };
                if *kind != Type::List && leaf.find(name, tag).is_some() {
                    return Err(Declined::Twice);
                }
                let at = if *kind == Type::SortedSet { leaf.place(score, name) } else { leaf.len() };
                match builder.insert(at, NewEntry { tag, name, value, score }) {
                    Ok(()) => {
                        if expires_at != 0 {
                            builder.set_time(at, expires_at);
                        }
                        entries.next();
                    }
                    Err(Full) if builder.is_empty() && *kind != Type::List => return Err(Declined::TooLarge),
                    Err(Full) => break,
                }
            }
            if entries.peek().is_none() && !builder.is_for_tree(key.collection_bytes_max()) {
                return Ok(());
            }
            self.plant_load(load, key, false)?;
        }
        let BulkLoad { kind, edit, .. } = load;
        let mut cx = EditContext { store: self.store, local: &mut *self.local, key };
        edit.put_each_once(&mut cx, *kind, entries)?;
        if load.is_beyond(self.store.memory_bytes()) { Err(Declined::NoMemory) } else { Ok(()) }
    }

    /// Makes a tree of what is in the builder; `whole`: nothing else is put in.
    pub(super) fn plant_load(
        &mut self,
        load: &mut BulkLoad,
        key: &Key<'_>,
        whole: bool,
    ) -> Result<(), Declined> {
        let BulkLoad { kind, builder, edit, planted, late, .. } = load;
        edit.growth = match kind {
            Type::SortedSet | Type::List | Type::Stream => Growth::Back,
            Type::Hash | Type::Set => Growth::Within,
        };
        // Whatever becomes of it, it has a number from here on, and perhaps nodes.
        *planted = true;
        let mut cx = EditContext { store: self.store, local: &mut *self.local, key };
        if whole {
            return edit.plant(&mut cx, builder);
        }
        if *kind == Type::SortedSet {
            *late = Late::ByAndBy;
        }
        edit.plant_elements(&mut cx, builder)
    }

    /// Copies some of the collection of `from`, which is a tree of this version: a lowest inner node with its leaves, some
    /// 0.05 ms. If its last element lies apart, all parts of that come with it: 5 MiB at most, 2.5 ms. `to` is the key that
    /// will have the copy.
    ///
    /// # Errors
    /// [`Declined::NoMemory`], and nothing was copied this time: it may be called again.
    ///
    /// # Panics
    /// If it is of another store, or something was put in.
    pub fn load_copy(
        &mut self,
        load: &mut BulkLoad,
        (from, version): (&Key<'_>, u64),
        to: &Key<'_>,
    ) -> Result<Copied, Declined> {
        let store = self.store;
        self.assert_own_load(load);
        assert!(load.builder.is_empty(), "a copy has nothing but what is copied");
        self.local.leave_if_due(self.store);
        self.spare(Some(from));
        let done = loop {
            let Some(item) = self.peek(from).hit().filter(|item| item.cas() == version) else {
                break Ok(Copied::Changed);
            };
            if !item.raw.header().is_tree() {
                break Ok(Copied::Changed);
            }
            let Value::Collection(there) = item.value() else { break Ok(Copied::Changed) };
            if there.kind() != load.kind {
                break Ok(Copied::Changed);
            }
            if MEMORY_SHARE * item.value_bytes() > store.memory_bytes() {
                break Err(Declined::NoMemory);
            }
            let (raw, seen) = (item.raw, item.seen());
            let BulkLoad { edit, copied, planted, .. } = &mut *load;
            let mut cx = EditContext { store, local: &mut *self.local, key: from };
            if !std::mem::replace(planted, true) {
                edit.begin_copy(&mut cx, to.hash);
            }
            // SAFETY: it was found a moment ago, in this epoch: a tree.
            match unsafe { edit.copy_next(&mut cx, (raw, seen), copied) } {
                Ok(true) => break Ok(Copied::All),
                Ok(false) => break Ok(Copied::More),
                Err(_) if edit.overtaken => {}
                Err(declined) => break Err(declined),
            }
        };
        self.spare(None);
        done
    }

    /// Finishes some of what is to be published, some 0.05 ms; true when all is finished. Nothing
    /// may be put in any more. `key` is the one that will have it.
    ///
    /// # Errors
    /// [`Declined::Twice`]: a member of a sorted set is there twice. [`Declined::NoMemory`]. After
    /// an error the load is of no use.
    ///
    /// # Panics
    /// If it is of another store.
    pub fn load_finish(&mut self, load: &mut BulkLoad, key: &Key<'_>) -> Result<bool, Declined> {
        self.assert_own_load(load);
        let BulkLoad { planted, edit, late, .. } = load;
        if !*planted {
            return Ok(true);
        }
        if matches!(late, Late::ByAndBy) {
            *late = Late::Begun(Box::new(LateMembers::new(edit.elements)));
        }
        if let Late::Begun(members) = late {
            self.local.leave_if_due(self.store);
            let mut cx = EditContext { store: self.store, local: &mut *self.local, key };
            let done = edit.make_members(&mut cx, members)?;
            if MEMORY_SHARE * edit.bytes() > self.store.memory_bytes() {
                return Err(Declined::NoMemory);
            }
            if done {
                *late = Late::Never;
            }
            return Ok(false);
        }
        Ok(edit.show(self.store, FINISHED_AT_ONCE))
    }

    /// Publishes it as the collection of a key, in place of whatever the key has. It has an entry.
    ///
    /// # Errors
    /// Those of [`Guard::collection_store`], and of [`Guard::load_finish`] if it is not finished;
    /// what was made is given back then.
    ///
    /// # Panics
    /// If it is of another store, or empty.
    pub fn load_publish(
        &mut self,
        mut load: BulkLoad,
        key: &Key<'_>,
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Declined> {
        self.assert_own_load(&load);
        assert!(!load.is_empty(), "no collection is empty");
        self.local.leave_if_due(self.store);
        if !load.planted {
            if !load.builder.is_for_tree(key.collection_bytes_max()) {
                return self.publish_leaf(key, &load.builder, attributes, Token::Next(None), expect);
            }
            self.plant_load(&mut load, key, true)?;
        }
        while !self.load_finish(&mut load, key)? {}
        // Its database may have another number by now.
        self.store.trees.name(load.edit.number(), key.hash);
        let done = self.publish_tree(key, load.kind, &mut load.edit, attributes, expect);
        load.planted = false;
        Ok(done)
    }

    /// Asserts that it is of this store, in whose arena its places are.
    fn assert_own_load(&self, load: &BulkLoad) {
        assert!(Arc::ptr_eq(&load.store, self.arc), "a collection is made in one store");
    }
}
