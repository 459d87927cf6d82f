//! Leases: of all callers that miss, one fills the value, and the others wait or take a stale one.

use crate::client::Client;
use crate::error::Error;
use crate::op::Answer;
use crate::reply::Stored;
use crate::ttl::Ttl;
use crate::wire::{Ask, Get, Status, Want};
use std::time::Duration;

/// How an item is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leasing {
    /// How long the winner of a miss may take to fill it. Default: 30 s.
    pub vivify: Duration,
    /// An item with less than this left has one winner, too. 0: never.
    pub refresh: Duration,
}

impl Default for Leasing {
    fn default() -> Leasing {
        Leasing { vivify: Duration::from_secs(30), refresh: Duration::ZERO }
    }
}

/// What a caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// There is a value.
    Hit,
    /// There is a value, stale or about to expire, and this caller has to renew it.
    HitRefresh,
    /// The value is stale, and another caller renews it.
    HitStale,
    /// There is no value, and this caller has to fill it.
    MissWon,
    /// There is no value, and another caller fills it.
    MissWait,
}

/// The reply to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What the caller has to do.
    pub state: LeaseState,
    /// The token that [`Client::fill`] compares.
    pub cas: u64,
    /// The time until the item expires; `None`: never.
    pub ttl: Option<Duration>,
}

impl Leasing {
    /// The request.
    pub(crate) fn ask(&self) -> Ask<'static> {
        let refresh = (!self.refresh.is_zero()).then(|| Ttl::In(self.refresh).exptime());
        let want = Want::CAS | Want::TTL;
        Ask::Get(Get { want, vivify: Some(Ttl::In(self.vivify).exptime()), refresh, retime: None })
    }
}

impl Lease {
    /// The lease of an answer whose value went to the end of `buffer`. The value stays there if it is one.
    pub(crate) fn of(answer: &Answer, buffer: &mut Vec<u8>, length: usize) -> Lease {
        let marks = answer.marks;
        let is_empty = (answer.status == Status::Absent || answer.value.is_empty()) && !marks.stale;
        let state = match (marks.won, marks.pending) {
            (true, _) if is_empty => LeaseState::MissWon,
            (true, _) => LeaseState::HitRefresh,
            (false, true) if is_empty => LeaseState::MissWait,
            _ if marks.stale => LeaseState::HitStale,
            _ => LeaseState::Hit,
        };
        if matches!(state, LeaseState::MissWon | LeaseState::MissWait) {
            buffer.truncate(length);
        }
        Lease { state, cas: answer.cas, ttl: u64::try_from(answer.ttl).ok().map(Duration::from_secs) }
    }
}

/// The error of a fill whose lease is lost.
pub(crate) fn lost(error: Error) -> Error {
    match error {
        Error::Absent | Error::NotStored => Error::Conflict,
        other => other,
    }
}

impl Client {
    /// Appends the value to `buffer`, if there is one. One caller becomes the winner if there is no value, or if it is stale or
    /// about to expire. Meta text only.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Unsupported`] where the server speaks classic text.
    pub fn get_or_lease(&self, key: &[u8], leasing: Leasing, buffer: &mut Vec<u8>) -> Result<Lease, Error> {
        let length = buffer.len();
        let answer = self.call(key, leasing.ask(), None, Some(buffer))?;
        Ok(Lease::of(&answer, buffer, length))
    }

    /// Stores the value that a winner has loaded.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] if the key was deleted, invalidated or filled since.
    pub fn fill(&self, key: &[u8], value: &[u8], ttl: Ttl, lease: &Lease) -> Result<Stored, Error> {
        self.set(key, value).ttl(ttl).cas(lease.cas).send().map_err(lost)
    }
}
