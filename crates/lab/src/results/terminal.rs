//! A run as text for a terminal: why it is not valid, if it is not; tables, the generator's ceiling, the verdict.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table as Grid, presets};

use super::{ABSENT, Run, Shown, Table, environment, number, of_time};

/// Why a run is not valid, and what to do about it; empty for a valid run. It is printed before everything else.
pub fn reasons(run: &Run) -> String {
    let mut out = String::new();
    for (at, check) in run.failed().enumerate() {
        if at == 0 {
            out.push_str("NOT VALID: the figures below are no result.\n");
        }
        // Writing into a string cannot fail.
        let _ = writeln!(out, "  FAILED {}: {}", check.claim, check.found);
        let _ = writeln!(out, "    {}", of_time::remedy(&check.claim));
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// The whole run, after its [`reasons`].
pub fn text(run: &Run) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{}\n{}", run.title, run.environment.line());
    let _ = writeln!(out, "{}: {}", run.started, environment::quoted(&run.command));
    for target in &run.targets {
        let _ = writeln!(out, "{} {} at {}", target.name, target.version, target.address);
        for note in &target.notes {
            let _ = writeln!(out, "  {note}");
        }
    }
    for table in run.tables.iter().filter(|table| table.shown != Shown::Folded) {
        let _ = writeln!(out, "\n{}\n{}", table.title, grid(table));
        if let Some(legend) = table.legend() {
            let _ = writeln!(out, "{legend}");
        }
    }
    for table in run.tables.iter().filter(|table| table.shown == Shown::Folded) {
        let _ = writeln!(out, "\n{} ({}) are in --report and --json.", table.title, table.rows.len());
    }
    if !run.comparisons.is_empty() {
        let _ = writeln!(out, "\n{}", comparisons(run));
    }
    for ceiling in &run.ceilings {
        let _ = writeln!(
            out,
            "generator alone (null server), {}: {} requests/s at {:.0} % of its cores",
            ceiling.load,
            number::text(ceiling.per_s.round()),
            100.0 * ceiling.busy
        );
    }
    for note in &run.notes {
        let _ = writeln!(out, "{note}");
    }
    let failed = run.failed().count();
    let _ = writeln!(out, "checks: {} held, {failed} failed", run.checks.len() - failed);
    let verdict = if failed > 0 { "Result not valid: the reasons stand at the top." } else { &run.verdict };
    let _ = writeln!(out, "\n{verdict}");
    out
}

/// A table of figures, without columns that have none.
pub fn grid(table: &Table) -> Grid {
    let notes = table.rows.iter().any(|row| !row.note.is_empty());
    let mut header = vec!["server".to_owned()];
    header.extend(table.labels.iter().cloned());
    let filled = table.filled();
    header.extend(filled.iter().map(|&at| table.columns[at].heading()));
    if notes {
        header.push(String::new());
    }
    let figures = 1 + table.labels.len()..1 + table.labels.len() + filled.len();
    let mut grid = ruled(header, figures);
    for row in &table.rows {
        let mut cells = vec![row.target.clone()];
        cells.extend(row.labels.iter().cloned());
        let value = |&at: &usize| row.values[at].as_ref().map_or(ABSENT.to_owned(), number::estimate);
        cells.extend(filled.iter().map(value));
        if notes {
            cells.push(row.note.clone());
        }
        grid.add_row(cells);
    }
    grid
}

fn comparisons(run: &Run) -> Grid {
    let header = ["ratio", "median", "95 %", ""].map(str::to_owned).to_vec();
    let mut grid = ruled(header, 1..3);
    for comparison in &run.comparisons {
        let [median, interval] = comparison.figures();
        grid.add_row([comparison.claim.clone(), median, interval, comparison.said()]);
    }
    grid
}

/// An empty table whose columns in `right` align to the right.
pub(super) fn ruled(header: Vec<String>, right: std::ops::Range<usize>) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for column in right {
        if let Some(column) = grid.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_was_found_is_said() {
        let run = super::super::tests::sample();
        let text = text(&run);
        for said in
            ["goodput, 1/s", "104 (", "without p99", "12,000,000 requests/s", "1 held, 0 failed", "It works."]
        {
            assert!(text.contains(said), "{said:?} is missing in\n{text}");
        }
    }

    #[test]
    fn a_failed_check_takes_the_verdict_away_and_stands_first_with_what_to_do() {
        let mut run = super::super::tests::sample();
        assert_eq!(reasons(&run), "");
        run.check("nothing was lost", Err("2 were".to_owned()));
        run.check(of_time::CORES, Err("larder: 38 %".to_owned()));
        let (reasons, text) = (reasons(&run), text(&run));
        assert!(reasons.starts_with("NOT VALID"), "{reasons}");
        for said in [
            "FAILED nothing was lost: 2 were\n    no other machine",
            "38 %\n    other programs",
            "--wait-max",
        ] {
            assert!(reasons.contains(said), "{said:?} is missing in\n{reasons}");
        }
        assert!(text.contains("Result not valid") && !text.contains("It works."));
    }

    #[test]
    fn no_cell_is_blank_and_no_column_empty() {
        let mut run = super::super::tests::sample();
        run.tables[0].absent("the server's process is not seen");
        let said = text(&run);
        assert!(
            !said.contains("p99, µs") && said.contains("\nwithout p99: the server's process is not seen\n"),
            "{said}"
        );
        let p99 = super::super::Estimate::exact(9.0);
        run.tables[0].row("memcached", ["3"], [None, p99]);
        let said = text(&run);
        assert!(said.contains("p99, µs") && said.contains("– |"), "{said}");
        assert!(said.contains("\n–: the server's process is not seen\n"), "{said}");
    }

    #[test]
    fn a_server_measured_twice_is_called_noise() {
        let mut run = super::super::tests::sample();
        run.comparisons[0].control = true;
        let text = text(&run);
        assert!(
            text.contains("noise: one server, measured twice") && !text.contains("the same twice"),
            "{text}"
        );
    }
}
