//! One connection of the simulated network, and what the weather does to it.

use std::collections::VecDeque;

use crate::poll::{Event, Interest};

/// How the network treats bytes.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Most bytes that one receive brings; 1 is delivery byte by byte.
    pub receive_max: usize,
    /// Most bytes that one send takes.
    pub send_max: usize,
    /// Bytes sent to a peer that it has not read yet; beyond, sends would block.
    pub window: usize,
    /// Sizes are drawn at random up to these bounds; otherwise they equal the bounds.
    pub arbitrary: bool,
}

impl Weather {
    /// Everything arrives in one piece.
    pub const FAIR: Weather =
        Weather { receive_max: usize::MAX, send_max: usize::MAX, window: 256 << 10, arbitrary: false };
    /// Everything arrives byte by byte.
    pub const DRIP: Weather = Weather { receive_max: 1, send_max: 1, window: 256 << 10, arbitrary: false };
    /// Pieces of all sizes, and little room.
    pub const STORM: Weather = Weather { receive_max: 4096, send_max: 1024, window: 8192, arbitrary: true };
}

/// splitmix64: small, and any seed will do.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn up_to(&mut self, max: usize) -> usize {
        1 + (self.draw() % max as u64) as usize
    }
}

#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) to_server: VecDeque<u8>,
    pub(super) to_peer: VecDeque<u8>,
    /// The peer sends no more.
    pub(super) peer_ended: bool,
    pub(super) peer_reset: bool,
    /// The peer resets the connection when this many bytes have been sent to it.
    pub(super) reset_at: Option<u64>,
    /// Bytes sent to the peer.
    pub(super) sent: u64,
    /// The window of this connection, in place of the weather's.
    pub(super) window: Option<usize>,
    /// The test has dropped its end.
    pub(super) left: bool,
    /// The server sends no more.
    pub(super) server_ended: bool,
    /// The server has dropped its stream.
    pub(super) server_closed: bool,
    /// How often its loop was told of room since it last sent something or waited for something else.
    pub(super) idle_tells: u32,
    /// The number of the loop that watches the connection, the token, and what the loop waits for. A stream that is dropped is
    /// watched no more: its token may be another connection's from then on.
    pub(super) watched: Option<(usize, u64, Interest)>,
}

impl Wire {
    /// Bytes that a send takes now, if it takes as many as there is room for.
    pub(super) fn room(&self, weather: &Weather) -> usize {
        let room = self.window.unwrap_or(weather.window).saturating_sub(self.to_peer.len());
        self.reset_at.map_or(room, |at| room.min((at - self.sent) as usize))
    }

    /// What was sent to the peer is lost. What the peer has sent can still be received, as from a real socket.
    pub(super) fn reset(&mut self) {
        self.peer_reset = true;
        self.to_peer.clear();
    }

    /// What the connection reports to loop `watcher`, if that loop watches it.
    pub(super) fn event(&self, watcher: usize, weather: &Weather) -> Option<Event> {
        let (by, token, interest) = self.watched?;
        if by != watcher {
            return None;
        }
        let read = matches!(interest, Interest::Read | Interest::Both);
        let write = matches!(interest, Interest::Write | Interest::Both);
        let ended = self.peer_ended || self.peer_reset;
        let event = Event {
            token,
            readable: read && (!self.to_server.is_empty() || ended),
            writable: write && (self.room(weather) > 0 || self.peer_reset),
            hangup: self.peer_reset || self.peer_ended && interest == Interest::End,
        };
        (event.readable || event.writable || event.hangup).then_some(event)
    }
}
