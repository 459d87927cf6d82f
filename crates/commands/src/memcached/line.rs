//! One line of administration at work: its words, the context of its command, and its reply.

use larder_protocol::Tokens;

use super::form::Form;
use super::shared::Shared;
use crate::core::context::Context;
use crate::core::output::Output;

/// One administrative line at work.
pub(crate) struct Line<'x, 'a, 'c, 'w> {
    /// State that memcached's conversations share.
    pub shared: &'c Shared,
    /// The context of the call.
    pub cx: &'x mut Context<'c, 'w>,
    /// The output of its reply.
    pub out: &'x mut Output,
    /// The tokens behind its name, a `noreply` at the end not among them.
    pub tokens: Vec<&'a [u8]>,
    /// Whether the client wants no reply: what is written before the command ends is taken back.
    pub noreply: bool,
    /// The form of its reply.
    pub form: Form,
}

impl<'x, 'a, 'c, 'w> Line<'x, 'a, 'c, 'w> {
    /// A line whose name was read from `tokens`. Allocates: these commands are rare.
    pub fn new(
        shared: &'c Shared,
        cx: &'x mut Context<'c, 'w>,
        out: &'x mut Output,
        tokens: Tokens<'a>,
        noreply: bool,
    ) -> Line<'x, 'a, 'c, 'w> {
        let mut tokens: Vec<_> = tokens.collect();
        if noreply {
            tokens.pop();
        }
        Line { shared, cx, out, tokens, noreply, form: Form::Text }
    }
}
