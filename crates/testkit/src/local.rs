//! A server without sockets: sessions over one store, on the calling thread, with a clock that moves only when a test moves it.
//!
//! It does what a worker does around a session, so that transcripts, the model and the counting
//! allocator see the same path as a client, only without the kernel in between.

use crate::host::LocalHost;
use crate::runner::{Received, Wire};
use larder_commands::{
    Context, Counter, DebugCommand, Delivery, Digest, Next, Output, Pace, RedisSettings, Room, Session,
    Settings, Shared, Speaks, Sums,
};
use larder_store::{Config, Millis, Store, Worker};
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// When the clock starts: after every absolute time that a test writes as past.
pub const START: Millis = 1_800_000_000_000;
/// Bytes handed to a session at once: a worker's receive buffer.
const RECEIVE_BYTES: usize = 65536;
/// Replies at which a session is asked to stop until they are taken.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// The store of a server without other settings.
const CONFIG: Config =
    Config { memory_bytes: 64 << 20, memory_bytes_max: 1 << 30, workers_max: 2, evict: true, seed: 7 };

/// The server.
#[derive(Debug)]
pub struct Local {
    worker: Worker,
    shared: Arc<Shared>,
    host: LocalHost,
    room: Room,
    connections: HashMap<String, LocalConnection>,
    /// Connections speak RESP from their first byte on.
    resp: bool,
}

/// One connection, with its session.
#[derive(Debug, Default)]
pub struct LocalConnection {
    session: Session,
    /// Received bytes that the session has not consumed.
    input: Vec<u8>,
    output: Output,
    /// Replies that were taken from the session's output.
    sent: Vec<u8>,
    /// The client reads nothing, so replies stay in the output.
    stalled: bool,
    /// Whether its command is blocked.
    waits: bool,
    /// Milliseconds after which its blocked command times out.
    awaits_ms: Option<u64>,
    /// Milliseconds for which it sleeps; nothing wakes it before.
    sleeps_ms: Option<u64>,
    /// Whether each call gives it one turn only.
    turns: bool,
    /// Whether its request continues in the next turn.
    goes_on: bool,
    closed: bool,
}

/// Options with which clients may use DEBUG.
pub const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

impl Local {
    /// A new server whose clients may use DEBUG.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn with_debug() -> Result<Local, String> {
        Local::new(&DEBUG.map(str::to_owned))
    }

    /// A fresh server with memcached's option letters, as far as they mean something to a session.
    ///
    /// # Errors
    /// Names an option that needs a process.
    pub fn new(options: &[String]) -> Result<Local, String> {
        let (mut settings, mut redis) = (Settings::default(), RedisSettings::default());
        let mut config = CONFIG;
        let mut options = options.iter().map(String::as_str);
        while let Some(option) = options.next() {
            let mut value = || options.next().ok_or(format!("{option} wants a value"));
            match option {
                "-m" => config.memory_bytes = number(value()?)? << 20,
                "-t" => config.workers_max = number(value()?)? as usize,
                "-M" => config.evict = false,
                "-I" => settings.item_bytes_max = size(value()?)?,
                "-C" => settings.cas = false,
                "-F" => settings.flush = false,
                "-X" => settings.dump = false,
                "-W" => settings.watch = false,
                "-A" => settings.shutdown = true,
                "--enable-debug-command" => {
                    let (all, name) = ([DebugCommand::No, DebugCommand::Local, DebugCommand::Yes], value()?);
                    let found = all.into_iter().find(|debug| debug.name() == name);
                    redis.debug = found.ok_or(format!("{option} {name}"))?;
                }
                "-Y" | "--auth-file" => settings.users.extend(users(value()?)?),
                "-B" => {
                    let name = value()?;
                    redis.detected = false;
                    (settings.text, settings.binary) = (name != "binary", name != "ascii");
                }
                "-S" => (redis.detected, settings.text) = (false, false),
                "--strict-framing" => settings.strict_framing = true,
                "--text-auth" => settings.text_auth = value()? == "yes",
                "--requirepass" => settings.password = Some(value()?.into()),
                "-R" => settings.requests_per_event = Some(number(value()?)? as u32),
                "-D" => {
                    settings.prefix_delimiter = value()?.as_bytes()[0];
                    settings.detail = true;
                }
                "-o" => extended(&mut settings, value()?)?,
                other => return Err(format!("{other} needs a process")),
            }
        }
        Local::of(config, settings, redis)
    }

    /// A new server whose sessions look for runs of plain requests in input of at least this many bytes; `None`: as a real
    /// server's do.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn with_runs_from(run_bytes_min: Option<usize>) -> Result<Local, String> {
        Local::of(CONFIG, Settings { run_bytes_min, ..Settings::default() }, RedisSettings::default())
    }

    fn of(config: Config, settings: Settings, redis: RedisSettings) -> Result<Local, String> {
        let store = Store::new(config).map_err(|error| format!("{error:?}"))?;
        let worker = store.worker().map_err(|error| format!("{error:?}"))?;
        Ok(Local {
            worker,
            shared: Arc::new(Shared::new(settings, redis)),
            host: LocalHost::default(),
            room: Room::default(),
            connections: HashMap::new(),
            resp: false,
        })
    }

    /// Begins to sample the traffic.
    pub fn sample(&self) {
        self.shared.show_traffic(self.store(), 1, 0);
        self.shared.tend_samples(&self.room, self.store(), 0);
    }

    /// Another worker of the same server, for another thread. Deliveries between the two are dropped.
    ///
    /// # Errors
    /// There are two already, or as many as `-t` allows.
    pub fn sibling(&self) -> Result<Local, String> {
        Ok(Local {
            worker: self.store().worker().map_err(|error| format!("{error:?}"))?,
            shared: Arc::clone(&self.shared),
            host: LocalHost::default(),
            room: Room::default(),
            connections: HashMap::new(),
            resp: false,
        })
    }

    /// Makes connections speak RESP from their first byte on, if `resp`.
    #[must_use]
    pub fn speaking_resp(mut self, resp: bool) -> Local {
        self.resp = resp;
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        self.worker.store()
    }

    /// A new connection, for [`Local::exchange`].
    pub fn connection(&self) -> LocalConnection {
        LocalConnection { output: Output::new(REPLY_BYTES_MAX), ..LocalConnection::default() }
    }

    /// A connection whose replies are charged, as a worker's are.
    pub fn charged_connection(&self) -> LocalConnection {
        let output = Output::charged(REPLY_BYTES_MAX, self.store(), 64 << 10);
        LocalConnection { output, ..LocalConnection::default() }
    }

    /// A connection as [`Local::connection`] makes it, which speaks RESP from its first byte on.
    pub fn resp_connection(&mut self) -> LocalConnection {
        let session =
            Session::of(Speaks::Redis, &context(&mut self.worker, &self.shared, &self.host, &self.room));
        LocalConnection { session, ..self.connection() }
    }

    /// Hands `bytes` to the connection's session and collects its replies in [`LocalConnection::sent`].
    pub fn exchange(&mut self, connection: &mut LocalConnection, mut bytes: &[u8]) {
        while !bytes.is_empty() && !connection.closed {
            let mut cx = context(&mut self.worker, &self.shared, &self.host, &self.room);
            if connection.input.is_empty()
                && let Some(spaces) = connection.session.upload_spaces(&mut cx)
            {
                let before = bytes.len();
                for space in spaces {
                    let (now, later) = bytes.split_at(space.len().min(bytes.len()));
                    space[..now.len()].copy_from_slice(now);
                    bytes = later;
                }
                connection.session.upload_filled(before - bytes.len());
                // Without bytes: the session checks whether the value is complete.
                step(connection, &mut cx, &[]);
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(RECEIVE_BYTES));
            bytes = later;
            if connection.input.is_empty() {
                let consumed = step(connection, &mut cx, now);
                connection.input.extend_from_slice(&now[consumed..]);
            } else {
                let mut input = std::mem::take(&mut connection.input);
                input.extend_from_slice(now);
                let consumed = step(connection, &mut cx, &input);
                input.drain(..consumed);
                connection.input = input;
            }
        }
    }

    /// Lets the connection's session go on without new bytes.
    pub fn go_on(&mut self, connection: &mut LocalConnection) {
        let mut cx = context(&mut self.worker, &self.shared, &self.host, &self.room);
        let mut input = std::mem::take(&mut connection.input);
        let consumed = step(connection, &mut cx, &input);
        input.drain(..consumed);
        connection.input = input;
    }

    /// Takes the numbers of blocked clients that were served.
    pub fn awake(&self) -> Vec<u64> {
        std::mem::take(&mut *self.host.awake.lock().expect("no holder panics"))
    }

    /// Lets the sessions of blocked clients that were served go on.
    fn wake(&mut self) {
        loop {
            let awake = self.awake();
            if awake.is_empty() {
                return;
            }
            self.each(|connection| connection.client().is_some_and(|client| awake.contains(&client)));
        }
    }

    /// Lets the sessions of the connections go on that `which` chooses.
    fn each(&mut self, which: impl Fn(&LocalConnection) -> bool) {
        let mut connections = std::mem::take(&mut self.connections);
        let chosen = connections.values_mut().filter(|connection| which(connection));
        chosen.for_each(|connection| self.go_on(connection));
        self.connections = connections;
    }

    /// The time that passes at each look at the monotonic clock; a test may change it.
    pub fn look_us(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.host.look_us)
    }

    /// Moves the clock, and lets clients go on whose timeouts have passed.
    fn pass(&mut self, ms: u64) {
        self.host.clock_us.fetch_add(ms * 1000, Relaxed);
        self.each(|connection| connection.awaits_ms.is_some());
        self.wake();
    }

    /// Sets the time that passes at each look at a script.
    pub fn set_script_pace(&mut self, each: Duration) {
        self.host.script_pace = Some(Pace::Look(each));
    }

    /// Ends a connection. If others must see its present work as one moment, the work is finished first.
    pub fn ended(&mut self, mut connection: LocalConnection) {
        while connection.session.must_end() {
            self.go_on(&mut connection);
        }
        drop(connection);
        let mut guard = self.worker.enter(self.shared.now(START));
        self.shared.serve_left(&mut guard, &self.host);
    }

    /// Takes the deliveries that sessions have left for each other.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.host.outbox.take().0
    }

    /// Lets the store do its upkeep, a bounded number of steps.
    pub fn maintain(&mut self, steps: usize) {
        let now = self.shared.now(START);
        let mut guard = self.worker.enter(now);
        for _ in 0..steps {
            let more = self.shared.forget_subscriptions(guard.store());
            if !guard.maintain() && !more {
                return;
            }
        }
    }

    /// Moves the clock.
    pub fn shift(&mut self, delta_ms: i64) {
        self.shared.common.clock.shift(delta_ms);
    }

    /// The server's time.
    pub fn now(&self) -> Millis {
        self.shared.now(START)
    }
}

impl LocalConnection {
    /// Replies since the last [`LocalConnection::forget`].
    pub fn sent(&self) -> &[u8] {
        &self.sent
    }

    /// Takes a delivery, if it is for this connection.
    pub fn deliver(&mut self, delivery: &Delivery) {
        self.session.deliver(delivery, &mut self.output);
        take_replies(self);
    }

    /// Drops the replies, keeps their memory.
    pub fn forget(&mut self) {
        self.sent.clear();
    }

    /// Lets the client read nothing from now on: replies stay in the output, and keep the values that they
    /// pin.
    pub fn stall(&mut self) {
        self.stalled = true;
    }

    /// The number by which its blocked command is woken: its client's, if it speaks RESP.
    pub fn client(&self) -> Option<u64> {
        self.session.waiter()
    }

    /// Whether its command is blocked.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Makes each [`Local::exchange`] and [`Local::go_on`] run one turn: longer work continues with the next
    /// call.
    #[must_use]
    pub fn by_turns(mut self) -> LocalConnection {
        self.turns = true;
        self
    }

    /// Whether its request continues in later turns.
    pub fn goes_on(&self) -> bool {
        self.goes_on || self.waits
    }

    /// Whether the session has closed it.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

fn context<'c, 'w>(
    worker: &'w mut Worker,
    shared: &'c Shared,
    host: &'c LocalHost,
    room: &'c Room,
) -> Context<'c, 'w> {
    let guard = worker.enter(shared.now(START));
    Context::new(guard, &host.counters, shared, host, host, room)
}

/// Runs the session over `input` until it wants more; returns how much of it was consumed.
fn step(connection: &mut LocalConnection, cx: &mut Context<'_, '_>, input: &[u8]) -> usize {
    cx.flush_if_due();
    let mut consumed = 0;
    (connection.waits, connection.awaits_ms, connection.goes_on) = (false, None, false);
    connection.sleeps_ms = None;
    loop {
        let progress = connection.session.receive(cx, &input[consumed..], &mut connection.output);
        consumed += progress.consumed;
        take_replies(connection);
        match progress.next {
            Next::Receive => return consumed,
            Next::Flush if connection.stalled => return consumed,
            Next::Yield if connection.turns => {
                connection.goes_on = true;
                return consumed;
            }
            Next::Flush | Next::Yield => {}
            // The clock stands still: a sleeping client continues when the test moves the clock and sends something, or waits for
            // a reply.
            Next::Sleep(ms) => {
                connection.sleeps_ms = Some(ms);
                return consumed;
            }
            Next::Await(ms) => {
                (connection.waits, connection.awaits_ms) = (true, ms);
                return consumed;
            }
            Next::Close => {
                connection.closed = true;
                return input.len();
            }
        }
    }
}

/// Takes all replies, through as many slices at a time as a send would offer.
fn take_replies(connection: &mut LocalConnection) {
    const SLICES: usize = 64;
    if connection.stalled {
        return;
    }
    let LocalConnection { output, sent, .. } = connection;
    while !output.is_empty() {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let used = output.slices(&mut slices);
        let before = sent.len();
        slices[..used].iter().for_each(|slice| sent.extend_from_slice(slice));
        output.advance((sent.len() - before) as u64);
    }
}

impl Wire for Local {
    fn connect(&mut self, name: &str) -> Result<(), String> {
        let connection = if self.resp { self.resp_connection() } else { self.connection() };
        self.connections.insert(name.to_owned(), connection);
        Ok(())
    }

    fn send(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let mut connection = self.connections.remove(name).ok_or("not connected")?;
        self.exchange(&mut connection, bytes);
        self.connections.insert(name.to_owned(), connection);
        for delivery in self.deliveries() {
            self.connections.values_mut().for_each(|connection| connection.deliver(&delivery));
        }
        self.wake();
        Ok(())
    }

    fn receive(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<Received, String> {
        let connection = self.connections.get(name).ok_or("not connected")?;
        // The test waits for a reply: time passes up to the client's timeout, or to the end of its sleep.
        match (connection.awaits_ms, connection.sleeps_ms) {
            _ if !connection.sent.is_empty() => {}
            (Some(ms), _) => self.pass(ms),
            (None, Some(ms)) => {
                self.shift(ms as i64);
                self.pass(ms);
                self.each(|connection| connection.sleeps_ms.is_some());
            }
            (None, None) => {}
        }
        self.peek(name, buffer)
    }

    fn peek(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<Received, String> {
        let connection = self.connections.get_mut(name).ok_or("not connected")?;
        if !connection.sent.is_empty() {
            buffer.append(&mut connection.sent);
            return Ok(Received::Bytes);
        }
        Ok(if connection.closed { Received::Closed } else { Received::Silence })
    }

    fn hangup(&mut self, name: &str) {
        if let Some(connection) = self.connections.remove(name) {
            self.ended(connection);
            self.wake();
        }
    }

    fn advance(&mut self, seconds: u64) -> Result<(), String> {
        self.shift(i64::try_from(seconds).map_err(|_| "too far")? * 1000);
        self.pass(seconds * 1000);
        Ok(())
    }
}

impl Local {
    /// The value of a counter.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.host.counted(counter)
    }

    /// The sums of its worker's counters.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        sums.add(&self.host.counters);
        sums
    }
}

fn extended(settings: &mut Settings, list: &str) -> Result<(), String> {
    for name in list.split(',') {
        match name {
            "relaxed_privileges" => settings.debugtime = true,
            "no_lru_crawler" => settings.lru_crawler = false,
            "no_lru_maintainer" => settings.lru_maintainer = false,
            "track_sizes" => settings.track_sizes = true,
            other => return Err(format!("-o {other} needs a process")),
        }
    }
    Ok(())
}

/// Reads users and their passwords from a file of lines `user:password`.
fn users(path: &str) -> Result<Vec<(String, Digest)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let user = |line: &str| -> Result<(String, Digest), String> {
        let (user, password) = line.split_once(':').ok_or(format!("{path}: {line:?}"))?;
        Ok((user.to_owned(), password.into()))
    };
    text.lines().map(user).collect()
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn size(text: &str) -> Result<u64, String> {
    match text.strip_suffix('m') {
        Some(mebibytes) => Ok(number(mebibytes)? << 20),
        None => number(text),
    }
}
