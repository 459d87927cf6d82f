//! Connections by TLS over the simulated network.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use larder_eventloop::sim::{Peer, Weather};
use larder_eventloop::socket::Address;
use larder_tls::{HANDSHAKE_BYTES, KEPT_BYTES_MAX, SESSION_BYTES};

use super::client::Client;
use super::world::World;

/// Requests of all kinds in one pipeline, and their replies.
fn requests(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    for n in 0..12 {
        let bytes = [1, 100, 16_384, 70_000, 5, 300_000][(seed + n) as usize % 6];
        let value: Vec<u8> = (0..bytes).map(|i| b'a' + ((i as u64 * 7 + n + seed) % 26) as u8).collect();
        let head = format!("set k{n} 0 0 {bytes}\r\n").into_bytes();
        requests.extend([&head[..], &value, b"\r\nget none\r\n"].concat());
        replies.extend_from_slice(b"STORED\r\nEND\r\n");
        for _ in 0..3 {
            requests.extend(format!("get k{n}\r\n").into_bytes());
            let head = format!("VALUE k{n} 0 {bytes}\r\n").into_bytes();
            replies.extend([&head[..], &value, b"\r\nEND\r\n"].concat());
        }
    }
    (requests, replies)
}

#[test]
fn every_request_is_answered_in_whatever_pieces_records_come_and_go() {
    for seed in 0..24 {
        let weather = match seed % 4 {
            0 => Weather::FAIR,
            1 => Weather { window: 20_000, ..Weather::FAIR },
            2 => Weather { receive_max: 40_000, send_max: 30_000, window: 100_000, arbitrary: true },
            _ => Weather::STORM,
        };
        let mut world = World::new(seed, weather);
        let mut clients: Vec<Client> = (0..2).map(|_| world.client()).collect();
        for (client, index) in clients.iter_mut().zip(0..) {
            client.write(&requests(seed + index).0);
        }
        for (client, index) in clients.iter_mut().zip(0..) {
            world.talk(client, 50_000);
            assert!(client.read == requests(seed + index).1, "seed {seed}, {index}: {:?}", client.error);
            assert!(!client.peer.closed());
        }
        assert_eq!(world.books(), (0, 2), "seed {seed}: nothing waits");
    }
}

#[test]
fn records_byte_by_byte_are_put_together() {
    let mut world = World::new(7, Weather::DRIP);
    let mut client = world.client();
    client.write(b"set k 0 0 5\r\nvalue\r\nget k\r\nmg k v\r\n");
    world.talk(&mut client, 1);
    assert_eq!(
        client.read.escape_ascii().to_string(),
        "STORED\\r\\nVALUE k 0 5\\r\\nvalue\\r\\nEND\\r\\nVA 5\\r\\nvalue\\r\\n"
    );
}

#[test]
fn what_came_with_the_end_is_answered_and_the_close_notify_is_said_behind_it() {
    let mut world = World::new(8, Weather::FAIR);
    let mut client = world.client();
    world.talk(&mut client, usize::MAX);
    let (requests, replies) = requests(1);
    client.write(&requests);
    client.end();
    world.talk(&mut client, usize::MAX);
    assert!(client.read == replies, "{} of {}", client.read.len(), replies.len());
    assert!(client.close_notify && client.peer.closed());
    assert_eq!(world.books(), (0, 0));
}

#[test]
fn quit_is_answered_with_the_close_notify() {
    let mut world = World::new(9, Weather::FAIR);
    let mut client = world.client();
    client.write(b"get k\r\nquit\r\nget k\r\n");
    world.talk(&mut client, usize::MAX);
    assert_eq!(client.read, b"END\r\n");
    assert!(client.close_notify && client.peer.closed());
}

#[test]
fn a_server_that_stops_answers_what_has_come_and_says_close_notify() {
    for weather in [Weather::FAIR, Weather { window: 3000, ..Weather::FAIR }, Weather::STORM] {
        let mut world = World::new(10, weather);
        let (mut client, mut idle) = (world.client(), world.client());
        world.talk(&mut client, usize::MAX);
        world.talk(&mut idle, usize::MAX);
        let silent = world.peer();
        let (requests, replies) = requests(2);
        client.write(&requests);
        let records = client.records();
        client.peer.send(&records);
        world.hub.stop_workers();
        for _ in 0..10_000 {
            world.run_until_idle();
            if client.step(10_000) == 0 && world.worker.is_none() {
                break;
            }
        }
        idle.step(usize::MAX);
        assert!(client.read == replies, "{} of {}", client.read.len(), replies.len());
        // The server closes without close_notify if the client has no room for it.
        assert!(client.close_notify || weather.window < 10_000);
        assert!(idle.close_notify && silent.closed());
        assert!(world.worker.is_none(), "nobody is waited for");
    }
}

#[test]
fn a_client_that_does_not_end_the_handshake_is_closed_with_the_unauthenticated() {
    let mut world = World::new(11, Weather::FAIR);
    let before = world.store.used_bytes();
    let silent = world.peer();
    let mut half = world.client();
    let hello = half.records();
    half.peer.send(&hello[..hello.len() / 2]);
    let mut whole = world.client();
    world.talk(&mut whole, usize::MAX);
    assert!(world.store.used_bytes() >= before + 2 * HANDSHAKE_BYTES as u64 + SESSION_BYTES as u64);
    world.pass(9_000);
    assert!(!silent.closed() && !half.peer.closed());
    world.pass(2_500);
    assert!(silent.closed() && half.peer.closed() && !whole.peer.closed());
    whole.write(b"version\r\n");
    world.talk(&mut whole, usize::MAX);
    assert!(whole.read.starts_with(b"VERSION"));
}

#[test]
fn a_client_that_is_turned_away_hears_why_by_tls_and_costs_no_turns_before() {
    let mut world = World::new(21, Weather::FAIR);
    // The client is on another machine, and has no password.
    let address = Address::Tcp(([10, 0, 0, 1], 4000).into());
    let peer = world.peer_of(1, address);
    let trust = Arc::clone(&world.trust);
    let mut client = Client::new(peer, &trust);
    // The worker is told once that the client has room, not in each turn.
    world.pass(3_000);
    assert!(!client.peer.closed());
    world.talk(&mut client, usize::MAX);
    assert!(client.read.starts_with(b"-DENIED"), "{}", client.read.escape_ascii());
    assert!(client.close_notify && client.peer.closed());
    assert_eq!(world.books(), (0, 0));
}

#[test]
fn handshakes_that_stand_still_make_room_in_order_and_others_do_not() {
    let mut world = World::new(22, Weather::FAIR);
    let mut served = world.client();
    world.talk(&mut served, usize::MAX);
    let silent: Vec<Peer> = (0..3).map(|_| world.peer()).collect();
    world.pass(700);
    let mut late = world.client();
    let hello = late.records();
    late.peer.send(&hello[..10]);
    world.pass(400);
    let ask = |world: &mut World| {
        world.hub.certificates.want_room();
        assert!(world.hub.certificates.take_wanted());
        // `want_room` asks for several handshakes to be closed; all but one of these wants are taken back.
        while world.hub.certificates.take_wanted() {}
        world.hub.certificates.leave_wanted();
        world.hub.handles[0].waker.wake();
        world.run_until_idle();
        silent.iter().map(Peer::closed).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut world), [true, false, false]);
    assert_eq!(ask(&mut world), [true, true, false]);
    assert_eq!(ask(&mut world), [true, true, true]);
    ask(&mut world);
    assert!(!late.peer.closed() && !served.peer.closed());
    late.peer.send(&hello[10..]);
    late.write(b"mn\r\n");
    world.talk(&mut late, usize::MAX);
    assert_eq!(late.read, b"MN\r\n");
    assert_eq!(world.hub.certificates.opening(), 0);
}

#[test]
fn half_a_record_is_charged_and_waited_for_no_longer_than_half_a_request() {
    let mut world = World::new(12, Weather::FAIR);
    let mut client = world.client();
    world.talk(&mut client, usize::MAX);
    world.pass(200_000);
    client.write(&[b'x'; 10_000]);
    let records = client.records();
    let before = world.books().0;
    client.peer.send(&records[..9_000]);
    world.run_until_idle();
    assert_eq!(world.books().0, before + 9_000);
    world.pass(57_000);
    assert!(!client.peer.closed());
    world.pass(5_000);
    assert!(client.peer.closed());
    assert_eq!(world.books(), (0, 0));
}

#[test]
fn records_that_wait_for_a_client_are_charged_until_it_has_gone() {
    let mut world = World::new(13, Weather { window: 1000, ..Weather::FAIR });
    let mut client = world.client();
    world.talk(&mut client, usize::MAX);
    client.write(b"set k 0 0 60000\r\n");
    client.write(&[b'v'; 60_000]);
    client.write(b"\r\n");
    world.talk(&mut client, usize::MAX);
    client.write(b"get k\r\n");
    let records = client.records();
    client.peer.send(&records);
    world.run_until_idle();
    let held = world.books().0;
    assert!((50_000..80_000).contains(&held), "{held}");
    world.pass(62_000);
    assert!(client.peer.closed(), "it takes nothing");
    assert_eq!(world.books(), (0, 0));
}

#[test]
fn what_is_no_tls_is_told_so_counted_and_closed() {
    let mut world = World::new(14, Weather::FAIR);
    let plain = world.peer();
    plain.send(b"get k\r\nget k\r\nget k\r\n");
    world.run_until_idle();
    assert!(plain.closed());
    let alert = plain.read(100);
    assert_eq!((alert.first(), alert.len()), (Some(&21), 7), "an alert, in the clear");
    assert_eq!(world.counters.handshake_errors.load(SeqCst), 1);
    // An open connection whose records were tampered with.
    let mut client = world.client();
    world.talk(&mut client, usize::MAX);
    client.write(b"get k\r\n");
    let mut records = client.records();
    *records.last_mut().expect("a record") ^= 1;
    client.peer.send(&records);
    world.run_until_idle();
    assert!(client.peer.closed());
    assert_eq!(world.counters.protocol_errors.load(SeqCst), 1);
    assert_eq!(world.books(), (0, 0));
}

#[test]
fn a_message_of_the_handshake_that_never_ends_is_not_kept_without_end() {
    let mut world = World::new(15, Weather::FAIR);
    let peer = world.peer();
    // A hello that claims 16 MB, in records of 16,000 bytes.
    let mut first = vec![1, 255, 255, 255, 3, 3];
    first.resize(16_000, 0);
    for n in 0..8 {
        let body = if n == 0 { first.clone() } else { vec![0; 16_000] };
        peer.send(&[&[22, 3, 1, (16_000_u16 >> 8) as u8, 16_000_u16 as u8], &body[..]].concat());
        world.run_until_idle();
        let most = (KEPT_BYTES_MAX + 16_700) as u64;
        assert!(world.books().0 <= most, "{n}: {:?}", world.books());
    }
    assert!(peer.closed());
    assert_eq!(world.books(), (0, 0));
}

#[test]
fn a_crowd_that_shakes_hands_keeps_nobody_waiting() {
    let mut world = World::new(16, Weather::FAIR);
    let mut open = world.client();
    world.talk(&mut open, usize::MAX);
    let mut crowd: Vec<Client> = (0..30).map(|_| world.client()).collect();
    for client in &mut crowd {
        let hello = client.records();
        client.peer.send(&hello);
    }
    for turn in 0..10 {
        open.write(b"get k\r\n");
        let records = open.records();
        open.peer.send(&records);
        world.turn();
        open.step(usize::MAX);
        assert_eq!(open.read.len(), (turn + 1) * 5, "in its turn");
        let answered =
            crowd.iter_mut().map(|client| client.step(usize::MAX)).filter(|&bytes| bytes > 0).count();
        assert!(answered <= 2, "turn {turn}: {answered} handshakes");
    }
    for client in &mut crowd {
        world.talk(client, usize::MAX);
        client.write(b"get k\r\n");
        world.talk(client, usize::MAX);
        assert_eq!(client.read, b"END\r\n");
    }
}

#[test]
fn a_record_whose_bytes_have_no_place_yet_waits_and_one_in_parts_of_the_handshake_is_joined() {
    // A hello cut into many small records.
    let mut world = World::new(17, Weather { receive_max: 7, ..Weather::FAIR });
    let mut client = world.client();
    let hello = client.records();
    for part in hello[5..].chunks(40) {
        client.peer.send(&[&[22, 3, 1, 0, part.len() as u8], part].concat());
        world.run_until_idle();
    }
    client.write(b"mn\r\n");
    world.talk(&mut client, usize::MAX);
    assert_eq!(client.read, b"MN\r\n", "{:?}", client.error);
}

#[test]
fn a_client_that_goes_or_is_reset_in_any_state_of_the_handshake_leaves_nothing() {
    let mut world = World::new(18, Weather::FAIR);
    for end in [Peer::end, Peer::reset] {
        for cut in (0..700).step_by(7) {
            let mut client = world.client();
            let mut left = cut;
            while left > 0 && world.hub.certificates.opening() > 0 {
                let records = client.records();
                let part = left.min(records.len());
                client.peer.send(&records[..part]);
                left -= part;
                world.run_until_idle();
                client.step(usize::MAX);
                if part == 0 {
                    break;
                }
            }
            end(&client.peer);
            world.run_until_idle();
            assert_eq!(world.hub.certificates.opening(), 0, "{cut}");
            assert_eq!(world.hub.connections(), 0, "{cut}");
        }
    }
    assert_eq!(world.books(), (0, 0));
}
