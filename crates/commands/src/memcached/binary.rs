//! A conversation in memcached's binary protocol, without I/O: bytes in, replies out.
//!
//! ```text
//!           ┌────────────────────────── Ready ◄──────────────────────────┐
//!           ▼                      │  │  │                               │
//!   Swallow: what belongs to a     │  │  └─► Dump      long reply, piece by piece
//!   frame that was refused         │  └────► Upload    value received into its item
//!                                  │         Gather    value to be added to another
//!                                  └───────► Join      value that is added to a large one, in steps
//! ```
//!
//! The verbs are those of the text (`verbs`), and so are uploads, additions and long replies. This module has how frames ask
//! for them: `read` (reading ahead), `execute` (one frame), `value` (values that are not simply at hand), `admin` (frames that
//! name no item), `sasl` (how the client logs in). `frames` has what a store is to do, and replies.
//!
//! The bytes that a header announces belong to its frame: they are taken, or skipped, to the byte. A frame whose lengths
//! contradict each other, or whose shape is not its opcode's, is answered and ends the connection.

mod admin;
mod execute;
mod read;
mod sasl;
mod value;

use larder_protocol::Tokens;
use larder_protocol::binary::{Decoded, Frame, Request, Status, decode};
use larder_store::{Millis, Spaces, Upload};

use super::dump::Dump;
use super::frames::put_status;
use super::incoming::Gathering;
use super::join::Joining;
use super::pause::{self, Pace};
use super::purpose::Purpose;
use super::rules;
use super::shared::Shared;
use super::steps::Step;
use super::times::{self, Times};
use crate::core::access::{Standing, Users};
use crate::core::batch::prefetch_items;
use crate::core::context::Context;
use crate::core::conversation::Converse;
use crate::core::counters::Counter;
use crate::core::input::{Asked, Looks};
use crate::core::output::Output;
use crate::core::progress::{Ending, Next, Progress};
use crate::core::tally::Tally;
use crate::core::unauthenticated::UnauthenticatedClient;
use read::{Batch, Event, Reader, Stop, row_of};
use sasl::Sasl;

/// A connection that speaks the binary protocol.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    state: State,
    sasl: Sasl,
    /// Retries of its next request.
    asked: Asked,
}

/// The kind of the next bytes.
#[derive(Debug, Default)]
enum State {
    /// A frame.
    #[default]
    Ready,
    /// The rest of a frame that was answered already.
    Swallow(u64),
    /// A value for its item, of which so many bytes were announced.
    Upload { upload: Upload, value_bytes: u64, purpose: Purpose, looks: Looks },
    /// A value to be added to another.
    Gather(Gathering),
    /// A frame, after a value is added to a large one.
    Join(Box<Joining>),
    /// A frame, after a long reply.
    Dump(Dump),
    /// Nothing more.
    Closed(Ending),
}

/// One turn of [`Converse::receive`].
struct Turn<'x, 'a, 'c, 'w> {
    cx: &'x mut Context<'c, 'w>,
    /// State that memcached's conversations share.
    shared: &'c Shared,
    out: &'x mut Output,
    reader: Reader<'a>,
    tally: Tally,
    times: Times,
    /// The place of the frame that is to be retried.
    again_at: usize,
}

impl Conversation {
    /// A conversation of a client that must log in.
    pub fn of_unauthenticated(unauthenticated: UnauthenticatedClient) -> Conversation {
        Conversation { sasl: Sasl::of_unauthenticated(unauthenticated), ..Conversation::default() }
    }

    /// A conversation of a client that need not log in.
    pub fn unasked(cx: &Context<'_, '_>) -> Conversation {
        Conversation { sasl: Sasl::unasked(cx), ..Conversation::default() }
    }
}

impl Converse for Conversation {
    type Shared = Shared;

    fn receive<'c>(
        &mut self,
        shared: &'c Shared,
        cx: &mut Context<'c, '_>,
        input: &[u8],
        out: &mut Output,
    ) -> Progress {
        let mut left = cx.shared.settings.requests_per_event.unwrap_or(u32::MAX);
        if cx.shared.is_to_look(cx.guard.now()) {
            // A client that must log in first is not held up, and can do nothing else.
            let is_known = self.sasl.is_admitted(cx);
            let mut standing = self.sasl.take_standing();
            let names = |held: &dyn Fn(&[u8]) -> bool| is_known && self.names_one(input, held);
            let acts = |writes_only| is_known && self.acts(input, writes_only);
            let user = (standing.as_mut(), self.is_under_way());
            let pace = pause::pace(cx, user, names, acts);
            self.sasl.set_standing(standing);
            match pace {
                Pace::Free => {}
                // What is under way ends, and it is looked again behind it.
                Pace::OneByOne => left = u32::from(matches!(self.state, State::Ready)),
                Pace::Wait(next) => {
                    if next == Next::Close {
                        self.close();
                    }
                    return Progress { consumed: 0, next };
                }
            }
        }
        let reader = Reader { input, at: 0, left };
        let times = Times::begin(cx);
        let mut turn = Turn { cx, shared, out, reader, tally: Tally::default(), times, again_at: 0 };
        let next = self.steps(&mut turn);
        let next = if turn.out.take_end() { self.end_turn(&mut turn, next) } else { next };
        turn.times.batch_ends(turn.cx);
        turn.tally.settle(turn.cx.counters);
        turn.cx.shared.tell_events(&mut turn.cx.guard, turn.cx.host);
        Progress { consumed: turn.reader.at, next }
    }

    fn is_idle(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    fn awaits_rest(&self) -> bool {
        matches!(self.state, State::Upload { .. } | State::Gather(_) | State::Swallow(_))
    }

    fn input_bytes(&self) -> u64 {
        match &self.state {
            State::Ready => 0,
            State::Upload { upload, .. } => upload.held_bytes().max(1),
            State::Gather(gathering) => gathering.held_bytes().max(1),
            State::Swallow(_) | State::Join(_) | State::Dump(_) | State::Closed(_) => 1,
        }
    }

    fn unauthenticated_since(&self) -> Option<Millis> {
        self.sasl.since()
    }

    fn has_lost_user(&self, users: &Users) -> bool {
        let is_gone = |standing: &Standing| standing.is_gone(users);
        !matches!(self.state, State::Closed(_)) && self.sasl.standing().is_some_and(is_gone)
    }

    fn ending(&self) -> Option<Ending> {
        if let State::Closed(ending) = self.state { Some(ending) } else { None }
    }

    fn state_name(&self) -> &'static str {
        match self.state {
            State::Ready | State::Join(_) => "conn_parse_cmd",
            State::Swallow(_) => "conn_swallow",
            State::Upload { .. } | State::Gather(_) => "conn_nread",
            State::Dump(_) => "conn_mwrite",
            State::Closed(_) => "conn_closing",
        }
    }

    fn upload_spaces(&mut self, cx: &mut Context<'_, '_>) -> Option<Spaces<'_>> {
        self.value_spaces(cx)
    }

    fn upload_missing(&self) -> u64 {
        self.value_missing()
    }

    fn upload_filled(&mut self, bytes: usize) {
        self.value_filled(bytes);
    }
}

impl Conversation {
    /// Returns whether the input in front names a key that is held, or concerns all keys.
    fn names_one(&self, input: &[u8], held: &dyn Fn(&[u8]) -> bool) -> bool {
        match &self.state {
            State::Ready => match decode(input) {
                Decoded::Frame(frame, _) => matches!(frame.request, Request::Flush { .. }) || held(frame.key),
                _ => false,
            },
            State::Upload { upload, .. } => pause::is_whole(upload, input) && held(upload.key()),
            State::Gather(gathering) => gathering.missing() <= input.len() && held(&gathering.key),
            // It may be at its last step.
            State::Join(joining) => held(joining.key()),
            _ => false,
        }
    }

    /// Returns whether the input in front would do something; with `writes_only`, change something.
    fn acts(&self, input: &[u8], writes_only: bool) -> bool {
        match &self.state {
            State::Ready => !input.is_empty() && (!writes_only || may_write(input)),
            State::Upload { upload, .. } => pause::is_whole(upload, input),
            State::Gather(gathering) => gathering.missing() <= input.len(),
            _ => false,
        }
    }

    fn steps(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Next {
        loop {
            if let Some(next) = self.step(turn) {
                return next;
            }
        }
    }

    /// Ends a turn before its time: others are to have theirs, or a frame is to be retried for which there was no memory.
    #[cold]
    fn end_turn(&mut self, turn: &mut Turn<'_, '_, '_, '_>, next: Next) -> Next {
        if let Some(joining) = turn.cx.room.take_later() {
            return self.join(turn, joining);
        }
        if !turn.cx.room.take_again() {
            return if next == Next::Flush { Next::Yield } else { next };
        }
        turn.reader.at = turn.again_at;
        self.state = State::Ready;
        if let Some(next) = self.asked.again(turn.cx, turn.again_at) {
            return next;
        }
        turn.cx.guard.memory_did_not_come();
        let room = turn.cx.room;
        let next = room.for_the_last_time(|| self.steps(turn));
        let ended = turn.out.take_end();
        if let Some(joining) = room.take_later() {
            return self.join(turn, joining);
        }
        if ended && next == Next::Flush { Next::Yield } else { next }
    }

    /// Adds a value to a large one in the next turns; what comes behind it waits.
    fn join(&mut self, turn: &mut Turn<'_, '_, '_, '_>, joining: Box<Joining>) -> Next {
        turn.reader.at = turn.again_at;
        self.state = State::Join(joining);
        Next::Yield
    }

    fn step(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        match &mut self.state {
            State::Ready => self.batch(turn),
            State::Swallow(left) => {
                let there = (turn.reader.input.len() - turn.reader.at) as u64;
                let taken = there.min(*left);
                turn.reader.at += taken as usize;
                *left -= taken;
                if *left > 0 {
                    return Some(Next::Receive);
                }
                self.state = State::Ready;
                turn.times.passes(turn.cx);
                None
            }
            State::Upload { .. } => self.upload(turn),
            State::Gather(_) => self.gather(turn),
            State::Join(joining) => {
                if !joining.step(turn.cx, turn.out, &mut turn.tally) {
                    return Some(joining.pause(turn.cx));
                }
                self.state = State::Ready;
                turn.times.passes(turn.cx);
                None
            }
            State::Dump(dump) => match dump.step(turn.shared, turn.cx, turn.out) {
                Step::Done => {
                    self.state = State::Ready;
                    turn.times.passes(turn.cx);
                    None
                }
                Step::Full => Some(Next::Flush),
                Step::More => Some(Next::Yield),
            },
            State::Closed(_) => Some(Next::Close),
        }
    }

    /// Reads a batch ahead, executes it, and does what ended it.
    fn batch(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        if turn.out.is_full() {
            return Some(Next::Flush);
        }
        let mut batch = Batch::new();
        let is_known = self.sasl.is_admitted(turn.cx);
        let asks = rules::asks(self.sasl.standing());
        let stop = turn.reader.fill(&turn.cx.guard, &turn.cx.shared.settings, is_known, &mut batch);
        prefetch_items(&turn.cx.guard, &mut batch, |staged| (&staged.key, &mut staged.hint));
        for staged in &batch {
            if turn.out.is_full() {
                turn.reader.at = staged.at;
                return Some(Next::Flush);
            }
            if asks && !self.permits(turn, &staged.frame) {
                put_status(turn.out, staged.frame.head, Status::Auth);
                continue;
            }
            if turn.times.measures() {
                turn.times.call(turn.cx, times::of_frame(&staged.frame));
            }
            turn.execute(staged);
            turn.cx.spend_beside(turn.out);
            if turn.cx.room.is_again() {
                // A frame that goes on in the next turn is done with here.
                turn.again_at = if turn.cx.room.is_later() { staged.end } else { staged.at };
                return Some(Next::Flush);
            }
        }
        match stop {
            Stop::Full if turn.reader.left == 0 => {
                turn.cx.counters.add(Counter::ConnYields, 1);
                Some(Next::Yield)
            }
            Stop::Full => None,
            Stop::NeedMore => Some(Next::Receive),
            Stop::Event(event) => {
                turn.times.batch_ends(turn.cx);
                // A frame that is not staged is not retried.
                let (room, again) = (turn.cx.room, turn.cx.guard.ask_again(false));
                let next = room.for_the_last_time(|| self.event(turn, event));
                turn.cx.guard.ask_again(again);
                turn.times.passes(turn.cx);
                turn.again_at = turn.reader.at;
                next
            }
        }
    }

    #[inline(never)]
    fn event(&mut self, turn: &mut Turn<'_, '_, '_, '_>, event: Event<'_>) -> Option<Next> {
        match event {
            Event::Frame(frame, value, end) => self.admin(turn, &frame, value, end),
            Event::Store(frame) => {
                if self.permits(turn, &frame) {
                    self.block(turn, &frame);
                } else {
                    put_status(turn.out, frame.head, Status::Auth);
                    self.state = State::Swallow(u64::from(frame.value_bytes));
                }
                None
            }
            Event::Refused(head, status, left) => {
                put_status(turn.out, head, status);
                self.state = State::Swallow(left);
                None
            }
            Event::Broken(head, status) => {
                put_status(turn.out, head, status);
                self.close()
            }
            Event::NoFrame => self.close(),
        }
    }

    /// Returns whether the rules of the client's user allow what a frame asks for.
    fn permits(&self, turn: &mut Turn<'_, '_, '_, '_>, frame: &Frame<'_>) -> bool {
        let Some(verb) = rules::verb_of_frame(frame) else { return true };
        // The key of a frame that asks for figures names the figures.
        let names_key = !frame.key.is_empty() && frame.request != Request::Stat;
        rules::permits(turn.cx, turn.out, self.sasl.standing(), verb, names_key.then_some(frame.key))
    }

    /// Returns whether a request has begun for which permission is not asked again.
    fn is_under_way(&self) -> bool {
        matches!(self.state, State::Upload { .. } | State::Gather(_) | State::Join(_) | State::Dump(_))
    }

    fn close(&mut self) -> Option<Next> {
        self.end(Ending::Error)
    }

    fn end(&mut self, ending: Ending) -> Option<Next> {
        self.state = State::Closed(ending);
        Some(Next::Close)
    }
}

/// Returns whether the frame in front may write. False for a frame that is not whole up to its value: nothing of it is carried
/// out.
fn may_write(input: &[u8]) -> bool {
    match decode(input) {
        Decoded::Frame(frame, _) => {
            row_of(frame.opcode.verb).is_some_and(|row| row.may_write(Tokens::new(b"")))
        }
        Decoded::Incomplete | Decoded::Refused(..) | Decoded::Broken(..) | Decoded::NoFrame => false,
    }
}
