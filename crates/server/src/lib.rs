//! `larder serve`: options, listeners, workers, limits, figures.
//!
//! ```text
//! main thread                          worker threads (-t)
//! ───────────                          ───────────────────
//! options ─► listeners ─► store        event loop ─► session ─► store
//! accept ──► mailbox of the worker ──► adopt
//!            with the fewest           … requests never leave their worker …
//! signal ──► every worker is told ────► drain, end
//! ```
//!
//! Beside the main thread three are no workers: one answers monitors by HTTP (`admin`), one has memory mapped ahead (`mapper`),
//! one writes the log (`log`). ACL LOAD and ACL SAVE start another for as long as they read or write the file of users
//! (`redis/server/acl/filing.rs` of `larder-commands`).
//!
//! Where to read:
//!
//! ```text
//! how it starts     command_line, options, extended, values ─▶ config ─▶ listen, listener, process, log
//! read again        certificates, filed (files of users)
//! a connection      acceptor ─▶ mailbox ─▶ worker (service, handling, replies), from its arrival to its end
//! all of them       hub, table, clock, settings
//! which come in     acceptor, addresses (connections of each)
//! which have to go  crowd (requests that came in part), overflow (replies that wait), pending_closes (CLIENT KILL),
//!                   removed (users that are gone)
//! between workers   deliver (messages to subscribers), awake (clients that waited)
//! monitors          admin, stalls
//! memory            mapper
//! what is refused   confine (system calls, files)
//! ```
//!
//! [`serve`] is all of it. Its parts are public for a test that brings its own sockets and its own time: a [`Hub`]
//! with a [`Clock`], a [`Worker`] over a backend, an [`Acceptor`] over an [`Entrance`].
//!
//! Nothing here knows a command, or a byte of what is spoken on a connection of a worker: that is `larder-commands`. These
//! connections' sockets are read and written by `larder-eventloop`, through `larder-tls` where a listener speaks TLS; what
//! is here is the monitors' HTTP (`admin`), and a last word for connections that are not taken in (`acceptor`).

#![forbid(unsafe_code)]

mod acceptor;
mod addresses;
mod admin;
mod awake;
mod certificates;
mod clock;
mod command_line;
mod config;
mod confine;
mod crowd;
mod deliver;
mod extended;
mod filed;
mod hub;
mod listen;
mod listener;
mod log;
mod mailbox;
mod mapper;
mod options;
mod overflow;
mod pending_closes;
mod process;
mod rates;
mod removed;
mod settings;
mod stalls;
mod table;
mod tls;
mod values;
mod worker;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_eventloop::socket::Socket;
use larder_eventloop::sysexits;
use larder_eventloop::{Epoll, Stream};
use larder_store::{Automove, Store};
use larder_tls::ClientAuth;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

pub use acceptor::{Acceptor, Arrivals, Entrance, Heard};
pub use admin::http;
pub use admin::markdown as metrics_markdown;
pub use admin::{HttpBackend, HttpEvent, HttpServer};
pub use clock::Clock;
pub use command_line::{Request, parse};
pub use config::{Config, Protocol, Reported};
pub use confine::Seccomp;
pub use extended::{EXTENDED, Extended};
pub use hub::Hub;
pub use listen::{HttpHost, ListenAddress};
pub use listener::Listener;
pub use log::Log;
pub use mailbox::{Arrival, MAIL_MAX, Mailbox};
pub use options::{Effect, OPTIONS, Row, markdown};
pub use worker::Worker;

use crate::acceptor::Listeners;
use crate::admin::Admin;
use crate::certificates::Certificates;
use crate::confine::{Confinement, Role};
use crate::listen::{Bound, Http};
use crate::mapper::Mapper;

/// A worker's stack: its calls are shallow and hold no large values.
const STACK_BYTES: usize = 512 << 10;

/// A worker that has not ended so long after the order to stop is not waited for: it closes all connections five seconds before.
const STOP: Duration = Duration::from_secs(35);

/// `larder serve` with the arguments behind `serve`.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let config = match parse(arguments) {
        Ok(Request::Serve(config)) => *config,
        Ok(Request::Print(text)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            complain(&reason);
            return ExitCode::from(sysexits::USAGE);
        }
    };
    if config.daemon && !process::is_detached() {
        return process::start_detached();
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, reason }) => {
            complain(&reason);
            ExitCode::from(code)
        }
    }
}

/// Why a server could not start, or cannot go on.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of a program that ends with it, of [`sysexits`].
    pub code: u8,
    /// One line.
    pub reason: String,
}

impl Failure {
    /// The command line names something that does not exist.
    fn usage(reason: String) -> Failure {
        Failure { code: sysexits::USAGE, reason }
    }

    /// A file cannot be written.
    fn file(reason: String) -> Failure {
        Failure { code: sysexits::FILE, reason }
    }
}

/// A refusal of the system, where no other code is chosen.
impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure { code: sysexits::SYSTEM, reason }
    }
}

/// Writes one line to the process that started us: from the background, through the process in the foreground.
fn complain(reason: &str) {
    if process::is_detached() {
        let _ = writeln!(std::io::stdout(), "larder: {reason}");
    } else {
        eprintln!("larder: {reason}");
    }
}

/// Runs a server until it is stopped.
///
/// # Errors
/// Why it could not start, or ended before it was told to.
pub fn serve(config: Config) -> Result<(), Failure> {
    larder_store::return_freed_blocks();
    let signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    process::allow_descriptors(config.connections_max, config.threads)?;
    if config.core_dumps {
        process::allow_core_dumps()?;
    }
    let bound = listen::open(&config).map_err(|error| error.to_string())?;
    let (http, no_http) = listen::open_http(&config).map_err(|error| error.to_string())?;
    // Before `-u` takes effect: often only the user that starts the server may read the keys.
    let http_tls = http.as_ref().filter(|_| config.http_tls).map(|_| config.tls_options.http());
    let (listeners, certificates) = Certificates::of(&bound, &config.tls_options, http_tls)
        .map_err(|error| Failure::usage(error.to_string()))?;
    if process::is_detached() {
        process::leave_session();
    }
    if let Some(user) = &config.user {
        process::become_user(user)?;
        if config.core_dumps {
            process::stay_dumpable()?;
        }
    }
    // It starts a thread, which has to be of the user that the server runs as.
    let log = Log::start(config.verbosity);
    if rustix::process::geteuid().is_root() {
        tracing::warn!("it runs as root: with -u USER it would not");
    }
    for (option, why) in options::given_for_nothing(&config) {
        tracing::info!(%option, "accepted without effect: {why}");
    }
    if let Some(warning) = no_http {
        tracing::warn!("{warning}");
    }
    if config.lock_memory {
        process::lock_memory()?;
    }
    let store =
        Store::new(store_config(&config)).map_err(|error| format!("cannot make the store: {error:?}"))?;
    if config.core_dumps {
        store.show_in_core_dumps();
    }
    store.set_automove(match config.reported.slab_automove {
        0 => Automove::Off,
        1 => Automove::Ages,
        _ => Automove::Always,
    });
    // A share of the least memory is left to items whatever the threads take.
    let for_http = http.as_ref().map_or(0, |_| admin::thread_bytes(&certificates));
    let worker_bytes = worker::WORKER_BYTES + certificates.worker_bytes();
    let for_threads = (config.threads as u64 * worker_bytes + for_http).min(config.memory_bytes / 8);
    store.set_aside(for_threads as i64);
    let pid_file =
        config.pid_file.as_deref().map(process::PidFile::write).transpose().map_err(Failure::file)?;
    if let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        let http = http.as_ref().map(|http| http.address);
        let written = listen::write_port_file(path.as_ref(), &bound, http);
        written.map_err(|error| {
            let reason = process::missing_folder(path.as_ref()).unwrap_or_else(|| error.to_string());
            Failure::file(format!("MEMCACHED_PORT_FILENAME: {reason}"))
        })?;
    }
    let asks_nobody = |at: &&Bound| at.tls.as_ref().is_none_or(|tls| tls.clients != ClientAuth::Required);
    for at in bound.iter().filter(asks_nobody).filter(|at| config.is_open(&at.address, at.speaks)) {
        tracing::warn!(address = %at.address, "every machine that reaches this address may read and write");
    }
    if config.passes_over_password() {
        tracing::warn!(
            "--requirepass is ignored: --aclfile has a line for the default user, whose passwords are those of that line"
        );
    }
    // Behind all that needs other files, sockets or rights, and before threads that serve.
    let confinement = Confinement::begin(&config)?;
    log.confine(confinement.clone());
    let started = Instant::now();
    let hub = Hub::new(config, store, listeners, log, Clock::Machine { started });
    let hub = hub.map_err(|error| format!("cannot start: {error}"))?;
    let hub = Arc::new(Hub { certificates, confinement, ..hub });
    if let Some(http) = http.as_ref().filter(|http| !http.address.ip().is_loopback())
        && let Some(warning) = admin::warning(&hub, http.address.ip())
    {
        tracing::warn!(address = %http.address, "{warning}");
    }
    if http.is_some() {
        // Before workers begin: so that each samples from its first request on.
        hub.shared.show_traffic(&hub.store, hub.config.threads as u32, 0);
    }
    let mapper = Mapper::start(&hub.store, &hub.confinement);
    let mapper = mapper.map_err(|error| format!("cannot start a thread: {error}"))?;
    // The loop over sockets alone is compiled apart, so that a server without TLS does nothing for it.
    if hub.certificates.any() {
        let transport =
            |listener: usize, socket: Socket| hub.certificates.transport(hub.listeners[listener].tls, socket);
        run(&hub, bound, http, &signals, started, transport)?;
    } else {
        run(&hub, bound, http, &signals, started, |_, socket| Ok(socket))?;
    }
    mapper.end();
    drop(pid_file);
    Ok(())
}

/// Serves until the server is told to stop, over streams that `stream` makes of sockets of the listener of an index.
fn run<S: Stream + AsFd + Send + 'static>(
    hub: &Arc<Hub>,
    bound: Vec<Bound>,
    http: Option<Http>,
    signals: &Signals,
    started: Instant,
    stream: impl Fn(usize, Socket) -> io::Result<S>,
) -> Result<(), Failure> {
    let (end, ended) = mpsc::channel();
    let (workers, arrivals) = start_workers(hub, started, &end)?;
    drop(end);
    let told_at = http.as_ref().map(|http| http.address);
    let admin = http.map(|http| Admin::start(hub, http.listener)).transpose();
    let admin = admin.map_err(|error| format!("--http-port: cannot start its thread: {error}"))?;
    if process::is_detached() {
        process::say_ready();
    } else {
        let _ = writeln!(std::io::stdout(), "{}", greeting(hub, told_at));
    }
    let accepted = Listeners::new(hub, &bound, signals, started, stream).and_then(|listeners| {
        hub.confinement.enter(Role::Acceptor);
        Acceptor::new(Arc::clone(hub), listeners, arrivals).run()
    });
    if let Some(admin) = admin {
        admin.end();
    }
    stop(hub, bound);
    // Nothing is sent on the channel: it is closed when the last worker has ended.
    if ended.recv_timeout(STOP) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!(
            "a worker is still running 35 s after the order to stop, in a script or in what clients have begun: the process ends without it"
        );
    } else {
        for worker in workers {
            let _ = worker.join();
        }
    }
    Ok(accepted.map_err(|error| format!("cannot accept connections: {error}"))?)
}

/// Ends the server: no more connections, then each worker.
fn stop(hub: &Hub, bound: Vec<Bound>) {
    // Removed while it is listened on: another server that starts takes a socket over only where no server answers.
    if let Some(path) = &hub.config.unix_socket {
        let _ = std::fs::remove_file(path);
    }
    drop(bound);
    hub.stop_workers();
}

/// The workers' threads, each of which drops `end` at its own end, and where connections go to them.
fn start_workers<S: Stream + AsFd + Send + 'static>(
    hub: &Arc<Hub>,
    started: Instant,
    end: &Sender<Infallible>,
) -> Result<(Vec<JoinHandle<()>>, Arrivals<S>), String> {
    let arrivals: Arrivals<S> =
        hub.handles.iter().map(|handle| Arc::new(Mailbox::new(&handle.waker))).collect();
    let start = |(index, arrivals): (usize, &Arc<Mailbox<Arrival<S>>>)| {
        let store = hub.store.worker().map_err(|error| format!("cannot make a worker: {error:?}"))?;
        let (hub, arrivals, end) = (Arc::clone(hub), Arc::clone(arrivals), end.clone());
        let work = move || {
            let _end = end;
            let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            hub.handles[index].thread.store(thread, SeqCst);
            let backend = Epoll::new(&hub.handles[index].waker, started)?;
            hub.confinement.enter(Role::Worker);
            Worker::new(hub, index, store, backend, arrivals).run()
        };
        std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(error) = work() {
                    // Its connections would hang: better none than some.
                    complain(&format!("worker {index} cannot run: {error}"));
                    std::process::exit(sysexits::SYSTEM.into());
                }
            })
            .map_err(|error| format!("-t: cannot start thread {index}: {error}"))
    };
    let threads = arrivals.iter().enumerate().map(start).collect::<Result<_, String>>()?;
    Ok((threads, arrivals))
}

/// The seed of the store's hashes: random, so that no client can choose keys that collide. Builds that are compared by their
/// instructions have one seed.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    if cfg!(feature = "counted") { 1 } else { std::hash::RandomState::new().build_hasher().finish() }
}

fn store_config(config: &Config) -> larder_store::Config {
    larder_store::Config {
        memory_bytes: config.memory_bytes,
        memory_bytes_max: config.memory_bytes_max.unwrap_or(0).max(config.memory_bytes),
        workers_max: config.threads,
        evict: config.evict,
        seed: seed(),
    }
}

fn greeting(hub: &Hub, told_at: Option<SocketAddr>) -> String {
    let place = |listener: &Listener| {
        let tls = if listener.tls.is_some() { " (TLS)" } else { "" };
        format!("{}{tls}", listener.address)
    };
    let places: Vec<String> = hub.listeners.iter().map(place).collect();
    let places = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
    let threads = hub.handles.len();
    let shown = |at| format!("; {}", admin::shown(at, hub.certificates.http_speaks_tls()));
    let told = told_at.map(shown).unwrap_or_default();
    format!(
        "larder {} listens on {places}, {} MB of memory, {threads} thread{}{told}",
        env!("CARGO_PKG_VERSION"),
        hub.config.memory_bytes >> 20,
        if threads == 1 { "" } else { "s" },
    )
}

/// Signals turned into bytes of pipes. The second signal to stop ends the process at once.
#[derive(Debug)]
struct Signals {
    /// The server is to stop.
    stop: UnixStream,
    /// It is to read files again.
    reload: UnixStream,
}

impl Signals {
    fn catch() -> std::io::Result<Signals> {
        let (stop, write) = UnixStream::pair()?;
        stop.set_nonblocking(true)?;
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGUSR1] {
            // Registered first, so that it sees the flag as the signal before left it.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stopping))?;
            signal_hook::flag::register(signal, Arc::clone(&stopping))?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        // A terminal that goes away sends SIGHUP, too, and must not take the server along.
        let (reload, write) = UnixStream::pair()?;
        reload.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGHUP, write)?;
        Ok(Signals { stop, reload })
    }
}
