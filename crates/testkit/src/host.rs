//! A host and a peer for sessions without a server around them: counters, deliveries, figures that stand still, and records of
//! what sessions report.

use larder_commands::{
    Connection, Counter, Counters, Delivery, Host, Outbox, Pace, Peer, Process, StageTimes, Sums,
};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The highest number of connections that [`LocalHost`] allows.
const CONNECTIONS_MAX: u64 = 1_000_000;
/// Time that passes at each look at a script, unless a test sets it: turns end at the same instructions on
/// every machine.
const SCRIPT_LOOK: Duration = Duration::from_micros(5);
/// The most log lines that are kept until a test takes them.
const NOTED_MAX: usize = 100;

/// The server, as its sessions see it.
#[derive(Debug, Default)]
pub struct LocalHost {
    /// The counters of its one worker.
    pub counters: Counters,
    /// How many connections `stats conns` visits.
    pub connections: u64,
    /// The settings that `stats settings` shows.
    pub settings: Vec<(&'static str, u64)>,
    /// Times of requests, by stage.
    pub stage_times: Vec<StageTimes>,
    /// Clients are on other machines.
    pub far: bool,
    /// The last value of `maxclients`.
    pub connections_max: AtomicU64,
    /// Deliveries between sessions.
    pub outbox: Outbox,
    /// Blocked clients whose sessions are to go on, until a test takes them.
    pub awake: Mutex<Vec<u64>>,
    /// The monotonic clock, in microseconds.
    pub clock_us: AtomicU64,
    /// Time that passes at each look at that clock.
    pub look_us: Arc<AtomicU64>,
    /// The last log lines, with their levels.
    pub noted: Mutex<VecDeque<(u8, String)>>,
    /// Number of clients that began a TLS handshake on a plain port.
    pub tls_on_plain_ports: AtomicU64,
    /// How long a script has worked, if a test decides that.
    pub script_pace: Option<Pace>,
}

impl LocalHost {
    /// The value of a counter.
    pub fn counted(&self, counter: Counter) -> u64 {
        let mut sums = Sums::default();
        sums.add(&self.counters);
        sums.of(counter)
    }

    /// Takes the log lines since the last call, the last 100 at most, with their levels.
    pub fn take_noted(&self) -> Vec<(u8, String)> {
        self.noted.lock().expect("no holder panics").drain(..).collect()
    }
}

impl Peer for LocalHost {
    fn address(&self) -> String {
        "127.0.0.1:50000".into()
    }

    fn is_local(&self) -> bool {
        !self.far
    }

    fn listen_address(&self) -> Arc<str> {
        "127.0.0.1:6379".into()
    }

    fn place(&self) -> u64 {
        0
    }

    fn number(&self) -> u64 {
        7
    }
}

impl Host for LocalHost {
    fn counters(&self, visit: &mut dyn FnMut(&Counters)) {
        visit(&self.counters);
    }

    fn process(&self) -> Process {
        let connections_max = self.connections_max.load(Relaxed);
        let process =
            Process { pid: 1, uptime_s: 2, eventloop: "none", connections_max, ..Process::default() };
        Process { accepting: true, threads: 1, ..process }
    }

    fn stage_times(&self, visit: &mut dyn FnMut(&StageTimes)) {
        self.stage_times.iter().for_each(visit);
    }

    fn set_connections_max(&self, max: u64) -> Result<(), u64> {
        if max > CONNECTIONS_MAX {
            return Err(CONNECTIONS_MAX);
        }
        self.connections_max.store(max, Relaxed);
        Ok(())
    }

    fn settings(&self, visit: &mut dyn FnMut(&str, &dyn fmt::Display)) {
        self.settings.iter().for_each(|(name, value)| visit(name, value));
    }

    fn connections(&self, from: u64, max: usize, visit: &mut dyn FnMut(&Connection)) -> Option<u64> {
        let to = self.connections.min(from + max as u64);
        for id in from..to {
            visit(&Connection { id, address: "tcp:127.0.0.1:1".into(), ..Connection::default() });
        }
        Some(to).filter(|&to| to < self.connections)
    }

    fn kill(&self, _place: u64, _client: u64) {}

    fn wake(&self, _place: u64, client: u64) {
        self.awake.lock().expect("no holder panics").push(client);
    }

    fn post(&self, _worker: usize, deliveries: Vec<Delivery>) {
        self.outbox.add(deliveries, usize::MAX, &mut |_| {}, |_| ());
    }

    fn fetch(&self, _place: u64, client: u64) -> Vec<Delivery> {
        self.outbox.take_for(client).0
    }

    fn clock_us(&self) -> u64 {
        self.clock_us.fetch_add(self.look_us.load(Relaxed), Relaxed)
    }

    fn script_pace(&self) -> Pace {
        self.script_pace.unwrap_or(Pace::Look(SCRIPT_LOOK))
    }

    fn refresh_certificates(&self) -> Option<Result<(), String>> {
        None
    }

    fn tls_parameter(&self, _name: &str) -> Option<String> {
        None
    }

    fn set_tls(&self, parameters: &[(&str, &str)]) -> Result<Box<dyn FnOnce() + '_>, (usize, String)> {
        if parameters.is_empty() { Ok(Box::new(|| ())) } else { Err((0, "there is no TLS here".into())) }
    }

    fn note_tls_on_plain_port(&self) {
        self.tls_on_plain_ports.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _graceful: bool) {}

    fn note(&self, level: u8, text: &str) {
        let mut noted = self.noted.lock().expect("no holder panics");
        if noted.len() == NOTED_MAX {
            noted.pop_front();
        }
        noted.push_back((level, text.to_owned()));
    }

    fn verbosity(&self, _level: u8) {}
}
