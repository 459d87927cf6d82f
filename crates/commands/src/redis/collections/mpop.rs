//! LMPOP, ZMPOP: elements of the first of some collections that is there.

use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Collection, Key, Type};

use super::{Call, ELEMENT_ROOM, PRESENT_NS, peek_as, places_bytes_max};
use crate::redis::call::{free_room, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_null_array};
use crate::redis::table::Keys;

/// Keys behind their number.
pub(crate) const KEYS: Keys = Keys::Counted { count: 1, step: 1 };

/// What is asked.
pub(crate) struct Asked<'a, W> {
    pub keys: Args<'a>,
    /// From which end.
    pub which: W,
    /// How many, at most; 1 at least.
    pub count: usize,
}

/// Reads `numkeys key [key ...] which [COUNT count]`.
pub(crate) fn parse<W>(
    mut args: Args<'_>,
    which: impl Fn(&[u8]) -> Result<W, Fail>,
) -> Result<Asked<'_, W>, Fail> {
    let keys = super::counted(&mut args, Fail::of("ERR numkeys should be greater than 0"))?;
    let which = which(next(&mut args)?)?;
    let mut count = None;
    while let Some(word) = args.next() {
        if count.is_some() || !is(word, "COUNT") {
            return Err(Fail::SYNTAX);
        }
        let most = integer(next(&mut args)?).ok().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        count = Some(most.ok_or(Fail::of("ERR count should be greater than 0"))?);
    }
    Ok(Asked { keys, which, count: count.unwrap_or(1) })
}

/// Replies the key of the first collection that is there, and what `pop` replies of it: elements at these places.
pub(crate) fn pop(
    call: &mut Call<'_, '_, '_>,
    keys: Args<'_>,
    kind: Type,
    places: impl Fn(&Collection<'_>) -> Range<usize>,
    mut pop: impl FnMut(&mut Call<'_, '_, '_>, &Key<'_>, Range<usize>) -> Done,
) -> Done {
    call.spend(keys.len() as u64 * PRESENT_NS);
    call.as_one_with_room(keys, |call| {
        for name in keys {
            let (key, free) = (call.key(name), free_room(call.out));
            let Some(there) = peek_as(&mut call.cx.guard, &key, kind)? else { continue };
            let places = places(&there);
            let bytes = places_bytes_max(&there, places.clone(), free) + name.len() + 2 * ELEMENT_ROOM;
            if !call.has_room(bytes) {
                return Ok(Some(bytes));
            }
            let (mark, before) = (call.out.mark(), call.out.own_bytes());
            put_array(call.out, 2);
            put_bulk(call.out, name);
            pop(call, &key, places).inspect_err(|_| call.out.rewind(mark))?;
            call.spend_on_bytes((call.out.own_bytes() - before) as usize);
            return Ok(None);
        }
        put_null_array(call.out, call.client.resp3);
        Ok(None)
    })
}
