//! What all threads of a server share, and the sessions' view of it.

use std::fmt::{self, Display};
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use larder_commands::{
    Connection, Counters, Delivery, FiledUsers, Followed, Host, Machine, OUTBOX_BYTES_MAX, Outbox, Pace,
    Process, RedisSettings, Settings, Shared, Speaks, StageTimes, Target, USERS_FILE_BYTES_MAX, UsersFile,
};
use larder_eventloop::poll::Waker;
use larder_eventloop::socket::Address;
use larder_eventloop::{Millis, RECEIVE_BYTES};
use larder_store::Store;
use larder_tls::LoadError;
use zeroize::Zeroizing;

use crate::addresses::Addresses;
use crate::awake::Awake;
use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::config::{Config, Protocol, UNAUTHENTICATED_SHARE};
use crate::confine::Confinement;
use crate::listener::Listener;
use crate::log::{Log, Rarely};
use crate::mailbox::Mailbox;
use crate::pending_closes::{PendingClose, PendingCloses};
use crate::process;
use crate::rates::Rates;
use crate::settings::tuning;
use crate::stalls::Stalls;
use crate::table::Table;
use crate::tls;
use crate::worker::timing::{Counts, PROTOCOLS, STAGES, STEPS, Stages, quantile};

/// Asks a worker to close a connection if its replies, or its request that has come in part, have stood still since then: others
/// need the memory.
#[derive(Debug)]
pub struct Shed {
    /// Its place in the worker's loop.
    pub index: usize,
    /// On the loops' clock.
    pub since: Millis,
    /// Its request stands still, and not its replies.
    pub input: bool,
}

/// A worker as the others see it.
#[derive(Debug)]
pub struct Handle {
    /// Wakes it.
    pub waker: Arc<Waker>,
    /// What other workers ask of it.
    pub mailbox: Mailbox<Shed>,
    /// The worker is to end.
    pub stop: AtomicBool,
    /// Users were removed, and some of its clients may be such users.
    pub users_removed: AtomicBool,
    /// Deliveries that wait for its clients.
    pub outbox: Outbox,
    /// Its clients that others want closed.
    pub pending_closes: PendingCloses,
    /// Its clients that wait, and are to be looked at.
    pub awake: Awake,
    /// Its counters.
    pub counters: Counters,
    /// Where the time of its requests goes.
    pub stages: Stages,
    /// Its connections, those on their way to it included.
    pub connections: AtomicUsize,
    /// The system's number of its thread; 0 before that has begun.
    pub thread: AtomicU32,
}

/// Counts of a server's connections.
#[derive(Debug, Default)]
pub struct Tally {
    /// Taken over since start.
    pub accepted: AtomicU64,
    /// Refused for want of room.
    pub rejected: AtomicU64,
    /// Refused because their addresses had as many as they may.
    pub rejected_per_address: AtomicU64,
    /// Closed because more waited for them than for a subscriber may.
    pub listeners_cut: AtomicU64,
    /// Times that accepting paused.
    pub pauses: AtomicU64,
    /// Time for which it paused, microseconds.
    pub paused_us: AtomicU64,
    /// Accepting pauses now.
    pub paused: AtomicBool,
    /// Closed because a client began a TLS handshake where none is spoken.
    pub tls_on_plain_ports: AtomicU64,
}

/// What all threads of a server share.
#[derive(Debug)]
pub struct Hub {
    /// What it was started with.
    pub config: Config,
    /// The store.
    pub store: Arc<Store>,
    /// What sessions share.
    pub shared: Shared,
    /// One per worker.
    pub handles: Box<[Handle]>,
    /// Live connections.
    pub table: Table,
    /// Counts of connections.
    pub tally: Tally,
    /// Connections of each address.
    pub addresses: Addresses,
    /// Requests of each address.
    pub rates: Rates,
    /// Where the server listens.
    pub listeners: Vec<Listener>,
    /// TLS of the listeners.
    pub certificates: Certificates,
    /// What its threads may ask of the system.
    pub confinement: Confinement,
    /// What the files of users said when they were read last.
    pub filed: Mutex<FiledUsers>,
    /// Wakes the acceptor.
    pub waker: Waker,
    /// Connections that may be open.
    pub connections_max: AtomicUsize,
    /// A client asked the server to stop.
    pub stop: AtomicBool,
    /// When workers were told to come to their end, on the loops' clock.
    pub stopped_at: AtomicU64,
    /// When a line last said that requests on their way in hold too much.
    pub crowded_out: Mutex<Rarely>,
    /// When a line last said that a client speaks TLS where it is not spoken.
    pub tls_on_plain_port: Mutex<Rarely>,
    /// The machine, as the thread that shows figures saw it last.
    pub machine: Mutex<Machine>,
    /// What held workers up.
    pub stalls: Stalls,
    /// The log's level.
    pub log: Log,
    /// Its time, which the loops' clocks count from its start.
    pub clock: Clock,
}

impl Hub {
    /// Has a worker close one of its RESP clients, if it is still there.
    fn have_closed(&self, place: u64, client: u64, missed: bool) {
        let (worker, index) = ((place >> 32) as usize, (place & u64::from(u32::MAX)) as usize);
        let handle = &self.handles[worker];
        if handle.pending_closes.add(client, PendingClose { index, missed }) {
            handle.waker.wake();
        }
    }

    /// A hub for a configuration, whose server has these listeners.
    ///
    /// # Errors
    /// When wakers cannot be had (too many open files).
    pub fn new(
        config: Config,
        store: Arc<Store>,
        listeners: Vec<Listener>,
        log: Log,
        clock: Clock,
    ) -> std::io::Result<Hub> {
        let handle = |_| {
            let waker = Arc::new(Waker::new()?);
            Ok(Handle {
                mailbox: Mailbox::new(&waker),
                waker,
                stop: AtomicBool::new(false),
                users_removed: AtomicBool::new(false),
                outbox: Outbox::default(),
                pending_closes: PendingCloses::default(),
                awake: Awake::default(),
                counters: Counters::default(),
                stages: Stages::default(),
                connections: AtomicUsize::new(0),
                thread: AtomicU32::new(0),
            })
        };
        let handles = (0..config.threads).map(handle).collect::<std::io::Result<_>>()?;
        let mut shared = Shared::new(settings(&config), redis_settings(&config));
        shared.memcached.tuning = tuning(&config);
        Ok(Hub {
            shared,
            table: Table::new(config.threads),
            handles,
            tally: Tally::default(),
            addresses: Addresses::new(config.connections_per_address),
            rates: Rates::new(config.requests_per_second),
            listeners,
            certificates: Certificates::default(),
            confinement: Confinement::default(),
            filed: Mutex::new(config.filed_users()),
            waker: Waker::new()?,
            stop: AtomicBool::new(false),
            stopped_at: AtomicU64::new(0),
            connections_max: AtomicUsize::new(config.connections_max),
            crowded_out: Mutex::default(),
            tls_on_plain_port: Mutex::default(),
            machine: Mutex::default(),
            stalls: Stalls::default(),
            clock,
            config,
            store,
            log,
        })
    }

    /// Connections that may be open.
    pub fn connections_max(&self) -> usize {
        self.connections_max.load(SeqCst)
    }

    /// The first TCP port where RESP is spoken, or 0.
    pub fn redis_port(&self) -> u16 {
        let port = |listener: &Listener| match &listener.address {
            Address::Tcp(address) => Some((listener.speaks == Speaks::Any, address.port())),
            Address::Unix(_) => None,
        };
        // A port for Redis's clients alone comes before one for both.
        self.listeners.iter().filter_map(port).min().map_or(0, |(_, port)| port)
    }

    /// The number of the connection at this place.
    pub fn number(&self, place: u64) -> u64 {
        let (worker, index) = (place >> 32, place & u64::from(u32::MAX));
        self.listeners.len() as u64 + 1 + index * self.handles.len() as u64 + worker
    }

    /// Connections open now, those on their way to a worker included.
    pub fn connections(&self) -> usize {
        self.handles.iter().map(|handle| handle.connections.load(Relaxed)).sum()
    }

    /// Adds what all workers have timed of a protocol.
    pub fn add_times(&self, counts: &mut Counts, protocol: usize) {
        self.handles.iter().for_each(|handle| handle.stages.add_to(counts, protocol));
    }

    /// Tells each worker to end. Not by the mailboxes, which may be full.
    pub fn stop_workers(&self) {
        // Before the flags: a worker that sees its own sees the time, too.
        self.stopped_at.store(self.clock.elapsed_ns() / 1_000_000, SeqCst);
        for handle in &self.handles {
            handle.stop.store(true, SeqCst);
            handle.waker.wake();
        }
    }

    /// Connections that may be in TLS handshakes: as many as may be unauthenticated.
    pub fn handshakes_max(&self) -> usize {
        (self.connections_max() / UNAUTHENTICATED_SHARE).max(1)
    }

    /// Notes that a connection's TLS handshake is over, however it ended.
    pub fn handshake_ended(&self) {
        if self.certificates.end() {
            self.waker.wake();
        }
    }

    /// Notes that a handshake that was counted (`begins`) does not begin.
    pub(crate) fn handshake_not_begun(&self, begins: bool) {
        if begins {
            self.handshake_ended();
        }
    }

    /// Notes that a connection of `worker` from `peer` has ended.
    pub fn ended(&self, worker: usize, peer: &Address) {
        self.addresses.leave(peer, &self.store);
        self.handles[worker].connections.fetch_sub(1, SeqCst);
        // Pairs with the acceptor, which first says that it pauses and then counts again.
        if self.tally.paused.load(SeqCst) {
            self.waker.wake();
        }
    }
}

/// What sessions need to know of a configuration.
fn settings(config: &Config) -> Settings {
    Settings {
        item_bytes_max: config.item_bytes_max(),
        cas: config.cas,
        flush: config.flush,
        dump: config.dump,
        watch: config.watch,
        watch_bytes_max: config.reported.watcher_logbuf_bytes as usize,
        shutdown: config.shutdown,
        debugtime: config.relaxed_privileges,
        requests_per_event: config.requests_per_event,
        run_bytes_min: None,
        prefix_delimiter: config.prefix_delimiter.unwrap_or(b':'),
        detail: config.prefix_delimiter.is_some(),
        lru_crawler: config.lru_crawler,
        lru_maintainer: config.lru_maintainer,
        track_sizes: config.track_sizes,
        slab_reassign: config.reported.slab_reassign,
        slab_sizes: config.slab_sizes(),
        speaks_tls: config.tls || config.redis_tls_port.is_some() || config.http_tls,
        tls: config.tls,
        tls_sessions: config.tls && config.tls_options.cache.resumption,
        idle_timeout: config.idle_timeout_s > 0,
        append_bytes_max: config.append_bytes_max(),
        unauthenticated_max: config.unauthenticated_max(),
        binary: config.protocol() != Protocol::Ascii,
        text: config.protocol() != Protocol::Binary,
        password: config.password.clone(),
        users: config.users.clone(),
        ruled: config.ruled.clone(),
        all_channels: config.all_channels,
        strict_framing: config.strict_framing,
        text_auth: config.text_auth,
    }
}

/// What RESP's sessions need to know besides [`settings`].
fn redis_settings(config: &Config) -> RedisSettings {
    RedisSettings {
        detected: config.protocol() == Protocol::Auto,
        debug: config.debug,
        protected: config.protected,
    }
}

/// `tcp:127.0.0.1:11211`, `tcp6:[::1]:11211`, `unix:/path`, as `stats conns` shows them.
fn shown(address: &Address) -> String {
    match address {
        Address::Tcp(address) if address.is_ipv6() => format!("tcp6:{address}"),
        Address::Tcp(address) => format!("tcp:{address}"),
        Address::Unix(_) => address.to_string(),
    }
}

/// Deliveries for one worker may hold one part in this many of what all connections may hold.
const POST_SHARE: u64 = 4;

/// Places of `Host::connections` from here on are connections; below are listeners.
const FIRST_CONNECTION: u64 = 1 << 16;

impl Hub {
    /// Reads files again that may have changed (SIGHUP), and logs what came of it.
    pub fn reload(&self) {
        let certificates = self.refresh_certificates();
        let users = self.refresh_users();
        if certificates.is_none() && users.is_none() {
            tracing::info!(
                "SIGHUP: there is nothing to read again: no listener speaks TLS, and no file has users"
            );
        }
        match certificates {
            None => {}
            Some(Ok(())) => tracing::info!("SIGHUP: TLS certificates were read again"),
            Some(Err(error)) => tracing::error!(%error, "SIGHUP: TLS certificates stay as they were"),
        }
        match users {
            None => {}
            Some(Ok(Followed { added, changed, removed })) => {
                tracing::info!(added, changed, removed, "SIGHUP: users were read again");
            }
            Some(Err(error)) => tracing::error!(%error, "SIGHUP: users stay as they were"),
        }
    }

    /// Reads the files of users again, if there are any: all their changes are carried out, or none.
    fn refresh_users(&self) -> Option<Result<Followed, String>> {
        let files = &self.config.users_files;
        if !files.any() {
            return None;
        }
        let mut filed = self.filed.lock().unwrap_or_else(PoisonError::into_inner);
        let follow = |now| {
            let done = self.shared.follow_files(&filed, &now, self);
            *filed = now;
            done
        };
        Some(files.read().map(follow))
    }
}

/// `--aclfile`
#[derive(Debug)]
struct RulesFile {
    path: String,
}

impl UsersFile for RulesFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn read(&self) -> std::io::Result<Zeroizing<Vec<u8>>> {
        let mut text = Zeroizing::new(Vec::new());
        let file = crate::values::open_file(&self.path)?;
        // Reserved at once, so that no shorter copy is left behind while it grows.
        text.reserve_exact(file.metadata()?.len().min(USERS_FILE_BYTES_MAX) as usize + 1);
        let read = file.take(USERS_FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if read as u64 > USERS_FILE_BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        Ok(text)
    }

    fn write(&self, text: &[u8]) -> std::io::Result<()> {
        crate::values::replace_file(std::path::Path::new(&self.path), text)
    }
}

impl Host for Hub {
    fn users_file(&self) -> Option<Arc<dyn UsersFile>> {
        let path = self.config.rules_file.clone()?;
        Some(Arc::new(RulesFile { path }))
    }

    fn counters(&self, visit: &mut dyn FnMut(&Counters)) {
        self.handles.iter().for_each(|handle| visit(&handle.counters));
    }

    fn process(&self) -> Process {
        let cpu = self.clock.process_cpu();
        let connections = self.connections() as u64;
        let threads = self.config.threads as u64;
        let tls = self.certificates.counters();
        let per_address = self.tally.rejected_per_address.load(Relaxed);
        Process {
            pid: self.clock.process_id(),
            uptime_s: self.clock.elapsed().as_secs() + UPTIME_AT_START_S,
            eventloop: concat!("epoll-larder-", env!("CARGO_PKG_VERSION")),
            user_us: cpu.user.as_micros() as u64,
            system_us: cpu.system.as_micros() as u64,
            connections_max: self.connections_max() as u64,
            connections,
            connections_total: self.tally.accepted.load(Relaxed),
            connections_rejected: self.tally.rejected.load(Relaxed) + per_address,
            connections_rejected_per_address: per_address,
            connections_per_address_max: u64::from(self.config.connections_per_address),
            requests_per_second_max: u64::from(self.config.requests_per_second),
            connection_structures: connections,
            reserved_fds: (3 * self.config.threads + self.listeners.len()) as u64,
            receive_buffers: threads,
            receive_buffer_bytes: threads * RECEIVE_BYTES as u64,
            receive_buffer_bytes_free: threads * RECEIVE_BYTES as u64,
            open: self
                .listeners
                .iter()
                .any(|listener| self.config.is_open(&listener.address, listener.speaks)),
            accepting: !self.tally.paused.load(Relaxed),
            listeners_cut: self.tally.listeners_cut.load(Relaxed),
            accept_pauses: self.tally.pauses.load(Relaxed),
            accept_paused_us: self.tally.paused_us.load(Relaxed),
            tls_handshakes: tls.handshakes.load(Relaxed),
            tls_resumptions: tls.resumptions.load(Relaxed),
            tls_new_sessions: tls.new_sessions.load(Relaxed),
            tls_handshake_errors: tls.handshake_errors.load(Relaxed),
            tls_protocol_errors: tls.protocol_errors.load(Relaxed),
            tls_certificates_age_s: self.certificates.age_s(self.clock.elapsed().as_secs()),
            tls_certificate_not_after_s: self.certificates.not_after_s(),
            tls_on_plain_ports: self.tally.tls_on_plain_ports.load(Relaxed),
            threads,
            log_lines: self.log.lines(),
            log_lines_dropped: self.log.dropped(),
        }
    }

    fn asks_system(&self) -> bool {
        self.clock.is_of_machine()
    }

    fn machine(&self) -> Machine {
        let seen = self.machine.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Machine { idle_options: crate::options::given_for_nothing(&self.config), ..seen }
    }

    fn stage_times(&self, visit: &mut dyn FnMut(&StageTimes)) {
        for (number, protocol) in PROTOCOLS.into_iter().enumerate() {
            let mut counts: Counts = [[0; STEPS]; STAGES.len()];
            self.add_times(&mut counts, number);
            for (stage, counts) in STAGES.into_iter().zip(&counts) {
                let count: u64 = counts.iter().sum();
                let us = |part| if count == 0 { 0.0 } else { f64::from(quantile(counts, count, part)) / 1e3 };
                let quantiles_us = StageTimes::QUANTILES.map(|(_, part)| us(part));
                visit(&StageTimes { protocol, stage, count, quantiles_us });
            }
        }
    }

    fn set_connections_max(&self, max: u64) -> Result<(), u64> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        process::allow_more_descriptors(max, self.config.threads)?;
        self.connections_max.store(max, SeqCst);
        // As when a connection has ended: there may be room now.
        if self.tally.paused.load(SeqCst) {
            self.waker.wake();
        }
        Ok(())
    }

    fn kill(&self, place: u64, client: u64) {
        self.have_closed(place, client, false);
    }

    fn wake(&self, place: u64, client: u64) {
        let handle = &self.handles[(place >> 32) as usize];
        if handle.awake.add((place & u64::from(u32::MAX)) as usize, client) {
            handle.waker.wake();
        }
    }

    fn users_removed(&self) {
        for handle in &self.handles {
            // A worker that has not looked since the last time was woken then: EXEC may remove thousands of users one by one.
            if !handle.users_removed.swap(true, SeqCst) {
                handle.waker.wake();
            }
        }
    }

    fn post(&self, worker: usize, deliveries: Vec<Delivery>) {
        let handle = &self.handles[worker];
        let bytes_max = OUTBOX_BYTES_MAX.min((self.store.held_bytes_max() / POST_SHARE) as usize);
        // Noted with the outbox in hand: the worker knows of it when it takes deliveries that follow.
        let mut missed = |target: Target| self.have_closed(target.place, target.client, true);
        if handle.outbox.add(deliveries, bytes_max, &mut missed, |bytes| self.store.hold(bytes as i64)) {
            handle.waker.wake();
        }
    }

    fn fetch(&self, place: u64, client: u64) -> Vec<Delivery> {
        let handle = &self.handles[(place >> 32) as usize];
        let (deliveries, bytes) = handle.outbox.take_for(client);
        self.store.hold(-(bytes as i64));
        if handle.pending_closes.has_missed(client) { Vec::new() } else { deliveries }
    }

    fn clock_us(&self) -> u64 {
        self.clock.elapsed().as_micros() as u64
    }

    fn script_pace(&self) -> Pace {
        self.clock.script_pace()
    }

    fn settings(&self, visit: &mut dyn FnMut(&str, &dyn Display)) {
        crate::settings::visit(self, visit);
    }

    fn listeners(&self, visit: &mut dyn FnMut(&str, &dyn Display, u16)) {
        let speaks_resp = |listener: &&Listener| match listener.speaks {
            Speaks::Redis => true,
            Speaks::Any => self.config.protocol() == Protocol::Auto,
        };
        for listener in self.listeners.iter().filter(speaks_resp) {
            match &listener.address {
                Address::Tcp(address) => {
                    let name = if listener.tls.is_some() { "tls" } else { "tcp" };
                    visit(name, &address.ip(), address.port());
                }
                Address::Unix(path) => visit("unix", &path.display(), 0),
            }
        }
    }

    fn connections(&self, from: u64, max: usize, visit: &mut dyn FnMut(&Connection)) -> Option<u64> {
        let mut visited = 0;
        for (index, listener) in self.listeners.iter().enumerate().skip(from.min(FIRST_CONNECTION) as usize) {
            if visited == max {
                return Some(index as u64);
            }
            visit(&Connection {
                id: index as u64 + 1,
                address: shown(&listener.address),
                listen_address: None,
                state: "conn_listening",
                idle_s: 0,
            });
            visited += 1;
        }
        let now = self.clock.elapsed().as_millis() as Millis;
        let start = from.saturating_sub(FIRST_CONNECTION);
        let next = self.table.visit(start, max - visited, &mut |place, facts| {
            visit(&Connection {
                // Unlike a descriptor, it does not depend on the system; it is unique all the same.
                id: self.number(place),
                address: shown(&facts.peer),
                listen_address: Some(shown(&self.listeners[facts.listener].address)),
                state: facts.state(),
                idle_s: now.saturating_sub(facts.received_at()) / 1000,
            });
        });
        next.map(|place| place + FIRST_CONNECTION)
    }

    fn refresh_certificates(&self) -> Option<Result<(), String>> {
        let now_s = self.clock.elapsed().as_secs();
        // One line, whatever is in a file's name.
        let line = |error: LoadError| error.to_string().replace(|char: char| char.is_control(), " ");
        let refresh = || self.certificates.refresh(now_s).map_err(line);
        self.certificates.any_files().then(refresh)
    }

    fn note_tls_on_plain_port(&self) {
        self.tally.tls_on_plain_ports.fetch_add(1, Relaxed);
        let now = self.clock.elapsed().as_millis() as Millis;
        let due = self.tls_on_plain_port.lock().unwrap_or_else(PoisonError::into_inner).due(now);
        if let Some(times) = due {
            tracing::warn!(times, "TLS on a plain port: connection closed");
        }
    }

    fn tls_parameter(&self, name: &str) -> Option<String> {
        if name == "tls-port" {
            let of_redis = |listener: &&Listener| listener.tls.is_some() && listener.speaks == Speaks::Redis;
            let port = self.listeners.iter().find(of_redis).map(|listener| match &listener.address {
                Address::Tcp(address) => address.port(),
                Address::Unix(_) => 0,
            });
            return Some(port.unwrap_or(0).to_string());
        }
        tls::get(&self.certificates.options().redis, name)
    }

    fn set_tls(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn FnOnce() + '_>, (usize, String)> {
        let now_s = || self.clock.elapsed().as_secs();
        let before = self.certificates.set(parameters, now_s())?;
        Ok(Box::new(move || self.certificates.take_back(before, now_s())))
    }

    fn shutdown(&self, graceful: bool) {
        tracing::info!(graceful, "a client asked the server to stop");
        self.stop.store(true, SeqCst);
        self.waker.wake();
    }

    fn note(&self, level: u8, text: &str) {
        match level {
            0 => tracing::trace!(text, "script"),
            1 => tracing::debug!(text, "script"),
            2 => tracing::info!(text, "script"),
            _ => tracing::warn!(text, "script"),
        }
    }

    fn verbosity(&self, level: u8) {
        self.log.set(level);
    }
}

/// memcached's clock starts there, so that an item of its first second is not from before the start.
const UPTIME_AT_START_S: u64 = 2;

/// Text of a switch in `stats settings`.
pub(crate) struct YesNo(pub bool);

impl Display for YesNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "yes" } else { "no" })
    }
}

/// Text of the protocols.
impl Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Auto => "auto-negotiate",
            Protocol::Ascii => "ascii",
            Protocol::Binary => "binary",
        })
    }
}
