//! How many connections each address has, where there is a limit (`--connections-per-address`).
//!
//! The acceptor adds a connection before a worker takes it over, and the worker takes it away when the connection has ended.
//! What one address is, [`Origin`] says; connections of Unix sockets have none and are not counted. Without a limit nothing is
//! counted or looked up.
//!
//! There is an entry for each address that has a connection, so no more entries than connections. They are in 64 tables,
//! each with a lock of its own: a table that grows moves one part in 64 of all, so that no thread waits for long. Their memory is
//! charged.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_commands::Origin;
use larder_eventloop::socket::Address;
use larder_store::Store;

/// Tables.
const SHARDS: usize = 64;
/// Memory for one address that a table has room for, about: the address and its count are 16 bytes, a byte says whether a place
/// is taken, and one place in eight stays free. Tables of a few places have more beside.
const ENTRY_BYTES: usize = ((size_of::<(Origin, u32)>() + 1) * 8).div_ceil(7);
/// A table with room for fewer addresses is not made smaller.
const ROOM_KEPT: usize = 64;
/// A table is made smaller when it has entries for one part in this many of its room.
const SHRINK_SHARE: usize = 8;

/// One of the tables.
#[derive(Debug, Default)]
struct Shard {
    counts: HashMap<Origin, u32>,
    /// Addresses that its table has room for, as they are charged. The table says fewer while it cannot use places of
    /// those that were removed.
    room: usize,
}

impl Shard {
    fn set_room(&mut self, room: usize, store: &Store) {
        let more = room as i64 - self.room as i64;
        self.room = room;
        if more != 0 {
            store.set_aside(more * ENTRY_BYTES as i64);
        }
    }
}

/// Connections of each address.
#[derive(Debug)]
pub struct Addresses {
    /// Connections that an address may have; none: any number, and nothing is counted.
    max: Option<u32>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl Addresses {
    /// No connections yet. An address may have `max` of them; 0: any number.
    pub fn new(max: u32) -> Addresses {
        Addresses {
            max: (max > 0).then_some(max),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Counts a connection; false: its address has as many as it may, and it is not counted.
    pub fn enter(&self, peer: &Address, store: &Store) -> bool {
        let (Some(max), Some(origin)) = (self.max, origin(peer)) else { return true };
        let shard = &mut *self.shard(origin);
        if let Some(count) = shard.counts.get_mut(&origin) {
            let has_room = *count < max;
            *count += u32::from(has_room);
            return has_room;
        }
        shard.counts.insert(origin, 1);
        shard.set_room(shard.room.max(shard.counts.capacity()), store);
        true
    }

    /// Takes away a connection that was counted and has ended.
    pub fn leave(&self, peer: &Address, store: &Store) {
        let (Some(_), Some(origin)) = (self.max, origin(peer)) else { return };
        let shard = &mut *self.shard(origin);
        match shard.counts.get_mut(&origin) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                shard.counts.remove(&origin);
                let len = shard.counts.len();
                if shard.room > ROOM_KEPT && len <= shard.room / SHRINK_SHARE {
                    // Twice what is there: the next few need no more.
                    shard.counts.shrink_to(2 * len);
                    shard.set_room(shard.counts.capacity(), store);
                }
            }
            None => debug_assert!(false, "a connection is counted before it ends"),
        }
    }

    fn shard(&self, origin: Origin) -> MutexGuard<'_, Shard> {
        let shard = self.hasher.hash_one(origin) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The origin of a connection, if it is counted.
pub(crate) fn origin(peer: &Address) -> Option<Origin> {
    match peer {
        Address::Tcp(address) => Some(Origin::of_ip(address.ip())),
        Address::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;

    fn store() -> Arc<Store> {
        Store::new(crate::store_config(&Config { threads: 1, ..Config::default() })).expect("a store")
    }

    fn v4(address: u32) -> Address {
        Address::Tcp(SocketAddr::from((Ipv4Addr::from_bits(address), 1000)))
    }

    fn v6(network: u64, host: u64) -> Address {
        let address = Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host));
        Address::Tcp(SocketAddr::from((address, 1000)))
    }

    #[test]
    fn an_address_has_as_many_connections_as_the_limit_and_one_more_when_one_has_ended() {
        let (addresses, store) = (Addresses::new(3), store());
        let (one, other) = (v4(1), v4(2));
        let entered: Vec<bool> = (0..5).map(|_| addresses.enter(&one, &store)).collect();
        assert_eq!(entered, [true, true, true, false, false]);
        assert!(addresses.enter(&other, &store));
        addresses.leave(&one, &store);
        assert!(addresses.enter(&one, &store) && !addresses.enter(&one, &store));
        (0..3).for_each(|_| addresses.leave(&one, &store));
        let entered: Vec<bool> = (0..4).map(|_| addresses.enter(&one, &store)).collect();
        assert_eq!(entered, [true, true, true, false], "those that were refused were not counted");
    }

    #[test]
    fn the_first_64_bits_of_ipv6_are_an_address_and_ipv4_within_it_is_ipv4() {
        let (addresses, store) = (Addresses::new(2), store());
        assert!(addresses.enter(&v6(7, 1), &store) && addresses.enter(&v6(7, u64::MAX), &store));
        assert!(!addresses.enter(&v6(7, 2), &store));
        assert!(addresses.enter(&v6(8, 1), &store), "the next network is another");
        let mapped = v6(0, 0xffff << 32 | 5);
        assert!(addresses.enter(&v4(5), &store) && addresses.enter(&mapped, &store));
        assert!(!addresses.enter(&mapped, &store) && !addresses.enter(&v4(5), &store));
        addresses.leave(&mapped, &store);
        assert!(addresses.enter(&v4(5), &store));
    }

    #[test]
    fn unix_sockets_are_not_counted_and_without_a_limit_nothing_is() {
        let (limited, unlimited, store) = (Addresses::new(1), Addresses::new(0), store());
        let unix = Address::Unix("/run/larder.sock".into());
        assert!((0..10).all(|_| limited.enter(&unix, &store) && unlimited.enter(&v4(1), &store)));
        limited.leave(&unix, &store);
        unlimited.leave(&v4(1), &store);
        for addresses in [limited, unlimited] {
            assert!(addresses.shards.iter().all(|shard| shard.lock().expect("a table").room == 0));
        }
    }

    #[test]
    fn what_addresses_take_is_charged_and_given_back_but_for_a_little() {
        const ADDRESSES: u32 = 100_000;
        let (addresses, store) = (Addresses::new(1), store());
        let before = store.heap_bytes();
        let took = || store.heap_bytes() - before;
        assert!((0..ADDRESSES).all(|n| addresses.enter(&v4(n), &store)));
        let most = took();
        assert!((u64::from(ADDRESSES) * 17..u64::from(ADDRESSES) * 40).contains(&most), "{most} bytes");
        (0..ADDRESSES).for_each(|n| addresses.leave(&v4(n), &store));
        let left = took();
        assert!(left <= (SHARDS * 2 * ROOM_KEPT * ENTRY_BYTES) as u64, "{left} bytes");
        let room = |shard: &Mutex<Shard>| shard.lock().expect("a table").room;
        let room: usize = addresses.shards.iter().map(room).sum();
        assert_eq!(left, (room * ENTRY_BYTES) as u64);
    }
}
