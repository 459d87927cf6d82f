//! Fields that expire: when each does, and what is taken out of a hash when its time has passed.
//!
//! ```text
//! read     a field whose time has passed is not there
//! write    fields of the same leaf whose time has passed go with it
//! due      what is due goes, some leaves at a time: before fields are counted, listed or drawn, and by upkeep
//! ```
//!
//! A value that lies apart may have very many parts. When it is due it loses its last ones first, so many at a time. Once some of
//! what was due has gone no reader finds any of it.
//!
//! A hash in which no field expires has none of this; a hash loses it with the last field that expires.

use super::Type;
use super::build::Builder;
use super::change::{Declined, Workpiece};
use crate::event::Event;
use crate::sync::atomic::Ordering;
use crate::worker::Guard;
use crate::{Key, Lookup, Millis, Store, Value};

/// Leaves from which a command takes what is due at a time: some 0.2 ms.
const LEAVES_AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 3 } else { 64 };
/// Nodes of long values that are freed with them: some 0.3 ms.
const NODES_AT_ONCE: usize = 2 << 10;
/// The same of a step of upkeep: some 40 µs each.
const UPKEEP_LEAVES: usize = 12;
const UPKEEP_NODES: usize = 256;
/// Steps of upkeep at a hash before its span is visited again: others' turn comes, too.
pub(crate) const UPKEEP_STEPS: u8 = 8;

/// How long a field lasts after it is given a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lasting {
    /// For ever.
    #[default]
    Never,
    /// As long as before; a new one for ever.
    Keep,
    /// Until this time, which has not passed.
    Until(Millis),
}

impl Lasting {
    /// Sets the time of field `i` in a leaf that is being built.
    #[inline]
    pub(super) fn note(self, builder: &mut Builder, i: usize) {
        match self {
            Lasting::Never => builder.set_time(i, 0),
            Lasting::Keep => {}
            Lasting::Until(at) => builder.set_time(i, at),
        }
    }
}

/// Which fields must be there for a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// No condition.
    #[default]
    Any,
    /// All are there.
    Present,
    /// None is there.
    Absent,
}

/// What came of giving a field a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// There is no such field.
    Absent,
    /// The condition does not hold for it.
    Unmet,
    /// It has the time.
    Set,
    /// The time has passed, and the field is gone.
    Removed,
}

/// What came of taking out fields of a hash that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing was due, or all of it is gone. That took about as long as making so many leaves anew.
    Done(usize),
    /// Some of it is gone, which took as long as so many leaves; there is more for the next time.
    More(usize),
}

impl Guard<'_> {
    /// Gives fields a value, in order, and says how long they last, if `asked` holds of all of them; returns whether it did.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn hash_set_lasting<'p>(
        &mut self,
        key: &Key<'_>,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
        asked: Fields,
        lasting: Lasting,
    ) -> Result<bool, Declined> {
        let changed = self.change_collection(key, Type::Hash, |hash| {
            let holds = match asked {
                Fields::Any => true,
                Fields::Present => pairs.clone().all(|(field, _)| hash.has(field)),
                Fields::Absent => !pairs.clone().any(|(field, _)| hash.has(field)),
            };
            if holds {
                hash.put_all(pairs.clone(), lasting)?;
            }
            Ok::<_, Declined>(holds)
        })?;
        Ok(changed.answer)
    }

    /// Has fields expire at `at`, those for which `holds` is true of the time they have (0: never). If `at` has passed they
    /// are taken out. `done` gets what came of each.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn hash_expire<'p>(
        &mut self,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'p [u8]> + Clone,
        at: Millis,
        holds: impl Fn(Millis) -> bool,
        done: &mut impl Extend<Timed>,
    ) -> Result<(), Declined> {
        let passed = at <= self.now;
        let mut all = std::mem::take(&mut self.local.timed);
        let change = |hash: &mut Workpiece<'_>| {
            all.clear();
            for field in fields.clone() {
                all.push(give(hash, field, at, passed, &holds)?);
            }
            Ok::<_, Declined>(())
        };
        // Times take room, and what is taken out gives some back.
        let changed = if passed {
            self.take_out_of_collection(key, Type::Hash, change)
        } else {
            self.change_collection(key, Type::Hash, change)
        };
        done.extend(all.drain(..));
        all.shrink_to(FIELDS_KEPT);
        self.local.timed = all;
        changed.map(drop)
    }

    /// Has fields expire no more. `done` gets what came of each: [`Timed::Unmet`] if it would not have expired.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn hash_persist<'p>(
        &mut self,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'p [u8]> + Clone,
        done: &mut impl Extend<Timed>,
    ) -> Result<(), Declined> {
        let mut all = std::mem::take(&mut self.local.timed);
        let changed = self.take_out_of_collection(key, Type::Hash, |hash| {
            all.clear();
            for field in fields.clone() {
                all.push(give(hash, field, 0, false, &|old| old != 0)?);
            }
            Ok::<_, Declined>(())
        });
        done.extend(all.drain(..));
        all.shrink_to(FIELDS_KEPT);
        self.local.timed = all;
        changed.map(drop)
    }

    /// Takes out fields of a hash whose time has passed, some leaves at a time; anything else stays as it is. The last field
    /// takes the key with it.
    ///
    /// # Errors
    /// [`Declined::NoMemory`], and nothing done.
    pub fn hash_take_due(&mut self, key: &Key<'_>) -> Result<Due, Declined> {
        self.hash_take_some_due(key, (LEAVES_AT_ONCE, NODES_AT_ONCE))
    }

    /// As [`Guard::hash_take_due`], of at most so many leaves, and fewer where so many nodes go with them.
    fn hash_take_some_due(&mut self, key: &Key<'_>, most: (usize, usize)) -> Result<Due, Declined> {
        let now = self.now;
        match self.peek(key) {
            Lookup::Hit(item) if item.raw.header().is_timed() => {
                let Value::Collection(there) = item.value() else { return Ok(Due::Done(0)) };
                if !there.elements_at(now).is_due() {
                    return Ok(Due::Done(0));
                }
            }
            Lookup::Hit(_) | Lookup::Miss | Lookup::Expired | Lookup::Flushed => return Ok(Due::Done(0)),
        }
        let taken = self.take_out_of_collection(key, Type::Hash, |hash| {
            let (all, leaves) = hash.drop_due(most)?;
            Ok::<_, Declined>((all, leaves, hash.len() == 0))
        });
        let (all, leaves, emptied) = match taken {
            Ok(changed) => changed.answer,
            // Another write has put something else there.
            Err(Declined::Type) => return Ok(Due::Done(0)),
            Err(declined) => return Err(declined),
        };
        if emptied {
            self.local.note_key(self.store, Event::Emptied, key);
        }
        Ok(if all { Due::Done(leaves) } else { Due::More(leaves) })
    }

    /// Counts fields that have expired, and notes the event.
    #[cold]
    pub(super) fn count_expired(&mut self, key: &Key<'_>, fields: u64) {
        self.counters.fields_expired.add(fields as i64);
        self.local.note_key(self.store, Event::FieldsExpired, key);
    }

    /// Takes some due fields out of one of the hashes that a visit of expiry has found; false if there was none.
    pub(crate) fn take_all_due(&mut self) -> bool {
        let Some((hash, location, steps)) = self.local.due.pop() else { return false };
        if hash == self.store.due_left.load(Ordering::Relaxed) {
            // Its span is visited again.
            return true;
        }
        let Some((number, name)) = self.store.name_at(hash, location) else { return true };
        let mut copy = std::mem::take(&mut self.local.copy);
        copy.clear();
        copy.extend_from_slice(name);
        let key = Key { hash, bytes: &copy, number };
        // Without memory this is tried again at the next visit of its span. Where more is due after
        // the last step, the hash as it then is has told its span so.
        let taken = self.hash_take_some_due(&key, (UPKEEP_LEAVES, UPKEEP_NODES));
        let now_at = match self.peek(&key) {
            Lookup::Hit(item) => Some(item.slot.location()),
            Lookup::Miss | Lookup::Expired | Lookup::Flushed => None,
        };
        if let (Ok(Due::More(_)), Some(location), 2..) = (taken, now_at, steps) {
            self.local.due.push((hash, location, steps - 1));
        }
        self.local.copy = copy;
        true
    }
}

impl Store {
    /// Has upkeep leave the due fields of the key with this hash alone, until it is called again; 0: of none. Commands on
    /// the key take them out all the same.
    pub fn leave_due(&self, hash: u64) {
        self.due_left.store(hash, Ordering::Relaxed);
    }
}

/// Room for so many answers is kept for the next command.
const FIELDS_KEPT: usize = 1 << 10;

/// Gives one field a time (0: never), if `holds` says so of the one that it has.
fn give(
    hash: &mut Workpiece<'_>,
    field: &[u8],
    at: Millis,
    passed: bool,
    holds: &impl Fn(Millis) -> bool,
) -> Result<Timed, Declined> {
    let Some(old) = hash.with(field, |leaf, i| leaf.time(i)) else { return Ok(Timed::Absent) };
    if !holds(old) {
        return Ok(Timed::Unmet);
    }
    if passed {
        hash.take(field)?;
        return Ok(Timed::Removed);
    }
    hash.set_time(field, at)?;
    Ok(Timed::Set)
}
