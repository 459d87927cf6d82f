//! Writing several keys at once, and the store as a whole.
//!
//! ```text
//! begin: say which keys; their buckets, in hash order: lock, set the transaction bit, unlock
//!        … any operations on these keys …       other workers that want them wait, readers too
//! finish: clear the bits, say that it is over
//! ```
//!
//! - A reader of one key, after some reader saw what the transaction wrote to another, waits: all bits are set before the
//!   first write and cleared after the last.
//! - A worker that wants another key which is at home in one of the buckets finds the bit, looks whether the key is one of
//!   those that transactions have said ([`Open`]), and locks the bucket beside the transaction. So an MSET of 400,000
//!   keys, which holds most buckets that there are, keeps no worker waiting but for its keys.
//! - Transactions whose keys are at home in different buckets do not meet.
//! - The worker that holds the bits locks a bucket like any other for as long as it changes it.
//!
//! What concerns no key but all takes the **world**: it waits until every other worker is between two
//! batches, and has them wait there. Nothing on the way of a request looks at it; a batch's beginning
//! does.
//!
//! The order of locks, and why no thread waits for ever: docs/internals/transactions.md.

use crate::index::{Hold, Locked, Own};
use crate::sync::{Apart, AtomicU64, ModelMutex, Ordering, fence};
use crate::wait::Wait;
use crate::worker::{Guard, Local};
use crate::{Key, Store, WATCHES_SWAPPED_MAX};
use std::sync::Arc;

/// What a worker holds.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Bits are set.
    pub(crate) open: bool,
    /// The world is this worker's.
    pub(crate) whole: bool,
    /// The buckets.
    pub(crate) buckets: Own,
    /// The keys' hashes, in order.
    hashes: Arc<Vec<u64>>,
    /// Keys that are looked at as one, and what their buckets were like before.
    looks: Vec<(u64, Version)>,
}

/// The keys of each worker's transaction, from before its first bit is set until its last is cleared. A thread that finds a
/// bit set asks here whether it is set for its key. Locked for a search, and by the worker that begins or ends one.
#[derive(Debug)]
pub(crate) struct Open(Box<[Apart<Said>]>);

type Said = ModelMutex<Option<Arc<Vec<u64>>>>;

impl Open {
    pub(crate) fn new(workers: usize) -> Open {
        Open((0..workers).map(|_| Apart(ModelMutex::new(None))).collect())
    }

    pub(crate) fn say(&self, id: usize, hashes: Option<&Arc<Vec<u64>>>) {
        *self.0[id].lock().expect("no panic under the lock") = hashes.cloned();
    }

    /// True if a key with this hash is one of an open transaction's, or of one that waits for its bits.
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.0.iter().any(|one| {
            let hashes = one.lock().expect("no panic under the lock");
            hashes.as_ref().is_some_and(|hashes| hashes.binary_search(&hash).is_ok())
        })
    }
}

/// Turns of waiting between two looks of a thread that waits for others' transactions to leave a segment, after looks behind
/// 1, 2, 4 and 8 turns: a look may lock most of its buckets. (A flush that looked after each turn had 98 of 100 steps of a
/// schedule, and the threads that had to get on for it hardly any.)
const TRY_ROUNDS: usize = 16;

/// Room for so many keys is kept from one command to the next: more than clients ask for at once.
const ROOM_KEYS_KEPT: usize = 4096;

/// Empties `room` and gives back what only an unusual command needs of it.
fn clear<T>(room: &mut Vec<T>) {
    room.clear();
    if room.capacity() > ROOM_KEYS_KEPT {
        room.shrink_to(ROOM_KEYS_KEPT);
    }
}

/// The word of a worker that is between two batches in the midst of a request, and waits for others. Epochs are larger.
const ASIDE: u64 = 1;

/// Set beside the epoch in the word of a batch in which a request goes on that has stepped aside.
const AGAIN: u64 = 1 << 63;

/// The workers that are in a batch, and those that want all others out.
#[derive(Debug)]
pub(crate) struct World {
    /// The worker that has the store to itself, plus 1; 0: none.
    owner: AtomicU64,
    /// The epoch in which each worker's batch began; 0 outside, [`ASIDE`] where it has stepped out of it.
    workers: Box<[Apart<AtomicU64>]>,
    /// The epoch in which the request of each worker began that has stepped aside, or goes on in a later batch.
    began: Box<[Apart<AtomicU64>]>,
    holds: AtomicU64,
}

impl World {
    pub(crate) fn new(workers: usize) -> World {
        let words = || (0..workers).map(|_| Apart(AtomicU64::new(0))).collect();
        World { owner: AtomicU64::new(0), workers: words(), began: words(), holds: AtomicU64::new(0) }
    }

    /// Says that worker `id` begins a batch: a fence has to follow before [`World::taken`].
    #[inline]
    pub(crate) fn enter(&self, id: usize, epoch: u64) {
        // Release, as in `leave`: a thread that sees this batch sees what the one before it did.
        self.workers[id].store(epoch, Ordering::Release);
    }

    /// True if every batch that was under way in epoch `tag` is over: what was out of use before
    /// that tag was taken is not even hinted at any more.
    pub(crate) fn batches_over(&self, tag: u64) -> bool {
        // Pairs with the fence behind `enter`: either this sees the batch, or the batch sees what
        // came before the tag.
        fence(Ordering::SeqCst);
        self.workers.iter().all(|worker| {
            let began = worker.load(Ordering::Acquire);
            began <= ASIDE || began & !AGAIN >= tag + 2
        })
    }

    /// True if every request that a worker other than `id` was at in epoch `tag` is over, also one
    /// that has stepped out of its batch meanwhile.
    fn requests_over(&self, id: usize, tag: u64) -> bool {
        // As in `batches_over`.
        fence(Ordering::SeqCst);
        self.workers.iter().zip(&self.began).enumerate().all(|(i, (worker, began))| {
            let word = worker.load(Ordering::Acquire);
            let of_later = word == ASIDE || word & AGAIN != 0;
            let began = if of_later { began.load(Ordering::Relaxed) } else { word };
            i == id || word == 0 || began >= tag + 2
        })
    }

    /// True if another worker has or wants the store to itself.
    #[inline]
    pub(crate) fn taken(&self) -> bool {
        // Acquire pairs with `give`: a batch sees what was done to the store before it.
        self.owner.load(Ordering::Acquire) != 0
    }

    /// Says that worker `id` is done with its batch.
    #[inline]
    pub(crate) fn leave(&self, id: usize) {
        // Release: a thread that waits for it sees what the batch did.
        self.workers[id].store(0, Ordering::Release);
    }

    /// Says that worker `id` is between two batches, and goes on with its request in the next.
    fn step_aside(&self, id: usize) {
        let word = self.workers[id].load(Ordering::Relaxed);
        // Noted once a request: what the request has seen is as old as the first of its batches.
        if word != ASIDE && word & AGAIN == 0 {
            self.began[id].store(word, Ordering::Relaxed);
        }
        // Release, as in `leave`.
        self.workers[id].store(ASIDE, Ordering::Release);
    }

    pub(crate) fn take(&self, id: usize) -> bool {
        self.owner.compare_exchange(0, id as u64 + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// True if another worker than `id`, which has taken the store, is still in a batch.
    pub(crate) fn others_inside(&self, id: usize) -> bool {
        // Pairs with the fence behind `enter`: either it sees the owner, or this sees the batch.
        fence(Ordering::SeqCst);
        // Acquire pairs with `leave`: what the batch did is seen.
        self.workers.iter().enumerate().any(|(i, worker)| i != id && worker.load(Ordering::Acquire) > ASIDE)
    }

    pub(crate) fn give(&self) {
        self.owner.store(0, Ordering::Release);
    }
}

impl Local {
    /// Begins a batch: announces it to the epochs, and waits as long as another worker has the store to itself.
    #[inline]
    pub(crate) fn enter_batch(&mut self, store: &Store) {
        self.announce(store);
        if store.world.taken() {
            self.enter_batch_later(store, Local::leave_batch, Local::announce);
        }
    }

    /// Begins a batch for the rest of a request, which has stepped aside.
    pub(crate) fn enter_batch_again(&mut self, store: &Store) {
        self.announce_again(store);
        if store.world.taken() {
            self.enter_batch_later(store, Local::step_aside, Local::announce_again);
        }
    }

    #[inline]
    fn announce(&self, store: &Store) {
        store.world.enter(self.id, store.epochs.now());
        store.epochs.enter(self.id);
    }

    fn announce_again(&self, store: &Store) {
        store.world.enter(self.id, store.epochs.now() | AGAIN);
        store.epochs.enter(self.id);
    }

    #[cold]
    fn enter_batch_later(&mut self, store: &Store, leave: fn(&Local, &Store), announce: fn(&Local, &Store)) {
        while store.world.taken() {
            leave(self, store);
            let mut wait = Wait::idle();
            while store.world.taken() {
                self.wait_outside(store, &mut wait);
            }
            announce(self, store);
        }
    }

    #[inline]
    pub(crate) fn leave_batch(&self, store: &Store) {
        store.epochs.leave(self.id);
        store.world.leave(self.id);
    }

    /// Ends a batch in the midst of a request, which goes on in the next.
    pub(crate) fn step_aside(&self, store: &Store) {
        store.epochs.leave(self.id);
        store.world.step_aside(self.id);
    }
}

impl Store {
    /// Locks the home bucket of a hash that is in no transaction, although its bucket is.
    fn lock_beside(&self, hash: u64) -> Option<Locked<'_>> {
        if self.open.has(hash) {
            return None;
        }
        let locked = self.index.lock_beside(&self.arena, hash);
        // 1. A bucket that is not clean stays so for as long as the transaction.
        // 2. Another may have begun meanwhile. It said its keys before it set the bit that is seen here.
        if locked.control.stamp() == self.stamp() && !self.open.has(hash) {
            return Some(locked);
        }
        locked.home.unlock(locked.control);
        None
    }

    /// How often a worker had the store to itself.
    pub fn whole_holds(&self) -> u64 {
        self.world.holds.load(Ordering::Relaxed)
    }
}

impl Guard<'_> {
    /// Makes what follows, until [`Guard::finish`], one step for all observers of these keys. Only
    /// these keys may be read or written meanwhile. Waits for transactions that hold one of them.
    ///
    /// # Panics
    /// If a transaction is open already.
    pub fn begin<'k>(&mut self, keys: impl IntoIterator<Item = Key<'k>>) {
        self.begin_hashes(keys.into_iter().map(|key| key.hash));
    }

    /// [`Guard::begin`] of the keys with these names in a database. In steady state it allocates nothing.
    ///
    /// # Panics
    /// If a transaction is open already.
    pub fn begin_in<'k>(&mut self, db: u8, names: impl IntoIterator<Item = &'k [u8]>) {
        let store = self.store;
        self.begin_hashes(names.into_iter().map(|name| store.key_in(db, name).hash));
    }

    /// [`Guard::begin`] of the keys that `each` names with their databases.
    ///
    /// # Panics
    /// If a transaction is open already.
    pub fn begin_each(&mut self, each: impl FnOnce(&mut dyn FnMut(u8, &[u8]))) {
        let store = self.store;
        self.begin_noted(|hashes| each(&mut |db, name| hashes.push(store.key_in(db, name).hash)));
    }

    fn begin_hashes(&mut self, keys: impl Iterator<Item = u64>) {
        self.begin_noted(|hashes| hashes.extend(keys));
    }

    fn begin_noted(&mut self, note: impl FnOnce(&mut Vec<u64>)) {
        assert!(!self.in_transaction(), "one transaction at a time");
        let own = &mut self.local.transaction.hashes;
        let hashes = Arc::get_mut(own).expect("nobody else knows it between two transactions");
        note(hashes);
        hashes.sort_unstable();
        hashes.dedup();
        let hashes = Arc::clone(own);
        self.local.leave_if_due(self.store);
        if !self.alone {
            self.store.open.say(self.local.id, Some(&hashes));
        }
        while !self.hold(&hashes) {}
        self.local.transaction.open = true;
    }

    /// Sets the bits of all home buckets; false, and none set, if it has to be begun anew.
    fn hold(&mut self, hashes: &[u64]) -> bool {
        let store = self.store;
        self.local.give_way(store);
        let gate = store.gate();
        let mut buckets = std::mem::take(&mut self.local.transaction.buckets);
        debug_assert!(buckets.is_empty());
        let mut wait = Wait::idle();
        let (mut unclean, mut in_the_way) = (None, None);
        let mut left = hashes;
        while let (Some((&hash, rest)), None, None) = (left.split_first(), unclean, in_the_way) {
            match store.index.hold(&store.arena, hash, gate, &mut buckets) {
                Hold::Held => left = rest,
                // The transaction that it waits for may need the memory of spans that have items in
                // the buckets that are held here.
                Hold::Busy if !buckets.is_empty() && store.wanting.any() => in_the_way = Some(hash),
                Hold::Busy => self.local.wait(store, &mut wait),
                Hold::Unclean => unclean = Some(hash),
            }
        }
        // Pairs with the fence of a cleaning, which leaves a segment alone if it sees one of the bits.
        if !self.alone {
            fence(Ordering::SeqCst);
        }
        // A flush since would take what is written into some of the buckets and not into others.
        let whole = unclean.is_none() && in_the_way.is_none() && store.gate() == gate;
        if !whole {
            store.index.release(&store.arena, &mut buckets);
        }
        self.local.transaction.buckets = buckets;
        if let Some(hash) = unclean {
            self.clean(hash);
        }
        if let Some(hash) = in_the_way {
            let locked = self.local.lock_later(store, hash);
            locked.home.unlock(locked.control);
        }
        whole
    }

    /// Has the store to itself until [`Guard::finish`]: every other worker waits between two batches.
    /// Keys made before, in this batch, may no longer be used, and its hints say nothing. Counted in [`Store::whole_holds`].
    ///
    /// # Panics
    /// If a transaction is open already.
    pub fn begin_whole(&mut self) {
        assert!(!self.in_transaction(), "one transaction at a time");
        let (store, local) = (self.store, &mut *self.local);
        // Between two batches while waiting, so that others get on with their own wait for all others.
        local.step_aside(store);
        let mut wait = Wait::idle();
        while !store.world.take(local.id) {
            local.wait_outside(store, &mut wait);
        }
        let mut wait = Wait::idle();
        while store.world.others_inside(local.id) {
            local.wait_outside(store, &mut wait);
        }
        store.world.holds.fetch_add(1, Ordering::Relaxed);
        local.announce_again(store);
        local.transaction.whole = true;
        self.forget_hints();
    }

    /// Ends what [`Guard::begin`] or [`Guard::begin_whole`] began; nothing if neither did.
    pub fn finish(&mut self) {
        self.local.finish(self.store);
    }

    /// The epoch of what was said to others just now, for [`Guard::others_have_heard`].
    pub fn say(&self) -> u64 {
        self.store.epochs.tag()
    }

    /// True if every request that another worker began before `tag` was taken is over: those at work now have seen what was
    /// said before. Does not wait: it returns true soon where it is called again and again.
    pub fn others_have_heard(&self, tag: u64) -> bool {
        self.alone || self.store.world.requests_over(self.local.id, tag) || {
            self.store.epochs.renew(self.local.id);
            self.store.epochs.advance();
            false
        }
    }

    /// True between [`Guard::begin`] or [`Guard::begin_whole`] and [`Guard::finish`].
    #[inline]
    pub fn in_transaction(&self) -> bool {
        self.local.transaction.open || self.local.transaction.whole
    }

    /// True if the store is this worker's alone.
    #[inline]
    pub fn has_whole(&self) -> bool {
        self.local.transaction.whole
    }

    /// Swaps two databases by their names, for all observers at once. False, and nothing is done, if their keys have more
    /// than [`WATCHES_SWAPPED_MAX`] watches.
    ///
    /// # Panics
    /// If a transaction of keys is open.
    pub fn swap_databases(&mut self, one: u8, other: u8) -> bool {
        let had_whole = self.has_whole();
        if !had_whole {
            self.begin_whole();
        }
        let watches = self.store.watches_in(one) + self.store.watches_in(other);
        let swaps = one == other || watches <= WATCHES_SWAPPED_MAX;
        if swaps {
            self.swap_watches(one, other);
            self.store.names.swap(one, other);
        }
        if !had_whole {
            self.finish();
        }
        swaps
    }
}

/// Waiting for another's transaction. The caller holds no reference into the arena.
impl Local {
    /// Before a transaction: threads that wait for a segment without a transaction go first. They wait for transactions
    /// that are open, and these may need memory.
    #[inline]
    fn give_way(&mut self, store: &Store) {
        let mut wait = Wait::idle();
        while store.index.is_pressed() {
            self.wait(store, &mut wait);
        }
    }

    /// Locks the home bucket of a hash that another's transaction has: at once if it is not for this key.
    #[cold]
    pub(crate) fn lock_later<'s>(&mut self, store: &'s Store, hash: u64) -> Locked<'s> {
        let mut wait = Wait::idle();
        loop {
            if let Some(locked) = store.lock_beside(hash) {
                return locked;
            }
            self.wait(store, &mut wait);
            if let Some(locked) = store.index.lock_open(&store.arena, hash) {
                return locked;
            }
        }
    }

    /// Runs `f`, which concerns a segment, until it says that no transaction was in its way, for so many `rounds` of
    /// waiting at most.
    pub(crate) fn between_transactions<R>(
        &mut self,
        store: &Store,
        rounds: usize,
        mut f: impl FnMut(&mut Local) -> Option<R>,
    ) -> Option<R> {
        let mut done = f(self);
        if done.is_some() {
            return done;
        }
        let mut wait = Wait::idle();
        store.index.press(1);
        for round in 1..rounds {
            self.wait(store, &mut wait);
            if !round.is_power_of_two() && !round.is_multiple_of(TRY_ROUNDS) && round + 1 < rounds {
                continue;
            }
            done = f(self);
            if done.is_some() {
                break;
            }
        }
        store.index.press(-1);
        done
    }
}

/// Making room within a transaction: what is at home beside its keys, in buckets that are its own, may go
/// like anything else, or a transaction of many keys would find nothing to evict in a small store. Its own
/// keys stay.
impl Local {
    /// Locks the home bucket of a hash to take something out; none if it is locked, or another's
    /// transaction has it.
    #[inline]
    pub(crate) fn try_lock<'s>(&self, store: &'s Store, hash: u64) -> Option<Locked<'s>> {
        let Transaction { open, buckets, .. } = &self.transaction;
        let own = || if *open { store.index.try_lock_if_held(&store.arena, hash, buckets) } else { None };
        store.index.try_lock(&store.arena, hash).or_else(own)
    }

    /// As [`Local::try_lock`], but waits for the worker that has the lock.
    pub(crate) fn lock_open<'s>(&self, store: &'s Store, hash: u64) -> Option<Locked<'s>> {
        let Transaction { open, buckets, .. } = &self.transaction;
        let own = || if *open { store.index.lock_if_held(&store.arena, hash, buckets) } else { None };
        store.index.lock_open(&store.arena, hash).or_else(own)
    }

    /// Locks the home bucket of a hash, if this worker's transaction, which is open, has it.
    pub(crate) fn lock_of_transaction<'s>(&self, store: &'s Store, hash: u64) -> Option<Locked<'s>> {
        let Transaction { hashes, buckets, .. } = &self.transaction;
        match hashes.binary_search(&hash) {
            Ok(_) => {
                let locked = store.index.lock_beside(&store.arena, hash);
                debug_assert!(
                    locked.control.in_transaction(),
                    "a transaction touches the keys that it began with"
                );
                Some(locked)
            }
            Err(_) => store.index.lock_if_held(&store.arena, hash, buckets),
        }
    }

    /// True if there are keys that this worker takes nothing from.
    #[inline]
    pub(crate) fn has_own(&self) -> bool {
        self.transaction.open || self.spared.is_some()
    }

    /// True if this may be one of the keys that the transaction was begun with, or the one that is
    /// spared: only the leading 40 bits of the hashes are compared.
    #[inline]
    pub(crate) fn may_be_own(&self, hash: u64) -> bool {
        if self.spared.is_some_and(|spared| spared >> 24 == hash >> 24) {
            return true;
        }
        let Transaction { open, hashes, .. } = &self.transaction;
        *open && hashes.binary_search_by_key(&(hash >> 24), |own| own >> 24).is_ok()
    }
}

impl Local {
    #[inline]
    pub(crate) fn finish(&mut self, store: &Store) {
        if self.transaction.open {
            store.index.release(&store.arena, &mut self.transaction.buckets);
            self.transaction.open = false;
            if store.counters.len() > 1 {
                store.open.say(self.id, None);
            }
            let hashes = Arc::get_mut(&mut self.transaction.hashes);
            clear(hashes.expect("who looks at it does so under the lock"));
        }
        if self.transaction.whole {
            self.transaction.whole = false;
            store.world.give();
        }
    }
}

/// What a key's bucket was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    control: u64,
    place: u64,
    gate: u64,
}

impl Guard<'_> {
    /// Begins to look at several keys as one; what was noted before is forgotten.
    pub fn look(&mut self) {
        clear(&mut self.local.transaction.looks);
    }

    /// Notes a key before it is read: 32 bytes, until [`Guard::look`] is called again. In a transaction there is
    /// no need to.
    #[inline]
    pub fn note(&mut self, key: &Key<'_>) {
        if self.in_transaction() {
            return;
        }
        let version = self.version(key.hash);
        self.local.transaction.looks.push((key.hash, version));
    }

    /// True if none of the noted keys has changed since: what was read of them was there at one moment.
    /// Writes of other keys may spoil it too. Always true in a transaction.
    pub fn looked_as_one(&self) -> bool {
        // The slots were read before the words are read again.
        fence(Ordering::Acquire);
        self.in_transaction()
            || self.local.transaction.looks.iter().all(|&(hash, version)| {
                self.version(hash) == version && !crate::bucket::Control(version.control).busy()
            })
    }

    /// What the bucket of this hash is like.
    #[inline]
    fn version(&self, hash: u64) -> Version {
        let place = self.store.index.place(&self.store.arena, hash);
        let (control, gate) = (place.home().control(), self.store.gate());
        Version { control: control.0, place: place.meta(), gate }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use crate::{Config, Guard, Store};

    const NOW: u64 = 1_700_000_000_000;

    /// Asked again and again.
    fn is_heard(guard: &mut Guard<'_>, tag: u64) -> bool {
        (0..8).any(|_| guard.others_have_heard(tag))
    }

    #[test]
    fn a_request_of_before_has_heard_nothing_until_it_is_over_wherever_it_waits() {
        let store = Store::new(Config { workers_max: 2, ..Config::default() }).unwrap();
        let (mut one, mut two) = (store.worker().unwrap(), store.worker().unwrap());
        let other = two.enter(NOW);
        let mut guard = one.enter(NOW);
        let tag = guard.say();
        assert!(!is_heard(&mut guard, tag));
        // It waits for the store as a whole, which may be another's then, and goes on.
        other.local.step_aside(other.store);
        assert!(!store.world.others_inside(guard.local.id) && !is_heard(&mut guard, tag));
        other.local.enter_batch_again(other.store);
        assert!(!is_heard(&mut guard, tag));
        drop(other);
        assert!(is_heard(&mut guard, tag));
        // Nor does one worker that is never seen outside of its batches keep anybody waiting.
        let tag = guard.say();
        let mut heard = false;
        for _ in 0..4 {
            let _other = two.enter(NOW);
            heard |= guard.others_have_heard(tag);
        }
        assert!(heard);
    }
}
