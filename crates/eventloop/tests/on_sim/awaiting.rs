//! Connections that wait to be woken, over the simulated network.

use crate::toy::{LIMITS, World};
use larder_eventloop::sim::{Peer, Weather};
use larder_eventloop::{Closed, Id, Limits};

fn world(limits: Limits) -> (World, Peer, Id) {
    let mut world = World::new(1, Weather::FAIR, limits);
    let peer = world.connect();
    let id = world.events.id_at(0).expect("it is the only one");
    (world, peer, id)
}

#[test]
fn who_waits_is_looked_at_when_it_is_woken_or_its_time_has_come_and_what_follows_waits() {
    let (mut world, peer, id) = world(LIMITS);
    peer.send(b"e0\na\ne1\n");
    assert_eq!(world.read_all(&peer), b"e0\n", "what came before is sent");
    peer.send(b"e2\n");
    assert_eq!(world.read_all(&peer), b"");
    assert_eq!(peer.untaken(), 3, "it is not read meanwhile");
    world.events.wake(id);
    assert_eq!(world.read_all(&peer), b"e1\ne2\n");
    world.events.wake(id);
    assert_eq!(world.read_all(&peer), b"", "who does not wait is not woken");

    peer.send(b"a50\ne3\n");
    world.run_until_idle();
    world.pass(49);
    assert_eq!(world.read_all(&peer), b"");
    world.pass(1);
    assert_eq!(world.read_all(&peer), b"e3\n");

    // The timeout of a wait ends with that wait: it does not end a later one.
    peer.send(b"a50\ne4\n");
    world.run_until_idle();
    world.events.wake(id);
    assert_eq!(world.read_all(&peer), b"e4\n");
    peer.send(b"a70\ne5\n");
    world.run_until_idle();
    world.pass(69);
    assert_eq!(world.read_all(&peer), b"");
    world.pass(1);
    assert_eq!(world.read_all(&peer), b"e5\n");
    assert!(world.toy.closed.is_empty());
}

#[test]
fn many_that_are_woken_leave_nothing_behind() {
    let (mut world, peer, id) = world(LIMITS);
    for n in 0..1_000 {
        peer.send(b"a3600000\n");
        world.run_until_idle();
        world.events.wake(id);
        peer.send(format!("e{n}\n").as_bytes());
        assert_eq!(world.read_all(&peer), format!("e{n}\n").as_bytes());
    }
    assert_eq!(world.events.asleep(), 0);
}

#[test]
fn who_waits_and_ends_its_stream_is_gone() {
    for sends in [&b"a\n"[..], b"a\ne1\n", b"a60000\n"] {
        let (mut world, peer, _) = world(LIMITS);
        peer.send(sends);
        world.run_until_idle();
        peer.end();
        world.run_until_idle();
        assert_eq!(world.toy.closed, [Closed::Error]);
        assert_eq!(world.events.asleep(), 0);
    }
}

#[test]
fn who_waits_is_not_idle_and_holds_up_no_drain() {
    let (mut world, peer, id) = world(Limits { idle_ms: 2_000, request_ms: 2_000, ..LIMITS });
    peer.send(b"a\ne1\nhalf a request");
    world.run_until_idle();
    world.pass(30_000);
    assert!(world.toy.closed.is_empty());
    world.events.wake(id);
    assert_eq!(world.read_all(&peer), b"e1\n");
    world.pass(1_000);
    assert!(world.toy.closed.is_empty(), "it was woken a second ago");
    world.pass(5_000);
    assert_eq!(world.toy.closed, [Closed::Unfinished]);

    let (mut world, peer, _) = self::world(LIMITS);
    peer.send(b"a\ne1\n");
    world.run_until_idle();
    world.events.drain(&mut world.toy, 1_000);
    world.run_until_idle();
    assert_eq!((world.toy.closed.as_slice(), world.events.len()), (&[Closed::Drained][..], 0));
}
