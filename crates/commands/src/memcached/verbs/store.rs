//! The common part of all stores: how large an item may be, how a store ends and is counted, how bytes are added to a value.
//! Their conditions are in `classic/store.rs`, `meta/set.rs` and `frames/store.rs`. The last two are carried out here
//! ([`store`], [`finish`]); the first has a way of its own, which is the shortest.

use larder_protocol::classic::KEY_BYTES_MAX;
use larder_store::{Attributes, End, Expect, Guard, Hint, Item, Key, Refusal, Stored, Upload};

use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::output::Output;
use crate::core::shared::Settings;
use crate::core::tally::Tally;
use crate::core::work::{STEPS_BYTES_MIN, copying_ns};

/// Bytes that memcached adds to key and value: header, the key's NUL, the value's line end.
const HEADER_BYTES: u64 = 48 + 1 + 2;

/// Returns whether an item of this size may be stored: memcached's arithmetic, so that its limits hold.
#[inline]
pub fn fits(settings: &Settings, key_bytes: usize, flags: u32, value_bytes: u64) -> bool {
    let cas = if settings.cas { 8 } else { 0 };
    let flags = if flags == 0 { 0 } else { 4 };
    HEADER_BYTES + cas + flags + key_bytes as u64 + value_bytes <= settings.item_bytes_max
}

/// Most bytes of a value that [`fits`] whatever its key and flags are.
pub fn fitting_value_bytes(settings: &Settings) -> usize {
    let rest = HEADER_BYTES + 8 + 4 + KEY_BYTES_MAX as u64;
    settings.item_bytes_max.saturating_sub(rest).try_into().unwrap_or(usize::MAX)
}

/// The outcome of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened; the item's token and the bytes of its whole value.
    Stored { cas: u64, value_bytes: u64 },
    /// Its condition did not hold.
    NotStored,
    /// The token is another.
    Exists,
    /// No item to compare with.
    NotFound,
    /// No memory.
    NoMemory,
}

impl Outcome {
    /// The outcome of a store that happened, with a value of so many bytes.
    #[inline]
    pub fn of_stored(stored: Stored, value_bytes: u64) -> Outcome {
        Outcome::Stored { cas: stored.cas, value_bytes }
    }
}

/// The outcome of a store that was refused. `cas`: it was a compare-and-swap.
pub fn refuse(refusal: Refusal, cas: bool) -> Outcome {
    match refusal {
        Refusal::Absent if cas => Outcome::NotFound,
        Refusal::Absent | Refusal::Present | Refusal::Type => Outcome::NotStored,
        Refusal::Changed => Outcome::Exists,
        Refusal::NoMemory => Outcome::NoMemory,
    }
}

/// A store of a key that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its outcome.
    pub outcome: Outcome,
    /// Slab class of the item that was to be stored.
    pub class: u8,
    /// The class of the item that a compare-and-swap compared with.
    pub compared: Option<u8>,
    /// Whether, without memory, the value that was to be overwritten is removed, lest it be read as the new one.
    pub overwrites: bool,
}

/// Counts a store that has ended.
#[inline]
pub fn account(cx: &mut Context<'_, '_>, tally: &mut Tally, key: &Key<'_>, ended: Ended) {
    let Ended { outcome, class, compared, overwrites } = ended;
    if matches!(outcome, Outcome::NoMemory) {
        cx.counters.add(Counter::StoreNoMemory, 1);
        if overwrites {
            let _ = cx.guard.delete(key, Expect::Present);
        }
        return;
    }
    tally.sets += 1;
    cx.counters.count_in(class, ClassCounter::CmdSet);
    if let Some(there) = compared {
        match outcome {
            Outcome::Stored { .. } => {
                cx.counters.add(Counter::CasHits, 1);
                cx.counters.count_in(there, ClassCounter::CasHits);
            }
            Outcome::Exists => {
                cx.counters.add(Counter::CasBadval, 1);
                cx.counters.count_in(there, ClassCounter::CasBadval);
            }
            Outcome::NotFound => cx.counters.add(Counter::CasMisses, 1),
            Outcome::NotStored | Outcome::NoMemory => {}
        }
    }
}

/// The order of an ms, or of a frame that stores: the condition, and what differs between the two.
pub trait StorePlan {
    /// The attributes that are stored beside the value.
    fn attributes(&self) -> &Attributes;

    /// The condition, where nothing is added.
    fn expect(&self) -> Expect;

    /// Returns whether it is a compare-and-swap.
    fn compares(&self) -> bool;

    /// Returns whether it is append or prepend.
    fn adds(&self) -> bool;

    /// Returns whether, without memory, the value that is there is removed.
    fn removes_old(&self) -> bool;

    /// Carries out append or prepend; `None` if it is to be done in steps, which `in_steps` allows.
    fn add(&self, cx: &mut Context<'_, '_>, key: &Key<'_>, value: &[u8], in_steps: bool) -> Option<Outcome>;

    /// The outcome of a store that was refused and has its whole value at hand.
    fn refused(&self, cx: &mut Context<'_, '_>, key: &Key<'_>, value: &[u8], refusal: Refusal) -> Outcome;

    /// Counts the command, beside what [`account`] counts.
    fn count(&self, tally: &mut Tally);

    /// Replies the outcome.
    fn put_outcome(&self, cx: &Context<'_, '_>, out: &mut Output, key: &[u8], outcome: Outcome);
}

/// A value that is all there, for its key.
#[derive(Clone, Copy, Debug)]
pub struct WholeValue<'a> {
    /// The key.
    pub key: &'a Key<'a>,
    /// The place where the prefetch stages saw the key.
    pub hint: &'a Hint<'a>,
    /// The value.
    pub value: &'a [u8],
}

/// Carries out a store with the whole value at hand.
///
/// # Errors
/// For append and prepend alone: it is to be done in steps.
#[inline]
pub fn store(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    plan: &impl StorePlan,
    whole: WholeValue<'_>,
) -> Result<(), InSteps> {
    let WholeValue { key, hint, value } = whole;
    let class = plan.attributes().class(key, value.len() as u64);
    let compared = plan.compares().then(|| class_compared(cx, key));
    let outcome = if compared == Some(NO_CLASS) {
        Outcome::NotFound
    } else if plan.adds() {
        let outcome = plan.add(cx, key, value, true).ok_or(InSteps)?;
        cx.end_turn_if_due(out);
        outcome
    } else {
        match cx.guard.store_value_hinted(key, value, plan.attributes(), plan.expect(), hint) {
            Ok(stored) => Outcome::of_stored(stored, value.len() as u64),
            Err(refusal) => plan.refused(cx, key, value, refusal),
        }
    };
    if outcome == Outcome::NoMemory && cx.asks_again(out) {
        return Ok(());
    }
    end(cx, out, tally, plan, key, Ended { outcome, class, compared, overwrites: plan.removes_old() });
    Ok(())
}

/// Ends a store whose value has arrived through an upload.
pub fn finish(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    plan: &impl StorePlan,
    key: &Key<'_>,
    upload: Upload,
) {
    let value_bytes = upload.value_bytes();
    let class = plan.attributes().class(key, value_bytes);
    let compared = plan.compares().then(|| class_compared(cx, key));
    let outcome = if compared == Some(NO_CLASS) {
        Outcome::NotFound
    } else {
        match cx.guard.publish(upload, plan.expect()) {
            Ok(stored) => Outcome::of_stored(stored, value_bytes),
            Err(refusal) => refuse(refusal, plan.compares()),
        }
    };
    end(cx, out, tally, plan, key, Ended { outcome, class, compared, overwrites: plan.removes_old() });
}

/// Counts a store that has ended, and replies.
#[inline]
pub fn end(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    plan: &impl StorePlan,
    key: &Key<'_>,
    ended: Ended,
) {
    plan.count(tally);
    account(cx, tally, key, ended);
    plan.put_outcome(cx, out, key.bytes(), ended.outcome);
}

/// Bytes are to be added to a long value, which takes steps (`join`): nothing is stored, counted or replied yet.
#[derive(Clone, Copy, Debug)]
pub struct InSteps;

/// Returns whether a value of `old_bytes` with so many more is to be made in steps.
#[inline]
pub fn is_long(cx: &Context<'_, '_>, old_bytes: u64, more: u64) -> bool {
    let bytes = old_bytes + more;
    bytes >= STEPS_BYTES_MIN
        && old_bytes + bytes <= cx.guard.store().memory_bytes()
        && cx.room.may_go_on_later()
}

/// Adds to a value as one step. A result above the item limit is not stored. `cas` is the token to give in place of the next
/// one, `expect_cas` the token that the item must have. Spends the work of copying the value. `None` if it is to be done in
/// steps.
pub fn concat(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    value: &[u8],
    (end, cas, expect_cas): (End, Option<u64>, Option<u64>),
    in_steps: bool,
) -> Option<Outcome> {
    loop {
        let Some(item) = string(&mut cx.guard, key) else { return Some(Outcome::NotFound) };
        if expect_cas.is_some_and(|cas| cas != item.cas()) {
            return Some(Outcome::Exists);
        }
        let old_bytes = item.value_bytes();
        let value_bytes = old_bytes + value.len() as u64;
        if !fits(&cx.shared.settings, key.bytes().len(), item.flags(), value_bytes) {
            return Some(Outcome::NotStored);
        }
        let unchanged = Expect::Unchanged(item.seen());
        if in_steps && is_long(cx, old_bytes, value.len() as u64) {
            return None;
        }
        cx.room.work().spend(copying_ns(value_bytes));
        match cx.guard.concat(key, value, end, cas, unchanged) {
            Ok(stored) => return Some(Outcome::of_stored(stored, value_bytes)),
            Err(Refusal::NoMemory) => return Some(Outcome::NoMemory),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}

/// The live string of a key, read without a trace. For verbs that change what is there, a collection counts as nothing.
pub fn string<'r>(guard: &'r mut Guard<'_>, key: &Key<'_>) -> Option<Item<'r>> {
    guard.peek(key).hit().filter(|item| !item.is_collection())
}

/// Returns whether the key has a collection: verbs that make a string if there is none leave it alone.
pub fn has_collection(cx: &mut Context<'_, '_>, key: &Key<'_>) -> bool {
    cx.guard.peek(key).hit().is_some_and(|item| item.is_collection())
}

/// No slab class.
pub const NO_CLASS: u8 = 0;

/// Slab class of the string that a compare-and-swap compares with; [`NO_CLASS`] if there is none, and nothing to swap.
pub fn class_compared(cx: &mut Context<'_, '_>, key: &Key<'_>) -> u8 {
    string(&mut cx.guard, key).map_or(NO_CLASS, |item| item.class())
}

/// Counts a value above the limit, and removes the one that it was to overwrite (`overwrites`).
pub fn count_too_large(cx: &mut Context<'_, '_>, key: &Key<'_>, overwrites: bool) {
    cx.counters.add(Counter::StoreTooLarge, 1);
    if overwrites {
        let _ = cx.guard.delete(key, Expect::Present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_memcacheds() {
        let settings = Settings::default();
        assert!(fits(&settings, 1, 0, 1_048_515));
        assert!(fits(&settings, 1, 0, 1_048_516));
        assert!(!fits(&settings, 1, 0, 1_048_517));
        assert!(!fits(&settings, 1, 1, 1_048_516), "flags take four bytes");
        assert!(fits(&Settings { cas: false, ..settings }, 1, 0, 1_048_524));
    }
}
