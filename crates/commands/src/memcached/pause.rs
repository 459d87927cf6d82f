//! Pauses of memcached's clients: by CLIENT PAUSE, and for keys that another command holds, since both protocols have the same
//! keys. Changes of users are looked at here, too.

use larder_protocol::classic::KEY_BYTES_MAX;
use larder_protocol::{Tokens, base64};
use larder_store::Upload;

use crate::core::access::Standing;
use crate::core::context::Context;
use crate::core::hold;
use crate::core::progress::Next;
use crate::memcached::table::find;

/// Milliseconds after which a client that waits looks whether the pause was ended early.
const LOOK_MS: u64 = 100;

/// The leave that a connection has in a pause.
pub(crate) enum Pace {
    /// There is no pause.
    Free,
    /// One request, behind which it looks again.
    OneByOne,
    /// Nothing.
    Wait(Next),
}

/// Does what is due, looks the client's user up again where users were changed, and decides whether the request in front may be
/// carried out. `under_way`: a request has begun for which permission is not asked again, so that it ends if its user's rules
/// have changed. `names`: whether the request in front names a held key, or concerns all keys. `acts`: whether it would do
/// something at all, or, if only writes wait, change something.
#[cold]
pub(crate) fn pace(
    cx: &mut Context<'_, '_>,
    (standing, under_way): (Option<&mut Standing>, bool),
    names: impl FnOnce(&dyn Fn(&[u8]) -> bool) -> bool,
    acts: impl FnOnce(bool) -> bool,
) -> Pace {
    cx.shared.flush_if_due(&mut cx.guard);
    if let Some(standing) = standing {
        let then = standing.snapshot();
        let is_there = standing.look_again(&cx.shared.access);
        // A request that other rules allowed does not go on.
        if !is_there || under_way && !standing.is_free() && !standing.may_as(&then, cx.room.work()) {
            cx.shared.access.log.count_closed();
            return Pace::Wait(Next::Close);
        }
    }
    let pause = &cx.shared.pause;
    let left_ms = pause.left_ms(cx.now());
    let keys = pause.holds.keys();
    if left_ms == 0 && keys.is_none() {
        return Pace::Free;
    }
    if let Some(keys) = keys
        && names(&|key| keys.has(cx.guard.key(key).hash()))
    {
        pause.holds.note_waiter();
        return Pace::Wait(Next::Sleep(hold::LOOK_MS));
    }
    if left_ms > 0 && acts(pause.writes_only()) {
        return Pace::Wait(Next::Sleep(left_ms.min(LOOK_MS)));
    }
    Pace::OneByOne
}

/// Returns whether the value would be whole with this input, and stored.
pub(crate) fn is_whole(upload: &Upload, input: &[u8]) -> bool {
    upload.missing() <= input.len() as u64
}

/// Returns whether the request in front, in text, may name a `held` key. Any of its words counts as a key, as it is and
/// decoded; a request that concerns all keys counts, too. The part of its line that is not there yet is looked at when it is.
pub(crate) fn names_one(input: &[u8], held: &dyn Fn(&[u8]) -> bool) -> bool {
    let end = memchr::memchr(b'\n', input).unwrap_or(input.len());
    let line = &input[..end];
    let words = || Tokens::new(line.strip_suffix(b"\r").unwrap_or(line));
    let mut decoded = [0; KEY_BYTES_MAX];
    words().next() == Some(b"flush_all")
        || words().any(|word| {
            held(word) || base64::decode(word, &mut decoded).is_ok_and(|bytes| held(&decoded[..bytes]))
        })
}

/// Returns whether the request in front, in text, may write. False for a request whose line is not whole: nothing of it is
/// carried out, and a connection that waited would not receive the rest.
pub(crate) fn may_write(input: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'\n', input) else { return false };
    let line = &input[..end];
    let mut tokens = Tokens::new(line.strip_suffix(b"\r").unwrap_or(line));
    let name = tokens.next().unwrap_or_default();
    // Behind the name comes a key, or nothing that would change what a row says.
    tokens.next();
    find(name).is_none_or(|row| row.may_write(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_told_from_writes() {
        for line in [
            "get a b\r\n",
            "gets a\n",
            "mg a v t\r\n",
            "mg N v\r\n",
            "mn\r\n",
            " get a\r\nset a 0 0 1\r\n",
            "ge",
            "delete a",
        ] {
            assert!(!may_write(line.as_bytes()), "{line:?}");
        }
        for line in
            ["set a 0 0 1\r\n", "gat 1 a\r\n", "mg a v N30\r\n", "mg a T0\r\n", "flush_all\r\n", "\r\n"]
        {
            assert!(may_write(line.as_bytes()), "{line:?}");
        }
    }
}
