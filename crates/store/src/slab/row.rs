//! Spans in a row: the queue that a class's hand goes round, and the spans that are drained.

use crate::arena::Arena;
use crate::sync::atomic::Ordering;

/// Spans in a row, linked through their descriptions.
#[derive(Debug, Default)]
pub(crate) struct Row {
    front: u32,
    back: u32,
    pub(crate) count: usize,
}

impl Row {
    pub(super) fn push_back(&mut self, arena: &Arena, number: u32) {
        let span = arena.span(number);
        span.queue_next.store(0, Ordering::Relaxed);
        span.queue_previous.store(self.back, Ordering::Relaxed);
        match self.back {
            0 => self.front = number,
            back => arena.span(back).queue_next.store(number, Ordering::Relaxed),
        }
        self.back = number;
        self.count += 1;
    }

    pub(super) fn remove(&mut self, arena: &Arena, number: u32) {
        let span = arena.span(number);
        let previous = span.queue_previous.load(Ordering::Relaxed);
        let next = span.queue_next.load(Ordering::Relaxed);
        match previous {
            0 => self.front = next,
            previous => arena.span(previous).queue_next.store(next, Ordering::Relaxed),
        }
        match next {
            0 => self.back = previous,
            next => arena.span(next).queue_previous.store(previous, Ordering::Relaxed),
        }
        self.count -= 1;
    }

    pub(crate) fn front(&self) -> Option<u32> {
        (self.front != 0).then_some(self.front)
    }

    pub(crate) fn iter<'a>(&self, arena: &'a Arena) -> impl Iterator<Item = u32> + use<'a> {
        std::iter::successors(self.front(), |&number| {
            let next = arena.span(number).queue_next.load(Ordering::Relaxed);
            (next != 0).then_some(next)
        })
    }
}
