//! XREAD and XREADGROUP: entries behind an ID, of several streams, that are there or are waited for.
//!
//! ```text
//! XREAD       some are there? ─▶ replied, or copied in steps      none ─▶ waits behind the IDs, as BLPOP does
//! XREADGROUP  one stream after the other ─▶ delivered in moments, each copied with it      none ─▶ waits
//! ```
//!
//! What comes while a command goes on in steps is not asked for: each stream is read to the ID that was its last at first.
//!
//! A client that has waited is given what all of its streams have then, 1,024 entries or 128 KiB at most, and one of each at
//! least: it asks for the rest behind them. A reader
//! of a group stands in line: the one that waits longest is served first, and what it is given is pending with it. A
//! reader without a group takes nothing from others, and all of them are served.

use larder_protocol::resp::{Args, Encoder, HEAD_BYTES_MAX, parse_integer};
use larder_store::{Collection, Guard, Key, Stream, StreamId, StreamRefusal, Type};
use smallvec::SmallVec;

use super::told::{few_bytes, pin_values, put_entry, put_entry_with, sending_ns};
use super::{put_id, strict_id};
use crate::core::events::Class;
use crate::core::output::Output;
use crate::core::work::{STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{Call, ELEMENT_BYTES, few_keys, integer, is, next};
use crate::redis::collections::block;
use crate::redis::collections::listing::{PINNED_AT_ONCE, send_whole};
use crate::redis::collections::{ELEMENT_NS, PRESENT_NS, peek_as};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail, shown};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk, put_map, put_null_array};
use crate::redis::row::flag::{AS_ONE, BLOCKING, MOVABLEKEYS, READONLY, WRITE};
use crate::redis::row::{Access, Command, Elements, Keys, KeysFunction, Tells, Weighs};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, LEAF, Step};
use crate::redis::waiters::Want;

/// Keys behind STREAMS, of which the second half are IDs.
const fn streams(from: i32) -> Keys {
    Keys::Behind { word: "STREAMS", from, keys: KeysFunction(keys) }
}

/// Entries that are delivered in one moment, at most.
const DELIVERED_AT_ONCE: usize = 512;
/// Work to deliver one.
pub(crate) const DELIVERED_NS: u64 = 1_000;
/// Bytes of a stream's entries that go to those of the streams before it at a time: 65 µs.
const MOVED_BYTES: usize = STEPS_BYTES_MIN as usize;
/// Entries that one that has waited is given, at most.
const GIVEN_MAX: usize = 1 << 10;

pub(crate) const XREAD: Definition =
    Command::of_collections("xread", -4, READONLY | BLOCKING | MOVABLEKEYS, streams(1), |call, args| {
        let asked = parse(args, false)?;
        read(call, &asked)
    })
    .with(AS_ONE)
    .weighs(Weighs::Elements(Elements::ReadEntries))
    .doc(
        "5.0.0",
        "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
        "Entries behind IDs, and waits for some.",
    );

pub(crate) const XREADGROUP: Definition =
    Command::of_collections("xreadgroup", -7, WRITE | BLOCKING | MOVABLEKEYS, streams(4), |call, args| {
        let asked = parse(args, true)?;
        read_group(call, &asked)
    })
    .with(AS_ONE)
    .tells(Tells::Nothing)
    .access(&[Access::Deliver])
    .weighs(Weighs::Elements(Elements::ReadEntries))
    .doc(
        "5.0.0",
        "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
        "Entries that no consumer of a group has had, or that are pending with one, and waits for some.",
    );

/// Calls `visit` with each key among the words behind the name.
fn keys<'a>(mut args: Args<'a>, visit: &mut dyn FnMut(&'a [u8])) -> bool {
    while let Some(word) = args.next() {
        let skipped = match word {
            word if is(word, "BLOCK") || is(word, "COUNT") => 1,
            word if is(word, "GROUP") => 2,
            word if is(word, "NOACK") => 0,
            word if is(word, "STREAMS") => {
                let count = args.len();
                args.take(count / 2).for_each(visit);
                return count > 1;
            }
            _ => return false,
        };
        if skipped > 0 {
            args.nth(skipped - 1);
        }
    }
    false
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    /// None: for ever; the outer one: not at all.
    timeout_ms: Option<Option<u64>>,
    most: Option<usize>,
    group: &'a [u8],
    consumer: &'a [u8],
    pends: bool,
    keys: Args<'a>,
    ids: Args<'a>,
}

impl Asked<'_> {
    fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }
}

fn parse(mut args: Args<'_>, of_group: bool) -> Result<Asked<'_>, Fail> {
    let (mut timeout_ms, mut most, mut group, mut pends, mut streams) = (None, None, None, true, None);
    while let Some(word) = args.next() {
        let behind = args.len();
        if is(word, "BLOCK") && behind > 0 {
            let bad = Fail::of("ERR timeout is not an integer or out of range");
            let ms = parse_integer(next(&mut args)?).ok_or(bad)?;
            let ms = u64::try_from(ms).map_err(|_| Fail::of("ERR timeout is negative"))?;
            if ms >= block::TIMEOUT_MS_MAX {
                return Err(Fail::of("ERR timeout is out of range"));
            }
            timeout_ms = Some(Some(ms).filter(|ms| *ms > 0));
        } else if is(word, "COUNT") && behind > 0 {
            let count = usize::try_from(integer(next(&mut args)?)?).unwrap_or(0);
            most = Some(count).filter(|count| *count > 0);
        } else if is(word, "STREAMS") && behind > 0 {
            if !behind.is_multiple_of(2) {
                return Err(unbalanced(of_group));
            }
            let keys = Args::rest(args.encoded(), behind / 2);
            args.nth(behind / 2 - 1);
            streams = Some((keys, args));
            break;
        } else if is(word, "GROUP") && behind >= 2 {
            if !of_group {
                return Err(Fail::of(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            group = Some((next(&mut args)?, next(&mut args)?));
        } else if is(word, "NOACK") {
            if !of_group {
                return Err(Fail::of(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            pends = false;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    let (keys, ids) = streams.ok_or(Fail::SYNTAX)?;
    if of_group && group.is_none() {
        return Err(Fail::of("ERR Missing GROUP option for XREADGROUP"));
    }
    few_keys(keys.len())?;
    let (group, consumer) = group.unwrap_or_default();
    Ok(Asked { timeout_ms, most, group, consumer, pends, keys, ids })
}

fn unbalanced(of_group: bool) -> Fail {
    Fail::of(if of_group {
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
    } else {
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
    })
}

/// The stream of a key.
fn stream_of<'r>(guard: &'r mut Guard<'_>, key: &Key<'_>) -> Result<Option<Stream<'r>>, Fail> {
    Ok(peek_as(guard, key, Type::Stream)?.and_then(|there| there.stream()))
}

/// The ID behind which is read, as a word says it of a stream.
fn behind(word: &[u8], stream: Option<&Stream<'_>>) -> Result<StreamId, Fail> {
    Ok(match word {
        b"$" => stream.map_or(StreamId::MIN, Stream::last_id),
        b"+" => match stream {
            Some(stream) => match stream.len().checked_sub(1).and_then(|end| stream.at(end)) {
                Some(last) => last.id.before().unwrap_or_default(),
                None => stream.last_id(),
            },
            None => StreamId::MIN,
        },
        b">" => {
            return Err(Fail::of(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            ));
        }
        word => strict_id(word, 0)?,
    })
}

/// What XREAD has of each stream that it is asked for: its ID, its name and a place among those that are known.
const ASKED_BYTES: usize = 64;

/// XREAD
fn read(call: &mut Call<'_, '_, '_>, asked: &Asked<'_>) -> Done {
    let (resp3, most) = (call.client.resp3, asked.most());
    let _held = Heap::take(call, asked.keys.len() * ASKED_BYTES)?;
    let mut after: Vec<(StreamId, StreamId)> = Vec::with_capacity(asked.keys.len());
    let mut long = false;
    call.spend(asked.keys.len() as u64 * PRESENT_NS);
    let mut found = 0;
    // All keys are held while they are looked at.
    let store = (!call.cx.guard.in_transaction()).then(|| call.cx.guard.store());
    call.as_one_with_room(asked.keys, |call| {
        after.clear();
        (found, long) = (0, false);
        let (mut bytes, mut sent_bytes) = (HEAD_BYTES_MAX, 0);
        for (name, id) in asked.keys.zip(asked.ids) {
            let key = call.key(name);
            let there = stream_of(&mut call.cx.guard, &key)?;
            let id = behind(id, there.as_ref())?;
            // What comes while it is copied is not asked for.
            after.push((id, there.as_ref().map_or(StreamId::MIN, Stream::last_id)));
            let Some(stream) = there else { continue };
            let places = places_behind(&stream, id, most);
            if !places.is_empty() {
                found += 1;
                match few_bytes(&stream, places, store.is_some()) {
                    Some(few) => {
                        bytes += few.bytes + name.len() + 2 * HEAD_BYTES_MAX + 2;
                        sent_bytes += few.sent_bytes;
                    }
                    None => long = true,
                }
            }
        }
        long |= bytes as u64 >= STEPS_BYTES_MIN || sent_bytes > PINNED_AT_ONCE as u64;
        if found == 0 || long {
            return Ok(None);
        }
        if !call.has_room(bytes) {
            return Ok(Some(bytes));
        }
        let mark = call.out.mark();
        if resp3 {
            put_map(call.out, true, found)
        } else {
            put_array(call.out, found)
        }
        for (name, (id, _)) in asked.keys.zip(&after) {
            let key = call.key(name);
            let Some(stream) = stream_of(&mut call.cx.guard, &key)? else { continue };
            let places = places_behind(&stream, *id, most);
            if !places.is_empty() {
                put_stream(call.out, resp3, name, places.len());
                long |= !stream.entries(places).all(|entry| {
                    let pinned = pin_values(store, &stream, &entry);
                    pinned.map(|pinned| put_entry_with(call.out, &stream, entry, pinned)).is_some()
                });
            }
            if long {
                // A value may not be pinned, and is copied where it is made room for.
                call.out.rewind(mark);
                break;
            }
        }
        call.spend(sending_ns(sent_bytes));
        Ok(None)
    })?;
    // Asked for are those that are there when it is answered.
    for name in asked.keys {
        let key = call.key(name);
        let _ = call.cx.guard.get(&key);
    }
    if long {
        return call.tell_read(asked.keys.collect::<Vec<_>>().into_iter().zip(after), most);
    }
    if found > 0 {
        return Ok(());
    }
    match asked.timeout_ms.filter(|_| !call.cx.guard.in_transaction()) {
        None => {
            put_null_array(call.out, resp3);
            Ok(())
        }
        Some(timeout_ms) => {
            let after = asked.keys.zip(after).map(|(key, (id, _))| (key.into(), id)).collect();
            block::wait(call, Want::Entries { after, most: asked.most }, asked.keys, timeout_ms)
        }
    }
}

fn places_behind(stream: &Stream<'_>, after: StreamId, most: usize) -> std::ops::Range<usize> {
    let start = after.next().map_or(stream.len(), |next| stream.below(next));
    start..stream.len().min(start.saturating_add(most))
}

/// What stands before so many entries of a stream.
fn put_stream(out: &mut Output, resp3: bool, key: &[u8], entries: usize) {
    if !resp3 {
        put_array(out, 2);
    }
    put_bulk(out, key);
    put_array(out, entries);
}

fn no_group_read(key: &[u8], group: &[u8]) -> Fail {
    Fail::with(format!(
        "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
        shown(key, 1024),
        shown(group, 1024)
    ))
}

/// XREADGROUP
fn read_group(call: &mut Call<'_, '_, '_>, asked: &Asked<'_>) -> Done {
    let _held = Heap::take(call, asked.keys.len() * size_of::<Reading>())?;
    let mut spans = Vec::with_capacity(asked.keys.len());
    // All ends are of one moment.
    call.as_one_in(asked.keys, |call| -> Done {
        for (name, word) in asked.keys.zip(asked.ids) {
            let key = call.key(name);
            let there = stream_of(&mut call.cx.guard, &key)?;
            let there = there.and_then(|stream| Some((stream, stream.group(asked.group)?)));
            let Some((stream, group)) = there else { return Err(no_group_read(name, asked.group)) };
            let (from, to) = match word {
                b">" => (None, stream.last_id()),
                b"$" | b"+" => return Err(meaningless(char::from(word[0]))),
                word => {
                    let last = stream.pending_back(&group).next();
                    (Some(strict_id(word, 0)?), last.map_or(StreamId::MIN, |last| last.id))
                }
            };
            let read = group.last;
            // Behind the last ID there is nothing.
            let ended = from == Some(StreamId::MAX);
            let from = from.map(|id| id.next().unwrap_or(id));
            spans.push((from, to, read, ended));
        }
        Ok(())
    })?;
    let mut parts = Vec::with_capacity(spans.len());
    for (name, (from, to, read, ended)) in asked.keys.zip(spans) {
        parts.push(Reading { name: Name::kept(call, name)?, from, to, read, ended, left: asked.most() });
    }
    call.spend(parts.len() as u64 * PRESENT_NS);
    parts.reverse();
    let mut keys = Encoder::default();
    if asked.timeout_ms.is_some() {
        asked.keys.for_each(|key| keys.push(key));
    }
    let held = Heap::keep(call, asked.group.len() + asked.consumer.len() + asked.keys.encoded().len())?;
    let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    let some = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    let delivering = Delivering {
        parts,
        group: asked.group.into(),
        consumer: asked.consumer.into(),
        most: asked.most,
        pends: asked.pends,
        timeout_ms: asked.timeout_ms,
        keys,
        resp3: call.client.resp3,
        at_once: call.cx.guard.in_transaction(),
        found: 0,
        first: Output::charged(u64::MAX, call.cx.guard.store(), 0),
        kept,
        some,
        moved: 0,
        count: 0,
        sent: None,
        _held: held,
    };
    call.work(delivering)
}

fn meaningless(sign: char) -> Fail {
    Fail::with(format!(
        "ERR The {sign} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The {sign} ID would just return an empty result set."
    ))
}

/// A stream that is read for a consumer.
#[derive(Debug)]
struct Reading {
    name: Name,
    /// What is pending with it from here on; none: what no consumer has had.
    from: Option<StreamId>,
    /// The last ID that there was when the command began: what comes meanwhile is not asked for.
    to: StreamId,
    /// What the group had read by then, or reads in this command. One that is set back meanwhile reads no further in it.
    read: StreamId,
    /// There is nothing behind that.
    ended: bool,
    left: usize,
}

/// Streams that are read for a consumer, some entries at a time.
#[derive(Debug)]
struct Delivering {
    /// The next one comes last.
    parts: Vec<Reading>,
    group: Box<[u8]>,
    consumer: Box<[u8]>,
    most: Option<usize>,
    pends: bool,
    timeout_ms: Option<Option<u64>>,
    /// Those that are waited for.
    keys: Encoder,
    resp3: bool,
    /// In a transaction, which holds its keys throughout: all of it is one step.
    at_once: bool,
    /// Streams with something in the reply.
    found: usize,
    /// What stands before the entries of the first of them.
    first: Output,
    /// These, and all of the others.
    kept: Output,
    /// Entries of the stream that is read, so many.
    some: Output,
    count: usize,
    /// Bytes of them that are among the others by now: where there are some, all of the stream is delivered.
    moved: usize,
    /// None until all is delivered.
    sent: Option<u64>,
    _held: Heap,
}

/// What a moment came to.
enum Came {
    /// Bytes of memory that it needs first.
    Needs(usize),
    /// How many entries were delivered, and the ID of the last one.
    Entries(usize, StreamId),
    Nothing,
}

impl Delivering {
    /// Delivers some entries of a stream; true if there are more.
    fn deliver_some(&mut self, call: &mut Call<'_, '_, '_>, part: &mut Reading) -> Result<bool, Fail> {
        let steps = if self.at_once { u64::MAX } else { call.step_ns() };
        let most = part.left.min(((steps / DELIVERED_NS) as usize).clamp(1, DELIVERED_AT_ONCE));
        loop {
            let key = part.name.key(call);
            if part.ended {
                self.make_room(call, &key, 0)?;
                return Ok(false);
            }
            let came = match call.as_one([key], |call| self.moment(call, &key, part, most)) {
                Ok(Came::Needs(bytes)) => self.make_room(call, &key, bytes).map(|()| Came::Needs(bytes)),
                came => came,
            };
            match came {
                // Its reply has those that are delivered by then.
                Err(_) if self.count > 0 => return Ok(false),
                Err(fail) => return Err(fail),
                Ok(Came::Needs(_)) => {}
                Ok(Came::Nothing) => return Ok(false),
                Ok(Came::Entries(count, last)) => {
                    self.count += count;
                    part.left -= count;
                    part.read = last;
                    part.from = part.from.map(|_| last.next().unwrap_or(last));
                    call.spend(count as u64 * (DELIVERED_NS + ELEMENT_NS));
                    return Ok(part.left > 0 && last < part.to);
                }
            }
        }
    }

    /// How much room there has to be where the reply comes together, for a stream with so many bytes more.
    fn whole_bytes(&self, key: &Key<'_>, bytes: usize) -> usize {
        let head = key.bytes().len() + 3 * HEAD_BYTES_MAX;
        if self.found == 0 { head } else { head + self.some.len() as usize + bytes }
    }

    /// The same in the reply, where the client takes nothing of it before all is there.
    fn reply_bytes(&self, key: &Key<'_>, bytes: usize) -> usize {
        let before = self.first.len() + self.kept.len() + self.some.len();
        before as usize + self.whole_bytes(key, 0) + bytes + ELEMENT_BYTES
    }

    fn has_room(&self, call: &Call<'_, '_, '_>, key: &Key<'_>, bytes: usize) -> bool {
        let whole = if self.found == 0 { &self.first } else { &self.kept };
        bytes <= self.some.free_bytes()
            && self.whole_bytes(key, bytes) <= whole.free_bytes()
            && (!self.at_once || call.has_room(self.reply_bytes(key, bytes)))
    }

    fn make_room(&mut self, call: &mut Call<'_, '_, '_>, key: &Key<'_>, bytes: usize) -> Done {
        if self.at_once {
            let reply_bytes = self.reply_bytes(key, bytes);
            if call.out.own_bytes() + reply_bytes as u64 > call.reply_bytes_max() {
                return Err(Fail::HELD);
            }
            call.make_room(reply_bytes)?;
        }
        let whole_bytes = self.whole_bytes(key, bytes);
        let whole = if self.found == 0 { &mut self.first } else { &mut self.kept };
        call.make_room_in(whole, whole_bytes)?;
        call.make_room_in(&mut self.some, bytes)
    }

    /// One moment: `most` entries at most are delivered, and copied. The key is held.
    fn moment(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        part: &Reading,
        most: usize,
    ) -> Result<Came, Fail> {
        let &Reading { from, to, read, .. } = part;
        let (now, db) = (call.cx.now(), call.client.db);
        let (group, consumer) = (&*self.group, &*self.consumer);
        let none = || no_group_read(key.bytes(), group);
        let stream = stream_of(&mut call.cx.guard, key)?.ok_or_else(none)?;
        let (count, bytes) = match from {
            None => measure_new(&stream, group, (read, to), most),
            Some(from) => measure_pending(&stream, (group, consumer), (from, to), most),
        };
        // What is delivered is replied: nothing is refused behind that.
        if (count > 0 || from.is_some()) && !self.has_room(call, key, bytes) {
            return Ok(Came::Needs(bytes));
        }
        let Delivering { group, consumer, some, resp3, pends, .. } = self;
        let none = || no_group_read(key.bytes(), group);
        let guard = &mut call.cx.guard;
        let who = (&group[..], &consumer[..]);
        let done = match from {
            None => guard.group_read(key, who, now, count, *pends),
            Some(from) => guard.group_read_again(key, who, now, from, count),
        };
        let done = done.map_err(|refusal: StreamRefusal| super::refused(refusal, none))?;
        if done.new_consumer {
            call.cx.tell(Class::Stream, "xgroup-createconsumer", db, key.bytes());
        }
        let Some((first, last)) = done.range else { return Ok(Came::Nothing) };
        let Some(stream) = stream_of(&mut call.cx.guard, key)? else { return Ok(Came::Nothing) };
        let before = some.len();
        match from {
            None => {
                let entries = stream.entries(stream.places(first, last));
                entries.for_each(|entry| put_entry(some, &stream, entry));
            }
            Some(from) => {
                let there = stream.group(group).and_then(|there| stream.consumer(&there, consumer));
                for id in there.iter().flat_map(|there| stream.pending_with(there, from)).take(done.count) {
                    match stream.entry(id) {
                        Some(entry) => put_entry(some, &stream, entry),
                        None => {
                            put_array(some, 2);
                            put_id(some, id);
                            put_null_array(some, *resp3);
                        }
                    }
                }
            }
        }
        // One entry may have 4 MiB.
        call.spend(copying_ns(some.len() - before));
        Ok(Came::Entries(done.count, last))
    }

    /// A stream is read: what there was of it goes into the reply, with its key, some of it at a time; true when all has.
    fn end_of(&mut self, call: &mut Call<'_, '_, '_>, part: &Reading) -> bool {
        // What is pending is replied however little it is.
        if self.count > 0 || part.from.is_some() {
            let key = part.name.key(call);
            // There is room for it: without that nothing was delivered.
            if self.found == 0 {
                // Most read one stream: its entries stay where they are.
                put_stream(&mut self.first, self.resp3, key.bytes(), self.count);
                std::mem::swap(&mut self.kept, &mut self.some);
            } else {
                if self.moved == 0 {
                    put_stream(&mut self.kept, self.resp3, key.bytes(), self.count);
                }
                let rest = &self.some.contiguous().unwrap_or_default()[self.moved..];
                let most = if self.at_once { rest.len() } else { MOVED_BYTES };
                let piece = &rest[..rest.len().min(most)];
                self.kept.put(piece);
                self.moved += piece.len();
                call.spend(copying_ns(piece.len() as u64));
                if piece.len() < rest.len() {
                    return false;
                }
            }
            self.found += 1;
        }
        self.some.clear();
        (self.count, self.moved) = (0, 0);
        true
    }

    /// Delivers what a step is for; true when all is delivered.
    fn deliver(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let began = call.cx.room.work().done_ns();
        let ns_max = call.step_ns();
        while let Some(mut part) = self.parts.pop() {
            let more = if self.moved > 0 { Ok(false) } else { self.deliver_some(call, &mut part) };
            let more = match more {
                Ok(more) => more,
                // What was delivered of others is replied, and of this one nothing was.
                Err(_) if self.found > 0 => continue,
                Err(fail) => return Err(fail),
            };
            if more || !self.end_of(call, &part) {
                self.parts.push(part);
            }
            let done = call.cx.room.work().done_ns().saturating_sub(began) >= ns_max;
            if done && !self.parts.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// How many new entries are delivered in one moment, and how many bytes their replies have at most.
fn measure_new(
    stream: &Stream<'_>,
    group: &[u8],
    (read, to): (StreamId, StreamId),
    most: usize,
) -> (usize, usize) {
    let Some(group) = stream.group(group) else { return (0, 0) };
    if group.last < read {
        return (0, 0);
    }
    let end = to.next().map_or(stream.len(), |next| stream.below(next));
    let places = places_behind(stream, group.last, most);
    measure(stream, places.start..places.end.min(end), STEPS_BYTES_MIN)
}

/// The same of entries at these places: one at least.
fn measure(stream: &Stream<'_>, places: std::ops::Range<usize>, bytes_max: u64) -> (usize, usize) {
    let (mut count, mut bytes) = (0, HEAD_BYTES_MAX);
    for entry in stream.entries(places) {
        let more = super::told::entry_bytes_max(&entry);
        if count > 0 && (bytes + more) as u64 > bytes_max {
            break;
        }
        (count, bytes) = (count + 1, bytes + more);
    }
    (count, bytes)
}

/// The same of what is pending.
fn measure_pending(
    stream: &Stream<'_>,
    (group, consumer): (&[u8], &[u8]),
    (from, to): (StreamId, StreamId),
    most: usize,
) -> (usize, usize) {
    let there = stream.group(group).and_then(|there| stream.consumer(&there, consumer));
    let (mut count, mut bytes) = (0, HEAD_BYTES_MAX);
    let ids = there.iter().flat_map(|there| stream.pending_with(there, from));
    for id in ids.take(most).take_while(|id| *id <= to) {
        let more = stream.entry(id).map_or(4 * HEAD_BYTES_MAX, |entry| super::told::entry_bytes_max(&entry));
        if count > 0 && (bytes + more) as u64 > STEPS_BYTES_MIN {
            break;
        }
        (count, bytes) = (count + 1, bytes + more);
    }
    (count, bytes)
}

impl Job for Delivering {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let sent = match &mut self.sent {
            Some(sent) => sent,
            None => {
                if !self.deliver(call)? {
                    return Ok(Step::More);
                }
                if self.found == 0 {
                    return self.end_empty(call);
                }
                if self.resp3 {
                    put_map(call.out, true, self.found)
                } else {
                    put_array(call.out, self.found)
                }
                call.out.put(self.first.contiguous().unwrap_or_default());
                self.sent.insert(0)
            }
        };
        send_whole(call, &self.kept, sent)
    }

    /// What is delivered to a group is noted in it.
    fn wants(&self) -> Option<(usize, usize)> {
        (self.sent.is_none() && !self.group.is_empty()).then_some(LEAF)
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64
    }

    /// What was delivered to a group is replied: a consumer that does not get it would have to claim it.
    fn asks_itself(&self) -> bool {
        self.sent.is_some() || self.found > 0 || self.count > 0
    }
}

impl Delivering {
    /// There was nothing: it is waited for, or said.
    fn end_empty(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Some(timeout_ms) = self.timeout_ms.filter(|_| !call.cx.guard.in_transaction()) else {
            put_null_array(call.out, self.resp3);
            return Ok(Step::Done);
        };
        let (group, consumer) = (std::mem::take(&mut self.group), std::mem::take(&mut self.consumer));
        let want = Want::Delivery { group, consumer, most: self.most, pends: self.pends };
        block::wait(call, want, self.keys.args(), timeout_ms)?;
        Ok(Step::Done)
    }
}

/// Whether a key has something for one that waits behind an ID.
pub(crate) fn entries_ready(there: Option<&Collection<'_>>, after: StreamId) -> bool {
    let stream = there.and_then(|there| there.stream());
    stream.is_some_and(|stream| !places_behind(&stream, after, 1).is_empty())
}

/// Whether a key has something for one of a group that waits: entries, or that there will be none.
pub(crate) fn delivery_ready(there: Result<Option<&Collection<'_>>, Fail>, group: &[u8]) -> bool {
    let stream = there.ok().flatten().and_then(|there| there.stream());
    let there = stream.and_then(|stream| Some((stream, stream.group(group)?)));
    there.is_none_or(|(stream, group)| !places_behind(&stream, group.last, 1).is_empty())
}

/// What of a stream one that has waited is given.
struct Share<'k> {
    key: &'k [u8],
    /// Behind this ID.
    after: StreamId,
    count: usize,
}

/// What of all its streams one that has waited is given.
#[derive(Default)]
struct Shares<'k> {
    all: SmallVec<[Share<'k>; 2]>,
    entries: usize,
    bytes: usize,
}

impl<'k> Shares<'k> {
    /// Adds what a stream has behind an ID: one entry at least, and more as far as all of them are not too many.
    fn add(&mut self, key: &'k [u8], stream: &Stream<'_>, after: StreamId, most: Option<usize>) {
        let left = GIVEN_MAX.saturating_sub(self.entries).max(1);
        let places = places_behind(stream, after, most.unwrap_or(left).min(left));
        if places.is_empty() {
            return;
        }
        let (count, bytes) = measure(stream, places, STEPS_BYTES_MIN.saturating_sub(self.bytes as u64));
        self.entries += count;
        self.bytes += bytes + key.len() + 2 * HEAD_BYTES_MAX;
        self.all.push(Share { key, after, count });
    }

    /// # Errors
    /// They take more than so many bytes.
    fn within(self, room: u64) -> Result<SmallVec<[Share<'k>; 2]>, Fail> {
        if (self.bytes + HEAD_BYTES_MAX) as u64 > room { Err(Fail::HELD) } else { Ok(self.all) }
    }
}

/// Replies shares, all of which are there.
fn put_shares(
    guard: &mut Guard<'_>,
    db: u8,
    shares: &[Share<'_>],
    resp3: bool,
    out: &mut Output,
) -> Result<bool, Fail> {
    if shares.is_empty() {
        return Ok(false);
    }
    if resp3 {
        put_map(out, true, shares.len())
    } else {
        put_array(out, shares.len())
    }
    for Share { key: name, after, count } in shares {
        let key = guard.key_in(db, name);
        put_stream(out, resp3, name, *count);
        let stream = stream_of(guard, &key)?.ok_or(Fail::HELD)?;
        let entries = stream.entries(places_behind(&stream, *after, *count));
        entries.for_each(|entry| put_entry(out, &stream, entry));
    }
    Ok(true)
}

/// Replies what streams, which are held, have behind IDs; false if that is nothing. `room`: bytes that the reply may take.
pub(crate) fn give_entries(
    guard: &mut Guard<'_>,
    db: u8,
    asked: &[(Box<[u8]>, StreamId)],
    most: Option<usize>,
    resp3: bool,
    (out, room): (&mut Output, u64),
) -> Result<bool, Fail> {
    let mut shares = Shares::default();
    for (name, after) in asked {
        let key = guard.key_in(db, name);
        if let Some(stream) = stream_of(guard, &key)? {
            shares.add(name, &stream, *after, most);
        }
    }
    put_shares(guard, db, &shares.within(room)?, resp3, out)
}

/// Delivers what streams, which are held, have for a consumer of a group, and replies it; as [`give_entries`].
pub(crate) fn give_delivery(
    guard: &mut Guard<'_>,
    (db, keys): (u8, &[Box<[u8]>]),
    who: (&[u8], &[u8]),
    (most, pends): (Option<usize>, bool),
    resp3: bool,
    (out, room): (&mut Output, u64),
) -> Result<bool, Fail> {
    let mut shares = Shares::default();
    for name in keys {
        let key = guard.key_in(db, name);
        let there = stream_of(guard, &key)?.and_then(|stream| Some((stream, stream.group(who.0)?)));
        let (stream, group) = there.ok_or_else(|| no_group_read(name, who.0))?;
        shares.add(name, &stream, group.last, most);
    }
    let mut shares = shares.within(room)?;
    let now = guard.now();
    for nth in 0..shares.len() {
        let Share { key: name, count, .. } = shares[nth];
        let key = guard.key_in(db, name);
        match guard.group_read(&key, who, now, count, pends) {
            Ok(_) => {}
            // What is delivered is replied.
            Err(_) if nth > 0 => {
                shares.truncate(nth);
                break;
            }
            Err(refusal) => return Err(super::refused(refusal, || no_group_read(name, who.0))),
        }
    }
    put_shares(guard, db, &shares, resp3, out)
}
