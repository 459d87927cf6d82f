//! The hot keys of the last seconds, as they are shown.

use std::fmt;

use larder_protocol::escape::{escape, escaped_bytes_max};

use super::ring::KEY_BYTES_KEPT;
use super::top::{Name, Sums, Top, ranked};
use super::{HOT_MAX, Hottest, Replies, Round, SIGMAS, Traffic};

/// A key that is asked for often.
#[derive(Clone, Debug)]
pub struct HotKey {
    /// Its beginning, as far as that is kept.
    pub key: Box<[u8]>,
    /// Bytes of the whole key.
    pub key_bytes: u32,
    /// Its database.
    pub db: u8,
    /// Its part of all that was asked for.
    pub share: f64,
    /// The error of `share`.
    pub error: f64,
    /// Requests a second.
    pub per_second: f64,
    /// Bytes of requests and replies a second, about.
    pub bytes_per_second: f64,
    /// The part of its requests that read it.
    pub reads: f64,
    /// The part of its requests that removed it; the others changed it.
    pub deletes: f64,
    /// The part of the reads that found it; `None` if there were none.
    pub hit_ratio: Option<f64>,
    /// Bytes of its value, when it was last sampled.
    pub value_bytes: u32,
}

/// The hot keys of the last seconds.
pub type HotKeys = Shares<HotKey>;

/// The keys, or prefixes, that weigh most of all that was asked for in the last seconds.
#[derive(Clone, Debug)]
pub struct Shares<R> {
    /// The rows, those asked for most first.
    pub rows: Vec<R>,
    /// Keys that were asked for, about.
    pub all: u64,
    /// The seconds in which they were.
    pub seconds: f64,
    /// Samples that this rests on.
    pub samples: u64,
}

impl<R> Default for Shares<R> {
    fn default() -> Shares<R> {
        Shares { rows: Vec::new(), all: 0, seconds: 0.0, samples: 0 }
    }
}

/// A key, or a prefix, as a list of named parts.
pub(crate) trait Parts {
    /// Calls `visit` with the name and the value of each of its parts, as text without spaces and commas.
    fn each_part(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display) -> fmt::Result) -> fmt::Result;
}

/// The parts as text: `key=…,db=0,share=0.1234,…`.
pub(crate) fn parts(of: &impl Parts) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut between = "";
        of.each_part(&mut |name, value| {
            write!(f, "{between}{name}={value}")?;
            between = ",";
            Ok(())
        })
    })
}

impl Parts for HotKey {
    fn each_part(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display) -> fmt::Result) -> fmt::Result {
        visit("key", &Escaped(&self.key))?;
        visit("key_bytes", &self.key_bytes)?;
        visit("db", &self.db)?;
        let numbers = [
            ("share", self.share),
            ("error", self.error),
            ("requests_per_second", self.per_second),
            ("bytes_per_second", self.bytes_per_second),
            ("reads", self.reads),
            ("deletes", self.deletes),
        ];
        for (name, number) in numbers.into_iter().chain(self.hit_ratio.map(|ratio| ("hit_ratio", ratio))) {
            visit(name, &format_args!("{number:.4}"))?;
        }
        visit("value_bytes", &self.value_bytes)
    }
}

/// The kept part of a key as text, as memcached shows keys.
pub(super) struct Escaped<'k>(pub &'k [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = [0; escaped_bytes_max(KEY_BYTES_KEPT)];
        let bytes = escape(self.0, &mut room);
        f.write_str(std::str::from_utf8(&room[..bytes]).unwrap_or_default())
    }
}

impl HotKeys {
    /// The hottest of them. Its figures of bytes are 0.
    fn hottest(&self) -> Hottest {
        let (share, error) = self.rows.first().map_or((0.0, 0.0), |key| (key.share, key.error));
        let hot_keys = self.rows.iter().filter(|key| key.share > 0.01).count() as u64;
        let all_per_second = self.all as f64 / self.seconds.max(0.001);
        Hottest { share, error, all_per_second, hot_keys, ..Hottest::default() }
    }
}

impl Traffic {
    /// The hot keys of the last rounds, at most `most`; `None` while no figures are shown.
    pub fn hot_keys(&self, most: usize) -> Option<HotKeys> {
        let (sampled, keys) = self.listed(most, |round| &round.keys, shown)?;
        Some(sampled.shares(keys))
    }

    /// The hottest key of the last rounds, and the one with most bytes; `None` while no figures are shown.
    pub(super) fn hottest_keys(&self) -> Option<Hottest> {
        let with_sums = |name: &Name, sums: &Sums, sampled: &Sampled| (shown(name, sums, sampled), *sums);
        let (sampled, listed) = self.listed(HOT_MAX, |round| &round.keys, with_sums)?;
        let most = listed.iter().map(|(_, sums)| *sums).max_by_key(|sums| sums.bytes);
        let (bytes_share, bytes_error) = most.map_or((0.0, 0.0), |sums| sampled.share_of_bytes(&sums));
        // After a pause of the process a round has samples, but no time yet.
        let bytes_per_second = if sampled.seconds < 1.0 { 0.0 } else { sampled.net.bytes / sampled.seconds };
        let keys: Vec<HotKey> = listed.into_iter().map(|(key, _)| key).collect();
        Some(Hottest { bytes_share, bytes_error, bytes_per_second, ..sampled.shares(keys).hottest() })
    }

    /// The rows that weigh most in tables of the last rounds, and the sums of these rounds; `None` while no figures are shown.
    pub(super) fn listed<R>(
        &self,
        most: usize,
        table: fn(&Round) -> &Top,
        shown: impl Fn(&Name, &Sums, &Sampled) -> R,
    ) -> Option<(Sampled, Vec<R>)> {
        let tables = self.tables();
        let rounds = &tables.rounds.as_ref()?.all;
        let mut sampled = Sampled::of(rounds);
        sampled.least = rounds.iter().map(|round| table(round).least()).sum();
        if sampled.keys == 0 {
            return Some((sampled, Vec::new()));
        }
        let share = |sums: &Sums| sampled.share(sums);
        let shown = |name: &Name, sums: &Sums| shown(name, sums, &sampled);
        let listed = ranked(rounds.iter().map(table), most, share, shown);
        Some((sampled, listed))
    }
}

/// Sums of the last rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    /// Keys that were asked for, about.
    pub keys: u64,
    /// The seconds in which they were.
    pub seconds: f64,
    /// Samples that this rests on.
    pub samples: u64,
    /// Mean number of keys that a sample stands for, each sample weighted by its number.
    pub weight: f64,
    /// The variance of the number of keys.
    variance: f64,
    /// Most that a name without an entry weighs.
    pub least: u64,
    /// Bytes of requests and replies.
    net: Replies,
}

impl Sampled {
    fn of(rounds: &[Round]) -> Sampled {
        let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>();
        let all = sum(|round| round.all);
        let squares: f64 = rounds.iter().map(|round| round.squares).sum();
        let net = rounds.iter().fold(Replies::default(), |sum, Round { net, .. }| Replies {
            bytes: sum.bytes + net.bytes,
            variance: sum.variance + net.variance,
        });
        Sampled {
            keys: all,
            seconds: sum(|round| round.to.saturating_sub(round.from)) as f64 / 1000.0,
            samples: sum(|round| round.samples),
            weight: squares / all.max(1) as f64,
            variance: squares - all as f64,
            least: 0,
            net,
        }
    }

    /// Shares of these rows, with the sums.
    pub fn shares<R>(&self, rows: Vec<R>) -> Shares<R> {
        Shares { rows, all: self.keys, seconds: self.seconds, samples: self.samples }
    }

    /// The share of all that a name has, and its error.
    pub fn share(&self, sums: &Sums) -> (f64, f64) {
        let all = self.keys.max(1) as f64;
        let share = sums.weight() as f64 / all;
        // The variance is at least that of its part of all samples: of a few samples that stand for much, none may have come.
        // One sample more is added: a few samples do not tell how many there might have been.
        let own = sums.variance.max(share * self.variance) + self.weight * (self.weight - 1.0);
        let variance = own * (1.0 - 2.0 * share) + self.variance * share * share;
        (share, (sums.error as f64 / 2.0 + SIGMAS * variance.max(0.0).sqrt()) / all)
    }

    /// A key's share of the bytes of all requests and replies, and its error. What one of its samples stands for is a part of
    /// the error: a few samples say nothing.
    fn share_of_bytes(&self, sums: &Sums) -> (f64, f64) {
        let (all, own) = (self.net.bytes.max(1.0), sums.bytes_variance);
        let others = (self.net.variance - own).max(0.0);
        let share = sums.bytes as f64 / all;
        // The variance of a ratio: bytes of the key move it by the share of the others, those of the others by the key's.
        let variance = (1.0 - share).powi(2) * own + share * share * others;
        let one = share * self.weight / sums.keys.max(1) as f64;
        (share, SIGMAS * variance.sqrt() / all + one)
    }

    /// Keys a second that a share makes.
    pub fn per_second(&self, share: f64) -> f64 {
        share * self.keys as f64 / self.seconds.max(0.001)
    }
}

fn shown(name: &Name, sums: &Sums, sampled: &Sampled) -> HotKey {
    let (share, error) = sampled.share(sums);
    let part = |of: u64| of as f64 / sums.keys.max(1) as f64;
    let per_second = sampled.per_second(share);
    HotKey {
        key: name.key.clone(),
        key_bytes: name.key_bytes,
        db: name.db,
        share,
        error,
        per_second,
        bytes_per_second: per_second * part(sums.bytes),
        reads: part(sums.reads),
        deletes: part(sums.deletes),
        hit_ratio: (sums.reads > 0).then(|| sums.hits as f64 / sums.reads as f64),
        value_bytes: sums.value_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_bytes_is_as_sure_as_it_has_samples() {
        let net = Replies { bytes: 1000.0, variance: 0.0 };
        let sampled =
            Sampled { keys: 100, seconds: 10.0, samples: 100, weight: 1.0, variance: 0.0, least: 0, net };
        let share = |sampled: &Sampled, keys: u64, bytes_variance: f64| {
            let (share, error) =
                sampled.share_of_bytes(&Sums { keys, bytes: 300, bytes_variance, ..Sums::default() });
            assert!((share - 0.3).abs() < 1e-9, "{share}");
            (error * 1e6).round() as u64
        };
        // All requests are sampled: but for one more or less it is known.
        assert_eq!(share(&sampled, 1, 0.0), 300_000);
        assert_eq!(share(&sampled, 10, 0.0), 30_000);
        // Each sample stands for four. 2.5 times the root of 0.49 times 100, of 1,000; and one of ten samples.
        let fourth = Sampled { weight: 4.0, net: Replies { variance: 100.0, ..net }, ..sampled };
        assert_eq!(share(&fourth, 40, 100.0), 17_500 + 30_000);
        // What others' samples stand for moves it, too: 0.09 times 10,000.
        let other = Sampled { net: Replies { variance: 10_000.0, ..net }, ..fourth };
        assert_eq!(share(&other, 40, 0.0), 75_000 + 30_000);
    }
}
