//! Elements of lists over the simulated network, each of which is received into its parts: in whatever pieces it comes, and of
//! clients that go in the midst of it.

use std::sync::Arc;

use larder_eventloop::RECEIVE_BYTES;
use larder_eventloop::sim::Weather;

use super::on_sim::{World, bytes_of, resp};
use crate::config::Config;

/// An element that a receive does not bring whole.
const LONG: usize = RECEIVE_BYTES + 40_000;

fn world(seed: u64, weather: Weather) -> World {
    World::of(Config { threads: 1, ..Config::default() }, seed, weather)
}

/// Elements of all lengths that matter, those of a client alone, and the replies to their pushes and reads.
fn pipeline(index: usize) -> (String, String) {
    let (mut requests, mut replies) = (String::new(), String::new());
    let key = format!("l{index}");
    let lengths = [1, 16_358, 33_000, 49_056, 49_057, LONG];
    let digits = (index..).map(|nth| (nth % 10).to_string());
    let elements: Vec<String> = digits.zip(lengths).map(|(digit, bytes)| digit.repeat(bytes)).collect();
    for (nth, element) in elements.iter().enumerate() {
        requests += &resp(&["RPUSH", &key, element]);
        requests += &resp(&["LLEN", &key]);
        replies += &format!(":{}\r\n", nth + 1).repeat(2);
    }
    requests += &resp(&["LRANGE", &key, "0", "-1"]);
    replies += &resp(&elements.iter().map(String::as_str).collect::<Vec<_>>());
    (requests, replies)
}

#[test]
fn elements_that_come_in_any_pieces_are_whole_and_in_their_order() {
    let weathers = [
        Weather::FAIR,
        Weather { receive_max: usize::MAX, ..Weather::STORM },
        Weather { receive_max: 1_021, ..Weather::FAIR },
    ];
    for (weather, seed) in weathers.into_iter().cycle().zip(0..9) {
        let mut world = world(seed, weather);
        let store = Arc::clone(&world.service.hub().store);
        let clients = [0, 1, 2].map(|index| (world.connect_to(1), pipeline(index)));
        clients.iter().for_each(|(peer, (requests, _))| peer.send(&bytes_of(requests)));
        for (index, (peer, (_, replies))) in clients.iter().enumerate() {
            assert!(world.read_all(peer) == *replies, "seed {seed}, client {index}");
        }
        // Room that the loop keeps for their next requests goes with them.
        clients.iter().for_each(|(peer, _)| peer.end());
        world.run_until_idle();
        assert_eq!(store.input_bytes(), 0, "seed {seed}");
    }
}

#[test]
fn elements_of_clients_that_go_in_their_midst_are_given_back_to_the_byte() {
    let mut world = world(1, Weather::FAIR);
    let store = Arc::clone(&world.service.hub().store);
    let other = world.connect_to(1);
    world.exchange(&other, &resp(&["RPUSH", "l", "a"]), ":1\r\n");
    let before = store.totals().item_bytes;
    let request = bytes_of(&resp(&["LPUSH", "l", &"e".repeat(LONG)]));
    let cuts = (1..60).chain((60..request.len()).step_by(4_999)).chain(request.len() - 4..request.len());
    for (nth, cut) in cuts.enumerate() {
        let peer = world.connect_to(1);
        peer.send(&request[..cut]);
        world.run_until_idle();
        if nth.is_multiple_of(2) {
            peer.end();
        } else {
            peer.reset();
        }
        world.run_until_idle();
        assert_eq!((store.input_bytes(), store.totals().item_bytes), (0, before), "at {cut}");
        world.exchange(&other, &resp(&["LLEN", "l"]), ":1\r\n");
    }
    let peer = world.connect_to(1);
    peer.send(&request);
    peer.end();
    world.run_until_idle();
    world.exchange(&other, &resp(&["LLEN", "l"]), ":2\r\n");
}
