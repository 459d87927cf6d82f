//! Streams of requests in the shape of published ones: sizes, popularity, keys asked for once,
//! lifetimes, and a drift of what is popular.
//!
//! Rows are means of Twitter's clusters (cache-trace, `stat/2020Mar.md`) and quantiles of Meta's
//! (CacheLib, `cachebench/test_configs/hit_ratio`). Key numbers are popularity ranks until the drift
//! replaces them; requests come at a steady rate of the stream's own clock. Beside them are the streams of the lab's
//! `hitratio` ([`lab`]).

use crate::{START, caches};

/// Requests in a second of a stream's time.
const RATE: u64 = 50_000;
/// The distinct keys of a stream take so many times the memory.
const WORKING_SETS: f64 = 4.0;

/// Bytes of values.
#[derive(Clone, Copy)]
pub enum Values {
    /// Log-normal around this mean, σ 0.8.
    Mean(f64),
    /// Quantiles: share of the values, and what they are at most.
    Quantiles(&'static [(f64, f64)]),
    /// Sizes, with their weights.
    List(&'static [(usize, f64)]),
}

/// A row.
pub struct Stream {
    pub name: &'static str,
    /// Bytes of keys, from so many to so many.
    pub key_bytes: (usize, usize),
    pub values: Values,
    /// Popularity: Zipf's exponent, over so many ranks.
    pub alpha: f64,
    pub ranks: usize,
    /// Millions of requests.
    pub millions: u64,
    /// Share of requests for a key that never comes again.
    pub lone: f64,
    /// Share of requests that are sets.
    pub sets: f64,
    /// Share of items, and their seconds to live.
    pub ttls: &'static [(f64, f64)],
    /// Share of the ranks that get another key in a second.
    pub drift: f64,
    /// The arena's size; if none, what the distinct keys take, over [`WORKING_SETS`].
    pub memory_mb: Option<u64>,
}

const KVCACHE_REG: Values = Values::Quantiles(&[
    (0.0, 20.0),
    (0.25, 100.0),
    (0.5, 159.0),
    (0.75, 160.0),
    (0.9, 191.0),
    (0.99, 959.0),
    (0.999, 12_991.0),
    (1.0, 60_000.0),
]);
const LEADER_FBOBJ: Values = Values::Quantiles(&[
    (0.0, 40.0),
    (0.5, 223.0),
    (0.75, 351.0),
    (0.9, 511.0),
    (0.99, 2271.0),
    (0.999, 9503.0),
    (1.0, 30_000.0),
]);
const LEADER_ASSOCS: Values = Values::Quantiles(&[
    (0.0, 20.0),
    (0.5, 63.0),
    (0.75, 159.0),
    (0.9, 895.0),
    (0.99, 24_991.0),
    (0.999, 223_839.0),
    (1.0, 300_000.0),
]);

/// Lifetimes are scaled with the length of the streams, a minute of theirs for a day.
pub const STREAMS: &[Stream] = &[
    Stream {
        name: "twitter-52",
        key_bytes: (20, 20),
        values: Values::Mean(273.0),
        alpha: 1.21,
        ranks: 1_000_000,
        millions: 3,
        lone: 0.05,
        sets: 0.06,
        ttls: &[(0.65, 60.0), (0.27, 840.0), (0.08, 30.0)],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "twitter-17",
        key_bytes: (19, 19),
        values: Values::Mean(212.0),
        alpha: 2.11,
        ranks: 1_000_000,
        millions: 4,
        lone: 0.10,
        sets: 0.01,
        ttls: &[(1.0, 300.0)],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "twitter-24",
        key_bytes: (32, 32),
        values: Values::Mean(699.0),
        alpha: 1.37,
        ranks: 1_000_000,
        millions: 3,
        lone: 0.02,
        sets: 0.01,
        ttls: &[(0.81, 840.0), (0.19, 5.0)],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "twitter-29",
        key_bytes: (36, 36),
        values: Values::Mean(799.0),
        alpha: 1.23,
        ranks: 1_000_000,
        millions: 3,
        lone: 0.06,
        sets: 0.13,
        ttls: &[(0.67, 10.0), (0.33, 20.0)],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "twitter-44",
        key_bytes: (25, 25),
        values: Values::Mean(22.0),
        alpha: 1.41,
        ranks: 1_000_000,
        millions: 12,
        lone: 0.05,
        sets: 0.01,
        ttls: &[],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "twitter-25",
        key_bytes: (49, 49),
        values: Values::Mean(28.0),
        alpha: 0.99,
        ranks: 1_000_000,
        millions: 10,
        lone: 0.01,
        sets: 0.04,
        ttls: &[],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "twitter-12",
        key_bytes: (44, 44),
        values: Values::Mean(1030.0),
        alpha: 0.30,
        ranks: 300_000,
        millions: 3,
        lone: 0.30,
        sets: 0.80,
        ttls: &[(1.0, 300.0)],
        drift: 0.001,
        memory_mb: None,
    },
    Stream {
        name: "kvcache-reg",
        key_bytes: (40, 40),
        values: KVCACHE_REG,
        alpha: 0.9,
        ranks: 600_000,
        millions: 3,
        lone: 0.135,
        sets: 0.0,
        ttls: &[],
        drift: 0.002,
        memory_mb: None,
    },
    Stream {
        name: "leader-fbobj",
        key_bytes: (24, 24),
        values: LEADER_FBOBJ,
        alpha: 1.0,
        ranks: 600_000,
        millions: 3,
        lone: 0.232,
        sets: 0.02,
        ttls: &[],
        drift: 0.002,
        memory_mb: None,
    },
    Stream {
        name: "leader-assocs",
        key_bytes: (24, 24),
        values: LEADER_ASSOCS,
        alpha: 1.0,
        ranks: 300_000,
        millions: 3,
        lone: 0.116,
        sets: 0.02,
        ttls: &[],
        drift: 0.002,
        memory_mb: None,
    },
];

/// Memory of the lab's streams.
const LAB_MB: u64 = 16;
/// Millions of requests of them, and of those with items so short that it takes more to write the arena twice.
const LAB_MILLIONS: u64 = 4;
const LAB_SHORT_BYTES: f64 = 64.0;
const LAB_SHORT_MILLIONS: u64 = 16;

/// The streams of the lab's `hitratio`: as many ranks as take [`WORKING_SETS`] times the memory.
pub fn lab() -> Vec<Stream> {
    caches::STREAMS.iter().map(|stream| Stream::of_lab(stream, LAB_MB)).collect()
}

/// The same over so many times the memory, and as many times as long; but for those of short items, which are long.
pub fn lab_of(times: u64) -> Vec<Stream> {
    let of = |stream| {
        let one = Stream::of_lab(stream, LAB_MB);
        if one.millions == LAB_SHORT_MILLIONS {
            return one;
        }
        Stream { millions: one.millions * times, ..Stream::of_lab(stream, LAB_MB * times) }
    };
    caches::STREAMS.iter().map(of).collect()
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub id: u64,
    pub value_bytes: usize,
    pub set: bool,
    pub now: u64,
    pub expires_at: u64,
}

impl Request {
    /// The key, of which the stream uses a part.
    pub fn key(&self) -> [u8; 256] {
        let mut key = [b'k'; 256];
        key[..16].copy_from_slice(format!("{:016x}", self.id).as_bytes());
        key
    }
}

/// A generator with 64 bits of state, the same at every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Stream {
    fn of_lab(stream: &caches::Stream, memory_mb: u64) -> Stream {
        let values = match stream.values {
            caches::Values::Mean(mean) => Values::Mean(mean),
            caches::Values::List(list) => Values::List(list),
        };
        let value_bytes = match values {
            Values::Mean(mean) => mean,
            Values::List(list) => list.iter().map(|&(bytes, weight)| bytes as f64 * weight).sum::<f64>(),
            Values::Quantiles(_) => unreachable!("the lab has none"),
        };
        let (least, most) = stream.key_bytes;
        let item_bytes = (least + most) as f64 / 2.0 + value_bytes;
        let ranks = (memory_mb as f64 * 1_048_576.0 * WORKING_SETS / item_bytes) as usize;
        // They are as long as the program.
        let ttls: &[(f64, f64)] = stream
            .ttls
            .iter()
            .map(|&(seconds, weight)| (weight, f64::from(seconds)))
            .collect::<Vec<_>>()
            .leak();
        Stream {
            name: stream.name,
            key_bytes: stream.key_bytes,
            values,
            alpha: stream.zipf,
            ranks,
            millions: if item_bytes < LAB_SHORT_BYTES { LAB_SHORT_MILLIONS } else { LAB_MILLIONS },
            lone: stream.lone,
            sets: 0.0,
            ttls: if ttls == [(1.0, 0.0)] { &[] } else { ttls },
            drift: RATE as f64 / (caches::LIFE_PER_KEY as f64 * ranks as f64),
            memory_mb: Some(memory_mb),
        }
    }

    /// Bytes of a key: always the same.
    pub fn key_bytes(&self, id: u64) -> usize {
        let (least, most) = self.key_bytes;
        least + (mix(!id) % (most - least + 1) as u64) as usize
    }

    /// Bytes of the value of a key: always the same.
    fn value_bytes(&self, id: u64) -> usize {
        let mut random = Random(mix(id));
        let bytes = match self.values {
            Values::Mean(mean) => {
                let sigma: f64 = 0.8;
                let normal = (-2.0 * random.unit().max(1e-12).ln()).sqrt()
                    * (std::f64::consts::TAU * random.unit()).cos();
                (mean.ln() - sigma * sigma / 2.0 + sigma * normal).exp()
            }
            Values::Quantiles(quantiles) => {
                let at = random.unit();
                let upper = quantiles.iter().position(|&(share, _)| share > at).expect("the last is 1");
                let ((from, low), (to, high)) = (quantiles[upper - 1], quantiles[upper]);
                let part = (at - from) / (to - from);
                (f64::ln(low) * (1.0 - part) + f64::ln(high) * part).exp()
            }
            Values::List(list) => {
                let mut at = random.unit() * list.iter().map(|(_, weight)| weight).sum::<f64>();
                let found = list.iter().find(|(_, weight)| {
                    at -= weight;
                    at < 0.0
                });
                found.unwrap_or(&list[0]).0 as f64
            }
        };
        bytes.clamp(1.0, 500_000.0) as usize
    }

    /// The requests, the same at every call.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        let mut random = Random(mix(self.key_bytes.0 as u64 * 1000 + self.ranks as u64));
        let mut sum = 0.0;
        let shares: Vec<f64> = (1..=self.ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-self.alpha);
                sum
            })
            .collect();
        let mut ids: Vec<u64> = (0..self.ranks as u64).collect();
        let mut fresh = 1 << 40;
        let replace_every = (RATE as f64 / (self.drift * self.ranks as f64)).max(1.0);
        let mut replace_at = replace_every;
        (0..self.millions * 1_000_000).map(move |i| {
            while i as f64 >= replace_at {
                let rank = (random.next() % ids.len() as u64) as usize;
                fresh += 1;
                ids[rank] = fresh;
                replace_at += (RATE as f64 / (self.drift * self.ranks as f64)).min(replace_every);
            }
            let id = if random.unit() < self.lone {
                fresh += 1;
                fresh
            } else {
                let at = random.unit() * sum;
                ids[shares.partition_point(|&share| share <= at).min(ids.len() - 1)]
            };
            let now = START + i * 1000 / RATE;
            let mut ttl = random.unit();
            let ttl_s = self.ttls.iter().find(|(share, _)| {
                ttl -= share;
                ttl < 0.0
            });
            Request {
                id,
                value_bytes: self.value_bytes(id),
                set: random.unit() < self.sets,
                now,
                expires_at: ttl_s.map_or(0, |(_, seconds)| now + (seconds * 1000.0) as u64),
            }
        })
    }

    /// The arena's size.
    pub fn memory_bytes(&self) -> u64 {
        if let Some(memory_mb) = self.memory_mb {
            return memory_mb << 20;
        }
        let mut seen = std::collections::HashSet::new();
        let bytes: u64 = self
            .requests()
            .filter(|request| seen.insert(request.id))
            .map(|request| (self.key_bytes(request.id) + request.value_bytes + 30) as u64)
            .sum();
        ((bytes as f64 / WORKING_SETS) as u64).next_multiple_of(64 << 10).max(2 << 20)
    }
}
