//! LPOS, LINSERT: a list is looked through for elements that are one, and their places are replied, or one is added there.
//!
//! ```text
//! a short list, or in a transaction ─▶ one step
//! a long one                        ─▶ some elements a step ─▶ all of one version? ─▶ done, or the places are replied
//!                                              ▲                └── no: begun anew
//! ```
//!
//! One that is to be found is compared in one step with each that is as long. Where the list may have such of more than 4 MiB the
//! command is refused, and so is LREM.

use std::ops::Range;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, Element, End, Entry, Hint, Key, Type};

use super::{COMPARE_NS, Call, is_large, is_too_long, of_type, peek_as, symmetric};
use crate::core::output::Output;
use crate::core::work::{Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_integer, put_null};
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, Step};

/// Elements that are looked at before time and memory are.
const LOOKS_AT_ONCE: usize = 2 << 10;
/// Bytes of long ones that are compared, at most, or one: some 0.2 ms.
const COMPARED_AT_ONCE: usize = 2 << 20;
/// Shorter ones lie in leaves, many in one, which come from memory as a whole.
const LONG_BYTES: usize = 16 << 10;
/// What each such round takes, of however few elements.
pub(super) const ROUND_NS: u64 = 1_000;

/// How many of the next elements, `most` at most, may be compared with one of so many bytes before time is looked at, and how
/// many bytes that are: only long ones of its length are compared to their ends.
pub(super) fn looks_at_once(
    list: &Collection<'_>,
    element: usize,
    (places, back): (Range<usize>, bool),
    most: usize,
) -> (usize, u64) {
    let most = places.len().min(most);
    if element < LONG_BYTES || list.longest_apart() < element {
        return (most, 0);
    }
    let (mut looks, mut bytes) = (0, 0);
    let mut fits = |entry: &Entry<'_>| {
        if entry.name.len() == element {
            if bytes > 0 && bytes + element > COMPARED_AT_ONCE {
                return false;
            }
            bytes += element;
        }
        looks += 1;
        looks < most
    };
    if back {
        list.entries_back(places.end - most..places.end).all(|entry| fits(&entry));
    } else {
        list.entries(places.start..places.start + most).all(|entry| fits(&entry));
    }
    (looks, bytes as u64)
}

/// Elements of a list may be compared with one of so many bytes: it is not too long for that, or longer than any of them.
///
/// # Errors
/// They may not.
pub(super) fn may_compare(list: &Collection<'_>, element: usize) -> Done {
    if is_too_long(element) && list.longest_apart() >= element { Err(Fail::TOO_LONG_TO_COPY) } else { Ok(()) }
}

/// How a list is looked through.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    /// From the back.
    back: bool,
    /// How many of those that are found are left out.
    skip: u64,
    /// How many places are replied; 0: all.
    count: Option<u64>,
    /// How many elements are looked at; 0: all.
    looks_max: u64,
}

/// How far a search has come.
#[derive(Debug, Default)]
struct Found {
    /// Elements that were looked at.
    looked: usize,
    skipped: u64,
    /// The places to be replied, the one that was found first in front.
    places: Vec<usize>,
}

/// A number of which 0 is all.
fn or_all(n: u64) -> usize {
    if n == 0 { usize::MAX } else { usize::try_from(n).unwrap_or(usize::MAX) }
}

impl Search {
    /// Reads `[RANK rank] [COUNT count] [MAXLEN len]`.
    fn parse(mut args: Args<'_>) -> Result<Search, Fail> {
        let mut search = Search::default();
        let natural = |word, less: &'static str| {
            integer(word).ok().and_then(|n| u64::try_from(n).ok()).ok_or(Fail::of(less))
        };
        while let Some(word) = args.next() {
            let value = next(&mut args)?;
            if is(word, "RANK") {
                let rank = symmetric(value)?;
                if rank == 0 {
                    return Err(Fail::of(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                    ));
                }
                (search.back, search.skip) = (rank < 0, rank.unsigned_abs() - 1);
            } else if is(word, "COUNT") {
                search.count = Some(natural(value, "ERR COUNT can't be negative")?);
            } else if is(word, "MAXLEN") {
                search.looks_max = natural(value, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(Fail::SYNTAX);
            }
        }
        Ok(search)
    }

    /// Places that are replied, at most.
    fn most(&self) -> usize {
        self.count.map_or(1, or_all)
    }

    /// The places that are still to be looked at, and whether from the back of them on.
    fn left(&self, list: &Collection<'_>, found: &Found) -> (Range<usize>, bool) {
        let end = or_all(self.looks_max).min(list.len());
        let left = found.looked.min(end)..end;
        if self.back { (list.len() - left.end..list.len() - left.start, true) } else { (left, false) }
    }

    /// Looks at so many elements more, at most, for those that are `element`; true when there is nothing more to find.
    fn go_on(&self, list: &Collection<'_>, element: &Element<'_>, found: &mut Found, looks: usize) -> bool {
        let (len, most) = (list.len(), self.most());
        let end = or_all(self.looks_max).min(len);
        let some = found.looked..end.min(found.looked.saturating_add(looks));
        let mut note = |place: usize, entry: &Entry<'_>| {
            found.looked += 1;
            if !list.is(&entry.name, element) {
                return false;
            }
            if found.skipped < self.skip {
                found.skipped += 1;
                return false;
            }
            found.places.push(place);
            found.places.len() == most
        };
        let all_found = if self.back {
            let range = len - some.end..len - some.start;
            range.clone().rev().zip(list.entries_back(range)).any(|(place, entry)| note(place, &entry))
        } else {
            some.clone().zip(list.entries(some)).any(|(place, entry)| note(place, &entry))
        };
        all_found || found.looked >= end
    }

    /// All places of an element that are replied.
    fn places(&self, list: &Collection<'_>, element: &Element<'_>) -> Vec<usize> {
        let mut found = Found::default();
        self.go_on(list, element, &mut found, usize::MAX);
        found.places
    }

    /// Replies where elements are.
    fn put(&self, out: &mut Output, resp3: bool, places: &[usize]) {
        match (self.count, places.first()) {
            (Some(_), _) => {
                put_array(out, places.len());
                places.iter().for_each(|place| put_integer(out, *place as i64));
            }
            (None, Some(place)) => put_integer(out, *place as i64),
            (None, None) => put_null(out, resp3),
        }
    }
}

/// Work to look at so many elements of a list.
pub(super) fn looking_ns(list: &Collection<'_>, looks: usize) -> u64 {
    /// Bytes of a leaf that come from memory in a nanosecond.
    const BYTES_A_NS: u64 = 8;
    let bytes = (list.bytes() as u64).saturating_mul(looks as u64) / list.len() as u64;
    looks as u64 * COMPARE_NS + bytes / BYTES_A_NS
}

impl Call<'_, '_, '_> {
    /// Work to look through the list of a key, up to so many elements of it, in one step.
    ///
    /// # Errors
    /// The key has another type of value.
    pub(super) fn looking_through_ns(&mut self, key: &Key<'_>, most: usize) -> Result<u64, Fail> {
        let list = peek_as(&mut self.cx.guard, key, Type::List)?;
        Ok(list.map_or(0, |list| looking_ns(&list, list.len().min(most))))
    }
}

/// The list of a key is looked through in steps, for an element of so many bytes.
///
/// # Errors
/// The key has another type of value; or the element is too long to be compared.
fn takes_steps(call: &mut Call<'_, '_, '_>, key: &Key<'_>, element: usize) -> Result<bool, Fail> {
    let list = peek_as(&mut call.cx.guard, key, Type::List)?;
    list.map_or(Ok(()), |list| may_compare(&list, element))?;
    Ok(list.is_some_and(|list| is_large(&list)) && !call.cx.guard.in_transaction())
}

/// LPOS
pub(crate) fn position(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let mut options = args;
    let element = Element::of(next(&mut options)?);
    let search = Search::parse(options)?;
    if takes_steps(call, key, element.len())? {
        super::read_as(call.cx, call.tally, key, hint, Type::List)?;
        match call.leave(STEPS_BYTES_MIN, "lpos", Some(key.bytes()), args)? {
            Leave::Later => return Ok(()),
            Leave::Yes(again, lane) => {
                let seeking = Seeking::new(call, key, (again, lane), search, Then::Tell)?;
                return call.work(seeking);
            }
            Leave::No => {}
        }
    }
    // Beside the reply.
    let len = peek_as(&mut call.cx.guard, key, Type::List)?.map_or(0, |list| list.len());
    let most = usize::try_from(search.looks_max).ok().filter(|most| *most > 0);
    let looked_ns = call.looking_through_ns(key, most.unwrap_or(usize::MAX))?;
    let _held = Heap::take(call, search.most().min(len) * 2 * size_of::<usize>())?;
    let measure = |list: &Collection<'_>| {
        let most = search.most().min(list.len());
        HEAD_BYTES_MAX * (1 + if most > LOOKS_AT_ONCE { search.places(list, &element).len() } else { most })
    };
    call.reply_measured(key, hint, Type::List, measure, |out, resp3, list| {
        let places = list.map_or(Vec::new(), |list| search.places(&list, &element));
        search.put(out, resp3, &places);
        Ok(())
    })?;
    call.spend(looked_ns);
    Ok(())
}

/// LINSERT
pub(crate) fn insert(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, args: Args<'_>) -> Done {
    let mut words = args;
    let end = match next(&mut words)? {
        word if is(word, "BEFORE") => End::Front,
        word if is(word, "AFTER") => End::Back,
        _ => return Err(Fail::SYNTAX),
    };
    let (pivot, element) = (next(&mut words)?, next(&mut words)?);
    if takes_steps(call, key, pivot.len())? {
        match call.leave(STEPS_BYTES_MIN, "linsert", Some(key.bytes()), args)? {
            Leave::Later => return Ok(()),
            Leave::Yes(again, lane) => {
                let seeking = Seeking::new(call, key, (again, lane), Search::default(), Then::Insert(end))?;
                call.go_on_with(seeking);
                return Ok(());
            }
            Leave::No => {}
        }
    }
    let looked_ns = call.looking_through_ns(key, usize::MAX)?;
    call.spend(looked_ns);
    call.spend_on_bytes(element.len());
    match call.cx.guard.list_insert(key, end, pivot, element)? {
        None => call.integer(0),
        Some(0) => call.integer(-1),
        Some(elements) => call.length(elements),
    }
}

/// What is done when it is found.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Their places are replied.
    Tell,
    /// An element is put in front of it, or behind it.
    Insert(End),
}

/// A list that is looked through in steps.
#[derive(Debug)]
struct Seeking {
    search: Search,
    then: Then,
    name: Name,
    /// The version of what is looked through.
    version: u64,
    found: Found,
    held: Heap,
    /// None when all is looked through.
    again: Option<(Again, Lane)>,
    /// Places that are replied.
    told: usize,
}

impl Seeking {
    fn new(
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        again: (Again, Lane),
        search: Search,
        then: Then,
    ) -> Result<Seeking, Fail> {
        let name = Name::kept(call, key.bytes())?;
        let version = call.cx.guard.peek(key).hit().map_or(0, |item| item.cas());
        let held = Heap::none(call);
        Ok(Seeking {
            search,
            then,
            name,
            version,
            found: Found::default(),
            held,
            again: Some(again),
            told: 0,
        })
    }

    /// Looks at what a step is for; none if the list is another one by now, true when there is nothing more to find.
    fn look(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<bool>, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let looked = loop {
            // A vector that grows is there twice.
            let places = 2 * (self.found.places.len() + LOOKS_AT_ONCE);
            self.held.set(call, 2 * places * size_of::<usize>())?;
            let swapped = self.name.is_swapped(call);
            let key = self.name.key(call);
            let item = call.cx.guard.peek(&key).hit().filter(|item| !swapped && item.cas() == self.version);
            let Some(list) = of_type(item, Type::List)? else { break None };
            let Some((again, _)) = &self.again else { break Some(true) };
            // The key is the first word.
            let nth = match self.then {
                Then::Tell => 1,
                Then::Insert(_) => 2,
            };
            let element = Element::of(again.args().at(nth).unwrap_or_default());
            let left = self.search.left(&list, &self.found);
            let (looks, bytes) = looks_at_once(&list, element.len(), left, LOOKS_AT_ONCE);
            let done = self.search.go_on(&list, &element, &mut self.found, looks);
            ns += ROUND_NS + looking_ns(&list, looks) + copying_ns(bytes);
            if done || ns >= ns_max {
                break Some(done);
            }
        };
        call.spend(ns);
        Ok(looked)
    }

    /// Puts the element where it belongs, if the list is as it was; how many there are then.
    fn insert(
        &self,
        call: &mut Call<'_, '_, '_>,
        again: &Again,
        place: usize,
    ) -> Result<Option<usize>, Fail> {
        let mut inserted = None;
        let key = self.name.key(call);
        let element = again.args().at(3).unwrap_or_default();
        call.tell_around_key(again.row(), key.bytes(), |call| {
            call.as_one([key], |call| {
                let version = call.cx.guard.peek(&key).hit().map(|item| item.cas());
                if version == Some(self.version) && !self.name.is_swapped(call) {
                    inserted = call.cx.guard.list_insert_at(&key, place, element)?;
                }
                Ok(())
            })
        })?;
        Ok(inserted)
    }

    /// All is looked through: what comes of it, or it is begun anew.
    fn end(&mut self, call: &mut Call<'_, '_, '_>, is_so: bool) -> Result<Step, Fail> {
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        if !is_so {
            drop(lane);
            again.run(call)?;
            return Ok(Step::Done);
        }
        match (self.then, self.found.places.first()) {
            (Then::Tell, _) => {
                if self.search.count.is_none() {
                    self.search.put(call.out, call.client.resp3, &self.found.places);
                    return Ok(Step::Done);
                }
                put_array(call.out, self.found.places.len());
                Ok(self.tell(call))
            }
            (Then::Insert(_), None) => {
                call.integer(-1)?;
                Ok(Step::Done)
            }
            (Then::Insert(end), Some(place)) => {
                match self.insert(call, &again, place + usize::from(end == End::Back))? {
                    Some(elements) => call.length(elements)?,
                    None => {
                        drop(lane);
                        again.run(call)?;
                    }
                }
                Ok(Step::Done)
            }
        }
    }

    /// Replies as many places as there is room for.
    fn tell(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let step = loop {
            let Some(place) = self.found.places.get(self.told) else { break Step::Done };
            if call.out.is_full() {
                break Step::Full;
            }
            if ns >= ns_max {
                break Step::More;
            }
            put_integer(call.out, *place as i64);
            self.told += 1;
            ns += COMPARE_NS;
        };
        call.spend(ns);
        step
    }
}

impl Job for Seeking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.again.is_none() {
            return Ok(self.tell(call));
        }
        match self.look(call)? {
            Some(false) => Ok(Step::More),
            Some(true) => self.end(call, true),
            None => self.end(call, false),
        }
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    fn only_reads(&self) -> bool {
        matches!(self.then, Then::Tell)
    }

    fn only_replies(&self) -> bool {
        self.again.is_none()
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{Config, Guard, Store};

    /// Short elements are looked at by the thousand, whatever is looked for; long ones of its length as many as have a bound of
    /// bytes, or one.
    #[test]
    fn looks_are_bounded_by_the_bytes_that_may_be_compared() {
        let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(1_700_000_000_000);
        let key = guard.key(b"l");
        let push = |guard: &mut Guard<'_>, bytes: usize, times: usize| {
            let text = vec![b'x'; bytes];
            guard.list_push(&key, End::Back, (0..times).map(|_| &text[..]), false).unwrap();
        };
        push(&mut guard, 10, 3_000);
        let looks = |guard: &mut Guard<'_>, element, back| {
            let list = guard.collection(&key, Type::List).unwrap().unwrap();
            looks_at_once(&list, element, (0..list.len(), back), LOOKS_AT_ONCE)
        };
        let half = COMPARED_AT_ONCE / 2;
        for element in [10, 16_384, half, 4 << 20] {
            assert_eq!(looks(&mut guard, element, false), (LOOKS_AT_ONCE, 0));
        }
        push(&mut guard, half, 3);
        push(&mut guard, COMPARED_AT_ONCE + 1, 2);
        push(&mut guard, half + 1, 1);
        push(&mut guard, 10, 3_000);
        for (element, back, expected) in [
            (10, true, (LOOKS_AT_ONCE, 0)),
            (half - 1, true, (LOOKS_AT_ONCE, 0)),
            (half, false, (LOOKS_AT_ONCE, 0)),
            (4 << 20, false, (LOOKS_AT_ONCE, 0)),
        ] {
            assert_eq!(looks(&mut guard, element, back), expected, "{element}");
        }
        let list = guard.collection(&key, Type::List).unwrap().unwrap();
        let looks = |element, from, to, back| looks_at_once(&list, element, (from..to, back), LOOKS_AT_ONCE);
        assert_eq!(
            looks(half, 2_990, 3_006, false),
            (12, 2 * half as u64),
            "two of them are as many as may be"
        );
        assert_eq!(looks(half, 2_990, 3_010, true), (7 + 2, 2 * half as u64));
        assert_eq!(looks(half + 1, 2_990, 3_010, false), (20, half as u64 + 1));
        assert_eq!(
            looks(COMPARED_AT_ONCE + 1, 2_990, 3_010, false),
            (14, COMPARED_AT_ONCE as u64 + 1),
            "one at least"
        );
        assert_eq!(looks(COMPARED_AT_ONCE + 1, 3_000, 3_000, false), (0, 0));
    }
}
