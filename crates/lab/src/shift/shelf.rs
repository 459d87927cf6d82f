//! The shelf: the last sent and the last acknowledged version of every key, for all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::plan::Plan;

/// Versions of every key: the last one sent in the upper half, the last one acknowledged in the lower. They differ while a client
/// writes.
#[derive(Debug)]
pub struct Shelf {
    versions: Vec<AtomicU64>,
    /// Bytes of keys and values that were stored.
    pub written_bytes: AtomicU64,
}

impl Shelf {
    /// A shelf for all keys of a plan.
    pub fn new(plan: &Plan) -> Arc<Shelf> {
        let keys = plan.numbers() as usize;
        let versions = std::iter::repeat_with(|| AtomicU64::new(0)).take(keys).collect();
        Arc::new(Shelf { versions, written_bytes: AtomicU64::new(0) })
    }

    /// The word of a key; `None` for keys that are requested only once.
    fn word(&self, key: u32) -> Option<&AtomicU64> {
        self.versions.get(key as usize)
    }

    pub(super) fn acknowledged(&self, key: u32) -> u32 {
        self.word(key).map_or(0, |word| word.load(Relaxed) as u32)
    }

    pub(super) fn sent(&self, key: u32) -> u32 {
        self.word(key).map_or(u32::MAX, |word| (word.load(Relaxed) >> 32) as u32)
    }

    /// The next version to write, unless another client is writing the key.
    pub(super) fn begin(&self, key: u32) -> Option<u32> {
        let next = |word: u64| {
            let (sent, acknowledged) = ((word >> 32) as u32, word as u32);
            (sent == acknowledged).then(|| (u64::from(sent) + 1) << 32 | u64::from(acknowledged))
        };
        let Some(word) = self.word(key) else { return Some(1) };
        let before = word.fetch_update(Relaxed, Relaxed, next).ok()?;
        Some((before >> 32) as u32 + 1)
    }

    pub(super) fn end(&self, key: u32, version: u32) {
        if let Some(word) = self.word(key) {
            word.store(u64::from(version) << 32 | u64::from(version), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn a_key_has_one_writer_at_a_time() {
        let shelf = Shelf::new(&plan());
        assert_eq!(shelf.begin(3), Some(1));
        assert_eq!(shelf.begin(3), None, "somebody writes it");
        assert_eq!((shelf.acknowledged(3), shelf.sent(3)), (0, 1));
        shelf.end(3, 1);
        assert_eq!((shelf.acknowledged(3), shelf.begin(3)), (1, Some(2)));
    }
}
