//! Large values on their way in: received straight into the item that they will be.
//!
//! ```text
//! *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n | value … | \r\n
//!                                            ▲ Upload begins here; the store takes memory as bytes come
//! ```
//!
//! For SET without options and for SETEX and PSETEX, whose value comes last: all that decides where it
//! is stored is known before it. Other long requests are gathered, see [`super::gather`].

use larder_protocol::resp::Partial;
use larder_store::{Attributes, Expect, Spaces, Upload};

use super::gather::Discard;
use super::turn::Turn;
use crate::core::context::Context;
use crate::core::input::{Looks, UPLOAD_RECEIVE_BYTES, UPLOAD_SPACE_MIN};
use crate::core::progress::Next;
use crate::redis::call::KEY_BYTES_MAX;
use crate::redis::connection::client::Facts;
use crate::redis::fail::Fail;
use crate::redis::keys::expiry::{Clock, deadline};
use crate::redis::session::{Conversation, State};
use crate::redis::table::{self, RowId};

/// A value on its way in, for a key that is overwritten whatever it has.
#[derive(Debug)]
pub(crate) struct Incoming {
    upload: Upload,
    row: RowId,
    looks: Looks,
}

impl Incoming {
    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.upload.held_bytes()
    }
}

impl Conversation {
    /// Begins to receive the value of the request whose start is at `turn.at`; false if it is not one
    /// whose value can be received into its item.
    #[cold]
    pub(crate) fn begin_upload(&mut self, turn: &mut Turn<'_, '_, '_, '_>, partial: Partial) -> bool {
        let input = &turn.input[turn.at..];
        let (Some(count), Some((value_bytes, start))) = (partial.count(), partial.under_way(input)) else {
            return false;
        };
        if partial.read() + 1 != count || !self.is_read_ahead(turn) {
            return false;
        }
        let mut args = partial.args(input);
        let Some((row, id)) = args.next().and_then(table::find) else { return false };
        let Some(key) = args.next().filter(|key| key.len() <= KEY_BYTES_MAX) else { return false };
        let clock = match (row.name, count) {
            ("set", 3) => None,
            ("setex", 4) => Some(Clock::Seconds),
            ("psetex", 4) => Some(Clock::Milliseconds),
            _ => return false,
        };
        let mut attributes = Attributes::default();
        if let Some(clock) = clock {
            // What is wrong with it is said when the request is there.
            let time = args.next().unwrap_or_default();
            let Ok(expires_at) = deadline(row.name, time, clock, turn.cx.now()) else { return false };
            attributes.expires_at = expires_at;
        }
        let key = turn.cx.guard.key_in(self.client.db, key);
        let Ok(upload) = turn.cx.guard.upload(&key, value_bytes, &attributes) else { return false };
        turn.at += start;
        self.state = State::Upload(Incoming { upload, row: id, looks: Looks::default() });
        true
    }

    /// Goes on with a value; stores it when it is whole.
    pub(crate) fn upload(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Upload(incoming) = &mut self.state else { return None };
        let Incoming { upload, looks, .. } = incoming;
        while upload.missing() > 0 {
            let rest = &turn.input[turn.at..];
            if rest.is_empty() && !looks.any() {
                return Some(Next::Receive);
            }
            let missing = upload.missing();
            let filled = match &rest[..missing.min(rest.len() as u64) as usize] {
                [] => turn.cx.guard.upload_reserve(upload, 1),
                rest => turn.cx.guard.upload_fill(upload, rest),
            };
            turn.at += (missing - upload.missing()) as usize;
            if filled.is_ok() {
                *looks = Looks::default();
                continue;
            }
            let next = looks.for_upload(turn.cx, upload);
            if next.is_none() {
                self.fail_upload();
            }
            return next;
        }
        // Its line end, whatever that is.
        if turn.input.len() - turn.at < 2 {
            return Some(Next::Receive);
        }
        turn.at += 2;
        turn.left = turn.left.saturating_sub(1);
        let State::Upload(incoming) = std::mem::replace(&mut self.state, State::Ready) else { return None };
        turn.settle_any();
        turn.tally.commands += 1;
        let done = turn.cx.guard.publish(incoming.upload, Expect::Any);
        let fail = done.err().map(|_| Fail::OUT_OF_MEMORY);
        turn.count_single(incoming.row, true, fail.as_ref(), None);
        match &fail {
            None => {
                turn.tally.sets += 1;
                turn.out.put(b"+OK\r\n");
            }
            Some(fail) => turn.call(&mut self.client).fail(fail),
        }
        None
    }

    /// Memory ran out in the middle of a value: the rest is thrown away. The key keeps what it has.
    fn fail_upload(&mut self) {
        if let State::Upload(incoming) = &self.state {
            self.state = State::Discard(Discard::of_value(incoming.upload.missing(), incoming.row));
        }
    }

    /// Where to receive the next bytes of a value, if one is on its way in and more than a little of it is missing.
    pub fn upload_spaces(&mut self, cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        if self.upload_missing() < UPLOAD_SPACE_MIN {
            return None;
        }
        let State::Upload(incoming) = &mut self.state else { return None };
        if cx.guard.upload_reserve(&mut incoming.upload, UPLOAD_RECEIVE_BYTES).is_err() {
            if incoming.looks.for_upload(cx, &incoming.upload).is_none() {
                self.fail_upload();
            }
            return None;
        }
        match &mut self.state {
            State::Upload(incoming) => Some(incoming.upload.spaces()),
            _ => None,
        }
    }

    /// Bytes that the value on its way in misses.
    pub fn upload_missing(&self) -> u64 {
        match &self.state {
            State::Upload(incoming) => incoming.upload.missing(),
            _ => 0,
        }
    }

    /// Says that `bytes` of [`Conversation::upload_spaces`] were filled.
    pub fn upload_filled(&mut self, bytes: usize) {
        if let State::Upload(incoming) = &mut self.state {
            incoming.upload.advance(bytes);
            Facts::raise(&self.client.facts.received_bytes, bytes as u64);
        }
    }
}
