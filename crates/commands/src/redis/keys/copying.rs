//! COPY of a large collection in steps.
//!
//! ```text
//! the request ─► the lane ─► nodes are copied, some in each step ─► unchanged? ─► the other key gets them
//!                                         ▲                              └── no: all over again
//! ```
//!
//! The copy lies in the store, as the original does, and items are evicted for it.

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

/// Work to copy some nodes, beside their bytes.
const NODES_NS: u64 = 20_000;

/// Begins to copy a collection to another key, in database `db`. False if it is to be copied in one step, or there is nothing to
/// copy, or the target exists. `words`: the command's.
///
/// # Errors
/// There is no room to keep the command.
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

/// A COPY in steps.
#[derive(Debug)]
struct Copying {
    from: Name,
    to: Name,
    /// The version that is copied.
    version: u64,
    replace: bool,
    /// `None` when the copy is stored.
    load: Option<Box<BulkLoad>>,
    /// Whether all nodes are copied.
    copied: bool,
    /// The charge for its heap.
    held: Heap,
    again: Option<(Again, Lane)>,
}

impl Copying {
    /// Stores the copy, if the original is unchanged; false if not.
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

    /// Copies as much as there is time for; true if all is copied, `None` if the original has changed.
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
                    // Only a step that copied nothing waits for memory.
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
        // A copy made in vain is freed before another is begun.
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

    /// Nodes of a batch that found no memory are freed, and copied again.
    fn asks_again(&self) -> bool {
        self.load.is_some() && !self.copied
    }

    fn lane(&self) -> Option<&Lane> {
        self.again.as_ref().map(|(_, lane)| lane)
    }
}
