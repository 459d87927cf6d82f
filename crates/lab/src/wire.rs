//! A connection to a server, plain or by TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use larder_eventloop::socket::Socket;
use larder_tls::ClientStream;

/// A connection to a server. It never waits.
#[derive(Debug)]
pub enum Wire {
    /// Plain bytes.
    Plain(Socket),
    /// By TLS.
    Tls(Box<ClientStream<Socket>>),
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Plain(socket) => socket.as_fd(),
            Wire::Tls(tls) => tls.as_fd(),
        }
    }
}

impl Wire {
    /// Receives the bytes that have come and returns their number; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has come; anything else ends the connection.
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.recv(buffer),
            Wire::Tls(tls) => tls.recv(buffer),
        }
    }

    /// Whether there are more bytes to receive that do not make the socket readable.
    pub fn has_more(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(tls) => tls.has_more(),
        }
    }

    /// Whether there are bytes left to send, perhaps since the last receive.
    pub fn wants_write(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(tls) => tls.wants_write(),
        }
    }

    /// Accepts some of `bytes`, and sends as much as the system takes: see [`Wire::flush`].
    ///
    /// # Errors
    /// `WouldBlock` if no byte was accepted; anything else ends the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.send(bytes),
            Wire::Tls(tls) => tls.send(bytes),
        }
    }

    /// Sends the bytes that are left; false while the system has no room for them.
    ///
    /// # Errors
    /// The error that ended the connection.
    pub fn flush(&mut self) -> io::Result<bool> {
        match self {
            Wire::Plain(_) => Ok(true),
            Wire::Tls(tls) => tls.flush(),
        }
    }
}
