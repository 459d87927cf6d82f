//! Commands on lists: their rows, and what each does.

use std::ops::Range;
use std::sync::Arc;

use larder_protocol::resp::Args;
use larder_store::{Collection, Element, End, Entry, Guard, Hint, Key, Removed, Store, Type};

use super::listing::{Form, Listed, Which};
use super::seeking::{insert, position};
use super::sending::{ToSend, has_too_long, is_sent, pinning_ns, put_gone};
use super::sifting::{remove, trim};
use super::taking::{TAKEN_AT_ONCE, TAKEN_BYTES, take};
use super::words::Write;
use super::{
    COPIED_ELEMENT_BYTES_MAX, Call, ELEMENT_ROOM, Shown, block, is_too_long, len, mpop, peek_as,
    places_bytes_max, put_element, put_element_of,
};
use crate::core::events::{Change, Class};
use crate::core::output::Output;
use crate::redis::call::{ELEMENT_BYTES, free_room, has_room, integer, is, next};
use crate::redis::copied::Copied;
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{COPIED_BYTES_MAX, put_array, put_bulk, put_null, put_null_array};
use crate::redis::row::flag::{AS_ONE, DENYOOM, FAST, IN_PARTS, MOVABLEKEYS, READONLY, WEIGHTLESS, WRITE};
use crate::redis::row::{Access, ChangeOf, Command, Elements, TWO_KEYS, Tells, Uploads, Weighs};

pub(crate) const ROWS: &[Definition] = &[
    Command::of_collection("lpush", -3, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        push(call, key, args, ("lpush", End::Front, false))
    })
    .tells(told("lpush"))
    .access(&[Access::Extend])
    .uploads(Uploads::Element)
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("1.0.0", "key element [element ...]", "Puts elements to the front; how many there are then."),
    Command::of_collection("rpush", -3, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        push(call, key, args, ("rpush", End::Back, false))
    })
    .tells(told("rpush"))
    .access(&[Access::Extend])
    .uploads(Uploads::Element)
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("1.0.0", "key element [element ...]", "Puts elements to the back; how many there are then."),
    Command::of_collection("lpushx", -3, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        push(call, key, args, ("lpushx", End::Front, true))
    })
    .tells(told("lpush"))
    .access(&[Access::Extend])
    .uploads(Uploads::Element)
    .weighs(Weighs::Elements(Elements::ListWrite))
    .doc("2.2.0", "key element [element ...]", "As LPUSH, if there is a list."),
    Command::of_collection("rpushx", -3, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        push(call, key, args, ("rpushx", End::Back, true))
    })
    .tells(told("rpush"))
    .access(&[Access::Extend])
    .uploads(Uploads::Element)
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
        .uploads(Uploads::Place)
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
        mpop::pop(call, keys, (Type::List, which), count)
    })
    .with(AS_ONE)
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

/// LPUSH, RPUSH, LPUSHX, RPUSHX: a command by its name, the end that it pushes to, and whether there has to be a list.
fn push(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    args: Args<'_>,
    (name, end, present): (&'static str, End, bool),
) -> Done {
    let Some(element) = call.client.received.take() else {
        return call.write_words(name, key, args, Write::push(end, present, args), false);
    };
    call.spend_on_linking(&element);
    let before = args.take(args.len().saturating_sub(1));
    let len = call.cx.guard.list_push_upload_behind(key, end, before, *element, present)?;
    call.length(len)
}

/// LPOP, RPOP
fn pop(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>, end: End, name: &'static str) -> Done {
    let resp3 = call.client.resp3;
    let Some(count) = args.at(0) else {
        let mut sends = !call.cx.guard.in_transaction();
        loop {
            let free = free_room(call.out).saturating_sub(ELEMENT_ROOM);
            // One that may be sent from where it lies is not copied, nor one that is too long.
            let free = free.min(if sends { COPIED_BYTES_MAX } else { COPIED_ELEMENT_BYTES_MAX });
            let needed = match call.cx.guard.list_pop_within(key, end, free)? {
                Ok(Some(popped)) => {
                    let (list, mut bytes) = (popped.collection(), 0);
                    popped.entries().for_each(|entry| {
                        put_element_of(call.out, list, &entry.name);
                        bytes = entry.name.len();
                    });
                    call.spend_on_bytes(bytes);
                    return Ok(());
                }
                Ok(None) => {
                    put_null(call.out, resp3);
                    return Ok(());
                }
                Err(bytes) => bytes,
            };
            if sends && is_sent(needed) {
                if call.pop_apart(key, end, needed)? {
                    return Ok(());
                }
                sends = false;
            }
            if is_too_long(needed) {
                let in_transaction = call.cx.guard.in_transaction();
                return Err(if in_transaction { Fail::TOO_LONG_TO_COPY } else { Fail::HELD });
            }
            call.make_room(needed + ELEMENT_ROOM)?;
        }
    };
    if args.len() > 1 {
        return Err(Fail::arity(name));
    }
    let count =
        usize::try_from(integer(count).map_err(|_| Fail::NOT_POSITIVE)?).map_err(|_| Fail::NOT_POSITIVE)?;
    let in_steps = !call.cx.guard.in_transaction();
    if count > TAKEN_AT_ONCE && in_steps {
        return take(call, key, (Type::List, end), count);
    }
    let free = free_room(call.out);
    let there = peek_as(&mut call.cx.guard, key, Type::List)?;
    let bytes = there.map_or(0, |list| places_bytes_max(&list, end_places(&list, end, count), free));
    if bytes > TAKEN_BYTES && in_steps {
        return take(call, key, (Type::List, end), count);
    }
    if there.is_some_and(|list| has_too_long(&list, end, count)) {
        return Err(Fail::TOO_LONG_TO_COPY);
    }
    call.make_room(bytes)?;
    let (before, store) = (call.out.own_bytes(), Arc::clone(call.cx.guard.store()));
    let popped = call.cx.guard.list_pop(key, end, count)?;
    let elements = popped.as_ref().map_or(0, Removed::len);
    match popped {
        None => put_null_array(call.out, resp3),
        popped => put_popped(call.out, end, popped.as_ref(), &store),
    }
    call.spend_on_elements(elements);
    call.spend_on_bytes((call.out.own_bytes() - before) as usize);
    Ok(())
}

/// The places of so many elements from an end on.
pub(super) fn end_places(list: &Collection<'_>, end: End, count: usize) -> Range<usize> {
    match end {
        End::Front => 0..count.min(list.len()),
        End::Back => list.len().saturating_sub(count)..list.len(),
    }
}

/// The same of those that LMPOP takes in a transaction: where some of the list lie apart, as many as have [`TAKEN_BYTES`], and one
/// at least.
pub(super) fn places_within(list: &Collection<'_>, end: End, count: usize) -> Range<usize> {
    let places = end_places(list, end, count);
    if list.longest_apart() == 0 || list.bytes() <= TAKEN_BYTES {
        return places;
    }
    let mut bytes = 0;
    let mut fits = |entry: &Entry<'_>| {
        bytes += entry.name.len();
        bytes <= TAKEN_BYTES
    };
    let some = match end {
        End::Front => list.entries(places).take_while(&mut fits).count(),
        End::Back => list.entries_back(places).take_while(&mut fits).count(),
    };
    end_places(list, end, some.max(count.min(1)))
}

/// What was taken from an end, that which was there first. One that is too long to be copied has come since the look.
fn put_popped(out: &mut Output, end: End, popped: Option<&Removed<'_>>, store: &Arc<Store>) {
    put_array(out, popped.map_or(0, Removed::len));
    let Some(popped) = popped else { return };
    let list = popped.collection();
    match end {
        End::Front => popped.entries().for_each(|entry| put_gone(out, list, &entry.name, store)),
        End::Back => popped.entries_back().for_each(|entry| put_gone(out, list, &entry.name, store)),
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
    let index = integer(args.at(0).unwrap_or_default())?;
    let element = place(index, list.len()).map(|place| list.entry(place).name);
    match element {
        Some(Element::Apart(apart)) => {
            let bytes = apart.len();
            call.reply_apart(key, Type::List, bytes, |list| {
                place(index, list.len()).map(|place| list.entry(place).name)
            })?;
        }
        Some(element) => put_element(call.out, &element),
        None => put_null(call.out, call.client.resp3),
    }
    Ok(())
}

/// LSET
fn set(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::List)?.ok_or(Fail::NO_SUCH_KEY)?;
    let index = integer(next(&mut args)?)?;
    let element = next(&mut args)?;
    let set = match call.client.received.take() {
        Some(element) => {
            call.spend_on_linking(&element);
            call.cx.guard.list_set_upload(key, *element, |len| place(index, len))?
        }
        None => {
            let set = call.cx.guard.list_set(key, element, |len| place(index, len))?;
            call.spend_on_bytes(if set == Some(true) { element.len() } else { 0 });
            set
        }
    };
    match set {
        Some(true) => call.ok(),
        Some(false) => Err(Fail::of("ERR index out of range")),
        None => Err(Fail::NO_SUCH_KEY),
    }
}

/// LMOVE, RPOPLPUSH
fn go(call: &mut Call<'_, '_, '_>, args: Args<'_>, from_end: End, to_end: End) -> Done {
    let (from, to) = (args.at(0).unwrap_or_default(), args.at(1).unwrap_or_default());
    let sends = !call.cx.guard.in_transaction();
    call.as_one_with_room([from, to], |call| {
        let (from, to) = (call.key(from), call.key(to));
        let bytes = end_bytes(&mut call.cx.guard, &from, from_end)?;
        if is_too_long(bytes) && !sends {
            return Err(Fail::TOO_LONG_TO_COPY);
        }
        let mut to_send = ToSend::default();
        if sends && is_sent(bytes) {
            to_send = ToSend::of(&mut call.cx.guard, &from, (Type::List, from_end), 1)?;
        }
        let (ns, before) = (to_send.ns(), call.out.own_bytes());
        match carry(&mut call.cx.guard, call.out, (&from, from_end), (&to, to_end), &mut to_send)? {
            Carried::Needs(bytes) => return Ok(Some(bytes)),
            Carried::Nothing => call.null()?,
            Carried::Element if bytes > ELEMENT_BYTES => {
                // Its parts get other keys and another number.
                call.spend(ns + pinning_ns(bytes as u64));
                call.spend_on_bytes((call.out.own_bytes() - before) as usize);
            }
            // From its place, to its new one, and into the reply.
            Carried::Element => call.spend_on_bytes(3 * bytes),
        }
        Ok(None)
    })
}

/// Bytes of the element at an end of a list; 0 if there is none.
fn end_bytes(guard: &mut Guard<'_>, key: &Key<'_>, end: End) -> Result<usize, Fail> {
    let list = peek_as(guard, key, Type::List)?.filter(|list| list.longest_apart() > 0);
    Ok(list.map_or(0, |list| list.entry(if end == End::Front { 0 } else { list.len() - 1 }).name.len()))
}

/// What came of moving an element.
pub(super) enum Carried {
    /// It was moved, and replied.
    Element,
    /// There is none.
    Nothing,
    /// It is where it was: so many bytes are needed for its reply.
    Needs(usize),
}

/// Moves an element from one list to another, both of which are held, and replies it. One that lies apart stays where it lies,
/// and is sent from there if it is pinned already. A short one is put to its new place first, so that without memory it is in
/// both and not in none.
pub(super) fn carry(
    guard: &mut Guard<'_>,
    out: &mut Output,
    (from, from_end): (&Key<'_>, End),
    (to, to_end): (&Key<'_>, End),
    to_send: &mut ToSend,
) -> Result<Carried, Fail> {
    let Some(list) = peek_as(guard, from, Type::List)? else { return Ok(Carried::Nothing) };
    let len = list.len();
    let place = if from_end == End::Front { 0 } else { len - 1 };
    let there = list.entry(place);
    let needed = there.name.len().saturating_sub(to_send.bytes()) + ELEMENT_ROOM;
    if needed > ELEMENT_BYTES && !has_room(out, needed) {
        return Ok(Carried::Needs(needed));
    }
    // The key, which goes with its last element, stays, and its expiry.
    let stays = len == 1 && from.bytes() == to.bytes();
    if stays || matches!(there.name, Element::Apart(_)) {
        let mark = out.mark();
        to_send.put(out, (Shown::Names, false), (&list, &there));
        if !stays {
            let carried = carry_apart(guard, (from, from_end), (to, to_end));
            carried.inspect_err(|_| out.rewind(mark))?;
        }
        return Ok(Carried::Element);
    }
    let mut element = Copied::default();
    element.push_element(&there.name);
    let element = element.at(0);
    guard.list_push(to, to_end, std::iter::once(element), false)?;
    if let Err(declined) = guard.list_pop(from, from_end, 1) {
        guard.list_pop(to, to_end, 1)?;
        return Err(declined.into());
    }
    put_bulk(out, element);
    Ok(Carried::Element)
}

/// Moves an element that lies apart from one list to another, or to the other end of it, unless that is no list.
fn carry_apart(guard: &mut Guard<'_>, from: (&Key<'_>, End), to: (&Key<'_>, End)) -> Done {
    peek_as(guard, to.0, Type::List)?;
    guard.list_carry(from, to)?;
    Ok(())
}
