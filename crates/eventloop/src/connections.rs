//! The connections of a loop: a slab of entries with generations, so that an event for a connection
//! that has gone never reaches its successor.

use crate::Millis;
use crate::backend::Between;
use crate::poll::Interest;

/// Names a connection of a loop, for its life only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    index: u32,
    generation: u32,
}

impl Id {
    pub(crate) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_token(token: u64) -> Id {
        Id { index: token as u32, generation: (token >> 32) as u32 }
    }

    /// The connection's index in the loop. The index is reused after the connection has ended.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What the loop keeps of a connection.
#[derive(Debug)]
pub(crate) struct Connection<S, C> {
    pub stream: S,
    pub state: C,
    /// Bytes that were received and that the handler has not taken. Allocates nothing while empty.
    pub kept: Vec<u8>,
    /// Bytes of replies still to be sent.
    pub unsent: u64,
    /// When bytes were last received, or a request that had waited went on.
    pub received_at: Millis,
    /// When replies last went out, or began to wait.
    pub sent_at: Millis,
    pub interest: Interest,
    /// No more is received. When the replies are out, the connection ends for this reason.
    pub closing: Option<crate::Closed>,
    /// The connection is in the loop's list of deferred replies.
    pub deferred: bool,
    /// The handler has taken a part of a request, and the rest has not arrived.
    pub receiving: bool,
    /// The handler can take kept bytes once there is room for replies.
    pub again: bool,
    /// Memory is short, and the connection is processed again when its stream has room.
    pub blocked: bool,
    /// While memory is short: what is left of the room that the stream had when it was last asked.
    pub room: usize,
    /// The last long receive was the beginning of bytes for the handler's own memory.
    pub uploads: bool,
    /// The connection is in the queue, or will be when its sleep ends or it is woken.
    pub queued: bool,
    /// The last processing of this connection took much work, so that others come before it.
    pub dear: bool,
    /// It waits to be woken.
    pub awaits: bool,
    /// Since when its handler has put it off ([`crate::Handler::put_off`]), if it has not been received from since.
    pub put_off: Option<Millis>,
    /// The connection sleeps until this time.
    pub sleeps: Option<Millis>,
    /// While the loop is drained: bytes that had arrived before and are still to be received.
    pub owed: usize,
    /// The part of `unsent` that was in the stream's own buffer when it was last asked.
    pub below: usize,
    /// What the stream buffered when the handler was last told.
    pub between: Between,
    /// The handler processes the connection as soon as the handshake is finished ([`crate::EventLoop::look_at`]).
    pub looks: bool,
    /// When the stream's handshake began; `None` where there is none, or it is finished.
    pub opening: Option<Millis>,
}

impl<S, C> Connection<S, C> {
    /// A part of a request has arrived, and only the peer can complete it.
    pub fn is_half_open(&self) -> bool {
        self.unsent == 0 && !self.again && (self.receiving || self.keeps_part())
    }

    /// A request goes on in a later turn, sleeps, or waits to be woken: its client waits for it. A connection that waits for room
    /// in its stream waits for its client.
    pub fn is_under_way(&self) -> bool {
        self.awaits || self.again && !self.blocked
    }

    /// A part of a request lies here or in the stream.
    pub fn keeps_part(&self) -> bool {
        self.between.partial > 0 || !self.kept.is_empty()
    }

    /// All requests that have arrived, in part or whole, have their replies, and the replies are out.
    pub fn is_between_requests(&self) -> bool {
        self.unsent == 0 && self.kept.is_empty() && !self.again && !self.receiving && !self.deferred
    }

    /// The loop waits for bytes of this connection.
    pub fn is_read(&self) -> bool {
        matches!(self.interest, Interest::Read | Interest::Both)
    }
}

#[derive(Debug)]
enum Entry<T> {
    Free { next: u32 },
    Used(T),
}

/// Ends the list of free entries.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Connections<T> {
    entries: Vec<(u32, Entry<T>)>,
    free: u32,
    count: usize,
}

impl<T> Connections<T> {
    pub fn new() -> Connections<T> {
        Connections { entries: Vec::new(), free: NONE, count: 0 }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The id the next [`Connections::insert`] will give.
    pub fn next_id(&self) -> Id {
        if self.free == NONE {
            return Id { index: self.entries.len() as u32, generation: 0 };
        }
        Id { index: self.free, generation: self.entries[self.free as usize].0 }
    }

    pub fn insert(&mut self, value: T) -> Id {
        let id = self.next_id();
        assert!(id.index < NONE, "fewer connections than that fit any machine");
        match self.entries.get_mut(id.index()) {
            None => self.entries.push((0, Entry::Used(value))),
            Some((_, entry)) => {
                let Entry::Free { next } = *entry else { unreachable!("the free list holds free entries") };
                self.free = next;
                *entry = Entry::Used(value);
            }
        }
        self.count += 1;
        id
    }

    #[inline]
    pub fn find(&mut self, id: Id) -> Option<&mut T> {
        match self.entries.get_mut(id.index()) {
            Some((generation, Entry::Used(value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        self.find(id)?;
        let (generation, entry) = &mut self.entries[id.index()];
        // 2^32 - 1 is left out so that no token is the waker's.
        *generation = (*generation + 1) % u32::MAX;
        let Entry::Used(value) = std::mem::replace(entry, Entry::Free { next: self.free }) else {
            unreachable!("find has just seen it")
        };
        self.free = id.index;
        self.count -= 1;
        Some(value)
    }

    /// The connection in entry `index` and its id, if there is one.
    pub fn at(&self, index: usize) -> Option<(Id, &T)> {
        match &self.entries[index] {
            (generation, Entry::Used(value)) => {
                Some((Id { index: index as u32, generation: *generation }, value))
            }
            (_, Entry::Free { .. }) => None,
        }
    }

    /// Number of entries, used and free.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_outlives_its_connection_without_finding_the_next() {
        let mut connections = Connections::new();
        let a = connections.insert('a');
        let b = connections.insert('b');
        assert_eq!(connections.remove(a), Some('a'));
        assert_eq!(connections.remove(a), None);
        assert_eq!(connections.next_id().index(), a.index());
        let c = connections.insert('c');
        assert_eq!(c.index(), a.index());
        assert_eq!(connections.find(a), None);
        assert_eq!(connections.find(c), Some(&mut 'c'));
        assert_eq!(connections.find(b), Some(&mut 'b'));
        assert_eq!(connections.len(), 2);
        assert_eq!(Id::from_token(c.token()), c);
        assert_eq!(connections.at(0).map(|(id, _)| id), Some(c));
    }
}
