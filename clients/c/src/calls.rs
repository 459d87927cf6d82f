//! The calls that wait for their answer.

use crate::asks::{self, Asked};
use crate::failure::Failure;
use crate::shapes::{Lease, Status};
use larder_client::wire::Ask;
use larder_client::{Client, LeaseState, Leasing, Reply};
use std::cell::Cell;
use std::mem::MaybeUninit;

/// Memory that a thread keeps for values on their way to a caller's buffer.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory for a value, which the thread keeps for its next call.
fn with_room<R>(use_it: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    // A thread that is ending has lost it already.
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    let result = use_it(&mut room);
    room.clear();
    if room.capacity() <= KEPT_BYTES_MAX {
        let _ = ROOM.try_with(|kept| kept.set(room));
    }
    result
}

/// How a value went into a caller's buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// The length of the value, which may be longer than the buffer.
    pub bytes: usize,
    pub is_whole: bool,
}

/// Copies the beginning of a value, as much as there is room for.
pub fn copy(value: &[u8], buffer: &mut [MaybeUninit<u8>]) -> Copied {
    let fits = value.len().min(buffer.len());
    buffer[..fits].write_copy_of_slice(&value[..fits]);
    Copied { bytes: value.len(), is_whole: fits == value.len() }
}

/// Makes any request of one key except a read.
pub fn request(client: &Client, asked: &Asked<'_>) -> Result<(Status, Reply), Failure> {
    debug_assert!(!matches!(asked.ask, Ask::Get(_)));
    let reply = with_room(|room| client.request(asked.key, asked.ask, asked.cas, room))?;
    Ok((status(&reply), reply))
}

/// Reads into a caller's buffer.
pub fn get(
    client: &Client,
    asked: &Asked<'_>,
    buffer: &mut [MaybeUninit<u8>],
) -> Result<(Status, Reply, Copied), Failure> {
    with_room(|room| {
        let reply = client.request(asked.key, asked.ask, asked.cas, room)?;
        let copied = copy(room, buffer);
        let cut = reply.found && !copied.is_whole;
        Ok((if cut { Status::TRUNCATED } else { status(&reply) }, reply, copied))
    })
}

/// Reads into new memory.
pub fn get_alloc(client: &Client, asked: &Asked<'_>) -> Result<(Status, Reply, Box<[u8]>), Failure> {
    let mut value = Vec::new();
    let reply = client.request(asked.key, asked.ask, asked.cas, &mut value)?;
    Ok((status(&reply), reply, value.into_boxed_slice()))
}

fn status(reply: &Reply) -> Status {
    if reply.found { Status::OK } else { Status::MISS }
}

/// Reads, or makes one caller the winner; returns the lease.
pub fn get_or_lease(
    client: &Client,
    key: &[u8],
    lease: &Lease,
    buffer: &mut [MaybeUninit<u8>],
) -> Result<(Status, Lease, Copied), Failure> {
    let mut leasing = Leasing { refresh: asks::duration(lease.refresh_ms)?, ..Leasing::default() };
    if lease.vivify_ms != 0 {
        leasing.vivify = asks::duration(lease.vivify_ms)?;
    }
    with_room(|room| {
        let told = client.get_or_lease(key, leasing, room)?;
        let copied = copy(room, buffer);
        let state = match told.state {
            LeaseState::Hit => 0,
            LeaseState::HitRefresh => 1,
            LeaseState::HitStale => 2,
            LeaseState::MissWon => 3,
            LeaseState::MissWait => 4,
        };
        let lease = Lease { state, cas: told.cas, ttl_ms: asks::left(told.ttl), ..*lease };
        Ok((if copied.is_whole { Status::OK } else { Status::TRUNCATED }, lease, copied))
    })
}

/// Stores the value of a winner.
pub fn fill(
    client: &Client,
    key: &[u8],
    value: &[u8],
    ttl_ms: i64,
    lease: &Lease,
) -> Result<Status, Failure> {
    let lease = larder_client::Lease { state: LeaseState::MissWon, cas: lease.cas, ttl: None };
    client.fill(key, value, asks::ttl(ttl_ms)?, &lease)?;
    Ok(Status::OK)
}

/// Reads, changes, and stores if the item has not changed meanwhile. If `change` returns `None`, nothing is stored.
pub fn update(
    client: &Client,
    key: &[u8],
    ttl_ms: i64,
    change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
) -> Result<Status, Failure> {
    let stored = client.update(key, asks::ttl(ttl_ms)?, change)?;
    Ok(if stored.is_some() { Status::OK } else { Status::NOT_STORED })
}
