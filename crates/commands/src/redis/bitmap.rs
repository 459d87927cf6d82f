//! Bitmaps: a value as a string of bits, the first the highest of the first byte.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Hint, Key, Refusal};

use super::call::{Call, integer, is, next};
use super::fail::{Done, Fail};
use super::reply::each_part;
use super::rewrite::{Rewrite, rewrite, rewrite_part};
use super::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use super::table::{Command, Keys};

pub(crate) const ROWS: &[Command] = &[
    Command::key("setbit", 4, WRITE | DENYOOM, set_bit).doc("2.2.0", "key offset value", "Sets a bit."),
    Command::key("getbit", 3, READONLY | FAST, get_bit).doc("2.2.0", "key offset", "A bit."),
    Command::key("bitcount", -2, READONLY, bit_count).doc(
        "2.6.0",
        "key [start end [BYTE|BIT]]",
        "How many bits are set.",
    ),
    Command::key("bitpos", -3, READONLY, bit_position).doc(
        "2.8.7",
        "key bit [start [end [BYTE|BIT]]]",
        "Where the first bit of a kind is.",
    ),
    Command::args("bitop", -4, WRITE | DENYOOM, Keys { first: 2, last: -1, step: 1 }, bit_op).doc(
        "2.6.0",
        "AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE destkey key [key ...]",
        "Combines bitmaps.",
    ),
    Command::key("bitfield", -2, WRITE | DENYOOM, |call, key, _, args| {
        super::bitfield::bitfield(call, key, args, false)
    })
    .doc(
        "3.2.0",
        "key [GET encoding offset|[OVERFLOW WRAP|SAT|FAIL] SET encoding offset value|INCRBY encoding offset increment ...]",
        "Reads and writes numbers inside a value.",
    ),
    Command::key("bitfield_ro", -2, READONLY | FAST, |call, key, _, args| {
        super::bitfield::bitfield(call, key, args, true)
    })
    .doc("6.0.0", "key [GET encoding offset ...]", "Reads numbers inside a value."),
];

const BAD_OFFSET: Fail = Fail::of("ERR bit offset is not an integer or out of range");
/// Bytes among which a bit may be asked for, however much a value may have.
const READ_BYTES_MAX: u64 = 512 << 20;
const BAD_BIT: Fail = Fail::of("ERR bit is not an integer or out of range");

/// An offset in bits of a value of at most `bytes_max` bytes.
pub(crate) fn bit_offset(word: &[u8], bytes_max: u64) -> Result<u64, Fail> {
    larder_protocol::resp::parse_integer(word)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|&n| n >> 3 < bytes_max)
        .ok_or(BAD_OFFSET)
}

fn set_bit(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let offset = bit_offset(next(&mut args)?, call.value_bytes_max())?;
    let on = match next(&mut args)? {
        b"0" => false,
        b"1" => true,
        _ => return Err(BAD_BIT),
    };
    let (at, mask) = ((offset >> 3) as usize, 0x80u8 >> (offset & 7));
    let in_place = rewrite_part(call, key, at..at + 1, at + 1, |byte| {
        let was = byte[0] & mask != 0;
        byte[0] = if on { byte[0] | mask } else { byte[0] & !mask };
        was
    })?;
    if let Some(was) = in_place {
        return call.integer(i64::from(was));
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

/// A range as BITCOUNT and BITPOS take it, in bits: first and behind the last.
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// The bytes in which it lies.
    fn bytes(&self) -> std::ops::Range<usize> {
        (self.start / 8) as usize..self.end.div_ceil(8) as usize
    }
}

/// Reads `start [end] [BYTE|BIT]` for a value of so many bytes.
fn span(start: i64, end: i64, in_bits: bool, bytes: u64) -> Span {
    let unit = if in_bits { 1 } else { 8 };
    let total = (bytes * 8 / unit) as i64;
    let place = |n: i64| if n < 0 { total.saturating_add(n).max(0) } else { n };
    // Both may lie in front of the value: then the first byte is what is meant.
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

/// A byte with what is outside of the span cleared.
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

fn bit_count(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, args: Args<'_>) -> Done {
    let (start, end, in_bits) = match args.len() {
        0 => (0, -1, false),
        2 | 3 => {
            let (start, end) = (args.at(0).unwrap_or_default(), args.at(1).unwrap_or_default());
            (integer(start)?, integer(end)?, unit(args.at(2))?)
        }
        _ => return Err(Fail::SYNTAX),
    };
    let mut count = 0u64;
    if let Some(item) = call.peek(key)? {
        let mut span = span(start, end, in_bits, item.value_bytes());
        // BITPOS has no such rule.
        if start < 0 && end < 0 && start > end {
            span = Span { start: 0, end: 0 };
        }
        let part = span.bytes();
        let (first, last) = (part.start as u64, (part.end as u64).saturating_sub(1));
        // Of a span in one byte both ends are that byte, which is cut once.
        let ends = [Some(first), Some(last).filter(|last| *last != first)];
        let mut at = first;
        each_part(item.value(), part, &mut |bytes| {
            count += bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            // The ends may be cut.
            let behind = at + bytes.len() as u64;
            for end in ends.into_iter().flatten() {
                if (at..behind).contains(&end) {
                    let byte = bytes[(end - at) as usize];
                    count -= u64::from(byte.count_ones() - masked(byte, end, &span).count_ones());
                }
            }
            at = behind;
        });
    }
    call.integer(count as i64)
}

fn bit_position(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
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
    let Some(item) = call.peek(key)? else { return call.integer(if bit { -1 } else { 0 }) };
    let bytes = item.value_bytes();
    let span = span(start.unwrap_or(0), end.unwrap_or(-1), in_bits, bytes);
    if span.start == span.end {
        return call.integer(-1);
    }
    let skip = if bit { 0 } else { 0xff };
    let (mut found, mut first) = (None, span.start / 8);
    each_part(item.value(), span.bytes(), &mut |part| {
        if found.is_some() {
            return;
        }
        for (at, byte) in (first..).zip(part) {
            let byte = masked(byte ^ skip, at, &span);
            if byte != 0 {
                found = Some((at * 8) as i64 + i64::from(byte.leading_zeros()));
                return;
            }
        }
        first += part.len() as u64;
    });
    // A value goes on with zeros for ever, if its end was not given.
    let nowhere = if bit || end.is_some() { -1 } else { bytes as i64 * 8 };
    call.integer(found.unwrap_or(nowhere))
}

/// How BITOP combines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// In the first and in none of the others.
    Diff,
    /// In one of the others and not in the first.
    Diff1,
    /// In the first and in one of the others.
    AndOr,
    /// In exactly one.
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

    /// Combines the first source, all of which `all` is, with another that begins with `bytes` and goes on with zeros;
    /// `more` is what the operation needs to know beside that.
    fn add(self, all: &mut [u8], more: &mut [u8], bytes: &[u8]) {
        let zeros = bytes.len();
        match self {
            Operation::And => {
                all.iter_mut().zip(bytes).for_each(|(all, byte)| *all &= byte);
                all[zeros..].fill(0);
            }
            Operation::Or => all.iter_mut().zip(bytes).for_each(|(all, byte)| *all |= byte),
            Operation::Xor => all.iter_mut().zip(bytes).for_each(|(all, byte)| *all ^= byte),
            // It has one source.
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

    /// When all sources were added.
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

fn bit_op(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
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
    let sources: Vec<Key<'_>> = args.map(|name| call.key(name)).collect();
    let keys = sources.iter().copied().chain([target]).collect::<Vec<_>>();
    let bytes = call.as_one(keys, |call| {
        let mut len = 0;
        for key in &sources {
            len = len.max(call.peek(key)?.map_or(0, |item| item.value_bytes()));
        }
        if len == 0 {
            let _ = call.cx.guard.delete(&target, Expect::Present);
            return Ok(0);
        }
        combine(call, operation, &sources, &target, len).map_err(|_| Fail::OUT_OF_MEMORY)?;
        Ok(len)
    })?;
    call.integer(bytes as i64)
}

/// Bytes of each source that are combined at a time.
const BLOCK_BYTES: usize = 16 << 10;

/// Stores what the operation makes of the sources, which do not change meanwhile, block by block, so
/// that it takes no room but that of the result.
fn combine(
    call: &mut Call<'_, '_, '_>,
    operation: Operation,
    sources: &[Key<'_>],
    target: &Key<'_>,
    len: u64,
) -> Result<(), Refusal> {
    let guard = &mut call.cx.guard;
    let mut upload = guard.upload(target, len, &Attributes::default())?;
    let mut room = vec![0; 3 * BLOCK_BYTES.min(len as usize)];
    let (all, rest) = room.split_at_mut(BLOCK_BYTES.min(len as usize));
    let (more, block) = rest.split_at_mut(all.len());
    for at in (0..len as usize).step_by(BLOCK_BYTES) {
        let bytes = BLOCK_BYTES.min(len as usize - at);
        let (all, more) = (&mut all[..bytes], &mut more[..bytes]);
        more.fill(0);
        for (n, key) in sources.iter().enumerate() {
            let mut filled = 0;
            if let Some(item) = guard.peek(key).hit() {
                let there = item.value_bytes() as usize;
                each_part(item.value(), at.min(there)..(at + bytes).min(there), &mut |part| {
                    block[filled..filled + part.len()].copy_from_slice(part);
                    filled += part.len();
                });
            }
            if n == 0 {
                all[..filled].copy_from_slice(&block[..filled]);
                all[filled..].fill(0);
            } else {
                operation.add(all, more, &block[..filled]);
            }
        }
        operation.finish(all, more);
        guard.upload_fill(&mut upload, all)?;
    }
    guard.publish(upload, Expect::Any).map(drop)
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

    #[test]
    fn bytes_are_cut_at_the_ends_of_a_span() {
        assert_eq!(masked(0xff, 0, &Span { start: 2, end: 16 }), 0x3f);
        assert_eq!(masked(0xff, 1, &Span { start: 2, end: 10 }), 0xc0);
        assert_eq!(masked(0xff, 0, &Span { start: 3, end: 5 }), 0x18);
    }
}
