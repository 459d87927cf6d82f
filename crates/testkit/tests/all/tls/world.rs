//! A worker whose connections speak TLS over the simulated network.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use larder_commands::Speaks;
use larder_eventloop::sim::{Due, Network, Peer, SimStream, Time, Weather};
use larder_eventloop::socket::Address;
use larder_server::{Arrival, Clock, Config, Hub, Listener, Log, Mailbox, Worker};
use larder_store::Store;
use larder_tls::{Acceptor, Counters, Options, Transport};
use rustls::ClientConfig;

use super::client::{Client, Identity, trusting};

type Tls = Transport<SimStream>;

/// A worker whose connections all speak TLS. Listener 0 is for all protocols, listener 1 for Redis clients.
pub struct World {
    pub hub: Arc<Hub>,
    pub store: Arc<Store>,
    pub network: Network,
    pub time: Time,
    pub worker: Option<Worker<larder_eventloop::sim::Sim<Tls>>>,
    pub arrivals: Arc<Mailbox<Arrival<Tls>>>,
    pub acceptor: Acceptor,
    pub counters: Arc<Counters>,
    pub trust: Arc<ClientConfig>,
}

impl World {
    pub fn new(seed: u64, weather: Weather) -> World {
        World::of(seed, weather, |_, _| {}, 64)
    }

    pub fn of(
        seed: u64,
        weather: Weather,
        change: impl FnOnce(&mut Options, &Identity),
        megabytes: u64,
    ) -> World {
        let identity = Identity::new();
        let mut asked =
            Options { chain: identity.chain.clone(), key: identity.key.clone(), ..Options::default() };
        change(&mut asked, &identity);
        let counters = Arc::default();
        let acceptor =
            Acceptor::load(&asked, &counters, &mut larder_tls::Files::default()).expect("good files");
        let config = Config { threads: 1, memory_bytes: megabytes << 20, ..Config::default() };
        let store = Store::new(larder_store::Config {
            memory_bytes: config.memory_bytes,
            memory_bytes_max: config.memory_bytes,
            workers_max: 1,
            evict: true,
            seed,
        });
        let store = store.expect("a store");
        let time = Time::default();
        let clock = Clock::Simulated { time: time.clone(), epoch_us: Arc::new(1_700_000_000_000_000.into()) };
        let listener = |speaks| Listener::new(Address::Unix("/sim".into()), speaks);
        let listeners = vec![listener(Speaks::Any), listener(Speaks::Redis)];
        let hub = Hub::new(config, Arc::clone(&store), listeners, Log::default(), clock);
        let hub = Arc::new(hub.expect("wakers"));
        let network = Network::new(seed, weather, time.clone());
        let arrivals = Arc::new(Mailbox::new(&hub.handles[0].waker));
        let backend = network.backend(Arc::clone(&hub.handles[0].waker));
        let worker = store.worker().expect("a worker of the store");
        let worker = Worker::new(Arc::clone(&hub), 0, worker, backend, Arc::clone(&arrivals));
        let trust = trusting(&identity, None);
        World { hub, store, network, time, worker: Some(worker), arrivals, acceptor, counters, trust }
    }

    /// The client's end of a connection that the worker has taken over.
    pub fn peer(&mut self) -> Peer {
        self.peer_of(0, Address::Unix("/peer".into()))
    }

    /// The same for a listener and a client's address.
    pub fn peer_of(&mut self, listener: usize, address: Address) -> Peer {
        let (stream, peer) = self.network.connect();
        let stream = self.acceptor.accept(stream).expect("random numbers");
        self.hub.handles[0].connections.fetch_add(1, SeqCst);
        assert!(self.hub.certificates.begin(usize::MAX), "as the acceptor does");
        let arrival = Arrival { stream, peer: address, listener };
        assert!(self.arrivals.send(arrival).is_ok(), "there is room");
        self.run_until_idle();
        peer
    }

    pub fn client(&mut self) -> Client {
        let trust = Arc::clone(&self.trust);
        Client::new(self.peer(), &trust)
    }

    /// Runs turns while the worker has something to do now; false when it has ended.
    pub fn run_until_idle(&mut self) -> bool {
        for _ in 0..200_000 {
            if self.worker.is_none() || self.network.due(0) != Due::Now {
                return self.worker.is_some();
            }
            self.turn();
        }
        panic!("the loop does not come to rest");
    }

    pub fn turn(&mut self) {
        let worker = self.worker.as_mut().expect("it runs");
        if !worker.turn().expect("a turn") {
            self.worker = None;
        }
        self.time.pass_us(20);
    }

    /// Lets this much time pass.
    pub fn pass(&mut self, ms: u64) {
        let until = self.time.now() + ms;
        while self.run_until_idle() && self.time.now() < until {
            let next = match self.network.due(0) {
                Due::Now => self.time.now(),
                Due::At(at) => at.min(until),
                Due::Never => until,
            };
            self.time.pass_us(next.saturating_sub(self.time.now()) * 1000);
        }
    }

    /// Runs both until neither the worker nor the client has anything to send.
    pub fn talk(&mut self, client: &mut Client, bytes_max: usize) {
        loop {
            let moved = client.step(bytes_max);
            self.run_until_idle();
            if moved == 0 && client.peer.untaken() == 0 && client.step(bytes_max) == 0 {
                return;
            }
        }
    }

    /// Bytes that connections hold, and number of connections, once the worker's own output buffer has
    /// shrunk.
    pub fn books(&mut self) -> (u64, usize) {
        self.pass(500);
        (self.store.held_bytes() + self.store.input_bytes(), self.hub.connections())
    }
}
