//! What happens to the keys of a server that is down.

use crate::server::Server;
use crate::wire::{Ask, Count, Delete, Get, Store};
use std::time::Duration;

/// What happens to the keys of a server that is down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Calls fail at once. When the server comes back, it holds nothing that is out of date.
    #[default]
    FailFast,
    /// The other servers take its keys. What is stored there meanwhile lives no longer than `ttl`.
    Rehash {
        /// Whole seconds, at least one; usually 10 s.
        ttl: Duration,
    },
    /// Servers that are used for nothing else take its keys. What is stored there lives no longer than `ttl`.
    Gutter {
        /// These servers, by the same preset.
        servers: Vec<Server>,
        /// As that of [`Failure::Rehash`].
        ttl: Duration,
    },
}

impl Failure {
    /// The servers that stand in for others.
    pub(crate) fn gutter(&self) -> Option<&[Server]> {
        match self {
            Failure::FailFast | Failure::Rehash { .. } => None,
            Failure::Gutter { servers, .. } => Some(servers),
        }
    }

    /// The longest time to live, in seconds, of what is stored at a server in another's place.
    pub(crate) fn ttl_max(&self) -> i64 {
        match self {
            Failure::FailFast => i64::MAX,
            // The protocol would take a longer time for a date.
            Failure::Rehash { ttl } | Failure::Gutter { ttl, .. } => {
                ttl.as_secs().clamp(1, 30 * 86_400) as i64
            }
        }
    }
}

/// The same request, with a time to live of at most `ttl_max` seconds, if there is a limit.
pub(crate) fn limited(ask: Ask<'_>, ttl_max: Option<i64>) -> Ask<'_> {
    let Some(most) = ttl_max else { return ask };
    // 0 means for ever, and a negative time has expired already.
    let capped = |exptime: i64| if exptime == 0 { most } else { exptime.min(most) };
    match ask {
        Ask::Store(store) => Ask::Store(Store { exptime: capped(store.exptime), ..store }),
        Ask::Touch(exptime) => Ask::Touch(capped(exptime)),
        Ask::Get(get) => {
            let (retime, vivify) = (get.retime.map(capped), get.vivify.map(capped));
            Ask::Get(Get { retime, vivify, ..get })
        }
        Ask::Count(count) => {
            let initial = count.initial.map(|(value, exptime)| (value, capped(exptime)));
            Ask::Count(Count { initial, retime: count.retime.map(capped), ..count })
        }
        Ask::Delete(delete) => Ask::Delete(Delete { retime: delete.retime.map(capped), ..delete }),
        Ask::FlushAll | Ask::Version | Ask::Barrier => ask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_in_anothers_place_lives_no_longer_than_is_said() {
        let of = |exptime| match limited(Ask::Touch(exptime), Some(10)) {
            Ask::Touch(exptime) => exptime,
            other => panic!("{other:?}"),
        };
        // For ever, shorter, longer, a date, and expired.
        assert_eq!([0, 5, 11, 4_000_000_000, -1].map(of), [10, 5, 10, 10, -1]);
        assert!(matches!(limited(Ask::Touch(0), None), Ask::Touch(0)));
        let set = Ask::Store(Store { value: b"v", exptime: 60, ..Store::default() });
        assert!(matches!(limited(set, Some(10)), Ask::Store(Store { exptime: 10, value: b"v", .. })));
        let get = Ask::Get(Get { vivify: Some(30), refresh: Some(20), ..Get::default() });
        let limited_get = limited(get, Some(10));
        assert!(matches!(
            limited_get,
            Ask::Get(Get { vivify: Some(10), refresh: Some(20), retime: None, .. })
        ));
    }

    #[test]
    fn a_limit_is_whole_seconds_that_are_no_date() {
        let seconds = |ttl| Failure::Rehash { ttl }.ttl_max();
        assert_eq!(seconds(Duration::ZERO), 1);
        assert_eq!(seconds(Duration::from_millis(2900)), 2);
        assert_eq!(seconds(Duration::MAX), 2_592_000);
    }
}
