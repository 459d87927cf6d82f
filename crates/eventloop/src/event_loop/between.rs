//! Streams with buffers of their own between the system and the loop. The system's readiness does not cover these buffers, so the
//! loop queues a connection whose stream has received bytes, and waits for room where a stream has unsent ones.

use super::EventLoop;
use super::output::{Sent, note_sent};
use crate::backend::{Backend, Between, Stream};
use crate::connections::Id;
use crate::handler::Handler;

impl<B: Backend, C> EventLoop<B, C> {
    /// Arranges a connection whose receive left the loop nothing to do: a stream with a buffer may hold more.
    #[inline]
    pub(super) fn look_below<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        if self.connections.find(id).is_some_and(|connection| connection.stream.between().is_some()) {
            self.arrange(handler, id);
        }
    }

    /// Updates the accounts for what a connection's stream buffers.
    #[inline(never)]
    pub(super) fn note_between<H: Handler<Connection = C>>(
        &mut self,
        handler: &mut H,
        id: Id,
        between: Between,
    ) {
        let now = self.backend.now();
        let Some(connection) = self.connections.find(id) else { return };
        if connection.below != between.unsent {
            let unsent = connection.unsent - connection.below as u64 + between.unsent as u64;
            let bytes = connection.below.saturating_sub(between.unsent) as u64;
            connection.below = between.unsent;
            note_sent(connection, Sent { bytes, unsent }, &mut self.waiting, now);
        }
        self.keeping |= between.partial > 0;
        if connection.opening.is_some() && !between.opening {
            connection.opening = None;
            connection.again |= std::mem::take(&mut connection.looks);
            self.openings.end();
        }
        if between.partial > connection.between.partial {
            connection.received_at = now;
        }
        if connection.between != between {
            let before = std::mem::replace(&mut connection.between, between);
            handler.stream_holds(&mut connection.state, before, between);
        }
    }

    /// New bytes have arrived. True if the connection receives them in its turn and not at once: its stream has received others
    /// already, its handshake is under way, or its last processing took much work.
    #[inline]
    pub(super) fn waits_its_turn(&mut self, id: Id) -> bool {
        let Some(connection) = self.connections.find(id) else { return true };
        let between = connection.stream.between();
        if between.is_some_and(|between| between.opening) {
            self.openings.note_event();
            if !std::mem::replace(&mut connection.queued, true) {
                self.openings.wait(id);
            }
        } else if connection.dear && !connection.queued {
            connection.queued = true;
            self.queue.push_back(id);
        }
        connection.queued && (connection.dear || between.is_some())
    }

    /// Receives from a queued connection whose turn has come, if it is read, and its stream or the system may have bytes for it.
    #[inline(never)]
    pub(super) fn receive_rest<H: Handler<Connection = C>>(&mut self, handler: &mut H, id: Id) {
        let Some(connection) = self.connections.find(id) else { return };
        let Some(between) = connection.stream.between() else {
            if connection.is_read() {
                self.receive(handler, id);
            }
            return;
        };
        if (between.received > 0 || between.opening || connection.dear) && connection.is_read() {
            self.receive(handler, id);
        }
    }
}
