//! Checks of plain requests, before a run reads them ahead. A run is compiled for each of two kinds of clients, as in
//! `redis/session/gate.rs`: those of a user that may do everything, and those of a user whose rules say by the key alone what
//! it may do with it ([`User::may_ahead`]). A request that is not let through ends the run, with all keys of its line, and goes
//! the general way (`ruled.rs`), which refuses it, or knows better.

use larder_protocol::plain::Ask;

use super::{Conversation, Turn};
use crate::core::access::{Access, Standing};
use crate::core::acl::pattern::Need;
use crate::core::acl::user::User;
use crate::core::acl::verbs::Verb;
use crate::core::progress::Next;

/// A check of the plain requests that a client's user allows by no more than a look at their key.
pub(super) trait Gate {
    /// Whether it looks at requests at all.
    const LOOKS: bool;

    /// Returns whether the request may run.
    fn lets(&self, key: &[u8], ask: &Ask<'_>) -> bool;
}

/// The gate of a user that may do everything.
pub(super) struct Free;

impl Gate for Free {
    const LOOKS: bool = false;

    #[inline(always)]
    fn lets(&self, _: &[u8], _: &Ask<'_>) -> bool {
        true
    }
}

/// The gate of a user with rules.
pub(super) struct Ruled<'r> {
    user: &'r User,
    /// Whether the user may run the command as which each is checked, and its need for the key.
    get: (bool, Need),
    set: (bool, Need),
    add: (bool, Need),
}

impl<'r> Ruled<'r> {
    fn of(user: &'r User, access: &Access) -> Ruled<'r> {
        let asked = |verb| (user.may_run_ahead(access.command_of(verb)), Verb::need(verb));
        Ruled { user, get: asked(Verb::Get), set: asked(Verb::Set), add: asked(Verb::Add) }
    }
}

impl Gate for Ruled<'_> {
    const LOOKS: bool = true;

    #[inline(always)]
    fn lets(&self, key: &[u8], ask: &Ask<'_>) -> bool {
        let (may_run, need) = match ask {
            Ask::Get | Ask::MetaGet => self.get,
            Ask::Set(_) | Ask::SetWith(_) | Ask::MetaSet(_) => self.set,
            Ask::Add(_) => self.add,
        };
        may_run && self.user.may_use_ahead(key, need)
    }
}

/// Returns whether a run is worth a try: the client's user may do everything, or has rules for requests that are read ahead.
#[cold]
pub(super) fn may_run(standing: Option<&Standing>) -> bool {
    standing
        .is_none_or(|standing| standing.is_free() || standing.user().is_some_and(|user| user.is_read_ahead()))
}

impl Conversation {
    /// Does [`Conversation::run`] for a client whose user has rules.
    #[inline(never)]
    pub(super) fn run_ruled(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        // Not a clone: its count is on a line that all workers of this user would write.
        let standing = self.standing.take();
        let user = standing.as_ref().and_then(Standing::user);
        let gate = user.map(|user| Ruled::of(user, &turn.cx.shared.access));
        let next = match gate {
            Some(gate) => self.run(turn, &gate),
            None => {
                turn.runs = false;
                None
            }
        };
        self.standing = standing;
        next
    }
}
