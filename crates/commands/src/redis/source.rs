//! What a command in steps reads: a value as it was when it began, and whether it is still so.

use larder_store::{Attributes, Database, Expect, Key, Pinned, Value};

use crate::redis::call::{Call, kept};
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
pub(crate) use crate::redis::kept::Name;

impl Name {
    pub fn of(call: &Call<'_, '_, '_>, db: u8, key: &Key<'_>) -> Name {
        Name { db, database: call.cx.guard.database(db), key: key.bytes().into(), _held: None }
    }

    /// The name of a key of the selected database, charged: many clients may keep one from one step to the next. A key
    /// that was made before is to be made anew ([`Name::key`]).
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn kept(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Result<Name, Fail> {
        let held = Heap::keep(call, name.len())?;
        let named = Name::of(call, call.client.db, &call.key(name));
        Ok(Name { _held: Some(held), ..named })
    }

    /// The same where it is not refused: what was taken of the key is nowhere else. `database`: what that of its name meant then.
    pub fn charged(call: &mut Call<'_, '_, '_>, name: &[u8], database: Database) -> Name {
        let held = Heap::charge(call, name.len());
        let named = Name::of(call, call.client.db, &call.key(name));
        Name { database, _held: Some(held), ..named }
    }

    pub fn key<'k>(&'k self, call: &Call<'_, '_, '_>) -> Key<'k> {
        call.cx.guard.key_in(self.db, &self.key)
    }

    /// Has it mean the same key of the database that has its number now.
    pub fn anew(&mut self, call: &Call<'_, '_, '_>) {
        self.database = call.cx.guard.database(self.db);
    }

    /// The database was swapped for another.
    pub fn is_swapped(&self, call: &Call<'_, '_, '_>) -> bool {
        call.cx.guard.database(self.db) != self.database
    }
}

/// A key's value, pinned or, if it is small, copied; or that there is none.
#[derive(Debug)]
pub(crate) struct Source {
    pub name: Name,
    pinned: Option<Pinned>,
    copied: Vec<u8>,
    /// What it is known by.
    pub expect: Expect,
    /// What goes with it.
    pub attributes: Attributes,
}

impl Source {
    /// The value of a key, without a trace.
    pub fn read(call: &mut Call<'_, '_, '_>, name: Name) -> Source {
        let key = name.key(call);
        let (mut pinned, mut copied) = (None, Vec::new());
        let (expect, attributes) = match call.cx.guard.peek(&key).hit() {
            Some(item) => {
                // First what was seen: the bytes may be newer than that, never older.
                let seen = item.seen();
                match item.value() {
                    Value::Pieces(value) => pinned = Some(value.pin()),
                    Value::Whole(value) => copied.extend_from_slice(value),
                    Value::Collection(_) => {}
                }
                (Expect::Unchanged(seen), kept(&item))
            }
            None => (Expect::Absent, Attributes::default()),
        };
        Source { name, pinned, copied, expect, attributes }
    }

    /// Bytes of the value.
    pub fn bytes(&self) -> u64 {
        self.pinned.as_ref().map_or(self.copied.len() as u64, Pinned::value_bytes)
    }

    /// Some of its bytes from `from` on; none at the end.
    pub fn piece(&self, from: u64) -> &[u8] {
        if from >= self.bytes() {
            return &[];
        }
        match &self.pinned {
            Some(pinned) => pinned.pieces(from).next().unwrap_or_default(),
            None => &self.copied[from as usize..],
        }
    }

    /// The key still has what was read.
    pub fn is_there(&self, call: &mut Call<'_, '_, '_>) -> bool {
        let key = self.name.key(call);
        let same = match call.cx.guard.peek(&key).hit() {
            Some(item) => {
                // The pin keeps its place from being another's; what is not pinned is compared.
                let same = match item.value() {
                    Value::Whole(value) => value == self.copied,
                    Value::Pieces(_) => true,
                    Value::Collection(_) => false,
                };
                same && self.expect == Expect::Unchanged(item.seen())
            }
            None => self.expect == Expect::Absent,
        };
        same && !self.name.is_swapped(call)
    }

    /// Holds the value no more.
    pub fn let_go(&mut self) {
        (self.pinned, self.copied) = (None, Vec::new());
    }
}
