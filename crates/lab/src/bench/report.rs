//! Figures as tables, in a form that can be pasted into a note.

use comfy_table::{CellAlignment, Table, presets};

use super::Sample;
use super::figures::Figure;
use crate::peers::Kind;
use crate::stats::{Ratio, median, min};

/// Which of several visits with one load to one kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The measurement that counts.
    First,
    /// The second measurement of the same server, which shows the noise.
    Again,
    /// The older binary of `--against`.
    Older,
}

impl Role {
    fn suffix(self) -> &'static str {
        match self {
            Role::First => "",
            Role::Again => " again",
            Role::Older => " older",
        }
    }
}

/// One load on one server, over all rounds.
#[derive(Debug)]
pub struct Cell {
    /// The load.
    pub figure: Figure,
    /// The server.
    pub kind: Kind,
    /// Whether this is the second measurement of a server.
    pub role: Role,
    /// The result of each round.
    pub samples: Vec<Sample>,
}

impl Cell {
    fn of(&self, field: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(field).collect()
    }

    /// The server and the load.
    pub fn name(&self) -> String {
        format!("{} under {}", self.kind.name(), self.figure.id)
    }

    /// More is written than fits, and not to Larder: memcached refuses some writes while its upkeep makes room. Refused writes
    /// are counted, and measured like others.
    pub fn may_refuse(&self) -> bool {
        self.figure.data.overfills() && !self.kind.is_larder()
    }

    /// CPU time per unit, round by round.
    pub fn cpu_us(&self) -> Vec<f64> {
        self.of(|sample| sample.cpu_us)
    }
}

/// A target and its result.
#[derive(Debug)]
pub struct Verdict {
    /// The figure's id.
    pub id: String,
    /// The two sides of the ratio.
    pub claim: String,
    /// The measured ratio; `None` if the target is no ratio.
    pub ratio: Option<Ratio>,
    /// The ratio of the best rounds of both, which disturbances of the machine reach last.
    pub of_minima: Option<f64>,
    /// The measured figure, in words.
    pub measured: String,
    /// The target, in words.
    pub target: String,
    /// Whether the target is met.
    pub outcome: Outcome,
}

/// The outcome in a row of the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target is met.
    Pass,
    /// The target is missed.
    Miss,
    /// No target: the same server twice.
    Noise,
    /// No target: shown for comparison.
    Shown,
}

impl Outcome {
    /// Whether a target is met.
    pub fn of(met: bool) -> Outcome {
        if met { Outcome::Pass } else { Outcome::Miss }
    }

    fn word(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Miss => "FAIL",
            Outcome::Noise => "noise",
            Outcome::Shown => "",
        }
    }
}

impl Verdict {
    /// A verdict on the ratio of two cells.
    pub fn on_ratio(
        id: &str,
        claim: String,
        a: &Cell,
        b: &Cell,
        judge: impl FnOnce(f64) -> Outcome,
    ) -> Verdict {
        let ratio = Ratio::paired(&a.cpu_us(), &b.cpu_us());
        Verdict {
            id: id.to_owned(),
            claim,
            ratio: Some(ratio),
            of_minima: Some(min(&a.cpu_us()) / min(&b.cpu_us())),
            measured: self::ratio(ratio.median),
            target: String::new(),
            outcome: judge(ratio.median),
        }
    }
}

/// A ratio as it is usually written: 2.31, or 1/64.2.
pub fn ratio(value: f64) -> String {
    if value < 0.5 { format!("1/{:.1}", 1.0 / value) } else { format!("{value:.3}") }
}

fn table(header: &[&str], right: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The CPU time of each server for each load.
pub fn measurements(cells: &[Cell]) -> Table {
    let header =
        ["figure", "load", "server", "CPU µs", "min", "user", "per s", "p50 µs", "p99 µs", "generator"];
    let mut table = table(&header, 3..10);
    for cell in cells {
        let unit = |values: Vec<f64>| median(&values);
        let per = if cell.figure.keys_per_request > 1 { "/key" } else { "" };
        table.add_row([
            cell.figure.id.to_owned(),
            cell.figure.title(),
            format!("{}{}", cell.kind.name(), cell.role.suffix()),
            format!("{:.4}{per}", unit(cell.cpu_us())),
            format!("{:.4}", min(&cell.cpu_us())),
            format!("{:.4}", unit(cell.of(|s| s.user_us))),
            format!("{:.0}", unit(cell.of(|s| s.rate))),
            format!("{:.0}", unit(cell.of(|s| s.p50_us))),
            format!("{:.0}", unit(cell.of(|s| s.p99_us))),
            format!("{:.0} %", 100.0 * unit(cell.of(|s| s.generator_load))),
        ]);
    }
    table
}

/// Why there are no figures: in one visit a thread waited for a core for more than `wait_max` percent of the time. It names the
/// visit with the longest wait.
pub fn disturbed(cells: &[Cell], wait_max: f64) -> Option<String> {
    let visits = cells.iter().flat_map(|cell| cell.samples.iter().map(move |sample| (cell, sample.waited)));
    let (cell, waited) = visits.max_by(|(_, a), (_, b)| a.most().total_cmp(&b.most()))?;
    let words = || format!("{}: {}; {wait_max} % are allowed", cell.name(), waited.words());
    (100.0 * waited.most() > wait_max).then(words)
}

/// Targets and verdicts.
pub fn verdicts(verdicts: &[Verdict]) -> Table {
    let mut table = table(&["figure", "claim", "measured", "95 %", "of minima", "target", ""], 2..6);
    for verdict in verdicts {
        let interval = verdict
            .ratio
            .filter(|r| r.low.is_finite())
            .map_or(String::new(), |r| format!("{} … {}", ratio(r.low), ratio(r.high)));
        table.add_row([
            verdict.id.clone(),
            verdict.claim.clone(),
            verdict.measured.clone(),
            interval,
            verdict.of_minima.map_or(String::new(), ratio),
            verdict.target.clone(),
            verdict.outcome.word().to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::figures::FIGURES;
    use super::*;
    use crate::starvation::Waited;

    #[test]
    fn figures_of_a_server_or_generator_that_waited_are_none() {
        let cell = |waits: &[(f64, f64)]| {
            let sample = |&(server, generator): &(f64, f64)| Sample {
                waited: Waited { server: Some(server), generator },
                cpu_us: 1.0,
                user_us: 1.0,
                rate: 1.0,
                p50_us: 1.0,
                p99_us: 1.0,
                generator_load: 0.5,
                refused: 0,
            };
            let samples = waits.iter().map(sample).collect();
            Cell { figure: FIGURES[0], kind: Kind::Larder, role: Role::First, samples }
        };
        assert_eq!(disturbed(&[cell(&[(0.01, 0.02)]), cell(&[])], 5.0), None);
        let why = disturbed(&[cell(&[(0.01, 0.02), (0.5, 0.0)]), cell(&[(0.1, 0.2)])], 5.0).unwrap();
        let said = "larder under get: the server waited for its core 50.0 % of the time, the generator 0.0 %; 5 % are allowed";
        assert_eq!(why, said);
        assert!(disturbed(&[cell(&[(0.01, 0.3)])], 5.0).is_some());
    }

    #[test]
    fn small_ratios_are_said_as_fractions() {
        assert_eq!(ratio(1.0 / 60.0), "1/60.0");
        assert_eq!(ratio(1.034), "1.034");
    }
}
