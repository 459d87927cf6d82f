//! What a session asks of its conversation, whatever the protocol: each protocol implements [`Converse`], and `session` has the
//! one `match` that knows which it is.
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
    /// What its conversations share beside what those of every protocol do.
    type Shared;

    /// Answers the requests in `input`, as far as they are complete.
    fn receive<'c>(
        &mut self,
        shared: &'c Self::Shared,
        cx: &mut Context<'c, '_>,
        input: &[u8],
        out: &mut Output,
    ) -> Progress;

    /// Between two requests: nothing is half done (the input that is kept aside).
    fn is_idle(&self) -> bool;

    /// A part of a request has been taken, and more of it is to come.
    fn awaits_rest(&self) -> bool;

    /// Bytes of memory that a part of a request holds which has been taken: 0 if none has, 1 if it is only known.
    fn input_bytes(&self) -> u64;

    /// Since when it is unauthenticated, on the server's own clock; none: it has logged in, or need not.
    fn unauthenticated_since(&self) -> Option<Millis>;

    /// Its user is not among these, and it is not closed yet: it is to be closed for that.
    fn has_lost_user(&self, users: &Users) -> bool;

    /// Why it has closed its connection, if it has.
    fn ending(&self) -> Option<Ending>;

    /// It is refused before it was asked anything.
    fn is_turned_away(&self) -> bool {
        false
    }

    /// memcached's name of what it waits for, for `stats conns`.
    fn state_name(&self) -> &'static str {
        "conn_parse_cmd"
    }

    /// Where to receive the next bytes of a large value, straight into its item and in order; none when they belong in a buffer
    /// for [`Converse::receive`]. Only asked when no rest of input is kept: that comes first.
    fn upload_spaces(&mut self, _cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        None
    }

    /// Bytes that a large value still misses: what follows them belongs in a buffer again.
    fn upload_missing(&self) -> u64 {
        0
    }

    /// So many bytes of [`Converse::upload_spaces`] were filled. [`Converse::receive`] follows once the space is gone.
    fn upload_filled(&mut self, _bytes: usize) {}

    /// Bytes that a command in steps holds until its reply is taken, beside the replies, and what comes behind that.
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

    /// The number by which others know the client that may wait here, to wake it.
    fn waiter(&self) -> Option<u64> {
        None
    }

    /// Writes a message that was sent to its client, if that still listens.
    fn deliver(&mut self, _delivery: &Delivery, _out: &mut Output) {}

    /// What may wait for its client; none: the client is read no further instead.
    fn output_limit(&self, _shared: &Self::Shared) -> Option<OutputLimit> {
        None
    }

    /// Shows others how many bytes hold replies that its client has not taken.
    fn show_output(&self, _bytes: u64) {}

    /// It holds keys for which others wait.
    fn holds(&self) -> bool {
        false
    }

    /// It is at work at what is one moment for others, and is to be called until it is not, also when its connection has ended.
    fn must_end(&self) -> bool {
        false
    }

    /// Its client has proven by a certificate that it is this user, and has sent no request yet.
    fn log_in_by_certificate(&mut self, _cx: &Context<'_, '_>, _name: &str) {}
}

/// Nothing was said yet.
#[derive(Debug)]
pub(crate) struct New;

impl Converse for New {
    type Shared = Shared;

    /// Of no input: the first byte of any makes it another conversation.
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

/// Nothing more is said.
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
