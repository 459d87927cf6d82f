//! The requests in callers' structs of options, in the Rust client's terms.

use crate::failure::{Failure, wrong};
use crate::shapes::{
    CREATE, Count, FOREVER, HIT_BEFORE, KEEP_EMPTY, Meta, PENDING, Read, Remove, STALE, STALE_IF_OLDER,
    Store, TELL_CAS, WON,
};
use larder_client::wire::{self, Ask, Mode, Want};
use larder_client::{Reply, Ttl};
use std::time::Duration;

/// A request of one key.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub key: &'a [u8],
    pub ask: Ask<'a>,
    /// The token that the item must have.
    pub cas: Option<u64>,
}

/// A time to live that is required: 0 is for ever.
pub fn ttl(ms: i64) -> Result<Ttl, Failure> {
    match ms {
        0 | FOREVER => Ok(Ttl::Forever),
        ms => Ok(Ttl::In(duration(ms)?)),
    }
}

/// A time to live that is optional: 0 is none.
fn ttl_if_said(ms: i64) -> Result<Option<i64>, Failure> {
    if ms == 0 { Ok(None) } else { Ok(Some(ttl(ms)?.exptime())) }
}

/// A time in milliseconds.
pub fn duration(ms: i64) -> Result<Duration, Failure> {
    u64::try_from(ms).map(Duration::from_millis).map_err(|_| Failure::BadTtl)
}

/// A token to compare: 0 is none.
fn token(cas: u64) -> Option<u64> {
    (cas != 0).then_some(cas)
}

/// Refuses unknown bits.
fn only(bits: u32, known: u32) -> Result<(), Failure> {
    if bits & !known == 0 { Ok(()) } else { wrong("options has a bit that means nothing") }
}

pub fn read<'a>(key: &'a [u8], read: &Read) -> Result<Asked<'a>, Failure> {
    let Some(want) = Want::from_bits(read.want) else { return wrong("want has a bit that means nothing") };
    let get = wire::Get { want, retime: ttl_if_said(read.touch_ms)?, ..wire::Get::default() };
    Ok(Asked { key, ask: Ask::Get(get), cas: None })
}

pub fn store<'a>(key: &'a [u8], value: &'a [u8], store: &Store) -> Result<Asked<'a>, Failure> {
    only(store.options, STALE_IF_OLDER | TELL_CAS)?;
    let mode = match store.mode {
        0 => Mode::Set,
        1 => Mode::Add,
        2 => Mode::Replace,
        3 => Mode::Append,
        4 => Mode::Prepend,
        _ => return wrong("mode is none of the modes"),
    };
    let ask = Ask::Store(wire::Store {
        value,
        mode,
        flags: store.flags,
        exptime: ttl(store.ttl_ms)?.exptime(),
        stale_if_older: store.options & STALE_IF_OLDER != 0,
        want_cas: store.options & TELL_CAS != 0,
    });
    Ok(Asked { key, ask, cas: token(store.cas) })
}

pub fn remove<'a>(key: &'a [u8], remove: &Remove) -> Result<Asked<'a>, Failure> {
    only(remove.options, KEEP_EMPTY)?;
    let retime = ttl_if_said(remove.keep_stale_ms)?;
    let empty = remove.options & KEEP_EMPTY != 0;
    let ask = Ask::Delete(wire::Delete { stale: retime.is_some(), empty, retime });
    Ok(Asked { key, ask, cas: token(remove.cas) })
}

pub fn invalidate(key: &[u8], serve_stale_ms: i64) -> Result<Asked<'_>, Failure> {
    match serve_stale_ms {
        0 => Err(Failure::BadTtl),
        keep_stale_ms => remove(key, &Remove { keep_stale_ms, ..Remove::default() }),
    }
}

pub fn touch(key: &[u8], ttl_ms: i64) -> Result<Asked<'_>, Failure> {
    Ok(Asked { key, ask: Ask::Touch(ttl(ttl_ms)?.exptime()), cas: None })
}

pub fn count<'a>(key: &'a [u8], delta: u64, down: bool, count: &Count) -> Result<Asked<'a>, Failure> {
    only(count.options, CREATE)?;
    let made = (count.initial, ttl(count.ttl_ms)?.exptime());
    let initial = (count.options & CREATE != 0).then_some(made);
    let ask = Ask::Count(wire::Count { down, delta, initial, retime: ttl_if_said(count.touch_ms)? });
    Ok(Asked { key, ask, cas: token(count.cas) })
}

/// The reply as a `larder_meta`, whose size the caller sets.
pub fn told(reply: &Reply) -> Meta {
    let meta = &reply.meta;
    let mut marks = 0;
    for (mark, bit) in [
        (meta.marks.hit_before, HIT_BEFORE),
        (meta.marks.stale, STALE),
        (meta.marks.won, WON),
        (meta.marks.pending, PENDING),
    ] {
        marks |= if mark { bit } else { 0 };
    }
    Meta {
        size: 0,
        flags: meta.flags,
        cas: meta.cas,
        ttl_ms: left(meta.ttl),
        bytes: meta.size,
        last_access_ms: millis(meta.last_access),
        marks,
        reserved: 0,
    }
}

/// The time until the item expires.
pub fn left(ttl: Option<Duration>) -> i64 {
    ttl.map_or(FOREVER, millis)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_said_and_times_that_need_not_be() {
        assert_eq!(ttl(0).ok(), Some(Ttl::Forever));
        assert_eq!(ttl(FOREVER).ok(), Some(Ttl::Forever));
        assert_eq!(ttl(1).ok(), Some(Ttl::In(Duration::from_millis(1))));
        assert!(matches!(ttl(-1), Err(Failure::BadTtl)));
        assert!(matches!(ttl(i64::MIN), Err(Failure::BadTtl)));
        assert_eq!(ttl_if_said(0).ok(), Some(None));
        assert_eq!(ttl_if_said(FOREVER).ok(), Some(Some(0)));
        assert_eq!(ttl_if_said(1001).ok(), Some(Some(2)));
        assert!(ttl_if_said(-1).is_err());
        assert_eq!((left(None), left(Some(Duration::from_secs(2)))), (FOREVER, 2000));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        assert!(read(b"k", &Read { want: 128, ..Read::default() }).is_err());
        assert!(store(b"k", b"", &Store { mode: 5, ..Store::default() }).is_err());
        assert!(store(b"k", b"", &Store { options: 4, ..Store::default() }).is_err());
        assert!(remove(b"k", &Remove { options: 2, ..Remove::default() }).is_err());
        assert!(count(b"k", 1, false, &Count { options: 2, ..Count::default() }).is_err());
    }
}
