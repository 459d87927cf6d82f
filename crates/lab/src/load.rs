//! `larder lab load`: one kind of load against a running server.

mod ceiling;
mod command;
mod files;
mod length;
mod pace;
mod preset;
mod replay;
mod report;
mod scan;
mod script;

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use clap::{Args, ValueEnum};
use larder_eventloop::cpu;
use larder_protocol::client::Protocol;

use crate::books::{Books, check_replies};
use crate::connection::Check;
use crate::contender::Target;
use crate::control::Control;
use crate::error::Error;
use crate::experiment::Checks;
use crate::keys::{KEY_BYTES_MIN, Keyspace};
use crate::numbers;
use crate::owner;
use crate::placement::{Placement, Threads};
use crate::progress::Progress;
use crate::results::{Ceiling, Checked, Output, of_time};
use crate::sizes::Sizes;
use crate::starvation::Waited;
use crate::tally::{Tally, in_time};
use crate::trace;
use crate::usage::Usage;
use crate::workload::{Mix, Verb, Workload};
use preset::Preset;
use report::Found;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckName {
    /// count reply bytes
    Length,
    /// parse every reply
    Parse,
    /// verify every value
    Verify,
}

impl From<CheckName> for Check {
    fn from(name: CheckName) -> Check {
        match name {
            CheckName::Length => Check::Length,
            CheckName::Parse => Check::Parse,
            CheckName::Verify => Check::Verify,
        }
    }
}

/// The options of a load.
#[derive(Clone, Debug, Args)]
pub(crate) struct RequestArgs {
    /// What requests do: hit, miss, get, set, delete, incr, cas, or several with weights: hit:9,set:1
    #[arg(long, value_name = "MIX", default_value = "hit", value_parser = Mix::parse)]
    verb: Mix,
    /// Bytes of a key
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(KEY_BYTES_MIN as i64..=250))]
    key_bytes: u16,
    /// Bytes of values: 100, evenly from 50-150, by weight 100:3,1000:1, or a histogram 1-99:8,100-999:2
    #[arg(long, value_name = "SIZES", default_value = "32", value_parser = Sizes::parse)]
    value_bytes: Sizes,
    /// Keys that one request reads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    keys_per_request: u32,
}

impl RequestArgs {
    /// The load of these options on `keys` keys.
    pub(crate) fn workload(&self, protocol: Protocol, keys: u32) -> Result<Workload, Error> {
        if self.keys_per_request > 1 && protocol == Protocol::Meta {
            return Err(Error::Usage("only get and MGET take more than one key per request".to_owned()));
        }
        let (value_bytes, sizes) = match &self.value_bytes {
            Sizes::Fixed(bytes) => (*bytes, None),
            sizes => (sizes.mean() as usize, Some(sizes.clone())),
        };
        let key_bytes = usize::from(self.key_bytes);
        let keyspace = Keyspace { first: 0, count: keys, key_bytes, value_bytes };
        let keys_per_request = self.keys_per_request as usize;
        Ok(Workload { sizes, keys_per_request, ..Workload::new(protocol, self.verb, keyspace) })
    }
}

/// Options of `larder lab load`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// A running server: name=memcached://host:port, name=redis://host:port, name=redis+unix:///path …; with user:password@
    /// in front of the host if there is a password, which every list of processes then shows
    #[arg(long, value_parser = Target::parse)]
    target: Target,
    /// Use memcached's meta commands
    #[arg(long)]
    meta: bool,
    #[command(flatten)]
    request: RequestArgs,
    /// Number of keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Only ever use one key
    #[arg(long, group = "choice")]
    one_key: bool,
    /// Use one key for this percentage of requests, and the others equally for the rest
    #[arg(long, value_name = "PERCENT", group = "choice", value_parser = numbers::percent)]
    hot_key: Option<f64>,
    /// Use keys one after the other
    #[arg(long, group = "choice")]
    sequential: bool,
    /// Choose keys by Zipf's law with this exponent [default: all alike]
    #[arg(long, value_name = "ALPHA", group = "choice", value_parser = numbers::not_negative)]
    zipf: Option<f64>,
    /// Connections
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Requests sent together on a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pipeline: u32,
    /// Open loop: this many windows a second, at random times, whatever is answered [default: a closed loop]
    #[arg(long, value_name = "PER_S", value_parser = numbers::positive)]
    rate: Option<f64>,
    /// The open loop's windows at even times
    #[arg(long, requires = "rate")]
    even: bool,
    /// Seconds that a written value lives [default: for ever]
    #[arg(long, value_name = "S", default_value_t = 0)]
    ttl: u32,
    /// Replace a connection by a new one after this many windows
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "rate")]
    churn: u64,
    /// Seconds [default: 5; a day with --requests or --trace]
    #[arg(long, value_name = "S", value_parser = numbers::seconds)]
    seconds: Option<f64>,
    /// End after this many requests, rounded up to whole windows, if --seconds are not over before
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Seconds of the same load before counting begins
    #[arg(long, value_name = "S", value_parser = numbers::seconds)]
    warm_up: Option<f64>,
    /// How closely replies are checked
    #[arg(long, value_enum, default_value = "verify")]
    check: CheckName,
    /// Do not store the keys first
    #[arg(long)]
    no_fill: bool,
    /// The server may be flushed: its data are deleted first. Without this, a server that holds data is refused, unless nothing
    /// is written
    #[arg(long)]
    flush_target: bool,
    /// The process id of a server on this machine, which has to listen at the address: prints its CPU time per request
    #[arg(long)]
    pid: Option<u32>,
    /// Threads of the generator, each on a core of its own: the last ones. Connections are shared out over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Cores to pin the generator's threads to, one thread each, in place of the last ones
    #[arg(long, value_delimiter = ',', conflicts_with = "threads")]
    cores: Vec<usize>,
    /// Percent of the time that a thread of the generator, or of a server on this machine, may wait for its core because of other
    /// programs: with more there is no result
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = numbers::percent)]
    wait_max: f64,
    /// Seed of key choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A mix of YCSB's, in place of --verb: records of 1000 B, Zipf 0.99
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["trace", "command"])]
    preset: Option<Preset>,
    /// Send this command, in place of --verb: HSET h:{key} f {value}; several commands are sent one after the other for each key.
    /// There are {key}, {n} for its number, {value}, and {bytes} for its length; for memcached, put \r\n in front of a value
    #[arg(long, value_name = "WORDS", conflicts_with = "trace")]
    command: Vec<String>,
    /// The reply that a --command must have, one for each: any but an error, value (a whole one, of the key), nil, a number : or
    /// :5, an array * or *3, or a literal text; several with | between [default: any]
    #[arg(long, value_name = "REPLY", requires = "command")]
    expect: Vec<String>,
    #[command(flatten)]
    trace: trace::Options,
    /// Replay the times of the trace, this many times as fast, or max: as fast as its requests are answered [default: max]
    #[arg(long, value_name = "N|max", requires = "trace", value_parser = replay::speed)]
    trace_speed: Option<replay::Speed>,
    /// What follows on a read of the trace that misses [default: fill with oracleGeneral, which has reads alone; else leave]
    #[arg(long, value_enum, requires = "trace")]
    trace_misses: Option<replay::Misses>,
    #[command(flatten)]
    output: Output,
    /// Write a line for each second: counts and latencies
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the latencies of each second as a HdrHistogram interval log
    #[arg(long, value_name = "FILE")]
    hdr_log: Option<PathBuf>,
}

impl Options {
    /// Cores of the generator's threads.
    fn cores(&self) -> Result<Vec<Option<usize>>, Error> {
        let cores = if self.cores.is_empty() {
            let all = cpu::cores().map_err(|error| Error::System("finding cores", error))?;
            let threads = usize::from(self.threads);
            let Some(first) = all.len().checked_sub(threads) else {
                let why = format!("{threads} threads take a core each, and there are {}", all.len());
                return Err(Error::Usage(why));
            };
            all[first..].to_vec()
        } else {
            self.cores.clone()
        };
        if (self.connections as usize) < cores.len() {
            let why = format!("{} threads take a connection each: --connections", cores.len());
            return Err(Error::Usage(why));
        }
        Ok(cores.into_iter().map(Some).collect())
    }

    fn threads_count(&self) -> usize {
        if self.cores.is_empty() { self.threads.into() } else { self.cores.len() }
    }

    /// Combinations of options that contradict each other, and that the command line's own rules do not find.
    pub(crate) fn check_options(&self) -> Result<(), Error> {
        let RequestArgs { verb, key_bytes, ref value_bytes, keys_per_request } = self.request;
        let usual = (verb.only(), keys_per_request) == (Some(Verb::Hit), 1);
        let (trace, command) = (self.trace.trace.is_some(), !self.command.is_empty());
        let sized = self.preset.is_some() && (key_bytes, value_bytes) != (16, &Sizes::Fixed(32));
        if (trace || command || self.preset.is_some()) && !usual || sized {
            let why = "--trace, --command and --preset say themselves what is asked";
            return Err(Error::Usage(why.to_owned()));
        }
        let drawn = self.one_key || self.sequential || self.hot_key.is_some() || self.zipf.is_some();
        let made = self.ttl > 0 || self.no_fill;
        let whole = matches!(self.preset, Some(Preset::YcsbD | Preset::YcsbE));
        if (trace || whole) && (drawn || made) || command && made {
            let why = "--ttl, --no-fill and the choice of keys are said already by --trace, ycsb-d and ycsb-e, the first two by \
                       --command";
            return Err(Error::Usage(why.to_owned()));
        }
        let alone = trace || command || whole;
        if alone && self.churn > 0 || trace && (self.rate.is_some() || self.warm_up.is_some()) {
            let why = "--churn, and with a trace --rate and --warm-up, are of a load that is made here";
            return Err(Error::Usage(why.to_owned()));
        }
        if whole && self.warm_up.is_some() {
            return Err(Error::Usage(
                "ycsb-d and ycsb-e have no warm-up: their records are stored first".to_owned(),
            ));
        }
        Ok(())
    }

    /// Checks that the named process is the server's: that it listens at the address.
    fn check_pid(&self) -> Result<(), Error> {
        let Some(pid) = self.pid else { return Ok(()) };
        let address = &self.target.endpoint.address;
        let listeners = owner::listeners(address);
        if listeners.contains(&pid) {
            return Ok(());
        }
        let others: Vec<String> = listeners.iter().map(u32::to_string).collect();
        let who = match others.is_empty() {
            true => "no process that this user can see listens".to_owned(),
            false => format!("process {} listens", others.join(", ")),
        };
        Err(Error::Usage(format!("--pid {pid} is not the server's process: {who} at {address}")))
    }

    /// How many connections each of the generator's threads has.
    fn placement(&self, cores: &[Option<usize>]) -> Vec<(Option<usize>, usize)> {
        let share = |at: usize| (self.connections as usize).saturating_sub(at).div_ceil(cores.len());
        cores.iter().enumerate().map(|(at, &core)| (core, share(at))).collect()
    }

    /// Has `run` load the server, and shows the seconds meanwhile. Returns its result, when it began, and the figures of the
    /// server's process.
    fn watched<T>(&self, run: impl FnOnce() -> Result<T, Error>) -> Result<(T, SystemTime, Watched), Error> {
        let seen = self.pid.or_else(|| answering(&self.target.control()));
        let threads = seen.and_then(|pid| Some((pid, Threads::of(pid).ok()?)));
        let before = self.pid.map(Usage::of).transpose()?;
        let (started, began) = (SystemTime::now(), Instant::now());
        let given = Progress::seconds("load", self.length(), run)?;
        let after = self.pid.map(Usage::of).transpose()?;
        // A process that has ended waits for nothing.
        let placement = threads.and_then(|(pid, threads)| threads.placement(pid).ok());
        let watched = Watched {
            usage: after.zip(before).map(|(after, before)| after.since(before)),
            waited: Placement::waited(placement.as_ref(), began.elapsed(), 0.0).server,
        };
        Ok((given, started, watched))
    }
}

/// Figures of the server's process.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Its CPU time, if the process was named.
    usage: Option<Usage>,
    /// The largest share of the time in which one of its threads waited for a core, if it is on this machine.
    waited: Option<f64>,
}

/// The results of a load, whatever its kind.
#[derive(Debug)]
struct Ran {
    /// The counts.
    tally: Tally,
    /// Counts of other requests: those of a warm-up, and those that read back.
    others: Tally,
    /// Counts of the reads back.
    back: Tally,
    /// Each thread's core, if it has one, and how many connections it has.
    placement: Vec<(Option<usize>, usize)>,
    /// When counting began.
    started: SystemTime,
    server: Watched,
    /// The server's own counts, if it has them, from before the first request.
    books: Option<Books>,
    /// Checks of the reads back.
    checks: Checks,
    /// Requests at a time.
    pipeline: usize,
    /// The offered load, in words; `None` for a closed loop.
    offered: Option<String>,
    /// The settings, by name.
    settings: Vec<(String, String)>,
    /// Further remarks.
    remarks: Vec<String>,
    /// The rate of the generator alone, where it was measured.
    ceiling: Option<Ceiling>,
}

/// Runs the load, writes the files, and prints the results.
///
/// # Errors
/// The server cannot be reached or fails, a file cannot be written, a reply was wrong, or an open loop was not in time.
pub fn run(args: &Options) -> Result<(), Error> {
    let began = Instant::now();
    let by_second = [args.csv.as_deref(), args.hdr_log.as_deref()];
    let (files, [csv, hdr_log]) = args.output.open_with(by_second)?;
    let protocol = args.target.family.protocol(if args.meta { Protocol::Meta } else { Protocol::Classic });
    let control = args.target.control();
    let cores = args.cores()?;
    args.check_options()?;
    args.check_pid()?;
    if let Some(words) = args.announcement() {
        eprintln!("{words}");
    }
    let ran = match &args.trace.trace {
        Some(path) => replay::run(args, path, &control, protocol, &cores)?,
        None if !args.command.is_empty() => command::run(args, &control, protocol, &cores)?,
        None if args.preset == Some(Preset::YcsbD) => preset::latest(args, &control, protocol, &cores)?,
        None if args.preset == Some(Preset::YcsbE) => scan::run(args, &control, protocol, &cores)?,
        None => script::run(args, &control, protocol, &cores)?,
    };

    let Ran { tally, others, back, placement, started, server, .. } = ran;
    let Ran { books, checks: kept, pipeline, offered, settings, remarks, ceiling, .. } = ran;
    let found = Found {
        args,
        version: control.version().unwrap_or_default(),
        shared: shared_cores(&control, &placement),
        counted: books.is_some(),
        checks: checks(args, (kept, server.waited), books, &tally, others, offered.is_some())?,
        connections: placement.iter().map(|(_, connections)| connections).sum(),
        pipeline,
        placement,
        offered,
        settings,
        remarks,
        ceiling,
        started,
        server: server.usage,
        tally,
        back,
    };
    let run = found.run()?;
    let valid = run.failed().next().is_none();
    let mut more = Vec::new();
    if let Some(file) = csv {
        more.push((file, files::csv(&found.tally, valid)?));
    }
    if let Some(file) = hdr_log {
        more.push((file, files::hdr_log(&found.tally, started, valid)?));
    }
    run.finish_as(began, files, more, |_| found.text())
}

/// The checks besides `kept`, for a server that waited for its core for a share of the time. `others` are requests that are not
/// counted.
fn checks(
    args: &Options,
    (kept, server): (Checks, Option<f64>),
    books: Option<Books>,
    tally: &Tally,
    others: Tally,
    is_open: bool,
) -> Result<Vec<Checked>, Error> {
    let mut checks = kept;
    let name = &args.target.name;
    let waited = Waited { server, generator: tally.waited };
    checks.add(of_time::CORES, 100.0 * waited.most() <= args.wait_max, || {
        format!("{name}: {}; {} % are allowed", waited.words(), args.wait_max)
    });
    let mut all = tally.clone();
    all.merge(others);
    match books {
        Some(books) => books.compare(&mut checks, name, &all)?,
        None => check_replies(&mut checks, name, &all),
    }
    if is_open {
        let in_time = in_time(&tally.lag, &tally.latency, tally.generator_load(args.threads_count()));
        checks.add(of_time::GENERATOR, in_time.is_ok(), || in_time.err().unwrap_or_else(|| name.clone()));
    }
    Ok(checks.list())
}

/// The process that answers, if this user can see it.
fn answering(control: &Control) -> Option<u32> {
    let reported = || control.process_id().ok().flatten();
    control.address.is_local().then(|| owner::answering(&control.address, None, reported()).ok()).flatten()
}

/// Cores of the generator that the server's threads may use, too, if this user can see that.
fn shared_cores(control: &Control, placement: &[(Option<usize>, usize)]) -> Vec<usize> {
    let Some(pid) = answering(control) else { return Vec::new() };
    let threads = cpu::threads(pid).unwrap_or_default();
    let used: Vec<usize> =
        threads.iter().filter_map(|&tid| cpu::cores_of(Some(tid)).ok()).flatten().collect();
    placement.iter().filter_map(|&(core, _)| core).filter(|core| used.contains(core)).collect()
}
