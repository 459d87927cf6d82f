//! Stores, deletions and counts, async.

use super::client::Client;
use crate::error::Error;
use crate::reply::{Stored, counted, found, stored};
use crate::verbs::{Delete, Incr, Set};
use crate::wire::Count;

impl Client {
    /// Prepares a store; awaiting its `send` makes it.
    pub fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Set<'a, Client> {
        Set::new(self, key, value)
    }

    /// Prepares a deletion; awaiting its `send` makes it.
    pub fn delete<'a>(&'a self, key: &'a [u8]) -> Delete<'a, Client> {
        Delete::new(self, key)
    }

    /// Prepares an addition to a number; awaiting its `send` makes it.
    pub fn incr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a, Client> {
        Incr::new(self, key, Count { delta, ..Count::default() })
    }

    /// Prepares a subtraction from a number, which stops at 0; awaiting its `send` makes it.
    pub fn decr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a, Client> {
        Incr::new(self, key, Count { delta, down: true, ..Count::default() })
    }
}

impl Set<'_, Client> {
    /// Stores.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`], [`Error::NotStored`] or [`Error::Absent`] where a condition did not
    /// hold.
    pub async fn send(self) -> Result<Stored, Error> {
        let (client, key, ask, cas) = self.parts();
        Ok(stored(&client.call(key, ask, cas, None).await?))
    }
}

impl Delete<'_, Client> {
    /// Deletes; false if there was no item.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] if the item has another token.
    pub async fn send(self) -> Result<bool, Error> {
        let (client, key, ask, cas) = self.parts();
        Ok(found(&client.call(key, ask, cas, None).await?))
    }
}

impl Incr<'_, Client> {
    /// Counts; `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::NotNumber`].
    pub async fn send(self) -> Result<Option<u64>, Error> {
        let (client, key, ask, cas) = self.parts();
        Ok(counted(&client.call(key, ask, cas, None).await?))
    }
}
