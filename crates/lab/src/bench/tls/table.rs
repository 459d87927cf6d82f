//! The figures as a table of Markdown, and those that are above their bounds.

use std::fmt::Write;

use crate::stats::median;

/// The most that a figure of Larder may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// The figure is only shown.
    None,
    /// The figure is at most this.
    Most(f64),
    /// The figure is at most this above the figure of the row before.
    Above(f64),
}

impl Bound {
    /// The most for a server whose figure of the row before is `before`, if both are known.
    fn most(self, before: Option<f64>) -> Option<f64> {
        match self {
            Bound::None => None,
            Bound::Most(most) => Some(most),
            Bound::Above(more) => before.map(|before| before + more),
        }
    }

    fn words(self) -> String {
        match self {
            Bound::None => String::new(),
            Bound::Most(most) => format!("≤ {most}"),
            Bound::Above(more) => format!("≤ +{more}"),
        }
    }
}

/// A figure of all servers.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub name: String,
    pub unit: &'static str,
    pub bound: Bound,
    /// The values of the rounds for each server. NaN stands for a round without a value.
    pub values: Vec<Vec<f64>>,
}

impl Row {
    /// The median of a server's rounds; `None` if fewer than half of them have a value.
    fn median(&self, server: usize) -> Option<f64> {
        let all = &self.values[server];
        let known: Vec<f64> = all.iter().copied().filter(|value| value.is_finite()).collect();
        (!known.is_empty() && 2 * known.len() >= all.len()).then(|| median(&known))
    }
}

/// The table: a row for each figure, a column for each server.
pub(super) fn markdown(servers: &[String], rows: &[Row]) -> String {
    let mut out = format!("| | unit | {} | bound |\n|---|---|", servers.join(" | "));
    out.push_str(&"---:|".repeat(servers.len() + 1));
    for row in rows {
        let values = (0..servers.len()).map(|server| row.median(server).map_or("–".to_owned(), digits));
        let values: Vec<String> = values.collect();
        // Writing into a string cannot fail.
        let _ =
            write!(out, "\n| {} | {} | {} | {} |", row.name, row.unit, values.join(" | "), row.bound.words());
    }
    out
}

/// A value with three decimals below 1, two below 10, one below 100, else none.
fn digits(value: f64) -> String {
    let decimals = [1.0, 10.0, 100.0].iter().filter(|&&bound| value < bound).count();
    format!("{value:.decimals$}")
}

/// Larder's figures that are above their bounds, or are missing although they have a bound, in words.
pub(super) fn missed(rows: &[Row], is_larder: &[bool]) -> Vec<String> {
    let mut missed = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        for server in (0..is_larder.len()).filter(|&server| is_larder[server] && row.bound != Bound::None) {
            let before = at.checked_sub(1).and_then(|before| rows[before].median(server));
            let what = match (row.median(server), row.bound.most(before)) {
                (Some(value), Some(most)) if value <= most => continue,
                (Some(value), Some(most)) => format!("{} of at most {}", digits(value), digits(most)),
                (_, _) => "no figure".to_owned(),
            };
            missed.push(format!("{}, column {}: {what}", row.name, server + 1));
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f64 = f64::NAN;

    fn row(name: &str, bound: Bound, values: [&[f64]; 2]) -> Row {
        Row { name: name.to_owned(), unit: "µs", bound, values: values.map(<[f64]>::to_vec).into() }
    }

    #[test]
    fn the_table_has_medians_and_a_dash_where_fewer_than_half_of_the_rounds_have_a_value() {
        let rows = [
            row("plain", Bound::None, [&[0.25, 0.125, 0.5], &[4.0, 2.0]]),
            row("TLS", Bound::Above(1.5), [&[150.0, NONE], &[NONE, NONE, 30.0]]),
        ];
        let servers = ["larder 1".to_owned(), "redis 8".to_owned()];
        let table = "| | unit | larder 1 | redis 8 | bound |\n|---|---|---:|---:|---:|\n\
                     | plain | µs | 0.250 | 3.00 |  |\n\
                     | TLS | µs | 150 | – | ≤ +1.5 |";
        assert_eq!(markdown(&servers, &rows), table);
    }

    #[test]
    fn a_bound_is_missed_above_it_alone_and_where_there_is_no_figure() {
        let is_larder = [true, false];
        for (value, count) in [(9.99, 0), (10.0, 0), (10.01, 1)] {
            let most = [row("a", Bound::Most(10.0), [&[value], &[99.0]])];
            assert_eq!(missed(&most, &is_larder).len(), count, "{value}");
            let above = [
                row("a", Bound::None, [&[8.5], &[1.0]]),
                row("a, TLS", Bound::Above(1.5), [&[value], &[99.0]]),
            ];
            assert_eq!(missed(&above, &is_larder).len(), count, "{value}");
        }
        let unknown = [row("a", Bound::Most(10.0), [&[NONE], &[99.0]])];
        assert_eq!(missed(&unknown, &is_larder), ["a, column 1: no figure"]);
        let over = [row("a", Bound::Most(10.0), [&[12.0], &[99.0]])];
        assert_eq!(missed(&over, &is_larder), ["a, column 1: 12.0 of at most 10.0"]);
    }
}
