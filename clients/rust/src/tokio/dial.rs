//! How a connection is made: by a task of its own, so that a dropped call does not end it.

use super::lane::{Lane, UNDRIVEN};
use super::socket::Socket;
use crate::config::Config;
use crate::connection::UNCONNECTED;
use crate::error::{Error, Outcome, Reason};
use crate::fleet::{Fleet, SLOW, Server, Shared, Step};
use crate::greeting::{Greeting, GreetingStep};
use crate::lane::{CLOSED, step};
use crate::moved::Moved;
use crate::wire::{Dialect, LINE_BYTES_MAX};
use ::tokio::time::{self, timeout_at};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// The lane of a server with this index, made now if there was none.
///
/// # Errors
/// The server is down, refuses this client, or could not be reached in time; or the client is closed.
pub async fn lane(
    shared: &Arc<Shared<Lane>>,
    server: &Arc<Server<Lane>>,
    at: usize,
    deadline: Instant,
) -> Result<Arc<Lane>, Error> {
    loop {
        // From here on no notification is missed.
        let dialed = server.dialed.notified();
        let step = shared.fleet.step(server, &mut server.lock(), at, deadline)?;
        match step {
            Step::Use(lane) => return Ok(lane),
            Step::Dial => {
                let (shared, own) = (Arc::clone(shared), Arc::clone(server));
                let dialing = Dialing { shared, server: own, at, is_over: false };
                return match timeout_at(deadline.into(), ::tokio::spawn(dialing.run())).await {
                    Ok(Ok(dialed)) => dialed,
                    Ok(Err(_)) => Err(Error::Down(Arc::clone(&server.name), UNDRIVEN)),
                    Err(_) => Err(Error::Timeout(Arc::clone(&server.name), Outcome::NotSent)),
                };
            }
            Step::Wait => {
                // The next step reports a timeout.
                let _ = timeout_at(deadline.into(), dialed).await;
            }
        }
    }
}

/// A connection that is being made.
struct Dialing {
    shared: Arc<Shared<Lane>>,
    server: Arc<Server<Lane>>,
    at: usize,
    is_over: bool,
}

impl Dialing {
    async fn run(mut self) -> Result<Arc<Lane>, Error> {
        let dialed = self.dial().await;
        self.is_over = true;
        self.shared.fleet.dialed(&self.server, self.at, dialed)
    }

    async fn dial(&self) -> Result<Arc<Lane>, Error> {
        let (fleet, known) = (&self.shared.fleet, &self.server);
        let until = time::Instant::now() + fleet.config.dial_timeout;
        let (socket, dialect) = connected(fleet, known, until).await?;
        Ok(Lane::start(Arc::clone(&known.name), socket, dialect, fleet.limits(), step(fleet.config.timeout)))
    }
}

/// Makes a connection on which requests may be sent; returns its dialect, too.
///
/// # Errors
/// The server could not be reached by then, or does not accept this client.
pub async fn connected(
    fleet: &Fleet<Lane>,
    server: &Server<Lane>,
    until: time::Instant,
) -> Result<(Socket, Dialect), Error> {
    let config = &fleet.config;
    let down = |reason: Reason| Error::Down(Arc::clone(&server.name), reason);
    let socket = timeout_at(until, Socket::connect(&server.address)).await;
    let socket = socket.map_err(|_| down(UNCONNECTED))?.map_err(|error: io::Error| down(error.into()))?;
    #[cfg(feature = "tls")]
    let socket = match &config.tls {
        Some(tls) => {
            let session = tls.begin(&server.address).map_err(|error| down(error.into()))?;
            timeout_at(until, socket.secured(session)).await.map_err(|_| down(SLOW))?.map_err(down)?
        }
        None => socket,
    };
    let dialect = timeout_at(until, greeted(config, &server.name, &socket)).await;
    let dialect = dialect.map_err(|_| down(SLOW))??;
    Ok((socket, dialect))
}

impl Drop for Dialing {
    fn drop(&mut self) {
        if !self.is_over {
            let undriven = Error::Down(Arc::clone(&self.server.name), UNDRIVEN);
            let _ = self.shared.fleet.dialed(&self.server, self.at, Err(undriven));
        }
    }
}

/// Authenticates, and finds out what the server speaks.
async fn greeted(config: &Config, server: &Arc<str>, socket: &Socket) -> Result<Dialect, Error> {
    let (mut greeting, mut text) = Greeting::new(config);
    loop {
        let line = answered(server, socket, &text).await?;
        match greeting.heard(server, &line)? {
            GreetingStep::Say(next) => text = next,
            GreetingStep::Speaks(dialect) => return Ok(dialect),
        }
    }
}

/// Sends a question and returns the line that answers it. Nothing else may be under way on the connection.
async fn answered(server: &Arc<str>, socket: &Socket, text: &[u8]) -> Result<Vec<u8>, Error> {
    let down = |reason: Reason| Error::Down(Arc::clone(server), reason);
    match socket.send(text) {
        Moved::Bytes(sent) if sent == text.len() => {}
        Moved::Failed(reason) => return Err(down(reason)),
        Moved::Bytes(_) | Moved::Nothing => return Err(down(SLOW)),
    }
    let mut reply = vec![0; 2 * LINE_BYTES_MAX];
    let mut bytes = 0;
    while bytes < reply.len() {
        poll_fn(|context| socket.poll_receive(context)).await.map_err(|error| down(error.into()))?;
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
