//! The result of a call of a conversation: how much of its input is done with, and what is to happen next.

use larder_store::Millis;

/// The result of a call of `Session::receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are done with. The rest is presented again, in front of what arrives.
    pub consumed: usize,
    /// The caller's next step.
    pub next: Next,
}

/// The next step of the caller of `Session::receive`. In every case replies may wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Receive more (into `Session::upload_spaces` if there are any).
    Receive,
    /// The replies fill their limit: send, and call again with the rest of the input, even if that
    /// is empty, once [`Output::is_full`](super::output::Output::is_full) is false.
    Flush,
    /// Let others have their turn (the worker's slice of work may be used up), then call again with the rest of the
    /// input, even if that is empty, and a context entered anew (the clock may have moved).
    Yield,
    /// Let so many milliseconds pass, then call again as for [`Next::Yield`], also when the peer has ended: what it asked for is
    /// answered.
    Sleep(Millis),
    /// Wait until the connection is woken ([`super::host::Host::wake`]), or for so many milliseconds if that is said, then
    /// call again as for [`Next::Yield`]. Nothing more of it is received meanwhile; if its peer ends, it is closed, unless
    /// `Session::must_end` says that its reply comes all the same.
    Await(Option<Millis>),
    /// Send what waits, then close. `Session::ending` says why.
    Close,
}

/// The reason why a conversation has closed its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client asked for it (`quit`).
    Quit,
    /// The client asked the server to stop (`shutdown`).
    Shutdown,
    /// Anything else: an error of the protocol, a client that may not be connected, or one that was closed by another.
    Error,
}
