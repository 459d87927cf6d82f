//! Connections of one address, from the acceptor to their ends, in virtual time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_eventloop::Millis;
use larder_eventloop::sim::{Peer, SimStream, Weather};
use larder_eventloop::socket::Address;

use super::on_sim::{World, resp};
use crate::acceptor::{Acceptor, Arrivals, Entrance, Heard};
use crate::config::Config;
use crate::mailbox::{Arrival, Mailbox};

const TEXT: usize = 0;
const RESP: usize = 1;

const REFUSALS: [&str; 2] = ["ERROR Too many open connections\r\n", "-ERR max number of clients reached\r\n"];

/// Connections that wait at the listeners.
type Queue = Rc<RefCell<VecDeque<(usize, SimStream, Address)>>>;

/// The entrance.
struct Gate {
    queue: Queue,
    heard: Vec<Heard>,
}

impl Entrance for Gate {
    type Incoming = SimStream;
    type Stream = SimStream;

    fn wait(&mut self, _: Option<Duration>) -> io::Result<usize> {
        let queue = self.queue.borrow();
        let waits = |listener: &usize| queue.iter().any(|(at, ..)| at == listener);
        self.heard = [TEXT, RESP].into_iter().filter(waits).map(Heard::Connections).collect();
        Ok(self.heard.len())
    }

    fn heard(&self, index: usize) -> Heard {
        self.heard[index]
    }

    fn now(&self) -> Millis {
        0
    }

    fn watch(&mut self, _: usize, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<(SimStream, Address)> {
        let mut queue = self.queue.borrow_mut();
        let first = queue.iter().position(|(at, ..)| *at == listener);
        let waiting = first.and_then(|first| queue.remove(first));
        waiting.map(|(_, stream, peer)| (stream, peer)).ok_or(io::ErrorKind::WouldBlock.into())
    }

    fn begin(&mut self, _: usize, incoming: SimStream) -> io::Result<SimStream> {
        Ok(incoming)
    }
}

/// A world with an entrance.
struct Town {
    world: World,
    queue: Queue,
    acceptor: Acceptor<Gate>,
    arrivals: Arc<Mailbox<Arrival<SimStream>>>,
}

impl Town {
    /// An address may have so many connections.
    fn new(connections_per_address: u32) -> Town {
        let limits = Config { connections_per_address, connections_max: 4096, ..Config::default() };
        let config = Config { threads: 1, protected: false, ..limits };
        let weather = Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR };
        let world = World::of(config, 1, weather);
        let hub = Arc::clone(world.service.hub());
        let arrivals = Arc::new(Mailbox::new(&hub.handles[0].waker));
        let of_workers: Arrivals<SimStream> = [Arc::clone(&arrivals)].into();
        let queue = Queue::default();
        let gate = Gate { queue: Rc::clone(&queue), heard: Vec::new() };
        Town { world, queue, acceptor: Acceptor::new(hub, gate, of_workers), arrivals }
    }

    /// A client connects to a listener from there.
    fn come(&mut self, listener: usize, from: Address) -> Peer {
        let (stream, peer) = self.world.events.backend().connect();
        self.queue.borrow_mut().push_back((listener, stream, from));
        assert!(self.acceptor.turn().expect("a turn"));
        let World { events, service } = &mut self.world;
        for Arrival { stream, peer, listener } in self.arrivals.take() {
            service.enter(events, stream, peer, listener);
        }
        self.world.run_until_idle();
        peer
    }

    /// A client that is served.
    fn is_served(&mut self, listener: usize, from: Address) -> Peer {
        let peer = self.come(listener, from);
        match listener {
            TEXT => self.world.exchange(&peer, "get nothing\r\n", "END\r\n"),
            _ => self.world.exchange(&peer, &resp(&["PING"]), "+PONG\r\n"),
        }
        peer
    }

    /// A client that is refused by the port, since there are too many, and closed.
    fn is_refused(&mut self, listener: usize, from: Address) {
        let peer = self.come(listener, from);
        assert_eq!(self.world.read_all(&peer), REFUSALS[listener]);
        assert!(peer.closed());
    }

    fn answer(&mut self, peer: &Peer, request: &str) -> String {
        peer.send(request.as_bytes());
        self.world.read_all(peer)
    }
}

/// A host of an IPv6 network of 64 bits.
fn host(network: u16, host: u16) -> Address {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 1, network, host, host, host, host);
    Address::Tcp(SocketAddr::from((address, 40_000)))
}

fn unix() -> Address {
    Address::Unix("/run/larder.sock".into())
}

#[test]
fn an_address_has_as_many_connections_as_the_option_says_on_all_ports_together() {
    let mut town = Town::new(3);
    let text = town.is_served(TEXT, host(1, 1));
    let redis = town.is_served(RESP, host(1, 2));
    let _third = town.is_served(TEXT, host(1, 3));
    town.is_refused(TEXT, host(1, 1));
    town.is_refused(RESP, host(1, 4));
    let _others: Vec<Peer> = (2..5).map(|network| town.is_served(RESP, host(network, 1))).collect();
    let _local: Vec<Peer> = (0..10).map(|_| town.is_served(TEXT, unix())).collect();
    assert_eq!(town.answer(&text, "get nothing\r\n"), "END\r\n", "those that are in notice nothing");
    // Both are counted, and the limit is told.
    let info = town.answer(&redis, &resp(&["INFO", "stats"]));
    assert!(info.contains("\r\nrejected_connections:2\r\nrejected_connections_per_address:2\r\n"), "{info}");
    let told = town.answer(&redis, &resp(&["CONFIG", "GET", "connections-per-address"]));
    assert_eq!(told, "*2\r\n$23\r\nconnections-per-address\r\n$1\r\n3\r\n");
    let stats = town.answer(&text, "stats\r\n");
    assert!(stats.contains("STAT rejected_connections 2\r\n"), "{stats}");
    let settings = town.answer(&text, "stats settings\r\n");
    assert!(settings.contains("STAT connections_per_address 3\r\n"), "{settings}");
}

#[test]
fn a_connection_counts_until_it_has_ended_however_that_comes() {
    let mut town = Town::new(1);
    let ends: [fn(&mut Town, &Peer); 5] = [
        |_, peer| peer.end(),
        |_, peer| peer.reset(),
        |_, peer| peer.send(b"quit\r\n"),
        // A request that is never finished.
        |town, peer| {
            peer.send(b"get someth");
            town.world.pass(61_100);
        },
        // A value that has come in part.
        |town, peer| {
            peer.send(b"set long 0 0 900000\r\nvvvv");
            town.world.run_until_idle();
            peer.reset();
        },
    ];
    for (nth, end) in ends.into_iter().enumerate() {
        let peer = town.is_served(TEXT, host(7, 1));
        town.is_refused(TEXT, host(7, 1));
        end(&mut town, &peer);
        town.world.run_until_idle();
        assert!(peer.closed(), "{nth}");
    }
    let redis = town.is_served(RESP, host(7, 1));
    let kills = town.is_served(RESP, host(8, 1));
    let killed = town.answer(&kills, &resp(&["CLIENT", "KILL", "TYPE", "normal"]));
    assert_eq!((killed.as_str(), redis.closed()), (":1\r\n", true));
    let _next = town.is_served(RESP, host(7, 1));
    assert_eq!(town.world.service.hub().tally.rejected_per_address.load(Relaxed), 5);
}

#[test]
fn a_flood_of_one_address_takes_no_memory_and_no_place_of_others() {
    let mut town = Town::new(2);
    let _in: Vec<Peer> = (0..2).map(|n| town.is_served(TEXT, host(1, n))).collect();
    let (bytes, open) = (town.world.service.hub().store.heap_bytes(), town.world.events.len());
    for n in 0..2_000 {
        town.is_refused(usize::from(n % 2), host(1, n));
    }
    assert_eq!((town.world.service.hub().store.heap_bytes(), town.world.events.len()), (bytes, open));
    assert_eq!(town.world.service.hub().connections(), 2);
    let _other = town.is_served(TEXT, host(2, 1));
}
