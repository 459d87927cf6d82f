//! ZRANGESTORE: a part of a sorted set, stored under another key.
//!
//! ```text
//! little ─▶ copied and stored in one step
//! else   ─▶ copied in steps ─▶ made in steps ─▶ unchanged? ─▶ stored
//!                 ▲                                 └── no: all over again
//! ```
//!
//! A copy is charged before it is made, and takes no more than connections may hold.

use std::ops::Range;

use larder_protocol::resp::Args;
use larder_store::{Collection, Made, Type};

use super::bounds::Chosen;
use super::making::Making;
use super::{Call, MEMBER_NS, STORED_NS, of_type};
use crate::core::work::{Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::next;
use crate::redis::copied::Copied;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, LEAVES, Step};

/// Members that are copied at a time, at most.
const MEMBERS_AT_ONCE: usize = 512;
/// Bytes at which a batch of copied members ends.
const BYTES_AT_ONCE: usize = 64 << 10;
/// A command of less work is done in one step.
const AT_ONCE_NS: u64 = 400_000;
/// Bytes of a member beside its name: where that ends, and its score.
const MEMBER_BYTES: usize = size_of::<usize>() + size_of::<f64>();

/// Serves ZRANGESTORE.
pub(super) fn store_range(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let mut rest = args;
    let (to, from) = (next(&mut rest)?, next(&mut rest)?);
    let chosen = Chosen::parse(rest, None, true)?;
    let key = call.key(from);
    let item = call.cx.guard.peek(&key).hit();
    let version = item.map_or(0, |item| item.cas());
    let there = of_type(item, Type::SortedSet)?;
    let places = there.as_ref().map_or(0..0, |set| chosen.ranks(set));
    let compared_ns = copying_ns(chosen.compared_bytes() as u64);
    let mut ns = places.len() as u64 * (MEMBER_NS + STORED_NS) + compared_ns;
    if let Some(set) = there.as_ref().filter(|_| ns < AT_ONCE_NS) {
        ns += copying_ns(copied_bytes(set, places.clone()) as u64);
    }
    let bytes = if ns >= AT_ONCE_NS { STEPS_BYTES_MIN } else { 0 };
    call.spend(compared_ns);
    match call.leave(bytes, "zrangestore", None, args)? {
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => {
            let storing = Storing {
                from: Name::kept(call, from)?,
                to: Name::kept(call, to)?,
                version,
                places,
                copied: Members::default(),
                making: Making::new(call, Type::SortedSet),
                held: Heap::none(call),
                again: Some((again, lane)),
            };
            // The job publishes the events of its own last step; the command that begins it has none.
            call.go_on_with(storing);
            Ok(())
        }
        Leave::No => {
            let meant = Meant { of: (key.hash(), version), places };
            at_once(call, [to, from], &chosen, meant)
        }
    }
}

/// The ranks of the chosen members, and the key and version of the sorted set in which they were found: finding them again
/// compares long bounds with many members.
#[derive(Debug)]
struct Meant {
    of: (u64, u64),
    places: Range<usize>,
}

impl Meant {
    /// Finds the ranks again if the sorted set is another one; returns how many bytes are compared for that.
    fn look(&mut self, chosen: &Chosen<'_>, set: &Collection<'_>, of: (u64, u64)) -> usize {
        if self.of == of {
            return 0;
        }
        *self = Meant { of, places: chosen.ranks(set) };
        chosen.compared_bytes()
    }
}

/// Bytes of a copy of these members: twice what is there, since vectors grow by doubling.
fn copied_bytes(set: &Collection<'_>, places: Range<usize>) -> usize {
    2 * set.entries(places).map(|entry| entry.name.len() + MEMBER_BYTES).sum::<usize>()
}

/// Copied members with their scores, in order.
#[derive(Debug, Default)]
struct Members {
    names: Copied,
    scores: Vec<f64>,
}

impl Members {
    fn add(&mut self, set: &Collection<'_>, places: Range<usize>) {
        for entry in set.entries(places) {
            self.names.push_element_of(set, &entry.name);
            self.scores.push(entry.score);
        }
    }

    /// The members from a place on.
    fn made(&self, from: usize) -> impl Iterator<Item = Made<'_>> {
        (from..self.scores.len()).map(|i| Made {
            name: self.names.at(i),
            value: &[],
            score: self.scores[i],
            expires_at: 0,
        })
    }
}

/// Does the command in one step.
fn at_once(
    call: &mut Call<'_, '_, '_>,
    [to, from]: [&[u8]; 2],
    chosen: &Chosen<'_>,
    mut meant: Meant,
) -> Done {
    loop {
        let source = call.key(from);
        let item = call.cx.guard.peek(&source).hit();
        let version = item.map_or(0, |item| item.cas());
        let (mut bytes, mut compared) = (0, 0);
        if let Some(set) = of_type(item, Type::SortedSet)? {
            compared = meant.look(chosen, &set, (source.hash(), version));
            bytes = copied_bytes(&set, meant.places.clone());
        }
        let _held = match Heap::take(call, bytes) {
            Ok(held) => held,
            Err(fail) => {
                call.spend_on_bytes(compared);
                return Err(fail);
            }
        };
        let (to, from, mut grown) = (call.key(to), call.key(from), false);
        let done = call.as_one([to, from], |call| {
            let mut members = Members::default();
            let item = call.cx.guard.peek(&from).hit();
            let version = item.map_or(0, |item| item.cas());
            if let Some(set) = of_type(item, Type::SortedSet)? {
                // Charging has evicted items, and others may have written meanwhile.
                compared += meant.look(chosen, &set, (from.hash(), version));
                grown = copied_bytes(&set, meant.places.clone()) > bytes;
                if grown {
                    return Ok(());
                }
                members.add(&set, meant.places.clone());
            }
            call.spend(members.scores.len() as u64 * MEMBER_NS);
            call.store_elements(&to, Type::SortedSet, members.scores.len(), members.made(0))
        });
        call.spend_on_bytes(compared);
        done?;
        if !grown {
            return Ok(());
        }
    }
}

/// A ZRANGESTORE in steps.
#[derive(Debug)]
struct Storing {
    from: Name,
    to: Name,
    /// The version of the sorted set that is copied.
    version: u64,
    /// Ranks that are left to copy.
    places: Range<usize>,
    copied: Members,
    /// The sorted set that is made.
    making: Making,
    held: Heap,
    again: Option<(Again, Lane)>,
}

/// What a part of a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// There is more to do.
    More,
    /// The sorted set is made.
    All,
    /// The source has another version.
    Changed,
}

impl Storing {
    /// The source, if it is still the same.
    fn there<'r>(&self, call: &'r mut Call<'_, '_, '_>) -> Result<Option<Collection<'r>>, Fail> {
        if self.from.is_swapped(call) {
            return Ok(None);
        }
        let key = self.from.key(call);
        of_type(call.cx.guard.peek(&key).hit().filter(|item| item.cas() == self.version), Type::SortedSet)
    }

    /// Copies some members, and adds that work to `ns`.
    fn copy_some(&mut self, call: &mut Call<'_, '_, '_>, ns: &mut u64) -> Result<Looked, Fail> {
        let Some(there) = self.there(call)? else { return Ok(Looked::Changed) };
        let Range { start, end } = self.places;
        let (mut bytes, mut to) = (0, start);
        for entry in there.entries(start..end.min(start + MEMBERS_AT_ONCE)) {
            (bytes, to) = (bytes + entry.name.len(), to + 1);
            if bytes >= BYTES_AT_ONCE {
                break;
            }
        }
        let members = self.copied.scores.len() + to - start;
        self.held.set(call, 2 * (self.copied.names.bytes() + bytes + members * MEMBER_BYTES))?;
        // Charging may have evicted items.
        let Some(there) = self.there(call)? else { return Ok(Looked::Changed) };
        self.copied.add(&there, start..to);
        self.places.start = to;
        *ns += (to - start) as u64 * MEMBER_NS + copying_ns(bytes as u64);
        Ok(Looked::More)
    }

    /// Puts some of the copied members into the new sorted set.
    fn make_some(&mut self, call: &mut Call<'_, '_, '_>, ns: (&mut u64, u64)) -> Result<Looked, Fail> {
        if self.to.is_swapped(call) {
            return Ok(Looked::Changed);
        }
        let (to, mut made) = (self.to.key(call), self.copied.made(self.making.len()));
        let whole = self.making.go_on(call, &to, &mut made, ns)?;
        Ok(if whole { Looked::All } else { Looked::More })
    }
}

impl Job for Storing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let looked = loop {
            let looked = match self.places.is_empty() {
                false => self.copy_some(call, &mut ns)?,
                true => self.make_some(call, (&mut ns, ns_max))?,
            };
            if looked != Looked::More || ns >= ns_max {
                break looked;
            }
        };
        call.spend(ns);
        if looked == Looked::More {
            return Ok(Step::More);
        }
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let (mut stored, mut done) = (false, Ok(()));
        let mut making = Some(std::mem::replace(&mut self.making, Making::new(call, Type::SortedSet)));
        if looked == Looked::All {
            let keys = [self.to.key(call), self.from.key(call)];
            done = call.tell_around(again.row(), again.args(), |call| {
                call.as_one(keys, |call| {
                    if self.to.is_swapped(call) || self.there(call)?.is_none() {
                        return Ok(());
                    }
                    stored = true;
                    let to = self.to.key(call);
                    making.take().map_or(Ok(()), |making| making.store(call, &to))
                })
            });
        }
        drop(lane);
        done?;
        if !stored {
            // The copy is no longer charged when it is made again.
            (self.copied, self.held) = (Members::default(), Heap::none(call));
            drop(making);
            again.run(call)?;
        }
        Ok(Step::Done)
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }

    fn wants(&self) -> Option<(usize, usize)> {
        self.places.is_empty().then_some(LEAVES)
    }

    fn lane(&self) -> Option<&Lane> {
        self.again.as_ref().map(|(_, lane)| lane)
    }
}
