//! What kind of command a row is, where its flags do not say it.

use crate::redis::table::{Command, flag};

impl Command {
    /// It may write, or be told to others: it waits while writes are paused.
    pub fn changes(&self) -> bool {
        self.has(flag::WRITE) || matches!(self.name, "publish" | "spublish")
    }

    /// Behind it, messages may be for nobody any more.
    pub fn ends_listening(&self) -> bool {
        matches!(self.name, "unsubscribe" | "punsubscribe" | "sunsubscribe" | "exec" | "reset" | "quit")
    }

    /// It tells of subscriptions.
    pub fn subscribes(&self) -> bool {
        self.name.ends_with("subscribe")
    }

    /// It may have sent something to the client itself.
    pub fn publishes(&self) -> bool {
        matches!(self.name, "publish" | "spublish" | "exec")
    }

    /// Clients that speak RESP2 and listen to channels may say it.
    pub fn may_be_said_while_listening(&self) -> bool {
        matches!(
            self.name,
            "subscribe"
                | "unsubscribe"
                | "psubscribe"
                | "punsubscribe"
                | "ssubscribe"
                | "sunsubscribe"
                | "ping"
                | "quit"
                | "reset"
        )
    }
}
