//! Memory of free spans goes back to the system: what is over the limit at once, what has long been spare
//! bit by bit, and whole huge pages where there are some.
//!
//! A huge page that loses one span is none any more, until it has lost all of them: the kernel would fill
//! the hole again.

use super::free::Free;
use super::poison::unpoison;
use super::span::Span;
use super::{Arena, HUGE_PAGE_BYTES};
use crate::class::SPAN_BYTES;
use crate::numbers::GROUP;
use crate::sync::atomic::Ordering;
use rustix::mm::{Advice, madvise};

/// Free spans that keep their memory: one for this many in use.
const SPARE_SHARE: usize = 128;

impl Arena {
    /// True if more spans have memory than the limit allows.
    pub(super) fn over_resident(&self) -> bool {
        self.resident.load(Ordering::Relaxed) > self.spans_allowed()
    }

    /// Gives memory of up to `spans_max` free spans to the system while more have some than the limit
    /// allows, the highest address first; true if there may be more to give. Some 10 µs a span.
    pub(crate) fn trim(&self, spans_max: usize) -> bool {
        for _ in 0..spans_max {
            let number = {
                let mut free = self.free.lock().expect("no panic under the lock");
                if !self.over_resident() {
                    return false;
                }
                let Some(number) = free.back.pop_last() else { return false };
                self.publish(&mut free);
                number
            };
            self.give_memory(number, 1);
        }
        self.over_resident()
    }

    /// Ends a period of compaction: free spans that had their memory all through it may lose it,
    /// but for a few. Returns the number of spans ever handed out.
    pub(crate) fn note_spare(&self) -> u32 {
        let mut free = self.free.lock().expect("no panic under the lock");
        let kept = (free.used as usize / SPARE_SHARE).max(self.kept_ready());
        free.spare = free.back_low.saturating_sub(kept);
        free.back_low = free.back.len();
        free.next
    }

    /// Gives memory of a spare span to the system, or that of a whole huge page, the highest address
    /// first; true if there was one. Some 10 µs for a span, 50 for a huge page.
    pub(crate) fn give_spare(&self) -> bool {
        let (number, count) = {
            let mut free = self.free.lock().expect("no panic under the lock");
            let spare = free.spare.min(free.back.len());
            if spare == 0 {
                return false;
            }
            let number = free.back.pop_last().expect("it is not empty");
            free.back.insert(number);
            let first = number / GROUP * GROUP;
            let given = if spare >= GROUP as usize && free.back.has_group(first) {
                free.back.remove_group(first);
                (first, GROUP)
            } else {
                free.back.pop_last();
                (number, 1)
            };
            free.spare = spare - given.1 as usize;
            self.publish(&mut free);
            given
        };
        self.give_memory(number, count);
        true
    }

    /// Gives the memory of free spans that are in neither list to the system: one, or all of a huge page.
    fn give_memory(&self, number: u32, count: u32) {
        let address = self.at(Self::location_of(number)).as_ptr();
        let bytes = count as usize * SPAN_BYTES;
        unpoison(address, bytes);
        let in_huge_page = address as usize % HUGE_PAGE_BYTES;
        // SAFETY: less than what the span is behind the mapping's first huge page.
        let huge_page = unsafe { address.sub(in_huge_page) }.cast();
        let advise = |advice| {
            // SAFETY: inside the mapping, which has whole huge pages. It changes no byte.
            let _ = unsafe { madvise(huge_page, HUGE_PAGE_BYTES, advice) };
        };
        if count == 1 {
            // Otherwise the kernel would make it a huge page again, and fill the hole.
            advise(Advice::LinuxNoHugepage);
        }
        // SAFETY: inside the mapping, and no thread refers to the spans' bytes: they are in neither list.
        let given = unsafe { madvise(address.cast(), bytes, Advice::LinuxDontNeed) };
        debug_assert!(given.is_ok());
        let mut free = self.free.lock().expect("no panic under the lock");
        (number..number + count).for_each(|number| free.gone.insert(number));
        self.give_tail(&mut free, number);
        let whole = free.gone.has_group(number);
        if whole {
            self.give_records(&free, number);
        }
        drop(free);
        if whole {
            // Nothing of it is left: it may be one again.
            advise(Advice::LinuxHugepage);
        }
    }

    /// Gives back what is untouched of the last huge page, if `number` lies in it: the system mapped all of it for
    /// its first span, and it is no huge page any more.
    fn give_tail(&self, free: &mut Free, number: u32) {
        let (next, end) = (free.next, (number / GROUP + 1) * GROUP);
        if next >= end.min(self.spans_max) || next == free.tail {
            return;
        }
        free.tail = next;
        let address = self.at(Self::location_of(next)).as_ptr();
        // SAFETY: inside the mapping, which has whole huge pages, and not handed out before the lock on
        // `free` goes.
        let _ = unsafe { madvise(address.cast(), (end - next) as usize * SPAN_BYTES, Advice::LinuxDontNeed) };
    }

    /// Gives the page of [`Span`] records that `number`'s is in to the system, if all its spans are
    /// in `gone`: a megabyte after ten million items.
    fn give_records(&self, free: &Free, number: u32) {
        let page_bytes = rustix::param::page_size();
        let records = (page_bytes / size_of::<Span>()) as u32;
        let first = number / records * records;
        let groups = (first..first + records).step_by(GROUP as usize);
        if first + records > self.spans_max || !groups.into_iter().all(|group| free.gone.has_group(group)) {
            return;
        }
        // SAFETY: 1. Inside the mapping, and whole pages of it. 2. It reads as zero afterwards, which is a
        // valid span without an owner. 3. None of these spans is handed out before the lock on `free`
        // goes, and a thread that gets one writes all that it reads.
        let _ = unsafe {
            madvise(self.spans.add(first as usize).as_ptr().cast(), page_bytes, Advice::LinuxDontNeed)
        };
    }
}
