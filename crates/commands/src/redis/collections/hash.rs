//! Hashes.

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, parse_double, write_integer};
use larder_store::{Collection, DIGITS_MAX, Element, Hint, Key, Type};
use smallvec::SmallVec;

use super::listing::{Form, Listed, Which};
use super::pick::random;
use super::scan::scan;
use super::words::{Ask, WRITES_AT_ONCE, Write, first};
use super::{Call, ELEMENT_ROOM, Shown, len, look, peek_as, put_element, read_as};
use crate::core::events::{Change, Class};
use crate::core::output::Output;
use crate::redis::call::{has_room, integer, is};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_fail, put_null};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
use crate::redis::strings::float::{Digits, sum};
use crate::redis::strings::source::Name;
use crate::redis::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::redis::table::{self, Access, Command, Tells};

pub(crate) const ROWS: &[Command] = &[
    Command::of_collection("hset", -4, WRITE | DENYOOM | FAST, |call, key, _, args| {
        set(call, "hset", key, args, false)
    })
    .tells(told("hset"))
    .doc("2.0.0", "key field value [field value ...]", "Sets fields; how many were not there."),
    Command::of_collection("hmset", -4, WRITE | DENYOOM | FAST, |call, key, _, args| {
        set(call, "hmset", key, args, true)
    })
    .tells(told("hset"))
    .doc("2.0.0", "key field value [field value ...]", "Sets fields."),
    Command::of_collection("hsetnx", 4, WRITE | DENYOOM | FAST, set_new)
        .tells(told("hset"))
        .access(&[Access::Extend])
        .doc("2.0.0", "key field value", "Sets a field that is not there."),
    Command::of_collection("hget", 3, READONLY | FAST, get).doc(
        "2.0.0",
        "key field",
        "The value of a field.",
    ),
    Command::of_collection("hmget", -3, READONLY | FAST, |call, key, hint, args| {
        call.ask_words(key, hint, args, Ask::Value)
    })
    .doc("2.0.0", "key field [field ...]", "The values of several fields."),
    Command::of_collection("hgetall", 2, READONLY, |call, key, hint, args| {
        all(call, "hgetall", key, hint, args, Shown::Fields)
    })
    .doc("2.0.0", "key", "All fields with their values."),
    Command::of_collection("hkeys", 2, READONLY, |call, key, hint, args| {
        all(call, "hkeys", key, hint, args, Shown::Names)
    })
    .doc("2.0.0", "key", "All fields."),
    Command::of_collection("hvals", 2, READONLY, |call, key, hint, args| {
        all(call, "hvals", key, hint, args, Shown::Values)
    })
    .doc("2.0.0", "key", "The values of all fields."),
    Command::of_collection("hdel", -3, WRITE | FAST, |call, key, _, args| {
        call.write_words("hdel", key, args, Write::Remove(Type::Hash), false)
    })
    .tells(told("hdel"))
    .access(&[Access::Reduce])
    .doc("2.0.0", "key field [field ...]", "Removes fields; how many were there."),
    Command::of_collection("hexists", 3, READONLY | FAST, |call, key, hint, args| {
        let there = look(call, key, hint, Type::Hash, |hash| hash.has(args.at(0).unwrap_or_default()))?;
        call.integer(i64::from(there.unwrap_or(false)))
    })
    .access(&[Access::Look])
    .doc("2.0.0", "key field", "Whether a field is there."),
    Command::of_collection("hlen", 2, READONLY | FAST, |call, key, hint, _| len(call, key, hint, Type::Hash))
        .access(&[Access::Look])
        .doc("2.0.0", "key", "How many fields there are."),
    Command::of_collection("hstrlen", 3, READONLY | FAST, |call, key, hint, args| {
        let value = look(call, key, hint, Type::Hash, |hash| {
            hash.field(args.at(0).unwrap_or_default()).map(|value| value.len())
        })?;
        call.length(value.flatten().unwrap_or(0))
    })
    .access(&[Access::Look])
    .doc("3.2.0", "key field", "Bytes of a field's value."),
    Command::of_collection("hincrby", 4, WRITE | DENYOOM | FAST, add)
        .tells(told("hincrby"))
        .access(&[Access::Change])
        .doc("2.0.0", "key field increment", "Adds to the number in a field."),
    Command::of_collection("hincrbyfloat", 4, WRITE | DENYOOM | FAST, add_float)
        .tells(told("hincrbyfloat"))
        .access(&[Access::Change])
        .doc("2.6.0", "key field increment", "Adds to the number with a fraction in a field."),
    Command::of_collection("hrandfield", -2, READONLY, |call, key, hint, args| {
        random(call, "hrandfield", key, hint, args, Type::Hash, Some(("WITHVALUES", Shown::Fields)))
    })
    .doc("6.2.0", "key [count [WITHVALUES]]", "Fields at random."),
    Command::of_collection("hscan", -3, READONLY, |call, key, hint, args| {
        scan(call, key, hint, args, Type::Hash)
    })
    .doc(
        "2.8.0",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Some of the fields, and where to go on.",
    ),
    Command::of_collection("hgetdel", -5, WRITE | FAST, take)
        .tells(told("hdel"))
        .access(&[Access::Take])
        .doc("8.0.0", "key FIELDS numfields field [field ...]", "Removes fields and returns what they had."),
];

/// Fields of a hash of which something is noted without memory of its own.
const FIELDS_HERE: usize = 64;

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
    call.write_words(name, key, args, Write::Set, says_ok)
}

/// HSETNX
fn set_new(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let (field, value) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let new = call.cx.guard.hash_insert(key, field, value)?;
    call.integer(i64::from(new))
}

/// The value of a field, or that there is none.
fn put_field(out: &mut Output, resp3: bool, hash: Option<&Collection<'_>>, field: &[u8]) {
    match hash.and_then(|hash| hash.field(field)) {
        Some(value) => put_element(out, &value),
        None => put_null(out, resp3),
    }
}

/// HGET
fn get(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    let hash = read_as(call.cx, call.tally, key, hint, Type::Hash)?;
    put_field(call.out, call.client.resp3, hash.as_ref(), args.at(0).unwrap_or_default());
    Ok(())
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
        Listed { kind: Type::Hash, shown, form, which: Which::All, takes: false },
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

/// HINCRBYFLOAT
fn add_float(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let field = args.next().unwrap_or_default();
    let by = args.next().unwrap_or_default();
    if !parse_double(by).ok_or(Fail::NOT_A_FLOAT)?.is_finite() {
        return Err(Fail::of("ERR value is NaN or Infinity"));
    }
    let new = call.cx.guard.hash_update(key, field, |old| {
        let old = old.unwrap_or(Element::Number(0));
        match sum(old.text(&mut [0; DIGITS_MAX]), by) {
            // What is added is one.
            Err(fail) if fail == Fail::NOT_A_FLOAT => Err(Fail::of("ERR hash value is not a float")),
            sum => sum.map(Text),
        }
    })?;
    call.bulk(new.as_ref())
}

/// HGETDEL
fn take(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    if !is(args.next().unwrap_or_default(), "FIELDS") {
        return Err(Fail::of("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = integer(args.next().unwrap_or_default()).ok().filter(|count| *count > 0);
    let count = count.ok_or(Fail::of("ERR Number of fields must be a positive integer"))?;
    if usize::try_from(count) != Ok(args.len()) {
        return Err(Fail::of("ERR The `numfields` parameter must match the number of arguments"));
    }
    let (mark, whole) = (call.out.mark(), call.cx.guard.in_transaction());
    put_array(call.out, args.len());
    let mut taken = 0;
    while !args.is_empty() && (whole || taken == 0) {
        let most =
            if args.len() <= WRITES_AT_ONCE || whole { WRITES_AT_ONCE } else { call.writes_of_a_step() };
        let fields = first(&mut args, most);
        let ends = args.is_empty() || whole;
        let kept = if ends { Ok(None) } else { keep(call, key, args).map(Some) };
        let kept = kept.and_then(|kept| {
            take_fields(call, key.bytes(), fields)?;
            Ok(kept)
        });
        taken += fields.len();
        call.spend_on_writes(fields.len());
        if let Some((name, kept)) = kept.inspect_err(|_| call.out.rewind(mark))?
            && let Some((row, _)) = table::find(b"hgetdel")
        {
            call.go_on_with(Taking { row, name, kept });
            return Ok(());
        }
    }
    Ok(())
}

/// The key, and the fields that are still to be taken.
fn keep(call: &mut Call<'_, '_, '_>, key: &Key<'_>, fields: Args<'_>) -> Result<(Name, Kept), Fail> {
    let kept = Kept::new(call, fields)?;
    Ok((Name::kept(call, key.bytes())?, kept))
}

/// Removes fields, no more than [`WRITES_AT_ONCE`], and replies what each had, as one moment.
fn take_fields(call: &mut Call<'_, '_, '_>, name: &[u8], fields: Args<'_>) -> Done {
    call.as_one_with_room([name], |call| {
        let key = call.key(name);
        let hash = peek_as(&mut call.cx.guard, &key, Type::Hash)?;
        let bytes = |field| hash.as_ref().and_then(|hash| hash.field(field)).map_or(0, |value| value.len());
        let bytes = fields.map(|field| bytes(field) + ELEMENT_ROOM).sum();
        if !has_room(call.out, bytes) {
            return Ok(Some(bytes));
        }
        let mark = call.out.mark();
        let mut taken = SmallVec::<[usize; FIELDS_HERE]>::new();
        for field in fields {
            let there = hash.as_ref().and_then(|hash| Some((hash, hash.find(field)?)));
            // What is taken twice is there once.
            match there.filter(|(_, i)| !taken.contains(i)) {
                Some((hash, i)) => {
                    taken.push(i);
                    put_element(call.out, &hash.entry(i).value);
                }
                None => put_null(call.out, call.client.resp3),
            }
        }
        let gone = call.cx.guard.remove_named(&key, Type::Hash, fields);
        gone.inspect_err(|_| call.out.rewind(mark))?;
        Ok(None)
    })
}

/// HGETDEL that has taken some of its fields.
#[derive(Debug)]
struct Taking {
    row: &'static Command,
    name: Name,
    kept: Kept,
}

impl Job for Taking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Taking { row, name, kept } = self;
        let most = call.writes_of_a_step();
        kept.take(|words| {
            let fields = first(words, most);
            let key = name.key(call);
            let done = call.tell_around_key(row, key.bytes(), |call| take_fields(call, key.bytes(), fields));
            if let Err(fail) = done {
                // It is there still: said in place of each.
                fields.for_each(|_| put_fail(call.out, &fail));
            }
            call.spend_on_writes(fields.len());
        });
        Ok(match self.kept.left() {
            0 => Step::Done,
            _ if call.out.is_full() => Step::Full,
            _ => Step::More,
        })
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
