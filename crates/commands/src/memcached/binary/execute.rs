//! Carries out one frame of a key, by the verb that it asks for.

use larder_protocol::binary::{Head, Request, Status};
use larder_protocol::number::{U64_BYTES_MAX, write_u64};
use larder_store::{Attributes, Expect, Key, Refusal};

use super::Turn;
use super::read::{Staged, row_of};
use crate::core::context::Context;
use crate::core::traffic::{self, READ_NS, Seen, Verb, WRITE_NS};
use crate::core::watchers::stream;
use crate::memcached::frames::{
    Plan, Untold, put_done, put_flags, put_item, put_number, put_status, put_text,
};
use crate::memcached::join;
use crate::memcached::purpose::Purpose;
use crate::memcached::time::expires_at_unsigned;
use crate::memcached::told::Before;
use crate::memcached::verbs::{self, Arithmetic, Changed, Fetched, InSteps, Removal, Removed, WholeValue};

impl Turn<'_, '_, '_, '_> {
    /// Carries out one frame of a batch.
    #[inline]
    pub(super) fn execute(&mut self, staged: &Staged<'_, '_>) {
        if self.cx.shared.events.any() {
            self.execute_and_tell(staged);
        } else {
            self.execute_frame(staged);
        }
        let verb = verb_of(&staged.frame.request);
        pass_key(self.cx, &staged.key, verb);
        done_key(self.cx, &staged.key, verb);
    }

    /// Carries out a frame while keyspace events are wanted: looks at the key before and after.
    #[cold]
    fn execute_and_tell(&mut self, staged: &Staged<'_, '_>) {
        let name = staged.key.bytes();
        let before = Before::look(self.cx, name);
        self.execute_frame(staged);
        let plan = Plan::new(self.cx, &staged.frame).filter(|_| self.cx.shared.watchers.wants(stream::KEYS));
        let asked = plan.map(|plan| plan.asked(&staged.key, staged.value.len() as u64));
        if let Some(row) = row_of(staged.frame.opcode.verb) {
            before.tell_stored(self.cx, row, name, asked);
        }
        self.cx.end_turn_if_due(self.out);
    }

    #[inline]
    fn execute_frame(&mut self, staged: &Staged<'_, '_>) {
        let Staged { key, frame, .. } = staged;
        match frame.request {
            Request::Get => self.get(staged),
            Request::GetAndTouch { exptime } => self.get_and_touch(staged, exptime, true),
            Request::Touch { exptime } => self.get_and_touch(staged, exptime, false),
            Request::Store { .. } | Request::Concat { .. } => {
                let Turn { cx, out, tally, .. } = self;
                let plan = Plan::new(cx, frame).expect("it stores");
                let count = |count: &mut crate::core::prefix::PrefixCount| count.sets += 1;
                cx.shared.prefixes.count(cx.room.prefixes(), cx.guard.store(), key.bytes(), count);
                let whole = WholeValue { key, hint: &staged.hint, value: staged.value };
                if let Err(InSteps) = verbs::store(cx, out, tally, &plan, whole) {
                    join::add(cx, out, tally, key, staged.value, Purpose::Binary(plan));
                }
            }
            Request::Delete => self.delete(staged),
            Request::Arithmetic { decrement, delta, initial } => {
                let by = Arithmetic {
                    delta,
                    decrement,
                    expect_cas: self.expected(frame.cas),
                    cas: None,
                    expires_at: None,
                };
                self.arithmetic(staged, &by, initial);
            }
            Request::Flush { .. }
            | Request::Noop
            | Request::Version
            | Request::Stat
            | Request::Verbosity { .. }
            | Request::Quit
            | Request::SaslList
            | Request::Sasl { .. } => unreachable!("these come as events"),
        }
    }

    /// The token that the item must have; `None` for 0.
    fn expected(&self, cas: u64) -> Option<u64> {
        (cas != 0).then(|| self.cx.shared.settings.token(cas))
    }

    #[inline]
    fn get(&mut self, staged: &Staged<'_, '_>) {
        let Turn { cx, out, tally, .. } = self;
        let (settings, frame) = (&cx.shared.settings, &staged.frame);
        let name = if frame.opcode.with_key { frame.key } else { &[] };
        match verbs::fetch(cx, tally, &staged.key, &staged.hint) {
            Some(item) => {
                if let Err(why) = put_item(out, frame.head, name, &item, |cas| settings.token(cas)) {
                    put_untold(out, frame.head, why);
                }
            }
            None => self.miss(staged),
        }
    }

    /// Answers a miss: the reply has the key where a hit would have it.
    fn miss(&mut self, staged: &Staged<'_, '_>) {
        let (frame, out) = (&staged.frame, &mut *self.out);
        if frame.opcode.quiet {
        } else if frame.opcode.with_key {
            crate::memcached::form::put_frame(out, frame.head, Status::NotFound, frame.key, b"");
        } else {
            put_status(out, frame.head, Status::NotFound);
        }
    }

    /// Carries out gat, or touch, whose reply has the flags alone.
    fn get_and_touch(&mut self, staged: &Staged<'_, '_>, exptime: u32, with_value: bool) {
        let Turn { cx, out, .. } = self;
        let (settings, frame) = (&cx.shared.settings, &staged.frame);
        let name = if frame.opcode.with_key { frame.key } else { &[] };
        let mark = out.mark();
        let mut why = Untold::NoMemory;
        let at = |now| expires_at_unsigned(exptime, now);
        let told = verbs::fetch_and_touch(cx, &staged.key, at, |item| {
            if !with_value {
                put_flags(out, frame.head, item.flags(), settings.token(item.cas()));
                return true;
            }
            let put = put_item(out, frame.head, name, item, |cas| settings.token(cas));
            put.map_err(|untold| why = untold).is_ok()
        });
        match told {
            Fetched::Done => {}
            Fetched::Absent => self.miss(staged),
            Fetched::NoMemory => {
                out.rewind(mark);
                put_untold(out, frame.head, why);
            }
        }
    }

    fn delete(&mut self, staged: &Staged<'_, '_>) {
        let how = Removal { expect_cas: self.expected(staged.frame.cas), ..Removal::default() };
        let Turn { cx, out, .. } = self;
        let (key, head) = (&staged.key, staged.frame.head);
        let removed = verbs::remove(cx, key, &how);
        cx.shared
            .prefixes
            .count(cx.room.prefixes(), cx.guard.store(), key.bytes(), |count| count.deletes += 1);
        match removed {
            Removed::Done if staged.frame.opcode.quiet => {}
            Removed::Done => put_done(out, head, 0),
            Removed::Absent => put_status(out, head, Status::NotFound),
            Removed::OtherCas => put_status(out, head, Status::Exists),
            Removed::NoMemory => put_status(out, head, Status::NoMemory),
        }
    }

    /// Carries out incr or decr. `initial` is the number that is made on a miss, if any, with its exptime.
    fn arithmetic(&mut self, staged: &Staged<'_, '_>, by: &Arithmetic, initial: Option<(u64, u32)>) {
        let Turn { cx, out, .. } = self;
        let (key, head, quiet) = (&staged.key, staged.frame.head, staged.frame.opcode.quiet);
        let (number, cas) = loop {
            match verbs::change(cx, key, by) {
                Changed::Done { value, cas, .. } => break (value, cas),
                Changed::Absent => match initial.filter(|_| !verbs::has_collection(cx, key)) {
                    Some((number, exptime)) => match begin_number(cx, key, number, exptime) {
                        Ok(cas) => break (number, cas),
                        Err(Refusal::NoMemory) if cx.asks_again(out) => return,
                        Err(Refusal::NoMemory) => {
                            return put_text(out, head, Status::NoMemory, NO_MEMORY_FOR_NEW);
                        }
                        Err(Refusal::Present | Refusal::Changed | Refusal::Absent | Refusal::Type) => {}
                    },
                    None => {
                        verbs::count_no_number(cx, by.decrement);
                        return put_status(out, head, Status::NotFound);
                    }
                },
                Changed::OtherCas => return put_status(out, head, Status::Exists),
                Changed::NotANumber => return put_status(out, head, Status::NotANumber),
                Changed::NoMemory if cx.asks_again(out) => return,
                Changed::NoMemory => return put_text(out, head, Status::NoMemory, NO_MEMORY_FOR_NUMBER),
            }
        };
        if !quiet {
            put_number(out, head, number, cx.shared.settings.token(cas));
        }
    }
}

const NO_MEMORY_FOR_NEW: &str = "Out of memory allocating new item";
const NO_MEMORY_FOR_NUMBER: &str = "Out of memory incrementing value";

/// Stores the initial number under a key that has none. Returns its token.
fn begin_number(cx: &mut Context<'_, '_>, key: &Key<'_>, number: u64, exptime: u32) -> Result<u64, Refusal> {
    let mut room = [0; U64_BYTES_MAX];
    let bytes = write_u64(&mut room, number);
    let attributes =
        Attributes { expires_at: expires_at_unsigned(exptime, cx.now()), ..Attributes::default() };
    Ok(cx.guard.store_value(key, &room[..bytes], &attributes, Expect::Absent)?.cas)
}

#[cold]
fn put_untold(out: &mut crate::core::output::Output, head: Head, why: Untold) {
    match why {
        Untold::NoMemory => put_status(out, head, Status::NoMemory),
        Untold::TooLarge => put_status(out, head, Status::TooLarge),
    }
}

/// The kind of request that a frame makes for its key.
fn verb_of(request: &Request) -> Verb {
    match request {
        Request::Store { .. }
        | Request::Concat { .. }
        | Request::Arithmetic { .. }
        | Request::Touch { .. } => Verb::Write,
        Request::Delete => Verb::Delete,
        Request::Get
        | Request::GetAndTouch { .. }
        | Request::Flush { .. }
        | Request::Noop
        | Request::Version
        | Request::Stat
        | Request::Verbosity { .. }
        | Request::Quit
        | Request::SaslList
        | Request::Sasl { .. } => Verb::Read,
    }
}

/// Counts a key that was asked for, which may be sampled then.
#[inline]
pub(super) fn pass_key(cx: &mut Context<'_, '_>, key: &Key<'_>, verb: Verb) {
    if cx.room.tap().pass(1) {
        sample_key(cx, key, verb);
    }
}

#[cold]
fn sample_key(cx: &mut Context<'_, '_>, key: &Key<'_>, verb: Verb) {
    let tap = cx.room.tap();
    if tap.next(1).is_some() {
        let cost_ns = if verb == Verb::Read { READ_NS } else { WRITE_NS };
        let seen = Seen { verb, db: 0, cost_ns };
        traffic::sample(tap, &mut cx.guard, key, seen, verb.text_bytes());
    }
}

/// Records a request that was carried out, if its key is followed.
#[inline]
fn done_key(cx: &mut Context<'_, '_>, key: &Key<'_>, verb: Verb) {
    let tap = cx.room.tap();
    if tap.follows(key) {
        traffic::follow(tap, &mut cx.guard, key, verb);
    }
}
