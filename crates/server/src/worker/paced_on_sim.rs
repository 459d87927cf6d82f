//! Addresses that ask for more than they may in a second, over the simulated network.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use larder_commands::Speaks;
use larder_eventloop::Millis;
use larder_eventloop::sim::{Peer, Sim, Weather};
use larder_eventloop::socket::Address;
use larder_store::Store;

use super::Worker;
use super::on_sim::resp;
use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::listener::Listener;
use crate::log::Log;
use crate::mailbox::Mailbox;

/// What an address may ask for in a second.
const REQUESTS: u32 = 100;

const TEXT: usize = 0;
const RESP: usize = 1;

struct World {
    worker: Worker<Sim>,
}

impl World {
    fn new(config: Config) -> World {
        let config = Config { threads: 1, requests_per_second: REQUESTS, protected: false, ..config };
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let of_store = store.worker().expect("a worker of the store");
        let sim = Sim::new(1, Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR });
        let clock = Clock::Simulated { time: sim.time(), epoch_us: Arc::new(0.into()) };
        let listener = |speaks| Listener::new(Address::Unix("/sim".into()), speaks);
        let listeners = vec![listener(Speaks::Any), listener(Speaks::Redis)];
        let hub = Arc::new(Hub::new(config, store, listeners, Log::default(), clock).expect("wakers"));
        let arrivals = Arc::new(Mailbox::new(&hub.handles[0].waker));
        World { worker: Worker::new(hub, 0, of_store, sim, arrivals) }
    }

    /// A connection to a listener from an address.
    fn connect(&mut self, listener: usize, host: u8) -> Peer {
        let Worker { hub, events, service, .. } = &mut self.worker;
        let (stream, peer) = events.backend().connect();
        hub.handles[0].connections.fetch_add(1, SeqCst);
        let from = SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 40_000));
        service.enter(events, stream, Address::Tcp(from), listener);
        peer
    }

    /// Takes turns until a peer has been sent this; when that was.
    fn hears(&mut self, peer: &Peer, wanted: &str) -> Millis {
        let mut heard = Vec::new();
        for _ in 0..100_000 {
            heard.extend(peer.read(usize::MAX));
            if heard.len() >= wanted.len() {
                assert_eq!(String::from_utf8_lossy(&heard), wanted);
                return self.worker.events.now();
            }
            assert!(self.worker.paced_turn().expect("a turn"), "it has no end");
        }
        panic!("no reply: {}", heard.escape_ascii());
    }

    /// Takes turns until each of these peers has been sent something; when that was, in order.
    fn times(&mut self, peers: &[&Peer]) -> Vec<Millis> {
        let mut times = vec![None; peers.len()];
        for _ in 0..100_000 {
            for (peer, time) in peers.iter().zip(&mut times) {
                if time.is_none() && !peer.read(usize::MAX).is_empty() {
                    *time = Some(self.worker.events.now());
                }
            }
            if times.iter().all(Option::is_some) {
                let mut times: Vec<Millis> = times.into_iter().flatten().collect();
                times.sort_unstable();
                return times;
            }
            assert!(self.worker.paced_turn().expect("a turn"), "it has no end");
        }
        panic!("no reply: {times:?}");
    }

    /// Has an address ask for half a second's worth more than it has saved, all of which is answered; when that was.
    fn overdraws(&mut self, peer: &Peer) -> Millis {
        let requests = REQUESTS as usize * 3 / 2;
        peer.send("get nothing\r\n".repeat(requests).as_bytes());
        self.hears(peer, &"END\r\n".repeat(requests))
    }
}

#[test]
fn an_address_that_asks_for_more_is_read_from_later_on_all_connections_and_others_at_once() {
    let mut world = World::new(Config::default());
    let (one, redis) = (world.connect(TEXT, 1), world.connect(RESP, 1));
    let other = world.connect(TEXT, 2);
    let start = world.overdraws(&one);
    one.send(b"get nothing\r\n");
    redis.send(resp(&["PING"]).as_bytes());
    other.send(b"get nothing\r\n");
    assert_eq!(world.hears(&other, "END\r\n"), start, "another address does not wait");
    // A new connection is of the same address.
    let next = world.connect(TEXT, 1);
    next.send(b"get nothing\r\n");
    // Each of them costs 10 ms more, whichever is the first.
    assert_eq!(world.times(&[&one, &redis, &next]), [start + 500, start + 510, start + 520]);
    assert_eq!(world.worker.hub.connections(), 4, "none was closed");
}

#[test]
fn a_request_that_has_come_in_part_is_received_to_its_end() {
    let mut world = World::new(Config::default());
    let one = world.connect(TEXT, 1);
    let (head, value) = ("set long 0 0 400000\r\n", "v".repeat(400_000));
    let requests = REQUESTS as usize * 3 / 2;
    let gets = "get nothing\r\n".repeat(requests);
    one.send([&gets[..], head, &value[..1_000]].concat().as_bytes());
    let start = world.hears(&one, &"END\r\n".repeat(requests));
    one.send([&value[1_000..], "\r\n"].concat().as_bytes());
    assert_eq!(world.hears(&one, "STORED\r\n"), start);
    one.send(b"get nothing\r\n");
    assert_eq!(world.hears(&one, "END\r\n"), start + 510);
}

#[test]
fn of_the_connections_of_an_address_those_are_read_first_that_have_waited_for_longest() {
    let mut world = World::new(Config::default());
    let (one, other) = (world.connect(TEXT, 1), world.connect(TEXT, 1));
    let requests = REQUESTS as usize * 3 / 2;
    let (gets, ends) = ("get nothing\r\n".repeat(requests), "END\r\n".repeat(requests));
    let start = world.overdraws(&one);
    one.send(gets.as_bytes());
    other.send(b"get nothing\r\n");
    assert_eq!(world.hears(&one, &ends), start + 500, "both wait since then, and it is the older one");
    one.send(gets.as_bytes());
    assert_eq!(world.hears(&other, "END\r\n"), start + 2_000);
    assert_eq!(world.hears(&one, &ends), start + 2_010);
}

/// A client that sends without a pause: each receive ends within a request.
#[test]
fn a_client_that_has_sent_a_part_of_its_next_request_is_put_off_as_others_are() {
    let mut world = World::new(Config::default());
    let one = world.connect(TEXT, 1);
    let requests = REQUESTS as usize * 3 / 2;
    one.send(["get nothing\r\n".repeat(requests).as_str(), "get "].concat().as_bytes());
    let start = world.hears(&one, &"END\r\n".repeat(requests));
    one.send(b"nothing\r\nget nothing\r\nget ");
    assert_eq!(world.hears(&one, "END\r\nEND\r\n"), start + 500);
    one.send(b"nothing\r\n");
    assert_eq!(world.hears(&one, "END\r\n"), start + 520);
}

#[test]
fn behind_a_value_on_its_way_in_nothing_is_received_from_an_address_in_arrears() {
    let mut world = World::new(Config::default());
    let one = world.connect(TEXT, 1);
    let (head, value) = ("set long 0 0 400000\r\n", "v".repeat(400_000));
    let requests = REQUESTS as usize * 3 / 2;
    let gets = "get nothing\r\n".repeat(requests);
    one.send([&gets[..], head, &value[..1_000]].concat().as_bytes());
    let start = world.hears(&one, &"END\r\n".repeat(requests));
    // The head of the next value is behind it, with which it would go on so.
    one.send([&value[1_000..], "\r\nget nothing\r\n", head, &value[..1_000]].concat().as_bytes());
    assert_eq!(world.hears(&one, "STORED\r\n"), start);
    assert_eq!(world.hears(&one, "END\r\n"), start + 510);
    one.send([&value[1_000..], "\r\n"].concat().as_bytes());
    assert_eq!(world.hears(&one, "STORED\r\n"), start + 510);
}

/// A long request that is gathered, or that is dropped, has its rest when the time has come.
#[test]
fn a_long_request_in_part_lets_nothing_behind_it_be_read_earlier() {
    let mut world = World::new(Config::default());
    let one = world.connect(RESP, 1);
    let requests = REQUESTS as usize * 3 / 2;
    let long = resp(&["ECHO", &"e".repeat(60_000)]);
    let (pings, pongs) = (resp(&["PING"]).repeat(requests), "+PONG\r\n".repeat(requests));
    one.send([&pings[..], &long[..40_000]].concat().as_bytes());
    let start = world.hears(&one, &pongs);
    one.send([&long[40_000..], &pings[..]].concat().as_bytes());
    let echo = format!("$60000\r\n{}\r\n", "e".repeat(60_000));
    assert_eq!(world.hears(&one, &[&echo[..], &pongs[..]].concat()), start + 500);
}

#[test]
fn a_client_that_is_put_off_for_longer_than_the_timeouts_is_not_closed() {
    let config = Config { idle_timeout_s: 2, request_timeout_s: 2, ..Config::default() };
    let mut world = World::new(config);
    let (one, other) = (world.connect(TEXT, 1), world.connect(TEXT, 1));
    // Ten seconds' worth more than is saved.
    let requests = REQUESTS as usize * 11;
    one.send(["get nothing\r\n".repeat(requests).as_str(), "get "].concat().as_bytes());
    let start = world.hears(&one, &"END\r\n".repeat(requests));
    one.send(b"nothing\r\n");
    other.send(b"get nothing\r\n");
    assert_eq!(world.times(&[&one, &other]), [start + 10_000, start + 10_010]);
    assert_eq!(world.worker.hub.connections(), 2);
}

#[test]
fn the_limit_is_told() {
    let mut world = World::new(Config::default());
    let (text, redis) = (world.connect(TEXT, 1), world.connect(RESP, 1));
    redis.send(resp(&["CONFIG", "GET", "requests-per-second"]).as_bytes());
    world.hears(&redis, "*2\r\n$19\r\nrequests-per-second\r\n$3\r\n100\r\n");
    text.send(b"stats settings\r\n");
    let mut told = Vec::new();
    for _ in 0..1_000 {
        told.extend(text.read(usize::MAX));
        if told.ends_with(b"END\r\n") {
            break;
        }
        assert!(world.worker.paced_turn().expect("a turn"), "it has no end");
    }
    let told = String::from_utf8(told).expect("text");
    assert!(told.contains("STAT requests_per_second 100\r\n"), "{told}");
}

#[test]
fn a_client_logs_in_whatever_others_of_its_address_have_asked_for() {
    let config = Config { password: Some("secret".into()), text_auth: false, ..Config::default() };
    let mut world = World::new(config);
    let one = world.connect(TEXT, 1);
    let start = world.overdraws(&one);
    let redis = world.connect(RESP, 1);
    redis.send(resp(&["AUTH", "secret"]).as_bytes());
    assert_eq!(world.hears(&redis, "+OK\r\n"), start);
    redis.send(resp(&["PING"]).as_bytes());
    assert_eq!(world.hears(&redis, "+PONG\r\n"), start + 510);
}
