//! All at once: two threads write, read, expire, evict, move, flush and resize one small store, and the
//! store's counts are right afterwards.
//!
//! Counters show what was lost. A counter has a generation, which is new whenever a thread finds no counter,
//! and a count; each acknowledged write is noted with its token. The tokens of a key only grow, whatever
//! happens to it. So its writes in the order of their tokens read 1, 2, 3 … of one generation, then 1, 2, 3 …
//! of the next. After a lost update a count comes twice; if a deleted item came back, its generation
//! continues after another began.
//!
//! Sums are counters that are raised by a hint, without a token: each of their counts comes once, without a
//! gap.
//!
//! Hashes have counters, too: a field with a generation and a count, which is raised in one step. Lists have
//! numbers that are pushed once each, and popped once at most. Members move between two sets in transactions:
//! none is in both. A sorted set is in order, and finding members by name or by cursors gives the same
//! members.

use crate::plain::collect;
use larder_store::{
    Attributes, Automove, Collection, Config, DIGITS_MAX, Declined, Element, End, Eviction, Expect, Guard,
    Hint, Key, Lookup, Pinned, Refusal, ScoreRule, Store, Type, Value, Worker,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NOW: u64 = 1_700_000_000_000;
const THREADS: u64 = 2;
const COUNTERS: u64 = 12;
const DATA: u64 = 30_000;
/// Numbers of the collections of each type.
const COLLECTIONS: u64 = 6;
/// Members that move between two sets.
const MEMBERS: u64 = 40;
/// Databases with counters; all other strings are in the first.
const DATABASES: [u8; 2] = [0, 3];
/// The memory limits between which the test switches.
const MEBIBYTES: [u64; 5] = [3, 4, 6, 9, 16];

/// A seed or a count of steps: `LARDER_STORM_SEED` and `LARDER_STORM_STEPS` replay one storm, or play longer
/// ones.
fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }
    /// The length of a value. The largest values of all threads together are less than uploads may hold under
    /// the lowest limit.
    fn bytes(&mut self) -> usize {
        match self.below(400) {
            0 => 100_000 + self.below(60_000) as usize,
            1..4 => 17_000 + self.below(60_000) as usize,
            4..40 => 500 + self.below(15_000) as usize,
            _ => 16 + self.below(300) as usize,
        }
    }
}

/// A value that repeats two words from the first byte to the last.
fn value(first: u64, second: u64, bytes: usize) -> Vec<u8> {
    let words = [first.to_le_bytes(), second.to_le_bytes()].concat();
    words.iter().copied().cycle().take(bytes).collect()
}

/// The two words of a value; panics if the value is a mix of two writes.
fn words(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (first, second) = (word(0), word(8));
    assert!(bytes == value(first, second, bytes.len()), "a torn value");
    (first, second)
}

/// The hint for a key, made as the stages of a batch do.
fn look<'g>(guard: &Guard<'g>, key: &Key<'_>) -> Hint<'g> {
    let mut hint = guard.prefetch_bucket(key);
    if guard.prefetch_item(key, &mut hint) {
        guard.prefetch_again(key, &mut hint);
    }
    hint
}

/// Stores a value in the shortest possible way, as a server does.
fn store(
    guard: &mut Guard<'_>,
    (key, hint): (&Key<'_>, &Hint<'_>),
    value: &[u8],
    attributes: &Attributes,
) -> Result<(), Refusal> {
    let plain = (attributes.flags, attributes.expires_at) == (0, 0);
    if plain && (guard.replace_value(key, value, hint) || guard.insert_value(key, value, hint)) {
        return Ok(());
    }
    guard.store_value_hinted(key, value, attributes, Expect::Any, hint).map(drop)
}

/// The text of an element, which may lie outside of the leaf.
fn string_of(there: &Collection<'_>, element: &Element<'_>) -> String {
    let mut text = Vec::new();
    there.each_part(element, |part| text.extend_from_slice(part));
    String::from_utf8(text).expect("text was written")
}

fn string(element: Element<'_>) -> String {
    String::from_utf8(element.text(&mut [0; DIGITS_MAX]).to_vec()).expect("text was written")
}

/// An acknowledged write of a counter.
#[derive(Debug)]
struct Noted {
    generation: u64,
    count: u64,
}

/// The writes of each counter, by token.
type Notes = BTreeMap<(u8, u64), BTreeMap<u64, Noted>>;

/// What the threads did to collections.
#[derive(Default)]
struct Elements {
    /// Generation and count of each raised sum and of each raised field.
    raised: BTreeSet<(u64, u64)>,
    /// The numbers that were popped.
    popped: BTreeSet<u64>,
}

struct Shared {
    store: Arc<Store>,
    clock: AtomicU64,
    generations: AtomicU64,
    pushes: AtomicU64,
    refused: AtomicU64,
}

struct Storm<'s> {
    shared: &'s Shared,
    random: Random,
    notes: Notes,
    elements: Elements,
    pins: Vec<Pinned>,
}

impl Storm<'_> {
    fn attributes(&mut self, now: u64) -> Attributes {
        let expires_at = if self.random.below(5) == 0 { now + self.random.below(2_000) } else { 0 };
        Attributes { expires_at, flags: self.random.below(3) as u32, ..Attributes::default() }
    }

    fn counter(&mut self) -> (u8, u64) {
        (DATABASES[self.random.below(2) as usize], self.random.below(COUNTERS))
    }

    fn note(&mut self, counter: (u8, u64), token: u64, generation: u64, count: u64) {
        let twin = self.notes.entry(counter).or_default().insert(token, Noted { generation, count });
        assert!(twin.is_none(), "{counter:?} was given {token} twice");
    }

    fn refused(&self, refusal: Refusal) {
        self.shared.refused.fetch_add(u64::from(refusal == Refusal::NoMemory), Relaxed);
    }

    /// Reads a counter and writes the next count: with `alone` in a transaction, else on condition that the
    /// item is unchanged.
    fn raise(&mut self, guard: &mut Guard<'_>, counter: (u8, u64), alone: bool) {
        let name = format!("counter-{}", counter.1);
        let key = guard.key_in(counter.0, name.as_bytes());
        let hint = look(guard, &key);
        let unchanged = self.random.below(2) == 0;
        let (generation, count, expect) = match guard.get_hinted(&key, &hint) {
            Lookup::Hit(item) => {
                let expect = if unchanged { Expect::Unchanged(item.seen()) } else { Expect::Cas(item.cas()) };
                let (generation, count) = words(&collect(item.value()));
                (generation, count + 1, expect)
            }
            _ => (self.shared.generations.fetch_add(1, Relaxed), 1, Expect::Absent),
        };
        let expect = if alone { Expect::Any } else { expect };
        let bytes = self.random.bytes();
        let attributes = self.attributes(guard.now());
        let value = value(generation, count, bytes);
        match guard.store_value_hinted(&key, &value, &attributes, expect, &hint) {
            Ok(stored) => self.note(counter, stored.cas, generation, count),
            Err(Refusal::NoMemory) => self.refused(Refusal::NoMemory),
            Err(refusal) => assert!(!alone, "{refusal:?} in a transaction"),
        }
    }

    /// Raises a sum in one step, at the item that the hint names, or begins a new sum.
    fn sum(&mut self, guard: &mut Guard<'_>) {
        let name = format!("sum-{}", self.random.below(COUNTERS));
        let key = guard.key(name.as_bytes());
        let hint = look(guard, &key);
        let (bytes, reads) = (self.random.bytes(), self.random.below(2) == 0);
        let mut made = (self.shared.generations.fetch_add(1, Relaxed), 1);
        let replaced = guard.replace_with(&key, &hint, reads, |old| {
            let (generation, count) = words(old);
            made = (generation, count + 1);
            Some(value(generation, count + 1, bytes))
        });
        // If another item's count was raised and not stored, this round stores nothing.
        let first = value(made.0, 1, bytes);
        if replaced || made.1 == 1 && guard.insert_value(&key, &first, &hint) {
            assert!(self.elements.raised.insert(made), "{made:?} of {name} was counted twice");
        }
    }

    /// Raises several counters of both databases in one transaction.
    fn transaction(&mut self, guard: &mut Guard<'_>) {
        let counters: Vec<(u8, u64)> = (0..3).map(|_| self.counter()).collect();
        let names: Vec<String> = counters.iter().map(|(_, n)| format!("counter-{n}")).collect();
        let keys: Vec<_> =
            counters.iter().zip(&names).map(|((db, _), name)| guard.key_in(*db, name.as_bytes())).collect();
        guard.begin(keys);
        counters.iter().for_each(|&counter| self.raise(guard, counter, true));
        guard.finish();
    }

    /// Deletes a counter, sets its expiry or token, or writes it over itself: its count stays.
    fn disturb(&mut self, guard: &mut Guard<'_>) {
        let (database, number) = self.counter();
        let name = format!("counter-{number}");
        let key = guard.key_in(database, name.as_bytes());
        let later = guard.now() + self.random.below(3_000);
        let done = match self.random.below(6) {
            0 => guard.delete(&key, Expect::Present),
            1 => guard.touch(&key, later),
            2 => guard.touch(&key, 0),
            3 => guard.invalidate(&key, None, Some(later), Expect::Present).map(drop),
            4 => match guard.peek(&key).hit().map(|item| item.seen()) {
                Some(seen) => {
                    guard.claim_token(&key, seen);
                    Ok(())
                }
                None => Ok(()),
            },
            // Overwrites 16 bytes of a large value with themselves, in place if no reader has it pinned.
            _ => match guard.peek(&key).hit() {
                Some(item) => {
                    let (expect, bytes) = (Expect::Cas(item.cas()), collect(item.value()));
                    guard.patch(&key, 16, &bytes[..16], expect).map(drop)
                }
                None => Ok(()),
            },
        };
        done.unwrap_or_else(|refusal| self.refused(refusal));
    }

    fn data(&mut self, guard: &mut Guard<'_>) {
        let number = self.random.below(DATA) * self.random.below(DATA) / DATA;
        let name = format!("data-{number}");
        let key = guard.key(name.as_bytes());
        let done = match self.random.below(16) {
            0..7 => {
                let mut pinned = None;
                let hint = look(guard, &key);
                if let Some(plain) = guard.plain_value(&key, &hint) {
                    assert_eq!(words(plain).0, number, "another key's value");
                } else if let Lookup::Hit(item) = guard.get_hinted(&key, &hint) {
                    assert_eq!(words(&collect(item.value())).0, number, "another key's value");
                    pinned = matches!(item.value(), Value::Pieces(_)).then(|| item.pin());
                }
                self.pins.extend(pinned);
                Ok(())
            }
            7..13 => {
                let bytes = self.random.bytes();
                let attributes = self.attributes(guard.now());
                let version = self.random.0;
                let hint = look(guard, &key);
                store(guard, (&key, &hint), &value(number, version, bytes), &attributes)
            }
            13 => {
                let whole = guard.peek(&key).hit().is_some_and(|item| item.value_bytes() % 16 == 0);
                let version = guard.peek(&key).hit().map(|item| words(&collect(item.value())).1);
                match version {
                    Some(version) if whole => {
                        // Appends to the value in the same pattern, on condition that it is unchanged.
                        let cas = guard.peek(&key).hit().map_or(0, |item| item.cas());
                        let more = value(number, version, 16 * self.random.below(40) as usize);
                        guard.concat(&key, &more, End::Back, None, Expect::Cas(cas)).map(drop)
                    }
                    _ => Ok(()),
                }
            }
            14 => guard.delete(&key, Expect::Present),
            _ => {
                // Begins an upload that is never completed.
                let bytes = self.random.bytes();
                let attributes = self.attributes(guard.now());
                guard
                    .upload(&key, 2 * bytes as u64, &attributes)
                    .and_then(|mut upload| guard.upload_fill(&mut upload, &value(number, 0, bytes)))
            }
        };
        done.unwrap_or_else(|refusal| self.refused(refusal));
    }

    /// Changes collections at random.
    fn collections(&mut self, guard: &mut Guard<'_>) {
        let database = DATABASES[self.random.below(2) as usize];
        let number = self.random.below(COLLECTIONS);
        let what = self.random.below(10);
        let kind = ["hash", "list", "sets", "scores"][[0, 0, 0, 1, 1, 1, 2, 2, 3, 3][what as usize]];
        let name = format!("{kind}-{number}");
        let key = guard.key_in(database, name.as_bytes());
        if self.random.below(40) == 0 {
            let later = if self.random.below(3) == 0 { 0 } else { guard.now() + self.random.below(3_000) };
            let done = if self.random.below(4) == 0 {
                guard.delete(&key, Expect::Present)
            } else {
                guard.touch(&key, later)
            };
            return done.unwrap_or_else(|refusal| self.refused(refusal));
        }
        let done = match kind {
            "hash" => self.raise_field(guard, database, &name),
            "list" => self.push_or_pop(guard, database, &name),
            "sets" => self.move_member(guard, database, number),
            _ => self.give_scores(guard, database, &name),
        };
        match done {
            Ok(()) | Err(Declined::TooLarge) => {}
            Err(Declined::NoMemory) => self.refused(Refusal::NoMemory),
            Err(declined) => panic!("{declined:?} of {name}"),
        }
    }

    fn raise_field(&mut self, guard: &mut Guard<'_>, database: u8, name: &str) -> Result<(), Declined> {
        let key = guard.key_in(database, name.as_bytes());
        // Some hashes get enough fields for a tree.
        let fields = if name.ends_with(['1', '3', '5']) { 5 * MEMBERS } else { 5 };
        let field = format!("field {}", self.random.below(fields));
        let padding = "x".repeat(self.random.below(100) as usize);
        let raised = guard.hash_update(&key, field.as_bytes(), |old| {
            let old = old.map(|old| string(old));
            let (generation, count) = match old.as_deref().map(|old| old.split(' ').collect::<Vec<_>>()) {
                Some(words) => (words[0].parse().unwrap(), words[1].parse::<u64>().unwrap() + 1),
                None => (self.shared.generations.fetch_add(1, Relaxed), 1),
            };
            Ok::<_, Declined>(format!("{generation} {count} {padding}"))
        })?;
        let words: Vec<_> = raised.split(' ').collect();
        let raised = (words[0].parse().unwrap(), words[1].parse().unwrap());
        assert!(self.elements.raised.insert(raised), "{raised:?} of {name} was counted twice");
        Ok(())
    }

    fn push_or_pop(&mut self, guard: &mut Guard<'_>, database: u8, name: &str) -> Result<(), Declined> {
        let key = guard.key_in(database, name.as_bytes());
        let end = if self.random.below(2) == 0 { End::Front } else { End::Back };
        // Some lists get enough elements for a tree.
        let many = self.random.below(if name.ends_with(['1', '3', '5']) { 120 } else { 6 });
        if self.random.below(2) == 0 {
            let first = self.shared.pushes.fetch_add(many, Relaxed);
            let elements: Vec<String> = (first..first + many)
                .map(|number| match number % 3 {
                    // This element lies outside of the leaf.
                    _ if number % 43 == 0 => format!("{number:0>17000}"),
                    0 => number.to_string(),
                    1 => format!("{number:0>30}"),
                    _ => format!("{number:0>200}"),
                })
                .collect();
            let elements = elements.iter().map(|element| element.as_bytes());
            return guard.list_push(&key, end, elements, false).map(drop);
        }
        let Some(popped) = guard.list_pop(&key, end, many as usize)? else { return Ok(()) };
        for entry in popped.entries() {
            let number = string_of(popped.collection(), &entry.name).parse().expect("a number was pushed");
            assert!(self.elements.popped.insert(number), "{number} was popped twice");
        }
        Ok(())
    }

    /// Moves a member from one of two sets to the other.
    fn move_member(&mut self, guard: &mut Guard<'_>, database: u8, number: u64) -> Result<(), Declined> {
        let names = [format!("set-{number}-one"), format!("set-{number}-other")];
        let keys = [0, 1].map(|i| guard.key_in(database, names[i].as_bytes()));
        let members = if number % 2 == 1 { 20 * MEMBERS } else { MEMBERS };
        let mut member = format!("member {}", self.random.below(members));
        // Some members lie outside of the leaf.
        if member.ends_with("35") {
            member = format!("{member:.<17000}");
        }
        let once = || [member.as_bytes()].into_iter();
        guard.begin(keys);
        let there = keys.map(|key| {
            let set = guard.collection(&key, Type::Set).expect("it is a set");
            set.is_some_and(|set| set.find(member.as_bytes()).is_some())
        });
        assert_ne!(there, [true, true], "{member} is in both of {names:?}");
        let to = usize::from(!there[1]);
        let done = guard.set_add(&keys[to], once());
        if done.is_ok() {
            assert_eq!(done, Ok(1));
            // The removal may need memory, too; without it the other set is deleted.
            if guard.remove_named(&keys[1 - to], Type::Set, once()).is_err() {
                guard.delete(&keys[to], Expect::Present).expect("it was just written");
            }
        }
        guard.finish();
        done.map(drop)
    }

    fn give_scores(&mut self, guard: &mut Guard<'_>, database: u8, name: &str) -> Result<(), Declined> {
        let key = guard.key_in(database, name.as_bytes());
        // Some sorted sets get enough members for two trees, with few scores, so that many members share
        // each.
        let large = name.ends_with(['1', '3', '5']);
        let (members, scores) = if large { (3_000, 20) } else { (100, 50) };
        if self.random.below(8) == 0 {
            let from = self.random.below(20) as usize;
            return guard.sorted_remove(&key, |_| from..from + 10).map(drop);
        }
        let pairs: Vec<(f64, String)> = (0..if large { 60 } else { 3 })
            .map(|_| {
                let part = if self.random.below(3) == 0 { 7.0 } else { 1.0 };
                let score = self.random.below(scores) as f64 / part;
                let number = self.random.below(members);
                // Some members lie outside of the leaf.
                let is_long = number < 1_000 && number % 100 == 35;
                let member = format!("member {number}");
                (score, if is_long { format!("{member:.<17000}") } else { member })
            })
            .collect();
        let rule = ScoreRule { added: self.random.below(2) == 0, ..ScoreRule::default() };
        guard.sorted_add(&key, rule, pairs.iter().map(|(score, member)| (*score, member.as_bytes())))?;
        if let Some(set) = guard.collection(&key, Type::SortedSet)? {
            let entries = set.entries(0..set.len());
            let all: Vec<_> = entries.map(|entry| (entry.score, string_of(&set, &entry.name))).collect();
            assert!(all.is_sorted_by(|a, b| a < b), "{name} is out of order");
            // Finding a member by name must give the rank and score that it has in order.
            let rank = self.random.below(all.len() as u64) as usize;
            for (rank, (score, member)) in all.iter().enumerate().skip(rank).take(3) {
                let member = member.as_bytes();
                assert_eq!((set.find(member), set.score(member)), (Some(rank), Some(*score)), "{name}");
            }
            let stranger = format!("member {}", self.random.below(members));
            let there = all.iter().find(|(_, member)| *member == stranger).map(|(score, _)| *score);
            assert_eq!(set.score(stranger.as_bytes()), there, "{name}: {stranger}");
            let (mut cursor, mut places) = (0, Vec::new());
            loop {
                cursor = set.scan(cursor, &mut places);
                if cursor == 0 {
                    break;
                }
            }
            let scanned: usize = places.iter().map(|places| places.len()).sum();
            assert_eq!(scanned, all.len(), "{name} is scanned as it is");
        }
        Ok(())
    }

    /// Does what an administrator does: flushes, new limits, moves of spans.
    fn administer(&mut self, guard: &mut Guard<'_>) {
        let store = &self.shared.store;
        match self.random.below(12) {
            0 => guard.flush(),
            1 => guard.flush_database(DATABASES[self.random.below(2) as usize]),
            2..5 => {
                let modes = [Automove::Off, Automove::Ages, Automove::Always];
                store.set_automove(modes[self.random.below(3) as usize]);
            }
            5..8 => {
                let classes = store.classes(guard.now());
                let mut pick = || {
                    let at = self.random.below(2 * classes.len() as u64 + 1) as usize;
                    classes.get(at).map(|class| class.id)
                };
                let (from, to) = (pick(), pick());
                guard.reassign(from, to, 1 + self.random.below(16) as usize);
            }
            8..10 => {
                let mebibytes = MEBIBYTES[self.random.below(MEBIBYTES.len() as u64) as usize];
                assert!(store.set_memory_bytes(mebibytes << 20));
            }
            10 => {
                // Time passes without requests.
                self.shared.clock.fetch_add(self.random.below(5_000), Relaxed);
            }
            _ => guard.give_way(),
        }
    }

    fn run(&mut self, worker: &mut Worker, steps: u64) {
        for _ in 0..steps {
            let now = self.shared.clock.fetch_add(self.random.below(3), Relaxed);
            if self.random.below(500) == 0 {
                worker.rest();
            }
            let mut guard = worker.enter(now);
            match self.random.below(100) {
                0..35 => self.data(&mut guard),
                35..50 => self.collections(&mut guard),
                50..57 => self.sum(&mut guard),
                57..75 => {
                    let counter = self.counter();
                    self.raise(&mut guard, counter, false);
                }
                75..82 => self.transaction(&mut guard),
                82..90 => self.disturb(&mut guard),
                90..99 => drop(guard.maintain()),
                _ => self.administer(&mut guard),
            }
            drop(guard);
            // These values stay pinned, as while they are sent; some of them for long.
            if self.pins.len() > 1 || self.random.below(50) == 0 {
                for pinned in self.pins.drain(..) {
                    words(&pinned.pieces(0).flatten().copied().collect::<Vec<_>>());
                }
            }
        }
        self.pins.clear();
    }
}

/// Checks the writes of one counter in the order of their tokens: generations come one after another, and
/// each counts from 1 without a gap.
fn in_order(counter: (u8, u64), notes: &BTreeMap<u64, Noted>) {
    let mut ended = std::collections::BTreeSet::new();
    let mut last: Option<&Noted> = None;
    for (token, noted) in notes {
        let follows = last.is_some_and(|last| last.generation == noted.generation);
        let expected = if follows { last.map_or(0, |last| last.count) + 1 } else { 1 };
        assert_eq!(noted.count, expected, "{counter:?} at token {token}: {noted:?} after {last:?}");
        assert!(follows || ended.insert(noted.generation), "{counter:?}: {noted:?} came back");
        last = Some(noted);
    }
}

/// Checks that each generation's counts go from 1 on without a gap, and that each popped number was pushed,
/// and popped once; returns how many counts and popped numbers there are.
fn each_once(all: Vec<Elements>, pushes: u64) -> (usize, usize) {
    let (mut raised, mut popped) = (BTreeSet::new(), BTreeSet::new());
    for mut elements in all {
        let counts = (raised.len() + elements.raised.len(), popped.len() + elements.popped.len());
        raised.append(&mut elements.raised);
        popped.append(&mut elements.popped);
        assert_eq!(
            (raised.len(), popped.len()),
            counts,
            "two threads have made one step, or popped one number"
        );
    }
    let mut last = (0, 0);
    for &(generation, count) in &raised {
        let expected = if generation == last.0 { last.1 + 1 } else { 1 };
        assert_eq!(count, expected, "a sum or field of generation {generation} after {last:?}");
        last = (generation, count);
    }
    assert!(popped.last().is_none_or(|last| *last < pushes), "a number that nobody pushed");
    (raised.len(), popped.len())
}

/// Plays one storm; returns how many writes were refused for lack of memory.
fn storm(seed: u64, steps: u64, eviction: Eviction) -> u64 {
    println!("LARDER_STORM_SEED={seed} LARDER_STORM_STEPS={steps} {eviction:?}");
    let config = Config { memory_bytes: 6 << 20, memory_bytes_max: 16 << 20, seed, ..Config::default() };
    let shared = Shared {
        store: Store::new(config).unwrap(),
        clock: AtomicU64::new(NOW),
        generations: AtomicU64::new(1),
        pushes: AtomicU64::new(1),
        refused: AtomicU64::new(0),
    };
    let store = &shared.store;
    store.set_eviction(eviction);
    let all: Vec<(Notes, Elements)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|id| {
                let shared = &shared;
                scope.spawn(move || {
                    let random = Random((seed * THREADS + id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let elements = Elements::default();
                    let mut storm = Storm { shared, random, notes: Notes::new(), elements, pins: Vec::new() };
                    storm.run(&mut shared.store.worker().unwrap(), steps);
                    (storm.notes, storm.elements)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    store.check();
    // 1. No write was lost, and no deleted item came back.
    let (all, elements): (Vec<Notes>, Vec<Elements>) = all.into_iter().unzip();
    let mut notes = Notes::new();
    for (counter, noted) in all.into_iter().flatten() {
        let count = noted.len();
        let merged = notes.entry(counter).or_default();
        let before = merged.len();
        merged.extend(noted);
        assert_eq!(merged.len(), before + count, "{counter:?}: two writes were given one token");
    }
    notes.iter().for_each(|(counter, noted)| in_order(*counter, noted));
    let (raised, popped) = each_once(elements, shared.pushes.load(Relaxed));
    // 2. Each counter has its last write, or is gone.
    let now = shared.clock.load(Relaxed);
    let mut worker = store.worker().unwrap();
    let mut guard = worker.enter(now);
    for (&(database, number), noted) in &notes {
        let name = format!("counter-{number}");
        let key = guard.key_in(database, name.as_bytes());
        if let Lookup::Hit(item) = guard.get(&key) {
            let (token, last) = noted.last_key_value().expect("a write");
            assert_eq!(words(&collect(item.value())), (last.generation, last.count));
            assert!(item.cas() >= *token);
        }
    }
    // 3. The store stays within its limit, and all memory can be freed.
    assert!(store.set_memory_bytes(4 << 20));
    for step in 0..100_000 {
        // The first 1,000 steps may have other work to do.
        if step >= 1_000 && store.used_bytes() <= 4 << 20 {
            break;
        }
        guard.maintain();
    }
    assert!(store.used_bytes() <= 4 << 20 || eviction != Eviction::All, "{} bytes", store.used_bytes());
    guard.flush();
    let mut later = now;
    while store.totals().items > 0 {
        later += 50;
        assert!(later < now + 1_000_000, "{} items stay after a flush", store.totals().items);
        drop(guard);
        guard = worker.enter(later);
        guard.maintain();
    }
    drop(guard);
    store.check_behind(worker);
    let written: usize = notes.values().map(BTreeMap::len).sum();
    let totals = store.totals();
    println!("{raised} raised, {popped} popped");
    let refused = shared.refused.load(Relaxed);
    println!("{written} counted, {refused} refused, {totals:?}");
    assert!(written as u64 > steps / 5 || eviction != Eviction::All);
    assert!(raised > 0 && popped > 0);
    refused
}

/// Plays the storms of all seeds, or the one that the environment names; returns how many writes were
/// refused.
fn storms() -> u64 {
    let steps = given("LARDER_STORM_STEPS", 20_000);
    match std::env::var("LARDER_STORM_SEED") {
        Ok(seed) => storm(seed.parse().expect("a seed"), steps, Eviction::All),
        Err(_) => (1..=5).map(|seed| storm(seed, steps, Eviction::All)).sum(),
    }
}

#[test]
fn books_are_right_after_everything_at_once() {
    storms();
}

#[test]
#[ignore = "time: a worker that is kept from its core in its batch is waited for a second"]
fn nothing_is_refused_while_everything_is_done_at_once() {
    assert_eq!(storms(), 0, "refused for want of memory");
}

#[test]
fn books_are_right_when_nothing_may_be_evicted() {
    storm(11, given("LARDER_STORM_STEPS", 10_000), Eviction::Off);
}

#[test]
fn books_are_right_when_only_what_expires_may_be_evicted() {
    let steps = given("LARDER_STORM_STEPS", 10_000);
    storm(11, steps, Eviction::Volatile);
    storm(12, steps, Eviction::VolatileTtl);
}
