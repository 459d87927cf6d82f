//! The log of refusals for `ACL LOG`, and counts of them.
//!
//! The newest entry is in front. A refusal like one of the [`LOOKED_AT`] entries in front, within a minute of it, raises the
//! count of that entry and moves it to the front. A wrong password is never kept, but the name of its user is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Millis;

use super::rules::Denied;

/// Entries that are kept, unless `acllog-max-len` says otherwise.
pub(crate) const ENTRIES: u64 = 128;
/// Greatest value of `acllog-max-len`.
pub(crate) const ENTRIES_MAX: u64 = 4096;
/// Bytes of a key, a channel or a user's name that are kept of an entry.
pub(crate) const OBJECT_BYTES_MAX: usize = 256;
/// Most bytes that are kept of the description of a client, which may give itself long names.
pub(crate) const CLIENT_BYTES_MAX: usize = 1 << 10;
/// Nanoseconds to refuse a request: to describe the client, and to make or raise an entry.
pub(crate) const REFUSAL_NS: u64 = 2_500;
/// Entries that are looked at for one that may be raised.
const LOOKED_AT: usize = 10;
/// How long after its last refusal an entry may still be raised.
const GROUP_MS: Millis = 60_000;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Auth,
    Command,
    Key,
    Channel,
    /// The certificate of a TLS client names no user that may log in.
    TlsCertificate,
}

impl Reason {
    /// The reason of a refused request.
    pub fn of(denied: &Denied<'_>) -> Reason {
        match denied {
            Denied::Command | Denied::TooMuch => Reason::Command,
            Denied::Key(_) => Reason::Key,
            Denied::Channel(_) => Reason::Channel,
        }
    }

    /// All of them, in the order of INFO.
    pub const ALL: [Reason; 5] =
        [Reason::Auth, Reason::Command, Reason::Key, Reason::Channel, Reason::TlsCertificate];

    /// Its name in `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::TlsCertificate => "tls-cert",
        }
    }

    /// Its name in INFO.
    pub fn figure(self) -> &'static str {
        match self {
            Reason::Auth => "acl_access_denied_auth",
            Reason::Command => "acl_access_denied_cmd",
            Reason::Key => "acl_access_denied_key",
            Reason::Channel => "acl_access_denied_channel",
            Reason::TlsCertificate => "acl_access_denied_tls_cert",
        }
    }
}

/// The place of a refused request: by itself, in MULTI, or in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    TopLevel,
    Multi,
    Script,
}

impl Whence {
    /// Its name in `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Whence::TopLevel => "toplevel",
            Whence::Multi => "multi",
            Whence::Script => "lua",
        }
    }
}

/// Something that was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal<'a> {
    pub reason: Reason,
    pub whence: Whence,
    pub object: &'a [u8],
    pub user: &'a [u8],
    /// The client, as `CLIENT INFO` describes it.
    pub client: String,
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub count: u64,
    pub reason: Reason,
    pub whence: Whence,
    pub object: Box<[u8]>,
    pub user: Box<[u8]>,
    pub client: Box<str>,
    pub id: u64,
    pub created: Millis,
    pub updated: Millis,
}

/// All entries.
#[derive(Debug)]
pub(crate) struct Log {
    entries_max: AtomicU64,
    entries: Mutex<(VecDeque<Entry>, u64)>,
    counts: [AtomicU64; Reason::ALL.len()],
    /// Connections that were closed because users were changed.
    closed: AtomicU64,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            entries_max: AtomicU64::new(ENTRIES),
            entries: Mutex::default(),
            counts: Default::default(),
            closed: AtomicU64::new(0),
        }
    }
}

impl Log {
    /// Counts a refusal.
    pub fn count(&self, reason: Reason) {
        self.counts[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts a refusal, and notes it.
    pub fn note(&self, refusal: &Refusal<'_>, now: Millis) {
        self.count(refusal.reason);
        let max = self.entries_max();
        if max == 0 {
            return;
        }
        let cut = |bytes: &[u8]| Box::from(&bytes[..bytes.len().min(OBJECT_BYTES_MAX)]);
        let (object, user): (Box<[u8]>, Box<[u8]>) = (cut(refusal.object), cut(refusal.user));
        let client: Box<str> =
            Box::from(&refusal.client[..refusal.client.floor_char_boundary(CLIENT_BYTES_MAX)]);
        let (mut entries, reason, whence) = (self.entries(), refusal.reason, refusal.whence);
        let (entries, last_id) = &mut *entries;
        let same = entries.iter().take(LOOKED_AT).position(|entry| {
            entry.reason == reason
                && entry.whence == whence
                && now.abs_diff(entry.updated) <= GROUP_MS
                && entry.object == object
                && entry.user == user
        });
        let entry = match same.and_then(|at| entries.remove(at)) {
            Some(entry) => Entry { count: entry.count + 1, updated: now, client, ..entry },
            None => {
                let id = *last_id;
                *last_id += 1;
                let (created, updated) = (now, now);
                Entry { count: 1, reason, whence, object, user, client, id, created, updated }
            }
        };
        entries.push_front(entry);
        entries.truncate(max as usize);
    }

    /// The newest entries, at most `count`.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.entries().0.iter().take(count).cloned().collect()
    }

    /// Forgets all entries.
    pub fn clear(&self) {
        self.entries().0.clear();
    }

    /// How often something was refused for each reason, in the order of [`Reason::ALL`].
    pub fn counts(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().map(|reason| (reason, self.counts[reason as usize].load(Relaxed)))
    }

    /// Counts a connection that is closed because users were changed.
    pub fn count_closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// Number of connections that were closed because users were changed.
    pub fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }

    /// Sets all counts to zero.
    pub fn reset_counts(&self) {
        self.closed.store(0, Relaxed);
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Most entries that are kept.
    pub fn entries_max(&self) -> u64 {
        self.entries_max.load(Relaxed)
    }

    /// Keeps so many entries from now on.
    pub fn keep(&self, max: u64) {
        self.entries_max.store(max, Relaxed);
        self.entries().0.truncate(max as usize);
    }

    fn entries(&self) -> MutexGuard<'_, (VecDeque<Entry>, u64)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(object: &[u8]) -> Refusal<'_> {
        let (reason, whence) = (Reason::Key, Whence::TopLevel);
        Refusal { reason, whence, object, user: b"u", client: "id=1".into() }
    }

    #[test]
    fn what_is_refused_again_within_a_minute_is_one_entry() {
        let log = Log::default();
        let note = |object: &[u8], now| log.note(&refusal(object), now);
        note(b"a", 1_000);
        note(b"b", 1_000);
        note(b"a", 1_000 + GROUP_MS);
        let entries = log.newest(10);
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].count, entries[0].id, entries[0].created), (2, 0, 1_000));
        assert_eq!(entries[0].updated, 1_000 + GROUP_MS);
        note(b"a", 1_000 + 2 * GROUP_MS + 1);
        assert_eq!(log.newest(10).len(), 3);
        assert_eq!(log.newest(1)[0].id, 2);
        assert_eq!(log.counts().map(|(_, count)| count).collect::<Vec<_>>(), [0, 0, 4, 0, 0]);
    }

    #[test]
    fn so_many_entries_are_kept_and_so_many_bytes_of_each() {
        let log = Log::default();
        for n in 0..=ENTRIES {
            log.note(&refusal(n.to_string().as_bytes()), 1);
        }
        let entries = log.newest(usize::MAX);
        assert_eq!((entries.len() as u64, &*entries[0].object), (ENTRIES, &b"128"[..]));
        assert_eq!(&*entries[127].object, b"1");
        log.keep(2);
        assert_eq!(log.newest(usize::MAX).len(), 2);
        log.keep(0);
        log.note(&refusal(b"x"), 1);
        assert!(log.newest(usize::MAX).is_empty());
        log.keep(1);
        for (bytes, kept) in [(255, 255), (256, 256), (257, 256)] {
            log.note(&refusal(&vec![b'k'; bytes]), 1);
            assert_eq!(log.newest(1)[0].object.len(), kept);
        }
    }
}
