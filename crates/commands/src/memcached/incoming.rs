//! Values on their way in that are longer than is waited for: received into their item, or, when they
//! are to be added to one, gathered until they are whole.

use larder_protocol::classic::{Store, StoreVerb};
use larder_protocol::meta::Verb;
use larder_store::{End, Expect, Key, Lookup, Millis, Upload};
use std::sync::Arc;

use super::classic::{self, add, attributes, put_stored};
use super::join;
use super::meta::{Plan, finish_set, set as set_at_once};
use super::table::{Command, row_of_meta, row_of_store};
use super::told::Before;
use super::verbs::{NO_CLASS, Outcome, account, class_compared};
use super::watch::Asked;
use crate::core::context::Context;
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
}

impl Purpose {
    /// The row of its command.
    pub fn row(&self) -> &'static Command {
        match self {
            Purpose::Classic(store) => row_of_store(store.verb),
            Purpose::Meta(_) => row_of_meta(Verb::Set),
        }
    }

    /// What it asks to store, for those who watch.
    pub fn asked(&self, now: Millis, key: &Key<'_>, value_bytes: u64) -> Asked {
        match self {
            Purpose::Classic(store) => Asked::of_store(store, now, key, value_bytes),
            Purpose::Meta(plan) => plan.asked(key, value_bytes),
        }
    }

    /// A failure goes unsaid.
    pub fn is_silent(&self) -> bool {
        match self {
            Purpose::Classic(store) => store.noreply,
            Purpose::Meta(_) => false,
        }
    }

    /// What stands behind the value.
    pub fn end(&self) -> &'static [u8] {
        match self {
            Purpose::Classic(_) | Purpose::Meta(_) => b"\r\n",
        }
    }

    /// Bytes of a value's block, its end among them.
    pub fn block_bytes(&self, value_bytes: u64) -> u64 {
        value_bytes + self.end().len() as u64
    }

    /// What is there is to be overwritten whatever it is, so that a failure must remove it.
    pub fn overwrites(&self) -> bool {
        match self {
            Purpose::Classic(store) => store.verb == StoreVerb::Set,
            Purpose::Meta(_) => true,
        }
    }

    /// Where an append or prepend adds.
    pub fn adds_to(&self) -> End {
        match self {
            Purpose::Classic(store) if store.verb == StoreVerb::Prepend => End::Front,
            Purpose::Classic(_) => End::Back,
            Purpose::Meta(plan) => plan.end(),
        }
    }

    /// The token that the item must have for it.
    pub fn compares_with(&self) -> Option<u64> {
        match self {
            Purpose::Classic(_) => None,
            Purpose::Meta(plan) => plan.compares_with(),
        }
    }

    /// The token that the item is given instead of the next.
    pub fn token(&self) -> Option<u64> {
        match self {
            Purpose::Classic(_) => None,
            Purpose::Meta(plan) => plan.attributes.cas,
        }
    }

    /// Append or prepend.
    pub fn concats(&self) -> bool {
        match self {
            Purpose::Classic(store) => matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend),
            Purpose::Meta(plan) => plan.concats(),
        }
    }
}

/// A classic store whose condition does not hold already, before anything is allocated.
pub(crate) fn refused_early(cx: &mut Context<'_, '_>, key: &Key<'_>, store: &Store<'_>) -> Option<Outcome> {
    let expect = classic::expect(store, &cx.shared.settings);
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
    pub looks: Looks,
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

    /// There was no memory for `bytes` more: whether they are waited for.
    pub fn looks_again(&mut self, cx: &Context<'_, '_>, bytes: usize) -> Option<Next> {
        let room = self.room_for(bytes.min(self.missing())) as u64;
        self.looks.for_input(cx, &self.input, room)
    }

    /// Takes what is there of `bytes` and returns how many; none if there is no memory for them.
    pub fn take(&mut self, shared: &Shared, bytes: &[u8]) -> Option<usize> {
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

    /// Adds the whole value, and replies; or has that done in steps.
    pub fn finish(self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) {
        let key = cx.guard.key(&self.key);
        let old_bytes = cx.guard.peek(&key).hit().map_or(0, |item| item.value_bytes());
        if join::is_long(cx, old_bytes, self.value.len() as u64) {
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
        }
        follow_stored(cx, &key);
        let asked = self.purpose.asked(cx.now(), &key, self.value.len() as u64);
        before.tell_stored(cx, self.purpose.row(), key.bytes(), Some(asked));
    }
}
