//! Replies into Lua values, as `redis.call` has them, and Lua values into the reply of a script.
//!
//! | reply | Lua | reply of a script |
//! |---|---|---|
//! | `:1` | number | `:1`, without what is behind the point |
//! | `$…` | string | `$…` |
//! | `$-1`, `*-1` | `false` | `$-1`, in RESP3 `_` |
//! | `_` | `nil` | the same |
//! | `+OK` | `{ok = "OK"}` | `+OK` |
//! | `-ERR …` | `{err = "ERR …"}` | `-ERR …` |
//! | `*2 …` | table | `*…` up to the first `nil` |
//! | `%1 …` | `{map = {…}}` | `%…`, in RESP2 `*…` |
//! | `~1 …` | `{set = {… = true}}` | `~…`, in RESP2 `*…` |
//! | `,1.5` | `{double = 1.5}` | `,…`, in RESP2 `$…` |
//! | `#t` | boolean | `#t` if script and client have RESP3; else `true` is `:1` |
//! | `(…`, `=…` | `{big_number = …}`, `{verbatim_string = {format = …, string = …}}` | the same, in RESP2 `$…` |

use larder_protocol::resp::{
    Args, HEAD_BYTES_MAX, format_double, parse_double, parse_integer, write_head, write_integer,
};
use mlua::prelude::{Lua, LuaFunction, LuaResult, LuaTable, LuaValue};

use crate::answer::{COUNTED, error, no_memory, table_of};
use crate::nesting::{Level, Way};

/// Deepest nesting of a command's reply.
const DEPTH_MAX: usize = 128;
/// Places that values of a script's reply have at most, as in Redis: the outermost has the first, and each table takes some for
/// what lies in it.
const PLACES_MAX: usize = 7995;
/// Bytes of a state that a string takes besides its own, that a table takes, and that an element of one takes.
const STRING_BYTES: usize = 64;
const TABLE_BYTES: usize = 96;
const SLOT_BYTES: usize = 48;

/// Bytes that may still be made in a state while its limit is off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget(pub usize);

impl Budget {
    fn take(&mut self, bytes: usize) -> LuaResult<()> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(no_memory)?;
        Ok(())
    }

    /// Makes a string.
    pub fn string(&mut self, lua: &Lua, bytes: &[u8]) -> LuaResult<LuaValue> {
        self.take(bytes.len() + STRING_BYTES)?;
        Ok(LuaValue::String(lua.create_string(bytes)?))
    }

    /// Makes a table with room for so many elements and fields, and counts all of them.
    pub fn table(&mut self, lua: &Lua, elements: usize, fields: usize) -> LuaResult<LuaTable> {
        self.take(TABLE_BYTES + (elements + fields).saturating_mul(SLOT_BYTES))?;
        lua.create_table_with_capacity(elements, fields)
    }

    /// Makes a table of words.
    pub fn words(&mut self, lua: &Lua, words: Args<'_>) -> LuaResult<LuaTable> {
        let table = self.table(lua, words.len(), 0)?;
        for (n, word) in words.enumerate() {
            self.take(word.len() + STRING_BYTES)?;
            // A text in UTF-8 is put into the table without a reference that Rust holds.
            match std::str::from_utf8(word) {
                Ok(text) => table.raw_set(n + 1, text)?,
                Err(_) => table.raw_set(n + 1, lua.create_string(word)?)?,
            }
        }
        Ok(table)
    }

    /// Counts one more element of a table that grows.
    pub fn element(&mut self) -> LuaResult<()> {
        self.take(SLOT_BYTES)
    }
}

/// Bytes of a state that these words take at least.
pub(crate) fn least_bytes(words: Args<'_>) -> usize {
    words.len() * (SLOT_BYTES + STRING_BYTES)
}

/// Reads a reply.
pub(crate) struct Reader<'r> {
    bytes: &'r [u8],
    budget: Budget,
}

impl<'r> Reader<'r> {
    pub fn new(bytes: &'r [u8], budget: Budget) -> Reader<'r> {
        Reader { bytes, budget }
    }

    /// Reads the next reply, with those in it.
    pub fn value(&mut self, lua: &Lua, depth: usize) -> LuaResult<LuaValue> {
        let (kind, line) = self.line()?;
        let count = || parse_integer(line).and_then(|n| usize::try_from(n).ok());
        match kind {
            b':' => {
                let n = parse_integer(line).unwrap_or(0);
                Ok(LuaValue::Number(n as f64))
            }
            b'$' => match count() {
                Some(bytes) => {
                    let text = self.bytes(bytes)?;
                    self.budget.string(lua, text)
                }
                None => Ok(LuaValue::Boolean(false)),
            },
            b'+' => self.field(lua, "ok", line),
            b'-' => {
                self.budget.take(line.len() + STRING_BYTES + TABLE_BYTES)?;
                let table = table_of(lua, line)?;
                table.raw_set(COUNTED, true)?;
                Ok(LuaValue::Table(table))
            }
            b'_' => Ok(LuaValue::Nil),
            b'#' => Ok(LuaValue::Boolean(line == b"t")),
            b',' => {
                let table = self.budget.table(lua, 0, 1)?;
                table.raw_set("double", parse_double(line).unwrap_or(f64::NAN))?;
                Ok(LuaValue::Table(table))
            }
            b'(' => self.field(lua, "big_number", line),
            b'=' => self.verbatim(lua, count()),
            b'*' | b'>' => match count() {
                Some(count) => self.array(lua, count, depth),
                None => Ok(LuaValue::Boolean(false)),
            },
            b'~' => self.set(lua, count().unwrap_or(0), depth),
            b'%' => self.map(lua, count().unwrap_or(0), depth),
            _ => Err(error("a reply that cannot be read")),
        }
    }

    fn field(&mut self, lua: &Lua, name: &str, text: &[u8]) -> LuaResult<LuaValue> {
        let table = self.budget.table(lua, 0, 1)?;
        table.raw_set(name, self.budget.string(lua, text)?)?;
        Ok(LuaValue::Table(table))
    }

    fn verbatim(&mut self, lua: &Lua, bytes: Option<usize>) -> LuaResult<LuaValue> {
        let text = self.bytes(bytes.unwrap_or(0))?;
        let (format, text) = text.split_at_checked(4).ok_or_else(|| error("a reply that cannot be read"))?;
        let inner = self.budget.table(lua, 0, 2)?;
        inner.raw_set("string", self.budget.string(lua, text)?)?;
        inner.raw_set("format", self.budget.string(lua, &format[..3])?)?;
        let table = self.budget.table(lua, 0, 1)?;
        table.raw_set("verbatim_string", inner)?;
        Ok(LuaValue::Table(table))
    }

    fn inside(depth: usize) -> LuaResult<usize> {
        if depth >= DEPTH_MAX { Err(error("a reply that is too deep")) } else { Ok(depth + 1) }
    }

    fn array(&mut self, lua: &Lua, count: usize, depth: usize) -> LuaResult<LuaValue> {
        let depth = Reader::inside(depth)?;
        let table = self.budget.table(lua, count.min(self.bytes.len()), 0)?;
        for n in 1..=count {
            let value = self.value(lua, depth)?;
            table.raw_set(n, value)?;
        }
        Ok(LuaValue::Table(table))
    }

    fn set(&mut self, lua: &Lua, count: usize, depth: usize) -> LuaResult<LuaValue> {
        let depth = Reader::inside(depth)?;
        let inner = self.budget.table(lua, 0, count.min(self.bytes.len()))?;
        for _ in 0..count {
            match self.value(lua, depth)? {
                LuaValue::Nil => {}
                value => inner.raw_set(value, true)?,
            }
        }
        let table = self.budget.table(lua, 0, 1)?;
        table.raw_set("set", inner)?;
        Ok(LuaValue::Table(table))
    }

    fn map(&mut self, lua: &Lua, count: usize, depth: usize) -> LuaResult<LuaValue> {
        let depth = Reader::inside(depth)?;
        let inner = self.budget.table(lua, 0, count.min(self.bytes.len()))?;
        for _ in 0..count {
            let (key, value) = (self.value(lua, depth)?, self.value(lua, depth)?);
            if !key.is_nil() {
                inner.raw_set(key, value)?;
            }
        }
        let table = self.budget.table(lua, 0, 1)?;
        table.raw_set("map", inner)?;
        Ok(LuaValue::Table(table))
    }

    /// The kind of the next reply, and the rest of its line.
    fn line(&mut self) -> LuaResult<(u8, &'r [u8])> {
        let end = memchr::memchr(b'\n', self.bytes).filter(|end| *end >= 2);
        let end = end.ok_or_else(|| error("a reply that cannot be read"))?;
        let (line, rest) = self.bytes.split_at(end + 1);
        self.bytes = rest;
        Ok((line[0], &line[1..end - 1]))
    }

    /// Takes so many bytes, and drops the end of the line.
    fn bytes(&mut self, count: usize) -> LuaResult<&'r [u8]> {
        let (text, rest) =
            self.bytes.split_at_checked(count).ok_or_else(|| error("a reply that cannot be read"))?;
        self.bytes = rest.get(2..).unwrap_or_default();
        Ok(text)
    }
}

/// A text in one line: what would end it becomes spaces.
fn lined(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}

/// A text up to its first zero, where C ends it.
pub(crate) fn up_to_zero(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(0, text).unwrap_or(text.len())]
}

/// Steps of writing between two looks. An element is one step, and so are [`STEP_BYTES`]; a table is [`TABLE_STEPS`].
const STEPS: usize = 128;
const STEP_BYTES: usize = 1024;
const TABLE_STEPS: usize = 16;
/// Most errors of one reply that are counted.
const ERRORS_MAX: usize = 1024;
/// Most bytes of an error's text that are kept: errors are counted by their first words.
const ERROR_BYTES_MAX: usize = 128;
/// Room for replies that is kept from one reply to the next.
pub(crate) const KEPT_BYTES: usize = 16 << 10;

/// The reply of a script, and the errors in it, each with whether it is a command's, which was counted.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub bytes: Vec<u8>,
    pub failed: Vec<(Vec<u8>, bool)>,
}

impl Written {
    /// Empties it for the next reply.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.failed = Vec::new();
    }

    /// Memory that it takes beside what connections hold for it.
    pub fn taken_bytes(&self) -> usize {
        self.bytes.capacity().min(KEPT_BYTES)
            + self.failed.len() * (ERROR_BYTES_MAX + size_of::<(Vec<u8>, bool)>())
    }
}

/// Writes the reply of a script on the script's stack, so that the script is looked at, and may be left, as while it runs: a few
/// nested tables may be a reply without end.
pub(crate) struct Writer<'w> {
    pub written: &'w mut Written,
    /// Most bytes of the reply.
    pub bytes_max: usize,
    /// The client speaks RESP3.
    pub resp3: bool,
    /// The script has asked for RESP3.
    pub script_resp3: bool,
    /// Looks at the clock, and is given [`Written::taken_bytes`]. False if the script ends.
    pub look: &'w dyn Fn(usize) -> bool,
    /// Charges connections with so many bytes in all for the reply, beside [`KEPT_BYTES`]; false if they hold as much as they
    /// may.
    pub hold: &'w dyn Fn(usize) -> bool,
    pub steps: usize,
    /// Lua's `next`.
    pub next: &'w LuaFunction,
}

/// Why a reply is not written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// There is no room for the rest of it.
    Full,
    /// The script ends.
    Ended,
}

type Wrote = Result<(), Unwritten>;
/// With the table of which more is to be written, if the value was one.
type Entered = Result<Option<Level>, Unwritten>;

impl Writer<'_> {
    fn step(&mut self, steps: usize) -> Wrote {
        self.steps += steps;
        if self.steps < STEPS { Ok(()) } else { self.look() }
    }

    fn look(&mut self) -> Wrote {
        self.steps = 0;
        if (self.look)(self.written.taken_bytes()) { Ok(()) } else { Err(Unwritten::Ended) }
    }

    fn put(&mut self, bytes: &[u8]) -> Wrote {
        let (whole, written) = (self.written.bytes.len() + bytes.len(), &mut self.written.bytes);
        if whole > self.bytes_max {
            return Err(Unwritten::Full);
        }
        if whole > written.capacity() {
            let room = (whole + whole / 2).clamp(KEPT_BYTES, self.bytes_max.max(KEPT_BYTES));
            if !(self.hold)(room - KEPT_BYTES) {
                return Err(Unwritten::Full);
            }
            written.reserve_exact(room - written.len());
        }
        written.extend_from_slice(bytes);
        self.step(bytes.len() / STEP_BYTES)
    }

    fn head(&mut self, kind: u8, n: usize) -> Wrote {
        let mut head = [0; HEAD_BYTES_MAX];
        let bytes = write_head(&mut head, kind, n as u64);
        self.put(&head[..bytes])
    }

    fn bulk(&mut self, text: &[u8]) -> Wrote {
        self.head(b'$', text.len())?;
        self.put(text)?;
        self.put(b"\r\n")
    }

    fn integer(&mut self, n: i64) -> Wrote {
        let mut line = [0; HEAD_BYTES_MAX];
        line[0] = b':';
        let end = 1 + write_integer(&mut line[1..], n);
        line[end..end + 2].copy_from_slice(b"\r\n");
        self.put(&line[..end + 2])
    }

    /// Writes a line; bytes that would end it become spaces.
    fn line(&mut self, kind: &[u8], text: &[u8]) -> Wrote {
        self.put(kind)?;
        self.put(&lined(text))?;
        self.put(b"\r\n")
    }

    fn null(&mut self) -> Wrote {
        self.put(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" })
    }

    /// Writes a value and all that lies in it.
    pub fn whole(&mut self, lua: &Lua, value: &LuaValue) -> Wrote {
        let mut way = Way::default();
        let Some(mut level) = self.value(value, 1)? else { return Ok(()) };
        loop {
            if let Some((value, place)) = level.following(self.next) {
                if let Some(inner) = self.value(&value, place)? {
                    way.push(lua, level).map_err(|_| Unwritten::Full)?;
                    level = inner;
                }
            } else {
                let Some(outer) = way.pop() else { return Ok(()) };
                level = outer;
            }
        }
    }

    /// Writes a value in this place, or the beginning of it, if it is a table.
    fn value(&mut self, value: &LuaValue, place: usize) -> Entered {
        self.step(1)?;
        if place > PLACES_MAX {
            return self.line(b"-", b"ERR reached lua stack limit").map(|()| None);
        }
        match value {
            LuaValue::Table(table) => self.table(table, place),
            value => self.single(value).map(|()| None),
        }
    }

    /// Writes a value that is no table.
    fn single(&mut self, value: &LuaValue) -> Wrote {
        match value {
            LuaValue::String(text) => self.bulk(&text.as_bytes()),
            LuaValue::Integer(n) => self.integer(*n),
            LuaValue::Number(n) => {
                // A number beyond 64 bits becomes the least of them, as in C on x86.
                let fits = n.abs() < 9_223_372_036_854_775_808.0;
                self.integer(if fits { *n as i64 } else { i64::MIN })
            }
            LuaValue::Boolean(is) if self.script_resp3 && self.resp3 => {
                self.put(if *is { b"#t\r\n" } else { b"#f\r\n" })
            }
            LuaValue::Boolean(false) if self.script_resp3 => self.put(b":0\r\n"),
            LuaValue::Boolean(true) => self.put(b":1\r\n"),
            _ => self.null(),
        }
    }

    fn table(&mut self, table: &LuaTable, place: usize) -> Entered {
        self.step(TABLE_STEPS)?;
        if self.said(table)? {
            return Ok(None);
        }
        let field = |name: &str| table.raw_get::<LuaValue>(name).unwrap_or(LuaValue::Nil);
        if let LuaValue::Table(inner) = field("map") {
            return self.pairs(inner, b'%', 2, place);
        }
        if let LuaValue::Table(inner) = field("set") {
            return self.pairs(inner, b'~', 1, place);
        }
        let element = |n: usize| table.raw_get::<LuaValue>(n).unwrap_or(LuaValue::Nil);
        let mut count = 0;
        while !element(count + 1).is_nil() {
            count += 1;
            self.step(1)?;
        }
        self.head(b'*', count)?;
        Ok((count > 0).then(|| Level::elements(table.clone(), count, place)))
    }

    /// Writes a table that stands for one value by the name of its field, such as `err` or `ok`; false if it is none.
    fn said(&mut self, table: &LuaTable) -> Result<bool, Unwritten> {
        let field = |name: &str| table.raw_get::<LuaValue>(name).unwrap_or(LuaValue::Nil);
        if let LuaValue::String(text) = field("err") {
            let text = text.as_bytes();
            let text = up_to_zero(&text);
            if self.written.failed.len() < ERRORS_MAX {
                let first = text[..text.len().min(ERROR_BYTES_MAX)].to_vec();
                self.written.failed.push((first, field(COUNTED) == LuaValue::Boolean(true)));
            }
            let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
            return self.line(b"-", &text[..end]).map(|()| true);
        }
        if let LuaValue::String(text) = field("ok") {
            return self.line(b"+", up_to_zero(&text.as_bytes())).map(|()| true);
        }
        match field("double") {
            LuaValue::Integer(n) => return self.double(n as f64).map(|()| true),
            LuaValue::Number(n) => return self.double(n).map(|()| true),
            _ => {}
        }
        if let LuaValue::String(text) = field("big_number") {
            let text = lined(&text.as_bytes());
            let wrote = if self.resp3 { self.line(b"(", &text) } else { self.bulk(&text) };
            return wrote.map(|()| true);
        }
        if let LuaValue::Table(inner) = field("verbatim_string") {
            let part = |name: &str| inner.raw_get::<LuaValue>(name).unwrap_or(LuaValue::Nil);
            if let (LuaValue::String(format), LuaValue::String(text)) = (part("format"), part("string")) {
                return self.verbatim(&format.as_bytes(), &text.as_bytes()).map(|()| true);
            }
        }
        Ok(false)
    }

    fn double(&mut self, n: f64) -> Wrote {
        let text = format_double(n);
        if self.resp3 { self.line(b",", text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    fn verbatim(&mut self, format: &[u8], text: &[u8]) -> Wrote {
        if !self.resp3 {
            return self.bulk(text);
        }
        let mut kind = [b' '; 4];
        kind.iter_mut().zip(format.iter().take(3)).for_each(|(to, from)| *to = *from);
        kind[3] = b':';
        self.head(b'=', text.len() + kind.len())?;
        self.put(&kind)?;
        self.put(text)?;
        self.put(b"\r\n")
    }

    /// Writes the number of a table's keys. The keys come next, with their values if `words` is 2.
    fn pairs(&mut self, table: LuaTable, kind: u8, words: usize, place: usize) -> Entered {
        // The table may have any number of empty places, which Lua passes in one step.
        self.look()?;
        let (mut count, mut counted) = (0usize, Ok(()));
        let passed = table.for_each(|_: LuaValue, _: LuaValue| {
            count += 1;
            counted = self.step(1);
            if counted.is_ok() { Ok(()) } else { Err(no_memory()) }
        });
        counted?;
        if passed.is_err() {
            return self.null().map(|()| None);
        }
        if self.resp3 {
            self.head(kind, count)?
        } else {
            self.head(b'*', count * words)?
        }
        Ok(Some(Level::pairs(table, words, place)))
    }
}
