//! MSET, MSETNX and MSETEX: several keys as one moment. Of very many, or with very long values, in steps, with the keys held
//! from the first write to the last ([`hold`](crate::core::hold)).
//!
//! ```text
//! Notes the keys ─► Announces ─► Waits for requests of before ─► Looks (NX, XX) ─► Writes ─► replied, and held no more
//! ```
//!
//! In scripts, and in an EXEC of one step, all of it is one step. A command that has begun to hold its keys is done to its end, also where
//! its client has gone. Before the first write it ends where the rules of its client's user have changed. A pair for which memory is
//! on its way is written when that has come, and others of the worker are served meanwhile. The keys are held, so that the command
//! is refused when it has waited for 2 s in all.

use larder_protocol::resp::Args;
use larder_store::Millis;

use crate::core::access::Snapshot;
use crate::core::events::{Change, Seen, seen};
use crate::core::hold::{Hold, Keys};
use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::clock::Expiry;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::row::Command;
use crate::redis::steps::held::{NOTE_NS, Taken, Taking, mark_of};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::{Kept, Place};
use crate::redis::steps::moments::keys_ns;
use crate::redis::steps::patience::Patience;
use crate::redis::strings::set::{pairs_counted, put_pair};

/// Pairs that are written in one step: some 4 ms.
pub(crate) const PAIRS_AT_ONCE: usize = 2 << 10;
/// Bytes of their words: some 4 ms.
const BYTES_AT_ONCE: usize = 8 << 20;
/// What it takes to write a pair, most of which is waiting for memory.
pub(crate) const PAIR_NS: u64 = 2_000;
/// What it takes to publish keyspace events of one, which is spent where they are published.
const EVENTS_NS: u64 = 2_000;

/// Whether a command of so many pairs, and with these arguments, is done in steps, outside of a transaction.
pub(super) fn in_steps(pairs: usize, args: Args<'_>) -> bool {
    pairs > PAIRS_AT_ONCE || args.encoded().len() > BYTES_AT_ONCE
}

/// A command with these arguments holds its keys from one turn to the next.
pub(crate) fn holds_keys(row: &Command, args: Args<'_>) -> bool {
    match row.name {
        "mset" | "msetnx" => in_steps(args.len() / 2, args),
        "msetex" => pairs_counted(args).is_some_and(|pairs| in_steps(pairs, args)),
        _ => false,
    }
}

pub(crate) fn mset(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::arity("mset"));
    }
    if in_steps(args.len() / 2, args) && !call.cx.guard.in_transaction() {
        let plan = Plan { name: "mset", there: None, expiry: Expiry::None, behind: 0 };
        return begin(call, plan, args);
    }
    telling(call, "mset", args, |call| {
        call.as_one_in(args.step_by(2), |call| store_pairs(call, Expiry::None, args))?;
        call.ok()
    })
}

pub(crate) fn msetnx(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::arity("msetnx"));
    }
    if in_steps(args.len() / 2, args) && !call.cx.guard.in_transaction() {
        let plan = Plan { name: "msetnx", there: Some(false), expiry: Expiry::None, behind: 0 };
        return begin(call, plan, args);
    }
    telling(call, "msetnx", args, |call| {
        call.as_one_in(args.step_by(2), |call| {
            for name in args.step_by(2) {
                if call.is_there(&call.key(name)) {
                    return call.integer(0);
                }
            }
            store_pairs(call, Expiry::None, args)?;
            call.integer(1)
        })
    })
}

/// Runs what writes the pairs of a command with these arguments, and publishes that where it is wanted.
pub(super) fn telling(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    args: Args<'_>,
    run: impl FnOnce(&mut Call<'_, '_, '_>) -> Done,
) -> Done {
    if !call.cx.shared.events.any() {
        return run(call);
    }
    let Some((row, _)) = call.shared.rows.find(name.as_bytes()) else { return run(call) };
    call.tell_of(row, args, run)
}

/// Writes these pairs.
pub(super) fn store_pairs(call: &mut Call<'_, '_, '_>, expiry: Expiry, args: Args<'_>) -> Done {
    store_counted(call, expiry, args, &mut 0)
}

/// Writes these pairs, and counts those that are written.
fn store_counted(
    call: &mut Call<'_, '_, '_>,
    expiry: Expiry,
    mut args: Args<'_>,
    written: &mut usize,
) -> Done {
    while let (Some(key), Some(value)) = (args.next(), args.next()) {
        let key = call.key(key);
        put_pair(call, &key, value, expiry)?;
        *written += 1;
    }
    Ok(())
}

/// A token that no item has: that of a pair which was written, and has given way since.
const GONE: u64 = u64::MAX;

/// As [`telling`], of some pairs of a command: of those that `run` has written, which it counts. Their keys are held, but others
/// of the command may have given way to them, and the first of them to those behind: events of that come from the store.
fn telling_some(
    call: &mut Call<'_, '_, '_>,
    expiry: Expiry,
    some: Args<'_>,
    run: impl FnOnce(&mut Call<'_, '_, '_>) -> (usize, Done),
) -> (usize, Done) {
    if !call.cx.shared.events.any() {
        return run(call);
    }
    let db = call.client.db;
    let is_late = matches!(expiry, Expiry::At(at) if at <= call.cx.now());
    let change = if is_late { Change::SET_LATE } else { Change::SET };
    let before: Vec<Seen> = some.step_by(2).map(|key| seen(&mut call.cx.guard, db, key)).collect();
    let (written, done) = run(call);
    for (key, was) in some.step_by(2).zip(before).take(written) {
        let wrote = match expiry {
            Expiry::None => 0,
            Expiry::At(at) => at,
            Expiry::Keep => was.map_or(0, |(_, at)| at),
        };
        let is = seen(&mut call.cx.guard, db, key).or((!is_late).then_some((GONE, wrote)));
        if was != is {
            call.cx.tell_change(&change, db, key, was, is);
        }
    }
    call.cx.go_on_telling();
    (written, done)
}

/// What is done with pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The command's name.
    pub name: &'static str,
    /// They are written only if all of the keys are there, or none is.
    pub there: Option<bool>,
    pub expiry: Expiry,
    /// How many words come behind them.
    pub behind: usize,
}

/// Pairs that are written in steps.
#[derive(Debug)]
struct Pairs {
    plan: Plan,
    kept: Kept,
    /// The client's user when it began.
    user: Snapshot,
    /// Some of them are written.
    begun: bool,
    /// How long it has waited for memory, for all of them.
    patience: Patience,
    stage: Stage,
    _held: Heap,
}

#[derive(Debug)]
enum Stage {
    /// Notes the keys from a place on, of the database that had this mark; none: from the first, while nothing is noted.
    Notes(Option<(Keys, Place, u64)>),
    /// All are noted, and on their way to be held.
    Takes(Taking),
    /// Looks whether a key from a place on is there. In EXEC, which holds all of its keys, there is nothing to hold.
    Looks(Option<Hold>, Place),
    /// Writes what is left.
    Writes(Option<Hold>),
    /// Done.
    Over,
}

/// Begins in the next turn with the pairs that these words begin with, which are the last of their request.
pub(super) fn begin(call: &mut Call<'_, '_, '_>, plan: Plan, args: Args<'_>) -> Done {
    let executes = call.client.executes;
    let pairs = (args.len() - plan.behind) / 2;
    let held = Heap::keep(call, if executes { 0 } else { Keys::bytes(pairs) })?;
    let kept = Kept::new(call, args)?;
    let stage = match (executes, plan.there) {
        (false, _) => Stage::Notes(None),
        (true, Some(_)) => Stage::Looks(None, kept.place()),
        (true, None) => Stage::Writes(None),
    };
    let user = call.client.standing.snapshot();
    let patience = Patience::default();
    call.go_on_with(Pairs { plan, kept, user, begun: false, patience, stage, _held: held });
    Ok(())
}

/// Notes the time of a step, also of one that found no memory: the next command holds keys some time behind the last step.
fn step_of(hold: Option<&Hold>, call: &Call<'_, '_, '_>) {
    if let Some(hold) = hold {
        hold.step(call.cx.now());
    }
}

impl Pairs {
    /// Does a part of the stage: what comes then, and whether it comes at once.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, stage: Stage) -> Result<(Stage, Step), Fail> {
        let (db, plan) = (call.client.db, self.plan);
        Ok(match stage {
            Stage::Notes(noted) => {
                let from_first = || (Keys::of(self.left()), self.kept.place(), mark_of(call));
                // Keys noted while the database is swapped are another's, which a swap back before the end would hide.
                let noted = noted.filter(|(_, _, mark)| *mark == mark_of(call));
                let (mut keys, mut at, mark) = noted.unwrap_or_else(from_first);
                let count = ((call.step_ns() / NOTE_NS) as usize).min((at.left - plan.behind) / 2);
                self.kept.walk(&mut at, |words| {
                    for name in words.by_ref().take(2 * count).step_by(2) {
                        keys.note(call.cx.guard.key_in(db, name).hash());
                    }
                });
                call.spend(count as u64 * NOTE_NS);
                let stage = if at.left > plan.behind {
                    Stage::Notes(Some((keys, at, mark)))
                } else {
                    Stage::Takes(Taking::of(keys, mark))
                };
                (stage, Step::More)
            }
            Stage::Takes(taking) => {
                if taking.holds() {
                    self.still_may(call)?;
                }
                match taking.go_on(call) {
                    Taken::NotYet(taking, step) => (Stage::Takes(taking), step),
                    Taken::Swapped => (Stage::Notes(None), Step::More),
                    Taken::Held(hold) if plan.there.is_some() => {
                        (Stage::Looks(Some(hold), self.kept.place()), Step::More)
                    }
                    Taken::Held(hold) => (Stage::Writes(Some(hold)), Step::More),
                }
            }
            Stage::Looks(hold, mut at) => {
                if hold.is_some() {
                    // EXEC asks itself.
                    self.still_may(call)?;
                }
                let count = call.keys_of_a_step().min((at.left - plan.behind) / 2);
                let is_unlike = self.kept.walk(&mut at, |words| {
                    let mut names = words.by_ref().take(2 * count).step_by(2);
                    let is_unlike = names.any(|name| Some(call.is_there(&call.key(name))) != plan.there);
                    // What is left is left.
                    names.for_each(|_| ());
                    is_unlike
                });
                step_of(hold.as_ref(), call);
                call.spend(keys_ns(count));
                if is_unlike {
                    call.integer(0)?;
                    return Ok((Stage::Over, Step::Done));
                }
                (if at.left > plan.behind { Stage::Looks(hold, at) } else { Stage::Writes(hold) }, Step::More)
            }
            Stage::Writes(hold) => {
                if hold.is_some() && !self.begun {
                    // The turn before has written nothing.
                    self.still_may(call)?;
                }
                // In EXEC, whose next step comes at once, to ask again would be no wait.
                let awaits_ms = self.write(call, hold.is_some())?;
                step_of(hold.as_ref(), call);
                if let Some(ms) = awaits_ms {
                    return Ok((Stage::Writes(hold), Step::Await(Some(ms))));
                }
                if self.left() > 0 {
                    return Ok((Stage::Writes(hold), Step::More));
                }
                if plan.name == "mset" {
                    call.ok()?
                } else {
                    call.integer(1)?
                }
                (Stage::Over, Step::Done)
            }
            Stage::Over => (Stage::Over, Step::Done),
        })
    }

    /// Its client's user has the rules by which it began, while keys are held and nothing is written.
    ///
    /// # Errors
    /// It has others, or is gone: the connection is closed behind that, as with any command in steps.
    fn still_may(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        if call.rules_hold(&mut self.user) { Ok(()) } else { Err(Fail::overtaken("keys was written")) }
    }

    /// Pairs that are not written.
    fn left(&self) -> usize {
        (self.kept.left() - self.plan.behind) / 2
    }

    /// Writes as many pairs as what is left of the slice is for, one at least. `asks`: where memory is on its way and others
    /// wait for the worker, it does not sleep, and the next pair is to be written in so many milliseconds.
    ///
    /// # Errors
    /// A pair found no memory, also after it was asked again for long enough: it is not looked at once more, for which the worker
    /// would sleep.
    fn write(&mut self, call: &mut Call<'_, '_, '_>, asks: bool) -> Result<Option<Millis>, Fail> {
        let (written, done) = self.write_some(call, asks);
        if done.is_ok() {
            self.patience.found();
        }
        if !asks || !done.as_ref().is_err_and(Fail::is_no_memory) || !call.cx.guard.memory_comes() {
            return done.map(|()| None);
        }
        match self.patience.again_ms(call, written) {
            Some(ms) => Ok(Some(ms)),
            None => done.map(|()| None),
        }
    }

    /// Writes as many, up to one that fails: how many, and why no more. What is not written is left.
    fn write_some(&mut self, call: &mut Call<'_, '_, '_>, asks: bool) -> (usize, Done) {
        let until_ns = call.step_ns();
        let Plan { expiry, behind, .. } = self.plan;
        let events_ns = if call.cx.shared.events.any() { EVENTS_NS } else { 0 };
        let done = self.kept.take(|words| {
            let (from, mut spent_ns, mut count) = (*words, 0, 0);
            while words.len() > behind && spent_ns + count as u64 / 2 * events_ns < until_ns {
                let (Some(_), Some(value)) = (words.next(), words.next()) else { break };
                spent_ns += PAIR_NS + copying_ns(value.len() as u64);
                count += 2;
            }
            let some = Args::rest(from.encoded(), count);
            let again = call.cx.guard.ask_again(asks);
            let (written, done) = telling_some(call, expiry, some, |call| {
                let mut written = 0;
                let done = store_counted(call, expiry, some, &mut written);
                (written, done)
            });
            call.cx.guard.ask_again(again);
            if done.is_err() {
                // Those behind the one that failed were not looked at.
                spent_ns = spent_ns * (written as u64 + 1) / (count as u64 / 2).max(1);
                *words = from;
                if written > 0 {
                    words.nth(2 * written - 1);
                }
            }
            call.spend(spent_ns);
            (written, done)
        });
        self.begun |= done.0 > 0;
        done
    }
}

impl Job for Pairs {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let (stage, step) = self.go_on(call, stage)?;
        self.stage = stage;
        Ok(step)
    }

    fn holds(&self) -> bool {
        self.must_end()
    }

    fn must_end(&self) -> bool {
        match &self.stage {
            Stage::Takes(taking) => taking.holds(),
            Stage::Looks(..) | Stage::Writes(_) => true,
            Stage::Notes(_) | Stage::Over => false,
        }
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
