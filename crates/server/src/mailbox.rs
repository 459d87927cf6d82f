//! A worker's mailboxes: bounded, written by other threads, read by the worker, which is woken.
//!
//! The data path never uses them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use larder_eventloop::poll::Waker;
use larder_eventloop::socket::Address;

/// Messages that fit. A worker empties its mailboxes at every wake-up, so that only one that hangs
/// lets them fill.
pub const MAIL_MAX: usize = 1024;

/// A connection on its way to a worker, which counts it already.
#[derive(Debug)]
pub struct Arrival<S> {
    /// Its bytes.
    pub stream: S,
    /// The peer's address.
    pub peer: Address,
    /// Index of the listener it came through.
    pub listener: usize,
}

/// A bounded queue whose reader is woken.
#[derive(Debug)]
pub struct Mailbox<M> {
    queue: Mutex<VecDeque<M>>,
    waker: Arc<Waker>,
}

impl<M> Mailbox<M> {
    /// An empty mailbox of the worker with this waker, which drains the waker before it takes.
    pub fn new(waker: &Arc<Waker>) -> Mailbox<M> {
        Mailbox { queue: Mutex::new(VecDeque::new()), waker: Arc::clone(waker) }
    }

    /// There is room for a message: also when it is sent, if no other thread sends.
    pub fn has_room(&self) -> bool {
        self.queue.lock().expect("no holder panics").len() < MAIL_MAX
    }

    /// Leaves a message and wakes the worker.
    ///
    /// # Errors
    /// The message, when as many wait as may.
    pub fn send(&self, message: M) -> Result<(), M> {
        let mut queue = self.queue.lock().expect("no holder panics");
        if queue.len() >= MAIL_MAX {
            return Err(message);
        }
        queue.push_back(message);
        // One that was waiting has woken the worker already, and was there when it woke or comes
        // along with this one.
        if queue.len() == 1 {
            self.waker.wake();
        }
        Ok(())
    }

    /// Takes all messages, in order.
    pub fn take(&self) -> VecDeque<M> {
        std::mem::take(&mut *self.queue.lock().expect("no holder panics"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_its_limit_and_no_more() {
        let waker = Arc::new(Waker::new().unwrap());
        let mailbox = Mailbox::new(&waker);
        for n in 0..MAIL_MAX {
            assert!(mailbox.has_room());
            assert_eq!(mailbox.send(n), Ok(()));
        }
        assert!(!mailbox.has_room());
        assert_eq!(mailbox.send(MAIL_MAX), Err(MAIL_MAX));
        assert!(waker.drain());
        assert!(mailbox.take().into_iter().eq(0..MAIL_MAX));
        assert_eq!(mailbox.send(7), Ok(()));
        assert!(waker.drain(), "a message after a take wakes again");
    }
}
