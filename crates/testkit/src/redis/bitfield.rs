//! BITFIELD of the [`Model`](super::model::Model): a value as a list of bits, numbers as lists of bits.

use super::bits::bit_offset;
use super::reply::Reply;
use super::words::{Answer, BYTES_MAX, Fail, SYNTAX, Words, integer};

/// A number may be read within this many bytes, even if a value may have more.
const READ_BYTES_MAX: u64 = 512 << 20;

const BAD_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";

#[derive(Clone, Copy, PartialEq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

enum Verb {
    Get,
    Set(i128),
    Add(i128),
}

/// One number of the bit field, and the operation on it.
struct Step {
    verb: Verb,
    overflow: Overflow,
    least: i128,
    most: i128,
    from: usize,
    width: usize,
}

impl Step {
    fn end_byte(&self) -> usize {
        (self.from + self.width).div_ceil(8)
    }

    fn read(&self, bits: &[bool]) -> i128 {
        let bit = |at: usize| i128::from(bits.get(at).copied().unwrap_or(false));
        let n = (self.from..self.from + self.width).fold(0, |n, at| 2 * n + bit(at));
        if n > self.most { n - (1 << self.width) } else { n }
    }

    fn write(&self, bits: &mut [bool], n: i128) {
        (0..self.width).for_each(|at| bits[self.from + at] = n >> (self.width - 1 - at) & 1 == 1);
    }

    /// The number as the field stores it; `None`: the field stays as it is.
    fn fitted(&self, n: i128) -> Option<i128> {
        if (self.least..=self.most).contains(&n) {
            return Some(n);
        }
        match self.overflow {
            Overflow::Fail => None,
            Overflow::Saturate if n < self.least => Some(self.least),
            Overflow::Saturate => Some(self.most),
            Overflow::Wrap => Some((n - self.least).rem_euclid(1 << self.width) + self.least),
        }
    }
}

impl Words<'_> {
    pub(super) fn bitfield(&mut self, read_only: bool) -> Answer {
        let steps = self.steps()?;
        if read_only && steps.iter().any(|step| !matches!(step.verb, Verb::Get)) {
            return Fail::of("ERR BITFIELD_RO only supports the GET subcommand");
        }
        let old = self.item(0);
        let mut item = old.clone().unwrap_or_default();
        let writers = steps.iter().filter(|step| !matches!(step.verb, Verb::Get));
        let room = writers.map(Step::end_byte).max();
        let grows = room.is_some_and(|room| room > item.value.len());
        if grows {
            item.value.resize(room.unwrap_or(0), 0);
        }
        let mut bits: Vec<bool> =
            item.value.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1 == 1)).collect();
        let mut told = vec![Reply::Bytes(format!("*{}\r\n", steps.len()).into_bytes())];
        for step in &steps {
            let before = step.read(&bits);
            let new = match step.verb {
                Verb::Get => Some(before),
                Verb::Set(n) => step.fitted(n),
                Verb::Add(n) => step.fitted(before + n),
            };
            if let (Some(new), false) = (new, matches!(step.verb, Verb::Get)) {
                step.write(&mut bits, new);
            }
            told.push(match (new, &step.verb) {
                (None, _) => self.null(),
                (Some(new), Verb::Add(_)) => format!(":{new}\r\n").into_bytes().into(),
                (Some(_), Verb::Get | Verb::Set(_)) => format!(":{before}\r\n").into_bytes().into(),
            });
        }
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        item.value = bits.chunks(8).map(byte).collect();
        // A watched key counts as changed only if the value changes.
        let changed = old.is_none_or(|old| grows || old.value != item.value);
        if room.is_some() && changed {
            let place = self.place(0);
            self.model.put(&place, item);
        }
        Ok(Reply::Several(told))
    }

    fn steps(&self) -> Result<Vec<Step>, Fail> {
        let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 1);
        while at < self.args.len() {
            let left = self.args.len() - at - 1;
            let word = self.option(at);
            if word == "OVERFLOW" && left >= 1 {
                overflow = match self.option(at + 1).as_str() {
                    "WRAP" => Overflow::Wrap,
                    "SAT" => Overflow::Saturate,
                    "FAIL" => Overflow::Fail,
                    _ => return Fail::of("ERR Invalid OVERFLOW type specified"),
                };
                at += 2;
                continue;
            }
            let takes = match word.as_str() {
                "GET" => 2,
                "SET" | "INCRBY" => 3,
                _ => return Fail::of(SYNTAX),
            };
            if left < takes {
                return Fail::of(SYNTAX);
            }
            steps.push(self.step(&word, at + 1, overflow)?);
            at += 1 + takes;
        }
        Ok(steps)
    }

    fn step(&self, word: &str, at: usize, overflow: Overflow) -> Result<Step, Fail> {
        let signed = match self.args[at].first() {
            Some(b'i') => true,
            Some(b'u') => false,
            _ => return Fail::of(BAD_TYPE),
        };
        let width = integer(&self.args[at][1..]).unwrap_or(0);
        if !(1..=if signed { 64 } else { 63 }).contains(&width) {
            return Fail::of(BAD_TYPE);
        }
        let from = match self.args[at + 1].strip_prefix(b"#") {
            Some(number) => {
                let times = integer(number).ok().and_then(|n| n.checked_mul(width));
                times.map_or(Vec::new(), |n| n.to_string().into_bytes())
            }
            None => self.args[at + 1].clone(),
        };
        let reads = word == "GET";
        let from = bit_offset(&from, if reads { READ_BYTES_MAX } else { BYTES_MAX as u64 })?;
        if !reads && (from + width as u64) / 8 > BYTES_MAX as u64 {
            return Fail::of("ERR bit offset is not an integer or out of range");
        }
        let least = if signed { -(1i128 << (width - 1)) } else { 0 };
        let given = |at: usize| self.number(at).map(i128::from);
        let verb = match word {
            "GET" => Verb::Get,
            // Unsigned fields take the bits of a negative number.
            "SET" => Verb::Set(match given(at + 2)? {
                n if n < 0 && !signed => n + (1 << 64),
                n => n,
            }),
            _ => Verb::Add(given(at + 2)?),
        };
        let most = least + (1i128 << width) - 1;
        Ok(Step { verb, overflow, least, most, from: from as usize, width: width as usize })
    }
}
