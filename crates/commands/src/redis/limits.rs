//! Limits that can be set while the server runs, by Redis's names.
//!
//! | parameter | what it bounds |
//! |---|---|
//! | `proto-max-bulk-len` | a value; at most half of the memory limit |
//! | `client-query-buffer-limit` | a request on its way in |
//! | `client-output-buffer-limit` | what waits for a client: at once (hard), or for some seconds (soft) |

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_store::Guard;

use super::bytes::memory;
use crate::core::output::OutputLimit;

/// `proto-max-bulk-len` unless it is set.
const BULK_BYTES_MAX: u64 = 512 << 20;
/// `client-query-buffer-limit` unless it is set.
const QUERY_BYTES_MAX: u64 = 1 << 30;

/// Kinds of clients by their output limits, as Redis names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Clients that send commands.
    Normal,
    /// Clients that receive messages: subscribers and monitors.
    Pubsub,
}

#[derive(Debug, Default)]
struct Stored {
    hard_bytes: AtomicU64,
    soft_bytes: AtomicU64,
    soft_s: AtomicU64,
}

impl Stored {
    fn set(&self, [hard_bytes, soft_bytes, soft_s]: [u64; 3]) {
        self.hard_bytes.store(hard_bytes, Relaxed);
        self.soft_bytes.store(soft_bytes, Relaxed);
        self.soft_s.store(soft_s, Relaxed);
    }

    fn text(&self) -> String {
        let [hard, soft, seconds] =
            [&self.hard_bytes, &self.soft_bytes, &self.soft_s].map(|limit| limit.load(Relaxed));
        format!("{hard} {soft} {seconds}")
    }
}

/// Limits that can be set while the server runs.
#[derive(Debug)]
pub(crate) struct Limits {
    bulk_bytes_max: AtomicU64,
    query_bytes_max: AtomicU64,
    /// Limits of normal clients, replicas (of which there are none) and subscribers.
    output: [Stored; 3],
}

impl Default for Limits {
    fn default() -> Limits {
        let limits = Limits {
            bulk_bytes_max: AtomicU64::new(BULK_BYTES_MAX),
            query_bytes_max: AtomicU64::new(QUERY_BYTES_MAX),
            output: Default::default(),
        };
        limits.output[1].set([256 << 20, 64 << 20, 60]);
        limits.output[2].set([32 << 20, 8 << 20, 60]);
        limits
    }
}

impl Limits {
    /// Bytes of a value, at most: as set, but no more than half of the memory limit.
    #[inline]
    pub fn bulk_bytes_max(&self, guard: &Guard<'_>) -> u64 {
        self.bulk_bytes_max.load(Relaxed).min(guard.store().memory_bytes() / 2)
    }

    pub fn set_bulk_bytes_max(&self, bytes: u64) {
        self.bulk_bytes_max.store(bytes, Relaxed);
    }

    /// Bytes of a request, at most.
    pub fn query_bytes_max(&self) -> u64 {
        self.query_bytes_max.load(Relaxed)
    }

    pub fn set_query_bytes_max(&self, bytes: u64) {
        self.query_bytes_max.store(bytes, Relaxed);
    }

    /// How much may wait for a client of this class.
    pub fn output(&self, class: Class) -> OutputLimit {
        let stored = match class {
            Class::Normal => &self.output[0],
            Class::Pubsub => &self.output[2],
        };
        OutputLimit {
            hard_bytes: stored.hard_bytes.load(Relaxed),
            soft_bytes: stored.soft_bytes.load(Relaxed),
            soft_ms: stored.soft_s.load(Relaxed).saturating_mul(1000),
        }
    }

    /// `client-output-buffer-limit` as CONFIG GET shows it.
    pub fn output_text(&self) -> String {
        let [normal, replica, pubsub] = &self.output;
        format!("normal {} slave {} pubsub {}", normal.text(), replica.text(), pubsub.text())
    }

    /// Sets `client-output-buffer-limit` for the classes that the text names.
    ///
    /// # Errors
    /// The text is wrong; nothing was set.
    pub fn set_output(&self, text: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() || !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.");
        }
        let mut set = Vec::new();
        for four in words.chunks_exact(4) {
            let class = match four[0].to_ascii_lowercase().as_str() {
                "normal" => 0,
                "slave" | "replica" => 1,
                "pubsub" => 2,
                _ => return Err("Invalid client class specified in buffer limit configuration."),
            };
            let (Some(hard), Some(soft), Ok(seconds)) =
                (memory(four[1]), memory(four[2]), four[3].parse::<u32>())
            else {
                return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.");
            };
            set.push((class, [hard, soft, u64::from(seconds)]));
        }
        set.into_iter().for_each(|(class, limits): (usize, _)| self.output[class].set(limits));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_limits_are_set_by_class_or_not_at_all() {
        let limits = Limits::default();
        assert_eq!(
            limits.output_text(),
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
        );
        limits.set_output("normal 1 2 3 pubsub 1mb 2kb 4").expect("well formed");
        assert_eq!(limits.output_text(), "normal 1 2 3 slave 268435456 67108864 60 pubsub 1048576 2048 4");
        let normal = OutputLimit { hard_bytes: 1, soft_bytes: 2, soft_ms: 3000 };
        assert_eq!(limits.output(Class::Normal), normal);
        for bad in [
            "",
            "normal 1 2",
            "normal 9 9 9 foo 1 2 3",
            "normal x 1 1",
            "normal 9 9 -1",
            "normal 9 9 9 pubsub 1",
        ] {
            assert!(limits.set_output(bad).is_err(), "{bad}");
        }
        assert_eq!(limits.output(Class::Normal), normal);
    }
}
