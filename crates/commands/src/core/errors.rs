//! Counts of error replies, by their first word: what INFO's `errorstats` lists.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most first words that are counted apart; DEBUG ERROR can make any.
const WORDS_MAX: usize = 128;
/// Most bytes of a first word.
const WORD_BYTES_MAX: usize = 32;

/// Counts of errors by their first words.
#[derive(Debug, Default)]
pub(crate) struct Errors(Mutex<BTreeMap<Box<str>, Count>>);

/// How often a word came, and how often before the last reset.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u64,
    before: u64,
}

impl Errors {
    /// Counts an error of this text.
    #[cold]
    pub fn count(&self, text: &str) {
        let word = text.split(' ').next().unwrap_or_default();
        // A first word that is empty, too long or not printable counts as the usual one.
        let is_word =
            !word.is_empty() && word.len() <= WORD_BYTES_MAX && word.bytes().all(|b| b.is_ascii_graphic());
        let word = if is_word { word } else { "ERR" };
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(word) {
            count.all += 1;
        } else {
            let word = if counts.len() < WORDS_MAX { word } else { "OTHERS" };
            counts.entry(word.into()).or_default().all += 1;
        }
    }

    /// Calls `visit` with each word that came since the last reset, and its count.
    pub fn each(&self, visit: &mut dyn FnMut(&str, u64)) {
        let counts = self.counts();
        let since = counts.iter().map(|(word, count)| (word, count.all - count.before));
        since.filter(|(_, count)| *count > 0).for_each(|(word, count)| visit(word, count));
    }

    /// Calls `visit` with each word and how often it came at all.
    pub fn each_since_start(&self, visit: &mut dyn FnMut(&str, u64)) {
        self.counts().iter().for_each(|(word, count)| visit(word, count.all));
    }

    /// Begins to count anew. The words stay: their number is bounded whatever is reset.
    pub fn reset(&self) {
        self.counts().values_mut().for_each(|count| count.before = count.all);
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_their_first_words_up_to_a_limit() {
        let errors = Errors::default();
        for text in ["ERR no", "ERR other", "WRONGTYPE x", "", "a\u{e4}b c"] {
            errors.count(text);
        }
        let mut seen = Vec::new();
        errors.each(&mut |word, count| seen.push((word.to_owned(), count)));
        assert_eq!(seen, [("ERR".to_owned(), 4), ("WRONGTYPE".to_owned(), 1)]);
        (0..WORDS_MAX + 10).for_each(|n| errors.count(&format!("W{n} x")));
        let mut words = 0;
        errors.each(&mut |_, _| words += 1);
        assert_eq!(words, WORDS_MAX + 1);
        errors.reset();
        errors.each(&mut |_, _| panic!("nothing is left"));
        errors.count("WRONGTYPE y");
        let mut seen = Vec::new();
        errors.each(&mut |word, count| seen.push((word.to_owned(), count)));
        assert_eq!(seen, [("WRONGTYPE".to_owned(), 1)]);
        let mut all = 0;
        errors.each_since_start(&mut |_, count| all += count);
        assert_eq!(all, 5 + WORDS_MAX as u64 + 10 + 1, "who scrapes sees no reset");
    }
}
