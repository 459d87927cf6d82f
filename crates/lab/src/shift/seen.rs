//! The clients' figures: counts and latencies over time, late sends, refusals and wrong values.

use std::time::Duration;

use crate::tally::Latencies;

/// Counts of a bin.
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// Keys in gets.
    pub gets: u64,
    /// Keys with a value.
    pub hits: u64,
    /// Values stored.
    pub sets: u64,
    /// Bytes of their keys and values.
    pub set_bytes: u64,
}

/// All figures of the clients.
#[derive(Debug, Default)]
pub struct Seen {
    /// By time of the reply.
    pub bins: Vec<Bin>,
    /// Latencies of get batches and of sets, by seconds.
    pub get: Vec<Latencies>,
    pub set: Vec<Latencies>,
    /// How late sends were, by the seconds in which they were due.
    pub lag: Vec<Latencies>,
    /// Writes that the server refused.
    pub refused: u64,
    /// Values that must not occur.
    pub wrong: u64,
    /// The first wrong value, in words.
    pub first: Option<String>,
}

impl Seen {
    /// Adds the figures of another thread.
    pub fn merge(&mut self, other: Seen) {
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), Bin::default());
        }
        for (have, bin) in self.bins.iter_mut().zip(other.bins) {
            have.gets += bin.gets;
            have.hits += bin.hits;
            have.sets += bin.sets;
            have.set_bytes += bin.set_bytes;
        }
        let join = |have: &mut Vec<Latencies>, more: Vec<Latencies>| {
            have.resize_with(have.len().max(more.len()), Latencies::default);
            have.iter_mut().zip(more).for_each(|(have, more)| have.merge(&more));
        };
        join(&mut self.get, other.get);
        join(&mut self.set, other.set);
        join(&mut self.lag, other.lag);
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }

    /// Keys asked for, keys found, values stored.
    pub fn totals(&self) -> (u64, u64, u64) {
        self.bins
            .iter()
            .fold((0, 0, 0), |(gets, hits, sets), bin| (gets + bin.gets, hits + bin.hits, sets + bin.sets))
    }

    /// The bin of a time, for bins of this width.
    pub fn bin(&mut self, at: Duration, width: Duration) -> &mut Bin {
        let index = (at.as_secs_f64() / width.as_secs_f64()) as usize;
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }
}

pub(super) fn record(seconds: &mut Vec<Latencies>, at: Duration, latency: Duration) {
    let index = at.as_secs() as usize;
    if seconds.len() <= index {
        seconds.resize_with(index + 1, Latencies::default);
    }
    seconds[index].record(latency);
}

/// The latencies of several seconds together.
pub fn together<'t>(seconds: impl IntoIterator<Item = &'t Latencies>) -> Latencies {
    let mut all = Latencies::default();
    seconds.into_iter().for_each(|second| all.merge(second));
    all
}
