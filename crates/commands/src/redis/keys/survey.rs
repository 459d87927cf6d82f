//! A survey: a command that looks at all keys, in steps (`job.rs`).
//!
//! A step looks at some thousands of keys at most, and leaves the store's epoch between each 64. What is found is
//! charged to the memory limit while it is gathered; it may take half of what connections may hold, and is
//! copied into the reply piece by piece.

use std::io::Write;
use std::sync::Arc;

use larder_store::{Database, Guard, Item, Millis, Store, Type, Value};

use crate::core::context::Context;
use crate::core::glob::Pattern;
use crate::core::output::Output;
use crate::core::work::{KEY_NS, copying_ns};
use crate::redis::call::{Call, is};
use crate::redis::fail::{Done, Fail};
use crate::redis::keys::object::{STRING, name_of, type_of};
use crate::redis::reply::{put_array, put_bulk, put_null, put_simple};
use crate::redis::server::debug::{Digest, Hash, Hashing, digest_of};
use crate::redis::steps::job::{Job, Step};
use crate::redis::strings::rewrite::Heap;

/// Bytes of a reply that are written between two looks at whether the output is full.
const PIECE_BYTES: usize = 16 << 10;

/// Keys looked at between two looks at what was found.
pub(crate) const ITEMS_PER_WALK: usize = 64;
/// As many where there is time for it. A walk looks for its keys in all of a segment: of 100,000 keys in walks of 64
/// each took 100 ns, in walks of this many it takes half.
const ITEMS_PER_WALK_MAX: usize = 512;

/// Which keys are wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub database: Database,
    /// None: all.
    pub pattern: Option<Arc<[u8]>>,
    /// The type of their values; none: whatever it is.
    pub kind: Option<Kind>,
}

/// A type of values that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has this name.
    Named(&'static str),
    /// No value has it.
    Unknown,
}

impl Kind {
    /// The type of this name.
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
    /// `pattern`: its own, read.
    fn holds(&self, item: &Item<'_>, pattern: Option<&Pattern<'_>>) -> bool {
        item.is_in(self.database)
            && self.kind.is_none_or(|kind| kind.is_of(item))
            && pattern.is_none_or(|pattern| pattern.matches(item.key()))
    }
}

/// Keys found, encoded as they are replied; charged as what connections hold.
#[derive(Debug)]
pub(crate) struct Found {
    bytes: Vec<u8>,
    count: usize,
    store: Arc<Store>,
    /// What is charged beside them.
    aside: i64,
    charged: i64,
}

impl Found {
    /// Nothing yet; `wanted` is charged with what is found.
    pub fn new(store: &Arc<Store>, wanted: &Wanted) -> Found {
        let aside = wanted.pattern.as_ref().map_or(0, |pattern| pattern.len()) as i64;
        store.hold(aside);
        Found { bytes: Vec::new(), count: 0, store: Arc::clone(store), aside, charged: aside }
    }

    fn add(&mut self, key: &[u8]) {
        write!(self.bytes, "${}\r\n", key.len()).expect("a vector takes all");
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    /// Charges what came since; that it is more than may be held is an error, and so is it in a transaction, in
    /// which no item gives way, that there is no room for it.
    fn charge(&mut self, guard: &Guard<'_>) -> Result<(), Fail> {
        let bytes = self.bytes.len() as i64 + self.aside;
        let grows = bytes - self.charged;
        self.store.hold(grows);
        self.charged = bytes;
        let has_room = grows == 0 || !guard.in_transaction() || !self.store.is_over_limit();
        if bytes as u64 > self.store.held_bytes_max() / 2 || !has_room { Err(Fail::HELD) } else { Ok(()) }
    }

    /// Writes the keys that are still to be written, until the output is full; true when all are.
    fn put(&self, written: &mut usize, out: &mut Output) -> bool {
        if *written == 0 {
            put_array(out, self.count);
        }
        for piece in self.bytes[*written..].chunks(PIECE_BYTES) {
            out.put(piece);
            *written += piece.len();
            if out.is_full() {
                break;
            }
        }
        *written == self.bytes.len()
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        self.store.hold(-self.charged);
    }
}

/// One of the keys that were offered, each as likely as any other.
#[derive(Debug)]
pub(crate) struct Picked {
    pub key: Option<Vec<u8>>,
    offered: u64,
    random: u64,
    /// To what the key is charged while others have their turn.
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
        // xorshift64: the nth takes the place of the one before in one of n cases.
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

/// What it takes to note a key beside its bytes, in a list that grows by doubling.
const NOTED_BYTES: usize = 2 * size_of::<(u8, Box<[u8]>)>() + 32;

/// The digest of all keys, and those of them that are still to be looked at for their large values.
#[derive(Debug)]
pub(crate) struct Digesting {
    digest: Digest,
    /// All keys were walked over.
    walked: bool,
    large: Vec<(u8, Box<[u8]>)>,
    under_way: Option<Hashing>,
    store: Arc<Store>,
    /// What the keys are charged.
    charged: i64,
}

impl Digesting {
    pub fn new(store: &Arc<Store>) -> Digesting {
        Digesting {
            digest: Digest::default(),
            walked: false,
            large: Vec::new(),
            under_way: None,
            store: Arc::clone(store),
            charged: 0,
        }
    }

    /// Adds a key with its value; one with a large value is noted.
    fn add(&mut self, item: &Item<'_>, now: Millis) {
        let mut hash = Hash::of(&[&[item.database()], item.key()]);
        match item.value() {
            Value::Whole(bytes) => {
                hash.eat(bytes);
                self.digest.add(hash.end());
            }
            Value::Collection(collection) => {
                hash.eat(&digest_of(&collection.elements(), now).to_le_bytes());
                self.digest.add(hash.end());
            }
            Value::Pieces(_) => self.large.push((item.database(), item.key().into())),
        }
    }

    /// There are large values to look at.
    fn has_large(&self) -> bool {
        self.under_way.is_some() || !self.large.is_empty()
    }

    fn charge(&mut self) {
        let noted = |(_, key): &(u8, Box<[u8]>)| (key.len() + NOTED_BYTES) as i64;
        let bytes = self.large.iter().map(noted).sum();
        self.store.hold(bytes - self.charged);
        self.charged = bytes;
    }

    /// Looks at a piece of a large value, or begins with the next: as it is now, if it is still there.
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
        self.charge();
    }
}

impl Drop for Digesting {
    fn drop(&mut self) {
        self.store.hold(-self.charged);
    }
}

/// What is looked for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// KEYS
    Keys { wanted: Wanted, found: Found },
    /// SCAN; `left` keys are still to be looked at.
    Scan { wanted: Wanted, found: Found, left: usize },
    /// RANDOMKEY, from `start` on and round; `found` keys of the database were met.
    Random { database: Database, start: u64, round: bool, picked: Picked, found: usize },
    /// DEBUG DIGEST
    Digest(Digesting),
}

/// Keys of a database that RANDOMKEY looks for among those of others, so that it need not look again soon.
const RANDOM_KEYS: usize = 16;
/// They are noted on the way, for which they are no longer than this.
const RANDOM_KEY_BYTES: usize = 4 << 10;

/// A survey under way.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) goal: Goal,
    /// Where it goes on.
    pub(crate) cursor: u64,
    /// All was seen; of the reply so many bytes of keys are written.
    pub(crate) written: Option<usize>,
    /// Keys that were looked at, and what that took.
    looked_at: u64,
    took_ns: u64,
}

impl Call<'_, '_, '_> {
    /// Replies when all was seen: now, or after some steps.
    pub(crate) fn survey(&mut self, goal: Goal, cursor: u64) -> Done {
        self.work(Survey { goal, cursor, written: None, looked_at: 0, took_ns: 0 })
    }
}

impl Job for Survey {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.written.is_some() {
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
        if !done? {
            if let Goal::Random { picked, .. } = &mut self.goal {
                picked.keep(call)?;
            }
            return Ok(Step::More);
        }
        if call.cx.guard.in_transaction() {
            // All of it is sent at once.
            call.make_room(self.found_bytes())?;
        }
        Ok(self.reply(call))
    }

    fn only_reads(&self) -> bool {
        true
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

    /// How many keys to look at next, for half of what is left: keys come in no order, so that those to come are like
    /// those that were looked at, if these are as many.
    fn items(&self, least: usize, left_ns: u64) -> usize {
        let fit = self.looked_at.saturating_mul(left_ns) / (2 * self.took_ns.max(1));
        let most = self.looked_at.min(ITEMS_PER_WALK_MAX as u64) as usize;
        (fit as usize).min(most).max(least)
    }

    /// Looks at some keys, `items` or less, and adds what that takes to `ns`. True when there are no more to look at.
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
        // A step ends between two walks.
        let mut walk = |items: usize, visit: &mut dyn FnMut(Item<'_>)| {
            *ns += items as u64 * KEY_NS;
            *cursor = cx.guard.walk(*cursor, items, &mut |item| {
                let bytes = item.key().len() as u64;
                *ns += weight.map_or(bytes, |weight| weight.ns(1, bytes));
                // Those in pieces are looked at on their own.
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
                let next = walk(items, &mut |item| {
                    if wanted.holds(&item, pattern) {
                        found.add(item.key());
                    }
                });
                found.charge(&cx.guard)?;
                Ok(next == 0)
            }
            Goal::Scan { wanted, found, left } => {
                let items = items.min(*left);
                let next = walk(items, &mut |item| {
                    if wanted.holds(&item, pattern) {
                        found.add(item.key());
                    }
                });
                found.charge(&cx.guard)?;
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
                // They are found at once the next time.
                short.iter().for_each(|key| cx.guard.note_recent(*database, key));
                *found += met.min(RANDOM_KEYS);
                // Behind the end comes the beginning, once.
                let again = std::mem::replace(round, *round || next == 0);
                Ok(*found >= RANDOM_KEYS || again && (next == 0 || next >= *start))
            }
            Goal::Digest(digesting) => {
                let next = walk(items.min(ITEMS_PER_WALK), &mut |item| digesting.add(&item, now));
                digesting.walked = next == 0;
                digesting.charge();
                Ok(digesting.walked && !digesting.has_large())
            }
        }
    }

    /// Bytes of the keys that were found.
    fn found_bytes(&self) -> usize {
        match &self.goal {
            Goal::Keys { found, .. } | Goal::Scan { found, .. } => found.bytes.len(),
            Goal::Random { .. } | Goal::Digest(_) => 0,
        }
    }

    /// Writes the reply, or some of it.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let Survey { goal, cursor, written, .. } = self;
        let (out, resp3) = (&mut *call.out, call.client.resp3);
        let begins = written.is_none();
        let written = written.get_or_insert(0);
        let before = *written;
        let done = match goal {
            Goal::Keys { found, .. } => found.put(written, out),
            Goal::Scan { found, .. } => {
                if begins {
                    put_array(out, 2);
                    put_bulk(out, cursor.to_string().as_bytes());
                }
                found.put(written, out)
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
        let bytes = (*written - before) as u64;
        call.spend(copying_ns(bytes));
        if done { Step::Done } else { Step::Full }
    }
}
