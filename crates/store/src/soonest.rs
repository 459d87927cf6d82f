//! Which items `volatile-ttl` evicts: those that expire first, as far as one turn of the hand tells.
//!
//! ```text
//! the hand's window   512 chunks: the 32 that expire first
//! the bar             the earliest of the windows' 32nd, over one turn: an item that expires later stays
//! ```
//!
//! Without a bar each window would give its own 32, however late they expire. Times are absolute: a bar
//! grows old by itself, and each turn sets it anew.

use crate::Millis;

/// What one class's hand has seen of expiries.
#[derive(Debug)]
pub(crate) struct Bar {
    at: Millis,
    /// The earliest that a window of this turn has offered.
    best: Millis,
    /// Chunks passed in this turn.
    passed: usize,
}

impl Default for Bar {
    fn default() -> Bar {
        Bar { at: 0, best: Millis::MAX, passed: 0 }
    }
}

impl Bar {
    /// Notes that the hand has passed `chunks` of a class's `of` chunks; `latest` is when the last of those expires that go
    /// first. Returns the time up to which items go.
    pub(crate) fn pass(&mut self, chunks: usize, of: usize, latest: Option<Millis>) -> Millis {
        self.best = latest.map_or(self.best, |latest| self.best.min(latest));
        self.passed += chunks;
        if self.passed >= of {
            // Nothing has an expiry: nothing goes, whatever the bar.
            *self = Bar { at: self.best, ..Bar::default() };
        }
        self.at
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn bar_is_the_earliest_of_a_turn() {
        let mut bar = Bar::default();
        let mut pass = |latest| bar.pass(10, 30, latest);
        assert_eq!([pass(Some(900)), pass(Some(100)), pass(None)], [0, 0, 100]);
        assert_eq!([pass(Some(900)), pass(Some(700)), pass(Some(800))], [100, 100, 700]);
    }
}
