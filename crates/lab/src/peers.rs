//! Server processes: found, started on a free port, pinned, asked what they are, and stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use larder_eventloop::cpu;
use larder_eventloop::socket::Address;

use crate::error::Error;
use crate::wire::Protocol;
use crate::workload::{Verb, Workload};

/// A server that the lab can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Larder.
    Larder,
    /// memcached.
    Memcached,
    /// Redis.
    Redis,
    /// The null server.
    Null,
}

impl Kind {
    /// How it is called in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Larder => "larder",
            Kind::Memcached => "memcached",
            Kind::Redis => "redis",
            Kind::Null => "null",
        }
    }

    /// The program to start: a larder binary is this very file, others are looked for on PATH.
    ///
    /// # Errors
    /// [`Error::Peer`] that names the Debian package.
    pub fn program(self) -> Result<PathBuf, Error> {
        let (program, package) = match self {
            Kind::Larder | Kind::Null => {
                return env::current_exe().map_err(|error| Error::System("finding own program", error));
            }
            Kind::Memcached => ("memcached", "memcached"),
            Kind::Redis => ("redis-server", "redis-server"),
        };
        on_path(program).ok_or_else(|| {
            Error::Peer(format!("{program} is not on PATH; Debian has it: apt install {package}"))
        })
    }

    /// What it speaks in this kind of load: `wanted`, but for Redis.
    pub fn protocol(self, wanted: Protocol) -> Protocol {
        match self {
            Kind::Redis => Protocol::Resp,
            Kind::Larder | Kind::Memcached | Kind::Null => wanted,
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
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
    /// Threads that serve (Redis: always its one).
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
    /// Where it listens.
    pub address: Address,
    /// What it says its version is; empty for the null server.
    pub version: String,
    /// The settings it says are in effect, by its own names; none for the null server.
    pub settings: Vec<(String, String)>,
    /// The command that started it.
    pub command: String,
    child: Child,
}

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
        let program = match &spec.program {
            Some(program) => program.clone(),
            None => spec.kind.program()?,
        };
        let mut tried = 0;
        loop {
            match Server::start_once(spec, &program) {
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

    fn start_once(spec: &Spec, program: &Path) -> Result<Server, Error> {
        let name = spec.kind.name();
        let port = if spec.kind == Kind::Null { 0 } else { free_port()? };
        let arguments = arguments(spec, port);
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
            address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port))),
            version: String::new(),
            settings: Vec::new(),
            command: format!("{} {}", program.display(), arguments.join(" ")),
            child,
        };
        if let Some(core) = spec.core {
            cpu::pin_tid(server.pid(), core)
                .map_err(|error| Error::Peer(format!("cannot pin {name} to core {core}: {error}")))?;
        }
        if spec.kind == Kind::Null {
            server.address = announced(stdout)?;
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
        server.inspect()?;
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
            let probe = match self.kind {
                Kind::Larder | Kind::Memcached => Some(("version\r\n", "VERSION ")),
                Kind::Redis => Some(("PING\r\n", "+PONG\r\n")),
                Kind::Null => None,
            };
            let answers = match probe {
                None => self.control().is_ok(),
                Some((question, start)) => {
                    self.ask(question, "\r\n").is_ok_and(|reply| reply.starts_with(start))
                }
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

    fn inspect(&mut self) -> Result<(), Error> {
        match self.kind {
            Kind::Larder | Kind::Memcached => {
                let version = self.ask("version\r\n", "\r\n")?;
                self.version = version.trim_end().trim_start_matches("VERSION ").to_owned();
                self.settings = self.stats("settings")?;
            }
            Kind::Redis => {
                let info = self.ask("INFO server\r\n", "\r\n\r\n")?;
                let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
                self.version = version.unwrap_or("unknown").trim().to_owned();
                let sent = self.ask("CONFIG GET *\r\nPING\r\n", "+PONG\r\n")?;
                let words: Vec<&str> =
                    sent.split("\r\n").filter(|line| !line.starts_with(['$', '*', '+'])).collect();
                self.settings =
                    words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
            }
            Kind::Null => {}
        }
        Ok(())
    }

    /// memcached's `stats <what>` (or plain `stats`) as names and values.
    ///
    /// # Errors
    /// When the server does not answer it.
    pub fn stats(&self, what: &str) -> Result<Vec<(String, String)>, Error> {
        let reply = self.ask(format!("stats {what}").trim_end().to_owned() + "\r\n", "END\r\n")?;
        let pair = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Ok(reply.lines().filter_map(pair).collect())
    }

    /// One field of memcached's `stats` or Redis's `INFO`, as a number.
    pub fn counter(&self, name: &str) -> Option<u64> {
        match self.kind {
            Kind::Larder | Kind::Memcached => {
                self.stats("").ok()?.iter().find(|(have, _)| have == name)?.1.parse().ok()
            }
            Kind::Redis => {
                let info = self.ask("INFO\r\nPING\r\n", "+PONG\r\n").ok()?;
                let field = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                field.trim().parse().ok()
            }
            Kind::Null => None,
        }
    }

    fn control(&self) -> std::io::Result<TcpStream> {
        let Address::Tcp(address) = &self.address else { return Err(std::io::ErrorKind::Unsupported.into()) };
        let stream = TcpStream::connect_timeout(address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(stream)
    }

    /// Sends `question` on a connection of its own and returns the reply up to and with `end`.
    ///
    /// # Errors
    /// [`Error::Peer`].
    pub fn ask(&self, question: impl AsRef<[u8]>, end: &str) -> Result<String, Error> {
        let exchange = || {
            let mut stream = self.control()?;
            stream.write_all(question.as_ref())?;
            let (mut reply, mut buffer) = (Vec::new(), [0; 16 * 1024]);
            while !reply.ends_with(end.as_bytes()) {
                match stream.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    received => reply.extend_from_slice(&buffer[..received]),
                }
            }
            Ok(String::from_utf8_lossy(&reply).into_owned())
        };
        exchange().map_err(|error: std::io::Error| {
            let question = question.as_ref().escape_ascii().to_string();
            Error::Peer(format!("{} does not answer \"{question}\": {error}", self.kind.name()))
        })
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
        Kind::Larder => words(format!("serve -p {port} -l 127.0.0.1 -t {threads} -m {memory_mb} -c 2048")),
        Kind::Memcached => {
            let mut all = words(format!("-p {port} -l 127.0.0.1 -U 0 -t {threads} -m {memory_mb} -c 2048"));
            // memcached refuses to run as root unless it is told who to be.
            if rustix::process::geteuid().is_root() {
                all.extend(words("-u root".to_owned()));
            }
            all
        }
        Kind::Redis => {
            let mut all = words(format!(
                "--port {port} --bind 127.0.0.1 --maxmemory {memory_mb}mb --maxmemory-policy allkeys-lru \
                 --appendonly no --daemonize no --save"
            ));
            all.push(String::new());
            all
        }
        Kind::Null => {
            let workload = spec.null.as_ref().expect("a null server is told what to answer");
            let protocol = match workload.protocol {
                Protocol::Classic => "classic",
                Protocol::Meta => "meta",
                Protocol::Resp => "resp",
            };
            let verb = match workload.verb {
                Verb::Hit => "hit",
                Verb::Miss => "miss",
                Verb::Set => "set",
            };
            words(format!(
                "lab null --listen 127.0.0.1:{port} --protocol {protocol} --verb {verb} --key-bytes {} \
                 --value-bytes {} --keys-per-request {}",
                workload.keyspace.key_bytes, workload.keyspace.value_bytes, workload.keys_per_request
            ))
        }
    }
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
