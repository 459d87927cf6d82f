//! What a session may ask of the server around it: figures that commands report but do not own.
//!
//! The server implements [`Host`]; so does every test that runs sessions without sockets.

use std::fmt;
use std::io;
use std::sync::Arc;

use larder_script::Pace;
use zeroize::Zeroizing;

use super::counters::Counters;
use super::delivery::Delivery;

/// What it takes to read certificates, authorities and keys, as many as may be: 1 MiB of them takes 4.1 ms.
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
    /// What drives the sockets (reported under memcached's key `libevent`).
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
    /// Of these, the latter.
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
    /// Their bytes.
    pub receive_buffer_bytes: u64,
    /// Of these, bytes in no connection's use.
    pub receive_buffer_bytes_free: u64,
    /// Other machines reach a port, and no password is asked for there.
    pub open: bool,
    /// Listeners accept.
    pub accepting: bool,
    /// Subscribers closed because too much waited for them.
    pub listeners_cut: u64,
    /// Times that listeners stopped accepting.
    pub accept_pauses: u64,
    /// How long, microseconds.
    pub accept_paused_us: u64,
    /// TLS handshakes that were finished.
    pub tls_handshakes: u64,
    /// Of these, such that resumed a session.
    pub tls_resumptions: u64,
    /// TLS sessions that clients may resume, and that were none before.
    pub tls_new_sessions: u64,
    /// TLS handshakes that failed.
    pub tls_handshake_errors: u64,
    /// TLS connections closed because they broke the protocol after the handshake.
    pub tls_protocol_errors: u64,
    /// Seconds since the server's certificates were read.
    pub tls_certificates_age_s: u64,
    /// When the first of them expires, seconds since 1970; 0 if there is none.
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
    /// Takes away the events that were counted `before`.
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
    /// A look at the clock takes so many nanoseconds.
    pub clock_ns: Option<u64>,
    /// What the system takes the time from.
    pub clock_source: String,
    /// Why the system gives no huge pages, if it gives none.
    pub no_huge_pages: Option<&'static str>,
    /// Workers were observed for so many seconds, …
    pub seconds: u64,
    /// … a minute at most: these.
    pub workers: Vec<WorkerTime>,
    /// Part of the processors' time that the machine's host gave to others meanwhile.
    pub stolen: f64,
    /// How often the system dropped a connection meanwhile, as a listener's queue was full, each try of a client counted; of all
    /// programs in the network namespace.
    pub dropped: u64,
    /// Options that were given and have no effect here, as they are written, and why.
    pub idle_options: Vec<(String, &'static str)>,
}

/// Parts of a worker's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerTime {
    /// It ran.
    pub busy: f64,
    /// It could have run, and others had the processor.
    pub delayed: f64,
}

/// How long requests of a protocol took in one stage, of those that were timed since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// `memcached` or `redis`.
    pub protocol: &'static str,
    /// `queue`, `service` or `reply`.
    pub stage: &'static str,
    /// How many were timed.
    pub count: u64,
    /// Microseconds up to which the parts of [`StageTimes::QUANTILES`] took; 0 where none was timed.
    pub quantiles_us: [f64; 3],
}

impl StageTimes {
    /// Names of the quantiles that are shown, and which they are.
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
    /// It is on this machine.
    fn is_local(&self) -> bool;
    /// The server's own address, in the same form.
    fn listen_address(&self) -> Arc<str>;
    /// It speaks TLS.
    fn speaks_tls(&self) -> bool {
        false
    }
    /// Where the server finds the connection again.
    fn place(&self) -> u64;
    /// Its number in `stats conns`.
    fn number(&self) -> u64;
}

/// The file of users. A thread of its own reads and writes it, since that may take any time.
pub trait UsersFile: std::fmt::Debug + Send + Sync {
    /// Its name.
    fn path(&self) -> &str;

    /// What it has.
    ///
    /// # Errors
    /// It cannot be read, or is longer than such a file may be.
    fn read(&self) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Gives it other contents: whole, or not at all.
    ///
    /// # Errors
    /// It cannot be written; it is as it was.
    fn write(&self, text: &[u8]) -> io::Result<()>;
}

/// The server around a session. All of it is called from workers, none of it on the data path.
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

    /// Lets so many connections be open at most; those above it stay.
    ///
    /// # Errors
    /// The most that the system can do.
    fn set_connections_max(&self, max: u64) -> Result<(), u64>;

    /// Calls `visit` with every `stats settings` line in memcached's order.
    fn settings(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display));

    /// Calls `visit` with every listener where RESP is spoken: what it is by Redis's name (`tcp`, `unix`, `tls`), where it is
    /// bound, and its port, 0 of a Unix socket.
    fn listeners(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display, u16)) {
        let _ = visit;
    }

    /// Calls `visit` with up to `max` connections whose place is `from` or later; returns the place
    /// to go on from, none at the end. Places are the server's own, ascending, 0 first.
    fn connections(&self, from: u64, max: usize, visit: &mut dyn FnMut(&Connection)) -> Option<u64>;

    /// Closes the connection at this place if it is still that of this RESP client. Others' only:
    /// the calling session ends by itself.
    fn kill(&self, place: u64, client: u64);

    /// Has the connection at this place be looked at, if it is still that of this RESP client, or of the watcher with
    /// this number, and waits for it ([`super::progress::Next::Await`]).
    fn wake(&self, place: u64, client: u64);

    /// Users were removed: clients of memcached that were such a user are to be closed, which their sessions know
    /// ([`crate::Session::turn_out`]).
    fn users_removed(&self) {}

    /// Leaves deliveries for clients of a worker, in order; a client is closed if there is no room for its delivery.
    fn post(&self, worker: usize, deliveries: Vec<Delivery>);

    /// Takes the deliveries that wait for a client of the calling worker, in order.
    fn fetch(&self, place: u64, client: u64) -> Vec<Delivery>;

    /// A clock that only goes on, microseconds; for measuring commands that may take long.
    fn clock_us(&self) -> u64;

    /// What says how long a script has worked.
    fn script_pace(&self) -> Pace {
        Pace::Machine
    }

    /// Reads TLS certificates and keys again; none if no listener speaks TLS. An error is one line that names the file
    /// that cannot be used; the old ones stay in force then.
    fn refresh_certificates(&self) -> Option<Result<(), String>>;

    /// A client has begun a TLS handshake where none is spoken.
    fn note_tls_on_plain_port(&self);

    /// What a parameter of TLS is set to, by Redis's name; none if this server has none of that name.
    fn tls_parameter(&self, name: &str) -> Option<String>;

    /// Sets parameters of TLS, all together, and reads certificates and keys again; returns what takes this back. On an
    /// error, everything stays as it was; it says which of the parameters cannot be so, and why.
    fn set_tls(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn FnOnce() + '_>, (usize, String)>;

    /// `--aclfile`; none: users are in no file.
    fn users_file(&self) -> Option<Arc<dyn UsersFile>> {
        None
    }

    /// `shutdown` (already allowed): stop, or drain and stop if `graceful`.
    fn shutdown(&self, graceful: bool);

    /// A script has something to say to the operator: 0 (for debugging) to 3 (a warning).
    fn note(&self, level: u8, text: &str);

    /// `verbosity`: 0 to 2.
    fn verbosity(&self, level: u8);
}
