//! Texts that take long to compile. A run compiles such a text, and goes on in later turns, as any run does, if it takes more
//! than a millisecond. What the text was wanted for begins behind it.
//!
//! ```text
//! EVAL, EVALSHA ──┐                                         ┌──► the script runs
//! FCALL ──────────┤   a run, which gives Lua some bytes     ├──► the library is loaded, and its function runs
//! SCRIPT LOAD ────┼─► of it and looks at the clock, again ──┼──► the script is known
//! FUNCTION LOAD ──┘   and again                             └──► the library is loaded, and known
//! ```
//!
//! FUNCTION RESTORE has its texts compiled in the same way between its steps (`restoring`). Short texts are compiled in one step
//! where they are wanted. Like any other, these runs begin with a collection of their state if that is due, and are begun anew,
//! once, if they find no memory.

use std::sync::Arc;

use larder_protocol::resp::Args;
use larder_script::{Compiled, End, Kind};

use super::How;
use super::functions;
use super::library::{Library, Reading};
use super::run::Run;
use super::worker::State;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};

/// The error for a script that cannot be compiled; `error`: Lua's words.
pub(super) fn wrong_script(error: &str) -> Fail {
    Fail::with(format!("ERR Error compiling script (new function): {error}"))
}

/// The error for a library that cannot be compiled; `error`: Lua's words.
pub(super) fn wrong_library(error: &str) -> Fail {
    Fail::with(format!("ERR Error compiling function: {error}"))
}

/// What a text is compiled for.
#[derive(Debug)]
pub(crate) enum Compiles {
    /// A script, to run it.
    Script(How),
    /// A library, to call a function of it. `is_collected`: the worker's state was collected for it.
    Function { how: How, library: Arc<Library>, is_collected: bool },
    /// A script of SCRIPT LOAD, to make it known.
    ScriptLoad,
    /// A library of FUNCTION LOAD or FUNCTION RESTORE, to make it known. `is_own`: its state was made for the request
    /// ([`Reading`]).
    FunctionLoad { is_own: bool },
}

impl Compiles {
    /// The kind of its run.
    pub fn kind(&self) -> Kind {
        match self {
            Compiles::Script(_) | Compiles::ScriptLoad => Kind::Text,
            Compiles::Function { .. } | Compiles::FunctionLoad { .. } => Kind::LibraryText,
        }
    }

    /// Whether its state is not the worker's.
    pub fn is_apart(&self) -> bool {
        matches!(self, Compiles::FunctionLoad { is_own: true })
    }

    /// Makes the run that compiles a text in this state. `name`: what errors call it.
    pub fn run(self, call: &Call<'_, '_, '_>, state: &State, text: &[u8], name: Box<str>) -> Run {
        state.engine.set_text(text);
        Run::compiling(call, state.engine.nothing(), name, self)
    }

    /// Ends the run: begins what comes behind it, or replies why not.
    pub fn end(
        self,
        call: &mut Call<'_, '_, '_>,
        state: Box<State>,
        run: &Run,
        words: Args<'_>,
        end: End,
    ) -> Done {
        match self.compiled(call, &state, run, end) {
            Ok(compiled) => self.go_on(call, state, words, compiled),
            Err(fail) => {
                self.leave(call, state);
                Err(fail)
            }
        }
    }

    /// What the run has compiled.
    ///
    /// # Errors
    /// What is wrong with the text, or why the run was ended.
    pub fn compiled(
        &self,
        call: &mut Call<'_, '_, '_>,
        state: &State,
        run: &Run,
        end: End,
    ) -> Result<Compiled, Fail> {
        const NO_MEMORY: &str = "not enough memory";
        state.engine.forget_text();
        let compiled = match end {
            End::Value(outcome) => state.engine.compiled(outcome).ok_or_else(|| NO_MEMORY.to_owned()),
            End::NoMemory => Err(NO_MEMORY.to_owned()),
            End::Failed { text, .. } => {
                Err(String::from_utf8_lossy(text.strip_prefix(b"ERR ").unwrap_or(&text)).into_owned())
            }
            end @ (End::Stopped { .. } | End::TooLarge) => {
                // Such an end is always an error.
                run.reply(call, state, end)?;
                Err(NO_MEMORY.to_owned())
            }
        };
        compiled.map_err(|error| match self.kind() {
            Kind::LibraryText => wrong_library(&error),
            Kind::Script | Kind::Function | Kind::Library | Kind::Text => wrong_script(&error),
        })
    }

    /// Ends without what comes behind: gives the state back to the worker, or drops its own.
    fn leave(&self, call: &mut Call<'_, '_, '_>, state: Box<State>) {
        if !self.is_apart() {
            state.give_back(call);
        }
    }

    fn go_on(
        self,
        call: &mut Call<'_, '_, '_>,
        state: Box<State>,
        words: Args<'_>,
        compiled: Compiled,
    ) -> Done {
        match self {
            Compiles::Script(how) => how.begin_compiled(call, state, words, &compiled),
            Compiles::Function { how, library, is_collected } => {
                how.call_compiled(call, state, words, (compiled, &library), is_collected)
            }
            Compiles::ScriptLoad => {
                state.give_back(call);
                super::add_loaded(call, words)
            }
            Compiles::FunctionLoad { is_own } => {
                functions::load_compiled(call, Reading::of(state, is_own), &compiled, words)
            }
        }
    }
}
