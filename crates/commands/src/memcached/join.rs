//! append and prepend to large values, in steps: the old value is pinned, and the new one is stored when it is whole, if the
//! old one is still there.
//!
//! ```text
//! old   |■■■■■■■■■■|          pinned
//! new   |■■■■■■■■■■|bytes|    ◄─ some of it at each step        then, in one step: unchanged? publish, reply
//! ```
//!
//! If it is not, the new value is made anew. After three tries the bytes are added in one step. For readers it is always one
//! step, the last. One connection of a worker makes one value at a time ([`crate::core::work::Work::take_lane`]). A step that
//! finds no memory, though some is on its way, is made once more in some milliseconds.

use larder_store::{Attributes, End, Expect, Key, Pinned, Refusal, Upload, Value};

use crate::core::context::Context;
use crate::core::hold::LOOK_MS;
use crate::core::input::{Asked, Input};
use crate::core::output::Output;
use crate::core::progress::Next;
use crate::core::tally::Tally;
use crate::core::work::{Lane, STEP_NS_MIN, copying_ns};
use crate::memcached::classic;
use crate::memcached::purpose::Purpose;
use crate::memcached::told::Before;
use crate::memcached::verbs::{self, Ended, Outcome, StorePlan, account, fits, string};

/// Times that the new value is made, before the bytes are added in one step.
const TRIES_MAX: u8 = 3;
/// Bytes that are copied between two looks at how much a step has done.
const CHUNK_BYTES: u64 = 16 << 10;

/// Bytes that are to be added to a value.
#[derive(Debug)]
pub(crate) struct Joining {
    key: Box<[u8]>,
    purpose: Purpose,
    value: Vec<u8>,
    tries: u8,
    under_way: Option<UnderWay>,
    /// Retries of its next step.
    asked: Asked,
    /// The wait for memory before its next step, if it waits.
    waits: Option<Next>,
    /// The charge for the bytes.
    _input: Input,
}

/// A value that is being made.
#[derive(Debug)]
struct UnderWay {
    /// The old value, if it is pinned. A small one is copied.
    pinned: Option<Pinned>,
    copied: Vec<u8>,
    seen: Expect,
    upload: Upload,
    lane: Lane,
}

/// Adds bytes to the value of a key in steps; or at once, where there is no memory to keep them meanwhile.
#[cold]
pub(crate) fn add(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    value: &[u8],
    purpose: Purpose,
) {
    let max = cx.shared.settings.append_bytes_max;
    if let Some(input) = Input::kept(cx.guard.store(), value.len() as u64, max) {
        return begin(cx, out, key.bytes().into(), value.to_vec(), purpose, input);
    }
    let outcome = add_at_once(cx, key, &purpose, value);
    cx.end_turn_if_due(out);
    if outcome != Outcome::NoMemory || !cx.asks_again(out) {
        reply(cx, out, tally, key, &purpose, Added { bytes: value.len() as u64, outcome });
    }
}

/// Begins to add bytes that are kept, with their charge. Nothing is replied yet.
pub(crate) fn begin(
    cx: &Context<'_, '_>,
    out: &mut Output,
    key: Box<[u8]>,
    value: Vec<u8>,
    purpose: Purpose,
    mut input: Input,
) {
    input.arrived();
    let (under_way, asked, waits) = (None, Asked::default(), None);
    let joining = Joining { key, purpose, value, tries: 0, under_way, asked, waits, _input: input };
    cx.room.go_on_later(Box::new(joining));
    out.end_turn();
}

impl Joining {
    /// The key of the value.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Goes on; true when it is done and has replied.
    pub fn step(&mut self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) -> bool {
        self.waits = None;
        let (room, asks) = (cx.room, cx.guard.ask_again(false));
        let done = room.for_the_last_time(|| self.go_on(cx, out, tally, asks));
        cx.guard.ask_again(asks);
        done
    }

    /// The pause before its next step. Others of its worker have their turn; or some milliseconds pass, if it waits for memory,
    /// or for a client that has the lane and only waits itself.
    pub fn pause(&self, cx: &Context<'_, '_>) -> Next {
        let waits = self.under_way.is_none() && cx.room.work().lane_rests();
        self.waits.unwrap_or(if waits { Next::Sleep(LOOK_MS) } else { Next::Yield })
    }

    /// Returns whether it waits for memory that is on its way: not if it has waited for long enough. `asks`: it may wait.
    fn comes(&mut self, cx: &mut Context<'_, '_>, asks: bool) -> bool {
        if !asks || !cx.guard.memory_comes() {
            return false;
        }
        self.waits = self.asked.again(cx, 0);
        if self.waits.is_none() {
            cx.guard.memory_ran_out();
        }
        self.waits.is_some()
    }

    fn go_on(&mut self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally, asks: bool) -> bool {
        let (ns_max, mut bytes) = (cx.room.work().left_ns(STEP_NS_MIN), 0);
        let mut under_way = match self.under_way.take() {
            Some(under_way) => {
                under_way.lane.rest(false);
                under_way
            }
            None => {
                let Some(lane) = cx.room.work().take_lane() else {
                    cx.spend(out, STEP_NS_MIN);
                    return false;
                };
                cx.guard.ask_again(asks);
                let begun = self.begin_value(cx, lane);
                cx.guard.ask_again(false);
                match begun {
                    Some(Ok(under_way)) => under_way,
                    Some(Err(_)) if self.comes(cx, asks) => return false,
                    Some(Err(_)) => return self.end(cx, out, tally, |_| Outcome::NoMemory),
                    // There is no value to add to, or it may not be added.
                    None => return self.end_at_once(cx, out, tally),
                }
            }
        };
        let missing = under_way.upload.missing();
        // The old value and its item do not give way to the new one.
        let key = cx.guard.key(&self.key);
        cx.guard.spare(Some(&key));
        cx.guard.ask_again(asks);
        let copied = loop {
            if under_way.upload.missing() == 0 || copying_ns(bytes) >= ns_max {
                break Ok(());
            }
            match self.copy(cx, &mut under_way) {
                Ok(some) => bytes += some,
                Err(refusal) => break Err(refusal),
            }
        };
        cx.guard.ask_again(false);
        cx.guard.spare(None);
        cx.spend(out, copying_ns(bytes));
        let has_copied = under_way.upload.missing() < missing;
        // A step that finds no memory at all waits for it.
        if copied.is_err() && !has_copied {
            if self.comes(cx, asks) {
                under_way.lane.rest(true);
                self.under_way = Some(under_way);
                return false;
            }
            return self.end(cx, out, tally, |_| Outcome::NoMemory);
        }
        self.asked = Asked::default();
        if under_way.upload.missing() > 0 {
            self.under_way = Some(under_way);
            return false;
        }
        let UnderWay { upload, seen, .. } = under_way;
        let value_bytes = upload.value_bytes();
        let mut changed = false;
        let done = self.end_if(cx, out, tally, |cx| match cx.guard.publish(upload, seen) {
            Ok(stored) => Some(Outcome::of_stored(stored, value_bytes)),
            Err(Refusal::NoMemory) => Some(Outcome::NoMemory),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {
                changed = true;
                None
            }
        });
        if !changed {
            return done;
        }
        self.tries += 1;
        self.tries >= TRIES_MAX && self.end_at_once(cx, out, tally)
    }

    /// Begins to make the value of what is there now; `None` if the bytes are to be added at once.
    fn begin_value(&self, cx: &mut Context<'_, '_>, lane: Lane) -> Option<Result<UnderWay, Refusal>> {
        let (key, memory_bytes) = (cx.guard.key(&self.key), cx.guard.store().memory_bytes());
        let item = string(&mut cx.guard, &key)?;
        let old_bytes = item.value_bytes();
        let value_bytes = old_bytes + self.value.len() as u64;
        if self.purpose.compares_with().is_some_and(|cas| cas != item.cas())
            || !fits(&cx.shared.settings, self.key.len(), item.flags(), value_bytes)
            || old_bytes + value_bytes > memory_bytes
        {
            return None;
        }
        // The version is read first: the bytes may be newer than that, never older.
        let seen = Expect::Unchanged(item.seen());
        let attributes = Attributes {
            flags: item.flags(),
            expires_at: item.expires_at(),
            cas: self.purpose.token(),
            key_binary: item.key_binary(),
            ..Attributes::default()
        };
        let (mut pinned, mut copied) = (None, Vec::new());
        match item.value() {
            Value::Whole(value) => copied.extend_from_slice(value),
            Value::Pieces(value) => pinned = Some(value.pin()),
            Value::Collection(_) => return None,
        }
        let upload = cx.guard.compose(&key, value_bytes, &attributes);
        Some(upload.map(|upload| UnderWay { pinned, copied, seen, upload, lane }))
    }

    /// Copies some bytes behind those that are there, and returns how many.
    fn copy(&self, cx: &mut Context<'_, '_>, under_way: &mut UnderWay) -> Result<u64, Refusal> {
        let UnderWay { pinned, copied, upload, .. } = under_way;
        let (value_bytes, added) = (upload.value_bytes(), self.value.len() as u64);
        let (at, old_bytes) = (value_bytes - upload.missing(), value_bytes - added);
        let (old_at, added_at) = match self.purpose.adds_to() {
            End::Back => (0, old_bytes),
            End::Front => (added, 0),
        };
        let some = if (added_at..added_at + added).contains(&at) {
            &self.value[(at - added_at) as usize..]
        } else {
            match pinned {
                Some(pinned) => pinned.pieces(at - old_at).next().unwrap_or_default(),
                None => &copied[(at - old_at) as usize..],
            }
        };
        let bytes = CHUNK_BYTES.min(some.len() as u64);
        cx.guard.upload_fill(upload, &some[..bytes as usize])?;
        Ok(bytes)
    }

    fn end_at_once(&self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) -> bool {
        self.end(cx, out, tally, |cx| {
            let key = cx.guard.key(&self.key);
            add_at_once(cx, &key, &self.purpose, &self.value)
        })
    }

    fn end(
        &self,
        cx: &mut Context<'_, '_>,
        out: &mut Output,
        tally: &mut Tally,
        store: impl FnOnce(&mut Context<'_, '_>) -> Outcome,
    ) -> bool {
        self.end_if(cx, out, tally, |cx| Some(store(cx)))
    }

    /// Stores the value, and replies. False, without a reply, if `store` says that it came to nothing.
    fn end_if(
        &self,
        cx: &mut Context<'_, '_>,
        out: &mut Output,
        tally: &mut Tally,
        store: impl FnOnce(&mut Context<'_, '_>) -> Option<Outcome>,
    ) -> bool {
        let before = Before::look(cx, &self.key);
        let Some(outcome) = store(cx) else { return false };
        let key = cx.guard.key(&self.key);
        let bytes = self.value.len() as u64;
        reply(cx, out, tally, &key, &self.purpose, Added { bytes, outcome });
        let asked = self.purpose.asked(cx.now(), &key, bytes);
        before.tell_stored(cx, self.purpose.row(), &self.key, Some(asked));
        true
    }
}

/// Adds bytes to a value as one step, however long it is.
fn add_at_once(cx: &mut Context<'_, '_>, key: &Key<'_>, purpose: &Purpose, value: &[u8]) -> Outcome {
    let done = match purpose {
        Purpose::Classic(store) => classic::append(cx, key, store, value, false),
        Purpose::Meta(plan) => plan.add(cx, key, value, false),
        Purpose::Binary(plan) => plan.add(cx, key, value, false),
    };
    done.expect("it is not to be done in steps")
}

/// Bytes that were to be added, and the outcome.
#[derive(Clone, Copy, Debug)]
struct Added {
    bytes: u64,
    outcome: Outcome,
}

/// Counts the addition, and replies.
fn reply(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    purpose: &Purpose,
    Added { bytes, outcome }: Added,
) {
    let ended = |attributes: &Attributes| Ended {
        outcome,
        class: attributes.class(key, bytes),
        compared: None,
        overwrites: purpose.overwrites(),
    };
    match purpose {
        Purpose::Classic(store) => {
            let ended = ended(&classic::attributes(store, cx.now()));
            account(cx, tally, key, ended);
            classic::put_stored(out, outcome, store.noreply);
        }
        Purpose::Meta(plan) => verbs::end(cx, out, tally, plan, key, ended(&plan.attributes)),
        Purpose::Binary(plan) => verbs::end(cx, out, tally, plan, key, ended(&plan.attributes)),
    }
}
