//! mg: replies what its flags ask about an item, and may touch it, or make one that is not there.

use larder_protocol::Fault;
use larder_protocol::meta::Flags;
use larder_protocol::number::{U64_BYTES_MAX, write_u64};
use larder_protocol::reply::copy;
use larder_store::{Attributes, Expect, Hint, Item, Key, Lookup, Millis, Refusal, Value};

use super::reply::{ReplyKey, put_key_flag, put_number_flag, put_opaque_flag, put_status};
use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::output::Output;
use crate::core::shared::Settings;
use crate::core::tally::Tally;
use crate::memcached::text::{NO_MEMORY, NO_MEMORY_FOR_REPLY, put_data};
use crate::memcached::time::{expires_at, seconds_left};

/// The numbers an mg was given.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    vivify: Option<i32>,
    recache: Option<i32>,
    touch: Option<i32>,
    compare: Option<u64>,
    cas: Option<u64>,
}

impl Given {
    fn parse(flags: &Flags<'_>) -> Result<Given, Fault> {
        flags.opaque()?;
        Ok(Given {
            vivify: flags.exptime(b'N')?,
            recache: flags.exptime(b'R')?,
            touch: flags.exptime(b'T')?,
            compare: flags.number(b'C')?,
            cas: flags.version()?,
        })
    }
}

/// Marks of a hit: the item's version, and the right to recache.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// The token, as it is shown.
    cas: u64,
    /// Z: another client was asked to recache.
    sent: bool,
    /// X: the item is stale.
    stale: bool,
    /// W: this one is asked to recache.
    won: bool,
}

/// mg
#[inline]
pub fn get(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    flags: &Flags<'_>,
) {
    tally.metas += 1;
    if !(flags.is_only(b'v') || flags.is_empty()) || !get_plain(cx, out, tally, key, hint, flags) {
        get_with_flags(cx, out, tally, key, flags);
    }
}

/// The usual mg: no flag or only v, and an item that is neither stale nor waiting for its recache.
/// False, with nothing written or counted, if it is something else.
#[inline]
fn get_plain(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    flags: &Flags<'_>,
) -> bool {
    let lookup = cx.guard.get_hinted(key, hint);
    let Lookup::Hit(item) = lookup else { return false };
    if item.stale() || item.token_sent() || item.is_collection() {
        return false;
    }
    tally.gets += 1;
    tally.get_hits += 1;
    cx.counters.count_in(item.class(), ClassCounter::GetHits);
    if flags.is_empty() {
        out.put(b"HD\r\n");
    } else {
        put_found(out, &item);
    }
    true
}

/// `VA <bytes>` and the value, without flags.
#[inline]
fn put_found(out: &mut Output, item: &Item<'_>) {
    let Value::Whole(value) = item.value() else {
        let mark = out.mark();
        put_size(out, item.value_bytes());
        out.put(b"\r\n");
        if !put_data(out, item) {
            out.rewind(mark);
            out.put(NO_MEMORY_FOR_REPLY);
        }
        return;
    };
    let room = out.room(3 + U64_BYTES_MAX + 2 + value.len() + 2);
    *room.first_chunk_mut::<3>().expect("room for the line") = *b"VA ";
    let size = 3 + write_u64(&mut room[3..], value.len() as u64);
    let (end, rest) = room[size..].split_first_chunk_mut::<2>().expect("room for the line");
    *end = *b"\r\n";
    let (data, rest) = rest.split_at_mut(value.len());
    copy(data, value);
    *rest.first_chunk_mut::<2>().expect("room for the end") = *b"\r\n";
    out.filled(size + 2 + value.len() + 2);
}

/// `VA <bytes>`
#[inline]
fn put_size(out: &mut Output, value_bytes: u64) {
    let room = out.room(3 + U64_BYTES_MAX);
    room[..3].copy_from_slice(b"VA ");
    let bytes = 3 + write_u64(&mut room[3..], value_bytes);
    out.filled(bytes);
}

#[inline(never)]
fn get_with_flags(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    flags: &Flags<'_>,
) {
    let given = match Given::parse(flags) {
        Ok(given) => given,
        Err(fault) => return out.put(fault.reply()),
    };
    let now = cx.now();
    loop {
        let lookup = if flags.has(b'u') { cx.guard.peek(key) } else { cx.guard.get(key) };
        let why = match lookup {
            // For a client that asks for a string it is not there; nor is it made one.
            Lookup::Hit(item) if item.is_collection() => Some(Counter::TypeMisses),
            Lookup::Hit(item) => {
                let seen = item.seen();
                let class = item.class();
                let mut marks = marks(&cx.shared.settings, &item, &given, now);
                let expires = given.touch.map(|exptime| expires_at(exptime, now));
                let mark = out.mark();
                if !put_hit(out, &item, flags, &given, marks, now, expires) {
                    out.rewind(mark);
                    return out.put(NO_MEMORY_FOR_REPLY);
                }
                if marks.won && !cx.guard.claim_token(key, seen) {
                    // Another one won since, or the item is another: say so.
                    out.rewind(mark);
                    match cx.guard.peek(key) {
                        Lookup::Hit(item) if item.seen() == seen => {
                            marks = Marks { won: false, sent: true, ..marks };
                            if !put_hit(out, &item, flags, &given, marks, now, expires) {
                                out.rewind(mark);
                                return out.put(NO_MEMORY_FOR_REPLY);
                            }
                        }
                        Lookup::Hit(_) | Lookup::Miss | Lookup::Expired | Lookup::Flushed => continue,
                    }
                }
                match expires {
                    Some(at) => {
                        // An item that another worker removed since was still read before: the reply holds.
                        if let Err(Refusal::NoMemory) = cx.guard.touch(key, at) {
                            cx.counters.add(Counter::StoreNoMemory, 1);
                            out.rewind(mark);
                            return out.put(NO_MEMORY);
                        }
                        count_touch(cx, class);
                    }
                    None => {
                        tally.gets += 1;
                        tally.get_hits += 1;
                        cx.counters.count_in(class, ClassCounter::GetHits);
                    }
                }
                return;
            }
            Lookup::Miss => None,
            Lookup::Expired => Some(Counter::GetExpired),
            Lookup::Flushed => Some(Counter::GetFlushed),
        };
        if let Some(exptime) = given.vivify.filter(|_| why != Some(Counter::TypeMisses)) {
            match vivify(cx, out, key, flags, &given, exptime) {
                Err(Refusal::Present | Refusal::Changed | Refusal::Absent | Refusal::Type) => continue,
                Err(Refusal::NoMemory) => {
                    cx.counters.add(Counter::StoreNoMemory, 1);
                    out.put(NO_MEMORY);
                }
                Ok(class) if given.touch.is_some() => count_touch(cx, class),
                Ok(class) => {
                    tally.gets += 1;
                    tally.get_hits += 1;
                    cx.counters.count_in(class, ClassCounter::GetHits);
                }
            }
            return;
        }
        tally.gets += 1;
        cx.counters.add(Counter::GetMisses, 1);
        if let Some(why) = why {
            cx.counters.add(why, 1);
        }
        if !flags.has(b'q') {
            put_status(out, b"EN", flags, ReplyKey { bytes: key.bytes(), binary: flags.has(b'b') });
        }
        return;
    }
}

/// Counts a hit with T: as a touch, not as a get.
fn count_touch(cx: &Context<'_, '_>, class: u8) {
    cx.counters.add(Counter::CmdTouch, 1);
    cx.counters.add(Counter::TouchHits, 1);
    cx.counters.count_in(class, ClassCounter::TouchHits);
}

/// The marks of a hit. A stale item, or one about to expire, is recached by the first client that asks.
fn marks(settings: &Settings, item: &Item<'_>, given: &Given, now: Millis) -> Marks {
    let sent = item.token_sent();
    let stale = item.stale();
    let due = given.recache.is_some_and(|within| {
        item.expires_at() != 0 && (seconds_left(item.expires_at(), now) as i64) < i64::from(within)
    });
    Marks { cas: settings.token(item.cas()), sent, stale, won: !sent && (stale || due) }
}

/// Writes the reply to a hit. False, with a part of it written, if there is no memory to send the value from.
#[must_use]
fn put_hit(
    out: &mut Output,
    item: &Item<'_>,
    flags: &Flags<'_>,
    given: &Given,
    marks: Marks,
    now: Millis,
    touched: Option<Millis>,
) -> bool {
    let value = flags.has(b'v') && given.compare != Some(marks.cas);
    if value {
        put_size(out, item.value_bytes());
    } else {
        out.put(b"HD");
    }
    let mut expires = item.expires_at();
    for flag in flags.iter() {
        match flag.letter {
            b'T' => expires = touched.unwrap_or(expires),
            b't' if expires == 0 => out.put(b" t-1"),
            b't' => put_number_flag(out, b't', seconds_left(expires, now)),
            b's' => put_number_flag(out, b's', item.value_bytes()),
            b'c' => put_number_flag(out, b'c', marks.cas),
            b'f' => put_number_flag(out, b'f', u64::from(item.flags())),
            b'l' => put_number_flag(out, b'l', item.idle_s()),
            b'h' => put_number_flag(out, b'h', u64::from(item.fetched())),
            b'k' => put_key_flag(out, ReplyKey { bytes: item.key(), binary: item.key_binary() }),
            b'O' => put_opaque_flag(out, flag.token),
            _ => {}
        }
    }
    for (told, mark) in [(marks.sent, b" Z"), (marks.stale, b" X"), (marks.won, b" W")] {
        if told {
            out.put(mark);
        }
    }
    out.put(b"\r\n");
    !value || put_data(out, item)
}

/// Answers a miss with N: makes an empty item, and asks this client to fill it. Returns the item's slab class.
fn vivify(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    key: &Key<'_>,
    flags: &Flags<'_>,
    given: &Given,
    exptime: i32,
) -> Result<u8, Refusal> {
    let now = cx.now();
    let attributes = Attributes {
        expires_at: expires_at(exptime, now),
        cas: given.cas,
        key_binary: flags.has(b'b'),
        token_sent: true,
        ..Attributes::default()
    };
    let stored = cx.guard.store_value(key, b"", &attributes, Expect::Absent)?;
    if !flags.has(b'u') {
        // It is an access like any other: the next client's reply says that the item was fetched.
        let _ = cx.guard.get(key);
    }
    let value = flags.has(b'v');
    out.put(if value { b"VA 0" } else { b"HD" });
    let mut expires = attributes.expires_at;
    for flag in flags.iter() {
        match flag.letter {
            b'T' => expires = given.touch.map_or(expires, |exptime| expires_at(exptime, now)),
            b't' if expires == 0 => out.put(b" t-1"),
            b't' => put_number_flag(out, b't', seconds_left(expires, now)),
            b'c' => put_number_flag(out, b'c', cx.shared.settings.token(stored.cas)),
            b's' | b'f' | b'l' | b'h' => put_number_flag(out, flag.letter, 0),
            b'k' => put_key_flag(out, ReplyKey { bytes: key.bytes(), binary: attributes.key_binary }),
            b'O' => put_opaque_flag(out, flag.token),
            _ => {}
        }
    }
    out.put(if value { b" W\r\n\r\n" } else { b" W\r\n" });
    if expires != attributes.expires_at {
        let _ = cx.guard.touch(key, expires);
    }
    Ok(attributes.class(key, 0))
}
