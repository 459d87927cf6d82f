//! A connection's socket: TCP, or a Unix socket where the address is a path.

use crate::error::{Error, Outcome, Reason};
use crate::moved::Moved;
#[cfg(feature = "tls")]
use crate::tls::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, recv,
    send, socket_with,
};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An open socket, by which a forked process finds it: its number, and a check that the number still means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSocket {
    /// Its descriptor.
    pub number: RawFd,
    /// The inode of the socket.
    pub inode: u64,
}

/// Records which socket is open, if one is. It is right in a forked child, whatever other threads did at the moment of the fork.
#[derive(Debug)]
pub struct OpenFd {
    number: AtomicI32,
    inode: AtomicU64,
}

impl Default for OpenFd {
    fn default() -> OpenFd {
        OpenFd { number: AtomicI32::new(-1), inode: AtomicU64::new(0) }
    }
}

impl OpenFd {
    /// The socket.
    pub fn socket(&self) -> Option<OpenSocket> {
        let number = self.number.load(Ordering::SeqCst);
        (number >= 0).then(|| OpenSocket { number, inode: self.inode.load(Ordering::SeqCst) })
    }
}

/// A connected socket. Its [`OpenFd`] has its number from after its creation until before it is closed, or until another socket
/// takes its place.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    open: Arc<OpenFd>,
    #[cfg(feature = "tls")]
    tls: Option<Box<Session>>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let number = self.fd.as_raw_fd();
        let _ = self.open.number.compare_exchange(number, -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Socket {
    /// Connects to host:port, or to a path that begins with `/`. Reads wait for `step` at most.
    ///
    /// # Errors
    /// The system's error; of an address with several, the last.
    pub fn connect(address: &str, limit: Duration, step: Duration, open: &Arc<OpenFd>) -> io::Result<Socket> {
        // The system takes no timeout of 0 for a Unix socket.
        if limit.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        if address.starts_with('/') {
            let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // A server that accepts no connection would otherwise block its caller for ever.
            set_socket_timeout(&fd, Timeout::Send, Some(limit))?;
            let path = SocketAddrUnix::new(address)?;
            retry_on_intr(|| connect(&fd, &path))?;
            set_socket_timeout(&fd, Timeout::Recv, Some(step))?;
            return Ok(Socket::of(fd, open));
        }
        let until = Instant::now() + limit;
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(step))?;
                    return Ok(Socket::of(stream.into(), open));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Begins to connect to an address with its port, or to a path that begins with `/`, without waiting.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::InvalidInput`] for a name, which would have to be looked up.
    pub fn begin(address: &str, open: &Arc<OpenFd>) -> io::Result<Socket> {
        let socket = |family| {
            socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
        };
        let (fd, begun) = if address.starts_with('/') {
            let path = SocketAddrUnix::new(address)?;
            let fd = socket(AddressFamily::UNIX)?;
            let begun = connect(&fd, &path);
            (fd, begun)
        } else {
            let Ok(address) = address.parse::<SocketAddr>() else {
                let what = format!("{address} is no address with its port, and would have to be looked up");
                return Err(io::Error::new(ErrorKind::InvalidInput, what));
            };
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let fd = socket(family)?;
            set_tcp_nodelay(&fd, true)?;
            let begun = connect(&fd, &address);
            (fd, begun)
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Socket::of(fd, open)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the connection is made by now.
    ///
    /// # Errors
    /// The connection failed.
    pub fn is_connected(&self) -> io::Result<bool> {
        socket_error(&self.fd)??;
        match getpeername(&self.fd) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// How a forked process finds it.
    pub fn found(&self) -> Option<OpenSocket> {
        self.open.socket()
    }

    fn of(fd: OwnedFd, open: &Arc<OpenFd>) -> Socket {
        // If the inode is unknown, no process finds the socket again.
        open.inode.store(rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_ino), Ordering::SeqCst);
        open.number.store(fd.as_raw_fd(), Ordering::SeqCst);
        let open = Arc::clone(open);
        Socket {
            fd,
            open,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Puts the socket inside of TLS: does the handshake, which has to end by `until`.
    ///
    /// # Errors
    /// The server's certificate is not trusted, or it does not speak TLS, or takes too long; or the system's error.
    #[cfg(feature = "tls")]
    pub fn secured(mut self, session: Session, until: Instant) -> Result<Socket, Reason> {
        let (mut send, fd) = (|bytes: &[u8]| send_now(&self.fd, bytes), &self.fd);
        while !session.shake(&mut send, |room| receive(fd, room))? {
            if Instant::now() >= until {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
        }
        self.tls = Some(Box::new(session));
        Ok(self)
    }

    /// Sends what the system takes now.
    pub fn send(&self, bytes: &[u8]) -> Moved {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.tls {
            return session.send(bytes, |records| send_now(&self.fd, records));
        }
        send_now(&self.fd, bytes)
    }

    /// Receives. Waits for the first byte, until a step is over or a signal comes.
    pub fn receive(&self, room: &mut [u8]) -> Moved {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.tls {
            return session.receive(room, |room| receive(&self.fd, room));
        }
        receive(&self.fd, room)
    }

    /// Receives what has come.
    pub fn receive_now(&self, room: &mut [u8]) -> Moved {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.tls {
            return session.receive(room, |room| receive_now(&self.fd, room));
        }
        receive_now(&self.fd, room)
    }

    /// Waits until bytes can be sent or, if `input` is true, received, for a step at most. True if bytes have come.
    pub fn wait(&self, input: bool, step: Duration) -> bool {
        #[cfg(feature = "tls")]
        if input && self.tls.as_ref().is_some_and(|session| session.has_more()) {
            return true;
        }
        let flags = if input { PollFlags::IN | PollFlags::OUT } else { PollFlags::OUT };
        let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), flags)];
        let limit = Timespec { tv_sec: step.as_secs() as _, tv_nsec: i64::from(step.subsec_nanos()) as _ };
        // A wait that a signal ends early counts as one that took too long: the caller checks again.
        let _ = poll(&mut fds, Some(&limit));
        fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
    }

    /// Ends both directions; threads that wait return.
    pub fn shut_down(&self) {
        shut_down(&self.fd);
    }
}

/// Sends what the system takes now.
pub fn send_now(socket: impl AsFd, bytes: &[u8]) -> Moved {
    moved(retry_on_intr(|| send(&socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)))
}

/// Receives. Waits for the first byte as long as the socket's timeout says.
fn receive(socket: impl AsFd, room: &mut [u8]) -> Moved {
    moved(recv(&socket, &mut *room, RecvFlags::empty()).map(|(_, bytes)| bytes))
}

/// Receives what has come.
pub fn receive_now(socket: impl AsFd, room: &mut [u8]) -> Moved {
    moved(recv(&socket, &mut *room, RecvFlags::DONTWAIT).map(|(_, bytes)| bytes))
}

/// Ends both directions.
pub fn shut_down(socket: impl AsFd) {
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
}

fn moved(result: Result<usize, Errno>) -> Moved {
    match result {
        Ok(bytes) => Moved::Bytes(bytes),
        // The caller checks the time and waits again. If this waited on, frequent signals could make it wait for ever.
        Err(Errno::AGAIN | Errno::INTR) => Moved::Nothing,
        Err(error) => Moved::Failed(io::Error::from(error).into()),
    }
}

/// The error of a connection that has ended.
pub fn lost(server: &Arc<str>, reason: Reason) -> Error {
    Error::Lost(Arc::clone(server), reason, Outcome::NotSent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_time_is_late_whatever_its_address() {
        let late = |address| {
            let made = Socket::connect(address, Duration::ZERO, Duration::from_millis(1), &Arc::default());
            made.map(drop).map_err(|error| error.kind())
        };
        assert_eq!(["/nowhere", "127.0.0.1:1"].map(late), [Err(ErrorKind::TimedOut); 2]);
    }
}
