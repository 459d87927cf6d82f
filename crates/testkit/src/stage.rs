//! Parts of programs that measure long commands on a released server: the server and a server of fixed
//! replies on one core, clients on another, and the memory bound of `-m`.

use crate::canary;
use crate::process::{Server, larder};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

const MEBIBYTE: u64 = 1 << 20;

/// Resident memory of the program itself, besides [`bound`].
pub const PROGRAM_BYTES: u64 = 6 * MEBIBYTE;

/// The limit plus 5 % and 8 MiB: what `-m` allows the process to hold (docs/operating.md, with what the program itself is).
pub fn bound(limit_bytes: u64) -> u64 {
    limit_bytes + limit_bytes / 20 + 8 * MEBIBYTE
}

/// Pins this thread, and those it starts, to a core; false if that is not permitted.
pub fn pin(core: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).is_ok()
}

/// The address for Redis clients: the second one that the server names.
///
/// # Errors
/// When it names none.
pub fn redis_port(server: &Server) -> Result<SocketAddr, String> {
    let output = server.output();
    let named = output.split_once("listens on ").and_then(|(_, rest)| rest.split(", ").nth(1));
    named.and_then(|text| text.parse().ok()).ok_or_else(|| format!("no second address: {output}"))
}

/// The address for TLS clients: the first one that the server names for them.
///
/// # Errors
/// When it names none.
pub fn tls_port(server: &Server) -> Result<SocketAddr, String> {
    let output = server.output();
    let named = output.split_once(" (TLS)").and_then(|(before, _)| before.rsplit(' ').next());
    named.and_then(|text| text.parse().ok()).ok_or_else(|| format!("no address by TLS: {output}"))
}

/// The server of fixed replies.
#[derive(Debug)]
pub struct Null {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
}

impl Null {
    /// Starts the server.
    ///
    /// # Errors
    /// The system's error, or the server's output.
    pub fn start() -> Result<Null, String> {
        let bytes = canary::KEY_BYTES.to_string();
        let mut child = Command::new(larder())
            .args(["lab", "null", "--protocol", "classic", "--verb", "miss", "--key-bytes", &bytes])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the null server: {error}"))?;
        let mut line = String::new();
        let read = child.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut line));
        match (read, line.trim().parse()) {
            (Some(Ok(_)), Ok(address)) => Ok(Null { child, address }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the null server said {line:?}"))
            }
        }
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
