//! Server processes: found, started on a free port, pinned, asked what they are, and stopped.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use larder_eventloop::cpu;
use larder_eventloop::socket::Address;

use crate::control::{Control, Family};
use crate::error::Error;
use crate::wire::Protocol;
use crate::workload::Workload;

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

/// Where `cargo xtask peers` puts programs, below the target directory.
const FETCHED: &str = "peers/bin";

impl Kind {
    /// How it is called in tables and on the command line.
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

    /// The program to start: a larder binary is this very file, fetched ones are below the target directory, others
    /// are looked for on PATH.
    ///
    /// # Errors
    /// [`Error::Peer`] that says how to get it.
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

    /// It is one that `cargo xtask peers` fetches.
    pub fn is_fetched(self) -> bool {
        matches!(self, Kind::MemcachedNew | Kind::RedisNew | Kind::ValkeyNew)
    }

    /// Of memcached and Redis, the one whose place it may take.
    pub fn stands_for(self) -> Kind {
        match self {
            Kind::MemcachedNew => Kind::Memcached,
            Kind::RedisNew | Kind::Valkey | Kind::ValkeyNew | Kind::KeyDb => Kind::Redis,
            Kind::Larder | Kind::LarderRedis | Kind::Memcached | Kind::Redis | Kind::Null => self,
        }
    }

    /// It is Larder, in one of its protocols.
    pub fn is_larder(self) -> bool {
        matches!(self, Kind::Larder | Kind::LarderRedis)
    }

    /// What it speaks in this kind of load: `wanted`, but for servers that speak Redis's protocol only.
    pub fn protocol(self, wanted: Protocol) -> Protocol {
        match self.family() {
            Family::Redis => Protocol::Resp,
            Family::Memcached => wanted,
        }
    }

    /// The protocol in which it is asked about itself (a null server is not asked).
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

/// A program that was fetched: beside the folder of the larder binary, as both are built below `target`, or below
/// `target` of the folder that this was started in.
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
    /// Which.
    pub kind: Kind,
    /// Another program than [`Kind::program`].
    pub program: Option<PathBuf>,
    /// Memory limit for items (not for the null server).
    pub memory_mb: u32,
    /// Threads that serve (Redis and Valkey: always one).
    pub threads: u32,
    /// Core its threads are pinned to.
    pub core: Option<usize>,
    /// What the null server answers.
    pub null: Option<Workload>,
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    /// Which it is.
    pub kind: Kind,
    /// Where it listens, and how it is asked.
    pub control: Control,
    /// What it says its version is; empty for the null server.
    pub version: String,
    /// The settings it says are in effect, by its own names; none for the null server.
    pub settings: Vec<(String, String)>,
    /// The command that started it.
    pub command: String,
    child: Child,
}

/// Connections that servers are started for; loads have at most [`CLIENTS_MAX`].
const CONNECTIONS_MAX: u32 = 2048;
/// The most connections of a load on servers that the lab starts: some are left for questions.
pub const CLIENTS_MAX: u32 = 2000;
/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(20);
/// How often another port is tried when somebody else took the free one first.
const PORT_TRIES: usize = 5;

impl Server {
    /// Starts a server on a free port of 127.0.0.1 and waits until it answers.
    ///
    /// # Errors
    /// [`Error::Peer`] when there is no such program, or it ends or does not answer in time.
    ///
    /// # Panics
    /// If a null server is asked for without its workload.
    pub fn start(spec: &Spec) -> Result<Server, Error> {
        Server::start_with(spec, &[])
    }

    /// The same with more arguments.
    ///
    /// # Errors
    /// As [`Server::start`].
    ///
    /// # Panics
    /// As [`Server::start`].
    pub fn start_with(spec: &Spec, more: &[&str]) -> Result<Server, Error> {
        let program = match &spec.program {
            Some(program) => program.clone(),
            None => spec.kind.program()?,
        };
        let mut tried = 0;
        loop {
            match Server::start_once(spec, &program, more) {
                Err(Error::Peer(why)) if spec.kind != Kind::Null && tried < PORT_TRIES => {
                    tried += 1;
                    if tried == PORT_TRIES {
                        return Err(Error::Peer(why));
                    }
                }
                result => return result,
            }
        }
    }

    fn start_once(spec: &Spec, program: &Path, more: &[&str]) -> Result<Server, Error> {
        let name = spec.kind.name();
        let port = if spec.kind == Kind::Null { 0 } else { free_port()? };
        let mut arguments = arguments(spec, port);
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        // Where there is setpriv, a lab that is killed takes its servers with it.
        let mut command = match on_path("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| Error::Peer(format!("cannot start {}: {error}", program.display())))?;
        let stdout = child.stdout.take();
        let mut server = Server {
            kind: spec.kind,
            control: Control {
                name: name.to_owned(),
                family: spec.kind.family(),
                address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port))),
            },
            version: String::new(),
            settings: Vec::new(),
            command: format!("{} {}", program.display(), arguments.join(" ")),
            child,
        };
        // Before it starts threads, which inherit both. Where it is not allowed all servers go without.
        let _ = cpu::raise_priority(Some(server.pid()));
        if let Some(core) = spec.core {
            cpu::pin_tid(server.pid(), core)
                .map_err(|error| Error::Peer(format!("cannot pin {name} to core {core}: {error}")))?;
        }
        if spec.kind == Kind::Null {
            server.control.address = announced(stdout)?;
        } else {
            drain(stdout);
        }
        server.wait_until_it_answers()?;
        if let Some(core) = spec.core {
            // Threads that started before the first pin.
            for tid in cpu::threads(server.pid()).unwrap_or_default() {
                let _ = cpu::pin_tid(tid, core);
            }
        }
        if spec.kind != Kind::Null {
            server.version = server.control.version()?;
            server.settings = server.control.settings()?;
        }
        Ok(server)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::Peer(format!(
                    "{} ended at once ({status}): {}",
                    self.kind.name(),
                    self.command
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
                return Err(Error::Peer(format!("{} does not answer: {}", self.kind.name(), self.command)));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
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
            // An older binary, given to be compared with, may speak memcached alone.
            if spec.program.as_ref().is_none_or(|program| helps_with(program, "--redis-port")) {
                all.extend(words("--redis-port 0".to_owned()));
            }
            all
        }
        Kind::LarderRedis => words(format!(
            "serve -p 0 --redis-port {port} -l 127.0.0.1 -t {threads} -m {memory_mb} -c {CONNECTIONS_MAX}"
        )),
        Kind::Memcached | Kind::MemcachedNew => {
            let mut all = words(format!(
                "-p {port} -l 127.0.0.1 -U 0 -t {threads} -m {memory_mb} -c {CONNECTIONS_MAX}"
            ));
            // memcached refuses to run as root unless it is told who to be.
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

/// Whether a larder binary knows an option of `serve`.
fn helps_with(program: &Path, option: &str) -> bool {
    let help = Command::new(program).args(["serve", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(option))
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Error> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    port.map(|address| address.port()).map_err(|error| Error::System("finding a free port", error))
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

/// Reads what a server prints, so that it never waits for a reader.
fn drain(stdout: Option<ChildStdout>) {
    if let Some(mut stdout) = stdout {
        thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    }
}

/// The machine and system a run was made on, in a line.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} × {}, Linux {}", model.map_or("unknown CPU", |(_, name)| name), kernel.trim())
}
