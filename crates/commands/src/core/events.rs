//! Keyspace events: messages about what happens to keys, for clients that subscribe to them.
//!
//! ```text
//! __keyspace@0__:mykey   del          (K)
//! __keyevent@0__:del     mykey        (E)
//! ```
//!
//! While any class is wanted, a writing command's keys are looked at before and after it, of either protocol: what changed says
//! what happened, and [`Change`] how it is called, as Redis names it. What the store does by itself (expire, evict) it notes, and
//! the next worker that ends a batch publishes it. With nothing wanted it costs a look at one word for each receive.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use larder_store::{Event, Guard, Lookup, Store};

use super::context::Context;
use super::host::Host;
use super::shared::Shared;
use super::telling::Happened;
use super::watchers::{Looked, Scene, Watchers, stream};

/// Classes of events, by their letters; A stands for those before it.
const CLASSES: &[u8] = b"g$lshzxetdA";
const ALL: u32 = (1 << 10) - 1;
const EXPIRED: u32 = Class::Expired as u32;
const EVICTED: u32 = 1 << 7;
const KEYSPACE: u32 = 1 << 16;
const KEYEVENT: u32 = 1 << 17;
const MISS: u32 = 1 << 18;
const NEW: u32 = 1 << 19;

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

/// How a command's changes of a key are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The class of a change of the value.
    pub class: Class,
    /// What a change of the value is called.
    pub name: &'static str,
    /// Class and name of the event that the key is gone.
    pub gone: (Class, &'static str),
    /// A changed expiry of the key is published as an event of its own.
    pub tells_expiry: bool,
    /// A key that is gone was changed until nothing was left of it: that change is published first.
    pub empties: bool,
}

impl Change {
    /// A value that has become another one.
    pub const SET: Change = Change::string("set");
    /// A value that is stored for a time which has passed: the key that was there is gone.
    pub const SET_LATE: Change = Change { gone: (Class::Expired, "expired"), ..Change::SET };
    /// Bytes that were added.
    pub const APPEND: Change = Change::string("append");
    /// A key that goes or has another expiry, its value being what it was.
    pub const KEY: Change = Change::SET;
    /// A number that was added to.
    pub const INCRBY: Change = Change::string("incrby");

    /// A change of a string.
    pub const fn string(name: &'static str) -> Change {
        Change { class: Class::String, name, gone: DEL, tells_expiry: true, empties: false }
    }

    /// A change of a collection, which may be its end.
    pub const fn of(class: Class, name: &'static str) -> Change {
        Change { class, name, gone: DEL, tells_expiry: false, empties: true }
    }

    /// A collection that takes the place of whatever was there, or, if it is empty, of which nothing is left.
    pub const fn store(class: Class, name: &'static str) -> Change {
        Change { empties: false, ..Change::of(class, name) }
    }

    /// A key that came from elsewhere, its expiry with it.
    pub const fn made(name: &'static str) -> Change {
        Change { class: Class::Generic, name, gone: DEL, tells_expiry: false, empties: false }
    }
}

/// Keys are looked at for memcached's watchers.
const WATCHED: u32 = 1 << 31;

/// Which events are wanted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// What was set, and [`WATCHED`].
    mask: AtomicU32,
    /// What was set.
    set: Mutex<u32>,
}

impl Events {
    /// Some event is wanted, and a kind of channel to publish it on, or a watcher wants lines.
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

    /// Has workers and the store look for what was set, and for what is watched.
    fn apply(&self, store: &Store, watchers: &Watchers) {
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

/// So much of what the store did by itself is matched against patterns and published at once.
const TOLD_NS_MAX: u64 = 200_000;

impl Shared {
    /// Publishes that something of this class and name has happened to a key; what that took.
    fn tell_of(
        &self,
        host: &dyn Host,
        store: &Store,
        class: u32,
        (event, db, key): (&'static str, u8, &[u8]),
        some_time: bool,
    ) -> u64 {
        if !self.events.wants(class) {
            return 0;
        }
        let (by_key, by_event) = (self.events.wants(KEYSPACE), self.events.wants(KEYEVENT));
        let happened = Happened { event, db, key, by_key, by_event };
        self.telling.tell(&self.topics, host, store, happened, some_time)
    }

    /// Publishes what the store did by itself since this worker was last asked: a conversation does it at the end of a receive,
    /// upkeep has to.
    #[inline]
    pub fn tell_events(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        if guard.has_events() {
            self.tell_all_of(guard, host);
        }
    }

    #[cold]
    fn tell_all_of(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        let (store, now, mut ns) = (Arc::clone(guard.store()), guard.now(), 0);
        let watched = self.watchers.wants(stream::EVICTIONS);
        let moves = self.watchers.wants(stream::SYSEVENTS);
        // Something was noted for a watcher that has gone.
        let mut for_nobody = false;
        guard.take_givings(&mut |giving| {
            for_nobody |= !moves;
            if moves {
                self.watchers.tell_given(Scene { host, store: &store, now }, giving);
            }
        });
        guard.take_gone(&mut |gone| {
            let (class, name) = match gone.event {
                Event::Expired => (EXPIRED, "expired"),
                Event::Evicted => (EVICTED, "evicted"),
                Event::FieldsExpired => (Class::Hash as u32, "hexpired"),
                Event::Emptied => (Class::Generic as u32, "del"),
            };
            let is_watched = watched && gone.event == Event::Evicted;
            for_nobody |= !is_watched && !self.events.wants(class);
            if is_watched {
                self.watchers.tell_evicted(Scene { host, store: &store, now }, gone);
            }
            ns += self.tell_of(host, &store, class, (name, gone.database, gone.key), ns < TOLD_NS_MAX);
        });
        if for_nobody {
            self.apply_watch(&store);
        }
    }

    /// A watcher watches keys. When the last of them has gone, this ends the looks at keys for them.
    pub(crate) fn watches_keys(&self, store: &Store) -> bool {
        let watched = self.watchers.wants(stream::KEYS);
        if !watched && self.events.wants(WATCHED) {
            self.apply_watch(store);
        }
        watched
    }

    /// Has workers and the store look for what is watched now.
    #[cold]
    pub(crate) fn apply_watch(&self, store: &Store) {
        self.events.apply(store, &self.watchers);
    }

    /// As [`Context::tell_change`], where no slice is at hand: the worker that goes on publishing does it.
    pub(crate) fn tell_change_later(
        &self,
        (host, store): (&dyn Host, &Store),
        change: &Change,
        (db, key): (u8, &[u8]),
        (was, is): (Seen, Seen),
    ) {
        each_event(change, was, is, &mut |class, event| {
            self.tell_of(host, store, class, (event, db, key), false);
        });
    }

    /// Goes on publishing events that wait, for so long or a little longer; what that took.
    pub fn go_on_telling(&self, host: &dyn Host, store: &Store, ns_max: u64) -> u64 {
        self.telling.go_on(&self.topics, host, store, ns_max)
    }
}

/// What a key was like: token and expiry of its item.
pub(crate) type Seen = Option<(u64, u64)>;

/// What a key of this database is like.
pub(crate) fn seen(guard: &mut Guard<'_>, db: u8, key: &[u8]) -> Seen {
    let key = guard.key_in(db, key);
    seen_at(guard.peek(&key))
}

/// What a search found.
pub(crate) fn seen_at(found: Lookup<'_>) -> Seen {
    found.hit().map(|item| (item.cas(), item.expires_at()))
}

/// What a key was like before the first of several steps of a command that are one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// What keyspace events go by.
    pub seen: Seen,
    /// What `watch` shows.
    pub looked: Looked,
}

impl Before {
    /// It was not there.
    pub fn absent() -> Before {
        Before { seen: None, looked: Looked::at(&Lookup::Miss) }
    }
}

/// Calls `tell` with class and name of each event that a change of a key is.
fn each_event(change: &Change, was: Seen, is: Seen, tell: &mut dyn FnMut(u32, &'static str)) {
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

impl Context<'_, '_> {
    /// Publishes that something of this class and name has happened to a key.
    pub(crate) fn tell(&self, class: Class, event: &'static str, db: u8, key: &[u8]) {
        self.tell_of(class as u32, event, db, key);
    }

    fn tell_of(&self, class: u32, event: &'static str, db: u8, key: &[u8]) {
        let (work, store) = (self.room.work(), self.guard.store());
        let some_time = !work.is_used_up();
        work.spend(self.shared.tell_of(self.host, store, class, (event, db, key), some_time));
    }

    /// Publishes what has happened to a key, by what it was like before.
    pub(crate) fn tell_change(&self, change: &Change, db: u8, key: &[u8], was: Seen, is: Seen) {
        each_event(change, was, is, &mut |class, event| self.tell_of(class, event, db, key));
    }

    /// Publishes that a key has come to be.
    pub(crate) fn tell_new(&self, db: u8, key: &[u8]) {
        self.tell_of(NEW, "new", db, key);
    }

    /// Publishes that a key was asked for and is not there.
    pub(crate) fn tell_miss(&self, db: u8, key: &[u8]) {
        self.tell_of(MISS, "keymiss", db, key);
    }

    /// The same of one of very many keys: it is published behind what waits, by the worker that goes on publishing.
    pub(crate) fn tell_miss_later(&self, db: u8, key: &[u8]) {
        let events = &self.shared.events;
        if events.wants(MISS) {
            let (by_key, by_event) = (events.wants(KEYSPACE), events.wants(KEYEVENT));
            let happened = Happened { event: "keymiss", db, key, by_key, by_event };
            self.shared.telling.tell_later(self.guard.store(), happened);
        }
    }

    /// Goes on publishing events that wait, with what is left of the slice.
    pub(crate) fn go_on_telling(&self) {
        if self.shared.telling.waits() {
            let work = self.room.work();
            work.spend(self.shared.go_on_telling(self.host, self.guard.store(), work.left_ns(0)));
        }
    }
}

impl Shared {
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
