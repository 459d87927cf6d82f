//! Messages of listeners over the simulated network, where their connections are sent something else, or are to be closed.

use larder_eventloop::sim::{Peer, Weather};

use super::on_sim::{World, resp};
use crate::config::Config;

fn world() -> World {
    let weather = Weather { receive_max: usize::MAX, window: usize::MAX, ..Weather::FAIR };
    World::of(Config { threads: 1, ..Config::default() }, 1, weather)
}

/// A message as RESP3 has it.
fn push(channel: &str, text: &str) -> String {
    resp(&["message", channel, text]).replacen('*', ">", 1)
}

/// A reply is made in steps, and what is published between any two of them comes behind it.
#[test]
fn a_message_comes_behind_a_reply_that_is_under_way_and_not_into_it() {
    const ELEMENTS: usize = 300;
    let mut world = world();
    let element = "e".repeat(10_000);
    let (writer, listener) = (world.connect_to(1), world.connect_to(1));
    for length in 1..=ELEMENTS {
        world.exchange(&writer, &resp(&["RPUSH", "l", &element]), &format!(":{length}\r\n"));
    }
    listener.send(resp(&["HELLO", "3"]).as_bytes());
    assert!(world.read_all(&listener).starts_with('%'));
    world.exchange(&listener, &resp(&["SUBSCRIBE", "c"]), ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    let array = resp(&vec![&element[..]; ELEMENTS]);
    let mut between = 0;
    for turns in 0..20 {
        listener.narrow(100_000);
        listener.send(resp(&["LRANGE", "l", "0", "-1"]).as_bytes());
        (0..turns).for_each(|_| world.turn());
        let mut told = listener.read(usize::MAX);
        between += usize::from(!told.is_empty() && told.len() < array.len());
        for text in ["one", "two"] {
            writer.send(resp(&["PUBLISH", "c", text]).as_bytes());
        }
        world.turn();
        listener.narrow(usize::MAX);
        listener.send(b"PING\r\n");
        told.extend(world.read_all(&listener).bytes());
        assert_eq!(world.read_all(&writer), ":1\r\n:1\r\n");
        let told = String::from_utf8(told).expect("nothing else was stored");
        let at = told.find('*').expect("an array");
        assert!(told[at..].starts_with(&array), "{turns}");
        // The messages may be before it, where it had not begun.
        let rest = told.replacen(&array, "", 1);
        assert_eq!(rest, format!("{}{}+PONG\r\n", push("c", "one"), push("c", "two")), "{turns}");
    }
    assert!(between > 0, "the reply is never made in steps");
}

/// More are to be closed than a turn closes: none of them is told what came behind the message that it has missed.
#[test]
fn who_has_missed_a_message_is_told_of_none_behind_it() {
    const LISTENERS: usize = 100;
    let mut world = world();
    let publisher = world.connect_to(1);
    let listeners: Vec<Peer> = (0..LISTENERS).map(|_| world.connect_to(1)).collect();
    listeners.iter().for_each(|peer| peer.send(b"SUBSCRIBE c\r\n"));
    world.run_until_idle();
    listeners.iter().for_each(|peer| drop(peer.read(usize::MAX)));
    // What may wait for a worker is less.
    let long = "x".repeat(5_000_000);
    publisher.send((resp(&["PUBLISH", "c", &long]) + &resp(&["PUBLISH", "c", "later"])).as_bytes());
    // Some are closed in each turn.
    (0..LISTENERS).for_each(|_| world.turn());
    let told: Vec<usize> = listeners.iter().map(|peer| peer.read(usize::MAX).len()).collect();
    assert_eq!(told, [0; LISTENERS]);
    assert!(listeners.iter().all(Peer::closed));
}
