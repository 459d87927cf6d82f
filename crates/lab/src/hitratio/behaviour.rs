//! Servers and patterns: each begins with a server that is full of keys that are never read, or after another pattern.
//!
//! ```text
//! a new server ─▶ filled, and asked what fits ─▶ perhaps another pattern ─▶ the pattern: warmed ─▶ hits counted
//! ```
//!
//! Distances and working sets are shares of what this server holds, so that the policy is measured and not the cost of an item.
//! Beside each stands an LRU of as many keys, in this process.

use std::collections::HashMap;
use std::time::Duration;

use super::PER_S;
use super::client::walk;
use super::patterns::{Course, Pattern, Request, Shape, Verb};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::{Axis, Better, Column, Estimate, Kind, Plot, Point, Scale, Table};
use crate::shift::check::{check_counts, check_values};
use crate::shift::oracle::Lru;
use crate::shift::variant::Variant;
use crate::shift::visit::Counted;

/// Values that fit fewer times than this are left out: a policy has nothing to choose from.
const FIT_MIN: u64 = 100;
/// Ranges of key numbers: the pattern's, and those of the pattern before it.
const PART: u64 = 0;
const PART_BEFORE: u64 = 1;

/// A case that every server runs.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pattern: &'static Pattern,
    after: Option<&'static Pattern>,
    value_bytes: u64,
}

/// The results of a server.
#[derive(Debug, Default)]
struct Found {
    /// Keys that it held when it was full, and the share of hits, by round.
    fits: Vec<u64>,
    hits: Vec<f64>,
}

/// All of `patterns` with values of each of `sizes`, after each of `afters` if there are any; and the sizes that fit too few times.
pub fn cases(
    patterns: &[&'static Pattern],
    afters: &[&'static Pattern],
    sizes: &[u64],
    memory_mb: u32,
) -> (Vec<Case>, Vec<u64>) {
    let (sizes, left_out): (Vec<u64>, Vec<u64>) =
        sizes.iter().partition(|&&bytes| (u64::from(memory_mb) << 20) / bytes >= FIT_MIN);
    let before = |pattern: &'static Pattern| {
        let others = afters.iter().filter(|after| after.name != pattern.name).map(|&after| Some(after));
        let alone = afters.is_empty().then_some(None);
        others.chain(alone).collect::<Vec<_>>()
    };
    let cases = sizes.iter().flat_map(|&value_bytes| {
        patterns.iter().flat_map(move |&pattern| {
            before(pattern).into_iter().map(move |after| Case { pattern, after, value_bytes })
        })
    });
    (cases.collect(), left_out)
}

impl Case {
    /// Labels of its rows.
    fn labels(&self) -> [String; 3] {
        let after = self.after.map_or("unread keys", |after| after.name);
        [self.pattern.name.to_owned(), format!("{} B", self.value_bytes), after.to_owned()]
    }

    fn name(&self) -> String {
        let [pattern, bytes, after] = self.labels();
        format!("{pattern}, values of {bytes}, after {after}")
    }

    /// The courses in order; the last one is counted.
    fn courses(&self, fits: u64) -> Vec<Course> {
        let before = self.after.map(|after| Course::new(after.shape, fits, PART_BEFORE, false));
        let course = Course::new(self.pattern.shape, fits, PART, self.after.is_some());
        before.into_iter().chain([course]).collect()
    }

    /// Requests of a visit to a server with that memory, about: as if its items cost nothing.
    fn requests(&self, memory_bytes: u64) -> u64 {
        let fits = memory_bytes / self.value_bytes;
        let lengths = self.after.into_iter().chain([self.pattern]).map(|pattern| pattern.shape.lengths(fits));
        // It is filled beforehand, to somewhat more than its limit.
        2 * fits + lengths.map(|(warm, counted)| warm + counted).sum::<u64>()
    }

    /// The share of hits of an LRU of `fits` keys.
    fn lru(&self, fits: u64) -> f64 {
        let mut cache = Lru::new(fits, fits as u32);
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        (0..fits as u32).for_each(|key| {
            cache.ask(key, 1);
        });
        let mut ratio = 0.0;
        for mut course in self.courses(fits) {
            let mut requests: Vec<Request> = Vec::new();
            while !course.is_done() {
                course.step(&mut requests);
                for request in requests.drain(..) {
                    let next = fits as u32 + numbers.len() as u32;
                    let key = *numbers.entry(request.id).or_insert(next);
                    let hit = if request.verb == Verb::Get { cache.look(key) } else { cache.ask(key, 1) };
                    let wrote = request.verb != Verb::Get && !hit;
                    course.note(request, hit && request.verb != Verb::Set, wrote);
                }
            }
            ratio = course.hit_ratio();
        }
        ratio
    }

    /// Visits a server; returns the keys that fit and the share of hits.
    fn visit(
        &self,
        experiment: &mut Experiment,
        variant: &Variant,
        memory_mb: u32,
    ) -> Result<(u64, f64), Error> {
        let core = experiment.generator_cores.first().copied().flatten();
        let server = variant.start(memory_mb)?;
        let before = Counted::of(&server.control)?;
        let value_bytes = self.value_bytes as usize;
        let memory_bytes = u64::from(memory_mb) << 20;
        let filling = Course::filling(memory_bytes, self.value_bytes);
        let (_, mut seen) = walk(&server, filling, memory_bytes / self.value_bytes, value_bytes, core)?;
        let counters = server.control.counters()?;
        let Some(fits) = counters.items(server.control.family).filter(|&items| items > 0) else {
            return Err(Error::NotValid(format!("{} does not say how many items it holds", variant.name)));
        };
        let mut ratio = 0.0;
        for course in self.courses(fits) {
            let (hits, more) = walk(&server, course, fits, value_bytes, core)?;
            seen.merge(more);
            ratio = hits;
        }
        let after = Counted::of(&server.control)?;
        let counted = after.zip(before).map(|(after, before)| after.since(before));
        check_values(experiment, variant, &seen);
        check_counts(experiment, variant, &[&seen], counted);
        if seen.refused > 0 {
            let note = format!("{}: {} refused {} writes", self.name(), variant.name, seen.refused);
            experiment.run.notes.push(note);
        }
        Ok((fits, ratio))
    }
}

/// Runs every case on every server, and reports the results; returns a sentence on which bounds were kept.
///
/// # Errors
/// When a server cannot be started, or a connection fails.
pub fn run(
    experiment: &mut Experiment,
    variants: &[Variant],
    cases: &[Case],
    memory_mb: u32,
) -> Result<String, Error> {
    let mut visits: Vec<(usize, usize, Found)> = (0..cases.len())
        .flat_map(|case| (0..variants.len()).map(move |variant| (case, variant, Found::default())))
        .collect();
    let requests: u64 = cases.iter().map(|case| case.requests(u64::from(memory_mb) << 20)).sum();
    let each = requests as f64 / PER_S / cases.len().max(1) as f64;
    experiment.announce(visits.len(), Duration::from_secs_f64(each));
    experiment.rounds(
        &mut visits,
        |&(case, variant, _)| format!("{}, {}", cases[case].name(), variants[variant].name),
        |experiment, (case, variant, found), _| {
            let (fits, hits) = cases[*case].visit(experiment, &variants[*variant], memory_mb)?;
            found.fits.push(fits);
            found.hits.push(hits);
            Ok(())
        },
    )?;
    Ok(report(experiment, variants, cases, &visits))
}

fn report(
    experiment: &mut Experiment,
    variants: &[Variant],
    cases: &[Case],
    visits: &[(usize, usize, Found)],
) -> String {
    let mut table =
        Table::new("patterns", "Reads that hit, by what was asked", &["pattern", "values", "after"]);
    table.column(Column::new("hits", "%", Better::Higher));
    table.column(Column::new("an LRU of as many keys", "%", Better::Neither));
    table.column(Column::new("bound", "%", Better::Neither));
    table.column(Column::new("keys held", "", Better::Neither));
    let mut plot = Plot::new("patterns", "Reads that hit, by what was asked", Kind::Bars);
    plot.groups = cases.iter().map(|case| case.labels().join(", ")).collect();
    plot.x = Axis::new("pattern", "", Scale::Linear);
    plot.y = Axis::new("hits", "%", Scale::Linear);
    plot.caption = "Shares are of what each server itself holds.".to_owned();
    let mut kept = vec![0; variants.len()];
    let mut points: Vec<Vec<Point>> = vec![Vec::new(); variants.len()];
    // Servers that hold as many keys share one LRU beside them.
    let mut known: HashMap<(usize, u64), f64> = HashMap::new();
    for (case, variant, found) in visits {
        let (asked, name) = (&cases[*case], &variants[*variant].name);
        let fits = found.fits[0];
        let lru = *known.entry((*case, fits)).or_insert_with(|| asked.lru(fits));
        let least = asked.least(lru, fits);
        let percent: Vec<f64> = found.hits.iter().map(|hits| 100.0 * hits).collect();
        let Some(hits) = Estimate::of(&percent) else { continue };
        if hits.median >= 100.0 * least {
            kept[*variant] += 1;
        } else if *variant == 0 {
            let note = format!("{}: {name} {:.1} %, not {:.1} %", asked.name(), hits.median, 100.0 * least);
            experiment.run.notes.push(note);
        }
        points[*variant].push(Point::estimated(*case as f64, &hits));
        let exact = |share: f64| Estimate::exact(100.0 * share);
        let labels = asked.labels();
        table.row(
            name,
            labels.each_ref().map(String::as_str),
            [Some(hits), exact(lru), exact(least), Estimate::exact(fits as f64)],
        );
    }
    for (variant, points) in variants.iter().zip(points) {
        plot.curve(&variant.name, points);
    }
    experiment.run.tables.push(table);
    experiment.run.plots.push(plot);
    let said: Vec<String> = variants
        .iter()
        .zip(kept)
        .filter(|(variant, _)| !variant.again)
        .map(|(variant, kept)| format!("{} {kept}", variant.name))
        .collect();
    format!("Of {} pattern(s) the bounds are kept by: {}.", cases.len(), said.join(", "))
}

impl Case {
    /// The least share of hits; after another pattern it may be somewhat lower.
    fn least(&self, lru: f64, fits: u64) -> f64 {
        const TURNED_LESS: f64 = 0.02;
        // memcached's segmented LRU is a server here.
        let least = self.pattern.least(lru, lru, fits);
        if self.after.is_some() { least - TURNED_LESS } else { least }
    }
}

/// The pattern in words.
pub fn describe(shape: Shape) -> String {
    match shape {
        Shape::Later { distance, reads: 1 } => {
            format!("written once, read once after {distance} of what fits")
        }
        Shape::Later { distance, reads } => {
            format!("written once, read {reads} times up to {distance} of what fits later")
        }
        Shape::Sessions { distance, times } => {
            format!("read and written again every {distance} of what fits, {times} times, then abandoned")
        }
        Shape::Return { distance } => format!("loaded, and once more after {distance} of what fits"),
        Shape::Zipf { alpha, over, lone } if lone > 0.0 => {
            format!("Zipf {alpha} over {over} times what fits, {:.0} % for keys that come once", 100.0 * lone)
        }
        Shape::Zipf { alpha, over, .. } => format!("Zipf {alpha} over {over} times what fits"),
        Shape::Loop { over } => format!("round and round over {over} of what fits"),
        Shape::Redrawn { alpha, every } => {
            format!("Zipf {alpha}, other keys popular whenever {every} times what fits was written")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::PATTERNS;
    use super::*;

    fn pattern(name: &str) -> &'static Pattern {
        PATTERNS.iter().find(|pattern| pattern.name == name).expect("a pattern")
    }

    #[test]
    fn cases_are_all_pairs_but_a_pattern_after_itself_and_sizes_that_fit() {
        let all: Vec<&Pattern> = PATTERNS.iter().collect();
        let (alone, left_out) = cases(&all, &[], &[100, 1_000_000], 16);
        assert_eq!((alone.len(), left_out), (all.len(), vec![1_000_000]));
        let (pairs, _) = cases(&all, &all, &[100], 16);
        assert_eq!(pairs.len(), all.len() * (all.len() - 1));
    }

    #[test]
    fn a_visit_is_reckoned_with_all_that_is_asked_in_it() {
        let case = |after| Case { pattern: pattern("loop-0.8"), after, value_bytes: 100 };
        assert_eq!(case(None).requests(100_000), 2_000 + 18_000);
        assert_eq!(case(Some(pattern("zipf-0.9"))).requests(100_000), 2_000 + 18_000 + 40_000);
    }

    #[test]
    fn an_lru_keeps_what_is_read_within_what_fits_and_nothing_of_a_longer_round() {
        let lru = |name| Case { pattern: pattern(name), after: None, value_bytes: 100 }.lru(1_000);
        assert_eq!(["later-0.2", "sessions", "loop-0.8", "loop-1.2"].map(lru), [1.0, 1.0, 1.0, 0.0]);
        assert!((0.6..0.8).contains(&lru("zipf-0.9")), "{}", lru("zipf-0.9"));
        let turned =
            Case { pattern: pattern("later-0.2"), after: Some(pattern("zipf-0.9")), value_bytes: 100 };
        assert!(turned.lru(1_000) == 1.0 && (turned.least(0.0, 1_000) - 0.96).abs() < 1e-9);
    }

    #[test]
    fn every_pattern_is_told_in_words_of_its_own() {
        let words: std::collections::HashSet<String> =
            PATTERNS.iter().map(|pattern| describe(pattern.shape)).collect();
        assert_eq!(words.len(), PATTERNS.len());
    }
}
