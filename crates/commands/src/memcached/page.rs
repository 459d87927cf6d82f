//! A page of memory on its way from one class to another (`slabs reassign`), some spans at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::slabs::SPANS_PER_PAGE;
use super::steps::Step;
use super::text::OK;
use crate::core::context::Context;
use crate::core::output::Output;

/// Times in a row that a class gives nothing before another class gives.
const MISSES_MAX: u32 = 4;

/// Reply if a page moves already, or if nothing of it could be moved.
pub(super) const BUSY: &[u8] = b"BUSY currently processing reassign request\r\n";

/// A page that moves, which is 16 spans. After some of them other connections have their turn: a page of small items took 4 ms
/// at once.
#[derive(Debug)]
pub(crate) struct PageMove {
    /// Classes that give, the one that gives now last; `None`: the memory that no class owns.
    givers: Vec<Option<u8>>,
    /// Times in a row that it gave nothing: values that are being sent or received keep some spans.
    misses: u32,
    into: Option<u8>,
    /// Spans to go.
    left: usize,
    noreply: bool,
    /// The note that a page moves: only one does at a time.
    _running: Running,
}

/// The note that a page moves, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running(Arc<AtomicBool>);

impl Running {
    /// Notes that a page moves; `None` if another one does.
    pub fn begin(reassigning: &Arc<AtomicBool>) -> Option<Running> {
        let runs = reassigning.swap(true, Relaxed);
        // None is made for a page that is refused: its drop would end the note of the other one.
        (!runs).then(|| Running(Arc::clone(reassigning)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

impl PageMove {
    /// A page that moves from these classes, of which the last gives first, into one. `None` is the memory that no class owns.
    pub fn new(givers: Vec<Option<u8>>, into: Option<u8>, noreply: bool, running: Running) -> PageMove {
        PageMove { givers, misses: 0, into, left: SPANS_PER_PAGE as usize, noreply, _running: running }
    }

    /// Moves a span of a class, or spans that no class has. The items in it stay, as far as there is room for them.
    pub(crate) fn step(&mut self, cx: &mut Context<'_, '_>, out: &mut Output) -> Step {
        if let Some(&giver) = self.givers.last() {
            let moved = match (giver, self.into) {
                (None, Some(into)) => cx.guard.grow(into, self.left),
                (giver, into) => cx.guard.reassign(giver, into, 1),
            };
            self.left -= moved;
            self.misses = if moved > 0 { 0 } else { self.misses + 1 };
            if giver.is_none() || self.misses == MISSES_MAX {
                self.givers.pop();
                self.misses = 0;
            }
        }
        if self.left > 0 && !self.givers.is_empty() {
            return Step::More;
        }
        if !self.noreply {
            // All of the page is being sent, or received.
            out.put(if self.left == SPANS_PER_PAGE as usize { BUSY } else { OK });
        }
        Step::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_moves_at_a_time_and_a_refused_one_ends_no_move() {
        let reassigning = Arc::new(AtomicBool::new(false));
        let first = Running::begin(&reassigning).expect("no page moves");
        for refused in 0..2 {
            assert!(Running::begin(&reassigning).is_none(), "{refused} were refused before");
        }
        drop(first);
        assert!(Running::begin(&reassigning).is_some(), "the first has moved");
    }
}
