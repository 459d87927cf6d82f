//! The loads of the benchmark of TLS, with the most that a request of theirs may cost over TLS.

use crate::keys::Keyspace;
use crate::workload::Verb;

/// A load, which is measured over plain connections and over TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub name: &'static str,
    pub verb: Verb,
    pub keyspace: Keyspace,
    pub connections: usize,
    pub pipeline: usize,
    /// The most CPU time of a request over TLS, in µs.
    pub us_max: Option<f64>,
    /// The most CPU time above that of a request over a plain connection, in µs.
    pub more_us_max: Option<f64>,
}

const fn keyspace(first: u32, count: u32, value_bytes: usize) -> Keyspace {
    Keyspace { first, count, key_bytes: 16, value_bytes }
}

/// Keys with values of one size each, apart from each other.
pub(super) const SMALL: Keyspace = keyspace(0, 100_000, 100);
pub(super) const MIDDLE: Keyspace = keyspace(1_000_000, 20_000, 1_000);
pub(super) const LARGE: Keyspace = keyspace(2_000_000, 200, 100_000);

pub(super) const LOADS: [Asked; 5] = [
    Asked {
        name: "GET 100 B, 16 × 200",
        verb: Verb::Hit,
        keyspace: SMALL,
        connections: 16,
        pipeline: 200,
        us_max: Some(0.16),
        more_us_max: None,
    },
    Asked {
        name: "SET 100 B, 16 × 200",
        verb: Verb::Set,
        keyspace: SMALL,
        connections: 16,
        pipeline: 200,
        us_max: Some(0.20),
        more_us_max: None,
    },
    Asked {
        name: "GET 100 B, 50 × 1",
        verb: Verb::Hit,
        keyspace: SMALL,
        connections: 50,
        pipeline: 1,
        us_max: None,
        more_us_max: Some(1.5),
    },
    Asked {
        name: "GET 1,000 B, 16 × 200",
        verb: Verb::Hit,
        keyspace: MIDDLE,
        connections: 16,
        pipeline: 200,
        us_max: Some(0.6),
        more_us_max: None,
    },
    Asked {
        name: "GET 100 KB, 4 × 1",
        verb: Verb::Hit,
        keyspace: LARGE,
        connections: 4,
        pipeline: 1,
        us_max: Some(60.0),
        more_us_max: None,
    },
];
