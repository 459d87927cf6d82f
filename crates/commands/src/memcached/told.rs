//! Keyspace events of what text clients do: whoever changes a key looks at it before and after.

use crate::core::context::Context;
use crate::core::events::{Seen, seen};
use crate::memcached::table::Command;

/// What a key of the first database was like before a command, where somebody listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(Option<Seen>);

impl Before {
    /// Looks at the key.
    pub fn look(cx: &mut Context<'_, '_>, key: &[u8]) -> Before {
        Before(cx.shared.events.any().then(|| seen(&mut cx.guard, 0, key)))
    }

    /// Looks again, and tells what the command of this row has done to the key.
    pub fn tell(self, cx: &mut Context<'_, '_>, row: &Command, key: &[u8]) {
        let Some(was) = self.0 else { return };
        let is = seen(&mut cx.guard, 0, key);
        if row.asks() && was.is_none() {
            cx.tell_miss(0, key);
        }
        if let Some(change) = row.change() {
            cx.tell_change(change, 0, key, was, is);
        }
        cx.go_on_telling();
    }
}
