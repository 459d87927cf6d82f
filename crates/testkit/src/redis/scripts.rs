//! Scripts that the [`Model`] knows: those with one call, and libraries of such functions.
//!
//! ```text
//! return(redis.pcall('append',KEYS[1],ARGV[1]))
//!
//! #!lua name=mine
//! redis.register_function{function_name='put',callback=function(KEYS,ARGV)return(redis.pcall('set',KEYS[1],ARGV[1]))end}
//! ```
//!
//! They have no spaces except in a library's first line, so that a table of words can hold them. A script's reply is that of the
//! command that it calls: the model knows only replies of one line, or of one value, and errors stay as they are.

use super::model::Model;
use super::reply::{Reply, bulk};
use super::words::{Answer, Fail, int, integer, ok};
use sha1::{Digest, Sha1};
use std::collections::{BTreeMap, BTreeSet};

/// Commands that a script may call here, and whether they change data.
const CALLED: &[(&str, bool)] = &[
    ("get", false),
    ("strlen", false),
    ("getrange", false),
    ("exists", false),
    ("type", false),
    ("pttl", false),
    ("set", true),
    ("append", true),
    ("setrange", true),
    ("getdel", true),
    ("setnx", true),
    ("del", true),
    ("pexpire", true),
];
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const ONLY_READS: &str = "ERR Write commands are not allowed from read-only scripts.";

/// A word of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Text(Vec<u8>),
    /// Which of `KEYS`.
    Key(usize),
    /// Which of `ARGV`.
    Arg(usize),
}

/// A script of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Script(Vec<Word>);

impl Script {
    fn read(text: &[u8]) -> Option<Script> {
        let text = std::str::from_utf8(text).ok()?;
        let inside = text.strip_prefix("return(redis.pcall(")?.strip_suffix("))")?;
        let words = inside.split(',').map(|word| {
            let numbered = |name| word.strip_prefix(name)?.strip_suffix(']')?.parse::<usize>().ok();
            let quoted = || word.strip_prefix('\'')?.strip_suffix('\'');
            numbered("KEYS[")
                .map(Word::Key)
                .or(numbered("ARGV[").map(Word::Arg))
                .or(quoted().map(|text| Word::Text(text.into())))
        });
        let script = Script(words.collect::<Option<_>>()?);
        script.writes().map(|_| script)
    }

    /// Whether it changes data; `None` if it calls an unknown command.
    fn writes(&self) -> Option<bool> {
        let Word::Text(name) = self.0.first()? else { return None };
        CALLED.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, writes)| *writes)
    }

    fn words(&self, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let word = |word: &Word| match word {
            Word::Text(text) => Some(text.clone()),
            Word::Key(n) => keys.get(n.checked_sub(1)?).cloned(),
            Word::Arg(n) => args.get(n.checked_sub(1)?).cloned(),
        };
        self.0.iter().map(word).collect()
    }
}

/// A function of a library.
#[derive(Clone, Debug)]
struct Function {
    library: String,
    script: Script,
    /// The function is declared to change nothing.
    no_writes: bool,
}

/// The keys of a call, and its other arguments.
type Asked<'a> = (&'a [Vec<u8>], &'a [Vec<u8>]);

/// The loaded scripts and libraries.
#[derive(Clone, Debug, Default)]
pub(super) struct Scripts {
    known: BTreeMap<String, Script>,
    functions: BTreeMap<String, Function>,
}

/// The digest by which a script is known.
pub fn digest(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a library, and its functions.
fn library(text: &[u8]) -> Option<(String, Vec<(String, Function)>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (head, rest) = text.split_once('\n')?;
    let library = head.strip_prefix("#!lua name=")?.to_owned();
    let functions = rest.lines().map(|line| {
        let (name, rest) = line.strip_prefix("redis.register_function{function_name='")?.split_once('\'')?;
        let (body, rest) = rest.strip_prefix(",callback=function(KEYS,ARGV)")?.split_once("end")?;
        let script = Script::read(body.as_bytes())?;
        let no_writes = rest == ",flags={'no-writes'}}";
        (no_writes || rest == "}")
            .then(|| (name.to_owned(), Function { library: library.clone(), script, no_writes }))
    });
    let functions = functions.collect::<Option<Vec<_>>>()?;
    Some((library, functions))
}

impl Model {
    /// Whether the model knows the right reply to this command about scripts.
    pub(super) fn knows_script(name: &str, words: &[Vec<u8>]) -> bool {
        let text = words.last().map(Vec::as_slice).unwrap_or_default();
        match name {
            "eval" | "eval_ro" => words.get(1).is_some_and(|text| Script::read(text).is_some()),
            "script|load" => Script::read(text).is_some(),
            "function|load" => library(text).is_some(),
            _ => true,
        }
    }

    pub(super) fn script(&mut self, client: usize, name: &str, args: &[Vec<u8>]) -> Answer {
        let text = |at: usize| String::from_utf8_lossy(&args[at]).to_ascii_lowercase();
        match name {
            "script|load" => {
                let script = Script::read(&args[0]).expect("it was looked at");
                let digest = digest(&args[0]);
                let told = bulk(digest.as_bytes());
                self.scripts.known.insert(digest, script);
                Ok(told.into())
            }
            "script|exists" => {
                let known = (0..args.len()).map(|at| self.scripts.known.contains_key(&text(at)));
                let lines = known.map(|known| format!(":{}\r\n", i64::from(known)));
                Ok(format!("*{}\r\n{}", args.len(), lines.collect::<String>()).into_bytes().into())
            }
            "script|flush" => {
                self.scripts.known.clear();
                ok()
            }
            "function|load" => {
                let replaces = args.len() > 1;
                let (name, functions) = library(&args[args.len() - 1]).expect("it was looked at");
                let there: BTreeSet<_> = self.scripts.functions.values().map(|one| &one.library).collect();
                if there.contains(&name) && !replaces {
                    return Err(Fail(format!("ERR Library '{name}' already exists")));
                }
                self.scripts.functions.retain(|_, function| function.library != name);
                self.scripts.functions.extend(functions);
                Ok(bulk(name.as_bytes()).into())
            }
            "eval" | "eval_ro" => {
                let script = Script::read(&args[0]).expect("it was looked at");
                let asked = asked(args)?;
                self.scripts.known.insert(digest(&args[0]), script.clone());
                self.run_script(client, &script, asked, name == "eval_ro")
            }
            "evalsha" | "evalsha_ro" => {
                let asked = asked(args)?;
                let script = self.scripts.known.get(&text(0)).cloned().ok_or(Fail(NO_SCRIPT.into()))?;
                self.run_script(client, &script, asked, name == "evalsha_ro")
            }
            "fcall" | "fcall_ro" => {
                let asked = asked(args)?;
                let name_of = String::from_utf8_lossy(&args[0]).into_owned();
                let function = self.scripts.functions.get(&name_of).cloned();
                let function = function.ok_or(Fail("ERR Function not found".into()))?;
                if name == "fcall_ro" && !function.no_writes {
                    return Fail::of("ERR Can not execute a script with write flag using *_ro command.");
                }
                self.run_script(client, &function.script, asked, function.no_writes)
            }
            _ => int(0),
        }
    }

    fn run_script(&mut self, client: usize, script: &Script, (keys, args): Asked<'_>, reads: bool) -> Answer {
        let words = script.words(keys, args);
        let words =
            words.ok_or(Fail("ERR Lua redis lib command arguments must be strings or integers".into()))?;
        if reads && script.writes() == Some(true) {
            return Fail::of(ONLY_READS);
        }
        // Scripts speak RESP2, whatever their client speaks.
        let resp3 = std::mem::take(&mut self.client(client).resp3);
        let told = self.ask_in_script(client, &words);
        self.client(client).resp3 = resp3;
        let Reply::Bytes(told) = told else { return Fail::of("ERR a reply of several values") };
        Ok(if resp3 && told == b"$-1\r\n" { b"_\r\n".to_vec() } else { told }.into())
    }
}

/// Splits arguments into keys and others; their first word is the number of keys.
fn asked(args: &[Vec<u8>]) -> Result<Asked<'_>, Fail> {
    let Ok(count) = usize::try_from(integer(&args[1])?) else {
        return Fail::of("ERR Number of keys can't be negative");
    };
    if count > args.len() - 2 {
        return Fail::of("ERR Number of keys can't be greater than number of args");
    }
    Ok(args[2..].split_at(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_one_call_are_known() {
        let script = Script::read(b"return(redis.pcall('set',KEYS[1],ARGV[2]))").unwrap();
        let [k, a, b] = [b"k", b"a", b"b"].map(|word| word.to_vec());
        let words = script.words(std::slice::from_ref(&k), &[a, b.clone()]);
        assert_eq!(words, Some(vec![b"set".to_vec(), k, b]));
        assert_eq!(script.words(&[], &[]), None);
        for text in ["return 1", "return(redis.pcall('mget',KEYS[1]))", "return(redis.pcall('get',x))"] {
            assert_eq!(Script::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(digest(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }
}
