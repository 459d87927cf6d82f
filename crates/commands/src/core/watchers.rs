//! Watchers, connections that are sent lines about what happens (memcached's `watch`), and the lines that wait for them. WATCH
//! of Redis is something else.
//!
//! ```text
//! ts=1700000000.123456 gid=7 type=item_get key=a status=found clsid=1 cfd=12 size=5
//! ```
//!
//! A worker writes a line about an event for each watcher of its stream, into memory that is bounded: a line that finds no room
//! is skipped and counted, and no worker waits. A watcher's connection takes lines as fast as its socket does.
//!
//! While a watcher wants lines about keys (fetchers, mutations, deletions), requests of both protocols run one by one, as they do
//! while keyspace events are wanted: the same word says so (`events`), and without watchers nothing is looked at.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_protocol::escape::{escape, escaped_bytes_max};
use larder_store::{Giving, Gone, Item, Lookup, Millis, Store};

use super::host::{Host, Peer};

/// Most watchers at once.
const WATCHERS_MAX: usize = 20;
/// Most bytes of a key that are shown.
const KEY_BYTES_SHOWN: usize = 250;
/// Bytes by which a watcher's memory grows.
const GROWS_BY: usize = 16 << 10;

/// Streams of events that can be watched.
pub(crate) mod stream {
    pub const FETCHERS: u32 = 1 << 0;
    pub const MUTATIONS: u32 = 1 << 1;
    pub const EVICTIONS: u32 = 1 << 2;
    pub const CONNEVENTS: u32 = 1 << 3;
    pub const DELETIONS: u32 = 1 << 4;
    pub const SYSEVENTS: u32 = 1 << 5;
    /// The streams for which keys are looked at.
    pub const KEYS: u32 = FETCHERS | MUTATIONS | DELETIONS;
}

/// All watchers.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The streams that watchers watch.
    streams: AtomicU32,
    all: Mutex<Vec<Arc<Watcher>>>,
    /// Lines that were numbered so far.
    told: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
    /// The number of the next watcher.
    next: AtomicU64,
    /// memcached's number of each of the store's classes.
    classes: OnceLock<Box<[u8; 256]>>,
    /// Microseconds by which the time of day is ahead of the clock that only goes on; 0 before the first line.
    ahead_us: AtomicU64,
}

/// Microseconds by which the two clocks may differ otherwise than before: a turn sees one time of day from its beginning to its
/// end. Above that the time of day was set.
const CLOCKS_APART_US_MAX: u64 = 1_000_000;

/// The first number of watchers: clients' numbers are below it.
const FIRST: u64 = 1 << 63;

/// A watcher.
#[derive(Debug)]
struct Watcher {
    number: u64,
    /// The place of its connection.
    place: u64,
    streams: u32,
    bytes_max: usize,
    lines: Mutex<Lines>,
}

/// Lines that wait for a watcher.
#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    /// Lines for which there was no room, behind those that wait.
    skipped: u64,
}

/// The server, the store and the time of an event.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub host: &'a dyn Host,
    pub store: &'a Store,
    /// Server time.
    pub now: Millis,
}

/// A connection that watches, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    watcher: Arc<Watcher>,
    store: Arc<Store>,
}

/// The state of a key when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub status: &'static str,
    /// The store's class, if there is an item.
    pub class: Option<u8>,
    pub value_bytes: u64,
    pub expires_at: Millis,
}

impl Looked {
    /// The state that a search found.
    pub fn at(found: &Lookup<'_>) -> Looked {
        let nothing = |status| Looked { status, class: None, value_bytes: 0, expires_at: 0 };
        match found {
            Lookup::Hit(item) => Looked::item(item),
            Lookup::Miss => nothing("not_found"),
            Lookup::Expired => nothing("expired"),
            Lookup::Flushed => nothing("flushed"),
        }
    }

    fn item(item: &Item<'_>) -> Looked {
        Looked {
            status: "found",
            class: Some(item.class()),
            value_bytes: item.value_bytes(),
            expires_at: item.expires_at(),
        }
    }

    /// Returns whether there was an item.
    pub fn is_there(&self) -> bool {
        self.class.is_some()
    }
}

/// A store of a key, as a line shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub status: &'static str,
    pub cmd: &'a str,
    pub ttl_s: u64,
    /// The store's class of the item that is, or would have been, stored.
    pub class: Option<u8>,
    pub value_bytes: u64,
}

/// A key as text.
struct Escaped<'k>(&'k [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = [0; escaped_bytes_max(KEY_BYTES_SHOWN)];
        let bytes = escape(&self.0[..self.0.len().min(KEY_BYTES_SHOWN)], &mut room);
        f.write_str(std::str::from_utf8(&room[..bytes]).unwrap_or_default())
    }
}

impl Watchers {
    /// Sets memcached's number of each of the store's classes.
    pub fn show_classes(&self, of: impl Fn(u8) -> u8) {
        let _ = self.classes.set(Box::new(std::array::from_fn(|class| of(class as u8))));
    }

    fn class(&self, class: Option<u8>) -> u8 {
        class.and_then(|class| Some(self.classes.get()?[usize::from(class)])).unwrap_or(0)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a watcher watches one of these streams.
    #[inline]
    pub fn wants(&self, streams: u32) -> bool {
        self.streams.load(Relaxed) & streams != 0
    }

    /// Number of watchers, of lines that they were sent, and of lines that were skipped.
    pub fn counts(&self) -> [u64; 3] {
        [self.all().len() as u64, self.sent.load(Relaxed), self.skipped.load(Relaxed)]
    }

    /// Begins to watch, for the connection at this place. `None` if there are as many watchers as may be.
    pub fn watch(
        self: &Arc<Watchers>,
        store: &Arc<Store>,
        place: u64,
        streams: u32,
        bytes_max: usize,
    ) -> Option<Watching> {
        let mut all = self.all();
        if all.len() >= WATCHERS_MAX {
            return None;
        }
        let number = FIRST + self.next.fetch_add(1, Relaxed);
        let watcher = Watcher { number, place, streams, bytes_max, lines: Mutex::default() };
        let watcher = Arc::new(watcher);
        all.push(Arc::clone(&watcher));
        self.note_streams(&all);
        Some(Watching { watchers: Arc::clone(self), watcher, store: Arc::clone(store) })
    }

    fn note_streams(&self, all: &[Arc<Watcher>]) {
        self.streams.store(all.iter().fold(0, |streams, watcher| streams | watcher.streams), Relaxed);
    }

    /// Returns the time of a line, in microseconds since 1970. It does not fall unless the time of day was set back.
    fn time_us(&self, scene: Scene<'_>) -> u64 {
        let (day_us, clock_us) = (scene.now * 1000, scene.host.clock_us());
        let ahead_us = self.ahead_us.load(Relaxed);
        let us = clock_us.wrapping_add(ahead_us);
        if us.abs_diff(day_us) <= CLOCKS_APART_US_MAX {
            return us;
        }
        let anew = day_us.wrapping_sub(clock_us);
        // Where another worker was first, all go by its difference.
        let settled = self.ahead_us.compare_exchange(ahead_us, anew, Relaxed, Relaxed);
        clock_us.wrapping_add(settled.map_or_else(|theirs| theirs, |_| anew))
    }

    /// Sends a line, which `write` writes behind its time and number, to the watchers of the stream.
    #[cold]
    fn tell(&self, scene: Scene<'_>, stream: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let all = self.all();
        if all.iter().all(|watcher| watcher.streams & stream == 0) {
            return;
        }
        let us = self.time_us(scene);
        let number = self.told.fetch_add(1, Relaxed) + 1;
        let mut line = Vec::with_capacity(256);
        // Writing into memory cannot fail.
        let _ = write!(line, "ts={}.{:06} gid={number} ", us / 1_000_000, us % 1_000_000);
        write(&mut line);
        line.push(b'\n');
        for watcher in all.iter().filter(|watcher| watcher.streams & stream != 0) {
            let Some(is_first) = watcher.add(scene.store, &line) else {
                self.skipped.fetch_add(1, Relaxed);
                continue;
            };
            self.sent.fetch_add(1, Relaxed);
            if is_first {
                scene.host.wake(watcher.place, watcher.number);
            }
        }
    }

    /// Sends a line: a key was asked for.
    pub fn tell_get(&self, scene: Scene<'_>, peer: &dyn Peer, key: &[u8], looked: &Looked) {
        let Looked { status, class, value_bytes, .. } = *looked;
        let (key, class) = (Escaped(key), self.class(class));
        self.tell(scene, stream::FETCHERS, |line| {
            let cfd = peer.number();
            let _ = write!(
                line,
                "type=item_get key={key} status={status} clsid={class} cfd={cfd} size={value_bytes}"
            );
        });
    }

    /// Sends a line: a key was stored, or not.
    pub fn tell_store(&self, scene: Scene<'_>, peer: &dyn Peer, key: &[u8], stored: Stored<'_>) {
        let Stored { status, cmd, ttl_s, class, value_bytes } = stored;
        let (key, class) = (Escaped(key), self.class(class));
        self.tell(scene, stream::MUTATIONS, |line| {
            let cfd = peer.number();
            let _ = write!(
                line,
                "type=item_store key={key} status={status} cmd={cmd} ttl={ttl_s} clsid={class} cfd={cfd} size={value_bytes}"
            );
        });
    }

    /// Sends a line: a key was deleted, of which this was seen before.
    pub fn tell_deleted(&self, scene: Scene<'_>, key: &[u8], cmd: &str, looked: &Looked) {
        let (key, class, size) = (Escaped(key), self.class(looked.class), looked.value_bytes);
        self.tell(scene, stream::DELETIONS, |line| {
            let _ = write!(line, "type=deleted key={key} cmd={cmd} clsid={class} size={size}");
        });
    }

    /// Sends a line: an item was evicted.
    pub fn tell_evicted(&self, scene: Scene<'_>, gone: &Gone<'_>) {
        let (key, class, size) = (Escaped(gone.key), self.class(Some(gone.class)), gone.value_bytes);
        let (fetch, idle_s) = (if gone.fetched { "yes" } else { "no" }, gone.idle_s);
        let left_s = gone.expires_at.saturating_sub(scene.now) / 1000;
        self.tell(scene, stream::EVICTIONS, |line| {
            let _ = write!(line, "type=eviction key={key} fetch={fetch} ttl=");
            let _ = if gone.expires_at == 0 { write!(line, "-1") } else { write!(line, "{left_s}") };
            let _ = write!(line, " la={idle_s} clsid={class} size={size}");
        });
    }

    /// Sends a line: a class gives a span to another, or to none. No line is sent for classes that memcached shows as one.
    pub fn tell_given(&self, scene: Scene<'_>, giving: Giving) {
        let (from, to) = (self.class(Some(giving.from)), self.class(giving.to));
        if from == to {
            return;
        }
        let state = if giving.begun { "ok" } else { "fail" };
        self.tell(scene, stream::SYSEVENTS, |line| {
            let _ = write!(line, "type=slab_move src={from} dst={to} state={state}");
        });
    }

    /// Sends a line: a connection was opened, or, for this reason, closed.
    pub fn tell_connection(&self, scene: Scene<'_>, peer: &dyn Peer, closed: Option<&'static str>) {
        let address = peer.address();
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, "0"));
        let (host, transport) = if host.starts_with('/') { ("unix", "local") } else { (host, "tcp") };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.tell(scene, stream::CONNEVENTS, |line| {
            let what = if closed.is_some() { "conn_close" } else { "conn_new" };
            let _ = write!(line, "type={what} rip={host} rport={port} transport={transport}");
            let _ = closed.map_or(Ok(()), |reason| write!(line, " reason={reason}"));
            let _ = write!(line, " cfd={}", peer.number());
        });
    }

    /// Sends a line: TLS failed on a connection, for this reason.
    pub fn tell_failure(&self, scene: Scene<'_>, peer: &dyn Peer, why: &str) {
        self.tell(scene, stream::CONNEVENTS, |line| {
            let _ = write!(line, "type=conntlserr fd={} msg={why}", peer.number());
        });
    }
}

impl Watcher {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line. Returns whether nothing waited before; `None` if the line is skipped.
    fn add(&self, store: &Store, line: &[u8]) -> Option<bool> {
        let mut lines = self.lines();
        let before = lines.text.len();
        let said = (lines.skipped > 0).then(|| format!("skipped={}\n", lines.skipped));
        let bytes = before + said.as_ref().map_or(0, String::len) + line.len();
        // A line is skipped, too, where connections hold all they may.
        let room = bytes.next_multiple_of(GROWS_BY).min(self.bytes_max);
        let more = room.saturating_sub(lines.text.capacity());
        let is_short = more > 0 && store.held_bytes().saturating_add(more as u64) > store.held_bytes_max();
        if bytes > self.bytes_max || is_short {
            lines.skipped += 1;
            return None;
        }
        if more > 0 {
            store.hold(more as i64);
            lines.text.reserve_exact(room - before);
        }
        if let Some(said) = said {
            lines.text.extend_from_slice(said.as_bytes());
            lines.skipped = 0;
        }
        lines.text.extend_from_slice(line);
        Some(before == 0)
    }
}

impl Watching {
    /// The number by which it is woken.
    pub fn number(&self) -> u64 {
        self.watcher.number
    }

    /// Takes the lines that wait, and gives them to `put`. Behind them is how many were skipped since, so that a client that
    /// has read all learns it without another line.
    pub fn take(&self, put: impl FnOnce(&[u8])) {
        let Lines { mut text, skipped } = std::mem::take(&mut *self.watcher.lines());
        let held_bytes = text.capacity() as i64;
        if skipped > 0 {
            text.extend_from_slice(format!("skipped={skipped}\n").as_bytes());
        }
        put(&text);
        self.store.hold(-held_bytes);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut all = self.watchers.all();
        all.retain(|other| !Arc::ptr_eq(other, &self.watcher));
        self.watchers.note_streams(&all);
        drop(all);
        self.take(|_| ());
    }
}
