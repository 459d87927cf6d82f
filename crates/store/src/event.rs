//! What the store does by itself, for clients that want to be told: behind a mask, in a buffer of the
//! worker that did it.
//!
//! The caller drains the buffer after each batch. Switched off it costs a branch where an item goes, and one where a drain
//! begins.

use crate::access;
use crate::bucket::Slot;
use crate::item::{FETCHED, RawItem};
use crate::large::Large;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::worker::{Guard, Local, class_of};
use crate::{Key, Millis, Store};

/// Bytes that events take in one worker's buffer at most, or one part in [`EVENT_SHARE`] of the memory limit; what
/// comes then is counted and lost.
const EVENT_BYTES_MAX: usize = 1 << 20;
const EVENT_SHARE: u64 = 64;
/// Bytes of events that are a part of what a worker has anyway: a batch may need as many in a small store.
const EVENT_BYTES_FREE: usize = 256 << 10;
/// Further bytes are charged in steps of this size. (When each event was charged, the events of evictions from a store
/// of two megabytes caused more evictions.)
const EVENT_BYTES_STEP: usize = 16 << 10;
/// Most givings that one worker notes until they are taken: 4 KiB, and far more than a batch has
/// drained. What comes then is lost, and not counted.
const GIVINGS_MAX: usize = 1024;

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// Its time had passed, and it was taken out.
    Expired = 1,
    /// It was taken out for its memory.
    Evicted = 2,
    /// Expired fields of a hash were taken out.
    FieldsExpired = 4,
    /// These were the last, and the key is gone.
    Emptied = 8,
}

/// An item that the store has taken out, or of which it has taken something out: then only its key and database are said.
#[derive(Clone, Copy, Debug)]
pub struct Gone<'e> {
    /// Why.
    pub event: Event,
    /// The name of its database.
    pub database: u8,
    /// Its key.
    pub key: &'e [u8],
    /// It was read.
    pub fetched: bool,
    /// Absolute expiry, 0 for never.
    pub expires_at: Millis,
    /// Seconds since its last access, as [`crate::Item::idle_s`] tells them.
    pub idle_s: u64,
    /// The slab class of its chunk.
    pub class: u8,
    /// Bytes of its value; of a collection about.
    pub value_bytes: u64,
}

/// A class gives a span to another: it begins to be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Giving {
    /// The class that gives.
    pub from: u8,
    /// The class that needs memory; none: the limit was lowered, and the span has no owner.
    pub to: Option<u8>,
    /// It has begun; else the class has no span that can be drained.
    pub begun: bool,
}

/// What is noted of an item beside its key.
#[derive(Clone, Copy, Debug)]
struct Noted {
    event: Event,
    number: u8,
    class: u8,
    fetched: bool,
    /// Where its key ends.
    end: usize,
    expires_at: Millis,
    idle_s: u64,
    value_bytes: u64,
}

/// Which events are noted.
#[derive(Debug, Default)]
pub(crate) struct Events {
    mask: AtomicU8,
    /// 1 if spans that are given are noted.
    givings: AtomicU8,
    lost: AtomicU64,
}

/// One worker's buffer.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    entries: Vec<Noted>,
    keys: Vec<u8>,
    /// Bytes that the store was told of.
    charged: usize,
}

impl Store {
    /// Sets which events are noted from now on, by all workers.
    pub fn note_events(&self, events: &[Event]) {
        let mask = events.iter().fold(0, |mask, &event| mask | event as u8);
        self.events.mask.store(mask, Ordering::Relaxed);
    }

    /// Sets whether spans that classes give are noted from now on, by all workers ([`Guard::take_givings`]).
    pub fn note_givings(&self, wanted: bool) {
        self.events.givings.store(u8::from(wanted), Ordering::Relaxed);
    }

    /// Events lost because a worker's buffer was full.
    pub fn events_lost(&self) -> u64 {
        self.events.lost.load(Ordering::Relaxed)
    }
}

impl Local {
    /// Notes an event, if it is wanted. The item is reachable in this epoch.
    #[inline]
    pub(crate) fn note(&mut self, store: &Store, event: Event, item: RawItem, slot: Slot, now_s: u64) {
        if store.events.mask.load(Ordering::Relaxed) & event as u8 != 0 {
            self.note_wanted(store, event, item, slot, now_s);
        }
    }

    #[cold]
    fn note_wanted(&mut self, store: &Store, event: Event, item: RawItem, slot: Slot, now_s: u64) {
        let header = item.header();
        let value_bytes = match header {
            header if header.is_whole() => header.value_bytes() as u64,
            // SAFETY: a large item, reachable in this epoch.
            header if header.is_large() => unsafe { Large::of(item) }.head().value_bytes,
            // SAFETY: a collection, reachable in this epoch.
            header if header.is_tree() => unsafe { item.root(header) }.bytes,
            // SAFETY: the same.
            header => unsafe { item.leaf_bytes(header) as u64 },
        };
        // SAFETY: reachable in this epoch.
        let key = unsafe { item.key_by(header) };
        let noted = Noted {
            event,
            number: item.number(header),
            class: class_of(&store.arena, header, slot.location()).0,
            fetched: header.has(FETCHED),
            end: 0,
            expires_at: item.expires_at(),
            idle_s: access::idle_s(slot.access(), now_s),
            value_bytes,
        };
        self.put_noted(store, key, noted);
    }

    /// Notes an event of a key, if it is wanted.
    pub(crate) fn note_key(&mut self, store: &Store, event: Event, key: &Key<'_>) {
        if store.events.mask.load(Ordering::Relaxed) & event as u8 != 0 {
            let number = key.number;
            let noted = Noted {
                event,
                number,
                class: 0,
                fetched: false,
                end: 0,
                expires_at: 0,
                idle_s: 0,
                value_bytes: 0,
            };
            self.put_noted(store, key.bytes, noted);
        }
    }

    /// Notes that a class gives a span, if that is wanted.
    pub(crate) fn note_giving(&mut self, store: &Store, giving: Giving) {
        if store.events.givings.load(Ordering::Relaxed) != 0 && self.givings.len() < GIVINGS_MAX {
            self.givings.push(giving);
        }
    }

    fn put_noted(&mut self, store: &Store, key: &[u8], noted: Noted) {
        let buffer = &mut self.events;
        let entries = (buffer.entries.len() + 1) * size_of::<Noted>();
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
        buffer.entries.push(Noted { end: buffer.keys.len(), ..noted });
    }
}

impl Guard<'_> {
    /// True if there are events or givings to be taken.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.local.events.entries.is_empty() || !self.local.givings.is_empty()
    }

    /// Takes the spans that classes gave by this worker's work, in order.
    pub fn take_givings(&mut self, each: &mut dyn FnMut(Giving)) {
        std::mem::take(&mut self.local.givings).into_iter().for_each(each);
    }

    /// Takes the events of this worker, in order. `each` gets what happened, the name of the database, and the key.
    pub fn take_events(&mut self, each: &mut dyn FnMut(Event, u8, &[u8])) {
        self.take_gone(&mut |gone| each(gone.event, gone.database, gone.key));
    }

    /// As [`Guard::take_events`], with what the items were like.
    pub fn take_gone(&mut self, each: &mut dyn FnMut(&Gone<'_>)) {
        let buffer = std::mem::take(&mut self.local.events);
        let mut start = 0;
        for noted in buffer.entries {
            let Noted { event, number, class, fetched, end, expires_at, idle_s, value_bytes } = noted;
            let (database, key) = (self.store.names.name(number), &buffer.keys[start..end]);
            each(&Gone { event, database, key, fetched, expires_at, idle_s, class, value_bytes });
            start = end;
        }
        if buffer.charged > 0 {
            self.store.hold(-(buffer.charged as i64));
        }
    }
}
