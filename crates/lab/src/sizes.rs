//! Sizes of values: the key and the version alone decide the size, so that a reader can check whether a value has the right one.

use std::fmt;

/// A rule for the size of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Always this size.
    Fixed(usize),
    /// A random size between the two, both included, each as likely.
    Spread(usize, usize),
    /// One of these, with a chance in proportion to its weight.
    Weighted(Vec<(usize, f64)>),
    /// A random size within one of these ranges, both ends included; a range has a chance in proportion to its weight.
    Histogram(Vec<((usize, usize), f64)>),
}

/// The largest value that a command line may ask for.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

impl Sizes {
    /// Reads an argument: `100`, evenly from `50-150`, by weight `100:3,1000:1`, or a histogram `1-99:8,100-999:2`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Sizes, String> {
        let number = |text: &str| {
            let bytes = text.parse::<usize>().map_err(|error| format!("{text:?}: {error}"))?;
            if bytes <= VALUE_BYTES_MAX {
                Ok(bytes)
            } else {
                Err(format!("more than {VALUE_BYTES_MAX} bytes"))
            }
        };
        let range = |text: &str| {
            let (least, most) = text.split_once('-').unwrap_or((text, text));
            let (least, most) = (number(least)?, number(most)?);
            if least <= most { Ok((least, most)) } else { Err("from the larger to the less".to_owned()) }
        };
        if !text.contains([',', ':']) {
            let (least, most) = range(text)?;
            return Ok(if least == most { Sizes::Fixed(least) } else { Sizes::Spread(least, most) });
        }
        let part = |part: &str| {
            let (sizes, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight = weight.parse::<f64>().map_err(|error| format!("{weight:?}: {error}"))?;
            if weight.is_finite() && weight > 0.0 {
                Ok((range(sizes)?, weight))
            } else {
                Err(format!("a weight of {weight}"))
            }
        };
        let parts = text.split(',').map(part).collect::<Result<Vec<_>, String>>()?;
        Ok(match parts.iter().all(|((least, most), _)| least == most) {
            true => Sizes::Weighted(parts.into_iter().map(|((bytes, _), weight)| (bytes, weight)).collect()),
            false => Sizes::Histogram(parts),
        })
    }

    /// The size of the value of `key` at `version`.
    pub fn of(&self, key: u32, version: u64) -> usize {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Spread(least, most) => {
                let width = (most - least + 1) as u64;
                least + (chance(key, version) * width as f64) as usize
            }
            Sizes::Weighted(list) => {
                let total: f64 = list.iter().map(|(_, weight)| weight).sum();
                let mut rest = chance(key, version) * total;
                for (bytes, weight) in list {
                    rest -= weight;
                    if rest < 0.0 {
                        return *bytes;
                    }
                }
                list.last().map_or(0, |(bytes, _)| *bytes)
            }
            Sizes::Histogram(list) => {
                let total: f64 = list.iter().map(|(_, weight)| weight).sum();
                let mut rest = chance(key, version) * total;
                for ((least, most), weight) in list {
                    if rest < *weight {
                        return least + (rest / weight * (most - least + 1) as f64) as usize;
                    }
                    rest -= weight;
                }
                list.last().map_or(0, |((_, most), _)| *most)
            }
        }
    }

    /// The mean size.
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(bytes) => *bytes as f64,
            Sizes::Spread(least, most) => (least + most) as f64 / 2.0,
            Sizes::Weighted(list) => {
                let total: f64 = list.iter().map(|(_, weight)| weight).sum();
                list.iter().map(|(bytes, weight)| *bytes as f64 * weight).sum::<f64>() / total
            }
            Sizes::Histogram(list) => {
                let total: f64 = list.iter().map(|(_, weight)| weight).sum();
                let mean = |(least, most): (usize, usize)| (least + most) as f64 / 2.0;
                list.iter().map(|(range, weight)| mean(*range) * weight).sum::<f64>() / total
            }
        }
    }

    /// The largest size.
    pub fn most(&self) -> usize {
        match self {
            Sizes::Fixed(bytes) | Sizes::Spread(_, bytes) => *bytes,
            Sizes::Weighted(list) => list.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
            Sizes::Histogram(list) => list.iter().map(|((_, most), _)| *most).max().unwrap_or(0),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(bytes) => write!(f, "{bytes} B"),
            Sizes::Spread(least, most) => write!(f, "{least}–{most} B"),
            Sizes::Weighted(list) => write!(f, "{:.0} B on the mean of {} sizes", self.mean(), list.len()),
            Sizes::Histogram(list) => write!(f, "{:.0} B on the mean of {} ranges", self.mean(), list.len()),
        }
    }
}

/// A number in [0, 1) that looks random and is the same for the same key and version.
fn chance(key: u32, version: u64) -> f64 {
    let mut x = (u64::from(key) ^ version.rotate_left(32)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ x >> 31) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_to_their_rule_and_mean() {
        for sizes in [
            Sizes::Fixed(7),
            Sizes::Spread(50, 150),
            Sizes::Weighted(vec![(10, 3.0), (1000, 1.0), (20, 0.0)]),
            Sizes::Histogram(vec![((1, 19), 3.0), ((1000, 2000), 1.0), ((30, 30), 0.5)]),
        ] {
            let drawn: Vec<usize> = (0..20_000).map(|key| sizes.of(key, 3)).collect();
            let mean = drawn.iter().sum::<usize>() as f64 / drawn.len() as f64;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{sizes}: {mean}");
            assert!(drawn.iter().all(|&bytes| bytes <= sizes.most() && bytes != 20), "{sizes}");
            assert_eq!(sizes.of(5, 3), drawn[5]);
        }
        let histogram = Sizes::Histogram(vec![((1, 9), 3.0), ((100, 109), 1.0)]);
        let mut seen = [0; 110];
        (0..40_000).for_each(|key| seen[histogram.of(key, 1)] += 1);
        let (small, large) = (&seen[1..10], &seen[100..110]);
        assert!(small.iter().all(|&n| (2_900..3_800).contains(&n)), "{small:?}");
        assert!(large.iter().all(|&n| (800..1_200).contains(&n)), "{large:?}");
        let spread = Sizes::Spread(1, 1000);
        assert!((0..10).any(|version| spread.of(1, version) != spread.of(1, 0)));
    }

    #[test]
    fn sizes_are_read_from_words() {
        for (text, sizes) in [
            ("100", Sizes::Fixed(100)),
            ("50-150", Sizes::Spread(50, 150)),
            ("100:3,1000", Sizes::Weighted(vec![(100, 3.0), (1000, 1.0)])),
            ("1-99:8,100:0.5", Sizes::Histogram(vec![((1, 99), 8.0), ((100, 100), 0.5)])),
        ] {
            assert_eq!(Sizes::parse(text), Ok(sizes), "{text}");
        }
        for bad in ["", "x", "9-1", "5:0", "5:inf", "1,", "99999999999"] {
            assert!(Sizes::parse(bad).is_err(), "{bad}");
        }
    }
}
