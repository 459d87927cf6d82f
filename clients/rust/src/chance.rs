//! Chance, for pauses: callers that were in each other's way wait for different times.

use std::hash::{BuildHasher, RandomState};

/// A random number from 0 to 1.
pub(crate) fn chance() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}
