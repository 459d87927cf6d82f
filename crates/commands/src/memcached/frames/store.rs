//! set, add, replace, append, prepend: conditions and replies of the binary protocol. `verbs` has what they do.
//!
//! A frame with a token is a compare-and-swap, whichever of set, add and replace it is, as in memcached.

use larder_protocol::binary::{Frame, Head, Request, Status};
use larder_protocol::classic::StoreVerb;
use larder_store::{Attributes, End, Expect, Key, Refusal};

use super::reply::{put_done, put_status, put_text};
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::asked::Asked;
use crate::memcached::table::{Command, row_of_store};
use crate::memcached::time::expires_at_unsigned;
use crate::memcached::verbs::{Outcome, StorePlan, concat, refuse};

/// The order of a store: all that is kept of its frame while its value arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub attributes: Attributes,
    head: Head,
    quiet: bool,
    /// The frame's verb; with a token it is a compare-and-swap.
    verb: StoreVerb,
    /// The token that the item must have.
    compare: Option<u64>,
}

impl Plan {
    /// Makes the plan of a frame; `None` if the frame stores nothing.
    pub fn new(cx: &Context<'_, '_>, frame: &Frame<'_>) -> Option<Plan> {
        let (verb, flags, exptime) = match frame.request {
            Request::Store { verb, flags, exptime } => (verb, flags, exptime),
            Request::Concat { verb } => (verb, 0, 0),
            _ => return None,
        };
        let expires_at = expires_at_unsigned(exptime, cx.now());
        Some(Plan {
            attributes: Attributes { flags, expires_at, ..Attributes::default() },
            head: frame.head,
            quiet: frame.opcode.quiet,
            verb,
            compare: (frame.cas != 0).then(|| cx.shared.settings.token(frame.cas)),
        })
    }

    /// Returns whether it is append or prepend.
    pub fn concats(&self) -> bool {
        matches!(self.verb, StoreVerb::Append | StoreVerb::Prepend)
    }

    /// The end of the value to which it adds.
    pub fn end(&self) -> End {
        if self.verb == StoreVerb::Prepend { End::Front } else { End::Back }
    }

    /// Returns whether the item that is there is to be overwritten, whatever it is.
    pub fn overwrites(&self) -> bool {
        self.verb == StoreVerb::Set
    }

    /// The token that the item must have.
    pub fn compares_with(&self) -> Option<u64> {
        self.compare
    }

    /// The row of the text's command that does the same.
    pub fn row(&self) -> &'static Command {
        row_of_store(if self.compares() { StoreVerb::Cas } else { self.verb })
    }

    /// Its request to store a value, for watchers.
    pub fn asked(&self, key: &Key<'_>, value_bytes: u64) -> Asked {
        let (class, expires_at) = (self.attributes.class(key, value_bytes), self.attributes.expires_at);
        Asked { cmd: self.row().name, expires_at, class, value_bytes }
    }

    /// Replies an error status.
    pub fn put_status(&self, out: &mut Output, status: Status) {
        put_status(out, self.head, status);
    }

    /// Replies that memory ran out in the midst of the value.
    pub fn put_no_memory_during_read(&self, out: &mut Output) {
        put_text(out, self.head, Status::NoMemory, "Out of memory during read");
    }

    /// Replies the outcome.
    #[inline]
    pub fn answer(&self, cx: &Context<'_, '_>, out: &mut Output, outcome: Outcome) {
        let status = match outcome {
            Outcome::Stored { .. } if self.quiet => return,
            Outcome::Stored { cas, .. } => return put_done(out, self.head, cx.shared.settings.token(cas)),
            Outcome::NoMemory => {
                return put_text(out, self.head, Status::NoMemory, "Out of memory allocating item");
            }
            Outcome::Exists => Status::Exists,
            Outcome::NotFound => Status::NotFound,
            Outcome::NotStored => match self.verb {
                StoreVerb::Add => Status::Exists,
                StoreVerb::Replace => Status::NotFound,
                StoreVerb::Set | StoreVerb::Append | StoreVerb::Prepend | StoreVerb::Cas => Status::NotStored,
            },
        };
        self.put_status(out, status);
    }
}

impl StorePlan for Plan {
    #[inline]
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    #[inline]
    fn expect(&self) -> Expect {
        match (self.verb, self.compare) {
            (StoreVerb::Set | StoreVerb::Add | StoreVerb::Replace | StoreVerb::Cas, Some(cas)) => {
                Expect::Cas(cas)
            }
            (StoreVerb::Set | StoreVerb::Cas, None) => Expect::Any,
            (StoreVerb::Add, None) => Expect::Absent,
            (StoreVerb::Replace | StoreVerb::Append | StoreVerb::Prepend, _) => Expect::Present,
        }
    }

    #[inline]
    fn compares(&self) -> bool {
        self.compare.is_some() && !self.concats()
    }

    #[inline]
    fn adds(&self) -> bool {
        self.concats()
    }

    #[inline]
    fn removes_old(&self) -> bool {
        self.overwrites()
    }

    fn add(&self, cx: &mut Context<'_, '_>, key: &Key<'_>, value: &[u8], in_steps: bool) -> Option<Outcome> {
        Some(match concat(cx, key, value, (self.end(), None, self.compare), in_steps)? {
            Outcome::NotFound => Outcome::NotStored,
            other => other,
        })
    }

    fn refused(&self, cx: &mut Context<'_, '_>, key: &Key<'_>, _: &[u8], refusal: Refusal) -> Outcome {
        if self.verb == StoreVerb::Add && refusal == Refusal::Present {
            // memcached counts a refused add as an access of the item that is there.
            let _ = cx.guard.get(key);
        }
        refuse(refusal, self.compares())
    }

    #[inline]
    fn count(&self, _: &mut Tally) {}

    #[inline]
    fn put_outcome(&self, cx: &Context<'_, '_>, out: &mut Output, _: &[u8], outcome: Outcome) {
        self.answer(cx, out, outcome);
    }
}
