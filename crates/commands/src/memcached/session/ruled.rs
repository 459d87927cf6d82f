//! Requests that the client's rules do not allow, and the replies to them.

use larder_protocol::classic::{Request, Store};

use super::{Conversation, State, Turn};
use crate::memcached::batch::Staged;
use crate::memcached::rules;
use crate::memcached::text::UNAUTHORIZED;

impl Conversation {
    /// Returns whether a request has begun for which permission is not asked again.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(
            self.state,
            State::Upload { .. } | State::Gather(_) | State::Join(_) | State::Dump(_) | State::Watch(_)
        )
    }

    /// Refuses a request that the rules of the client's user do not allow, and throws its block away.
    #[cold]
    pub(super) fn refuse(&mut self, turn: &mut Turn<'_, '_, '_, '_>, block_bytes: u64, noreply: bool) {
        if !noreply {
            turn.out.put(UNAUTHORIZED);
        }
        if block_bytes > 0 {
            self.state = State::Swallow { left: block_bytes, reply: None };
        }
    }

    /// Returns whether the rules of the client's user allow a staged request. If they do not, it is refused.
    #[cold]
    pub(super) fn permits(&self, turn: &mut Turn<'_, '_, '_, '_>, staged: &Staged<'_, '_>) -> bool {
        let Some(verb) = rules::verb_of(&staged.request) else { return true };
        if rules::permits(turn.cx, turn.out, self.standing.as_ref(), verb, Some(staged.key.bytes())) {
            return true;
        }
        match &staged.request {
            Request::Fetch(_) => turn.refuse_keys(staged, UNAUTHORIZED),
            Request::Store(Store { noreply, .. })
            | Request::Delete { noreply, .. }
            | Request::Arithmetic { noreply, .. }
            | Request::Touch { noreply, .. } => {
                if !noreply {
                    turn.out.put(UNAUTHORIZED);
                }
            }
            // A line and a fault have no verb: both were let through above.
            Request::Meta(_) | Request::Line(_) | Request::Fault { .. } => turn.out.put(UNAUTHORIZED),
        }
        false
    }
}
