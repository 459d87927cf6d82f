//! RESP clients of a worker that wait, and are to be looked at: a worker gave them what they wait for, or has ended their
//! wait.
//!
//! Apart from the mailbox, which is bounded and may be full: a client that is not woken waits for ever. One that
//! waits is here a few times at most.

use std::sync::Mutex;

/// Clients that are to be looked at.
#[derive(Debug, Default)]
pub struct Awake {
    clients: Mutex<Vec<(usize, u64)>>,
}

impl Awake {
    /// Names a client, and its index in the worker's loop; true if there was none, so that the worker is to be woken.
    pub fn add(&self, index: usize, client: u64) -> bool {
        let mut clients = self.clients.lock().expect("no holder panics");
        clients.push((index, client));
        clients.len() == 1
    }

    /// Takes all of them.
    pub fn take(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut *self.clients.lock().expect("no holder panics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_them_wakes_the_worker() {
        let awake = Awake::default();
        assert!(awake.add(1, 7));
        assert!(!awake.add(2, 8));
        assert_eq!(awake.take(), [(1, 7), (2, 8)]);
        assert!(awake.add(1, 7));
    }
}
