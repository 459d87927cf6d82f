//! Every protocol by TLS: replies are the bytes that a plain connection gets.

use larder_eventloop::sim::{Peer, Weather};
use larder_eventloop::socket::Address;
use larder_server::Arrival;
use larder_testkit::frames::{self, Way};
use larder_testkit::pattern::Captures;
use larder_testkit::talk::encode;
use larder_tls::Transport;

use std::sync::atomic::Ordering::SeqCst;

use super::world::World;

/// The seed of all worlds here: it makes their CAS values the same.
const SEED: u64 = 1;

/// Replies to `requests`, sent on a plain connection as fast as the server reads; and the memory charged afterwards.
fn plain(requests: &[u8]) -> (Vec<u8>, (u64, usize)) {
    let mut world = World::new(SEED, Weather::FAIR);
    let (stream, peer) = world.network.connect();
    world.hub.handles[0].connections.fetch_add(1, SeqCst);
    let peer_address = Address::Unix("/peer".into());
    let arrival = Arrival { stream: Transport::Plain(stream), peer: peer_address, listener: 0 };
    assert!(world.arrivals.send(arrival).is_ok(), "there is room");
    world.run_until_idle();
    peer.send(requests);
    (taken(&mut world, &peer), held(&mut world))
}

/// Memory charged after all replies, and the number of connections; the small receive buffers of the connections are left out.
fn held(world: &mut World) -> (u64, usize) {
    let (_, connections) = world.books();
    let received = world.store.input_bytes();
    assert!(received <= 256 * connections as u64, "{received} bytes are kept");
    (world.store.held_bytes(), connections)
}

fn taken(world: &mut World, peer: &Peer) -> Vec<u8> {
    let mut replies = Vec::new();
    loop {
        world.run_until_idle();
        let came = peer.read(usize::MAX);
        if came.is_empty() {
            return replies;
        }
        replies.extend(came);
    }
}

/// The same over TLS.
fn sealed(weather: Weather, requests: &[u8]) -> (Vec<u8>, (u64, usize)) {
    let mut world = World::new(SEED, weather);
    let mut client = world.client();
    client.write(requests);
    world.talk(&mut client, usize::MAX);
    assert!(client.error.is_none(), "{:?}", client.error);
    let books = held(&mut world);
    (client.read, books)
}

/// Plain and TLS connections get the same replies, `bytes` of them, in good and in bad weather.
fn same(requests: &[u8], bytes: std::ops::Range<usize>) {
    let (wanted, books) = plain(requests);
    assert!(bytes.contains(&wanted.len()), "{} bytes: {}", wanted.len(), wanted[..200].escape_ascii());
    for weather in [Weather::FAIR, Weather { window: 20_000, ..Weather::FAIR }, Weather::STORM] {
        let (replies, held) = sealed(weather, requests);
        assert_eq!(held, books, "{weather:?}");
        let differs = replies.iter().zip(&wanted).position(|(said, wanted)| said != wanted);
        assert!(
            replies == wanted,
            "{} of {} bytes, at {differs:?}, {weather:?}",
            replies.len(),
            wanted.len()
        );
    }
}

#[test]
fn frames_with_values_that_come_in_parts_are_answered_as_on_a_plain_port() {
    let large = "v".repeat(100_000);
    let frame = |text: &str| frames::parse(Way::Request, text).unwrap().render(&Captures::new()).unwrap();
    let mut requests = Vec::new();
    for text in [
        "sasl-list-mechs",
        &format!("setq key=large flags=7 exptime=0 value={large}"),
        "setq key=small flags=1 exptime=0 value=s",
        "getkq key=none",
        "getk key=small",
        "get key=large",
        "appendq key=large value=tail",
        "increment key=n delta=1 initial=5 exptime=0",
        "get key=large",
        "noop opaque=7",
        "quit",
    ] {
        requests.extend(frame(text));
    }
    same(&requests, 200_000..200_500);
}

#[test]
fn elements_in_pieces_and_pairs_in_steps_are_answered_as_on_a_plain_port() {
    let element = vec![b'e'; 200_000];
    let mut requests = encode(&[b"RPUSH", b"list", b"a", &element, b"b"]);
    requests.extend(encode(&[b"LRANGE", b"list", b"0", b"-1"]));
    let names: Vec<String> = (0..3_000).map(|n| format!("key:{n}")).collect();
    let mut pairs: Vec<&[u8]> = vec![b"MSET"];
    pairs.extend(names.iter().flat_map(|name| [name.as_bytes(), b"value"]));
    requests.extend(encode(&pairs));
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(names.iter().map(|name| name.as_bytes()));
    requests.extend(encode(&words));
    requests.extend(encode(&[b"MULTI"]));
    requests.extend(encode(&[b"EVAL", b"return redis.call('LRANGE', KEYS[1], 0, -1)", b"1", b"list"]));
    requests.extend(encode(&[b"LMOVE", b"list", b"other", b"RIGHT", b"LEFT"]));
    requests.extend(encode(&[b"EXEC"]));
    requests.extend(b"get key:2999\r\n");
    same(&requests, 433_000..434_000);
}
