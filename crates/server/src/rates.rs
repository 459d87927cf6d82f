//! How much each address asks for in a second, where there is a limit (`--requests-per-second`).
//!
//! ```text
//!                 now          paid until
//!  ───────────────┼──────────────┼───────►
//!                 │◄─ saved: 1 s ─►◄─ arrears: nothing is received until they are over ─►
//! ```
//!
//! For each address there is the time until which its requests are paid for. Each request moves it by a part of a second. As long
//! as it is no more than a second ahead, the address is received from: what it does not ask for is saved for so long. Beyond
//! that, its connections are not read until time has come that far, also where a part of the next request is there: a client that
//! sends without a pause has a part of one behind each receive. A value on its way into its item is received to its end, and
//! nothing behind it. Nothing is refused, and what was received is answered: a receive brings 64 KiB at most, and an address pays
//! for it for a minute at most.
//!
//! What one address is, [`Origin`] says; connections of Unix sockets have none. Without a limit nothing is counted or looked up.
//! There is room for 8,192 addresses. A full table forgets those that have paid, or else the one that has to pay for least.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_commands::Origin;
use larder_eventloop::socket::Address;
use larder_eventloop::{Millis, PutOff};

use crate::addresses::origin;
use crate::worker::{Connection, Service};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// An address may ask at once for what it has saved: as much as it may ask for in this time.
const SAVED_NS: u64 = SECOND_NS;
/// An address pays for what it has asked for beyond that for no longer than this.
const ARREARS_NS_MAX: u64 = 60 * SECOND_NS;
/// A connection of an address in arrears looks again after this time, if not earlier: it can be closed then.
const WAIT_MS_MAX: Millis = 1_000;
/// Number of tables, each of which has its own lock.
const SHARDS: usize = 16;
/// Most addresses of a table.
const ADDRESSES_MAX: usize = 512;

/// Until when requests of addresses are paid for, on the loops' clock, in nanoseconds.
type Shard = HashMap<Origin, u64>;

/// What addresses have asked for.
#[derive(Debug)]
pub struct Rates {
    /// The part of a second that a request costs; none: there is no limit, and nothing is counted.
    cost_ns: Option<u64>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl Rates {
    /// An address may ask for so much in a second; 0: for anything.
    pub fn new(requests_per_second: u32) -> Rates {
        Rates {
            cost_ns: SECOND_NS.checked_div(u64::from(requests_per_second)).map(|ns| ns.max(1)),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// True if there is a limit.
    pub fn any(&self) -> bool {
        self.cost_ns.is_some()
    }

    /// Counts what an address has asked for.
    pub fn spend(&self, peer: &Address, requests: u64, now_ns: u64) {
        let (Some(cost_ns), Some(origin)) = (self.cost_ns, origin(peer)) else { return };
        let most = SAVED_NS + ARREARS_NS_MAX;
        let cost_ns = requests.saturating_mul(cost_ns).min(most);
        let mut shard = self.shard(origin);
        if shard.len() >= ADDRESSES_MAX && !shard.contains_key(&origin) {
            make_room(&mut shard, now_ns);
        }
        let paid_until = shard.entry(origin).or_insert(now_ns);
        *paid_until = ((*paid_until).max(now_ns) + cost_ns).min(now_ns + most);
    }

    /// For how long nothing is to be received from an address, if it is in arrears.
    pub fn wait_ms(&self, peer: &Address, now_ns: u64) -> Option<Millis> {
        self.cost_ns?;
        let origin = origin(peer)?;
        let paid_until = *self.shard(origin).get(&origin)?;
        let left_ns = paid_until.saturating_sub(now_ns + SAVED_NS);
        (left_ns > 0).then(|| left_ns.div_ceil(MILLISECOND_NS).min(WAIT_MS_MAX))
    }

    fn shard(&self, origin: Origin) -> MutexGuard<'_, Shard> {
        let shard = self.hasher.hash_one(origin) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets addresses that have paid; if there are none, the one that has to pay for least.
fn make_room(shard: &mut Shard, now_ns: u64) {
    shard.retain(|_, paid_until| *paid_until > now_ns);
    if shard.len() >= ADDRESSES_MAX {
        let least = shard.iter().min_by_key(|(_, paid_until)| **paid_until).map(|(&origin, _)| origin);
        if let Some(origin) = least {
            shard.remove(&origin);
        }
    }
}

impl Service {
    /// Counts what a connection's address has asked for.
    pub(crate) fn spend(&self, connection: &Connection, requests: u64) {
        if requests > 0 {
            self.hub().rates.spend(&connection.facts.peer, requests, self.now() * MILLISECOND_NS);
        }
    }

    /// Whether a connection is read later, since its address has asked for more than it may. A client that has to log in may do
    /// so.
    pub(crate) fn puts_off(&mut self, connection: &Connection) -> Option<PutOff> {
        if connection.session.is_unauthenticated() {
            return None;
        }
        let (peer, now) = (&connection.facts.peer, self.now());
        let ms = self.hub().rates.wait_ms(peer, now * MILLISECOND_NS)?;
        let rest = connection.session.upload_missing();
        if rest == 0
            && let Some(times) = self.put_off.due(now)
        {
            tracing::info!(%peer, times, "requests wait: --requests-per-second");
        }
        Some(PutOff { ms, rest })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn address(number: u32) -> Address {
        Address::Tcp(SocketAddr::from((Ipv4Addr::from_bits(number), 1000)))
    }

    #[test]
    fn a_seconds_worth_is_saved_and_what_is_beyond_it_is_waited_for() {
        let (one, other, start) = (address(1), address(2), 5 * SECOND_NS);
        for (requests, wait_ms) in
            [(9, None), (10, None), (11, Some(100)), (20, Some(1_000)), (21, Some(1_000))]
        {
            let rates = Rates::new(10);
            rates.spend(&one, requests, start);
            assert_eq!(rates.wait_ms(&one, start), wait_ms, "{requests}");
            assert_eq!(rates.wait_ms(&other, start), None, "{requests}");
        }
        let rates = Rates::new(10);
        rates.spend(&one, 11, start);
        assert_eq!(rates.wait_ms(&one, start + 99_999_999), Some(1));
        assert_eq!(rates.wait_ms(&one, start + 100_000_000), None);
        // Each request costs its part again, and no more than a second is saved, however long nothing comes.
        rates.spend(&one, 1, start + 100_000_000);
        assert_eq!(rates.wait_ms(&one, start + 100_000_000), Some(100));
        let later = start + 1_000 * SECOND_NS;
        rates.spend(&one, 12, later);
        assert_eq!(rates.wait_ms(&one, later), Some(200));
    }

    #[test]
    fn an_address_pays_for_a_minute_at_most() {
        let (rates, one) = (Rates::new(1), address(1));
        for requests in [61, 62, u64::MAX] {
            let start = requests.min(1_000) * 1_000 * SECOND_NS;
            rates.spend(&one, requests, start);
            rates.spend(&one, 5, start);
            assert_eq!(rates.wait_ms(&one, start), Some(WAIT_MS_MAX), "{requests}");
            assert_eq!(rates.wait_ms(&one, start + ARREARS_NS_MAX - 1), Some(1), "{requests}");
            assert_eq!(rates.wait_ms(&one, start + ARREARS_NS_MAX), None, "{requests}");
        }
    }

    #[test]
    fn without_a_limit_and_of_unix_sockets_nothing_is_counted() {
        let (none, some, unix) = (Rates::new(0), Rates::new(1), Address::Unix("/run/larder.sock".into()));
        none.spend(&address(1), 1_000, 0);
        some.spend(&unix, 1_000, 0);
        assert!(!none.any() && some.any());
        assert_eq!((none.wait_ms(&address(1), 0), some.wait_ms(&unix, 0)), (None, None));
        for rates in [none, some] {
            assert!(rates.shards.iter().all(|shard| shard.lock().expect("a table").is_empty()));
        }
        // The most that may be said costs something, too.
        assert_eq!(Rates::new(u32::MAX).cost_ns, Some(1));
    }

    #[test]
    fn a_full_table_forgets_addresses_that_have_paid_and_else_the_one_that_has_to_pay_for_least() {
        let origin = |number: u32| Origin::V4(number.to_be_bytes());
        let number = |number: usize| number as u32;
        let mut shard: Shard = (0..ADDRESSES_MAX).map(|n| (origin(number(n)), 100 + n as u64)).collect();
        make_room(&mut shard, 110);
        assert_eq!((shard.len(), shard.contains_key(&origin(10))), (ADDRESSES_MAX - 11, false));
        let before = shard.len();
        make_room(&mut shard, 0);
        assert_eq!(shard.len(), before, "there is room");
        (ADDRESSES_MAX..ADDRESSES_MAX + 11).for_each(|n| _ = shard.insert(origin(number(n)), 10_000));
        make_room(&mut shard, 0);
        assert_eq!((shard.len(), shard.contains_key(&origin(11))), (ADDRESSES_MAX - 1, false));
    }
}
