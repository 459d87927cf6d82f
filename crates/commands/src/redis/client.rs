//! A client: what its connection keeps between two commands. `facts.rs` has what others may know of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_store::{Store, Upload};

use super::facts::{ClientFacts, Clients, Names};
use crate::core::access::Standing;
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tries::Tries;
use crate::redis::closing::Closing;
use crate::redis::queue::Transaction;
use crate::redis::subscriptions::Subscriptions;

/// Whether replies are sent (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    /// Not to this command, nor to the next one.
    SkipNext,
    /// Not to this command.
    Skip,
    Off,
}

impl Replies {
    /// Whether the reply of the present command is dropped.
    pub fn is_silent(self) -> bool {
        matches!(self, Replies::Skip | Replies::Off)
    }

    /// Notes that a command has ended, on its own or in a transaction.
    pub fn end_command(&mut self) {
        *self = match *self {
            Replies::On | Replies::Skip => Replies::On,
            Replies::SkipNext => Replies::Skip,
            Replies::Off => Replies::Off,
        };
    }
}

/// What a connection keeps between two commands.
#[derive(Debug)]
pub(crate) struct Client {
    /// The selected database.
    pub db: u8,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// Whether it has logged in, and its user.
    pub standing: Standing,
    /// Its tries to log in.
    pub logins: Tries,
    pub replies: Replies,
    /// Whether its reads leave no trace for eviction.
    pub no_touch: bool,
    /// What it has queued and watches.
    pub transaction: Transaction,
    /// How often its command was tried before.
    pub tries: u8,
    /// Whether the present request was gathered, so that its bytes can stay where they are.
    pub gathers: bool,
    /// The last word of the present command, if it was received straight into its parts: the words have its length instead.
    pub received: Option<Box<Upload>>,
    /// Whether EXEC is running its commands.
    pub executes: bool,
    /// The work of its worker in this turn when EXEC began with its commands, in nanoseconds.
    pub executes_from_ns: u64,
    /// Users that these commands changed, whose connections EXEC closes at its end.
    pub closing: Option<Box<Closing>>,
    /// Its subscriptions, if it has any.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Messages that come behind a reply: those from before it unsubscribed in EXEC, or amid a job.
    pub late: Option<Box<Output>>,
    /// What others may know of it.
    pub facts: Arc<ClientFacts>,
    clients: Arc<Clients>,
    store: Arc<Store>,
    /// Bytes of the names that it gave itself.
    names_bytes: i64,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.leave(self.facts.id);
        self.store.set_aside(-self.names_bytes);
    }
}

impl Client {
    /// Makes a client that has just begun to speak.
    pub fn new(clients: &Arc<Clients>, cx: &Context<'_, '_>) -> Client {
        let facts = clients.enter(cx);
        Client {
            db: 0,
            resp3: false,
            standing: Standing::new(cx),
            logins: Tries::default(),
            replies: Replies::On,
            no_touch: false,
            transaction: Transaction::default(),
            tries: 0,
            gathers: false,
            received: None,
            executes: false,
            executes_from_ns: 0,
            closing: None,
            subscriptions: None,
            late: None,
            facts,
            clients: Arc::clone(clients),
            store: Arc::clone(cx.guard.store()),
            names_bytes: 0,
        }
    }

    /// Whether its commands may be read ahead and run in batches: nothing has to be checked before each.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.standing.is_free() && self.is_plain_but_for_rules()
    }

    /// As [`Client::is_plain`], but its user may have rules.
    #[inline]
    pub fn is_plain_but_for_rules(&self) -> bool {
        self.replies == Replies::On
            && !self.transaction.is_open()
            && (self.resp3 || self.subscriptions.is_none())
    }

    /// Whether it is a monitor.
    pub fn monitors(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.monitors())
    }

    /// Whether it speaks RESP2 and is subscribed to channels: replies could be taken for messages.
    #[inline]
    pub fn only_listens(&self) -> bool {
        !self.resp3 && self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.listens())
    }

    /// Shows others what it has queued and watches.
    pub fn show_transaction(&self) {
        let queued = self.transaction.queued().map_or(0, |queued| queued as u32 + 1);
        self.facts.queued.store(queued, Relaxed);
        self.facts.queue_bytes.store(self.transaction.queue_bytes() as u64, Relaxed);
        self.facts.watched.store(self.transaction.watched() as u32, Relaxed);
    }

    /// Shows others its subscriptions.
    pub fn show_subscriptions(&self) {
        let counts = self.subscriptions.as_ref().map_or([0; 3], |subscriptions| subscriptions.counts());
        for (shown, count) in self.facts.listens.iter().zip(counts) {
            shown.store(count as u32, Relaxed);
        }
        self.facts.monitors.store(self.monitors(), Relaxed);
    }

    /// Changes the names that it gives, which are charged to the memory limit.
    pub fn rename(&mut self, change: impl FnOnce(&mut Names)) {
        let bytes = self.facts.rename(change) as i64;
        self.store.set_aside(bytes - std::mem::replace(&mut self.names_bytes, bytes));
    }

    /// Selects a database.
    pub fn select(&mut self, db: u8) {
        self.db = db;
        self.facts.db.store(u32::from(db), Relaxed);
    }

    /// Sets whether it speaks RESP3 or RESP2.
    pub fn speak(&mut self, resp3: bool) {
        self.resp3 = resp3;
        self.facts.resp3.store(resp3, Relaxed);
    }
}
