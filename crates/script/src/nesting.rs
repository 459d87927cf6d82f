//! The way into tables that lie in one another, as a reply is written of them: what is left to do at each, without calls that
//! lie in one another. So it may be as deep as Redis's, 7,995 tables, on a stack that has room for some hundred.
//!
//! Rust has places for some thousand values of Lua: of tables deeper than some a table of Lua's holds the way.

use mlua::prelude::{Lua, LuaFunction, LuaResult, LuaTable, LuaValue};

/// So many tables are held here, deeper ones in Lua.
const HELD_MAX: usize = 64;

/// Places between a table and what is in it, as Redis takes them of its stack: an element of an array; a value behind its key
/// in a map, an element of a set; the key of a map, of which it has two then.
const ELEMENT: usize = 1;
const MEMBER: usize = 3;
const KEY: usize = 4;

/// What is left to do at a table.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// The elements from the `next` on up to `count`.
    Elements { next: usize, count: usize },
    /// What is behind the key that was last, and before that its value, if that is due. `words`: 2 where values are told, too.
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

    /// The keys of a table, with their values if that is `words` 2.
    pub fn pairs(table: LuaTable, words: usize, place: usize) -> Level {
        Level { table, key: LuaValue::Nil, place, rest: Rest::Pairs { words, value_is_due: false } }
    }

    /// What is written next of it, and its place; nothing if that was all. `next`: Lua's.
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

/// The tables that those lie in which are being written, outermost first.
#[derive(Debug, Default)]
pub(crate) struct Way {
    held: Vec<Level>,
    deeper: Vec<(usize, Rest)>,
    /// Of each deeper one the table and its key.
    tables: Option<LuaTable>,
}

impl Way {
    /// What lies in this table comes first.
    ///
    /// # Errors
    /// Rust holds as many values as may be.
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

    /// The table that is gone on with; nothing if all is written.
    pub fn pop(&mut self) -> Option<Level> {
        let Some((place, rest)) = self.deeper.pop() else { return self.held.pop() };
        let (tables, at) = (self.tables.as_ref()?, 2 * self.deeper.len());
        Some(Level { table: tables.raw_get(at + 1).ok()?, key: tables.raw_get(at + 2).ok()?, place, rest })
    }
}
