//! Texts that take long to compile. A run compiles such a text: in later turns, as any run goes on, where it takes more than a
//! millisecond. What the text was wanted for comes behind it.
//!
//! ```text
//! EVAL, EVALSHA ──┐                                         ┌──► the script runs
//! FCALL ──────────┤   a run, which gives Lua some bytes     ├──► the library is loaded, and its function runs
//! SCRIPT LOAD ────┼─► of it and looks at the clock, again ──┼──► the script is known
//! FUNCTION LOAD ──┘   and again                             └──► the library is loaded, and known
//! ```
//!
//! FUNCTION RESTORE has its texts compiled so between its steps (`restoring`). Short texts are compiled where they are wanted, in
//! one step. Like any other run these begin by collecting their state where that is due, and begin anew, once, where they find no
//! memory.

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

/// What a script is told that cannot be compiled, by what Lua says of it.
pub(super) fn wrong_script(error: &str) -> Fail {
    Fail::with(format!("ERR Error compiling script (new function): {error}"))
}

/// The same of a library.
pub(super) fn wrong_library(error: &str) -> Fail {
    Fail::with(format!("ERR Error compiling function: {error}"))
}

/// What a text is compiled for.
#[derive(Debug)]
pub(crate) enum Compiles {
    /// A script that runs then.
    Script(How),
    /// A library of which a function is called then. `is_collected`: the worker's state was collected for it.
    Function { how: How, library: Arc<Library>, is_collected: bool },
    /// A script that is known then: SCRIPT LOAD.
    ScriptLoad,
    /// A library that is known then: FUNCTION LOAD, or FUNCTION RESTORE with others. `is_own`: its state was made for it
    /// ([`Reading`]).
    FunctionLoad { is_own: bool },
}

impl Compiles {
    /// What its run is.
    pub fn kind(&self) -> Kind {
        match self {
            Compiles::Script(_) | Compiles::ScriptLoad => Kind::Text,
            Compiles::Function { .. } | Compiles::FunctionLoad { .. } => Kind::LibraryText,
        }
    }

    /// Its state is not the worker's.
    pub fn is_apart(&self) -> bool {
        matches!(self, Compiles::FunctionLoad { is_own: true })
    }

    /// The run that compiles a text in this state. `name`: what errors call it.
    pub fn run(self, call: &Call<'_, '_, '_>, state: &State, text: &[u8], name: Box<str>) -> Run {
        state.engine.set_text(text);
        Run::compiling(call, state.engine.nothing(), name, self)
    }

    /// The run has ended: what comes behind it begins, or it is told why it does not.
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

    /// What its run has come to.
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
                // These are errors.
                run.reply(call, state, end)?;
                Err(NO_MEMORY.to_owned())
            }
        };
        compiled.map_err(|error| match self.kind() {
            Kind::LibraryText => wrong_library(&error),
            Kind::Script | Kind::Function | Kind::Library | Kind::Text => wrong_script(&error),
        })
    }

    /// What it was for is not to come: its state is the worker's again, or goes.
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
