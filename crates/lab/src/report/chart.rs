//! A picture: frame, axes, legend, and the curves between them.

use std::fmt::Write;

use super::axis::{self, Span};
use super::svg::{Anchor, Svg, escape};
use super::{bars, lines};
use crate::results::{Curve, Dash, Kind, Plot, Point, Run, Scale, number};

/// Size of a picture and the room around its plot, in its own units.
pub const WIDTH: f64 = 760.0;
pub const HEIGHT: f64 = 360.0;
pub const LEFT: f64 = 68.0;
pub const RIGHT: f64 = WIDTH - 18.0;
pub const TOP: f64 = 22.0;
pub const BOTTOM: f64 = HEIGHT - 52.0;
/// Number of colours of the style sheet.
pub const COLOURS: usize = 8;

/// A picture with its title, legend and caption, as a `<figure>`.
pub fn figure(run: &Run, plot: &Plot) -> String {
    let colours = colours(run, plot);
    let mut svg = Svg::default();
    let drawn = plot.curves.iter().any(|curve| !curve.points.is_empty());
    let mut data = String::new();
    if !drawn {
        svg.text(
            "empty",
            ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0),
            Anchor::Middle,
            "nothing was measured",
        );
    } else {
        let bars = matches!(plot.kind, Kind::Bars | Kind::StackedBars);
        let y = Span::new(&plot.y, &heights(plot), true, BOTTOM, TOP);
        grid(&mut svg, plot, &y);
        if bars {
            bars::draw(&mut svg, plot, &y, &colours);
        } else {
            let all_x: Vec<f64> =
                plot.curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
            let x = Span::new(&plot.x, &all_x, false, LEFT, RIGHT);
            ticks(&mut svg, &x);
            lines::draw(&mut svg, plot, &x, &y, &colours);
            marks(&mut svg, plot, &x);
            let scale = if x.scale == Scale::Log { "log" } else { "linear" };
            let _ = write!(data, r#" data-low="{}" data-high="{}" data-scale="{scale}""#, x.low, x.high);
        }
    }
    let height = match bars::slanted_depth(plot) {
        Some(depth) => HEIGHT.max(BOTTOM + depth),
        None => {
            svg.text("axis", ((LEFT + RIGHT) / 2.0, HEIGHT - 6.0), Anchor::Middle, &plot.x.heading());
            HEIGHT
        }
    };
    svg.turned("axis", (14.0, (TOP + BOTTOM) / 2.0), -90.0, Anchor::Middle, &plot.y.heading());
    format!(
        "<figure id=\"plot-{id}\" data-plot=\"{id}\"{data}>\n<figcaption><h3>{title}</h3>{legend}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">{body}</svg>\n<p>{caption}</p>\n</figure>\n",
        id = escape(&plot.id),
        title = escape(&plot.title),
        legend = legend(plot, &colours),
        body = svg.text,
        caption = escape(&caption(plot)),
    )
}

/// How to read the picture, and the meaning of its intervals, if there are any.
fn caption(plot: &Plot) -> String {
    let is_wide = |point: &Point| point.interval.is_some_and(|[low, high]| low < high);
    let any = |curve: &Curve| curve.points.iter().any(is_wide);
    // A band takes two points.
    let is_band =
        |curve: &Curve| any(curve) && curve.points.iter().filter(|at| at.interval.is_some()).count() > 1;
    let intervals = match plot.kind {
        Kind::Lines if plot.curves.iter().any(is_band) => "Bands are 95 % intervals over rounds.",
        Kind::Bars if plot.curves.iter().any(any) => "Whiskers are 95 % intervals over rounds.",
        Kind::Lines | Kind::Bars | Kind::Stacked | Kind::StackedBars => "",
    };
    [plot.caption.as_str(), intervals].join(" ").trim().to_owned()
}

/// All values that the vertical axis must include.
pub fn heights(plot: &Plot) -> Vec<f64> {
    match plot.kind {
        Kind::Lines | Kind::Bars => {
            let point = |point: &crate::results::Point| {
                let [low, high] = point.interval.unwrap_or([point.y, point.y]);
                [point.y, low, high]
            };
            plot.curves.iter().flat_map(|curve| &curve.points).flat_map(point).collect()
        }
        Kind::Stacked => lines::tops(plot).into_iter().flatten().collect(),
        Kind::StackedBars => {
            let points = || plot.curves.iter().flat_map(|curve| &curve.points);
            points().map(|at| points().filter(|point| point.x == at.x).map(|point| point.y).sum()).collect()
        }
    }
}

/// The colour of each curve: a target keeps its colour through all pictures of a run.
fn colours(run: &Run, plot: &Plot) -> Vec<usize> {
    let of = |name: &str| {
        let belongs = |target: &str| name == target || name.starts_with(&format!("{target} "));
        // "larder again" is a target of its own, and not a variant of "larder".
        let mine = run.targets.iter().enumerate().filter(|(_, target)| belongs(&target.name));
        mine.max_by_key(|(_, target)| target.name.len()).map(|(index, _)| index)
    };
    let by_target: Option<Vec<usize>> = plot.curves.iter().map(|curve| of(&curve.name)).collect();
    let mut colours = by_target.unwrap_or_else(|| (0..plot.curves.len()).collect());
    // Two solid curves of one colour could not be told apart.
    let twins = |a: usize, b: usize| colours[a] == colours[b] && plot.curves[a].dash == plot.curves[b].dash;
    if (0..colours.len()).any(|a| (0..a).any(|b| twins(a, b))) {
        colours = (0..plot.curves.len()).collect();
    }
    colours
}

/// The class of a curve's colour.
pub fn colour(index: usize) -> String {
    format!("c{}", index % COLOURS)
}

fn legend(plot: &Plot, colours: &[usize]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (curve, index) in plot.curves.iter().zip(colours) {
        let dash = if curve.dash == Dash::Dashed { " dashed" } else { "" };
        let area = if plot.kind == Kind::Lines { "" } else { " area" };
        let _ =
            write!(out, "<li><i class=\"{}{dash}{area}\"></i>{}</li>", colour(*index), escape(&curve.name));
    }
    out.push_str("</ul>");
    out
}

fn grid(svg: &mut Svg, plot: &Plot, y: &Span) {
    for &tick in &y.ticks {
        let Some(at) = y.at(tick) else { continue };
        svg.line(if tick == 0.0 { "base" } else { "grid" }, (LEFT, at), (RIGHT, at));
        svg.text("tick", (LEFT - 8.0, at + 4.0), Anchor::End, &axis::label(tick));
    }
    if plot.y.scale == Scale::Log {
        svg.line("base", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    }
}

fn ticks(svg: &mut Svg, x: &Span) {
    for &tick in &x.ticks {
        let Some(at) = x.at(tick) else { continue };
        svg.line("base", (at, BOTTOM), (at, BOTTOM + 5.0));
        svg.text("tick", (at, BOTTOM + 19.0), Anchor::Middle, &axis::label(tick));
    }
}

fn marks(svg: &mut Svg, plot: &Plot, x: &Span) {
    for mark in &plot.marks {
        let Some(at) = x.at(mark.x) else { continue };
        svg.line("mark", (at, TOP), (at, BOTTOM));
        // The text is on the side with room.
        let (anchor, beside) = if at > WIDTH * 0.7 { (Anchor::End, -4.0) } else { (Anchor::Start, 4.0) };
        svg.text("mark-text", (at + beside, TOP - 6.0), anchor, &mark.text);
    }
}

/// The text under the pointer at a point.
pub fn title(plot: &Plot, name: &str, x: &str, y: f64, interval: Option<[f64; 2]>) -> String {
    let unit = if plot.y.unit.is_empty() { String::new() } else { format!(" {}", plot.y.unit) };
    let ends = interval
        .map_or(String::new(), |[low, high]| format!(" ({} … {})", number::text(low), number::text(high)));
    format!("{name}, {x}: {}{unit}{ends}", number::text(y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Target;

    #[test]
    fn the_script_knows_where_the_picture_is() {
        let script = include_str!("script.js");
        let line =
            format!("const LEFT = {LEFT}, RIGHT = {RIGHT}, TOP = {TOP}, BOTTOM = {BOTTOM}, WIDTH = {WIDTH};");
        assert!(script.contains(&line), "{line}");
    }

    #[test]
    fn a_server_keeps_its_colour_and_no_two_curves_look_the_same() {
        let run = crate::results::tests::sample();
        let mut plot = Plot::new("p", "p", Kind::Lines);
        plot.curve("larder", [Point::new(0.0, 1.0)]);
        plot.curve("larder oracle", [Point::new(0.0, 1.0)]).dash = Dash::Dashed;
        assert_eq!(colours(&run, &plot), [0, 0]);
        plot.curve("larder again", [Point::new(0.0, 1.0)]);
        assert_eq!(colours(&run, &plot), [0, 1, 2]);
        plot.curves[0].name = "class 1".to_owned();
        assert_eq!(colours(&run, &plot), [0, 1, 2]);
    }

    #[test]
    fn a_server_keeps_its_colour_where_another_is_left_out() {
        let mut run = crate::results::tests::sample();
        let target = run.targets[0].clone();
        let names = ["larder", "larder again", "memcached", "redis"];
        run.targets = names.map(|name| Target { name: name.to_owned(), ..target.clone() }).into();
        let mut plot = Plot::new("p", "p", Kind::Lines);
        for name in ["larder", "larder again", "redis"] {
            plot.curve(name, [Point::new(0.0, 1.0)]);
        }
        assert_eq!(colours(&run, &plot), [0, 1, 3]);
    }

    #[test]
    fn areas_and_stacks_reach_as_high_as_their_sum() {
        let mut plot = Plot::new("p", "p", Kind::Stacked);
        plot.curve("a", [Point::new(0.0, 1.0), Point::new(1.0, 2.0)]);
        plot.curve("b", [Point::new(0.0, 5.0), Point::new(1.0, 3.0)]);
        assert_eq!(heights(&plot), [1.0, 2.0, 6.0, 5.0]);
        plot.kind = Kind::StackedBars;
        plot.curves[1].points.remove(0);
        assert_eq!(heights(&plot).into_iter().fold(0.0, f64::max), 5.0);
    }

    #[test]
    fn bands_are_told_of_where_they_are_drawn() {
        let mut plot = Plot::new("p", "p", Kind::Lines);
        plot.caption = "Closed loop.".to_owned();
        let at = |x: f64, interval| Point { x, y: 2.0, interval };
        plot.curve("a", [at(0.0, None), at(1.0, Some([1.0, 3.0]))]);
        plot.curve("b", [at(0.0, Some([2.0, 2.0])), at(1.0, Some([2.0, 2.0]))]);
        assert_eq!(caption(&plot), "Closed loop.");
        plot.curve("c", [at(0.0, Some([1.0, 3.0])), at(1.0, Some([1.0, 3.0]))]);
        assert_eq!(caption(&plot), "Closed loop. Bands are 95 % intervals over rounds.");
        plot.kind = Kind::Bars;
        assert!(caption(&plot).ends_with("Whiskers are 95 % intervals over rounds."));
        plot.kind = Kind::Stacked;
        assert_eq!(caption(&plot), "Closed loop.");
    }

    #[test]
    fn a_picture_of_nothing_says_so() {
        let run = crate::results::tests::sample();
        assert!(figure(&run, &Plot::new("p", "p", Kind::Lines)).contains("nothing was measured"));
    }
}
