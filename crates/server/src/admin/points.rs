//! Points of three lengths for a day, in memory that is taken at start and never grows, and how a request asks for them.
//!
//! ```text
//! a look a second ─┬─► 300 points of 1 s      the last five minutes
//!                  ├─► 240 points of 15 s     the last hour
//!                  └─► 720 points of 2 min    the last day
//! ```

use larder_eventloop::Millis;

use super::http::Status;
use super::route::Query;
use crate::hub::Hub;

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

/// A look that is so many milliseconds early still ends the point, which would else last until the next look.
const EARLY_MS: Millis = 250;

/// The last points of one level.
#[derive(Debug)]
pub struct Points<P> {
    level: Level,
    /// When each ended, since the start.
    ends: Box<[Millis]>,
    points: Box<[P]>,
    /// Points that were ever made: the next one's place is the remainder.
    made: usize,
    /// When the present point began.
    since: Millis,
}

impl<P: Copy> Points<P> {
    /// Bytes of the points of all levels, all of which are there from the start.
    pub const BYTES: usize = {
        let (mut points, mut level) = (0, 0);
        while level < LEVELS.len() {
            points += LEVELS[level].points;
            level += 1;
        }
        points * (size_of::<P>() + size_of::<Millis>())
    };

    /// None yet; the first begins now.
    pub fn new(level: Level, now: Millis, empty: P) -> Points<P> {
        let (ends, points) = (vec![0; level.points].into(), vec![empty; level.points].into());
        Points { level, ends, points, made: 0, since: now }
    }

    /// How long the present point took, if it is over.
    pub fn over(&self, now: Millis) -> Option<Millis> {
        let took = now - self.since;
        (took + EARLY_MS >= self.level.seconds * 1000).then_some(took)
    }

    /// Ends the present point, which has this value, and begins the next.
    pub fn push(&mut self, now: Millis, point: P) {
        let place = self.made % self.level.points;
        (self.ends[place], self.points[place]) = (now, point);
        self.made += 1;
        self.since = now;
    }

    /// The points that ended after `since`, the oldest first, and when.
    pub fn after(&self, since: Option<Millis>) -> impl Iterator<Item = (Millis, &P)> {
        let kept = self.made.min(self.level.points);
        (self.made - kept..self.made)
            .map(|number| number % self.level.points)
            .map(|place| (self.ends[place], &self.points[place]))
            .filter(move |(end, _)| since.is_none_or(|since| *end > since))
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.ends) + size_of_val(&*self.points)
    }
}

/// Which level is asked for, and the end of the last point that is known: `step=` and `since=`.
///
/// # Errors
/// If there is no such level, or a number cannot be read.
pub fn asked(query: &Query) -> Result<(usize, Option<Millis>), Status> {
    let seconds = query.number("step", LEVELS[0].seconds)?;
    let level = LEVELS.iter().position(|level| level.seconds == seconds).ok_or(Status::BadRequest)?;
    let since = query.value("since").map(|_| query.number("since", 0)).transpose()?;
    Ok((level, since))
}

/// How an answer of points begins: the run of the server that they are of, and the time.
pub fn head(hub: &Hub, level: usize) -> String {
    format!(
        "{{\"run\":\"{:032x}\",\"now_ms\":{},\"time_ms\":{},\"step_seconds\":{}",
        hub.shared.run_id(),
        hub.clock.elapsed().as_millis(),
        hub.clock.system_ms(),
        LEVELS[level].seconds,
    )
}
