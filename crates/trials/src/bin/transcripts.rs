//! Runs the transcripts against a server that is not Larder, to check what they expect.
//!
//! `transcripts [--against host:port | --spawn path/to/memcached | --spawn path/to/redis-server |
//! --spawn path/to/valkey-server]
//! [--show] [part of a file name or title]…`
//!
//! `--against` runs cases without options on a running server and flushes it in between; `--spawn` starts the
//! program once per case. Cases that the server's version is known to fail are run, too. They must fail; and
//! a case that says what happens in place of a step must see that happen. `--show` prints what came. Cases
//! that need the clock to move further than one wants to wait are counted, not run.

use larder_testkit::process::{Program, Server};
use larder_testkit::redis::known::names;
use larder_testkit::runner::{Split, run_beside};
use larder_testkit::socket::{Clock, Sockets};
use larder_testkit::transcript::{Case, Differs, NO_START, load};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const WAIT_SECONDS_MAX: u64 = 3;
/// Most tries of a case on a peer before the peer counts as different.
const PEER_TRIES: usize = 3;
/// Longest time for a reply of a server that is known to differ.
const SILENCE: Duration = Duration::from_secs(2);

/// The result of a case on a server that is known to differ.
#[derive(PartialEq)]
enum Shown {
    /// It differs as the case says.
    Differs,
    /// It behaves as the case says of other servers.
    Agrees,
    /// It does something else.
    Other(String),
}

enum Target {
    Running(SocketAddr),
    Spawned(Program),
}

fn main() -> ExitCode {
    larder_testkit::exit(check())
}

fn check() -> Result<bool, String> {
    let mut target = Target::Spawned(Program::Larder);
    let (mut filters, mut show) = (Vec::new(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--against" => {
                let address = arguments.next().ok_or("--against wants host:port")?;
                let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
                target = Target::Running(found.next().ok_or(format!("{address}: no address"))?);
            }
            "--spawn" => {
                let path = arguments.next().ok_or("--spawn wants a path")?;
                let redis = path.ends_with("redis-server") || path.ends_with("valkey-server");
                let program = if redis { Program::Redis } else { Program::Memcached };
                target = Target::Spawned(program(path.into()));
            }
            "--show" => show = true,
            _ => filters.push(argument),
        }
    }
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec"))?;
    let version = target.version()?;
    println!("{version}");
    let (mut passed, mut failed, mut differ, mut skipped) = (0, 0, 0, 0);
    for case in cases {
        if !filters.is_empty() && !filters.iter().any(|filter| case.name().contains(filter)) {
            continue;
        }
        if target.skips(&case) {
            skipped += 1;
            continue;
        }
        let known: Vec<&Differs> =
            case.differs.iter().filter(|known| target.is(&known.who, &version)).collect();
        if !known.is_empty() {
            match target.run_differing(&case, &known, show) {
                Ok(()) => differ += 1,
                Err(error) => {
                    failed += 1;
                    println!("FAILED {error}");
                }
            }
            continue;
        }
        for &split in case.splits() {
            match target.run_some_times(&case, split) {
                Ok(()) => passed += 1,
                Err(error) => {
                    failed += 1;
                    println!("FAILED {split:?} {error}");
                    break;
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {differ} differ as said, {skipped} skipped");
    Ok(failed == 0)
}

impl Target {
    fn version(&self) -> Result<String, String> {
        match self {
            Target::Running(address) => ask(*address, "version"),
            Target::Spawned(Program::Redis(path)) => names(path),
            Target::Spawned(program) => {
                ask(Server::start_program(program, &[] as &[&str])?.address(), "version")
            }
        }
    }

    fn is_larder(&self) -> bool {
        matches!(self, Target::Spawned(Program::Larder))
    }

    /// Whether this name in a case means the server.
    fn is(&self, who: &str, version: &str) -> bool {
        !self.is_larder() && (who == "memcached" || version.contains(who))
    }

    fn skips(&self, case: &Case) -> bool {
        if self.is_larder() {
            return false;
        }
        if case.resp != matches!(self, Target::Spawned(Program::Redis(_))) {
            return true;
        }
        let running = matches!(self, Target::Running(_)) && (!case.options.is_empty() || case.process_only);
        running || case.clock_seconds() > WAIT_SECONDS_MAX
    }

    /// Runs a case, on a peer several times: its background threads handle items at times of their own.
    fn run_some_times(&self, case: &Case, split: Split) -> Result<(), String> {
        let tries = if self.is_larder() { 1 } else { PEER_TRIES };
        let mut done = self.run(case, split, &[]);
        for _ in 1..tries {
            if done.is_ok() {
                break;
            }
            done = self.run(case, split, &[]);
        }
        done
    }

    /// Runs a case in each way of splitting its bytes. Each run must show what the case says of this server
    /// or of others; one must show the former, unless the server only may differ.
    fn run_differing(&self, case: &Case, known: &[&Differs], show: bool) -> Result<(), String> {
        let mut differs = known.iter().any(|known| known.may());
        for &split in case.splits() {
            let mut shown = self.differing(case, split, known, show);
            for _ in 1..PEER_TRIES {
                if shown == Shown::Differs {
                    break;
                }
                shown = self.differing(case, split, known, show);
            }
            match shown {
                Shown::Differs => differs = true,
                Shown::Agrees => {}
                Shown::Other(error) => return Err(format!("{split:?}: it differs otherwise: {error}")),
            }
        }
        if differs { Ok(()) } else { Err(format!("{}: it does not differ", case.name())) }
    }

    /// The result of one run.
    fn differing(&self, case: &Case, split: Split, known: &[&Differs], show: bool) -> Shown {
        let says = |who: &str| known.iter().any(|known| known.who == who);
        let said = case.steps.iter().flat_map(|step| &step.otherwise).any(|(who, _)| says(who));
        let other = match self.run(case, split, known) {
            Ok(()) if said => return Shown::Differs,
            Ok(()) => return Shown::Agrees,
            Err(error) => error,
        };
        if show {
            println!("{split:?} {other}");
        }
        if !said {
            let ends_at_start = known.iter().any(|known| known.ends_at_start());
            return if ends_at_start == other.starts_with(NO_START) {
                Shown::Differs
            } else {
                Shown::Other(other)
            };
        }
        if self.run(case, split, &[]).is_ok() { Shown::Agrees } else { Shown::Other(other) }
    }

    /// Runs a case on a server that differs as `known` says.
    fn run(&self, case: &Case, split: Split, known: &[&Differs]) -> Result<(), String> {
        let is = |who: &str| known.iter().any(|known| known.who == who);
        let within = |sockets: Sockets| if known.is_empty() { sockets } else { sockets.within(SILENCE) };
        match self {
            Target::Running(address) => {
                ask(*address, "flush_all")?;
                run_beside(case, &mut within(Sockets::new(*address, Clock::Wait)), split, &is)
            }
            Target::Spawned(program) if case.refused_start => {
                let (status, output) = Server::refused(program, &case.options)
                    .map_err(|error| format!("{}: {error}", case.name()))?;
                if status.success() {
                    Err(format!("{}: exits with success: {output}", case.name()))
                } else {
                    Ok(())
                }
            }
            Target::Spawned(program) => {
                let mut options = case.options.clone();
                let program = if case.resp && self.is_larder() { &Program::LarderResp } else { program };
                let clock = if case.resp {
                    Clock::Wait
                } else if self.is_larder() {
                    Clock::Debugtime
                } else {
                    Clock::Wait
                };
                if self.is_larder() && case.clock_seconds() > 0 {
                    options.extend(["-o".into(), "relaxed_privileges".into()]);
                }
                let server = Server::start_program(program, &options)
                    .map_err(|error| format!("{NO_START}: {}: {error}", case.name()))?;
                run_beside(case, &mut within(Sockets::new(server.address(), clock)), split, &is)
            }
        }
    }
}

fn ask(address: SocketAddr, command: &str) -> Result<String, String> {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    };
    ask().map_err(|error: std::io::Error| format!("{address}: {error}"))
}
