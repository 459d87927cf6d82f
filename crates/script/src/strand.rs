//! The stack that scripts of one state run on. To ask something, or to be looked at, a script leaves it for the stack of its
//! worker, which comes back with an answer, at once or in a later turn.
//!
//! ```text
//! worker's stack      resume(Resume) ──┐                     ┌──► Said
//! script's stack                       └─► Lua … redis.call ─┘
//! ```
//!
//! One stack runs all scripts: it waits for a script, runs it, and waits for the next. A script that was left halfway, and does
//! not go on, is ended where it is. The stack ends when it is told to.

use std::rc::Rc;

use crate::engine::{Kind, Shared};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mlua::prelude::{Lua, LuaError, LuaFunction, LuaMultiValue, LuaResult, LuaTable, LuaValue};

/// Bytes of the stack, of which only those take memory that were used. Lua's depth has a bound, 200 calls of C, and so have
/// libraries in Rust: 256 nested tables take 130 KiB, and 1.5 MiB without optimisation. JSON may have 1,000, which take four
/// times as much. A quarter of this stack was enough for 256.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 16 << 20 } else { 4 << 20 };
/// Name in the registry of the function that the hook calls.
pub(crate) const TICK: &str = "tick";
/// How often a script, or the stack, is told to end. One that has not ended then is left as it is.
const ENDS_MAX: usize = 10_000;

/// What a script's stack is resumed with.
#[derive(Debug)]
pub(crate) enum Resume {
    /// Runs a script. Without words the run collects the state first, and then asks for them.
    Run { script: LuaFunction, words: Option<(LuaTable, LuaTable)>, kind: u32 },
    /// The answer to what the script asked: true and a value; false and an error to be raised.
    Answer(bool, LuaValue),
    /// Goes on.
    GoOn,
    /// Ends the script, or the stack if no script is at work.
    End,
}

/// What the stack says when it is left.
#[derive(Debug)]
pub(crate) enum Said {
    /// It waits for a script.
    Ready,
    /// The script asks something.
    Asks(LuaMultiValue),
    /// The script has worked for a while.
    Ticks,
    /// The script has ended.
    Ended(LuaResult<(bool, LuaValue)>),
}

/// A stack.
pub(crate) struct Strand(Option<Coroutine<Resume, Said, ()>>);

impl Strand {
    /// The stack of a state, in which `run` runs a script.
    ///
    /// # Errors
    /// If there is no memory for it, or Lua's.
    pub fn new(lua: &Lua, run: &LuaFunction, shared: &Rc<Shared>) -> LuaResult<Strand> {
        let stack = DefaultStack::new(STACK_BYTES).map_err(LuaError::external)?;
        let (lua, run, shared) = (lua.clone(), run.clone(), Rc::clone(shared));
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<Resume, Said>, _: Resume| {
            // The outcome of each script was said before.
            let _ = live(&lua, &run, &shared, yielder);
        });
        let mut strand = Strand(Some(coroutine));
        match strand.resume(Resume::GoOn) {
            Some(Said::Ready) => Ok(strand),
            _ => Err(LuaError::runtime("no stack for scripts")),
        }
    }

    /// Resumes the stack, and returns what it says; `None` if it has ended.
    pub fn resume(&mut self, told: Resume) -> Option<Said> {
        match self.0.as_mut()?.resume(told) {
            CoroutineResult::Yield(said) => Some(said),
            CoroutineResult::Return(()) => {
                self.0 = None;
                None
            }
        }
    }

    /// Ends the script at work: its state raises an error that nothing catches. The stack waits for the next one then. False if
    /// it does not, and is of no more use.
    pub fn leave(&mut self) -> bool {
        for _ in 0..ENDS_MAX {
            match self.resume(Resume::End) {
                Some(Said::Asks(_) | Said::Ticks) => {}
                Some(Said::Ended(_)) => return true,
                Some(Said::Ready) | None => return false,
            }
        }
        false
    }

    /// Ends the stack, with the script at work on it, whose state raises an error that nothing catches.
    pub fn end(&mut self) {
        for _ in 0..ENDS_MAX {
            if self.resume(Resume::End).is_none() {
                return;
            }
        }
        // A stack that is not left cannot be freed.
        std::mem::forget(self.0.take());
    }
}

/// Runs scripts on the stack, one after another, until it is told to end.
fn live(lua: &Lua, run: &LuaFunction, shared: &Shared, yielder: &Yielder<Resume, Said>) -> LuaResult<()> {
    lua.scope(|scope| {
        let ask = scope.create_function(|_, values: LuaMultiValue| {
            Ok(match yielder.suspend(Said::Asks(values)) {
                Resume::Answer(done, value) => (done, value),
                Resume::Run { .. } | Resume::GoOn | Resume::End => (false, LuaValue::Nil),
            })
        })?;
        let tick = scope.create_function(|_, ()| Ok(matches!(yielder.suspend(Said::Ticks), Resume::GoOn)))?;
        lua.set_named_registry_value(TICK, tick)?;
        let mut told = yielder.suspend(Said::Ready);
        while let Resume::Run { script, words, kind } = told {
            let (keys, args) = words.unzip();
            let mut done = run.call::<(bool, LuaValue)>((script, &ask, keys, args, kind));
            // The reply of a table is written here, where the script can be looked at, and left.
            if let Ok((true, value @ LuaValue::Table(_))) = &mut done
                && kind != Kind::Library as u32
            {
                shared.write(lua, &std::mem::replace(value, LuaValue::Nil));
            }
            told = yielder.suspend(Said::Ended(done));
        }
        Ok(())
    })
}
