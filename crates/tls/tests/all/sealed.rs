//! Records that no rustls client would send, sealed with the keys of a real handshake: any type and any
//! plaintext.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_eventloop::Stream;
use larder_eventloop::sim::{Peer, SimStream};
use larder_tls::{Options, SCRATCH_BYTES, Transport, Version};
use proptest::prelude::*;
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite};

use crate::pair::{Pair, between, pair, shake_hands, take};

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];

/// Seals records as the client of an open connection.
pub struct Sealer {
    cipher: Box<dyn MessageEncrypter>,
    next: u64,
}

impl Sealer {
    pub fn seal(&mut self, kind: u8, plain: &[u8]) -> Vec<u8> {
        let message = OutboundPlainMessage {
            typ: ContentType::from(kind),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(plain),
        };
        let record = self.cipher.encrypt(message, self.next).expect("it is not too long");
        self.next += 1;
        record.encode()
    }
}

/// A server and a client of one version, whose client reveals its keys.
pub fn pair_of(version: Version) -> Pair {
    let mut pair = pair(Options { min_version: version, max_version: version, ..Options::default() });
    let mut trust = (*pair.trust).clone();
    trust.enable_secret_extraction = true;
    pair.trust = Arc::new(trust);
    pair
}

/// An open connection, and the sealer for it.
pub fn open(pair: &Pair) -> (Transport<SimStream>, Peer, Sealer) {
    let (mut stream, peer) = pair.accept();
    let mut client = pair.client();
    shake_hands(&mut client, &mut stream, &peer);
    take(&mut client, &peer);
    let suite = client.negotiated_cipher_suite().expect("they have agreed");
    let keys = client.dangerous_extract_secrets().expect("the handshake is over");
    let (next, secrets) = keys.tx;
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
    else {
        panic!("other ciphers are not spoken")
    };
    let cipher = match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let (fixed, explicit) = iv.as_ref().split_at(suite.aead_alg.key_block_shape().fixed_iv_len);
            suite.aead_alg.encrypter(key, fixed, explicit)
        }
    };
    (stream, peer, Sealer { cipher, next })
}

/// The bytes that a stream delivers until it waits, ends or fails, and whether it failed.
fn receive(stream: &mut Transport<SimStream>) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        let mut buffer = [0; 300];
        match stream.recv(&mut buffer) {
            Ok(0) => return (all, false),
            Ok(bytes) => all.extend_from_slice(&buffer[..bytes]),
            Err(error) => return (all, error.kind() != ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn an_empty_handshake_record_ends_the_connection_wherever_it_stands_and_is_cut() {
    let (empty, request) = ((HANDSHAKE, &b""[..]), (DATA, &b"get k\r\n"[..]));
    for version in VERSIONS {
        let pair = pair_of(version);
        let mut failures = 0;
        for records in [
            &[empty, request][..],
            &[empty],
            &[empty, empty, request],
            &[request, empty, request],
            // The first part of a handshake message: rustls takes the next bytes for the rest of it.
            &[(HANDSHAKE, b"\x18\0\0"), request],
            &[(HANDSHAKE, b"\x18\0\0\x01"), (HANDSHAKE, b""), (HANDSHAKE, b"\0")],
        ] {
            let bytes_of = |sealer: &mut Sealer| -> Vec<u8> {
                records.iter().flat_map(|(kind, plain)| sealer.seal(*kind, plain)).collect()
            };
            let whole = bytes_of(&mut open(&pair).2).len();
            for cut in 0..=whole {
                let (mut stream, peer, mut sealer) = open(&pair);
                let bytes = bytes_of(&mut sealer);
                peer.send(&bytes[..cut]);
                let (mut came, mut failed) = receive(&mut stream);
                // A reply that is sent meanwhile makes rustls process the bytes that it has buffered.
                let _ = stream.send(b"END\r\n");
                if !failed {
                    peer.send(&bytes[cut..]);
                    let (rest, end) = receive(&mut stream);
                    (came, failed) = ([came, rest].concat(), end);
                }
                let before = records.iter().take_while(|(kind, _)| *kind == DATA).count();
                assert_eq!(came, b"get k\r\n".repeat(before), "{version:?} {cut}");
                assert!(failed, "{version:?} {records:?} {cut}");
                assert!(stream.send(b"END\r\n").is_err());
                stream.finish();
                failures += 1;
                assert_eq!(pair.counters.protocol_errors.load(Relaxed), failures);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any sealed records, cut anywhere, lead to plaintext, an end or an error, in bounded memory.
    #[test]
    fn records_of_any_type_and_plaintext_are_refused_or_received(
        newer in any::<bool>(),
        records in prop::collection::vec(
            (
                prop_oneof![3 => Just(HANDSHAKE), 2 => Just(DATA), 1 => 20..=24u8, 1 => any::<u8>()],
                prop_oneof![
                    3 => Just(vec![]),
                    3 => prop::collection::vec(any::<u8>(), 0..6),
                    // Handshake messages of any type.
                    3 => (any::<u8>(), 0..40u8).prop_map(|(kind, len)| vec![kind, 0, 0, len]),
                    2 => Just(vec![24, 0, 0, 1, 0]),
                    1 => prop::collection::vec(any::<u8>(), 0..16_384),
                ],
            ),
            1..8,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let pair = pair_of(VERSIONS[usize::from(newer)]);
        let (mut stream, peer, mut sealer) = open(&pair);
        let bytes: Vec<u8> = records.iter().flat_map(|(kind, plain)| sealer.seal(*kind, plain)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for part in cuts.windows(2) {
            peer.send(&bytes[part[0]..part[1]]);
            receive(&mut stream);
            let _ = stream.send(b"END\r\n");
            prop_assert!(between(&stream).memory <= SCRATCH_BYTES);
        }
        stream.finish();
    }
}
