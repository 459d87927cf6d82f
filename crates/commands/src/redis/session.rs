//! One RESP connection's conversation, without I/O: bytes in, replies out.
//!
//! ```text
//! Ready ──► run      GET and SET as they mostly come, in slots of their own        (runs.rs)
//!   │ ────► batch    commands of one key: decode, hash and prefetch all, then execute
//!   │ ────► single   everything else, one at a time
//!   ├─────► Gather   a request too long to wait for in the receive buffer         (gather.rs)
//!   ├─────► Upload   a large value, into its item                               (upload.rs)
//!   ├─────► Discard  the rest of a request that there is no memory for
//!   └─────► Closed
//! ```
//!
//! What each request has to pass before it runs (known, arity, who is it, may it reply) is in
//! [`Turn::dispatch`]; a client for whom all of it holds by itself is read ahead.

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, Decoded, Fault, Limits, Partial, decode, split};
use larder_store::{Hint, Key, Millis};

use super::call::{Call, Flow, KEY_BYTES_MAX, OfKey};
use super::client::Client;
use super::fail::{Done, Fail};
use super::gather::{Discard, Gathering};
use super::introspect;
use super::latency::{COMMAND, FAST_COMMAND};
use super::limits::{Class, OutputLimit};
use super::reply::put_fail;
use super::table::{self, Command, Run, flag};
use super::tally::Meter;
use super::topics::Letter;
use super::upload::Incoming;
use crate::batch::{SLOTS, prefetch_items};
use crate::context::Context;
use crate::counters::Counter;
use crate::output::Output;
use crate::session::{Next, Progress};
use crate::tally::Tally;

use std::sync::atomic::Ordering::Relaxed;

/// A request that is not whole is waited for in the receive buffer up to so many bytes.
pub(super) const WAIT_BYTES_MAX: usize = 32 << 10;

/// A paused client looks this often whether the pause was ended early.
const PAUSE_LOOK_MS: Millis = 100;

/// The command may write, or be told to others: it waits while writes are paused.
pub(super) fn changes(row: &Command) -> bool {
    row.has(flag::WRITE) || matches!(row.name, "publish" | "spublish")
}

/// One connection's conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(super) client: Client,
    pub(super) state: State,
}

/// What the next bytes are.
#[derive(Debug)]
pub(super) enum State {
    /// A request.
    Ready,
    /// More of a long request.
    Gather(Gathering),
    /// More of a large value.
    Upload(Box<Incoming>),
    /// More of a long request that nobody wants.
    Discard(Discard),
    /// The reply to DEBUG SLEEP, when this time has come.
    Asleep { until: Millis },
    /// Nothing more.
    Closed,
}

/// One call of [`Conversation::receive`].
pub(super) struct Turn<'x, 'a, 'c, 'w> {
    pub cx: &'x mut Context<'c, 'w>,
    pub out: &'x mut Output,
    pub input: &'a [u8],
    /// Bytes done with.
    pub at: usize,
    /// Requests left in this turn.
    pub left: u32,
    pub tally: Tally,
    pub meter: Meter,
    pub scratch: Vec<u8>,
    pub limits: Limits,
    /// So far the input was a run of plain gets and sets.
    pub runs: bool,
    /// The row of the last command.
    pub row: table::RowId,
}

/// One command of one key.
struct Slot<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    /// Where in the input it begins.
    at: usize,
    row: table::RowId,
    run: OfKey,
    args: Args<'a>,
}

/// Why no more was read ahead.
enum Stop<'a> {
    Full,
    NeedMore(Partial),
    Single(Args<'a>),
    Inline(&'a [u8]),
    Fault(Fault),
}

impl Conversation {
    /// A conversation that has not begun.
    pub fn new(cx: &Context<'_, '_>) -> Conversation {
        Conversation { client: Client::new(cx), state: State::Ready }
    }

    /// The client's number.
    pub fn client_id(&self) -> u64 {
        self.client.facts.id
    }

    /// Writes a message that was sent to this client; nothing if it listens no more.
    pub fn deliver(&self, letter: &Letter, out: &mut Output) {
        if letter.target.client == self.client_id()
            && let Some(subscriptions) = &self.client.subscriptions
        {
            subscriptions.deliver(self.client.resp3, &letter.message, out);
        }
    }

    /// What may wait for this client.
    pub fn output_limit(&self, cx: &crate::Shared) -> OutputLimit {
        let listens = self.client.subscriptions.is_some();
        cx.redis.limits.output(if listens { Class::Pubsub } else { Class::Normal })
    }

    /// Shows others how many bytes hold replies that the client has not taken.
    pub fn show_output(&self, bytes: u64) {
        self.client.facts.output_bytes.store(bytes, Relaxed);
    }

    /// Between two requests.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Memory is held for a request that is on its way in.
    #[inline]
    pub fn holds_room(&self) -> bool {
        matches!(self.state, State::Gather(_) | State::Upload(_))
    }

    /// Answers the requests in `input`, as far as they are complete.
    pub fn receive(&mut self, cx: &mut Context<'_, '_>, input: &[u8], out: &mut Output) -> Progress {
        cx.shared.flush_if_due(&mut cx.guard);
        if self.client.facts.killed.load(Relaxed) {
            self.state = State::Closed;
        }
        let left = cx.shared.settings.requests_per_event.unwrap_or(u32::MAX);
        let limits = Limits {
            bulk_bytes_max: cx.shared.redis.limits.bulk_bytes_max(&cx.guard),
            authenticated: self.client.authenticated,
        };
        self.client.facts.active.store(cx.now(), Relaxed);
        if self.client.no_touch {
            cx.guard.leave_traces(false);
        }
        let row = self.client.facts.row.load(Relaxed);
        let (tally, host) = (Tally::default(), cx.host);
        let meter = Meter::begin(&cx.counters.rows, cx.shared.redis.latency.watches(), || host.clock_us());
        let mut turn =
            Turn { cx, out, input, at: 0, left, tally, meter, scratch: Vec::new(), limits, runs: true, row };
        let next = loop {
            if let Some(next) = self.step(&mut turn) {
                break next;
            }
        };
        turn.settle_any();
        turn.tally.settle_redis(turn.cx.counters);
        turn.cx.shared.redis.tell_events(&mut turn.cx.guard, turn.cx.host);
        self.client.facts.row.store(turn.row, Relaxed);
        if self.client.no_touch {
            turn.cx.guard.leave_traces(true);
        }
        self.client.facts.query_bytes.store((turn.input.len() - turn.at) as u64, Relaxed);
        Progress { consumed: turn.at, next }
    }

    #[inline]
    fn step(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        match &self.state {
            State::Ready => {
                if turn.out.is_full() {
                    return Some(Next::Flush);
                }
                if !self.is_read_ahead(turn) {
                    let paused_ms = turn.cx.shared.redis.pause.left_ms(turn.cx.now());
                    return self.one(turn, paused_ms);
                }
                while turn.runs {
                    turn.settle_any();
                    let before = turn.tally;
                    let next = self.run(turn);
                    turn.count_run(&before);
                    if next.is_some() {
                        return next;
                    }
                }
                self.batch(turn)
            }
            State::Gather(_) => self.gather(turn),
            State::Upload(_) => self.upload(turn),
            State::Discard(_) => self.discard(turn),
            State::Asleep { until } => {
                let left = until.saturating_sub(turn.cx.now());
                if left > 0 {
                    return Some(Next::Sleep(left));
                }
                turn.out.put(b"+OK\r\n");
                self.state = State::Ready;
                None
            }
            State::Closed => Some(Next::Close),
        }
    }

    /// Nothing has to be looked at before each of its requests.
    #[inline]
    pub(super) fn is_read_ahead(&self, turn: &Turn<'_, '_, '_, '_>) -> bool {
        let common = &turn.cx.shared.redis;
        common.pause.left_ms(turn.cx.now()) == 0
            && self.client.is_plain()
            && !common.topics.monitored()
            && !common.events.any()
            && !common.slowlog.measures_all()
    }

    pub(super) fn close(&mut self) -> Option<Next> {
        self.state = State::Closed;
        Some(Next::Close)
    }

    /// Reads a batch ahead, executes it, and does what ended it.
    fn batch(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let mut batch = ArrayVec::<Slot<'_, '_>, SLOTS>::new();
        let stop = turn.fill(self.client.db, &mut batch);
        prefetch_items(&turn.cx.guard, &mut batch, |slot| &mut slot.hint);
        for slot in &batch {
            if turn.out.is_full() {
                turn.at = slot.at;
                return Some(Next::Flush);
            }
            if turn.meter.call(slot.row) {
                turn.settle(Some(slot.row));
            }
            let mut call = turn.call(&mut self.client);
            if let Err(fail) = (slot.run)(&mut call, &slot.key, &slot.hint, slot.args) {
                call.fail(&fail);
                call.cx.counters.rows.failed(slot.row);
            }
        }
        self.stopped(turn, stop)
    }

    /// One request, for a client that is not read ahead.
    fn one(&mut self, turn: &mut Turn<'_, '_, '_, '_>, paused_ms: Millis) -> Option<Next> {
        turn.limits.authenticated = self.client.authenticated;
        self.client.facts.waits.store(false, Relaxed);
        let start = turn.at;
        let stop = turn.next_single();
        if paused_ms > 0 {
            let all = !turn.cx.shared.redis.pause.writes_only();
            let waits = match &stop {
                Stop::Single(args) => all || self.changes(*args),
                Stop::Inline(line) => all || split(line).is_some_and(|words| self.changes(words.args())),
                Stop::Full | Stop::NeedMore(_) | Stop::Fault(_) => false,
            };
            if waits {
                self.client.facts.waits.store(true, Relaxed);
                turn.at = start;
                return Some(Next::Sleep(paused_ms.min(PAUSE_LOOK_MS)));
            }
        }
        self.stopped(turn, stop)
    }

    /// The command, or one of those that EXEC runs, changes something.
    fn changes(&self, args: Args<'_>) -> bool {
        let found = args.clone().next().and_then(table::find).map(|(row, _)| row);
        found.is_some_and(|row| changes(row) || row.name == "exec" && self.client.transaction.changes())
    }

    /// Does what reading ahead stopped at.
    fn stopped(&mut self, turn: &mut Turn<'_, '_, '_, '_>, stop: Stop<'_>) -> Option<Next> {
        match stop {
            Stop::Full if turn.left == 0 => {
                turn.cx.counters.add(Counter::ConnYields, 1);
                Some(Next::Yield)
            }
            Stop::Full => None,
            Stop::NeedMore(partial) => self.wait(turn, partial),
            Stop::Single(args) => self.single(turn, args),
            Stop::Inline(line) => match split(line) {
                Some(words) if words.args().is_empty() => None,
                Some(words) => self.single(turn, words.args()),
                None => self.fault(turn, Fault::UnbalancedQuotes),
            },
            Stop::Fault(fault) => self.fault(turn, fault),
        }
    }

    /// A request of its own.
    pub(super) fn single(&mut self, turn: &mut Turn<'_, '_, '_, '_>, args: Args<'_>) -> Option<Next> {
        match turn.dispatch(&mut self.client, args) {
            Flow::Next => None,
            Flow::Sleep(ms) => {
                self.state = State::Asleep { until: turn.cx.now() + ms };
                None
            }
            Flow::Close => self.close(),
        }
    }

    pub(super) fn fault(&mut self, turn: &mut Turn<'_, '_, '_, '_>, fault: Fault) -> Option<Next> {
        let out = &mut *turn.out;
        fault.write(&mut |bytes| out.put(bytes));
        turn.at = turn.input.len();
        self.close()
    }

    /// Not all of a request is there: it is waited for if it is short.
    fn wait(&mut self, turn: &mut Turn<'_, '_, '_, '_>, partial: Partial) -> Option<Next> {
        let there = turn.input.len() - turn.at;
        let known = partial.known_end().unwrap_or(0).max(there as u64);
        if known <= WAIT_BYTES_MAX as u64 {
            return Some(Next::Receive);
        }
        if known > turn.cx.shared.redis.limits.query_bytes_max() {
            // As Redis does: without a word.
            return self.close();
        }
        if self.begin_upload(turn, partial) {
            return None;
        }
        self.begin_gather(turn, partial)
    }
}

impl<'a, 'c, 'w> Turn<'_, 'a, 'c, 'w> {
    /// What a command works with.
    #[inline]
    pub(super) fn call<'y>(&'y mut self, client: &'y mut Client) -> Call<'y, 'c, 'w> {
        Call {
            cx: self.cx,
            out: self.out,
            client,
            tally: &mut self.tally,
            scratch: &mut self.scratch,
            flow: Flow::Next,
            row: None,
            admitted: false,
        }
    }

    /// Counts the commands that came one after another, and goes on with those of `next`.
    #[inline(never)]
    fn settle(&mut self, next: Option<table::RowId>) {
        let (cx, host) = (&*self.cx, self.cx.host);
        if let Some((row, us)) = self.meter.settle(&cx.counters.rows, next, || host.clock_us()) {
            cx.shared.redis.latency.note(event_of(row), cx.now() / 1000, us);
        }
    }

    /// [`Turn::settle`], if there is anything.
    #[inline]
    pub(super) fn settle_any(&mut self) {
        if self.meter.has_calls() {
            self.settle(None);
        }
    }

    /// Counts the commands of a run, by what was counted before it.
    #[inline]
    fn count_run(&mut self, before: &Tally) {
        const GET: table::RowId = table::id_of("get");
        const SET: table::RowId = table::id_of("set");
        const INCR: table::RowId = table::id_of("incr");
        const DECR: table::RowId = table::id_of("decr");
        let gets = self.tally.gets - before.gets;
        let (incrs, decrs) = (self.tally.incrs - before.incrs, self.tally.decrs - before.decrs);
        let all = self.tally.commands - before.commands;
        if all == 0 {
            return;
        }
        let took_us = self.meter.lap(self.cx.host);
        let sets = all - gets - incrs - decrs;
        for (row, calls) in [(GET, gets), (SET, sets), (INCR, incrs), (DECR, decrs)] {
            if calls > 0 {
                self.row = row;
                self.cx.counters.rows.called(row, calls);
                if let Some(us) = took_us {
                    self.cx.counters.rows.took(row, calls, us * u64::from(calls) / u64::from(all));
                }
            }
        }
        if let Some(us) = took_us {
            self.cx.shared.redis.latency.note(FAST_COMMAND, self.cx.now() / 1000, us);
        }
    }

    /// Counts one command.
    pub(super) fn count_single(
        &mut self,
        row: table::RowId,
        admitted: bool,
        failed: bool,
        took_us: Option<u64>,
    ) {
        let rows = &self.cx.counters.rows;
        if !admitted {
            // Queued commands are counted when they run.
            if failed {
                rows.refused(row);
            }
            return;
        }
        rows.called(row, 1);
        if failed {
            rows.failed(row);
        }
        if let Some(us) = took_us {
            rows.took(row, 1, us);
            self.cx.shared.redis.latency.note(event_of(row), self.cx.now() / 1000, us);
        }
    }

    /// Reads commands of one key ahead.
    fn fill(&mut self, db: u8, batch: &mut ArrayVec<Slot<'a, 'w>, SLOTS>) -> Stop<'a> {
        loop {
            if self.at == self.input.len() {
                return Stop::NeedMore(Partial::default());
            }
            if batch.is_full() || self.left == 0 {
                return Stop::Full;
            }
            match decode(&self.input[self.at..], &self.limits) {
                Decoded::Request(args, bytes) => {
                    let mut rest = args;
                    let found = rest.next().and_then(table::find);
                    if let Some((row, id)) = found
                        && let Run::Key(run) = row.run
                        && row.takes(args.len())
                        && let Some(key) = rest.next()
                        && key.len() <= KEY_BYTES_MAX
                    {
                        let key = self.cx.guard.key_in(db, key);
                        let hint = self.cx.guard.prefetch_bucket(&key);
                        batch.push(Slot { key, hint, at: self.at, row: id, run: run.0, args: rest });
                        self.row = id;
                        self.at += bytes;
                        self.left -= 1;
                        self.tally.commands += 1;
                        continue;
                    }
                    self.at += bytes;
                    self.left -= 1;
                    return Stop::Single(args);
                }
                Decoded::Inline(line, bytes) => {
                    self.at += bytes;
                    self.left -= 1;
                    return Stop::Inline(line);
                }
                Decoded::Nothing(bytes) => self.at += bytes,
                Decoded::Incomplete(partial) => return Stop::NeedMore(partial),
                Decoded::Fault(fault) => return Stop::Fault(fault),
            }
        }
    }

    /// Reads the next request.
    fn next_single(&mut self) -> Stop<'a> {
        loop {
            if self.at == self.input.len() {
                return Stop::NeedMore(Partial::default());
            }
            if self.left == 0 {
                return Stop::Full;
            }
            let (stop, bytes) = match decode(&self.input[self.at..], &self.limits) {
                Decoded::Request(args, bytes) => (Stop::Single(args), bytes),
                Decoded::Inline(line, bytes) => (Stop::Inline(line), bytes),
                Decoded::Nothing(bytes) => {
                    self.at += bytes;
                    continue;
                }
                Decoded::Incomplete(partial) => return Stop::NeedMore(partial),
                Decoded::Fault(fault) => return Stop::Fault(fault),
            };
            self.at += bytes;
            self.left -= 1;
            return stop;
        }
    }

    /// Runs one request with all that it has to pass first.
    pub(super) fn dispatch(&mut self, client: &mut Client, args: Args<'_>) -> Flow {
        self.tally.commands += 1;
        let found = args.clone().next().and_then(table::find).map(|(row, _)| row);
        if client.subscriptions.is_some() && found.is_some_and(ends_listening) {
            self.fetch_letters(client);
        }
        let mark = self.out.mark();
        self.settle_any();
        let slow = found.is_some_and(|row| !row.has(flag::FAST))
            || self.cx.shared.redis.slowlog.measures_all()
            || self.meter.measures();
        let started_us = slow.then(|| self.cx.host.clock_us());
        let mut call = self.call(client);
        let done = call.run(args);
        // What it is told of its subscriptions is a push, which comes whatever the replies.
        let told =
            done.is_ok() && found.is_some_and(subscribes) && call.client.transaction.queued().is_none();
        let (row, admitted) = (call.row, call.admitted);
        if let Err(fail) = &done {
            let refused = (!admitted).then(|| call.refuse(args.at(0).unwrap_or_default(), fail.clone()));
            call.fail(refused.as_ref().unwrap_or(fail));
        }
        let flow = call.flow;
        let took_us = started_us.map(|started_us| call.cx.host.clock_us().saturating_sub(started_us));
        if let Some(took_us) = took_us {
            call.note_time(args, took_us);
        }
        // What comes next is measured from here.
        let _ = self.meter.lap(self.cx.host);
        if let Some(row) = row {
            self.row = row;
            self.count_single(row, admitted, done.is_err(), took_us);
        }
        client.show_transaction();
        // EXEC keeps or drops the reply of each of its commands itself.
        let execs = done.is_ok() && found.is_some_and(|row| row.name == "exec");
        if client.replies.is_silent() && !told && !execs {
            self.out.rewind(mark);
        }
        client.replies.end_command();
        if client.subscriptions.is_some()
            && (found.is_some_and(publishes) || self.cx.shared.redis.events.any())
        {
            self.fetch_letters(client);
        }
        let late = std::mem::take(&mut client.late);
        self.out.put(&late);
        flow
    }

    /// Writes the messages that wait for this client: what it publishes to itself comes behind the reply
    /// that says so, and what came before it listens no more it is still told.
    #[cold]
    fn fetch_letters(&mut self, client: &Client) {
        let Some(subscriptions) = &client.subscriptions else { return };
        self.cx.shared.redis.tell_events(&mut self.cx.guard, self.cx.host);
        for letter in self.cx.host.fetch(client.facts.place, client.facts.id) {
            subscriptions.deliver(client.resp3, &letter.message, self.out);
        }
    }
}

/// Behind it, messages may be for nobody any more.
pub(super) fn ends_listening(row: &Command) -> bool {
    matches!(row.name, "unsubscribe" | "punsubscribe" | "sunsubscribe" | "exec" | "reset" | "quit")
}

/// It tells of subscriptions.
pub(super) fn subscribes(row: &Command) -> bool {
    row.name.ends_with("subscribe")
}

/// It may have sent something to the client itself.
fn publishes(row: &Command) -> bool {
    matches!(row.name, "publish" | "spublish" | "exec")
}

/// The event that LATENCY notes for a command.
fn event_of(row: table::RowId) -> &'static str {
    let fast = table::row(row).is_some_and(|row| row.has(flag::FAST));
    if fast { FAST_COMMAND } else { COMMAND }
}

/// Commands of clients that speak RESP2 and listen to channels.
fn may_be_said_while_listening(row: &Command) -> bool {
    matches!(
        row.name,
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

impl Call<'_, '_, '_> {
    /// Says why a command was not carried out.
    #[cold]
    pub fn fail(&mut self, fail: &Fail) {
        self.cx.counters.add(Counter::RedisErrors, 1);
        self.cx.shared.redis.errors.count(fail.text());
        put_fail(self.out, fail);
    }

    /// Finds the command and runs it, if all holds that has to.
    pub fn run(&mut self, args: Args<'_>) -> Done {
        let mut rest = args;
        let name = rest.next().unwrap_or_default();
        let Some((row, id)) = table::find(name) else {
            if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
                // A browser that was talked into speaking to us.
                self.flow = Flow::Close;
                return Ok(());
            }
            return Err(Fail::unknown_command(name, rest));
        };
        self.row = Some(id);
        let mut row = row;
        if let Run::Container(rows) = row.run
            && let Some(name) = rest.next()
        {
            let at = row.subcommand(name).ok_or_else(|| Fail::unknown_subcommand(row.name, name))?;
            row = &rows[at];
            self.row = Some(table::sub(id, at));
        }
        if !row.takes(args.len()) {
            return Err(Fail::arity(row.name));
        }
        if !self.client.authenticated && !row.has(flag::NO_AUTH) {
            return Err(Fail::of("NOAUTH Authentication required."));
        }
        if self.client.only_listens() && !may_be_said_while_listening(row) {
            return Err(Fail::with(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                row.name
            )));
        }
        if self.queue(row, rest, args)? {
            return Ok(());
        }
        if row.name == "exec" {
            self.admit_exec()?;
        }
        self.admitted = true;
        self.execute(row, rest, args)
    }

    /// Runs a command that may run; `args` begin behind its name, `words` with it.
    pub fn execute(&mut self, row: &'static Command, args: Args<'_>, words: Args<'_>) -> Done {
        let done = self.execute_unseen(row, args);
        // Afterwards, as Redis shows it: in the database that SELECT has selected.
        if self.cx.shared.redis.topics.monitored() {
            self.show(row, words);
        }
        done
    }

    fn execute_unseen(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if args.longest() > KEY_BYTES_MAX as u64 {
            let mut longest = 0;
            row.each_key(args, &mut |key| longest = longest.max(key.len()));
            if longest > KEY_BYTES_MAX {
                return Err(Fail::KEY_TOO_LONG);
            }
        }
        if self.cx.shared.redis.events.any() {
            return self.execute_with_events(row, args);
        }
        self.execute_row(row, args)
    }

    /// Runs a command's function.
    pub fn execute_row(&mut self, row: &'static Command, mut args: Args<'_>) -> Done {
        match row.run {
            Run::Key(run) => {
                let key = self.key(args.next().unwrap_or_default());
                let hint = self.cx.guard.prefetch_bucket(&key);
                (run.0)(self, &key, &hint, args)
            }
            Run::Args(run) => (run.0)(self, args),
            // Only COMMAND may stand alone.
            Run::Container(_) => introspect::all(self),
        }
    }
}
