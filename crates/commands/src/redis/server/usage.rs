//! The arguments of a command as COMMAND DOCS replies them, read from the usage in its row: the same text serves HELP, the
//! documentation and the hints that redis-cli and valkey-cli show.
//!
//! ```text
//! usage    := sequence { "|" sequence }        one of these
//! sequence := { item } [ "..." ]               "...": the sequence may be repeated
//! item     := WORD | word | "[" usage "]" | "<" usage ">"      [ ]: optional; < >: belongs together
//! ```
//!
//! A WORD without small letters stands for itself, and what is behind it up to the next WORD or bracket is its value. `key [key
//! ...]` is one argument that may be repeated.

use crate::core::output::Output;
use crate::redis::reply::{put_array, put_bulk, put_integer, put_map, put_set, put_simple};
use crate::redis::row::Command;

/// An argument, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    name: String,
    /// The token in front of it.
    token: Option<&'static str>,
    kind: Kind,
    optional: bool,
    multiple: bool,
    /// Whether the token is repeated, too.
    multiple_token: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Only its token.
    Token,
    Value,
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

/// Types of values that are not plain texts, by their names in usages.
const TYPES: &[(&str, &[&str])] = &[
    ("pattern", &["pattern"]),
    ("unix-time", &["unix-time-seconds", "unix-time-milliseconds"]),
    (
        "integer",
        &[
            "bit",
            "bytes",
            "client-id",
            "count",
            "cursor",
            "db",
            "decrement",
            "destination-db",
            "end",
            "end-slot",
            "frequency",
            "idle",
            "increment",
            "index",
            "index1",
            "index2",
            "len",
            "limit",
            "max_burst",
            "maxage",
            "milliseconds",
            "min-match-len",
            "numfields",
            "numkeys",
            "numlocal",
            "numreplicas",
            "offset",
            "period",
            "port",
            "protover",
            "quantity",
            "rank",
            "seconds",
            "size",
            "slot",
            "start",
            "start-slot",
            "stop",
            "timeout",
            "ttl",
        ],
    ),
];
/// Names of keys in usages of commands that have keys.
const KEYS: &[&str] = &["key", "key1", "key2", "newkey", "source", "destination", "destkey", "sourcekey"];

fn kind_of(name: &str, row: &Command) -> &'static str {
    if row.keys.any() && KEYS.contains(&name) {
        return "key";
    }
    if matches!(name, "score" | "weight") || row.doubles.contains(&name) {
        return "double";
    }
    TYPES.iter().find(|(_, names)| names.contains(&name)).map_or("string", |(kind, _)| kind)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Open,
    Close,
    Or,
    Again,
    Token(&'static str),
    Name(&'static str),
}

/// Splits a usage into words; for brackets, also whether they mark something optional.
fn words(usage: &'static str) -> Vec<(Word, bool)> {
    let mut words = Vec::new();
    let mut rest = usage.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '[' | ']' | '<' | '>' | '|' => 1,
            _ => rest.find([' ', '[', ']', '<', '>', '|']).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(length);
        words.push(match word {
            "[" | "<" => (Word::Open, word == "["),
            "]" | ">" => (Word::Close, word == "]"),
            "|" => (Word::Or, false),
            "..." => (Word::Again, false),
            word if word.bytes().any(|byte| byte.is_ascii_lowercase()) => (Word::Name(word), false),
            word => (Word::Token(word), false),
        });
        rest = after.trim_start();
    }
    words
}

/// The arguments of a usage; `None` if that is not well-formed.
pub(crate) fn arguments(usage: &'static str) -> Option<Vec<Argument>> {
    let words = words(usage);
    let mut reader = Reader { words: &words };
    let (arguments, again) = reader.usage()?;
    (reader.words.is_empty() && !again).then_some(arguments)
}

struct Reader<'w> {
    words: &'w [(Word, bool)],
}

impl Reader<'_> {
    fn next(&mut self) -> Option<(Word, bool)> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    fn is_next(&mut self, word: Word) -> bool {
        let is = self.words.first().is_some_and(|(first, _)| *first == word);
        if is {
            self.words = &self.words[1..];
        }
        is
    }

    /// Reads what is between two brackets, and whether it may be repeated.
    fn usage(&mut self) -> Option<(Vec<Argument>, bool)> {
        let mut all = vec![self.sequence()?];
        while self.is_next(Word::Or) {
            all.push(self.sequence().filter(|found| !found.is_empty())?);
        }
        let again = self.is_next(Word::Again);
        let one = all.len() == 1;
        let arguments = if one { all.pop()? } else { vec![one_of(all.into_iter().map(whole).collect())] };
        Some((arguments, again))
    }

    fn sequence(&mut self) -> Option<Vec<Argument>> {
        let mut found: Vec<Argument> = Vec::new();
        // A token, and where its values begin.
        let mut token: Option<(&'static str, usize)> = None;
        while let Some((word, _)) = self.words.first().copied() {
            match word {
                Word::Close | Word::Or | Word::Again => break,
                Word::Token(text) => {
                    give(&mut found, token.take());
                    self.next();
                    token = Some((text, found.len()));
                }
                Word::Name(name) => {
                    self.next();
                    found.push(Argument::new(name, Kind::Value));
                }
                Word::Open => {
                    let (_, optional) = self.next()?;
                    let (inside, again) = self.usage()?;
                    let (close, closes_optional) = self.next()?;
                    if close != Word::Close || closes_optional != optional || inside.is_empty() {
                        return None;
                    }
                    if !optional {
                        found.push(whole(inside));
                        continue;
                    }
                    give(&mut found, token.take());
                    if again && comes_again(&mut found, &inside) {
                        continue;
                    }
                    let mut argument = whole(inside);
                    argument.optional = true;
                    argument.multiple |= again;
                    argument.multiple_token |= again && argument.token.is_some();
                    found.push(argument);
                }
            }
        }
        give(&mut found, token);
        (!found.is_empty() || self.words.is_empty()).then_some(found)
    }
}

impl Argument {
    fn new(name: &str, kind: Kind) -> Argument {
        let name = name.to_owned();
        Argument { name, token: None, kind, optional: false, multiple: false, multiple_token: false }
    }
}

/// Gives a token the values behind it.
fn give(found: &mut Vec<Argument>, token: Option<(&'static str, usize)>) {
    let Some((token, from)) = token else { return };
    let mut values = found.split_off(from);
    let argument = match (values.pop(), values.is_empty()) {
        (None, _) => Argument::new(&token.to_ascii_lowercase(), Kind::Token),
        (Some(value), true) => value,
        (Some(last), false) => {
            values.push(last);
            Argument::new(&token.to_ascii_lowercase(), Kind::Block(values))
        }
    };
    found.push(Argument { token: Some(token), ..argument });
}

/// If a bracket only says that what is in front of it may be repeated, marks that as repeated, and returns true.
fn comes_again(found: &mut Vec<Argument>, inside: &[Argument]) -> bool {
    let Some(from) = found.len().checked_sub(inside.len()) else { return false };
    let before = &found[from..];
    let with_token = before == inside;
    let mut values = before.to_vec();
    values[0].token = None;
    if !with_token && values != inside {
        return false;
    }
    let mut argument = whole(found.split_off(from));
    argument.multiple = true;
    argument.multiple_token = with_token && argument.token.is_some();
    found.push(argument);
    true
}

/// Makes one argument of several.
fn whole(mut arguments: Vec<Argument>) -> Argument {
    if arguments.len() == 1 {
        return arguments.remove(0);
    }
    let name = joined(&arguments, "-");
    Argument::new(&name, Kind::Block(arguments))
}

fn one_of(arguments: Vec<Argument>) -> Argument {
    Argument::new(&joined(&arguments, "-or-"), Kind::OneOf(arguments))
}

fn joined(arguments: &[Argument], between: &str) -> String {
    let named = arguments.iter().map(|one| one.token.map_or(one.name.clone(), str::to_ascii_lowercase));
    named.collect::<Vec<_>>().join(between)
}

/// Writes arguments as COMMAND DOCS does.
pub(crate) fn put(out: &mut Output, resp3: bool, row: &Command, arguments: &[Argument]) {
    put_array(out, arguments.len());
    for argument in arguments {
        let kind = match &argument.kind {
            Kind::Token => "pure-token",
            Kind::Value => kind_of(&argument.name, row),
            Kind::OneOf(_) => "oneof",
            Kind::Block(_) => "block",
        };
        let (inside, shown) = match &argument.kind {
            Kind::OneOf(inside) | Kind::Block(inside) => (Some(inside), None),
            Kind::Token | Kind::Value => (None, Some(argument.name.as_str())),
        };
        let flags: Vec<&str> = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect();
        let texts = [
            ("name", Some(argument.name.as_str())),
            ("type", Some(kind)),
            ("display_text", shown),
            ("token", argument.token),
        ];
        let texts = || texts.iter().filter_map(|(name, text)| text.map(|text| (name, text)));
        let key = kind == "key";
        let facts = texts().count()
            + usize::from(key)
            + usize::from(!flags.is_empty())
            + usize::from(inside.is_some());
        put_map(out, resp3, facts);
        for (name, text) in texts() {
            put_bulk(out, name.as_bytes());
            put_bulk(out, text.as_bytes());
        }
        if key {
            put_bulk(out, b"key_spec_index");
            put_integer(out, 0);
        }
        if !flags.is_empty() {
            put_bulk(out, b"flags");
            put_set(out, resp3, flags.len());
            flags.iter().for_each(|name| put_simple(out, name));
        }
        if let Some(inside) = inside {
            put_bulk(out, b"arguments");
            put(out, resp3, row, inside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::table::ROWS;

    /// As redis-cli shows them.
    fn shown(arguments: &[Argument], between: &str) -> String {
        let one = |argument: &Argument| {
            let inside = match &argument.kind {
                Kind::Token => String::new(),
                Kind::Value => argument.name.clone(),
                Kind::OneOf(inside) => format!("<{}>", shown(inside, "|")),
                Kind::Block(inside) => shown(inside, " "),
            };
            let token = argument.token.unwrap_or_default();
            let once = format!("{token} {inside}").trim().to_owned();
            let again = if argument.multiple_token { &once } else { &inside };
            let many = if argument.multiple { format!("{once} [{again} ...]") } else { once.clone() };
            if argument.optional { format!("[{many}]") } else { many }
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(between)
    }

    fn read(usage: &'static str) -> String {
        shown(&arguments(usage).unwrap_or_else(|| panic!("{usage}")), " ")
    }

    #[test]
    fn every_row_says_what_arguments_it_has() {
        let mut wrong = Vec::new();
        for row in ROWS.all().flat_map(|(_, row)| std::iter::once(row).chain(row.subcommands())) {
            let found = arguments(row.usage).unwrap_or_else(|| panic!("{} {}", row.name, row.usage));
            let open = found.iter().any(|one| one.optional || one.multiple || varies(one));
            // As many as have to be there: no more than the arity says, and no fewer.
            // Of the options of CLIENT KILL one has to be there, which no usage says.
            let one_more = usize::from(row.name == "client|kill");
            // HOTKEYS START says itself that METRICS and their count are missing.
            let said = if row.name == "hotkeys|start" { 2 } else { 0 };
            let least = one_more + 1 + row.name.matches('|').count() + needed(&found) - said;
            let fits = least == row.arity.unsigned_abs() as usize && (!open || row.arity < 0);
            let fits = fits || !row.subcommands().is_empty();
            let keys = !row.keys.any() || any(&found, &|one| kind_of(&one.name, row) == "key");
            if found.is_empty() != row.usage.is_empty() || !keys || !fits {
                wrong.push(format!("{} {}: {} words, arity {}", row.name, row.usage, least, row.arity));
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    fn any(arguments: &[Argument], is: &dyn Fn(&Argument) -> bool) -> bool {
        arguments.iter().any(|one| match &one.kind {
            Kind::OneOf(inside) | Kind::Block(inside) => any(inside, is),
            Kind::Token | Kind::Value => is(one),
        })
    }

    /// Words that have to be there.
    fn needed(arguments: &[Argument]) -> usize {
        let one = |argument: &Argument| {
            let inside = match &argument.kind {
                Kind::Token => 0,
                Kind::Value => 1,
                Kind::OneOf(inside) => {
                    inside.iter().map(|one| needed(std::slice::from_ref(one))).min().unwrap_or(0)
                }
                Kind::Block(inside) => needed(inside),
            };
            if argument.optional { 0 } else { inside + usize::from(argument.token.is_some()) }
        };
        arguments.iter().map(one).sum()
    }

    /// Alternatives of different lengths.
    fn varies(argument: &Argument) -> bool {
        match &argument.kind {
            Kind::OneOf(inside) => {
                let mut lengths = inside.iter().map(|one| needed(std::slice::from_ref(one)));
                let first = lengths.next();
                lengths.any(|length| Some(length) != first) || inside.iter().any(varies)
            }
            Kind::Block(inside) => inside.iter().any(|one| one.optional || one.multiple || varies(one)),
            Kind::Token | Kind::Value => false,
        }
    }

    #[test]
    fn a_usage_is_read_as_it_is_meant() {
        for (usage, meant) in [
            ("", ""),
            ("key value", "key value"),
            ("key [key ...]", "key [key ...]"),
            ("[channel [channel ...]]", "[channel [channel ...]]"),
            ("key value [key value ...]", "key value [key value ...]"),
            ("key [NX|XX|IFEQ value] [GET]", "key [<NX|XX|IFEQ value>] [GET]"),
            ("<AND|OR> destkey key [key ...]", "<AND|OR> destkey key [key ...]"),
            ("[FILTERBY <MODULE name|PATTERN pattern>]", "[FILTERBY <MODULE name|PATTERN pattern>]"),
            ("[ID id [id ...]] [PREFIX p [PREFIX p ...]]", "[ID id [id ...]] [PREFIX p [PREFIX p ...]]"),
            ("[AUTH user password] [SETNAME name]", "[AUTH user password] [SETNAME name]"),
            ("key [GET type at ...]", "key [GET type at [GET type at ...]]"),
            ("ip:port | [A a] [B b]", "<ip:port|[A a] [B b]>"),
            ("0|1", "<0|1>"),
        ] {
            assert_eq!(read(usage), meant, "{usage}");
        }
    }

    #[test]
    fn a_usage_that_is_none_is_not_taken_for_one() {
        for usage in ["[", "key]", "[key>", "<key]", "[]", "a ||b", "key ...", "|"] {
            assert_eq!(arguments(usage), None, "{usage}");
        }
    }
}
