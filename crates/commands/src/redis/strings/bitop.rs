//! BITOP: combines bitmaps into another, block by block, so that only the result takes memory; large ones in steps.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Key, Upload};

use crate::core::work::{Lane, copying_ns};
use crate::redis::call::{Call, few_keys, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::source::{Name, Source};
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, Step};

/// How BITOP combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// Bits of the first source that are in none of the others.
    Diff,
    /// Bits of any other source that are not in the first.
    Diff1,
    /// Bits of the first source that are in any other.
    AndOr,
    /// Bits that are in exactly one source.
    One,
}

impl Operation {
    fn parse(word: &[u8]) -> Option<Operation> {
        use Operation::*;
        let all = [
            ("AND", And),
            ("OR", Or),
            ("XOR", Xor),
            ("NOT", Not),
            ("DIFF", Diff),
            ("DIFF1", Diff1),
            ("ANDOR", AndOr),
            ("ONE", One),
        ];
        all.into_iter().find(|(name, _)| is(word, name)).map(|(_, operation)| operation)
    }

    /// Adds another source, of `bytes` and zeros behind them, to the combined ones in `all`; `more` has what the operation needs
    /// beside these.
    fn add(self, all: &mut [u8], more: &mut [u8], bytes: &[u8]) {
        let zeros = bytes.len();
        match self {
            Operation::And => {
                all.iter_mut().zip(bytes).for_each(|(all, byte)| *all &= byte);
                all[zeros..].fill(0);
            }
            Operation::Or => all.iter_mut().zip(bytes).for_each(|(all, byte)| *all |= byte),
            Operation::Xor => all.iter_mut().zip(bytes).for_each(|(all, byte)| *all ^= byte),
            // NOT has one source.
            Operation::Not => {}
            Operation::Diff | Operation::Diff1 | Operation::AndOr => {
                more.iter_mut().zip(bytes).for_each(|(more, byte)| *more |= byte);
            }
            Operation::One => {
                for ((once, twice), byte) in all.iter_mut().zip(more).zip(bytes) {
                    *twice |= *once & byte;
                    *once = (*once | byte) & !*twice;
                }
            }
        }
    }

    /// Finishes a block, when all sources were added.
    fn finish(self, all: &mut [u8], more: &[u8]) {
        let pairs = all.iter_mut().zip(more);
        match self {
            Operation::And | Operation::Or | Operation::Xor | Operation::One => {}
            Operation::Not => pairs.for_each(|(all, _)| *all = !*all),
            Operation::Diff => pairs.for_each(|(all, others)| *all &= !others),
            Operation::Diff1 => pairs.for_each(|(all, others)| *all = !*all & others),
            Operation::AndOr => pairs.for_each(|(all, others)| *all &= others),
        }
    }
}

/// Bytes of each source that are combined at a time.
const BLOCK_BYTES: usize = 16 << 10;
/// Bytes noted of a source beside its name: its key, twice, and where its value is.
const SOURCE_BYTES: usize = 256;
/// Work to look at a source, however short.
const SOURCE_NS: u64 = 100;

/// Serves BITOP.
pub(crate) fn bit_op(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let words = args;
    let operation = Operation::parse(next(&mut args)?).ok_or(Fail::SYNTAX)?;
    let target = next(&mut args)?;
    let target = call.key(target);
    if operation == Operation::Not && args.len() != 1 {
        return Err(Fail::of("ERR BITOP NOT must be called with a single source key."));
    }
    let several = matches!(operation, Operation::Diff | Operation::Diff1 | Operation::AndOr);
    if several && args.len() < 2 {
        return Err(Fail::of(
            "ERR BITOP DIFF, DIFF1 and ANDOR must be called with at least two source keys.",
        ));
    }
    few_keys(args.len())?;
    let _held = Heap::take(call, args.len() * SOURCE_BYTES)?;
    let sources: Vec<Key<'_>> = args.map(|name| call.key(name)).collect();
    let (mut bytes, mut small_bytes) = (0, 0);
    for key in &sources {
        let there = call.peek(key)?.map_or(0, |item| item.value_bytes());
        bytes += there;
        small_bytes += if there > BLOCK_BYTES as u64 { 0 } else { there };
    }
    let (again, lane) = match call.leave(bytes, "bitop", None, words)? {
        Leave::Later => return Ok(()),
        Leave::No => (None, None),
        Leave::Yes(again, lane) => (Some(again), Some(lane)),
    };
    let keys = sources.iter().copied().chain([target]).collect::<Vec<_>>();
    if again.is_none() {
        return call.as_one(keys, |call| {
            let mut combining = Combining::new(call, operation, &sources, &target, small_bytes)?;
            while combining.step(call)? != Step::Done {}
            Ok(())
        });
    }
    let combining = Combining::new(call, operation, &sources, &target, small_bytes)?;
    call.work(Combining { again, lane, ..combining })
}

/// A BITOP under way.
#[derive(Debug)]
struct Combining {
    operation: Operation,
    sources: Vec<Source>,
    target: Name,
    bytes: u64,
    upload: Option<Upload>,
    /// The block of the result, and what the operation needs beside it.
    all: Vec<u8>,
    more: Vec<u8>,
    /// The next source to add to the block.
    source: usize,
    again: Option<Again>,
    lane: Option<Lane>,
    _held: Heap,
}

impl Combining {
    fn new(
        call: &mut Call<'_, '_, '_>,
        operation: Operation,
        sources: &[Key<'_>],
        target: &Key<'_>,
        small_bytes: u64,
    ) -> Result<Combining, Fail> {
        let db = call.client.db;
        let room = small_bytes as usize + sources.len() * size_of::<Source>() + 2 * BLOCK_BYTES;
        let names: usize = sources.iter().map(|key| key.bytes().len() + SOURCE_BYTES).sum();
        let held = Heap::take(call, room + names)?;
        let sources: Vec<Source> = sources
            .iter()
            .map(|key| {
                let name = Name::of(call, db, key);
                Source::read(call, name)
            })
            .collect();
        let bytes = sources.iter().map(Source::bytes).max().unwrap_or(0);
        let upload = match bytes {
            0 => None,
            bytes => Some(
                call.cx
                    .guard
                    .compose(target, bytes, &Attributes::default())
                    .map_err(|_| Fail::OUT_OF_MEMORY)?,
            ),
        };
        let block = BLOCK_BYTES.min(bytes as usize);
        Ok(Combining {
            operation,
            sources,
            target: Name::of(call, db, target),
            bytes,
            upload,
            all: vec![0; block],
            more: vec![0; block],
            source: 0,
            again: None,
            lane: None,
            _held: held,
        })
    }

    /// Adds the next source to the block that begins at `at`; returns the work.
    fn add(&mut self, at: u64) -> u64 {
        let block = BLOCK_BYTES.min((self.bytes - at) as usize);
        let Combining { operation, sources, all, more, source, .. } = self;
        let (all, more) = (&mut all[..block], &mut more[..block]);
        let value = &sources[*source];
        let first = *source == 0;
        if first {
            more.fill(0);
        }
        let mut filled = 0;
        while filled < block {
            let piece = value.piece(at + filled as u64);
            let piece = &piece[..piece.len().min(block - filled)];
            let part = filled..filled + piece.len();
            if piece.is_empty() {
                break;
            }
            if first {
                all[part.clone()].copy_from_slice(piece);
            } else {
                operation.add(&mut all[part.clone()], &mut more[part.clone()], piece);
            }
            filled = part.end;
        }
        // The source goes on with zeros.
        if first {
            all[filled..].fill(0);
        } else {
            operation.add(&mut all[filled..], &mut more[filled..], &[]);
        }
        *source += 1;
        SOURCE_NS + copying_ns(block as u64)
    }

    /// Stores the whole result; false if a source has changed meanwhile.
    fn end(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let target = self.target.key(call);
        let mut keys: Vec<Key<'_>> = Vec::with_capacity(self.sources.len() + 1);
        keys.extend(self.sources.iter().map(|source| source.name.key(call)));
        keys.push(target);
        let (sources, upload, bytes) = (&self.sources, self.upload.take(), self.bytes);
        let swapped = self.target.is_swapped(call);
        call.as_one(keys, |call| {
            if swapped || !sources.iter().all(|source| source.is_there(call)) {
                return Ok(false);
            }
            match upload {
                Some(upload) => {
                    call.cx.guard.publish(upload, Expect::Any).map_err(|_| Fail::OUT_OF_MEMORY)?;
                }
                // The target may be absent: that is as good.
                None => drop(call.cx.guard.delete(&target, Expect::Present)),
            }
            call.integer(bytes as i64)?;
            Ok(true)
        })
    }
}

impl Job for Combining {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let missing = self.upload.as_ref().map_or(0, Upload::missing);
        while let Some(upload) = &mut self.upload
            && upload.missing() > 0
        {
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
            let at = upload.value_bytes() - upload.missing();
            if self.source < self.sources.len() {
                ns += self.add(at);
                continue;
            }
            let block = BLOCK_BYTES.min(upload.missing() as usize);
            self.operation.finish(&mut self.all[..block], &self.more[..block]);
            // If there is no memory for the block, the rest of it is combined again.
            self.source = 0;
            ns += copying_ns(block as u64);
            if call.cx.guard.upload_fill(upload, &self.all[..block]).is_err() {
                call.spend(ns);
                // Only a step that stored nothing waits for memory.
                let has_copied = upload.missing() < missing;
                return if has_copied { Ok(Step::More) } else { Err(Fail::OUT_OF_MEMORY) };
            }
        }
        call.spend(ns);
        let Some(again) = self.again.take() else {
            // In one step: all keys are taken already.
            self.end(call)?;
            return Ok(Step::Done);
        };
        let mut ended = true;
        let done = call.tell_around(again.row(), again.args(), |call| {
            ended = self.end(call)?;
            Ok(())
        });
        self.lane = None;
        self.sources.iter_mut().for_each(Source::let_go);
        done?;
        if !ended {
            again.run(call)?;
        }
        Ok(Step::Done)
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref()
    }

    fn asks_again(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.missing() > 0)
    }

    fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_combine_bytes() {
        let bytes = [0b1100u8, 0b1010, 0b1001];
        for (operation, expected) in [
            (Operation::And, 0b1000),
            (Operation::Or, 0b1111),
            (Operation::Xor, 0b1111),
            (Operation::Diff, 0b0100),
            (Operation::Diff1, 0b0011),
            (Operation::AndOr, 0b1000),
            (Operation::One, 0b0111),
        ] {
            let (mut all, mut more) = ([bytes[0]], [0]);
            bytes[1..].iter().for_each(|byte| operation.add(&mut all, &mut more, &[*byte]));
            operation.finish(&mut all, &more);
            assert_eq!(all, [expected]);
        }
        let mut all = [0xf0];
        Operation::Not.finish(&mut all, &[0]);
        assert_eq!(all, [0x0f]);
    }
}
