//! A figure measured in rounds: its median, and an interval that says how sure it is.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::stats::median;

/// Bootstrap samples drawn for an interval.
const RESAMPLES: usize = 2_000;
/// Rounds below which an interval would pretend to know something.
pub const ROUNDS_MIN: usize = 3;

/// A median over rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Median over the rounds.
    pub median: f64,
    /// Its 95 % interval, by bootstrap over rounds; none of fewer than [`ROUNDS_MIN`].
    pub interval: Option<[f64; 2]>,
    /// What each round gave, in the order of the rounds.
    pub rounds: Vec<f64>,
}

impl Estimate {
    /// The median of `rounds`; none of none, and none when one of them is no number.
    pub fn of(rounds: &[f64]) -> Option<Estimate> {
        if rounds.is_empty() || !rounds.iter().all(|value| value.is_finite()) {
            return None;
        }
        Some(Estimate { median: median(rounds), interval: interval(rounds), rounds: rounds.to_vec() })
    }

    /// A figure that is counted, not measured: it has no interval.
    pub fn exact(value: f64) -> Option<Estimate> {
        Estimate::of(&[value])
    }

    /// `a` over `b`, round by round: what disturbed a whole round cancels.
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
        let enough = a.rounds.len() >= ROUNDS_MIN && b.rounds.len() >= ROUNDS_MIN;
        let interval = enough.then(|| {
            let mut rng = StdRng::seed_from_u64(1);
            middle((0..RESAMPLES).map(|_| draw(&a.rounds, &mut rng) / draw(&b.rounds, &mut rng)).collect())
        });
        Some(Estimate {
            median: ratio,
            interval: interval.filter(|ends| ends.iter().all(|end| end.is_finite())),
            rounds: vec![ratio],
        })
    }
}

/// The median of as many draws from `rounds` as there are.
fn draw(rounds: &[f64], rng: &mut StdRng) -> f64 {
    let draws: Vec<f64> = (0..rounds.len()).map(|_| rounds[rng.random_range(0..rounds.len())]).collect();
    median(&draws)
}

fn interval(rounds: &[f64]) -> Option<[f64; 2]> {
    if rounds.len() < ROUNDS_MIN {
        return None;
    }
    // A fixed seed: the same data always prints the same interval.
    let mut rng = StdRng::seed_from_u64(1);
    Some(middle((0..RESAMPLES).map(|_| draw(rounds, &mut rng)).collect()))
}

/// The middle 95 % of `medians`.
fn middle(mut medians: Vec<f64>) -> [f64; 2] {
    medians.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
    [at(0.025), at(0.975)]
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
        assert_eq!(Estimate::of(&[1.0, 2.0]).unwrap().interval, None);
        let estimate = Estimate::of(&[0.8, 1.3, 1.0, 0.9, 1.1]).unwrap();
        let [low, high] = estimate.interval.unwrap();
        assert!(low < estimate.median && estimate.median < high, "{estimate:?}");
    }

    #[test]
    fn ratios_of_paired_rounds_lose_what_disturbed_both() {
        let quiet = [1.0, 5.0, 1.0, 9.0, 1.0];
        let double = quiet.map(|x| 2.0 * x);
        let ratio = Estimate::ratio(&double, &quiet).unwrap();
        assert_eq!((ratio.median, ratio.interval), (2.0, Some([2.0, 2.0])));
        let runs = Estimate::ratio_of_runs(&Estimate::of(&double).unwrap(), &Estimate::of(&quiet).unwrap());
        let [low, high] = runs.unwrap().interval.unwrap();
        assert!(low < 1.0 && high > 2.0, "unpaired rounds know less: {low} … {high}");
    }
}
