//! SLOWLOG: commands that took long.
//!
//! Only commands that may take long are measured (all that are not FAST), unless times below a
//! millisecond are to be listed: two looks at a clock would be a good part of what a GET costs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_protocol::resp::Args;
use larder_store::Store;

use super::secret;
use crate::core::shown::Slow;
use crate::redis::call::{Call, integer};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_bulk;
use crate::redis::strings::rewrite::Heap;
use crate::redis::table::flag::{ADMIN, FAST, LOADING, NOSCRIPT, SHOWS_KEYS, SKIP_SLOWLOG, STALE};
use crate::redis::table::{Command, NO_KEYS};

const RULES: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(crate) const SLOWLOG: &[Command] = &[
    Command::args("slowlog|get", -2, RULES | SHOWS_KEYS, NO_KEYS, get).doc(
        "2.2.12",
        "[count]",
        "Commands that took long.",
    ),
    Command::args("slowlog|len", 2, RULES, NO_KEYS, |call, _| {
        let len = call.shared.slowlog.len();
        call.length(len)
    })
    .doc("2.2.12", "", "How many are listed."),
    Command::args("slowlog|reset", 2, RULES, NO_KEYS, |call, _| {
        let store = call.cx.guard.store();
        call.shared.slowlog.entries().shorten(store, 0, 0);
        call.ok()
    })
    .doc("2.2.12", "", "Empties the list."),
    Command::args("slowlog|help", 2, LOADING | STALE, NO_KEYS, |call, _| {
        super::introspect::help(call, "slowlog")
    })
    .doc("6.2.0", "", "What SLOWLOG can do."),
];

/// Arguments of a command that are kept, and bytes of each.
const ARGS_KEPT: usize = 32;
const ARG_BYTES_KEPT: usize = 128;

/// A command that took long.
#[derive(Clone, Debug)]
struct Entry {
    id: u64,
    at_s: u64,
    took_us: u64,
    row: &'static Command,
    /// Of the arguments that are kept, its first key.
    key_at: Option<usize>,
    /// All arguments, also those that are not kept.
    words: u64,
    args: Vec<Vec<u8>>,
    address: Box<str>,
    name: Box<str>,
}

/// The commands that took longest, lately.
#[derive(Debug)]
pub(crate) struct Slowlog {
    slower_us: AtomicI64,
    entries_max: AtomicI64,
    last_id: AtomicU64,
    entries: Mutex<Entries>,
}

/// The entries, the last one first, and the bytes that they take of the memory limit.
#[derive(Debug, Default)]
struct Entries {
    list: VecDeque<Entry>,
    bytes: u64,
}

impl Entry {
    /// What it takes, about.
    fn bytes(&self) -> u64 {
        let texts = self.args.iter().map(|arg| arg.len() + size_of::<Vec<u8>>()).sum::<usize>();
        (size_of::<Entry>() + texts + self.address.len() + self.name.len()) as u64
    }
}

impl Entries {
    fn add(&mut self, store: &Store, entry: Entry) {
        self.bytes += entry.bytes();
        store.set_aside(entry.bytes() as i64);
        self.list.push_front(entry);
    }

    /// Drops the oldest, until there are so many at most, which take so many bytes at most.
    fn shorten(&mut self, store: &Store, entries_max: usize, bytes_max: u64) {
        while self.list.len() > entries_max || self.bytes > bytes_max {
            let Some(entry) = self.list.pop_back() else { return };
            self.bytes -= entry.bytes();
            store.set_aside(-(entry.bytes() as i64));
        }
    }
}

impl Default for Slowlog {
    fn default() -> Slowlog {
        Slowlog {
            slower_us: AtomicI64::new(10_000),
            entries_max: AtomicI64::new(128),
            last_id: AtomicU64::new(0),
            entries: Mutex::default(),
        }
    }
}

/// Most entries, whatever is asked for.
const ENTRIES_MAX: usize = 4096;
/// The share of the memory limit that they take at most: one part of so many.
const SHARE: u64 = 64;

/// Commands that take less than this are measured only if shorter times are to be listed.
const FAST_US: i64 = 1000;

impl Slowlog {
    /// Times are to be listed that also short commands take: each is measured, and none runs in a batch.
    #[inline]
    pub fn measures_all(&self) -> bool {
        (0..FAST_US).contains(&self.slower_us.load(Relaxed))
    }

    pub fn len(&self) -> usize {
        self.entries().list.len()
    }

    /// Number and microseconds of the last one that is listed.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.entries().list.front().map(|entry| (entry.id, entry.took_us))
    }

    /// How long a command may take without being listed, microseconds; less than 0: none is listed.
    pub fn slower_us(&self) -> i64 {
        self.slower_us.load(Relaxed)
    }

    /// The last that are listed, so many at most, the last one first: what may be shown of them.
    pub fn last_of(&self, most: usize) -> Vec<Slow> {
        let entries = self.entries();
        let shown = entries.list.iter().take(most).map(|entry| Slow {
            id: entry.id,
            at_s: entry.at_s,
            took_us: entry.took_us,
            command: entry.row.name,
            words: entry.words,
            key: entry.key_at.and_then(|at| entry.args.get(at).cloned()),
            address: entry.address.clone(),
            client: entry.name.clone(),
        });
        shown.collect()
    }

    /// Sets `slowlog-log-slower-than` or `slowlog-max-len`.
    pub fn set(&self, store: &Store, name: &str, n: i64) {
        if name == "slowlog-max-len" {
            self.entries_max.store(n, Relaxed);
            self.entries().shorten(store, n.max(0) as usize, u64::MAX);
        } else {
            self.slower_us.store(n, Relaxed);
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_, '_, '_> {
    /// A command's time is worth two looks at a clock.
    pub fn measures(&self, row: &Command) -> bool {
        !row.has(FAST) || self.shared.slowlog.measures_all()
    }

    /// Notes a command that took `took_us`, if that is long; `args` with its name. Of EXEC each that it runs is noted.
    pub fn note_time(&mut self, row: &'static Command, args: Args<'_>, took_us: u64) {
        if row.has(SKIP_SLOWLOG) {
            return;
        }
        let log = &self.shared.slowlog;
        let slower = log.slower_us.load(Relaxed);
        if slower < 0 || (took_us as i64) < slower {
            return;
        }
        let count = args.len();
        let shown = if count > ARGS_KEPT { ARGS_KEPT - 1 } else { count };
        let mut kept: Vec<Vec<u8>> = secret::shown(Some(row), args)
            .take(shown)
            .map(|arg| {
                let mut bytes = arg[..arg.len().min(ARG_BYTES_KEPT)].to_vec();
                if arg.len() > ARG_BYTES_KEPT {
                    let more = arg.len() - ARG_BYTES_KEPT;
                    bytes.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                }
                bytes
            })
            .collect();
        if shown < count {
            kept.push(format!("... ({} more arguments)", count - shown).into_bytes());
        }
        let entry = Entry {
            id: log.last_id.fetch_add(1, Relaxed),
            at_s: self.cx.now() / 1000,
            took_us,
            row,
            key_at: row.first_key_at().filter(|at| *at < shown),
            words: count as u64,
            args: kept,
            address: self.client.facts.address.clone(),
            name: self.client.facts.names().name,
        };
        let store = self.cx.guard.store();
        let mut entries = log.entries();
        entries.add(store, entry);
        let most = (log.entries_max.load(Relaxed).max(0) as usize).min(ENTRIES_MAX);
        entries.shorten(store, most, store.memory_bytes() / SHARE);
    }
}

const BAD_COUNT: Fail = Fail::of("ERR count should be greater than or equal to -1");

fn get(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let count = match (args.next(), args.next()) {
        (None, _) => 10,
        (Some(count), None) => integer(count).map_err(|_| BAD_COUNT)?,
        _ => {
            return Err(Fail::of(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ));
        }
    };
    let count = match count {
        -1 => usize::MAX,
        n => usize::try_from(n).map_err(|_| BAD_COUNT)?,
    };
    // The copies, and what is told of them.
    let bytes = call.shared.slowlog.entries().bytes as usize;
    let _held = Heap::take(call, bytes)?;
    call.make_room(2 * bytes)?;
    let mut left = bytes as u64;
    let entries: Vec<Entry> = {
        let log = call.shared.slowlog.entries();
        // Others may have been noted since.
        let fits = |entry: &&Entry| {
            let fits = entry.bytes() <= left;
            left = left.saturating_sub(entry.bytes());
            fits
        };
        log.list.iter().take(count).take_while(fits).cloned().collect()
    };
    call.array(entries.len());
    for entry in entries {
        call.array(6);
        call.integer(entry.id as i64)?;
        call.integer(entry.at_s as i64)?;
        call.integer(entry.took_us as i64)?;
        call.array(entry.args.len());
        entry.args.iter().for_each(|arg| put_bulk(call.out, arg));
        call.bulk(entry.address.as_bytes())?;
        call.bulk(entry.name.as_bytes())?;
    }
    Ok(())
}
