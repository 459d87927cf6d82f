//! Keys: their form, their number, and the choice of the next.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// A set of keys, numbered from `first` on, all of the same length, with values of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keyspace {
    /// Number of the first key.
    pub first: u32,
    /// How many keys there are.
    pub count: u32,
    /// Bytes of a key, at least [`KEY_BYTES_MIN`].
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// The shortest key: a prefix of four bytes and ten digits, enough for every number.
pub const KEY_BYTES_MIN: usize = 14;

impl Keyspace {
    /// `count` keys of 16 bytes with values of `value_bytes`.
    pub fn new(count: u32, value_bytes: usize) -> Keyspace {
        Keyspace { first: 0, count, key_bytes: 16, value_bytes }
    }

    /// Appends key number `id`: `prefix`, then the number with leading zeros.
    pub fn write(&self, out: &mut Vec<u8>, prefix: Prefix, id: u32) {
        let start = out.len();
        out.extend_from_slice(prefix.bytes());
        out.resize(start + self.key_bytes, b'0');
        let mut rest = id;
        for digit in out[start..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// The beginning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Keys that a fill has stored.
    Present,
    /// Keys that nothing stores.
    Absent,
    /// Keys whose values are decimal numbers.
    Number,
}

impl Prefix {
    /// Its length in bytes.
    pub const BYTES: usize = 4;

    fn bytes(self) -> &'static [u8; Prefix::BYTES] {
        match self {
            Prefix::Present => b"key:",
            Prefix::Absent => b"nil:",
            Prefix::Number => b"num:",
        }
    }
}

/// The rule by which keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Each key as likely as any other.
    Uniform,
    /// Key of rank r with a chance ∝ r^-α; ranks are scattered over the numbers, so that popular
    /// keys are no neighbours.
    Zipf(f64),
    /// Always the first key.
    One,
    /// The first key with this chance, else any other, each as likely.
    Hot(f64),
    /// One after the other, each once; connections share the keys out.
    Sequential,
}

/// Draws keys.
#[derive(Debug)]
pub struct Chooser {
    keyspace: Keyspace,
    rule: Rule,
    rng: StdRng,
}

#[derive(Debug)]
enum Rule {
    Uniform,
    Zipf(Zipf<f64>),
    One,
    Hot(f64),
    Sequential(u32),
}

/// A prime above every possible key count, so that multiplying by it permutes the ranks.
const SCATTER: u64 = 4_294_967_311;

impl Chooser {
    /// A chooser whose draws depend on `seed` alone.
    ///
    /// # Panics
    /// If there are no keys, or a Zipf exponent is negative or not a number.
    pub fn new(keyspace: Keyspace, choice: Choice, seed: u64) -> Chooser {
        assert!(keyspace.count > 0, "a choice needs at least one key");
        let rule = match choice {
            Choice::Uniform => Rule::Uniform,
            Choice::Zipf(alpha) => {
                Rule::Zipf(Zipf::new(f64::from(keyspace.count), alpha).expect("exponent is not negative"))
            }
            Choice::One => Rule::One,
            Choice::Hot(share) => Rule::Hot(share),
            Choice::Sequential => Rule::Sequential(0),
        };
        Chooser { keyspace, rule, rng: StdRng::seed_from_u64(seed) }
    }

    /// The number of the next key.
    pub fn next_key(&mut self) -> u32 {
        let count = self.keyspace.count;
        let index = match &mut self.rule {
            Rule::Uniform => self.rng.random_range(0..count),
            Rule::Zipf(zipf) => {
                let rank = (zipf.sample(&mut self.rng) as u64).clamp(1, count.into()) - 1;
                (rank * SCATTER % u64::from(count)) as u32
            }
            Rule::One => 0,
            Rule::Hot(share) if count == 1 || self.rng.random::<f64>() < *share => 0,
            Rule::Hot(_) => self.rng.random_range(1..count),
            Rule::Sequential(next) => {
                let index = *next % count;
                *next = index + 1;
                index
            }
        };
        self.keyspace.first + index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_length_asked_for_and_their_number_in_decimal() {
        let keyspace = Keyspace::new(10, 0);
        let mut out = Vec::new();
        keyspace.write(&mut out, Prefix::Present, 1205);
        keyspace.write(&mut out, Prefix::Absent, 0);
        assert_eq!(out, b"key:000000001205nil:000000000000");
        let shortest = Keyspace { key_bytes: KEY_BYTES_MIN, ..keyspace };
        out.clear();
        shortest.write(&mut out, Prefix::Present, u32::MAX);
        assert_eq!(out, b"key:4294967295");
    }

    #[test]
    fn sequential_visits_each_key_once_a_round() {
        let keyspace = Keyspace { first: 7, ..Keyspace::new(3, 0) };
        let mut chooser = Chooser::new(keyspace, Choice::Sequential, 0);
        let drawn: Vec<u32> = (0..4).map(|_| chooser.next_key()).collect();
        assert_eq!(drawn, [7, 8, 9, 7]);
    }

    #[test]
    fn zipf_prefers_one_key_and_reaches_the_others() {
        for alpha in [0.0, 0.9, 1.0, 1.3] {
            let mut chooser = Chooser::new(Keyspace::new(100, 0), Choice::Zipf(alpha), 1);
            let mut seen = [0u32; 100];
            (0..20_000).for_each(|_| seen[chooser.next_key() as usize] += 1);
            let reached = seen.iter().filter(|&&n| n > 0).count();
            assert!(reached > 90, "α {alpha}: {reached}");
            let top = *seen.iter().max().unwrap();
            assert_eq!(top > 2_000, alpha > 0.5, "α {alpha}: {top}");
        }
    }

    #[test]
    fn a_hot_key_has_its_share_and_the_others_the_rest() {
        let mut chooser = Chooser::new(Keyspace::new(11, 0), Choice::Hot(0.5), 1);
        let mut seen = [0u32; 11];
        (0..20_000).for_each(|_| seen[chooser.next_key() as usize] += 1);
        assert!((9_500..10_500).contains(&seen[0]), "{seen:?}");
        assert!(seen[1..].iter().all(|n| (800..1_200).contains(n)), "{seen:?}");
    }

    #[test]
    fn the_same_seed_draws_the_same_keys() {
        let draw = |seed| {
            let mut chooser = Chooser::new(Keyspace::new(1_000_000, 0), Choice::Uniform, seed);
            (0..8).map(|_| chooser.next_key()).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
