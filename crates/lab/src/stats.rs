//! Medians, paired ratios and their intervals.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Bootstrap samples drawn for an interval.
const RESAMPLES: usize = 4_000;

/// The middle of `values` (the mean of the middle two of an even number); NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The least of `values`; NaN of none.
pub fn min(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::min).unwrap_or(f64::NAN)
}

/// A ratio of two things measured in the same rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the ratios of the rounds.
    pub median: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Ratio {
    /// `a` over `b`, round by round; the interval is the percentile bootstrap over rounds.
    ///
    /// # Panics
    /// If the rounds are not paired.
    pub fn paired(a: &[f64], b: &[f64]) -> Ratio {
        assert_eq!(a.len(), b.len(), "a ratio needs both sides of each round");
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        if ratios.is_empty() {
            return Ratio { median: f64::NAN, low: f64::NAN, high: f64::NAN };
        }
        // A fixed seed: the same data always prints the same interval.
        let mut rng = StdRng::seed_from_u64(1);
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let draw: Vec<f64> =
                    (0..ratios.len()).map(|_| ratios[rng.random_range(0..ratios.len())]).collect();
                median(&draw)
            })
            .collect();
        medians.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
        Ratio { median: median(&ratios), low: at(0.025), high: at(0.975) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(min(&[2.0, 1.0]), 1.0);
    }

    #[test]
    fn a_ratio_is_taken_within_rounds_so_that_common_disturbance_cancels() {
        let quiet = [1.0, 5.0, 1.0, 9.0, 1.0];
        let double: Vec<f64> = quiet.iter().map(|x| 2.0 * x).collect();
        assert_eq!(Ratio::paired(&double, &quiet), Ratio { median: 2.0, low: 2.0, high: 2.0 });
    }

    #[test]
    fn the_interval_holds_the_median_and_grows_with_the_noise() {
        let ones = [1.0; 9];
        let noisy = [0.8, 1.3, 1.0, 0.9, 1.1, 1.0, 1.2, 0.95, 1.05];
        let ratio = Ratio::paired(&noisy, &ones);
        assert!(ratio.low <= ratio.median && ratio.median <= ratio.high);
        assert!(ratio.low < 1.0 && ratio.high > 1.0, "{ratio:?}");
    }
}
