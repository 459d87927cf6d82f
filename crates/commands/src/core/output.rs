//! Replies on their way out: one run of bytes, with large values spliced in from where they lie.
//!
//! ```text
//! buf      |sent…|VALUE k 0 100000\r\n|\r\nEND\r\n|VALUE m 0 …\r\n|\r\nEND\r\n|free…|
//!                 ^start              ^splice 0                  ^splice 1    ^end
//! splices  [ at, Pinned, sent ]  [ at, Pinned, sent ]
//! ```
//!
//! A worker has one `Output` and uses it for all its connections; what a send left over moves to
//! the connection ([`Output::take_rest`]). Bytes in front of `start` and of a splice that was sent
//! in full are gone. `at` is an index into `buf`, so buffer and splices move together.
//!
//! Knows no protocol. Does not send.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use larder_store::{BLOCK_BYTES_AT_ONCE, FREED_BLOCK_BYTES, Millis, Pinned, Store};

/// A value in the store that goes out between two bytes of the buffer.
#[derive(Debug)]
struct Splice {
    /// Index into the buffer of the byte that follows the value.
    at: usize,
    /// The value.
    pinned: Pinned,
    /// Where in it the bytes begin that are not sent.
    from: u64,
    /// Where those end that are wanted.
    to: u64,
}

impl Splice {
    /// What is to be sent of it.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.to - self.from;
        self.pinned.pieces(self.from).map_while(move |piece| {
            let bytes = left.min(piece.len() as u64);
            left -= bytes;
            (bytes > 0).then(|| &piece[..bytes as usize])
        })
    }
}

/// Values that go out between bytes of a buffer, in order. Dropped with many of them, it leaves their pins to upkeep: a client
/// that goes may have had gigabytes on their way, and others wait for its worker.
#[derive(Debug, Default)]
struct Splices(VecDeque<Splice>);

impl Deref for Splices {
    type Target = VecDeque<Splice>;
    #[inline]
    fn deref(&self) -> &VecDeque<Splice> {
        &self.0
    }
}

impl DerefMut for Splices {
    #[inline]
    fn deref_mut(&mut self) -> &mut VecDeque<Splice> {
        &mut self.0
    }
}

impl Drop for Splices {
    fn drop(&mut self) {
        let bytes: u64 = self.0.iter().map(|splice| splice.to).sum();
        if self.0.len() <= SPLICES_AT_ONCE && bytes <= SPLICED_BYTES_AT_ONCE {
            return;
        }
        let splices = std::mem::take(&mut self.0);
        let store = Arc::clone(splices[0].pinned.store());
        store.unpin_later(bytes, splices.into_iter().map(|splice| splice.pinned));
    }
}

/// Replies on their way out.
#[derive(Debug, Default)]
pub struct Output {
    /// Initialised room; the replies are `buf[start..end]`.
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Where the replies ended when some of them were sent last.
    sent_end: usize,
    /// How long the buffer may become without being charged for it again: it is charged already.
    reserved: usize,
    splices: Splices,
    /// Bytes of the splices not sent.
    pinned_bytes: u64,
    /// Bytes (buffered and pinned) at which a session stops and asks for a send; 0 when its turn has ended.
    limit_bytes: u64,
    /// What they are in the next turn, if this one has ended.
    next_limit_bytes: Option<u64>,
    /// The account that the buffer is charged to.
    account: Option<Account>,
}

/// The store counts what a buffer takes, as it grows and before it is written to.
#[derive(Debug)]
struct Account {
    store: Arc<Store>,
    /// Bytes that are counted elsewhere.
    free: usize,
    /// What the store has counted.
    bytes: usize,
}

impl Account {
    fn set(&mut self, capacity_bytes: usize) {
        let bytes = capacity_bytes.saturating_sub(self.free);
        if bytes != self.bytes {
            self.store.hold(bytes as i64 - self.bytes as i64);
            self.bytes = bytes;
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.buf.capacity() > BLOCK_BYTES_AT_ONCE {
            self.free_buffer();
        }
    }
}

/// A place in the replies to go back to ([`Output::rewind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    end: usize,
    splices: usize,
    pinned_bytes: u64,
}

impl Mark {
    /// Where [`Output::end`] was.
    pub fn end(&self) -> usize {
        self.end
    }
}

/// So many values are let go of at once: each has 64 pieces that are freed, …
const SPLICES_AT_ONCE: usize = 16;
/// … or is an element with a pin for each 16 KiB, of which no more bytes than these are let go of: some 1 ms in all.
const SPLICED_BYTES_AT_ONCE: u64 = 64 << 20;

/// What may wait for a client; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Above so many bytes it is closed.
    pub hard_bytes: u64,
    /// Above so many bytes for [`OutputLimit::soft_ms`] it is closed.
    pub soft_bytes: u64,
    /// How long.
    pub soft_ms: Millis,
}

/// Room that a fresh buffer takes when the first byte is written.
const ROOM_MIN: usize = 4096;
/// Room is added in steps of this from here on, and in steps of [`ROOM_MIN`] before.
const ROOM_STEP: usize = 64 << 10;
/// A large buffer grows by one part in this many, or by so many bytes: what is added is touched, and counted.
const ROOM_SHARE: usize = 8;
const ROOM_MORE_MAX: usize = 1 << 20;
/// What the allocator keeps in front of a block that is a mapping of its own.
const BLOCK_HEAD_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;

/// A rest of so many bytes or more is not copied: its buffer goes with it.
const MOVED_BYTES_MIN: usize = 128 << 10;

/// Bytes already sent that may stay in front of the rest, however little that is.
const SENT_BYTES_MAX: usize = 16 << 10;

/// A rest of so many bytes is moved in some 2 ms, and into a block of its own, whose pages are fresh, in some 4.
const CLOSED_UP_BYTES: usize = 16 << 20;

impl Output {
    /// An empty output that asks for a send once it holds `limit_bytes`. Takes no memory yet.
    pub fn new(limit_bytes: u64) -> Output {
        Output::over(limit_bytes, None)
    }

    /// As [`Output::new`]; what its buffer takes beyond one of `free` bytes is charged to the store as what connections
    /// hold.
    pub fn charged(limit_bytes: u64, store: &Arc<Store>, free: usize) -> Output {
        let account =
            Account { store: Arc::clone(store), free: touched_bytes(free, block_bytes(free)), bytes: 0 };
        Output::over(limit_bytes, Some(account))
    }

    fn over(limit_bytes: u64, account: Option<Account>) -> Output {
        let mut output = Output::default();
        (output.limit_bytes, output.account) = (limit_bytes, account);
        output
    }

    /// An output of these replies, in a buffer of just their size, all of which is charged if this one's is. It is
    /// full until it is given a limit.
    pub fn beside(&self, replies: &[u8]) -> Output {
        let account = self.account.as_ref();
        let account = account.map(|a| Account { store: Arc::clone(&a.store), free: 0, bytes: 0 });
        let mut output = Output::over(0, account);
        // First it is charged.
        output.set_account(touched_bytes(replies.len(), block_bytes(replies.len())));
        output.buf = block_of(replies);
        output.end = replies.len();
        output
    }

    /// An output of these replies that is charged to no account. It is full until it is given a limit.
    pub fn of(replies: &[u8]) -> Output {
        Output::default().beside(replies)
    }

    fn set_account(&mut self, capacity_bytes: usize) {
        if let Some(account) = &mut self.account {
            account.set(capacity_bytes);
        }
    }

    /// Bytes waiting to be sent, pinned values included.
    #[inline]
    pub fn len(&self) -> u64 {
        (self.end - self.start) as u64 + self.pinned_bytes
    }

    /// Bytes of memory that what waits takes here: values that are sent from their place count with what it
    /// takes to name them.
    #[inline]
    pub fn own_bytes(&self) -> u64 {
        (self.end - self.start + self.splices.len() * size_of::<Splice>()) as u64
    }

    /// Bytes waiting to be sent of values that are sent from their place.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.splices.is_empty()
    }

    /// The session should stop until something was sent.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit_bytes
    }

    /// Sets the bytes at which a session stops.
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.next_limit_bytes = None;
    }

    /// Ends the turn of the session that writes: until [`Output::take_end`] the output is full, whatever it holds. So a session
    /// that looks whether it is full looks for both at once.
    #[cold]
    pub(crate) fn end_turn(&mut self) {
        if self.next_limit_bytes.is_none() {
            self.next_limit_bytes = Some(std::mem::take(&mut self.limit_bytes));
        }
    }

    /// The turn has ended before its time; another may begin.
    #[inline]
    pub(crate) fn take_end(&mut self) -> bool {
        match self.next_limit_bytes.take() {
            None => false,
            Some(limit_bytes) => {
                self.limit_bytes = limit_bytes;
                true
            }
        }
    }

    /// Bytes of memory the buffer takes (pinned values not included): what it has room for beyond them
    /// was never touched. A block that is a mapping of its own takes whole pages, its head included.
    pub fn capacity_bytes(&self) -> usize {
        touched_bytes(self.buf.len(), self.buf.capacity())
    }

    /// Forgets everything, sent or not; keeps the buffer.
    #[inline]
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
        if !self.splices.is_empty() {
            self.splices = Splices::default();
        }
        self.pinned_bytes = 0;
    }

    /// Gives back memory above `bytes` of an empty output.
    pub fn shrink(&mut self, bytes: usize) {
        if self.is_empty() && self.buf.capacity() > bytes {
            self.clear();
            if self.buf.capacity() > BLOCK_BYTES_AT_ONCE {
                self.free_buffer();
            }
            self.buf.truncate(bytes);
            self.buf.shrink_to(bytes);
            self.set_account(self.capacity_bytes());
        }
    }

    /// Frees the buffer, if it is large some at a time.
    fn free_buffer(&mut self) {
        let buf = std::mem::take(&mut self.buf);
        if let Some(account) = &mut self.account {
            account.store.free_later(buf, std::mem::take(&mut account.bytes));
        }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// `bytes` writable bytes behind the last reply; [`Output::filled`] says how many were used.
    #[inline]
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.buf.len() - self.end < bytes {
            self.grow(bytes);
        }
        &mut self.buf[self.end..self.end + bytes]
    }

    /// As [`Output::room`], of a fixed size.
    #[inline(always)]
    pub fn room_for<const BYTES: usize>(&mut self) -> &mut [u8; BYTES] {
        if self.buf.len() - self.end < BYTES {
            self.grow(BYTES);
        }
        self.buf[self.end..].first_chunk_mut().expect("it has grown")
    }

    /// Takes the first `bytes` of [`Output::room`] as replies.
    #[inline]
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buf.len() - self.end, "only room can be filled");
        self.end += bytes;
    }

    /// Bytes that can be written before more is charged.
    pub fn free_bytes(&self) -> usize {
        self.buf.len().max(self.reserved) - self.end
    }

    /// Charges what the buffer takes when it has room for `bytes` more, which are to be written next; nothing is
    /// allocated yet. [`Output::room`] does so, or [`Output::give_up_room`] takes it back.
    #[cold]
    pub fn charge_room(&mut self, bytes: usize) {
        let len = self.len_for(bytes).max(self.buf.len()).max(self.reserved);
        self.set_account(touched_bytes(len, block_bytes(len)));
    }

    /// As [`Output::charge_room`], for what may be much and is perhaps not written: it stays charged until
    /// [`Output::end_reserve`], and takes memory only as it is written to.
    #[cold]
    pub fn reserve_room(&mut self, bytes: usize) {
        self.charge_room(bytes);
        self.reserved = self.len_for(bytes).max(self.buf.len());
    }

    /// Nothing is reserved any more.
    #[cold]
    pub fn end_reserve(&mut self) {
        self.reserved = 0;
        self.give_up_room();
    }

    /// Charges what the buffer takes, or what is reserved, and no more.
    #[cold]
    pub fn give_up_room(&mut self) {
        let reserved = touched_bytes(self.reserved, block_bytes(self.reserved));
        self.set_account(self.capacity_bytes().max(reserved));
    }

    /// How long the buffer is made for `bytes` more.
    fn len_for(&self, bytes: usize) -> usize {
        let wanted = if self.is_empty() { bytes } else { self.end + bytes };
        if wanted <= ROOM_STEP {
            wanted.next_multiple_of(ROOM_MIN)
        } else if (wanted as u64) < self.limit_bytes {
            let ample = (wanted + (wanted / ROOM_SHARE).min(ROOM_MORE_MAX)).next_multiple_of(ROOM_STEP);
            // At the limit a session stops; there may be none.
            let most = (self.limit_bytes as usize).checked_next_multiple_of(ROOM_MIN);
            most.map_or(ample, |most| ample.min(most))
        } else {
            wanted.next_multiple_of(ROOM_STEP)
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        if self.is_empty() {
            self.clear();
        }
        let len = self.len_for(bytes);
        if len > self.buf.len() {
            // Exactly: what is taken is counted as held. Of a block that goes back to the system when it is
            // freed only what is used is touched, and it grows without a copy.
            let room = block_bytes(len.max(self.reserved));
            self.set_account(touched_bytes(len.max(self.reserved), room));
            self.buf.reserve_exact(room - self.buf.len());
            self.buf.resize(len, 0);
        }
    }

    /// Appends a large value, sent from its place in the store.
    pub fn splice(&mut self, pinned: Pinned) {
        let all = 0..pinned.value_bytes();
        self.splice_part(pinned, all);
    }

    /// Appends a part of a large value, which is in it.
    pub fn splice_part(&mut self, pinned: Pinned, part: Range<u64>) {
        assert!(part.start < part.end && part.end <= pinned.value_bytes(), "a part of the value");
        self.pinned_bytes += part.end - part.start;
        self.splices.push_back(Splice { at: self.end, pinned, from: part.start, to: part.end });
    }

    /// Hands what is to be sent first on to another output: some bytes, no more than `most`, and the value that is
    /// spliced in behind them if that comes next. How many bytes were copied.
    pub(crate) fn hand_on(&mut self, to: &mut Output, most: usize) -> usize {
        let next = self.splices.front().map_or(self.end, |splice| splice.at);
        let bytes = most.min(next - self.start);
        to.put(&self.buf[self.start..self.start + bytes]);
        self.start += bytes;
        if self.start == next
            && let Some(splice) = self.splices.pop_front()
        {
            let pinned_bytes = splice.to - splice.from;
            self.pinned_bytes -= pinned_bytes;
            to.pinned_bytes += pinned_bytes;
            to.splices.push_back(Splice { at: to.end, ..splice });
        }
        bytes
    }

    /// Where the replies end now.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { end: self.end, splices: self.splices.len(), pinned_bytes: self.pinned_bytes }
    }

    /// Drops what was written since `mark`; nothing may have been sent in between.
    pub fn rewind(&mut self, mark: Mark) {
        assert!(mark.end <= self.end && mark.splices <= self.splices.len(), "a mark lies behind");
        self.end = mark.end;
        if self.splices.len() > mark.splices {
            drop(Splices(self.splices.split_off(mark.splices)));
        }
        self.pinned_bytes = mark.pinned_bytes;
    }

    /// What was written since `mark`, in an output of its own; what lies in front stays. Nothing may have been sent in between.
    pub(crate) fn split_since(&mut self, mark: Mark) -> Output {
        assert!(mark.end <= self.end && mark.splices <= self.splices.len(), "a mark lies behind");
        let mut rest = self.beside(&self.buf[mark.end..self.end]);
        rest.splices = Splices(self.splices.split_off(mark.splices));
        rest.pinned_bytes = self.pinned_bytes - mark.pinned_bytes;
        for splice in rest.splices.iter_mut() {
            splice.at -= mark.end;
        }
        (self.end, self.pinned_bytes) = (mark.end, mark.pinned_bytes);
        rest
    }

    /// Fills `into` with what is to be sent next, in order, and returns how many slices it used.
    pub fn slices<'s>(&'s self, into: &mut [IoSlice<'s>]) -> usize {
        let mut used = 0;
        let mut from = self.start;
        for splice in self.splices.iter() {
            if splice.at > from {
                if used == into.len() {
                    return used;
                }
                into[used] = IoSlice::new(&self.buf[from..splice.at]);
                used += 1;
                from = splice.at;
            }
            for piece in splice.pieces() {
                if used == into.len() {
                    return used;
                }
                into[used] = IoSlice::new(piece);
                used += 1;
            }
        }
        if self.end > from && used < into.len() {
            into[used] = IoSlice::new(&self.buf[from..self.end]);
            used += 1;
        }
        used
    }

    /// Where the next byte goes: an index that stays true until something is sent or forgotten.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Replies between two places where [`Output::end`] was, with no value spliced in between.
    #[inline]
    pub fn between(&self, from: usize, to: usize) -> &[u8] {
        debug_assert!(from >= self.start && to <= self.end, "replies that are there");
        &self.buf[from..to]
    }

    /// Forgets what is in front of a place where [`Output::end`] was.
    pub fn forget_until(&mut self, from: usize) {
        assert!((self.start..=self.end).contains(&from), "a place among the replies");
        assert!(self.splices.front().is_none_or(|splice| splice.at >= from), "no value is in front of it");
        self.start = from;
    }

    /// No value is spliced in.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.splices.is_empty()
    }

    /// The replies as one run, if nothing is spliced in: the common case, sent without a vector.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        self.splices.is_empty().then(|| &self.buf[self.start..self.end])
    }

    /// Says that the first `bytes` were sent.
    pub fn advance(&mut self, mut bytes: u64) {
        assert!(bytes <= self.len(), "no more can be sent than there is");
        while let Some(splice) = self.splices.front_mut() {
            let ahead = (splice.at - self.start) as u64;
            if bytes < ahead {
                break;
            }
            bytes -= ahead;
            self.start = splice.at;
            let left = splice.to - splice.from;
            let sent = left.min(bytes);
            splice.from += sent;
            self.pinned_bytes -= sent;
            bytes -= sent;
            if sent < left {
                return;
            }
            self.splices.pop_front();
        }
        self.start += bytes as usize;
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        } else if self.start >= SENT_BYTES_MAX && self.start >= self.sent_bytes_max() {
            self.close_up();
        }
        self.sent_end = self.end;
    }

    /// Bytes already sent that may stay in front of the rest: as many as that has. It takes long to move a long one, which stays
    /// where it is while nothing comes behind it; else it is moved where it is a fifth.
    #[inline]
    fn sent_bytes_max(&self) -> usize {
        let rest = self.end - self.start;
        if rest <= CLOSED_UP_BYTES {
            rest
        } else if self.end == self.sent_end {
            usize::MAX
        } else {
            4 * rest
        }
    }

    /// Moves what is not sent to the front: a reader that always leaves something would otherwise
    /// have the buffer grow for ever. Gives memory back when little of it is in use.
    #[cold]
    fn close_up(&mut self) {
        for splice in self.splices.iter_mut() {
            splice.at -= self.start;
        }
        let rest = self.start..self.end;
        (self.start, self.end) = (0, rest.len());
        let bytes = self.end.next_multiple_of(ROOM_STEP);
        if self.buf.len() < 4 * bytes {
            return self.buf.copy_within(rest, 0);
        }
        if self.buf.capacity() > BLOCK_BYTES_AT_ONCE {
            let block = block_of(&self.buf[rest]);
            self.free_buffer();
            self.buf = block;
        } else {
            self.buf.copy_within(rest, 0);
            self.buf.truncate(bytes);
            self.buf.shrink_to_fit();
        }
        self.set_account(self.capacity_bytes());
    }

    /// Moves what is not sent into an output of its own, in a buffer of just its size, or with the buffer if it
    /// is much; this one is empty afterwards.
    pub fn take_rest(&mut self) -> Output {
        self.leave_behind(self.start)
    }

    /// What lies behind a place where [`Output::end`] was, in an output of its own; nothing that lies in front is
    /// wanted. Much of it goes with the buffer, and is not copied: there is never twice as much.
    pub fn leave_behind(&mut self, from: usize) -> Output {
        if self.end - from < MOVED_BYTES_MIN {
            let rest = self.split_off(from);
            self.clear();
            return rest;
        }
        let account = self.account.as_ref();
        let account = account.map(|a| Account { store: Arc::clone(&a.store), free: a.free, bytes: 0 });
        let mut fresh = Output::over(self.limit_bytes, account);
        fresh.next_limit_bytes = self.next_limit_bytes;
        let mut rest = std::mem::replace(self, fresh);
        if let Some(account) = &mut rest.account {
            account.free = 0;
        }
        rest.end_reserve();
        rest.forget_until(from);
        (rest.limit_bytes, rest.next_limit_bytes) = (0, None);
        rest
    }

    /// As [`Output::take_rest`], of what lies behind a place where [`Output::end`] was; all values that are
    /// spliced in lie there. What lies in front stays.
    pub fn split_off(&mut self, from: usize) -> Output {
        assert!(self.splices.front().is_none_or(|splice| splice.at >= from), "no value is in front of it");
        let mut rest = self.beside(&self.buf[from..self.end]);
        rest.splices = std::mem::take(&mut self.splices);
        rest.pinned_bytes = std::mem::take(&mut self.pinned_bytes);
        for splice in rest.splices.iter_mut() {
            splice.at -= from;
        }
        self.end = from;
        rest
    }

    /// Everything not sent, copied into one vector: for tests and tools.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len() as usize);
        let mut from = self.start;
        for splice in self.splices.iter() {
            all.extend_from_slice(&self.buf[from..splice.at]);
            from = splice.at;
            for piece in splice.pieces() {
                all.extend_from_slice(piece);
            }
        }
        all.extend_from_slice(&self.buf[from..self.end]);
        all
    }
}

/// The size of a block for so many bytes. One of more than a page is large enough that it goes back to the
/// system as it is freed, and not to a heap full of holes; of its memory only the pages of the replies
/// are touched.
fn block_bytes(bytes: usize) -> usize {
    if bytes > ROOM_MIN { bytes.max(FREED_BLOCK_BYTES) } else { bytes }
}

/// What a block takes of which `bytes` were written.
fn touched_bytes(bytes: usize, block_bytes: usize) -> usize {
    if block_bytes < FREED_BLOCK_BYTES {
        bytes
    } else {
        (bytes + BLOCK_HEAD_BYTES).next_multiple_of(PAGE_BYTES)
    }
}

/// Replies in a block of their own.
fn block_of(replies: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(block_bytes(replies.len()));
    block.extend_from_slice(replies);
    block
}

impl std::io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{Attributes, Config, Expect, Lookup, Store, Value};

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut out = Output::new(10);
        assert!(out.is_empty());
        out.put(b"abc");
        out.put(b"defghi");
        assert!(!out.is_full());
        out.put(b"j");
        assert!(out.is_full());
        assert_eq!(out.contiguous(), Some(&b"abcdefghij"[..]));
        out.advance(4);
        assert_eq!(out.to_vec(), b"efghij");
        let rest = out.take_rest();
        assert!(out.is_empty());
        assert_eq!(rest.to_vec(), b"efghij");
    }

    #[test]
    fn replies_of_any_length_find_room_whatever_the_limit() {
        for limit in [0, 1, 70_000, u64::MAX - 1, u64::MAX] {
            let mut out = Output::new(limit);
            (0..300).for_each(|n| out.put(&vec![n as u8; 1_009]));
            assert_eq!(out.len(), 300 * 1_009);
            let bytes = out.to_vec();
            assert!(bytes.chunks(1_009).enumerate().all(|(n, piece)| piece.iter().all(|&b| b == n as u8)));
        }
    }

    #[test]
    fn an_output_of_replies_takes_no_more_than_they_do() {
        let mut out = Output::of(&[b'x'; 5000]);
        assert_eq!((out.capacity_bytes(), out.len()), (2 * PAGE_BYTES, 5000));
        out.advance(4999);
        out.put(b"y");
        assert_eq!(out.to_vec(), b"xy");
    }

    #[test]
    fn what_lies_between_two_ends_is_read_forgotten_and_split_off() {
        let mut out = Output::new(10);
        out.put(b"first");
        let from = out.end();
        out.put(b"second");
        let to = out.end();
        out.put(b"third");
        assert_eq!((out.between(0, from), out.between(from, to)), (&b"first"[..], &b"second"[..]));
        assert_eq!(out.split_off(to).to_vec(), b"third");
        assert_eq!(out.to_vec(), b"firstsecond");
        out.forget_until(from);
        assert_eq!(out.to_vec(), b"second");
        out.advance(3);
        assert_eq!(out.take_rest().to_vec(), b"ond");
        assert!(out.is_empty());
    }

    #[test]
    fn rewind_drops_what_came_after_the_mark() {
        let mut out = Output::new(10);
        out.put(b"keep");
        let mark = out.mark();
        out.put(b"drop");
        out.rewind(mark);
        assert_eq!(out.to_vec(), b"keep");
    }

    #[test]
    fn what_was_written_since_a_mark_is_split_off_with_its_values() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(1_700_000_000_000);
        let key = guard.key(b"large");
        guard.store_value(&key, &[b'x'; 100_000], &Attributes::default(), Expect::Any).unwrap();
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it is there") };
        let Value::Pieces(value) = item.value() else { panic!("it is large") };
        let mut out = Output::new(u64::MAX);
        for text in [b"sent", b"keep"] {
            out.put(text);
            out.splice(value.pin());
        }
        out.advance(2);
        let mark = out.mark();
        out.put(b"one");
        out.splice(value.pin());
        out.put(b"other");
        assert_eq!(mark.end(), 8);
        let mut rest = out.split_since(mark);
        assert_eq!((out.len(), rest.len()), (2 * 100_000 + 6, 100_000 + 8));
        let all = rest.to_vec();
        assert!(all.starts_with(b"onex") && all.ends_with(b"xother"));
        out.put(b"!");
        while !rest.is_empty() {
            rest.hand_on(&mut out, usize::MAX);
        }
        let values = "x".repeat(100_000);
        assert!(out.to_vec() == format!("nt{values}keep{values}!one{values}other").as_bytes());
        drop(out);
        assert_eq!(store.held_bytes(), 0);
    }

    #[test]
    fn rewind_counts_a_value_that_it_drops_no_more() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(1_700_000_000_000);
        let key = guard.key(b"large");
        guard.store_value(&key, &[b'x'; 100_000], &Attributes::default(), Expect::Any).unwrap();
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it is there") };
        let Value::Pieces(value) = item.value() else { panic!("it is large") };
        let mut out = Output::new(1 << 20);
        out.put(b"keep");
        out.splice(value.pin());
        let mark = out.mark();
        out.splice(value.pin());
        assert_eq!(out.len(), 4 + 2 * 100_000);
        out.rewind(mark);
        assert_eq!(out.len(), 4 + 100_000);
        assert_eq!(out.to_vec().len(), 4 + 100_000);
    }

    /// Of many values that are not sent upkeep drops the pins, some at a time; of fewer they are dropped at once.
    #[test]
    fn pins_of_many_values_that_are_not_sent_are_left_to_upkeep() {
        for count in [SPLICES_AT_ONCE - 1, SPLICES_AT_ONCE, SPLICES_AT_ONCE + 1] {
            for way in ["dropped", "cleared", "rewound"] {
                let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
                let mut worker = store.worker().unwrap();
                let mut guard = worker.enter(1_700_000_000_000);
                let mut out = Output::new(u64::MAX);
                out.put(b"keep");
                let mark = out.mark();
                for n in 0..count as u8 {
                    let name = [n];
                    let key = guard.key(&name);
                    guard.store_value(&key, &[b'x'; 100_000], &Attributes::default(), Expect::Any).unwrap();
                    let Lookup::Hit(item) = guard.get(&key) else { panic!("it is there") };
                    let Value::Pieces(value) = item.value() else { panic!("it is large") };
                    out.splice(value.pin());
                    guard.delete(&key, Expect::Present).unwrap();
                }
                while guard.maintain() {}
                let before = store.totals().item_bytes;
                assert!(before > count as u64 * 100_000);
                match way {
                    "dropped" => drop(out),
                    "cleared" => out.clear(),
                    _ => out.rewind(mark),
                }
                let left = if count > SPLICES_AT_ONCE { before } else { 0 };
                let there = (store.held_bytes(), store.totals().item_bytes);
                assert_eq!(there, (0, left), "{count} are {way}");
                while guard.maintain() {}
                assert_eq!(store.totals().item_bytes, 0);
            }
        }
    }

    #[test]
    fn what_is_handed_on_comes_out_as_it_went_in() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() }).unwrap();
        let mut worker = store.worker().unwrap();
        let mut guard = worker.enter(1_700_000_000_000);
        let key = guard.key(b"large");
        guard.store_value(&key, &[b'x'; 100_000], &Attributes::default(), Expect::Any).unwrap();
        let Lookup::Hit(item) = guard.get(&key) else { panic!("it is there") };
        let Value::Pieces(value) = item.value() else { panic!("it is large") };
        for most in [1, 3, 4, 100] {
            let mut from = Output::new(10);
            from.splice(value.pin());
            from.put(b"keep");
            from.splice(value.pin());
            from.splice(value.pin());
            from.put(b"this");
            let (all, mut to) = (from.to_vec(), Output::new(10));
            to.put(b"before");
            while !from.is_empty() {
                let (bytes, left) = (to.len(), from.len());
                assert!(from.hand_on(&mut to, most) <= most);
                assert_eq!(to.len() - bytes, left - from.len());
            }
            assert!(to.to_vec() == [b"before", &all[..]].concat(), "{most}");
        }
    }

    #[test]
    fn slices_stop_at_the_room_given() {
        let mut out = Output::new(10);
        out.put(b"abc");
        let mut none: [IoSlice<'_>; 0] = [];
        assert_eq!(out.slices(&mut none), 0);
        let mut one = [IoSlice::new(b"")];
        assert_eq!(out.slices(&mut one), 1);
        assert_eq!(&*one[0], b"abc");
    }

    #[test]
    fn a_reader_that_never_takes_everything_does_not_grow_the_buffer() {
        let mut out = Output::new(10);
        out.put(&[b'x'; 10_000]);
        let mut expected = vec![b'x'; 10_000];
        for n in 0..1000u32 {
            out.put(&[n as u8; 10_000]);
            expected.extend([n as u8; 10_000]);
            out.advance(10_000);
            expected.drain(..10_000);
        }
        assert_eq!(out.to_vec(), expected);
        assert!(out.capacity_bytes() <= 64 << 10, "{}", out.capacity_bytes());
    }

    #[test]
    fn room_that_is_reserved_is_charged_and_takes_memory_as_it_is_written() {
        let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
        let mut out = Output::charged(1 << 20, &store, 4096);
        let before = store.held_bytes();
        out.reserve_room(8 << 20);
        assert!(store.held_bytes() - before >= 8 << 20 && out.free_bytes() >= 8 << 20);
        out.put(&[b'x'; 10_000]);
        assert!(out.capacity_bytes() <= 2 * ROOM_STEP, "{}", out.capacity_bytes());
        assert!(store.held_bytes() - before >= 8 << 20, "it stays charged");
        (0..100).for_each(|_| out.put(&[b'y'; 10_000]));
        assert_eq!(out.len(), 1_010_000);
        // A request for more than there is gives up what it asked for, and nothing of what was reserved.
        out.charge_room(16 << 20);
        out.give_up_room();
        assert!(store.held_bytes() - before >= 8 << 20 && out.free_bytes() > 6 << 20);
        out.end_reserve();
        assert!(store.held_bytes() - before < 2 << 20 && out.capacity_bytes() < 2 << 20);
    }

    #[test]
    fn memory_follows_what_waits() {
        let mut out = Output::new(4 << 20);
        while !out.is_full() {
            out.put(&[b'x'; 10_000]);
        }
        assert!(out.capacity_bytes() <= (4 << 20) + 2 * ROOM_STEP, "{}", out.capacity_bytes());
        while out.len() > 100_000 {
            out.advance(9_000);
        }
        assert!(out.capacity_bytes() <= 4 * (100_000 + ROOM_STEP), "{}", out.capacity_bytes());
        assert_eq!(out.to_vec().len() as u64, out.len());
    }

    /// So nothing takes long while all of it goes out, and a buffer does not grow for ever all the same.
    #[test]
    fn a_long_rest_is_moved_only_where_more_came_behind_it() {
        let bytes = 6 * CLOSED_UP_BYTES;
        for is_added in [false, true] {
            let mut out = Output::new(0);
            out.room(bytes);
            out.filled(bytes - 1);
            out.advance(1);
            if is_added {
                out.put(b"y");
            }
            let before = out.capacity_bytes();
            out.advance(out.len() - CLOSED_UP_BYTES as u64 - 1);
            assert_eq!(out.capacity_bytes() < before, is_added);
            out.advance(1);
            assert_eq!(out.len(), CLOSED_UP_BYTES as u64);
            assert_eq!(out.capacity_bytes(), CLOSED_UP_BYTES + PAGE_BYTES);
        }
    }

    /// It stays charged until it is given back, and no longer; connections do not hold it meanwhile.
    #[test]
    fn a_large_buffer_is_left_to_upkeep_with_what_it_was_charged() {
        const BYTES: usize = 2 * BLOCK_BYTES_AT_ONCE;
        const NOW: u64 = 1_700_000_000_000;
        // What buffers are charged falls so often.
        const FALLS_MS: u64 = 250;
        for way in ["dropped", "shrunk", "closed up"] {
            let store = Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap();
            let mut worker = store.worker().unwrap();
            let before = store.heap_bytes();
            let mut out = Output::charged(0, &store, 0);
            out.put(&vec![b'x'; BYTES]);
            let all = out.capacity_bytes() as u64;
            assert_eq!(store.held_bytes(), all);
            let left = match way {
                "dropped" => {
                    drop(out);
                    None
                }
                "shrunk" => {
                    out.advance(BYTES as u64);
                    out.shrink(0);
                    Some(out)
                }
                _ => {
                    out.advance(BYTES as u64 - 1_000);
                    assert_eq!(out.to_vec(), [b'x'; 1_000]);
                    Some(out)
                }
            };
            let own = left.as_ref().map_or(0, Output::capacity_bytes) as u64;
            assert_eq!(own, if way == "closed up" { 1_000 } else { 0 });
            assert_eq!((store.held_bytes(), store.heap_bytes()), (own, before + all + own), "{way}");
            for round in 0..4 {
                let mut guard = worker.enter(NOW + round * FALLS_MS);
                while guard.maintain() {}
            }
            assert_eq!((store.held_bytes(), store.heap_bytes()), (own, before + own), "{way}");
            drop(left);
            assert_eq!(store.held_bytes(), 0, "{way}");
        }
    }

    #[test]
    fn an_empty_output_gives_memory_back() {
        let mut out = Output::new(10);
        out.put(&[b'x'; 100_000]);
        out.shrink(4096);
        assert!(out.capacity_bytes() > 4096, "unsent bytes stay");
        out.advance(100_000);
        out.shrink(4096);
        assert!(out.capacity_bytes() <= 4096);
        out.put(b"y");
        assert_eq!(out.to_vec(), b"y");
    }
}
