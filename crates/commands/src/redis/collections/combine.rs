//! Several sets, or sorted sets, combined into one: SINTER, SUNION, SDIFF and their kin.
//!
//! ```text
//! little ─▶ read in one step as at one moment ─▶ the reply, or the new set
//! else   ─▶ read in steps, made in steps if it is stored ─▶ unchanged? ─▶ the same, the reply in pieces
//!                 ▲                                             └── no: all over again
//!
//! sieve    some members of the first source │ left of them after the second │ … after the last ─▶ rows
//! gather   all members of all sources, or of the first one, marked where another has them    ─▶ members
//! ```
//!
//! An intersection is sieved from the smallest source, up to as many members as are asked for. A difference is sieved from the
//! first source or gathered, whichever takes less; a union is gathered. So only what may be left in the end is copied, and
//! charged as it comes; of a difference that may be all of the first source.

mod sieve;

use std::ops::Range;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, DIGITS_MAX, Entry, Item, Key, Made, Type, Value};

use super::making::Making;
use super::members::{COMPARES, MEMBER_BYTES, Members, ROW_BYTES, RUN_BYTES, Rows, Sorted};
use super::{Call, ELEMENT_NS, LOOK_NS, MEMBER_NS, PRESENT_NS, STORED_NS, Shown, counted};
use crate::core::output::Mark;
use crate::core::work::{KEY_NS, Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{ELEMENT_BYTES, few_keys, integer, is, next};
use crate::redis::copied::run_of;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk, put_double, put_head, put_set};
use crate::redis::sizes::KEY_HASH_BYTES;
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, LEAVES, Step};
use sieve::Sieve;

/// Members that are gathered at a time, at most.
const MEMBERS_AT_ONCE: usize = 512;
/// Bytes at which a batch of gathered members ends.
const BYTES_AT_ONCE: usize = 64 << 10;
/// Work that is done in one step.
const AT_ONCE_NS: u64 = 400_000;
/// Members that are gathered, at most.
const MEMBERS_MAX: usize = u32::MAX as usize - MEMBERS_AT_ONCE;

/// How several sources become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The members that all sources have.
    Inter,
    /// The members that any source has.
    Union,
    /// The members of the first source that no other has.
    Diff,
}

/// How several scores of one member become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, two: f64) -> f64 {
        match self {
            // The sum of both infinities is 0.
            Aggregate::Sum => Some(one + two).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            Aggregate::Min => one.min(two),
            Aggregate::Max => one.max(two),
        }
    }
}

/// What is done with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its members are replied as a set.
    Members,
    /// Its members are replied as a sorted set.
    Sorted(Shown),
    /// Its members are counted, up to so many; 0: all.
    Count(u64),
    /// It is stored.
    Store,
}

/// What a command makes of its keys.
#[derive(Debug)]
pub(crate) struct Plan {
    pub operation: Operation,
    /// The type of the keys. Among sorted sets a key may be a set, whose members have the score 1.
    pub kind: Type,
    /// Multipliers of the scores of each key; a missing one is 1.
    pub weights: Vec<f64>,
    /// The charge for the weights.
    pub weighed: Option<Heap>,
    pub aggregate: Aggregate,
    pub then: Then,
}

impl Plan {
    pub fn new(operation: Operation, kind: Type, then: Then) -> Plan {
        Plan { operation, kind, weights: Vec::new(), weighed: None, aggregate: Aggregate::Sum, then }
    }

    /// The collection of an item, if its type is one that the plan takes.
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

    /// The error if one of the keys has another type of value. Commands on sorted sets reply it before errors in their options.
    pub fn wrong_type(&self, call: &mut Call<'_, '_, '_>, mut keys: Args<'_>) -> Option<Fail> {
        keys.find_map(|name| {
            let key = call.key(name);
            self.source(call.cx.guard.peek(&key).hit()).err()
        })
    }

    /// The weighted score of an entry of the nth key.
    fn score(&self, nth: usize, kind: Type, entry: &Entry<'_>) -> f64 {
        let score = if kind == Type::Set { 1.0 } else { entry.score };
        let weighted = score * self.weights.get(nth).copied().unwrap_or(1.0);
        if weighted.is_nan() { 0.0 } else { weighted }
    }
}

/// Serves SINTER, SUNION and SDIFF.
pub(crate) fn sets(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    keys: Args<'_>,
    operation: Operation,
) -> Done {
    combine(call, (name, keys), Plan::new(operation, Type::Set, Then::Members), None, keys)
}

/// Serves SINTERSTORE, SUNIONSTORE and SDIFFSTORE.
pub(crate) fn store_sets(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    args: Args<'_>,
    operation: Operation,
) -> Done {
    let mut keys = args;
    let target = next(&mut keys)?;
    combine(call, (name, args), Plan::new(operation, Type::Set, Then::Store), Some(target), keys)
}

/// Serves SINTERCARD.
pub(crate) fn count_sets(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let keys = integer(args.at(0).unwrap_or_default()).ok().filter(|keys| *keys > 0);
    let keys = keys.ok_or(Fail::of("ERR numkeys should be greater than 0"))?;
    if usize::try_from(keys).map_or(true, |keys| keys >= args.len()) {
        return Err(Fail::of("ERR Number of keys can't be greater than number of args"));
    }
    count(call, "sintercard", args, Type::Set)
}

/// Serves ZINTERCARD.
pub(crate) fn count_sorted(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    integer(args.at(0).unwrap_or_default())?;
    count(call, "zintercard", args, Type::SortedSet)
}

fn count(call: &mut Call<'_, '_, '_>, name: &'static str, args: Args<'_>, kind: Type) -> Done {
    let mut rest = args;
    let keys = counted(&mut rest, needs_a_key(name))?;
    few_keys(keys.len())?;
    let mut plan = Plan::new(Operation::Inter, kind, Then::Count(0));
    match limit(rest) {
        Ok(most) => plan.then = Then::Count(most),
        Err(fail) if kind == Type::SortedSet => return Err(plan.wrong_type(call, keys).unwrap_or(fail)),
        Err(fail) => return Err(fail),
    }
    combine(call, (name, args), plan, None, keys)
}

/// Reads `[LIMIT limit]`.
fn limit(mut words: Args<'_>) -> Result<u64, Fail> {
    let mut limit = 0;
    while let Some(word) = words.next() {
        if !is(word, "LIMIT") {
            return Err(Fail::SYNTAX);
        }
        let most = integer(next(&mut words)?).ok().and_then(|most| u64::try_from(most).ok());
        limit = most.ok_or(Fail::of("ERR LIMIT can't be negative"))?;
    }
    Ok(limit)
}

/// The error of a command that was given no keys.
pub(crate) fn needs_a_key(name: &str) -> Fail {
    Fail::with(format!("ERR at least 1 input key is needed for '{name}' command"))
}

/// Carries out a plan, at once or in steps. `words`: the command's name and arguments.
pub(crate) fn combine(
    call: &mut Call<'_, '_, '_>,
    words: (&'static str, Args<'_>),
    plan: Plan,
    target: Option<&[u8]>,
    keys: Args<'_>,
) -> Done {
    few_keys(keys.len())?;
    let noted = Heap::take(call, sources_bytes(keys))?;
    let mut combining = Combining::new(call, plan, target, keys, noted);
    combining.prepare(call, false)?;
    let bytes = if combining.takes_ns() >= AT_ONCE_NS { STEPS_BYTES_MIN } else { 0 };
    match call.leave(bytes, words.0, None, words.1)? {
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => {
            combining.again = Some((again, lane));
            call.go_on_with(combining);
            Ok(())
        }
        Leave::No => {
            call.spend(keys.len() as u64 * PRESENT_NS);
            combining.at_once(call, target, keys)
        }
    }
}

/// Bytes noted of a key beside its name: the source, its place in the order and a second one for sorting, and, when all are read,
/// the key and hash by which all are looked at as one.
const SOURCE_BYTES: usize =
    size_of::<Source>() + 2 * size_of::<u32>() + size_of::<Key<'_>>() + KEY_HASH_BYTES;
/// Bytes of an allocation beside its content: its length, and rounding.
const ALLOCATED_BYTES: usize = 32;

/// Bytes that are noted of the keys.
fn sources_bytes(keys: Args<'_>) -> usize {
    keys.map(|name| name.len() + ALLOCATED_BYTES + SOURCE_BYTES).sum()
}

/// A command that combines several collections, under way.
#[derive(Debug)]
struct Combining {
    plan: Plan,
    sources: Vec<Source>,
    /// The order in which the sources are read.
    order: Vec<u32>,
    target: Option<Name>,
    way: Way,
    /// Members in the order of a sorted set.
    sorted: Sorted,
    /// How many members were sorted; of a set, where no order is needed, replied.
    at: usize,
    /// The member that is being replied, and how many of its bytes were.
    partly: Option<(usize, usize)>,
    /// All sources are read.
    read: bool,
    /// The head of the reply is written.
    headed: bool,
    /// The collection to store, where it is made in steps.
    making: Option<Making>,
    again: Option<(Again, Lane)>,
    /// The charge for what is noted of the sources.
    noted: Heap,
    /// The charge for the result.
    held: Heap,
}

/// One of the keys, and its state when it was first looked at.
#[derive(Debug)]
struct Source {
    name: Name,
    /// `None` if the key had no value.
    version: Option<u64>,
    len: usize,
    bytes: usize,
    /// Bytes of the longest member that lies apart, at most; 0 if none does.
    longest: usize,
}

impl Source {
    /// Work to read all of it.
    fn reading_ns(&self) -> u64 {
        self.len as u64 * MEMBER_NS + copying_ns(self.bytes as u64)
    }
}

/// How the sources are combined.
#[derive(Debug)]
enum Way {
    /// Members of the source at `next` are added or marked, from `at` on.
    Gather { members: Members, next: usize, at: usize },
    /// Members of the first source are looked for in all others.
    Sieve(Sieve),
}

impl Way {
    fn rows(&self) -> &Rows {
        match self {
            Way::Gather { members, .. } => &members.rows,
            Way::Sieve(sieve) => &sieve.rows,
        }
    }

    /// Whether a row is a member of the result.
    fn has(&self, i: usize) -> bool {
        match self {
            Way::Gather { members, .. } => !members.is_marked(i),
            Way::Sieve(_) => true,
        }
    }

    /// Members of the result.
    fn left(&self) -> u64 {
        match self {
            Way::Gather { members, .. } => members.unmarked() as u64,
            Way::Sieve(sieve) => sieve.left,
        }
    }

    /// Bytes of the rows on the heap: twice what is there, since vectors grow by doubling.
    fn bytes(&self) -> usize {
        let (rows, each, batch) = match self {
            Way::Gather { members, .. } => (&members.rows, MEMBER_BYTES, 0),
            Way::Sieve(sieve) => (&sieve.rows, ROW_BYTES, sieve.long_bytes()),
        };
        2 * (rows.text_bytes() + rows.len() * each + batch)
    }
}

/// A source has another version than at first.
struct Changed;

impl Combining {
    fn new(
        call: &mut Call<'_, '_, '_>,
        plan: Plan,
        target: Option<&[u8]>,
        keys: Args<'_>,
        noted: Heap,
    ) -> Combining {
        let db = call.client.db;
        let name = |call: &Call<'_, '_, '_>, name| Name::of(call, db, &call.key(name));
        let source = |key| Source { name: name(call, key), version: None, len: 0, bytes: 0, longest: 0 };
        let sources: Vec<Source> = keys.map(source).collect();
        let target = target.map(|target| name(call, target));
        Combining {
            plan,
            order: (0..sources.len() as u32).collect(),
            sources,
            target,
            way: Way::Sieve(Sieve::default()),
            sorted: Sorted::default(),
            at: 0,
            partly: None,
            read: false,
            headed: false,
            making: None,
            again: None,
            noted,
            held: Heap::none(call),
        }
    }

    /// Looks at all keys, and decides how they are combined. `notes`: their state is noted first.
    ///
    /// # Errors
    /// A key has another type of value.
    fn prepare(&mut self, call: &mut Call<'_, '_, '_>, notes: bool) -> Done {
        for source in &mut self.sources {
            let key = source.name.key(call);
            if notes {
                call.cx.guard.note(&key);
            }
            let item = call.cx.guard.peek(&key).hit();
            source.version = item.map(|item| item.cas());
            let there = self.plan.source(item)?;
            (source.len, source.bytes, source.longest) =
                there.map_or((0, 0, 0), |there| (there.len(), there.bytes(), there.longest_apart()));
        }
        let sources = &self.sources;
        let len = |nth: &u32| sources[*nth as usize].len;
        self.order.sort_unstable();
        if self.plan.operation == Operation::Inter || self.plan.kind == Type::SortedSet && !self.is_diff() {
            // The smallest first. Redis has this order, too, so that sums of scores are the same.
            self.order.sort_by_key(len);
        }
        let sieves = match self.plan.operation {
            Operation::Inter => true,
            Operation::Union => false,
            Operation::Diff => self.sieving_ns() <= self.gathering_ns(),
        };
        self.way = if sieves {
            let most = match self.plan.then {
                Then::Count(most) if most > 0 => most,
                Then::Count(_) | Then::Members | Then::Sorted(_) | Then::Store => u64::MAX,
            };
            Way::Sieve(Sieve::new(most, matches!(self.plan.then, Then::Count(_))))
        } else {
            Way::Gather { members: Members::new(), next: 0, at: 0 }
        };
        (self.sorted, self.at, self.read) = (Sorted::default(), 0, false);
        Ok(())
    }

    fn is_diff(&self) -> bool {
        self.plan.operation == Operation::Diff
    }

    /// The source that is read first.
    fn first(&self) -> &Source {
        &self.sources[self.order[0] as usize]
    }

    /// Work to look for all members of the first source in all others.
    fn sieving_ns(&self) -> u64 {
        let looks = (self.first().len as u64).saturating_mul(LOOK_NS);
        self.first().reading_ns().saturating_add(looks.saturating_mul(self.sources.len() as u64 - 1))
    }

    /// Work to gather all sources.
    fn gathering_ns(&self) -> u64 {
        self.sources.iter().map(Source::reading_ns).sum()
    }

    /// Work of the command, at most.
    fn takes_ns(&self) -> u64 {
        let keys = self.sources.len() as u64 * KEY_NS;
        let (read, members) = match self.way {
            Way::Gather { .. } if self.is_diff() => (self.gathering_ns(), self.first().len),
            Way::Gather { .. } => (self.gathering_ns(), self.sources.iter().map(|source| source.len).sum()),
            Way::Sieve(_) => (self.sieving_ns(), self.first().len),
        };
        let stored = if self.plan.then == Then::Store { STORED_NS } else { 0 };
        keys.saturating_add(read).saturating_add(stored.saturating_mul(members as u64))
    }

    /// Bytes that the result may take, at most.
    fn room(&self) -> usize {
        let first = std::slice::from_ref(self.first());
        // A long member is copied before it is known whether it is to be added.
        let longest = self.sources.iter().map(|source| source.longest).max().unwrap_or(0);
        let (adds, each) = match &self.way {
            Way::Sieve(sieve) if sieve.counts() => return 2 * longest,
            Way::Sieve(_) => (first, ROW_BYTES),
            Way::Gather { .. } if self.is_diff() => (first, MEMBER_BYTES),
            Way::Gather { .. } => (&self.sources[..], MEMBER_BYTES),
        };
        let members: usize = adds.iter().map(|source| source.len).sum();
        // A number is longer as text than it is stored.
        let bytes: usize = adds.iter().map(|source| source.bytes + source.len * DIGITS_MAX).sum();
        2 * (bytes + members * each + Sorted::bytes_of(members, bytes) + longest)
    }

    /// The collection of the source at this place in the order; [`Changed`] if it is another one by now.
    fn source<'r>(
        &self,
        call: &'r mut Call<'_, '_, '_>,
        place: usize,
    ) -> Result<Result<Option<Collection<'r>>, Changed>, Fail> {
        let source = &self.sources[self.order[place] as usize];
        let swapped = source.name.is_swapped(call);
        let key = source.name.key(call);
        let item = call.cx.guard.peek(&key).hit();
        if self.again.is_some() && (swapped || item.map(|item| item.cas()) != source.version) {
            return Ok(Err(Changed));
        }
        Ok(Ok(self.plan.source(item)?))
    }

    /// Reads some more, and adds that work to `ns`; true when all is read.
    fn read_some(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        ns: &mut u64,
    ) -> Result<Result<bool, Changed>, Fail> {
        if self.read {
            return Ok(Ok(true));
        }
        let so_far = match self.way {
            Way::Gather { next, at, .. } => self.gather_some(call, ns, next, at),
            Way::Sieve(_) => self.sieve_some(call, ns),
        };
        self.read = matches!(so_far, Ok(Ok(true)));
        so_far
    }

    /// Charges the result of a command in steps. That of one step was charged before.
    fn charge(&mut self, call: &mut Call<'_, '_, '_>, bytes: usize) -> Done {
        if self.again.is_some() { self.held.set(call, bytes) } else { Ok(()) }
    }

    /// Adds or marks some members of the source at `place`, those from `at` on.
    fn gather_some(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        ns: &mut u64,
        place: usize,
        at: usize,
    ) -> Result<Result<bool, Changed>, Fail> {
        *ns += KEY_NS;
        let there = match self.source(call, place)? {
            Ok(there) => there,
            Err(changed) => return Ok(Err(changed)),
        };
        let (mut bytes, mut places, mut len, mut longest) = (0, at..at, 0, 0);
        if let Some(there) = &there {
            len = there.len();
            for entry in there.entries(at.min(len)..len.min(at + MEMBERS_AT_ONCE)) {
                (bytes, places.end) = (bytes + entry.name.len(), places.end + 1);
                longest = longest.max(entry.apart().map_or(0, |apart| apart.len()));
                if bytes >= BYTES_AT_ONCE {
                    break;
                }
            }
        }
        let adds = place == 0 || !self.is_diff();
        if adds && !places.is_empty() {
            if self.way.rows().len() > MEMBERS_MAX {
                return Err(Fail::HELD);
            }
            let more = 2 * (bytes + places.len() * MEMBER_BYTES) + longest;
            self.charge(call, self.way.bytes() + more)?;
        } else if longest > 0 {
            self.charge(call, self.way.bytes() + longest)?;
        }
        // Charging may have evicted items.
        let there = match self.source(call, place)? {
            Ok(there) => there,
            Err(changed) => return Ok(Err(changed)),
        };
        let nth = self.order[place] as usize;
        let Way::Gather { members, next, at } = &mut self.way else { return Ok(Ok(true)) };
        match &there {
            Some(there) if places.end <= there.len() => {
                add(&self.plan, members, nth, place == 0, there, places.clone());
            }
            Some(_) | None => {}
        }
        *ns += places.len() as u64 * MEMBER_NS + copying_ns((bytes + longest) as u64);
        *at = places.end;
        if *at >= len {
            (*next, *at) = (*next + 1, 0);
        }
        let done = *next == self.sources.len();
        self.charge(call, self.way.bytes())?;
        Ok(Ok(done))
    }

    /// Sorts some more of the result; true when all is sorted.
    fn sort_some(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Result<bool, Fail> {
        let rows = self.way.rows().len();
        if self.plan.kind != Type::SortedSet || matches!(self.plan.then, Then::Count(_)) || self.at == rows {
            return Ok(true);
        }
        if self.at == 0 {
            self.charge(call, self.way.bytes() + self.sorted_bytes())?;
        }
        let (some, bytes) = self.way.rows().run_from(self.at);
        *ns += some.len() as u64 * MEMBER_NS + comparing_ns(bytes);
        self.at = some.end;
        let way = &self.way;
        let compare = |one, other| way.rows().compare(one, other);
        self.sorted.add_run(some.filter(|i| way.has(*i)).map(|i| i as u32), &compare);
        Ok(self.at == rows)
    }

    /// Bytes of the order of the result, at most.
    fn sorted_bytes(&self) -> usize {
        let rows = self.way.rows();
        2 * Sorted::bytes_of(rows.len(), rows.text_bytes())
    }

    /// Whether the slice is used up, and long members may be compared next: that gets a turn of its own.
    fn is_over(&self, ns: u64, ns_max: u64) -> bool {
        ns >= ns_max && merges(&self.plan, &self.way)
    }

    /// Makes some more of the collection to store; true when all of it is made.
    fn make_some(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        (ns, ns_max): (&mut u64, u64),
    ) -> Result<Result<bool, Changed>, Fail> {
        let Some(target) = self.target.as_ref().filter(|_| self.plan.then == Then::Store) else {
            return Ok(Ok(true));
        };
        if target.is_swapped(call) {
            return Ok(Err(Changed));
        }
        let target = target.key(call);
        let making = self.making.get_or_insert_with(|| Making::new(call, self.plan.kind));
        let compared = std::cell::Cell::new(0);
        let made = made(&self.plan, &self.way, &mut self.sorted, &mut self.at);
        let mut made = made.inspect(|made| compared.set(compared.get() + made.name.len()));
        let done = making.go_on(call, &target, &mut made, (&mut *ns, ns_max))?;
        if merges(&self.plan, &self.way) {
            *ns += comparing_ns(compared.get());
        }
        Ok(Ok(done))
    }

    /// Reads all sources, and sorts the result.
    fn read_all(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let mut ns = 0;
        // The keys cannot change meanwhile, or a later check finds it out.
        while let Ok(false) = self.read_some(call, &mut ns)? {}
        while !self.sort_some(call, &mut ns)? {}
        call.spend(ns);
        Ok(())
    }

    /// Does everything in one step but for the reply.
    fn at_once(mut self, call: &mut Call<'_, '_, '_>, target: Option<&[u8]>, keys: Args<'_>) -> Done {
        self.held = Heap::take(call, self.room())?;
        if target.is_some() {
            return call.as_one_in(keys.chain(target), |call| {
                self.prepare(call, false)?;
                self.read_all(call)?;
                let mut sorted = std::mem::take(&mut self.sorted);
                self.end(call, &mut sorted, None).map(drop)
            });
        }
        let one = std::cell::RefCell::new(&mut self);
        call.look_as_one(keys, |call, _| {
            let combining = &mut **one.borrow_mut();
            combining.prepare(call, true)?;
            combining.read_all(call)
        })?;
        let (mark, mut sorted) = (call.out.mark(), std::mem::take(&mut self.sorted));
        self.headed = self.end(call, &mut sorted, None)?;
        self.sorted = sorted;
        if self.headed && self.reply_or_keep(call, mark, false)? != Step::Done {
            call.go_on_with(self);
        }
        Ok(())
    }

    /// Replies what there is room for, behind the head. What is left is kept until there is more room, and charged however short
    /// it is: many clients may keep some. `is_over`: the slice is used up, and all is kept.
    ///
    /// # Errors
    /// Connections hold as much as they may; nothing is replied behind `mark`.
    fn reply_or_keep(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        mark: Mark,
        is_over: bool,
    ) -> Result<Step, Fail> {
        let step = if is_over { Step::More } else { self.reply(call) };
        if step != Step::Done {
            // From here on only the members are needed.
            (self.sources, self.order) = (Vec::new(), Vec::new());
            (self.plan.weights, self.plan.weighed) = (Vec::new(), None);
            self.noted = Heap::none(call);
            if let Way::Sieve(sieve) = &mut self.way {
                sieve.forget_batch();
            }
            let bytes = size_of::<Combining>() + self.way.bytes() + self.sorted_bytes();
            self.held.set(call, bytes).inspect_err(|_| call.out.rewind(mark))?;
        }
        Ok(step)
    }

    /// Whether the keys are still as they were read.
    fn is_so(&self, call: &mut Call<'_, '_, '_>) -> bool {
        self.target.iter().all(|target| !target.is_swapped(call))
            && self.sources.iter().all(|Source { name, version, .. }| {
                let key = name.key(call);
                !name.is_swapped(call) && call.cx.guard.peek(&key).hit().map(|item| item.cas()) == *version
            })
    }

    /// Stores the result or begins its reply; true if the head of the reply is written, and members follow.
    fn end(
        &self,
        call: &mut Call<'_, '_, '_>,
        sorted: &mut Sorted,
        making: Option<Making>,
    ) -> Result<bool, Fail> {
        let left = self.way.left();
        match self.plan.then {
            Then::Count(most) => {
                call.integer(if most == 0 { left } else { left.min(most) } as i64)?;
                Ok(false)
            }
            Then::Store => {
                let target = self.target.as_ref().map(|target| target.key(call));
                let target = target.expect("what is stored has a place");
                match making {
                    Some(making) => making.store(call, &target)?,
                    None => {
                        let mut at = 0;
                        let made = made(&self.plan, &self.way, sorted, &mut at);
                        call.store_elements(&target, self.plan.kind, left as usize, made)?;
                    }
                }
                Ok(false)
            }
            Then::Members | Then::Sorted(_) => {
                if call.cx.guard.in_transaction() {
                    // The whole reply is sent at once.
                    let rows = self.way.rows();
                    let scored = self.plan.then == Then::Sorted(Shown::Scores);
                    let each = super::ELEMENT_FRAME + if scored { super::SCORE_ROOM } else { 0 };
                    call.make_room(2 * HEAD_BYTES_MAX + rows.text_bytes() + rows.len() * each)?;
                }
                match self.plan.then {
                    Then::Sorted(shown) => shown.put_head(call.out, call.client.resp3, left as usize),
                    _ => put_set(call.out, call.client.resp3, left as usize),
                }
                Ok(true)
            }
        }
    }

    /// Replies some more members.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let (whole, resp3) = (call.cx.guard.in_transaction(), call.client.resp3);
        let with_score = self.plan.then == Then::Sorted(Shown::Scores);
        let step = loop {
            if !whole && call.out.is_full() {
                break Step::Full;
            }
            if !whole && ns >= ns_max {
                break Step::More;
            }
            let Combining { plan, way, sorted, at, partly, .. } = self;
            let next = partly.take().or_else(|| Some((next_left(plan, way, sorted, at)?, 0)));
            let Some((number, from)) = next else { break Step::Done };
            let (text, score) = way.rows().at(number);
            // A long member is written in pieces, as there is room.
            let to = if whole { text.len() } else { text.len().min(from + ELEMENT_BYTES) };
            ns += ELEMENT_NS + copying_ns((to - from) as u64);
            if from == 0 && merges(plan, way) {
                ns += comparing_ns(text.len());
            }
            if from == 0 && with_score && resp3 {
                put_array(call.out, 2);
            }
            if to - from == text.len() {
                put_bulk(call.out, text);
            } else {
                if from == 0 {
                    put_head(call.out, b'$', text.len() as u64);
                }
                call.out.put(&text[from..to]);
                if to < text.len() {
                    *partly = Some((number, to));
                    continue;
                }
                call.out.put(b"\r\n");
            }
            if with_score {
                put_double(call.out, resp3, score);
                ns += super::SCORE_NS;
            }
        };
        call.spend(ns);
        step
    }
}

/// Work to sort so many bytes of members, or to find the next in their order.
fn comparing_ns(bytes: usize) -> u64 {
    COMPARES * copying_ns(bytes as u64)
}

/// Whether the members are sorted, and fill several runs by their bytes alone.
fn merges(plan: &Plan, way: &Way) -> bool {
    plan.kind == Type::SortedSet && way.rows().text_bytes() > RUN_BYTES
}

/// The next member of the result: by its score, or in the order of reading.
fn next_left(plan: &Plan, way: &Way, sorted: &mut Sorted, at: &mut usize) -> Option<usize> {
    if plan.kind == Type::SortedSet {
        return sorted.next(&|one, other| way.rows().compare(one, other));
    }
    let left = (*at..way.rows().len()).find(|i| way.has(*i))?;
    *at = left + 1;
    Some(left)
}

/// Adds members of the nth key to those of the keys before it, or marks them there.
fn add(
    plan: &Plan,
    members: &mut Members,
    nth: usize,
    first: bool,
    collection: &Collection<'_>,
    places: Range<usize>,
) {
    let kind = collection.kind();
    let (mut room, mut long) = ([0; DIGITS_MAX], Vec::new());
    for entry in collection.entries(places) {
        let text = run_of(collection, &entry.name, &mut room, &mut long);
        if plan.operation == Operation::Diff && !first {
            if let Some(i) = members.find(text) {
                members.mark(i);
            }
            continue;
        }
        let score = plan.score(nth, kind, &entry);
        if let Some(i) = members.insert(text, score) {
            let old = members.rows.score_mut(i);
            *old = plan.aggregate.of(*old, score);
        }
    }
}

/// The rest of the result, as it is stored.
fn made<'a>(
    plan: &'a Plan,
    way: &'a Way,
    sorted: &'a mut Sorted,
    at: &'a mut usize,
) -> impl Iterator<Item = Made<'a>> {
    std::iter::from_fn(|| next_left(plan, way, sorted, at)).map(|number| {
        let (name, score) = way.rows().at(number);
        let score = if plan.kind == Type::SortedSet { score } else { 0.0 };
        Made { name, value: &[], score, expires_at: 0 }
    })
}

impl Job for Combining {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.headed {
            return Ok(self.reply(call));
        }
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let read = loop {
            let read = match self.read_some(call, &mut ns)? {
                Ok(true) if self.is_over(ns, ns_max) => Ok(false),
                Ok(true) if self.sort_some(call, &mut ns)? => self.make_some(call, (&mut ns, ns_max))?,
                Ok(true) => Ok(false),
                read => read.map(|_| false),
            };
            match read {
                Ok(true) => break Some(true),
                Ok(false) => {}
                Err(Changed) => break Some(false),
            }
            if ns >= ns_max {
                break None;
            }
        };
        call.spend(ns);
        let Some(read) = read else { return Ok(Step::More) };
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let (mut ended, mut sorted) = (None, std::mem::take(&mut self.sorted));
        let (mut done, mark, mut making) = (Ok(()), call.out.mark(), self.making.take());
        if read {
            let names = self.sources.iter().map(|source| &source.name).chain(&self.target);
            let keys: Vec<Key<'_>> = names.map(|name| name.key(call)).collect();
            done = call.tell_around(again.row(), again.args(), |call| {
                call.as_one(keys, |call| {
                    if self.is_so(call) {
                        ended = Some(self.end(call, &mut sorted, making.take())?);
                    }
                    Ok(())
                })
            });
        }
        drop(lane);
        done?;
        self.sorted = sorted;
        // What was made in vain is freed before the command begins again.
        drop(making);
        match ended {
            None => again.run(call).map(|()| Step::Done),
            Some(false) => Ok(Step::Done),
            Some(true) => {
                self.headed = true;
                let is_over = self.is_over(ns, ns_max);
                self.reply_or_keep(call, mark, is_over)
            }
        }
    }

    fn held_bytes(&self) -> u64 {
        self.noted.bytes() + self.held.bytes()
    }

    fn only_reads(&self) -> bool {
        self.plan.then != Then::Store
    }

    fn asks_itself(&self) -> bool {
        self.headed
    }

    fn only_replies(&self) -> bool {
        self.headed
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }

    fn wants(&self) -> Option<(usize, usize)> {
        self.making.as_ref().map(|_| LEAVES)
    }

    fn lane(&self) -> Option<&Lane> {
        self.again.as_ref().map(|(_, lane)| lane)
    }
}
