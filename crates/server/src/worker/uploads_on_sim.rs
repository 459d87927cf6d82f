//! Values of the binary protocol over the simulated network. Nothing stands behind them, so their last byte is often the last
//! that comes: each is stored and answered with it, though the worker has done enough for this turn by then.

use larder_eventloop::RECEIVE_BYTES;
use larder_eventloop::sim::{Peer, Weather};

use super::on_sim::{World, bytes_of, frame};
use crate::config::Config;

/// Bytes that the loop receives directly before other connections have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Most bytes of one direct receive.
const PLACE_BYTES_MAX: usize = 96 << 10;

const SETQ: u8 = 0x11;
const NOOP: u8 = 0x0a;

fn world() -> World {
    let config = Config { threads: 1, cas: false, item_bytes_max: Some(2 << 20), ..Config::default() };
    World::of(config, 1, Weather::FAIR)
}

fn send_set(peer: &Peer, code: u8, key: &str, bytes: usize) {
    peer.send(&bytes_of(&frame(0x80, code, &[0; 8], key, &"v".repeat(bytes))));
}

fn stored() -> String {
    frame(0x81, 0x01, b"", "", "")
}

/// Bytes of the value that is stored, as text says; none if there is none.
fn stored_bytes(world: &mut World, key: &str) -> Option<usize> {
    let peer = world.connect();
    peer.send(format!("mg {key} s\r\n").as_bytes());
    world.read_all(&peer).trim().strip_prefix("HD s").and_then(|bytes| bytes.parse().ok())
}

#[test]
fn a_value_that_ends_where_the_turn_does_is_stored_and_answered() {
    let mut world = world();
    let first = RECEIVE_BYTES + TURN_BYTES - PLACE_BYTES_MAX;
    for bytes in (first..first + 2 * PLACE_BYTES_MAX).step_by(1021) {
        let peer = world.connect();
        send_set(&peer, 0x01, "k", bytes);
        assert_eq!(world.read_all(&peer), stored(), "{bytes}");
        assert_eq!(stored_bytes(&mut world, "k"), Some(bytes));
    }
}

/// The slice of the worker is used up by what a few of them bring.
#[test]
fn values_of_many_clients_at_once_are_stored_and_answered() {
    let mut world = world();
    let peers: Vec<Peer> = (0..30).map(|_| world.connect()).collect();
    for round in 0..5 {
        for (index, peer) in peers.iter().enumerate() {
            send_set(peer, 0x01, &format!("k{index}"), 100_000 + index * 27_001 + round * 977);
        }
        world.run_until_idle();
        for (index, peer) in peers.iter().enumerate() {
            assert_eq!(world.read_all(peer), stored(), "round {round}, client {index}");
        }
    }
}

#[test]
fn values_are_stored_whose_clients_end_the_stream_behind_them_or_that_had_come_before_a_drain() {
    for drains in [false, true] {
        let mut world = world();
        let peers: Vec<Peer> = (0..30).map(|_| world.connect()).collect();
        world.run_until_idle();
        for (index, peer) in peers.iter().enumerate() {
            send_set(peer, if drains { 0x01 } else { SETQ }, &format!("k{index}"), 100_000 + index * 27_001);
            if !drains {
                peer.end();
            }
        }
        if drains {
            world.events.drain(&mut world.service, 5_000);
            for (index, peer) in peers.iter().enumerate() {
                assert_eq!(world.read_all(peer), stored(), "{index}");
            }
            assert!(world.events.is_empty());
            continue;
        }
        world.run_until_idle();
        assert!(peers.iter().all(Peer::closed));
        for index in 0..peers.len() {
            assert_eq!(stored_bytes(&mut world, &format!("k{index}")), Some(100_000 + index * 27_001));
        }
    }
}

/// Frames cut, joined and delayed by the weather: each client has its replies, in the order of its requests.
#[test]
fn frames_in_any_pieces_are_answered_in_order() {
    let weathers = [
        Weather::FAIR,
        Weather::STORM,
        Weather { receive_max: usize::MAX, ..Weather::STORM },
        Weather { receive_max: 7, ..Weather::FAIR },
    ];
    for (weather, seed) in weathers.into_iter().cycle().zip(0..20) {
        let config = Config { threads: 1, cas: false, ..Config::default() };
        let mut world = World::of(config, seed, weather);
        let clients = [0, 1, 2, 3].map(|index| (world.connect(), pipeline(index)));
        clients.iter().for_each(|(peer, (requests, _))| peer.send(&bytes_of(requests)));
        for (index, (peer, (_, replies))) in clients.iter().enumerate() {
            assert!(world.read_all(peer) == *replies, "seed {seed}, client {index}");
        }
    }
}

/// Values of all lengths that matter, each stored quietly and read, and the replies to that.
fn pipeline(index: usize) -> (String, String) {
    let (mut requests, mut replies) = (String::new(), String::new());
    for (nth, bytes) in [0, 1, 4_095, 4_096, 5_000, 20_000, 70_000].into_iter().enumerate() {
        let (key, value) = (format!("{index}-{nth}"), format!("{nth}").repeat(bytes));
        requests += &frame(0x80, SETQ, &[0; 8], &key, &value);
        requests += &frame(0x80, 0x00, b"", &key, "");
        requests += &frame(0x80, 0x09, b"", "none", "");
        replies += &frame(0x81, 0x00, &[0; 4], "", &value);
    }
    (requests + &frame(0x80, NOOP, b"", "", ""), replies + &frame(0x81, NOOP, b"", "", ""))
}
