//! Spans as they are seen from outside: the owner of each, how full it is, how long ago the hand passed it.
//!
//! Their words are read without a lock: a picture may be of slightly different moments, and holds no worker up. What is
//! exact is the [`crate::Ledger`].

use crate::arena::{OWNER_FREE, OWNER_INDEX};
use crate::class::{CLASSES_END, ClassId, SPAN_BYTES};
use crate::sync::atomic::Ordering;
use crate::{Millis, Store};

/// The owner of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOwner {
    /// Without an owner.
    Free,
    /// The class with this number.
    Class(u8),
    /// The index's.
    Index,
}

/// A span as it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSeen {
    /// Whose it is.
    pub owner: SpanOwner,
    /// It is being emptied for another class, or since the limit was lowered.
    pub draining: bool,
    /// How much of it is handed out, in 255ths.
    pub fill: u8,
    /// How long ago the hand passed it, or the class got it; 0 of what no class owns.
    pub age_ms: Millis,
    /// The time until it is due, when enough of it will have expired; none: never, as far as is known.
    pub due_ms: Option<Millis>,
}

/// Bytes of a span.
pub const SPAN_SEEN_BYTES: u64 = SPAN_BYTES as u64;

impl Store {
    /// Calls `visit` with each span that was ever handed out, in the order of addresses.
    pub fn each_span(&self, now: Millis, visit: &mut dyn FnMut(SpanSeen)) {
        for number in 1..self.arena.spans_ever() {
            let span = self.arena.span(number);
            let owner = match span.owner.load(Ordering::Acquire) {
                OWNER_FREE => SpanOwner::Free,
                OWNER_INDEX => SpanOwner::Index,
                class => SpanOwner::Class(class),
            };
            let mut seen = SpanSeen {
                owner,
                draining: false,
                fill: if owner == SpanOwner::Index { u8::MAX } else { 0 },
                age_ms: 0,
                due_ms: None,
            };
            if let SpanOwner::Class(class) = owner
                && usize::from(class) < CLASSES_END
            {
                let chunks = ClassId(class).chunks_per_span();
                let carved = usize::from(span.carved.load(Ordering::Relaxed));
                let free = usize::from(span.free_count.load(Ordering::Relaxed));
                seen.fill = (carved.saturating_sub(free).min(chunks) * 255 / chunks) as u8;
                seen.draining = span.draining.load(Ordering::Relaxed) != 0;
                seen.age_ms = now.saturating_sub(span.passed().at);
                seen.due_ms = (!span.due.is_never()).then(|| span.due.at().saturating_sub(now));
            }
            visit(seen);
        }
    }

    /// Spans that were ever handed out.
    pub fn spans_ever(&self) -> u64 {
        u64::from(self.arena.spans_ever() - 1)
    }

    /// Spans that the limit allows, used or not.
    pub fn spans_allowed(&self) -> u64 {
        u64::from(self.arena.spans_allowed())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{Attributes, Config, Expect};

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn spans_are_seen_as_the_classes_have_them() {
        let store =
            Store::new(Config { memory_bytes: 16 << 20, workers_max: 1, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(NOW);
        for n in 0..4_000u32 {
            let key = n.to_le_bytes();
            let key = guard.key(&key);
            let expires = if n < 2_000 { NOW + 90_000 } else { 0 };
            let attributes = Attributes { expires_at: expires, ..Attributes::default() };
            let bytes = if n < 2_000 { 100 } else { 1_000 };
            guard.store_value(&key, &vec![1; bytes], &attributes, Expect::Any).unwrap();
        }
        drop(guard);
        let mut seen = Vec::new();
        store.each_span(NOW + 5_000, &mut |span| seen.push(span));
        let classes = store.classes(NOW + 5_000);
        assert!(classes.len() >= 2);
        for class in &classes {
            let own: Vec<&SpanSeen> =
                seen.iter().filter(|span| span.owner == SpanOwner::Class(class.id)).collect();
            assert_eq!(own.len() as u64, class.spans);
            let fill: f64 =
                own.iter().map(|span| f64::from(span.fill) / 255.0).sum::<f64>() / own.len() as f64;
            let used = class.used_chunks as f64 / (class.used_chunks + class.free_chunks) as f64;
            // Chunks in the worker's hands are handed out.
            assert!(fill >= used - 0.05, "{fill} {used}");
            assert!(own.iter().all(|span| span.age_ms == 5_000 && !span.draining));
            let due = own.iter().filter(|span| span.due_ms.is_some()).count();
            assert!(due == 0 || due == own.len(), "{own:?}");
        }
        assert!(seen.iter().any(|span| span.due_ms.is_some_and(|due| due <= 90_000)));
        assert!(seen.iter().any(|span| span.owner == SpanOwner::Index && span.fill == 255));
        assert_eq!(seen.len() as u64, store.spans_ever());
        assert!(store.spans_ever() <= store.spans_allowed() && store.spans_allowed() <= 256);
    }
}
