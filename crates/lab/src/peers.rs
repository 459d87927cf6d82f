//! Server processes: found, started on a free port, pinned, asked for version and settings, and stopped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use larder_eventloop::cpu;
use larder_eventloop::port::Port;
use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;
use larder_tls::Connector;

use crate::control::{Control, Family};
use crate::error::Error;
use crate::workload::Workload;
use crate::{keeper, owner};

/// A server that the lab can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Larder.
    Larder,
    /// memcached.
    Memcached,
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
    /// KeyDB.
    KeyDb,
    /// The newest memcached that Debian publishes, fetched.
    MemcachedNew,
    /// The newest Redis, fetched.
    RedisNew,
    /// The newest Valkey, fetched.
    ValkeyNew,
    /// Larder, asked in Redis's protocol.
    LarderRedis,
    /// The null server.
    Null,
}

/// Every server that `--peer` can name.
pub const PEERS: [Kind; 8] = [
    Kind::Memcached,
    Kind::Redis,
    Kind::Valkey,
    Kind::KeyDb,
    Kind::LarderRedis,
    Kind::MemcachedNew,
    Kind::RedisNew,
    Kind::ValkeyNew,
];

/// The folder of `cargo xtask peers`'s programs, below the target directory.
const FETCHED: &str = "peers/bin";

impl Kind {
    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Larder => "larder",
            Kind::Memcached => "memcached",
            Kind::Redis => "redis",
            Kind::Valkey => "valkey",
            Kind::KeyDb => "keydb",
            Kind::MemcachedNew => "memcached-new",
            Kind::RedisNew => "redis-new",
            Kind::ValkeyNew => "valkey-new",
            Kind::LarderRedis => "larder-redis",
            Kind::Null => "null",
        }
    }

    /// The program to start: Larder's is this very file, fetched servers' are below the target directory, others' on PATH.
    ///
    /// # Errors
    /// [`Error::Peer`] with how to get it.
    pub fn program(self) -> Result<PathBuf, Error> {
        let (program, how) = match self {
            Kind::Larder | Kind::LarderRedis | Kind::Null => {
                return env::current_exe().map_err(|error| Error::System("finding own program", error));
            }
            Kind::Memcached => ("memcached", "Debian has it: apt install memcached"),
            Kind::Redis => ("redis-server", "Debian has it: apt install redis-server"),
            Kind::Valkey => ("valkey-server", "Debian has it from 13 on: apt install valkey-server"),
            Kind::KeyDb => ("keydb-server", "Debian does not carry it: build KeyDB and put it on PATH"),
            Kind::MemcachedNew => return fetched("memcached"),
            Kind::RedisNew => return fetched("redis-server"),
            Kind::ValkeyNew => return fetched("valkey-server"),
        };
        on_path(program).ok_or_else(|| Error::Peer(format!("{program} is not on PATH; {how}")))
    }

    /// Whether `cargo xtask peers` fetches it.
    pub fn is_fetched(self) -> bool {
        matches!(self, Kind::MemcachedNew | Kind::RedisNew | Kind::ValkeyNew)
    }

    /// memcached or Redis for a server that may stand in for it; else the server itself.
    pub fn stands_for(self) -> Kind {
        match self {
            Kind::MemcachedNew => Kind::Memcached,
            Kind::RedisNew | Kind::Valkey | Kind::ValkeyNew | Kind::KeyDb => Kind::Redis,
            Kind::Larder | Kind::LarderRedis | Kind::Memcached | Kind::Redis | Kind::Null => self,
        }
    }

    /// Whether it is Larder, in one of its protocols.
    pub fn is_larder(self) -> bool {
        matches!(self, Kind::Larder | Kind::LarderRedis)
    }

    /// The protocol of this kind of load: `wanted`, except for servers that speak Redis's protocol only.
    pub fn protocol(self, wanted: Protocol) -> Protocol {
        self.family().protocol(wanted)
    }

    /// The protocol of questions about itself (a null server has none).
    pub fn family(self) -> Family {
        match self {
            Kind::Redis | Kind::Valkey | Kind::KeyDb | Kind::LarderRedis => Family::Redis,
            Kind::RedisNew | Kind::ValkeyNew => Family::Redis,
            Kind::Larder | Kind::Memcached | Kind::MemcachedNew | Kind::Null => Family::Memcached,
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A fetched program: beside the folder of the larder binary, as both are built below `target`, or below `target` of the current
/// folder.
fn fetched(name: &str) -> Result<PathBuf, Error> {
    let own = env::current_exe().ok();
    let beside = own.iter().flat_map(|path| path.ancestors().skip(2).take(2));
    let mut homes = beside.map(Path::to_owned).chain([PathBuf::from("target")]);
    let program = homes.find_map(|home| {
        let program = home.join(FETCHED).join(name);
        program.is_file().then(|| program.canonicalize()).and_then(Result::ok)
    });
    let absent =
        || format!("the newest {name} is not below target/{FETCHED}; this fetches it: cargo xtask peers");
    program.ok_or_else(|| Error::Peer(absent()))
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The kind of server.
    pub kind: Kind,
    /// Another program than [`Kind::program`].
    pub program: Option<PathBuf>,
    /// Memory limit for items (not for the null server).
    pub memory_mb: u32,
    /// Number of serving threads (Redis and Valkey: always one).
    pub threads: u32,
    /// Core its threads are pinned to.
    pub core: Option<usize>,
    /// The load that the null server answers.
    pub null: Option<Workload>,
}

/// A running server. Dropping it kills it, and every process that it has started.
#[derive(Debug)]
pub struct Server {
    /// Its kind.
    pub kind: Kind,
    /// Its control connection.
    pub control: Control,
    /// The version that it reports; empty for the null server.
    pub version: String,
    /// The settings that it reports, by its own names; none for the null server.
    pub settings: Vec<(String, String)>,
    /// The command that started it.
    pub command: String,
    child: Child,
    /// The reserved port of a server whose options name it.
    _port: Option<Port>,
    /// The process that answers, or why it is not known to be the one that was started.
    answering: Result<u32, String>,
    said: LastLines,
}

/// The last lines of a server's output.
type LastLines = Arc<Mutex<VecDeque<String>>>;

/// The connection limit of servers; loads have at most [`CLIENTS_MAX`].
const CONNECTIONS_MAX: u32 = 2048;
/// The most connections of a load on servers that the lab starts: the others are for questions.
pub const CLIENTS_MAX: u32 = 2000;
/// The longest time until a server answers.
const START: Duration = Duration::from_secs(20);
/// A shell that starts the server when it reads a line, and never if the lab has ended: by then the keeper knows the server, and
/// it is pinned.
const SHELL: &str = "/bin/sh";
const WHEN_TOLD: &str = "read -r go && exec \"$@\" </dev/null";
/// Lines of a server's output that an error shows, and characters of each.
const LAST_LINES: usize = 3;
const LINE_CHARS: usize = 200;

impl Server {
    /// Starts a server on a free port of 127.0.0.1 and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Peer`] when there is no such program, or it ends or does not answer in time.
    ///
    /// # Panics
    /// If a null server has no workload.
    pub fn start(spec: &Spec) -> Result<Server, Error> {
        Server::start_with(spec, &[])
    }

    /// As [`Server::start`], with more arguments.
    ///
    /// # Errors
    /// As [`Server::start`].
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_with(spec: &Spec, more: &[&str]) -> Result<Server, Error> {
        Server::start_by(spec, more, None)
    }

    /// As [`Server::start_with`], for a server whose port speaks TLS because of these arguments: it is asked by `tls`.
    ///
    /// # Errors
    /// As [`Server::start`].
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_by(spec: &Spec, more: &[&str], tls: Option<Connector>) -> Result<Server, Error> {
        let program = match &spec.program {
            Some(program) => program.clone(),
            None => spec.kind.program()?,
        };
        let name = spec.kind.name();
        let reserve = || Port::reserve().map_err(|error| Error::System("reserving a port", error));
        let port = if spec.kind == Kind::Null { None } else { Some(reserve()?) };
        let address = port.as_ref().map_or((Ipv4Addr::LOCALHOST, 0).into(), Port::address);
        let mut arguments = arguments(spec, address.port());
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        // Where setpriv exists, a lab that is killed takes its servers with it.
        let mut command = match on_path("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--", SHELL]);
                command
            }
            None => Command::new(SHELL),
        };
        command.args(["-c", WHEN_TOLD, name]).arg(&program);
        command.args(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| Error::Peer(format!("cannot start {}: {error}", program.display())))?;
        let (mut go, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let said = LastLines::default();
        drain(stderr, &said);
        let mut server = Server {
            kind: spec.kind,
            control: Control {
                name: name.to_owned(),
                family: spec.kind.family(),
                address: Address::Tcp(address),
                login: None,
                tls,
            },
            version: String::new(),
            settings: Vec::new(),
            command: format!("{} {}", program.display(), arguments.join(" ")),
            child,
            _port: port,
            answering: Err("it has not answered yet".to_owned()),
            said,
        };
        // If the keeper fails, the error drops the server, which ends it.
        keeper::keep(server.pid())?;
        // Before the server starts threads, which inherit both. If the priority may not be raised, all servers run without it.
        let _ = cpu::raise_priority(Some(server.pid()));
        if let Some(core) = spec.core {
            cpu::pin_tid(server.pid(), core)
                .map_err(|error| Error::Peer(format!("cannot pin {name} to core {core}: {error}")))?;
        }
        // A server that has ended by now is noticed below.
        let _ = go.as_mut().map(|go| go.write_all(b"go\n"));
        drop(go);
        if spec.kind == Kind::Null {
            server.control.address = announced(stdout)?;
        } else {
            drain(stdout, &server.said);
        }
        server.wait_until_it_answers()?;
        if let Some(core) = spec.core {
            // Threads that started before the first pin.
            for pid in owner::listeners(&server.control.address).into_iter().chain([server.pid()]) {
                for tid in cpu::threads(pid).unwrap_or_default() {
                    let _ = cpu::pin_tid(tid, core);
                }
            }
        }
        let mut reported = None;
        if spec.kind != Kind::Null {
            server.version = server.control.version()?;
            server.settings = server.control.settings()?;
            reported = server.control.process_id()?;
            if more.is_empty()
                && let Some(why) = otherwise(spec, &server.settings)
            {
                return Err(Error::Peer(format!("{name} {why}: {}", server.command)));
            }
        }
        server.answering = owner::answering(&server.control.address, Some(server.pid()), reported);
        Ok(server)
    }

    /// The process id of the started process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process whose figures are the server's, if the started process, the process id that the server reports, and the owner
    /// of the listening socket are the same.
    ///
    /// # Errors
    /// [`Error::Peer`] with the reason if they are not.
    pub fn process(&self) -> Result<u32, Error> {
        let refuse =
            |why| Error::Peer(format!("{}: its process cannot be seen from here: {why}", self.kind.name()));
        self.answering.clone().map_err(refuse)
    }

    /// As [`Server::process`], with the reason in words.
    pub(crate) fn answering(&self) -> Result<u32, String> {
        self.answering.clone()
    }

    /// The last lines of its output, for the end of a message.
    fn last_words(&self) -> String {
        // The threads that read the output may be a little behind.
        thread::sleep(Duration::from_millis(50));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().map(|line| format!("\n  it said: {line}")).collect()
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::Peer(format!(
                    "{} ended at once ({status}): {}{}",
                    self.kind.name(),
                    self.command,
                    self.last_words()
                )));
            }
            let answers = match self.kind {
                Kind::Null => self.control.connects(),
                _ => self.control.answers(),
            };
            if answers {
                return Ok(());
            }
            if started.elapsed() > START {
                let (name, command) = (self.kind.name(), &self.command);
                return Err(Error::Peer(format!("{name} does not answer: {command}{}", self.last_words())));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The group keeps its number until its leader is waited for.
        keeper::end_group(self.pid());
        keeper::forget(self.pid());
        let _ = self.child.wait();
    }
}

fn arguments(spec: &Spec, port: u16) -> Vec<String> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let Spec { memory_mb, threads, .. } = spec;
    match spec.kind {
        Kind::Larder => {
            let mut all = words(format!(
                "serve -p {port} -l 127.0.0.1 -t {threads} -m {memory_mb} -c {CONNECTIONS_MAX}"
            ));
            // An older binary for comparison may only speak memcached's protocol.
            if knows(spec, "--redis-port") {
                all.extend(words("--redis-port 0".to_owned()));
            }
            all.extend(without_monitors(spec));
            all
        }
        Kind::LarderRedis => {
            let mut all = words(format!(
                "serve -p 0 --redis-port {port} -l 127.0.0.1 -t {threads} -m {memory_mb} -c {CONNECTIONS_MAX}"
            ));
            all.extend(without_monitors(spec));
            all
        }
        Kind::Memcached | Kind::MemcachedNew => {
            let mut all = words(format!(
                "-p {port} -l 127.0.0.1 -U 0 -t {threads} -m {memory_mb} -c {CONNECTIONS_MAX}"
            ));
            // memcached refuses to run as root without an option that names a user.
            if rustix::process::geteuid().is_root() {
                all.extend(words("-u root".to_owned()));
            }
            all
        }
        Kind::Redis | Kind::Valkey | Kind::KeyDb | Kind::RedisNew | Kind::ValkeyNew => {
            let mut all = words(format!(
                "--port {port} --bind 127.0.0.1 --maxmemory {memory_mb}mb --maxmemory-policy allkeys-lru \
                 --appendonly no --daemonize no --save"
            ));
            all.push(String::new());
            if spec.kind == Kind::KeyDb {
                all.extend(words(format!("--server-threads {threads}")));
            }
            all
        }
        Kind::Null => {
            let workload = spec.null.as_ref().expect("a null server is told what to answer");
            let protocol = match workload.protocol {
                Protocol::Classic => "classic",
                Protocol::Meta => "meta",
                Protocol::Resp => "resp",
            };
            let verb = workload.mix.only().expect("a null server answers one verb").name();
            words(format!(
                "lab null --listen 127.0.0.1:{port} --protocol {protocol} --verb {verb} --key-bytes {} \
                 --value-bytes {} --keys-per-request {}",
                workload.keyspace.key_bytes, workload.keyspace.value_bytes, workload.keys_per_request
            ))
        }
    }
}

/// Settings that change figures and differ from the ones that the server was started with, in words. Settings that it does not
/// report are assumed to be right.
fn otherwise(spec: &Spec, settings: &[(String, String)]) -> Option<String> {
    if spec.kind.is_larder() || spec.kind == Kind::Null {
        return None;
    }
    let (name, have, wanted) =
        others(spec.kind.family(), (spec.memory_mb, spec.threads), settings).into_iter().next()?;
    Some(format!("has {name} at {have:?} and was asked for {wanted:?}"))
}

/// Settings that change figures and differ from those of servers that the lab starts with this much memory and this many threads:
/// the name, the value, and the value of the lab's servers. Settings that a server does not report are left out.
pub(crate) fn others(
    family: Family,
    (memory_mb, threads): (u32, u32),
    settings: &[(String, String)],
) -> Vec<(&'static str, String, String)> {
    let (bytes, threads) = ((u64::from(memory_mb) << 20).to_string(), threads.to_string());
    let usual: Vec<(&str, &str)> = match family {
        Family::Memcached => vec![("num_threads", &threads), ("maxbytes", &bytes)],
        Family::Redis => vec![
            ("maxmemory", &bytes),
            ("maxmemory-policy", "allkeys-lru"),
            ("appendonly", "no"),
            ("save", ""),
            ("io-threads", "1"),
            ("server-threads", &threads),
        ],
    };
    let differs = |(name, wanted): (&'static str, &str)| {
        let (_, have) = settings.iter().find(|(have, _)| have == name)?;
        (have != wanted).then(|| (name, have.clone(), wanted.to_owned()))
    };
    usual.into_iter().filter_map(differs).collect()
}

/// Turns the monitors' port off: many servers run beside each other.
fn without_monitors(spec: &Spec) -> Vec<String> {
    if knows(spec, "--http-port") { vec!["--http-port".to_owned(), "0".to_owned()] } else { Vec::new() }
}

/// Whether the started binary knows an option of `serve`: this one does.
fn knows(spec: &Spec, option: &str) -> bool {
    spec.program.as_ref().is_none_or(|program| helps_with(program, option))
}

/// Whether a larder binary knows an option of `serve`.
fn helps_with(program: &Path, option: &str) -> bool {
    let help = Command::new(program).args(["serve", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(option))
}

/// The address that a null server prints when it listens.
fn announced(stdout: Option<ChildStdout>) -> Result<Address, Error> {
    let mut line = String::new();
    if let Some(stdout) = stdout {
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    let address = line.trim().parse().map_err(|_| Error::Peer("the null server did not start".to_owned()))?;
    Ok(Address::Tcp(address))
}

/// Reads a server's output, so that it never waits for a reader, and keeps the last lines in `said`.
fn drain(from: Option<impl Read + Send + 'static>, said: &LastLines) {
    let Some(from) = from else { return };
    let said = said.clone();
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        // A line without an end is taken in pieces.
        while matches!(reader.by_ref().take(4096).read_until(b'\n', &mut line), Ok(1..)) {
            let text: String = String::from_utf8_lossy(&line).trim_end().chars().take(LINE_CHARS).collect();
            line.clear();
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if !text.trim().is_empty() {
                said.push_back(text);
            }
            while said.len() > LAST_LINES {
                said.pop_front();
            }
        }
    });
}

/// The machine and system a run was made on, in a line.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} × {}, Linux {}", model.map_or("unknown CPU", |(_, name)| name), kernel.trim())
}
