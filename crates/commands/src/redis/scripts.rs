//! EVAL, EVALSHA, EVAL_RO, EVALSHA_RO, SCRIPT, and FUNCTION, FCALL, FCALL_RO: Lua scripts that call commands, each as
//! one moment.
//!
//! ```text
//! EVAL ─► cache: which it is ─► worker: its Lua state, the script compiled ─► run: its keys taken, begun, ended ─► reply
//! ```
//!
//! `run` has what is held while a script runs, and when it is begun anew; `later`, how it goes on in later turns; `logged`, what
//! it logs; `compiling`, how long texts are compiled; `library`, how libraries are loaded; `dumping` and `restoring`, their DUMP
//! and RESTORE; `worker`, what a worker keeps for scripts; `kill`, what others see of running ones. `redis/lua.rs` has the known
//! scripts and libraries.

mod compiling;
mod dumping;
pub(crate) mod functions;
mod kill;
mod later;
pub(crate) mod library;
mod logged;
mod restoring;
mod run;
mod worker;

use larder_protocol::resp::Args;
use larder_script::{Compiled, is_long_text, sha1_hex};

use super::call::{Call, integer, is, next};
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::lua::cache::{self, Id, Script, id_of};
use super::lua::libraries::Library;
use super::reply::{put_bulk, put_integer};
use super::row::flag::{
    ALLOW_BUSY, DENYOOM, IS_TOLD, LOADING, MOVABLEKEYS, NOSCRIPT, PUBLISHES, READONLY, REPLIES_A_WORD,
    SKIP_MONITOR, STALE, TAKES_ALL, WEIGHTLESS,
};
use super::row::{Access, Command, Keys, NO_KEYS};
use compiling::Compiles;
pub(crate) use later::Collecting;
use run::{Asked, Run, Then};
use std::sync::Arc;
use worker::State;

const NO_SCRIPT: Fail = Fail::of("NOSCRIPT No matching script. Please use EVAL.");
const EVALS: u64 = NOSCRIPT | STALE | MOVABLEKEYS | SKIP_MONITOR | WEIGHTLESS;
/// Behind the script: the number of keys, and the keys.
const SCRIPT_KEYS: Keys = Keys::Counted { count: 2, step: 1 };

pub(crate) const ROWS: &[Definition] = &[
    Command::args("eval", -3, EVALS, SCRIPT_KEYS, |call, args| EVAL.ask(call, args))
        .with(TAKES_ALL | IS_TOLD | PUBLISHES)
        .access(&[Access::Change])
        .doc("2.6.0", "script numkeys [key [key ...]] [arg [arg ...]]", "Runs a Lua script."),
    Command::args("evalsha", -3, EVALS, SCRIPT_KEYS, |call, args| EVALSHA.ask(call, args))
        .with(TAKES_ALL | IS_TOLD | PUBLISHES)
        .access(&[Access::Change])
        .doc("2.6.0", "sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a script that is known."),
    Command::args("eval_ro", -3, EVALS | READONLY, SCRIPT_KEYS, |call, args| EVAL_RO.ask(call, args))
        .with(TAKES_ALL)
        .doc(
            "7.0.0",
            "script numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a script that changes nothing.",
        ),
    Command::args("evalsha_ro", -3, EVALS | READONLY, SCRIPT_KEYS, |call, args| EVALSHA_RO.ask(call, args))
        .with(TAKES_ALL)
        .doc(
            "7.0.0",
            "sha1 numkeys [key [key ...]] [arg [arg ...]]",
            "Runs a script that is known and changes nothing.",
        ),
    Command::args("fcall", -3, EVALS, SCRIPT_KEYS, |call, args| FCALL.ask(call, args))
        .with(TAKES_ALL | IS_TOLD | PUBLISHES)
        .access(&[Access::Change])
        .doc("7.0.0", "function numkeys [key [key ...]] [arg [arg ...]]", "Calls a function of a library."),
    Command::args("fcall_ro", -3, EVALS | READONLY, SCRIPT_KEYS, |call, args| FCALL_RO.ask(call, args))
        .with(TAKES_ALL)
        .doc(
            "7.0.0",
            "function numkeys [key [key ...]] [arg [arg ...]]",
            "Calls a function that changes nothing.",
        ),
    Command::container("function", functions::FUNCTION).doc("7.0.0", "", "Libraries of functions."),
    Command::container("script", SCRIPT).doc("2.6.0", "", "Scripts that are known."),
];

const SCRIPT: &[Definition] = &[
    Command::args("script|load", 3, NOSCRIPT | STALE | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, load).doc(
        "2.6.0",
        "script",
        "Keeps a script; its SHA-1 digest.",
    ),
    Command::args("script|exists", -3, NOSCRIPT | WEIGHTLESS, NO_KEYS, exists).doc(
        "2.6.0",
        "sha1 [sha1 ...]",
        "Which scripts are known.",
    ),
    Command::args("script|show", 3, NOSCRIPT | WEIGHTLESS, NO_KEYS, |call, mut args| {
        let script = id_of(next(&mut args)?).and_then(|id| call.shared.scripts.find(&id)).ok_or(NO_SCRIPT)?;
        call.make_room(script.body.len())?;
        put_bulk(call.out, &script.body);
        Ok(())
    })
    .doc("8.0.0", "sha1", "A script that is known."),
    Command::args("script|flush", -2, NOSCRIPT | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, mut args| {
        match (args.next(), args.next()) {
            (None, _) => {}
            (Some(word), None) if is(word, "ASYNC") || is(word, "SYNC") => {}
            _ => return Err(Fail::of("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
        }
        call.shared.scripts.flush(call.cx.guard.store());
        State::forget(call);
        call.ok()
    })
    .doc("2.6.0", "[ASYNC|SYNC]", "Forgets all scripts."),
    Command::args("script|kill", 2, NOSCRIPT | ALLOW_BUSY | WEIGHTLESS, NO_KEYS, |call, _| {
        kill::kill(call, false)
    })
    .doc("2.6.0", "", "Ends scripts that have changed nothing."),
    Command::args("script|debug", 3, NOSCRIPT | WEIGHTLESS, NO_KEYS, |call, mut args| {
        let word = next(&mut args)?;
        if is(word, "NO") {
            return call.ok();
        }
        let known = is(word, "YES") || is(word, "SYNC");
        Err(Fail::of(if known {
            "ERR scripts are not debugged here"
        } else {
            "ERR Use SCRIPT DEBUG YES/SYNC/NO"
        }))
    })
    .doc("3.2.0", "<YES|SYNC|NO>", "Fails, unless it is NO: scripts are not debugged."),
    Command::args("script|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "script")
    })
    .doc("5.0.0", "", "What SCRIPT can do."),
];

/// Splits a script's words into its keys and its arguments, behind the number of keys.
fn split<'a>(args: &mut Args<'a>) -> Result<(Args<'a>, Args<'a>), Fail> {
    let count = integer(next(args)?)?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Fail::of("ERR Number of keys can't be negative"));
    };
    if count > args.len() {
        return Err(Fail::of("ERR Number of keys can't be greater than number of args"));
    }
    let mut rest = *args;
    if count > 0 {
        rest.nth(count - 1);
    }
    Ok((Args::rest(args.encoded(), count), rest))
}

/// How a script is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// By its text.
    Text,
    /// By its digest.
    Digest,
    /// By its name, as a function of a library.
    Name,
}

/// How a script is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    by: By,
    /// It may change nothing.
    reads: bool,
}

const EVAL: How = How { by: By::Text, reads: false };
const EVALSHA: How = How { by: By::Digest, reads: false };
const EVAL_RO: How = How { by: By::Text, reads: true };
const EVALSHA_RO: How = How { by: By::Digest, reads: true };
const FCALL: How = How { by: By::Name, reads: false };
const FCALL_RO: How = How { by: By::Name, reads: true };

/// Whether a full store that refuses writes refuses this command before it begins. `args`: those behind its name.
pub(crate) fn needs_memory(call: &Call<'_, '_, '_>, row: &Command, mut args: Args<'_>) -> bool {
    if !row.runs_script() {
        return row.has(DENYOOM);
    }
    let Some(source) = args.next() else { return false };
    match row.name {
        "eval" | "eval_ro" => cache::said(source).is_some_and(|nature| nature.needs_memory()),
        "evalsha" | "evalsha_ro" => {
            let script = id_of(source).and_then(|id| call.shared.scripts.find(&id));
            script.is_some_and(|script| script.nature.needs_memory())
        }
        _ => {
            let name = std::str::from_utf8(source).ok();
            let found = name.and_then(|name| call.shared.libraries.find(name));
            found.is_some_and(|(library, at)| library.functions[at].nature.needs_memory())
        }
    }
}

/// Whether this command runs in the worker's Lua state, where others have left garbage.
pub(crate) fn uses_lua(row: &Command) -> bool {
    row.runs_script() || row.name == "script|load"
}

impl How {
    /// Runs a script, now or in the next turn.
    fn ask(self, call: &mut Call<'_, '_, '_>, words: Args<'_>) -> Done {
        if later::is_late(call, self, words)? {
            return later::begin_later(call, self, words);
        }
        self.begin(call, words, false)
    }

    /// What errors call a script before it is found.
    fn name(self, source: &[u8]) -> Box<str> {
        match self.by {
            By::Text => sha1_hex(source).into(),
            By::Digest | By::Name => String::from_utf8_lossy(source).into(),
        }
    }

    /// Runs a script: `words` are those behind the command's name. `is_collected`: the worker's state was collected for it.
    fn begin(self, call: &mut Call<'_, '_, '_>, words: Args<'_>, is_collected: bool) -> Done {
        let (source, asked) = self.asked(call, words)?;
        let mut state = State::of(call)?;
        let run = self.prepared(call, &mut state, source, asked, is_collected);
        self.run(call, state, run, (source, asked), is_collected)
    }

    /// Runs what was prepared, or collects the state first if that found no room.
    fn run(
        self,
        call: &mut Call<'_, '_, '_>,
        state: Box<State>,
        run: Result<Run, Fail>,
        (source, asked): (&[u8], Asked<'_>),
        is_collected: bool,
    ) -> Done {
        match run {
            // The run compiles the text, and is given no keys or arguments.
            Ok(run) if run.prepares() => {
                let asked = Asked { words: asked.words, keys: Args::EMPTY, args: Args::EMPTY };
                later::run(call, state, run, asked)
            }
            Ok(run) => later::run(call, state, run, asked),
            Err(_) if state.engine.wants_room() && !is_collected => {
                later::collect(call, state, self.name(source), asked.words, Then::Run(self))
            }
            Err(fail) => {
                state.give_back(call);
                Err(fail)
            }
        }
    }

    /// Parses the words: the script, and its keys and arguments.
    fn asked<'a>(self, call: &Call<'_, '_, '_>, words: Args<'a>) -> Result<(&'a [u8], Asked<'a>), Fail> {
        let mut args = words;
        let source = next(&mut args)?;
        match self.by {
            // Scripts have shorter texts.
            By::Text => library::bounded(source)?,
            // A missing script is an error before wrong keys are.
            By::Digest if id_of(source).is_none() => return Err(NO_SCRIPT),
            By::Name if !functions::is_known(call, source) => return Err(functions::NOT_FOUND),
            By::Digest | By::Name => {}
        }
        let (keys, args) = match split(&mut args) {
            Err(fail) if self.by == By::Name && fail == Fail::NOT_AN_INTEGER => {
                return Err(Fail::of("ERR Bad number of keys provided"));
            }
            split => split?,
        };
        Ok((source, Asked { words, keys, args }))
    }

    /// Runs a script whose text was compiled in later turns.
    fn begin_compiled(
        self,
        call: &mut Call<'_, '_, '_>,
        mut state: Box<State>,
        words: Args<'_>,
        compiled: &Compiled,
    ) -> Done {
        let asked = self.asked(call, words).and_then(|(source, asked)| {
            let id = self.id(source)?;
            let found = self.found(call, &id, source)?;
            let script = found.known(call)?;
            state.keep(&script, compiled);
            Ok((script, asked))
        });
        let (script, asked) = match asked {
            Ok(asked) => asked,
            Err(fail) => {
                state.give_back(call);
                return Err(fail);
            }
        };
        if later::is_paused(call) {
            state.give_back(call);
            return later::begin_later(call, self, words);
        }
        let run = Run::new(call, Arc::clone(&script.nature), compiled.clone(), asked.args, self);
        match run {
            Ok(run) => later::run(call, state, run, asked),
            Err(fail) => {
                state.give_back(call);
                Err(fail)
            }
        }
    }

    /// Calls a function whose library's text was compiled in later turns. `is_collected`: the state was collected for it.
    fn call_compiled(
        self,
        call: &mut Call<'_, '_, '_>,
        mut state: Box<State>,
        words: Args<'_>,
        (compiled, library): (Compiled, &Arc<Library>),
        is_collected: bool,
    ) -> Done {
        let (source, asked) = match self.asked(call, words) {
            Ok(asked) => asked,
            Err(fail) => {
                state.give_back(call);
                return Err(fail);
            }
        };
        let found = std::str::from_utf8(source).ok().and_then(|name| call.shared.libraries.find(name));
        let Some((found, at)) = found.filter(|(found, _)| Arc::ptr_eq(found, library)) else {
            // Another library has its name meanwhile.
            state.give_back(call);
            return self.begin(call, words, is_collected);
        };
        if later::is_paused(call) {
            state.give_back(call);
            return later::begin_later(call, self, words);
        }
        let nature = Arc::clone(&found.functions[at].nature);
        let loaded = state.function(call, &found, &nature.name, is_collected, Some(compiled));
        let run = loaded.and_then(|compiled| Run::new(call, nature, compiled, asked.args, self));
        self.run(call, state, run, (source, asked), is_collected)
    }

    /// The digest of a script.
    fn id(self, source: &[u8]) -> Result<Id, Fail> {
        if self.by == By::Digest { id_of(source).ok_or(NO_SCRIPT) } else { Ok(digest(source)) }
    }

    /// The run of a script, ready in this state, or else the run that compiles its text. `is_collected`: the state was collected
    /// for it.
    fn prepared(
        self,
        call: &mut Call<'_, '_, '_>,
        state: &mut State,
        source: &[u8],
        asked: Asked<'_>,
        is_collected: bool,
    ) -> Result<Run, Fail> {
        if self.by == By::Name {
            let name = std::str::from_utf8(source).map_err(|_| functions::NOT_FOUND)?;
            let (library, at) = call.shared.libraries.find(name).ok_or(functions::NOT_FOUND)?;
            if !state.has(&library) && is_long_text(library.text()) {
                let compiles = Compiles::Function { how: self, library: Arc::clone(&library), is_collected };
                return Ok(compiles.run(call, state, library.text(), self.name(source)));
            }
            let nature = Arc::clone(&library.functions[at].nature);
            let compiled = state.function(call, &library, &nature.name, is_collected, None)?;
            return Run::new(call, nature, compiled, asked.args, self);
        }
        let id = self.id(source)?;
        let (script, compiled) = match state.ready(&id) {
            Some(ready) => ready,
            None => {
                let found = self.found(call, &id, source)?;
                let text = found.script().code();
                if is_long_text(text) {
                    return Ok(Compiles::Script(self).run(call, state, text, self.name(source)));
                }
                // Only a script that can be compiled becomes known.
                let compiled = state.compile(found.script())?;
                let script = found.known(call)?;
                state.keep(&script, &compiled);
                (script, compiled)
            }
        };
        Run::new(call, Arc::clone(&script.nature), compiled, asked.args, self)
    }

    /// Finds a script by its digest, or reads a new one from its text.
    fn found(self, call: &Call<'_, '_, '_>, id: &Id, source: &[u8]) -> Result<Found, Fail> {
        match call.shared.scripts.find(id) {
            Some(script) => Ok(Found::Known(script)),
            None if self.by == By::Digest => Err(NO_SCRIPT),
            None => Ok(Found::New(Script::read(*id, source)?)),
        }
    }
}

/// A script that was asked for.
enum Found {
    Known(Arc<Script>),
    New(Script),
}

impl Found {
    fn script(&self) -> &Script {
        match self {
            Found::Known(script) => script,
            Found::New(script) => script,
        }
    }

    /// Makes a new script known.
    fn known(self, call: &mut Call<'_, '_, '_>) -> Result<Arc<Script>, Fail> {
        match self {
            Found::Known(script) => Ok(script),
            Found::New(script) => {
                let script = call.shared.scripts.add(call.cx.guard.store(), script, false)?;
                call.give_way();
                Ok(script)
            }
        }
    }
}

fn digest(source: &[u8]) -> Id {
    sha1_hex(source).as_bytes().try_into().expect("a digest has forty digits")
}

fn load(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    load_in(call, args, false)
}

/// Serves SCRIPT LOAD. `is_collected`: the worker's state was collected for it.
fn load_in(call: &mut Call<'_, '_, '_>, mut args: Args<'_>, is_collected: bool) -> Done {
    let words = args;
    let source = next(&mut args)?;
    library::bounded(source)?;
    let id = digest(source);
    let state = State::of(call)?;
    let script = Script::read(id, source);
    if let Ok(script) = &script
        && is_long_text(script.code())
    {
        let run = Compiles::ScriptLoad.run(call, &state, script.code(), EVAL.name(source));
        return later::run(call, state, run, Asked { words, keys: Args::EMPTY, args: Args::EMPTY });
    }
    let compiled = script.and_then(|script| state.compile(&script).map(|_| script));
    if state.engine.wants_room() && compiled.is_err() && !is_collected {
        let again = Then::Carry(|call, args| load_in(call, args, true));
        return later::collect(call, state, EVAL.name(source), words, again);
    }
    state.give_back(call);
    add(call, compiled?)
}

/// Serves SCRIPT LOAD of a text that was compiled in later turns.
fn add_loaded(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let source = next(&mut args)?;
    add(call, Script::read(digest(source), source)?)
}

/// Makes a compiled script known, and replies its digest.
fn add(call: &mut Call<'_, '_, '_>, script: Script) -> Done {
    let id = script.id;
    call.shared.scripts.add(call.cx.guard.store(), script, true)?;
    call.give_way();
    call.bulk(&id)
}

fn exists(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    call.array(args.len());
    for word in args {
        let known = id_of(word).is_some_and(|id| call.shared.scripts.find(&id).is_some());
        put_integer(call.out, i64::from(known));
    }
    Ok(())
}
