//! Bitmaps: a value as a string of bits, the first the highest of the first byte.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Hint, Key};

use super::call::{Call, integer, is, next};
use super::fail::{Done, Fail};
use super::reply::{copy_value, each_part};
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
    let in_place = rewrite_part(call, key, at..at + 1, |byte| {
        let was = byte[0] & mask != 0;
        byte[0] = if on { byte[0] | mask } else { byte[0] & !mask };
        was
    });
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

/// Runs `read` on the value; none is no bytes.
fn with_value<T>(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    read: impl FnOnce(Option<&[u8]>) -> T,
) -> Result<T, Fail> {
    let mut bytes = std::mem::take(call.scratch);
    bytes.clear();
    let result = match call.peek(key)?.map(|item| item.value()) {
        None => read(None),
        Some(larder_store::Value::Whole(whole)) => read(Some(whole)),
        Some(value) => {
            copy_value(value, &mut bytes);
            read(Some(&bytes))
        }
    };
    *call.scratch = bytes;
    Ok(result)
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
    let count = with_value(call, key, |bytes| {
        let bytes = bytes.unwrap_or_default();
        let mut span = span(start, end, in_bits, bytes.len() as u64);
        // BITPOS has no such rule.
        if start < 0 && end < 0 && start > end {
            span = Span { start: 0, end: 0 };
        }
        let whole = &bytes[(span.start / 8) as usize..span.end.div_ceil(8) as usize];
        let mut count: u64 = whole.iter().map(|byte| u64::from(byte.count_ones())).sum();
        // The ends may be cut.
        if span.end > span.start {
            let (first, last) = (span.start / 8, (span.end - 1) / 8);
            for at in if first == last { first..=first } else { first..=last } {
                if at == first || at == last {
                    let byte = bytes[at as usize];
                    count -= u64::from(byte.count_ones() - masked(byte, at, &span).count_ones());
                }
            }
        }
        count
    })?;
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
    let found = with_value(call, key, |bytes| {
        let Some(bytes) = bytes else { return if bit { -1 } else { 0 } };
        let span = span(start.unwrap_or(0), end.unwrap_or(-1), in_bits, bytes.len() as u64);
        if span.start == span.end {
            return -1;
        }
        let skip = if bit { 0 } else { 0xff };
        for at in span.start / 8..span.end.div_ceil(8) {
            let byte = bytes[at as usize] ^ skip;
            let byte = masked(byte, at, &span);
            if byte != 0 {
                return (at * 8) as i64 + i64::from(byte.leading_zeros());
            }
        }
        // A value goes on with zeros for ever, if its end was not given.
        if bit || end.is_some() { -1 } else { bytes.len() as i64 * 8 }
    })?;
    call.integer(found)
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

    /// Combines one byte of each source.
    fn combine(self, mut bytes: impl Iterator<Item = u8>) -> u8 {
        let first = bytes.next().unwrap_or(0);
        match self {
            Operation::And => bytes.fold(first, |all, byte| all & byte),
            Operation::Or => bytes.fold(first, |all, byte| all | byte),
            Operation::Xor => bytes.fold(first, |all, byte| all ^ byte),
            Operation::Not => !first,
            Operation::Diff => first & !bytes.fold(0, |all, byte| all | byte),
            Operation::Diff1 => !first & bytes.fold(0, |all, byte| all | byte),
            Operation::AndOr => first & bytes.fold(0, |all, byte| all | byte),
            Operation::One => {
                let (once, _) = bytes.fold((first, 0), |(once, twice), byte| {
                    let twice = twice | once & byte;
                    ((once | byte) & !twice, twice)
                });
                once
            }
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
        let mut values = Vec::with_capacity(sources.len());
        for key in &sources {
            let mut value = Vec::new();
            if let Some(item) = call.peek(key)? {
                copy_value(item.value(), &mut value);
            }
            values.push(value);
        }
        let len = values.iter().map(Vec::len).max().unwrap_or(0);
        if len == 0 {
            let _ = call.cx.guard.delete(&target, Expect::Present);
            return Ok(0);
        }
        let byte_at = |value: &Vec<u8>, at: usize| value.get(at).copied().unwrap_or(0);
        let result: Vec<u8> =
            (0..len).map(|at| operation.combine(values.iter().map(|value| byte_at(value, at)))).collect();
        let _ = call.store(&target, &result, &Attributes::default(), Expect::Any)?;
        Ok(len)
    })?;
    call.length(bytes)
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
            assert_eq!(operation.combine(bytes.into_iter()), expected);
        }
        assert_eq!(Operation::Not.combine([0xf0].into_iter()), 0x0f);
    }

    #[test]
    fn bytes_are_cut_at_the_ends_of_a_span() {
        assert_eq!(masked(0xff, 0, &Span { start: 2, end: 16 }), 0x3f);
        assert_eq!(masked(0xff, 1, &Span { start: 2, end: 10 }), 0xc0);
        assert_eq!(masked(0xff, 0, &Span { start: 3, end: 5 }), 0x18);
    }
}
