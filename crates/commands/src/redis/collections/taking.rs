//! LPOP, RPOP of many elements: some at a time, each of which is one moment; the reply is of as many as there were.

use larder_protocol::resp::HEAD_BYTES_MAX;
use larder_store::{Collection, End, Guard, Key, Type};

use super::listing::send;
use super::{Call, ELEMENT_NS, MANY_BYTES, entry_bytes_max, list::end_places, peek_as, put_element};
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::has_room;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_null_array};
use crate::redis::steps::job::{Job, Step};
use crate::redis::strings::source::Name;
use crate::redis::table::{self, Command};

/// Elements that are taken at a time, at most.
pub(super) const TAKEN_AT_ONCE: usize = 4 << 10;

/// Replies `count` elements of an end of a list, and takes them out. `name`: the command's.
pub(super) fn take(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    end: End,
    count: usize,
) -> Done {
    if peek_as(&mut call.cx.guard, key, Type::List)?.is_none() {
        put_null_array(call.out, call.client.resp3);
        return Ok(());
    }
    let Some((row, _)) = table::find(name.as_bytes()) else { return Ok(()) };
    let name = Name::kept(call, key.bytes())?;
    let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
    call.go_on_with(Taking { row, name, end, left: count, taken: 0, kept, sent: 0 });
    Ok(())
}

/// What came of taking elements.
enum Taken {
    /// So many were, of so many bytes.
    Elements(usize, u64),
    /// None was: so many bytes are needed for their replies.
    Needs(usize),
}

/// Takes some elements of a list, and replies them.
fn take_some(
    guard: &mut Guard<'_>,
    out: &mut Output,
    key: &Key<'_>,
    end: End,
    most: usize,
) -> Result<Taken, Fail> {
    let Some(list) = peek_as(guard, key, Type::List)? else { return Ok(Taken::Elements(0, 0)) };
    let (count, bytes) = measure(&list, end, most);
    if !has_room(out, bytes) {
        return Ok(Taken::Needs(bytes));
    }
    let Some(popped) = guard.list_pop(key, end, count)? else { return Ok(Taken::Elements(0, 0)) };
    match end {
        End::Front => popped.entries().for_each(|entry| put_element(out, &entry.name)),
        End::Back => popped.entries_back().for_each(|entry| put_element(out, &entry.name)),
    }
    Ok(Taken::Elements(popped.len(), bytes as u64))
}

/// How many elements from an end on are taken at a time, one at least, and how many bytes their replies have at most.
fn measure(list: &Collection<'_>, end: End, most: usize) -> (usize, usize) {
    let places = end_places(list, end, most);
    let (mut count, mut bytes) = (0, 2 * HEAD_BYTES_MAX);
    let mut fits = |element_bytes: usize| {
        let fits = count == 0 || bytes + element_bytes <= MANY_BYTES;
        if fits {
            (count, bytes) = (count + 1, bytes + element_bytes);
        }
        fits
    };
    match end {
        End::Front => list.entries(places).all(|entry| fits(entry_bytes_max(&entry, Type::List))),
        End::Back => list.entries_back(places).all(|entry| fits(entry_bytes_max(&entry, Type::List))),
    };
    (count, bytes)
}

/// Elements that are taken some at a time.
#[derive(Debug)]
struct Taking {
    row: &'static Command,
    name: Name,
    end: End,
    /// How many are still to be taken.
    left: usize,
    taken: usize,
    /// The replies of those that were.
    kept: Output,
    sent: u64,
}

impl Taking {
    /// Takes some; how many, and what that took.
    fn take_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<(usize, u64), Fail> {
        let Taking { row, name, end, left, kept, .. } = self;
        let most = (*left).min(((call.step_ns() / (2 * ELEMENT_NS)) as usize).clamp(1, TAKEN_AT_ONCE));
        loop {
            let key = name.key(call);
            let mut taken = Taken::Elements(0, 0);
            call.tell_around_key(row, key.bytes(), |call| {
                taken = call.as_one([key], |call| take_some(&mut call.cx.guard, kept, &key, *end, most))?;
                Ok(())
            })?;
            match taken {
                Taken::Elements(taken, bytes) => {
                    return Ok((taken, taken as u64 * 2 * ELEMENT_NS + copying_ns(2 * bytes)));
                }
                Taken::Needs(bytes) => call.make_room_in(kept, bytes)?,
            }
        }
    }
}

impl Job for Taking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.left > 0 {
            let (taken, ns) = match self.take_some(call) {
                Ok(taken) => taken,
                // It tells of those that are gone by then.
                Err(_) if self.taken > 0 => (0, 0),
                Err(fail) => return Err(fail),
            };
            call.spend(ns);
            self.taken += taken;
            self.left = if taken == 0 { 0 } else { self.left - taken };
            if self.left > 0 {
                return Ok(Step::More);
            }
            put_array(call.out, self.taken);
        }
        Ok(send(call, &self.kept, &mut self.sent))
    }
}
