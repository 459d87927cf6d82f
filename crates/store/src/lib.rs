//! The store: key → item, in one bounded arena, shared by every worker thread.
//!
//! [`Store`] is the shared part, [`Worker`] the part of one thread, [`Guard`] a worker inside a
//! batch: while a guard lives, no chunk that it may read is used again. Time is an argument:
//! milliseconds since the Unix epoch, given once per batch.

use std::sync::Arc;

/// Milliseconds since the Unix epoch; 0 as an expiry means "never".
pub type Millis = u64;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that items, index and bookkeeping may take together.
    pub memory_bytes: u64,
    /// Address space to reserve, the most `set_memory_bytes` can grow to.
    pub memory_bytes_max: u64,
    /// Most workers that may exist at once.
    pub workers_max: usize,
    /// False: a full store refuses writes instead of evicting (memcached's `-M`).
    pub evict: bool,
    /// Seed of the key hash; random in production, fixed in tests.
    pub seed: u64,
}

/// A key with its hash: computed once per request, used by every step of it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: u64,
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

/// Identity of one version of one item, for [`Expect::Unchanged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    version: u64,
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
    /// No memory could be had (only without eviction, or when everything is pinned).
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

/// The answer to a read.
#[derive(Debug)]
pub enum Lookup<'g> {
    /// The live item.
    Hit(Item<'g>),
    /// No item.
    Miss,
    /// There was an item, and its time had passed; it is gone now.
    Expired,
    /// There was an item, and a flush took it; it is gone now.
    Flushed,
}

/// Which end [`Guard::concat`] adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// append
    Back,
    /// prepend
    Front,
}

/// The shared part.
#[derive(Debug)]
pub struct Store {}

/// The part of one thread: `Send`, not shared.
#[derive(Debug)]
pub struct Worker {}

/// A worker inside a batch.
#[derive(Debug)]
pub struct Guard<'w> {
    _w: &'w mut Worker,
}

/// A live item, borrowed from the arena for as long as the guard is not written through.
#[derive(Clone, Copy, Debug)]
pub struct Item<'g> {
    _g: std::marker::PhantomData<&'g ()>,
}

/// An item's value.
#[derive(Debug)]
pub enum Value<'g> {
    /// One run of bytes (values up to about 16 KiB).
    Whole(&'g [u8]),
    /// A larger value: pin it ([`Item::pin`]) to send it from its place, or walk its pieces.
    Pieces(Pieces<'g>),
}

/// Iterator over the pieces of a large value, in order.
#[derive(Debug)]
pub struct Pieces<'g> {
    _g: std::marker::PhantomData<&'g ()>,
}
impl<'g> Iterator for Pieces<'g> {
    type Item = &'g [u8];
    fn next(&mut self) -> Option<&'g [u8]> {
        todo!()
    }
}

/// A large value kept in place for as long as this lives, whatever happens to its key.
#[derive(Debug)]
pub struct Pinned {}

/// A value on its way in, received straight into the memory of the item it will be. Dropping it
/// gives the memory back.
#[derive(Debug)]
pub struct Upload {}

/// Store-wide figures, summed over workers and classes when asked.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Live items (expired ones count until they are reclaimed).
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
    /// Of `reclaimed`, those found by maintenance and not by a request.
    pub maintain_reclaimed: u64,
    /// Items that maintenance has looked at.
    pub maintain_checked: u64,
    /// Writes refused for want of memory.
    pub out_of_memory: u64,
    /// Memory limit.
    pub memory_bytes: u64,
    /// Memory in use by spans, index and bookkeeping.
    pub used_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Slots of the index.
    pub index_slots: u64,
    /// A segment of the index is being rebuilt now.
    pub index_growing: bool,
    /// Spans no class owns.
    pub spans_free: u64,
    /// Items moved out of drained spans.
    pub rescues: u64,
    /// Spans moved between classes.
    pub spans_moved: u64,
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
    /// Seconds since last access of the item under the eviction hand.
    pub age_s: u64,
}

/// Where a walk over all keys stands; 0 starts and ends it.
pub type Cursor = u64;

/// Why a store could not be made.
#[derive(Debug)]
pub enum Error {
    /// The configuration cannot work; the text says why.
    Config(&'static str),
    /// The system refused memory.
    System(std::io::Error),
    /// More workers than `workers_max`.
    Workers,
}

impl Store {
    /// Reserves address space and makes an empty store.
    pub fn new(_config: Config) -> Result<Arc<Store>, Error> {
        todo!()
    }
    /// A worker for one thread.
    pub fn worker(self: &Arc<Self>) -> Result<Worker, Error> {
        todo!()
    }
    /// The hash of a key in database 0; any thread.
    pub fn key<'a>(&self, _bytes: &'a [u8]) -> Key<'a> {
        todo!()
    }
    /// Store-wide figures.
    pub fn totals(&self) -> Totals {
        todo!()
    }
    /// Figures of classes that own a span, ascending.
    pub fn classes(&self) -> Vec<ClassTotals> {
        todo!()
    }
    /// Removes everything stored until now, at once.
    pub fn flush(&self) {
        todo!()
    }
    /// Sets the memory limit (`cache_memlimit`); false when above the reservation.
    pub fn set_memory_bytes(&self, _bytes: u64) -> bool {
        todo!()
    }
    /// Zeroes the counters that `stats reset` zeroes.
    pub fn reset_counters(&self) {
        todo!()
    }
}

impl Worker {
    /// Enters a batch at time `now`. Cheap (a store and a fence): once per receive, not per request.
    pub fn enter(&mut self, _now: Millis) -> Guard<'_> {
        todo!()
    }
    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        todo!()
    }
}

impl<'w> Guard<'w> {
    /// The time of this batch.
    pub fn now(&self) -> Millis {
        todo!()
    }
    /// The store.
    pub fn store(&self) -> &Store {
        todo!()
    }
    /// Hashes a key of database 0.
    #[inline]
    pub fn key<'k>(&self, _bytes: &'k [u8]) -> Key<'k> {
        todo!()
    }
    /// Starts loading the key's home bucket. Stage 1 of a batch.
    #[inline]
    pub fn prefetch_bucket(&self, _key: &Key<'_>) {
        todo!()
    }
    /// Starts loading the item the bucket names. Stage 2, some 16–32 keys after stage 1.
    #[inline]
    pub fn prefetch_item(&self, _key: &Key<'_>) {
        todo!()
    }
    /// Reads and counts as an access (frequency, last access, fetched).
    #[inline]
    pub fn get(&mut self, _key: &Key<'_>) -> Lookup<'_> {
        todo!()
    }
    /// Reads without leaving a trace (meta flag `u`, `me`, checks before a write).
    pub fn peek(&mut self, _key: &Key<'_>) -> Lookup<'_> {
        todo!()
    }
    /// Stores `value`, one run of bytes, under `key` if `expect` holds. The condition is looked at
    /// before anything is allocated or copied, and again under the bucket's lock.
    pub fn store_value(
        &mut self,
        _key: &Key<'_>,
        _value: &[u8],
        _attributes: &Attributes,
        _expect: Expect,
    ) -> Result<Stored, Refusal> {
        todo!()
    }
    /// Appends or prepends to the live item, keeping its flags and expiry (`expect`: `Present`, `Cas`
    /// or `Unchanged`; `cas`: token to give instead of the next). `value_bytes_max` bounds the result.
    pub fn concat(
        &mut self,
        _key: &Key<'_>,
        _value: &[u8],
        _end: End,
        _cas: Option<u64>,
        _expect: Expect,
    ) -> Result<Stored, Refusal> {
        todo!()
    }
    /// Starts a value of `value_bytes` that arrives in pieces.
    pub fn upload(
        &mut self,
        _key: &Key<'_>,
        _value_bytes: u64,
        _attributes: &Attributes,
    ) -> Result<Upload, Refusal> {
        todo!()
    }
    /// Makes sure that [`Upload::space`] is not empty while bytes are missing.
    pub fn upload_reserve(&mut self, _upload: &mut Upload) -> Result<(), Refusal> {
        todo!()
    }
    /// Stores a complete upload if `expect` holds; its memory is given back if not.
    pub fn publish(&mut self, _upload: Upload, _expect: Expect) -> Result<Stored, Refusal> {
        todo!()
    }
    /// Removes the item. `expect`: `Present`, `Cas` or `Unchanged`.
    pub fn delete(&mut self, _key: &Key<'_>, _expect: Expect) -> Result<(), Refusal> {
        todo!()
    }
    /// Sets the expiry (0: never). CAS does not move.
    pub fn touch(&mut self, _key: &Key<'_>, _expires_at: Millis) -> Result<(), Refusal> {
        todo!()
    }
    /// Marks the item stale, clears its token-sent mark, gives it the next version (or `cas`) and,
    /// if told, a new expiry (meta `md … I`).
    pub fn invalidate(
        &mut self,
        _key: &Key<'_>,
        _cas: Option<u64>,
        _expires_at: Option<Millis>,
        _expect: Expect,
    ) -> Result<Stored, Refusal> {
        todo!()
    }
    /// Sets the token-sent mark; true for the one caller that set it.
    pub fn claim_token(&mut self, _key: &Key<'_>, _seen: Seen) -> bool {
        todo!()
    }
    /// Visits live items from `cursor` on, about `items_max` of them; returns where to go on, 0 at
    /// the end. Every key that was there throughout is visited.
    pub fn walk(&mut self, _cursor: Cursor, _items_max: usize, _visit: &mut dyn FnMut(Item<'_>)) -> Cursor {
        todo!()
    }
    /// Does a bounded piece of upkeep; true when there is more to do now.
    pub fn maintain(&mut self) -> bool {
        todo!()
    }
}

impl<'k> Key<'k> {
    /// The bytes.
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
    /// The hash (stable for the life of the store).
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl<'g> Item<'g> {
    /// The key's bytes.
    pub fn key(&self) -> &'g [u8] {
        todo!()
    }
    /// memcached's client flags.
    pub fn flags(&self) -> u32 {
        todo!()
    }
    /// The wire CAS token.
    pub fn cas(&self) -> u64 {
        todo!()
    }
    /// Absolute expiry, 0 for never.
    pub fn expires_at(&self) -> Millis {
        todo!()
    }
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        todo!()
    }
    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'g> {
        todo!()
    }
    /// Keeps a large value in place while it is being sent. Only for [`Value::Pieces`].
    pub fn pin(&self) -> Pinned {
        todo!()
    }
    /// Identity of this version.
    pub fn seen(&self) -> Seen {
        todo!()
    }
    /// Marked stale by [`Guard::invalidate`] or [`Attributes::stale`].
    pub fn stale(&self) -> bool {
        todo!()
    }
    /// A recache token is out.
    pub fn token_sent(&self) -> bool {
        todo!()
    }
    /// The key arrived base64-encoded.
    pub fn key_binary(&self) -> bool {
        todo!()
    }
    /// It was read before this access.
    pub fn fetched(&self) -> bool {
        todo!()
    }
    /// Seconds between the access before this one and now; coarse for old ones.
    pub fn idle_s(&self) -> u64 {
        todo!()
    }
    /// Slab class of the item's chunk.
    pub fn class(&self) -> u8 {
        todo!()
    }
    /// Bytes of header, key, value and what goes with them.
    pub fn item_bytes(&self) -> u64 {
        todo!()
    }
}

impl Pinned {
    /// Bytes of the value.
    pub fn value_bytes(&self) -> u64 {
        todo!()
    }
    /// The pieces from byte `offset` on, in order.
    pub fn pieces(&self, _offset: u64) -> Pieces<'_> {
        todo!()
    }
}

impl Upload {
    /// The key's bytes (copied into the item).
    pub fn key(&self) -> &[u8] {
        todo!()
    }
    /// Bytes still missing.
    pub fn missing(&self) -> u64 {
        todo!()
    }
    /// The next place to receive into; empty when [`Guard::upload_reserve`] has to be called.
    pub fn space(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Says that `n` bytes of [`Upload::space`] were filled.
    pub fn advance(&mut self, _n: usize) {
        todo!()
    }
}
