//! Which events the fleet reports: calls as they end, and changes of connections and servers.

use crate::error::Error;
use crate::event::{Call, Change, Event};
use crate::fleet::Fleet;
use crate::line::Line;
use crate::op::Answer;
use crate::wire::{Ask, Mode, Status};
use std::time::Instant;

impl<L: Line> Fleet<L> {
    fn tell(&self, event: &Event<'_>) {
        if let Some(observer) = &self.config.observer {
            observer.tell(event);
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
    pub fn turns(&self, server: &str, turn: Option<&Change>) {
        match turn {
            None => {}
            Some(Change::Down(reason)) => self.tell(&Event::Down { server, reason }),
            Some(Change::Back) => self.tell(&Event::Back { server }),
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
