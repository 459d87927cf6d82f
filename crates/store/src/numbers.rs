//! A set of numbers below a bound, with its lowest and its highest at hand, that takes no memory
//! after it was made.
//!
//! ```text
//! 1   one word        a bit for each word of level 0 that is not 0
//! 0   64 words        a bit for each number
//! ```

/// Bits of a word.
const BITS: u32 = u64::BITS;
/// Numbers of a group.
pub(crate) const GROUP: u32 = 32;
const GROUP_BITS: u64 = (1 << GROUP) - 1;

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

    /// True if the number and the 31 others of its aligned group of 32 are all there.
    pub(crate) fn has_group(&self, number: u32) -> bool {
        let word = self.levels[0].get((number / BITS) as usize).copied().unwrap_or(0);
        word >> (number % BITS / GROUP * GROUP) & GROUP_BITS == GROUP_BITS
    }

    /// Takes out all of a group that is there.
    pub(crate) fn remove_group(&mut self, number: u32) {
        debug_assert!(self.has_group(number));
        let mut at = number;
        let mut bits = GROUP_BITS << (number % BITS / GROUP * GROUP);
        for words in &mut self.levels {
            let word = &mut words[(at / BITS) as usize];
            *word &= !bits;
            if *word != 0 {
                break;
            }
            at /= BITS;
            bits = 1 << (at % BITS);
        }
        self.count -= GROUP as usize;
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

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn both_ends_come_out_in_order_whatever_the_bound() {
        let mut groups = 0;
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
                    2 if turn % 97 == 0 && bound >= 64 => {
                        let group =
                            number / 64 * 64 + number % 2 * 32..number / 64 * 64 + number % 2 * 32 + 32;
                        for number in group.clone().filter(|&number| number < bound) {
                            if model.insert(number) {
                                numbers.insert(number);
                            }
                        }
                        let whole = group.end <= bound;
                        assert_eq!(numbers.has_group(group.start + 7), whole);
                        if whole {
                            numbers.remove_group(group.start + 9);
                            group.clone().for_each(|number| assert!(model.remove(&number)));
                            groups += 1;
                        }
                        assert!(!numbers.has_group(group.start));
                    }
                    _ if model.insert(number) => numbers.insert(number),
                    _ => {}
                }
                assert_eq!(numbers.len(), model.len());
            }
            assert!(bound < 4096 || model.len() > 1000, "it was filled");
        }
        assert!(groups > 100);
    }
}
