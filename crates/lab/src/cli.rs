//! `larder lab …`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;

use crate::endpoint::Unusable;
use crate::error::Error;
use crate::load::{self, RequestArgs};
use crate::null::{Answers, Null};
use crate::results::{self, Run};
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
    /// Larder's forecast of the misses with other memory limits, compared with servers that have these limits
    Forecast(Box<forecast::Options>),
    /// What libmemcached's options cost, and what they hide
    Matrix(Box<matrix::Options>),
    /// What client libraries add to a request, and what they do when the server does not answer
    Clients(Box<clients::Options>),
    /// Compares two runs of one experiment, written by --json
    Compare(CompareArgs),
    /// Larder's own client as a driver, which gets its jobs on stdin
    #[command(hide = true)]
    Drive,
    /// Ends the servers of a lab that was killed
    #[command(hide = true)]
    Keep,
    /// The server's figures and their targets
    #[command(hide = true)]
    BenchServer(bench::Options),
    /// What TLS and its handshakes cost, beside other servers
    #[command(hide = true)]
    BenchTls(bench::tls::Options),
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
    // No text that repeats an argument may have the password in it.
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
            return if error.use_stderr() { ExitCode::from(exit_code(&error)) } else { ExitCode::SUCCESS };
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
        Sub::BenchTls(options) => bench::tls::tls(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "larder lab: {}", without_logins(&error.to_string()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The exit code of a command line that cannot be carried out. A target whose host cannot be resolved counts as a server that
/// cannot be reached.
fn exit_code(error: &clap::Error) -> u8 {
    let why = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Unusable>());
    if matches!(why, Some(Unusable::Lookup(_))) { exit::NO_ANSWER } else { exit::USAGE }
}

fn serve_null(args: &NullArgs) -> Result<(), Error> {
    let workload = args.request.workload(args.protocol.into(), 1)?;
    let Some(answers) = Answers::of(&workload) else {
        return Err(Error::Usage("a null server knows values of one size".to_owned()));
    };
    let address = Address::Tcp(args.listen);
    let run = || -> io::Result<()> {
        let null = Null::bind(&address, answers)?;
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
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::contender::parse_peer;
    use crate::{doctor, top};

    /// The documents: all below docs/ and spec/, and those in the root folder.
    fn documents() -> Vec<(String, String)> {
        fn below(folder: &Path, all: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).expect("the documents are there") {
                let path = entry.expect("the documents are there").path();
                match path.is_dir() {
                    true => below(&path, all),
                    false => all.push(path),
                }
            }
        }
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut all: Vec<PathBuf> =
            ["README.md", "ARCHITECTURE.md", "SECURITY.md"].map(|name| root.join(name)).into();
        ["docs", "spec"].iter().for_each(|folder| below(&root.join(folder), &mut all));
        all.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
        let read = |path: &PathBuf| fs::read_to_string(path).expect("documents are text");
        all.iter().map(|path| (path.display().to_string(), read(path))).collect()
    }

    /// The complete commands of a document: lines of its code, and texts between two `.
    fn commands(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        for (at, part) in text.split("```").enumerate() {
            if at % 2 == 1 {
                let lines = part.replace("\\\n", " ");
                let commands = lines.lines().flat_map(|line| {
                    let line = line.split(" # ").next().unwrap_or_default();
                    line.split("&&").map(|command| command.trim().trim_start_matches("$ ").to_owned())
                });
                all.extend(commands);
            } else {
                // A command may continue on the next line.
                let code = part.split('`').enumerate().filter(|(at, _)| at % 2 == 1);
                all.extend(code.map(|(_, code)| code.replace('\n', " ")));
            }
        }
        let is_ours = |command: &str| {
            let mut words = command.split_whitespace();
            words.next() == Some("larder")
                && words.next().is_some_and(|word| matches!(word, "lab" | "top" | "doctor"))
        };
        all.retain(|command| is_ours(command) && command != "larder lab" && !command.contains('…'));
        all
    }

    /// The words of a command, as a shell reads them; no document uses more than quotation marks.
    fn words(command: &str) -> Vec<String> {
        let (mut all, mut word, mut mark) = (Vec::new(), None::<String>, None);
        for letter in command.chars() {
            match (letter, mark) {
                (_, Some(end)) if letter == end => mark = None,
                (_, Some(_)) => word.get_or_insert_default().push(letter),
                ('"' | '\'', None) => {
                    mark = Some(letter);
                    word.get_or_insert_default();
                }
                (' ', None) => all.extend(word.take()),
                (_, None) => word.get_or_insert_default().push(letter),
            }
        }
        all.into_iter().chain(word).collect()
    }

    /// Replaces the names of newest peers that were not fetched on this machine: the lab would refuse them.
    fn fetched(word: &str) -> String {
        let other = |name: &str| match parse_peer(name) {
            Err(why) if why.contains("cargo xtask peers") => name.trim_end_matches("-new").to_owned(),
            _ => name.to_owned(),
        };
        word.split(',').map(other).collect::<Vec<_>>().join(",")
    }

    /// The error in a command, if there is one. A name alone stands for a command that may need more arguments.
    fn complaint(command: &str) -> Option<String> {
        let mut words: Vec<String> = words(command).iter().skip(1).map(|word| fetched(word)).collect();
        if matches!(words.as_slice(), [_, name] if ["load", "compare"].contains(&name.as_str())) {
            words.push("--help".to_owned());
        }
        let told = |error: clap::Error| error.use_stderr().then(|| error.to_string());
        match words[0].as_str() {
            "top" => top::Options::try_parse_from(words).err().and_then(told),
            "doctor" => doctor::Options::try_parse_from(words).err().and_then(told),
            _ => match Cli::try_parse_from(words) {
                Err(error) => told(error),
                // clap does not check how options fit together.
                Ok(Cli { command: Sub::Load(options) }) => {
                    options.check_options().err().map(|error| error.to_string())
                }
                Ok(_) => None,
            },
        }
    }

    #[test]
    fn every_command_of_the_documents_is_understood() {
        let mut count = 0;
        for (path, text) in documents() {
            for command in commands(&text) {
                count += 1;
                let complaint = complaint(&command);
                assert!(complaint.is_none(), "{path}: {command}\n{}", complaint.unwrap_or_default());
            }
        }
        assert!(count >= 30, "{count} commands were found");
    }

    #[test]
    fn commands_are_found_in_code_and_between_marks_and_one_that_is_wrong_is_told() {
        let text = "Say `larder lab cas\n--quick` or `larder lab shift --preset … --rounds 1`, `larder lab`, `larder top`:\n```\n\
                    $ larder lab memory --json a   # larder lab what\nlarder lab load --command 'GET {key}' \\\n  --expect \"a b\" \
                    && larder lab compare a b\n```\nlarder lab what\n";
        let found = commands(text);
        let expected = [
            "larder lab cas --quick",
            "larder top",
            "larder lab memory --json a",
            "larder lab load --command 'GET {key}'    --expect \"a b\"",
            "larder lab compare a b",
        ];
        assert_eq!(found, expected);
        let load = ["larder", "lab", "load", "--command", "GET {key}", "--expect", "a b"];
        assert_eq!(words(&found[3]), load);
        let others = ["larder lab load", "larder top --once --show keys", "larder doctor --json"];
        for right in others.into_iter().chain([found[0].as_str()]) {
            assert_eq!(complaint(right), None, "{right}");
        }
        for wrong in [
            "larder lab cas --quickly",
            "larder lab what",
            "larder lab cas --peer nobody",
            // Each option is known, and the two contradict each other.
            "larder lab load --target a=redis://127.0.0.1:1 --preset ycsb-e --warm-up 1",
            "larder top --show nothing",
            "larder doctor --once",
        ] {
            assert!(complaint(wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
