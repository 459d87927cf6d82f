//! Sketches that estimate how many different elements were added, in Redis's own bytes, so that each server reads the other's.
//!
//! ```text
//! "HYLL" │ 0 dense, 1 sparse │ 3 bytes │ cardinality: 8 bytes, little-endian; the highest bit says that it is to be counted anew
//! dense    16,384 registers of 6 bits, the first in the lowest bits of the first byte: 12,288 bytes
//! sparse   runs of registers:  00llllll  l + 1 of zero   01llllll llllllll  l + 1 of zero   1vvvvvll  l + 1 of v + 1
//! ```
//!
//! The lowest 14 bits of a hash select a register. It holds the most that any such hash had of zeros at the low end of the rest,
//! plus one.
//! The estimate is that of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017).
//!
//! A sparse sketch is changed run by run, as Redis does it, so that the same elements in the same order give the same bytes. It
//! becomes dense when a run would not fit into 3,000 bytes (`hll-sparse-max-bytes`), or a register exceeds what a run can hold.

use std::ops::Range;

/// Bits of a hash that select a register.
const INDEX_BITS: u32 = 14;
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
/// The other bits of a hash.
const RANK_BITS: usize = 64 - INDEX_BITS as usize;
/// Bytes in front of the registers.
pub(crate) const HEAD_BYTES: usize = 16;
/// Bytes of a dense sketch.
pub(crate) const DENSE_BYTES: usize = HEAD_BYTES + REGISTERS * 6 / 8;
/// Bytes of a sparse sketch that is made here, at most.
const SPARSE_BYTES_MAX: usize = 3000;
/// Bytes of a valid sketch, at most: each run has at least one register.
pub(crate) const BYTES_MAX: usize = HEAD_BYTES + 2 * REGISTERS;
const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const CARDINALITY: Range<usize> = 8..16;
/// The bit of the cardinality's last byte that says it is to be counted anew.
const STALE: u8 = 0x80;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The longest runs, and the highest value of a register in a run.
const ZEROS_MAX: usize = 64;
const VALUES_MAX: usize = 4;
const VALUE_MAX: u8 = 32;
/// Runs that are looked at behind a change for whether they can be merged.
const MERGED_MAX: usize = 5;
const SEED: u64 = 0xadc8_3b19;

/// The bytes are no valid sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The values of all registers.
pub(crate) type Registers = [u8; REGISTERS];

/// MurmurHash64A.
fn hash(text: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (text.len() as u64).wrapping_mul(M);
    let (words, rest) = text.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> R)).wrapping_mul(M);
        hash = (hash ^ k).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> R)).wrapping_mul(M);
    hash ^ (hash >> R)
}

/// The register of an element, and the least value that it gives that.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let rest = (hash >> INDEX_BITS) | 1 << RANK_BITS;
    (hash as usize & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

/// Whether the bytes may be those of a sketch.
pub(crate) fn is_sketch(bytes: &[u8], len: u64) -> bool {
    len >= HEAD_BYTES as u64
        && bytes.starts_with(MAGIC)
        && match bytes[ENCODING_AT] {
            DENSE => len == DENSE_BYTES as u64,
            SPARSE => true,
            _ => false,
        }
}

pub(crate) fn is_dense(bytes: &[u8]) -> bool {
    bytes[ENCODING_AT] == DENSE
}

/// Makes an empty sketch.
pub(crate) fn clear(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(MAGIC);
    bytes.push(SPARSE);
    bytes.resize(HEAD_BYTES, 0);
    Run::Zeros(REGISTERS).push(&mut *bytes);
}

/// The stored cardinality, unless it is to be counted anew.
pub(crate) fn cardinality(bytes: &[u8]) -> Option<u64> {
    let word = bytes[CARDINALITY].try_into().expect("eight bytes");
    (bytes[CARDINALITY.end - 1] & STALE == 0).then(|| u64::from_le_bytes(word))
}

pub(crate) fn set_cardinality(bytes: &mut [u8], n: u64) {
    bytes[CARDINALITY].copy_from_slice(&n.to_le_bytes());
}

/// Notes that the cardinality is to be counted anew.
pub(crate) fn spoil_cardinality(bytes: &mut [u8]) {
    bytes[CARDINALITY.end - 1] |= STALE;
}

/// A run of registers with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Zeros(usize),
    Values(u8, usize),
}

impl Run {
    /// The run that begins here, and its bytes. A missing second byte counts as 0.
    fn at(bytes: &[u8]) -> (Run, usize) {
        let first = bytes[0];
        match first >> 6 {
            0 => (Run::Zeros(usize::from(first & 0x3f) + 1), 1),
            1 => {
                let low = bytes.get(1).copied().unwrap_or(0);
                (Run::Zeros((usize::from(first & 0x3f) << 8 | usize::from(low)) + 1), 2)
            }
            _ => (Run::Values((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1), 1),
        }
    }

    fn len(self) -> usize {
        match self {
            Run::Zeros(len) | Run::Values(_, len) => len,
        }
    }

    /// Writes the run; nothing if it is empty.
    fn push(self, to: &mut impl Extend<u8>) {
        match self {
            Run::Zeros(0) | Run::Values(_, 0) => {}
            Run::Zeros(len) if len <= ZEROS_MAX => to.extend([len as u8 - 1]),
            Run::Zeros(len) => to.extend([0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]),
            Run::Values(value, len) => to.extend([0x80 | (value - 1) << 2 | (len as u8 - 1)]),
        }
    }
}

/// The runs of a sparse sketch, each with whether it takes two bytes.
pub(crate) fn runs(bytes: &[u8]) -> impl Iterator<Item = (Run, bool)> {
    let mut rest = &bytes[HEAD_BYTES..];
    std::iter::from_fn(move || {
        let (run, wide) = (!rest.is_empty()).then(|| Run::at(rest))?;
        rest = rest.get(wide..).unwrap_or_default();
        Some((run, wide == 2))
    })
}

/// Calls `visit` with the runs of a sparse sketch and their first registers.
fn each_run(bytes: &[u8], mut visit: impl FnMut(usize, Run)) -> Result<(), Corrupt> {
    let mut at = 0;
    for (run, _) in runs(bytes) {
        if at + run.len() > REGISTERS {
            return Err(Corrupt);
        }
        visit(at, run);
        at += run.len();
    }
    if at == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// Calls `visit` with all registers of a dense sketch, in order.
fn each_register(bytes: &[u8], mut visit: impl FnMut(usize, u8)) {
    for (n, three) in bytes[HEAD_BYTES..DENSE_BYTES].as_chunks::<3>().0.iter().enumerate() {
        let word = u32::from_le_bytes([three[0], three[1], three[2], 0]);
        (0..4).for_each(|i| visit(4 * n + i, (word >> (6 * i) & 0x3f) as u8));
    }
}

/// The first byte and bit of a register in a dense sketch.
fn register_at(index: usize) -> (usize, usize) {
    (HEAD_BYTES + index * 6 / 8, index * 6 % 8)
}

/// Raises a register of a dense sketch to `value`; false if it was as high.
fn raise(bytes: &mut [u8], index: usize, value: u8) -> bool {
    let (at, bit) = register_at(index);
    // The last register ends within the last byte.
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    let word = u16::from_le_bytes([bytes[at], next]);
    if (word >> bit & 0x3f) as u8 >= value {
        return false;
    }
    let [low, high] = (word & !(0x3f << bit) | u16::from(value) << bit).to_le_bytes();
    bytes[at] = low;
    if let Some(next) = bytes.get_mut(at + 1) {
        *next = high;
    }
    true
}

/// Makes a sketch dense; false if it is dense already.
pub(crate) fn make_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupt> {
    if is_dense(bytes) {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE_BYTES];
    each_run(bytes, |at, run| {
        if let Run::Values(value, len) = run {
            for index in at..at + len {
                raise(&mut dense, index, value);
            }
        }
    })?;
    dense[..HEAD_BYTES].copy_from_slice(&bytes[..HEAD_BYTES]);
    dense[ENCODING_AT] = DENSE;
    *bytes = dense;
    Ok(true)
}

/// The place of a run in a sparse sketch, and its first register.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    first: usize,
}

const BEGINNING: Place = Place { at: HEAD_BYTES, first: 0 };

/// Raises a register to `value`; false if it was as high. `from`: a run in front of the register's, or the first of all. It is
/// set to one in front of all later registers' runs.
fn set(bytes: &mut Vec<u8>, index: usize, value: u8, from: &mut Place) -> Result<bool, Corrupt> {
    if is_dense(bytes) {
        return Ok(raise(bytes, index, value));
    }
    if value > VALUE_MAX {
        make_dense(bytes)?;
        return Ok(raise(bytes, index, value));
    }
    let Place { mut at, mut first } = *from;
    let (mut older, mut before) = (None, None);
    let (run, wide) = loop {
        if at >= bytes.len() {
            return Err(Corrupt);
        }
        let (run, wide) = Run::at(&bytes[at..]);
        if index < first + run.len() {
            break (run, wide);
        }
        (older, before) = (before, Some(Place { at, first }));
        (at, first) = (at + wide, first + run.len());
    };
    let end = (at + wide).min(bytes.len());
    match run {
        Run::Values(old, _) if old >= value => return Ok(false),
        Run::Values(..) | Run::Zeros(_) => {}
    }
    let (left, right) = (index - first, first + run.len() - 1 - index);
    let part = |len| match run {
        Run::Zeros(_) => Run::Zeros(len),
        Run::Values(old, _) => Run::Values(old, len),
    };
    let mut new = arrayvec::ArrayVec::<u8, 5>::new();
    part(left).push(&mut new);
    Run::Values(value, 1).push(&mut new);
    part(right).push(&mut new);
    if new.len() > wide && bytes.len() + new.len() - wide > SPARSE_BYTES_MAX {
        make_dense(bytes)?;
        return Ok(raise(bytes, index, value));
    }
    let len = bytes.len() + new.len() - wide;
    bytes.splice(at..end, new);
    // If the second byte of the run was missing, the end of the new bytes is cut, too.
    bytes.truncate(len);
    // The run in front may be merged with this register's and those behind it.
    *from = older.unwrap_or(*from);
    merge(bytes, before.map_or(HEAD_BYTES, |before: Place| before.at));
    spoil_cardinality(bytes);
    Ok(true)
}

/// Merges neighbouring runs of one value, from here on.
fn merge(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..MERGED_MAX {
        if at >= bytes.len() {
            return;
        }
        let (run, wide) = Run::at(&bytes[at..]);
        if let (Run::Values(one, len), Some(next)) =
            (run, bytes.get(at + 1..).filter(|next| !next.is_empty()))
            && let (Run::Values(other, more), _) = Run::at(next)
            && one == other
            && len + more <= VALUES_MAX
        {
            let mut both = arrayvec::ArrayVec::<u8, 5>::new();
            Run::Values(one, len + more).push(&mut both);
            bytes.splice(at..at + 2, both);
        } else {
            at += wide;
        }
    }
}

/// Adds an element; false if it changes nothing.
pub(crate) fn add(bytes: &mut Vec<u8>, element: &[u8]) -> Result<bool, Corrupt> {
    let (index, value) = place(element);
    let mut from = BEGINNING;
    set(bytes, index, value, &mut from)
}

/// Raises registers to those of a sketch.
pub(crate) fn gather(bytes: &[u8], registers: &mut Registers) -> Result<(), Corrupt> {
    if is_dense(bytes) {
        each_register(bytes, |index, value| registers[index] = registers[index].max(value));
        return Ok(());
    }
    each_run(bytes, |at, run| {
        if let Run::Values(value, len) = run {
            registers[at..at + len].iter_mut().for_each(|register| *register = value.max(*register));
        }
    })
}

/// Raises the registers of a sketch to these values.
pub(crate) fn raise_all(bytes: &mut Vec<u8>, registers: &Registers) -> Result<(), Corrupt> {
    let mut from = BEGINNING;
    for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        set(bytes, index, *value, &mut from)?;
    }
    spoil_cardinality(bytes);
    Ok(())
}

/// How many registers have each value.
#[derive(Clone, Debug)]
pub(crate) struct Histogram([u32; 64]);

impl Histogram {
    /// The histogram of a sketch.
    pub fn of(bytes: &[u8]) -> Result<Histogram, Corrupt> {
        let mut counts = [0; 64];
        if is_dense(bytes) {
            each_register(bytes, |_, value| counts[usize::from(value)] += 1);
        } else {
            each_run(bytes, |_, run| match run {
                Run::Zeros(len) => counts[0] += len as u32,
                Run::Values(value, len) => counts[usize::from(value)] += len as u32,
            })?;
        }
        Ok(Histogram(counts))
    }

    /// The histogram of registers.
    pub fn of_registers(registers: &Registers) -> Histogram {
        let mut counts = [0; 64];
        registers.iter().for_each(|value| counts[usize::from(*value & 0x3f)] += 1);
        Histogram(counts)
    }

    /// The estimate of how many different elements were added.
    pub fn estimate(&self) -> u64 {
        /// 1 / (2 ln 2)
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        let m = REGISTERS as f64;
        let count = |value: usize| f64::from(self.0[value]);
        let mut z = m * tau((m - count(RANK_BITS + 1)) / m);
        for value in (1..=RANK_BITS).rev() {
            z = (z + count(value)) * 0.5;
        }
        z += m * sigma(count(0) / m);
        (ALPHA * m * m / z).round() as u64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// The registers of a sketch.
pub(crate) fn registers_of(bytes: &[u8]) -> Result<Box<Registers>, Corrupt> {
    let mut registers = Box::new([0; REGISTERS]);
    gather(bytes, &mut registers)?;
    Ok(registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Vec<u8> {
        let mut bytes = Vec::new();
        clear(&mut bytes);
        bytes
    }

    #[test]
    fn a_sketch_of_nothing_is_eighteen_bytes() {
        let bytes = fresh();
        assert_eq!(bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
        assert_eq!((cardinality(&bytes), Histogram::of(&bytes).map(|h| h.estimate())), (Some(0), Ok(0)));
    }

    #[test]
    fn estimates_are_near_what_was_added() {
        let (mut bytes, mut dense_at) = (fresh(), None);
        let mut registers = [0; REGISTERS];
        for n in 0..200_000_usize {
            let element = format!("element:{n}");
            let (index, value) = place(element.as_bytes());
            assert_eq!(add(&mut bytes, element.as_bytes()), Ok(registers[index] < value));
            assert_eq!(add(&mut bytes, element.as_bytes()), Ok(false));
            registers[index] = value.max(registers[index]);
            if dense_at.is_none() && is_dense(&bytes) {
                dense_at = Some(n);
            }
            if n % 977 == 0 || n < 300 {
                assert_eq!(*registers_of(&bytes).expect("a sketch"), registers);
                let estimate = Histogram::of(&bytes).expect("a sketch").estimate() as f64;
                assert_eq!(Histogram::of_registers(&registers).estimate() as f64, estimate);
                let off = (estimate / (n + 1) as f64 - 1.0).abs();
                assert!(off < 0.04, "{estimate} of {}", n + 1);
            }
        }
        assert!(dense_at.is_some_and(|at| (800..2_500).contains(&at)), "{dense_at:?}");
    }

    #[test]
    fn registers_come_to_a_sketch_as_elements_do() {
        let mut registers = [0; REGISTERS];
        let mut one_by_one = fresh();
        for n in 0..900_u32 {
            let (index, value) = place(&n.to_le_bytes());
            registers[index] = value.max(registers[index]);
        }
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            let mut from = BEGINNING;
            set(&mut one_by_one, index, *value, &mut from).expect("a sketch");
        }
        let mut at_once = fresh();
        raise_all(&mut at_once, &registers).expect("a sketch");
        assert_eq!(at_once, one_by_one);
        assert!(!is_dense(&at_once));
        make_dense(&mut at_once).expect("a sketch");
        assert_eq!(*registers_of(&at_once).expect("a sketch"), registers);
        // A register that no run can say.
        registers[7] = 33;
        raise_all(&mut one_by_one, &registers).expect("a sketch");
        assert!(is_dense(&one_by_one));
        registers[REGISTERS - 1] = 51;
        raise_all(&mut one_by_one, &registers).expect("a sketch");
        assert_eq!(*registers_of(&one_by_one).expect("a sketch"), registers);
    }

    #[test]
    fn no_bytes_are_more_than_corrupt() {
        let mut seed = 1_u64;
        let mut next = |bound: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % bound
        };
        for _ in 0..20_000 {
            let mut bytes = fresh();
            for _ in 0..next(40) {
                add(&mut bytes, &[next(256) as u8, next(256) as u8]).expect("a sketch");
            }
            for _ in 0..1 + next(3) {
                let at = HEAD_BYTES + next(bytes.len() - HEAD_BYTES);
                match next(3) {
                    0 => bytes[at] = next(256) as u8,
                    1 => bytes.truncate(at),
                    _ => bytes.insert(at, next(256) as u8),
                }
                if bytes.len() == HEAD_BYTES {
                    break;
                }
            }
            assert!(is_sketch(&bytes, bytes.len() as u64));
            let valid = Histogram::of(&bytes).is_ok();
            assert_eq!(registers_of(&bytes).is_ok(), valid);
            for _ in 0..20 {
                let done = add(&mut bytes, &[next(256) as u8]);
                assert!(!valid || done.is_ok());
            }
            assert_eq!(make_dense(&mut bytes).is_ok(), valid);
        }
    }
}
