//! The HTTP server over the simulated network, beside a store that is full.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use larder_eventloop::poll::Interest;
use larder_eventloop::sim::{Peer, Sim, SimStream, Time, Weather};
use larder_eventloop::{Backend, Millis};
use larder_store::{Attributes, Expect, Store, Worker};
use larder_tls::Transport;

use super::reserve::ROUND_MS;
use super::{CLIENTS_MAX, HttpBackend, HttpEvent, HttpServer};
use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::log::Log;

/// When worlds begin, as the system's clock says.
const EPOCH_MS: Millis = 1_700_000_000_000;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The longest file of the page, 50 KB.
const ASKED: &[u8] = b"GET /vendor/uPlot-1.6.32.js HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ANSWER_BYTES_MIN: usize = 50_000;

/// A listener and a loop at a network of their own.
struct Line {
    sim: Sim<Transport<SimStream>>,
    arriving: Vec<SimStream>,
    events: Vec<HttpEvent>,
}

impl Line {
    fn is_busy(&self) -> bool {
        !self.arriving.is_empty() || self.sim.busy()
    }
}

impl HttpBackend for Line {
    type Stream = SimStream;

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let arrives = !self.arriving.is_empty();
        let count = self.sim.wait(if arrives { Some(Duration::ZERO) } else { timeout })?;
        self.events.clear();
        self.events.extend((0..count).map(|index| HttpEvent::Client(self.sim.event(index))));
        if arrives {
            self.events.push(HttpEvent::Connections);
        }
        Ok(self.events.len())
    }

    fn event(&self, index: usize) -> HttpEvent {
        self.events[index]
    }

    fn watch(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn accept(&mut self) -> io::Result<(SimStream, IpAddr)> {
        Ok((self.arriving.pop().ok_or(io::ErrorKind::WouldBlock)?, LOCAL))
    }

    fn add(&mut self, stream: &Transport<SimStream>, seat: u64, interest: Interest) -> io::Result<()> {
        self.sim.add(stream, seat, interest)
    }

    fn modify(&mut self, stream: &Transport<SimStream>, seat: u64, interest: Interest) -> io::Result<()> {
        self.sim.modify(stream, seat, interest)
    }
}

struct World {
    server: HttpServer<Line>,
    store: Arc<Store>,
    worker: Worker,
    time: Time,
    stored: u64,
}

impl World {
    fn new() -> World {
        let config = Config { threads: 1, memory_bytes: 16 << 20, ..Config::default() };
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let worker = store.worker().expect("a worker of the store");
        let sim = Sim::over(1, Weather::FAIR);
        let time = sim.time();
        let epoch_us = Arc::new((EPOCH_MS * 1000).into());
        let clock = Clock::Simulated { time: time.clone(), epoch_us };
        let hub = Hub::new(config, Arc::clone(&store), Vec::new(), Log::default(), clock).expect("wakers");
        let line = Line { sim, arriving: Vec::new(), events: Vec::new() };
        let server = HttpServer::new(Arc::new(hub), line, LOCAL);
        World { server, store, worker, time, stored: 0 }
    }

    fn turn(&mut self) {
        self.server.turn().expect("a turn");
    }

    /// Takes turns until nothing is due now.
    fn run_until_idle(&mut self) {
        for _ in 0..10_000 {
            if !self.server.backend.is_busy() {
                return;
            }
            self.turn();
        }
        panic!("the server does not come to rest");
    }

    fn pass_until(&mut self, until: Millis) {
        while self.time.now() < until {
            self.turn();
        }
    }

    fn connect(&mut self) -> Peer {
        let line = &mut self.server.backend;
        let (stream, peer) = line.sim.connect();
        line.arriving.push(stream);
        self.run_until_idle();
        peer
    }

    /// A client asks for the file, and takes nothing of it.
    fn ask(&mut self, peer: &Peer) {
        peer.narrow(0);
        peer.send(ASKED);
        self.run_until_idle();
    }

    /// Stores so many new items of 500 bytes.
    fn store_some(&mut self, count: u64) {
        let mut guard = self.worker.enter(EPOCH_MS + self.time.now());
        for number in self.stored..self.stored + count {
            let name = number.to_be_bytes();
            let key = guard.key(&name);
            guard.store_value(&key, &[1u8; 500], &Attributes::default(), Expect::Any).expect("room");
        }
        self.stored += count;
    }

    /// More upkeep than there is to do.
    fn upkeep(&mut self) {
        let mut guard = self.worker.enter(EPOCH_MS + self.time.now());
        for _ in 0..1000 {
            guard.maintain();
        }
    }

    /// All ask, and take nothing until items have given way; returns the spans that were moved for that, and the items that
    /// were evicted.
    fn poll(&mut self, peers: &[Peer]) -> (u64, u64) {
        peers.iter().for_each(|peer| self.ask(peer));
        let before = self.store.totals();
        self.upkeep();
        let behind = self.store.totals();
        peers.iter().for_each(|peer| peer.narrow(usize::MAX));
        self.run_until_idle();
        for peer in peers {
            let answer = peer.read(usize::MAX);
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{:?}", answer.get(..20));
            assert!(answer.len() > ANSWER_BYTES_MIN, "{} bytes", answer.len());
        }
        (behind.spans_moved - before.spans_moved, behind.evictions - before.evictions)
    }

    /// Bytes that connections use, and what the store was told.
    fn told(&self) -> (u64, u64) {
        (self.server.routes.reserve.used(), self.store.held_bytes())
    }
}

#[test]
fn items_give_way_once_to_answers_that_come_again_and_again() {
    let mut world = World::new();
    world.store_some(60_000);
    let peers: Vec<Peer> = (0..CLIENTS_MAX).map(|_| world.connect()).collect();
    let (moved, evicted) = world.poll(&peers);
    assert!(moved > 0 && evicted > 0, "{moved} spans were moved, {evicted} items evicted");
    let held = world.store.held_bytes();
    assert!(held > (CLIENTS_MAX * ANSWER_BYTES_MIN) as u64, "{held} bytes");
    for _ in 0..5 {
        // What the store charges for buffers falls within half a second to what they hold, and items take what is free.
        for _ in 0..2 {
            world.pass_until(world.time.now() + 1000);
            world.upkeep();
        }
        world.store_some(2_000);
        assert_eq!(world.poll(&peers), (0, 0));
        assert_eq!(world.store.held_bytes(), held);
    }
    // In the first round there were answers, in the second there are not even connections.
    world.pass_until(2 * ROUND_MS - 2_000);
    assert!(peers.iter().all(Peer::closed));
    assert_eq!(world.told(), (0, held));
    world.pass_until(2 * ROUND_MS + 2_000);
    assert_eq!(world.told(), (0, 0));
}

#[test]
fn what_a_connection_used_is_free_for_the_next_however_it_ends() {
    let mut world = World::new();
    let resets = world.connect();
    world.ask(&resets);
    let (used, held) = world.told();
    assert!(used > ANSWER_BYTES_MIN as u64 && used == held, "{used} and {held} bytes");
    resets.reset();
    world.run_until_idle();
    assert_eq!((world.told(), resets.closed()), ((0, held), true));
    let leaves = world.connect();
    leaves.send(b"GET / HTTP/1.1\r\nHo");
    world.run_until_idle();
    assert!(world.told().0 > 0);
    leaves.end();
    world.run_until_idle();
    assert_eq!((world.told(), leaves.closed()), ((0, held), true));
    let refused = world.connect();
    refused.send(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    world.run_until_idle();
    refused.end();
    world.run_until_idle();
    assert_eq!((world.told(), refused.closed()), ((0, held), true));
    let late = world.connect();
    world.ask(&late);
    assert_eq!(world.told(), (used, held), "it has what another one had");
    world.server.end();
    assert_eq!((world.store.held_bytes(), late.closed()), (0, true));
}
