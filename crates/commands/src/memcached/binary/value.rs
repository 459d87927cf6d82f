//! Values that are not simply at hand: too large, or still on their way in.

use larder_protocol::binary::{Frame, Status};
use larder_store::Spaces;

use super::execute::pass_key;
use super::{Conversation, Next, State, Turn};
use crate::core::context::Context;
use crate::core::input::{Looks, UPLOAD_SPACE_MIN};
use crate::core::output::Output;
use crate::core::traffic::Verb;
use crate::core::watchers::stream;
use crate::memcached::asked::tell_too_large;
use crate::memcached::frames::Plan;
use crate::memcached::incoming::{Arrival, Begun, begin, fill, no_memory, publish};
use crate::memcached::purpose::Purpose;
use crate::memcached::verbs;

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

    /// Begins a store whose value is too large, or not all there. The input is at its value.
    pub(super) fn block(&mut self, turn: &mut Turn<'_, '_, '_, '_>, frame: &Frame<'_>) {
        let Turn { cx, out, tally, .. } = turn;
        let (key, value_bytes) = (cx.guard.key(frame.key), frame.value_bytes);
        let plan = Plan::new(cx, frame).expect("it stores");
        pass_key(cx, &key, Verb::Write);
        cx.shared.prefixes.count(cx.room.prefixes(), cx.guard.store(), frame.key, |count| count.sets += 1);
        let flags = plan.attributes.flags;
        if !verbs::fits(&cx.shared.settings, frame.key.len(), flags, u64::from(value_bytes)) {
            verbs::count_too_large(cx, &key, plan.overwrites());
            if cx.shared.watchers.wants(stream::MUTATIONS) {
                tell_too_large(cx, frame.key, plan.row().name);
            }
            plan.put_status(out, Status::TooLarge);
            self.state = State::Swallow(u64::from(value_bytes));
            return;
        }
        self.state = match begin(cx, tally, &key, value_bytes, Purpose::Binary(plan)) {
            Begun::Gather(gathering) => State::Gather(gathering),
            Begun::Upload { upload, purpose } => {
                let value_bytes = u64::from(value_bytes);
                State::Upload { upload, value_bytes, purpose, looks: Looks::default() }
            }
            Begun::Refused { outcome, .. } => {
                plan.answer(cx, out, outcome);
                State::Swallow(u64::from(value_bytes))
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
                self.fail_upload(turn.cx, turn.out);
                return None;
            }
        }
        if let State::Upload { upload, value_bytes, purpose, .. } = std::mem::take(&mut self.state) {
            publish(turn.cx, turn.out, &mut turn.tally, upload, value_bytes, &purpose);
            turn.times.one_ends(turn.cx, purpose.row());
        }
        None
    }

    /// Ends an upload for which memory ran out.
    fn fail_upload(&mut self, cx: &mut Context<'_, '_>, out: &mut Output) {
        if let State::Upload { upload, purpose, .. } = std::mem::take(&mut self.state) {
            no_memory(cx, &cx.guard.key(upload.key()), &purpose);
            if let Purpose::Binary(plan) = &purpose {
                plan.put_no_memory_during_read(out);
            }
            self.state = State::Swallow(upload.missing());
        }
    }

    /// Goes on with a value to be added to another.
    pub(super) fn gather(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Gather(gathering) = &mut self.state else { return None };
        match gathering.fill(turn.cx, turn.reader.input, &mut turn.reader.at) {
            Arrival::Whole => {}
            Arrival::Next(next) => return Some(next),
            Arrival::Failed => {
                if let Purpose::Binary(plan) = &gathering.purpose {
                    plan.answer(turn.cx, turn.out, verbs::Outcome::NoMemory);
                }
                self.state = State::Swallow(gathering.missing() as u64);
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
        if let State::Gather(gathering) = std::mem::take(&mut self.state) {
            let row = gathering.purpose.row();
            let (room, again) = (turn.cx.room, turn.cx.guard.ask_again(false));
            room.for_the_last_time(|| gathering.finish(turn.cx, turn.out, &mut turn.tally));
            turn.cx.guard.ask_again(again);
            turn.times.one_ends(turn.cx, row);
            turn.again_at = turn.reader.at;
        }
        None
    }
}
