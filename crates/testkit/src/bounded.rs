//! A real server that is held to its memory limit: `-m` bounds the process, whatever clients do.

use crate::PATIENCE;
use crate::client::Client;
use crate::process::Server;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;

/// A megabyte, as `-m` counts.
pub const MEBIBYTE: u64 = 1 << 20;
/// A value that just fits the default item limit.
pub const LARGE: usize = 1_048_000;
/// Resident pages of an optimised program, about.
const PROGRAM_BYTES: u64 = 5 * MEBIBYTE;

/// A server with a limit that it is held to.
#[derive(Debug)]
pub struct Bounded {
    /// The process.
    pub server: Server,
    /// The limit.
    pub memory_bytes: u64,
}

impl Bounded {
    /// Starts one with `-m megabytes` and more options.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(megabytes: u64, options: &[&str]) -> Bounded {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)
            .expect("files to the hard limit");
        let megabytes_text = megabytes.to_string();
        let server = Server::start(&[&["-m", &megabytes_text, "-c", "4096"], options].concat());
        Bounded { server: server.expect("larder starts"), memory_bytes: megabytes * MEBIBYTE }
    }

    /// Connects a client.
    ///
    /// # Panics
    /// If the server accepts none.
    pub fn client(&self) -> Client {
        self.server.connect().and_then(Client::new).expect("a connection")
    }

    /// Checks that the RSS is at most the limit plus 5 % and 8 MiB. A debug build has more pages of its own than the released
    /// program; these do not count.
    ///
    /// # Panics
    /// If it is more; `what` names what was done.
    pub fn stays_within(&self, what: &str) {
        self.bounds(self.server.rss_bytes().expect("a figure"), what);
    }

    /// As [`Bounded::stays_within`], for the highest RSS since the process began: no peak between two calls
    /// is missed.
    ///
    /// # Panics
    /// If it was more; `what` names what was done.
    pub fn stayed_within(&self, what: &str) {
        self.bounds(self.server.rss_most_bytes().expect("a figure"), what);
    }

    fn bounds(&self, rss: u64, what: &str) {
        let program = self.server.program_bytes().expect("a figure");
        let rss = rss - program.saturating_sub(PROGRAM_BYTES);
        let bound = self.memory_bytes + self.memory_bytes / 20 + 8 * MEBIBYTE;
        assert!(rss <= bound, "{what}: {rss} bytes, and {bound} are allowed");
    }

    /// Stores values of the sizes given under numbered keys; all are taken.
    ///
    /// # Panics
    /// If one is refused, or the process becomes too large.
    pub fn fill(&self, client: &mut Client, prefix: &str, sizes: impl Iterator<Item = usize>, what: &str) {
        let value = vec![b'v'; LARGE];
        let mut sent = 0;
        let mut waiting = 0;
        for (number, bytes) in sizes.enumerate() {
            client.store("set", &format!("{prefix}{number}"), &value[..bytes], None);
            sent += bytes + 50;
            waiting += 1;
            if client.pending.len() > 200_000 {
                take_stored(client, &mut waiting);
            }
            if sent > 4_000_000 {
                sent = 0;
                self.stays_within(what);
            }
        }
        take_stored(client, &mut waiting);
        self.stays_within(what);
    }
}

fn take_stored(client: &mut Client, waiting: &mut usize) {
    client.flush().expect("sent");
    for _ in 0..std::mem::take(waiting) {
        assert_eq!(client.reply().expect("a reply"), "STORED");
    }
}

/// A statistic that is a number.
///
/// # Panics
/// If it is not there, or no number.
pub fn number(client: &mut Client, name: &str) -> u64 {
    client.stat(name).expect("a statistic").parse().expect("a number")
}

/// A fixed sequence of numbers below `below`.
pub fn random(below: usize) -> impl Iterator<Item = usize> {
    let mut state = 7_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    })
}

/// Reads what the server has sent until it closes the connection; false if it has not after [`PATIENCE`] without a byte.
///
/// # Panics
/// If the socket takes no time limit.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut bytes = vec![0; 1 << 20];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            // It was reset.
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}
