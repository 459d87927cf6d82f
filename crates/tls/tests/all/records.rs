//! Records as networks and attackers send them: cut at every byte, joined, changed, repeated, omitted,
//! reordered.

use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering::Relaxed;

use larder_eventloop::sim::{Peer, SimStream, Weather};
use larder_eventloop::{Between, Stream};
use larder_tls::{Counters, HELLO_BYTES_MAX, Options, SCRATCH_BYTES, Transport, Version};
use proptest::prelude::*;
use rustls::ClientConnection;

use crate::pair::{Pair, between, pair, pair_in, records, send, shake_hands, take, would_block};

/// How receiving from a stream ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The stream waits for the peer.
    Waits,
    /// The peer ended the connection.
    Ended,
    /// The connection failed.
    Failed,
}

/// Receives all bytes that have come, a few at a time.
fn receive_all(stream: &mut Transport<SimStream>, buffer: &mut [u8]) -> (Vec<u8>, End) {
    let mut all = Vec::new();
    loop {
        match stream.recv(buffer) {
            Ok(0) => return (all, End::Ended),
            Ok(bytes) => all.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (all, End::Waits),
            Err(_) => return (all, End::Failed),
        }
        assert!(all.len() < 1 << 20, "more than was sent");
    }
}

fn open(pair: &Pair) -> (Transport<SimStream>, Peer, ClientConnection) {
    let (mut stream, peer) = pair.accept();
    let mut client = pair.client();
    shake_hands(&mut client, &mut stream, &peer);
    take(&mut client, &peer);
    (stream, peer, client)
}

#[test]
fn a_handshake_and_a_request_cut_at_every_byte_are_the_same_connection() {
    for version in [Version::Tls12, Version::Tls13] {
        let options = Options { min_version: version, max_version: version, ..Options::default() };
        let pair = pair(options);
        let whole = {
            let mut client = pair.client();
            records(&mut client).len()
        };
        for cut in 0..whole {
            let (mut stream, peer) = pair.accept();
            let mut client = pair.client();
            let hello = records(&mut client);
            peer.send(&hello[..cut]);
            would_block(&mut stream);
            assert!(between(&stream).opening && between(&stream).partial == cut);
            peer.send(&hello[cut..]);
            would_block(&mut stream);
            take(&mut client, &peer);
            client.writer().write_all(b"get k\r\n").expect("there is room");
            let second = records(&mut client);
            let at = cut % second.len();
            peer.send(&second[..at]);
            let (first, end) = receive_all(&mut stream, &mut [0; 100]);
            assert_eq!(end, End::Waits);
            peer.send(&second[at..]);
            let (mut rest, _) = receive_all(&mut stream, &mut [0; 100]);
            if version == Version::Tls12 {
                take(&mut client, &peer);
                send(&mut client, &peer);
                rest.extend(receive_all(&mut stream, &mut [0; 100]).0);
            }
            assert_eq!([first, rest].concat(), b"get k\r\n", "{version:?} {cut}");
        }
    }
}

#[test]
fn a_client_that_goes_in_any_state_of_the_handshake_leaves_an_end_and_no_error() {
    for version in [Version::Tls12, Version::Tls13] {
        let options = Options { min_version: version, max_version: version, ..Options::default() };
        let pair = pair(options);
        for cut in 0..2000 {
            let (mut stream, peer) = pair.accept();
            let mut client = pair.client();
            let mut left = cut;
            let mut over = false;
            while left > 0 && client.is_handshaking() {
                let flight = records(&mut client);
                let part = left.min(flight.len());
                peer.send(&flight[..part]);
                left -= part;
                would_block(&mut stream);
                over = part < flight.len();
                if !over {
                    take(&mut client, &peer);
                }
            }
            let opened = !between(&stream).opening;
            peer.end();
            assert_eq!(receive_all(&mut stream, &mut [0; 10]), (Vec::new(), End::Ended), "{version:?} {cut}");
            stream.finish();
            if opened && !over {
                break;
            }
        }
        assert_eq!(pair.counters.handshake_errors.load(Relaxed), 0);
    }
}

#[test]
fn what_was_opened_before_an_end_is_given_before_it() {
    let pair = pair(Options::default());
    let (mut stream, peer, mut client) = open(&pair);
    client.writer().write_all(b"mn\r\n").expect("there is room");
    client.send_close_notify();
    send(&mut client, &peer);
    peer.end();
    let mut buffer = [0; 3];
    assert_eq!(stream.recv(&mut buffer).expect("the request"), 3);
    assert!(between(&stream).received > 0, "the rest needs no readiness of the system");
    assert_eq!(receive_all(&mut stream, &mut [0; 100]), (b"\n".to_vec(), End::Ended));
}

#[test]
fn records_that_are_left_out_repeated_or_in_another_order_end_the_connection() {
    for order in [&[1][..], &[0, 0], &[1, 0], &[0, 2]] {
        let pair = pair(Options::default());
        let (mut stream, peer, mut client) = open(&pair);
        let three: Vec<Vec<u8>> = (b'a'..=b'c')
            .map(|byte| {
                client.writer().write_all(&[byte; 50]).expect("there is room");
                records(&mut client)
            })
            .collect();
        order.iter().for_each(|&index| peer.send(&three[index]));
        let (came, end) = receive_all(&mut stream, &mut [0; 200]);
        let right = order.iter().zip(0..).take_while(|(index, nth)| **index == *nth).count();
        assert_eq!((came.len(), end), (right * 50, End::Failed), "{order:?}");
        assert_eq!(pair.counters.protocol_errors.load(Relaxed), 1);
        assert!(stream.send(b"x").is_err(), "nothing more is sent");
    }
}

#[test]
fn a_handshake_message_may_be_kept_up_to_the_limit() {
    // All records belong to one ClientHello that never ends. The last record is cut to reach the exact
    // length.
    for (kept, is_right) in
        [(HELLO_BYTES_MAX - 1, true), (HELLO_BYTES_MAX, true), (HELLO_BYTES_MAX + 1, false)]
    {
        let pair = pair(Options::default());
        let (mut stream, peer) = pair.accept();
        let mut bytes = vec![22, 3, 1, 0x3f, 0xfb, 1, 0, 0xff, 0, 3, 3];
        bytes.resize(0x4000, 0);
        while bytes.len() < kept {
            bytes.extend([22, 3, 1, 0x3f, 0xfb]);
            bytes.resize(bytes.len().next_multiple_of(0x4000), 0);
        }
        bytes.truncate(kept.max(5));
        peer.send(&bytes);
        let mut end = End::Waits;
        // One receive takes the bytes of one record; the stream reports that there are more.
        while peer.untaken() > 0 && end == End::Waits {
            end = receive_all(&mut stream, &mut [0; 100]).1;
        }
        assert_eq!(end == End::Waits, is_right, "{kept}: {end:?}");
        assert!(between(&stream).memory <= SCRATCH_BYTES);
    }
}

#[test]
fn finished_handshakes_are_counted_by_kind() {
    for version in [Version::Tls12, Version::Tls13] {
        for resumption in [false, true] {
            let options =
                Options { min_version: version, max_version: version, resumption, ..Options::default() };
            let pair = pair(options);
            for _ in 0..3 {
                open(&pair);
            }
            let Counters { handshakes, resumptions, new_sessions, .. } = &*pair.counters;
            let counts = [handshakes, resumptions, new_sessions].map(|count| count.load(Relaxed));
            assert_eq!(counts, if resumption { [3, 2, 1] } else { [3, 0, 0] }, "{version:?}");
        }
    }
}

#[test]
fn key_updates_are_answered_and_a_flood_of_them_ends_the_connection() {
    let options = Options { min_version: Version::Tls13, ..Options::default() };
    let pair = pair(options);
    let (mut stream, peer, mut client) = open(&pair);
    client.refresh_traffic_keys().expect("TLS 1.3");
    client.writer().write_all(b"a").expect("there is room");
    send(&mut client, &peer);
    assert_eq!(receive_all(&mut stream, &mut [0; 10]), (b"a".to_vec(), End::Waits));
    assert_eq!(stream.send(b"b").expect("there is room"), 1);
    assert_eq!(take(&mut client, &peer), b"b");
    let flood = (0..100).map(|_| {
        client.refresh_traffic_keys().expect("TLS 1.3");
        send(&mut client, &peer);
        receive_all(&mut stream, &mut [0; 10]).1
    });
    let ends: Vec<End> = flood.collect();
    assert_eq!(ends.first(), Some(&End::Waits));
    assert_eq!(ends.last(), Some(&End::Failed));
}

#[test]
fn records_without_plaintext_are_counted_and_few_are_opened_at_a_time() {
    const ROUNDS: usize = 8;
    const UPDATES: usize = 31;
    let options = Options { min_version: Version::Tls13, ..Options::default() };
    let pair = pair(options);
    let (mut stream, peer, mut client) = open(&pair);
    stream.take_records();
    for _ in 0..ROUNDS {
        for _ in 0..UPDATES {
            client.refresh_traffic_keys().expect("TLS 1.3");
        }
        client.writer().write_all(b"a").expect("there is room");
        send(&mut client, &peer);
    }
    let (mut bytes, mut records) = (0, 0);
    for _ in 0..ROUNDS * UPDATES {
        bytes += stream.recv(&mut [0; 100]).unwrap_or(0);
        let opened = stream.take_records() as usize;
        // At most sixteen records in one receive, and as many in the sends in between.
        assert!(opened <= 2 * (16 + 1), "{opened} at once");
        records += opened;
        let Between { received, .. } = between(&stream);
        assert_eq!(received > 0, records < ROUNDS * (UPDATES + 1), "the loop goes on by itself");
        if received == 0 {
            break;
        }
    }
    assert_eq!((bytes, records, peer.untaken()), (ROUNDS, ROUNDS * (UPDATES + 1), 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any bytes in place of a handshake or of records lead to an end, an error or a wait, in bounded memory.
    #[test]
    fn any_bytes_are_refused_or_waited_for(
        after in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..4),
        junk in prop::collection::vec(any::<u8>(), 0..100),
        pieces in 1usize..40,
        room in 1usize..300,
    ) {
        let pair = pair_in(Options::default(), Weather::FAIR);
        let (mut stream, peer, mut client) = if after {
            open(&pair)
        } else {
            let (stream, peer) = pair.accept();
            (stream, peer, pair.client())
        };
        client.writer().write_all(&[b'x'; 3000]).expect("there is room");
        let mut bytes = records(&mut client);
        for (index, flip) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= flip;
        }
        bytes.extend(junk);
        let mut buffer = vec![0; room];
        for piece in bytes.chunks(bytes.len().div_ceil(pieces)) {
            peer.send(piece);
            let (_, end) = receive_all(&mut stream, &mut buffer);
            prop_assert!(between(&stream).memory <= SCRATCH_BYTES);
            if end != End::Waits {
                break;
            }
        }
        stream.finish();
    }
}
