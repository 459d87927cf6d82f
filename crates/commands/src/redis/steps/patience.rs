//! How a command in steps waits for memory while its keys are held. A step that found none has done nothing, and is made again in
//! some milliseconds if some is on its way. Its worker serves others meanwhile, but requests for these keys wait: so a command
//! that has waited too long in all is refused, or frees its keys.

use larder_store::Millis;

use crate::core::input::Asked;
use crate::core::progress::Next;
use crate::redis::call::Call;
use crate::redis::fail::Fail;
use crate::redis::steps::job::{Job, Step};

/// How long a command waits for memory in all while its keys are held: as long as an EXEC in steps may work.
const WAITS_MS_MAX: Millis = 2_000;

/// How long a command has waited for memory.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// How often its next step was tried again.
    asked: Asked,
    waited_ms: Millis,
}

impl Patience {
    /// Notes that a step was done: the next one has not been tried yet.
    pub fn found(&mut self) {
        self.asked = Asked::default();
    }

    /// Whether the command has waited for as long as others may wait for its keys.
    pub fn is_over(&self) -> bool {
        self.waited_ms >= WAITS_MS_MAX
    }

    /// Makes a step of a job, or says when to make it again.
    ///
    /// # Errors
    /// The step's error; or it has waited for memory for long enough.
    pub fn step(&mut self, call: &mut Call<'_, '_, '_>, job: &mut dyn Job) -> Result<Step, Fail> {
        let asks = job.asks_again();
        let done = if !asks && call.finds_none_for(&*job) {
            Err(Fail::OUT_OF_MEMORY)
        } else {
            let again = call.cx.guard.ask_again(asks);
            let done = job.step(call);
            call.cx.guard.ask_again(again);
            if !asks || !done.as_ref().is_err_and(|fail| call.comes_for(&*job, fail)) {
                self.found();
                return done;
            }
            done
        };
        match self.again_ms(call, 0) {
            Some(ms) => Ok(Step::Sleep(ms)),
            None => done,
        }
    }

    /// When to make a step again that found no memory, while some is on its way. `written`: how much the command had done before.
    /// `None` if it has waited for long enough: then the step is not made again, for which the worker would sleep.
    pub fn again_ms(&mut self, call: &mut Call<'_, '_, '_>, written: usize) -> Option<Millis> {
        if !self.is_over()
            && let Some(Next::Sleep(ms)) = self.asked.again(call.cx, written)
        {
            self.waited_ms += ms;
            return Some(ms);
        }
        call.cx.guard.memory_ran_out();
        None
    }
}
