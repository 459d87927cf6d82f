//! The patterns that match a channel. They are found some at a time, outside of the lock of all patterns. The message is posted
//! at once when all are known.

use std::cell::OnceCell;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Listeners, Topics, post};
use crate::core::delivery::{Message, Topic};
use crate::core::glob::{Weight, matches_counting};
use crate::core::host::Host;

/// Patterns that are taken at once from their table, to be matched outside of its lock.
const PATTERNS_AT_ONCE: usize = 256;
/// Nanoseconds to take one of them.
const TAKE_NS: u64 = 20;

/// The patterns that match a channel, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    found: Vec<Arc<[u8]>>,
    /// The last pattern that was looked at.
    last: Option<Arc<[u8]>>,
    is_done: bool,
}

impl Matching {
    /// Returns whether all patterns were looked at.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.found.capacity() * size_of::<Arc<[u8]>>()
    }
}

impl Topics {
    /// Counts one pattern more, or one fewer.
    pub(super) fn weigh(&self, weight: Weight, more: i64) {
        let any_ns = TAKE_NS + weight.at_once_ns(0);
        self.pattern_ns.fetch_add((any_ns as i64 * more) as u64, Relaxed);
        self.byte_ns.fetch_add((weight.byte_ns as i64 * more) as u64, Relaxed);
    }

    /// Nanoseconds to match all patterns against a channel of so many bytes, at worst.
    pub fn matching_ns(&self, channel_bytes: usize) -> u64 {
        let bytes_ns = self.byte_ns.load(Relaxed).saturating_mul(channel_bytes as u64);
        self.pattern_ns.load(Relaxed).saturating_add(bytes_ns)
    }

    /// Looks for more of the patterns that match a channel, for `ns_max` or a little longer. Returns the nanoseconds that it
    /// took.
    pub fn match_on(&self, matching: &mut Matching, channel: &[u8], ns_max: u64) -> u64 {
        let mut ns = 0;
        while !matching.is_done && ns < ns_max {
            let from = matching.last.as_ref().map_or(Unbounded, Excluded);
            let some: Vec<Arc<[u8]>> = {
                let patterns = self.patterns();
                let some = patterns.range::<Arc<[u8]>, _>((from, Unbounded)).take(PATTERNS_AT_ONCE);
                some.map(|(pattern, _)| Arc::clone(pattern)).collect()
            };
            let are_last = some.len() < PATTERNS_AT_ONCE;
            let mut some = some.into_iter();
            while let Some(pattern) = some.next() {
                ns += TAKE_NS;
                if matches_counting(&pattern, channel, &mut ns) {
                    matching.found.push(Arc::clone(&pattern));
                }
                matching.last = Some(pattern);
                if ns >= ns_max && some.len() > 0 {
                    return ns;
                }
            }
            matching.is_done = are_last;
        }
        ns
    }

    /// Number of subscriptions to patterns that match a channel, and the nanoseconds of the look. The look stops after
    /// `ns_max`: then all subscriptions count.
    pub fn pattern_listeners(&self, channel: &[u8], ns_max: u64) -> (usize, u64) {
        let mut matching = Matching::default();
        let ns = self.match_on(&mut matching, channel, ns_max);
        if !matching.is_done() {
            return (self.pattern_targets(), ns);
        }
        let patterns = self.patterns();
        let listeners = matching.found.iter().filter_map(|pattern| patterns.get(pattern));
        (listeners.map(|listeners| listeners.targets.len()).sum(), ns)
    }

    /// Sends a message to the subscribers of a channel and of the patterns that match it. Returns their number.
    pub fn publish(&self, host: &dyn Host, channel: &[u8], text: &[u8]) -> usize {
        let mut matching = Matching::default();
        if self.pattern_count() > 0 {
            self.match_on(&mut matching, channel, u64::MAX);
        }
        self.publish_to(host, channel, text, matching)
    }

    /// Does what [`Topics::publish`] does, where the patterns are known.
    pub fn publish_to(&self, host: &dyn Host, channel: &[u8], text: &[u8], matching: Matching) -> usize {
        let words: OnceCell<[Arc<[u8]>; 2]> = OnceCell::new();
        let message = |topic| {
            let [channel, text] = words.get_or_init(|| [channel.into(), text.into()]).clone();
            Message { topic, channel, text }
        };
        let mut told = self.channels.publish(host, channel, || message(Topic::Channel));
        if matching.found.is_empty() {
            return told;
        }
        let patterns = self.patterns();
        for pattern in matching.found {
            // All subscribers may have left it meanwhile.
            let Some(Listeners { targets, .. }) = patterns.get(&pattern) else { continue };
            post(host, targets, &Arc::new(message(Topic::Pattern(pattern))));
            told += targets.len();
        }
        told
    }
}
