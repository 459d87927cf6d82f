//! Scripts that go on in later turns: those that have worked for long and have written nothing, and those that begin when their
//! worker's slice is over. A collection of the worker's Lua state goes on so, too, before EXEC takes its keys ([`Collecting`]).

use std::sync::Arc;

use larder_protocol::resp::Args;
use larder_script::{Berth, End};
use larder_store::Millis;

use super::compiling::Compiles;
use super::functions;
use super::run::{Asked, Pauses, Run, Then};
use super::worker::{Long, State, begin_long, end_long, long};
use super::{By, How};
use crate::core::hold::LOOK_MS;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::Command;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// A script that is to begin.
#[derive(Debug)]
pub(crate) struct Begins {
    how: How,
    kept: Kept,
    /// When it was asked for, by the host's clock.
    since_us: u64,
}

impl Job for Begins {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let words = self.kept.words();
        if waits(call, self.how, words, self.since_us)? {
            call.spend(LOOK_NS);
            // If scripts may run for ever, it waits for ever, but not for a client that has gone: such a script would end, too.
            let waited_us = call.cx.host.clock_us().saturating_sub(self.since_us);
            let is_late = call.shared.scripts.limit().is_none() && waited_us >= UNHEARD_US;
            return Ok(if is_late { Step::Await(Some(LOOK_MS)) } else { Step::Sleep(LOOK_MS) });
        }
        if let Some(ms) = paused_ms(call) {
            return Ok(Step::Sleep(ms));
        }
        self.how.begin(call, words, false)?;
        Ok(Step::Done)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

/// A run that was left in its worker's state, wherever that is. The run ends when this is dropped.
#[derive(Debug)]
struct Left {
    at: Berth<(Box<State>, Run)>,
    long: Arc<Long>,
}

impl Left {
    fn new(call: &Call<'_, '_, '_>, state: Box<State>, run: Run, prepares: bool) -> Left {
        let is_apart = run.compiles.as_ref().is_some_and(Compiles::is_apart);
        Left { long: begin_long(call, prepares, is_apart), at: Berth::new(Box::new((state, run))) }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        // The run has not ended: its client goes, or may no longer do what it asked for.
        let Some(at) = self.at.take() else { return };
        let (state, _run) = *at;
        self.long.leave(state);
    }
}

/// A script that goes on.
#[derive(Debug)]
struct Paused {
    left: Left,
    kept: Kept,
    keys: Span,
    args: Span,
    /// The script checks the rules for each of its commands. A run that only prepares does not: its client was allowed before
    /// what comes behind it.
    asks: bool,
}

/// Some of the last words of a request: how many, and their bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    count: usize,
    bytes: usize,
}

impl Span {
    fn of(words: Args<'_>) -> Span {
        Span { count: words.len(), bytes: words.encoded().len() }
    }

    fn words(self, all: Args<'_>) -> Args<'_> {
        let encoded = all.encoded();
        Args::rest(&encoded[encoded.len() - self.bytes..], self.count)
    }
}

/// Work to look whether a function still has to wait.
const LOOK_NS: u64 = 1_000;
/// If scripts may run for ever, one whose client has closed its side does so for no longer than this.
const UNHEARD_US: u64 = 5_000_000;

/// How long a script that has not begun waits for a pause that began since it was asked for.
fn paused_ms(call: &Call<'_, '_, '_>) -> Option<Millis> {
    call.paused_ms(|call| call.row.and_then(|id| call.shared.rows.row(id)).is_some_and(Command::changes))
}

/// Whether a script or library that was to begin now waits for the end of a pause.
pub(crate) fn is_paused(call: &Call<'_, '_, '_>) -> bool {
    !call.cx.guard.in_transaction() && paused_ms(call).is_some()
}

/// Whether a run that begins may go on in later turns.
pub(crate) fn pauses(call: &Call<'_, '_, '_>) -> Pauses {
    if call.cx.guard.in_transaction() {
        return Pauses::Forbidden;
    }
    long(call).map_or(Pauses::Allowed, |long| Pauses::Another { since_us: long.since_us })
}

/// Runs a script, to its end or in several turns.
pub(crate) fn run(
    call: &mut Call<'_, '_, '_>,
    mut state: Box<State>,
    mut run: Run,
    asked: Asked<'_>,
) -> Done {
    let mut kept = None;
    let pauses = pauses(call);
    let end = run.go_on(call, &mut state, asked, pauses, Some(&mut kept));
    match (end, kept) {
        (Some(end), _) => ended(call, state, run, asked.words, end),
        (None, Some(kept)) => {
            let (keys, args, asks) = (Span::of(asked.keys), Span::of(asked.args), !run.prepares());
            let left = Left::new(call, state, run, !asks);
            call.go_on_with(Paused { left, kept, keys, args, asks });
            Ok(())
        }
        (None, None) => Err(Fail::BUSY),
    }
}

/// Handles the end of a run: replies its result, or begins what was to come behind it.
fn ended(call: &mut Call<'_, '_, '_>, state: Box<State>, mut run: Run, words: Args<'_>, end: End) -> Done {
    if let Some(compiles) = run.compiles.take() {
        return compiles.end(call, state, &run, words, end);
    }
    if let (Some(then), End::Value(_)) = (run.then, &end) {
        state.give_back(call);
        return match then {
            Then::Run(how) if is_paused(call) => begin_later(call, how, words),
            Then::Run(_) | Then::Carry(_) => then.begin(call, words),
        };
    }
    let done = run.reply(call, &state, end);
    state.give_back(call);
    done
}

/// Collects the garbage in a state, in several turns if it is much, and then begins with `then`, which so does not fail for what
/// other runs left. `name`: what errors call it.
pub(crate) fn collect(
    call: &mut Call<'_, '_, '_>,
    mut state: Box<State>,
    name: Box<str>,
    words: Args<'_>,
    then: Then,
) -> Done {
    state.make_room();
    let collecting = Run::collecting(call, state.engine.nothing(), name, Some(then));
    run(call, state, collecting, Asked { words, keys: Args::EMPTY, args: Args::EMPTY })
}

impl Job for Paused {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        // A state stays on the thread of its worker.
        let Some(mut at) = self.left.at.take() else { return Err(Fail::BUSY) };
        if let Some(how) = at.1.begins_anew()
            && is_paused(call)
        {
            // The state has nothing of the run: other scripts of the worker need not wait for the end of the pause.
            let (state, _run) = *at;
            end_long(call);
            state.give_back(call);
            // Its words are kept already: for another copy of them there may be no room.
            begin_with(call, how, std::mem::take(&mut self.kept));
            return Ok(Step::Done);
        }
        let (state, run) = &mut *at;
        let words = self.kept.words();
        let asked = Asked { words, keys: self.keys.words(words), args: self.args.words(words) };
        match run.go_on(call, state, asked, Pauses::Allowed, None) {
            Some(end) => {
                let (state, run) = *at;
                end_long(call);
                ended(call, state, run, words, end).map(|()| Step::Done)
            }
            None => {
                self.left.at.put(at);
                // A client that has closed its sending side still gets a reply that comes in time. After that the script ends
                // if its client is gone, which a worker notices only of commands that wait.
                let limit_us =
                    call.shared.scripts.limit().map_or(UNHEARD_US, |limit| limit.as_micros() as u64);
                let is_late = call.cx.host.clock_us().saturating_sub(self.left.long.since_us) >= limit_us;
                Ok(if is_late { Step::Await(Some(0)) } else { Step::More })
            }
        }
    }

    fn asks_itself(&self) -> bool {
        self.asks
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

/// EXEC with scripts, which waits until the garbage in its worker's state is collected before it takes its keys. Otherwise one of
/// its scripts would collect it, in one step of some hundred milliseconds, while others wait for these keys.
#[derive(Debug)]
pub(crate) enum Collecting {
    /// EXEC collects the state itself.
    Itself(Collection),
    /// Another client's command does. EXEC has waited since then.
    Another { since_us: u64 },
}

impl Collecting {
    /// What EXEC waits for. `None` if its scripts find enough room that they collect only their own garbage, or if they run on a
    /// second state, beside a script that goes on in later turns. `since_us`: since when EXEC has waited, if it has.
    pub fn before_exec(call: &mut Call<'_, '_, '_>, since_us: Option<u64>) -> Option<Collecting> {
        if let Some(long) = long(call) {
            let since_us = since_us.unwrap_or_else(|| call.cx.host.clock_us());
            return is_over_soon(call, &long, since_us).then_some(Collecting::Another { since_us });
        }
        // If Lua cannot be begun, the scripts reply that.
        let mut state = State::of(call).ok()?;
        if !state.engine.is_half_due() {
            state.give_back(call);
            return None;
        }
        // Compiled scripts stay: there is room for them.
        state.engine.make_room();
        let run = Run::collecting(call, state.engine.nothing(), "EXEC".into(), None);
        Some(Collecting::Itself(Collection(Preparing::new(call, state, run))))
    }

    /// Does a part of it. Returns what the step came to, or `None` if EXEC waits no longer.
    pub fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Option<Step> {
        match self {
            Collecting::Itself(collection) => (!collection.step(call)).then_some(Step::More),
            Collecting::Another { since_us } => {
                let since_us = *since_us;
                let waits = long(call).is_some_and(|long| is_over_soon(call, &long, since_us));
                waits.then_some(Step::Await(Some(LOOK_MS)))
            }
        }
    }
}

/// How long EXEC waits for collections that others have begun: each stands still while its client takes no replies, and another
/// may begin behind it.
const COLLECTS_US_MAX: u64 = 1_000_000;

/// Whether the run in later turns only prepares, and has not taken long, nor has the wait of EXEC, which began at `since_us`.
fn is_over_soon(call: &Call<'_, '_, '_>, long: &Long, since_us: u64) -> bool {
    long.prepares && call.cx.host.clock_us().saturating_sub(long.since_us.min(since_us)) < COLLECTS_US_MAX
}

/// A worker's state that is collected in several turns.
#[derive(Debug)]
pub(crate) struct Collection(Preparing);

impl Collection {
    /// Does a turn's part; true when it is over. A collection that SCRIPT KILL ended is over, too.
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> bool {
        match self.0.step(call) {
            Ok(None) => false,
            Ok(Some((state, ..))) => {
                state.give_back(call);
                true
            }
            Err(_) => true,
        }
    }
}

/// A run that prepares for another job, in several turns of that job: it collects a state, or compiles a text.
#[derive(Debug)]
pub(crate) struct Preparing(Left);

impl Preparing {
    /// Begins. The caller has checked that no other script of the worker goes on in later turns ([`is_alone`]).
    pub fn new(call: &Call<'_, '_, '_>, state: Box<State>, run: Run) -> Preparing {
        Preparing(Left::new(call, state, run, true))
    }

    /// Does a turn's part; returns the state, the run and its end when it is over.
    ///
    /// # Errors
    /// The state is on the thread of another worker.
    pub fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<(Box<State>, Run, End)>, Fail> {
        let Some(mut at) = self.0.at.take() else { return Err(Fail::BUSY) };
        let (state, run) = &mut *at;
        let asked = Asked { words: Args::EMPTY, keys: Args::EMPTY, args: Args::EMPTY };
        let Some(end) = run.go_on(call, state, asked, Pauses::Allowed, None) else {
            self.0.at.put(at);
            return Ok(None);
        };
        let (state, run) = *at;
        end_long(call);
        Ok(Some((state, run, end)))
    }
}

/// Whether a script may go on in later turns, and no other of the worker does.
pub(crate) fn is_alone(call: &Call<'_, '_, '_>) -> bool {
    matches!(pauses(call), Pauses::Allowed)
}

/// Whether a script has to wait. A function's variables are in the worker's state, which a script in later turns may have.
/// Functions that keep nothing, scripts, and all in EXEC, where nothing waits, run on a second state. `since_us`: when it was
/// asked for.
///
/// # Errors
/// The other script has gone on, or this one has waited behind several, for as long as others wait.
fn waits(call: &Call<'_, '_, '_>, how: How, words: Args<'_>, since_us: u64) -> Result<bool, Fail> {
    if how.by != By::Name || call.cx.guard.in_transaction() {
        return Ok(false);
    }
    let long = long(call).filter(|long| !long.is_apart && functions::keeps(call, words));
    let Some(long) = long else { return Ok(false) };
    let waited_us = call.cx.host.clock_us().saturating_sub(long.since_us.min(since_us));
    match call.shared.scripts.limit() {
        Some(limit) if u128::from(waited_us) >= limit.as_micros() => Err(Fail::BUSY),
        Some(_) | None => Ok(true),
    }
}

/// Whether a script should begin in a later turn: its worker's slice is nearly spent, or the script has to wait.
///
/// # Errors
/// What it would wait for takes too long.
pub(crate) fn is_late(call: &Call<'_, '_, '_>, how: How, words: Args<'_>) -> Result<bool, Fail> {
    let is_late = call.cx.room.work().budget_nearly_spent() && !call.cx.guard.in_transaction();
    Ok(is_late || waits(call, how, words, u64::MAX)?)
}

/// Begins a script in the next turn.
///
/// # Errors
/// There is no room to keep its words until then.
pub(crate) fn begin_later(call: &mut Call<'_, '_, '_>, how: How, words: Args<'_>) -> Done {
    let kept = Kept::new(call, words)?;
    begin_with(call, how, kept);
    Ok(())
}

/// Has a script begin in the next turn, whose words are kept.
fn begin_with(call: &mut Call<'_, '_, '_>, how: How, kept: Kept) {
    let since_us = call.cx.host.clock_us();
    call.go_on_with(Begins { how, kept, since_us });
}
