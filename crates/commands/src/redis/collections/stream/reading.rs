//! XREAD and XREADGROUP: entries behind an ID, of several streams, that are there or are waited for.
//!
//! ```text
//! XREAD       some are there? ─▶ replied, or copied in steps      none ─▶ waits behind the IDs, as BLPOP does
//! XREADGROUP  one stream after the other ─▶ delivered in moments, each copied with it      none ─▶ waits
//! ```
//!
//! A client that has waited is given what there is then, 1,024 entries or 128 KiB at most: it asks for the rest behind them. A reader
//! of a group stands in line: the one that waits longest is served first, and what it is given is pending with it. A
//! reader without a group takes nothing from others, and all of them are served.

use larder_protocol::resp::{Args, Encoder, HEAD_BYTES_MAX, parse_integer};
use larder_store::{Collection, Guard, Key, Stream, StreamId, StreamRefusal, Type};

use super::told::{few_bytes, put_entry};
use super::{put_id, strict_id};
use crate::core::events::Class;
use crate::core::output::Output;
use crate::core::work::{STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{Call, integer, is, next};
use crate::redis::collections::block::{self, Want};
use crate::redis::collections::listing::send_whole;
use crate::redis::collections::{ELEMENT_NS, PRESENT_NS, peek_as};
use crate::redis::fail::{Done, Fail, shown};
use crate::redis::reply::{put_array, put_bulk, put_map, put_null_array};
use crate::redis::steps::job::{Job, Step};
use crate::redis::strings::rewrite::Heap;
use crate::redis::strings::source::Name;
use crate::redis::table::flag::{BLOCKING, MOVABLEKEYS, READONLY, WRITE};
use crate::redis::table::{Access, Command, Elements, Keys, KeysFunction, Tells, Weighs};

/// Keys behind STREAMS, of which the second half are IDs.
const fn streams(from: i32) -> Keys {
    Keys::Behind { word: "STREAMS", from, keys: KeysFunction(keys) }
}

/// Entries that are delivered in one moment, at most.
const DELIVERED_AT_ONCE: usize = 512;
/// What it takes to deliver one.
pub(crate) const DELIVERED_NS: u64 = 1_000;
/// Entries that one that has waited is given, at most.
const GIVEN_MAX: usize = 1 << 10;

pub(crate) const XREAD: Command =
    Command::of_collections("xread", -4, READONLY | BLOCKING | MOVABLEKEYS, streams(1), |call, args| {
        let asked = parse(args, false)?;
        read(call, &asked)
    })
    .weighs(Weighs::Elements(Elements::ReadEntries))
    .doc(
        "5.0.0",
        "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
        "Entries behind IDs, and waits for some.",
    );

pub(crate) const XREADGROUP: Command =
    Command::of_collections("xreadgroup", -7, WRITE | BLOCKING | MOVABLEKEYS, streams(4), |call, args| {
        let asked = parse(args, true)?;
        read_group(call, &asked)
    })
    .tells(Tells::Nothing)
    .access(&[Access::Deliver])
    .weighs(Weighs::Elements(Elements::ReadEntries))
    .doc(
        "5.0.0",
        "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
        "Entries that nobody of a group has had, or that are pending with a consumer, and waits for some.",
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
    let mut after: Vec<StreamId> = Vec::with_capacity(asked.keys.len());
    let mut long = false;
    call.spend(asked.keys.len() as u64 * PRESENT_NS);
    let mut found = 0;
    call.as_one_with_room(asked.keys, |call| {
        after.clear();
        (found, long) = (0, false);
        let mut bytes = HEAD_BYTES_MAX;
        for (name, id) in asked.keys.zip(asked.ids) {
            let key = call.key(name);
            let there = stream_of(&mut call.cx.guard, &key)?;
            let id = behind(id, there.as_ref())?;
            after.push(id);
            let Some(stream) = there else { continue };
            let places = places_behind(&stream, id, most);
            if !places.is_empty() {
                found += 1;
                match few_bytes(&stream, places) {
                    Some(few) => bytes += few + name.len() + 2 * HEAD_BYTES_MAX + 2,
                    None => long = true,
                }
            }
        }
        long |= bytes as u64 >= STEPS_BYTES_MIN;
        if found == 0 || long {
            return Ok(None);
        }
        if !call.has_room(bytes) {
            return Ok(Some(bytes));
        }
        if resp3 {
            put_map(call.out, true, found)
        } else {
            put_array(call.out, found)
        }
        for (name, id) in asked.keys.zip(&after) {
            let key = call.key(name);
            let Some(stream) = stream_of(&mut call.cx.guard, &key)? else { continue };
            let places = places_behind(&stream, *id, most);
            if !places.is_empty() {
                put_stream(call.out, resp3, name, places.len());
                stream.entries(places).for_each(|entry| put_entry(call.out, entry));
            }
        }
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
            let mut known = std::collections::HashSet::new();
            let keys = asked.keys.zip(after).filter(|(key, _)| known.insert(*key));
            let after = keys.map(|(key, id)| (key.into(), id)).collect();
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
    let mut parts = Vec::new();
    for (name, word) in asked.keys.zip(asked.ids) {
        let key = call.key(name);
        let there = stream_of(&mut call.cx.guard, &key)?;
        if there.and_then(|stream| stream.group(asked.group)).is_none() {
            return Err(no_group_read(name, asked.group));
        }
        let from = match word {
            b">" => None,
            b"$" | b"+" => return Err(meaningless(char::from(word[0]))),
            word => Some(strict_id(word, 0)?),
        };
        // Behind the last ID there is nothing.
        let ended = from == Some(StreamId::MAX);
        let from = from.map(|id| id.next().unwrap_or(id));
        parts.push(Reading { name: Name::kept(call, name)?, from, ended, left: asked.most() });
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
        found: 0,
        first: Output::charged(u64::MAX, call.cx.guard.store(), 0),
        kept,
        some,
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
    /// What is pending with it from here on; none: what nobody has had.
    from: Option<StreamId>,
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
    /// Streams with something in the reply.
    found: usize,
    /// What stands before the entries of the first of them.
    first: Output,
    /// These, and all of the others.
    kept: Output,
    /// Entries of the stream that is read, so many.
    some: Output,
    count: usize,
    /// None until all is delivered.
    sent: Option<u64>,
    _held: Heap,
}

/// What a moment came to.
enum Came {
    /// So much room is needed for it.
    Needs(usize),
    /// So many entries, the last of which is this.
    Entries(usize, StreamId),
    Nothing,
}

impl Delivering {
    /// Delivers some entries of a stream; true if there are more.
    fn deliver_some(&mut self, call: &mut Call<'_, '_, '_>, part: &mut Reading) -> Result<bool, Fail> {
        let steps = if call.cx.guard.in_transaction() { u64::MAX } else { call.step_ns() };
        let most = part.left.min(((steps / DELIVERED_NS) as usize).clamp(1, DELIVERED_AT_ONCE));
        if part.ended {
            return Ok(false);
        }
        loop {
            let key = part.name.key(call);
            let came = match call.as_one([key], |call| self.moment(call, &key, part.from, most)) {
                Ok(Came::Needs(bytes)) => {
                    call.make_room_in(&mut self.some, bytes).map(|()| Came::Needs(bytes))
                }
                came => came,
            };
            match came {
                // It tells of those that are delivered by then.
                Err(_) if self.count > 0 => return Ok(false),
                Err(fail) => return Err(fail),
                Ok(Came::Needs(_)) => {}
                Ok(Came::Nothing) => return Ok(false),
                Ok(Came::Entries(count, last)) => {
                    self.count += count;
                    part.left -= count;
                    part.ended = part.from.is_some() && last == StreamId::MAX;
                    part.from = part.from.map(|_| last.next().unwrap_or(last));
                    call.spend(count as u64 * (DELIVERED_NS + ELEMENT_NS));
                    return Ok(part.left > 0 && !part.ended);
                }
            }
        }
    }

    /// One moment: `most` entries at most are delivered, and copied. The key is held.
    fn moment(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        from: Option<StreamId>,
        most: usize,
    ) -> Result<Came, Fail> {
        let Delivering { group, consumer, some, resp3, pends, .. } = self;
        let (now, db) = (call.cx.now(), call.client.db);
        let none = || no_group_read(key.bytes(), group);
        let stream = stream_of(&mut call.cx.guard, key)?.ok_or_else(none)?;
        let (count, bytes) = match from {
            None => measure_new(&stream, group, most),
            Some(from) => measure_pending(&stream, (group, consumer), from, most),
        };
        if bytes > some.free_bytes() {
            return Ok(Came::Needs(bytes));
        }
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
        match from {
            None => stream.entries(stream.places(first, last)).for_each(|entry| put_entry(some, entry)),
            Some(from) => {
                let there = stream.group(group).and_then(|there| stream.consumer(&there, consumer));
                for id in there.iter().flat_map(|there| stream.pending_with(there, from)).take(done.count) {
                    match stream.entry(id) {
                        Some(entry) => put_entry(some, entry),
                        None => {
                            put_array(some, 2);
                            put_id(some, id);
                            put_null_array(some, *resp3);
                        }
                    }
                }
            }
        }
        Ok(Came::Entries(done.count, last))
    }

    /// A stream is read: what there was of it goes into the reply, with its key.
    fn end_of(&mut self, call: &mut Call<'_, '_, '_>, part: &Reading) -> Done {
        // What is pending is replied however little it is.
        if self.count > 0 || part.from.is_some() {
            let key = part.name.key(call);
            if self.found == 0 {
                // Most read one stream: its entries stay where they are.
                call.make_room_in(&mut self.first, key.bytes().len() + 3 * HEAD_BYTES_MAX)?;
                put_stream(&mut self.first, self.resp3, key.bytes(), self.count);
                std::mem::swap(&mut self.kept, &mut self.some);
            } else {
                let bytes = self.some.len() as usize + key.bytes().len() + 3 * HEAD_BYTES_MAX;
                call.make_room_in(&mut self.kept, bytes)?;
                put_stream(&mut self.kept, self.resp3, key.bytes(), self.count);
                self.kept.put(self.some.contiguous().unwrap_or_default());
                call.spend(copying_ns(self.some.len()));
            }
            self.found += 1;
        }
        self.some.clear();
        self.count = 0;
        Ok(())
    }

    /// Delivers what a step is for; true when all is delivered.
    fn deliver(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let began = call.cx.room.work().done_ns();
        let ns_max = call.step_ns();
        while let Some(mut part) = self.parts.pop() {
            let more = match self.deliver_some(call, &mut part) {
                Ok(more) => more,
                // What was delivered is told.
                Err(_) if self.count > 0 || self.found > 0 => false,
                Err(fail) => return Err(fail),
            };
            if more {
                self.parts.push(part);
            } else {
                self.end_of(call, &part)?;
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
fn measure_new(stream: &Stream<'_>, group: &[u8], most: usize) -> (usize, usize) {
    let Some(group) = stream.group(group) else { return (most, 0) };
    measure(stream, places_behind(stream, group.last, most))
}

/// The same of entries at these places: one at least.
fn measure(stream: &Stream<'_>, places: std::ops::Range<usize>) -> (usize, usize) {
    let (mut count, mut bytes) = (0, HEAD_BYTES_MAX);
    for entry in stream.entries(places) {
        let more = super::told::entry_bytes_max(&entry);
        if count > 0 && (bytes + more) as u64 > STEPS_BYTES_MIN {
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
    from: StreamId,
    most: usize,
) -> (usize, usize) {
    let there = stream.group(group).and_then(|there| stream.consumer(&there, consumer));
    let (mut count, mut bytes) = (0, HEAD_BYTES_MAX);
    for id in there.iter().flat_map(|there| stream.pending_with(there, from)).take(most) {
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

/// What one that waits is given of a stream; none if there is nothing for it.
pub(crate) enum Ready {
    /// So many bytes of a reply at most.
    Bytes(usize),
    /// It is told why there will be nothing.
    Fail(Fail),
}

/// What of a key there is for one that waits behind an ID.
pub(crate) fn entries_ready(
    there: Option<&Collection<'_>>,
    after: StreamId,
    most: Option<usize>,
) -> Option<Ready> {
    let stream = there?.stream()?;
    let places = places_behind(&stream, after, most.unwrap_or(GIVEN_MAX).min(GIVEN_MAX));
    if places.is_empty() {
        return None;
    }
    Some(Ready::Bytes(measure(&stream, places).1))
}

/// Replies it.
pub(crate) fn give_entries(
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    (after, most): (StreamId, Option<usize>),
    resp3: bool,
    out: &mut Output,
) -> Result<bool, Fail> {
    let Some(stream) = stream_of(guard, key)? else { return Ok(false) };
    let places = places_behind(&stream, after, most.unwrap_or(GIVEN_MAX).min(GIVEN_MAX));
    let count = measure(&stream, places.clone()).0;
    if count == 0 {
        return Ok(false);
    }
    if resp3 {
        put_map(out, true, 1)
    } else {
        put_array(out, 1)
    }
    put_stream(out, resp3, key.bytes(), count);
    stream.entries(places.start..places.start + count).for_each(|entry| put_entry(out, entry));
    Ok(true)
}

/// What of a key there is for one of a group that waits.
pub(crate) fn delivery_ready(
    key: &[u8],
    there: Result<Option<&Collection<'_>>, Fail>,
    group: &[u8],
    most: Option<usize>,
) -> Option<Ready> {
    let stream = match there {
        Ok(there) => there.and_then(|there| there.stream()),
        Err(fail) => return Some(Ready::Fail(fail)),
    };
    let Some((stream, group)) = stream.and_then(|stream| Some((stream, stream.group(group)?))) else {
        return Some(Ready::Fail(no_group_read(key, group)));
    };
    let places = places_behind(&stream, group.last, most.unwrap_or(GIVEN_MAX).min(GIVEN_MAX));
    if places.is_empty() {
        return None;
    }
    Some(Ready::Bytes(measure(&stream, places).1))
}

/// Delivers it.
pub(crate) fn give_delivery(
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    (group, consumer): (&[u8], &[u8]),
    (most, pends): (Option<usize>, bool),
    resp3: bool,
    out: &mut Output,
) -> Result<bool, Fail> {
    let most = most.unwrap_or(GIVEN_MAX).min(GIVEN_MAX);
    let none = || no_group_read(key.bytes(), group);
    let now = guard.now();
    let stream = stream_of(guard, key)?.ok_or_else(none)?;
    let count = measure_new(&stream, group, most).0;
    let done = guard.group_read(key, (group, consumer), now, count, pends);
    let done = done.map_err(|refusal| super::refused(refusal, none))?;
    let Some((first, last)) = done.range else { return Ok(false) };
    let Some(stream) = stream_of(guard, key)? else { return Ok(false) };
    if resp3 {
        put_map(out, true, 1)
    } else {
        put_array(out, 1)
    }
    put_stream(out, resp3, key.bytes(), done.count);
    stream.entries(stream.places(first, last)).for_each(|entry| put_entry(out, entry));
    Ok(true)
}
