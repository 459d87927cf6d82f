//! Memory of requests on their way in: bytes that are gathered, and waits for memory that others hold.
//!
//! All such requests together may hold a part of the memory ([`larder_store::Store::input_bytes_max`]). A request that wants
//! more than is left looks a few times more before it is refused; meanwhile the server closes those that stand still.
//!
//! A request that is whole may wait for memory of the store itself, where some is on its way ([`Asked`]): for as many looks,
//! and for up to 5 s more while flushed items are cleaned up.

use std::sync::Arc;

use larder_store::{Millis, Upload};

use super::context::Context;
use super::progress::Next;
use super::unauthenticated::Unauthenticated;

/// Least missing bytes that are received on their own. Fewer are received with what follows them.
pub(crate) const UPLOAD_SPACE_MIN: u64 = 2048;
/// Memory of a large value is reserved so far ahead of what has arrived. A value of 100 KiB is then
/// received by one call behind the one that brought its head; memory that waits for a slow sender's
/// bytes is no more than this and a piece.
const UPLOAD_RECEIVE_BYTES: usize = 96 << 10;
/// Most bytes that an upload takes at a time.
const UPLOAD_PIECE_BYTES: u64 = 16 << 10;

/// Requests of unauthenticated clients may hold one part in this many of what all may.
pub const UNAUTHENTICATED_SHARE: u64 = 4;

/// Most looks of a request for memory of the store that is on its way: for about 240 ms, …
const LOOKS_MAX: u8 = 24;
/// … and where other requests on their way in hold the memory: for about two seconds. Those that stand still for 250 ms are
/// closed one after the other, and others that wait may take their memory first, and stand as long.
const LOOKS_MAX_HELD: u8 = 200;
/// Milliseconds between two looks.
const LOOK_MS: Millis = 10;
/// Most looks, a millisecond apart, of a value on its way in, or of a command's step, for memory that is being mapped: after those
/// it is taken unmapped.
const LOOKS_MAX_MAPPING: u8 = 50;
/// Most further looks while flushed items are cleaned up, which takes a second or two.
const LOOKS_MAX_CLEANING: u16 = 500;

/// Number of vain looks of a request on its way in for memory that others' requests hold.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    count: u8,
    /// Others held the memory in one of them.
    held: bool,
    /// Number of looks for memory that is being mapped.
    mapping: u8,
    /// There was no room to receive the next bytes on their own: the next step looks, though no bytes came.
    no_space: bool,
}

impl Looks {
    /// Makes room for the next bytes of a value to be received on their own. False if there is none: whether the value waits or is
    /// refused is decided by its next step, which is to come at once.
    pub fn make_space(&mut self, cx: &mut Context<'_, '_>, upload: &mut Upload) -> bool {
        self.no_space =
            self.awaits_mapping(cx, upload) || cx.guard.upload_reserve(upload, UPLOAD_RECEIVE_BYTES).is_err();
        !self.no_space
    }

    /// Lets a value wait that has filled its memory while what it would take next is being mapped. Otherwise the worker would wait
    /// for the system with all its clients. `None`: it takes memory now.
    pub fn for_mapping(&mut self, cx: &Context<'_, '_>, upload: &Upload) -> Option<Next> {
        self.awaits_mapping(cx, upload).then(|| self.once_more_for_mapping())
    }

    fn once_more_for_mapping(&mut self) -> Next {
        self.mapping += 1;
        Next::Sleep(1)
    }

    fn awaits_mapping(&self, cx: &Context<'_, '_>, upload: &Upload) -> bool {
        upload.is_full() && self.may_await_mapping(cx)
    }

    fn may_await_mapping(&self, cx: &Context<'_, '_>) -> bool {
        self.mapping < LOOKS_MAX_MAPPING && cx.guard.store().awaits_memory()
    }

    /// Decides for a value that got no more memory on its way into its item. It waits if others hold the memory; `None`: it
    /// waits in vain.
    #[cold]
    pub fn for_upload(&mut self, cx: &Context<'_, '_>, upload: &Upload) -> Option<Next> {
        let may = upload.may_take(UPLOAD_PIECE_BYTES);
        self.again(cx, may)
    }

    /// Decides as [`Looks::for_upload`], for a request that is gathered and wants `bytes` in all.
    #[cold]
    pub fn for_input(&mut self, cx: &Context<'_, '_>, input: &Input, bytes: u64) -> Option<Next> {
        let may = cx.guard.store().may_keep_input(input.bytes, bytes.saturating_sub(input.bytes));
        self.again(cx, may)
    }

    /// Lets a whole request wait for memory of the store that is on its way. `None` if it has looked too often.
    #[cold]
    pub fn for_memory(&mut self) -> Option<Next> {
        self.once_more()
    }

    fn again(&mut self, cx: &Context<'_, '_>, may: bool) -> Option<Next> {
        if may {
            // The store has no memory now, but some may come.
            return self.once_more().filter(|_| cx.guard.memory_comes());
        }
        self.held = true;
        let next = self.once_more();
        if next.is_some() {
            cx.shared.want_input();
        }
        next
    }

    /// Counts a look. `None` if there were too many.
    fn once_more(&mut self) -> Option<Next> {
        if self.count == if self.held { LOOKS_MAX_HELD } else { LOOKS_MAX } {
            return None;
        }
        self.count += 1;
        Some(Next::Sleep(LOOK_MS))
    }

    /// Returns whether the request waits, or is to look.
    pub fn any(&self) -> bool {
        self.count > 0 || self.mapping > 0 || self.no_space
    }
}

/// Milliseconds after the last look from which on a look is another request's: the one before has found memory, or was refused.
const ASKED_MS: Millis = 100;

/// Number of retries of the first of a connection's requests, or of a step of one.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    looks: Looks,
    /// Retries while flushed items are cleaned up.
    cleaning: u16,
    at: Millis,
}

impl Asked {
    /// Lets a step that takes memory wait while some is being mapped, as [`Looks::for_mapping`] does. `None`: the step is made.
    pub fn for_mapping(&mut self, cx: &Context<'_, '_>) -> Option<Next> {
        self.looks.may_await_mapping(cx).then(|| self.looks.once_more_for_mapping())
    }

    /// Decides for the request that begins at `begins` of the input and found no memory: how it waits, if it does.
    #[cold]
    pub fn again(&mut self, cx: &Context<'_, '_>, begins: usize) -> Option<Next> {
        let now = cx.now();
        if begins > 0 || now > self.at + ASKED_MS {
            *self = Asked::default();
        }
        self.at = now;
        // Flushed items become free memory for certain.
        if self.cleaning < LOOKS_MAX_CLEANING && cx.guard.store().is_cleaning() {
            self.cleaning += 1;
            return Some(Next::Sleep(LOOK_MS));
        }
        let next = self.looks.once_more();
        if next.is_none() {
            *self = Asked::default();
        }
        next
    }
}

/// Memory of a gathered request, given back when dropped.
#[derive(Debug)]
pub(crate) struct Input {
    store: Arc<larder_store::Store>,
    /// The account of unauthenticated clients, if the client is one.
    unauthenticated: Option<Arc<Unauthenticated>>,
    bytes: u64,
    /// Whether the request is whole: then its bytes are held, but no longer on their way in.
    whole: bool,
}

impl Input {
    /// Holds a whole request, or the rest of one, that is kept until it is answered. `None` if it has more than `max` bytes, or
    /// there is no room for it.
    pub fn kept(store: &Arc<larder_store::Store>, bytes: u64, max: u64) -> Option<Input> {
        let mut input = Input::new(store, None);
        let kept = input.raise(bytes, max);
        input.arrived();
        kept.then_some(input)
    }

    /// Holds nothing yet. `unauthenticated` is set for a client that has not logged in.
    pub fn new(store: &Arc<larder_store::Store>, unauthenticated: Option<&Arc<Unauthenticated>>) -> Input {
        Input { store: Arc::clone(store), unauthenticated: unauthenticated.cloned(), bytes: 0, whole: false }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` in all; false if that would be more than `max`, or with others' more than requests may hold.
    pub fn raise(&mut self, bytes: u64, max: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if bytes > max || !self.store.may_keep_input(self.bytes, more) {
            return false;
        }
        if let Some(unauthenticated) = &self.unauthenticated {
            if unauthenticated.bytes() + more > self.store.input_bytes_max() / UNAUTHENTICATED_SHARE {
                return false;
            }
            unauthenticated.hold(more as i64);
        }
        self.store.hold(more as i64);
        self.store.note_input(more as i64);
        self.bytes += more;
        true
    }

    /// Notes that the request is whole, and kept until it is answered. It is no longer among the unfinished requests, which
    /// others may have closed for their memory.
    pub fn arrived(&mut self) {
        if !self.whole {
            self.whole = true;
            self.store.note_input(-(self.bytes as i64));
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(unauthenticated) = &self.unauthenticated {
            unauthenticated.hold(-(self.bytes as i64));
        }
        if !self.whole {
            self.store.note_input(-(self.bytes as i64));
        }
        self.store.hold(-(self.bytes as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_bytes_are_limited_together_and_given_back() {
        let store = larder_store::Store::new(larder_store::Config::default()).unwrap();
        let max = store.input_bytes_max();
        let held = || Input::new(&store, None);
        let (mut one, mut two) = (held(), held());
        assert!(one.raise(max * 3 / 4, max));
        assert!(!two.raise(max / 4 + 1, max));
        assert!(two.raise(max / 4, max));
        assert_eq!((store.held_bytes(), store.input_bytes()), (max, max));
        assert!(one.raise(max, max), "beside a quarter of the share one may be larger");
        assert!(!one.raise(max + 1, max), "but not larger than one may be");
        assert!(!two.raise(max / 4 + 1, max));
        one.arrived();
        assert!(store.held_bytes() >= max && store.input_bytes() <= max / 4);
        drop((one, two));
        assert_eq!((store.held_bytes(), store.input_bytes()), (0, 0));
    }

    #[test]
    fn unauthenticated_clients_gather_a_quarter_of_what_requests_may_hold() {
        let store = larder_store::Store::new(larder_store::Config::default()).unwrap();
        let (all, max) = (Arc::default(), store.input_bytes_max());
        let (mut one, mut two) = (Input::new(&store, Some(&all)), Input::new(&store, Some(&all)));
        assert!(one.raise(max / 8, max) && two.raise(max / 8, max));
        assert!(!one.raise(max / 8 + 1, max));
        assert!(Input::new(&store, None).raise(max / 2, max), "others gather more");
        drop(two);
        assert!(one.raise(max / 4, max) && !one.raise(max / 4 + 1, max));
        drop(one);
        assert_eq!((all.bytes(), store.input_bytes()), (0, 0));
    }
}
