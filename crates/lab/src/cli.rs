//! `larder lab …`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;

use crate::error::Error;
use crate::load::{self, RequestArgs};
use crate::null::{Canned, Null};
use crate::results::{self, Run};
use crate::workload::Verb;
use crate::{
    bench, cas, clients, driver, endpoint, exit, forecast, hitratio, keeper, latency, matrix, memory,
    servers, shift,
};

/// Measures caches.
#[derive(Debug, Parser)]
#[command(name = "larder lab", about = "Measures caches, and marks a run that proves nothing as not valid", after_help = exit::TABLE)]
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
    Load(Box<load::Options>),
    /// A server of fixed replies: what any server costs at least
    Null(NullArgs),
    /// What a key costs above key and value, and what stays behind
    Memory(memory::Options),
    /// What happens to the hit ratio when the sizes of values change
    Shift(shift::Options),
    /// How many requests miss, on streams like those of real caches, in the same memory
    Hitratio(Box<hitratio::Options>),
    /// What Larder says another memory limit would miss, against servers that have it
    Forecast(Box<forecast::Options>),
    /// What libmemcached's options cost, and what they hide
    Matrix(Box<matrix::Options>),
    /// What client libraries add to a request, and what they do when the server does not answer
    Clients(Box<clients::Options>),
    /// Compares two runs of one experiment, written by --json
    Compare(CompareArgs),
    /// Larder's own client as a driver, which is told what to do on stdin
    #[command(hide = true)]
    Drive,
    /// Ends the servers of a lab that was killed
    #[command(hide = true)]
    Keep,
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
struct CompareArgs {
    /// The first run
    first: PathBuf,
    /// The second run
    second: PathBuf,
}

/// Runs `larder lab` with `args`, the words behind `lab`.
pub fn main(args: Vec<OsString>) -> ExitCode {
    // Whatever is said of an argument, a password in it is not.
    let arguments: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let without_logins = |text: &str| endpoint::without_logins(text, arguments.iter().cloned());
    let words = std::iter::once(OsString::from("larder lab")).chain(args);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            let said = without_logins(&error.render().to_string());
            let _ = match error.use_stderr() {
                true => io::stderr().write_all(said.as_bytes()),
                false => io::stdout().write_all(said.as_bytes()),
            };
            return if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    keeper::enable();
    let result = match &cli.command {
        Sub::Cas(options) => cas::run(options),
        Sub::Servers(options) => servers::run(options),
        Sub::Latency(options) => latency::run(options),
        Sub::Load(options) => load::run(options),
        Sub::Null(args) => serve_null(args),
        Sub::Memory(options) => memory::run(options),
        Sub::Shift(options) => shift::run(options),
        Sub::Hitratio(options) => hitratio::run(options),
        Sub::Forecast(options) => forecast::run(options),
        Sub::Matrix(options) => matrix::run(options),
        Sub::Clients(options) => clients::run(options),
        Sub::Compare(args) => compare(args),
        Sub::Drive => driver::own::serve(),
        Sub::Keep => {
            keeper::serve();
            Ok(())
        }
        Sub::BenchServer(options) => bench::server(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "larder lab: {}", without_logins(&error.to_string()));
            ExitCode::from(error.exit_code())
        }
    }
}

fn serve_null(args: &NullArgs) -> Result<(), Error> {
    let workload = args.request.workload(args.protocol.into(), 1)?;
    let only = workload.mix.only();
    if workload.sizes.is_some() || !matches!(only, Some(Verb::Hit | Verb::Miss | Verb::Set)) {
        let why = "a null server knows hit, miss or set, and values of one size";
        return Err(Error::Usage(why.to_owned()));
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
    if first.experiment != second.experiment {
        let why = format!(
            "a run of {} and one of {} have no figure in common",
            first.experiment, second.experiment
        );
        return Err(Error::Usage(why));
    }
    for (run, path) in [(&first, &args.first), (&second, &args.second)] {
        if let Some(check) = run.failed().next() {
            let why =
                format!("{} is of a run without a result: {} ({})", path.display(), check.claim, check.found);
            return Err(Error::NotValid(why));
        }
    }
    results::say(&results::compare::text(&first, &second));
    Ok(())
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
