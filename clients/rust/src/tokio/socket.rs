//! A connection's socket, driven by tokio: TCP, or a Unix socket where the address is a path.

#[cfg(feature = "tls")]
use crate::error::Reason;
use crate::moved::Moved;
use crate::socket;
#[cfg(feature = "tls")]
use crate::tls::Session;
use ::tokio::io::Interest;
use ::tokio::net::{TcpStream, UnixStream};
use ::tokio::time::sleep;
#[cfg(feature = "tls")]
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

/// A Unix socket whose server accepts no connection at the moment is tried again after this.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// A connected socket.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    #[cfg(feature = "tls")]
    tls: Option<Box<Session>>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Connects to host:port, or to a path that begins with `/`.
    ///
    /// # Errors
    /// The system's error; of an address with several, the last.
    pub async fn connect(address: &str) -> io::Result<Socket> {
        if !address.starts_with('/') {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            return Ok(Socket::of(Stream::Tcp(stream)));
        }
        loop {
            match UnixStream::connect(address).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(QUEUE_PAUSE).await,
                connected => return Ok(Socket::of(Stream::Unix(connected?))),
            }
        }
    }

    fn of(stream: Stream) -> Socket {
        Socket {
            stream,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Puts the socket inside of TLS: does the handshake.
    ///
    /// # Errors
    /// The server's certificate is not trusted, or it does not speak TLS; or the system's error.
    #[cfg(feature = "tls")]
    pub async fn secured(mut self, session: Session) -> Result<Socket, Reason> {
        while !session.shake(|records| self.send_now(records), |room| self.receive_now(room))? {
            let ready = match session.is_unsent() {
                true => poll_fn(|context| self.poll_send(context)).await,
                false => poll_fn(|context| self.poll_receive(context)).await,
            };
            ready?;
        }
        self.tls = Some(Box::new(session));
        Ok(self)
    }

    /// Sends what the system takes now. If it takes nothing, [`Socket::poll_send`] waits, and the rest of the same bytes is
    /// offered again.
    pub fn send(&self, bytes: &[u8]) -> Moved {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.tls {
            return session.send(bytes, |records| self.send_now(records));
        }
        self.send_now(bytes)
    }

    /// Receives what has come. If that does not fill the room, [`Socket::poll_receive`] waits for more.
    pub fn receive(&self, room: &mut [u8]) -> Moved {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.tls {
            return session.receive(room, |room| self.receive_now(room));
        }
        self.receive_now(room)
    }

    fn send_now(&self, bytes: &[u8]) -> Moved {
        self.attempt(Interest::WRITABLE, || socket::send_now(self, bytes), |sent| sent == bytes.len())
    }

    fn receive_now(&self, room: &mut [u8]) -> Moved {
        let room_bytes = room.len();
        self.attempt(Interest::READABLE, || socket::receive_now(self, room), |got| got == room_bytes)
    }

    /// Tries a call unless tokio knows that nothing can be done. If the call could not be completed, the socket counts as not
    /// ready until a later event.
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
        // The result is in `moved`.
        let _: io::Result<()> = match &self.stream {
            Stream::Tcp(stream) => stream.try_io(interest, tried),
            Stream::Unix(stream) => stream.try_io(interest, tried),
        };
        moved
    }

    /// Ready when something may have come.
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(feature = "tls")]
        if self.tls.as_ref().is_some_and(|session| session.has_more()) {
            return Poll::Ready(Ok(()));
        }
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    /// Ready when something may be sent.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            Stream::Tcp(stream) => stream.poll_write_ready(context),
            Stream::Unix(stream) => stream.poll_write_ready(context),
        }
    }

    /// Ends both directions.
    pub fn shut_down(&self) {
        socket::shut_down(self);
    }
}
