//! EXEC in steps, and what writes many elements, over the simulated network: what becomes of it when its client has gone, or
//! the server ends, and beside others; and what becomes of messages that are on their way then.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use larder_commands::Speaks;
use larder_eventloop::Closed;
use larder_eventloop::sim::{Peer, Sim, Weather};
use larder_eventloop::socket::Address;
use larder_store::{Attributes, Expect, Lookup, Store, Value};

use super::on_sim::resp;
use super::{DRAIN_MS, Worker};
use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::listener::Listener;
use crate::log::Log;
use crate::mailbox::Mailbox;

/// Words of a DEL that takes some dozen slices.
const WORDS: usize = 15_000;

struct World {
    worker: Worker<Sim>,
    turns: usize,
}

impl World {
    fn new(config: Config) -> World {
        World::of(Config { threads: 1, memory_bytes: 256 << 20, ..config })
    }

    fn of(config: Config) -> World {
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let of_store = store.worker().expect("a worker of the store");
        let sim = Sim::new(1, Weather { window: usize::MAX, ..Weather::FAIR });
        let clock = Clock::Simulated { time: sim.time(), epoch_us: Arc::new(0.into()) };
        let listeners = vec![Listener::new(Address::Unix("/sim".into()), Speaks::Redis)];
        let hub = Arc::new(Hub::new(config, store, listeners, Log::default(), clock).expect("wakers"));
        let arrivals = Arc::new(Mailbox::new(&hub.handles[0].waker));
        World { worker: Worker::new(hub, 0, of_store, sim, arrivals), turns: 0 }
    }

    fn connect(&mut self) -> Peer {
        let Worker { hub, events, service, .. } = &mut self.worker;
        let (stream, peer) = events.backend().connect();
        hub.handles[0].connections.fetch_add(1, SeqCst);
        service.enter(events, stream, Address::Unix("/sim".into()), 0);
        peer
    }

    /// A turn; false if the worker has come to its end.
    fn turn(&mut self) -> bool {
        self.turns += 1;
        assert!(self.turns < 100_000, "it comes to no end");
        self.worker.turn().expect("a turn")
    }

    /// Takes turns until a peer has been sent something: what that is, and in how many turns.
    fn answer(&mut self, peer: &Peer) -> (String, usize) {
        let before = self.turns;
        loop {
            let said = peer.read(usize::MAX);
            if !said.is_empty() {
                return (String::from_utf8(said).expect("text"), self.turns - before);
            }
            self.turn();
        }
    }

    /// A client that has sent EXEC of what counts twice, and between that deletes a key so many times; all of which has come.
    fn executes(&mut self, words: usize) -> Peer {
        self.executes_on("n", "k", words)
    }

    /// The same with this counter, and this key.
    fn executes_on(&mut self, counter: &str, key: &str, words: usize) -> Peer {
        let peer = self.connect();
        let delete: Vec<&str> = std::iter::once("DEL").chain((0..words).map(|_| key)).collect();
        let all = [&["MULTI"][..], &["INCR", counter], &delete, &["INCR", counter], &["EXEC"]];
        peer.send(all.map(resp).concat().as_bytes());
        while peer.untaken() > 0 {
            self.turn();
        }
        peer
    }

    /// A client that has sent a command, all of which has come.
    fn sends(&mut self, words: &[&str]) -> Peer {
        let peer = self.connect();
        peer.send(resp(words).as_bytes());
        while peer.untaken() > 0 {
            self.turn();
        }
        peer
    }

    /// A client that has sent SADD of so many members.
    fn adds(&mut self, key: &str, members: usize) -> Peer {
        let members: Vec<String> = (0..members).map(|n| format!("m{n}")).collect();
        let words: Vec<&str> = ["SADD", key].into_iter().chain(members.iter().map(String::as_str)).collect();
        self.sends(&words)
    }

    /// A client that waits for the key, when it is held.
    fn waits(&mut self) -> Peer {
        let peer = self.connect();
        loop {
            peer.send(resp(&["GET", "k"]).as_bytes());
            (0..3).for_each(|_| assert!(self.turn()));
            if peer.read(usize::MAX).is_empty() {
                return peer;
            }
        }
    }

    fn stop(&mut self) {
        self.worker.hub.stop_workers();
        self.worker.events.backend().wake();
    }

    /// What was counted, as its store has it.
    fn counted(&mut self) -> String {
        let service = &mut self.worker.service;
        let mut guard = service.store.enter(service.wall);
        let key = guard.key(b"n");
        let Lookup::Hit(item) = guard.get(&key) else { return String::new() };
        let Value::Whole(text) = item.value() else { panic!("a number in pieces") };
        String::from_utf8(text.to_vec()).expect("text")
    }
}

#[test]
fn keys_that_many_hold_who_have_gone_are_held_no_longer_for_their_number() {
    const GONE: usize = 60;
    let mut world = World::new(Config::default());
    let peers: Vec<Peer> = (0..GONE).map(|_| world.executes(WORDS)).collect();
    let waits = world.connect();
    peers.iter().for_each(Peer::reset);
    world.turn();
    let gone = world.worker.service.unfinished.len();
    assert!(gone > GONE / 2, "{gone} have gone");
    waits.send(resp(&["GET", "k"]).as_bytes());
    let (said, turns) = world.answer(&waits);
    assert!(said == "$-1\r\n" && turns < 100, "{turns} turns");
    let before = world.turns;
    while !world.worker.service.unfinished.is_empty() {
        world.turn();
    }
    let turns = world.turns - before;
    assert!(turns < gone * 40, "{turns} turns for {gone}");
}

#[test]
fn one_that_holds_keys_is_in_front_of_one_that_notes_its_own() {
    let mut world = World::new(Config::default());
    let notes = world.executes(60 * WORDS);
    let holds = world.executes(4 * WORDS);
    let waits = world.waits();
    notes.reset();
    world.turn();
    holds.reset();
    world.turn();
    assert_eq!((world.worker.service.unfinished.len(), waits.read(usize::MAX)), (2, Vec::new()));
    let before = world.turns;
    while world.counted() != "2" {
        world.turn();
    }
    let turns = world.turns - before;
    assert!(turns < 100, "{turns} turns");
    assert_eq!(world.answer(&waits).0, "$-1\r\n");
}

#[test]
fn one_that_holds_keys_and_reads_nothing_goes_on_while_memory_for_replies_is_short() {
    let mut world = World::new(Config::default());
    let holds = world.executes(4 * WORDS);
    let waits = world.waits();
    // What it was told before fills its window, and others hold all that connections may.
    holds.narrow(1);
    let store = Arc::clone(&world.worker.hub.store);
    let max = store.held_bytes_max() as i64;
    store.hold(max);
    world.turn();
    assert!(world.worker.service.short);
    let (said, turns) = world.answer(&waits);
    assert!(said == "$-1\r\n" && turns < 100, "{said:?} in {turns} turns");
    assert_eq!(world.counted(), "2");
    // Its replies wait for room, as others' do.
    assert!(!holds.closed());
    store.hold(-max);
}

/// They are one moment for others. Clients that only send no more while their commands wait to hold keys are answered.
#[test]
fn elements_are_written_to_the_last_where_their_client_has_gone_or_sends_no_more() {
    let mut world = World::new(Config::default());
    let gone = world.adds("k", 40_000);
    let waits = world.waits();
    gone.reset();
    world.turn();
    assert_eq!(world.worker.service.unfinished.len(), 1);
    let ends = world.adds("other", 4_000);
    ends.end();
    let names: Vec<String> = (0..3_000).map(|n| format!("p{n}")).collect();
    let pairs = names.iter().flat_map(|name| [&name[..], "v"]);
    let pairs = world.sends(&["MSET"].into_iter().chain(pairs).collect::<Vec<_>>());
    pairs.end();
    assert!(world.answer(&waits).0.starts_with("-WRONGTYPE "));
    assert_eq!(world.answer(&ends).0, ":4000\r\n");
    assert_eq!(world.answer(&pairs).0, "+OK\r\n");
    waits.send(resp(&["SCARD", "k"]).as_bytes());
    assert_eq!(world.answer(&waits).0, ":40000\r\n");
}

/// Nothing else may happen for long at a worker that is not the first.
#[test]
fn what_a_connection_was_at_that_upkeep_has_closed_is_looked_at_in_the_next_turn() {
    let mut world = World::new(Config::default());
    let _executes = world.executes(WORDS);
    assert_ne!(world.worker.before_wait(), Some(Duration::ZERO));
    let Worker { events, service, .. } = &mut world.worker;
    service.shed_one(events, 0, Closed::Shed);
    assert_eq!(world.worker.service.unfinished.len(), 1);
    assert_eq!(world.worker.before_wait(), Some(Duration::ZERO));
    while world.counted() != "2" {
        world.turn();
    }
}

#[test]
fn a_server_that_ends_goes_on_for_those_who_wait_for_one_who_has_gone() {
    let mut world = World::new(Config::default());
    let gone = world.executes(4 * WORDS);
    let waits = world.waits();
    gone.reset();
    world.turn();
    assert_eq!(world.worker.service.unfinished.len(), 1);
    world.stop();
    while world.turn() {}
    assert_eq!(waits.read(usize::MAX), b"$-1\r\n");
    let now = world.worker.events.now();
    assert!(now < 1_000, "at its end after {now} ms");
    assert_eq!(world.counted(), "2");
}

/// One of two waits for the other when the server ends: both are carried out, and both are told.
#[test]
fn a_server_that_ends_tells_who_waits_to_hold_keys_what_became_of_them() {
    let mut world = World::new(Config::default());
    let peers = [world.executes(12 * WORDS), world.executes(WORDS)];
    let _waits = world.waits();
    world.stop();
    while world.turn() {}
    let mut said = peers.map(|peer| String::from_utf8(peer.read(usize::MAX)).expect("text"));
    said.sort();
    let queued = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(3));
    assert_eq!(said, [1, 3].map(|n| format!("{queued}*3\r\n:{n}\r\n:0\r\n:{}\r\n", n + 1)));
    assert!(world.worker.events.now() < 2_000);
}

/// Pairs in steps wait for their turn to hold keys when the server ends, or their client sends no more.
#[test]
fn pairs_that_wait_to_hold_their_keys_are_answered_though_the_server_or_their_client_ends() {
    for stops in [true, false] {
        let mut world = World::new(Config::default());
        let _executes = world.executes(12 * WORDS);
        let waits = world.waits();
        let peer = world.connect();
        let names: Vec<String> = (0..3_000).map(|n| format!("k{n}")).collect();
        let words = names.iter().flat_map(|name| [&name[..], "v"]);
        peer.send(resp(&std::iter::once("MSET").chain(words).collect::<Vec<_>>()).as_bytes());
        while peer.untaken() > 0 {
            world.turn();
        }
        // It notes its keys, and looks in vain whether others are free.
        (0..20).for_each(|_| assert!(world.turn()));
        assert!(waits.read(usize::MAX).is_empty() && peer.read(usize::MAX).is_empty());
        if stops {
            world.stop();
            while world.turn() {}
            assert_eq!(peer.read(usize::MAX), b"+OK\r\n");
        } else {
            peer.end();
            assert_eq!(world.answer(&peer).0, "+OK\r\n");
        }
    }
}

/// EXEC in steps waits for its turn to hold keys, which are others than those that are held, when its client sends no more.
#[test]
fn exec_that_waits_to_hold_its_keys_is_answered_though_its_client_sends_no_more() {
    let mut world = World::new(Config::default());
    let _executes = world.executes(12 * WORDS);
    let waits = world.waits();
    let peer = world.executes_on("m", "j", WORDS);
    let mut said = String::new();
    while said.matches("+QUEUED").count() < 3 {
        said += &world.answer(&peer).0;
    }
    (0..20).for_each(|_| assert!(world.turn()));
    assert!(waits.read(usize::MAX).is_empty() && peer.read(usize::MAX).is_empty());
    peer.end();
    assert_eq!(world.answer(&peer).0, "*3\r\n:1\r\n:0\r\n:2\r\n");
}

/// A script that has written nothing goes on for as long as it likes, and behind its time with its client alone.
#[test]
fn a_script_that_goes_on_for_longer_than_its_time_ends_when_its_client_sends_no_more() {
    let mut world = World::new(Config::default());
    let script = world.sends(&["EVAL", "while true do end", "0"]);
    // Of busy-reply-threshold, which is 5 s.
    world.worker.events.backend().time().pass_us(6_000_000);
    (0..20).for_each(|_| assert!(world.turn()));
    assert!(!script.closed() && script.read(usize::MAX).is_empty());
    script.end();
    (0..20).for_each(|_| assert!(world.turn()));
    assert!(script.closed());
    let kills = world.sends(&["SCRIPT", "KILL"]);
    assert_eq!(world.answer(&kills).0, "-NOTBUSY No scripts in execution right now.\r\n");
}

/// It takes several turns to deliver it to all subscribers that were counted.
#[test]
fn what_was_published_when_a_server_ends_is_delivered() {
    const LISTENERS: usize = 200;
    let mut world = World::new(Config::default());
    let text = "x".repeat(50_000);
    let listeners: Vec<Peer> = (0..LISTENERS).map(|_| world.connect()).collect();
    for peer in &listeners {
        peer.send(resp(&["SUBSCRIBE", "c"]).as_bytes());
        world.answer(peer);
    }
    let publishes = world.connect();
    publishes.send(resp(&["PUBLISH", "c", &text]).as_bytes());
    assert_eq!(world.answer(&publishes).0, ":200\r\n");
    world.stop();
    while world.turn() {
        // As the worker's own waker does where more is to be delivered.
        world.worker.events.backend().wake();
    }
    let message = resp(&["message", "c", &text]);
    assert!(listeners.iter().all(|peer| peer.read(usize::MAX) == message.as_bytes()));
}

#[test]
fn a_server_whose_time_is_over_ends_behind_all_that_was_begun() {
    let mut world = World::new(Config::default());
    // While the keys of the first are noted the second begins, too.
    let _executes = world.executes(12 * WORDS);
    let gone = world.executes(WORDS);
    let waits = world.waits();
    gone.reset();
    world.turn();
    assert_eq!((world.worker.service.unfinished.len(), waits.read(usize::MAX)), (1, Vec::new()));
    world.stop();
    world.worker.events.backend().time().pass_us(DRAIN_MS * 1000);
    while world.turn() {}
    assert_eq!((world.counted(), world.worker.events.len()), ("4".into(), 0));
}

/// Its looks are 10 ms apart, as they are beside a client, and those of a pair are 24.
#[test]
fn pairs_whose_client_has_gone_wait_for_their_memory_as_long_as_beside_it() {
    let mut world = World::of(Config { threads: 2, memory_bytes: 16 << 20, ..Config::default() });
    let wall = world.worker.service.wall;
    let mut stuck = world.worker.hub.store.worker().expect("a worker of the store");
    for n in 0..20_000_u32 {
        let (mut guard, name) = (stuck.enter(wall), n.to_be_bytes());
        let key = guard.key(&name);
        guard.store_value(&key, &[1; 1000], &Attributes::default(), Expect::Any).expect("others give way");
    }
    let (peer, value) = (world.connect(), "v".repeat(200));
    let names: Vec<String> = std::iter::once("k".into()).chain((1..6_000).map(|n| format!("k{n}"))).collect();
    let words = names.iter().flat_map(|name| [&name[..], &value[..]]);
    peer.send(resp(&std::iter::once("MSET").chain(words).collect::<Vec<_>>()).as_bytes());
    while peer.untaken() > 0 {
        world.turn();
    }
    // It holds its keys, and is not alone with its worker, which would sleep for memory.
    let waits = [world.waits(), world.connect()];
    let batch = stuck.enter(wall);
    peer.reset();
    world.turn();
    assert_eq!(world.worker.service.unfinished.len(), 1);
    let began = world.worker.events.now();
    while !world.worker.service.unfinished.is_empty() {
        world.turn();
    }
    let waited = world.worker.events.now() - began;
    assert!((200..300).contains(&waited), "{waited} ms");
    drop((batch, waits));
}
