//! Memory of connections, counted: a connection has no more than it reports. Records need none beyond what
//! rustls allocates and frees at once.

use std::io::{IoSlice, Write};

use larder_eventloop::{Between, Stream};
use larder_tls::{ClientAuth, HANDSHAKE_BYTES, Options, SESSION_BYTES, Version};
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::pair::{TestFiles, between, pair, send, shake_hands, take, would_block};

#[test]
fn a_connection_takes_what_it_says_and_an_idle_one_no_buffer() {
    for version in [Version::Tls12, Version::Tls13] {
        let pair = pair(Options {
            min_version: version,
            max_version: version,
            resumption: true,
            ..Options::default()
        });
        // Fills the buffers of the thread, and all memory that is allocated only once.
        let (mut stream, peer) = pair.accept();
        shake_hands(&mut pair.client(), &mut stream, &peer);
        let (mut stream, mut peer) = (None, None);
        let made = allocation_counter::measure(|| {
            let (accepted, at) = pair.accept();
            (stream, peer) = (Some(accepted), Some(at));
        });
        let (mut stream, peer) = (stream.expect("made"), peer.expect("made"));
        let mut client = pair.client();
        let (mut most, mut all) = (made.bytes_max, made.bytes_current);
        while between(&stream).opening {
            send(&mut client, &peer);
            let step = allocation_counter::measure(|| would_block(&mut stream));
            most = most.max((all.max(0) as u64) + step.bytes_max);
            all += step.bytes_current;
            take(&mut client, &peer);
        }
        assert!(most <= HANDSHAKE_BYTES as u64, "{version:?}: {most} bytes in the handshake");
        // The bytes of the simulated network are included.
        assert!(all <= SESSION_BYTES as i64, "{version:?}: {all} bytes once it is open");
        assert_eq!(between(&stream), Between { memory: SESSION_BYTES, ..Between::default() });
    }
}

/// Bytes of the simulated network's buffers. They double as they grow, so one run may have 600 bytes more
/// than another.
const NETWORK_BYTES: usize = 2 << 10;

#[test]
fn what_rustls_keeps_of_a_clients_certificates_and_of_a_long_handshake_is_charged() {
    for (version, names) in
        [(Version::Tls12, 1), (Version::Tls12, 600), (Version::Tls13, 1), (Version::Tls13, 600)]
    {
        let files = TestFiles::new();
        let names: Vec<String> = (0..names).map(|nth| format!("a-long-name-{nth}.larder.test")).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let authorities = Some(files.put("ca", made.cert.pem()));
        let mut pair = pair(Options {
            min_version: version,
            max_version: version,
            clients: ClientAuth::Required,
            authorities,
            ..Options::default()
        });
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        pair.show(vec![made.cert.der().clone()], key.into());
        // Fills the buffers of the thread, and all memory that is allocated only once.
        let (mut stream, peer) = pair.accept();
        shake_hands(&mut pair.client(), &mut stream, &peer);
        let (mut stream, mut peer) = (None, None);
        let made = allocation_counter::measure(|| {
            let (accepted, at) = pair.accept();
            (stream, peer) = (Some(accepted), Some(at));
        });
        let (mut stream, peer) = (stream.expect("made"), peer.expect("made"));
        let mut client = pair.client();
        let mut all = made.bytes_current;
        while between(&stream).opening {
            send(&mut client, &peer);
            let step = allocation_counter::measure(|| would_block(&mut stream));
            all += step.bytes_current;
            let charged = between(&stream).memory;
            let most = (charged + NETWORK_BYTES) as i64;
            assert!(all <= most, "{version:?}: {all} bytes, {charged} are charged");
            take(&mut client, &peer);
        }
        println!("{version:?}: {all} bytes, {} are charged", between(&stream).memory);
    }
}

#[test]
fn what_has_no_room_waits_is_told_and_comes_without_the_system() {
    let pair = pair(Options::default());
    let (mut stream, peer) = pair.accept();
    let mut client = pair.client();
    shake_hands(&mut client, &mut stream, &peer);
    take(&mut client, &peer);
    let sent: Vec<u8> = (0..40_000_u32).map(|i| i as u8).collect();
    client.writer().write_all(&sent).expect("there is room");
    send(&mut client, &peer);
    let mut came = Vec::new();
    while came.len() < sent.len() {
        let mut buffer = [0; 1000];
        let bytes = stream.recv(&mut buffer).expect("there is more");
        came.extend_from_slice(&buffer[..bytes]);
        let Between { received, partial, memory, .. } = between(&stream);
        let rest = sent.len() - came.len();
        assert!(peer.untaken() > 0 || received + partial >= rest, "{received} of {rest}");
        assert!(peer.untaken() > 0 || rest == 0 || received > 0 || partial == 0, "half a record is none");
        assert!(memory >= SESSION_BYTES + received.max(partial), "{memory}");
    }
    assert!(came == sent);
    would_block(&mut stream);
    assert_eq!(between(&stream), Between { memory: SESSION_BYTES, ..Between::default() });
}

#[test]
fn slices_of_any_lengths_are_sealed_in_order_and_what_does_not_fit_is_kept_once() {
    let pair = pair(Options::default());
    let (mut stream, peer) = pair.accept();
    let mut client = pair.client();
    shake_hands(&mut client, &mut stream, &peer);
    let all: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    for lens in [
        &[1, 1, 8191, 8192, 8193, 0, 16_384, 16_385, 3][..],
        &[100_000],
        &[0, 5, 0],
        &[30, 16_376, 2, 30, 16_376, 2],
    ] {
        for window in [usize::MAX, 10_000] {
            peer.narrow(window);
            let mut at = 0;
            let slices = lens.iter().map(|&len| {
                at += len;
                IoSlice::new(&all[at - len..at])
            });
            let slices: Vec<IoSlice<'_>> = slices.collect();
            let taken = stream.send_vectored(&slices).expect("there is room");
            if between(&stream).unsent > 0 {
                assert!(stream.send(b"more").is_err(), "nothing more is taken meanwhile");
            }
            let mut came = take(&mut client, &peer);
            while between(&stream).unsent > 0 {
                assert!(between(&stream).unsent <= 66_100 && stream.room() == 0);
                stream.flush().expect("it goes on");
                came.extend(take(&mut client, &peer));
            }
            assert!(came == all[..taken], "{lens:?}");
            assert!(taken == at || window < usize::MAX, "{lens:?}");
        }
    }
    stream.finish();
    peer.read(usize::MAX);
}
