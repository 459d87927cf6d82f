//! Two runs of one experiment, side by side: `larder lab compare a.json b.json`.
//!
//! Rows are matched by table, target and condition. The runs were made at different times, so their rounds are not paired:
//! intervals are wider than within one run, and a difference inside of them is "not shown".

use std::fmt::Write;

use super::{ABSENT, Better, Column, Estimate, Outcome, Row, Run, Shown, number, terminal};
use crate::stats::chance_alike;

/// One figure in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Title of its table.
    pub table: String,
    /// Target and condition.
    pub row: String,
    /// The figure.
    pub column: Column,
    /// In the first run.
    pub before: Estimate,
    /// In the second.
    pub after: Estimate,
    /// Second over first.
    pub ratio: Option<Estimate>,
    /// The outcome of the ratio.
    pub outcome: Outcome,
}

impl Change {
    /// "better", "worse", or the reason for neither.
    pub fn word(&self) -> &'static str {
        let Some(ratio) = &self.ratio else { return "no ratio" };
        match (self.outcome, self.column.better) {
            (outcome @ (Outcome::Noise | Outcome::Unknown), _) | (outcome, Better::Neither) => outcome.word(),
            (Outcome::Differs, Better::Higher) if ratio.median > 1.0 => "better",
            (Outcome::Differs, Better::Lower) if ratio.median < 1.0 => "better",
            (Outcome::Differs, Better::Higher | Better::Lower) => "worse",
        }
    }
}

/// The chance that any figure of two equal runs is called different.
const CHANCE_MAX: f64 = 0.05;

/// Every figure that both runs have. One differs when its rounds are ranked so unevenly (Mann and Whitney) that, over all
/// figures together (Bonferroni), chance does so in one of twenty comparisons at most, and by more than any server differed from
/// itself in either run.
pub fn changes(a: &Run, b: &Run) -> Vec<Change> {
    let mut changes: Vec<(Change, Option<f64>)> = Vec::new();
    // A digest has only rows of its table.
    for table in a.tables.iter().filter(|table| table.shown != Shown::Digest) {
        let Some(other) = b.tables.iter().find(|other| other.id == table.id) else { continue };
        for row in &table.rows {
            let labels: Vec<&str> = row.labels.iter().map(String::as_str).collect();
            for (column, before) in table.columns.iter().zip(&row.values) {
                let after = other.value(&row.target, &labels, &column.name);
                let (Some(before), Some(after)) = (before, after) else { continue };
                let ratio = Estimate::ratio_of_runs(after, before);
                let ranked = before.rounds.len().min(after.rounds.len()) > 1;
                let chance = ranked.then(|| chance_alike(&before.rounds, &after.rounds));
                let change = Change {
                    table: table.title.clone(),
                    row: row_name(row),
                    column: column.clone(),
                    before: before.clone(),
                    after: after.clone(),
                    outcome: Outcome::Unknown,
                    ratio,
                };
                changes.push((change, chance));
            }
        }
    }
    let allowed = CHANCE_MAX / changes.len().max(1) as f64;
    let noise = noise(a).max(noise(b));
    for (change, chance) in &mut changes {
        let (n, m) = (change.before.rounds.len(), change.after.rounds.len());
        // Samples of these sizes that do not touch at all.
        let least = 2.0 / (1..=n).map(|i| (m + i) as f64 / i as f64).product::<f64>();
        let (Some(chance), Some(ratio)) = (*chance, &change.ratio) else { continue };
        change.outcome = match () {
            () if least > allowed => Outcome::Unknown,
            () if chance <= allowed && ratio.median.ln().abs() > noise => Outcome::Differs,
            () => Outcome::Noise,
        };
    }
    changes.into_iter().map(|(change, _)| change).collect()
}

/// The largest difference of a server to itself in a run, as the logarithm of a ratio.
fn noise(run: &Run) -> f64 {
    let controls = run.comparisons.iter().filter(|comparison| comparison.control);
    let ratios = controls.filter_map(|control| control.ratio.as_ref());
    ratios.map(|ratio| ratio.median.ln().abs()).filter(|log| log.is_finite()).fold(0.0, f64::max)
}

/// Settings and versions that differ between the two runs: then the ratios compare more than one thing.
pub fn differences(a: &Run, b: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            found.push(format!("{what}: {a:?} and {b:?}"));
        }
    };
    differ("experiment", &a.experiment, &b.experiment);
    differ("machine", &a.environment.line(), &b.environment.line());
    let absent = String::from("absent");
    let names: std::collections::BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    for name in names {
        let of = |run: &Run| run.settings.get(name).unwrap_or(&absent).clone();
        differ(name, &of(a), &of(b));
    }
    for target in &a.targets {
        if let Some(other) = b.targets.iter().find(|other| other.name == target.name) {
            differ(&format!("version of {}", target.name), &target.version, &other.version);
        }
    }
    for (name, run) in [("first", a), ("second", b)] {
        if run.failed().count() > 0 {
            found.push(format!("the {name} run is not valid: its checks failed"));
        }
    }
    found
}

/// Tables, rows and columns that only one run has: their figures are not compared.
pub fn unmatched(a: &Run, b: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for (name, run, other) in [("first", a, b), ("second", b, a)] {
        for table in run.tables.iter().filter(|table| table.shown != Shown::Digest) {
            let Some(same) = other.tables.iter().find(|other| other.id == table.id) else {
                found.push(format!("table {:?}, in the {name} run alone", table.title));
                continue;
            };
            let alone = |row: &&Row| {
                !same.rows.iter().any(|have| (&have.target, &have.labels) == (&row.target, &row.labels))
            };
            let rows: Vec<&Row> = table.rows.iter().filter(alone).collect();
            if let Some(first) = rows.first() {
                let first = row_name(first);
                let count = rows.len();
                let title = &table.title;
                found.push(format!("{count} line(s) of table {title:?}, in the {name} run alone: {first} …"));
            }
            let columns = table
                .columns
                .iter()
                .filter(|column| !same.columns.iter().any(|have| have.name == column.name));
            for column in columns {
                found.push(format!("{} of table {:?}, in the {name} run alone", column.name, table.title));
            }
        }
    }
    found
}

/// Target and condition of a row.
fn row_name(row: &Row) -> String {
    let words = std::iter::once(&row.target).chain(&row.labels);
    words.map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// The comparison as text.
pub fn text(a: &Run, b: &Run) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{}\nfirst   {}\nsecond  {}", a.title, a.started, b.started);
    if a == b {
        let _ = writeln!(out, "both are the same run: nothing is compared");
    }
    for difference in differences(a, b) {
        let _ = writeln!(out, "not the same: {difference}");
    }
    for alone in unmatched(a, b) {
        let _ = writeln!(out, "not compared: {alone}");
    }
    let changes = changes(a, b);
    let header = ["row", "figure", "first", "second", "second/first", "95 %", ""].map(str::to_owned);
    let mut title = None;
    let mut grid = None;
    for change in &changes {
        if title != Some(&change.table) {
            if let Some(grid) = grid.take() {
                let _ = writeln!(out, "{grid}");
            }
            let _ = writeln!(out, "\n{}", change.table);
            title = Some(&change.table);
        }
        let ratio = change.ratio.as_ref();
        let interval = ratio.and_then(|ratio| ratio.interval);
        grid.get_or_insert_with(|| terminal::ruled(header.to_vec(), 2..6)).add_row([
            change.row.clone(),
            change.column.heading(),
            number::text(change.before.median),
            number::text(change.after.median),
            ratio.map_or(ABSENT.to_owned(), |ratio| number::ratio(ratio.median)),
            interval.map_or(ABSENT.to_owned(), |[low, high]| {
                format!("{} … {}", number::ratio(low), number::ratio(high))
            }),
            change.word().to_owned(),
        ]);
    }
    if let Some(grid) = grid {
        let _ = writeln!(out, "{grid}");
    }
    let count = |word: &str| changes.iter().filter(|change| change.word() == word).count();
    let _ = writeln!(
        out,
        "\nOf {} figures {} are better, {} worse, {} not shown, {} of too few rounds to tell.",
        changes.len(),
        count("better"),
        count("worse"),
        count(Outcome::Noise.word()),
        count(Outcome::Unknown.word())
    );
    let _ = writeln!(
        out,
        "In all of them together chance finds a difference in one of 20 comparisons of equal runs at most; each must also be\n\
         more than {:.1} %, the most that a server differed from itself.",
        100.0 * (noise(a).max(noise(b)).exp() - 1.0)
    );
    out
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand_distr::{Distribution, LogNormal};

    use super::super::{Comparison, Table};
    use super::*;

    fn faster(run: &Run, factor: f64) -> Run {
        let mut run = run.clone();
        for value in run.tables.iter_mut().flat_map(|table| &mut table.rows).flat_map(|row| &mut row.values) {
            if let Some(have) = value {
                *value = Estimate::of(&have.rounds.iter().map(|x| factor * x).collect::<Vec<_>>());
            }
        }
        run
    }

    #[test]
    fn a_run_beside_itself_is_noise_and_one_twice_as_fast_is_better() {
        let run = super::super::tests::sample();
        assert_eq!(changes(&run, &run)[0].word(), "not shown");
        assert_eq!(changes(&run, &faster(&run, 2.0))[0].word(), "better");
        assert_eq!(changes(&run, &faster(&run, 0.5))[0].word(), "worse");
        let mut lower = run.clone();
        lower.tables[0].columns[0].better = Better::Lower;
        assert_eq!(changes(&lower, &faster(&lower, 2.0))[0].word(), "worse");
        assert!(text(&run, &run).contains("both are the same run"));
        assert!(text(&run, &run).contains("Of 1 figures 0 are better, 0 worse, 1 not shown, 0 of"));
    }

    #[test]
    fn of_many_figures_of_equal_runs_none_is_called_different() {
        let run = |seed: u64| {
            let mut rng = StdRng::seed_from_u64(seed);
            let noise = LogNormal::new(0.0, 0.3).unwrap();
            let mut run = super::super::tests::sample();
            run.tables[0].rows.clear();
            for row in 0..120 {
                let rounds: Vec<f64> = (0..8).map(|_| noise.sample(&mut rng)).collect();
                run.tables[0].row("larder", [row.to_string()], [Estimate::of(&rounds), None]);
            }
            run
        };
        let told = |a: &Run, b: &Run| {
            changes(a, b).iter().filter(|change| change.outcome == Outcome::Differs).count()
        };
        let pairs: Vec<(Run, Run)> = (0..20).map(|seed| (run(2 * seed), run(2 * seed + 1))).collect();
        let all: usize = pairs.iter().map(|(a, b)| told(a, b)).sum();
        assert!(all <= 4, "{all} of 2400");
        assert_eq!(told(&pairs[0].0, &faster(&pairs[0].1, 100.0)), 120);
        // If a server differed from itself as much, this is no difference.
        let mut noisy = pairs[0].0.clone();
        let ratio = Estimate::exact(200.0);
        let claim = "larder / larder again".to_owned();
        noisy.comparisons.push(Comparison {
            claim,
            ratio,
            better: Better::Neither,
            control: true,
            outcome: Outcome::Noise,
            why: String::new(),
        });
        assert_eq!(told(&noisy, &faster(&pairs[0].1, 100.0)), 0);
    }

    #[test]
    fn what_one_run_has_alone_is_named() {
        let run = super::super::tests::sample();
        assert!(unmatched(&run, &run).is_empty());
        let mut other = run.clone();
        other.tables[0].columns[1].name = "p98".to_owned();
        let mut more = run.tables[0].rows[0].clone();
        more.labels[0] = "50".to_owned();
        other.tables[0].rows.push(more);
        other.tables.push(Table::new("latency", "Latency", &[]));
        let expected = [
            "p99 of table \"Goodput\", in the first run alone",
            "1 line(s) of table \"Goodput\", in the second run alone: larder 50 …",
            "p98 of table \"Goodput\", in the second run alone",
            "table \"Latency\", in the second run alone",
        ];
        assert_eq!(unmatched(&run, &other), expected);
        let text = text(&run, &other);
        assert!(expected.iter().all(|alone| text.contains(&format!("not compared: {alone}\n"))), "{text}");
    }

    #[test]
    fn what_else_changed_is_named() {
        let run = super::super::tests::sample();
        let mut other = run.clone();
        other.set("seconds", 2);
        other.targets[0].version = "2".to_owned();
        other.check("counts agree", Err("no".to_owned()));
        let found = differences(&run, &other);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("seconds") && found[1].contains("version of larder"));
        assert!(differences(&run, &run).is_empty());
    }
}
