//! A network namespace with nothing but a loopback: every suite may have port 11211 there.

use super::Program;
use super::suites::succeeded;
use crate::install::is_root;
use crate::run::{Outcome, capture, command, run, which};
use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a server may take to answer: for hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// The namespace, removed on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    ip: std::path::PathBuf,
}

/// A server inside, killed on drop.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Namespace {
    /// A new namespace with its loopback up.
    pub fn new() -> Outcome<Namespace> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !is_root()? {
            return Err("network namespaces need root; run as root: cargo xtask conformance".into());
        }
        let ip = which("ip").ok_or("ip is not installed; run as root: apt-get install -y iproute2")?;
        let name = format!("larder-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        run(command(&ip, &["netns", "add", &name]))?;
        let namespace = Namespace { name, ip };
        run(command(&namespace.ip, &["-n", &namespace.name, "link", "set", "lo", "up"]))?;
        Ok(namespace)
    }

    /// A program inside the namespace, which is ended after two hours.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.inside();
        command.args(["timeout", "7200"]).arg(program);
        command
    }

    /// Runs a program inside; returns its output, as the error if it fails.
    pub fn output(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Outcome<String> {
        let mut command = self.command(program);
        command.args(arguments);
        succeeded(command)
    }

    /// Starts a program inside that runs until the handle is dropped.
    pub fn background(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Outcome<Server> {
        let mut command = self.inside();
        command.arg(program).args(arguments).stdin(Stdio::null());
        let name = format!("{command:?}");
        Ok(Server { child: command.spawn().map_err(|error| format!("{name}: {error}"))? })
    }

    fn inside(&self) -> Command {
        command(&self.ip, &["netns", "exec", &self.name])
    }

    /// Starts the server on port 11211, or Redis on its own port, and waits until it answers. Redis gets no options.
    pub fn serve(&self, program: &Program, options: &[&str]) -> Outcome<Server> {
        let mut command = self.inside();
        command.args(&program.words);
        let port = if program.is_redis { 6379 } else { 11211 };
        match program.is_redis {
            true => command.args(["--bind", "127.0.0.1", "::1", "--save", ""]),
            false => command.args(["-p", "11211", "-l", "127.0.0.1,::1"]).args(options),
        };
        let asks = format!("exit(IO::Socket::INET->new('127.0.0.1:{port}') ? 0 : 1)");
        command.stdin(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.words[0]))?;
        let mut server = Server { child };
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("the server exited: {status}"));
            }
            let mut perl = self.command("perl");
            perl.args(["-MIO::Socket::INET", "-e", &asks]);
            if capture(perl)?.0 {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the server does not listen".into())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If this fails, an empty namespace is left.
        let _ = capture(command(&self.ip, &["netns", "del", &self.name]));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
