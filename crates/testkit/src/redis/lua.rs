//! Random Lua scripts for `EVAL`: calls of commands, values of every type into replies and back, errors that are caught and
//! errors that are not, `cjson`, `cmsgpack`, `struct`, `bit` and Lua's own library.
//!
//! ```text
//! local r, n = {}, 0 …                                  puts results, nil too, into the reply
//! redis.setresp(3)                                      now and then
//! put(pcall(function() return string.rep('ab', 2) end)) a few of these: an error ends no script
//! return r                                              or the value of an expression, or its error
//! ```
//!
//! Libraries have functions with such scripts as bodies, and are loaded and deleted.
//!
//! An expression is built from a kind, a depth and choices; now and then it has another kind than wanted. Results that differ
//! between two runs of one server are left out: times, addresses, the order of keys in tables that the script did not write.

use super::stream::Choices;

/// The beginning of a script: `put` adds values to the reply, `show` gives a value in full, with keys in order.
const PRELUDE: &str = "local r, n = {}, 0 \
local function put(...) for i = 1, select('#', ...) do local v = select(i, ...) n = n + 1 \
if v == nil then v = 'nil' end r[n] = v end end \
local function show(v, d) d = d or 0 \
if type(v) == 'number' then return string.format('%.17g', v) end \
if type(v) == 'string' then return string.format('%q', v) end \
if type(v) ~= 'table' then return type(v) == 'boolean' and tostring(v) or type(v) end \
if d > 6 then return '...' end \
local k = {} for x, y in pairs(v) do k[#k + 1] = show(x, d + 1) .. '=' .. show(y, d + 1) end \
table.sort(k) return '{' .. table.concat(k, ',') .. '}' end ";

/// Commands that a script calls, as [`Choices::filled`] reads them.
const CALLS: &[&str] = &[
    "SET %k %v",
    "SET %k %n",
    "SET %k %v (NX|XX|GET)",
    "GET %k",
    "GETDEL %k",
    "INCR %k",
    "INCRBY %k %i",
    "INCRBYFLOAT float 0.5",
    "APPEND %k %v",
    "STRLEN %k",
    "GETRANGE %k %r %r",
    "SETRANGE %k 3 %v",
    "MGET %k %k",
    "MSET %k %v %k %v",
    "DEL %k {%k}",
    "EXISTS %k %h",
    "TYPE (%k|%h|%l|%q|%Z|%S)",
    "EXPIRE %k 1000",
    "PERSIST %k",
    "SETBIT %k 9 1",
    "BITCOUNT %k",
    "BITFIELD %k GET u8 0 INCRBY u8 0 %i",
    "HSET %h %g %v",
    "HGET %h %g",
    "HMGET %h %g %g",
    "HGETALL hone",
    "HSET hone field %v",
    "HINCRBY %h %g %i",
    "HDEL %h %g",
    "HLEN %h",
    "LPUSH %l %v {%v}",
    "RPUSH %l %v",
    "LRANGE %l %r %r",
    "LPOP %l [2]",
    "RPOP %l",
    "LINDEX %l %r",
    "LPOS %l a COUNT 0",
    "LLEN %l",
    "SADD %q %g",
    "SADD sone member",
    "SMEMBERS sone",
    "SISMEMBER %q %g",
    "SMISMEMBER %q %g %g",
    "SCARD %q",
    "SREM %q %g",
    "ZADD %Z %c %g",
    "ZADD %Z INCR 1.5 %g",
    "ZINCRBY %Z 0.25 %g",
    "ZSCORE %Z %g",
    "ZMSCORE %Z %g %g",
    "ZRANGE %Z 0 -1",
    "ZRANGE %Z 0 -1 WITHSCORES",
    "ZPOPMIN %Z [2]",
    "ZRANK %Z %g [WITHSCORE]",
    "ZCARD %Z",
    "XADD %S 40-* f %v",
    "XRANGE %S - +",
    "XLEN %S",
    "PING",
    "PING %x",
    "ECHO %v",
    "SELECT (0|1|99)",
    "DBSIZE",
    "PUBLISH c m",
    "CONFIG GET maxmemory-samples",
    "OBJECT ENCODING (%h|%Z)",
    "COMMAND GETKEYS SET a b",
    // Commands that scripts may not call, and words that are no commands.
    "SUBSCRIBE c",
    "MULTI",
    "EVAL 1 0",
    "SCRIPT LOAD 1",
    "NOSUCH x",
    "OBJECT",
    "GET",
    "SET a",
    "HSET h1 f",
    "BLPOP l1 none 0",
    "CLIENT REPLY OFF",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "10",
    "-1",
    "-2",
    "3.99",
    "-3.99",
    "0.1",
    "1.5",
    "255",
    "256",
    "65535",
    "65536",
    "127",
    "128",
    "-128",
    "-129",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "1e15",
    "123456789012345",
    "9007199254740992",
    "1e17",
    "1e100",
    "1e-7",
    "-1e20",
    "9223372036854775807",
    "1/0",
    "-1/0",
    "0/0",
    "-0",
    "0x10",
    "100",
];

const STRINGS: &[&str] = &[
    "''",
    "'a'",
    "'ab'",
    "'hello world'",
    "'10'",
    "' 7 '",
    "'0x1F'",
    "'1e3'",
    "'nan'",
    "'\\0a\\0'",
    "'\\255\\254'",
    "'a\\r\\nb'",
    "'%d'",
    "'{\"a\":1}'",
    "'[1,2,{\"b\":null}]'",
    "'[]'",
    "'{}'",
    "'\"x\\\\u00e9\\\\n\"'",
    "'[1,'",
    "'true'",
    "'1e5'",
    "'[0.1,-0,1E2]'",
    "'\\1\\2\\3\\4\\5\\6\\7\\8'",
    "'\\147\\1\\2\\3'",
    "'\\129\\161a\\1'",
    "'\\203\\63\\248\\0\\0\\0\\0\\0\\0'",
    "'\\192\\195\\194'",
    "'OK'",
    "'ERR x'",
    "'-BAD y'",
    "'caf\\195\\169'",
    "'<>&/\\\\'",
    "'k1'",
    "'a,b,,c'",
    "KEYS[1]",
    "ARGV[1]",
    "ARGV[2]",
];

/// Formats of `struct`, of `string.format`, and patterns.
const PACKS: &[&str] = &[
    "'b'",
    "'B'",
    "'h'",
    "'H'",
    "'l'",
    "'L'",
    "'i4'",
    "'I2'",
    "'>I4'",
    "'<i8'",
    "'s'",
    "'c3'",
    "'c0'",
    "'f'",
    "'d'",
    "'>d'",
    "'x'",
    "'!4 b i4'",
    "'>HHs'",
    "'Bc0'",
    "'i17'",
    "'z'",
    "'T'",
    "'  b'",
    "'!16d'",
    "'=I3'",
    "'I8'",
];
const FORMATS: &[&str] = &[
    "'%d'", "'%5.2f'", "'%s'", "'%q'", "'%x'", "'%g'", "'%10s|'", "'%-5d|'", "'%c'", "'%%'", "'%i %s'",
    "'%.14g'", "'%e'", "'%o'", "'%u'", "'%.3s'", "'%y'", "'%'", "'%05d'", "'%+d'", "'%X'", "'%a'",
];
const PATTERNS: &[&str] = &[
    "'a'",
    "'%d+'",
    "'(%w+)'",
    "'.-'",
    "'^a'",
    "'b$'",
    "'[^,]*'",
    "'%s*'",
    "'()'",
    "'(a)(b)'",
    "'%b()'",
    "'%f[%w]%w+'",
    "'[a-c]'",
    "'a*'",
    "'[a'",
    "'%'",
    "'.'",
    "','",
    "'l+'",
    "'%1'",
    "'(.)%1'",
    "'%z'",
];

/// The kind of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Number,
    Text,
    Table,
    Truth,
}

/// A request that runs a random script: `EVAL`, and at times `EVAL_RO`.
pub fn request(choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    let text = script(choices);
    let name: &[u8] = if choices.below(16) == 0 { b"EVAL_RO" } else { b"EVAL" };
    let count = choices.below(3);
    let mut words = vec![name.to_vec(), text.into_bytes(), count.to_string().into_bytes()];
    words.extend((0..count).map(|_| choices.word('k')));
    words.extend((0..choices.below(3)).map(|_| choices.word('v')));
    words
}

/// Names of libraries and of their functions. Names that differ only in case are one function.
const LIBRARIES: &[&str] = &["one", "two", "Three"];
const FUNCTIONS: &[&str] = &["f", "g", "F", "12"];
/// First lines of libraries; `%` stands for the name.
const HEADS: &[&str] =
    &["#!lua name=%", "#!LUA name=%", "#!lua  name=% ", "#!\"lua\" name=%", "#!lua 'name=%'"];
/// First lines that are wrong.
const WRONG_HEADS: &[&str] = &[
    "",
    "#!",
    "#!lua",
    "#! lua name=%",
    "#! name=%",
    "#!nosuch name=%",
    "#!lua name=",
    "#!lua name=a-b",
    "#!lua name=% name=%",
    "#!lua x=1 name=%",
    "#!lua name=% flags=no-writes",
    "#!lua \"name=%",
];

/// A request about functions: libraries are loaded, deleted and listed, and most requests call one.
pub fn request_of_functions(choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    match choices.below(16) {
        0..=4 => {
            let mut request = vec!["FUNCTION", "LOAD"];
            if choices.below(3) > 0 {
                request.push("REPLACE");
            }
            let library = library(choices);
            request.push(&library);
            words(&request)
        }
        5 => words(&["FUNCTION", "DELETE", choices.of(LIBRARIES)]),
        6 => words(&["FUNCTION", "LIST"]),
        7 => {
            words(&["FUNCTION", "LIST", "WITHCODE", "LIBRARYNAME", choices.of(&["t*", "T*", "[ot]*", "no"])])
        }
        8 => words(&["FUNCTION", "STATS"]),
        _ => {
            let name = choices.of(&["FCALL", "FCALL", "FCALL_RO"]);
            let mut request: Vec<Vec<u8>> = words(&[name, choices.of(FUNCTIONS)]);
            let count = choices.below(3);
            request.push(count.to_string().into_bytes());
            request.extend((0..count).map(|_| choices.word('k')));
            request.extend((0..choices.below(3)).map(|_| choices.word('v')));
            request
        }
    }
}

/// A random library.
fn library(choices: &mut Choices<'_>) -> String {
    let heads = if choices.below(12) == 0 { WRONG_HEADS } else { HEADS };
    let head = choices.of(heads).replace('%', choices.of(LIBRARIES));
    let mut text = format!("{head}\n");
    // If a library has two functions whose names differ only by case, Redis 8.0 finds one or the other, and
    // crashes when it deletes them.
    let f = if choices.below(8) == 0 { "'F'" } else { "'f'" };
    for _ in 0..1 + choices.below(2) {
        if choices.below(6) == 0 {
            // No `redis.log` here: Valkey 9.1.2 crashes on it.
            text.push_str(choices.of(&["error('no')\n", "local x\n", "(\n"]));
        }
        let name = choices.of(&[f, "'g'", "12", "'a b'", "''", "{}", "nil", "1.5"]);
        let name = if choices.below(3) > 0 { choices.of(&[f, "'g'"]) } else { name };
        let body = format!("function(KEYS, ARGV) {} end", body(choices, String::new()));
        text.push_str(&match choices.below(8) {
            0..=4 => format!("redis.register_function({name}, {body})\n"),
            5 | 6 => {
                let more = choices.of(&[
                    "",
                    ", flags = {'no-writes'}",
                    ", flags = {'allow-oom', 'allow-stale', 'allow-oom'}",
                    ", flags = {}",
                    ", flags = {'nosuch'}",
                    ", flags = 'no-writes'",
                    ", description = 'what it does'",
                    ", description = 5",
                    ", description = {}",
                    ", nosuch = 1",
                    ", [1] = 2",
                    ", [true] = 2",
                ]);
                format!("redis.register_function{{function_name = {name}, callback = {body}{more}}}\n")
            }
            _ => choices
                .of(&[
                    "redis.register_function('f')\n",
                    "redis.register_function('f', 1)\n",
                    "redis.register_function()\n",
                    "redis.register_function({callback = 1})\n",
                    "redis.register_function({function_name = 'f'})\n",
                    "redis.register_function(1, 2, 3)\n",
                ])
                .to_owned(),
        });
    }
    text
}

/// A random script.
pub fn script(choices: &mut Choices<'_>) -> String {
    let mut text = String::new();
    match choices.below(40) {
        0 => text.push_str("#!lua\n"),
        1 => text.push_str("#!lua flags=no-writes\n"),
        2 => text.push_str("#!lua flags=allow-oom,allow-stale\n"),
        _ => {}
    }
    body(choices, text)
}

/// The statements of a random script, behind the first line `text`.
fn body(choices: &mut Choices<'_>, mut text: String) -> String {
    text.push_str(PRELUDE);
    if choices.below(3) == 0 {
        text.push_str(choices.of(&["redis.setresp(3) ", "redis.setresp(3) ", "redis.setresp(2) "]));
    }
    let mut writer = Writer { choices, text };
    for _ in 0..1 + writer.choices.below(3) {
        writer.statement();
    }
    let end = match writer.choices.below(6) {
        0 => format!("return {}", writer.value(Kind::Any, 2)),
        1 => format!("return {}", writer.reply(3)),
        2 => format!("return {}", writer.call("call")),
        _ => "return r".to_owned(),
    };
    writer.text.push_str(&end);
    writer.text
}

/// A random script as text, without the beginning of all scripts; `None`: the word is none.
pub fn shown(word: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(word).ok()?;
    text.contains(PRELUDE).then(|| text.replace(PRELUDE, "… ").replace('\n', "\\n"))
}

struct Writer<'w, 'b> {
    choices: &'w mut Choices<'b>,
    text: String,
}

/// Bytes as Lua writes them.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03}")),
        }
    }
    text.push('\'');
    text
}

impl Writer<'_, '_> {
    fn statement(&mut self) {
        let statement = match self.choices.below(12) {
            0..=3 => format!("put(pcall(function() return {} end)) ", self.value(Kind::Any, 3)),
            4..=6 => format!("put(pcall(function() return show({}) end)) ", self.value(Kind::Any, 3)),
            7 => format!("put(show({{pcall(function() return {} end)}})) ", self.value(Kind::Any, 3)),
            8 => format!("put(show({})) ", self.call("pcall")),
            9 => format!("put({}) ", self.call("pcall")),
            10 => format!("local v = {} put(type(v)) ", self.call("pcall")),
            _ => self.odd(),
        };
        self.text.push_str(&statement);
    }

    /// Odd uses of the sandbox, and of Lua's statements.
    fn odd(&mut self) -> String {
        let value = self.value(Kind::Any, 1);
        match self.choices.below(14) {
            0 => format!("put(pcall(function() nosuch = {value} end)) "),
            1 => "put(pcall(function() return nosuch end)) ".to_owned(),
            2 => format!("put(pcall(function() redis.call = {value} end)) "),
            3 => format!("put(pcall(error, {value})) "),
            4 => format!("put(pcall(function() error({value}, 0) end)) "),
            5 => format!("put(pcall(function() error({value}) end)) "),
            6 => format!("put(xpcall(function() error({value}) end, function(e) return type(e) end)) "),
            7 => format!(
                "for i, v in ipairs({}) do put(v) if i > 5 then break end end ",
                self.value(Kind::Table, 2)
            ),
            8 => format!(
                "put(pcall(function() local t = {} for k, v in pairs(t) do end return #t end)) ",
                self.value(Kind::Any, 2)
            ),
            9 => format!("put(pcall(function() return ({value}).x end)) "),
            10 => format!(
                "local f = coroutine.wrap(function(a) local b = coroutine.yield(a) error(b) end) put(pcall(f, {value})) put(pcall(f, 2)) "
            ),
            11 => format!(
                "put(type((select(2, pcall(loadstring, {value}))))) put(type(loadstring('return 1'))) "
            ),
            12 => format!("put(pcall(setmetatable, {}, {value} )) ", self.value(Kind::Table, 1)),
            _ => format!("put(pcall(function() return redis.setresp({value}) end)) redis.setresp(2) "),
        }
    }

    /// A call of a command. Words may be numbers, and now and then a value that cannot be a word.
    fn call(&mut self, how: &str) -> String {
        let form = self.choices.of(CALLS);
        let mut words = self.choices.filled(form);
        words.truncate(12);
        let mut list: Vec<String> = words
            .iter()
            .map(|word| {
                let number =
                    std::str::from_utf8(word).is_ok_and(|text| text.len() < 9 && text.parse::<i32>().is_ok());
                let word = if word.len() > 300 { &word[..300] } else { word };
                if number && !word.starts_with(b"0") && !word.starts_with(b"+") && self.choices.below(2) == 0
                {
                    return String::from_utf8_lossy(word).into_owned();
                }
                quoted(word)
            })
            .collect();
        match self.choices.below(24) {
            0 => list.push(self.value(Kind::Number, 1)),
            1 => list.push(self.value(Kind::Any, 1)),
            2 => drop(list.pop()),
            3 if list.len() > 1 => {
                let at = 1 + self.choices.below(list.len() - 1);
                list[at] = self.value(Kind::Any, 1);
            }
            4 => list[0] = list[0].to_ascii_lowercase(),
            _ => {}
        }
        format!("redis.{how}({})", list.join(", "))
    }

    /// An expression whose value has a meaning as a reply.
    fn reply(&mut self, depth: usize) -> String {
        let any = if depth == 0 { Kind::Number } else { Kind::Any };
        let depth = depth.saturating_sub(1);
        match self.choices.below(14) {
            0 => format!("{{ok = {}}}", self.value(Kind::Text, 0)),
            1 => format!("{{err = {}}}", self.value(Kind::Text, 0)),
            2 => format!("{{double = {}}}", self.value(Kind::Number, 0)),
            3 => format!("{{map = {{[{}] = {}}}}}", self.key(), self.value(any, depth)),
            4 => format!("{{set = {{[{}] = true}}}}", self.key()),
            5 => format!("{{big_number = {}}}", self.value(Kind::Text, 0)),
            6 => format!("{{verbatim_string = {{format = 'txt', string = {}}}}}", self.value(Kind::Text, 0)),
            7 => format!("redis.status_reply({})", self.value(Kind::Text, 0)),
            8 => format!("redis.error_reply({})", self.value(Kind::Text, 0)),
            9 => {
                let field = self.choices.of(&[
                    "ok",
                    "err",
                    "double",
                    "map",
                    "set",
                    "big_number",
                    "verbatim_string",
                    "format",
                ]);
                format!("{{{field} = {}}}", self.value(any, depth))
            }
            10 => format!(
                "{{{}, {}, {}}}",
                self.value(any, depth),
                self.value(any, depth),
                self.value(any, depth)
            ),
            11 => format!("{{{}, nil, {}}}", self.reply(depth), self.value(any, depth)),
            12 => format!("{{{}}}", self.reply(depth)),
            _ => self.value(any, depth),
        }
    }

    fn key(&mut self) -> String {
        if self.choices.below(3) == 0 {
            self.choices.of(&["1", "2", "1.5", "-1", "true"]).to_owned()
        } else {
            self.choices.of(&["'a'", "'b'", "'x y'", "'1'"]).to_owned()
        }
    }

    /// An expression, mostly of this kind.
    fn value(&mut self, kind: Kind, depth: usize) -> String {
        let kind = match (kind, self.choices.below(16)) {
            (Kind::Any, _) | (_, 0) => {
                self.choices.of(&[Kind::Number, Kind::Text, Kind::Table, Kind::Truth, Kind::Text])
            }
            (kind, _) => kind,
        };
        if depth == 0 {
            return match kind {
                Kind::Number => self.choices.of(NUMBERS).to_owned(),
                Kind::Text => self.choices.of(STRINGS).to_owned(),
                Kind::Table => self
                    .choices
                    .of(&[
                        "{}",
                        "{1, 2}",
                        "{'a', 'b'}",
                        "{x = 1}",
                        "{1, nil, 3}",
                        "{[3] = 1}",
                        "{[20] = 1}",
                        "{{}}",
                    ])
                    .to_owned(),
                Kind::Truth | Kind::Any => {
                    self.choices.of(&["true", "false", "nil", "cjson.null", "print"]).to_owned()
                }
            };
        }
        let depth = depth - 1;
        match kind {
            Kind::Number => self.number(depth),
            Kind::Text => self.text(depth),
            Kind::Table => self.table(depth),
            Kind::Truth | Kind::Any => self.truth(depth),
        }
    }

    fn number(&mut self, depth: usize) -> String {
        let n = |this: &mut Self| this.value(Kind::Number, depth);
        match self.choices.below(14) {
            0..=2 => self.choices.of(NUMBERS).to_owned(),
            3 => format!("#{}", self.value(Kind::Text, depth)),
            4 => format!("tonumber({})", self.value(Kind::Text, depth)),
            5 => {
                let sign = self.choices.of(&["+", "-", "*", "/", "%", "^"]);
                format!("({} {sign} {})", n(self), n(self))
            }
            6 => {
                let name = self.choices.of(&["floor", "ceil", "abs", "sqrt", "modf", "frexp"]);
                format!("math.{name}({})", n(self))
            }
            7 => {
                let name = self.choices.of(&["band", "bor", "bxor"]);
                format!("bit.{name}({}, {})", n(self), n(self))
            }
            8 => {
                let name = self.choices.of(&["lshift", "rshift", "arshift", "rol", "ror"]);
                format!(
                    "bit.{name}({}, {})",
                    n(self),
                    self.choices.of(&["0", "1", "4", "31", "32", "33", "-1"])
                )
            }
            9 => {
                let name = self.choices.of(&["bnot", "tobit", "bswap"]);
                format!("bit.{name}({})", n(self))
            }
            10 => format!("struct.size({})", self.choices.of(PACKS)),
            11 => format!("(string.byte({}, {}))", self.value(Kind::Text, depth), n(self)),
            12 => format!("select('#', {})", self.value(Kind::Any, depth)),
            _ => format!(
                "math.{}({}, {})",
                self.choices.of(&["max", "min", "fmod", "pow", "ldexp"]),
                n(self),
                n(self)
            ),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        let s = |this: &mut Self| this.value(Kind::Text, depth);
        match self.choices.below(24) {
            0..=2 => self.choices.of(STRINGS).to_owned(),
            3 => format!("({} .. {})", s(self), s(self)),
            4 => format!("string.rep({}, {})", s(self), self.choices.of(&["0", "1", "3", "-1", "20", "'2'"])),
            5 => {
                let ends = ["0", "1", "2", "-1", "-2", "5", "1.7"];
                let (from, to) = (self.choices.of(&ends), self.choices.of(&ends));
                format!("string.sub({}, {from}, {to})", s(self))
            }
            6 => {
                let name = self.choices.of(&["upper", "lower", "reverse", "len"]);
                format!("string.{name}({})", s(self))
            }
            7 | 8 => {
                let form = self.choices.of(FORMATS);
                format!("string.format({form}, {}, {})", self.value(Kind::Number, depth), s(self))
            }
            9 => format!("tostring({})", self.number(depth)),
            10 => format!("redis.sha1hex({})", self.value(Kind::Text, depth)),
            11..=13 => format!("cjson.encode({})", self.value(Kind::Any, depth)),
            14 | 15 => format!("cmsgpack.pack({})", self.list(depth)),
            16 | 17 => format!(
                "struct.pack({}, {}, {})",
                self.choices.of(PACKS),
                self.value(Kind::Number, depth),
                self.value(Kind::Any, depth)
            ),
            18 => format!(
                "bit.tohex({}, {})",
                self.value(Kind::Number, depth),
                self.choices.of(&["8", "4", "-4", "1", "-8", "0", "20"])
            ),
            19 => format!(
                "string.gsub({}, {}, {})",
                s(self),
                self.choices.of(PATTERNS),
                self.choices.of(&[
                    "'x'",
                    "'%0%0'",
                    "'%1'",
                    "'%%'",
                    "''",
                    "string.upper",
                    "{a = 'b'}",
                    "'%9'",
                    "'%'",
                    "1",
                    "nil"
                ])
            ),
            20 => format!(
                "string.{}({}, {})",
                self.choices.of(&["match", "find"]),
                s(self),
                self.choices.of(PATTERNS)
            ),
            21 => {
                format!("string.char({})", self.choices.of(&["65", "0, 255", "256", "'66'", "-1", "97, 98"]))
            }
            22 => format!(
                "table.concat({}, {})",
                self.value(Kind::Table, depth),
                self.choices.of(&["','", "''", "1", "nil", "'; '"])
            ),
            _ => format!("type({})", self.value(Kind::Any, depth)),
        }
    }

    fn table(&mut self, depth: usize) -> String {
        let any = |this: &mut Self| this.value(Kind::Any, depth);
        match self.choices.below(20) {
            0 | 1 => format!("{{{}}}", self.list(depth)),
            2 => format!("{{[{}] = {}}}", self.key(), any(self)),
            3 => format!("{{{}, {}}}", any(self), any(self)),
            4 | 5 => self.reply(depth),
            6..=8 => format!("cjson.decode({})", self.value(Kind::Text, depth)),
            9 => format!("cjson.decode(cjson.encode({}))", any(self)),
            10 | 11 => format!("{{cmsgpack.unpack({})}}", self.value(Kind::Text, depth)),
            12 => format!("{{cmsgpack.unpack(cmsgpack.pack({}))}}", self.list(depth)),
            13 => format!("{{struct.unpack({}, {})}}", self.choices.of(PACKS), self.value(Kind::Text, depth)),
            14 => {
                let form = self.choices.of(PACKS);
                format!(
                    "{{struct.unpack({form}, struct.pack({form}, {}, {}))}}",
                    self.value(Kind::Number, depth),
                    self.value(Kind::Any, depth)
                )
            }
            15 => format!(
                "{{cmsgpack.unpack_{}({}, {})}}",
                self.choices.of(&["one", "limit"]),
                self.value(Kind::Text, depth),
                self.choices.of(&["0", "1", "2", "-1", "1, 0", "2, 1"])
            ),
            16 => format!("{{unpack({})}}", self.value(Kind::Table, depth)),
            17 => format!(
                "(function(t) table.{} return t end)({})",
                self.choices.of(&[
                    "insert(t, 1)",
                    "insert(t, 1, 'x')",
                    "remove(t)",
                    "remove(t, 1)",
                    "sort(t)",
                    "insert(t, 5, 2)",
                    "sort(t, function(a, b) return type(a) > type(b) end)"
                ]),
                self.value(Kind::Table, depth)
            ),
            _ => self.call("pcall"),
        }
    }

    fn truth(&mut self, depth: usize) -> String {
        match self.choices.below(8) {
            0..=2 => self.choices.of(&["true", "false", "nil", "cjson.null"]).to_owned(),
            3 => format!(
                "({} {} {})",
                self.value(Kind::Any, depth),
                self.choices.of(&["==", "~=", "<", "<=", "and", "or"]),
                self.value(Kind::Any, depth)
            ),
            4 => format!("(not {})", self.value(Kind::Any, depth)),
            5 => format!("rawequal({}, {})", self.value(Kind::Any, depth), self.value(Kind::Any, depth)),
            6 => {
                format!("redis.acl_check_cmd({}, 'a')", self.choices.of(&["'GET'", "'NOSUCH'", "'SET'", "1"]))
            }
            _ => self.call("call"),
        }
    }

    /// Up to three values.
    fn list(&mut self, depth: usize) -> String {
        let values: Vec<String> = (0..self.choices.below(4)).map(|_| self.value(Kind::Any, depth)).collect();
        values.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_one_request_of_functions() {
        let mut loads = 0;
        for seed in 0..200 {
            let one = request_of_functions(&mut Choices::Seed(seed));
            assert_eq!(one, request_of_functions(&mut Choices::Seed(seed)));
            loads += u32::from(one[1] == b"LOAD");
        }
        assert!(loads > 20, "{loads}");
    }

    #[test]
    fn one_number_is_one_script() {
        for seed in 0..200 {
            let one = script(&mut Choices::Seed(seed));
            assert_eq!(one, script(&mut Choices::Seed(seed)));
            assert!(one.contains("return "), "{one}");
        }
    }
}
