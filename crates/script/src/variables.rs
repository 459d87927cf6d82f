//! Whether functions of a library may keep something from one call to the next: in a variable of the library's that they assign
//! to, or in a table that such a variable holds. It is read from the compiled code, each word of which is one instruction:
//!
//! ```text
//! bit 31         23         14     6        0
//!     [ B        | C        | A    | opcode ]      BX: B and C together
//! ```
//!
//! The library's own code, outside of functions, is followed from its first word to its last, with what each register holds.
//! Where that depends on anything (a branch, a call of a function of its own), its functions may keep something.

/// The first bytes: the signature, version 5.1, its format, the order of bytes, and the sizes of what follows.
const HEADER: [u8; 12] = [
    0x1b,
    b'L',
    b'u',
    b'a',
    0x51,
    0,
    cfg!(target_endian = "little") as u8,
    size_of::<i32>() as u8,
    size_of::<usize>() as u8,
    size_of::<u32>() as u8,
    size_of::<f64>() as u8,
    0,
];
/// Registers of a function.
const REGISTERS: usize = 256;

/// Opcodes.
const MOVE: u32 = 0;
const LOADK: u32 = 1;
const LOADBOOL: u32 = 2;
const LOADNIL: u32 = 3;
const GETUPVAL: u32 = 4;
const GETGLOBAL: u32 = 5;
const GETTABLE: u32 = 6;
const SETUPVAL: u32 = 8;
const SETTABLE: u32 = 9;
const NEWTABLE: u32 = 10;
/// The first opcode of arithmetic.
const ADD: u32 = 12;
/// The last opcode of arithmetic.
const CONCAT: u32 = 21;
const CALL: u32 = 28;
const RETURN: u32 = 30;
const SETLIST: u32 = 34;
const CLOSE: u32 = 35;
const CLOSURE: u32 = 36;

/// An instruction.
#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    fn op(self) -> u32 {
        self.0 & 0x3f
    }

    fn a(self) -> usize {
        ((self.0 >> 6) & 0xff) as usize
    }

    fn b(self) -> usize {
        (self.0 >> 23) as usize
    }

    fn c(self) -> usize {
        ((self.0 >> 14) & 0x1ff) as usize
    }

    fn bx(self) -> usize {
        (self.0 >> 14) as usize
    }
}

/// A function, or the library's own code, as it was compiled.
struct Proto {
    /// Number of variables that it uses of the code around it.
    upvalues: usize,
    code: Vec<Word>,
    /// The functions within it.
    inner: Vec<Proto>,
}

/// Whether functions of the library that was compiled to this may keep something; true also where that is not known.
pub(crate) fn keeps(bytecode: &[u8]) -> bool {
    let main = bytecode.strip_prefix(&HEADER).and_then(|bytes| Reader(bytes).proto());
    main.is_none_or(|main| Registers::default().keep(&main))
}

/// What is left of the bytes.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn count(&mut self) -> Option<usize> {
        let bytes = self.take(size_of::<i32>())?;
        usize::try_from(i32::from_ne_bytes(bytes.try_into().ok()?)).ok()
    }

    /// Skips a text.
    fn text(&mut self) -> Option<()> {
        let bytes = self.take(size_of::<usize>())?;
        self.take(usize::from_ne_bytes(bytes.try_into().ok()?)).map(|_| ())
    }

    /// Reads a function. Lua compiles none that are more than 200 deep in one another.
    fn proto(&mut self) -> Option<Proto> {
        // The name of its source, and its lines.
        self.text()?;
        self.take(2 * size_of::<i32>())?;
        let upvalues = usize::from(self.byte()?);
        // Parameters, whether there are more, registers.
        self.take(3)?;
        let words = self.count()?;
        let code = self.take(words.checked_mul(size_of::<u32>())?)?.chunks_exact(size_of::<u32>());
        let code = code.map(|word| Some(Word(u32::from_ne_bytes(word.try_into().ok()?))));
        let code = code.collect::<Option<Vec<_>>>()?;
        for _ in 0..self.count()? {
            // Nil, a boolean, a number, a text.
            match self.byte()? {
                0 => {}
                1 => self.take(1).map(|_| ())?,
                3 => self.take(size_of::<f64>()).map(|_| ())?,
                4 => self.text()?,
                _ => return None,
            }
        }
        let inner = (0..self.count()?).map(|_| self.proto()).collect::<Option<Vec<_>>>()?;
        // What errors say: a line for each word, names of variables and for which words they are, names of upvalues.
        let lines = self.count()?;
        self.take(lines.checked_mul(size_of::<i32>())?)?;
        for _ in 0..self.count()? {
            self.text()?;
            self.take(2 * size_of::<i32>())?;
        }
        for _ in 0..self.count()? {
            self.text()?;
        }
        Some(Proto { upvalues, code, inner })
    }
}

/// What a register of the library's own code holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Nothing that can change: a text, a number, a boolean, nil.
    Plain,
    /// `redis`, or something in it: the server's, which is read-only.
    Server,
    /// A function of the library.
    Function,
    /// A table, perhaps.
    Table,
}

/// The registers of the library's own code.
struct Registers {
    held: [Held; REGISTERS],
    /// It is a variable that a function has.
    is_captured: [bool; REGISTERS],
}

impl Default for Registers {
    fn default() -> Registers {
        Registers { held: [Held::Plain; REGISTERS], is_captured: [false; REGISTERS] }
    }
}

impl Registers {
    /// Whether this code leaves something to its functions that they can change.
    fn keep(mut self, main: &Proto) -> bool {
        self.follow(main).is_none()
    }

    /// Follows the code to its end; `None` if it leaves its functions something that they can change, or may.
    fn follow(&mut self, main: &Proto) -> Option<()> {
        let mut words = main.code.iter().copied();
        while let Some(word) = words.next() {
            let a = word.a();
            match word.op() {
                MOVE => self.put(a, *self.held.get(word.b())?)?,
                LOADBOOL if word.c() > 0 => return None,
                LOADK | LOADBOOL | ADD..=CONCAT => self.put(a, Held::Plain)?,
                LOADNIL => (a..=word.b()).try_for_each(|at| self.put(at, Held::Plain))?,
                GETGLOBAL => self.put(a, Held::Server)?,
                GETTABLE => match *self.held.get(word.b())? {
                    held @ (Held::Plain | Held::Server) => self.put(a, held)?,
                    Held::Function | Held::Table => self.put(a, Held::Table)?,
                },
                NEWTABLE => self.put(a, Held::Table)?,
                SETTABLE | RETURN => {}
                SETLIST => skip_count(word, &mut words),
                // While a library is loaded the server calls nothing of it, and gives it nothing.
                CALL if self.held[a] == Held::Server => {
                    (a..(a + word.c()).saturating_sub(1)).try_for_each(|at| self.put(at, Held::Plain))?;
                }
                CLOSE => self.is_captured[a..].fill(false),
                CLOSURE => {
                    self.put(a, Held::Function)?;
                    let inner = main.inner.get(word.bx())?;
                    for captured in words.by_ref().take(inner.upvalues) {
                        let at = captured.b();
                        if captured.op() != MOVE {
                            return None;
                        }
                        *self.is_captured.get_mut(at)? = true;
                        self.put(at, self.held[at])?;
                    }
                    if assigns(inner, &vec![true; inner.upvalues]) {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Notes what a register holds now; `None` if functions have the register, and can change what it holds.
    fn put(&mut self, at: usize, held: Held) -> Option<()> {
        *self.held.get_mut(at)? = held;
        (held != Held::Table || !self.is_captured[at]).then_some(())
    }
}

/// Behind an instruction that fills a table, its count may be a word of its own.
fn skip_count(word: Word, words: &mut impl Iterator<Item = Word>) {
    if word.c() == 0 {
        words.next();
    }
}

/// Whether a function, or one within it, assigns to a variable of the library. `own`: which of its upvalues are such.
fn assigns(proto: &Proto, own: &[bool]) -> bool {
    let is_own = |upvalue: usize| own.get(upvalue).is_none_or(|own| *own);
    let mut words = proto.code.iter().copied();
    while let Some(word) = words.next() {
        match word.op() {
            SETUPVAL if is_own(word.b()) => return true,
            SETLIST => skip_count(word, &mut words),
            CLOSURE => {
                let Some(inner) = proto.inner.get(word.bx()) else { return true };
                let captured = words.by_ref().take(inner.upvalues);
                let captured: Vec<bool> =
                    captured.map(|word| word.op() == GETUPVAL && is_own(word.b())).collect();
                if assigns(inner, &captured) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlua::prelude::Lua;

    fn keep(library: &str) -> bool {
        let lua = Lua::new();
        let compiled = lua.load(library).into_function().expect("it compiles");
        keeps(&compiled.dump(true))
    }

    #[test]
    fn functions_of_a_library_that_only_read_its_variables_keep_nothing() {
        for library in [
            "",
            "redis.register_function('f', function(keys) return redis.call('GET', keys[1]) end)",
            "local function help(key) return key .. 'x' end \
             redis.register_function('f', function(keys) return help(keys[1]) end)",
            "local help = function(n) if n > 0 then return help(n - 1) end end \
             redis.register_function('f', function(keys) return help(1) end)",
            "local function down(n) if n > 0 then return down(n - 1) end end \
             redis.register_function('f', function(keys) return down(1) end)",
            "local LIMIT, NAME, ON, NONE = 10 * 6, 'a' .. 'b', true, nil \
             redis.register_function('f', function() return LIMIT .. NAME .. tostring(ON or NONE) end)",
            // What a function counts in variables of its own goes with its call.
            "redis.register_function('a', function() end) local function help() end \
             redis.register_function{function_name='f', callback=function() \
               local n, t = 0, {1, 2, 3} local function add() n = n + 1 t[n] = n end add() return help() \
             end, flags={'no-writes'}}",
            "local own = redis own.register_function('f', function() return own.sha1hex('') end)",
            "redis.log(redis.LOG_NOTICE, 'x') local function f() end redis.register_function('f', f)",
            "do local n = 1 redis.register_function('f', function() return n end) end local t = {}",
        ] {
            assert!(!keep(library), "{library}");
        }
    }

    #[test]
    fn functions_of_a_library_that_change_its_variables_may_keep_something() {
        for library in [
            "local n = 0 redis.register_function('f', function() n = n + 1 return n end)",
            "local t = {} redis.register_function('f', function() t[1] = 1 end)",
            "local t redis.register_function('f', function() t[1] = 1 end) t = {}",
            "local t = {} local s = t redis.register_function('f', function() s[1] = 1 end)",
            "local t = {{}} local s = t[1] redis.register_function('f', function() s[1] = 1 end)",
            "local n redis.register_function('f', function() local function set() n = 1 end set() end)",
            "do local n = 0 redis.register_function('f', function() n = n + 1 end) end",
            "local function add() local n = 0 redis.register_function('f', function() n = n + 1 end) end add()",
            "local function make() local n = 0 return function() n = n + 1 return n end end \
             redis.register_function('f', make())",
            "local function add(t) redis.register_function('f', function() t[1] = 1 end) end add({})",
            // What is not followed.
            "for i = 1, 2 do redis.register_function('f' .. i, function() return i end) end",
            "local n = redis.LOG_NOTICE or 1 redis.register_function('f', function() return n end)",
            "local n = ... redis.register_function('f', function() return n end)",
        ] {
            assert!(keep(library), "{library}");
        }
    }

    #[test]
    fn bytes_that_are_no_library_may_keep_something() {
        let lua = Lua::new();
        let whole = lua.load("local n = 'x' return n").into_function().expect("it compiles").dump(true);
        assert!(!keeps(&whole));
        for length in 0..whole.len() {
            assert!(keeps(&whole[..length]), "{length}");
        }
    }
}
