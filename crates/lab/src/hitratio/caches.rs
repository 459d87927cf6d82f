//! Streams shaped like those of real caches, from published figures: a table with a row each. Only data, which the store's bench
//! of hit ratios reads, too.
//!
//! Clusters are those of Twitter's caches (its cache traces' table of March 2020: mean sizes of keys and
//! values, Zipf's exponent, keys asked for once, times to live); `kvcache` is Meta's (CacheLib's
//! published size histogram and share of lone gets). Sizes of values spread around their mean as a
//! log-normal of σ 0.8, as the clusters with published histograms do. Only these figures are used:
//! arrivals are independent, as they are not in the traces.

/// Sizes of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Sizes around this mean.
    Mean(f64),
    /// Sizes with their weights.
    List(&'static [(usize, f64)]),
}

/// A stream.
#[derive(Debug, PartialEq)]
pub struct Stream {
    /// Its name.
    pub name: &'static str,
    /// The shortest and the longest key.
    pub key_bytes: (usize, usize),
    /// Sizes of values.
    pub values: Values,
    /// Exponent of popularity.
    pub zipf: f64,
    /// Share of requests for keys that are requested only once.
    pub lone: f64,
    /// Times to live in seconds with their weights; 0 is for ever.
    pub ttls: &'static [(u32, f64)],
}

const HOUR: u32 = 3_600;
/// Seconds of a day.
pub const DAY: u32 = 24 * HOUR;

/// Requests for each key of the working set in the time that a table's share of keys asked for once
/// was counted in, about: it turns a share of keys into a share of requests.
const PER_KEY: f64 = 8.0;

const fn once(share: f64) -> f64 {
    share / (1.0 - share) / PER_KEY
}

/// Requests after which another key has taken each key's place, per key.
pub const LIFE_PER_KEY: u64 = 20;

/// Every stream.
pub static STREAMS: [Stream; 7] = [
    Stream {
        name: "cluster52",
        key_bytes: (20, 20),
        values: Values::Mean(273.0),
        zipf: 1.21,
        lone: once(0.194),
        ttls: &[(DAY, 0.65), (14 * DAY, 0.28), (12 * HOUR, 0.07)],
    },
    Stream {
        name: "cluster17",
        key_bytes: (19, 19),
        values: Values::Mean(212.0),
        zipf: 2.11,
        lone: once(0.389),
        ttls: &[(5 * DAY, 1.0)],
    },
    Stream {
        name: "cluster24",
        key_bytes: (32, 32),
        values: Values::Mean(699.0),
        zipf: 1.37,
        lone: once(0.057),
        ttls: &[(14 * DAY, 0.81), (60, 0.19)],
    },
    Stream {
        name: "cluster29",
        key_bytes: (36, 36),
        values: Values::Mean(799.0),
        zipf: 1.23,
        lone: once(0.23),
        ttls: &[(HOUR, 0.67), (2 * HOUR, 0.33)],
    },
    Stream {
        name: "cluster44",
        key_bytes: (25, 25),
        values: Values::Mean(22.0),
        zipf: 1.41,
        lone: once(0.202),
        ttls: &[(30 * DAY, 1.0)],
    },
    Stream {
        name: "cluster25",
        key_bytes: (49, 49),
        values: Values::Mean(28.0),
        zipf: 0.99,
        lone: once(0.032),
        ttls: &[(30 * DAY, 1.0)],
    },
    Stream {
        name: "kvcache",
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
