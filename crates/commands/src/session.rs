//! One connection's conversation, without I/O: bytes in, replies out.

use crate::context::Context;
use crate::output::Output;

/// What a call of [`Session::receive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are done with. The rest is presented again, in front of what arrives.
    pub consumed: usize,
    /// What to do now.
    pub next: Next,
}

/// What the caller of [`Session::receive`] does now. In every case replies may wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Receive more (into [`Session::upload_space`] if there is any).
    Receive,
    /// The replies fill their limit: send, and call again with the rest of the input, even if that
    /// is empty, once [`Output::is_full`] is false.
    Flush,
    /// Let others have their turn, then call again with the rest of the input, even if that is
    /// empty, and a context entered anew (the clock may have moved).
    Yield,
    /// Send what waits, then close.
    Close,
}

/// One connection's conversation.
#[derive(Debug, Default)]
pub struct Session {}

impl Session {
    /// A conversation that has not begun.
    pub fn new() -> Session {
        Session::default()
    }

    /// Answers the requests in `input`, as far as they are complete.
    pub fn receive(&mut self, _cx: &mut Context<'_, '_>, _input: &[u8], _out: &mut Output) -> Progress {
        Progress { consumed: 0, next: Next::Close }
    }

    /// Where to receive the rest of a large value, straight into its item; none when the next bytes
    /// belong in a buffer for [`Session::receive`]. Also none while a rest of input is kept: that
    /// comes first.
    pub fn upload_space(&mut self, _cx: &mut Context<'_, '_>) -> Option<&mut [u8]> {
        None
    }

    /// Says that `bytes` of [`Session::upload_space`] were filled. Call [`Session::receive`] (with
    /// nothing, or with what follows) once the space is gone.
    pub fn upload_filled(&mut self, _bytes: usize) {}

    /// Between two requests: nothing is half done (the input that is kept aside).
    pub fn is_idle(&self) -> bool {
        true
    }

    /// memcached's name of what it waits for, for `stats conns`.
    pub fn state_name(&self) -> &'static str {
        "conn_new_cmd"
    }
}
