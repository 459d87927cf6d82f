//! A connection, plain or TLS, as its listener's options say.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

use larder_eventloop::{Between, Stream};

use crate::stream::Tls;

/// A stream, or TLS over it: one type for servers with listeners of both kinds. Each call costs one comparison more than the
/// stream's own.
#[derive(Debug)]
pub enum Transport<S> {
    /// The stream itself.
    Plain(S),
    /// TLS over the stream.
    Tls(Box<Tls<S>>),
}

impl<S> AsRef<S> for Transport<S> {
    fn as_ref(&self) -> &S {
        match self {
            Transport::Plain(stream) => stream,
            Transport::Tls(tls) => tls.inner(),
        }
    }
}

impl<S: AsFd> AsFd for Transport<S> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_ref().as_fd()
    }
}

impl<S: Stream> Stream for Transport<S> {
    #[inline]
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.recv(buffer),
            Transport::Tls(tls) => tls.recv(buffer),
        }
    }

    #[inline]
    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.recv_vectored(slices),
            Transport::Tls(tls) => tls.recv_vectored(slices),
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.send(bytes),
            Transport::Tls(tls) => tls.send(bytes),
        }
    }

    #[inline]
    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.send_vectored(slices),
            Transport::Tls(tls) => tls.send_vectored(slices),
        }
    }

    fn room(&self) -> usize {
        match self {
            Transport::Plain(stream) => stream.room(),
            Transport::Tls(tls) => tls.room(),
        }
    }

    fn pending(&self) -> usize {
        match self {
            Transport::Plain(stream) => stream.pending(),
            Transport::Tls(tls) => tls.pending(),
        }
    }

    #[inline]
    fn between(&self) -> Option<Between> {
        match self {
            Transport::Plain(stream) => stream.between(),
            Transport::Tls(tls) => tls.between(),
        }
    }

    #[inline]
    fn take_records(&mut self) -> u32 {
        match self {
            Transport::Plain(stream) => stream.take_records(),
            Transport::Tls(tls) => tls.take_records(),
        }
    }

    fn take_peer_name(&mut self) -> Option<Box<str>> {
        match self {
            Transport::Plain(stream) => stream.take_peer_name(),
            Transport::Tls(tls) => tls.take_peer_name(),
        }
    }

    fn take_failure(&mut self) -> Option<Box<str>> {
        match self {
            Transport::Plain(stream) => stream.take_failure(),
            Transport::Tls(tls) => tls.take_failure(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.flush(),
            Transport::Tls(tls) => tls.flush(),
        }
    }

    fn finish(&mut self) {
        match self {
            Transport::Plain(stream) => stream.finish(),
            Transport::Tls(tls) => tls.finish(),
        }
    }
}
