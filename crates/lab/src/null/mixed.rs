//! A null server of a mix: it looks at the marks of each request, skips the rest of it, and copies the reply of its kind.
//! Requests of a kind that follow each other are one run, whose replies are copied together.
//!
//! ```text
//! received  | get … | get … | set … | get …    |   what has come: whole requests, and a part of one
//! owed      | 0 × 2         | 1 × 1 |          |   kinds of whole requests whose replies are not all sent
//!             ▲ so many bytes of its first reply are sent
//! ```
//!
//! Nothing more is received while replies are owed, so that a client that does not read has no more than what one receive
//! brought.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;

use larder_eventloop::poll::Interest;
use larder_eventloop::socket::{Listener, Socket};

use super::{Kinds, RECEIVE_BYTES, each_connection};

/// Replies are copied and sent in pieces of this size at most.
const SEND_BYTES: usize = 64 * 1024;

#[derive(Debug)]
struct Connection {
    socket: Socket,
    requests: Requests,
    replies: Replies,
    waits_to_send: bool,
}

/// What has come of requests.
#[derive(Debug, Default)]
struct Requests {
    /// The beginning of a request whose kind is not known yet.
    buffered: Vec<u8>,
    /// The kind of the request under way, and how many of its bytes are still to come.
    under_way: Option<(u8, usize)>,
}

/// Replies that are not all sent.
#[derive(Debug, Default)]
struct Replies {
    /// Their kinds, in order, and how many of each follow each other.
    owed: VecDeque<(u8, usize)>,
    /// Bytes of the first reply that are sent.
    sent: usize,
}

impl Requests {
    /// Takes the bytes that have come, with those that are buffered in front of them. Whole requests are owed their replies.
    fn take(&mut self, mut bytes: &[u8], kinds: &Kinds, replies: &mut Replies) -> io::Result<()> {
        self.buffered.clear();
        while !bytes.is_empty() {
            let (kind, left) = match self.under_way.take() {
                Some(under_way) => under_way,
                None => match kinds.number(bytes)? {
                    Some(kind) => (kind, kinds.canned(kind).request_bytes),
                    None => {
                        self.buffered.extend_from_slice(bytes);
                        break;
                    }
                },
            };
            let taken = left.min(bytes.len());
            bytes = &bytes[taken..];
            if taken == left {
                replies.owe(kind);
            } else {
                self.under_way = Some((kind, left - taken));
            }
        }
        Ok(())
    }
}

impl Replies {
    /// Adds a reply.
    fn owe(&mut self, kind: u8) {
        match self.owed.back_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => self.owed.push_back((kind, 1)),
        }
    }

    /// Fills `out` with the next bytes to send, as many as it may have.
    fn render(&self, kinds: &Kinds, out: &mut Vec<u8>) {
        out.clear();
        let mut from = self.sent;
        for &(kind, count) in &self.owed {
            let block = kinds.block(kind);
            let mut left = kinds.canned(kind).reply.len() * count - from;
            while left > 0 {
                let room = SEND_BYTES - out.len();
                let bytes = left.min(block.len() - from).min(room);
                out.extend_from_slice(&block[from..from + bytes]);
                if bytes == room {
                    return;
                }
                left -= bytes;
                // A block ends with a reply.
                from = 0;
            }
        }
    }

    /// Records that `bytes` of these were sent.
    fn advance(&mut self, kinds: &Kinds, bytes: usize) {
        self.sent += bytes;
        while let Some((kind, count)) = self.owed.front_mut() {
            let reply_bytes = kinds.canned(*kind).reply.len();
            if self.sent < reply_bytes * *count {
                *count -= self.sent / reply_bytes;
                self.sent %= reply_bytes;
                return;
            }
            self.sent -= reply_bytes * *count;
            self.owed.pop_front();
        }
    }
}

impl Connection {
    fn new(socket: Socket) -> Connection {
        Connection {
            socket,
            requests: Requests::default(),
            replies: Replies::default(),
            waits_to_send: false,
        }
    }

    /// Receives the bytes that have come, unless replies are owed.
    fn receive(&mut self, kinds: &Kinds, buffer: &mut [u8]) -> io::Result<()> {
        if !self.replies.owed.is_empty() {
            return Ok(());
        }
        let buffered = self.requests.buffered.len();
        buffer[..buffered].copy_from_slice(&self.requests.buffered);
        match self.socket.recv(&mut buffer[buffered..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => self.requests.take(&buffer[..buffered + received], kinds, &mut self.replies),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends replies as far as the socket takes them.
    fn send(&mut self, kinds: &Kinds, out: &mut Vec<u8>) -> io::Result<()> {
        while !self.replies.owed.is_empty() {
            self.replies.render(kinds, out);
            match self.socket.send(out) {
                Ok(sent) => self.replies.advance(kinds, sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Serves requests of several kinds, for ever.
pub(super) fn serve(listener: &Listener, kinds: &Kinds) -> io::Result<Infallible> {
    let (mut buffer, mut out) = (vec![0; RECEIVE_BYTES], Vec::with_capacity(SEND_BYTES));
    each_connection(listener, Connection::new, |connection: &mut Connection, token, poller| {
        connection.receive(kinds, &mut buffer)?;
        connection.send(kinds, &mut out)?;
        let waits = !connection.replies.owed.is_empty();
        if waits != connection.waits_to_send {
            let interest = if waits { Interest::Write } else { Interest::Read };
            poller.modify(&connection.socket, token, interest)?;
            connection.waits_to_send = waits;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use larder_protocol::client::Protocol;

    use super::*;
    use crate::keys::Keyspace;
    use crate::workload::{Mix, Verb, Workload};

    /// A mix with values of these bytes: its kinds, so many requests, and the replies to them.
    fn mix(value_bytes: usize, count: usize) -> (Kinds, Vec<u8>, Vec<u8>) {
        let mix = Mix::parse("hit:2,miss:1,set:2,delete:1").unwrap();
        let workload = Workload::new(Protocol::Classic, mix, Keyspace::new(40, value_bytes));
        let verbs = [Verb::Hit, Verb::Hit, Verb::Set, Verb::Miss, Verb::Delete, Verb::Set];
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for &verb in verbs.iter().cycle().take(count) {
            let (request, reply) = workload.sample_of(verb);
            requests.extend_from_slice(&request);
            replies.extend_from_slice(&reply);
        }
        (Kinds::of(&workload).unwrap(), requests, replies)
    }

    #[test]
    fn requests_are_the_same_however_their_bytes_arrive() {
        let (kinds, bytes, _) = mix(30, 100);
        let taken = |pieces: &[&[u8]]| {
            let (mut requests, mut replies) = (Requests::default(), Replies::default());
            for &piece in pieces {
                let all = [&requests.buffered[..], piece].concat();
                requests.take(&all, &kinds, &mut replies).unwrap();
            }
            (replies.owed, requests.buffered, requests.under_way)
        };
        // All but the end of the last request, which is a get of a key that does not exist.
        let bytes = &bytes[..bytes.len() - 5];
        let whole = taken(&[bytes]);
        let (owed, buffered, under_way) = &whole;
        let count: usize = owed.iter().map(|(_, count)| count).sum();
        assert_eq!((count, buffered.len(), *under_way), (99, 0, Some((1, 5))));
        let first: Vec<(u8, usize)> = owed.iter().take(6).copied().collect();
        assert_eq!(first, [(0, 2), (2, 1), (1, 1), (3, 1), (2, 1), (0, 2)]);
        assert_eq!(taken(&bytes.chunks(1).collect::<Vec<_>>()), whole);
        for at in 0..200 {
            assert_eq!(taken(&[&bytes[..at], &bytes[at..]]), whole, "{at}");
        }
        let unknown = Requests::default().take(b"quit\r\n", &kinds, &mut Replies::default());
        assert_eq!(unknown.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    }

    #[test]
    fn replies_are_sent_in_order_in_pieces_of_any_size() {
        for value_bytes in [0, 30, SEND_BYTES - 1, SEND_BYTES, 3 * SEND_BYTES] {
            let (kinds, bytes, replies) = mix(value_bytes, 12);
            for most in [1_000, SEND_BYTES] {
                let mut owing = Replies::default();
                Requests::default().take(&bytes, &kinds, &mut owing).unwrap();
                assert_eq!(owing.owed.len(), 10);
                let (mut out, mut sent) = (Vec::new(), Vec::new());
                while !owing.owed.is_empty() {
                    owing.render(&kinds, &mut out);
                    assert!(!out.is_empty() && out.len() <= SEND_BYTES);
                    // As much as a socket takes.
                    let taken = out.len().min(most);
                    sent.extend_from_slice(&out[..taken]);
                    owing.advance(&kinds, taken);
                }
                assert_eq!(owing.sent, 0);
                assert!(sent == replies, "{value_bytes} {most}: {} of {} bytes", sent.len(), replies.len());
            }
        }
    }

    #[test]
    fn a_run_of_replies_is_longer_than_a_block() {
        let (kinds, ..) = mix(30, 0);
        let reply = &kinds.canned(0).reply;
        let in_block = kinds.block(0).len() / reply.len();
        for count in [in_block - 1, in_block, in_block + 1, 3 * in_block, 2 * SEND_BYTES / reply.len()] {
            let mut owing = Replies::default();
            (0..count).for_each(|_| owing.owe(0));
            assert_eq!(owing.owed, [(0, count)]);
            let (mut out, mut sent) = (Vec::new(), Vec::new());
            // In the midst of the first reply, of a later one, of the last one.
            for bytes in [1, reply.len() + 7, usize::MAX, usize::MAX, usize::MAX] {
                owing.render(&kinds, &mut out);
                let taken = out.len().min(bytes);
                sent.extend_from_slice(&out[..taken]);
                owing.advance(&kinds, taken);
            }
            assert!(owing.owed.is_empty() && sent == reply.repeat(count), "{count}");
        }
    }
}
