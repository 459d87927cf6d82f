//! RESP clients of a worker that others want closed: by CLIENT KILL, or since they have missed a delivery.
//!
//! Apart from the mailbox, which is bounded and may be full: a client that is to be closed may be one that
//! never sends anything again, and has to be closed all the same. A client is here once, however often it was
//! named, so there are never more than the worker had since it last looked.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Where the client is, and why it is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingClose {
    /// The connection's index in the worker's loop.
    pub index: usize,
    /// It has missed a delivery, and is counted as closed for that.
    pub missed: bool,
}

/// Clients that are to be closed, by their numbers.
#[derive(Debug, Default)]
pub struct PendingCloses {
    clients: Mutex<BTreeMap<u64, PendingClose>>,
}

impl PendingCloses {
    /// Names a client; true if there was none, so that the worker is to be woken.
    pub fn add(&self, client: u64, close: PendingClose) -> bool {
        let mut clients = self.clients.lock().expect("no holder panics");
        let first = clients.is_empty();
        clients.entry(client).and_modify(|known| known.missed |= close.missed).or_insert(close);
        first
    }

    /// True if a client has missed a delivery: it is to be closed, and is sent none that came later.
    pub fn has_missed(&self, client: u64) -> bool {
        let clients = self.clients.lock().expect("no holder panics");
        clients.get(&client).is_some_and(|close| close.missed)
    }

    /// Takes some of them, `most` at most, and says whether there are others.
    pub fn take(&self, most: usize) -> (Vec<(u64, PendingClose)>, bool) {
        let mut clients = self.clients.lock().expect("no holder panics");
        let taken = std::iter::from_fn(|| clients.pop_first()).take(most).collect();
        (taken, !clients.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_lost_and_none_is_named_twice() {
        let pending_closes = PendingCloses::default();
        let close = |index, missed| PendingClose { index, missed };
        assert!(pending_closes.add(9, close(1, false)));
        assert!(!pending_closes.has_missed(9));
        assert!(!pending_closes.add(9, close(1, true)));
        assert!(pending_closes.has_missed(9) && !pending_closes.has_missed(8));
        assert!((10..5000).all(|client| !pending_closes.add(client, close(2, false))));
        let (taken, more) = pending_closes.take(1000);
        assert_eq!((taken.len(), more), (1000, true));
        assert_eq!(taken[..2], [(9, close(1, true)), (10, close(2, false))]);
        assert!(!pending_closes.add(9, close(1, false)), "who has left some knows of them");
        assert_eq!(pending_closes.take(5000).0.len(), 3992);
        assert!(pending_closes.add(9, close(1, false)), "the next one wakes again");
    }
}
