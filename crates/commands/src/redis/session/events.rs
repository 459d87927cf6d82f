//! Keyspace events of RESP commands, found by looking at their keys before and after.

use larder_protocol::resp::Args;

use crate::core::events::{Before, Change, Class, Seen, seen};
use crate::core::watchers::{Looked, Stored};
use crate::redis::call::{Call, database};
use crate::redis::fail::Done;
use crate::redis::row::{ChangeOf, Command, Tells, flag};

/// Keys of one command for which watchers get lines, at most.
const KEYS_WATCHED: usize = 1024;
/// Work of a line, about.
const LINE_NS: u64 = 1_000;
/// Misses that a command of the flag `AS_ONE` publishes at once: some 0.5 ms. It may have very many, and is one step.
const MISSES_AT_ONCE: usize = 512;

/// The event of a command of one key, for commands whose words do not decide it.
fn change_of_key(row: &Command) -> Option<Change> {
    match row.tells {
        None | Some(Tells::Nothing) => None,
        Some(Tells::Each(change) | Tells::Moved(change)) => Some(change),
        Some(Tells::By(ChangeOf(change))) => Some(change(Args::EMPTY, 0)),
    }
}

impl Call<'_, '_, '_> {
    fn seen(&mut self, key: &[u8]) -> Seen {
        seen(&mut self.cx.guard, self.client.db, key)
    }

    /// Runs a command that looks at keys, and publishes which of them were missing.
    fn tell_misses_of(
        &mut self,
        row: &'static Command,
        args: Args<'_>,
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        let mut missing: Vec<&[u8]> = Vec::new();
        row.each_key(args, &mut |key| {
            if seen(&mut self.cx.guard, self.client.db, key).is_none() {
                missing.push(key);
            }
        });
        let done = if row.has(flag::WRITE) { self.tell_around(row, args, run) } else { run(self) };
        let at_once = if row.has(flag::AS_ONE) { MISSES_AT_ONCE } else { missing.len() };
        for (nth, key) in missing.into_iter().enumerate() {
            if nth < at_once {
                self.cx.tell_miss(self.client.db, key);
            } else {
                self.cx.tell_miss_later(self.client.db, key);
            }
        }
        done
    }

    /// Runs a command while events are wanted, and publishes what it did.
    #[cold]
    pub fn execute_with_events(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if !self.cx.shared.watches_keys(self.cx.guard.store()) {
            return self.execute_telling(row, args);
        }
        if !row.keys.any() || row.runs_script() || self.client.tries > 0 {
            return self.execute_telling(row, args);
        }
        let mut keys: Vec<(usize, &[u8], Looked)> = Vec::new();
        row.each_key(args, &mut |key| {
            if keys.len() < KEYS_WATCHED {
                let looked = self.looked(key);
                keys.push((keys.len(), key, looked));
            }
        });
        let done = self.execute_telling(row, args);
        self.spend(keys.len() as u64 * 2 * LINE_NS);
        let is_later = self.job.as_ref().is_some_and(|under_way| under_way.job.tells_watchers());
        for (nth, key, before) in keys {
            let after = self.looked(key);
            let (watchers, scene, peer) = (&self.cx.shared.watchers, self.cx.watched(), self.cx.peer);
            if !row.access_of(nth).writes() {
                watchers.tell_get(scene, peer, key, &before);
            } else if is_later {
                // Its line is sent behind its last write.
            } else if after.is_there() {
                self.tell_stored(row, key, &after, done.is_ok());
            } else if before.is_there() {
                watchers.tell_deleted(scene, key, row.name, &before);
            }
        }
        done
    }

    /// Sends watchers a line about what a command stored, or did not store.
    fn tell_stored(&self, row: &Command, key: &[u8], after: &Looked, is_stored: bool) {
        let scene = self.cx.watched();
        let Looked { class, value_bytes, expires_at, .. } = *after;
        let status = if is_stored { "stored" } else { "not_stored" };
        let ttl_s = if expires_at == 0 { 0 } else { expires_at.saturating_sub(scene.now).div_ceil(1000) };
        let stored = Stored { status, cmd: row.name, ttl_s, class, value_bytes };
        self.cx.shared.watchers.tell_store(scene, self.cx.peer, key, stored);
    }

    /// The key's state, for watchers.
    fn looked(&mut self, key: &[u8]) -> Looked {
        let key = self.key(key);
        Looked::at(&self.cx.guard.peek(&key))
    }

    fn execute_telling(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if row.has(flag::MOMENTS) {
            return self.execute_row(row, args);
        }
        self.tell_of(row, args, |call| call.execute_row(row, args))
    }

    /// Runs `run`, a command of these keys or a moment of one, and publishes events if they are wanted.
    pub fn tell_of(
        &mut self,
        row: &'static Command,
        args: Args<'_>,
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        // A script's own commands publish what they look at.
        let asks = row.has(flag::READONLY | flag::ASKS) && !row.runs_script();
        let done = if asks && self.cx.shared.tells_misses() {
            self.tell_misses_of(row, args, run)
        } else if row.has(flag::WRITE) {
            self.tell_around(row, args, run)
        } else {
            run(self)
        };
        self.cx.go_on_telling();
        done
    }

    /// Runs `run`, a writing command or the last step of one, and publishes how its keys changed, if events are wanted.
    pub fn tell_around(
        &mut self,
        row: &'static Command,
        args: Args<'_>,
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        let tells = match row.tells {
            None | Some(Tells::Nothing) => return run(self),
            Some(tells) => tells,
        };
        if !self.cx.shared.events.any() {
            return run(self);
        }
        // Keys that it only reads change only by others' writes, which are no events of this command.
        let mut keys: Vec<(usize, &[u8])> = Vec::new();
        let mut nth = 0;
        row.each_key(args, &mut |key| {
            if row.access_of(nth).writes() {
                keys.push((nth, key));
            }
            nth += 1;
        });
        let db = self.client.db;
        let before: Vec<Seen> = keys.iter().map(|(_, key)| self.seen(key)).collect();
        let done = run(self);
        for ((nth, key), was) in keys.into_iter().zip(before) {
            let is = self.seen(key);
            if was == is {
                continue;
            }
            let change = match tells {
                Tells::Nothing => continue,
                Tells::Each(change) | Tells::Moved(change) => change,
                Tells::By(ChangeOf(change)) => change(args, nth),
            };
            self.cx.tell_change(&change, db, key, was, is);
        }
        if matches!(tells, Tells::Moved(_)) && done.is_ok() {
            self.tell_arrival(args);
        }
        done
    }

    /// Publishes that a key has arrived in the database that MOVE names.
    fn tell_arrival(&mut self, args: Args<'_>) {
        let (Some(name), Some(to)) = (args.at(0), args.at(1).and_then(|word| database(word).ok())) else {
            return;
        };
        let (key, target) = (self.key(name), self.cx.guard.key_in(to, name));
        if self.cx.guard.peek(&target).hit().is_some() && self.cx.guard.peek(&key).hit().is_none() {
            self.cx.tell(Class::Generic, "move_to", to, name);
        }
    }

    /// As [`Call::tell_around`], for a moment of a command of one key whose words do not decide its event.
    pub fn tell_around_key(
        &mut self,
        row: &'static Command,
        key: &[u8],
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        match change_of_key(row) {
            Some(change) => self.tell_change_around(&change, key, run),
            None => run(self),
        }
    }

    /// The key's state before the first step of such a command; `None` if no events are wanted.
    pub fn look_before(&mut self, key: &[u8]) -> Option<Before> {
        let tells = self.cx.shared.events.any();
        tells.then(|| Before { seen: self.seen(key), looked: self.looked(key) })
    }

    /// Publishes what a command of one key did to it in several steps that are one moment. `is_done`: everything; otherwise it
    /// was refused in the midst.
    pub fn tell_key_since(&mut self, row: &'static Command, key: &[u8], before: &Before, is_done: bool) {
        let Some(change) = change_of_key(row) else { return };
        self.tell_since(row, key, before, is_done, |call, was, is| {
            call.cx.tell_change(&change, call.client.db, key, was, is);
        });
    }

    /// As [`Call::tell_key_since`], for a command that publishes its events by `tell`, which gets the key's state before and now.
    pub fn tell_since(
        &mut self,
        row: &'static Command,
        key: &[u8],
        before: &Before,
        is_done: bool,
        tell: impl FnOnce(&mut Self, Seen, Seen),
    ) {
        if !self.cx.shared.events.any() {
            return;
        }
        let (was, is) = (before.seen, self.seen(key));
        if self.cx.shared.watches_keys(self.cx.guard.store()) {
            self.spend(LINE_NS);
            if is.is_some() {
                let after = self.looked(key);
                self.tell_stored(row, key, &after, is_done || was != is);
            } else if was.is_some() {
                let scene = self.cx.watched();
                self.cx.shared.watchers.tell_deleted(scene, key, row.name, &before.looked);
            }
        }
        tell(self, was, is);
        self.cx.go_on_telling();
    }

    /// Publishes that a command changed its key, which has gone by itself since: that is an event of its own.
    pub fn tell_key_changed(&mut self, row: &'static Command, key: &[u8]) {
        if let Some(change) = change_of_key(row) {
            self.cx.tell(change.class, change.name, self.client.db, key);
        }
    }

    /// Runs a moment that may change its key in this way, and publishes that, if events are wanted.
    pub fn tell_change_around(
        &mut self,
        change: &Change,
        key: &[u8],
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        if !self.cx.shared.events.any() {
            return run(self);
        }
        let was = self.seen(key);
        let done = run(self);
        let is = self.seen(key);
        if was != is {
            self.cx.tell_change(change, self.client.db, key, was, is);
        }
        done
    }
}
