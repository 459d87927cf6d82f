//! Commands that are one moment for others though they are done in steps: their keys are held ([`hold`](crate::core::hold)) from
//! before the first write to behind the last.
//!
//! ```text
//! Prepares ─► Takes ─► waits for earlier requests ─► Holds: some │ some │ … ─► done, or Free
//!                └───────────── the keys are held ─────────────────┘
//! ```
//!
//! A client that closes its side while its command waits is answered all the same: it may have sent all its requests. A command
//! that has begun to hold its keys is done to its end, even if its client has gone. Before the first write it ends if the rules
//! of its client's user have changed. If each step is one moment, or only replies are left, no keys are held.

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

/// A command that may be one moment. Methods that [`Job`] has, too, mean the same here.
pub(crate) trait Staged: std::fmt::Debug + Send {
    /// What is not done if the rules of the client's user change first ([`Fail::overtaken`]).
    const UNDONE: &'static str;
    /// Whether a step outside of a moment that finds no memory is made again. In a moment the command waits for memory itself.
    const ASKS_AGAIN: bool = false;
    /// Whether its steps spend the work of its words.
    const SPENDS_ON_WORDS: bool = false;

    /// Whether its keys are held, or are to be: the next step belongs to the moment.
    fn is_whole(&self) -> bool;

    /// Whether a part of the moment is done.
    fn has_begun(&self) -> bool;

    /// Whether its first write wants memory. While that is on its way no key is held for the command.
    fn wants_memory(&self) -> bool {
        false
    }

    /// Does a part of what comes before the keys are held; returns the keys when all of that is done. By default nothing comes
    /// before, and the only key is returned.
    ///
    /// # Errors
    /// Why the command is refused.
    fn prepare(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<Taking>, Fail> {
        Ok(self.only_key().map(|name| Taking::of_key(call, name)))
    }

    /// Does a part of the command, in the moment or outside of it.
    ///
    /// # Errors
    /// The error to reply; the command is over then.
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
    /// It prepares, and waits for memory.
    Prepares(Asked),
    /// Its keys are on their way to be held.
    Takes(Taking),
    /// Its keys are held.
    Holds(Hold),
    /// No keys are held: each step is one moment, or only replies.
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
            // The names mean other keys now.
            Taken::Swapped => (Stage::Prepares(Asked::default()), Step::More),
            Taken::Held(hold) => (Stage::Holds(hold), Step::More),
        };
        self.stage = stage;
        Ok(step)
    }

    /// Checks that the client's user has the rules by which the command began, while keys are held and nothing is done.
    ///
    /// # Errors
    /// It has other rules, or is gone: the connection is closed behind that, as with any command in steps.
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
                // Notes the end of the step, also of a refused one: the next command may hold keys only some time after it.
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

    /// Watchers get one line for a moment of one key, at its end.
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
