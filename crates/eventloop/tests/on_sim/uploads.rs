//! Uploads that end with their last byte: the handler finishes each one, and replies, when that byte has
//! come. No byte follows it, so no event would bring the loop back to a connection that it left too early.

use crate::toy::{LIMITS, World};
use larder_eventloop::RECEIVE_BYTES;
use larder_eventloop::sim::{Peer, Weather};

/// Bytes that are received directly before other connections have their turn.
const TURN_BYTES: usize = 1 << 20;
/// More bytes than one direct receive of the toy protocol gets.
const PLACE_BYTES_MAX: usize = 2_700;
const STALL_MS: u64 = 5_000;

/// Upload sizes around two limits: the end of the first receive into the buffer, and the end of a turn.
fn sizes() -> impl Iterator<Item = usize> {
    let around = |middle: usize| (middle - 600..middle + PLACE_BYTES_MAX).step_by(301);
    around(RECEIVE_BYTES).chain(around(RECEIVE_BYTES + TURN_BYTES))
}

/// A connection with an upload of `bytes` bytes, of which `sent` have come.
fn uploader(world: &mut World, bytes: usize, sent: usize) -> Peer {
    let peer = world.connect();
    peer.send(format!("u{bytes}\n").as_bytes());
    peer.send(&vec![1; sent]);
    peer
}

/// Two worlds: in the second, each piece of an upload spends the budget, so that other connections have their
/// turn.
fn worlds() -> impl Iterator<Item = World> {
    [false, true].into_iter().map(|spends_budget| {
        let mut world = World::new(15, Weather::FAIR, LIMITS);
        world.toy.spends_budget = spends_budget;
        world
    })
}

#[test]
fn an_upload_that_ends_with_the_turn_is_answered_without_another_byte() {
    for bytes in sizes() {
        for mut world in worlds() {
            let peer = uploader(&mut world, bytes, bytes);
            let expected = format!("{bytes}\n");
            assert_eq!(world.read_all(&peer), expected.as_bytes(), "spends: {}", world.toy.spends_budget);
        }
    }
}

#[test]
fn uploads_of_many_are_answered_though_each_spends_the_budget() {
    for mut world in worlds() {
        let sizes = (0..30).map(|index| 60_000 + 3_001 * index);
        let peers: Vec<(Peer, usize)> =
            sizes.map(|bytes| (uploader(&mut world, bytes, bytes), bytes)).collect();
        world.run_until_idle();
        for (peer, bytes) in &peers {
            assert_eq!(world.read_all(peer), format!("{bytes}\n").as_bytes());
        }
    }
}

#[test]
fn an_upload_is_answered_when_its_client_ends_the_stream_behind_it() {
    for bytes in sizes() {
        for mut world in worlds() {
            let peer = uploader(&mut world, bytes, bytes);
            peer.end();
            let expected = format!("{bytes}\n");
            assert_eq!(world.read_all(&peer), expected.as_bytes(), "spends: {}", world.toy.spends_budget);
            assert!(peer.closed());
        }
    }
}

#[test]
fn a_drain_answers_whole_uploads_and_waits_for_no_half_one() {
    for bytes in sizes() {
        for missing in [0, 1] {
            for mut world in worlds() {
                let peer = uploader(&mut world, bytes + missing, bytes);
                world.events.drain(&mut world.toy, STALL_MS);
                let expected = if missing == 0 { format!("{bytes}\n") } else { String::new() };
                assert_eq!(world.read_all(&peer), expected.as_bytes(), "{bytes}, {missing} missing");
                assert!(peer.closed(), "{bytes}, {missing} missing");
            }
        }
    }
}
