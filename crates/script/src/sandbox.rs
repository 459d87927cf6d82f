//! What scripts see (`sandbox.lua`), and what of it is written in Rust: functions that answer `true` and a result, or
//! `false` and why not.

use std::rc::Rc;

use mlua::prelude::{
    IntoLuaMulti, Lua, LuaFunction, LuaMultiValue, LuaResult, LuaString, LuaTable, LuaValue,
};
use sha1::{Digest, Sha1};

use crate::answer::{CHUNK, LIBRARY_CHUNK, error, explain, line_at, text_of};
use crate::engine::{COLLECT, Shared, WHOLE_BYTES_MAX, hex};
use crate::pattern::Looks;
use crate::reply::Budget;
use crate::{bits, json, msgpack, pack, pattern};

const SOURCE: &str = include_str!("sandbox.lua");

/// The version of Redis that scripts find: they look at it for what they may call.
const VERSION: &str = "8.0.0";
const VERSION_NUMBER: u32 = 0x0008_0000;

/// Steps of a function's work between two looks at the clock.
pub(crate) const STEPS: u32 = 1024;
/// Bytes that are one step, where they are copied or looked through one by one.
const STEP_BYTES: usize = 64;
/// Bytes of a text whose digest is made between two looks.
const DIGESTED_BYTES: usize = 64 << 10;
/// The error that ends a script, which no client sees.
const ENDED: &str = "script ended";

/// What a function in Rust works with: the state, its budget, and its steps.
pub(crate) struct Making<'l> {
    pub lua: &'l Lua,
    pub budget: Budget,
    shared: &'l Shared,
    steps: u32,
}

impl Making<'_> {
    /// Counts one step of work, some tens of nanoseconds.
    ///
    /// # Errors
    /// If the script ends.
    pub fn step(&mut self) -> LuaResult<()> {
        self.steps(1)
    }

    fn steps(&mut self, steps: u32) -> LuaResult<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps < STEPS { Ok(()) } else { self.look() }
    }

    /// Counts the work on so many bytes, one after another.
    ///
    /// # Errors
    /// If the script ends.
    pub fn bytes(&mut self, bytes: usize) -> LuaResult<()> {
        self.steps(u32::try_from(bytes / STEP_BYTES).unwrap_or(u32::MAX))
    }

    /// Looks at the clock before work on a table, which may have any number of empty places: Lua passes them in one step.
    ///
    /// # Errors
    /// If the script ends.
    pub fn look(&mut self) -> LuaResult<()> {
        self.steps = 0;
        if self.shared.look(self.lua) { Ok(()) } else { Err(error(ENDED)) }
    }
}

/// The answer of a function: its results behind `true`, or why there are none behind `false`.
fn answer(lua: &Lua, made: LuaResult<impl IntoLuaMulti>) -> LuaResult<LuaMultiValue> {
    match made.and_then(|made| made.into_lua_multi(lua)) {
        Ok(mut values) => {
            values.push_front(LuaValue::Boolean(true));
            Ok(values)
        }
        Err(error) => (false, lua.create_string(text_of(&error))?).into_lua_multi(lua),
    }
}

/// Makes a function of Lua's from one in Rust that makes values.
fn function<A, R>(
    lua: &Lua,
    shared: &Rc<Shared>,
    make: impl Fn(&mut Making<'_>, A) -> LuaResult<R> + 'static,
) -> LuaResult<LuaFunction>
where
    A: mlua::FromLuaMulti,
    R: IntoLuaMulti,
{
    let shared = Rc::clone(shared);
    lua.create_function(move |lua, args: A| {
        let made = shared.made(lua, |budget| {
            let made = make(&mut Making { lua, budget, shared: &shared, steps: 0 }, args);
            answer(lua, made)
        });
        let Ok(made) = made else { return (false, &shared.overflow).into_lua_multi(lua) };
        let made = made?;
        // Making them may have taken long.
        if shared.look(lua) { Ok(made) } else { answer(lua, Err::<(), _>(error(ENDED))) }
    })
}

/// A library of functions that take any values.
pub(crate) type Library<R> = &'static [(&'static str, fn(&mut Making<'_>, LuaMultiValue) -> LuaResult<R>)];

fn library<R: IntoLuaMulti + 'static>(
    lua: &Lua,
    shared: &Rc<Shared>,
    functions: Library<R>,
) -> LuaResult<LuaTable> {
    let table = lua.create_table()?;
    for &(name, make) in functions {
        table.raw_set(name, function(lua, shared, make)?)?;
    }
    Ok(table)
}

/// A library of functions with one result, and one of functions with several.
fn libraries<R: IntoLuaMulti + 'static, S: IntoLuaMulti + 'static>(
    lua: &Lua,
    shared: &Rc<Shared>,
    one: Library<R>,
    several: Library<S>,
) -> LuaResult<LuaTable> {
    let table = lua.create_table()?;
    table.raw_set("one", library(lua, shared, one)?)?;
    table.raw_set("several", library(lua, shared, several)?)?;
    Ok(table)
}

/// Where a search begins: `init` counts from the first byte, or back from the last if it is negative.
fn from(init: &LuaValue, length: usize) -> usize {
    let init = match init {
        LuaValue::Integer(n) => *n as f64,
        LuaValue::Number(n) => *n,
        LuaValue::String(text) => text.to_str().ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1.0),
        _ => 1.0,
    };
    let at = if init < 0.0 { init + length as f64 + 1.0 } else { init };
    (at.max(1.0) as usize - 1).min(length)
}

/// What a match has captured, and how many captures there are.
fn captures(
    making: &mut Making<'_>,
    text: &[u8],
    found: &pattern::Found,
    whole: bool,
) -> LuaResult<(LuaValue, usize)> {
    let count = found.captures.len().max(usize::from(whole));
    if count == 0 {
        return Ok((LuaValue::Nil, 0));
    }
    let table = making.budget.table(making.lua, count, 0)?;
    if found.captures.is_empty() {
        table.raw_set(1, making.budget.string(making.lua, &text[found.start..found.end])?)?;
    }
    for (n, capture) in found.captures.iter().enumerate() {
        let value = match *capture {
            pattern::Capture::Place(at) => LuaValue::Integer(at as i64 + 1),
            pattern::Capture::Text(start, end) => making.budget.string(making.lua, &text[start..end])?,
            pattern::Capture::Open => return Err(pattern::unfinished()),
        };
        table.raw_set(n + 1, value)?;
    }
    Ok((LuaValue::Table(table), count))
}

type Scanned = (Option<usize>, Option<usize>, LuaValue, usize);

/// `string.find`: where the first match begins and ends, and what it captured.
fn find(
    shared: &Shared,
    making: &mut Making<'_>,
    (text, pattern, init, plain): (LuaString, LuaString, LuaValue, LuaValue),
) -> LuaResult<Scanned> {
    let (lua, text, pattern) = (making.lua, text.as_bytes(), pattern.as_bytes());
    let init = from(&init, text.len());
    let is_plain = !matches!(plain, LuaValue::Nil | LuaValue::Boolean(false));
    if is_plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte)) {
        let found = memchr::memmem::find(&text[init..], &pattern);
        return Ok(match found {
            Some(at) => (Some(init + at + 1), Some(init + at + pattern.len()), LuaValue::Nil, 0),
            None => (None, None, LuaValue::Nil, 0),
        });
    }
    let go_on = || shared.look(lua);
    let Some(found) = pattern::search(&text, &pattern, init, true, &mut Looks::new(&go_on))? else {
        return Ok((None, None, LuaValue::Nil, 0));
    };
    let (captured, count) = captures(making, &text, &found, false)?;
    Ok((Some(found.start + 1), Some(found.end), captured, count))
}

/// The next match from `init` on: where it begins, where it ends, and what it captured.
fn scan(
    shared: &Shared,
    making: &mut Making<'_>,
    (text, pattern, init, unanchored): (LuaString, LuaString, LuaValue, bool),
) -> LuaResult<Scanned> {
    let (lua, text, pattern) = (making.lua, text.as_bytes(), pattern.as_bytes());
    let init = from(&init, text.len());
    let go_on = || shared.look(lua);
    let found = pattern::search(&text, &pattern, init, !unanchored, &mut Looks::new(&go_on))?;
    let Some(found) = found else { return Ok((None, None, LuaValue::Nil, 0)) };
    let (captured, count) = captures(making, &text, &found, true)?;
    Ok((Some(found.start + 1), Some(found.end + 1), captured, count))
}

/// `string.gsub` whose replacement is a string.
fn gsub(
    shared: &Shared,
    making: &mut Making<'_>,
    (text, pattern, by, most): (LuaString, LuaString, LuaString, Option<f64>),
) -> LuaResult<(LuaValue, usize)> {
    let most = most.map_or(usize::MAX, |most| most.max(0.0) as usize);
    let (lua, bound) = (making.lua, making.budget.0);
    let go_on = || shared.look(lua);
    let (text, pattern, by) = (text.as_bytes(), pattern.as_bytes(), by.as_bytes());
    let (made, count) = pattern::replace(&text, &pattern, &by, most, bound, &mut Looks::new(&go_on))?;
    Ok((making.budget.string(making.lua, &made)?, count))
}

/// The functions in Rust that `sandbox.lua` is given.
fn rust(lua: &Lua, shared: &Rc<Shared>) -> LuaResult<LuaTable> {
    let rust = lua.create_table()?;
    let own = Rc::clone(shared);
    rust.raw_set("find", function(lua, shared, move |making, args| find(&own, making, args))?)?;
    let own = Rc::clone(shared);
    rust.raw_set("scan", function(lua, shared, move |making, args| scan(&own, making, args))?)?;
    let own = Rc::clone(shared);
    rust.raw_set("gsub", function(lua, shared, move |making, args| gsub(&own, making, args))?)?;
    rust.raw_set(
        "sha1hex",
        function(lua, shared, |making: &mut Making<'_>, text: LuaString| {
            let mut digest = Sha1::new();
            for part in text.as_bytes().chunks(DIGESTED_BYTES) {
                digest.update(part);
                making.bytes(part.len())?;
            }
            making.budget.string(making.lua, hex(&digest.finalize()).as_bytes())
        })?,
    )?;
    // True if the function that is so many calls up was called as a method, by its name behind a colon.
    rust.raw_set(
        "is_method",
        lua.create_function(|lua, level: usize| {
            Ok(lua.inspect_stack(level, |debug| debug.names().name_what == Some("method")).unwrap_or(false))
        })?,
    )?;
    rust.raw_set("line_at", lua.create_function(|lua, level: f64| Ok(line_at(lua, level)))?)?;
    let own = Rc::clone(shared);
    rust.raw_set("stops", lua.create_function(move |_, ()| Ok(own.running.stops()))?)?;
    let own = Rc::clone(shared);
    rust.raw_set("look", lua.create_function(move |lua, ()| Ok(own.looks(lua)))?)?;
    // True if there is no room for so many bytes, and there may be some behind a collection.
    let own = Rc::clone(shared);
    rust.raw_set(
        "wants_room",
        lua.create_function(move |lua, bytes: f64| {
            Ok(bytes > own.budget(lua).0 as f64 && bytes < own.running.limit() as f64)
        })?,
    )?;
    // Raises an error if there is no room for a call: `load` catches it.
    let own = Rc::clone(shared);
    rust.raw_set(
        "piece",
        lua.create_function(move |lua, (from, to): (usize, usize)| own.piece(lua, from, to))?,
    )?;
    // A table, which is made without a bound, so that a state that libraries fill is collected, too.
    let own = Rc::clone(shared);
    rust.raw_set(
        "spare",
        lua.create_function(move |lua, ()| {
            let made = own.made(lua, |_| lua.create_table());
            made.and_then(|made| made).or_else(|_| lua.create_table())
        })?,
    )?;
    let own = Rc::clone(shared);
    rust.raw_set(
        "collecting",
        lua.create_function(move |_, ()| {
            own.collector.collecting();
            Ok(())
        })?,
    )?;
    let own = Rc::clone(shared);
    rust.raw_set(
        "collected",
        lua.create_function(move |lua, ()| {
            own.collected(lua);
            Ok(())
        })?,
    )?;
    let own = Rc::clone(shared);
    rust.raw_set("clock", lua.create_function(move |_, ()| Ok(own.start.elapsed().as_secs_f64()))?)?;
    let own = Rc::clone(shared);
    rust.raw_set("random", lua.create_function(move |_, ()| Ok(own.random.borrow_mut().next()))?)?;
    let own = Rc::clone(shared);
    rust.raw_set(
        "seed",
        lua.create_function(move |_, seed: f64| {
            own.random.borrow_mut().seed(seed as i64 as i32);
            Ok(())
        })?,
    )?;
    let own = Rc::clone(shared);
    rust.raw_set(
        "explain",
        lua.create_function(move |lua, raised: LuaValue| {
            // If there is no room for another call, what was raised is all that is told.
            let explained = own.made(lua, |_| explain(lua, raised.clone()));
            explained.map_or(Ok(raised), |told| told.map(LuaValue::Table))
        })?,
    )?;
    rust.raw_set("json", library(lua, shared, json::FUNCTIONS)?)?;
    rust.raw_set("msgpack", libraries(lua, shared, msgpack::ONE, msgpack::SEVERAL)?)?;
    rust.raw_set("struct", libraries(lua, shared, pack::ONE, pack::SEVERAL)?)?;
    rust.raw_set("bit", library(lua, shared, bits::FUNCTIONS)?)?;
    Ok(rust)
}

/// Makes what scripts see, and returns the function that runs them.
pub(crate) fn make(lua: &Lua, shared: &Rc<Shared>) -> LuaResult<LuaFunction> {
    let raw = lua.globals();
    let constants = lua.create_table()?;
    constants.raw_set("null", LuaValue::NULL)?;
    constants.raw_set("version", VERSION)?;
    constants.raw_set("whole_bytes_max", WHOLE_BYTES_MAX)?;
    constants.raw_set("version_number", VERSION_NUMBER)?;
    let chunk = lua.load(SOURCE).set_name("=sandbox").into_function()?;
    let (run, shown, collect): (LuaFunction, LuaTable, LuaFunction) =
        chunk.call((raw, rust(lua, shared)?, constants))?;
    lua.set_named_registry_value(COLLECT, collect)?;
    // What scripts see is what new chunks and threads have as their globals.
    lua.set_globals(shown)?;
    // Kept in the registry, so that the names of all chunks stay in use.
    lua.set_named_registry_value("chunk", CHUNK)?;
    lua.set_named_registry_value("chunk of a library", LIBRARY_CHUNK)?;
    Ok(run)
}
