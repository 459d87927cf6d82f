//! Several sets, or sorted sets, made into one: SINTER, SUNION, SDIFF and their kin.
//!
//! ```text
//! all of them small ─▶ read as they are at one moment ─▶ the reply, or the new set
//! else              ─▶ read in steps ─▶ as they were? ─▶ the same, the reply in pieces
//!                          ▲               └── no: all over again
//! ```
//!
//! What is put together lies in memory of the command's, which is charged as it comes.

use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Attributes, Collection, Entry, Expect, Item, Key, Made, Type, Value};

use super::members::{MEMBER_BYTES, Members};
use super::{Call, ELEMENT_NS, Shown, counted};
use crate::core::work::{KEY_NS, Lane};
use crate::redis::call::{integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_double, put_set};
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, Step};
use crate::redis::strings::rewrite::Heap;
use crate::redis::strings::source::Name;

/// Elements that are read at a time.
const ELEMENTS_AT_ONCE: usize = 4 << 10;

/// What is made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// What all have.
    Inter,
    /// What any has.
    Union,
    /// What the first has and none of the others.
    Diff,
}

/// How the scores of one member come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, two: f64) -> f64 {
        match self {
            // Both infinities make nothing.
            Aggregate::Sum => Some(one + two).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            Aggregate::Min => one.min(two),
            Aggregate::Max => one.max(two),
        }
    }
}

/// What is done with what was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is replied as a set.
    Members,
    /// It is replied as a sorted set.
    Sorted(Shown),
    /// It is counted, up to so many; 0: all.
    Count(u64),
    /// It is stored.
    Store,
}

/// What is asked of some keys.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub operation: Operation,
    /// Of sorted sets; those of the keys that are sets are as if each member had the score 1.
    pub kind: Type,
    /// By what the scores of each of them are multiplied; none: by 1.
    pub weights: Vec<f64>,
    pub aggregate: Aggregate,
    pub then: Then,
}

impl Plan {
    pub fn new(operation: Operation, kind: Type, then: Then) -> Plan {
        Plan { operation, kind, weights: Vec::new(), aggregate: Aggregate::Sum, then }
    }

    /// The collection of an item, if it may be one of those.
    fn source<'r>(&self, item: Option<Item<'r>>) -> Result<Option<Collection<'r>>, Fail> {
        let Some(item) = item else { return Ok(None) };
        match item.value() {
            Value::Collection(there)
                if there.kind() == self.kind || (self.kind, there.kind()) == (Type::SortedSet, Type::Set) =>
            {
                Ok(Some(there.elements()))
            }
            Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => Err(Fail::WRONG_TYPE),
        }
    }

    /// The score that an entry of the nth key has.
    fn score(&self, nth: usize, kind: Type, entry: &Entry<'_>) -> f64 {
        let score = if kind == Type::Set { 1.0 } else { entry.score };
        let weighted = score * self.weights.get(nth).copied().unwrap_or(1.0);
        if weighted.is_nan() { 0.0 } else { weighted }
    }

    /// Adds elements of the nth of the collections to what those before it have made.
    fn add(&self, members: &mut Members, nth: usize, collection: &Collection<'_>, places: Range<usize>) {
        let (mark, kind) = (nth as u32, collection.kind());
        let mut room = [0; larder_store::DIGITS_MAX];
        for entry in collection.entries(places) {
            let (text, score) = (entry.name.text(&mut room), self.score(nth, kind, &entry));
            let there = match self.operation {
                // A member's mark: of inter, how many have it, of others, whether it stays.
                _ if nth == 0 => {
                    members.insert(text, score, if self.operation == Operation::Inter { 1 } else { 0 })
                }
                Operation::Union => members.insert(text, score, 0),
                Operation::Inter | Operation::Diff => members.find(text),
            };
            let Some(number) = there else { continue };
            match self.operation {
                Operation::Diff => *members.mark(number) = 1,
                Operation::Inter if *members.mark(number) != mark => continue,
                Operation::Inter => *members.mark(number) = mark + 1,
                Operation::Union => {}
            }
            if self.operation != Operation::Diff {
                let old = *members.score(number);
                *members.score(number) = self.aggregate.of(old, score);
            }
        }
    }

    /// The numbers of those that are left of so many collections, in the order of the reply.
    fn left(&self, members: &Members, keys: usize) -> Vec<u32> {
        let mut left = members.marked(if self.operation == Operation::Inter { keys as u32 } else { 0 });
        if self.kind == Type::SortedSet {
            members.sort(&mut left);
        }
        left
    }
}

/// SINTER, SUNION, SDIFF
pub(crate) fn sets(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    keys: Args<'_>,
    operation: Operation,
) -> Done {
    combine(call, (name, keys), &Plan::new(operation, Type::Set, Then::Members), None, keys)
}

/// SINTERSTORE, SUNIONSTORE, SDIFFSTORE
pub(crate) fn store_sets(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    args: Args<'_>,
    operation: Operation,
) -> Done {
    let mut keys = args;
    let target = next(&mut keys)?;
    combine(call, (name, args), &Plan::new(operation, Type::Set, Then::Store), Some(target), keys)
}

/// SINTERCARD
pub(crate) fn count_sets(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let keys = integer(args.at(0).unwrap_or_default()).ok().filter(|keys| *keys > 0);
    let keys = keys.ok_or(Fail::of("ERR numkeys should be greater than 0"))?;
    if usize::try_from(keys).map_or(true, |keys| keys >= args.len()) {
        return Err(Fail::of("ERR Number of keys can't be greater than number of args"));
    }
    count(call, "sintercard", args, Type::Set)
}

/// ZINTERCARD
pub(crate) fn count_sorted(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    integer(args.at(0).unwrap_or_default())?;
    count(call, "zintercard", args, Type::SortedSet)
}

fn count(call: &mut Call<'_, '_, '_>, name: &'static str, args: Args<'_>, kind: Type) -> Done {
    let mut rest = args;
    let keys = counted(&mut rest, needs_a_key(name))?;
    let mut limit = 0;
    while let Some(word) = rest.next() {
        if !is(word, "LIMIT") {
            return Err(Fail::SYNTAX);
        }
        let most = integer(next(&mut rest)?).ok().and_then(|most| u64::try_from(most).ok());
        limit = most.ok_or(Fail::of("ERR LIMIT can't be negative"))?;
    }
    combine(call, (name, args), &Plan::new(Operation::Inter, kind, Then::Count(limit)), None, keys)
}

/// Of a command that was given no keys.
pub(crate) fn needs_a_key(name: &str) -> Fail {
    Fail::with(format!("ERR at least 1 input key is needed for '{name}' command"))
}

/// Does it, at once or in steps. `words`: the command's name and arguments.
pub(crate) fn combine(
    call: &mut Call<'_, '_, '_>,
    words: (&'static str, Args<'_>),
    plan: &Plan,
    target: Option<&[u8]>,
    keys: Args<'_>,
) -> Done {
    let (mut bytes, mut room) = (0, 0);
    for name in keys {
        let key = call.key(name);
        if let Some(there) = plan.source(call.cx.guard.peek(&key).hit())? {
            bytes += there.bytes() as u64;
            room += members_bytes(&there);
        }
    }
    match call.leave(bytes, words.0, None, words.1)? {
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => {
            // What is read is charged as it is.
            let held = Heap::take(call, sources_bytes(keys))?;
            let combining = Combining::new(call, plan, target, keys, held, Some((again, lane)));
            call.go_on_with(combining);
            Ok(())
        }
        Leave::No => {
            let held = Heap::take(call, room + sources_bytes(keys))?;
            let combining = Combining::new(call, plan, target, keys, held, None);
            combining.at_once(call, target, keys)
        }
    }
}

/// Bytes that the members of a collection take where they are put together.
fn members_bytes(collection: &Collection<'_>) -> usize {
    // Vectors grow to twice their length.
    2 * collection.bytes() + collection.len() * MEMBER_BYTES
}

/// Bytes that are noted of keys.
fn sources_bytes(keys: Args<'_>) -> usize {
    keys.map(|name| name.len() + size_of::<Source>()).sum()
}

/// A collection that others are made into.
#[derive(Debug)]
struct Combining {
    plan: Plan,
    sources: Vec<Source>,
    target: Option<Name>,
    /// The one that is read next, and where it goes on.
    next: usize,
    at: usize,
    members: Members,
    /// What is left, when all are read; so many of them are replied.
    left: Option<Vec<u32>>,
    replied: usize,
    again: Option<(Again, Lane)>,
    held: Heap,
}

/// One of the keys, and the version in which it was read; none if there was nothing.
#[derive(Debug)]
struct Source {
    name: Name,
    version: Option<u64>,
}

impl Combining {
    fn new(
        call: &mut Call<'_, '_, '_>,
        plan: &Plan,
        target: Option<&[u8]>,
        keys: Args<'_>,
        held: Heap,
        again: Option<(Again, Lane)>,
    ) -> Combining {
        let db = call.client.db;
        let name = |call: &Call<'_, '_, '_>, name| Name::of(call, db, &call.key(name));
        let sources = keys.map(|key| Source { name: name(call, key), version: None }).collect();
        let target = target.map(|target| name(call, target));
        let (plan, members) = (plan.clone(), Members::new());
        Combining { plan, sources, target, next: 0, at: 0, members, left: None, replied: 0, again, held }
    }

    /// Reads the next of the collections, or some more of it; what that takes.
    fn read_next(&mut self, call: &mut Call<'_, '_, '_>) -> Result<u64, Fail> {
        let Combining { plan, sources, next, at, members, held, again, .. } = self;
        let source = &mut sources[*next];
        let key = source.name.key(call);
        if again.is_some() && *at == 0 {
            let there = plan.source(call.cx.guard.peek(&key).hit())?;
            let bytes = there.as_ref().map_or(0, members_bytes);
            held.raise(call, bytes)?;
        }
        // Items may have given way to that.
        let item = call.cx.guard.peek(&key).hit();
        if *at == 0 {
            // If it is another one later, it is another one at the end.
            source.version = item.map(|item| item.cas());
        }
        let mut elements = 0;
        let there = plan.source(item)?.filter(|there| *at < there.len());
        if let Some(there) = &there {
            let places = *at..there.len().min(*at + ELEMENTS_AT_ONCE);
            elements = places.len();
            *at = places.end;
            plan.add(members, *next, there, places);
        }
        if there.is_none_or(|there| *at == there.len()) {
            (*next, *at) = (*next + 1, 0);
        }
        Ok(KEY_NS + 2 * ELEMENT_NS * elements as u64)
    }

    /// Reads all of them.
    fn read_all(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        while self.next < self.sources.len() {
            let ns = self.read_next(call)?;
            call.spend(ns);
        }
        Ok(())
    }

    /// All of it is one step, but for the reply.
    fn at_once(mut self, call: &mut Call<'_, '_, '_>, target: Option<&[u8]>, keys: Args<'_>) -> Done {
        if target.is_some() {
            return call.as_one_in(keys.chain(target), |call| {
                self.read_all(call)?;
                self.end(call).map(drop)
            });
        }
        let one = std::cell::RefCell::new(&mut self);
        call.look_as_one(keys, |call, keys| {
            keys.for_each(|name| {
                let key = call.key(name);
                call.cx.guard.note(&key);
            });
            let combining = &mut **one.borrow_mut();
            (combining.next, combining.at, combining.members) = (0, 0, Members::new());
            combining.read_all(call)
        })?;
        self.left = self.end(call)?;
        if self.left.is_some() { call.work(self) } else { Ok(()) }
    }

    /// The keys still have what was read.
    fn is_so(&self, call: &mut Call<'_, '_, '_>) -> bool {
        self.target.iter().all(|target| !target.is_swapped(call))
            && self.sources.iter().all(|Source { name, version }| {
                let key = name.key(call);
                !name.is_swapped(call) && call.cx.guard.peek(&key).hit().map(|item| item.cas()) == *version
            })
    }

    /// Stores or replies what was made; or the head of the reply, and which are to be replied then.
    fn end(&self, call: &mut Call<'_, '_, '_>) -> Result<Option<Vec<u32>>, Fail> {
        let left = self.plan.left(&self.members, self.sources.len());
        match self.plan.then {
            Then::Count(limit) => {
                let count = left.len() as u64;
                call.integer(if limit == 0 { count } else { count.min(limit) } as i64)?;
                Ok(None)
            }
            Then::Store => {
                let target = self.target.as_ref().map(|target| target.key(call));
                let target = target.expect("what is stored has a place");
                self.store(call, &target, &left)?;
                Ok(None)
            }
            Then::Members | Then::Sorted(_) => {
                if call.cx.guard.in_transaction() {
                    // All of it is sent at once.
                    let text = |number: &u32| self.members.pair(*number).0.len() + 2 * super::ELEMENT_ROOM;
                    call.make_room(left.iter().map(text).sum())?;
                }
                match self.plan.then {
                    Then::Sorted(shown) => shown.put_head(call.out, call.client.resp3, left.len()),
                    _ => put_set(call.out, call.client.resp3, left.len()),
                }
                Ok(Some(left))
            }
        }
    }

    fn store(&self, call: &mut Call<'_, '_, '_>, target: &Key<'_>, left: &[u32]) -> Done {
        if left.is_empty() {
            // It may not be there: that is as good.
            let _ = call.cx.guard.delete(target, Expect::Present);
            return call.integer(0);
        }
        let made = left.iter().map(|number| {
            let (name, score) = self.members.pair(*number);
            Made { name, value: &[], score: if self.plan.kind == Type::SortedSet { score } else { 0.0 } }
        });
        let (kind, attributes) = (self.plan.kind, Attributes::default());
        let stored = call.cx.guard.collection_store(target, kind, made, &attributes, Expect::Any)?;
        stored.map_err(|_| Fail::OUT_OF_MEMORY)?;
        call.length(left.len())
    }

    /// Replies more of what is left.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let Some(left) = &self.left else { return Step::Done };
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let whole = call.cx.guard.in_transaction();
        let resp3 = call.client.resp3;
        let step = loop {
            let Some(number) = left.get(self.replied) else { break Step::Done };
            if !whole && call.out.is_full() {
                break Step::Full;
            }
            if !whole && ns >= ns_max {
                break Step::More;
            }
            let (text, score) = self.members.pair(*number);
            let with_score = self.plan.then == Then::Sorted(Shown::Scores);
            if with_score && resp3 {
                put_array(call.out, 2);
            }
            put_bulk(call.out, text);
            if with_score {
                put_double(call.out, resp3, score);
            }
            self.replied += 1;
            ns += ELEMENT_NS;
        };
        call.spend(ns);
        step
    }
}

impl Job for Combining {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.left.is_some() {
            return Ok(self.reply(call));
        }
        let (ns_max, mut ns) = (call.step_ns(), 0);
        while self.next < self.sources.len() {
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
            ns += self.read_next(call)?;
        }
        call.spend(ns);
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let names = self.sources.iter().map(|source| &source.name).chain(&self.target);
        let keys: Vec<Key<'_>> = names.map(|name| name.key(call)).collect();
        let mut ended = None;
        let done = call.tell_around(again.row(), again.args(), |call| {
            call.as_one(keys, |call| {
                if self.is_so(call) {
                    ended = Some(self.end(call)?);
                }
                Ok(())
            })
        });
        drop(lane);
        done?;
        let Some(left) = ended else {
            again.run(call)?;
            return Ok(Step::Done);
        };
        self.left = left;
        Ok(self.reply(call))
    }

    fn only_reads(&self) -> bool {
        self.plan.then != Then::Store
    }
}
