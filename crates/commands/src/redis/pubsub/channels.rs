//! PUBSUB CHANNELS and SHARDCHANNELS: the names that have subscribers, matched in steps and replied in pieces.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;

use super::ANSWER_BYTES;
use crate::core::glob::{Pattern, Weight};
use crate::core::topics::{Space, Topics};
use crate::core::work::copying_ns;
use crate::redis::call::{Call, bounded};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk};
use crate::redis::steps::job::{Job, Step};

/// The time to look at a name, beside matching it.
const NAME_NS: u64 = 30;

/// Looks through the names.
#[derive(Debug)]
struct Channels {
    space: fn(&Topics) -> &Space,
    pattern: Option<Box<[u8]>>,
    /// The next part of the table.
    part: usize,
    /// Names of the part before it that are still to be looked at.
    names: Vec<Arc<[u8]>>,
    /// Names that match.
    found: Vec<Arc<[u8]>>,
    /// How many of these are replied, behind the head; none while names are still being matched.
    replied: Option<usize>,
    held: Heap,
}

/// Serves PUBSUB CHANNELS and SHARDCHANNELS; `name`: the subcommand's.
pub(super) fn channels(
    call: &mut Call<'_, '_, '_>,
    name: &str,
    mut args: Args<'_>,
    space: fn(&Topics) -> &Space,
) -> Done {
    let pattern = args.next().map(bounded).transpose()?.map(Box::from);
    if !args.is_empty() {
        return Err(Fail::subcommand_arity("PUBSUB", name));
    }
    let held = Heap::none(call);
    let (names, found) = (Vec::new(), Vec::new());
    call.work(Channels { space, pattern, part: 0, names, found, replied: None, held })
}

/// The time to look through all names, about.
pub(crate) fn look_ns(call: &Call<'_, '_, '_>, pattern: &[u8]) -> u64 {
    let topics = &call.cx.shared.topics;
    let names = (topics.channels.channels() + topics.shards.channels()) as u64;
    let bytes = topics.bytes.load(Relaxed) / 2;
    names * 2 * NAME_NS + Weight::of(pattern).with_reading_ns(names, bytes)
}

impl Channels {
    /// Looks at some names; true when there are no more.
    fn look(&mut self, call: &mut Call<'_, '_, '_>) -> bool {
        let _held = self.pattern.as_deref().map(|pattern| Heap::of_pattern(call, pattern, false));
        let pattern = self.pattern.as_deref().map(|pattern| Pattern::of(pattern, false));
        let weight = pattern.as_ref().map(Pattern::weight);
        let (ns_max, mut ns) = (call.step_ns(), weight.map_or(0, |weight| weight.read_ns));
        let space = (self.space)(&call.cx.shared.topics);
        let done = loop {
            let Some(name) = self.names.pop() else {
                let Some(names) = space.part(self.part) else { break true };
                ns += names.len() as u64 * NAME_NS;
                (self.names, self.part) = (names, self.part + 1);
                continue;
            };
            ns += NAME_NS + weight.map_or(0, |weight| weight.ns(1, name.len() as u64));
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(&name)) {
                self.found.push(name);
            }
            if ns >= ns_max {
                break false;
            }
        };
        call.spend(ns);
        done
    }

    /// Replies some names; true when all are replied.
    fn reply(&mut self, call: &mut Call<'_, '_, '_>) -> bool {
        // The head is written in any case; there may be no room for a name behind it.
        let from = self.replied.unwrap_or_else(|| {
            put_array(call.out, self.found.len());
            0
        });
        let (mut at, before) = (from, call.out.len());
        while let Some(name) = self.found.get(at) {
            if call.out.is_full() && !call.cx.guard.in_transaction() {
                break;
            }
            put_bulk(call.out, name);
            at += 1;
        }
        call.spend(copying_ns(call.out.len() - before) + (at - from) as u64 * NAME_NS);
        self.replied = Some(at);
        at == self.found.len()
    }

    fn bytes(&self) -> usize {
        let names = self.names.capacity() + self.found.capacity();
        names * size_of::<Arc<[u8]>>() + self.pattern.as_ref().map_or(0, |pattern| pattern.len())
    }
}

impl Job for Channels {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.replied.is_some() {
            return Ok(if self.reply(call) { Step::Done } else { Step::Full });
        }
        let done = self.look(call);
        if !done {
            self.held.set(call, self.bytes())?;
            return Ok(Step::More);
        }
        if call.cx.guard.in_transaction() {
            // All of it is sent at once.
            call.make_room(self.found.iter().map(|name| name.len() + ANSWER_BYTES).sum())?;
        }
        let mark = call.out.mark();
        if self.reply(call) {
            return Ok(Step::Done);
        }
        // The rest waits until the client has read some.
        self.held.set(call, self.bytes()).inspect_err(|_| call.out.rewind(mark))?;
        Ok(Step::Full)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn asks_itself(&self) -> bool {
        self.replied.is_some()
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }
}
