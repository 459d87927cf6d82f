//! A value is read, changed by the caller, and stored if the item has not changed meanwhile, async.

use super::client::Client;
use crate::error::Error;
use crate::reply::Stored;
use crate::ttl::Ttl;
use crate::update::{ATTEMPTS_MAX, pause};
use crate::wire::{Mode, Want};
use ::tokio::time;

impl Client {
    /// Reads a value, passes it to `change`, and stores the result if the item has not changed meanwhile. Otherwise tries again,
    /// as [`crate::Client::update`] does.
    ///
    /// # Errors
    /// As [`crate::Client::update`].
    pub async fn update(
        &self,
        key: &[u8],
        ttl: Ttl,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Stored>, Error> {
        let mut old = Vec::new();
        for attempt in 0..ATTEMPTS_MAX {
            old.clear();
            let meta = self.get_with(key, Want::CAS | Want::FLAGS, &mut old).await?;
            let Some(new) = change(meta.is_some().then_some(&old)) else { return Ok(None) };
            let set = self.set(key, &new).ttl(ttl).flags(meta.map_or(0, |meta| meta.flags));
            let result = match meta {
                Some(meta) => set.cas(meta.cas).send().await,
                None => set.mode(Mode::Add).send().await,
            };
            match result {
                Ok(stored) => return Ok(Some(stored)),
                Err(Error::Conflict | Error::NotStored | Error::Absent) => {}
                Err(error) => return Err(error),
            }
            time::sleep(pause(attempt)).await;
        }
        Err(Error::Conflict)
    }
}
