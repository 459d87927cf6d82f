//! Metrics in Prometheus' text format, 0.0.4: families, each with its help, its kind and its series.
//!
//! ```text
//! # HELP larder_spans_moved_total Blocks of 64 KiB that were drained …
//! # TYPE larder_spans_moved_total counter
//! larder_spans_moved_total 17
//! ```
//!
//! A counter never falls: to a scraper a counter that falls is a server that was started anew. Workers write while others sum,
//! and a difference of two sums may be less than it was a moment ago; [`LastValues`] remembers what each counter was.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};

use super::figures::table::{Kind, Unit};

/// Most series of one answer. A family that would go beyond is left out.
pub const SERIES_MAX: usize = 8_000;

/// The counters' values of the last answer.
#[derive(Debug, Default)]
pub struct LastValues {
    hashes: RandomState,
    /// Values by the hash of a series' name and labels, at most as many as there are series.
    counters: HashMap<u64, u64>,
}

impl LastValues {
    /// The value of a counter, never less than in the last answer.
    fn at_least(&mut self, series: &str, value: u64) -> u64 {
        let told = self.counters.entry(self.hashes.hash_one(series)).or_default();
        *told = value.max(*told);
        *told
    }
}

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// A number.
    Whole(u64),
    /// A number that is written as it is. Its metric is called a counter, but may fall.
    Exact(u64),
    /// Microseconds, written as seconds.
    Micros(u64),
    /// A share, written with two decimals.
    Ratio(f64),
}

impl Sample {
    /// A figure's value.
    pub fn of(unit: Unit, value: u64) -> Sample {
        match unit {
            Unit::Micros => Sample::Micros(value),
            Unit::Count | Unit::Bytes | Unit::Seconds | Unit::Switch => Sample::Whole(value),
        }
    }
}

/// An answer that is being written.
#[derive(Debug)]
pub struct Exposition<'a> {
    told: &'a mut LastValues,
    text: String,
    series: usize,
    series_max: usize,
    truncated: bool,
}

impl<'a> Exposition<'a> {
    /// An empty answer.
    pub fn new(told: &'a mut LastValues) -> Exposition<'a> {
        Exposition { told, text: String::new(), series: 0, series_max: SERIES_MAX, truncated: false }
    }

    /// Writes a family, whose series `fill` puts. A family without series is left out.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str, fill: impl FnOnce(&mut Family<'_>)) {
        let (start, series) = (self.text.len(), self.series);
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        // Writing into a string cannot fail.
        let _ = write!(self.text, "\n# TYPE {name} {}\n", kind.name());
        let mut family =
            Family { name, kind, text: &mut self.text, series: &mut self.series, told: self.told };
        fill(&mut family);
        if self.series > self.series_max {
            self.truncated = true;
        }
        if self.series == series || self.series > self.series_max {
            self.text.truncate(start);
            self.series = series;
        }
    }

    /// Writes a family of one series.
    pub fn one(&mut self, name: &str, kind: Kind, help: &str, value: Sample) {
        self.family(name, kind, help, |family| family.put(&[], value));
    }

    /// Ends the answer.
    pub fn finish(mut self) -> String {
        let truncated = Sample::Whole(self.truncated.into());
        self.series_max += 1;
        self.one("larder_exposition_truncated", Kind::Gauge, TRUNCATED, truncated);
        self.text
    }
}

/// The help of that metric.
pub const TRUNCATED: &str = "Whether families were left out of this answer, because it has too many series.";

/// A family that is being written.
#[derive(Debug)]
pub struct Family<'a> {
    name: &'a str,
    kind: Kind,
    text: &'a mut String,
    series: &'a mut usize,
    told: &'a mut LastValues,
}

impl Family<'_> {
    /// Writes a series with these labels.
    pub fn put(&mut self, labels: &[(&str, &str)], value: Sample) {
        self.put_part("", labels, value);
    }

    /// Writes the series of a histogram. `parts` has, from the smallest on, the upper bound of each part in seconds and the
    /// number of values in it; `beyond` is the number beyond all parts, `sum` the sum of all values.
    pub fn put_histogram(
        &mut self,
        labels: &[(&str, &str)],
        parts: impl Iterator<Item = (f64, u64)>,
        beyond: u64,
        sum: Sample,
    ) {
        let mut count = 0;
        let last = (f64::INFINITY, beyond);
        for (bound, of) in parts.chain([last]) {
            count += of;
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            self.put_part("_bucket", &[labels, &[("le", &bound)]].concat(), Sample::Whole(count));
        }
        self.put_part("_sum", labels, sum);
        self.put_part("_count", labels, Sample::Whole(count));
    }

    fn put_part(&mut self, part: &str, labels: &[(&str, &str)], value: Sample) {
        let start = self.text.len();
        self.text.push_str(self.name);
        self.text.push_str(part);
        for (at, (label, of)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(self.text, of, true);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let value = match (self.kind, value) {
            (Kind::Counter | Kind::Histogram, Sample::Whole(n)) => {
                Sample::Whole(self.told.at_least(&self.text[start..], n))
            }
            (Kind::Counter | Kind::Histogram, Sample::Micros(n)) => {
                Sample::Micros(self.told.at_least(&self.text[start..], n))
            }
            (Kind::Counter | Kind::Gauge | Kind::Histogram, value) => value,
        };
        let _ = match value {
            Sample::Whole(n) | Sample::Exact(n) => writeln!(self.text, " {n}"),
            Sample::Micros(us) => writeln!(self.text, " {}.{:06}", us / 1_000_000, us % 1_000_000),
            Sample::Ratio(ratio) => writeln!(self.text, " {ratio:.2}"),
        };
        *self.series += 1;
    }
}

/// Writes the text of a help, or of a label's value, on one line.
fn escape(to: &mut String, text: &str, quotes: bool) {
    for letter in text.chars() {
        match letter {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if quotes => to.push_str("\\\""),
            letter => to.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_their_head_and_labels_are_escaped() {
        let mut told = LastValues::default();
        let mut page = Exposition::new(&mut told);
        page.one("a_total", Kind::Counter, "What\nit \\ \"says\".", Sample::Micros(1_500_000));
        page.family("b", Kind::Gauge, "B.", |family| {
            family.put(&[("x", "1"), ("y", "a\"b\\c\nd")], Sample::Ratio(1.006));
        });
        page.family("none", Kind::Gauge, "Nothing.", |_| {});
        assert_eq!(
            page.finish(),
            "# HELP a_total What\\nit \\\\ \"says\".\n# TYPE a_total counter\na_total 1.500000\n\
             # HELP b B.\n# TYPE b gauge\nb{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 1.01\n\
             # HELP larder_exposition_truncated Whether families were left out of this answer, because it has too \
             many series.\n# TYPE larder_exposition_truncated gauge\nlarder_exposition_truncated 0\n"
        );
    }

    #[test]
    fn a_histogram_counts_what_is_up_to_each_bound() {
        let mut told = LastValues::default();
        let mut page = Exposition::new(&mut told);
        page.family("h_seconds", Kind::Histogram, "H.", |family| {
            let parts = [(0.000_000_064, 2), (1.0, 0), (4.0, 3)];
            family.put_histogram(&[("x", "y")], parts.into_iter(), 1, Sample::Micros(17));
        });
        let text = page.finish();
        let lines: Vec<&str> = text.lines().take(8).collect();
        let wanted = [
            "# HELP h_seconds H.",
            "# TYPE h_seconds histogram",
            "h_seconds_bucket{x=\"y\",le=\"0.000000064\"} 2",
            "h_seconds_bucket{x=\"y\",le=\"1\"} 2",
            "h_seconds_bucket{x=\"y\",le=\"4\"} 5",
            "h_seconds_bucket{x=\"y\",le=\"+Inf\"} 6",
            "h_seconds_sum{x=\"y\"} 0.000017",
            "h_seconds_count{x=\"y\"} 6",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn a_counter_does_not_fall_and_a_gauge_may() {
        let mut told = LastValues::default();
        let mut say = |n| {
            let mut page = Exposition::new(&mut told);
            page.one("c_total", Kind::Counter, "C.", Sample::Whole(n));
            page.one("g", Kind::Gauge, "G.", Sample::Whole(n));
            let text = page.finish();
            let of = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|value| value.trim().parse::<u64>().ok()).expect("a value")
            };
            (of("c_total "), of("g "))
        };
        assert_eq!([say(5), say(4), say(6)], [(5, 5), (5, 4), (6, 6)]);
    }

    #[test]
    fn what_goes_beyond_the_most_series_is_left_out_whole_and_told() {
        for (count, holds) in [(SERIES_MAX - 1, true), (SERIES_MAX, true), (SERIES_MAX + 1, false)] {
            let mut told = LastValues::default();
            let mut page = Exposition::new(&mut told);
            page.family("many", Kind::Gauge, "Many.", |family| {
                for n in 0..count {
                    family.put(&[("n", &n.to_string())], Sample::Whole(1));
                }
            });
            let text = page.finish();
            assert_eq!(text.contains("\nmany{"), holds, "{count}");
            let truncated = format!("\nlarder_exposition_truncated {}\n", u8::from(!holds));
            assert!(format!("\n{text}").ends_with(&truncated), "{count}");
        }
    }
}
