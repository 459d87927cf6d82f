//! When which span is due: the time at which so many of its items will have expired that a visit pays.
//!
//! ```text
//! all      the earliest of the groups
//! group    the earliest of 64 spans
//! span     in the span's own description
//! ```
//!
//! A writer that stores an item with an expiry lowers the three where it has to, which is rare: times
//! grow. A visitor clears a time before it looks at what lies below and lowers it to what it found
//! there, so that what is noted meanwhile stays noted.

use crate::Millis;
use crate::sync::{AtomicU64, Ordering, fence};

const GROUP_SPANS: u32 = 64;

/// A time, or never. Kept inverted: all zero, as the system gives memory, is "never".
#[derive(Debug, Default)]
pub(crate) struct Due(AtomicU64);

impl Due {
    /// Makes it `at` if that is earlier; true if it was.
    #[inline]
    pub(crate) fn lower(&self, at: Millis) -> bool {
        if !at <= self.0.load(Ordering::Relaxed) {
            return false;
        }
        // AcqRel: pairs with `clear`. A thread that clears after this sees what this thread wrote below; if
        // it cleared before, this note is there.
        self.0.fetch_max(!at, Ordering::AcqRel) < !at
    }

    /// Makes it "never", before what lies below is looked at.
    pub(crate) fn clear(&self) {
        self.0.swap(0, Ordering::AcqRel);
        // Pairs with the fences in `Agenda::note`: either this thread sees below what was noted there, or the
        // thread that noted it sees this cleared, and lowers it.
        fence(Ordering::SeqCst);
    }

    /// The time; the largest number is "never".
    pub(crate) fn at(&self) -> Millis {
        !self.0.load(Ordering::Relaxed)
    }

    /// There is no time.
    #[inline]
    pub(crate) fn is_never(&self) -> bool {
        self.at() == Millis::MAX
    }

    #[inline]
    pub(crate) fn passed(&self, now: Millis) -> bool {
        self.at() <= now
    }
}

/// The two upper levels.
#[derive(Debug)]
pub(crate) struct Agenda {
    all: Due,
    groups: Box<[Due]>,
}

impl Agenda {
    pub(crate) fn new(spans_max: u32) -> Agenda {
        Agenda {
            all: Due::default(),
            groups: (0..spans_max.div_ceil(GROUP_SPANS)).map(|_| Due::default()).collect(),
        }
    }

    /// Notes that span `number` is due at `at`; its own time says so already.
    #[cold]
    pub(crate) fn note(&self, number: u32, at: Millis) {
        // Both pair with the fence in `Due::clear`: what was written below comes before the look above.
        fence(Ordering::SeqCst);
        self.groups[(number / GROUP_SPANS) as usize].lower(at);
        fence(Ordering::SeqCst);
        self.all.lower(at);
    }

    /// True if a span may be due.
    #[inline]
    pub(crate) fn any(&self, now: Millis) -> bool {
        self.all.passed(now)
    }

    /// True if no span has a time.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_never()
    }

    /// Takes a span that is due, looked for from the group of span `from` on; its time is "never" now.
    /// `span` says where the time of a span of the first `spans` is.
    pub(crate) fn take<'a>(
        &self,
        from: u32,
        spans: u32,
        now: Millis,
        span: impl Fn(u32) -> &'a Due,
    ) -> Option<u32> {
        if !self.any(now) {
            return None;
        }
        let groups = spans.div_ceil(GROUP_SPANS);
        let first = from / GROUP_SPANS;
        for i in 0..groups {
            let group = (first + i) % groups;
            let due = &self.groups[group as usize];
            if !due.passed(now) {
                continue;
            }
            due.clear();
            let mut taken = None;
            for number in group * GROUP_SPANS..((group + 1) * GROUP_SPANS).min(spans) {
                if taken.is_none() && span(number).passed(now) {
                    span(number).clear();
                    taken = Some(number);
                } else {
                    due.lower(span(number).at());
                }
            }
            if taken.is_some() {
                return taken;
            }
        }
        self.all.clear();
        for due in &self.groups[..groups as usize] {
            self.all.lower(due.at());
        }
        None
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn spans_come_out_when_they_are_due_and_not_before() {
        let spans: Vec<Due> = (0..200).map(|_| Due::default()).collect();
        let agenda = Agenda::new(200);
        let note = |number: u32, at| {
            if spans[number as usize].lower(at) {
                agenda.note(number, at);
            }
        };
        let take = |now| agenda.take(0, 200, now, |number| &spans[number as usize]);
        assert_eq!(take(u64::MAX - 1), None, "nothing is noted");
        for (number, at) in [(3, 50), (130, 40), (131, 60), (3, 70)] {
            note(number, at);
        }
        assert_eq!(take(39), None);
        assert_eq!((take(45), take(45)), (Some(130), None));
        note(199, 41);
        assert_eq!((take(45), take(45)), (Some(199), None));
        assert_eq!((take(60), take(60), take(60)), (Some(3), Some(131), None));
        assert!(!agenda.any(1 << 60));
    }
}
