//! A figure measured in rounds: its median, with an interval.

use serde::{Deserialize, Serialize};

pub use crate::stats::ROUNDS_MIN;
use crate::stats::{COVERAGE, interval, median};

/// A median over rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Median over the rounds.
    pub median: f64,
    /// Its interval of 95 % at least, from order statistics; none with fewer than [`ROUNDS_MIN`] rounds.
    pub interval: Option<[f64; 2]>,
    /// The values of the rounds, in their order.
    pub rounds: Vec<f64>,
}

impl Estimate {
    /// The median of `rounds`; `None` without rounds, or if one of them is not a number.
    pub fn of(rounds: &[f64]) -> Option<Estimate> {
        if rounds.is_empty() || !rounds.iter().all(|value| value.is_finite()) {
            return None;
        }
        Some(Estimate {
            median: median(rounds),
            interval: interval(rounds, COVERAGE),
            rounds: rounds.to_vec(),
        })
    }

    /// Whether it agrees with its rounds, except for the digits that a number loses in a file.
    pub fn is_of_its_rounds(&self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let Some(made) = Estimate::of(&self.rounds) else { return false };
        let intervals = match (self.interval, made.interval) {
            (None, None) => true,
            (Some([low, high]), Some([made_low, made_high])) => near(low, made_low) && near(high, made_high),
            (Some(_), None) | (None, Some(_)) => false,
        };
        near(self.median, made.median) && intervals
    }

    /// A figure that is counted, not measured: it has no interval.
    pub fn exact(value: f64) -> Option<Estimate> {
        Estimate::of(&[value])
    }

    /// `a` over `b`, round by round: disturbances of a whole round cancel out.
    ///
    /// # Panics
    /// If the rounds are not paired.
    pub fn ratio(a: &[f64], b: &[f64]) -> Option<Estimate> {
        assert_eq!(a.len(), b.len(), "a ratio needs both sides of each round");
        Estimate::of(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
    }

    /// `a` over `b` where rounds are not paired: two runs at two times.
    pub fn ratio_of_runs(a: &Estimate, b: &Estimate) -> Option<Estimate> {
        let ratio = a.median / b.median;
        if !ratio.is_finite() {
            return None;
        }
        // If each end has that confidence, the interval has the claimed one.
        let ends =
            |of: &Estimate| interval(&of.rounds, 1.0 - (1.0 - COVERAGE) / 2.0).filter(|[low, _]| *low > 0.0);
        let interval = ends(a).zip(ends(b)).map(|(a, b)| [a[0] / b[1], a[1] / b[0]]);
        Some(Estimate { median: ratio, interval, rounds: vec![ratio] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_estimated_of_nothing_or_of_no_numbers() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[1.0, f64::NAN]), None);
        assert_eq!(Estimate::ratio(&[1.0], &[0.0]), None);
    }

    #[test]
    fn few_rounds_have_no_interval_and_more_hold_their_median() {
        assert_eq!(Estimate::of(&[1.0, 2.0, 1.0, 1.0, 1.0]).unwrap().interval, None);
        let estimate = Estimate::of(&[0.8, 1.3, 1.0, 0.9, 1.1, 1.0]).unwrap();
        let [low, high] = estimate.interval.unwrap();
        assert!(low < estimate.median && estimate.median < high, "{estimate:?}");
    }

    #[test]
    fn ratios_of_paired_rounds_lose_what_disturbed_both() {
        let quiet = [1.0, 5.0, 1.0, 9.0, 1.0, 1.0, 1.0];
        let double = quiet.map(|x| 2.0 * x);
        let ratio = Estimate::ratio(&double, &quiet).unwrap();
        assert_eq!((ratio.median, ratio.interval), (2.0, Some([2.0, 2.0])));
        let runs = Estimate::ratio_of_runs(&Estimate::of(&double).unwrap(), &Estimate::of(&quiet).unwrap());
        let [low, high] = runs.unwrap().interval.unwrap();
        assert!(low < 1.0 && high > 2.0, "unpaired rounds know less: {low} … {high}");
    }
}
