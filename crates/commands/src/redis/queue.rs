//! What a client has queued between MULTI and EXEC, and what it watches. `transactions` runs it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{DATABASES, Store, Touched};

use super::row::flag::SELECTS;
use super::row::{Command, Weighs};
use super::sizes::ITEM_HEADER_BYTES;
use crate::core::access::Snapshot;
use crate::core::calls::RowId;
use crate::redis::held::Held;

/// Bytes that a command on a collection allocates first, about: a leaf.
const LEAF_BYTES: usize = 1 << 10;
/// A queue of at most so many commands and bytes takes a few milliseconds, whatever it weighs: it is run in one step.
const FEW_COMMANDS: usize = 512;
const FEW_BYTES: usize = 16 << 10;
/// While others hold keys, a queue of at most so many words and bytes is searched for these every 2 ms, which takes some 0.3 ms.
const LOOKED_WORDS_MAX: usize = 4 << 10;
const LOOKED_BYTES_MAX: usize = 1 << 20;

/// What a client has queued and watches.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub queue: Option<Box<Queue>>,
    pub watches: Option<Box<Watches>>,
}

/// Commands that wait for EXEC.
pub(crate) struct Queue {
    pub commands: Vec<Queued>,
    /// Arguments of all commands, as they came.
    pub bytes: Vec<u8>,
    /// A command could not be queued: EXEC will be refused.
    pub spoilt: bool,
    /// A command logs the client in by a password.
    pub logs_in: bool,
    /// All commands may be done in steps: they concern only keys that they name, and do not change the client's user.
    pub in_steps: bool,
    /// A command runs in the worker's Lua state, where others have left garbage.
    pub uses_lua: bool,
    /// Bytes of the longest item that a command allocates first, and of all that they write, about; 0 if none needs memory.
    pub longest_item: usize,
    pub items_bytes: usize,
    /// The client's user at MULTI.
    pub user: Snapshot,
    pub held: Held,
}

impl std::fmt::Debug for Queue {
    /// Leaves out the words, some of which may be passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (commands, bytes) = (self.commands.len(), self.bytes.len());
        f.debug_struct("Queue").field("commands", &commands).field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// A queued command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub row: &'static Command,
    pub id: Option<RowId>,
    /// Where its words are in the queue, how many they are, and how many of them are its name.
    pub at: usize,
    pub end: usize,
    pub words: usize,
    pub name: usize,
    /// Bytes of its longest word.
    pub longest: u64,
    /// [`item_bytes`](super::sizes::item_bytes) of its arguments.
    pub item_bytes: usize,
    /// Whether a full store that refuses writes refuses it.
    pub needs_memory: bool,
}

impl Queued {
    /// Its words behind the name.
    pub fn args<'q>(&self, bytes: &'q [u8]) -> Args<'q> {
        self.words(bytes).1
    }

    /// All its words, and those behind the name. They may be very many, and are not gone through.
    pub fn words<'q>(&self, bytes: &'q [u8]) -> (Args<'q>, Args<'q>) {
        let words = Args::kept(&bytes[self.at..self.end], self.words, self.longest);
        let mut args = words;
        args.nth(self.name - 1);
        (words, args)
    }

    /// Bytes that it allocates first, about; where it writes pairs, those of one pair. `None` if it needs no memory.
    pub fn wanted_bytes(&self) -> Option<usize> {
        let bytes = match self.row.weighs {
            _ if self.row.elements => self.item_bytes.min(LEAF_BYTES),
            Weighs::Pairs | Weighs::CountedPairs => {
                let pairs = ((self.words - self.name) / 2).max(1);
                let each = (self.item_bytes - ITEM_HEADER_BYTES) / pairs;
                ITEM_HEADER_BYTES + each.max(self.longest as usize)
            }
            _ => self.item_bytes,
        };
        self.needs_memory.then_some(bytes)
    }
}

/// The keys that a client watches.
#[derive(Debug)]
pub(crate) struct Watches {
    pub store: Arc<Store>,
    pub keys: Vec<Watched>,
    pub touched: Touched,
}

/// A watched key.
#[derive(Debug)]
pub(crate) struct Watched {
    pub db: u8,
    pub key: Box<[u8]>,
    /// It was there when the watch began.
    pub there: bool,
}

impl Drop for Watches {
    fn drop(&mut self) {
        for watched in &self.keys {
            self.store.unwatch(watched.db, &watched.key, &self.touched);
        }
    }
}

impl Transaction {
    /// Whether MULTI was sent, and EXEC was not.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// How many commands are queued; `None` outside a transaction.
    pub fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.commands.len())
    }

    /// How many keys are watched.
    pub fn watched(&self) -> usize {
        self.watches.as_ref().map_or(0, |watches| watches.keys.len())
    }

    /// Bytes of the queue.
    pub fn queue_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes.capacity())
    }

    /// Spoils the queue, since a command was refused: EXEC will be refused.
    pub fn spoil(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.spoilt = true;
        }
    }

    /// Forgets queue and watches.
    pub fn clear(&mut self) {
        *self = Transaction::default();
    }

    /// Whether the queue concerns all keys, or it or a watch names a key that is `held`. A queue of too many words is not
    /// searched: if it may be done in steps, it waits when it is run; otherwise for any held key.
    pub fn names_one(&self, db: u8, held: impl Fn(u8, &[u8]) -> bool) -> bool {
        let Some(queue) = self.queue.as_ref().filter(|queue| !queue.spoilt) else { return false };
        if !queue.is_looked_through() {
            return !queue.in_steps;
        }
        let mut names_one = queue.commands().any(|(row, args)| row.takes_all(args));
        queue.each_key(db, &mut |db, key| names_one = names_one || held(db, key));
        names_one
            || self.watches.iter().flat_map(|all| &all.keys).any(|watched| held(watched.db, &watched.key))
    }

    /// Whether a queued command logs the client in by a password.
    pub fn logs_in(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.logs_in)
    }

    /// Whether a queued command changes something.
    pub fn changes(&self) -> bool {
        let queued = self.queue.iter().flat_map(|queue| &queue.commands);
        queued.into_iter().any(|queued| queued.row.changes())
    }

    /// What EXEC writes, about: bytes of the longest item, and as how many of them all items count. `None` if it writes or runs
    /// nothing.
    pub fn wanted(&self) -> Option<(usize, usize)> {
        let queue = self.queue.as_ref().filter(|queue| !queue.spoilt && queue.longest_item > 0)?;
        Some((queue.longest_item, queue.items_bytes / queue.longest_item))
    }

    /// Whether a watched key was written.
    pub fn touched(&self) -> bool {
        self.watches.as_ref().is_some_and(|watches| watches.touched.load(Relaxed))
    }
}

/// The database that a command selects, if it selects one.
pub(crate) fn selected(row: &Command, args: Args<'_>) -> Option<u8> {
    let name = if row.has(SELECTS) { args.at(0).and_then(parse_integer) } else { None };
    name.filter(|name| (0..i64::from(DATABASES)).contains(name)).map(|name| name as u8)
}

impl Queue {
    /// The commands with their arguments.
    pub fn commands(&self) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
        self.commands.iter().map(|queued| (queued.row, queued.words(&self.bytes).1))
    }

    /// Calls `visit` with each key and its database, which is `db` for the first command.
    pub fn each_key<'q>(&'q self, db: u8, visit: &mut dyn FnMut(u8, &'q [u8])) {
        self.each_key_of(0..self.commands.len(), db, &mut |_, db, key| visit(db, key));
    }

    /// Calls `visit` with each key of some of the commands, with the command and the database, which is `db` for the first of
    /// them.
    pub fn each_key_of<'q>(
        &'q self,
        some: Range<usize>,
        mut db: u8,
        visit: &mut dyn FnMut(&'static Command, u8, &'q [u8]),
    ) {
        for queued in &self.commands[some] {
            let (row, args) = (queued.row, queued.words(&self.bytes).1);
            row.each_key(args, &mut |key| visit(row, db, key));
            db = selected(row, args).unwrap_or(db);
        }
    }

    /// Whether the queue is not short: then its work is estimated before it is run.
    pub fn is_long(&self) -> bool {
        self.commands.len() > FEW_COMMANDS || self.bytes.len() > FEW_BYTES
    }

    /// Whether the queue has so few words that each look for held keys may go through all of them.
    pub fn is_looked_through(&self) -> bool {
        self.bytes.len() <= LOOKED_BYTES_MAX
            && self.commands.len() <= LOOKED_WORDS_MAX
            && self.commands.iter().map(|queued| queued.words).sum::<usize>() <= LOOKED_WORDS_MAX
    }
}
