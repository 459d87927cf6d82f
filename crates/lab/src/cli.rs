//! `larder lab …`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use larder_eventloop::cpu;
use larder_eventloop::socket::Address;

use crate::connection::Check;
use crate::contender::Target;
use crate::control::Family;
use crate::error::Error;
use crate::generator::{self, Arrivals, Load, Stop};
use crate::hitratio;
use crate::keys::{Choice, KEY_BYTES_MIN, Keyspace};
use crate::memory;
use crate::null::{Canned, Null};
use crate::numbers;
use crate::results::histogram::QUANTILES;
use crate::results::{self, Run};
use crate::shift;
use crate::sizes::Sizes;
use crate::usage::Usage;
use crate::wire::Protocol;
use crate::workload::{Mix, Verb, Workload};
use crate::{bench, cas, latency, servers};

/// Measures caches.
#[derive(Debug, Parser)]
#[command(name = "larder lab", about = "Measures caches, and says only what it can prove")]
struct Cli {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Optimistic locking under contention: goodput, retries, lost updates
    Cas(Box<cas::Options>),
    /// Throughput and cost of a request, by connections, pipeline and load
    Servers(Box<servers::Options>),
    /// Latency against load, counted from when a request was due
    Latency(Box<latency::Options>),
    /// Runs one kind of load against a running server
    Load(LoadArgs),
    /// A server of fixed replies: what any server costs at least
    Null(NullArgs),
    /// What a key costs above key and value, and what stays behind
    Memory(memory::Options),
    /// What happens to the hit ratio when the sizes of values change
    Shift(shift::Options),
    /// How many requests miss, on streams like those of real caches, in the same memory
    Hitratio(hitratio::Options),
    /// Compares two runs of one experiment, written by --json
    Compare(CompareArgs),
    /// The server's figures and their targets
    #[command(hide = true)]
    BenchServer(bench::Options),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolName {
    /// memcached's get and set
    Classic,
    /// memcached's mg and ms
    Meta,
    /// Redis
    Resp,
}

impl From<ProtocolName> for Protocol {
    fn from(name: ProtocolName) -> Protocol {
        match name {
            ProtocolName::Classic => Protocol::Classic,
            ProtocolName::Meta => Protocol::Meta,
            ProtocolName::Resp => Protocol::Resp,
        }
    }
}

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

#[derive(Debug, Args)]
struct RequestArgs {
    /// What requests do: hit, miss, get, set, delete, incr, cas, or several with weights: hit:9,set:1
    #[arg(long, value_name = "MIX", default_value = "hit", value_parser = Mix::parse)]
    verb: Mix,
    /// Bytes of a key
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(KEY_BYTES_MIN as i64..=250))]
    key_bytes: u16,
    /// Bytes of values: 100, evenly from 50-150, or by weight 100:3,1000:1
    #[arg(long, value_name = "SIZES", default_value = "32", value_parser = parse_sizes)]
    value_bytes: Sizes,
    /// Keys that one request reads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    keys_per_request: u32,
}

/// The largest value that the generator makes.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// Reads sizes of values, for clap.
fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let number = |text: &str| {
        let bytes = text.parse::<usize>().map_err(|error| format!("{text:?}: {error}"))?;
        if bytes <= VALUE_BYTES_MAX { Ok(bytes) } else { Err(format!("more than {VALUE_BYTES_MAX} bytes")) }
    };
    if let Some((least, most)) = text.split_once('-') {
        let (least, most) = (number(least)?, number(most)?);
        return if least <= most {
            Ok(Sizes::Spread(least, most))
        } else {
            Err("from the larger to the less".into())
        };
    }
    if !text.contains([',', ':']) {
        return Ok(Sizes::Fixed(number(text)?));
    }
    let part = |part: &str| {
        let (bytes, weight) = part.split_once(':').unwrap_or((part, "1"));
        let weight = weight.parse::<f64>().map_err(|error| format!("{weight:?}: {error}"))?;
        if weight.is_finite() && weight > 0.0 {
            Ok((number(bytes)?, weight))
        } else {
            Err(format!("a weight of {weight}"))
        }
    };
    Ok(Sizes::Weighted(text.split(',').map(part).collect::<Result<_, String>>()?))
}

impl RequestArgs {
    fn workload(&self, protocol: Protocol, keys: u32) -> Result<Workload, Error> {
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

#[derive(Debug, Args)]
struct NullArgs {
    /// Address to listen on; port 0 takes a free one, which is printed
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Protocol of the replies
    #[arg(long, value_enum, default_value = "classic")]
    protocol: ProtocolName,
    #[command(flatten)]
    request: RequestArgs,
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// name=memcached://host:port or name=redis://host:port
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
    #[arg(long, conflicts_with = "zipf")]
    one_key: bool,
    /// Choose keys by Zipf's law with this exponent
    #[arg(long, value_name = "ALPHA", value_parser = numbers::not_negative)]
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
    /// The server's process id: prints its CPU time per request
    #[arg(long)]
    pid: Option<u32>,
    /// Cores to pin the generator's threads to, one thread each [default: one thread, last core]
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Seed of key choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The first run
    first: PathBuf,
    /// The second run
    second: PathBuf,
}

/// Runs `larder lab` with `args`, the words behind `lab`.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("larder lab")).chain(args);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    let result = match &cli.command {
        Sub::Cas(options) => cas::run(options),
        Sub::Servers(options) => servers::run(options),
        Sub::Latency(options) => latency::run(options),
        Sub::Load(args) => load(args),
        Sub::Null(args) => serve_null(args),
        Sub::Memory(options) => memory::run(options),
        Sub::Shift(options) => shift::run(options),
        Sub::Hitratio(options) => hitratio::run(options),
        Sub::Compare(args) => compare(args),
        Sub::BenchServer(options) => bench::server(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_null(args: &NullArgs) -> Result<(), Error> {
    let workload = args.request.workload(args.protocol.into(), 1)?;
    let only = workload.mix.only();
    if workload.sizes.is_some() || !matches!(only, Some(Verb::Hit | Verb::Miss | Verb::Set)) {
        let why = "a null server knows hit, miss or set, and values of one size";
        return Err(Error::NotValid(why.to_owned()));
    }
    let address = Address::Tcp(args.listen);
    let run = || -> io::Result<()> {
        let null = Null::bind(&address, Canned::of(&workload))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}", null.address()?)?;
        out.flush()?;
        drop(out);
        match null.serve()? {}
    };
    run().map_err(|error| Error::System("the null server", error))
}

fn compare(args: &CompareArgs) -> Result<(), Error> {
    let (first, second) = (Run::read_json(&args.first)?, Run::read_json(&args.second)?);
    print!("{}", results::compare::text(&first, &second));
    Ok(())
}

fn load(args: &LoadArgs) -> Result<(), Error> {
    let protocol = match args.target.family {
        Family::Memcached if args.meta => Protocol::Meta,
        Family::Memcached => Protocol::Classic,
        Family::Redis => Protocol::Resp,
    };
    let cores: Vec<Option<usize>> = if args.cores.is_empty() {
        vec![cpu::cores().ok().and_then(|cores| cores.last().copied())]
    } else {
        args.cores.iter().map(|&core| Some(core)).collect()
    };
    let workload = Workload {
        choice: match args.zipf {
            _ if args.one_key => Choice::One,
            Some(alpha) => Choice::Zipf(alpha),
            None => Choice::Uniform,
        },
        connections: args.connections as usize,
        pipeline: args.pipeline as usize,
        ttl_s: args.ttl,
        ..args.request.workload(protocol, args.keys)?
    };
    let address = &args.target.address;
    if !args.no_fill && !matches!(workload.mix.only(), Some(Verb::Miss | Verb::Set)) {
        generator::prepare(address, &workload, &cores)?;
    }
    let mut load = Load::connect(address, &workload, workload.scripts(args.seed), &cores)?;
    load.churn(args.churn);
    let check = match Check::from(args.check) {
        Check::Length if args.rate.is_some() || !workload.has_known_replies() => Check::Parse,
        check => check,
    };
    let time = Duration::from_secs_f64(args.seconds);
    let before = args.pid.map(Usage::of).transpose()?;
    let tally = match args.rate {
        None => load.run(check, Stop::After(time))?,
        Some(per_s) => load.run_open(check, Arrivals { per_s, poisson: true, seed: args.seed }, time)?,
    };
    let after = args.pid.map(Usage::of).transpose()?;

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
        100.0 * tally.generator_load(load.threads())
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
    for (what, latencies) in shown {
        print!("{what}, µs:");
        for (name, quantile) in QUANTILES {
            print!("  {name} {:.0}", latencies.quantile_us(quantile));
        }
        println!();
        if latencies.over_range > 0 {
            println!("{} took more than 60 s", latencies.over_range);
        }
    }
    match tally.first_wrong {
        None => Ok(()),
        Some(first) => Err(Error::NotValid(format!("{} wrong replies, the first: {first}", tally.wrong))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
