//! Errors of scripts: what a script and its caller are told, with the place in the script.

use mlua::prelude::{Lua, LuaError, LuaResult, LuaTable, LuaValue};

/// Source name of scripts' chunks, as Lua has it.
pub(crate) const CHUNK: &str = "@user_script";
/// Source name of libraries' chunks.
pub(crate) const LIBRARY_CHUNK: &str = "@user_function";
/// How many levels of calls are searched for one of the script's own.
const LEVELS_MAX: usize = 200;

/// Lua's message when a state may not grow.
pub(crate) const NO_MEMORY: &str = "not enough memory";

/// Makes the error for a lack of memory.
pub(crate) fn no_memory() -> LuaError {
    LuaError::MemoryError(NO_MEMORY.to_owned())
}

/// Makes an error with this text.
pub(crate) fn error(text: impl Into<String>) -> LuaError {
    LuaError::RuntimeError(text.into())
}

/// The text of an error, ours or Lua's.
pub(crate) fn text_of(error: &LuaError) -> String {
    match error {
        LuaError::RuntimeError(text) | LuaError::MemoryError(text) => text.clone(),
        LuaError::SyntaxError { message, .. } => message.clone(),
        LuaError::CallbackError { cause, .. } => text_of(cause),
        other => other.to_string(),
    }
}

/// The field of an error's table that is true for a command's error, which was counted when the command failed. Scripts see it.
pub(crate) const COUNTED: &str = "ignore_error_stats_update";

/// Makes an error as `redis.pcall` returns it: a table with its text.
pub(crate) fn table_of(lua: &Lua, text: &[u8]) -> LuaResult<LuaTable> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// The current line of the innermost call of the script's own, and the source name of its chunk.
fn line(lua: &Lua) -> Option<(usize, &'static str)> {
    for level in 1..LEVELS_MAX {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source().source;
            let chunk = [CHUNK, LIBRARY_CHUNK].into_iter().find(|chunk| source.as_deref() == Some(*chunk))?;
            Some((debug.current_line()?, chunk))
        })?;
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The current line of the function that is `level` calls above the one that asks, negative if it is a library's; 0 if there is
/// none, or it has no lines. Calls of the sandbox between two of the script's are one.
pub(crate) fn line_at(lua: &Lua, level: f64) -> i64 {
    // Levels that are not counted: the function that asks, and the sandbox's that it asks for.
    const OWN: usize = 2;
    let (mut up, mut is_own) = (0.0, false);
    for at in OWN..LEVELS_MAX {
        let line = lua.inspect_stack(at, |debug| match debug.source().source.as_deref() {
            Some(CHUNK) => debug.current_line().map_or(0, |line| line as i64),
            Some(LIBRARY_CHUNK) => debug.current_line().map_or(0, |line| -(line as i64)),
            _ => 0,
        });
        let Some(line) = line else { break };
        if line != 0 || !is_own {
            up += 1.0;
        }
        is_own = line == 0;
        if up >= level.trunc() {
            return line;
        }
    }
    0
}

/// Makes a table of an error that ends a script, for `xpcall`: its text, and its line and chunk if they are known.
pub(crate) fn explain(lua: &Lua, raised: LuaValue) -> LuaResult<LuaTable> {
    let table = match raised {
        LuaValue::Table(table) => table,
        LuaValue::Error(error) => table_of(lua, format!("ERR {}", text_of(&error)).as_bytes())?,
        LuaValue::String(text) => table_of(lua, &[b"ERR ", &*text.as_bytes()].concat())?,
        LuaValue::Integer(n) => table_of(lua, format!("ERR {n}").as_bytes())?,
        LuaValue::Number(n) => table_of(lua, format!("ERR {n}").as_bytes())?,
        LuaValue::Boolean(b) => table_of(lua, format!("ERR {b}").as_bytes())?,
        other => table_of(lua, format!("ERR {}", other.type_name()).as_bytes())?,
    };
    // A new table, since the script may have sealed the one that it raised, or given it a metatable.
    let told = lua.create_table_with_capacity(0, 4)?;
    match table.raw_get::<LuaValue>("err")? {
        LuaValue::String(text) => told.raw_set("err", text)?,
        LuaValue::Integer(n) => told.raw_set("err", n.to_string())?,
        LuaValue::Number(n) => told.raw_set("err", n.to_string())?,
        _ => told.raw_set("err", "ERR unknown error")?,
    }
    told.raw_set(COUNTED, table.raw_get::<LuaValue>(COUNTED)?)?;
    if let Some((line, chunk)) = line(lua) {
        told.raw_set("line", line)?;
        told.raw_set("chunk", chunk)?;
    }
    Ok(told)
}

/// The place in the script, as errors tell it, if it is known.
fn on(told: &LuaTable) -> LuaResult<Option<String>> {
    let Some(line) = told.raw_get::<Option<usize>>("line")? else { return Ok(None) };
    let chunk = told.raw_get::<Option<String>>("chunk")?.unwrap_or_default();
    Ok(Some(format!(", on {chunk}:{line}.")))
}

/// The name of a script that was ended, and the place in it, if that is known.
pub(crate) fn place(told: Option<&LuaTable>, name: &str) -> String {
    let on = told.and_then(|told| on(told).ok()).flatten();
    format!("{name}{}", on.unwrap_or_default())
}

/// The reply of a script that has failed, without its minus sign, and whether the error is a command's, which was counted.
pub(crate) fn reply(told: &LuaTable, name: &str) -> LuaResult<(Vec<u8>, bool)> {
    let LuaValue::String(text) = told.raw_get::<LuaValue>("err")? else {
        return Ok((format!("ERR Error running script {name}, execution failure").into_bytes(), false));
    };
    let mut reply = text.as_bytes().to_vec();
    // A library that is being loaded has no name yet.
    if let (Some(on), false) = (on(told)?, name.is_empty()) {
        reply.extend_from_slice(format!(" script: {name}{on}").as_bytes());
    }
    Ok((reply, told.raw_get::<Option<bool>>(COUNTED)?.unwrap_or(false)))
}
