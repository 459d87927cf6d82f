//! Reading ahead: up to [`BATCH_KEYS`] keys are decoded and hashed, and their buckets and items on the way
//! from memory, before the first of them is executed.
//!
//! ```text
//! fill      decode ─ hash ─ prefetch bucket      per key, until the batch is full or something
//! ready     prefetch item                        has to be done that cannot be staged
//! execute   one function per key, in order
//! ```
//!
//! A batch spans requests, and a line of keys spans batches. A staged key knows where it began, so that a
//! batch can be left in the middle when the replies fill up. Anything that is not one key with, at
//! most, a value that is all there ends the batch and comes as an [`Event`] after it.

use arrayvec::ArrayVec;
use larder_protocol::Fault;
use larder_protocol::classic::{
    Decoded, Fetch, GET_BYTES, KEYS_BYTES_MAX, KeyStep, Request, Store, decode, decode_get, decode_set,
    holds_long_key, next_key, starts_get,
};
use larder_protocol::meta::{Meta, Verb, decode_start};
use larder_protocol::scan::line_feed;
use larder_store::{Guard, Hint, Key};

use super::verbs::fits;
use crate::core::batch::BATCH_KEYS;
use crate::core::shared::Settings;

/// Most bytes of a store that is not whole yet for it to be waited for: the most that a connection keeps of an unfinished
/// store. A longer one is received into its item.
pub(crate) const WAIT_BYTES_MAX: usize = 4096;

/// A line of keys that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub fetch: Fetch,
    /// Whether no key was taken yet.
    pub first: bool,
    /// Whether it was begun in an earlier turn: its start is no longer in the input.
    pub resumed: bool,
}

impl Keys {
    /// A line of keys, of which none was taken.
    fn new(fetch: Fetch) -> Keys {
        Keys { fetch, first: true, resumed: false }
    }
}

/// One key and the request for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged<'a, 'w> {
    pub key: Key<'a>,
    /// Where its item probably is.
    pub hint: Hint<'w>,
    /// Its place in the input: the line's start, or for later keys of a line the key's.
    pub at: usize,
    pub request: Request<'a>,
    /// The data block of a store.
    pub value: &'a [u8],
    /// Whether it is the first key of its line; true for everything but lines of keys.
    pub first: bool,
    /// Whether it is the last key of its line.
    pub last: bool,
}

impl<'a, 'w> Staged<'a, 'w> {
    /// Makes a request of one key: hashes it and starts loading its bucket.
    #[inline]
    fn new(guard: &Guard<'w>, key: &'a [u8], at: usize, request: Request<'a>, value: &'a [u8]) -> Self {
        let key = guard.key(key);
        Staged { key, hint: guard.prefetch_bucket(&key), at, request, value, first: true, last: true }
    }
}

/// Keys that are executed together.
pub(crate) type Batch<'a, 'w> = ArrayVec<Staged<'a, 'w>, BATCH_KEYS>;

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

/// A request, or a part of one, that cannot be staged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// A line that names no item.
    Line(&'a [u8]),
    /// A bad request, with so many bytes behind its line to throw away.
    Fault { fault: Fault, swallow: u64, noreply: bool },
    /// A line of keys ended after spaces.
    EndOfKeys,
    /// A line of keys has a key that is too long.
    LongKey,
    /// A line without end.
    LongLine,
    /// A store that is not simply a value at hand. The input is at its block.
    Store(Store<'a>, Block<'a>),
    /// A meta command that is not simply a key at hand. The input is at its block.
    Meta(Meta<'a>, Block<'a>),
}

/// The reason why no more was read ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop<'a> {
    /// The batch is full, or the requests of this turn are used up.
    Full,
    /// The input ends here.
    NeedMore,
    /// Something has to be done first.
    Event(Event<'a>),
}

/// The state of reading.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub input: &'a [u8],
    /// Bytes that are done with.
    pub at: usize,
    /// The line of keys that is being read.
    pub keys: Option<Keys>,
    /// Requests left in this turn.
    pub left: u32,
}

impl<'a> Reader<'a> {
    /// Reads ahead into `batch`.
    #[inline]
    pub fn fill<'w>(
        &mut self,
        guard: &Guard<'w>,
        settings: &Settings,
        batch: &mut Batch<'a, 'w>,
    ) -> Stop<'a> {
        let input = self.input;
        let mut start = self.at;
        loop {
            if let Some(keys) = self.keys {
                if batch.is_full() {
                    return Stop::Full;
                }
                if let Some(stop) = self.key(guard, keys, start, batch) {
                    return stop;
                }
                start = self.at;
                continue;
            }
            if start == input.len() {
                return Stop::NeedMore;
            }
            if batch.is_full() || self.left == 0 {
                return Stop::Full;
            }
            let rest = &input[start..];
            self.left -= 1;
            if let Some((key, bytes)) = decode_get(rest) {
                let request = Request::Fetch(Fetch { cas: false, touch: None });
                batch.push(Staged::new(guard, key, start, request, &[]));
                start += bytes;
                self.at = start;
                continue;
            }
            if starts_get(rest) {
                self.at = start + GET_BYTES;
                self.keys = Some(Keys::new(Fetch { cas: false, touch: None }));
                continue;
            }
            if let Some((store, bytes)) = decode_set(rest) {
                self.at = start + bytes;
                if let Some(stop) = self.store(guard, settings, start, store, batch) {
                    return stop;
                }
            } else if let Some((meta, bytes)) = decode_start(rest) {
                self.at = start + bytes;
                if let Some(stop) = self.meta(guard, settings, start, meta, batch) {
                    return stop;
                }
            } else if let Some(stop) = self.other(guard, settings, start, batch) {
                return stop;
            }
            if self.keys.is_none() {
                start = self.at;
            }
        }
    }

    /// The place in the input behind a staged store.
    #[cold]
    pub fn behind(&self, staged: &Staged<'_, '_>) -> usize {
        let line = line_feed(&self.input[staged.at..]).map_or(0, |feed| feed + 1);
        staged.at + line + staged.value.len() + 2
    }

    /// Reads a request that has no path of its own.
    #[inline(never)]
    fn other<'w>(
        &mut self,
        guard: &Guard<'w>,
        settings: &Settings,
        start: usize,
        batch: &mut Batch<'a, 'w>,
    ) -> Option<Stop<'a>> {
        let (request, bytes) = match decode(&self.input[start..]) {
            Decoded::Request(request, bytes) => (request, bytes),
            Decoded::Incomplete => {
                self.left += 1;
                return Some(Stop::NeedMore);
            }
            Decoded::TooLong => return Some(Stop::Event(Event::LongLine)),
        };
        self.at = start + bytes;
        match request {
            Request::Fetch(fetch) => {
                self.keys = Some(Keys::new(fetch));
                None
            }
            Request::Store(store) => self.store(guard, settings, start, store, batch),
            Request::Meta(meta) => self.meta(guard, settings, start, meta, batch),
            Request::Delete { key, .. } | Request::Arithmetic { key, .. } | Request::Touch { key, .. } => {
                batch.push(Staged::new(guard, key, start, request, &[]));
                None
            }
            Request::Line(line) => Some(Stop::Event(Event::Line(line))),
            Request::Fault { fault, swallow, noreply } => {
                Some(Stop::Event(Event::Fault { fault, swallow, noreply }))
            }
        }
    }

    /// Takes the next key of a line of keys. `start` is where the request began, or, later in the line, the key.
    #[inline]
    fn key<'w>(
        &mut self,
        guard: &Guard<'w>,
        keys: Keys,
        start: usize,
        batch: &mut Batch<'a, 'w>,
    ) -> Option<Stop<'a>> {
        let Keys { fetch, first, .. } = keys;
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
                return Some(Stop::Event(Event::LongKey));
            }
            KeyStep::Incomplete(spaces) => return Some(self.wait_for_keys(keys, start, spaces)),
        };
        if first && !last {
            let rest = &self.input[self.at + bytes..];
            let feed = line_feed(rest);
            if feed.is_none() && self.input.len() - start <= KEYS_BYTES_MAX {
                return Some(self.wait_for_keys(keys, start, 0));
            }
            // A bad key spoils the whole line: it is looked for before the first is answered.
            if holds_long_key(&rest[..feed.unwrap_or(rest.len())]) {
                self.keys = None;
                return Some(Stop::Event(Event::LongKey));
            }
        }
        let request = Request::Fetch(fetch);
        batch.push(Staged { first, last, ..Staged::new(guard, key, start, request, &[]) });
        self.at += bytes;
        self.keys = if last { None } else { Some(Keys { fetch, first: false, resumed: false }) };
        None
    }

    /// Takes a store: it is staged if its value is at hand and not too large.
    #[inline]
    fn store<'w>(
        &mut self,
        guard: &Guard<'w>,
        settings: &Settings,
        start: usize,
        store: Store<'a>,
        batch: &mut Batch<'a, 'w>,
    ) -> Option<Stop<'a>> {
        let Some(block) = self.block(start, store.value_bytes) else { return Some(Stop::NeedMore) };
        match block {
            Block::Whole(value) if fits(settings, store.key.len(), store.flags, value.len() as u64) => {
                self.at += value.len() + 2;
                batch.push(Staged::new(guard, store.key, start, Request::Store(store), value));
                None
            }
            _ => Some(Stop::Event(Event::Store(store, block))),
        }
    }

    /// Waits for the line's next key, which is not whole: at the line's start if the line is short, else where the key begins.
    #[cold]
    fn wait_for_keys(&mut self, keys: Keys, start: usize, spaces: usize) -> Stop<'a> {
        if keys.first && !keys.resumed && self.input.len() - start <= KEYS_BYTES_MAX {
            self.at = start;
            self.left += 1;
            self.keys = None;
        } else {
            self.at += spaces;
            self.keys = Some(Keys { resumed: true, ..keys });
        }
        Stop::NeedMore
    }

    /// The block of a store whose line was just read; `None`, and back to `start`, if it is waited for.
    #[inline]
    fn block(&mut self, start: usize, value_bytes: u32) -> Option<Block<'a>> {
        let end = self.at + value_bytes as usize + 2;
        match self.input.get(self.at..end) {
            Some([value @ .., b'\r', b'\n']) => Some(Block::Whole(value)),
            Some(_) => Some(Block::Bad),
            None if end - start > WAIT_BYTES_MAX => Some(Block::Long),
            None => {
                self.at = start;
                self.left += 1;
                None
            }
        }
    }

    /// Takes a meta command: it is staged if it is simply a key with, at most, a value at hand.
    #[inline]
    fn meta<'w>(
        &mut self,
        guard: &Guard<'w>,
        settings: &Settings,
        start: usize,
        meta: Meta<'a>,
        batch: &mut Batch<'a, 'w>,
    ) -> Option<Stop<'a>> {
        let mut value: &[u8] = &[];
        if meta.verb == Verb::Set {
            let Some(block) = self.block(start, meta.value_bytes) else { return Some(Stop::NeedMore) };
            let flags = u32::from(meta.flags.has(b'F'));
            match block {
                Block::Whole(whole)
                    if !meta.flags.has(b'b')
                        && fits(settings, meta.key.len(), flags, u64::from(meta.value_bytes)) =>
                {
                    self.at += whole.len() + 2;
                    value = whole;
                }
                _ => return Some(Stop::Event(Event::Meta(meta, block))),
            }
        } else if meta.verb == Verb::Noop || meta.flags.has(b'b') {
            return Some(Stop::Event(Event::Meta(meta, Block::Whole(&[]))));
        }
        batch.push(Staged::new(guard, meta.key, start, Request::Meta(meta), value));
        None
    }
}
