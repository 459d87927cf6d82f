//! Members of several collections put together: each once, in the order in which they came, with a score and a mark.
//!
//! ```text
//! texts  a b c …            slots   hash of a member ─▶ its number, or the next slot
//! ```

use std::hash::{BuildHasher, RandomState};

use super::copied::Copied;

/// Bytes that a member takes beside its text: its end, its score, its mark, two slots, and twice, since vectors grow so.
pub(crate) const MEMBER_BYTES: usize = 2 * (8 + 8 + 4 + 8);
const EMPTY: u32 = u32::MAX;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;

/// Some members.
#[derive(Debug)]
pub(crate) struct Members {
    texts: Copied,
    scores: Vec<f64>,
    marks: Vec<u32>,
    slots: Vec<u32>,
    hasher: RandomState,
}

impl Members {
    pub fn new() -> Members {
        Members {
            texts: Copied::default(),
            scores: Vec::new(),
            marks: Vec::new(),
            slots: vec![EMPTY; SLOTS_MIN],
            hasher: RandomState::new(),
        }
    }

    /// The slot of a member, or the one that it would have.
    fn slot(&self, text: &[u8]) -> usize {
        let mut slot = self.hasher.hash_one(text) as usize % self.slots.len();
        while self.slots[slot] != EMPTY && self.texts.at(self.slots[slot] as usize) != text {
            slot = (slot + 1) % self.slots.len();
        }
        slot
    }

    /// The number of a member.
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        let number = self.slots[self.slot(text)];
        (number != EMPTY).then_some(number as usize)
    }

    /// Adds a member that is not there; or the number of the one that is.
    pub fn insert(&mut self, text: &[u8], score: f64, mark: u32) -> Option<usize> {
        let slot = self.slot(text);
        if self.slots[slot] != EMPTY {
            return Some(self.slots[slot] as usize);
        }
        self.slots[slot] = self.texts.len() as u32;
        self.texts.push(text);
        self.scores.push(score);
        self.marks.push(mark);
        if 2 * self.texts.len() > self.slots.len() {
            self.slots = vec![EMPTY; 2 * self.slots.len()];
            for number in 0..self.texts.len() {
                let slot = self.slot(self.texts.at(number));
                self.slots[slot] = number as u32;
            }
        }
        None
    }

    pub fn score(&mut self, number: usize) -> &mut f64 {
        &mut self.scores[number]
    }

    pub fn mark(&mut self, number: usize) -> &mut u32 {
        &mut self.marks[number]
    }

    /// The numbers of those with this mark, in order.
    pub fn marked(&self, mark: u32) -> Vec<u32> {
        (0..self.texts.len() as u32).filter(|&number| self.marks[number as usize] == mark).collect()
    }

    /// Sorts numbers by score, and by text where that is the same.
    pub fn sort(&self, numbers: &mut [u32]) {
        let key = |number: &u32| (self.scores[*number as usize], self.texts.at(*number as usize));
        numbers.sort_unstable_by(|one, two| {
            let (one, two) = (key(one), key(two));
            one.0.total_cmp(&two.0).then(one.1.cmp(two.1))
        });
    }

    /// A member with its score.
    pub fn pair(&self, number: u32) -> (&[u8], f64) {
        (self.texts.at(number as usize), self.scores[number as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_there_once_in_the_order_in_which_they_came() {
        let mut members = Members::new();
        for n in 0..1000_u32 {
            assert_eq!(members.insert(n.to_string().as_bytes(), f64::from(n), 1), None);
            assert_eq!(members.insert((n / 2).to_string().as_bytes(), 0.0, 7), Some(n as usize / 2));
        }
        for n in 0..1000_usize {
            assert_eq!(members.find(n.to_string().as_bytes()), Some(n));
            assert_eq!(members.pair(n as u32), (n.to_string().as_bytes(), n as f64));
        }
        assert_eq!(members.find(b""), None);
        assert_eq!(members.find(b"1000"), None);
        *members.mark(5) = 2;
        assert_eq!(members.marked(2), [5]);
        assert_eq!(members.marked(1).len(), 999);
        *members.score(5) = 0.0;
        let mut numbers = vec![6, 5, 1, 0];
        members.sort(&mut numbers);
        assert_eq!(numbers, [0, 5, 1, 6]);
    }
}
