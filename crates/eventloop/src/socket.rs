//! Non-blocking stream sockets, TCP and Unix.
//!
//! Everything here returns at once: an operation that would have to wait fails with
//! [`io::ErrorKind::WouldBlock`]. Sending to a peer that is gone fails with `BrokenPipe`, it never
//! raises SIGPIPE. All descriptors are close-on-exec.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketAddrUnix,
    SocketFlags, SocketType, ipproto, sockopt,
};

/// Slices one [`Socket::send_vectored`] takes at most (IOV_MAX of Linux); more would be refused.
pub const SEND_SLICES_MAX: usize = 1024;

/// The address that a socket listens on or connects to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4 or IPv6 address and port.
    Tcp(SocketAddr),
    /// Path of a Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    /// `127.0.0.1:11211`, `[::1]:11211` or `unix:/path`, as memcached prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(addr) => addr.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Only this machine reaches the address.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        }
    }

    fn from_any(any: &SocketAddrAny) -> Option<Address> {
        if any.address_family() == AddressFamily::UNIX {
            let unix = SocketAddrUnix::try_from(any.clone()).ok()?;
            let path = unix.path().map(|p| PathBuf::from(std::ffi::OsStr::from_bytes(p.to_bytes())));
            return Some(Address::Unix(path.unwrap_or_default()));
        }
        SocketAddr::try_from(any.clone()).ok().map(Address::Tcp)
    }
}

const NEW: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn family(addr: &SocketAddr) -> AddressFamily {
    match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Listens on `address` with `backlog` connections waiting at most (the system may cut it). TCP
    /// addresses may be taken over from a server that has just stopped (SO_REUSEADDR); an IPv6
    /// address listens for IPv6 only. A Unix path must not exist. Accepted TCP connections send
    /// small segments at once and probe a silent peer (TCP_NODELAY, SO_KEEPALIVE, inherited from
    /// the listener, which saves two system calls a connection).
    ///
    /// # Errors
    /// What socket(2), bind(2), listen(2) say: address in use, not ours, no permission.
    pub fn bind(address: &Address, backlog: i32) -> io::Result<Listener> {
        let fd = match address {
            Address::Tcp(addr) => {
                let fd = net::socket_with(family(addr), SocketType::STREAM, NEW, Some(ipproto::TCP))?;
                sockopt::set_socket_reuseaddr(&fd, true)?;
                sockopt::set_tcp_nodelay(&fd, true)?;
                sockopt::set_socket_keepalive(&fd, true)?;
                if addr.is_ipv6() {
                    sockopt::set_ipv6_v6only(&fd, true)?;
                }
                net::bind(&fd, addr)?;
                fd
            }
            Address::Unix(path) => {
                let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, NEW, None)?;
                net::bind(&fd, &SocketAddrUnix::new(path.as_path())?)?;
                fd
            }
        };
        net::listen(&fd, backlog)?;
        Ok(Listener { fd })
    }

    /// Takes the next waiting connection.
    ///
    /// # Errors
    /// `WouldBlock` when none waits; otherwise what accept4(2) says (too many open files).
    pub fn accept(&self) -> io::Result<Socket> {
        loop {
            match net::accept_with(&self.fd, NEW) {
                Ok(fd) => return Ok(Socket { fd }),
                // The peer gave up while it waited. Others may be behind it.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The address it listens on, with the real port if 0 was asked.
    ///
    /// # Errors
    /// What getsockname(2) says; none in correct use.
    pub fn local_address(&self) -> io::Result<Address> {
        let any = net::getsockname(&self.fd)?;
        Address::from_any(&any).ok_or_else(|| io::Error::other("unknown address family"))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Which direction [`Socket::shutdown`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// No more receives.
    Read,
    /// No more sends; the peer sees end of stream.
    Write,
    /// Neither.
    Both,
}

/// A connected (or connecting) stream socket. Dropping it closes it.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Starts to connect. When the socket becomes writable, [`Socket::take_error`] says how it went.
    ///
    /// # Errors
    /// What socket(2) and connect(2) say, if known at once. A Unix socket whose backlog is full
    /// says `WouldBlock`, and connecting has to be tried again.
    pub fn connect(address: &Address) -> io::Result<Socket> {
        let (fd, result) = match address {
            Address::Tcp(addr) => {
                let fd = net::socket_with(family(addr), SocketType::STREAM, NEW, Some(ipproto::TCP))?;
                let result = net::connect(&fd, addr);
                (fd, result)
            }
            Address::Unix(path) => {
                let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, NEW, None)?;
                let result = net::connect(&fd, &SocketAddrUnix::new(path.as_path())?);
                (fd, result)
            }
        };
        match result {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Socket { fd }),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects and waits for it, `timeout` at most.
    ///
    /// # Errors
    /// As [`Socket::connect`], and `TimedOut`.
    pub fn connect_timeout(address: &Address, timeout: Duration) -> io::Result<Socket> {
        use crate::poll::{Events, Interest, Poller};
        let socket = Socket::connect(address)?;
        let poller = Poller::new()?;
        poller.add(&socket, 0, Interest::Write)?;
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, Some(timeout))?;
        if events.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.take_error()?;
        Ok(socket)
    }

    /// Takes over a connected stream socket and makes it non-blocking.
    ///
    /// # Errors
    /// What fcntl(2) says; none for an open descriptor.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Socket> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Socket { fd })
    }

    /// Two connected sockets.
    ///
    /// # Errors
    /// What socketpair(2) says (too many open files).
    pub fn pair() -> io::Result<(Socket, Socket)> {
        let (a, b) = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, NEW, None)?;
        Ok((Socket { fd: a }, Socket { fd: b }))
    }

    /// Clears and returns the pending error, which says how a connect went.
    ///
    /// # Errors
    /// The pending error.
    pub fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// Sets whether small segments are sent at once. Only TCP has this option, and only TCP needs it.
    ///
    /// # Errors
    /// `Unsupported`-like errors on a socket that is not TCP.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_nodelay(&self.fd, on)?)
    }

    /// Receives into `buffer` and returns the number of bytes. 0 is the end of the stream (if `buffer` is not empty).
    ///
    /// # Errors
    /// `WouldBlock`, or what recv(2) says (connection reset).
    #[inline]
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match net::recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((received, _)) => return Ok(received),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives into `slices`, filling each before the next, and returns the number of bytes. 0 is the end of the stream.
    ///
    /// # Errors
    /// As [`Socket::recv`].
    #[inline]
    pub fn recv_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            match rustix::io::readv(&self.fd, slices) {
                Ok(received) => return Ok(received),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends what fits now and returns the number of bytes.
    ///
    /// # Errors
    /// `WouldBlock`, or what send(2) says (broken pipe, connection reset).
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends what fits now of the first [`SEND_SLICES_MAX`] of `slices`, and returns the number of bytes.
    ///
    /// # Errors
    /// As [`Socket::send`].
    #[inline]
    pub fn send_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let slices = &slices[..slices.len().min(SEND_SLICES_MAX)];
        loop {
            let mut control = SendAncillaryBuffer::new(&mut []);
            match net::sendmsg(&self.fd, slices, &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// True if a send would take some bytes now, or fail for good.
    pub fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        // If the system cannot say, the next send will find out.
        poll(&mut fds, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
    }

    /// Bytes that have come and are not received yet.
    pub fn pending(&self) -> usize {
        // The call fails only on a failed socket, and the next receive reports that.
        rustix::io::ioctl_fionread(&self.fd).map_or(0, |bytes| bytes as usize)
    }

    /// Ends a direction without closing.
    ///
    /// # Errors
    /// What shutdown(2) says (not connected any more).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => net::Shutdown::Read,
            Shutdown::Write => net::Shutdown::Write,
            Shutdown::Both => net::Shutdown::Both,
        };
        Ok(net::shutdown(&self.fd, how)?)
    }

    /// The peer's address; a Unix peer usually has an empty path.
    ///
    /// # Errors
    /// What getpeername(2) says (not connected any more).
    pub fn peer_address(&self) -> io::Result<Address> {
        net::getpeername(&self.fd)?
            .as_ref()
            .and_then(Address::from_any)
            .map_or_else(|| Ok(Address::Unix(PathBuf::new())), Ok)
    }

    /// Our own address.
    ///
    /// # Errors
    /// What getsockname(2) says.
    pub fn local_address(&self) -> io::Result<Address> {
        let any = net::getsockname(&self.fd)?;
        Ok(Address::from_any(&any).unwrap_or(Address::Unix(PathBuf::new())))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{Events, Interest, Poller};
    use crate::port::Port;

    /// Only a hang takes this long.
    const PATIENCE: Duration = Duration::from_secs(600);

    fn accepted(listener: &Listener) -> Socket {
        let poller = Poller::new().unwrap();
        poller.add(listener, 0, Interest::Read).unwrap();
        poller.wait(&mut Events::with_capacity(1), None).unwrap();
        listener.accept().unwrap()
    }

    fn received(socket: &Socket, buffer: &mut [u8]) -> usize {
        let poller = Poller::new().unwrap();
        poller.add(socket, 0, Interest::Read).unwrap();
        poller.wait(&mut Events::with_capacity(1), None).unwrap();
        socket.recv(buffer).unwrap()
    }

    #[test]
    fn tcp_carries_bytes_and_end_of_stream() {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap()), 16).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let address = listener.local_address().unwrap();
        let client = Socket::connect_timeout(&address, PATIENCE).unwrap();
        client.set_nodelay(true).unwrap();
        let server = accepted(&listener);
        assert!(sockopt::tcp_nodelay(&server.fd).unwrap() && sockopt::socket_keepalive(&server.fd).unwrap());
        assert_eq!(server.local_address().unwrap(), address);
        assert_eq!(server.peer_address().unwrap(), client.local_address().unwrap());
        let mut buffer = [0; 16];
        assert_eq!(server.recv(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(client.send_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")]).unwrap(), 4);
        assert_eq!(received(&server, &mut buffer), 4);
        assert_eq!(&buffer[..4], b"abcd");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(received(&server, &mut buffer), 0);
        assert_eq!(server.send(b"x").unwrap(), 1);
        assert_eq!(received(&client, &mut buffer), 1);
    }

    #[test]
    fn unix_listener_accepts_and_refuses_an_existing_path() {
        let path = std::env::temp_dir().join(format!("larder-socket-test-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let address = Address::Unix(path.clone());
        let listener = Listener::bind(&address, 16).unwrap();
        assert_eq!(Listener::bind(&address, 16).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(listener.local_address().unwrap(), address);
        let client = Socket::connect(&address).unwrap();
        let server = accepted(&listener);
        server.send(b"hi").unwrap();
        let mut buffer = [0; 4];
        assert_eq!(received(&client, &mut buffer), 2);
        assert_eq!(server.peer_address().unwrap(), Address::Unix(PathBuf::new()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn sending_to_a_closed_peer_is_an_error_and_no_signal() {
        let (a, b) = Socket::pair().unwrap();
        drop(b);
        assert_eq!(a.send(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(a.send_vectored(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn connecting_to_nobody_is_refused() {
        let port = Port::reserve().unwrap();
        let refused = Socket::connect_timeout(&Address::Tcp(port.address()), PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_receive_fills_one_slice_before_the_next() {
        let (a, b) = Socket::pair().unwrap();
        a.send(b"abcdef").unwrap();
        let (mut first, mut second, mut third) = ([0; 2], [0; 3], [0; 4]);
        let mut slices = [&mut first[..], &mut second[..], &mut third[..]].map(IoSliceMut::new);
        assert_eq!(b.recv_vectored(&mut slices).unwrap(), 6);
        assert_eq!((&first, &second, &third), (b"ab", b"cde", b"f\0\0\0"));
    }

    #[test]
    fn slices_beyond_the_limit_wait_for_the_next_send() {
        let (a, b) = Socket::pair().unwrap();
        let slices: Vec<IoSlice<'_>> = (0..SEND_SLICES_MAX + 1).map(|_| IoSlice::new(b"y")).collect();
        assert_eq!(a.send_vectored(&slices[..SEND_SLICES_MAX - 1]).unwrap(), SEND_SLICES_MAX - 1);
        assert_eq!(a.send_vectored(&slices[..SEND_SLICES_MAX]).unwrap(), SEND_SLICES_MAX);
        assert_eq!(a.send_vectored(&slices).unwrap(), SEND_SLICES_MAX);
        drop(b);
    }
}
