//! The server around a session, as sessions see it: figures that commands report but do not own, and what only the server can
//! do.
//!
//! The server implements [`Host`]; so does every test that runs sessions without sockets.

use std::fmt;
use std::io;
use std::sync::Arc;

use larder_script::Pace;
use zeroize::Zeroizing;

use super::counters::Counters;
use super::delivery::Delivery;

/// Nanoseconds to read certificates, authorities and keys, as many as may be: 1 MiB of them takes 4.1 ms.
pub(crate) const CERTIFICATES_NS: u64 = 5_000_000;

/// First byte of a TLS handshake, with which no request begins.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// Figures of the process and its listeners, as `stats` reports them.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Seconds since start; memcached's begins at 2, for clocks that tick once a second.
    pub uptime_s: u64,
    /// Name of the loop that drives the sockets (memcached's key `libevent`).
    pub eventloop: &'static str,
    /// CPU time in user mode, microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, microseconds.
    pub system_us: u64,
    /// `-c`, or what was set since.
    pub connections_max: u64,
    /// Open now.
    pub connections: u64,
    /// Opened since start.
    pub connections_total: u64,
    /// Refused because `-c` was reached, or `--connections-per-address`.
    pub connections_rejected: u64,
    /// Refused because `--connections-per-address` was reached.
    pub connections_rejected_per_address: u64,
    /// `--connections-per-address`; 0: an address may have any number.
    pub connections_per_address_max: u64,
    /// `--requests-per-second`; 0: an address may ask for anything.
    pub requests_per_second_max: u64,
    /// Connection records allocated.
    pub connection_structures: u64,
    /// File descriptors kept for the server itself.
    pub reserved_fds: u64,
    /// Receive buffers.
    pub receive_buffers: u64,
    /// Bytes of receive buffers.
    pub receive_buffer_bytes: u64,
    /// Bytes of receive buffers that no connection uses.
    pub receive_buffer_bytes_free: u64,
    /// Whether other machines reach a port where no password is asked for.
    pub open: bool,
    /// Whether listeners accept.
    pub accepting: bool,
    /// Subscribers closed because too much waited for them.
    pub listeners_cut: u64,
    /// Times that listeners stopped accepting.
    pub accept_pauses: u64,
    /// Microseconds for which they did not.
    pub accept_paused_us: u64,
    /// TLS handshakes that were finished.
    pub tls_handshakes: u64,
    /// TLS handshakes that resumed a session.
    pub tls_resumptions: u64,
    /// TLS sessions that clients may resume, and that were none before.
    pub tls_new_sessions: u64,
    /// TLS handshakes that failed.
    pub tls_handshake_errors: u64,
    /// TLS connections closed because they broke the protocol after the handshake.
    pub tls_protocol_errors: u64,
    /// Seconds since the server's certificates were read.
    pub tls_certificates_age_s: u64,
    /// When the first certificate expires, seconds since 1970; 0 if there is none.
    pub tls_certificate_not_after_s: u64,
    /// Connections of plain ports closed because their clients began a TLS handshake.
    pub tls_on_plain_ports: u64,
    /// Worker threads.
    pub threads: u64,
    /// Log lines written.
    pub log_lines: u64,
    /// Log lines that were dropped: those before them were not read.
    pub log_lines_dropped: u64,
}

impl Process {
    /// Subtracts the events that were counted `before`.
    pub(crate) fn since(&mut self, before: &Process) {
        for (events, before) in [
            (&mut self.connections_total, before.connections_total),
            (&mut self.connections_rejected, before.connections_rejected),
            (&mut self.connections_rejected_per_address, before.connections_rejected_per_address),
            (&mut self.listeners_cut, before.listeners_cut),
            (&mut self.accept_pauses, before.accept_pauses),
            (&mut self.accept_paused_us, before.accept_paused_us),
            (&mut self.tls_handshakes, before.tls_handshakes),
            (&mut self.tls_resumptions, before.tls_resumptions),
            (&mut self.tls_new_sessions, before.tls_new_sessions),
            (&mut self.tls_handshake_errors, before.tls_handshake_errors),
            (&mut self.tls_protocol_errors, before.tls_protocol_errors),
            (&mut self.tls_on_plain_ports, before.tls_on_plain_ports),
        ] {
            *events = events.saturating_sub(before);
        }
    }
}

/// The machine, and how workers fare on it, as the thread that shows figures saw it last. Without that thread nothing of it
/// is known but the options.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Nanoseconds that a look at the clock takes.
    pub clock_ns: Option<u64>,
    /// The system's clock source.
    pub clock_source: String,
    /// The reason why the system gives no huge pages, if it gives none.
    pub no_huge_pages: Option<&'static str>,
    /// Seconds for which workers were observed, a minute at most.
    pub seconds: u64,
    /// Each worker's time in these seconds.
    pub workers: Vec<WorkerTime>,
    /// Part of the processors' time in these seconds that the machine's host gave to others.
    pub stolen: f64,
    /// Connections that the system dropped in these seconds because a listener's queue was full, each try of a client counted;
    /// of all programs in the network namespace.
    pub dropped: u64,
    /// Options that were given and have no effect here, as they are written, each with the reason.
    pub idle_options: Vec<(String, &'static str)>,
}

/// Parts of a worker's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerTime {
    /// Part in which it ran.
    pub busy: f64,
    /// Part in which it could have run, but others had the processor.
    pub delayed: f64,
}

/// Times of one protocol's requests in one stage, of those that were timed since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// `memcached` or `redis`.
    pub protocol: &'static str,
    /// `queue`, `service` or `reply`.
    pub stage: &'static str,
    /// Number of timed requests.
    pub count: u64,
    /// Microseconds at each of [`StageTimes::QUANTILES`]; 0 where none was timed.
    pub quantiles_us: [f64; 3],
}

impl StageTimes {
    /// The quantiles that are shown, with their names.
    pub const QUANTILES: [(&'static str, f64); 3] = [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)];

    /// Calls `visit` with each quantile's name and value.
    pub(crate) fn each_quantile(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        Self::QUANTILES.iter().zip(self.quantiles_us).for_each(|((name, _), us)| visit(name, us));
    }
}

/// One line group of `stats conns`.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// File descriptor or another number of its own.
    pub id: u64,
    /// Peer: `tcp:127.0.0.1:49472`, `unix:/path`; for a listener its own address.
    pub address: String,
    /// The listener it came through; none for listeners.
    pub listen_address: Option<String>,
    /// [`crate::Session::state_name`], or `conn_listening`.
    pub state: &'static str,
    /// Seconds since its last command.
    pub idle_s: u64,
}

/// The other end of a connection, and its place in the server.
pub trait Peer: Sync {
    /// `127.0.0.1:49472`, or `/path:0` of a Unix socket.
    fn address(&self) -> String;
    /// Returns whether it is on this machine.
    fn is_local(&self) -> bool;
    /// The server's own address, in the same form.
    fn listen_address(&self) -> Arc<str>;
    /// Returns whether it speaks TLS.
    fn speaks_tls(&self) -> bool {
        false
    }
    /// The place at which the server finds the connection again.
    fn place(&self) -> u64;
    /// Its number in `stats conns`.
    fn number(&self) -> u64;
}

/// The file of users. A thread of its own reads and writes it, since that may take any time.
pub trait UsersFile: std::fmt::Debug + Send + Sync {
    /// Its path.
    fn path(&self) -> &str;

    /// Reads its contents.
    ///
    /// # Errors
    /// It cannot be read, or is longer than such a file may be.
    fn read(&self) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Replaces its contents: whole, or not at all.
    ///
    /// # Errors
    /// It cannot be written. It stays as it was.
    fn write(&self, text: &[u8]) -> io::Result<()>;
}

/// The server around a session. Workers call it, and the thread that shows figures. Requests on items need no more of it than
/// the clock, where they are measured.
pub trait Host: Sync {
    /// Calls `visit` with every worker's counters.
    fn counters(&self, visit: &mut dyn FnMut(&Counters));

    /// Figures of the process.
    fn process(&self) -> Process;

    /// Whether the system is asked for the memory of the process and of the machine. Where it is not, neither is known.
    fn asks_system(&self) -> bool {
        true
    }

    /// The machine, and how workers fare on it; what is not known of it is the default's.
    fn machine(&self) -> Machine {
        Machine::default()
    }

    /// Calls `visit` with times of each stage of each protocol; not at all where nothing is timed.
    fn stage_times(&self, visit: &mut dyn FnMut(&StageTimes)) {
        let _ = visit;
    }

    /// Sets how many connections may be open. Those above it stay.
    ///
    /// # Errors
    /// The system cannot have so many. The error is the most that it can.
    fn set_connections_max(&self, max: u64) -> Result<(), u64>;

    /// Calls `visit` with every `stats settings` line in memcached's order.
    fn settings(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display));

    /// Calls `visit` with every listener where RESP is spoken: its kind by Redis's name (`tcp`, `unix`, `tls`), its address,
    /// and its port, which is 0 for a Unix socket.
    fn listeners(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display, u16)) {
        let _ = visit;
    }

    /// Calls `visit` with up to `max` connections whose place is `from` or later. Returns the place to go on from, `None` at
    /// the end. Places are the server's own, ascending, 0 first.
    fn connections(&self, from: u64, max: usize, visit: &mut dyn FnMut(&Connection)) -> Option<u64>;

    /// Closes the connection at this place if it still belongs to this RESP client. It is not for the calling session, which
    /// ends by itself.
    fn kill(&self, place: u64, client: u64);

    /// Has the connection at this place looked at, if it still belongs to this RESP client or to the watcher with this number,
    /// and waits for that ([`super::progress::Next::Await`]).
    fn wake(&self, place: u64, client: u64);

    /// Notes that users were removed. Clients of memcached's protocols that were such a user are to be closed: their sessions
    /// know whether they were ([`crate::Session::turn_out`]).
    fn users_removed(&self) {}

    /// Leaves deliveries for clients of a worker, in order; a client is closed if there is no room for its delivery.
    fn post(&self, worker: usize, deliveries: Vec<Delivery>);

    /// Takes the deliveries that wait for a client of the calling worker, in order.
    fn fetch(&self, place: u64, client: u64) -> Vec<Delivery>;

    /// A clock that only goes on, microseconds; for measuring commands that may take long.
    fn clock_us(&self) -> u64;

    /// The measure of how long a script has worked.
    fn script_pace(&self) -> Pace {
        Pace::Machine
    }

    /// Reads TLS certificates and keys again; `None` if no listener speaks TLS. An error is one line that names the file that
    /// cannot be used; the old ones stay in force then.
    fn refresh_certificates(&self) -> Option<Result<(), String>>;

    /// Notes that a client has begun a TLS handshake where none is spoken.
    fn note_tls_on_plain_port(&self);

    /// The value of a TLS parameter, by Redis's name; `None` if this server has none of that name.
    fn tls_parameter(&self, name: &str) -> Option<String>;

    /// Sets TLS parameters, all together, and reads certificates and keys again. Returns a function that takes this back. On an
    /// error everything stays as it was; it says which of the parameters cannot be so, and why.
    fn set_tls(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn FnOnce() + '_>, (usize, String)>;

    /// The file of `--aclfile`; `None`: users are in no file.
    fn users_file(&self) -> Option<Arc<dyn UsersFile>> {
        None
    }

    /// `shutdown` (already allowed): stop, or drain and stop if `graceful`.
    fn shutdown(&self, graceful: bool);

    /// Logs a script's line for the operator: 0 (for debugging) to 3 (a warning).
    fn note(&self, level: u8, text: &str);

    /// Sets the verbosity, 0 to 2.
    fn verbosity(&self, level: u8);
}
