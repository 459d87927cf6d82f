//! md: removes an item, or its value alone, or marks it stale.

use larder_protocol::Fault;
use larder_protocol::meta::Flags;

use super::reply::{ReplyKey, put_status};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::text::NO_MEMORY;
use crate::memcached::time::expires_at;
use crate::memcached::verbs::{self, Removal, Removed};
use larder_store::Key;

/// md
pub fn delete(
    cx: &mut Context<'_, '_>,
    out: &mut Output,
    tally: &mut Tally,
    key: &Key<'_>,
    flags: &Flags<'_>,
) {
    tally.metas += 1;
    let status = match removal(cx, flags).map(|how| verbs::remove(cx, key, &how)) {
        Err(fault) => return out.put(fault.reply()),
        Ok(Removed::Done) if flags.has(b'q') => return,
        Ok(Removed::Done) => b"HD",
        Ok(Removed::Absent) => b"NF",
        Ok(Removed::OtherCas) => b"EX",
        Ok(Removed::NoMemory) => return out.put(NO_MEMORY),
    };
    put_status(out, status, flags, ReplyKey { bytes: key.bytes(), binary: flags.has(b'b') });
}

/// The order of an md: I marks stale, x empties, T counts only with one of these.
fn removal(cx: &Context<'_, '_>, flags: &Flags<'_>) -> Result<Removal, Fault> {
    flags.opaque()?;
    let expect_cas = match flags.number(b'C')? {
        // Without tokens all items have 0.
        Some(0) if !cx.shared.settings.cas => None,
        compare => compare.map(|cas| cx.shared.settings.token(cas)),
    };
    let touch = flags.exptime(b'T')?.map(|exptime| expires_at(exptime, cx.now()));
    let (stales, empties) = (flags.has(b'I'), flags.has(b'x'));
    let cas = flags.version()?;
    Ok(Removal { expect_cas, cas, expires_at: touch.filter(|_| stales || empties), empties, stales })
}
