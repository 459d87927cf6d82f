//! Waiters: which clients wait for which keys, and in which order.
//!
//! ```text
//! Waiting ─┬─ claimed by a worker ─▶ Claimed ─▶ Served, with its reply
//!          ├─ by its own worker ────▶ Over             its time has come
//!          ├─ CLIENT UNBLOCK ───────▶ Unblocked, Refused
//!          └─ its connection ends ──▶ Gone             (of a claimed one, too: what it was to get is put back)
//! ```
//!
//! The state is one word, and each arrow is one compare-and-swap. A waiter in a line whose state is not `Waiting` is passed over.
//! The locks here are held for a look at a table, never while a key is waited for.

mod want;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_protocol::resp::Args;
use larder_store::{Moment, Type};

use super::facts::ClientFacts;
use super::fail::Done;
use crate::core::access::Snapshot;
use crate::core::calls::RowId;
use crate::core::host::Host;
use crate::core::output::Output;
pub(crate) use want::{Portion, Taken, Want, Whence, Which};

/// Parts of the table, each with its lock.
const SHARDS: usize = 16;
/// Bytes of a waiter beside its keys, about.
const WAITER_BYTES: usize = 512;
/// Bytes of each of its keys beside the name, which is there twice: its place in a line, and the line.
const KEY_BYTES: usize = 256;

/// The state of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stands {
    Waiting,
    Claimed,
    Served,
    Over,
    Unblocked,
    Refused,
    Gone,
}

const STANDS: [Stands; 7] = [
    Stands::Waiting,
    Stands::Claimed,
    Stands::Served,
    Stands::Over,
    Stands::Unblocked,
    Stands::Refused,
    Stands::Gone,
];

/// How CLIENT UNBLOCK ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unblock {
    /// As if its timeout had passed.
    Timeout,
    /// With an error.
    Error,
}

/// What a waiter is given.
#[derive(Debug)]
pub(super) struct Served {
    pub reply: Output,
    pub done: Done,
    /// What was taken first, if there is more to take: the reply has these elements, and no head.
    pub begun: Option<Portion>,
    /// What is put back if the reply does not reach the client, and to which of its keys.
    pub taken: Taken,
    pub key: Box<[u8]>,
    /// The database at the moment when that was taken.
    pub moment: Moment,
}

/// A waiter: a client that waits, as all workers see it.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) want: Want,
    pub(super) db: u8,
    pub(super) resp3: bool,
    /// The keys, each once, in the order of the command.
    pub(super) keys: Box<[Box<[u8]>]>,
    pub(super) facts: Arc<ClientFacts>,
    /// The client's user when it began to wait, and the row of its command.
    pub(super) user: Snapshot,
    pub(super) row: RowId,
    /// Its place in each line, given when it joins them.
    number: AtomicU64,
    stands: AtomicU8,
    /// It is to look at its keys: the worker that served those before it left that to it.
    called: AtomicBool,
    served: Mutex<Option<Served>>,
}

/// Under the scheduler of tests, lets other threads run before an access to a wait's words.
#[inline]
fn turn() {
    #[cfg(feature = "schedule")]
    larder_store::schedule::turn();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiter {
    /// Makes a waiter that stands in no line yet.
    pub fn new(
        facts: &Arc<ClientFacts>,
        (db, resp3): (u8, bool),
        user: Snapshot,
        row: RowId,
        want: Want,
        keys: Args<'_>,
    ) -> Waiter {
        let mut known = HashSet::new();
        Waiter {
            want,
            db,
            resp3,
            keys: keys.filter(|key| known.insert(*key)).map(|key| key.into()).collect(),
            facts: Arc::clone(facts),
            user,
            row,
            number: AtomicU64::new(0),
            stands: AtomicU8::new(Stands::Waiting as u8),
            called: AtomicBool::new(false),
            served: Mutex::default(),
        }
    }

    /// Bytes of the waiter, about.
    pub fn bytes(&self) -> usize {
        WAITER_BYTES
            + self.want.bytes()
            + self.keys.iter().map(|key| KEY_BYTES + 2 * key.len()).sum::<usize>()
    }

    pub(super) fn stands(&self) -> Stands {
        STANDS[usize::from(self.stands.load(SeqCst))]
    }

    fn change(&self, from: Stands, to: Stands) -> bool {
        turn();
        self.stands.compare_exchange(from as u8, to as u8, AcqRel, Acquire).is_ok()
    }

    /// Ends its wait; false if it no longer waited.
    pub(super) fn end(&self, how: Stands) -> bool {
        self.change(Stands::Waiting, how)
    }

    /// Claims it, so that no other worker serves it; false if it no longer waits, or is to be closed.
    pub(super) fn claim(&self) -> bool {
        !self.facts.killed.load(Relaxed) && self.change(Stands::Waiting, Stands::Claimed)
    }

    /// Gives the waiter what it waited for; returns that if the client has gone meanwhile.
    pub(super) fn serve(&self, served: Served) -> Option<Served> {
        *lock(&self.served) = Some(served);
        if self.change(Stands::Claimed, Stands::Served) { None } else { lock(&self.served).take() }
    }

    /// Takes what the waiter was given.
    pub(super) fn take_served(&self) -> Option<Served> {
        turn();
        lock(&self.served).take()
    }

    /// Ends the wait with its connection. Returns what the waiter was given and has not replied; what it is just being given,
    /// [`Waiter::serve`] returns.
    pub(super) fn go(&self) -> Option<Served> {
        turn();
        let stood = self.stands.swap(Stands::Gone as u8, SeqCst);
        if stood == Stands::Served as u8 { self.take_served() } else { None }
    }

    /// Wakes its worker.
    pub(super) fn wake(&self, host: &dyn Host) {
        host.wake(self.facts.place, self.facts.id);
    }

    /// Has it look at its keys when its worker comes to it. False if it no longer waits: the next in line is called then.
    pub(super) fn call(&self, host: &dyn Host) -> bool {
        turn();
        if !self.called.swap(true, SeqCst) {
            self.wake(host);
        }
        // A waiter that goes changes its state first and takes calls then: so either this sees that it has gone, or it sees the
        // call.
        self.stands() == Stands::Waiting
    }

    /// Whether it was called since this was last asked.
    pub(super) fn take_call(&self) -> bool {
        turn();
        self.called.swap(false, SeqCst)
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }
}

/// The waiters for a key to be of one type, by number: the first is served first.
#[derive(Debug)]
struct Line {
    db: u8,
    kind: Type,
    /// `Waiters::left` has a [`Left::Key`] for this line.
    is_left: bool,
    waiting: BTreeMap<u64, Arc<Waiter>>,
}

/// The lines at keys, by the keys' names.
type Lines = HashMap<Box<[u8]>, Vec<Line>>;

/// Work that a client left when it went.
#[derive(Debug)]
pub(super) enum Left {
    /// What was popped for the client, and the moment of its database; how often it could not be put back, and when that is tried
    /// again.
    Taken { moment: Moment, key: Box<[u8]>, taken: Taken, tries: u16, again_us: u64 },
    /// A key that the client was to look at.
    Key { db: u8, key: Box<[u8]> },
    /// A stream with removed groups of which something is left, and when to go on with it.
    Groups { moment: Moment, key: Box<[u8]>, again_us: u64 },
}

impl Left {
    /// Whether its time has come.
    fn is_due(&self, now_us: u64) -> bool {
        match self {
            Left::Key { .. } => true,
            Left::Taken { again_us, .. } | Left::Groups { again_us, .. } => *again_us <= now_us,
        }
    }
}

/// All waiters.
#[derive(Debug)]
pub(crate) struct Waiters {
    shards: Box<[Mutex<Lines>]>,
    hasher: RandomState,
    last_number: AtomicU64,
    /// How many lines there are.
    lines: AtomicUsize,
    /// Waiters by their clients' numbers.
    clients: Mutex<HashMap<u64, Arc<Waiter>>>,
    left: Mutex<VecDeque<Left>>,
    left_count: AtomicUsize,
    /// Bytes that were popped and may have to be put back.
    pub(super) taken_bytes: Arc<AtomicU64>,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            last_number: AtomicU64::new(0),
            lines: AtomicUsize::new(0),
            clients: Mutex::default(),
            left: Mutex::default(),
            left_count: AtomicUsize::new(0),
            taken_bytes: Arc::default(),
        }
    }
}

impl Waiters {
    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Lines> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }

    /// How many keys are waited for.
    pub fn keys(&self) -> usize {
        self.lines.load(Relaxed)
    }

    /// Has a waiter join the lines of its keys.
    pub(super) fn join(&self, waiter: &Arc<Waiter>) {
        let number = self.last_number.fetch_add(1, Relaxed) + 1;
        waiter.number.store(number, Relaxed);
        lock(&self.clients).insert(waiter.facts.id, Arc::clone(waiter));
        let (db, kind) = (waiter.db, waiter.want.kind());
        for key in &waiter.keys {
            let mut shard = self.shard(key);
            let lines = shard.entry(key.clone()).or_default();
            let at = lines.iter().position(|line| (line.db, line.kind) == (db, kind)).unwrap_or_else(|| {
                self.lines.fetch_add(1, Relaxed);
                lines.push(Line { db, kind, is_left: false, waiting: BTreeMap::new() });
                lines.len() - 1
            });
            lines[at].waiting.insert(number, Arc::clone(waiter));
        }
    }

    /// Has a waiter leave all lines and the table of clients.
    pub(super) fn leave(&self, waiter: &Waiter) {
        lock(&self.clients).remove(&waiter.facts.id);
        self.leave_lines(waiter);
    }

    /// Has a waiter leave all lines: it is passed over from now on.
    pub(super) fn leave_lines(&self, waiter: &Waiter) {
        for key in &waiter.keys {
            let mut shard = self.shard(key);
            let Some(lines) = shard.get_mut(key) else { continue };
            for line in lines.iter_mut() {
                line.waiting.remove(&waiter.number());
            }
            let before = lines.len();
            lines.retain(|line| !line.waiting.is_empty());
            self.lines.fetch_sub(before - lines.len(), Relaxed);
            if lines.is_empty() {
                shard.remove(key);
            }
        }
    }

    /// The first waiter in line at a key.
    pub(super) fn first(&self, db: u8, kind: Type, key: &[u8]) -> Option<Arc<Waiter>> {
        let shard = self.shard(key);
        let line = shard.get(key)?.iter().find(|line| (line.db, line.kind) == (db, kind))?;
        line.waiting.values().next().cloned()
    }

    /// The first waiter in line at a key behind a number.
    pub(super) fn behind(&self, db: u8, kind: Type, key: &[u8], number: u64) -> Option<Arc<Waiter>> {
        let shard = self.shard(key);
        let line = shard.get(key)?.iter().find(|line| (line.db, line.kind) == (db, kind))?;
        line.waiting.range(number.checked_add(1)?..).next().map(|(_, waiter)| Arc::clone(waiter))
    }

    /// Whether a waiter that still waits is in line at a key before this one.
    pub(super) fn has_before(&self, waiter: &Waiter, key: &[u8]) -> bool {
        let shard = self.shard(key);
        let here = (waiter.db, waiter.want.kind());
        let line = shard.get(key).and_then(|lines| lines.iter().find(|line| (line.db, line.kind) == here));
        line.is_some_and(|line| {
            line.waiting.range(..waiter.number()).any(|(_, before)| before.stands() == Stands::Waiting)
        })
    }

    /// Whether any waiter is in line at a key.
    pub(in crate::redis) fn has_line(&self, db: u8, kind: Type, key: &[u8]) -> bool {
        self.keys() > 0 && self.first(db, kind, key).is_some()
    }

    /// Ends the wait of a client; false if it did not wait.
    pub(crate) fn unblock(&self, host: &dyn Host, client: u64, how: Unblock) -> bool {
        let Some(waiter) = lock(&self.clients).get(&client).cloned() else { return false };
        let ended = waiter.end(match how {
            Unblock::Timeout => Stands::Unblocked,
            Unblock::Error => Stands::Refused,
        });
        if ended {
            waiter.wake(host);
        }
        ended
    }

    /// Notes work that a client left when it went.
    pub(super) fn leave_behind(&self, left: Left) {
        let mut all = lock(&self.left);
        all.push_back(left);
        self.left_count.store(all.len(), Relaxed);
    }

    /// Marks in the lines at a key whether `left` has a [`Left::Key`] for them; true if that is new for one.
    fn mark_left(&self, db: u8, key: &[u8], is_left: bool) -> bool {
        let mut shard = self.shard(key);
        let lines = shard.get_mut(key).into_iter().flatten().filter(|line| line.db == db);
        lines.fold(false, |is_new, line| is_new | (std::mem::replace(&mut line.is_left, is_left) != is_left))
    }

    /// Notes that waiters in line at a held key have to wait for its command. Does nothing if there are none.
    pub(super) fn leave_held(&self, db: u8, key: &[u8]) {
        turn();
        if self.mark_left(db, key, true) {
            self.leave_behind(Left::Key { db, key: key.into() });
        }
    }

    /// Notes that a client that removed a stream's group has gone, and left a part of it.
    pub(crate) fn leave_group(&self, moment: Moment, key: &[u8]) {
        self.leave_behind(Left::Groups { moment, key: key.into(), again_us: 0 });
    }

    /// Whether there is work that clients left.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.left_count.load(Relaxed) > 0
    }

    /// Takes up to `most` of the work that is due now.
    pub(super) fn take_left(&self, most: usize, now_us: u64) -> Vec<Left> {
        let (mut all, mut taken) = (lock(&self.left), Vec::new());
        for _ in 0..all.len() {
            match all.pop_front() {
                Some(left) if left.is_due(now_us) => taken.push(left),
                Some(left) => all.push_back(left),
                None => {}
            }
            if taken.len() == most {
                break;
            }
        }
        self.left_count.store(all.len(), Relaxed);
        drop(all);
        for left in &taken {
            if let Left::Key { db, key } = left {
                self.mark_left(*db, key, false);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of these kinds at `k` of the first database.
    fn lined(kinds: [Type; 2]) -> Waiters {
        let waiters = Waiters::default();
        let line = |kind| Line { db: 0, kind, is_left: false, waiting: BTreeMap::new() };
        waiters.shard(b"k").insert(Box::from(&b"k"[..]), kinds.map(line).into());
        waiters
    }

    #[test]
    fn a_key_that_is_held_is_left_once_however_often_it_is_written() {
        let waiters = lined([Type::List, Type::SortedSet]);
        let left = || waiters.left_count.load(Relaxed);
        for round in 0..3 {
            for _ in 0..100 {
                waiters.leave_held(0, b"k");
                assert_eq!((left(), lock(&waiters.left).len()), (1, 1), "{round}");
            }
            // It was looked at, and is held still.
            assert_eq!(waiters.take_left(64, 0).len(), 1);
            assert!(!waiters.has_left());
        }
        for (db, key) in [(1, &b"k"[..]), (0, &b"other"[..])] {
            waiters.leave_held(db, key);
            assert_eq!(left(), 0, "nobody stands in line there");
        }
    }
}
