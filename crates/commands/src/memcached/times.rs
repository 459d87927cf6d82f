//! Times of commands, in receives that are measured: one in sixteen, as for RESP (`core/calls.rs`).
//!
//! ```text
//! a batch             commands of a row together, each an equal part of the time until another row's comes; the
//!                     first of a receive from its beginning: with reading it, and with waiting for memory
//! a run               all its commands together, each an equal part: their waits for memory overlap
//! one at a time       lines that name no item, values that are not at hand
//! several turns       the last turn of a value that comes in parts, the first of anything else
//! ```
//!
//! A line of keys is one command. A command that is retried because there was no memory counts each time.
//!
//! A receive that is not measured pays for a count of receives, and for a comparison for each command, or for each group of a
//! run.

use larder_protocol::binary::{self, Frame};
use larder_protocol::classic::{Fetch, Request, StoreVerb};
use larder_protocol::meta;

use super::table::{Command, number, row_of_store};
use crate::core::calls::{Meter, RowId};
use crate::core::context::Context;

const GET: RowId = number("get");
const GETS: RowId = number("gets");
const GAT: RowId = number("gat");
const GATS: RowId = number("gats");
const SET: RowId = number("set");
const CAS: RowId = number("cas");
const DELETE: RowId = number("delete");
const INCR: RowId = number("incr");
const DECR: RowId = number("decr");
const TOUCH: RowId = number("touch");
const MG: RowId = number("mg");
const MS: RowId = number("ms");
const MD: RowId = number("md");
const MA: RowId = number("ma");
const MN: RowId = number("mn");
const ME: RowId = number("me");

/// The kinds of commands in runs.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum InRun {
    Get,
    Set,
    MetaGet,
    MetaSet,
    Incr,
}

/// The rows of these kinds, in their order.
const RUN_ROWS: [RowId; 5] = [GET, SET, MG, MS, INCR];

/// A meter of the commands of one receive.
#[derive(Debug)]
pub(super) struct Times {
    meter: Meter,
    /// Number of each of [`InRun`] in the run at work.
    run: [u32; RUN_ROWS.len()],
}

impl Times {
    /// Begins a receive.
    #[inline]
    pub fn begin(cx: &Context<'_, '_>) -> Times {
        let meter = Meter::begin(&cx.counters.memcached, false, || cx.host.clock_us());
        Times { meter, run: [0; RUN_ROWS.len()] }
    }

    /// Returns whether this receive is measured: only then are the cold calls to be made.
    #[inline(always)]
    pub fn measures(&self) -> bool {
        self.meter.measures()
    }

    /// Ends the commands of batches so far: they are counted, if this receive is measured.
    #[inline(always)]
    pub fn batch_ends(&mut self, cx: &Context<'_, '_>) {
        if self.measures() {
            self.end_batch(cx);
        }
    }

    /// Notes that the time since the last command's end is no command's, or that of one that is counted already.
    #[inline(always)]
    pub fn passes(&mut self, cx: &Context<'_, '_>) {
        if self.measures() {
            self.pass(cx);
        }
    }

    /// Counts a command that ends and was neither in a batch nor in a run, if this receive is measured.
    #[inline(always)]
    pub fn one_ends(&mut self, cx: &Context<'_, '_>, row: &Command) {
        if self.measures() {
            self.end_one(cx, row);
        }
    }

    /// Begins a command of a batch.
    #[cold]
    #[inline(never)]
    pub fn call(&mut self, cx: &Context<'_, '_>, row: RowId) {
        if self.meter.has_calls() {
            if self.meter.call(row) {
                self.settle(cx, Some(row));
            }
        } else {
            self.meter.begin_row(row);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_batch(&mut self, cx: &Context<'_, '_>) {
        if self.meter.has_calls() {
            self.settle(cx, None);
        }
    }

    /// Notes a further key of a line. A line that began in another receive is no command of this one.
    #[cold]
    #[inline(never)]
    pub fn key(&mut self, cx: &Context<'_, '_>) {
        if !self.meter.has_calls() {
            self.pass(cx);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass(&mut self, cx: &Context<'_, '_>) {
        let _ = self.meter.lap(cx.host);
    }

    fn settle(&mut self, cx: &Context<'_, '_>, next: Option<RowId>) {
        self.meter.settle(&cx.counters.memcached, next, || cx.host.clock_us());
    }

    /// Counts a command whose time is all that has passed since the commands of batches and runs ended.
    #[cold]
    #[inline(never)]
    fn end_one(&mut self, cx: &Context<'_, '_>, row: &Command) {
        if let Some(us) = self.meter.lap(cx.host) {
            let row = number(row.name);
            cx.counters.memcached.called(row, 1);
            cx.counters.memcached.took(row, 1, us);
        }
    }

    /// Counts a command of a run that was answered.
    pub fn count_in_run(&mut self, what: InRun) {
        self.run[what as usize] += 1;
    }

    /// Takes back the last `get` of a run, which was not plain after all.
    pub fn take_back_get(&mut self) {
        let gets = &mut self.run[InRun::Get as usize];
        *gets = gets.saturating_sub(1);
    }

    /// Ends a run, and counts its commands.
    #[cold]
    #[inline(never)]
    pub fn end_run(&mut self, cx: &Context<'_, '_>) {
        let Some(us) = self.meter.lap(cx.host) else { return };
        cx.counters.memcached.ran(RUN_ROWS, std::mem::take(&mut self.run), Some(us));
    }
}

/// The row of a request of a key.
pub(super) fn of_request(request: &Request<'_>) -> RowId {
    match request {
        Request::Fetch(Fetch { cas: false, touch: None }) => GET,
        Request::Fetch(Fetch { cas: true, touch: None }) => GETS,
        Request::Fetch(Fetch { cas: false, touch: Some(_) }) => GAT,
        Request::Fetch(Fetch { cas: true, touch: Some(_) }) => GATS,
        Request::Store(store) => of_store(store.verb),
        Request::Delete { .. } => DELETE,
        Request::Arithmetic { decrement: false, .. } => INCR,
        Request::Arithmetic { decrement: true, .. } => DECR,
        Request::Touch { .. } => TOUCH,
        Request::Meta(meta) => of_meta(meta.verb),
        Request::Line(_) | Request::Fault { .. } => unreachable!("these come as events"),
    }
}

#[cold]
#[inline(never)]
fn of_store(verb: StoreVerb) -> RowId {
    number(row_of_store(verb).name)
}

fn of_meta(verb: meta::Verb) -> RowId {
    match verb {
        meta::Verb::Get => MG,
        meta::Verb::Set => MS,
        meta::Verb::Delete => MD,
        meta::Verb::Arithmetic => MA,
        meta::Verb::Noop => MN,
        meta::Verb::Debug => ME,
    }
}

/// The row of a frame of a key: that of the text's command which does the same.
pub(super) fn of_frame(frame: &Frame<'_>) -> RowId {
    match frame.opcode.verb {
        binary::Verb::Get => GET,
        binary::Verb::GetAndTouch => GAT,
        binary::Verb::Touch => TOUCH,
        binary::Verb::Store(_) if frame.cas != 0 => CAS,
        binary::Verb::Store(verb) | binary::Verb::Concat(verb) => of_store(verb),
        binary::Verb::Delete => DELETE,
        binary::Verb::Increment => INCR,
        binary::Verb::Decrement => DECR,
        binary::Verb::Flush
        | binary::Verb::Noop
        | binary::Verb::Version
        | binary::Verb::Stat
        | binary::Verb::Verbosity
        | binary::Verb::Quit
        | binary::Verb::SaslList
        | binary::Verb::SaslAuth
        | binary::Verb::SaslStep => unreachable!("these come as events"),
    }
}
