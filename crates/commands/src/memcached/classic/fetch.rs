//! get, gets, gat, gats.

use larder_store::{Hint, Key, Lookup, Refusal};

use crate::core::context::Context;
use crate::core::counters::{ClassCounter, Counter};
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::text::{END, put_value};
use crate::memcached::time::expires_at;

/// get, gets: one key of the line. False, and no reply, if there is no memory to send the value from.
#[inline]
#[must_use]
pub fn fetch(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
    cas: bool,
    last: bool,
) -> bool {
    tally.gets += 1;
    let settings = &cx.shared.settings;
    match cx.guard.get_hinted(key, hint) {
        Lookup::Hit(item) => {
            tally.get_hits += 1;
            cx.counters.count_in(item.class(), ClassCounter::GetHits);
            let token = cas.then(|| settings.token(item.cas()));
            let put = put_value(out, key.bytes(), &item, token, last);
            cx.shared.prefixes.count(cx.guard.store(), key.bytes(), |count| {
                count.gets += 1;
                count.hits += 1;
            });
            return put;
        }
        Lookup::Miss => missed(cx, out, key, None, last),
        Lookup::Expired => missed(cx, out, key, Some(Counter::GetExpired), last),
        Lookup::Flushed => missed(cx, out, key, Some(Counter::GetFlushed), last),
    }
    true
}

fn missed(cx: &Context<'_, '_>, out: &mut Output, key: &Key<'_>, why: Option<Counter>, last: bool) {
    cx.counters.add(Counter::GetMisses, 1);
    if let Some(why) = why {
        cx.counters.add(why, 1);
    }
    cx.shared.prefixes.count(cx.guard.store(), key.bytes(), |count| count.gets += 1);
    if last {
        out.put(END);
    }
}

/// gat, gats: one key of the line. Counts as a touch, not as a get. False as for [`fetch`]; then the
/// item was not touched.
#[must_use]
pub fn fetch_and_touch(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    key: &Key<'_>,
    cas: bool,
    exptime: i32,
    last: bool,
) -> bool {
    cx.counters.add(Counter::CmdTouch, 1);
    let now = cx.now();
    let settings = &cx.shared.settings;
    let mark = out.mark();
    let hit = match cx.guard.get(key) {
        Lookup::Hit(item) => {
            let token = cas.then(|| settings.token(item.cas()));
            if !put_value(out, key.bytes(), &item, token, last) {
                return false;
            }
            Some(item.class())
        }
        Lookup::Miss | Lookup::Expired | Lookup::Flushed => {
            if last {
                out.put(END);
            }
            None
        }
    };
    cx.shared.prefixes.count(cx.guard.store(), key.bytes(), |count| {
        count.gets += 1;
        count.hits += u64::from(hit.is_some());
    });
    if let Some(class) = hit {
        // An item that another worker removed since was still read before: the reply holds.
        if let Err(Refusal::NoMemory) = cx.guard.touch(key, expires_at(exptime, now)) {
            cx.counters.add(Counter::StoreNoMemory, 1);
            out.rewind(mark);
            return false;
        }
        cx.counters.add(Counter::TouchHits, 1);
        cx.counters.count_in(class, ClassCounter::TouchHits);
    } else {
        cx.counters.add(Counter::TouchMisses, 1);
    }
    true
}
