//! The last commands that took long, and the last with a large request or reply. `server/commandlog.rs` notes them, and shows
//! them by SLOWLOG and COMMANDLOG.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Store;

use super::fail::Fail;
use crate::redis::shown::Logged;

/// Why a command is listed; the value is in the unit given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It was slow: microseconds.
    Slow,
    /// Its request was large: bytes.
    LargeRequest,
    /// Its reply was large: bytes.
    LargeReply,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Slow, Kind::LargeRequest, Kind::LargeReply];

    /// Its name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Slow => "slow",
            Kind::LargeRequest => "large-request",
            Kind::LargeReply => "large-reply",
        }
    }

    /// Finds the kind of this name.
    ///
    /// # Errors
    /// There is no such kind.
    pub(super) fn named(name: &[u8]) -> Result<Kind, Fail> {
        let found = Kind::ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()));
        found.ok_or(Fail::of("ERR type should be one of the following: slow, large-request, large-reply"))
    }

    /// No command of a batch reaches this value. If smaller values are to be listed, each command is looked at by itself.
    fn batched(self) -> i64 {
        match self {
            Kind::Slow => 1000,
            // At most so much is received at once.
            Kind::LargeRequest | Kind::LargeReply => 64 << 10,
        }
    }

    /// Its list takes at most one part in so many of the memory limit.
    fn share(self) -> u64 {
        match self {
            Kind::Slow => 64,
            Kind::LargeRequest | Kind::LargeReply => 128,
        }
    }
}

/// The parameters, with the list and what they set of it.
const PARAMETERS: &[(&str, Kind, Sets)] = &[
    ("slowlog-log-slower-than", Kind::Slow, Sets::From),
    ("commandlog-execution-slower-than", Kind::Slow, Sets::From),
    ("slowlog-max-len", Kind::Slow, Sets::Most),
    ("commandlog-slow-execution-max-len", Kind::Slow, Sets::Most),
    ("commandlog-request-larger-than", Kind::LargeRequest, Sets::From),
    ("commandlog-large-request-max-len", Kind::LargeRequest, Sets::Most),
    ("commandlog-reply-larger-than", Kind::LargeReply, Sets::From),
    ("commandlog-large-reply-max-len", Kind::LargeReply, Sets::Most),
];

/// What a parameter sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sets {
    /// The value from which on commands are listed.
    From,
    /// How many commands are listed.
    Most,
}

/// All parameters that set the same as this one, if it is one of these.
pub(crate) fn namesakes(name: &str) -> Option<impl Iterator<Item = &'static str>> {
    let (_, kind, sets) = PARAMETERS.iter().find(|(known, ..)| *known == name)?;
    let same = PARAMETERS.iter().filter(move |(_, of, what)| of == kind && what == sets);
    Some(same.map(|(name, ..)| *name))
}

/// A command that is listed.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub id: u64,
    pub at_s: u64,
    /// Microseconds, or bytes.
    pub value: u64,
    /// The command's name.
    pub command: &'static str,
    /// The place of its first key in `args`.
    pub key_at: Option<usize>,
    /// How many arguments it had, also those that are not kept.
    pub words: u64,
    pub args: Vec<Vec<u8>>,
    pub address: Box<str>,
    pub name: Box<str>,
}

/// The last commands of one kind.
#[derive(Debug)]
pub(super) struct Log {
    /// The least value that is listed; negative: none is.
    from: AtomicI64,
    entries_max: AtomicI64,
    last_id: AtomicU64,
    entries: Mutex<Entries>,
}

/// The lists of all kinds.
#[derive(Debug)]
pub(crate) struct Commandlog {
    pub(super) logs: [Log; 3],
    /// Whether commands of a batch may have to be listed, too.
    is_each_alone: AtomicBool,
    /// The least bytes of a reply that is listed.
    reply_from: AtomicU64,
}

/// The entries, the last one first, and their bytes in the memory limit.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub list: VecDeque<Entry>,
    pub bytes: u64,
}

impl Entry {
    /// Bytes of an entry, about.
    pub fn bytes(&self) -> u64 {
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

    /// Drops the oldest entries, until they are at most so many, and at most so many bytes.
    pub fn shorten(&mut self, store: &Store, entries_max: usize, bytes_max: u64) {
        while self.list.len() > entries_max || self.bytes > bytes_max {
            let Some(entry) = self.list.pop_back() else { return };
            self.bytes -= entry.bytes();
            store.set_aside(-(entry.bytes() as i64));
        }
    }
}

impl Log {
    fn new(from: i64) -> Log {
        Log {
            from: AtomicI64::new(from),
            entries_max: AtomicI64::new(128),
            last_id: AtomicU64::new(0),
            entries: Mutex::default(),
        }
    }

    pub fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a command with this value is listed.
    pub fn lists(&self, value: u64) -> bool {
        u64::try_from(self.from.load(Relaxed)).is_ok_and(|from| value >= from)
    }
}

impl Default for Commandlog {
    fn default() -> Commandlog {
        const LARGE_BYTES: i64 = 1 << 20;
        Commandlog {
            logs: [Log::new(10_000), Log::new(LARGE_BYTES), Log::new(LARGE_BYTES)],
            is_each_alone: AtomicBool::new(false),
            reply_from: AtomicU64::new(LARGE_BYTES as u64),
        }
    }
}

/// Entries of a list, at most, whatever is configured.
const ENTRIES_MAX: usize = 4096;

impl Commandlog {
    pub(super) fn log(&self, kind: Kind) -> &Log {
        &self.logs[kind as usize]
    }

    /// Whether values are listed that short commands may reach: then each is looked at, and none runs in a batch.
    #[inline]
    pub fn is_each_alone(&self) -> bool {
        self.is_each_alone.load(Relaxed)
    }

    /// Whether times are listed that short commands may take.
    #[inline]
    pub fn measures_all(&self) -> bool {
        (0..Kind::Slow.batched()).contains(&self.log(Kind::Slow).from.load(Relaxed))
    }

    /// The least bytes of a reply that is listed.
    #[inline]
    pub fn reply_from(&self) -> u64 {
        self.reply_from.load(Relaxed)
    }

    pub fn len(&self, kind: Kind) -> usize {
        self.log(kind).entries().list.len()
    }

    /// How many slow commands are listed.
    pub fn slow(&self) -> usize {
        self.len(Kind::Slow)
    }

    /// Number and microseconds of the last slow command.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.log(Kind::Slow).entries().list.front().map(|entry| (entry.id, entry.value))
    }

    /// The least value that is listed; negative: none is.
    pub fn from(&self, kind: Kind) -> i64 {
        self.log(kind).from.load(Relaxed)
    }

    /// The last `most` entries, the last one first, without the words but the key.
    pub fn last_of(&self, kind: Kind, most: usize) -> Vec<Logged> {
        let entries = self.log(kind).entries();
        let shown = entries.list.iter().take(most).map(|entry| Logged {
            id: entry.id,
            at_s: entry.at_s,
            value: entry.value,
            command: entry.command,
            words: entry.words,
            key: entry.key_at.and_then(|at| entry.args.get(at).cloned()),
            address: entry.address.clone(),
            client: entry.name.clone(),
        });
        shown.collect()
    }

    /// Sets a parameter of those that [`namesakes`] knows.
    pub fn set(&self, store: &Store, name: &str, n: i64) {
        let Some((_, kind, sets)) = PARAMETERS.iter().find(|(known, ..)| *known == name) else { return };
        let log = self.log(*kind);
        match sets {
            Sets::From => {
                log.from.store(n, Relaxed);
                let small = |kind: Kind| (0..kind.batched()).contains(&self.from(kind));
                self.is_each_alone.store(Kind::ALL.into_iter().any(small), Relaxed);
                let reply_from = u64::try_from(self.from(Kind::LargeReply)).unwrap_or(u64::MAX);
                self.reply_from.store(reply_from, Relaxed);
            }
            Sets::Most => {
                log.entries_max.store(n, Relaxed);
                log.entries().shorten(store, n.max(0) as usize, u64::MAX);
            }
        }
    }

    /// Lists a command with this value.
    pub(super) fn add(&self, store: &Store, kind: Kind, mut entry: Entry, value: u64) {
        let log = self.log(kind);
        let mut entries = log.entries();
        // Numbered under the lock, so that entries are in the order of their numbers.
        (entry.id, entry.value) = (log.last_id.fetch_add(1, Relaxed), value);
        entries.add(store, entry);
        let most = (log.entries_max.load(Relaxed).max(0) as usize).min(ENTRIES_MAX);
        entries.shorten(store, most, store.memory_bytes() / kind.share());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_another_name_where_it_says_the_same() {
        let all = |name| namesakes(name).map(|names| names.collect::<Vec<_>>());
        assert_eq!(
            all("slowlog-max-len"),
            Some(vec!["slowlog-max-len", "commandlog-slow-execution-max-len"])
        );
        assert_eq!(all("commandlog-reply-larger-than"), Some(vec!["commandlog-reply-larger-than"]));
        assert_eq!(all("maxmemory"), None);
    }

    #[test]
    fn small_things_are_listed_only_one_by_one() {
        let (log, store) = (Commandlog::default(), Store::new(<_>::default()).expect("a store"));
        assert!(!log.is_each_alone() && !log.measures_all());
        for (name, short, long) in [
            ("slowlog-log-slower-than", 999, 1000),
            ("commandlog-request-larger-than", 65_535, 65_536),
            ("commandlog-reply-larger-than", 0, -1),
        ] {
            log.set(&store, name, short);
            assert!(log.is_each_alone(), "{name}");
            log.set(&store, name, long);
            assert!(!log.is_each_alone(), "{name}");
        }
        assert_eq!(log.reply_from(), u64::MAX);
    }
}
