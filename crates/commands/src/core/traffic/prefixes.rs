//! Prefixes of keys, and the requests, hits and bytes that each takes: the sample of all traffic once more, by prefix.
//!
//! ```text
//! user:17:name   user:      page/about   page/      counter   none      :a:b   :a:
//! ```
//!
//! A prefix ends with its delimiter: the first one in the key that is not the key's first character. The delimiter is the one
//! that was given for `stats detail`; else `:`, in keys without it `/`, then `.`, then `_`. So a key's prefix is always the
//! same, whatever other keys there are. Keys without a prefix are counted together. Of a long key only the beginning that is
//! kept is looked at.
//!
//! The part of the memory that a prefix takes is estimated from the items that were looked at ([`super::items`]), so that it is
//! known of prefixes that are hardly asked for, too.
//!
//! Shares and their errors are computed as those of keys. The hit ratio of a prefix is that of the reads in its samples; `n`
//! keys that were read, whose samples stand for `w` keys each, make it uncertain by `sqrt(h (1 - h) (w - 1) / n)`. Bytes are
//! also uncertain because sizes differ: by the sum of `w (w - 1) b²` over the samples.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use larder_store::Store;

use super::hot::{Escaped, Parts, Sampled, Shares};
use super::top::{Name, Sums};
use super::{Coldest, ENTRIES_MAX, ENTRIES_MIN, MEMORY_OF_AN_ENTRY, SIGMAS, Sample, Traffic};

/// The usual delimiters, in the order in which they are looked for.
const ENDS: [u8; 4] = [b':', b'/', b'.', b'_'];
/// A table of prefixes has so many times fewer entries than one of keys.
const FEWER: usize = 2;

/// The bytes that end a prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delimiters {
    given: Option<u8>,
    hasher: RandomState,
}

impl Delimiters {
    /// The given delimiter, or the usual ones.
    pub fn new(given: Option<u8>) -> Delimiters {
        Delimiters { given, hasher: RandomState::new() }
    }

    /// A key's prefix with its delimiter; empty if it has none.
    fn prefix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let ends = self.given.as_ref().map_or(&ENDS[..], std::slice::from_ref);
        let behind_first = key.get(1..).unwrap_or_default();
        let end = ends.iter().find_map(|end| behind_first.iter().position(|byte| byte == end));
        end.map_or(&[], |at| &key[..at + 2])
    }

    /// The sample with the prefix in place of its key.
    pub(super) fn of_prefix<'k>(&self, sample: &Sample<'k>) -> Sample<'k> {
        let key = self.prefix(sample.key);
        let hash = self.hasher.hash_one((sample.db, key));
        Sample { hash, key, key_bytes: key.len() as u32, ..*sample }
    }
}

/// Number of entries of a table of prefixes.
pub(super) fn entries_of(store: &Store) -> usize {
    ((store.memory_bytes() / MEMORY_OF_AN_ENTRY) as usize).clamp(ENTRIES_MIN, ENTRIES_MAX) / FEWER
}

/// A prefix that is asked for often, or the keys that have none.
#[derive(Clone, Debug, Default)]
pub struct PrefixShare {
    /// The prefix with its delimiter; `None`: these keys have none.
    pub prefix: Option<Box<[u8]>>,
    /// Its database.
    pub db: u8,
    /// Its part of all keys that were asked for.
    pub share: f64,
    /// The error of `share`.
    pub error: f64,
    /// Keys a second.
    pub per_second: f64,
    /// Bytes of requests and replies a second, about.
    pub bytes_per_second: f64,
    /// The error of `bytes_per_second`.
    pub bytes_error: f64,
    /// The part of its keys that was read.
    pub reads: f64,
    /// The part of its keys that was removed; the others were changed.
    pub deletes: f64,
    /// The part of the reads that found something; `None` if there were none.
    pub hit_ratio: Option<f64>,
    /// The error of `hit_ratio`.
    pub hit_ratio_error: f64,
    /// Reads that found nothing, a second.
    pub misses_per_second: f64,
    /// Mean bytes of the values that were there.
    pub value_bytes: f64,
    /// Its part of the bytes of all items, and the error of that; `None` where it does not stand out.
    pub memory: Option<(f64, f64)>,
}

/// The prefixes of the last seconds.
pub type PrefixShares = Shares<PrefixShare>;

impl Parts for PrefixShare {
    fn each_part(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display) -> fmt::Result) -> fmt::Result {
        match &self.prefix {
            Some(prefix) => visit("prefix", &Escaped(prefix))?,
            // No prefix is as short.
            None => visit("prefix", &"-")?,
        }
        visit("db", &self.db)?;
        let numbers = [
            ("share", self.share),
            ("error", self.error),
            ("requests_per_second", self.per_second),
            ("bytes_per_second", self.bytes_per_second),
            ("bytes_error", self.bytes_error),
            ("reads", self.reads),
            ("deletes", self.deletes),
        ];
        let of_reads = self.hit_ratio.map(|ratio| {
            [
                ("hit_ratio", ratio),
                ("hit_ratio_error", self.hit_ratio_error),
                ("misses_per_second", self.misses_per_second),
            ]
        });
        let last = [("value_bytes", self.value_bytes)];
        let of_memory = self.memory.map(|(share, error)| [("memory_share", share), ("memory_error", error)]);
        let of_reads = of_reads.into_iter().flatten();
        for (name, number) in
            numbers.into_iter().chain(of_reads).chain(last).chain(of_memory.into_iter().flatten())
        {
            visit(name, &format_args!("{number:.4}"))?;
        }
        Ok(())
    }
}

/// Most prefixes that clients are shown.
pub(crate) const TOLD: usize = 50;

impl Traffic {
    /// The prefixes of the last rounds that were asked for most, as [`Traffic::hot_keys`], and behind them those that are
    /// asked for less and take memory.
    pub fn prefix_shares(&self, most: usize) -> Option<PrefixShares> {
        let (sampled, mut prefixes) = self.listed(most, |round| &round.prefixes, shown)?;
        let mut others = Vec::new();
        for (name, memory) in self.items.prefixes(most) {
            let is_it = |row: &&mut PrefixShare| {
                row.db == name.db && row.prefix.as_deref().unwrap_or_default() == &*name.key
            };
            match prefixes.iter_mut().find(is_it) {
                Some(row) => row.memory = Some(memory),
                None => others.push((name, memory)),
            }
        }
        for (name, memory) in others {
            let unlisted = Sums { count: sampled.least, error: sampled.least, ..Sums::default() };
            add(
                &mut prefixes,
                PrefixShare { memory: Some(memory), ..shown(&name, &unlisted, &sampled) },
                most,
            );
        }
        Some(sampled.shares(prefixes))
    }

    /// The prefix that is asked for least, of those that take much memory. Keys without a prefix do not count.
    pub(super) fn coldest_prefix(&self) -> Option<Coldest> {
        coldest(&self.prefix_shares(TOLD)?)
    }
}

/// Part of the memory from which on a prefix takes much.
const MUCH: f64 = 0.1;

impl PrefixShare {
    /// Returns whether it surely takes that much. No more than nine prefixes can.
    fn takes_much(&self) -> bool {
        self.memory.is_some_and(|(share, error)| share - error > MUCH)
    }
}

/// Adds a prefix behind those that are asked for most. If there are enough, one that takes much memory replaces the last that
/// does not.
fn add(prefixes: &mut Vec<PrefixShare>, more: PrefixShare, most: usize) {
    if prefixes.len() >= most {
        if !more.takes_much() {
            return;
        }
        let Some(last) = prefixes.iter().rposition(|row| !row.takes_much()) else { return };
        prefixes.remove(last);
    }
    prefixes.push(more);
}

fn coldest(shares: &PrefixShares) -> Option<Coldest> {
    let all_per_second = shares.all as f64 / shares.seconds.max(0.001);
    let prefixes = shares.rows.iter().filter(|row| row.prefix.is_some()).filter_map(|row| {
        let (memory, memory_error) = row.memory.filter(|_| row.takes_much())?;
        Some(Coldest { memory, memory_error, share_most: row.share + row.error, all_per_second })
    });
    prefixes.min_by(|one, other| one.share_most.total_cmp(&other.share_most))
}

fn shown(name: &Name, sums: &Sums, sampled: &Sampled) -> PrefixShare {
    let (share, error) = sampled.share(sums);
    let counted = sums.keys.max(1) as f64;
    let part = |of: u64| of as f64 / counted;
    let per_second = sampled.per_second(share);
    // Scales counts to what is shown: with half of what may have come before it had its entry.
    let scale = per_second / counted;
    let unseen = sampled.per_second(sums.error as f64 / 2.0 / sampled.keys.max(1) as f64) * part(sums.bytes);
    let misses = sums.reads - sums.hits;
    PrefixShare {
        prefix: (!name.key.is_empty()).then(|| name.key.clone()),
        db: name.db,
        share,
        error,
        per_second,
        bytes_per_second: per_second * part(sums.bytes),
        bytes_error: unseen + SIGMAS * sums.bytes_variance.sqrt() * scale,
        reads: part(sums.reads),
        deletes: part(sums.deletes),
        hit_ratio: (sums.reads > 0).then(|| sums.hits as f64 / sums.reads as f64),
        hit_ratio_error: hit_ratio_error(sums),
        misses_per_second: per_second * part(misses),
        memory: None,
        value_bytes: if sums.found > 0 { sums.values as f64 / sums.found as f64 } else { 0.0 },
    }
}

/// The error of the hit ratio; 0 where each key was counted.
fn hit_ratio_error(sums: &Sums) -> f64 {
    let (reads, hits) = (sums.reads as f64, sums.hits as f64);
    // Keys that a sample stands for.
    let weight = 1.0 + sums.variance / sums.keys.max(1) as f64;
    // One sample of each kind more is added: a few samples do not tell how many there might have been.
    let ratio = (hits + weight) / (reads + 2.0 * weight);
    (SIGMAS * (ratio * (1.0 - ratio) * (weight - 1.0) / reads.max(1.0)).sqrt()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_with_the_first_that_ends_one() {
        let usual = Delimiters::new(None);
        for (key, prefix) in [
            ("user:17:name", "user:"),
            ("user_data/1:2", "user_data/1:"),
            ("page/about.html", "page/"),
            ("a.b_c", "a."),
            ("a_b", "a_"),
            ("/static/x", "/static/"),
            (":a:b", ":a:"),
            ("::", "::"),
            (":", ""),
            ("plain", ""),
            ("", ""),
            ("end:", "end:"),
        ] {
            assert_eq!(usual.prefix(key.as_bytes()), prefix.as_bytes(), "{key}");
        }
        let given = Delimiters::new(Some(b'|'));
        assert_eq!((given.prefix(b"a:b|c"), given.prefix(b"a:b")), (&b"a:b|"[..], &b""[..]));
    }

    #[test]
    fn the_coldest_prefix_takes_much_is_surely_asked_for_little_and_has_a_name() {
        let row = |prefix: &str, share: f64, error: f64, memory: Option<(f64, f64)>| PrefixShare {
            prefix: (!prefix.is_empty()).then(|| prefix.as_bytes().into()),
            share,
            error,
            memory,
            ..PrefixShare::default()
        };
        let rows = vec![
            row("hot:", 0.9, 0.02, Some((0.4, 0.05))),
            row("small:", 0.0, 0.0, Some((0.14, 0.05))),
            row("cold:", 0.004, 0.003, Some((0.2, 0.05))),
            row("vague:", 0.003, 0.02, Some((0.2, 0.05))),
            row("", 0.0, 0.0, Some((0.3, 0.05))),
            row("unknown:", 0.0, 0.0, None),
        ];
        let shares = PrefixShares { rows, all: 500, seconds: 10.0, samples: 500 };
        let wanted = Coldest { memory: 0.2, memory_error: 0.05, share_most: 0.007, all_per_second: 50.0 };
        assert_eq!(coldest(&shares), Some(wanted));
        assert_eq!(coldest(&PrefixShares::default()), None);
    }

    #[test]
    fn one_that_takes_much_is_listed_whatever_is_asked_for_more() {
        let busy = |nth: u8| PrefixShare { prefix: Some([nth].into()), ..PrefixShare::default() };
        let takes = |share| PrefixShare { memory: Some((share, 0.05)), ..busy(200) };
        let mut prefixes: Vec<_> = (0..3).map(busy).collect();
        prefixes[2].memory = Some((0.3, 0.05));
        add(&mut prefixes, takes(0.14), 3);
        assert_eq!(prefixes.len(), 3);
        assert!(prefixes.iter().all(|row| row.prefix != busy(200).prefix), "it takes little");
        add(&mut prefixes, takes(0.2), 3);
        let names: Vec<u8> = prefixes.iter().filter_map(|row| Some(row.prefix.as_ref()?[0])).collect();
        assert_eq!(names, [0, 2, 200]);
        add(&mut prefixes, busy(7), 4);
        assert_eq!(prefixes.len(), 4);
    }

    #[test]
    fn where_each_was_counted_a_hit_ratio_has_no_error_and_of_few_samples_a_large_one() {
        let sums = |samples: u64, weight: u64| {
            let (keys, variance) = (samples * weight, (samples * weight * (weight - 1)) as f64);
            Sums { keys, variance, reads: keys, hits: keys, ..Sums::default() }
        };
        assert!(hit_ratio_error(&sums(10, 1)) < 1e-9);
        let (few, many) = (hit_ratio_error(&sums(1, 64)), hit_ratio_error(&sums(1000, 64)));
        assert!(few > 0.9 && (0.001..0.1).contains(&many), "{few} {many}");
    }
}
