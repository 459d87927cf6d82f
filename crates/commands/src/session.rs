//! One connection's conversation, without I/O: bytes in, replies out. Its protocol is told by its listener or its first byte.
//!
//! ```text
//! New ──► first byte ┬─ `*`  ──► Redis       for good
//!                    ├─ 0x80 ──► Binary      for good
//!                    └─ else ──► Memcached   for good
//! Login ─► first byte as above, but that Memcached begins when the client has logged in
//! ```
//!
//! Login is in the place of New where text clients must log in. A protocol that the settings do not allow is Closed.
//!
//! A protocol is a module beside [`memcached`] and [`redis`]. Its conversation implements [`Converse`], and it may have a part
//! of [`Shared`]. Here it is a variant of [`Conversation`] with an arm in `ask!`, and it is known by a first byte ([`Begins`])
//! or a listener ([`Speaks`]).

use larder_store::{Guard, Millis, Spaces};

use crate::core::access::UsersNow;
use crate::core::context::{self, Room};
use crate::core::conversation::{Closed, Converse, New};
use crate::core::counters::Counters;
use crate::core::delivery::Delivery;
use crate::core::host::TLS_HANDSHAKE;
use crate::core::host::{Host, Peer};
use crate::core::output::{Output, OutputLimit};
use crate::core::progress::{Ending, Next, Progress};
use crate::shared::Shared;
use crate::{memcached, redis};

/// First byte of the binary protocol.
const BINARY_MAGIC: u8 = larder_protocol::binary::REQUEST_MAGIC;
/// First byte of a RESP request.
const RESP_ARRAY: u8 = b'*';

/// The protocols of a listener's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// The one that a connection's first byte tells.
    Any,
    /// RESP.
    Redis,
}

impl Speaks {
    /// Returns whether a connection's conversation is known when the connection is made; otherwise its first byte tells it.
    pub fn is_known_at_once(self, shared: &Shared) -> bool {
        let common = &shared.common;
        self == Speaks::Redis || common.settings.text_auth && common.access.asks()
    }

    /// The reply to a connection that is one more than may be open.
    pub fn refusal(self) -> &'static [u8] {
        match self {
            Speaks::Any => memcached::TOO_MANY_CONNECTIONS,
            Speaks::Redis => redis::TOO_MANY_CONNECTIONS,
        }
    }
}

/// Everything around a session while it works; made once per batch of receives.
#[derive(Debug)]
pub struct Context<'c, 'w> {
    common: context::Context<'c, 'w>,
    shared: &'c Shared,
}

impl<'c, 'w> Context<'c, 'w> {
    /// Makes the context of a worker inside the store, which it entered at [`Shared::now`]; its counters; what all workers
    /// share; the server around it; the other end of the connection; and what the worker keeps from one request to the next.
    #[inline]
    pub fn new(
        guard: Guard<'w>,
        counters: &'c Counters,
        shared: &'c Shared,
        host: &'c dyn Host,
        peer: &'c dyn Peer,
        room: &'c Room,
    ) -> Context<'c, 'w> {
        Context {
            common: context::Context { guard, counters, shared: &shared.common, host, peer, room },
            shared,
        }
    }

    /// Flushes the store if a delayed flush_all is due.
    pub fn flush_if_due(&mut self) {
        self.common.shared.flush_if_due(&mut self.common.guard);
    }
}

/// The conversation that a first byte begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    Redis,
    Binary,
    Text,
    /// TLS, on a port without it.
    Tls,
    /// A protocol that the settings do not allow.
    Refused,
}

fn begins(first: u8, cx: &Context<'_, '_>) -> Begins {
    let settings = &cx.common.shared.settings;
    match first {
        RESP_ARRAY if cx.shared.redis.settings.detected => Begins::Redis,
        BINARY_MAGIC if settings.binary => Begins::Binary,
        BINARY_MAGIC => Begins::Refused,
        TLS_HANDSHAKE => Begins::Tls,
        _ if settings.text => Begins::Text,
        _ => Begins::Refused,
    }
}

/// One connection's conversation.
#[derive(Debug)]
pub struct Session(Conversation);

/// The conversation, by its protocol.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "what most connections speak is not allocated on its own")]
enum Conversation {
    /// Nothing was said yet.
    New(New),
    /// memcached's text.
    Memcached(memcached::Conversation),
    /// RESP.
    Redis(Box<redis::Conversation>),
    /// memcached's binary protocol.
    Binary(Box<memcached::Binary>),
    /// Nothing but a login, in memcached's text.
    Login(Box<memcached::Login>),
    /// Nothing more is said.
    Closed(Closed),
}

/// Asks a conversation of any protocol: the one `match` with an arm for each. It is compiled for each of them, without a call
/// through a table.
macro_rules! ask {
    ($conversation:expr, $it:ident => $answer:expr) => {
        match $conversation {
            Conversation::New($it) => $answer,
            Conversation::Memcached($it) => $answer,
            Conversation::Redis($it) => $answer,
            Conversation::Binary($it) => $answer,
            Conversation::Login($it) => $answer,
            Conversation::Closed($it) => $answer,
        }
    };
}

impl Default for Session {
    fn default() -> Session {
        Session(Conversation::New(New))
    }
}

impl Session {
    /// A conversation that has not begun: its first byte tells the protocol. Whether it must log in is known then;
    /// [`Session::of`] knows it from the start.
    pub fn new() -> Session {
        Session::default()
    }

    /// A conversation of a connection that has come by a listener.
    pub fn of(speaks: Speaks, cx: &Context<'_, '_>) -> Session {
        match speaks {
            Speaks::Any => match memcached::Login::asked(&cx.common) {
                Some(login) => Session(Conversation::Login(Box::new(login))),
                None => Session::new(),
            },
            Speaks::Redis => {
                Session(Conversation::Redis(Box::new(redis::Conversation::new(&cx.shared.redis, &cx.common))))
            }
        }
    }

    /// Logs the client in as this user, which its certificate proves. The client has sent no request yet. Only RESP's
    /// conversations know of certificates.
    pub fn log_in_by_certificate(&mut self, cx: &Context<'_, '_>, name: &str) {
        ask!(&mut self.0, it => it.log_in_by_certificate(&cx.common, name));
    }

    /// Answers the requests in `input`, as far as they are complete.
    #[inline]
    pub fn receive(&mut self, cx: &mut Context<'_, '_>, input: &[u8], out: &mut Output) -> Progress {
        match &mut self.0 {
            Conversation::Memcached(conversation) => {
                conversation.receive(&cx.shared.memcached, &mut cx.common, input, out)
            }
            Conversation::Redis(conversation) => {
                conversation.receive(&cx.shared.redis, &mut cx.common, input, out)
            }
            // Few connections speak these: the others' way is no step longer for them, and a protocol needs no arm here.
            _ => self.apart(cx, input, out),
        }
    }

    /// Does [`Session::receive`] for protocols that few connections speak, and before the protocol is known.
    #[inline(never)]
    fn apart(&mut self, cx: &mut Context<'_, '_>, input: &[u8], out: &mut Output) -> Progress {
        if matches!(self.0, Conversation::New(_) | Conversation::Login(_)) {
            return self.begin(cx, input, out);
        }
        ask!(&mut self.0, it => it.receive(cx.shared.as_ref(), &mut cx.common, input, out))
    }

    /// Begins the conversation that the first byte tells.
    fn begin(&mut self, cx: &mut Context<'_, '_>, input: &[u8], out: &mut Output) -> Progress {
        if let Some(&first) = input.first() {
            self.begin_with(first, cx);
        }
        match &mut self.0 {
            Conversation::New(new) => new.receive(cx.shared.as_ref(), &mut cx.common, input, out),
            Conversation::Login(_) => self.log_in(cx, input, out),
            _ => self.receive(cx, input, out),
        }
    }

    /// Becomes the conversation that the first byte tells, or a login if that comes first.
    fn begin_with(&mut self, first: u8, cx: &Context<'_, '_>) {
        if matches!(self.0, Conversation::New(_))
            && let Some(login) = memcached::Login::asked(&cx.common)
        {
            self.0 = Conversation::Login(Box::new(login));
        }
        let begins = begins(first, cx);
        if let Conversation::Login(login) = &self.0 {
            // A connection that is one too many is refused in the words of a login, whatever it speaks.
            if login.is_turned_away() || !login.is_new() || begins == Begins::Text {
                return;
            }
        }
        match begins {
            Begins::Redis => {
                // Drops the login, whose unauthenticated client is counted no more.
                self.0 = Conversation::Closed(Closed);
                *self = Session::of(Speaks::Redis, cx);
            }
            Begins::Binary => {
                let unauthenticated = match std::mem::replace(&mut self.0, Conversation::Closed(Closed)) {
                    Conversation::Login(login) => login.into_unauthenticated(),
                    _ => None,
                };
                let conversation = match unauthenticated {
                    Some(unauthenticated) => memcached::Binary::of_unauthenticated(unauthenticated),
                    None => memcached::Binary::unasked(&cx.common),
                };
                self.0 = Conversation::Binary(Box::new(conversation));
            }
            Begins::Text => self.0 = Conversation::Memcached(memcached::Conversation::unasked(&cx.common)),
            Begins::Tls => {
                // Closed without a reply, which would be no TLS.
                cx.common.host.note_tls_on_plain_port();
                self.0 = Conversation::Closed(Closed);
            }
            Begins::Refused => self.0 = Conversation::Closed(Closed),
        }
    }

    /// Takes a login. The bytes behind it go to a conversation like any other.
    fn log_in(&mut self, cx: &mut Context<'_, '_>, input: &[u8], out: &mut Output) -> Progress {
        let Conversation::Login(login) = &mut self.0 else {
            return Progress { consumed: 0, next: Next::Close };
        };
        let progress = login.receive(cx.shared.as_ref(), &mut cx.common, input, out);
        if let Some(standing) = login.take_standing() {
            self.0 = Conversation::Memcached(memcached::Conversation::of(standing));
            let Progress { consumed: more, next } = self.receive(cx, &input[progress.consumed..], out);
            return Progress { consumed: progress.consumed + more, next };
        }
        if progress.next == Next::Close {
            self.0 = Conversation::Closed(Closed);
        }
        progress
    }

    /// The number by which others know the client that may wait here: a RESP client, or a watcher.
    pub fn waiter(&self) -> Option<u64> {
        ask!(&self.0, it => it.waiter())
    }

    /// The number of the RESP client, if it is one.
    pub fn redis_client(&self) -> Option<u64> {
        ask!(&self.0, it => it.client_number())
    }

    /// Most bytes that may wait for a RESP client; `None` for others, which are read no further instead.
    pub fn output_limit(&self, shared: &Shared) -> Option<OutputLimit> {
        ask!(&self.0, it => it.output_limit(shared.as_ref()))
    }

    /// Shows others how many bytes hold replies that the client has not taken.
    pub fn show_output(&self, bytes: u64) {
        ask!(&self.0, it => it.show_output(bytes));
    }

    /// Bytes of messages that come behind the reply that is under way.
    pub fn late_bytes(&self) -> u64 {
        ask!(&self.0, it => it.late_bytes())
    }

    /// Bytes that a command in steps holds beside its reply until that is taken, and those of messages that come behind it.
    pub fn held_bytes(&self) -> u64 {
        ask!(&self.0, it => it.held_bytes())
    }

    /// Writes a message that was sent to this client, if it still listens.
    pub fn deliver(&mut self, delivery: &Delivery, out: &mut Output) {
        ask!(&mut self.0, it => it.deliver(delivery, out));
    }

    /// The space for the next bytes of a large value, straight in its item and in order; `None` when they belong in a buffer
    /// for [`Session::receive`]. Only to be asked when no rest of input is kept: that comes first.
    pub fn upload_spaces(&mut self, cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        ask!(&mut self.0, it => it.upload_spaces(&mut cx.common))
    }

    /// Bytes that a large value still misses: what follows them belongs in a buffer again.
    pub fn upload_missing(&self) -> u64 {
        ask!(&self.0, it => it.upload_missing())
    }

    /// Notes that `bytes` of [`Session::upload_spaces`] were filled. Call [`Session::receive`] (with nothing, or with what
    /// follows) once the space is used up.
    pub fn upload_filled(&mut self, bytes: usize) {
        ask!(&mut self.0, it => it.upload_filled(bytes));
    }

    /// Returns whether it holds keys for which others wait.
    pub fn holds(&self) -> bool {
        ask!(&self.0, it => it.holds())
    }

    /// Returns whether it works at something that is one moment for others. Then it is to be called until that is done, even
    /// after its connection has ended.
    pub fn must_end(&self) -> bool {
        ask!(&self.0, it => it.must_end())
    }

    /// Returns whether it is between two requests, with nothing half done. Input that is kept does not count.
    #[inline]
    pub fn is_idle(&self) -> bool {
        ask!(&self.0, it => it.is_idle())
    }

    /// Returns whether a part of a request has been taken, and more of it is to come.
    #[inline]
    pub fn awaits_rest(&self) -> bool {
        ask!(&self.0, it => it.awaits_rest())
    }

    /// Bytes of memory held by a part of a request that has been taken: 0 if there is none, 1 if it holds no memory.
    #[inline]
    pub fn input_bytes(&self) -> u64 {
        ask!(&self.0, it => it.input_bytes())
    }

    /// Returns whether it must log in, and has not.
    #[inline]
    pub fn is_unauthenticated(&self) -> bool {
        self.unauthenticated_since().is_some()
    }

    /// When it became unauthenticated, on the server's own clock; `None` if it has logged in, or need not.
    #[inline]
    pub fn unauthenticated_since(&self) -> Option<Millis> {
        ask!(&self.0, it => it.unauthenticated_since())
    }

    /// Returns whether it is a client of memcached's protocols whose user is not among these: then it is counted as closed for
    /// that, and must be closed. `users` are read after its last receive. Redis clients are closed by the command that removes
    /// their users.
    pub fn turn_out(&self, users: &UsersNow, shared: &Shared) -> bool {
        let is_gone = ask!(&self.0, it => it.has_lost_user(&users.0));
        if is_gone {
            shared.common.access.log.count_closed();
        }
        is_gone
    }

    /// The reason why the conversation has closed its connection. `None`: it has not; if the connection is closed, the client
    /// has closed it, or the server.
    pub fn ending(&self) -> Option<Ending> {
        ask!(&self.0, it => it.ending())
    }

    /// Returns whether the client was refused before its first request.
    pub fn is_turned_away(&self) -> bool {
        ask!(&self.0, it => it.is_turned_away())
    }

    /// memcached's name of its state, for `stats conns`.
    pub fn state_name(&self) -> &'static str {
        ask!(&self.0, it => it.state_name())
    }
}
