//! The two ends of a simulated connection: the server's [`SimStream`], and the test's [`Peer`].

use std::io::{self, IoSlice, IoSliceMut, Read};

use super::{Shared, Wire};
use crate::Stream;

/// The server's end of a connection.
#[derive(Debug)]
pub struct SimStream {
    pub(super) net: Shared,
    pub(super) id: u64,
}

impl SimStream {
    pub(super) fn wire<T>(&self, with: impl FnOnce(&mut Wire) -> T) -> T {
        let mut net = self.net.lock();
        with(net.wires.get_mut(&self.id).expect("a wire lives as long as one of its ends"))
    }

    /// Ends the stream to the peer: sends fail from now on.
    pub fn end(&self) {
        self.wire(|wire| wire.server_ended = true);
    }
}

impl AsRef<SimStream> for SimStream {
    fn as_ref(&self) -> &SimStream {
        self
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.wire(|wire| {
            wire.server_closed = true;
            wire.watched = None;
        });
        self.net.lock().forget(self.id);
    }
}

impl Stream for SimStream {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let net = &mut *self.net.lock();
        let wire = &net.wires[&self.id];
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        let available = wire.to_server.len().min(room);
        if available == 0 {
            return match (wire.peer_reset, wire.peer_ended) {
                (true, _) => Err(io::ErrorKind::ConnectionReset.into()),
                (false, true) => Ok(0),
                (false, false) => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let size = net.size(net.weather.receive_max, available);
        let wire = net.wires.get_mut(&self.id).expect("found above");
        let mut left = size;
        for slice in slices {
            let bytes = left.min(slice.len());
            // A deque reads in order, and as much as is asked for.
            wire.to_server.read_exact(&mut slice[..bytes])?;
            left -= bytes;
        }
        net.moved(self.id, size);
        Ok(size)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let net = &mut *self.net.lock();
        let wire = &net.wires[&self.id];
        if wire.peer_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if wire.server_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = wire.room(&net.weather).min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let size = net.size(net.weather.send_max, room);
        let wire = net.wires.get_mut(&self.id).expect("found above");
        wire.to_peer.extend(&bytes[..size]);
        wire.sent += size as u64;
        wire.idle_tells = 0;
        if wire.reset_at == Some(wire.sent) {
            wire.reset();
        }
        net.moved(self.id, size);
        Ok(size)
    }

    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = {
            let net = self.net.lock();
            net.wires[&self.id].room(&net.weather).min(net.weather.send_max)
        };
        // Takes no more of the slices than may be sent: a large value is offered again for each of many small sends.
        let mut all = Vec::new();
        for slice in slices {
            let left = room.saturating_add(1).saturating_sub(all.len());
            all.extend_from_slice(&slice[..slice.len().min(left)]);
        }
        self.send(&all)
    }

    fn room(&self) -> usize {
        let net = &mut *self.net.lock();
        net.asked += 1;
        let wire = &net.wires[&self.id];
        let room = wire.room(&net.weather);
        if wire.peer_reset { room.max(1) } else { room }
    }

    fn pending(&self) -> usize {
        self.wire(|wire| wire.to_server.len())
    }
}

/// The other end of a connection, in the hands of the test.
#[derive(Debug)]
pub struct Peer {
    pub(super) net: Shared,
    pub(super) id: u64,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.wire(|wire| wire.left = true);
        self.net.lock().forget(self.id);
    }
}

impl Peer {
    fn wire<T>(&self, with: impl FnOnce(&mut Wire) -> T) -> T {
        let mut net = self.net.lock();
        with(net.wires.get_mut(&self.id).expect("a wire lives as long as one of its ends"))
    }

    /// Sends all of `bytes`.
    pub fn send(&self, bytes: &[u8]) {
        self.wire(|wire| wire.to_server.extend(bytes));
    }

    /// Takes at most `bytes_max` of what the server has sent.
    pub fn read(&self, bytes_max: usize) -> Vec<u8> {
        self.wire(|wire| {
            let bytes = bytes_max.min(wire.to_peer.len());
            wire.to_peer.drain(..bytes).collect()
        })
    }

    /// Bytes sent and not yet received by the server.
    pub fn untaken(&self) -> usize {
        self.wire(|wire| wire.to_server.len())
    }

    /// Ends the stream to the server.
    pub fn end(&self) {
        self.wire(|wire| wire.peer_ended = true);
    }

    /// Resets the connection: what was sent to the peer is lost, and sends fail from now on.
    pub fn reset(&self) {
        self.wire(Wire::reset);
    }

    /// Resets the connection when `bytes` more bytes have been sent to the peer.
    pub fn reset_after(&self, bytes: u64) {
        if bytes == 0 {
            return self.reset();
        }
        self.wire(|wire| wire.reset_at = Some(wire.sent + bytes));
    }

    /// Limits the window to `bytes`, whatever the weather.
    pub fn narrow(&self, bytes: usize) {
        self.wire(|wire| wire.window = Some(bytes));
    }

    /// The server sends no more: [`Peer::read`] brings the last bytes.
    pub fn ended(&self) -> bool {
        self.wire(|wire| wire.server_ended || wire.server_closed)
    }

    /// The server has closed the connection.
    pub fn closed(&self) -> bool {
        self.wire(|wire| wire.server_closed)
    }
}
