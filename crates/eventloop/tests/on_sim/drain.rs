//! A loop that is drained over the simulated network: which clients still get replies, and for which the loop
//! does not wait.

use crate::toy::{LIMITS, World};
use larder_eventloop::sim::{Peer, Weather};
use larder_eventloop::{Closed, RECEIVE_BYTES};

/// While the loop is drained, a connection is closed if its client reads no reply for this long.
const STALL_MS: u64 = 5_000;

#[test]
fn drain_ends_idle_connections_at_once_and_others_when_they_have_read() {
    let mut world = World::new(10, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let idle = world.connect();
    let busy = world.connect();
    busy.send(b"x9000\n");
    world.run_until_idle();
    world.events.drain(&mut world.toy, STALL_MS);
    assert!(idle.closed() && !busy.closed());
    assert_eq!(world.read_all(&busy).len(), 9000);
    assert!(busy.closed());
    assert_eq!(world.toy.closed, [Closed::Drained, Closed::Drained]);
}

#[test]
fn requests_that_had_come_are_answered_whoever_held_them_and_later_ones_are_not() {
    // More replies than a connection keeps: some wait in the stream.
    let asks = 3 * RECEIVE_BYTES / 5;
    for seed in 0..6 {
        let weather = match seed % 3 {
            0 => Weather { window: 4096, ..Weather::FAIR },
            1 => Weather { window: 100, ..Weather::FAIR },
            _ => Weather::STORM,
        };
        let mut world = World::new(seed, weather, LIMITS);
        let peers: Vec<Peer> = (0..3).map(|_| world.connect()).collect();
        for peer in &peers {
            peer.send(&b"x100\n".repeat(asks));
        }
        if seed % 2 == 0 {
            world.run_until_idle();
            assert!(peers[0].untaken() > 0, "it is held back");
        }
        world.events.drain(&mut world.toy, STALL_MS);
        for peer in &peers {
            peer.send(b"elate\n");
        }
        for peer in &peers {
            assert_eq!(world.read_all(peer).len(), 100 * asks, "seed {seed}");
        }
        assert!(world.events.is_empty(), "seed {seed}");
        assert_eq!(world.toy.closed, [Closed::Drained; 3], "seed {seed}");
        assert!(peers.iter().all(|peer| peer.untaken() == 0), "unread bytes would reset the connection");
    }
}

#[test]
fn values_that_had_come_whole_are_answered_and_halves_are_not_waited_for() {
    for (bytes, answered) in [(69_999, false), (70_000, true), (70_001, true)] {
        for weather in [Weather::FAIR, Weather { receive_max: 1000, ..Weather::FAIR }] {
            let mut world = World::new(12, weather, LIMITS);
            let peer = world.connect();
            peer.send(b"u70000\n");
            peer.send(&vec![1; bytes]);
            world.events.drain(&mut world.toy, STALL_MS);
            let expected: &[u8] = if answered { b"70000\n" } else { b"" };
            assert_eq!(world.read_all(&peer), expected, "{bytes}");
            assert!(peer.closed(), "{bytes}");
        }
    }
}

#[test]
fn replies_that_nobody_takes_are_not_waited_for_longer_than_the_stall_timeout() {
    let mut world = World::new(13, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let (stuck, slow) = (world.connect(), world.connect());
    for peer in [&stuck, &slow] {
        peer.send(&b"x9000\n".repeat(10));
    }
    world.run_until_idle();
    world.events.drain(&mut world.toy, STALL_MS);
    world.run_until_idle();
    for _ in 0..4 {
        world.pass(STALL_MS / 2);
        slow.read(1000);
        world.run_until_idle();
    }
    assert_eq!(world.toy.closed, [Closed::Stalled]);
    assert!(stuck.closed() && !slow.closed());
    assert_eq!(world.read_all(&slow).len(), 86_000);
    assert!(world.events.is_empty());
}

#[test]
fn who_asks_for_the_end_gets_it_without_what_came_behind() {
    let mut world = World::new(14, Weather { window: 16, ..Weather::FAIR }, LIMITS);
    let peer = world.connect();
    peer.send(b"x1000\nq\nelate\n");
    world.events.drain(&mut world.toy, STALL_MS);
    assert_eq!(world.read_all(&peer), vec![b'x'; 1000]);
    assert!(peer.closed());
    assert_eq!(world.toy.closed, [Closed::Handler]);
}
