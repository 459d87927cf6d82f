//! TLS between a connection and its socket, without I/O: the functions that move bytes are arguments.
//!
//! ```text
//! send ──► records, as many as fit ──► out ──► socket ──► incoming ──► records ──► receive
//! ```
//!
//! - Bytes that TLS has taken count as sent when all of their records were sent; meanwhile the caller offers the rest of the same
//!   bytes again. If the connection fails before, they count as sent, too: some may have arrived.
//! - One thread sends and one receives, at the same time. The lock is not held while a thread waits for the socket.

use crate::error::{Error, Reason};
use crate::moved::Moved;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt::{self, Debug, Formatter};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes taken at a time: some records.
const TAKE_BYTES: usize = 64 << 10;
/// Longest record, with everything around it.
const RECORD_BYTES_MAX: usize = 17 << 10;

const SILENT: Reason = Reason::said("closed by the server in the handshake");

/// Configuration of TLS connections.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<String>,
}

impl Debug for Tls {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<Arc<ClientConfig>> for Tls {
    fn from(config: Arc<ClientConfig>) -> Tls {
        Tls { config, name: None }
    }
}

impl Tls {
    /// The name in the servers' certificates, if it is not the host of their addresses: for resolved addresses and for paths.
    #[must_use]
    pub fn name(self, name: &str) -> Tls {
        Tls { name: Some(name.to_owned()), ..self }
    }

    /// The name that this server's certificate has to have.
    ///
    /// # Errors
    /// No certificate could have such a name.
    fn name_of(&self, address: &str) -> Result<ServerName<'static>, Error> {
        let host = match &self.name {
            Some(name) => name,
            None => address.rsplit_once(':').map_or(address, |(host, _)| host),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(host.to_owned())
            .map_err(|_| Error::Config(format!("{host} is no name that a certificate could have")))
    }

    /// Checks that a certificate could be for a server's address.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(crate) fn check(&self, address: &str) -> Result<(), Error> {
        self.name_of(address).map(drop)
    }

    /// Begins a connection to this address.
    ///
    /// # Errors
    /// The configuration's error.
    pub(crate) fn begin(&self, address: &str) -> io::Result<Session> {
        let name = self.name_of(address).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let mut connection = ClientConnection::new(Arc::clone(&self.config), name).map_err(odd)?;
        connection.set_buffer_limit(Some(2 * TAKE_BYTES));
        let state = State { connection, out: Vec::new(), sent: 0, taken: 0, failed: None };
        Ok(Session {
            state: Mutex::new(state),
            incoming: Mutex::new(Incoming { buffer: vec![0; RECORD_BYTES_MAX].into(), from: 0, to: 0 }),
            has_more: AtomicBool::new(false),
            has_records: AtomicBool::new(false),
        })
    }
}

fn odd(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// TLS of one connection.
#[derive(Debug)]
pub struct Session {
    state: Mutex<State>,
    incoming: Mutex<Incoming>,
    /// There may be bytes that do not make the socket readable: opened ones, and unopened records.
    has_more: AtomicBool,
    has_records: AtomicBool,
}

#[derive(Debug)]
struct State {
    connection: ClientConnection,
    /// Records, of which the first bytes were sent.
    out: Vec<u8>,
    sent: usize,
    /// How many of the caller's bytes are in records that are not completely sent.
    taken: usize,
    failed: Option<Reason>,
}

/// Bytes that the socket gave and TLS has not taken.
#[derive(Debug)]
struct Incoming {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there may be bytes to receive, whatever the socket says.
    pub fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Relaxed) || self.has_records.load(Ordering::Relaxed)
    }

    /// Whether records wait for the socket.
    pub fn is_unsent(&self) -> bool {
        let state = self.lock();
        state.sent < state.out.len() || state.connection.wants_write()
    }

    /// Continues the handshake: `send` and `receive` move what they can. True when it is finished.
    ///
    /// # Errors
    /// The server's certificate is not trusted, or it does not speak TLS; or the socket's error.
    pub fn shake(
        &self,
        mut send: impl FnMut(&[u8]) -> Moved,
        receive: impl FnMut(&mut [u8]) -> Moved,
    ) -> Result<bool, Reason> {
        if self.shaken(&mut send)? {
            return Ok(true);
        }
        match self.feed(receive) {
            Moved::Bytes(0) => return Err(SILENT),
            Moved::Failed(reason) => {
                // Tells the server why, if possible.
                let _ = self.lock().flush(&mut send);
                return Err(reason);
            }
            Moved::Bytes(_) | Moved::Nothing => {}
        }
        self.shaken(&mut send)
    }

    fn shaken(&self, send: &mut impl FnMut(&[u8]) -> Moved) -> Result<bool, Reason> {
        let mut state = self.lock();
        match state.flush(send) {
            Moved::Failed(reason) => Err(reason),
            Moved::Nothing => Ok(false),
            Moved::Bytes(_) => Ok(!state.connection.is_handshaking()),
        }
    }

    /// Sends these bytes, or the rest of those that were offered last.
    pub fn send(&self, bytes: &[u8], mut send: impl FnMut(&[u8]) -> Moved) -> Moved {
        let mut state = self.lock();
        if let Some(reason) = &state.failed {
            return Moved::Failed(reason.clone());
        }
        if state.taken == 0 {
            let offered = &bytes[..bytes.len().min(TAKE_BYTES)];
            match state.connection.writer().write(offered) {
                Ok(taken) => state.taken = taken,
                Err(error) => return Moved::Failed(error.into()),
            }
        }
        match state.flush(&mut send) {
            Moved::Nothing => Moved::Nothing,
            Moved::Bytes(_) => Moved::Bytes(std::mem::take(&mut state.taken)),
            Moved::Failed(reason) => {
                state.failed = Some(reason);
                Moved::Bytes(std::mem::take(&mut state.taken))
            }
        }
    }

    /// Receives bytes; calls `receive` once at most.
    pub fn receive(&self, room: &mut [u8], receive: impl FnMut(&mut [u8]) -> Moved) -> Moved {
        match self.take(room) {
            Moved::Nothing => {}
            moved => return moved,
        }
        match self.feed(receive) {
            Moved::Bytes(0) => Moved::Bytes(0),
            Moved::Bytes(_) => self.take(room),
            moved => moved,
        }
    }

    /// Takes bytes that TLS has opened.
    fn take(&self, room: &mut [u8]) -> Moved {
        let read = self.lock().connection.reader().read(room);
        let moved = match read {
            Ok(bytes) => Moved::Bytes(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Moved::Nothing,
            // The stream ended without close_notify. That is no error: replies have lengths and ends of their own.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Moved::Bytes(0),
            Err(error) => Moved::Failed(error.into()),
        };
        let is_full = matches!(moved, Moved::Bytes(bytes) if bytes == room.len());
        self.has_more.store(is_full, Ordering::Relaxed);
        moved
    }

    /// Gives TLS what the socket has. TLS has no opened bytes that were not taken.
    fn feed(&self, mut receive: impl FnMut(&mut [u8]) -> Moved) -> Moved {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        if incoming.from == incoming.to {
            match receive(&mut incoming.buffer) {
                Moved::Bytes(bytes) => (incoming.from, incoming.to) = (0, bytes),
                moved => return moved,
            }
        }
        let mut state = self.lock();
        let Incoming { buffer, from, to } = &mut *incoming;
        if from == to {
            // The socket's end is the end of TLS, too.
            let _ = state.connection.read_tls(&mut io::empty());
            return Moved::Bytes(0);
        }
        let begun = *from;
        while from < to {
            match state.connection.read_tls(&mut &buffer[*from..*to]) {
                // TLS takes nothing behind a close_notify.
                Ok(0) => *from = *to,
                Ok(taken) => *from += taken,
                // There were no opened bytes when this began, so TLS never takes more: a message is too long.
                Err(error) if *from == begun => return Moved::Failed(error.into()),
                // TLS takes no more until its opened bytes are taken.
                Err(_) => break,
            }
            if let Err(error) = state.connection.process_new_packets() {
                return Moved::Failed(odd(error).into());
            }
        }
        self.has_records.store(from < to, Ordering::Relaxed);
        Moved::Bytes(*to)
    }
}

impl State {
    /// Sends records: all of them, or as many as the socket takes, or until it fails.
    fn flush(&mut self, send: &mut impl FnMut(&[u8]) -> Moved) -> Moved {
        while self.connection.wants_write() {
            if let Err(error) = self.connection.write_tls(&mut self.out) {
                return Moved::Failed(error.into());
            }
        }
        while self.sent < self.out.len() {
            match send(&self.out[self.sent..]) {
                Moved::Bytes(bytes) => self.sent += bytes,
                moved => return moved,
            }
        }
        self.out.clear();
        self.sent = 0;
        Moved::Bytes(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection};

    const NAME: &str = "cache.internal";

    fn session(roots: RootCertStore) -> Session {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Tls::from(Arc::new(config)).name(NAME).begin("127.0.0.1:11211").expect("a session")
    }

    /// A session and its server after the handshake, and the bytes that the session has not received yet.
    fn open() -> (Session, ServerConnection, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .expect("they belong together");
        let mut server = ServerConnection::new(Arc::new(config)).expect("random numbers");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let session = session(roots);
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        loop {
            let send = |bytes: &[u8]| {
                outgoing.extend_from_slice(bytes);
                Moved::Bytes(bytes.len())
            };
            let is_open = session.shake(send, |room| receive(&mut incoming, room)).expect("it is trusted");
            let mut left = &outgoing[..];
            while !left.is_empty() {
                server.read_tls(&mut left).expect("a slice gives all");
                server.process_new_packets().expect("good records");
            }
            outgoing.clear();
            write(&mut server, &mut incoming);
            if is_open && !server.is_handshaking() {
                return (session, server, incoming);
            }
        }
    }

    fn write(server: &mut ServerConnection, incoming: &mut Vec<u8>) {
        while server.wants_write() {
            server.write_tls(incoming).expect("a vector takes all");
        }
    }

    /// Receives these bytes: as many as there is room for.
    fn receive(from: &mut Vec<u8>, room: &mut [u8]) -> Moved {
        if from.is_empty() {
            return Moved::Nothing;
        }
        let bytes = from.len().min(room.len());
        room[..bytes].copy_from_slice(&from[..bytes]);
        from.drain(..bytes);
        Moved::Bytes(bytes)
    }

    #[test]
    fn bytes_behind_a_close_notify_are_dropped() {
        // TLS takes 4 KiB at a time: 1 byte together with the close_notify, and of 5,000 only some. With the most, a second
        // receive would bring more.
        for behind in [0, 1, 5000, 2 * RECORD_BYTES_MAX] {
            let (session, mut server, mut incoming) = open();
            server.writer().write_all(b"END\r\n").expect("it takes them");
            server.send_close_notify();
            write(&mut server, &mut incoming);
            incoming.resize(incoming.len() + behind, b'x');
            let mut room = [0; 100];
            let moved = session.receive(&mut room, |room| receive(&mut incoming, room));
            assert!(matches!(moved, Moved::Bytes(5)), "{behind}: {moved:?}");
            assert_eq!(&room[..5], b"END\r\n");
            for _ in 0..2 {
                let moved = session.receive(&mut room, |room| receive(&mut incoming, room));
                assert!(matches!(moved, Moved::Bytes(0)), "{behind}: {moved:?}");
            }
            assert!(!session.has_more());
        }
    }

    #[test]
    fn a_message_that_never_fits_ends_the_handshake() {
        let session = session(RootCertStore::empty());
        // A ServerHello of 65,535 bytes: with the headers of its records it is longer than what TLS keeps.
        let mut incoming = Vec::new();
        for record in 0..5 {
            incoming.extend_from_slice(&[0x16, 3, 3, 0x40, 0]);
            let begins = incoming.len();
            incoming.resize(begins + (16 << 10), 0);
            if record == 0 {
                incoming[begins..begins + 4].copy_from_slice(&[2, 0, 0xff, 0xff]);
            }
        }
        let send = |bytes: &[u8]| Moved::Bytes(bytes.len());
        let failed = (0..10).any(|_| session.shake(send, |room| receive(&mut incoming, room)).is_err());
        assert!(failed);
    }
}
