//! Keys that a command in steps holds ([`hold`](crate::core::hold)): how they come to be held, and how a command goes on with its
//! keys held because others changed them each time before it was done.
//!
//! ```text
//! changed thrice ─► the lane ─► keys are noted ─► announced ─► requests of before are over ─► works, in steps ─► replies
//!                                                                └──────────── the keys are held ────────┘
//! ```
//!
//! The lane is taken before the keys, and kept until they are free: while keys are held their command waits for no other client.
//! A command that has only to reply holds nothing, so that a client that does not read keeps no other from the keys. It ends with
//! its client, even in the midst.

use std::sync::Arc;

use larder_store::Store;

use super::again::{Again, HELD_TRIES_MAX, TRIES_MAX};
use super::job::{Job, STEP_NS_MIN, Step};
use super::patience::Patience;
use crate::core::access::Snapshot;
use crate::core::hold::{Hold, Keys, LOOK_MS};
use crate::core::work::Lane;
use crate::redis::call::{Call, Flow};
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
use crate::redis::source::Name;

/// Bytes of replies that a command keeps while it holds its key, at most: some 0.2 s of copying, for which others wait.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// Work to note a key.
pub(crate) const NOTE_NS: u64 = 100;

/// Noted keys of one database, on their way to be held.
#[derive(Debug)]
pub(crate) enum Taking {
    /// Waits until no other command holds keys. The number is the database's mark when they were noted, by which a swap is seen.
    Announces(Arc<Keys>, u64),
    /// Waits until all requests are done that were begun before they could see the hold.
    Waits(Hold, u64, u64),
}

/// What a step on that way came to.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The keys are not held yet.
    NotYet(Taking, Step),
    /// The database was swapped: the keys are to be noted anew.
    Swapped,
    /// The keys are held, and no other command is at work on them.
    Held(Hold),
}

/// The selected database's mark, by which a later swap is seen: the hash of a name in it.
pub(crate) fn mark_of(call: &Call<'_, '_, '_>) -> u64 {
    call.cx.guard.key_in(call.client.db, b"").hash()
}

impl Taking {
    /// Begins with noted keys. `mark`: that of their database when the first was noted.
    pub fn of(keys: Keys, mark: u64) -> Taking {
        Taking::Announces(Arc::new(keys), mark)
    }

    /// Begins with one key of the selected database.
    pub fn of_key(call: &Call<'_, '_, '_>, name: &Name) -> Taking {
        let mut keys = Keys::of(1);
        keys.note(name.key(call).hash());
        Taking::of(keys, mark_of(call))
    }

    /// Whether others wait for these keys.
    pub fn holds(&self) -> bool {
        matches!(self, Taking::Waits(..))
    }

    /// Does a part of it. A client that closes its side meanwhile is answered all the same: it may have sent all its requests.
    pub fn go_on(self, call: &mut Call<'_, '_, '_>) -> Taken {
        match self {
            Taking::Announces(_, mark) if mark != mark_of(call) => Taken::Swapped,
            Taking::Announces(keys, mark) => {
                let (now, shared) = (call.cx.now(), call.cx.shared);
                let Some(hold) = shared.pause.holds.take(&keys, now) else {
                    return Taken::NotYet(Taking::Announces(keys, mark), Step::Sleep(LOOK_MS));
                };
                shared.pause.look();
                shared.look_in_time(now);
                call.spend(STEP_NS_MIN);
                Taken::NotYet(Taking::Waits(hold, mark, call.cx.guard.say()), Step::More)
            }
            Taking::Waits(hold, mark, said) => {
                call.spend(STEP_NS_MIN);
                if !call.cx.guard.others_have_heard(said) {
                    return Taken::NotYet(Taking::Waits(hold, mark, said), Step::More);
                }
                if mark == mark_of(call) { Taken::Held(hold) } else { Taken::Swapped }
            }
        }
    }
}

impl Call<'_, '_, '_> {
    /// Whether the client's user still has the rules of `user`, under which a command began that holds keys and has written
    /// nothing; or new ones that allow as much, and `user` is set to these. If not, the connection is closed behind the command's
    /// reply, as with any command in steps.
    pub(crate) fn rules_hold(&self, user: &mut Snapshot) -> bool {
        let standing = &self.client.standing;
        if standing.is_free() || standing.is_as(user) {
            return true;
        }
        if standing.may_as(user, self.cx.room.work()) {
            *user = standing.snapshot();
            return true;
        }
        self.client.facts.turn_out(&self.cx.shared.access.log);
        false
    }

    /// Bytes of replies that a command keeps while it holds its key, at most: the connection's share, and no more than others
    /// should wait for.
    pub(crate) fn kept_bytes_max(&self) -> u64 {
        kept_bytes_of(self.reply_bytes_max())
    }
}

/// The same limit for a given share.
fn kept_bytes_of(share_bytes: u64) -> u64 {
    share_bytes.min(KEPT_BYTES_MAX)
}

/// How often a job that begins anew by itself found its keys changed.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failed: u8,
    is_held: bool,
}

impl Tries {
    /// Counts a change.
    pub fn fail(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// Whether its keys are to be held now ([`Step::Hold`]).
    pub fn are_many(&self) -> bool {
        !self.is_held && self.failed >= TRIES_MAX
    }

    /// Notes that its keys are held from now on.
    pub fn begin_held(&mut self) {
        *self = Tries { failed: 0, is_held: true };
    }

    /// Whether they change all the same: the rest is then done in one step.
    pub fn are_over(&self) -> bool {
        self.is_held && self.failed >= HELD_TRIES_MAX
    }
}

/// A command whose keys are held, or will be.
#[derive(Debug)]
pub(crate) struct Held(Stage);

#[derive(Debug)]
enum Stage {
    /// Waits for the lane.
    Waits(Again),
    /// Its job asks for its keys: they are noted.
    Asks(Box<dyn Job>),
    /// Its keys are on their way to be held.
    Takes(What, Noted),
    /// The keys are held, and it works.
    Works(Box<dyn Job>, Holding),
    /// No keys are held, and it replies.
    Replies(Box<dyn Job>),
    Over,
}

/// What is done when the keys are held.
#[derive(Debug)]
enum What {
    /// A command is begun.
    Begins(Again, Lane),
    /// A job goes on, which has the lane if it needs it.
    GoesOn(Box<dyn Job>),
}

/// Its noted keys, and the charge for them.
#[derive(Debug)]
struct Noted {
    taking: Taking,
    held: Heap,
}

/// While this exists, upkeep leaves the due fields of a hash.
#[derive(Debug)]
struct DueLeft(Arc<Store>);

impl DueLeft {
    /// Does so for the first key of a command. The others of several are no hashes.
    fn of(call: &Call<'_, '_, '_>, again: &Again) -> DueLeft {
        let mut first = None;
        again.row().each_key(again.args(), &mut |key| first = first.or(Some(key)));
        let store = Arc::clone(call.cx.guard.store());
        store.leave_due(first.map_or(0, |key| call.cx.guard.key_in(call.client.db, key).hash()));
        DueLeft(store)
    }
}

impl Drop for DueLeft {
    fn drop(&mut self) {
        self.0.leave_due(0);
    }
}

/// What a command has while it works, given back in this order.
#[derive(Debug)]
struct Holding {
    _due_left: Option<DueLeft>,
    hold: Hold,
    lane: Option<Lane>,
    _held: Heap,
    /// How long it has waited for memory.
    patience: Patience,
}

impl What {
    /// How many keys it names.
    fn key_count(&self) -> usize {
        match self {
            What::Begins(again, _) => again.row().key_count(again.args()),
            What::GoesOn(job) => job.names().len(),
        }
    }

    /// Notes in the lane whether the command only waits: until it works, connections that look for the lane need not look.
    fn rest(&self, rests: bool) {
        match self {
            What::Begins(_, lane) => lane.rest(rests),
            What::GoesOn(_) => {}
        }
    }

    fn note(&self, call: &Call<'_, '_, '_>, keys: &mut Keys) {
        match self {
            What::Begins(again, _) => again.row().each_key(again.args(), &mut |key| {
                keys.note(call.cx.guard.key_in(call.client.db, key).hash());
            }),
            What::GoesOn(job) => job.names().iter().for_each(|name| keys.note(name.key(call).hash())),
        }
    }
}

impl Noted {
    /// Notes the keys of a command, which are no more than one step may look at.
    ///
    /// # Errors
    /// Connections hold as much memory as they may.
    fn of(call: &mut Call<'_, '_, '_>, what: &What) -> Result<Noted, Fail> {
        let count = what.key_count();
        let held = Heap::keep(call, Keys::bytes(count))?;
        let mut keys = Keys::of(count);
        what.note(call, &mut keys);
        call.spend(count as u64 * NOTE_NS);
        Ok(Noted { taking: Taking::of(keys, mark_of(call)), held })
    }
}

impl Held {
    /// Begins with a command that names its keys.
    pub fn of(again: Again) -> Held {
        Held(Stage::Waits(again))
    }

    /// Goes on with a job that asks for its keys.
    pub fn around(job: Box<dyn Job>) -> Held {
        Held(Stage::Asks(job))
    }

    fn job(&self) -> Option<&dyn Job> {
        match &self.0 {
            Stage::Asks(job)
            | Stage::Takes(What::GoesOn(job), _)
            | Stage::Works(job, _)
            | Stage::Replies(job) => Some(&**job),
            Stage::Waits(_) | Stage::Takes(What::Begins(..), _) | Stage::Over => None,
        }
    }

    /// The job that goes on without the keys that were held for it. It may hold its key by itself (SPOP).
    fn free(&self) -> Option<&dyn Job> {
        if let Stage::Replies(job) = &self.0 { Some(&**job) } else { None }
    }
}

/// What a command came to that was begun: it is done, or goes on as a job. A job that names no keys only replies, or is of
/// another kind, since the key has another type of value now, and would wait for the lane.
fn begun(call: &mut Call<'_, '_, '_>, holding: Holding) -> (Stage, Step) {
    holding.hold.step(call.cx.now());
    match call.job.take() {
        Some(under_way) => {
            call.flow = Flow::Next;
            let job = under_way.job;
            let names_keys = job.again().is_some();
            (if names_keys { Stage::Works(job, holding) } else { Stage::Replies(job) }, Step::More)
        }
        None => (Stage::Over, Step::Done),
    }
}

/// Whether a job goes on without its keys: it only replies, or could not begin anew.
fn is_free(job: &dyn Job) -> bool {
    job.only_replies() || job.again().is_none() && job.names().is_empty()
}

/// Does a part of the stage.
fn go_on(call: &mut Call<'_, '_, '_>, stage: Stage) -> Result<(Stage, Step), Fail> {
    Ok(match stage {
        Stage::Waits(again) => {
            let Some(lane) = call.cx.room.work().take_lane() else {
                call.spend(STEP_NS_MIN);
                return Ok((Stage::Waits(again), call.await_lane()));
            };
            let what = What::Begins(again, lane);
            let noted = Noted::of(call, &what)?;
            (Stage::Takes(what, noted), Step::More)
        }
        Stage::Asks(job) => {
            let what = What::GoesOn(job);
            let noted = Noted::of(call, &what)?;
            (Stage::Takes(what, noted), Step::More)
        }
        Stage::Takes(what, Noted { taking, held }) => match (taking.go_on(call), what) {
            (Taken::NotYet(taking, step), what) => {
                what.rest(matches!(step, Step::Await(_) | Step::Sleep(_)));
                (Stage::Takes(what, Noted { taking, held }), step)
            }
            (Taken::Swapped, what) => {
                drop(held);
                let noted = Noted::of(call, &what)?;
                (Stage::Takes(what, noted), Step::More)
            }
            (Taken::Held(hold), What::Begins(again, lane)) => {
                let due_left = Some(DueLeft::of(call, &again));
                again.run_as_it_is(call)?;
                let (lane, patience) = (Some(lane), Patience::default());
                begun(call, Holding { _due_left: due_left, hold, lane, _held: held, patience })
            }
            (Taken::Held(hold), What::GoesOn(job)) => {
                hold.step(call.cx.now());
                let patience = Patience::default();
                let holding = Holding { _due_left: None, hold, lane: None, _held: held, patience };
                (Stage::Works(job, holding), Step::More)
            }
        },
        Stage::Works(mut job, mut holding) => {
            let step = holding.patience.step(call, &mut *job)?;
            holding.hold.step(call.cx.now());
            if let Some(lane) = &holding.lane {
                lane.rest(matches!(step, Step::Await(_) | Step::Sleep(_)));
            }
            match step {
                // The job may have begun anew.
                Step::Done => begun(call, holding),
                // The output is full: waiting for the client must not keep the keys.
                Step::Full => (Stage::Replies(job), step),
                Step::More | Step::Await(_) | Step::Sleep(_) if is_free(&*job) => (Stage::Replies(job), step),
                Step::More | Step::Await(_) | Step::Sleep(_) => (Stage::Works(job, holding), step),
                // The keys are held already.
                Step::Hold => (Stage::Works(job, holding), Step::More),
            }
        }
        Stage::Replies(mut job) => {
            let step = job.step(call)?;
            // The job held its keys no more, and asks for them again.
            if step == Step::Hold {
                return Ok((Stage::Asks(job), Step::More));
            }
            (if step == Step::Done { Stage::Over } else { Stage::Replies(job) }, step)
        }
        Stage::Over => (Stage::Over, Step::Done),
    })
}

impl Job for Held {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let stage = std::mem::replace(&mut self.0, Stage::Over);
        let (stage, step) = go_on(call, stage)?;
        self.0 = stage;
        Ok(step)
    }

    fn only_reads(&self) -> bool {
        self.job().is_some_and(Job::only_reads)
    }

    fn holds(&self) -> bool {
        match &self.0 {
            Stage::Takes(_, noted) => noted.taking.holds(),
            Stage::Works(..) => true,
            Stage::Replies(job) => job.holds(),
            Stage::Waits(_) | Stage::Asks(_) | Stage::Over => false,
        }
    }

    fn must_end(&self) -> bool {
        self.free().is_some_and(Job::must_end)
    }

    fn only_key(&self) -> Option<&Name> {
        self.free().and_then(Job::only_key)
    }

    fn asks_itself(&self) -> bool {
        self.job().is_some_and(Job::asks_itself)
    }

    fn held_bytes(&self) -> u64 {
        self.job().map_or(0, Job::held_bytes)
    }

    fn only_replies(&self) -> bool {
        self.job().is_some_and(Job::only_replies)
    }

    fn again(&self) -> Option<&Again> {
        match &self.0 {
            Stage::Waits(again) | Stage::Takes(What::Begins(again, _), _) => Some(again),
            _ => self.job().and_then(Job::again),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_while_a_key_is_held_than_a_share_and_256_mib() {
        for share in [0, KEPT_BYTES_MAX - 1, KEPT_BYTES_MAX] {
            assert_eq!(kept_bytes_of(share), share);
        }
        assert_eq!(kept_bytes_of(KEPT_BYTES_MAX + 1), KEPT_BYTES_MAX);
    }
}
