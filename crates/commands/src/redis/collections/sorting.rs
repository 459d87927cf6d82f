//! SORT and SORT_RO: elements of a list, a set or a sorted set in the order of their own values, or of what other keys have for
//! them.
//!
//! ```text
//! copy ─▶ weigh: what BY names of each ─▶ sort: runs ─▶ skip: merged, up to LIMIT ─▶ the reply, each with what GET names
//!                                                                        └─▶ gather: what GET names ─▶ the new list
//! ```
//!
//! The elements are of one moment. Other keys that `BY` and `GET` name are looked at once, each in its turn. In a transaction,
//! which then has the store to itself, everything is of one moment.
//!
//! A long SORT is done in steps; so is one that turns out to be long, since other keys have long values. The command begins anew
//! if the key has changed before the elements are copied or the result is stored, up to three times. Then it goes on with its
//! keys held (`steps/held.rs`): until the elements are copied, with `BY` until all are weighed, with `GET` until the reply
//! begins, and with `STORE` until the result is stored. A held key may still expire or be evicted. If that happens three times
//! more, the elements are copied in one step, and the rest is done in steps without another look at the key; a result that
//! depends on no other key is made and stored in one step.

mod number;
mod pattern;
mod work;

use larder_protocol::resp::Args;
use larder_store::{Collection, Item, Type, Value};

use super::{Call, ELEMENT_NS, LOOK_NS, MEMBER_NS, SORTED_NS, STORED_NS};
use crate::core::events::{Change, Class};
use crate::core::work::{STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{find, integer, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::row::flag::{DENYOOM, MOVABLEKEYS, READONLY, WRITE};
use crate::redis::row::{Access, ChangeOf, Command, Elements, Keys, KeysFunction, ONE_KEY, Tells, Weighs};
use crate::redis::steps::again::Leave;
use pattern::{Patterns, Shape, reads};
use work::{AT_ONCE_NS, COMPARED_TIMES, LONG_AT_ONCE_BYTES, READ_TIMES, Sorting};

/// ACL categories of SORT: of what may be sorted and stored.
const CATEGORIES: &[&str] = &["set", "sortedset", "list", "dangerous"];

pub(crate) const SORT: Definition =
    Command::of_collections("sort", -2, WRITE | DENYOOM | MOVABLEKEYS, SORT_KEYS, |call, args| {
        sort(call, "sort", args, true)
    })
    .access(&[Access::Read, Access::Replace])
    .tells(Tells::By(ChangeOf(|_, _| Change::store(Class::List, "sortstore"))))
    .takes_all_if(|args| reads_others(args, true))
    .categories(CATEGORIES)
    .weighs(Weighs::Elements(Elements::Sort)).doc(
        "1.0.0",
        "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC|DESC] [ALPHA] [STORE destination]",
        "Elements in their order, or what other keys have of them; or stores that.",
    );

pub(crate) const SORT_RO: Definition =
    Command::of_collections("sort_ro", -2, READONLY | MOVABLEKEYS, ONE_KEY, |call, args| {
        sort(call, "sort_ro", args, false)
    })
    .takes_all_if(|args| reads_others(args, false))
    .categories(CATEGORIES)
    .weighs(Weighs::Elements(Elements::Sort))
    .doc(
        "7.0.0",
        "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC|DESC] [ALPHA]",
        "As SORT, which stores nothing.",
    );

/// The key, and the destination of the last STORE, found as [`Asked::parse`] finds it: Redis would take a destination that is
/// called like an option for one.
const SORT_KEYS: Keys = Keys::By(KeysFunction(|mut args, visit| {
    let Some(key) = args.next() else { return false };
    visit(key);
    let mut store = None;
    while let Some(word) = args.next() {
        if is(word, "LIMIT") {
            args.nth(1);
        } else if is(word, "GET") || is(word, "BY") {
            args.next();
        } else if is(word, "STORE") {
            store = args.next().or(store);
        }
    }
    if let Some(store) = store {
        visit(store);
    }
    true
}));

/// The arguments but for the patterns of GET.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    key: &'a [u8],
    by: Option<&'a [u8]>,
    /// Whether the elements keep their order: a BY named no key, whatever another says.
    is_unsorted: bool,
    offset: i64,
    /// Negative: all elements.
    count: i64,
    back: bool,
    alpha: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    /// Parses the arguments; `gets` is called with each pattern of GET.
    fn parse(mut args: Args<'a>, stores: bool, gets: &mut dyn FnMut(&'a [u8])) -> Result<Asked<'a>, Fail> {
        let key = next(&mut args)?;
        let (back, alpha) = (false, false);
        let (by, is_unsorted) = (None, false);
        let mut asked = Asked { key, by, is_unsorted, offset: 0, count: -1, back, alpha, store: None };
        while let Some(word) = args.next() {
            if is(word, "ASC") {
                asked.back = false;
            } else if is(word, "DESC") {
                asked.back = true;
            } else if is(word, "ALPHA") {
                asked.alpha = true;
            } else if is(word, "LIMIT") && args.len() >= 2 {
                (asked.offset, asked.count) = (integer(next(&mut args)?)?, integer(next(&mut args)?)?);
            } else if stores && is(word, "STORE") {
                asked.store = Some(next(&mut args)?);
            } else if is(word, "BY") {
                let by = next(&mut args)?;
                (asked.by, asked.is_unsorted) = (Some(by), asked.is_unsorted || !pattern::names(by));
            } else if is(word, "GET") {
                gets(next(&mut args)?);
            } else {
                return Err(Fail::SYNTAX);
            }
        }
        Ok(asked)
    }
}

/// Whether SORT reads keys that are none of its arguments.
pub(crate) fn reads_others(args: Args<'_>, stores: bool) -> bool {
    let mut gets = false;
    let asked = Asked::parse(args, stores, &mut |pattern| gets |= reads(pattern));
    asked.is_ok_and(|asked| gets || asked.by.is_some() && !asked.is_unsorted)
}

/// How many patterns GET has; 0 if the arguments are wrong.
pub(crate) fn patterns(args: Args<'_>, stores: bool) -> u64 {
    let mut gets = 0;
    let asked = Asked::parse(args, stores, &mut |_| gets += 1);
    asked.map_or(0, |_| gets)
}

/// Bytes of the longest value of another key that it may store in a transaction; 0 if GET names no other key.
pub(crate) fn longest_stored(args: Args<'_>) -> u64 {
    let mut gets = false;
    let asked = Asked::parse(args, true, &mut |pattern| gets |= reads(pattern));
    if asked.is_ok() && gets { LONG_AT_ONCE_BYTES as u64 } else { 0 }
}

/// Bytes of an element that [`sorting_ns`] covers.
pub(crate) const SHORT_ELEMENT_BYTES: u64 = 64;

/// Whether a list or a sorted set is left in its order. A set is always sorted if others may rely on the order.
pub(crate) fn leaves_order(args: Args<'_>, stores: bool) -> bool {
    Asked::parse(args, stores, &mut |_| {}).is_ok_and(|asked| asked.is_unsorted)
}

/// How often the bytes of elements are read, compared and replied or stored, beside the first copy, in units of a copy.
/// `several`: there are several elements; `sorts`: they are sorted.
pub(crate) fn element_times(args: Args<'_>, stores: bool, several: bool, sorts: bool) -> u64 {
    let Ok(asked) = Asked::parse(args, stores, &mut |_| {}) else { return 0 };
    let are_numbers = sorts && asked.by.is_none() && !asked.alpha;
    1 + if are_numbers { READ_TIMES } else { 0 } + if sorts && several { COMPARED_TIMES } else { 0 }
}

/// Work to sort so many elements.
pub(crate) fn sorting_ns(elements: u64) -> u64 {
    elements.saturating_mul(SORTED_NS)
}

/// The elements of an item, if they may be sorted.
fn sortable<'r>(item: Option<Item<'r>>) -> Result<Option<Collection<'r>>, Fail> {
    let Some(item) = item else { return Ok(None) };
    match item.value() {
        Value::Collection(there) if matches!(there.kind(), Type::List | Type::Set | Type::SortedSet) => {
            Ok(Some(there.elements()))
        }
        Value::Collection(_) | Value::Whole(_) | Value::Pieces(_) => Err(Fail::WRONG_TYPE),
    }
}

/// Checks that the user may read every key, if SORT has patterns that name others.
///
/// # Errors
/// The client's user may not.
fn permit_patterns(call: &mut Call<'_, '_, '_>, name: &str, args: Args<'_>, by: bool, gets: bool) -> Done {
    if !(by || gets) || call.may_read_every_key(name, args) {
        return Ok(());
    }
    let option = if by { "BY" } else { "GET" };
    Err(Fail::with(format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")))
}

fn sort(call: &mut Call<'_, '_, '_>, name: &'static str, args: Args<'_>, stores: bool) -> Done {
    let (mut gets, mut bytes) = (0_usize, 0);
    let asked = Asked::parse(args, stores, &mut |pattern| {
        (gets, bytes) = (gets + 1, bytes + pattern.len());
    })?;
    let names_others = asked.by.is_some_and(pattern::names);
    permit_patterns(call, name, args, names_others, gets > 0)?;
    let bytes = bytes + asked.by.map_or(0, <[u8]>::len) + (gets + 1) * size_of::<Shape>();
    // Twice, since vectors grow by doubling.
    let noted = Heap::take(call, 2 * bytes)?;
    let mut patterns = Patterns::default();
    Asked::parse(args, stores, &mut |pattern| patterns.get(pattern))?;
    if let Some(by) = asked.by.filter(|_| !asked.is_unsorted) {
        patterns.by(by);
    }
    let key = call.key(asked.key);
    let hint = call.cx.guard.prefetch_bucket(&key);
    let there = sortable(find(call.cx, call.tally, &key, &hint))?;
    let (kind, len) = there.as_ref().map_or((Type::List, 0), |there| (there.kind(), there.len()));
    let bytes = there.map_or(0, |there| there.bytes()) as u64;
    let mut sorting = Sorting::new(call, name, &asked, patterns, noted)?;
    sorting.begin(kind, len, sorting.is_relied_on(call));
    let ns = sorting.takes_ns(bytes);
    let is_long = ns >= AT_ONCE_NS;
    match call.leave(if is_long { STEPS_BYTES_MIN } else { 0 }, name, None, args)? {
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => sorting.work_with(call, again, lane),
        Leave::No => sorting.at_once(call, is_long, (name, args)),
    }
}

impl Sorting {
    /// Work of the command, at most, for elements of so many bytes.
    fn takes_ns(&self, bytes: u64) -> u64 {
        let copied = self.window().len() as u64;
        let looks = if self.weighs() { copied.saturating_mul(LOOK_NS) } else { 0 };
        let shown = self.shown() as u64;
        let got = (self.patterns.gets.len().max(1) as u64).saturating_mul(shown);
        let each_ns = if self.patterns.gets.is_empty() { ELEMENT_NS } else { LOOK_NS };
        let each_ns = each_ns + if self.stores() { STORED_NS } else { 0 };
        (copied.saturating_mul(MEMBER_NS) + copying_ns(bytes))
            .saturating_add(looks)
            .saturating_add(if self.sorts() { sorting_ns(copied) } else { 0 })
            .saturating_add(got.saturating_mul(each_ns))
    }
}
