//! The experiment's table, plots and verdict.

use super::{Asked, Cell, Sample, Setting};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::{Axis, Better, Column, Estimate, Kind, Latency, Plot, Point, Scale, Table, number};
use crate::tally::Latencies;

/// The generator was the limit when it worked for more than this share of the time.
const BUSY_MAX: f64 = 0.95;

/// Adds the tables and plots of the run.
///
/// # Errors
/// [`Error::NotValid`] when a histogram cannot be packed.
pub fn report(experiment: &mut Experiment, cells: &[Cell]) -> Result<(), Error> {
    let labels = ["asked", "connections", "pipeline", "value, B"];
    let mut table = peaks("servers", "Peaks of a closed loop; latency is of a whole pipeline", &labels);
    for cell in cells {
        let Setting { asked, connections, pipeline, value_bytes } = cell.setting;
        let labels = [asked.name().to_owned()];
        let counts = [connections, pipeline, value_bytes].map(|n| n.to_string());
        add_peak(&mut table, cell, &experiment.seat_name(cell.seat), labels.into_iter().chain(counts));
    }
    let shown = Grid::of(cells);
    if let Some(digest) = table.digest(ROWS_MAX, |at| shown.has(&cells[at].setting)) {
        experiment.run.tables.push(digest);
    }
    let whole = table;
    article(experiment, cells);
    experiment.run.tables.push(whole);
    compare(experiment, cells, &shown);
    match shown.is_grid() {
        true => sweeps(experiment, cells, &shown),
        false => plots(experiment, cells),
    }
    // The page draws the first.
    let (first, rest): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| shown.has(&cell.setting));
    for cell in first.into_iter().chain(rest) {
        let mut all = Latencies::default();
        cell.samples.iter().for_each(|sample| all.merge(&sample.latency));
        let name = experiment.seat_name(cell.seat);
        let clock = "closed loop, of a whole pipeline, from its send";
        let packed = Latency::new(&name, &cell.setting.words(), clock, &all.ns, all.over_range)?;
        experiment.run.histograms.push(packed);
    }
    verdict(experiment, cells, &shown);
    Ok(())
}

/// A table of the peaks of closed loops, with these labels.
pub(super) fn peaks(id: &str, title: &str, labels: &[&str]) -> Table {
    let mut table = Table::new(id, title, labels);
    table.absent("the process of that server cannot be seen from here");
    for (name, unit, better) in [
        ("throughput", "1/s", Better::Higher),
        ("server CPU", "µs", Better::Lower),
        ("p50", "µs", Better::Lower),
        ("p99", "µs", Better::Lower),
        ("generator busy", "%", Better::Neither),
    ] {
        table.column(Column::new(name, unit, better));
    }
    table
}

/// Adds a row to a table of [`peaks`].
pub(super) fn add_peak<S>(
    table: &mut Table,
    cell: &Cell<S>,
    server: &str,
    labels: impl IntoIterator<Item = String>,
) {
    let values = [
        estimate(cell, |s| s.rate),
        server_us(cell),
        estimate(cell, |s| s.latency.quantile_us(0.5)),
        estimate(cell, |s| s.latency.quantile_us(0.99)),
        estimate(cell, |s| 100.0 * s.busy),
    ];
    let row = table.row(server, labels, values);
    if at_limit(cell) {
        row.note = "throughput: the generator was the limit".to_owned();
    }
}

/// Whether the generator was the limit: then the throughput is the generator's, and not the server's.
pub(super) fn at_limit<S>(cell: &Cell<S>) -> bool {
    estimate(cell, |sample| sample.busy).is_some_and(|busy| busy.median > BUSY_MAX)
}

fn estimate<S>(cell: &Cell<S>, figure: impl Fn(&Sample) -> f64) -> Option<Estimate> {
    Estimate::of(&cell.samples.iter().map(figure).collect::<Vec<_>>())
}

/// CPU time of the server for a request, if its process can be seen.
pub(super) fn server_us<S>(cell: &Cell<S>) -> Option<Estimate> {
    Estimate::of(&cell.samples.iter().map(|sample| sample.server_us).collect::<Option<Vec<f64>>>()?)
}

/// Settings whose ceiling is shown: the least and the most pipelined one of each load.
pub fn extremes(settings: &[Setting]) -> Vec<Setting> {
    let mut chosen: Vec<Setting> = Vec::new();
    for asked in Asked::ALL {
        let of = || settings.iter().filter(|setting| setting.asked == asked);
        let ends = [of().min_by_key(|s| s.pipeline), of().max_by_key(|s| s.pipeline)];
        for setting in ends.into_iter().flatten() {
            if !chosen.contains(setting) {
                chosen.push(*setting);
            }
        }
    }
    chosen
}

/// The loads in `settings` that no null server is compared with, beside servers with so many threads, in words.
pub fn without_null(settings: &[Setting], workers: &[Option<u32>]) -> Option<String> {
    let lacks = |setting: &Setting| workers.iter().any(|&workers| !setting.asked.has_null(workers));
    let asked = settings.iter().find(|setting| lacks(setting))?.asked;
    Some(format!("{} of servers that may have several threads", asked.name()))
}

/// The article's own figure: the time of its reads.
fn article(experiment: &mut Experiment, cells: &[Cell]) {
    let ours: Vec<&Cell> = cells.iter().filter(|cell| cell.setting.asked == Asked::KeyDb).collect();
    if ours.is_empty() {
        return;
    }
    let title = "The case of the article on Redis and KeyDB (docs/lab/keydb.md): 1,001,600 reads of one key, 16 connections × 200 \
                 (it printed Redis 1135 ms, KeyDB 1554 ms)";
    let mut table = Table::new("article", title, &["value, B"]);
    table.column(Column::new("time", "ms", Better::Lower));
    for cell in ours {
        let value = [cell.setting.value_bytes.to_string()];
        table.row(&experiment.seat_name(cell.seat), value, [estimate(cell, |s| 1e3 * s.elapsed_s)]);
    }
    experiment.run.tables.push(table);
}

/// CPU time per request of the first server over the others', where all their processes can be seen, and throughput. Both visits
/// of a server that is visited twice have to agree.
fn compare(experiment: &mut Experiment, cells: &[Cell], shown: &Grid) {
    let first = |cell: &&Cell| cell.seat.contender == 0 && !cell.seat.again && shown.has(&cell.setting);
    for base in cells.iter().filter(first) {
        let others: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.setting == base.setting && (cell.seat.contender > 0 || cell.seat.again))
            .collect();
        for (what, better, figure) in compared(base, &others) {
            let rounds = |cell: &Cell| -> Vec<f64> { cell.samples.iter().map(figure).collect() };
            let rows = others
                .iter()
                .map(|cell| {
                    let (a, b) = (experiment.seat_name(base.seat), experiment.seat_name(cell.seat));
                    (format!("{a} / {b}, {what}, {}", base.setting.words()), rounds(cell), cell.seat.again)
                })
                .collect();
            experiment.compare_with(better, &rounds(base), rows);
        }
    }
}

/// A figure by which servers are compared: its name, which way it is better, and its value in a visit.
type Compared = (&'static str, Better, fn(&Sample) -> f64);

/// The figures by which a server and others are compared.
fn compared(base: &Cell, others: &[&Cell]) -> Vec<Compared> {
    let seen = |cell: &Cell| cell.samples.iter().all(|sample| sample.server_us.is_some());
    let mut figures: Vec<Compared> = Vec::new();
    if seen(base) && others.iter().all(|cell| seen(cell)) {
        figures.push(("server CPU", Better::Lower, |sample| sample.server_us.unwrap_or(f64::NAN)));
    }
    figures.push(("throughput", Better::Higher, |sample| sample.rate));
    figures
}

/// A table of at most this many lines is shown whole.
const ROWS_MAX: usize = 48;
/// Settings of a load that are drawn as bars; more are drawn as lines along an axis.
const BARS_MAX: usize = 6;

type Figure = fn(&Cell) -> Option<Estimate>;

/// The axes of a sweep.
struct Grid {
    connections: Vec<u32>,
    pipelines: Vec<u32>,
    value_sizes: Vec<u32>,
}

impl Grid {
    fn of(cells: &[Cell]) -> Grid {
        let all = |of: fn(&Setting) -> u32| {
            let swept = cells.iter().filter(|cell| cell.setting.asked != Asked::KeyDb);
            let mut all: Vec<u32> = swept.map(|cell| of(&cell.setting)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        Grid {
            connections: all(|setting| setting.connections),
            pipelines: all(|setting| setting.pipeline),
            value_sizes: all(|setting| setting.value_bytes),
        }
    }

    /// Whether it has more points than a picture has room for bars.
    fn is_grid(&self) -> bool {
        self.connections.len() * self.value_sizes.len() > BARS_MAX
    }

    /// The number of connections at which the other axes are shown.
    fn usual_connections(&self) -> u32 {
        self.connections.get(self.connections.len() / 2).copied().unwrap_or(1)
    }

    /// Whether it is shown of a large sweep: usual connections, the least and the most pipelined, the smallest value.
    fn has(&self, setting: &Setting) -> bool {
        let ends = [self.pipelines.first(), self.pipelines.last()];
        !self.is_grid()
            || self.value_sizes.first() == Some(&setting.value_bytes)
                && (setting.asked == Asked::KeyDb
                    || setting.connections == self.usual_connections()
                        && ends.contains(&Some(&setting.pipeline)))
    }
}

/// Curves of a sweep along each of its axes, the others fixed.
fn sweeps(experiment: &mut Experiment, cells: &[Cell], grid: &Grid) {
    type Axle = (&'static str, &'static str, fn(&Setting) -> u32);
    let axes: [(Axle, usize); 3] = [
        (("connections", "", |setting| setting.connections), grid.connections.len()),
        (("pipeline", "", |setting| setting.pipeline), grid.pipelines.len()),
        (("value", "B", |setting| setting.value_bytes), grid.value_sizes.len()),
    ];
    let (usual, small) = (grid.usual_connections(), grid.value_sizes.first().copied().unwrap_or(0));
    let deep = grid.pipelines.last().copied().unwrap_or(1);
    for asked in [Asked::Hit, Asked::Miss, Asked::Set, Asked::Zipf] {
        for ((axis, unit, of), _) in axes.iter().filter(|(_, points)| *points > 1) {
            let on_axis = |setting: &Setting| {
                setting.asked == asked
                    && (*axis == "connections" || setting.connections == usual)
                    && (*axis == "pipeline" || setting.pipeline == deep)
                    && (*axis == "value" || setting.value_bytes == small)
            };
            let fixed: Vec<String> = [
                ("connections", format!("{usual} connections")),
                ("pipeline", format!("pipeline {deep}")),
                ("value", format!("{small} B")),
            ]
            .into_iter()
            .filter(|(name, _)| name != axis)
            .map(|(_, words)| words)
            .collect();
            let (name, fixed) = (asked.name(), fixed.join(", "));
            let figures: [(&str, &str, &str, Figure); 2] = [
                ("throughput", "1/s", "Throughput", |cell| estimate(cell, |s| s.rate)),
                ("server CPU", "µs", "CPU time of the server per request", server_us),
            ];
            for (label, measure, title, figure) in figures {
                let title = format!("{title} by {axis}, {name}, {fixed}");
                let mut plot =
                    Plot::new(&format!("{label}-{name}-{axis}").replace(' ', "-"), &title, Kind::Lines);
                plot.x = Axis::new(axis, unit, Scale::Log);
                plot.y = Axis::new(label, measure, Scale::Linear);
                for seat in experiment.seats() {
                    let points =
                        cells.iter().filter(|cell| cell.seat == seat && on_axis(&cell.setting)).filter_map(
                            |cell| Some(Point::estimated(f64::from(of(&cell.setting)), &figure(cell)?)),
                        );
                    plot.curve(&experiment.seat_name(seat), points.collect::<Vec<_>>());
                }
                if plot.curves.iter().any(|curve| !curve.points.is_empty()) {
                    plot.caption = "Closed loop.".to_owned();
                    experiment.run.plots.push(plot);
                }
            }
        }
    }
}

fn plots(experiment: &mut Experiment, cells: &[Cell]) {
    let mut settings: Vec<Setting> = Vec::new();
    cells.iter().for_each(|cell| {
        if !settings.contains(&cell.setting) {
            settings.push(cell.setting);
        }
    });
    let figures: [(&str, &str, &str, &str, Figure); 2] = [
        ("cpu", "CPU time of the server per request", "server CPU", "µs", server_us),
        ("throughput", "Throughput, closed loop", "throughput", "1/s", |cell| estimate(cell, |s| s.rate)),
    ];
    // Unpipelined and pipelined requests differ by two orders of magnitude: not in one picture.
    let mut pipelines: Vec<u32> = settings.iter().map(|setting| setting.pipeline).collect();
    pipelines.sort_unstable();
    pipelines.dedup();
    for pipeline in pipelines {
        let groups: Vec<&Setting> = settings.iter().filter(|s| s.pipeline == pipeline).collect();
        for (id, title, label, unit, figure) in figures {
            let mut plot =
                Plot::new(&format!("{id}-{pipeline}"), &format!("{title}, pipeline {pipeline}"), Kind::Bars);
            plot.groups = groups.iter().map(|setting| setting.words()).collect();
            plot.x = Axis::new("load", "", Scale::Linear);
            plot.y = Axis::new(label, unit, Scale::Linear);
            for seat in experiment.seats() {
                let points = groups.iter().enumerate().filter_map(|(index, setting)| {
                    let cell = cells.iter().find(|cell| cell.seat == seat && cell.setting == **setting)?;
                    Some(Point::estimated(index as f64, &figure(cell)?))
                });
                plot.curve(&experiment.seat_name(seat), points.collect::<Vec<_>>());
            }
            experiment.run.plots.push(plot);
        }
    }
}

fn verdict(experiment: &mut Experiment, cells: &[Cell], shown: &Grid) {
    let mut parts = Vec::new();
    let mut told: Vec<(u32, u32)> = Vec::new();
    let read =
        |cell: &&Cell| matches!(cell.setting.asked, Asked::Hit | Asked::KeyDb) && shown.has(&cell.setting);
    for base in cells.iter().filter(read) {
        let shape = (base.setting.connections, base.setting.pipeline);
        if base.seat.contender > 0 || base.seat.again || told.contains(&shape) {
            continue;
        }
        told.push(shape);
        let says = |cell: &Cell| {
            let name = experiment.seat_name(cell.seat);
            match server_us(cell) {
                Some(us) => Some(format!("{name} {} µs", number::text(us.median))),
                None => Some(format!("{name} {}/s", number::text(estimate(cell, |s| s.rate)?.median))),
            }
        };
        let all: Vec<String> = cells
            .iter()
            .filter(|cell| cell.setting == base.setting && !cell.seat.again)
            .filter_map(says)
            .collect();
        parts.push(format!("{} × {}: {}", shape.0, shape.1, all.join(", ")));
    }
    experiment.run.verdict = match parts.is_empty() {
        true => "See the table.".to_owned(),
        false => format!("A read costs the server, at connections × pipeline {}.", parts.join("; ")),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Seat;

    fn settings(asked: &[Asked]) -> Vec<Setting> {
        let shapes = [(50, 1), (16, 50), (16, 200)];
        let of = |&asked: &Asked| {
            shapes.map(|(connections, pipeline)| Setting { asked, connections, pipeline, value_bytes: 32 })
        };
        asked.iter().flat_map(of).collect()
    }

    #[test]
    fn each_load_has_ceilings_and_a_mix_where_a_server_has_one_thread() {
        let words: Vec<String> = extremes(&settings(&Asked::ALL)).iter().map(Setting::words).collect();
        assert_eq!(words.len(), 10);
        for load in ["hit", "miss", "set", "zipf", "keydb"] {
            for shape in ["50×1", "16×200"] {
                assert!(words.contains(&format!("{load} {shape} 32 B")), "{load} {shape}");
            }
        }
        let without = |asked: &[Asked], workers: &[Option<u32>]| without_null(&settings(asked), workers);
        assert_eq!(without(&[Asked::Hit, Asked::KeyDb], &[Some(4), None]), None);
        assert_eq!(without(&Asked::ALL, &[Some(1), Some(1)]), None);
        for workers in [[Some(1), Some(2)], [None, Some(1)]] {
            let said = without(&[Asked::Hit, Asked::Zipf], &workers);
            assert_eq!(said.as_deref(), Some("zipf of servers that may have several threads"));
        }
    }

    #[test]
    fn throughput_is_compared_beside_the_cpu_time_and_alone_where_that_is_not_seen() {
        let cell = |server_us: Option<f64>| {
            let sample =
                Sample { rate: 9.0, server_us, latency: Latencies::default(), busy: 0.5, elapsed_s: 1.0 };
            let setting = Setting { asked: Asked::Hit, connections: 50, pipeline: 1, value_bytes: 32 };
            Cell { seat: Seat { contender: 0, again: false }, setting, samples: vec![sample] }
        };
        let by = |other: Option<f64>| -> Vec<(&str, f64)> {
            let (base, other) = (cell(Some(2.0)), cell(other));
            compared(&base, &[&other])
                .iter()
                .map(|(what, _, figure)| (*what, figure(&base.samples[0])))
                .collect()
        };
        assert_eq!(by(Some(3.0)), [("server CPU", 2.0), ("throughput", 9.0)]);
        assert_eq!(by(None), [("throughput", 9.0)]);
    }
}
