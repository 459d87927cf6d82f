//! `bit`: numbers as 32 bits, as LuaBitOp has them.

use mlua::prelude::{Lua, LuaError, LuaMultiValue, LuaResult, LuaString, LuaValue};

use crate::answer::error;
use crate::sandbox::{Library, Making};

/// Converts a value to a number, if Lua would.
pub(crate) fn number(lua: &Lua, value: Option<&LuaValue>) -> Option<f64> {
    match value? {
        LuaValue::Integer(n) => Some(*n as f64),
        LuaValue::Number(n) => Some(*n),
        LuaValue::String(text) => lua.coerce_number(LuaValue::String(text.clone())).ok().flatten(),
        _ => None,
    }
}

/// Converts an argument to a string, if Lua would; else the error says what it is.
pub(crate) fn text(lua: &Lua, args: &LuaMultiValue, at: usize) -> LuaResult<LuaString> {
    let text = match args.get(at) {
        Some(LuaValue::String(text)) => return Ok(text.clone()),
        Some(value @ (LuaValue::Integer(_) | LuaValue::Number(_))) => lua.coerce_string(value.clone())?,
        _ => None,
    };
    text.ok_or_else(|| wrong(args, at, "string"))
}

/// A value's type, as Lua calls it.
pub(crate) fn name_of(value: &LuaValue) -> &'static str {
    match value {
        LuaValue::Integer(_) => "number",
        LuaValue::LightUserData(_) => "userdata",
        value => value.type_name(),
    }
}

/// The error for an argument of another type than expected.
pub(crate) fn wrong(args: &LuaMultiValue, at: usize, expected: &str) -> LuaError {
    let name = args.get(at).map_or("no value", name_of);
    error(format!("bad argument #{} ({expected} expected, got {name})", at + 1))
}

/// The lower 32 bits of the nearest whole number. Beyond 2^51 from 0 they are what LuaBitOp's addition leaves.
fn bits_of(n: f64) -> u32 {
    const SHIFTS_TO_WHOLE: f64 = 6_755_399_441_055_744.0;
    (n + SHIFTS_TO_WHOLE).to_bits() as u32
}

fn bits(lua: &Lua, args: &LuaMultiValue, at: usize) -> LuaResult<u32> {
    number(lua, args.get(at)).map(bits_of).ok_or_else(|| wrong(args, at, "number"))
}

fn made(bits: u32) -> LuaResult<LuaValue> {
    Ok(LuaValue::Number(f64::from(bits as i32)))
}

/// Applies a function to one number.
fn unary(lua: &Lua, args: &LuaMultiValue, of: fn(u32) -> u32) -> LuaResult<LuaValue> {
    made(of(bits(lua, args, 0)?))
}

/// Combines all numbers, one after another.
fn folded(lua: &Lua, args: &LuaMultiValue, of: fn(u32, u32) -> u32) -> LuaResult<LuaValue> {
    let mut all = bits(lua, args, 0)?;
    for at in 1..args.len() {
        all = of(all, bits(lua, args, at)?);
    }
    made(all)
}

/// Shifts or rotates a number by another, of which the lower five bits count.
fn shifted(lua: &Lua, args: &LuaMultiValue, of: fn(u32, u32) -> u32) -> LuaResult<LuaValue> {
    made(of(bits(lua, args, 0)?, bits(lua, args, 1)? & 31))
}

/// Writes the lower hexadecimal digits, as many as the second number says; a negative one means capitals.
fn hex(making: &mut Making<'_>, args: &LuaMultiValue) -> LuaResult<LuaValue> {
    let n = bits(making.lua, args, 0)?;
    let digits = if args.len() > 1 { bits(making.lua, args, 1)? as i32 } else { 8 };
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{n:08X}") } else { format!("{n:08x}") };
    making.budget.string(making.lua, &text.as_bytes()[8 - count..])
}

/// The functions of `bit`.
pub(crate) const FUNCTIONS: Library<LuaValue> = &[
    ("tobit", |making, args| unary(making.lua, &args, |n| n)),
    ("bnot", |making, args| unary(making.lua, &args, |n| !n)),
    ("bswap", |making, args| unary(making.lua, &args, u32::swap_bytes)),
    ("band", |making, args| folded(making.lua, &args, |a, b| a & b)),
    ("bor", |making, args| folded(making.lua, &args, |a, b| a | b)),
    ("bxor", |making, args| folded(making.lua, &args, |a, b| a ^ b)),
    ("lshift", |making, args| shifted(making.lua, &args, |n, by| n << by)),
    ("rshift", |making, args| shifted(making.lua, &args, |n, by| n >> by)),
    ("arshift", |making, args| shifted(making.lua, &args, |n, by| ((n as i32) >> by) as u32)),
    ("rol", |making, args| shifted(making.lua, &args, u32::rotate_left)),
    ("ror", |making, args| shifted(making.lua, &args, u32::rotate_right)),
    ("tohex", |making, args| hex(making, &args)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_to_32_bits() {
        for (n, expected) in [
            (0.0, 0),
            (-1.0, u32::MAX),
            (4_294_967_296.0, 0),
            (4_294_967_295.0, u32::MAX),
            (1e300, bits_of(1e300)),
            (1.5, 2),
            (2.5, 2),
            (f64::NAN, 0),
            (f64::INFINITY, 0),
        ] {
            assert_eq!(bits_of(n), expected, "{n}");
        }
    }
}
