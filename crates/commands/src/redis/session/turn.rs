//! A turn: what one call of the session reads of its input, and counts.

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, Decoded, Fault, Limits, Partial, decode};
use larder_store::{Hint, Key};

use super::gate::Gate;
use crate::core::access::Standing;
use crate::core::batch::BATCH_KEYS;
use crate::core::calls::{Meter, RowId};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::core::traffic::{self, Seen};
use crate::redis::call::{Call, Flow, KEY_BYTES_MAX, OfKey};
use crate::redis::client::Client;
use crate::redis::collections::block::{SERVE_NS, Serving};
use crate::redis::definition::Function;
use crate::redis::fail::Fail;
use crate::redis::latency::{COMMAND, FAST_COMMAND};
use crate::redis::row::flag;
use crate::redis::server::commandlog::{Measured, request_bytes};
use crate::redis::shared::Shared;
use crate::redis::steps::job::UnderWay;
use crate::redis::table;

/// The commands of a run.
pub(crate) const GET: RowId = table::id_of("get");
pub(crate) const SET: RowId = table::id_of("set");
pub(crate) const INCR: RowId = table::id_of("incr");
pub(crate) const DECR: RowId = table::id_of("decr");

/// One turn: what `receive` of a conversation does.
pub(crate) struct Turn<'x, 'a, 'c, 'w> {
    pub cx: &'x mut Context<'c, 'w>,
    /// What RESP clients share.
    pub shared: &'c Shared,
    pub out: &'x mut Output,
    pub input: &'a [u8],
    /// Bytes done with.
    pub at: usize,
    /// Requests left in this turn.
    pub left: u32,
    pub tally: Tally,
    /// A command that was just begun, and goes on in the client's next turn.
    pub job: Option<UnderWay>,
    pub meter: Meter,
    pub limits: Limits,
    /// The input was a run of plain gets and sets so far.
    pub runs: bool,
    /// Where the request begins that reading ahead stopped at, if it is one.
    pub stopped_at: usize,
    /// The row of the last command.
    pub row: RowId,
    /// Where the request begins that is to be asked again.
    pub again_at: usize,
    /// Replies of so many bytes are to be listed.
    pub reply_from: u64,
}

/// One command of one key.
pub(crate) struct Staged<'a, 'w> {
    pub(crate) key: Key<'a>,
    pub(crate) hint: Hint<'w>,
    /// Where in the input it begins.
    pub(crate) at: usize,
    pub(crate) row: RowId,
    pub(crate) run: OfKey,
    pub(crate) args: Args<'a>,
}

/// Why no more was read ahead.
pub(crate) enum Stop<'a> {
    Full,
    NeedMore(Partial),
    Single(Args<'a>),
    Inline(&'a [u8]),
    Fault(Fault),
}

impl<'a, 'c, 'w> Turn<'_, 'a, 'c, 'w> {
    /// What a command works with.
    #[inline]
    pub(crate) fn call<'y>(&'y mut self, client: &'y mut Client) -> Call<'y, 'c, 'w> {
        Call {
            cx: self.cx,
            shared: self.shared,
            out: self.out,
            client,
            tally: &mut self.tally,
            flow: Flow::Next,
            job: &mut self.job,
            row: None,
            admitted: false,
            later: false,
        }
    }

    /// Charges the store's side work beside a command of a batch, then serves clients that wait for keys which this command
    /// wrote: a write to a key that is awaited is side work.
    #[inline(always)]
    pub(crate) fn beside(&mut self) {
        let ns = self.cx.guard.take_beside_ns();
        if ns > 0 {
            self.much_beside(ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn much_beside(&mut self, ns: u64) {
        self.cx.spend(self.out, ns);
        self.serve_called();
    }

    /// Serves clients that wait for what a command has left, which has ended.
    #[inline]
    pub(crate) fn serve_called(&mut self) {
        if self.cx.guard.has_called() {
            self.serve(|serving| serving.called());
        }
    }

    /// Does what a command has left that waited and is over.
    pub(crate) fn serve_left(&mut self) {
        if self.shared.waiters.has_left() {
            self.serve(|serving| serving.left(1));
        }
    }

    /// Serves clients that wait, and spends what that takes.
    #[cold]
    fn serve(&mut self, serve: impl FnOnce(&mut Serving<'_, 'w>) -> usize) {
        let (common, host) = (self.cx.shared, self.cx.host);
        let (rows, waiters) = (self.shared.rows, &self.shared.waiters);
        let guard = &mut self.cx.guard;
        let served = serve(&mut Serving { guard, common, rows, waiters, host, own: None });
        self.cx.spend(self.out, served as u64 * SERVE_NS);
        self.cx.go_on_telling();
    }

    /// Notes a command that was read ahead, if it has replied much, or goes on: it begins at `at` of the input.
    #[cold]
    pub(crate) fn note_batched(&mut self, client: &mut Client, at: usize, reply_bytes: u64) {
        let Decoded::Request(words, _) = decode(&self.input[at..], &self.limits) else { return };
        let Some((row, id)) = words.clone().next().and_then(table::find) else { return };
        let mut call = self.call(client);
        if call.job.is_some() {
            if call.begin_note(id, words, 0, reply_bytes) {
                self.meter.last_goes_on();
            }
        } else {
            call.note(
                row,
                words,
                Measured { took_us: None, request_bytes: request_bytes(words), reply_bytes },
            );
        }
    }

    /// Begins a sample of a command of a batch: the time, and the bytes that are replied by then.
    #[cold]
    pub(crate) fn begin_sample(&self) -> (u64, u64) {
        (self.cx.host.clock_us(), self.out.len())
    }

    /// Ends it: the command was carried out.
    #[cold]
    pub(crate) fn end_sample(&mut self, db: u8, staged: &Staged<'_, '_>, begun: (u64, u64)) {
        let tap = self.cx.room.tap();
        let Some(row) = table::row(staged.row) else { return };
        if tap.follows(&staged.key) {
            traffic::follow(tap, &mut self.cx.guard, &staged.key, row.access_of(0).verb());
        }
        if tap.next(1).is_none() {
            return;
        }
        let (began_us, replied) = begun;
        let cost_ns = self.cx.host.clock_us().saturating_sub(began_us) * 1000;
        let reply = self.out.len().saturating_sub(replied);
        let words = (row.name.len() + 16 + staged.args.encoded().len()) as u64;
        let seen = Seen { verb: row.access_of(0).verb(), db, cost_ns };
        traffic::sample(tap, &mut self.cx.guard, &staged.key, seen, |key, _| words + key + reply);
    }

    /// Counts the commands that came one after another, and goes on with those of `next`.
    #[inline(never)]
    pub(crate) fn settle(&mut self, next: Option<RowId>) {
        let (cx, host) = (&*self.cx, self.cx.host);
        if let Some((row, us)) = self.meter.settle(&cx.counters.rows, next, || host.clock_us()) {
            self.shared.latency.note(event_of(row), cx.now() / 1000, us);
        }
    }

    /// [`Turn::settle`], if there is anything.
    #[inline]
    pub(crate) fn settle_any(&mut self) {
        if self.meter.has_calls() {
            self.settle(None);
        }
    }

    /// Counts the commands of a run, by what was counted before it.
    #[inline]
    pub(crate) fn count_run(&mut self, before: &Tally) {
        let gets = self.tally.gets - before.gets;
        let (incrs, decrs) = (self.tally.incrs - before.incrs, self.tally.decrs - before.decrs);
        let all = self.tally.commands - before.commands;
        if all == 0 {
            return;
        }
        let took_us = self.meter.lap(self.cx.host);
        let (ids, calls) = ([GET, SET, INCR, DECR], [gets, all - gets - incrs - decrs, incrs, decrs]);
        self.cx.counters.rows.ran(ids, calls, took_us);
        if let Some((row, _)) = ids.into_iter().zip(calls).rfind(|(_, calls)| *calls > 0) {
            self.row = row;
        }
        if let Some(us) = took_us {
            self.shared.latency.note(FAST_COMMAND, self.cx.now() / 1000, us);
        }
    }

    /// Notes what a command took, if that is long enough.
    pub(crate) fn note_latency(&self, row: RowId, us: u64) {
        self.shared.latency.note(event_of(row), self.cx.now() / 1000, us);
    }

    /// Counts one command.
    pub(crate) fn count_single(
        &mut self,
        row: RowId,
        admitted: bool,
        failed: Option<&Fail>,
        took_us: Option<u64>,
    ) {
        let rows = &self.cx.counters.rows;
        if !admitted {
            // Queued commands are counted when they run.
            if failed.is_some() {
                rows.refused(row);
            }
            return;
        }
        rows.called(row, 1);
        if let Some(fail) = failed {
            fail.count(rows, row);
        }
        if let Some(us) = took_us {
            rows.took(row, 1, us);
            self.shared.latency.note(event_of(row), self.cx.now() / 1000, us);
        }
    }

    /// Reads commands of one key ahead, up to one that its client's user does not allow at once.
    pub(crate) fn fill<G: Gate>(
        &mut self,
        db: u8,
        standing: &Standing,
        batch: &mut ArrayVec<Staged<'a, 'w>, BATCH_KEYS>,
    ) -> Stop<'a> {
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
                    let behind_name = rest;
                    if let Some((row, id)) = found
                        && let Function::Key(run) = table::function(id)
                        && row.takes(args.len())
                        && let Some(key) = rest.next()
                        && key.len() <= KEY_BYTES_MAX
                        && G::lets(standing, (row, id), key, behind_name)
                    {
                        let key = self.cx.guard.key_in(db, key);
                        let hint = self.cx.guard.prefetch_bucket(&key);
                        batch.push(Staged { key, hint, at: self.at, row: id, run, args: rest });
                        self.row = id;
                        self.at += bytes;
                        self.left -= 1;
                        continue;
                    }
                    self.stopped_at = self.at;
                    self.at += bytes;
                    self.left -= 1;
                    return Stop::Single(args);
                }
                Decoded::Inline(line, bytes) => {
                    self.stopped_at = self.at;
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
    pub(crate) fn next_single(&mut self) -> Stop<'a> {
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
            self.stopped_at = self.at;
            self.at += bytes;
            self.left -= 1;
            return stop;
        }
    }
}

/// The event that LATENCY notes for a command.
fn event_of(row: RowId) -> &'static str {
    let fast = table::row(row).is_some_and(|row| row.has(flag::FAST));
    if fast { FAST_COMMAND } else { COMMAND }
}
