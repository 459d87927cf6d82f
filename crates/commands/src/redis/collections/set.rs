//! Commands on sets: their rows, and what each does.

use larder_protocol::resp::Args;
use larder_store::{Hint, Key, Type};

use super::combine::{self, Operation};
use super::listing::{Form, Listed, Which};
use super::pick::random;
use super::popping::pop;
use super::scan::scan;
use super::words::{Ask, Write};
use super::{Call, Shown, len, look, peek_as};
use crate::core::events::{Change, Class};
use crate::core::work::copying_ns;
use crate::redis::call::next;
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::flag::{AS_ONE, DENYOOM, FAST, IN_PARTS, MOVABLEKEYS, READONLY, WEIGHTLESS, WRITE};
use crate::redis::row::{
    ALL_KEYS, Access, ChangeOf, Command, Elements, Keys, TWO_KEYS, Tells, Uploads, Weighs,
};

pub(crate) const ROWS: &[Definition] = &[
    Command::of_collection(
        "sadd",
        -3,
        WRITE | DENYOOM | FAST | WEIGHTLESS | IN_PARTS,
        |call, key, _, args| add(call, key, args),
    )
    .tells(told("sadd"))
    .access(&[Access::Extend])
    .uploads(Uploads::Member)
    .doc("1.0.0", "key member [member ...]", "Puts members into a set; how many were not there."),
    Command::of_collection("srem", -3, WRITE | FAST | WEIGHTLESS | IN_PARTS, |call, key, _, args| {
        call.write_words("srem", key, args, Write::Remove(Type::Set), false)
    })
    .tells(told("srem"))
    .access(&[Access::Reduce])
    .doc("1.0.0", "key member [member ...]", "Removes members; how many were there."),
    Command::of_collection("smembers", 2, READONLY, members).weighs(Weighs::Elements(Elements::All)).doc(
        "1.0.0",
        "key",
        "All members.",
    ),
    Command::of_collection("sismember", 3, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        call.spend_on_bytes(args.encoded().len());
        let is = look(call, key, hint, Type::Set, |set| set.has(args.at(0).unwrap_or_default()))?;
        call.integer(i64::from(is.unwrap_or(false)))
    })
    .access(&[Access::Look])
    .doc("1.0.0", "key member", "Whether it is a member."),
    Command::of_collection("smismember", -3, READONLY | FAST, |call, key, hint, args| {
        call.ask_words(key, hint, args, Ask::IsThere)
    })
    .weighs(Weighs::Elements(Elements::NamedScores))
    .doc("6.2.0", "key member [member ...]", "Of each whether it is a member."),
    Command::of_collection("scard", 2, READONLY | FAST | WEIGHTLESS, |call, key, hint, _| {
        len(call, key, hint, Type::Set)
    })
    .access(&[Access::Look])
    .doc("1.0.0", "key", "How many members there are."),
    Command::of_collection("spop", -2, WRITE | FAST, pop)
        .tells(told("spop"))
        .access(&[Access::Take])
        .weighs(Weighs::Elements(Elements::PickOut))
        .doc("1.0.0", "key [count]", "Takes members at random."),
    Command::of_collection("srandmember", -2, READONLY, |call, key, hint, args| {
        random(call, "srandmember", key, hint, args, Type::Set, None)
    })
    .weighs(Weighs::Elements(Elements::Pick))
    .doc("1.0.0", "key [count]", "Members at random."),
    Command::of_collections("smove", 4, WRITE | FAST, TWO_KEYS, go)
        .tells(Tells::By(ChangeOf(|_, nth| Change::of(Class::Set, if nth == 0 { "srem" } else { "sadd" }))))
        .access(&[Access::Take, Access::Extend])
        .weighs(Weighs::Elements(Elements::MoveMember))
        .doc("1.0.0", "source destination member", "Takes a member from one set and puts it into another."),
    Command::of_collection("sscan", -3, READONLY, |call, key, hint, args| {
        scan(call, key, hint, args, Type::Set)
    })
    .weighs(Weighs::Elements(Elements::Scan))
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count]",
        "Some of the members, and where to go on.",
    ),
    Command::of_collections("sinter", -2, READONLY, ALL_KEYS, |call, args| {
        combine::sets(call, "sinter", args, Operation::Inter)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::Intersection))
    .doc("1.0.0", "key [key ...]", "Members of all of the sets."),
    Command::of_collections("sunion", -2, READONLY, ALL_KEYS, |call, args| {
        combine::sets(call, "sunion", args, Operation::Union)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::Union))
    .doc("1.0.0", "key [key ...]", "Members of any of the sets."),
    Command::of_collections("sdiff", -2, READONLY, ALL_KEYS, |call, args| {
        combine::sets(call, "sdiff", args, Operation::Diff)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::Difference))
    .doc("1.0.0", "key [key ...]", "Members of the first set and of none of the others."),
    Command::of_collections("sinterstore", -3, WRITE | DENYOOM, ALL_KEYS, |call, args| {
        combine::store_sets(call, "sinterstore", args, Operation::Inter)
    })
    .with(AS_ONE)
    .tells(stored("sinterstore"))
    .access(STORES)
    .weighs(Weighs::Elements(Elements::Intersection))
    .doc("1.0.0", "destination key [key ...]", "Stores the members of all of the sets."),
    Command::of_collections("sunionstore", -3, WRITE | DENYOOM, ALL_KEYS, |call, args| {
        combine::store_sets(call, "sunionstore", args, Operation::Union)
    })
    .with(AS_ONE)
    .tells(stored("sunionstore"))
    .access(STORES)
    .weighs(Weighs::Elements(Elements::Union))
    .doc("1.0.0", "destination key [key ...]", "Stores the members of any of the sets."),
    Command::of_collections("sdiffstore", -3, WRITE | DENYOOM, ALL_KEYS, |call, args| {
        combine::store_sets(call, "sdiffstore", args, Operation::Diff)
    })
    .with(AS_ONE)
    .tells(stored("sdiffstore"))
    .access(STORES)
    .weighs(Weighs::Elements(Elements::Difference))
    .doc(
        "1.0.0",
        "destination key [key ...]",
        "Stores the members of the first set and of none of the others.",
    ),
    Command::of_collections(
        "sintercard",
        -3,
        READONLY | MOVABLEKEYS,
        Keys::Counted { count: 1, step: 1 },
        combine::count_sets,
    )
    .with(AS_ONE)
    .access(&[Access::Read])
    .weighs(Weighs::Elements(Elements::IntersectionCount))
    .doc("7.0.0", "numkeys key [key ...] [LIMIT limit]", "How many members all of the sets have."),
];

/// The first key is replaced, the others are read.
pub(crate) const STORES: &[Access] = &[Access::Replace, Access::Read];

const fn told(name: &'static str) -> Tells {
    Tells::Each(Change::of(Class::Set, name))
}

const fn stored(name: &'static str) -> Tells {
    Tells::Each(Change::store(Class::Set, name))
}

/// SADD
fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>) -> Done {
    let Some(member) = call.client.received.take() else {
        return call.write_words("sadd", key, args, Write::Add, false);
    };
    // It is hashed, and compared with one of its length that has its hash.
    call.spend(copying_ns(member.value_bytes()) / 2);
    call.spend_on_linking(&member);
    let before = args.take(args.len().saturating_sub(1));
    let new = call.cx.guard.set_add_upload(key, before, *member)?;
    call.length(new)
}

/// SMEMBERS
fn members(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let listed = Listed {
        kind: Type::Set,
        shown: Shown::Names,
        form: Form::Set,
        which: Which::All,
        takes: false,
        soonest: 0,
    };
    call.list("smembers", key, hint, args, listed)
}

/// SMOVE: the member is put to its new place first, so that without memory it is in both and not in none.
fn go(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (from, to, member) = (next(&mut args)?, next(&mut args)?, next(&mut args)?);
    let (from, to) = (call.key(from), call.key(to));
    // It is looked for, put in, looked for again and taken out.
    call.spend_on_bytes(2 * member.len());
    let member = std::iter::once(member);
    let moved = call.as_one([from, to], |call| {
        let guard = &mut call.cx.guard;
        let Some(set) = peek_as(guard, &from, Type::Set)? else { return Ok(false) };
        let is = member.clone().all(|member| set.has(member));
        peek_as(guard, &to, Type::Set)?;
        if is && from.bytes() != to.bytes() {
            // As Redis does it where no other member may be added: there are as many as before.
            let new = guard.making_way(|guard| guard.set_add(&to, member.clone()))? > 0;
            if let Err(declined) = guard.remove_named(&from, Type::Set, member.clone()) {
                if new {
                    guard.remove_named(&to, Type::Set, member)?;
                }
                return Err(Fail::from(declined));
            }
        }
        Ok(is)
    })?;
    call.integer(i64::from(moved))
}
