//! LREM, LTRIM: elements are taken out of a list. Of a long one some at a time, between which others are served, each of
//! which is one moment.
//!
//! A client that writes to a long list meanwhile moves the places of what LREM has still to look at: it begins anew then, and after
//! some tries goes on with the list held, as one moment. LTRIM counts what it has taken from either end, and what it keeps is
//! what it would keep of the list as it is by then.

use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{End, Hint, Key, Trimmed, Type};

use super::seeking::{ROUND_NS, looking_ns, looks_at_once, may_compare};
use super::{Call, MANY_BYTES, WRITE_NS, is_large, of_type, peek_as, places, symmetric};
use crate::core::work::copying_ns;
use crate::redis::call::{integer, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::row::Command;
use crate::redis::source::Name;
use crate::redis::steps::held::Tries;
use crate::redis::steps::job::{Job, Step};

/// Elements among which those that are to go are taken out together, at most.
const SIFTED_AT_ONCE: usize = 4 << 10;
/// Work to take some thousands of leaves out.
const TRIM_NS: u64 = 300_000;

/// LREM
pub(crate) fn remove(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let count = symmetric(next(&mut args)?)?;
    let end = if count < 0 { End::Back } else { End::Front };
    let left =
        if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let element = next(&mut args)?;
    let list = peek_as(&mut call.cx.guard, key, Type::List)?;
    list.map_or(Ok(()), |list| may_compare(&list, element.len()))?;
    let large = list.is_some_and(|list| is_large(&list));
    if !large || call.cx.guard.in_transaction() {
        let looked_ns = call.looking_through_ns(key, usize::MAX)?;
        call.spend(looked_ns);
        let gone = call.cx.guard.list_remove(key, end, left, element)?;
        return call.length(gone);
    }
    let Some((row, _)) = call.shared.rows.find(b"lrem") else { return Ok(()) };
    let held = Heap::keep(call, element.len())?;
    let element = element.into();
    let name = Name::kept(call, key.bytes())?;
    let tries = Tries::default();
    let sift = Sift { element, _held: held, end, left, gone: 0, looked: 0, version: None, tries };
    call.go_on_with(Sifting { row, name, sift });
    Ok(())
}

/// A list out of which elements are taken that are one.
#[derive(Debug)]
struct Sifting {
    row: &'static Command,
    name: Name,
    sift: Sift,
}

/// Which are taken out, and how far that has come.
#[derive(Debug)]
struct Sift {
    element: Box<[u8]>,
    _held: Heap,
    end: End,
    /// How many are to go, at most.
    left: usize,
    gone: usize,
    /// Elements from that end on that stay.
    looked: usize,
    /// The version of the list behind the last step.
    version: Option<u64>,
    tries: Tries,
}

impl Sift {
    /// Takes out what is to go of some elements, and adds what that takes to `ns`; true when that was all.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, key: &Key<'_>, ns: &mut u64) -> Result<bool, Fail> {
        let item = call.cx.guard.peek(key).hit();
        let version = item.map(|item| item.cas());
        let list = match of_type(item, Type::List) {
            Ok(Some(list)) => list,
            // It is another's by now.
            Err(_) if self.version.is_some() => return Ok(true),
            Ok(None) => return Ok(true),
            Err(fail) => return Err(fail),
        };
        if self.version.is_some() && self.version != version {
            self.looked = 0;
            self.tries.fail();
        }
        // One as long may have come meanwhile.
        match may_compare(&list, self.element.len()) {
            Err(_) if self.gone > 0 => return Ok(true),
            may => may?,
        }
        let len = list.len();
        let each = list.bytes() / len + 1;
        let looked = self.looked.min(len);
        let left = match self.end {
            End::Front => (looked..len, false),
            End::Back => (0..len - looked, true),
        };
        let few = (MANY_BYTES / each).clamp(1, SIFTED_AT_ONCE);
        let (few, mut bytes) = looks_at_once(&list, self.element.len(), left, few);
        let mut most = few;
        if self.tries.are_over() {
            most = len;
            bytes = list.bytes() as u64;
        }
        let until = len.min(looked.saturating_add(most));
        let among: Range<usize> = match self.end {
            End::Front => looked..until,
            End::Back => len - until..len - looked,
        };
        let looks = among.len();
        // They are counted, and then found again.
        *ns += ROUND_NS + looking_ns(&list, looks) + copying_ns(2 * bytes);
        let gone = call.cx.guard.list_remove_among(key, among, self.end, self.left, &self.element)?;
        *ns += (gone as u64).min(looks as u64) * WRITE_NS / 8;
        self.gone += gone;
        self.left -= gone;
        self.looked += looks - gone;
        self.version = call.cx.guard.peek(key).hit().map(|item| item.cas());
        Ok(self.left == 0 || until == len)
    }
}

impl Job for Sifting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Sifting { row, name, sift } = self;
        if sift.tries.are_many() {
            sift.tries.begin_held();
            return Ok(Step::Hold);
        }
        let (ns_max, mut ns) = (call.step_ns(), 0);
        while ns < ns_max {
            let (key, mut done) = (name.key(call), false);
            call.tell_around_key(row, key.bytes(), |call| {
                call.as_one([key], |call| {
                    done = sift.go_on(call, &key, &mut ns)?;
                    Ok(())
                })
            })?;
            if done {
                call.spend(ns);
                call.length(sift.gone)?;
                return Ok(Step::Done);
            }
        }
        call.spend(ns);
        Ok(Step::More)
    }

    fn names(&self) -> Vec<&Name> {
        vec![&self.name]
    }
}

/// LTRIM
pub(crate) fn trim(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let (start, stop) = (integer(next(&mut args)?)?, integer(next(&mut args)?)?);
    let mut trimming = Trimming { start, stop, front: 0, back: 0, kept: None };
    let mut more = trimming.trim(call, key)?;
    while more && call.cx.guard.in_transaction() {
        more = trimming.trim(call, key)?;
    }
    if !more {
        return call.ok();
    }
    let Some((row, _)) = call.shared.rows.find(b"ltrim") else { return Ok(()) };
    trimming.kept = Some((row, Name::kept(call, key.bytes())?));
    call.go_on_with(trimming);
    Ok(())
}

/// A list that is made shorter.
#[derive(Debug)]
struct Trimming {
    start: i64,
    stop: i64,
    /// Elements that were taken from the front, and from the back.
    front: usize,
    back: usize,
    kept: Option<(&'static Command, Name)>,
}

impl Trimming {
    /// Takes some elements out; true if there are more that are to go.
    fn trim(&mut self, call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<bool, Fail> {
        let Trimming { start, stop, front, back, .. } = *self;
        let kept = |len: usize| {
            let kept = places(start, stop, len + front + back);
            kept.start.saturating_sub(front)..kept.end.saturating_sub(front)
        };
        let Trimmed { there, front, back, more } = call.cx.guard.list_trim(key, kept)?;
        (self.front, self.back) = (self.front + front, self.back + back);
        if more {
            call.spend(TRIM_NS);
        }
        Ok(there && more)
    }
}

impl Job for Trimming {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Some((row, name)) = self.kept.take() else { return Ok(Step::Done) };
        let (key, mut more) = (name.key(call), false);
        call.tell_around_key(row, key.bytes(), |call| {
            more = self.trim(call, &key)?;
            Ok(())
        })?;
        self.kept = Some((row, name));
        if more {
            return Ok(Step::More);
        }
        call.ok()?;
        Ok(Step::Done)
    }
}
