//! One measurement of memory on one server.

use std::thread;
use std::time::Duration;

use super::Shape;
use crate::contender::{Contender, Setup};
use crate::control::{Control, Family};
use crate::elements;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::keys::Keyspace;
use crate::sizes::Sizes;
use crate::usage;
use crate::walk::{Counts, Deed, Keys, walk};

/// The memory of a fill.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Resident memory per item, above key and value.
    pub overhead_bytes: f64,
    /// The memory of its data by the server's own count, per item, above key and value.
    pub counted_bytes: f64,
    /// Resident memory in the end.
    pub rss_mib: f64,
}

/// A cache that is full.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// Items it holds.
    pub items: f64,
    /// Resident memory per item above key and value.
    pub overhead_bytes: f64,
    /// Resident memory.
    pub rss_mib: f64,
    /// Writes that the server refused, although it may evict.
    pub refused: f64,
}

/// Memory at one stage.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The stage.
    pub name: &'static str,
    /// Keys and values that are stored.
    pub data_mib: f64,
    /// Resident memory above that of the server just started.
    pub rss_mib: f64,
    /// The memory of its data by the server's own count.
    pub counted_mib: f64,
    /// Resident memory per key above key and value.
    pub overhead_bytes: f64,
}

/// How often a cache that is to be full is filled.
const FULL_TIMES: f64 = 2.0;
const MIB: f64 = 1_048_576.0;

/// A memory limit that the data stay well below, in MB.
pub fn limit_mb(space: Keyspace) -> u64 {
    let bytes = f64::from(space.count) * 1.6 * (space.key_bytes + space.value_bytes + 120) as f64;
    64 + (bytes / MIB) as u64
}

/// Measures on one server.
pub struct Bench<'e> {
    experiment: &'e mut Experiment,
    contender: usize,
    pause: Duration,
}

impl<'e> Bench<'e> {
    pub fn new(experiment: &'e mut Experiment, contender: usize, pause: Duration) -> Bench<'e> {
        Bench { experiment, contender, pause }
    }

    /// The memory of a key.
    pub fn cost(&mut self, space: Keyspace, ttl_s: u32) -> Result<Reading, Error> {
        let server = self.fresh(limit_mb(space))?;
        let (rss_before, counted_before) = (self.rss(&server)?, counted(&server.control)?);
        let sizes = Sizes::Fixed(space.value_bytes);
        self.write(&server, Keys::all(space), &sizes, 1, ttl_s)?;
        let (rss, counted) = (self.rss(&server)?, counted(&server.control)?);
        let items = items_of(&server.control)?;
        let whose = &server.name;
        self.experiment.checks.equal(
            "the server holds as many items as were stored",
            space.count.into(),
            items,
            whose,
        );
        self.read(&server, Keys::all(space), &sizes, 1, false)?;
        let data = (space.key_bytes + space.value_bytes) as f64;
        self.check_growth(&server, rss - rss_before, data * f64::from(space.count));
        let per_item = |bytes: f64| bytes / f64::from(space.count) - data;
        Ok(Reading {
            overhead_bytes: per_item(rss - rss_before),
            counted_bytes: per_item(counted - counted_before),
            rss_mib: rss / MIB,
        })
    }

    /// Measures the cost of an element of collections.
    pub fn elements(&mut self, shape: elements::Shape) -> Result<Reading, Error> {
        let server = self.fresh(shape.limit_mb())?;
        let (rss_before, counted_before) = (self.rss(&server)?, counted(&server.control)?);
        self.pass(&server, shape, false)?;
        let (rss, counted) = (self.rss(&server)?, counted(&server.control)?);
        let items = items_of(&server.control)?;
        let claim = "the server holds as many collections as were made";
        self.experiment.checks.equal(claim, shape.keys.into(), items, &server.name);
        self.pass(&server, shape, true)?;
        let stored = shape.bytes() as f64;
        self.check_growth(&server, rss - rss_before, stored);
        let per_element = |bytes: f64| (bytes - stored) / shape.all() as f64;
        Ok(Reading {
            overhead_bytes: per_element(rss - rss_before),
            counted_bytes: per_element(counted - counted_before),
            rss_mib: rss / MIB,
        })
    }

    /// Checks that a server that was running before has grown at least by what was stored.
    fn check_growth(&mut self, server: &Contender, grown: f64, stored: f64) {
        if server.is_ours() {
            return;
        }
        let whose = &server.name;
        self.experiment.checks.add("memory grew by what was stored at least", grown >= stored, || {
            format!("{whose}: by {grown:.0} of {stored:.0} bytes: it had been used before, or what is small is lost in pages")
        });
    }

    /// Fills collections, or reads them back, and checks the replies.
    fn pass(&mut self, server: &Contender, shape: elements::Shape, reads: bool) -> Result<(), Error> {
        let done = elements::pass(server, shape, reads, &self.experiment.generator_cores)?;
        let claim = match reads {
            true => "every element read back is the one written",
            false => "every write of elements was acknowledged",
        };
        let right = done.wrong == 0 && done.right == shape.commands();
        self.experiment.checks.add(claim, right, || {
            let elements::Done { right, wrong, first } = &done;
            let first = first.as_deref().unwrap_or_default();
            format!("{}: {right} of {}, {wrong} wrong {first}", server.name, shape.commands())
        });
        Ok(())
    }

    /// Measures a cache that evicts a key for each that is stored.
    pub fn full(&mut self, shape: Shape, memory_mb: u32, ttl_s: u32) -> Result<Full, Error> {
        let server = self.fresh(memory_mb.into())?;
        let rss_before = self.rss(&server)?;
        // More than would fit if a key cost nothing.
        let count = (FULL_TIMES * f64::from(memory_mb) * MIB / shape.both()) as u32;
        let space = shape.space(count);
        let sizes = Sizes::Fixed(shape.value_bytes);
        let deed = Deed::Write { sizes: sizes.clone(), version: 1, ttl_s };
        let written = walk(&server, Keys::all(space), &deed, &self.experiment.generator_cores)?;
        let rss = self.rss(&server)?;
        let items = items_of(&server.control)?;
        let kept = self.read(&server, Keys::all(space), &sizes, 1, true)?;
        let whose = &server.name;
        self.experiment.checks.add("a full cache has evicted", items < u64::from(count), || {
            format!("{whose}: {items} of {count} are left")
        });
        // A server that counts its buffers evicts for the replies of the reads, too.
        let left = items_of(&server.control)?;
        self.experiment.checks.add(
            "what a full cache counts can be read",
            (left..=items).contains(&kept.done),
            || format!("{whose}: {} read, {items} counted before and {left} after", kept.done),
        );
        Ok(Full {
            items: items as f64,
            overhead_bytes: (rss - rss_before) / items.max(1) as f64 - shape.both(),
            rss_mib: rss / MIB,
            refused: written.refused as f64,
        })
    }

    /// The memory that stays.
    pub fn stages(&mut self, space: Keyspace, idle: Duration) -> Result<Vec<Stage>, Error> {
        let server = self.fresh(limit_mb(space))?;
        let (rss_before, counted_before) = (self.rss(&server)?, counted(&server.control)?);
        let fixed = Sizes::Fixed(space.value_bytes);
        let random = Sizes::Spread(space.value_bytes / 2, space.value_bytes * 3 / 2);
        let (odd, even) = (Keys { space, first: 1, step: 2 }, Keys { space, first: 0, step: 2 });
        let data = |keys: &[Keys], sizes: &Sizes, version| -> (f64, f64) {
            let ids = keys.iter().flat_map(|keys| (keys.first..space.count).step_by(keys.step as usize));
            let bytes = ids.clone().map(|id| space.key_bytes + sizes.of(id, version)).sum::<usize>();
            (bytes as f64, ids.count() as f64)
        };
        let mut stages = Vec::new();
        let mut stage = |bench: &mut Bench<'_>, name, (bytes, items): (f64, f64)| -> Result<(), Error> {
            let rss = bench.rss(&server)? - rss_before;
            let held_items = items_of(&server.control)?;
            let whose = format!("{}, {name}", server.name);
            bench.experiment.checks.equal(
                "the server holds as many items as were stored",
                items as u64,
                held_items,
                &whose,
            );
            stages.push(Stage {
                name,
                data_mib: bytes / MIB,
                rss_mib: rss / MIB,
                counted_mib: (counted(&server.control)? - counted_before) / MIB,
                overhead_bytes: (rss - bytes) / items,
            });
            Ok(())
        };
        self.write(&server, Keys::all(space), &fixed, 1, 0)?;
        stage(self, "filled", data(&[Keys::all(space)], &fixed, 1))?;
        self.write(&server, Keys::all(space), &random, 2, 0)?;
        stage(self, "overwritten", data(&[Keys::all(space)], &random, 2))?;
        let deleted = walk(&server, odd, &Deed::Delete, &self.experiment.generator_cores)?;
        self.experiment.checks.equal(
            "every key that was there was deleted",
            odd.count().into(),
            deleted.done,
            &server.name,
        );
        stage(self, "half deleted", data(&[even], &random, 2))?;
        thread::sleep(idle);
        stage(self, "idle", data(&[even], &random, 2))?;
        self.read(&server, even, &random, 2, false)?;
        Ok(stages)
    }

    /// An empty server: just started, or in its present state if the lab did not start it.
    fn fresh(&mut self, memory_mb: u64) -> Result<Contender, Error> {
        let template = &self.experiment.contenders[self.contender];
        let server = match template.kind {
            Some(kind) => {
                let memory_mb = u32::try_from(memory_mb).unwrap_or(u32::MAX);
                Contender::start(kind, &Setup { memory_mb, ..self.experiment.setup.clone() })?
            }
            None => {
                let target =
                    self.experiment.options.targets.iter().find(|target| target.name == template.name);
                let note = "measured once";
                let notes = &mut self.experiment.run.targets[self.contender].notes;
                if !notes.iter().any(|have| have == note) {
                    notes.push(note.to_owned());
                }
                let target = target.expect("a contender that is not ours is a target");
                Contender::reach(target, &self.experiment.setup)?
            }
        };
        if server.pid.is_none() {
            let (name, why) = (&server.name, server.unseen.as_deref().unwrap_or("it is not known"));
            return Err(Error::Peer(format!("{name}: its process cannot be seen from here: {why}")));
        }
        Ok(server)
    }

    /// Resident memory when it no longer changes.
    fn rss(&self, server: &Contender) -> Result<f64, Error> {
        let pid = server.pid.expect("a server without a process is refused");
        thread::sleep(self.pause);
        let mut last = usage::rss_bytes(pid)?;
        // A table that grows in the background may take a moment.
        for _ in 0..30 {
            thread::sleep(Duration::from_millis(100));
            let now = usage::rss_bytes(pid)?;
            if now.abs_diff(last) < 64 * 1024 {
                return Ok(now as f64);
            }
            last = now;
        }
        Ok(last as f64)
    }

    fn write(
        &mut self,
        server: &Contender,
        keys: Keys,
        sizes: &Sizes,
        version: u64,
        ttl_s: u32,
    ) -> Result<(), Error> {
        let deed = Deed::Write { sizes: sizes.clone(), version, ttl_s };
        let counts = walk(server, keys, &deed, &self.experiment.generator_cores)?;
        self.experiment.checks.add(
            "every write was acknowledged",
            counts.done == u64::from(keys.count()),
            || format!("{}: {} of {} {}", server.name, counts.done, keys.count(), said(&counts)),
        );
        Ok(())
    }

    /// Reads every key back; `holes`: some may be gone.
    fn read(
        &mut self,
        server: &Contender,
        keys: Keys,
        sizes: &Sizes,
        version: u64,
        holes: bool,
    ) -> Result<Counts, Error> {
        let deed = Deed::Read { sizes: sizes.clone(), version };
        let counts = walk(server, keys, &deed, &self.experiment.generator_cores)?;
        let right = counts.wrong == 0 && counts.refused == 0 && (holes || counts.misses == 0);
        self.experiment.checks.add("every value read back is the one written", right, || {
            let Counts { done, misses, wrong, .. } = &counts;
            format!("{}: {done} read, {misses} gone, {wrong} wrong {}", server.name, said(&counts))
        });
        Ok(counts)
    }
}

fn said(counts: &Counts) -> &str {
    counts.first.as_deref().unwrap_or_default()
}

/// The memory of its data by the server's own count: memcached's `bytes`, Redis's `used_memory`.
fn counted(control: &Control) -> Result<f64, Error> {
    let name = match control.family {
        Family::Memcached => "bytes",
        Family::Redis => "used_memory",
    };
    let counted = control.counters()?.number(name);
    counted
        .map(|bytes| bytes as f64)
        .ok_or_else(|| Error::Peer(format!("{} has no counter {name}", control.name)))
}

/// How many items a server has.
fn items_of(control: &Control) -> Result<u64, Error> {
    let items = control.counters()?.items(control.family);
    items.ok_or_else(|| Error::Peer(format!("{} does not say how many items it holds", control.name)))
}
