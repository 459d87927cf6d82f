//! A picture as data: curves, axes, units.

use serde::{Deserialize, Serialize};

/// How values are laid along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear, from 0 unless the axis has a low end.
    #[default]
    Linear,
    /// By magnitude. Values of 0 and below have no place and are not drawn.
    Log,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// The unit.
    pub unit: String,
    /// The scale.
    pub scale: Scale,
    /// The low end; `None`: from the data.
    pub low: Option<f64>,
    /// The high end; `None`: from the data.
    pub high: Option<f64>,
}

impl Axis {
    /// An axis whose ends come from the data.
    pub fn new(label: &str, unit: &str, scale: Scale) -> Axis {
        Axis { label: label.to_owned(), unit: unit.to_owned(), scale, low: None, high: None }
    }

    /// The same axis with fixed ends.
    pub fn between(self, low: f64, high: f64) -> Axis {
        Axis { low: Some(low), high: Some(high), ..self }
    }

    /// Label and unit, and that it is logarithmic.
    pub fn heading(&self) -> String {
        let log = (self.scale == Scale::Log).then_some("log");
        let words: Vec<&str> =
            Some(self.unit.as_str()).filter(|unit| !unit.is_empty()).into_iter().chain(log).collect();
        match words.is_empty() {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, words.join(", ")),
        }
    }
}

/// How curves are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A line each, with a band where points have an interval.
    Lines,
    /// Areas on top of each other, in the order of the curves, which all have the same x.
    Stacked,
    /// Groups of bars: a group for each of [`Plot::groups`], a bar for each curve, x the group's index.
    Bars,
    /// As bars, with the curves on top of each other.
    StackedBars,
}

/// The style of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dash {
    /// Measured.
    #[default]
    Solid,
    /// A model, an oracle or a limit.
    Dashed,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The horizontal coordinate.
    pub x: f64,
    /// The vertical coordinate.
    pub y: f64,
    /// The range of y.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl Point {
    /// A point that is known exactly.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, interval: None }
    }

    /// A point that was estimated.
    pub fn estimated(x: f64, y: &super::Estimate) -> Point {
        Point { x, y: y.median, interval: y.interval }
    }
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// How it looks.
    pub dash: Dash,
    /// Its points, x ascending.
    pub points: Vec<Point>,
}

/// A vertical line at some x: an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The place of the event.
    pub x: f64,
    /// The event.
    pub text: String,
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Its name among the pictures of the run.
    pub id: String,
    /// Its title.
    pub title: String,
    /// How the curves are drawn.
    pub kind: Kind,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Names of the groups of bars.
    pub groups: Vec<String>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// The events.
    pub marks: Vec<Mark>,
    /// How to read it.
    pub caption: String,
}

impl Plot {
    /// An empty picture.
    pub fn new(id: &str, title: &str, kind: Kind) -> Plot {
        Plot {
            id: id.to_owned(),
            title: title.to_owned(),
            kind,
            x: Axis::default(),
            y: Axis::default(),
            groups: Vec::new(),
            curves: Vec::new(),
            marks: Vec::new(),
            caption: String::new(),
        }
    }

    /// Adds a curve; points that are no numbers are left out. Returns it, for its look.
    pub fn curve(&mut self, name: &str, points: impl IntoIterator<Item = Point>) -> &mut Curve {
        let points = points.into_iter().filter(|point| point.x.is_finite() && point.y.is_finite()).collect();
        self.curves.push(Curve { name: name.to_owned(), dash: Dash::Solid, points });
        self.curves.last_mut().expect("one was added")
    }

    /// Adds an event at `x`.
    pub fn mark(&mut self, x: f64, text: &str) {
        self.marks.push(Mark { x, text: text.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_says_its_unit_and_that_it_is_logarithmic() {
        let heading = |unit, scale| Axis::new("latency", unit, scale).heading();
        assert_eq!(heading("", Scale::Linear), "latency");
        assert_eq!(heading("µs", Scale::Linear), "latency (µs)");
        assert_eq!(heading("", Scale::Log), "latency (log)");
        assert_eq!(heading("µs", Scale::Log), "latency (µs, log)");
    }
}
