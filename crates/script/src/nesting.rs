//! The path into nested tables while a reply is written of them: what is left to do at each. There is no recursion, so a reply
//! may be as deep as Redis's, 7,995 tables, on a stack that has room for some hundred.
//!
//! Rust can hold some thousand values of Lua, so a table of Lua's holds the deeper part of the path.

use mlua::prelude::{Lua, LuaFunction, LuaResult, LuaTable, LuaValue};

/// Most tables that are held here; deeper ones are held in Lua.
const HELD_MAX: usize = 64;

/// Places of Redis's stack from a table to what is in it: an element of an array; a value of a map, or an element of a set; a key
/// of a map, of which Redis has two then.
const ELEMENT: usize = 1;
const MEMBER: usize = 3;
const KEY: usize = 4;

/// What is left to do at a table.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// The elements from the `next` on up to `count`.
    Elements { next: usize, count: usize },
    /// The pairs behind the last key, and before them the value of that key, if it is due. `words` is 2 where values are written,
    /// too.
    Pairs { words: usize, value_is_due: bool },
}

/// A table that is being written.
#[derive(Debug)]
pub(crate) struct Level {
    table: LuaTable,
    /// The last key of pairs.
    key: LuaValue,
    place: usize,
    rest: Rest,
}

impl Level {
    /// An array of so many elements, in this place.
    pub fn elements(table: LuaTable, count: usize, place: usize) -> Level {
        Level { table, key: LuaValue::Nil, place, rest: Rest::Elements { next: 1, count } }
    }

    /// The keys of a table, with their values if `words` is 2.
    pub fn pairs(table: LuaTable, words: usize, place: usize) -> Level {
        Level { table, key: LuaValue::Nil, place, rest: Rest::Pairs { words, value_is_due: false } }
    }

    /// The value that is written next, and its place; `None` if that was all. `next` is Lua's.
    pub fn following(&mut self, next: &LuaFunction) -> Option<(LuaValue, usize)> {
        match self.rest {
            Rest::Elements { next, count } if next <= count => {
                self.rest = Rest::Elements { next: next + 1, count };
                let element = self.table.raw_get(next).unwrap_or(LuaValue::Nil);
                Some((element, self.place + ELEMENT))
            }
            Rest::Elements { .. } => None,
            Rest::Pairs { words, value_is_due: true } => {
                self.rest = Rest::Pairs { words, value_is_due: false };
                let value = self.table.raw_get(&self.key).unwrap_or(LuaValue::Nil);
                Some((value, self.place + MEMBER))
            }
            Rest::Pairs { words, value_is_due: false } => {
                self.key = next.call((&self.table, &self.key)).unwrap_or(LuaValue::Nil);
                if self.key.is_nil() {
                    return None;
                }
                let is_map = words == 2;
                self.rest = Rest::Pairs { words, value_is_due: is_map };
                Some((self.key.clone(), self.place + if is_map { KEY } else { MEMBER }))
            }
        }
    }
}

/// The tables around the one that is being written, outermost first.
#[derive(Debug, Default)]
pub(crate) struct Way {
    held: Vec<Level>,
    deeper: Vec<(usize, Rest)>,
    /// The table and the last key of each deeper level.
    tables: Option<LuaTable>,
}

impl Way {
    /// Keeps a table while what lies in it is written.
    ///
    /// # Errors
    /// If Rust holds as many values as it may.
    pub fn push(&mut self, lua: &Lua, level: Level) -> LuaResult<()> {
        if self.held.len() < HELD_MAX {
            self.held.push(level);
            return Ok(());
        }
        let tables = match self.tables.take() {
            Some(tables) => tables,
            None => lua.create_table()?,
        };
        let at = 2 * self.deeper.len();
        tables.raw_set(at + 1, level.table)?;
        // An array has no key: any value keeps `tables` an array itself.
        let key = if level.key.is_nil() { LuaValue::Boolean(false) } else { level.key };
        tables.raw_set(at + 2, key)?;
        self.tables = Some(tables);
        self.deeper.push((level.place, level.rest));
        Ok(())
    }

    /// Takes the table that is gone on with; `None` if all is written.
    pub fn pop(&mut self) -> Option<Level> {
        let Some((place, rest)) = self.deeper.pop() else { return self.held.pop() };
        let (tables, at) = (self.tables.as_ref()?, 2 * self.deeper.len());
        Some(Level { table: tables.raw_get(at + 1).ok()?, key: tables.raw_get(at + 2).ok()?, place, rest })
    }
}
