//! MSET, MSETNX and MSETEX: several keys as one moment. Very many, or very long values, are written in steps, with the keys held
//! from the first write to the last ([`hold`](crate::core::hold)).
//!
//! ```text
//! notes the keys ─► announces ─► waits for earlier requests ─► looks (NX, XX) ─► writes ─► replied, and no longer held
//! ```
//!
//! In scripts, and in an EXEC of one step, the command is one step. `steps/stages.rs` has the keys held. If memory for a pair is
//! on its way, the pair is written when it has come, and the worker serves others meanwhile. Since the keys are held, the command
//! is refused when it has waited for 2 s in all.

use larder_protocol::resp::Args;
use larder_store::Millis;

use crate::core::events::{Change, Seen, seen};
use crate::core::hold::Keys;
use crate::core::work::copying_ns;
use crate::redis::call::Call;
use crate::redis::clock::Expiry;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::row::Command;
use crate::redis::steps::held::{NOTE_NS, Taking, mark_of};
use crate::redis::steps::job::Step;
use crate::redis::steps::kept::{Kept, Place};
use crate::redis::steps::moments::keys_ns;
use crate::redis::steps::patience::Patience;
use crate::redis::steps::stages::Staged;
use crate::redis::strings::set::{pairs_counted, put_pair};

/// Pairs that are written in one step, at most: some 4 ms.
pub(crate) const PAIRS_AT_ONCE: usize = 2 << 10;
/// Bytes of their words, at most: some 4 ms.
const BYTES_AT_ONCE: usize = 8 << 20;
/// Work to write a pair, most of which is waiting for memory.
pub(crate) const PAIR_NS: u64 = 2_000;
/// Work to publish keyspace events of a pair, which is spent when they are published.
const EVENTS_NS: u64 = 2_000;

/// Whether a command with so many pairs, and these arguments, is done in steps outside of a transaction.
pub(super) fn in_steps(pairs: usize, args: Args<'_>) -> bool {
    pairs > PAIRS_AT_ONCE || args.encoded().len() > BYTES_AT_ONCE
}

/// Whether a command with these arguments holds its keys from one turn to the next.
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

/// Runs `run`, which writes the pairs of a command with these arguments, and publishes events if they are wanted.
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

/// Writes these pairs, and counts the written ones.
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

/// The token of a pair that was written and has been evicted since: no item has it.
const GONE: u64 = u64::MAX;

/// As [`telling`], for some pairs of a command, of which `run` returns how many it has written. Their keys are held, but one may
/// have been evicted for another: the store publishes that.
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

/// What a command does with pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The command's name.
    pub name: &'static str,
    /// Pairs are written only if all of the keys are there, or if none is; `None`: in any case.
    pub there: Option<bool>,
    pub expiry: Expiry,
    /// How many words are behind the pairs.
    pub behind: usize,
}

/// A command that writes pairs in steps.
#[derive(Debug)]
struct Pairs {
    plan: Plan,
    kept: Kept,
    /// Whether it holds its keys: an EXEC in steps holds them itself.
    is_whole: bool,
    /// The noted keys, the place behind them, and the mark that their database had.
    noted: Option<(Keys, Place, u64)>,
    /// From where on keys are still to be checked before the first pair is written.
    looks: Option<Place>,
    /// Some pairs are written.
    begun: bool,
    /// How long it has waited for memory, for all pairs.
    patience: Patience,
    _held: Heap,
}

/// Begins in the next turn with the pairs at the beginning of these words, which are the last of their request.
pub(super) fn begin(call: &mut Call<'_, '_, '_>, plan: Plan, args: Args<'_>) -> Done {
    let executes = call.client.executes;
    let pairs = (args.len() - plan.behind) / 2;
    let held = Heap::keep(call, if executes { 0 } else { Keys::bytes(pairs) })?;
    let kept = Kept::new(call, args)?;
    let (is_whole, looks) = (!executes, plan.there.map(|_| kept.place()));
    let (noted, begun, patience) = (None, false, Patience::default());
    call.go_on_in_stages(Pairs { plan, kept, is_whole, noted, looks, begun, patience, _held: held });
    Ok(())
}

impl Pairs {
    /// Checks whether some more keys are, or are not, there, as the plan wants it; false if one is not so.
    fn look(&mut self, call: &mut Call<'_, '_, '_>, mut at: Place) -> bool {
        let Plan { there, behind, .. } = self.plan;
        let count = call.keys_of_a_step().min((at.left - behind) / 2);
        let are_like = self.kept.walk(&mut at, |words| {
            let mut names = words.by_ref().take(2 * count).step_by(2);
            let are_like = names.all(|name| Some(call.is_there(&call.key(name))) == there);
            // The rest of the names is passed over.
            names.for_each(|_| ());
            are_like
        });
        call.spend(keys_ns(count));
        self.looks = (at.left > behind).then_some(at);
        are_like
    }

    /// Pairs that are not written yet.
    fn left(&self) -> usize {
        (self.kept.left() - self.plan.behind) / 2
    }

    /// Writes as many pairs as the rest of the slice allows, at least one. If memory is on its way and others wait for the
    /// worker, it does not sleep, but returns in how many milliseconds to write the next pair.
    ///
    /// # Errors
    /// A pair found no memory, also after it was tried again for long enough. It is not tried once more, for which the worker
    /// would sleep.
    fn write(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<Millis>, Fail> {
        // The next step of EXEC comes at once, so that trying again would be no wait.
        let asks = self.is_whole;
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

    /// Writes pairs up to one that fails, and returns how many, and the error. The others are left.
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
                // The pairs behind the one that failed were not looked at.
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

impl Staged for Pairs {
    const UNDONE: &'static str = "keys was written";

    fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn prepare(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<Taking>, Fail> {
        let (db, behind) = (call.client.db, self.plan.behind);
        // Keys noted before a swap of databases are others now; a second swap before the end would hide that.
        let noted = self.noted.take().filter(|(_, _, mark)| *mark == mark_of(call));
        let from_first = || (Keys::of(self.left()), self.kept.place(), mark_of(call));
        let (mut keys, mut at, mark) = noted.unwrap_or_else(from_first);
        if at.left <= behind {
            return Ok(Some(Taking::of(keys, mark)));
        }
        let count = ((call.step_ns() / NOTE_NS) as usize).min((at.left - behind) / 2);
        self.kept.walk(&mut at, |words| {
            for name in words.by_ref().take(2 * count).step_by(2) {
                keys.note(call.cx.guard.key_in(db, name).hash());
            }
        });
        call.spend(count as u64 * NOTE_NS);
        self.noted = Some((keys, at, mark));
        Ok(None)
    }

    fn go_on(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if let Some(at) = self.looks {
            if self.look(call, at) {
                return Ok(Step::More);
            }
            call.integer(0)?;
            return Ok(Step::Done);
        }
        if let Some(ms) = self.write(call)? {
            return Ok(Step::Await(Some(ms)));
        }
        if self.left() > 0 {
            return Ok(Step::More);
        }
        if self.plan.name == "mset" {
            call.ok()?;
        } else {
            call.integer(1)?;
        }
        Ok(Step::Done)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
