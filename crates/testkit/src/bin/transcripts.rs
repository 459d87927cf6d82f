//! Runs the transcripts against a server that is not Larder, to check what they expect.
//!
//! `transcripts [--against host:port | --spawn path/to/memcached | --spawn path/to/redis-server |
//! --spawn path/to/valkey-server]
//! [part of a file name or title]…`
//!
//! `--against` runs cases without options on a running server and flushes it in between; `--spawn`
//! starts the program once per case. Cases that are known to differ from the server's version are
//! counted, not run; so are cases that need the clock to move further than one wants to wait.

use larder_testkit::process::{Program, Server};
use larder_testkit::redis::known::names;
use larder_testkit::runner::{Split, run};
use larder_testkit::socket::{Clock, Sockets};
use larder_testkit::transcript::{Case, load};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;

const WAIT_SECONDS_MAX: u64 = 3;
/// How often a peer is asked the same before it counts as different.
const PEER_TRIES: usize = 3;

enum Target {
    Running(SocketAddr),
    Spawned(Program),
}

fn main() -> ExitCode {
    larder_testkit::exit(check())
}

fn check() -> Result<bool, String> {
    let mut target = Target::Spawned(Program::Larder);
    let mut filters = Vec::new();
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
            _ => filters.push(argument),
        }
    }
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec"))?;
    let version = target.version()?;
    println!("{version}");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in cases {
        if !filters.is_empty() && !filters.iter().any(|filter| case.name().contains(filter)) {
            continue;
        }
        if target.skips(&case, &version) {
            skipped += 1;
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
    println!("{passed} passed, {failed} failed, {skipped} skipped");
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

    fn skips(&self, case: &Case, version: &str) -> bool {
        if self.is_larder() {
            return false;
        }
        let differs = case
            .differs
            .iter()
            .filter_map(|why| why.split_once(' '))
            .any(|(who, _)| who == "memcached" || version.contains(who));
        if case.resp != matches!(self, Target::Spawned(Program::Redis(_))) {
            return true;
        }
        let running = matches!(self, Target::Running(_)) && (!case.options.is_empty() || case.process_only);
        differs || running || case.clock_seconds() > WAIT_SECONDS_MAX
    }

    /// A peer may need several tries: its threads look after items when they come to it.
    fn run_some_times(&self, case: &Case, split: Split) -> Result<(), String> {
        let tries = if self.is_larder() { 1 } else { PEER_TRIES };
        let mut done = self.run(case, split);
        for _ in 1..tries {
            if done.is_ok() {
                break;
            }
            done = self.run(case, split);
        }
        done
    }

    fn run(&self, case: &Case, split: Split) -> Result<(), String> {
        match self {
            Target::Running(address) => {
                ask(*address, "flush_all")?;
                run(case, &mut Sockets::new(*address, Clock::Wait), split)
            }
            Target::Spawned(program) if case.refused_start => {
                let (status, output) = Server::refused(program, &case.options)?;
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
                let server = Server::start_program(program, &options)?;
                run(case, &mut Sockets::new(server.address(), clock), split)
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
