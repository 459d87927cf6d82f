//! Groups of bars, side by side or on top of each other.

use super::axis::Span;
use super::chart::{BOTTOM, LEFT, RIGHT, colour, title};
use super::svg::{Anchor, Svg};
use crate::results::{Kind, Plot, number};

/// Number of bars above which their values are shown under the pointer only.
const VALUES_MAX: usize = 28;
/// Width of a digit and height of a line of a value.
const LETTER: f64 = 7.0;
const LINE: f64 = 12.0;
/// How far slanted names are turned, in degrees: as far as neighbouring lines need in the room of a bar.
const SLANT: f64 = 32.0;
/// Letters of all group names together up to which names stand upright.
const LETTERS_MAX: usize = 100;

/// Draws all groups.
pub fn draw(svg: &mut Svg, plot: &Plot, y: &Span, colours: &[usize]) {
    let groups = plot.groups.len().max(1);
    let room = (RIGHT - LEFT) / groups as f64;
    let stacked = plot.kind == Kind::StackedBars;
    let bars = if stacked { 1 } else { plot.curves.len() };
    let width = (room * 0.8 / bars as f64).min(60.0);
    let base = y.at(0.0_f64.max(y.low)).unwrap_or(BOTTOM);
    let many = groups * bars > VALUES_MAX;
    let mut tops = vec![0.0; groups];
    // Where each group's last value stands, and how wide it is.
    let mut values: Vec<Option<(f64, f64)>> = vec![None; groups];
    for (at, (curve, &index)) in plot.curves.iter().zip(colours).enumerate() {
        for point in &curve.points {
            let group = (point.x.max(0.0) as usize).min(groups - 1);
            let middle = LEFT + room * (group as f64 + 0.5);
            let left = middle - width * bars as f64 / 2.0 + if stacked { 0.0 } else { width * at as f64 };
            let (from, to) = if stacked {
                let from = tops[group];
                tops[group] += point.y;
                (y.at(from).unwrap_or(base), y.at(tops[group]).unwrap_or(base))
            } else {
                (base, y.at(point.y).unwrap_or(base))
            };
            let name = plot.groups.get(group).map_or("", String::as_str);
            let words = title(plot, &curve.name, name, point.y, point.interval);
            svg.bar(&format!("bar {}", colour(index)), left + 1.0, width - 2.0, (from, to), &words);
            let centre = left + width / 2.0;
            if let (Some([low, high]), false) = (point.interval, stacked)
                && let (Some(low), Some(high)) = (y.at(low), y.at(high))
            {
                svg.line("whisker", (centre, low), (centre, high));
            }
            if !many && !stacked {
                let end = point.interval.and_then(|[_, high]| y.at(high)).unwrap_or(to).min(to);
                let value = number::short(point.y);
                let letters = LETTER * value.len() as f64;
                let mut above = if point.y < 0.0 { to + 13.0 } else { end - 4.0 };
                // Next to each other at one height they would overlap.
                if let Some((last, last_letters)) = values[group]
                    && (letters + last_letters) / 2.0 > width
                    && (above - last).abs() < LINE
                {
                    above = if point.y < 0.0 { last + LINE } else { last - LINE };
                }
                values[group] = Some((above, letters));
                svg.text("value", (centre, above), Anchor::Middle, &value);
            }
        }
    }
    names(svg, plot, room);
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
