//! Keyspace events that wait to be published: those whose channels are matched against so many patterns that others should not
//! wait for it, and most of those that one step makes very many of.
//!
//! ```text
//! a change ─► cheap, few, and nothing waits? ─► posted at once
//!                └── no: the queue ─► matched in steps, by workers at work and by upkeep ─► posted, one after another
//! ```
//!
//! While some events wait, all do, so that events are published in order. Waiting events are charged. An event that comes while
//! as many bytes wait as may is counted and lost, as the store's own events are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_store::Store;

use super::host::Host;
use super::topics::{Matching, Topics};

/// Most nanoseconds of matching for an event that is published at once, while the slice of work is not used up.
const AT_ONCE_NS: u64 = 2_000;
/// Waiting events take one part in so many of the memory limit at most, or [`BYTES_LEAST`] if that is more.
const SHARE: u64 = 16;
/// Bytes that waiting events may take in any case: those of the misses of one command that looks at its keys as one, if these
/// have 64 bytes each.
const BYTES_LEAST: u64 = 2 << 20;
/// Bytes of an event in the queue, beside its key.
const HAPPENED_BYTES: usize = 64;
/// Nanoseconds to post an event to its subscribers, beside matching.
const POST_NS: u64 = 500;

/// An event of a key.
#[derive(Debug)]
pub(crate) struct Happened<K> {
    pub event: &'static str,
    pub db: u8,
    pub key: K,
    /// Whether it is to be published on the channel `__keyspace@` of its key.
    pub by_key: bool,
    /// Whether it is to be published on the channel `__keyevent@` of its event.
    pub by_event: bool,
}

impl<K: AsRef<[u8]>> Happened<K> {
    fn bytes(&self) -> usize {
        HAPPENED_BYTES + self.key.as_ref().len()
    }

    /// The next channel on which it is to be published.
    fn channel(&self) -> Option<Vec<u8>> {
        let db = self.db;
        if self.by_key {
            return Some([format!("__keyspace@{db}__:").as_bytes(), self.key.as_ref()].concat());
        }
        self.by_event.then(|| format!("__keyevent@{db}__:{}", self.event).into_bytes())
    }

    /// The text for that channel. It is published there no more.
    fn text(&mut self) -> &[u8] {
        if std::mem::take(&mut self.by_key) {
            return self.event.as_bytes();
        }
        self.by_event = false;
        self.key.as_ref()
    }
}

/// The events that wait, of all workers.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    /// Number of events that wait, with the one under way.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
    /// The event that is being matched, locked by the worker that matches it.
    under_way: Mutex<Option<UnderWay>>,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Happened<Box<[u8]>>>,
    bytes: usize,
}

#[derive(Debug)]
struct UnderWay {
    happened: Happened<Box<[u8]>>,
    matching: Matching,
}

impl Telling {
    /// Returns whether events wait.
    #[inline]
    pub fn waits(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Number of events that were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an event: at once if that takes no time, or little and there is `some_time`, else later. Returns the
    /// nanoseconds that it took.
    pub fn tell(
        &self,
        topics: &Topics,
        host: &dyn Host,
        store: &Store,
        mut happened: Happened<&[u8]>,
        some_time: bool,
    ) -> u64 {
        let mut ns = 0;
        if !self.waits() {
            while let Some(channel) = happened.channel() {
                let matching_ns = topics.matching_ns(channel.len());
                if matching_ns > if some_time { AT_ONCE_NS } else { 0 } {
                    break;
                }
                topics.publish(host, &channel, happened.text());
                ns += matching_ns + POST_NS;
            }
        }
        self.tell_later(store, happened);
        ns
    }

    /// Leaves an event to be published behind those that wait, if a channel is left for it.
    pub fn tell_later(&self, store: &Store, happened: Happened<&[u8]>) {
        if happened.by_key || happened.by_event {
            self.add(store, happened);
        }
    }

    fn add(&self, store: &Store, happened: Happened<&[u8]>) {
        let most = (store.memory_bytes() / SHARE).max(BYTES_LEAST) as usize;
        let mut queue = self.queue();
        let bytes = happened.bytes();
        if queue.bytes + bytes > most {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let Happened { event, db, key, by_key, by_event } = happened;
        queue.events.push_back(Happened { event, db, key: key.into(), by_key, by_event });
        queue.bytes += bytes;
        store.hold(bytes as i64);
        self.waiting.fetch_add(1, Relaxed);
    }

    /// Takes the first event out of the queue, and gives its bytes back.
    fn next(&self, store: &Store) -> Option<UnderWay> {
        let mut queue = self.queue();
        let Some(happened) = queue.events.pop_front() else {
            // Frees the memory that many events took.
            queue.events = VecDeque::new();
            return None;
        };
        let bytes = happened.bytes();
        queue.bytes -= bytes;
        store.hold(-(bytes as i64));
        Some(UnderWay { happened, matching: Matching::default() })
    }

    /// Matches and posts events that wait, for `ns_max` or a little longer, unless another worker does. Returns the nanoseconds
    /// that it took.
    pub fn go_on(&self, topics: &Topics, host: &dyn Host, store: &Store, ns_max: u64) -> u64 {
        let Ok(mut under_way) = self.under_way.try_lock() else { return 0 };
        let mut ns = 0;
        while ns < ns_max {
            let Some(UnderWay { happened, matching }) = &mut *under_way else {
                *under_way = self.next(store);
                if under_way.is_none() {
                    break;
                }
                continue;
            };
            let Some(channel) = happened.channel() else {
                *under_way = None;
                self.waiting.fetch_sub(1, Relaxed);
                continue;
            };
            ns += POST_NS + topics.match_on(matching, &channel, ns_max - ns);
            if matching.is_done() {
                topics.publish_to(host, &channel, happened.text(), std::mem::take(matching));
            }
        }
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::Config;

    /// Keys that a command may look at as one.
    const KEYS: u64 = 16 << 10;

    fn miss(key: &[u8]) -> Happened<&[u8]> {
        Happened { event: "keymiss", db: 0, key, by_key: true, by_event: true }
    }

    #[test]
    fn misses_of_one_command_wait_however_little_memory_there_is() {
        let config = Config { memory_bytes: 16 << 20, workers_max: 2, ..Config::default() };
        let store = Store::new(config).expect("a store");
        let (telling, before) = (Telling::default(), store.held_bytes());
        for _ in 0..KEYS {
            telling.tell_later(&store, miss(&[b'k'; 64]));
        }
        assert_eq!((telling.lost(), store.held_bytes() - before), (0, BYTES_LEAST));
        telling.tell_later(&store, miss(b"k"));
        assert_eq!((telling.lost(), store.held_bytes() - before), (1, BYTES_LEAST));
        // An event that is to be published on no channel does not wait.
        telling.tell_later(&store, Happened { by_key: false, by_event: false, ..miss(b"k") });
        assert_eq!(telling.lost(), 1);
    }
}
