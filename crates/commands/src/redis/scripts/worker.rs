//! What a worker keeps for scripts: a Lua state, made for the first of them, with the scripts that it has compiled; and which of
//! its scripts goes on in later turns.
//!
//! A state keeps nothing between runs but the variables of libraries: globals are read-only. So a state without a library is
//! dropped as a whole when a collection is due (`collector` of `larder_script`), which frees its memory at once, unless it is so
//! large that this would take long ([`DROPPED_BYTES_MAX`]). A larger one stays, and the next run collects it, in turns. A state
//! with libraries stays, however full: the next run collects it, and if that leaves no room, scripts and functions fail. It stays
//! also when the client of its script goes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use larder_script::{Account, Berth, Compiled, Engine, Kind, Running};
use larder_store::Store;

use super::cache::{Id, Script};
use super::compiling::wrong_script;
use super::library::Loaded;
use crate::core::output::Output;
use crate::redis::call::Call;
use crate::redis::fail::Fail;

/// All states together take at most one part in so many of the memory limit.
const STATES_SHARE: u64 = 4;
/// Most states of a worker: one of two runs a script that goes on in later turns.
const STATES: u64 = 2;
/// Each state may take at least this much. The environment of scripts takes a third of it.
const STATE_BYTES_MIN: u64 = 1 << 20;
/// No state may take more than this.
const STATE_BYTES_MAX: u64 = 64 << 20;
/// A state of at most so many bytes is dropped in one step: 64 MiB take 30 to 45 ms, this some 5.
const DROPPED_BYTES_MAX: usize = 8 << 20;
/// Compiled scripts of a state, at most: each takes a place in it.
const COMPILED_MAX: usize = 256;
/// Bytes that stay allocated for replies of commands that scripts call.
const REPLY_BYTES: usize = 16 << 10;

/// Charges a state to the store, and a reply that it writes to what connections hold.
struct OfStore(Arc<Store>);

impl Account for OfStore {
    fn aside(&self, more: i64) {
        self.0.set_aside(more);
    }

    fn hold(&self, more: i64) -> bool {
        let may = u64::try_from(more).map_or(true, |more| self.0.may_hold(more));
        if may {
            self.0.hold(more);
        }
        may
    }
}

/// A Lua state, for the time of a command.
#[derive(Debug)]
pub(crate) struct State {
    pub engine: Engine,
    pub running: Arc<Running>,
    /// Replies of the commands that a script calls.
    pub out: Output,
    /// Compiled scripts. Weak: a script is freed when it is no longer known, though a worker has compiled it.
    compiled: HashMap<Id, (Weak<Script>, Compiled)>,
    /// Libraries of functions, by name.
    pub libraries: HashMap<Box<str>, Loaded>,
    /// How often scripts or libraries had been forgotten when this state was last used.
    flushes: u32,
}

/// What a worker keeps.
#[derive(Debug, Default)]
struct Own {
    /// Its state, unless a script has it.
    place: Arc<Berth<State>>,
    long: Weak<Long>,
}

/// A script that goes on in later turns.
#[derive(Debug)]
pub(crate) struct Long {
    /// Since when, by the host's clock.
    pub since_us: u64,
    /// It only prepares: it collects its state, or compiles a text, before what the client asked for.
    pub prepares: bool,
    /// Its state is not the worker's.
    pub is_apart: bool,
    /// Where its state is put back: the worker's place.
    place: Arc<Berth<State>>,
}

impl Long {
    /// Puts back the state of a script that goes before its end.
    pub fn leave(&self, state: Box<State>) {
        if !self.is_apart {
            state.abandoned(&self.place);
        }
    }
}

/// The worker's script that goes on in later turns, if there is one.
pub(crate) fn long(call: &Call<'_, '_, '_>) -> Option<Arc<Long>> {
    let own = call.cx.room.take_kept::<Own>()?;
    let long = own.long.upgrade();
    call.cx.room.keep(own);
    long
}

/// Notes that a script, or what prepares for one, goes on in later turns as long as the result is held. `is_apart`: its state is
/// not the worker's.
pub(crate) fn begin_long(call: &Call<'_, '_, '_>, prepares: bool, is_apart: bool) -> Arc<Long> {
    let mut own = call.cx.room.take_kept::<Own>().unwrap_or_default();
    let since_us = call.cx.host.clock_us();
    let long = Arc::new(Long { since_us, prepares, is_apart, place: Arc::clone(&own.place) });
    own.long = Arc::downgrade(&long);
    call.cx.room.keep(own);
    long
}

/// Notes that the worker's script in later turns has ended: another may go on so.
pub(crate) fn end_long(call: &Call<'_, '_, '_>) {
    let Some(mut own) = call.cx.room.take_kept::<Own>() else { return };
    own.long = Weak::new();
    call.cx.room.keep(own);
}

impl State {
    /// Takes the worker's state, or makes one. The caller has to give it back.
    ///
    /// # Errors
    /// Lua cannot be begun.
    pub fn of(call: &mut Call<'_, '_, '_>) -> Result<Box<State>, Fail> {
        let own = call.cx.room.take_kept::<Own>().unwrap_or_default();
        let state = own.place.take();
        call.cx.room.keep(own);
        let flushes = call.shared.scripts.flushes();
        match state.and_then(|state| state.after(flushes)) {
            Some(state) => Ok(state),
            None => State::new(call),
        }
    }

    /// Frees what is no longer known: libraries that were deleted, and all scripts if `flushes` has changed. `None` if the state
    /// itself is dropped.
    fn after(mut self: Box<State>, flushes: u32) -> Option<Box<State>> {
        // What deleted or replaced libraries kept is garbage: no run is to fail for it.
        self.libraries.retain(|_, loaded| loaded.is_known());
        if std::mem::replace(&mut self.flushes, flushes) != flushes {
            self.compiled.clear();
            if self.is_dropped() {
                return None;
            }
            if self.libraries.is_empty() {
                self.make_room();
            }
        }
        Some(self)
    }

    /// Whether the state is dropped instead of collected: it has no library, and is small.
    fn is_dropped(&self) -> bool {
        self.libraries.is_empty() && self.engine.used_bytes() <= DROPPED_BYTES_MAX
    }

    /// Frees what this worker has of forgotten scripts or libraries; other workers do so with their next script.
    pub fn forget(call: &Call<'_, '_, '_>) {
        let flushes = call.shared.scripts.note_flush();
        let Some(own) = call.cx.room.take_kept::<Own>() else { return };
        if let Some(state) = own.place.take().and_then(|state| state.after(flushes)) {
            own.place.put(state);
        }
        call.cx.room.keep(own);
    }

    /// Makes a new state.
    ///
    /// # Errors
    /// Lua cannot be begun.
    pub fn new(call: &mut Call<'_, '_, '_>) -> Result<Box<State>, Fail> {
        let store = call.cx.guard.store();
        let running = Arc::new(Running::default());
        let account = Box::new(OfStore(Arc::clone(store)));
        let engine = Engine::new(bytes_max(store), Arc::clone(&running), account, call.cx.host.script_pace())
            .map_err(|error| Fail::with(format!("ERR scripts cannot be run: {error}")))?;
        let out = Output::charged(u64::MAX, store, 0);
        call.shared.scripts.enter(&running);
        call.give_way();
        let (compiled, libraries, flushes) = (HashMap::new(), HashMap::new(), call.shared.scripts.flushes());
        Ok(Box::new(State { engine, running, out, compiled, libraries, flushes }))
    }

    /// Keeps the state for the next script. It is dropped if a collection is due and it is small and has no library; or beside a
    /// script in later turns, whose state the worker keeps instead.
    pub fn give_back(self: Box<State>, call: &mut Call<'_, '_, '_>) {
        let own = call.cx.room.take_kept::<Own>().unwrap_or_default();
        let kept = self.rested(own.long.upgrade().is_some_and(|long| !long.is_apart));
        let is_kept = kept.is_some();
        // Another state that was made meanwhile is dropped.
        drop(kept.and_then(|state| own.place.replace(state)));
        call.cx.room.keep(own);
        // Items are evicted for what the state has grown by.
        if is_kept && call.cx.guard.store().is_over_limit() {
            call.give_way();
        }
    }

    /// Ends the script that is at work in the state. A state with a library is kept for the next script, as by
    /// [`State::give_back`], since its variables are not that script's alone; and so is a large one. `place`: its worker's.
    fn abandoned(mut self: Box<State>, place: &Berth<State>) {
        self.libraries.retain(|_, loaded| loaded.is_known());
        let has_libraries = !self.libraries.is_empty();
        if self.is_dropped() || !self.engine.abandon() {
            return;
        }
        let Some(state) = self.rested(false) else { return };
        // Another state that was made meanwhile may have variables of libraries.
        match place.take().filter(|_| !has_libraries) {
            Some(other) => place.put(other),
            None => place.put(state),
        }
    }

    /// What is kept of the state when no script is at work in it. `is_beside`: the worker will keep another script's state.
    fn rested(mut self: Box<State>, is_beside: bool) -> Option<Box<State>> {
        self.out.clear();
        self.out.shrink(REPLY_BYTES);
        if self.engine.is_due() {
            self.make_room();
            if self.is_dropped() || is_beside {
                return None;
            }
        }
        Some(self)
    }

    /// Frees compiled scripts, and libraries that are no longer known. The next run begins with a collection.
    pub fn make_room(&mut self) {
        self.compiled.clear();
        self.libraries.retain(|_, loaded| loaded.is_known());
        self.engine.make_room();
    }

    /// Finds a script that was compiled here and is still known, ready to run.
    pub fn ready(&self, id: &Id) -> Option<(Arc<Script>, Compiled)> {
        let (script, compiled) = self.compiled.get(id)?;
        let script = script.upgrade().filter(|script| !script.is_gone())?;
        Some((script, compiled.clone()))
    }

    /// Keeps a script that was compiled here.
    pub fn keep(&mut self, script: &Arc<Script>, compiled: &Compiled) {
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(script.id, (Arc::downgrade(script), compiled.clone()));
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// What Lua says of it.
    pub fn compile(&self, script: &Script) -> Result<Compiled, Fail> {
        let compiled = self.engine.compile(script.code(), Kind::Script);
        compiled.map_err(|error| wrong_script(&error))
    }
}

/// Bytes that a state may take.
fn bytes_max(store: &Store) -> usize {
    let all = store.memory_bytes() / STATES_SHARE;
    let each = all / (STATES * store.workers_max() as u64);
    each.clamp(STATE_BYTES_MIN, STATE_BYTES_MAX) as usize
}
