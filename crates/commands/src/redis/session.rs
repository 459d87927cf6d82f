//! One RESP connection's conversation, without I/O: bytes in, replies out.
//!
//! ```text
//! Ready ──► run      GET and SET as they mostly come, in groups of their own        (runs.rs)
//!   │ ────► batch    commands of one key: decode, hash and prefetch all, then execute
//!   │ ────► single   everything else, one at a time
//!   ├─────► Gather   a request too long to wait for in the receive buffer         (gather.rs)
//!   ├─────► Upload   a large value, into its item                               (upload.rs)
//!   ├─────► Job      the rest of a command that is done in steps                   (job.rs)
//!   ├─────► Discard  the rest of a request that there is no memory for
//!   └─────► Closed
//! ```
//!
//! `dispatch.rs` checks each request before it runs (known, arity, logged in, may it reply). Requests are read ahead for clients
//! that pass all of these anyway; for a user with rules, those requests that its rules allow by a look at their key (`gate.rs`).

mod dispatch;
mod events;
pub(crate) mod execute;
mod gate;
mod gather;
mod job;
mod runs;
pub(crate) mod turn;
mod upload;

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, Fault, Limits, Partial, split};
use larder_store::{Millis, Spaces};

use super::call::{Flow, late};
use super::connection;
use super::fail::Fail;
use super::permissions;
use super::reply::put_fail;
use super::row::{Command, flag};
use super::shared::Shared;
use super::table;
use crate::core::access::Users;
use crate::core::batch::{BATCH_KEYS, prefetch_items};
use crate::core::calls::Meter;
use crate::core::context::Context;
use crate::core::conversation::Converse;
use crate::core::counters::Counter;
use crate::core::delivery::Delivery;
use crate::core::hold::LOOK_MS;
use crate::core::host::TLS_HANDSHAKE;
use crate::core::input::Asked;
use crate::core::output::{Output, OutputLimit};
use crate::core::pause::PAUSE_LOOK_MS;
use crate::core::progress::{Ending, Next, Progress};
use crate::core::tally::Tally;
use crate::core::unauthenticated::UnauthenticatedClient;
use crate::redis::client::Client;
use crate::redis::facts::ClientFacts;
use crate::redis::limits::Class;
use crate::redis::steps::job::UnderWay;
use crate::redis::strings::pairs::holds_keys;
use dispatch::ReadAgain;
use gate::{Free, Gate, Ruled};
use gather::{Discard, Gathering};
use turn::{Staged, Stop, Turn};
use upload::Incoming;

use std::sync::atomic::Ordering::Relaxed;

/// An incomplete request stays in the receive buffer up to so many bytes.
pub(crate) const WAIT_BYTES_MAX: usize = 32 << 10;

/// Keys of a request for which the look whether others hold them costs no work.
const LOOKED_KEYS_FREE: u64 = 4 << 10;
/// Nanoseconds of that look for each key beyond them.
const LOOKED_KEY_NS: u64 = 30;

/// The error for clients of other machines while there is no password.
static PROTECTED: Fail = Fail::of(
    "DENIED Larder is in protected mode: there is no password, so clients of other machines are refused. Start it with --requirepass or --auth-file, or with --protected-mode no if every client that reaches it may use it.",
);

/// The error for a connection beyond `maxclients`.
pub(crate) const TOO_MANY_CONNECTIONS: &[u8] = b"-ERR max number of clients reached\r\n";

/// The error for a connection beyond the limit of connections that have not authenticated: as beyond `maxclients`.
static TOO_MANY: Fail = Fail::of("ERR max number of clients reached");

/// One connection's conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) client: Client,
    pub(crate) state: State,
    /// How often its next request, or its present step, was tried again for want of memory.
    pub(crate) asked: Asked,
}

/// What the next bytes are.
#[derive(Debug)]
pub(crate) enum State {
    /// A request.
    Ready,
    /// More of a long request.
    Gather(Gathering),
    /// More of a large value.
    Upload(Incoming),
    /// More of a long request that is skipped.
    Discard(Discard),
    /// The rest of a command that is done in steps.
    Job(UnderWay),
    /// Until this time, nothing; then the reply to DEBUG SLEEP if `says`, and a request.
    Asleep { until: Millis, says: bool },
    /// Nothing: the client is on another machine and there is no password, or there are too many unauthenticated clients.
    TurnedAway(&'static Fail),
    /// Nothing more.
    Closed(Ending),
}

/// Whether the input begins as a TLS handshake does.
fn begins_tls(input: &[u8], at: usize) -> bool {
    input.get(at) == Some(&TLS_HANDSHAKE)
}

/// Whether the line is the first of a request of HTTP: `GET / HTTP/1.1`. No command takes such words.
fn begins_http(line: &[u8]) -> bool {
    const METHODS: [&[u8]; 8] =
        [b"GET", b"HEAD", b"OPTIONS", b"PUT", b"PATCH", b"DELETE", b"TRACE", b"CONNECT"];
    let mut words = line.split(|&byte| byte == b' ');
    let is_method = words.next().is_some_and(|method| METHODS.contains(&method));
    is_method && words.nth(1).is_some_and(|version| version.starts_with(b"HTTP/1.")) && words.next().is_none()
}

impl Conversation {
    /// Makes a conversation that has not begun.
    pub fn new(shared: &Shared, cx: &Context<'_, '_>) -> Conversation {
        let client = Client::new(&shared.clients, cx);
        // Whether there is a password is read once: it may be set at this moment.
        let unasked = client.standing.is_admitted();
        let state = if unasked && shared.turns_away_unasked(cx.peer.is_local()) {
            State::TurnedAway(&PROTECTED)
        } else if client.standing.is_one_too_many() {
            State::TurnedAway(&TOO_MANY)
        } else {
            State::Ready
        };
        Conversation { client, state, asked: Asked::default() }
    }

    /// The client's number.
    fn client_id(&self) -> u64 {
        self.client.facts.id
    }
}

impl Converse for Conversation {
    type Shared = Shared;

    fn receive<'c>(
        &mut self,
        shared: &'c Shared,
        cx: &mut Context<'c, '_>,
        input: &[u8],
        out: &mut Output,
    ) -> Progress {
        if cx.shared.is_to_look(cx.now()) {
            self.look(cx);
        }
        if self.client.facts.killed.load(Relaxed) && !self.must_end() {
            self.close();
        }
        let left = cx.shared.settings.requests_per_event.unwrap_or(u32::MAX);
        let limits = self.limits(shared, cx);
        self.client.facts.active.store(cx.now(), Relaxed);
        if self.client.no_touch {
            cx.guard.leave_traces(false);
        }
        let row = self.client.facts.row.load(Relaxed);
        let before = out.len();
        let (tally, host) = (Tally::default(), cx.host);
        // Runs are looked for in any input, unless the settings say otherwise.
        let runs = cx.shared.settings.run_bytes_min.is_none_or(|min| input.len() >= min);
        let meter = Meter::begin(&cx.counters.rows, shared.latency.watches(), || host.clock_us());
        let mut turn = Turn {
            cx,
            shared,
            out,
            input,
            at: 0,
            left,
            tally,
            job: None,
            meter,
            limits,
            runs,
            stopped_at: 0,
            row,
            again_at: 0,
            reply_from: shared.commandlog.reply_from(),
        };
        let next = self.steps(&mut turn);
        let next = if turn.out.take_end() { self.end_turn(&mut turn, next) } else { next };
        turn.settle_any();
        ClientFacts::raise(&self.client.facts.commands, u64::from(turn.tally.commands));
        turn.tally.settle_redis(turn.cx.counters);
        turn.cx.shared.tell_events(&mut turn.cx.guard, turn.cx.host);
        let facts = &self.client.facts;
        facts.row.store(turn.row, Relaxed);
        ClientFacts::raise(&facts.received_bytes, turn.at as u64);
        ClientFacts::raise(&facts.replied_bytes, turn.out.len() - before);
        if self.client.no_touch {
            turn.cx.guard.leave_traces(true);
        }
        self.client.facts.query_bytes.store((turn.input.len() - turn.at) as u64, Relaxed);
        Progress { consumed: turn.at, next }
    }

    fn is_idle(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    #[inline]
    fn awaits_rest(&self) -> bool {
        matches!(self.state, State::Gather(_) | State::Upload(_) | State::Discard(_))
    }

    #[inline]
    fn input_bytes(&self) -> u64 {
        match &self.state {
            State::Ready => 0,
            State::Gather(gathering) => gathering.held_bytes().max(1),
            State::Upload(incoming) => incoming.held_bytes().max(1),
            State::Job(under_way) if under_way.job.waits() => 0,
            _ => 1,
        }
    }

    #[inline]
    fn unauthenticated_since(&self) -> Option<Millis> {
        self.client.standing.unauthenticated().map(UnauthenticatedClient::since)
    }

    /// Always false: the command that removes a user closes its clients.
    fn has_lost_user(&self, _users: &Users) -> bool {
        false
    }

    fn ending(&self) -> Option<Ending> {
        if let State::Closed(ending) = self.state { Some(ending) } else { None }
    }

    fn is_turned_away(&self) -> bool {
        matches!(self.state, State::TurnedAway(_))
    }

    fn upload_spaces(&mut self, cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        self.value_spaces(cx)
    }

    fn upload_missing(&self) -> u64 {
        self.value_missing()
    }

    fn upload_filled(&mut self, bytes: usize) {
        self.value_filled(bytes);
    }

    fn held_bytes(&self) -> u64 {
        let job = if let State::Job(under_way) = &self.state { under_way.job.held_bytes() } else { 0 };
        job + self.late_bytes()
    }

    fn late_bytes(&self) -> u64 {
        self.client.late.as_ref().map_or(0, |late| late.len())
    }

    fn client_number(&self) -> Option<u64> {
        Some(self.client_id())
    }

    fn waiter(&self) -> Option<u64> {
        Some(self.client_id())
    }

    /// A message comes behind the reply of a command in steps: part of that may have been sent.
    fn deliver(&mut self, delivery: &Delivery, out: &mut Output) {
        let behind = match &self.state {
            State::Closed(_) => return,
            State::Job(under_way) => !under_way.job.waits(),
            _ => false,
        };
        if delivery.target.client == self.client_id()
            && let Some(subscriptions) = &self.client.subscriptions
        {
            let out = if behind { late(&mut self.client.late, out) } else { out };
            let before = out.len();
            subscriptions.deliver(self.client.resp3, &delivery.message, out);
            ClientFacts::raise(&self.client.facts.replied_bytes, out.len() - before);
        }
    }

    fn output_limit(&self, shared: &Shared) -> Option<OutputLimit> {
        let listens = self.client.subscriptions.is_some();
        Some(shared.limits.output(if listens { Class::Pubsub } else { Class::Normal }))
    }

    fn show_output(&self, bytes: u64) {
        self.client.facts.output_bytes.store(bytes, Relaxed);
    }

    fn holds(&self) -> bool {
        matches!(&self.state, State::Job(under_way) if under_way.job.holds())
    }

    fn must_end(&self) -> bool {
        matches!(&self.state, State::Job(under_way) if under_way.job.must_end())
    }

    /// Logs the client in, if there is such a user. A client that protected mode refuses is still refused, as in Redis; one
    /// beyond the limit of unauthenticated clients is served from now on.
    fn log_in_by_certificate(&mut self, cx: &Context<'_, '_>, name: &str) {
        let was_too_many = match &self.state {
            State::TurnedAway(why) if std::ptr::eq(*why, &TOO_MANY) => true,
            State::TurnedAway(_) => return,
            _ => false,
        };
        if connection::log_in_by_certificate(&mut self.client, cx, name) && was_too_many {
            self.state = State::Ready;
        }
    }
}

impl Conversation {
    /// Does a flush that is due, and looks whether users were changed. The connection is closed if its user is gone, or has other
    /// rules than those by which a command in steps began. If that command must come to its end, the connection is closed behind
    /// it, and what follows is refused.
    #[cold]
    fn look(&mut self, cx: &mut Context<'_, '_>) {
        cx.shared.flush_if_due(&mut cx.guard);
        let is_there = self.client.standing.look_again(&cx.shared.access);
        let is_overtaken = match &mut self.state {
            State::Job(under_way) => under_way.is_overtaken(&self.client.standing, cx.room.work()),
            _ => false,
        };
        if !is_there || is_overtaken {
            self.client.facts.turn_out(&cx.shared.access.log);
        }
    }

    #[inline(always)]
    fn steps(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Next {
        loop {
            if let Some(next) = self.step(turn) {
                return next;
            }
        }
    }

    /// Ends a turn before its time: others are to have theirs, or a request is to be tried again for which there was no memory.
    #[cold]
    fn end_turn(&mut self, turn: &mut Turn<'_, '_, '_, '_>, next: Next) -> Next {
        if !turn.cx.room.take_again() {
            return if next == Next::Flush { Next::Yield } else { next };
        }
        (turn.at, turn.runs) = (turn.again_at, false);
        if let Some(next) = self.asked.again(turn.cx, turn.again_at) {
            return next;
        }
        turn.cx.guard.memory_did_not_come();
        let room = turn.cx.room;
        let next = room.for_the_last_time(|| self.steps(turn));
        if turn.out.take_end() && next == Next::Flush { Next::Yield } else { next }
    }

    /// The limits that a request has to keep.
    pub(crate) fn limits(&self, shared: &Shared, cx: &Context<'_, '_>) -> Limits {
        Limits {
            bulk_bytes_max: shared.limits.bulk_bytes_max(&cx.guard),
            authenticated: self.client.standing.is_admitted(),
        }
    }

    #[inline]
    fn step(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        match &self.state {
            State::Ready => {
                if turn.out.is_full() {
                    return Some(Next::Flush);
                }
                if !self.is_read_ahead(turn) {
                    return self.apart(turn);
                }
                self.ahead::<Free>(turn)
            }
            State::Gather(_) => self.gather(turn),
            State::Upload(_) => self.upload(turn),
            State::Discard(_) => self.discard(turn),
            State::Job(_) => self.job(turn),
            State::Asleep { until, says } => {
                let left = until.saturating_sub(turn.cx.now());
                if left > 0 {
                    return Some(Next::Sleep(left));
                }
                if *says {
                    turn.out.put(b"+OK\r\n");
                }
                self.state = State::Ready;
                None
            }
            State::TurnedAway(why) => {
                put_fail(turn.out, why);
                self.close()
            }
            State::Closed(_) => Some(Next::Close),
        }
    }

    /// Runs of plain requests, and a batch of what follows them.
    #[inline(always)]
    fn ahead<G: Gate>(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        while turn.runs {
            turn.settle_any();
            let before = turn.tally;
            let next = self.run::<G>(turn);
            turn.count_run(&before);
            if next.is_some() {
                return next;
            }
        }
        self.batch::<G>(turn)
    }

    /// Reads the next requests of a client whose requests are checked one by one: its user has rules, or something else has to be
    /// looked at before each.
    #[inline(never)]
    fn apart(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        if !self.is_ruled_ahead(turn) {
            return self.one(turn);
        }
        self.client.facts.waits.store(false, Relaxed);
        self.ahead::<Ruled>(turn)
    }

    /// Whether only the user's rules have to be looked at before each request, and a key alone decides what they allow. The user
    /// is the one of this receive: a command that changes the user or its rules runs by itself, and this is asked again behind
    /// it.
    fn is_ruled_ahead(&self, turn: &Turn<'_, '_, '_, '_>) -> bool {
        let standing = &self.client.standing;
        standing.is_admitted()
            && standing.user().is_some_and(|user| user.is_read_ahead())
            && self.client.is_plain_but_for_rules()
            && !turn.cx.shared.pause.looks(turn.cx.now())
            && Self::is_unseen(turn)
    }

    /// Whether nothing has to be looked at before each request.
    #[inline]
    fn is_read_ahead(&self, turn: &Turn<'_, '_, '_, '_>) -> bool {
        !turn.cx.shared.pause.looks(turn.cx.now()) && self.is_looked_at_when_whole(turn)
    }

    /// As `is_read_ahead`, but clients may be paused or keys held: a value on its way into its item looks at that when it is
    /// whole.
    #[inline]
    pub(crate) fn is_looked_at_when_whole(&self, turn: &Turn<'_, '_, '_, '_>) -> bool {
        self.client.is_plain() && Self::is_unseen(turn)
    }

    /// Whether no client is shown what each request does, none is listed by itself, and there is memory.
    #[inline]
    fn is_unseen(turn: &Turn<'_, '_, '_, '_>) -> bool {
        let (shared, common) = (turn.shared, turn.cx.shared);
        !common.topics.monitored()
            && !common.events.any()
            && !shared.commandlog.is_each_alone()
            && shared.starved_bytes.load(Relaxed) == 0
    }

    pub(crate) fn close(&mut self) -> Option<Next> {
        self.end(Ending::Error)
    }

    fn end(&mut self, ending: Ending) -> Option<Next> {
        self.state = State::Closed(ending);
        Some(Next::Close)
    }

    /// Reads a batch ahead, executes it, and does what ended it.
    fn batch<G: Gate>(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let mut batch = ArrayVec::<Staged<'_, '_>, BATCH_KEYS>::new();
        let stop = turn.fill::<G>(self.client.db, &self.client.standing, &mut batch);
        prefetch_items(&turn.cx.guard, &mut batch, |staged| (&staged.key, &mut staged.hint));
        for staged in &batch {
            if turn.out.is_full() {
                return self.begin_job(turn, staged.at).or_else(|| {
                    turn.at = staged.at;
                    Some(Next::Flush)
                });
            }
            if turn.meter.call(staged.row) {
                turn.settle(Some(staged.row));
            }
            let replied = turn.out.len();
            let tap = turn.cx.room.tap();
            let sampled = (tap.pass(1) || tap.follows(&staged.key)).then(|| turn.begin_sample());
            let mut call = turn.call(&mut self.client);
            if let Err(fail) = (staged.run)(&mut call, &staged.key, &staged.hint, staged.args) {
                if fail.is_no_memory() && call.cx.asks_again(call.out) {
                    turn.again_at = staged.at;
                    return Some(Next::Flush);
                }
                call.fail(&fail);
                fail.count(&call.cx.counters.rows, staged.row);
            }
            // A request that was read ahead and is left to the next turn is read again then.
            turn.tally.commands += 1;
            turn.beside();
            if let Some(begun) = sampled {
                turn.end_sample(self.client.db, staged, begun);
            }
            let replied = turn.out.len().wrapping_sub(replied);
            if replied >= turn.reply_from || turn.job.is_some() {
                turn.note_batched(&mut self.client, staged.at, replied);
            }
        }
        if turn.job.is_some() {
            // Requests that were read behind the job's are read again.
            let rest =
                if matches!(stop, Stop::Single(_) | Stop::Inline(_)) { turn.stopped_at } else { turn.at };
            return self.begin_job(turn, rest);
        }
        if turn.cx.room.is_again() {
            return Some(Next::Flush);
        }
        self.stopped(turn, stop)
    }

    /// Serves one request of a client that is not read ahead.
    fn one(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        self.client.facts.waits.store(false, Relaxed);
        let start = turn.at;
        let stop = turn.next_single();
        if turn.cx.shared.pause.looks(turn.cx.now()) {
            let waits_ms = match &stop {
                Stop::Single(args) => self.waits_ms(turn, *args),
                Stop::Inline(line) => split(line).and_then(|words| self.waits_ms(turn, words.args())),
                Stop::Full | Stop::NeedMore(_) | Stop::Fault(_) => None,
            };
            if let Some(ms) = waits_ms {
                turn.at = start;
                return self.sleep(ms);
            }
        }
        self.stopped(turn, stop)
    }

    /// Lets the request in front wait.
    pub(crate) fn sleep(&self, ms: Millis) -> Option<Next> {
        self.client.facts.waits.store(true, Relaxed);
        Some(Next::Sleep(ms))
    }

    /// How long a request waits before it is looked at again: clients are paused, or its keys are held.
    #[cold]
    pub(crate) fn waits_ms(&self, turn: &Turn<'_, '_, '_, '_>, args: Args<'_>) -> Option<Millis> {
        // A client that must log in first may do nothing else, and gets that error at once. A request that is no command, or has
        // too few words, is refused at once.
        let is_known = self.client.standing.is_admitted() || !turn.cx.shared.access.asks();
        let row =
            row_of(args).filter(|row| is_known && row.takes(args.len()) && !self.is_refused(turn, args))?;
        let pause = &turn.cx.shared.pause;
        let paused_ms = self.paused_ms(turn);
        if paused_ms > 0
            && if pause.writes_only() { self.changes(args) } else { !row.has(flag::WHILE_PAUSED) }
        {
            return Some(paused_ms);
        }
        self.waits_for_keys(turn, row, args).then_some(LOOK_MS)
    }

    /// How long a command that CLIENT PAUSE concerns waits; 0 if there is no pause.
    pub(crate) fn paused_ms(&self, turn: &Turn<'_, '_, '_, '_>) -> Millis {
        turn.cx.shared.pause.left_ms(turn.cx.now()).min(PAUSE_LOOK_MS)
    }

    /// Whether a request logs its client in, at once or by what was queued.
    pub(crate) fn logs_in(&self, args: Args<'_>) -> bool {
        // Other commands are not looked up for this.
        if !args.at(0).is_some_and(connection::may_log_in) {
            return false;
        }
        let mut rest = args;
        let Some((row, _)) = rest.next().and_then(table::find) else { return false };
        let transaction = &self.client.transaction;
        match transaction.is_open() {
            true => row.has(flag::RUNS_QUEUE) && transaction.logs_in(),
            false => connection::logs_in(row, rest),
        }
    }

    /// How long a login waits because of recent wrong passwords. Any client's login does, also if the client need not log in.
    fn waits_to_log_in(&mut self, turn: &Turn<'_, '_, '_, '_>, args: Args<'_>) -> Option<Millis> {
        if !self.logs_in(args) {
            return None;
        }
        let access = &turn.cx.shared.access;
        let looks = access.asks() || access.has_passwords();
        let waits_ms = if looks { self.client.logins.wait_ms(turn.cx) } else { None };
        // A login that has waited comes here again.
        self.client.facts.waits.store(waits_ms.is_some(), Relaxed);
        waits_ms
    }

    /// Lets the request that was read last wait; it is read again.
    #[cold]
    fn wait_to_log_in(turn: &mut Turn<'_, '_, '_, '_>, ms: Millis) -> Option<Next> {
        turn.at = turn.stopped_at;
        Some(Next::Sleep(ms))
    }

    /// Whether another client's command holds one of the request's keys; for a request that concerns all keys, any key.
    fn waits_for_keys(&self, turn: &Turn<'_, '_, '_, '_>, row: &Command, args: Args<'_>) -> bool {
        let pause = &turn.cx.shared.pause;
        let Some(keys) = pause.holds.keys() else {
            pause.look();
            return false;
        };
        let held = |db: u8, key: &[u8]| keys.has(turn.cx.guard.key_in(db, key).hash());
        let transaction = &self.client.transaction;
        if row.has(flag::RUNS_QUEUE) {
            let names_one = transaction.names_one(self.client.db, held);
            if names_one {
                pause.holds.note_waiter();
            }
            return names_one;
        }
        if transaction.is_open() && !row.has(flag::AT_ONCE) {
            // The command is queued.
            return false;
        }
        let mut words = args;
        words.nth(row.words() - 1);
        // A command that holds keys waits only when it has noted them.
        if holds_keys(row, words) {
            return false;
        }
        let (mut names_one, mut looked) = (row.takes_all(words), 0_u64);
        row.each_key(words, &mut |key| {
            names_one = names_one || held(self.client.db, key);
            looked += 1;
        });
        if names_one {
            pause.holds.note_waiter();
        }
        turn.cx.room.work().spend(looked.saturating_sub(LOOKED_KEYS_FREE) * LOOKED_KEY_NS);
        names_one
    }

    /// Whether the rules of the client's user forbid the request, so that it need not wait. A request that waits is checked at
    /// each look, and pays for that.
    #[cold]
    fn is_refused(&self, turn: &Turn<'_, '_, '_, '_>, args: Args<'_>) -> bool {
        let Some(user) = self.client.standing.user().filter(|_| !self.client.standing.is_free()) else {
            return false;
        };
        let mut rest = args;
        let Some((row, id)) = rest.next().and_then(table::find) else { return false };
        let sub = if row.subcommands().is_empty() { None } else { rest.next() };
        let (row, id) = match sub.and_then(|name| row.subcommand(name)) {
            Some(at) => (&row.subcommands()[at], table::sub(id, at)),
            None => (row, id),
        };
        let mut ns = 0;
        let is_refused = permissions::check(user, (row, id), rest, &mut ns).is_err();
        turn.cx.room.work().spend(ns);
        is_refused
    }

    /// Whether the command, or one of those that EXEC runs, changes something.
    fn changes(&self, args: Args<'_>) -> bool {
        let found = args.clone().next().and_then(table::find).map(|(row, _)| row);
        found.is_some_and(|row| {
            row.changes() || row.has(flag::RUNS_QUEUE) && self.client.transaction.changes()
        })
    }

    /// Does what reading ahead stopped at.
    fn stopped(&mut self, turn: &mut Turn<'_, '_, '_, '_>, stop: Stop<'_>) -> Option<Next> {
        match stop {
            Stop::Full if turn.left == 0 => {
                turn.cx.counters.add(Counter::ConnYields, 1);
                Some(Next::Yield)
            }
            Stop::Full => None,
            Stop::NeedMore(_) if begins_tls(turn.input, turn.at) => self.hear_tls(turn),
            Stop::NeedMore(partial) => self.wait(turn, partial),
            Stop::Single(args) => match self.waits_to_log_in(turn, args) {
                Some(ms) => Self::wait_to_log_in(turn, ms),
                None => self.single_again(turn, args),
            },
            Stop::Inline(line) if begins_tls(line, 0) => self.hear_tls(turn),
            Stop::Inline(line) if begins_http(line) => self.close(),
            Stop::Inline(line) => match split(line) {
                Some(words) if words.args().is_empty() => None,
                Some(words) => match self.waits_to_log_in(turn, words.args()) {
                    Some(ms) => Self::wait_to_log_in(turn, ms),
                    None => self.single_again(turn, words.args()),
                },
                None => self.fault(turn, Fault::UnbalancedQuotes),
            },
            Stop::Fault(fault) => self.fault(turn, fault),
        }
    }

    /// Closes a connection that began a TLS handshake, which this port does not speak.
    #[cold]
    fn hear_tls(&mut self, turn: &Turn<'_, '_, '_, '_>) -> Option<Next> {
        turn.cx.host.note_tls_on_plain_port();
        self.close()
    }

    /// Runs a request that still lies in the input: if memory for it is on its way it is read again, like one that was read
    /// ahead.
    fn single_again(&mut self, turn: &mut Turn<'_, '_, '_, '_>, args: Args<'_>) -> Option<Next> {
        let again = Self::read_again(turn);
        self.alone(turn, args, again)
    }

    /// How a request that finds no memory may be read again: after a try only if no monitor and no watcher would see both tries.
    fn read_again(turn: &Turn<'_, '_, '_, '_>) -> ReadAgain {
        let common = turn.cx.shared;
        if turn.shared.starved_bytes.load(Relaxed) > 0 {
            ReadAgain::Not
        } else if common.topics.monitored() || common.watches_keys(turn.cx.guard.store()) {
            ReadAgain::Untried
        } else {
            ReadAgain::Tried
        }
    }

    /// Runs a request of its own, which is not read again.
    pub(crate) fn single(&mut self, turn: &mut Turn<'_, '_, '_, '_>, args: Args<'_>) -> Option<Next> {
        self.alone(turn, args, ReadAgain::Not)
    }

    fn alone(&mut self, turn: &mut Turn<'_, '_, '_, '_>, args: Args<'_>, again: ReadAgain) -> Option<Next> {
        let asks = turn.cx.guard.ask_again(false);
        let flow = turn.dispatch(&mut self.client, args, if asks { again } else { ReadAgain::Not });
        turn.cx.guard.ask_again(asks);
        turn.cx.spend_beside(turn.out);
        turn.serve_called();
        // AUTH, RESET or CONFIG SET may have changed the limits of the next request.
        turn.limits = self.limits(turn.shared, turn.cx);
        self.follow(turn, flow)
    }

    /// Does what a command's flow says.
    pub(crate) fn follow(&mut self, turn: &mut Turn<'_, '_, '_, '_>, flow: Flow) -> Option<Next> {
        match flow {
            Flow::Next => None,
            Flow::Sleep { ms, says } => {
                self.state = State::Asleep { until: turn.cx.now() + ms, says };
                None
            }
            Flow::Job => {
                let rest = turn.at;
                self.begin_job(turn, rest)
            }
            Flow::Again => {
                turn.again_at = turn.stopped_at;
                Some(Next::Flush)
            }
            Flow::Close(ending) => self.end(ending),
        }
    }

    pub(crate) fn fault(&mut self, turn: &mut Turn<'_, '_, '_, '_>, fault: Fault) -> Option<Next> {
        let out = &mut *turn.out;
        fault.write(&mut |bytes| out.put(bytes));
        turn.at = turn.input.len();
        self.close()
    }

    /// Handles an incomplete request: waits in the receive buffer if it is short, or begins an upload or a gathering.
    fn wait(&mut self, turn: &mut Turn<'_, '_, '_, '_>, partial: Partial) -> Option<Next> {
        let there = turn.input.len() - turn.at;
        let known = partial.known_end().unwrap_or(0).max(there as u64);
        if known <= WAIT_BYTES_MAX as u64 {
            return Some(Next::Receive);
        }
        if known > turn.shared.limits.query_bytes_max() {
            // As Redis does, without a reply.
            return self.close();
        }
        if self.begin_upload(turn, partial) {
            return None;
        }
        self.begin_gather(turn, partial)
    }
}

/// The row of a command, or of its subcommand.
fn row_of(mut args: Args<'_>) -> Option<&'static Command> {
    let (row, _) = args.next().and_then(table::find)?;
    let sub = args.next().and_then(|name| row.subcommand(name));
    Some(sub.map_or(row, |at| &row.subcommands()[at]))
}
