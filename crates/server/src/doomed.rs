//! RESP clients of a worker that others want closed: by CLIENT KILL, or since they have missed a letter.
//!
//! Apart from the mailbox, which is bounded and may be full: who is to be closed may be one that never
//! sends anything again, and has to be closed all the same. A client is here once, however often it was
//! named, so there are never more than the worker had since it last looked.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Why, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doom {
    /// The connection's index in the worker's loop.
    pub index: usize,
    /// It has missed a letter, and is counted as closed for that.
    pub missed: bool,
}

/// Clients that are to be closed, by their numbers.
#[derive(Debug, Default)]
pub struct Doomed {
    clients: Mutex<BTreeMap<u64, Doom>>,
}

impl Doomed {
    /// Names a client; true if there was none, so that the worker is to be woken.
    pub fn add(&self, client: u64, doom: Doom) -> bool {
        let mut clients = self.clients.lock().expect("no holder panics");
        let first = clients.is_empty();
        clients.entry(client).and_modify(|known| known.missed |= doom.missed).or_insert(doom);
        first
    }

    /// Takes all of them.
    pub fn take(&self) -> BTreeMap<u64, Doom> {
        std::mem::take(&mut *self.clients.lock().expect("no holder panics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_lost_and_none_is_named_twice() {
        let doomed = Doomed::default();
        let doom = |index, missed| Doom { index, missed };
        assert!(doomed.add(9, doom(1, false)));
        assert!(!doomed.add(9, doom(1, true)));
        assert!((10..5000).all(|client| !doomed.add(client, doom(2, false))));
        let taken = doomed.take();
        assert_eq!((taken.len(), taken[&9], taken[&10]), (4991, doom(1, true), doom(2, false)));
        assert!(doomed.add(9, doom(1, false)), "the next one wakes again");
    }
}
