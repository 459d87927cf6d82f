//! incr, decr, ma: adding to a number.

use larder_protocol::number::{U64_BYTES_MAX, parse_c_u64, parse_c_u64_in_pieces, write_u64};
use larder_store::{Attributes, Expect, Key, Millis, Refusal, Value};

use super::string;
use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};

/// A number that becomes shorter keeps its length, filled with spaces, up to this many bytes; memcached does so whenever no
/// other client's reply holds the item.
const PADDED_BYTES_MAX: usize = 64;

/// Most bytes of a number. A longer text is none, whatever it says, as in memcached, where it is in pieces.
const NUMBER_BYTES_MAX: u64 = 512 << 10;

/// The order to change a number.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// The amount.
    pub delta: u64,
    /// Whether it goes down, stopping at 0; otherwise it goes up, wrapping at 2^64.
    pub decrement: bool,
    /// The token that the item must have.
    pub expect_cas: Option<u64>,
    /// The token to give in place of the next one.
    pub cas: Option<u64>,
    /// The new expiry.
    pub expires_at: Option<Millis>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug)]
pub enum Changed {
    /// The counter's value and token now, its expiry before and now.
    Done { value: u64, cas: u64, expired_at: Millis, expires_at: Millis },
    /// No item.
    Absent,
    /// The item has another token.
    OtherCas,
    /// The item is no number.
    NotANumber,
    /// No memory for the new value.
    NoMemory,
}

/// Changes a number as one step, however many clients write it: the old one is overwritten only while it is still there. Counts
/// the hit.
pub fn change(cx: &mut Context<'_, '_>, key: &Key<'_>, change: &Arithmetic) -> Changed {
    loop {
        let Some(item) = string(&mut cx.guard, key) else { return Changed::Absent };
        if change.expect_cas.is_some_and(|cas| cas != item.cas()) {
            return Changed::OtherCas;
        }
        // The version is read before the expiry, which may be changed meanwhile and is kept.
        let unchanged = Expect::Unchanged(item.seen());
        let (old, old_bytes) = match item.value() {
            Value::Whole(text) => (parse_c_u64(text), text.len()),
            Value::Pieces(text) if text.value_bytes() <= NUMBER_BYTES_MAX => {
                (parse_c_u64_in_pieces(text.pin().pieces(0)), text.value_bytes() as usize)
            }
            Value::Pieces(_) | Value::Collection(_) => (None, 0),
        };
        let Some(old) = old else { return Changed::NotANumber };
        let value =
            if change.decrement { old.saturating_sub(change.delta) } else { old.wrapping_add(change.delta) };
        let mut room = [b' '; PADDED_BYTES_MAX];
        let digits = write_u64(&mut room[..U64_BYTES_MAX], value);
        let bytes = if old_bytes <= PADDED_BYTES_MAX { digits.max(old_bytes) } else { digits };
        let expired_at = item.expires_at();
        let expires_at = change.expires_at.unwrap_or(expired_at);
        let attributes = Attributes {
            flags: item.flags(),
            expires_at,
            cas: change.cas,
            key_binary: item.key_binary(),
            stale: item.stale(),
            token_sent: item.token_sent(),
        };
        let class = item.class();
        let in_place = digits <= old_bytes;
        match cx.guard.store_value(key, &room[..bytes], &attributes, unchanged) {
            Ok(stored) => {
                cx.counters.add(Counter::NumbersInPlace, u64::from(in_place));
                let (hits, hits_in) = match change.decrement {
                    false => (Counter::IncrHits, ClassCounter::IncrHits),
                    true => (Counter::DecrHits, ClassCounter::DecrHits),
                };
                cx.counters.add(hits, 1);
                cx.counters.count_in(class, hits_in);
                return Changed::Done { value, cas: stored.cas, expired_at, expires_at };
            }
            Err(Refusal::NoMemory) => return Changed::NoMemory,
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}

/// Counts that there was no number to add to.
pub fn count_no_number(cx: &Context<'_, '_>, decrement: bool) {
    cx.counters.add(if decrement { Counter::DecrMisses } else { Counter::IncrMisses }, 1);
}
