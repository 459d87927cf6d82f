//! What figures were, for a day, in memory that is taken at start and never grows.
//!
//! ```text
//! a look a second ─┬─► 300 points of 1 s      the last five minutes
//!                  ├─► 240 points of 15 s     the last hour
//!                  └─► 720 points of 2 min    the last day
//! ```
//!
//! A point of a counter is how much it grew a second, one of a gauge its mean over the point's time. A point ends when
//! its time is over at the latest look: who looks late makes a longer point, whose rates are right all the same. Beside
//! them, marks: what happened at one moment.
//!
//! It reads no clock and gathers nothing: looks come as arguments.

use std::collections::VecDeque;

use larder_commands::{Kind, Reading, SERIES, SERIES_COUNT};
use larder_eventloop::Millis;

/// Points of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// How long each is.
    pub seconds: u64,
    /// How many are kept.
    pub points: usize,
}

/// The levels, the shortest points first.
pub const LEVELS: [Level; 3] = [
    Level { seconds: 1, points: 300 },
    Level { seconds: 15, points: 240 },
    Level { seconds: 120, points: 720 },
];

/// Marks that are kept.
const MARKS: usize = 128;

/// A look is due so often.
pub const LOOK_MS: Millis = 1000;

/// A look may be early by so much: points are not to wait for the next one for it.
const EARLY_MS: Millis = 250;

/// Bytes of the history, all of which are there from the start.
pub const HISTORY_BYTES: usize = {
    let point = size_of::<[f32; SERIES_COUNT]>() + size_of::<Millis>();
    let (mut points, mut level) = (0, 0);
    while level < LEVELS.len() {
        points += LEVELS[level].points;
        level += 1;
    }
    points * point + MARKS * size_of::<Mark>()
};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All items, or those of a database, were flushed.
    Flushed,
    /// The memory limit is another.
    Limit {
        /// In bytes.
        bytes: u64,
    },
    /// A rule has found something.
    Found(&'static str),
    /// It finds it no more.
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

/// Points of one level, the last ones.
#[derive(Debug)]
struct Ring {
    level: Level,
    /// When each ended, since the start.
    ends: Box<[Millis]>,
    values: Box<[Values]>,
    /// Points that there ever were: the next one's place is the remainder.
    made: usize,
    point: Point,
}

/// A point that is not over.
#[derive(Clone, Debug)]
struct Point {
    since: Millis,
    at_start: Reading,
    /// Of gauges, their values by the milliseconds that they had them.
    sums: [f64; SERIES_COUNT],
}

impl Point {
    fn begin(since: Millis, at_start: Reading) -> Point {
        Point { since, at_start, sums: [0.0; SERIES_COUNT] }
    }
}

impl Ring {
    fn new(level: Level, now: Millis, reading: &Reading) -> Ring {
        Ring {
            level,
            ends: vec![0; level.points].into(),
            values: vec![[0.0; SERIES_COUNT]; level.points].into(),
            made: 0,
            point: Point::begin(now, *reading),
        }
    }

    /// Takes a look, `ms` after the one before.
    fn add(&mut self, now: Millis, ms: Millis, reading: &Reading) {
        for (sum, value) in self.point.sums.iter_mut().zip(reading) {
            *sum += *value as f64 * ms as f64;
        }
        let took = now - self.point.since;
        if took + EARLY_MS < self.level.seconds * 1000 {
            return;
        }
        let place = self.made % self.level.points;
        self.ends[place] = now;
        self.values[place] = std::array::from_fn(|at| {
            let of_all = match SERIES[at].kind {
                // The server counts for itself: nothing is taken back.
                Kind::Counter => reading[at].saturating_sub(self.point.at_start[at]) as f64 * 1000.0,
                Kind::Gauge => self.point.sums[at],
            };
            (of_all / took as f64) as f32
        });
        self.made += 1;
        self.point = Point::begin(now, *reading);
    }

    /// Places of the points that ended after `since`, the oldest first.
    fn after(&self, since: Option<Millis>) -> impl Iterator<Item = usize> + '_ {
        let kept = self.made.min(self.level.points);
        (self.made - kept..self.made)
            .map(|number| number % self.level.points)
            .filter(move |place| since.is_none_or(|since| self.ends[*place] > since))
    }
}

/// What figures were.
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
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { at, what });
    }

    /// Points of a level that ended after `since`, the oldest first: when each ended, and what `series` was.
    pub fn points(
        &self,
        level: usize,
        since: Option<Millis>,
    ) -> (Vec<Millis>, impl Fn(usize) -> Vec<f32> + '_) {
        let ring = &self.rings[level];
        let places: Vec<usize> = ring.after(since).collect();
        let ends = places.iter().map(|place| ring.ends[*place]).collect();
        (ends, move |series| places.iter().map(|place| ring.values[*place][series]).collect())
    }

    /// Marks behind `since`, the oldest first.
    pub fn marks(&self, since: Option<Millis>) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(move |mark| since.is_none_or(|since| mark.at > since))
    }
}

/// Which findings there are, for marks: one is over when it was not found for a while, so that it does not come and go.
#[derive(Debug, Default)]
pub struct Found {
    /// Rules, and when they last found something.
    rules: Vec<(&'static str, Millis)>,
}

/// A rule that has found nothing for so long finds nothing any more.
const OVER_MS: Millis = 60_000;

impl Found {
    /// What has begun and what is over, given the rules that find something now.
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
        for at in 0..MARKS as u64 + 5 {
            history.mark(at, What::Flushed);
        }
        let marks: Vec<Millis> = history.marks(None).map(|mark| mark.at).collect();
        assert_eq!((marks.len(), marks[0]), (MARKS, 5));
        assert_eq!(history.marks(Some(MARKS as u64 + 3)).count(), 1);
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
        let points: usize =
            history.rings.iter().map(|ring| ring.ends.len() * 8 + ring.values.len() * 4 * SERIES_COUNT).sum();
        assert_eq!(points + MARKS * size_of::<Mark>(), HISTORY_BYTES);
    }
}
