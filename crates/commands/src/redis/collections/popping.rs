//! SPOP: members at random, which are taken out. Many are taken some at a time, between which others are served.
//!
//! ```text
//! all of a small set, or few ─▶ one step
//! all of a large one         ─▶ copied as it is of one version, and removed with the last step (listing.rs)
//! many, up to 65,536         ─▶ the key is held ─▶ some │ some │ … ─▶ the reply: one moment for others
//! more                       ─▶ some │ some │ … ─▶ the reply: each step is one moment
//! ```
//!
//! The reply has as many as there were. How a key comes to be held is in `steps/stages.rs`. When a command has a connection's
//! share of the replies, or 256 MiB of them, it frees the key, and goes on as with more than 65,536. Where there is no memory for
//! the reply, or for what is left of the set, it ends with those that were taken. A key that goes amid it (it is evicted, or
//! expires) has gone behind them.
//!
//! Long members are sent from where they lie, if connections may hold them: they are pinned before they are taken out, come
//! behind the others in the reply, and are taken out as their leaves name them, without a look at their bytes.

use std::sync::Arc;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, Entry, Expect, Guard, Hint, Key, LongMember, Type};
use smallvec::SmallVec;

use super::listing::{Form, Listed, Which, send_or_hand_on};
use super::pick::{Random, each_of_some, some_places};
use super::sending::{ToSend, is_sent};
use super::writing::ELEMENTS_HELD_MAX;
use super::{Call, LOOK_NS, Shown, WRITE_NS, entry_bytes_max, is_large, peek_as};
use crate::core::events::Before;
use crate::core::output::{Mark, Output};
use crate::redis::call::{has_room, integer};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_set;
use crate::redis::row::Command;
use crate::redis::source::Name;
use crate::redis::steps::job::Step;
use crate::redis::steps::stages::Staged;

/// Members that are taken at a time.
const POPS_AT_ONCE: usize = 256;
/// Bytes of members behind which no more are taken in one moment where some may lie apart: with the last, 8 MiB.
const POPPED_BYTES: usize = 4 << 20;
/// Work to pick a member, measure it, reply it, and take it out.
const POP_NS: u64 = 2 * LOOK_NS + WRITE_NS;

/// SPOP
pub(crate) fn pop(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, args: Args<'_>) -> Done {
    if args.len() > 1 {
        return Err(Fail::SYNTAX);
    }
    let random = Random::new(call.shared.random());
    let (name, sends) = (key.bytes(), !call.cx.guard.in_transaction());
    let Some(count) = args.at(0) else {
        return call.as_one_with_room([name], |call| {
            let key = call.key(name);
            match take(&mut call.cx.guard, call.out, &key, (1, usize::MAX), random, None, sends)? {
                Taken::Needs(bytes) => return Ok(Some(bytes)),
                Taken::Members { count: 0, .. } => call.null()?,
                Taken::Members { bytes, sent_ns, .. } => {
                    call.spend_on_bytes(bytes);
                    call.spend(sent_ns);
                }
            }
            Ok(None)
        });
    };
    let count =
        integer(count).ok().and_then(|count| usize::try_from(count).ok()).ok_or(Fail::NOT_POSITIVE)?;
    let resp3 = call.client.resp3;
    if !call.cx.guard.in_transaction() {
        let set = peek_as(&mut call.cx.guard, key, Type::Set)?;
        let (len, large) = set.as_ref().map_or((0, false), |set| (set.len(), is_large(set)));
        if count <= POPS_AT_ONCE && !set.is_some_and(|set| are_long(&set, count, random)) {
            return pop_at_once(call, key, count, random);
        }
        if large && count >= len {
            let (kind, shown, form) = (Type::Set, Shown::Names, Form::Set);
            return call.list(
                "spop",
                key,
                hint,
                args,
                Listed { kind, shown, form, which: Which::All, takes: true, soonest: 0 },
            );
        }
        if count < len
            && let Some((row, _)) = call.shared.rows.find(b"spop")
        {
            let name = Name::kept(call, key.bytes())?;
            let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
            // EXEC holds its keys itself.
            let is_whole = count <= ELEMENTS_HELD_MAX && !call.client.executes;
            let stage = if is_whole { Stage::Whole } else { Stage::Steps };
            // Its first step, too, publishes its own events.
            let (left, popped, sent, before) = (count, 0, 0, None);
            let popping = Popping { row, name, left, popped, before, random, resp3, kept, sent, stage };
            call.go_on_in_stages(popping);
            return Ok(());
        }
    }
    pop_at_once(call, key, count, random)
}

/// Returns whether `count` members of a set that `random` picks have more bytes than are taken in one moment. They are looked at
/// only if some may be as long: the longest that there was may have gone.
fn are_long(set: &Collection<'_>, count: usize, random: Random) -> bool {
    if set.longest_apart().saturating_mul(count.min(set.len())) <= 2 * POPPED_BYTES {
        return false;
    }
    let mut bytes = 0;
    each_of_some(set, count, random, &mut |entry| bytes += entry.name.len());
    bytes > 2 * POPPED_BYTES
}

/// SPOP of so many in one step.
fn pop_at_once(call: &mut Call<'_, '_, '_>, key: &Key<'_>, count: usize, random: Random) -> Done {
    let (name, resp3, sends) = (key.bytes(), call.client.resp3, !call.cx.guard.in_transaction());
    call.as_one_with_room([name], |call| {
        let key = call.key(name);
        match take(&mut call.cx.guard, call.out, &key, (count, usize::MAX), random, Some(resp3), sends)? {
            Taken::Needs(bytes) => return Ok(Some(bytes)),
            Taken::Members { count, bytes, sent_ns } => {
                call.spend(count as u64 * POP_NS + sent_ns);
                call.spend_on_bytes(bytes);
            }
        }
        Ok(None)
    })
}

/// What came of taking members.
enum Taken {
    /// So many were. Their replies have about so many bytes, beside those of members that are sent from where they lie, which
    /// take so many nanoseconds.
    Members { count: usize, bytes: usize, sent_ns: u64 },
    /// None was: so many bytes are needed for their replies.
    Needs(usize),
}

/// Which members are taken.
enum Picked {
    /// As many members at random as this says.
    Some(usize, Random),
    /// Those at these places.
    Places(Vec<usize>),
}

impl Picked {
    /// Picks `count` members at random, but stops behind those that have `bytes_max` bytes: of long members it picks few. The
    /// order in which it looks at members has nothing to do with them, so that each is as likely as any other.
    fn of(set: &Collection<'_>, (count, bytes_max): (usize, usize), random: Random) -> Picked {
        if set.longest_apart().saturating_mul(count) <= bytes_max {
            return Picked::Some(count, random);
        }
        let (mut places, mut bytes) = (some_places(set.len(), count, random), 0);
        let enough = places.iter().position(|place| {
            bytes += set.entry(*place).name.len();
            bytes >= bytes_max
        });
        places.truncate(enough.map_or(count, |last| last + 1));
        Picked::Places(places)
    }

    fn len(&self) -> usize {
        match self {
            Picked::Some(count, _) => *count,
            Picked::Places(places) => places.len(),
        }
    }

    /// Calls `visit` with each, always in one order.
    fn each<'r>(&self, set: &Collection<'r>, visit: &mut dyn FnMut(&Entry<'r>)) {
        match self {
            Picked::Some(count, random) => each_of_some(set, *count, *random, visit),
            Picked::Places(places) => places.iter().for_each(|place| visit(&set.entry(*place))),
        }
    }
}

/// Takes members of a set at random, no more than `count`, and none behind those that have so many bytes, and replies them; with
/// `head` as a set of RESP3 or RESP2. `sends`: long ones from where they lie. The key is held.
fn take(
    guard: &mut Guard<'_>,
    out: &mut Output,
    key: &Key<'_>,
    (count, bytes_max): (usize, usize),
    random: Random,
    head: Option<bool>,
    sends: bool,
) -> Result<Taken, Fail> {
    let store = guard.store();
    let set = peek_as(guard, key, Type::Set)?;
    let there = set.as_ref().map_or(0, Collection::len);
    let picked = match &set {
        Some(set) => Picked::of(set, (count.min(there), bytes_max), random),
        None => Picked::Some(0, random),
    };
    let taken = picked.len();
    let (mut bytes, mut to_send) = (2 * HEAD_BYTES_MAX, ToSend::default());
    if let Some(set) = &set {
        picked.each(set, &mut |entry| bytes += entry_bytes_max(entry, Type::Set));
        if sends && is_sent(set.longest_apart()) {
            to_send = ToSend::of_each(Arc::clone(store), set, |visit| picked.each(set, visit))?;
            bytes -= to_send.bytes();
        }
    }
    if !has_room(out, bytes) {
        return Ok(Taken::Needs(bytes));
    }
    let sent_ns = to_send.ns();
    let mark = out.mark();
    if let Some(resp3) = head {
        put_set(out, resp3, taken);
    }
    let first = out.mark();
    // Where their replies end, and how long the names are that lie among these, in front of a line end; and those that are sent.
    let (mut named, mut sent) = (SmallVec::<[(Mark, usize); 8]>::new(), Vec::new());
    if let Some(set) = &set {
        picked.each(set, &mut |entry| {
            if to_send.sends(entry) {
                return;
            }
            Shown::Names.put(out, false, (set, entry));
            if taken < there {
                named.push((out.mark(), entry.name.len()));
            }
        });
        if to_send.bytes() > 0 {
            picked.each(set, &mut |entry| {
                let Some(apart) = entry.apart().filter(|apart| is_sent(apart.len())) else { return };
                to_send.put(out, (Shown::Names, false), (set, entry));
                sent.push((out.mark(), apart.member()));
            });
        }
    }
    let names = named.iter().map(|(mark, bytes)| out.between(mark.end() - 2 - bytes, mark.end() - 2));
    let done = match taken {
        0 => Ok(0),
        _ if taken == there => {
            guard.delete(key, Expect::Present).map(|()| taken).map_err(|_| Fail::OUT_OF_MEMORY)
        }
        _ => take_out(guard, key, names, sent.iter().map(|(_, member)| member)),
    };
    match done {
        Ok(gone) if gone == taken => {}
        // There was no memory for all: those that are gone are replied, and no others.
        Ok(gone) => {
            let last = match gone.checked_sub(named.len() + 1) {
                Some(n) => sent[n].0,
                None => named[gone - 1].0,
            };
            out.rewind(last);
            let mut replies = out.split_since(first);
            out.rewind(mark);
            if let Some(resp3) = head {
                put_set(out, resp3, gone);
            }
            while !replies.is_empty() {
                replies.hand_on(out, usize::MAX);
            }
            return Ok(Taken::Members { count: gone, bytes, sent_ns });
        }
        Err(fail) => {
            out.rewind(mark);
            return Err(fail);
        }
    }
    Ok(Taken::Members { count: taken, bytes, sent_ns })
}

/// Takes members out of a set whose key is held: those with these names, and then those that lie apart. How many are gone: where
/// there is no memory for all of them, the first.
///
/// # Errors
/// None is.
fn take_out<'p>(
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    names: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
    long: impl Iterator<Item = &'p LongMember>,
) -> Result<usize, Fail> {
    let mut gone = names.len();
    if gone > 0
        && let Some((first, _)) = guard.remove_some_named(key, Type::Set, names)?.stopped
    {
        return Ok(first);
    }
    for member in long {
        match guard.set_take_long(key, member) {
            Ok(_) => gone += 1,
            Err(declined) if gone == 0 => return Err(declined.into()),
            Err(_) => break,
        }
    }
    Ok(gone)
}

/// Members that are taken some at a time.
#[derive(Debug)]
struct Popping {
    row: &'static Command,
    name: Name,
    /// How many are still to be taken.
    left: usize,
    popped: usize,
    /// What the key was like before the first, if they are one moment and events are wanted.
    before: Option<Before>,
    random: Random,
    resp3: bool,
    /// The replies of those that were.
    kept: Output,
    sent: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Members are taken of one moment.
    Whole,
    /// Each step is one moment.
    Steps,
    /// Those that were taken are replied.
    Replies,
}

impl Popping {
    /// Takes some of one moment, and publishes what it has done behind the last of them. True if there is more to take.
    ///
    /// # Errors
    /// No member is taken yet, and none can be.
    fn pop_held(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let popped = self.popped;
        if popped == 0 {
            self.before = call.look_before(self.name.bytes());
        }
        let is_refused = self.pop_some(call)?;
        let key = self.name.key(call);
        if !call.is_there(&key) {
            self.left = 0;
        }
        // Its reply begins with how many there are: so it keeps more, but not while others wait for the key.
        let kept_bytes = self.kept.own_bytes() + self.kept.pinned_bytes();
        let lets_go = self.left > 0 && kept_bytes >= call.kept_bytes_max();
        if self.left > 0 && !lets_go {
            return Ok(true);
        }
        let was_there = matches!(self.before, Some(Before { seen: Some(_), .. }));
        if was_there && self.popped == popped && !is_refused {
            // It has gone by itself, behind what was taken.
            if popped > 0 {
                call.tell_key_changed(self.row, key.bytes());
            }
        } else if let Some(before) = &self.before {
            call.tell_key_since(self.row, key.bytes(), before, true);
        }
        self.stage = Stage::Steps;
        Ok(lets_go)
    }

    /// Takes some; whether there was no memory for that.
    ///
    /// # Errors
    /// No member is taken yet, and none can be.
    fn pop_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let ((taken, bytes, sent_ns), is_refused) = match self.take_some(call) {
            Ok(taken) => (taken, false),
            // Its reply has those that are gone by then.
            Err(_) if self.popped > 0 => ((0, 0, 0), true),
            Err(fail) => return Err(fail),
        };
        call.spend(taken.max(1) as u64 * POP_NS + sent_ns);
        call.spend_on_bytes(bytes);
        self.random.below(2);
        self.popped += taken;
        self.left = if taken == 0 { 0 } else { self.left - taken };
        Ok(is_refused)
    }

    /// Takes some; none if there are none left. With the bytes of their replies, and what it takes to send long ones.
    fn take_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<(usize, usize, u64), Fail> {
        let is_whole = self.is_whole();
        let Popping { row, name, left, random, kept, .. } = self;
        let count = (*left).min(((call.step_ns() / POP_NS) as usize).clamp(1, POPS_AT_ONCE));
        loop {
            let key = name.key(call);
            let mut taken = Taken::Members { count: 0, bytes: 0, sent_ns: 0 };
            let most = (count, POPPED_BYTES);
            let mut run = |call: &mut Call<'_, '_, '_>| -> Done {
                taken = call
                    .as_one([key], |call| take(&mut call.cx.guard, kept, &key, most, *random, None, true))?;
                Ok(())
            };
            // One moment is published when it is over.
            let done = if is_whole { run(call) } else { call.tell_around_key(row, key.bytes(), run) };
            done?;
            match taken {
                Taken::Members { count, bytes, sent_ns } => return Ok((count, bytes, sent_ns)),
                Taken::Needs(bytes) => call.make_room_in(kept, bytes)?,
            }
        }
    }
}

impl Staged for Popping {
    const UNDONE: &'static str = "members was popped";

    fn is_whole(&self) -> bool {
        self.stage == Stage::Whole
    }

    fn has_begun(&self) -> bool {
        self.popped > 0
    }

    fn go_on(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let is_more = match self.stage {
            Stage::Whole => self.pop_held(call)?,
            Stage::Steps => {
                self.pop_some(call)?;
                self.left > 0
            }
            Stage::Replies => false,
        };
        if is_more {
            return Ok(Step::More);
        }
        if self.stage != Stage::Replies {
            self.stage = Stage::Replies;
            put_set(call.out, self.resp3, self.popped);
        }
        Ok(send_or_hand_on(call, &mut self.kept, &mut self.sent))
    }

    /// What was popped is nowhere but in its reply.
    fn asks_itself(&self) -> bool {
        self.has_begun()
    }

    fn held_bytes(&self) -> u64 {
        self.kept.capacity_bytes() as u64 + self.kept.pinned_bytes()
    }

    fn only_replies(&self) -> bool {
        self.stage == Stage::Replies
    }

    fn only_key(&self) -> Option<&Name> {
        Some(&self.name)
    }
}
