//! EXEC that takes longer than others should wait: it is done in steps, and is still one moment for other clients. All keys that
//! it names or watches are held from before the first command to behind the last ([`hold`]); its replies are kept until then.
//!
//! ```text
//! Notes the keys ─► Announces ─► Waits for requests of before ─► Weighs ─► Looks at the watches ─► Runs ─► replied
//!                                 └────────────────── the keys are held ──────────────────────────┘
//! ```
//!
//! A slice of commands is one transaction of the store, as an EXEC of one step is; between two slices items are evicted, and the
//! worker serves others. A command that alone takes longer than a slice is done in its own steps ([`IN_PARTS`]), or EXEC is
//! refused before the first command runs. EXEC is carried out even if its client has gone.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;
use larder_store::{DATABASES, Millis};

use super::weight::{EXEC_NS_MAX, Scale, TOO_LONG, told_ns, words_ns};
use super::{
    AtWork, NO_ROOM, Queue, Queued, Watches, begin_queued, end_queued, has_gone, make_room_for, run_queued,
    selected,
};
use crate::core::hold::{self, Hold, Keys};
use crate::core::output::Output;
use crate::core::work::{SLICE_NS, STEP_NS_MIN, copying_ns};
use crate::redis::call::{Call, Flow};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::permissions::Looked;
use crate::redis::reply::put_null_array;
use crate::redis::row::flag::IN_PARTS;
use crate::redis::row::{Command, Keys as Places, Weighs};
use crate::redis::steps::held::NOTE_NS;
use crate::redis::steps::job::{Job, Step};

/// The work for which EXEC may hold its keys, about.
const HELD_NS_MAX: u64 = 2_000_000_000;
/// A command of more work is done in its own steps, if it has some.
const ALONE_NS: u64 = SLICE_NS / 2;
/// Work to look at a watched key, and to weigh a command beside looking at its values.
const WATCH_NS: u64 = 300;
const WEIGH_NS: u64 = 300;
const WEIGH_WORD_NS: u64 = 15;
/// Words of a command with many keys that are weighed at a time; pairs are not split.
const WEIGHED_AT_ONCE: usize = 8 << 10;
/// Milliseconds that EXEC waits in all for memory that is on its way, while it holds keys.
const WAITS_MS_MAX: Millis = 2_000;
/// Milliseconds between two looks for that memory.
const WAIT_MS: Millis = 10;
/// Bytes of replies that are handed to the client's output at a time.
const SENT_BYTES: usize = 64 << 10;
/// Bytes noted of a command: its weight, and that it may not be run.
const COMMAND_BYTES: usize = size_of::<u32>() + size_of::<Denied>();

/// An EXEC in steps.
#[derive(Debug)]
struct Executing {
    queue: Box<Queue>,
    watches: Option<Box<Watches>>,
    /// The database in which the first command is run.
    db: u8,
    stage: Stage,
    /// Work of each command that is weighed, and of all of them.
    weights: Vec<u32>,
    ns: u64,
    /// The words of a command with many keys that are not weighed yet, and the work of those that are.
    unweighed: Option<Rest>,
    weighed_ns: u64,
    /// Work of the commands without keys, which may take no more than in an EXEC of one step.
    keyless_ns: u64,
    denied: Vec<Denied>,
    /// The errors of denied commands.
    fails: Vec<Fail>,
    /// The replies, until all of them are made.
    kept: Output,
    /// What the session does behind EXEC.
    flow: Flow,
    /// How long it has waited for memory.
    waited_ms: Millis,
    /// The charge for all notes.
    held: Option<Heap>,
}

/// A command that the client may not run any more: its place, and its error in `fails`.
#[derive(Clone, Copy, Debug)]
struct Denied {
    at: u32,
    fail: u32,
}

/// Marks of the databases by which later swaps are seen: the hash of a name in each.
type Marks = [u64; DATABASES as usize];

#[derive(Debug)]
enum Stage {
    /// Notes keys; `None`: from the first on.
    Notes(Option<Box<Noting>>),
    /// All keys are noted; the marks are those of their databases. Waits until no other command holds keys.
    Announces(Arc<Keys>, Marks),
    /// Waits until all requests are done that were begun before they could see the hold.
    Waits(Hold, Marks, u64),
    /// Weighs the commands that have no weight yet.
    Weighs(Hold, Box<Scale>),
    /// Looks at the watched keys, from this one on.
    Looks(Hold, usize),
    /// Runs the commands, from this one on.
    Runs(Hold, usize),
    /// Goes on with a command in its own steps.
    GoesOn(Hold, usize, Box<dyn Job>, AtWork),
    /// All commands were run, or none will be: sends the replies.
    Replies,
    Over,
}

/// Keys that are being noted.
#[derive(Debug)]
struct Noting {
    keys: Keys,
    /// The next command, or behind the last the next watched key; and the database in which it is run.
    at: usize,
    db: u8,
    /// The words of a command with many keys whose keys are not noted yet.
    rest: Option<Rest>,
    /// The marks when the first key was noted. A database that was swapped since has another.
    made: Marks,
}

fn marks(call: &Call<'_, '_, '_>) -> Marks {
    std::array::from_fn(|db| call.cx.guard.key_in(db as u8, b"").hash())
}

/// Begins an EXEC in steps in the next turn.
///
/// # Errors
/// There is no memory for its notes.
pub(super) fn begin(call: &mut Call<'_, '_, '_>, queue: Box<Queue>, watches: Option<Box<Watches>>) -> Done {
    let (mut names, mut notes) = (watched(watches.as_deref()), 0);
    for queued in &queue.commands {
        names += queued.words - queued.name;
        // Other commands change no value, or are noted by their bytes.
        let is_short = matches!(queued.row.weighs, Weighs::Nothing | Weighs::Value(_) | Weighs::Pairs);
        notes += usize::from(queued.row.elements || !is_short);
    }
    let commands = queue.commands.len();
    let bytes = Keys::bytes(names) + commands * COMMAND_BYTES + Scale::bytes(notes, queue.bytes.len());
    let Ok(held) = Heap::keep(call, bytes) else { return Err(NO_ROOM) };
    let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    call.go_on_with(Executing {
        queue,
        watches,
        db: call.client.db,
        stage: Stage::Notes(None),
        weights: Vec::with_capacity(commands),
        ns: 0,
        unweighed: None,
        weighed_ns: 0,
        keyless_ns: 0,
        denied: Vec::new(),
        fails: Vec::new(),
        kept,
        flow: Flow::Next,
        waited_ms: 0,
        held: Some(held),
    });
    Ok(())
}

fn watched(watches: Option<&Watches>) -> usize {
    watches.map_or(0, |watches| watches.keys.len())
}

/// The last words of a command: their bytes, and how many they are.
type Rest = (usize, usize);

fn rest_of(args: Args<'_>, (bytes, words): Rest) -> Args<'_> {
    let encoded = args.encoded();
    Args::rest(&encoded[encoded.len() - bytes..], words)
}

/// The distance from one key to the next in words, if all words from the first on are keys, or every so many.
fn step_of_keys(row: &Command) -> Option<usize> {
    match row.keys {
        _ if row.words() > 1 => None,
        Places::Range { first: 1, last: -1, step } => usize::try_from(step).ok().filter(|step| *step > 0),
        _ => None,
    }
}

impl Executing {
    /// Runs `f` with the kept replies as its output.
    fn within<'c, 'w, R>(
        &mut self,
        call: &mut Call<'_, 'c, 'w>,
        f: impl FnOnce(&mut Call<'_, 'c, 'w>, &Queue) -> R,
    ) -> R {
        let Executing { queue, kept, flow, .. } = self;
        call.replying_to(kept, |within| {
            (within.flow, within.admitted, within.later) = (*flow, true, false);
            within.client.executes = true;
            let done = f(within, queue);
            within.client.executes = false;
            if within.flow != Flow::Job {
                *flow = within.flow;
            }
            done
        })
    }

    /// Does a part of a stage, and returns the next one and what the step came to.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, stage: Stage) -> Result<(Stage, Step), Fail> {
        let stage = match stage {
            Stage::Notes(noting) => {
                // Keys noted before a swap of databases are others now; a second swap before the end would hide that.
                let noting = noting.filter(|noting| noting.made == marks(call));
                self.note_some(call, noting)?
            }
            Stage::Announces(_, made) if made != marks(call) => Stage::Notes(None),
            // Earlier replies are sent first: no client has to wait for one that does not read.
            Stage::Announces(keys, made) if !call.out.is_empty() => {
                return Ok((Stage::Announces(keys, made), Step::Full));
            }
            Stage::Announces(keys, made) => {
                let (now, shared) = (call.cx.now(), call.cx.shared);
                let Some(hold) = shared.pause.holds.take(&keys, now) else {
                    return Ok((Stage::Announces(keys, made), Step::Await(Some(hold::LOOK_MS))));
                };
                shared.pause.look();
                shared.look_in_time(now);
                call.spend(STEP_NS_MIN);
                Stage::Waits(hold, made, call.cx.guard.say())
            }
            Stage::Waits(hold, made, said) => {
                call.spend(STEP_NS_MIN);
                if !call.cx.guard.others_have_heard(said) {
                    Stage::Waits(hold, made, said)
                } else if made != marks(call) {
                    Stage::Notes(None)
                } else {
                    Stage::Weighs(hold, Box::new(Scale::new(call, 0)))
                }
            }
            Stage::Weighs(hold, mut scale) => {
                self.weigh_some(call, &mut scale)?;
                hold.step(call.cx.now());
                if self.weights.len() < self.queue.commands.len() {
                    Stage::Weighs(hold, scale)
                } else {
                    Stage::Looks(hold, 0)
                }
            }
            Stage::Looks(hold, at) => self.look_at_some(call, hold, at)?,
            Stage::Runs(hold, at) if self.awaits_memory(call, at) => {
                hold.step(call.cx.now());
                return Ok((Stage::Runs(hold, at), Step::Await(Some(WAIT_MS))));
            }
            Stage::Runs(hold, at) => self.run_some(call, hold, at),
            Stage::GoesOn(hold, at, job, at_work) => {
                return Ok(self.run_on(call, hold, at, (job, at_work)));
            }
            Stage::Replies => {
                let step = self.send(call);
                return Ok((Stage::Replies, step));
            }
            Stage::Over => return Ok((Stage::Over, Step::Done)),
        };
        Ok((stage, Step::More))
    }

    /// Notes as many keys as there is time for.
    fn note_some(&self, call: &mut Call<'_, '_, '_>, noting: Option<Box<Noting>>) -> Result<Stage, Fail> {
        let names = || self.queue.commands.iter().map(|queued| queued.words - queued.name).sum::<usize>();
        let mut noting = noting.unwrap_or_else(|| {
            let keys = Keys::of(names() + watched(self.watches.as_deref()));
            Box::new(Noting { keys, at: 0, db: self.db, rest: None, made: marks(call) })
        });
        let Noting { keys, at, db, rest, .. } = &mut *noting;
        let (until_ns, mut ns) = (call.step_ns(), 0);
        let commands = &self.queue.commands;
        while ns < until_ns && *at < commands.len() {
            let queued = &commands[*at];
            let args = queued.args(&self.queue.bytes);
            // A command in its own steps copies its words when it begins.
            if queued.row.has(IN_PARTS) && copying_ns(args.encoded().len() as u64) > EXEC_NS_MAX {
                return Err(TOO_LONG);
            }
            let Some(step) = step_of_keys(queued.row) else {
                if words_ns(queued.row, args) > EXEC_NS_MAX && !queued.row.has(IN_PARTS) {
                    return Err(TOO_LONG);
                }
                ns += NOTE_NS;
                queued.row.each_key(args, &mut |key| {
                    keys.note(call.cx.guard.key_in(*db, key).hash());
                    ns += NOTE_NS;
                });
                *db = selected(queued.row, args).unwrap_or(*db);
                *at += 1;
                continue;
            };
            let mut left = match *rest {
                None => args,
                Some(rest) => rest_of(args, rest),
            };
            while ns < until_ns
                && let Some(key) = left.next()
            {
                keys.note(call.cx.guard.key_in(*db, key).hash());
                if step > 1 {
                    left.nth(step - 2);
                }
                ns += NOTE_NS;
            }
            *rest = (!left.is_empty()).then(|| (left.encoded().len(), left.len()));
            if rest.is_none() {
                ns += NOTE_NS;
                *at += 1;
            }
        }
        let watches = self.watches.iter().flat_map(|watches| &watches.keys);
        if *at >= commands.len() {
            for watched in watches.skip(*at - commands.len()) {
                if ns >= until_ns {
                    call.spend(ns);
                    return Ok(Stage::Notes(Some(noting)));
                }
                keys.note(call.cx.guard.key_in(watched.db, &watched.key).hash());
                ns += NOTE_NS;
                *at += 1;
            }
        }
        call.spend(ns);
        Ok(if noting.at < commands.len() + watched(self.watches.as_deref()) {
            Stage::Notes(Some(noting))
        } else {
            Stage::Announces(Arc::new(noting.keys), noting.made)
        })
    }

    /// Weighs as many commands as there is time for. Their keys are held, so that only these commands change them.
    ///
    /// # Errors
    /// A command takes too long and cannot be done in steps, or all together do.
    fn weigh_some(&mut self, call: &mut Call<'_, '_, '_>, scale: &mut Scale) -> Done {
        let (until_ns, work) = (call.step_ns(), call.cx.room.work());
        let (began_ns, mut ns) = (work.done_ns(), 0);
        // Looking at fields is spent when it is done.
        while ns + (work.done_ns() - began_ns) < until_ns
            && let Some(queued) = self.queue.commands.get(self.weights.len())
        {
            let (row, args) = (queued.row, queued.args(&self.queue.bytes));
            let (before, db, by_words) = (scale.ns(), scale.db(), words_ns(row, args));
            if by_words > EXEC_NS_MAX && !row.has(IN_PARTS) {
                return Err(TOO_LONG);
            }
            let mut left = self.unweighed.map_or(args, |rest| rest_of(args, rest));
            let some = if left.len() > WEIGHED_AT_ONCE && row.has(IN_PARTS) && step_of_keys(row).is_some() {
                let some = Args::rest(left.encoded(), WEIGHED_AT_ONCE);
                left.nth(WEIGHED_AT_ONCE - 1);
                some
            } else {
                std::mem::replace(&mut left, Args::EMPTY)
            };
            scale.add(call, row, some);
            self.weighed_ns = self.weighed_ns.saturating_add(scale.ns() - before);
            ns += WEIGH_NS + some.len() as u64 * WEIGH_WORD_NS;
            self.unweighed = (!left.is_empty()).then(|| (left.encoded().len(), left.len()));
            if self.unweighed.is_some() {
                continue;
            }
            let weighed = std::mem::take(&mut self.weighed_ns);
            let takes = weighed.saturating_add(by_words + told_ns(call, row, db, args));
            if takes > EXEC_NS_MAX && !(row.has(IN_PARTS) && weighed <= EXEC_NS_MAX) {
                return Err(TOO_LONG);
            }
            self.weights.push(u32::try_from(takes).unwrap_or(u32::MAX));
            self.ns = self.ns.saturating_add(takes);
            if !row.keys.any() {
                self.keyless_ns = self.keyless_ns.saturating_add(weighed);
            }
        }
        call.spend(ns);
        if self.ns > HELD_NS_MAX || self.keyless_ns > EXEC_NS_MAX { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Looks at some watched keys, and behind the last whether the client may still run what it queued.
    fn look_at_some(&mut self, call: &mut Call<'_, '_, '_>, hold: Hold, at: usize) -> Result<Stage, Fail> {
        let (mut is_touched, mut next) = (false, at);
        if let Some(watches) = &self.watches {
            is_touched = watches.touched.load(Relaxed);
            let some = (call.step_ns() / WATCH_NS) as usize;
            for watched in watches.keys.iter().skip(at).take(some) {
                is_touched = is_touched || has_gone(call, watched);
                next += 1;
            }
            call.spend((next - at) as u64 * WATCH_NS);
        }
        hold.step(call.cx.now());
        if is_touched {
            drop(hold);
            if !call.client.replies.is_silent() {
                put_null_array(&mut self.kept, call.client.resp3);
            }
            self.forget(call);
            return Ok(Stage::Replies);
        }
        if next < watched(self.watches.as_deref()) {
            return Ok(Stage::Looks(hold, next));
        }
        self.ask(call)?;
        if !call.client.replies.is_silent() {
            let commands = self.queue.commands.len();
            self.within(call, |call, _| call.array(commands));
        }
        Ok(Stage::Runs(hold, 0))
    }

    /// Checks by the present rules whether the client may run what it queued: they hold for all of it.
    fn ask(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        if call.looks_too_long(&self.queue) {
            return Err(TOO_LONG);
        }
        let standing = &call.client.standing;
        if standing.is_free() || standing.is_as(&self.queue.user) {
            return Ok(());
        }
        let mut looked = Looked::default();
        for (at, queued) in self.queue.commands.iter().enumerate() {
            let args = queued.args(&self.queue.bytes);
            if let Err(fail) = call.permit_changed(queued, &self.queue.user, args, &mut looked) {
                let way = self.fails.iter().position(|way| way.text() == fail.text()).unwrap_or_else(|| {
                    self.fails.push(fail);
                    self.fails.len() - 1
                });
                self.denied.push(Denied { at: at as u32, fail: way as u32 });
            }
        }
        Ok(())
    }

    fn permitted(&self, at: usize) -> Done {
        let denied = self.denied.binary_search_by_key(&(at as u32), |denied| denied.at);
        denied.map_or(Ok(()), |place| Err(self.fails[self.denied[place].fail as usize].clone()))
    }

    /// Whether a command is done in its own steps.
    fn is_alone(&self, at: usize) -> bool {
        u64::from(self.weights[at]) > ALONE_NS && self.queue.commands[at].row.has(IN_PARTS)
    }

    /// The end of the slice of commands that begins with this one.
    fn end_of_slice(&self, at: usize, until_ns: u64) -> usize {
        let (mut end, mut ns) = (at, 0);
        while let Some(weight) = self.weights.get(end) {
            ns += u64::from(*weight);
            if end > at && (ns > until_ns || self.is_alone(end)) {
                break;
            }
            end += 1;
        }
        end
    }

    /// Whether the next command waits for memory that is on its way, while the worker serves others.
    fn awaits_memory(&mut self, call: &mut Call<'_, '_, '_>, at: usize) -> bool {
        let bytes = self.queue.commands.get(at).and_then(Queued::wanted_bytes);
        let awaits = self.may_wait() && bytes.is_some_and(|bytes| !call.cx.guard.finds_memory(bytes, 1));
        if awaits {
            self.waited_ms += WAIT_MS;
        }
        awaits
    }

    fn may_wait(&self) -> bool {
        self.waited_ms < WAITS_MS_MAX
    }

    /// Runs a slice of commands, at least one.
    fn run_some(&mut self, call: &mut Call<'_, '_, '_>, hold: Hold, at: usize) -> Stage {
        if at == self.queue.commands.len() {
            drop(hold);
            self.forget(call);
            return Stage::Replies;
        }
        if self.is_alone(at) {
            return self.run_alone(call, hold, at);
        }
        let until_ns = call.step_ns();
        let end = self.end_of_slice(at, until_ns);
        let some = if self.denied.is_empty() { at..at } else { at..end };
        let mut permitted = some.map(|at| self.permitted(at)).collect::<Vec<_>>().into_iter();
        let may_wait = self.may_wait();
        let (run, spent_ns) = self.within(call, |call, queue| {
            let work = call.cx.room.work();
            let before_ns = work.done_ns();
            call.give_way();
            make_room_for(call, queue, at..end);
            let began_ns = work.done_ns();
            call.cx.guard.begin_each(|take| {
                queue.each_key_of(at..end, call.client.db, &mut |_, db, key| take(db, key));
            });
            let mut run = 0;
            for queued in &queue.commands[at..end] {
                // Work that was not weighed is counted here.
                if run > 0 && work.done_ns() - began_ns >= until_ns {
                    break;
                }
                // EXEC waits for memory only between two slices.
                let bytes = queued.wanted_bytes().filter(|_| run > 0 && may_wait);
                if bytes.is_some_and(|bytes| !call.cx.guard.finds_memory(bytes, 1)) {
                    break;
                }
                run_queued(call, queued, queue, began_ns, permitted.next().unwrap_or(Ok(())));
                run += 1;
            }
            call.cx.guard.finish();
            call.out.end_reserve();
            (run, work.done_ns() - before_ns)
        });
        let ns: u64 = self.weights[at..at + run].iter().map(|ns| u64::from(*ns)).sum();
        call.spend(ns.saturating_sub(spent_ns));
        hold.step(call.cx.now());
        Stage::Runs(hold, at + run)
    }

    /// Begins a command that may leave a job.
    fn run_alone(&mut self, call: &mut Call<'_, '_, '_>, hold: Hold, at: usize) -> Stage {
        let permitted = self.permitted(at);
        let began = self.within(call, |call, queue| {
            let queued = &queue.commands[at];
            let began_ns = call.cx.room.work().done_ns();
            let (at_work, done) = begin_queued(call, queued, queue, began_ns, permitted);
            match call.job.take() {
                Some(under_way) if done.is_ok() => return Some((under_way.job, at_work)),
                _ => end_queued(call, queued, queue, at_work, done),
            }
            None
        });
        hold.step(call.cx.now());
        match began {
            Some((job, at_work)) => Stage::GoesOn(hold, at, job, at_work),
            None => Stage::Runs(hold, at + 1),
        }
    }

    /// Makes a step of a command's job.
    fn run_on(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        hold: Hold,
        at: usize,
        (mut job, mut at_work): (Box<dyn Job>, AtWork),
    ) -> (Stage, Step) {
        let (mut step, asks) = (Step::More, self.may_wait() && job.asks_again());
        let left = self.within(call, |call, queue| {
            let began_us = call.cx.host.clock_us();
            call.give_way();
            let exec = std::mem::replace(&mut call.row, queue.commands[at].id);
            let again = call.cx.guard.ask_again(asks);
            let done = job.step(call);
            call.cx.guard.ask_again(again);
            call.row = exec;
            let took_us = call.cx.host.clock_us().saturating_sub(began_us);
            at_work.took_us = at_work.took_us.map(|before_us| before_us + took_us);
            match done {
                Ok(Step::More | Step::Hold | Step::Full | Step::Await(_) | Step::Sleep(_)) => {
                    return Some((job, at_work));
                }
                // The step has done nothing.
                Err(fail) if asks && call.comes_for(&*job, &fail) => {
                    step = Step::Await(Some(WAIT_MS));
                    return Some((job, at_work));
                }
                Ok(Step::Done) => end_queued(call, &queue.commands[at], queue, at_work, Ok(())),
                Err(fail) => end_queued(call, &queue.commands[at], queue, at_work, Err(fail)),
            }
            None
        });
        hold.step(call.cx.now());
        if step != Step::More {
            self.waited_ms += WAIT_MS;
        }
        let stage = match left {
            Some((job, at_work)) => Stage::GoesOn(hold, at, job, at_work),
            None => Stage::Runs(hold, at + 1),
        };
        (stage, step)
    }

    /// Frees the queue, the watches and the notes: a client that does not read its replies holds these alone.
    fn forget(&mut self, call: &mut Call<'_, '_, '_>) {
        *self.queue = Queue::new(call);
        (self.watches, self.held) = (None, None);
        (self.weights, self.denied) = (Vec::new(), Vec::new());
        call.cx.guard.end_watches();
    }

    /// Sends as much of the replies as the client takes.
    fn send(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let (until_ns, mut ns) = (call.step_ns(), 0);
        let step = loop {
            if self.kept.is_empty() {
                call.flow = self.flow;
                break Step::Done;
            }
            if call.out.is_full() {
                break Step::Full;
            }
            if ns >= until_ns {
                break Step::More;
            }
            let bytes = self.kept.hand_on(call.out, SENT_BYTES);
            ns += copying_ns(bytes as u64);
        };
        call.spend(ns);
        step
    }
}

impl Job for Executing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        match self.go_on(call, stage) {
            Ok((stage, step)) => {
                self.stage = stage;
                Ok(step)
            }
            Err(fail) => {
                self.forget(call);
                Err(fail)
            }
        }
    }

    fn holds(&self) -> bool {
        let before = matches!(self.stage, Stage::Notes(_) | Stage::Announces(..));
        !before && self.must_end()
    }

    fn must_end(&self) -> bool {
        !matches!(self.stage, Stage::Replies | Stage::Over)
    }

    /// The rules are asked for all commands, before the first is run.
    fn asks_itself(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64
    }

    fn only_replies(&self) -> bool {
        matches!(self.stage, Stage::Replies | Stage::Over)
    }
}
