//! set, add, replace, append, prepend, cas.
//!
//! A value that is whole in the receive buffer is stored from there ([`store`]); a longer one comes through the session's
//! upload and ends in the same account ([`account`]).

use larder_protocol::classic::{Store, StoreVerb};
use larder_store::{Attributes, End, Expect, Hint, Key, Millis, Refusal};

use crate::core::context::Context;
use crate::core::counters::ClassCounter;
use crate::core::output::Output;
use crate::core::shared::Settings;
use crate::core::tally::Tally;
use crate::memcached::time::expires_at;
use crate::memcached::verbs::{Ended, InSteps, NO_CLASS, Outcome, account, class_compared, concat, refuse};

/// The condition of a verb.
pub fn expect(store: &Store<'_>, settings: &Settings) -> Expect {
    match store.verb {
        StoreVerb::Set => Expect::Any,
        StoreVerb::Add => Expect::Absent,
        StoreVerb::Replace | StoreVerb::Append | StoreVerb::Prepend => Expect::Present,
        // Without tokens nothing matches; no item has the token 0.
        StoreVerb::Cas => Expect::Cas(settings.token(store.cas)),
    }
}

/// A verb's outcome.
pub fn outcome(
    result: Result<larder_store::Stored, Refusal>,
    store: &Store<'_>,
    value_bytes: u64,
) -> Outcome {
    match result {
        Ok(stored) => Outcome::of_stored(stored, value_bytes),
        Err(refusal) => refuse(refusal, matches!(store.verb, StoreVerb::Cas)),
    }
}

/// set, add, replace, append, prepend, cas with the whole value at hand. `None`: nothing is replied, the request is to be
/// retried, and the turn of the connection that has `out` has ended.
///
/// # Errors
/// For append and prepend alone: the value is to be added in steps.
#[inline(always)]
pub(super) fn store(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    store: &Store<'_>,
    value: &[u8],
) -> Result<Option<Outcome>, InSteps> {
    cx.shared.prefixes.count(cx.room.prefixes(), cx.guard.store(), key.bytes(), |count| count.sets += 1);
    if store.verb == StoreVerb::Set {
        // Nearly all stores: a set that happens.
        let attributes = attributes(store, cx.now());
        let result = cx.guard.store_value_hinted(key, value, &attributes, Expect::Any, hint);
        let class = attributes.class(key, value.len() as u64);
        if let Ok(stored) = result {
            tally.sets += 1;
            cx.counters.count_in(class, ClassCounter::CmdSet);
            return Ok(Some(Outcome::of_stored(stored, value.len() as u64)));
        }
        let outcome = outcome(result, store, value.len() as u64);
        if outcome == Outcome::NoMemory && cx.asks_again(out) {
            return Ok(None);
        }
        account(cx, tally, key, Ended { outcome, class, compared: None, overwrites: true });
        return Ok(Some(outcome));
    }
    store_if(cx, out, tally, key, store, value)
}

/// The attributes that a classic store gives its item.
#[inline]
pub fn attributes(store: &Store<'_>, now: Millis) -> Attributes {
    Attributes { flags: store.flags, expires_at: expires_at(store.exptime, now), ..Attributes::default() }
}

/// Carries out the verbs with a condition; `None` as for [`store`].
///
/// # Errors
/// As for [`store`].
#[inline(never)]
pub(super) fn store_if(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    store: &Store<'_>,
    value: &[u8],
) -> Result<Option<Outcome>, InSteps> {
    let attributes = attributes(store, cx.now());
    let class = attributes.class(key, value.len() as u64);
    let compared = (store.verb == StoreVerb::Cas).then(|| class_compared(cx, key));
    let outcome = match store.verb {
        StoreVerb::Cas if compared == Some(NO_CLASS) => Outcome::NotFound,
        StoreVerb::Append | StoreVerb::Prepend => {
            let outcome = append(cx, key, store, value, true).ok_or(InSteps)?;
            cx.end_turn_if_due(out);
            outcome
        }
        StoreVerb::Set | StoreVerb::Add | StoreVerb::Replace | StoreVerb::Cas => {
            let expect = expect(store, &cx.shared.settings);
            let result = cx.guard.store_value(key, value, &attributes, expect);
            if store.verb == StoreVerb::Add && matches!(result, Err(Refusal::Present)) {
                // memcached counts a refused add as an access of the item that is there.
                let _ = cx.guard.get(key);
            }
            outcome(result, store, value.len() as u64)
        }
    };
    if outcome == Outcome::NoMemory && cx.asks_again(out) {
        return Ok(None);
    }
    account(cx, tally, key, Ended { outcome, class, compared, overwrites: false });
    Ok(Some(outcome))
}

/// append, prepend with the whole value at hand; `None` if it is to be done in steps, which `in_steps` allows.
pub fn append(
    cx: &mut Context<'_, '_>,
    key: &Key<'_>,
    store: &Store<'_>,
    value: &[u8],
    in_steps: bool,
) -> Option<Outcome> {
    let end = if matches!(store.verb, StoreVerb::Prepend) { End::Front } else { End::Back };
    Some(match concat(cx, key, value, (end, None, None), in_steps)? {
        Outcome::NotFound => Outcome::NotStored,
        other => other,
    })
}
