//! A server of several workers, its clients and its weather, on one thread and in simulated time.
//!
//! ```text
//! step ─► weather, perhaps ─► one of all that can act, drawn: a worker's turn, the acceptor's, a client ─► time passes
//!  ▲                                                                                                      │
//!  └──────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Workers, acceptor, sessions and store are the server's own. Sockets, the entrance and time are simulated: when no actor can
//! act, time moves to when one can. Where there is an HTTP thread, it or one of its scrapers acts in each step, too, and draws
//! from numbers of its own. What its answers hold counts in the store as what other connections hold.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use larder_commands::{RuledUsers, Speaks, ruled_users};
use larder_eventloop::Millis;
use larder_eventloop::sim::{Due, Network, Peer, Time};
use larder_eventloop::socket::Address;
use larder_server::{Clock, Config, Hub, Listener, Log, MAIL_MAX};
use larder_store::{Attributes, Automove, Expect, Store};
use larder_tls::Counters;

use crate::world::asking::NUMBERS;
use crate::world::bank::{ACCOUNTS, EACH, LEDGER, account_name};
use crate::world::books::{Channel, Counter, contest_name, counter_name};
use crate::world::client::{Client, Role};
use crate::world::door::{Door, LISTENERS, Refusal};
use crate::world::http::Http;
use crate::world::model::Key;
use crate::world::part::Dialect;
use crate::world::plan::{Memory, Plan, Steps};
use crate::world::random::Random;
use crate::world::scene::{Flush, Scene};
use crate::world::server::{Server, Turns};
use crate::world::shared;
use crate::world::user::{ADMINS, lent_name, listener_name};
use crate::world::users::Users;

/// The system's time at a server's start.
pub const START_MS: Millis = 1_800_000_000_000;

/// With the seed, starts the draws for options that were added to plans later.
const LATER: u64 = 0x6c_6174_657a;

/// Number of shared counters, and of contended keys.
const SHARED: usize = 3;

/// A worker whose connections move no byte takes no more turns in [`WINDOW_MS`].
const IDLE_TURNS_MAX: u64 = 2_000;
const WINDOW_MS: Millis = 100;

/// A worker, and the figures about it.
struct SimulatedWorker {
    /// `None`: the worker has ended.
    turns: Option<Box<dyn Turns>>,
    /// The worker does not run before this time.
    stalled_until: Millis,
    /// The window of [`WINDOW_MS`]: when it began, the turns in it, and the bytes that had moved before.
    window: (Millis, u64, u64),
}

/// The next actor.
#[derive(Clone, Copy, Debug)]
enum Actor {
    Worker(usize),
    Acceptor,
    Client(usize),
}

/// The world.
pub struct World {
    pub scene: Scene,
    pub store: Arc<Store>,
    pub hub: Arc<Hub>,
    /// The server's counters of TLS.
    pub tls: Arc<Counters>,
    network: Network,
    workers: Vec<SimulatedWorker>,
    acceptor: Option<Box<dyn Turns>>,
    pub clients: Vec<Client>,
    /// The HTTP thread, if there is one.
    pub http: Option<Http>,
    weather_at: Millis,
    /// Connections without requests, and the time at which they end.
    crowd: (Vec<Peer>, Millis),
    /// Shows a watchdog that the world makes progress.
    pulse: Arc<AtomicU64>,
}

/// The name of an owner of keys.
pub fn owner_name(index: usize) -> String {
    format!("owner{index}")
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64, pulse: Arc<AtomicU64>) -> World {
        let mut random = Random(seed);
        let plan = Plan::draw(&mut random, &mut Random(seed ^ LATER));
        World::planned(seed, random, plan, pulse)
    }

    /// The world of a plan.
    pub fn planned(seed: u64, mut random: Random, plan: Plan, pulse: Arc<AtomicU64>) -> World {
        let (time, epoch_us) = (Time::default(), Arc::new(AtomicU64::new(START_MS * 1000)));
        let memory_bytes = plan.memory_mb() << 20;
        let evict = plan.memory != Memory::Refuses;
        let users = Users::new(&plan);
        let filed = users.filed();
        let ruled = if plan.users {
            ruled_users(users.lines().as_bytes(), "the world", (None, &filed), false).expect("good rules")
        } else {
            RuledUsers::default()
        };
        let mut config = Config {
            threads: plan.workers,
            memory_bytes,
            evict,
            connections_max: 8192,
            ruled,
            users: filed,
            ..Config::default()
        };
        config.users_files.users.extend(users.path().map(|path| ("--auth-file", path)));
        let store = Store::new(larder_store::Config {
            memory_bytes,
            memory_bytes_max: memory_bytes,
            workers_max: plan.workers,
            evict,
            seed,
        });
        let store = store.expect("there is memory");
        store.set_automove(Automove::Ages);
        fill(&store, &plan);
        let listener = |index: usize, speaks| {
            let address = Address::Tcp(([10, 255, 0, index as u8], 11211).into());
            Listener { tls: plan.tls[index].then_some(0), ..Listener::new(address, speaks) }
        };
        let listeners = vec![listener(0, Speaks::Any), listener(1, Speaks::Redis)];
        let clock = Clock::Simulated { time: time.clone(), epoch_us: Arc::clone(&epoch_us) };
        let hub = Hub::new(config, Arc::clone(&store), listeners, Log::default(), clock);
        let hub = Arc::new(hub.expect("wakers"));
        let network = Network::new(random.below(u64::MAX), plan.weather(&mut random), time.clone());
        let door = Door::new(Arc::clone(&hub), network.clone(), time.clone());
        let Server { workers, acceptor, trust, counters } = Server::new(&plan, &hub, &network, &door);
        let simulated = |turns| SimulatedWorker { turns: Some(turns), stalled_until: 0, window: (0, 0, 0) };
        let workers = workers.into_iter().map(simulated).collect();
        let mut scene = Scene::new(random, plan, time, epoch_us, door);
        (scene.trust, scene.users) = (trust, users);
        let clients = clients(&mut scene);
        let http = scene.plan.http.then(|| Http::new(seed, &scene.plan, &hub, &scene));
        World {
            scene,
            store,
            hub,
            tls: counters,
            network,
            workers,
            acceptor: Some(acceptor),
            clients,
            http,
            weather_at: 0,
            crowd: Default::default(),
            pulse,
        }
    }

    /// Lets one actor that can act take a turn, or moves time to when one can.
    ///
    /// # Errors
    /// What is wrong.
    pub fn step(&mut self) -> Result<(), String> {
        self.pulse.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.scene.now() >= self.weather_at {
            self.weather_at = self.scene.now() + 1 + self.scene.random.below(20);
            self.weather();
        }
        if let Some(http) = &mut self.http {
            http.act(&mut self.scene, (&self.network, self.workers.len()))?;
        }
        let (mut ready, mut next) = (Vec::new(), Millis::MAX);
        let now = self.scene.now();
        let mut add = |actor, due| match due {
            Due::Now => ready.push(actor),
            Due::At(at) => next = next.min(at),
            Due::Never => {}
        };
        let at = |at| if at <= now { Due::Now } else { Due::At(at) };
        for (index, worker) in self.workers.iter().enumerate() {
            match (&worker.turns, at(worker.stalled_until)) {
                (None, _) => {}
                (Some(_), Due::Now) => add(Actor::Worker(index), self.network.due(index)),
                (Some(_), stalled) => add(Actor::Worker(index), stalled),
            }
        }
        if self.acceptor.is_some() {
            add(Actor::Acceptor, self.scene.door.due());
        }
        for (index, client) in self.clients.iter().enumerate() {
            add(Actor::Client(index), at(client.next_at));
        }
        if ready.is_empty() {
            let next = next.min(self.weather_at);
            let us = (next - now) * 1000 - self.scene.time.now_us() % 1000;
            let us = self.http.as_mut().map_or(us, |http| http.idle_us(&self.scene, us));
            self.pass(us);
            return Ok(());
        }
        let actor = self.scene.random.of(&ready);
        self.run(actor)?;
        let us = 1 + self.scene.random.below(40);
        self.pass(us);
        if let Some(wrong) = self.scene.door.wrong() {
            return Err(wrong);
        }
        Ok(())
    }

    fn pass(&mut self, us: u64) {
        self.scene.time.pass_us(us);
        let now = self.scene.now();
        if self.workers.iter().all(|worker| now >= worker.stalled_until) && !self.scene.door.refuses() {
            self.scene.fair_us += us;
        }
        if let Some(http) = &mut self.http {
            http.pass(us, now);
        }
    }

    fn run(&mut self, actor: Actor) -> Result<(), String> {
        match actor {
            Actor::Worker(index) => self.turn(index),
            Actor::Acceptor => {
                let acceptor = self.acceptor.as_mut().expect("it is there");
                if !acceptor.turn().map_err(|error| error.to_string())? {
                    self.scene.note("the acceptor hears that the server is to stop");
                    self.acceptor = None;
                    if let Some(http) = &mut self.http {
                        http.end();
                    }
                    self.scene.door.close();
                    self.hub.stop_workers();
                } else if self.scene.door.was_reloaded() {
                    self.scene.users.reread();
                }
                Ok(())
            }
            Actor::Client(index) => {
                let acted = self.clients[index].act(&mut self.scene);
                self.follow_flush();
                acted
            }
        }
    }

    fn turn(&mut self, index: usize) -> Result<(), String> {
        let worker = &mut self.workers[index];
        let actor = worker.turns.as_mut().expect("it is there");
        if !actor.turn().map_err(|error| error.to_string())? {
            worker.turns = None;
            self.scene.note(&format!("worker {index} has come to its end"));
            return Ok(());
        }
        let (began, turns, moved) = &mut worker.window;
        let (now, moves) = (self.scene.time.now(), self.network.moved(index));
        if now >= *began + WINDOW_MS || moves != *moved {
            worker.window = (now, 0, moves);
            return Ok(());
        }
        *turns += 1;
        if *turns > IDLE_TURNS_MAX {
            return Err(format!(
                "worker {index} takes {turns} turns in {} ms, and moves nothing",
                now - *began
            ));
        }
        Ok(())
    }

    /// Marks all keys as perhaps gone when a flush begins, and as gone when it is done.
    fn follow_flush(&mut self) {
        match self.scene.flush {
            Flush::None | Flush::Asked => {}
            Flush::Begins => {
                self.scene.flush = Flush::Asked;
                self.clients.iter_mut().for_each(Client::flush_begins);
            }
            Flush::Done => {
                self.scene.flush = Flush::None;
                self.clients.iter_mut().for_each(Client::flush_is_done);
            }
        }
    }

    fn weather(&mut self) {
        let scene = &mut self.scene;
        if scene.random.one_in(4) {
            let weather = scene.plan.weather(&mut scene.random);
            self.network.set_weather(weather);
            scene.note(&format!("{weather:?}"));
        }
        let now = scene.now();
        if scene.plan.stalls && !scene.stopping && scene.random.one_in(10) {
            let (index, ms) = (scene.random.index(self.workers.len()), scene.random.below(300));
            self.workers[index].stalled_until = now + ms;
            scene.note(&format!("worker {index} is stalled for {ms} ms"));
        }
        if scene.plan.refusals && !scene.stopping && scene.random.one_in(10) {
            let refusal = scene.random.of(&[Refusal::Process, Refusal::System, Refusal::Gone]);
            let ms = scene.random.below(100);
            scene.door.refuse(refusal, now + ms);
            scene.note(&format!("accepts are refused for {ms} ms: {refusal:?}"));
        }
        if scene.plan.has_wrong_passwords() && !scene.stopping && scene.random.one_in(10) {
            let client = scene.random.index(scene.plan.owners);
            if scene.users.file_another(client) {
                scene.door.reload();
                scene.note(&format!("{} has another password in the file", owner_name(client)));
            }
        }
        if now >= self.crowd.1 {
            self.crowd.0.clear();
        }
        if scene.plan.crowd && !scene.stopping && scene.random.one_in(10) {
            scene.plan.crowd = false;
            let until = now + 50 + scene.random.below(200);
            self.workers.iter_mut().for_each(|worker| worker.stalled_until = worker.stalled_until.max(until));
            let count = self.workers.len() * MAIL_MAX + scene.random.index(200);
            let connect = |n: usize| scene.door.connect(n % LISTENERS).0;
            self.crowd = ((0..count).map(connect).collect(), until + 50);
            scene.note(&format!(
                "{count} connections come, and nobody takes them over for {} ms",
                until - now
            ));
        }
        if scene.plan.steps != Steps::None && scene.random.one_in(30) {
            let by = scene.random.of(&[3, 70, 1000, 5000, 65_000, 4_000_000]);
            let by = 1 + scene.random.below(by) as i64;
            let back = scene.plan.steps == Steps::BothWays && scene.random.one_in(2);
            scene.step_clock(if back { -by } else { by });
        }
    }

    /// True if all requests are sent and answered, and no user is removed or in an unknown state.
    pub fn is_done(&self) -> bool {
        self.clients.iter().all(Client::is_done) && self.scene.users.are_certain()
    }

    /// True if the acceptor has not seen the stop yet.
    pub fn takes_connections(&self) -> bool {
        self.acceptor.is_some()
    }

    /// True if all workers have ended.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(|worker| worker.turns.is_none())
    }
}

/// Stores the items that exist before the first client comes.
fn fill(store: &Arc<Store>, plan: &Plan) {
    let mut worker = store.worker().expect("a worker of the store");
    if plan.contends() {
        shared::begin(&mut worker.enter(START_MS));
    }
    let mut put = |name: String, value: &[u8]| {
        let mut guard = worker.enter(START_MS);
        let key = guard.key(name.as_bytes());
        guard.store_value(&key, value, &Attributes::default(), Expect::Any).is_ok()
    };
    for shared in 0..SHARED {
        assert!(
            put(counter_name(shared), b"0") && put(contest_name(shared), b"0"),
            "an empty store has room"
        );
    }
    let lent = if plan.users && plan.contends() { plan.owners } else { 0 };
    for owner in 0..lent {
        assert!(put(lent_name(&owner_name(owner)), b"0"), "an empty store has room");
    }
    for account in 0..ACCOUNTS {
        assert!(put(account_name(account), EACH.to_string().as_bytes()), "an empty store has room");
    }
    assert!(put(LEDGER.to_owned(), b""), "an empty store has room");
    for n in 0..plan.fill {
        if !put(format!("fill-{n}"), &[b'f'; 100]) {
            break;
        }
    }
}

fn clients(scene: &mut Scene) -> Vec<Client> {
    let dialects = [Dialect::Classic, Dialect::Meta, Dialect::Resp2, Dialect::Resp3];
    let (owners, requests) = (scene.plan.owners, scene.plan.requests);
    let mut clients = Vec::new();
    for index in 0..owners {
        let mut client =
            Client::new(index, &owner_name(index), dialects[index % dialects.len()], Role::Owner, requests);
        for n in 0..scene.plan.keys.max(NUMBERS + 1) {
            // One key has more than 200 bytes; memcached allows 250.
            let filling = if n == NUMBERS { "k".repeat(200) } else { String::new() };
            client.keys.push(Key::new(format!("{}-{n}{filling}", client.name)));
        }
        clients.push(client);
    }
    for n in 0..scene.plan.listeners {
        let dialect = if n % 2 == 0 { Dialect::Resp2 } else { Dialect::Resp3 };
        let role = Role::Listener(Vec::new());
        clients.push(Client::new(owners + n, &listener_name(n), dialect, role, 10));
    }
    for (name, dialect) in ADMINS.into_iter().zip([Dialect::Classic, Dialect::Resp2]) {
        clients.push(Client::new(clients.len(), name, dialect, Role::Admin, requests / 4));
    }
    let books = &mut scene.books;
    books.channels.resize_with(owners, Channel::default);
    books.counters.resize_with(SHARED, Counter::default);
    books.contests.resize_with(SHARED, Counter::default);
    books.lent.resize_with(if scene.users.any() { owners } else { 0 }, Counter::default);
    clients
}
