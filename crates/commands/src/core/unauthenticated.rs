//! Unauthenticated clients, where clients have to log in: their number, and the bytes that their requests hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use larder_store::Millis;

/// All unauthenticated clients, of all workers.
#[derive(Debug, Default)]
pub struct Unauthenticated {
    count: AtomicUsize,
    bytes: AtomicI64,
}

impl Unauthenticated {
    /// Whether there are any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Bytes that their requests hold.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed).max(0) as u64
    }

    /// Counts so many bytes more, or (negative) fewer, that their requests hold.
    pub fn hold(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// A client's place among the unauthenticated ones, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnauthenticatedClient {
    all: Arc<Unauthenticated>,
    /// Since when the client is unauthenticated, on the server's own clock.
    since: Millis,
}

impl UnauthenticatedClient {
    /// Counts one more client; `None` if there are `max` already.
    pub fn new(all: &Arc<Unauthenticated>, since: Millis, max: usize) -> Option<UnauthenticatedClient> {
        if all.count.fetch_add(1, Relaxed) >= max {
            all.count.fetch_sub(1, Relaxed);
            return None;
        }
        Some(UnauthenticatedClient { all: Arc::clone(all), since })
    }

    /// Since when the client is unauthenticated.
    pub fn since(&self) -> Millis {
        self.since
    }

    /// All of them.
    pub fn all(&self) -> &Arc<Unauthenticated> {
        &self.all
    }
}

impl Drop for UnauthenticatedClient {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_may_be_and_one_that_goes_makes_room() {
        let all = Arc::new(Unauthenticated::default());
        let some: Vec<_> = (0..3).map_while(|_| UnauthenticatedClient::new(&all, 5, 3)).collect();
        assert_eq!(some.len(), 3);
        assert!(UnauthenticatedClient::new(&all, 6, 3).is_none() && all.any());
        drop(some);
        assert!(!all.any());
        assert_eq!(UnauthenticatedClient::new(&all, 7, 3).map(|one| one.since()), Some(7));
    }
}
