//! One line of administration at work: what its command reads, works with, and replies to.

use larder_protocol::Tokens;

use super::form::Form;
use super::shared::Shared;
use crate::core::context::Context;
use crate::core::output::Output;

/// One administrative line at work.
pub(crate) struct Line<'x, 'a, 'c, 'w> {
    /// What memcached's conversations share.
    pub shared: &'c Shared,
    /// What it works with.
    pub cx: &'x mut Context<'c, 'w>,
    /// Where it replies.
    pub out: &'x mut Output,
    /// The tokens behind its name, a `noreply` at the end not among them.
    pub tokens: Vec<&'a [u8]>,
    /// The client wants no reply: what is written before the command ends is taken back.
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
