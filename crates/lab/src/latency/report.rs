//! The experiment's tables, curves and verdict.

use super::{Cell, P99_MAX_US, Peaks, Sample};
use crate::error::Error;
use crate::experiment::{Experiment, Seat};
use crate::results::{
    Axis, Better, Column, Dash, Estimate, Kind, Latency, Plot, Point, Scale, Table, number, of_time,
};
use crate::stats::median;
use crate::tally::{Latencies, late_at};

/// Fills in what the run found.
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
        let dropped = cell.samples.len() - valid(cell).count();
        let row = table.row(&experiment.seat_name(cell.seat), [cell.percent.to_string()], values);
        let late = |at: f64| valid(cell).filter(|s| late_at(&s.lag, &s.latency, at).is_some()).count();
        let tails: Vec<String> = [("p99.9", 0.999), ("max", 1.0)]
            .into_iter()
            .filter(|&(_, at)| late(at) > 0)
            .map(|(name, at)| {
                format!("{name} without {} visits in which the generator was late there", late(at))
            })
            .collect();
        row.note = tails.join("; ");
        if dropped > 0 {
            row.note = format!("{dropped} of {} visits left out: the generator was late", cell.samples.len());
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

fn estimate(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Option<Estimate> {
    Estimate::of(&valid(cell).map(figure).collect::<Vec<_>>())
}

fn quantile(cell: &Cell, quantile: f64) -> Option<Estimate> {
    let known = valid(cell).filter(|sample| late_at(&sample.lag, &sample.latency, quantile).is_none());
    Estimate::of(&known.map(|sample| sample.latency.quantile_us(quantile)).collect::<Vec<_>>())
}

/// Each rung has at least as many visits that say something as others.
fn in_time(experiment: &mut Experiment, cells: &[Cell]) {
    for cell in cells {
        let faults: Vec<String> = cell.samples.iter().filter_map(Sample::fault).collect();
        let held = 2 * faults.len() <= cell.samples.len() && faults.len() < cell.samples.len();
        let name = experiment.seat_name(cell.seat);
        experiment.checks.add(of_time::GENERATOR, held, || match faults.first() {
            Some(first) => {
                format!(
                    "{name} at {} %: {} of {} visits, {first}",
                    cell.percent,
                    faults.len(),
                    cell.samples.len()
                )
            }
            None => format!("{name} at {} %", cell.percent),
        });
    }
}

/// The highest load of a round whose 99th percentile, and those of all loads below it, keep the bound; 0
/// if none does.
fn kept(cells: &[Cell], seat: Seat, round: usize) -> f64 {
    let mut ladder: Vec<&Cell> = cells.iter().filter(|cell| cell.seat == seat).collect();
    ladder.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    let keeps = |cell: &&&Cell| cell.samples[round].latency.quantile_us(0.99) <= P99_MAX_US;
    ladder.iter().take_while(keeps).last().map_or(0.0, |cell| cell.per_s)
}

fn under_a_millisecond(experiment: &mut Experiment, cells: &[Cell]) {
    let rounds = cells.iter().map(|cell| cell.samples.len()).min().unwrap_or(0);
    let by_round = |seat: Seat| -> Vec<f64> { (0..rounds).map(|round| kept(cells, seat, round)).collect() };
    let mut table = Table::new("p99", "Highest load of the ladder with p99 ≤ 1 ms", &[]);
    table.column(Column::new("throughput", "1/s", Better::Higher));
    let seats = experiment.seats();
    let highest = cells.iter().map(|cell| cell.per_s).fold(0.0, f64::max);
    let mut parts = Vec::new();
    for &seat in &seats {
        let name = experiment.seat_name(seat);
        let throughput = Estimate::of(&by_round(seat));
        if let Some(throughput) = &throughput
            && !seat.again
        {
            parts.push(match throughput.median > 0.0 {
                true if throughput.median >= highest => {
                    format!("{name} {}/s or more", number::text(throughput.median.round()))
                }
                true => format!("{name} {}/s", number::text(throughput.median.round())),
                false => format!("{name} none of its ladder"),
            });
        }
        table.row(&name, [] as [&str; 0], [throughput]);
    }
    experiment.run.tables.push(table);
    let others = seats[1..]
        .iter()
        .map(|&seat| {
            let claim = format!(
                "{} / {}, throughput at p99 ≤ 1 ms",
                experiment.seat_name(seats[0]),
                experiment.seat_name(seat)
            );
            (claim, by_round(seat), seat.again)
        })
        .collect();
    experiment.compare_with(&by_round(seats[0]), others);
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
        plot.caption =
            "Open loop, counted from when a request was due. Bands are 95 % intervals over rounds."
                .to_owned();
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
            valid(cell).for_each(|sample| all.merge(which(sample)));
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

    #[test]
    fn the_highest_load_that_keeps_the_bound_counts_only_above_others_that_do() {
        let seat = Seat { contender: 0, again: false };
        let cell = |percent: u32, p99_us: u64| {
            let mut latency = Latencies::default();
            latency.record(Duration::from_micros(p99_us));
            let (service, lag) = (latency.clone(), Latencies::default());
            let sample = Sample { rate: 1.0, latency, service, lag, busy: 0.1, server_busy: None };
            Cell { seat, percent, per_s: f64::from(percent), samples: vec![sample] }
        };
        assert_eq!(kept(&[cell(50, 300), cell(90, 900), cell(95, 5000)], seat, 0), 90.0);
        assert_eq!(kept(&[cell(50, 3000), cell(90, 900)], seat, 0), 0.0);
    }
}
