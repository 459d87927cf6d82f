//! The interface between a session and its conversation, whatever the protocol. Each protocol implements [`Converse`], and
//! `session` has the one `match` that knows which it is.
//!
//! A method has no default where a protocol that forgot it would do harm: whether a request is half done, since when the client
//! must log in, whether its user was removed, why the connection was closed. The defaults fit a protocol that receives everything
//! in buffers, sends nothing but replies and holds no keys.
//!
//! Two conversations are of no protocol: one that has not begun ([`New`]) and one that is over ([`Closed`]).

use larder_store::{Millis, Spaces};

use super::access::Users;
use super::context::Context;
use super::delivery::Delivery;
use super::output::{Output, OutputLimit};
use super::progress::{Ending, Next, Progress};
use super::shared::Shared;

/// One connection's conversation in one protocol, without I/O.
pub(crate) trait Converse {
    /// State that all conversations of its protocol share, beside what those of every protocol share.
    type Shared;

    /// Answers the requests in `input`, as far as they are complete.
    fn receive<'c>(
        &mut self,
        shared: &'c Self::Shared,
        cx: &mut Context<'c, '_>,
        input: &[u8],
        out: &mut Output,
    ) -> Progress;

    /// Returns whether it is between two requests, with nothing half done. Input that is kept does not count.
    fn is_idle(&self) -> bool;

    /// Returns whether a part of a request has been taken, and more of it is to come.
    fn awaits_rest(&self) -> bool;

    /// Bytes of memory held by a part of a request that has been taken: 0 if there is none, 1 if it holds no memory.
    fn input_bytes(&self) -> u64;

    /// When it became unauthenticated, on the server's own clock; `None` if it has logged in, or need not.
    fn unauthenticated_since(&self) -> Option<Millis>;

    /// Returns whether it must be closed because its user is not among these. False once it is closed.
    fn has_lost_user(&self, users: &Users) -> bool;

    /// The reason why it has closed its connection, if it has.
    fn ending(&self) -> Option<Ending>;

    /// Returns whether the client was refused before its first request.
    fn is_turned_away(&self) -> bool {
        false
    }

    /// memcached's name of its state, for `stats conns`.
    fn state_name(&self) -> &'static str {
        "conn_parse_cmd"
    }

    /// The space for the next bytes of a large value, straight in its item and in order. `None` when they belong in a buffer
    /// for [`Converse::receive`]. Called only when no rest of input is kept, since that comes first.
    fn upload_spaces(&mut self, _cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        None
    }

    /// Bytes that a large value still misses. What follows them belongs in a buffer again.
    fn upload_missing(&self) -> u64 {
        0
    }

    /// Notes that so many bytes of [`Converse::upload_spaces`] were filled. [`Converse::receive`] follows once the space is
    /// used up.
    fn upload_filled(&mut self, _bytes: usize) {}

    /// Bytes that a command in steps holds beside its reply until that is taken, and those of messages that come behind it.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Bytes of messages that come behind the reply that is under way.
    fn late_bytes(&self) -> u64 {
        0
    }

    /// The number by which others name its client, to send it messages or to close it.
    fn client_number(&self) -> Option<u64> {
        None
    }

    /// The number by which others wake the client, if it may wait here.
    fn waiter(&self) -> Option<u64> {
        None
    }

    /// Writes a message that was sent to its client, if that still listens.
    fn deliver(&mut self, _delivery: &Delivery, _out: &mut Output) {}

    /// Most bytes that may wait for its client; `None`: the client is read no further instead.
    fn output_limit(&self, _shared: &Self::Shared) -> Option<OutputLimit> {
        None
    }

    /// Shows others how many bytes hold replies that its client has not taken.
    fn show_output(&self, _bytes: u64) {}

    /// Returns whether it holds keys for which others wait.
    fn holds(&self) -> bool {
        false
    }

    /// Returns whether it works at something that is one moment for others. Then it is called until that is done, even after
    /// its connection has ended.
    fn must_end(&self) -> bool {
        false
    }

    /// Logs its client in as this user, which a certificate proves. The client has sent no request yet.
    fn log_in_by_certificate(&mut self, _cx: &Context<'_, '_>, _name: &str) {}
}

/// A conversation that has not begun.
#[derive(Debug)]
pub(crate) struct New;

impl Converse for New {
    type Shared = Shared;

    /// Takes no input: the first byte makes the connection another conversation.
    fn receive<'c>(
        &mut self,
        shared: &'c Shared,
        cx: &mut Context<'c, '_>,
        _input: &[u8],
        _out: &mut Output,
    ) -> Progress {
        shared.flush_if_due(&mut cx.guard);
        Progress { consumed: 0, next: Next::Receive }
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn awaits_rest(&self) -> bool {
        false
    }

    fn input_bytes(&self) -> u64 {
        0
    }

    fn unauthenticated_since(&self) -> Option<Millis> {
        None
    }

    fn has_lost_user(&self, _users: &Users) -> bool {
        false
    }

    fn ending(&self) -> Option<Ending> {
        None
    }

    fn state_name(&self) -> &'static str {
        "conn_new_cmd"
    }
}

/// A conversation that is over.
#[derive(Debug)]
pub(crate) struct Closed;

impl Converse for Closed {
    type Shared = Shared;

    fn receive<'c>(
        &mut self,
        _shared: &'c Shared,
        _cx: &mut Context<'c, '_>,
        _input: &[u8],
        _out: &mut Output,
    ) -> Progress {
        Progress { consumed: 0, next: Next::Close }
    }

    fn is_idle(&self) -> bool {
        false
    }

    fn awaits_rest(&self) -> bool {
        false
    }

    fn input_bytes(&self) -> u64 {
        1
    }

    fn unauthenticated_since(&self) -> Option<Millis> {
        None
    }

    fn has_lost_user(&self, _users: &Users) -> bool {
        false
    }

    fn ending(&self) -> Option<Ending> {
        Some(Ending::Error)
    }

    fn state_name(&self) -> &'static str {
        "conn_closing"
    }
}
