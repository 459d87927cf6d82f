//! Leases, async.

use super::client::Client;
use crate::error::Error;
use crate::lease::{self, Lease, Leasing};
use crate::reply::Stored;
use crate::ttl::Ttl;

impl Client {
    /// Appends the value to `buffer`, if there is one. One caller becomes the winner if there is no value, or if it is stale or
    /// about to expire. Meta text only.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Unsupported`] where the server speaks classic text.
    pub async fn get_or_lease(
        &self,
        key: &[u8],
        leasing: Leasing,
        buffer: &mut Vec<u8>,
    ) -> Result<Lease, Error> {
        let bytes = buffer.len();
        let answer = self.call(key, leasing.ask(), None, Some(buffer)).await?;
        Ok(Lease::of(&answer, buffer, bytes))
    }

    /// Stores the value that a winner has loaded.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] if the key was deleted, invalidated or filled since.
    pub async fn fill(&self, key: &[u8], value: &[u8], ttl: Ttl, lease: &Lease) -> Result<Stored, Error> {
        self.set(key, value).ttl(ttl).cas(lease.cas).send().await.map_err(lease::lost)
    }
}
