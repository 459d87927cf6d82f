//! Commands on sorted sets: their rows, and what each does.

use std::ops::Range;

use larder_protocol::resp::{Args, parse_double};
use larder_store::{Collection, Guard, Hint, Key, Removed, ScoreRule, Type};

use super::bounds::{Bounds, Chosen};
use super::combine::{self, Aggregate, Operation, Plan, Then};
use super::listing::{self, Form, Listed};
use super::pick::random;
use super::scan::scan;
use super::storing;
use super::taking::{self, MEMBERS_AT_ONCE};
use super::words::{Ask, Write};
use super::{Call, SCORED_NS, Shown, block, counted, len, look, mpop, peek_as, places_bytes_max, ranging};
use crate::core::events::{Change, Class};
use crate::core::output::Output;
use crate::redis::call::{few_keys, free_room, integer, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_double, put_integer, put_null, put_null_array};
use crate::redis::row::flag::{AS_ONE, DENYOOM, FAST, IN_PARTS, MOVABLEKEYS, READONLY, WEIGHTLESS, WRITE};
use crate::redis::row::{
    Access, By, ChangeOf, Command, Elements, Keys, KeysFunction, TWO_KEYS, Tells, Weighs,
};
use crate::redis::waiters::Which;

pub(crate) const ROWS: &[Definition] = &[
    Command::of_collection("zadd", -4, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        add(call, key, args)
    })
    .tells(Tells::By(ChangeOf(|args, _| {
        let adds = args.skip(1).take_while(|word| is_option(word)).any(|word| is(word, "INCR"));
        change(if adds { "zincr" } else { "zadd" })
    })))
    .weighs(Weighs::Elements(Elements::SortedWrite))
    .doc(
        "1.2.0",
        "key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]",
        "Gives members scores; how many were not there.",
    ),
    Command::of_collection("zincrby", 4, WRITE | DENYOOM | FAST, |call, key, _, args| {
        let by = args.at(0).and_then(parse_double).ok_or(Fail::NOT_A_FLOAT)?;
        give(call, key, ScoreRule { added: true, ..ScoreRule::default() }, by, args.at(1).unwrap_or_default())
    })
    .tells(told("zincr"))
    .access(&[Access::Change])
    .weighs(Weighs::Elements(Elements::SortedWrite))
    .doc("1.2.0", "key increment member", "Adds to the score of a member.")
    .doubles(&["increment"]),
    Command::of_collection("zrem", -3, WRITE | FAST | IN_PARTS, |call, key, _, args| {
        call.write_words("zrem", key, args, Write::Remove(Type::SortedSet), false)
    })
    .tells(told("zrem"))
    .access(&[Access::Reduce])
    .weighs(Weighs::Elements(Elements::SortedWrite))
    .doc("1.2.0", "key member [member ...]", "Removes members; how many were there."),
    Command::of_collection("zscore", 3, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        call.spend_on_bytes(args.encoded().len());
        let score = look(call, key, hint, Type::SortedSet, |set| set.score(args.at(0).unwrap_or_default()))?;
        put_score(call.out, call.client.resp3, score.flatten());
        Ok(())
    })
    .doc("1.2.0", "key member", "The score of a member."),
    Command::of_collection("zmscore", -3, READONLY | FAST, |call, key, hint, args| {
        call.ask_words(key, hint, args, Ask::Score)
    })
    .weighs(Weighs::Elements(Elements::NamedScores))
    .doc("6.2.0", "key member [member ...]", "The scores of several members."),
    Command::of_collection("zcard", 2, READONLY | FAST | WEIGHTLESS, |call, key, hint, _| {
        len(call, key, hint, Type::SortedSet)
    })
    .access(&[Access::Look])
    .doc("1.2.0", "key", "How many members there are."),
    Command::of_collection("zcount", 4, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        count(call, key, hint, args, By::Score)
    })
    .doc("2.0.0", "key min max", "How many members have such scores."),
    Command::of_collection("zlexcount", 4, READONLY | FAST, |call, key, hint, args| {
        count(call, key, hint, args, By::Lex)
    })
    .weighs(Weighs::Elements(Elements::Compared))
    .doc("2.8.9", "key min max", "How many members lie between two, where all have one score."),
    Command::of_collection("zrank", -3, READONLY | FAST, |call, key, hint, args| {
        rank(call, key, hint, args, false)
    })
    .weighs(Weighs::Elements(Elements::Compared))
    .doc("2.0.0", "key member [WITHSCORE]", "How many members come before this one."),
    Command::of_collection("zrevrank", -3, READONLY | FAST, |call, key, hint, args| {
        rank(call, key, hint, args, true)
    })
    .weighs(Weighs::Elements(Elements::Compared))
    .doc("2.0.0", "key member [WITHSCORE]", "How many members come behind this one."),
    Command::of_collection("zrange", -4, READONLY, |call, key, hint, args| {
        range(call, "zrange", key, hint, args, None)
    })
    .weighs(Weighs::Elements(Elements::Range))
    .doc(
        "1.2.0",
        "key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        "Members by rank, by score, or between two others.",
    ),
    Command::of_collection("zrevrange", -4, READONLY, |call, key, hint, args| {
        range(call, "zrevrange", key, hint, args, Some((By::Rank, true)))
    })
    .weighs(Weighs::Elements(Elements::RankRange))
    .doc("1.2.0", "key start stop [WITHSCORES]", "As ZRANGE with REV."),
    Command::of_collection("zrangebyscore", -4, READONLY, |call, key, hint, args| {
        range(call, "zrangebyscore", key, hint, args, Some((By::Score, false)))
    })
    .weighs(Weighs::Elements(Elements::LimitedRange))
    .doc("1.0.5", "key min max [WITHSCORES] [LIMIT offset count]", "As ZRANGE with BYSCORE."),
    Command::of_collection("zrevrangebyscore", -4, READONLY, |call, key, hint, args| {
        range(call, "zrevrangebyscore", key, hint, args, Some((By::Score, true)))
    })
    .weighs(Weighs::Elements(Elements::LimitedRange))
    .doc("2.2.0", "key max min [WITHSCORES] [LIMIT offset count]", "As ZRANGE with BYSCORE and REV."),
    Command::of_collection("zrangebylex", -4, READONLY, |call, key, hint, args| {
        range(call, "zrangebylex", key, hint, args, Some((By::Lex, false)))
    })
    .weighs(Weighs::Elements(Elements::LimitedRange))
    .doc("2.8.9", "key min max [LIMIT offset count]", "As ZRANGE with BYLEX."),
    Command::of_collection("zrevrangebylex", -4, READONLY, |call, key, hint, args| {
        range(call, "zrevrangebylex", key, hint, args, Some((By::Lex, true)))
    })
    .weighs(Weighs::Elements(Elements::LimitedRange))
    .doc("2.8.9", "key max min [LIMIT offset count]", "As ZRANGE with BYLEX and REV."),
    Command::of_collections("zrangestore", -5, WRITE | DENYOOM, TWO_KEYS, storing::store_range)
        .tells(stored("zrangestore"))
        .access(super::set::STORES)
        .weighs(Weighs::Elements(Elements::StoreRange))
        .doc(
            "6.2.0",
            "destination source min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]",
            "Stores what ZRANGE would show.",
        ),
    Command::of_collection("zremrangebyrank", 4, WRITE, |call, key, _, args| {
        ranging::remove(call, "zremrangebyrank", key, args, By::Rank)
    })
    .tells(told("zremrangebyrank"))
    .access(&[Access::Reduce])
    .weighs(Weighs::Elements(Elements::RemoveRange(By::Rank)))
    .doc("2.0.0", "key start stop", "Removes members by rank; how many."),
    Command::of_collection("zremrangebyscore", 4, WRITE, |call, key, _, args| {
        ranging::remove(call, "zremrangebyscore", key, args, By::Score)
    })
    .tells(told("zremrangebyscore"))
    .access(&[Access::Reduce])
    .weighs(Weighs::Elements(Elements::RemoveRange(By::Score)))
    .doc("1.2.0", "key min max", "Removes members by score; how many."),
    Command::of_collection("zremrangebylex", 4, WRITE, |call, key, _, args| {
        ranging::remove(call, "zremrangebylex", key, args, By::Lex)
    })
    .tells(told("zremrangebylex"))
    .access(&[Access::Reduce])
    .weighs(Weighs::Elements(Elements::RemoveRange(By::Lex)))
    .doc("2.8.9", "key min max", "Removes the members between two, where all have one score; how many."),
    Command::of_collection("zpopmin", -2, WRITE | FAST, |call, key, _, args| {
        pop(call, key, args, Which::Min)
    })
    .tells(told("zpopmin"))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopScored))
    .doc("5.0.0", "key [count]", "Takes the members with the lowest scores."),
    Command::of_collection("zpopmax", -2, WRITE | FAST, |call, key, _, args| {
        pop(call, key, args, Which::Max)
    })
    .tells(told("zpopmax"))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopScored))
    .doc("5.0.0", "key [count]", "Takes the members with the highest scores."),
    Command::of_collections("zmpop", -4, WRITE | MOVABLEKEYS, mpop::KEYS, |call, args| {
        let mpop::Asked { keys, which, count } = mpop::parse(args, which)?;
        mpop::pop(call, keys, (Type::SortedSet, which.end()), count)
    })
    .with(AS_ONE)
    .tells(Tells::By(ChangeOf(|args, _| {
        popped(mpop::parse(args, which).map_or(Which::Min, |asked| asked.which))
    })))
    .access(&[Access::Take])
    .weighs(Weighs::Elements(Elements::PopSomeScored))
    .doc(
        "7.0.0",
        "numkeys key [key ...] <MIN|MAX> [COUNT count]",
        "Takes members from the first sorted set that there is.",
    ),
    Command::of_collection("zrandmember", -2, READONLY, |call, key, hint, args| {
        random(call, "zrandmember", key, hint, args, Type::SortedSet, Some(("WITHSCORES", Shown::Scores)))
    })
    .weighs(Weighs::Elements(Elements::Pick))
    .doc("6.2.0", "key [count [WITHSCORES]]", "Members at random."),
    Command::of_collection("zscan", -3, READONLY, |call, key, hint, args| {
        scan(call, key, hint, args, Type::SortedSet)
    })
    .weighs(Weighs::Elements(Elements::Scan))
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
        "Some of the members with their scores, and where to go on.",
    ),
    Command::of_collections("zinter", -3, READONLY | MOVABLEKEYS, mpop::KEYS, |call, args| {
        several(call, "zinter", args, Operation::Inter)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::Intersection))
    .doc("6.2.0", SEVERAL_USAGE, "Members of all of the sorted sets, with their scores together."),
    Command::of_collections("zunion", -3, READONLY | MOVABLEKEYS, mpop::KEYS, |call, args| {
        several(call, "zunion", args, Operation::Union)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::Union))
    .doc("6.2.0", SEVERAL_USAGE, "Members of any of the sorted sets, with their scores together."),
    Command::of_collections("zdiff", -3, READONLY | MOVABLEKEYS, mpop::KEYS, |call, args| {
        several(call, "zdiff", args, Operation::Diff)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::Difference))
    .doc(
        "6.2.0",
        "numkeys key [key ...] [WITHSCORES]",
        "Members of the first sorted set and of none of the others.",
    ),
    Command::of_collections("zinterstore", -4, WRITE | DENYOOM | MOVABLEKEYS, STORE_KEYS, |call, args| {
        store_several(call, "zinterstore", args, Operation::Inter)
    })
    .with(AS_ONE)
    .tells(stored("zinterstore"))
    .access(super::set::STORES)
    .weighs(Weighs::Elements(Elements::Intersection))
    .doc("2.0.0", STORE_USAGE, "Stores what ZINTER would show."),
    Command::of_collections("zunionstore", -4, WRITE | DENYOOM | MOVABLEKEYS, STORE_KEYS, |call, args| {
        store_several(call, "zunionstore", args, Operation::Union)
    })
    .with(AS_ONE)
    .tells(stored("zunionstore"))
    .access(super::set::STORES)
    .weighs(Weighs::Elements(Elements::Union))
    .doc("2.0.0", STORE_USAGE, "Stores what ZUNION would show."),
    Command::of_collections("zdiffstore", -4, WRITE | DENYOOM | MOVABLEKEYS, STORE_KEYS, |call, args| {
        store_several(call, "zdiffstore", args, Operation::Diff)
    })
    .with(AS_ONE)
    .tells(stored("zdiffstore"))
    .access(super::set::STORES)
    .weighs(Weighs::Elements(Elements::Difference))
    .doc("6.2.0", "destination numkeys key [key ...]", "Stores what ZDIFF would show."),
    Command::of_collections("zintercard", -3, READONLY | MOVABLEKEYS, mpop::KEYS, |call, args| {
        combine::count_sorted(call, args)
    })
    .with(AS_ONE)
    .access(&[Access::Read])
    .weighs(Weighs::Elements(Elements::IntersectionCount))
    .doc(
        "7.0.0",
        "numkeys key [key ...] [LIMIT limit]",
        "How many members all of the sorted sets have.",
    ),
    block::BZPOPMIN,
    block::BZPOPMAX,
    block::BZMPOP,
];

const SEVERAL_USAGE: &str =
    "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM|MIN|MAX>] [WITHSCORES]";
const STORE_USAGE: &str =
    "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM|MIN|MAX>]";

/// A destination, and keys behind a word that says how many they are.
const STORE_KEYS: Keys = Keys::By(KeysFunction(|mut args, visit| {
    let Some(target) = args.next() else { return false };
    visit(target);
    let keys = counted(&mut args, Fail::SYNTAX);
    keys.map(|keys| keys.for_each(visit)).is_ok()
}));

pub(super) const fn change(name: &'static str) -> Change {
    Change::of(Class::SortedSet, name)
}

const fn told(name: &'static str) -> Tells {
    Tells::Each(change(name))
}

const fn stored(name: &'static str) -> Tells {
    Tells::Each(Change::store(Class::SortedSet, name))
}

/// Writes a score, or that there is none.
fn put_score(out: &mut Output, resp3: bool, score: Option<f64>) {
    match score {
        Some(score) => put_double(out, resp3, score),
        None => put_null(out, resp3),
    }
}

/// Whether the word is an option of ZADD.
fn is_option(word: &[u8]) -> bool {
    ["NX", "XX", "GT", "LT", "CH", "INCR"].iter().any(|option| is(word, option))
}

/// Serves ZADD.
fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, mut args: Args<'_>) -> Done {
    let mut rule = ScoreRule::default();
    let mut changes = false;
    while let Some(word) = args.at(0).filter(|word| is_option(word)) {
        match word.to_ascii_uppercase().as_slice() {
            b"NX" => rule.absent = true,
            b"XX" => rule.present = true,
            b"GT" => rule.higher = true,
            b"LT" => rule.lower = true,
            b"CH" => changes = true,
            _ => rule.added = true,
        }
        args.next();
    }
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err(Fail::SYNTAX);
    }
    if rule.absent && rule.present {
        return Err(Fail::of("ERR XX and NX options at the same time are not compatible"));
    }
    if [rule.absent, rule.higher, rule.lower].into_iter().filter(|set| *set).count() > 1 {
        return Err(Fail::of("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if rule.added && args.len() > 2 {
        return Err(Fail::of("ERR INCR option supports a single increment-element pair"));
    }
    if rule.added {
        let score = parse_double(next(&mut args)?).ok_or(Fail::NOT_A_FLOAT)?;
        return give(call, key, rule, score, next(&mut args)?);
    }
    call.write_words("zadd", key, args, Write::Score(rule, changes), false)
}

/// Gives a member a score, and replies the score that it has then.
fn give(call: &mut Call<'_, '_, '_>, key: &Key<'_>, rule: ScoreRule, score: f64, member: &[u8]) -> Done {
    call.spend_on_moving(member);
    let scored = call.cx.guard.sorted_add(key, rule, std::iter::once((score, member)))?;
    put_score(call.out, call.client.resp3, scored.score);
    Ok(())
}

/// Serves ZCOUNT and ZLEXCOUNT.
fn count(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, mut args: Args<'_>, by: By) -> Done {
    let (from, to) = (next(&mut args)?, next(&mut args)?);
    let bounds = Bounds::parse(by, from, to)?;
    call.spend_on_bytes(bounds.compared_bytes());
    let members = look(call, key, hint, Type::SortedSet, |set| bounds.ranks(set).len())?;
    call.length(members.unwrap_or(0))
}

/// Serves ZRANK and ZREVRANK.
fn rank(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, mut args: Args<'_>, back: bool) -> Done {
    let member = next(&mut args)?;
    let with_score = match (args.next(), args.next()) {
        (None, _) => false,
        (Some(word), None) if is(word, "WITHSCORE") => true,
        (Some(_), None) => return Err(Fail::SYNTAX),
        (Some(_), Some(_)) => return Err(Fail::arity(if back { "zrevrank" } else { "zrank" })),
    };
    call.spend_on_comparing(member);
    let found = look(call, key, hint, Type::SortedSet, |set| {
        let rank = set.find(member)?;
        Some((if back { set.len() - 1 - rank } else { rank }, set.entry(rank).score))
    })?;
    let resp3 = call.client.resp3;
    match found.flatten() {
        Some((rank, score)) => {
            if with_score {
                put_array(call.out, 2);
            }
            put_integer(call.out, rank as i64);
            if with_score {
                put_double(call.out, resp3, score);
            }
        }
        None if with_score => put_null_array(call.out, resp3),
        None => put_null(call.out, resp3),
    }
    Ok(())
}

/// Serves ZRANGE and its kin.
fn range(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    hint: &Hint<'_>,
    args: Args<'_>,
    fixed: Option<(By, bool)>,
) -> Done {
    let chosen = Chosen::parse(args, fixed, false)?;
    call.spend_on_bytes(chosen.compared_bytes());
    let which = |set: &Collection<'_>| {
        let Range { start, end } = chosen.ranks(set);
        listing::Which::Ranks { start, end, back: chosen.is_back() }
    };
    let (kind, shown, form) = (Type::SortedSet, chosen.shown, Form::Rows);
    let listed = Listed { kind, shown, form, which: listing::Which::All, takes: false, soonest: 0 };
    call.list_chosen(name, key, hint, args, listed, &which)
}

/// The event of ZPOPMIN or ZPOPMAX.
pub(super) const fn popped(which: Which) -> Change {
    change(if matches!(which, Which::Min) { "zpopmin" } else { "zpopmax" })
}

pub(super) fn which(word: &[u8]) -> Result<Which, Fail> {
    match word {
        word if is(word, "MIN") => Ok(Which::Min),
        word if is(word, "MAX") => Ok(Which::Max),
        _ => Err(Fail::SYNTAX),
    }
}

/// The ranks of up to `count` members at an end.
pub(super) fn end_places(set: &Collection<'_>, which: Which, count: usize) -> Range<usize> {
    match which {
        Which::Min => 0..count.min(set.len()),
        Which::Max => set.len().saturating_sub(count)..set.len(),
    }
}

/// Takes up to `count` members from an end.
pub(super) fn take<'r>(
    guard: &'r mut Guard<'_>,
    key: &Key<'_>,
    which: Which,
    count: usize,
) -> Result<Option<Removed<'r>>, Fail> {
    Ok(guard.sorted_remove(key, |set| end_places(set, which, count))?)
}

/// Visits the members that were taken from an end, the outermost first.
pub(super) fn each_popped<'r>(
    popped: Option<&Removed<'r>>,
    which: Which,
    visit: &mut dyn FnMut((&Collection<'r>, &larder_store::Entry<'r>)),
) {
    let Some(popped) = popped else { return };
    let there = popped.collection();
    match which {
        Which::Min => popped.entries().for_each(|entry| visit((there, &entry))),
        Which::Max => popped.entries_back().for_each(|entry| visit((there, &entry))),
    }
}

/// Whether so many members at an end have more bytes than are taken in one moment. They are looked at only if any may be that
/// long: the longest may be gone by now.
fn are_long(set: &Collection<'_>, which: Which, count: usize) -> bool {
    let places = end_places(set, which, count);
    set.longest_apart().saturating_mul(places.len()) > taking::TAKEN_BYTES
        && set.entries(places).map(|entry| entry.name.len()).sum::<usize>() > taking::TAKEN_BYTES
}

/// Serves ZPOPMIN and ZPOPMAX.
fn pop(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>, which: Which) -> Done {
    if args.len() > 1 {
        return Err(Fail::SYNTAX);
    }
    let count = match args.at(0) {
        Some(count) => {
            let count = integer(count).map_err(|_| Fail::NOT_POSITIVE)?;
            Some(usize::try_from(count).map_err(|_| Fail::NOT_POSITIVE)?)
        }
        None => None,
    };
    let goes_on = match count {
        Some(count) if count > MEMBERS_AT_ONCE => true,
        Some(count) => {
            let set = peek_as(&mut call.cx.guard, key, Type::SortedSet)?;
            set.is_some_and(|set| are_long(&set, which, count))
        }
        None => false,
    };
    if goes_on && !call.cx.guard.in_transaction() {
        return taking::take(call, key, (Type::SortedSet, which.end()), count.unwrap_or(1));
    }
    let places = |set: &Collection<'_>| end_places(set, which, count.unwrap_or(1));
    let free = free_room(call.out);
    call.make_room_of(key, Type::SortedSet, |set| places_bytes_max(set, places(set), free))?;
    // RESP3 nests pairs where there may be several.
    let (nested, resp3) = (count.is_some() && call.client.resp3, call.client.resp3);
    let popped = take(&mut call.cx.guard, key, which, count.unwrap_or(1))?;
    Shown::Scores.put_head(call.out, nested, popped.as_ref().map_or(0, Removed::len));
    each_popped(popped.as_ref(), which, &mut |entry| {
        if nested {
            put_array(call.out, 2);
        }
        Shown::Scores.put(call.out, resp3, entry);
    });
    let taken = popped.map_or(0, |popped| popped.len());
    call.spend_on(taken, SCORED_NS);
    Ok(())
}

/// Parses `numkeys key [key ...]` and the options of several sorted sets; `stores`: nothing is shown.
fn plan<'a>(
    call: &mut Call<'_, '_, '_>,
    mut args: Args<'a>,
    name: &str,
    operation: Operation,
    stores: bool,
) -> Result<(Plan, Args<'a>), Fail> {
    integer(args.at(0).unwrap_or_default())?;
    let keys = counted(&mut args, combine::needs_a_key(name))?;
    few_keys(keys.len())?;
    let then = if stores { Then::Store } else { Then::Sorted(Shown::Names) };
    let mut plan = Plan::new(operation, Type::SortedSet, then);
    match options(call, &mut plan, args, keys.len()) {
        Ok(()) => Ok((plan, keys)),
        Err(fail) => Err(plan.wrong_type(call, keys).unwrap_or(fail)),
    }
}

/// Parses the options; `keys`: how many sorted sets there are.
fn options(call: &mut Call<'_, '_, '_>, plan: &mut Plan, mut args: Args<'_>, keys: usize) -> Done {
    let (weighs, stores) = (plan.operation != Operation::Diff, plan.then == Then::Store);
    while let Some(word) = args.next() {
        if weighs && is(word, "WEIGHTS") && args.len() >= keys {
            if plan.weighed.is_none() {
                plan.weighed = Some(Heap::take(call, keys * size_of::<f64>())?);
                plan.weights.reserve_exact(keys);
            }
            plan.weights.clear();
            for word in args.by_ref().take(keys) {
                let weight = parse_double(word).ok_or(Fail::of("ERR weight value is not a float"));
                plan.weights.push(weight?);
            }
        } else if weighs && is(word, "AGGREGATE") {
            plan.aggregate = match next(&mut args)? {
                word if is(word, "SUM") => Aggregate::Sum,
                word if is(word, "MIN") => Aggregate::Min,
                word if is(word, "MAX") => Aggregate::Max,
                _ => return Err(Fail::SYNTAX),
            };
        } else if !stores && is(word, "WITHSCORES") {
            plan.then = Then::Sorted(Shown::Scores);
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    Ok(())
}

/// Serves ZINTER, ZUNION and ZDIFF.
fn several(call: &mut Call<'_, '_, '_>, name: &'static str, args: Args<'_>, operation: Operation) -> Done {
    let (plan, keys) = plan(call, args, name, operation, false)?;
    combine::combine(call, (name, args), plan, None, keys)
}

/// Serves ZINTERSTORE, ZUNIONSTORE and ZDIFFSTORE.
fn store_several(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    args: Args<'_>,
    operation: Operation,
) -> Done {
    let mut rest = args;
    let target = next(&mut rest)?;
    let (plan, keys) = plan(call, rest, name, operation, true)?;
    combine::combine(call, (name, args), plan, Some(target), keys)
}
