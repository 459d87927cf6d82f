//! Wrong passwords, and how much later the next password is looked at.
//!
//! ```text
//! a connection's own      1      2      3      4      5      6 …    failures in a row
//!                       100    200    400    800   1600   3000 ms  from the last one on
//! of its address          … 4    5      6      7      8 …           recent failures
//!                         100  200    400    800   1000 ms
//! ```
//!
//! Every login waits, also one of a client that need not log in. It is looked at when its time has come, right or wrong, so
//! that a client learns nothing by not waiting, and a pipeline of guesses waits behind its first. EXEC waits as one try, and
//! looks at nothing behind the first wrong password. No thread sleeps: the server's timers call the connection again. People
//! that mistype a password and try again a while later do not wait.
//!
//! A client behind the same address as one that guesses waits a second at most, once for each connection, and only to log in.
//! AUTH, the text protocol and SASL wait the same way (`tries`). [`Origin`] says what counts as one address. There is room for
//! 4,096 addresses; the one that has not failed for longest goes. For every five seconds without a failure one is forgotten.
//!
//! Together with the quarter of `-c` that may be open without having logged in, this lets an address try some hundred passwords
//! a second at most; where the default user need not log in, as many as the address may have connections. That is slow enough
//! only if the password is in no dictionary: strength comes from the password.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Millis;

use super::origin::Origin;

/// Milliseconds that the first failure costs. Each further one doubles them.
const FIRST_MS: Millis = 100;
/// Most milliseconds that failures of one connection cost.
pub(super) const OWN_MS_MAX: Millis = 3_000;
/// Most milliseconds that failures of one address cost: clients give up connecting after three seconds and more.
const SHARED_MS_MAX: Millis = 1_000;
/// Failures of an address that cost others nothing: a person has mistyped.
const SHARED_FREE: u32 = 3;
/// Most failures of an address that are remembered: some 80 s after the last all are forgotten.
const FAILURES_MAX: u32 = 16;
/// Time in which one failure is forgotten.
const FORGET_MS: Millis = 5_000;
/// Most addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;

/// The failures of an address.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Millis,
}

impl Failures {
    /// How many of them are remembered at `now`.
    fn count_at(self, now: Millis) -> u32 {
        let forgotten = now.saturating_sub(self.last) / FORGET_MS;
        self.count.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }
}

/// Milliseconds that `failures` in a row cost.
pub(super) fn cost_ms(failures: u32, most: Millis) -> Millis {
    match failures {
        0 => 0,
        n => (FIRST_MS << (n - 1).min(FAILURES_MAX)).min(most),
    }
}

/// Failures of all addresses.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// Whether there are some.
    any: AtomicBool,
    failures: Mutex<HashMap<Origin, Failures>>,
}

impl Guesses {
    /// The time at which the next password from there is looked at.
    pub(super) fn due(&self, origin: Origin, now: Millis) -> Millis {
        if !self.any.load(Relaxed) {
            return 0;
        }
        let Some(&failures) = self.failures().get(&origin) else { return 0 };
        let count = failures.count_at(now).saturating_sub(SHARED_FREE);
        if count == 0 { 0 } else { failures.last + cost_ms(count, SHARED_MS_MAX) }
    }

    /// Counts a failure from there.
    pub(super) fn note(&self, origin: Origin, now: Millis) {
        let mut all = self.failures();
        self.any.store(true, Relaxed);
        if all.len() >= ADDRESSES_MAX && !all.contains_key(&origin) {
            let oldest = all.iter().min_by_key(|(_, failures)| failures.last).map(|(&origin, _)| origin);
            if let Some(origin) = oldest {
                all.remove(&origin);
            }
        }
        let failures = all.entry(origin).or_insert(Failures { count: 0, last: now });
        *failures = Failures { count: (failures.count_at(now) + 1).min(FAILURES_MAX), last: now };
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Origin, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_passwords_cost_twice_as_much_each_up_to_a_bound() {
        let costs: Vec<Millis> = (0..8).map(|n| cost_ms(n, OWN_MS_MAX)).collect();
        assert_eq!(costs, [0, 100, 200, 400, 800, 1600, 3000, 3000]);
        assert_eq!(cost_ms(u32::MAX, OWN_MS_MAX), OWN_MS_MAX);
    }

    #[test]
    fn others_of_an_address_wait_after_some_wrong_passwords_and_they_are_forgotten() {
        let guesses = Guesses::default();
        let (one, other) = (Origin::V4([10, 0, 0, 1]), Origin::V4([10, 0, 0, 2]));
        let now = 1_000_000;
        for _ in 0..SHARED_FREE {
            guesses.note(one, now);
            assert_eq!(guesses.due(one, now), 0);
        }
        guesses.note(one, now);
        assert_eq!((guesses.due(one, now), guesses.due(other, now)), (now + 100, 0));
        (0..100).for_each(|_| guesses.note(one, now));
        assert_eq!(guesses.due(one, now), now + SHARED_MS_MAX);
        let forgotten = now + FORGET_MS * u64::from(FAILURES_MAX - SHARED_FREE);
        assert!(guesses.due(one, forgotten - 1) > 0);
        assert_eq!(guesses.due(one, forgotten), 0);
    }

    #[test]
    fn so_many_addresses_of_wrong_passwords_are_remembered_and_the_oldest_goes() {
        let guesses = Guesses::default();
        let origin = |n: usize| Origin::V4((n as u32).to_be_bytes());
        for n in 0..=ADDRESSES_MAX {
            guesses.note(origin(n), n as Millis);
        }
        let all = guesses.failures();
        assert_eq!(all.len(), ADDRESSES_MAX);
        assert!(!all.contains_key(&origin(0)) && all.contains_key(&origin(1)));
        assert!(all.contains_key(&origin(ADDRESSES_MAX)));
    }
}
