//! A job: what is left of a command that is done in steps. Other connections of the worker have their turn between two steps.
//!
//! ```text
//! the command ─► first step ─► done? ─► the reply is written, the next request is read
//!                   ▲           └── no: the turn ends; the client waits, its worker serves others
//!                   └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! `session/job.rs` continues the job of a connection; `steps` has the parts that jobs share. A step gets a call, and a call has
//! room for the job that its command leaves: so jobs are described here, beside the call.
//!
//! A step uses what is left of the worker's slice (`core/work.rs`), and a little where nothing is left.
//!
//! - A job asks for its keys to be held where it finds them changed each time ([`Step::Hold`]), and goes on inside of `Held`
//!   (`steps/held.rs`). A job that was begun before waits while others hold its keys.
//! - A job that must end ([`Job::must_end`]) outlives its client: its worker keeps the session until the job is done. Such are an
//!   EXEC until its commands were run, unless it waits for the end of a pause; MSET and its like, writes of elements, SPOP, and
//!   HGETDEL and its like, whose keys are held (`steps/stages.rs`); and closing clients whose subscriptions new rules forbid. Any
//!   other job is dropped with its connection, even one in `Held` (COPY, SORT).
//! - A job ends with its connection when the rules of its user change, unless it checks permissions itself ([`Job::asks_itself`])
//!   or must end.
//! - A step that found no memory is made again while some is on its way, if such a step leaves the job as it was
//!   ([`Job::asks_again`]). A job whose step cannot be made again says what it wants, and that is looked for before the step
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

/// Memory that a step wants which makes a collection: bytes of a leaf, and how many leaves it fills with short elements.
pub(crate) const LEAVES: (usize, usize) = (1 << 10, 16);
/// Memory that a step wants which changes a stream, or writes the first of many elements.
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
    /// The job's keys ([`Job::names`]) are to be held before it goes on, since it finds them changed each time. A job that works
    /// in the lane has it already.
    Hold,
    /// There is nothing to do until the connection is woken, or until so many milliseconds have passed. If the client closes its
    /// side meanwhile, the connection is closed, unless the job must end ([`Job::must_end`]).
    Await(Option<Millis>),
    /// There is nothing to do for so many milliseconds. A client that closes its side meanwhile is answered all the same.
    Sleep(Millis),
}

/// The rest of a command that is done in steps.
pub(crate) trait Job: std::fmt::Debug + Send {
    /// Does a part of the work, [`Call::step_ns`] or a little more, and spends that ([`Call::spend`]). Any step may write a part
    /// of the reply.
    ///
    /// # Errors
    /// The error to reply; the job is over then.
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail>;

    /// Whether the job changes nothing, and so may be dropped when its client does not get the reply.
    fn only_reads(&self) -> bool {
        false
    }

    /// Whether the job holds keys for which others wait.
    fn holds(&self) -> bool {
        false
    }

    /// Whether the job is done to its end even if its client has gone: it holds keys, and its changes to them are one moment for
    /// others; or nothing else would do what it leaves.
    fn must_end(&self) -> bool {
        false
    }

    /// Whether the job waits for something that may be long in coming. It holds up no other.
    fn waits(&self) -> bool {
        false
    }

    /// Whether the job goes on after its user's rules changed: it checks permissions itself, only sends a reply that it has
    /// copied, or has taken out elements that are nowhere else. Any other job ends with its connection.
    fn asks_itself(&self) -> bool {
        false
    }

    /// Whether a step that finds no memory may be made once more, while some is on its way and the worker serves others; asked
    /// behind such a step, whether it left the job so. A step that has done a part of its work ends with [`Step::More`]: only
    /// steps that found no memory at all are counted, and after 24 of them in a row the job is refused.
    fn asks_again(&self) -> bool {
        false
    }

    /// What the next step wants, if it cannot be made once more: bytes of an item, and of how many. While that is on its way the
    /// step is not made.
    fn wants(&self) -> Option<(usize, usize)> {
        None
    }

    /// The lane that the job has, in which it notes that it waits for memory.
    fn lane(&self) -> Option<&Lane> {
        None
    }

    /// Whether the job sends watchers of mutations their lines itself, behind its last write: nothing is stored when it begins.
    fn tells_watchers(&self) -> bool {
        false
    }

    /// Whether its steps spend the work of its words. That is then not spent when the command begins.
    fn spends_on_words(&self) -> bool {
        false
    }

    /// Bytes that the job holds until its client has taken the reply. They count as the connection's: where connections hold too
    /// much, those whose clients take nothing are closed.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Whether the job looks at no key any more, and only replies what it found.
    fn only_replies(&self) -> bool {
        false
    }

    /// The command that the job is a part of, if the job works only at the keys that this names.
    fn again(&self) -> Option<&Again> {
        None
    }

    /// The only key, in the selected database, that the job works at.
    fn only_key(&self) -> Option<&Name> {
        None
    }

    /// The keys that it asks to have held.
    fn names(&self) -> Vec<&Name> {
        Vec::new()
    }

    /// The words that the job has still to look at.
    fn kept(&mut self) -> Option<&mut Kept> {
        None
    }
}

/// The log entry of a command that goes on in later turns, for when it turns out to be slow or its reply large.
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
    /// Time of all its steps together.
    pub took_us: u64,
    /// Whether that is the time of the command.
    pub is_timed: bool,
    /// Bytes that were replied.
    pub replied_bytes: u64,
    /// The entry to list if it took long or replied much.
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
            // The rules are compared once for each change.
            self.user = standing.snapshot();
            return false;
        }
        true
    }
}

impl Call<'_, '_, '_> {
    /// Does a command in steps: the first now; in a transaction all of them.
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
            // A command that may be read again already asks for memory in that way.
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
                // In a transaction nothing takes what is written, so that going on would never end.
                ended => {
                    self.out.rewind(mark);
                    return Err(ended.err().unwrap_or(Fail::HELD));
                }
            }
        }
        self.go_on_with(job);
        Ok(())
    }

    /// Whether what the job's next step wants is not there, but on its way.
    pub(crate) fn finds_none_for(&mut self, job: &dyn Job) -> bool {
        job.wants().is_some_and(|wants| self.finds_none(wants))
    }

    /// Whether there is no memory for so many items of so many bytes, and some is on its way. A transaction does not wait for it.
    pub(crate) fn finds_none(&mut self, (bytes, count): (usize, usize)) -> bool {
        !self.cx.guard.in_transaction() && !self.cx.guard.finds_memory(bytes, count)
    }

    /// Whether the failed step of a job may be made once more: it found no memory, and some is on its way.
    pub(crate) fn comes_for(&self, job: &dyn Job, fail: &Fail) -> bool {
        fail.is_no_memory() && self.cx.guard.memory_comes() && job.asks_again()
    }

    /// Leaves a job to the next turn.
    pub(crate) fn go_on_with(&mut self, job: impl Job + 'static) {
        *self.job = Some(UnderWay::new(job, self.row, self.client.standing.snapshot()));
        self.flow = Flow::Job;
        // A batch does not look at the flow, but at this.
        self.out.end_turn();
    }

    /// Leaves a job that waits: its first step is made at once, behind what is put aside.
    pub(crate) fn wait_with(&mut self, job: impl Job + 'static) {
        *self.job = Some(UnderWay::new(job, self.row, self.client.standing.snapshot()));
        self.flow = Flow::Job;
    }

    /// Notes a command that was just begun, with its time and bytes so far, if it goes on as a job. It is counted and listed when
    /// it has ended, by the time of all its steps without its waits. Returns whether it goes on.
    #[cold]
    pub(crate) fn begin_note(
        &mut self,
        row: RowId,
        args: Args<'_>,
        took_us: u64,
        replied_bytes: u64,
    ) -> bool {
        let Some(under_way) = &*self.job else { return false };
        // A command that waits would keep its words as long: they are kept only where short commands are listed, too.
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

    /// How long a job that has done nothing yet waits for the end of a pause that began since its command was read. `None` if it
    /// may begin. `changes`: it changes something.
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

    /// What to do behind a look for the lane that was in vain: look again in the next turn, or in some milliseconds if the client
    /// that has the lane only waits itself.
    pub(crate) fn await_lane(&self) -> Step {
        if self.cx.room.work().lane_rests() { Step::Sleep(LOOK_MS) } else { Step::More }
    }

    /// Work that one step may do, in nanoseconds.
    pub fn step_ns(&self) -> u64 {
        self.cx.room.work().left_ns(STEP_NS_MIN)
    }
}
