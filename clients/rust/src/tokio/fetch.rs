//! Values that are in the cache or are found where they come from, awaited.

use super::client::Client;
use super::lane::Lane;
use crate::client::chance;
use crate::error::Error;
use crate::fetch::{Fetching, Load, Mine, Way, pause, way};
use crate::lease::{Lease, LeaseState};
use crate::reply::Stored;
use crate::ttl::Ttl;
use ::tokio::runtime::Handle;
use ::tokio::time;
use std::sync::Arc;

/// As that of [`crate::Client`]: given back by a task, as nobody can wait where it is dropped.
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

/// Waits until another's load is over.
async fn over(load: &Load<Lane>) -> Option<Arc<[u8]>> {
    loop {
        // What is told from here on is heard.
        let told = load.over.notified();
        if let (true, found) = load.found() {
            return found;
        }
        told.await;
    }
}

impl Client {
    /// The key's value: what the cache has, or what `load` finds, which is then stored, as [`crate::Client::fetch`] does. Where
    /// this future is dropped while it loads, those who waited for that try themselves.
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

    /// What this caller finds, or another does.
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
        // A value that could not be stored is a value all the same.
        let _ = match lease {
            Some(lease) => self.fill(key, &value, ttl, &lease).await,
            None if stores => self.set(key, &value).ttl(ttl).send().await,
            None => Ok(Stored { cas: 0 }),
        };
        mine.found(&value);
        Ok(value)
    }
}
