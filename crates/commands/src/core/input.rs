//! Memory of requests that are on their way in: gathered bytes, and waiting for what others hold.
//!
//! All such requests together may hold a part of the memory ([`larder_store::Store::input_bytes_max`]). One that wants
//! more than is left asks a few times more, while the server closes those that stand still, before it is refused.
//!
//! A request that is whole may wait for memory of the store itself, where some is on its way ([`Asked`]): as often, and up to
//! 5 s more while flushed items are cleaned up.

use std::sync::Arc;

use larder_store::{Millis, Upload};

use super::context::Context;
use super::progress::Next;
use super::unauthenticated::Unauthenticated;

/// Fewer missing bytes than this are received with what follows them, not on their own.
pub(crate) const UPLOAD_SPACE_MIN: u64 = 2048;
/// Memory of a large value is reserved so far ahead of what has arrived. A value of 100 KiB is then
/// received by one call behind the one that brought its head; memory that waits for a slow sender's
/// bytes is no more than this and a piece.
pub(crate) const UPLOAD_RECEIVE_BYTES: usize = 96 << 10;
/// What an upload takes at a time, at most.
const UPLOAD_PIECE_BYTES: u64 = 16 << 10;

/// Requests of unauthenticated clients may hold one part in this many of what all may.
pub const UNAUTHENTICATED_SHARE: u64 = 4;

/// How often a request that waits for memory which others hold looks for it: for about 240 ms, within which requests that stand
/// still are closed.
const LOOKS_MAX: u8 = 24;
/// Time between two.
const LOOK_MS: Millis = 10;
/// How often besides while flushed items are cleaned up, which takes a second or two.
const LOOKS_MAX_CLEANING: u16 = 500;

/// How often a request on its way in has looked in vain for memory that others' requests hold.
#[derive(Debug, Default)]
pub(crate) struct Looks(u8);

impl Looks {
    /// A value on its way into its item got no more memory. If others hold it, it waits; none if that is in vain.
    #[cold]
    pub fn for_upload(&mut self, cx: &Context<'_, '_>, upload: &Upload) -> Option<Next> {
        let may = cx.guard.store().may_take_input(upload.held_bytes(), UPLOAD_PIECE_BYTES);
        self.again(cx, may)
    }

    /// As [`Looks::for_upload`], of a request that is gathered and wants `bytes` in all.
    #[cold]
    pub fn for_input(&mut self, cx: &Context<'_, '_>, input: &Input, bytes: u64) -> Option<Next> {
        let may = cx.guard.store().may_keep_input(input.bytes, bytes.saturating_sub(input.bytes));
        self.again(cx, may)
    }

    /// A request that is whole waits for memory of the store that is on its way; none if it has looked too often.
    #[cold]
    pub fn for_memory(&mut self) -> Option<Next> {
        self.once_more()
    }

    fn again(&mut self, cx: &Context<'_, '_>, may: bool) -> Option<Next> {
        if may {
            // What the store has none of may come.
            return self.once_more().filter(|_| cx.guard.memory_comes());
        }
        let next = self.once_more();
        if next.is_some() {
            cx.shared.want_input();
        }
        next
    }

    /// It waits, if it has not looked too often.
    fn once_more(&mut self) -> Option<Next> {
        if self.0 == LOOKS_MAX {
            return None;
        }
        self.0 += 1;
        Some(Next::Sleep(LOOK_MS))
    }

    /// It waits.
    pub fn any(&self) -> bool {
        self.0 > 0
    }
}

/// A look that comes so long after the last one is another request's: the one before has found some, or is refused.
const ASKED_MS: Millis = 100;

/// How often the first of a connection's requests, or a step of one, was asked again.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    looks: Looks,
    /// The same while what was flushed was found.
    cleaning: u16,
    at: Millis,
}

impl Asked {
    /// The request that begins at `begins` of the input found no memory: if it waits for it, how.
    #[cold]
    pub fn again(&mut self, cx: &Context<'_, '_>, begins: usize) -> Option<Next> {
        let now = cx.now();
        if begins > 0 || now > self.at + ASKED_MS {
            *self = Asked::default();
        }
        self.at = now;
        // What was flushed is memory: it comes for certain.
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

/// Memory of a request that is gathered, given back when dropped.
#[derive(Debug)]
pub(crate) struct Input {
    store: Arc<larder_store::Store>,
    /// Set: the request is of a client that has not logged in.
    unauthenticated: Option<Arc<Unauthenticated>>,
    bytes: u64,
    /// The request is whole: it is held, and on its way in no more.
    whole: bool,
}

impl Input {
    /// Holds a whole request, or the rest of one, that is kept until it is answered; none if it may not be `max`
    /// bytes, or there is no room for it.
    pub fn kept(store: &Arc<larder_store::Store>, bytes: u64, max: u64) -> Option<Input> {
        let mut input = Input::new(store, None);
        let kept = input.raise(bytes, max);
        input.arrived();
        kept.then_some(input)
    }

    /// Holds nothing yet; `unauthenticated`: of a client that has not logged in.
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

    /// The request is whole, and kept until it is answered: it is no longer among the unfinished ones, which others may have
    /// closed for their memory.
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
