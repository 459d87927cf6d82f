//! Publishes keyspace events: those of a key that a command has changed or has not found, and those of what the store did by
//! itself, which watchers (`watchers.rs`) are told of, too. Events that take long to match are left to `telling.rs`.

use std::sync::Arc;

use larder_store::{Event, Guard, Store};

use super::context::Context;
use super::events::{
    Change, Class, EVICTED, EXPIRED, KEYEVENT, KEYSPACE, MISS, NEW, Seen, WATCHED, each_event,
};
use super::host::Host;
use super::shared::Shared;
use super::telling::Happened;
use super::watchers::{Scene, stream};

/// Nanoseconds of the store's own events after which the next ones are left to be matched later.
const TOLD_NS_MAX: u64 = 200_000;

impl Shared {
    /// Publishes that an event of this class and name has happened to a key. Returns the nanoseconds that it took.
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

    /// Publishes what the store did by itself since this worker's last call. A conversation calls it at the end of a receive;
    /// upkeep must call it, too.
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
        // Whether something was noted for a watcher that has gone.
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

    /// Returns whether a watcher watches keys. When the last of them has gone, this ends the looks at keys for them.
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

    /// Does what [`Context::tell_change`] does, where no slice is at hand: events that take time are left to the worker that
    /// goes on publishing.
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

    /// Goes on publishing events that wait, for `ns_max` or a little longer. Returns the nanoseconds that it took.
    pub fn go_on_telling(&self, host: &dyn Host, store: &Store, ns_max: u64) -> u64 {
        self.telling.go_on(&self.topics, host, store, ns_max)
    }
}

impl Context<'_, '_> {
    /// Publishes that an event of this class and name has happened to a key.
    pub(crate) fn tell(&self, class: Class, event: &'static str, db: u8, key: &[u8]) {
        self.tell_of(class as u32, event, db, key);
    }

    fn tell_of(&self, class: u32, event: &'static str, db: u8, key: &[u8]) {
        let (work, store) = (self.room.work(), self.guard.store());
        let some_time = !work.is_used_up();
        work.spend(self.shared.tell_of(self.host, store, class, (event, db, key), some_time));
    }

    /// Publishes the change of a key from `was` to `is`.
    pub(crate) fn tell_change(&self, change: &Change, db: u8, key: &[u8], was: Seen, is: Seen) {
        each_event(change, was, is, &mut |class, event| self.tell_of(class, event, db, key));
    }

    /// Publishes that a key is new.
    pub(crate) fn tell_new(&self, db: u8, key: &[u8]) {
        self.tell_of(NEW, "new", db, key);
    }

    /// Publishes that a key was asked for and is not there.
    pub(crate) fn tell_miss(&self, db: u8, key: &[u8]) {
        self.tell_of(MISS, "keymiss", db, key);
    }

    /// Publishes one of very many misses later: behind the events that wait, by the worker that goes on publishing.
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
    /// Returns whether misses are wanted.
    pub(crate) fn tells_misses(&self) -> bool {
        self.events.wants(MISS)
    }
}
