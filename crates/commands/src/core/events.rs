//! Keyspace events: messages about what happens to keys, for those who subscribe to them.
//!
//! ```text
//! __keyspace@0__:mykey   del          (K)
//! __keyevent@0__:del     mykey        (E)
//! ```
//!
//! While any class is wanted, a writing command's keys are looked at before and after it, of either
//! protocol: what changed says which event it was, as Redis names them. What the store does by itself (expire, evict) it
//! notes, and whoever ends a batch next tells it. With nothing wanted it costs a look at one word for
//! each receive.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{DATABASES, Event, Guard, Store};

use super::host::Host;
use crate::redis::call::Call;
use crate::redis::fail::Done;
use crate::redis::shared::Common;
use crate::redis::table::{Command, flag};

/// Classes of events, by their letters; A stands for those before it.
const CLASSES: &[u8] = b"g$lshzxetdA";
const ALL: u32 = (1 << 10) - 1;
const GENERIC: u32 = 1 << 0;
const STRING: u32 = 1 << 1;
const EXPIRED: u32 = 1 << 6;
const EVICTED: u32 = 1 << 7;
const KEYSPACE: u32 = 1 << 16;
const KEYEVENT: u32 = 1 << 17;
const MISS: u32 = 1 << 18;
const NEW: u32 = 1 << 19;

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

impl Common {
    fn tell(&self, host: &dyn Host, class: u32, event: &str, db: u8, key: &[u8]) {
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

    /// Tells what the store did by itself since this worker was last asked.
    #[inline]
    pub(crate) fn tell_events(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        if guard.has_events() {
            guard.take_events(&mut |event, db, key| match event {
                Event::Expired => self.tell(host, EXPIRED, "expired", db, key),
                Event::Evicted => self.tell(host, EVICTED, "evicted", db, key),
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

/// Commands that say what a key had, beside those that only read.
fn asks(row: &Command) -> bool {
    row.has(flag::READONLY) || matches!(row.name, "getset" | "getdel" | "getex")
}

/// What a change of a value is called.
fn name(row: &'static str) -> (u32, &'static str) {
    match row {
        "set" | "setex" | "psetex" | "setnx" | "getset" | "mset" | "msetnx" | "msetex" | "bitop" => {
            (STRING, "set")
        }
        "incr" | "incrby" | "decr" | "decrby" => (STRING, "incrby"),
        "setbit" | "bitfield" => (STRING, "setbit"),
        "copy" => (GENERIC, "copy_to"),
        "rename" | "renamenx" => (GENERIC, "rename_to"),
        "restore" => (GENERIC, "restore"),
        row => (STRING, row),
    }
}

impl Common {
    /// Tells what a command of this name did to a key. `row`: the RESP command that does the same.
    pub(crate) fn tell_change(
        &self,
        host: &dyn Host,
        row: &'static str,
        db: u8,
        key: &[u8],
        was: Seen,
        is: Seen,
    ) {
        let tell = |class, event| self.tell(host, class, event, db, key);
        match (was, is) {
            (was, is) if was == is => {}
            (_, None) => tell(
                GENERIC,
                match row {
                    "rename" | "renamenx" => "rename_from",
                    "move" => "move_from",
                    _ => "del",
                },
            ),
            (was, Some((token, expires_at))) => {
                if was.is_none() && self.events.wants(NEW) {
                    tell(NEW, "new");
                }
                if was.is_none_or(|(old, _)| old != token) {
                    let (class, event) = name(row);
                    tell(class, event);
                }
                let expired_at = was.map_or(0, |(_, at)| at);
                let told = row.starts_with("rename") || row == "copy" || row == "restore";
                if expires_at != expired_at && expires_at != 0 && !told {
                    tell(GENERIC, "expire");
                } else if expires_at == 0 && was.is_some_and(|(old, at)| old == token && at != 0) {
                    tell(GENERIC, "persist");
                }
            }
        }
    }

    /// Tells that a key was asked for and is not there.
    pub(crate) fn tell_miss(&self, host: &dyn Host, db: u8, key: &[u8]) {
        self.tell(host, MISS, "keymiss", db, key);
    }

    /// Misses are wanted.
    pub(crate) fn tells_misses(&self) -> bool {
        self.events.wants(MISS)
    }
}

impl Call<'_, '_, '_> {
    fn seen(&mut self, key: &[u8]) -> Seen {
        seen(&mut self.cx.guard, self.client.db, key)
    }

    /// Runs a command that says what keys have, and tells which of them are not there.
    fn execute_and_tell_misses(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        let mut missing: Vec<&[u8]> = Vec::new();
        row.each_key(args, &mut |key| {
            if seen(&mut self.cx.guard, self.client.db, key).is_none() {
                missing.push(key);
            }
        });
        let done = if row.has(flag::WRITE) {
            self.tell_around(row, args, |call| call.execute_row(row, args))
        } else {
            self.execute_row(row, args)
        };
        let (common, host) = (&self.cx.shared.redis, self.cx.host);
        missing.into_iter().for_each(|key| common.tell_miss(host, self.client.db, key));
        done
    }

    /// Events are wanted: runs a command, and tells what there is to tell.
    #[cold]
    pub fn execute_with_events(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if self.cx.shared.redis.tells_misses() && asks(row) {
            self.execute_and_tell_misses(row, args)
        } else if row.has(flag::WRITE) {
            self.tell_around(row, args, |call| call.execute_row(row, args))
        } else {
            self.execute_row(row, args)
        }
    }

    /// Runs what carries out a writing command, and tells what that did to its keys, if events are wanted. Of a
    /// command in steps that is its last one.
    pub fn tell_around(
        &mut self,
        row: &'static Command,
        args: Args<'_>,
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        if !self.cx.shared.redis.events.any() {
            return run(self);
        }
        let mut keys: Vec<&[u8]> = Vec::new();
        row.each_key(args, &mut |key| keys.push(key));
        let db = self.client.db;
        let before: Vec<Seen> = keys.iter().map(|key| self.seen(key)).collect();
        let done = run(self);
        for (key, was) in keys.iter().zip(before) {
            let is = self.seen(key);
            let (common, host) = (&self.cx.shared.redis, self.cx.host);
            common.tell_change(host, row.name, db, key, was, is);
        }
        if row.name == "move"
            && done.is_ok()
            && let (Some(key), Some(to)) = (args.at(0), args.at(1).and_then(parse_integer))
            && (0..i64::from(DATABASES)).contains(&to)
        {
            let target = self.cx.guard.key_in(to as u8, key);
            if self.cx.guard.peek(&target).hit().is_some() && self.seen(key).is_none() {
                self.cx.shared.redis.tell(self.cx.host, GENERIC, "move_to", to as u8, key);
            }
        }
        done
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
