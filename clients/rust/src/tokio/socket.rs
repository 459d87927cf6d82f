//! A connection's socket, of which tokio says when it is ready: TCP, or a Unix socket where the address is a path.

use crate::socket::{self, Moved};
use ::tokio::io::Interest;
use ::tokio::net::{TcpStream, UnixStream};
use ::tokio::time::sleep;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// A Unix socket whose server accepts nobody at the moment is tried again after this.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Connects to host:port, or to a path that begins with `/`.
    ///
    /// # Errors
    /// As the system says; the last one of an address with several.
    pub async fn connect(address: &str) -> io::Result<Socket> {
        if !address.starts_with('/') {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            return Ok(Socket::Tcp(stream));
        }
        loop {
            match UnixStream::connect(address).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(QUEUE_PAUSE).await,
                connected => return Ok(Socket::Unix(connected?)),
            }
        }
    }

    /// Sends what the system takes now. If that is nothing, [`Socket::poll_send`] waits for it.
    pub fn send(&self, bytes: &[u8]) -> Moved {
        self.attempt(Interest::WRITABLE, || socket::send_now(self, bytes), |sent| sent == bytes.len())
    }

    /// Receives what has come. If that does not fill the room, [`Socket::poll_receive`] waits for more.
    pub fn receive(&self, room: &mut [u8]) -> Moved {
        let room_bytes = room.len();
        self.attempt(Interest::READABLE, || socket::receive_now(self, room), |got| got == room_bytes)
    }

    /// Tries it where tokio has not seen that there is nothing to be done; where it could not be done wholly, there is nothing more
    /// until an event says so that comes after the one before this.
    fn attempt(
        &self,
        interest: Interest,
        mut go: impl FnMut() -> Moved,
        is_whole: impl Fn(usize) -> bool,
    ) -> Moved {
        let mut moved = Moved::Nothing;
        let tried = || {
            moved = go();
            match moved {
                Moved::Bytes(bytes) if !is_whole(bytes) => Err(ErrorKind::WouldBlock.into()),
                Moved::Nothing => Err(ErrorKind::WouldBlock.into()),
                Moved::Bytes(_) | Moved::Failed(_) => Ok(()),
            }
        };
        // What came of it is in `moved`.
        let _: io::Result<()> = match self {
            Socket::Tcp(stream) => stream.try_io(interest, tried),
            Socket::Unix(stream) => stream.try_io(interest, tried),
        };
        moved
    }

    /// Something may have come.
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(context),
            Socket::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    /// Something may be sent.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_write_ready(context),
            Socket::Unix(stream) => stream.poll_write_ready(context),
        }
    }

    /// Nothing is sent or received any more.
    pub fn shut_down(&self) {
        socket::shut_down(self);
    }
}
