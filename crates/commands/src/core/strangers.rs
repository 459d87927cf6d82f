//! Connections that have to say who they are, and did not yet: how many there are, and what their requests hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use larder_store::Millis;

/// All of them, of all workers.
#[derive(Debug, Default)]
pub struct Strangers {
    count: AtomicUsize,
    bytes: AtomicI64,
}

impl Strangers {
    /// There are some.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Bytes that their requests hold.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed).max(0) as u64
    }

    /// Their requests hold so many bytes more, or (negative) fewer.
    pub fn hold(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    all: Arc<Strangers>,
    /// On the server's own clock.
    since: Millis,
}

impl Stranger {
    /// One more; none if there are `max` already.
    pub fn new(all: &Arc<Strangers>, since: Millis, max: usize) -> Option<Stranger> {
        if all.count.fetch_add(1, Relaxed) >= max {
            all.count.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Stranger { all: Arc::clone(all), since })
    }

    /// Since when it is one.
    pub fn since(&self) -> Millis {
        self.since
    }

    /// All of them.
    pub fn all(&self) -> &Arc<Strangers> {
        &self.all
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_may_be_and_one_that_goes_makes_room() {
        let all = Arc::new(Strangers::default());
        let some: Vec<Stranger> = (0..3).map_while(|_| Stranger::new(&all, 5, 3)).collect();
        assert_eq!(some.len(), 3);
        assert!(Stranger::new(&all, 6, 3).is_none() && all.any());
        drop(some);
        assert!(!all.any());
        assert_eq!(Stranger::new(&all, 7, 3).map(|one| one.since()), Some(7));
    }
}
