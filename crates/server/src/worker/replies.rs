//! The replies of a worker's connections, from being written to being taken by the loop, which sends them.
//!
//! ```text
//! out    | part of one | part of another | part of a third, with large values spliced in |
//! rest   | of a fourth, whose socket took no more |
//! ```
//!
//! Connections write into one output, one behind the other, so that the small replies of many lie close
//! together in memory that is warm. What a socket does not take moves into an output of the connection's own.
//!
//! Each connection has a [`Replies`], which alone says where its part lies. A
//! [`Part`] is made and used in this file only, and is neither copied nor shared; the output begins anew
//! when there are no parts, and only then. So a connection sends bytes of its own or none, in whatever
//! order connections write, send and end:
//!
//! - One that writes behind its own last reply has its part grow.
//! - One that writes when others have written behind its part has it moved into an output of its own first.
//! - Values are spliced into the last part only: behind them, others write into outputs of their own.

use std::io::IoSlice;
use std::sync::Arc;

use larder_commands::Output;
use larder_eventloop::Outgoing;
use larder_store::Store;

/// The replies of one connection that are not sent.
#[derive(Debug, Default)]
pub(crate) enum Replies {
    /// There are none.
    #[default]
    None,
    /// They are a part of the worker's output.
    Part(Part),
    /// They lie in an output of its own.
    Rest(Box<Output>),
}

/// A part of the worker's output: what one connection has written there.
#[derive(Debug)]
pub(crate) struct Part {
    from: usize,
    to: usize,
    /// It has values spliced in, and is the last part.
    spliced: bool,
}

impl Replies {
    /// What the connection's socket did not take, or others have written for it.
    #[inline]
    pub fn rest(&self) -> Option<&Output> {
        match self {
            Replies::None | Replies::Part(_) => None,
            Replies::Rest(rest) => Some(rest),
        }
    }

    /// True if there are none.
    #[inline]
    pub fn is_none(&self) -> bool {
        matches!(self, Replies::None)
    }

    /// Bytes of a part without large values.
    #[inline]
    pub fn plain_bytes(&self) -> Option<u64> {
        match self {
            Replies::Part(part) if !part.spliced => Some((part.to - part.from) as u64),
            Replies::None | Replies::Part(_) | Replies::Rest(_) => None,
        }
    }
}

/// The output of a worker, and how many connections have a part of it.
#[derive(Debug)]
pub(crate) struct TurnReplies {
    out: Output,
    parts: usize,
}

impl TurnReplies {
    /// An empty one, of which a connection fills `limit_bytes`. What it takes beyond `free` bytes, and what its
    /// connections' own outputs take, is charged to the store.
    pub fn new(limit_bytes: u64, store: &Arc<Store>, free: usize) -> TurnReplies {
        TurnReplies { out: Output::charged(limit_bytes, store, free), parts: 0 }
    }

    /// Sets how many bytes connections fill from now on.
    #[inline]
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.out.set_limit(limit_bytes);
    }

    /// Gives back memory above `bytes`, if no connection has a part.
    pub fn shrink(&mut self, bytes: usize) {
        self.out.shrink(bytes);
    }

    /// True if no connection has a part.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Has a connection write replies.
    #[inline]
    pub fn write<R>(&mut self, replies: &mut Replies, write: impl FnOnce(&mut Output) -> R) -> R {
        let result = write(self.open(replies));
        self.close(replies);
        result
    }

    /// Where a connection writes, until [`TurnReplies::close`].
    #[inline]
    fn open<'o>(&'o mut self, replies: &'o mut Replies) -> &'o mut Output {
        if !replies.is_none() || !self.out.is_plain() {
            return self.open_again(replies);
        }
        let end = self.out.end();
        *replies = Replies::Part(Part { from: end, to: end, spliced: false });
        self.parts += 1;
        &mut self.out
    }

    /// The output of a connection that has replies, or where another has spliced values in.
    #[inline(never)]
    fn open_again<'o>(&'o mut self, replies: &'o mut Replies) -> &'o mut Output {
        match replies {
            Replies::Part(part) if self.is_last(part) => &mut self.out,
            Replies::None | Replies::Part(_) | Replies::Rest(_) => self.own(replies),
        }
    }

    /// Ends a connection's write: its part grows, or goes if it is empty.
    #[inline]
    fn close(&mut self, replies: &mut Replies) {
        let Replies::Part(part) = replies else { return };
        part.to = self.out.end();
        part.spliced = !self.out.is_plain();
        if part.from == part.to
            && !part.spliced
            && let Replies::Part(part) = std::mem::take(replies)
        {
            self.end_part(part);
        }
    }

    /// True if nothing was written behind a part.
    fn is_last(&self, part: &Part) -> bool {
        part.to == self.out.end() && part.spliced != self.out.is_plain()
    }

    /// The connection's own output, to which its part moves if it has one.
    pub fn own<'r>(&mut self, replies: &'r mut Replies) -> &'r mut Output {
        let rest = match std::mem::take(replies) {
            Replies::None => Box::new(self.out.beside(&[])),
            Replies::Part(part) => {
                let out = if part.spliced {
                    self.out.split_off(part.from)
                } else {
                    self.out.beside(self.out.between(part.from, part.to))
                };
                self.end_part(part);
                Box::new(out)
            }
            Replies::Rest(rest) => rest,
        };
        *replies = Replies::Rest(rest);
        let Replies::Rest(rest) = replies else { unreachable!("it has just become that") };
        rest
    }

    /// What is to be sent of a connection's replies, where it lies. [`TurnReplies::sent`] comes next, or [`TurnReplies::forget`].
    #[inline]
    pub fn offer<'o>(&'o mut self, replies: &'o mut Replies) -> Outgoing<'o> {
        match *replies {
            Replies::None => Outgoing::None,
            Replies::Part(Part { from, to, spliced: false }) => Outgoing::Bytes(self.out.between(from, to)),
            Replies::Part(_) | Replies::Rest(_) => self.offer_rest(replies),
        }
    }

    /// Offers replies that are not a part without spliced values.
    #[inline(never)]
    fn offer_rest<'o>(&'o mut self, replies: &'o mut Replies) -> Outgoing<'o> {
        if let Replies::Part(part) = &*replies
            && self.parts == 1
        {
            // The only part is sent from where it lies.
            self.out.forget_until(part.from);
            return Outgoing::Slices;
        }
        match self.own(replies).contiguous() {
            // A message may have come for a connection that is not to send it.
            Some([]) | None => Outgoing::Slices,
            Some(bytes) => Outgoing::Bytes(bytes),
        }
    }

    /// The first slices of what was offered in several.
    pub fn slices<'o>(&'o self, replies: &'o Replies, into: &mut [IoSlice<'o>]) -> usize {
        match replies {
            Replies::None => 0,
            Replies::Part(_) => self.out.slices(into),
            Replies::Rest(rest) => rest.slices(into),
        }
    }

    /// Notes that a stream took so many bytes of what was offered. The others move into an output of the connection's own;
    /// returns how many these are.
    #[inline]
    pub fn sent(&mut self, replies: &mut Replies, bytes: u64) -> u64 {
        let Replies::Part(Part { from, to, spliced: false }) = *replies else {
            return self.rest_sent(replies, bytes);
        };
        let sent = bytes as usize;
        let rest = if sent < to - from { self.rest_of(from + sent, to) } else { Replies::None };
        let unsent = rest.rest().map_or(0, Output::len);
        if let Replies::Part(part) = std::mem::replace(replies, rest) {
            self.end_part(part);
        }
        unsent
    }

    /// Moves what lies there into an output of its own.
    #[cold]
    fn rest_of(&mut self, from: usize, to: usize) -> Replies {
        if self.parts == 1 && to == self.out.end() {
            return Replies::Rest(Box::new(self.out.leave_behind(from)));
        }
        Replies::Rest(Box::new(self.out.beside(self.out.between(from, to))))
    }

    /// Notes what was sent of replies that are not a part without spliced values.
    #[inline(never)]
    fn rest_sent(&mut self, replies: &mut Replies, bytes: u64) -> u64 {
        let unsent = match replies {
            Replies::None => 0,
            Replies::Part(_) => {
                self.out.advance(bytes);
                self.out.len()
            }
            Replies::Rest(rest) => {
                rest.advance(bytes);
                rest.len()
            }
        };
        match std::mem::take(replies) {
            Replies::None => {}
            Replies::Part(part) => {
                if unsent > 0 {
                    *replies = Replies::Rest(Box::new(self.out.take_rest()));
                }
                self.end_part(part);
            }
            Replies::Rest(rest) if unsent > 0 => *replies = Replies::Rest(rest),
            Replies::Rest(_) => {}
        }
        unsent
    }

    /// Drops a connection's replies.
    pub fn forget(&mut self, replies: Replies) {
        let Replies::Part(part) = replies else { return };
        if part.spliced {
            drop(self.out.split_off(part.from));
        }
        self.end_part(part);
    }

    /// Ends a part, of whose spliced values none are left.
    #[inline]
    fn end_part(&mut self, _part: Part) {
        self.parts -= 1;
        if self.parts == 0 {
            self.out.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_store::{Attributes, Config, Expect, Lookup, Pinned, Value, Worker};

    use super::*;

    /// A stream that takes so many bytes at a time, or has been reset.
    #[derive(Default)]
    struct Taker {
        taken: Vec<u8>,
        room: usize,
        reset: bool,
    }

    impl Taker {
        /// Takes what it has room for; how much, or that it has been reset.
        fn take(&mut self, slices: &[IoSlice<'_>]) -> Result<u64, ()> {
            if self.reset {
                return Err(());
            }
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let before = self.taken.len();
            self.taken.extend(all.take(self.room));
            let taken = self.taken.len() - before;
            self.room -= taken;
            Ok(taken as u64)
        }
    }

    /// A connection, and all that it has ever written.
    #[derive(Default)]
    struct Client {
        replies: Replies,
        stream: Taker,
        written: Vec<u8>,
    }

    impl Client {
        /// As the loop sends.
        fn send(&mut self, replies: &mut TurnReplies) {
            let taken = match replies.offer(&mut self.replies) {
                Outgoing::None => return,
                Outgoing::Bytes(bytes) => {
                    assert!(!bytes.is_empty());
                    self.stream.take(&[IoSlice::new(bytes)])
                }
                Outgoing::Slices => {
                    let mut slices = [IoSlice::new(&[]); 4];
                    let used = replies.slices(&self.replies, &mut slices);
                    self.stream.take(&slices[..used])
                }
            };
            if let Ok(taken) = taken {
                let unsent = replies.sent(&mut self.replies, taken) as usize;
                assert_eq!(unsent, self.written.len() - self.stream.taken.len());
            }
            assert!(self.written.starts_with(&self.stream.taken), "its own, and nothing else");
        }

        /// Sends until everything is sent.
        fn send_all(&mut self, replies: &mut TurnReplies) {
            self.stream.room = usize::MAX;
            while !self.replies.is_none() {
                self.send(replies);
            }
        }
    }

    /// A value of `byte` in the store.
    fn pinned(worker: &mut Worker, byte: u8) -> Pinned {
        let mut guard = worker.enter(1);
        let name = [byte];
        let key = guard.key(&name);
        guard.store_value(&key, &[byte; 20_000], &Attributes::default(), Expect::Any).expect("room");
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it was just stored") };
        let Value::Pieces(value) = item.value() else { panic!("a value in pieces") };
        value.pin()
    }

    fn draw(seed: &mut u64, below: usize) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % below
    }

    #[test]
    fn whatever_the_order_each_sends_all_of_its_own_and_nothing_else() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).expect("a store");
        let mut worker = store.worker().expect("a worker of the store");
        for mut seed in 0..300 {
            let mut replies = TurnReplies::new(1 << 20, &store, 0);
            let mut clients: Vec<Client> = (0..4).map(|_| Client::default()).collect();
            for _ in 0..60 {
                let index = draw(&mut seed, clients.len());
                let (byte, bytes) = (b'a' + index as u8, draw(&mut seed, 100));
                let client = &mut clients[index];
                match draw(&mut seed, 12) {
                    0..4 => {
                        replies.write(&mut client.replies, |out| out.put(&vec![byte; bytes]));
                        client.written.resize(client.written.len() + bytes, byte);
                    }
                    4 => {
                        let value = pinned(&mut worker, byte);
                        replies.write(&mut client.replies, |out| {
                            out.put(&vec![byte; bytes]);
                            out.splice(value);
                        });
                        client.written.resize(client.written.len() + bytes + 20_000, byte);
                    }
                    5 => {
                        replies.own(&mut client.replies).put(b"message");
                        client.written.extend_from_slice(b"message");
                    }
                    6..9 => {
                        client.stream.room = if bytes.is_multiple_of(4) { 30_000 } else { bytes };
                        client.send(&mut replies);
                    }
                    9 => {
                        client.stream.reset = true;
                        client.send(&mut replies);
                        replies.forget(std::mem::take(client).replies);
                    }
                    _ => replies.forget(std::mem::take(client).replies),
                }
            }
            for client in &mut clients {
                client.send_all(&mut replies);
                assert!(client.stream.taken == client.written && client.replies.is_none());
            }
            assert!(replies.is_empty() && replies.out.is_empty());
            // What is charged is what there is.
            drop(clients);
            assert_eq!(store.held_bytes(), replies.out.capacity_bytes() as u64);
        }
    }

    #[test]
    fn a_part_grows_until_others_have_written_behind_it() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).expect("a store");
        let mut replies = TurnReplies::new(1 << 20, &store, 0);
        let (mut one, mut other) = (Replies::None, Replies::None);
        replies.write(&mut one, |_| ());
        assert!(one.is_none() && replies.is_empty(), "who writes nothing has no part");
        replies.write(&mut one, |out| out.put(b"ab"));
        replies.write(&mut one, |out| out.put(b"c"));
        assert_eq!(one.plain_bytes(), Some(3));
        replies.write(&mut other, |out| out.put(b"x"));
        replies.write(&mut one, |out| out.put(b"d"));
        assert_eq!(one.rest().map(Output::to_vec), Some(b"abcd".to_vec()));
        assert_eq!(other.plain_bytes(), Some(1));
    }
}
