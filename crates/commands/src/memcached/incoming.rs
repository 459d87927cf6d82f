//! Values on their way in that are longer than is waited for: received into their item, or, when they
//! are to be added to one, gathered until they are whole.

use larder_protocol::classic::{Store, StoreVerb};
use larder_protocol::meta::Verb;
use larder_store::{End, Expect, Key, Lookup, Millis, Upload};
use std::sync::Arc;

use super::asked::Asked;
use super::classic::{self, add, attributes, put_stored};
use super::frames;
use super::join;
use super::meta::{Plan, finish_set, set as set_at_once};
use super::table::{Command, row_of_meta, row_of_store};
use super::told::Before;
use super::verbs::{NO_CLASS, Outcome, account, class_compared, class_there, is_long};
use crate::core::context::Context;
use crate::core::counters::Counter;
use crate::core::input::{Input, Looks};
use crate::core::output::Output;
use crate::core::progress::Next;
use crate::core::shared::Shared;
use crate::core::tally::Tally;
use crate::core::traffic;

/// What a value is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A classic store; its key is kept elsewhere.
    Classic(Store<'static>),
    /// ms
    Meta(Plan),
    /// A frame of the binary protocol.
    Binary(frames::Plan),
}

impl Purpose {
    /// The row of its command.
    pub fn row(&self) -> &'static Command {
        match self {
            Purpose::Classic(store) => row_of_store(store.verb),
            Purpose::Meta(_) => row_of_meta(Verb::Set),
            Purpose::Binary(plan) => plan.row(),
        }
    }

    /// What it asks to store, for watchers.
    pub fn asked(&self, now: Millis, key: &Key<'_>, value_bytes: u64) -> Asked {
        match self {
            Purpose::Classic(store) => Asked::of_store(store.verb, &attributes(store, now), key, value_bytes),
            Purpose::Meta(plan) => plan.asked(key, value_bytes),
            Purpose::Binary(plan) => plan.asked(key, value_bytes),
        }
    }

    /// A failure goes unsaid.
    pub fn is_silent(&self) -> bool {
        match self {
            Purpose::Classic(store) => store.noreply,
            Purpose::Meta(_) | Purpose::Binary(_) => false,
        }
    }

    /// What stands behind the value.
    pub fn end(&self) -> &'static [u8] {
        match self {
            Purpose::Classic(_) | Purpose::Meta(_) => b"\r\n",
            Purpose::Binary(_) => b"",
        }
    }

    /// Bytes of a value's block, its end among them.
    pub fn block_bytes(&self, value_bytes: u64) -> u64 {
        value_bytes + self.end().len() as u64
    }

    /// The store overwrites whatever is there, so that a failure must remove that.
    pub fn overwrites(&self) -> bool {
        match self {
            Purpose::Classic(store) => store.verb == StoreVerb::Set,
            Purpose::Meta(_) => true,
            Purpose::Binary(plan) => plan.overwrites(),
        }
    }

    /// Where an append or prepend adds.
    pub fn adds_to(&self) -> End {
        match self {
            Purpose::Classic(store) if store.verb == StoreVerb::Prepend => End::Front,
            Purpose::Classic(_) => End::Back,
            Purpose::Meta(plan) => plan.end(),
            Purpose::Binary(plan) => plan.end(),
        }
    }

    /// The token that the item must have for it.
    pub fn compares_with(&self) -> Option<u64> {
        match self {
            Purpose::Classic(_) => None,
            Purpose::Meta(plan) => plan.compares_with(),
            Purpose::Binary(plan) => plan.compares_with(),
        }
    }

    /// The token that the item is given instead of the next.
    pub fn token(&self) -> Option<u64> {
        match self {
            Purpose::Classic(_) | Purpose::Binary(_) => None,
            Purpose::Meta(plan) => plan.attributes.cas,
        }
    }

    /// Append or prepend.
    pub fn concats(&self) -> bool {
        match self {
            Purpose::Classic(store) => matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend),
            Purpose::Meta(plan) => plan.concats(),
            Purpose::Binary(plan) => plan.concats(),
        }
    }
}

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
                account(cx, tally, key, outcome, class, compared, false);
                return Begun::Refused { outcome, purpose };
            }
            attributes
        }
        Purpose::Meta(plan) => plan.attributes,
        Purpose::Binary(plan) => {
            if let Some(outcome) = refused_early(cx, key, plan.expect()) {
                let class = plan.attributes.class(key, value_bytes);
                let compared = plan.compares().then(|| class_there(cx, key));
                account(cx, tally, key, outcome, class, compared, false);
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

/// Without memory for a value, the one that it was to overwrite goes too.
pub(crate) fn no_memory(cx: &mut Context<'_, '_>, key: &Key<'_>, purpose: &Purpose) {
    cx.counters.add(Counter::StoreNoMemory, 1);
    if purpose.overwrites() {
        // It may not be there: that is as good.
        let _ = cx.guard.delete(key, Expect::Present);
    }
}

/// How a long value goes on.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It is whole.
    Whole,
    /// What the connection does next.
    Next(Next),
    /// There is no memory for it.
    Failed,
}

/// Fills a value's item with what is there of the input from `at` on, which moves behind it.
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

/// The outcome of a store whose condition does not hold already, before anything is allocated.
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
            account(cx, tally, &key, outcome, class, compared, purpose.overwrites());
            put_stored(out, outcome, store.noreply);
        }
        Purpose::Meta(plan) => {
            finish_set(cx, out, tally, &key, plan, value_bytes, |cx, expect| {
                cx.guard.publish(upload, expect)
            });
        }
        Purpose::Binary(plan) => {
            frames::finish(cx, out, tally, &key, plan, value_bytes, |cx, expect| {
                cx.guard.publish(upload, expect)
            });
        }
    }
    follow_stored(cx, &key);
    let asked = purpose.asked(cx.now(), &key, value_bytes);
    before.tell_stored(cx, purpose.row(), key.bytes(), Some(asked));
}

/// A value was stored that did not come at once: its key may be followed.
fn follow_stored(cx: &mut Context<'_, '_>, key: &Key<'_>) {
    let tap = cx.room.tap();
    if tap.follows(key) {
        traffic::follow(tap, &mut cx.guard, key, traffic::Verb::Write);
    }
}

/// Bytes to be added to a value, gathered while they arrive. They take memory as they come, not as
/// they are announced, out of what all such values may take together.
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

    /// Takes what is there of the input from `at` on, which moves behind it.
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

    /// There was no memory for `bytes` more: whether they are waited for.
    fn looks_again(&mut self, cx: &Context<'_, '_>, bytes: usize) -> Option<Next> {
        let room = self.room_for(bytes.min(self.missing())) as u64;
        self.looks.for_input(cx, &self.input, room)
    }

    /// Takes what is there of `bytes` and returns how many; none if there is no memory for them.
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

    /// Adds the whole value, and replies; or has that done in steps.
    pub fn finish(self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) {
        let key = cx.guard.key(&self.key);
        let old_bytes = cx.guard.peek(&key).hit().map_or(0, |item| item.value_bytes());
        if is_long(cx, old_bytes, self.value.len() as u64) {
            let Gathering { key, purpose, value, input, .. } = self;
            return join::begin_gathered(cx, out, key, value, purpose, input);
        }
        let before = Before::look(cx, key.bytes());
        match &self.purpose {
            Purpose::Classic(store) => add(cx, out, tally, &key, store, &self.value),
            Purpose::Meta(plan) => {
                let hint = cx.guard.prefetch_bucket(&key);
                set_at_once(cx, out, tally, &key, &hint, plan, &self.value);
            }
            Purpose::Binary(plan) => {
                let hint = cx.guard.prefetch_bucket(&key);
                frames::store(cx, out, tally, &key, &hint, plan, &self.value);
            }
        }
        follow_stored(cx, &key);
        let asked = self.purpose.asked(cx.now(), &key, self.value.len() as u64);
        before.tell_stored(cx, self.purpose.row(), key.bytes(), Some(asked));
    }
}
