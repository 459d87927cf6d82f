//! Streams with bytes of their own between the system and the loop: the system's readiness says nothing of these, so
//! a connection with received bytes there is queued, and one with unsent ones waits for room.

use super::EventLoop;
use super::output::{Sent, note_sent};
use crate::backend::{Backend, Between, Stream};
use crate::connections::Id;
use crate::handler::Handler;

impl<B: Backend, H: Handler> EventLoop<B, H> {
    /// A receive has ended with nothing more to do for the loop; there may be for its stream.
    #[inline]
    pub(super) fn look_below(&mut self, handler: &mut H, id: Id) {
        if self.connections.find(id).is_some_and(|connection| connection.stream.between().is_some()) {
            self.arrange(handler, id);
        }
    }

    /// Takes note of what a connection's stream has of its own.
    #[inline(never)]
    pub(super) fn note_between(&mut self, handler: &mut H, id: Id, between: Between) {
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return };
        if connection.below != between.unsent {
            let unsent = connection.unsent - connection.below as u64 + between.unsent as u64;
            let bytes = connection.below.saturating_sub(between.unsent) as u64;
            connection.below = between.unsent;
            note_sent(connection, Sent { bytes, unsent }, &mut self.waiting, now);
        }
        connection.partial = between.partial;
        self.keeping |= between.partial;
        if connection.opening.is_some() && !between.opening {
            connection.opening = None;
            self.opening -= 1;
        }
        if connection.stream_bytes != between.memory {
            connection.stream_bytes = between.memory;
            handler.stream_takes(&mut connection.state, between.memory);
        }
    }

    /// The turn of a connection has come, which was queued since its stream has bytes that the system does not tell of.
    #[inline(never)]
    pub(super) fn receive_rest(&mut self, handler: &mut H, id: Id) {
        let Some(connection) = self.connections.find(id) else { return };
        let received = connection.stream.between().is_some_and(|between| between.received > 0);
        if received && connection.is_read() {
            self.receive(handler, id);
        }
    }
}
