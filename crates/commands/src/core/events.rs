//! Keyspace events: messages about what happens to keys, for those who subscribe to them.
//!
//! ```text
//! __keyspace@0__:mykey   del          (K)
//! __keyevent@0__:del     mykey        (E)
//! ```
//!
//! While any class is wanted, a writing command's keys are looked at before and after it, of either
//! protocol: what changed says what happened, and [`Change`] how it is called, as Redis names it. What the store does
//! by itself (expire, evict) it notes, and whoever ends a batch next tells it. With nothing wanted it costs a look at
//! one word for each receive.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use larder_store::{Event, Guard, Store};

use super::host::Host;
use super::shared::Shared;

/// Classes of events, by their letters; A stands for those before it.
const CLASSES: &[u8] = b"g$lshzxetdA";
const ALL: u32 = (1 << 10) - 1;
const EXPIRED: u32 = 1 << 6;
const EVICTED: u32 = 1 << 7;
const KEYSPACE: u32 = 1 << 16;
const KEYEVENT: u32 = 1 << 17;
const MISS: u32 = 1 << 18;
const NEW: u32 = 1 << 19;

/// The class of an event that a command tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Class {
    /// Of keys whatever they have.
    Generic = 1 << 0,
    /// Of strings.
    String = 1 << 1,
    /// Of lists.
    List = 1 << 2,
    /// Of sets.
    Set = 1 << 3,
    /// Of hashes.
    Hash = 1 << 4,
    /// Of sorted sets.
    SortedSet = 1 << 5,
}

/// How a command's changes of a key are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The class of a change of the value.
    pub class: Class,
    /// What a change of the value is called.
    pub name: &'static str,
    /// What it is called that the key is gone.
    pub gone: &'static str,
    /// That the key has another expiry is told besides.
    pub tells_expiry: bool,
    /// A key that is gone was changed until nothing was left of it: that is told first.
    pub empties: bool,
}

impl Change {
    /// A value that has become another one.
    pub const SET: Change = Change::string("set");
    /// Bytes that were added.
    pub const APPEND: Change = Change::string("append");
    /// A key that goes or has another expiry, its value being what it was.
    pub const KEY: Change = Change::SET;
    /// A number that was added to.
    pub const INCRBY: Change = Change::string("incrby");

    /// A change of a string.
    pub const fn string(name: &'static str) -> Change {
        Change { class: Class::String, name, gone: "del", tells_expiry: true, empties: false }
    }

    /// A change of a collection, which may be its end.
    pub const fn of(class: Class, name: &'static str) -> Change {
        Change { class, name, gone: "del", tells_expiry: false, empties: true }
    }

    /// A collection that takes the place of whatever was there, or, if it is empty, of which nothing is left.
    pub const fn store(class: Class, name: &'static str) -> Change {
        Change { empties: false, ..Change::of(class, name) }
    }

    /// A key that came from elsewhere, its expiry with it.
    pub const fn made(name: &'static str) -> Change {
        Change { class: Class::Generic, name, gone: "del", tells_expiry: false, empties: false }
    }
}

/// Which events are wanted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    mask: AtomicU32,
}

impl Events {
    /// Some event is wanted, and a way to tell it.
    #[inline]
    pub fn any(&self) -> bool {
        self.mask.load(Relaxed) != 0
    }

    fn wants(&self, class: u32) -> bool {
        self.mask.load(Relaxed) & class != 0
    }

    /// Sets what is wanted, by its letters.
    ///
    /// # Errors
    /// Why the letters mean nothing.
    pub fn set(&self, store: &Store, letters: &str) -> Result<(), &'static str> {
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
        self.mask.store(mask, Relaxed);
        let noted = [(EXPIRED, Event::Expired), (EVICTED, Event::Evicted)];
        let noted: Vec<Event> =
            noted.into_iter().filter(|(class, _)| mask & class != 0).map(|(_, event)| event).collect();
        store.note_events(&noted);
        Ok(())
    }

    /// The letters of what is wanted.
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

impl Shared {
    /// Tells that something of this class and name has happened to a key.
    pub(crate) fn tell(&self, host: &dyn Host, class: Class, event: &str, db: u8, key: &[u8]) {
        self.tell_of(host, class as u32, event, db, key);
    }

    fn tell_of(&self, host: &dyn Host, class: u32, event: &str, db: u8, key: &[u8]) {
        if !self.events.wants(class) {
            return;
        }
        if self.events.wants(KEYSPACE) {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            self.topics.publish(host, &channel, event.as_bytes());
        }
        if self.events.wants(KEYEVENT) {
            self.topics.publish(host, format!("__keyevent@{db}__:{event}").as_bytes(), key);
        }
    }

    /// Tells what the store did by itself since this worker was last asked: a conversation does it at the end of a receive,
    /// upkeep has to.
    #[inline]
    pub fn tell_events(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        if guard.has_events() {
            guard.take_events(&mut |event, db, key| match event {
                Event::Expired => self.tell_of(host, EXPIRED, "expired", db, key),
                Event::Evicted => self.tell_of(host, EVICTED, "evicted", db, key),
            });
        }
    }
}

/// What a key was like: token and expiry of its item.
pub(crate) type Seen = Option<(u64, u64)>;

/// What a key of this database is like.
pub(crate) fn seen(guard: &mut Guard<'_>, db: u8, key: &[u8]) -> Seen {
    let key = guard.key_in(db, key);
    guard.peek(&key).hit().map(|item| (item.cas(), item.expires_at()))
}

impl Shared {
    /// Tells what has happened to a key, by what it was like before.
    pub(crate) fn tell_change(
        &self,
        host: &dyn Host,
        change: &Change,
        db: u8,
        key: &[u8],
        was: Seen,
        is: Seen,
    ) {
        let tell = |class: Class, event| self.tell(host, class, event, db, key);
        match (was, is) {
            (was, is) if was == is => {}
            (_, None) => {
                if change.empties {
                    tell(change.class, change.name);
                }
                tell(Class::Generic, change.gone);
            }
            (was, Some((token, expires_at))) => {
                if was.is_none() && self.events.wants(NEW) {
                    self.tell_of(host, NEW, "new", db, key);
                }
                if was.is_none_or(|(old, _)| old != token) {
                    tell(change.class, change.name);
                }
                let expired_at = was.map_or(0, |(_, at)| at);
                if expires_at != expired_at && expires_at != 0 && change.tells_expiry {
                    tell(Class::Generic, "expire");
                } else if expires_at == 0 && was.is_some_and(|(old, at)| old == token && at != 0) {
                    tell(Class::Generic, "persist");
                }
            }
        }
    }

    /// Tells that a key was asked for and is not there.
    pub(crate) fn tell_miss(&self, host: &dyn Host, db: u8, key: &[u8]) {
        self.tell_of(host, MISS, "keymiss", db, key);
    }

    /// Misses are wanted.
    pub(crate) fn tells_misses(&self) -> bool {
        self.events.wants(MISS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_back_in_order() {
        let store = Store::new(larder_store::Config::default()).expect("a store");
        let events = Events::default();
        for (set, told) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Ex", "xE"),
            ("g$lshzxetdK", "AK"),
            ("K$g", "g$K"),
            ("AKEmn", "AKEmn"),
        ] {
            events.set(&store, set).expect(set);
            assert_eq!(events.letters(), told);
            assert_eq!(events.any(), !set.is_empty());
        }
        assert!(events.set(&store, "Kq").is_err());
    }
}
