//! The place of a value in a picture, and the ticks of an axis.

use crate::results::{Axis, Scale};

/// An axis laid out: values `low` to `high` lie from `start` to `end`, in units of the picture.
#[derive(Clone, Debug)]
pub struct Span {
    pub low: f64,
    pub high: f64,
    pub scale: Scale,
    pub start: f64,
    pub end: f64,
    /// Values that get a tick.
    pub ticks: Vec<f64>,
}

/// Number of ticks of a linear axis, about.
const TICKS: f64 = 6.0;

impl Span {
    /// Lays `axis` over `values`. Linear axes begin at 0 unless the values lie far from it and `from_zero` is not set.
    pub fn new(axis: &Axis, values: &[f64], from_zero: bool, start: f64, end: f64) -> Span {
        let usable = |value: &&f64| value.is_finite() && (axis.scale == Scale::Linear || **value > 0.0);
        let least = values.iter().filter(usable).copied().reduce(f64::min);
        let most = values.iter().filter(usable).copied().reduce(f64::max);
        let (mut low, mut high) = (least.unwrap_or(1.0), most.unwrap_or(1.0));
        match axis.scale {
            Scale::Linear => {
                if from_zero {
                    (low, high) = (low.min(0.0), high.max(0.0));
                }
                (low, high) = (axis.low.unwrap_or(low), axis.high.unwrap_or(high));
                if high <= low {
                    high = low + low.abs().max(1.0);
                }
                let step = step(high - low);
                // A fixed end stays; one from the data is rounded to the next tick.
                if axis.high.is_none() && from_zero {
                    high = (high / step - 1e-9).ceil() * step;
                }
                if axis.low.is_none() && from_zero {
                    low = (low / step + 1e-9).floor() * step;
                }
                let first = (low / step - 1e-9).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                let ticks = (first..=last).map(|n| n as f64 * step).collect();
                Span { low, high, scale: axis.scale, start, end, ticks }
            }
            Scale::Log => {
                (low, high) = (axis.low.unwrap_or(low), axis.high.unwrap_or(high));
                if high <= low {
                    (low, high) = (low / 2.0, high * 2.0);
                }
                if from_zero && axis.low.is_none() {
                    low = magnitudes(low / 10.0, low).last().copied().unwrap_or(low);
                }
                if from_zero && axis.high.is_none() {
                    high = magnitudes(high, high * 10.0).first().copied().unwrap_or(high);
                }
                let mut ticks = magnitudes(low, high);
                if ticks.len() > 9 {
                    ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
                }
                Span { low, high, scale: axis.scale, start, end, ticks }
            }
        }
    }

    /// The place of `value`; none for values without a logarithm.
    pub fn at(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        Some(self.start + share.clamp(-0.01, 1.01) * (self.end - self.start))
    }
}

/// A step of 1, 2 or 5 times a power of ten.
fn step(width: f64) -> f64 {
    let rough = width / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    factor * power
}

/// 1, 2 and 5 times powers of ten between two values.
fn magnitudes(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)))
        .filter(|tick| (low * 0.999..=high * 1.001).contains(tick))
        .collect()
}

/// A tick as a short text: 0.5, 20, 1,500, 20k, 3M.
pub fn label(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Ticks are multiples of 1, 2 or 5: digits after the fourth are rounding.
    let text = format!("{scaled:.4}");
    format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, values: &[f64]) -> Vec<String> {
        Span::new(axis, values, true, 0.0, 100.0).ticks.into_iter().map(label).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let linear = Axis::new("", "", Scale::Linear);
        assert_eq!(ticks(&linear, &[3.0, 97.0]), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(&linear, &[0.0, 0.9]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(ticks(&linear, &[-5.0, 9.0]), ["-5", "0", "5", "10"]);
        assert_eq!(ticks(&linear, &[])[..2], ["0", "0.2"]);
        let log = Axis::new("", "", Scale::Log);
        assert_eq!(ticks(&log, &[2.0, 100.0]), ["2", "5", "10", "20", "50", "100"]);
        assert_eq!(ticks(&log, &[0.0, 90.0, 3e7]), ["100", "1000", "10k", "100k", "1M", "10M"]);
    }

    #[test]
    fn values_lie_in_proportion_and_a_logarithm_has_no_zero() {
        let span = Span::new(&Axis::new("", "", Scale::Linear).between(0.0, 10.0), &[], true, 100.0, 0.0);
        assert_eq!((span.at(0.0), span.at(2.5), span.at(10.0)), (Some(100.0), Some(75.0), Some(0.0)));
        let span = Span::new(&Axis::new("", "", Scale::Log).between(1.0, 100.0), &[], true, 0.0, 2.0);
        assert_eq!(span.at(0.0), None);
        assert!((span.at(10.0).unwrap() - 1.0).abs() < 1e-9);
    }
}
