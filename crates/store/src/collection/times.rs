//! Times at which fields of a hash expire, as words: those of a leaf as differences from the earliest.
//!
//! ```text
//! word    milliseconds since the Unix epoch, all ones for a field that never expires
//! leaf    base 8 │ (word − base) >> shift, in width bytes, × n       all ones: never
//! ```
//!
//! Times lie as scores do, except that the largest number of a width is kept for *never*. Fields that were given so many
//! seconds each take 2 to 4 bytes; where all of a leaf expire at one time they take none.

use super::scores::Packing;
use crate::Millis;

/// The word of a field that never expires.
pub(super) const NEVER: u64 = u64::MAX;

/// The word of a time, of which 0 is never.
#[inline]
pub(super) fn word_of(at: Millis) -> u64 {
    if at == 0 { NEVER } else { at }
}

/// The time of a word; 0 is never.
#[inline]
pub(super) fn time_of(word: u64) -> Millis {
    if word == NEVER { 0 } else { word }
}

/// The earliest of some words; never, if there is none.
pub(super) fn soonest(words: &[u64]) -> u64 {
    words.iter().copied().min().unwrap_or(NEVER)
}

/// The tightest packing of words of which one is a time.
pub(super) fn packing(words: &[u64]) -> Packing {
    let base = soonest(words);
    debug_assert!(base != NEVER, "some field expires");
    let (mut all, mut most, mut never) = (0, 0, false);
    for &word in words {
        if word == NEVER {
            never = true;
        } else {
            all |= word - base;
            most = most.max(word - base);
        }
    }
    let shift = if all == 0 { 0 } else { all.trailing_zeros() };
    let most = most >> shift;
    if most == 0 {
        return Packing { base, shift: 0, width: usize::from(never) };
    }
    // One more than there are, for never.
    let bits = u64::BITS - most.saturating_add(1).leading_zeros();
    Packing { base, shift, width: bits.div_ceil(8) as usize }
}

/// All ones in so many bytes.
fn ones(width: usize) -> u64 {
    if width == 0 { 0 } else { NEVER >> (64 - 8 * width) }
}

/// The word at place `i`.
#[inline]
pub(super) fn at(packing: &Packing, differences: &[u8], i: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..packing.width].copy_from_slice(&differences[i * packing.width..][..packing.width]);
    let difference = u64::from_le_bytes(bytes);
    if packing.width > 0 && difference == ones(packing.width) {
        return NEVER;
    }
    packing.base + (difference << packing.shift)
}

/// Writes the differences of `words` to `to`, which has as many bytes as the packing says for each.
pub(super) fn write(packing: &Packing, words: &[u64], to: &mut [u8]) {
    let width = packing.width;
    for (i, &word) in words.iter().enumerate() {
        let difference = if word == NEVER { ones(width) } else { (word - packing.base) >> packing.shift };
        to[i * width..][..width].copy_from_slice(&difference.to_le_bytes()[..width]);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// How wide each is, once they have come back.
    fn comes_back(words: &[u64]) -> usize {
        let packing = packing(words);
        let mut bytes = vec![0; packing.width * words.len()];
        write(&packing, words, &mut bytes);
        for (i, word) in words.iter().enumerate() {
            assert_eq!(at(&packing, &bytes, i), *word, "{words:?} at {i}");
        }
        packing.width
    }

    #[test]
    fn times_and_never_come_back_in_as_few_bytes_as_they_need() {
        const T: u64 = 1_700_000_000_123;
        assert_eq!(comes_back(&[T]), 0);
        assert_eq!(comes_back(&[T, T, T]), 0);
        assert_eq!(comes_back(&[T, NEVER, T]), 1);
        assert_eq!(comes_back(&[NEVER, T + 1, T]), 1);
        // Whole seconds end in three zeros: within eight minutes, and within a day.
        assert_eq!(comes_back(&[T, T + 1000, T + 524_000]), 2);
        assert_eq!(comes_back(&[T, T + 1000, NEVER, T + 86_400_000]), 3);
        for width in 1..=7 {
            let most = (1_u64 << (8 * width)) - 2;
            // One is odd, so that nothing is cut off.
            assert_eq!(comes_back(&[1, 2, 1 + most]), width, "as many as there are words");
            assert_eq!(comes_back(&[1, NEVER, 2, 1 + most]), width);
            assert_eq!(comes_back(&[1, 2, 2 + most]), width + 1, "the last one is for never");
        }
        assert_eq!(comes_back(&[0, 1, NEVER - 1]), 8);
        assert_eq!(comes_back(&[NEVER, 0, NEVER - 1]), 8);
    }

    #[test]
    fn words_of_times_say_never_for_0() {
        assert_eq!((word_of(0), time_of(NEVER)), (NEVER, 0));
        assert_eq!((word_of(7), time_of(7)), (7, 7));
        assert_eq!((soonest(&[]), soonest(&[NEVER, 5, 9])), (NEVER, 5));
    }
}
