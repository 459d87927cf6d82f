//! LMPOP, ZMPOP: elements of the first of some collections that is there.

use larder_protocol::resp::Args;
use larder_store::{End, Type};

use super::{Call, taking};
use crate::redis::call::{few_keys, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_null_array;
use crate::redis::row::Keys;

/// Keys behind a word that says how many they are.
pub(crate) const KEYS: Keys = Keys::Counted { count: 1, step: 1 };

/// What the command asks for.
pub(crate) struct Asked<'a, W> {
    pub keys: Args<'a>,
    /// From which end to take.
    pub which: W,
    /// How many elements to take, at most; at least 1.
    pub count: usize,
}

/// Parses `numkeys key [key ...] which [COUNT count]`.
pub(crate) fn parse<W>(
    mut args: Args<'_>,
    which: impl Fn(&[u8]) -> Result<W, Fail>,
) -> Result<Asked<'_, W>, Fail> {
    let keys = super::counted(&mut args, Fail::of("ERR numkeys should be greater than 0"))?;
    few_keys(keys.len())?;
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

/// Takes elements from an end of the first collection that is there, and replies its key and them; see [`taking::take_first`].
pub(crate) fn pop(call: &mut Call<'_, '_, '_>, keys: Args<'_>, of: (Type, End), count: usize) -> Done {
    if !taking::take_first(call, keys, of, count, false)? {
        put_null_array(call.out, call.client.resp3);
    }
    Ok(())
}
