//! The history of figures for a day, in memory that is taken at start and never grows.
//!
//! A point ([`Points`]) of a counter is how much it grew a second, one of a gauge its mean over the point's time. A point ends when
//! its time is over at the latest look: a late look makes a longer point, whose rates are right all the same. Beside
//! them, marks: what happened at one moment.
//!
//! It reads no clock and gathers nothing: looks come as arguments.

use std::collections::VecDeque;

use larder_commands::{Kind, Reading, SERIES, SERIES_COUNT};
use larder_eventloop::Millis;

use super::points::{LEVELS, Level, Points};
use crate::stalls::Cause;

/// Most marks of stalls that are kept, and most of all others. There may be a stall each second: minutes of a busy machine are to
/// leave what else happened in a day.
const ALIKE_MAX: usize = 64;
const MARKS: usize = 2 * ALIKE_MAX;

/// Interval of looks.
pub const LOOK_MS: Millis = 1000;

/// Bytes of the history, all of which are there from the start.
pub const HISTORY_BYTES: usize = Points::<Values>::BYTES + MARKS * size_of::<Mark>();

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All items, or those of a database, were flushed.
    Flushed,
    /// The memory limit has changed.
    Limit {
        /// In bytes.
        bytes: u64,
    },
    /// A worker was held up: the longest stall since the look before.
    Stalled {
        /// How long.
        us: u64,
        /// By what.
        cause: Cause,
    },
    /// A rule has found something.
    Found(&'static str),
    /// It finds nothing any more.
    Over(&'static str),
}

/// Something that happened, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Since the start.
    pub at: Millis,
    /// What it was.
    pub what: What,
}

/// Values of a point, in the order of [`SERIES`].
type Values = [f32; SERIES_COUNT];

/// The history of figures at one level.
#[derive(Debug)]
struct Ring {
    points: Points<Values>,
    /// What was read when the present point began.
    at_start: Reading,
    /// Values times the milliseconds for which figures had them, summed over the present point; for gauges.
    sums: [f64; SERIES_COUNT],
}

impl Ring {
    fn new(level: Level, now: Millis, reading: &Reading) -> Ring {
        let points = Points::new(level, now, [0.0; SERIES_COUNT]);
        Ring { points, at_start: *reading, sums: [0.0; SERIES_COUNT] }
    }

    /// Takes a look, `ms` after the one before.
    fn add(&mut self, now: Millis, ms: Millis, reading: &Reading) {
        for (sum, value) in self.sums.iter_mut().zip(reading) {
            *sum += *value as f64 * ms as f64;
        }
        let Some(took) = self.points.over(now) else { return };
        let values = std::array::from_fn(|at| {
            let of_all = match SERIES[at].kind {
                // The server counts for itself: its counters never fall.
                Kind::Counter => reading[at].saturating_sub(self.at_start[at]) as f64 * 1000.0,
                Kind::Gauge | Kind::Histogram => self.sums[at],
            };
            (of_all / took as f64) as f32
        });
        self.points.push(now, values);
        (self.at_start, self.sums) = (*reading, [0.0; SERIES_COUNT]);
    }
}

/// The history of figures.
#[derive(Debug)]
pub struct History {
    rings: [Ring; LEVELS.len()],
    marks: VecDeque<Mark>,
    /// The last look, and what it found.
    last: (Millis, Reading),
}

impl History {
    /// With nothing but a first look.
    pub fn new(now: Millis, reading: &Reading) -> History {
        History {
            rings: LEVELS.map(|level| Ring::new(level, now, reading)),
            marks: VecDeque::with_capacity(MARKS),
            last: (now, *reading),
        }
    }

    /// When a look is due.
    pub fn due(&self) -> Millis {
        self.last.0 + LOOK_MS
    }

    /// Takes a look.
    pub fn look(&mut self, now: Millis, reading: &Reading) {
        let ms = now.saturating_sub(self.last.0);
        // Nothing grew in no time.
        if ms > 0 {
            self.rings.iter_mut().for_each(|ring| ring.add(now, ms, reading));
            self.last = (now, *reading);
        }
    }

    /// Notes what happened.
    pub fn mark(&mut self, at: Millis, what: What) {
        let is_alike =
            |mark: &Mark| matches!(mark.what, What::Stalled { .. }) == matches!(what, What::Stalled { .. });
        if self.marks.iter().filter(|mark| is_alike(mark)).count() == ALIKE_MAX {
            let first = self.marks.iter().position(is_alike);
            first.and_then(|first| self.marks.remove(first));
        }
        self.marks.push_back(Mark { at, what });
    }

    /// Points of a level that ended after `since`, the oldest first: when each ended, and its value of a series.
    pub fn points(
        &self,
        level: usize,
        since: Option<Millis>,
    ) -> (Vec<Millis>, impl Fn(usize) -> Vec<f32> + '_) {
        let (ends, values): (Vec<Millis>, Vec<&Values>) = self.rings[level].points.after(since).unzip();
        (ends, move |series| values.iter().map(|values| values[series]).collect())
    }

    /// Marks behind `since`, the oldest first.
    pub fn marks(&self, since: Option<Millis>) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(move |mark| since.is_none_or(|since| mark.at > since))
    }
}

/// The present findings, for marks. One is over when it was not found for a while, so that it does not come and go.
#[derive(Debug, Default)]
pub struct Found {
    /// Rules, and when they last found something.
    rules: Vec<(&'static str, Millis)>,
}

/// A rule that has found nothing for so long finds nothing any more.
const OVER_MS: Millis = 60_000;

impl Found {
    /// Returns what has begun and what is over; `rules` find something now.
    pub fn look(&mut self, now: Millis, rules: impl Iterator<Item = &'static str>) -> Vec<What> {
        let mut changes = Vec::new();
        for name in rules {
            match self.rules.iter_mut().find(|(known, _)| *known == name) {
                Some((_, at)) => *at = now,
                None => {
                    self.rules.push((name, now));
                    changes.push(What::Found(name));
                }
            }
        }
        self.rules.retain(|(name, at)| {
            let stays = now.saturating_sub(*at) < OVER_MS;
            if !stays {
                changes.push(What::Over(name));
            }
            stays
        });
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str) -> usize {
        SERIES.iter().position(|series| series.name == name).expect("a series")
    }

    /// Looks, a second apart from `from` on, at a counter that grows by `n` a second and a gauge that is `n`.
    fn looks(history: &mut History, seconds: std::ops::Range<u64>, n: u64) {
        let (counter, gauge) = (series("evictions"), series("items"));
        for second in seconds {
            let mut reading = history.last.1;
            reading[counter] += n;
            reading[gauge] = n;
            history.look((second + 1) * 1000, &reading);
        }
    }

    fn of(history: &History, level: usize, since: Option<Millis>, name: &str) -> (Vec<Millis>, Vec<f32>) {
        let (ends, values) = history.points(level, since);
        let values = values(series(name));
        assert_eq!(ends.len(), values.len());
        (ends, values)
    }

    #[test]
    fn points_are_what_grew_a_second_and_means() {
        let mut history = History::new(0, &[0; SERIES_COUNT]);
        looks(&mut history, 0..15, 10);
        looks(&mut history, 15..30, 40);
        assert_eq!(of(&history, 1, None, "evictions"), (vec![15_000, 30_000], vec![10.0, 40.0]));
        assert_eq!(of(&history, 1, None, "items"), (vec![15_000, 30_000], vec![10.0, 40.0]));
        looks(&mut history, 30..120, 40);
        let (ends, rates) = of(&history, 2, None, "evictions");
        assert_eq!((ends, rates), (vec![120_000], vec![(15.0 * 10.0 + 105.0 * 40.0) / 120.0]));
        assert_eq!(of(&history, 0, Some(118_000), "items"), (vec![119_000, 120_000], vec![40.0, 40.0]));
        assert!(history.points(0, Some(120_000)).0.is_empty());
    }

    #[test]
    fn each_level_keeps_its_last_points() {
        let mut history = History::new(0, &[0; SERIES_COUNT]);
        let day = 25 * 3600;
        looks(&mut history, 0..day, 1);
        for (at, level) in LEVELS.iter().enumerate() {
            let (ends, values) = of(&history, at, None, "evictions");
            assert_eq!(ends.len(), level.points);
            assert!(ends.windows(2).all(|pair| pair[1] - pair[0] == level.seconds * 1000));
            assert_eq!(ends.last(), Some(&(day * 1000)));
            assert!(values.iter().all(|rate| *rate == 1.0));
        }
        let reach: Vec<u64> = LEVELS.iter().map(|level| level.seconds * level.points as u64).collect();
        assert_eq!(reach, [300, 3600, 24 * 3600]);
    }

    #[test]
    fn a_look_that_is_late_makes_a_longer_point_with_the_same_rate() {
        let mut history = History::new(0, &[0; SERIES_COUNT]);
        let counter = series("evictions");
        let mut reading = [0; SERIES_COUNT];
        // A second, nearly one, half a minute, and the same moment again.
        for (now, grown) in [(1000, 7), (1800, 14), (31_800, 224), (31_800, 999)] {
            reading[counter] = grown;
            history.look(now, &reading);
        }
        let (ends, rates) = of(&history, 0, None, "evictions");
        assert_eq!((ends, rates), (vec![1000, 1800, 31_800], vec![7.0, 8.75, 7.0]));
        assert_eq!(history.due(), 32_800);
    }

    #[test]
    fn marks_are_the_last_ones() {
        let mut history = History::new(0, &[0; SERIES_COUNT]);
        for at in 0..ALIKE_MAX as u64 + 5 {
            history.mark(at, What::Flushed);
        }
        let marks: Vec<Millis> = history.marks(None).map(|mark| mark.at).collect();
        assert_eq!((marks.len(), marks[0]), (ALIKE_MAX, 5));
        assert_eq!(history.marks(Some(ALIKE_MAX as u64 + 3)).count(), 1);
        for at in 100..200 + ALIKE_MAX as u64 {
            history.mark(at, What::Stalled { us: 20_000, cause: Cause::Work });
        }
        let marks: Vec<Millis> = history.marks(None).map(|mark| mark.at).collect();
        assert_eq!((marks.len(), marks[0], marks[ALIKE_MAX]), (MARKS, 5, 200));
        assert_eq!(history.marks.capacity(), MARKS, "it has not grown");
    }

    #[test]
    fn a_finding_begins_once_and_is_over_when_it_was_gone_for_a_while() {
        let mut found = Found::default();
        assert_eq!(found.look(0, ["a", "b"].into_iter()), [What::Found("a"), What::Found("b")]);
        assert_eq!(found.look(5_000, std::iter::empty()), []);
        assert_eq!(found.look(10_000, ["a"].into_iter()), []);
        assert_eq!(found.look(OVER_MS, std::iter::empty()), [What::Over("b")]);
        assert_eq!(found.look(OVER_MS + 10_000, std::iter::empty()), [What::Over("a")]);
        assert_eq!(found.look(OVER_MS + 11_000, ["a"].into_iter()), [What::Found("a")]);
    }

    #[test]
    fn its_memory_is_what_is_said() {
        const { assert!(HISTORY_BYTES <= 256 << 10) }
        let history = History::new(0, &[0; SERIES_COUNT]);
        let points: usize = history.rings.iter().map(|ring| ring.points.bytes()).sum();
        assert_eq!(points + MARKS * size_of::<Mark>(), HISTORY_BYTES);
    }
}
