//! The server's side of TLS without I/O: opens received records, seals bytes to send, and writes the messages of TLS itself
//! (handshake, alerts, key updates) for the caller to send.

use std::io;
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::time_provider::TimeProvider;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{HandshakeKind, ServerConfig, SupportedCipherSuite};

use crate::subject::common_name_at;

/// Most bytes that sealing adds to a record: header, nonce, type and tag, and a KeyUpdate in front.
pub(crate) const SEAL_BYTES_MAX: usize = 128;

/// Most records without plaintext that are opened in a row before others have their turn: each may take a key agreement.
pub(crate) const QUIET_RECORDS_MAX: u32 = 16;

/// A session is worn when only this many records can still be sealed. Within so many its client should reach the end of a
/// request.
const WORN_RECORDS: u64 = 1 << 20;

/// Most bytes kept of a handshake message that spans several records. A client's certificates are some thousand bytes.
pub const KEPT_BYTES_MAX: usize = 32 << 10;
/// Most bytes kept of the first message, which anyone can send: one record's. Those of today's clients have 2 KiB at most.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Memory of a connection's keys and state after the handshake.
pub const SESSION_BYTES: usize = 4 << 10;
/// Memory of a connection's keys and state during the handshake.
pub const HANDSHAKE_BYTES: usize = 16 << 10;
/// Memory of a certificate beside its bytes: its entry, and what the allocator adds.
const CERTIFICATE_BYTES: usize = 48;

/// The server's side of one connection.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
    gives_tickets: bool,
    /// Bytes of records in front that hold a part of a handshake message. rustls has seen them and has to see them again, in
    /// their place.
    kept: usize,
    /// Records that may still be sealed by the session's one key, less a margin in which the connection ends.
    seals: u64,
    /// The server asks clients for certificates.
    asks: bool,
    /// Bytes of the handshake received so far. Where clients may show a certificate, rustls keeps them all, since the
    /// certificate's key signs them.
    heard: usize,
    /// The server has answered the peer.
    answered: bool,
    /// Memory of the certificates that the client has shown, which rustls keeps.
    shown_bytes: usize,
    /// The clock of a session whose client is the user that its certificate names.
    names: Option<Arc<dyn TimeProvider>>,
    /// That name, until it is taken.
    name: Option<Box<str>>,
}

/// The next part of the received records.
struct NextRecord {
    len: usize,
    whole: bool,
}

/// What [`Session::open`] did.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Bytes of records that are used up.
    pub used: usize,
    /// Records that were opened.
    pub records: u32,
    /// It stopped early: the caller had no room for more plaintext, or there were [`QUIET_RECORDS_MAX`].
    pub stopped: bool,
    /// The peer has sent close_notify.
    pub ended: bool,
    /// The bytes are not valid records, or the handshake failed.
    pub failed: bool,
    /// Why, if rustls says so.
    pub why: Option<rustls::Error>,
}

impl Session {
    /// A session that has not begun; `asks` says whether its options ask clients for certificates, `names` whether clients are
    /// the users that these name.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(config: &Arc<ServerConfig>, asks: bool, names: bool) -> io::Result<Session> {
        let connection = UnbufferedServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Session {
            connection,
            gives_tickets: config.ticketer.enabled(),
            kept: 0,
            seals: u64::MAX,
            asks,
            heard: 0,
            answered: false,
            shown_bytes: 0,
            names: names.then(|| Arc::clone(&config.time_provider)),
            name: None,
        })
    }

    /// The handshake is not finished.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The server gives clients tickets for resuming their sessions.
    pub fn gives_tickets(&self) -> bool {
        self.gives_tickets
    }

    /// The handshake resumed a session; false before it is finished.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Opens whole records in order while `plain`, which is given the plaintext of each, returns true. Appends the messages of
    /// TLS itself that have to be sent to `messages`.
    ///
    /// Each call of rustls is given one whole record, behind those that hold a part of a handshake message. rustls then uses up
    /// either all of these bytes or none. If it leaves some, it would take them for a part of the next record, at the wrong
    /// place. An empty handshake record does that, which no client may send: the session fails.
    pub fn open(
        &mut self,
        records: &mut [u8],
        messages: &mut Vec<u8>,
        mut plain: impl FnMut(&[u8]) -> bool,
    ) -> Opened {
        let mut opened =
            Opened { used: 0, records: 0, stopped: false, ended: false, failed: false, why: None };
        let mut quiet = 0;
        let answers = messages.len();
        while let Some(next) = self.next_record(&records[opened.used..]) {
            let end = opened.used + self.kept + next.len;
            let mut discarded = 0;
            opened.records += u32::from(next.whole);
            quiet += u32::from(next.whole);
            loop {
                let status = self.connection.process_tls_records(&mut records[opened.used + discarded..end]);
                let UnbufferedStatus { mut discard, state, .. } = status;
                let more = match state {
                    Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                        while let Some(Ok(record)) = traffic.next_record() {
                            discard += record.discard;
                            opened.stopped = !plain(record.payload);
                            quiet = 0;
                        }
                        true
                    }
                    Ok(ConnectionState::EncodeTlsData(mut data)) => {
                        encode(&mut data, messages);
                        true
                    }
                    Ok(ConnectionState::TransmitTlsData(data)) => {
                        data.done();
                        true
                    }
                    Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                        opened.ended = true;
                        false
                    }
                    Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => false,
                    Err(error) => {
                        (opened.failed, opened.why) = (true, Some(error));
                        false
                    }
                    // Early data is never accepted.
                    Ok(_) => {
                        opened.failed = true;
                        false
                    }
                };
                discarded += discard;
                if !more {
                    break;
                }
            }
            if opened.failed || opened.ended {
                opened.used += discarded;
                break;
            }
            if !next.whole {
                opened.failed = discarded > 0;
                break;
            }
            match discarded {
                0 if self.connection.is_handshaking() => self.kept += next.len,
                all if opened.used + all == end => {
                    if self.connection.is_handshaking() {
                        self.heard += all;
                    }
                    (opened.used, self.kept) = (end, 0);
                }
                _ => {
                    opened.failed = true;
                    return opened;
                }
            }
            opened.stopped |= quiet == QUIET_RECORDS_MAX;
            if opened.stopped {
                break;
            }
        }
        self.answered |= messages.len() > answers;
        // Writes the alert that says why. While an alert is pending, rustls does not look at records.
        while opened.failed && self.connection.wants_write() {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, messages),
                Ok(_) | Err(_) => break,
            }
        }
        opened
    }

    /// A whole record lies behind the kept ones.
    pub fn has_whole(&self, records: &[u8]) -> bool {
        self.next_record(records).is_some_and(|next| next.whole)
    }

    /// Most bytes of records that may be kept of an incomplete message.
    pub fn kept_bytes_max(&self) -> usize {
        if self.answered { KEPT_BYTES_MAX } else { HELLO_BYTES_MAX }
    }

    /// Memory of the session's keys and state, and of what rustls keeps of the handshake.
    pub fn memory(&self) -> usize {
        match self.is_handshaking() {
            true if self.asks => HANDSHAKE_BYTES + self.heard,
            true => HANDSHAKE_BYTES,
            false => SESSION_BYTES + self.shown_bytes,
        }
    }

    /// Called at the end of the handshake: notes the certificates that the client has shown (those of a resumed session were
    /// verified when that began), and how many records the cipher may seal by one key. TLS 1.3 changes its key in time.
    pub fn note_opened(&mut self) {
        let shown = self.connection.peer_certificates().unwrap_or_default();
        self.shown_bytes = shown.iter().map(|certificate| certificate.len() + CERTIFICATE_BYTES).sum();
        if let (Some(clock), Some(own)) = (&self.names, shown.first()) {
            self.name = clock.current_time().and_then(|now| common_name_at(own, now.as_secs()));
        }
        if let Some(SupportedCipherSuite::Tls12(suite)) = self.connection.negotiated_cipher_suite() {
            self.seals = suite.common.confidentiality_limit.saturating_sub(WORN_RECORDS);
        }
    }

    /// Takes the name of the user that the client's certificate names.
    pub fn take_name(&mut self) -> Option<Box<str>> {
        self.name.take()
    }

    /// The session has to end soon: few records can still be sealed.
    pub fn is_worn(&self) -> bool {
        self.seals == 0
    }

    /// The part of the records that rustls is given next, behind the kept ones: a whole record, or the beginning of one, whose
    /// header rustls may refuse.
    fn next_record(&self, records: &[u8]) -> Option<NextRecord> {
        let fresh = records.get(self.kept..)?;
        match record_bytes(fresh) {
            Some(len) if len <= fresh.len() => Some(NextRecord { len, whole: true }),
            Some(_) => Some(NextRecord { len: fresh.len(), whole: false }),
            None => None,
        }
    }

    /// Writes the messages of TLS itself that have to be sent. Only after the handshake, and not after a failure: rustls would
    /// want partial messages again, and a failed connection has none.
    pub fn write(&mut self, messages: &mut Vec<u8>) {
        loop {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, messages),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Seals the bytes of one record into `into`, which needs [`SEAL_BYTES_MAX`] bytes more than `plain`. Returns the record's
    /// length.
    ///
    /// # Errors
    /// When the connection can send no more.
    pub fn seal(&mut self, plain: &[u8], into: &mut [u8]) -> io::Result<usize> {
        match self.connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                self.seals = self.seals.saturating_sub(1);
                traffic.encrypt(plain, into).map_err(io::Error::other)
            }
            Ok(_) | Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Writes close_notify, behind all other messages.
    pub fn close(&mut self, messages: &mut Vec<u8>) {
        self.write(messages);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            self.connection.process_tls_records(&mut []).state
        {
            let mut record = [0; SEAL_BYTES_MAX];
            let bytes = traffic.queue_close_notify(&mut record).unwrap_or(0);
            messages.extend_from_slice(&record[..bytes]);
        }
    }
}

/// Length of the record in front, by its header; `None` if the header is incomplete.
fn record_bytes(records: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low] = records.first_chunk::<5>()?;
    Some(5 + usize::from(u16::from_be_bytes([high, low])))
}

/// Appends a record that rustls has made.
fn encode<D>(data: &mut EncodeTlsData<'_, D>, messages: &mut Vec<u8>) {
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else { return };
    let at = messages.len();
    messages.resize(at + size.required_size, 0);
    let bytes = data.encode(&mut messages[at..]).unwrap_or(0);
    messages.truncate(at + bytes);
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, version};

    use super::*;

    /// A session and its client after the handshake.
    fn open(version: &'static rustls::SupportedProtocolVersion) -> (Session, ClientConnection) {
        let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
        let provider = Arc::new(default_provider());
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .expect("they belong together");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a certificate");
        let trust = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut session = Session::new(&Arc::new(config), false, false).expect("random numbers");
        let name = "larder.test".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(trust), name).expect("a client");
        while session.is_handshaking() || client.is_handshaking() {
            let (mut records, mut messages) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut records).expect("a vector takes all");
            }
            let opened = session.open(&mut records, &mut messages, |_| true);
            assert_eq!((opened.used, opened.failed), (records.len(), false));
            client.read_tls(&mut &messages[..]).expect("a slice gives all");
            client.process_new_packets().expect("good records");
        }
        session.note_opened();
        (session, client)
    }

    #[test]
    fn a_session_is_worn_before_its_only_key_is() {
        for version in [&version::TLS12, &version::TLS13] {
            let (mut session, client) = open(version);
            let has_one_key = client.protocol_version() == Some(ProtocolVersion::TLSv1_2);
            let seals = if has_one_key { (1 << 24) - WORN_RECORDS } else { u64::MAX };
            assert_eq!(session.seals, seals, "AES-GCM");
            if has_one_key {
                session.seals = 2;
            }
            let mut into = vec![0; 100 + SEAL_BYTES_MAX];
            for left in (0..2).rev() {
                session.seal(&[1; 100], &mut into).expect("it can");
                assert_eq!(session.is_worn(), has_one_key && left == 0, "{left}");
            }
            session.seal(&[1; 100], &mut into).expect("it can all the same");
            assert_eq!(session.is_worn(), has_one_key);
        }
    }
}
