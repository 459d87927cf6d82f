//! Values that are not simply at hand: too large, broken, or still on their way in.

use larder_protocol::Fault;
use larder_store::{Key, Spaces};

use super::{Conversation, Next, State, Turn};
use crate::core::context::Context;
use crate::core::input::{Looks, UPLOAD_SPACE_MIN};
use crate::core::watchers::stream;
use crate::memcached::asked::tell_too_large;
use crate::memcached::batch::Block;
use crate::memcached::classic;
use crate::memcached::incoming::{Arrival, Begun, begin, fill, no_memory, publish};
use crate::memcached::join;
use crate::memcached::purpose::Purpose;
use crate::memcached::text::{NO_MEMORY, NO_MEMORY_DURING_READ, TOO_LARGE};
use crate::memcached::told::Before;
use crate::memcached::verbs::{self, InSteps, WholeValue};

impl Conversation {
    /// The space for the next bytes of a large value, straight in its item and in order; `None` when they belong in a buffer.
    pub(super) fn value_spaces(&mut self, cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        if self.value_missing() < UPLOAD_SPACE_MIN {
            return None;
        }
        let State::Upload { upload, looks, .. } = &mut self.state else { return None };
        looks.make_space(cx, upload).then(|| upload.spaces())
    }

    /// Bytes that a large value still misses: what follows them belongs in a buffer again.
    pub(super) fn value_missing(&self) -> u64 {
        match &self.state {
            State::Upload { upload, .. } => upload.missing(),
            _ => 0,
        }
    }

    /// Notes that so many bytes of [`Conversation::value_spaces`] were filled.
    pub(super) fn value_filled(&mut self, bytes: usize) {
        if let State::Upload { upload, .. } = &mut self.state {
            upload.advance(bytes);
        }
    }

    /// Takes a store whose block is too large, broken, not all there, or there for an encoded key.
    pub(super) fn block(
        &mut self,
        turn: &mut Turn<'_, '_, '_, '_>,
        key: &Key<'_>,
        flags: u32,
        value_bytes: u32,
        purpose: Purpose,
        block: Block<'_>,
    ) {
        let left = purpose.block_bytes(u64::from(value_bytes));
        if !verbs::fits(&turn.cx.shared.settings, key.bytes().len(), flags, u64::from(value_bytes)) {
            verbs::count_too_large(turn.cx, key, purpose.overwrites());
            if turn.cx.shared.watchers.wants(stream::MUTATIONS) {
                let asked = purpose.asked(turn.cx.now(), key, u64::from(value_bytes));
                tell_too_large(turn.cx, key.bytes(), asked.cmd);
            }
            self.state = State::Swallow { left, reply: (!purpose.is_silent()).then_some(TOO_LARGE) };
            return;
        }
        match block {
            Block::Whole(value) => {
                turn.reader.at += left as usize;
                let hint = turn.cx.guard.prefetch_bucket(key);
                let before = Before::look(turn.cx, key.bytes());
                let (cx, out, tally) = (&mut *turn.cx, &mut *turn.out, &mut turn.tally);
                let (row, asked) = (purpose.row(), purpose.asked(cx.now(), key, u64::from(value_bytes)));
                let done = match &purpose {
                    Purpose::Classic(store) => classic::store(cx, out, tally, key, &hint, store, value),
                    Purpose::Meta(plan) => {
                        verbs::store(cx, out, tally, plan, WholeValue { key, hint: &hint, value })
                    }
                    Purpose::Binary(_) => unreachable!("it is none of the text's"),
                };
                if let Err(InSteps) = done {
                    join::add(cx, out, tally, key, value, purpose);
                }
                before.tell_stored(cx, row, key.bytes(), Some(asked));
                turn.times.one_ends(turn.cx, row);
            }
            Block::Bad => {
                turn.reader.at += left as usize;
                if !purpose.is_silent() {
                    turn.out.put(Fault::BadChunk.reply());
                }
                if turn.cx.shared.settings.strict_framing {
                    self.close();
                }
            }
            Block::Long => self.begin(turn, key, value_bytes, purpose),
        }
    }

    /// Begins to receive a long value.
    fn begin(&mut self, turn: &mut Turn<'_, '_, '_, '_>, key: &Key<'_>, value_bytes: u32, purpose: Purpose) {
        let left = purpose.block_bytes(u64::from(value_bytes));
        self.state = match begin(turn.cx, &mut turn.tally, key, value_bytes, purpose) {
            Begun::Gather(gathering) => State::Gather(gathering),
            Begun::Upload { upload, purpose } => {
                let value_bytes = u64::from(value_bytes);
                State::Upload { upload, value_bytes, purpose, looks: Looks::default() }
            }
            Begun::Refused { outcome, purpose } => {
                let reply = (!purpose.is_silent()).then_some(classic::stored_reply(outcome));
                State::Swallow { left, reply }
            }
        };
    }

    /// Goes on with a value for its item.
    pub(super) fn upload(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Upload { upload, looks, .. } = &mut self.state else { return None };
        match fill(turn.cx, upload, looks, turn.reader.input, &mut turn.reader.at) {
            Arrival::Whole => {}
            Arrival::Next(next) => return Some(next),
            Arrival::Failed => {
                self.fail_upload(turn.cx);
                return None;
            }
        }
        match self.end_block(turn) {
            Err(next) => return next,
            Ok(State::Upload { upload, value_bytes, purpose, .. }) => {
                publish(turn.cx, turn.out, &mut turn.tally, upload, value_bytes, &purpose);
                turn.times.one_ends(turn.cx, purpose.row());
            }
            Ok(_) => {}
        }
        None
    }

    /// Ends an upload for which memory ran out.
    pub(super) fn fail_upload(&mut self, cx: &mut Context<'_, '_>) {
        if let State::Upload { upload, purpose, .. } = std::mem::take(&mut self.state) {
            no_memory(cx, &cx.guard.key(upload.key()), &purpose);
            let reply = (!purpose.is_silent()).then_some(NO_MEMORY_DURING_READ);
            self.state = State::Swallow { left: purpose.block_bytes(upload.missing()), reply };
        }
    }

    /// Goes on with a value to be added to another.
    pub(super) fn gather(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Gather(gathering) = &mut self.state else { return None };
        match gathering.fill(turn.cx, turn.reader.input, &mut turn.reader.at) {
            Arrival::Whole => {}
            Arrival::Next(next) => return Some(next),
            Arrival::Failed => {
                let reply = (!gathering.purpose.is_silent()).then_some(NO_MEMORY);
                let left = gathering.purpose.block_bytes(gathering.missing() as u64);
                self.state = State::Swallow { left, reply };
                return None;
            }
        }
        // A gathered value is not retried: there must be memory for it before, or none comes.
        let bytes = gathering.bytes();
        if !turn.cx.guard.finds_memory(bytes, 1) {
            if let Some(next) = self.asked.again(turn.cx, 0) {
                return Some(next);
            }
            turn.cx.guard.memory_did_not_come();
        }
        match self.end_block(turn) {
            Err(next) => return next,
            Ok(State::Gather(gathering)) => {
                let row = gathering.purpose.row();
                turn.once(|turn| gathering.finish(turn.cx, turn.out, &mut turn.tally));
                turn.times.one_ends(turn.cx, row);
                turn.again_at = turn.reader.at;
            }
            Ok(_) => {}
        }
        None
    }

    /// Takes the end of the block behind a value that is all there, and the state that held the value.
    ///
    /// # Errors
    /// The end is waited for, or it was wrong, and the next request follows.
    fn end_block(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Result<State, Option<Next>> {
        let purpose = match &self.state {
            State::Upload { purpose, .. } => purpose,
            State::Gather(gathering) => &gathering.purpose,
            _ => return Err(None),
        };
        let wanted = purpose.end();
        let Some(end) = turn.reader.input.get(turn.reader.at..turn.reader.at + wanted.len()) else {
            return Err(Some(Next::Receive));
        };
        turn.reader.at += wanted.len();
        let silent = purpose.is_silent();
        let state = std::mem::replace(&mut self.state, State::Ready);
        if end == wanted {
            return Ok(state);
        }
        if !silent {
            turn.out.put(Fault::BadChunk.reply());
        }
        if turn.cx.shared.settings.strict_framing {
            self.close();
        }
        Err(None)
    }
}
