//! Tables, pictures and the sentence of the shift experiment.

use std::ops::Range;
use std::time::Duration;

use super::outcome::{self, Outcome, series};
use super::plan::Plan;
use super::seen::{Bin, Seen, together};
use super::variant::Ways;
use super::visit::{FIT_SHARE, Visit};
use super::{Found, Options};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::results::{
    Axis, Better, Column, Curve, Dash, Estimate, Kind, Latency, Plot, Point, Run, Scale, Table, number,
};
use crate::stats::median;
use crate::tally::{Latencies, in_time, late_at};

/// The most classes that a picture can show apart.
const LAYERS_MAX: usize = 6;

/// Adds the settings of the plan to the run.
pub fn settings(run: &mut Run, plan: &Plan, options: &Options, rate: f64) {
    let list = |each: &dyn Fn(&super::plan::Phase) -> String| {
        plan.phases.iter().map(each).collect::<Vec<_>>().join(", then ")
    };
    run.set("values", list(&|phase| phase.sizes.to_string()));
    run.set("keys", list(&|phase| phase.count.to_string()));
    run.set("key", &plan.phases[0].keys);
    run.set("popularity", format!("Zipf {}", options.zipf));
    run.set("working set over memory", options.working_set);
    run.set("offered, requests/s", rate.round());
    run.set("connections", plan.connections);
    run.set("gets sent together", plan.pipeline);
    run.set("seconds before the first shift", plan.before.as_secs_f64());
    run.set("seconds of each later phase", plan.after.as_secs_f64());
    run.set("time to live, s", options.ttl);
    options.ways.note(run);
}

/// Adds the results to the run.
///
/// # Errors
/// A histogram cannot be written.
pub fn fill(
    experiment: &mut Experiment,
    plan: &Plan,
    found: &[Found],
    oracle: &[f64],
    ways: &Ways,
) -> Result<(), Error> {
    let run = &mut experiment.run;
    // Each variant is a server of its own in colours and legends.
    let measured: Vec<_> = found
        .iter()
        .map(|found| crate::results::Target {
            name: found.variant.name.clone(),
            ..run.targets[found.variant.contender].clone()
        })
        .collect();
    run.targets = measured;
    let all: Vec<Vec<Vec<Outcome>>> = found
        .iter()
        .map(|found| (0..plan.phases.len() - 1).map(|shift| outcomes(plan, found, shift)).collect())
        .collect();
    shifts(run, plan, found, &all);
    memory(run, plan, found, ways.equal_limit);
    ratios(run, plan, found, oracle);
    latencies(run, plan, found, &all)?;
    layers(run, found);
    for found in found {
        notes(run, found);
    }
    verdict(run, plan, found, &all, ways);
    // The hit ratio in the end, of the first server over the others'.
    let in_the_end = |all: &[Vec<Outcome>]| -> Vec<f64> {
        all.last().map_or(Vec::new(), |outcomes| outcomes.iter().map(|outcome| outcome.last).collect())
    };
    let others = found.iter().zip(&all).skip(1).map(|(other, outcomes)| {
        let claim = format!("{} / {}, hit ratio in the end", found[0].variant.name, other.variant.name);
        (claim, in_the_end(outcomes), other.variant.again)
    });
    experiment.compare_with(Better::Higher, &in_the_end(&all[0]), others.collect());
    Ok(())
}

fn outcomes(plan: &Plan, found: &Found, shift: usize) -> Vec<Outcome> {
    let last = shift + 2 == plan.phases.len();
    let fresh = |round: usize| found.fresh.get(round).copied().filter(|_| last);
    found
        .visits
        .iter()
        .enumerate()
        .map(|(round, visit)| outcome::of(plan, visit, shift, fresh(round)))
        .collect()
}

fn shift_name(plan: &Plan, shift: usize) -> String {
    format!("{} → {}", plan.phases[shift].sizes, plan.phases[shift + 1].sizes)
}

fn shifts(run: &mut Run, plan: &Plan, found: &[Found], all: &[Vec<Vec<Outcome>>]) {
    let mut table = Table::new("shift", "Hit ratio through the shift", &["values"]);
    table.absent("not reached in every round, or of the last shift only");
    for (name, unit, better) in [
        ("before", "%", Better::Higher),
        ("lowest", "%", Better::Higher),
        ("in the end", "%", Better::Higher),
        ("fresh server", "%", Better::Neither),
        ("in the end / fresh", "", Better::Higher),
        ("memory written once after", "s", Better::Neither),
        ("95 % of its end after", "s", Better::Lower),
        ("95 % of fresh after", "s", Better::Lower),
        ("hits lost", "", Better::Lower),
        ("pages moved", "", Better::Neither),
    ] {
        table.column(Column::new(name, unit, better));
    }
    for (found, all) in found.iter().zip(all) {
        for (shift, outcomes) in all.iter().enumerate() {
            let of =
                |pick: &dyn Fn(&Outcome) -> f64| Estimate::of(&outcomes.iter().map(pick).collect::<Vec<_>>());
            // A time is a figure only if it was reached in every round.
            let time = |pick: fn(&Outcome) -> Option<f64>| {
                outcomes.iter().map(pick).collect::<Option<Vec<f64>>>().and_then(|times| Estimate::of(&times))
            };
            let last = shift + 1 == all.len();
            let fresh: Vec<f64> = found.fresh.iter().map(|ratio| 100.0 * ratio).collect();
            let share: Vec<f64> = outcomes.iter().map(|outcome| 100.0 * outcome.last).collect();
            let row = table.row(
                &found.variant.name,
                [shift_name(plan, shift)],
                [
                    of(&|outcome| 100.0 * outcome.before),
                    of(&|outcome| 100.0 * outcome.lowest),
                    of(&|outcome| 100.0 * outcome.last),
                    Estimate::of(&fresh).filter(|_| last),
                    Estimate::ratio(&share, &fresh).filter(|_| last),
                    time(|outcome| outcome.written_s),
                    time(|outcome| outcome.back_s),
                    time(|outcome| outcome.back_to_fresh_s),
                    of(&|outcome| outcome.lost_hits.round()),
                    of(&|outcome| outcome.pages_moved),
                ],
            );
            let never = outcomes.iter().filter(|outcome| outcome.back_to_fresh_s.is_none()).count();
            if last && never > 0 {
                let (rounds, after) = (outcomes.len(), plan.after.as_secs_f64());
                row.note = format!("95 % of fresh not within {after} s in {never} of {rounds} rounds");
            }
        }
    }
    run.tables.push(table);
}

fn memory(run: &mut Run, plan: &Plan, found: &[Found], equal_limit: bool) {
    let mut table = Table::new("memory", "Memory of the servers", &[]);
    table.absent("the process of that server cannot be seen from here, or it has no limit that could be set");
    table.column(Column::new("limit given", "MB", Better::Neither));
    table.column(Column::new("resident, first warmed", "MiB", Better::Neither));
    table.column(Column::new("resident before the shift", "MiB", Better::Neither));
    table.column(Column::new("resident in the end", "MiB", Better::Lower));
    table.column(Column::new("peak, closed loop", "1/s", Better::Higher));
    for found in found {
        let at = |time: f64| {
            let rss = |visit: &Visit| {
                visit
                    .samples
                    .iter()
                    .rfind(|sample| sample.at_s <= time)
                    .and_then(|sample| sample.rss_mib)
                    .unwrap_or(f64::NAN)
            };
            Estimate::of(&found.visits.iter().map(rss).collect::<Vec<_>>())
        };
        table.row(
            &found.variant.name,
            Vec::<String>::new(),
            [
                found.variant.can_be_limited().then(|| Estimate::exact(found.fit.limit_mb.into())).flatten(),
                found.fit.rss_mib.and_then(Estimate::exact),
                at(plan.before.as_secs_f64()),
                at(f64::INFINITY),
                Estimate::exact(found.fit.peak.round()),
            ],
        );
        let Some(rss_mib) = found.fit.rss_mib else { continue };
        let off = rss_mib / f64::from(plan.memory_mb) - 1.0;
        if !equal_limit && off.abs() > 2.0 * FIT_SHARE && found.variant.can_be_limited() {
            run.notes.push(format!(
                "resident memory of {} is {:+.1} % off: no limit in whole MB comes nearer",
                found.variant.name,
                100.0 * off
            ));
        }
    }
    run.tables.push(table);
}

fn ratios(run: &mut Run, plan: &Plan, found: &[Found], oracle: &[f64]) {
    let rounds = found.iter().map(|found| {
        let rounds: Vec<&[Bin]> = found.visits.iter().map(|visit| &visit.seen.bins[..plan.bins()]).collect();
        (found.variant.name.as_str(), rounds)
    });
    run.plots.push(ratio_plot(plan, &rounds.collect::<Vec<_>>(), oracle));
}

/// Hit ratios over time, of each server the median of its rounds, and the oracle's.
fn ratio_plot(plan: &Plan, servers: &[(&str, Vec<&[Bin]>)], oracle: &[f64]) -> Plot {
    let mut plot = Plot::new("hit-ratio", "Hit ratio over time", Kind::Lines);
    plot.x = Axis::new("time", "s", Scale::Linear);
    plot.y = Axis::new("hit ratio", "%", Scale::Linear).between(0.0, 100.0);
    plot.caption =
        "The oracle is an LRU by bytes without overhead: it has more room than any server.".to_owned();
    // A point per second, or per bin where there are few.
    let width =
        if plan.length() >= Duration::from_secs(10) { (1.0 / plan.bin.as_secs_f64()) as usize } else { 1 };
    let middle = |at: usize| (at as f64 + 0.5) * width as f64 * plan.bin.as_secs_f64();
    for (name, rounds) in servers {
        let all: Vec<Vec<Option<f64>>> = rounds.iter().map(|bins| series(bins, width)).collect();
        let points = (0..plan.bins() / width).filter_map(|at| {
            let values: Vec<f64> =
                all.iter().filter_map(|series| Some(100.0 * series.get(at).copied()??)).collect();
            Some(Point::estimated(middle(at), &Estimate::of(&values)?))
        });
        plot.curve(name, points.collect::<Vec<_>>());
    }
    let points = oracle
        .chunks_exact(width)
        .enumerate()
        .map(|(at, bins)| Point::new(middle(at), 100.0 * bins.iter().sum::<f64>() / bins.len() as f64));
    plot.curve("oracle, LRU by bytes", points).dash = Dash::Dashed;
    mark(&mut plot, plan);
    plot
}

fn mark(plot: &mut Plot, plan: &Plan) {
    for (at, shift) in plan.shifts().into_iter().enumerate() {
        plot.mark(shift.as_secs_f64(), &format!("values become {}", plan.phases[at + 1].sizes));
    }
}

fn latencies(run: &mut Run, plan: &Plan, found: &[Found], all: &[Vec<Vec<Outcome>>]) -> Result<(), Error> {
    let mut table = Table::new("latency", "Latency by phase, open loop", &["phase"]);
    table.absent("nothing of that was asked in the phase, or the generator was late there");
    for what in ["get", "set"] {
        for (quantile, _) in QUANTILES {
            table.column(Column::new(&format!("{what} {quantile}"), "µs", Better::Lower));
        }
    }
    let mut plot = Plot::new("set-p99", "99th percentile of sets over time", Kind::Lines);
    plot.x = Axis::new("time", "s", Scale::Linear);
    plot.y = Axis::new("latency of a set", "µs", Scale::Log);
    mark(&mut plot, plan);
    for (found, all) in found.iter().zip(all) {
        let name = &found.variant.name;
        let late = found.visits.iter().find_map(|visit| lateness(&visit.seen, visit.busy).err());
        if let Some(why) = late {
            run.notes.push(format!("latencies of {name} are left out: {why}"));
            continue;
        }
        let before_s = plan.before.as_secs() as usize;
        let shift_s = |round: usize| {
            let written = all[0][round].written_s.unwrap_or(plan.after.as_secs_f64());
            before_s + written.min(plan.after.as_secs_f64()).ceil() as usize
        };
        let end_s = before_s + plan.after.as_secs() as usize;
        for phase in ["before the shift", "until memory is written once", "after that"] {
            let range = |round| match phase {
                "before the shift" => 0..before_s,
                "until memory is written once" => before_s..shift_s(round),
                _ => shift_s(round)..end_s,
            };
            let (mut cells, mut late) = (Vec::new(), Vec::new());
            for what in ["get", "set"] {
                let rounds: Vec<Timed> = found
                    .visits
                    .iter()
                    .enumerate()
                    .map(|(round, visit)| Timed::of(&visit.seen, what, range(round)))
                    .collect();
                for (quantile, at) in QUANTILES {
                    let values: Vec<f64> = rounds.iter().filter_map(|round| round.quantile_us(at)).collect();
                    let left_out = rounds.iter().filter(|round| round.is_late(at)).count();
                    if left_out > 0 {
                        late.push(format!("{what} {quantile} without {left_out}"));
                    }
                    // A phase without events in a round has no figure.
                    let whole = values.len() + left_out == rounds.len();
                    cells.push(Estimate::of(&values).filter(|_| whole));
                }
                let sum = together(rounds.iter().map(|round| &round.latencies));
                let clock =
                    if what == "get" { "open loop, from the intended send" } else { "from its own send" };
                let requests = format!("{what}, {phase}");
                if !sum.is_empty() {
                    run.histograms.push(Latency::new(name, &requests, clock, &sum.ns, sum.over_range)?);
                }
            }
            if cells.iter().any(Option::is_some) {
                let row = table.row(name, [phase], cells);
                if !late.is_empty() {
                    row.note = format!("{} rounds in which the generator was late there", late.join(", "));
                }
            }
        }
        let seconds = found.visits.iter().map(|visit| visit.seen.set.len()).min().unwrap_or(0);
        let p99 = |second: usize| -> Option<Point> {
            let of = |visit: &Visit| Timed::of(&visit.seen, "set", second..second + 1).quantile_us(0.99);
            let values: Vec<f64> = found.visits.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| Point::new(second as f64 + 0.5, median(&values)))
        };
        plot.curve(name, (0..seconds.min(end_s)).filter_map(p99).collect::<Vec<_>>());
    }
    if !table.rows.is_empty() {
        run.tables.push(table);
        run.plots.push(plot);
    }
    Ok(())
}

/// Quantiles of latencies that the table shows.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Latencies of some seconds of a visit, and how late the generator was in them.
struct Timed {
    latencies: Latencies,
    lag: Latencies,
}

impl Timed {
    /// The latencies of gets or sets in these seconds.
    fn of(seen: &Seen, what: &str, seconds: Range<usize>) -> Timed {
        let cut = |all: &[Latencies]| {
            let (start, end) = (seconds.start.min(all.len()), seconds.end.min(all.len()));
            together(&all[start.min(end)..end])
        };
        let latencies = cut(if what == "get" { &seen.get } else { &seen.set });
        Timed { latencies, lag: cut(&seen.lag) }
    }

    /// Whether the generator was too late, compared with the latency at this quantile.
    fn is_late(&self, quantile: f64) -> bool {
        late_at(&self.lag, &self.latencies, quantile).is_some()
    }

    /// A quantile; none without latencies, and none that is as much the generator's as the server's.
    fn quantile_us(&self, quantile: f64) -> Option<f64> {
        let known = !self.latencies.is_empty() && !self.is_late(quantile);
        known.then(|| self.latencies.quantile_us(quantile))
    }
}

/// Whether latencies of a visit are the server's more than the generator's.
fn lateness(seen: &Seen, busy: f64) -> Result<(), String> {
    in_time(&together(&seen.lag), &together(&seen.get), busy)
}

/// Memory by class over time, of the first round.
fn layers(run: &mut Run, found: &[Found]) {
    for found in found.iter().filter(|found| !found.variant.again) {
        let Some(visit) = found.visits.first().filter(|visit| !visit.samples.is_empty()) else { continue };
        let mut names: Vec<(String, f64)> = Vec::new();
        for (name, mib) in visit.samples.iter().flat_map(|sample| &sample.layers) {
            match names.iter_mut().find(|(have, _)| have == name) {
                Some((_, most)) => *most = most.max(*mib),
                None => names.push((name.clone(), *mib)),
            }
        }
        let mut by_size = names.clone();
        by_size.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown: Vec<&String> = by_size.iter().take(LAYERS_MAX).map(|(name, _)| name).collect();
        let title = format!("Memory of {} over time", found.variant.name);
        let id = format!("memory-{}", found.variant.name.replace(' ', "-"));
        let mut plot = Plot::new(&id, &title, Kind::Stacked);
        plot.x = Axis::new("time", "s", Scale::Linear);
        plot.y = Axis::new("memory", "MiB", Scale::Linear);
        plot.caption = "The first round, as the server reports it.".to_owned();
        let of = |sample: &super::visit::Sample, wanted: &dyn Fn(&String) -> bool| -> Point {
            let layers = sample.layers.iter().filter(|(name, _)| wanted(name));
            Point::new(sample.at_s, layers.map(|(_, mib)| mib).sum())
        };
        for (name, _) in names.iter().filter(|(name, _)| shown.contains(&name)) {
            plot.curve(name, visit.samples.iter().map(|sample| of(sample, &|have| have == name)));
        }
        if names.len() > LAYERS_MAX {
            plot.curve(
                "other classes",
                visit.samples.iter().map(|sample| of(sample, &|have| !shown.contains(&have))),
            );
        }
        plot.curves.retain(|curve: &Curve| !curve.points.is_empty());
        run.plots.push(plot);
    }
}

fn notes(run: &mut Run, found: &Found) {
    let name = &found.variant.name;
    for visit in &found.visits {
        let (gets, _, _) = visit.seen.totals();
        let share = gets as f64 / visit.offered.max(1.0);
        if !(0.97..=1.03).contains(&share) {
            run.notes.push(format!("{name} was asked {:.0} % of what was offered", 100.0 * share));
        }
        if visit.seen.refused + visit.warm.refused > 0 {
            let first = visit.seen.first.as_deref().or(visit.warm.first.as_deref()).unwrap_or_default();
            let refused = visit.seen.refused + visit.warm.refused;
            run.notes.push(format!("{name} refused {refused} sets: {first}"));
        }
    }
}

fn verdict(run: &mut Run, plan: &Plan, found: &[Found], all: &[Vec<Vec<Outcome>>], ways: &Ways) {
    let last = plan.phases.len() - 2;
    let said: Vec<String> = found
        .iter()
        .zip(all)
        .filter(|(found, _)| !found.variant.again)
        .map(|(found, all)| {
            let outcomes = &all[last];
            let times: Option<Vec<f64>> = outcomes.iter().map(|outcome| outcome.back_to_fresh_s).collect();
            let written: Option<Vec<f64>> = outcomes.iter().map(|outcome| outcome.written_s).collect();
            let lost: Vec<f64> = outcomes.iter().map(|outcome| outcome.lost_hits).collect();
            let when = match times {
                Some(times) => format!("after {} s", number::text(median(&times))),
                None => format!("not within {} s", plan.after.as_secs_f64()),
            };
            let written = match written {
                Some(written) => {
                    format!(", its memory written once after {} s", number::text(median(&written)))
                }
                None => String::new(),
            };
            let lost = number::text(median(&lost).round());
            format!("{} {when}{written}, {lost} hits lost", found.variant.name)
        })
        .collect();
    let seen: Vec<_> = found.iter().map(|found| (&found.variant, found.fit.rss_mib)).collect();
    run.verdict = format!(
        "When values of {} become {} {}, 95 % of a fresh server's hit ratio is back: {}.",
        plan.phases[last].sizes,
        plan.phases[last + 1].sizes,
        ways.memory_words(plan.memory_mb, 2.0 * FIT_SHARE, &seen),
        said.join("; ")
    );
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::super::seen::record;
    use super::*;

    #[test]
    fn bands_of_hit_ratios_are_intervals_and_told_of_where_they_are() {
        let plan = plan();
        let of = |hits: u64| vec![Bin { gets: 100, hits, ..Bin::default() }; plan.bins()];
        let all = [60, 80, 70, 90, 65, 75].map(of);
        let plot = |rounds: usize| {
            let bins: Vec<&[Bin]> = all[..rounds].iter().map(Vec::as_slice).collect();
            ratio_plot(&plan, &[("larder", bins)], &vec![0.5; plan.bins()])
        };
        for (rounds, median, interval) in
            [(1, 60.0, None), (2, 70.0, None), (5, 70.0, None), (6, 72.5, Some([60.0, 90.0]))]
        {
            let plot = plot(rounds);
            assert_eq!((plot.curves[0].points.len(), plot.curves[1].points.len()), (32, 32));
            let mut points = plot.curves[0].points.iter().map(|at| (at.y, at.interval));
            assert!(points.all(|point| point == (median, interval)), "{rounds}");
            let mut run = crate::results::tests::sample();
            run.plots = vec![plot];
            let page = crate::report::html(&run);
            let caption = "than any server. Bands are 95 % intervals over rounds.</p>";
            assert_eq!([page.contains("Bands"), page.contains(caption)], [rounds == 6; 2], "{rounds}");
        }
    }

    #[test]
    fn a_figure_that_is_as_much_the_generators_is_none_and_those_beside_it_are() {
        let (us, second) = (Duration::from_micros, Duration::from_secs);
        let mut seen = Seen::default();
        for _ in 0..998 {
            record(&mut seen.get, second(0), us(80));
            record(&mut seen.lag, second(0), us(5));
        }
        // The generator stood still for 50 ms in the first second; the server in the second one.
        for at in [0, 1] {
            (0..2).for_each(|_| record(&mut seen.get, second(at), us(50_000)));
        }
        (0..2).for_each(|_| record(&mut seen.lag, second(0), us(50_000)));
        record(&mut seen.lag, second(1), us(5));
        let shown = |seconds: Range<usize>| {
            let timed = Timed::of(&seen, "get", seconds);
            // Histograms keep three digits.
            QUANTILES.map(|(_, at)| timed.quantile_us(at).map(|us| (us / 10.0).round()))
        };
        assert_eq!(shown(0..1), [Some(8.0), Some(8.0), None]);
        assert_eq!(shown(1..2), [Some(5_000.0); 3]);
        assert_eq!(shown(2..3), [None; 3]);
        assert_eq!(lateness(&seen, 0.5), Ok(()));
        assert!(lateness(&seen, 0.95).unwrap_err().contains("busy 95 %"));
    }
}
