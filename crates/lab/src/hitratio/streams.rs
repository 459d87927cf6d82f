//! Streams shaped like those of real caches, from published figures: a table, a row each.
//!
//! Clusters are those of Twitter's caches (its cache traces' table of March 2020: mean sizes of keys and
//! values, Zipf's exponent, keys asked for once, times to live); `kvcache` is Meta's (CacheLib's
//! published size histogram and share of lone gets). Sizes of values spread around their mean as a
//! log-normal of σ 0.8, as the clusters with published histograms do. Only these figures are used:
//! arrivals are independent, as they are not in the traces.

use std::time::Duration;

use crate::shift::plan::{Phase, Plan};
use crate::sizes::Sizes;

/// How values are sized.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    /// About this mean.
    Mean(f64),
    /// Sizes with their weights.
    List(&'static [(usize, f64)]),
}

/// A stream.
#[derive(Debug, PartialEq)]
pub struct Stream {
    /// Its name.
    pub name: &'static str,
    /// It is among those of a quick run.
    pub quick: bool,
    /// Keys from this length to that.
    key_bytes: (usize, usize),
    values: Values,
    zipf: f64,
    /// Share of requests for keys that nobody asks for again.
    lone: f64,
    /// Times to live in seconds with their weights; 0 is for ever.
    ttls: &'static [(u32, f64)],
}

const HOUR: u32 = 3_600;
const DAY: u32 = 24 * HOUR;

/// Requests for each key of the working set in the time that a table's share of keys asked for once
/// was counted in, about: it turns a share of keys into a share of requests.
const PER_KEY: f64 = 8.0;

const fn once(share: f64) -> f64 {
    share / (1.0 - share) / PER_KEY
}

/// Every stream.
pub static STREAMS: [Stream; 7] = [
    Stream {
        name: "cluster52",
        quick: true,
        key_bytes: (20, 20),
        values: Values::Mean(273.0),
        zipf: 1.21,
        lone: once(0.194),
        ttls: &[(DAY, 0.65), (14 * DAY, 0.28), (12 * HOUR, 0.07)],
    },
    Stream {
        name: "cluster17",
        quick: false,
        key_bytes: (19, 19),
        values: Values::Mean(212.0),
        zipf: 2.11,
        lone: once(0.389),
        ttls: &[(5 * DAY, 1.0)],
    },
    Stream {
        name: "cluster24",
        quick: false,
        key_bytes: (32, 32),
        values: Values::Mean(699.0),
        zipf: 1.37,
        lone: once(0.057),
        ttls: &[(14 * DAY, 0.81), (60, 0.19)],
    },
    Stream {
        name: "cluster29",
        quick: false,
        key_bytes: (36, 36),
        values: Values::Mean(799.0),
        zipf: 1.23,
        lone: once(0.23),
        ttls: &[(HOUR, 0.67), (2 * HOUR, 0.33)],
    },
    Stream {
        name: "cluster44",
        quick: false,
        key_bytes: (25, 25),
        values: Values::Mean(22.0),
        zipf: 1.41,
        lone: once(0.202),
        ttls: &[(30 * DAY, 1.0)],
    },
    Stream {
        name: "cluster25",
        quick: true,
        key_bytes: (49, 49),
        values: Values::Mean(28.0),
        zipf: 0.99,
        lone: once(0.032),
        ttls: &[(30 * DAY, 1.0)],
    },
    Stream {
        name: "kvcache",
        quick: false,
        // Published: up to 255; memcached has names of 250 at most.
        key_bytes: (16, 250),
        values: Values::List(&[
            (100, 0.25),
            (159, 0.5),
            (191, 0.15),
            (500, 0.09),
            (5_000, 0.009),
            (30_000, 0.001),
        ]),
        zipf: 1.0,
        lone: 0.135,
        ttls: &[(0, 1.0)],
    },
];

/// Requests after which another key has taken each key's place, per key.
const LIFE_PER_KEY: u64 = 20;

/// Standard scores of the middles of sixteen equal shares of a normal distribution.
const SCORES: [f64; 8] = [0.0784, 0.2372, 0.4023, 0.5791, 0.7764, 1.0100, 1.3180, 1.8627];
const SIGMA: f64 = 0.8;

/// Sizes of this mean, log-normal.
fn around(mean: f64) -> Sizes {
    let raw: Vec<f64> = SCORES.iter().flat_map(|z| [(-SIGMA * z).exp(), (SIGMA * z).exp()]).collect();
    let scale = mean * raw.len() as f64 / raw.iter().sum::<f64>();
    Sizes::Weighted(raw.iter().map(|size| ((size * scale).round().max(1.0) as usize, 1.0)).collect())
}

impl Stream {
    /// The stream over keys and values of `working_set` times the memory.
    pub fn plan(&self, memory_mb: u32, working_set: f64) -> Plan {
        let sizes = match self.values {
            Values::Mean(mean) => around(mean),
            Values::List(list) => Sizes::Weighted(list.to_vec()),
        };
        let keys = match self.key_bytes {
            (least, most) if least == most => Sizes::Fixed(least),
            (least, most) => Sizes::Spread(least, most),
        };
        let (zipf, lone, ttls) = (self.zipf, self.lone, self.ttls.to_vec());
        let mut phase = Phase { first: 0, count: 0, keys, sizes, zipf, lone, life: 0, ttls };
        phase = phase.filling(memory_mb, working_set);
        phase.life = LIFE_PER_KEY * u64::from(phase.count);
        Plan {
            phases: vec![phase],
            memory_mb,
            before: Duration::from_secs(3600),
            after: Duration::ZERO,
            bin: Duration::from_secs(3600),
            connections: 16,
            pipeline: 32,
        }
    }

    /// In words.
    pub fn describe(&self) -> String {
        let (least, most) = self.key_bytes;
        let plan = self.plan(64, 1.0);
        format!(
            "keys of {} B, {}, Zipf {}, {:.1} % of requests for keys that come once",
            if least == most { least.to_string() } else { format!("{least}–{most}") },
            plan.phases[0].sizes,
            self.zipf,
            100.0 * self.lone
        )
    }
}

/// Finds a stream by name, for clap.
pub fn parse(name: &str) -> Result<&'static Stream, String> {
    let names = || STREAMS.iter().map(|stream| stream.name).collect::<Vec<_>>().join(", ");
    STREAMS.iter().find(|stream| stream.name == name).ok_or_else(|| format!("expected one of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_the_means_they_are_given() {
        for stream in &STREAMS {
            let plan = stream.plan(64, 4.0);
            let phase = &plan.phases[0];
            if let Values::Mean(mean) = stream.values {
                assert!((phase.sizes.mean() / mean - 1.0).abs() < 0.03, "{}", stream.name);
            }
            let bytes = f64::from(phase.count) * phase.item_bytes();
            assert!((bytes / (256.0 * 1_048_576.0) - 1.0).abs() < 0.01, "{}", stream.name);
            assert!(
                stream.ttls.iter().all(|&(ttl_s, _)| ttl_s <= 30 * DAY),
                "memcached takes more for a date"
            );
            assert_eq!(parse(stream.name), Ok(stream));
        }
        // Published: 335 bytes on the mean, half of them at most 159.
        let kvcache = parse("kvcache").unwrap().plan(64, 4.0);
        assert!((250.0..400.0).contains(&kvcache.phases[0].sizes.mean()));
        assert!(parse("cluster1").unwrap_err().contains("cluster52"));
    }
}
