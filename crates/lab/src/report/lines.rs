//! Lines with bands, and areas on top of each other.

use super::axis::Span;
use super::chart::{BOTTOM, colour, title};
use super::svg::Svg;
use crate::results::{Dash, Kind, Plot, Point, number};

/// Number of points of a curve above which they have no dots.
const DOTS_MAX: usize = 40;

/// Draws all curves.
pub fn draw(svg: &mut Svg, plot: &Plot, x: &Span, y: &Span, colours: &[usize]) {
    if plot.kind == Kind::Stacked {
        areas(svg, plot, x, y, colours);
        return;
    }
    for (curve, &index) in plot.curves.iter().zip(colours) {
        band(svg, &curve.points, x, y, &colour(index));
    }
    for (curve, &index) in plot.curves.iter().zip(colours) {
        let at = |point: &Point| Some((x.at(point.x)?, y.at(point.y)?));
        let line: Vec<(f64, f64)> = curve.points.iter().filter_map(at).collect();
        let class = colour(index);
        let dashed = if curve.dash == Dash::Dashed { " dashed" } else { "" };
        if line.len() > 1 {
            svg.path(&format!("curve {class}{dashed}"), &line, false);
        }
        if curve.points.len() <= DOTS_MAX && (curve.dash == Dash::Solid || line.len() == 1) {
            for point in &curve.points {
                if let Some(place) = at(point) {
                    let x = format!("{} {}", number::text(point.x), plot.x.unit);
                    svg.dot(
                        &format!("dot {class}"),
                        place,
                        &title(plot, &curve.name, x.trim(), point.y, point.interval),
                    );
                }
            }
        }
    }
}

/// The band of a curve's points that have one.
fn band(svg: &mut Svg, points: &[Point], x: &Span, y: &Span, class: &str) {
    let edge = |side: usize| {
        points.iter().filter_map(move |point| Some((x.at(point.x)?, y.at(point.interval?[side])?)))
    };
    let mut outline: Vec<(f64, f64)> = edge(1).collect();
    let mut lower: Vec<(f64, f64)> = edge(0).collect();
    if outline.len() < 2 {
        return;
    }
    lower.reverse();
    outline.append(&mut lower);
    svg.path(&format!("band {class}"), &outline, true);
}

/// For each curve and each of its points, the place of its top in a stack of curves.
pub fn tops(plot: &Plot) -> Vec<Vec<f64>> {
    let mut below: Vec<f64> = Vec::new();
    plot.curves
        .iter()
        .map(|curve| {
            below.resize(below.len().max(curve.points.len()), 0.0);
            curve
                .points
                .iter()
                .zip(&mut below)
                .map(|(point, below)| {
                    *below += point.y;
                    *below
                })
                .collect()
        })
        .collect()
}

fn areas(svg: &mut Svg, plot: &Plot, x: &Span, y: &Span, colours: &[usize]) {
    let tops = tops(plot);
    for (at, (curve, &index)) in plot.curves.iter().zip(colours).enumerate() {
        let place = |(point, &top): (&Point, &f64)| Some((x.at(point.x)?, y.at(top)?));
        let mut outline: Vec<(f64, f64)> = curve.points.iter().zip(&tops[at]).filter_map(place).collect();
        if outline.is_empty() {
            continue;
        }
        let under = at.checked_sub(1).map(|under| &tops[under]);
        let floor = |(n, point): (usize, &Point)| {
            let height = under.and_then(|tops| tops.get(n)).map_or(Some(BOTTOM), |&top| y.at(top));
            Some((x.at(point.x)?, height?))
        };
        let mut lower: Vec<(f64, f64)> = curve.points.iter().enumerate().filter_map(floor).collect();
        lower.reverse();
        outline.append(&mut lower);
        // After the last colour the colours repeat, paler.
        let pale = if index >= super::chart::COLOURS { " pale" } else { "" };
        svg.path(&format!("area {}{pale}", colour(index)), &outline, true);
    }
}
