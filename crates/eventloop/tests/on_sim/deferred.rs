//! Replies that are deferred for a common send while their connections continue. Several peers send small
//! requests and the heads of uploads in one receive; some of them reset, or stop reading, at any byte.

use crate::toy::{LIMITS, World};
use larder_eventloop::sim::{Peer, Weather};
use larder_eventloop::{Closed, RECEIVE_BYTES};

/// Bytes of an upload that takes several receives.
const LONG: usize = RECEIVE_BYTES + 30_000;
/// Bytes of an upload of which only a part is received together with another upload.
const SHORT: usize = 3_000;

/// An upload of `bytes` bytes, and its reply.
fn upload(bytes: usize) -> (Vec<u8>, String) {
    let mut request = format!("u{bytes}\n").into_bytes();
    request.resize(request.len() + bytes, 1);
    (request, format!("{bytes}\n"))
}

/// Peers whose latest request was an upload.
fn uploaders(world: &mut World) -> Vec<Peer> {
    let peers: Vec<Peer> = (0..3).map(|_| world.connect()).collect();
    for peer in &peers {
        let (request, reply) = upload(LONG);
        peer.send(&request);
        assert_eq!(world.read_all(peer), reply.as_bytes());
    }
    peers
}

/// The requests of a peer: twice a small request and an upload's head in one receive, and a small request
/// after them. Also their replies, which differ from those of all other peers.
fn pipeline(name: char) -> (Vec<u8>, String) {
    let (request, reply) = upload(SHORT);
    let (small, last) = (format!("e{}\n", String::from(name).repeat(9)), format!("e{name}\n"));
    let requests = [small.as_bytes(), &request, small.as_bytes(), &request, last.as_bytes()].concat();
    (requests, format!("{small}{reply}{small}{reply}{last}"))
}

const NAMES: [char; 3] = ['a', 'b', 'c'];

#[test]
fn a_peer_that_resets_at_any_byte_takes_no_reply_of_another_along() {
    let bytes = pipeline('a').1.len() as u64;
    for (at, victim) in (0..=bytes).flat_map(|at| (0..NAMES.len()).map(move |victim| (at, victim))) {
        let mut world = World::new(at, Weather::FAIR, LIMITS);
        let peers = uploaders(&mut world);
        for (peer, name) in peers.iter().zip(NAMES) {
            peer.send(&pipeline(name).0);
        }
        peers[victim].reset_after(at);
        world.turn();
        for (index, (peer, name)) in peers.iter().zip(NAMES).enumerate() {
            let expected = if index == victim { String::new() } else { pipeline(name).1 };
            assert_eq!(world.read_all(peer), expected.as_bytes(), "{index}, reset of {victim} at {at}");
        }
        assert_eq!(world.toy.closed, [Closed::Error]);
    }
}

#[test]
fn a_peer_that_takes_any_part_of_its_replies_gets_the_rest_of_them_and_no_other() {
    let bytes = pipeline('a').1.len();
    for (taken, slow) in (1..=bytes).flat_map(|taken| (0..NAMES.len()).map(move |slow| (taken, slow))) {
        let mut world = World::new(taken as u64, Weather::FAIR, LIMITS);
        let peers = uploaders(&mut world);
        peers[slow].narrow(taken);
        for (peer, name) in peers.iter().zip(NAMES) {
            peer.send(&pipeline(name).0);
        }
        world.turn();
        for (index, (peer, name)) in peers.iter().zip(NAMES).enumerate() {
            let expected = pipeline(name).1;
            assert_eq!(world.read_all(peer), expected.as_bytes(), "{index}, {slow} takes {taken}");
        }
        // No replies wait any more, so no connection is closed as stalled.
        world.pass(2 * LIMITS.stall_ms);
        assert!(world.toy.closed.is_empty());
    }
}

#[test]
fn in_any_weather_each_gets_its_own_and_whoever_resets_nothing_more() {
    for seed in 0..200 {
        let weather = Weather { receive_max: usize::MAX, ..Weather::STORM };
        let mut world = World::new(seed, weather, LIMITS);
        let peers = uploaders(&mut world);
        let rounds = 4;
        peers[seed as usize % 3].reset_after(1 + seed % 97);
        for round in 0..rounds {
            for (peer, name) in peers.iter().zip(NAMES) {
                peer.send(&pipeline(name).0);
            }
            world.events.set_short(&mut world.toy, (seed + round) % 5 == 0);
            world.turn();
        }
        for (index, (peer, name)) in peers.iter().zip(NAMES).enumerate() {
            let whole = if index as u64 == seed % 3 { 0 } else { rounds as usize };
            assert_eq!(
                world.read_all(peer),
                pipeline(name).1.repeat(whole).as_bytes(),
                "seed {seed}, {index}"
            );
        }
        assert_eq!(world.toy.closed, [Closed::Error]);
    }
}
