//! A worker's service over the simulated network: small requests and the heads of large values in one
//! receive, by peers of all protocols of which some reset or stop reading at any byte. Each value says
//! whose it is, so a reply that goes astray is seen.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use larder_commands::Speaks;
use larder_eventloop::sim::{Peer, Sim, Weather};
use larder_eventloop::socket::Address;
use larder_eventloop::{EventLoop, Limits, RECEIVE_BYTES};
use larder_store::Store;

use super::service::{CONNECTION_BYTES, Connection, STALL_MS, Service};
use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::listener::Listener;
use crate::log::Log;

/// A value that a receive does not bring whole.
const LONG: usize = RECEIVE_BYTES + 40_000;
/// A value of which more is missing, behind what is received of it first, than is waited for.
const SHORT: usize = 40_000;
/// A value of which a connection asks for many at once.
const MANY: usize = 1_000;
/// A value that is sent from where it lies.
const SPLICED: usize = 20_000;

/// When worlds begin, as the system's clock says.
const EPOCH_US: u64 = 1_700_000_000_000_000;

fn address() -> Address {
    Address::Unix("/sim".into())
}

pub(super) struct World {
    pub(super) events: EventLoop<Sim, Connection>,
    pub(super) service: Service,
}

impl World {
    /// A world whose replies are known to the byte: none tells a token.
    fn new(seed: u64, weather: Weather) -> World {
        World::of(Config { threads: 1, cas: false, ..Config::default() }, seed, weather)
    }

    /// A world with a server of this configuration, whose second listener is for RESP.
    pub(super) fn of(config: Config, seed: u64, weather: Weather) -> World {
        World::on(Sim::new(seed, weather), config)
    }

    fn on(sim: Sim, config: Config) -> World {
        World::begun_at(EPOCH_US, sim, config)
    }

    /// One that was started when the system's clock had so many microseconds since the Unix epoch.
    fn begun_at(epoch_us: u64, sim: Sim, config: Config) -> World {
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let worker = store.worker().expect("a worker of the store");
        let clock = Clock::Simulated { time: sim.time(), epoch_us: Arc::new(epoch_us.into()) };
        let listeners = [Speaks::Any, Speaks::Redis].map(|speaks| Listener::new(address(), speaks)).into();
        let hub = Hub::new(config, store, listeners, Log::default(), clock).expect("wakers");
        let limits = Limits {
            reply_bytes_max: hub.config.reply_bytes_max(),
            idle_ms: 0,
            stall_ms: STALL_MS,
            request_ms: 60_000,
            unauthenticated_ms: 10_000,
        };
        let service = Service::new(Arc::new(hub), 0, worker);
        World { events: EventLoop::new(sim, limits), service }
    }

    pub(super) fn connect(&mut self) -> Peer {
        self.connect_to(0)
    }

    /// Connects to a listener.
    pub(super) fn connect_to(&mut self, listener: usize) -> Peer {
        let (stream, peer) = self.events.backend().connect();
        // As the acceptor does.
        self.service.hub().handles[0].connections.fetch_add(1, SeqCst);
        self.service.enter(&mut self.events, stream, address(), listener);
        peer
    }

    /// Lets so much time pass.
    pub(super) fn pass(&mut self, ms: u64) {
        let until = self.events.now() + ms;
        while self.events.now() < until {
            let left = Duration::from_millis(until - self.events.now());
            self.events.turn(&mut self.service, Some(left)).expect("a turn");
            self.service.balance(&mut self.events);
        }
    }

    pub(super) fn turn(&mut self) {
        self.events.turn(&mut self.service, Some(Duration::ZERO)).expect("a turn");
        // What this worker's clients have published for each other.
        self.service.deliver(&mut self.events);
        self.service.close_removed(&mut self.events);
        self.service.balance(&mut self.events);
    }

    pub(super) fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            self.turn();
            if !self.events.backend().busy() {
                self.turn();
                if !self.events.backend().busy() {
                    return;
                }
            }
        }
        panic!("the loop does not come to rest");
    }

    /// All that a peer is sent, each byte as a character.
    pub(super) fn read_all(&mut self, peer: &Peer) -> String {
        let mut all = String::new();
        loop {
            self.run_until_idle();
            let bytes = peer.read(usize::MAX);
            if bytes.is_empty() {
                return all;
            }
            all.extend(bytes.into_iter().map(char::from));
        }
    }

    pub(super) fn exchange(&mut self, peer: &Peer, request: &str, reply: &str) {
        peer.send(&bytes_of(request));
        assert_eq!(self.read_all(peer), reply);
    }
}

/// The bytes of which each is a character.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|byte| u8::try_from(byte).expect("a byte")).collect()
}

/// A frame of the binary protocol, each byte as a character.
pub(super) fn frame(magic: u8, code: u8, extras: &[u8], key: &str, value: &str) -> String {
    let body_bytes = (extras.len() + key.len() + value.len()) as u32;
    let mut frame = vec![magic, code];
    frame.extend((key.len() as u16).to_be_bytes());
    frame.extend([extras.len() as u8, 0, 0, 0]);
    frame.extend(body_bytes.to_be_bytes());
    frame.extend([0; 12]);
    frame.extend(extras);
    frame.into_iter().map(char::from).chain(key.chars()).chain(value.chars()).collect()
}

/// Words as a RESP client sends them.
pub(super) fn resp(words: &[&str]) -> String {
    let bulks: String = words.iter().map(|word| bulk(word)).collect();
    format!("*{}\r\n{bulks}", words.len())
}

fn bulk(word: &str) -> String {
    format!("${}\r\n{word}\r\n", word.len())
}

/// What a client speaks.
#[derive(PartialEq, Eq)]
enum Speech {
    Text,
    Frames,
    Resp,
}

/// A client: its name is in each of its keys and values.
struct Client {
    name: char,
    speech: Speech,
}

impl Client {
    fn text(&self, bytes: usize) -> String {
        String::from(self.name).repeat(bytes)
    }

    /// Requests, and the replies to them.
    fn get(&self, bytes: usize) -> (String, String) {
        let (key, value) = (format!("{}{bytes}", self.name), self.text(bytes));
        match self.speech {
            Speech::Text => {
                (format!("get {key}\r\n"), format!("VALUE {key} 0 {bytes}\r\n{value}\r\nEND\r\n"))
            }
            Speech::Frames => (frame(0x80, 0x00, b"", &key, ""), frame(0x81, 0x00, &[0; 4], "", &value)),
            Speech::Resp => (resp(&["GET", &key]), bulk(&value)),
        }
    }

    fn set(&self, bytes: usize) -> (String, String) {
        let (key, value) = (format!("{}{bytes}", self.name), self.text(bytes));
        match self.speech {
            Speech::Text => (format!("set {key} 0 0 {bytes}\r\n{value}\r\n"), "STORED\r\n".into()),
            Speech::Frames => (frame(0x80, 0x01, &[0; 8], &key, &value), frame(0x81, 0x01, b"", "", "")),
            Speech::Resp => (resp(&["SET", &key, &value]), "+OK\r\n".into()),
        }
    }

    /// A small request and the head of a value in one receive, twice, and behind the last value so many that
    /// their replies are not deferred.
    fn pipeline(&self) -> (String, String) {
        let mut parts = vec![self.get(9), self.set(SHORT), self.get(9), self.set(SHORT)];
        parts.resize(parts.len() + 40, self.get(MANY));
        parts.into_iter().unzip()
    }
}

const CLIENTS: [Client; 6] = [
    Client { name: 'a', speech: Speech::Text },
    Client { name: 'b', speech: Speech::Resp },
    Client { name: 'c', speech: Speech::Frames },
    Client { name: 'd', speech: Speech::Text },
    Client { name: 'e', speech: Speech::Resp },
    Client { name: 'f', speech: Speech::Frames },
];

/// Bytes of the replies to a pipeline in front of the many, and a few more.
const FIRST_BYTES: usize = 130;

/// Clients whose last receive began an upload, and whose values are there.
fn uploaders(world: &mut World) -> Vec<Peer> {
    let peer = |client: &Client| {
        let peer = world.connect();
        for bytes in [9, MANY, SPLICED, LONG] {
            let (request, reply) = client.set(bytes);
            world.exchange(&peer, &request, &reply);
        }
        peer
    };
    CLIENTS.iter().map(peer).collect()
}

/// Has all of `CLIENTS` ask at once, one of them being what `trouble` makes of it.
fn ask_at_once(seed: u64, weather: Weather, one: usize, trouble: impl FnOnce(&Peer)) -> (World, Vec<Peer>) {
    let mut world = World::new(seed, weather);
    let peers = uploaders(&mut world);
    for (peer, client) in peers.iter().zip(&CLIENTS) {
        peer.send(&bytes_of(&client.pipeline().0));
    }
    trouble(&peers[one]);
    (world, peers)
}

/// Each client but `without` is sent the replies to what it has asked, and no other byte.
fn all_is_answered(world: &mut World, peers: &[Peer], without: Option<usize>, what: &str) {
    for (index, (peer, client)) in peers.iter().zip(&CLIENTS).enumerate() {
        peer.narrow(usize::MAX);
        let got = world.read_all(peer);
        let right = got == client.pipeline().1;
        assert!(
            right || without == Some(index),
            "{}: {}, {what}",
            client.name,
            got.chars().take(200).collect::<String>()
        );
    }
}

/// Each of the clients, and each of so many bytes.
fn each_at_each(bytes: std::ops::RangeInclusive<usize>) -> impl Iterator<Item = (usize, usize)> {
    bytes.flat_map(|at| (0..CLIENTS.len()).map(move |index| (index, at)))
}

#[test]
fn a_client_that_resets_at_any_byte_of_its_replies_costs_no_other_one() {
    for (victim, at) in each_at_each(0..=FIRST_BYTES) {
        let reset = |peer: &Peer| peer.reset_after(at as u64);
        let (mut world, peers) = ask_at_once(at as u64, Weather::FAIR, victim, reset);
        all_is_answered(&mut world, &peers, Some(victim), &format!("{victim} resets after {at}"));
        assert_eq!(world.events.len(), CLIENTS.len() - 1);
    }
}

#[test]
fn a_client_that_takes_any_part_of_its_replies_gets_the_rest_of_them_and_no_other() {
    for (slow, taken) in each_at_each(1..=FIRST_BYTES) {
        let (mut world, peers) = ask_at_once(taken as u64, Weather::FAIR, slow, |peer| peer.narrow(taken));
        world.turn();
        // One that comes meanwhile, and is sent a value from where it lies.
        let other = &CLIENTS[(slow + 1) % CLIENTS.len()];
        let late = world.connect();
        world.exchange(&late, &other.get(SPLICED).0, &other.get(SPLICED).1);
        all_is_answered(&mut world, &peers, None, &format!("{slow} takes {taken}"));
    }
}

#[test]
fn a_drain_amid_such_requests_ends_each_connection_behind_its_last_reply() {
    for (victim, at) in each_at_each(0..=FIRST_BYTES) {
        let resets = at % 2 == 0;
        let trouble = |peer: &Peer| if resets { peer.reset_after(at as u64) } else { peer.narrow(at) };
        let (mut world, peers) = ask_at_once(at as u64, Weather::FAIR, victim, trouble);
        world.events.drain(&mut world.service, STALL_MS);
        let without = resets.then_some(victim);
        all_is_answered(&mut world, &peers, without, &format!("{victim}, drained at {at}"));
        assert!(world.events.is_empty());
    }
}

#[test]
fn in_a_storm_each_client_gets_its_own_replies() {
    for seed in 0..60 {
        let weather = Weather { receive_max: usize::MAX, ..Weather::STORM };
        let (mut world, peers) = ask_at_once(seed, weather, 0, |_| ());
        all_is_answered(&mut world, &peers, None, &format!("seed {seed}"));
    }
}

#[test]
fn a_connection_is_charged_as_long_as_it_lasts() {
    let mut world = World::new(1, Weather::FAIR);
    let store = Arc::clone(&world.service.hub.store);
    let none = store.heap_bytes();
    let peers: Vec<Peer> = (0..3).map(|_| world.connect()).collect();
    world.run_until_idle();
    for (left, peer) in peers.iter().enumerate().rev() {
        assert_eq!(store.heap_bytes(), none + (left as u64 + 1) * CONNECTION_BYTES as u64);
        if left == 1 {
            peer.reset()
        } else {
            peer.end()
        }
        world.run_until_idle();
    }
    assert_eq!(store.heap_bytes(), none);
}

#[test]
fn replies_are_charged_while_they_wait() {
    let mut world = World::new(1, Weather::FAIR);
    let store = Arc::clone(&world.service.hub.store);
    for client in &CLIENTS {
        let peer = world.connect();
        let (set, stored) = client.set(MANY);
        world.exchange(&peer, &set, &stored);
        assert_eq!(store.held_bytes(), 0);
        // Of 40,000 bytes the system takes 5,000, and then some more.
        peer.narrow(5_000);
        let (request, reply) = client.get(MANY);
        peer.send(&bytes_of(&request.repeat(40)));
        world.run_until_idle();
        let waiting = 40 * reply.len() as u64 - 5_000;
        assert!(store.held_bytes() >= waiting, "{} for {waiting}", store.held_bytes());
        peer.narrow(9_000);
        world.run_until_idle();
        assert!(store.held_bytes() >= waiting - 9_000);
        peer.narrow(usize::MAX);
        assert_eq!(world.read_all(&peer), reply.repeat(40));
        assert_eq!(store.held_bytes(), 0);
        // It ends with replies that are not taken.
        peer.narrow(5_000);
        peer.send(&bytes_of(&request.repeat(40)));
        world.run_until_idle();
        assert!(store.held_bytes() >= waiting);
        peer.reset();
        world.run_until_idle();
        assert_eq!(store.held_bytes(), 0);
    }
}

/// An element that is sent from where it lies is held once, for all that wait for it, and until the last of them has it or has
/// gone, whatever becomes of its list.
#[test]
fn a_long_element_is_held_once_while_clients_wait_for_it() {
    const BYTES: usize = 100_000;
    let mut world = World::new(1, Weather::FAIR);
    let store = Arc::clone(&world.service.hub.store);
    let [one, other, third] = [(); 3].map(|()| world.connect());
    let element = "e".repeat(BYTES);
    world.exchange(&third, &resp(&["RPUSH", "l", &element]), ":1\r\n");
    let before = store.held_bytes();
    for peer in [&one, &other] {
        peer.narrow(5_000);
        peer.send(&bytes_of(&resp(&["LINDEX", "l", "0"])));
    }
    world.run_until_idle();
    // Its parts once, the list of them and what is no element twice.
    let held = before + BYTES as u64..before + BYTES as u64 + 1_000;
    assert!(held.contains(&store.held_bytes()), "{}", store.held_bytes());
    world.exchange(&third, &resp(&["DEL", "l"]), ":1\r\n");
    one.reset();
    world.run_until_idle();
    assert!(held.contains(&store.held_bytes()), "{}", store.held_bytes());
    other.narrow(usize::MAX);
    assert_eq!(world.read_all(&other), bulk(&element));
    assert_eq!(store.held_bytes(), before);
}

/// So is a member that is popped, which is nowhere else by then: until its client has it, or goes in the midst of it.
#[test]
fn a_long_member_that_is_popped_is_held_until_its_client_has_it_or_goes() {
    const BYTES: usize = 100_000;
    let mut world = World::new(1, Weather::FAIR);
    let store = Arc::clone(&world.service.hub.store);
    let other = world.connect();
    let member = "m".repeat(BYTES);
    for (words, reply) in [
        (resp(&["SPOP", "s"]), bulk(&member)),
        (resp(&["SPOP", "s", "9"]), format!("*1\r\n{}", bulk(&member))),
        (resp(&["SRANDMEMBER", "s"]), bulk(&member)),
    ] {
        for goes in [false, true] {
            let peer = world.connect();
            world.exchange(&other, &resp(&["SADD", "s", &member]), ":1\r\n");
            peer.narrow(5_000);
            let before = store.held_bytes();
            peer.send(&bytes_of(&words));
            world.run_until_idle();
            let held = before + BYTES as u64..before + BYTES as u64 + 1_000;
            assert!(held.contains(&store.held_bytes()), "{}", store.held_bytes());
            // It is there only where it was picked.
            let there = if words.contains("SPOP") { ":0\r\n" } else { ":1\r\n" };
            world.exchange(&other, &resp(&["DEL", "s"]), there);
            if goes {
                peer.reset();
                world.run_until_idle();
            } else {
                peer.narrow(usize::MAX);
                assert_eq!(world.read_all(&peer), reply);
            }
            assert!(store.held_bytes() < before + 1_000, "{}", store.held_bytes());
        }
    }
}

/// So is one that a client has waited for, and it is given back when the client goes in the midst of it.
#[test]
fn a_long_element_that_was_waited_for_is_held_once() {
    const BYTES: usize = 100_000;
    let mut world = World::new(1, Weather::FAIR);
    let store = Arc::clone(&world.service.hub.store);
    let pusher = world.connect();
    let element = "e".repeat(BYTES);
    for goes in [false, true] {
        let waiter = world.connect();
        waiter.narrow(5_000);
        waiter.send(&bytes_of(&resp(&["BLPOP", "l", "0"])));
        world.run_until_idle();
        let before = store.held_bytes();
        world.exchange(&pusher, &resp(&["RPUSH", "l", &element]), ":1\r\n");
        world.run_until_idle();
        world.exchange(&pusher, &resp(&["EXISTS", "l"]), ":0\r\n");
        // It waits for its client where it lies, and was copied nowhere.
        let held = before + BYTES as u64..before + BYTES as u64 + 10_000;
        assert!(held.contains(&store.held_bytes()), "{}", store.held_bytes());
        if goes {
            waiter.reset();
            world.run_until_idle();
        } else {
            waiter.narrow(usize::MAX);
            assert_eq!(world.read_all(&waiter), format!("*2\r\n{}{}", bulk("l"), bulk(&element)));
        }
        assert!(store.held_bytes() < before + 10_000, "{}", store.held_bytes());
        // Some of it was sent: it does not come back.
        world.exchange(&pusher, &resp(&["EXISTS", "l"]), ":0\r\n");
    }
}

/// A machine that is busy while a server starts has it know the time all the same.
#[test]
fn a_worker_that_begins_late_is_not_ahead_of_the_system() {
    let sim = Sim::new(1, Weather::FAIR);
    sim.time().pass_us(700_000);
    let mut world = World::on(sim, Config { threads: 1, ..Config::default() });
    let peer = world.connect_to(1);
    peer.send(b"TIME\r\n");
    assert_eq!(world.read_all(&peer).lines().nth(2), Some("1700000000"));
}

/// One message for many: its words are there once, and copies are made for some listeners at a time.
#[test]
fn what_is_published_to_many_takes_nobodys_items() {
    const ITEMS: usize = 40_000;
    const LISTENERS: usize = 200;
    let mut world = World::new(1, Weather { receive_max: usize::MAX, window: usize::MAX, ..Weather::FAIR });
    let filler = world.connect();
    for item in 0..ITEMS {
        filler.send(format!("set k{item:05} 0 0 1000 noreply\r\n{}\r\n", "v".repeat(1000)).as_bytes());
        if item % 1000 == 0 {
            world.run_until_idle();
        }
    }
    world.exchange(&filler, "mn\r\n", "MN\r\n");
    let store = Arc::clone(&world.service.hub().store);
    assert_eq!(store.totals().items, ITEMS as u64);
    let listeners: Vec<Peer> = (0..LISTENERS).map(|_| world.connect_to(1)).collect();
    listeners.iter().for_each(|peer| peer.send(b"SUBSCRIBE c\r\n"));
    world.run_until_idle();
    let heads: Vec<usize> = listeners.iter().map(|peer| peer.read(usize::MAX).len()).collect();
    assert!(heads.iter().all(|&bytes| bytes > 0));
    let text = "x".repeat(1_000_000);
    let publisher = world.connect_to(1);
    for round in 0..2 {
        publisher.send(resp(&["PUBLISH", "c", &text]).as_bytes());
        assert_eq!(world.read_all(&publisher), format!(":{LISTENERS}\r\n"));
        // Some in each turn.
        (0..LISTENERS).for_each(|_| world.turn());
        let told = resp(&["message", "c", &text]);
        let whole = listeners.iter().filter(|peer| peer.read(usize::MAX) == told.as_bytes()).count();
        assert_eq!((whole, store.totals().items), (LISTENERS, ITEMS as u64), "{round}");
        assert!(listeners.iter().all(|peer| !peer.closed()));
    }
    // A subscriber that does not read has no more than its share, and takes no items either.
    listeners.iter().for_each(|peer| peer.narrow(100_000));
    for _ in 0..10 {
        publisher.send(resp(&["PUBLISH", "c", &text]).as_bytes());
        (0..LISTENERS).for_each(|_| world.turn());
    }
    assert_eq!(store.totals().items, ITEMS as u64);
}

#[test]
fn keys_that_many_ask_for_and_nobody_reads_stay_within_what_connections_may_hold() {
    const READERS: usize = 40;
    for evict in [false, true] {
        let config = Config { threads: 1, memory_bytes: 64 << 20, evict, ..Config::default() };
        let mut world = World::of(config, 1, Weather { receive_max: usize::MAX, ..Weather::FAIR });
        let filler = world.connect_to(1);
        for item in 0..950 {
            let key = format!("{item:07}{}", "k".repeat(8185));
            world.exchange(&filler, &resp(&["SET", &key, ""]), "+OK\r\n");
        }
        let store = Arc::clone(&world.service.hub().store);
        let readers: Vec<Peer> = (0..READERS).map(|_| world.connect_to(1)).collect();
        for reader in &readers {
            reader.narrow(5_000);
            reader.send(resp(&["KEYS", "0*"]).as_bytes());
        }
        let most = loop {
            let mut most = 0;
            for _ in 0..READERS * 100 {
                world.turn();
                most = store.held_bytes().max(most);
            }
            if !world.events.backend().busy() {
                break most;
            }
        };
        // Beside it: what each is sent until it is seen to stand.
        let max = store.held_bytes_max();
        assert!(most <= max + (READERS as u64) * (24 << 10), "{most} of {max}");
        let refused = readers.iter().filter(|reader| reader.read(5_000).starts_with(b"-OOM ")).count();
        assert!((READERS / 2..READERS).contains(&refused), "{refused} are refused");
        // A connection that stands has to release memory for what was refused, though little of its reply is written.
        let held = store.held_bytes();
        assert!(held > max / 4, "{held} of {max}");
        world.pass(300);
        world.service.shed(&mut world.events);
        world.run_until_idle();
        assert_eq!(readers.iter().filter(|reader| reader.closed()).count(), 1);
        assert!(store.held_bytes() < held - (7 << 20), "{} of {held}", store.held_bytes());
        let other = world.connect_to(1);
        other.send(resp(&["KEYS", "0*"]).as_bytes());
        let mut told = Vec::new();
        // It takes some steps to find them.
        for _ in 0..READERS * 100 {
            world.turn();
            told.extend(other.read(usize::MAX));
        }
        assert!(told.starts_with(b"*950\r\n") && told.len() > 950 * 8192, "{} bytes", told.len());
    }
}

/// Whatever the loops' clock and the system's had beyond whole milliseconds when they were read.
#[test]
fn times_are_those_of_the_batch_to_the_microsecond_and_no_expiry_is_later_than_asked() {
    for phase_us in [0, 1, 499, 500, 777, 999] {
        let sim = Sim::new(1, Weather::FAIR);
        let (time, epoch_us) = (sim.time(), EPOCH_US + 1000 - phase_us);
        time.pass_us(700_000 + 2 * phase_us);
        let mut world = World::begun_at(epoch_us, sim, Config { threads: 1, ..Config::default() });
        let peer = world.connect_to(1);
        world.exchange(&peer, &resp(&["SET", "k", "v"]), "+OK\r\n");
        let mut last = 0;
        for _ in 0..400 {
            // Some of them beyond what the clocks are read anew after.
            time.pass_us(7_013);
            let before_us = epoch_us + time.now_us();
            peer.send(b"TIME\r\n");
            let told = world.read_all(&peer);
            let numbers: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
            let &[s, us] = &numbers[..] else { panic!("{told}") };
            let told_us = s * 1_000_000 + us;
            let after_us = epoch_us + time.now_us();
            assert!((before_us..=after_us).contains(&told_us), "{before_us} {told_us} {after_us}");
            assert!(last <= told_us, "{last} {told_us}");
            last = told_us;

            let at = ((epoch_us + time.now_us()) / 1000 + 10_000).to_string();
            world.exchange(&peer, &resp(&["GETEX", "k", "PXAT", &at]), "$1\r\nv\r\n");
            peer.send(resp(&["PTTL", "k"]).as_bytes());
            let left = world.read_all(&peer);
            let left: u64 = left.trim_end()[1..].parse().expect("milliseconds");
            assert!(left <= 10_000, "{left} ms are left of 10,000");
        }
    }
}

/// A worker learns within a second that the system's clock was set, and until then its own goes on.
#[test]
fn a_clock_that_was_set_is_followed_and_one_that_was_not_goes_on() {
    let sim = Sim::new(1, Weather::FAIR);
    let mut world = World::on(sim, Config { threads: 1, ..Config::default() });
    let Clock::Simulated { epoch_us, .. } = world.service.hub().clock.clone() else { panic!("a simulation") };
    let peer = world.connect_to(1);
    let asked = |world: &mut World| -> u64 {
        peer.send(b"TIME\r\n");
        let told = world.read_all(&peer);
        let numbers: Vec<u64> = told.lines().filter_map(|line| line.parse().ok()).collect();
        numbers[0] * 1_000_000 + numbers[1]
    };
    for set_us in [-3_600_000_123, 90_000_001, 1, 0] {
        let before = asked(&mut world);
        epoch_us.store(epoch_us.load(SeqCst).saturating_add_signed(set_us), SeqCst);
        world.pass(1_100);
        let after = asked(&mut world);
        let passed = after as i64 - before as i64 - set_us;
        assert!((1_000_000..1_300_000).contains(&passed), "{set_us}: {passed}");
    }
}
