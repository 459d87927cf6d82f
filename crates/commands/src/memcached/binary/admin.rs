//! Frames that name no item.

use larder_protocol::Tokens;
use larder_protocol::binary::{Frame, Request, Status};

use super::read::row_of;
use super::{Conversation, Next, State, Turn};
use crate::core::counters::Counter;
use crate::core::progress::Ending;
use crate::core::shared::VERSION;
use crate::core::work::{COMMAND_NS, REPLY_BYTE_NS};
use crate::memcached::admin::{self, VERBOSITY_MAX};
use crate::memcached::dump::Dump;
use crate::memcached::flow::Flow;
use crate::memcached::form::Form;
use crate::memcached::frames::{put_done, put_status, put_text};
use crate::memcached::line::Line;
use crate::memcached::time::expires_at_unsigned;

impl Conversation {
    /// Carries out a frame that names no item, with its value; it ends at `end`.
    pub(super) fn admin(
        &mut self,
        turn: &mut Turn<'_, '_, '_, '_>,
        frame: &Frame<'_>,
        value: &[u8],
        end: usize,
    ) -> Option<Next> {
        let before = turn.out.own_bytes();
        let next = match frame.request {
            // A login may have to wait, and is in the input until then.
            Request::SaslList | Request::Sasl { .. } => {
                let waits = self.sasl.take(turn.cx, turn.out, frame, value);
                if waits.is_some() {
                    return waits;
                }
                turn.reader.at = end;
                None
            }
            _ => {
                turn.reader.at = end;
                if self.permits(turn, frame) {
                    let next = self.run(turn, frame);
                    if turn.times.measures()
                        && let Some(row) = row_of(frame.opcode.verb)
                    {
                        turn.times.one_ends(turn.cx, row);
                    }
                    next
                } else {
                    put_status(turn.out, frame.head, Status::Auth);
                    None
                }
            }
        };
        let replied_bytes = turn.out.own_bytes().saturating_sub(before);
        turn.cx.spend(turn.out, COMMAND_NS + REPLY_BYTE_NS * replied_bytes);
        next
    }

    fn run(&mut self, turn: &mut Turn<'_, '_, '_, '_>, frame: &Frame<'_>) -> Option<Next> {
        let Turn { cx, shared, out, .. } = turn;
        let (head, quiet) = (frame.head, frame.opcode.quiet);
        match frame.request {
            Request::Noop => put_done(out, head, 0),
            Request::Version => put_text(out, head, Status::Ok, VERSION),
            Request::Verbosity { level } => {
                cx.host.verbosity(level.min(VERBOSITY_MAX) as u8);
                put_done(out, head, 0);
            }
            Request::Quit => {
                if !quiet {
                    put_done(out, head, 0);
                }
                return self.end(Ending::Quit);
            }
            Request::Flush { .. } if !cx.shared.settings.flush => put_status(out, head, Status::Auth),
            Request::Flush { delay } => {
                cx.counters.add(Counter::CmdFlush, 1);
                let at = (delay > 0).then(|| expires_at_unsigned(delay, cx.now()));
                if !admin::flush(shared, cx, at) {
                    self.state = State::Dump(Dump::Flush { noreply: quiet, form: Form::Frames(head) });
                } else if !quiet {
                    put_done(out, head, 0);
                }
            }
            Request::Stat => {
                let mut line = Line::new(shared, cx, out, Tokens::new(frame.key), false);
                line.form = Form::Frames(head);
                if let Flow::Dump(dump) = admin::stats(&mut line) {
                    self.state = State::Dump(dump);
                }
            }
            Request::Get
            | Request::GetAndTouch { .. }
            | Request::Touch { .. }
            | Request::Store { .. }
            | Request::Concat { .. }
            | Request::Delete
            | Request::Arithmetic { .. }
            | Request::SaslList
            | Request::Sasl { .. } => unreachable!("these go another way"),
        }
        None
    }
}
