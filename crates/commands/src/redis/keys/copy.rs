//! RENAME, COPY, MOVE, SWAPDB: values that get another key or database.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Guard, Key, Pinned, Refusal, Stored, Value, WATCHES_SWAPPED_MAX};

use crate::core::events::{Change, Class};
use crate::core::work::copying_ns;
use crate::redis::call::{Call, database, database_or, is, kept, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::keys::copying;
use crate::redis::row::Tells;
use crate::redis::strings::making::{Carry, carry};

/// Bytes that are copied of a collection that leaves its key, at most, about.
pub(crate) const LEAF_BYTES_MAX: u64 = 48 << 10;
/// The time to have a watch of a key follow the name of its database.
const WATCH_NS: u64 = 1_300;

/// Copies a value, and what goes with it, to a key that has no value or may lose it, and spends the time for that. `leaves`: the
/// value is to leave its key; a collection does so at once. False if there is nothing to copy, or something in the way.
fn copy_to(
    call: &mut Call<'_, '_, '_>,
    from: &Key<'_>,
    to: &Key<'_>,
    replace: bool,
    leaves: bool,
) -> Result<bool, Fail> {
    let expect = if replace { Expect::Any } else { Expect::Absent };
    let guard = &mut call.cx.guard;
    let Some(item) = guard.peek(from).hit() else { return Ok(false) };
    let attributes = kept(&item);
    let copied_bytes = if leaves && item.is_collection() {
        // A tree leaves with its root.
        item.item_bytes().min(LEAF_BYTES_MAX)
    } else {
        item.item_bytes()
    };
    call.cx.room.work().spend(copying_ns(copied_bytes));
    let done = match item.value() {
        Value::Whole(value) => {
            let mut bytes = call.cx.room.lend();
            bytes.clear();
            bytes.extend_from_slice(value);
            let done = guard.store_value(to, &bytes, &attributes, expect);
            call.cx.room.take_back(bytes);
            done
        }
        Value::Pieces(value) => {
            let pinned = value.pin();
            copy_pinned(guard, &pinned, to, &attributes, expect)
        }
        Value::Collection(_) if leaves => guard.collection_carry(from, to, expect)?,
        Value::Collection(_) => guard.collection_copy(from, to, expect)?,
    };
    match done {
        Err(Refusal::NoMemory) => Err(Fail::OUT_OF_MEMORY),
        done => Ok(done.is_ok()),
    }
}

/// Copies a large value, piece by piece.
fn copy_pinned(
    guard: &mut Guard<'_>,
    value: &Pinned,
    to: &Key<'_>,
    attributes: &Attributes,
    expect: Expect,
) -> Result<Stored, Refusal> {
    if 2 * value.value_bytes() > guard.store().memory_bytes() {
        // There is never room for both: it is refused without a try.
        return Err(Refusal::NoMemory);
    }
    if expect == Expect::Absent && guard.peek(to).hit().is_some() {
        return Err(Refusal::Present);
    }
    let mut upload = guard.compose(to, value.value_bytes(), attributes)?;
    for piece in value.pieces(0) {
        guard.upload_fill(&mut upload, piece)?;
    }
    guard.publish(upload, expect)
}

/// The events of RENAME, at both keys.
pub(crate) const RENAMED: Tells =
    Tells::Each(Change { gone: (Class::Generic, "rename_from"), ..Change::made("rename_to") });

/// The events of MOVE, at the key in the old database and in the new one.
pub(crate) const MOVED: Tells = Tells::Moved(Change { gone: (Class::Generic, "move_from"), ..Change::SET });

/// Serves RENAME and, with `only_new`, RENAMENX.
pub(crate) fn rename(call: &mut Call<'_, '_, '_>, mut args: Args<'_>, only_new: bool) -> Done {
    let (words, db) = (args, call.client.db);
    let (from, to) = (next(&mut args)?, next(&mut args)?);
    let (from, to) = (call.key(from), call.key(to));
    let (name, reply): (_, &[u8]) = if only_new { ("renamenx", b":1\r\n") } else { ("rename", b"+OK\r\n") };
    if carry(call, name, words, &Carry { from: (db, from), to: (db, to), only_new, removes: true, reply })? {
        return Ok(());
    }
    let moved = call.as_one([from, to], |call| {
        if call.cx.guard.peek(&from).hit().is_none() {
            return Err(Fail::NO_SUCH_KEY);
        }
        if from.bytes() == to.bytes() {
            return Ok(!only_new);
        }
        let copied = copy_to(call, &from, &to, !only_new, true)?;
        if copied {
            let _ = call.cx.guard.delete(&from, Expect::Present);
        }
        Ok(copied)
    })?;
    if only_new { call.integer(i64::from(moved)) } else { call.ok() }
}

/// Serves COPY.
pub(crate) fn copy(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let words = args;
    let (from, to) = (next(&mut args)?, next(&mut args)?);
    let mut db = call.client.db;
    let mut replace = false;
    while let Some(word) = args.next() {
        if is(word, "REPLACE") {
            replace = true;
        } else if is(word, "DB") {
            db = database(next(&mut args)?)?;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    if db == call.client.db && from == to {
        return Err(Fail::of("ERR source and destination objects are the same"));
    }
    let (from, to) = (call.key(from), call.cx.guard.key_in(db, to));
    let (places, reply) = ((call.client.db, from), b":1\r\n");
    if carry(
        call,
        "copy",
        words,
        &Carry { from: places, to: (db, to), only_new: !replace, removes: false, reply },
    )? {
        return Ok(());
    }
    if copying::begin(call, words, (from, to), (db, replace))? {
        return Ok(());
    }
    let copied = call.as_one([from, to], |call| copy_to(call, &from, &to, replace, false))?;
    call.integer(i64::from(copied))
}

/// Serves MOVE.
pub(crate) fn move_to(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let words = args;
    let name = next(&mut args)?;
    let db = database(next(&mut args)?)?;
    if db == call.client.db {
        return Err(Fail::of("ERR source and destination objects are the same"));
    }
    let (from, to) = (call.key(name), call.cx.guard.key_in(db, name));
    let (places, reply) = ((call.client.db, from), b":1\r\n");
    if carry(
        call,
        "move",
        words,
        &Carry { from: places, to: (db, to), only_new: true, removes: true, reply },
    )? {
        return Ok(());
    }
    let moved = call.as_one([from, to], |call| {
        let copied = copy_to(call, &from, &to, false, true)?;
        if copied {
            let _ = call.cx.guard.delete(&from, Expect::Present);
        }
        Ok::<_, Fail>(copied)
    })?;
    call.integer(i64::from(moved))
}

/// The time for SWAPDB to move the watches of two databases; none if these are too many, so that it will be refused.
pub(crate) fn swapping_ns(call: &Call<'_, '_, '_>, one: u8, other: u8) -> Option<u64> {
    let store = call.cx.guard.store();
    let watches = if one == other { 0 } else { store.watches_in(one) + store.watches_in(other) };
    (watches <= WATCHES_SWAPPED_MAX).then_some(watches * WATCH_NS)
}

/// Serves SWAPDB.
pub(crate) fn swap(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    const FIRST: Fail = Fail::of("ERR invalid first DB index");
    const SECOND: Fail = Fail::of("ERR invalid second DB index");
    // That a word is no number is said before that another is out of range.
    let (one, two) = (next(&mut args)?, next(&mut args)?);
    let one = database_or(one, FIRST, FIRST);
    if one == Err(FIRST) {
        return Err(FIRST);
    }
    let two = database_or(two, SECOND, SECOND)?;
    let one = one?;
    let ns = swapping_ns(call, one, two).unwrap_or(0);
    if !call.cx.guard.swap_databases(one, two) {
        return Err(Fail::of("ERR too many keys of these databases are watched or waited for"));
    }
    call.spend(ns);
    call.ok()
}
