//! Commands on streams: their rows; XADD, XTRIM, XSETID, XRANGE and XINFO; and how IDs are read and written.
//!
//! ```text
//! told.rs      replies with contents of a stream, copied in steps if they are long
//! trimming.rs  removing entries and pending ones some at a time
//! reading.rs   XREAD and XREADGROUP, which may wait
//! groups.rs    groups, and what is pending in them
//! payload.rs   DUMP of a stream; loading.rs: its RESTORE
//! ```

mod groups;
pub(crate) mod loading;
pub(crate) mod payload;
pub(crate) mod reading;
mod told;
pub(crate) mod trimming;

use larder_protocol::resp::{Args, write_integer};
use larder_store::{Adding, Hint, Key, NewFields, NewId, StreamId, StreamRefusal, Trim, TrimTo, Type};

use super::{Call, look, read_as};
use crate::core::events::{Change, Class, seen};
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{integer, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail, shown};
use crate::redis::help::help;
use crate::redis::reply::put_null;
use crate::redis::row::flag::{DENYOOM, FAST, LOADING, READONLY, STALE, WEIGHTLESS, WRITE};
use crate::redis::row::{Access, Command, Elements, Keys, NO_KEYS, Tells, Weighs};
pub(crate) use told::FULL_ENTRIES;
use told::Tale;

/// The keys of subcommands: the word behind the subcommand.
pub(super) const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };
/// Trimming up to so many entries and bytes with XADD is not spent.
const FEW_TRIMMED: u64 = 100;
const FEW_TRIMMED_BYTES: u64 = 128 << 10;
/// Entries that are trimmed with `~`, if the client gives no LIMIT: a hundred nodes of Redis.
const LIMIT_ABOUT: u64 = 10_000;

/// How often bytes that lie apart are copied on their way into leaves, in units of a copy outside of the cache.
pub(crate) const APART_COPIES: u64 = 3;

const BAD_ID: Fail = Fail::of("ERR Invalid stream ID specified as stream command argument");
const SMALL: Fail =
    Fail::of("ERR The ID specified in XADD is equal or smaller than the target stream top item");

const XINFO: &[Definition] =
    &[
        Command::args("xinfo|stream", -3, READONLY, SECOND, info).weighs(Weighs::Survey).doc(
            "5.0.0",
            "key [FULL [COUNT count]]",
            "Figures of a stream.",
        ),
        Command::args("xinfo|groups", 3, READONLY, SECOND, |call, args| {
            let key = call.key(args.at(0).unwrap_or_default());
            call.tell_stream(&key, Tale::Groups)
        })
        .weighs(Weighs::Survey)
        .doc("5.0.0", "key", "The groups of a stream."),
        Command::args("xinfo|consumers", 4, READONLY, SECOND, |call, args| {
            let key = call.key(args.at(0).unwrap_or_default());
            let now = call.cx.now();
            call.tell_stream(&key, Tale::Consumers { group: args.at(1).unwrap_or_default().into(), now })
        })
        .weighs(Weighs::Survey)
        .doc("5.0.0", "key group", "The consumers of a group."),
        Command::args("xinfo|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| help(call, "xinfo"))
            .doc("5.0.0", "", "What XINFO can do."),
    ];

pub(crate) const ROWS: &[Definition] = &[
    Command::of_collection("xadd", -5, WRITE | DENYOOM | FAST, add)
        .tells(Tells::Nothing)
        .access(&[Access::Extend])
        .weighs(Weighs::Elements(Elements::AddEntry)).doc(
            "5.0.0",
            "key [NOMKSTREAM] [<MAXLEN|MINID> [=|~] threshold [LIMIT count]] <*|id> field value [field value ...]",
            "Puts an entry to the end; its ID.",
        ),
    Command::of_collection("xlen", 2, READONLY | FAST | WEIGHTLESS, |call, key, hint, _| {
        let entries = look(call, key, hint, Type::Stream, |there| there.stream().map_or(0, |stream| stream.len()))?;
        call.length(entries.unwrap_or(0))
    })
    .access(&[Access::Look])
    .doc("5.0.0", "key", "How many entries there are."),
    Command::of_collection("xrange", -4, READONLY, |call, key, hint, args| range(call, key, hint, args, false))
        .weighs(Weighs::Elements(Elements::Entries)).doc("5.0.0", "key start end [COUNT count]", "Entries by their IDs."),
    Command::of_collection("xrevrange", -4, READONLY, |call, key, hint, args| range(call, key, hint, args, true))
        .weighs(Weighs::Elements(Elements::Entries)).doc("5.0.0", "key end start [COUNT count]", "Entries by their IDs, the last first."),
    Command::of_collection("xdel", -3, WRITE | FAST, |call, key, _, args| {
        if super::peek_as(&mut call.cx.guard, key, Type::Stream)?.is_none() {
            return call.length(0);
        }
        each_id(args)?;
        call.work_on_ids(key, None, args)
    })
    .tells(told("xdel"))
    .access(&[Access::Reduce])
    .weighs(Weighs::Elements(Elements::Ids)).doc("5.0.0", "key id [id ...]", "Removes entries; how many."),
    Command::of_collection("xtrim", -4, WRITE, trim).tells(told("xtrim")).access(&[Access::Reduce]).weighs(Weighs::Elements(Elements::TrimEntries)).doc(
        "5.0.0",
        "key <MAXLEN|MINID> [=|~] threshold [LIMIT count]",
        "Removes entries from the front; how many.",
    ),
    Command::of_collection("xsetid", -3, WRITE | DENYOOM | FAST | WEIGHTLESS, set_id).tells(told("xsetid")).doc(
        "5.0.0",
        "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        "Sets the last ID.",
    ),
    Command::container("xinfo", XINFO).doc("5.0.0", "", "Figures of streams, their groups and consumers."),
    reading::XREAD,
    reading::XREADGROUP,
    groups::XGROUP,
    groups::XACK,
    groups::XPENDING,
    groups::XCLAIM,
    groups::XAUTOCLAIM,
];

/// Makes a change of a stream.
pub(super) const fn change(name: &'static str) -> Change {
    Change { empties: false, ..Change::of(Class::Stream, name) }
}

pub(super) const fn told(name: &'static str) -> Tells {
    Tells::Each(change(name))
}

/// Writes an ID as a bulk string.
pub(super) fn put_id(out: &mut Output, id: StreamId) {
    let mut text = [0; 48];
    let end = write_id(&mut text, id);
    super::put_bulk(out, &text[..end]);
}

/// Writes the text of an ID; returns its length.
pub(super) fn write_id(text: &mut [u8; 48], id: StreamId) -> usize {
    let end = write_unsigned(text, 0, id.ms);
    text[end] = b'-';
    write_unsigned(text, end + 1, id.seq)
}

/// Writes a number at a place; returns its end.
fn write_unsigned(text: &mut [u8; 48], at: usize, n: u64) -> usize {
    match i64::try_from(n) {
        Ok(n) => at + write_integer(&mut text[at..], n),
        Err(_) => {
            let digits = n.to_string();
            text[at..at + digits.len()].copy_from_slice(digits.as_bytes());
            at + digits.len()
        }
    }
}

/// Parses a number of 64 bits without a sign, but for a plus, as Redis does.
fn unsigned(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"+").unwrap_or(word);
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    word.iter().try_fold(0_u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// Parses an ID. `seq`: its second part, if that is missing.
///
/// # Errors
/// It is no ID.
pub(super) fn strict_id(word: &[u8], seq: u64) -> Result<StreamId, Fail> {
    let (ms, seq) = match word.iter().position(|byte| *byte == b'-') {
        Some(dash) => (unsigned(&word[..dash]), unsigned(&word[dash + 1..])),
        None => (unsigned(word), Some(seq)),
    };
    Ok(StreamId { ms: ms.ok_or(BAD_ID)?, seq: seq.ok_or(BAD_ID)? })
}

/// Parses an ID, `-` for the least, or `+` for the greatest.
pub(super) fn any_id(word: &[u8], seq: u64) -> Result<StreamId, Fail> {
    match word {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        word => strict_id(word, seq),
    }
}

/// Parses an end of a range; with `(` in front the ID is not part of the range.
///
/// # Errors
/// It is no ID, or there is no ID on that side of it.
pub(super) fn bound(word: &[u8], is_start: bool) -> Result<StreamId, Fail> {
    let seq = if is_start { 0 } else { u64::MAX };
    match word {
        [b'(', id @ ..] if !id.is_empty() => {
            let id = strict_id(id, seq)?;
            if is_start {
                id.next().ok_or(Fail::of("ERR invalid start ID for the interval"))
            } else {
                id.before().ok_or(Fail::of("ERR invalid end ID for the interval"))
            }
        }
        word => any_id(word, seq),
    }
}

/// Checks that all words are IDs.
///
/// # Errors
/// One is not.
pub(super) fn each_id(mut words: Args<'_>) -> Done {
    words.try_for_each(|word| strict_id(word, 0).map(drop))
}

/// The IDs of these words.
pub(super) fn ids<'a>(words: Args<'a>) -> impl Iterator<Item = StreamId> + Clone + use<'a> {
    words.filter_map(|word| strict_id(word, 0).ok())
}

/// The error if there is no such key, or no such group.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Fail {
    Fail::with(format!(
        "NOGROUP No such key '{}' or consumer group '{}'",
        shown(key, 1024),
        shown(group, 1024)
    ))
}

/// The error if the stream has no such group.
pub(super) fn no_group_for(key: &[u8], group: &[u8]) -> Fail {
    Fail::with(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        shown(group, 1024),
        shown(key, 1024)
    ))
}

/// The error if a stream was not changed; `none` if the stream or group is missing.
pub(super) fn refused(refusal: StreamRefusal, none: impl FnOnce() -> Fail) -> Fail {
    match refusal {
        StreamRefusal::Declined(declined) => declined.into(),
        StreamRefusal::Exhausted => {
            Fail::of("ERR The stream has exhausted the last possible ID, unable to add more items")
        }
        StreamRefusal::Small => SMALL,
        StreamRefusal::BelowDeleted => {
            Fail::of("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id")
        }
        StreamRefusal::FewAdded => {
            Fail::of("ERR The entries_added specified in XSETID is smaller than the target stream length")
        }
        StreamRefusal::GroupExists => Fail::of("BUSYGROUP Consumer Group name already exists"),
        StreamRefusal::NoStream | StreamRefusal::NoGroup => none(),
    }
}

/// The options of XADD and XTRIM.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    trim: Option<Trim>,
    present: bool,
}

/// Parses the options of XADD or XTRIM, and takes them out of `args`; for XADD up to its ID.
fn options(args: &mut Args<'_>, adds: bool) -> Result<Options, Fail> {
    let (mut to, mut about, mut limit, mut present) = (None, false, None, false);
    while let Some(word) = args.at(0) {
        let behind = args.len() - 1;
        let trims = is(word, "MAXLEN") || is(word, "MINID");
        if adds && word == b"*" {
            break;
        } else if trims && behind > 0 {
            if to.is_some() {
                return Err(Fail::of(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            args.next();
            about = false;
            if behind >= 2 && matches!(args.at(0), Some(b"~" | b"=")) {
                about = args.next() == Some(b"~");
            }
            let threshold = next(args)?;
            to = Some(if is(word, "MAXLEN") {
                let most = u64::try_from(integer(threshold)?);
                TrimTo::Len(most.map_err(|_| Fail::of("ERR The MAXLEN argument must be >= 0."))?)
            } else {
                TrimTo::Id(strict_id(threshold, 0)?)
            });
        } else if is(word, "LIMIT") && behind > 0 {
            args.next();
            let most = u64::try_from(integer(next(args)?)?);
            limit = Some(most.map_err(|_| Fail::of("ERR The LIMIT argument must be >= 0."))?);
        } else if adds && is(word, "NOMKSTREAM") {
            args.next();
            present = true;
        } else if adds {
            break;
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    let Some(to) = to else {
        if limit.is_some_and(|limit| limit > 0) {
            return Err(Fail::of(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if !adds {
            return Err(Fail::of("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        return Ok(Options { trim: None, present });
    };
    if limit.is_some() && !about {
        return Err(Fail::of("ERR syntax error, LIMIT cannot be used without the special ~ option"));
    }
    let limit = if about { limit.or(Some(LIMIT_ABOUT)).filter(|limit| *limit > 0) } else { None };
    Ok(Options { trim: Some(Trim { to, about, limit }), present })
}

/// Parses the ID of a new entry.
fn new_id(word: &[u8]) -> Result<NewId, Fail> {
    if word == b"*" {
        return Ok(NewId::Now);
    }
    if let Some(ms) = word.strip_suffix(b"-*") {
        return unsigned(ms).map(NewId::In).ok_or(BAD_ID);
    }
    strict_id(word, 0).map(NewId::Is)
}

/// Serves XADD.
fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let Options { trim, present } = options(&mut args, true)?;
    let Some(word) = args.next() else { return Err(Fail::arity("xadd")) };
    let id = new_id(word)?;
    if args.len() < 2 || !args.len().is_multiple_of(2) {
        return Err(Fail::arity("xadd"));
    }
    if id == NewId::Is(StreamId::MIN) {
        return Err(Fail::of("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let mut kept = call.cx.room.take_kept::<NewFields>().unwrap_or_default();
    let (apart_max, mut apart) = (call.cx.guard.store().element_bytes_max(), Vec::new());
    let done = kept.set_long(FieldPairs(args), apart_max, &mut apart).map_err(Fail::from).and_then(|()| {
        let at_once = call.cx.guard.in_transaction();
        let now = call.cx.now();
        let adding = Adding { id, now, fields: &kept, apart: &apart, present, trim, at_once };
        call.add_entry(key, &adding)
    });
    if !apart.is_empty() {
        let bytes: usize = apart.iter().map(|value| value.len()).sum();
        call.spend(APART_COPIES * copying_ns(bytes as u64));
    }
    call.cx.room.keep(kept);
    done
}

/// Pairs of fields and values, with a known count.
#[derive(Clone)]
struct FieldPairs<'a>(Args<'a>);

impl<'a> Iterator for FieldPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let pairs = self.0.len() / 2;
        (pairs, Some(pairs))
    }
}

impl ExactSizeIterator for FieldPairs<'_> {}

impl Call<'_, '_, '_> {
    /// Adds an entry, and publishes that and what is trimmed with it.
    fn add_entry(&mut self, key: &Key<'_>, adding: &Adding<'_>) -> Done {
        let tells = self.cx.shared.events.any();
        let db = self.client.db;
        let was = if tells { seen(&mut self.cx.guard, db, key.bytes()) } else { None };
        let added = self.cx.guard.stream_add(key, adding).map_err(|refusal| refused(refusal, || SMALL))?;
        let Some(added) = added else {
            put_null(self.out, self.client.resp3);
            return Ok(());
        };
        if added.trimmed.count > FEW_TRIMMED || added.trimmed.bytes > FEW_TRIMMED_BYTES {
            self.spend(trimming::trimming_ns(&added.trimmed));
        }
        if tells {
            let is = seen(&mut self.cx.guard, db, key.bytes());
            self.cx.tell_change(&change("xadd"), db, key.bytes(), was, is);
            if added.trimmed.count > 0 {
                self.cx.tell(Class::Stream, "xtrim", db, key.bytes());
            }
        }
        match adding.trim.filter(|_| added.trimmed.left > 0) {
            Some(trim) => self.go_on_trimming(key, trim, added.trimmed, Some(added.id)),
            None => {
                put_id(self.out, added.id);
                Ok(())
            }
        }
    }
}

/// Serves XTRIM.
fn trim(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let Some(trim) = options(&mut args, false)?.trim else { return Err(Fail::SYNTAX) };
    let at_once = call.cx.guard.in_transaction();
    let done = call.cx.guard.stream_trim(key, &trim, at_once)?;
    call.spend(trimming::trimming_ns(&done));
    if done.left > 0 {
        return call.go_on_trimming(key, trim, done, None);
    }
    call.length(done.count as usize)
}

/// Serves XSETID.
fn set_id(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let last = strict_id(next(&mut args)?, 0)?;
    let (mut added, mut deleted_max) = (None, None);
    while let Some(word) = args.next() {
        if is(word, "ENTRIESADDED") && !args.is_empty() {
            let n = u64::try_from(integer(next(&mut args)?)?);
            added = Some(n.map_err(|_| Fail::of("ERR entries_added must be positive"))?);
        } else if is(word, "MAXDELETEDID") && !args.is_empty() {
            let id = strict_id(next(&mut args)?, 0)?;
            if last < id {
                return Err(Fail::of(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            deleted_max = Some(id).filter(|id| *id != StreamId::MIN);
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    call.cx.guard.stream_set_id(key, last, added, deleted_max).map_err(|refusal| match refusal {
        StreamRefusal::Small => {
            Fail::of("ERR The ID specified in XSETID is smaller than the target stream top item")
        }
        other => refused(other, || Fail::NO_SUCH_KEY),
    })?;
    call.ok()
}

/// Serves XRANGE and XREVRANGE.
fn range(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    mut args: Args<'_>,
    back: bool,
) -> Done {
    let (one, other) = (next(&mut args)?, next(&mut args)?);
    let (start, end) = if back { (other, one) } else { (one, other) };
    let (from, to) = (bound(start, true)?, bound(end, false)?);
    let mut most = usize::MAX;
    while let Some(word) = args.next() {
        if !is(word, "COUNT") {
            return Err(Fail::SYNTAX);
        }
        most = usize::try_from(integer(next(&mut args)?)?.max(0)).unwrap_or(usize::MAX);
    }
    if read_as(call.cx, call.tally, key, hint, Type::Stream)?.is_none() {
        call.array(0);
        return Ok(());
    }
    if most == 0 {
        super::put_null_array(call.out, call.client.resp3);
        return Ok(());
    }
    call.tell_stream(key, Tale::Range { from, to, most, back })
}

/// Serves XINFO STREAM.
fn info(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let key = call.key(next(&mut args)?);
    let tale = match args.next() {
        None => Tale::Info,
        Some(word) if is(word, "FULL") => {
            let mut most = FULL_ENTRIES;
            match (args.next(), args.next(), args.next()) {
                (None, ..) => {}
                (Some(word), Some(count), None) if is(word, "COUNT") => {
                    // A negative COUNT means the default, and 0 means all.
                    most = match integer(count)? {
                        0 => usize::MAX,
                        count => usize::try_from(count).unwrap_or(FULL_ENTRIES),
                    };
                }
                _ => return Err(Fail::subcommand_arity("XINFO", "STREAM")),
            }
            Tale::Full { most }
        }
        Some(_) => return Err(Fail::subcommand_arity("XINFO", "STREAM")),
    };
    call.tell_stream(&key, tale)
}
