//! The experiment's tables, plots and verdict.

use std::time::Duration;

use super::{Cell, Method, Retry, Sample, Setting};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::{Axis, Better, Column, Estimate, Kind, Latency, Plot, Point, Scale, Table, number};
use crate::tally::Latencies;

/// Adds the tables, plots and notes of the run.
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
    let shown = Settings::of(cells);
    let rows: Vec<&Cell> = cells.iter().filter(|cell| cell.setting.method != Method::Blind).collect();
    if let Some(digest) = table.digest(ROWS_MAX, |at| shown.has(&rows[at].setting)) {
        experiment.run.tables.push(digest);
    }
    let folded = table;
    blind(experiment, cells, &shown);
    experiment.run.tables.push(folded);
    compare(experiment, cells, &shown);
    plots(experiment, cells, &shown);
    histograms(experiment, cells, &shown)?;
    verdict(experiment, cells);
    Ok(())
}

/// A table of at most this many lines is shown whole.
const ROWS_MAX: usize = 48;
/// Numbers of clients that are shown where there are many: alone, few, many.
const SHOWN_CLIENTS: [u32; 5] = [1, 2, 8, 50, 100];

/// The settings that are shown of a large sweep: few numbers of clients, and the smallest of everything else.
struct Settings {
    clients: Vec<u32>,
    keys: u32,
    think: Duration,
    retry: Retry,
}

impl Settings {
    fn of(cells: &[Cell]) -> Settings {
        let all = || cells.iter().map(|cell| cell.setting);
        let mut clients: Vec<u32> = all().map(|setting| setting.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        if clients.len() > SHOWN_CLIENTS.len() {
            let ends = [clients[0], clients[clients.len() - 1]];
            clients.retain(|count| SHOWN_CLIENTS.contains(count) || ends.contains(count));
        }
        let retries: Vec<Retry> =
            all().filter(|setting| setting.method.is_optimistic()).map(|setting| setting.retry).collect();
        Settings {
            clients,
            keys: all().map(|setting| setting.keys).min().unwrap_or(1),
            think: all().map(|setting| setting.think).min().unwrap_or_default(),
            retry: match retries.contains(&Retry::AtOnce) {
                true => Retry::AtOnce,
                false => retries.first().copied().unwrap_or(Retry::AtOnce),
            },
        }
    }

    fn most(&self) -> u32 {
        self.clients.last().copied().unwrap_or(1)
    }

    /// Whether all but the number of clients is the smallest; for a method that is never refused any retry is.
    fn plain(&self, setting: &Setting) -> bool {
        setting.keys == self.keys && setting.think == self.think && self.retries_so(setting)
    }

    fn retries_so(&self, setting: &Setting) -> bool {
        setting.retry == self.retry || !setting.method.is_optimistic()
    }

    fn has(&self, setting: &Setting) -> bool {
        self.plain(setting) && self.clients.contains(&setting.clients)
    }
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

/// The table of the original article: clients, operations a second, its rate of "success".
const ARTICLE: [(u32, f64, f64); 11] = [
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

/// The blind method's table: the updates that it believes in, and those that were done.
fn blind(experiment: &mut Experiment, cells: &[Cell], shown: &Settings) {
    // Like the original article's: one counter, no time to think. The other settings are in the checks and in --json.
    let blind: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.setting.method == Method::Blind && shown.plain(&cell.setting))
        .collect();
    if blind.is_empty() {
        return;
    }
    let title = "The original article's method (docs/lab/cas.md: no token is sent, success is judged by reading again), beside what it did";
    let mut table = Table::new("blind", title, &["clients"]);
    table.absent("the article has no such number of clients, or no method with tokens was asked for");
    for (name, unit) in [
        ("operations", "1/s"),
        ("believed success", ""),
        ("really counted", ""),
        ("lost updates", "1/s"),
        ("with tokens: success", ""),
        ("lost with tokens", "1/s"),
        ("article: operations", "1/s"),
        ("article: success", ""),
    ] {
        table.column(Column::new(name, unit, Better::Neither));
    }
    for cell in blind {
        let setting = cell.setting;
        let honest = cells.iter().find(|other| {
            other.seat == cell.seat
                && other.setting.method.is_optimistic()
                && shown.plain(&other.setting)
                && other.setting.clients == setting.clients
        });
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let lost = |s: &Sample| s.counts.stored.saturating_sub(s.missing) as f64 / s.elapsed_s;
        let article = ARTICLE.iter().find(|row| row.0 == setting.clients);
        let row = [
            estimate(cell, Sample::goodput),
            estimate(cell, |s| share(s.counts.believed, s.counts.stored)),
            estimate(cell, |s| share(s.missing, s.counts.stored)),
            estimate(cell, lost),
            honest.and_then(|cell| estimate(cell, |s| share(s.counts.stored, s.counts.attempts))),
            honest.and_then(|cell| estimate(cell, lost)),
            article.and_then(|row| Estimate::exact(row.1)),
            article.and_then(|row| Estimate::exact(row.2)),
        ];
        table.row(&experiment.seat_name(cell.seat), [setting.clients.to_string()], row);
    }
    experiment.run.tables.push(table);
}

/// `1 client`, `2 clients`.
fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Goodput of each server over the first one's, and of the first one over itself.
fn compare(experiment: &mut Experiment, cells: &[Cell], shown: &Settings) {
    let first: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.seat.contender == 0 && !cell.seat.again && shown.has(&cell.setting))
        .collect();
    for base in first {
        let Setting { method, clients, .. } = base.setting;
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
                let words = format!("{}, goodput, {}", cell.setting.method.name(), count(clients, "client"));
                let claim = format!(
                    "{} / {}, {words}",
                    experiment.seat_name(base.seat),
                    experiment.seat_name(cell.seat)
                );
                (claim, values(cell, Sample::goodput), cell.seat.again)
            })
            .collect();
        experiment.compare_with(Better::Higher, &values(base, Sample::goodput), others);
    }
}

type Figure = fn(&Sample) -> f64;

fn plots(experiment: &mut Experiment, cells: &[Cell], shown: &Settings) {
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
        draw(experiment, &mut plot, cells, figure, |setting| {
            shown.plain(setting).then_some(f64::from(setting.clients))
        });
        push_readable(experiment, plot);
    }
    let most = shown.most();
    let people = count(most, "client");
    let mut keys: Vec<u32> = cells.iter().map(|cell| cell.setting.keys).collect();
    keys.dedup();
    if keys.len() > 1 {
        let mut plot = Plot::new("keys", &format!("Goodput against counters, {people}"), Kind::Lines);
        plot.x = Axis::new("counters", "", Scale::Log);
        plot.y = Axis::new("goodput", "1/s", Scale::Linear);
        draw(experiment, &mut plot, cells, Sample::goodput, |setting| {
            let like = Setting { keys: shown.keys, ..*setting };
            (setting.clients == most && shown.plain(&like)).then_some(f64::from(setting.keys))
        });
        push_readable(experiment, plot);
    }
    if cells.iter().any(|cell| cell.setting.think != shown.think) {
        let mut plot = Plot::new("think", &format!("Goodput against think time, {people}"), Kind::Lines);
        plot.x = Axis::new("time between read and write", "µs", Scale::Linear);
        plot.y = Axis::new("goodput", "1/s", Scale::Linear);
        draw(experiment, &mut plot, cells, Sample::goodput, |setting| {
            let like = Setting { think: shown.think, ..*setting };
            let drawn = setting.clients == most && !setting.method.is_server_side() && shown.plain(&like);
            drawn.then_some(setting.think.as_micros() as f64)
        });
        experiment.run.plots.push(plot);
    }
    let retries = [Retry::Never, Retry::AtOnce, Retry::Backoff];
    let optimistic = |setting: &Setting| setting.method.is_optimistic();
    if cells.iter().any(|cell| optimistic(&cell.setting) && cell.setting.retry != shown.retry) {
        let title = format!("Goodput by what follows a refusal, {people}");
        let mut plot = Plot::new("retry", &title, Kind::Bars);
        plot.groups = retries.map(|retry| retry.name().to_owned()).to_vec();
        plot.x = Axis::new("after a refusal", "", Scale::Linear);
        plot.y = Axis::new("goodput", "1/s", Scale::Linear);
        draw(experiment, &mut plot, cells, Sample::goodput, |setting| {
            let like = Setting { retry: shown.retry, ..*setting };
            let at = retries.iter().position(|&retry| retry == setting.retry)?;
            (setting.clients == most && optimistic(setting) && shown.plain(&like)).then_some(at as f64)
        });
        experiment.run.plots.push(plot);
    }
}

/// Most curves that a reader can tell apart in one picture.
const CURVES_MAX: usize = 8;

/// Adds a picture. If it has more curves than there are colours, it becomes two: optimistic methods, and all others.
fn push_readable(experiment: &mut Experiment, plot: Plot) {
    if plot.curves.len() <= CURVES_MAX {
        experiment.run.plots.push(plot);
        return;
    }
    let counts = |name: &str| [Method::Decr, Method::Ma].iter().any(|method| name.ends_with(method.name()));
    for (id, words, server_side) in
        [("tokens", "with tokens", false), ("server", "counted by the server", true)]
    {
        let mut half = plot.clone();
        half.curves.retain(|curve| counts(&curve.name) == server_side);
        (half.id, half.title) = (format!("{}-{id}", plot.id), format!("{}, {words}", plot.title));
        experiment.run.plots.push(half);
    }
}

/// Draws a curve for each server and method through the settings that have a place `across`.
fn draw(
    experiment: &Experiment,
    plot: &mut Plot,
    cells: &[Cell],
    figure: Figure,
    across: impl Fn(&Setting) -> Option<f64>,
) {
    let drawn = |cell: &&Cell| !cell.seat.again && cell.setting.method != Method::Blind;
    for cell in cells.iter().filter(drawn) {
        let name = format!("{} {}", experiment.seat_name(cell.seat), cell.setting.method.name());
        let (Some(x), Some(y)) = (across(&cell.setting), estimate(cell, figure)) else { continue };
        let point = Point::estimated(x, &y);
        match plot.curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => {
                plot.curve(&name, [point]);
            }
        }
    }
}

fn histograms(experiment: &mut Experiment, cells: &[Cell], shown: &Settings) -> Result<(), Error> {
    // The page draws the first.
    let (first, rest): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().partition(|cell| shown.has(&cell.setting) && cell.setting.method != Method::Blind);
    for cell in first.into_iter().chain(rest) {
        let mut all = Latencies::default();
        cell.samples.iter().for_each(|sample| all.merge(&sample.counts.latency));
        let Setting { method, clients, keys, think, retry } = cell.setting;
        let mut what = format!("{}, {}", method.name(), count(clients, "client"));
        if keys > 1 {
            what += &format!(", {}", count(keys, "counter"));
        }
        if !think.is_zero() {
            what += &format!(", {} µs to think", think.as_micros());
        }
        if method.is_optimistic() && retry != shown.retry {
            what += &format!(", {}", retry.name());
        }
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
                "{} does at most {} operations/s by {} (with {})",
                contender.name,
                number::text(best.round()),
                setting.method.name(),
                count(setting.clients, "client")
            );
            if let Some((_, server)) = of(false) {
                words += &format!(" and {} when the server counts itself", number::text(server.round()));
            }
            parts.push(words);
        } else if let Some((_, server)) = of(false) {
            let server = number::text(server.round());
            parts.push(format!("{} does at most {server} operations/s, counted by itself", contender.name));
        }
    }
    let lost: u64 = cells
        .iter()
        .filter(|cell| cell.setting.method == Method::Blind)
        .flat_map(|cell| &cell.samples)
        .map(|sample| sample.counts.stored.saturating_sub(sample.missing))
        .sum();
    if lost > 0 {
        parts.push(format!(
            "the original article's method lost {} updates, the others none",
            number::text(lost as f64)
        ));
    }
    experiment.run.verdict = parts.join("; ") + ".";
}
