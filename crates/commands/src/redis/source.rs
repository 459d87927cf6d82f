//! What a command in steps reads: a value as it was when the command began, and whether it is still the same.

use larder_store::{Attributes, Database, Expect, Key, Pinned, Value};

use crate::redis::call::{Call, kept};
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
pub(crate) use crate::redis::kept::Name;

impl Name {
    pub fn of(call: &Call<'_, '_, '_>, db: u8, key: &Key<'_>) -> Name {
        Name { db, database: call.cx.guard.database(db), key: key.bytes().into(), _held: None }
    }

    /// Makes the name of a key in the selected database, and charges it: many clients may keep one from one step to the next.
    /// That may leave the batch: an earlier [`Key`] is to be made anew ([`Name::key`]).
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn kept(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Result<Name, Fail> {
        let held = Heap::keep(call, name.len())?;
        let named = Name::of(call, call.client.db, &call.key(name));
        Ok(Name { _held: Some(held), ..named })
    }

    /// As [`Name::kept`], but never refused: what was taken out of the key is nowhere else. `database`: the one that had this
    /// number then.
    pub fn charged(call: &mut Call<'_, '_, '_>, name: &[u8], database: Database) -> Name {
        let held = Heap::charge(call, name.len());
        let named = Name::of(call, call.client.db, &call.key(name));
        Name { database, _held: Some(held), ..named }
    }

    pub fn key<'k>(&'k self, call: &Call<'_, '_, '_>) -> Key<'k> {
        call.cx.guard.key_in(self.db, &self.key)
    }

    /// Makes it name the same key in the database that has its number now.
    pub fn anew(&mut self, call: &Call<'_, '_, '_>) {
        self.database = call.cx.guard.database(self.db);
    }

    /// Whether the database was swapped for another.
    pub fn is_swapped(&self, call: &Call<'_, '_, '_>) -> bool {
        call.cx.guard.database(self.db) != self.database
    }
}

/// A key's value, pinned or if it is small copied; or that there is none.
#[derive(Debug)]
pub(crate) struct Source {
    pub name: Name,
    pinned: Option<Pinned>,
    copied: Vec<u8>,
    /// What a write expects, if the value is unchanged.
    pub expect: Expect,
    /// The value's flags and expiry.
    pub attributes: Attributes,
}

impl Source {
    /// Reads the value of a key, without counting an access.
    pub fn read(call: &mut Call<'_, '_, '_>, name: Name) -> Source {
        let key = name.key(call);
        let (mut pinned, mut copied) = (None, Vec::new());
        let (expect, attributes) = match call.cx.guard.peek(&key).hit() {
            Some(item) => {
                // What was seen is read first: the bytes may be newer than that, never older.
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

    /// Some of its bytes from `from` on; empty at the end.
    pub fn piece(&self, from: u64) -> &[u8] {
        if from >= self.bytes() {
            return &[];
        }
        match &self.pinned {
            Some(pinned) => pinned.pieces(from).next().unwrap_or_default(),
            None => &self.copied[from as usize..],
        }
    }

    /// Whether the key still has this value.
    pub fn is_there(&self, call: &mut Call<'_, '_, '_>) -> bool {
        let key = self.name.key(call);
        let same = match call.cx.guard.peek(&key).hit() {
            Some(item) => {
                // The pin keeps a large value's place from being another's; a copied one is compared.
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

    /// Frees the value.
    pub fn let_go(&mut self) {
        (self.pinned, self.copied) = (None, Vec::new());
    }
}
