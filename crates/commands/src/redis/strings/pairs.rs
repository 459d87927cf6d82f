//! MSET and MSETNX: several keys as one moment. Of very many, or with very long values, in steps, with the keys held from
//! the first write to the last ([`hold`]).
//!
//! ```text
//! Notes the keys ─► Announces ─► Waits for requests of before ─► Looks (MSETNX) ─► Writes ─► replied, and held no more
//! ```
//!
//! In scripts, and in an EXEC of one step, all of it is one step. A command that has begun to hold its keys is done to its end, also where
//! its client has gone. Before the first write it ends where the rules of its client's user have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect};

use crate::core::access::Snapshot;
use crate::core::hold::{self, Hold, Keys};
use crate::core::work::{STEP_NS_MIN, copying_ns};
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::{Kept, Place};
use crate::redis::steps::moments::keys_ns;
use crate::redis::strings::rewrite::Heap;
use crate::redis::table::{self, Command};

/// Pairs that are written in one step: some 4 ms.
pub(crate) const PAIRS_AT_ONCE: usize = 2 << 10;
/// And bytes of their words: some 4 ms.
const BYTES_AT_ONCE: usize = 8 << 20;
/// What it takes to write a pair, most of which is waiting for memory, and to note a key.
pub(crate) const PAIR_NS: u64 = 2_000;
pub(crate) const NOTE_NS: u64 = 100;
/// What it takes to tell keyspace events of one, which is spent where they are told.
const EVENTS_NS: u64 = 2_000;

/// Whether a command of pairs is done in steps, outside of a transaction.
fn in_steps(args: Args<'_>) -> bool {
    args.len() > 2 * PAIRS_AT_ONCE || args.encoded().len() > BYTES_AT_ONCE
}

/// A command with these arguments holds its keys from one turn to the next.
pub(crate) fn holds_keys(row: &Command, args: Args<'_>) -> bool {
    matches!(row.name, "mset" | "msetnx") && in_steps(args)
}

pub(crate) fn mset(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::arity("mset"));
    }
    if in_steps(args) && !call.cx.guard.in_transaction() {
        return begin(call, "mset", args, false);
    }
    telling(call, "mset", args, |call| {
        call.as_one_in(args.step_by(2), |call| store_pairs(call, args))?;
        call.ok()
    })
}

pub(crate) fn msetnx(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::arity("msetnx"));
    }
    if in_steps(args) && !call.cx.guard.in_transaction() {
        return begin(call, "msetnx", args, true);
    }
    telling(call, "msetnx", args, |call| {
        call.as_one_in(args.step_by(2), |call| {
            for name in args.step_by(2) {
                if call.is_there(&call.key(name)) {
                    return call.integer(0);
                }
            }
            store_pairs(call, args)?;
            call.integer(1)
        })
    })
}

/// Runs what writes these pairs, and tells of it where that is wanted.
fn telling(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    args: Args<'_>,
    run: impl FnOnce(&mut Call<'_, '_, '_>) -> Done,
) -> Done {
    if !call.cx.shared.events.any() {
        return run(call);
    }
    let Some((row, _)) = table::find(name.as_bytes()) else { return run(call) };
    call.tell_of(row, args, run)
}

fn store_pairs(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    while let (Some(key), Some(value)) = (args.next(), args.next()) {
        let key = call.key(key);
        let _ = call.store(&key, value, &Attributes::default(), Expect::Any)?;
    }
    Ok(())
}

/// Pairs that are written in steps.
#[derive(Debug)]
struct Pairs {
    name: &'static str,
    kept: Kept,
    /// They are written only if none of the keys is there.
    absent: bool,
    /// The client's user when it began.
    user: Snapshot,
    stage: Stage,
    _held: Heap,
}

const OVERTAKEN: Fail =
    Fail::of("NOPERM The user's ACL rules changed before any of the keys was written: none of them is");

#[derive(Debug)]
enum Stage {
    /// Notes the keys from a place on; none: from the first, while nothing is noted.
    Notes(Option<(Keys, Place)>),
    /// All are noted, of the database that has this mark. Waits until no others are held.
    Announces(Arc<Keys>, u64),
    /// Waits until each request is over that was begun before others could know.
    Waits(Hold, u64, u64),
    /// Looks whether a key from a place on is there. In EXEC, which holds all of its keys, there is nothing to hold.
    Looks(Option<Hold>, Place),
    /// Writes what is left.
    Writes(Option<Hold>),
    /// Done.
    Over,
}

/// Begins with them in the next turn.
fn begin(call: &mut Call<'_, '_, '_>, name: &'static str, args: Args<'_>, absent: bool) -> Done {
    let executes = call.client.executes;
    let held = Heap::keep(call, if executes { 0 } else { Keys::bytes(args.len() / 2) })?;
    let kept = Kept::new(call, args)?;
    let stage = match (executes, absent) {
        (false, _) => Stage::Notes(None),
        (true, true) => Stage::Looks(None, kept.place()),
        (true, false) => Stage::Writes(None),
    };
    let user = call.client.standing.snapshot();
    call.go_on_with(Pairs { name, kept, absent, user, stage, _held: held });
    Ok(())
}

/// Those who wait see that something is done.
fn step_of(hold: Option<&Hold>, call: &Call<'_, '_, '_>) {
    if let Some(hold) = hold {
        hold.step(call.cx.now());
    }
}

/// What tells whether a database has been swapped since: the hash of a name in it.
fn mark_of(call: &Call<'_, '_, '_>) -> u64 {
    call.cx.guard.key_in(call.client.db, b"").hash()
}

impl Pairs {
    /// Does a part of the stage: what comes then, and whether it comes at once.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, stage: Stage) -> Result<(Stage, Step), Fail> {
        let db = call.client.db;
        Ok(match stage {
            Stage::Notes(noted) => {
                let (mut keys, mut at) =
                    noted.unwrap_or_else(|| (Keys::of(self.kept.left() / 2), self.kept.place()));
                let count = ((call.step_ns() / NOTE_NS) as usize).min(at.left / 2);
                self.kept.walk(&mut at, |words| {
                    for name in words.by_ref().take(2 * count).step_by(2) {
                        keys.note(call.cx.guard.key_in(db, name).hash());
                    }
                });
                call.spend(count as u64 * NOTE_NS);
                let stage = if at.left > 0 {
                    Stage::Notes(Some((keys, at)))
                } else {
                    Stage::Announces(Arc::new(keys), mark_of(call))
                };
                (stage, Step::More)
            }
            Stage::Announces(_, mark) if mark != mark_of(call) => (Stage::Notes(None), Step::More),
            Stage::Announces(keys, mark) => {
                let (now, shared) = (call.cx.now(), call.cx.shared);
                let Some(hold) = shared.pause.holds.take(&keys, now) else {
                    return Ok((Stage::Announces(keys, mark), Step::Await(Some(hold::LOOK_MS))));
                };
                shared.pause.look();
                shared.look_in_time(now);
                call.spend(STEP_NS_MIN);
                (Stage::Waits(hold, mark, call.cx.guard.say()), Step::More)
            }
            Stage::Waits(hold, mark, said) => {
                self.still_may(call)?;
                call.spend(STEP_NS_MIN);
                let stage = if !call.cx.guard.others_have_heard(said) {
                    Stage::Waits(hold, mark, said)
                } else if mark != mark_of(call) {
                    Stage::Notes(None)
                } else if self.absent {
                    Stage::Looks(Some(hold), self.kept.place())
                } else {
                    Stage::Writes(Some(hold))
                };
                (stage, Step::More)
            }
            Stage::Looks(hold, mut at) => {
                if hold.is_some() {
                    // EXEC asks itself.
                    self.still_may(call)?;
                }
                let count = call.keys_of_a_step().min(at.left / 2);
                let is_there = self.kept.walk(&mut at, |words| {
                    let mut names = words.by_ref().take(2 * count).step_by(2);
                    let is_there = names.any(|name| call.is_there(&call.key(name)));
                    // What is left is left.
                    names.for_each(|_| ());
                    is_there
                });
                step_of(hold.as_ref(), call);
                call.spend(keys_ns(count));
                if is_there {
                    call.integer(0)?;
                    return Ok((Stage::Over, Step::Done));
                }
                (if at.left > 0 { Stage::Looks(hold, at) } else { Stage::Writes(hold) }, Step::More)
            }
            Stage::Writes(hold) => {
                self.write(call)?;
                step_of(hold.as_ref(), call);
                if self.kept.left() > 0 {
                    return Ok((Stage::Writes(hold), Step::More));
                }
                if self.absent {
                    call.integer(1)?
                } else {
                    call.ok()?
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
        let standing = &call.client.standing;
        if standing.is_free() || standing.is_as(&self.user) {
            return Ok(());
        }
        if standing.may_as(&self.user, call.cx.room.work()) {
            self.user = standing.snapshot();
            return Ok(());
        }
        if !call.client.facts.killed.swap(true, Relaxed) {
            call.cx.shared.access.log.count_closed();
        }
        Err(OVERTAKEN)
    }

    /// Writes as many pairs as what is left of the slice is for, one at least.
    fn write(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let until_ns = call.step_ns();
        let name = self.name;
        let events_ns = if call.cx.shared.events.any() { EVENTS_NS } else { 0 };
        self.kept.take(|words| {
            let (from, mut spent_ns, mut count) = (*words, 0, 0);
            while spent_ns + count as u64 / 2 * events_ns < until_ns {
                let (Some(_), Some(value)) = (words.next(), words.next()) else { break };
                spent_ns += PAIR_NS + copying_ns(value.len() as u64);
                count += 2;
            }
            let some = Args::rest(from.encoded(), count);
            call.spend(spent_ns);
            telling(call, name, some, |call| store_pairs(call, some))
        })
    }
}

impl Job for Pairs {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let (stage, step) = self.go_on(call, stage)?;
        self.stage = stage;
        Ok(step)
    }

    fn must_end(&self) -> bool {
        matches!(self.stage, Stage::Waits(..) | Stage::Looks(..) | Stage::Writes(_))
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
