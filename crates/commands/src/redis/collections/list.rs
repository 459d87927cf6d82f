//! Commands on lists: their rows, and what each does.

use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Collection, End, Guard, Hint, Key, Removed, Type};

use super::copied::Copied;
use super::listing::{Form, Listed, Which};
use super::seeking::{insert, position};
use super::sifting::{remove, trim};
use super::taking::{TAKEN_AT_ONCE, take};
use super::words::Write;
use super::{Call, Shown, block, len, mpop, peek_as, places_bytes_max, put_element};
use crate::core::events::{Change, Class};
use crate::core::output::Output;
use crate::redis::call::{free_room, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_null, put_null_array};
use crate::redis::table::flag::{DENYOOM, FAST, MOVABLEKEYS, READONLY, WEIGHTLESS, WRITE};
use crate::redis::table::{Access, ChangeOf, Command, Elements, TWO_KEYS, Tells, Weighs};

pub(crate) const ROWS: &[Command] = &[
    Command::of_collection("lpush", -3, WRITE | DENYOOM | FAST, |call, key, _, args| {
        call.write_words("lpush", key, args, Write::push(End::Front, false, args), false)
    })
    .tells(told("lpush"))
    .access(&[Access::Extend])
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("1.0.0", "key element [element ...]", "Puts elements to the front; how many there are then."),
    Command::of_collection("rpush", -3, WRITE | DENYOOM | FAST, |call, key, _, args| {
        call.write_words("rpush", key, args, Write::push(End::Back, false, args), false)
    })
    .tells(told("rpush"))
    .access(&[Access::Extend])
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("1.0.0", "key element [element ...]", "Puts elements to the back; how many there are then."),
    Command::of_collection("lpushx", -3, WRITE | DENYOOM | FAST, |call, key, _, args| {
        call.write_words("lpushx", key, args, Write::push(End::Front, true, args), false)
    })
    .tells(told("lpush"))
    .access(&[Access::Extend])
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("2.2.0", "key element [element ...]", "As LPUSH, if there is a list."),
    Command::of_collection("rpushx", -3, WRITE | DENYOOM | FAST, |call, key, _, args| {
        call.write_words("rpushx", key, args, Write::push(End::Back, true, args), false)
    })
    .tells(told("rpush"))
    .access(&[Access::Extend])
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("2.2.0", "key element [element ...]", "As RPUSH, if there is a list."),
    Command::of_collection("lpop", -2, WRITE | FAST, |call, key, _, args| {
        pop(call, key, args, End::Front, "lpop")
    })
    .tells(told("lpop"))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::Pop))
    .doc("1.0.0", "key [count]", "Takes elements from the front."),
    Command::of_collection("rpop", -2, WRITE | FAST, |call, key, _, args| {
        pop(call, key, args, End::Back, "rpop")
    })
    .tells(told("rpop"))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::Pop))
    .doc("1.0.0", "key [count]", "Takes elements from the back."),
    Command::of_collection("llen", 2, READONLY | FAST | WEIGHTLESS, |call, key, hint, _| {
        len(call, key, hint, Type::List)
    })
    .access(&[Access::Look])
    .doc("1.0.0", "key", "How many elements there are."),
    Command::of_collection("lrange", 4, READONLY, range).weighs(Weighs::Elements(Elements::ListRange)).doc(
        "1.0.0",
        "key start stop",
        "Elements by their places.",
    ),
    Command::of_collection("lindex", 3, READONLY, index).weighs(Weighs::Elements(Elements::One)).doc(
        "1.0.0",
        "key index",
        "The element at a place.",
    ),
    Command::of_collection("lset", 4, WRITE | DENYOOM, set)
        .tells(told("lset"))
        .weighs(Weighs::Elements(Elements::ListWrite))
        .doc("1.0.0", "key index element", "Puts another element in a place."),
    Command::of_collection("linsert", 5, WRITE | DENYOOM, insert)
        .tells(told("linsert"))
        .access(&[Access::Extend])
        .weighs(Weighs::Elements(Elements::Insert))
        .doc("2.2.0", "key <BEFORE|AFTER> pivot element", "Puts an element next to another."),
    Command::of_collection("lrem", 4, WRITE, remove)
        .tells(told("lrem"))
        .access(&[Access::Reduce])
        .weighs(Weighs::Elements(Elements::RemoveEqual))
        .doc("1.0.0", "key count element", "Removes elements that are this one; how many."),
    Command::of_collection("ltrim", 4, WRITE, trim)
        .tells(told("ltrim"))
        .access(&[Access::Reduce])
        .weighs(Weighs::Elements(Elements::Trim))
        .doc("1.0.0", "key start stop", "Keeps elements by their places."),
    Command::of_collection("lpos", -3, READONLY, position).weighs(Weighs::Elements(Elements::Position)).doc(
        "6.0.6",
        "key element [RANK rank] [COUNT count] [MAXLEN len]",
        "Where elements are that are this one.",
    ),
    Command::of_collections("lmove", 5, WRITE | DENYOOM, TWO_KEYS, |call, args| {
        let (from, to) = (end(args.at(2).unwrap_or_default())?, end(args.at(3).unwrap_or_default())?);
        go(call, args, from, to)
    })
    .tells(Tells::By(ChangeOf(|args, nth| {
        let end = end(args.at(2 + nth).unwrap_or_default()).unwrap_or(End::Front);
        if nth == 0 { popped(end) } else { pushed(end) }
    })))
    .access(&[Access::Take, Access::Extend])
    .weighs(Weighs::Elements(Elements::MoveEnd))
    .doc(
        "6.2.0",
        "source destination <LEFT|RIGHT> <LEFT|RIGHT>",
        "Takes an element from one list and puts it to another.",
    ),
    Command::of_collections("rpoplpush", 3, WRITE | DENYOOM, TWO_KEYS, |call, args| {
        go(call, args, End::Back, End::Front)
    })
    .tells(Tells::By(ChangeOf(|_, nth| if nth == 0 { popped(End::Back) } else { pushed(End::Front) })))
    .access(&[Access::Take, Access::Extend])
    .weighs(Weighs::Elements(Elements::MoveEnd))
    .doc("1.2.0", "source destination", "As LMOVE source destination RIGHT LEFT."),
    Command::of_collections("lmpop", -4, WRITE | MOVABLEKEYS, mpop::KEYS, |call, args| {
        let mpop::Asked { keys, which, count } = mpop::parse(args, end)?;
        let places = |list: &Collection<'_>| end_places(list, which, count);
        mpop::pop(call, keys, Type::List, places, |call, key| {
            let popped = call.cx.guard.list_pop(key, which, count)?;
            put_popped(call.out, which, popped.as_ref());
            Ok(())
        })
    })
    .tells(Tells::By(ChangeOf(|args, _| {
        popped(mpop::parse(args, end).map_or(End::Front, |asked| asked.which))
    })))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopSome))
    .doc(
        "7.0.0",
        "numkeys key [key ...] <LEFT|RIGHT> [COUNT count]",
        "Takes elements from the first list that there is.",
    ),
    block::BLPOP,
    block::BRPOP,
    block::BLMOVE,
    block::BRPOPLPUSH,
    block::BLMPOP,
];

const fn told(name: &'static str) -> Tells {
    Tells::Each(Change::of(Class::List, name))
}

pub(super) const fn popped(end: End) -> Change {
    Change::of(Class::List, if matches!(end, End::Front) { "lpop" } else { "rpop" })
}

pub(super) const fn pushed(end: End) -> Change {
    Change::of(Class::List, if matches!(end, End::Front) { "lpush" } else { "rpush" })
}

/// An end of a list, by its name.
pub(super) fn end(word: &[u8]) -> Result<End, Fail> {
    match word {
        word if is(word, "LEFT") => Ok(End::Front),
        word if is(word, "RIGHT") => Ok(End::Back),
        _ => Err(Fail::SYNTAX),
    }
}

/// LPOP, RPOP
fn pop(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>, end: End, name: &'static str) -> Done {
    let resp3 = call.client.resp3;
    let Some(count) = args.at(0) else {
        match call.cx.guard.list_pop(key, end, 1)? {
            Some(popped) => popped.entries().for_each(|entry| put_element(call.out, &entry.name)),
            None => put_null(call.out, resp3),
        }
        return Ok(());
    };
    if args.len() > 1 {
        return Err(Fail::arity(name));
    }
    let count =
        usize::try_from(integer(count).map_err(|_| Fail::NOT_POSITIVE)?).map_err(|_| Fail::NOT_POSITIVE)?;
    if count > TAKEN_AT_ONCE && !call.cx.guard.in_transaction() {
        return take(call, name, key, (Type::List, end), count);
    }
    let free = free_room(call.out);
    call.make_room_of(key, Type::List, |list| places_bytes_max(list, end_places(list, end, count), free))?;
    let popped = call.cx.guard.list_pop(key, end, count)?;
    let elements = popped.as_ref().map_or(0, Removed::len);
    match popped {
        None => put_null_array(call.out, resp3),
        popped => put_popped(call.out, end, popped.as_ref()),
    }
    call.spend_on_elements(elements);
    Ok(())
}

/// The places of so many elements from an end on.
pub(super) fn end_places(list: &Collection<'_>, end: End, count: usize) -> Range<usize> {
    match end {
        End::Front => 0..count.min(list.len()),
        End::Back => list.len().saturating_sub(count)..list.len(),
    }
}

/// What was taken from an end, that which was there first.
pub(super) fn put_popped(out: &mut Output, end: End, popped: Option<&Removed<'_>>) {
    put_array(out, popped.map_or(0, Removed::len));
    let Some(popped) = popped else { return };
    match end {
        End::Front => popped.entries().for_each(|entry| put_element(out, &entry.name)),
        End::Back => popped.entries_back().for_each(|entry| put_element(out, &entry.name)),
    }
}

/// LRANGE
fn range(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let mut words = args;
    let which = Which::Places(integer(next(&mut words)?)?, integer(next(&mut words)?)?);
    let (kind, shown, form) = (Type::List, Shown::Names, Form::Rows);
    call.list("lrange", key, hint, args, Listed { kind, shown, form, which, takes: false, soonest: 0 })
}

/// The place of an index in a list of so many elements; negative ones count from the end.
fn place(index: i64, len: usize) -> Option<usize> {
    let place = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(place).ok().filter(|place| *place < len)
}

/// LINDEX
fn index(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let list = super::read_as(call.cx, call.tally, key, hint, Type::List)?;
    let Some(list) = list else { return call.null() };
    match place(integer(args.at(0).unwrap_or_default())?, list.len()) {
        Some(place) => put_element(call.out, &list.entry(place).name),
        None => put_null(call.out, call.client.resp3),
    }
    Ok(())
}

/// LSET
fn set(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::List)?.ok_or(Fail::NO_SUCH_KEY)?;
    let index = integer(next(&mut args)?)?;
    match call.cx.guard.list_set(key, next(&mut args)?, |len| place(index, len))? {
        Some(true) => call.ok(),
        Some(false) => Err(Fail::of("ERR index out of range")),
        None => Err(Fail::NO_SUCH_KEY),
    }
}

/// LMOVE, RPOPLPUSH
fn go(call: &mut Call<'_, '_, '_>, args: Args<'_>, from_end: End, to_end: End) -> Done {
    let (from, to) = (args.at(0).unwrap_or_default(), args.at(1).unwrap_or_default());
    let (from, to) = (call.key(from), call.key(to));
    call.as_one([from, to], |call| {
        if carry(&mut call.cx.guard, call.out, (&from, from_end), (&to, to_end))? {
            Ok(())
        } else {
            call.null()
        }
    })
}

/// Moves an element from one list to another, both of which are held, and replies it; false if there is none. It is put
/// to its new place first, so that without memory it is in both and not in none.
pub(super) fn carry(
    guard: &mut Guard<'_>,
    out: &mut Output,
    (from, from_end): (&Key<'_>, End),
    (to, to_end): (&Key<'_>, End),
) -> Result<bool, Fail> {
    let Some(list) = peek_as(guard, from, Type::List)? else { return Ok(false) };
    let len = list.len();
    let place = if from_end == End::Front { 0 } else { len - 1 };
    let mut element = Copied::default();
    element.push_element(&list.entry(place).name);
    let element = element.at(0);
    let turns = from.bytes() == to.bytes();
    if turns && len == 1 {
        // The key, which goes with its last element, stays, and its expiry.
        put_bulk(out, element);
        return Ok(true);
    }
    guard.list_push(to, to_end, std::iter::once(element), false)?;
    if let Err(declined) = guard.list_pop(from, from_end, 1) {
        guard.list_pop(to, to_end, 1)?;
        return Err(declined.into());
    }
    put_bulk(out, element);
    Ok(true)
}
