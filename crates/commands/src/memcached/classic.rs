//! The classic commands on items, in their words.

mod store;

use larder_protocol::classic::Store;
use larder_protocol::number::{U64_BYTES_MAX, write_u64};
use larder_store::{Hint, Key};

pub(crate) use self::store::{append, attributes, expect, outcome};
use super::text::{END, NO_MEMORY, NOT_A_NUMBER, put_value};
use super::time::expires_at;
use super::verbs::{self, Arithmetic, Changed, Fetched, InSteps, Outcome, Removed, Touched};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;

/// get, gets: one key of the line. False, and no reply, if there is no memory to send the value from.
#[inline]
#[must_use]
pub fn fetch(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    cas: bool,
    last: bool,
) -> bool {
    let settings = &cx.shared.settings;
    if let Some(item) = verbs::fetch(cx, tally, key, hint) {
        let token = cas.then(|| settings.token(item.cas()));
        return put_value(out, key.bytes(), &item, token, last);
    }
    if last {
        out.put(END);
    }
    true
}

/// gat, gats: one key of the line. False as for [`fetch`]; then the item was not touched.
#[must_use]
pub fn fetch_and_touch(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    key: &Key<'_>,
    cas: bool,
    exptime: i32,
    last: bool,
) -> bool {
    let settings = &cx.shared.settings;
    let mark = out.mark();
    let told = verbs::fetch_and_touch(
        cx,
        key,
        |now| expires_at(exptime, now),
        |item| {
            let token = cas.then(|| settings.token(item.cas()));
            put_value(out, key.bytes(), item, token, last)
        },
    );
    match told {
        Fetched::Done => {}
        Fetched::Absent if last => out.put(END),
        Fetched::Absent => {}
        Fetched::NoMemory => {
            out.rewind(mark);
            return false;
        }
    }
    true
}

/// set, add, replace, append, prepend, cas with the whole value at hand.
///
/// # Errors
/// For append and prepend alone: the value is to be added in steps.
#[inline]
pub fn store(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    store: &Store<'_>,
    value: &[u8],
) -> Result<(), InSteps> {
    if let Some(outcome) = store::store(cx, out, tally, key, hint, store, value)? {
        put_stored(out, outcome, store.noreply);
    }
    Ok(())
}

/// append, prepend of bytes that were gathered: the prefix was counted when their line came.
///
/// # Errors
/// It is to be done in steps.
pub fn add(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    store: &Store<'_>,
    value: &[u8],
) -> Result<(), InSteps> {
    if let Some(outcome) = store::store_if(cx, out, tally, key, store, value)? {
        put_stored(out, outcome, store.noreply);
    }
    Ok(())
}

/// Writes the classic reply of a store.
#[inline]
pub fn put_stored(out: &mut Output, outcome: Outcome, noreply: bool) {
    if !noreply {
        out.put(stored_reply(outcome));
    }
}

/// The classic reply of a store.
#[inline]
pub fn stored_reply(outcome: Outcome) -> &'static [u8] {
    match outcome {
        Outcome::Stored { .. } => b"STORED\r\n",
        Outcome::NotStored => b"NOT_STORED\r\n",
        Outcome::Exists => b"EXISTS\r\n",
        Outcome::NotFound => b"NOT_FOUND\r\n",
        Outcome::NoMemory => NO_MEMORY,
    }
}

/// delete
pub fn delete(cx: &mut Context<'_, '_>, out: &mut Output, key: &Key<'_>, noreply: bool) {
    let reply: &[u8] = match verbs::delete(cx, key) {
        Removed::Done => b"DELETED\r\n",
        Removed::Absent | Removed::OtherCas => b"NOT_FOUND\r\n",
        Removed::NoMemory => NO_MEMORY,
    };
    if !noreply {
        out.put(reply);
    }
}

/// touch
pub fn touch(cx: &mut Context<'_, '_>, out: &mut Output, key: &Key<'_>, exptime: i32, noreply: bool) {
    let reply: &[u8] = match verbs::touch(cx, key, exptime) {
        Touched::Done => b"TOUCHED\r\n",
        Touched::Absent => b"NOT_FOUND\r\n",
        Touched::NoMemory => NO_MEMORY,
    };
    if !noreply {
        out.put(reply);
    }
}

/// incr, decr
pub fn arithmetic(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    key: &Key<'_>,
    delta: u64,
    decrement: bool,
    noreply: bool,
) {
    let by = Arithmetic { delta, decrement, expect_cas: None, cas: None, expires_at: None };
    let mut room = [0; U64_BYTES_MAX + 2];
    let reply: &[u8] = match verbs::change(cx, key, &by) {
        Changed::Done { value, .. } => {
            let digits = write_u64(&mut room, value);
            room[digits..digits + 2].copy_from_slice(b"\r\n");
            &room[..digits + 2]
        }
        Changed::Absent | Changed::OtherCas => {
            verbs::count_no_number(cx, decrement);
            b"NOT_FOUND\r\n"
        }
        Changed::NotANumber => NOT_A_NUMBER,
        Changed::NoMemory if cx.asks_again(out) => return,
        Changed::NoMemory => NO_MEMORY,
    };
    if !noreply {
        out.put(reply);
    }
}
