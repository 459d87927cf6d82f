//! The [`Model`](super::model::Model)'s bitmaps: a value as a list of bits.

use super::words::{Answer, BYTES_MAX, Fail, SYNTAX, Words, int, integer};

impl Words<'_> {
    pub(super) fn setbit(&mut self) -> Answer {
        let at = bit_offset(&self.args[1], BYTES_MAX as u64)?;
        let on = match &self.args[2][..] {
            b"0" => 0,
            b"1" => 1u8,
            _ => return Fail::of("ERR bit is not an integer or out of range"),
        };
        let old = self.item(0);
        let mut item = old.clone().unwrap_or_default();
        let byte = (at / 8) as usize;
        if item.value.len() <= byte {
            item.value.resize(byte + 1, 0);
        }
        let shift = 7 - at % 8;
        let was = item.value[byte] >> shift & 1;
        item.value[byte] = item.value[byte] & !(1 << shift) | on << shift;
        // A watched key counts as changed only if the value changes.
        if old.is_none_or(|old| old.value != item.value) {
            let place = self.place(0);
            self.model.put(&place, item);
        }
        int(was.into())
    }

    fn bits(&mut self) -> Vec<bool> {
        let value = self.value(0);
        value.iter().flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1 == 1)).collect()
    }

    /// The bits from `start` to `end`, which count bytes or bits; and the index of the first bit.
    fn between(&mut self, start: i64, end: i64, in_bits: bool) -> (usize, Vec<bool>) {
        let all = self.bits();
        let unit = if in_bits { 1 } else { 8 };
        let total = (all.len() / unit) as i64;
        let place = |n: i64| if n < 0 { total.saturating_add(n).max(0) } else { n };
        let (start, end) = (place(start), place(end).min(total - 1));
        if start > end {
            return (0, Vec::new());
        }
        let (start, end) = (start as usize * unit, (end as usize + 1) * unit);
        (start, all[start..end].to_vec())
    }

    fn in_bits(&self, at: usize) -> Result<bool, Fail> {
        match self.option(at).as_str() {
            "BIT" => Ok(true),
            "BYTE" => Ok(false),
            _ => Fail::of(SYNTAX),
        }
    }

    pub(super) fn bitcount(&mut self) -> Answer {
        let (start, end, in_bits) = match self.args.len() {
            1 => (0, -1, false),
            3 => (self.number(1)?, self.number(2)?, false),
            4 => (self.number(1)?, self.number(2)?, self.in_bits(3)?),
            _ => return Fail::of(SYNTAX),
        };
        if start < 0 && end < 0 && start > end {
            return int(0);
        }
        let (_, bits) = self.between(start, end, in_bits);
        int(bits.iter().filter(|bit| **bit).count() as i64)
    }

    pub(super) fn bitpos(&mut self) -> Answer {
        let bit = match self.number(1)? {
            0 => false,
            1 => true,
            _ => return Fail::of("ERR The bit argument must be 1 or 0."),
        };
        if self.args.len() > 5 {
            return Fail::of(SYNTAX);
        }
        let start = if self.args.len() > 2 { self.number(2)? } else { 0 };
        let in_bits = if self.args.len() > 4 { self.in_bits(4)? } else { false };
        let end = if self.args.len() > 3 { Some(self.number(3)?) } else { None };
        if self.item(0).is_none() {
            return int(if bit { -1 } else { 0 });
        }
        let (from, bits) = self.between(start, end.unwrap_or(-1), in_bits);
        match bits.iter().position(|other| *other == bit) {
            Some(at) => int((from + at) as i64),
            // Without an end, zeros follow the value: the first one is just behind it.
            None if !bit && end.is_none() && !bits.is_empty() => int(self.bits().len() as i64),
            None => int(-1),
        }
    }

    pub(super) fn bitop(&mut self) -> Answer {
        let how = self.option(0);
        let newer = matches!(how.as_str(), "DIFF" | "DIFF1" | "ANDOR");
        if !newer && !matches!(how.as_str(), "AND" | "OR" | "XOR" | "NOT" | "ONE") {
            return Fail::of(SYNTAX);
        }
        if how == "NOT" && self.args.len() != 3 {
            return Fail::of("ERR BITOP NOT must be called with a single source key.");
        }
        if newer && self.args.len() < 4 {
            return Fail::of("ERR BITOP DIFF, DIFF1 and ANDOR must be called with at least two source keys.");
        }
        let values: Vec<Vec<u8>> = (2..self.args.len()).map(|at| self.value(at)).collect();
        let length = values.iter().map(Vec::len).max().unwrap_or(0);
        let byte = |value: &Vec<u8>, at: usize| value.get(at).copied().unwrap_or(0);
        let result: Vec<u8> = (0..length)
            .map(|at| {
                let bytes = values.iter().map(|value| byte(value, at));
                let first = byte(&values[0], at);
                let others = values[1..].iter().fold(0, |all, value| all | byte(value, at));
                match how.as_str() {
                    "DIFF" => first & !others,
                    "DIFF1" => !first & others,
                    "ANDOR" => first & others,
                    // A bit that exactly one of the values has.
                    "ONE" => (0..8).fold(0, |all, bit| {
                        let times = bytes.clone().filter(|byte| byte >> bit & 1 == 1).count();
                        all | u8::from(times == 1) << bit
                    }),
                    "AND" => bytes.fold(255, |all, byte| all & byte),
                    "OR" => bytes.fold(0, |all, byte| all | byte),
                    "XOR" => bytes.fold(0, |all, byte| all ^ byte),
                    _ => !first,
                }
            })
            .collect();
        if result.is_empty() {
            let place = self.place(1);
            self.model.remove(&place);
        } else {
            self.store(1, result, None);
        }
        int(length as i64)
    }
}

pub(super) fn bit_offset(word: &[u8], bytes_max: u64) -> Result<u64, Fail> {
    match integer(word).ok().and_then(|n| u64::try_from(n).ok()) {
        Some(n) if n / 8 < bytes_max => Ok(n),
        _ => Fail::of("ERR bit offset is not an integer or out of range"),
    }
}
