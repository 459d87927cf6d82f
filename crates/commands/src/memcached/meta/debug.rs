//! me: an item's internals, as text.

use larder_store::{Key, Lookup};

use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::shared::Shared;
use crate::memcached::text::{META_MISS, is_text, put_base64, put_number};
use crate::memcached::time::seconds_left;

/// me: an item's internals, without leaving a trace.
pub fn debug(shared: &Shared, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally, key: &Key<'_>) {
    tally.metas += 1;
    let now = cx.now();
    let Lookup::Hit(item) = cx.guard.peek(key) else { return out.put(META_MISS) };
    out.put(b"ME ");
    if item.key_binary() || !is_text(key.bytes()) {
        put_base64(out, key.bytes());
    } else {
        out.put(key.bytes());
    }
    out.put(b" exp=");
    match item.expires_at() {
        0 => out.put(b"-1"),
        expires => put_number(out, seconds_left(expires, now)),
    }
    out.put(b" la=");
    put_number(out, item.idle_s());
    out.put(b" cas=");
    put_number(out, cx.shared.settings.token(item.cas()));
    out.put(if item.fetched() { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    put_number(out, u64::from(shared.slabs.of(item.class())));
    out.put(b" size=");
    put_number(out, item.item_bytes());
    out.put(b"\r\n");
}
