//! `larder lab servers --verb`: throughput and CPU time of commands on elements of collections.
//!
//! ```text
//! visit   fill, if the server holds something else ─▶ warm up, unless lists are popped ─▶ measure, until all is popped at most
//! ```
//!
//! All servers are asked in Redis's protocol. Every reply is checked; the generator has time for that, because commands on
//! elements take servers longer than `get`. [`crate::elements`] has the elements.

use std::time::Duration;

use super::report::{add_peak, at_limit, peaks, server_us};
use super::verbs::{Asker, Counts, Verb};
use super::{Options, Sample};
use crate::books::Books;
use crate::dialog::Dialog;
use crate::elements::{self, Shape, asked_as_redis};
use crate::error::Error;
use crate::experiment::{AMPLE_MB, Checks, Experiment, Options as Common, Pair, Seat};
use crate::placement::Placement;
use crate::results::{Better, Environment, number};
use crate::starvation::Waited;
use crate::usage::Usage;

/// Elements of all collections together by default, unless one has more.
const ELEMENTS: u32 = 1_000_000;
const ELEMENTS_QUICK: u32 = 100_000;
/// About how long it takes to fill a server for a visit, for each element.
const FILL_NS: u64 = 1_500;

/// What a cell measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    verb: Verb,
    shape: Shape,
    connections: u32,
    pipeline: u32,
}

impl Setting {
    fn words(&self) -> String {
        let Setting { verb, shape, connections, pipeline } = self;
        format!("{} {connections}×{pipeline}, {} × {}", verb.name(), shape.elements, shape.keys)
    }

    /// What a server may come to need, in MB: in a long visit as many elements may be added as there were.
    fn most_mb(&self) -> u64 {
        let times = if self.verb.adds() { 2 } else { 1 };
        times * self.shape.limit_mb()
    }
}

/// A setting on a server, over all rounds.
type Cell = super::Cell<Setting>;

/// Runs the experiment.
///
/// # Errors
/// When a server speaks memcached's protocols alone, cannot be started or fails, when this machine has no room for the
/// collections of all servers, or a check did not hold.
pub fn run(options: &Options) -> Result<(), Error> {
    let common = asked_as_redis(&options.common)?;
    let (settings, left_out) =
        with_room(options.settings_of_verbs(), here(&common), Environment::of_this_machine().memory_bytes);
    if settings.is_empty() {
        return Err(Error::Usage(format!("{}: fewer --elements, or fewer servers", left_out.join("; "))));
    }
    let most = settings.iter().map(|setting| 2 * setting.shape.limit_mb()).max().unwrap_or(0);
    let memory_mb = u32::try_from(most).unwrap_or(u32::MAX).max(AMPLE_MB);
    let title = "Collections: throughput, and what a command costs servers (closed loop)";
    let mut experiment = Experiment::start("elements", title, &common, memory_mb)?;
    let visit = common.visit(options.visit_ms, 200, 500);
    experiment.run.set("visit, ms", visit.as_millis());
    experiment.run.set("elements of all collections", options.total());
    experiment.run.notes.extend(left_out);
    let seats = experiment.seats();
    let of = |setting: &Setting| seats.iter().map(|&seat| (seat, *setting)).collect::<Vec<_>>();
    let cells = settings.iter().flat_map(of);
    let mut cells: Vec<Cell> =
        cells.map(|(seat, setting)| Cell { seat, setting, samples: Vec::new() }).collect();
    let elements: u64 = cells.iter().map(|cell| cell.setting.shape.all()).sum();
    let fill = Duration::from_nanos(elements / cells.len().max(1) as u64 * FILL_NS);
    experiment.announce(cells.len(), visit.mul_f64(1.2) + fill + Duration::from_millis(100));
    let names = experiment.names();
    // The collections that each server was filled with and still holds.
    let mut filled: Vec<Option<Shape>> = vec![None; names.len()];
    experiment.rounds(
        &mut cells,
        |cell| format!("{}, {}", names[cell.seat.contender], cell.setting.words()),
        |experiment, cell, round| {
            let name = experiment.seat_name(cell.seat);
            let sample = experiment
                .undisturbed(&name, |experiment| visit_once(experiment, &mut filled, cell, visit, round))?;
            cell.samples.push(sample);
            Ok(())
        },
    )?;
    experiment.without_ceiling(["commands on collections".to_owned()]);
    report(&mut experiment, &cells);
    experiment.finish()
}

/// How many servers have their memory on this machine at once: each keeps its collections while others are visited. Larder is
/// one of the peers by now.
fn here(common: &Common) -> u64 {
    let peers = common.peers.iter().enumerate().filter(|&(at, kind)| !common.peers[..at].contains(kind));
    let targets = common.targets.iter().filter(|target| target.endpoint.address.is_local());
    (peers.count() + targets.count()) as u64
}

/// The settings for which half of the machine's memory is enough for this many servers together, and a note for each verb and shape
/// of the others. `machine_bytes` is 0 if it is not known.
fn with_room(settings: Vec<Setting>, servers: u64, machine_bytes: u64) -> (Vec<Setting>, Vec<String>) {
    let fits =
        |setting: &Setting| machine_bytes == 0 || setting.most_mb() * servers <= (machine_bytes / 2) >> 20;
    let (settings, others): (Vec<Setting>, Vec<Setting>) = settings.into_iter().partition(fits);
    let mut notes: Vec<String> = Vec::new();
    for Setting { verb, shape, .. } in others {
        let note = format!(
            "{} of {} is left out: {servers} servers together might need more than half of this machine's \
             memory",
            verb.name(),
            shape.words()
        );
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    (settings, notes)
}

impl Options {
    /// Elements of all collections together.
    fn total(&self) -> u32 {
        self.items.unwrap_or(self.common.by_effort(ELEMENTS_QUICK, ELEMENTS, ELEMENTS))
    }

    fn settings_of_verbs(&self) -> Vec<Setting> {
        let total = self.total();
        let one = [total];
        let sizes: &[u32] = if self.elements.is_empty() { &one } else { &self.elements };
        let shapes = self.shapes();
        let mut settings: Vec<Setting> = Vec::new();
        for &verb in &self.verb {
            for &elements in sizes {
                let shape = Shape::new(verb.kind(), elements, total);
                let all = shapes.iter().map(|&(connections, pipeline)| Setting {
                    verb,
                    shape,
                    connections,
                    pipeline,
                });
                settings.extend(all);
            }
        }
        settings
    }
}

fn visit_once(
    experiment: &mut Experiment,
    filled: &mut [Option<Shape>],
    cell: &Cell,
    visit: Duration,
    round: u32,
) -> Result<(Sample, Waited), Error> {
    let Setting { verb, shape, connections, pipeline } = cell.setting;
    let contender = experiment.contender(cell.seat);
    let name = contender.name.clone();
    let books = Books::open(&contender.control)?;
    let there = &mut filled[cell.seat.contender];
    if *there != Some(shape) {
        contender.control.flush()?;
        let done = elements::pass(contender, shape, false, &experiment.generator_cores)?;
        let right = done.wrong == 0 && done.right == shape.commands();
        experiment.checks.add("every write of elements was acknowledged", right, || {
            format!("{name}: {} of {}, {}", done.right, shape.commands(), done.first.unwrap_or_default())
        });
    }
    *there = (!verb.changes()).then_some(shape);
    let seed = experiment.options.seed.wrapping_add(u64::from(round) << 32);
    let asker = |at| Asker::new(verb, shape, (at, connections), pipeline, seed);
    let contender = experiment.contender(cell.seat);
    let agents = (0..connections).map(asker).collect();
    let mut dialog = Dialog::connect(contender.endpoint(), agents, &experiment.generator_cores)?;
    let mut all = Counts::default();
    // Elements that a warm-up pops would be missing from the measurement.
    if verb != Verb::Lpop {
        dialog.run(visit / 5)?.tallies.iter().for_each(|counts| all.add(counts));
    }
    let (before, threads) = (contender.usage()?, contender.threads()?);
    let outcome = dialog.run(visit)?;
    let used = contender.usage()?.zip(before).map(|(after, before)| Usage::since(after, before).run);
    let placement = contender.placement(threads.as_ref())?;
    drop(dialog);
    let evicted = books.evicted()?;
    let mut counts = Counts::default();
    outcome.tallies.iter().for_each(|tally| counts.add(tally));
    all.add(&counts);
    let elapsed_s = outcome.elapsed.as_secs_f64();
    let sample = Sample {
        rate: counts.requests as f64 / elapsed_s.max(1e-9),
        server_us: used.map(|used| used.as_secs_f64() * 1e6 / counts.requests.max(1) as f64),
        latency: counts.latency,
        busy: outcome.busy,
        elapsed_s,
    };
    let waited = Placement::waited(placement.as_ref(), outcome.elapsed, outcome.waited);
    experiment.note_idle_threads(cell.seat.contender, placement.as_ref());
    experiment.checks.add("every reply is one that must come", all.wrong == 0, || {
        format!("{name}: {} of {}: {}", all.wrong, all.requests, all.first.unwrap_or_default())
    });
    check_whole(&mut experiment.checks, &name, evicted);
    Ok((sample, waited))
}

/// Checks that collections had all of their elements during the whole visit, if the server reports evicted keys. A write to an
/// evicted key makes a new, small one, and has the same reply.
fn check_whole(checks: &mut Checks, name: &str, evicted: Option<u64>) {
    checks.add("no collection was evicted", evicted.is_none_or(|keys| keys == 0), || match evicted {
        Some(0) => format!("{name}: none"),
        Some(keys) => {
            format!("{name}: {keys} evicted: a shorter --visit-ms, fewer --elements or more --memory-mb")
        }
        None => format!("{name}: it does not say"),
    });
}

/// Writes the results into the run.
fn report(experiment: &mut Experiment, cells: &[Cell]) {
    let labels = ["asked", "elements of a key", "connections", "pipeline"];
    let title = "Peaks of a closed loop on collections; latency is of a whole pipeline";
    let mut table = peaks("elements", title, &labels);
    for cell in cells {
        let Setting { verb, shape, connections, pipeline } = cell.setting;
        let labels = [
            verb.name().to_owned(),
            number::text(shape.elements.into()),
            connections.to_string(),
            pipeline.to_string(),
        ];
        add_peak(&mut table, cell, &experiment.seat_name(cell.seat), labels);
    }
    experiment.run.tables.push(table);
    compare(experiment, cells);
    experiment.run.verdict = verdict(cells, &experiment.names());
}

/// A figure by which servers are compared: its name, its better direction, and its value for a visit.
type Figure = (&'static str, Better, fn(&Sample) -> f64);

const THROUGHPUT: &str = "throughput";

/// Compares the first server with the others by CPU time of a command, if all their processes can be seen, and by throughput.
fn compare(experiment: &mut Experiment, cells: &[Cell]) {
    let seen = |cell: &Cell| cell.samples.iter().all(|sample| sample.server_us.is_some());
    let both: [Figure; 2] = [
        ("server CPU", Better::Lower, |sample| sample.server_us.unwrap_or(f64::NAN)),
        (THROUGHPUT, Better::Higher, |sample| sample.rate),
    ];
    for base in cells.iter().filter(|cell| cell.seat == Seat { contender: 0, again: false }) {
        let others: Vec<&Cell> =
            cells.iter().filter(|cell| cell.setting == base.setting && cell.seat != base.seat).collect();
        let all_seen = seen(base) && others.iter().all(|cell| seen(cell));
        let figures = if all_seen { &both[..] } else { &both[1..] };
        for &figure in figures {
            let pairs = pairs(base, &others, figure, |cell| experiment.seat_name(cell.seat));
            experiment.compare_pairs(pairs);
        }
    }
}

/// Compares the first server with itself and with others, for a setting and a figure. There is no ratio of throughput if the
/// generator was the limit of one of the two: the server might have done more.
fn pairs(
    base: &Cell,
    others: &[&Cell],
    (what, better, figure): Figure,
    name: impl Fn(&Cell) -> String,
) -> Vec<Pair> {
    let is_bound = |cell: &Cell| what == THROUGHPUT && at_limit(cell);
    let first_is = is_bound(base) || others.iter().any(|cell| cell.seat.again && is_bound(cell));
    let rounds = |cell: &Cell| -> Vec<f64> { cell.samples.iter().map(figure).collect() };
    let mut pairs = Vec::new();
    for &cell in others {
        let claim = format!("{} / {}, {what}, {}", name(base), name(cell), base.setting.words());
        let bound = if first_is { Some(base) } else { is_bound(cell).then_some(cell) };
        match bound {
            // The second measurement of the same server is the generator's limit, too, and no measure of noise.
            Some(_) if cell.seat.again => {}
            Some(bound) => {
                let why = format!("the generator was the limit of {}", name(bound));
                pairs.push(Pair::lost(claim, better, why));
            }
            None => pairs.push(Pair::new(claim, better, &rounds(base), &rounds(cell), cell.seat.again)),
        }
    }
    pairs
}

/// The cost of commands in words, for the longest pipeline and the largest collections.
fn verdict(cells: &[Cell], names: &[String]) -> String {
    let mut verbs: Vec<Verb> = Vec::new();
    for cell in cells {
        if !verbs.contains(&cell.setting.verb) {
            verbs.push(cell.setting.verb);
        }
    }
    let said = verbs.into_iter().map(|verb| {
        let of = || cells.iter().filter(|cell| cell.setting.verb == verb && !cell.seat.again);
        let size = |cell: &Cell| {
            let Setting { shape, connections, pipeline, .. } = cell.setting;
            (pipeline, shape.elements, connections)
        };
        let most = of().map(size).max();
        let shown = of().filter(|cell| Some(size(cell)) == most);
        let costs = shown.filter_map(|cell| {
            Some(format!("{} {}", names[cell.seat.contender], number::text(server_us(cell)?.median)))
        });
        let costs: Vec<String> = costs.collect();
        format!("{} {}", verb.name(), if costs.is_empty() { "–".to_owned() } else { costs.join(", ") })
    });
    let said: Vec<String> = said.collect();
    format!("CPU time of a command, in µs: {}.", said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::tests::options;
    use crate::tally::Latencies;

    fn cell(verb: Verb, contender: usize, again: bool, pipeline: u32, us: Option<f64>) -> Cell {
        let shape = Shape::new(verb.kind(), 1000, 1000);
        let latency = Latencies::default();
        let sample = Sample { rate: 1e6, server_us: us, latency, busy: 0.5, elapsed_s: 0.5 };
        let setting = Setting { verb, shape, connections: 16, pipeline };
        Cell { seat: Seat { contender, again }, setting, samples: vec![sample; 6] }
    }

    #[test]
    fn each_verb_is_asked_in_all_sizes_and_shapes() {
        let said = |words: &[&str]| -> Vec<String> {
            options(words).settings_of_verbs().iter().map(Setting::words).collect()
        };
        let usual = ["hget 50×1, 1000000 × 1", "hget 16×200, 1000000 × 1"];
        assert_eq!(said(&["--verb", "hget"]), usual);
        assert_eq!(said(&["--verb", "hget", "--quick", "--pipeline", "9"]), ["hget 50×9, 100000 × 1"]);
        let sizes = ["--elements", "70,900", "--items", "700", "--connections", "3"];
        let all = ["sadd 3×1, 70 × 10", "sadd 3×1, 900 × 1", "lpop 3×1, 70 × 10", "lpop 3×1, 900 × 1"];
        assert_eq!(said(&[&["--verb", "sadd,lpop"][..], &sizes].concat()), all);
        assert_eq!(said(&["--verb", "hget,hset", "--full"]).len(), 2 * 30);
    }

    #[test]
    fn what_all_servers_together_have_no_room_for_is_left_out() {
        let of = |verb: Verb, elements, pipeline| {
            let shape = Shape::new(verb.kind(), elements, 1_000_000);
            Setting { verb, shape, connections: 50, pipeline }
        };
        let large = |pipeline| of(Verb::Sismember, 10_000_000, pipeline);
        let all = || vec![of(Verb::Sadd, 10, 1), large(1), large(200)];
        let left_out = |servers, machine_bytes| {
            let (settings, notes) = with_room(all(), servers, machine_bytes);
            (settings.len(), notes.len())
        };
        let enough = (2 * 3 * large(1).shape.limit_mb()) << 20;
        assert_eq!(left_out(3, enough), (3, 0));
        assert_eq!(left_out(3, enough - 1), (1, 1));
        assert_eq!(left_out(2, enough - 1), (3, 0));
        assert_eq!(left_out(3, 1 << 20), (0, 2));
        assert_eq!(left_out(3, 0), (3, 0), "nothing is known of that machine");
        let (_, notes) = with_room(all(), 3, enough - 1);
        let why = "3 servers together might need more than half of this machine's memory";
        assert_eq!(notes, [format!("sismember of set of 10000000 × 1 is left out: {why}")]);
        // What adds elements may come to have twice as many.
        let adds = || vec![of(Verb::Sadd, 10_000_000, 1)];
        assert_eq!(with_room(adds(), 3, 2 * enough).0.len(), 1);
        assert_eq!(with_room(adds(), 3, 2 * enough - 1).0.len(), 0);
    }

    #[test]
    fn a_collection_that_was_evicted_leaves_no_result() {
        let said = |evicted: &[Option<u64>]| {
            let mut checks = Checks::default();
            evicted.iter().for_each(|&evicted| check_whole(&mut checks, "redis", evicted));
            let list = checks.list();
            (list.len(), list[0].passed, list[0].found.clone())
        };
        assert_eq!(said(&[Some(0)]), (1, true, "redis: none".to_owned()));
        assert_eq!(said(&[None]), (1, true, "redis: it does not say".to_owned()));
        let mend = "a shorter --visit-ms, fewer --elements or more --memory-mb";
        assert_eq!(said(&[Some(0), Some(1)]), (1, false, format!("redis: 1 evicted: {mend}")));
    }

    #[test]
    fn throughput_is_not_compared_where_the_generator_was_the_limit() {
        let name = |cell: &Cell| ["larder", "redis", "valkey"][cell.seat.contender].to_owned();
        let cpu: Figure = ("server CPU", Better::Lower, |sample| sample.server_us.unwrap_or(f64::NAN));
        let rate: Figure = (THROUGHPUT, Better::Higher, |sample| sample.rate);
        // The generator's busy share with the first server, with its second measurement, and with two others.
        let said = |figure: Figure, busy: [f64; 4]| -> Vec<String> {
            let cells = [(0, false), (0, true), (1, false), (2, false)].into_iter().zip(busy);
            let cells: Vec<Cell> = cells
                .map(|((contender, again), busy)| {
                    let mut cell = cell(Verb::Hget, contender, again, 200, Some(1.0));
                    cell.samples.iter_mut().for_each(|sample| sample.busy = busy);
                    cell
                })
                .collect();
            let others: Vec<&Cell> = cells[1..].iter().collect();
            let pairs = pairs(&cells[0], &others, figure, name);
            let said = pairs.iter().map(|pair| match (pair.is_control(), pair.why()) {
                (true, _) => "control".to_owned(),
                (false, why) => why.unwrap_or("compared").to_owned(),
            });
            said.collect()
        };
        let free = ["control", "compared", "compared"];
        assert_eq!(said(rate, [0.95; 4]), free);
        assert_eq!(said(cpu, [1.0; 4]), free);
        let of = |who: &str| format!("the generator was the limit of {who}");
        assert_eq!(said(rate, [0.5, 0.5, 0.96, 0.5]), ["control", &of("redis"), "compared"]);
        for busy in [[0.96, 0.5, 0.5, 0.5], [0.5, 0.96, 0.96, 0.5]] {
            assert_eq!(said(rate, busy), [of("larder"), of("larder")]);
        }
    }

    #[test]
    fn the_most_pipelined_of_each_command_is_told() {
        let names = ["larder-redis".to_owned(), "redis-new".to_owned()];
        let cells = [
            cell(Verb::Hget, 0, false, 1, Some(9.0)),
            cell(Verb::Hget, 0, false, 200, Some(0.25)),
            cell(Verb::Hget, 0, true, 200, Some(0.75)),
            cell(Verb::Hget, 1, false, 200, Some(1.5)),
            cell(Verb::Lpop, 0, false, 200, None),
        ];
        assert_eq!(
            verdict(&cells, &names),
            "CPU time of a command, in µs: hget larder-redis 0.25, redis-new 1.50; lpop –."
        );
        assert_eq!(cells[1].setting.words(), "hget 16×200, 1000 × 1");
    }
}
