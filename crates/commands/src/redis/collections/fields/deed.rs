//! What is done with the fields that words name, of each of which something is replied (HGETDEL, HGETEX, HEXPIRE and its kin,
//! HPERSIST): with how many of them at a time, and what becomes of their hash. How one step does it is in `answers.rs`, and the
//! whole command in `doing.rs`.

use larder_protocol::resp::Args;
use larder_store::{Collection, Key, Lasting, Millis, Type};

use crate::core::events::{Change, Class, Seen};
use crate::redis::clock::When;
use crate::redis::collections::words::{FIELDS_FEW, SET_BYTES_MAX, WRITES_AT_ONCE, Write, values_at_once};
use crate::redis::collections::writing::SHORT_BYTES_MAX;
use crate::redis::collections::{Call, peek_as};
use crate::redis::fail::Fail;

/// What is done with the fields that words name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    /// Their values are replied, and they are taken out.
    Take,
    /// Their values are replied, and they last as long as is said.
    Get(Lasting),
    /// They expire at this time, if that holds of when they did.
    Expire(Millis, When),
    /// They expire no more.
    Persist,
}

impl Deed {
    /// It changes the hash, for which memory is wanted.
    pub fn writes(self) -> bool {
        match self {
            Deed::Get(lasting) => !matches!(lasting, Lasting::Keep),
            Deed::Take | Deed::Expire(..) | Deed::Persist => true,
        }
    }

    /// The time that fields get has passed.
    pub fn has_passed(self, now: Millis) -> bool {
        match self {
            Deed::Get(Lasting::Until(at)) | Deed::Expire(at, _) => at <= now,
            Deed::Take | Deed::Get(Lasting::Never | Lasting::Keep) | Deed::Persist => false,
        }
    }

    /// Fields with which it is done in one moment, at most, from the first on: of those whose values are replied, or given back,
    /// as many as have so many bytes together.
    ///
    /// # Errors
    /// The key has another type of value.
    pub fn at_once(
        self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        fields: Args<'_>,
    ) -> Result<usize, Fail> {
        if fields.len() <= FIELDS_FEW {
            return Ok(WRITES_AT_ONCE);
        }
        let told = match self {
            Deed::Expire(at, _) if at <= call.cx.now() => {
                return Ok(call.drops_at_once(key, fields, fields.len()));
            }
            Deed::Take | Deed::Get(_) => {
                let hash = peek_as(&mut call.cx.guard, key, Type::Hash)?;
                values_at_once(hash.as_ref(), (fields, fields.len()), SET_BYTES_MAX).max(1)
            }
            Deed::Expire(..) | Deed::Persist => WRITES_AT_ONCE,
        };
        let beside = match self {
            Deed::Get(Lasting::Keep) => WRITES_AT_ONCE,
            Deed::Take | Deed::Get(_) | Deed::Expire(..) | Deed::Persist => {
                call.beside_due(key, fields.len())
            }
        };
        Ok(told.min(beside))
    }

    /// It is done with all of these fields in one step, though they are more than in one of several: they are short, nothing in
    /// their hash lies apart, and the values that are replied have few bytes together.
    pub fn is_one_step(self, call: &mut Call<'_, '_, '_>, key: &Key<'_>, fields: Args<'_>) -> bool {
        if !call.are_one_step(Write::Drop, key, fields) {
            return false;
        }
        match self {
            Deed::Take | Deed::Get(_) => {
                call.spend_on_looks(fields.len());
                let hash = peek_as(&mut call.cx.guard, key, Type::Hash).unwrap_or(None);
                fields.map(|field| bytes_of(hash.as_ref(), field)).sum::<usize>() <= SHORT_BYTES_MAX
            }
            Deed::Expire(..) | Deed::Persist => true,
        }
    }
}

/// Bytes of a field's value; none if it is not there.
pub(super) fn bytes_of(hash: Option<&Collection<'_>>, field: &[u8]) -> usize {
    hash.and_then(|hash| hash.field(field)).map_or(0, |value| value.len())
}

/// What has become of a hash, for keyspace events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Become {
    pub timed: bool,
    pub persistent: bool,
    pub reduced: bool,
    /// Fields are gone since the time that they were given has come amid the command.
    expired: bool,
}

impl Become {
    /// How that is called.
    pub fn event(self) -> Option<&'static str> {
        let named = [(self.reduced, "hdel"), (self.timed, "hexpire"), (self.persistent, "hpersist")];
        named.into_iter().find(|(is, _)| *is).map(|(_, event)| event)
    }

    /// This became of it, too.
    pub fn add(&mut self, more: Become) {
        self.timed |= more.timed;
        self.persistent |= more.persistent;
        self.reduced |= more.reduced;
        self.expired |= more.expired;
    }

    /// Fields were given a time, which has come already: they are gone.
    pub fn expire(&mut self) {
        (self.timed, self.expired) = (true, true);
    }

    /// A key that was there and is not behind this has gone by itself: only where fields are taken out nothing may be left of it.
    pub fn loses_key(self, was_there: bool, is_there: bool) -> bool {
        was_there && !is_there && !self.reduced && !self.expired
    }

    /// Publishes it, by what the key was like before and is now.
    pub fn tell(self, call: &mut Call<'_, '_, '_>, name: &[u8], was: Seen, is: Seen) {
        let (true, Some(event), db) = (was != is, self.event(), call.client.db) else { return };
        if !self.expired {
            call.cx.tell_change(&Change::of(Class::Hash, event), db, name, was, is);
            return;
        }
        call.cx.tell(Class::Hash, event, db, name);
        call.cx.tell(Class::Hash, "hexpired", db, name);
        if is.is_none() {
            call.cx.tell(Class::Generic, "del", db, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_gone_behind_a_step_that_took_no_field_out_has_gone_by_itself() {
        let nothing = Become::default();
        let timed = Become { timed: true, ..nothing };
        let persistent = Become { persistent: true, ..nothing };
        let reduced = Become { reduced: true, ..timed };
        for done in [nothing, timed, persistent] {
            assert!(done.loses_key(true, false), "{done:?}");
            assert!(!done.loses_key(true, true) && !done.loses_key(false, false), "{done:?}");
        }
        // The last of its fields may have been among them.
        assert!(!reduced.loses_key(true, false));
        let mut expired = nothing;
        expired.expire();
        assert!(!expired.loses_key(true, false) && expired.event() == Some("hexpire"));
        // What earlier steps have taken out says nothing of this one.
        let mut all = reduced;
        all.add(persistent);
        assert!(all.timed && all.persistent && all.event() == Some("hdel"));
        assert!(!all.loses_key(true, false) && persistent.loses_key(true, false));
    }
}
