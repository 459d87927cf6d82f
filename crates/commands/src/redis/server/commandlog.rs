//! SLOWLOG and COMMANDLOG: commands that took long, or had a large request or reply.
//!
//! Only commands that may take long (without the flag FAST) are timed, unless times below a millisecond are to be listed: two
//! reads of a clock would be a good part of the work of a GET. Sizes are checked where they may be large: of a request that was
//! gathered or received into its item, and of an unusual reply. If small ones are to be listed, too, no command runs in a batch.

use larder_protocol::resp::Args;
use larder_store::Value;

use crate::redis::call::{Call, integer};
use crate::redis::commandlog::{Entry, Kind, Log};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::put_bulk;
use crate::redis::row::flag::{
    ADMIN, FAST, LOADING, NOSCRIPT, REPLIES_A_WORD, SETTLES, SHOWS_KEYS, SKIP_SLOWLOG, STALE, WEIGHTLESS,
};
use crate::redis::row::{Command, NO_KEYS};
use crate::redis::secret;
use crate::redis::steps::job::Noted;

const RULES: u64 = ADMIN | NOSCRIPT | LOADING | STALE | WEIGHTLESS;

pub(crate) const SLOWLOG: &[Definition] =
    &[
        Command::args("slowlog|get", -2, RULES | SHOWS_KEYS, NO_KEYS, |call, mut args| {
            let count = match (args.next(), args.next()) {
                (None, _) => 10,
                (Some(count), None) => count_of(count)?,
                _ => {
                    return Err(Fail::of(
                        "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
                    ));
                }
            };
            get(call, Kind::Slow, count)
        })
        .doc("2.2.12", "[count]", "Commands that took long."),
        Command::args("slowlog|len", 2, RULES | REPLIES_A_WORD, NO_KEYS, |call, _| len(call, Kind::Slow))
            .doc("2.2.12", "", "How many are listed."),
        Command::args("slowlog|reset", 2, RULES | SETTLES | REPLIES_A_WORD, NO_KEYS, |call, _| {
            reset(call, Kind::Slow)
        })
        .doc("2.2.12", "", "Empties the list."),
        Command::args("slowlog|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
            crate::redis::help::help(call, "slowlog")
        })
        .doc("6.2.0", "", "What SLOWLOG can do."),
    ];

pub(crate) const COMMANDLOG: &[Definition] = &[
    Command::args("commandlog|get", 4, RULES | SHOWS_KEYS, NO_KEYS, |call, mut args| {
        let (count, kind) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
        let count = count_of(count)?;
        get(call, Kind::named(kind)?, count)
    })
    .doc(
        "8.1.0",
        "count <SLOW|LARGE-REQUEST|LARGE-REPLY>",
        "Commands that took long, or had a large request or reply.",
    ),
    Command::args("commandlog|len", 3, RULES | REPLIES_A_WORD, NO_KEYS, |call, mut args| {
        len(call, Kind::named(args.next().unwrap_or_default())?)
    })
    .doc("8.1.0", "<SLOW|LARGE-REQUEST|LARGE-REPLY>", "How many are listed."),
    Command::args("commandlog|reset", 3, RULES | SETTLES | REPLIES_A_WORD, NO_KEYS, |call, mut args| {
        reset(call, Kind::named(args.next().unwrap_or_default())?)
    })
    .doc("8.1.0", "<SLOW|LARGE-REQUEST|LARGE-REPLY>", "Empties a list."),
    Command::args("commandlog|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "commandlog")
    })
    .doc("8.1.0", "", "What COMMANDLOG can do."),
];

/// Arguments of a command that are kept, and bytes of each.
const ARGS_KEPT: usize = 32;
const ARG_BYTES_KEPT: usize = 128;

/// What was measured of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Its time, if that was measured.
    pub took_us: Option<u64>,
    /// Bytes of its request.
    pub request_bytes: u64,
    /// Bytes of its reply.
    pub reply_bytes: u64,
}

/// Bytes of a request of these words on the wire.
pub(crate) fn request_bytes(words: Args<'_>) -> u64 {
    let digits = words.len().checked_ilog10().map_or(1, |tens| u64::from(tens) + 1);
    // `*2\r\n` is in front of them.
    3 + digits + words.encoded().len() as u64
}

impl Call<'_, '_, '_> {
    /// Whether a command is timed, by two reads of a clock.
    pub fn measures(&self, row: &Command) -> bool {
        !row.has(FAST) || self.shared.commandlog.measures_all()
    }

    /// Notes a command, if it took long or had a large request or reply; `args` with its name. EXEC notes each of its commands.
    #[inline]
    pub fn note(&mut self, row: &'static Command, args: Args<'_>, measured: Measured) {
        let log = &self.shared.commandlog;
        let Measured { took_us, request_bytes, reply_bytes } = measured;
        let values = [took_us, Some(request_bytes), Some(reply_bytes)];
        let listed = |(log, value): (&Log, Option<u64>)| value.is_some_and(|value| log.lists(value));
        if log.logs.iter().zip(values).any(listed) && !row.has(SKIP_SLOWLOG) {
            self.note_all(row, args, values);
        }
    }

    #[cold]
    fn note_all(&mut self, row: &'static Command, args: Args<'_>, values: [Option<u64>; 3]) {
        let entry = self.entry(row, args);
        let (log, store) = (&self.shared.commandlog, self.cx.guard.store());
        for (kind, value) in Kind::ALL.into_iter().zip(values) {
            if let Some(value) = value.filter(|value| log.log(kind).lists(*value)) {
                log.add(store, kind, entry.clone(), value);
            }
        }
    }

    /// Makes the entry of a command that goes on in later turns; `None` if neither slow commands nor large replies are listed, or
    /// there is no memory to keep its words.
    #[cold]
    pub fn note_later(&mut self, row: &'static Command, args: Args<'_>) -> Option<Noted> {
        let log = &self.shared.commandlog;
        let is_listed = [Kind::Slow, Kind::LargeReply].iter().any(|kind| log.log(*kind).lists(u64::MAX));
        if !is_listed || row.has(SKIP_SLOWLOG) {
            return None;
        }
        let entry = self.entry(row, args);
        let held = Heap::keep(self, entry.bytes() as usize).ok()?;
        Some(Noted { entry, _held: held })
    }

    /// Notes a command that has ended in a later turn, with the time of its steps and the bytes of its reply.
    pub fn note_end(&mut self, mut noted: Noted, took_us: u64, reply_bytes: u64) {
        noted.entry.at_s = self.cx.now() / 1000;
        let (log, store) = (&self.shared.commandlog, self.cx.guard.store());
        for (kind, value) in [(Kind::Slow, took_us), (Kind::LargeReply, reply_bytes)] {
            if log.log(kind).lists(value) {
                log.add(store, kind, noted.entry.clone(), value);
            }
        }
    }

    /// Makes the entry of a command.
    fn entry(&self, row: &'static Command, args: Args<'_>) -> Entry {
        let count = args.len();
        let shown = if count > ARGS_KEPT { ARGS_KEPT - 1 } else { count };
        let words = secret::shown(self.shared.rows, Some(row), args);
        let mut kept: Vec<Vec<u8>> = words.take(shown).map(cut).collect();
        if shown < count {
            kept.push(format!("... ({} more arguments)", count - shown).into_bytes());
        }
        Entry {
            id: 0,
            at_s: self.cx.now() / 1000,
            value: 0,
            command: row.name,
            key_at: row.first_key_at().filter(|at| *at < shown),
            words: count as u64,
            args: kept,
            address: self.client.facts.address.clone(),
            name: self.client.facts.names().name,
        }
    }

    /// Notes a command whose last word, of so many bytes, was received into the item of its second word.
    #[cold]
    pub fn note_upload(&mut self, row: &'static Command, words: &[&[u8]], value_bytes: u64) {
        let wire = |bytes: u64| 5 + bytes + bytes.checked_ilog10().map_or(1, |tens| u64::from(tens) + 1);
        let request_bytes =
            4 + words.iter().map(|word| wire(word.len() as u64)).sum::<u64>() + wire(value_bytes);
        let log = &self.shared.commandlog;
        if !log.log(Kind::LargeRequest).lists(request_bytes) {
            return;
        }
        let mut value = self.beginning(words[1]);
        let more = value_bytes.saturating_sub(value.len() as u64);
        if more > 0 {
            value.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
        }
        let mut entry = self.entry(row, Args::rest(&[], 0));
        entry.args = words.iter().map(|word| cut(word)).chain([value]).collect();
        entry.words = entry.args.len() as u64;
        entry.key_at = row.first_key_at();
        log.add(self.cx.guard.store(), Kind::LargeRequest, entry, request_bytes);
    }
}

impl Call<'_, '_, '_> {
    /// The first bytes of a key's value.
    fn beginning(&mut self, key: &[u8]) -> Vec<u8> {
        let key = self.key(key);
        let Some(item) = self.cx.guard.peek(&key).hit() else { return Vec::new() };
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(ARG_BYTES_KEPT)].to_vec();
        match item.value() {
            Value::Whole(value) => cut(value),
            Value::Pieces(value) => value.pin().pieces(0).next().map(cut).unwrap_or_default(),
            Value::Collection(_) => Vec::new(),
        }
    }
}

/// The beginning of a word, and how much was cut.
fn cut(word: &[u8]) -> Vec<u8> {
    let mut bytes = word[..word.len().min(ARG_BYTES_KEPT)].to_vec();
    if word.len() > ARG_BYTES_KEPT {
        let more = word.len() - ARG_BYTES_KEPT;
        bytes.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
    }
    bytes
}

const BAD_COUNT: Fail = Fail::of("ERR count should be greater than or equal to -1");

/// Parses how many entries are wanted; -1: all.
fn count_of(word: &[u8]) -> Result<usize, Fail> {
    match integer(word).map_err(|_| BAD_COUNT)? {
        -1 => Ok(usize::MAX),
        n => usize::try_from(n).map_err(|_| BAD_COUNT),
    }
}

fn len(call: &mut Call<'_, '_, '_>, kind: Kind) -> Done {
    let len = call.shared.commandlog.len(kind);
    call.length(len)
}

fn reset(call: &mut Call<'_, '_, '_>, kind: Kind) -> Done {
    let store = call.cx.guard.store();
    call.shared.commandlog.log(kind).entries().shorten(store, 0, 0);
    call.ok()
}

fn get(call: &mut Call<'_, '_, '_>, kind: Kind, count: usize) -> Done {
    let log = call.shared.commandlog.log(kind);
    // Memory for the copies, and for the reply.
    let bytes = log.entries().bytes as usize;
    let _held = Heap::take(call, bytes)?;
    call.make_room(2 * bytes)?;
    let mut left = bytes as u64;
    let entries: Vec<Entry> = {
        let entries = log.entries();
        // Others may have been added since.
        let fits = |entry: &&Entry| {
            let fits = entry.bytes() <= left;
            left = left.saturating_sub(entry.bytes());
            fits
        };
        entries.list.iter().take(count).take_while(fits).cloned().collect()
    };
    call.array(entries.len());
    for entry in entries {
        call.array(6);
        call.integer(entry.id as i64)?;
        call.integer(entry.at_s as i64)?;
        call.integer(entry.value as i64)?;
        call.array(entry.args.len());
        entry.args.iter().for_each(|arg| put_bulk(call.out, arg));
        call.bulk(entry.address.as_bytes())?;
        call.bulk(entry.name.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::resp::Encoder;

    #[test]
    fn a_request_has_the_bytes_that_it_takes_on_the_wire() {
        let mut words = Encoder::default();
        for word in [&b"SET"[..], b"a", b"value"] {
            words.push(word);
        }
        assert_eq!(
            request_bytes(words.args()),
            b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nvalue\r\n".len() as u64
        );
    }
}
