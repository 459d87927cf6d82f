//! Distributes the requests of a source among clients: a bounded queue for each, and all requests of a key in one queue.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_protocol::client::{Protocol, is_key};

use crate::error::Error;
use crate::sizes::{Sizes, VALUE_BYTES_MAX};
use crate::trace::{Format, Op, Seen, Times, hash};

/// The values of requests that are sent together have about this many bytes, unless there is only one request.
const TOGETHER_BYTES: usize = 16 << 20;
/// Requests that wait for one client at most.
const QUEUE_MAX: usize = 1024;
/// memcached takes longer times for dates.
const TTL_MAX_S: u32 = 30 * 86_400;

/// Where requests come from.
pub trait Source: Send {
    /// The next request, and when it is due, counted from the start; at once where it has no time.
    ///
    /// # Errors
    /// When the next request cannot be read.
    fn next_op(&mut self) -> Result<Option<(Op, Option<Duration>)>, Error>;

    /// The lines of a trace so far; nothing for generated requests.
    fn seen(&self) -> Seen {
        Seen::default()
    }
}

impl Source for Times {
    fn next_op(&mut self) -> Result<Option<(Op, Option<Duration>)>, Error> {
        Times::next_op(self)
    }

    fn seen(&self) -> Seen {
        Times::seen(self)
    }
}

/// A request that waits for its client.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) op: Op,
    pub(super) due: Option<Duration>,
    pub(super) hash: u64,
    pub(super) bytes: usize,
    /// The version that it writes.
    pub(super) version: u64,
}

/// The queues, for all clients of all threads.
pub(super) struct Feed<S> {
    queues: Mutex<Queues<S>>,
}

/// Distributes a source among clients.
pub(super) struct Queues<S> {
    source: S,
    protocol: Protocol,
    /// Sizes of values for which the source gives none.
    sizes: Sizes,
    queues: Vec<VecDeque<Waiting>>,
    /// The request that was read last, while the queue of its client has no room.
    head: Option<(usize, Waiting)>,
    /// Requests that are still to be read, at most.
    left: u64,
    ended: bool,
    failed: Option<Error>,
    told: Changes,
}

/// Requests that were changed because they could not be sent as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The lines of the trace.
    pub seen: Seen,
    /// Requests whose keys memcached would refuse, and that got others.
    pub renamed: u64,
    /// Requests whose values had no size, and got one.
    pub sized: u64,
    /// Requests whose values were shortened.
    pub cut: u64,
    /// The trace has more requests.
    pub goes_on: bool,
}

impl Changes {
    /// Remarks about these changes.
    pub fn remarks(&self, format: Format) -> Vec<String> {
        let mut remarks = self.seen.remarks(format);
        let Changes { renamed, sized, cut, goes_on, .. } = *self;
        if renamed > 0 {
            remarks.push(format!("{renamed} requests have other keys: memcached does not take theirs"));
        }
        if sized > 0 {
            remarks.push(format!("{sized} requests tell no size of a value: --value-bytes says it"));
        }
        if cut > 0 {
            remarks.push(format!(
                "{cut} requests have values of more than {VALUE_BYTES_MAX} bytes: they have as many"
            ));
        }
        if goes_on {
            remarks.push("the trace goes on: it was not asked to its end".to_owned());
        }
        remarks
    }
}

/// The next requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Some,
    /// None before then.
    At(Duration),
    /// None before other clients have taken theirs.
    Blocked,
    Ended,
}

impl<S: Source> Queues<S> {
    /// The first `requests` of a source, for this many clients. Values without a size get one of `sizes`.
    pub(super) fn new(
        source: S,
        (protocol, sizes): (Protocol, &Sizes),
        clients: usize,
        requests: u64,
    ) -> Queues<S> {
        Queues {
            source,
            protocol,
            sizes: sizes.clone(),
            queues: (0..clients).map(|_| VecDeque::new()).collect(),
            head: None,
            left: requests,
            ended: false,
            failed: None,
            told: Changes::default(),
        }
    }

    /// All changes of requests.
    ///
    /// # Errors
    /// The error of reading.
    pub(super) fn end(&mut self) -> Result<Changes, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.told.seen = self.source.seen();
        let waits = !self.ended || self.queues.iter().any(|queue| !queue.is_empty());
        self.told.goes_on = waits || self.left == 0 && self.source.next_op()?.is_some();
        Ok(self.told)
    }

    /// The next request, and its client.
    fn read(&mut self) -> Option<(usize, Waiting)> {
        if self.left == 0 || self.ended {
            self.ended = true;
            return None;
        }
        let (mut op, due) = match self.source.next_op() {
            Ok(Some(next)) => next,
            Ok(None) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                (self.ended, self.failed) = (true, Some(error));
                return None;
            }
        };
        self.left -= 1;
        let hash = hash(&op.key);
        if self.protocol != Protocol::Resp {
            op.ttl_s = op.ttl_s.min(TTL_MAX_S);
            if !is_key(&op.key) {
                op.key = format!("{hash:016x}").into_bytes();
                self.told.renamed += 1;
            }
        }
        let bytes = match op.value_bytes {
            Some(bytes) => {
                self.told.cut += u64::from(bytes as usize > VALUE_BYTES_MAX);
                (bytes as usize).min(VALUE_BYTES_MAX)
            }
            None => {
                self.told.sized += 1;
                self.sizes.of(hash as u32, 0)
            }
        };
        let client = (hash % self.queues.len() as u64) as usize;
        Some((client, Waiting { op, due, hash, bytes, version: 0 }))
    }

    /// Takes at most `most` requests of a client that are due by `until` or have no time.
    pub(super) fn take(
        &mut self,
        client: usize,
        most: usize,
        until: Duration,
        out: &mut Vec<Waiting>,
    ) -> Given {
        let mut bytes = 0;
        let stopped = loop {
            let is_due = |waiting: &Waiting| waiting.due.is_none_or(|due| due <= until);
            match self.queues[client].front() {
                _ if out.len() == most || bytes >= TOGETHER_BYTES => break Given::Some,
                Some(first) if is_due(first) => {
                    // For a read, too, since a missed value may be written.
                    bytes += first.bytes;
                    out.extend(self.queues[client].pop_front());
                    continue;
                }
                Some(first) => break Given::At(first.due.unwrap_or_default()),
                None => {}
            }
            let Some((whose, waiting)) = self.head.take().or_else(|| self.read()) else { break Given::Ended };
            if self.queues[whose].len() >= QUEUE_MAX {
                self.head = Some((whose, waiting));
                break Given::Blocked;
            }
            self.queues[whose].push_back(waiting);
        };
        if out.is_empty() { stopped } else { Given::Some }
    }
}

impl<S> Feed<S> {
    pub(super) fn new(queues: Queues<S>) -> Feed<S> {
        Feed { queues: Mutex::new(queues) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queues<S>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::trace::Kind;

    /// Requests for keys with these numbers, some with a time, and for values of this many bytes.
    pub(in crate::replay) struct List(Vec<(u32, Option<u64>)>, u32);

    impl Source for List {
        fn next_op(&mut self) -> Result<Option<(Op, Option<Duration>)>, Error> {
            if self.0.is_empty() {
                return Ok(None);
            }
            let (key, ms) = self.0.remove(0);
            let key = format!("k {key}").into_bytes();
            let (at_us, value_bytes) = (None, Some(self.1));
            let op = Op { at_us, kind: Kind::Read, key, value_bytes, ttl_s: 0, partly: false };
            Ok(Some((op, ms.map(Duration::from_millis))))
        }
    }

    pub(in crate::replay) fn queues(list: Vec<(u32, Option<u64>)>, protocol: Protocol) -> Queues<List> {
        Queues::new(List(list, 30), (protocol, &Sizes::Fixed(1)), 2, u64::MAX)
    }

    #[test]
    fn a_key_has_one_client_and_its_order_and_queues_have_an_end() {
        let keys: Vec<(u32, Option<u64>)> = (0..20_000).map(|n| (n % 50, None)).collect();
        let mut queues = queues(keys, Protocol::Resp);
        // The second client takes nothing: the first goes on until the other's queue is full.
        let mut first = Vec::new();
        for most in (7..).step_by(7) {
            queues.take(0, most, Duration::ZERO, &mut first);
            if first.len() < most {
                break;
            }
        }
        assert_eq!(queues.queues[1].len(), QUEUE_MAX);
        let mut second = Vec::new();
        assert_eq!(queues.take(1, 7, Duration::ZERO, &mut second), Given::Some);
        assert_eq!(second.len(), 7);
        assert!(second.iter().all(|other| first.iter().all(|waiting| waiting.hash != other.hash)));
        let mut none = Vec::new();
        assert!(matches!(queues.take(0, 1, Duration::ZERO, &mut none), Given::Some | Given::Blocked));
    }

    #[test]
    fn what_is_sent_together_and_a_value_have_an_end() {
        let mut queues = queues((0..20).map(|_| (1, None)).collect(), Protocol::Resp);
        queues.source = List(queues.source.0, u32::MAX);
        let client = (hash(b"k 1") % 2) as usize;
        let mut out = Vec::new();
        assert_eq!(queues.take(client, 9, Duration::ZERO, &mut out), Given::Some);
        assert_eq!((out.len(), out[0].bytes, queues.told.cut), (1, VALUE_BYTES_MAX, 1));
        queues.source.1 = 1 << 20;
        out.clear();
        queues.take(client, 256, Duration::ZERO, &mut out);
        assert_eq!(out.len(), TOGETHER_BYTES >> 20);
    }

    #[test]
    fn what_is_not_due_is_told_when() {
        let mut queues = queues(vec![(1, Some(0)), (1, Some(5)), (1, Some(9))], Protocol::Classic);
        let client = (hash(b"k 1") % 2) as usize;
        let mut out = Vec::new();
        let ms = Duration::from_millis;
        assert_eq!(queues.take(client, 9, ms(5), &mut out), Given::Some);
        assert_eq!((out.len(), queues.told.renamed), (2, 3), "one more was read, to see that it is not due");
        assert!(is_key(&out[0].op.key), "memcached takes no blanks");
        out.clear();
        assert_eq!(queues.take(client, 9, ms(5), &mut out), Given::At(ms(9)));
        assert_eq!(queues.take(client, 9, ms(9), &mut out), Given::Some);
        out.clear();
        assert_eq!(queues.take(client, 9, ms(9), &mut out), Given::Ended);
    }
}
