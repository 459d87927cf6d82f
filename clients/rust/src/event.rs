//! What a program can observe of a client, and the function that is called for it.

use crate::error::{Error, Reason};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An event. The observer is called after it, outside of the client's locks, by the thread or the task that had the event: the
/// observer's time is that thread's or task's.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A call for keys has ended. A stream has its report in place of such events; a dropped future has none.
    Call(Call<'e>),
    /// A connection was made and greeted.
    Connected {
        /// The server's name.
        server: &'e str,
        /// The time from the first packet to the greeting.
        took: Duration,
    },
    /// A connection could not be made.
    ConnectFailed {
        /// The server's name.
        server: &'e str,
        /// How long the client tried.
        took: Duration,
        /// The reason.
        error: &'e Error,
    },
    /// The server could not be reached three times in a row, or half of its replies came too late. Calls fail at once, or go to
    /// other servers, until one of them may try again.
    Down {
        /// The server's name.
        server: &'e str,
        /// The reason.
        reason: &'e Reason,
    },
    /// The server was down, and a connection was made again.
    Back {
        /// The server's name.
        server: &'e str,
    },
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'e> {
    /// The kind of call: `get`, `touch`, `set`, `add`, `replace`, `append`, `prepend`, `delete`, `incr`, `decr`, or `batch`.
    pub verb: &'static str,
    /// The name of the server that was asked last; `None` for a batch, and for a key that cannot be sent.
    pub server: Option<&'e str>,
    /// Number of keys.
    pub keys: usize,
    /// Number of keys that had no item.
    pub missing: usize,
    /// How long the caller waited.
    pub took: Duration,
    /// The error that the call returns; of a batch, that of the first request that failed.
    pub error: Option<&'e Error>,
}

/// The function that is called for each event.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Event<'_>) + Send + Sync>);

impl Observer {
    pub fn new(told: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(told))
    }

    /// Calls the function.
    pub fn tell(&self, event: &Event<'_>) {
        (self.0)(event);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// A change of a server.
#[derive(Debug)]
pub enum Change {
    /// The server is down.
    Down(Reason),
    /// The server was down, and is not any more.
    Back,
}
