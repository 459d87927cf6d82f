//! The gate: whether a client's user allows a request of one key by a look at that key, so that it is read ahead with others.
//!
//! Runs and batches are compiled for two kinds of clients: those whose user may do everything, for which nothing is checked, and
//! those whose user has rules that decide by the key alone ([`User::may_ahead`](crate::core::acl::user::User::may_ahead)). A
//! request that is not let through ends the run or the batch, and is dispatched by itself: it is refused there, or allowed by a
//! closer look.

use larder_protocol::resp::{Args, Ask};

use super::turn::{DECR, GET, INCR, SET};
use crate::core::access::Standing;
use crate::core::acl::pattern::Need;
use crate::core::calls::RowId;
use crate::redis::permissions;
use crate::redis::row::Command;

/// A gate for requests of one key.
pub(crate) trait Gate {
    /// Whether a plain request of a run is let through.
    fn lets_plain(standing: &Standing, key: &[u8], ask: &Ask<'_>) -> bool;

    /// Whether a command of one key is let through; `args` are behind its name and begin with the key.
    fn lets(standing: &Standing, row: (&Command, RowId), key: &[u8], args: Args<'_>) -> bool;
}

/// The gate for a user that may do everything.
pub(crate) enum Free {}

impl Gate for Free {
    #[inline(always)]
    fn lets_plain(_: &Standing, _: &[u8], _: &Ask<'_>) -> bool {
        true
    }

    #[inline(always)]
    fn lets(_: &Standing, _: (&Command, RowId), _: &[u8], _: Args<'_>) -> bool {
        true
    }
}

/// The gate for a user with rules.
pub(crate) enum Ruled {}

impl Gate for Ruled {
    #[inline(always)]
    fn lets_plain(standing: &Standing, key: &[u8], ask: &Ask<'_>) -> bool {
        standing.user().is_some_and(|user| {
            let (may_run, need) = asked_as(ask, |command| user.may_run_ahead(command));
            may_run && user.may_use_ahead(key, need)
        })
    }

    #[inline]
    fn lets(standing: &Standing, (row, id): (&Command, RowId), key: &[u8], args: Args<'_>) -> bool {
        standing.user().is_some_and(|user| user.may_ahead(id, key, permissions::need_of_first(row, args)))
    }
}

/// What `of` returns for the command of a plain request, and what the request needs of its key, as [`permissions::need_of_first`]
/// of its row. `of` is called with a constant, so that a lookup in a set of commands is of a bit at a constant place.
#[inline(always)]
fn asked_as<T>(ask: &Ask<'_>, of: impl FnOnce(RowId) -> T) -> (T, Need) {
    match ask {
        Ask::Get => (of(GET), Need::READ),
        Ask::Set(_) => (of(SET), Need::WRITE),
        Ask::Incr => (of(INCR), Need::BOTH),
        Ask::Decr => (of(DECR), Need::BOTH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::table;
    use larder_protocol::resp::Encoder;

    #[test]
    fn plain_requests_need_what_their_rows_say() {
        for (name, ask, words) in [
            ("get", Ask::Get, &["key"][..]),
            ("set", Ask::Set(b"value"), &["key", "value"]),
            ("incr", Ask::Incr, &["key"]),
            ("decr", Ask::Decr, &["key"]),
        ] {
            let (row, id) = table::find(name.as_bytes()).expect("a command");
            let mut args = Encoder::default();
            words.iter().for_each(|word| args.push(word.as_bytes()));
            let asked = asked_as(&ask, |command| command);
            assert_eq!(asked, (id, permissions::need_of_first(row, args.args())), "{name}");
        }
    }
}
