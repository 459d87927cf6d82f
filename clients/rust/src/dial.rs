//! How the thread that needs a connection makes it.

use crate::error::{Error, Reason};
use crate::fleet::{Fleet, SLOW, Server, Step};
use crate::greeting::{Greeting, GreetingStep};
use crate::lane::{CLOSED, Lane, step};
use crate::moved::Moved;
use crate::socket::{OpenFd, Socket};
use larder_protocol::client::{Dialect, LINE_BYTES_MAX};
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

impl Fleet<Lane> {
    /// The lane of a server with this index, made now if there was none.
    ///
    /// # Errors
    /// The server is down, refuses this client, or could not be reached in time; or the client is closed.
    pub fn lane(&self, server: &Server<Lane>, at: usize, deadline: Instant) -> Result<Arc<Lane>, Error> {
        let mut state = server.lock();
        loop {
            match self.step(server, &mut state, at, deadline)? {
                Step::Use(lane) => return Ok(lane),
                Step::Dial => break,
                Step::Wait => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let waited = server.dialed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        drop(state);
        let limit = self.config.dial_timeout.min(deadline.saturating_duration_since(Instant::now()));
        let dialed = self.connected(server, &server.sockets[at], limit);
        let lane = |(socket, dialect, step)| {
            Arc::new(Lane::new(Arc::clone(&server.name), socket, dialect, self.limits(), step))
        };
        self.dialed(server, at, dialed.map(lane))
    }

    /// A connection that is ready for requests, its dialect, and how long a receive waits.
    ///
    /// # Errors
    /// The server could not be reached, or refuses this client.
    pub fn connected(
        &self,
        server: &Server<Lane>,
        open: &Arc<OpenFd>,
        limit: Duration,
    ) -> Result<(Socket, Dialect, Duration), Error> {
        let down = |error: io::Error| Error::Down(Arc::clone(&server.name), error.into());
        let step = step(self.config.timeout);
        let until = Instant::now() + limit;
        let socket = Socket::connect(&server.address, limit, step, open).map_err(down)?;
        #[cfg(feature = "tls")]
        let socket = match &self.config.tls {
            Some(tls) => {
                let session = tls.begin(&server.address).map_err(down)?;
                socket.secured(session, until).map_err(|why| Error::Down(Arc::clone(&server.name), why))?
            }
            None => socket,
        };
        let dialect = self.greet(server, &socket, until)?;
        Ok((socket, dialect, step))
    }

    /// Authenticates, and finds out what the server speaks.
    fn greet(&self, server: &Server<Lane>, socket: &Socket, until: Instant) -> Result<Dialect, Error> {
        let (mut greeting, mut text) = Greeting::new(&self.config);
        loop {
            let line = ask(server, socket, &text, until)?;
            match greeting.heard(&server.name, &line)? {
                GreetingStep::Say(next) => text = next,
                GreetingStep::Speaks(dialect) => return Ok(dialect),
            }
        }
    }
}

/// Sends a question and returns the line that answers it. Nothing else may be under way on the connection.
fn ask(server: &Server<Lane>, socket: &Socket, text: &[u8], until: Instant) -> Result<Vec<u8>, Error> {
    let down = |reason: Reason| Error::Down(Arc::clone(&server.name), reason);
    match socket.send(text) {
        Moved::Bytes(sent) if sent == text.len() => {}
        Moved::Failed(reason) => return Err(down(reason)),
        Moved::Bytes(_) | Moved::Nothing => return Err(down(SLOW)),
    }
    let mut reply = vec![0; 2 * LINE_BYTES_MAX];
    let mut bytes = 0;
    while Instant::now() < until && bytes < reply.len() {
        match socket.receive(&mut reply[bytes..]) {
            Moved::Bytes(0) => return Err(down(CLOSED)),
            Moved::Failed(reason) => return Err(down(reason)),
            Moved::Nothing => {}
            Moved::Bytes(more) => {
                bytes += more;
                if reply[..bytes].contains(&b'\n') {
                    reply.truncate(bytes);
                    return Ok(reply);
                }
            }
        }
    }
    Err(down(SLOW))
}
