//! Memory that is there before it is asked for: a thread beside the workers has the system map what they will hand out
//! next, so that no request waits for that.
//!
//! ```text
//! back   ├ 17, 21 ─┤  free, with memory: handed out first
//! gone   ├ 3, 9 ───┤  free, without: mapped first ─▶ back
//! next   ├ 64 … ───┤  untouched: mapped up to the end of a huge page at a time ─▶ back
//! ```
//!
//! When fewer than [`READY_SPANS`] are in `back`, the thread is woken.
//!
//! A huge page takes 0.1 ms where the system has one at hand, and 5 to 20 ms in a virtual machine whose host has to find 512
//! pages for it. Nothing depends on the thread: a worker that finds nothing ready maps what it takes by its first use. Only
//! what can outrun the thread waits for it: large values on their way in, and commands in steps ([`Arena::awaits_memory`]).

use super::free::Free;
use super::{Arena, HUGE_PAGE_BYTES};
use crate::class::SPAN_BYTES;
use crate::held::trim_heap;
use crate::numbers::GROUP;
use crate::sync::atomic::Ordering;
use std::ops::Range;
use std::thread::Thread;

/// Free spans that are to have memory: a huge page of them. With fewer the thread is woken. Some commands take as many in one
/// step: the first that rewrites a node of a tree as it shrinks, one of each size.
pub(super) const READY_SPANS: u32 = GROUP;

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

    /// Wakes the thread that makes memory ready, if there is one, little is ready, and the limit allows more.
    pub(super) fn call_preparer(&self, ready: u32) {
        let Some(thread) = self.preparer.get().filter(|_| ready < READY_SPANS) else { return };
        let room = self.spans_allowed().saturating_sub(self.resident.load(Ordering::Relaxed));
        if room >= GROUP {
            self.maps.store(true, Ordering::Relaxed);
        }
        if room > 0 {
            thread.unpark();
        }
    }

    /// Few spans are ready, and the thread is at it. What wants many of them leaves those to what wants one, which would map it by
    /// its first use.
    pub(crate) fn awaits_memory(&self) -> bool {
        let ready =
            || self.resident.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed));
        self.preparer.get().is_some() && self.maps.load(Ordering::Relaxed) && ready() < READY_SPANS
    }

    /// Free spans that keep their memory although it was not used for a long time.
    pub(super) fn kept_ready(&self) -> usize {
        if self.preparer.get().is_some() { READY_SPANS as usize } else { 0 }
    }

    /// Has the system map memory of spans that will be handed out next, if few have any and the limit allows more; where there is
    /// none to map, has the heap trimmed, if that was handed over. False if there is nothing more to do. Takes as long as the
    /// system does, milliseconds at times: for a thread that no other waits for.
    pub(crate) fn make_ready(&self) -> bool {
        let more = self.map_some();
        self.maps.store(more, Ordering::Relaxed);
        if !more && self.trims_heap.swap(false, Ordering::Relaxed) {
            trim_heap();
        }
        more
    }

    /// Has the system map some; false if there is nothing to map.
    fn map_some(&self) -> bool {
        // None of them is handed out meanwhile.
        let runs = {
            let mut free = self.free.lock().expect("no panic under the lock");
            let ready = free.back.len() as u32;
            if ready >= READY_SPANS {
                return false;
            }
            let room = self.spans_allowed().saturating_sub(free.used + ready);
            let gone = take_gone(&mut free, room.min(READY_SPANS));
            if gone.is_empty() { take_untouched(&mut free, room, self.spans_max) } else { gone }
        };
        if runs.is_empty() {
            return false;
        }
        self.maps.store(true, Ordering::Relaxed);
        runs.iter().for_each(|spans| self.touch(spans));
        let mut free = self.free.lock().expect("no panic under the lock");
        for number in runs.into_iter().flatten() {
            free.back.insert(number);
        }
        self.publish(&mut free);
        drop(free);
        // What others took meanwhile counts, too.
        self.trim(READY_SPANS as usize);
        true
    }

    /// Has the system map the memory of spans that were taken for that, by a use of each page: for that it takes no lock on the
    /// whole process, which threads that ask for memory would wait for, as it does for `MADV_POPULATE_WRITE`.
    fn touch(&self, spans: &Range<u32>) {
        debug_assert!(spans.len() * SPAN_BYTES <= HUGE_PAGE_BYTES);
        let address = self.at(Self::location_of(spans.start)).as_ptr();
        for at in (0..spans.len() * SPAN_BYTES).step_by(rustix::param::page_size()) {
            // SAFETY: inside the mapping; the spans have no owner and are in no list, so no other thread uses them.
            unsafe { address.add(at).write_volatile(0) };
        }
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

/// Takes untouched spans up to the end of a huge page, if there is room for so many.
fn take_untouched(free: &mut Free, room: u32, spans_max: u32) -> Vec<Range<u32>> {
    let spans = free.next..(free.next + 1).next_multiple_of(GROUP).min(spans_max);
    if spans.is_empty() || spans.len() > room as usize {
        return Vec::new();
    }
    free.next = spans.end;
    vec![spans]
}
