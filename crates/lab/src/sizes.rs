//! Sizes of values: which value a key has at a version is decided by both alone, so that anybody can
//! tell whether a value has the size it was written with.

use std::fmt;

/// A rule for the size of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Always this.
    Fixed(usize),
    /// Evenly between the two, both included.
    Spread(usize, usize),
    /// One of these, with a chance in proportion to its weight.
    Weighted(Vec<(usize, f64)>),
}

impl Sizes {
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
        }
    }

    /// The largest.
    pub fn most(&self) -> usize {
        match self {
            Sizes::Fixed(bytes) | Sizes::Spread(_, bytes) => *bytes,
            Sizes::Weighted(list) => list.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(bytes) => write!(f, "{bytes} B"),
            Sizes::Spread(least, most) => write!(f, "{least}–{most} B"),
            Sizes::Weighted(list) => write!(f, "{:.0} B on the mean of {} sizes", self.mean(), list.len()),
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
        ] {
            let drawn: Vec<usize> = (0..20_000).map(|key| sizes.of(key, 3)).collect();
            let mean = drawn.iter().sum::<usize>() as f64 / drawn.len() as f64;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{sizes}: {mean}");
            assert!(drawn.iter().all(|&bytes| bytes <= sizes.most() && bytes != 20), "{sizes}");
            assert_eq!(sizes.of(5, 3), drawn[5]);
        }
        let spread = Sizes::Spread(1, 1000);
        assert!((0..10).any(|version| spread.of(1, version) != spread.of(1, 0)));
    }
}
