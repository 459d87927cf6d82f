//! Members of several collections put together: each once, in the order in which they were added, with a score and a mark.
//!
//! ```text
//! rows     text, score of each member       hashes, nexts, marks   of each
//! heads    the first member of each bucket; there are as many buckets as members, and each new member splits one
//! ```

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use larder_store::{Collection, Element};

use crate::redis::copied::Copied;

/// Bytes of a member beside its text: its end and score, its mark, its hash, the next of its bucket, and a bucket.
pub(crate) const MEMBER_BYTES: usize = ROW_BYTES + 4 * 4;
/// Bytes of a row beside its text.
pub(crate) const ROW_BYTES: usize = 8 + 8;
/// No member.
const NONE: u32 = u32::MAX;
/// Buckets at the beginning.
const HEADS_MIN: usize = 16;
/// Most members of a run, which are sorted together.
pub(crate) const RUN: usize = 512;
/// Most bytes of a run, unless it is one member: members that are alike are compared some ten times, in 2 ms by reckoning.
pub(crate) const RUN_BYTES: usize = 1 << 20;
/// Work to compare the bytes of a member, in copies of them, about.
pub(crate) const COMPARES: u64 = 4;

/// Members with their scores, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    texts: Copied,
    scores: Vec<f64>,
}

impl Rows {
    pub fn push(&mut self, text: &[u8], score: f64) {
        self.texts.push(text);
        self.scores.push(score);
    }

    /// Adds an element of a collection.
    pub fn push_element_of(&mut self, there: &Collection<'_>, element: &Element<'_>, score: f64) {
        self.texts.push_element_of(there, element);
        self.scores.push(score);
    }

    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        self.texts.bytes()
    }

    /// A member with its score.
    pub fn at(&self, i: usize) -> (&[u8], f64) {
        (self.texts.at(i), self.scores[i])
    }

    pub fn score_mut(&mut self, i: usize) -> &mut f64 {
        &mut self.scores[i]
    }

    /// The members of the run that begins here, and their bytes.
    pub fn run_from(&self, start: usize) -> (Range<usize>, usize) {
        let (mut end, mut bytes) = (start, 0);
        while end < self.len().min(start + RUN) {
            let more = self.texts.at(end).len();
            if end > start && bytes + more > RUN_BYTES {
                break;
            }
            (end, bytes) = (end + 1, bytes + more);
        }
        (start..end, bytes)
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.texts.clear();
        self.scores.clear();
    }

    /// Compares two members by score, and by text if the scores are equal.
    pub fn compare(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (self.at(one as usize), self.at(other as usize));
        // Scores are never NaN, and −0 equals 0.
        one.1.partial_cmp(&other.1).unwrap_or(Ordering::Equal).then(one.0.cmp(other.0))
    }
}

/// A set of members, with marks.
#[derive(Debug)]
pub(crate) struct Members {
    pub rows: Rows,
    marks: Vec<bool>,
    marked: usize,
    hashes: Vec<u32>,
    nexts: Vec<u32>,
    heads: Vec<u32>,
    hasher: RandomState,
}

impl Members {
    pub fn new() -> Members {
        Members {
            rows: Rows::default(),
            marks: Vec::new(),
            marked: 0,
            hashes: Vec::new(),
            nexts: Vec::new(),
            heads: vec![NONE; HEADS_MIN],
            hasher: RandomState::new(),
        }
    }

    fn hash(&self, text: &[u8]) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// The bucket of a hash: by its lowest bits, or by one bit less if that bucket was not split yet.
    fn bucket(&self, hash: u32) -> usize {
        let wide = self.heads.len().next_power_of_two();
        let bucket = hash as usize & (wide - 1);
        if bucket < self.heads.len() { bucket } else { bucket & (wide / 2 - 1) }
    }

    fn find_in(&self, text: &[u8], hash: u32) -> Option<usize> {
        let mut number = self.heads[self.bucket(hash)];
        while number != NONE {
            let i = number as usize;
            if self.hashes[i] == hash && self.rows.at(i).0 == text {
                return Some(i);
            }
            number = self.nexts[i];
        }
        None
    }

    /// Finds the number of a member.
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        self.find_in(text, self.hash(text))
    }

    /// Adds a new member; returns the number of one that is there. The caller sees to it that there are fewer than 2^32 - 1.
    pub fn insert(&mut self, text: &[u8], score: f64) -> Option<usize> {
        let hash = self.hash(text);
        if let Some(i) = self.find_in(text, hash) {
            return Some(i);
        }
        let number = self.rows.len() as u32;
        debug_assert!(number != NONE, "who adds looks how many there are");
        self.rows.push(text, score);
        self.marks.push(false);
        self.hashes.push(hash);
        let bucket = self.bucket(hash);
        self.nexts.push(std::mem::replace(&mut self.heads[bucket], number));
        if self.rows.len() > self.heads.len() {
            self.cut();
        }
        None
    }

    /// Splits the next bucket: one for each new member, so that none has to wait for all.
    fn cut(&mut self) {
        let new = self.heads.len();
        let half = if new.is_power_of_two() { new } else { new.next_power_of_two() / 2 };
        let (mut number, old) = (self.heads[new - half], new - half);
        let (mut stays, mut goes) = (NONE, NONE);
        while number != NONE {
            let i = number as usize;
            let head = if self.hashes[i] as usize & half == 0 { &mut stays } else { &mut goes };
            let next = std::mem::replace(&mut self.nexts[i], *head);
            *head = number;
            number = next;
        }
        self.heads[old] = stays;
        self.heads.push(goes);
    }

    /// Marks a member.
    pub fn mark(&mut self, i: usize) {
        self.marked += usize::from(!std::mem::replace(&mut self.marks[i], true));
    }

    pub fn is_marked(&self, i: usize) -> bool {
        self.marks[i]
    }

    /// How many members are not marked.
    pub fn unmarked(&self) -> usize {
        self.rows.len() - self.marked
    }
}

/// Members in some order: sorted in runs, which are merged when members are taken. The caller passes the comparison each time,
/// always the same.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    numbers: Vec<u32>,
    /// What is left of each run.
    runs: Vec<Range<usize>>,
    /// A heap of runs, with the run of the least member on top.
    heap: Vec<u32>,
}

impl Sorted {
    /// Bytes of so many members, at most.
    pub fn bytes(members: usize) -> usize {
        4 * members + members.div_ceil(RUN) * (size_of::<Range<usize>>() + 4)
    }

    /// Bytes of so many members that have so many bytes of text. A run of several members has at most [`RUN_BYTES`], and two
    /// neighbouring runs have more if that ended the first.
    pub fn bytes_of(members: usize, bytes: usize) -> usize {
        Sorted::bytes(members) + Sorted::bytes(1) * (2 * bytes / RUN_BYTES)
    }

    /// Adds members as a run, at most [`RUN`] at a time.
    pub fn add_run(&mut self, numbers: impl Iterator<Item = u32>, compare: &impl Fn(u32, u32) -> Ordering) {
        let start = self.numbers.len();
        self.numbers.extend(numbers);
        let run = start..self.numbers.len();
        if run.is_empty() {
            return;
        }
        self.numbers[run.clone()].sort_unstable_by(|one, other| compare(*one, *other));
        self.runs.push(run);
        self.heap.push(self.runs.len() as u32 - 1);
        // Moves the run up to its place.
        let mut at = self.heap.len() - 1;
        while at > 0 && self.is_before(at, (at - 1) / 2, compare) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Whether the first member of one run in the heap comes before that of another.
    fn is_before(&self, one: usize, other: usize, compare: &impl Fn(u32, u32) -> Ordering) -> bool {
        let first = |at: usize| self.numbers[self.runs[self.heap[at] as usize].start];
        compare(first(one), first(other)).is_lt()
    }

    /// Takes the next member.
    pub fn next(&mut self, compare: &impl Fn(u32, u32) -> Ordering) -> Option<usize> {
        let run = &mut self.runs[*self.heap.first()? as usize];
        let number = self.numbers[run.start];
        run.start += 1;
        if run.start == run.end {
            self.heap.swap_remove(0);
        }
        // Moves the run down to its place.
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_before(child, least, compare) {
                    least = child;
                }
            }
            if least == at {
                return Some(number as usize);
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_there_once_in_the_order_in_which_they_came() {
        let mut members = Members::new();
        for n in 0..1000_u32 {
            assert_eq!(members.insert(n.to_string().as_bytes(), f64::from(n)), None);
            assert_eq!(members.insert((n / 2).to_string().as_bytes(), 0.0), Some(n as usize / 2));
            for some in [0, n / 3, n] {
                assert_eq!(members.find(some.to_string().as_bytes()), Some(some as usize));
            }
        }
        for n in 0..1000_usize {
            assert_eq!(members.find(n.to_string().as_bytes()), Some(n));
            assert_eq!(members.rows.at(n), (n.to_string().as_bytes(), n as f64));
        }
        assert_eq!(members.find(b""), None);
        assert_eq!(members.find(b"1000"), None);
        assert_eq!(members.heads.len(), 1000);
        members.mark(5);
        members.mark(5);
        assert!(members.is_marked(5) && !members.is_marked(6));
        assert_eq!(members.unmarked(), 999);
    }

    /// A run ends with its last member, with the last for which there is room, or with one that is longer than that.
    #[test]
    fn a_run_has_a_mebibyte_of_members_or_one() {
        let run = |lens: &[usize], start: usize| {
            let mut rows = Rows::default();
            lens.iter().for_each(|len| rows.push(&vec![b'x'; *len], 1.0));
            rows.run_from(start)
        };
        let most = RUN_BYTES;
        assert_eq!(run(&[], 0), (0..0, 0));
        for (third, end, bytes) in [(most - 3, 4, most), (most - 2, 3, most), (most - 1, 2, 2)] {
            assert_eq!(run(&[1, 1, third, 1], 0), (0..end, bytes), "{third}");
        }
        for len in [most - 1, most, most + 1, 4 * most] {
            assert_eq!(run(&[len, 2, 2], 0), (0..1, len), "{len}");
            assert_eq!(run(&[2, len, 2], 0), (0..1, 2), "{len}");
            assert_eq!(run(&[2, len, 2], 1), (1..2, len), "{len}");
        }
        for (count, end) in [(RUN - 1, RUN - 1), (RUN, RUN), (RUN + 1, RUN)] {
            assert_eq!(run(&vec![3; count], 0), (0..end, 3 * end));
        }
    }

    /// However long members are, their order takes no more than is charged for it.
    #[test]
    fn runs_of_long_members_are_charged() {
        let mixed: Vec<usize> = (0..60).map(|n| if n % 2 == 0 { 1 } else { RUN_BYTES }).collect();
        for lens in [vec![3; 2 * RUN], vec![RUN_BYTES; 40], vec![RUN_BYTES / 2 + 1; 41], mixed] {
            let mut rows = Rows::default();
            lens.iter().for_each(|len| rows.push(&vec![b'x'; *len], 1.0));
            let (mut sorted, mut at) = (Sorted::default(), 0);
            while at < rows.len() {
                let (run, _) = rows.run_from(at);
                at = run.end;
                sorted.add_run(run.map(|i| i as u32), &|one, other| rows.compare(one, other));
            }
            let bytes = 4 * lens.len() + sorted.runs.len() * (size_of::<Range<usize>>() + 4);
            assert!(bytes <= Sorted::bytes_of(lens.len(), rows.text_bytes()), "{} runs", sorted.runs.len());
        }
    }

    #[test]
    fn members_are_sorted_by_score_and_text_however_many_they_are() {
        for count in [0, 1, 2, RUN - 1, RUN, RUN + 1, 7 * RUN + 3] {
            let mut rows = Rows::default();
            for n in 0..count {
                rows.push(format!("m{}", n * 7919 % 10_007).as_bytes(), (n * 31 % 17) as f64);
            }
            let (mut sorted, compare) = (Sorted::default(), |one, other| rows.compare(one, other));
            for start in (0..count).step_by(RUN) {
                sorted.add_run((start..count.min(start + RUN)).map(|i| i as u32), &compare);
            }
            let found: Vec<usize> = std::iter::from_fn(|| sorted.next(&compare)).collect();
            let mut expected: Vec<usize> = (0..count).collect();
            expected.sort_by(|one, other| rows.compare(*one as u32, *other as u32));
            assert_eq!(found, expected, "{count}");
        }
    }
}
