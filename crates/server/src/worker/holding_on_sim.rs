//! Replies that are not read, in virtual time: which connections go for what they hold, and which stay.

use std::sync::Arc;

use larder_commands::Counter;
use larder_eventloop::sim::{Peer, Weather};
use larder_store::Store;

use super::on_sim::World;
use crate::config::Config;

/// A value that is copied into replies.
const VALUE: usize = 10_000;
/// In so many turns whatever can be replied is.
const TURNS: usize = 100;

/// A world where the value is there, and its store.
fn world() -> (World, Arc<Store>) {
    let config = Config { threads: 1, connections_max: 4096, memory_bytes: 64 << 20, ..Config::default() };
    let mut world = World::of(config, 1, Weather::FAIR);
    let filler = world.connect();
    world.exchange(&filler, &format!("set m 0 0 {VALUE}\r\n{}\r\n", "v".repeat(VALUE)), "STORED\r\n");
    filler.end();
    world.run_until_idle();
    let store = Arc::clone(&world.service.hub().store);
    (world, store)
}

/// A client that asks for the value so many times, and reads nothing of it.
fn who_stands(world: &mut World, times: usize) -> Peer {
    let peer = world.connect();
    peer.narrow(1_000);
    peer.send("get m\r\n".repeat(times).as_bytes());
    // A part of its replies is made in each.
    (0..TURNS).for_each(|_| world.turn());
    peer
}

/// It is sent the value so many times, and nothing else.
fn reads(world: &mut World, peer: &Peer, times: usize) {
    let all = format!("VALUE m 0 {VALUE}\r\n{}\r\nEND\r\n", "v".repeat(VALUE)).repeat(times);
    let mut told = Vec::new();
    for _ in 0..TURNS {
        world.turn();
        told.extend(peer.read(usize::MAX));
        if told.len() >= all.len() {
            break;
        }
    }
    assert!(told == all.as_bytes(), "{} bytes of {}", told.len(), all.len());
}

fn closed(peers: &[Peer]) -> usize {
    peers.iter().filter(|peer| peer.closed()).count()
}

fn shed(world: &World) -> u64 {
    let mut sums = larder_commands::Sums::default();
    sums.add(&world.service.hub().handles[0].counters);
    sums.of(Counter::Shed)
}

#[test]
fn who_holds_most_goes_first_and_no_more_go_than_others_need() {
    let (mut world, store) = world();
    let max = store.held_bytes_max();
    // It has stood for longest, and holds little.
    let small = who_stands(&mut world, 10);
    let large: Vec<Peer> = (0..6).map(|_| who_stands(&mut world, 430)).collect();
    assert!(store.held_bytes() >= max, "{} of {max}", store.held_bytes());
    // No connection goes before it has stood for a while.
    world.service.shed(&mut world.events);
    assert_eq!(closed(&large), 0);
    world.pass(300);
    world.service.shed(&mut world.events);
    let gone = closed(&large) as u64;
    assert!((1..=2).contains(&gone), "{gone} have gone");
    assert!(store.held_bytes() < max - max / 8 && !small.closed());
    assert_eq!(shed(&world), gone);
    small.narrow(usize::MAX);
    reads(&mut world, &small, 10);
}

/// A connection that has stood for much longer than others goes before them only if it holds much.
#[test]
fn who_holds_little_goes_behind_those_who_hold_most_however_long_it_has_stood() {
    let (mut world, store) = world();
    let small: Vec<Peer> = (0..10).map(|_| who_stands(&mut world, 10)).collect();
    let long = who_stands(&mut world, 30);
    world.pass(300);
    let large: Vec<Peer> = (0..6).map(|_| who_stands(&mut world, 430)).collect();
    assert!(store.held_bytes() >= store.held_bytes_max(), "{}", store.held_bytes());
    world.pass(300);
    world.service.shed(&mut world.events);
    assert!(long.closed(), "it holds 300 KB");
    let gone = closed(&large) as u64;
    assert!((1..=2).contains(&gone), "{gone} have gone");
    assert_eq!((closed(&small), shed(&world)), (0, gone + 1));
    for peer in &small {
        peer.narrow(usize::MAX);
        reads(&mut world, peer, 10);
    }
}

#[test]
fn who_holds_little_stays_where_what_is_missing_is_held_by_those_who_do_not_stand() {
    let (mut world, store) = world();
    let max = store.held_bytes_max();
    let small: Vec<Peer> = (0..10).map(|_| who_stands(&mut world, 10)).collect();
    let held = store.held_bytes();
    assert!(held > 900_000 && held < max / 4, "{held} of {max}");
    // As a transaction whose replies are made.
    store.hold(max as i64);
    // Nor is it closed for a value that is refused to another.
    assert!(!store.may_hold(1));
    for _ in 0..20 {
        world.pass(100);
        world.service.shed(&mut world.events);
    }
    assert_eq!(closed(&small), 0);
    for peer in &small {
        peer.narrow(usize::MAX);
        reads(&mut world, peer, 10);
    }
    assert_eq!(shed(&world), 0);
    store.hold(-(max as i64));
}

/// A thousand connections of which each holds little hold too much together, and go until they do not.
#[test]
fn many_who_hold_little_each_are_bounded_and_keep_nobody_from_its_replies() {
    let (mut world, store) = world();
    let max = store.held_bytes_max();
    let many: Vec<Peer> = (0..1000).map(|_| world.connect()).collect();
    for peer in &many {
        peer.narrow(1_000);
        peer.send("get m\r\n".repeat(4).as_bytes());
    }
    world.run_until_idle();
    assert!(store.held_bytes() >= max, "{} of {max}", store.held_bytes());
    let reader = world.connect();
    for _ in 0..100 {
        reader.send("get m\r\n".repeat(3).as_bytes());
        reads(&mut world, &reader, 3);
        world.pass(100);
        world.service.shed(&mut world.events);
    }
    assert!(!reader.closed());
    assert!(store.held_bytes() <= max, "{} of {max}", store.held_bytes());
    let gone = closed(&many);
    assert!((100..950).contains(&gone), "{gone} have gone");
}
