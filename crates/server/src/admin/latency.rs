//! The history of request times for a day: each stage has a column of a picture, in memory that is taken at start.
//!
//! ```text
//! point   │ when it ended │ receives that were timed │ queue: 32 rows, median, 99th │ service … │ reply … │
//! ```
//!
//! Each row is a doubling, the first up to 64 ns. Its byte is the square root of its part of the column, so that a few slow
//! requests are seen beside many that are not. Points are as long as those of the history, and end with them.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_commands::{Host, StageTimes};
use larder_eventloop::Millis;
use serde_json::{Value, json};

use super::api::put_list;
use super::http::{Answer, JSON, Status};
use super::points::{LEVELS, Level, Points, asked, head};
use super::route::{Query, Routes};
use crate::hub::Hub;
use crate::worker::timing::{Counts, PROTOCOLS, STAGES, STEPS, quantile, step_ns};

/// Rows of a column.
const ROWS: usize = 32;
/// The first row is up to two to the power of this many nanoseconds.
const FIRST_LOG: u32 = 6;

/// A stage at a point.
#[derive(Clone, Copy, Debug)]
struct Column {
    rows: [u8; ROWS],
    /// Nanoseconds.
    median: f32,
    p99: f32,
}

const EMPTY: Column = Column { rows: [0; ROWS], median: 0.0, p99: 0.0 };

#[derive(Clone, Copy, Debug)]
struct Point {
    receives: u32,
    stages: [Column; STAGES.len()],
}

const NOTHING: Point = Point { receives: 0, stages: [EMPTY; STAGES.len()] };

/// Bytes of the history, all of which are there from the start.
pub const LATENCY_BYTES: usize = Points::<Point>::BYTES + LEVELS.len() * size_of::<Counts>();

/// The history of times at one level.
#[derive(Debug)]
struct Ring {
    points: Points<Point>,
    /// What was counted when the present point began.
    at_start: Box<Counts>,
}

impl Ring {
    fn new(level: Level, now: Millis, counts: &Counts) -> Ring {
        Ring { points: Points::new(level, now, NOTHING), at_start: Box::new(*counts) }
    }

    fn add(&mut self, now: Millis, counts: &Counts) {
        if self.points.over(now).is_none() {
            return;
        }
        let grown = |stage: usize| -> [u64; STEPS] {
            std::array::from_fn(|at| counts[stage][at].wrapping_sub(self.at_start[stage][at]))
        };
        let stages = std::array::from_fn(|stage| column(&grown(stage)));
        self.points.push(now, Point { receives: grown(0).iter().sum::<u64>() as u32, stages });
        *self.at_start = *counts;
    }
}

/// The row of a step.
fn row(step: usize) -> usize {
    let above = step_ns(step).max(1).ilog2() + 1;
    above.saturating_sub(FIRST_LOG).min(ROWS as u32 - 1) as usize
}

fn column(counts: &[u64; STEPS]) -> Column {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return EMPTY;
    }
    let mut sums = [0u64; ROWS];
    for (step, count) in counts.iter().enumerate() {
        sums[row(step)] += count;
    }
    let byte = |sum: u64| ((sum as f64 / all as f64).sqrt() * 255.0).ceil() as u8;
    Column { rows: sums.map(byte), median: quantile(counts, all, 0.5), p99: quantile(counts, all, 0.99) }
}

/// The history of times.
#[derive(Debug)]
pub struct Latency {
    rings: [Ring; LEVELS.len()],
}

/// Times of all workers and protocols, counted.
fn counts(hub: &Hub) -> Counts {
    let mut counts = [[0; STEPS]; STAGES.len()];
    (0..PROTOCOLS.len()).for_each(|protocol| hub.add_times(&mut counts, protocol));
    counts
}

impl Latency {
    /// With nothing but a first look.
    pub fn new(now: Millis, hub: &Hub) -> Latency {
        let counts = counts(hub);
        Latency { rings: LEVELS.map(|level| Ring::new(level, now, &counts)) }
    }

    /// Takes a look.
    pub fn look(&mut self, now: Millis, hub: &Hub) {
        let counts = counts(hub);
        self.rings.iter_mut().for_each(|ring| ring.add(now, &counts));
    }
}

/// The history of times. It is written as text at once, as that of figures is.
pub fn told(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    let (level, since) = asked(query)?;
    let points = || routes.latency.rings[level].points.after(since);
    let mut text = head(&routes.hub, level);
    // Writing into a string cannot fail.
    let _ = write!(text, ",\"rows\":{ROWS},\"first_row_ns\":{},\"end_ms\":[", 1u64 << FIRST_LOG);
    put_list(&mut text, points().map(|(end, _)| end as f64));
    text.push_str("],\"receives\":[");
    put_list(&mut text, points().map(|(_, point)| f64::from(point.receives)));
    text.push_str("],\"stages\":{");
    for (at, stage) in STAGES.iter().enumerate() {
        let columns = || points().map(move |(_, point)| point.stages[at]);
        let rows: Vec<u8> = columns().flat_map(|column| column.rows).collect();
        let between = if at > 0 { "," } else { "" };
        let _ = write!(text, "{between}\"{stage}\":{{\"rows\":\"{}\",\"median_ns\":[", STANDARD.encode(rows));
        put_list(&mut text, columns().map(|column| f64::from(column.median).trunc()));
        text.push_str("],\"p99_ns\":[");
        put_list(&mut text, columns().map(|column| f64::from(column.p99).trunc()));
        text.push_str("]}");
    }
    let mut rows = Vec::new();
    routes.hub.stage_times(&mut |times| rows.push(row_of(times)));
    let _ = writeln!(text, "}},\"since_start\":{}}}", Value::from(rows));
    Ok(Answer::ok(JSON, text))
}

/// Times of one stage of one protocol since the start, as `stats latency` tells them.
fn row_of(times: &StageTimes) -> Value {
    let [median, p99, p999] = times.quantiles_us;
    json!({
        "protocol": times.protocol,
        "stage": times.stage,
        "count": times.count,
        "p50_us": median,
        "p99_us": p99,
        "p999_us": p999,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(times: &[(usize, u64)]) -> Counts {
        let mut counts = [[0; STEPS]; STAGES.len()];
        times.iter().for_each(|(step, count)| counts[1][*step] = *count);
        counts
    }

    #[test]
    fn rows_are_doublings_and_a_column_is_what_came_in_its_time() {
        assert_eq!((row(0), row(STEPS - 1)), (0, 29));
        let at = |ns: u64| (0..STEPS).rfind(|step| step_ns(*step) <= ns).expect("a step");
        assert_eq!((row(at(63)), row(at(64)), row(at(127)), row(at(128))), (0, 1, 1, 2));
        let level = Level { seconds: 1, points: 3 };
        let mut ring = Ring::new(level, 0, &with(&[(at(1000), 7)]));
        ring.add(500, &with(&[(at(1000), 8)]));
        assert_eq!(ring.points.after(None).count(), 0, "it is not over");
        ring.add(1000, &with(&[(at(1000), 106), (at(1_000_000), 1)]));
        let (end, point) = ring.points.after(None).next().expect("a point");
        let column = point.stages[1];
        assert_eq!((end, column.rows[row(at(1000))], point.stages[0].rows), (1000, 254, [0; ROWS]));
        assert_eq!(column.rows[row(at(1_000_000))], 26);
        assert!((900.0..1100.0).contains(&column.median) && (900.0..1100.0).contains(&column.p99));
        for second in 2..6 {
            ring.add(second * 1000, &with(&[(at(1000), 106), (at(1_000_000), second)]));
        }
        let ends: Vec<Millis> = ring.points.after(None).map(|(end, _)| end).collect();
        assert_eq!((ends, ring.points.after(Some(4000)).count()), (vec![3000, 4000, 5000], 1));
        let last = ring.points.after(Some(4000)).next().expect("a point").1.stages[1];
        assert!(last.median > 900_000.0 && last.rows.iter().filter(|row| **row > 0).count() == 1);
    }

    #[test]
    fn its_memory_is_what_is_said() {
        let rings = LEVELS.map(|level| Ring::new(level, 0, &with(&[])));
        let bytes: usize = rings.iter().map(|ring| ring.points.bytes() + size_of_val(&*ring.at_start)).sum();
        assert_eq!(bytes, LATENCY_BYTES);
    }
}
