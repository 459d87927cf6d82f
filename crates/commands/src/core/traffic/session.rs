//! A session of HOTKEYS: the keys that take most time or bytes, from its start to its end.

use larder_store::{Millis, Store};

use super::ring::Sample;
use super::top::Top;
use super::{SHIFT_MAX, entries_of};
use crate::core::host::Process;

/// The measures of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metrics {
    /// Time of the processor.
    pub cpu: bool,
    /// Bytes of requests and replies.
    pub net: bool,
}

/// The orders for a session, and the state at its start.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub metrics: Metrics,
    /// Most keys that are shown.
    pub count: usize,
    /// Milliseconds after which it ends by itself.
    pub ends_after_ms: Option<Millis>,
    /// One key in so many is looked at.
    pub ratio: u64,
    /// The system's time at the start.
    pub at_ms: Millis,
    /// The process at the start.
    pub process: Process,
}

/// A session, under way or over.
#[derive(Debug)]
pub(crate) struct Session {
    pub start: Start,
    /// When it began, on the server's own clock.
    began: Millis,
    ended: Option<Millis>,
    cpu_ns: u64,
    net_bytes: u64,
    by_cpu: Option<Top>,
    by_net: Option<Top>,
}

impl Session {
    /// Begins at a time of the server's own clock.
    pub fn begin(start: Start, store: &Store, now: Millis) -> Session {
        let top = |wanted: bool| wanted.then(|| Top::new(entries_of(store)));
        let (by_cpu, by_net) = (top(start.metrics.cpu), top(start.metrics.net));
        Session { start, began: now, ended: None, cpu_ns: 0, net_bytes: 0, by_cpu, by_net }
    }

    /// Returns whether it goes on.
    pub fn is_active(&self) -> bool {
        self.ended.is_none()
    }

    /// Ends it, if it goes on.
    pub fn end(&mut self, now: Millis) {
        self.ended.get_or_insert(now);
    }

    /// Ends it if its time is over.
    pub fn end_in_time(&mut self, now: Millis) {
        let until = self.start.ends_after_ms.map(|ms| self.began + ms);
        if let Some(until) = until.filter(|until| now >= *until) {
            self.end(until);
        }
    }

    /// Milliseconds that it has lasted.
    pub fn lasted_ms(&self, now: Millis) -> Millis {
        self.ended.unwrap_or(now).saturating_sub(self.began)
    }

    /// Least number of keys that a sample may stand for, as a power of two.
    pub(super) fn shift(&self) -> u8 {
        (self.start.ratio.max(1).ilog2() as u8).min(SHIFT_MAX)
    }

    pub(super) fn workers(&self) -> u32 {
        u32::try_from(self.start.process.threads).unwrap_or(u32::MAX).max(1)
    }

    pub(super) fn bytes(&self) -> u64 {
        let tops = self.by_cpu.iter().chain(&self.by_net);
        size_of::<Session>() as u64 + tops.map(Top::bytes).sum::<u64>()
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        if !self.is_active() {
            return;
        }
        let keys = 1u64 << sample.shift;
        let (ns, bytes) = (keys * u64::from(sample.cost_ns), keys * u64::from(sample.net_bytes));
        self.cpu_ns += ns;
        self.net_bytes += bytes;
        for (top, weight) in [(&mut self.by_cpu, ns), (&mut self.by_net, bytes)] {
            if let Some(top) = top {
                top.add(sample, weight);
            }
        }
    }

    /// Microseconds and bytes of all keys.
    pub fn totals(&self) -> (u64, u64) {
        (self.cpu_ns / 1000, self.net_bytes)
    }

    /// The keys that took most time, and the microseconds of those of their requests that were looked at.
    pub fn by_cpu(&self) -> Option<Vec<(Box<[u8]>, u64)>> {
        self.list(self.by_cpu.as_ref(), 1000)
    }

    /// The keys that took most bytes, and the bytes of those of their requests that were looked at.
    pub fn by_net(&self) -> Option<Vec<(Box<[u8]>, u64)>> {
        self.list(self.by_net.as_ref(), 1)
    }

    fn list(&self, top: Option<&Top>, unit: u64) -> Option<Vec<(Box<[u8]>, u64)>> {
        let mut all = top?.all();
        all.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.weight()));
        all.truncate(self.start.count);
        let ratio = self.start.ratio.max(1);
        let told = all.into_iter().map(|(name, sums)| (name.key.clone(), sums.weight() / unit / ratio));
        Some(told.filter(|(_, weight)| *weight > 0).collect())
    }
}
