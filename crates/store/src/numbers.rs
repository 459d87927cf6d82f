//! A set of numbers below a bound, with its lowest and its highest at hand, that takes no memory
//! after it was made.
//!
//! ```text
//! 1   one word        a bit for each word of level 0 that is not 0
//! 0   64 words        a bit for each number
//! ```

/// Bits of a word.
const BITS: u32 = u64::BITS;

/// The set.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// From the numbers up to a single word.
    levels: Vec<Box<[u64]>>,
    count: usize,
}

impl Numbers {
    /// Empty, for numbers below `bound`.
    pub(crate) fn new(bound: u32) -> Numbers {
        let mut levels = Vec::new();
        let mut bits = bound.max(1);
        loop {
            let words = bits.div_ceil(BITS);
            levels.push(vec![0; words as usize].into_boxed_slice());
            if words == 1 {
                return Numbers { levels, count: 0 };
            }
            bits = words;
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds one that is not there.
    pub(crate) fn insert(&mut self, number: u32) {
        let mut number = number;
        for (level, words) in self.levels.iter_mut().enumerate() {
            let (word, bit) = ((number / BITS) as usize, 1 << (number % BITS));
            debug_assert!(level > 0 || words[word] & bit == 0, "it is there");
            words[word] |= bit;
            number /= BITS;
        }
        self.count += 1;
    }

    /// Takes out the lowest.
    pub(crate) fn pop_first(&mut self) -> Option<u32> {
        self.pop(u64::trailing_zeros)
    }

    /// Takes out the highest.
    pub(crate) fn pop_last(&mut self) -> Option<u32> {
        self.pop(|word| BITS - 1 - word.leading_zeros())
    }

    fn pop(&mut self, end: impl Fn(u64) -> u32) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        let number = self.levels.iter().rev().fold(0, |at, words| at * BITS + end(words[at as usize]));
        let mut at = number;
        for words in &mut self.levels {
            let word = &mut words[(at / BITS) as usize];
            *word &= !(1 << (at % BITS));
            if *word != 0 {
                break;
            }
            at /= BITS;
        }
        Some(number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn both_ends_come_out_in_order_whatever_the_bound() {
        for bound in [1, 2, 63, 64, 65, 4096, 4097, 300_000] {
            let mut numbers = Numbers::new(bound);
            let mut model = BTreeSet::new();
            let mut random = 7u64;
            for turn in 0..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = ((random >> 33) % u64::from(bound)) as u32;
                match turn % 5 {
                    0 => assert_eq!(numbers.pop_first(), model.pop_first()),
                    1 => assert_eq!(numbers.pop_last(), model.pop_last()),
                    _ if model.insert(number) => numbers.insert(number),
                    _ => {}
                }
                assert_eq!(numbers.len(), model.len());
            }
            assert!(bound < 4096 || model.len() > 1000, "it was filled");
        }
    }
}
