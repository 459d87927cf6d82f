//! Commands that are one moment for others though they are done in steps: their keys are held ([`hold`](crate::core::hold)) from
//! before the first write to behind the last.
//!
//! ```text
//! Prepares ─► Takes ─► requests of before are over ─► Holds: some │ some │ … ─► done, or Free
//!                └─────────────── the keys are held ────────────────┘
//! ```
//!
//! A client that sends no more while its command waits is answered all the same: it may have sent all that it has to say. What
//! has begun to hold its keys is done to its end, also where its client has gone. Before the first write it ends where the rules
//! of its client's user have changed. Where each step is one moment, and where only replies are left, nothing is held.

use crate::core::access::Snapshot;
use crate::core::hold::Hold;
use crate::core::input::Asked;
use crate::core::progress::Next;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::source::Name;
use crate::redis::steps::held::{Taken, Taking};
use crate::redis::steps::job::{Job, LEAF, Step};
use crate::redis::steps::kept::Kept;

/// A command that may be one moment. A method that [`Job`] has, too, says what it says there.
pub(crate) trait Staged: std::fmt::Debug + Send {
    /// What is not done where others' rules come first ([`Fail::overtaken`]).
    const UNDONE: &'static str;
    /// A step that is no part of a moment, and finds no memory, is made again. In a moment the command waits for memory itself.
    const ASKS_AGAIN: bool = false;
    /// Its steps spend what their words take.
    const SPENDS_ON_WORDS: bool = false;

    /// Its keys are held, or are to be: what comes next belongs to the moment.
    fn is_whole(&self) -> bool;

    /// A part of the moment is done.
    fn has_begun(&self) -> bool;

    /// Its first write wants memory. While that is on its way no key is held for it.
    fn wants_memory(&self) -> bool {
        false
    }

    /// Does some of what comes before the keys are held; when all of that is done, returns the keys. Where a command does not say
    /// otherwise nothing comes before, and the only key is taken.
    ///
    /// # Errors
    /// Why the command is refused.
    fn prepare(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<Taking>, Fail> {
        Ok(self.only_key().map(|name| Taking::of_key(call, name)))
    }

    /// Does some of it, as a part of the moment or without.
    ///
    /// # Errors
    /// What is replied; it is over then.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail>;

    fn asks_itself(&self) -> bool {
        false
    }

    fn held_bytes(&self) -> u64 {
        0
    }

    fn only_replies(&self) -> bool {
        false
    }

    fn only_key(&self) -> Option<&Name> {
        None
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        None
    }
}

/// A command, and how far it is with its keys.
#[derive(Debug)]
struct Stages<T> {
    command: T,
    /// The client's user when it began.
    user: Snapshot,
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    /// Does what comes before, and waits for memory.
    Prepares(Asked),
    /// Its keys are on their way to be held.
    Takes(Taking),
    /// They are.
    Holds(Hold),
    /// None is: each step is one moment, or replies what was found.
    #[default]
    Free,
}

impl Call<'_, '_, '_> {
    /// Goes on with a command in the next turn, stage by stage.
    pub(crate) fn go_on_in_stages(&mut self, command: impl Staged + 'static) {
        let stage = if command.is_whole() { Stage::Prepares(Asked::default()) } else { Stage::Free };
        let user = self.client.standing.snapshot();
        self.go_on_with(Stages { command, user, stage });
    }
}

impl<T: Staged> Stages<T> {
    /// Prepares, and begins to take the keys when there is memory.
    fn prepare(&mut self, call: &mut Call<'_, '_, '_>, mut asked: Asked) -> Result<Step, Fail> {
        let Some(taking) = self.command.prepare(call)? else {
            self.stage = Stage::Prepares(asked);
            return Ok(Step::More);
        };
        if self.command.wants_memory() && call.finds_none(LEAF) {
            if let Some(Next::Sleep(ms)) = asked.again(call.cx, 0) {
                self.stage = Stage::Prepares(asked);
                return Ok(Step::Sleep(ms));
            }
            call.cx.guard.memory_did_not_come();
        }
        self.take(call, taking)
    }

    /// Goes on to have the keys held.
    fn take(&mut self, call: &mut Call<'_, '_, '_>, taking: Taking) -> Result<Step, Fail> {
        if taking.holds() {
            self.still_may(call)?;
        }
        let (stage, step) = match taking.go_on(call) {
            Taken::NotYet(taking, step) => (Stage::Takes(taking), step),
            // The names mean other keys by now.
            Taken::Swapped => (Stage::Prepares(Asked::default()), Step::More),
            Taken::Held(hold) => (Stage::Holds(hold), Step::More),
        };
        self.stage = stage;
        Ok(step)
    }

    /// The client's user has the rules by which the command began, while keys are held and nothing is done.
    ///
    /// # Errors
    /// It has others, or is gone: the connection is closed behind that, as with any command in steps.
    fn still_may(&mut self, call: &Call<'_, '_, '_>) -> Done {
        if call.rules_hold(&mut self.user) { Ok(()) } else { Err(Fail::overtaken(T::UNDONE)) }
    }
}

impl<T: Staged> Job for Stages<T> {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        match std::mem::take(&mut self.stage) {
            Stage::Prepares(asked) => self.prepare(call, asked),
            Stage::Takes(taking) => self.take(call, taking),
            Stage::Holds(hold) => {
                let may = if self.command.has_begun() { Ok(()) } else { self.still_may(call) };
                let done = may.and_then(|()| self.command.go_on(call));
                // The next command holds keys some time behind the last step, also one that was refused.
                hold.step(call.cx.now());
                let step = done?;
                if self.command.is_whole() && step != Step::Done {
                    self.stage = Stage::Holds(hold);
                }
                Ok(step)
            }
            Stage::Free => self.command.go_on(call),
        }
    }

    fn holds(&self) -> bool {
        self.must_end()
    }

    fn must_end(&self) -> bool {
        match &self.stage {
            Stage::Takes(taking) => taking.holds(),
            Stage::Holds(_) => true,
            Stage::Prepares(_) | Stage::Free => false,
        }
    }

    /// Watchers get the line of one moment of one key when that is over.
    fn tells_watchers(&self) -> bool {
        self.command.is_whole() && self.command.only_key().is_some()
    }

    fn asks_itself(&self) -> bool {
        self.command.asks_itself()
    }

    fn asks_again(&self) -> bool {
        T::ASKS_AGAIN && !self.command.is_whole()
    }

    fn spends_on_words(&self) -> bool {
        T::SPENDS_ON_WORDS
    }

    fn held_bytes(&self) -> u64 {
        self.command.held_bytes()
    }

    fn only_replies(&self) -> bool {
        self.command.only_replies()
    }

    fn only_key(&self) -> Option<&Name> {
        self.command.only_key()
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        self.command.kept()
    }
}
