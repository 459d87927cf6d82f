//! Serving the clients that stand in line at a key that was written.

use larder_store::{Declined, Guard, Key, Moment, Removal, Type};

use crate::core::access::Since;
use crate::core::acl::log::{REFUSAL_NS, Whence};
use crate::core::events::{Change, Seen, seen};
use crate::core::hold::LOOK_MS;
use crate::core::host::Host;
use crate::core::output::Output;
use crate::core::shared::Shared;
use crate::core::work::copying_ns;
use crate::redis::call::{ELEMENT_BYTES, REPLY_BYTES_FREE};
use crate::redis::collections::sending::{ToSend, has_too_long, is_sent};
use crate::redis::collections::stream::trimming;
use crate::redis::collections::{ELEMENT_ROOM, peek_as};
use crate::redis::fail::{Done, Fail};
use crate::redis::held::Held;
use crate::redis::permissions::{check_waiting, note_denied, told};
use crate::redis::reply::put_null_array;
use crate::redis::rows::Rows;
use crate::redis::waiters::{Left, Served, Taken, Waiter, Waiters};

/// How many are served at a time, fewer where they stand in many lines, or are given much.
const SERVED_AT_ONCE: isize = 64;
/// How many rounds upkeep looks at what is left while it serves no waiter: the lines of most are gone with their clients' others.
pub(crate) const LEFT_ROUNDS: usize = 16;
/// Lines that are left, of keys that are looked at, in the time in which one is served.
const LINES_AS_ONE: usize = 16;
/// How often it is tried to put back what was popped, where a full store that evicts nothing has no room. Then it is lost, as
/// what was sent to a client that has gone.
const TRIES_MAX: u16 = 20;
/// The same of what is longer than a leaf, and so needs many chunks of the longest class: for a minute.
const TRIES_MAX_LONG: u16 = 600;
/// Time between two tries of what finds no room, in which others may make some.
const AGAIN_US: u64 = 100_000;
/// The same of what is to come back to a key that is held.
const HELD_US: u64 = LOOK_MS * 1_000;
/// How many waiters for a stream are looked at, at a time, whether there is something for them.
const LOOKS_AT_ONCE: usize = 1 << 10;
/// Work to serve one, beside the bytes that it is given.
pub(crate) const SERVE_NS: u64 = 4_000;
/// The removal of some of a group counts as so many waiters that are served.
const CLEARED_AS: isize = (trimming::PENDING_AT_ONCE as u64 * trimming::PENDING_NS / SERVE_NS) as isize;

/// What serving works with.
pub(crate) struct Serving<'s, 'w> {
    pub guard: &'s mut Guard<'w>,
    pub common: &'s Shared,
    /// All commands: a waiter whose rules forbid its own by now is told its name.
    pub rows: &'static Rows,
    pub waiters: &'s Waiters,
    pub host: &'s dyn Host,
    /// The waiter whose own worker serves here, if its client is being served.
    pub own: Option<&'s Waiter>,
}

/// Converts work into a number of waiters that are served. Each of the bytes is copied into a reply, and to where it is kept
/// until the client has that, or to another list. `beside_ns` is other work.
fn as_served(bytes: u64, beside_ns: u64) -> isize {
    ((copying_ns(2 * bytes) + beside_ns) / SERVE_NS) as isize
}

/// How often it is tried to put this back.
fn tries_max(taken: &Taken) -> u16 {
    if taken.longest() > ELEMENT_BYTES { TRIES_MAX_LONG } else { TRIES_MAX }
}

/// How many were served, where of [`SERVED_AT_ONCE`] so many are left.
fn done_of(left: isize) -> usize {
    (SERVED_AT_ONCE - left) as usize
}

/// What came of the first in line.
enum First {
    /// It has what it waited for, or the first of that, which counts as so many.
    Served(isize),
    /// It waits no more, or has gone.
    Gone,
    /// There is nothing for it.
    Nothing,
    /// What there is could not be put back: the waiter is called, and its own worker takes that.
    Called,
}

impl Serving<'_, '_> {
    /// Serves the waiters in line at the keys that this worker has written; how many these were. Not in a transaction. What is
    /// moved for one of them to a list calls the waiters in line there.
    pub fn called(&mut self) -> usize {
        let mut left = SERVED_AT_ONCE;
        self.at_called(&mut left);
        done_of(left)
    }

    fn at_called(&mut self, left: &mut isize) {
        while self.guard.has_called() {
            let called = self.guard.take_called();
            if self.waiters.keys() == 0 {
                continue;
            }
            *left -= (called.len() / LINES_AS_ONE) as isize;
            for (db, key) in called {
                self.at_key(db, &key, left);
            }
        }
    }

    /// Serves the waiters in line at a key, `left` at most; the next one is called then.
    fn at_key(&mut self, db: u8, name: &[u8], left: &mut isize) {
        // What was written to it may be the half of a transaction.
        if self.is_held(db, name) && self.leave_held(db, name) {
            return;
        }
        self.at_stream(db, name, left, 0);
        for kind in [Type::List, Type::SortedSet] {
            while let Some(waiter) = self.waiters.first(db, kind, name) {
                if !self.is_there(db, name, kind) {
                    break;
                }
                if *left <= 0 {
                    if waiter.call(self.host) {
                        break;
                    }
                    self.waiters.leave_lines(&waiter);
                    continue;
                }
                let (ns, may) = self.may_take(&waiter);
                let first = match may {
                    Ok(()) => self.first(name, &waiter),
                    Err(fail) => self.refuse(name, &waiter, fail),
                };
                *left = left.saturating_sub((ns / SERVE_NS) as isize);
                match first {
                    First::Nothing => break,
                    First::Called if waiter.call(self.host) => break,
                    First::Called | First::Gone | First::Served(_) => {}
                }
                self.waiters.leave_lines(&waiter);
                *left -= 1 + (waiter.keys.len() / LINES_AS_ONE) as isize;
                if let First::Served(given) = first {
                    *left -= given;
                    waiter.wake(self.host);
                }
            }
        }
    }

    /// As [`Serving::at_key`], at the keys of one of the waiters, and at those that are called by that.
    pub(super) fn at_keys_of(&mut self, waiter: &Waiter) -> usize {
        let mut left = SERVED_AT_ONCE;
        for key in &waiter.keys {
            if waiter.want.kind() == Type::Stream {
                // Those before it were looked at when it was called, or will be.
                self.at_stream(waiter.db, key, &mut left, waiter.number().saturating_sub(1));
            } else {
                self.at_key(waiter.db, key, &mut left);
            }
        }
        self.at_called(&mut left);
        done_of(left)
    }

    /// As [`Serving::at_key`], of waiters for a stream, in line behind the one with a number. A waiter for which there is nothing
    /// stays in line, and hides no other: the next may wait behind another ID, or in another group.
    fn at_stream(&mut self, db: u8, name: &[u8], left: &mut isize, number: u64) {
        let (mut number, mut looks) = (number, LOOKS_AT_ONCE);
        while let Some(waiter) = self.waiters.behind(db, Type::Stream, name, number) {
            number = waiter.number();
            if *left <= 0 || looks == 0 {
                if waiter.call(self.host) {
                    break;
                }
                self.waiters.leave_lines(&waiter);
                continue;
            }
            looks -= 1;
            let key = self.guard.key_in(db, name);
            if !self.ready(&key, &waiter) {
                continue;
            }
            if waiter.keys.iter().any(|key| self.is_held(db, key)) && self.leave_held(db, name) {
                break;
            }
            let (ns, may) = self.may_take(&waiter);
            *left -= (ns / SERVE_NS) as isize;
            let given = match may {
                Ok(()) => {
                    self.guard.begin_in(db, waiter.keys.iter().map(|key| &**key));
                    let key = self.guard.key_in(db, name);
                    let given = self.give_of_stream(&key, &waiter);
                    self.guard.finish();
                    given
                }
                Err(fail) => self.refuse(name, &waiter, fail),
            };
            *left -= 1 + (waiter.keys.len() / LINES_AS_ONE) as isize;
            match given {
                First::Nothing | First::Called => {}
                First::Served(given) => {
                    *left -= given;
                    self.waiters.leave_lines(&waiter);
                    waiter.wake(self.host);
                }
                First::Gone => self.waiters.leave_lines(&waiter),
            }
        }
    }

    /// Whether a waiter's user may still have what it waits for, and what it took to look: asked before it is given anything.
    fn may_take(&self, waiter: &Waiter) -> (u64, Done) {
        let access = &self.common.access;
        let user = match waiter.user.since(access) {
            Since::AsGood => return (0, Ok(())),
            Since::Gone => return (0, Err(Fail::of("NOPERM The user is gone"))),
            Since::Changed(user) => user,
        };
        let Some(row) = self.rows.row(waiter.row) else { return (0, Ok(())) };
        let mut ns = 0;
        let checked = check_waiting(&user, (row, waiter.row), &waiter.keys, waiter.want.target(), &mut ns);
        let may = checked.map_err(|denied| {
            ns += REFUSAL_NS;
            note_denied(access, Whence::TopLevel, row, &denied, user.name(), &waiter.facts, self.guard.now());
            Fail::with(format!("NOPERM {}", told(&user, row, &denied, false)))
        });
        (ns, may)
    }

    /// Whether there is something at a key for a waiter for a stream.
    fn ready(&mut self, key: &Key<'_>, waiter: &Waiter) -> bool {
        let there = peek_as(self.guard, key, Type::Stream);
        waiter.want.ready(key.bytes(), there.as_ref().map(Option::as_ref).map_err(Clone::clone))
    }

    /// All keys of a waiter for streams are held. If this one has something for it, it is claimed and given what there is
    /// in all of them, as if it asked now. What it is given stays in the streams: there is nothing to put back.
    fn give_of_stream(&mut self, key: &Key<'_>, waiter: &Waiter) -> First {
        if !self.ready(key, waiter) {
            return First::Nothing;
        }
        if !waiter.claim() {
            return First::Gone;
        }
        let moment = self.guard.moment(waiter.db);
        let store = self.guard.store();
        let room = store.held_bytes_max().saturating_sub(store.held_bytes());
        let mut reply = Output::charged(u64::MAX, store, 0);
        let given =
            waiter.want.give_streams(self.guard, (waiter.db, &waiter.keys), waiter.resp3, (&mut reply, room));
        let done = given.map(|given| {
            if !given {
                put_null_array(&mut reply, waiter.resp3);
            }
        });
        // An entry may have 4 MiB, which each that waits is given.
        let given = as_served(reply.own_bytes(), 0);
        let (taken, key) = (Taken::default(), key.bytes().into());
        let served = Served { reply, done, begun: None, taken, key, moment };
        if waiter.serve(served).is_none() { First::Served(given) } else { First::Gone }
    }

    /// There is something at the key, of this type. What was written before it was noted is seen.
    fn is_there(&mut self, db: u8, name: &[u8], kind: Type) -> bool {
        let key = self.guard.key_in(db, name);
        matches!(peek_as(self.guard, &key, kind), Ok(Some(_)))
    }

    /// Gives the first in line at a key what it waits for: from the first of its keys that has it, as when it came. This key may
    /// have been written first, and one that the waiter named before it in the same moment.
    fn first(&mut self, name: &[u8], waiter: &Waiter) -> First {
        let (db, target) = (waiter.db, waiter.want.target());
        let Some(nth) = waiter.keys.iter().position(|key| **key == *name) else { return First::Gone };
        let keys = &waiter.keys[..=nth];
        let mut others = keys[..nth].iter().map(|key| &**key).chain(target);
        if others.any(|key| self.is_held(db, key)) && self.leave_held(db, name) {
            return First::Nothing;
        }
        let moment = self.begin_at_a_moment(db, || keys.iter().map(|key| &**key).chain(target));
        let first = match self.pick(keys, waiter) {
            Ok(Some(name)) => return self.first_of(name, target, waiter, moment),
            Ok(None) => First::Nothing,
            Err(fail) => self.refuse(name, waiter, fail),
        };
        self.guard.finish();
        first
    }

    /// Begins a transaction on keys; returns a moment at which they had what they have. What is flushed from here on is flushed
    /// behind the transaction, and takes what was popped in it: that does not come back.
    fn begin_at_a_moment<'k, K: Iterator<Item = &'k [u8]>>(
        &mut self,
        db: u8,
        keys: impl Fn() -> K,
    ) -> Moment {
        loop {
            let moment = self.guard.moment(db);
            self.guard.begin_in(db, keys());
            if self.guard.name_since(moment) == Some(db) {
                return moment;
            }
            // Flushed or swapped between the two.
            self.guard.finish();
        }
    }

    /// A command in steps holds this key, which no command of a client names that is at work now.
    fn is_held(&self, db: u8, name: &[u8]) -> bool {
        let holds = &self.common.pause.holds;
        holds.any() && holds.keys().is_some_and(|keys| keys.has(self.guard.key_in(db, name).hash()))
    }

    /// Leaves the waiters in line at a key to the command that holds the key, for behind its end. False if no keys are held any
    /// more, and their command has perhaps looked before this was left: they are to be served now.
    fn leave_held(&self, db: u8, name: &[u8]) -> bool {
        self.waiters.leave_held(db, name);
        self.common.pause.holds.note_waiter();
        // Under the lock: a command that frees its keys behind this look sees what is left.
        self.common.pause.holds.keys().is_some()
    }

    /// Which of these keys a waiter is given something of; at the last of them it is the first in line. Keys at which others
    /// stand before it are theirs.
    ///
    /// # Errors
    /// One before it is of another type.
    fn pick<'k>(&mut self, keys: &'k [Box<[u8]>], waiter: &Waiter) -> Result<Option<&'k [u8]>, Fail> {
        let kind = waiter.want.kind();
        for (nth, name) in keys.iter().enumerate() {
            let last = nth + 1 == keys.len();
            let key = self.guard.key_in(waiter.db, name);
            match peek_as(self.guard, &key, kind) {
                Ok(Some(_)) if last || !self.waiters.has_before(waiter, name) => return Ok(Some(name)),
                Err(fail) if !last => return Err(fail),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Ends a wait with an error.
    fn refuse(&mut self, name: &[u8], waiter: &Waiter, fail: Fail) -> First {
        if !waiter.claim() {
            return First::Gone;
        }
        let moment = self.guard.moment(waiter.db);
        let reply = Output::charged(u64::MAX, self.guard.store(), 0);
        let (taken, key) = (Taken::default(), name.into());
        let served = Served { reply, done: Err(fail), begun: None, taken, key, moment };
        if waiter.serve(served).is_none() { First::Served(0) } else { First::Gone }
    }

    /// The key and the target are held: gives the waiter what it waits for, frees them, and publishes that.
    fn first_of(&mut self, name: &[u8], target: Option<&[u8]>, waiter: &Waiter, moment: Moment) -> First {
        let db = waiter.db;
        let key = self.guard.key_in(db, name);
        let target_key = target.map(|target| self.guard.key_in(db, target));
        let tells = self.common.events.any();
        let look = |guard: &mut Guard<'_>| -> [Seen; 2] {
            if !tells {
                return [None; 2];
            }
            [seen(guard, db, name), target.and_then(|target| seen(guard, db, target))]
        };
        let was = look(self.guard);
        let first = self.give(&key, target_key.as_ref(), waiter, moment);
        let is = look(self.guard);
        self.guard.finish();
        for (nth, key) in [Some(name), target].into_iter().flatten().enumerate() {
            self.tell(&waiter.want.change(nth), db, key, (was[nth], is[nth]));
        }
        first
    }

    /// The key is held: it is looked at, the first in line is claimed, and given what it waits for. What is too long to be copied
    /// could not be put back if the client goes: unless it is moved, its own worker alone takes it.
    fn give(&mut self, key: &Key<'_>, target: Option<&Key<'_>>, waiter: &Waiter, moment: Moment) -> First {
        let Ok(Some(there)) = peek_as(self.guard, key, waiter.want.kind()) else { return First::Nothing };
        let portion = waiter.want.portion(&there, SERVED_AT_ONCE as u64 * SERVE_NS);
        let is_long = is_sent(there.longest_apart());
        let is_own = self.own.is_some_and(|own| std::ptr::eq(own, waiter));
        let is_popped = waiter.want.target().is_none();
        if is_popped && !is_own && has_too_long(&there, waiter.want.end(), portion.count) {
            return First::Called;
        }
        if !waiter.claim() {
            return First::Gone;
        }
        // What is pinned may be more than connections may hold, if it is alone.
        let held_bytes = self.guard.store().held_bytes();
        let (mut to_send, mut refused) = (ToSend::default(), None);
        if is_long {
            match waiter.want.pin(self.guard, key, &portion) {
                Ok(pinned) => to_send = pinned,
                Err(fail) => refused = Some(fail),
            }
        }
        let pinning_ns = to_send.ns();
        let unpinned_bytes = portion.bytes.saturating_sub(to_send.bytes());
        let bytes = (unpinned_bytes + key.bytes().len() + 3 * ELEMENT_ROOM) as u64;
        let store = self.guard.store();
        let copied = bytes.saturating_mul(waiter.want.copies());
        let most = store.held_bytes_max();
        let mut held = Held::new(&self.waiters.taken_bytes, store);
        let has_room =
            held_bytes.saturating_add(copied.saturating_add(bytes)) <= most && held.raise(copied, most);
        let mut reply = Output::charged(u64::MAX, store, 0);
        let mut taken = Taken::within(held);
        let given = if let Some(fail) = refused {
            Err(fail)
        } else if has_room {
            if bytes > REPLY_BYTES_FREE {
                // What moves an element looks for room before it takes it.
                reply.room(bytes as usize);
            }
            let out = (&mut reply, waiter.resp3);
            waiter.want.give(self.guard, (key, target), (&portion, to_send), out, Some(&mut taken))
        } else {
            Err(Fail::HELD)
        };
        let begun = (matches!(given, Ok(true)) && portion.left > 0).then_some(portion);
        let done = match given {
            Ok(true) => Ok(()),
            // The key is held, and it was there a moment ago. A claimed waiter has a reply in any case.
            Ok(false) => {
                put_null_array(&mut reply, waiter.resp3);
                Ok(())
            }
            Err(fail) => Err(fail),
        };
        // Each part has a second pin, for as long as it may have to be put back.
        let beside_ns = portion.ns(waiter.want.kind()).saturating_sub(SERVE_NS) + 2 * pinning_ns;
        let given = as_served(reply.own_bytes(), beside_ns);
        match waiter.serve(Served { reply, done, begun, taken, key: key.bytes().into(), moment }) {
            None => First::Served(given),
            Some(Served { reply, mut taken, key: name, .. }) => {
                // With the pins of what was to be sent.
                drop(reply);
                // No client has seen that it was not there.
                if taken.put_back(self.guard, key).is_err() {
                    self.waiters.leave_behind(Left::Taken {
                        moment,
                        key: name,
                        taken,
                        tries: 0,
                        again_us: 0,
                    });
                }
                First::Gone
            }
        }
    }

    fn tell(&self, change: &Change, db: u8, key: &[u8], (was, is): (Seen, Seen)) {
        if was != is {
            let around = (self.host, &**self.guard.store());
            self.common.tell_change_later(around, change, (db, key), (was, is));
        }
    }

    /// Puts back what was popped for a client that has gone, unless it was flushed since; returns what is to be tried again.
    fn put_back(&mut self, left: (Moment, Box<[u8]>, Taken, u16), now_us: u64) -> Option<Left> {
        let (moment, name, mut taken, tries) = left;
        // If the two names were swapped it is in the other database.
        let db = self.guard.name_since(moment)?;
        if self.is_held(db, &name) {
            return Some(Left::Taken { moment, key: name, taken, tries, again_us: now_us + HELD_US });
        }
        self.guard.begin_in(db, [&*name]);
        // A flush from here on comes behind what is put back, and takes it.
        if self.guard.name_since(moment) != Some(db) {
            self.guard.finish();
            let gone = self.guard.name_since(moment).is_none();
            return (!gone).then_some(Left::Taken { moment, key: name, taken, tries, again_us: now_us });
        }
        let tells = self.common.events.any();
        let was = if tells { seen(self.guard, db, &name) } else { None };
        let key = self.guard.key_in(db, &name);
        let done = taken.put_back(self.guard, &key);
        let is = if tells { seen(self.guard, db, &name) } else { None };
        self.guard.finish();
        match done {
            Ok(()) => self.tell(&taken.change(), db, &name, (was, is)),
            // Another client has put something else in its place.
            Err(fail) if fail == Fail::WRONG_TYPE => {}
            Err(_) if tries >= tries_max(&taken) => {}
            Err(_) => {
                let (tries, again_us) = (tries + 1, now_us + AGAIN_US);
                return Some(Left::Taken { moment, key: name, taken, tries, again_us });
            }
        }
        None
    }

    /// Does what is left of clients that have gone, in so many rounds at most; how much that was.
    #[cold]
    pub fn left(&mut self, rounds: usize) -> usize {
        let (mut at_once, mut done, mut clears) = (SERVED_AT_ONCE, 0, false);
        let now_us = self.host.clock_us();
        for _ in 0..rounds {
            let some = self.waiters.take_left(SERVED_AT_ONCE as usize, now_us);
            let is_all = some.len() < SERVED_AT_ONCE as usize;
            done += self.do_left(some, now_us, (&mut at_once, &mut clears));
            // What is held comes back.
            if is_all || at_once <= 0 || self.common.pause.holds.any() {
                break;
            }
        }
        self.at_called(&mut at_once);
        (done + SERVED_AT_ONCE - at_once) as usize
    }

    /// Does some of it; how much that was.
    fn do_left(&mut self, some: Vec<Left>, now_us: u64, (at_once, clears): (&mut isize, &mut bool)) -> isize {
        let mut done = 0;
        for left in some {
            done += 1;
            match left {
                Left::Key { db, key } => self.at_key(db, &key, at_once),
                // One a time is work enough.
                left @ Left::Groups { .. } if std::mem::replace(clears, true) => {
                    self.waiters.leave_behind(left)
                }
                Left::Groups { moment, key: name, .. } => {
                    done += CLEARED_AS;
                    let Some(db) = self.guard.name_since(moment) else { continue };
                    let key = self.guard.key_in(db, &name);
                    let again_us = match trimming::clear_some(self.guard, &key) {
                        Ok(Removal { more: true, .. }) => now_us,
                        // What is left of a group is seen by no client, and would be there for ever.
                        Err(Declined::NoMemory) => now_us + AGAIN_US,
                        _ => continue,
                    };
                    self.waiters.leave_behind(Left::Groups { moment, key: name, again_us });
                }
                Left::Taken { moment, key: name, taken, tries, .. } => {
                    if let Some(left) = self.put_back((moment, name, taken, tries), now_us) {
                        self.waiters.leave_behind(left);
                    }
                }
            }
        }
        done
    }
}
