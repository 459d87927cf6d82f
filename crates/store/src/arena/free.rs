//! Spans without an owner: untouched, with memory, or without it again.

use crate::numbers::Numbers;

/// Spans without an owner.
#[derive(Debug)]
pub(super) struct Free {
    /// First span that was neither handed out nor mapped ahead.
    pub(super) next: u32,
    /// Spans that were ever handed out have lower numbers.
    pub(super) ever: u32,
    /// `next` at the time when the memory mapped behind it was last given back.
    pub(super) tail: u32,
    /// Spans that have memory: given back, or mapped ahead. The lowest address goes out first.
    pub(super) back: Numbers,
    /// Spans given back whose memory went to the system.
    pub(super) gone: Numbers,
    /// Spans handed out now.
    pub(super) used: u32,
    /// The least length of `back` in this period of compaction, and how many of its spans may lose their memory.
    pub(super) back_low: usize,
    pub(super) spare: usize,
}

impl Free {
    /// The lowest free span if it is below `below`.
    pub(super) fn pop_below(&mut self, below: u32) -> Option<u32> {
        [&mut self.back, &mut self.gone].into_iter().find_map(|spans| {
            let number = spans.pop_first()?;
            if number < below {
                return Some(number);
            }
            spans.insert(number);
            None
        })
    }
}
