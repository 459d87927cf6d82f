//! A server's statistics, async.

use super::client::Client;
use super::dial::connected;
use super::direct::Counted;
use super::socket::Socket;
use crate::error::{Error, Outcome, Reason};
use crate::figures::{Figures, Named, PIECE_BYTES, question};
use crate::fleet::Front;
use crate::lane::CLOSED;
use crate::moved::Moved;
use ::tokio::time::{self, timeout_at};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

impl Client {
    /// Statistics of one of [`Client::servers`], as [`crate::Client::stats`] returns them, by a connection that is made for this
    /// call.
    ///
    /// # Errors
    /// As [`crate::Client::stats`].
    ///
    /// # Panics
    /// If there is no server of this number.
    pub async fn stats(&self, server: usize, what: &str) -> Result<Vec<(String, String)>, Error> {
        let question = question(what)?;
        let (fleet, deadline) = (self.fleet(), time::Instant::from_std(self.deadline()));
        let list = fleet.list();
        let server = &list.all()[..list.len()][server];
        fleet.admit(server)?;
        let began = fleet.begins();
        let until = deadline.min(time::Instant::now() + fleet.config.dial_timeout);
        let made = connected(fleet, server, until).await;
        fleet.tried(server, began, made.as_ref().err());
        let (socket, _) = made?;
        let _counted = Counted::new(server);
        // A concurrent close of the client either finds this connection, or is noticed here.
        fleet.admit(server)?;
        let mut ended = pin!(server.alone.ended());
        let mut asked = pin!(ask(&server.name, &socket, question.as_bytes()));
        let first = poll_fn(|context| match ended.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(Error::Closed(Outcome::Unknown))),
            Poll::Pending => asked.as_mut().poll(context),
        });
        match timeout_at(deadline, first).await {
            Ok(answered) => answered,
            Err(_) => Err(Error::Timeout(Arc::clone(&server.name), Outcome::Unknown)),
        }
    }
}

/// Sends the request, and reads lines until one ends the reply.
async fn ask(server: &Arc<str>, socket: &Socket, question: &[u8]) -> Result<Named, Error> {
    let lost = |reason: Reason| Error::Lost(Arc::clone(server), reason, Outcome::Unknown);
    let mut sent = 0;
    while sent < question.len() {
        match socket.send(&question[sent..]) {
            Moved::Bytes(more) => sent += more,
            Moved::Failed(why) => return Err(lost(why)),
            Moved::Nothing => {
                let ready = poll_fn(|context| socket.poll_send(context)).await;
                ready.map_err(|error| lost(error.into()))?;
            }
        }
    }
    let (mut figures, mut piece) = (Figures::default(), vec![0; PIECE_BYTES]);
    loop {
        let ready = poll_fn(|context| socket.poll_receive(context)).await;
        ready.map_err(|error| lost(error.into()))?;
        match socket.receive(&mut piece) {
            Moved::Bytes(0) => return Err(lost(CLOSED)),
            Moved::Failed(why) => return Err(lost(why)),
            Moved::Nothing => {}
            Moved::Bytes(bytes) => {
                if let Some(found) = figures.take(server, &piece[..bytes])? {
                    return Ok(found);
                }
            }
        }
    }
}
