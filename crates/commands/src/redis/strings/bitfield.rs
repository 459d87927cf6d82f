//! BITFIELD: numbers of any width inside a value.

use super::making::{Edit, Patches, edited, make};
use std::collections::BTreeMap;
use std::ops::Range;

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{Expect, Item, Key};
use smallvec::SmallVec;

use super::bitmap::READ_BYTES_MAX;
use super::rewrite::{Rewrite, rewrite, rewrite_part};
use crate::core::output::Output;
use crate::core::work::STEPS_BYTES_MIN;
use crate::redis::call::{Call, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{each_part, put_array, put_integer, put_null};

/// A list with an element for each subcommand: few as a rule.
type Few<T> = SmallVec<[T; 8]>;

/// Words behind the key that one step reads, at most, in some 5 ms: 43,690 GETs.
const WORDS_MAX: usize = 1 << 17;

const TOO_MANY: Fail = Fail::of("ERR BITFIELD takes at most 131072 arguments");

/// What happens to a number that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// A field: where a number is, and its type.
#[derive(Clone, Copy)]
struct Field {
    signed: bool,
    bits: u32,
    offset: u64,
}

#[derive(Clone, Copy)]
enum Verb {
    Get,
    Set(i64),
    Increment(i64),
}

struct Step {
    field: Field,
    verb: Verb,
    overflow: Overflow,
}

impl Step {
    /// The step for a value without its first `bits` bits.
    fn moved_down(&self, bits: u64) -> Step {
        Step { field: Field { offset: self.field.offset - bits, ..self.field }, ..*self }
    }
}

const BAD_TYPE: Fail = Fail::of(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);

impl Field {
    /// Parses a field. A field that is only read may lie behind the longest possible value.
    fn parse(kind: &[u8], offset: &[u8], reads: bool, value_bytes_max: u64) -> Result<Field, Fail> {
        let bytes_max = if reads { READ_BYTES_MAX } else { value_bytes_max };
        let (signed, digits) = match kind {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(BAD_TYPE),
        };
        let most = if signed { 64 } else { 63 };
        let bits = parse_integer(digits).filter(|n| (1..=most).contains(n)).ok_or(BAD_TYPE)? as u32;
        let bad = Fail::of("ERR bit offset is not an integer or out of range");
        let (digits, unit) = match offset {
            [b'#', digits @ ..] => (digits, u64::from(bits)),
            digits => (digits, 1),
        };
        let offset = parse_integer(digits)
            .and_then(|n| u64::try_from(n).ok())
            .and_then(|n| n.checked_mul(unit))
            .filter(|n| n >> 3 < bytes_max && (reads || n.saturating_add(u64::from(bits)) >> 3 <= bytes_max))
            .ok_or(bad)?;
        Ok(Field { signed, bits, offset })
    }

    fn bytes(&self) -> usize {
        ((self.offset + u64::from(self.bits)).div_ceil(8)) as usize
    }

    /// Bytes of a reply with its number, or null, at most.
    fn answer_bytes(&self) -> usize {
        5 + self.bits as usize / 3
    }

    /// The bytes in which it lies, of a value of `there` bytes.
    fn span(&self, there: usize) -> Range<usize> {
        ((self.offset >> 3) as usize).min(there)..self.bytes().min(there)
    }

    fn read(&self, bytes: &[u8]) -> i64 {
        self.read_span(&bytes[self.span(bytes.len())])
    }

    /// Reads it from the bytes of its span; bytes behind them are zeros.
    fn read_span(&self, span: &[u8]) -> i64 {
        let mut window = [0; 16];
        window[..span.len()].copy_from_slice(span);
        let n = (u128::from_be_bytes(window) << (self.offset & 7) >> (128 - self.bits)) as u64;
        if self.signed && self.bits < 64 && n >> (self.bits - 1) & 1 == 1 {
            return (n | u64::MAX << self.bits) as i64;
        }
        n as i64
    }

    fn write(&self, bytes: &mut [u8], n: i64) {
        let span = &mut bytes[(self.offset >> 3) as usize..self.bytes()];
        let mut window = [0; 16];
        window[..span.len()].copy_from_slice(span);
        let shift = 128 - self.bits - (self.offset & 7) as u32;
        let mask = u128::MAX >> (128 - self.bits) << shift;
        let window = u128::from_be_bytes(window) & !mask | u128::from(n as u64) << shift & mask;
        span.copy_from_slice(&window.to_be_bytes()[..span.len()]);
    }

    /// Makes a number fit; `None` if it does not and overflow is to fail.
    fn fit(&self, n: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = match self.signed {
            true => (-(1i128 << (self.bits - 1)), (1i128 << (self.bits - 1)) - 1),
            false => (0, (1i128 << self.bits) - 1),
        };
        if (least..=most).contains(&n) {
            return Some(n as i64);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(n.clamp(least, most) as i64),
            Overflow::Wrap => {
                let width = 1i128 << self.bits;
                let n = n.rem_euclid(width);
                Some(if self.signed && n > most { n - width } else { n } as i64)
            }
        }
    }
}

/// The steps of a request, parsed from its words each time they are gone through: there may be many.
#[derive(Clone)]
struct Steps<'a> {
    args: Args<'a>,
    overflow: Overflow,
    bytes_max: u64,
}

impl Iterator for Steps<'_> {
    type Item = Result<Step, Fail>;

    fn next(&mut self) -> Option<Result<Step, Fail>> {
        self.step().transpose()
    }
}

impl Steps<'_> {
    /// The steps of a request whose words were parsed without an error before.
    fn checked(&self) -> impl Iterator<Item = Step> {
        self.clone().filter_map(Result::ok)
    }

    fn step(&mut self) -> Result<Option<Step>, Fail> {
        let Steps { args, overflow, bytes_max } = self;
        while let Some(word) = args.next() {
            if is(word, "OVERFLOW") {
                let how = next(args)?;
                *overflow = if is(how, "WRAP") {
                    Overflow::Wrap
                } else if is(how, "SAT") {
                    Overflow::Saturate
                } else if is(how, "FAIL") {
                    Overflow::Fail
                } else {
                    return Err(Fail::of("ERR Invalid OVERFLOW type specified"));
                };
                continue;
            }
            let get = is(word, "GET");
            if !get && !is(word, "SET") && !is(word, "INCRBY") {
                return Err(Fail::SYNTAX);
            }
            // Too few words are an error before wrong ones are.
            if args.len() < if get { 2 } else { 3 } {
                return Err(Fail::SYNTAX);
            }
            let (kind, offset) = (next(args)?, next(args)?);
            let field = Field::parse(kind, offset, get, *bytes_max)?;
            let verb = if get {
                Verb::Get
            } else {
                let n = integer(next(args)?)?;
                if is(word, "SET") { Verb::Set(n) } else { Verb::Increment(n) }
            };
            return Ok(Some(Step { field, verb, overflow: *overflow }));
        }
        Ok(None)
    }
}

/// The ends, in bytes, of the last field that is looked at and of the last that is written; `None` if the command is refused.
pub(crate) fn ends(args: Args<'_>, read_only: bool, bytes_max: u64) -> Option<(u64, u64)> {
    if args.len() > WORDS_MAX {
        return None;
    }
    let (mut looks, mut writes) = (0, 0);
    for step in (Steps { args, overflow: Overflow::Wrap, bytes_max }) {
        let Step { field, verb, .. } = step.ok()?;
        let end = field.bytes() as u64;
        // Bytes behind the longest possible value are zeros.
        looks = looks.max(end.min(bytes_max));
        if !matches!(verb, Verb::Get) {
            writes = writes.max(end);
        }
    }
    (!read_only || writes == 0).then_some((looks, writes))
}

/// Serves BITFIELD and BITFIELD_RO.
pub(crate) fn bitfield(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>, read_only: bool) -> Done {
    if args.len() > WORDS_MAX {
        return Err(TOO_MANY);
    }
    let words = args;
    let steps = Steps { args, overflow: Overflow::Wrap, bytes_max: call.value_bytes_max() };
    // Only the bytes in which fields lie are looked at. A field that is only read does not make the value longer.
    let (mut count, mut answer_bytes, mut start, mut end, mut room) = (0, 0, u64::MAX, 0, None);
    for step in steps.clone() {
        let Step { field, verb, .. } = step?;
        count += 1;
        // Bytes behind the longest possible value are zeros.
        if field.offset >> 3 < steps.bytes_max {
            let field_end = field.bytes().min(steps.bytes_max as usize);
            (start, end) = (start.min(field.offset >> 3), end.max(field_end));
        }
        answer_bytes += field.answer_bytes();
        if !matches!(verb, Verb::Get) {
            room = room.max(Some(field.bytes()));
        }
    }
    // Errors in its words come before this.
    if read_only && room.is_some() {
        return Err(Fail::of("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let start = if end == 0 { 0 } else { start };
    let part = start as usize..end;
    call.make_room(answer_bytes)?;
    let _results = Heap::take(call, count * size_of::<Option<i64>>())?;
    let run_all = |bytes: &mut [u8]| {
        let mut results = Few::with_capacity(count);
        results.extend(steps.checked().map(|step| run(&step.moved_down(start * 8), bytes)));
        results
    };
    if let Some(room) = room
        && part.len() as u64 >= STEPS_BYTES_MIN
        && !call.cx.guard.in_transaction()
        && far_apart(call, key, (&steps, words), count, room)?
    {
        return Ok(());
    }
    let results = if room.is_none() {
        let item = call.peek(key)?;
        let there = item.as_ref().map_or(0, |item| item.value_bytes() as usize);
        let read = |Step { field, .. }: Step| {
            let (mut bytes, mut n) = ([0; 9], 0);
            if let Some(item) = &item {
                each_part(item.value(), field.span(there), &mut |piece| {
                    bytes[n..n + piece.len()].copy_from_slice(piece);
                    n += piece.len();
                });
            }
            Some(field.read_span(&bytes[..n]))
        };
        let mut results = Few::with_capacity(count);
        results.extend(steps.checked().map(read));
        results
    } else if rewrite_part(
        call,
        ("bitfield", words),
        key,
        (part.clone(), room.unwrap_or(0)),
        run_all,
        put_results,
    )? {
        return Ok(());
    } else {
        rewrite(call, key, |bytes, there| {
            let room = room.unwrap_or(0);
            let grows = bytes.len() < room;
            if grows {
                bytes.resize(room, 0);
            }
            let before = SmallVec::<[u8; 64]>::from_slice(
                &bytes[part.start.min(bytes.len())..part.end.min(bytes.len())],
            );
            let mut results = Few::with_capacity(count);
            results.extend(steps.checked().map(|step| run(&step, bytes)));
            let same = bytes[part.start.min(bytes.len())..part.end.min(bytes.len())] == before[..];
            let keeps = there && same && !grows;
            Ok(if keeps { Rewrite::Keep(results) } else { Rewrite::Store(results) })
        })?
    };
    put_results(call.out, call.client.resp3, results);
    Ok(())
}

/// Bytes of a block of a value. A field is in at most two blocks.
const BLOCK_BYTES: usize = 16;
/// Memory of a block that is written, at most.
const BLOCK_HELD_BYTES: usize = 64;

/// The bytes of a block of a value; zeros where the value has none.
fn block(item: Option<&Item<'_>>, number: u64) -> [u8; BLOCK_BYTES] {
    let (mut bytes, mut n) = ([0; BLOCK_BYTES], 0);
    let Some(item) = item else { return bytes };
    let there = item.value_bytes() as usize;
    let start = (number as usize).saturating_mul(BLOCK_BYTES).min(there);
    each_part(item.value(), start..there.min(start + BLOCK_BYTES), &mut |piece| {
        bytes[n..n + piece.len()].copy_from_slice(piece);
        n += piece.len();
    });
    bytes
}

/// Serves fields that lie far apart in a value that is or becomes large: bytes between them are not looked at, and the writes go
/// into a copy that is made in steps. False if that cannot be; then nothing is done.
fn far_apart(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    (steps, words): (&Steps<'_>, Args<'_>),
    count: usize,
    room: usize,
) -> Result<bool, Fail> {
    let held = Heap::take(call, 2 * count * BLOCK_HELD_BYTES)?;
    let item = call.peek(key)?;
    let there = item.as_ref().map_or(0, |item| item.value_bytes());
    // What was seen is read first: the bytes may be newer than that, never older.
    let expect = item.as_ref().map_or(Expect::Absent, |item| Expect::Unchanged(item.seen()));
    let mut written = BTreeMap::<u64, [u8; BLOCK_BYTES]>::new();
    let mut results = Few::with_capacity(count);
    for step in steps.checked() {
        let first = (step.field.offset >> 3) / BLOCK_BYTES as u64;
        let mut bytes = [0; 2 * BLOCK_BYTES];
        let (blocks, _) = bytes.as_chunks_mut::<BLOCK_BYTES>();
        for (number, block_bytes) in (first..).zip(blocks.iter_mut()) {
            *block_bytes = written.get(&number).copied().unwrap_or_else(|| block(item.as_ref(), number));
        }
        let before = bytes;
        results.push(run(&step.moved_down(first * BLOCK_BYTES as u64 * 8), &mut bytes));
        for (nth, block_bytes) in bytes.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
            if block_bytes[..] != before[nth * BLOCK_BYTES..][..BLOCK_BYTES] {
                written.insert(first + nth as u64, *block_bytes);
            }
        }
    }
    written.retain(|number, bytes| *bytes != block(item.as_ref(), *number));
    if written.is_empty() && there >= room as u64 && expect != Expect::Absent {
        put_results(call.out, call.client.resp3, results);
        return Ok(true);
    }
    let value_bytes = there.max(room as u64);
    let mut patches = Patches::charged(held);
    for (number, bytes) in written {
        let at = number * BLOCK_BYTES as u64;
        let inside = BLOCK_BYTES.min((value_bytes - at) as usize);
        patches.add(at, &bytes[..inside]);
    }
    let mut said = Output::new(u64::MAX);
    put_results(&mut said, call.client.resp3, results);
    let asked = ("bitfield", Some(key.bytes()), words);
    let edit = |old| Edit::patched(patches, room as u64, old);
    make(call, asked, (call.client.db, key), Some(expect), edit, |_, _| edited(said.to_vec()))
}

fn put_results(out: &mut Output, resp3: bool, results: Few<Option<i64>>) {
    put_array(out, results.len());
    for result in results {
        match result {
            Some(n) => put_integer(out, n),
            None => put_null(out, resp3),
        }
    }
}

fn run(step: &Step, bytes: &mut [u8]) -> Option<i64> {
    let old = step.field.read(bytes);
    match step.verb {
        Verb::Get => Some(old),
        Verb::Set(n) => {
            // The argument is a 64-bit number; unsigned fields take its bits.
            let wide = if step.field.signed || n >= 0 { i128::from(n) } else { i128::from(n as u64) };
            step.field.write(bytes, step.field.fit(wide, step.overflow)?);
            Some(old)
        }
        Verb::Increment(by) => {
            let new = step.field.fit(i128::from(old) + i128::from(by), step.overflow)?;
            step.field.write(bytes, new);
            Some(new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_no_longer_than_room_is_made_for() {
        for bits in 1..=64u32 {
            let least = -(1i128 << (bits - 1));
            let most = (1i128 << bits.min(63)) - 1;
            for n in [least, most] {
                let field = Field { signed: n < 0, bits, offset: 0 };
                assert!(format!(":{n}\r\n").len() <= field.answer_bytes(), "{bits} bits");
            }
        }
    }

    #[test]
    fn fields_are_written_and_read_at_any_offset() {
        for (signed, bits, n) in [(true, 5, -16), (false, 5, 31), (true, 64, i64::MIN), (false, 63, i64::MAX)]
        {
            for offset in 0..20 {
                let mut bytes = vec![0; 16];
                let field = Field { signed, bits, offset };
                field.write(&mut bytes, n);
                assert_eq!(field.read(&bytes), n);
            }
        }
    }

    #[test]
    fn a_field_is_the_bits_at_its_offset_and_changes_no_others() {
        let bytes: Vec<u8> = (0..20u8).map(|n| n.wrapping_mul(0x9d) ^ 0x5a).collect();
        let bit = |bytes: &[u8], at: u64| bytes[at as usize / 8] >> (7 - at % 8) & 1;
        for (bits, offset) in (1..=64).flat_map(|bits| (0..=96).map(move |offset| (bits, offset))) {
            let field = Field { signed: true, bits, offset };
            let inside = offset..offset + u64::from(bits);
            let n = inside.clone().fold(0u64, |n, at| n << 1 | u64::from(bit(&bytes, at)));
            let expected = (n << (64 - bits)) as i64 >> (64 - bits);
            assert_eq!(field.read(&bytes), expected, "{bits} bits at {offset}");
            let mut written = bytes.clone();
            field.write(&mut written, !n as i64);
            for at in 0..160 {
                let same = bit(&written, at) == bit(&bytes, at);
                assert_eq!(same, !inside.contains(&at), "{bits} bits at {offset}: bit {at}");
            }
            // What lies behind the end is zeros.
            let short = &bytes[..10];
            let padded = [short, &[0; 10]].concat();
            assert_eq!(field.read(short), field.read(&padded), "{bits} bits at {offset}");
        }
    }

    #[test]
    fn numbers_wrap_saturate_or_fail() {
        let field = Field { signed: true, bits: 8, offset: 0 };
        assert_eq!(field.fit(128, Overflow::Wrap), Some(-128));
        assert_eq!(field.fit(-129, Overflow::Wrap), Some(127));
        assert_eq!(field.fit(300, Overflow::Saturate), Some(127));
        assert_eq!(field.fit(-300, Overflow::Fail), None);
        let field = Field { signed: false, bits: 2, offset: 0 };
        assert_eq!(field.fit(4, Overflow::Wrap), Some(0));
        assert_eq!(field.fit(-1, Overflow::Saturate), Some(0));
    }
}
