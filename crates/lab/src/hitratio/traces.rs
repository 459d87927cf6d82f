//! A trace, replayed on every server from its first request on: over one connection, in order, with a write behind each read that
//! misses. An LRU by bytes without overhead, in this process, gets the same requests.
//!
//! Counting begins with an empty cache, so first reads of keys are among the misses.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use larder_protocol::client::Protocol;

use super::NEAR;
use crate::books::{Books, check_back, check_replies, evicted_since};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::replay::{Replay, Replayed};
use crate::results::{Axis, Better, Column, Estimate, Kind as Drawn, Plot, Point, Scale, Table, number};
use crate::shift::variant::{Variant, Ways};
use crate::shift::visit::resident_mib;
use crate::sizes::{Sizes, VALUE_BYTES_MAX};
use crate::trace::{Kind, Op, Options, Reader, hash};

/// Requests that are sent together; missed keys are written behind them.
const TOGETHER: usize = 32;
/// Longer than any trace takes.
const FOR_EVER: Duration = Duration::from_secs(7 * 86_400);
/// Servers that are started in search of a limit, at most.
const TRIES: usize = 4;
/// Size of a value that the trace does not give.
const UNTOLD_BYTES: usize = 100;

/// The results of a server.
#[derive(Debug, Default)]
struct Found {
    limit_mb: Option<u32>,
    resident_mib: Option<f64>,
    /// Share of reads that missed, by round.
    misses: Vec<f64>,
}

/// Replays the trace on every server; returns a sentence on the misses.
///
/// # Errors
/// A server cannot be started, a connection fails, or the trace cannot be read or has no read ([`Error::File`]).
pub fn run(
    experiment: &mut Experiment,
    variants: &[Variant],
    (options, path): (&Options, &Path),
    requests: u64,
    (memory_mb, ways): (u32, &Ways),
) -> Result<String, Error> {
    let mut reader = Reader::open(path, options.format())?;
    let format = Some(reader.format());
    let oracle = oracle(&mut reader, u64::from(memory_mb) << 20, requests)?;
    let Some(oracle) = oracle else {
        return Err(Error::File(path.to_owned(), "has no read".to_owned()));
    };
    experiment.run.set("trace", path.display());
    experiment.run.notes.extend(reader.seen().remarks(reader.format()));
    let mut visits: Vec<(usize, Found)> = (0..variants.len()).map(|at| (at, Found::default())).collect();
    let each = reader.seen().requests as f64 / super::PER_S;
    experiment.announce(visits.len(), Duration::from_secs_f64(each));
    experiment.rounds(
        &mut visits,
        |&(at, _)| format!("the trace, {}", variants[at].name),
        |experiment, (at, found), _| {
            let variant = &variants[*at];
            let search = !ways.equal_limit && variant.can_be_limited() && found.limit_mb.is_none();
            let mut limit_mb = found.limit_mb.unwrap_or(memory_mb);
            for attempt in 1.. {
                let server = variant.start(limit_mb)?;
                let books = Books::open(&server.control).ok().filter(Books::counts);
                let replay = Replay {
                    protocol: server.protocol(Protocol::Classic),
                    connections: 1,
                    pipeline: TOGETHER,
                    requests,
                    time: FOR_EVER,
                    fills: true,
                    verify: true,
                    by_second: false,
                    shares_cores: false,
                    sizes: Sizes::Fixed(UNTOLD_BYTES),
                };
                let core = &experiment.generator_cores[..1];
                let source = crate::trace::Times::open(path, format, None)?;
                let Replayed { tally, wrote, .. } = replay.run(&server.endpoint(), source, core)?;
                let resident_mib = resident_mib(&server)?;
                let off = resident_mib.map_or(0.0, |mib| mib - f64::from(memory_mb));
                let next = (f64::from(limit_mb) - off).round().max(2.0) as u32;
                let near = off.abs() < NEAR * f64::from(memory_mb);
                // A trace that fits leaves memory over, whatever the limit is.
                let evicts = off > 0.0 || tally.misses > oracle.first_reads;
                if search && evicts && !near && next != limit_mb && attempt < TRIES {
                    limit_mb = next;
                    continue;
                }
                let back = replay.read_back(&server.endpoint(), wrote, core)?;
                let (checks, name) = (&mut experiment.checks, &variant.name);
                check_back(checks, name, &back, evicted_since(books.as_ref())?);
                let mut all = tally.clone();
                all.merge(back);
                match books {
                    Some(books) => books.compare(checks, name, &all)?,
                    None => check_replies(checks, name, &all),
                }
                let reads = tally.hits + tally.misses;
                experiment.checks.equal(
                    "every read of the trace was answered",
                    oracle.reads,
                    reads,
                    &variant.name,
                );
                if tally.refused > 0 {
                    let note = format!("{} refused {} writes of the trace", variant.name, tally.refused);
                    experiment.run.notes.push(note);
                }
                found.limit_mb = Some(limit_mb);
                found.resident_mib = resident_mib;
                found.misses.push(tally.misses as f64 / reads.max(1) as f64);
                break;
            }
            Ok(())
        },
    )?;
    let found: Vec<Found> = visits.into_iter().map(|(_, found)| found).collect();
    Ok(report(experiment, variants, &found, &oracle, (memory_mb, ways)))
}

const ORACLE: &str = "oracle, LRU by bytes";

fn report(
    experiment: &mut Experiment,
    variants: &[Variant],
    found: &[Found],
    oracle: &Oracle,
    (memory_mb, ways): (u32, &Ways),
) -> String {
    let run = &mut experiment.run;
    let share = oracle.misses as f64 / oracle.reads.max(1) as f64;
    let mut table = Table::new("trace", "Reads of the trace that missed", &[]);
    table.absent("an oracle has neither limit nor process, and a server's may not be seen from here");
    table.column(Column::new("misses", "%", Better::Lower));
    table.column(Column::new("of the oracle's", "", Better::Lower));
    table.column(Column::new("limit given", "MB", Better::Neither));
    table.column(Column::new("resident", "MiB", Better::Neither));
    let mut plot = Plot::new("trace", "Reads of the trace that missed", Drawn::Bars);
    plot.groups = vec!["trace".to_owned()];
    plot.x = Axis::new("", "", Scale::Linear);
    plot.y = Axis::new("misses", "%", Scale::Linear);
    plot.caption = "The oracle has no overhead: it has more room than any server.".to_owned();
    let mut said = Vec::new();
    for (variant, found) in variants.iter().zip(found) {
        let misses = Estimate::of(&found.misses.iter().map(|share| 100.0 * share).collect::<Vec<_>>());
        let against = Estimate::of(&found.misses.iter().map(|have| have / share).collect::<Vec<_>>());
        said.extend(
            misses.as_ref().map(|misses| format!("{} {} %", variant.name, number::text(misses.median))),
        );
        plot.curve(&variant.name, misses.as_ref().map(|misses| Point::estimated(0.0, misses)));
        let limit = found.limit_mb.filter(|_| variant.can_be_limited());
        let limit = limit.and_then(|limit_mb| Estimate::exact(limit_mb.into()));
        let resident = found.resident_mib.and_then(Estimate::exact);
        table.row(&variant.name, [""; 0], [misses, against, limit, resident]);
    }
    table.row(ORACLE, [""; 0], [Estimate::exact(100.0 * share), None, None, None]);
    plot.curve(ORACLE, [Point::new(0.0, 100.0 * share)]);
    run.tables.push(table);
    run.plots.push(plot);
    let first = 100.0 * oracle.first_reads as f64 / oracle.reads.max(1) as f64;
    run.notes.push(format!("{} % of the trace's reads are the first of their key", number::text(first)));
    let seen: Vec<(&Variant, Option<f64>)> =
        variants.iter().zip(found).map(|(variant, found)| (variant, found.resident_mib)).collect();
    format!(
        "Of the trace's {} reads, {}, miss: {}.",
        number::text(oracle.reads as f64),
        ways.memory_words(memory_mb, NEAR, &seen),
        said.join(", ")
    )
}

/// The results of an LRU by bytes.
#[derive(Debug, Default)]
struct Oracle {
    reads: u64,
    misses: u64,
    /// Reads of keys that no request had read or written before, as far as is known: see [`Oracle::first`].
    first_reads: u64,
    /// Bits of hashes of keys that were seen.
    seen: Vec<u64>,
}

/// Bits that mark seen keys: 32 MiB. After a hundred million keys a new one counts as seen with a chance of one in three.
const SEEN_BITS: u64 = 1 << 28;

impl Oracle {
    /// True if no request had this key before. The memory is limited: a new key may be taken for a seen one.
    fn first(&mut self, hash: u64) -> bool {
        let at = hash % SEEN_BITS;
        let (word, bit) = (&mut self.seen[(at / 64) as usize], 1 << (at % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

/// Runs `requests` of a trace on an LRU of this many bytes, as [`Replay`] does; `None` if the trace has no read.
fn oracle(reader: &mut Reader, capacity_bytes: u64, requests: u64) -> Result<Option<Oracle>, Error> {
    let mut oracle = Oracle { seen: vec![0; (SEEN_BITS / 64) as usize], ..Oracle::default() };
    let mut cache = Lru::new(capacity_bytes);
    let mut missed: Vec<(u64, u64)> = Vec::new();
    let mut asked = 0;
    while asked < requests {
        let Some(op) = reader.next_op()? else { break };
        asked += 1;
        let (hash, bytes) = (hash(&op.key), item_bytes(&op));
        let first = oracle.first(hash);
        match op.kind {
            Kind::Read => {
                oracle.reads += 1;
                oracle.first_reads += u64::from(first);
                if !cache.look(hash) {
                    oracle.misses += 1;
                    if missed.iter().all(|&(other, _)| other != hash) {
                        missed.push((hash, bytes));
                    }
                }
            }
            Kind::Write => cache.put(hash, bytes),
            Kind::Delete => cache.remove(hash),
        }
        if asked.is_multiple_of(TOGETHER as u64) {
            missed.drain(..).for_each(|(hash, bytes)| cache.put(hash, bytes));
        }
    }
    Ok((oracle.reads > 0).then_some(oracle))
}

/// Bytes of key and value.
fn item_bytes(op: &Op) -> u64 {
    let value_bytes = op.value_bytes.map_or(UNTOLD_BYTES, |bytes| (bytes as usize).min(VALUE_BYTES_MAX));
    (op.key.len() + value_bytes) as u64
}

const NONE: usize = usize::MAX;

/// A cache by bytes whose keys are distinguished by a hash: its size depends on what it holds, not on the number of keys.
#[derive(Debug)]
struct Lru {
    capacity_bytes: u64,
    used_bytes: u64,
    places: HashMap<u64, usize>,
    items: Vec<Item>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    hash: u64,
    bytes: u64,
    newer: usize,
    older: usize,
}

impl Lru {
    fn new(capacity_bytes: u64) -> Lru {
        let (places, items, free) = (HashMap::new(), Vec::new(), Vec::new());
        Lru { capacity_bytes, used_bytes: 0, places, items, free, newest: NONE, oldest: NONE }
    }

    fn look(&mut self, hash: u64) -> bool {
        let Some(&at) = self.places.get(&hash) else { return false };
        self.unlink(at);
        self.link(at);
        true
    }

    fn put(&mut self, hash: u64, bytes: u64) {
        self.remove(hash);
        let item = Item { hash, bytes, newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.items[at] = item;
                at
            }
            None => {
                self.items.push(item);
                self.items.len() - 1
            }
        };
        self.places.insert(hash, at);
        self.used_bytes += bytes;
        self.link(at);
        while self.used_bytes > self.capacity_bytes && self.oldest != NONE {
            self.remove(self.items[self.oldest].hash);
        }
    }

    fn remove(&mut self, hash: u64) {
        let Some(at) = self.places.remove(&hash) else { return };
        self.unlink(at);
        self.used_bytes -= self.items[at].bytes;
        self.free.push(at);
    }

    fn link(&mut self, at: usize) {
        (self.items[at].newer, self.items[at].older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = at,
            newest => self.items[newest].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: usize) {
        let Item { newer, older, .. } = self.items[at];
        match newer {
            NONE => self.newest = older,
            newer => self.items[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.items[older].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut cache = Lru::new(30);
        (1..=3).for_each(|key| cache.put(key, 10));
        assert!(cache.look(1));
        cache.put(4, 10);
        assert_eq!([1, 2, 3, 4].map(|key| cache.look(key)), [true, false, true, true]);
        cache.remove(3);
        cache.put(5, 10);
        assert_eq!([1, 4, 5].map(|key| cache.look(key)), [true; 3]);
        cache.put(6, 31);
        assert_eq!((cache.used_bytes, cache.places.len()), (0, 0), "it does not fit");
        cache.put(7, 10);
        assert!(cache.look(7) && cache.items.len() <= 4, "places are used again");
    }

    #[test]
    fn an_oracle_counts_reads_misses_and_first_reads() {
        let path = std::env::temp_dir().join(format!("larder-oracle-{}", std::process::id()));
        // Two rounds over forty keys of a hundred bytes.
        let line = |key: usize| format!("1,key{key:02},5,95,1,get,0\n");
        std::fs::write(&path, (0..80).map(|at| line(at % 40)).collect::<String>()).unwrap();
        let of = |bytes, requests| {
            let mut reader = Reader::open(&path, None).unwrap();
            let oracle = oracle(&mut reader, bytes, requests).unwrap().unwrap();
            (oracle.reads, oracle.misses, oracle.first_reads)
        };
        assert_eq!(of(4_000, u64::MAX), (80, 40, 40));
        // The last twenty of each 32 that are sent together stay, and are read in the next group or not at all.
        assert_eq!(of(2_000, u64::MAX), (80, 60, 40));
        assert_eq!(of(4_000, 50), (50, 40, 40));
        std::fs::remove_file(path).unwrap();
    }
}
