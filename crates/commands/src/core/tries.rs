//! A connection's tries to log in. `guesses` says how much later each is looked at.

use larder_store::Millis;

use super::context::Context;
use super::counters::Counter;
use super::guesses::{OWN_MS_MAX, cost_ms};
use super::origin::Origin;

/// A connection's tries to log in.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failed: u32,
    last: Millis,
    /// When the try that waits is looked at.
    until: Option<Millis>,
    /// Whether a login of the EXEC at work was wrong: its further ones are refused without a look.
    logins_skipped: bool,
}

impl Tries {
    /// Milliseconds that the present try still waits; `None`: its time has come.
    pub fn wait_ms(&mut self, cx: &Context<'_, '_>) -> Option<Millis> {
        let now = cx.now();
        let until = match self.until {
            Some(until) => until,
            None => {
                let origin = Origin::of_shown(&cx.peer.address());
                let own = if self.failed == 0 { 0 } else { self.last + cost_ms(self.failed, OWN_MS_MAX) };
                own.max(cx.shared.guesses.due(origin, now))
            }
        };
        // The clock may have been set back.
        let left = until.saturating_sub(now).min(OWN_MS_MAX);
        // The next one's time is its own, also where this one is refused before its password is looked at.
        self.until = (left > 0).then_some(now + left);
        (left > 0).then_some(left)
    }

    /// Whether further logins of this EXEC are refused without a look.
    pub fn logins_skipped(&self) -> bool {
        self.logins_skipped
    }

    /// Sets whether further logins of this EXEC are refused without a look.
    pub fn skip_logins(&mut self, skipped: bool) {
        self.logins_skipped = skipped;
    }

    /// Counts a login whose password was looked at.
    pub fn record_attempt(&mut self, cx: &Context<'_, '_>, is_right: bool) {
        cx.counters.add(Counter::AuthCommands, 1);
        if is_right {
            self.failed = 0;
            return;
        }
        cx.counters.add(Counter::AuthErrors, 1);
        self.failed = self.failed.saturating_add(1);
        self.last = cx.now();
        cx.shared.guesses.note(Origin::of_shown(&cx.peer.address()), self.last);
    }
}
