//! Read-through, async.

use super::client::Client;
use super::lane::Lane;
use crate::chance::chance;
use crate::error::Error;
use crate::fetch::{Fetching, Way, pause, way};
use crate::lease::{Lease, LeaseState};
use crate::loads::{Load, Mine};
use crate::reply::Stored;
use crate::ttl::Ttl;
use ::tokio::runtime::Handle;
use ::tokio::time;
use std::sync::Arc;

/// As that of [`crate::Client`]. A task gives the lease back, since a drop cannot wait.
struct Won<'c> {
    client: &'c Client,
    key: &'c [u8],
    lease: Option<Lease>,
}

impl Drop for Won<'_> {
    fn drop(&mut self) {
        if let Some(Lease { state: LeaseState::MissWon, cas, .. }) = self.lease
            && let Ok(runtime) = Handle::try_current()
        {
            let (client, key) = (self.client.clone(), self.key.to_vec());
            runtime.spawn(async move {
                let _ = client.delete(&key).cas(cas).send().await;
            });
        }
    }
}

/// Waits for the end of another caller's load.
async fn over(load: &Load<Lane>) -> Option<Arc<[u8]>> {
    loop {
        // From here on no notification is missed.
        let told = load.over.notified();
        if let (true, found) = load.found() {
            return found;
        }
        told.await;
    }
}

impl Client {
    /// Returns the cached value, or loads it with `load` and stores it, as [`crate::Client::fetch`] does. If this future is
    /// dropped while it loads, callers that waited for that load the value themselves.
    ///
    /// # Errors
    /// As [`crate::Client::fetch`].
    pub async fn fetch<E: From<Error>>(
        &self,
        key: &[u8],
        fetching: Fetching,
        load: impl AsyncFnOnce() -> Result<(Vec<u8>, Ttl), E>,
    ) -> Result<Vec<u8>, E> {
        let (began, mut value) = (time::Instant::now(), Vec::new());
        for look in 0.. {
            let leased = self.get_or_lease(key, fetching.leasing(), &mut value).await;
            match way(leased)? {
                Way::Take => break,
                Way::Renew(lease) => {
                    if let Ok(mine) = self.loads().begin(key)
                        && let Ok(new) = self.load(key, mine, Some(lease), true, load).await
                    {
                        return Ok(new);
                    }
                    break;
                }
                Way::Find(lease) => return self.share(key, lease, lease.is_some(), load).await,
                Way::Classic => match self.get_into(key, &mut value).await {
                    Ok(Some(_)) => break,
                    Ok(None) => return self.share(key, None, true, load).await,
                    Err(_) => return self.share(key, None, false, load).await,
                },
                Way::Wait(lease) => {
                    if let Some(other) = self.loads().of(key)
                        && let Some(found) = over(&other).await
                    {
                        return Ok(found.to_vec());
                    }
                    if began.elapsed() >= fetching.wait_max {
                        return self.share(key, Some(lease), true, load).await;
                    }
                    time::sleep(pause(look).mul_f64(0.5 + chance() / 2.0)).await;
                }
            }
        }
        Ok(value)
    }

    /// Loads the value, or waits for another caller of this client that does.
    async fn share<E>(
        &self,
        key: &[u8],
        lease: Option<Lease>,
        stores: bool,
        load: impl AsyncFnOnce() -> Result<(Vec<u8>, Ttl), E>,
    ) -> Result<Vec<u8>, E> {
        loop {
            match self.loads().begin(key) {
                Ok(mine) => return self.load(key, mine, lease, stores, load).await,
                Err(other) => {
                    if let Some(found) = over(&other).await {
                        return Ok(found.to_vec());
                    }
                }
            }
        }
    }

    async fn load<E>(
        &self,
        key: &[u8],
        mine: Mine<'_, Lane>,
        lease: Option<Lease>,
        stores: bool,
        load: impl AsyncFnOnce() -> Result<(Vec<u8>, Ttl), E>,
    ) -> Result<Vec<u8>, E> {
        let mut won = Won { client: self, key, lease };
        let (value, ttl) = load().await?;
        won.lease = None;
        // A value that could not be stored is returned all the same.
        let _ = match lease {
            Some(lease) => self.fill(key, &value, ttl, &lease).await,
            None if stores => self.set(key, &value).ttl(ttl).send().await,
            None => Ok(Stored { cas: 0 }),
        };
        mine.found(&value);
        Ok(value)
    }
}
