//! `struct`: values into bytes as C lays them out, and back.
//!
//! | option | what |
//! |---|---|
//! | `<` `>` | little, big endian |
//! | `!n` | aligned to at most `n` |
//! | `x` | a zero |
//! | `b` `B`, `h` `H`, `l` `L` `T`, `in` `In` | integers of 1, 2, 8, `n` bytes (4), with a sign and without |
//! | `f`, `d` | a float, a double |
//! | `s` | bytes up to a zero |
//! | `cn` | `n` bytes; `c0`: all, and read, as many as the number in front says |

use mlua::prelude::{LuaError, LuaMultiValue, LuaResult, LuaTable, LuaValue};

use crate::answer::{error, no_memory};
use crate::bits::{number, text, wrong};
use crate::reply::up_to_zero;
use crate::sandbox::{Library, Making};

/// The options that are packed and unpacked.
const OPTIONS: &[u8] = b"xbBhHlLTiIfdsc";
/// Bytes of the longest integer.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` alone aligns to.
const ALIGNMENT: usize = 8;

/// Functions with one result.
pub(crate) const ONE: Library<LuaValue> = &[("pack", pack), ("size", size)];
/// Functions with several.
pub(crate) const SEVERAL: Library<(LuaTable, usize)> = &[("unpack", unpack)];

/// The options of a format, one after another.
struct Format<'f> {
    rest: &'f [u8],
    big: bool,
    alignment: usize,
}

/// An option, how many bytes it has, and how many come in front of it.
struct Field {
    option: u8,
    bytes: usize,
    padding: usize,
}

impl Format<'_> {
    fn number(&mut self, default: usize) -> LuaResult<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits == 0 {
            return Ok(default);
        }
        let text = String::from_utf8_lossy(number);
        text.parse::<i32>().map(|n| n as usize).map_err(|_| error("integral size overflow"))
    }

    /// The next field, in front of which there are `at` bytes.
    fn next(&mut self, making: &mut Making<'_>, at: usize) -> LuaResult<Option<Field>> {
        while let Some((&option, rest)) = self.rest.split_first() {
            self.rest = rest;
            making.step()?;
            match option {
                b' ' => continue,
                b'<' => self.big = false,
                b'>' => self.big = true,
                b'!' => {
                    self.alignment = self.number(ALIGNMENT)?;
                    if !self.alignment.is_power_of_two() {
                        return Err(error(format!("alignment {} is not a power of 2", self.alignment)));
                    }
                }
                _ => return self.field(option, at).map(Some),
            }
        }
        Ok(None)
    }

    fn field(&mut self, option: u8, at: usize) -> LuaResult<Field> {
        let bytes = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b's' => 0,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let bytes = self.number(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    return Err(error(format!(
                        "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
                    )));
                }
                bytes
            }
            // A letter that means nothing is refused when it is packed.
            other if other.is_ascii_alphanumeric() => 0,
            other => return Err(invalid(other)),
        };
        let aligned = bytes.min(self.alignment);
        let padding = if bytes == 0 || option == b'c' {
            0
        } else {
            // A width that is no power of two is aligned as in C.
            aligned.wrapping_sub(at & aligned.wrapping_sub(1)) & aligned.wrapping_sub(1)
        };
        Ok(Field { option, bytes, padding })
    }
}

fn invalid(option: u8) -> LuaError {
    error(format!("bad argument #1 (invalid format option '{}')", char::from(option)))
}

/// Converts a number to an unsigned one as C does.
fn unsigned_of(n: f64) -> u64 {
    const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
    match n {
        n if n.is_nan() => 1 << 63,
        n if n < 0.0 => n as i64 as u64,
        n if n < TWO_TO_64 => n as u64,
        _ => 0,
    }
}

fn pack(making: &mut Making<'_>, mut args: LuaMultiValue) -> LuaResult<LuaValue> {
    let format = text(making.lua, &args, 0)?.as_bytes().to_vec();
    // An argument that is missing behind the last is called nil.
    args.push_back(LuaValue::Nil);
    let mut format = Format { rest: up_to_zero(&format), big: false, alignment: 1 };
    let (mut out, mut nth) = (Vec::new(), 0);
    while let Some(Field { option, bytes, padding }) = format.next(making, out.len())? {
        if out.len() + padding + bytes > making.budget.0 {
            return Err(no_memory());
        }
        out.resize(out.len() + padding, 0);
        match option {
            b'x' => {
                out.push(0);
                continue;
            }
            option if !OPTIONS.contains(&option) => return Err(invalid(option)),
            _ => {}
        }
        nth += 1;
        let value = args.get(nth);
        let wanted = || wrong(&args, nth, "number");
        match option {
            b's' | b'c' => {
                let text = text(making.lua, &args, nth)?;
                let text = text.as_bytes();
                let bytes = if bytes == 0 { text.len() } else { bytes };
                let taken = text.get(..bytes);
                let short = || error(format!("bad argument #{} (string too short)", nth + 2));
                out.extend_from_slice(taken.ok_or_else(short)?);
                making.bytes(bytes)?;
                if option == b's' {
                    out.push(0);
                }
                if out.len() > making.budget.0 {
                    return Err(no_memory());
                }
            }
            b'f' | b'd' => {
                let n = number(making.lua, value).ok_or_else(wanted)?;
                let mut raw =
                    if option == b'f' { (n as f32).to_le_bytes().to_vec() } else { n.to_le_bytes().to_vec() };
                if format.big {
                    raw.reverse();
                }
                out.extend_from_slice(&raw);
            }
            _ => {
                let n = number(making.lua, value).ok_or_else(wanted)?;
                let n = unsigned_of(n);
                let mut raw = [0; INTEGER_BYTES_MAX];
                raw[..8].copy_from_slice(&n.to_le_bytes());
                let raw = &mut raw[..bytes];
                if format.big {
                    raw.reverse();
                }
                out.extend_from_slice(raw);
            }
        }
    }
    making.budget.string(making.lua, &out)
}

fn size(making: &mut Making<'_>, args: LuaMultiValue) -> LuaResult<LuaValue> {
    let format = text(making.lua, &args, 0)?.as_bytes().to_vec();
    let mut format = Format { rest: up_to_zero(&format), big: false, alignment: 1 };
    let mut all = 0usize;
    while let Some(Field { option, bytes, padding }) = format.next(making, all)? {
        match option {
            b's' => return Err(error("bad argument #1 (option 's' has no fixed size)")),
            b'c' if bytes == 0 => return Err(error("bad argument #1 (option 'c0' has no fixed size)")),
            _ => {}
        }
        all = all.saturating_add(padding + bytes);
        if all > i32::MAX as usize {
            return Err(error("format result too large"));
        }
    }
    Ok(LuaValue::Number(all as f64))
}

fn unpack(making: &mut Making<'_>, args: LuaMultiValue) -> LuaResult<(LuaTable, usize)> {
    let format = text(making.lua, &args, 0)?.as_bytes().to_vec();
    let data = text(making.lua, &args, 1)?;
    let data = data.as_bytes();
    let position = match args.get(2) {
        None | Some(LuaValue::Nil) => 1,
        value => unsigned_of(number(making.lua, value).ok_or_else(|| wrong(&args, 2, "number"))?),
    };
    // As in C, a negative position is far behind the end.
    let Some(before) = position.checked_sub(1) else {
        return Err(error("bad argument #3 (offset must be 1 or greater)"));
    };
    let mut at = usize::try_from(before).unwrap_or(usize::MAX);
    let mut format = Format { rest: up_to_zero(&format), big: false, alignment: 1 };
    let table = making.budget.table(making.lua, 0, 0)?;
    let (mut count, mut last) = (0, None);
    while let Some(Field { option, bytes, padding }) = format.next(making, at)? {
        if !OPTIONS.contains(&option) {
            return Err(invalid(option));
        }
        let short = || error("bad argument #2 (data string too short)");
        at = at.saturating_add(padding);
        let mut bytes = bytes;
        if option == b'c' && bytes == 0 {
            let Some(length) = last.take() else { return Err(error("format 'c0' needs a previous size")) };
            count -= 1;
            bytes = length as usize;
        }
        if option == b's' {
            let rest = data.get(at..).ok_or_else(short)?;
            bytes = memchr::memchr(0, rest).ok_or_else(|| error("unfinished string in data"))?;
        }
        let raw = at.checked_add(bytes).and_then(|end| data.get(at..end)).ok_or_else(short)?;
        at += bytes + usize::from(option == b's');
        let value = match option {
            b'x' => continue,
            b's' | b'c' => {
                making.bytes(raw.len())?;
                making.budget.string(making.lua, raw)?
            }
            _ => {
                let n = read(option, raw, format.big);
                last = Some(n).filter(|n| *n >= 0.0);
                LuaValue::Number(n)
            }
        };
        if matches!(option, b's' | b'c') {
            last = None;
        }
        making.budget.element()?;
        count += 1;
        table.raw_set(count, value)?;
    }
    count += 1;
    table.raw_set(count, at.wrapping_add(1) as i64 as f64)?;
    Ok((table, count))
}

/// Reads a number from these bytes.
fn read(option: u8, raw: &[u8], big: bool) -> f64 {
    // Byte `n`, the most significant first.
    let byte = |n: usize| u64::from(if big { raw[n] } else { raw[raw.len() - 1 - n] });
    let n = (0..raw.len()).fold(0, |all: u64, n| all << 8 | byte(n));
    match option {
        b'f' => f64::from(f32::from_bits(n as u32)),
        b'd' => f64::from_bits(n),
        option if option.is_ascii_lowercase() => {
            // If the integer is longer than C's longest, the processor takes the lower six bits of the shift, as in C.
            let mask = u64::MAX.wrapping_shl((8 * raw.len() as u32).wrapping_sub(1));
            (if n & mask == 0 { n } else { n | mask }) as i64 as f64
        }
        _ => n as f64,
    }
}
