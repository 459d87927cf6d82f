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
//!        └─ Ghosts    who was evicted too early
//! Worker ─── Local    magazines of free chunks, chunks that wait for their epoch
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
mod barren;
mod bucket;
mod check;
mod class;
mod compact;
mod counters;
mod database;
mod drain;
mod due;
mod edit;
mod epoch;
mod event;
mod evict;
mod expire;
mod ghost;
mod held;
mod index;
mod item;
mod large;
mod limbo;
mod maintain;
#[cfg(loom)]
mod models;
mod moving;
mod numbers;
mod overwrite;
mod patch;
mod pin;
mod read;
mod ring;
mod slab;
mod soonest;
mod sync;
mod transaction;
mod upload;
mod watch;
mod window;
mod worker;
mod write;

pub use class::{CLASSES_END, chunk_sizes, plain_class};
pub use database::DATABASES;
pub use event::Event;
pub use held::{FREED_BLOCK_BYTES, HELD_SHARE, return_freed_blocks, trim_heap};
pub use read::{Hint, InPieces, Item, Lookup, Pieces, Pinned, Value};
pub use transaction::Version;
pub use upload::{Spaces, Upload};
pub use watch::Touched;
pub use worker::{Guard, Worker};

use arena::{ARENA_BYTES_MAX, Arena};
use bucket::Control;
use class::{CHUNK_BYTES_MAX, ClassId, SPAN_BYTES};
use counters::{ClassCount, Counter, WorkerCounters};
use database::{Flushes, Names, Word};
use epoch::Epochs;
use event::Events;
use ghost::Ghosts;
use index::Index;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};
use slab::Slabs;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use transaction::World;
use watch::Watches;

/// Milliseconds since the Unix epoch; 0 as an expiry means "never".
pub type Millis = u64;

/// The least memory a store works in: the index, and a span for a few classes.
pub const MEMORY_BYTES_MIN: u64 = 16 * SPAN_BYTES as u64;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that items, index and bookkeeping may take together; at least [`MEMORY_BYTES_MIN`].
    pub memory_bytes: u64,
    /// Address space to reserve, the most [`Store::set_memory_bytes`] can grow to; at most 256 GiB.
    /// Less than `memory_bytes` means just that.
    pub memory_bytes_max: u64,
    /// Most workers that may exist at once.
    pub workers_max: usize,
    /// False: a full store refuses writes instead of evicting.
    pub evict: bool,
    /// Seed of the key hash: random where keys come from strangers, fixed in tests.
    pub seed: u64,
}

impl Default for Config {
    /// 64 MiB, 64 workers, evicting, and a fixed seed.
    fn default() -> Config {
        Config { memory_bytes: 64 << 20, memory_bytes_max: 0, workers_max: 64, evict: true, seed: 0 }
    }
}

/// Which items a full store evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Eviction {
    /// None: writes are refused.
    Off,
    /// Any, those of least use first.
    All,
    /// Those that have an expiry, of least use first.
    Volatile,
    /// Those that have an expiry, the soonest first of some hundreds at a time.
    VolatileTtl,
}

impl Eviction {
    const ALL: [Eviction; 4] = [Eviction::Off, Eviction::All, Eviction::Volatile, Eviction::VolatileTtl];
}

/// Whether memory moves between slab classes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Automove {
    /// It does not: a class evicts its own. One without a span gets one.
    Off,
    /// A class that is clearly younger than the oldest takes from it.
    Ages,
    /// The oldest class always gives.
    Always,
}

impl Attributes {
    /// Slab class of an item with such attributes, key and value, as [`Item::class`] says it.
    #[inline]
    pub fn class(&self, key: &Key<'_>, value_bytes: u64) -> u8 {
        let shape = self.shape(key, value_bytes, false);
        let bytes = if shape.large() { CHUNK_BYTES_MAX } else { shape.whole_bytes() as usize };
        ClassId::of(bytes).0
    }
}

impl Automove {
    const ALL: [Automove; 3] = [Automove::Off, Automove::Ages, Automove::Always];
}

/// A key with its hash: computed once a request, used by every step of it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: u64,
    /// The database's number.
    number: u8,
}

impl<'k> Key<'k> {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
    /// The hash; the same for the life of the store.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// What a write stores beside the value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// memcached's client flags.
    pub flags: u32,
    /// Absolute expiry; 0 is never. A time that has passed stores an item that is already expired.
    pub expires_at: Millis,
    /// The CAS token to give the item instead of the next version (meta flag `E`).
    pub cas: Option<u64>,
    /// The key arrived base64-encoded (meta flag `b`).
    pub key_binary: bool,
    /// The item is stale from the start (meta `ms … I` with an older token).
    pub stale: bool,
    /// A recache token was handed out for it (vivified by meta `N`, or won).
    pub token_sent: bool,
}

/// The condition under which a write happens; checked under the bucket's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Always.
    Any,
    /// Only if no live item has the key (`add`).
    Absent,
    /// Only if a live item has the key (`replace`).
    Present,
    /// Only if the live item's wire token equals this (`cas`).
    Cas(u64),
    /// Only if the live item is still exactly the one seen before.
    Unchanged(Seen),
}

/// Identity of one version of one item, for [`Expect::Unchanged`]. Good within the guard it was
/// made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    location: u64,
    version: u32,
    token: u64,
}

/// Why a conditional write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key has no live item, and one was expected.
    Absent,
    /// The key has a live item, and none was expected.
    Present,
    /// The live item is another one than expected.
    Changed,
    /// No memory could be had (only without eviction, when everything is pinned, when long keys hold
    /// their share), or the key is longer than [`KEY_BYTES_MAX`].
    NoMemory,
}

/// A write that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The wire token of the new item.
    pub cas: u64,
    /// A live item was overwritten.
    pub replaced: bool,
}

/// Which end [`Guard::concat`] adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// append
    Back,
    /// prepend
    Front,
}

/// Store-wide figures, summed over workers and classes when asked.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Live items (expired and flushed ones count until they are taken out).
    pub items: u64,
    /// Items ever stored.
    pub items_stored: u64,
    /// Bytes of items in use: header, key, value and what goes with them.
    pub item_bytes: u64,
    /// Live items evicted for memory.
    pub evictions: u64,
    /// Of these, never fetched.
    pub evicted_unfetched: u64,
    /// Items whose memory was taken back because their time had passed.
    pub reclaimed: u64,
    /// Of these, never fetched.
    pub expired_unfetched: u64,
    /// Items that upkeep has looked at.
    pub maintain_checked: u64,
    /// Writes refused for want of memory.
    pub out_of_memory: u64,
    /// Memory limit.
    pub memory_bytes: u64,
    /// Memory in use by spans, index and bookkeeping.
    pub used_bytes: u64,
    /// Bytes that connections hold: buffers and pinned values.
    pub held_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Slots of the index.
    pub index_slots: u64,
    /// A segment of the index is being rebuilt now.
    pub index_growing: bool,
    /// Spans nobody owns.
    pub spans_free: u64,
    /// Spans that were drained for another class, or after the limit was lowered.
    pub spans_moved: u64,
    /// Items and pieces of items that were moved out of such spans.
    pub chunks_moved: u64,
    /// Keys stored again soon after they were evicted on probation.
    pub ghost_hits: u64,
}

/// Figures of one slab class.
#[derive(Clone, Debug, Default)]
pub struct ClassTotals {
    /// Class number, from 1, ascending by chunk size.
    pub id: u8,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Spans (64 KiB each) the class owns.
    pub spans: u64,
    /// Chunks in use (pieces of large values count in the class they are in).
    pub used_chunks: u64,
    /// Chunks free.
    pub free_chunks: u64,
    /// Items whose head is in this class.
    pub items: u64,
    /// Bytes asked for by what is in the chunks.
    pub requested_bytes: u64,
    /// As in [`Totals`].
    pub evictions: u64,
    /// As in [`Totals`].
    pub evicted_unfetched: u64,
    /// Evicted items that had an expiry.
    pub evicted_nonzero: u64,
    /// Seconds since last access of the item evicted last.
    pub evicted_age_s: u64,
    /// As in [`Totals`].
    pub reclaimed: u64,
    /// As in [`Totals`].
    pub expired_unfetched: u64,
    /// As in [`Totals`].
    pub out_of_memory: u64,
    /// Keys stored again soon after they were evicted on probation.
    pub ghost_hits: u64,
    /// Milliseconds since the eviction hand last passed where it is now.
    pub age_ms: u64,
}

/// Why a store or worker could not be made.
#[derive(Debug)]
pub enum Error {
    /// The configuration cannot work; the text says why.
    Config(&'static str),
    /// The system refused memory.
    System(std::io::Error),
    /// More workers than `workers_max`.
    Workers,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Everything else goes with the arena.
        let mut cursor = 0;
        while *self.key_bytes.get_mut() > 0 {
            let mut freed = 0;
            let next = self.index.walk(&self.arena, cursor, usize::MAX, &mut |slot| {
                // SAFETY: nobody else uses the store; each item is reached once.
                freed += unsafe { item::RawItem::new(self.arena.at(slot.location())).free_key() } as u64;
            });
            cursor = next.expect("no transaction is open");
            *self.key_bytes.get_mut() -= freed;
            if cursor == 0 {
                break;
            }
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Config(why) => f.write_str(why),
            Error::System(error) => write!(f, "the system refused memory: {error}"),
            Error::Workers => f.write_str("more workers than configured"),
        }
    }
}

impl std::error::Error for Error {}

/// Both halves of the product, one over the other.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

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
    watches: Watches,
    events: Events,
    /// An [`Eviction`] and an [`Automove`], as numbers.
    eviction: AtomicU8,
    automove: AtomicU8,
    /// Bytes of all keys ever put on probation.
    probation_bytes: AtomicU64,
    /// Bytes of chunks ever allocated, but for those that a worker had free in its hands.
    clock_bytes: AtomicU64,
    /// How long keys stay on probation.
    window: window::Window,
    counters: Box<[WorkerCounters]>,
    /// What happens without a worker: pins and uploads that are dropped.
    loose: WorkerCounters,
    /// How often something was flushed; the low byte is what buckets carry.
    stamp: AtomicU64,
    /// What a control word must say for its bucket to be used: [`Control::gate`] of the stamp.
    gate: AtomicU64,
    flushes: Flushes,
    flushing: Mutex<()>,
    /// The stamp up to which all buckets are known to be clean.
    cleaned: AtomicU64,
    /// Bytes of keys on the heap.
    key_bytes: AtomicU64,
    /// Bytes held by uploads under way.
    upload_bytes: AtomicU64,
    /// Bytes held by connections.
    held: held::Held,
    /// How often workers were asked to give back what they hold of draining spans.
    recall: AtomicU64,
    upkeep: Mutex<maintain::Upkeep>,
    expiry: Mutex<expire::Expiry>,
    /// A span is being visited.
    expiring: AtomicBool,
    workers_free: Mutex<Vec<usize>>,
}

impl Store {
    /// Reserves address space and makes an empty store.
    ///
    /// # Errors
    /// [`Error::Config`] for limits that cannot work, [`Error::System`] if the system says no.
    pub fn new(config: Config) -> Result<Arc<Store>, Error> {
        let bytes_max = config.memory_bytes_max.max(config.memory_bytes);
        if config.memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::Config("the memory limit is too small"));
        }
        if bytes_max > ARENA_BYTES_MAX - SPAN_BYTES as u64 {
            return Err(Error::Config("the memory limit is too large"));
        }
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
            watches: Watches::default(),
            events: Events::default(),
            eviction: AtomicU8::new(if config.evict { Eviction::All } else { Eviction::Off } as u8),
            automove: AtomicU8::new(Automove::Ages as u8),
            probation_bytes: AtomicU64::new(0),
            clock_bytes: AtomicU64::new(0),
            window: window::Window::default(),
            counters: (0..config.workers_max).map(|_| WorkerCounters::default()).collect(),
            loose: WorkerCounters::default(),
            stamp: AtomicU64::new(0),
            gate: AtomicU64::new(Control::gate(0)),
            flushes: Flushes::default(),
            flushing: Mutex::default(),
            cleaned: AtomicU64::new(0),
            key_bytes: AtomicU64::new(0),
            upload_bytes: AtomicU64::new(0),
            held: held::Held::default(),
            recall: AtomicU64::new(0),
            upkeep: Mutex::default(),
            expiry: Mutex::default(),
            expiring: AtomicBool::new(false),
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

    fn leave_worker(&self, id: usize) {
        self.workers_free.lock().expect("no panic under the lock").push(id);
    }

    /// Keys of 8 to 16 bytes, which most are, by two folded multiplications without a call; a
    /// stranger does not know the seeds.
    #[inline(always)]
    fn hash(&self, key: &[u8]) -> u64 {
        if let (8..=16, Some(head), Some(tail)) = (key.len(), key.first_chunk(), key.last_chunk()) {
            let [first, second] = self.seeds;
            let head = u64::from_le_bytes(*head) ^ first;
            let tail = u64::from_le_bytes(*tail) ^ second.rotate_left(key.len() as u32);
            return folded(folded(head, tail) ^ second, first | 1);
        }
        self.hash_any(key)
    }

    #[inline(never)]
    fn hash_any(&self, key: &[u8]) -> u64 {
        rapidhash_v3_micro_inline::<true, false>(key, &self.secrets)
    }

    /// A key of database 0, memcached's, with its hash. Good for the batch it was made in.
    #[inline(always)]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.key_in(0, bytes)
    }

    /// A key of the database of this name, below [`DATABASES`].
    #[inline(always)]
    pub fn key_in<'a>(&self, name: u8, bytes: &'a [u8]) -> Key<'a> {
        let word = self.names.word(name);
        Key { bytes, hash: word.salt(self.hash(bytes)), number: word.number() }
    }

    /// The hash of a key of the database with this number.
    fn hash_of(&self, number: u8, key: &[u8]) -> u64 {
        Word::of(number).salt(self.hash(key))
    }

    /// The stamp that clean buckets carry.
    #[inline]
    fn stamp(&self) -> u8 {
        self.stamp_count() as u8
    }

    /// What the control word of a bucket that may be used has to say.
    #[inline(always)]
    fn gate(&self) -> u64 {
        self.gate.load(Ordering::Acquire)
    }

    #[inline]
    fn stamp_count(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// Flushes the database of this number, or all; the caller has seen to it that stamps do not
    /// wrap.
    fn raise_stamp(&self, number: Option<u8>) {
        let _one = self.flushing.lock().expect("no panic under the lock");
        let stamp = self.stamp_count() + 1;
        self.flushes.note(stamp as u8, number);
        for gone in 0..DATABASES {
            if number.is_none_or(|number| number == gone) {
                self.flushes.set_garbage(gone, self.items_of(gone));
            }
        }
        // Release, both: whoever sees the stamp sees its scope.
        self.stamp.store(stamp, Ordering::Release);
        self.gate.store(Control::gate(stamp as u8), Ordering::Release);
    }

    /// All buckets were seen clean of the flushes up to `stamp`.
    fn all_clean(&self, stamp: u64) {
        let _one = self.flushing.lock().expect("no panic under the lock");
        self.cleaned.fetch_max(stamp, Ordering::Relaxed);
        if self.stamp_count() == stamp {
            (0..DATABASES).for_each(|number| self.flushes.set_garbage(number, 0));
        }
    }

    /// So many flushes since all buckets were clean that stamps could soon be mistaken.
    fn flush_lags(&self) -> bool {
        self.stamp_count() - self.cleaned.load(Ordering::Relaxed) >= 128
    }

    /// Which items a full store evicts.
    #[inline]
    pub fn eviction(&self) -> Eviction {
        Eviction::ALL[usize::from(self.eviction.load(Ordering::Relaxed))]
    }

    /// Sets which items a full store evicts, from the next eviction on.
    pub fn set_eviction(&self, eviction: Eviction) {
        self.eviction.store(eviction as u8, Ordering::Relaxed);
        self.arena.barren.clear();
    }

    #[inline]
    fn evicts(&self) -> bool {
        self.eviction() != Eviction::Off
    }

    /// This moment, given its time.
    fn moment(&self, at: Millis) -> slab::Moment {
        slab::Moment { at, clock: self.clock_bytes.load(Ordering::Relaxed) }
    }

    /// Whether memory moves between slab classes by itself.
    pub fn automove(&self) -> Automove {
        Automove::ALL[usize::from(self.automove.load(Ordering::Relaxed))]
    }

    /// Sets whether memory moves between slab classes by itself.
    pub fn set_automove(&self, automove: Automove) {
        self.automove.store(automove as u8, Ordering::Relaxed);
    }

    fn all_counters(&self) -> impl Iterator<Item = &WorkerCounters> {
        self.counters.iter().chain(std::iter::once(&self.loose))
    }

    fn sum(&self, one: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.all_counters().fold(0, |sum, counters| sum.wrapping_add(one(counters)))
    }

    /// Items now.
    fn items(&self) -> u64 {
        ClassId::all().fold(0u64, |sum, id| sum.wrapping_add(self.sum(|c| c.class(id).items.value())))
    }

    /// Store-wide figures.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            items: self.items(),
            items_stored: self.sum(|c| c.items_stored.value()),
            maintain_checked: self.sum(|c| c.maintain_checked.value()),
            out_of_memory: self.sum(|c| c.out_of_memory.value()),
            spans_moved: self.sum(|c| c.spans_moved.value()),
            chunks_moved: self.sum(|c| c.chunks_moved.value()),
            memory_bytes: self.arena.limit_bytes(),
            used_bytes: self.arena.used_bytes(),
            held_bytes: self.held_bytes(),
            index_bytes: self.index.bytes(),
            index_slots: self.index.slots(),
            index_growing: self.index.growing(),
            spans_free: self.arena.spans_free(),
            ..Totals::default()
        };
        for id in ClassId::all() {
            let sum = |one: fn(&ClassCount) -> &Counter| self.sum(|c| one(c.class(id)).value());
            totals.item_bytes = totals.item_bytes.wrapping_add(sum(|c| &c.requested_bytes));
            totals.evictions += sum(|c| &c.evictions);
            totals.evicted_unfetched += sum(|c| &c.evicted_unfetched);
            totals.reclaimed += sum(|c| &c.reclaimed);
            totals.expired_unfetched += sum(|c| &c.expired_unfetched);
            totals.ghost_hits += sum(|c| &c.ghost_hits);
        }
        totals
    }

    /// Figures at time `now` of the classes that own a span, ascending.
    pub fn classes(&self, now: Millis) -> Vec<ClassTotals> {
        let mut all = Vec::new();
        for id in ClassId::all() {
            let (spans, out_of_memory) = {
                let slab = self.slabs.class(id);
                (slab.spans() as u64, slab.out_of_memory)
            };
            if spans == 0 {
                continue;
            }
            let sum = |one: fn(&ClassCount) -> &Counter| self.sum(|c| one(c.class(id)).value());
            let used_chunks = sum(|c| &c.used_chunks);
            let view = self.slabs.view(id);
            all.push(ClassTotals {
                id: id.0,
                chunk_bytes: id.chunk_bytes() as u32,
                spans,
                used_chunks,
                free_chunks: (spans * id.chunks_per_span() as u64).saturating_sub(used_chunks),
                items: sum(|c| &c.items),
                requested_bytes: sum(|c| &c.requested_bytes),
                evictions: sum(|c| &c.evictions),
                evicted_unfetched: sum(|c| &c.evicted_unfetched),
                evicted_nonzero: sum(|c| &c.evicted_nonzero),
                evicted_age_s: view.evicted_age_s.load(Ordering::Relaxed),
                reclaimed: sum(|c| &c.reclaimed),
                expired_unfetched: sum(|c| &c.expired_unfetched),
                ghost_hits: sum(|c| &c.ghost_hits),
                out_of_memory,
                age_ms: view.age_ms(now).unwrap_or(0),
            });
        }
        all
    }

    /// The memory limit.
    pub fn memory_bytes(&self) -> u64 {
        self.arena.limit_bytes()
    }

    /// The most that the memory limit can be set to.
    pub fn memory_bytes_max(&self) -> u64 {
        self.arena.bytes_max()
    }

    /// Sets the memory limit; false when above the reservation or below the least. A lower limit
    /// takes effect as upkeep gives memory back.
    pub fn set_memory_bytes(&self, bytes: u64) -> bool {
        let set = bytes >= MEMORY_BYTES_MIN && self.arena.set_limit_bytes(bytes);
        // What remembers evicted keys must not take what is left for items.
        if set && self.ghosts.is_made() {
            self.fit_ghosts();
        }
        set
    }

    /// Zeroes what `stats reset` zeroes: counts of events, not of what is there.
    pub fn reset_counters(&self) {
        for id in ClassId::all() {
            self.slabs.class(id).out_of_memory = 0;
        }
        for counters in self.all_counters() {
            for id in ClassId::all() {
                counters.class(id).events().into_iter().for_each(Counter::reset);
            }
            for counter in [
                &counters.items_stored,
                &counters.out_of_memory,
                &counters.maintain_checked,
                &counters.spans_moved,
                &counters.chunks_moved,
            ] {
                counter.reset();
            }
        }
    }
}
