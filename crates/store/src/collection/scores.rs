//! Scores of a sorted set: doubles as words in their order, and those of a leaf as differences.
//!
//! ```text
//! word    the double's bits, sign flipped; of a negative one all bits inverted
//! leaf    base 8 │ (word − base) >> shift, in width bytes, × n
//! ```
//!
//! `base` is the leaf's least, `shift` the zeros that all differences end in, `width` what the largest needs: 0 to 8.
//! Whole numbers end in long runs of zeros, and neighbours share what they begin with: 2 to 3 bytes for most.

use super::times;

/// The word of a score. −0 is 0, as it is in order.
#[inline]
pub(super) fn word_of(score: f64) -> u64 {
    debug_assert!(!score.is_nan(), "no score is not a number");
    // −0 + 0 is 0.
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The score of a word.
#[inline]
pub(super) fn score_of(word: u64) -> f64 {
    f64::from_bits(if word >> 63 == 1 { word & !(1 << 63) } else { !word })
}

/// How the words of a leaf are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packing {
    pub(super) base: u64,
    pub(super) shift: u32,
    pub(super) width: usize,
}

impl Packing {
    /// The tightest for ascending words.
    pub(super) fn of(mut words: impl Iterator<Item = u64>) -> Packing {
        let Some(base) = words.next() else { return Packing::default() };
        let all = words.fold(0, |all, word| all | (word - base));
        if all == 0 {
            return Packing { base, shift: 0, width: 0 };
        }
        let shift = all.trailing_zeros();
        let bits = u64::BITS - (all >> shift).leading_zeros();
        Packing { base, shift, width: bits.div_ceil(8) as usize }
    }

    /// The tightest for words in any order.
    pub(super) fn of_any(words: impl Iterator<Item = u64> + Clone) -> Packing {
        let least = words.clone().min();
        Packing::of(least.into_iter().chain(words))
    }

    /// The tightest for ascending words of which all bits are kept.
    pub(super) fn unshifted(mut words: impl Iterator<Item = u64>) -> Packing {
        let Some(base) = words.next() else { return Packing::default() };
        let bits = u64::BITS - (words.last().unwrap_or(base) - base).leading_zeros();
        Packing { base, shift: 0, width: bits.div_ceil(8) as usize }
    }

    /// Writes the differences of `words` to `to`, which has [`Packing::width`] bytes for each.
    pub(super) fn write(&self, words: &[u64], to: &mut [u8]) {
        for (i, word) in words.iter().enumerate() {
            self.write_one(*word, i, to);
        }
    }

    /// Writes the difference of the word at place `i`, where places behind it are written later.
    #[inline]
    pub(super) fn write_one(&self, word: u64, i: usize, to: &mut [u8]) {
        let difference = ((word - self.base) >> self.shift).to_le_bytes();
        let to = &mut to[i * self.width..];
        // A copy of known length is one instruction, any other one a call.
        match to.first_chunk_mut() {
            Some(eight) => *eight = difference,
            None => to[..self.width].copy_from_slice(&difference[..self.width]),
        }
    }

    /// The difference at place `i`.
    #[inline]
    fn read_one(&self, i: usize, from: &[u8]) -> u64 {
        let from = &from[i * self.width..];
        match from.first_chunk() {
            Some(eight) if self.width > 0 => u64::from_le_bytes(*eight) & u64::MAX >> (64 - 8 * self.width),
            _ => {
                let mut bytes = [0; 8];
                bytes[..self.width].copy_from_slice(&from[..self.width]);
                u64::from_le_bytes(bytes)
            }
        }
    }
}

/// The scores of a leaf, or its times, as words.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scores<'a> {
    Packed(Packing, &'a [u8]),
    /// Times of a hash's fields.
    Times(Packing, &'a [u8]),
    /// Words of a leaf that is being built.
    Plain(&'a [u64]),
}

impl Scores<'_> {
    /// There are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Scores::Plain([]))
    }

    /// The word of entry `i`.
    #[inline]
    pub(super) fn at(&self, i: usize) -> u64 {
        match self {
            Scores::Plain(words) => words[i],
            Scores::Packed(packing, differences) => {
                packing.base + (packing.read_one(i, differences) << packing.shift)
            }
            Scores::Times(packing, differences) => times::at(packing, differences, i),
        }
    }

    /// How many of the first `len` come before the first one of which `before` is false.
    #[inline]
    pub(super) fn partition(&self, len: usize, before: impl Fn(u64) -> bool) -> usize {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low.midpoint(high);
            if before(self.at(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_the_order_of_their_scores() {
        let scores = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1e300,
            -2.0,
            -1.0,
            -1e-300,
            -f64::MIN_POSITIVE,
            -5e-324,
            0.0,
            5e-324,
            f64::MIN_POSITIVE,
            1e-300,
            0.5,
            1.0,
            1.0 + f64::EPSILON,
            2.0,
            1e300,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(word_of(pair[0]) < word_of(pair[1]), "{pair:?}");
        }
        for score in scores {
            assert_eq!(score_of(word_of(score)).to_bits(), score.to_bits());
        }
        assert_eq!(word_of(-0.0), word_of(0.0));
        assert!(score_of(word_of(-0.0)).is_sign_positive());
    }

    #[test]
    fn differences_are_as_narrow_as_they_can_be() {
        let packing = |scores: &[f64]| {
            let mut words: Vec<u64> = scores.iter().map(|score| word_of(*score)).collect();
            words.sort_unstable();
            let packing = Packing::of(words.iter().copied());
            let mut bytes = vec![0; words.len() * packing.width];
            packing.write(&words, &mut bytes);
            let packed = Scores::Packed(packing, &bytes);
            for (i, word) in words.iter().enumerate() {
                assert_eq!(packed.at(i), *word);
            }
            for word in &words {
                let before = words.iter().filter(|other| *other < word).count();
                assert_eq!(packed.partition(words.len(), |other| other < *word), before);
            }
            packing.width
        };
        assert_eq!(packing(&[]), 0);
        assert_eq!(packing(&[7.5]), 0);
        assert_eq!(packing(&[7.5, 7.5, 7.5]), 0);
        assert_eq!(packing(&[1.0, 2.0, 4.0, 8.0]), 1);
        assert_eq!(packing(&(0..100).map(|n| 5_000_000.0 + f64::from(n)).collect::<Vec<_>>()), 1);
        assert_eq!(
            packing(&(0..100).map(|n| 1_700_000_000_000.0 + f64::from(n) * 977.0).collect::<Vec<_>>()),
            3
        );
        assert_eq!(packing(&[f64::NEG_INFINITY, 0.1, f64::INFINITY]), 8);
        assert_eq!(packing(&[-1.0, 5e-324, 0.3]), 8);
    }
}
