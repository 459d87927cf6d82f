//! A server's statistics, by the connection for one caller.

use super::Direct;
use crate::client::Client;
use crate::error::{Error, Outcome};
use crate::figures::{Figures, Named, PIECE_BYTES, question};
use crate::fleet::Front;
use crate::lane::CLOSED;
use crate::moved::Moved;
use crate::socket::lost;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Direct {
    /// Sends the request, and reads lines until one ends the reply.
    fn stats(
        &mut self,
        server: &Arc<str>,
        question: &[u8],
        stall: Duration,
        until: Instant,
    ) -> Result<Named, Error> {
        let unknown = |error: Error| error.with(Outcome::Unknown);
        self.send(server, question, stall).map_err(unknown)?;
        let (mut figures, mut piece) = (Figures::default(), vec![0; PIECE_BYTES]);
        loop {
            match self.socket.receive(&mut piece) {
                Moved::Bytes(0) => return Err(unknown(lost(server, CLOSED))),
                Moved::Failed(why) => return Err(unknown(lost(server, why))),
                Moved::Nothing => {}
                Moved::Bytes(bytes) => {
                    if let Some(found) = figures.take(server, &piece[..bytes])? {
                        return Ok(found);
                    }
                }
            }
            if Instant::now() >= until {
                return Err(Error::Timeout(Arc::clone(server), Outcome::Unknown));
            }
        }
    }
}

impl Client {
    /// Statistics of one of [`Client::servers`]: names and values, as the server sends them. `what` is the group behind `stats`,
    /// such as `items` or `settings`; empty: the general one. The call uses a connection that no other call uses meanwhile, and
    /// ends within [`crate::Builder::timeout`].
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::BadKey`] if `what` has a control character; [`Error::Server`] if the server has no such
    /// group; [`Error::Protocol`] if it answers with other lines than names and values, as memcached does for `cachedump` and
    /// `detail dump`.
    ///
    /// # Panics
    /// If there is no server of this number.
    pub fn stats(&self, server: usize, what: &str) -> Result<Vec<(String, String)>, Error> {
        let question = question(what)?;
        let (fleet, deadline) = (self.fleet(), self.deadline());
        let (list, stall) = (fleet.list(), fleet.config.stall_timeout);
        let server = &list.all()[..list.len()][server];
        let ask = |direct: &mut Direct| direct.stats(&server.name, question.as_bytes(), stall, deadline);
        fleet.alone(server, deadline, ask)?
    }
}
