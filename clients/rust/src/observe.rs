//! Events that a program can observe: calls as they end, and changes of connections and servers.

use crate::error::{Error, Reason};
use crate::fleet::{Fleet, Line};
use crate::op::Answer;
use crate::wire::{Ask, Mode, Status};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An event. The observer is called after it, outside of the client's locks, by the thread or the task that had the event: the
/// observer's time is that thread's or task's.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A call for keys has ended. A stream has no such event, it has its report; nor has a future that was dropped.
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
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// A change of a server.
#[derive(Debug)]
pub enum Turn {
    /// The server is down.
    Down(Reason),
    /// The server was down, and is not any more.
    Back,
}

impl<L: Line> Fleet<L> {
    fn tell(&self, event: &Event<'_>) {
        if let Some(Observer(told)) = &self.config.observer {
            told(event);
        }
    }

    /// The present time, as the beginning of an event; `None` without an observer.
    pub fn begins(&self) -> Option<Instant> {
        self.config.observer.is_some().then(L::now)
    }

    /// Reports a call for one key that began then and has ended; `server` was asked last.
    pub fn asked(
        &self,
        began: Option<Instant>,
        ask: &Ask<'_>,
        server: Option<&str>,
        result: Result<&Answer, &Error>,
    ) {
        let Some(began) = began else { return };
        let missing = usize::from(result.is_ok_and(is_missing));
        let took = L::now().saturating_duration_since(began);
        let call = Call { verb: verb(ask), server, keys: 1, missing, took, error: result.err() };
        self.tell(&Event::Call(call));
    }

    /// Reports a batch that began then and has ended with these results.
    pub fn asked_for_all(&self, began: Option<Instant>, results: &[Result<Answer, Error>]) {
        let Some(began) = began.filter(|_| !results.is_empty()) else { return };
        let missing = results.iter().flatten().filter(|answer| is_missing(answer)).count();
        let error = results.iter().find_map(|result| result.as_ref().err());
        let took = L::now().saturating_duration_since(began);
        let call = Call { verb: "batch", server: None, keys: results.len(), missing, took, error };
        self.tell(&Event::Call(call));
    }

    /// Reports a connection that was begun then: made, or failed with `error`.
    pub fn connects(&self, server: &str, began: Option<Instant>, error: Option<&Error>) {
        let Some(began) = began else { return };
        let took = L::now().saturating_duration_since(began);
        self.tell(&match error {
            None => Event::Connected { server, took },
            Some(error) => Event::ConnectFailed { server, took, error },
        });
    }

    /// Reports a change of a server, if there is one.
    pub fn turns(&self, server: &str, turn: Option<&Turn>) {
        match turn {
            None => {}
            Some(Turn::Down(reason)) => self.tell(&Event::Down { server, reason }),
            Some(Turn::Back) => self.tell(&Event::Back { server }),
        }
    }
}

/// Whether there was no such item.
fn is_missing(answer: &Answer) -> bool {
    answer.status == Status::Absent
}

fn verb(ask: &Ask<'_>) -> &'static str {
    match ask {
        Ask::Get(_) => "get",
        Ask::Touch(_) => "touch",
        Ask::Store(store) => match store.mode {
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
        },
        Ask::Delete(_) => "delete",
        Ask::Count(count) if count.down => "decr",
        Ask::Count(_) => "incr",
        Ask::Barrier => "barrier",
        Ask::Version => "version",
        Ask::FlushAll => "flush_all",
    }
}
