//! md

use larder_protocol::Fault;
use larder_protocol::meta::Flags;
use larder_store::{Attributes, Expect, Key, Lookup, Refusal};

use super::reply::{ReplyKey, put_status};
use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::classic::class_there;
use crate::memcached::text::NO_MEMORY;
use crate::memcached::time::expires_at;

/// md
pub fn delete(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    flags: &Flags<'_>,
) {
    tally.metas += 1;
    let result = match Given::parse(cx, flags) {
        Ok(given) => remove(cx, key, flags, &given),
        Err(fault) => return out.put(fault.reply()),
    };
    let status = match result {
        Ok(class) => {
            cx.counters.add(Counter::DeleteHits, 1);
            cx.counters.count_in(class, ClassCounter::DeleteHits);
            if flags.has(b'q') {
                return;
            }
            b"HD"
        }
        Err(Refusal::NoMemory) => return out.put(NO_MEMORY),
        Err(Refusal::Absent) => {
            cx.counters.add(Counter::DeleteMisses, 1);
            b"NF"
        }
        Err(Refusal::Changed | Refusal::Present | Refusal::Type) => {
            cx.counters.add(Counter::DeleteMisses, 1);
            b"EX"
        }
    };
    put_status(out, status, flags, ReplyKey { bytes: key.bytes(), binary: flags.has(b'b') });
}

/// The numbers an md was given.
struct Given {
    compare: Option<u64>,
    cas: Option<u64>,
    /// T, which counts only with I.
    expires_at: Option<u64>,
}

impl Given {
    fn parse(cx: &Context<'_, '_>, flags: &Flags<'_>) -> Result<Given, Fault> {
        flags.opaque()?;
        let compare = match flags.number(b'C')? {
            // Without tokens all items have 0.
            Some(0) if !cx.shared.settings.cas => None,
            compare => compare.map(|cas| cx.shared.settings.token(cas)),
        };
        let touch = flags.exptime(b'T')?.map(|exptime| expires_at(exptime, cx.now()));
        Ok(Given { compare, cas: flags.number(b'E')?, expires_at: touch.filter(|_| flags.has(b'I')) })
    }
}

/// Deletes, or with I marks stale, or with x empties; the slab class of what was there.
fn remove(cx: &mut Context<'_, '_>, key: &Key<'_>, flags: &Flags<'_>, given: &Given) -> Result<u8, Refusal> {
    let expect = given.compare.map_or(Expect::Present, Expect::Cas);
    if flags.has(b'x') {
        return empty(cx, key, flags, given);
    }
    if flags.has(b'I') {
        let class = class_there(cx, key);
        return cx.guard.invalidate(key, given.cas, given.expires_at, expect).map(|_| class);
    }
    cx.guard.remove(key, expect)
}

/// Replaces the item by one without value, flags and expiry, stale if I is there; then T gives it an expiry.
fn empty(cx: &mut Context<'_, '_>, key: &Key<'_>, flags: &Flags<'_>, given: &Given) -> Result<u8, Refusal> {
    loop {
        let Lookup::Hit(item) = cx.guard.peek(key) else { return Err(Refusal::Absent) };
        if given.compare.is_some_and(|cas| cas != item.cas()) {
            return Err(Refusal::Changed);
        }
        let attributes = Attributes {
            flags: 0,
            expires_at: given.expires_at.unwrap_or(0),
            cas: given.cas,
            key_binary: item.key_binary(),
            stale: flags.has(b'I'),
            token_sent: false,
        };
        let unchanged = Expect::Unchanged(item.seen());
        let class = item.class();
        match cx.guard.asking_once(|guard| guard.store_value(key, b"", &attributes, unchanged)) {
            Ok(_) => return Ok(class),
            Err(Refusal::NoMemory) => return Err(Refusal::NoMemory),
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}
