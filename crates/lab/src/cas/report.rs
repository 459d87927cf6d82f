//! The experiment's tables, plots and verdict.

use super::{Cell, Method, Sample, Setting};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::{Axis, Better, Column, Estimate, Kind, Latency, Plot, Point, Scale, Table};
use crate::tally::Latencies;

/// Fills in what the run found.
///
/// # Errors
/// [`Error::NotValid`] when a histogram cannot be packed.
pub fn report(experiment: &mut Experiment, cells: &[Cell]) -> Result<(), Error> {
    let mut table = Table::new("cas", "Logical operations: one off a counter, exactly once", LABELS);
    for (name, unit, better) in [
        ("goodput", "1/s", Better::Higher),
        ("attempts", "1/s", Better::Neither),
        ("success", "", Better::Higher),
        ("retries", "", Better::Lower),
        ("p50", "µs", Better::Lower),
        ("p99", "µs", Better::Lower),
        ("fairness", "", Better::Higher),
        ("server CPU", "µs", Better::Lower),
    ] {
        table.column(Column::new(name, unit, better));
    }
    for cell in cells.iter().filter(|cell| cell.setting.method != Method::Blind) {
        let name = experiment.seat_name(cell.seat);
        let over = |figure: fn(&Sample) -> f64| estimate(cell, figure);
        let server = cell.samples.iter().map(|s| s.server_us).collect::<Option<Vec<f64>>>();
        let values = [
            over(Sample::goodput),
            over(|s| s.counts.attempts as f64 / s.elapsed_s),
            over(|s| s.counts.stored as f64 / s.counts.attempts.max(1) as f64),
            over(|s| s.counts.refused as f64 / s.counts.stored.max(1) as f64),
            over(|s| s.counts.latency.quantile_us(0.5)),
            over(|s| s.counts.latency.quantile_us(0.99)),
            over(|s| s.fairness),
            server.and_then(|values| Estimate::of(&values)),
        ];
        table.row(&name, labels(&cell.setting), values);
    }
    experiment.run.tables.push(table);
    blind(experiment, cells);
    compare(experiment, cells);
    plots(experiment, cells);
    histograms(experiment, cells)?;
    verdict(experiment, cells);
    Ok(())
}

const LABELS: &[&str] = &["method", "clients", "counters", "think µs", "retry"];

fn labels(setting: &Setting) -> [String; 5] {
    [
        setting.method.name().to_owned(),
        setting.clients.to_string(),
        setting.keys.to_string(),
        setting.think.as_micros().to_string(),
        setting.retry.name().to_owned(),
    ]
}

fn values(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
    cell.samples.iter().map(figure).collect()
}

fn estimate(cell: &Cell, figure: impl Fn(&Sample) -> f64) -> Option<Estimate> {
    Estimate::of(&values(cell, figure))
}

/// What the seed printed: clients, operations a second, its rate of "success".
const SEED: [(u32, f64, f64); 11] = [
    (2, 944.0, 1.0),
    (3, 1828.0, 0.953),
    (4, 2037.0, 0.880),
    (5, 2580.0, 0.813),
    (6, 2895.0, 0.732),
    (7, 3214.0, 0.694),
    (8, 3267.0, 0.680),
    (9, 3391.0, 0.674),
    (50, 3833.0, 0.465),
    (75, 4285.0, 0.452),
    (100, 4487.0, 0.439),
];

/// The blind method's table: what it believes, and what happened.
fn blind(experiment: &mut Experiment, cells: &[Cell]) {
    let blind: Vec<&Cell> = cells.iter().filter(|cell| cell.setting.method == Method::Blind).collect();
    if blind.is_empty() {
        return;
    }
    let title =
        "The seed's method (no token is sent; success is judged by reading again), beside what it did";
    let mut table = Table::new("blind", title, &["clients"]);
    for (name, unit) in [
        ("operations", "1/s"),
        ("believed success", ""),
        ("really counted", ""),
        ("lost updates", "1/s"),
        ("with tokens: success", ""),
        ("lost with tokens", "1/s"),
        ("seed: operations", "1/s"),
        ("seed: success", ""),
    ] {
        table.column(Column::new(name, unit, Better::Neither));
    }
    for cell in blind {
        let setting = cell.setting;
        let honest = cells.iter().find(|other| {
            other.seat == cell.seat
                && other.setting.method.is_optimistic()
                && Setting { method: setting.method, ..other.setting } == setting
        });
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let lost = |s: &Sample| s.counts.stored.saturating_sub(s.missing) as f64 / s.elapsed_s;
        let seed = SEED.iter().find(|row| row.0 == setting.clients);
        let row = [
            estimate(cell, Sample::goodput),
            estimate(cell, |s| share(s.counts.believed, s.counts.stored)),
            estimate(cell, |s| share(s.missing, s.counts.stored)),
            estimate(cell, lost),
            honest.and_then(|cell| estimate(cell, |s| share(s.counts.stored, s.counts.attempts))),
            honest.and_then(|cell| estimate(cell, lost)),
            seed.and_then(|row| Estimate::exact(row.1)),
            seed.and_then(|row| Estimate::exact(row.2)),
        ];
        table.row(&experiment.seat_name(cell.seat), [setting.clients.to_string()], row);
    }
    experiment.run.tables.push(table);
}

/// Goodput of each server over the first one's, and of the first one over itself.
fn compare(experiment: &mut Experiment, cells: &[Cell]) {
    let first: Vec<&Cell> =
        cells.iter().filter(|cell| cell.seat.contender == 0 && !cell.seat.again).collect();
    for base in first {
        let Setting { method, clients, keys, .. } = base.setting;
        if method == Method::Blind {
            continue;
        }
        let like = |cell: &&Cell| {
            let same = cell.setting.method == method
                || (cell.setting.method.is_optimistic()
                    && method.is_optimistic()
                    && cell.setting.method == Method::Watch);
            same && Setting { method, ..cell.setting } == base.setting
        };
        let others: Vec<(String, Vec<f64>, bool)> = cells
            .iter()
            .filter(|cell| cell.seat.contender > 0 || cell.seat.again)
            .filter(like)
            .map(|cell| {
                let words = format!(
                    "{}, goodput, {}, {clients} client(s), {keys} counter(s)",
                    cell.setting.method.name(),
                    cell.setting.retry.name()
                );
                let claim = format!(
                    "{} / {}, {words}",
                    experiment.seat_name(base.seat),
                    experiment.seat_name(cell.seat)
                );
                (claim, values(cell, Sample::goodput), cell.seat.again)
            })
            .collect();
        experiment.compare_with(&values(base, Sample::goodput), others);
    }
}

fn plots(experiment: &mut Experiment, cells: &[Cell]) {
    type Figure = fn(&Sample) -> f64;
    let wanted: [(&str, &str, &str, &str, Figure); 3] = [
        ("goodput", "Goodput against clients", "goodput", "1/s", Sample::goodput),
        ("success", "Share of attempts that succeed", "success", "", |s| {
            s.counts.stored as f64 / s.counts.attempts.max(1) as f64
        }),
        ("latency", "Latency of a logical operation, p99", "p99", "µs", |s| {
            s.counts.latency.quantile_us(0.99)
        }),
    ];
    for (id, title, label, unit, figure) in wanted {
        let mut plot = Plot::new(id, title, Kind::Lines);
        plot.x = Axis::new("clients", "", Scale::Log);
        plot.y = Axis::new(label, unit, if id == "latency" { Scale::Log } else { Scale::Linear });
        let drawn = |cell: &&Cell| !cell.seat.again && cell.setting.method != Method::Blind;
        for cell in cells.iter().filter(drawn) {
            let Setting { method, clients, keys, think, retry } = cell.setting;
            let mut name = format!("{} {}", experiment.seat_name(cell.seat), method.name());
            if keys > 1 {
                name += &format!(", {keys} counters");
            }
            if !think.is_zero() {
                name += &format!(", think {} µs", think.as_micros());
            }
            if method.is_optimistic() && experiment.options.full {
                name += &format!(", retry {}", retry.name());
            }
            let Some(y) = estimate(cell, figure) else { continue };
            let point = Point::estimated(f64::from(clients), &y);
            match plot.curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push(point),
                None => {
                    plot.curve(&name, [point]);
                }
            }
        }
        plot.caption = "Bands are 95 % intervals over rounds.".to_owned();
        experiment.run.plots.push(plot);
    }
}

fn histograms(experiment: &mut Experiment, cells: &[Cell]) -> Result<(), Error> {
    for cell in cells {
        let mut all = Latencies::default();
        cell.samples.iter().for_each(|sample| all.merge(&sample.counts.latency));
        let what = format!("logical operation, {}", labels(&cell.setting).join(" "));
        let name = experiment.seat_name(cell.seat);
        let packed = Latency::new(&name, &what, "closed loop, from the first read", &all.ns, all.over_range)?;
        experiment.run.histograms.push(packed);
    }
    Ok(())
}

fn verdict(experiment: &mut Experiment, cells: &[Cell]) {
    let mut parts = Vec::new();
    for (index, contender) in experiment.contenders.iter().enumerate() {
        let of = |optimistic: bool| {
            cells
                .iter()
                .filter(|cell| cell.seat.contender == index && !cell.seat.again)
                .filter(|cell| cell.setting.method.is_optimistic() == optimistic)
                .filter(|cell| optimistic || cell.setting.method.is_server_side())
                .filter_map(|cell| Some((cell.setting, estimate(cell, Sample::goodput)?.median)))
                .max_by(|a, b| a.1.total_cmp(&b.1))
        };
        if let Some((setting, best)) = of(true) {
            let mut words = format!(
                "{} does at most {best:.0} operations/s by {} (with {} client(s))",
                contender.name,
                setting.method.name(),
                setting.clients
            );
            if let Some((_, server)) = of(false) {
                words += &format!(" and {server:.0} when the server counts itself");
            }
            parts.push(words);
        }
    }
    let lost: u64 = cells
        .iter()
        .filter(|cell| cell.setting.method == Method::Blind)
        .flat_map(|cell| &cell.samples)
        .map(|sample| sample.counts.stored.saturating_sub(sample.missing))
        .sum();
    if lost > 0 {
        parts.push(format!("the seed's method lost {lost} updates, the others none"));
    }
    experiment.run.verdict = parts.join("; ") + ".";
}
