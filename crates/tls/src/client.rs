//! The client's side, for programs that ask servers: a connection's bytes are sealed and opened in buffers of its own.
//!
//! It is rustls's buffered connection, which is simple and copies once more than the server's side does.

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
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::load::{self, Files, LoadError};
use crate::options::KeyFormat;
use crate::provider::default_provider;

/// Which servers a client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Such as the system's authorities have signed for.
    #[default]
    System,
    /// Such as an authority of this PEM file has signed for.
    File(PathBuf),
    /// All: what is sent is sealed, but nobody has said for whom.
    Anyone,
}

/// What a client goes by. Equal options load the same files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// Whom it believes.
    pub trust: Trust,
    /// Its own certificates and their key, as PEM, for servers that ask.
    pub pair: Option<(PathBuf, PathBuf)>,
}

/// Makes a [`ClientStream`] of each connection, by options that were loaded. A clone shares them, and the sessions that can be
/// resumed.
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
    /// For a server of this name, a host's or an address.
    ///
    /// # Errors
    /// Which of the files cannot be used, and why; or what is no name.
    pub fn load(name: &str, options: ClientOptions) -> Result<Connector, String> {
        let host = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name of a host"))?;
        let config = config(&options).map_err(|error| error.to_string())?;
        Ok(Connector(Arc::new(Loaded { config: Arc::new(config), name, options })))
    }

    /// A connection over `stream`, whose handshake begins with what is sent or received first.
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

/// Believes everyone who can sign.
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
    /// Records that are not opened yet.
    records: Vec<u8>,
    /// Bytes of plaintext that the session has.
    plain: usize,
    /// What came behind bytes that were given.
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

/// A stream as rustls writes to it.
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
    /// Takes some of `bytes` to be sent, and sends what the stream takes. What was taken may still be here: see
    /// [`ClientStream::flush`].
    ///
    /// # Errors
    /// `WouldBlock` if nothing was taken, because what was taken before is not sent yet.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = self.session.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends what is left of records; true when nothing is.
    ///
    /// # Errors
    /// The stream's.
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

    /// Receives plaintext; 0 is its end. More of what has come may be left: see [`ClientStream::has_more`].
    ///
    /// # Errors
    /// `WouldBlock` if there is none yet; `InvalidData` if what came is not TLS, or not of a server that is trusted;
    /// `UnexpectedEof` if the stream ended and the server did not say so.
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        let come = match self.failed.take() {
            Some(error) => Err(error),
            None => self.take_up(buffer, &mut got),
        };
        if let Err(error) = come {
            // What came before it counts, in the same receive, too.
            got += self.session.reader().read(&mut buffer[got..]).unwrap_or(0);
            if got == 0 {
                return Err(error);
            }
            self.failed = Some(error);
            return Ok(got);
        }
        // Nothing is there: that more may come, or not, is said by the error.
        if got > 0 { Ok(got) } else { self.session.reader().read(buffer) }
    }

    /// Fills `buffer` behind what it has `got`, with what is left and what comes in one receive.
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
        // What opening has to say, such as the end of a handshake, goes out before more is waited for.
        self.flush().map(drop)
    }

    /// Receives once, and opens; false if nothing has come, or will.
    fn receive(&mut self) -> io::Result<bool> {
        INCOMING.with_borrow_mut(|incoming| match self.stream.recv(incoming) {
            Ok(0) if self.session.is_handshaking() => Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => self.session.read_tls(&mut io::empty()).map(|_| false),
            Ok(received) => self.open(&incoming[..received]).map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Opens records until there is plaintext; the rest is kept.
    fn open(&mut self, mut records: &[u8]) -> io::Result<()> {
        while !records.is_empty() && self.plain == 0 {
            if self.session.read_tls(&mut records)? == 0 {
                // Behind a close_notify nothing counts.
                return Ok(());
            }
            match self.session.process_new_packets() {
                Ok(state) => self.plain = state.plaintext_bytes_to_read(),
                Err(error) => {
                    // The server hears why.
                    let _ = self.flush();
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
        self.records.extend_from_slice(records);
        Ok(())
    }

    /// [`ClientStream::recv`] has something to give that has come, and that the stream does not tell of.
    pub fn has_more(&self) -> bool {
        self.plain > 0 || !self.records.is_empty() || self.failed.is_some()
    }

    /// Something is left to send, which [`ClientStream::recv`] may have made: see [`ClientStream::flush`].
    pub fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Goes on with the handshake; false if it waits for room to send, not for what comes.
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

    /// The handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }
}
