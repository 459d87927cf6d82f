//! Commands that do something with fields, from their first step on: at once, or in several steps.
//!
//! ```text
//! few, or short     one step
//! up to 65,536      the key is taken ─► some │ some │ … ─► the answers are sent   one moment for others
//!                         └──── the key is held ───┘
//! more              some, and their answers │ some, and theirs │ …                each step is one moment
//! ```
//!
//! Answers are kept until all is done, so that a client that does not read keeps no other from the key. `steps/stages.rs` has the
//! key held. If the key goes meanwhile (it is evicted, or expires), the rest of the fields are answered as not there. So is a
//! field that expires meanwhile. Whether a time that the command sets has passed is decided at the first field: all are answered
//! alike.
//!
//! A step that finds no memory is made again while some is on its way. A command that has waited so for 2 s in all, or keeps as
//! many bytes of answers as it may, frees the key, sends what it has, and goes on as with more than 65,536 fields. If no memory
//! is on its way the command is refused; if some fields are done by then, each field of the step is answered with the error.

use larder_protocol::resp::Args;
use larder_store::{Key, Millis, Type};

use super::answers::{Part, answer, do_some, refuse};
use super::deed::{Become, Deed, bytes_of};
use crate::core::events::{Before, Class};
use crate::core::output::Output;
use crate::redis::call::ELEMENT_BYTES;
use crate::redis::collections::listing::send;
use crate::redis::collections::words::{WRITES_AT_ONCE, first};
use crate::redis::collections::writing::ELEMENTS_HELD_MAX;
use crate::redis::collections::{Call, ELEMENT_ROOM, peek_as};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_array;
use crate::redis::row::Command;
use crate::redis::source::Name;
use crate::redis::steps::job::Step;
use crate::redis::steps::kept::Kept;
use crate::redis::steps::patience::Patience;
use crate::redis::steps::stages::Staged;

/// Begins a deed on some fields, with an answer for each.
pub(super) fn begin(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    mut fields: Args<'_>,
    deed: Deed,
) -> Done {
    let (mark, whole) = (call.out.mark(), call.cx.guard.in_transaction());
    let at_once = if whole { usize::MAX } else { deed.at_once(call, key, fields)? };
    if fields.len() > at_once && !deed.is_one_step(call, key, fields) {
        return begin_in_steps(call, name, key, (fields, at_once), deed);
    }
    let part = Part { sends: !whole && fields.len() == 1, ..Part::default() };
    put_array(call.out, fields.len());
    let most = if whole { WRITES_AT_ONCE } else { fields.len() };
    let mut begun = false;
    while !fields.is_empty() {
        let some = first(&mut fields, most);
        match do_some(call, key.bytes(), some, (deed, part)) {
            Ok(()) => {}
            Err(fail) if begun => refuse(call.out, some, &fail),
            Err(fail) => {
                call.out.rewind(mark);
                return Err(fail);
            }
        }
        begun = true;
        call.spend_on_writes(some.len());
    }
    Ok(())
}

/// Begins a deed in several steps. `at_once`: fields of the first step, at most.
fn begin_in_steps(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    (mut fields, at_once): (Args<'_>, usize),
    deed: Deed,
) -> Done {
    let Some((row, _)) = call.shared.rows.find(name.as_bytes()) else { return Ok(()) };
    let (mark, count) = (call.out.mark(), fields.len());
    let is_whole = count <= ELEMENTS_HELD_MAX && !call.client.executes;
    // Where each step is one moment, the first is done at once, and its words are not kept.
    let some = if is_whole { Args::EMPTY } else { first(&mut fields, call.writes_of_a_step().min(at_once)) };
    let kept = Kept::new(call, fields)?;
    let name = Name::kept(call, key.bytes())?;
    let mut replies = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    let stage = if is_whole {
        put_array(&mut replies, count);
        Stage::Whole
    } else {
        put_array(call.out, count);
        do_some(call, name.bytes(), some, (deed, Part::default())).inspect_err(|_| call.out.rewind(mark))?;
        call.spend_on_writes(some.len());
        Stage::Steps
    };
    let moment = Moment::default();
    call.go_on_in_stages(Doing { row, deed, name, kept, replies, sent: 0, moment, stage });
    Ok(())
}

/// A command that does its deed on fields in several steps.
#[derive(Debug)]
struct Doing {
    row: &'static Command,
    deed: Deed,
    name: Name,
    /// The fields that are left.
    kept: Kept,
    /// The answers of the fields that are one moment.
    replies: Output,
    sent: u64,
    /// The state of that moment.
    moment: Moment,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All fields are one moment, and answers are kept.
    Whole,
    /// The kept answers are sent. If fields are left, each further step is one moment.
    Sends,
    /// Each step is one moment.
    Steps,
}

/// What a step of [`Stage::Whole`] did.
enum Did {
    /// Some fields are answered.
    Some,
    /// Nothing is done for so many milliseconds: memory is on its way.
    Nothing(Millis),
    /// Nothing is done: others have waited for the key for long enough, or enough answers are kept.
    Enough,
}

/// The state of one moment.
#[derive(Debug, Default)]
struct Moment {
    patience: Patience,
    /// Some fields are answered.
    begun: bool,
    /// The time that fields get had passed when the first got it.
    passed: bool,
    /// The key's state before, if events are wanted.
    before: Option<Before>,
    /// What the steps did to the key.
    become_: Become,
    /// Whether the key was there after the last step, as far as this command knows.
    is_there: bool,
    /// Whether the key has gone by itself since then, or during a step.
    has_gone: bool,
}

impl Moment {
    /// Looks at the key before a step.
    fn look(&mut self, call: &mut Call<'_, '_, '_>, name: &Name) {
        let key = name.key(call);
        let is_there = call.is_there(&key);
        if self.begun {
            self.has_gone |= self.is_there && !is_there;
        } else {
            self.before = call.look_before(name.bytes());
        }
        self.is_there = is_there;
    }

    /// Notes what a step did, and whether the key is there behind it: it may have been evicted amid the step, also to make room
    /// for the answers.
    fn note(&mut self, done: Become, is_there: bool) {
        self.has_gone |= done.loses_key(self.is_there, is_there);
        self.become_.add(done);
        (self.begun, self.is_there) = (true, is_there);
        self.patience.found();
    }
}

impl Doing {
    /// Does the deed on some more fields while the key is held.
    ///
    /// # Errors
    /// Nothing is done yet, and nothing can be.
    fn do_held(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Did, Fail> {
        self.moment.look(call, &self.name);
        // The first field is answered in any case.
        let most = self.fitting(call).max(usize::from(!self.moment.begun));
        if most == 0 {
            return Ok(Did::Enough);
        }
        if !self.moment.begun {
            self.moment.passed = self.deed.has_passed(call.cx.now());
        }
        let sets = self.moment.begun && !self.moment.passed;
        let again = call.cx.guard.ask_again(true);
        let mut become_ = Become::default();
        let done = self.do_kept(call, (most, Part { is_held: true, sets, sends: false }), &mut become_);
        call.cx.guard.ask_again(again);
        let Err(fail) = done else {
            let key = self.name.key(call);
            self.moment.note(become_, call.is_there(&key));
            return Ok(Did::Some);
        };
        let Doing { kept, replies, moment, .. } = self;
        let comes = fail.is_no_memory() && call.cx.guard.memory_comes();
        if comes && let Some(ms) = moment.patience.again_ms(call, 0) {
            return Ok(Did::Nothing(ms));
        }
        if !moment.begun {
            return Err(fail);
        }
        // There is room for more answers when the client has read some.
        if moment.patience.is_over() || fail == Fail::HELD {
            return Ok(Did::Enough);
        }
        kept.take(|words| refuse(replies, first(words, most), &fail));
        Ok(Did::Some)
    }

    /// Does the deed on `most` more fields as a part of one moment, and keeps an answer for each. If that is refused, they are
    /// left.
    fn do_kept(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        (most, part): (usize, Part),
        become_: &mut Become,
    ) -> Done {
        let Doing { deed, name, kept, replies, .. } = self;
        let place = kept.place();
        let done = kept.take(|words| {
            let fields = first(words, most);
            let done = call.replying_to(replies, |call| {
                let mark = call.out.mark();
                let done = answer(call, name.bytes(), (fields, *deed), part, become_);
                done.inspect_err(|_| call.out.rewind(mark))
            });
            call.spend_on_writes(fields.len());
            done
        });
        done.inspect_err(|_| kept.go_back(place))
    }

    /// Does the deed on some more fields as one moment.
    fn do_alone(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let most = self.at_once(call);
        let Doing { deed, name, kept, .. } = self;
        kept.take(|words| {
            let fields = first(words, most);
            let mark = call.out.mark();
            if let Err(fail) = do_some(call, name.bytes(), fields, (*deed, Part::default())) {
                call.out.rewind(mark);
                refuse(call.out, fields, &fail);
            }
            call.spend_on_writes(fields.len());
        });
        match self.kept.left() {
            0 => Step::Done,
            _ if call.out.is_full() => Step::Full,
            _ => Step::More,
        }
    }

    /// How many of the fields that are left one step takes.
    fn at_once(&self, call: &mut Call<'_, '_, '_>) -> usize {
        let timely = call.writes_of_a_step();
        let (key, some) = (self.name.key(call), first(&mut self.kept.words(), timely));
        // A key of another type is refused when the step is made.
        timely.min(self.deed.at_once(call, &key, some).unwrap_or(WRITES_AT_ONCE))
    }

    /// How many of them one step takes while the key is held: 0 if as many answers are kept as may be.
    fn fitting(&self, call: &mut Call<'_, '_, '_>) -> usize {
        let most = self.at_once(call).min(self.kept.left());
        match self.deed {
            Deed::Take | Deed::Get(_) => {}
            Deed::Expire(..) | Deed::Persist => return most,
        }
        let left = call.kept_bytes_max().saturating_sub(self.replies.own_bytes()) as usize;
        let key = self.name.key(call);
        // A key of another type is refused when the step is made.
        let hash = peek_as(&mut call.cx.guard, &key, Type::Hash).unwrap_or(None);
        let longest = hash.as_ref().map_or(0, |hash| hash.longest_apart().max(ELEMENT_BYTES));
        if most.saturating_mul(longest + ELEMENT_ROOM) <= left {
            return most;
        }
        // Looking at fields takes time, too, so that fewer are done.
        let most = most - most / 4;
        let mut bytes = 0;
        let beyond = self.kept.words().take(most).position(|field| {
            bytes += bytes_of(hash.as_ref(), field) + ELEMENT_ROOM;
            bytes > left
        });
        call.spend_on_looks(most);
        beyond.unwrap_or(most)
    }

    /// Publishes what one moment did to the key.
    fn tell(&self, call: &mut Call<'_, '_, '_>) {
        let (key, moment) = (self.name.bytes(), &self.moment);
        let (Some(before), become_) = (&moment.before, moment.become_) else { return };
        if !moment.has_gone {
            call.tell_since(self.row, key, before, true, |call, was, is| become_.tell(call, key, was, is));
        } else if let Some(event) = become_.event() {
            // The store publishes that the key has gone.
            call.cx.tell(Class::Hash, event, call.client.db, key);
        }
    }

    /// Sends as many of the kept answers as there is room for.
    fn send(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let step = send(call, &self.replies, &mut self.sent);
        if step != Step::Done || self.kept.left() == 0 {
            return step;
        }
        self.replies.clear();
        self.replies.shrink(0);
        self.stage = Stage::Steps;
        Step::More
    }
}

impl Staged for Doing {
    const UNDONE: &'static str = "fields was changed";

    fn is_whole(&self) -> bool {
        self.stage == Stage::Whole
    }

    fn has_begun(&self) -> bool {
        self.moment.begun
    }

    fn wants_memory(&self) -> bool {
        self.deed.writes()
    }

    fn go_on(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        match self.stage {
            Stage::Whole => match self.do_held(call)? {
                Did::Nothing(ms) => return Ok(Step::Sleep(ms)),
                Did::Some if self.kept.left() > 0 => return Ok(Step::More),
                Did::Some | Did::Enough => self.tell(call),
            },
            Stage::Sends => {}
            Stage::Steps => return Ok(self.do_alone(call)),
        }
        self.stage = Stage::Sends;
        Ok(self.send(call))
    }

    /// Elements that were taken out are nowhere but in the reply.
    fn asks_itself(&self) -> bool {
        self.stage == Stage::Sends
    }

    fn held_bytes(&self) -> u64 {
        self.kept.held_bytes() + self.replies.capacity_bytes() as u64
    }

    fn only_replies(&self) -> bool {
        self.stage == Stage::Sends && self.kept.left() == 0
    }

    fn only_key(&self) -> Option<&Name> {
        Some(&self.name)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
