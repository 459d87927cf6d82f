//! YCSB's six mixes: records of ten fields of 100 bytes, which are one value here, under keys of 23 bytes, by Zipf's law with
//! 0.99.
//!
//! | preset | asks |
//! |---|---|
//! | `ycsb-a` | half reads, half updates |
//! | `ycsb-b` | 95 % reads, 5 % updates |
//! | `ycsb-c` | reads |
//! | `ycsb-d` | 95 % reads of what was inserted recently, 5 % inserts |
//! | `ycsb-e` | 95 % scans of keys in their order, 5 % inserts: in RESP alone, by a sorted set, see `scan` |
//! | `ycsb-f` | half reads, half read-modify-writes: here with a token, so that none is lost |

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use larder_protocol::client::Protocol;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::{Options, Ran, RequestArgs, shared_cores};
use crate::books::{Books, check_back, evicted_since};
use crate::connection::Check;
use crate::contender::Target;
use crate::control::Control;
use crate::error::Error;
use crate::experiment::Checks;
use crate::generator::gap;
use crate::keys::{Keyspace, Prefix};
use crate::progress::Progress;
use crate::replay::{DUE_TOGETHER, Replay, Replayed, Source};
use crate::results::number;
use crate::sizes::Sizes;
use crate::trace::{Kind, Op};
use crate::workload::{Mix, Verb};

/// Exponent of popularity.
pub(super) const ZIPF: f64 = 0.99;
/// Bytes of a key and of a record.
const KEY_BYTES: u16 = 23;
const RECORD_BYTES: usize = 1000;
/// Share of inserts in `ycsb-d`.
const INSERTS: f64 = 0.05;
/// Records that are stored beforehand are sent in groups of this size.
const FILL_TOGETHER: usize = 64;
/// The progress of storing them is shown in groups of this size.
const FILL_SHOWN: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    /// half reads, half updates
    YcsbA,
    /// 95 % reads, 5 % updates
    YcsbB,
    /// reads
    YcsbC,
    /// 95 % reads of what was inserted recently, 5 % inserts
    YcsbD,
    /// 95 % scans of 1 to 100 records in the order of their keys, 5 % inserts: in Redis's protocol alone
    YcsbE,
    /// half reads, half read-modify-writes
    YcsbF,
}

impl Preset {
    /// The mix in the words of the options; for mixes that need more, the keys.
    pub(super) fn request(self) -> RequestArgs {
        let verb = match self {
            Preset::YcsbA => Mix::of(&[(Verb::Hit, 1), (Verb::Set, 1)]),
            Preset::YcsbB => Mix::of(&[(Verb::Hit, 95), (Verb::Set, 5)]),
            Preset::YcsbC | Preset::YcsbD | Preset::YcsbE => Mix::from(Verb::Hit),
            Preset::YcsbF => Mix::of(&[(Verb::Hit, 1), (Verb::Cas, 1)]),
        };
        let value_bytes = Sizes::Fixed(RECORD_BYTES);
        RequestArgs { verb, key_bytes: KEY_BYTES, value_bytes, keys_per_request: 1 }
    }
}

/// Reads of recently inserted records, and inserts.
#[derive(Debug)]
struct Latest {
    keyspace: Keyspace,
    /// Number of the next key that is inserted.
    next: u32,
    /// The client only inserts, up to this number, and shows it.
    fills: Option<(u32, Arc<Progress>)>,
    zipf: Zipf<f64>,
    rng: StdRng,
    /// Requests a second, if a clock decides.
    per_s: Option<f64>,
    even: bool,
    /// When the last request was due.
    due: Duration,
}

impl Latest {
    fn new(args: &Options, keyspace: Keyspace) -> Latest {
        Latest {
            keyspace,
            next: 0,
            fills: None,
            zipf: Zipf::new(f64::from(keyspace.count), ZIPF)
                .expect("there is a key, and the exponent is positive"),
            rng: StdRng::seed_from_u64(args.seed),
            per_s: args.rate,
            even: args.even,
            due: Duration::ZERO,
        }
    }

    fn op(&self, kind: Kind, id: u32) -> Op {
        let mut key = Vec::new();
        self.keyspace.write(&mut key, Prefix::Present, id);
        let value_bytes = Some(self.keyspace.value_bytes as u32);
        Op { at_us: None, kind, key, value_bytes, ttl_s: 0, partly: false }
    }
}

impl Source for Latest {
    fn next_op(&mut self) -> Result<Option<(Op, Option<Duration>)>, Error> {
        if let Some((end, progress)) = &self.fills {
            if self.next >= *end {
                return Ok(None);
            }
            if self.next.is_multiple_of(FILL_SHOWN) {
                progress.advance(u64::from(FILL_SHOWN.min(end - self.next)));
            }
        }
        let inserts = self.fills.is_some() || self.rng.random::<f64>() < INSERTS;
        let op = if inserts {
            self.next += 1;
            self.op(Kind::Write, self.next - 1)
        } else {
            let back = (self.zipf.sample(&mut self.rng) as u32).clamp(1, self.next);
            self.op(Kind::Read, self.next - back)
        };
        let due = self.per_s.filter(|_| self.fills.is_none()).map(|per_s| {
            self.due += gap(per_s, self.even, &mut self.rng);
            self.due
        });
        Ok(Some((op, due)))
    }
}

/// `ycsb-d`: stores the records, and runs the load.
pub(super) fn latest(
    args: &Options,
    control: &Control,
    protocol: Protocol,
    cores: &[Option<usize>],
) -> Result<Ran, Error> {
    let workload = args.workload(protocol)?;
    let keyspace = workload.keyspace;
    let Target { name, endpoint, .. } = &args.target;
    eprintln!("{name} {}; it is written to", control.claim(args.flush_target)?);
    let filling = Replay {
        protocol,
        connections: workload.connections,
        pipeline: FILL_TOGETHER,
        requests: keyspace.count.into(),
        time: args.time().max(Duration::from_secs(3600)),
        fills: false,
        verify: false,
        by_second: false,
        shares_cores: !shared_cores(control, &args.placement(cores)).is_empty(),
        sizes: Sizes::Fixed(RECORD_BYTES),
    };
    let progress = Arc::new(Progress::new(keyspace.count.into()));
    progress.say("storing records");
    let source = Latest { fills: Some((keyspace.count, progress)), ..Latest::new(args, keyspace) };
    let filled = filling.run(endpoint, source, cores)?.tally;
    if filled.stored != u64::from(keyspace.count) {
        let why = filled.first_refused.unwrap_or_else(|| format!("{} stored", filled.stored));
        return Err(Error::NotValid(format!("fill: of {} records: {why}", keyspace.count)));
    }
    let books = Books::open(control).ok().filter(Books::counts);
    let replay = Replay {
        pipeline: if args.rate.is_some() { DUE_TOGETHER } else { workload.pipeline },
        requests: args.requests.unwrap_or(u64::MAX),
        time: args.time(),
        verify: Check::from(args.check) == Check::Verify,
        by_second: true,
        ..filling
    };
    let source = Latest { next: keyspace.count, ..Latest::new(args, keyspace) };
    let (Replayed { tally, wrote, .. }, started, server) =
        args.watched(|| replay.run(endpoint, source, cores))?;
    let back = replay.read_back(endpoint, wrote, cores)?;
    let mut checks = Checks::default();
    check_back(&mut checks, name, &back, evicted_since(books.as_ref())?);
    let mut remarks = Vec::new();
    if tally.misses > 0 {
        remarks.push(format!("{} reads found no record: the server has forgotten some", tally.misses));
    }
    let settings = [
        ("preset", "95 % reads of what was inserted recently, 5 % inserts".to_owned()),
        ("protocol", format!("{protocol:?}")),
        ("records beforehand", keyspace.count.to_string()),
        ("bytes of values", RECORD_BYTES.to_string()),
        ("seconds at most", args.time().as_secs_f64().to_string()),
    ];
    Ok(Ran {
        tally,
        others: back.clone(),
        back,
        placement: args.placement(cores),
        started,
        server,
        books,
        checks,
        pipeline: if args.rate.is_some() { 1 } else { replay.pipeline },
        offered: args.rate.map(|rate| format!("{} requests a second that were offered", number::text(rate))),
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        remarks,
        ceiling: None,
    })
}
