//! `larder lab load`: one kind of load against a server that runs already.

use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_eventloop::cpu;
use larder_protocol::client::Protocol;

use crate::books::Books;
use crate::connection::Check;
use crate::contender::Target;
use crate::error::Error;
use crate::experiment::Checks;
use crate::fill;
use crate::generator::{Arrivals, Load, Stop};
use crate::keys::{Choice, KEY_BYTES_MIN, Keyspace};
use crate::numbers;
use crate::results::histogram::QUANTILES;
use crate::sizes::Sizes;
use crate::tally::{BUSY_MAX, in_time, late_at};
use crate::usage::Usage;
use crate::workload::{Mix, Verb, Workload};

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

/// What is asked for.
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
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    keys_per_request: u32,
}

impl RequestArgs {
    /// The load of this on `keys` keys.
    pub(crate) fn workload(&self, protocol: Protocol, keys: u32) -> Result<Workload, Error> {
        if self.keys_per_request > 1 && protocol == Protocol::Meta {
            return Err(Error::NotValid("only get and MGET take more than one key per request".to_owned()));
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
    /// Use one key for so many requests in a hundred, the others alike for the rest
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
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pipeline: u32,
    /// Open loop: so many windows a second, at random times, whatever is answered [default: a closed loop]
    #[arg(long, value_name = "PER_S", value_parser = numbers::positive)]
    rate: Option<f64>,
    /// The open loop's windows at even times
    #[arg(long, requires = "rate")]
    even: bool,
    /// Seconds that a written value lives [default: for ever]
    #[arg(long, value_name = "S", default_value_t = 0)]
    ttl: u32,
    /// Replace a connection by a new one after so many windows
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "rate")]
    churn: u64,
    /// Seconds
    #[arg(long, value_name = "S", default_value = "5", value_parser = numbers::seconds)]
    seconds: f64,
    /// How closely replies are checked
    #[arg(long, value_enum, default_value = "verify")]
    check: CheckName,
    /// Do not store the keys first
    #[arg(long)]
    no_fill: bool,
    /// What the server holds may go: it is flushed first. Without this, one that holds something is refused, unless
    /// nothing is written
    #[arg(long)]
    flush_target: bool,
    /// The server's process id: prints its CPU time per request
    #[arg(long)]
    pid: Option<u32>,
    /// Cores to pin the generator's threads to, one thread each [default: one thread, last core]
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Percent of the time that a thread of the generator may be kept from its core by others: more is no result
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = numbers::percent)]
    wait_max: f64,
    /// Seed of key choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs it and prints what it found.
///
/// # Errors
/// When the server cannot be reached or fails, a reply was wrong, or an open loop was not in time.
pub fn run(args: &Options) -> Result<(), Error> {
    let protocol = args.target.family.protocol(if args.meta { Protocol::Meta } else { Protocol::Classic });
    let cores: Vec<Option<usize>> = if args.cores.is_empty() {
        vec![cpu::cores().ok().and_then(|cores| cores.last().copied())]
    } else {
        args.cores.iter().map(|&core| Some(core)).collect()
    };
    let workload = Workload {
        choice: match (args.zipf, args.hot_key) {
            _ if args.one_key => Choice::One,
            _ if args.sequential => Choice::Sequential,
            (Some(alpha), _) => Choice::Zipf(alpha),
            (None, Some(percent)) => Choice::Hot(percent / 100.0),
            (None, None) => Choice::Uniform,
        },
        connections: args.connections as usize,
        pipeline: args.pipeline as usize,
        ttl_s: args.ttl,
        ..args.request.workload(protocol, args.keys)?
    };
    let Target { name, endpoint, .. } = &args.target;
    let control = args.target.control();
    if args.churn > 0 && endpoint.login.is_some() {
        let why = "a connection that is replaced says no password: --churn needs a server without one";
        return Err(Error::NotValid(why.to_owned()));
    }
    let fills = !args.no_fill && !matches!(workload.mix.only(), Some(Verb::Miss | Verb::Set));
    if args.flush_target || fills || !workload.mix.parts().all(|(verb, _)| verb.is_read()) {
        eprintln!("{name} {}; it is written to", control.claim(args.flush_target)?);
    }
    if fills {
        fill::prepare(endpoint, &workload, &cores)?;
    }
    let books = Books::open(&control).ok().filter(Books::counts);
    let mut load = Load::connect(endpoint, &workload, workload.scripts(args.seed), &cores)?;
    load.churn(args.churn);
    let check = match Check::from(args.check) {
        Check::Length if args.rate.is_some() || !workload.has_known_replies() => Check::Parse,
        check => check,
    };
    let time = Duration::from_secs_f64(args.seconds);
    let before = args.pid.map(Usage::of).transpose()?;
    let tally = match args.rate {
        None => load.run(check, Stop::After(time))?,
        Some(per_s) => {
            load.run_open(check, Arrivals { per_s, poisson: !args.even, seed: args.seed }, time)?
        }
    };
    let after = args.pid.map(Usage::of).transpose()?;
    let threads = load.threads();
    drop(load);
    let back = fill::read_back(endpoint, &workload, args.seed, &cores)?;

    println!("{}: {} requests in {:.2} s", args.target.name, tally.requests, tally.elapsed.as_secs_f64());
    println!("throughput        {:>12.0} requests/s", tally.rate());
    println!(
        "hits {}, misses {}, sets {}, deletes {}, additions {}, new connections {}",
        tally.hits, tally.misses, tally.stored, tally.deleted, tally.counted, tally.connects
    );
    if tally.swaps > 0 {
        println!(
            "swaps {}: {} happened, {} found the key changed, as it was",
            tally.swaps, tally.swapped, tally.conflicts
        );
    }
    if let (Some(before), Some(after)) = (before, after) {
        let per = |time: Duration| time.as_secs_f64() * 1e6 / tally.requests.max(1) as f64;
        let used = after.since(before);
        println!("server CPU        {:>12.4} µs/request (user {:.4})", per(used.run), per(used.split.user));
    }
    println!(
        "generator CPU     {:>12.4} µs/request, busy {:.0} %",
        tally.generator_cpu.as_secs_f64() * 1e6 / tally.requests.max(1) as f64,
        100.0 * tally.generator_load(threads)
    );
    let n = workload.pipeline;
    let shown = match args.rate {
        None => vec![(format!("latency of {n} request(s), closed loop"), &tally.latency)],
        Some(_) => vec![
            (format!("latency of {n} request(s), from when they were due"), &tally.latency),
            ("service time, from when they were sent".to_owned(), &tally.service),
            ("lag of the generator".to_owned(), &tally.lag),
        ],
    };
    let late = |quantile| args.rate.and_then(|_| late_at(&tally.lag, &tally.latency, quantile));
    for (what, latencies) in shown {
        print!("{what}, µs:");
        for (name, quantile) in QUANTILES {
            // What is as much the generator's as the server's is no figure of either.
            match late(quantile).filter(|_| !what.starts_with("lag")) {
                None => print!("  {name} {:.0}", latencies.quantile_us(quantile)),
                Some(_) => print!("  {name} –"),
            }
        }
        println!();
        if latencies.over_range > 0 {
            println!("{} took more than 60 s", latencies.over_range);
        }
    }
    if QUANTILES.iter().any(|&(_, quantile)| late(quantile).is_some()) {
        println!("–: the generator was late by more than a quarter of it");
    }
    if back.keys > 0 {
        println!("read back over another connection: {} values, {} keys not there", back.hits, back.misses);
    }
    let busy = tally.generator_load(threads);
    let bound = args.wait_max / 100.0;
    if tally.waited > bound {
        let share = 100.0 * tally.waited;
        return Err(Error::NotValid(format!(
            "the generator was kept from its core {share:.1} % of the time; {} % are allowed",
            args.wait_max
        )));
    }
    let mut all = tally.clone();
    all.merge(back);
    if let Some(first) = &all.first_wrong {
        return Err(Error::NotValid(format!("{} wrong replies, the first: {first}", all.wrong)));
    }
    match books {
        None => println!("the server counts no hits and misses: nothing to compare with"),
        Some(books) => {
            let mut checks = Checks::default();
            books.settle(&mut checks, name, &all)?;
            let failed: Vec<String> = checks
                .list()
                .into_iter()
                .filter(|check| !check.held)
                .map(|c| format!("{} ({})", c.claim, c.found))
                .collect();
            if !failed.is_empty() {
                return Err(Error::NotValid(failed.join("; ")));
            }
            println!("the server counted the same");
        }
    }
    match args.rate {
        Some(_) => in_time(&tally.lag, &tally.latency, busy).map_err(Error::NotValid),
        None => {
            if busy > BUSY_MAX {
                println!("the generator was the limit: the server can do more");
            }
            Ok(())
        }
    }
}
