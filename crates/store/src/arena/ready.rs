//! Memory that is there before it is asked for: a thread beside the workers has the system map what they will hand out
//! next, so that no request waits for that.
//!
//! ```text
//! back   ├ 17, 21 ─┤  free, with memory: handed out first
//! gone   ├ 3, 9 ───┤  free, without: mapped first ─▶ back
//! next   ├ 64 … ───┤  never handed out: mapped as far as `mapped`, up to the end of a huge page at a time
//! ```
//!
//! When fewer than half of [`READY_SPANS`] are in `back` or mapped behind `next`, the thread is woken.
//!
//! A huge page takes 0.1 ms where the system has one at hand, and 5 ms in a virtual machine whose host has to find 512
//! pages for it. Nothing depends on the thread: a worker that finds nothing ready maps what it takes by its first use.

use super::free::Free;
use super::{Arena, HUGE_PAGE_BYTES};
use crate::class::SPAN_BYTES;
use crate::held::trim_heap;
use crate::numbers::GROUP;
use crate::sync::atomic::Ordering;
use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::thread::Thread;

/// Free spans that are to have memory: a huge page of them.
pub(super) const READY_SPANS: u32 = GROUP;
/// With fewer the thread is woken.
const READY_LEAST: u32 = READY_SPANS / 2;

impl Arena {
    /// Has `thread` woken from now on when there is something for [`Arena::make_ready`] to do.
    pub(crate) fn is_made_ready_by(&self, thread: Thread) {
        let _ = self.preparer.set(thread);
    }

    /// Hands trimming the heap over to the thread that makes memory ready: it takes the longer the
    /// more holes the heap has. False if there is no such thread.
    pub(crate) fn hand_over_trim(&self) -> bool {
        let Some(thread) = self.preparer.get() else { return false };
        // It sees this when it has been woken.
        self.trims_heap.store(true, Ordering::Relaxed);
        thread.unpark();
        true
    }

    /// Wakes the thread that makes memory ready, if there is one and little is ready.
    pub(super) fn call_preparer(&self, ready: u32) {
        if ready < READY_LEAST
            && let Some(thread) = self.preparer.get()
        {
            thread.unpark();
        }
    }

    /// Free spans that keep their memory although it was not used for a long time.
    pub(super) fn kept_ready(&self, free: &Free) -> usize {
        if self.preparer.get().is_some() { READY_SPANS.saturating_sub(free.ahead()) as usize } else { 0 }
    }

    /// Has the system map memory of spans that will be handed out next, if few have any and the limit allows more; where there is
    /// none to map, has the heap trimmed, if that was handed over. False if there is nothing more to do. Takes as long as the
    /// system does, milliseconds at times: for a thread that no other waits for.
    pub(crate) fn make_ready(&self) -> bool {
        let more = self.map_some();
        if !more && self.trims_heap.swap(false, Ordering::Relaxed) {
            trim_heap();
        }
        more
    }

    /// Has the system map some; false if there is nothing to map.
    fn map_some(&self) -> bool {
        let (gone, ahead) = {
            let mut free = self.free.lock().expect("no panic under the lock");
            let ready = free.back.len() as u32 + free.ahead();
            if ready >= READY_SPANS {
                return false;
            }
            let room = self.spans_allowed().saturating_sub(free.used + ready);
            let gone = take_gone(&mut free, room.min(READY_SPANS));
            // To the end of a huge page: what of it is mapped already takes no time.
            let from = free.next.max(free.mapped);
            let end = (from + 1).next_multiple_of(GROUP).min(self.spans_max);
            let ahead = if gone.is_empty() && end - from <= room { from..end } else { from..from };
            (gone, ahead)
        };
        // Some of what was never handed out may be handed out meanwhile: that changes nothing.
        let wanted = || gone.iter().chain(Some(&ahead)).filter(|spans| !spans.is_empty());
        let mapped = wanted().count() > 0 && wanted().all(|spans| self.populate(spans));
        let mut free = self.free.lock().expect("no panic under the lock");
        for number in gone.iter().cloned().flatten() {
            let spans = if mapped { &mut free.back } else { &mut free.gone };
            spans.insert(number);
        }
        if mapped && !ahead.is_empty() {
            free.mapped = free.mapped.max(ahead.end);
        }
        self.publish(&mut free);
        drop(free);
        // What others took meanwhile counts, too.
        self.trim(READY_SPANS as usize);
        mapped
    }

    /// Has the system map the memory of spans; false if it cannot.
    fn populate(&self, spans: &Range<u32>) -> bool {
        debug_assert!(spans.len() * SPAN_BYTES <= HUGE_PAGE_BYTES);
        let address = self.at(Self::location_of(spans.start)).as_ptr();
        // SAFETY: inside the mapping, and it changes no byte, whichever thread uses them.
        unsafe { madvise(address.cast(), spans.len() * SPAN_BYTES, Advice::LinuxPopulateWrite) }.is_ok()
    }
}

/// Takes up to `most` spans without memory out of those without an owner, so that they are not handed out meanwhile.
fn take_gone(free: &mut Free, most: u32) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for _ in 0..most {
        let Some(number) = free.gone.pop_first() else { break };
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
