//! Makes returned calls keep their place. For Lua `return f(x)` is a tail call: it forgets the caller, and with it the line that
//! an error is told with. Redis's functions are C's, which Lua calls with their caller still there; those of the sandbox are
//! Lua's.
//!
//! ```text
//! outside of functions   return f(x)                      ─►   return (f(x))
//! within functions       return redis.call('GET', k)      ─►   return (redis.call('GET', k))
//!                        return redis.log(1, 'x')         ─►          redis.log(1, 'x') return
//! ```
//!
//! Outside of functions each single call gets brackets: its first value is the reply, and brackets leave that. The same holds for
//! a function that is written where it is registered, as one of a library. In other functions, calls of functions with one result
//! get brackets ([`ONE`]), and calls of functions without a result become statements ([`NONE`]). A call with more results stays
//! as it is, and so does a call by a name that the script seems to have a variable for.
//!
//! Lines stay as they are. Only the last statement of a block is changed, and only if it returns a call, whatever is in its
//! brackets. So what Lua says of a broken script is what it says of the script as it was given.

use std::borrow::Cow;

/// Functions with one result whose errors say where they were called, by table; those without a table are globals.
const ONE: &[(&[u8], &[&[u8]])] = &[
    (b"", &[b"collectgarbage", b"rawget", b"rawset", b"setmetatable"]),
    (b"redis", &[b"call", b"pcall", b"sha1hex", b"acl_check_cmd"]),
    (b"server", &[b"call", b"pcall", b"sha1hex", b"acl_check_cmd"]),
    (
        b"cjson",
        &[
            b"encode",
            b"decode",
            b"encode_max_depth",
            b"decode_max_depth",
            b"encode_number_precision",
            b"encode_keep_buffer",
            b"encode_invalid_numbers",
            b"decode_invalid_numbers",
        ],
    ),
    (b"cmsgpack", &[b"pack"]),
    (b"struct", &[b"pack", b"size"]),
    (b"string", &[b"format", b"gfind", b"gmatch", b"lower", b"rep", b"reverse", b"sub", b"upper"]),
    (b"table", &[b"concat", b"maxn"]),
    (b"math", &[b"random"]),
    (
        b"bit",
        &[
            b"arshift", b"band", b"bnot", b"bor", b"bswap", b"bxor", b"lshift", b"rol", b"ror", b"rshift",
            b"tobit", b"tohex",
        ],
    ),
];
/// Functions without a result whose errors say where they were called, by table.
const NONE: &[(&[u8], &[&[u8]])] = &[
    (b"redis", &[b"log", b"register_function", b"set_repl", b"setresp"]),
    (b"server", &[b"log", b"register_function", b"set_repl", b"setresp"]),
    (b"table", &[b"insert", b"sort"]),
    (b"math", &[b"randomseed"]),
];
/// What may come behind the last statement of a block.
const ENDS: &[&[u8]] = &[b"end", b"else", b"elseif", b"until", b";"];
/// Words that are no names.
const KEYWORDS: &[&[u8]] = &[
    b"and",
    b"break",
    b"do",
    b"else",
    b"elseif",
    b"end",
    b"false",
    b"for",
    b"function",
    b"if",
    b"in",
    b"local",
    b"nil",
    b"not",
    b"or",
    b"repeat",
    b"return",
    b"then",
    b"true",
    b"until",
    b"while",
];
/// Most blocks and brackets in one another. Lua compiles none that are deeper (`LUAI_MAXCCALLS`).
const LEVELS_MAX: usize = 200;

/// Words, signs and strings of a script, one after another.
#[derive(Clone, Copy)]
struct Tokens<'s> {
    source: &'s [u8],
    at: usize,
}

impl<'s> Tokens<'s> {
    /// If a long string or comment begins here, where its closing bracket ends.
    fn long_end(&self, at: usize) -> Option<usize> {
        let rest = self.source.get(at..)?.strip_prefix(b"[")?;
        let level = rest.iter().take_while(|byte| **byte == b'=').count();
        if rest.get(level) != Some(&b'[') {
            return None;
        }
        let close = [&b"]"[..], &vec![b'='; level], b"]"].concat();
        let from = at + level + 2;
        let found = memchr::memmem::find(&self.source[from..], &close);
        Some(found.map_or(self.source.len(), |found| from + found + close.len()))
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = &self.source[self.at..];
            if rest.starts_with(b"--") {
                self.at = self.long_end(self.at + 2).unwrap_or_else(|| {
                    let line = memchr::memchr2(b'\n', b'\r', rest);
                    line.map_or(self.source.len(), |end| self.at + end)
                });
            } else if rest.first().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0B) {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    /// Where a quoted string ends.
    fn quoted_end(&self) -> usize {
        let quote = self.source[self.at];
        let mut at = self.at + 1;
        while let Some(&byte) = self.source.get(at) {
            at += 1;
            if byte == b'\\' {
                at += 1;
            } else if byte == quote {
                break;
            }
        }
        at.min(self.source.len())
    }
}

impl<'s> Iterator for Tokens<'s> {
    type Item = &'s [u8];

    fn next(&mut self) -> Option<&'s [u8]> {
        self.skip_blank();
        let (start, &first) = (self.at, self.source.get(self.at)?);
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        self.at = match first {
            b'"' | b'\'' => self.quoted_end(),
            b'[' => self.long_end(start).unwrap_or(start + 1),
            byte if is_word(&byte) => {
                start + self.source[start..].iter().take_while(|byte| is_word(byte)).count()
            }
            _ => start + 1,
        };
        Some(&self.source[start..self.at])
    }
}

/// True if a token is a name of the script's: neither a number nor a word of Lua's.
fn is_name(token: &[u8]) -> bool {
    token.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && !KEYWORDS.contains(&token)
}

/// True if a token is a string, quoted or in long brackets.
fn is_string(token: &[u8]) -> bool {
    matches!(token, [b'"' | b'\'', ..]) || matches!(token, [b'[', _, ..])
}

/// What a returned expression is so far, if it may be one call: `name` or `(…)`, and behind it any of `.name`, `:name`, `[…]`,
/// and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Nothing yet.
    Begins,
    /// What may be called, or looked up in.
    Value,
    /// A point or colon, behind which a name must come.
    Point,
    /// A call.
    Call,
}

/// An expression that is returned.
#[derive(Clone, Copy, Debug)]
struct Returned<'s> {
    /// Where `return` is, where the expression begins, and where the last of its parts ends.
    at: usize,
    start: usize,
    end: usize,
    part: Part,
    /// The table and the name that it begins with, and its number of parts: `redis`, `.`, `call` and the arguments are four.
    table: &'s [u8],
    name: &'s [u8],
    parts: u32,
}

impl<'s> Returned<'s> {
    fn new(at: usize) -> Returned<'s> {
        Returned { at, start: 0, end: 0, part: Part::Begins, table: b"", name: b"", parts: 0 }
    }

    /// Takes one more token, which begins at `at`; `None`: this is not a call. A bracket counts when it is closed, by
    /// [`Returned::closed`].
    fn take(mut self, token: &'s [u8], at: usize) -> Option<Returned<'s>> {
        let end = at + token.len();
        match (self.part, token) {
            (Part::Begins, b"(") => self.start = at,
            (Part::Begins, name) if is_name(name) => {
                (self.start, self.name) = (at, name);
                self.is(Part::Value, end);
            }
            (Part::Value | Part::Call, b"(" | b"{" | b"[") => {}
            (Part::Value | Part::Call, b"." | b":") => self.is(Part::Point, end),
            (Part::Value | Part::Call, string) if is_string(string) => self.is(Part::Call, end),
            (Part::Point, name) if is_name(name) => {
                if self.parts == 2 {
                    (self.table, self.name) = (self.name, name);
                }
                self.is(Part::Value, end);
            }
            _ => return None,
        }
        Some(self)
    }

    fn is(&mut self, part: Part, end: usize) {
        (self.part, self.end) = (part, end);
        self.parts += 1;
    }

    /// Takes the bracket that closes one it has opened, and ends at `end`.
    fn closed(mut self, close: &[u8], end: usize) -> Returned<'s> {
        let is_call = self.part != Part::Begins && close != b"]";
        self.is(if is_call { Part::Call } else { Part::Value }, end);
        self
    }

    /// True if it is a call of one of these functions, by their names.
    fn calls(&self, functions: &[(&[u8], &[&[u8]])]) -> bool {
        // A colon counts as a point. It would give the function its table, which none of these takes.
        let parts = if self.table.is_empty() { 2 } else { 4 };
        let names = functions.iter().find(|(table, _)| *table == self.table).map(|(_, names)| *names);
        self.parts == parts && names.is_some_and(|names| names.contains(&self.name))
    }

    /// The name that has to be the sandbox's, and not the script's, for it to be one of these functions.
    fn root(&self) -> &'s [u8] {
        if self.table.is_empty() { self.name } else { self.table }
    }
}

/// What is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    /// A bracket: what closes it, and whether functions are registered in it.
    Bracket(&'static [u8], bool),
    /// A block that `end` closes.
    Block,
    /// A block that `until` closes.
    Repeat,
    /// A function: whether the first value that it returns is a reply.
    Function(bool),
}

/// A change: from here on so many bytes are replaced by these.
struct Change(usize, usize, &'static [u8]);

/// A script that is looked through.
struct Scan<'s> {
    source: &'s [u8],
    /// What is open, each with what is returned in it; the first is the script itself.
    levels: Vec<(Opened, Option<Returned<'s>>)>,
    /// The last tokens, the last one last.
    before: [&'s [u8]; 3],
    changes: Vec<Change>,
    /// The names that matter for which the script has variables. They are looked for once, where the first of them is met.
    own: Option<Vec<&'s [u8]>>,
}

impl<'s> Scan<'s> {
    fn run(&mut self) {
        let mut tokens = Tokens { source: self.source, at: 0 };
        loop {
            tokens.skip_blank();
            let at = tokens.at;
            let Some(token) = tokens.next() else { break };
            if self.take(token, at).is_none() {
                // The script is broken, or deeper than Lua compiles.
                return;
            }
            self.before.rotate_left(1);
            self.before[2] = token;
        }
        if self.levels.len() == 1 {
            self.ended();
        }
    }

    /// Takes one more token; `None` if nothing can come of it.
    fn take(&mut self, token: &'s [u8], at: usize) -> Option<()> {
        if ENDS.contains(&token) {
            self.ended();
        }
        let (opened, returned) = self.levels.last_mut()?;
        if token == b"return" {
            *returned = (!matches!(opened, Opened::Bracket(..))).then(|| Returned::new(at));
            return Some(());
        }
        *returned = returned.and_then(|returned| returned.take(token, at));
        match token {
            b"(" => {
                let registers = self.registers();
                self.open(Opened::Bracket(b")", registers))
            }
            b"{" => {
                let registers = self.registers() || self.before[2] == b"(" && self.is_registering();
                self.open(Opened::Bracket(b"}", registers))
            }
            b"[" => self.open(Opened::Bracket(b"]", false)),
            b"function" => self.open(Opened::Function(self.is_registering())),
            b"do" | b"if" => self.open(Opened::Block),
            b"repeat" => self.open(Opened::Repeat),
            b")" | b"}" | b"]" => {
                if !matches!(self.levels.pop(), Some((Opened::Bracket(close, _), _)) if close == token) {
                    return None;
                }
                let (_, returned) = self.levels.last_mut()?;
                *returned = returned.map(|returned| returned.closed(token, at + 1));
                Some(())
            }
            b"end" => match self.levels.pop()?.0 {
                Opened::Function(_) => Some(()),
                Opened::Block if !self.levels.is_empty() => Some(()),
                _ => None,
            },
            b"until" => (self.levels.pop()?.0 == Opened::Repeat).then_some(()),
            _ => Some(()),
        }
    }

    fn open(&mut self, opened: Opened) -> Option<()> {
        self.levels.push((opened, None));
        (self.levels.len() <= LEVELS_MAX).then_some(())
    }

    /// True if the innermost bracket is one in which functions are registered.
    fn is_registering(&self) -> bool {
        matches!(self.levels.last(), Some((Opened::Bracket(_, true), _)))
    }

    /// True if the bracket that comes is of a call that registers a function.
    fn registers(&mut self) -> bool {
        let [table, point, name] = self.before;
        let is_call = point == b"." && name == b"register_function" && matches!(table, b"redis" | b"server");
        is_call && !self.is_own(table)
    }

    /// True if the first value that is returned here is a reply.
    fn replies(&self) -> bool {
        let function = self.levels.iter().rev().find_map(|(opened, _)| match opened {
            Opened::Function(replies) => Some(*replies),
            _ => None,
        });
        function.unwrap_or(true)
    }

    /// Decides whether what the innermost block returns is changed: the block is at its end.
    fn ended(&mut self) {
        let Some(returned) = self.levels.last_mut().and_then(|(_, returned)| returned.take()) else { return };
        if returned.part != Part::Call {
            return;
        }
        let Returned { at, start, end, .. } = returned;
        if self.replies() || returned.calls(ONE) && !self.is_own(returned.root()) {
            self.changes.extend([Change(start, 0, b"("), Change(end, 0, b")")]);
        } else if returned.calls(NONE) && !self.is_own(returned.root()) {
            self.changes.extend([Change(at, b"return".len(), b"      "), Change(end, 0, b" return")]);
        }
    }

    /// Whether the script seems to have a variable of its own that is called so.
    fn is_own(&mut self, name: &'s [u8]) -> bool {
        let source = self.source;
        self.own.get_or_insert_with(|| own(source)).contains(&name)
    }
}

/// True for a name that [`ONE`] or [`NONE`] begins with.
fn is_root(name: &[u8]) -> bool {
    ONE.iter()
        .chain(NONE)
        .any(|(table, names)| if table.is_empty() { names.contains(&name) } else { *table == name })
}

/// The names in [`ONE`] and [`NONE`] for which the script seems to have variables. A script that passes the table on counts, too,
/// and loses no more than the line of an error. One pass finds all of them: a text of half a MiB takes some milliseconds.
fn own(source: &[u8]) -> Vec<&[u8]> {
    let tokens = Tokens { source, at: 0 };
    let (mut before, mut tokens, mut own) = (&b""[..], tokens.peekable(), Vec::new());
    while let Some(token) = tokens.next() {
        let is_made = [&b"local"[..], b"for", b"function"].contains(&before);
        if (is_made || matches!(before, b"," | b"(")) && is_root(token) && !own.contains(&token) {
            let next = tokens.peek().copied().unwrap_or_default();
            let used = [&b"."[..], b":", b"[", b"(", b"{"].contains(&next) || is_string(next);
            if is_made || !used {
                own.push(token);
            }
        }
        before = token;
    }
    own
}

/// Returns the script, changed so that its returned calls are no tail calls.
pub(crate) fn untailed(source: &[u8]) -> Cow<'_, [u8]> {
    let (levels, changes) = (vec![(Opened::Block, None)], Vec::new());
    let mut scan = Scan { source, levels, before: [b""; 3], changes, own: None };
    scan.run();
    if scan.changes.is_empty() {
        return Cow::Borrowed(source);
    }
    // Changes within another's brackets were made before that one.
    scan.changes.sort_by_key(|change| change.0);
    let (mut text, mut copied) = (Vec::with_capacity(source.len() + 8 * scan.changes.len()), 0);
    for Change(at, gone, put) in scan.changes {
        text.extend_from_slice(&source[copied..at]);
        text.extend_from_slice(put);
        copied = at + gone;
    }
    text.extend_from_slice(&source[copied..]);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(source: &str) -> String {
        String::from_utf8_lossy(&untailed(source.as_bytes())).into_owned()
    }

    #[test]
    fn what_a_script_returns_is_given_brackets_if_it_is_a_call() {
        for (source, expected) in [
            ("return redis.call('GET', KEYS[1])", "return (redis.call('GET', KEYS[1]))"),
            ("if x then return redis.call('a') end", "if x then return (redis.call('a')) end"),
            (
                "if x then return f(1) elseif y then return g{} else return h'x' end",
                "if x then return (f(1)) elseif y then return (g{}) else return (h'x') end",
            ),
            ("repeat return f() until x", "repeat return (f()) until x"),
            ("return  redis . call ( f(1) ) ; ", "return  (redis . call ( f(1) )) ; "),
            ("return server.pcall(')')\n-- end", "return (server.pcall(')'))\n-- end"),
            ("return redis.call([[ ) ]]) --[[ x ]]", "return (redis.call([[ ) ]])) --[[ x ]]"),
            ("return cjson.encode(redis.call('a'))", "return (cjson.encode(redis.call('a')))"),
            ("return string.find('a', 'b')", "return (string.find('a', 'b'))"),
            ("return ('x'):rep(3)", "return (('x'):rep(3))"),
            ("return a.b[c]:d(1)(2)", "return (a.b[c]:d(1)(2))"),
            ("return f[[x]]", "return (f[[x]])"),
            ("while x do return f() end", "while x do return (f()) end"),
            ("local bit = {} return bit.band()", "local bit = {} return (bit.band())"),
            (
                "return f(function() return redis.call('a') end)",
                "return (f(function() return (redis.call('a')) end))",
            ),
        ] {
            assert_eq!(changed(source), expected);
        }
    }

    #[test]
    fn what_a_function_returns_keeps_as_many_values_as_it_has() {
        for (source, expected) in [
            ("return redis.call('a')", "return (redis.call('a'))"),
            ("return setmetatable({}, m)", "return (setmetatable({}, m))"),
            ("return math.random(1, 2)", "return (math.random(1, 2))"),
            ("return redis.log(1, 'x')", "       redis.log(1, 'x') return"),
            ("return\ntable.insert(t, 1);", "      \ntable.insert(t, 1) return;"),
            ("if x then return redis.setresp(3) end", "if x then        redis.setresp(3) return end"),
            ("for i = 1, 2 do return bit.bnot(i) end", "for i = 1, 2 do return (bit.bnot(i)) end"),
            // Others of the sandbox may have several.
            ("return string.find('a', 'b')", "return string.find('a', 'b')"),
            ("return redis.call('a')[1]", "return redis.call('a')[1]"),
            ("return redis.call('a').x()", "return redis.call('a').x()"),
            ("return x.redis.call('a')", "return x.redis.call('a')"),
            ("return x.setmetatable(t)", "return x.setmetatable(t)"),
            ("return f()", "return f()"),
        ] {
            let of = |text: &str| format!("local function f(x) {text} end");
            assert_eq!(changed(&of(source)), of(expected));
        }
    }

    #[test]
    fn what_a_function_returns_that_is_written_where_it_is_registered_is_a_reply() {
        for (source, expected) in [
            (
                "redis.register_function('f', function(k, a) if x then return g() end return h() end)",
                "redis.register_function('f', function(k, a) if x then return (g()) end return (h()) end)",
            ),
            (
                "server.register_function{callback = function() return g() end}",
                "server.register_function{callback = function() return (g()) end}",
            ),
            (
                "redis.register_function({callback = function() return g() end})",
                "redis.register_function({callback = function() return (g()) end})",
            ),
        ] {
            assert_eq!(changed(source), expected);
        }
        for source in [
            "redis.register_function('f', function() local g = function() return h() end end)",
            "redis.register_function('f', x(function() return h() end))",
            "redis.register_function('f', {x = {function() return h() end}})",
            "x.register_function('f', function() return h() end)",
            "local redis = {} redis.register_function('f', function() return h() end)",
        ] {
            assert_eq!(changed(source), source);
        }
    }

    #[test]
    fn what_a_script_calls_so_itself_stays_as_it_is() {
        for own in [
            "local bit = {}",
            "local a, bit = 1, {}",
            "local a, bit; bit = {}",
            "local a, bit bit = {}",
            "local function bit() end",
            "local f = function(x, bit) end",
            "for _, bit in pairs(t) do end",
            "for bit = 1, 2 do end",
        ] {
            let source = format!("{own} local function g() return bit.band() end");
            assert_eq!(changed(&source), source);
        }
        let source = "local rawget, redis = 1 local function f() return bit.bnot(1) end \
            local function g() return rawget(t) end local function h() return redis.call('a') end";
        assert_eq!(changed(source), source.replace("bit.bnot(1)", "(bit.bnot(1))"));
        assert_eq!(
            changed("local x = bit.band(1) local f = function() return bit.band(x) end"),
            "local x = bit.band(1) local f = function() return (bit.band(x)) end"
        );
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let deep = format!("{}return f(){}", "if x then ".repeat(200), " end".repeat(200));
        for source in [
            &deep,
            "",
            "return 1",
            "return",
            "return x",
            "--\rx = {} return {bit.band(1)}",
            "return (x)",
            "return {f()}",
            "return {f()}, f()",
            "return f() f()",
            "return not f()",
            "return -f()",
            "return #f()",
            "return 3(x)",
            "return nil(x)",
            "return x:y",
            "return a..f()",
            "return f()..''",
            "return ...",
            "return redis.call('a')[1]",
            "return redis.call('a'), 2",
            "return redis.call('a') + 1",
            "return redis.call('a'",
            "return redis.call('a']",
            "return redis.call",
            "return function() end",
            "x = { return f() }",
            "f(return f())",
            "end return f()",
            "until return f()",
            "return 'return redis.call(1)'",
            "-- return redis.call(1)",
            "--[[ return redis.call(1) ]]",
            "--[==[ ]] return redis.call(1) ]==]",
            "x = \"\\\" return redis.call(1)\"",
            "returned.redis.call(1)",
            "return \"",
            "--[[",
        ] {
            assert!(matches!(untailed(source.as_bytes()), Cow::Borrowed(_)), "{source}");
        }
    }
}
