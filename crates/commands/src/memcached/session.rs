//! A conversation in memcached's text, without I/O: bytes in, replies out.
//!
//! ```text
//!           ┌────────────────────────── Ready ◄──────────────────────────┐
//!           │ batch of requests    │  │  │  │                            │
//!           ▼                      │  │  │  └─► Dump      long reply, piece by piece
//!   Keys: inside an endless line   │  │  └────► Upload    value received into its item
//!   Skip: the rest of a bad one    │  └───────► Gather    value to be added to another
//!                                  ├──────────► Swallow   block of a store that failed
//!                                  ├──────────► Join      value that is added to a large one, in steps
//!                                  └──────────► Watch     lines of what happens; no further request is read
//! ```
//!
//! Work per turn is bounded by the input, by the output's limit, and by the worker's slice (`core/work.rs`). Nothing here
//! blocks, and a turn that makes no reply costs no more than reading its input once.

mod execute;
mod gate;
mod ruled;
mod runs;
mod value;

use larder_protocol::Tokens;
use larder_protocol::base64;
use larder_protocol::classic::{KEY_BYTES_MAX, Request, Store};
use larder_protocol::meta::{Meta, Verb as MetaVerb};
use larder_protocol::scan::line_feed;
use larder_protocol::{Fault, ends_in_noreply, last_token};
use larder_store::{Key, Millis, Spaces, Upload};

use super::batch::{Batch, Block, Event, Keys, Reader, Staged, Stop};
use super::dump::Dump;
use super::flow::Flow;
use super::incoming::Gathering;
use super::join::Joining;
use super::line::Line;
use super::meta;
use super::pause::{self, Pace};
use super::purpose::Purpose;
use super::rules;
use super::shared::Shared;
use super::steps::Step;
use super::table::{line_command, row_of_meta};
use super::text::{END, ERROR};
use super::times::{self, Times};
use super::told::Before;
use super::watch;
use crate::core::access::{Standing, Users};
use crate::core::batch::prefetch_items;
use crate::core::context::Context;
use crate::core::conversation::Converse;
use crate::core::counters::Counter;
use crate::core::input::{Asked, Looks};
use crate::core::output::{Mark, Output};
use crate::core::progress::{Ending, Next, Progress};
use crate::core::tally::Tally;
use crate::core::traffic::{self, READ_NS, Seen, Verb, WRITE_NS};
use crate::core::watchers::Watching;
use crate::core::work::{COMMAND_NS, REPLY_BYTE_NS, copying_ns};
use gate::Free;

/// Bytes of input below which no run of plain requests is looked for, unless the settings say otherwise.
const RUN_BYTES_MIN: usize = 256;

/// A connection that speaks memcached's text.
#[derive(Debug)]
pub(crate) struct Conversation {
    state: State,
    /// Its user; `None` with `--text-auth no`.
    standing: Option<Standing>,
    /// Retries of its next request.
    asked: Asked,
}

/// The kind of the next bytes.
#[derive(Debug, Default)]
enum State {
    /// A request.
    #[default]
    Ready,
    /// Keys of a line that was begun.
    Keys(Keys),
    /// The rest of a line that failed.
    Skip,
    /// A block that is skipped, and the reply after it.
    Swallow { left: u64, reply: Option<&'static [u8]> },
    /// A value for its item, of which so many bytes were announced.
    Upload { upload: Upload, value_bytes: u64, purpose: Purpose, looks: Looks },
    /// A value to be added to another.
    Gather(Gathering),
    /// A request, after a value is added to a large one.
    Join(Box<Joining>),
    /// A request, after a long reply.
    Dump(Dump),
    /// Nothing is read any more: the client is sent lines about what happens.
    Watch(Watching),
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
    /// Whether the input was a run of plain requests so far.
    runs: bool,
    /// The place of the replies to the current line of keys, if it began in this turn.
    line_mark: Option<Mark>,
    /// Whether the current line of keys has failed: its other keys are passed over.
    skips: bool,
    /// The place of the request that is to be retried.
    again_at: usize,
}

impl Turn<'_, '_, '_, '_> {
    /// Runs `f`, which cannot be retried: it waits for memory itself where another request would be retried.
    fn once<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let (room, again) = (self.cx.room, self.cx.guard.ask_again(false));
        let done = room.for_the_last_time(|| f(self));
        self.cx.guard.ask_again(again);
        done
    }

    /// Counts a key that was asked for, which may be sampled then.
    #[inline(always)]
    fn pass_key(&mut self, key: &Key<'_>, verb: impl FnOnce() -> Verb) {
        if self.cx.room.tap().pass(1) {
            self.sample_key(key, verb());
        }
    }

    /// Records a request that was carried out, if its key is followed.
    #[inline(always)]
    fn done_key(&mut self, key: &Key<'_>, verb: impl FnOnce() -> Verb) {
        let tap = self.cx.room.tap();
        if tap.follows(key) {
            traffic::follow(tap, &mut self.cx.guard, key, verb());
        }
    }

    #[cold]
    fn sample_key(&mut self, key: &Key<'_>, verb: Verb) {
        let tap = self.cx.room.tap();
        if tap.next(1).is_some() {
            let cost_ns = if verb == Verb::Read { READ_NS } else { WRITE_NS };
            let seen = Seen { verb, db: 0, cost_ns };
            traffic::sample(tap, &mut self.cx.guard, key, seen, verb.text_bytes());
        }
    }
}

/// The kind of request that a meta command makes for its key.
fn verb_of_meta(verb: MetaVerb) -> Verb {
    match verb {
        MetaVerb::Get | MetaVerb::Debug | MetaVerb::Noop => Verb::Read,
        MetaVerb::Set | MetaVerb::Arithmetic => Verb::Write,
        MetaVerb::Delete => Verb::Delete,
    }
}

impl Conversation {
    /// A conversation of a client that need not log in.
    pub fn unasked(cx: &Context<'_, '_>) -> Conversation {
        let standing = cx.shared.settings.text_auth.then(|| Standing::unasked(&cx.shared.access));
        Conversation { state: State::Ready, standing, asked: Asked::default() }
    }

    /// A conversation of a client that has logged in.
    pub fn of(standing: Standing) -> Conversation {
        Conversation { state: State::Ready, standing: Some(standing), asked: Asked::default() }
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
        let run_bytes_min = cx.shared.settings.run_bytes_min.unwrap_or(RUN_BYTES_MIN);
        let mut runs = input.len() >= run_bytes_min && !cx.shared.events.any();
        if cx.shared.is_to_look(cx.guard.now()) {
            let mut standing = self.standing.take();
            let names = |held: &dyn Fn(&[u8]) -> bool| self.names_one(input, held);
            let user = (standing.as_mut(), self.is_under_way());
            let pace = pause::pace(cx, user, names, |writes| self.acts(input, writes));
            self.standing = standing;
            match pace {
                Pace::Free => {}
                // What is under way ends, and it is looked again behind it.
                Pace::OneByOne => {
                    let begins = matches!(self.state, State::Ready | State::Keys(_));
                    (left, runs) = (u32::from(begins), false);
                }
                Pace::Wait(next) => {
                    if next == Next::Close {
                        self.close();
                    }
                    return Progress { consumed: 0, next };
                }
            }
        }
        if rules::asks(self.standing.as_ref()) {
            runs &= gate::may_run(self.standing.as_ref());
        }
        let reader = Reader { input, at: 0, keys: None, left };
        let times = Times::begin(cx);
        let mut turn = Turn {
            cx,
            shared,
            out,
            reader,
            tally: Tally::default(),
            times,
            runs,
            line_mark: None,
            skips: false,
            again_at: 0,
        };
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

    #[inline]
    fn awaits_rest(&self) -> bool {
        match &self.state {
            State::Upload { .. }
            | State::Gather(_)
            | State::Swallow { .. }
            | State::Skip
            | State::Keys(_) => true,
            State::Ready | State::Join(_) | State::Dump(_) | State::Watch(_) | State::Closed(_) => false,
        }
    }

    #[inline]
    fn input_bytes(&self) -> u64 {
        match &self.state {
            State::Ready | State::Watch(_) => 0,
            State::Upload { upload, .. } => upload.held_bytes().max(1),
            State::Gather(gathering) => gathering.held_bytes().max(1),
            State::Keys(_)
            | State::Skip
            | State::Swallow { .. }
            | State::Join(_)
            | State::Dump(_)
            | State::Closed(_) => 1,
        }
    }

    /// Returns `None`: a client that must log in is in another conversation until it has (`login.rs`).
    #[inline]
    fn unauthenticated_since(&self) -> Option<Millis> {
        None
    }

    fn has_lost_user(&self, users: &Users) -> bool {
        let is_gone = |standing: &Standing| standing.is_gone(users);
        !matches!(self.state, State::Closed(_)) && self.standing.as_ref().is_some_and(is_gone)
    }

    fn ending(&self) -> Option<Ending> {
        if let State::Closed(ending) = self.state { Some(ending) } else { None }
    }

    fn state_name(&self) -> &'static str {
        match self.state {
            State::Ready | State::Keys(_) | State::Skip => "conn_parse_cmd",
            State::Swallow { .. } => "conn_swallow",
            State::Join(_) => "conn_parse_cmd",
            State::Upload { .. } | State::Gather(_) => "conn_nread",
            State::Dump(_) => "conn_mwrite",
            State::Watch(_) => "conn_watch",
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

    /// The number of a watcher.
    fn waiter(&self) -> Option<u64> {
        match &self.state {
            State::Watch(watching) => Some(watching.number()),
            _ => None,
        }
    }
}

impl Conversation {
    /// Returns whether the request in front names a key that is held, or concerns all keys.
    fn names_one(&self, input: &[u8], held: &dyn Fn(&[u8]) -> bool) -> bool {
        match &self.state {
            State::Ready | State::Keys(_) => pause::names_one(input, held),
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
            State::Ready => !input.is_empty() && (!writes_only || pause::may_write(input)),
            State::Upload { upload, .. } => pause::is_whole(upload, input),
            State::Gather(gathering) => gathering.missing() <= input.len(),
            _ => false,
        }
    }

    #[inline(always)]
    fn steps(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Next {
        loop {
            if let Some(next) = self.step(turn) {
                return next;
            }
        }
    }

    /// Ends a turn before its time: others are to have theirs, or a request is to be retried for which there was no memory.
    #[cold]
    fn end_turn(&mut self, turn: &mut Turn<'_, '_, '_, '_>, next: Next) -> Next {
        if let Some(joining) = turn.cx.room.take_later() {
            return self.join(turn, joining);
        }
        if !turn.cx.room.take_again() {
            return if next == Next::Flush { Next::Yield } else { next };
        }
        (turn.reader.at, turn.reader.keys, turn.runs) = (turn.again_at, None, false);
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
        (turn.reader.at, turn.reader.keys) = (turn.again_at, None);
        self.state = State::Join(joining);
        Next::Yield
    }

    #[inline]
    fn step(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        match &mut self.state {
            State::Ready => self.batch(turn, None),
            State::Keys(keys) => {
                let keys = *keys;
                self.batch(turn, Some(keys))
            }
            State::Skip => {
                let rest = &turn.reader.input[turn.reader.at..];
                match line_feed(rest) {
                    Some(feed) => {
                        turn.reader.at += feed + 1;
                        self.state = State::Ready;
                        turn.times.passes(turn.cx);
                        None
                    }
                    None => {
                        turn.reader.at += rest.len();
                        Some(Next::Receive)
                    }
                }
            }
            State::Swallow { left, reply } => {
                let there = &turn.reader.input[turn.reader.at..];
                let taken = (there.len() as u64).min(*left);
                let ends = may_end(&there[..taken as usize], *left);
                turn.reader.at += taken as usize;
                *left -= taken;
                if !ends && turn.cx.shared.settings.strict_framing {
                    turn.out.put(reply.unwrap_or_default());
                    return self.close();
                }
                if *left > 0 {
                    return Some(Next::Receive);
                }
                turn.out.put(reply.unwrap_or_default());
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
            State::Watch(watching) => {
                turn.reader.at = turn.reader.input.len();
                Some(watch::step(watching, turn.out))
            }
            State::Closed(_) => Some(Next::Close),
        }
    }

    fn close(&mut self) -> Option<Next> {
        self.end(Ending::Error)
    }

    fn end(&mut self, ending: Ending) -> Option<Next> {
        self.state = State::Closed(ending);
        Some(Next::Close)
    }

    /// Reads a batch ahead, executes it, and does what ended it.
    #[inline]
    fn batch(&mut self, turn: &mut Turn<'_, '_, '_, '_>, keys: Option<Keys>) -> Option<Next> {
        if turn.out.is_full() {
            return Some(Next::Flush);
        }
        if keys.is_none() && turn.runs {
            turn.times.batch_ends(turn.cx);
            let is_ruled = rules::asks(self.standing.as_ref());
            let next = if is_ruled { self.run_ruled(turn) } else { self.run(turn, &Free) };
            if turn.times.measures() {
                turn.times.end_run(turn.cx);
            }
            if next.is_some() {
                return next;
            }
        }
        let asks = rules::asks(self.standing.as_ref());
        let mut batch = Batch::new();
        turn.reader.keys = keys;
        let stop = turn.reader.fill(&turn.cx.guard, &turn.cx.shared.settings, &mut batch);
        prefetch_items(&turn.cx.guard, &mut batch, |staged| (&staged.key, &mut staged.hint));
        for staged in &batch {
            if turn.skips {
                turn.skips = !staged.last;
                continue;
            }
            if turn.out.is_full() {
                if turn.cx.room.is_again() {
                    let before = batch.iter().map(|staged| staged.at).rfind(|&at| at < staged.at);
                    // A request that goes on in the next turn is done with here.
                    let at = if turn.cx.room.is_later() { Some(staged.at) } else { before };
                    turn.again_at = at.unwrap_or(turn.again_at);
                    return Some(Next::Flush);
                }
                self.state = leave_at(staged);
                turn.reader.at = staged.at;
                return Some(Next::Flush);
            }
            if asks && !self.permits(turn, staged) {
                continue;
            }
            if turn.times.measures() {
                if staged.first {
                    turn.times.call(turn.cx, times::of_request(&staged.request));
                } else {
                    turn.times.key(turn.cx);
                }
            }
            turn.execute(staged);
            turn.cx.spend_beside(turn.out);
            turn.pass_key(&staged.key, || staged.verb());
            turn.done_key(&staged.key, || staged.verb());
        }
        if turn.cx.room.is_again() {
            let behind = turn.cx.room.is_later();
            let at = |staged: &Staged<'_, '_>| if behind { turn.reader.behind(staged) } else { staged.at };
            turn.again_at = batch.last().map_or(turn.again_at, at);
            return Some(Next::Flush);
        }
        if std::mem::take(&mut turn.skips) {
            turn.times.batch_ends(turn.cx);
            let ended = turn.reader.keys.is_none() && matches!(stop, Stop::Event(Event::EndOfKeys));
            self.state = if ended { State::Ready } else { State::Skip };
            return None;
        }
        self.state = turn.reader.keys.map_or(State::Ready, State::Keys);
        match stop {
            Stop::Full if turn.reader.left == 0 && turn.reader.keys.is_none() => {
                turn.cx.counters.add(Counter::ConnYields, 1);
                Some(Next::Yield)
            }
            Stop::Full => None,
            Stop::NeedMore => Some(Next::Receive),
            Stop::Event(event) => {
                turn.times.batch_ends(turn.cx);
                // A request that is not staged is not retried.
                let next = turn.once(|turn| self.event(turn, event));
                turn.times.passes(turn.cx);
                turn.again_at = turn.reader.at;
                next
            }
        }
    }

    #[inline(never)]
    fn event(&mut self, turn: &mut Turn<'_, '_, '_, '_>, event: Event<'_>) -> Option<Next> {
        match event {
            Event::Line(text) => return self.line(turn, text),
            Event::Fault { fault, swallow, noreply } => {
                if !noreply {
                    turn.out.put(fault.reply());
                }
                // The value of a line that cannot be read would be read as lines.
                let is_unbounded = swallow == 0 && fault == Fault::BadLine;
                if fault.closes() || is_unbounded && turn.cx.shared.settings.strict_framing {
                    return self.close();
                }
                if swallow > 0 {
                    self.state = State::Swallow { left: swallow, reply: None };
                }
            }
            Event::EndOfKeys => turn.out.put(END),
            Event::LongKey => {
                turn.out.put(Fault::BadLine.reply());
                self.state = State::Skip;
            }
            Event::LongLine => return self.close(),
            Event::Store(store, block) => {
                let verb = rules::verb_of_store(store.verb);
                if !rules::permits(turn.cx, turn.out, self.standing.as_ref(), verb, Some(store.key)) {
                    self.refuse(turn, u64::from(store.value_bytes) + 2, store.noreply);
                    return None;
                }
                let key = turn.cx.guard.key(store.key);
                let flags = store.flags;
                let purpose = Purpose::Classic(Store { key: &[], ..store });
                turn.pass_key(&key, || Verb::Write);
                let cx = &turn.cx;
                cx.shared
                    .prefixes
                    .count(cx.room.prefixes(), cx.guard.store(), store.key, |count| count.sets += 1);
                self.block(turn, &key, flags, store.value_bytes, purpose, block);
            }
            Event::Meta(meta, block) => self.meta(turn, &meta, block),
        }
        None
    }

    /// Carries out a line that names no item.
    fn line(&mut self, turn: &mut Turn<'_, '_, '_, '_>, text: &[u8]) -> Option<Next> {
        let mut tokens = Tokens::new(text);
        let strict = turn.cx.shared.settings.strict_framing;
        let Some(name) = tokens.next() else {
            turn.out.put(Fault::BadLine.reply());
            return if strict { self.close() } else { None };
        };
        let found = line_command(name);
        let answers_always = found.is_some_and(|(_, row)| row.answers_always);
        let noreply = ends_in_noreply(text) && !answers_always;
        let Some((command, row)) = found else {
            if last_token(text).is_some_and(|token| token.starts_with(b"HTTP/")) {
                return self.close();
            }
            if !noreply {
                turn.out.put(ERROR);
            }
            return if strict { self.close() } else { None };
        };
        if let Some(verb) = rules::verb_of_line(name, tokens)
            && !rules::permits(turn.cx, turn.out, self.standing.as_ref(), verb, None)
        {
            self.refuse(turn, 0, noreply);
            return None;
        }
        let (mark, before) = (turn.out.mark(), turn.out.own_bytes());
        let flow = command.run(&mut Line::new(turn.shared, turn.cx, turn.out, tokens, noreply));
        let replied_bytes = turn.out.own_bytes().saturating_sub(before);
        let words_ns = copying_ns(text.len() as u64);
        turn.cx.spend(turn.out, COMMAND_NS + words_ns + REPLY_BYTE_NS * replied_bytes);
        turn.times.one_ends(turn.cx, row);
        if noreply && !matches!(flow, Flow::Dump(_)) {
            turn.out.rewind(mark);
        }
        match flow {
            Flow::Next => None,
            Flow::Dump(dump) => {
                self.state = State::Dump(dump);
                None
            }
            Flow::Yield => Some(Next::Yield),
            Flow::Watch(watching) => {
                self.state = State::Watch(watching);
                None
            }
            Flow::Close(ending) => self.end(ending),
        }
    }

    /// Carries out a meta command with an encoded key, one whose block is not simply there, or mn.
    fn meta(&mut self, turn: &mut Turn<'_, '_, '_, '_>, meta: &Meta<'_>, block: Block<'_>) {
        if meta.verb == MetaVerb::Noop {
            turn.out.put(b"MN\r\n");
            return turn.times.one_ends(turn.cx, row_of_meta(meta.verb));
        }
        let block_bytes = if meta.verb == MetaVerb::Set { u64::from(meta.value_bytes) + 2 } else { 0 };
        let mut room = [0; KEY_BYTES_MAX];
        let key = if meta.flags.has(b'b') {
            match base64::decode(meta.key, &mut room) {
                Ok(bytes) => &room[..bytes],
                Err(_) => return self.fail(turn, Fault::BadBase64Key, block_bytes),
            }
        } else {
            meta.key
        };
        if let Some(verb) = rules::verb_of_meta(meta.verb, &meta.flags)
            && !rules::permits(turn.cx, turn.out, self.standing.as_ref(), verb, Some(key))
        {
            return self.refuse(turn, block_bytes, false);
        }
        let key = turn.cx.guard.key(key);
        turn.pass_key(&key, || verb_of_meta(meta.verb));
        if meta.verb != MetaVerb::Set {
            let hint = turn.cx.guard.prefetch_bucket(&key);
            let before = Before::look(turn.cx, key.bytes());
            turn.meta(&key, &hint, meta, &[]);
            turn.times.one_ends(turn.cx, row_of_meta(meta.verb));
            turn.done_key(&key, || verb_of_meta(meta.verb));
            return before.tell(turn.cx, row_of_meta(meta.verb), key.bytes());
        }
        match meta::plan_set(turn.cx, &meta.flags) {
            Ok(mut plan) => {
                if block == Block::Long {
                    plan.decide_stale(turn.cx, &key);
                }
                let flags = plan.attributes.flags;
                self.block(turn, &key, flags, meta.value_bytes, Purpose::Meta(plan), block);
            }
            Err(fault) => self.fail(turn, fault, block_bytes),
        }
    }

    /// Replies the fault, and throws the block away.
    fn fail(&mut self, turn: &mut Turn<'_, '_, '_, '_>, fault: Fault, block_bytes: u64) {
        turn.out.put(fault.reply());
        self.state = State::Swallow { left: block_bytes, reply: None };
    }
}

impl Staged<'_, '_> {
    /// The kind of request for its key.
    fn verb(&self) -> Verb {
        match &self.request {
            Request::Fetch(_) | Request::Line(_) | Request::Fault { .. } => Verb::Read,
            Request::Store(_) | Request::Arithmetic { .. } | Request::Touch { .. } => Verb::Write,
            Request::Delete { .. } => Verb::Delete,
            Request::Meta(meta) => verb_of_meta(meta.verb),
        }
    }
}

/// Returns whether these bytes of a block have its line end where it belongs, as far as that is among them. `left` is the number
/// of bytes of the block that were missing before these.
pub(super) fn may_end(bytes: &[u8], left: u64) -> bool {
    let is_at = |behind: u64, wanted: u8| {
        let at = left.checked_sub(behind).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| bytes.get(at)).is_none_or(|&byte| byte == wanted)
    };
    is_at(2, b'\r') && is_at(1, b'\n')
}

/// The state in which a session goes on that left a batch at this key.
fn leave_at(staged: &Staged<'_, '_>) -> State {
    match staged.request {
        Request::Fetch(fetch) if !staged.first => State::Keys(Keys { fetch, first: false, resumed: true }),
        _ => State::Ready,
    }
}
