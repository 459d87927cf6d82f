//! A real server process: started on a free port, awaited, measured, stopped, killed on drop.

use crate::PATIENCE;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use larder_eventloop::port::Port;
use rustix::process::{Pid, Signal, kill_process};

/// Resident pages of the released program.
const RELEASE_PROGRAM_BYTES: u64 = 5 << 20;

/// Which program to start.
#[derive(Clone, Debug)]
pub enum Program {
    /// `larder serve`, built from this workspace.
    Larder,
    /// `larder serve`; the server's address is that of its port for RESP.
    LarderResp,
    /// memcached itself, to check a transcript against it.
    Memcached(PathBuf),
    /// Redis itself.
    Redis(PathBuf),
}

/// A running server. Its port stays reserved until this is dropped, even if the process has ended.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: Port,
    output: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts `larder serve` with `options` on a free port of 127.0.0.1 and waits until it accepts.
    ///
    /// # Errors
    /// Its output, if it exits instead.
    pub fn start(options: &[impl AsRef<str>]) -> Result<Server, String> {
        Server::start_program(&Program::Larder, options)
    }

    /// Starts any program.
    ///
    /// # Errors
    /// Its output, if it exits instead.
    pub fn start_program(program: &Program, options: &[impl AsRef<str>]) -> Result<Server, String> {
        let begun = Server::begin(program, options)?;
        begun.map_err(|(status, output)| format!("the server exited with {status}: {output}"))
    }

    /// Runs a start that must fail; returns the status and the output.
    ///
    /// # Errors
    /// When the server stays up.
    pub fn refused(program: &Program, options: &[impl AsRef<str>]) -> Result<(ExitStatus, String), String> {
        let mut server = match Server::begin(program, options)? {
            Ok(server) => server,
            Err(ended) => return Ok(ended),
        };
        // memcached listens for a moment before it has checked all options: it has started if it answers.
        let answers = || {
            let mut stream = TcpStream::connect(server.address())?;
            stream.write_all(b"version\r\n")?;
            stream.read(&mut [0])
        };
        if answers().is_ok_and(|bytes| bytes > 0) {
            return Err("the server starts with these options".into());
        }
        let status = server.child.wait().map_err(|error| error.to_string())?;
        server.read_to_the_end();
        Ok((status, server.output()))
    }

    /// A server that accepts, or its status and output if it has exited instead.
    fn begin(
        program: &Program,
        options: &[impl AsRef<str>],
    ) -> Result<Result<Server, (ExitStatus, String)>, String> {
        let mut server = Server::spawn(program, options).map_err(|error| error.to_string())?;
        let address = server.address();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = server.child.try_wait().map_err(|error| error.to_string())? {
                server.read_to_the_end();
                return Ok(Err((status, server.output())));
            }
            let listens = match program {
                // A probe would be a connection, and some tests count connections: the output says when it
                // listens.
                Program::Larder | Program::LarderResp => server.output().contains("listens on"),
                Program::Memcached(_) | Program::Redis(_) => TcpStream::connect(address).is_ok(),
            };
            if listens {
                return Ok(Ok(server));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(format!("the server does not listen on {address}: {}", server.output()))
    }

    fn spawn(program: &Program, options: &[impl AsRef<str>]) -> io::Result<Server> {
        let reserved = Port::reserve()?;
        let port = reserved.address().port();
        let mut command = match program {
            Program::Larder | Program::LarderResp => {
                let mut command = Command::new(larder());
                command.args(["serve", "-l", "127.0.0.1"]);
                // Many servers run at once, so HTTP has no port. A later option can change that: the last
                // value counts.
                command.args(["--http-port", "0"]);
                command
            }
            Program::Redis(path) => {
                let mut command = Command::new(path);
                command.args(["--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"]);
                // A folder for this server alone: no other one reads the files that a transcript saves.
                let folder = saved_in(port);
                std::fs::create_dir_all(&folder)?;
                command.arg("--dir").arg(folder);
                command
            }
            Program::Memcached(path) => {
                let mut command = Command::new(path);
                // As root, memcached needs a user; another user could not read the files of users that
                // transcripts name.
                command.args(["-u", "root", "-l", "127.0.0.1"]);
                command
            }
        };
        let port = port.to_string();
        match program {
            Program::Larder if options.iter().any(|o| o.as_ref() == "--redis-port") => {
                command.args(["-p", &port]);
            }
            // Many servers run at once, so each has one port; memcached's port speaks RESP, too.
            Program::Larder => drop(command.args(["-p", &port, "--redis-port", "0"])),
            Program::LarderResp => drop(command.args(["-p", "0", "--redis-port", &port])),
            Program::Memcached(_) => drop(command.args(["-p", &port])),
            Program::Redis(_) => drop(command.args(["--port", &port])),
        }
        command.args(options.iter().map(AsRef::as_ref));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let stdout = child.stdout.take().map(|pipe| read_all(pipe, &output));
        let stderr = child.stderr.take().map(|pipe| read_all(pipe, &output));
        let readers = stdout.into_iter().chain(stderr).collect();
        Ok(Server { child, port: reserved, output, readers })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// A connection with a read timeout long enough for any test.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the process, less what only a test build has.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn rss_bytes(&self) -> io::Result<u64> {
        Ok(self.status_bytes("VmRSS:")?.saturating_sub(self.beyond_release_bytes()?))
    }

    /// The highest resident memory that the process ever had.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn rss_most_bytes(&self) -> io::Result<u64> {
        Ok(self.status_bytes("VmHWM:")?.saturating_sub(self.beyond_release_bytes()?))
    }

    /// Resident pages of files: the program itself.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn program_bytes(&self) -> io::Result<u64> {
        self.status_bytes("RssFile:")
    }

    /// Pages of a test build beyond those of the released program: the memory limit does not cover them.
    fn beyond_release_bytes(&self) -> io::Result<u64> {
        Ok(self.program_bytes()?.saturating_sub(RELEASE_PROGRAM_BYTES))
    }

    fn status_bytes(&self, name: &str) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes =
            line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<u64>().ok());
        kilobytes.map(|n| n * 1024).ok_or_else(|| io::Error::other(format!("no {name} line")))
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Stops the process, so that everything that is sent meanwhile has arrived when it continues.
    ///
    /// # Errors
    /// It does not stop.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP);
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let mut threads = std::fs::read_dir(format!("/proc/{}/task", self.id()))?;
            let stands = |thread: io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
                io::Result::Ok(stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
            };
            if threads.try_fold(true, |all, thread| Ok::<_, io::Error>(all & stands(thread)?))? {
                return Ok(());
            }
            thread::sleep(Duration::from_micros(100));
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Lets the process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // A process that has ended gets no signal.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// Stops it with SIGTERM and returns its status; none when it does not stop in time.
    pub fn stop(mut self) -> Option<ExitStatus> {
        self.terminate();
        self.wait(PATIENCE)
    }

    /// Ends it with SIGKILL. Its port stays reserved: connections to it are refused, and reach no other
    /// test's server.
    pub fn kill(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for it to exit by itself.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let started = Instant::now();
        while started.elapsed() < patience {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.read_to_the_end();
                return Some(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// Waits until all that an ended process printed has been read.
    fn read_to_the_end(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader that panicked has nothing more to give.
            let _ = reader.join();
        }
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("readers do not panic")).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(saved_in(self.address().port()));
    }
}

/// The folder in which the Redis on this port saves.
fn saved_in(port: u16) -> PathBuf {
    std::env::temp_dir().join(format!("larder-redis-{}-{port}", std::process::id()))
}

fn read_all(mut pipe: impl Read + Send + 'static, output: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut bytes) {
            output.lock().expect("readers do not panic").extend_from_slice(&bytes[..count]);
        }
    })
}

/// The `larder` binary: `LARDER_BIN` if set, else built once beside the running test.
pub fn larder() -> &'static Path {
    static LARDER: OnceLock<PathBuf> = OnceLock::new();
    LARDER.get_or_init(|| {
        if let Some(path) = std::env::var_os("LARDER_BIN") {
            return path.into();
        }
        let test = std::env::current_exe().expect("a running program has a path");
        let profile =
            test.ancestors().find(|path| path.join("deps").is_dir()).expect("cargo runs tests in deps/");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "larder"]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.env("CARGO_TARGET_DIR", profile.parent().expect("target/profile"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().expect("cargo starts").success(), "larder does not build");
        profile.join("larder")
    })
}
