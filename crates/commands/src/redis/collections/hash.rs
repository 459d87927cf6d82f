//! Commands on hashes: their rows, and what each does. What is about times of fields is in `fields.rs`.

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, parse_double_or_zero, write_integer};
use larder_store::{DIGITS_MAX, Element, Hint, Key, Lasting, Type};

use super::fields;
use super::listing::{Form, Listed, Which};
use super::pick::random;
use super::scan::scan;
use super::words::{Ask, Write};
use super::{Call, Pairs, Shown, look, peek_as, put_element, read_as};
use crate::core::events::{Change, Class};
use crate::redis::call::{OfKey, integer};
use crate::redis::clock::Clock;
use crate::redis::decimal::{Digits, sum};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_null;
use crate::redis::row::flag::{DENYOOM, FAST, IN_PARTS, READONLY, WEIGHTLESS, WRITE};
use crate::redis::row::{Access, Command, Elements, Tells, Uploads, Weighs};

pub(crate) const ROWS: &[Definition] = &[
    Command::of_collection("hset", -4, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        set(call, "hset", key, args, false)
    })
    .tells(told("hset"))
    .uploads(Uploads::Fields)
    .weighs(SETS)
    .doc("2.0.0", "key field value [field value ...]", "Sets fields; how many were not there."),
    Command::of_collection("hmset", -4, WRITE | DENYOOM | FAST | IN_PARTS, |call, key, _, args| {
        set(call, "hmset", key, args, true)
    })
    .tells(told("hset"))
    .uploads(Uploads::Fields)
    .weighs(SETS)
    .doc("2.0.0", "key field value [field value ...]", "Sets fields."),
    Command::of_collection("hsetnx", 4, WRITE | DENYOOM | FAST, set_new)
        .tells(told("hset"))
        .access(&[Access::Extend])
        .uploads(Uploads::Field)
        .weighs(SETS)
        .doc("2.0.0", "key field value", "Sets a field that is not there."),
    Command::of_collection("hget", 3, READONLY | FAST, get).weighs(Weighs::Elements(Elements::Named)).doc(
        "2.0.0",
        "key field",
        "The value of a field.",
    ),
    Command::of_collection("hmget", -3, READONLY | FAST, |call, key, hint, args| {
        call.ask_words(key, hint, args, Ask::Value)
    })
    .weighs(Weighs::Elements(Elements::Named)).doc("2.0.0", "key field [field ...]", "The values of several fields."),
    Command::of_collection("hgetall", 2, READONLY, |call, key, hint, args| {
        all(call, "hgetall", key, hint, args, Shown::Fields)
    })
    .weighs(Weighs::Elements(Elements::AllFields)).doc("2.0.0", "key", "All fields with their values."),
    Command::of_collection("hkeys", 2, READONLY, |call, key, hint, args| {
        all(call, "hkeys", key, hint, args, Shown::Names)
    })
    .weighs(Weighs::Elements(Elements::AllNames)).doc("2.0.0", "key", "All fields."),
    Command::of_collection("hvals", 2, READONLY, |call, key, hint, args| {
        all(call, "hvals", key, hint, args, Shown::Values)
    })
    .weighs(Weighs::Elements(Elements::AllFields)).doc("2.0.0", "key", "The values of all fields."),
    Command::of_collection("hdel", -3, WRITE | FAST | IN_PARTS, |call, key, _, args| {
        call.write_words("hdel", key, args, Write::Drop, false)
    })
    .tells(told("hdel"))
    .access(&[Access::Reduce])
    .weighs(DROPS)
    .doc("2.0.0", "key field [field ...]", "Removes fields; how many were there."),
    Command::of_collection("hexists", 3, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        let there = look(call, key, hint, Type::Hash, |hash| hash.has(args.at(0).unwrap_or_default()))?;
        call.integer(i64::from(there.unwrap_or(false)))
    })
    .access(&[Access::Look])
    .doc("2.0.0", "key field", "Whether a field is there."),
    Command::of_collection("hlen", 2, READONLY | FAST, count)
        .access(&[Access::Look])
        .weighs(Weighs::Elements(Elements::FieldCount)).doc("2.0.0", "key", "How many fields there are."),
    Command::of_collection("hstrlen", 3, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        let value = look(call, key, hint, Type::Hash, |hash| {
            hash.field(args.at(0).unwrap_or_default()).map(|value| value.len())
        })?;
        call.length(value.flatten().unwrap_or(0))
    })
    .access(&[Access::Look])
    .doc("3.2.0", "key field", "Bytes of a field's value."),
    Command::of_collection("hincrby", 4, WRITE | DENYOOM | FAST | WEIGHTLESS, add)
        .tells(told("hincrby"))
        .access(&[Access::Change])
        .doc("2.0.0", "key field increment", "Adds to the number in a field."),
    Command::of_collection("hincrbyfloat", 4, WRITE | DENYOOM | FAST | WEIGHTLESS, add_float)
        .tells(told("hincrbyfloat"))
        .access(&[Access::Change])
        .doc("2.6.0", "key field increment", "Adds to the number with a fraction in a field.").doubles(&["increment"]),
    Command::of_collection("hrandfield", -2, READONLY, |call, key, hint, args| {
        random(call, "hrandfield", key, hint, args, Type::Hash, Some(("WITHVALUES", Shown::Fields)))
    })
    .weighs(Weighs::Elements(Elements::PickFields)).doc("6.2.0", "key [count [WITHVALUES]]", "Fields at random."),
    Command::of_collection("hscan", -3, READONLY, |call, key, hint, args| {
        scan(call, key, hint, args, Type::Hash)
    })
    .weighs(Weighs::Elements(Elements::ScanFields)).doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Some of the fields, and where to go on.",
    ),
    Command::of_collection("hgetdel", -5, WRITE | FAST, |call, key, _, args| fields::take(call, key, args))
        .tells(Tells::Nothing)
        .access(&[Access::Take])
        .weighs(Weighs::Elements(Elements::NamedBehind)).doc("8.0.0", "key FIELDS numfields field [field ...]", "Removes fields and returns what they had."),
    Command::of_collection("hgetex", -5, WRITE | FAST, |call, key, _, args| fields::get(call, key, args))
        .tells(Tells::Nothing)
        .access(&[Access::Change])
        .weighs(Weighs::Elements(Elements::NamedBehind)).doc(
            "8.0.0",
            "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST] FIELDS numfields field [field ...]",
            "The values of fields, and sets when these expire.",
        ),
    Command::of_collection("hsetex", -6, WRITE | DENYOOM | FAST, |call, key, _, args| {
        fields::set(call, key, args)
    })
    .tells(Tells::Nothing)
    .uploads(Uploads::FieldBehind)
    .weighs(SETS_BEHIND)
    .doc(
        "8.0.0",
        "key [FNX|FXX] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL] FIELDS numfields field value [field value ...]",
        "Sets fields and when they expire.",
    ),
    expire_row("hexpire", |call, key, _, args| {
        fields::expire(call, ("hexpire", Clock::Seconds), key, args)
    })
    .doc(
        "7.4.0",
        "key seconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Has fields expire in so many seconds.",
    ),
    expire_row("hpexpire", |call, key, _, args| {
        fields::expire(call, ("hpexpire", Clock::Milliseconds), key, args)
    })
    .doc(
        "7.4.0",
        "key milliseconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Has fields expire in so many milliseconds.",
    ),
    expire_row("hexpireat", |call, key, _, args| {
        fields::expire(call, ("hexpireat", Clock::UnixSeconds), key, args)
    })
    .doc(
        "7.4.0",
        "key unix-time-seconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Has fields expire at a time in seconds.",
    ),
    expire_row("hpexpireat", |call, key, _, args| {
        fields::expire(call, ("hpexpireat", Clock::UnixMilliseconds), key, args)
    })
    .doc(
        "7.4.0",
        "key unix-time-milliseconds [NX|XX|GT|LT] FIELDS numfields field [field ...]",
        "Has fields expire at a time in milliseconds.",
    ),
    Command::of_collection("httl", -5, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        fields::ttl(call, Clock::Seconds, key, hint, args)
    })
    .doc("7.4.0", "key FIELDS numfields field [field ...]", "Seconds until fields expire."),
    Command::of_collection("hpttl", -5, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        fields::ttl(call, Clock::Milliseconds, key, hint, args)
    })
    .doc("7.4.0", "key FIELDS numfields field [field ...]", "Milliseconds until fields expire."),
    Command::of_collection("hexpiretime", -5, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        fields::ttl(call, Clock::UnixSeconds, key, hint, args)
    })
    .doc("7.4.0", "key FIELDS numfields field [field ...]", "When fields expire, in seconds."),
    Command::of_collection("hpexpiretime", -5, READONLY | FAST | WEIGHTLESS, |call, key, hint, args| {
        fields::ttl(call, Clock::UnixMilliseconds, key, hint, args)
    })
    .doc("7.4.0", "key FIELDS numfields field [field ...]", "When fields expire, in milliseconds."),
    Command::of_collection("hpersist", -5, WRITE | FAST, |call, key, _, args| {
        fields::persist(call, key, args)
    })
    .tells(Tells::Nothing)
    .weighs(DROPS_BEHIND)
    .doc("7.4.0", "key FIELDS numfields field [field ...]", "Has fields expire no more."),
];

/// Fields with values behind them.
const SETS: Weighs = Weighs::Elements(Elements::WriteFields { behind: false, pairs: true });
/// The same behind options.
const SETS_BEHIND: Weighs = Weighs::Elements(Elements::WriteFields { behind: true, pairs: true });
/// Fields that go.
const DROPS: Weighs = Weighs::Elements(Elements::WriteFields { behind: false, pairs: false });
/// The same behind options.
const DROPS_BEHIND: Weighs = Weighs::Elements(Elements::WriteFields { behind: true, pairs: false });

/// HEXPIRE and its kin.
const fn expire_row(name: &'static str, run: OfKey) -> Definition {
    Command::of_collection(name, -6, WRITE | FAST, run).tells(Tells::Nothing).weighs(DROPS_BEHIND)
}

const fn told(name: &'static str) -> Tells {
    Tells::Each(Change::of(Class::Hash, name))
}

/// HSET, HMSET
fn set(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    args: Args<'_>,
    says_ok: bool,
) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::arity(name));
    }
    if let Some(value) = call.client.received.take() {
        call.spend_on_linking(&value);
        let before = (args.len() / 2).saturating_sub(1);
        let field = args.at(2 * before).unwrap_or_default();
        let new = call.cx.guard.hash_set_upload_behind(key, Pairs(args).take(before), field, *value)?;
        return if says_ok { call.ok() } else { call.length(new) };
    }
    call.write_words(name, key, args, Write::Set(Lasting::Never), says_ok)
}

/// HSETNX
fn set_new(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let (field, value) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    if let Some(received) = call.client.received.take() {
        call.spend_on_linking(&received);
        let new = call.cx.guard.hash_set_upload(key, field, *received, true)?;
        return call.integer(i64::from(new.unwrap_or(false)));
    }
    let new = call.cx.guard.hash_insert(key, field, value)?;
    call.spend_on_bytes(value.len());
    call.integer(i64::from(new))
}

/// HLEN
fn count(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let there = read_as(call.cx, call.tally, key, hint, Type::Hash)?.map(|hash| (hash.len(), hash.is_due()));
    match there {
        Some((_, true)) => loop {
            if call.take_due("hlen", key, args)? {
                return Ok(());
            }
            let hash = peek_as(&mut call.cx.guard, key, Type::Hash)?;
            // A worker whose clock is ahead may have begun with the next ones.
            let (fields, more) = hash.map_or((0, false), |hash| (hash.len(), hash.is_due()));
            if !more {
                return call.length(fields);
            }
        },
        there => call.length(there.map_or(0, |(fields, _)| fields)),
    }
}

/// HGET
fn get(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let field = args.at(0).unwrap_or_default();
    let hash = read_as(call.cx, call.tally, key, hint, Type::Hash)?;
    let Some(hash) = hash else {
        put_null(call.out, call.client.resp3);
        return Ok(());
    };
    match hash.field(field) {
        Some(Element::Apart(apart)) => {
            let bytes = apart.len();
            call.reply_apart(key, Type::Hash, bytes, |hash| hash.field(field))
        }
        Some(value) => {
            put_element(call.out, &value);
            Ok(())
        }
        None => {
            put_null(call.out, call.client.resp3);
            Ok(())
        }
    }
}

/// HGETALL, HKEYS, HVALS
fn all(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    hint: &Hint<'_>,
    args: Args<'_>,
    shown: Shown,
) -> Done {
    let form = if shown == Shown::Fields { Form::Map } else { Form::Rows };
    call.list(
        name,
        key,
        hint,
        args,
        Listed { kind: Type::Hash, shown, form, which: Which::All, takes: false, soonest: 0 },
    )
}

/// HINCRBY
fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let field = args.next().unwrap_or_default();
    let by = integer(args.next().unwrap_or_default())?;
    let mut new = 0;
    call.cx.guard.hash_update(key, field, |old| {
        let old = old.map_or(Some(0), |old| old.number());
        let old = old.ok_or(Fail::of("ERR hash value is not an integer"))?;
        new = old.checked_add(by).ok_or(Fail::OVERFLOW)?;
        let mut text = ArrayVec::from([0; DIGITS_MAX]);
        let digits = write_integer(&mut text, new);
        text.truncate(digits);
        Ok::<_, Fail>(text)
    })?;
    call.integer(new)
}

/// A number as text.
struct Text(Digits);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

const NO_FLOAT: Fail = Fail::of("ERR hash value is not a float");

/// HINCRBYFLOAT
fn add_float(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let field = args.next().unwrap_or_default();
    let by = args.next().unwrap_or_default();
    if !parse_double_or_zero(by).ok_or(Fail::NOT_A_FLOAT)?.is_finite() {
        return Err(Fail::of("ERR value is NaN or Infinity"));
    }
    let new = call.cx.guard.hash_update(key, field, |old| {
        let old = old.unwrap_or(Element::Number(0));
        if matches!(old, Element::Apart(_)) {
            return Err(NO_FLOAT);
        }
        match sum(old.text(&mut [0; DIGITS_MAX]), by) {
            // What is added is one.
            Err(fail) if fail == Fail::NOT_A_FLOAT => Err(NO_FLOAT),
            sum => sum.map(Text),
        }
    })?;
    call.bulk(new.as_ref())
}
