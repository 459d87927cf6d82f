//! XGROUP, and commands on pending entries: XACK, XPENDING, XCLAIM, XAUTOCLAIM.

use larder_protocol::resp::{Args, Encoder, HEAD_BYTES_MAX, parse_integer};
use larder_store::{Claim, Hint, Key, Start, Stream, StreamId, StreamRefusal, Type};

use super::told::{Tale, entry_bytes_max, put_entry};
use super::trimming::{ID_NS, PENDING_NS};
use super::{SECOND, bound, change, each_id, ids, no_group, no_group_for, put_id, refused, strict_id, told};
use crate::core::events::Class;
use crate::core::output::Output;
use crate::core::work::{STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{Call, integer, is, next};
use crate::redis::collections::listing::send_whole;
use crate::redis::collections::words::first;
use crate::redis::collections::{FEW_ELEMENTS, peek_as, read_as};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail, shown};
use crate::redis::heap::Heap;
use crate::redis::help::help;
use crate::redis::reply::put_array;
use crate::redis::row::flag::{DENYOOM, FAST, LOADING, READONLY, STALE, WEIGHTLESS, WRITE};
use crate::redis::row::{Access, Command, Elements, NO_KEYS, Replaces, Tells, Weighs};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, LEAF, Step};

/// Entries that are claimed in one moment, at most.
const CLAIMED_AT_ONCE: usize = 256;
/// Pending entries that are looked at for each claimed one, at most.
const LOOKS_EACH: usize = 10;

const NO_STREAM: Fail = Fail::of(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
);

pub(super) const XGROUP: Definition =
    Command::container("xgroup", ROWS).doc("5.0.0", "", "Groups of consumers of a stream.");

const ROWS: &[Definition] = &[
    Command::args("xgroup|create", -5, WRITE | DENYOOM | WEIGHTLESS, SECOND, create)
        .tells(told("xgroup-create"))
        .access(&[Access::Extend])
        .replaces(Replaces::Never)
        .doc(
            "5.0.0",
            "key group <id|$> [MKSTREAM] [ENTRIESREAD entries-read]",
            "Makes a group, which begins to read behind an ID.",
        ),
    Command::args("xgroup|setid", -5, WRITE | WEIGHTLESS, SECOND, set_id)
        .tells(told("xgroup-setid"))
        .replaces(Replaces::Never)
        .doc("5.0.0", "key group <id|$> [ENTRIESREAD entries-read]", "Has a group go on behind an ID."),
    Command::args("xgroup|destroy", 4, WRITE, SECOND, |call, args| {
        let (key, group) = (call.key(args.at(0).unwrap_or_default()), args.at(1).unwrap_or_default());
        is_there(call, &key)?;
        call.remove_group(&key, group)
    })
    .tells(Tells::Nothing)
    .access(&[Access::Reduce])
    .weighs(Weighs::Survey)
    .replaces(Replaces::Never)
    .doc("5.0.0", "key group", "Removes a group."),
    Command::args("xgroup|createconsumer", 5, WRITE | DENYOOM | WEIGHTLESS, SECOND, |call, args| {
        let (key, group) = (call.key(args.at(0).unwrap_or_default()), args.at(1).unwrap_or_default());
        is_there(call, &key)?;
        let now = call.cx.now();
        let new = call.cx.guard.consumer_create(&key, group, args.at(2).unwrap_or_default(), now);
        let new = new.map_err(|refusal| refused(refusal, || no_group_for(key.bytes(), group)))?;
        call.integer(i64::from(new))
    })
    .tells(told("xgroup-createconsumer"))
    .access(&[Access::Extend])
    .replaces(Replaces::Never)
    .doc("6.2.0", "key group consumer", "Makes a consumer; whether there was none."),
    Command::args("xgroup|delconsumer", 5, WRITE, SECOND, |call, args| {
        let (key, group) = (call.key(args.at(0).unwrap_or_default()), args.at(1).unwrap_or_default());
        is_there(call, &key)?;
        call.remove_consumer(&key, group, args.at(2).unwrap_or_default())
    })
    .tells(Tells::Nothing)
    .access(&[Access::Reduce])
    .weighs(Weighs::Survey)
    .replaces(Replaces::Never)
    .doc("5.0.0", "key group consumer", "Removes a consumer; how many entries were pending with it."),
    Command::args("xgroup|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| help(call, "xgroup"))
        .doc("5.0.0", "", "What XGROUP can do."),
];

pub(super) const XACK: Definition =
    Command::of_collection("xack", -4, WRITE | FAST, |call, key, hint, mut args| {
        let group = next(&mut args)?;
        if read_as(call.cx, call.tally, key, hint, Type::Stream)?
            .and_then(|there| there.stream())
            .is_none_or(|stream| stream.group(group).is_none())
        {
            return call.length(0);
        }
        each_id(args)?;
        call.work_on_ids(key, Some(group), args)
    })
    .tells(Tells::Nothing)
    .access(&[Access::Update])
    .weighs(Weighs::Elements(Elements::Ids))
    .doc("5.0.0", "key group id [id ...]", "Acknowledges entries, which are pending no more; how many.");

pub(super) const XPENDING: Definition = Command::of_collection("xpending", -3, READONLY, pending)
    .weighs(Weighs::Elements(Elements::Pending))
    .doc(
        "5.0.0",
        "key group [[IDLE min-idle-time] start end count [consumer]]",
        "What is pending in a group.",
    );

pub(super) const XCLAIM: Definition =
    Command::of_collection("xclaim", -6, WRITE | FAST, claim).tells(Tells::Nothing).weighs(Weighs::Elements(Elements::Claim)).doc(
        "5.0.0",
        "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
        "Makes a consumer the one with which entries are pending.",
    );

pub(super) const XAUTOCLAIM: Definition = Command::of_collection("xautoclaim", -6, WRITE | FAST, auto_claim)
    .tells(Tells::Nothing)
    .weighs(Weighs::Elements(Elements::ClaimIdle))
    .doc(
        "6.2.0",
        "key group consumer min-idle-time start [COUNT count] [JUSTID]",
        "The same, of what is pending from an ID on.",
    );

/// Checks that there is a stream.
///
/// # Errors
/// There is none, or the key has another type of value.
fn is_there(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Stream)?.map(drop).ok_or(NO_STREAM)
}

/// Parses where a group begins.
fn start(word: &[u8]) -> Result<Start, Fail> {
    if word == b"$" { Ok(Start::Last) } else { strict_id(word, 0).map(Start::Behind) }
}

/// Parses `[MKSTREAM] [ENTRIESREAD entries-read]`.
fn options(args: &mut Args<'_>, name: &str, makes: Option<&mut bool>) -> Result<Option<u64>, Fail> {
    let (mut read, mut makes) = (None, makes);
    while let Some(word) = args.next() {
        if is(word, "MKSTREAM")
            && let Some(makes) = &mut makes
        {
            **makes = true;
        } else if is(word, "ENTRIESREAD") && args.at(0).is_some() {
            let n = integer(next(args)?)?;
            if n < -1 {
                return Err(Fail::of("ERR value for ENTRIESREAD must be positive or -1"));
            }
            read = u64::try_from(n).ok();
        } else {
            return Err(Fail::subcommand_arity("XGROUP", name));
        }
    }
    Ok(read)
}

fn create(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (key, group, id) = (call.key(next(&mut args)?), next(&mut args)?, next(&mut args)?);
    let mut makes = false;
    let read = options(&mut args, "CREATE", Some(&mut makes))?;
    let there = peek_as(&mut call.cx.guard, &key, Type::Stream)?.is_some();
    if !there && !makes {
        return Err(NO_STREAM);
    }
    let start = start(id)?;
    let made = call.cx.guard.group_create(&key, group, start, read, makes);
    made.map_err(|refusal| refused(refusal, || NO_STREAM))?;
    call.ok()
}

fn set_id(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (key, group, id) = (call.key(next(&mut args)?), next(&mut args)?, next(&mut args)?);
    let read = options(&mut args, "SETID", None)?;
    let there = peek_as(&mut call.cx.guard, &key, Type::Stream)?.ok_or(NO_STREAM)?;
    if there.stream().is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_group_for(key.bytes(), group));
    }
    let done = call.cx.guard.group_set_id(&key, group, start(id)?, read);
    done.map_err(|refusal| refused(refusal, || no_group_for(key.bytes(), group)))?;
    call.ok()
}

/// Serves XPENDING.
fn pending(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let group = next(&mut args)?;
    if args.is_empty() {
        return call.tell_stream(key, Tale::Summary { group: group.into() });
    }
    let mut min_idle_ms = 0;
    // Words behind the last known one are ignored, as in Redis, up to this many.
    if !(3..=6).contains(&args.len()) {
        return Err(Fail::SYNTAX);
    }
    if args.at(0).is_some_and(|word| is(word, "IDLE")) {
        args.next();
        min_idle_ms = u64::try_from(integer(next(&mut args)?)?).unwrap_or(0);
        if args.len() < 3 {
            return Err(Fail::SYNTAX);
        }
    }
    let (from, to, count) = (next(&mut args)?, next(&mut args)?, next(&mut args)?);
    let most = usize::try_from(integer(count)?).unwrap_or(0);
    let (from, to) = (bound(from, true)?, bound(to, false)?);
    let (group, consumer) = (group.into(), args.next().map(Into::into));
    let now = call.cx.now();
    call.tell_stream(key, Tale::Pending { group, consumer, from, to, most, min_idle_ms, now })
}

/// The options of XCLAIM or XAUTOCLAIM.
#[derive(Clone, Copy, Debug)]
struct Terms {
    min_idle_ms: u64,
    now: u64,
    time: u64,
    count: Option<u64>,
    force: bool,
    silent: bool,
    last: Option<StreamId>,
}

impl Terms {
    fn claim<'a>(&self, group: &'a [u8], consumer: &'a [u8]) -> Claim<'a> {
        let Terms { min_idle_ms, now, time, count, force, silent, last } = *self;
        Claim { group, consumer, now, min_idle_ms, time, count, silent, force, last }
    }
}

/// Checks that there is a stream with this group.
fn has_group(call: &mut Call<'_, '_, '_>, key: &Key<'_>, group: &[u8]) -> Done {
    let there = peek_as(&mut call.cx.guard, key, Type::Stream)?.and_then(|there| there.stream());
    if there.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_group(key.bytes(), group));
    }
    Ok(())
}

fn min_idle(word: &[u8], name: &str) -> Result<u64, Fail> {
    let n = parse_integer(word)
        .ok_or_else(|| Fail::with(format!("ERR Invalid min-idle-time argument for {name}")))?;
    Ok(u64::try_from(n).unwrap_or(0))
}

/// Serves XCLAIM.
fn claim(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let (group, consumer) = (next(&mut args)?, next(&mut args)?);
    has_group(call, key, group)?;
    let now = call.cx.now();
    let min_idle_ms = min_idle(next(&mut args)?, "XCLAIM")?;
    // The IDs end at the first word that is none.
    let count = args.take_while(|word| strict_id(word, 0).is_ok()).count();
    let words = first(&mut args, count);
    let mut terms =
        Terms { min_idle_ms, now, time: now, count: None, force: false, silent: false, last: None };
    while let Some(word) = args.next() {
        let number = |word: Option<&[u8]>, option: &str| {
            word.and_then(parse_integer)
                .ok_or_else(|| Fail::with(format!("ERR Invalid {option} option argument for XCLAIM")))
        };
        let behind = !args.is_empty();
        if is(word, "FORCE") {
            terms.force = true;
        } else if is(word, "JUSTID") {
            terms.silent = true;
        } else if is(word, "IDLE") && behind {
            let idle = number(args.next(), "IDLE")?;
            terms.time = u64::try_from((now as i64).saturating_sub(idle)).unwrap_or(now);
        } else if is(word, "TIME") && behind {
            terms.time = u64::try_from(number(args.next(), "TIME")?).unwrap_or(now);
        } else if is(word, "RETRYCOUNT") && behind {
            terms.count = u64::try_from(number(args.next(), "RETRYCOUNT")?).ok();
        } else if is(word, "LASTID") && behind {
            terms.last = Some(strict_id(next(&mut args)?, 0)?);
        } else {
            return Err(Fail::with(format!("ERR Unrecognized XCLAIM option '{}'", shown(word, 128))));
        }
    }
    // A time in the future counts as now.
    terms.time = terms.time.min(now);
    let mut left = Encoder::default();
    words.for_each(|word| left.push(word));
    let what = What::Ids(left, 0);
    call.claim(key, (group, consumer), terms, what)
}

/// Serves XAUTOCLAIM.
fn auto_claim(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let (group, consumer) = (next(&mut args)?, next(&mut args)?);
    let min_idle_ms = min_idle(next(&mut args)?, "XAUTOCLAIM")?;
    let from = bound(next(&mut args)?, true)?;
    let (mut count, mut silent) = (100, false);
    while let Some(word) = args.next() {
        if is(word, "COUNT") && !args.is_empty() {
            let n = parse_integer(next(&mut args)?).and_then(|n| usize::try_from(n).ok());
            // At most as many IDs as fit into all memory.
            let n = n.filter(|n| (1..=isize::MAX as usize / 16).contains(n));
            count = n.ok_or(Fail::of("ERR COUNT must be > 0"))?;
        } else if is(word, "JUSTID") {
            silent = true;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    has_group(call, key, group)?;
    let now = call.cx.now();
    let terms = Terms { min_idle_ms, now, time: now, count: None, force: false, silent, last: None };
    let looks = count.saturating_mul(LOOKS_EACH);
    let what = What::From { from, left: count, looks, deleted: Vec::new() };
    call.claim(key, (group, consumer), terms, what)
}

/// What is still to be claimed.
#[derive(Debug)]
enum What {
    /// These IDs, but for so many at the front.
    Ids(Encoder, usize),
    /// Up to `left` entries pending from an ID on, looking at up to `looks`.
    From { from: StreamId, left: usize, looks: usize, deleted: Vec<StreamId> },
}

/// A command that claims entries, some at a time, and keeps their replies.
#[derive(Debug)]
struct Claiming {
    name: Name,
    group: Box<[u8]>,
    consumer: Box<[u8]>,
    terms: Terms,
    what: What,
    kept: Output,
    count: usize,
    sent: Option<u64>,
    held: Heap,
}

impl Call<'_, '_, '_> {
    fn claim(&mut self, key: &Key<'_>, (group, consumer): (&[u8], &[u8]), terms: Terms, what: What) -> Done {
        let words = match &what {
            What::Ids(words, _) => words.args().encoded().len(),
            What::From { .. } => 0,
        };
        let held = Heap::keep(self, group.len() + consumer.len() + words)?;
        let kept = Output::charged(u64::MAX, self.cx.guard.store(), 0);
        let name = Name::kept(self, key.bytes())?;
        let (group, consumer) = (group.into(), consumer.into());
        self.work(Claiming { name, group, consumer, terms, what, kept, count: 0, sent: None, held })
    }
}

/// Bytes of an ID in a reply, at most.
const ID_BYTES: usize = 3 * HEAD_BYTES_MAX;

/// Bytes of an entry in the reply, at most; `None` if only its ID is replied.
fn told_bytes_max(stream: Option<Stream<'_>>, id: StreamId, silent: bool) -> Option<usize> {
    let entry = stream.filter(|_| !silent)?.entry(id)?;
    Some(entry_bytes_max(&entry))
}

/// How many entries are claimed in one moment, and the bytes of their replies; `each` has those of each entry. As many as are not
/// too long together, at least one.
fn named_at_once(each: impl Iterator<Item = usize>) -> (usize, usize) {
    let (mut claimed, mut bytes) = (0, HEAD_BYTES_MAX);
    for more in each {
        if claimed > 0 && (bytes + more) as u64 > STEPS_BYTES_MIN {
            break;
        }
        (claimed, bytes) = (claimed + 1, bytes + more);
    }
    (claimed, bytes)
}

/// How many pending entries, up to `most`, are claimed in one moment, and the bytes of their replies; `each` has those of each
/// entry beside its ID. Any of several times as many may be claimed, so the longest of these count, and the IDs of all. Only as
/// many are looked at as are in proportion to the claimed ones.
fn pending_at_once(mut each: impl Iterator<Item = usize>, most: usize) -> (usize, usize) {
    let (mut claimed, mut some, mut all) = ((1, 0), 1, Vec::new());
    loop {
        all.extend(each.by_ref().take(some * LOOKS_EACH - all.len()));
        all.sort_unstable();
        let longest = all.iter().rev().take(some).sum::<usize>();
        let bytes = HEAD_BYTES_MAX + all.len() * ID_BYTES + longest;
        let is_long = bytes as u64 > STEPS_BYTES_MIN;
        if is_long && some > 1 {
            return claimed;
        }
        claimed = (some, bytes);
        if is_long || some >= most {
            return claimed;
        }
        some = (2 * some).min(most);
    }
}

impl Claiming {
    /// Whether anything was claimed, or found deleted: then that is replied, whatever happens.
    fn has_done(&self) -> bool {
        let deletes = match &self.what {
            What::Ids(..) => false,
            What::From { deleted, .. } => !deleted.is_empty(),
        };
        deletes || self.count > 0
    }

    /// Charges the deleted IDs, and so many more, in a table that grows by doubling.
    fn hold_deleted(&mut self, call: &mut Call<'_, '_, '_>, more: usize) -> Done {
        let What::From { left, deleted, .. } = &self.what else { return Ok(()) };
        let ids = 2 * (deleted.len() + more.min(*left));
        let bytes = ids * size_of::<StreamId>() + self.group.len() + self.consumer.len();
        self.held.set(call, bytes)
    }

    /// Claims some entries when there is room for their replies; true if there are more.
    fn claim_some(&mut self, call: &mut Call<'_, '_, '_>, most: usize) -> Result<bool, Fail> {
        self.hold_deleted(call, most)?;
        loop {
            let name = self.name.for_now();
            let key = name.key(call);
            match call.as_one([key], |call| self.moment(call, &key, most))? {
                Came::Needs(bytes) => call.make_room_in(&mut self.kept, bytes)?,
                Came::Some(more) => return Ok(more),
            }
        }
    }

    /// Claims some entries in one moment and keeps their replies. If that needs room, nothing is done.
    fn moment(&mut self, call: &mut Call<'_, '_, '_>, key: &Key<'_>, most: usize) -> Result<Came, Fail> {
        let Claiming { group, consumer, terms, what, kept, count, .. } = self;
        let db = call.client.db;
        let claim = terms.claim(group, consumer);
        let stream = peek_as(&mut call.cx.guard, key, Type::Stream)?.and_then(|there| there.stream());
        let none = || no_group(key.bytes(), group);
        let (claimed, new, more);
        match what {
            What::Ids(words, done) => {
                let all = words.args();
                let mut left = all;
                if *done > 0 {
                    left.nth(*done - 1);
                }
                let some = first(&mut left, most);
                let each = ids(some).map(|id| told_bytes_max(stream, id, terms.silent).unwrap_or(ID_BYTES));
                let (claimed_at_once, bytes) = named_at_once(each);
                let some = Args::rest(some.encoded(), claimed_at_once);
                if bytes > kept.free_bytes() {
                    return Ok(Came::Needs(bytes));
                }
                let result = call.cx.guard.group_claim(key, &claim, ids(some));
                (claimed, new) = result.map_err(|refusal: StreamRefusal| refused(refusal, none))?;
                *done += some.len();
                more = *done < all.len();
                call.spend(some.len() as u64 * ID_NS);
            }
            What::From { from, left, looks, deleted } => {
                let there = stream.and_then(|stream| Some((stream, stream.group(group)?)));
                let pending = there.into_iter().flat_map(|(stream, group)| stream.pending(&group, *from));
                let each = pending.map(|there| told_bytes_max(stream, there.id, terms.silent).unwrap_or(0));
                let (some, mut bytes) = pending_at_once(each, most.min(*left));
                // With those that are deleted, which are replied behind all others.
                bytes += (deleted.len() + 1) * ID_BYTES;
                if bytes > kept.free_bytes() {
                    return Ok(Came::Needs(bytes));
                }
                let limits = (some, (*looks).min(some * LOOKS_EACH));
                let result = call.cx.guard.group_claim_from(key, &claim, *from, limits);
                let result = result.map_err(|refusal: StreamRefusal| refused(refusal, none))?;
                *left -= result.claimed.len() + result.deleted.len();
                *looks -= result.looked;
                deleted.extend_from_slice(&result.deleted);
                more = result.next.is_some() && *left > 0 && *looks > 0;
                *from = result.next.unwrap_or(StreamId::MIN);
                (claimed, new) = (result.claimed, result.new_consumer);
                call.spend(result.looked as u64 * PENDING_NS + claimed.len() as u64 * ID_NS);
            }
        }
        if new {
            let told = change("xgroup-createconsumer");
            call.cx.tell(Class::Stream, told.name, db, key.bytes());
        }
        let stream = peek_as(&mut call.cx.guard, key, Type::Stream)?.and_then(|there| there.stream());
        let before = kept.len();
        for id in claimed {
            *count += 1;
            let there = stream.as_ref().filter(|_| !terms.silent);
            match there.and_then(|stream| Some((stream, stream.entry(id)?))) {
                Some((stream, entry)) => put_entry(kept, stream, entry),
                None => put_id(kept, id),
            }
        }
        call.spend(copying_ns(kept.len() - before));
        Ok(Came::Some(more))
    }
}

/// What a moment did.
enum Came {
    /// Nothing: it needs so many bytes of room.
    Needs(usize),
    /// Claimed some entries; true if there are more.
    Some(bool),
}

impl Job for Claiming {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if let Some(sent) = &mut self.sent {
            return send_whole(call, &self.kept, sent);
        }
        let each_ns = ID_NS + PENDING_NS;
        let steps = if call.cx.guard.in_transaction() { u64::MAX } else { call.step_ns() };
        let most = ((steps / each_ns) as usize).clamp(FEW_ELEMENTS, CLAIMED_AT_ONCE);
        let more = match self.claim_some(call, most) {
            Ok(more) => more,
            // What was claimed is replied.
            Err(_) if self.has_done() => false,
            Err(fail) => return Err(fail),
        };
        if more {
            return Ok(Step::More);
        }
        if let What::From { from, deleted, .. } = &self.what {
            put_array(call.out, 3);
            put_id(call.out, *from);
            // There is room for the deleted IDs: without it nothing was claimed.
            put_array(&mut self.kept, deleted.len());
            deleted.iter().for_each(|id| put_id(&mut self.kept, *id));
        }
        put_array(call.out, self.count);
        send_whole(call, &self.kept, self.sent.insert(0))
    }

    fn wants(&self) -> Option<(usize, usize)> {
        self.sent.is_none().then_some(LEAF)
    }

    /// What was claimed must be replied.
    fn asks_itself(&self) -> bool {
        self.has_done()
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes() + self.kept.capacity_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of it, and how many were looked at.
    fn looked_at(lengths: impl Iterator<Item = usize>, most: usize) -> ((usize, usize), usize) {
        let mut looks = 0;
        let came = pending_at_once(lengths.inspect(|_| looks += 1), most);
        (came, looks)
    }

    #[test]
    fn no_more_is_looked_at_than_goes_with_what_is_claimed() {
        let ids = |looks: usize| HEAD_BYTES_MAX + looks * ID_BYTES;
        let one = |bytes: usize| std::iter::repeat_n(bytes, 1_000);
        for (lengths, most, claimed, told, looks) in [
            // One alone is as long as it is, and those behind it are not looked at.
            (one(4 << 20), 256, 1, 4 << 20, 10),
            (one(4 << 20), 1, 1, 4 << 20, 10),
            // Two fit, and four do not.
            (one(40_000), 256, 2, 80_000, 40),
            (one(100), 64, 64, 6_400, 640),
            // All that there are, whose IDs take 72 KB.
            (one(0), 256, 256, 0, 1_000),
        ] {
            let came = ((claimed, ids(looks.min(claimed * LOOKS_EACH)) + told), looks);
            assert_eq!(looked_at(lengths, most), came);
        }
        assert_eq!(looked_at(std::iter::empty(), 9), ((9, HEAD_BYTES_MAX), 0));
        // The longest of those that are looked at count, wherever they are.
        let mixed = (0..1_000).map(|n| if n % 20 == 19 { 100_000 } else { 10 });
        assert_eq!(looked_at(mixed, 256), ((2, ids(20) + 100_010), 40));
    }

    #[test]
    fn as_many_are_claimed_by_their_ids_as_are_not_too_long_together() {
        for (bytes, claimed) in [(4 << 20, 1), (131_048, 1), (65_524, 2), (65_525, 1), (131_048 / 100, 100)] {
            let told = HEAD_BYTES_MAX + claimed * bytes;
            assert_eq!(named_at_once(std::iter::repeat_n(bytes, 200)), (claimed, told), "{bytes}");
        }
        assert_eq!(named_at_once(std::iter::repeat_n(10, 20)), (20, HEAD_BYTES_MAX + 200));
        assert_eq!(named_at_once(std::iter::empty()), (0, HEAD_BYTES_MAX));
    }
}
