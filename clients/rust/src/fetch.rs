//! Read-through: a value comes from the cache, or from its source. Of all callers in all processes one loads it.
//!
//! ```text
//! lease ──► hit, or stale and another caller renews it ──► that value
//!      ──► won ──► load ──► fill
//!      ──► another caller has won ──► look again, for `wait_max` ──► load
//!      ──► no answer, or classic text ──► load: one of the callers of this client
//! ```

use crate::chance::chance;
use crate::client::Client;
use crate::error::{Error, Fault};
use crate::lane::Lane;
use crate::lease::{Lease, LeaseState, Leasing};
use crate::loads::Mine;
use crate::ttl::Ttl;
use std::time::{Duration, Instant};

/// The pauses between looks for the value that another process loads: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// How a value is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// How long one process may take to load a value before another tries. Default: 30 s.
    pub vivify: Duration,
    /// A value with less than this left is renewed by one caller, while others get the old one. 0: never. Default: 0.
    pub refresh: Duration,
    /// How long a caller waits for another process's load before it loads the value itself. Default: 1 s.
    pub wait_max: Duration,
}

impl Default for Fetching {
    fn default() -> Fetching {
        let Leasing { vivify, refresh } = Leasing::default();
        Fetching { vivify, refresh, wait_max: Duration::from_secs(1) }
    }
}

impl Fetching {
    pub(crate) fn leasing(&self) -> Leasing {
        Leasing { vivify: self.vivify, refresh: self.refresh }
    }
}

/// What a caller has to do next.
#[derive(Debug)]
pub enum Way {
    /// Return the cached value.
    Take,
    /// Renew the cached value.
    Renew(Lease),
    /// Load the value, and store it if there is a lease.
    Find(Option<Lease>),
    /// Wait for the caller that loads it.
    Wait(Lease),
    /// Ask in classic text.
    Classic,
}

/// Decides by the cache's reply.
///
/// # Errors
/// An error of the caller itself, which must not count as a miss.
pub fn way(leased: Result<Lease, Error>) -> Result<Way, Error> {
    Ok(match leased {
        Ok(lease) => match lease.state {
            LeaseState::Hit | LeaseState::HitStale => Way::Take,
            LeaseState::HitRefresh => Way::Renew(lease),
            LeaseState::MissWon => Way::Find(Some(lease)),
            LeaseState::MissWait => Way::Wait(lease),
        },
        Err(Error::Unsupported) => Way::Classic,
        Err(error) if error.fault() == Fault::Caller => return Err(error),
        Err(_) => Way::Find(None),
    })
}

/// The pause before look number `look`.
pub fn pause(look: u32) -> Duration {
    PAUSES[0].saturating_mul(1 << look.min(10)).min(PAUSES[1])
}

/// A lease that was won and not filled. Dropping it gives the lease back, so that the next caller need not wait.
struct Won<'c> {
    client: &'c Client,
    key: &'c [u8],
    lease: Option<Lease>,
}

impl Drop for Won<'_> {
    fn drop(&mut self) {
        if let Some(Lease { state: LeaseState::MissWon, cas, .. }) = self.lease {
            let _ = self.client.delete(self.key).cas(cas).send();
        }
    }
}

impl Client {
    /// Returns the cached value, or loads it with `load` and stores it. Of all callers in all processes one loads it. The others
    /// wait for that within their calls, or get the old value while one renews it. If the key is deleted or invalidated during a
    /// load, the loaded value is returned and not stored.
    ///
    /// Where the cache does not answer, or speaks classic text, the callers of this client share one load.
    ///
    /// # Errors
    /// The error of `load`, for the caller that ran it; callers that waited for it run their own. Errors of the caller itself,
    /// such as [`Error::BadKey`]. Failures of the cache are not reported.
    pub fn fetch<E: From<Error>>(
        &self,
        key: &[u8],
        fetching: Fetching,
        load: impl FnOnce() -> Result<(Vec<u8>, Ttl), E>,
    ) -> Result<Vec<u8>, E> {
        let (began, mut value) = (Instant::now(), Vec::new());
        for look in 0.. {
            let leased = self.get_or_lease(key, fetching.leasing(), &mut value);
            match way(leased)? {
                Way::Take => break,
                Way::Renew(lease) => {
                    if let Ok(mine) = self.loads().begin(key)
                        && let Ok(new) = self.load(key, mine, Some(lease), true, load)
                    {
                        return Ok(new);
                    }
                    break;
                }
                Way::Find(lease) => return self.share(key, lease, lease.is_some(), load),
                Way::Classic => match self.get_into(key, &mut value) {
                    Ok(Some(_)) => break,
                    Ok(None) => return self.share(key, None, true, load),
                    Err(_) => return self.share(key, None, false, load),
                },
                Way::Wait(lease) => {
                    if let Some(found) = self.loads().of(key).and_then(|load| load.wait()) {
                        return Ok(found.to_vec());
                    }
                    if began.elapsed() >= fetching.wait_max {
                        return self.share(key, Some(lease), true, load);
                    }
                    std::thread::sleep(pause(look).mul_f64(0.5 + chance() / 2.0));
                }
            }
        }
        Ok(value)
    }

    /// Loads the value, or waits for another caller of this client that does.
    fn share<E>(
        &self,
        key: &[u8],
        lease: Option<Lease>,
        stores: bool,
        load: impl FnOnce() -> Result<(Vec<u8>, Ttl), E>,
    ) -> Result<Vec<u8>, E> {
        loop {
            match self.loads().begin(key) {
                Ok(mine) => return self.load(key, mine, lease, stores, load),
                Err(other) => {
                    if let Some(found) = other.wait() {
                        return Ok(found.to_vec());
                    }
                }
            }
        }
    }

    fn load<E>(
        &self,
        key: &[u8],
        mine: Mine<'_, Lane>,
        lease: Option<Lease>,
        stores: bool,
        load: impl FnOnce() -> Result<(Vec<u8>, Ttl), E>,
    ) -> Result<Vec<u8>, E> {
        let mut won = Won { client: self, key, lease };
        let (value, ttl) = load()?;
        won.lease = None;
        // A value that could not be stored is returned all the same.
        let _ = match lease {
            Some(lease) => self.fill(key, &value, ttl, &lease),
            None if stores => self.set(key, &value).ttl(ttl).send(),
            None => Ok(crate::reply::Stored { cas: 0 }),
        };
        mine.found(&value);
        Ok(value)
    }
}
