//! What the store does by itself, for those who want to be told: behind a mask, in a buffer of the
//! worker that did it.
//!
//! The caller drains the buffer after each batch. Switched off it costs a branch where an item goes.

use crate::Store;
use crate::item::RawItem;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::worker::{Guard, Local};

/// Bytes that events take in one worker's buffer at most, or one part in [`EVENT_SHARE`] of the memory limit; what
/// comes then is counted and lost.
const EVENT_BYTES_MAX: usize = 1 << 20;
const EVENT_SHARE: u64 = 64;
/// So many, as a batch may take out in a small store, are a part of what a worker needs anyway; …
const EVENT_BYTES_FREE: usize = 256 << 10;
/// … the others are charged in steps of so many bytes. (Where each was charged, what was evicted from a store of two
/// megabytes had more evicted.)
const EVENT_BYTES_STEP: usize = 16 << 10;

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// Its time had passed, and it was taken out.
    Expired = 1,
    /// It was taken out for its memory.
    Evicted = 2,
}

/// Which events are noted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    mask: AtomicU8,
    lost: AtomicU64,
}

/// One worker's buffer: kind, database and end of each key.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    entries: Vec<(Event, u8, usize)>,
    keys: Vec<u8>,
    /// Bytes that the store was told of.
    charged: usize,
}

impl Store {
    /// Which events are noted from now on, of all workers.
    pub fn note_events(&self, events: &[Event]) {
        let mask = events.iter().fold(0, |mask, &event| mask | event as u8);
        self.events.mask.store(mask, Ordering::Relaxed);
    }

    /// Events lost because a worker's buffer was full.
    pub fn events_lost(&self) -> u64 {
        self.events.lost.load(Ordering::Relaxed)
    }
}

impl Local {
    /// Notes an event, if it is wanted. The item is reachable in this epoch.
    #[inline]
    pub(crate) fn note(&mut self, store: &Store, event: Event, item: RawItem) {
        if store.events.mask.load(Ordering::Relaxed) & event as u8 != 0 {
            self.note_wanted(store, event, item);
        }
    }

    #[cold]
    fn note_wanted(&mut self, store: &Store, event: Event, item: RawItem) {
        let header = item.header();
        // SAFETY: reachable in this epoch.
        let key = unsafe { item.key_by(header) };
        let buffer = &mut self.events;
        let entries = (buffer.entries.len() + 1) * size_of::<(Event, u8, usize)>();
        let bytes = buffer.keys.len() + key.len() + entries;
        let share = (store.memory_bytes() / EVENT_SHARE) as usize;
        if bytes > share.clamp(EVENT_BYTES_FREE, EVENT_BYTES_MAX) {
            store.events.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if bytes > EVENT_BYTES_FREE + buffer.charged {
            let step = (bytes - EVENT_BYTES_FREE - buffer.charged).next_multiple_of(EVENT_BYTES_STEP);
            buffer.charged += step;
            store.hold(step as i64);
        }
        buffer.keys.extend_from_slice(key);
        buffer.entries.push((event, item.number(header), buffer.keys.len()));
    }
}

impl Guard<'_> {
    /// There are events to be taken.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.local.events.entries.is_empty()
    }

    /// Takes the events of this worker, in order: what happened, to which key of the database of which
    /// name.
    pub fn take_events(&mut self, each: &mut dyn FnMut(Event, u8, &[u8])) {
        let buffer = std::mem::take(&mut self.local.events);
        let mut start = 0;
        for (event, number, end) in buffer.entries {
            each(event, self.store.names.name(number), &buffer.keys[start..end]);
            start = end;
        }
        if buffer.charged > 0 {
            self.store.hold(-(buffer.charged as i64));
        }
    }
}
