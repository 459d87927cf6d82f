//! The experiment's tables, curves and verdict.

use super::{Cell, P99_MAX_US, Peaks, Sample};
use crate::error::Error;
use crate::experiment::{Experiment, Pair, Seat};
use crate::results::{
    Axis, Better, Column, Dash, Estimate, Kind, Latency, Plot, Point, Scale, Table, number, of_time,
};
use crate::stats::{ROUNDS_MIN, median};
use crate::tally::{Latencies, late_at};

/// Adds the tables, curves and notes of the run.
///
/// # Errors
/// [`Error::NotValid`] when a histogram cannot be packed.
pub fn report(experiment: &mut Experiment, peaks: &Peaks, cells: &[Cell]) -> Result<(), Error> {
    in_time(experiment, cells);
    let mut table = Table::new("peaks", "Peaks of a closed loop, one request at a time on a connection", &[]);
    table.column(Column::new("peak", "1/s", Better::Higher));
    table.column(Column::new("100 % of the ladder", "1/s", Better::Neither));
    for (index, contender) in experiment.contenders.iter().enumerate() {
        let of = peaks.shared();
        let row = table.row(
            &contender.name,
            [] as [&str; 0],
            [Estimate::of(&peaks.closed[index]), Estimate::exact(of.round())],
        );
        if of == peaks.generator {
            row.note = "the ladder ends where the generator's time does".to_owned();
        } else if of < median(&peaks.closed[index]) {
            row.note = "the ladder ends at the slowest server's peak".to_owned();
        }
    }
    experiment.run.tables.push(table);

    let mut table = Table::new("latency", "Latency by load, from when a request was due", &["load, %"]);
    table.absent(
        "the generator was late in too many visits, or the server's process cannot be seen from here",
    );
    for (name, unit) in [
        ("offered", "1/s"),
        ("p50", "µs"),
        ("p99", "µs"),
        ("p99.9", "µs"),
        ("max", "µs"),
        ("service p99", "µs"),
        ("lag p99", "µs"),
        ("server busy", "%"),
    ] {
        let measured = name.starts_with('p') || name == "max" || name == "service p99";
        table.column(Column::new(name, unit, if measured { Better::Lower } else { Better::Neither }));
    }
    for cell in cells {
        let server = |s: &Sample| s.server_busy.map_or(f64::NAN, |busy| 100.0 * busy);
        let values = [
            Estimate::exact(cell.per_s.round()),
            quantile(cell, 0.5),
            quantile(cell, 0.99),
            quantile(cell, 0.999),
            quantile(cell, 1.0),
            estimate(cell, |s| s.service.quantile_us(0.99)),
            estimate(cell, |s| s.lag.quantile_us(0.99)),
            estimate(cell, server),
        ];
        let row = table.row(&experiment.seat_name(cell.seat), [cell.percent.to_string()], values);
        let late = |at: f64| shown(cell).filter(|s| late_at(&s.lag, &s.latency, at).is_some()).count();
        let tails: Vec<String> = [("p99.9", 0.999), ("max", 1.0)]
            .into_iter()
            .filter(|&(_, at)| late(at) > 0)
            .map(|(name, at)| {
                format!("{name} without {} visits in which the generator was late there", late(at))
            })
            .collect();
        row.note = tails.join("; ");
        if let Some(words) = left_out(cell) {
            row.note = words;
        }
    }
    experiment.run.tables.push(table);
    under_a_millisecond(experiment, cells);
    plots(experiment, cells);
    histograms(experiment, cells)?;
    Ok(())
}

fn valid(cell: &Cell) -> impl Iterator<Item = &Sample> {
    cell.samples.iter().filter(|sample| sample.fault().is_none())
}

/// The visits of which figures are made; none if too few of a rung are left.
fn shown(cell: &Cell) -> impl Iterator<Item = &Sample> {
    let enough = is_most(valid(cell).count(), cell);
    valid(cell).filter(move |_| enough)
}

fn estimate(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Option<Estimate> {
    Estimate::of(&shown(cell).map(figure).collect::<Vec<_>>())
}

fn quantile(cell: &Cell, quantile: f64) -> Option<Estimate> {
    let known = shown(cell).filter(|sample| late_at(&sample.lag, &sample.latency, quantile).is_none());
    Estimate::of(&known.map(|sample| sample.latency.quantile_us(quantile)).collect::<Vec<_>>())
}

/// Checks that most visits of each rung measure the server.
fn in_time(experiment: &mut Experiment, cells: &[Cell]) {
    for cell in cells {
        let faults: Vec<String> = cell.samples.iter().filter_map(Sample::fault).collect();
        let name = experiment.seat_name(cell.seat);
        experiment.checks.add(of_time::GENERATOR, is_most(valid(cell).count(), cell), || {
            match faults.first() {
                Some(first) => {
                    format!(
                        "{name} at {} %: {} of {} visits, {first}",
                        cell.percent,
                        faults.len(),
                        cell.samples.len()
                    )
                }
                None => format!("{name} at {} %", cell.percent),
            }
        });
    }
}

/// Whether this many visits are more than half of a rung's.
fn is_most(visits: usize, cell: &Cell) -> bool {
    2 * visits > cell.samples.len()
}

/// The visits that were left out of a rung, and the figures that are missing without them, in words.
fn left_out(cell: &Cell) -> Option<String> {
    let (all, left) = (cell.samples.len(), valid(cell).count());
    let missing = if !is_most(left, cell) {
        "; too few are left to say anything"
    } else if left < ROUNDS_MIN && all >= ROUNDS_MIN {
        "; too few are left for an interval"
    } else {
        ""
    };
    (left < all).then(|| format!("{} of {all} visits left out: the generator was late{missing}", all - left))
}

/// The highest load of a round at which its 99th percentile, and those of all lower loads, are below the bound; 0 if there is
/// none. Visits that are left out do not count. `None` if the bound lies beside such a visit, so that its place is unknown.
fn kept(cells: &[Cell], seat: Seat, round: usize) -> Option<f64> {
    let mut ladder: Vec<&Cell> = cells.iter().filter(|cell| cell.seat == seat).collect();
    ladder.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    let (mut highest, mut unknown) = (0.0, false);
    for cell in ladder {
        let sample = &cell.samples[round];
        if sample.fault().is_some() {
            unknown = true;
        } else if sample.latency.quantile_us(0.99) <= P99_MAX_US {
            (highest, unknown) = (cell.per_s, false);
        } else {
            break;
        }
    }
    (!unknown).then_some(highest)
}

/// The figure of the rounds in which the bound was found; `None` if that is half of them or less.
fn found(rounds: &[Option<f64>]) -> Option<Estimate> {
    let known: Vec<f64> = rounds.iter().flatten().copied().collect();
    (2 * known.len() > rounds.len()).then(|| Estimate::of(&known)).flatten()
}

/// The result of a seat's ladder, by rounds, in words.
fn in_words(rounds: &[Option<f64>], highest: f64) -> String {
    match found(rounds) {
        None => "not known".to_owned(),
        Some(load) if load.median <= 0.0 => "none of its ladder".to_owned(),
        Some(load) => {
            let more = if load.median >= highest { " or more" } else { "" };
            format!("{}/s{more}", number::text(load.median.round()))
        }
    }
}

fn under_a_millisecond(experiment: &mut Experiment, cells: &[Cell]) {
    let rounds = cells.iter().map(|cell| cell.samples.len()).min().unwrap_or(0);
    let by_round =
        |seat: Seat| -> Vec<Option<f64>> { (0..rounds).map(|round| kept(cells, seat, round)).collect() };
    let mut table = Table::new("p99", "Highest load of the ladder with p99 ≤ 1 ms", &[]);
    table.absent("the bound was found in half of the rounds or fewer");
    table.column(Column::new("throughput", "1/s", Better::Higher));
    let seats = experiment.seats();
    let highest = cells.iter().map(|cell| cell.per_s).fold(0.0, f64::max);
    let mut parts = Vec::new();
    for &seat in &seats {
        let (name, loads) = (experiment.seat_name(seat), by_round(seat));
        if !seat.again {
            parts.push(format!("{name} {}", in_words(&loads, highest)));
        }
        let row = table.row(&name, [] as [&str; 0], [found(&loads)]);
        let unknown = loads.iter().filter(|load| load.is_none()).count();
        if unknown > 0 {
            row.note = format!("{unknown} of {rounds} rounds left out: a visit beside the bound was");
        }
    }
    experiment.run.tables.push(table);
    let base = by_round(seats[0]);
    let pairs = seats[1..].iter().map(|&seat| {
        let claim = format!(
            "{} / {}, throughput at p99 ≤ 1 ms",
            experiment.seat_name(seats[0]),
            experiment.seat_name(seat)
        );
        Pair::known(claim, Better::Higher, &base, &by_round(seat), seat.again)
    });
    let pairs = pairs.collect();
    experiment.compare_pairs(pairs);
    experiment.run.verdict = format!("With p99 ≤ 1 ms from when a request is due: {}.", parts.join(", "));
}

fn plots(experiment: &mut Experiment, cells: &[Cell]) {
    let most = cells.iter().map(|cell| cell.per_s).fold(0.0, f64::max);
    for (id, title, at) in [
        ("p99", "99th percentile against load", 0.99),
        ("p50", "Median against load", 0.5),
        ("p999", "99.9th percentile against load", 0.999),
    ] {
        let mut plot = Plot::new(id, title, Kind::Lines);
        plot.x = Axis::new("offered", "1/s", Scale::Linear).between(0.0, most);
        plot.y = Axis::new("latency", "µs", Scale::Log);
        for seat in experiment.seats() {
            let of = || cells.iter().filter(|cell| cell.seat == seat);
            let points = of().filter_map(|cell| Some(Point::estimated(cell.per_s, &quantile(cell, at)?)));
            plot.curve(&experiment.seat_name(seat), points.collect::<Vec<_>>());
        }
        if id == "p99" {
            let bound = [Point::new(0.0, P99_MAX_US), Point::new(most, P99_MAX_US)];
            plot.curve("1 ms", bound).dash = Dash::Dashed;
        }
        plot.caption = "Open loop, counted from when a request was due.".to_owned();
        experiment.run.plots.push(plot);
    }
}

fn histograms(experiment: &mut Experiment, cells: &[Cell]) -> Result<(), Error> {
    type Which = fn(&Sample) -> &Latencies;
    let clocks: [(&str, Which); 2] = [
        ("open loop, from when a request was due", |sample| &sample.latency),
        ("open loop, from when a request was sent", |sample| &sample.service),
    ];
    for cell in cells {
        for (clock, which) in clocks {
            let mut all = Latencies::default();
            shown(cell).for_each(|sample| all.merge(which(sample)));
            if all.is_empty() {
                continue;
            }
            let what = format!("{} % of the lowest peak", cell.percent);
            let name = experiment.seat_name(cell.seat);
            experiment.run.histograms.push(Latency::new(&name, &what, clock, &all.ns, all.over_range)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SEAT: Seat = Seat { contender: 0, again: false };

    /// A visit with this 99th percentile, and a generator that was late, or in time.
    fn visit(p99_us: u64, late: bool) -> Sample {
        let of = |us: u64| {
            let mut latencies = Latencies::default();
            latencies.record(Duration::from_micros(us));
            latencies
        };
        let (latency, lag) = (of(p99_us), of(if late { p99_us } else { 1 }));
        let sample =
            Sample { rate: 1.0, service: latency.clone(), latency, lag, busy: 0.1, server_busy: None };
        assert_eq!(sample.fault().is_some(), late);
        sample
    }

    fn cell(percent: u32, samples: Vec<Sample>) -> Cell {
        Cell { seat: SEAT, percent, per_s: f64::from(percent), samples }
    }

    #[test]
    fn the_highest_load_that_keeps_the_bound_counts_only_above_others_that_do() {
        let cell = |percent: u32, p99_us: u64| cell(percent, vec![visit(p99_us, false)]);
        assert_eq!(kept(&[cell(50, 300), cell(90, 900), cell(95, 5000)], SEAT, 0), Some(90.0));
        assert_eq!(kept(&[cell(50, 3000), cell(90, 900)], SEAT, 0), Some(0.0));
    }

    #[test]
    fn a_visit_that_the_table_leaves_out_is_none_of_the_verdict() {
        let ladder = |visits: [(u64, bool); 3]| {
            let cells: Vec<Cell> = [50, 90, 95]
                .into_iter()
                .zip(visits)
                .map(|(percent, (us, late))| cell(percent, vec![visit(us, late)]))
                .collect();
            kept(&cells, SEAT, 0)
        };
        // The generator's own delay broke the bound between two loads that kept it.
        assert_eq!(ladder([(300, false), (40_000, true), (900, false)]), Some(95.0));
        // The place of the bound is unknown: below that visit or above it.
        assert_eq!(ladder([(300, false), (40_000, true), (5_000, false)]), None);
        assert_eq!(ladder([(300, false), (300, true), (5_000, false)]), None);
        assert_eq!(ladder([(300, false), (400, false), (900, true)]), None);
        // A value above the bound does not matter.
        assert_eq!(ladder([(300, false), (5_000, false), (900, true)]), Some(50.0));
    }

    #[test]
    fn a_server_whose_bound_was_found_in_half_of_the_rounds_has_no_verdict() {
        let known = [Some(90.0), Some(90.0), Some(50.0), Some(90.0), None, None];
        assert_eq!(found(&known).map(|load| (load.median, load.interval)), Some((90.0, None)));
        assert_eq!(in_words(&known, 95.0), "90/s");
        assert_eq!(in_words(&[Some(95.0)], 95.0), "95/s or more");
        assert_eq!(in_words(&[Some(0.0)], 95.0), "none of its ladder");
        assert_eq!(in_words(&known[2..], 95.0), "not known");
    }

    #[test]
    fn a_rung_with_too_few_visits_says_so() {
        let rung =
            |late: usize, all: usize| left_out(&cell(50, (0..all).map(|at| visit(100, at < late)).collect()));
        assert_eq!(rung(0, 6), None);
        let words = rung(1, 6).unwrap();
        assert!(
            words.starts_with("1 of 6") && words.ends_with("too few are left for an interval"),
            "{words}"
        );
        assert!(rung(3, 6).unwrap().ends_with("too few are left to say anything"));
        assert!(rung(1, 2).unwrap().ends_with("too few are left to say anything"));
        // The visit has no figure, no point of a curve, and no histogram.
        let p99 = |late: usize| {
            let cell = cell(50, (0..6).map(|at| visit(100, at < late)).collect());
            (estimate(&cell, |s| s.service.quantile_us(0.99)).is_some(), quantile(&cell, 0.99).is_some())
        };
        assert_eq!([2, 3].map(p99), [(true, true), (false, false)]);
        assert_eq!(shown(&cell(50, (0..6).map(|at| visit(100, at < 3)).collect())).count(), 0);
        assert!(rung(1, 8).unwrap().ends_with("the generator was late"));
        assert!(!is_most(3, &cell(50, vec![visit(100, false); 6])), "half of the visits are not enough");
    }
}
