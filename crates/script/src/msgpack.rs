//! `cmsgpack`: values into MessagePack and back, as lua-cmsgpack has it.
//!
//! A table whose keys are 1 to their number is an array, an empty one, too; any other a map. A number without a fraction is an
//! integer, any other a float if that is the same, else a double. Everything else is nil.

use mlua::prelude::{LuaMultiValue, LuaResult, LuaTable, LuaValue};

use crate::answer::{error, no_memory};
use crate::bits::{number, text, wrong};
use crate::sandbox::{Library, Making};

/// Tables deeper than this are packed as nil.
const PACKED_DEPTH_MAX: usize = 16;
/// Deepest nesting that is unpacked; each level takes a part of the stack.
const UNPACKED_DEPTH_MAX: usize = 256;

/// Functions with one result.
pub(crate) const ONE: Library<LuaValue> = &[("pack", |making, args| {
    if args.is_empty() {
        return Err(error("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut packer = Packer { out: Vec::new(), bytes_max: making.budget.0, making };
    for value in args.iter() {
        packer.value(value, 0)?;
    }
    let Packer { out, making, .. } = packer;
    making.budget.string(making.lua, &out)
})];

/// Functions with several.
pub(crate) const SEVERAL: Library<(LuaTable, usize)> = &[
    ("unpack", |making, args| unpack(making, &args, 0, 0)),
    ("unpack_one", |making, args| {
        let offset = integer(making, &args, 1, Some(0))?;
        unpack(making, &args, 1, offset)
    }),
    ("unpack_limit", |making, args| {
        let (limit, offset) = (integer(making, &args, 1, None)?, integer(making, &args, 2, Some(0))?);
        unpack(making, &args, limit, offset)
    }),
];

/// A whole number, which may be missing where there is a usual one.
fn integer(making: &Making<'_>, args: &LuaMultiValue, at: usize, usual: Option<i64>) -> LuaResult<i64> {
    match (args.get(at), usual) {
        (None | Some(LuaValue::Nil), Some(usual)) => Ok(usual),
        (value, _) => number(making.lua, value).map(|n| n as i64).ok_or_else(|| wrong(args, at, "number")),
    }
}

struct Packer<'m, 'l> {
    out: Vec<u8>,
    bytes_max: usize,
    making: &'m mut Making<'l>,
}

/// Number of elements of a table that is an array.
fn array_length(making: &mut Making<'_>, table: &LuaTable) -> Option<usize> {
    let (mut last, mut count) = (0usize, 0usize);
    let looked = table.for_each(|key: LuaValue, _: LuaValue| match key {
        LuaValue::Integer(n) if n > 0 => {
            making.step()?;
            count += 1;
            last = last.max(n as usize);
            Ok(())
        }
        _ => Err(no_memory()),
    });
    (looked.is_ok() && last == count).then_some(count)
}

impl Packer<'_, '_> {
    fn put(&mut self, bytes: &[u8]) -> LuaResult<()> {
        if self.out.len() + bytes.len() > self.bytes_max {
            return Err(no_memory());
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes a length in its shortest form: below `short` in the byte itself, else behind the byte of its width.
    fn length(&mut self, n: usize, fix: u8, short: usize, wide: [Option<u8>; 3]) -> LuaResult<()> {
        if n < short {
            return self.put(&[fix | n as u8]);
        }
        match (wide[0], u8::try_from(n), u16::try_from(n)) {
            (Some(kind), Ok(n), _) => self.put(&[kind, n]),
            (_, _, Ok(n)) => {
                self.put(&[wide[1].unwrap_or_default()])?;
                self.put(&n.to_be_bytes())
            }
            _ => {
                self.put(&[wide[2].unwrap_or_default()])?;
                self.put(&(n as u32).to_be_bytes())
            }
        }
    }

    fn integer(&mut self, n: i64) -> LuaResult<()> {
        let (kind, bytes) = match n {
            -32..=127 => return self.put(&[n as u8]),
            128..=0xFF => (0xCC, 1),
            0x100..=0xFFFF => (0xCD, 2),
            0x1_0000..=0xFFFF_FFFF => (0xCE, 4),
            0x1_0000_0000.. => (0xCF, 8),
            -0x80..-32 => (0xD0, 1),
            -0x8000..-0x80 => (0xD1, 2),
            -0x8000_0000..-0x8000 => (0xD2, 4),
            ..-0x8000_0000 => (0xD3, 8),
        };
        self.put(&[kind])?;
        self.put(&n.to_be_bytes()[8 - bytes..])
    }

    fn value(&mut self, value: &LuaValue, depth: usize) -> LuaResult<()> {
        self.making.step()?;
        match value {
            LuaValue::Boolean(is) => self.put(&[0xC2 | u8::from(*is)]),
            LuaValue::Integer(n) => self.integer(*n),
            LuaValue::Number(n) if *n == 0.0 => self.integer(0),
            LuaValue::Number(n) if f64::from(*n as f32) == *n => {
                self.put(&[0xCA])?;
                self.put(&(*n as f32).to_be_bytes())
            }
            LuaValue::Number(n) => {
                self.put(&[0xCB])?;
                self.put(&n.to_be_bytes())
            }
            LuaValue::String(text) => {
                let text = text.as_bytes();
                self.length(text.len(), 0xA0, 32, [Some(0xD9), Some(0xDA), Some(0xDB)])?;
                self.making.bytes(text.len())?;
                self.put(&text)
            }
            LuaValue::Table(table) if depth < PACKED_DEPTH_MAX => self.table(table, depth + 1),
            _ => self.put(&[0xC0]),
        }
    }

    fn table(&mut self, table: &LuaTable, depth: usize) -> LuaResult<()> {
        self.making.look()?;
        if let Some(count) = array_length(self.making, table) {
            self.length(count, 0x90, 16, [None, Some(0xDC), Some(0xDD)])?;
            return (1..=count).try_for_each(|n| self.value(&table.raw_get::<LuaValue>(n)?, depth));
        }
        let mut count = 0;
        table.for_each(|_: LuaValue, _: LuaValue| {
            count += 1;
            self.making.step()
        })?;
        self.length(count, 0x80, 16, [None, Some(0xDE), Some(0xDF)])?;
        table.for_each(|key: LuaValue, value: LuaValue| {
            self.value(&key, depth)?;
            self.value(&value, depth)
        })
    }
}

/// Unpacks up to `limit` values from `offset` on. In front of them is where the next one begins, -1 if there is none. If both are
/// 0 all values are unpacked, and nothing is in front.
fn unpack(
    making: &mut Making<'_>,
    args: &LuaMultiValue,
    limit: i64,
    offset: i64,
) -> LuaResult<(LuaTable, usize)> {
    let text = text(making.lua, args, 0)?;
    let text = text.as_bytes();
    let (Ok(from), Ok(most)) = (usize::try_from(offset), usize::try_from(limit)) else {
        // The limit that it names is the length.
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {}.", text.len());
        return Err(error(text));
    };
    let rest = text
        .get(from..)
        .ok_or_else(|| error(format!("Start offset {offset} greater than input length {}.", text.len())))?;
    let tells = limit != 0 || offset != 0;
    let mut reader = Unpacker { rest };
    let table = making.budget.table(making.lua, 0, 0)?;
    let mut count = usize::from(tells);
    let mut left = if tells { most } else { usize::MAX };
    while left > 0 && !reader.rest.is_empty() {
        let value = reader.value(making, 0)?;
        making.budget.element()?;
        count += 1;
        table.raw_set(count, value)?;
        left -= 1;
    }
    if tells {
        let next = if reader.rest.is_empty() { -1.0 } else { (text.len() - reader.rest.len()) as f64 };
        table.raw_set(1, next)?;
    }
    Ok((table, count))
}

struct Unpacker<'t> {
    rest: &'t [u8],
}

impl<'t> Unpacker<'t> {
    fn take(&mut self, bytes: usize) -> LuaResult<&'t [u8]> {
        let missing = || error("Missing bytes in input.");
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(missing)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of so many bytes.
    fn unsigned(&mut self, bytes: usize) -> LuaResult<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, bytes: usize) -> LuaResult<f64> {
        let shift = 64 - 8 * bytes as u32;
        Ok(((self.unsigned(bytes)? << shift) as i64 >> shift) as f64)
    }

    fn string(&mut self, making: &mut Making<'_>, bytes: u64) -> LuaResult<LuaValue> {
        let text = self.take(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        making.bytes(text.len())?;
        making.budget.string(making.lua, text)
    }

    fn value(&mut self, making: &mut Making<'_>, depth: usize) -> LuaResult<LuaValue> {
        if depth > UNPACKED_DEPTH_MAX {
            return Err(error("Bad data format in input."));
        }
        making.step()?;
        let kind = self.take(1)?[0];
        let number = |n: f64| Ok(LuaValue::Number(n));
        match kind {
            0x00..=0x7F => number(f64::from(kind)),
            0x80..=0x8F => self.map(making, u64::from(kind & 0x0F), depth),
            0x90..=0x9F => self.array(making, u64::from(kind & 0x0F), depth),
            0xA0..=0xBF => self.string(making, u64::from(kind & 0x1F)),
            0xC0 => Ok(LuaValue::Nil),
            0xC2 | 0xC3 => Ok(LuaValue::Boolean(kind == 0xC3)),
            0xC4..=0xC6 => {
                let bytes = self.unsigned(1 << (kind - 0xC4))?;
                self.string(making, bytes)
            }
            0xCA => number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xCB => number(f64::from_bits(self.unsigned(8)?)),
            0xCC..=0xCE => number(self.unsigned(1 << (kind - 0xCC))? as f64),
            // Redis's library reads this one, too, as signed.
            0xCF => number(self.signed(8)?),
            0xD0..=0xD3 => number(self.signed(1 << (kind - 0xD0))?),
            0xD9..=0xDB => {
                let bytes = self.unsigned(1 << (kind - 0xD9))?;
                self.string(making, bytes)
            }
            0xDC | 0xDD => {
                let count = self.unsigned(2 << (kind - 0xDC))?;
                self.array(making, count, depth)
            }
            0xDE | 0xDF => {
                let count = self.unsigned(2 << (kind - 0xDE))?;
                self.map(making, count, depth)
            }
            0xE0..=0xFF => number(f64::from(kind as i8)),
            _ => Err(error("Bad data format in input.")),
        }
    }

    fn array(&mut self, making: &mut Making<'_>, count: u64, depth: usize) -> LuaResult<LuaValue> {
        let table = making.budget.table(making.lua, 0, 0)?;
        for n in 1..=count {
            let value = self.value(making, depth + 1)?;
            making.budget.element()?;
            table.raw_set(n, value)?;
        }
        Ok(LuaValue::Table(table))
    }

    fn map(&mut self, making: &mut Making<'_>, count: u64, depth: usize) -> LuaResult<LuaValue> {
        let table = making.budget.table(making.lua, 0, 0)?;
        for _ in 0..count {
            let (key, value) = (self.value(making, depth + 1)?, self.value(making, depth + 1)?);
            making.budget.element()?;
            match key {
                LuaValue::Nil => return Err(error("table index is nil")),
                LuaValue::Number(n) if n.is_nan() => return Err(error("table index is NaN")),
                key => table.raw_set(key, value)?,
            }
        }
        Ok(LuaValue::Table(table))
    }
}
