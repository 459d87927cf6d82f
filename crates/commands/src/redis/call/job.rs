//! A job: what is left of a command that is done in steps. Other connections of the worker have their turn between two steps.
//!
//! ```text
//! the command ─► first step ─► done? ─► the reply is written, the next request is read
//!                   ▲           └── no: the turn ends; the client waits, its worker serves others
//!                   └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! How a connection goes on with its job is `session/job.rs`, what jobs are made of is in `steps`. A step is given a call, and a
//! call has room for the job that its command leaves: so a job is described beside the call.
//!
//! A step does what is left of the worker's slice (`core/work.rs`), and a little where nothing is left.
//!
//! - A job asks for its keys to be held where it finds them changed each time ([`Step::Hold`]), and goes on inside of `Held`
//!   (`steps/held.rs`). A job that was begun before waits while others hold its keys.
//! - A job that must end ([`Job::must_end`]) outlives its client: its worker keeps the session until the job is done. Such are
//!   an EXEC until its commands were run, unless it waits for the end of a pause; MSET and its like, writes of elements, SPOP, and
//!   HGETDEL and its like, whose keys are held (`steps/stages.rs`); and closing clients whose subscriptions new rules forbid. Any
//!   other job is dropped with its connection, also one in `Held` (COPY, SORT).
//! - Where the rules of its user change, a job ends with its connection, unless it asks for them itself ([`Job::asks_itself`])
//!   or must end.
//! - A step that found no memory is made again while some is on its way, where the job says that such a step leaves it as it was
//!   ([`Job::asks_again`]). Where a step cannot be made again, the job says what it wants, which is looked for before
//!   ([`Job::wants`]).
//! - In EXEC of one step, and in scripts, all steps are made at once: what EXEC may run is bounded before it begins
//!   (`transactions/weight.rs`). A longer EXEC is a job itself, which makes the steps of its commands one by one
//!   (`transactions/steps.rs`).

use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;
use larder_store::Millis;

use crate::core::access::{Snapshot, Standing};
use crate::core::calls::RowId;
use crate::core::hold::LOOK_MS;
pub(crate) use crate::core::work::STEP_NS_MIN;
use crate::core::work::{Lane, Work};
use crate::redis::call::{Call, Flow};
use crate::redis::commandlog::Entry;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::kept::{Again, Kept, Name};

/// Memory that a step wants which makes a collection: as many leaves as it fills with short elements, …
pub(crate) const LEAVES: (usize, usize) = (1 << 10, 16);
/// … and one that changes a stream, or writes the first of many elements.
pub(crate) const LEAF: (usize, usize) = (1 << 10, 1);

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The reply is written.
    Done,
    /// There is more to do.
    More,
    /// There is more to reply, and the output is full.
    Full,
    /// Its keys ([`Job::names`]) are to be held before it goes on: it finds them changed each time. If it works in the lane
    /// it has that already.
    Hold,
    /// There is nothing to do until the connection is woken, or so many milliseconds have passed if that is said. If its client
    /// sends no more meanwhile, the connection is closed, unless the job must end ([`Job::must_end`]).
    Await(Option<Millis>),
    /// There is nothing to do for so many milliseconds. A client that sends no more meanwhile is answered all the same.
    Sleep(Millis),
}

/// The rest of a command that is done in steps.
pub(crate) trait Job: std::fmt::Debug + Send {
    /// Does some of it, [`Call::step_ns`] of work or a little more, and spends that ([`Call::spend`]). What is
    /// replied may be written at any step.
    ///
    /// # Errors
    /// What is replied; it is over then.
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail>;

    /// It changes nothing, so that it may be dropped when its client does not get what it finds.
    fn only_reads(&self) -> bool {
        false
    }

    /// It holds keys for which others wait.
    fn holds(&self) -> bool {
        false
    }

    /// What it does is done to its end, also if its client has gone: it holds keys, and what it does to them is one moment for
    /// others; or nothing else would do what it leaves.
    fn must_end(&self) -> bool {
        false
    }

    /// It waits for something, and its client may go on waiting: it holds up no other.
    fn waits(&self) -> bool {
        false
    }

    /// Whether the job goes on after its user's rules changed: it checks permissions itself, only sends a reply that it has
    /// copied, or has taken out elements that are nowhere else. Any other job ends with its connection.
    fn asks_itself(&self) -> bool {
        false
    }

    /// A step that finds no memory leaves the job so that it may be made once more, where some is on its way: its worker serves
    /// others meanwhile. Behind such a step: it has left it so. A step that has done a part of its work ends with [`Step::More`]:
    /// only steps that found no memory at all are counted, and after 24 of them in a row the job is refused.
    fn asks_again(&self) -> bool {
        false
    }

    /// What the next step wants that cannot be made once more: bytes of an item, and of how many. While that is on its way the
    /// step is not made.
    fn wants(&self) -> Option<(usize, usize)> {
        None
    }

    /// The lane that it has, in which it notes that it waits for memory.
    fn lane(&self) -> Option<&Lane> {
        None
    }

    /// It sends watchers of mutations the lines of what it has stored, behind its last write: nothing is stored when it begins.
    fn tells_watchers(&self) -> bool {
        false
    }

    /// Its steps spend what their words take: that is not spent when the command begins.
    fn spends_on_words(&self) -> bool {
        false
    }

    /// Bytes that it holds until its client has taken the reply, and that count with it: where connections hold too much, those
    /// whose clients take nothing are closed.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// It looks at no key any more, and only has to reply what it has found.
    fn only_replies(&self) -> bool {
        false
    }

    /// The command that it is a part of, if it works at the keys that this names and at no others.
    fn again(&self) -> Option<&Again> {
        None
    }

    /// The only key that it works at, of the selected database, if it says so.
    fn only_key(&self) -> Option<&Name> {
        None
    }

    /// The keys that it asks to have held.
    fn names(&self) -> Vec<&Name> {
        Vec::new()
    }

    /// The words that it has still to look at.
    fn kept(&mut self) -> Option<&mut Kept> {
        None
    }
}

/// A command that goes on in later turns, to be listed if it turns out to take long or its reply to be large.
#[derive(Debug)]
pub(crate) struct Noted {
    pub entry: Entry,
    pub _held: Heap,
}

/// A command whose next step is to come.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub job: Box<dyn Job>,
    /// The client's user when it began.
    pub user: Snapshot,
    /// Its reply is not sent.
    pub silent: bool,
    /// The row that its failures are counted for.
    pub row: Option<RowId>,
    /// What its steps took, in all.
    pub took_us: u64,
    /// That is what the command took.
    pub is_timed: bool,
    /// Bytes that were replied.
    pub replied_bytes: u64,
    /// What is listed if it took long or these are many.
    pub noted: Option<Box<Noted>>,
}

impl UnderWay {
    fn new(job: impl Job + 'static, row: Option<RowId>, user: Snapshot) -> UnderWay {
        UnderWay {
            job: Box::new(job),
            user,
            silent: false,
            row,
            took_us: 0,
            is_timed: false,
            replied_bytes: 0,
            noted: None,
        }
    }

    /// Whether the rules of the client's user have changed since the command began, and the job does not survive that.
    pub(crate) fn is_overtaken(&mut self, standing: &Standing, work: &Work) -> bool {
        let job = &self.job;
        if standing.is_free() || standing.is_as(&self.user) || job.must_end() || job.asks_itself() {
            return false;
        }
        if standing.may_as(&self.user, work) {
            // They are compared once for each change.
            self.user = standing.snapshot();
            return false;
        }
        true
    }
}

impl Call<'_, '_, '_> {
    /// Does a command in steps: the first of them now, and all if there is no more, or in a transaction.
    pub(crate) fn work(&mut self, mut job: impl Job + 'static) -> Done {
        let is_put_off = self.cx.room.work().budget_nearly_spent() || self.finds_none_for(&job);
        if is_put_off && !self.cx.guard.in_transaction() {
            self.go_on_with(job);
            return Ok(());
        }
        let mark = self.out.mark();
        loop {
            let (whole, before) = (self.cx.guard.in_transaction(), self.out.len());
            let again = self.cx.guard.ask_again(false);
            // A command that is read again itself asks for it otherwise.
            let asks = !again && !whole && job.asks_again();
            self.cx.guard.ask_again(again || asks);
            let step = job.step(self);
            self.cx.guard.ask_again(again);
            match step {
                Ok(Step::Done) => return Ok(()),
                Err(fail) if asks && self.comes_for(&job, &fail) => break,
                Err(fail) if !whole => return Err(fail),
                Ok(_) if !whole => break,
                Ok(Step::More) => {}
                Ok(Step::Full) if self.out.len() > before => {}
                // What is written meanwhile is not taken in a transaction: to go on would be in vain for ever.
                ended => {
                    self.out.rewind(mark);
                    return Err(ended.err().unwrap_or(Fail::HELD));
                }
            }
        }
        self.go_on_with(job);
        Ok(())
    }

    /// What the next step of a job wants is not there, and is on its way.
    pub(crate) fn finds_none_for(&mut self, job: &dyn Job) -> bool {
        job.wants().is_some_and(|wants| self.finds_none(wants))
    }

    /// There is no memory for so many items of so many bytes, and some is on its way. A transaction does not wait for it.
    pub(crate) fn finds_none(&mut self, (bytes, count): (usize, usize)) -> bool {
        !self.cx.guard.in_transaction() && !self.cx.guard.finds_memory(bytes, count)
    }

    /// The step of a job that asks again may be made once more: it found no memory, and some is on its way.
    pub(crate) fn comes_for(&self, job: &dyn Job, fail: &Fail) -> bool {
        fail.is_no_memory() && self.cx.guard.memory_comes() && job.asks_again()
    }

    /// Goes on with a command in the next turn.
    pub(crate) fn go_on_with(&mut self, job: impl Job + 'static) {
        *self.job = Some(UnderWay::new(job, self.row, self.client.standing.snapshot()));
        self.flow = Flow::Job;
        // In a batch the flow is not looked at, but this is.
        self.out.end_turn();
    }

    /// Goes on with a command that waits: its first step comes at once, when what is behind it is put aside.
    pub(crate) fn wait_with(&mut self, job: impl Job + 'static) {
        *self.job = Some(UnderWay::new(job, self.row, self.client.standing.snapshot()));
        self.flow = Flow::Job;
    }

    /// Notes the command that was just begun, and has taken so long and replied so much, if it goes on: it is counted and listed
    /// when it has ended, by what all of its steps took. The time for which it waits is none of theirs. True if it goes on.
    #[cold]
    pub(crate) fn begin_note(
        &mut self,
        row: RowId,
        args: Args<'_>,
        took_us: u64,
        replied_bytes: u64,
    ) -> bool {
        let Some(under_way) = &*self.job else { return false };
        // The words of one that waits are kept for as long: only where it may be listed, as what it works is short.
        let is_kept = !under_way.job.waits() || self.shared.commandlog.measures_all();
        let kept = self.shared.rows.row(row).filter(|_| is_kept);
        let noted = kept.and_then(|row| self.note_later(row, args)).map(Box::new);
        if let Some(under_way) = &mut *self.job {
            under_way.row = Some(row);
            (under_way.noted, under_way.is_timed) = (noted, true);
            (under_way.took_us, under_way.replied_bytes) = (took_us, replied_bytes);
        }
        true
    }

    /// For how long a job that has done nothing yet waits before it looks again: clients were paused since its command was read.
    /// None if it may begin. `changes`: it changes something.
    pub(crate) fn paused_ms(&self, changes: impl FnOnce(&Self) -> bool) -> Option<Millis> {
        let paused_ms = self.cx.shared.pause.waits_ms(self.cx.now(), || changes(self));
        self.client.facts.waits.store(paused_ms.is_some(), Relaxed);
        paused_ms
    }

    /// Spends work.
    #[inline]
    pub fn spend(&mut self, ns: u64) {
        self.cx.spend(self.out, ns);
    }

    /// What comes behind a look for the lane that was in vain: another in the next turn; or in some milliseconds, where the
    /// client that has the lane only waits itself.
    pub(crate) fn await_lane(&self) -> Step {
        if self.cx.room.work().lane_rests() { Step::Sleep(LOOK_MS) } else { Step::More }
    }

    /// What a step may do.
    pub fn step_ns(&self) -> u64 {
        self.cx.room.work().left_ns(STEP_NS_MIN)
    }
}
