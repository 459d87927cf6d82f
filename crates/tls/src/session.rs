//! The server's side of TLS without I/O: records that have come are opened, bytes that go out are sealed, and the messages
//! of TLS itself (handshake, alerts, key updates) are written for whoever sends them.

use std::io;
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{HandshakeKind, ServerConfig};

/// Most bytes that sealing adds to a record: header, nonce, type and tag, and a KeyUpdate in front.
pub(crate) const SEAL_BYTES_MAX: usize = 128;

/// The server's side of one connection.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
    gives_tickets: bool,
}

/// What [`Session::open`] did.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Bytes of records that are used up.
    pub used: usize,
    /// It stopped because the receiver of the plaintext had no room left.
    pub stopped: bool,
    /// The peer has sent close_notify.
    pub ended: bool,
    /// The bytes are no valid records, or the handshake failed.
    pub failed: bool,
}

impl Session {
    pub fn new(config: &Arc<ServerConfig>) -> io::Result<Session> {
        let connection = UnbufferedServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Session { connection, gives_tickets: config.ticketer.enabled() })
    }

    /// The handshake is not finished.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Clients are given tickets to resume their sessions by.
    pub fn gives_tickets(&self) -> bool {
        self.gives_tickets
    }

    /// The handshake resumed a session. Nothing is known of it before it is finished.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Opens whole records, the first first, while `plain` returns true: it is given the plaintext of each. Messages of
    /// TLS itself that are to be sent go to `messages`.
    pub fn open(
        &mut self,
        records: &mut [u8],
        messages: &mut Vec<u8>,
        mut plain: impl FnMut(&[u8]) -> bool,
    ) -> Opened {
        let mut opened = Opened { used: 0, stopped: false, ended: false, failed: false };
        loop {
            let status = self.connection.process_tls_records(&mut records[opened.used..]);
            let UnbufferedStatus { mut discard, state, .. } = status;
            let more = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        opened.stopped = !plain(record.payload);
                    }
                    !opened.stopped
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
                // Early data is never accepted.
                Ok(_) | Err(_) => {
                    opened.failed = true;
                    false
                }
            };
            opened.used += discard;
            if !more {
                break;
            }
        }
        // The alert that says why. While there is one to be sent the records are not looked at.
        while opened.failed && self.connection.wants_write() {
            match self.connection.process_tls_records(&mut records[opened.used..]).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, messages),
                Ok(_) | Err(_) => break,
            }
        }
        opened
    }

    /// Writes the messages of TLS itself that are to be sent. Only after the handshake, and not of a connection that has
    /// failed: partial messages would have to be passed again, and such a connection has none.
    pub fn write(&mut self, messages: &mut Vec<u8>) {
        loop {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, messages),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Seals the bytes of one record into `into`, which has room for [`SEAL_BYTES_MAX`] bytes more than these. Returns the
    /// record's length.
    ///
    /// # Errors
    /// When the connection can send no more.
    pub fn seal(&mut self, plain: &[u8], into: &mut [u8]) -> io::Result<usize> {
        match self.connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
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

/// Appends a record that rustls has made.
fn encode<D>(data: &mut EncodeTlsData<'_, D>, messages: &mut Vec<u8>) {
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else { return };
    let at = messages.len();
    messages.resize(at + size.required_size, 0);
    let bytes = data.encode(&mut messages[at..]).unwrap_or(0);
    messages.truncate(at + bytes);
}
