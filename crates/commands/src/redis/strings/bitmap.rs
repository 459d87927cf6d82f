//! Bitmaps: a value as a string of bits; the first is the highest bit of the first byte.

use larder_protocol::resp::Args;
use larder_store::{Hint, Key};

use super::rewrite::{Rewrite, rewrite, rewrite_part};
use crate::core::events::Change;
use crate::core::output::Output;
use crate::core::work::Lane;
use crate::redis::call::{Call, integer, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{each_part, put_integer};
use crate::redis::row::flag::{AS_ONE, DENYOOM, FAST, READONLY, WEIGHTLESS, WRITE};
use crate::redis::row::{Access, Command, Keys, Replaces, Tells, Weighs};
use crate::redis::source::{Name, Source};
use crate::redis::steps::again::Leave;
use crate::redis::steps::job::{Job, Step};

pub(crate) const ROWS: &[Definition] = &[
    Command::key("setbit", 4, WRITE | DENYOOM, set_bit).tells(Tells::Each(Change::string("setbit"))).access(&[Access::Change]).weighs(Weighs::Bit).replaces(Replaces::Never).doc("2.2.0", "key offset value", "Sets a bit."),
    Command::key("getbit", 3, READONLY | FAST | WEIGHTLESS, get_bit).doc("2.2.0", "key offset", "A bit."),
    Command::key("bitcount", -2, READONLY, bit_count).weighs(Weighs::Read).doc(
        "2.6.0",
        "key [start end [BYTE|BIT]]",
        "How many bits are set.",
    ),
    Command::key("bitpos", -3, READONLY, bit_position).weighs(Weighs::Read).doc(
        "2.8.7",
        "key bit [start [end [BYTE|BIT]]]",
        "Where the first bit of a kind is.",
    ),
    Command::args("bitop", -4, WRITE | DENYOOM, Keys::Range { first: 2, last: -1, step: 1 }, super::bitop::bit_op).with(AS_ONE).tells(Tells::Each(Change::SET)).access(&[Access::Replace, Access::Read]).weighs(Weighs::BitOperation).doc(
        "2.6.0",
        "<AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE> destkey key [key ...]",
        "Combines bitmaps.",
    ),
    Command::key("bitfield", -2, WRITE | DENYOOM, |call, key, _, args| {
        super::bitfield::bitfield(call, key, args, false)
    }).tells(Tells::Each(Change::string("setbit"))).access(&[Access::Change]).uses(bit_field_access)
    .weighs(Weighs::BitFields { read_only: false }).replaces(Replaces::Never).doc(
        "3.2.0",
        "key [GET encoding offset|[OVERFLOW <WRAP|SAT|FAIL>] <SET encoding offset value|INCRBY encoding offset increment> ...]",
        "Reads and writes numbers inside a value.",
    ),
    Command::key("bitfield_ro", -2, READONLY | FAST, |call, key, _, args| {
        super::bitfield::bitfield(call, key, args, true)
    })
    .weighs(Weighs::BitFields { read_only: true }).doc("6.0.0", "key [GET encoding offset ...]", "Reads numbers inside a value."),
];

/// BITFIELD's access to its key, as Redis sees it: only a read if all of its steps are complete and read.
fn bit_field_access(mut args: Args<'_>) -> Access {
    args.next();
    while let Some(word) = args.next() {
        let more = if is(word, "GET") && args.len() >= 2 {
            2
        } else if is(word, "OVERFLOW") && !args.is_empty() {
            1
        } else {
            return Access::Change;
        };
        args.nth(more - 1);
    }
    Access::Read
}

const BAD_OFFSET: Fail = Fail::of("ERR bit offset is not an integer or out of range");
/// Bytes in which a bit may be asked for, however long values may be.
pub(crate) const READ_BYTES_MAX: u64 = 512 << 20;
const BAD_BIT: Fail = Fail::of("ERR bit is not an integer or out of range");

/// Parses an offset in bits, for a value of at most `bytes_max` bytes.
pub(crate) fn bit_offset(word: &[u8], bytes_max: u64) -> Result<u64, Fail> {
    larder_protocol::resp::parse_integer(word)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|&n| n >> 3 < bytes_max)
        .ok_or(BAD_OFFSET)
}

fn set_bit(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let words = args;
    let offset = bit_offset(next(&mut args)?, call.value_bytes_max())?;
    let on = match next(&mut args)? {
        b"0" => false,
        b"1" => true,
        _ => return Err(BAD_BIT),
    };
    let (at, mask) = ((offset >> 3) as usize, 0x80u8 >> (offset & 7));
    let change = |byte: &mut [u8]| {
        let was = byte[0] & mask != 0;
        byte[0] = if on { byte[0] | mask } else { byte[0] & !mask };
        was
    };
    let reply = |out: &mut Output, _, was| put_integer(out, i64::from(was));
    if rewrite_part(call, ("setbit", words), key, (at..at + 1, at + 1), change, reply)? {
        return Ok(());
    }
    let was = rewrite(call, key, |bytes, there| {
        let grows = bytes.len() <= at;
        if grows {
            bytes.resize(at + 1, 0);
        }
        let was = bytes[at] & mask != 0;
        if was == on && !grows && there {
            return Ok(Rewrite::Keep(was));
        }
        bytes[at] = if on { bytes[at] | mask } else { bytes[at] & !mask };
        Ok(Rewrite::Store(was))
    })?;
    call.integer(i64::from(was))
}

fn get_bit(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let offset = bit_offset(next(&mut args)?, READ_BYTES_MAX)?;
    let at = usize::try_from(offset >> 3).unwrap_or(usize::MAX);
    let mut byte = 0;
    if let Some(item) = call.peek(key)?
        && (at as u64) < item.value_bytes()
    {
        each_part(item.value(), at..at + 1, &mut |part| byte = part[0]);
    }
    call.integer(i64::from(byte & 0x80 >> (offset & 7) != 0))
}

/// A range of BITCOUNT or BITPOS in bits; `end` is behind the last one.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// The bytes that have its bits.
    fn bytes(&self) -> std::ops::Range<usize> {
        (self.start / 8) as usize..self.end.div_ceil(8) as usize
    }
}

/// The range of `start` and `end`, in bits or bytes, in a value of so many bytes.
fn span(start: i64, end: i64, in_bits: bool, bytes: u64) -> Span {
    let unit = if in_bits { 1 } else { 8 };
    let total = (bytes * 8 / unit) as i64;
    let place = |n: i64| if n < 0 { total.saturating_add(n).max(0) } else { n };
    // Both may lie in front of the value: then the first byte is meant.
    let (start_at, end_at) = (place(start), place(end).min(total - 1));
    if start_at > end_at || total == 0 {
        return Span { start: 0, end: 0 };
    }
    Span { start: start_at as u64 * unit, end: (end_at as u64 + 1) * unit }
}

fn unit(word: Option<&[u8]>) -> Result<bool, Fail> {
    match word {
        None => Ok(false),
        Some(word) if is(word, "BYTE") => Ok(false),
        Some(word) if is(word, "BIT") => Ok(true),
        Some(_) => Err(Fail::SYNTAX),
    }
}

/// Clears the bits of a byte that are outside of the span.
fn masked(byte: u8, at: u64, span: &Span) -> u8 {
    let first = at * 8;
    let mut byte = byte;
    if span.start > first {
        byte &= 0xff >> (span.start - first).min(7);
    }
    if span.end < first + 8 {
        byte &= 0xff << (first + 8 - span.end).min(7);
    }
    byte
}

/// What a command asks about the bits of a span.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// How many are set; so many are counted.
    Count(u64),
    /// Where the first bit of this kind is; `nowhere`: the answer if there is none.
    Position { bit: bool, nowhere: i64 },
}

impl Ask {
    /// Looks at bytes of the span that begin at `at`; returns the answer if it is found.
    fn look(&mut self, bytes: &[u8], at: u64, span: &Span) -> Option<i64> {
        let behind = at + bytes.len() as u64;
        match self {
            Ask::Count(count) => {
                *count += bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
                // The first and the last byte may be cut; in a span of one byte both are the same, which is cut once.
                let part = span.bytes();
                let (first, last) = (part.start as u64, (part.end as u64).saturating_sub(1));
                for end in [Some(first), Some(last).filter(|last| *last != first)].into_iter().flatten() {
                    if (at..behind).contains(&end) {
                        let byte = bytes[(end - at) as usize];
                        *count -= u64::from(byte.count_ones() - masked(byte, end, span).count_ones());
                    }
                }
                None
            }
            Ask::Position { bit, .. } => {
                let skip = if *bit { 0 } else { 0xff };
                (at..).zip(bytes).find_map(|(at, byte)| {
                    let byte = masked(byte ^ skip, at, span);
                    (byte != 0).then(|| (at * 8) as i64 + i64::from(byte.leading_zeros()))
                })
            }
        }
    }

    /// The answer behind the last byte.
    fn end(&self) -> i64 {
        match *self {
            Ask::Count(count) => count as i64,
            Ask::Position { nowhere, .. } => nowhere,
        }
    }
}

/// A value whose bits are looked at in steps.
#[derive(Debug)]
struct Looking {
    value: Source,
    ask: Ask,
    span: Span,
    /// The next byte to look at.
    at: u64,
    _lane: Lane,
}

impl Job for Looking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let end = self.span.bytes().end as u64;
        while self.at < end {
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
            let piece = self.value.piece(self.at);
            let piece = &piece[..piece.len().min((end - self.at) as usize)];
            if let Some(found) = self.ask.look(piece, self.at, &self.span) {
                call.spend(ns);
                call.integer(found)?;
                return Ok(Step::Done);
            }
            self.at += piece.len() as u64;
            ns += looking_ns(piece.len() as u64);
        }
        call.spend(ns);
        call.integer(self.ask.end())?;
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        true
    }
}

/// Work to look at the bits of so many bytes.
fn looking_ns(bytes: u64) -> u64 {
    bytes
}

/// Replies what is asked about the bits of a value. `asked`: the question and the span, for a value of so many bytes.
fn look(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    (name, words): (&'static str, Args<'_>),
    asked: impl Fn(u64) -> (Ask, Span),
) -> Done {
    let there = call.peek(key)?.map_or(0, |item| item.value_bytes());
    let looked_at = asked(there).1.bytes().len() as u64;
    match call.leave(looked_at, name, Some(key.bytes()), words)? {
        Leave::Later => Ok(()),
        Leave::Yes(_, lane) => {
            let name = Name::of(call, call.client.db, key);
            let value = Source::read(call, name);
            let (ask, span) = asked(value.bytes());
            call.work(Looking { value, ask, at: span.start / 8, span, _lane: lane })
        }
        Leave::No => {
            let Some(item) = call.peek(key)? else { return call.integer(asked(0).0.end()) };
            let (mut ask, span) = asked(item.value_bytes());
            let part = span.bytes();
            let (mut at, mut found) = (part.start as u64, None);
            each_part(item.value(), part, &mut |bytes| {
                if found.is_none() {
                    found = ask.look(bytes, at, &span);
                }
                at += bytes.len() as u64;
            });
            call.spend(looking_ns(looked_at));
            call.integer(found.unwrap_or(ask.end()))
        }
    }
}

fn bit_count(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, args: Args<'_>) -> Done {
    let (start, end, in_bits) = match args.len() {
        0 => (0, -1, false),
        2 | 3 => {
            let (start, end) = (args.at(0).unwrap_or_default(), args.at(1).unwrap_or_default());
            (integer(start)?, integer(end)?, unit(args.at(2))?)
        }
        _ => return Err(Fail::SYNTAX),
    };
    look(call, key, ("bitcount", args), |bytes| {
        // BITPOS has no such rule.
        let none = start < 0 && end < 0 && start > end;
        let span = if none { Span { start: 0, end: 0 } } else { span(start, end, in_bits, bytes) };
        (Ask::Count(0), span)
    })
}

fn bit_position(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let words = args;
    let bit = match integer(next(&mut args)?)? {
        0 => false,
        1 => true,
        _ => return Err(Fail::of("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 3 {
        return Err(Fail::SYNTAX);
    }
    let start = args.next().map(integer).transpose()?;
    let in_bits = unit(args.at(1))?;
    let end = args.next().map(integer).transpose()?;
    if call.peek(key)?.is_none() {
        return call.integer(if bit { -1 } else { 0 });
    }
    look(call, key, ("bitpos", words), |bytes| {
        let span = span(start.unwrap_or(0), end.unwrap_or(-1), in_bits, bytes);
        // Without a given end a value goes on with zeros for ever.
        let nowhere = if bit || end.is_some() || span.start == span.end { -1 } else { bytes as i64 * 8 };
        (Ask::Position { bit, nowhere }, span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_at_the_ends_of_a_span() {
        assert_eq!(masked(0xff, 0, &Span { start: 2, end: 16 }), 0x3f);
        assert_eq!(masked(0xff, 1, &Span { start: 2, end: 10 }), 0xc0);
        assert_eq!(masked(0xff, 0, &Span { start: 3, end: 5 }), 0x18);
    }
}
