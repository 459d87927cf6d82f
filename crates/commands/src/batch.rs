//! Reading ahead: up to [`SLOTS`] keys are decoded and hashed, and their buckets and items on the way
//! from memory, before the first of them is executed.
//!
//! ```text
//! fill      decode ─ hash ─ prefetch bucket      per key, until the batch is full or something
//! ready     prefetch item                        has to be done that cannot wait in a slot
//! execute   one function per slot, in order
//! ```
//!
//! A batch spans requests, and a line of keys spans batches. A slot knows where it began, so that a
//! batch can be left in the middle when the replies fill up. Anything that is not one key with, at
//! most, a value that is all there ends the batch and comes as an [`Event`] after it.

use arrayvec::ArrayVec;
use larder_protocol::Fault;
use larder_protocol::classic::{Decoded, Fetch, KeyStep, LINE_BYTES_MAX, Request, Store, decode, next_key};
use larder_protocol::meta::{Meta, Verb};
use larder_protocol::scan::line_feed;
use larder_store::{Guard, Key};

use crate::classic::fits;
use crate::shared::Settings;

/// Keys in a batch: measured, 16 cost 15 % more and 64 gain nothing.
pub(crate) const SLOTS: usize = 32;

/// A store that is not whole yet is waited for if it is no longer than this, and received into its
/// item if it is: the most that a connection keeps of an unfinished store.
pub(crate) const WAIT_BYTES_MAX: usize = 4096;

/// A line of keys that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub fetch: Fetch,
    /// No key was taken yet.
    pub first: bool,
}

/// One key and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub key: Key<'a>,
    /// Where in the input it begins: the line's start, or for later keys of a line the key's.
    pub at: usize,
    pub request: Request<'a>,
    /// The data block of a store.
    pub value: &'a [u8],
    /// The first key of its line; true for everything but lines of keys.
    pub first: bool,
    /// The last.
    pub last: bool,
}

/// Keys that are executed together.
pub(crate) type Batch<'a> = ArrayVec<Slot<'a>, SLOTS>;

/// The data block of a store, as far as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// All of it, without the line end where it should be.
    Bad,
    /// A part, and the rest is too much to wait for.
    Long,
}

/// What cannot wait in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// A line that names no item.
    Line(&'a [u8]),
    /// A bad request, with so many bytes behind its line to throw away.
    Fault { fault: Fault, swallow: u64, noreply: bool },
    /// A line of keys ended after spaces.
    EndOfKeys,
    /// A line of keys has a key that is too long, and whether it is the first.
    LongKey { first: bool },
    /// A line without end.
    LongLine,
    /// A store that is not simply a value at hand. The input is at its block.
    Store(Store<'a>, Block<'a>),
    /// A meta command that is not simply a key at hand. The input is at its block.
    Meta(Meta<'a>, Block<'a>),
}

/// Why no more was read ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop<'a> {
    /// The batch is full, or the requests of this turn are used up.
    Full,
    /// The input ends here.
    NeedMore,
    /// Something has to be done first.
    Event(Event<'a>),
}

/// Where reading stands.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub input: &'a [u8],
    /// Bytes done with.
    pub at: usize,
    /// The line of keys that is being read.
    pub keys: Option<Keys>,
    /// Requests left in this turn.
    pub turn: u32,
}

impl<'a> Reader<'a> {
    /// Reads ahead into `batch`.
    #[inline]
    pub fn fill(&mut self, guard: &Guard<'_>, settings: &Settings, batch: &mut Batch<'a>) -> Stop<'a> {
        loop {
            let start = self.at;
            if start == self.input.len() {
                return Stop::NeedMore;
            }
            if batch.is_full() {
                return Stop::Full;
            }
            if let Some(keys) = self.keys {
                match self.key(guard, keys, start, batch) {
                    None => continue,
                    Some(stop) => return stop,
                }
            }
            if self.turn == 0 {
                return Stop::Full;
            }
            let (request, bytes) = match decode(&self.input[start..]) {
                Decoded::Request(request, bytes) => (request, bytes),
                Decoded::Incomplete => return Stop::NeedMore,
                Decoded::TooLong => return Stop::Event(Event::LongLine),
            };
            self.at = start + bytes;
            self.turn -= 1;
            let slot = match request {
                Request::Fetch(fetch) => match self.key(guard, Keys { fetch, first: true }, start, batch) {
                    None => continue,
                    Some(stop) => return stop,
                },
                Request::Store(store) => {
                    let Some(block) = self.block(start, store.value_bytes) else { return Stop::NeedMore };
                    match block {
                        Block::Whole(value)
                            if fits(settings, store.key.len(), store.flags, value.len() as u64) =>
                        {
                            self.at += value.len() + 2;
                            Slot {
                                key: guard.key(store.key),
                                at: start,
                                request,
                                value,
                                first: true,
                                last: true,
                            }
                        }
                        _ => return Stop::Event(Event::Store(store, block)),
                    }
                }
                Request::Meta(meta) => match self.meta(guard, settings, start, meta) {
                    Ok(slot) => slot,
                    Err(stop) => return stop,
                },
                Request::Delete { key, .. }
                | Request::Arithmetic { key, .. }
                | Request::Touch { key, .. } => {
                    Slot { key: guard.key(key), at: start, request, value: &[], first: true, last: true }
                }
                Request::Line(line) => return Stop::Event(Event::Line(line)),
                Request::Fault { fault, swallow, noreply } => {
                    return Stop::Event(Event::Fault { fault, swallow, noreply });
                }
            };
            guard.prefetch_bucket(&slot.key);
            batch.push(slot);
        }
    }

    /// Takes the next key of a line of keys whose request began at `start` (or, later in the line,
    /// whose key does).
    #[inline]
    fn key(
        &mut self,
        guard: &Guard<'_>,
        keys: Keys,
        start: usize,
        batch: &mut Batch<'a>,
    ) -> Option<Stop<'a>> {
        let Keys { fetch, first } = keys;
        let (key, bytes, last) = match next_key(&self.input[self.at..]) {
            KeyStep::Key { key, bytes, last } => (key, bytes, last),
            KeyStep::End(bytes) => {
                self.at += bytes;
                self.keys = None;
                return Some(Stop::Event(Event::EndOfKeys));
            }
            KeyStep::TooLong(bytes) => {
                self.at += bytes;
                self.keys = None;
                return Some(Stop::Event(Event::LongKey { first }));
            }
            KeyStep::Incomplete(spaces) => return Some(self.wait_for_keys(keys, start, spaces)),
        };
        if first && !last && self.must_wait(start, bytes) {
            return Some(self.wait_for_keys(keys, start, 0));
        }
        let slot =
            Slot { key: guard.key(key), at: start, request: Request::Fetch(fetch), value: &[], first, last };
        guard.prefetch_bucket(&slot.key);
        batch.push(slot);
        self.at += bytes;
        self.keys = if last { None } else { Some(Keys { fetch, first: false }) };
        None
    }

    /// A line of keys is begun only when all of it is there, unless it is longer than is waited for:
    /// a bad key in it takes back what the keys before it gave.
    #[inline]
    fn must_wait(&self, start: usize, bytes: usize) -> bool {
        self.input.len() - start <= LINE_BYTES_MAX && line_feed(&self.input[self.at + bytes..]).is_none()
    }

    /// The line's next key is not whole: wait at the line's start if it is short, else where the key
    /// begins.
    #[cold]
    fn wait_for_keys(&mut self, keys: Keys, start: usize, spaces: usize) -> Stop<'a> {
        if keys.first && self.keys.is_none() && self.input.len() - start <= LINE_BYTES_MAX {
            self.at = start;
            self.turn += 1;
            self.keys = None;
        } else {
            self.at += spaces;
            self.keys = Some(keys);
        }
        Stop::NeedMore
    }

    /// The block of a store whose line was just read; none (and back to `start`) if it is waited for.
    #[inline]
    fn block(&mut self, start: usize, value_bytes: u32) -> Option<Block<'a>> {
        let end = self.at + value_bytes as usize + 2;
        match self.input.get(self.at..end) {
            Some([value @ .., b'\r', b'\n']) => Some(Block::Whole(value)),
            Some(_) => Some(Block::Bad),
            None if end - start > WAIT_BYTES_MAX => Some(Block::Long),
            None => {
                self.at = start;
                self.turn += 1;
                None
            }
        }
    }

    /// A meta command: a slot if it is simply a key with, at most, a value at hand.
    #[inline]
    fn meta(
        &mut self,
        guard: &Guard<'_>,
        settings: &Settings,
        start: usize,
        meta: Meta<'a>,
    ) -> Result<Slot<'a>, Stop<'a>> {
        let mut value: &[u8] = &[];
        if meta.verb == Verb::Set {
            let block = self.block(start, meta.value_bytes).ok_or(Stop::NeedMore)?;
            let flags = u32::from(meta.flags.has(b'F'));
            match block {
                Block::Whole(whole)
                    if !meta.flags.has(b'b')
                        && fits(settings, meta.key.len(), flags, u64::from(meta.value_bytes)) =>
                {
                    self.at += whole.len() + 2;
                    value = whole;
                }
                _ => return Err(Stop::Event(Event::Meta(meta, block))),
            }
        } else if meta.verb == Verb::Noop || meta.flags.has(b'b') {
            return Err(Stop::Event(Event::Meta(meta, Block::Whole(&[]))));
        }
        let request = Request::Meta(meta);
        Ok(Slot { key: guard.key(meta.key), at: start, request, value, first: true, last: true })
    }
}

/// Starts loading the items of a batch; a single one is about to be read anyway.
#[inline]
pub(crate) fn prefetch_items(guard: &Guard<'_>, batch: &Batch<'_>) {
    if batch.len() > 1 {
        for slot in batch {
            guard.prefetch_item(&slot.key);
        }
    }
}
