//! The checks that each request has to pass before it runs: known, arity, logged in, allowed now, queued; and what is done when
//! it has run: its time, its counts, its reply, messages behind it.

use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;

use super::turn::Turn;
use crate::core::calls::RowId;
use crate::core::progress::Ending;
use crate::core::work::{COMMAND_NS, REPLY_BYTE_NS, copying_ns};
use crate::redis::call::{Call, Flow};
use crate::redis::client::Client;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::{Command, Run, Weighs, flag};
use crate::redis::scripts;
use crate::redis::server::commandlog::{Measured, request_bytes};
use crate::redis::settings::DebugCommand;
use crate::redis::sizes::ITEM_HEADER_BYTES;
use crate::redis::steps::job::LEAF;
use crate::redis::table;

/// When a request that finds no memory may be read again, while some is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAgain {
    /// Never.
    Not,
    /// Only if it was not tried: others would see both tries.
    Untried,
    /// Also if it was tried, if it writes one key: then it has done nothing.
    Tried,
}

impl Turn<'_, '_, '_, '_> {
    /// Checks and runs one request. A request that may not be tried twice looks for memory before; one that writes several keys
    /// as one always does.
    pub(crate) fn dispatch(&mut self, client: &mut Client, args: Args<'_>, again: ReadAgain) -> Flow {
        self.tally.commands += 1;
        let named = args.clone().next().and_then(table::find);
        let found = named.map(|(row, _)| row);
        let writes_one = |row: &Command| matches!(row.run, Run::Key) && row.has(flag::WRITE);
        let is_untried = again == ReadAgain::Untried;
        if again != ReadAgain::Not
            && found.is_some_and(|row| self.finds_none_ahead(client, (row, is_untried), args))
            && self.cx.asks_again(self.out)
        {
            self.tally.commands -= 1;
            return Flow::Again;
        }
        let may_try = again == ReadAgain::Tried && !client.transaction.is_open();
        let asks_again = may_try && found.is_some_and(writes_one);
        self.cx.guard.ask_again(asks_again);
        if client.subscriptions.is_some() && found.is_some_and(|row| row.has(flag::ENDS_LISTENING)) {
            self.fetch_deliveries(client);
        }
        let mark = self.out.mark();
        let (replied_bytes, replied) = (self.out.own_bytes(), self.out.len());
        self.settle_any();
        let slow = found.is_some_and(|row| !row.has(flag::FAST))
            || self.shared.commandlog.measures_all()
            || self.meter.measures();
        let started_us = slow.then(|| self.cx.host.clock_us());
        let mut call = self.call(client);
        let done = call.run(args, named);
        let finds_none = asks_again && done.as_ref().is_err_and(Fail::is_no_memory);
        if finds_none && call.cx.asks_again(call.out) {
            self.tally.commands -= 1;
            return Flow::Again;
        }
        // The answer to a change of subscriptions is a push, which is sent even if replies are dropped.
        let told = done.is_ok()
            && found.is_some_and(|row| row.has(flag::SUBSCRIBES))
            && call.client.transaction.queued().is_none();
        let (row, admitted) = (call.row, call.admitted);
        if let Err(fail) = &done {
            let refused = (!admitted).then(|| call.refuse(found, fail.clone()));
            call.fail(refused.as_ref().unwrap_or(fail));
        }
        let flow = call.flow;
        let slept_us = flow.sleep_ms() * 1000;
        let took_us =
            started_us.map(|started_us| call.cx.host.clock_us().saturating_sub(started_us) + slept_us);
        // A command that goes on in later turns is timed by all of them.
        let mut goes_on = false;
        if let (Some((id, row)), true) = (row.and_then(|id| Some((id, table::row(id)?))), admitted) {
            let silent = call.client.replies.is_silent();
            let reply_bytes = if silent { 0 } else { call.out.len().saturating_sub(replied) };
            goes_on = flow == Flow::Job && call.begin_note(id, args, took_us.unwrap_or(0), reply_bytes);
            let (took_us, reply_bytes) = if goes_on { (None, 0) } else { (took_us, reply_bytes) };
            call.note(row, args, Measured { took_us, request_bytes: request_bytes(args), reply_bytes });
        }
        // The next command is measured from here.
        let _ = self.meter.lap(self.cx.host);
        self.row = row.unwrap_or(RowId::MAX);
        if let Some(row) = row {
            self.count_single(row, admitted, done.as_ref().err(), took_us.filter(|_| !goes_on));
        }
        client.show_transaction();
        let replied_bytes = self.out.own_bytes().saturating_sub(replied_bytes);
        // If the steps of a command spend the work of its words, it is not spent here, too: 40 MiB would be a turn of 20 ms.
        let is_later = self.job.as_ref().is_some_and(|under_way| under_way.job.spends_on_words());
        let words_ns = if is_later { 0 } else { copying_ns(args.encoded().len() as u64) };
        self.cx.spend(self.out, COMMAND_NS + words_ns + REPLY_BYTE_NS * replied_bytes);
        // EXEC itself keeps or drops the reply of each of its commands.
        let execs = done.is_ok() && found.is_some_and(|row| row.has(flag::RUNS_QUEUE));
        let mut flow = flow;
        if client.replies.is_silent() && !told && !execs {
            self.out.rewind(mark);
            if let Some(under_way) = &mut self.job {
                under_way.silent = true;
                // Nothing but its reply would come of the job.
                if under_way.job.only_reads() {
                    self.job = None;
                    flow = Flow::Next;
                }
            }
        }
        // A waiting EXEC has not ended.
        if self.job.is_none() || !execs {
            client.replies.end_command();
        }
        self.tell_behind(client, found);
        flow
    }

    /// Whether there is no memory for the items that a request writes, each as long as the longest, and some is on its way. A
    /// request that writes several keys as one, as EXEC may, cannot be tried again when it has begun. A request that is refused
    /// anyway, since it has too few words or its client must log in first, takes no memory of others and does not wait.
    /// `is_untried`: a request that writes one key cannot be tried again either.
    pub(crate) fn finds_none_ahead(
        &mut self,
        client: &Client,
        (row, is_untried): (&Command, bool),
        args: Args<'_>,
    ) -> bool {
        if !row.takes(args.len()) || !client.standing.is_admitted() && self.cx.shared.access.asks() {
            return false;
        }
        let wanted = if row.has(flag::RUNS_QUEUE) {
            client.transaction.wanted()
        } else if !row.has(flag::DENYOOM) || client.transaction.is_open() {
            None
        } else {
            match row.run {
                Run::Args => wanted_by(row, args),
                Run::Key => is_untried.then(|| wanted_by_one(row, args)),
                Run::Container(_) => None,
            }
        };
        wanted.is_some_and(|(bytes, count)| !self.cx.guard.finds_memory(bytes, count))
    }

    /// Writes what comes behind a command's reply: messages that were kept, and what the client published to itself.
    pub(crate) fn tell_behind(&mut self, client: &mut Client, row: Option<&Command>) {
        if self.job.is_some() {
            // The job may have more to reply.
            return;
        }
        if let Some(late) = client.late.take() {
            self.out.put(late.contiguous().expect("messages have no values spliced in"));
        }
        if client.subscriptions.is_some()
            && (row.is_some_and(|row| row.has(flag::PUBLISHES)) || self.cx.shared.events.any())
        {
            self.fetch_deliveries(client);
        }
    }

    /// Writes the messages that wait for this client: what it publishes to itself comes behind its reply, and it still gets what
    /// was published before it unsubscribes.
    #[cold]
    fn fetch_deliveries(&mut self, client: &Client) {
        let Some(subscriptions) = &client.subscriptions else { return };
        self.cx.shared.tell_events(&mut self.cx.guard, self.cx.host);
        for delivery in self.cx.host.fetch(client.facts.place, client.facts.id) {
            subscriptions.deliver(client.resp3, &delivery.message, self.out);
        }
    }
}

/// What a command of several keys writes, about: bytes of the longest item, and as how many of them all items count; `None` if it
/// only looks.
fn wanted_by(row: &Command, args: Args<'_>) -> Option<(usize, usize)> {
    let mut rest = args;
    rest.next();
    let counted = matches!(row.weighs, Weighs::CountedPairs);
    let pairs = counted || matches!(row.weighs, Weighs::Pairs);
    // SORT and GEORADIUS name another key if they store something.
    if !pairs && row.key_count(rest) < 2 {
        return None;
    }
    let key_bytes = rest.at(usize::from(counted)).map_or(0, <[u8]>::len);
    let bytes = ITEM_HEADER_BYTES + key_bytes + args.longest() as usize;
    let count = if pairs { (rest.encoded().len() / bytes).min(rest.len() / 2) } else { 1 };
    Some((bytes, count))
}

/// What a command of one key writes: an item with its longest word, or a leaf.
fn wanted_by_one(row: &Command, args: Args<'_>) -> (usize, usize) {
    let key_bytes = args.at(1).map_or(0, <[u8]>::len);
    let bytes = ITEM_HEADER_BYTES + key_bytes + args.longest() as usize;
    (if row.elements { bytes.min(LEAF.0) } else { bytes }, 1)
}

impl Call<'_, '_, '_> {
    /// Whether this client may send DEBUG.
    fn may_debug(&self) -> bool {
        match self.shared.settings.debug {
            DebugCommand::No => false,
            DebugCommand::Local => self.cx.peer.is_local(),
            DebugCommand::Yes => true,
        }
    }

    /// Checks that the server's options allow this command.
    ///
    /// # Errors
    /// They do not.
    pub fn is_allowed(&self, row: &Command) -> Done {
        if row.has(flag::SHOWS_KEYS) && !self.cx.shared.settings.dump {
            return Err(Fail::with(format!(
                "ERR '{}' is not allowed: keys may not be listed (-X)",
                row.name
            )));
        }
        if row.has(flag::FLUSHES) && !self.cx.shared.settings.flush {
            return Err(Fail::with(format!(
                "ERR '{}' is not allowed: keys may not be flushed (-F)",
                row.name
            )));
        }
        Ok(())
    }

    /// Checks that the client's user may run this command. Called for clients that must log in, or whose user may not do
    /// everything.
    #[cold]
    fn admit_user(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        // The password may have been removed since.
        self.client.standing.admit_unasked(&self.cx.shared.access);
        if !self.client.standing.is_admitted() && !row.has(flag::NO_AUTH) {
            return Err(Fail::of("NOAUTH Authentication required."));
        }
        let whence = self.whence();
        self.permit(row, self.row.unwrap_or(RowId::MAX), args, whence)
    }

    /// Runs the command of this name, if all checks pass.
    fn run(&mut self, args: Args<'_>, named: Option<(&'static Command, RowId)>) -> Done {
        let mut rest = args;
        let name = rest.next().unwrap_or_default();
        self.client.facts.row.store(RowId::MAX, Relaxed);
        let Some((row, id)) = named else {
            if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
                // A browser that was made to send requests to this port.
                self.flow = Flow::Close(Ending::Error);
                return Ok(());
            }
            return Err(Fail::unknown_command(name, rest));
        };
        self.row = Some(id);
        if row.has(flag::GUARDED) && row.takes(args.len()) && !self.may_debug() {
            return Err(Fail::with(format!(
                "ERR {} command not allowed. Start the server with --enable-debug-command yes, or local for clients of this machine",
                row.name.to_ascii_uppercase()
            )));
        }
        let mut row = row;
        if let Run::Container(rows) = row.run
            && let Some(name) = rest.next()
        {
            let Some(at) = row.subcommand(name) else {
                self.row = None;
                return Err(Fail::unknown_subcommand(row.name, name));
            };
            row = &rows[at];
            self.row = Some(table::sub(id, at));
        }
        self.client.facts.row.store(self.row.unwrap_or(RowId::MAX), Relaxed);
        if !row.takes(args.len()) {
            return Err(Fail::arity(row.name));
        }
        if !self.client.standing.is_free() {
            self.admit_user(row, rest)?;
        }
        self.is_allowed(row)?;
        if self.client.only_listens() && !row.has(flag::WHILE_LISTENING) {
            return Err(Fail::with(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                row.name
            )));
        }
        if self.client.monitors() && row.has(flag::WRITE | flag::READONLY | flag::PUBLISHES) {
            return Err(Fail::of("ERR Replica can't interact with the keyspace"));
        }
        if self.shared.starved_bytes.load(Relaxed) > 0 && scripts::needs_memory(self, row, rest) {
            return Err(Fail::OUT_OF_MEMORY);
        }
        if self.queue(row, rest, args)? {
            return Ok(());
        }
        if row.has(flag::RUNS_QUEUE) {
            self.admit_exec()?;
        }
        self.admitted = true;
        self.execute(row, rest, args)
    }
}
