//! `larder lab memory`: the memory of a key above its key and value, and the memory that stays after deletes.
//!
//! Each measurement has a server of its own, just started: resident memory is read before and after, so that the process's own
//! memory cancels out. Three questions:
//!
//! | question | how |
//! |---|---|
//! | what does a key cost | fill with keys and values of one size, with and without a TTL |
//! | what does it cost in a full cache | the same with twice what the limit could hold |
//! | what stays behind | fill, overwrite all with random sizes, delete half, wait |
//!
//! Every value is read back and verified, and the server must count as many items as were stored.
//!
//! `--type` measures what elements of collections cost, in place of keys: `memory/collections.rs`.

mod collections;
mod measure;
mod report;

use std::time::Duration;

use clap::Args;

use crate::connection::Check;
use crate::elements;
use crate::error::Error;
use crate::experiment::{self, Experiment, Seat};
use crate::keys::{KEY_BYTES_MIN, Keyspace};
use crate::route::SocketKind;
use crate::workload::{Verb, Workload};
use larder_protocol::client::Protocol;
use measure::{Bench, Full, Reading, Stage};

/// Options of `larder lab memory`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: experiment::Options,
    /// Items [default: 1,000,000; 100,000 with --quick; 100,000, 1 and 10 million with --full]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    items: Vec<u32>,
    /// Bytes of keys and values, as 16+32,30+400 [default: 16+32,20+8,16+100,30+400]
    #[arg(long, value_delimiter = ',', value_name = "K+V", value_parser = parse_shape)]
    sizes: Vec<Shape>,
    /// Measures elements of collections of these types in place of keys. All servers, Larder too, are asked in Redis's
    /// protocol; --items is the number of elements of all collections together [default: 1,000,000; 100,000 with --quick]
    #[arg(long = "type", value_delimiter = ',', value_name = "TYPE", value_enum, conflicts_with = "sizes")]
    types: Vec<elements::Type>,
    /// Elements of a collection [default: 10,100,10000,1000000; 10,10000 with --quick; with --full also 1000,100000]
    #[arg(long, value_delimiter = ',', value_name = "N", requires = "types", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    elements: Vec<u32>,
}

/// Bytes of a key and of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    key_bytes: usize,
    value_bytes: usize,
}

impl Shape {
    const fn new(key_bytes: usize, value_bytes: usize) -> Shape {
        Shape { key_bytes, value_bytes }
    }

    fn both(self) -> f64 {
        (self.key_bytes + self.value_bytes) as f64
    }

    fn name(self) -> String {
        format!("{} + {} B", self.key_bytes, self.value_bytes)
    }

    fn space(self, count: u32) -> Keyspace {
        Keyspace { first: 0, count, key_bytes: self.key_bytes, value_bytes: self.value_bytes }
    }
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    let form = || format!("expected bytes of key and value as 16+32, a key of {KEY_BYTES_MIN} to 250");
    let (key, value) = text.split_once('+').ok_or_else(form)?;
    let key_bytes = key.trim().parse().map_err(|_| form())?;
    let value_bytes = value.trim().parse().map_err(|_| form())?;
    let fits = (KEY_BYTES_MIN..=250).contains(&key_bytes) && value_bytes <= 1 << 20;
    if fits { Ok(Shape { key_bytes, value_bytes }) } else { Err(form()) }
}

/// Typical shapes: counters, short strings, sessions.
const SHAPES: [Shape; 4] = [Shape::new(16, 32), Shape::new(20, 8), Shape::new(16, 100), Shape::new(30, 400)];
/// Shapes with more spread.
const SHAPES_FULL: [Shape; 7] = [
    Shape::new(16, 32),
    Shape::new(20, 8),
    Shape::new(16, 64),
    Shape::new(16, 100),
    Shape::new(30, 400),
    Shape::new(16, 512),
    Shape::new(16, 4096),
];
/// Memory limit of a cache that is to be full.
const FULL_MB: u32 = 64;
/// The shape of the filled, overwritten and deleted items.
const STAGED: Shape = Shape::new(16, 400);
/// Memory is resident in pages of up to this size, and the last one is partly used.
const STEP_BYTES: f64 = 2_097_152.0;
/// From this many bytes a key of such a page on, a note says so.
const STEP_NOTED_BYTES: f64 = 4.0;
/// A time to live that no run reaches, in seconds.
const TTL_S: u32 = 86_400;

/// One measurement, repeated for every server and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Cost { items: u32, shape: Shape, ttl: bool },
    Full { shape: Shape, ttl: bool, memory_mb: u32 },
    Stages { items: u32 },
}

/// The results: one per question and server, with a value for each round.
#[derive(Debug)]
struct Found {
    question: Question,
    seat: Seat,
    cost: Vec<Reading>,
    full: Vec<Full>,
    stages: Vec<Vec<Stage>>,
}

/// Runs the experiment.
///
/// # Errors
/// When a server cannot be started, or a check failed: then there is no result.
pub fn run(options: &Options) -> Result<(), Error> {
    if !options.types.is_empty() {
        return collections::run(options);
    }
    let mut common = options.common.clone();
    // Memory hardly differs from round to round: one is enough for a first look.
    common.rounds = common.rounds.or(Some(common.by_effort(1, 6, 6)));
    let mut experiment =
        Experiment::start("memory", "Memory: bytes per key above key and value", &common, FULL_MB)?;
    let (items, shapes) = grid(options);
    experiment.run.set("items", words(&items));
    experiment.run.set("key + value", words(&shapes.iter().map(|shape| shape.name()).collect::<Vec<_>>()));
    experiment.run.set("memory", "Rss and Swap of smaps_rollup, after less before, of a server just started");
    let pause = Duration::from_millis(common.by_effort(300, 300, 500));
    let idle = Duration::from_secs(common.by_effort(1, 2, 60));
    experiment.run.set("idle, s", idle.as_secs());

    let questions = questions(&items, &shapes, &mut experiment);
    let mut found = Vec::new();
    for &question in &questions {
        for seat in experiment.seats() {
            // Only the first question is measured twice on the same server: the noise of all questions is the same.
            let first = question == questions[0];
            let running = experiment.contender(seat).kind.is_none();
            // A running server may keep memory that it has taken: it grows only once.
            if seat.again && !first || running && (seat.again || !first) {
                continue;
            }
            found.push(Found { question, seat, cost: Vec::new(), full: Vec::new(), stages: Vec::new() });
        }
    }
    // A server starts, its memory comes to rest, and this many bytes are written and read back.
    let bytes: f64 = found.iter().map(|found| found.question.bytes()).sum();
    let each = Duration::from_secs_f64(1.0 + bytes / found.len().max(1) as f64 / BYTES_PER_S);
    experiment.announce(found.len(), each);
    let names = experiment.names();
    experiment.rounds(
        &mut found,
        |found| format!("{}, {}", names[found.seat.contender], found.question.name()),
        |experiment, found, round| {
            if round > 0 && experiment.contender(found.seat).kind.is_none() {
                return Ok(());
            }
            let mut bench = Bench::new(experiment, found.seat.contender, pause);
            match found.question {
                Question::Cost { items, shape, ttl } => {
                    found.cost.push(bench.cost(shape.space(items), if ttl { TTL_S } else { 0 })?);
                }
                Question::Full { shape, ttl, memory_mb } => {
                    found.full.push(bench.full(shape, memory_mb, if ttl { TTL_S } else { 0 })?);
                }
                Question::Stages { items } => found.stages.push(bench.stages(STAGED.space(items), idle)?),
            }
            Ok(())
        },
    )?;
    // A fill cannot be faster than this.
    let filled = Workload {
        connections: 16,
        pipeline: 200,
        ..Workload::new(Protocol::Classic, Verb::Set, shapes[0].space(1000))
    };
    let load = format!("set 16×200 {}, parsed", shapes[0].name());
    let ceiling = experiment.ceiling(&filled, Check::Parse, load, SocketKind::Tcp)?;
    experiment.run.ceilings.push(ceiling);
    report::fill(&mut experiment, &found);
    experiment.finish()
}

fn grid(options: &Options) -> (Vec<u32>, Vec<Shape>) {
    let common = &options.common;
    let items = if options.items.is_empty() {
        common.by_effort(vec![100_000], vec![1_000_000], vec![100_000, 1_000_000, 10_000_000])
    } else {
        options.items.clone()
    };
    let shapes = if options.sizes.is_empty() {
        common.by_effort(&SHAPES[..1], &SHAPES[..], &SHAPES_FULL[..]).to_vec()
    } else {
        options.sizes.clone()
    };
    (items, shapes)
}

fn questions(items: &[u32], shapes: &[Shape], experiment: &mut Experiment) -> Vec<Question> {
    let machine_bytes = experiment.run.environment.memory_bytes;
    let mut questions = Vec::new();
    for &count in items {
        let step = STEP_BYTES / f64::from(count);
        if step >= STEP_NOTED_BYTES {
            experiment.run.notes.push(format!(
                "resident memory comes in steps of up to 2 MiB: of {count} items that is {step:.0} bytes a key, \
                 which is how sure figures of resident memory can be"
            ));
        }
        for &shape in shapes {
            if measure::limit_mb(shape.space(count)) > (machine_bytes / 2) >> 20 {
                experiment.run.notes.push(format!(
                    "{count} items of {} are left out: they would need more than half of this machine's memory",
                    shape.name()
                ));
                continue;
            }
            questions.extend([false, true].map(|ttl| Question::Cost { items: count, shape, ttl }));
        }
    }
    let memory_mb =
        experiment.options.memory_mb.unwrap_or(experiment.options.by_effort(16, FULL_MB, FULL_MB));
    questions.extend([false, true].map(|ttl| Question::Full { shape: shapes[0], ttl, memory_mb }));
    let staged = items.iter().copied().min().unwrap_or(100_000).min(500_000);
    questions.push(Question::Stages { items: staged });
    questions
}

/// About how many bytes are written and read back in a second, item by item.
const BYTES_PER_S: f64 = 60e6;
/// What an item adds to that besides its own bytes.
const ITEM_BYTES: f64 = 100.0;

impl Question {
    /// Bytes that pass to and from a server, about.
    fn bytes(self) -> f64 {
        match self {
            Question::Cost { items, shape, .. } => f64::from(items) * (shape.both() + ITEM_BYTES),
            Question::Full { shape, memory_mb, .. } => {
                2.0 * f64::from(memory_mb) * 1_048_576.0 * (1.0 + ITEM_BYTES / shape.both())
            }
            Question::Stages { items } => 3.0 * f64::from(items) * (STAGED.both() + ITEM_BYTES),
        }
    }

    fn name(self) -> String {
        let ttl = |ttl| if ttl { " with TTL" } else { "" };
        match self {
            Question::Cost { items, shape, ttl: with } => format!("{items} × {}{}", shape.name(), ttl(with)),
            Question::Full { shape, ttl: with, .. } => format!("full, {}{}", shape.name(), ttl(with)),
            Question::Stages { .. } => "stages".to_owned(),
        }
    }
}

fn words<T: ToString>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_refused_beyond_their_limits() {
        assert_eq!(parse_shape("16+32"), Ok(Shape::new(16, 32)));
        assert_eq!(parse_shape("14+0"), Ok(Shape::new(14, 0)));
        assert_eq!(parse_shape("250+1048576"), Ok(Shape::new(250, 1 << 20)));
        for bad in ["13+1", "251+1", "16+1048577", "16", "16+", "a+b"] {
            assert!(parse_shape(bad).unwrap_err().contains("16+32"), "{bad}");
        }
    }
}
