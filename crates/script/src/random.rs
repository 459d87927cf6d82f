//! `math.random`: numbers as Redis has them, the same on every machine (`lrand48`).

/// What the next number is made of.
#[derive(Debug)]
pub(crate) struct Random(u64);

/// Numbers are below this.
const LIMIT: u64 = 1 << 31;

impl Default for Random {
    fn default() -> Random {
        Random(0x1234_ABCD_330E)
    }
}

impl Random {
    /// Begins anew from a number.
    pub fn seed(&mut self, seed: i32) {
        self.0 = (u64::from(seed as u32) << 16 | 0x330E) & ((1 << 48) - 1);
    }

    /// A number from 0 to below 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        (self.0 >> 17) as f64 % (LIMIT - 1) as f64 / (LIMIT - 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_seed() {
        let draw = |seed| {
            let mut random = Random::default();
            random.seed(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
        // The first of srand48(0).
        assert_eq!((draw(0)[0] * (LIMIT - 1) as f64).round(), 366_850_414.0);
        assert!(draw(-1).iter().all(|n| (0.0..1.0).contains(n)));
    }
}
