//! A value is read, changed by the caller, and stored if the item has not changed meanwhile.

use crate::chance::chance;
use crate::client::Client;
use crate::error::Error;
use crate::reply::Stored;
use crate::ttl::Ttl;
use crate::wire::{Mode, Want};
use std::time::Duration;

/// Attempts of [`Client::update`].
pub(crate) const ATTEMPTS_MAX: u32 = 16;
/// The longest pause between two attempts: after the first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];

impl Client {
    /// Reads a value, passes it to `change`, and stores the result if the item has not changed meanwhile. Otherwise tries again,
    /// up to 16 times, after random pauses whose bound grows from 50 µs to 10 ms. `change` gets `None` where there is no item. If
    /// it returns `None`, nothing is stored.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::Conflict`] after the last attempt. If [`Error::outcome`] is [`Outcome::Unknown`], the write
    /// may have been made, and nothing can tell afterwards whether it was.
    ///
    /// [`Outcome::Unknown`]: crate::Outcome::Unknown
    pub fn update(
        &self,
        key: &[u8],
        ttl: Ttl,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Stored>, Error> {
        let mut old = Vec::new();
        for attempt in 0..ATTEMPTS_MAX {
            old.clear();
            let meta = self.get_with(key, Want::CAS | Want::FLAGS, &mut old)?;
            let Some(new) = change(meta.is_some().then_some(&old)) else { return Ok(None) };
            let set = self.set(key, &new).ttl(ttl).flags(meta.map_or(0, |meta| meta.flags));
            let result = match meta {
                Some(meta) => set.cas(meta.cas).send(),
                None => set.mode(Mode::Add).send(),
            };
            match result {
                Ok(stored) => return Ok(Some(stored)),
                Err(Error::Conflict | Error::NotStored | Error::Absent) => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(pause(attempt));
        }
        Err(Error::Conflict)
    }
}

/// The pause after an attempt of an update.
pub(crate) fn pause(attempt: u32) -> Duration {
    PAUSES[0].saturating_mul(1 << attempt).min(PAUSES[1]).mul_f64(chance())
}
