//! SORT at work, some of it at a time.

mod named;

use std::cmp::Ordering;
use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Collection, Element, Key, Made, Type};

use super::number::number;
use super::pattern::{Found, Patterns, Shape};
use super::{Asked, sortable};
use crate::core::output::{Mark, Output};
use crate::core::work::{Lane, copying_ns};
use crate::redis::call::{Call, ELEMENT_BYTES, has_room};
use crate::redis::collections::making::Making;
use crate::redis::collections::members::{COMPARES, Sorted};
use crate::redis::collections::{
    ELEMENT_NS, ELEMENT_ROOM, LOOK_NS, MEMBER_NS, SORTED_NS, is_too_long, put_element_of,
};
use crate::redis::copied::Copied;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk, put_fail, put_head, put_null, put_value};
use crate::redis::row::Command;
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave, STEPS_BYTES_MIN};
use crate::redis::steps::job::{Job, LEAVES, Step};
pub(super) use named::LONG_AT_ONCE_BYTES;
use named::admit_replied;

/// What takes no longer is done in one step.
pub(super) const AT_ONCE_NS: u64 = 400_000;
/// What took longer in one step, since other keys have long values, goes on in steps.
const LEFT_NS: u64 = 2 * AT_ONCE_NS;
/// Elements that are copied at a time.
const ELEMENTS_AT_ONCE: usize = 512;
/// Bytes of these, without the last one, about.
const BYTES_AT_ONCE: usize = 64 << 10;
/// Bytes of a long text that are replied between two looks at how much a step has done.
const TEXT_BYTES_AT_ONCE: usize = 64 << 10;
/// Elements of which other keys are looked at, at a time.
const LOOKS_AT_ONCE: usize = 32;
/// Bytes that an element takes beside its text: where that ends, its weight, its place in the order.
const ROW_BYTES: usize = 8 + 8;
/// No more are sorted.
const ELEMENTS_MAX: usize = u32::MAX as usize;
/// How often a key may have changed until what is made of it is stored.
const TRIES_MAX: usize = 3;
/// Elements that are sorted beside each other.
const RUN: usize = 256;
/// Work to sort these, for each.
const RUN_NS: u64 = 400;
/// What is done at a time of what is passed over, weighed or gathered.
const SOME_NS: u64 = 50_000;
/// Work to read a number, in copies of its text.
pub(super) const READ_TIMES: u64 = 2;
/// Work to compare a text, while runs are sorted and while they are merged, in copies of it.
pub(super) const COMPARED_TIMES: u64 = 2 * COMPARES;

/// Replies some bytes more of a long text, in front of which so many were; how many are now.
fn put_some(out: &mut Output, text: &[u8], before: usize, most: usize) -> usize {
    if before == 0 {
        put_head(out, b'$', text.len() as u64);
    }
    let put = text.len().min(before.saturating_add(most));
    out.put(&text[before..put]);
    put
}

/// What a copy of an element of so many bytes takes.
///
/// # Errors
/// It is too long to be copied.
fn row_bytes(bytes: usize) -> Result<usize, Fail> {
    if is_too_long(bytes) { Err(Fail::TOO_LONG_TO_COPY) } else { Ok(bytes + ROW_BYTES) }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Copy,
    /// From this element on.
    Weigh(usize),
    Sort(usize),
    /// How many elements are still to be passed over.
    Skip(usize),
    Gather,
    Ready,
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    More,
    /// The key has another value.
    Changed,
}

/// What it came to in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtOnce {
    /// It is stored, or the reply begins.
    Made,
    /// The key has another value.
    Changed,
    /// It is not done: what other keys have takes long.
    Left,
}

/// Elements that are sorted.
#[derive(Debug)]
pub(super) struct Sorting {
    row: &'static Command,
    pub(super) patterns: Patterns,
    name: Name,
    target: Option<Name>,
    offset: i64,
    count: i64,
    back: bool,
    asked_alpha: bool,
    asked_unsorted: bool,
    /// What the key was, and what is made of that: see [`Sorting::begin`].
    version: u64,
    shape: Form,
    stage: Stage,
    /// Places that are left to copy.
    places: Range<usize>,
    texts: Copied,
    /// What they are sorted by: numbers, or texts behind a byte that says whether there is one.
    scores: Vec<f64>,
    weights: Copied,
    sorted: Sorted,
    /// Where there is no order, the next element.
    at: usize,
    /// The element that is shown, and its next pattern.
    current: Option<(usize, usize)>,
    /// Elements that are left to show.
    left: usize,
    gathered: Copied,
    /// Bytes that were read of numbers of other keys, but for short ones.
    number_bytes: usize,
    /// Bytes that were read of long values of other keys, in a transaction.
    long_bytes: usize,
    /// Nanoseconds to compare and to store the copied ones of these values, beyond those of short values.
    owed_ns: u64,
    /// What is stored, where that is made in steps.
    making: Option<Making>,
    /// The head of the reply is written.
    headed: bool,
    /// Bytes of the text of the next element that are replied.
    put: usize,
    /// There is no room for what GET names of it.
    is_refused: bool,
    /// What is made is looked at again before it is shown or stored.
    checks: bool,
    again: Option<(Again, Lane)>,
    key_name: Vec<u8>,
    _noted: Heap,
    held: Heap,
}

/// How the elements of a collection are shown.
#[derive(Clone, Copy, Debug)]
struct Form {
    sorts: bool,
    alpha: bool,
    weighs: bool,
    /// Which are shown, of all in their order.
    start: usize,
    end: usize,
    /// Which are copied, and whether from the last one on.
    first: usize,
    last: usize,
    reversed: bool,
}

impl Sorting {
    pub fn new(
        call: &mut Call<'_, '_, '_>,
        name: &'static str,
        asked: &Asked<'_>,
        patterns: Patterns,
        noted: Heap,
    ) -> Result<Sorting, Fail> {
        let (row, _) = call.shared.rows.find(name.as_bytes()).expect("a command that runs has a row");
        let target = asked.store.map(|store| Name::kept(call, store)).transpose()?;
        let shape = Form {
            sorts: false,
            alpha: false,
            weighs: false,
            start: 0,
            end: 0,
            first: 0,
            last: 0,
            reversed: false,
        };
        Ok(Sorting {
            row,
            patterns,
            name: Name::kept(call, asked.key)?,
            target,
            offset: asked.offset,
            count: asked.count,
            back: asked.back,
            asked_alpha: asked.alpha,
            asked_unsorted: asked.is_unsorted,
            version: 0,
            shape,
            stage: Stage::Copy,
            places: 0..0,
            texts: Copied::default(),
            scores: Vec::new(),
            weights: Copied::default(),
            sorted: Sorted::default(),
            at: 0,
            current: None,
            left: 0,
            gathered: Copied::default(),
            number_bytes: 0,
            long_bytes: 0,
            owed_ns: 0,
            making: None,
            headed: false,
            put: 0,
            is_refused: false,
            checks: true,
            again: None,
            key_name: Vec::new(),
            _noted: noted,
            held: Heap::none(call),
        })
    }

    /// Others may rely on the order, be it that of a set, which means nothing: it is stored, or a script's.
    pub fn is_relied_on(&self, call: &Call<'_, '_, '_>) -> bool {
        self.target.is_some() || call.cx.guard.in_transaction()
    }

    /// Makes out what is done with so many elements of such a collection. `ordered`: a set has an order in any case.
    pub fn begin(&mut self, kind: Type, len: usize, ordered: bool) {
        let sorts = !self.asked_unsorted || ordered && kind == Type::Set;
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let end = start.saturating_add(count).min(len);
        let reversed = !sorts && self.back && kind != Type::Set;
        let (first, last) = match (sorts, reversed) {
            (true, _) => (0, len),
            (false, false) => (start, end),
            (false, true) => (len - end, len - start),
        };
        self.shape = Form {
            sorts,
            alpha: self.asked_alpha || self.asked_unsorted,
            weighs: sorts && self.patterns.by.is_some(),
            start,
            end,
            first,
            last,
            reversed,
        };
        (self.stage, self.places, self.left) = (Stage::Copy, first..last, end - start);
        (self.texts, self.weights, self.gathered) = (Copied::default(), Copied::default(), Copied::default());
        (self.scores, self.sorted, self.at, self.current) = (Vec::new(), Sorted::default(), 0, None);
        (self.number_bytes, self.long_bytes, self.owed_ns, self.making) = (0, 0, 0, None);
    }

    /// Places of the elements that are copied.
    pub fn window(&self) -> Range<usize> {
        self.shape.first..self.shape.last
    }

    pub fn sorts(&self) -> bool {
        self.shape.sorts
    }

    /// They are stored.
    pub fn stores(&self) -> bool {
        self.target.is_some()
    }

    /// Other keys say what they are sorted by.
    pub fn weighs(&self) -> bool {
        self.shape.weighs
    }

    /// How many elements are shown.
    pub fn shown(&self) -> usize {
        self.shape.end - self.shape.start
    }

    /// Other keys are read.
    fn reads_others(&self) -> bool {
        let names = |shape: &Shape| matches!(shape, Shape::String { .. } | Shape::Field { .. });
        self.weighs() || self.patterns.gets.iter().any(names)
    }

    /// Bytes that it takes, which are twice what is there: vectors grow so.
    fn bytes(&self) -> usize {
        let texts = self.texts.bytes() + self.weights.bytes() + self.gathered.bytes();
        let ends = (self.weights.len() + self.gathered.len()) * size_of::<usize>();
        2 * (texts + ends + self.texts.len() * ROW_BYTES) + self.sorted_bytes()
    }

    /// Bytes of the order, if there is one: runs are shorter where elements are long.
    fn sorted_bytes(&self) -> usize {
        let runs = self.texts.len() / RUN + (self.texts.bytes() + self.weights.bytes()) / BYTES_AT_ONCE;
        if self.sorts() { 2 * (Sorted::bytes(self.texts.len()) + Sorted::bytes(1) * runs) } else { 0 }
    }

    /// Works at it in later turns.
    ///
    /// # Errors
    /// The key has another type of value by now.
    pub fn work_with(mut self, call: &mut Call<'_, '_, '_>, again: Again, lane: Lane) -> Done {
        let key = self.name.key(call);
        let item = call.cx.guard.peek(&key).hit();
        let version = item.map_or(0, |item| item.cas());
        let there = sortable(item)?.map(|there| (there.kind(), there.len()));
        let (kind, len) = there.unwrap_or((Type::List, 0));
        self.begin(kind, len, self.target.is_some());
        (self.version, self.again) = (version, Some((again, lane)));
        call.go_on_with(self);
        Ok(())
    }

    /// Does it in one step, but for what is to be sent in several; of what is long only what has to be. `name` and `args`: the
    /// command's, if it comes to be long.
    pub fn at_once(
        mut self,
        call: &mut Call<'_, '_, '_>,
        is_long: bool,
        (name, args): (&'static str, Args<'_>),
    ) -> Done {
        let (held, mark) = (call.cx.guard.in_transaction(), call.out.mark());
        if is_long && !held && (self.target.is_none() || self.reads_others()) {
            self.copy_all(call)?;
            self.checks = false;
            call.go_on_with(self);
            return Ok(());
        }
        let mut tries = if is_long { TRIES_MAX } else { 0 };
        loop {
            self.checks = tries < TRIES_MAX;
            let target = self.target.as_ref().filter(|_| !self.checks && !held && !self.reads_others());
            let target = target.map(Name::for_now);
            let made = match target {
                Some(target) => {
                    let source = self.name.for_now();
                    let keys = [target.key(call), source.key(call)];
                    call.as_one(keys, |call| self.make(call))?
                }
                None => self.make(call)?,
            };
            match made {
                AtOnce::Made => break,
                AtOnce::Changed => tries += 1,
                AtOnce::Left => return self.go_on_later(call, name, args),
            }
        }
        if self.headed { self.reply_or_keep(call, mark) } else { Ok(()) }
    }

    /// Goes on in steps with what was begun in one step: other keys have long values.
    fn go_on_later(mut self, call: &mut Call<'_, '_, '_>, name: &'static str, args: Args<'_>) -> Done {
        match call.leave(STEPS_BYTES_MIN, name, None, args)? {
            Leave::Later => return Ok(()),
            Leave::Yes(again, lane) => self.again = Some((again, lane)),
            // It may not begin anew: what it has copied is of one moment.
            Leave::No => self.checks = false,
        }
        call.go_on_with(self);
        Ok(())
    }

    /// Copies and sorts all, and stores it or begins the reply.
    fn make(&mut self, call: &mut Call<'_, '_, '_>) -> Result<AtOnce, Fail> {
        self.copy_all(call)?;
        let may_leave = self.reads_others() && !call.cx.guard.in_transaction();
        let mut ns = 0;
        let is_left = loop {
            if may_leave && ns >= LEFT_NS {
                break true;
            }
            if self.stage == Stage::Ready {
                break false;
            }
            self.go_on(call, &mut ns).inspect_err(|_| call.spend(ns))?;
        };
        call.spend(ns);
        if is_left {
            return Ok(AtOnce::Left);
        }
        Ok(if self.end(call)? { AtOnce::Made } else { AtOnce::Changed })
    }

    /// Copies all elements, which are of one moment.
    fn copy_all(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let mut room = 0;
        loop {
            let ordered = self.is_relied_on(call);
            let key = self.name.key(call);
            let item = call.cx.guard.peek(&key).hit();
            let (version, there) = (item.map_or(0, |item| item.cas()), sortable(item)?);
            let (kind, len) = there.as_ref().map_or((Type::List, 0), |there| (there.kind(), there.len()));
            self.begin(kind, len, ordered);
            let bytes = match &there {
                Some(there) => self.copied_bytes(there)?,
                None => 0,
            };
            if bytes <= room {
                self.version = version;
                if let Some(there) = &there {
                    self.copy(there, self.window())?;
                }
                self.stage = Stage::Weigh(0);
                call.spend(self.texts.len() as u64 * MEMBER_NS + copying_ns(self.texts.bytes() as u64));
                return Ok(());
            }
            // Items may give way to that, and others write meanwhile.
            (self.held, room) = (Heap::take(call, bytes)?, bytes);
        }
    }

    /// Bytes that a copy takes of what is copied of a collection.
    ///
    /// # Errors
    /// An element is too long to be copied.
    fn copied_bytes(&self, there: &Collection<'_>) -> Result<usize, Fail> {
        let window = self.shape.first.min(there.len())..self.shape.last.min(there.len());
        let mut texts = 0;
        for entry in there.entries(window.clone()) {
            texts += row_bytes(entry.name.len())?;
        }
        Ok(2 * (texts + if self.sorts() { Sorted::bytes(window.len()) } else { 0 }))
    }

    /// Copies the elements at these places.
    fn copy(&mut self, there: &Collection<'_>, places: Range<usize>) -> Done {
        if self.texts.len() + places.len() > ELEMENTS_MAX {
            return Err(Fail::HELD);
        }
        if self.shape.reversed {
            there.entries_back(places).for_each(|entry| self.texts.push_element_of(there, &entry.name));
            return Ok(());
        }
        there.entries(places).for_each(|entry| self.texts.push_element_of(there, &entry.name));
        Ok(())
    }

    /// The collection, if it is still the one that it was.
    fn there<'r>(&self, call: &'r mut Call<'_, '_, '_>) -> Result<Option<Collection<'r>>, Fail> {
        if self.name.is_swapped(call) {
            return Ok(None);
        }
        let key = self.name.key(call);
        sortable(call.cx.guard.peek(&key).hit().filter(|item| item.cas() == self.version))
    }

    /// Copies some elements.
    fn copy_some(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Result<Looked, Fail> {
        let Range { start, end } = self.places.clone();
        if start == end {
            self.stage = Stage::Weigh(0);
            return Ok(Looked::More);
        }
        let Some(there) = self.there(call)? else { return Ok(Looked::Changed) };
        let (mut bytes, mut count, mut longest) = (0, 0, 0_usize);
        let mut note = |len: usize| {
            (bytes, count, longest) = (bytes + len, count + 1, longest.max(len));
            bytes < BYTES_AT_ONCE
        };
        let some = ELEMENTS_AT_ONCE.min(end - start);
        if self.shape.reversed {
            let _ = there.entries_back(end - some..end).all(|entry| note(entry.name.len()));
        } else {
            let _ = there.entries(start..start + some).all(|entry| note(entry.name.len()));
        }
        row_bytes(longest)?;
        self.held.set(call, self.bytes() + 2 * (bytes + count * ROW_BYTES))?;
        // Items may have given way to that.
        let Some(there) = self.there(call)? else { return Ok(Looked::Changed) };
        let places = if self.shape.reversed { end - count..end } else { start..start + count };
        self.copy(&there, places)?;
        self.places = if self.shape.reversed { start..end - count } else { start + count..end };
        *ns += count as u64 * MEMBER_NS + copying_ns(bytes as u64);
        Ok(Looked::More)
    }

    /// Does some of what is next, and adds what that takes to `ns`.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Result<Looked, Fail> {
        match self.stage {
            Stage::Copy => return self.copy_some(call, ns),
            Stage::Weigh(at) => self.weigh_some(call, at, ns)?,
            Stage::Sort(at) => self.sort_some(at, ns),
            Stage::Skip(left) => {
                // What is not sorted is not copied before that.
                let (mut passed, until_ns) = (0, *ns + SOME_NS);
                while self.sorts() && passed < left && *ns < until_ns {
                    *ns += self.next().map_or(0, |i| self.sorted_ns(i));
                    passed += 1;
                }
                let left = if self.sorts() { left - passed } else { 0 };
                self.stage = match left {
                    0 if self.target.is_some() && !self.patterns.gets.is_empty() => Stage::Gather,
                    0 => Stage::Ready,
                    left => Stage::Skip(left),
                };
            }
            Stage::Gather => self.gather_some(call, ns)?,
            Stage::Ready => {}
        }
        Ok(Looked::More)
    }

    /// Makes out by what some elements are sorted.
    fn weigh_some(&mut self, call: &mut Call<'_, '_, '_>, at: usize, ns: &mut u64) -> Done {
        let (sorts, alpha, weighs) = (self.shape.sorts, self.shape.alpha, self.shape.weighs);
        if !sorts || alpha && !weighs || at == self.texts.len() {
            self.stage = if sorts { Stage::Sort(0) } else { Stage::Skip(0) };
            return Ok(());
        }
        let until_ns = *ns + SOME_NS;
        let end = self.texts.len().min(at + if weighs { LOOKS_AT_ONCE } else { ELEMENTS_AT_ONCE });
        for i in at..end {
            match (weighs, alpha) {
                (false, _) => {
                    let text = self.texts.at(i);
                    *ns += MEMBER_NS + READ_TIMES * copying_ns(text.len() as u64);
                    self.scores.push(number(text)?);
                }
                (true, false) => self.read_number(call, i, ns)?,
                (true, true) => self.copy_named(call, i, None, ns)?,
            }
            self.stage = Stage::Weigh(i + 1);
            if *ns >= until_ns {
                break;
            }
        }
        if alpha { self.held.set(call, self.bytes()) } else { Ok(()) }
    }

    /// Which of two elements comes first.
    fn compare(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (one as usize, other as usize);
        let texts = || self.texts.at(one).cmp(self.texts.at(other));
        let order = match (self.shape.alpha, self.shape.weighs) {
            // They are numbers.
            (false, _) => {
                let (one, other) = (self.scores[one], self.scores[other]);
                one.partial_cmp(&other).unwrap_or(Ordering::Equal).then_with(texts)
            }
            (true, false) => texts(),
            (true, true) => self.weights.at(one).cmp(self.weights.at(other)),
        };
        let order = if self.back { order.reverse() } else { order };
        order.then(one.cmp(&other))
    }

    /// Bytes that are looked at where an element is compared.
    fn compared_bytes(&self, i: usize) -> usize {
        self.texts.at(i).len() + if self.weights.len() > 0 { self.weights.at(i).len() } else { 0 }
    }

    /// Work to bring an element into its order.
    fn sorted_ns(&self, i: usize) -> u64 {
        SORTED_NS + COMPARES * copying_ns(self.compared_bytes(i) as u64)
    }

    /// Sorts some elements beside themselves.
    fn sort_some(&mut self, at: usize, ns: &mut u64) {
        let (mut end, mut bytes) = (at, 0);
        while end < self.texts.len().min(at + RUN) && bytes < BYTES_AT_ONCE {
            bytes += self.compared_bytes(end);
            *ns += RUN_NS + COMPARES * copying_ns(self.compared_bytes(end) as u64);
            end += 1;
        }
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.add_run((at..end).map(|i| i as u32), &|one, other| self.compare(one, other));
        self.sorted = sorted;
        self.stage = if end == self.texts.len() { Stage::Skip(self.shape.start) } else { Stage::Sort(end) };
    }

    /// The next element in their order.
    fn next(&mut self) -> Option<usize> {
        if !self.sorts() {
            self.at += 1;
            return (self.at <= self.texts.len()).then_some(self.at - 1);
        }
        let mut sorted = std::mem::take(&mut self.sorted);
        let next = sorted.next(&|one, other| self.compare(one, other));
        self.sorted = sorted;
        next
    }

    /// The element to show, and its next pattern; none when all are shown.
    fn current(&mut self, ns: &mut u64) -> Option<(usize, usize)> {
        if self.current.is_none() && self.left > 0 {
            self.left -= 1;
            self.current = self.next().map(|i| (i, 0));
            *ns += self.current.filter(|_| self.sorts()).map_or(0, |(i, _)| self.sorted_ns(i));
        }
        self.current
    }

    /// The next pattern is the one behind `get`.
    fn pass(&mut self, i: usize, get: usize) {
        self.current = (get + 1 < self.patterns.gets.len()).then_some((i, get + 1));
    }

    /// Copies what GET names of some elements.
    fn gather_some(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Done {
        let until_ns = *ns + SOME_NS;
        for _ in 0..LOOKS_AT_ONCE {
            let Some((i, get)) = self.current(ns) else {
                self.stage = Stage::Ready;
                break;
            };
            self.copy_named(call, i, Some(get), ns)?;
            self.pass(i, get);
            if *ns >= until_ns {
                break;
            }
        }
        self.held.set(call, self.bytes())
    }

    /// Stores what was made, if the key has not changed, which it may not while that is done; or begins the reply, which
    /// is of the moment when the last element was copied. False if nothing is stored.
    fn end(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let Some(target) = self.target.as_ref().map(Name::for_now) else {
            put_array(call.out, self.shown() * self.patterns.gets.len().max(1));
            self.headed = true;
            return Ok(true);
        };
        let name = self.name.for_now();
        let keys = [target.key(call), name.key(call)];
        call.as_one(keys, |call| {
            let key = name.key(call);
            let is_so = !name.is_swapped(call)
                && !target.is_swapped(call)
                && call.cx.guard.peek(&key).hit().map_or(0, |item| item.cas()) == self.version;
            if self.checks && !is_so {
                return Ok(false);
            }
            let target = target.key(call);
            self.store(call, &target)?;
            Ok(true)
        })
    }

    /// How many elements are stored.
    fn stored(&self) -> usize {
        if self.patterns.gets.is_empty() { self.shown() } else { self.gathered.len() }
    }

    /// The elements that are stored, from this one on, which is the next that `sorted` has.
    fn made<'a>(&'a self, sorted: &'a mut Sorted, from: usize) -> impl Iterator<Item = Made<'a>> {
        let got = !self.patterns.gets.is_empty();
        (from..self.stored()).map_while(move |i| {
            let name = match (got, self.sorts()) {
                (true, _) => self.gathered.at(i),
                (false, true) => self.texts.at(sorted.next(&|one, other| self.compare(one, other))?),
                (false, false) => self.texts.at(i),
            };
            Some(Made { name, value: &[], score: 0.0, expires_at: 0 })
        })
    }

    /// Makes some of what is stored, if something is; true when all of it is made.
    fn make_some(&mut self, call: &mut Call<'_, '_, '_>, ns: (&mut u64, u64)) -> Result<bool, Fail> {
        let Some(target) = self.target.as_ref().map(Name::for_now) else { return Ok(true) };
        let target = target.key(call);
        let mut making = self.making.take().unwrap_or_else(|| Making::new(call, Type::List));
        let mut sorted = std::mem::take(&mut self.sorted);
        let done = making.go_on(call, &target, &mut self.made(&mut sorted, making.len()), ns);
        (self.making, self.sorted) = (Some(making), sorted);
        done
    }

    /// Stores what was made in place of whatever is there, and replies how much it is.
    fn store(&mut self, call: &mut Call<'_, '_, '_>, target: &Key<'_>) -> Done {
        if let Some(making) = self.making.take() {
            return making.store(call, target);
        }
        let mut sorted = std::mem::take(&mut self.sorted);
        call.store_elements(target, Type::List, self.stored(), self.made(&mut sorted, 0))
    }

    /// Replies what there is room for, behind the head; what is left is kept until there is more, and charged however
    /// short it is.
    ///
    /// # Errors
    /// Connections hold as much as they may; nothing is replied behind `mark`.
    fn reply_or_keep(mut self, call: &mut Call<'_, '_, '_>, mark: Mark) -> Done {
        if self.reply(call).inspect_err(|_| call.out.rewind(mark))? == Step::Done {
            return Ok(());
        }
        self.keep(call).inspect_err(|_| call.out.rewind(mark))?;
        call.go_on_with(self);
        Ok(())
    }

    fn keep(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        self.held.set(call, size_of::<Sorting>() + self.patterns.bytes() + self.bytes())
    }

    /// Replies more, as the client takes it; in a transaction all.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let (whole, resp3, db) = (call.cx.guard.in_transaction(), call.client.resp3, call.client.db);
        let step = loop {
            if whole {
                if !call.may_reply_more() {
                    return Err(Fail::HELD);
                }
            } else if call.out.is_full() {
                break Step::Full;
            } else if ns >= ns_max {
                break Step::More;
            }
            let Some((i, get)) = self.current(&mut ns) else { break Step::Done };
            let (text, before) = (self.texts.at(i), call.out.len());
            match self.patterns.gets.get(get) {
                pattern @ (None | Some(Shape::Element)) if text.len() > ELEMENT_BYTES => {
                    if whole {
                        // Without a pattern it is replied once, which was weighed.
                        let bytes = if pattern.is_some() { text.len() as u64 } else { 0 };
                        admit_replied(call, bytes, ns).inspect_err(|_| call.spend(ns))?;
                        call.make_room(text.len() + ELEMENT_ROOM)?;
                    }
                    let most = if whole { usize::MAX } else { TEXT_BYTES_AT_ONCE };
                    let put = put_some(call.out, text, self.put, most);
                    ns += copying_ns((put - self.put) as u64);
                    self.put = put;
                    if put < text.len() {
                        continue;
                    }
                    call.out.put(b"\r\n");
                    self.put = 0;
                }
                None => put_bulk(call.out, text),
                Some(shape) => {
                    ns += LOOK_NS;
                    let (cx, out) = ((&mut *call.cx, &mut *call.tally, db), &mut *call.out);
                    // Bytes that are copied, and room that is wanting for them.
                    let (mut copied, mut wanted) = (0, 0);
                    let may_fail = std::mem::take(&mut self.is_refused);
                    let put = |found: Found<'_>| match found {
                        Found::Nothing => put_null(out, resp3),
                        Found::Text(text) => put_bulk(out, text),
                        Found::Apart(_, apart) if is_too_long(apart.len()) => {
                            put_fail(out, &Fail::TOO_LONG_TO_COPY);
                        }
                        Found::Apart(_, apart) if !has_room(out, apart.len() + ELEMENT_ROOM) && may_fail => {
                            put_fail(out, &Fail::HELD);
                        }
                        Found::Apart(_, apart) if !has_room(out, apart.len() + ELEMENT_ROOM) => {
                            wanted = apart.len() + ELEMENT_ROOM;
                        }
                        Found::Apart(there, apart) => {
                            copied = apart.len();
                            put_element_of(out, there, &Element::Apart(apart));
                        }
                        Found::String(item) => put_value(out, item),
                    };
                    self.patterns.look(cx, shape, text, &mut self.key_name, put);
                    if wanted > 0 {
                        // An error stands in the place of one for which there is none.
                        self.is_refused = call.make_room(wanted).is_err();
                        continue;
                    }
                    ns += copying_ns(copied as u64);
                    if whole {
                        let bytes = call.out.len() - before;
                        admit_replied(call, bytes, ns).inspect_err(|_| call.spend(ns))?;
                    }
                }
            }
            // What is sent from its place is not copied.
            ns += ELEMENT_NS + copying_ns((call.out.len() - before).min(ELEMENT_BYTES as u64));
            self.pass(i, get);
        };
        call.spend(ns);
        Ok(step)
    }
}

impl Job for Sorting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.headed {
            return self.reply(call);
        }
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let changed = loop {
            if self.stage == Stage::Ready && self.make_some(call, (&mut ns, ns_max))? {
                break false;
            }
            if self.stage != Stage::Ready
                && self.go_on(call, &mut ns).inspect_err(|_| call.spend(ns))? == Looked::Changed
            {
                break true;
            }
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
        };
        call.spend(ns);
        let (mark, again) = (call.out.mark(), self.again.take());
        let mut made = false;
        if !changed {
            let (row, target) = (self.row, self.target.as_ref().map(Name::for_now));
            let mut run = |call: &mut Call<'_, '_, '_>| {
                made = self.end(call)?;
                Ok(())
            };
            match target {
                Some(target) => {
                    let key = target.key(call);
                    call.tell_around_key(row, key.bytes(), run)?;
                }
                None => run(call)?,
            }
        }
        if !made {
            let Some((again, lane)) = again else { return Ok(Step::Done) };
            drop(lane);
            // What was copied is charged no more when it is copied again.
            (self.texts, self.weights, self.gathered) =
                (Copied::default(), Copied::default(), Copied::default());
            (self.scores, self.held, self.making) = (Vec::new(), Heap::none(call), None);
            return again.run(call).map(|()| Step::Done);
        }
        drop(again);
        if !self.headed {
            return Ok(Step::Done);
        }
        let step = self.reply(call)?;
        if step != Step::Done {
            self.keep(call).inspect_err(|_| call.out.rewind(mark))?;
        }
        Ok(step)
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// `GET` looks at keys while it replies.
    fn asks_itself(&self) -> bool {
        self.headed && self.patterns.gets.is_empty()
    }

    fn only_reads(&self) -> bool {
        self.target.is_none()
    }

    /// Nor does it look at a key once all is copied, unless others weigh it or GET names some.
    fn only_replies(&self) -> bool {
        let is_copied = match self.stage {
            Stage::Copy => false,
            Stage::Weigh(_) => !self.weighs(),
            Stage::Sort(_) | Stage::Skip(_) | Stage::Gather | Stage::Ready => true,
        };
        is_copied && self.target.is_none() && self.patterns.gets.is_empty()
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }

    fn wants(&self) -> Option<(usize, usize)> {
        (self.stage == Stage::Ready && self.stores()).then_some(LEAVES)
    }

    fn lane(&self) -> Option<&Lane> {
        self.again.as_ref().map(|(_, lane)| lane)
    }
}
