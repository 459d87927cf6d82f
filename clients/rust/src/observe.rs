//! What a program is told of: calls as they end, and what becomes of connections and servers.

use crate::error::{Error, Reason};
use crate::fleet::{Fleet, Line};
use crate::op::Answer;
use crate::wire::{Ask, Mode, Status};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What happened. It is told after the fact and outside of the client's locks, by the thread or the task that
/// it happened to: what is done about it takes that one's time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A call for keys has ended. A stream is none, it has its report; nor is a future that was dropped.
    Call(Call<'e>),
    /// A connection was made and greeted, which took so long.
    Connected {
        /// The server's name.
        server: &'e str,
        /// From the first packet to the greeting.
        took: Duration,
    },
    /// One could not be made.
    ConnectFailed {
        /// The server's name.
        server: &'e str,
        /// How long it was tried.
        took: Duration,
        /// Why it could not.
        error: &'e Error,
    },
    /// It could not be reached three times in a row, or half of its answers came too late: calls are told at once,
    /// or go elsewhere, until one of them is let try again.
    Down {
        /// The server's name.
        server: &'e str,
        /// Why.
        reason: &'e Reason,
    },
    /// It was down, and a connection was made again.
    Back {
        /// The server's name.
        server: &'e str,
    },
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'e> {
    /// What was asked: `get`, `touch`, `set`, `add`, `replace`, `append`, `prepend`, `delete`, `incr`, `decr`;
    /// `batch` for one.
    pub verb: &'static str,
    /// The name of the server that was asked last; none for a batch, and where the key cannot be asked for.
    pub server: Option<&'e str>,
    /// For how many keys.
    pub keys: usize,
    /// How many of those were not there.
    pub missing: usize,
    /// How long the caller waited.
    pub took: Duration,
    /// What the caller is told; of a batch, the first of its requests that failed.
    pub error: Option<&'e Error>,
}

/// Who is told.
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

/// What became of a server.
#[derive(Debug)]
pub enum Turn {
    /// It is down.
    Down(Reason),
    /// It was, and is not any more.
    Back,
}

impl<L: Line> Fleet<L> {
    fn tell(&self, event: &Event<'_>) {
        if let Some(Observer(told)) = &self.config.observer {
            told(event);
        }
    }

    /// When what begins now began; none, where nobody is told of it.
    pub fn begins(&self) -> Option<Instant> {
        self.config.observer.is_some().then(L::now)
    }

    /// A call for one key has ended that began then, and of which this server was asked last.
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

    /// A batch has ended that began then, with these results.
    pub fn asked_for_all(&self, began: Option<Instant>, results: &[Result<Answer, Error>]) {
        let Some(began) = began.filter(|_| !results.is_empty()) else { return };
        let missing = results.iter().flatten().filter(|answer| is_missing(answer)).count();
        let error = results.iter().find_map(|result| result.as_ref().err());
        let took = L::now().saturating_duration_since(began);
        let call = Call { verb: "batch", server: None, keys: results.len(), missing, took, error };
        self.tell(&Event::Call(call));
    }

    /// It was tried to connect since then, and what came of it.
    pub fn connects(&self, server: &str, began: Option<Instant>, error: Option<&Error>) {
        let Some(began) = began else { return };
        let took = L::now().saturating_duration_since(began);
        self.tell(&match error {
            None => Event::Connected { server, took },
            Some(error) => Event::ConnectFailed { server, took, error },
        });
    }

    /// What became of a server, if something did.
    pub fn turns(&self, server: &str, turn: Option<&Turn>) {
        match turn {
            None => {}
            Some(Turn::Down(reason)) => self.tell(&Event::Down { server, reason }),
            Some(Turn::Back) => self.tell(&Event::Back { server }),
        }
    }
}

/// There was no such item.
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
