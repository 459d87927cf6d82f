//! A survey: a command that looks at all keys, in steps (`call/job.rs`).
//!
//! A step looks at some thousands of keys at most, in walks of up to 512, and leaves the store's epoch before each. Keys that
//! were found are charged as what connections hold before they take memory. One survey may take half of what connections may
//! hold, and all together no more than is left of it: what has no room is refused. The found keys are copied into the reply piece
//! by piece, and each block is freed when it was copied.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_protocol::resp::{HEAD_BYTES_MAX, write_bulk_head};
use larder_store::{Database, Guard, Item, Millis, Type, Value};

use crate::core::context::Context;
use crate::core::figures::types::{STRING, name_of};
use crate::core::glob::Pattern;
use crate::core::output::Output;
use crate::core::work::{KEY_NS, copying_ns};
use crate::redis::call::{Call, is};
use crate::redis::census::ITEMS_PER_WALK;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::keys::digest::{Digest, Hash, Hashing, digest_of};
use crate::redis::keys::object::type_of;
use crate::redis::rare::{RANDOM_KEY_BYTES, RANDOM_KEYS};
use crate::redis::reply::{put_array, put_bulk, put_null, put_simple};
use crate::redis::steps::job::{Job, Step};

/// Bytes of a reply that are written between two checks whether the output is full.
const PIECE_BYTES: usize = 16 << 10;

/// Items of a walk, if there is time. A walk looks through a whole segment for its keys: of 100,000 keys, each took 100 ns in
/// walks of 64, and half of that in walks of this many.
const ITEMS_PER_WALK_MAX: usize = 512;

/// Which keys are wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub database: Database,
    /// Matches the keys; `None`: all.
    pub pattern: Option<Arc<[u8]>>,
    /// The type of their values; `None`: any.
    pub kind: Option<Kind>,
}

/// A type of values, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The type of this name.
    Named(&'static str),
    /// A type that no value has.
    Unknown,
}

impl Kind {
    /// Finds the type of this name.
    pub fn of(word: &[u8]) -> Kind {
        let collections = [Type::Hash, Type::Set, Type::SortedSet, Type::List, Type::Stream].map(name_of);
        let mut names = collections.into_iter().chain([STRING]);
        names.find(|name| is(word, name)).map_or(Kind::Unknown, Kind::Named)
    }

    fn is_of(self, item: &Item<'_>) -> bool {
        self == Kind::Named(type_of(item))
    }
}

impl Wanted {
    /// Whether an item is wanted. `pattern`: the parsed [`Wanted::pattern`].
    fn holds(&self, item: &Item<'_>, pattern: Option<&Pattern<'_>>) -> bool {
        item.is_in(self.database)
            && self.kind.is_none_or(|kind| kind.is_of(item))
            && pattern.is_none_or(|pattern| pattern.matches(item.key()))
    }
}

/// Bytes of the first block of found keys, which is never refused.
const BLOCK_BYTES_MIN: usize = 1 << 10;
/// Bytes of the largest block: a mapping of its own, with the allocator's header, so that whole pages are freed.
const BLOCK_BYTES_MAX: usize = (64 << 10) - 16;
/// Bytes of a block beside its content: its place, and the allocator's.
const BESIDE_BLOCK_BYTES: usize = 80;

/// Keys that were found, encoded for the reply. They are charged as what connections hold, by the blocks they lie in.
///
/// ```text
/// blocks  | 1 KiB | 1 | 2 | 4 | 8 | 16 | 32 | 64 …    each charged before it is made
///            ^at: what is in front of it is replied, and replied blocks are freed
/// ```
#[derive(Debug)]
pub(crate) struct Found {
    /// All but the last are full. A key may begin in one and end in the next.
    blocks: VecDeque<Vec<u8>>,
    /// Bytes of the first block that were replied.
    at: usize,
    /// Bytes of all found keys; how many they may be, but for a block; and how many keys these are.
    bytes: usize,
    bytes_max: u64,
    count: usize,
    /// More was found than may be held: no more is added.
    refused: bool,
    /// The charge for the blocks, and for the pattern.
    held: Heap,
}

impl Found {
    /// Begins with no keys, and charges the pattern that is `wanted`.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn new(call: &mut Call<'_, '_, '_>, wanted: &Wanted) -> Result<Found, Fail> {
        let held = Heap::keep(call, wanted.pattern.as_ref().map_or(0, |pattern| pattern.len()))?;
        let bytes_max = call.cx.guard.store().held_bytes_max() / 2;
        Ok(Found { blocks: VecDeque::new(), at: 0, bytes: 0, bytes_max, count: 0, refused: false, held })
    }

    fn add(&mut self, key: &[u8]) {
        let mut head = [0; HEAD_BYTES_MAX];
        let len = write_bulk_head(&mut head, key.len() as u64);
        self.push(&head[..len]);
        self.push(key);
        self.push(b"\r\n");
        self.count += 1;
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.refused {
            let last = self.blocks.back_mut().filter(|last| last.len() < last.capacity());
            let Some(last) = last else {
                self.refused = !self.grow();
                continue;
            };
            let (now, rest) = bytes.split_at(bytes.len().min(last.capacity() - last.len()));
            last.extend_from_slice(now);
            (self.bytes, bytes) = (self.bytes + now.len(), rest);
        }
    }

    /// Adds a block, if more may be held.
    fn grow(&mut self) -> bool {
        let block = self.bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        if self.bytes as u64 > self.bytes_max || !self.held.grow(block + BESIDE_BLOCK_BYTES) {
            return false;
        }
        self.blocks.push_back(Vec::with_capacity(block));
        true
    }

    /// Checks that there was room for what a walk found. `before`: what was held in front of it.
    ///
    /// # Errors
    /// More was found than may be held; or there is no room in a transaction, where nothing is evicted.
    fn check(&self, guard: &Guard<'_>, before: u64) -> Done {
        let store = guard.store();
        let crowds = guard.in_transaction() && store.may_evict() && store.is_over_limit();
        if self.refused || self.held.bytes() > before && crowds { Err(Fail::HELD) } else { Ok(()) }
    }

    /// Writes found keys until the output is full, behind the head if `begins`; true when all are written.
    fn put(&mut self, begins: bool, out: &mut Output) -> bool {
        if begins {
            put_array(out, self.count);
        }
        while let Some(block) = self.blocks.front() {
            let piece = &block[self.at..block.len().min(self.at + PIECE_BYTES)];
            out.put(piece);
            self.at += piece.len();
            if self.at == block.len() {
                self.held.shrink(block.capacity() + BESIDE_BLOCK_BYTES);
                self.blocks.pop_front();
                self.at = 0;
            }
            if out.is_full() {
                break;
            }
        }
        self.blocks.is_empty()
    }
}

/// One of the offered keys, each as likely as any other.
#[derive(Debug)]
pub(crate) struct Picked {
    pub key: Option<Vec<u8>>,
    offered: u64,
    random: u64,
    /// The charge for the key between two steps.
    held: Option<Heap>,
}

impl Picked {
    pub fn new(random: u64) -> Picked {
        Picked { key: None, offered: 0, random: random | 1, held: None }
    }

    /// Charges the key, which is kept until the next step.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    fn keep(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        self.held = None;
        self.held = Some(Heap::keep(call, self.key.as_ref().map_or(0, Vec::capacity))?);
        Ok(())
    }

    pub fn offer(&mut self, key: &[u8]) {
        // xorshift64: the nth key replaces the one before in one of n cases.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.offered += 1;
        if self.random.is_multiple_of(self.offered) {
            let place = self.key.get_or_insert_default();
            place.clear();
            place.extend_from_slice(key);
        }
    }
}

/// Bytes of a noted key beside its name, in a list that grows by doubling.
const NOTED_BYTES: usize = 2 * size_of::<(u8, Box<[u8]>)>() + 32;

fn noted_bytes(key: &[u8]) -> usize {
    key.len() + NOTED_BYTES
}

/// The digest of all keys, and the keys whose large values are still to be read.
#[derive(Debug)]
pub(crate) struct Digesting {
    digest: Digest,
    /// All keys were walked over.
    walked: bool,
    large: Vec<(u8, Box<[u8]>)>,
    under_way: Option<Hashing>,
    /// The charge for the noted keys.
    held: Heap,
    /// There were more of them than may be held.
    refused: bool,
}

impl Digesting {
    pub fn new(call: &Call<'_, '_, '_>) -> Digesting {
        Digesting {
            digest: Digest::default(),
            walked: false,
            large: Vec::new(),
            under_way: None,
            held: Heap::none(call),
            refused: false,
        }
    }

    /// Adds a key with its value; a key with a large value is noted.
    fn add(&mut self, item: &Item<'_>, now: Millis) {
        let mut hash = Hash::of(&[&[item.database()], item.key()]);
        match item.value() {
            Value::Whole(bytes) => {
                hash.eat(bytes);
                self.digest.add(hash.end());
            }
            Value::Collection(collection) => {
                hash.eat(&digest_of(&collection.elements_at(now)).to_le_bytes());
                self.digest.add(hash.end());
            }
            Value::Pieces(_) if self.held.grow(noted_bytes(item.key())) => {
                self.large.push((item.database(), item.key().into()));
            }
            Value::Pieces(_) => self.refused = true,
        }
    }

    /// Whether there are large values to read.
    fn has_large(&self) -> bool {
        self.under_way.is_some() || !self.large.is_empty()
    }

    /// Reads a piece of a large value, or begins with the next: as it is now, if it is still there.
    fn look_on(&mut self, guard: &mut Guard<'_>, ns: &mut u64) {
        if let Some(hashing) = &mut self.under_way {
            if let Some(hash) = hashing.step(ns) {
                self.digest.add(hash);
                self.under_way = None;
            }
            return;
        }
        let Some((db, name)) = self.large.pop() else { return };
        *ns += KEY_NS;
        let (key, now) = (guard.key_in(db, &name), guard.now());
        if let Some(item) = guard.peek(&key).hit() {
            match item.value() {
                Value::Whole(_) | Value::Collection(_) => self.add(&item, now),
                Value::Pieces(value) => {
                    self.under_way = Some(Hashing::new(Hash::of(&[&[db], &name]), value.pin()));
                }
            }
        }
        self.held.shrink(noted_bytes(&name));
    }
}

/// What a survey looks for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// The keys for KEYS.
    Keys { wanted: Wanted, found: Found },
    /// Some keys for SCAN; `left` are still to be looked at.
    Scan { wanted: Wanted, found: Found, left: usize },
    /// A key for RANDOMKEY, from `start` on and around; `found` keys of the database were met.
    Random { database: Database, start: u64, round: bool, picked: Picked, found: usize },
    /// The digest for DEBUG DIGEST.
    Digest(Digesting),
}

/// A survey under way.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) goal: Goal,
    /// Where it goes on.
    pub(crate) cursor: u64,
    /// All keys were seen; the head of the reply is written.
    replies: bool,
    /// Keys that were looked at, and the work of that.
    looked_at: u64,
    took_ns: u64,
}

impl Call<'_, '_, '_> {
    /// Begins a survey: its reply comes when all keys were seen, now or after some steps.
    pub(crate) fn survey(&mut self, goal: Goal, cursor: u64) -> Done {
        self.work(Survey { goal, cursor, replies: false, looked_at: 0, took_ns: 0 })
    }
}

impl Job for Survey {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.replies {
            return Ok(self.reply(call));
        }
        let pattern = self.pattern();
        let _held = pattern.as_deref().map(|pattern| Heap::of_pattern(call, pattern, false));
        let pattern = pattern.as_deref().map(|pattern| Pattern::of(pattern, false));
        let weight = pattern.as_ref().map(Pattern::weight);
        let (ns_max, mut ns) = (call.step_ns(), weight.map_or(0, |weight| weight.read_ns));
        let dear = weight.map_or(1, |weight| weight.byte_ns as usize);
        let items_min = (ITEMS_PER_WALK / dear).max(1);
        let done = loop {
            let items = self.items(items_min, ns_max.saturating_sub(ns));
            let before = ns;
            let walked = self.walk(call.cx, items, pattern.as_ref(), &mut ns);
            (self.looked_at, self.took_ns) = (self.looked_at + items as u64, self.took_ns + ns - before);
            match walked {
                Ok(false) if ns < ns_max => {}
                done => break done,
            }
        };
        call.spend(ns);
        let done = done?;
        if !done {
            if let Goal::Random { picked, .. } = &mut self.goal {
                picked.keep(call)?;
            }
            return if self.may_be_kept() { Ok(Step::More) } else { Err(Fail::HELD) };
        }
        if call.cx.guard.in_transaction() {
            // The whole reply is sent at once.
            call.make_room(self.found_bytes())?;
        } else if self.found_bytes() > PIECE_BYTES && !self.may_be_kept() {
            // It would wait for a client to take it.
            return Err(Fail::HELD);
        }
        Ok(self.reply(call))
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn asks_itself(&self) -> bool {
        self.replies
    }

    fn held_bytes(&self) -> u64 {
        self.held().map_or(0, Heap::bytes)
    }
}

impl Survey {
    /// The pattern of the keys that are wanted.
    fn pattern(&self) -> Option<Arc<[u8]>> {
        match &self.goal {
            Goal::Keys { wanted, .. } | Goal::Scan { wanted, .. } => wanted.pattern.clone(),
            Goal::Random { .. } | Goal::Digest(_) => None,
        }
    }

    /// The charge for what it found, but for a picked key.
    fn held(&self) -> Option<&Heap> {
        match &self.goal {
            Goal::Keys { found, .. } | Goal::Scan { found, .. } => Some(&found.held),
            Goal::Digest(digesting) => Some(&digesting.held),
            Goal::Random { .. } => None,
        }
    }

    /// Whether it may keep what it holds until the next step.
    fn may_be_kept(&self) -> bool {
        self.held().is_none_or(Heap::may_be_kept)
    }

    /// How many keys to look at next, for half of the time that is left. Keys come in no order, so that the next ones cost as
    /// much as those before them, if they are no more.
    fn items(&self, least: usize, left_ns: u64) -> usize {
        let fit = self.looked_at.saturating_mul(left_ns) / (2 * self.took_ns.max(1));
        let most = self.looked_at.min(ITEMS_PER_WALK_MAX as u64) as usize;
        (fit as usize).min(most).max(least)
    }

    /// Looks at some keys, at most `items`, and adds that work to `ns`. True when there are no more.
    fn walk(
        &mut self,
        cx: &mut Context<'_, '_>,
        items: usize,
        pattern: Option<&Pattern<'_>>,
        ns: &mut u64,
    ) -> Result<bool, Fail> {
        let Survey { goal, cursor, .. } = self;
        let weight = pattern.map(Pattern::weight);
        let reads_values = matches!(goal, Goal::Digest(_));
        if let Goal::Digest(digesting) = goal
            && digesting.has_large()
        {
            digesting.look_on(&mut cx.guard, ns);
            return Ok(digesting.walked && !digesting.has_large());
        }
        let now = cx.guard.now();
        // A step ends only between two walks.
        let mut walk = |items: usize, visit: &mut dyn FnMut(Item<'_>)| {
            *ns += items as u64 * KEY_NS;
            *cursor = cx.guard.walk(*cursor, items, &mut |item| {
                let bytes = item.key().len() as u64;
                *ns += weight.map_or(bytes, |weight| weight.ns(1, bytes));
                // Values in pieces are read on their own.
                if reads_values && !matches!(item.value(), Value::Pieces(_)) {
                    *ns += item.value_bytes();
                }
                visit(item);
            });
            *ns += cx.guard.take_beside_ns();
            *cursor
        };
        match goal {
            Goal::Keys { wanted, found } => {
                let before = found.held.bytes();
                let next = walk(items, &mut |item| {
                    if wanted.holds(&item, pattern) {
                        found.add(item.key());
                    }
                });
                found.check(&cx.guard, before)?;
                Ok(next == 0)
            }
            Goal::Scan { wanted, found, left } => {
                let (items, before) = (items.min(*left), found.held.bytes());
                let next = walk(items, &mut |item| {
                    if wanted.holds(&item, pattern) {
                        found.add(item.key());
                    }
                });
                found.check(&cx.guard, before)?;
                *left -= items;
                Ok(next == 0 || *left == 0)
            }
            Goal::Random { database, start, round, picked, found } => {
                let (mut met, mut short): (usize, Vec<Box<[u8]>>) = (0, Vec::new());
                let next = walk(items, &mut |item| {
                    if item.is_in(*database) {
                        picked.offer(item.key());
                        met += 1;
                        if met <= RANDOM_KEYS && item.key().len() <= RANDOM_KEY_BYTES {
                            short.push(item.key().into());
                        }
                    }
                });
                // RANDOMKEY finds these at once the next time.
                short.iter().for_each(|key| cx.guard.note_found(*database, key));
                *found += met.min(RANDOM_KEYS);
                // From the end the walk goes on at the beginning, once.
                let again = std::mem::replace(round, *round || next == 0);
                Ok(*found >= RANDOM_KEYS || again && (next == 0 || next >= *start))
            }
            Goal::Digest(digesting) => {
                let next = walk(items.min(ITEMS_PER_WALK), &mut |item| digesting.add(&item, now));
                digesting.walked = next == 0;
                if digesting.refused {
                    return Err(Fail::HELD);
                }
                Ok(digesting.walked && !digesting.has_large())
            }
        }
    }

    /// Bytes of the keys that were found.
    fn found_bytes(&self) -> usize {
        match &self.goal {
            Goal::Keys { found, .. } | Goal::Scan { found, .. } => found.bytes,
            Goal::Random { .. } | Goal::Digest(_) => 0,
        }
    }

    /// Writes the reply, or a part of it.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let begins = !std::mem::replace(&mut self.replies, true);
        let Survey { goal, cursor, .. } = self;
        let (out, resp3) = (&mut *call.out, call.client.resp3);
        let before = out.len();
        let done = match goal {
            Goal::Keys { found, .. } => found.put(begins, out),
            Goal::Scan { found, .. } => {
                if begins {
                    put_array(out, 2);
                    put_bulk(out, cursor.to_string().as_bytes());
                }
                found.put(begins, out)
            }
            Goal::Random { picked, .. } => {
                match &picked.key {
                    Some(key) => put_bulk(out, key),
                    None => put_null(out, resp3),
                }
                true
            }
            Goal::Digest(Digesting { digest, .. }) => {
                put_simple(out, &digest.text());
                true
            }
        };
        let bytes = out.len() - before;
        call.spend(copying_ns(bytes));
        if done { Step::Done } else { Step::Full }
    }
}
