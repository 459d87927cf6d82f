//! Memory for one purpose, charged to the store. All clients together may hold a limited part of it: of requests that MULTI
//! queues, and of what was taken out of keys for clients that waited (BLPOP) and is not sent yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A client's part of that memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    all: Arc<AtomicU64>,
    store: Arc<larder_store::Store>,
    bytes: u64,
}

impl Held {
    /// A part that holds nothing of `all` yet.
    pub fn new(all: &Arc<AtomicU64>, store: &Arc<larder_store::Store>) -> Held {
        Held { all: Arc::clone(all), store: Arc::clone(store), bytes: 0 }
    }

    /// Raises the part to `bytes`; false if it would be more than `max` together with all others.
    pub fn raise(&mut self, bytes: u64, max: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if self.all.fetch_add(more, Relaxed) + more > max {
            self.all.fetch_sub(more, Relaxed);
            return false;
        }
        self.store.hold(more as i64);
        self.bytes += more;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
        self.store.hold(-(self.bytes as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_bytes_are_limited_together_and_given_back() {
        let all = Arc::new(AtomicU64::new(0));
        let store = larder_store::Store::new(larder_store::Config::default()).unwrap();
        let held = || Held::new(&all, &store);
        let (mut one, mut two) = (held(), held());
        assert!(one.raise(60, 100));
        assert!(!two.raise(41, 100));
        assert!(two.raise(40, 100));
        assert_eq!(store.held_bytes(), 100);
        assert!(!one.raise(61, 100));
        drop(two);
        assert!(one.raise(100, 100));
        drop(one);
        assert_eq!((all.load(Relaxed), store.held_bytes()), (0, 0));
    }
}
