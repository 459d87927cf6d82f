//! Values on their way in that are too long to be waited for. They are received into their item, or, when they are to be added
//! to another value, gathered until they are whole.

use larder_protocol::classic::StoreVerb;
use larder_store::{Expect, Key, Lookup, Upload};
use std::sync::Arc;

use super::classic::{self, add, attributes, put_stored};
use super::join;
use super::purpose::Purpose;
use super::told::Before;
use super::verbs::{
    Ended, InSteps, NO_CLASS, Outcome, StorePlan, WholeValue, account, class_compared, class_there, finish,
    is_long, store as store_whole,
};
use crate::core::context::Context;
use crate::core::counters::Counter;
use crate::core::input::{Input, Looks};
use crate::core::output::Output;
use crate::core::progress::Next;
use crate::core::shared::Shared;
use crate::core::tally::Tally;
use crate::core::traffic;

/// A long value that begins to arrive.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It goes into its item.
    Upload { upload: Upload, purpose: Purpose },
    /// It is gathered.
    Gather(Gathering),
    /// It is not wanted.
    Refused { outcome: Outcome, purpose: Purpose },
}

/// Begins to receive a long value.
pub(crate) fn begin(
    cx: &mut Context<'_, '_>,
    tally: &mut Tally,
    key: &Key<'_>,
    value_bytes: u32,
    purpose: Purpose,
) -> Begun {
    if purpose.concats() {
        return Begun::Gather(Gathering::new(cx.guard.store(), key.bytes(), value_bytes, purpose));
    }
    let value_bytes = u64::from(value_bytes);
    let attributes = match &purpose {
        Purpose::Classic(store) => {
            let attributes = attributes(store, cx.now());
            if let Some(outcome) = refused_early(cx, key, classic::expect(store, &cx.shared.settings)) {
                let class = attributes.class(key, value_bytes);
                let compared = (store.verb == StoreVerb::Cas).then(|| class_there(cx, key));
                account(cx, tally, key, Ended { outcome, class, compared, overwrites: false });
                return Begun::Refused { outcome, purpose };
            }
            attributes
        }
        Purpose::Meta(plan) => plan.attributes,
        Purpose::Binary(plan) => {
            if let Some(outcome) = refused_early(cx, key, plan.expect()) {
                let class = plan.attributes.class(key, value_bytes);
                let compared = plan.compares().then(|| class_there(cx, key));
                account(cx, tally, key, Ended { outcome, class, compared, overwrites: false });
                return Begun::Refused { outcome, purpose };
            }
            plan.attributes
        }
    };
    match cx.guard.upload(key, value_bytes, &attributes) {
        Ok(upload) => Begun::Upload { upload, purpose },
        Err(_) => {
            no_memory(cx, key, &purpose);
            Begun::Refused { outcome: Outcome::NoMemory, purpose }
        }
    }
}

/// Counts that there is no memory for a value. The value that it was to overwrite is removed, too.
pub(crate) fn no_memory(cx: &mut Context<'_, '_>, key: &Key<'_>, purpose: &Purpose) {
    cx.counters.add(Counter::StoreNoMemory, 1);
    if purpose.overwrites() {
        // It may not be there: that is as good.
        let _ = cx.guard.delete(key, Expect::Present);
    }
}

/// The progress of a long value.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It is whole.
    Whole,
    /// The connection's next step.
    Next(Next),
    /// There is no memory for it.
    Failed,
}

/// Fills a value's item with the input from `at` on. `at` moves behind the bytes that were taken.
pub(crate) fn fill(
    cx: &mut Context<'_, '_>,
    upload: &mut Upload,
    looks: &mut Looks,
    input: &[u8],
    at: &mut usize,
) -> Arrival {
    while upload.missing() > 0 {
        let rest = &input[*at..];
        if rest.is_empty() && !looks.any() {
            return Arrival::Next(Next::Receive);
        }
        if let Some(next) = looks.for_mapping(cx, upload) {
            return Arrival::Next(next);
        }
        let missing = upload.missing();
        let rest = &rest[..missing.min(rest.len() as u64) as usize];
        let filled = match rest {
            [] => cx.guard.upload_reserve(upload, 1),
            rest => cx.guard.upload_fill(upload, rest),
        };
        *at += (missing - upload.missing()) as usize;
        if filled.is_ok() {
            *looks = Looks::default();
            continue;
        }
        return looks.for_upload(cx, upload).map_or(Arrival::Failed, Arrival::Next);
    }
    Arrival::Whole
}

/// The outcome of a store whose condition already fails, before anything is allocated; `None` if it holds.
pub(crate) fn refused_early(cx: &mut Context<'_, '_>, key: &Key<'_>, expect: Expect) -> Option<Outcome> {
    match (expect, cx.guard.peek(key)) {
        (Expect::Any, _) => None,
        (Expect::Absent, Lookup::Hit(_)) => Some(Outcome::NotStored),
        (Expect::Cas(_), Lookup::Hit(item)) if item.is_collection() => Some(Outcome::NotFound),
        (Expect::Cas(cas), Lookup::Hit(item)) if cas != item.cas() => Some(Outcome::Exists),
        (_, Lookup::Hit(_)) | (Expect::Absent, _) => None,
        (Expect::Cas(_), _) => Some(Outcome::NotFound),
        (Expect::Present | Expect::Unchanged(_), _) => Some(Outcome::NotStored),
    }
}

/// Stores an upload whose bytes are all there, and replies.
pub(crate) fn publish(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    upload: Upload,
    value_bytes: u64,
    purpose: &Purpose,
) {
    let mut room = [0; larder_protocol::classic::KEY_BYTES_MAX];
    let bytes = upload.key().len();
    room[..bytes].copy_from_slice(upload.key());
    let key = cx.guard.key(&room[..bytes]);
    let before = Before::look(cx, key.bytes());
    match purpose {
        Purpose::Classic(store) => {
            let expect = classic::expect(store, &cx.shared.settings);
            let class = attributes(store, cx.now()).class(&key, value_bytes);
            let compared = (store.verb == StoreVerb::Cas).then(|| class_compared(cx, &key));
            let outcome = match compared {
                Some(NO_CLASS) => Outcome::NotFound,
                _ => classic::outcome(cx.guard.publish(upload, expect), store, value_bytes),
            };
            account(cx, tally, &key, Ended { outcome, class, compared, overwrites: purpose.overwrites() });
            put_stored(out, outcome, store.noreply);
        }
        Purpose::Meta(plan) => finish(cx, out, tally, plan, &key, upload),
        Purpose::Binary(plan) => finish(cx, out, tally, plan, &key, upload),
    }
    follow_stored(cx, &key);
    let asked = purpose.asked(cx.now(), &key, value_bytes);
    before.tell_stored(cx, purpose.row(), key.bytes(), Some(asked));
}

/// Records a store of a value that did not come at once, if its key is followed.
fn follow_stored(cx: &mut Context<'_, '_>, key: &Key<'_>) {
    let tap = cx.room.tap();
    if tap.follows(key) {
        traffic::follow(tap, &mut cx.guard, key, traffic::Verb::Write);
    }
}

/// Bytes to be added to a value, gathered while they arrive. They take memory as they come, not as they are announced, out of
/// the part that all such values may take together.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub key: Box<[u8]>,
    pub purpose: Purpose,
    value: Vec<u8>,
    value_bytes: usize,
    input: Input,
    looks: Looks,
}

impl Gathering {
    pub fn new(
        store: &Arc<larder_store::Store>,
        key: &[u8],
        value_bytes: u32,
        purpose: Purpose,
    ) -> Gathering {
        Gathering {
            key: key.into(),
            purpose,
            value: Vec::new(),
            value_bytes: value_bytes as usize,
            input: Input::new(store, None),
            looks: Looks::default(),
        }
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.input.bytes()
    }

    /// Bytes still to come.
    pub fn missing(&self) -> usize {
        self.value_bytes - self.value.len()
    }

    /// Bytes that it has to hold for so many more.
    fn room_for(&self, more: usize) -> usize {
        (self.value.len() + more).next_power_of_two().min(self.value_bytes)
    }

    /// Takes the input from `at` on. `at` moves behind the bytes that were taken.
    pub fn fill(&mut self, cx: &Context<'_, '_>, input: &[u8], at: &mut usize) -> Arrival {
        let rest = &input[*at..];
        match self.take(cx.shared, rest) {
            Some(taken) => {
                self.looks = Looks::default();
                *at += taken;
                if self.missing() > 0 { Arrival::Next(Next::Receive) } else { Arrival::Whole }
            }
            None => match self.looks_again(cx, rest.len()) {
                Some(next) => Arrival::Next(next),
                None => {
                    cx.counters.add(Counter::StoreNoMemory, 1);
                    Arrival::Failed
                }
            },
        }
    }

    /// There was no memory for `bytes` more: returns how it waits for them, if it does.
    fn looks_again(&mut self, cx: &Context<'_, '_>, bytes: usize) -> Option<Next> {
        let room = self.room_for(bytes.min(self.missing())) as u64;
        self.looks.for_input(cx, &self.input, room)
    }

    /// Takes `bytes`, as far as they are wanted, and returns how many; `None` if there is no memory for them.
    fn take(&mut self, shared: &Shared, bytes: &[u8]) -> Option<usize> {
        let taken = bytes.len().min(self.missing());
        let room = self.room_for(taken);
        if room > self.value.capacity() {
            if !self.input.raise(room as u64, shared.settings.append_bytes_max) {
                return None;
            }
            self.value.reserve_exact(room - self.value.len());
        }
        self.value.extend_from_slice(&bytes[..taken]);
        Some(taken)
    }

    /// Bytes that have arrived.
    pub fn bytes(&self) -> usize {
        self.value.len()
    }

    /// Adds the whole value, and replies; or leaves that to steps.
    pub fn finish(self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) {
        // The charge for the bytes is given back at the end.
        let Gathering { key: name, purpose, value, input, .. } = self;
        let key = cx.guard.key(&name);
        let old_bytes = cx.guard.peek(&key).hit().map_or(0, |item| item.value_bytes());
        if is_long(cx, old_bytes, value.len() as u64) {
            return join::begin(cx, out, name, value, purpose, input);
        }
        let before = Before::look(cx, key.bytes());
        let (row, asked) = (purpose.row(), purpose.asked(cx.now(), &key, value.len() as u64));
        let hint = cx.guard.prefetch_bucket(&key);
        let whole = WholeValue { key: &key, hint: &hint, value: &value };
        let done = match &purpose {
            Purpose::Classic(store) => add(cx, out, tally, &key, store, &value),
            Purpose::Meta(plan) => store_whole(cx, out, tally, plan, whole),
            Purpose::Binary(plan) => store_whole(cx, out, tally, plan, whole),
        };
        if let Err(InSteps) = done {
            join::add(cx, out, tally, &key, &value, purpose);
        }
        follow_stored(cx, &key);
        before.tell_stored(cx, row, key.bytes(), Some(asked));
    }
}
