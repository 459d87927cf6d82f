//! The store: key → item, in one bounded arena, shared by every worker thread.
//!
//! [`Store`] is the shared part, [`Worker`] the part of one thread, [`Guard`] a worker inside a
//! batch: while a guard lives, nothing that it can reach is used again. Time is an argument:
//! milliseconds since the Unix epoch, given once a batch.
//!
//! ```text
//! Store ─┬─ Arena     address space → spans of 64 KiB
//!        ├─ Slabs     spans → chunks, by class            (docs/internals/slab.md)
//!        ├─ Index     hash → bucket → slot → location     (docs/internals/index.md)
//!        ├─ Epochs    when a freed chunk may be used again (docs/internals/threads.md)
//!        └─ Ghosts    which keys were evicted too early
//! Worker ─── Local    magazines of free chunks, chunks that wait for their epoch
//! ```
//!
//! Where to read:
//!
//! ```text
//! reading    index, bucket ─▶ read (hint, view, value)                    no lock
//! writing    write (publish, draft, room, touch), overwrite, edit, patch, upload   the home bucket's lock
//! elements   collection (change, hash, set, sorted, list, stream) of collections, as one item each
//! memory     worker (allocate, retire), limbo, dropped, unpin, blocks, slab, leftover, evict, expire, drain, owner, compact
//! together   transaction, watch, flush, database, wait
//! figures    counters, totals, types, event, check
//! ```
//!
//! It knows no protocol, opens no socket, starts no thread, reads no clock.
//!
//! # As an embedded cache
//!
//! ```
//! use larder_store::{Attributes, Config, Expect, Lookup, Store, Value};
//!
//! let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() })?;
//! let mut worker = store.worker()?; // one a thread
//! let now = 1_700_000_000_000;
//!
//! let mut guard = worker.enter(now); // one a batch
//! let key = guard.key(b"greeting");
//! let stored = guard.store_value(&key, b"hello", &Attributes::default(), Expect::Any).unwrap();
//!
//! let Lookup::Hit(item) = guard.get(&key) else { panic!("it was just stored") };
//! let Value::Whole(value) = item.value() else { panic!("small values are in one piece") };
//! assert_eq!((value, item.cas()), (&b"hello"[..], stored.cas));
//!
//! // A conditional write with an old token is refused.
//! guard.store_value(&key, b"bonjour", &Attributes::default(), Expect::Any).unwrap();
//! assert!(guard.store_value(&key, b"late", &Attributes::default(), Expect::Cas(stored.cas)).is_err());
//! # Ok::<(), larder_store::Error>(())
//! ```

mod access;
mod arbitrate;
mod arena;
mod attributes;
mod barren;
mod blocks;
mod bucket;
mod check;
mod class;
mod collection;
mod compact;
mod config;
mod counters;
mod database;
mod drain;
mod dropped;
mod due;
mod edit;
mod epoch;
mod event;
mod evict;
mod expect;
mod expire;
mod flush;
mod forecast;
mod ghost;
mod held;
mod index;
mod item;
mod key;
mod large;
mod ledger;
mod leftover;
mod limbo;
mod maintain;
mod map;
#[cfg(doctest)]
mod misuse;
#[cfg(feature = "loom")]
mod models;
mod moving;
mod numbers;
mod overwrite;
mod owner;
mod patch;
mod pin;
mod read;
mod recent;
mod ring;
#[cfg(feature = "schedule")]
pub mod schedule;
mod slab;
mod soonest;
mod sync;
mod totals;
mod transaction;
mod types;
mod unpin;
mod upload;
mod view;
mod wait;
mod watch;
mod window;
mod worker;
mod write;

pub use attributes::Attributes;
pub use blocks::BLOCK_BYTES_AT_ONCE;
pub use class::{CLASSES_END, chunk_sizes, plain_class};
pub use collection::{
    Added, Adding, AutoClaimed, BulkLoad, COPIED_BYTES_MAX, Claim, Collection, Consumer, ConsumerLoad,
    Copied, DIGITS_MAX, Declined, Delivered, Due, Element, Entries, EntriesBack, Entry, Fields, Group,
    GroupLoad, Lasting, LongMember, LongText, Made, NewFields, NewId, Parts, PendingEntry, PinnedValue,
    Removal, Removed, Run, ScoreRule, Scored, Start, Stream, StreamEntries, StreamEntriesBack, StreamEntry,
    StreamFields, StreamId, StreamLoad, StreamRefusal, StreamTrimmed, TakenOut, Timed, Trim, TrimTo, Trimmed,
    Type,
};
pub use config::{Automove, Config, Error, Eviction};
pub use database::{DATABASES, Database};
pub use edit::End;
pub use event::{Event, Giving, Gone};
pub use expect::{Expect, Refusal, Seen, Stored};
pub use flush::{FLUSHES_TOGETHER_MAX, Moment};
pub use forecast::{Curve, FACTORS, Forecast, Happened, Judging, Kept, Memory, NOW, Point, SIZES};
pub use held::{FREED_BLOCK_BYTES, HELD_SHARE, INPUT_SHARE, return_freed_blocks};
pub use key::{KEY_BYTES_MAX, Key};
pub use ledger::Ledger;
pub use map::{SPAN_SEEN_BYTES, SpanOwner, SpanSeen};
pub use read::{Hint, InLeaf, InPieces, Item, Lookup, Pieces, Pinned, Value};
pub use totals::{ClassTotals, Totals};
pub use types::TypeTotals;
pub use upload::{Spaces, Upload};
pub use watch::{Touched, WATCHES_SWAPPED_MAX};
pub use worker::{Guard, Worker};

use crate::sync::Apart;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use arena::{ARENA_BYTES_MAX, Arena, SPANS_BESIDE};
use class::SPAN_BYTES;
use counters::WorkerCounters;
use database::{Flushes, Names};
use epoch::Epochs;
use event::Events;
use ghost::Ghosts;
use index::Index;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};
use slab::Slabs;
use std::sync::Arc;
use transaction::{Open, World};
use watch::Watches;

/// Milliseconds since the Unix epoch; 0 as an expiry means "never".
pub type Millis = u64;

/// The least memory a store works in: the index, and a span for a few classes.
pub const MEMORY_BYTES_MIN: u64 = 16 * SPAN_BYTES as u64;
/// The most memory that a store can address: 256 GiB, but for the span at location 0.
pub const MEMORY_BYTES_MAX: u64 = ARENA_BYTES_MAX - (SPANS_BESIDE as usize * SPAN_BYTES) as u64;

/// The shared part.
#[derive(Debug)]
pub struct Store {
    arena: Arena,
    index: Index,
    slabs: Slabs,
    epochs: Epochs,
    ghosts: Ghosts,
    secrets: RapidSecrets,
    /// For keys of 8 to 16 bytes.
    seeds: [u64; 2],
    names: Names,
    world: World,
    open: Open,
    watches: Watches,
    events: Events,
    /// An [`Eviction`] and an [`Automove`], as numbers.
    eviction: AtomicU8,
    automove: AtomicU8,
    /// Bytes of all keys ever put on probation.
    probation_bytes: Apart<AtomicU64>,
    /// Bytes of chunks ever allocated, but for those that a worker had free in its hands.
    clock_bytes: Apart<AtomicU64>,
    /// What accesses are dated by.
    accesses: access::Clock,
    /// How long keys stay on probation.
    window: window::Window,
    counters: Box<[WorkerCounters]>,
    /// What happens without a worker: pins and uploads that are dropped.
    loose: WorkerCounters,
    /// How often something was flushed; the low byte is what buckets carry.
    stamp: AtomicU64,
    flushes: Flushes,
    flushing: Mutex<()>,
    /// The stamp up to which all buckets are known to be clean.
    cleaned: AtomicU64,
    /// When that was seen.
    cleaned_at: AtomicU64,
    /// Bytes of keys on the heap.
    key_bytes: AtomicU64,
    trees: collection::Trees,
    leftovers: leftover::Leftovers,
    dropped: dropped::Dropped,
    unpinned: unpin::Unpinned,
    blocks: blocks::Blocks,
    /// Bytes held by requests on their way in.
    input_bytes: Apart<AtomicU64>,
    /// Bytes held by connections.
    held: Apart<held::Held>,
    /// How often workers were asked to give back what they hold of draining spans.
    recall: AtomicU64,
    /// Workers that want memory or room in the index which transactions that wait may hold back.
    wanting: wait::Wanting,
    upkeep: Mutex<maintain::Upkeep>,
    expiry: Mutex<expire::Expiry>,
    /// A span is being visited.
    expiring: AtomicBool,
    /// The hash of the key whose due fields upkeep leaves; 0: of none.
    due_left: AtomicU64,
    workers_free: Mutex<Vec<usize>>,
}

impl Store {
    /// Reserves address space and makes an empty store.
    ///
    /// # Errors
    /// [`Error::Config`] for limits that cannot work, [`Error::System`] if the system refuses.
    pub fn new(config: Config) -> Result<Arc<Store>, Error> {
        if config.memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::Config("the memory limit is too small"));
        }
        if config.memory_bytes > MEMORY_BYTES_MAX {
            return Err(Error::Config("the memory limit is too large"));
        }
        let bytes_max = config.memory_bytes_max.clamp(config.memory_bytes, MEMORY_BYTES_MAX);
        if config.workers_max == 0 {
            return Err(Error::Config("at least one worker is needed"));
        }
        let arena = Arena::new(config.memory_bytes, bytes_max).map_err(Error::System)?;
        let index = Index::new(&arena).ok_or(Error::Config("the memory limit is too small"))?;
        let secrets = RapidSecrets::seed(config.seed);
        let seeds =
            [&b"first"[..], b"second"].map(|name| rapidhash_v3_micro_inline::<true, false>(name, &secrets));
        Ok(Arc::new(Store {
            arena,
            index,
            slabs: Slabs::new(),
            epochs: Epochs::new(config.workers_max),
            ghosts: Ghosts::default(),
            secrets,
            seeds,
            names: Names::default(),
            world: World::new(config.workers_max),
            open: Open::new(config.workers_max),
            watches: Watches::default(),
            events: Events::default(),
            eviction: AtomicU8::new(if config.evict { Eviction::All } else { Eviction::Off } as u8),
            automove: AtomicU8::new(Automove::Ages as u8),
            probation_bytes: Apart(AtomicU64::new(0)),
            clock_bytes: Apart(AtomicU64::new(0)),
            accesses: access::Clock::default(),
            window: window::Window::default(),
            counters: (0..config.workers_max).map(|_| WorkerCounters::default()).collect(),
            loose: WorkerCounters::default(),
            stamp: AtomicU64::new(0),
            flushes: Flushes::default(),
            flushing: Mutex::default(),
            cleaned: AtomicU64::new(0),
            cleaned_at: AtomicU64::new(0),
            key_bytes: AtomicU64::new(0),
            trees: collection::Trees::default(),
            leftovers: leftover::Leftovers::default(),
            dropped: dropped::Dropped::default(),
            unpinned: unpin::Unpinned::default(),
            blocks: blocks::Blocks::default(),
            input_bytes: Apart(AtomicU64::new(0)),
            held: Apart::default(),
            recall: AtomicU64::new(0),
            wanting: wait::Wanting::default(),
            upkeep: Mutex::default(),
            expiry: Mutex::default(),
            expiring: AtomicBool::new(false),
            due_left: AtomicU64::new(0),
            workers_free: Mutex::new((0..config.workers_max).rev().collect()),
        }))
    }

    /// A worker for one thread.
    ///
    /// # Errors
    /// [`Error::Workers`] if `workers_max` exist.
    pub fn worker(self: &Arc<Self>) -> Result<Worker, Error> {
        let id = self.workers_free.lock().expect("no panic under the lock").pop().ok_or(Error::Workers)?;
        Ok(Worker::new(Arc::clone(self), id))
    }

    /// How many workers there may be at a time.
    pub fn workers_max(&self) -> usize {
        self.counters.len()
    }

    /// Takes a worker's number back; true if there is no worker any more.
    fn leave_worker(&self, id: usize) -> bool {
        let mut free = self.workers_free.lock().expect("no panic under the lock");
        free.push(id);
        free.len() == self.counters.len()
    }

    /// This moment, given its time.
    fn moment(&self, at: Millis) -> slab::Moment {
        slab::Moment { at, clock: self.clock_bytes.load(Ordering::Relaxed) }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Everything else goes with the arena.
        let mut cursor = 0;
        while *self.key_bytes.get_mut() > 0 {
            let mut freed = 0;
            cursor = self.index.sweep(&self.arena, cursor, &mut |bucket| {
                let slots = (0..bucket::SLOTS).map(|i| bucket.slot(i)).filter(|slot| !slot.is_empty());
                for slot in slots {
                    // SAFETY: no other thread uses the store; each item is reached once.
                    freed += unsafe { item::RawItem::new(self.arena.at(slot.location())).free_key() } as u64;
                }
            });
            *self.key_bytes.get_mut() -= freed;
            if cursor == 0 {
                break;
            }
        }
    }
}
