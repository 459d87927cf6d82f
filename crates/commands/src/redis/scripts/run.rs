//! A run of a script, which is one moment: no client sees what it does before it has ended, and no other client does anything to
//! its keys meanwhile.
//!
//! ```text
//! nothing held ─► its first command: keys taken ─► begun ─► reads an undeclared key ─► begun anew with it, too
//!      │                                              └───► writes, and is not known to name its keys ─► begun anew
//!      │                                                                         with the store to itself
//!      └─► works for long before it writes ─► gives up its keys, and goes on in later turns
//! ```
//!
//! 1. From its first command on it holds the keys that it declares.
//! 2. Before its first write it may be begun anew, as if it had not run: with an undeclared key that it named, or, after some of
//!    these or for what concerns all keys, with the store to itself.
//! 3. Behind its first write it can get no more keys without other clients seeing half of its work. So at its first write it gets
//!    the store to itself, unless it named all of its keys in many runs before: then it holds only these.
//! 4. If such a script does name another key behind its first write, that is an error, and the script is no longer trusted.
//! 5. A run that has worked for a millisecond and has not written gives up what it holds, and its worker serves others between
//!    its steps. If it called a command before, and calls another, it is begun anew, and then may hold its keys for eight times
//!    as long. So a command that wants them, or to end it, waits at most eight times as long as the run has worked already, and
//!    the work done in vain is little more than the rest.
//! 6. A run that holds its keys for as long as `busy-reply-threshold` says is ended, written or not.
//! 7. A run that finds no memory before its first write is begun anew, once, in a state without garbage: it does not fail for
//!    what earlier runs left. Where compiling finds no memory, a run of nothing does the same.
//! 8. A run that went on in later turns, and is about to write for the first time while clients are paused (CLIENT PAUSE), is
//!    begun anew when the pause is over.
//! 9. The run's reply, if a table, is written as part of the run, but holds no keys any more. That, too, goes on in later turns
//!    if it takes long, even if the run has written, and then has the same time.
//!
//! In EXEC the store is held anyway, and every run to its end.
//!
//! A function that may keep something in variables of its library would find there what an abandoned run of it left. So it has
//! the store to itself from its first command on, until its declared keys were enough in many runs that wrote, or in many that
//! did not. From then on it holds these. If it then names another key, or writes for the first time, it is begun anew once, and
//! its next runs have the store to themselves again. It may hold its keys for eight milliseconds, by its thread's own time. For
//! want of memory (7.) it is begun anew as others are, in EXEC, too.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_script::{Caller, Compiled, End, Given, Kind, Level, Running, Shown, Sink, Stop, Tick};

use super::How;
use super::cache::Nature;
use super::compiling::Compiles;
use super::logged::Logged;
use super::worker::State;
use crate::core::acl::log::Whence;
use crate::core::calls::RowId;
use crate::core::output::Output;
use crate::redis::call::{Call, Flow, OfArgs};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_fail;
use crate::redis::row::flag::{DENYOOM, EMPTIES, FAST, NOSCRIPT};
use crate::redis::row::{Command, Run as Runs};
use crate::redis::rows::Rows;
use crate::redis::sizes::item_bytes;
use crate::redis::steps::kept::Kept;
use std::sync::atomic::Ordering::Relaxed;

/// How many times a run is begun anew for undeclared keys. At the last of these it gets the store to itself.
const RUNS_MAX: usize = 4;
/// Up to so many declared keys are compared one by one; more are looked up in a set. A command adds no more undeclared ones at
/// once.
const FEW_KEYS: usize = 16;
/// Bytes of all undeclared keys together; a script that names more gets the store to itself.
const KEYS_BYTES_MAX: usize = 16 << 10;
/// The work of a script between two looks at it, or more.
pub(crate) const TICK_NS: u64 = 100_000;
/// The work of one step in ticks, about a millisecond; then the script goes on in the next turn.
const TICKS: u32 = 10;
/// The clock is read behind each command that may take long, and behind one of so many fast ones.
const CALLS: u32 = 16;
/// A run that is begun anew because it gave up its keys may hold them so many times as long.
const LONGER: u32 = 8;

/// Words of a function's command that are shown, and bytes of each.
const SHOWN_WORDS_MAX: usize = 16;
const SHOWN_BYTES_MAX: usize = 128;

/// What was asked for: a script's keys and arguments.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// All words behind the command's name.
    pub words: Args<'a>,
    pub keys: Args<'a>,
    pub args: Args<'a>,
}

/// Whether a run may go on in later turns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pauses {
    /// The run goes on in later turns when it has worked for long.
    Allowed,
    /// The run is in EXEC, which is one moment.
    Forbidden,
    /// Another script of the worker has been under way since this time.
    Another { since_us: u64 },
}

/// What begins behind a run that only collects garbage in its state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// A script.
    Run(How),
    /// A command's function.
    Carry(OfArgs),
}

impl Then {
    /// Begins it. `words`: those behind the command's name.
    pub fn begin(self, call: &mut Call<'_, '_, '_>, words: Args<'_>) -> Done {
        match self {
            Then::Run(how) => how.begin(call, words, true),
            Then::Carry(carry) => carry(call, words),
        }
    }
}

/// A run under way.
#[derive(Debug)]
pub(crate) struct Run {
    nature: Arc<Nature>,
    compiled: Compiled,
    /// How the script was asked for; `None` for a run that only prepares for a script.
    how: Option<How>,
    /// The run may change nothing.
    reads: bool,
    /// The database of its declared keys, and the one that it has selected.
    own_db: u8,
    db: u8,
    /// The next step begins the run, for the first time or anew.
    begins: bool,
    /// When the run began.
    began_us: u64,
    /// It has called a command, and given up its keys since.
    lost: bool,
    /// It was begun anew for want of memory.
    has_room: bool,
    plan: Plan,
    logged: Logged,
    /// What begins behind this run when it has ended.
    pub then: Option<Then>,
    /// The command for which it compiles a text.
    pub compiles: Option<Compiles>,
}

/// What a run holds.
#[derive(Debug)]
struct Plan {
    /// It has the store to itself.
    whole: bool,
    /// How often it was begun anew.
    runs: usize,
    /// Keys that it did not declare, with their databases.
    keys: Vec<(u8, Box<[u8]>)>,
    /// Ticks for which it may hold its keys before it gives them up.
    ticks: u32,
}

impl Plan {
    fn of(nature: &Nature) -> Plan {
        Plan { whole: false, runs: 0, keys: Vec::new(), ticks: ticks_at_first(nature) }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>, db: u8, keys: Args<'_>) {
        if self.whole {
            return call.cx.guard.begin_whole();
        }
        call.cx.guard.begin_each(|take| {
            keys.for_each(|key| take(db, key));
            self.keys.iter().for_each(|(db, key)| take(*db, key));
        });
    }

    fn add(&mut self, keys: Vec<(u8, Box<[u8]>)>, all: bool) {
        self.whole |= all;
        self.keys.extend(keys);
    }
}

/// Ticks for which a run may hold its keys at first: a run that keeps variables should not be begun anew, and gets more.
fn ticks_at_first(nature: &Nature) -> u32 {
    if nature.keeps { TICKS * LONGER } else { TICKS }
}

const NOT_WITHOUT_MEMORY: Fail =
    Fail::of("OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'");

impl Run {
    /// Makes a run of a script in the client's database.
    ///
    /// # Errors
    /// The script may write and is asked for as read-only; or there is no memory for what it may write.
    pub fn new(
        call: &mut Call<'_, '_, '_>,
        nature: Arc<Nature>,
        compiled: Compiled,
        args: Args<'_>,
        how: How,
    ) -> Result<Run, Fail> {
        if nature.needs_memory() {
            // Known only now: EXEC has queued it before it was loaded.
            if call.shared.starved_bytes.load(Relaxed) > 0 {
                return Err(NOT_WITHOUT_MEMORY);
            }
            if !call.cx.guard.has_room(item_bytes(args)) {
                return Err(Fail::OUT_OF_MEMORY);
            }
        }
        if how.reads && nature.says && !nature.no_writes {
            return Err(Fail::of("ERR Can not execute a script with write flag using *_ro command."));
        }
        let reads = how.reads || nature.no_writes;
        Ok(Run { how: Some(how), ..Run::of(call.client.db, nature, compiled, reads) })
    }

    /// Makes a run of `nothing`, which collects the garbage of its state; `then` begins behind it.
    pub fn collecting(call: &Call<'_, '_, '_>, nothing: Compiled, name: Box<str>, then: Option<Then>) -> Run {
        let nature = Arc::new(Nature::of_collection(name));
        Run { has_room: true, then, ..Run::of(call.client.db, nature, nothing, true) }
    }

    /// Makes a run of `nothing` that compiles the text which its state was given.
    pub fn compiling(call: &Call<'_, '_, '_>, nothing: Compiled, name: Box<str>, compiles: Compiles) -> Run {
        let nature = Arc::new(Nature::of_collection(name));
        Run { compiles: Some(compiles), ..Run::of(call.client.db, nature, nothing, true) }
    }

    fn of(db: u8, nature: Arc<Nature>, compiled: Compiled, reads: bool) -> Run {
        let (begins, began_us, lost, has_room) = (true, 0, false, false);
        let (plan, logged) = (Plan::of(&nature), Logged::default());
        Run {
            nature,
            compiled,
            how: None,
            reads,
            own_db: db,
            db,
            begins,
            began_us,
            lost,
            has_room,
            plan,
            logged,
            then: None,
            compiles: None,
        }
    }

    /// Whether the run only prepares: it collects garbage, or compiles a text.
    pub fn prepares(&self) -> bool {
        self.then.is_some() || self.compiles.is_some()
    }

    /// How to ask for the script again: a run that was left begins anew, since it was about to write amid a pause.
    pub fn begins_anew(&self) -> Option<How> {
        self.how.filter(|_| self.begins)
    }

    /// The kind of the text: script, function, or what is compiled.
    fn kind(&self) -> Kind {
        match &self.compiles {
            Some(compiles) => compiles.kind(),
            None if self.nature.is_function => Kind::Function,
            None => Kind::Script,
        }
    }

    /// Works until the run ends, and returns the end; or until it has had its step (`None`): then `kept` has its words. `kept` is
    /// `None` where they are kept already.
    pub fn go_on(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        state: &mut State,
        asked: Asked<'_>,
        pauses: Pauses,
        mut kept: Option<&mut Option<Kept>>,
    ) -> Option<End> {
        let (db, resp3) = (call.client.db, call.client.resp3);
        let end = loop {
            let step_us = call.cx.host.clock_us();
            if std::mem::take(&mut self.begins) {
                (self.db, self.began_us, self.lost) = (self.own_db, step_us, false);
                let kind = self.kind();
                let reply_bytes_max = call.cx.guard.store().held_bytes_max() as usize;
                let (keys, args, is_timed) = (asked.keys, asked.args, self.nature.keeps);
                let given = Given { keys, args, kind, resp3, reply_bytes_max, is_timed };
                if !state.engine.begin(&self.compiled, given) {
                    break Some(End::NoMemory);
                }
            }
            call.client.db = self.db;
            let held_before = call.cx.guard.in_transaction();
            let mut runner = Runner {
                nature: &self.nature,
                own_db: self.own_db,
                plan: &mut self.plan,
                logged: &mut self.logged,
                lost: self.lost,
                held_before,
                holds: held_before,
                declared: OnceCell::new(),
                asked,
                reads: self.reads,
                replies: false,
                out: &mut state.out,
                running: &state.running,
                copied: Vec::new(),
                undeclared: false,
                began_us: self.began_us,
                ticks: 0,
                step_us,
                calls: 0,
                was_fast: true,
                beside_us: 0,
                pauses,
                kept: kept.as_deref_mut(),
                waits: false,
                call: &mut *call,
            };
            let end = state.engine.go_on(&self.nature.name, &mut runner);
            let (holds, waits) = (runner.holds && !held_before, runner.waits);
            if holds {
                runner.let_go(matches!(end, Some(End::Value(_) | End::TooLarge)));
            }
            self.db = call.client.db;
            match end {
                Some(End::Stopped { stop: Stop::Again, .. }) => {
                    self.begins = true;
                    self.logged.begin_anew();
                    if waits {
                        break None;
                    }
                }
                Some(End::NoMemory) if !self.has_room && !state.running.has_written() => {
                    (self.begins, self.has_room) = (true, true);
                    self.logged.begin_anew();
                    state.make_room();
                }
                // It has written: the next run finds the room that this one did not.
                Some(End::NoMemory) if !self.has_room => {
                    state.make_room();
                    break Some(End::NoMemory);
                }
                None => {
                    self.lost |= holds;
                    break None;
                }
                end => break end,
            }
        };
        (call.client.db, call.client.resp3) = (db, resp3);
        if end.is_some() {
            self.logged.write(call);
        }
        end
    }

    /// Replies the script's result, or why it ended.
    pub fn reply(&self, call: &mut Call<'_, '_, '_>, state: &State, end: End) -> Done {
        let name = &self.nature.name;
        match end {
            End::Value(outcome) => {
                let (mark, row) = (call.out.mark(), call.row);
                let mut reply = Reply { call, has_failed: false };
                if !state.engine.write(outcome, &mut reply) {
                    reply.call.out.rewind(mark);
                    return Err(Fail::HELD);
                }
                // A reply with an error in it counts as a failure of the script.
                if let (true, Some(row)) = (reply.has_failed, row) {
                    reply.call.cx.counters.rows.failed(row);
                }
                Ok(())
            }
            End::TooLarge => Err(Fail::HELD),
            // The script's bytes, each as one character.
            End::Failed { text, is_counted } => {
                let fail = Fail::with(text.into_iter().map(char::from).collect());
                Err(if is_counted { fail.counted() } else { fail })
            }
            // Redis says so of functions, too, whichever command killed them.
            End::Stopped { stop: Stop::Killed, place } => {
                Err(Fail::with(format!("ERR Script killed by user with SCRIPT KILL... script: {place}")))
            }
            End::Stopped { stop: Stop::TooLong, place } => Err(Fail::with(format!(
                "ERR Script ended: it ran for longer than busy-reply-threshold, what it wrote before stays. script: {place}"
            ))),
            End::Stopped { stop: Stop::Busy, .. } => Err(Fail::BUSY),
            End::Stopped { stop: Stop::Again, .. } | End::NoMemory => {
                Err(Fail::with(format!("ERR Error running script {name}, not enough memory")))
            }
        }
    }
}

/// The keys that a script declares.
enum Declared<'a> {
    Few(Args<'a>),
    Many(HashSet<&'a [u8]>),
}

impl<'a> Declared<'a> {
    fn of(keys: Args<'a>) -> Declared<'a> {
        if keys.len() <= FEW_KEYS { Declared::Few(keys) } else { Declared::Many(keys.collect()) }
    }

    fn has(&self, key: &[u8]) -> bool {
        match self {
            Declared::Few(keys) => keys.clone().any(|declared| declared == key),
            Declared::Many(keys) => keys.contains(key),
        }
    }
}

/// The server as a script sees it.
struct Runner<'r, 'x, 'c, 'w> {
    call: &'r mut Call<'x, 'c, 'w>,
    nature: &'r Nature,
    /// The database of its declared keys.
    own_db: u8,
    plan: &'r mut Plan,
    logged: &'r mut Logged,
    /// It has called a command, and given up its keys since.
    lost: bool,
    /// Its keys were held before it began: it is in EXEC.
    held_before: bool,
    /// The run holds what its plan says.
    holds: bool,
    /// Made at first use: a script that calls no command in a step does not need it.
    declared: OnceCell<Declared<'r>>,
    asked: Asked<'r>,
    reads: bool,
    /// The script has ended, and its reply is being written: it holds no keys.
    replies: bool,
    out: &'r mut Output,
    running: &'r Running,
    /// A reply that has values pinned in the store is copied to here.
    copied: Vec<u8>,
    /// It has named a key that it did not declare.
    undeclared: bool,
    began_us: u64,
    /// Ticks of work in this step.
    ticks: u32,
    /// When this step began, how many commands were called since, and whether the last of them was a fast one.
    step_us: u64,
    calls: u32,
    was_fast: bool,
    /// Time since the last [`Caller::beside`] that is not the script's own work: commands that are not fast, and waits for its
    /// keys.
    beside_us: u64,
    pauses: Pauses,
    /// Where the words are kept when the run is left. `None` if they are kept already.
    kept: Option<&'r mut Option<Kept>>,
    /// It was about to write amid a pause that began since it was left: it begins anew behind that.
    waits: bool,
}

/// Why a command of a script was not carried out.
enum Trouble {
    Fail(Fail),
    Stop(Stop),
}

impl From<Fail> for Trouble {
    fn from(fail: Fail) -> Trouble {
        Trouble::Fail(fail)
    }
}

impl Caller for Runner<'_, '_, '_, '_> {
    fn given(&self) -> (Args<'_>, Args<'_>) {
        (self.asked.keys, self.asked.args)
    }

    fn call(&mut self, words: Args<'_>, resp3: bool) -> Result<&[u8], Stop> {
        self.is_in_time()?;
        self.out.clear();
        self.call.client.resp3 = resp3;
        match self.carry_out(words) {
            Ok(()) => {}
            Err(Trouble::Stop(stop)) => return Err(stop),
            Err(Trouble::Fail(fail)) => {
                self.call.count_error(&fail);
                put_fail(self.out, &fail);
            }
        }
        if self.out.is_plain() {
            return Ok(self.out.contiguous().unwrap_or_default());
        }
        // Nothing may be made of more than the state can hold.
        let most = self.call.cx.guard.store().held_bytes_max();
        if self.out.len() > most {
            return Ok(b"-ERR not enough memory\r\n");
        }
        self.copied = self.out.to_vec();
        self.out.clear();
        Ok(&self.copied)
    }

    fn may_call(&mut self, words: Args<'_>) -> Option<bool> {
        find(self.call.shared.rows, words).map(|(row, id, name)| {
            let mut args = words;
            args.nth(name - 1);
            self.call.is_allowed(row).is_ok() && self.call.may_call(row, id, args)
        })
    }

    fn log(&mut self, level: Level, text: &[u8]) {
        let is_final = self.is_held_to_its_end();
        self.logged.add(self.call, level, text, is_final);
    }

    fn tick(&mut self, took_ns: u64) -> Result<Tick, Stop> {
        self.call.cx.room.work().spend(took_ns);
        self.ticks = self.ticks.saturating_add(ticks_of(took_ns));
        if self.nature.is_function && self.running.shown().is_none() {
            let some = self.asked.words.take(SHOWN_WORDS_MAX);
            let words = some.map(|word| word[..word.len().min(SHOWN_BYTES_MAX)].to_vec());
            let words = std::iter::once(b"fcall".to_vec()).chain(words).collect();
            self.running.show(Shown { name: self.nature.name.to_string(), words, since_us: self.began_us });
        }
        self.is_in_time()?;
        if self.ticks < self.ticks_max() { Ok(Tick::GoOn) } else { self.pause() }
    }

    fn replies(&mut self) {
        self.replies = true;
        if self.holds && !self.held_before {
            self.let_go(true);
        }
    }

    fn beside(&mut self) -> Duration {
        Duration::from_micros(std::mem::take(&mut self.beside_us))
    }

    fn answered(&mut self) -> Result<Tick, Stop> {
        self.calls += 1;
        // A fast command counts as the script's own work. Where work is measured by the thread's time, no other clock is read.
        if self.was_fast && (self.nature.keeps || !self.calls.is_multiple_of(CALLS)) {
            return Ok(Tick::GoOn);
        }
        let took_us = self.call.cx.host.clock_us().saturating_sub(self.step_us);
        let ticks = took_us * 1000 / TICK_NS;
        if ticks < u64::from(self.ticks_max()) { Ok(Tick::GoOn) } else { self.pause() }
    }
}

impl Runner<'_, '_, '_, '_> {
    /// Ticks of one step.
    fn ticks_max(&self) -> u32 {
        if self.holds { self.plan.ticks } else { TICKS }
    }

    /// Lets go of what the run holds: it has ended, or goes on later. `is_done`: it ended with a value.
    fn let_go(&mut self, is_done: bool) {
        self.call.cx.guard.finish();
        self.holds = false;
        if !self.plan.whole {
            return;
        }
        if self.running.has_written() {
            self.nature.note_run(self.undeclared);
        } else if self.nature.keeps && (is_done || self.undeclared) {
            self.nature.note_read(self.undeclared);
        }
    }

    /// Ends the run's step, if it may go on in the next turn.
    fn pause(&mut self) -> Result<Tick, Stop> {
        if self.is_held_to_its_end() && (self.held_before || !self.replies) {
            return Ok(Tick::GoOn);
        }
        match self.pauses {
            Pauses::Allowed => {}
            Pauses::Forbidden => return Ok(Tick::GoOn),
            Pauses::Another { .. } if self.running.has_written() => return Ok(Tick::GoOn),
            Pauses::Another { since_us } if self.is_over(since_us) => return Err(Stop::Busy),
            Pauses::Another { .. } => return Ok(Tick::GoOn),
        }
        let Some(kept) = self.kept.as_deref_mut() else { return Ok(Tick::Pause) };
        if kept.is_none() {
            *kept = Kept::new(self.call, self.asked.words).ok();
        }
        if kept.is_some() {
            return Ok(Tick::Pause);
        }
        // Connections hold as much memory as they may, so that the words cannot be kept: the run keeps its worker, within its
        // time.
        if self.is_over(self.began_us) { Err(Stop::TooLong) } else { Ok(Tick::GoOn) }
    }
}

/// Finds the row of a command, and how many words its name has.
fn find(rows: &Rows, words: Args<'_>) -> Option<(&'static Command, RowId, usize)> {
    let mut rest = words;
    let (row, id) = rows.find(rest.next()?)?;
    if let Runs::Container(subcommands) = row.run
        && let Some(name) = rest.next()
    {
        let at = row.subcommand(name)?;
        return Some((&subcommands[at], rows.sub(id, at), 2));
    }
    Some((row, id, 1))
}

impl Runner<'_, '_, '_, '_> {
    /// Whether a step ends only with the run or its time: the run is in EXEC, or has written.
    fn is_held_to_its_end(&self) -> bool {
        self.held_before || self.running.has_written()
    }

    /// Whether `busy-reply-threshold` has passed since this time.
    fn is_over(&self, since_us: u64) -> bool {
        let limit = self.call.shared.scripts.limit();
        limit.is_some_and(|limit| {
            u128::from(self.call.cx.host.clock_us().saturating_sub(since_us)) >= limit.as_micros()
        })
    }

    /// Checks the time of a run that keeps others waiting.
    ///
    /// # Errors
    /// It has run for as long as it may.
    fn is_in_time(&self) -> Result<(), Stop> {
        let holds_longer = self.holds && self.plan.ticks > ticks_at_first(self.nature);
        let may_pause = matches!(self.pauses, Pauses::Allowed);
        let keeps_others = !may_pause || holds_longer || self.is_held_to_its_end();
        if keeps_others && self.is_over(self.began_us) { Err(Stop::TooLong) } else { Ok(()) }
    }

    fn carry_out(&mut self, words: Args<'_>) -> Result<(), Trouble> {
        let Some((row, id, name)) = find(self.call.shared.rows, words) else {
            return Err(Fail::of("ERR Unknown Redis command called from script").into());
        };
        let writes = row.changes() || row.has(EMPTIES);
        let wrote = self.running.has_written();
        if let Err(fail) = self.admit(row, (id, name), words, writes, wrote) {
            self.call.cx.counters.rows.refused(id);
            return Err(fail.into());
        }
        let mut args = words;
        args.nth(name - 1);
        let may_wait = writes && !wrote && self.kept.is_none() && !self.held_before;
        if may_wait && self.call.paused_ms(|_| true).is_some() {
            self.waits = true;
            return Err(Trouble::Stop(Stop::Again));
        }
        self.hold(row, args, writes, wrote)?;
        if writes {
            self.running.write().map_err(Trouble::Stop)?;
        }
        let mut call = Call {
            cx: &mut *self.call.cx,
            shared: self.call.shared,
            out: &mut *self.out,
            client: &mut *self.call.client,
            tally: &mut *self.call.tally,
            flow: Flow::Next,
            job: &mut *self.call.job,
            row: Some(id),
            admitted: true,
            later: false,
        };
        self.was_fast = row.has(FAST);
        let began_us = (!self.was_fast).then(|| call.cx.host.clock_us());
        let done = call.execute_unseen(row, args);
        if let Some(began_us) = began_us {
            self.beside_us += call.cx.host.clock_us().saturating_sub(began_us);
        }
        if call.cx.shared.topics.monitored() {
            call.show_as(row, words, "lua");
        }
        call.cx.counters.rows.called(id, 1);
        if let Err(fail) = &done {
            fail.count(&call.cx.counters.rows, id);
        }
        Ok(done?)
    }

    /// Checks that a script may call a command.
    fn admit(
        &mut self,
        row: &'static Command,
        (id, name): (RowId, usize),
        words: Args<'_>,
        writes: bool,
        wrote: bool,
    ) -> Done {
        if !row.takes(words.len()) {
            return Err(Fail::of("ERR Wrong number of args calling Redis command from script"));
        }
        if row.has(NOSCRIPT) {
            return Err(Fail::of("ERR This Redis command is not allowed from script"));
        }
        self.call.is_allowed(row)?;
        if !self.call.client.standing.is_free() {
            let mut args = words;
            args.nth(name - 1);
            self.call.permit(row, id, args, Whence::Script)?;
        }
        if writes && self.reads {
            return Err(Fail::of("ERR Write commands are not allowed from read-only scripts."));
        }
        // Behind its first write a script is not stopped halfway for scarce memory.
        let asks = row.has(DENYOOM) && !self.nature.allow_oom && !wrote;
        let starved = || self.call.shared.starved_bytes.load(Relaxed) > 0;
        if asks && (starved() || !self.call.cx.guard.has_room(item_bytes(words))) {
            return Err(Fail::OUT_OF_MEMORY);
        }
        Ok(())
    }

    /// Makes the run hold what a command needs.
    fn hold(
        &mut self,
        row: &'static Command,
        args: Args<'_>,
        writes: bool,
        wrote: bool,
    ) -> Result<(), Trouble> {
        let db = self.call.client.db;
        let mut missing = Vec::new();
        let mut undeclared = row.takes_all(args);
        let mut all = undeclared;
        let (is_own_db, plan, keys) = (db == self.own_db, &*self.plan, self.asked.keys);
        let declared = self.declared.get_or_init(|| Declared::of(keys));
        let has_all = self.held_before || plan.whole;
        row.each_key(args, &mut |key| {
            if is_own_db && declared.has(key) {
                return;
            }
            undeclared = true;
            let has = plan.keys.iter().any(|(besides, known)| *besides == db && **known == *key);
            if has_all || has {
                return;
            }
            let bytes: usize = plan.keys.iter().chain(&missing).map(|(_, named)| named.len()).sum();
            if missing.len() < FEW_KEYS && bytes + key.len() <= KEYS_BYTES_MAX {
                missing.push((db, Box::from(key)));
            } else {
                all = true;
            }
        });
        self.undeclared |= undeclared;
        if self.held_before {
            return Ok(());
        }
        // A script that writes for the first time may name other keys later.
        let wants_all = all || writes && !self.nature.is_trusted();
        if !self.holds {
            if self.lost {
                self.plan.ticks = self.plan.ticks.saturating_mul(LONGER);
                return Err(Trouble::Stop(Stop::Again));
            }
            self.plan.add(missing, wants_all || self.nature.begins_whole());
            self.plan.begin(self.call, self.own_db, self.asked.keys);
            self.holds = true;
            // It may have waited for its keys. The work before that, a millisecond at most, is not counted.
            let now_us = self.call.cx.host.clock_us();
            self.beside_us += now_us.saturating_sub(self.step_us);
            self.step_us = now_us;
            return Ok(());
        }
        if self.plan.whole || missing.is_empty() && !all && (wrote || !wants_all) {
            return Ok(());
        }
        if wrote {
            self.nature.note_more(true);
            return Err(Fail::of(
                "ERR the script named a key behind its first write that it had not declared, as it never did before; the next run has all keys",
            )
            .into());
        }
        self.plan.runs += 1;
        if self.nature.keeps {
            self.nature.note_more(undeclared);
        }
        let wants_all = wants_all || self.nature.keeps || self.plan.runs >= RUNS_MAX;
        self.plan.add(missing, wants_all);
        Err(Trouble::Stop(Stop::Again))
    }
}

/// Converts a time to ticks, at least one.
pub(crate) fn ticks_of(took_ns: u64) -> u32 {
    u32::try_from(took_ns / TICK_NS).unwrap_or(u32::MAX).max(1)
}

/// A script's reply, on its way to the client.
struct Reply<'r, 'x, 'c, 'w> {
    call: &'r mut Call<'x, 'c, 'w>,
    /// There is an error in it.
    has_failed: bool,
}

impl Sink for Reply<'_, '_, '_, '_> {
    fn put(&mut self, bytes: &[u8]) -> bool {
        if self.call.make_room(bytes.len()).is_err() {
            return false;
        }
        self.call.out.put(bytes);
        true
    }

    fn put_bulk(&mut self, text: &[u8]) -> bool {
        self.call.make_room(HEAD_BYTES_MAX + text.len() + 2).is_ok() && self.call.bulk(text).is_ok()
    }

    fn failed(&mut self, text: &[u8], is_counted: bool) {
        self.has_failed = true;
        if !is_counted {
            self.call.count_error(&Fail::with(text.iter().copied().map(char::from).collect()));
        }
    }
}
