//! A worker's one mailbox: bounded, written by any thread, read by the worker, who is woken.
//!
//! The data path never uses it.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

use larder_eventloop::poll::Waker;

/// Messages that fit. A worker empties its mailbox at every wake-up, so that only one that hangs
/// lets it fill.
pub const MAIL_MAX: usize = 1024;

/// A bounded queue with a waker.
#[derive(Debug)]
pub struct Mailbox<M> {
    queue: Mutex<VecDeque<M>>,
    waker: Waker,
}

impl<M> Mailbox<M> {
    /// An empty mailbox.
    ///
    /// # Errors
    /// What eventfd(2) says (too many open files).
    pub fn new() -> io::Result<Mailbox<M>> {
        Ok(Mailbox { queue: Mutex::new(VecDeque::new()), waker: Waker::new()? })
    }

    /// Leaves a message and wakes the worker.
    ///
    /// # Errors
    /// The message, when [`MAIL_MAX`] wait already.
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

    /// Takes all messages, in order, and the waking back.
    pub fn take(&self) -> VecDeque<M> {
        let mut queue = self.queue.lock().expect("no holder panics");
        self.waker.drain();
        std::mem::take(&mut *queue)
    }

    /// What wakes the worker.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_its_limit_and_no_more() {
        let mailbox = Mailbox::new().unwrap();
        for n in 0..MAIL_MAX {
            assert_eq!(mailbox.send(n), Ok(()));
        }
        assert_eq!(mailbox.send(MAIL_MAX), Err(MAIL_MAX));
        assert!(mailbox.take().into_iter().eq(0..MAIL_MAX));
        assert_eq!(mailbox.send(7), Ok(()));
        assert!(mailbox.waker().drain(), "a message after a take wakes again");
    }
}
