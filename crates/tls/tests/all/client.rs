//! The client's side against the server's, over a pair of sockets.

use std::io::ErrorKind;
use std::sync::Arc;

use larder_eventloop::Stream;
use larder_eventloop::sim::{Network, Time, Weather};
use larder_eventloop::socket::Socket;
use larder_tls::{Acceptor, ClientAuth, ClientOptions, ClientStream, Connector, Options, Transport, Trust};

use crate::pair::TestFiles;

struct Ends {
    client: ClientStream<Socket>,
    server: Option<Transport<Socket>>,
}

/// Files with a certificate for `name`, which the client trusts, and a server's options that use them.
fn files(name: &str) -> (TestFiles, Options) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let files = TestFiles::new();
    let chain = files.put("crt", made.cert.pem());
    let key = files.put("key", made.signing_key.serialize_pem());
    (files, Options { chain, key, ..Options::default() })
}

fn ends(options: &Options, name: &str, believes: ClientOptions) -> Ends {
    let acceptor = Acceptor::load(options, &Arc::default(), &mut larder_tls::Files::default());
    let (ours, theirs) = Socket::pair().expect("sockets");
    let server = acceptor.expect("good files").accept(theirs).expect("random numbers");
    let client = Connector::load(name, believes).expect("good files").connect(ours).expect("random numbers");
    Ends { client, server: Some(server) }
}

fn by_file(options: &Options) -> ClientOptions {
    ClientOptions { trust: Trust::File(options.chain.clone()), pair: None }
}

impl Ends {
    /// Echoes all bytes that the server has received.
    fn echo(&mut self, held: &mut Vec<u8>) {
        let mut buffer = vec![0; 100_000];
        let server = self.server.as_mut().expect("it is there");
        loop {
            if let Ok(sent) = server.send(held) {
                held.drain(..sent);
            }
            match server.recv(&mut buffer) {
                Ok(received) if received > 0 => held.extend_from_slice(&buffer[..received]),
                _ => return,
            }
        }
    }

    /// Continues until the handshake is finished, or returns its error.
    fn agree(&mut self) -> std::io::Result<()> {
        for _ in 0..20 {
            self.client.agree()?;
            self.echo(&mut Vec::new());
        }
        assert!(!self.client.is_handshaking(), "{:?}", self.client);
        Ok(())
    }
}

#[test]
fn bytes_come_back_in_pieces_of_any_length() {
    let (_files, options) = files("larder.test");
    let sent: Vec<u8> = (0..600_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    for at_once in [1_000, 16_384, 70_000, 700_000] {
        let mut ends = ends(&options, "larder.test", by_file(&options));
        let (mut held, mut came, mut out) = (Vec::new(), Vec::new(), &sent[..]);
        // The first send begins the handshake; its bytes are sent after that.
        let mut buffer = vec![0; at_once];
        while came.len() < sent.len() {
            match ends.client.send(&out[..out.len().min(at_once)]) {
                Ok(taken) => out = &out[taken..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            ends.echo(&mut held);
            loop {
                match ends.client.recv(&mut buffer) {
                    Ok(received) => came.extend_from_slice(&buffer[..received]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                }
                if !ends.client.has_more() {
                    break;
                }
            }
        }
        assert!(came == sent, "{at_once}");
        assert!(ends.client.flush().expect("no error"), "{at_once}: nothing waits");
    }
}

#[test]
fn only_a_server_that_is_trusted_is_believed() {
    let (_files, options) = files("larder.test");
    let (_others, other) = files("larder.test");
    let anyone = || ClientOptions { trust: Trust::Anyone, pair: None };
    for (name, believes, is_believed) in [
        ("larder.test", by_file(&options), true),
        ("other.test", by_file(&options), false),
        ("larder.test", by_file(&other), false),
        ("other.test", anyone(), true),
        ("127.0.0.1", anyone(), true),
        ("[::1]", anyone(), true),
    ] {
        let agreed = ends(&options, name, believes.clone()).agree();
        match agreed {
            Ok(()) => assert!(is_believed, "{name} {believes:?}"),
            Err(error) => {
                assert!(!is_believed && error.kind() == ErrorKind::InvalidData, "{name}: {error}");
            }
        }
    }
    // The name may also be an address.
    let (_files, options) = files("::1");
    ends(&options, "[::1]", by_file(&options)).agree().expect("its address is in the certificate");
}

#[test]
fn a_server_that_asks_is_shown_a_certificate() {
    let (_files, options) = files("larder.test");
    let (_own, own) = files("me");
    let asks =
        Options { clients: ClientAuth::Required, authorities: Some(own.chain.clone()), ..options.clone() };
    let pair = Some((own.chain.clone(), own.key.clone()));
    ends(&asks, "larder.test", ClientOptions { pair, ..by_file(&options) }).agree().expect("it is shown");
    let mut without = ends(&asks, "larder.test", by_file(&options));
    let refused = without.agree().and_then(|()| without.client.recv(&mut [0; 8]).map(drop));
    assert_eq!(refused.expect_err("none is shown").kind(), ErrorKind::InvalidData);
}

#[test]
fn an_end_that_nobody_said_is_none() {
    let (_files, options) = files("larder.test");
    let mut ends = ends(&options, "larder.test", by_file(&options));
    ends.agree().expect("an agreement");
    ends.server = None;
    let error = ends.client.recv(&mut [0; 8]).expect_err("the stream ended");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn what_came_before_an_error_is_given_before_it_is_told() {
    let (_files, options) = files("larder.test");
    let network = Network::new(1, Weather::FAIR, Time::default());
    let ((ours, far), (theirs, near)) = (network.connect(), network.connect());
    let acceptor = Acceptor::load(&options, &Arc::default(), &mut larder_tls::Files::default());
    let mut server = acceptor.expect("good files").accept(theirs).expect("random numbers");
    let connector = Connector::load("larder.test", by_file(&options)).expect("good files");
    let mut client = connector.connect(ours).expect("random numbers");
    let mut buffer = [0; 100];
    while client.is_handshaking() {
        client.agree().expect("an agreement");
        near.send(&far.read(usize::MAX));
        assert_eq!(server.recv(&mut buffer).expect_err("nothing is sent").kind(), ErrorKind::WouldBlock);
        far.send(&near.read(usize::MAX));
    }
    assert_eq!(server.send(b"reply").expect("there is room"), 5);
    // After it, in the same receive, comes a record that was not sealed with the connection's keys.
    far.send(&[&near.read(usize::MAX)[..], b"\x17\x03\x03\x00\x14nobody sealed this.."].concat());
    assert_eq!(client.recv(&mut buffer).expect("what came"), 5);
    assert_eq!(&buffer[..5], b"reply");
    assert!(client.has_more());
    assert_eq!(client.recv(&mut buffer).expect_err("it is no record").kind(), ErrorKind::InvalidData);
}

#[test]
fn what_receiving_has_to_send_is_told_where_there_is_no_room_for_it() {
    let (_files, options) = files("larder.test");
    let network = Network::new(1, Weather::FAIR, Time::default());
    let ((ours, far), (theirs, near)) = (network.connect(), network.connect());
    let acceptor = Acceptor::load(&options, &Arc::default(), &mut larder_tls::Files::default());
    let mut server = acceptor.expect("good files").accept(theirs).expect("random numbers");
    let connector = Connector::load("larder.test", by_file(&options)).expect("good files");
    let mut client = connector.connect(ours).expect("random numbers");
    let mut buffer = [0; 100];

    // The send begins the handshake, and its bytes wait for the handshake's end.
    assert_eq!(client.send(b"early").expect("it is kept"), 5);
    near.send(&far.read(usize::MAX));
    assert_eq!(server.recv(&mut buffer).expect_err("a handshake").kind(), ErrorKind::WouldBlock);
    far.narrow(0);
    far.send(&near.read(usize::MAX));
    assert_eq!(client.recv(&mut buffer).expect_err("a handshake").kind(), ErrorKind::WouldBlock);
    assert!(!client.is_handshaking() && client.wants_write());

    far.narrow(usize::MAX);
    assert!(client.flush().expect("there is room") && !client.wants_write());
    near.send(&far.read(usize::MAX));
    let received = server.recv(&mut buffer).expect("what was sent first");
    assert_eq!(&buffer[..received], b"early");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (files, options) = files("larder.test");
    let (_others, other) = self::files("me");
    let missing = files.folder().join("missing");
    let pair = |chain: &std::path::Path, key: &std::path::Path| Some((chain.to_owned(), key.to_owned()));
    for (believes, begins) in [
        (
            ClientOptions { trust: Trust::File(missing.clone()), pair: None },
            "Error loading the CA certificate: ",
        ),
        (
            ClientOptions { pair: pair(&missing, &options.key), ..by_file(&options) },
            "Error loading the certificate chain: ",
        ),
        (
            ClientOptions { pair: pair(&options.chain, &missing), ..by_file(&options) },
            "Error loading the key: ",
        ),
        (
            ClientOptions { pair: pair(&options.chain, &other.key), ..by_file(&options) },
            "Error validating the certificate: ",
        ),
    ] {
        let told = Connector::load("larder.test", believes).expect_err(begins);
        assert!(told.starts_with(begins), "{told}");
    }
    assert_eq!(Connector::load("no name", by_file(&options)).unwrap_err(), "no name is no name of a host");
}
