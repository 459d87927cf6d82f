//! A server with the whole plan, warmed and measured; and beside it a fresh one that has only the last phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use larder_protocol::client::Protocol;

use super::aside::{Aside, Pace};
use super::plan::Plan;
use super::seen::Seen;
use super::shelf::Shelf;
use super::variant::Variant;
use crate::connection::Check;
use crate::contender::Contender;
use crate::control::{Control, Family};
use crate::dialog::Dialog;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::keys::Keyspace;
use crate::placement::Placement;
use crate::results::Ceiling;
use crate::route::Route;
use crate::starvation::Waited;
use crate::usage;
use crate::workload::{Verb, Workload};

/// Gets that a connection sends together while a cache is filled.
pub const FILL_BATCH: usize = 32;
/// Connections that fill.
pub const FILL_CONNECTIONS: usize = 16;
/// A fill ends when this many times the memory was written.
pub const FILL_TIMES: u64 = 2;
/// Requests of a fill between two readings of the written bytes, as a share of the keys.
const FILL_SHARE: u64 = 8;
/// The longest time of the counted part.
const COUNT_MAX: Duration = Duration::from_secs(3600);

/// The generator of a visit.
#[derive(Clone, Copy, Debug)]
pub struct Driver<'d> {
    /// Cores of the generator.
    pub cores: &'d [Option<usize>],
    /// Seed of all choices.
    pub seed: u64,
    /// The longest time of a warm-up.
    pub warm_max: Duration,
}

/// A warmed server, and the clients that warmed it: their next requests continue the stream.
#[derive(Debug)]
pub struct Warm {
    dialog: Dialog<Aside>,
    /// Their figures so far.
    pub seen: Seen,
}

impl Warm {
    /// Makes the clients send this many more requests, rounded up to whole batches of all.
    ///
    /// # Errors
    /// A connection fails or a reply is malformed.
    pub fn count(&mut self, requests: u64) -> Result<Seen, Error> {
        let (seen, left) = go_on(&mut self.dialog, requests, COUNT_MAX)?;
        if left > 0 {
            return Err(Error::NotValid(format!(
                "what is counted took longer than {} s",
                COUNT_MAX.as_secs()
            )));
        }
        Ok(seen)
    }
}

/// Makes filling clients send this many requests, in `time` at most. Returns their figures, and the batches that were not begun.
fn go_on(dialog: &mut Dialog<Aside>, requests: u64, time: Duration) -> Result<(Seen, u64), Error> {
    let batches = requests.div_ceil((FILL_CONNECTIONS * FILL_BATCH) as u64);
    dialog.agents_mut().for_each(|client| client.limit(batches));
    let outcome = dialog.run(time)?;
    let mut seen = Seen::default();
    outcome.tallies.into_iter().for_each(|tally| seen.merge(tally));
    Ok((seen, dialog.agents().map(Aside::left).sum()))
}

/// Requests of a warm-up between two readings of the written bytes: a share of the keys, so that servers of every speed get the
/// same requests.
pub fn warm_step(plan: &Plan) -> u64 {
    (u64::from(plan.phases[0].count) / FILL_SHARE).max(1)
}

/// Memory at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds from the start of the measurement on.
    pub at_s: f64,
    /// Resident memory, if it is visible.
    pub rss_mib: Option<f64>,
    /// Pages that have moved between classes so far.
    pub pages_moved: u64,
    /// Memory by class, or by use: name and MiB.
    pub layers: Vec<(String, f64)>,
}

/// Hits, misses and sets that a server counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Gets of existing keys.
    pub hits: u64,
    /// Gets of other keys.
    pub misses: u64,
    /// Sets, where they are counted.
    pub sets: Option<u64>,
}

/// The result of a visit.
#[derive(Debug)]
pub struct Visit {
    /// The figures of the measured time.
    pub seen: Seen,
    /// The figures of the time before, for the counts.
    pub warm: Seen,
    /// Memory over time.
    pub samples: Vec<Sample>,
    /// Requests offered, by the plan.
    pub offered: f64,
    /// Share of the time that the generator worked.
    pub busy: f64,
    /// How long threads waited for a core.
    pub waited: Waited,
    /// The server's counts over all of that.
    pub server_counts: Option<Counted>,
}

impl Driver<'_> {
    fn dialog(
        &self,
        server: &Contender,
        plan: &Arc<Plan>,
        shelf: &Arc<Shelf>,
        connections: usize,
        (pace, batch): (Pace, usize),
        started: Instant,
    ) -> Result<Dialog<Aside>, Error> {
        let protocol = server.protocol(Protocol::Classic);
        let client = |number| {
            Aside::new(plan, shelf, protocol, (pace, batch), started, (number, connections), self.seed)
        };
        Dialog::connect(server.endpoint(), (0..connections).map(client).collect(), self.cores)
    }

    /// A generator for the part after a warm-up: the same requests again would be no sample of the stream.
    fn anew(&self) -> Driver<'_> {
        Driver { seed: !self.seed, ..*self }
    }

    fn run(&self, dialog: &mut Dialog<Aside>, time: Duration) -> Result<(Seen, f64, Duration, f64), Error> {
        let outcome = dialog.run(time)?;
        let mut seen = Seen::default();
        outcome.tallies.into_iter().for_each(|tally| seen.merge(tally));
        Ok((seen, outcome.busy, outcome.elapsed, outcome.waited))
    }

    /// Sends requests of the first phase until the cache has been overwritten several times.
    ///
    /// # Errors
    /// A connection fails or a reply is malformed; [`Error::NotValid`] when it takes too long, since counts of a half-warm cache
    /// are those of its cold half.
    pub fn warm(&self, server: &Contender, plan: &Arc<Plan>, shelf: &Arc<Shelf>) -> Result<Warm, Error> {
        let still = Arc::new(plan.only_in(0));
        let started = Instant::now();
        let mut seen = Seen::default();
        let mut dialog =
            self.dialog(server, &still, shelf, FILL_CONNECTIONS, (Pace::Closed, FILL_BATCH), started)?;
        loop {
            let before = shelf.written_bytes.load(Relaxed);
            let time = self.warm_max.saturating_sub(started.elapsed());
            let (more, left) = go_on(&mut dialog, warm_step(plan), time)?;
            seen.merge(more);
            let written = shelf.written_bytes.load(Relaxed);
            let enough = FILL_TIMES * plan.capacity_bytes();
            // A cache in which everything fits is never overwritten.
            if written >= enough || written == before && left == 0 {
                return Ok(Warm { dialog, seen });
            }
            if left > 0 {
                return Err(Error::NotValid(format!(
                    "{}: the warm-up was cut off after {} s, when {} of {} MiB were written; --warm-max gives it more",
                    server.name,
                    self.warm_max.as_secs_f64(),
                    written >> 20,
                    enough >> 20
                )));
            }
        }
    }

    /// Requests a second that a warm server answers in the plan's own way, without a pause: in its hardest phase while the phase
    /// is new, since half of the rate of hits may be more than the rate of misses.
    ///
    /// # Errors
    /// A connection fails or a reply is malformed.
    pub fn peak(
        &self,
        server: &Contender,
        plan: &Arc<Plan>,
        shelf: &Arc<Shelf>,
        time: Duration,
    ) -> Result<f64, Error> {
        let mut lowest = f64::INFINITY;
        for phase in 0..plan.phases.len() {
            let still = Arc::new(plan.only_in(phase));
            let pace = (Pace::Closed, plan.pipeline);
            let mut dialog =
                self.anew().dialog(server, &still, shelf, plan.connections, pace, Instant::now())?;
            let (seen, _, elapsed, _) = self.run(&mut dialog, time)?;
            lowest = lowest.min(seen.totals().0 as f64 / elapsed.as_secs_f64());
        }
        Ok(lowest)
    }

    /// The rate of the generator alone with the clients' first request, which a null server can only answer as a cache without
    /// items would.
    ///
    /// # Errors
    /// When the null server or a connection fails.
    pub fn ceiling(
        experiment: &Experiment,
        route: Route,
        connections: usize,
        pipeline: usize,
    ) -> Result<Ceiling, Error> {
        let keyspace = Keyspace::new(1000, 32);
        let asked = Workload { connections, pipeline, ..Workload::new(route.protocol, Verb::Miss, keyspace) };
        let load = format!("get {connections}×{pipeline}, {route}, closed loop, parsed");
        experiment.ceiling(&asked, Check::Parse, load, route.socket)
    }

    /// The hit ratio of a server that had only the last phase, with the clients' figures and its own counts.
    ///
    /// # Errors
    /// When a server cannot be started or a connection fails.
    pub fn fresh_ratio(
        &self,
        server: &Contender,
        plan: &Plan,
        requests: u64,
    ) -> Result<(f64, Seen, Option<Counted>), Error> {
        let plan = Arc::new(plan.only_last());
        let shelf = Shelf::new(&plan);
        let before = Counted::of(&server.control)?;
        let mut warm = self.warm(server, &plan, &shelf)?;
        let counted = warm.count(requests)?;
        let mut seen = warm.seen;
        let after = Counted::of(&server.control)?;
        let (gets, hits, _) = counted.totals();
        seen.merge(counted);
        let server_counts = after.zip(before).map(|(after, before)| after.since(before));
        Ok((hits as f64 / gets.max(1) as f64, seen, server_counts))
    }

    /// The whole plan at `rate` requests a second.
    ///
    /// # Errors
    /// A connection fails or a reply is malformed.
    pub fn visit(&self, server: &Contender, plan: &Arc<Plan>, rate: f64) -> Result<Visit, Error> {
        let shelf = Shelf::new(plan);
        let before = Counted::of(&server.control)?;
        let warm = self.warm(server, plan, &shelf)?.seen;
        let per_connection = rate / (plan.connections * plan.pipeline) as f64;
        let pace = (Pace::Open(per_connection), plan.pipeline);
        let started = Instant::now() + Duration::from_millis(20);
        let mut dialog = self.anew().dialog(server, plan, &shelf, plan.connections, pace, started)?;
        let threads = server.threads()?;
        let done = AtomicBool::new(false);
        let (outcome, samples) = thread::scope(|scope| {
            let sampler = scope.spawn(|| watch(server, started, &done));
            let outcome = self.run(&mut dialog, plan.length() + (started - Instant::now()));
            done.store(true, Relaxed);
            (outcome, sampler.join().expect("the sampler does not panic"))
        });
        let (mut seen, busy, elapsed, waited) = outcome?;
        let placement = server.placement(threads.as_ref())?;
        let waited = Placement::waited(placement.as_ref(), elapsed, waited);
        let after = Counted::of(&server.control)?;
        let server_counts = after.zip(before).map(|(after, before)| after.since(before));
        // Further bins are for batches that were under way at the end.
        seen.bins.resize(seen.bins.len().max(plan.bins()), Default::default());
        let offered = rate * plan.length().as_secs_f64();
        Ok(Visit { seen, warm, samples, offered, busy, waited, server_counts })
    }
}

/// Reads a server's memory every second.
fn watch(server: &Contender, started: Instant, done: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut next = started;
    while !done.load(Relaxed) {
        if Instant::now() < next {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        next += Duration::from_secs(1);
        let at_s = started.elapsed().as_secs_f64();
        // A server that does not answer in time is asked again in the next second.
        if let Ok(sample) = sample(server, at_s) {
            samples.push(sample);
        }
    }
    samples
}

const MIB: f64 = 1_048_576.0;

/// Resident memory, if it is visible.
///
/// # Errors
/// When the process is gone.
pub fn resident_mib(server: &Contender) -> Result<Option<f64>, Error> {
    server.pid.map(|pid| Ok(usage::rss_bytes(pid)? as f64 / MIB)).transpose()
}

fn sample(server: &Contender, at_s: f64) -> Result<Sample, Error> {
    let rss_mib = resident_mib(server)?;
    let counters = server.control.counters()?;
    let layers = match server.control.family {
        Family::Memcached => classes(&server.control.stats("slabs")?),
        Family::Redis => {
            let mib = |name: &str| counters.number(name).unwrap_or(0) as f64 / MIB;
            let (used, dataset) = (mib("used_memory"), mib("used_memory_dataset"));
            vec![
                ("data set".to_owned(), dataset),
                ("overhead that it counts".to_owned(), (used - dataset).max(0.0)),
                ("fragmentation and the rest".to_owned(), (rss_mib.unwrap_or(used) - used).max(0.0)),
            ]
        }
    };
    Ok(Sample { at_s, rss_mib, pages_moved: counters.number("slabs_moved").unwrap_or(0), layers })
}

/// Memory by class of memcached's `stats slabs`: `12:chunk_size 1184`, `12:total_pages 120`.
fn classes(stats: &[(String, String)]) -> Vec<(String, f64)> {
    let field = |class: &str, name: &str| -> Option<f64> {
        let wanted = format!("{class}:{name}");
        stats.iter().find(|(have, _)| *have == wanted)?.1.parse().ok()
    };
    let mut classes = Vec::new();
    for (name, _) in stats {
        let Some(class) = name.strip_suffix(":chunk_size") else { continue };
        let sizes = (field(class, "chunk_size"), field(class, "total_chunks"), field(class, "total_pages"));
        let (Some(chunk), Some(chunks), Some(pages)) = sizes else { continue };
        if pages > 0.0 {
            classes.push((format!("chunks of {chunk} B"), chunk * chunks / MIB));
        }
    }
    classes
}

impl Counted {
    /// The server's counts so far; `None` if it does not count hits and misses.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn of(control: &Control) -> Result<Option<Counted>, Error> {
        let counters = control.counters()?;
        let number = |name: &str| counters.number(name);
        let (hits, misses, sets) = match control.family {
            Family::Memcached => (number("get_hits"), number("get_misses"), number("cmd_set")),
            Family::Redis => (number("keyspace_hits"), number("keyspace_misses"), counters.calls("set")),
        };
        let (Some(hits), Some(misses)) = (hits, misses) else { return Ok(None) };
        Ok(Some(Counted { hits, misses, sets }))
    }

    /// The counts since `before`.
    pub fn since(self, before: Counted) -> Counted {
        Counted {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
            sets: self.sets.map(|sets| sets.saturating_sub(before.sets.unwrap_or(0))),
        }
    }
}

/// Finds the memory limit at which a warm server's resident memory is `plan.memory_mb`, and its peak rate; both come from the
/// last server that was warmed.
///
/// # Errors
/// When a server cannot be started or a connection fails.
pub fn fit(
    variant: &Variant,
    plan: &Arc<Plan>,
    driver: &Driver<'_>,
    search: bool,
    time: Duration,
) -> Result<Fit, Error> {
    let mut limit_mb = variant.limit_mb(plan.memory_mb);
    let target_mib = f64::from(plan.memory_mb);
    let mut best: Option<Fit> = None;
    for attempt in 0..FIT_TRIES {
        let server = variant.start(limit_mb)?;
        let shelf = Shelf::new(plan);
        driver.warm(&server, plan, &shelf)?;
        let rss_mib = resident_mib(&server)?;
        let off = |rss_mib: Option<f64>| rss_mib.map_or(0.0, |rss_mib| (rss_mib / target_mib - 1.0).abs());
        let miss = off(rss_mib);
        let better = best.as_ref().is_none_or(|best| miss < off(best.rss_mib));
        if better {
            best = Some(Fit { limit_mb, rss_mib, peak: 0.0 });
        }
        // The limit bounds a part of the resident memory; the rest hardly changes.
        let resident_mib = rss_mib.unwrap_or(target_mib);
        let next = (f64::from(limit_mb) + target_mib - resident_mib).round().max(2.0) as u32;
        let last =
            !search || rss_mib.is_none() || miss < FIT_SHARE || next == limit_mb || attempt + 1 == FIT_TRIES;
        if last {
            let peak = driver.peak(&server, plan, &shelf, time)?;
            return Ok(Fit { peak, ..best.expect("there was one") });
        }
        limit_mb = next;
    }
    unreachable!("the last try returns")
}

const FIT_TRIES: u32 = 5;
/// Resident memory this near to the wanted one is accepted.
pub const FIT_SHARE: f64 = 0.01;

/// A memory limit and its result.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The limit given to the server.
    pub limit_mb: u32,
    /// Resident memory of the warm server, if it is visible.
    pub rss_mib: Option<f64>,
    /// Its rate in the plan's way and its hardest phase.
    pub peak: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_without_pages_are_left_out() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let stats = [
            pair("12:chunk_size", "1184"),
            pair("12:total_pages", "2"),
            pair("12:total_chunks", "1770"),
            pair("13:chunk_size", "1480"),
            pair("13:total_pages", "0"),
            pair("13:total_chunks", "0"),
            pair("active_slabs", "1"),
        ];
        let classes = classes(&stats);
        assert_eq!(classes.len(), 1);
        assert_eq!(classes[0].0, "chunks of 1184 B");
        assert!((classes[0].1 - 1.998).abs() < 0.01);
    }
}
