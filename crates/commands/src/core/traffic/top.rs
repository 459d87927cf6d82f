//! The keys that weigh most, of many, in a table of few: Space-Saving.
//!
//! A key without an entry takes the entry of the least count, and the count with it: that is its error. So every key that
//! weighs more than one part in as many as there are entries has one, and `count - error <= its weight <= count`.

use std::collections::HashMap;

use super::Verb;
use super::ring::Sample;

/// A key that may weigh much.
#[derive(Clone, Debug, Default)]
pub(super) struct Name {
    /// The beginning of the key.
    pub key: Box<[u8]>,
    /// Bytes of the whole key.
    pub key_bytes: u32,
    pub db: u8,
}

/// Sums of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// The most that it weighs.
    pub count: u64,
    /// How much less it may weigh.
    pub error: u64,
    /// Keys that its samples stand for, since it has its entry.
    pub keys: u64,
    /// The variance of `keys`: above 0 where samples stand for more than themselves.
    pub variance: f64,
    /// Keys of these that were read.
    pub reads: u64,
    /// Reads that found the key.
    pub hits: u64,
    /// Keys of these that were removed.
    pub deletes: u64,
    /// Bytes of requests and replies.
    pub bytes: u64,
    /// The variance of `bytes`.
    pub bytes_variance: f64,
    /// Keys of these that were there afterwards.
    pub found: u64,
    /// Bytes of their values.
    pub values: u64,
    /// Bytes of its value, when it was last seen.
    pub value_bytes: u32,
}

impl Sums {
    /// The middle of what it can weigh.
    pub fn weight(&self) -> u64 {
        self.count - self.error / 2
    }

    /// Adds the sums of the same key in another table.
    fn add(&mut self, other: &Sums) {
        self.count += other.count;
        self.error += other.error;
        self.keys += other.keys;
        self.variance += other.variance;
        self.reads += other.reads;
        self.hits += other.hits;
        self.deletes += other.deletes;
        self.bytes += other.bytes;
        self.bytes_variance += other.bytes_variance;
        self.found += other.found;
        self.values += other.values;
    }
}

/// The table. Hashes and counts are looked through from one end to the other: they lie together.
#[derive(Debug, Default)]
pub(super) struct Top {
    hashes: Vec<u64>,
    counts: Vec<u64>,
    names: Vec<Name>,
    sums: Vec<Sums>,
    key_bytes: usize,
    most: usize,
    /// Most entries that it ever had, however often it was cleared.
    longest: usize,
}

/// Bytes of an entry, beside its key.
const ENTRY_BYTES: usize = 2 * size_of::<u64>() + size_of::<Name>() + size_of::<Sums>();

impl Top {
    /// A table of so many entries.
    pub fn new(most: usize) -> Top {
        Top {
            hashes: Vec::with_capacity(most),
            counts: Vec::with_capacity(most),
            names: Vec::with_capacity(most),
            sums: Vec::with_capacity(most),
            key_bytes: 0,
            most,
            longest: 0,
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        (self.most * ENTRY_BYTES + self.key_bytes) as u64
    }

    /// Most bytes that it takes to merge as many entries as it has had with those of others.
    pub fn merging_bytes(&self) -> u64 {
        (self.longest * MERGED_BYTES) as u64
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.counts.clear();
        self.names.clear();
        self.sums.clear();
        self.key_bytes = 0;
    }

    /// Most that a key without an entry weighs.
    pub fn least(&self) -> u64 {
        if self.hashes.len() < self.most { 0 } else { self.counts.iter().min().copied().unwrap_or(0) }
    }

    /// Adds a sample of this weight.
    pub fn add(&mut self, sample: &Sample<'_>, weight: u64) {
        let keys = 1u64 << sample.shift;
        self.add_unsure(sample, weight, (keys * (keys - 1)) as f64);
    }

    /// Adds a sample of this weight, which adds this variance.
    pub fn add_unsure(&mut self, sample: &Sample<'_>, weight: u64, variance: f64) {
        let at = self.hashes.iter().position(|hash| *hash == sample.hash);
        let at = at.unwrap_or_else(|| self.enter(sample));
        self.counts[at] += weight;
        let (sums, keys) = (&mut self.sums[at], 1u64 << sample.shift);
        sums.keys += keys;
        sums.variance += variance;
        sums.bytes += keys * u64::from(sample.net_bytes);
        sums.bytes_variance += variance * f64::from(sample.net_bytes).powi(2);
        match sample.verb {
            Verb::Read => {
                sums.reads += keys;
                sums.hits += keys * u64::from(sample.found);
            }
            Verb::Write => {}
            Verb::Delete => sums.deletes += keys,
        }
        if sample.found {
            sums.value_bytes = sample.value_bytes;
            sums.found += keys;
            sums.values += keys * u64::from(sample.value_bytes);
        }
    }

    /// Makes an entry for a key that has none.
    fn enter(&mut self, sample: &Sample<'_>) -> usize {
        let (mut at, mut error) = (self.hashes.len(), 0);
        if at < self.most {
            self.hashes.push(sample.hash);
            self.counts.push(0);
            self.names.push(Name::default());
            self.sums.push(Sums::default());
            self.longest = self.longest.max(self.hashes.len());
        } else {
            error = self.least();
            at = self.counts.iter().position(|count| *count == error).unwrap_or(0);
            self.hashes[at] = sample.hash;
            self.key_bytes -= self.names[at].key.len();
        }
        self.key_bytes += sample.key.len();
        self.names[at] = Name { key: sample.key.into(), key_bytes: sample.key_bytes, db: sample.db };
        self.sums[at] = Sums { error, ..Sums::default() };
        at
    }

    /// All entries, with the hashes of their keys.
    fn each(&self) -> impl Iterator<Item = (u64, &Name, Sums)> {
        let counted = self.hashes.iter().zip(&self.counts);
        counted
            .zip(self.names.iter().zip(&self.sums))
            .map(|((hash, count), (name, sums))| (*hash, name, Sums { count: *count, ..*sums }))
    }

    /// All entries.
    pub fn all(&self) -> Vec<(&Name, Sums)> {
        self.each().map(|(_, name, sums)| (name, sums)).collect()
    }
}

/// Bytes that it takes to merge an entry.
const MERGED_BYTES: usize = 2 * size_of::<(u64, &Name, Sums, u64)>();

/// Merges the entries of several tables, each key's into one. What a key may weigh in tables without its entry is added to its
/// error.
fn merged<'t>(tops: impl Iterator<Item = &'t Top> + Clone) -> Vec<(&'t Name, Sums)> {
    let all_least: u64 = tops.clone().map(Top::least).sum();
    // An entry, and what it may weigh in tables that have none.
    let mut all: HashMap<u64, (&Name, Sums, u64)> = HashMap::with_capacity(tops.clone().map(Top::len).sum());
    for top in tops {
        let least = top.least();
        for (hash, name, sums) in top.each() {
            let (_, known, absent) = all.entry(hash).or_insert((name, Sums::default(), all_least));
            known.add(&sums);
            known.value_bytes = sums.value_bytes;
            *absent -= least;
        }
    }
    let with_absent = |(name, sums, absent): (_, Sums, u64)| {
        (name, Sums { count: sums.count + absent, error: sums.error + absent, ..sums })
    };
    all.into_values().map(with_absent).collect()
}

/// The heaviest entries of several tables, at most `most`, and only those of whose weight more is surely their own than is not.
/// `share` gives an entry's part of all, and the error of that. The memory for it is charged with the tables, for one caller at
/// a time ([`Top::merging_bytes`]): charged for that moment alone, it would make items give way each time.
pub(super) fn ranked<'t, R>(
    tops: impl Iterator<Item = &'t Top> + Clone,
    most: usize,
    share: impl Fn(&Sums) -> (f64, f64),
    shown: impl Fn(&Name, &Sums) -> R,
) -> Vec<R> {
    let mut entries = merged(tops);
    entries.retain(|(_, sums)| {
        let (share, error) = share(sums);
        sums.count - sums.error > sums.error && share > error
    });
    entries.sort_by(|(name, sums), (other_name, other)| {
        other.weight().cmp(&sums.weight()).then_with(|| name.key.cmp(&other_name.key))
    });
    entries.truncate(most);
    entries.into_iter().map(|(name, sums)| shown(name, &sums)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(key: &[u8], shift: u8) -> Sample<'_> {
        Sample {
            verb: Verb::Read,
            found: true,
            db: 0,
            shift,
            hash: u64::from(key[0]) << 32,
            key,
            key_bytes: key.len() as u32,
            value_bytes: 7,
            net_bytes: 10,
            cost_ns: 1,
        }
    }

    fn true_weights(stream: &[(u8, u8)]) -> HashMap<u8, u64> {
        let mut weights = HashMap::new();
        for (key, shift) in stream {
            *weights.entry(*key).or_default() += 1u64 << shift;
        }
        weights
    }

    fn top_of(most: usize, stream: &[(u8, u8)]) -> Top {
        let mut top = Top::new(most);
        for (key, shift) in stream {
            top.add(&sample(&[*key], *shift), 1 << shift);
        }
        top
    }

    proptest! {
        /// What a key weighs lies between `count - error` and `count`, and each key that weighs much is there.
        #[test]
        fn weights_are_within_their_bounds(
            stream in proptest::collection::vec((0u8..60, 0u8..4), 0..800),
            most in 1usize..32,
            cut in 0usize..800,
        ) {
            let (first, second) = stream.split_at(cut.min(stream.len()));
            let (one, two) = (top_of(most, first), top_of(most, second));
            for (entries, stream) in [
                (one.all(), first),
                (merged([&one, &two].into_iter()), &stream[..]),
            ] {
                let weights = true_weights(stream);
                let all: u64 = weights.values().sum();
                for (name, entry) in &entries {
                    let weight = weights.get(&name.key[0]).copied().unwrap_or(0);
                    prop_assert!(entry.count - entry.error <= weight && weight <= entry.count);
                    prop_assert!(entry.keys <= weight);
                    prop_assert_eq!((entry.reads, entry.hits, entry.bytes), (entry.keys, entry.keys, entry.keys * 10));
                }
                for (key, weight) in weights {
                    let listed = entries.iter().any(|(name, _)| name.key[0] == key);
                    prop_assert!(listed || weight <= all / most as u64, "{} of {}", weight, all);
                }
            }
        }
    }

    #[test]
    fn what_it_takes_is_what_its_keys_are_long() {
        let mut top = Top::new(2);
        let empty = top.bytes();
        top.add(&sample(b"abc", 0), 1);
        top.add(&sample(b"bcdef", 0), 2);
        assert_eq!(top.bytes(), empty + 8);
        // The lightest gives way.
        top.add(&sample(b"c", 0), 1);
        assert_eq!(top.bytes(), empty + 6);
        let keys: Vec<&[u8]> = top.all().into_iter().map(|(name, _)| &name.key[..]).collect();
        assert_eq!(keys, [&b"c"[..], b"bcdef"]);
        top.clear();
        assert_eq!((top.bytes(), top.least(), top.all().len()), (empty, 0, 0));
    }

    #[test]
    fn what_merging_takes_is_known_from_when_there_were_most_entries() {
        let mut top = Top::new(2);
        assert_eq!(top.merging_bytes(), 0);
        for key in [b"a", b"b", b"c"] {
            top.add(&sample(key, 0), 1);
        }
        top.clear();
        top.add(&sample(b"a", 0), 1);
        assert_eq!(top.merging_bytes(), 2 * MERGED_BYTES as u64);
    }

    #[test]
    fn what_was_done_is_told_apart() {
        let mut top = Top::new(4);
        let read = sample(b"k", 1);
        top.add(&read, 2);
        top.add(&Sample { found: false, value_bytes: 0, ..read }, 2);
        top.add(&Sample { verb: Verb::Write, value_bytes: 9, ..read }, 2);
        top.add(&Sample { verb: Verb::Delete, found: false, value_bytes: 0, ..read }, 2);
        let (_, entry) = top.all()[0];
        assert_eq!((entry.keys, entry.reads, entry.hits, entry.deletes), (8, 4, 2, 2));
        assert_eq!((entry.value_bytes, entry.bytes, entry.count, entry.error), (9, 80, 8, 0));
    }
}
