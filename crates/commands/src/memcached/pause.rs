//! CLIENT PAUSE beside clients of memcached, and keys that another command holds: what they ask for is on the same keys, so it
//! waits as long. And changes of users.

use larder_protocol::classic::KEY_BYTES_MAX;
use larder_protocol::{Tokens, base64};
use larder_store::Upload;

use crate::core::access::Standing;
use crate::core::context::Context;
use crate::core::hold;
use crate::core::progress::Next;
use crate::memcached::table::find;

/// A client that waits looks this often whether the pause was ended early.
const LOOK_MS: u64 = 100;

/// What a pause lets a connection do.
pub(crate) enum Pace {
    /// There is none.
    Free,
    /// One request, behind which it is looked again.
    OneByOne,
    /// Nothing.
    Wait(Next),
}

/// Does what is due, looks at the client's user again where users were changed, and looks whether what is in front of its
/// connection may be carried out. `under_way`: a request has begun that is not asked for again, so that it ends where its user's
/// rules have changed since. `names`: whether what is in front names a key that is held, or concerns all; `acts`: whether it
/// would do something at all, and, if only writes wait, change something.
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
        // What was asked for by other rules does not go on.
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

/// The value would be whole with this input, and stored.
pub(crate) fn is_whole(upload: &Upload, input: &[u8]) -> bool {
    upload.missing() <= input.len() as u64
}

/// The request in front, in text, names a key that is `held`, or may: any of its words counts as one, as it is and decoded.
/// What concerns all keys does, too. What is not there yet of its line is looked at when it is.
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

/// The request in front, in text, is none of those that only read. One whose line is not whole is not: nothing of it is carried
/// out, and a connection that waited would not receive the rest.
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
