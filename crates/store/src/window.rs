//! How long keys stay on probation: a tenth of the memory, and more while keys that were evicted there
//! are wanted again and none that were evicted from main are.
//!
//! Then what main holds is worth less than what is thrown away: the workload has turned to other keys,
//! and main is full of what was read often before; or keys are written and read late, and main is full of what is not read
//! any more. The window grows with each ghost of probation that is asked for or stored again, so that new keys have the
//! memory and main gives it; each ghost of main, and each key that goes unread, makes it shorter again: where all is read
//! before it goes, it stays. While it is long, the hand takes all frequency at once, since it says what was read before.
//!
//! ```text
//! ghost of     asked for in vain                 stored unasked
//! probation    longer by 16 × its bytes          longer by 1 ×         less: main does not loop
//! main         shorter by 128 ×                  shorter by 1 ×        more: main loops
//! ```
//!
//! A get in vain is a hit that was lost. A key that is stored without one may be new to its client, which uses the name again.
//!
//! The window is 88 % of the limit at most, and nine tenths of the spans in use: where items are short, rings and ghosts take
//! several hundredths of the limit and the index some more, and main would be left with none.
//!
//! **Main loops** while more of its ghosts are wanted than of probation's: a round of keys that is longer than memory goes
//! through it, and each is evicted before it comes round. Then a key that was evicted from main has to pass probation
//! again, so that some of the round stays.
//!
//! One window for all classes: so ghost hits of a class that needs memory take it from main wherever that
//! is, and no class has a share of its own to defend.

use crate::ghost::Queue;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Probation is one part in this many of the memory limit, at least.
const SHARE: u64 = 10;
/// It is longer by at most so many hundredths of the limit: what is read late fits, also while some of what came back is on
/// probation once more since its ghost was overwritten. (With 74 keys of 1,000 B that come back after 0.8 of what fits went
/// a moment before, and each that was written once more made the way of the others longer.)
const MORE_HUNDREDTHS_MAX: u64 = 78;
/// It is so many tenths of the spans in use at most. (With 88 % of the limit, keys of 100 B that are read at 0.4 and 0.8 of
/// what fits hit 0.94 to 0.98, by the seed of the hash; with 84 % 0.992 by each.)
const SPANS_TENTHS_MAX: u64 = 9;
/// Bytes by which a ghost hit of probation makes it longer, for each of the item.
const LONGER: u64 = 16;
/// Bytes by which a ghost hit of main makes it shorter, for each of the item.
const SHORTER: u64 = 128;
/// Bytes by which a ghost hit makes it longer, or shorter, for each of the item, if the key is stored and was not asked for.
/// (With 4 a client that uses names again loses half a point of its hits.)
const STORED: u64 = 1;
/// The workload has turned when the window is longer by one part in this many of the limit.
const TURNED_SHARE: u64 = 10;
/// Bytes of main's ghosts that were wanted beyond those of probation's are counted up to one part in this many of the
/// limit; from half of that on main loops.
const LOOPS_SHARE: u64 = 16;

/// The rate of one byte allocated for one put on probation; a rate is [`RATE_MAX`] times this at most.
const RATE_UNIT: u64 = 256;
const RATE_MAX: u64 = 1 << 10;

/// The memory that the window is a share of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowMemory {
    /// The memory limit.
    pub(crate) limit_bytes: u64,
    /// Bytes of the spans in use, which are of items and of the index: rings and ghosts are beside them.
    pub(crate) spans_bytes: u64,
}

impl WindowMemory {
    /// Bytes by which the window is longer at most.
    fn more_bytes_max(self) -> u64 {
        let of_spans = (self.spans_bytes / 10 * SPANS_TENTHS_MAX).saturating_sub(self.limit_bytes / SHARE);
        of_spans.min(self.limit_bytes / 100 * MORE_HUNDREDTHS_MAX)
    }
}

/// The window. Workers change it without a lock: a change that is lost is made up for by later ones.
#[derive(Debug, Default)]
pub(crate) struct Window {
    more_bytes: AtomicU64,
    /// Bytes of main's ghosts that were wanted beyond those of probation's.
    main_bytes: AtomicU64,
    /// Bytes of a key put on probation, on the mean of the last ones.
    mean_bytes: AtomicU64,
    /// Bytes allocated when the last period of probation ended, and in it for each that was put on probation, in
    /// [`RATE_UNIT`].
    period_clock: AtomicU64,
    rate: AtomicU64,
}

impl Window {
    /// Bytes of other keys put on probation after a key until it is judged.
    #[inline]
    pub(crate) fn bytes(&self, limit_bytes: u64) -> u64 {
        limit_bytes / SHARE + self.more_bytes.load(Ordering::Relaxed)
    }

    /// Ends a period in which keys of so many bytes were put on probation; `clock` is the clock of bytes.
    pub(crate) fn note_period(&self, period_bytes: u64, clock: u64) {
        let allocated = clock.saturating_sub(self.period_clock.swap(clock, Ordering::Relaxed));
        let rate = u128::from(allocated) * u128::from(RATE_UNIT) / u128::from(period_bytes.max(1));
        self.rate.store((rate as u64).clamp(RATE_UNIT, RATE_UNIT * RATE_MAX), Ordering::Relaxed);
    }

    /// Bytes that were allocated while so many were put on probation: others were overwritten, or wanted again.
    pub(crate) fn allocated(&self, probation_bytes: u64) -> u64 {
        probation_bytes.saturating_mul(self.rate.load(Ordering::Relaxed).max(RATE_UNIT)) / RATE_UNIT
    }

    /// True if the workload has turned to other keys.
    pub(crate) fn has_turned(&self, limit_bytes: u64) -> bool {
        self.more_bytes.load(Ordering::Relaxed) > limit_bytes / TURNED_SHARE
    }

    /// True if keys are evicted from main before they come round.
    pub(crate) fn main_loops(&self, limit_bytes: u64) -> bool {
        self.main_bytes.load(Ordering::Relaxed) > limit_bytes / LOOPS_SHARE / 2
    }

    /// Notes that a key of `bytes` that was evicted from `queue` is stored, and was not asked for since.
    pub(crate) fn note_stored(&self, queue: Queue, bytes: u64, memory: WindowMemory) {
        self.note_wanted(queue, bytes, STORED, memory);
    }

    /// Notes that a key that was evicted from `queue` is asked for. Its length is not known: it
    /// counts as those that are stored do.
    pub(crate) fn note_asked(&self, queue: Queue, memory: WindowMemory) {
        let times = match queue {
            Queue::Probation => LONGER,
            Queue::Main => SHORTER,
        };
        self.note_wanted(queue, self.mean_bytes.load(Ordering::Relaxed), times, memory);
    }

    /// Notes that a key of `bytes` that was evicted from `queue` is wanted again, which counts so many times.
    fn note_wanted(&self, queue: Queue, bytes: u64, times: u64, memory: WindowMemory) {
        let more = self.more_bytes.load(Ordering::Relaxed);
        let main = self.main_bytes.load(Ordering::Relaxed);
        match queue {
            Queue::Probation => {
                self.more_bytes.store((more + bytes * times).min(memory.more_bytes_max()), Ordering::Relaxed);
                if main > 0 {
                    self.main_bytes.store(main.saturating_sub(bytes), Ordering::Relaxed);
                }
            }
            Queue::Main => {
                if more > 0 {
                    self.more_bytes.store(more.saturating_sub(bytes * times), Ordering::Relaxed);
                }
                let most = memory.limit_bytes / LOOPS_SHARE;
                self.main_bytes.store((main + bytes).min(most), Ordering::Relaxed);
            }
        }
    }

    /// Notes that `keys` new keys of `bytes` together were written.
    pub(crate) fn note_written(&self, keys: usize, bytes: u64) {
        // Those that were queued once more count for none.
        if bytes > 0 {
            self.mean_bytes.store(bytes / keys.max(1) as u64, Ordering::Relaxed);
        }
    }

    /// Notes that a key of `bytes` was evicted on probation that was never read: what the window is
    /// longer by shrinks by the share that such bytes are of the limit.
    pub(crate) fn note_unread(&self, bytes: u64, limit_bytes: u64) {
        let more = self.more_bytes.load(Ordering::Relaxed);
        if more > 0 {
            let share = u128::from(more) * u128::from(bytes) / u128::from(limit_bytes.max(1));
            self.more_bytes.store(more.saturating_sub((share as u64).max(1)), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const LIMIT: u64 = 100_000;
    const MEMORY: WindowMemory = WindowMemory { limit_bytes: LIMIT, spans_bytes: LIMIT };

    /// A key of `bytes` is asked for.
    fn ask(window: &Window, queue: Queue, bytes: u64) {
        window.note_written(1, bytes);
        window.note_asked(queue, MEMORY);
    }

    #[test]
    fn ghosts_of_probation_lengthen_it_to_most_of_memory_and_those_of_main_shorten_it_to_one() {
        let window = Window::default();
        assert_eq!((window.bytes(LIMIT), window.has_turned(LIMIT)), (10_000, false));
        ask(&window, Queue::Probation, 625);
        assert_eq!((window.bytes(LIMIT), window.has_turned(LIMIT)), (20_000, false));
        ask(&window, Queue::Probation, 1);
        assert!(window.has_turned(LIMIT));
        ask(&window, Queue::Probation, LIMIT);
        assert_eq!(window.bytes(LIMIT), 88_000);
        ask(&window, Queue::Main, 100);
        assert_eq!(window.bytes(LIMIT), 75_200);
        ask(&window, Queue::Main, LIMIT);
        assert_eq!((window.bytes(LIMIT), window.has_turned(LIMIT)), (10_000, false));
    }

    #[test]
    fn keys_that_are_asked_for_count_as_long_as_those_that_are_stored() {
        let window = Window::default();
        window.note_written(4, 2_500);
        window.note_asked(Queue::Probation, MEMORY);
        assert_eq!(window.bytes(LIMIT), 20_000);
    }

    #[test]
    fn a_ghost_that_is_stored_unasked_counts_its_bytes_once_whichever_queue_it_left() {
        let window = Window::default();
        window.note_stored(Queue::Probation, 10_000, MEMORY);
        assert_eq!(window.bytes(LIMIT), 20_000);
        window.note_stored(Queue::Main, 2_000, MEMORY);
        assert_eq!(window.bytes(LIMIT), 18_000);
        window.note_stored(Queue::Main, LIMIT, MEMORY);
        assert_eq!(window.bytes(LIMIT), 10_000);
        assert!(window.main_loops(LIMIT), "a store counts for that as a get in vain does");
    }

    #[test]
    fn it_is_nine_tenths_of_the_spans_in_use_at_most() {
        for (spans_bytes, most) in [(80_000, 72_000), (97_770, 87_993), (97_780, 88_000), (5_000, 10_000)] {
            let window = Window::default();
            window.note_stored(Queue::Probation, LIMIT, WindowMemory { limit_bytes: LIMIT, spans_bytes });
            assert_eq!(window.bytes(LIMIT), most);
        }
    }

    #[test]
    fn an_age_on_probation_is_counted_in_what_was_allocated_meanwhile() {
        let window = Window::default();
        assert_eq!(window.allocated(1_000), 1_000);
        window.note_period(LIMIT, 3 * LIMIT);
        assert_eq!(window.allocated(1_000), 3_000);
        window.note_period(LIMIT, 3 * LIMIT + LIMIT / 2);
        assert_eq!(window.allocated(1_000), 1_000, "what was freed for others is no less");
    }

    #[test]
    fn main_loops_while_more_of_its_ghosts_are_wanted() {
        let window = Window::default();
        ask(&window, Queue::Main, LIMIT / 32);
        assert!(!window.main_loops(LIMIT));
        ask(&window, Queue::Main, 1);
        assert!(window.main_loops(LIMIT));
        ask(&window, Queue::Main, LIMIT);
        ask(&window, Queue::Probation, LIMIT / 32);
        assert!(!window.main_loops(LIMIT), "no more is kept of it than twice that");
    }

    #[test]
    fn it_is_a_tenth_again_when_nobody_reads_what_is_new() {
        let window = Window::default();
        ask(&window, Queue::Probation, LIMIT);
        for _ in 0..100 {
            window.note_unread(LIMIT / 10, LIMIT);
        }
        assert!(window.bytes(LIMIT) < 10_010, "{}", window.bytes(LIMIT));
    }
}
