//! GEOSEARCH and its kin: members that lie in a circle or in a box.
//!
//! ```text
//! scan: ranks of up to nine cells ─▶ those that lie in the shape ─▶ sort: runs, merged ─▶ the reply
//!        ▲                                                               └─▶ by score ─▶ the new sorted set
//!        └── all over again, if the key has changed
//! ```
//!
//! A long search is done in steps. It begins anew if the key has changed before all cells are looked through, or before the
//! result is stored, up to three times. Then it goes on with its keys held (`steps/held.rs`). If a held key expires or is evicted
//! three times more, all of it is done in one step.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Collection, Key, Made, Type};

use super::grid::{Extent, Place, Shape};
use super::{double, place, put_distance, put_place, unit};
use crate::core::output::Mark;
use crate::core::work::{Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{Call, ELEMENT_BYTES, find, integer, is, next};
use crate::redis::collections::making::Making;
use crate::redis::collections::members::{COMPARES, RUN, RUN_BYTES, Sorted};
use crate::redis::collections::{ELEMENT_NS, SCORE_NS, SORTED_NS, STORED_NS, of_type};
use crate::redis::copied::Copied;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk, put_integer};
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, LEAVES, Step};

/// Work to compute how far away a member is.
pub(crate) const PLACE_NS: u64 = 300;
/// A search of less work is done in one step.
const AT_ONCE_NS: u64 = 400_000;
/// Members that are looked at, at a time.
const MEMBERS_AT_ONCE: usize = 256;
/// Bytes at which such a batch ends.
const BYTES_AT_ONCE: usize = 1 << 20;
/// Bytes of a found member beside its name: where that ends, its score, its distance, and its places in two orders.
const FOUND_BYTES: usize = 3 * 8 + 2 * 4;
/// Work to sort a member into a run, beside merging.
const RUN_NS: u64 = 300;
/// Members that are found, at most.
const FOUND_MAX: usize = u32::MAX as usize;
/// How often the key may change before the result is stored; then it is stored without a check.
const TRIES_MAX: usize = 3;

/// Which command it is, and so which words it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Search,
    SearchStore,
    Radius,
    RadiusRead,
    Member,
    MemberRead,
}

impl Kind {
    fn searches(self) -> bool {
        matches!(self, Kind::Search | Kind::SearchStore)
    }

    fn has_store(self) -> bool {
        matches!(self, Kind::Radius | Kind::Member)
    }
}

/// The order in which members are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As they are found.
    None,
    Near,
    Far,
}

/// A command's arguments.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    key: &'a [u8],
    /// `None` for a search around a member of a key that is not there.
    shape: Option<Shape>,
    order: Order,
    /// How many members are shown at most; 0: all.
    count: u64,
    /// The members found first will do.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    store: Option<&'a [u8]>,
    stores_distance: bool,
}

/// Parses a radius, and the metres of its unit.
fn radius(args: &mut Args<'_>) -> Result<(Extent, f64), Fail> {
    let radius = double(next(args)?, Fail::of("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Fail::of("ERR radius cannot be negative"));
    }
    Ok((Extent::Radius(radius), unit(next(args)?)?))
}

/// Parses the sides of a box, and the metres of their unit.
fn sides(args: &mut Args<'_>) -> Result<(Extent, f64), Fail> {
    let width = double(next(args)?, Fail::of("ERR need numeric width"))?;
    let height = double(next(args)?, Fail::of("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Fail::of("ERR height or width cannot be negative"));
    }
    Ok((Extent::Box(width, height), unit(next(args)?)?))
}

/// The place of a member; `None` if there is no sorted set.
fn place_of(there: Option<&Collection<'_>>, member: &[u8]) -> Result<Option<Place>, Fail> {
    let Some(there) = there else { return Ok(None) };
    let score = there.score(member);
    score
        .map(|score| Some(Place::of_score(score)))
        .ok_or(Fail::of("ERR could not decode requested zset member"))
}

impl<'a> Asked<'a> {
    /// Parses the arguments. The member to search around is looked up in the sorted set `there`.
    fn parse(
        name: &str,
        kind: Kind,
        mut args: Args<'a>,
        key: &'a [u8],
        there: Option<&Collection<'_>>,
    ) -> Result<Asked<'a>, Fail> {
        let mut asked = Asked {
            key,
            shape: None,
            order: Order::None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_place: false,
            store: None,
            stores_distance: false,
        };
        let first = next(&mut args)?;
        if kind == Kind::SearchStore {
            asked.store = Some(first);
            next(&mut args)?;
        }
        // The centre, and how far the area reaches.
        let (mut centre, mut extent) = (None, None);
        match kind {
            Kind::Search | Kind::SearchStore => {}
            Kind::Radius | Kind::RadiusRead => {
                centre = Some(place(next(&mut args)?, next(&mut args)?)?);
                extent = Some(radius(&mut args)?);
            }
            Kind::Member | Kind::MemberRead => {
                centre = place_of(there, next(&mut args)?)?;
                if centre.is_some() {
                    extent = Some(radius(&mut args)?);
                } else {
                    args.nth(1);
                }
            }
        }
        let (mut from_member, mut from_place, mut by_radius, mut by_box) = (false, false, false, false);
        while let Some(word) = args.next() {
            let left = args.len();
            if is(word, "WITHDIST") {
                asked.with_distance = true;
            } else if is(word, "WITHHASH") {
                asked.with_hash = true;
            } else if is(word, "WITHCOORD") {
                asked.with_place = true;
            } else if is(word, "ANY") {
                asked.any = true;
            } else if is(word, "ASC") {
                asked.order = Order::Near;
            } else if is(word, "DESC") {
                asked.order = Order::Far;
            } else if is(word, "COUNT") && left >= 1 {
                let count = integer(next(&mut args)?)?;
                asked.count =
                    u64::try_from(count).ok().filter(|n| *n > 0).ok_or(Fail::of("ERR COUNT must be > 0"))?;
            } else if kind.has_store() && (is(word, "STORE") || is(word, "STOREDIST")) && left >= 1 {
                (asked.store, asked.stores_distance) = (Some(next(&mut args)?), is(word, "STOREDIST"));
            } else if kind.searches() && is(word, "FROMMEMBER") && left >= 1 && !from_place {
                centre = place_of(there, next(&mut args)?)?;
                from_member = true;
            } else if kind.searches() && is(word, "FROMLONLAT") && left >= 2 && !from_member {
                centre = Some(place(next(&mut args)?, next(&mut args)?)?);
                from_place = true;
            } else if kind.searches() && is(word, "BYRADIUS") && left >= 2 && !by_box {
                extent = Some(radius(&mut args)?);
                by_radius = true;
            } else if kind.searches() && is(word, "BYBOX") && left >= 3 && !by_radius {
                extent = Some(sides(&mut args)?);
                by_box = true;
            } else if kind == Kind::SearchStore && is(word, "STOREDIST") {
                asked.stores_distance = true;
            } else {
                return Err(Fail::SYNTAX);
            }
        }
        if asked.store.is_some() && (asked.with_distance || asked.with_hash || asked.with_place) {
            let what = if kind.searches() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Fail::with(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if kind.searches() && !(from_member || from_place) {
            return Err(Fail::with(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if kind.searches() && !(by_radius || by_box) {
            return Err(Fail::with(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if asked.any && asked.count == 0 {
            return Err(Fail::of("ERR the ANY argument requires COUNT argument"));
        }
        if asked.count > 0 && !asked.any && asked.order == Order::None {
            asked.order = Order::Near;
        }
        asked.shape = centre.zip(extent).map(|(centre, (extent, unit_m))| Shape { centre, extent, unit_m });
        Ok(asked)
    }
}

/// Serves GEOSEARCH, GEOSEARCHSTORE, GEORADIUS and GEORADIUSBYMEMBER.
pub(super) fn search(call: &mut Call<'_, '_, '_>, name: &'static str, kind: Kind, args: Args<'_>) -> Done {
    let key_name = args.at(usize::from(kind == Kind::SearchStore)).unwrap_or_default();
    let key = call.key(key_name);
    let hint = call.cx.guard.prefetch_bucket(&key);
    let item = find(call.cx, call.tally, &key, &hint);
    let version = item.map_or(0, |item| item.cas());
    let there = of_type(item, Type::SortedSet)?;
    let asked = Asked::parse(name, kind, args, key_name, there.as_ref())?;
    let cells = there.as_ref().map_or(Vec::new(), |set| ranks(set, asked.shape));
    let members: usize = cells.iter().map(Range::len).sum();
    let stored = if asked.store.is_some() { STORED_NS } else { 0 };
    // Each member may be one of the long ones.
    let long = |set: &Collection<'_>| set.longest_apart().saturating_mul(members).min(set.bytes());
    let copied = copying_ns(there.as_ref().map_or(0, long) as u64);
    let is_long = members as u64 * (PLACE_NS + SORTED_NS + stored) + copied >= AT_ONCE_NS;
    let mut searching = Searching::new(call, &asked)?;
    match call.leave(if is_long { STEPS_BYTES_MIN } else { 0 }, name, None, args)? {
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => {
            searching.begin(version, cells);
            searching.again = Some((again, lane));
            call.go_on_with(searching);
            Ok(())
        }
        Leave::No => searching.at_once(call, (name, kind, args), is_long),
    }
}

/// The ranks of the members in the cells of a shape, cell by cell.
fn ranks(set: &Collection<'_>, shape: Option<Shape>) -> Vec<Range<usize>> {
    let Some(shape) = shape else { return Vec::new() };
    let cells = shape.cells().map(|cell| {
        let (from, to) = cell.scores();
        set.below(from, false)..set.below(to, false)
    });
    cells.filter(|ranks| !ranks.is_empty()).collect()
}

/// What the next step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Scan,
    /// Sorts, from this member on.
    Sort(usize),
    /// Picks the members to store, and sorts them by score.
    Pick,
    Ready,
}

/// What a look at the key came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    More,
    /// The key has another value.
    Changed,
}

/// A search under way.
#[derive(Debug)]
struct Searching {
    name: Name,
    target: Option<Name>,
    shape: Option<Shape>,
    order: Order,
    count: u64,
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    stores_distance: bool,
    version: u64,
    /// The ranks to look at, and the cell that is next.
    cells: Vec<Range<usize>>,
    cell: usize,
    names: Copied,
    scores: Vec<f64>,
    metres: Vec<f64>,
    stage: Stage,
    sorted: Sorted,
    /// The next member, if they are shown in the order in which they were found.
    at: usize,
    /// Members that are still to be shown.
    left: usize,
    /// The members to store, and their order by the score that is stored.
    picked: Vec<u32>,
    stored: Sorted,
    making: Option<Making>,
    headed: bool,
    checks: bool,
    again: Option<(Again, Lane)>,
    held: Heap,
}

impl Searching {
    fn new(call: &mut Call<'_, '_, '_>, asked: &Asked<'_>) -> Result<Searching, Fail> {
        let target = asked.store.map(|store| Name::kept(call, store)).transpose()?;
        Ok(Searching {
            name: Name::kept(call, asked.key)?,
            target,
            shape: asked.shape,
            order: asked.order,
            count: asked.count,
            any: asked.any,
            with_distance: asked.with_distance,
            with_hash: asked.with_hash,
            with_place: asked.with_place,
            stores_distance: asked.stores_distance,
            version: 0,
            cells: Vec::new(),
            cell: 0,
            names: Copied::default(),
            scores: Vec::new(),
            metres: Vec::new(),
            stage: Stage::Scan,
            sorted: Sorted::default(),
            at: 0,
            left: 0,
            picked: Vec::new(),
            stored: Sorted::default(),
            making: None,
            headed: false,
            checks: true,
            again: None,
            held: Heap::none(call),
        })
    }

    fn begin(&mut self, version: u64, cells: Vec<Range<usize>>) {
        (self.version, self.cells, self.cell, self.stage) = (version, cells, 0, Stage::Scan);
        (self.names, self.scores, self.metres) = (Copied::default(), Vec::new(), Vec::new());
        (self.sorted, self.stored, self.picked) = (Sorted::default(), Sorted::default(), Vec::new());
        self.making = None;
        self.at = 0;
    }

    /// Bytes of what was found: twice what is there, since vectors grow by doubling.
    fn bytes(&self) -> usize {
        let found = self.names.len();
        let orders = Sorted::bytes(found) + Sorted::bytes_of(found, self.names.bytes());
        2 * (self.names.bytes() + found * FOUND_BYTES + orders)
    }

    /// Whether enough members are found, where the first found will do.
    fn is_enough(&self) -> bool {
        self.any && self.names.len() as u64 >= self.count
    }

    /// Looks at the members of some ranks, and keeps those that lie in the shape.
    fn look(&mut self, there: &Collection<'_>, ranks: Range<usize>) {
        let Some(shape) = self.shape else { return };
        for entry in there.entries(ranks) {
            if let Some(metres) = shape.distance(Place::of_score(entry.score)) {
                self.names.push_element_of(there, &entry.name);
                self.scores.push(entry.score);
                self.metres.push(metres);
                if self.is_enough() {
                    return;
                }
            }
        }
    }

    /// Searches in one step; the reply may be sent in several.
    fn at_once(
        mut self,
        call: &mut Call<'_, '_, '_>,
        words: (&'static str, Kind, Args<'_>),
        is_long: bool,
    ) -> Done {
        let (held, mark) = (call.cx.guard.in_transaction(), call.out.mark());
        let mut tries = if is_long { TRIES_MAX } else { 0 };
        loop {
            self.checks = tries < TRIES_MAX;
            let made = match self.target.as_ref().filter(|_| !self.checks && !held).map(Name::for_now) {
                Some(target) => {
                    let name = self.name.for_now();
                    let keys = [target.key(call), name.key(call)];
                    call.as_one(keys, |call| self.make(call, words))?
                }
                None => self.make(call, words)?,
            };
            if made {
                break;
            }
            tries += 1;
        }
        if !self.headed {
            return Ok(());
        }
        if self.reply(call).inspect_err(|_| call.out.rewind(mark))? == Step::Done {
            return Ok(());
        }
        self.keep(call).inspect_err(|_| call.out.rewind(mark))?;
        call.go_on_with(self);
        Ok(())
    }

    /// Finds all members, and stores them or begins the reply; false if the key has changed meanwhile.
    fn make(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        (name, kind, args): (&'static str, Kind, Args<'_>),
    ) -> Result<bool, Fail> {
        let mut room = 0;
        let mut ns = loop {
            let key = self.name.key(call);
            let item = call.cx.guard.peek(&key).hit();
            let version = item.map_or(0, |item| item.cas());
            let there = of_type(item, Type::SortedSet)?;
            // The member to search around may have moved.
            let key_name = args.at(usize::from(kind == Kind::SearchStore)).unwrap_or_default();
            self.shape = Asked::parse(name, kind, args, key_name, there.as_ref())?.shape;
            let cells = there.as_ref().map_or(Vec::new(), |set| ranks(set, self.shape));
            let names = |ranks: &Range<usize>| {
                let there = there.iter().flat_map(|set| set.entries(ranks.clone()));
                there
                    .map(|entry| entry.name.len() + FOUND_BYTES + 2 * size_of::<Range<usize>>())
                    .sum::<usize>()
            };
            let bytes = 2 * cells.iter().map(names).sum::<usize>();
            if bytes <= room {
                self.begin(version, cells);
                let mut ns = 0;
                if let Some(there) = &there {
                    for ranks in std::mem::take(&mut self.cells) {
                        if self.is_enough() {
                            break;
                        }
                        ns += ranks.len() as u64 * PLACE_NS;
                        self.look(there, ranks);
                    }
                }
                break ns + copying_ns(self.names.bytes() as u64);
            }
            // Charging may have evicted items, and others write meanwhile.
            (self.held, room) = (Heap::take(call, bytes)?, bytes);
        };
        self.found();
        while self.stage != Stage::Ready {
            self.go_on(call, &mut ns)?;
        }
        call.spend(ns);
        self.end(call)
    }

    /// Goes on behind the scan: all members are found.
    fn found(&mut self) {
        let found = self.names.len();
        self.left =
            usize::try_from(self.count).ok().filter(|count| *count > 0).map_or(found, |n| n.min(found));
        self.stage = match (self.order, &self.target) {
            (Order::Near | Order::Far, _) => Stage::Sort(0),
            (Order::None, Some(_)) => Stage::Pick,
            (Order::None, None) => Stage::Ready,
        };
    }

    /// The sorted set, if it is still the same.
    fn there<'r>(&self, call: &'r mut Call<'_, '_, '_>) -> Result<Option<Collection<'r>>, Fail> {
        if self.name.is_swapped(call) {
            return Ok(None);
        }
        let key = self.name.key(call);
        of_type(call.cx.guard.peek(&key).hit().filter(|item| item.cas() == self.version), Type::SortedSet)
    }

    /// Looks at some members.
    fn scan_some(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Result<Looked, Fail> {
        let Some(ranks) = self.cells.get(self.cell).cloned().filter(|_| !self.is_enough()) else {
            self.found();
            return Ok(Looked::More);
        };
        if self.names.len() > FOUND_MAX - MEMBERS_AT_ONCE {
            return Err(Fail::HELD);
        }
        let mut some = ranks.start..ranks.end.min(ranks.start + MEMBERS_AT_ONCE);
        let Some(there) = self.there(call)? else { return Ok(Looked::Changed) };
        let mut bytes = 0;
        // Fewer members, if they are long.
        let enough = there.entries(some.clone()).position(|entry| {
            bytes += entry.name.len() + FOUND_BYTES;
            bytes > BYTES_AT_ONCE
        });
        some.end = enough.map_or(some.end, |last| some.start + last + 1);
        self.held.set(call, self.bytes() + 2 * bytes)?;
        // Charging may have evicted items.
        let Some(there) = self.there(call)? else { return Ok(Looked::Changed) };
        self.look(&there, some.clone());
        *ns += some.len() as u64 * PLACE_NS + copying_ns(bytes as u64);
        if some.end == ranks.end {
            self.cell += 1;
        } else {
            self.cells[self.cell].start = some.end;
        }
        Ok(Looked::More)
    }

    /// Compares two members by the order in which they are shown.
    fn compare(&self, one: u32, other: u32) -> Ordering {
        let metres = |i: u32| self.metres[i as usize];
        let order = metres(one).partial_cmp(&metres(other)).unwrap_or(Ordering::Equal);
        let order = if self.order == Order::Far { order.reverse() } else { order };
        order.then(one.cmp(&other))
    }

    /// The score with which a member is stored.
    fn stored_score(&self, i: usize) -> f64 {
        let unit_m = self.shape.map_or(1.0, |shape| shape.unit_m);
        if self.stores_distance { self.metres[i] / unit_m } else { self.scores[i] }
    }

    /// Compares two members by their order in a sorted set.
    fn compare_stored(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (one as usize, other as usize);
        let scores = self.stored_score(one).partial_cmp(&self.stored_score(other));
        scores.unwrap_or(Ordering::Equal).then_with(|| self.names.at(one).cmp(self.names.at(other)))
    }

    /// Does a part of the stage, and adds that work to `ns`.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Result<Looked, Fail> {
        match self.stage {
            Stage::Scan => return self.scan_some(call, ns),
            Stage::Sort(at) => {
                let some = at..self.names.len().min(at + RUN / 2);
                *ns += some.len() as u64 * RUN_NS;
                let mut sorted = std::mem::take(&mut self.sorted);
                sorted.add_run(some.clone().map(|i| i as u32), &|one, other| self.compare(one, other));
                self.sorted = sorted;
                self.stage = match (some.end == self.names.len(), &self.target) {
                    (false, _) => Stage::Sort(some.end),
                    (true, Some(_)) => Stage::Pick,
                    (true, None) => Stage::Ready,
                };
            }
            Stage::Pick => {
                let (mut run, mut bytes) = (Vec::with_capacity(self.left.min(RUN / 2)), 0);
                // Members of one score are compared by their names.
                while run.len() < RUN / 2
                    && bytes < RUN_BYTES
                    && let Some(i) = self.next()
                {
                    bytes += self.names.at(i).len();
                    run.push(i as u32);
                }
                *ns += run.len() as u64 * (RUN_NS + SORTED_NS / 4) + COMPARES * copying_ns(bytes as u64);
                let mut stored = std::mem::take(&mut self.stored);
                stored.add_run(run.iter().copied(), &|one, other| self.compare_stored(one, other));
                self.stored = stored;
                self.picked.extend(run);
                if self.left == 0 {
                    self.stage = Stage::Ready;
                }
            }
            Stage::Ready => {}
        }
        Ok(Looked::More)
    }

    /// The next member to show.
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        if self.order == Order::None {
            self.at += 1;
            return Some(self.at - 1);
        }
        let mut sorted = std::mem::take(&mut self.sorted);
        let next = sorted.next(&|one, other| self.compare(one, other));
        self.sorted = sorted;
        next
    }

    /// Stores the result if the key has not changed, with both keys taken; or begins the reply. False if the key has changed.
    fn end(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let Some(target) = self.target.as_ref().map(Name::for_now) else {
            put_array(call.out, self.left);
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

    /// The members to store, in the order of `stored`.
    fn made<'a>(&'a self, stored: &'a mut Sorted) -> impl Iterator<Item = Made<'a>> {
        let next = std::iter::from_fn(|| stored.next(&|one, other| self.compare_stored(one, other)));
        next.map(|i| Made { name: self.names.at(i), value: &[], score: self.stored_score(i), expires_at: 0 })
    }

    /// Makes a part of the sorted set to store; true when all of it is made, or nothing is stored.
    fn make_some(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        (ns, ns_max): (&mut u64, u64),
    ) -> Result<bool, Fail> {
        let Some(target) = self.target.as_ref().map(Name::for_now) else { return Ok(true) };
        let target = target.key(call);
        let mut making = self.making.take().unwrap_or_else(|| Making::new(call, Type::SortedSet));
        let mut stored = std::mem::take(&mut self.stored);
        let compared = Cell::new(0);
        let note = |made: &Made<'_>| compared.set(compared.get() + made.name.len());
        let done = making.go_on(call, &target, &mut self.made(&mut stored).inspect(note), (&mut *ns, ns_max));
        if self.names.bytes() > RUN_BYTES {
            // Several runs are merged.
            *ns += COMPARES * copying_ns(compared.get() as u64);
        }
        (self.making, self.stored) = (Some(making), stored);
        done
    }

    /// Stores the result in place of the target's value, and replies how many members it has.
    fn store(&mut self, call: &mut Call<'_, '_, '_>, target: &Key<'_>) -> Done {
        if let Some(making) = self.making.take() {
            return making.store(call, target);
        }
        let mut stored = std::mem::take(&mut self.stored);
        call.store_elements(target, Type::SortedSet, self.picked.len(), self.made(&mut stored))
    }

    fn keep(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        self.held.set(call, size_of::<Searching>() + self.bytes())
    }

    /// Replies more members, as the client takes them; in a transaction all.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let (whole, resp3) = (call.cx.guard.in_transaction(), call.client.resp3);
        let options = [self.with_distance, self.with_hash, self.with_place];
        let options = options.into_iter().filter(|with| *with).count();
        let unit_m = self.shape.map_or(1.0, |shape| shape.unit_m);
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
            let Some(i) = self.next() else { break Step::Done };
            let name = self.names.at(i);
            if whole && name.len() > ELEMENT_BYTES {
                call.make_room(name.len())?;
            }
            if options > 0 {
                put_array(call.out, options + 1);
            }
            put_bulk(call.out, name);
            if self.with_distance {
                put_distance(call.out, self.metres[i] / unit_m);
            }
            if self.with_hash {
                put_integer(call.out, self.scores[i] as i64);
            }
            if self.with_place {
                put_place(call.out, resp3, Place::of_score(self.scores[i]));
                ns += 6 * SCORE_NS;
            }
            ns += ELEMENT_NS + options as u64 * SCORE_NS + copying_ns(name.len() as u64);
            ns += if self.order == Order::None { 0 } else { SORTED_NS };
        };
        call.spend(ns);
        Ok(step)
    }
}

impl Job for Searching {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.headed {
            return self.reply(call);
        }
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let changed = loop {
            if self.stage == Stage::Ready && self.make_some(call, (&mut ns, ns_max))? {
                break false;
            }
            if self.stage != Stage::Ready && self.go_on(call, &mut ns)? == Looked::Changed {
                break true;
            }
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
        };
        call.spend(ns);
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let (mark, mut made): (Mark, _) = (call.out.mark(), false);
        if !changed {
            call.tell_around(again.row(), again.args(), |call| {
                made = self.end(call)?;
                Ok(())
            })?;
        }
        drop(lane);
        if !made {
            // The copies are no longer charged when they are made again.
            self.begin(0, Vec::new());
            self.held = Heap::none(call);
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

    fn asks_itself(&self) -> bool {
        self.headed
    }

    fn only_reads(&self) -> bool {
        self.target.is_none()
    }

    /// A search that stores nothing looks at no key once all members are found.
    fn only_replies(&self) -> bool {
        self.target.is_none() && self.stage != Stage::Scan
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }

    fn wants(&self) -> Option<(usize, usize)> {
        (self.stage == Stage::Ready && self.target.is_some()).then_some(LEAVES)
    }

    fn lane(&self) -> Option<&Lane> {
        self.again.as_ref().map(|(_, lane)| lane)
    }
}
