//! Keyspace events of RESP commands: their keys are looked at before and after them.

use larder_protocol::resp::{Args, parse_integer};
use larder_store::DATABASES;

use crate::core::events::{Change, Class, Seen, seen};
use crate::redis::call::Call;
use crate::redis::fail::Done;
use crate::redis::table::{Command, flag};

/// Commands that say what a key had, beside those that only read.
fn asks(row: &Command) -> bool {
    row.has(flag::READONLY) || matches!(row.name, "getset" | "getdel" | "getex")
}

/// What its changes of a key are called.
fn change_of(row: &Command) -> Change {
    match row.name {
        "set" | "setex" | "psetex" | "setnx" | "getset" | "mset" | "msetnx" | "msetex" | "bitop" => {
            Change::SET
        }
        "incr" | "incrby" | "decr" | "decrby" => Change::INCRBY,
        "setbit" | "bitfield" => Change::string("setbit"),
        "copy" => Change::made("copy_to"),
        "rename" | "renamenx" => Change { gone: "rename_from", ..Change::made("rename_to") },
        "restore" => Change::made("restore"),
        "move" => Change { gone: "move_from", ..Change::string("move") },
        name => Change::string(name),
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
        let (shared, host) = (self.cx.shared, self.cx.host);
        missing.into_iter().for_each(|key| shared.tell_miss(host, self.client.db, key));
        done
    }

    /// Events are wanted: runs a command, and tells what there is to tell.
    #[cold]
    pub fn execute_with_events(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if self.cx.shared.tells_misses() && asks(row) {
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
        if !self.cx.shared.events.any() {
            return run(self);
        }
        let mut keys: Vec<&[u8]> = Vec::new();
        row.each_key(args, &mut |key| keys.push(key));
        let db = self.client.db;
        let before: Vec<Seen> = keys.iter().map(|key| self.seen(key)).collect();
        let done = run(self);
        let change = change_of(row);
        for (key, was) in keys.iter().zip(before) {
            let is = self.seen(key);
            let (shared, host) = (self.cx.shared, self.cx.host);
            shared.tell_change(host, &change, db, key, was, is);
        }
        if row.name == "move"
            && done.is_ok()
            && let (Some(key), Some(to)) = (args.at(0), args.at(1).and_then(parse_integer))
            && (0..i64::from(DATABASES)).contains(&to)
        {
            let target = self.cx.guard.key_in(to as u8, key);
            if self.cx.guard.peek(&target).hit().is_some() && self.seen(key).is_none() {
                self.cx.shared.tell(self.cx.host, Class::Generic, "move_to", to as u8, key);
            }
        }
        done
    }
}
