//! Deeds on fields, each of which has an answer (HGETDEL, HGETEX, HEXPIRE and its kin, HPERSIST): how many fields one moment
//! takes, and what becomes of their hash. `answers.rs` does one step, `doing.rs` the whole command.

use larder_protocol::resp::Args;
use larder_store::{Collection, Key, Lasting, Millis, Type};

use crate::core::events::{Change, Class, Seen};
use crate::redis::clock::When;
use crate::redis::collections::words::{FIELDS_FEW, SET_BYTES_MAX, WRITES_AT_ONCE, Write, values_at_once};
use crate::redis::collections::writing::SHORT_BYTES_MAX;
use crate::redis::collections::{Call, peek_as};
use crate::redis::fail::Fail;

/// What a command does with the fields that it names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    /// Replies their values, and takes them out.
    Take,
    /// Replies their values, and sets how long they last.
    Get(Lasting),
    /// Has them expire at this time, if the condition on their present expiry holds.
    Expire(Millis, When),
    /// Removes their expiry.
    Persist,
}

impl Deed {
    /// Whether it changes the hash, for which memory is wanted.
    pub fn writes(self) -> bool {
        match self {
            Deed::Get(lasting) => !matches!(lasting, Lasting::Keep),
            Deed::Take | Deed::Expire(..) | Deed::Persist => true,
        }
    }

    /// Whether the time that fields get has passed.
    pub fn has_passed(self, now: Millis) -> bool {
        match self {
            Deed::Get(Lasting::Until(at)) | Deed::Expire(at, _) => at <= now,
            Deed::Take | Deed::Get(Lasting::Never | Lasting::Keep) | Deed::Persist => false,
        }
    }

    /// How many of these fields, from the first on, one moment takes at most. Where values are replied, or freed, their bytes are
    /// bounded.
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

    /// Whether one step takes all of these fields, though they are more than one of several steps takes: they are short, nothing
    /// of their hash lies apart, and the replied values have few bytes together.
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

/// Bytes of a field's value; 0 if it is not there.
pub(super) fn bytes_of(hash: Option<&Collection<'_>>, field: &[u8]) -> usize {
    hash.and_then(|hash| hash.field(field)).map_or(0, |value| value.len())
}

/// What became of a hash, for keyspace events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Become {
    pub timed: bool,
    pub persistent: bool,
    pub reduced: bool,
    /// Fields have gone, since the time that they were given has passed.
    expired: bool,
}

impl Become {
    /// The name of the event.
    pub fn event(self) -> Option<&'static str> {
        let named = [(self.reduced, "hdel"), (self.timed, "hexpire"), (self.persistent, "hpersist")];
        named.into_iter().find(|(is, _)| *is).map(|(_, event)| event)
    }

    /// Adds what else became of it.
    pub fn add(&mut self, more: Become) {
        self.timed |= more.timed;
        self.persistent |= more.persistent;
        self.reduced |= more.reduced;
        self.expired |= more.expired;
    }

    /// Notes that fields were given a time that has passed: they are gone.
    pub fn expire(&mut self) {
        (self.timed, self.expired) = (true, true);
    }

    /// Whether a key has gone by itself: only removing fields may leave nothing of it.
    pub fn loses_key(self, was_there: bool, is_there: bool) -> bool {
        was_there && !is_there && !self.reduced && !self.expired
    }

    /// Publishes it. `was`, `is`: the key's state before, and now.
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
