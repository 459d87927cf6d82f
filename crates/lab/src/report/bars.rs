//! Groups of bars, side by side or on top of each other.

use super::axis::Span;
use super::chart::{BOTTOM, LEFT, RIGHT, colour, title};
use super::svg::{Anchor, Svg};
use crate::results::{Kind, Plot, number};

/// Least height of a bar: lower ones could not be seen beside high ones. Only a bar of 0 has none.
const BAR_MIN: f64 = 2.0;
/// Number of bars above which values without room are shown under the pointer only.
const VALUES_MAX: usize = 28;
/// Width of a digit and height of a line of a value.
const LETTER: f64 = 7.0;
const LINE: f64 = 12.0;
/// How far slanted names are turned, in degrees: as far as neighbouring lines need in the room of a bar.
const SLANT: f64 = 32.0;
/// Letters of all group names together up to which names stand upright.
const LETTERS_MAX: usize = 100;

/// A part of the picture, from left to right and from top to bottom.
#[derive(Clone, Copy, Debug)]
struct Area {
    x: (f64, f64),
    y: (f64, f64),
}

impl Area {
    /// The area between two heights, given in any order.
    fn between(x: (f64, f64), a: f64, b: f64) -> Area {
        Area { x, y: (a.min(b), a.max(b)) }
    }

    fn overlaps(&self, other: &Area) -> bool {
        let meet = |a: (f64, f64), b: (f64, f64)| a.0 < b.1 && b.0 < a.1;
        meet(self.x, other.x) && meet(self.y, other.y)
    }
}

/// The value of a bar, as text beyond its end.
#[derive(Debug)]
struct Value {
    size: f64,
    text: String,
    /// The middle and the baseline of the text.
    at: (f64, f64),
}

impl Value {
    fn letters(&self) -> f64 {
        LETTER * self.text.len() as f64
    }

    fn area(&self) -> Area {
        let ((centre, baseline), half) = (self.at, self.letters() / 2.0);
        Area { x: (centre - half, centre + half), y: (baseline - LINE, baseline) }
    }

    fn write(&self, svg: &mut Svg) {
        svg.text("value", self.at, Anchor::Middle, &self.text);
    }
}

/// Draws all groups.
pub fn draw(svg: &mut Svg, plot: &Plot, y: &Span, colours: &[usize]) {
    let groups = plot.groups.len().max(1);
    let room = (RIGHT - LEFT) / groups as f64;
    let stacked = plot.kind == Kind::StackedBars;
    let bars = if stacked { 1 } else { plot.curves.len() };
    let width = (room * 0.8 / bars as f64).min(60.0);
    let base = y.at(0.0_f64.max(y.low)).unwrap_or(BOTTOM);
    let many = groups * bars > VALUES_MAX;
    // Each stack's sum, and where its last part ends: behind parts of the least height that is beyond the place of the sum.
    let mut tops = vec![(0.0, base); groups];
    // Where each group's last value stands, and how wide it is.
    let mut values: Vec<Option<(f64, f64)>> = vec![None; groups];
    // Of many bars, the places of bars and whiskers, and values that need room between them.
    let (mut taken, mut waiting) = (Vec::new(), Vec::new());
    for (at, (curve, &index)) in plot.curves.iter().zip(colours).enumerate() {
        for point in &curve.points {
            let group = (point.x.max(0.0) as usize).min(groups - 1);
            let middle = LEFT + room * (group as f64 + 0.5);
            let left = middle - width * bars as f64 / 2.0 + if stacked { 0.0 } else { width * at as f64 };
            let (from, to) = if stacked {
                let (sum, from) = (tops[group].0 + point.y, tops[group].1);
                let to = y.at(sum).map_or(from, |to| end(from, to.min(from), point.y));
                tops[group] = (sum, to);
                (from, to)
            } else {
                (base, y.at(point.y).map_or(base, |to| end(base, to, point.y)))
            };
            let name = plot.groups.get(group).map_or("", String::as_str);
            let words = title(plot, &curve.name, name, point.y, point.interval);
            let sides = (left + 1.0, left + width - 1.0);
            svg.bar(&format!("bar {}", colour(index)), sides.0, width - 2.0, (from, to), &words);
            if stacked {
                continue;
            }
            let centre = left + width / 2.0;
            taken.push(Area::between(sides, from, to));
            // The text stands beyond the bar and its whisker.
            let mut beyond = to;
            if let Some([low, high]) = point.interval
                && let (Some(low), Some(high)) = (y.at(low), y.at(high))
            {
                svg.line("whisker", (centre, low), (centre, high));
                taken.push(Area::between((centre, centre), low, high));
                beyond = if point.y < 0.0 { to.max(low) } else { to.min(high) };
            }
            let baseline = if point.y < 0.0 { beyond + 13.0 } else { beyond - 4.0 };
            let mut value =
                Value { size: point.y.abs(), text: number::short(point.y), at: (centre, baseline) };
            if many {
                waiting.push(value);
                continue;
            }
            // Next to each other at one height they would overlap.
            if let Some((last, last_letters)) = values[group]
                && (value.letters() + last_letters) / 2.0 > width
                && (value.at.1 - last).abs() < LINE
            {
                value.at.1 = if point.y < 0.0 { last + LINE } else { last - LINE };
            }
            values[group] = Some((value.at.1, value.letters()));
            value.write(svg);
        }
    }
    write_where_room_is(svg, taken, waiting);
    names(svg, plot, room);
}

/// The end of a bar from `from` on, whose value lies at `to`: at least the least height away, unless the value is 0.
fn end(from: f64, to: f64, value: f64) -> f64 {
    if value > 0.0 {
        to.min(from - BAR_MIN)
    } else if value < 0.0 {
        to.max(from + BAR_MIN)
    } else {
        to
    }
}

/// Writes the values that overlap nothing that is drawn, the largest first.
fn write_where_room_is(svg: &mut Svg, mut taken: Vec<Area>, mut values: Vec<Value>) {
    values.sort_by(|a, b| b.size.total_cmp(&a.size));
    for value in values {
        let area = value.area();
        if !taken.iter().any(|other| area.overlaps(other)) {
            value.write(svg);
            taken.push(area);
        }
    }
}

/// How far below the axis group names reach where they are slanted and leave no room for its heading.
pub fn slanted_depth(plot: &Plot) -> Option<f64> {
    let letters = plot.groups.iter().map(|name| name.chars().count());
    let slanted = letters.clone().sum::<usize>() > LETTERS_MAX;
    slanted.then(|| 24.0 + LETTER * letters.max().unwrap_or(0) as f64 * SLANT.to_radians().sin())
}

/// Group names below the axis, slanted when they are long.
fn names(svg: &mut Svg, plot: &Plot, room: f64) {
    let slanted = slanted_depth(plot).is_some();
    for (group, name) in plot.groups.iter().enumerate() {
        let middle = LEFT + room * (group as f64 + 0.5);
        if slanted {
            svg.turned("tick", (middle + 4.0, BOTTOM + 14.0), -SLANT, Anchor::End, name);
        } else {
            svg.text("tick", (middle, BOTTOM + 19.0), Anchor::Middle, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::{TOP, heights};
    use crate::results::{Axis, Point, Scale};

    /// The picture of a group for each value of the first curve.
    fn drawn(kind: Kind, scale: Scale, curves: &[Vec<f64>]) -> String {
        let mut plot = Plot::new("p", "p", kind);
        plot.y = Axis::new("", "", scale);
        plot.groups = (0..curves[0].len()).map(|at| at.to_string()).collect();
        for (at, values) in curves.iter().enumerate() {
            let points = values.iter().zip(0..).map(|(&y, x)| Point::new(f64::from(x), y));
            plot.curve(&at.to_string(), points);
        }
        let y = Span::new(&plot.y, &heights(&plot), true, BOTTOM, TOP);
        let mut svg = Svg::default();
        draw(&mut svg, &plot, &y, &(0..curves.len()).collect::<Vec<_>>());
        svg.text
    }

    fn bar_heights(svg: &str) -> Vec<&str> {
        svg.split(r#" height=""#).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    fn values(svg: &str) -> Vec<&str> {
        let texts = svg.split(r#"<text class="value""#).skip(1);
        texts.filter_map(|rest| rest.split(['>', '<']).nth(1)).collect()
    }

    #[test]
    fn a_bar_of_little_is_seen_and_one_of_nothing_has_no_height() {
        let heights = |kind, scale, curves: &[f64]| {
            let curves: Vec<Vec<f64>> = curves.iter().map(|&value| vec![value]).collect();
            bar_heights(&drawn(kind, scale, &curves)).join(" ")
        };
        assert_eq!(heights(Kind::Bars, Scale::Linear, &[12_000.0, 20.0, 0.0]), "286.0 2.0 0.0");
        assert_eq!(heights(Kind::Bars, Scale::Linear, &[100.0, -0.1, 0.0]), "238.3 2.0 0.0");
        // The low end of a logarithmic axis is a value, too, and 0 has no place on it.
        assert_eq!(heights(Kind::Bars, Scale::Log, &[1_000.0, 10.0, 0.0]), "286.0 2.0 0.0");
        // The next part of a stack that is high enough ends where the sum is.
        let parts = [1_000.0, 0.1, 0.1, 500.0, 0.0];
        assert_eq!(heights(Kind::StackedBars, Scale::Linear, &parts), "143.0 2.0 2.0 67.5 0.0");
    }

    #[test]
    fn of_many_bars_those_with_room_have_their_values_and_the_largest_first() {
        // Sets that were lost: eight clients, six faults.
        let mut lost = vec![vec![0.0; 6]; 8];
        (lost[3][0], lost[3][2], lost[5][2], lost[7][5]) = (20.0, 4_384.0, 4_384.0, 12_000.0);
        let svg = drawn(Kind::Bars, Scale::Linear, &lost);
        let (bars, values) = (bar_heights(&svg), values(&svg));
        assert_eq!((bars.len(), bars.iter().filter(|height| **height == "0.0").count()), (48, 44));
        // Two clients that lost as many stand near each other.
        assert_eq!(values[..3], ["12k", "4384", "20"]);
        assert_eq!(values[3..], ["0"; 44]);
    }

    #[test]
    fn few_bars_have_all_their_values() {
        for (bars, shown) in [(VALUES_MAX - 1, 27), (VALUES_MAX, 28), (VALUES_MAX + 1, 15)] {
            let svg = drawn(Kind::Bars, Scale::Linear, &[vec![1_234.0; bars]]);
            assert_eq!((bar_heights(&svg).len(), values(&svg).len()), (bars, shown));
        }
    }
}
