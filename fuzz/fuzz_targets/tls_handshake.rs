//! A connection from its first byte on, as a client, a network and an attacker make it: the records of a client that is a right
//! one are sent whole, cut, changed, repeated or left out, between bytes and records of any kind, in any order. Whatever comes,
//! the server's memory for it is bounded, and what it takes for plaintext is the beginning of what the client has written.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, LazyLock};

use larder_eventloop::Stream;
use larder_eventloop::sim::{Network, Peer, SimStream, Time, Weather};
use larder_tls::{Acceptor, Counters, Files, Options, SCRATCH_BYTES, Transport, Version};
use libfuzzer_sys::fuzz_target;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Deeds of one input.
const DEEDS_MAX: usize = 64;
/// Receives behind one deed: each takes one record at least.
const RECEIVES_MAX: usize = 64;

/// Acceptors of TLS 1.2 and of TLS 1.3 alone, and a client that trusts both.
struct Sides {
    acceptors: [Acceptor; 2],
    trust: Arc<ClientConfig>,
}

static SIDES: LazyLock<Sides> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
    let path = |end: &str| std::env::temp_dir().join(format!("larder-fuzz-{}.{end}", std::process::id()));
    let (chain, key) = (path("crt"), path("key"));
    std::fs::write(&chain, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let counters: Arc<Counters> = Arc::default();
    let acceptors = [Version::Tls12, Version::Tls13].map(|version| {
        let (chain, key) = (chain.clone(), key.clone());
        let options =
            Options { chain, key, min_version: version, max_version: version, ..Options::default() };
        Acceptor::load(&options, &counters, &mut Files::default()).expect("good files")
    });
    let _ = (std::fs::remove_file(chain), std::fs::remove_file(key));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Sides { acceptors, trust: Arc::new(trust) }
});

/// Takes numbers and bytes off an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// So many bytes, or as many as there are.
    fn bytes(&mut self, count: u8) -> &'a [u8] {
        let (some, rest) = self.0.split_at(self.0.len().min(usize::from(count)));
        self.0 = rest;
        some
    }

    /// A place among so many.
    fn place(&mut self, count: usize) -> Option<usize> {
        let place = usize::from(self.byte()?) << 8 | usize::from(self.byte()?);
        (count > 0).then(|| place % count)
    }
}

/// One connection, and what has gone over it.
struct Talk {
    stream: Transport<SimStream>,
    peer: Peer,
    client: ClientConnection,
    /// The client's last records, to be repeated.
    last: Vec<u8>,
    written: Vec<u8>,
    received: Vec<u8>,
}

impl Talk {
    /// The records that the client has to send.
    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut records).expect("a vector takes all");
        }
        self.last.clone_from(&records);
        records
    }

    /// The next deed; none: the input has ended.
    fn deed(&mut self, input: &mut Input<'_>) -> Option<()> {
        match input.byte()? % 8 {
            0 => {
                let records = self.records();
                self.peer.send(&records);
            }
            1 => {
                let records = self.records();
                let cut = input.place(records.len() + 1)?;
                self.peer.send(&records[..cut]);
            }
            2 => {
                let mut records = self.records();
                let flip = input.byte()?;
                if let Some(at) = input.place(records.len()) {
                    records[at] ^= flip;
                }
                self.peer.send(&records);
            }
            3 => self.peer.send(&self.last),
            4 => {
                let count = input.byte()?;
                self.peer.send(input.bytes(count));
            }
            5 => {
                let (kind, count) = (input.byte()?, input.byte()?);
                let bytes = input.bytes(count);
                self.peer.send(&[&[kind, 3, 3, 0, bytes.len() as u8][..], bytes].concat());
            }
            6 => {
                let count = input.byte()?;
                let bytes: Vec<u8> = (0..count).map(|n| n.wrapping_add(self.written.len() as u8)).collect();
                let taken = self.client.writer().write(&bytes).unwrap_or(0);
                self.written.extend_from_slice(&bytes[..taken]);
            }
            _ => self.client_takes(),
        }
        Some(())
    }

    /// Gives the client what the server has sent, right or wrong.
    fn client_takes(&mut self) {
        let came = self.peer.read(usize::MAX);
        let mut left = &came[..];
        while !left.is_empty() && matches!(self.client.read_tls(&mut left), Ok(1..)) {
            if self.client.process_new_packets().is_err() {
                break;
            }
        }
        let _ = self.client.reader().read_to_end(&mut Vec::new());
    }

    /// Has the server take what has come; false if the connection has ended.
    fn serve(&mut self) -> bool {
        let mut buffer = [0; 300];
        for _ in 0..RECEIVES_MAX {
            let got = self.stream.recv(&mut buffer);
            let between = self.stream.between().expect("it is TLS");
            assert!(between.memory <= SCRATCH_BYTES, "{} bytes", between.memory);
            match got {
                Ok(0) => return false,
                Ok(bytes) => self.received.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.peer.untaken() == 0 {
                        return true;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(first) = input.byte() else { return };
    let acceptor = &SIDES.acceptors[usize::from(first & 1)];
    let (stream, peer) = Network::new(1, Weather::FAIR, Time::default()).connect();
    let name = "larder.test".try_into().expect("a name");
    let mut talk = Talk {
        stream: acceptor.accept(stream).expect("random numbers"),
        peer,
        client: ClientConnection::new(Arc::clone(&SIDES.trust), name).expect("a client"),
        last: Vec::new(),
        written: Vec::new(),
        received: Vec::new(),
    };
    for _ in 0..DEEDS_MAX {
        if talk.deed(&mut input).is_none() || !talk.serve() {
            break;
        }
        assert!(talk.written.starts_with(&talk.received), "plaintext that nobody has written");
    }
    assert!(talk.written.starts_with(&talk.received), "plaintext that nobody has written");
    talk.stream.finish();
});
