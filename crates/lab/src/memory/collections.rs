//! `larder lab memory --type`: what an element of a collection costs above its strings.
//!
//! As with keys, each measurement has its own server, just started. All servers are asked in Redis's protocol.
//! [`crate::elements`] fills the collections, and reads them back.

use std::time::Duration;

use super::measure::{Bench, Reading};
use super::{FULL_MB, Options, words};
use crate::elements::{Shape, TYPES, Type, asked_as_redis};
use crate::error::Error;
use crate::experiment::{Experiment, Pair, Seat};
use crate::results::{Axis, Better, Column, Estimate, Kind, Plot, Point, Scale, Table, number};

/// Elements of a collection, by default.
const ELEMENTS: [u32; 4] = [10, 100, 10_000, 1_000_000];
const ELEMENTS_QUICK: [u32; 2] = [10, 10_000];
const ELEMENTS_FULL: [u32; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// About how many elements are written and read back in a second.
const ELEMENTS_PER_S: f64 = 400e3;

/// The result for collections of one shape on one server.
#[derive(Debug)]
struct Found {
    shape: Shape,
    seat: Seat,
    /// A reading for each round.
    cost: Vec<Reading>,
}

/// Runs the experiment.
///
/// # Errors
/// When a server speaks memcached's protocols alone or cannot be started, or a check did not hold: then there is no result.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut common = asked_as_redis(&options.common)?;
    if let [_, _, ..] = options.items.as_slice() {
        let why = "--items with --type is one number: how many elements all collections have together";
        return Err(Error::Usage(why.to_owned()));
    }
    common.rounds = common.rounds.or(Some(common.by_effort(1, 6, 6)));
    let title = "Memory: bytes per element of a collection above its strings";
    let mut experiment = Experiment::start("collections", title, &common, FULL_MB)?;
    let shapes = options.collections(&mut experiment);
    let types: Vec<&str> = options.types().into_iter().map(Type::name).collect();
    experiment.run.set("types", words(&types));
    experiment.run.set("elements", words(&options.elements()));
    experiment.run.set("element", "8 bytes, of a hash 8 + 8, of a zset 8 and a score, which counts as 8");
    experiment.run.set("memory", "Rss and Swap of smaps_rollup, after less before, of a server just started");
    let pause = Duration::from_millis(common.by_effort(300, 300, 500));

    let mut found = Vec::new();
    for &shape in &shapes {
        for seat in experiment.seats() {
            // As with keys, only the first shape is measured twice on the same server, and a running server is measured once.
            let first = shape == shapes[0];
            let running = experiment.contender(seat).kind.is_none();
            if seat.again && !first || running && (seat.again || !first) {
                continue;
            }
            found.push(Found { shape, seat, cost: Vec::new() });
        }
    }
    let elements: f64 = found.iter().map(|found| found.shape.all() as f64).sum();
    let each = Duration::from_secs_f64(1.0 + elements / found.len().max(1) as f64 / ELEMENTS_PER_S);
    experiment.announce(found.len(), each);
    let names = experiment.names();
    experiment.rounds(
        &mut found,
        |found| format!("{}, {}", names[found.seat.contender], found.shape.words()),
        |experiment, found, round| {
            if round > 0 && experiment.contender(found.seat).kind.is_none() {
                return Ok(());
            }
            let cost = Bench::new(experiment, found.seat.contender, pause).elements(found.shape)?;
            found.cost.push(cost);
            Ok(())
        },
    )?;
    report(&mut experiment, &found);
    experiment.finish()
}

impl Options {
    /// The types of the options, each once.
    fn types(&self) -> Vec<Type> {
        TYPES.into_iter().filter(|kind| self.types.contains(kind)).collect()
    }

    fn elements(&self) -> Vec<u32> {
        match self.elements.as_slice() {
            [] => self.common.by_effort(&ELEMENTS_QUICK[..], &ELEMENTS, &ELEMENTS_FULL).to_vec(),
            given => given.to_vec(),
        }
    }

    /// The shapes to measure: those for which this machine has room.
    fn collections(&self, experiment: &mut Experiment) -> Vec<Shape> {
        let usual = self.common.by_effort(100_000, 1_000_000, 1_000_000);
        let total = self.items.first().copied().unwrap_or(usual);
        let half_mb = (experiment.run.environment.memory_bytes / 2) >> 20;
        let mut shapes = Vec::new();
        for kind in self.types() {
            for elements in self.elements() {
                let shape = Shape::new(kind, elements, total);
                if shape.limit_mb() <= half_mb {
                    shapes.push(shape);
                    continue;
                }
                experiment.run.notes.push(format!(
                    "{} is left out: it might need more than half of this machine's memory",
                    shape.words()
                ));
            }
        }
        shapes
    }
}

fn estimate(found: &Found, pick: fn(&Reading) -> f64) -> Option<Estimate> {
    Estimate::of(&found.cost.iter().map(pick).collect::<Vec<_>>())
}

/// Writes the results into the run.
fn report(experiment: &mut Experiment, found: &[Found]) {
    let names = experiment.names();
    let name = |found: &Found| {
        let name = &names[found.seat.contender];
        if found.seat.again { format!("{name} again") } else { name.clone() }
    };
    let mut table =
        Table::new("elements", "What an element costs above its strings", &["type", "elements of a key"]);
    table.column(Column::new("of resident memory", "B", Better::Lower));
    table.column(Column::new("as the server counts", "B", Better::Neither));
    table.column(Column::new("resident in all", "MiB", Better::Lower));
    for found in found {
        let labels = [found.shape.kind.name().to_owned(), number::text(found.shape.elements.into())];
        let values = [
            estimate(found, |reading| reading.overhead_bytes),
            estimate(found, |reading| reading.counted_bytes),
            estimate(found, |reading| reading.rss_mib),
        ];
        table.row(&name(found), labels, values);
    }
    experiment.run.tables.push(table);
    let mut counts: Vec<u32> = Vec::new();
    for found in found {
        if !counts.contains(&found.shape.elements) {
            counts.push(found.shape.elements);
        }
    }
    for elements in counts {
        let plot = plot(found, elements, &name);
        experiment.run.plots.push(plot);
    }
    experiment.compare_unchecked(pairs(found, &names));
    experiment.run.verdict = verdict(found, &names);
}

/// A bar for each server and type, for collections of this many elements.
fn plot(found: &[Found], elements: u32, name: &dyn Fn(&Found) -> String) -> Plot {
    let title = format!("Bytes per element above its strings, {} of a key", number::text(elements.into()));
    let mut plot = Plot::new(&format!("elements-{elements}"), &title, Kind::Bars);
    plot.x = Axis::new("type", "", Scale::Linear);
    plot.y = Axis::new("resident memory per element above its strings", "B", Scale::Linear);
    for found in found.iter().filter(|found| found.shape.elements == elements && !found.seat.again) {
        let kind = found.shape.kind.name();
        let group = plot.groups.iter().position(|have| have == kind).unwrap_or(plot.groups.len());
        if group == plot.groups.len() {
            plot.groups.push(kind.to_owned());
        }
        let Some(cost) = estimate(found, |reading| reading.overhead_bytes) else { continue };
        let (point, name) = (Point::estimated(group as f64, &cost), name(found));
        match plot.curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => {
                plot.curve(&name, [point]);
            }
        }
    }
    plot
}

/// Compares the first server with the others, shape by shape, with paired rounds.
fn pairs(found: &[Found], names: &[String]) -> Vec<Pair> {
    let rounds = |found: &Found| found.cost.iter().map(|reading| reading.overhead_bytes).collect::<Vec<_>>();
    let mut pairs = Vec::new();
    for first in found.iter().filter(|found| found.seat == Seat { contender: 0, again: false }) {
        let same = |other: &&Found| other.shape == first.shape && other.seat != first.seat;
        // A running server was measured once.
        for other in found.iter().filter(same).filter(|other| other.cost.len() == first.cost.len()) {
            let again = other.seat.again;
            let whom = if again { " again" } else { "" };
            let claim =
                format!("{} / {}{whom}, {}", names[0], names[other.seat.contender], first.shape.words());
            pairs.push(Pair::new(claim, Better::Lower, &rounds(first), &rounds(other), again));
        }
    }
    pairs
}

/// The cost of an element in the largest collections of each type, in words.
fn verdict(found: &[Found], names: &[String]) -> String {
    let said = |kind: Type| {
        let of = |found: &&Found| found.shape.kind == kind && !found.seat.again;
        let most = found.iter().filter(of).map(|found| found.shape.elements).max()?;
        let largest = found.iter().filter(of).filter(|found| found.shape.elements == most);
        let each = largest.filter_map(|found| {
            let cost = estimate(found, |reading| reading.overhead_bytes)?;
            Some(format!("{} {:.1} B", names[found.seat.contender], cost.median))
        });
        let each: Vec<String> = each.collect();
        Some(format!("{} of {}: {}", kind.name(), number::text(most.into()), each.join(", ")))
    };
    let types: Vec<String> = TYPES.into_iter().filter_map(said).collect();
    format!("An element takes of resident memory, above its strings: {}.", types.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: Type, elements: u32, contender: usize, again: bool, bytes: f64) -> Found {
        let reading = Reading { overhead_bytes: bytes, counted_bytes: bytes, rss_mib: 1.0 };
        let seat = Seat { contender, again };
        Found { shape: Shape::new(kind, elements, 1000), seat, cost: vec![reading; 6] }
    }

    fn all() -> Vec<Found> {
        vec![
            found(Type::Hash, 10, 0, false, 5.5),
            found(Type::Hash, 10, 0, true, 5.5),
            found(Type::Hash, 10, 1, false, 30.0),
            found(Type::Hash, 1000, 0, false, 5.2),
            found(Type::Hash, 1000, 1, false, 57.0),
            found(Type::Zset, 10, 0, false, 6.0),
            found(Type::Zset, 10, 1, false, 60.0),
        ]
    }

    #[test]
    fn shapes_are_compared_each_with_itself_and_the_largest_are_told() {
        let names = ["larder-redis".to_owned(), "redis-new".to_owned()];
        let controls: Vec<bool> = pairs(&all(), &names).iter().map(Pair::is_control).collect();
        assert_eq!(controls, [true, false, false, false]);
        assert_eq!(
            verdict(&all(), &names),
            "An element takes of resident memory, above its strings: hash of 1,000: larder-redis 5.2 B, redis-new 57.0 B; \
             zset of 10: larder-redis 6.0 B, redis-new 60.0 B."
        );
    }

    #[test]
    fn bars_stand_in_the_group_of_their_type() {
        let name = |found: &Found| ["larder-redis", "redis-new"][found.seat.contender].to_owned();
        let plot = plot(&all(), 10, &name);
        assert_eq!(plot.groups, ["hash", "zset"]);
        let bars =
            plot.curves.iter().map(|curve| curve.points.iter().map(|point| point.y).collect::<Vec<_>>());
        assert_eq!(bars.collect::<Vec<_>>(), [[5.5, 6.0], [30.0, 60.0]]);
    }
}
