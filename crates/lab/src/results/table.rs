//! A table of figures: rows are a target under some condition, columns have units.

use serde::{Deserialize, Serialize};

use super::Estimate;

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// The figure only describes.
    #[default]
    Neither,
}

/// A column of figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The quantity.
    pub name: String,
    /// The unit: "µs", "B", "1/s"; empty for a count or a share.
    pub unit: String,
    /// Which way it is better.
    pub better: Better,
}

impl Column {
    /// A column.
    pub fn new(name: &str, unit: &str, better: Better) -> Column {
        Column { name: name.to_owned(), unit: unit.to_owned(), better }
    }

    /// Name and unit.
    pub fn heading(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{}, {}", self.name, self.unit) }
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server.
    pub target: String,
    /// The conditions: one for each of the table's labels.
    pub labels: Vec<String>,
    /// A figure for each column; `None` if it has none.
    pub values: Vec<Option<Estimate>>,
    /// A remark on this row.
    pub note: String,
}

/// Where a table is shown completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shown {
    /// In the terminal and on the page.
    #[default]
    Everywhere,
    /// Too long to be read as a whole: on the page it is folded, in the terminal only mentioned.
    Folded,
    /// Selected rows of a folded table.
    Digest,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its name among the tables of the run, the same in every run.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Names of the conditions.
    pub labels: Vec<String>,
    /// Columns of figures.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Where the whole table is shown.
    #[serde(default)]
    pub shown: Shown,
    /// Why a figure is missing, where one is.
    #[serde(default)]
    pub absent: String,
}

/// The text where there is no figure.
pub const ABSENT: &str = "–";

impl Table {
    /// A table without columns and rows.
    pub fn new(id: &str, title: &str, labels: &[&str]) -> Table {
        Table {
            id: id.to_owned(),
            title: title.to_owned(),
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            columns: Vec::new(),
            rows: Vec::new(),
            shown: Shown::Everywhere,
            absent: "not measured".to_owned(),
        }
    }

    /// Records why a figure is missing, if one is.
    pub fn absent(&mut self, why: &str) {
        why.clone_into(&mut self.absent);
    }

    /// The columns that have a figure in some row: a reader needs no others.
    pub fn filled(&self) -> Vec<usize> {
        let has = |&at: &usize| self.rows.is_empty() || self.rows.iter().any(|row| row.values[at].is_some());
        (0..self.columns.len()).filter(has).collect()
    }

    /// The line below the table: the meaning of [`ABSENT`], and the columns that were left out; none where every figure is there.
    pub fn legend(&self) -> Option<String> {
        let filled = self.filled();
        let gaps = self.rows.iter().any(|row| filled.iter().any(|&at| row.values[at].is_none()));
        let left_out: Vec<&str> = (0..self.columns.len())
            .filter(|at| !filled.contains(at))
            .map(|at| self.columns[at].name.as_str())
            .collect();
        let words = match (gaps, left_out.is_empty()) {
            (false, true) => return None,
            (true, true) => format!("{ABSENT}: {}", self.absent),
            (false, false) => format!("without {}: {}", left_out.join(", "), self.absent),
            (true, false) => format!("{ABSENT}, and no {}: {}", left_out.join(", "), self.absent),
        };
        Some(words)
    }

    /// Folds the table if it has more rows than `rows_max`, and returns a digest to show in its place: the rows whose index
    /// `chosen` accepts.
    pub fn digest(&mut self, rows_max: usize, chosen: impl Fn(usize) -> bool) -> Option<Table> {
        if self.rows.len() <= rows_max {
            return None;
        }
        let rows = self.rows.iter().enumerate().filter(|(at, _)| chosen(*at)).map(|(_, row)| row.clone());
        let digest = Table {
            id: format!("{}-digest", self.id),
            title: format!("{} (some of {} lines)", self.title, self.rows.len()),
            rows: rows.collect(),
            shown: Shown::Digest,
            ..self.clone()
        };
        self.shown = Shown::Folded;
        self.title = format!("{}: all lines", self.title);
        Some(digest)
    }

    /// Adds a column.
    pub fn column(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// Adds a row; returns it, for a remark.
    ///
    /// # Panics
    /// If the number of labels or values is not the table's.
    pub fn row<L: Into<String>>(
        &mut self,
        target: &str,
        labels: impl IntoIterator<Item = L>,
        values: impl IntoIterator<Item = Option<Estimate>>,
    ) -> &mut Row {
        let row = Row {
            target: target.to_owned(),
            labels: labels.into_iter().map(Into::into).collect(),
            values: values.into_iter().collect(),
            note: String::new(),
        };
        assert_eq!(row.labels.len(), self.labels.len(), "labels of {}", self.id);
        assert_eq!(row.values.len(), self.columns.len(), "values of {}", self.id);
        self.rows.push(row);
        self.rows.last_mut().expect("one was added")
    }

    /// The figure of a row in a column, by name.
    pub fn value(&self, target: &str, labels: &[&str], column: &str) -> Option<&Estimate> {
        let at = self.columns.iter().position(|have| have.name == column)?;
        let row = self.rows.iter().find(|row| row.target == target && row.labels == labels)?;
        row.values[at].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_not_there_is_a_dash_with_its_reason() {
        let mut table = Table::new("t", "Title", &[]);
        for name in ["rate", "CPU", "p99"] {
            table.column(Column::new(name, "", Better::Neither));
        }
        assert_eq!((table.filled(), table.legend()), (vec![0, 1, 2], None));
        table.absent("its process is not seen");
        let one = || Estimate::exact(1.0);
        table.row("a", [""; 0], [one(), one(), one()]);
        assert_eq!(table.legend(), None);
        table.row("b", [""; 0], [one(), None, one()]);
        assert_eq!(table.legend().unwrap(), "–: its process is not seen");
        table.rows.remove(0);
        assert_eq!(
            (table.filled(), table.legend().unwrap().as_str()),
            (vec![0, 2], "without CPU: its process is not seen")
        );
        table.row("c", [""; 0], [one(), None, None]);
        assert_eq!(table.legend().unwrap(), "–, and no CPU: its process is not seen");
    }

    #[test]
    fn a_long_table_is_folded_and_a_choice_of_its_lines_stands_in_its_place() {
        let mut table = Table::new("t", "Title", &["clients"]);
        table.column(Column::new("goodput", "1/s", Better::Higher));
        (0..10).for_each(|n| _ = table.row("larder", [n.to_string()], [Estimate::exact(f64::from(n))]));
        assert_eq!(table.digest(10, |_| true), None);
        let digest = table.digest(9, |at| at % 5 == 0).unwrap();
        assert_eq!((digest.rows.len(), digest.shown, digest.id.as_str()), (2, Shown::Digest, "t-digest"));
        assert_eq!((table.rows.len(), table.shown), (10, Shown::Folded));
        assert_eq!(digest.value("larder", &["5"], "goodput").unwrap().median, 5.0);
    }
}
