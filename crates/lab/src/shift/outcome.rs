//! The outcome of one shift: the time until the hits were back, and the number of lost hits.

use std::time::Duration;

use super::plan::Plan;
use super::seen::Bin;
use super::visit::Visit;

/// A hit ratio is back when a second of it is at least this share of the final one.
pub const BACK_SHARE: f64 = 0.95;

/// One shift of one visit.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Hit ratio in the last half of the phase before.
    pub before: f64,
    /// The lowest ratio of a second after the shift.
    pub lowest: f64,
    /// Hit ratio in the last quarter of the phase.
    pub last: f64,
    /// Seconds until as many bytes of new values were written as the memory holds.
    pub written_s: Option<f64>,
    /// Seconds until the ratio was back, measured against `last`.
    pub back_s: Option<f64>,
    /// Seconds until the ratio was back, measured against that of a fresh server, if there was one.
    pub back_to_fresh_s: Option<f64>,
    /// Hits that a server with the final ratio would have had in addition.
    pub lost_hits: f64,
    /// Pages that moved between classes.
    pub pages_moved: f64,
}

/// Bins of a second, at least one.
fn second(plan: &Plan) -> usize {
    ((1.0 / plan.bin.as_secs_f64()).round() as usize).max(1)
}

fn ratio(bins: &[Bin]) -> f64 {
    let (gets, hits) = bins.iter().fold((0, 0), |(gets, hits), bin| (gets + bin.gets, hits + bin.hits));
    if gets == 0 { 0.0 } else { hits as f64 / gets as f64 }
}

/// Hit ratios over runs of `width` bins, one after the other; none where there were no requests.
pub fn series(bins: &[Bin], width: usize) -> Vec<Option<f64>> {
    bins.chunks(width).map(|bins| bins.iter().any(|bin| bin.gets > 0).then(|| ratio(bins))).collect()
}

/// The outcome of shift number `shift` (0 is the first); `fresh` is the hit ratio of a server that had only the phase after it.
pub fn of(plan: &Plan, visit: &Visit, shift: usize, fresh: Option<f64>) -> Outcome {
    let at = |time: Duration| (time.as_secs_f64() / plan.bin.as_secs_f64()).round() as usize;
    let start = at(plan.shifts()[shift]);
    let end = (start + at(plan.after)).min(visit.seen.bins.len());
    let previous = if shift == 0 { 0 } else { at(plan.shifts()[shift - 1]) };
    let bins = &visit.seen.bins[start..end];
    let (second, bin_s) = (second(plan), plan.bin.as_secs_f64());
    let last = ratio(&bins[bins.len() * 3 / 4..]);
    let seconds = || bins.windows(second).map(ratio);
    let back =
        |goal: f64| seconds().position(|ratio| ratio >= BACK_SHARE * goal).map(|bin| (bin as f64) * bin_s);
    let mut written_bytes = 0;
    let written = bins.iter().position(|bin| {
        written_bytes += bin.set_bytes;
        written_bytes >= plan.capacity_bytes()
    });
    let goal = fresh.unwrap_or(last);
    let short = |bin: &Bin| (goal * bin.gets as f64 - bin.hits as f64).max(0.0);
    let moved_by = |time: f64| {
        let samples = visit.samples.iter().filter(|sample| sample.at_s <= time);
        samples.map(|sample| sample.pages_moved).max().unwrap_or(0) as f64
    };
    let start_s = plan.shifts()[shift].as_secs_f64();
    Outcome {
        before: ratio(&visit.seen.bins[previous + (start - previous) / 2..start]),
        lowest: seconds().fold(1.0, f64::min),
        last,
        written_s: written.map(|bin| (bin + 1) as f64 * bin_s),
        back_s: back(last),
        back_to_fresh_s: fresh.and_then(back),
        lost_hits: bins.iter().map(short).sum(),
        pages_moved: moved_by(start_s + plan.after.as_secs_f64()) - moved_by(start_s),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::super::seen::Seen;
    use super::super::visit::Sample;
    use super::*;

    #[test]
    fn a_dip_is_dated_measured_and_counted() {
        let mut plan = plan();
        plan.phases.truncate(2);
        plan.after = Duration::from_secs(5);
        // 2 s at 0.8, then 0.2, 0.4, 0.6, 0.8, 0.8 for a second each; 400 gets a second.
        let ratios = [80, 80, 20, 40, 60, 80, 80];
        let bin = |hits: u64| Bin { gets: 100, hits, sets: 100 - hits, set_bytes: (100 - hits) * 5_243 };
        let bins: Vec<Bin> = ratios.iter().flat_map(|&hits| vec![bin(hits); 4]).collect();
        let sample = |at_s, pages_moved| Sample { at_s, pages_moved, ..Sample::default() };
        let samples = vec![sample(0.0, 3), sample(2.0, 3), sample(4.0, 10), sample(6.9, 11)];
        let visit = Visit {
            seen: Seen { bins, ..Seen::default() },
            warm: Seen::default(),
            samples,
            offered: 2_800.0,
            busy: 0.1,
            waited: Default::default(),
            server_counts: None,
        };
        let outcome = of(&plan, &visit, 0, Some(0.8));
        assert_eq!((outcome.before, outcome.lowest, outcome.last), (0.8, 0.2, 0.8));
        // 0.76 is reached by the second that begins 2.75 s after the shift: a quarter at 0.6.
        assert_eq!((outcome.back_s, outcome.back_to_fresh_s), (Some(3.0), Some(3.0)));
        // 320 + 120 sets of 5,243 bytes are 2.2 MB: after 0.75 s more than 1 MiB is written.
        assert_eq!(outcome.written_s, Some(0.75));
        assert!((outcome.lost_hits - (240.0 + 160.0 + 80.0)).abs() < 1e-6, "{}", outcome.lost_hits);
        assert_eq!(outcome.pages_moved, 8.0);
        let never = of(&plan, &visit, 0, Some(0.9));
        assert_eq!(never.back_to_fresh_s, None);
    }

    #[test]
    fn a_second_in_which_nothing_was_asked_has_no_ratio() {
        let bins =
            [Bin { gets: 4, hits: 1, ..Bin::default() }, Bin::default(), Bin::default(), Bin::default()];
        assert_eq!(series(&bins, 2), [Some(0.25), None]);
    }
}
