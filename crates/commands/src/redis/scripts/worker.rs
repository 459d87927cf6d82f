//! What a worker keeps for scripts: a Lua state, made at the first of them, with those that it has compiled; and which
//! script of its own goes on in later turns.
//!
//! Nothing is kept in a state but what libraries have in their variables: globals are read-only. So a state without a library
//! goes as a whole where it is due to be collected (`collector` of `larder_script`), which gives its memory back at once, if it is
//! not so large that this would take long ([`DROPPED_BYTES_MAX`]). A larger one stays, and the next run collects it, in turns. One
//! with libraries stays, however much of it is in use: the next run collects it, and where that leaves no room, scripts and
//! functions fail by that. It stays also where the client of the script goes that has it.

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

/// All states take one part in this many of the memory at most …
const STATES_SHARE: u64 = 4;
/// … a worker has up to two, one of which has a script that goes on in later turns …
const STATES: u64 = 2;
/// … and each may take so much in any case: what scripts see takes a third of it …
const STATE_BYTES_MIN: u64 = 1 << 20;
/// … and no more than this.
const STATE_BYTES_MAX: u64 = 64 << 20;
/// What is in a state goes with it, in one step: 64 MiB take 30 to 45 ms, this some 5.
const DROPPED_BYTES_MAX: usize = 8 << 20;
/// Scripts that a state has compiled at a time: each holds a place of it.
const COMPILED_MAX: usize = 256;
/// What is kept for replies of commands that scripts call.
const REPLY_BYTES: usize = 16 << 10;

/// A state is charged to the store; a reply that it writes is part of what connections hold.
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
    /// Scripts go when they are known no more, though a worker has compiled them.
    compiled: HashMap<Id, (Weak<Script>, Compiled)>,
    /// Libraries of functions, by name.
    pub libraries: HashMap<Box<str>, Loaded>,
    /// How often scripts or libraries had been forgotten when this was looked at.
    flushes: u32,
}

/// A worker's part.
#[derive(Debug, Default)]
struct Own {
    /// Where its state lies, unless a script has it.
    place: Arc<Berth<State>>,
    long: Weak<Long>,
}

/// A script that goes on in later turns.
#[derive(Debug)]
pub(crate) struct Long {
    /// Since when, by the clock of its host.
    pub since_us: u64,
    /// It comes before what a client has asked for: it only collects the state that it has, or compiles a text.
    pub prepares: bool,
    /// Its state is not the worker's.
    pub is_apart: bool,
    /// Where the state goes that it has: its worker's place for that.
    place: Arc<Berth<State>>,
}

impl Long {
    /// The script goes before it has come to its end. `state`: what it has.
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

/// A script goes on in later turns, or what prepares for one does, as long as the result is held. `is_apart`: its state is not
/// the worker's.
pub(crate) fn begin_long(call: &Call<'_, '_, '_>, prepares: bool, is_apart: bool) -> Arc<Long> {
    let mut own = call.cx.room.take_kept::<Own>().unwrap_or_default();
    let since_us = call.cx.host.clock_us();
    let long = Arc::new(Long { since_us, prepares, is_apart, place: Arc::clone(&own.place) });
    own.long = Arc::downgrade(&long);
    call.cx.room.keep(own);
    long
}

/// The worker's script that went on in later turns has ended: another may go on so.
pub(crate) fn end_long(call: &Call<'_, '_, '_>) {
    let Some(mut own) = call.cx.room.take_kept::<Own>() else { return };
    own.long = Weak::new();
    call.cx.room.keep(own);
}

impl State {
    /// The worker's state, for the time of a command: it has to be given back.
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

    /// What is left of it where libraries are known no more, and all scripts or libraries were forgotten so many times; none if
    /// that is nothing.
    fn after(mut self: Box<State>, flushes: u32) -> Option<Box<State>> {
        // What those that were deleted or replaced have kept is out of use: no run is to fail by it.
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

    /// Where it is to be collected it goes instead: no library is in it, and it is small.
    fn is_dropped(&self) -> bool {
        self.libraries.is_empty() && self.engine.used_bytes() <= DROPPED_BYTES_MAX
    }

    /// Forgets what this worker has of scripts or libraries that were forgotten; others do so with their next script.
    pub fn forget(call: &Call<'_, '_, '_>) {
        let flushes = call.shared.scripts.note_flush();
        let Some(own) = call.cx.room.take_kept::<Own>() else { return };
        if let Some(state) = own.place.take().and_then(|state| state.after(flushes)) {
            own.place.put(state);
        }
        call.cx.room.keep(own);
    }

    /// A new state.
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

    /// Keeps it for the next; one that is due to be collected, is small and has no library, is made anew then. So is one beside a
    /// script that goes on in later turns, whose variables would go with that script anyway.
    pub fn give_back(self: Box<State>, call: &mut Call<'_, '_, '_>) {
        let own = call.cx.room.take_kept::<Own>().unwrap_or_default();
        let kept = self.rested(own.long.upgrade().is_some_and(|long| !long.is_apart));
        let is_kept = kept.is_some();
        // Another that was made meanwhile goes.
        drop(kept.and_then(|state| own.place.replace(state)));
        call.cx.room.keep(own);
        // What it has grown by.
        if is_kept && call.cx.guard.store().is_over_limit() {
            call.give_way();
        }
    }

    /// Ends the script that is at work in it. One with a library is kept for the next, as by [`State::give_back`]: its variables
    /// are not that script's alone; and so is a large one. `place`: its worker's.
    fn abandoned(mut self: Box<State>, place: &Berth<State>) {
        self.libraries.retain(|_, loaded| loaded.is_known());
        let has_libraries = !self.libraries.is_empty();
        if self.is_dropped() || !self.engine.abandon() {
            return;
        }
        let Some(state) = self.rested(false) else { return };
        // Variables of libraries may be in another that was made meanwhile.
        match place.take().filter(|_| !has_libraries) {
            Some(other) => place.put(other),
            None => place.put(state),
        }
    }

    /// What is kept of it when no script is at work in it. `is_beside`: another script of the worker has the state that stays.
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

    /// Other scripts' code goes, and libraries that are known no more do; the next run begins by collecting what is out of use.
    pub fn make_room(&mut self) {
        self.compiled.clear();
        self.libraries.retain(|_, loaded| loaded.is_known());
        self.engine.make_room();
    }

    /// A script that was compiled here and is still known, ready to run here.
    pub fn ready(&self, id: &Id) -> Option<(Arc<Script>, Compiled)> {
        let (script, compiled) = self.compiled.get(id)?;
        let script = script.upgrade().filter(|script| !script.is_gone())?;
        Some((script, compiled.clone()))
    }

    /// Keeps a script that was compiled here, ready to run here.
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

/// What a state may take.
fn bytes_max(store: &Store) -> usize {
    let all = store.memory_bytes() / STATES_SHARE;
    let each = all / (STATES * store.workers_max() as u64);
    each.clamp(STATE_BYTES_MIN, STATE_BYTES_MAX) as usize
}
