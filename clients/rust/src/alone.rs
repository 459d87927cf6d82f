//! A server's connection for one caller at a time: which caller has it, and what is kept of it meanwhile. What callers do with it
//! is in `direct.rs`.

use crate::pipe::{Input, Pipe};
use crate::socket::Socket;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server's connection for one caller at a time.
#[derive(Debug, Default)]
pub struct Alone {
    state: Mutex<State>,
    free: Condvar,
}

/// Whether a caller has it, and what there is of it.
#[derive(Debug, Default)]
pub struct State {
    is_taken: bool,
    /// The idle connection, if there is one and its last use succeeded.
    pub kept: Option<Direct>,
    /// The socket that the present caller waits on.
    pub under_way: Option<Arc<Socket>>,
}

/// The connection.
#[derive(Debug)]
pub struct Direct {
    pub socket: Arc<Socket>,
    pub pipe: Pipe,
    pub input: Input,
    pub step: Duration,
}

/// The right of one caller to use the connection; dropping it returns the connection.
#[derive(Debug)]
pub struct Taken<'a>(&'a Alone);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.is_taken, state.under_way) = (false, None);
        drop(state);
        self.0.free.notify_one();
    }
}

impl Taken<'_> {
    /// The state of the connection.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Alone {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the connection until `deadline`.
    pub fn take(&self, deadline: Instant) -> Option<(Taken<'_>, Option<Direct>)> {
        let mut state = self.lock();
        while state.is_taken {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.free.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_taken = true;
        let kept = state.kept.take();
        state.under_way = kept.as_ref().map(|kept| Arc::clone(&kept.socket));
        Some((Taken(self), kept))
    }

    /// Whether no call uses the connection.
    pub fn is_free(&self) -> bool {
        !self.lock().is_taken
    }

    /// Ends the connection, also for its present caller.
    pub fn end(&self) {
        let mut state = self.lock();
        state.kept = None;
        if let Some(socket) = &state.under_way {
            socket.shut_down();
        }
    }
}
