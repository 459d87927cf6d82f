//! Checks whether the rules of the client's user allow a request. They are made before each request of a user that may not do
//! everything, but for plain requests that its rules allow by a look at their key (`session/gate.rs`). `core/acl/verbs.rs` says
//! as which command of Redis a request is checked.
//!
//! | what is refused | is answered |
//! |---|---|
//! | a line | `CLIENT_ERROR unauthorized`, unless it ends in `noreply`; a value behind it is passed over |
//! | a line of keys, one of which may not be read | that alone, in the place of all values that were not sent yet |
//! | a frame, also a quiet one | status 0x20; a value is passed over |
//!
//! The connection stays. It is closed if rules change while a value is on its way in, a long reply out, or a `watch` under way:
//! these were checked once, when they began.

use larder_protocol::Tokens;
use larder_protocol::binary;
use larder_protocol::classic::{Fetch, Request, StoreVerb};
use larder_protocol::meta::{self, Flags};

use crate::core::access::Standing;
use crate::core::acl::log::{REFUSAL_NS, Reason, Refusal, Whence};
use crate::core::acl::rules::Denied;
use crate::core::acl::verbs::Verb;
use crate::core::context::Context;
use crate::core::output::Output;

/// The verb as which a classic or meta request is checked; `None` for requests that every client may send.
pub(super) fn verb_of(request: &Request<'_>) -> Option<Verb> {
    Some(match request {
        Request::Fetch(Fetch { touch: None, .. }) => Verb::Get,
        Request::Fetch(Fetch { touch: Some(_), .. }) => Verb::GetAndTouch,
        Request::Store(store) => verb_of_store(store.verb),
        Request::Delete { .. } => Verb::Delete,
        Request::Arithmetic { decrement: false, .. } => Verb::Add,
        Request::Arithmetic { decrement: true, .. } => Verb::Subtract,
        Request::Touch { .. } => Verb::Touch,
        Request::Meta(meta) => return verb_of_meta(meta.verb, &meta.flags),
        Request::Line(_) | Request::Fault { .. } => return None,
    })
}

/// The verb of a store.
pub(super) fn verb_of_store(verb: StoreVerb) -> Verb {
    match verb {
        StoreVerb::Set | StoreVerb::Add | StoreVerb::Replace | StoreVerb::Cas => Verb::Set,
        StoreVerb::Append | StoreVerb::Prepend => Verb::Append,
    }
}

/// The verb of a meta command with these flags.
pub(super) fn verb_of_meta(verb: meta::Verb, flags: &Flags<'_>) -> Option<Verb> {
    let mode = flags.token(b'M').and_then(<[u8]>::first);
    Some(match verb {
        // It may make an item, or give one another time.
        meta::Verb::Get if flags.has_any(b"NT") => Verb::GetAndTouch,
        meta::Verb::Get => Verb::Get,
        meta::Verb::Set if matches!(mode, Some(b'A' | b'P')) => Verb::Append,
        meta::Verb::Set => Verb::Set,
        meta::Verb::Delete => Verb::Delete,
        meta::Verb::Arithmetic if matches!(mode, Some(b'D' | b'-')) => Verb::Subtract,
        meta::Verb::Arithmetic => Verb::Add,
        meta::Verb::Debug => Verb::Inspect,
        meta::Verb::Noop => return None,
    })
}

/// The verb of a line that names no item. Every client may send a line that is no command.
pub(super) fn verb_of_line(name: &[u8], mut tokens: Tokens<'_>) -> Option<Verb> {
    let first = tokens.next();
    Some(match name {
        b"flush_all" => Verb::Flush,
        b"stats" => return verb_of_stats(first, tokens.next()),
        b"lru_crawler" if matches!(first, Some(b"metadump" | b"mgdump")) => Verb::Keys,
        b"verbosity" | b"cache_memlimit" | b"slabs" | b"lru" | b"lru_crawler" | b"refresh_certs" => {
            Verb::Turn
        }
        b"watch" => Verb::Watch,
        b"debugtime" => Verb::Clock,
        b"shutdown" => Verb::Shutdown,
        _ => return None,
    })
}

fn verb_of_stats(what: Option<&[u8]>, how: Option<&[u8]>) -> Option<Verb> {
    Some(match what {
        Some(b"reset") => Verb::ResetFigures,
        Some(b"detail") if how == Some(b"dump") => Verb::Keys,
        Some(b"detail") => Verb::ResetFigures,
        Some(b"cachedump" | b"hotkeys" | b"prefixes") => Verb::Keys,
        Some(b"conns") => Verb::Clients,
        _ => Verb::Figures,
    })
}

/// The verb of a frame.
pub(super) fn verb_of_frame(frame: &binary::Frame<'_>) -> Option<Verb> {
    Some(match frame.opcode.verb {
        binary::Verb::Get => Verb::Get,
        binary::Verb::GetAndTouch => Verb::GetAndTouch,
        binary::Verb::Touch => Verb::Touch,
        binary::Verb::Store(verb) | binary::Verb::Concat(verb) => verb_of_store(verb),
        binary::Verb::Delete => Verb::Delete,
        binary::Verb::Increment => Verb::Add,
        binary::Verb::Decrement => Verb::Subtract,
        binary::Verb::Flush => Verb::Flush,
        binary::Verb::Stat => {
            let mut tokens = Tokens::new(frame.key);
            return verb_of_stats(tokens.next(), tokens.next());
        }
        binary::Verb::Verbosity => Verb::Turn,
        binary::Verb::Noop
        | binary::Verb::Version
        | binary::Verb::Quit
        | binary::Verb::SaslList
        | binary::Verb::SaslAuth
        | binary::Verb::SaslStep => return None,
    })
}

/// Returns whether the client's requests are checked before they are carried out.
#[inline]
pub(super) fn asks(standing: Option<&Standing>) -> bool {
    standing.is_some_and(|standing| !standing.is_free())
}

/// Returns whether the client's user may do this, with this key. A refusal is noted.
#[cold]
pub(super) fn permits(
    cx: &Context<'_, '_>,
    out: &mut Output,
    standing: Option<&Standing>,
    verb: Verb,
    key: Option<&[u8]>,
) -> bool {
    let Some(standing) = standing.filter(|standing| !standing.is_free()) else { return true };
    let Some(user) = standing.user() else { return false };
    let access = &cx.shared.access;
    // Most requests are let through by this check, whose time is not counted, as in a run.
    if key.is_some_and(|key| user.may_ahead(access.command_of(verb), key, verb.need())) {
        return true;
    }
    let mut ns = 0;
    let checked = access.may(user, verb, key, &mut ns);
    cx.spend(out, ns);
    let Err(denied) = checked else { return true };
    cx.spend(out, REFUSAL_NS);
    let object = match denied {
        Denied::Command | Denied::TooMuch => verb.command().as_bytes(),
        Denied::Key(name) | Denied::Channel(name) => name,
    };
    let client = described(cx, user.name());
    let (reason, user) = (Reason::of(&denied), user.name().as_bytes());
    access.log.note(&Refusal { reason, whence: Whence::TopLevel, object, user, client }, cx.now());
    false
}

/// Counts and notes a wrong password. `word` is the request that had it.
pub(super) fn note_login(cx: &Context<'_, '_>, out: &mut Output, word: &str, user: &[u8]) {
    cx.spend(out, REFUSAL_NS);
    let (reason, whence, object) = (Reason::Auth, Whence::TopLevel, word.as_bytes());
    let refusal = Refusal { reason, whence, object, user, client: described(cx, "") };
    cx.shared.access.log.note(&refusal, cx.now());
}

/// Describes the client as `CLIENT INFO` does. No client has the number 0: `CLIENT KILL ID` with it closes no other connection.
fn described(cx: &Context<'_, '_>, user: &str) -> String {
    let (address, own) = (cx.peer.address(), cx.peer.listen_address());
    format!("id=0 addr={address} laddr={own} name= db=0 user={user}")
}
