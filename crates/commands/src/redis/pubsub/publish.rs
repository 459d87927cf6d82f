//! PUBLISH and SPUBLISH. First the patterns that match the channel are found, in steps if there are many; then the message is
//! posted to all subscribers at once.

use larder_protocol::resp::Args;

use super::{Kind, bounded_name};
use crate::core::topics::Matching;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// A message whose patterns are being found.
#[derive(Debug)]
struct Publishing {
    /// The channel and the text.
    kept: Kept,
    matching: Matching,
    /// The charge for the patterns found.
    held: Heap,
}

/// The channel and the text.
fn words(mut args: Args<'_>) -> (&[u8], &[u8]) {
    (args.next().unwrap_or_default(), args.next().unwrap_or_default())
}

/// Serves PUBLISH.
pub(super) fn publish(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let (channel, text) = words(args);
    bounded_name(Kind::Channel, channel)?;
    let (topics, host) = (&call.cx.shared.topics, call.cx.host);
    let mut matching = Matching::default();
    if topics.pattern_count() > 0 {
        let in_transaction = call.cx.guard.in_transaction();
        let ns_max = if in_transaction { u64::MAX } else { call.step_ns() };
        let ns = topics.match_on(&mut matching, channel, ns_max);
        call.spend(ns);
        if !matching.is_done() {
            let kept = Kept::new(call, args)?;
            let held = Heap::take_however_short(call, matching.bytes())?;
            call.go_on_with(Publishing { kept, matching, held });
            return Ok(());
        }
    }
    // It is charged until it is posted, and from then on for each subscriber that gets it.
    let _held = Heap::charge(call, channel.len() + text.len());
    let told = topics.publish_to(host, channel, text, matching);
    call.length(told)
}

impl Job for Publishing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (topics, host) = (&call.cx.shared.topics, call.cx.host);
        let (channel, text) = words(self.kept.words());
        let ns = topics.match_on(&mut self.matching, channel, call.step_ns());
        call.spend(ns);
        if !self.matching.is_done() {
            self.held.set(call, self.matching.bytes())?;
            return Ok(Step::More);
        }
        let told = topics.publish_to(host, channel, text, std::mem::take(&mut self.matching));
        call.length(told)?;
        Ok(Step::Done)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

/// Serves SPUBLISH.
pub(super) fn spublish(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let (channel, text) = words(args);
    bounded_name(Kind::Channel, channel)?;
    let _held = Heap::charge(call, channel.len() + text.len());
    let told = call.cx.shared.topics.publish_to_shard(call.cx.host, channel, text);
    call.length(told)
}
