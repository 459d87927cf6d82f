//! Requests that are assembled before they are made: a store, a deletion, a count. They are the same for all clients: those of
//! [`Client`] have a blocking `send`, those of `tokio::Client` an async one.

use crate::client::Client;
use crate::error::Error;
use crate::reply::{Stored, counted, found, stored};
use crate::ttl::Ttl;
use crate::wire::{self, Ask, Count, Mode, Store};

/// The client, the key, the request, and the token that the item must have.
pub(crate) type Parts<'a, C> = (&'a C, &'a [u8], Ask<'a>, Option<u64>);

impl Client {
    /// Prepares a store; [`Set::send`] makes it.
    pub fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Set<'a> {
        Set::new(self, key, value)
    }

    /// Prepares a deletion; [`Delete::send`] makes it.
    pub fn delete<'a>(&'a self, key: &'a [u8]) -> Delete<'a> {
        Delete::new(self, key)
    }

    /// Prepares an addition to a number; [`Incr::send`] makes it.
    pub fn incr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a> {
        Incr::new(self, key, Count { delta, ..Count::default() })
    }

    /// Prepares a subtraction from a number, which stops at 0; [`Incr::send`] makes it.
    pub fn decr<'a>(&'a self, key: &'a [u8], delta: u64) -> Incr<'a> {
        Incr::new(self, key, Count { delta, down: true, ..Count::default() })
    }
}

/// A store to be made.
#[derive(Debug)]
#[must_use = "nothing is stored before send"]
pub struct Set<'a, C = Client> {
    client: &'a C,
    key: &'a [u8],
    store: Store<'a>,
    cas: Option<u64>,
}

impl<'a, C> Set<'a, C> {
    pub(crate) fn new(client: &'a C, key: &'a [u8], value: &'a [u8]) -> Set<'a, C> {
        Set { client, key, store: Store { value, ..Store::default() }, cas: None }
    }

    /// Client, key, request and token.
    pub(crate) fn parts(&self) -> Parts<'a, C> {
        (self.client, self.key, Ask::Store(self.store), self.cas)
    }

    /// How long the item lives. Default: for ever.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.store.exptime = ttl.exptime();
        self
    }

    /// The client flags. Default: 0.
    pub fn flags(mut self, flags: u32) -> Self {
        self.store.flags = flags;
        self
    }

    /// The mode, such as add, replace, append or prepend. Default: set.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.store.mode = mode;
        self
    }

    /// Stores only if the item has this token.
    pub fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// If this token is older than the item's, stores the value all the same, as stale.
    pub fn stale_if_older(mut self) -> Self {
        self.store.stale_if_older = true;
        self
    }

    /// Asks for the item's new token, which [`Stored`] has then.
    pub fn want_cas(mut self) -> Self {
        self.store.want_cas = true;
        self
    }
}

impl Set<'_> {
    /// Stores.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`], [`Error::NotStored`] or [`Error::Absent`] where a condition did not
    /// hold.
    pub fn send(self) -> Result<Stored, Error> {
        let (client, key, ask, cas) = self.parts();
        Ok(stored(&client.call(key, ask, cas, None)?))
    }
}

/// A deletion to be made.
#[derive(Debug)]
#[must_use = "nothing is deleted before send"]
pub struct Delete<'a, C = Client> {
    client: &'a C,
    key: &'a [u8],
    cas: Option<u64>,
    delete: wire::Delete,
}

impl<'a, C> Delete<'a, C> {
    pub(crate) fn new(client: &'a C, key: &'a [u8]) -> Delete<'a, C> {
        Delete { client, key, cas: None, delete: wire::Delete::default() }
    }

    /// Client, key, request and token.
    pub(crate) fn parts(&self) -> Parts<'a, C> {
        (self.client, self.key, Ask::Delete(self.delete), self.cas)
    }

    /// Deletes only if the item has this token.
    pub fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// Keeps the item for this long as stale: one reader is told to renew it.
    pub fn keep_stale(mut self, ttl: Ttl) -> Self {
        (self.delete.stale, self.delete.retime) = (true, Some(ttl.exptime()));
        self
    }

    /// Removes the value; the item stays, empty.
    pub fn keep_empty(mut self) -> Self {
        self.delete.empty = true;
        self
    }
}

impl Delete<'_> {
    /// Deletes; false if there was no item.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] if the item has another token.
    pub fn send(self) -> Result<bool, Error> {
        let (client, key, ask, cas) = self.parts();
        Ok(found(&client.call(key, ask, cas, None)?))
    }
}

/// A count to be made.
#[derive(Debug)]
#[must_use = "nothing is counted before send"]
pub struct Incr<'a, C = Client> {
    client: &'a C,
    key: &'a [u8],
    count: Count,
    cas: Option<u64>,
}

impl<'a, C> Incr<'a, C> {
    pub(crate) fn new(client: &'a C, key: &'a [u8], count: Count) -> Incr<'a, C> {
        Incr { client, key, count, cas: None }
    }

    /// Client, key, request and token.
    pub(crate) fn parts(&self) -> Parts<'a, C> {
        (self.client, self.key, Ask::Count(self.count), self.cas)
    }

    /// If there is no number, creates it with this value and time to live.
    pub fn or_make(mut self, initial: u64, ttl: Ttl) -> Self {
        self.count.initial = Some((initial, ttl.exptime()));
        self
    }

    /// Gives the number a new time to live.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.count.retime = Some(ttl.exptime());
        self
    }

    /// Counts only if the number has this token.
    pub fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }
}

impl Incr<'_> {
    /// Counts; `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::NotNumber`].
    pub fn send(self) -> Result<Option<u64>, Error> {
        let (client, key, ask, cas) = self.parts();
        Ok(counted(&client.call(key, ask, cas, None)?))
    }
}
