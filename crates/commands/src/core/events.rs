//! Keyspace events: messages about what happens to keys, for clients that subscribe to them.
//!
//! ```text
//! __keyspace@0__:mykey   del          (K)
//! __keyevent@0__:del     mykey        (E)
//! ```
//!
//! While any class is wanted, the keys of a writing command of either protocol are looked at before and after it. The
//! difference says what happened, and [`Change`] its name, which is Redis's. The store notes what it does by itself (expire,
//! evict), and the next worker that ends a batch publishes it. With nothing wanted it costs a look at one word for each
//! receive.
//!
//! This module has which events are wanted and how a change is called; `published` publishes them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use larder_store::{Event, Guard, Lookup, Store};

use super::watchers::{Looked, Watchers, stream};

/// Classes of events, by their letters; A stands for those before it.
const CLASSES: &[u8] = b"g$lshzxetdA";
const ALL: u32 = (1 << 10) - 1;
pub(super) const EXPIRED: u32 = Class::Expired as u32;
pub(super) const EVICTED: u32 = 1 << 7;
pub(super) const KEYSPACE: u32 = 1 << 16;
pub(super) const KEYEVENT: u32 = 1 << 17;
pub(super) const MISS: u32 = 1 << 18;
pub(super) const NEW: u32 = 1 << 19;

/// The class of an event that a command publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Class {
    /// Events of keys, whatever they have.
    Generic = 1 << 0,
    /// Events of strings.
    String = 1 << 1,
    /// Events of lists.
    List = 1 << 2,
    /// Events of sets.
    Set = 1 << 3,
    /// Events of hashes.
    Hash = 1 << 4,
    /// Events of sorted sets.
    SortedSet = 1 << 5,
    /// Events of keys whose time has passed.
    Expired = 1 << 6,
    /// Events of streams.
    Stream = 1 << 8,
}

/// A key was removed.
const DEL: (Class, &str) = (Class::Generic, "del");

/// Names of a command's changes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The class of a change of the value.
    pub class: Class,
    /// The name of a change of the value.
    pub name: &'static str,
    /// Class and name of the event that the key is gone.
    pub gone: (Class, &'static str),
    /// Whether a changed expiry of the key is published as an event of its own.
    pub tells_expiry: bool,
    /// Whether a key that is gone was changed until nothing was left of it: that change is published first.
    pub empties: bool,
}

impl Change {
    /// A value that has become another one.
    pub const SET: Change = Change::string("set");
    /// A value that is stored for a time which has passed: the key that was there is gone.
    pub const SET_LATE: Change = Change { gone: (Class::Expired, "expired"), ..Change::SET };
    /// Bytes that were added.
    pub const APPEND: Change = Change::string("append");
    /// A key that is removed or has another expiry; its value stays.
    pub const KEY: Change = Change::SET;
    /// A number that was added to.
    pub const INCRBY: Change = Change::string("incrby");

    /// A change of a string.
    pub const fn string(name: &'static str) -> Change {
        Change { class: Class::String, name, gone: DEL, tells_expiry: true, empties: false }
    }

    /// A change of a collection, which may leave nothing of it.
    pub const fn of(class: Class, name: &'static str) -> Change {
        Change { class, name, gone: DEL, tells_expiry: false, empties: true }
    }

    /// A collection that takes the place of whatever was there. If it is empty, nothing is left.
    pub const fn store(class: Class, name: &'static str) -> Change {
        Change { empties: false, ..Change::of(class, name) }
    }

    /// A key that came from elsewhere, its expiry with it.
    pub const fn made(name: &'static str) -> Change {
        Change { class: Class::Generic, name, gone: DEL, tells_expiry: false, empties: false }
    }
}

/// Bit of the mask: keys are looked at for memcached's watchers.
pub(super) const WATCHED: u32 = 1 << 31;

/// Which events are wanted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The events that were set, and [`WATCHED`].
    mask: AtomicU32,
    /// The events that were set.
    set: Mutex<u32>,
}

impl Events {
    /// Returns whether an event and a kind of channel to publish it on are wanted, or a watcher wants lines.
    #[inline]
    pub fn any(&self) -> bool {
        self.mask.load(Relaxed) != 0
    }

    pub(super) fn wants(&self, class: u32) -> bool {
        self.mask.load(Relaxed) & class != 0
    }

    /// Sets which events are wanted, by their letters.
    ///
    /// # Errors
    /// Says why the letters mean nothing.
    pub fn set(&self, store: &Store, watchers: &Watchers, letters: &str) -> Result<(), &'static str> {
        let mut mask = 0;
        for letter in letters.bytes() {
            mask |= match letter {
                b'A' => ALL,
                b'K' => KEYSPACE,
                b'E' => KEYEVENT,
                b'm' => MISS,
                b'n' => NEW,
                letter => match CLASSES.iter().position(|class| *class == letter) {
                    Some(class) => 1 << class,
                    None => return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
                },
            };
        }
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = mask;
        self.apply(store, watchers);
        Ok(())
    }

    /// Has workers and the store look for the events that were set, and for what is watched.
    pub(super) fn apply(&self, store: &Store, watchers: &Watchers) {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = if watchers.wants(stream::KEYS) { WATCHED } else { 0 };
        self.mask.store(*set | watched, Relaxed);
        let evicted = *set & EVICTED != 0 || watchers.wants(stream::EVICTIONS);
        let noted = [
            (*set & EXPIRED != 0, Event::Expired),
            (evicted, Event::Evicted),
            (*set & Class::Hash as u32 != 0, Event::FieldsExpired),
            (*set & Class::Generic as u32 != 0, Event::Emptied),
        ];
        let noted: Vec<Event> =
            noted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, event)| event).collect();
        store.note_events(&noted);
        store.note_givings(watchers.wants(stream::SYSEVENTS));
    }

    /// The letters of the wanted events.
    pub fn letters(&self) -> String {
        let mask = self.mask.load(Relaxed);
        let mut letters = String::new();
        if mask & ALL == ALL {
            letters.push('A');
        } else {
            let classes = CLASSES.iter().take(10).enumerate().filter(|(class, _)| mask >> class & 1 == 1);
            letters.extend(classes.map(|(_, letter)| char::from(*letter)));
        }
        for (bit, letter) in [(KEYSPACE, 'K'), (KEYEVENT, 'E'), (MISS, 'm'), (NEW, 'n')] {
            if mask & bit != 0 {
                letters.push(letter);
            }
        }
        letters
    }
}

/// A key's state: token and expiry of its item.
pub(crate) type Seen = Option<(u64, u64)>;

/// The state of a key of this database.
pub(crate) fn seen(guard: &mut Guard<'_>, db: u8, key: &[u8]) -> Seen {
    let key = guard.key_in(db, key);
    seen_at(guard.peek(&key))
}

/// The state of a key that a search found.
pub(crate) fn seen_at(found: Lookup<'_>) -> Seen {
    found.hit().map(|item| (item.cas(), item.expires_at()))
}

/// A key's state before the first of several steps of a command that are one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// The state that keyspace events are told by.
    pub seen: Seen,
    /// The state that `watch` shows.
    pub looked: Looked,
}

impl Before {
    /// The state of a key that was not there.
    pub fn absent() -> Before {
        Before { seen: None, looked: Looked::at(&Lookup::Miss) }
    }
}

/// Calls `tell` with class and name of each event that a change of a key makes.
pub(super) fn each_event(change: &Change, was: Seen, is: Seen, tell: &mut dyn FnMut(u32, &'static str)) {
    match (was, is) {
        (was, is) if was == is => {}
        (_, None) => {
            if change.empties {
                tell(change.class as u32, change.name);
            }
            let (class, name) = change.gone;
            tell(class as u32, name);
        }
        (was, Some((token, expires_at))) => {
            if was.is_none() {
                tell(NEW, "new");
            }
            if was.is_none_or(|(old, _)| old != token) {
                tell(change.class as u32, change.name);
            }
            let expired_at = was.map_or(0, |(_, at)| at);
            if expires_at != expired_at && expires_at != 0 && change.tells_expiry {
                tell(Class::Generic as u32, "expire");
            } else if expires_at == 0 && was.is_some_and(|(old, at)| old == token && at != 0) {
                tell(Class::Generic as u32, "persist");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_back_in_order() {
        let store = Store::new(larder_store::Config::default()).expect("a store");
        let (events, watchers) = (Events::default(), Watchers::default());
        for (set, told) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Ex", "xE"),
            ("g$lshzxetdK", "AK"),
            ("K$g", "g$K"),
            ("AKEmn", "AKEmn"),
        ] {
            events.set(&store, &watchers, set).expect(set);
            assert_eq!(events.letters(), told);
            assert_eq!(events.any(), !set.is_empty());
        }
        assert!(events.set(&store, &watchers, "Kq").is_err());
    }
}
