//! FUNCTION: libraries of functions, which FCALL calls.

use larder_protocol::resp::Args;
use larder_script::{Compiled, is_long_text};

use super::dumping::dump;
use super::kill;
use super::later::is_paused;
use super::library::{self, Libraries, Library, Policy, Reading, head};
use super::restoring::restore;
use super::worker::State;
use crate::core::glob::Pattern;
use crate::redis::call::{Call, bounded, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail, shown};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_array, put_bulk, put_integer, put_map, put_null, put_set, put_simple};
use crate::redis::row::flag::{ALLOW_BUSY, DENYOOM, LOADING, NOSCRIPT, STALE, WEIGHTLESS, WRITE};
use crate::redis::row::{Command, NO_KEYS, Tells};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// How long FUNCTION LIST may match names, in nanoseconds.
const LIST_NS_MAX: u64 = 10_000_000;

pub(crate) const NOT_FOUND: Fail = Fail::of("ERR Function not found");

pub(crate) const FUNCTION: &[Definition] = &[
    Command::args("function|flush", -2, WRITE | NOSCRIPT | WEIGHTLESS, NO_KEYS, |call, mut args| {
        match (args.next(), args.next()) {
            (_, Some(_)) => return Err(Fail::subcommand_arity("FUNCTION", "FLUSH")),
            (None, None) => {}
            (Some(word), None) if is(word, "ASYNC") || is(word, "SYNC") => {}
            _ => return Err(Fail::of("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        }
        libraries(call).flush(call.cx.guard.store());
        State::forget(call);
        call.ok()
    })
    .tells(Tells::Nothing)
    .doc("7.0.0", "[ASYNC|SYNC]", "Forgets all libraries."),
    Command::args("function|list", -2, NOSCRIPT | WEIGHTLESS, NO_KEYS, list).doc(
        "7.0.0",
        "[LIBRARYNAME pattern] [WITHCODE]",
        "Libraries and their functions.",
    ),
    Command::args("function|stats", 2, NOSCRIPT | ALLOW_BUSY | WEIGHTLESS, NO_KEYS, stats).doc(
        "7.0.0",
        "",
        "Which function runs, and how many there are.",
    ),
    Command::args("function|kill", 2, NOSCRIPT | ALLOW_BUSY | WEIGHTLESS, NO_KEYS, |call, _| {
        kill::kill(call, true)
    })
    .doc("7.0.0", "", "Ends functions that have changed nothing."),
    Command::args("function|delete", 3, WRITE | NOSCRIPT | WEIGHTLESS, NO_KEYS, |call, mut args| {
        let name = next(&mut args)?;
        let store = call.cx.guard.store();
        match std::str::from_utf8(name) {
            Ok(name) if libraries(call).forget(store, name) => call.ok(),
            _ => Err(Fail::of("ERR Library not found")),
        }
    })
    .tells(Tells::Nothing)
    .doc("7.0.0", "library-name", "Forgets a library."),
    Command::args("function|load", -3, WRITE | DENYOOM | NOSCRIPT | WEIGHTLESS, NO_KEYS, load)
        .tells(Tells::Nothing)
        .doc("7.0.0", "[REPLACE] function-code", "Makes a library known."),
    Command::args("function|dump", 2, NOSCRIPT | WEIGHTLESS, NO_KEYS, dump).doc(
        "7.0.0",
        "",
        "All libraries in a form that FUNCTION RESTORE reads.",
    ),
    Command::args("function|restore", -3, WRITE | DENYOOM | NOSCRIPT | WEIGHTLESS, NO_KEYS, restore)
        .tells(Tells::Nothing)
        .doc(
            "7.0.0",
            "serialized-value [FLUSH|APPEND|REPLACE]",
            "Makes libraries known that FUNCTION DUMP has given.",
        ),
    Command::args("function|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "function")
    })
    .doc("7.0.0", "", "What FUNCTION can do."),
];

/// Whether there is a function of this name.
pub(crate) fn is_known(call: &Call<'_, '_, '_>, name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| libraries(call).find(name).is_some())
}

/// Whether the function that FCALL's words name may keep something in variables of its library.
pub(crate) fn keeps(call: &Call<'_, '_, '_>, mut words: Args<'_>) -> bool {
    let name = words.next().and_then(|name| std::str::from_utf8(name).ok());
    let found = name.and_then(|name| libraries(call).find(name));
    found.is_some_and(|(library, at)| library.functions[at].nature.keeps)
}

fn libraries<'c>(call: &Call<'_, 'c, '_>) -> &'c Libraries {
    &call.shared.libraries
}

/// The error of FUNCTION LOAD where another library has the name, and stays.
fn taken(name: &str) -> String {
    format!("ERR Library '{name}' already exists")
}

/// A library that is to be loaded.
struct Loads<'a> {
    policy: Policy,
    code: &'a [u8],
    /// The name in its first line, and where that line ends.
    name: Box<str>,
    end: usize,
}

/// Parses the words of FUNCTION LOAD, and checks the name.
fn loads<'a>(call: &Call<'_, '_, '_>, mut args: Args<'a>) -> Result<Loads<'a>, Fail> {
    let mut policy = Policy::Append;
    let mut code = next(&mut args)?;
    for word in args {
        if !is(code, "REPLACE") {
            let word = shown(code, 128);
            return Err(Fail::with(format!("ERR Unknown option given: {word}")));
        }
        (policy, code) = (Policy::Replace, word);
    }
    library::bounded(code)?;
    // This is checked before it is compiled, and again when it is added: another may have come meanwhile.
    let (name, end) = head(code)?;
    if policy == Policy::Append && libraries(call).has(&name) {
        return Err(Fail::with(taken(&name)));
    }
    Ok(Loads { policy, code, name, end })
}

fn load(call: &mut Call<'_, '_, '_>, words: Args<'_>) -> Done {
    let Loads { policy, code, name, end } = loads(call, words)?;
    let mut reading = Reading::begin(call)?;
    if is_long_text(&code[end..]) {
        return reading.compile(call, &code[end..], name, words);
    }
    let library = reading.read(call, code, (name, end), &mut 0);
    reading.end(call);
    add(call, library?, policy)
}

/// Goes on with FUNCTION LOAD when its text was compiled in later turns.
pub(super) fn load_compiled(
    call: &mut Call<'_, '_, '_>,
    mut reading: Reading,
    compiled: &Compiled,
    words: Args<'_>,
) -> Done {
    if is_paused(call) {
        reading.end(call);
        let kept = Kept::new(call, words)?;
        call.go_on_with(LoadsLater { kept });
        return Ok(());
    }
    let library = loads(call, words).and_then(|Loads { policy, code, name, .. }| {
        let library = reading.read_compiled(call, code, name, compiled, &mut 0)?;
        Ok((library, policy))
    });
    reading.end(call);
    let (library, policy) = library?;
    add(call, library, policy)
}

/// A FUNCTION LOAD that waits for the end of a pause, and then begins anew.
#[derive(Debug)]
struct LoadsLater {
    kept: Kept,
}

impl Job for LoadsLater {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if let Some(ms) = call.paused_ms(|_| true) {
            return Ok(Step::Sleep(ms));
        }
        load(call, self.kept.words())?;
        Ok(Step::Done)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

/// Adds a library that was loaded, and replies its name.
fn add(call: &mut Call<'_, '_, '_>, library: Library, policy: Policy) -> Done {
    let name = library.name.clone();
    libraries(call).add(call.cx.guard.store(), vec![library], policy, taken)?;
    call.give_way();
    call.bulk(name.as_bytes())
}

fn list(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (mut pattern, mut with_code) = (None, false);
    while let Some(word) = args.next() {
        if is(word, "WITHCODE") && !with_code {
            with_code = true;
        } else if is(word, "LIBRARYNAME") && pattern.is_none() {
            let given = args.next().ok_or(Fail::of("ERR library name argument was not given"))?;
            let given = bounded(given)?;
            pattern = Some((Heap::of_pattern(call, given, true), Pattern::of(given, true)));
        } else {
            return Err(Fail::with(format!("ERR Unknown argument {}", shown(word, 128))));
        }
    }
    let mut all = libraries(call).all();
    if let Some((_held, pattern)) = pattern {
        let bytes = all.iter().map(|library| library.name.len() as u64).sum();
        let ns = pattern.weight().with_reading_ns(all.len() as u64, bytes);
        if ns > LIST_NS_MAX {
            return Err(Fail::of("ERR this pattern takes too long for so many libraries"));
        }
        call.spend(ns);
        all.retain(|library| pattern.matches(library.name.as_bytes()));
    }
    let most = libraries(call).size().2 as usize;
    call.make_room(most * 2)?;
    let resp3 = call.client.resp3;
    call.array(all.len());
    for library in &all {
        put_library(call, library, with_code, resp3);
    }
    Ok(())
}

fn put_library(call: &mut Call<'_, '_, '_>, library: &Library, with_code: bool, resp3: bool) {
    let out = &mut *call.out;
    put_map(out, resp3, 3 + usize::from(with_code));
    put_bulk(out, b"library_name");
    put_bulk(out, library.name.as_bytes());
    put_bulk(out, b"engine");
    put_bulk(out, b"LUA");
    put_bulk(out, b"functions");
    put_array(out, library.functions.len());
    for function in &library.functions {
        put_map(out, resp3, 3);
        put_bulk(out, b"name");
        put_bulk(out, function.nature.name.as_bytes());
        put_bulk(out, b"description");
        match &function.description {
            Some(text) => put_bulk(out, text),
            None => put_null(out, resp3),
        }
        put_bulk(out, b"flags");
        put_set(out, resp3, function.flags.len());
        for flag in &function.flags {
            put_simple(out, flag);
        }
    }
    if with_code {
        put_bulk(out, b"library_code");
        put_bulk(out, &library.code);
    }
}

fn stats(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let (count, functions, _) = libraries(call).size();
    let resp3 = call.client.resp3;
    call.map(2);
    put_bulk(call.out, b"running_script");
    kill::show(call);
    let out = &mut *call.out;
    put_bulk(out, b"engines");
    put_map(out, resp3, 1);
    put_bulk(out, b"LUA");
    put_map(out, resp3, 2);
    put_bulk(out, b"libraries_count");
    put_integer(out, count as i64);
    put_bulk(out, b"functions_count");
    put_integer(out, functions as i64);
    Ok(())
}
