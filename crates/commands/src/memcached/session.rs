//! A conversation in memcached's text, without I/O: bytes in, replies out.
//!
//! ```text
//!           ┌────────────────────────── Ready ◄──────────────────────────┐
//!           │ batch of requests    │  │  │  │                            │
//!           ▼                      │  │  │  └─► Dump      long reply, piece by piece
//!   Keys: inside an endless line   │  │  └────► Upload    value received into its item
//!   Skip: the rest of a bad one    │  └───────► Gather    value to be added to another
//!                                  ├──────────► Swallow   block of a store that failed
//!                                  └──────────► Join      value that is added to a large one, in steps
//! ```
//!
//! Work per call is bounded by the input, by the output's limit, and by the worker's slice (`work.rs`). Nothing
//! here blocks, and a call that made no reply costs no more than reading its input once.

mod execute;
mod pause;
mod runs;
mod value;

use larder_protocol::Tokens;
use larder_protocol::base64;
use larder_protocol::classic::{KEY_BYTES_MAX, Request, Store};
use larder_protocol::meta::{Meta, Verb};
use larder_protocol::scan::line_feed;
use larder_protocol::{Fault, ends_in_noreply, last_token};
use larder_store::Upload;

use super::admin::Line;
use super::batch::{Batch, Block, Event, Keys, Reader, Slot, Stop};
use super::dump::{Dump, Step};
use super::flow::Flow;
use super::join::Joining;
use super::meta;
use super::shared::Shared;
use super::table::{answers_always, line_command, row_of_meta};
use super::text::{END, ERROR};
use super::told::Before;
use super::upload::{Gathering, Purpose};
use crate::core::batch::prefetch_items;
use crate::core::context::Context;
use crate::core::counters::Counter;
use crate::core::input::{Asked, Looks};
use crate::core::output::{Mark, Output};
use crate::core::progress::{Next, Progress};
use crate::core::tally::Tally;
use crate::core::work::{COMMAND_NS, REPLY_BYTE_NS, copying_ns};
use pause::Pace;

/// What is received with fewer bytes has too few requests for a run of them, unless the settings say otherwise.
const RUN_BYTES_MIN: usize = 256;

/// A connection that speaks memcached's text.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    state: State,
    /// How often its next request was asked again.
    asked: Asked,
}

/// What the next bytes are.
#[derive(Debug, Default)]
enum State {
    /// A request.
    #[default]
    Ready,
    /// Keys of a line that was begun.
    Keys(Keys),
    /// The rest of a line that failed.
    Skip,
    /// A block that nobody wants, and what is said after it.
    Swallow { left: u64, reply: Option<&'static [u8]> },
    /// A value for its item, of which so many bytes were announced.
    Upload { upload: Upload, value_bytes: u64, purpose: Purpose, looks: Looks },
    /// A value to be added to another.
    Gather(Gathering),
    /// A request, after a value is added to a large one.
    Join(Box<Joining>),
    /// A request, after a long reply.
    Dump(Dump),
    /// Nothing more.
    Closed,
}

/// One call of [`Conversation::receive`].
struct Call<'x, 'a, 'c, 'w> {
    cx: &'x mut Context<'c, 'w>,
    /// What memcached's conversations share.
    shared: &'c Shared,
    out: &'x mut Output,
    reader: Reader<'a>,
    tally: Tally,
    /// So far the input was a run of plain requests.
    runs: bool,
    /// Where the replies to the current line of keys begin, if it began in this call.
    line_mark: Option<Mark>,
    /// The current line of keys has failed: its other keys are passed over.
    skips: bool,
    /// Where the request begins that is to be asked again.
    again_at: usize,
}

impl Call<'_, '_, '_, '_> {
    /// Runs `f`, which asks for memory once: it waits for it where another would be asked again.
    fn once<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let (room, again) = (self.cx.room, self.cx.guard.ask_again(false));
        let done = room.for_the_last_time(|| f(self));
        self.cx.guard.ask_again(again);
        done
    }
}

impl Conversation {
    /// Answers the requests in `input`, as far as they are complete.
    pub fn receive<'c>(
        &mut self,
        shared: &'c Shared,
        cx: &mut Context<'c, '_>,
        input: &[u8],
        out: &mut Output,
    ) -> Progress {
        let mut turn = cx.shared.settings.requests_per_event.unwrap_or(u32::MAX);
        let run_bytes_min = cx.shared.settings.run_bytes_min.unwrap_or(RUN_BYTES_MIN);
        let mut runs = input.len() >= run_bytes_min && !cx.shared.events.any();
        if cx.shared.is_to_look(cx.guard.now()) {
            match self.pace(cx, input) {
                Pace::Free => {}
                Pace::OneByOne => (turn, runs) = (1, false),
                Pace::Wait(next) => return Progress { consumed: 0, next },
            }
        }
        let reader = Reader { input, at: 0, keys: None, turn };
        let mut call = Call {
            cx,
            shared,
            out,
            reader,
            tally: Tally::default(),
            runs,
            line_mark: None,
            skips: false,
            again_at: 0,
        };
        let next = self.steps(&mut call);
        let next = if call.out.take_end() { self.end_turn(&mut call, next) } else { next };
        call.tally.settle(call.cx.counters);
        call.cx.shared.tell_events(&mut call.cx.guard, call.cx.host);
        Progress { consumed: call.reader.at, next }
    }

    #[inline(always)]
    fn steps(&mut self, call: &mut Call<'_, '_, '_, '_>) -> Next {
        loop {
            if let Some(next) = self.step(call) {
                return next;
            }
        }
    }

    /// The turn has ended before its time: others are to have theirs, or a request is to be asked again, for which
    /// there was no memory.
    #[cold]
    fn end_turn(&mut self, call: &mut Call<'_, '_, '_, '_>, next: Next) -> Next {
        if let Some(joining) = call.cx.room.take_later() {
            return self.join(call, joining);
        }
        if !call.cx.room.take_again() {
            return if next == Next::Flush { Next::Yield } else { next };
        }
        (call.reader.at, call.reader.keys, call.runs) = (call.again_at, None, false);
        self.state = State::Ready;
        if let Some(next) = self.asked.again(call.cx.now(), call.again_at) {
            return next;
        }
        call.cx.guard.memory_did_not_come();
        let room = call.cx.room;
        let next = room.for_the_last_time(|| self.steps(call));
        let ended = call.out.take_end();
        if let Some(joining) = room.take_later() {
            return self.join(call, joining);
        }
        if ended && next == Next::Flush { Next::Yield } else { next }
    }

    /// A value is added to a large one in the next turns; what comes behind it waits.
    fn join(&mut self, call: &mut Call<'_, '_, '_, '_>, joining: Box<Joining>) -> Next {
        (call.reader.at, call.reader.keys) = (call.again_at, None);
        self.state = State::Join(joining);
        Next::Yield
    }

    /// Between two requests: nothing is half done (the input that is kept aside).
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// A part of a request has been taken, and more of it is to come.
    #[inline]
    pub fn awaits_rest(&self) -> bool {
        match &self.state {
            State::Upload { .. }
            | State::Gather(_)
            | State::Swallow { .. }
            | State::Skip
            | State::Keys(_) => true,
            State::Ready | State::Join(_) | State::Dump(_) | State::Closed => false,
        }
    }

    /// Bytes of memory that a part of a request holds which has been taken: 0 if none has, 1 if it is only known.
    #[inline]
    pub fn input_bytes(&self) -> u64 {
        match &self.state {
            State::Ready => 0,
            State::Upload { upload, .. } => upload.held_bytes().max(1),
            State::Gather(gathering) => gathering.held_bytes().max(1),
            State::Keys(_)
            | State::Skip
            | State::Swallow { .. }
            | State::Join(_)
            | State::Dump(_)
            | State::Closed => 1,
        }
    }

    /// memcached's name of what it waits for, for `stats conns`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Ready | State::Keys(_) | State::Skip => "conn_parse_cmd",
            State::Swallow { .. } => "conn_swallow",
            State::Join(_) => "conn_parse_cmd",
            State::Upload { .. } | State::Gather(_) => "conn_nread",
            State::Dump(_) => "conn_mwrite",
            State::Closed => "conn_closing",
        }
    }

    #[inline]
    fn step(&mut self, call: &mut Call<'_, '_, '_, '_>) -> Option<Next> {
        match &mut self.state {
            State::Ready => self.batch(call, None),
            State::Keys(keys) => {
                let keys = *keys;
                self.batch(call, Some(keys))
            }
            State::Skip => {
                let rest = &call.reader.input[call.reader.at..];
                match line_feed(rest) {
                    Some(feed) => {
                        call.reader.at += feed + 1;
                        self.state = State::Ready;
                        None
                    }
                    None => {
                        call.reader.at += rest.len();
                        Some(Next::Receive)
                    }
                }
            }
            State::Swallow { left, reply } => {
                let there = (call.reader.input.len() - call.reader.at) as u64;
                let taken = there.min(*left);
                call.reader.at += taken as usize;
                *left -= taken;
                if *left > 0 {
                    return Some(Next::Receive);
                }
                call.out.put(reply.unwrap_or_default());
                self.state = State::Ready;
                None
            }
            State::Upload { .. } => self.upload(call),
            State::Gather(_) => self.gather(call),
            State::Join(joining) => {
                if !joining.step(call.cx, call.out, &mut call.tally) {
                    return Some(Next::Yield);
                }
                self.state = State::Ready;
                None
            }
            State::Dump(dump) => match dump.step(call.shared, call.cx, call.out) {
                Step::Done => {
                    self.state = State::Ready;
                    None
                }
                Step::Full => Some(Next::Flush),
                Step::More => Some(Next::Yield),
            },
            State::Closed => Some(Next::Close),
        }
    }

    fn close(&mut self) -> Option<Next> {
        self.state = State::Closed;
        Some(Next::Close)
    }

    /// Reads a batch ahead, executes it, and does what ended it.
    #[inline]
    fn batch(&mut self, call: &mut Call<'_, '_, '_, '_>, keys: Option<Keys>) -> Option<Next> {
        if call.out.is_full() {
            return Some(Next::Flush);
        }
        if keys.is_none()
            && call.runs
            && let Some(next) = self.run(call)
        {
            return Some(next);
        }
        let mut batch = Batch::new();
        call.reader.keys = keys;
        let stop = call.reader.fill(&call.cx.guard, &call.cx.shared.settings, &mut batch);
        prefetch_items(&call.cx.guard, &mut batch, |slot| (&slot.key, &mut slot.hint));
        for slot in &batch {
            if call.skips {
                call.skips = !slot.last;
                continue;
            }
            if call.out.is_full() {
                if call.cx.room.is_again() {
                    let before = batch.iter().map(|slot| slot.at).rfind(|&at| at < slot.at);
                    // What goes on in the next turn is done with here.
                    let at = if call.cx.room.is_later() { Some(slot.at) } else { before };
                    call.again_at = at.unwrap_or(call.again_at);
                    return Some(Next::Flush);
                }
                self.state = leave_at(slot);
                call.reader.at = slot.at;
                return Some(Next::Flush);
            }
            call.execute(slot);
            call.cx.spend_beside(call.out);
        }
        if call.cx.room.is_again() {
            let behind = call.cx.room.is_later();
            let at = |slot: &Slot<'_, '_>| if behind { call.reader.behind(slot) } else { slot.at };
            call.again_at = batch.last().map_or(call.again_at, at);
            return Some(Next::Flush);
        }
        if std::mem::take(&mut call.skips) {
            let ended = call.reader.keys.is_none() && matches!(stop, Stop::Event(Event::EndOfKeys));
            self.state = if ended { State::Ready } else { State::Skip };
            return None;
        }
        self.state = call.reader.keys.map_or(State::Ready, State::Keys);
        match stop {
            Stop::Full if call.reader.turn == 0 && call.reader.keys.is_none() => {
                call.cx.counters.add(Counter::ConnYields, 1);
                Some(Next::Yield)
            }
            Stop::Full => None,
            Stop::NeedMore => Some(Next::Receive),
            Stop::Event(event) => {
                // What does not come in a slot is not asked again.
                let next = call.once(|call| self.event(call, event));
                call.again_at = call.reader.at;
                next
            }
        }
    }

    #[inline(never)]
    fn event(&mut self, call: &mut Call<'_, '_, '_, '_>, event: Event<'_>) -> Option<Next> {
        match event {
            Event::Line(text) => return self.line(call, text),
            Event::Fault { fault, swallow, noreply } => {
                if !noreply {
                    call.out.put(fault.reply());
                }
                if fault.closes() {
                    return self.close();
                }
                if swallow > 0 {
                    self.state = State::Swallow { left: swallow, reply: None };
                }
            }
            Event::EndOfKeys => call.out.put(END),
            Event::LongKey => {
                call.out.put(Fault::BadLine.reply());
                self.state = State::Skip;
            }
            Event::LongLine => return self.close(),
            Event::Store(store, block) => {
                let key = call.cx.guard.key(store.key);
                let flags = store.flags;
                let purpose = Purpose::Classic(Store { key: &[], ..store });
                call.cx.shared.prefixes.count(call.cx.guard.store(), store.key, |count| count.sets += 1);
                self.block(call, &key, flags, store.value_bytes, purpose, block);
            }
            Event::Meta(meta, block) => self.meta(call, &meta, block),
        }
        None
    }

    /// A line that names no item.
    fn line(&mut self, call: &mut Call<'_, '_, '_, '_>, text: &[u8]) -> Option<Next> {
        let mut tokens = Tokens::new(text);
        let Some(name) = tokens.next() else {
            call.out.put(Fault::BadLine.reply());
            return None;
        };
        let noreply = ends_in_noreply(text) && !answers_always(name);
        let Some(command) = line_command(name) else {
            if last_token(text).is_some_and(|token| token.starts_with(b"HTTP/")) {
                return self.close();
            }
            if !noreply {
                call.out.put(ERROR);
            }
            return None;
        };
        let (mark, before) = (call.out.mark(), call.out.own_bytes());
        let flow = command.run(&mut Line::new(call.shared, call.cx, call.out, tokens, noreply));
        let replied_bytes = call.out.own_bytes().saturating_sub(before);
        let words_ns = copying_ns(text.len() as u64);
        call.cx.spend(call.out, COMMAND_NS + words_ns + REPLY_BYTE_NS * replied_bytes);
        if noreply && !matches!(flow, Flow::Dump(_)) {
            call.out.rewind(mark);
        }
        match flow {
            Flow::Next => None,
            Flow::Dump(dump) => {
                self.state = State::Dump(dump);
                None
            }
            Flow::Yield => Some(Next::Yield),
            Flow::Close => self.close(),
        }
    }

    /// A meta command with an encoded key, a block that is not simply there, or mn.
    fn meta(&mut self, call: &mut Call<'_, '_, '_, '_>, meta: &Meta<'_>, block: Block<'_>) {
        if meta.verb == Verb::Noop {
            return call.out.put(b"MN\r\n");
        }
        let block_bytes = if meta.verb == Verb::Set { u64::from(meta.value_bytes) + 2 } else { 0 };
        let mut room = [0; KEY_BYTES_MAX];
        let key = if meta.flags.has(b'b') {
            match base64::decode(meta.key, &mut room) {
                Ok(bytes) => &room[..bytes],
                Err(_) => return self.fail(call, Fault::BadBase64Key, block_bytes),
            }
        } else {
            meta.key
        };
        let key = call.cx.guard.key(key);
        if meta.verb != Verb::Set {
            let hint = call.cx.guard.prefetch_bucket(&key);
            let before = Before::look(call.cx, key.bytes());
            call.meta(&key, &hint, meta, &[]);
            return before.tell(call.cx, row_of_meta(meta.verb), key.bytes());
        }
        match meta::plan_set(call.cx, &meta.flags) {
            Ok(mut plan) => {
                if block == Block::Long {
                    plan.settle_stale(call.cx, &key);
                }
                let flags = plan.attributes.flags;
                self.block(call, &key, flags, meta.value_bytes, Purpose::Meta(plan), block);
            }
            Err(fault) => self.fail(call, fault, block_bytes),
        }
    }

    /// Says what is wrong and throws the block away.
    fn fail(&mut self, call: &mut Call<'_, '_, '_, '_>, fault: Fault, block_bytes: u64) {
        call.out.put(fault.reply());
        self.state = State::Swallow { left: block_bytes, reply: None };
    }
}

/// Where a session goes on that left a batch at this slot.
fn leave_at(slot: &Slot<'_, '_>) -> State {
    match slot.request {
        Request::Fetch(fetch) if !slot.first => State::Keys(Keys { fetch, first: false, resumed: true }),
        _ => State::Ready,
    }
}
