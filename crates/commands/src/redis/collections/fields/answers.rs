//! One step of what is done with fields: an answer for each of some, as one moment or as a part of one.

use std::collections::HashSet;

use larder_protocol::resp::Args;
use larder_store::{Lasting, Timed, Type};
use smallvec::SmallVec;

use super::deed::{Become, Deed, bytes_of};
use super::look;
use crate::core::events::seen;
use crate::core::output::Output;
use crate::redis::call::has_room;
use crate::redis::collections::sending::{ToSend, is_sent};
use crate::redis::collections::words::first;
use crate::redis::collections::{Call, ELEMENT_ROOM, Shown, is_too_long, peek_as};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_fail, put_integer, put_null};

/// Fields of a hash of which something is noted without memory of its own.
const FIELDS_HERE: usize = 64;

/// What a step is of a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// No other client is at the key.
    pub is_held: bool,
    /// Fields were given a time before this step which had not passed: these are given it, too, though it has.
    pub sets: bool,
    /// It is of one field, whose value is sent from where it lies if it is long; other values are copied.
    pub sends: bool,
}

/// Places of the fields that a step takes out.
#[derive(Debug, Default)]
struct Places {
    /// The first of them, which take no memory of their own.
    few: SmallVec<[usize; FIELDS_HERE]>,
    /// Those behind the first.
    more: HashSet<usize>,
}

impl Places {
    /// Notes a place; false if it was noted before.
    fn note(&mut self, place: usize) -> bool {
        if self.few.contains(&place) {
            return false;
        }
        if self.few.len() < FIELDS_HERE {
            self.few.push(place);
            return true;
        }
        self.more.insert(place)
    }
}

/// Fields that are as they were: their answers say why.
pub(super) fn refuse(out: &mut Output, fields: Args<'_>, fail: &Fail) {
    fields.for_each(|_| put_fail(out, fail));
}

/// Does something with fields that are one step as one moment: an answer for each, and events of the key.
pub(super) fn do_some(
    call: &mut Call<'_, '_, '_>,
    name: &[u8],
    fields: Args<'_>,
    (deed, part): (Deed, Part),
) -> Done {
    let (was, mut become_) = (look(call, name), Become::default());
    answer(call, name, (fields, deed), part, &mut become_)?;
    if let Some(was) = was {
        let is = seen(&mut call.cx.guard, call.client.db, name);
        become_.tell(call, name, was, is);
    }
    Ok(())
}

/// The same without the events, of which it notes what they are.
pub(super) fn answer(
    call: &mut Call<'_, '_, '_>,
    name: &[u8],
    (fields, deed): (Args<'_>, Deed),
    part: Part,
    become_: &mut Become,
) -> Done {
    match deed {
        // A transaction would wait for memory in its place.
        Deed::Take | Deed::Get(_) if part.is_held => {
            while let Some(bytes) = tell_values(call, name, (fields, deed), part, become_)? {
                call.make_room(bytes)?;
            }
        }
        Deed::Take | Deed::Get(_) => {
            call.as_one_with_room([name], |call| tell_values(call, name, (fields, deed), part, become_))?;
        }
        Deed::Expire(..) | Deed::Persist => {
            let mut done = SmallVec::<[Timed; FIELDS_HERE]>::new();
            let key = call.key(name);
            let guard = &mut call.cx.guard;
            match deed {
                Deed::Expire(at, when) => {
                    guard.hash_expire(&key, fields, at, |old| when.holds(old, at), &mut done)?;
                }
                Deed::Take | Deed::Get(_) | Deed::Persist => guard.hash_persist(&key, fields, &mut done)?,
            }
            for mut timed in done {
                let persists = matches!(deed, Deed::Persist);
                if timed == Timed::Removed && part.sets {
                    become_.expire();
                    timed = Timed::Set;
                }
                become_.timed |= timed == Timed::Set && !persists;
                become_.persistent |= timed == Timed::Set && persists;
                become_.reduced |= timed == Timed::Removed;
                put_integer(
                    call.out,
                    match timed {
                        Timed::Absent => -2,
                        Timed::Unmet if persists => -1,
                        Timed::Unmet => 0,
                        Timed::Set => 1,
                        Timed::Removed => 2,
                    },
                );
            }
        }
    }
    Ok(())
}

/// Replies the values of fields, and takes these out or has them last; how much room that needs, if it has done nothing.
///
/// # Errors
/// One of them is too long to be copied, and not sent from where it lies; or the store refuses it. Nothing is done then.
fn tell_values(
    call: &mut Call<'_, '_, '_>,
    name: &[u8],
    (fields, deed): (Args<'_>, Deed),
    part: Part,
    become_: &mut Become,
) -> Result<Option<usize>, Fail> {
    let (key, now, resp3) = (call.key(name), call.cx.now(), call.client.resp3);
    let mut hash = peek_as(&mut call.cx.guard, &key, Type::Hash)?;
    let mut to_send = ToSend::default();
    if part.sends && hash.is_some_and(|hash| is_sent(hash.longest_apart())) {
        to_send = ToSend::of_field(&mut call.cx.guard, &key, fields.at(0).unwrap_or_default())?;
        hash = peek_as(&mut call.cx.guard, &key, Type::Hash)?;
    } else if hash.is_some_and(|hash| is_too_long(hash.longest_apart())) {
        let mut some = fields;
        if some.any(|field| is_too_long(bytes_of(hash.as_ref(), field))) {
            return Err(Fail::TOO_LONG_TO_COPY);
        }
    }
    let bytes: usize = fields.map(|field| bytes_of(hash.as_ref(), field) + ELEMENT_ROOM).sum();
    let bytes = bytes.saturating_sub(to_send.bytes());
    if !has_room(call.out, bytes) {
        return Ok(Some(bytes));
    }
    let has_passed = deed.has_passed(now);
    let (takes, is_late) = (matches!(deed, Deed::Take) || has_passed, has_passed && part.sets);
    let (mark, from, sending_ns) = (call.out.mark(), call.out.end(), to_send.ns());
    let mut taken = Places::default();
    // Where the answer of each ends that is taken out.
    let mut ends = SmallVec::<[usize; FIELDS_HERE]>::new();
    for field in fields {
        let there = hash.as_ref().and_then(|hash| Some((hash, hash.find(field)?)));
        // What is taken twice is there once.
        match there.filter(|&(_, i)| !takes || is_late || taken.note(i)) {
            Some((hash, i)) => to_send.put(call.out, (Shown::Values, resp3), (hash, &hash.entry(i))),
            None => put_null(call.out, resp3),
        }
        if takes {
            ends.push(call.out.end());
        }
    }
    let mut done = SmallVec::<[Timed; FIELDS_HERE]>::new();
    let guard = &mut call.cx.guard;
    let stopped = match deed {
        _ if takes => guard.remove_some_named(&key, Type::Hash, fields).map(|gone| {
            if gone.count > 0 && is_late {
                become_.expire();
            }
            become_.reduced |= gone.count > 0 && !is_late;
            gone.stopped
        }),
        Deed::Get(Lasting::Until(at)) => {
            guard.hash_expire(&key, fields, at, |_| true, &mut done).map(|()| None)
        }
        Deed::Get(Lasting::Never) => guard.hash_persist(&key, fields, &mut done).map(|()| None),
        Deed::Take | Deed::Get(Lasting::Keep) | Deed::Expire(..) | Deed::Persist => Ok(None),
    };
    if let Some((gone, declined)) = stopped.inspect_err(|_| call.out.rewind(mark))? {
        // What is gone is nowhere but in its answers.
        let (mut left, answers) = (fields, call.out.between(from, ends[gone - 1]).to_vec());
        call.out.rewind(mark);
        call.out.put(&answers);
        first(&mut left, gone);
        refuse(call.out, left, &Fail::from(declined));
    }
    call.spend(sending_ns);
    call.spend_on_bytes(bytes);
    let set = done.contains(&Timed::Set);
    become_.timed |= set && matches!(deed, Deed::Get(Lasting::Until(_)));
    become_.persistent |= set && matches!(deed, Deed::Get(Lasting::Never));
    Ok(None)
}
