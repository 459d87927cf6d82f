//! CLIENT PAUSE beside text clients: what they ask for is on the same keys, so it waits as long.

use larder_protocol::classic::KEY_BYTES_MAX;
use larder_protocol::{Tokens, base64};
use larder_store::Upload;

use super::{Conversation, Next, State};
use crate::core::context::Context;
use crate::core::hold;
use crate::memcached::table::find;

/// A client that waits looks this often whether the pause was ended early.
const LOOK_MS: u64 = 100;

/// What a pause lets a connection do.
pub(super) enum Pace {
    /// There is none.
    Free,
    /// One request, behind which it is looked again.
    OneByOne,
    /// Nothing.
    Wait(Next),
}

impl Conversation {
    /// Does what is due, and looks whether the request in front may be carried out.
    #[cold]
    pub(super) fn pace(&self, cx: &mut Context<'_, '_>, input: &[u8]) -> Pace {
        cx.shared.flush_if_due(&mut cx.guard);
        let pause = &cx.shared.pause;
        let left_ms = pause.left_ms(cx.now());
        let keys = pause.holds.keys();
        if left_ms == 0 && keys.is_none() {
            return Pace::Free;
        }
        if let Some(keys) = keys {
            let held = |key: &[u8]| keys.has(cx.guard.key(key).hash());
            let waits = match &self.state {
                State::Ready | State::Keys(_) => names_one(input, held),
                State::Upload { upload, .. } => is_whole(upload, input) && held(upload.key()),
                _ => false,
            };
            if waits {
                return Pace::Wait(Next::Sleep(hold::LOOK_MS));
            }
        }
        if left_ms == 0 {
            return Pace::OneByOne;
        }
        let would_do_something = match &self.state {
            State::Ready => !input.is_empty() && (!pause.writes_only() || may_write(input)),
            State::Upload { upload, .. } => is_whole(upload, input),
            State::Gather(gathering) => gathering.missing() <= input.len(),
            _ => false,
        };
        if would_do_something {
            return Pace::Wait(Next::Sleep(left_ms.min(LOOK_MS)));
        }
        Pace::OneByOne
    }
}

/// With this input the value would be whole, and stored.
fn is_whole(upload: &Upload, input: &[u8]) -> bool {
    upload.missing() <= input.len() as u64
}

/// The request in front names a key that is `held`, or may: any of its words counts as one, as it is and decoded.
/// What concerns all keys does, too. What is not there yet of its line is looked at when it is.
fn names_one(input: &[u8], held: impl Fn(&[u8]) -> bool) -> bool {
    let end = memchr::memchr(b'\n', input).unwrap_or(input.len());
    let line = &input[..end];
    let words = || Tokens::new(line.strip_suffix(b"\r").unwrap_or(line));
    let mut decoded = [0; KEY_BYTES_MAX];
    words().next() == Some(b"flush_all")
        || words().any(|word| {
            held(word) || base64::decode(word, &mut decoded).is_ok_and(|bytes| held(&decoded[..bytes]))
        })
}

/// The request in front is none of those that only read. One whose line is not whole is not: nothing of it is carried
/// out, and who waited would not receive the rest.
fn may_write(input: &[u8]) -> bool {
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
