//! COPY of a large collection, some nodes at a time.
//!
//! ```text
//! the request ─► the lane ─► nodes are copied, some at each step ─► as it was? ─► the other key has them
//!                                         ▲                              └── no: all over again
//! ```
//!
//! What is copied lies in the store, as what it is copied of, and others give way to it.

use larder_protocol::resp::Args;
use larder_store::{BulkLoad, COPIED_BYTES_MAX, Copied, Expect, Key, Refusal, Value};

use crate::core::work::{Lane, copying_ns};
use crate::redis::call::{Call, kept};
use crate::redis::collections::making::finish;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, Step};

/// What it takes to copy some nodes beside their bytes.
const NODES_NS: u64 = 20_000;

/// Begins to copy a collection from one key to another, in the database `db`; false if it is to be copied at once, or there
/// is nothing to copy, or something in the way. `words`: the command's.
///
/// # Errors
/// There is no room for what is kept of it.
pub(super) fn begin(
    call: &mut Call<'_, '_, '_>,
    words: Args<'_>,
    (from, to): (Key<'_>, Key<'_>),
    (db, replace): (u8, bool),
) -> Result<bool, Fail> {
    let Some(item) = call.cx.guard.peek(&from).hit() else { return Ok(false) };
    let Value::Collection(there) = item.value() else { return Ok(false) };
    let (kind, bytes, version) = (there.kind(), item.value_bytes(), item.cas());
    if bytes <= COPIED_BYTES_MAX || !replace && call.is_there(&to) {
        return Ok(false);
    }
    match call.leave(bytes, "copy", None, words)? {
        Leave::No => Ok(false),
        Leave::Later => Ok(true),
        Leave::Yes(again, lane) => {
            let copying = Copying {
                from: Name::of(call, call.client.db, &from),
                to: Name::of(call, db, &to),
                version,
                replace,
                load: Some(Box::new(BulkLoad::new(call.cx.guard.store(), kind))),
                copied: false,
                held: Heap::none(call),
                again: Some((again, lane)),
            };
            call.work(copying)?;
            Ok(true)
        }
    }
}

/// A collection that is being copied.
#[derive(Debug)]
struct Copying {
    from: Name,
    to: Name,
    /// What is copied of.
    version: u64,
    replace: bool,
    /// None when it is done.
    load: Option<Box<BulkLoad>>,
    /// All is.
    copied: bool,
    /// What goes with it on the heap.
    held: Heap,
    again: Option<(Again, Lane)>,
}

impl Copying {
    /// Gives the other key what is copied, if the first one is as it was; false if not.
    fn end(
        &self,
        call: &mut Call<'_, '_, '_>,
        (from, to): (&Key<'_>, &Key<'_>),
        load: BulkLoad,
    ) -> Result<bool, Fail> {
        let item = call.cx.guard.peek(from).hit();
        let Some(item) = item.filter(|item| item.cas() == self.version) else { return Ok(false) };
        let attributes = kept(&item);
        let expect = if self.replace { Expect::Any } else { Expect::Absent };
        match call.cx.guard.load_publish(load, to, &attributes, expect)? {
            Err(Refusal::NoMemory) => return Err(Fail::OUT_OF_MEMORY),
            done => call.integer(i64::from(done.is_ok()))?,
        }
        Ok(true)
    }

    /// Copies what a step is for; none if it is another collection by now, true if all is copied.
    fn copy_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Option<bool>, Fail> {
        let Some(load) = &mut self.load else { return Ok(None) };
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let done = loop {
            if self.from.is_swapped(call) || self.to.is_swapped(call) {
                break None;
            }
            if self.copied {
                let to = self.to.key(call);
                break Some(finish(call, load, &to, (&mut ns, ns_max))?);
            } else {
                let (from, to) = (self.from.key(call), self.to.key(call));
                let before = load.bytes();
                let copied = match call.cx.guard.load_copy(load, (&from, self.version), &to) {
                    // That is waited for by a step that finds none at all.
                    Err(_) if ns > 0 => break Some(false),
                    copied => copied?,
                };
                match copied {
                    Copied::Changed => break None,
                    Copied::More => {}
                    Copied::All => self.copied = true,
                }
                ns += NODES_NS + copying_ns(load.bytes() - before);
                self.held.set(call, load.heap_bytes())?;
            }
            if ns >= ns_max {
                break Some(false);
            }
        };
        call.spend(ns);
        Ok(done)
    }
}

impl Job for Copying {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let copied = self.copy_some(call)?;
        if copied == Some(false) {
            return Ok(Step::More);
        }
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let (mut ended, mut done): (bool, Done) = (false, Ok(()));
        // What was copied for nothing is given back before it is copied again.
        let mut load = self.load.take().filter(|_| copied.is_some());
        if load.is_some() {
            let (from, to) = (self.from.key(call), self.to.key(call));
            done = call.tell_around(again.row(), again.args(), |call| {
                call.as_one([from, to], |call| {
                    let swapped = self.from.is_swapped(call) || self.to.is_swapped(call);
                    if let Some(load) = load.take().filter(|_| !swapped) {
                        ended = self.end(call, (&from, &to), *load)?;
                    }
                    Ok(())
                })
            });
        }
        drop(lane);
        done?;
        if !ended {
            again.run(call)?;
        }
        Ok(Step::Done)
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }

    /// Nodes of which some found no memory are given back, and copied once more.
    fn asks_again(&self) -> bool {
        self.load.is_some() && !self.copied
    }

    fn lane(&self) -> Option<&Lane> {
        self.again.as_ref().map(|(_, lane)| lane)
    }
}
