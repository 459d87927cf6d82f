//! Holds of keys. A command in steps holds its keys from its first write to its last, so that all of it is one moment for
//! others; or while it works at their values, so that others do not change these.
//!
//! ```text
//! the keys are noted ─► said to all ─► every request of before is over ─► written, step by step ─► said no more
//!   no request waits      a request that names one of them waits, whatever its worker and protocol
//! ```
//!
//! A request looks, before it begins, whether one of its keys is held. If so it waits in its connection: no worker waits. While
//! nothing is held, this costs nothing beside the look at [`Pause`](super::pause::Pause). One command at a time holds keys. If
//! others have waited meanwhile ([`Holds::note_waiter`]), the next command to hold keys waits a little, so that they have their
//! turn. Of the commands that wait to hold keys, the one that has waited for longest is the next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larder_store::Millis;

/// Milliseconds after which a request that waits for held keys looks again.
pub(crate) const LOOK_MS: Millis = 2;
/// Milliseconds between two commands that hold keys, if others have waited: each of these has looked by then, and begun.
const BETWEEN_MS: Millis = 3 * LOOK_MS;

/// Milliseconds after which a command that waits to hold keys and was not seen lets others go first: its client may have to
/// read.
const ABSENT_MS: Millis = 8 * LOOK_MS;

/// The hashes of keys, as a table that is filled step by step.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The number of their turn to be held; 0 before their command first asked.
    turn: AtomicU64,
    /// Hashes of keys; 0 where a place is free. There are a power of two of places, half of which are free at least.
    places: Box<[u64]>,
}

impl Keys {
    /// Room for the hashes of so many keys.
    pub fn of(count: usize) -> Keys {
        Keys { turn: AtomicU64::new(0), places: vec![0; Keys::places(count)].into_boxed_slice() }
    }

    fn places(count: usize) -> usize {
        (2 * count.max(1)).next_power_of_two()
    }

    /// Bytes that the hashes of so many keys take.
    pub fn bytes(count: usize) -> usize {
        Keys::places(count) * size_of::<u64>()
    }

    /// The place of a hash, or the free place for it.
    fn place(&self, hash: u64) -> usize {
        let mask = self.places.len() - 1;
        // 0 marks a free place, so that a hash of 0 is noted as 1: a request whose key has either hash waits for both.
        let hash = hash.max(1);
        let mut at = (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        while self.places[at] != 0 && self.places[at] != hash {
            at = (at + 1) & mask;
        }
        at
    }

    /// Notes the hash of one more key. There must be room for it.
    pub fn note(&mut self, hash: u64) {
        let at = self.place(hash);
        self.places[at] = hash.max(1);
    }

    /// Returns whether a key with this hash is one of them.
    pub fn has(&self, hash: u64) -> bool {
        self.places[self.place(hash)] != 0
    }
}

/// The keys that are held, and the commands that wait for keys.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    any: AtomicBool,
    /// Whether a command waits for held keys, or to hold some.
    waited: AtomicBool,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    keys: Option<Arc<Keys>>,
    /// The time from which on a command may hold keys.
    free_at: Millis,
    /// The time of the last step of the command that holds keys.
    seen_at: Millis,
    /// Number of turns that were given.
    turns: u64,
    /// The first of the commands that wait for their turn.
    next: Option<First>,
}

/// Keys that are to be held next.
#[derive(Debug)]
struct First {
    turn: u64,
    /// The time at which its command asked last.
    seen_at: Millis,
    /// The keys, which are gone with the command that waits.
    keys: Weak<Keys>,
}

impl First {
    /// Returns whether it comes before the command that has this turn.
    fn comes_before(&self, turn: u64, at: Millis) -> bool {
        self.turn < turn && at.abs_diff(self.seen_at) <= ABSENT_MS && self.keys.strong_count() > 0
    }
}

impl Now {
    /// Returns whether these keys are to be held next, as far as is known. If so they are noted as the first.
    fn is_next(&mut self, keys: &Arc<Keys>, at: Millis) -> bool {
        if keys.turn.load(Relaxed) == 0 {
            self.turns += 1;
            keys.turn.store(self.turns, Relaxed);
        }
        let turn = keys.turn.load(Relaxed);
        if self.next.as_ref().is_some_and(|first| first.comes_before(turn, at)) {
            return false;
        }
        self.next = Some(First { turn, seen_at: at, keys: Arc::downgrade(keys) });
        true
    }
}

impl Holds {
    /// Returns whether keys are held.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Notes that a request waits for held keys: others have their turn before the next command holds some.
    pub fn note_waiter(&self) {
        self.waited.store(true, Relaxed);
    }

    /// The keys that are held.
    #[cold]
    pub fn keys(&self) -> Option<Arc<Keys>> {
        self.now().keys.clone()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds these keys. `None` if others are held or were a moment ago, or if another command has waited for longer to hold
    /// some. A refused command asks again every [`LOOK_MS`].
    pub fn take(self: &Arc<Self>, keys: &Arc<Keys>, at: Millis) -> Option<Hold> {
        let mut now = self.now();
        let is_next = now.is_next(keys, at);
        // The clock may have been set back.
        let since_free = at.checked_sub(now.free_at);
        if now.keys.is_some() || !is_next || since_free.is_none() && at + BETWEEN_MS >= now.free_at {
            self.note_waiter();
            return None;
        }
        self.waited.store(false, Relaxed);
        now.next = None;
        now.keys = Some(Arc::clone(keys));
        now.seen_at = at;
        self.any.store(true, Relaxed);
        Some(Hold(Arc::clone(self)))
    }
}

/// A hold of keys, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Holds>);

impl Hold {
    /// Notes the time of a step.
    pub fn step(&self, at: Millis) {
        self.0.now().seen_at = at;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut now = self.0.now();
        now.keys = None;
        now.free_at = now.seen_at + if self.0.waited.load(Relaxed) { BETWEEN_MS } else { 0 };
        self.0.any.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noted_hashes_are_found_and_no_others() {
        let mut keys = Keys::of(1000);
        (0..1000u64).for_each(|n| keys.note(n * 1_000_003));
        assert!((0..1000u64).all(|n| keys.has(n * 1_000_003)));
        assert!((0..1000u64).all(|n| !keys.has(n * 1_000_003 + 7)));
    }

    #[test]
    fn one_holds_at_a_time_and_others_have_their_turn_between() {
        let holds = Arc::new(Holds::default());
        let keys = Arc::new(Keys::of(1));
        let hold = holds.take(&keys, 100).unwrap();
        assert!(holds.any() && holds.take(&keys, 100).is_none());
        hold.step(200);
        drop(hold);
        assert!(!holds.any() && holds.keys().is_none());
        assert!(holds.take(&keys, 200 + BETWEEN_MS - 1).is_none());
        assert!(holds.take(&keys, 200 + BETWEEN_MS).is_some());
        assert!(holds.take(&keys, 10).is_some(), "the clock was set back");
    }

    #[test]
    fn where_nobody_waits_the_next_holds_its_keys_at_once() {
        let holds = Arc::new(Holds::default());
        let keys = Arc::new(Keys::of(1));
        for at in [100, 100, 101] {
            let hold = holds.take(&keys, at);
            assert!(hold.is_some(), "{at}");
        }
        // One that has looked whether its key is held, and waits.
        let hold = holds.take(&keys, 101);
        holds.note_waiter();
        drop(hold);
        assert!(holds.take(&keys, 101 + BETWEEN_MS - 1).is_none());
        let hold = holds.take(&keys, 101 + BETWEEN_MS);
        assert!(hold.is_some(), "others have had their turn");
        drop(hold);
        assert!(holds.take(&keys, 101 + BETWEEN_MS).is_some());
    }

    /// However many ask behind it, and however often, the command that has waited for longest is the next.
    #[test]
    fn those_that_wait_hold_their_keys_in_the_order_in_which_they_came() {
        let holds = Arc::new(Holds::default());
        let wants: Vec<Arc<Keys>> = (0..20).map(|_| Arc::new(Keys::of(1))).collect();
        let mut hold = holds.take(&wants[0], 0);
        let mut at = 0;
        for next in 1..wants.len() {
            // Others look before it, and others look more often; some come while it waits.
            let come = wants.len().min(next + 5);
            for _ in 0..10 {
                at += 1;
                assert!(wants[next..come].iter().all(|keys| holds.take(keys, at).is_none()));
                hold.as_ref().expect("they are held").step(at);
            }
            drop(hold.take());
            at += BETWEEN_MS;
            assert!(wants[next + 1..come].iter().rev().all(|keys| holds.take(keys, at).is_none()));
            hold = holds.take(&wants[next], at);
            assert!(hold.is_some(), "{next}");
        }
    }

    #[test]
    fn one_that_does_not_ask_again_or_has_gone_keeps_nobody_from_holding_keys() {
        let holds = Arc::new(Holds::default());
        let mut wants: Vec<Arc<Keys>> = (0..3).map(|_| Arc::new(Keys::of(1))).collect();
        let hold = holds.take(&wants[0], 100);
        assert!(holds.take(&wants[1], 100).is_none() && holds.take(&wants[2], 100).is_none());
        drop(hold);
        assert!(holds.take(&wants[2], 100 + ABSENT_MS).is_none(), "it may come yet");
        assert!(holds.take(&wants[2], 101 + ABSENT_MS).is_some());
        // It has its turn when it comes again, also where the clock was set back.
        assert!(holds.take(&wants[1], 50).is_some());
        let hold = holds.take(&wants[0], 200);
        assert!(holds.take(&wants[1], 200).is_none() && holds.take(&wants[2], 200).is_none());
        drop(hold);
        drop(wants.remove(1));
        assert!(holds.take(&wants[1], 200 + BETWEEN_MS).is_some());
    }
}
