//! The client's side of TLS, for programs that connect to servers. Each connection seals and opens bytes in buffers of its own.
//!
//! It is rustls's buffered connection: simple, with one copy more than the server's side.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use larder_eventloop::Stream;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, RootCertStore, SignatureScheme,
};

use crate::load::{self, Files, LoadError};
use crate::options::KeyFormat;
use crate::provider::default_provider;

/// Which servers a client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those whose certificate an authority of the system has signed.
    #[default]
    System,
    /// Those whose certificate an authority of this PEM file has signed.
    File(PathBuf),
    /// All: what is sent is encrypted, but the server may be anyone.
    Anyone,
}

/// Options of a client. Equal options load the same files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// Which servers it trusts.
    pub trust: Trust,
    /// Its own certificates and their key, as PEM, for servers that ask.
    pub pair: Option<(PathBuf, PathBuf)>,
}

/// Makes a [`ClientStream`] of each connection. Clones share the loaded options, and the sessions that can be resumed.
#[derive(Clone)]
pub struct Connector(Arc<Loaded>);

struct Loaded {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    options: ClientOptions,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("name", &self.0.name).field("options", &self.0.options).finish()
    }
}

impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        (&self.0.name, &self.0.options) == (&other.0.name, &other.0.options)
    }
}

impl Eq for Connector {}

impl Connector {
    /// Loads the options for a server with this name: a host name or an address.
    ///
    /// # Errors
    /// Which file cannot be used, and why; or that `name` is neither a host name nor an address.
    pub fn load(name: &str, options: ClientOptions) -> Result<Connector, String> {
        let host = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name of a host"))?;
        let config = config(&options).map_err(|error| error.to_string())?;
        Ok(Connector(Arc::new(Loaded { config: Arc::new(config), name, options })))
    }

    /// The name that the server's certificate must have, without the brackets of an IPv6 address.
    pub fn name(&self) -> String {
        self.0.name.to_str().into_owned()
    }

    /// The options that were loaded. With them and the name, another program connects the same way.
    pub fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    /// Wraps a connection. Its handshake begins with the first send or receive.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn connect<S: Stream>(&self, stream: S) -> io::Result<ClientStream<S>> {
        let session = ClientConnection::new(Arc::clone(&self.0.config), self.0.name.clone());
        Ok(ClientStream {
            session: session.map_err(io::Error::other)?,
            stream,
            records: Vec::new(),
            plain: 0,
            failed: None,
        })
    }
}

fn config(options: &ClientOptions) -> Result<ClientConfig, LoadError> {
    let mut files = Files::default();
    let provider = Arc::new(default_provider());
    let pair = |error: rustls::Error| LoadError::Pair(error.to_string());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let config = match &options.trust {
        Trust::Anyone => config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))),
        Trust::System => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            verified(config, roots, provider, PathBuf::from("those of the system"))?
        }
        Trust::File(path) => {
            let mut roots = RootCertStore::empty();
            let unusable = |why| LoadError::Authorities(path.clone(), why);
            load::add(&mut files, &mut roots, path).map_err(unusable)?;
            verified(config, roots, provider, path.clone())?
        }
    };
    match &options.pair {
        None => Ok(config.with_no_client_auth()),
        Some((chain, key)) => {
            let certificates =
                load::certificates(&mut files, chain).map_err(|why| LoadError::Chain(chain.clone(), why))?;
            let key =
                load::key(&mut files, key, KeyFormat::Pem).map_err(|why| LoadError::Key(key.clone(), why))?;
            config.with_client_auth_cert(certificates, key).map_err(pair)
        }
    }
}

type Wants<State> = rustls::ConfigBuilder<ClientConfig, State>;

fn verified(
    config: Wants<rustls::WantsVerifier>,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    path: PathBuf,
) -> Result<Wants<rustls::client::WantsClientCert>, LoadError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| LoadError::Authorities(path, error.to_string()))?;
    Ok(config.with_webpki_verifier(verifier))
}

/// Accepts every certificate whose key signs the handshake.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Bytes of records received at once.
const INCOMING_BYTES: usize = 64 << 10;

thread_local! {
    static INCOMING: RefCell<Vec<u8>> = RefCell::new(vec![0; INCOMING_BYTES]);
}

/// A TLS connection, the client's side.
pub struct ClientStream<S> {
    session: ClientConnection,
    stream: S,
    /// Received records that are not opened yet.
    records: Vec<u8>,
    /// Bytes of plaintext that the session holds.
    plain: usize,
    /// An error behind plaintext that was delivered first.
    failed: Option<io::Error>,
}

impl<S> fmt::Debug for ClientStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream")
            .field("version", &self.session.protocol_version())
            .finish_non_exhaustive()
    }
}

impl<S: AsFd> AsFd for ClientStream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The stream below, as a writer for rustls.
struct Below<'s, S>(&'s mut S);

impl<S: Stream> Write for Below<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Stream> ClientStream<S> {
    /// Takes some of `bytes`, and sends what the stream takes. The rest stays here until [`ClientStream::flush`].
    ///
    /// # Errors
    /// `WouldBlock` if nothing was taken, because earlier bytes are not sent yet.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = self.session.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends what is left of sealed records; true when nothing is left.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Below(&mut self.stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives plaintext; 0 is its end. More may have been received already: [`ClientStream::has_more`].
    ///
    /// # Errors
    /// `WouldBlock` if there is none yet. `InvalidData` if the bytes are not TLS, or the server is not trusted. `UnexpectedEof`
    /// if the stream ended without close_notify.
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        let come = match self.failed.take() {
            Some(error) => Err(error),
            None => self.take_up(buffer, &mut got),
        };
        if let Err(error) = come {
            // Plaintext in front of the error counts, if it came in the same receive.
            got += self.session.reader().read(&mut buffer[got..]).unwrap_or(0);
            if got == 0 {
                return Err(error);
            }
            self.failed = Some(error);
            return Ok(got);
        }
        // There is no plaintext: the reader's error says whether more may come.
        if got > 0 { Ok(got) } else { self.session.reader().read(buffer) }
    }

    /// Fills `buffer` from `got` on, with plaintext that is left and with what one receive brings.
    fn take_up(&mut self, buffer: &mut [u8], got: &mut usize) -> io::Result<()> {
        let mut has_received = false;
        while *got < buffer.len() {
            if self.plain > 0 {
                let read = self.session.reader().read(&mut buffer[*got..])?;
                (*got, self.plain) = (*got + read, self.plain - read);
            } else if !self.records.is_empty() {
                let records = std::mem::take(&mut self.records);
                self.open(&records)?;
            } else if has_received || !self.receive()? {
                break;
            } else {
                has_received = true;
            }
        }
        // Opening may produce messages, such as the end of a handshake: they go out before the next wait.
        self.flush().map(drop)
    }

    /// Receives once and opens what came; false if nothing came.
    fn receive(&mut self) -> io::Result<bool> {
        INCOMING.with_borrow_mut(|incoming| match self.stream.recv(incoming) {
            Ok(0) if self.session.is_handshaking() => Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => self.session.read_tls(&mut io::empty()).map(|_| false),
            Ok(received) => self.open(&incoming[..received]).map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Opens records until there is plaintext, and keeps the rest.
    fn open(&mut self, mut records: &[u8]) -> io::Result<()> {
        while !records.is_empty() && self.plain == 0 {
            if self.session.read_tls(&mut records)? == 0 {
                // Nothing behind a close_notify counts.
                return Ok(());
            }
            match self.session.process_new_packets() {
                Ok(state) => self.plain = state.plaintext_bytes_to_read(),
                Err(error) => {
                    // Sends the alert that tells the server why.
                    let _ = self.flush();
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
        self.records.extend_from_slice(records);
        Ok(())
    }

    /// [`ClientStream::recv`] has received bytes to deliver, for which the stream below does not become readable.
    pub fn has_more(&self) -> bool {
        self.plain > 0 || !self.records.is_empty() || self.failed.is_some()
    }

    /// Bytes are left to send, which [`ClientStream::recv`] may have produced: call [`ClientStream::flush`].
    pub fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Continues the handshake; false if it waits for room to send, not for bytes.
    ///
    /// # Errors
    /// As [`ClientStream::recv`].
    pub fn agree(&mut self) -> io::Result<bool> {
        if !self.flush()? {
            return Ok(false);
        }
        self.receive()?;
        self.flush()
    }

    /// The handshake is not finished.
    pub fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// The handshake resumed an earlier session of the same [`Connector`]; false before it is finished.
    pub fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}
