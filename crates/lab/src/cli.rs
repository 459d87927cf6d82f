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
use crate::generator::{self, Load, Stop};
use crate::keys::{Choice, KEY_BYTES_MIN, Keyspace};
use crate::memory;
use crate::null::{Canned, Null};
use crate::results::{self, Run};
use crate::usage::Usage;
use crate::wire::Protocol;
use crate::workload::{Verb, Workload};
use crate::{bench, cas};

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
    /// Runs one kind of load against a running server (closed loop)
    Load(LoadArgs),
    /// A server of fixed replies: what any server costs at least
    Null(NullArgs),
    /// What a key costs above key and value, and what stays behind
    Memory(memory::Options),
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
enum VerbName {
    /// read keys that are there
    Hit,
    /// read keys that are not there
    Miss,
    /// write
    Set,
}

impl From<VerbName> for Verb {
    fn from(name: VerbName) -> Verb {
        match name {
            VerbName::Hit => Verb::Hit,
            VerbName::Miss => Verb::Miss,
            VerbName::Set => Verb::Set,
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
    /// What requests do
    #[arg(long, value_enum, default_value = "hit")]
    verb: VerbName,
    /// Bytes of a key
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(KEY_BYTES_MIN as i64..=250))]
    key_bytes: u16,
    /// Bytes of a value
    #[arg(long, default_value_t = 32)]
    value_bytes: u32,
    /// Keys that one request reads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    keys_per_request: u32,
}

impl RequestArgs {
    fn workload(&self, protocol: Protocol, keys: u32) -> Result<Workload, Error> {
        let verb = Verb::from(self.verb);
        if self.keys_per_request > 1 && (verb == Verb::Set || protocol == Protocol::Meta) {
            return Err(Error::NotValid("only get and MGET take more than one key per request".to_owned()));
        }
        let key_bytes = usize::from(self.key_bytes);
        Ok(Workload {
            protocol,
            verb,
            keyspace: Keyspace { first: 0, count: keys, key_bytes, value_bytes: self.value_bytes as usize },
            choice: Choice::Uniform,
            connections: 1,
            pipeline: 1,
            keys_per_request: self.keys_per_request as usize,
        })
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
    #[arg(long)]
    zipf: Option<f64>,
    /// Connections
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Requests sent together on a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pipeline: u32,
    /// Seconds
    #[arg(long, default_value_t = 5.0)]
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
        Sub::Load(args) => load(args),
        Sub::Null(args) => serve_null(args),
        Sub::Memory(options) => memory::run(options),
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
            Some(alpha) if alpha >= 0.0 => Choice::Zipf(alpha),
            Some(_) => return Err(Error::NotValid("a Zipf exponent is not negative".to_owned())),
            None => Choice::Uniform,
        },
        connections: args.connections as usize,
        pipeline: args.pipeline as usize,
        ..args.request.workload(protocol, args.keys)?
    };
    let address = &args.target.address;
    if workload.verb == Verb::Hit && !args.no_fill {
        generator::fill(address, protocol, workload.keyspace, &cores)?;
    }
    let mut load = Load::connect(address, &workload, workload.scripts(args.seed), &cores)?;
    let before = args.pid.map(Usage::of).transpose()?;
    let tally = load.run(args.check.into(), Stop::After(Duration::from_secs_f64(args.seconds.max(0.0))))?;
    let after = args.pid.map(Usage::of).transpose()?;

    println!("{}: {} requests in {:.2} s", args.target.name, tally.requests, tally.elapsed.as_secs_f64());
    println!("throughput        {:>12.0} requests/s", tally.rate());
    println!("hits/misses/sets  {} / {} / {}", tally.hits, tally.misses, tally.stored);
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
    print!("latency of {} request(s), closed loop, µs:", workload.pipeline);
    for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
        print!("  {name} {:.0}", tally.latency_us(quantile));
    }
    println!();
    if tally.over_range > 0 {
        println!("{} windows took more than 60 s", tally.over_range);
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
